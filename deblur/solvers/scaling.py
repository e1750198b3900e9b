"""Problems of any size brought near one, where squares neither overflow nor vanish.

With H = s H', g = t g' and f = (t/s) f' every term of the problem is a power of s and t times the same term of one near
one, so that λ, bounds, background, noise and the objective follow. Powers of two change no digit, and what is near one
is left as it is. The road does this once, and states what comes back in the units of the image; a method sees problems
near one alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..denoise.denoisers import is_named
from ..device import Array, get_xp
from ..norms import largest
from ..operators.blur import Blur
from ..operators.operator import Operator
from ..problem import Denoiser, Problem
from ..terms import FORMULA, is_quadratic

_NEAR = 20  # powers of two: the fourth power of a number so near one is far from the ends of float32
# Of λ near one, beside a penalty that has a null space: further is no different.
_LEAST, _MOST = 2.0**-80, 2.0**40


@dataclass(frozen=True)
class Scale:
    """Powers of two: H = 2^psf H' and g = 2^image g'. Both are 0 where nothing is to be done."""

    psf: int = 0
    image: int = 0

    @classmethod
    def of(cls, problem: Problem, g: Array | None = None) -> Scale:
        """The scale of a problem and, if they are given, its frames.

        Of an operator that is no blur by one PSF nothing can be divided: it is left as it is.
        """
        blur = problem.operator.stationary
        # λ‖f‖² beside a much smaller operator is what must stay near one.
        beside = math.sqrt(problem.lam) if problem.penalty in FORMULA else 0.0
        psf = 0 if blur is None else _exponent(max(blur.gain, beside))
        return cls(psf, 0 if g is None else _exponent(largest(g)))

    def __bool__(self) -> bool:
        return bool(self.psf or self.image)

    @property
    def scene(self) -> int:
        """f = 2^scene f'."""
        return self.image - self.psf

    def objective(self, problem: Problem) -> int:
        """D + λR is 2^objective times that of the problem near one."""
        return (2 if problem.fit.name in ("gaussian", "huber") else 1) * self.image

    def lam(self, problem: Problem) -> int:
        """λ is 2^lam times that of the problem near one."""
        degree = 2 if is_quadratic(problem.penalty) else 0 if problem.penalty == "denoiser" else 1
        return self.objective(problem) - degree * self.scene

    def near(self, problem: Problem, operator: Operator | None = None) -> Problem:
        """The problem near one; `operator` is its operator if that is at hand."""
        if not self:
            return problem
        fit, down = problem.fit, partial(shifted, by=-self.image)
        lam = shifted(problem.lam, -self.lam(problem))
        if problem.lam:
            ends = (
                (np.finfo(float).tiny, np.finfo(float).max) if problem.penalty in FORMULA else (_LEAST, _MOST)
            )
            lam = min(max(lam, ends[0]), ends[1])
        lo, hi = (shifted(b, -self.scene) for b in problem.bounds or (0.0, 0.0))
        return replace(
            problem,
            operator=self.operator(problem.operator) if operator is None else operator,
            lam=lam,
            fit=replace(fit, background=down(fit.background), delta=down(fit.delta)),
            bounds=None if problem.bounds is None else (lo, hi),
            denoiser=None if problem.denoiser is None else Rescaled.of(problem.denoiser, self.scene),
        )

    def operator(self, operator: Operator) -> Operator:
        """H' of H."""
        blur = operator.stationary
        if blur is None or not self.psf:
            return operator
        return Blur(np.ldexp(blur.psf, -self.psf), blur.image_shape, blur.boundary, origin=blur.origin)

    def said(self, text: str) -> str:
        """`text` with a word on what its figures are in, if that is not the image's own units."""
        if not self or not text:
            return text
        return f"{text} (figures with the image over 2^{self.image} and the PSF over 2^{self.psf})"


def _exponent(size: float) -> int:
    exponent = round(math.log2(size)) if 0 < size < math.inf else 0
    return exponent if abs(exponent) > _NEAR else 0


def shifted(value: Any, by: int) -> Any:
    """`value`, a number or an array, times 2^by; infinite or 0 where there is no such number."""
    if not by:
        return value
    if isinstance(value, float):
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(value, by))
    with np.errstate(over="ignore", under="ignore"):
        return get_xp(value).ldexp(value, by)


@dataclass(frozen=True)
class Rescaled:
    """A denoiser that sees images on the scale on which its user knows them."""

    denoiser: Denoiser
    by: int

    @classmethod
    def of(cls, denoiser: Denoiser, by: int) -> Denoiser:
        """One of this project's table knows every scale."""
        return denoiser if is_named(denoiser) or not by else cls(denoiser, by)

    def __call__(self, image: Array, sigma: float) -> Array:
        return shifted(self.denoiser(shifted(image, self.by), shifted(float(sigma), self.by)), -self.by)

    @property
    def __name__(self) -> str:
        return getattr(self.denoiser, "__name__", type(self.denoiser).__name__)

"""Normalise a problem by powers of two, so that squares neither overflow nor vanish.

With H = s H', g = t g' and f = (t/s) f', every term of the problem is a power of s and t times the same term of the
normalised problem. This fixes the factors of λ, bounds, background, noise and objective. Powers of two change no digit.
The pipeline normalises once, and returns its results in the units of the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from .denoise.denoisers import is_named
from .device import Array
from .norms import combined, largest, shifted
from .operators.operator import LinearMap, Operator
from .problem import Denoiser, Problem
from .terms import FORMULA, is_quadratic

#: Range of λ over the operator's squared norm, as powers of two. Above 2^_MOST the minimiser is Hᵀg/λ up to rounding.
#: Below 2^_LEAST no method can distinguish λ from zero.
_LEAST, _MOST = -116, 56


@dataclass(frozen=True)
class Scale:
    """Exponents of powers of two: H = 2^psf H', g = 2^image g' and f = 2^scene f'; the weights are `weight` times
    normalised ones.

    All exponents are 0 and `weight` is 1 if the problem needs no scaling. `faint` is the excess of λ's exponent over
    `_MOST`.
    """

    psf: int = 0
    image: int = 0
    faint: int = 0
    weight: float = 1.0

    @classmethod
    def of(cls, problem: Problem, g: Array | None = None, weight: float = 1.0) -> Scale:
        """Return the scale of a problem and, if they are given, of its frames."""
        size, faint = problem.operator.norm_bound, 0
        if problem.lam and problem.quadratic and problem.regularizer in FORMULA:
            over = math.log2(problem.lam) - math.log2(weight) - 2 * math.log2(size)
            faint = max(0, math.ceil(over) - _MOST)
        return cls(_exponent(size, 2), 0 if g is None else _exponent(largest(g)), faint, weight)

    @classmethod
    def of_image(cls, problem: Problem, g: Array) -> Scale:
        """Return the scale on which the largest visible value of frames (k, c, M, N) is in [1/2, 1)."""
        weights = problem.fidelity.weights
        _, exponent = math.frexp(largest(g if weights is None else problem.xp.where(weights > 0, g, 0)))
        most = int(np.finfo(g.dtype).maxexp) - 2  # so that 2^-image is finite, too
        return cls(0, min(max(exponent, -most), most))

    def __bool__(self) -> bool:
        return self != Scale()

    @property
    def scene(self) -> int:
        """The exponent in f = 2^scene f'."""
        return self.image - self.psf - self.faint

    def down(self, x: Array) -> Array:
        """Return frames or scenes in the units of a scale from `of_image`."""
        return x if not self.image else combined(x, a=2.0**-self.image)

    def up(self, x: Array) -> Array:
        """Return the inverse of `down`, always in a new array."""
        return combined(x, a=2.0**self.image)

    def objective(self, problem: Problem) -> int:
        """Return the exponent in D + λR = 2^objective `weight` (D' + λ'R')."""
        return (2 if problem.fidelity.name in ("gaussian", "huber") else 1) * self.image

    def lam(self, problem: Problem, value: Any, down: bool = False) -> Any:
        """Return the λ, a number or an array, of a normalised λ; with `down`, return the normalised λ of a λ."""
        degree = 2 if is_quadratic(problem.regularizer) else 0 if problem.regularizer == "denoiser" else 1
        half, exponent = math.frexp(self.weight)
        power = self.objective(problem) - degree * self.scene - self.faint + exponent - 1
        return shifted(value / (2 * half), -power) if down else shifted(value * (2 * half), power)

    def near(self, problem: Problem) -> Problem:
        """Return the normalised problem."""
        if not self:
            return problem
        fidelity, down = problem.fidelity, partial(shifted, by=-self.image)
        operator, lam = self.operator(problem.operator), problem.lam
        if lam:
            # For a regularizer with a null space the minimiser does not change beyond these limits.
            least, most = 2.0**-80, 2.0**40
            if problem.regularizer in FORMULA:
                least = max(math.ldexp(operator.norm_bound**2, _LEAST), np.finfo(float).tiny)
                most = np.finfo(float).max
            lam = min(max(self.lam(problem, lam, down=True), least), most)
        denoiser = problem.denoiser
        if denoiser is not None and self.scene and not is_named(denoiser):
            denoiser = update_wrapper(partial(_in_own_units, denoiser, self.scene), denoiser)
        lo, hi = (shifted(b, -self.scene) for b in problem.bounds or (0.0, 0.0))
        return replace(
            problem,
            operator=operator,
            lam=lam,
            fidelity=replace(fidelity, background=down(fidelity.background), delta=down(fidelity.delta)),
            bounds=None if problem.bounds is None else (lo, hi),
            noise=None if problem.noise is None else problem.noise.scaled(-self.image),
            denoiser=denoiser,
        )

    def operator(self, operator: Operator) -> Operator:
        """Return the normalised operator H' of H."""
        if not self.psf:
            return operator
        scaled = partial(operator.scaled, -self.psf)
        return operator.cached(("scaled", self.psf), scaled) if isinstance(operator, LinearMap) else scaled()

    def described(self, text: str) -> str:
        """Return `text` followed by the units of its figures, unless these are the units of the image."""
        powers = {"the image": self.image, "the PSF": self.psf, "λ": self.faint}
        units = [f"{name} over 2^{power}" for name, power in powers.items() if power]
        units += [f"the weights over {self.weight:.3g}"] * (self.weight != 1)
        return f"{text} (figures with {' and '.join(units)})" if text and units else text


def _exponent(size: float, least: int = 20) -> int:
    """Return the exponent of a size, or 0 up to 2^±`least`; the fourth power of 2^±20 is far from float32's limits."""
    exponent = round(math.log2(size)) if 0 < size < math.inf else 0
    return exponent if abs(exponent) > least else 0


def _in_own_units(denoiser: Denoiser, by: int, image: Array, sigma: float) -> Array:
    """Call a denoiser of the user with an image in the user's units."""
    return shifted(denoiser(shifted(image, by), shifted(float(sigma), by)), -by)

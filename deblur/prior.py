"""λ by a rule; and where no prior is named, whether there is noise that "natural" hides better, and λ for that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .device import Array
from .methods import METHODS, Method
from .normalized_image import NormalizedImage as StatedImage
from .norms import squares
from .operators.operator import Operator
from .problem import Problem
from .tuning import LambdaChoice, noise_level
from .tuning import choose as tune
from .tuning.fallback import sounder
from .tuning.spectral import RANGE_ITERATIVE as RANGE
from .tuning.spectral import from_spectrum

_ENOUGH = 2e-4  # λ over the PSF's squared gain from which there is noise that "natural" hides better
# The same of a large picture, for less noise costs it several times the iterations; and of one that is hardly blurred,
# whose own detail is like noise.
_ENOUGH_LARGE = _ENOUGH_MILD = 5e-2
_LARGE = 1 << 24  # pixels
_MILD, _NOTHING = 0.5, 0.999  # of the light, what a mild PSF leaves where it was, and one that blurs nothing
_LEFT_MILD = 1.5  # times the noise seen, what may be left of a picture that is hardly blurred
_LEFT = 1.15  # the same of what the smoothest scene leaves, to be taken for noise alone
_QUICK = 1 << 14  # pixels up to which λ may be looked for by steps for "natural"
_SHOWN = 0.1  # of the noise that is enough, what must be seen for λ to be looked for with "natural" first
_FITS = 0.8  # how much smaller λ may be for "natural" where the boundary fits: it hides more, and needs mostly more


class Tuned(NamedTuple):
    """λ, the regularizer that it is for, and why that one."""

    choice: LambdaChoice
    regularizer: str
    reason: str


def tuned(image: StatedImage, rule: str, method: Method, may_be_natural: bool) -> Tuned:
    """λ by a rule, from all frames together; and the regularizer, "natural" where the request leaves it open and there is
    noise to hide. `method` is what the rules that need solutions solve by."""
    problem = image.problem
    enough = _enough(problem.operator) if may_be_natural else math.inf
    search = _Search(image, rule, method, enough * problem.operator.norm_bound**2)
    if math.isinf(enough):
        return Tuned(search.plain(), problem.regularizer, "the default")
    plain, natural = search.where_open() if problem.operator.boundary.open else search.where_named()
    return search.weighed(plain, natural)


def mostly_natural(problem: Problem) -> bool:
    """Whether "natural" is what is mostly taken where the request leaves it open: mostly there is noise."""
    return math.isfinite(_enough(problem.operator)) and not _is_large(problem)


def hides_all(found: LambdaChoice, prior: str, method: Method) -> bool:
    """Whether λ is at the upper end of its range because noise hides all that the smoothest scene leaves."""
    toward_black = method.linear and prior == "zero"
    return not toward_black and found.lam >= 0.5 * found.lambdas[-1]


@dataclass(frozen=True)
class _Search:
    image: StatedImage
    rule: str
    method: Method
    enough: float  # λ from which there is noise that "natural" hides better

    @property
    def problem(self) -> Problem:
        return self.image.problem

    @cached_property
    def natural(self) -> Problem:
        return replace(self.problem, regularizer="natural")

    def plain(self) -> LambdaChoice:
        """λ for the regularizer of the request."""
        found = None
        if self.rule == "auto" and self.problem.operator.boundary.open and len(self.image.parts) > 1:
            (found,) = from_spectrum(self.problem.linear_form.operator, self.image.frames_in_turn(), RANGE)
        return self._by_rule(self.image, self.problem) if found is None else found

    def where_open(self) -> tuple[LambdaChoice | None, LambdaChoice | None]:
        """λ for the regularizer of the request, None where the other settles it; and for "natural", or None."""
        problem, natural = self.problem, None
        if self.rule == "auto":
            blurs = problem.linear_form.operator, self.natural.linear_form.blur
            plain, natural = from_spectrum(blurs[0], self.image.frames_in_turn(), RANGE, blurs[1])
            if plain is not None:
                return plain, natural
        small = math.prod(problem.operator.image_shape) <= _QUICK
        shows = small and self._shows()
        if shows:
            natural = self._by_rule(self.image, self.natural)
            if natural.converged and natural.lam >= self.enough and self._as_seen(natural):
                return None, natural  # mostly one search is enough
        plain = self._by_rule(self.image, problem)
        if small and not shows and _by_gcv(plain) and plain.lam >= self.enough:
            natural = self._by_rule(self.image, self.natural)
        return plain, natural

    def where_named(self) -> tuple[LambdaChoice, LambdaChoice | None]:
        """The same where the boundary says how the scene goes on."""
        plain = self._by_rule(self.image, self.problem)
        if not _by_gcv(plain):
            return plain, None
        drawn, given = self.image.drawn("natural"), replace(self.natural, lam=plain.lam)
        natural: LambdaChoice | None
        if any(METHODS[name].refuses(given) is None for name in ("fft", "dct", "kronecker")):
            natural = self._by_rule(drawn, self.natural)
        else:
            (natural,) = from_spectrum(given.linear_form.operator, drawn.frames_in_turn(), RANGE)
        return plain, natural if natural is not None and natural.lam >= _FITS * plain.lam else None

    def weighed(self, plain: LambdaChoice | None, natural: LambdaChoice | None) -> Tuned:
        """Whichever of the two the noise calls for."""
        if plain is None:
            assert natural is not None
            return Tuned(natural, "natural", f"there is noise to hide, λ = {natural.lam:.2g}")
        problem = self.problem
        judged = plain if natural is None else natural
        if not _by_gcv(plain):
            why = "cross-validation found no λ by which to judge the noise"
        elif judged.lam < self.enough or not (natural is None or self._as_seen(natural)):
            why = f"there is next to no noise to hide, λ = {plain.lam:.2g}"
        elif _is_large(problem) and judged.lam < _ENOUGH_LARGE * problem.operator.norm_bound**2:
            why = f"there is little noise to hide, λ = {plain.lam:.2g}, and 'natural' would take much longer"
        elif natural is None or not (
            natural.converged if problem.operator.boundary.open else _by_gcv(natural)
        ):
            why = "cross-validation found no λ for 'natural'"
        else:
            prior = self.image.prior
            why = f"there is noise to hide, for which {prior!r} would need λ = {plain.lam:.2g}"
            return Tuned(natural, "natural", why)
        return Tuned(plain, problem.regularizer, why)

    def _by_rule(self, image: StatedImage, problem: Problem) -> LambdaChoice:
        data, request = image.all_data(), image
        found = tune(problem, data, self.rule, noise=request.noise, prepare=self.method.prepare)
        hidden = request.prior != "zero" and hides_all(found, request.prior, self.method) and _is_noise(data)
        if request.prior == "zero" or not (found.converged or hidden):
            found = sounder(problem, data, found, request.noise, self.method.prepare)
        return found

    def _shows(self) -> bool:
        """Whether so much noise is seen as would be hidden: λ is its variance over the scene's, or more."""
        first = next(self.image.frames_in_turn())
        if min(first.shape) < 4:
            return True
        power = float(squares(first)) / first.size
        level = noise_level(first, self.problem.blur.psf)
        return level**2 >= _SHOWN * self.enough / self.problem.operator.norm_bound**2 * power

    def _as_seen(self, found: LambdaChoice) -> bool:
        """Whether a picture that is hardly blurred shows as much noise as would be taken for noise."""
        if _enough(self.problem.operator) < _ENOUGH_MILD:
            return True
        first = next(self.image.frames_in_turn())
        level = noise_level(first, self.problem.blur.psf) if min(first.shape) >= 4 else 0.0
        left = np.interp(found.lam, found.lambdas, found.residual_norms)
        return float(left) <= _LEFT_MILD * level * math.sqrt(self.problem.frames * first.size)


def _enough(operator: Operator) -> float:
    """λ over the squared gain from which there is noise that "natural" hides better; infinite if nothing is blurred."""
    taps = np.abs(operator.mean_blur.psf)
    stays = float(taps.max()) / operator.norm_bound
    return math.inf if stays >= _NOTHING else _ENOUGH_MILD if stays >= _MILD else _ENOUGH


def _is_large(problem: Problem) -> bool:
    return problem.frames * math.prod(problem.operator.image_shape) > _LARGE


def _by_gcv(found: LambdaChoice) -> bool:
    return found.rule == "gcv" and found.converged


def _is_noise(left: Array) -> bool:
    """Whether what the prior scene leaves of the frames is no larger than the noise that is seen in it."""
    if min(left.shape[-2:]) < 4 or left.dtype.kind != "f":
        return False
    size = math.sqrt(float(squares(left)) / left.size)
    return size <= _LEFT * noise_level(left.reshape(-1, *left.shape[-2:]))

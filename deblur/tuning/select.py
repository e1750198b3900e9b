"""Choice of λ and regularizer for one problem: the rule, its fallback, and the prior "natural"."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..device import Array
from ..methods import METHODS, Method, serving
from ..norms import combined, squares
from ..operators.blur import Blur
from ..operators.operator import Operator
from ..problem import Problem
from ..solvers.noise import NoiseModel, noise_variance, shows_noise
from ..solvers.start import filled, prior_scene
from ..solvers.windows import cut, posed, side_for, watched_sides
from ..threads import all_cores
from .boundary import AGAINST, evidence
from .choice import COLOURED, RULES, LambdaChoice, check_rule
from .sampled import PERTURBED, Prepare, search
from .spectral import RANGE_ITERATIVE, SMALL, from_spectrum, linear_choice

if TYPE_CHECKING:
    from ..plan import NormalizedImage

# λ over the squared norm bound of the PSF from which "natural" hides noise better. The second one is for a mild PSF,
# whose picture has detail like noise, and for a large picture, for which "natural" takes several times the iterations.
_ENOUGH, _ENOUGH_STRICT = 2e-4, 5e-2
_MILD = 0.5  # share of the light that a mild PSF leaves in place
_LARGE = 1 << 24  # pixels
_FITS = 0.8  # least ratio of λ for "natural" to the other λ if the given boundary fits the data
_RESIDUAL = 1.15  # ratio of the smoothest scene's residual to the noise below which it is noise only
# ‖f_λ‖, relative to the data and to the scene that allows for the boundary's error, above which λ is too small. With a
# correct boundary it is at most 1.25 (166 photographs); if the restoration fails, it is mostly more than 1.3.
_GROWN = 1.3


#: λ, the name of its regularizer, and the reason for that regularizer (empty if there was no choice).
Decision = tuple[LambdaChoice, str, str]


@all_cores()
def choose_lambda(
    problem: Problem, data: NormalizedImage, rule: str, may_be_natural: bool, noise: float | None, method: Method
) -> Decision:
    """Choose λ by a rule, from all frames together, and the regularizer.

    "natural" replaces the problem's regularizer if cross-validation with it finds noise to hide: then its λ, the
    variance of the noise over that of the scene, is large enough.

    Parameters
    ----------
    problem : Problem
        Normalised problem; its `lam` is not used.
    data : NormalizedImage
        The frames; for the linear formula g − H f̄, the residual of the prior scene f̄.
    rule : str
        "auto" or a name in `RULES`.
    may_be_natural : bool
        Whether "natural" may replace the regularizer.
    noise : float, optional
        Standard deviation of the noise, or the gain of photon counts.
    method : Method
        Solver for rules that need solutions.
    """
    natural, alike, pixels = None, replace(problem, regularizer="natural"), math.prod(problem.operator.image_shape)
    enough = _enough(problem) if may_be_natural else math.inf
    undecided, open_ended = math.isfinite(enough), problem.operator.boundary.open
    few = problem.frames * pixels < SMALL / 2

    def by_rule(problem: Problem, data: NormalizedImage) -> LambdaChoice:
        return _trusted(problem, data.part()[1], rule, data.prior, noise, method)

    # For an open boundary, both λ come from the spectrum of the data, if that is reliable.
    plain = None
    if rule == "auto" and open_ended and (undecided or len(data.parts) > 1):
        others = [alike.linear_form.blur] if undecided else []
        found = from_spectrum(problem.linear_form.operator, data.frames_in_turn(), RANGE_ITERATIVE, *others)
        plain, natural = found[0], found[-1] if undecided and found[0] is not None else None
    if not undecided:
        return plain or by_rule(problem, data), problem.regularizer, ""
    if plain is None and open_ended and (rule != "auto" or problem.axes > 2 or pixels <= SMALL):
        natural = by_rule(alike, data)
        # One search suffices.
        if natural.converged and natural.lam >= enough and not (few and natural.remark == COLOURED):
            return natural, "natural", f"there is noise to hide, λ = {natural.lam:.2g}"
    plain = plain or by_rule(problem, data)
    if not open_ended and _measured(plain):
        drawn, posed = data.drawn("natural"), replace(alike, lam=plain.lam)
        if any(METHODS[name].refuses(posed) is None for name in ("fft", "dct", "kronecker")):
            natural = by_rule(alike, drawn)
        else:
            (natural,) = from_spectrum(posed.linear_form.operator, drawn.frames_in_turn(), RANGE_ITERATIVE)
        natural = natural if natural is not None and natural.lam >= _FITS * plain.lam else None

    if few and natural is not None and natural.remark == COLOURED:
        natural = None  # few pixels distinguish its noise from texture less reliably
    lam, large = (natural or plain).lam, problem.frames * pixels > _LARGE
    if not _measured(plain):
        why = "cross-validation found no λ that measures the noise"
    elif lam < enough:
        why = f"there is next to no noise to hide, λ = {plain.lam:.2g}"
    elif large and lam < _ENOUGH_STRICT * problem.operator.norm_bound**2:
        why = f"there is little noise to hide, λ = {plain.lam:.2g}, and 'natural' would take much longer"
    elif natural is None or not (natural.converged if open_ended else _measured(natural)):
        why = "cross-validation found no λ for 'natural'"
    else:
        why = f"there is noise to hide, for which {data.prior!r} would need λ = {plain.lam:.2g}"
        return natural, "natural", why
    return plain, problem.regularizer, why


def with_psf_error(choice: LambdaChoice, problem: Problem) -> LambdaChoice:
    """Return the automatic choice for the linear formula, with λ raised for the PSF's error (`NoiseModel.lam`)."""
    known = problem.noise
    if known is None or problem.asked or not known.psf_error:
        return choice
    # Coloured noise looks like an error of the PSF, and λ already allows for it.
    added = (0.3 if choice.remark == COLOURED and known.uncertainty else 1.0) * known.lam
    why = f"raised by {added:.2g}, since the PSF is wrong by ε = {known.psf_error:.2g}"
    return replace(choice, lam=choice.lam + added * problem.operator.dc_gain**2, reason=f"{choice.reason}; {why}")


def with_unexplained(problem: Problem, g: Array, rule: str, noise: float | None) -> tuple[Problem, str, float | None]:
    """Return the problem with its noise, the rule for λ, and the noise level for the rule, from `unexplained`.

    If the unexplained residual clearly exceeds the known noise, an error of the PSF does not explain it alone. The
    excess then replaces that error, also if none was estimated. A photon gain estimated from such a picture is wrong,
    too.
    """
    known = problem.noise
    if known is None or not (known.left or (known.uncertainty and noise is None and problem.operator.boundary.open)):
        return problem, rule, noise
    wrong, left_by = 5 * known.left**2 > known.level**2, unexplained(problem, g)
    # The share of λ for the comparison, and how many times the noise an exact blur may leave. A smaller λ has less
    # bias, which raises the residual of a texture above the noise. At a twentieth of λ, one of 259 exact blurs without
    # an estimated PSF error leaves more than 1.05 times the noise. At half of λ, a fur left more than 1.1 times the
    # noise, and lost 2 dB.
    share, limit = (0.5, 1.1) if wrong else (0.05, 1.05)
    part = left_by(share)
    if part > limit * max(known.level, PERTURBED):  # smaller noise is not visible in a residual of the linear formula
        read, left = max(known.level**2 - known.left**2, 0.0), max(part, left_by(1.0))
        rule = "discrepancy" if wrong and known.psf_error < 0.3 else "sure"
        fidelity = replace(problem.fidelity, weights=None) if known.gain else problem.fidelity
        known = NoiseModel(0.0, math.sqrt(read), known.psf_error, math.inf, math.sqrt(left**2 - read))
        return replace(problem, fidelity=fidelity, noise=known), rule, left
    return (problem, "sure", max(known.level, part)) if wrong else (problem, rule, noise)


def memory(problem: Problem) -> float:
    """Return the bytes of a search for λ by solutions, from what their methods state."""
    known, psf, found = problem.noise, problem.operator.mean_blur.psf, []
    # What `with_unexplained` solves, and the frames with their perturbed copy.
    if known is not None and (known.left or (known.uncertainty and problem.operator.boundary.open)):
        part = posed(problem, watched_sides(psf))
        plain = Problem(part.operator, 1e-3, dtype=part.dtype, device=part.device, frames=part.frames, held=(3, 0))
        found.append(METHODS[next(serving(plain, 2**200)).method].memory(plain))
    if problem.asked and problem.regularizer in METHODS:
        part = posed(replace(problem, searched=False), side_for(psf))
        part = replace(part, frames=2 * part.frames)
        # A solve may start at the one for the last λ, whose scene or iterate is kept.
        found.append(METHODS[part.regularizer].memory(part) + part.frames * (part.sizes[0] + part.sizes[1]))
    return max(found, default=0.0)


def unexplained(problem: Problem, g: Array) -> Callable[[float], float]:
    """Return a function: share of the λ of "auto" ↦ deviation of what the linear formula leaves unexplained of frames.

    It is the root of the squared residual over its degrees of freedom [1]_, or 0 if λ or the solution is unreliable.
    The frames are (k, c, M, N). Windows represent a large picture whose scene continues beyond the frame.

    References
    ----------
    .. [1] G. Wahba, Bayesian "confidence intervals" for the cross-validated smoothing spline, J. R. Stat. Soc. B 45
       (1983) 133-150.
    """
    problem, g, _ = cut(problem, g, problem.fidelity.weights, side=watched_sides(problem.operator.mean_blur.psf))
    operator, seen = problem.operator, filled(g, problem.fidelity.weights) - problem.fidelity.background
    seen = seen - operator.forward(prior_scene(operator, seen))
    plain = Problem(operator, dtype=problem.dtype, device=problem.device, frames=problem.frames, noise=problem.noise)
    choice = apply_rule(plain, seen, "auto", None, None)
    lam, psf = with_psf_error(choice, plain).lam, operator.mean_blur.psf
    power = abs(np.fft.fftn(psf, [2 * n for n in psf.shape], range(psf.ndim))) ** 2

    def left_by(share: float) -> float:
        at = replace(plain, lam=share * lam)
        found = METHODS[next(serving(at)).method].prepare(at).solve(seen)
        free = float((at.lam / (power + at.lam)).mean())
        left = math.sqrt(float(squares(seen - operator.forward(found.scene))) / seen.size / free)
        return left if choice.converged and found.converged else 0.0

    return left_by


def oversmoothed(choice: LambdaChoice, prior: str, method: Method) -> bool:
    """Return whether λ is at the upper end of its range, where the solution is the smoothest scene."""
    return not (method.linear and prior == "zero") and choice.lam >= 0.5 * choice.lambdas[-1]


def _enough(problem: Problem) -> float:
    """Return the λ from which there is noise that "natural" hides better; infinite if nothing is blurred."""
    operator = problem.operator
    stays = float(np.abs(operator.mean_blur.psf).max()) / operator.norm_bound
    if stays > 0.999:
        return math.inf
    return (_ENOUGH if stays < _MILD else _ENOUGH_STRICT) * operator.norm_bound**2


def _measured(choice: LambdaChoice) -> bool:
    return choice.rule in ("gcv", "upre") and choice.converged


# ---------------------------------------------------------------------------------------------
# A rule and its fallback
# ---------------------------------------------------------------------------------------------


def apply_rule(
    problem: Problem, g: Array, rule: str, noise: float | None, prepare: Prepare | None, quick: bool = False
) -> LambdaChoice:
    """Choose λ by a rule for a normalised problem, one λ for all frames (k, c, M, N).

    For the linear formula with a prior scene f̄, the frames are g − H f̄; any other problem is solved by `prepare`.
    """
    if not problem.asked:
        operator = problem.linear_form.operator
        frames = g.reshape(-1, *operator.image_shape)
        known = problem.noise
        if noise is None and known is not None and known.read > 0 and rule in ("auto", "gcv"):
            noise = known.level  # used if cross-validation does not converge
        return linear_choice(operator, frames, rule, noise=noise, quick=quick)
    assert prepare is not None
    return search(problem, g, check_rule(rule, problem, noise), noise, prepare)


def _trusted(problem: Problem, g: Array, rule: str, prior: str, noise: float | None, method: Method) -> LambdaChoice:
    """Choose λ by a rule or, if its λ is unreliable, by a fallback rule, which the reason then names.

    A rule runs to the end of its range, or to where error dominates the scene, mostly because the boundary is wrong:
    then the data contain an error at the edges that is larger than the noise. The discrepancy rule with the sum of both
    needs only their size.
    """
    toward_smooth, counts = prior != "zero", problem.fidelity.name == "poisson"

    def sound(choice: LambdaChoice) -> bool:
        if choice.converged or not (toward_smooth and oversmoothed(choice, prior, method)):
            return choice.converged
        # The residual of the prior scene is no larger than its own finest part: it is noise everywhere, of any kind.
        fine = g
        for axis in range(-min(problem.axes, 2), 0):
            fine = problem.xp.diff(fine, 2, axis) / math.sqrt(6)
        return fine.size > 0 and squares(g) / g.size <= _RESIDUAL**2 * squares(fine) / fine.size

    choice = apply_rule(problem, g, rule, noise, method.prepare)
    if (toward_smooth and sound(choice)) or RULES["discrepancy"].refuses(problem) is not None:
        return choice
    error = 0.0 if counts else boundary_error(problem.operator, filled(g, problem.fidelity.weights))
    why = _doubt(choice, g, error, problem) if choice.converged else choice.remark
    if not why:
        return choice
    source = "estimated" if noise is None else "given"
    if noise is None and shows_noise(g, problem.axes):
        noise = noise_variance(problem, g) if counts else math.sqrt(noise_variance(problem, g))
        noise = noise if problem.noise is None else max(noise, problem.noise.read)
    elif choice.rule == "discrepancy" and not error:
        return choice  # it used this noise level already
    level, other = math.hypot(noise or 0.0, error), choice
    if level > 0:
        other = apply_rule(problem, g, "discrepancy", level, method.prepare, rule == "auto")
    words = f"makes the residual as large as the noise, {noise or 0.0:.3g} as {source}"
    if error:
        words += f", and the error of boundary {str(problem.operator.boundary)!r} at the edges, {error:.3g}"
    if not sound(other) and not (error and _grown(choice, other)) and choice.rule != "gcv":
        other = apply_rule(problem, g, "gcv", None, method.prepare, rule == "auto")
        words, source = RULES["gcv"].summary, "not used"
    if not (error and _grown(choice, other)) and (choice.converged or not sound(other)):
        return choice
    reason = f"λ = {other.lam:.3g} {words}: the fallback rule, since with {choice.rule!r} {why}"
    return replace(other, reason=reason, remark=why, noise_source=source)


def _grown(choice: LambdaChoice, other: LambdaChoice) -> bool:
    """Return whether the scene of a choice is much larger than that of another choice."""
    size, least = (np.interp(x.lam, x.lambdas, x.solution_norms) for x in (choice, other))
    return bool(size > _GROWN * least)


def _doubt(choice: LambdaChoice, g: Array, error: float, problem: Problem) -> str:
    """Return why λ relies on the edges too much; empty if it does not.

    That is so if its residual is smaller than the boundary's error, and its scene is much larger than both the scene
    that allows for this error and the size expected from the data. With a correct boundary the scene has its full size
    there, unless the PSF sharpens. A search seldom has a scene that allows for the error, and points are smaller once
    blurred: after a search the border of the image must contradict the boundary, too.
    """
    operator, fidelity, searched = problem.operator, problem.fidelity, not choice.decomposition
    residuals, expected = choice.residual_norms / math.sqrt(g.size), math.sqrt(float(squares(g)))
    # Without a boundary error, or without curves, `allowing` is 0.
    at, allowing = int(np.searchsorted(choice.lambdas, choice.lam)), int(np.searchsorted(residuals, error))
    if allowing <= at or allowing >= len(residuals) + searched:
        return ""
    name, gain = str(operator.boundary), abs(operator.dc_gain) or 1.0
    size, allowed = choice.solution_norms[at], [*choice.solution_norms, expected / gain][allowing]
    seen = evidence(operator.mean_blur, g - fidelity.background, fidelity.weights, (name,)) if searched else {}
    if (searched and seen.get(name, 0.0) > -AGAINST) or min(gain * size / expected, size / allowed) <= _GROWN:
        return ""
    words = f"one that allows for the boundary's error of {error:.3g}"
    return f"the scene is {size / allowed:.2g} times as large as {words}: the model of the blur is wrong"


def boundary_error(operator: Operator, g: Array) -> float:
    """Return the root mean square error of a boundary at the edges, for a scene that continues its edge pixels.

    It is 0 for boundary "unknown", which assumes nothing.
    """
    blur = operator.shift_invariant
    if blur is None or blur.boundary.open:
        return 0.0
    free = Blur(blur.psf, blur.image_shape, "unknown", origin=blur.origin)
    scene = prior_scene(free, g)
    error = combined(free.forward(scene), blur.forward(scene[(..., *free.crop)]), b=-1)
    return math.sqrt(float(squares(error)) / error.size)

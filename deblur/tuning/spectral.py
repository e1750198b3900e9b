"""Choosing λ of the linear formula: generalised cross-validation, discrepancy, L-curve and UPRE.

Every rule is a function of two things only. With H = U S Vᵀ these are the
spectrum σ_i² of HHᵀ and the power |u_iᵀ g|² of the image in it:

    residual   ρ(λ) = ‖g − H f_λ‖² = Σ (λ/(σ_i² + λ))² |u_iᵀ g|²
    solution   ξ(λ) = ‖f_λ‖²       = Σ σ_i²/(σ_i² + λ)² |u_iᵀ g|²
    influence  A(λ)                = Σ σ_i²/(σ_i² + λ), the effective number of parameters

The rules are, with N pixels and noise of standard deviation s,

``gcv``
    minimises ρ/(N − A)² [1]_.
``upre``
    minimises ρ + 2 s² A − N s², an unbiased estimate of the predictive risk ‖H f_λ − H f‖² [2]_.
``discrepancy``
    ρ(λ) = N s²: the residual is as large as the noise [3]_.
``lcurve``
    the corner, the point of largest curvature of (log √ρ, log √ξ) [4]_.

*The norm.* `gcv` and `upre` as published look for the λ that predicts H f best, which is several times smaller than
the one that restores f best: H hides the noise that f_λ has. With ``norm="scene"``, the default, every term i of ρ, A
and N is weighted by

    w_i = λ₀/(σ_i² + λ₀) ,   λ₀ = λ/4 ,

which measures the same errors in the norm of (HHᵀ + λ₀I)^(−1/2): a wrong H f_λ counts as the wrong f_λ that it comes
from, as far down the spectrum as λ lets anything through. λ₀ comes from the λ found before, until it repeats.
``norm="data"`` is the published form, w = 1. The weighting is this project's own; ``benchmarks/bench_lambda.py``
measures both.

*The sums.* Where the blur has a spectral decomposition they are exact. For other blurs ρ and ξ come from a Golub-Kahan
bidiagonalisation started from g, as Gauss quadrature, and A from a second one started from random signs [5]_; both grow
until the chosen λ converges. Where the boundary is open, "auto" avoids that: away from the edges the sums are those of
the picture's spectrum (`sums.spectral_sums`), which costs one transform and is as good.

References
----------
.. [1] G. H. Golub, M. Heath, G. Wahba, Technometrics 21 (1979) 215-223.
.. [2] C. R. Vogel, *Computational Methods for Inverse Problems*, SIAM 2002, section 7.1.
.. [3] V. A. Morozov, Soviet Math. Doklady 7 (1966) 414-417.
.. [4] P. C. Hansen, D. P. O'Leary, SIAM J. Sci. Comput. 14 (1993) 1487-1503.
.. [5] G. H. Golub, U. von Matt, J. Comput. Graph. Stat. 6 (1997) 1-34.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import scipy

from ..device import Array, Device, as_real, check_finite, get_xp, random_signs
from ..errors import as_number, check_choice, check_count
from ..normalization import Scale, shifted
from ..norms import largest, squares
from ..operators.blur import Blur
from ..operators.operator import Operator, check_operator
from ..problem import Problem
from ..solvers.krylov import Bidiagonalization
from ..solvers.noise import check_noise, estimate_noise, noise_level, shows_noise
from ..threads import all_cores
from .choice import AMPLIFIED, COLOURED, RULES, LambdaChoice, Search, check_rule, explained, restated, vertex
from .sums import FilterSums, Lambdas, exact_sums, local_sums, spectral_sums

NORMS = ("scene", "data")
Range = tuple[float, float]  # of λ

# Range of the search as multiples of σ_max²; without a decomposition a smaller λ could neither be evaluated by a
# bidiagonalisation of affordable length nor be solved for.
_RANGE, RANGE_ITERATIVE = (1e-8, 10.0), (1e-6, 10.0)
# Steps of a bidiagonalisation, at most; the latter for "auto" and a PSF that varies or a large picture.
_STEPS, _STEPS_VARYING = 400, 150
_LEAK = 0.15  # part of the residual of the prior scene that the taper may add to it
_SEEN = 2.0  # noise implied by a spectrum over the noise that blocks show, above which λ is not taken from it
_HIDDEN = 1.7  # energy of the data over that under the taper, above which λ is not taken from the spectrum
_FEW, _NOISY = 5000, 0.15  # λ is raised for so few pixels, if noise makes so large a part of what it adds
_WINDOW = 512  # pixels a side of the window that stands for a large picture
SMALL = 128 * 128  # pixels up to which exact sums cost no more than a spectrum
# Relative change of λ, and of the residual at it, over a quarter more steps: for a rule by name, and for "auto".
_CONVERGED, _CONVERGED_QUICK = 0.03, 0.1


def _refine(function: Callable[[Lambdas], Lambdas], lambdas: np.ndarray, at: int) -> float:
    """The minimiser of `function` between the neighbours of grid point `at`, by parabolas in log λ."""
    a, b, c = (math.log(lambdas[min(max(i, 0), len(lambdas) - 1)]) for i in (at - 1, at, at + 1))
    values = {t: float(function(math.exp(t))) for t in (a, b, c)}
    for _ in range(8):
        lowest = vertex(*((t, values[t]) for t in (a, b, c)))
        if not a < lowest < c or min(abs(lowest - t) for t in values) < 1e-5:
            break
        values[lowest] = float(function(math.exp(lowest)))
        known = sorted(values)
        middle = min(max(known.index(min(values, key=values.__getitem__)), 1), len(known) - 2)
        a, b, c = known[middle - 1 : middle + 2]
    return math.exp(min(values, key=values.__getitem__))


def _minimum(function: Callable[[Lambdas], Lambdas], lambdas: np.ndarray, values: np.ndarray, what: str) -> Search:
    """The minimiser of a curve and a remark on it."""
    at, least = int(np.argmin(values)), float(values.min())
    if np.ptp(values) <= 1e-6 * abs(least):  # rounding
        words = "is flat over the whole range: hardly anything is blurred, and the least λ changes least"
        return float(lambdas[0]), f"{what} {words}", True
    lam = _refine(function, lambdas, at)
    if at in (0, len(lambdas) - 1):
        words = "is monotone up to the largest λ: the image looks like noise alone"
        if at == 0:
            words = "is monotone down to the smallest λ: the data ask for no regularisation"
        return lam, f"{what} {words}, or the model of the blur is wrong", at == 0
    low = lambdas[values <= least + 1e-3 * abs(least)]
    if low[-1] / low[0] < 100:
        return lam, "", True
    words = f"is flat: from λ = {low[0]:.2g} to {low[-1]:.2g} it stays within 0.1 % of its minimum"
    return lam, f"{what} {words}", True


def _discrepancy(sums: FilterSums, lambdas: np.ndarray, values: np.ndarray, noise: float) -> Search:
    words = f"the residual stays {{}} the noise level {noise:.3g} {{}} λ ({{:.3g}} there): {{}}"
    if values[0] > noise:
        meaning = "the noise level is too small, or the model of the blur is wrong"
        return float(lambdas[0]), words.format("above", "down to the smallest", values[0], meaning), False
    if values[-1] < noise:
        meaning = "the image looks like noise alone, or the noise level is too large"
        return float(lambdas[-1]), words.format("below", "up to the largest", values[-1], meaning), False
    at = int(np.searchsorted(values, noise))
    bracket = (math.log(lambdas[max(at - 1, 0)]), math.log(lambdas[at]))

    def beyond(t: float) -> float:
        return math.sqrt(sums.residual(math.exp(t)) / sums.pixels) - noise

    return math.exp(scipy.optimize.brentq(beyond, *bracket, xtol=1e-6)), "", True


def _corner(sums: FilterSums, lambdas: np.ndarray, values: np.ndarray) -> Search:
    """The L-curve's corner: the largest curvature that is a maximum of its own, not an end of the range."""
    inner = np.arange(1, len(values) - 1)
    peaks = inner[(values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:]) & (values[1:-1] > 0)]
    if len(peaks) == 0:
        words = "the L-curve has no corner: its curvature has no positive maximum inside the range of λ"
        return float(lambdas[int(np.argmax(values))]), words, False
    at = int(peaks[np.argmax(values[peaks])])
    lam = _refine(lambda x: -sums.curvature(float(x)), lambdas, at)
    others = ", ".join(f"{lambdas[p]:.2g}" for p in peaks if p != at and values[p] > 0.5 * values[at])
    return lam, f"the L-curve has more than one corner: λ = {others} would be others" if others else "", True


def _in_norm(
    function: Callable[[Lambdas, float], Lambdas], lambdas: np.ndarray, norm: str
) -> Callable[[Lambdas], Lambdas]:
    """`function(λ, λ₀)` with the λ₀ of the norm put in."""
    if norm == "data":
        return lambda x: function(x, math.inf)
    at = len(lambdas) - 1  # from above: of two λ that repeat, the safer
    floors: list[float] = []
    while (floor := 0.25 * float(lambdas[at])) not in floors:
        floors.append(floor)
        at = int(np.argmin(function(lambdas, floor)))
    return lambda x: function(x, floor)


def choose_from(
    sums: FilterSums, rule: str, noise: float | None, noise_source: str, *, norm: str = "scene", bounds: Range = _RANGE
) -> LambdaChoice:
    """Apply a rule to sums; see `choose_lambda`."""
    low, high = bounds[0] * sums.top, bounds[1] * sums.top
    lambdas = np.geomspace(low, high, 1 + math.ceil(10 * math.log10(high / low)))
    residual, solution = np.sqrt(sums.residual(lambdas)), np.sqrt(sums.solution(lambdas))
    values = np.zeros(len(lambdas))

    def minimum(function: Callable[[Lambdas, float], Lambdas], what: str, norm: str) -> Search:
        curve = _in_norm(function, lambdas, norm)
        values[:] = curve(lambdas)
        return _minimum(curve, lambdas, values, what)

    seen = bool(solution.max() > 0)
    if noise is not None and noise_source == "estimated" and seen:
        # Cross-validation's noise level knows the blur, and so sees weak noise under texture.
        lam, remark, _ = minimum(sums.gcv, "", "scene")
        noise = noise if remark else min(noise, math.sqrt(sums.implied_variance(lam)))
    if not seen:  # every λ restores the same, empty scene
        values[:] = 0
        remark = "the curve is flat: the image is zero, or nothing of it can come through this blur"
        lam, converged = math.sqrt(low * high), True
    elif rule == "discrepancy":
        values = residual / math.sqrt(sums.pixels)
        lam, remark, converged = _discrepancy(sums, lambdas, values, noise or 0.0)
    elif rule == "lcurve":
        values = np.array([sums.curvature(x) for x in lambdas])
        lam, remark, converged = _corner(sums, lambdas, values)
    elif rule == "gcv":
        lam, remark, converged = minimum(sums.gcv, "the GCV curve", norm)
    else:
        risk = "the curve of the estimated risk"
        lam, remark, converged = minimum(lambda x, floor: sums.upre(x, noise or 0.0, floor), risk, norm)
    if converged and sums.amplified(lam, high):
        converged, remark = False, "; ".join(filter(None, [remark, AMPLIFIED]))
    words = "" if noise is None else f"standard deviation {noise:.3g}, {noise_source}"
    keep = sums.counts if sums.operator is sums.values else np.ones(len(sums.values))
    order = np.argsort(-sums.values, kind="stable")
    return LambdaChoice(
        lam=float(lam),
        rule=rule,
        reason=explained(lam, rule, f"by {sums.decomposition}", words, remark),
        remark=remark,
        converged=converged,
        noise=noise,
        noise_source=noise_source,
        lambdas=lambdas,
        values=values,
        residual_norms=residual,
        solution_norms=solution,
        singular_values=np.sqrt(sums.values[order]),
        coefficients=np.sqrt(np.maximum(sums.power, 0) / (keep * sums.frames))[order],
        decomposition=sums.decomposition,
    )


def choose_lambda(
    blur: Operator,
    g: Array,
    rule: str = "gcv",
    *,
    noise: float | None = None,
    norm: str = "scene",
    bounds: Range | None = None,
    max_steps: int = _STEPS,
) -> LambdaChoice:
    """λ for the Tikhonov formula, chosen from the image itself.

    Parameters
    ----------
    blur : Blur or other Operator
        Any PSF and boundary.
    g : (..., M, N) array
        The blurred image. Frames and colour channels share one λ. NumPy or CuPy.
    rule : {"gcv", "discrepancy", "lcurve", "upre", "auto"}
        See `deblur.tuning.spectral`. "auto" is "gcv" from the picture's spectrum only where the boundary is open,
        which takes `g` for what the prior scene leaves of an image: g − H f̄. Where that settles nothing, and for
        other boundaries, it is "gcv".
    noise : float, optional
        Standard deviation of the noise in the units of `g`, for "discrepancy" and "upre"; by default
        that of `estimate_noise`, or the one that cross-validation implies if that is smaller.
    norm : {"scene", "data"}
        Of the error that "gcv" and "upre" estimate; "data" is their published form.
    bounds : (float, float), optional
        Range of λ as multiples of σ_max²; by default (1e-8, 10), and (1e-6, 10) where there is no
        decomposition. Where the rule goes to the end of the first, 1e-14, or 1e-12 in single precision.
    max_steps : int
        Most steps of the bidiagonalisation, where there is no decomposition.

    Returns
    -------
    LambdaChoice
        Where "gcv" finds no λ that can be trusted, that of another rule, and `reason` says so.

    Raises
    ------
    ValueError
        For an unknown rule or norm, noise or bounds out of range, images of another size than the
        blur's or not finite, or too small for their noise to be estimated.
    """
    g = as_real(g, "the image")
    problem = Problem(check_operator(blur), dtype=g.dtype, device=Device.of(g))
    checked = check_rule(rule, problem)
    check_noise(noise)
    check_choice(norm, NORMS, "norm")
    pair = tuple(map(as_number, bounds)) if bounds is not None and np.iterable(bounds) else (math.nan,)
    if bounds is not None and not (len(pair) == 2 and 0 < pair[0] < pair[1] < np.inf):
        raise ValueError(f"bounds must be two increasing positive multiples of σ_max², not {bounds!r}")
    max_steps = check_count(max_steps, "max_steps")
    if g.shape[-len(blur.image_shape) :] != blur.image_shape:
        raise ValueError(f"the image must have shape (..., {str(blur.image_shape)[1:-1]}), not {g.shape}")
    if not math.isfinite(largest(g)):
        check_finite(g, "the image")
    scale = Scale.of(problem, g)
    choice = linear_choice(
        scale.operator(blur),
        shifted(g.reshape(-1, *blur.image_shape), -scale.image),
        rule if rule == "auto" else checked,
        noise=None if noise is None else shifted(float(noise), -scale.image),
        norm=norm,
        bounds=bounds,
        max_steps=max_steps,
    )
    return restated(choice, problem, scale)


def linear_choice(
    operator: Operator,
    g: Array,
    rule: str,
    *,
    noise: float | None = None,
    norm: str = "scene",
    bounds: Range | None = None,
    max_steps: int = _STEPS,
    quick: bool = False,
) -> LambdaChoice:
    """`choose_lambda` for checked arguments and a normalised problem; `quick` ones may look at a picture's middle."""
    automatic, blur = rule == "auto", operator.shift_invariant
    rule, quick = ("gcv", True) if automatic else (rule, quick)
    level, source = (None, "not used") if noise is None or not RULES[rule].noise else (float(noise), "given")
    if RULES[rule].noise and noise is None:
        level, source = estimate_noise(g, axes=g.ndim - 1), "estimated"
    with all_cores():
        if quick and norm == "scene" and operator.boundary.open:
            if automatic and (choice := from_spectrum(operator, g, bounds or RANGE_ITERATIVE)[0]):
                return choice
            least = 0 if blur is None or blur.psf.ndim != 2 else min(blur.image_shape)
            # The middle of a picture may stand for all of it.
            if blur is not None and least > 1.5 * _WINDOW and max(blur.psf.shape) <= _WINDOW // 4:
                top, left = ((n - _WINDOW) // 2 for n in blur.image_shape)
                part = Blur(blur.psf, (_WINDOW, _WINDOW), blur.boundary, origin=blur.origin)
                middle = g[..., top : top + _WINDOW, left : left + _WINDOW]
                choice = linear_choice(part, middle, rule, noise=level, bounds=bounds, max_steps=max_steps, quick=True)
                return replace(choice, reason=f"{choice.reason}, of the middle {_WINDOW} x {_WINDOW} pixels")
        sums, still = exact_sums(operator, g), True
        open_ended, bounds = bounds is None, bounds or (RANGE_ITERATIVE if sums is None else _RANGE)
        apply = partial(choose_from, rule=rule, noise=level, noise_source=source, norm=norm, bounds=bounds)
        if sums is None:
            if quick and (blur is None or g[0].size > 1 << 17):
                max_steps = min(max_steps, _STEPS_VARYING)
            tolerance = _CONVERGED_QUICK if quick else _CONVERGED
            choice, sums, still = _bidiagonalized(operator, g, apply, max_steps, tolerance)
        else:
            choice = apply(sums)
            if open_ended and choice.converged and choice.lam < 2 * choice.lambdas[0]:  # no noise but that of rounding
                choice = apply(sums, bounds=(bounds[0] * (1e-6 if g.dtype.itemsize > 4 else 1e-4), bounds[1]))
            choice = _coloured(choice, sums, operator.boundary.open) if norm == "scene" else choice
    if rule == "gcv" and not still:  # the discrepancy needs no trace
        if noise is None and shows_noise(g, g.ndim - 1):
            noise = noise_level(g, None if blur is None else blur.psf, g.ndim - 1)
        other = apply(sums, rule="discrepancy", noise=noise or 0.0, noise_source="estimated")
        if other.converged and other.lam > choice.lam:
            reason = f"{other.reason}; cross-validation was not followed: {choice.remark}"
            return replace(other, reason=reason, remark=choice.remark)
    return _cautious(choice, sums) if quick else choice


def from_spectrum(
    operator: Operator, left: Iterable[Array], bounds: Range = RANGE_ITERATIVE, *others: Blur
) -> list[LambdaChoice | None]:
    """λ by "gcv" from the spectrum of g − H f̄, the residual of the prior scene, for images (M, N).

    None where the spectrum is not reliable: where the noise it implies is small enough to be the taper's own error and
    far above the noise that blocks of the first image show, or where the taper hides most of the energy. Nor is a
    spectrum taken where the whole decomposition costs no more. A taper hides the boundary, which may be any. The
    `others` are blurs by hardly larger PSFs, whose λ are chosen likewise.
    """
    blur = operator.shift_invariant
    nothing: list[LambdaChoice | None] = [None] * (1 + len(others))
    if blur is not None and blur.factors is not None and math.prod(blur.image_shape) <= SMALL:
        return nothing
    images = iter(left)
    first = next(images)
    energy = 0.0

    def weighed(image: Array) -> Array:
        nonlocal energy
        energy += float(squares(image))
        return image

    with all_cores():
        every = map(weighed, chain([first], images))
        found = local_sums(operator, every) if blur is None else spectral_sums(blur, every, *others)
    middle = tuple(slice(max(n - _WINDOW, 0) // 2, (n + _WINDOW) // 2) for n in first.shape)
    choices: list[LambdaChoice | None] = []
    for sums in found:
        choice = choose_from(sums, "gcv", None, "not used", bounds=bounds)
        implied, power = math.sqrt(sums.implied_variance(choice.lam)), float(sums.power.sum())
        most = _LEAK * math.sqrt(power / sums.pixels)
        raised = _coloured(choice, sums, True)
        if math.sqrt(sums.implied_variance(raised.lam)) > most:
            choice = raised
        sound = choice.converged and energy <= _HIDDEN * power
        if sound and implied <= most:  # what leaks from the taper may pass for noise
            psf = None if blur is None else blur.psf
            sound = implied <= _SEEN * noise_level(first[middle], psf, first.ndim)
        if blur is None:
            choice = _raised(choice, math.sqrt(2), "parts only resemble the whole")
        choices.append(_cautious(choice, sums) if sound else None)
    return choices or nothing


def _coloured(choice: LambdaChoice, sums: FilterSums, fits: bool) -> LambdaChoice:
    """`choice`, or the λ of least expected error for noise of any colour, if ‖f_λ‖ is mostly such noise.

    It has converged if the boundary `fits`. Small images have too few values in an octave to tell noise from texture.
    """
    small = choice.rule != "gcv" or sums.pixels < SMALL / 2
    if small or sums.solution(choice.lam) <= 3 * sums.solution(sums.balanced(choice.lambdas)):
        return choice
    lam = sums.balanced(choice.lambdas, 2.0, typical=fits)
    reason = explained(lam, "gcv", f"by {sums.decomposition}", "", COLOURED)
    return replace(choice, lam=lam, remark=COLOURED, converged=fits, reason=reason)


def _cautious(choice: LambdaChoice, sums: FilterSums) -> LambdaChoice:
    """`choice`, or for few pixels up to twice its λ, until noise makes only a part of what it adds to the prior scene.

    Cross-validation knows its minimum less exactly for fewer pixels and more noise, and a λ too small costs more than
    one too large.
    """
    if not (choice.rule == "gcv" and choice.converged and sums.pixels <= _FEW):
        return choice
    variance = sums.frames * sums.implied_variance(choice.lam)
    for factor in (1.0, math.sqrt(2), 2.0):
        lam = factor * choice.lam
        if variance * sums.noise(lam) <= _NOISY * float(sums.solution(lam)):
            break
    why = f"noise makes more than {_NOISY:.0%} of what that adds"
    return choice if factor == 1 else _raised(choice, factor, why)


def _raised(choice: LambdaChoice, factor: float, why: str) -> LambdaChoice:
    lam = factor * choice.lam
    reason = choice.reason.replace(f"λ = {choice.lam:.3g}", f"λ = {lam:.3g}, {factor:.2g} times the one that")
    return replace(choice, lam=lam, reason=f"{reason}: {why}")


def _bidiagonalized(
    operator: Operator, g: Array, choose: Callable[[FilterSums], LambdaChoice], max_steps: int, tolerance: float
) -> tuple[LambdaChoice, FilterSums, bool]:
    """The choice by a bidiagonalisation that grows until λ no longer moves, its sums, and whether that came."""
    channels = getattr(operator, "channels", None)  # each with PSFs of its own: they make one image
    g = g.reshape(-1, *([] if channels is None else [channels]), *operator.image_shape)
    if g[0].size > 1 << 17:
        g = g.astype(np.float32)  # the sums are wanted to a thousandth: half the time, and it costs nothing
    # A random image of ±1: its spectral measure is, on average, the number of eigenvalues. It is as inexact at small
    # λ as that of the image, which keeps their ratio, the GCV function, consistent.
    signs = random_signs((1, *g.shape[1:]), g.dtype, get_xp(g))
    images, random = slice(len(g)), slice(len(g), None)
    bases = Bidiagonalization(operator, get_xp(g).concatenate([g, signs]), keep=False)
    most = min(max_steps, math.prod(operator.image_shape), math.prod(operator.scene_shape))
    check, still, last = 12, 0, None  # steps at the next evaluation; successive evaluations with the same λ
    while True:
        bases.advance(min(check, most) - bases.steps)
        exhausted = bases.ended(images)
        ended = bases.steps >= most or exhausted
        check = math.ceil(1.25 * bases.steps)
        if not (ended or still):
            bases.ahead(min(check, most) - bases.steps)  # while the host evaluates the sums so far
        words = f"a bidiagonalisation of {bases.steps} steps"
        sums = FilterSums(*bases.measure(images), *bases.measure(random), len(g), words)
        choice = choose(sums)
        if last is not None:
            # A λ at the end of the range stands still although the residual there does not yet.
            moved = last[1].residual(choice.lam) / max(sums.residual(choice.lam), np.finfo(float).tiny)
            alike = abs(math.log(choice.lam / last[0])) <= tolerance and moved <= 1 + tolerance
            still = still + 1 if alike else 0
        if exhausted or still >= 2:
            return choice, sums, True
        if ended:
            words = f"λ was still moving after {bases.steps} steps of the bidiagonalisation"
            remark = "; ".join(filter(None, [choice.remark, words]))
            return replace(choice, remark=remark, reason=f"{choice.reason}; {words}"), sums, False
        last = choice.lam, sums

"""Choice of λ for the linear formula: generalised cross-validation, discrepancy, L-curve and UPRE.

Every rule is a function of two quantities only. With H = U S Vᵀ, these are the
spectrum σ_i² of HHᵀ and the power |u_iᵀ g|² of the image in it:

    residual   ρ(λ) = ‖g − H f_λ‖² = Σ (λ/(σ_i² + λ))² |u_iᵀ g|²
    solution   ξ(λ) = ‖f_λ‖²       = Σ σ_i²/(σ_i² + λ)² |u_iᵀ g|²
    influence  A(λ)                = Σ σ_i²/(σ_i² + λ), the effective number of parameters

With N pixels and noise of standard deviation s, the rules are

``gcv``
    minimises ρ/(N − A)² [1]_.
``upre``
    minimises ρ + 2 s² A − N s², an unbiased estimate of the predictive risk ‖H f_λ − H f‖² [2]_.
``discrepancy``
    ρ(λ) = N s²: the residual is as large as the noise [3]_.
``lcurve``
    the corner, the point of largest curvature of (log √ρ, log √ξ) [4]_.

*The norm.* `gcv` and `upre`, as published, look for the λ that predicts H f best. It is several times smaller than
the λ that restores f best, since H hides the noise in f_λ. With ``norm="scene"``, the default, every term i of ρ, A
and N is weighted by

    w_i = λ₀/(σ_i² + λ₀) ,   λ₀ = λ/4 ,

which measures the same errors in the norm of (HHᵀ + λ₀I)^(−1/2). An error of H f_λ then counts as the error of f_λ that
causes it, as far down the spectrum as λ lets anything through. λ₀ comes from the previous λ, until λ repeats.
``norm="data"`` is the published form, w = 1. The weighting is this project's; ``benchmarks/bench_lambda.py``
measures both.

*The sums.* If the blur has a spectral decomposition, they are exact. For other blurs, ρ and ξ come from a Golub-Kahan
bidiagonalisation started from g, as Gauss quadrature, and A from a second one started from random signs [5]_; both grow
until the chosen λ converges. If the boundary is open, "auto" avoids that: away from the edges the sums are those of
the picture's spectrum (`sums.spectral_sums`), which costs one transform and is as accurate.

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
from ..normalization import Scale
from ..norms import shifted, squares
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

# Range of the search as multiples of σ_max². Without a decomposition, smaller λ would need too long a
# bidiagonalisation, and could not be solved for.
_RANGE, RANGE_ITERATIVE = (1e-8, 10.0), (1e-6, 10.0)
# Largest number of steps of a bidiagonalisation; the second one is for "auto" with a varying PSF or a large picture.
_STEPS, _STEPS_VARYING = 400, 150
_LEAK = 0.15  # share of the prior scene's residual that the taper may add to it
_SEEN = 2.0  # ratio of a spectrum's noise to that of blocks above which the spectrum's λ is not used
_HIDDEN = 1.7  # ratio of the data's energy to that under the taper above which the spectrum's λ is not used
_WINDOW = 512  # side, in pixels, of the window that represents a large picture
SMALL = 128 * 128  # pixels up to which exact sums cost no more than a spectrum
# Relative change of λ, and of its residual, over a quarter more steps that counts as converged: for named rules,
# "auto".
_CONVERGED, _CONVERGED_QUICK = 0.03, 0.1


def _refine(function: Callable[[Lambdas], Lambdas], lambdas: np.ndarray, at: int) -> float:
    """Return the minimiser of `function` between the neighbours of grid point `at`, by parabolas in log λ."""
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
    """Return the minimiser of a curve, a remark on the curve, and whether λ is reliable."""
    at, least = int(np.argmin(values)), float(values.min())
    if np.ptp(values) <= 1e-6 * abs(least):  # rounding
        words = "is flat over the whole range: hardly anything is blurred, and the least λ changes least"
        return float(lambdas[0]), f"{what} {words}", True
    lam = _refine(function, lambdas, at)
    if at in (0, len(lambdas) - 1):
        words = "is monotone up to the largest λ: the image looks like noise alone"
        if at == 0:
            words = "is monotone down to the smallest λ: the data need no regularisation"
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

    def beyond(t: float) -> float:
        return math.sqrt(sums.residual(math.exp(t)) / sums.pixels) - noise

    return math.exp(scipy.optimize.brentq(beyond, *np.log(lambdas[[max(at - 1, 0), at]]), xtol=1e-6)), "", True


def _corner(sums: FilterSums, lambdas: np.ndarray, values: np.ndarray) -> Search:
    """Return the L-curve's corner: the largest curvature that is a local maximum inside the range."""
    inner = np.arange(1, len(values) - 1)
    peaks = inner[(values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:]) & (values[1:-1] > 0)]
    if len(peaks) == 0:
        words = "the L-curve has no corner: its curvature has no positive maximum inside the range of λ"
        return float(lambdas[int(np.argmax(values))]), words, False
    at = int(peaks[np.argmax(values[peaks])])
    lam = _refine(lambda x: -sums.curvature(float(x)), lambdas, at)
    others = ", ".join(f"{lambdas[p]:.2g}" for p in peaks if p != at and values[p] > 0.5 * values[at])
    return lam, f"the L-curve has several corners: λ = {others} would be others" if others else "", True


def _in_norm(
    function: Callable[[Lambdas, float], Lambdas], lambdas: np.ndarray, norm: str
) -> Callable[[Lambdas], Lambdas]:
    """Return `function(λ, λ₀)` as a function of λ, with the λ₀ of the norm."""
    if norm == "data":
        return lambda x: function(x, math.inf)
    at = len(lambdas) - 1  # from above: if λ alternates, the larger one is safer
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
        # Cross-validation's noise level takes the blur into account, so it detects weak noise under texture.
        lam, remark, _ = minimum(sums.gcv, "", "scene")
        noise = noise if remark else min(noise, math.sqrt(sums.implied_variance(lam)))
    if not seen:  # every λ restores the same scene of zeros
        remark = "the curve is flat: the image is zero, or this blur lets nothing of it through"
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
    """Choose λ for the Tikhonov formula from the image itself.

    Parameters
    ----------
    blur : Blur or other Operator
        Any PSF and boundary. H's units set those of λ: it is compared with σ².
    g : (..., M, N) array
        The blurred image, NumPy or CuPy. Frames and colour channels share one λ.
    rule : {"gcv", "discrepancy", "lcurve", "upre", "auto"}
        See `deblur.tuning.spectral`. "auto" is "gcv". If the boundary is open, "auto" takes the sums from the picture's
        spectrum, and takes `g` for the residual g − H f̄ of a prior scene; if the spectrum is not reliable, and for
        other boundaries, it uses the sums of "gcv".
    noise : float, optional
        Standard deviation of the noise in the units of `g`, for "discrepancy" and "upre". By default
        that of `estimate_noise`, or the level that cross-validation implies if it is smaller.
    norm : {"scene", "data"}
        Norm of the error that "gcv" and "upre" estimate; "data" is their published form.
    bounds : (float, float), optional
        Range of λ as multiples of σ_max². By default (1e-8, 10), or (1e-6, 10) without a decomposition. If the rule
        reaches 1e-8, the range is extended to 1e-14, or to 1e-12 in single precision.
    max_steps : int
        Largest number of steps of the bidiagonalisation, if there is no decomposition.

    Returns
    -------
    LambdaChoice
        If "gcv" finds no reliable λ, the choice is that of another rule, and `reason` says so.

    Raises
    ------
    ValueError
        For an unknown rule or norm, for noise or bounds out of range, and for images that are not finite,
        do not have the blur's size, or are too small to estimate their noise.
    """
    g = as_real(g, "the image")
    problem = Problem(check_operator(blur), dtype=g.dtype, device=Device.of(g))
    rule = rule if check_rule(rule) == "auto" else check_rule(rule, problem)
    check_noise(noise)
    check_choice(norm, NORMS, "norm")
    pair = tuple(map(as_number, bounds)) if bounds is not None and np.iterable(bounds) else (math.nan,)
    if bounds is not None and not (len(pair) == 2 and 0 < pair[0] < pair[1] < np.inf):
        raise ValueError(f"bounds must be two increasing positive multiples of σ_max², not {bounds!r}")
    max_steps = check_count(max_steps, "max_steps")
    if g.shape[-len(blur.image_shape) :] != blur.image_shape:
        raise ValueError(f"the image must have shape (..., {str(blur.image_shape)[1:-1]}), not {g.shape}")
    check_finite(g, "the image")
    scale = Scale.of(problem, g)
    g = shifted(g.reshape(-1, *blur.image_shape), -scale.image)
    level = None if noise is None else shifted(float(noise), -scale.image)
    choice = linear_choice(scale.operator(blur), g, rule, noise=level, norm=norm, bounds=bounds, max_steps=max_steps)
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
    """Choose as `choose_lambda`, for checked arguments and a normalised problem.

    A `quick` choice may use the middle of a large picture only.
    """
    automatic, blur = rule == "auto", operator.shift_invariant
    rule, quick = ("gcv", True) if automatic else (rule, quick)
    level, source = None, "not used"
    if RULES[rule].noise:
        level, source = (estimate_noise(g, axes=g.ndim - 1), "estimated") if noise is None else (float(noise), "given")
    with all_cores():
        if quick and norm == "scene" and operator.boundary.open:
            if automatic and (choice := from_spectrum(operator, g, bounds or RANGE_ITERATIVE)[0]):
                return choice
            least = 0 if blur is None or blur.psf.ndim != 2 else min(blur.image_shape)
            # The middle represents the picture.
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
            if open_ended and choice.converged and choice.lam < 2 * choice.lambdas[0]:  # the only noise is rounding
                choice = apply(sums, bounds=(bounds[0] * (1e-6 if g.dtype.itemsize > 4 else 1e-4), bounds[1]))
        choice = _coloured(choice, sums, operator.boundary.open) if norm == "scene" else choice
    if rule == "gcv" and not still:  # fall back on the discrepancy, which needs no trace
        if noise is None and shows_noise(g, g.ndim - 1):
            noise = noise_level(g, None if blur is None else blur.psf, g.ndim - 1)
        other = apply(sums, rule="discrepancy", noise=noise or 0.0, noise_source="estimated")
        if other.converged and other.lam > choice.lam:
            reason = f"{other.reason}; cross-validation was rejected: {choice.remark}"
            return replace(other, reason=reason, remark=choice.remark)
    return choice


def from_spectrum(
    operator: Operator, left: Iterable[Array], bounds: Range = RANGE_ITERATIVE, *others: Blur
) -> list[LambdaChoice | None]:
    """Choose λ by "gcv" from the spectrum of g − H f̄, the residual of the prior scene, for images (M, N).

    A choice is None if the spectrum is unreliable. That is so if the taper's error may explain the noise that it
    implies, and this noise far exceeds that of the first image's blocks; or if the taper hides most of the energy. All
    choices are None if the whole decomposition costs no more. A taper hides the boundary, so any boundary is served.
    `others` are blurs by hardly larger PSFs, for which λ is chosen likewise.
    """
    blur = operator.shift_invariant
    nothing: list[LambdaChoice | None] = [None] * (1 + len(others))
    if blur is not None and blur.factors is not None and math.prod(blur.image_shape) <= SMALL:
        return nothing
    images = iter(left)
    first = next(images)
    energies: list[float] = []

    def weighed(image: Array) -> Array:
        energies.append(float(squares(image)))
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
        sound = choice.converged and sum(energies) <= _HIDDEN * power
        if sound and implied <= most:  # the taper's leakage may look like noise
            psf = None if blur is None else blur.psf
            sound = implied <= _SEEN * noise_level(first[middle], psf, first.ndim)
        if blur is None:
            lam = math.sqrt(2) * choice.lam
            reason = choice.reason.replace(f"λ = {choice.lam:.3g}", f"λ = {lam:.3g}, 1.4 times the one that")
            choice = replace(choice, lam=lam, reason=f"{reason}: parts only resemble the whole")
        choices.append(choice if sound else None)
    return choices or nothing


def _coloured(choice: LambdaChoice, sums: FilterSums, fits: bool) -> LambdaChoice:
    """Return `choice`, or the λ of least expected error for noise of any colour, if ‖f_λ‖ is mostly such noise.

    The latter counts as converged if the boundary `fits`. Small images have too few values in an octave to distinguish
    noise from texture. There only a λ with a remark is replaced: if error dominates its scene, or at the smallest λ, if
    the scene is ten times as large (without noise it is up to six times as large, with coloured noise up to 10⁴ times).
    """
    much = 3 if sums.pixels >= SMALL / 2 or not choice.converged else 100 if choice.remark else math.inf
    fair = choice.rule == "gcv" and len(sums.values) >= 64  # few steps of a bidiagonalisation show too little
    if not fair or sums.solution(choice.lam) <= much * sums.solution(sums.balanced(choice.lambdas)):
        return choice
    lam = sums.balanced(choice.lambdas, 2.0, typical=fits)
    reason = explained(lam, "gcv", f"by {sums.decomposition}", "", COLOURED)
    return replace(choice, lam=lam, remark=COLOURED, converged=fits, reason=reason)


def _bidiagonalized(
    operator: Operator, g: Array, choose: Callable[[FilterSums], LambdaChoice], max_steps: int, tolerance: float
) -> tuple[LambdaChoice, FilterSums, bool]:
    """Return the choice by a bidiagonalisation that grows until λ is constant, its sums, and whether it became so."""
    channels = getattr(operator, "channels", None)  # channels with different PSFs form one image
    g = g.reshape(-1, *([] if channels is None else [channels]), *operator.image_shape)
    if g[0].size > 1 << 17:
        g = g.astype(np.float32)  # sums to a thousandth suffice, and float32 takes half the time
    # For a random image of ±1, the spectral measure is on average the number of eigenvalues. At small λ it is as
    # inexact as that of the image, which keeps their ratio, the GCV function, consistent.
    signs = random_signs((1, *g.shape[1:]), g.dtype, get_xp(g))
    images, random = slice(len(g)), slice(len(g), None)
    bases = Bidiagonalization(operator, get_xp(g).concatenate([g, signs]), keep=False)
    most = min(max_steps, math.prod(operator.image_shape), math.prod(operator.scene_shape))
    check, still, last = 12, 0, None  # step of the next evaluation; successive evaluations with the same λ
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
            # A λ at the end of the range is constant although its residual may still change.
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

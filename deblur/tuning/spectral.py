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

*The norm.* Both `gcv` and `upre` as published look for the λ that predicts H f
best, which is several times smaller than the one that restores f best: H
hides the noise that f_λ has been given. With ``norm="scene"``, the default,
every term i of ρ, A and N is weighted by

    w_i = λ₀/(σ_i² + λ₀) ,   λ₀ = λ/4 ,

which measures the same errors in the norm of (HHᵀ + λ₀I)^(−1/2): a wrong
H f_λ counts as the wrong f_λ that it comes from, as far down the spectrum as λ
lets anything through. The λ in λ₀ is that found before, until it repeats.
``norm="data"`` is the published form, w = 1. The weighting is this project's
own; ``benchmarks/bench_lambda.py`` measures both.

*The sums.* Where the blur has a spectral decomposition they are exact. For
other blurs ρ and ξ come from a Golub-Kahan bidiagonalisation started from g,
as Gauss quadrature, and A from a second one started from random signs [5]_; both
grow until the chosen λ settles. Where the boundary is open, "auto" spares that: away
from the edges the sums are those of the picture's spectrum (`sums.spectral_sums`),
which costs one transform and is as good.

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
from itertools import chain
from typing import Any

import numpy as np

from ..device import Array, Device, all_cores, as_real, check_finite, get_xp, is_cupy, random_signs
from ..normalization import Scale, shifted
from ..norms import largest, squares
from ..operators.blur import Blur
from ..operators.operator import Operator
from ..problem import Problem
from ..solvers.krylov import Bidiagonalization
from ..solvers.noise import check_noise, estimate_noise, noise_level
from .choice import RULES, Found, LambdaChoice, check_rule, restated
from .sums import FilterSums, exact_sums, local_sums, spectral_sums

NORMS = ("scene", "data")

# The search runs over these multiples of σ_max²; without a decomposition a smaller λ could neither
# be judged by a bidiagonalisation of affordable length nor be solved for.
_RANGE, RANGE_ITERATIVE = (1e-8, 10.0), (1e-6, 10.0)
_PER_DECADE = 10
_STEPS, _STEPS_VARYING = 400, 150  # of a bidiagonalisation; the latter where no rule is asked for by name
_FLOOR = 0.25  # λ₀/λ of the norm "scene"
_NEAR = 30.0  # how much larger another rule's λ may be where cross-validation's is sound but moving
_SAME = 1e-6  # relative height of a curve that tells one λ from another by rounding alone
_LEAK = 0.15  # of what the prior leaves, what the taper may add to it
_HIDDEN = 1.7  # how much more there may be in a picture than under its taper
_FEW = 1 << 15  # pixels of all images, with more of which cross-validation knows its minimum well enough
_NOISY = 0.15  # part that noise may have in what λ adds
_WARY = 1.0, 2**0.5, 2.0  # how much larger λ may become
_SEEN = 2.0  # the noise that a spectrum implies, over the noise that is seen, beyond which it is not followed
_WINDOW = 512  # pixels a side of what the whole rule looks at where the quick one settles nothing
_SMALL = 128 * 128  # pixels up to which a separable blur is decomposed at once
# Relative change of λ, and of the residual at it, over a quarter more steps: where the rule is asked for by name, else.
_SETTLED, _SETTLED_QUICK = 0.03, 0.1


def _noise_level(g: Array, rule: str, noise: float | None) -> tuple[float | None, str]:
    if not RULES[rule].noise:
        return None, "not used"
    return (estimate_noise(g), "estimated") if noise is None else (float(noise), "given")


def _refine(function: Callable[[float], float], lambdas: np.ndarray, at: int) -> float:
    """The minimiser of `function` between the neighbours of grid point `at`, in log λ."""
    low, high = lambdas[max(at - 1, 0)], lambdas[min(at + 1, len(lambdas) - 1)]
    best = math.exp(_lowest(lambda t: function(math.exp(t)), math.log(low), math.log(high), 1e-4))
    return best if function(best) <= function(lambdas[at]) else float(lambdas[at])


def _lowest(function: Callable[[float], float], a: float, b: float, tolerance: float) -> float:
    """Where `function` is lowest between a and b: Brent's method, as SciPy's ``bounded``.

    Parabolas through the three lowest points, and golden sections where those do not serve. (Importing
    ``scipy.optimize`` for it takes a third of what a first call of a process on a GPU may.)
    """
    section = 0.5 * (3 - math.sqrt(5))
    x = second = third = a + section * (b - a)
    fx = f_second = f_third = function(x)
    step = before = 0.0
    while True:
        middle, least = 0.5 * (a + b), math.sqrt(2.2e-16) * abs(x) + tolerance / 3
        if abs(x - middle) <= 2 * least - 0.5 * (b - a):
            return x
        parabola = False
        if abs(before) > least:
            r, q = (x - second) * (fx - f_third), (x - third) * (fx - f_second)
            p, q = (x - third) * q - (x - second) * r, 2 * (q - r)
            p, q = (-p, q) if q > 0 else (p, -q)
            parabola = abs(p) < abs(0.5 * q * before) and q * (a - x) < p < q * (b - x)
            before = step
            if parabola:
                step = p / q + 0.0  # not -0
                if x + step - a < 2 * least or b - (x + step) < 2 * least:
                    step = math.copysign(least, middle - x)
        if not parabola:
            before = a - x if x >= middle else b - x
            step = section * before
        at = x + math.copysign(max(abs(step), least), step)
        f_at = function(at)
        if f_at <= fx:
            a, b = (x, b) if at >= x else (a, x)
            third, f_third, second, f_second, x, fx = second, f_second, x, fx, at, f_at
        else:
            a, b = (at, b) if at < x else (a, at)
            if f_at <= f_second or second == x:
                third, f_third, second, f_second = second, f_second, at, f_at
            elif f_at <= f_third or third in (x, second):
                third, f_third = at, f_at


def _minimum(function: Callable[[float], float], lambdas: np.ndarray, values: np.ndarray, what: str) -> Found:
    """The minimiser of a curve and a remark on it."""
    at = int(np.argmin(values))
    lam = _refine(function, lambdas, at)
    if at == 0:
        return Found(
            lam,
            f"{what} is monotone down to the smallest λ looked at: the data ask for no regularisation, "
            "or the model of the blur is wrong",
        )
    if at == len(lambdas) - 1:
        return Found(
            lam,
            f"{what} is monotone up to the largest λ looked at: the image looks like noise alone, "
            "or the model of the blur is wrong",
            converged=False,
        )
    low = lambdas[values <= values[at] + 1e-3 * abs(values[at])]
    if np.ptp(values) <= _SAME * abs(values[at]):
        return Found(
            float(lambdas[0]),
            f"{what} is flat over the whole range: hardly anything is blurred, and the least λ changes least",
        )
    if low[-1] / low[0] >= 100:
        return Found(
            lam,
            f"{what} is flat: from λ = {low[0]:.2g} to {low[-1]:.2g} it stays within 0.1 % of its minimum",
        )
    return Found(lam)


def _discrepancy(sums: FilterSums, lambdas: np.ndarray, values: np.ndarray, noise: float) -> Found:
    if values[0] > noise:
        return Found(
            float(lambdas[0]),
            f"the residual stays above the noise level {noise:.3g} down to the smallest λ looked at "
            f"({values[0]:.3g} there): the noise level is too small, or the model of the blur is wrong",
            converged=False,
        )
    if values[-1] < noise:
        return Found(
            float(lambdas[-1]),
            f"the residual stays below the noise level {noise:.3g} up to the largest λ looked at "
            f"({values[-1]:.3g} there): the image looks like noise alone, or the noise level is too large",
            converged=False,
        )
    at = int(np.searchsorted(values, noise))
    bracket = (math.log(lambdas[max(at - 1, 0)]), math.log(lambdas[at]))
    from scipy.optimize import brentq

    root = brentq(lambda t: sums.rms_residual(math.exp(t)) - noise, *bracket, xtol=1e-6)
    return Found(math.exp(root))


def _corner(sums: FilterSums, lambdas: np.ndarray, values: np.ndarray) -> Found:
    """The L-curve's corner: the largest curvature that is a maximum of its own, not an end of the range."""
    inner = np.arange(1, len(values) - 1)
    peaks = inner[(values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:]) & (values[1:-1] > 0)]
    if len(peaks) == 0:
        return Found(
            float(lambdas[int(np.argmax(values))]),
            "the L-curve has no corner: its curvature has no positive maximum inside the range looked at",
            converged=False,
        )
    at = int(peaks[np.argmax(values[peaks])])
    lam = _refine(lambda x: -sums.curvature(x), lambdas, at)
    rivals = [lambdas[p] for p in peaks if p != at and values[p] > 0.5 * values[at]]
    others = ", ".join(f"{x:.2g}" for x in rivals)
    return Found(lam, f"the L-curve has more than one corner: λ = {others} would be others" if rivals else "")


def _in_norm(function: Callable[[Any, float], Any], lambdas: np.ndarray, norm: str) -> Callable[[Any], Any]:
    """`function(λ, λ₀)` with the λ₀ of the norm put in."""
    if norm == "data":
        return lambda x: function(x, math.inf)
    at = len(lambdas) - 1  # from above: of two λ that repeat, the safer
    floors: list[float] = []
    while (floor := _FLOOR * float(lambdas[at])) not in floors:
        floors.append(floor)
        at = int(np.argmin(function(lambdas, floor)))
    return lambda x: function(x, floor)


def _residual_noise(sums: FilterSums, lambdas: np.ndarray) -> float:
    """The noise level that cross-validation implies: √(ρ/(N − A)) at its λ (Wahba, J. R. Stat. Soc. B 45 (1983)).

    Like the wavelets' it is too large where picture is left in the residual, but it knows the blur: it sees
    weak noise under texture. Infinite if cross-validation has no minimum.
    """
    function = _in_norm(sums.gcv, lambdas, "scene")
    values = function(lambdas)
    lam, remark, _ = _minimum(function, lambdas, values, "")
    return math.inf if remark else math.sqrt(sums.residual(lam) / (sums.pixels - sums.influence(lam)))


def choose_from(
    sums: FilterSums,
    rule: str,
    noise: float | None,
    noise_source: str,
    *,
    norm: str = "scene",
    bounds: tuple[float, float] = _RANGE,
) -> LambdaChoice:
    """Apply a rule to sums that are already there; see `choose_lambda`."""
    low, high = bounds[0] * sums.top, bounds[1] * sums.top
    lambdas = np.geomspace(low, high, 1 + math.ceil(_PER_DECADE * math.log10(high / low)))
    residual, solution = np.sqrt(sums.residual(lambdas)), np.sqrt(sums.solution(lambdas))
    values = np.zeros(len(lambdas))
    if noise is not None and noise_source == "estimated" and solution.max() > 0:
        noise = min(noise, _residual_noise(sums, lambdas))
    if not solution.max() > 0:
        # Nothing of the image lies in the range of H: every λ restores the same, empty scene.
        remark = "the curve is flat: the image is zero, or nothing of it can come through this blur"
        found = Found(math.sqrt(low * high), remark)
    elif rule == "discrepancy":
        values = residual / math.sqrt(sums.pixels)
        found = _discrepancy(sums, lambdas, values, noise or 0.0)
    elif rule == "lcurve":
        values = np.array([sums.curvature(x) for x in lambdas])
        found = _corner(sums, lambdas, values)
    else:
        if rule == "gcv":
            function, what = _in_norm(sums.gcv, lambdas, norm), "the GCV curve"
        else:
            risk = lambda x, floor: sums.upre(x, noise or 0.0, floor)  # noqa: E731
            function, what = _in_norm(risk, lambdas, norm), "the curve of the estimated risk"
        values = function(lambdas)
        found = _minimum(function, lambdas, values, what)
    lam, remark, converged = found
    if converged and sums.amplified(lam, high):
        converged, words = (
            False,
            "the scene there is ruled by amplified error: the model of the blur is wrong",
        )
        remark = f"{remark}; {words}" if remark else words
    reason = f"λ = {lam:.3g} {RULES[rule].summary}"
    if noise is not None:
        reason += f" (standard deviation {noise:.3g}, {noise_source})"
    reason += f", by {sums.decomposition}"
    if remark:
        reason += f"; {remark}"
    keep = sums.counts if sums.operator is sums.values else np.ones(len(sums.values))
    order = np.argsort(-sums.values, kind="stable")
    return LambdaChoice(
        lam=float(lam),
        rule=rule,
        reason=reason,
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
    bounds: tuple[float, float] | None = None,
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
        See `deblur.tuning.spectral`. "auto" is "gcv" from the picture's spectrum alone where the boundary is open,
        which takes `g` for what the prior scene leaves of an image: g − H f̄. Where that settles nothing, and for
        other boundaries, it is "gcv".
    noise : float, optional
        Standard deviation of the noise in the units of `g`, for "discrepancy" and "upre"; by default
        that of `estimate_noise`, or the one that cross-validation implies if that is smaller.
    norm : {"scene", "data"}
        Of the error that "gcv" and "upre" estimate; "data" is their published form.
    bounds : (float, float), optional
        Range of λ as multiples of σ_max²; by default (1e-8, 10), and (1e-6, 10) where there is no
        decomposition.
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
    quick = rule == "auto"
    rule = check_rule(rule, Problem(blur, dtype=g.dtype, device=Device.of(g)))
    check_noise(noise)
    if norm not in NORMS:
        raise ValueError(f"unknown norm {norm!r}; choose one of {', '.join(NORMS)}")
    if bounds is not None and not 0 < bounds[0] < bounds[1] < np.inf:
        raise ValueError(f"bounds must be two increasing positive multiples of σ_max², not {bounds!r}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, not {max_steps!r}")
    if g.ndim < 2 or g.shape[-2:] != blur.image_shape:
        raise ValueError(
            f"the image must have shape (..., {blur.image_shape[0]}, {blur.image_shape[1]}), not {g.shape}"
        )
    if not math.isfinite(largest(g)):
        check_finite(g, "the image")
    g = g.reshape(-1, *blur.image_shape)
    problem = Problem(blur, dtype=g.dtype, device=Device.of(g))
    if scale := Scale.of(problem, g):
        near, down = scale.operator(blur), -scale.image
        found = choose_lambda(
            near,
            shifted(g, down),
            "auto" if quick else rule,
            noise=None if noise is None else shifted(float(noise), down),
            norm=norm,
            bounds=bounds,
            max_steps=max_steps,
        )
        return restated(found, problem, scale)
    level, source = _noise_level(g, rule, noise)
    with all_cores():
        if quick and norm == "scene" and blur.boundary.open:
            (choice,) = from_spectrum(blur, g, bounds or RANGE_ITERATIVE)
            if choice is not None:
                return choice
        if quick and (within := _middle(blur, g)):
            choice = choose_lambda(*within, rule, noise=noise, norm=norm, bounds=bounds, max_steps=max_steps)
            return replace(choice, reason=f"{choice.reason}, of the middle {_WINDOW} x {_WINDOW} pixels")
        sums = exact_sums(blur, g)
        if sums is not None:
            choice = choose_from(sums, rule, level, source, norm=norm, bounds=bounds or _RANGE)
            choice = _trusted(choice, sums, g, norm, bounds or _RANGE)
            return _cautious(choice, sums) if quick else choice
        if quick and blur.shift_invariant is None:
            max_steps = min(max_steps, _STEPS_VARYING)
        return _settled(blur, g, rule, level, source, norm, bounds or RANGE_ITERATIVE, max_steps, quick)


def from_spectrum(
    operator: Operator,
    left: Iterable[Array],
    bounds: tuple[float, float] = RANGE_ITERATIVE,
    *others: Blur,
) -> list[LambdaChoice | None]:
    """λ by "gcv" from the spectrum of what the prior scene leaves of images (M, N); None where it settles nothing.

    That is so where the noise it implies is small enough to be the taper's own error and far more than what is seen of
    noise in the first image; or where the taper hides most of what there is. Nor is a spectrum taken where the whole
    decomposition costs no more. A taper hides the boundary, which may be any. The `others` are blurs by hardly larger
    PSFs, whose λ are chosen likewise.
    """
    blur = operator.shift_invariant
    nothing: list[LambdaChoice | None] = [None] * (1 + len(others))
    if blur is not None and blur.factors is not None and math.prod(blur.image_shape) <= _SMALL:
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
        if blur is not None:
            found = spectral_sums(blur, every, *others)
        else:
            found = local_sums(operator, every)
    middle = tuple(slice(max(n - _WINDOW, 0) // 2, (n + _WINDOW) // 2) for n in first.shape)
    choices: list[LambdaChoice | None] = []
    for sums in found:
        choice = choose_from(sums, "gcv", None, "not used", bounds=bounds)
        implied = math.sqrt(sums.residual(choice.lam) / (sums.pixels - sums.influence(choice.lam)))
        leaks = implied <= _LEAK * math.sqrt(float(sums.power.sum()) / sums.pixels)
        sound = choice.converged and energy <= _HIDDEN * float(sums.power.sum())
        sound = sound and not (leaks and implied > _SEEN * noise_level(first[middle]))
        choices.append(_cautious(choice, sums) if sound else None)
    return choices or nothing


def _cautious(choice: LambdaChoice, sums: FilterSums) -> LambdaChoice:
    """`choice`, or a λ up to twice as large where noise makes more than a part of what it adds to the prior scene, or
    the sums are rough.

    Cross-validation knows its minimum the less exactly the fewer pixels and the more noise there are, and a λ too small
    costs more than one too large.
    """
    few = sums.pixels <= _FEW
    if choice.rule != "gcv" or not choice.converged or not (few or sums.rough):
        return choice
    variance = sums.residual(choice.lam) / max(sums.pixels - sums.influence(choice.lam), 1.0)
    for factor in _WARY[1:] if sums.rough else _WARY:
        lam = factor * choice.lam
        if not few or sums.frames * variance * sums.noise(lam) <= _NOISY * sums.solution(lam):
            break
    if factor == 1:
        return choice
    words = f"λ = {lam:.3g}, {factor:.2g} times the one that"
    reason = choice.reason.replace(f"λ = {choice.lam:.3g}", words)
    why = f"noise makes more than {_NOISY:.0%} of what that adds"
    if sums.rough:
        why = "parts only resemble the whole"
    return replace(choice, lam=lam, reason=f"{reason}: {why}")


def _middle(operator: Operator, g: Array) -> tuple[Blur, Array] | None:
    """The middle of images too large for the whole rule where it is not asked for by name, and its blur."""
    blur = operator.shift_invariant
    large = min(operator.image_shape) > 1.5 * _WINDOW
    if blur is None or not blur.boundary.open or not large or max(blur.psf.shape) > _WINDOW // 4:
        return None
    top, left = ((n - _WINDOW) // 2 for n in operator.image_shape)
    part = Blur(blur.psf, (_WINDOW, _WINDOW), blur.boundary, origin=blur.origin)
    return part, g[..., top : top + _WINDOW, left : left + _WINDOW]


def _trusted(
    choice: LambdaChoice,
    sums: FilterSums,
    g: Array,
    norm: str,
    bounds: tuple[float, float],
    moving: bool = False,
) -> LambdaChoice:
    """`choice`, or the λ of a sounder rule where cross-validation ran down to where error rules, or was still moving.

    (For data without noise the smallest λ is right, and the scene stands still there.) The sounder rule is the
    discrepancy with the noise estimated: it needs no trace, and its larger λ is settled and solved for in fewer steps.
    If λ only moves it must not be far away, for texture counts as noise. Where error rules even there it is the
    L-curve's corner, the least harm, and not settled.
    """
    ran_down = not choice.converged and int(np.argmin(choice.values)) == 0
    if choice.rule != "gcv" or not (moving or ran_down):
        return choice
    level = noise_level(g) if min(g.shape[-2:]) >= 4 else 0.0
    for rule, noise, source in (("discrepancy", level, "estimated"), ("lcurve", None, "not used")):
        other = choose_from(sums, rule, noise, source, norm=norm, bounds=bounds)
        near = rule == "discrepancy" and other.lam <= _NEAR * choice.lam
        if other.converged and other.lam > choice.lam and (near or not choice.converged):
            reason = f"{other.reason}; cross-validation was not followed: {choice.remark}"
            return replace(other, reason=reason, remark=choice.remark, converged=rule == "discrepancy")
    return choice


def _settled(
    operator: Operator,
    g: Array,
    rule: str,
    noise: float | None,
    source: str,
    norm: str,
    bounds: tuple[float, float],
    max_steps: int,
    cautious: bool,
) -> LambdaChoice:
    """The choice by a bidiagonalisation that grows until λ no longer moves."""
    channels = getattr(operator, "channels", None)  # each with PSFs of its own: they make one image
    g = g.reshape(-1, *([] if channels is None else [channels]), *operator.image_shape)
    if g[0].size > 1 << 17:
        g = g.astype(np.float32)  # the sums are wanted to a thousandth: half the time, and it costs nothing
    # A random image of ±1: its spectral measure is, on average, the number of eigenvalues. That it is
    # known no better than the image's at small λ is what keeps their ratio, the GCV function, honest.
    signs = random_signs((1, *g.shape[1:]), g.dtype, get_xp(g))
    images, random = slice(len(g)), slice(len(g), None)
    if is_cupy(g):  # as one stack, which takes half the launches
        bases = probe = Bidiagonalization(operator, get_xp(g).concatenate([g, signs]), keep=False)
    else:
        probe, random = Bidiagonalization(operator, signs, keep=False), slice(None)
        bases = Bidiagonalization(operator, g, keep=False)
    most = min(max_steps, math.prod(operator.image_shape), math.prod(operator.scene_shape))
    converged = _SETTLED_QUICK if cautious else _SETTLED
    check, quiet, last = 12, 0, None  # when to look next; looks in a row that found λ where it was
    while True:
        bases.advance(min(check, most) - bases.steps)
        if probe is not bases:
            probe.advance(bases.steps - probe.steps)
        exhausted = bases.ended(images)
        ended = bases.steps >= most or exhausted
        check = math.ceil(1.25 * bases.steps)
        if not (ended or quiet):
            bases.ahead(min(check, most) - bases.steps)  # while the host looks at what there is
        words = f"a bidiagonalisation of {bases.steps} steps"
        sums = FilterSums(*bases.measure(images), *probe.measure(random), len(g), words)
        choice = choose_from(sums, rule, noise, source, norm=norm, bounds=bounds)
        if last is not None:
            # A λ at the end of the range stands still although the residual there does not yet.
            moved = last[1].residual(choice.lam) / max(sums.residual(choice.lam), np.finfo(float).tiny)
            still = abs(math.log(choice.lam / last[0])) <= converged and moved <= 1 + converged
            quiet = quiet + 1 if still else 0
        if exhausted or quiet >= 2:
            choice = _trusted(choice, sums, g, norm, bounds)
            return _cautious(choice, sums) if cautious else choice
        if ended:
            words = f"λ was still moving after {bases.steps} steps of the bidiagonalisation"
            remark = f"{choice.remark}; {words}" if choice.remark else words
            choice = replace(choice, remark=remark, reason=f"{choice.reason}; {words}")
            return _trusted(choice, sums, g, norm, bounds, moving=True)
        last = choice.lam, sums

"""Choosing λ for any problem that can be solved: the image judges by what each λ leaves of it.

Every rule looks at the standardised residual e = (g − Hf_λ − b) √w / s, where s² is the variance of the noise
up to one factor ν that all pixels share: s² = 1 and ν = σ² for additive noise, s² = Hf_λ + b for photon
counts, whose ν is the sensor's gain (1 where the image is in photons). With N visible pixels and the degrees of
freedom A = Σ ∂(Hf_λ)_i/∂g_i that f_λ spends on following the data,

``gcv``
    minimises N ‖e‖²/(N − A)², generalised cross-validation [1]_; ν is not needed.
``sure``
    minimises ‖e‖² + 2νA − Nν, Stein's unbiased estimate of the risk ‖Hf_λ − Hf‖² [2]_.
``discrepancy``
    ‖e‖² = Nν: the residual is as large as the noise [3]_; for counts the scaled discrepancy [4]_.
``whiteness``
    minimises the autocorrelation of e beyond lag zero [5]_, [6]_.

A is measured, for no formula gives it for every term: the data are shaken by a random sign pattern small beside
the noise, and A is how far the solution follows [7]_; both are solved together, as one stack. The fits "l1" and
"huber" leave a residual that has no variance to speak of: outliers are clipped before its whiteness is judged. With
a denoiser as the regularizer λ follows the noise's variance, whatever the rule: solutions take too long to look at
several. Where similar patches are filtered together the first pilot, total variation, is what is looked at.
``benchmarks/bench_variational.py`` measures what each loses against the best λ.

The search begins at λ = κν N/R(f), where a prior exp(−λR/ν) of so large a regularizer would put it [8]_, walks in
growing steps to where the rule's minimum is bracketed, and ends with the parabola through the last three.
Each solution starts the next.

Of a large picture whose scene goes on beyond its frame, windows stand for the whole: squares spread over it, which are
frames of one problem with one λ. ``benchmarks/bench_tuning.py`` measures what is lost and what it saves.

References
----------
.. [1] G. H. Golub, M. Heath, G. Wahba, Technometrics 21 (1979) 215-223.
.. [2] C. M. Stein, Ann. Statist. 9 (1981) 1135-1151.
.. [3] V. A. Morozov, Soviet Math. Doklady 7 (1966) 414-417.
.. [4] M. Bertero, P. Boccacci, G. Talenti, R. Zanella, L. Zanni, Inverse Problems 26 (2010) 105004.
.. [5] M. S. C. Almeida, M. A. T. Figueiredo, IEEE Trans. Image Process. 22 (2013) 2751-2763.
.. [6] A. Lanza, M. Pragliola, F. Sgallari, Electron. Trans. Numer. Anal. 53 (2020) 329-351.
.. [7] S. Ramani, T. Blu, M. Unser, IEEE Trans. Image Process. 17 (2008) 1540-1554.
.. [8] J. P. Oliveira, J. M. Bioucas-Dias, M. A. T. Figueiredo, Signal Process. 89 (2009) 1683-1693.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..device import Array, random_signs
from ..methods import METHODS
from ..norms import largest, norms_of, probed, total
from ..problem import Factor, Problem, Solution, Stop
from ..solvers.admm import first_frames
from ..solvers.noise import noise_variance
from ..solvers.start import filled, prior_scene
from ..solvers.whiteness import whiteness
from ..solvers.windows import cut, side_for
from ..terms import is_quadratic, regularizer_value
from .choice import RULES, Found, LambdaChoice

_KAPPA = 0.2  # λ R/(ν N) at the start of the search, about what is usual
_STEP = math.log(2.0)
_FLOOR, _CEILING = 1e-7, 1e2  # the range of λ, over the standard deviation of the image where R is a norm
_MOST = 14  # values of λ looked at
# Relative residual of the solutions on the way, its least and what it is over that of the noise: where the minimum of
# "gcv" and "sure" lies a loose one tells as well as an exact one. What the other rules measure must be small beside the
# noise.
_RTOL, _RTOL_LEAST, _RTOL_OF_NOISE = 5e-2, 7e-3, 1.7
_RTOL_EXACT, _RTOL_EXACT_LEAST, _RTOL_EXACT_OF_NOISE = 1e-2, 5e-4, 0.2
# The same of one linear system, its least over eps and over λ beside the gain: conjugate gradients stopped earlier are
# a regularisation of their own.
_RTOL_QUADRATIC, _RTOL_OF_EPS, _RTOL_OF_SHARE = 1e-6, 30, 1e-2
# The best λ for the scene over that for the blurred scene, which "gcv" and "sure" look for, where R is a norm; and
# for the collaborative filter, whose pilot may be smoother than the best picture.
_SCENE, _SCENE_OF_PILOT = 0.65, 0.8
# The deviation of the noise, over the largest value, that the data are shaken with at least. For a picture with less
# noise λ is too large by about as much; what it is multiplied by at least.
_SHAKEN, _QUIET = 5e-4, 0.0625
# λ of plug and play over the variance of the noise: for a blur that lets nothing through, how it grows with the share
# of white noise that the blur lets through, and its most; the least noise over the image's size that is reckoned with.
_OF_NOISE, _OF_NOISE_SEEN, _OF_NOISE_MOST, _LEAST_NOISE = 0.5, 1.0, 1.2, 2e-3
_AMPLIFIED = 1.1  # growth of ‖f_λ‖ on the last step to the smallest λ that no true model shows
# Growth of ‖f_λ‖ over a decade of λ at the λ found, over its least at larger ones, that no true model shows: there it
# is at most 1.013 (72 photographs, with "tv" and "gradient"), and mostly above 1.05 with a boundary that does not fit.
_GROWING = 1.05
_CLIP = 3.0  # median absolute residuals of a standard deviation beyond which an outlier is cut off


Prepare = Callable[[Problem], Factor]


@dataclass(frozen=True)
class _Look:
    """What one λ left of the image."""

    lam: float
    mean_square: float  # ‖e‖²/N
    degrees: float  # A/N
    whiteness: float
    size: float  # ‖f_λ‖


class _Observer:
    """Solves for one λ after the other and looks at the residuals."""

    def __init__(self, problem: Problem, g: Array, rule: str, nu: float, prepare: Prepare) -> None:
        xp, weights = problem.xp, problem.fidelity.weights
        self.problem, self.prepare = replace(problem, stop=Stop(rtol=problem.stop.rtol)), prepare
        self.rule, self.nu = rule, nu
        self.frames, self.counts = len(g), problem.fidelity.name == "poisson"
        self.w = xp.broadcast_to(xp.ones((1, 1, 1, 1), g.dtype) if weights is None else weights, g.shape)
        self.pixels = float(total((self.w > 0).astype(g.dtype)))
        self.needs_degrees = rule in ("gcv", "sure")
        self.g = self.stack = g
        self.scale = max(float(xp.std(g)), 1e-6 * float(abs(g).max()), float(np.finfo(g.dtype).tiny))
        if self.needs_degrees:
            # Small beside the noise, but far above what the solver leaves unsolved.
            signs = random_signs(g.shape, g.dtype, xp)
            size = math.sqrt(nu)
            if self.counts:
                size = size * xp.sqrt(xp.maximum(g, float(g.mean()) * 0.05))
            self.probe = (signs * xp.maximum(size, 1e-3 * self.scale)).astype(g.dtype, copy=False)
            shaken = g + self.probe
            if self.counts:
                shaken = xp.maximum(shaken, 0)
                self.probe = shaken - g
            self.stack = xp.concatenate([g, shaken])
            self.shown = self.probe if weights is None else xp.where(self.w > 0, self.probe, 0)
            self.power = float(total(self.shown**2))
            if weights is not None and weights.ndim == 4 and len(weights) > 1:
                fidelity = replace(problem.fidelity, weights=xp.concatenate([weights, weights]))
                self.problem = replace(self.problem, fidelity=fidelity)
        self.seen: dict[float, _Look] = {}
        self.last: Solution | None = None
        self._last_lam, self._level = 0.0, nu

    def look(self, lam: float) -> _Look:
        """Solve for λ, from the solution before."""
        # Steps back and forth round.
        lam = next((seen for seen in self.seen if abs(seen - lam) < 1e-9 * lam), lam)
        if lam in self.seen:
            return self.seen[lam]
        problem, k, xp = replace(self.problem, lam=lam), self.frames, self.problem.xp
        # A solution from above is a start; one from below solves the larger λ's problem to a loose tolerance as it is.
        start = self.last if lam < self._last_lam else None
        mean = float(abs(self.g).mean()) if self.counts else 1.0
        if not problem.quadratic:
            most, least, of_noise = (
                (_RTOL, _RTOL_LEAST, _RTOL_OF_NOISE)
                if self.needs_degrees
                else (_RTOL_EXACT, _RTOL_EXACT_LEAST, _RTOL_EXACT_OF_NOISE)
            )
            rtol = min(max(of_noise * math.sqrt(self._level * mean) / self.scale, least), most)
        else:
            share = lam / (lam + problem.operator.norm_bound**2)
            least = _RTOL_OF_EPS * float(np.finfo(self.g.dtype).eps)
            rtol = problem.stop.rtol or max(min(_RTOL_QUADRATIC, _RTOL_OF_SHARE * share), least)
        problem = replace(problem, stop=Stop(rtol=rtol))
        solution = self.prepare(problem).solve(self.stack, start)
        self.last, self._last_lam = solution, lam
        seen = problem.operator.forward(solution.scene)
        if problem.fidelity.background:
            seen = seen + problem.fidelity.background
        size = norms_of(solution.scene[:k])[0]
        if self.needs_degrees and not self.counts and problem.fidelity.weights is None:
            square, follows = probed(self.g, seen[:k], seen[k:], self.shown)
            self._level = square / self.pixels
            self.seen[lam] = _Look(lam, self._level, follows / self.power, math.nan, size)
            return self.seen[lam]
        e = self.g - seen[:k]
        variance = xp.maximum(seen[:k], 1e-3 * mean) if self.counts else None
        if variance is not None:
            e = e * xp.sqrt(self.w / variance)
        elif problem.fidelity.weights is not None:
            e = e * xp.sqrt(self.w)
        mean_square = self._level = float(total(e * e)) / self.pixels
        degrees = white = math.nan
        if self.needs_degrees:
            # Σ b (Hf(g + b) − Hf(g)) with b's own size divided out pixel by pixel
            moved, power = (seen[k:] - seen[:k]) * self.shown, self.power
            if variance is not None:
                moved, power = moved / variance, float(total(self.shown**2 / variance))
            degrees = float(total(moved)) / power
        else:
            if problem.fidelity.name in ("l1", "huber"):
                limit = _CLIP * 1.4826 * float(xp.median(abs(e[xp.broadcast_to(self.w > 0, e.shape)])))
                e = xp.clip(e, -limit, limit)
            white = whiteness(e, self.w > 0)
        self.seen[lam] = _Look(lam, mean_square, degrees, white, size)
        return self.seen[lam]

    def value(self, lam: float) -> float:
        """The function that the rule minimises or, for "discrepancy", compares with 0."""
        look = self.look(lam)
        if self.rule == "gcv":
            return look.mean_square / max(1 - look.degrees, 1e-6) ** 2
        if self.rule == "sure":
            return look.mean_square + self.nu * (2 * look.degrees - 1)
        if self.rule == "discrepancy":
            return math.log(max(look.mean_square, 1e-300) / max(self.nu, 1e-300))
        return look.whiteness


# ---------------------------------------------------------------------------------------------
# The search
# ---------------------------------------------------------------------------------------------


def _start(problem: Problem, g: Array, nu: float) -> float:
    """λ = κν N/R(f) for the smoothed image in the place of f."""
    fidelity, operator = problem.fidelity, problem.operator
    smooth = prior_scene(operator, filled(g, fidelity.weights) - fidelity.background, 1.5)
    regularizer = regularizer_value(problem.regularizer, smooth, operator.boundary.wraps)
    level = math.sqrt(nu) if fidelity.name == "l1" else nu
    return _KAPPA * level * g.size / max(regularizer, 1e-6 * g.size * math.sqrt(nu))


def _minimise(observer: _Observer, start: float, low: float, high: float) -> Found:
    """The minimiser in log λ between `low` and `high`, and a remark on the curve."""

    def value(t: float) -> float:
        return observer.value(math.exp(t))

    t = min(max(math.log(start), math.log(low)), math.log(high))
    ends = math.log(low), math.log(high)
    step = -_STEP if t - _STEP >= ends[0] else _STEP
    if value(t + step) > value(t):
        t, step = t + step, -step  # the walk is downhill, and begins uphill of the start
    a, b = t, t + step
    while len(observer.seen) < _MOST:
        if b <= ends[0] or b >= ends[1]:
            end = observer.look(math.exp(b))
            which, meaning = "largest", "the image looks like noise alone"
            converged = False
            if b <= ends[0]:  # right for data without noise, whose scene stands still there
                which, meaning = "smallest", "the data ask for no regularisation"
                converged = end.size <= _AMPLIFIED * observer.look(math.exp(a)).size
            return Found(
                end.lam,
                f"its curve is monotone up to the {which} λ looked at: {meaning}, or the model of the blur is wrong",
                converged,
            )
        c = min(max(b + step, ends[0]), ends[1])
        if value(c) > value(b):
            break
        a, b, step = b, c, 1.6 * step
    else:
        words = f"its curve was still falling after {len(observer.seen)} values of λ"
        return Found(math.exp(b), words, converged=False)
    a, c = min(a, c), max(a, c)
    while c - a > 2.5 * _STEP and len(observer.seen) < _MOST:
        # The walk took long steps: halve the longer side.
        middle = 0.5 * (a + b) if b - a > c - b else 0.5 * (b + c)
        if value(middle) < value(b):
            a, b, c = (a, middle, b) if middle < b else (b, middle, c)
        else:
            a, c = (middle, c) if middle < b else (a, middle)
    fa, fb, fc = value(a), value(b), value(c)
    below = (b - a) * (fb - fc)
    above = (b - c) * (fb - fa)
    if below == above:
        return Found(math.exp(b))
    return Found(math.exp(b - 0.5 * ((b - a) * below - (b - c) * above) / (below - above)))


def _root(observer: _Observer, start: float, low: float, high: float) -> Found:
    """Where the rule's function, which grows with λ, passes 0."""

    def value(t: float) -> float:
        return observer.value(math.exp(t))

    ends = math.log(low), math.log(high)
    t = min(max(math.log(start), ends[0]), ends[1])
    step = -_STEP if value(t) > 0 else _STEP
    other = t
    while len(observer.seen) < _MOST:
        other = min(max(t + step, ends[0]), ends[1])
        if (value(other) > 0) != (value(t) > 0):
            break
        if other in ends:
            side = "above" if value(other) > 0 else "below"
            return Found(
                math.exp(other),
                f"the residual stays {side} the noise level as far as λ was looked at: that level is wrong, or the "
                "model of the blur is",
                converged=False,
            )
        t, step = other, 1.6 * step
    for _ in range(3):
        middle = t + (other - t) * value(t) / (value(t) - value(other))  # regula falsi: the curve is smooth
        if abs(value(middle)) < 0.01:
            return Found(math.exp(middle))
        if (value(middle) > 0) == (value(t) > 0):
            t = middle
        else:
            other = middle
    return Found(math.exp(t + (other - t) * value(t) / (value(t) - value(other))))


def _grows(looks: list[_Look], lam: float) -> bool:
    """Whether the scene at λ is ruled by error: see `deblur.tuning.sums.FilterSums.amplified`."""
    above = [look for look in looks if look.lam > 0.9 * lam]
    sizes = [(math.log10(b.lam / a.lam), a.size / (b.size or 1.0)) for a, b in pairwise(above)]
    growth = [math.log(max(ratio, 1e-300)) / decades for decades, ratio in sizes]
    return bool(growth) and growth[0] > math.log(_GROWING) + min(growth[1:], default=0.0)


def search(problem: Problem, g: Array, rule: str, noise: float | None, prepare: Prepare) -> LambdaChoice:
    """The λ of a rule for the frames `g`, (k, c, M, N), by solutions of `prepare`; see `deblur.tuning.choose`."""
    counts = problem.fidelity.name == "poisson"
    if noise is not None:
        nu, source = (noise if counts else noise**2), "given"
    else:
        nu, source = noise_variance(problem, g), "estimated" if RULES[rule].noise else "not used"
    size = largest(g) or 1.0
    if problem.regularizer == "denoiser":
        return _strength(problem, nu, size, counts, "estimated" if noise is None else "given")
    if not largest(g):
        return _any(rule)
    predictive = rule in ("gcv", "sure") and not is_quadratic(problem.regularizer)
    factor = _SCENE if predictive else 1.0
    if problem.regularizer == "patches":
        problem, prepare = replace(problem, regularizer="tv"), METHODS["tv"].prepare
        factor = _SCENE_OF_PILOT if predictive else 1.0
    whole, count = g.shape, len(g)
    if blur := problem.operator.shift_invariant:
        # A boundary that may not fit shows at the edges alone: it is judged with them.
        problem, g, _ = cut(problem, g, problem.fidelity.weights, side=side_for(blur.psf)) or (
            problem,
            g,
            None,
        )
    floor = 1e-8 * size if counts else (_SHAKEN * size) ** 2
    if predictive and not counts:
        factor *= min(max(math.sqrt(nu / floor), _QUIET), 1.0)
    observer = _Observer(problem, g, rule, max(nu, floor), prepare)
    observer.nu = nu  # the floor is for the shaking and the start of the search alone
    scale = 1.0 if is_quadratic(problem.regularizer) or counts else observer.scale
    low, high = _FLOOR * scale, _CEILING * scale
    find = _root if rule == "discrepancy" else _minimise
    lam, remark, converged = find(observer, _start(problem, g, max(nu, floor)), low, high)
    looks = sorted(observer.seen.values(), key=lambda look: look.lam)
    if converged and _grows(looks, lam):
        converged, words = (
            False,
            "the scene there is ruled by amplified error: the model of the blur is wrong",
        )
        remark = f"{remark}; {words}" if remark else words
    lam = min(max(lam * factor, low), high)
    used = None if source == "not used" else nu if counts else math.sqrt(nu)
    reason = f"λ = {lam:.3g} {RULES[rule].summary}"
    if used is not None:
        reason += f" ({_level_in_words(used, counts, source)})"
    reason += f", found by solving for {len(looks)} values of λ"
    partly = g.shape != whole
    if partly:
        reason += f" in {len(g) // count} windows of {g.shape[-2]} x {g.shape[-1]} pixels"
    if remark:
        reason += f"; {remark}"
    return LambdaChoice(
        lam=lam,
        rule=rule,
        reason=reason,
        remark=remark,
        converged=converged,
        noise=used,
        noise_source=source,
        lambdas=np.array([look.lam for look in looks]),
        values=np.array([observer.value(look.lam) for look in looks]),
        degrees=np.array([look.degrees for look in looks]),
        solution=None if partly or observer.last is None else first_frames(observer.last, len(g)),
    )


def _strength(problem: Problem, nu: float, size: float, counts: bool, source: str) -> LambdaChoice:
    """λ for plug and play, whose solutions take too long to look at many: the denoiser's strength follows the noise.

    The less the picture is blurred, the more of the noise the denoiser sees as it is.
    """
    operator = problem.operator
    through = float((operator.mean_blur.psf**2).sum()) / operator.norm_bound**2
    share = min(_OF_NOISE + _OF_NOISE_SEEN * through, _OF_NOISE_MOST)
    # With less noise than this the schedule would end before the data have been followed.
    lam = share * max(nu, _LEAST_NOISE * size if counts else (_LEAST_NOISE * size) ** 2)
    used = nu if counts else math.sqrt(nu)
    words = _level_in_words(used, counts, source)
    return LambdaChoice(
        lam=lam,
        rule="discrepancy",
        reason=f"λ = {lam:.3g} lets the denoiser end at the strength of the noise ({words})",
        remark="",
        converged=True,
        noise=used,
        noise_source=source,
        lambdas=np.array([lam]),
        values=np.array([math.nan]),
        degrees=np.array([math.nan]),
    )


def _any(rule: str) -> LambdaChoice:
    """λ for a black image, which every λ restores alike."""
    lam, remark = math.sqrt(_FLOOR * _CEILING), "the curve is flat: the image is zero"
    reason = f"λ = {lam:.3g} {RULES[rule].summary}; {remark}"
    nothing = np.array([lam]), np.array([math.nan])
    return LambdaChoice(lam, rule, reason, remark, True, None, "not used", *nothing, degrees=nothing[1])


def _level_in_words(level: float, counts: bool, source: str) -> str:
    return f"{'gain' if counts else 'standard deviation'} {level:.3g}, {source}"

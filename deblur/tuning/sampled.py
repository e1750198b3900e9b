"""Choice of λ for any problem that can be solved, from the residuals of solutions for several λ.

Every rule uses the standardised residual e = (g − Hf_λ − b) √w / s, where s² is the variance of the noise
up to a factor ν that all pixels share: s² = 1 and ν = σ² for additive noise, s² = Hf_λ + b for photon
counts, with the sensor's gain as ν (1 if the image is in photons). Let N be the number of visible pixels, and
A = Σ ∂(Hf_λ)_i/∂g_i the degrees of freedom with which f_λ follows the data.

``gcv``
    minimises N ‖e‖²/(N − A)², generalised cross-validation [1]_; it does not need ν.
``sure``
    minimises ‖e‖² + 2νA − Nν, Stein's unbiased estimate of the risk ‖Hf_λ − Hf‖² [2]_.
``discrepancy``
    ‖e‖² = Nν: the residual is as large as the noise [3]_; for counts the scaled discrepancy [4]_.
``whiteness``
    minimises the autocorrelation of e beyond lag zero [5]_, [6]_.

A is measured, since no formula gives it for every term. The data are perturbed by a random sign pattern that is small
relative to the noise, and A is the part of it that the solution follows [7]_; both problems are solved together, as one
stack. With the data terms "l1" and "huber" the residual has no meaningful variance, and outliers are clipped before its
whiteness is computed. If a denoiser is the regularizer, solutions take too long for a search: λ follows the noise's
variance, whatever the rule. For the collaborative filter, λ is that of its first pilot, total variation.
``benchmarks/bench_variational.py`` measures the loss of each rule against the best λ.

The search begins at λ = κν N/R(f), which a prior exp(−λR/ν) would assign to so large a regularizer [8]_. It walks in
growing steps until the rule's minimum is bracketed, and ends with the parabola through the last three points.
Each solution is the start of the next.

If the picture is large and its scene continues beyond the frame, windows represent it: squares spread over it are the
frames of one problem with one λ.

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
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..device import Array, Device, get_xp, random_signs
from ..methods import METHODS
from ..normalization import Scale
from ..norms import combined, largest, norms_of, squares, total, totals
from ..operators.matrix import by
from ..operators.torus import Torus
from ..problem import FLOAT64, Factor, Problem, Solution, Stop
from ..solvers.admm import first_frames
from ..solvers.noise import noise_variance
from ..solvers.start import all_weights, filled, prior_scene
from ..solvers.windows import cut, side_for
from ..terms import is_quadratic, regularizer_value
from .choice import AMPLIFIED, RULES, LambdaChoice, Search, explained, vertex
from .sums import GROWTH

_KAPPA = 0.2  # λ R/(ν N) at the start of the search: a typical value
_STEP = math.log(2.0)
_FLOOR, _CEILING = 1e-7, 1e2  # range of λ; if R alone is a norm, over the standard deviation of the image
_MOST = 14  # largest number of λ values
# Relative residual of the solutions in a search: its minimum, its maximum, and its ratio to that of the noise. The
# minimum of "gcv" and "sure" is insensitive to it; the other rules need errors that are small relative to the noise.
_RTOL, _RTOL_EXACT = (7e-3, 5e-2, 1.7), (5e-4, 1e-2, 0.2)
# Ratio of the best λ for the scene to that for the blurred scene, which "gcv" and "sure" estimate: if R is a norm; and
# for the collaborative filter, whose pilot may be smoother than the best picture.
_SCENE, _SCENE_OF_PILOT = 0.65, 0.8
#: Least deviation of the noise, over the largest value, by which the data are perturbed. With less noise, λ is too
#: large by about the same ratio; _QUIET is the least factor that corrects it.
PERTURBED, _QUIET = 5e-4, 0.0625
# λ of plug and play over the variance of the noise, for a blur that lets nothing through; the least noise that is
# assumed, over the image's size.
_OF_NOISE, _LEAST_NOISE = 0.5, 2e-3
# Growth of ‖f_λ‖ over a decade of λ, relative to its least growth at larger λ, above which the model is wrong. With a
# correct model it is at most 1.013 (72 photographs, "tv" and "gradient"), with a wrong boundary mostly above 1.05.
_GROWTH = 1.05

Prepare = Callable[[Problem], Factor]


class _Observer:
    """Solves for one λ after another, and evaluates the rule's function of the residuals."""

    def __init__(self, problem: Problem, g: Array, rule: str, nu: float, prepare: Prepare) -> None:
        xp, weights = problem.xp, problem.fidelity.weights
        self.problem, self.prepare = replace(problem, stop=Stop(rtol=problem.stop.rtol)), prepare
        self.rule, self.nu = rule, nu
        self.frames, self.counts = len(g), problem.fidelity.name == "poisson"
        self.w = xp.broadcast_to(all_weights(problem), g.shape)
        self.pixels = float(g.size if weights is None else total((self.w > 0).astype(g.dtype)))
        self.needs_degrees = rule in ("gcv", "sure")
        self.g = self.stack = g
        size = largest(g)
        self.scale = math.sqrt(max(float(squares(g)) / g.size - (float(total(g)) / g.size) ** 2, 0.0))
        if not self.scale > 1e-6 * size:  # a flat image, measured as the solver does
            self.scale = size or float(np.finfo(g.dtype).tiny)
        if self.needs_degrees:
            # Small relative to the noise, but far above the solver's tolerance.
            signs = random_signs(g.shape, g.dtype, xp)
            if problem.noise is not None:
                signs = problem.noise.coloured(signs, problem.axes)
            size, least = math.sqrt(nu), 1e-3 * self.scale
            if self.counts:
                size = xp.maximum(size * xp.sqrt(xp.maximum(g, float(g.mean()) * 0.05)), least)
                perturbed = xp.maximum(g + (signs * size).astype(g.dtype, copy=False), 0)
                self.probe = perturbed - g
            else:
                self.probe = combined(signs, a=max(size, least))
                perturbed = combined(g, self.probe)
            self.stack = xp.concatenate([g, perturbed])
            self.shown = self.probe if weights is None else xp.where(self.w > 0, self.probe, 0)
            if weights is not None and weights.ndim == g.ndim and len(weights) > 1:
                fidelity = replace(problem.fidelity, weights=xp.concatenate([weights, weights]))
                self.problem = replace(self.problem, fidelity=fidelity)
        self.seen: dict[float, tuple[float, float, float, float]] = {}
        self.last: Solution | None = None
        self._below, self._level, self._left = 0.0, nu, math.inf
        self._right = norms_of(self.problem.right(self.stack)[: len(g)])[0] if problem.quadratic else 0.0

    def look(self, lam: float) -> tuple[float, float, float, float]:
        """Return the rule's function, A/N, ‖f_λ‖ and ‖e‖ of the solution for λ, which starts from the last one."""
        # Steps forth and back differ by rounding.
        lam = next((seen for seen in self.seen if abs(seen - lam) < 1e-9 * lam), lam)
        if lam in self.seen:
            return self.seen[lam]
        problem, k, xp = replace(self.problem, lam=lam), self.frames, self.problem.xp
        # A solution for a larger λ is a good start. One for a smaller λ already meets a loose tolerance for the larger
        # λ, unless the tolerance depends on that solution.
        start = first_frames(self.last, len(self.stack)) if self.last and lam < self._below else None
        self.last = None  # free its arrays
        mean = float(abs(self.g).mean()) if self.counts else 1.0
        stop, stack = problem.stop, self.stack
        if not problem.quadratic:
            # A volume's blur lets less through, and a smooth regularizer's curve is flatter still.
            flat = problem.axes > 2 and is_quadratic(problem.regularizer)
            least, most, of_noise = _RTOL if self.needs_degrees and not flat else _RTOL_EXACT
            stop = Stop(rtol=min(max(of_noise * math.sqrt(self._level * mean) / self.scale, least), most))
        elif not stop.rtol:
            # Conjugate gradients that stop early regularise, too. A residual as large as λLᵀLf = HᵀWe does not
            # distinguish λ from the last one: for a wide smooth blur, one scene then serves all small λ.
            share, single = lam / (lam + problem.operator.norm_bound**2), 30 * float(np.finfo(np.float32).eps)
            rtol = min(max(min(1e-4, share / 100), single), 0.5 * self._left * lam)
            # After 100 iterations in float64, only parts still move that hardly change the rule's function.
            stop = Stop(rtol=rtol, max_iterations=100 if rtol < single else None)
            if rtol < single:
                problem, stack = problem.computed_in(FLOAT64), stack.astype(FLOAT64)
        solution = self.prepare(replace(problem, stop=stop)).solve(stack, start)
        solution = replace(solution, scene=solution.scene.astype(self.g.dtype, copy=False))
        self.last, self._below = solution, math.inf if problem.quadratic and not self.problem.stop.rtol else lam
        seen = problem.operator.forward(solution.scene)
        if problem.fidelity.background:
            seen = seen + problem.fidelity.background
        size = norms_of(solution.scene[:k])[0]
        precision = 1 / xp.maximum(seen[:k], 1e-3 * mean) if self.counts else None
        e = combined(self.g, seen[:k], b=-1)
        if self.counts or problem.fidelity.weights is not None:
            e *= xp.sqrt(self.w if precision is None else self.w * precision)
        self._level = float(squares(e)) / self.pixels
        if self._right:
            self._left = norms_of(problem.operator.adjoint(e * xp.sqrt(self.w)))[0] / (self._right * lam)
        degrees = math.nan
        if self.needs_degrees:
            # Σ b (Hf(g + b) − Hf(g)), divided by b's size pixel by pixel
            shown = self.shown if precision is None else self.shown * precision
            power = float(total(combined(self.shown, by=shown)))
            degrees = float(total(combined(combined(seen[k:], seen[:k], b=-1), by=shown))) / power
        self.seen[lam] = self._value(e, degrees), degrees, size, math.sqrt(self._level * self.pixels)
        return self.seen[lam]

    def _value(self, e: Array, degrees: float) -> float:
        """Return the function of a residual that the rule minimises or, for "discrepancy", compares with 0."""
        if self.rule == "gcv":
            return self._level / max(1 - degrees, 1e-6) ** 2
        if self.rule == "sure":
            return self._level + self.nu * (2 * degrees - 1)
        if self.rule == "discrepancy":
            return math.log(max(self._level, 1e-300) / max(self.nu, 1e-300))
        xp, problem = self.problem.xp, self.problem
        if problem.fidelity.name in ("l1", "huber"):
            limit = 3 * 1.4826 * float(xp.median(abs(e[xp.broadcast_to(self.w > 0, e.shape)])))
            e = xp.clip(e, -limit, limit)
        return whiteness(e, self.w > 0, problem.axes)

    def value_at(self, t: float) -> float:
        """Return the rule's function at λ = exp(t)."""
        return self.look(math.exp(t))[0]


# ---------------------------------------------------------------------------------------------
# The search
# ---------------------------------------------------------------------------------------------


def _start(problem: Problem, g: Array, nu: float) -> float:
    """Return λ = κν N/R(f), with the smoothed image for f."""
    fidelity, operator = problem.fidelity, problem.operator
    smooth = prior_scene(operator, filled(g, fidelity.weights) - fidelity.background, 1.5)
    regularizer = regularizer_value(problem.regularizer, smooth, operator.boundary.wraps)
    level = math.sqrt(nu) if fidelity.name == "l1" else nu
    least = nu if is_quadratic(problem.regularizer) else math.sqrt(nu)
    return _KAPPA * level * g.size / max(regularizer, 1e-6 * g.size * least)


def _minimise(observer: _Observer, t: float, low: float, high: float) -> Search:
    """Return the minimiser between `low` and `high`, from `t` on, and a remark on the curve; all three are log λ."""
    value = observer.value_at
    step = -_STEP if t - _STEP >= low else _STEP
    if value(t + step) > value(t):
        t, step = t + step, -step  # walk downhill, beginning uphill of the start
    a, b = t, t + step
    while True:
        if len(observer.seen) >= _MOST:
            return math.exp(b), f"its curve was still falling after {len(observer.seen)} values of λ", False
        if b <= low or b >= high:
            which, meaning, converged = "largest", "the image looks like noise alone", False
            if b <= low:  # correct for data without noise, whose scene no longer changes there
                which, meaning = "smallest", "the data need no regularisation"
                size, before = (observer.look(math.exp(t))[2] for t in (b, a))
                converged = size <= GROWTH * before
            words = f"its curve is monotone up to the {which} λ: {meaning}, or the model of the blur is wrong"
            return math.exp(b), words, converged
        c = min(max(b + step, low), high)
        if value(c) > value(b):
            break
        a, b, step = b, c, 1.6 * step
    a, c = min(a, c), max(a, c)
    while c - a > 2.5 * _STEP and len(observer.seen) < _MOST:
        # The walk took long steps: halve the longer interval.
        middle = 0.5 * (a + b) if b - a > c - b else 0.5 * (b + c)
        if value(middle) < value(b):
            a, b, c = (a, middle, b) if middle < b else (b, middle, c)
        else:
            a, c = (middle, c) if middle < b else (a, middle)
    return math.exp(vertex(*((t, value(t)) for t in (a, b, c)))), "", True


def _root(observer: _Observer, t: float, low: float, high: float) -> Search:
    """Return the root of the rule's function, which grows with λ; the arguments are those of `_minimise`."""
    value = observer.value_at
    step = -_STEP if value(t) > 0 else _STEP
    while len(observer.seen) < _MOST:
        other = min(max(t + step, low), high)
        if (value(other) > 0) != (value(t) > 0):
            break
        if other in (low, high):
            side = "above" if value(other) > 0 else "below"
            words = f"the residual stays {side} the noise level in the whole range of λ: that level is wrong, or the "
            return math.exp(other), words + "model of the blur is", False
        t, step = other, 1.6 * step
    for turn in range(4):
        middle = t + (other - t) * value(t) / (value(t) - value(other))  # regula falsi, since the curve is smooth
        if turn == 3 or abs(value(middle)) < 0.01:
            break
        t, other = (middle, other) if (value(middle) > 0) == (value(t) > 0) else (t, middle)
    return math.exp(middle), "", True


def _grows(lambdas: list[float], sizes: Sequence[float], lam: float, counts: bool) -> bool:
    """Return whether error dominates the scene at λ; see `deblur.tuning.sums.FilterSums.amplified`."""
    above = [(x, size) for x, size in zip(lambdas, sizes, strict=True) if x > 0.9 * lam]
    # Over a step of a few per cent, the solutions' tolerance would look like growth.
    above = above[:1] + [(x, size) for x, size in above[1:] if x > 1.1 * above[0][0]]
    ratios = [(math.log10(y / x), size / (other or 1.0)) for (x, size), (y, other) in pairwise(above)]
    growth = [math.log(max(ratio, 1e-300)) / decades for decades, ratio in ratios]
    # Points and cells of few photons on a dark background grow by up to 1.7 if the blur is right.
    return bool(growth) and growth[0] > math.log(1.8 if counts else _GROWTH) + min(growth[1:], default=0.0)


def search(problem: Problem, g: Array, rule: str, noise: float | None, prepare: Prepare) -> LambdaChoice:
    """Return a rule's choice of λ for the frames `g`, (k, c, M, N), from solutions by `prepare`."""
    counts = problem.fidelity.name == "poisson"
    if noise is not None:
        nu, source = (noise if counts else noise**2), "given"
    else:
        known, source = problem.noise if problem.asked else None, "estimated" if RULES[rule].noise else "not used"
        # The quietest parts may be dark, with hardly any noise.
        nu = noise_variance(problem, g) if known is None else known.level**2 - known.left**2
    size = largest(g)
    if problem.regularizer == "denoiser":
        # A denoiser takes a residual that is concentrated in few places for the picture.
        nu += 0.0 if problem.noise is None else problem.noise.left**2
        return _strength(problem, nu, size or 1.0, counts, "estimated" if noise is None else "given")
    if not size:
        lam, remark = math.sqrt(_FLOOR * _CEILING), "the curve is flat: the image is zero"
        return _single(LambdaChoice(lam, rule, explained(lam, rule, remark), remark))
    predictive = rule in ("gcv", "sure") and not is_quadratic(problem.regularizer)
    factor = _SCENE if predictive else 1.0
    if problem.regularizer == "patches":
        problem, prepare = replace(problem, regularizer="tv"), METHODS["tv"].prepare
        factor = _SCENE_OF_PILOT if predictive else 1.0
    whole, count = g.shape, len(g)
    # A wrong boundary shows at the edges only, which no window contains.
    problem, g, _ = cut(problem, g, problem.fidelity.weights, side=side_for(problem.operator.mean_blur.psf))
    floor = 1e-8 * size if counts else (PERTURBED * size) ** 2
    find = _root if rule == "discrepancy" else _minimise
    while True:
        observer = _Observer(problem, g, rule, max(nu, floor), prepare)
        observer.nu = nu  # the floor serves the perturbation and the start of the search only
        # λ's unit is a power of the image's: 1, 0 or −1. Counts are in photons.
        power = 0.0 if counts else math.log2(Scale(image=1).lam(problem, 1.0))
        scale = (observer.scale if power > 0 else size) ** power
        low, high = _FLOOR * scale, _CEILING * scale
        ends = math.log(low), math.log(high)
        start = math.log(_start(problem, g, max(nu, floor)))
        lam, remark, converged = find(observer, min(max(start, ends[0]), ends[1]), *ends)
        lambdas = sorted(observer.seen)
        values, degrees, sizes, residuals = zip(*map(observer.seen.__getitem__, lambdas), strict=True)
        shown, degree = min(zip(values, degrees, strict=True))
        shown *= max(1 - degree, 0.0)  # of few pixels more than all may pass for degrees of freedom
        if rule != "gcv" or counts or not predictive or nu <= max(floor, 5 * shown):
            break
        nu = shown  # the estimate included detail: the residual has less
    if predictive and not counts:
        factor *= min(max(math.sqrt(nu / floor), _QUIET), 1.0)
    if converged and _grows(lambdas, sizes, lam, counts and problem.operator.boundary.open):
        converged, remark = False, "; ".join(filter(None, [remark, AMPLIFIED]))
    lam = min(max(lam * factor, low), high)
    used = None if source == "not used" else nu if counts else math.sqrt(nu)
    how, partly = f"found by solving for {len(lambdas)} values of λ", g.shape != whole
    if partly:
        how += f" in {len(g) // count} windows of {by(g.shape[2:])} pixels"
    return LambdaChoice(
        lam=lam,
        rule=rule,
        reason=explained(lam, rule, how, _level_in_words(used, counts, source), remark),
        remark=remark,
        converged=converged,
        noise=used,
        noise_source=source,
        lambdas=np.array(lambdas),
        values=np.array(values),
        residual_norms=np.array(residuals),
        solution_norms=np.array(sizes),
        degrees=np.array(degrees),
        solution=None if partly or observer.last is None else first_frames(observer.last, len(g)),
    )


def _strength(problem: Problem, nu: float, size: float, counts: bool, source: str) -> LambdaChoice:
    """Return λ for plug and play, whose solutions take too long for a search, from the level of the noise.

    The less the picture is blurred, the more noise reaches the denoiser unchanged.
    """
    operator = problem.operator
    through = float((operator.mean_blur.psf**2).sum()) / operator.norm_bound**2
    # With less noise than this, the schedule would end before the solution follows the data.
    lam = (_OF_NOISE + through) * max(nu, _LEAST_NOISE * size if counts else (_LEAST_NOISE * size) ** 2)
    used = nu if counts else math.sqrt(nu)
    words = _level_in_words(used, counts, source)
    reason = f"λ = {lam:.3g} sets the denoiser's last strength to the noise ({words})"
    return _single(LambdaChoice(lam, "discrepancy", reason, noise=used, noise_source=source))


def _single(choice: LambdaChoice) -> LambdaChoice:
    """Return a choice without a search, with arrays for its only λ."""
    unknown = np.array([math.nan])
    return replace(choice, lambdas=np.array([choice.lam]), values=unknown, degrees=unknown)


def _level_in_words(level: float | None, counts: bool, source: str) -> str:
    return "" if level is None else f"{'gain' if counts else 'standard deviation'} {level:.3g}, {source}"


def whiteness(e: Array, visible: Array | None = None, axes: int = 2) -> float:
    """Return the power of the normalised autocorrelation of `e` off lag zero, times pixels; about 1 for white noise.

    Parameters
    ----------
    e : (..., M, N) array
        Residuals; the values of all frames are averaged.
    visible : array that broadcasts to `e`, optional
        1 for visible pixels, 0 for hidden ones.
    axes : int
        Number of axes of space, the last ones.

    Returns
    -------
    float

    Notes
    -----
    Lags reach up to half the image in each direction. Wrapped lags and hidden pixels would mislead a comparison of
    solutions. So the transform has twice the size, and each lag is divided by its number of pairs.
    """
    xp = get_xp(e)
    space = e.shape[-axes:]
    torus, one = Torus([2 * n for n in space], Device.of(e)), (1,) * len(space)
    w = xp.ones(e.shape, e.dtype) if visible is None else xp.broadcast_to(visible, e.shape).astype(e.dtype)
    e, w = e.reshape(-1, *space), w.reshape(-1, *space)
    count = totals(w).reshape(-1, *one)
    e = w * (e - totals(w * e).reshape(-1, *one) / count)

    def correlated(x: Array) -> Array:
        found = torus.synthesise(abs(torus.analyse(x)) ** 2)
        for axis, n in enumerate(space, 1):
            lags = xp.concatenate([xp.arange(n // 2 + 1), xp.arange(2 * n - n // 2, 2 * n)])
            found = found.take(lags, axis)
        return found

    pairs = xp.maximum(correlated(w), 1)
    variance = totals(e**2).reshape(-1, *one) / count
    # In white noise a lag with p pairs has variance 1/p; weighting by p makes all lags equal.
    power = ((correlated(e) / xp.where(variance > 0, variance, 1)) ** 2 / pairs).reshape(len(e), -1)
    return float((power[:, 1:].sum(axis=-1, dtype=np.float64) / (power.shape[1] - 1)).mean())

"""Choosing λ for a variational method: the image judges by what each λ leaves of it.

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
the noise, and A is how far the solution follows [7]_; both are solved together, as one stack. ``auto`` is
``sure`` where the noise is given, ``whiteness`` for the data terms "l1" and "huber", whose residual has no
variance to speak of (outliers are clipped before it is judged), and ``gcv`` otherwise. For "pnp" λ follows the
noise's variance, whatever the rule: solutions take too long to look at several.
``benchmarks/bench_variational.py`` measures what each loses against the best λ.

The search begins at λ = κν N/R(f), where a prior exp(−λR/ν) of so large a penalty would put it [8]_, walks in
growing steps to where the rule's minimum is bracketed, and ends with the parabola through the last three.
Each solution starts the next.

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
from dataclasses import dataclass, replace

import numpy as np

from ..backend import Array, get_fft, get_xp
from ..regularization import estimate_noise, prior_scene
from . import METHODS, RULES, collaborative
from .admm import first_frames
from .problem import Solution, VariationalProblem, filled
from .quadratic import linear
from .terms import PENALTIES, penalty_value

_KAPPA = (
    0.5  # λ R/(ν N) at the start of the search, a little above what is usual: solutions start best from above
)
_STEP = math.log(2.0)
_FLOOR, _CEILING = 1e-7, 1e2  # the range of λ, over the standard deviation of the image where R is a norm
_MOST = 14  # values of λ looked at
# Relative residual of the solutions on the way: where a rule's minimum lies a loose one tells as well as an exact one,
# if only what is left unsolved is small beside the noise.
_RTOL, _RTOL_LEAST, _RTOL_OF_NOISE = 1e-2, 5e-4, 0.2
# The best λ for the scene over that for the blurred scene, which "gcv" and "sure" look for, where R is a norm; and
# for the collaborative filter, whose pilot may be smoother than the best picture.
_SCENE, _SCENE_OF_PILOT = 0.65, 0.8
# λ of plug and play over the variance of the noise, and the least noise over the image's size that is reckoned with.
_OF_NOISE, _LEAST_NOISE = 0.5, 2e-3
_CLIP = 3.0  # median absolute residuals of a standard deviation beyond which an outlier is cut off


@dataclass(frozen=True)
class TunedChoice:
    """A chosen λ with what led to it.

    Attributes
    ----------
    lam : float
        The chosen λ.
    rule : str
        The rule that chose it.
    reason : str
        Why, in one sentence.
    remark : str
        What is wrong with the curve; empty if nothing is.
    noise : float or None
        √ν that the rule used (for "poisson" ν itself, the gain); None if it used none.
    noise_source : str
        "given", "estimated" or "not used".
    lambdas, values : (m,) arrays
        The λ looked at, increasing, and the rule's function there.
    degrees : (m,) array
        A/N at them; NaN for a rule that does not need it.
    solution : Solution or None
        The last on the way: where to begin.
    """

    lam: float
    rule: str
    reason: str
    remark: str
    noise: float | None
    noise_source: str
    lambdas: np.ndarray
    values: np.ndarray
    degrees: np.ndarray
    solution: Solution | None = None

    def __repr__(self) -> str:
        return f"TunedChoice(lam={self.lam:.4g}, rule={self.rule!r}, {self.reason})"


# ---------------------------------------------------------------------------------------------
# What the rules look at
# ---------------------------------------------------------------------------------------------


def noise_variance(problem: VariationalProblem, g: Array) -> float:
    """ν, estimated from the image: the variance of additive noise, or the gain of photon counts.

    Pixels of weight 0 are filled from their neighbours first. For counts it is the variance of 2√(g + b), which
    does not depend on the brightness (Bartlett 1936).

    Parameters
    ----------
    problem : VariationalProblem
    g : (k, c, M, N) array
    """
    xp = problem.xp
    seen = filled(g, problem.weights)
    if problem.data == "poisson":
        seen = 2 * xp.sqrt(xp.maximum(seen, 0))
    return estimate_noise(seen) ** 2


def whiteness(e: Array, visible: Array | None = None) -> float:
    """The power of the normalised autocorrelation of `e` away from lag zero, times the pixels; about 1 for white noise.

    Parameters
    ----------
    e : (..., M, N) array
        Residuals; frames are judged one by one and averaged.
    visible : array that broadcasts to `e`, optional
        1 where `e` counts, 0 elsewhere.

    Returns
    -------
    float

    Notes
    -----
    Lags up to half the image each way. Where pixels are hidden each lag is divided by the pairs it has.
    """
    xp = get_xp(e)
    fft = get_fft(xp)
    m, n = e.shape[-2:]
    w = xp.ones(e.shape, e.dtype) if visible is None else xp.broadcast_to(visible, e.shape).astype(e.dtype)
    e, w = e.reshape(-1, m, n), w.reshape(-1, m, n)
    count = w.sum(axis=(-2, -1), keepdims=True, dtype=np.float64)
    e = w * (e - (w * e).sum(axis=(-2, -1), keepdims=True, dtype=np.float64) / count)
    shape = (2 * m, 2 * n)

    def correlated(x: Array) -> Array:
        full = fft.irfft2(abs(fft.rfft2(x, s=shape)) ** 2, s=shape)
        rows = xp.concatenate([full[..., : m // 2 + 1, :], full[..., -(m // 2) :, :]], axis=-2)
        return xp.concatenate([rows[..., : n // 2 + 1], rows[..., -(n // 2) :]], axis=-1)

    pairs = xp.maximum(correlated(w), 1)
    variance = (e**2).sum(axis=(-2, -1), keepdims=True, dtype=np.float64) / count
    # A lag of p pairs has variance 1/p in white noise; weighting by p gives every lag the same.
    power = (correlated(e) / xp.where(variance > 0, variance, 1)) ** 2 / pairs
    power = power.reshape(len(e), -1)
    return float((power[:, 1:].sum(axis=-1, dtype=np.float64) / (power.shape[1] - 1)).mean())


@dataclass(frozen=True)
class _Look:
    """What one λ left of the image."""

    lam: float
    mean_square: float  # ‖e‖²/N
    degrees: float  # A/N
    whiteness: float


class _Observer:
    """Solves for one λ after the other and looks at the residuals."""

    def __init__(self, problem: VariationalProblem, g: Array, rule: str, nu: float) -> None:
        xp = problem.xp
        self.problem = replace(problem, callback=None, max_iterations=None)
        self.rule, self.nu = rule, nu
        self.frames = len(g)
        w = xp.ones((1, 1, 1, 1), g.dtype) if problem.weights is None else xp.asarray(problem.weights)
        self.w = xp.broadcast_to(w, g.shape)
        self.pixels = float((self.w > 0).sum())
        self.needs_degrees = rule in ("gcv", "sure")
        self.g = self.stack = g
        self.scale = max(float(xp.std(g)), 1e-6 * float(abs(g).max()), float(np.finfo(g.dtype).tiny))
        if self.needs_degrees:
            # Small beside the noise, but far above what the solver leaves unsolved.
            signs = xp.asarray((np.random.default_rng(0).integers(0, 2, g.shape) * 2 - 1).astype(g.dtype))
            size = math.sqrt(nu)
            if problem.data == "poisson":
                size = size * xp.sqrt(xp.maximum(g, float(g.mean()) * 0.05))
            self.probe = signs * xp.maximum(size, 1e-3 * self.scale)
            shaken = g + self.probe
            if problem.data == "poisson":
                shaken = xp.maximum(shaken, 0)
                self.probe = shaken - g
            self.stack = xp.concatenate([g, shaken])
            if problem.weights is not None and problem.weights.ndim == 4 and len(problem.weights) > 1:
                weights = xp.concatenate([problem.weights, problem.weights])
                self.problem = replace(self.problem, weights=weights)
        self.seen: dict[float, _Look] = {}
        self.last: Solution | None = None
        self._last_lam, self._level = 0.0, nu

    def look(self, lam: float) -> _Look:
        """Solve for λ, from the solution before."""
        if lam in self.seen:
            return self.seen[lam]
        problem, k, xp = self.problem, self.frames, self.problem.xp
        # A solution from above is a start; one from below solves the larger λ's problem to a loose tolerance as it is.
        start = self.last if lam < self._last_lam else None
        if not linear(problem):  # conjugate gradients stopped early are a regularisation of their own
            noise = math.sqrt(self._level * (float(abs(self.g).mean()) if problem.data == "poisson" else 1.0))
            rtol = min(max(_RTOL_OF_NOISE * noise / self.scale, _RTOL_LEAST), _RTOL)
            problem = replace(problem, rtol=rtol)
        solution = METHODS[problem.method].solve(replace(problem, lam=lam), self.stack, start)
        self.last, self._last_lam = solution, lam
        seen = problem.blur.forward(solution.scene) + problem.background
        difference = self.g - seen[:k]
        variance = (
            xp.maximum(seen[:k], 1e-3 * float(abs(self.g).mean())) if problem.data == "poisson" else 1.0
        )
        e = difference * xp.sqrt(self.w / variance)
        mean_square = self._level = float(xp.sum(e * e, dtype=np.float64)) / self.pixels
        degrees = white = math.nan
        if self.needs_degrees:
            # Σ b (Hf(g + b) − Hf(g)) with b's own size divided out pixel by pixel
            moved = (self.w > 0) * (seen[k:] - seen[:k]) * self.probe
            power = xp.where(self.w > 0, self.probe**2, 0)
            degrees = float(
                xp.sum(moved / variance, dtype=np.float64) / xp.sum(power / variance, dtype=np.float64)
            )
        else:
            if problem.data in ("l1", "huber"):
                limit = _CLIP * 1.4826 * float(xp.median(abs(e[xp.broadcast_to(self.w > 0, e.shape)])))
                e = xp.clip(e, -limit, limit)
            white = whiteness(e, self.w > 0)
        self.seen[lam] = _Look(lam, mean_square, degrees, white)
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


def _start(problem: VariationalProblem, g: Array, nu: float) -> float:
    """λ = κν N/R(f) for the smoothed image in the place of f."""
    smooth = prior_scene(problem.blur, filled(g, problem.weights) - problem.background, 1.5)
    penalty = penalty_value(problem.method if problem.method in PENALTIES else "tv", smooth, problem.wrap)
    level = math.sqrt(nu) if problem.data == "l1" else nu
    return _KAPPA * level * g.size / max(penalty, 1e-6 * g.size * math.sqrt(nu))


def _minimise(observer: _Observer, start: float, low: float, high: float) -> tuple[float, str]:
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
            which = "smallest" if b <= ends[0] else "largest"
            meaning = (
                "the data ask for no regularisation" if b <= ends[0] else "the image looks like noise alone"
            )
            return math.exp(min(max(b, ends[0]), ends[1])), (
                f"its curve is monotone up to the {which} λ looked at: {meaning}, or the model of the blur is wrong"
            )
        c = min(max(b + step, ends[0]), ends[1])
        if value(c) > value(b):
            break
        a, b, step = b, c, 1.6 * step
    else:
        return math.exp(b), f"its curve was still falling after {len(observer.seen)} values of λ"
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
        return math.exp(b), ""
    return math.exp(b - 0.5 * ((b - a) * below - (b - c) * above) / (below - above)), ""


def _root(observer: _Observer, start: float, low: float, high: float) -> tuple[float, str]:
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
            return math.exp(other), (
                f"the residual stays {side} the noise level as far as λ was looked at: that level is wrong, or the "
                "model of the blur is"
            )
        t, step = other, 1.6 * step
    for _ in range(3):
        middle = t + (other - t) * value(t) / (value(t) - value(other))  # regula falsi: the curve is smooth
        if abs(value(middle)) < 0.01:
            return math.exp(middle), ""
        if (value(middle) > 0) == (value(t) > 0):
            t = middle
        else:
            other = middle
    return math.exp(t + (other - t) * value(t) / (value(t) - value(other))), ""


_WORDS = {
    "gcv": "minimises generalised cross-validation",
    "sure": "minimises Stein's unbiased risk estimate",
    "discrepancy": "makes the residual as large as the noise",
    "whiteness": "makes the residual whitest",
}


def choose_lambda(
    problem: VariationalProblem, g: Array, rule: str = "auto", *, noise: float | None = None
) -> TunedChoice:
    """λ for a variational method, chosen from the image itself.

    Parameters
    ----------
    problem : VariationalProblem
        Its `lam` is not looked at.
    g : (k, c, M, N) array
        The frames; they share one λ.
    rule : {"auto", "gcv", "sure", "discrepancy", "whiteness"}
        See `deblur.variational.tuning`.
    noise : float, optional
        Standard deviation of additive noise, or for data "poisson" the gain: variance = gain × value. Estimated
        if a rule needs it and it is not given.

    Returns
    -------
    TunedChoice

    Raises
    ------
    ValueError
        For an unknown rule, noise that is negative or not finite, or a rule that is unsound for the data term.
    ConvergenceError
        If a solution diverged on the way.
    """
    if rule not in ("auto", *RULES):
        raise ValueError(
            f"unknown rule {rule!r} for λ; give a number >= 0 or one of auto, {', '.join(RULES)}"
        )
    if noise is not None and not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be a finite number >= 0, not {noise!r}")
    robust = problem.data in ("l1", "huber")
    if rule == "auto":
        rule = "whiteness" if robust else "sure" if noise is not None else "gcv"
    elif robust and rule != "whiteness":
        raise ValueError(
            f"the rule {rule!r} judges the variance of the residual, and with data={problem.data!r} impulses rule it; "
            "use 'whiteness', or mask the impulses and keep data='gaussian'"
        )
    if noise is None:
        nu, source = (
            noise_variance(problem, g),
            "estimated" if rule in ("sure", "discrepancy") else "not used",
        )
    else:
        nu, source = (noise if problem.data == "poisson" else noise**2), "given"
    predictive = rule in ("gcv", "sure") and not _quadratic(problem)
    factor = _SCENE if predictive else 1.0
    if problem.method == "collaborative":
        problem = collaborative.pilot_problem(problem)
        factor = _SCENE_OF_PILOT if predictive else 1.0
    if problem.method == "pnp":
        return _strength(problem, g, nu, noise)
    size = float(abs(g).max()) or 1.0
    floor = (1e-4 if problem.data != "poisson" else 1e-8) * size
    observer = _Observer(problem, g, rule, max(nu, floor**2 if problem.data != "poisson" else floor))
    observer.nu = nu  # the floor is for the shaking and the start of the search alone
    start = _start(problem, g, max(nu, (1e-4 * size) ** 2 if problem.data != "poisson" else floor))
    scale = 1.0 if _quadratic(problem) or problem.data == "poisson" else observer.scale
    low, high = _FLOOR * scale, _CEILING * scale
    search = _root if rule == "discrepancy" else _minimise
    lam, remark = search(observer, start, low, high)
    lam = min(max(lam * factor, low), high)
    looks = sorted(observer.seen.values(), key=lambda look: look.lam)
    used = None if source == "not used" else nu if problem.data == "poisson" else math.sqrt(nu)
    reason = f"λ = {lam:.3g} {_WORDS[rule]}"
    if used is not None:
        what = "gain" if problem.data == "poisson" else "standard deviation"
        reason += f" ({what} {used:.3g}, {source})"
    reason += f", found by solving for {len(looks)} values of λ"
    if remark:
        reason += f"; {remark}"
    return TunedChoice(
        lam=lam,
        rule=rule,
        reason=reason,
        remark=remark,
        noise=used,
        noise_source=source,
        lambdas=np.array([look.lam for look in looks]),
        values=np.array([observer.value(look.lam) for look in looks]),
        degrees=np.array([look.degrees for look in looks]),
        solution=None if observer.last is None else first_frames(observer.last, len(g)),
    )


def _strength(problem: VariationalProblem, g: Array, nu: float, noise: float | None) -> TunedChoice:
    """λ for plug and play, whose solutions take too long to look at many: the denoiser's strength follows the noise."""
    size = float(abs(g).max()) or 1.0
    # With less noise than this the schedule would end before the data have been followed.
    lam = _OF_NOISE * max(
        nu, _LEAST_NOISE * size if problem.data == "poisson" else (_LEAST_NOISE * size) ** 2
    )
    used, source = (
        nu if problem.data == "poisson" else math.sqrt(nu),
        "estimated" if noise is None else "given",
    )
    what = "gain" if problem.data == "poisson" else "standard deviation"
    return TunedChoice(
        lam=lam,
        rule="discrepancy",
        reason=(
            f"λ = {lam:.3g} lets the denoiser end at the strength of the noise ({what} {used:.3g}, {source})"
        ),
        remark="",
        noise=used,
        noise_source=source,
        lambdas=np.array([lam]),
        values=np.array([math.nan]),
        degrees=np.array([math.nan]),
    )


def _quadratic(problem: VariationalProblem) -> bool:
    return all(p.norm == "square" for p in PENALTIES.get(problem.method, ())) and problem.method in PENALTIES

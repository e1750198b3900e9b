"""Method ``richardson-lucy``: multiplicative steps towards the most likely scene for counted photons.

It minimises the Kullback-Leibler divergence with a total variation term of weight λ (0 by default),

    Σ w (Hf + b − g + g log(g/(Hf + b)))  +  λ Σ |∇f| ,      f ≥ 0 ,

by the step of Richardson and Lucy, in which sums and products are pixel by pixel:

    f ← f · [Hᵀ(w g/(Hf + b)) + λ U] / [Hᵀw + λ V] .

*Boundary.* H is `Blur` itself, its transpose the exact one. Hᵀw, what a scene pixel sends to the pixels
that were measured, is the correct weight at an edge and behind a masked pixel [3]_: with boundary "unknown"
it falls to zero beyond the frame. Scene pixels that send next to nothing keep their first value.

*Total variation.* Dey et al. [4]_ divide by 1 − λ div(∇f/|∇f|), which oscillates as λ grows and may cross
zero. Here the same derivative is taken apart into its two positive halves, −div(∇f/|∇f|) = V − U with
V = f_i Σ_j 1/|∇f|_ij and U = Σ_j f_j/|∇f|_ij over the neighbours j: numerator and denominator stay positive
for every λ, and the points at which the step stands still are the same.

*Acceleration.* The step is taken from a point extrapolated along the last move, by the vector extrapolation
of Biggs and Andrews [5]_, but never to zero, where a pixel would stay for ever; after the objective has risen
the extrapolation starts anew.

*Stopping.* At λ = 0 the iterations themselves regularise: early ones are smooth, late ones fit the noise.

``"whiteness"``    (default at λ = 0) takes the iterate whose residual, divided by the square root of its
                   expected variance Hf + b, is whitest: least Σ|R|⁴/(Σ|R|²)², R its Fourier transform. This
                   is 2 for white noise, larger as long as picture is left in the residual, and larger again
                   once coarse noise has been fitted. It needs no noise level and no photon count [6]_.
                   A scene of stars on black bears many more iterations than it takes: there f ≥ 0 is prior enough.
``"discrepancy"``  stops when 2/N times the divergence, in photons, falls to one [7]_. The photons that a
                   value of 1 stands for are given, or estimated from √g, whose noise does not depend on g.
``"change"``       (default for λ > 0, where there is a minimiser to go to) stops when an iteration changes
                   the scene by less than a tolerance.

An iteration costs two products with H, that is four transforms, and one more for the whiteness.

References
----------
.. [1] W. H. Richardson, J. Opt. Soc. Am. 62 (1972) 55-59. .. [2] L. B. Lucy, Astron. J. 79 (1974) 745-754.
.. [3] M. Bertero, P. Boccacci, Astron. Astrophys. 437 (2005) 369-374: the correct boundary weights.
.. [4] N. Dey et al., Microsc. Res. Tech. 69 (2006) 260-266.
.. [5] D. S. C. Biggs, M. Andrews, Appl. Opt. 36 (1997) 1766-1775.
.. [6] M. S. C. Almeida, M. A. T. Figueiredo, IEEE Trans. Image Process. 22 (2013) 2751-2763: whiteness as a
   criterion; F. Bevilacqua et al., J. Sci. Comput. 96 (2023), for photon noise.
.. [7] M. Bertero et al., Inverse Problems 26 (2010) 105004.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from ..backend import Array, check_finite, float_dtype, get_fft, get_xp
from ..blur import Blur
from ..regularization import estimate_noise
from ..solvers.spectrum import all_cores
from .problem import History, Solution, VariationalProblem

STOPS = ("whiteness", "discrepancy", "change")

_MAX_ITERATIONS = {"whiteness": 300, "discrepancy": 300, "change": 1000}
_TOLERANCE = 2e-4  # of "change"
_EDGE = 1e-2  # |∇f| is √(|∇f|² + ε²) with this fraction of the mean for ε: below it edges are not told apart
_KEPT = 0.1  # the extrapolation takes no pixel below this fraction of its value
_DARK = 1e-2  # the residual is not divided by less than the root of this fraction of the mean


@dataclass(frozen=True)
class RichardsonLucy:
    """The outcome for one image, or for channels that share their edges.

    Attributes
    ----------
    scene : (P, Q) or (c, P, Q) array
        The restored scene, of the blur's `scene_shape`; not negative.
    iterations : int
        Iterations that led to it; a few more were computed to know it for the best.
    converged : bool
        False if "change" was still above the tolerance after all iterations, or something overflowed.
    why : str
        Why this iterate, with the figures.
    objective, change, criterion : (n,) arrays
        At each iterate computed: the objective, the relative change of the scene, and what the rule looks at
        (whiteness; divergence per pixel; change).
    """

    scene: Array
    iterations: int
    converged: bool
    why: str
    objective: np.ndarray
    change: np.ndarray
    criterion: np.ndarray


def refuses(problem: VariationalProblem) -> str | None:
    """None if the method serves the problem, else the reason in words."""
    if problem.data != "poisson":
        return f"it is made for the data term 'poisson', not {problem.data!r}; method 'tv' serves the others"
    return _refuses_blur(problem.blur)


def _refuses_blur(blur: Blur) -> str | None:
    if float(blur.psf.min()) < 0:
        return (
            f"photons are never taken away, and the PSF holds negative values ({float(blur.psf.min()):.3g}); "
            "clip them, or use method 'tv'"
        )
    if blur.boundary == "antireflect":
        return (
            "boundary 'antireflect' continues a scene by negative light, for which photon counts have no "
            "meaning; use 'unknown' or 'reflect'"
        )
    return None


def solve(problem: VariationalProblem, g: Array, start: Solution | None = None) -> Solution:
    """The scenes (k, c, P, Q) for frames (k, c, M, N); channels are one problem only where λ > 0 couples them.

    At λ = 0, and unless the problem says otherwise (``rtol``), each channel stops at its whitest residual.
    """
    k, c = g.shape[:2]
    shape = (k, c) if problem.lam > 0 else (k * c, 1)
    frames = g.reshape(*shape, *g.shape[2:])
    weights = problem.weights
    if weights is not None:
        weights = problem.xp.broadcast_to(weights, g.shape).reshape(frames.shape)
    first = None if start is None else start.scene.reshape(*shape, *start.scene.shape[2:])
    runs = [
        richardson_lucy(
            problem.blur,
            frame,
            weights=None if weights is None else weights[i],
            background=problem.background,
            tv=problem.lam,
            bounds=problem.bounds,
            stop="whiteness" if problem.lam == 0 and problem.rtol is None else "change",
            tolerance=_TOLERANCE if problem.rtol is None else problem.rtol,
            max_iterations=problem.max_iterations,
            start=None if first is None else first[i],
            callback=problem.callback,
        )
        for i, frame in enumerate(frames)
    ]
    scene = problem.xp.stack([run.scene for run in runs]).reshape(k, c, *problem.blur.scene_shape)
    longest = max(len(run.objective) for run in runs)

    def padded(values: np.ndarray) -> np.ndarray:
        return np.pad(values, (0, longest - len(values)), mode="edge") if len(values) else np.zeros(longest)

    change = np.max([padded(run.change) for run in runs], axis=0)
    slowest = max(runs, key=lambda run: run.iterations)
    return Solution(
        scene=scene,
        iterations=slowest.iterations,
        converged=all(run.converged for run in runs),
        why=slowest.why if len(runs) == 1 else f"the slowest of {len(runs)} frames: {slowest.why}",
        history=History(np.sum([padded(run.objective) for run in runs], axis=0), change, np.zeros(longest)),
    )


def richardson_lucy(
    blur: Blur,
    g: Array,
    *,
    weights: Array | None = None,
    background: float = 0.0,
    tv: float = 0.0,
    bounds: tuple[float, float] | None = None,
    stop: str | None = None,
    photons: float | None = None,
    tolerance: float = _TOLERANCE,
    max_iterations: int | None = None,
    accelerate: bool = True,
    start: Array | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> RichardsonLucy:
    """Richardson-Lucy deconvolution of one image; see the module for the mathematics.

    Parameters
    ----------
    blur : Blur
        PSF without negative values; any boundary but "antireflect".
    g : (M, N) or (c, M, N) array
        The blurred image, or channels whose edges coincide; not negative where it counts. NumPy or CuPy.
    weights : array, optional
        One weight ≥ 0 for each pixel, broadcasting to `g`; a pixel of weight 0 is not looked at.
    background : float
        b ≥ 0, added to Hf.
    tv : float
        λ ≥ 0, in the units of f times pixels; for a PSF that sums to one 0.001 to 0.05 is the useful range,
        whatever the image's scale.
    bounds : (float, float), optional
        lo and hi on f, beside f ≥ 0.
    stop : {"whiteness", "discrepancy", "change"}, optional
        Default: "whiteness" at λ = 0, else "change".
    photons : float, optional
        Photons counted at value 1, for "discrepancy"; estimated if not given.
    tolerance : float
        Relative change of the scene at which "change" stops; the other rules stop there, too.
    max_iterations : int, optional
        300 by default, 1000 for "change".
    accelerate : bool
        Vector extrapolation; False for the plain steps.
    start : array, optional
        First scene (a flat one by default).
    callback : callable, optional
        Called with (iterations so far, relative change of the scene).

    Returns
    -------
    RichardsonLucy

    Raises
    ------
    ValueError
        For negative counts or weights, weights that hide everything, λ, background or bounds out of range,
        an unknown rule, or a blur that the method cannot serve.
    """
    xp = get_xp(g)
    g = xp.asarray(g)
    g = g.astype(float_dtype(g), copy=False)
    if g.ndim not in (2, 3) or g.shape[-2:] != blur.image_shape:
        raise ValueError(
            f"the image must have shape ([channels,] {blur.image_shape[0]}, {blur.image_shape[1]}), not {g.shape}"
        )
    reason = _refuses_blur(blur)
    if reason is not None:
        raise ValueError(reason)
    for name, value in (("background", background), ("tv", tv)):
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite number >= 0, not {value!r}")
    stop = ("change" if tv > 0 else "whiteness") if stop is None else stop
    if stop not in STOPS:
        raise ValueError(f"unknown stopping rule {stop!r}; choose one of {', '.join(STOPS)}")
    low, high = (0.0, math.inf) if bounds is None else (max(bounds[0], 0.0), bounds[1])
    if not low < high:
        raise ValueError(f"bounds {bounds!r} leave nothing between them and zero")
    w = _weights(weights, g)
    g = xp.where(w > 0, g, 0)  # what is hidden may be anything
    check_finite(g, "the image")
    if float(g.min()) < 0:
        raise ValueError(
            f"photon counts are never negative, and the image falls to {float(g.min()):.4g}; clip it "
            "(numpy.maximum(image, 0)), or add a constant to the image and to the background"
        )
    with all_cores():
        run = _Run(blur, g, w, background, tv, (low, high), xp)
        rule = _Rule(stop, run, tolerance, photons)
        limit = _MAX_ITERATIONS[stop] if max_iterations is None else max_iterations
        return run.go(rule, limit, accelerate, start, callback)


def _weights(weights: Array | None, g: Array) -> Array:
    xp = get_xp(g)
    if weights is None:
        return xp.ones(g.shape, g.dtype)
    w = xp.broadcast_to(xp.asarray(weights).astype(g.dtype), g.shape)
    check_finite(w, "weights")
    if float(w.min()) < 0:
        raise ValueError(f"weights must not be negative, and the smallest is {float(w.min()):.4g}")
    if not bool((w > 0).any()):
        raise ValueError("the weights are zero everywhere: no pixel is left to restore the scene from")
    return w


def extrapolation(step: Array, before: Array) -> float:
    """The factor of Biggs and Andrews: how far to go on along the last move, in [0, 1].

    Parameters
    ----------
    step, before : arrays
        What the last multiplicative step, and the one before it, added to the point it began from.
    """
    below = float((before * before).sum())
    return min(max(float((step * before).sum()) / below, 0.0), 1.0) if below > 0 else 0.0


class _Run:
    """One image being restored: the quantities that do not change, and the iteration."""

    def __init__(
        self,
        blur: Blur,
        g: Array,
        w: Array,
        background: float,
        tv: float,
        bounds: tuple[float, float],
        xp: ModuleType,
    ) -> None:
        self.blur, self.g, self.w, self.xp = blur, g, w, xp
        self.background, self.tv, self.bounds = background, tv, bounds
        self.count = float((w > 0).sum())
        self.mean = float((w * g).sum()) / float(w.sum())
        self.eps = float(np.finfo(g.dtype).eps)
        sensitivity = blur.adjoint(w)
        # Below the root of eps the transforms' rounding would decide the quotient.
        self.seen = sensitivity > math.sqrt(self.eps) * float(sensitivity.max())
        self.sensitivity = xp.where(self.seen, sensitivity, 1)
        self.log_g = xp.log(xp.where(g > 0, g, 1))

    def divergence(self, expected: Array) -> float:
        """Σ w (expected − g + g log(g/expected)), in the units of g."""
        terms = expected - self.g + self.g * (self.log_g - self.xp.log(expected))
        return float((self.w * terms).sum(dtype=np.float64))

    def start(self, start: Array | None) -> Array:
        level = max(self.mean - self.background, 0.01 * self.mean) / float(self.blur.psf.sum())
        shape = (*self.g.shape[:-2], *self.blur.scene_shape)
        low, high = self.bounds
        if start is None:
            return self.xp.full(shape, min(max(level, low), high), self.g.dtype)
        start = self.xp.asarray(start).astype(self.g.dtype)
        if start.shape != shape:
            raise ValueError(f"start must have the scene's shape {shape}, not {start.shape}")
        return start.clip(max(1e-6 * level, low), high)  # a zero would stay zero for ever

    def variation(self, f: Array) -> tuple[float, Array, Array]:
        """TV(f), and the halves U and V of its derivative; the channels of one image share their edges."""
        xp = self.xp
        edge = f.dtype.type(_EDGE * self.mean)
        down, right = xp.zeros_like(f), xp.zeros_like(f)
        down[..., :-1, :] = f[..., 1:, :] - f[..., :-1, :]
        right[..., :, :-1] = f[..., :, 1:] - f[..., :, :-1]
        square = down * down + right * right
        if f.ndim == 3:
            square = square.sum(axis=0)
        modulus = xp.sqrt(square + edge * edge)
        inverse = xp.broadcast_to(1 / modulus, f.shape)
        near, v = xp.zeros_like(f), xp.zeros_like(f)  # Σ_j f_j/|∇f|_ij and Σ_j 1/|∇f|_ij
        for a, b in (
            ((..., slice(-1), slice(None)), (..., slice(1, None), slice(None))),
            ((..., slice(None), slice(-1)), (..., slice(None), slice(1, None))),
        ):
            weight = inverse[a]
            near[a] += weight * f[b]
            near[b] += weight * f[a]
            v[a] += weight
            v[b] += weight
        return float((modulus - edge).sum(dtype=np.float64)), near, v * f

    def go(
        self,
        rule: _Rule,
        limit: int,
        accelerate: bool,
        start: Array | None,
        callback: Callable[[int, float], None] | None,
    ) -> RichardsonLucy:
        xp, low, high = self.xp, *self.bounds
        f = self.start(start)
        if self.mean == 0:
            f = xp.full_like(f, low)
            return RichardsonLucy(f, 0, True, "the image is black", *[np.zeros(0)] * 3)
        floor = self.eps * self.mean
        point, before = f, f
        step = last_step = None
        objective: list[float] = []
        changes: list[float] = []
        change = math.inf
        while True:
            expected = xp.maximum(self.blur.forward(point) + self.g.dtype.type(self.background), floor)
            divergence = self.divergence(expected)
            total, near, v = self.variation(point) if self.tv else (0.0, 0.0, 0.0)
            objective.append(divergence + self.tv * total)
            changes.append(change)
            if not math.isfinite(objective[-1]):
                return self._result(rule, False, "the objective is no longer finite", objective, changes)
            verdict = rule.look(point, expected, divergence, change)
            if callback is not None and len(objective) > 1:
                callback(len(objective) - 1, change)
            if verdict:
                return self._result(rule, True, verdict, objective, changes)
            if len(objective) > limit:
                # Without a minimiser to reach, the number of iterations is itself the regularisation.
                why = f"all of {limit} iterations, of which the rule {rule.name!r} stopped none"
                return self._result(rule, rule.name != "change", why, objective, changes)
            top = self.blur.adjoint(self.w * (self.g / expected))
            below = self.sensitivity
            if self.tv:
                top, below = top + self.tv * near, below + self.tv * v
            new = xp.where(self.seen, point * xp.maximum(top, 0) / below, point).clip(low, high)
            if len(objective) > 1 and objective[-1] > objective[-2]:
                step = None
            last_step, step = step, new - point
            before, f = f, new
            change = _norm(f - before) / (_norm(f) + floor)
            point = f
            if accelerate and last_step is not None:
                a = extrapolation(step, last_step)
                # Not down to zero, from which no product returns.
                point = xp.maximum(f + f.dtype.type(a) * (f - before), f.dtype.type(_KEPT) * f).clip(
                    low, high
                )

    def _result(
        self, rule: _Rule, converged: bool, why: str, objective: list[float], changes: list[float]
    ) -> RichardsonLucy:
        at, scene = rule.best
        criterion = np.array(rule.values)
        return RichardsonLucy(
            scene, at, converged, why, np.array(objective[1:]), np.array(changes[1:]), criterion[1:]
        )


class _Rule:
    """When to stop, and which iterate to take."""

    def __init__(self, name: str, run: _Run, tolerance: float, photons: float | None) -> None:
        self.name, self._run, self._tolerance = name, run, tolerance
        self.values: list[float] = []
        self.best: tuple[int, Any] = (0, None)
        self._photons = photons
        self._source = "given"
        if name == "discrepancy" and photons is None:
            self._photons, self._source = estimate_photons(run.g), "estimated"
        if self._photons is not None and not self._photons > 0:
            raise ValueError(f"photons must be above zero, not {photons!r}")

    def look(self, point: Array, expected: Array, divergence: float, change: float) -> str:
        """Why to stop here, or an empty string to go on."""
        run, now = self._run, len(self.values)
        if self.name == "whiteness":
            spread = run.xp.sqrt(run.w / run.xp.maximum(expected, _DARK * run.mean))
            value = whiteness((run.g - expected) * spread)
        elif self.name == "discrepancy":
            assert self._photons is not None
            value = 2 * self._photons * divergence / run.count
        else:
            value = change
        self.values.append(value)
        if self.name != "whiteness" or now == 0 or not value >= self.values[self.best[0]]:
            self.best = (now, point)
        if self.name == "discrepancy" and value <= 1:
            return (
                f"after {now} iterations 2/N times the divergence is {value:.3f}, at most one, with "
                f"{self._photons:.4g} photons ({self._source}) at value 1"
            )
        # Half as many iterations again, and ten more, without a whiter residual: it does not come back. Far
        # from white, that is with next to no noise, it may: it has more picture to fit.
        if (
            self.name == "whiteness"
            and now > 10 + (1.5 if self.values[self.best[0]] < 4 else 5) * self.best[0]
        ):
            return (
                f"the residual is whitest after {self.best[0]} iterations, at "
                f"{self.values[self.best[0]]:.3f} where white noise has 2"
            )
        if change <= self._tolerance:
            return f"iteration {now} changed the scene by {change:.1e} of its norm"
        return ""


def whiteness(residual: Array) -> float:
    """n Σ|R|⁴/(Σ|R|²)² of a residual's n frequencies but the zeroth: 2 for white noise, n/2 for one wave.

    It is the sum of the squared autocorrelation over all lags, by Parseval's theorem.

    Parameters
    ----------
    residual : (M, N) or (c, M, N) array
        The mean over channels is returned.
    """
    xp = get_xp(residual)
    power = abs(get_fft(xp).rfft2(residual.astype(np.float64))) ** 2
    power[..., 0, 0] = 0
    # The half spectrum: columns other than the first and, for even widths, the last stand for two.
    n = residual.shape[-1]
    twice = xp.full(power.shape[-1], 2.0)
    twice[0] = 1
    if n % 2 == 0:
        twice[-1] = 1
    count = residual.shape[-2] * n - 1
    first, second = (power * twice).sum(axis=(-2, -1)), (power * power * twice).sum(axis=(-2, -1))
    return float((count * second / xp.maximum(first * first, np.finfo(np.float64).tiny)).mean())


def estimate_photons(g: Array) -> float:
    """The photons that a value of 1 stands for, from the noise of √g, which is 1/(2 √photons) everywhere."""
    sigma = estimate_noise(get_xp(g).sqrt(g))
    return math.inf if sigma == 0 else 1 / (4 * sigma**2)


def _norm(x: Array) -> float:
    return math.sqrt(float((x * x).sum(dtype=np.float64)))

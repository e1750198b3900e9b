"""Method ``richardson-lucy``: multiplicative steps towards the most likely scene for counted photons.

It minimises the Kullback-Leibler divergence with a total variation term of weight λ (0 by default),

    Σ w (Hf + b − g + g log(g/(Hf + b)))  +  λ Σ |∇f| ,      f ≥ 0 ,

by the step of Richardson and Lucy, in which sums and products are pixel by pixel:

    f ← f · [Hᵀ(w g/(Hf + b)) + λ U] / [Hᵀw + λ V] .

*Boundary.* H is the operator itself, its transpose the exact one. Hᵀw, what a scene pixel sends to the pixels
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

``"whiteness"``    (at λ = 0) takes the iterate whose residual, divided by the square root of its
                   expected variance Hf + b, is whitest: least Σ|R|⁴/(Σ|R|²)², R its Fourier transform. This
                   is 2 for white noise, larger as long as picture is left in the residual, and larger again
                   once coarse noise has been fitted. It needs no noise level and no photon count [6]_.
                   A scene of stars on black bears many more iterations than it takes: there f ≥ 0 is prior enough.
``"change"``       (for λ > 0, where there is a minimiser to go to, or where a tolerance is given) stops when an
                   iteration changes the scene by less than a tolerance.

Iterations that run out while the residual grows whiter, or the scene still changes, have not converged.

An iteration costs two products with H, that is four transforms, and one more for the whiteness.

References
----------
.. [1] W. H. Richardson, J. Opt. Soc. Am. 62 (1972) 55-59. .. [2] L. B. Lucy, Astron. J. 79 (1974) 745-754.
.. [3] M. Bertero, P. Boccacci, Astron. Astrophys. 437 (2005) 369-374: the correct boundary weights.
.. [4] N. Dey et al., Microsc. Res. Tech. 69 (2006) 260-266.
.. [5] D. S. C. Biggs, M. Andrews, Appl. Opt. 36 (1997) 1766-1775.
.. [6] M. S. C. Almeida, M. A. T. Figueiredo, IEEE Trans. Image Process. 22 (2013) 2751-2763: whiteness as a
   criterion; F. Bevilacqua et al., J. Sci. Comput. 96 (2023), for photon noise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..device import Array, all_cores
from ..problem import History, Problem, Solution, Work
from .start import all_weights
from .units import in_units
from .whiteness import spectral_whiteness

_MAX_ITERATIONS = {"whiteness": 300, "change": 1000}
_TOLERANCE = 2e-4  # relative change of the scene at which it stands still
_EDGE = 1e-2  # |∇f| is √(|∇f|² + ε²) with this fraction of the mean for ε: below it edges are not told apart
_KEPT = 0.1  # the extrapolation takes no pixel below this fraction of its value
_DARK = 1e-2  # the residual is not divided by less than the root of this fraction of the mean
_NEAR_WHITE, _MORE = (
    4.0,
    10,
)  # whiteness of a residual that is next to noise; iterations that follow the whitest
_EXPECTED = {"whiteness": 40, "change": 200}  # iterations that `work` reckons with


def refuses(problem: Problem) -> str | None:
    """None if the method serves the problem, else the reason in words."""
    operator, name = problem.operator, problem.fit.name
    if name != "poisson":
        return f"it is made for the data term 'poisson', not {name!r}; method 'tv' serves the others"
    if operator.nonnegative:
        return None
    if operator.boundary.weight > 1:
        return (
            f"boundary {str(operator.boundary)!r} continues a scene by negative light, for which photon counts have "
            "no meaning; use 'unknown' or 'reflect'"
        )
    return (
        "photons are never taken away, and the PSF holds negative values "
        f"({0.5 * (operator.brightness - operator.gain):.3g} in all); clip them, or use method 'tv'"
    )


def work(problem: Problem) -> Work:
    """An operation is a multiply-add of a transform, 2.5 n log2 n for the n pixels of the scene; five an iteration."""
    n = math.prod(problem.operator.scene_shape)
    transform = 2.5 * n * math.log2(n + 1)
    return Work(
        transform,
        5 * _EXPECTED[_rule(problem)] * transform,
        16.0 * n * problem.frames * problem.dtype.itemsize,
    )


def prepare(problem: Problem) -> RichardsonLucy:
    """Hᵀw; ValueError if the bounds leave nothing."""
    return RichardsonLucy(problem)


def _rule(problem: Problem) -> str:
    return "whiteness" if problem.lam == 0 and problem.stop.rtol is None else "change"


class _Outcome(NamedTuple):
    """Of one frame, or of channels that share their edges."""

    scene: Array
    iterations: int
    converged: bool
    why: str
    objective: list[float]
    change: list[float]


class RichardsonLucy:
    """The weights, and what each scene pixel sends to the pixels that were measured."""

    def __init__(self, problem: Problem) -> None:
        self.problem, xp = problem, problem.xp
        low, high = (
            (0.0, math.inf) if problem.bounds is None else (max(problem.bounds[0], 0.0), problem.bounds[1])
        )
        if not low < high:
            raise ValueError(f"bounds {problem.bounds!r} leave nothing between them and zero")
        self.w = all_weights(problem)
        sensitivity = problem.operator.adjoint(self.w)
        # Below the root of eps the transforms' rounding would decide the quotient.
        axes = (-3, -2, -1) if problem.lam > 0 else (-2, -1)
        least = math.sqrt(np.finfo(problem.dtype).eps) * sensitivity.max(axis=axes, keepdims=True)
        self.seen = sensitivity > least
        self.sensitivity = xp.where(self.seen, sensitivity, 1)

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Restore each frame by itself, and each channel unless λ > 0 couples them; see `deblur.problem.Factor`.

        Raises
        ------
        ValueError
            For negative counts.
        """
        xp, (k, c) = self.problem.xp, g.shape[:2]
        lead = (k, c) if self.problem.lam > 0 else (k * c, 1)

        def each(a: Array) -> Array:
            return xp.broadcast_to(a, (k, c, *a.shape[2:])).reshape(*lead, *a.shape[2:])

        g = xp.where(self.w > 0, g, 0)  # what is hidden may be anything
        if float(g.min()) < 0:
            raise ValueError(
                f"photon counts are never negative, and the image falls to {float(g.min()):.4g}; clip it "
                "(numpy.maximum(image, 0)), or add a constant to the image and to the background"
            )
        units = in_units(self.problem, g)
        arrays = map(each, (units.g, self.w, self.seen, self.sensitivity))
        shape = (*lead, *self.problem.operator.scene_shape)
        first: list[Array | None] = [None] * lead[0]
        if start is not None and start.scene.size == math.prod(shape):
            first = list((start.scene * start.scene.dtype.type(1 / units.unit)).reshape(shape))
        with all_cores():
            runs = [
                _Run(units.problem, *frame).go(begin) for *frame, begin in zip(*arrays, first, strict=True)
            ]
        longest = max(len(run.objective) for run in runs)
        objective, change = (
            np.array([np.pad(part, (0, longest - len(part)), mode="edge") for part in parts])
            for parts in zip(*((run.objective, run.change) for run in runs), strict=True)
        )
        slowest = max(runs, key=lambda run: (not run.converged, run.iterations))
        return Solution(
            scene=xp.stack([run.scene for run in runs]).reshape(k, c, *shape[2:]) * g.dtype.type(units.unit),
            iterations=max(run.iterations for run in runs),
            converged=slowest.converged,
            why=slowest.why if len(runs) == 1 else f"the slowest of {len(runs)} frames: {slowest.why}",
            history=History(units.objective(objective.sum(axis=0)), change.max(axis=0), np.zeros(longest)),
        )


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
    """One frame (c, M, N) being restored: the quantities that do not change, and the iteration."""

    def __init__(self, problem: Problem, g: Array, w: Array, seen: Array, sensitivity: Array) -> None:
        self.problem, self.g, self.w, self.seen, self.sensitivity = problem, g, w, seen, sensitivity
        self.xp, self.operator, self.background = problem.xp, problem.operator, problem.fit.background
        lo, hi = (0.0, math.inf) if problem.bounds is None else problem.bounds
        self.bounds = max(lo, 0.0), hi
        self.mean = float((w * g).sum()) / float(w.sum())
        self.floor = float(np.finfo(g.dtype).eps) * self.mean
        self.log_g = self.xp.log(self.xp.where(g > 0, g, 1))

    def divergence(self, expected: Array) -> float:
        """Σ w (expected − g + g log(g/expected)), in the units of g."""
        terms = expected - self.g + self.g * (self.log_g - self.xp.log(expected))
        return float((self.w * terms).sum(dtype=np.float64))

    def start(self, start: Array | None) -> Array:
        level = max(self.mean - self.background, 0.01 * self.mean) / self.operator.brightness
        low, high = self.bounds
        if start is None:
            shape = (*self.g.shape[:-2], *self.operator.scene_shape)
            return self.xp.full(shape, min(max(level, low), high), self.g.dtype)
        return start.clip(max(1e-6 * level, low), high)  # a zero would stay zero for ever

    def variation(self, f: Array) -> tuple[float, Array, Array]:
        """TV(f), and the halves U and V of its derivative; the channels of one image share their edges."""
        xp = self.xp
        edge = f.dtype.type(_EDGE * self.mean)
        down, right = xp.zeros_like(f), xp.zeros_like(f)
        down[..., :-1, :] = f[..., 1:, :] - f[..., :-1, :]
        right[..., :, :-1] = f[..., :, 1:] - f[..., :, :-1]
        square = (down * down + right * right).sum(axis=0)
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

    def go(self, start: Array | None) -> _Outcome:
        """Iterate until the rule stops it."""
        problem, xp, lam = self.problem, self.xp, self.problem.lam
        low, high = self.bounds
        f = self.start(start)
        if self.mean == 0:
            return _Outcome(xp.full_like(f, low), 0, True, "the image is black", [0.0], [0.0])
        rule = _Rule(problem, self)
        most = problem.stop.max_iterations
        limit = _MAX_ITERATIONS[rule.name] if most is None else most
        point, before = f, f
        step = last_step = None
        objective: list[float] = []
        changes: list[float] = []
        change = math.inf

        def outcome(converged: bool, why: str) -> _Outcome:
            at, scene = rule.best
            return _Outcome(scene, at, converged, why, objective[1:] or objective, changes[1:] or changes)

        while True:
            expected = xp.maximum(
                self.operator.forward(point) + self.g.dtype.type(self.background), self.floor
            )
            total, near, v = self.variation(point) if lam else (0.0, 0.0, 0.0)
            objective.append(self.divergence(expected) + lam * total)
            changes.append(change)
            verdict = rule.look(point, expected, change)
            n = len(objective) - 1
            if not math.isfinite(objective[-1]):
                return outcome(False, "the objective is no longer finite")
            if n:
                problem.stop.report(n, change)
            if verdict:
                return outcome(True, verdict)
            if n >= limit:
                return outcome(*rule.unfinished())
            top = self.operator.adjoint(self.w * (self.g / expected))
            below = self.sensitivity
            if lam:
                top, below = top + lam * near, below + lam * v
            new = xp.where(self.seen, point * xp.maximum(top, 0) / below, point).clip(low, high)
            if n and objective[-1] > objective[-2]:
                step = None
            last_step, step = step, new - point
            before, f = f, new
            change = _norm(f - before) / (_norm(f) + self.floor)
            point = f
            if last_step is not None:
                a = extrapolation(step, last_step)
                # Not down to zero, from which no product returns.
                point = xp.maximum(f + f.dtype.type(a) * (f - before), f.dtype.type(_KEPT) * f).clip(
                    low, high
                )


class _Rule:
    """When to stop, and which iterate to take."""

    def __init__(self, problem: Problem, run: _Run) -> None:
        self.name, self._run = _rule(problem), run
        self._tolerance = _TOLERANCE if problem.stop.rtol is None else problem.stop.rtol
        self.values: list[float] = []
        self.best: tuple[int, Array] = (0, None)

    def look(self, point: Array, expected: Array, change: float) -> str:
        """Why to stop here, or an empty string to go on."""
        run, now = self._run, len(self.values)
        if self.name == "whiteness":
            spread = run.xp.sqrt(run.w / run.xp.maximum(expected, _DARK * run.mean))
            self.values.append(spectral_whiteness((run.g - expected) * spread))
        else:
            self.values.append(change)
        if self.name == "change" or now == 0 or not self.values[-1] >= self.values[self.best[0]]:
            self.best = (now, point)
        at, least = self.best[0], self.values[self.best[0]]
        # Half as many iterations again, and ten more, without a whiter residual: it does not come back. Far
        # from white, that is with next to no noise, it may: it has more picture to fit.
        if self.name == "whiteness" and now > _MORE + (1.5 if least < _NEAR_WHITE else 5) * at:
            return f"the residual is whitest after {at} iterations, at {least:.3f} where white noise has 2"
        if change <= self._tolerance:
            return f"iteration {now} changed the scene by {change:.1e} of its norm"
        return ""

    def unfinished(self) -> tuple[bool, str]:
        """Whether the last of all iterations may be an end, and what is open."""
        now, at, least = len(self.values) - 1, self.best[0], self.values[self.best[0]]
        if self.name == "change":
            return False, (
                f"all of {now} iterations ran out, the last of which changed the scene by {least:.1e} of its norm "
                f"(tolerance {self._tolerance:.1e})"
            )
        found = (
            f"iteration {at} of all {now} has the whitest residual, at {least:.3f} where white noise has 2"
        )
        if least < _NEAR_WHITE and now >= _MORE + at:
            return True, found
        return False, (
            f"{found}, and later ones may have a whiter one; use more iterations (max_iterations), or method 'tv' if "
            "the noise is not that of counts"
        )


def _norm(x: Array) -> float:
    return math.sqrt(float((x * x).sum(dtype=np.float64)))

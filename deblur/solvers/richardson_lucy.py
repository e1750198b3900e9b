"""Method ``richardson-lucy``: multiplicative steps towards the most likely scene for counted photons.

The problem is that of total variation for photon counts, with a weight λ that is 0 by default,

    minimise  Σ w (Hf + b − g + g log(g/(Hf + b)))  +  λ Σ |∇f|   subject to   f ≥ 0 .

For λ > 0 it has a minimiser, which ADMM finds (`deblur.solvers.admm`). At λ = 0 the steps of Richardson and Lucy, in
which sums and products are pixel by pixel, are taken and stopped early:

    f ← f · Hᵀ(w g/(Hf + b)) / Hᵀw .

*Boundary.* H is the operator itself, its transpose the exact one. Hᵀw, the light of a scene pixel that reaches measured
pixels, is the correct weight at an edge and behind a masked pixel [3]_: with boundary "unknown" it falls to zero
beyond the frame. Scene pixels of which next to no light is measured keep their first value.

*Acceleration.* The step is taken from a point extrapolated along the last move, by the vector extrapolation
of Biggs and Andrews [4]_, but never to zero, where a pixel would remain; after the objective has risen
the extrapolation starts anew.

*Stopping.* The iterations themselves regularise: early ones are smooth, late ones fit the noise.

``"held out"``     holds out one pixel in 25 from a first run, and counts the iterations after which the
                   others predict them best: noise cannot be predicted [5]_. The final run makes as many with all
                   pixels, and all channels of an image together, so that none is noisier than the others. It needs no
                   noise level and no photon count. In a large image the first run uses windows. Where the blur is
                   slight a pixel is predicted by little but itself: the earliest iteration that is nearly as good is
                   taken, the more so the narrower the PSF.
``"change"``       (with a tolerance) stops when an iteration changes the scene by less than the tolerance.

A run that held-out pixels end, or the number of iterations that was asked for, has stopped by design. It counts as not
converged if the default's iterations run out while held-out pixels are predicted better and better, or while the scene
still changes.

An iteration costs two products with H, that is four transforms.

References
----------
.. [1] W. H. Richardson, J. Opt. Soc. Am. 62 (1972) 55-59. .. [2] L. B. Lucy, Astron. J. 79 (1974) 745-754.
.. [3] M. Bertero, P. Boccacci, Astron. Astrophys. 437 (2005) 369-374: the correct boundary weights.
.. [4] D. S. C. Biggs, M. Andrews, Appl. Opt. 36 (1997) 1766-1775.
.. [5] S. J. Reeves, R. M. Mersereau, Opt. Eng. 29 (1990) 446-454: cross-validation of an iterative restoration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..device import Array, all_cores, flags, get_xp, is_cupy
from ..normalization import Scale, shifted
from ..norms import largest
from ..norms import total as sum_of
from ..operators.matrix import by
from ..problem import Factor, History, Problem, Solution
from . import admm, richardson_lucy_gpu
from .domain import BlockMap
from .start import all_weights
from .windows import cut

_WINDOW = 256  # pixels of a side, at least, of the windows that stand for a large image


def refuses(problem: Problem) -> str | None:
    """None if the method serves the problem, else the reason in words."""
    operator, name = problem.operator, problem.fidelity.name
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
        f"({0.5 * (operator.dc_gain - operator.norm_bound):.3g} in all); clip them, or use method 'tv'"
    )


def memory(problem: Problem) -> float:
    """Bytes: see `deblur.problem`."""
    if problem.lam > 0:
        return admm.memory(_nonnegative(problem))
    return 16.0 * math.prod(problem.operator.scene_shape) * problem.frames * problem.dtype.itemsize


def prepare(problem: Problem) -> Factor:
    """Hᵀw; what ADMM prepares where λ > 0. ValueError if the bounds leave nothing."""
    problem = _nonnegative(problem)
    return admm.prepare(problem) if problem.lam > 0 else RichardsonLucy(problem)


def _nonnegative(problem: Problem) -> Problem:
    low, high = problem.bounds or (0.0, math.inf)
    if not max(low, 0.0) < high:
        raise ValueError(f"bounds {problem.bounds!r} leave nothing between them and zero")
    return replace(problem, bounds=(max(low, 0.0), high))


class RichardsonLucy:
    """The weights of the pixels; the problem has bounds that are not negative."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.w = all_weights(problem)

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Restore each frame by itself, its channels together; see `deblur.problem.Factor`.

        Raises
        ------
        ValueError
            For negative counts.
        """
        xp, k = self.problem.xp, len(g)
        g = xp.where(self.w > 0, g, 0)  # hidden pixels may hold any value
        if float(g.min()) < 0:
            raise ValueError(
                f"photon counts are never negative, and the image falls to {float(g.min()):.4g}; clip it "
                "(numpy.maximum(image, 0)), or add a constant to the image and to the background"
            )
        scale = Scale.of_image(self.problem, g)
        problem, g = scale.near(self.problem), scale.down(g)
        shape = (*g.shape[:2], *self.problem.operator.scene_shape)
        first: list[Array | None] = [None] * k
        if start is not None and start.scene.size == math.prod(shape):
            first = list(scale.down(start.scene).reshape(shape))
        with all_cores():
            w = xp.broadcast_to(self.w, (k, *self.w.shape[1:]))
            runs = [_restored(problem, g[i : i + 1], w[i : i + 1], first[i]) for i in range(k)]
        histories = [run.history for run in runs if run.history is not None]
        longest = max(len(one.objective) for one in histories)
        objective, change = (
            np.array([np.pad(part, (0, longest - len(part)), mode="edge") for part in parts])
            for parts in zip(*((one.objective, one.primal) for one in histories), strict=True)
        )
        slowest = max(runs, key=lambda run: (not run.converged, run.iterations))
        return Solution(
            scene=scale.up(xp.concatenate([run.scene for run in runs])),
            iterations=max(run.iterations for run in runs),
            converged=slowest.converged,
            stopped=slowest.stopped,
            why=slowest.why if len(runs) == 1 else f"the slowest of {len(runs)} frames: {slowest.why}",
            history=History(
                shifted(objective.sum(axis=0), scale.objective(problem)),
                change.max(axis=0),
                np.zeros(longest),
            ),
        )


def _restored(problem: Problem, g: Array, w: Array, start: Array | None) -> Solution:
    """One frame (1, c, M, N), with weights that broadcast to it."""
    if not largest(w * g):
        low, _ = problem.bounds or (0.0, 0.0)
        scene = problem.xp.full((*g.shape[:2], *problem.operator.scene_shape), low, g.dtype)
        return Solution(scene, 0, True, "the image is black", History(np.zeros(1), np.zeros(1)))
    stop, converged, why = problem.stop, False, ""
    held_out, tolerance = stop.rtol is None, stop.rtol or 0.0
    count = stop.max_iterations or (300 if held_out else 1000)
    if held_out:
        count, converged, why = _predicted_best(problem, g, w, start, count)
    objective, changes = [], []
    run = _Run(problem, g, w)
    for n in run.steps(start, count, tolerance):
        objective.append(run.objective)
        changes.append(run.change)
        if not math.isfinite(run.objective):
            converged, why = False, "the objective is no longer finite"
            break
        if n:
            stop.report(n, run.change)
        if not held_out and run.change <= tolerance:
            converged, why = True, f"iteration {n} changed the scene by {run.change:.1e} of its norm"
            break
        if n >= count:
            break
    else:  # a GPU stops when nothing changes any more
        n = count
    why = why or (
        f"all of {n} iterations ran out, the last of which changed the scene by {run.change:.1e} of its norm "
        f"(tolerance {tolerance:.1e})"
    )
    columns = np.array([objective[1:] or objective, changes[1:] or changes])
    stopped = held_out and (converged or stop.max_iterations is not None) and math.isfinite(run.objective)
    return Solution(run.point, n, converged, why, History(*columns), stopped=stopped)


def _predicted_best(
    problem: Problem, g: Array, w: Array, start: Array | None, limit: int
) -> tuple[int, bool, str]:
    """(the number of iterations that predicts held-out pixels best, whether it was found, words)."""
    xp, where, visible = problem.xp, "", w
    psf = problem.operator.mean_blur.psf
    windows = cut(problem, g, w, side=max(_WINDOW, 3 * max(psf.shape)), interior=True)
    if windows is not None:
        problem, g, visible = windows
        start, where = None, f" in {len(g)} windows of {by(g.shape[2:])} pixels"
    held = flags(np.random.default_rng(0).random(g.shape[2:]) < 0.04, g.dtype, xp)
    if not (largest(visible * held) and largest(visible * (1 - held))):
        return min(6, limit), False, f"of {by(g.shape[2:])} pixels none can be held out"
    run = _Run(problem, g, visible * (1 - held), visible * held)
    errors: list[float] = []
    for n in run.steps(start, limit):
        errors.append(run.missed)
        found = n > 6 + 1.5 * int(np.argmin(errors))  # no better one is expected
        if not math.isfinite(run.missed) or found or n >= limit:
            break
    # An iteration is good enough if its error is larger by 0.4 %, or more for a narrow PSF: there a pixel is predicted
    # by little but itself.
    shape = float((psf**2).sum() / psf.sum() ** 2)
    enough = (1 + 4e-3 + 0.2 * shape**2) * min(errors)
    count = next(n for n, error in enumerate(errors) if not error > enough)
    if found:
        return count, True, f"{count} iterations predict held-out pixels best{where}"
    words = f"held-out pixels{where} are predicted better and better up to iteration {limit}, the last"
    return limit, False, f"{words}; use more iterations (max_iterations)"


def extrapolation(step: Array, before: Array) -> float:
    """The factor of Biggs and Andrews: how far to go on along the last move, in [0, 1].

    Parameters
    ----------
    step, before : arrays
        What the last multiplicative step, and the one before it, added to the point it began from.
    """
    below = _dot(before, before)
    return min(max(_dot(step, before) / below, 0.0), 1.0) if below > 0 else 0.0


def _dot(x: Array, y: Array) -> float:
    # Not BLAS's on the CPU: see `admm_arrays`.
    return float(get_xp(x).vdot(x, y)) if is_cupy(x) else float(np.einsum("i,i->", x.ravel(), y.ravel()))


class _Run:
    """Frames (n, c, M, N) that share their steps, and the loop over them.

    Attributes
    ----------
    point : (n, c, P, Q) array
        The scene that the last iteration ended with.
    least_share : float
        The extrapolation takes no pixel below this share of its value.
    objective, change, missed : float
        Of `point`: D, how much of its norm the last iteration changed, and the mean squared error at the pixels
        that `held` weighs.
    """

    least_share = 0.1

    def __init__(self, problem: Problem, g: Array, w: Array, held: Array | None = None) -> None:
        self.problem, self.g, self.xp = problem, g, problem.xp
        xp, shape = self.xp, (*g.shape[:2], *problem.operator.scene_shape)
        self.w = xp.broadcast_to(w, g.shape)
        self.held = None if held is None else xp.broadcast_to(held, g.shape)
        self.held_weight = 1.0 if held is None else float(sum_of(self.held))
        self.bounds = problem.bounds or (0.0, math.inf)
        self.mean = float(sum_of(self.w * g)) / float(sum_of(self.w))
        self.floor = g.dtype.type(np.finfo(g.dtype).eps * self.mean)
        sensitivity = problem.operator.adjoint(xp.ascontiguousarray(w))
        # Below the root of eps the transforms' rounding would decide the quotient.
        least = math.sqrt(np.finfo(problem.dtype).eps) * sensitivity.max(
            axis=tuple(range(2, sensitivity.ndim)), keepdims=True
        )
        seen = sensitivity > least
        self.seen = xp.broadcast_to(seen, shape)
        self.sensitivity = xp.broadcast_to(xp.where(seen, sensitivity, 1), shape)
        self.point = xp.empty(shape, g.dtype)
        self.objective = self.change = self.missed = math.inf

    def first(self, start: Array | None) -> Array:
        """The scene to begin with: `start` within the bounds, or a constant one of the image's brightness."""
        background = self.problem.fidelity.background
        level = max(self.mean - background, 0.01 * self.mean) / self.problem.operator.dc_gain
        low, high = self.bounds
        if start is None:
            return self.xp.full(self.point.shape, min(max(level, low), high), self.g.dtype)
        # A zero would remain zero.
        return self.xp.ascontiguousarray(start.clip(max(1e-6 * level, low), high).reshape(self.point.shape))

    def steps(self, start: Array | None, limit: int, tolerance: float = 0.0) -> Iterator[int]:
        """Iterate until a change within `tolerance` or `limit`: the number of each iteration, once its numbers are set.

        On a GPU `point` is valid for the last iteration alone.
        """
        self.point[...] = first = self.first(start)
        with BlockMap(self.problem, self.point.shape) as blocks:
            if self.problem.device.gpu is not None:
                steps: Any = richardson_lucy_gpu.GpuSteps(self, first, tolerance, limit)
            else:
                steps = _ArraySteps(self, first, blocks)
            n, before = 0, -1
            while n > before:
                before = n
                for self.objective, self.change, missed in steps.iterate(n):
                    self.missed = missed / self.held_weight
                    yield n
                    n += 1


class _ArraySteps:
    """The steps of a run in array operations; `deblur.solvers.richardson_lucy_gpu` has them as CUDA kernels."""

    def __init__(self, run: _Run, first: Array, blocks: BlockMap) -> None:
        self.run, self.blocks, self.f = run, blocks, first
        self.move, self.step, self.last = (run.xp.zeros_like(first) for _ in range(3))
        self.accelerated, self.before, self.change = 0, math.inf, math.inf

    def iterate(self, n: int) -> Iterator[tuple[float, float, float]]:
        """The objective, the change and the squared error at held pixels of the point; then the next point."""
        run, xp, operator = self.run, self.run.xp, self.run.problem.operator
        f, point, move, (low, high) = self.f, run.point, self.move, run.bounds
        background = run.g.dtype.type(run.problem.fidelity.background)
        expected = operator.forward(point)

        def compare(i: int, rows: slice) -> tuple[float, float]:
            g, e, w = run.g[i, :, rows], expected[i, :, rows], run.w[i, :, rows]
            if background:
                e += background
            xp.maximum(e, run.floor, out=e)
            e_g = e - g
            missed = 0.0 if run.held is None else float((run.held[i, :, rows] * e_g**2).sum())
            quotient = g / e
            xp.log(xp.maximum(quotient, np.finfo(g.dtype).tiny), out=e)
            e *= g
            e += e_g
            e *= w
            divergence = float(e.sum(dtype=np.float64))
            xp.multiply(w, quotient, out=e)
            return divergence, missed

        def update(i: int, rows: slice) -> tuple[float, float]:
            new, p, old = top[i, :, rows], point[i, :, rows], f[i, :, rows]
            xp.maximum(new, 0, out=new)
            new *= p
            new /= run.sensitivity[i, :, rows]
            new = xp.where(run.seen[i, :, rows], new, p).clip(low, high)
            xp.subtract(new, p, out=step[i, :, rows])
            moved = xp.subtract(new, old, out=move[i, :, rows])
            old[...] = new
            return float((moved * moved).sum(dtype=np.float64)), float((new * new).sum(dtype=np.float64))

        def extrapolate(i: int, rows: slice) -> None:
            new, p = f[i, :, rows], point[i, :, rows]
            xp.multiply(move[i, :, rows], new.dtype.type(a), out=p)
            p += new
            # Not down to zero, from which no product returns.
            xp.maximum(p, new.dtype.type(run.least_share) * new, out=p)
            p.clip(low, high, out=p)

        divergence, missed = _sums(self.blocks(compare, expected.shape[2]))
        before, self.before = self.before, divergence
        yield self.before, self.change, missed
        top = operator.adjoint(expected)
        if n and self.before > before:
            self.accelerated = 0
        self.step, self.last = step, last = self.last, self.step
        moved, size = _sums(self.blocks(update, top.shape[2]))
        self.change = math.sqrt(moved) / (math.sqrt(size) + float(run.floor))
        self.accelerated += 1
        a = extrapolation(step, last) if self.accelerated > 1 else 0.0
        self.blocks(extrapolate, top.shape[2])


def _sums(blocks: list[tuple[float, float]]) -> tuple[float, float]:
    first, second = zip(*blocks, strict=True)
    return math.fsum(first), math.fsum(second)

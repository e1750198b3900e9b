"""Method ``richardson-lucy``: multiplicative steps towards the most likely scene for photon counts.

The problem is that of total variation for photon counts, with a weight λ that is 0 by default,

    minimise  Σ w (Hf + b − g + g log(g/(Hf + b)))  +  λ Σ |∇f|   subject to   f ≥ 0 .

For λ > 0 it has a minimiser, which ADMM finds (`deblur.solvers.admm`). For λ = 0, the steps of Richardson and Lucy
[1]_, [2]_ are taken, with products and quotients pixel by pixel, and stopped early:

    f ← f · Hᵀ(w g/(Hf + b)) / Hᵀw .

*Boundary.* H is the operator itself and Hᵀ its exact transpose. Hᵀw is the light of a scene pixel that reaches measured
pixels. It is the correct weight at an edge and behind a masked pixel [3]_; with boundary "unknown" it falls to zero
beyond the frame. Scene pixels whose light is hardly measured keep their first value.

*Acceleration.* Each step starts from a point extrapolated along the last move, by the scaled heavy ball [4]_. Its
factor (k − 1)/(k + 2) needs no sums, and only the last scene. The factor of Biggs and Andrews comes equally near to the
truth in as many iterations (``benchmarks/bench_volumes.py``). The point never goes to zero, where a pixel would remain.
After a rise of the objective, k begins anew. An iteration costs two products with H, which take four transforms.

*Read-out noise.* If `noise` gives gain and read-out noise, all counts and the background are raised by the variance of
the read-out noise over the gain [7]_: then the variance is the gain times the mean. If the least count is below zero,
as after an offset is subtracted, counts and background are raised by at least as much.

*Darkness.* By default no scene pixel may be darker than a level that is estimated from the image: light of a dark
background would otherwise fit noise, or light that enters at the border.

*Stopping.* The iterations themselves regularise: early scenes are smooth, late ones fit the noise.

``"least error"``  finds the iteration whose f has the least expected squared error. Half of simulated noise like that
                   of the counts is added to them and subtracted from them, which makes two images [5]_ [6]_. The
                   squared difference of their scenes is the noise in f_n. The missing part of f_n is the product of the
                   moves of both scenes until half as many iterations later, less three quarters of the squared
                   difference, the noise that they share. If `noise` does not give the gain, the frequencies that the
                   blur attenuates most do, or, if rounding explains their noise as in 8-bit images, the noise is that
                   of rounding. All channels of an image take equally many iterations, so that none is noisier than the
                   others. Windows represent large images. A wrong PSF allows 2/√λ iterations (``docs/worth.md``).
``"change"``       (if a tolerance is given) stops when an iteration changes the scene by less than the tolerance.
``"consensus"``    (if requested) moves a pixel only if two such images, with new noise in each step, both would: if
                   the product of their moves within the bounds, times Hᵀw over the scene and blurred by HᵀH, is
                   positive [6]_. It stops when less than a hundredth of the pixels move. It comes equally near to the
                   truth for few photons, but less near for points and threads of many. A step costs five products.

A run that stops so, or at the largest number of iterations (1000 by default), has stopped by design and reports why;
with a tolerance, a run whose iterations run out counts as not converged.

References
----------
.. [1] W. H. Richardson, J. Opt. Soc. Am. 62 (1972) 55-59. .. [2] L. B. Lucy, Astron. J. 79 (1974) 745-754.
.. [3] M. Bertero, P. Boccacci, Astron. Astrophys. 437 (2005) 369-374: the correct boundary weights.
.. [4] H. Wang, P. C. Miller, IEEE Trans. Image Process. 23 (2014) 848-854.
.. [5] N. L. Oliveira, J. Lei, R. J. Tibshirani, Electron. J. Stat. 18 (2024): the coupled bootstrap.
.. [6] J. Manton, A. York, Zenodo 10278919 (2023): Richardson-Lucy with gradient consensus.
.. [7] D. L. Snyder, C. W. Helstrom, A. D. Lanterman, M. Faisal, R. L. White, J. Opt. Soc. Am. A 12 (1995) 272-283.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..device import Array, random_signs
from ..norms import combined, contiguous, largest, norms, total as sum_of
from ..operators.blur import Blur
from ..operators.matrix import by
from ..pixelwise import stored
from ..problem import Factor, Problem, Solution, history_of
from ..threads import all_cores, cores
from . import admm, richardson_lucy_gpu
from .counts import deviation, mean_of_light, pairs_of, two_images, without_small
from .domain import BlockMap, block_map
from .start import all_weights, filled
from .windows import cut, posed, watched_sides, watched_step


def refuses(problem: Problem) -> str | None:
    """Return None if the method serves the problem, else the reason in words."""
    operator, name = problem.operator, problem.fidelity.name
    if name != "poisson":
        return f"it requires the data term 'poisson', not {name!r}; method 'tv' serves the others"
    if problem.stop.consensus and problem.lam > 0:
        return "stop='consensus' applies to the iterations at λ = 0 only"
    if operator.nonnegative:
        return None
    if operator.boundary.weight > 1:
        return (
            f"boundary {str(operator.boundary)!r} continues a scene by negative light, which photon counts exclude; "
            "use 'unknown' or 'reflect'"
        )
    return (
        "light is never negative, and the PSF has negative values "
        f"({0.5 * (operator.dc_gain - operator.norm_bound):.3g} in all); clip them, or use method 'tv'"
    )


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes of the final run, or of the earlier one that finds the iterations; see `deblur.problem`."""
    if problem.lam > 0:
        return admm.memory(_nonnegative(problem))
    axes, gpu, colours = problem.axes, problem.device.gpu is not None, problem.colours

    def run(part: Problem, frames: float) -> float:
        image, scene, torus, kept, product = part.sizes
        folds = part.operator.boundary.continued and axes == 3
        folded = torus * folds if part.operator.shift_invariant else product - 2.0 * torus
        # For each frame: point, scene, spectrum (twice for images), image, and what Hᵀ folds back or two quotients of a
        # block; Hᵀw (twice on a GPU); K.
        product = max(frames * (torus * (axes < 3) + folded), 3.3 * min(cores() << 19, frames * image) * (not gpu))
        return frames * (2 * scene + torus + image) + product + (1 + gpu) * scene + kept

    (image, scene, _, kept, _), size, count = problem.sizes, problem.dtype.itemsize, problem.frames
    # Two copies of the frames without their hidden pixels, W and its mask.
    held = 4.0 * count * image * (problem.fidelity.weights is not None)
    final = run(problem, colours) + (9 - 2 * (axes == 3)) * colours * scene * problem.stop.consensus
    # The verification takes the data in three forms, Hf + b, and two arrays for the objective.
    final = max(final + (count - colours) * (scene + (1.2 if gpu else 5.2) * image), count * (scene + 6 * image) + kept)
    both, sides = 2 * colours * pairs_of(colours * image / size), watched_sides(problem.operator.mean_blur.psf)
    part = posed(replace(problem, frames=both), sides, interior=True, most=2 if axes == 3 else None)
    frames, seen = part.frames, math.prod(map(min, problem.operator.image_shape, sides))
    # Windows have their own weights, beside both images and the spectrum of H.
    found = run(part, frames) + (frames > both) * (frames * part.sizes[0] + both * image + kept)
    # The scenes of earlier iterations: those since half of the best one, each a tenth later.
    earlier = min(11.0, 1.5 * (problem.stop.max_iterations or 1000) + 4)
    earlier *= frames * seen / watched_step(frames * part.sizes[0] / size, axes) ** axes
    found += earlier * size + count * image
    # The noise is measured in overlapping or sampled blocks of a plane, in float64 with their spectra.
    noise = min(4 * math.prod(problem.operator.image_shape[-2:]), 1 << 22) * 16 * (problem.noise is None) + both * image
    return held, final, *(() if problem.stop.rtol else (found * (not problem.stop.consensus), noise))


def prepare(problem: Problem) -> Factor:
    """Prepare the iteration, or ADMM's if λ > 0; ValueError if the bounds exclude all nonnegative values."""
    problem = _nonnegative(problem)
    return admm.prepare(problem) if problem.lam > 0 else RichardsonLucy(problem)


def _nonnegative(problem: Problem) -> Problem:
    low, high = problem.bounds or (0.0, math.inf)
    if not max(low, 0.0) < high:
        raise ValueError(f"bounds {problem.bounds!r} exclude all nonnegative values")
    return replace(problem, bounds=(max(low, 0.0), high))


class RichardsonLucy:
    """The prepared iteration: the weights of the pixels, and a problem with nonnegative bounds."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.w = problem, all_weights(problem)

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Restore each frame independently, but its channels together; see `deblur.problem.Factor`."""
        xp, k = self.problem.xp, len(g)
        if self.problem.fidelity.weights is not None:
            g = xp.where(self.w > 0, g, 0)  # hidden pixels may hold any value
        shape = (*g.shape[:2], *self.problem.operator.scene_shape)
        first = start.scene.reshape(shape) if start and start.scene.size == math.prod(shape) else [None] * k
        with all_cores():
            w = xp.broadcast_to(self.w, (k, *self.w.shape[1:]))
            runs = [_restored(self.problem, g[i : i + 1], w[i : i + 1], first[i]) for i in range(k)]
        histories = [run.history for run in runs if run.history is not None]
        rows = np.arange(max(map(len, histories)))
        taken = [one.take(rows, mode="clip") for one in histories]
        objective, change = (np.array([one[x] for one in taken]) for x in ("objective", "primal"))
        slowest = max(runs, key=lambda run: (not run.converged, run.iterations))
        return replace(
            slowest,
            scene=runs[0].scene if k == 1 else xp.concatenate([run.scene for run in runs]),
            iterations=max(run.iterations for run in runs),
            why=slowest.why if len(runs) == 1 else f"the slowest of {len(runs)} frames: {slowest.why}",
            history=history_of(objective.sum(axis=0), change.max(axis=0)),
        )


def _restored(problem: Problem, g: Array, w: Array, start: Array | None) -> Solution:
    """Restore one frame (1, c, M, N), with weights that broadcast to it."""
    raised = max(-float(g.min()), 0.0)
    if problem.noise is not None and problem.noise.gain:
        raised = max(raised, problem.noise.read**2 / problem.noise.gain)
    if raised:
        g = g + g.dtype.type(raised)
        fidelity = replace(problem.fidelity, background=problem.fidelity.background + raised)
        problem = replace(problem, fidelity=fidelity, noise=problem.noise and problem.noise._replace(read=0.0))
    low, high = problem.bounds or (0.0, math.inf)
    if not largest(g if problem.fidelity.weights is None else w * g):
        scene = problem.xp.full((*g.shape[:2], *problem.operator.scene_shape), low, g.dtype)
        return Solution(scene, 0, True, "the image is black", history_of([0.0], [0.0]))
    stop, converged, why, level = problem.stop, False, "", ""
    by_error, tolerance, count = stop.rtol is None, stop.rtol or 0.0, stop.max_iterations or 1000
    if by_error:
        if problem.fidelity.weights is not None:
            problem = replace(problem, fidelity=replace(problem.fidelity, weights=w))
        both, lam = two_images(problem, g)
        darkest = _darkest(problem, g, w, both)
        problem = replace(problem, bounds=(darkest, high))
        if not stop.consensus:
            combined(both, problem.xp.broadcast_to(g, both.shape), out=both)
            combined(both, a=0.5, out=both)  # the mean with g, which has half of the noise
            most = int(2 / math.sqrt(max(lam, 1e-30)))
            wrong = most, True, f"more than {most} iterations would amplify the error of the PSF"
            count, converged, why = min(_least_error(problem, both, w, start, count), wrong)
        del both
        if darkest > low:
            share = darkest * g.size / float(sum_of(g))
            level = f"; no pixel is taken to be darker than {share:.0%} of the image's mean"
            level += " (subtract the camera's offset first, if it has one)" * (share > 0.5)
    run, objective, changes = _Run(problem, g, w), [], []
    for n in run.steps(start, count, tolerance):
        objective.append(run.objective)
        changes.append(run.change)
        if not math.isfinite(run.objective):
            converged, why = False, "the objective is no longer finite"
            break
        if n:
            stop.report(n, run.change)
        if not by_error and run.change <= tolerance:
            converged, why = True, f"iteration {n} changed the scene by {run.change:.1e} of its norm"
            break
        if run.ended:
            converged = True
            why = f"two images with independent noise agree on the next step of {run.agreed:.1%} of the pixels"
            break
        if n >= count:
            break
    else:  # a GPU stops at a change within the tolerance, 0 by default
        n = count
    last = f"the last of which changed the scene by {run.change:.1e} of its norm (tolerance {tolerance:.1e})"
    why = (why or f"all of {n} iterations ran out, {last}") + level
    history = history_of(objective[1:] or objective, changes[1:] or changes)
    return Solution(run.point, n, converged, why, history, stopped=by_error and math.isfinite(run.objective))


def _least_error(problem: Problem, both: Array, w: Array, start: Array | None, limit: int) -> tuple[int, bool, str]:
    """Return the number of iterations with the least expected error, whether it was found, and the reason in words."""
    where, whole, psf = "", both.shape, problem.operator.mean_blur.psf
    sides = watched_sides(psf)
    problem, both, w = cut(problem, both, w, side=sides, interior=True, most=2 if psf.ndim == 3 else None)
    if both.shape != whole:
        start, where = None, f" in {len(both) // 2} windows of {by(both.shape[2:])} pixels"
    run = _Run(problem, both, w, watched=True)
    step = watched_step(both.size, psf.ndim)
    middle = [
        slice(c.start + (n - min(n, side)) // 2, c.start + (n + min(n, side)) // 2, step)
        for c, n, side in zip(problem.operator.crop, both.shape[2:], sides, strict=True)
    ]
    kept: list[tuple[int, Array, float]] = []
    found, count, due = False, 0, 1
    for n in run.steps(start, last := round(1.5 * limit) + 4):
        at = n + run.ahead
        if at >= due:
            due = max(at + 1, round(1.1 * at))
            one, other = (run.point[(slice(i, None, 2), ..., *middle)] for i in range(2))
            now = run.xp.empty((2, *one.shape), one.dtype)
            for sign, out in zip((1, -1), now, strict=True):  # xy − ¾(x − y)² = ¼(x + y)² − (x − y)²
                combined(one, other, b=sign, out=out)
            kept.append((at, now, float(norms(now)[1] ** 2)))
            # Extrapolated by half of the move since n/1.5, since neither scene is at its end yet.
            end = combined(now, next(scenes for earlier, scenes, _ in kept if 1.5 * earlier >= at), 1.5, -0.5)
            errors = [noisy + norms(combined(end, scenes, b=-1)) ** 2 @ (0.25, -1) for _, scenes, noisy in kept]
            count = kept[int(np.argmin(errors))][0]
            kept = [one for one in kept if 2 * one[0] >= count]
            found = at >= 4 + 1.5 * count  # no better iteration is expected
        if not math.isfinite(run.objective) or found or n >= last or count >= limit:
            break
    if not found or count > limit:
        return limit, False, f"the expected error{where} falls up to iteration {limit}, the limit (max_iterations)"
    return count, True, f"the error is expected to be least after {count} iterations{where}"


def _darkest(problem: Problem, g: Array, w: Array, both: Array) -> float:
    """Return the level below which no scene pixel is taken to lie.

    Levels are tried downwards from the darkest local mean, while one of two images with independent noise predicts the
    other no worse, then half and a quarter of a step upwards. Long PSFs halve the resolution; large images use windows.
    """
    xp, blur, (low, high) = problem.xp, problem.operator.shift_invariant, problem.bounds or (0.0, math.inf)
    if blur is None:
        return low
    sizes = list(zip(blur.psf.shape, blur.image_shape, strict=True))
    halved = [i - len(sizes) for i, (m, n) in enumerate(sizes) if m >= 8 and n >= 2 * m]

    def coarse(x: Array) -> Array:
        for axis in halved:
            rest, end = (slice(None),) * (-1 - axis), x.shape[axis] // 2 * 2
            x = (x[(..., slice(0, end, 2), *rest)] + x[(..., slice(1, end, 2), *rest)]) / 2
        return x

    both, g, w = coarse(both), filled(g, problem.fidelity.weights), contiguous(coarse(xp.broadcast_to(w, g.shape)))
    padded = np.pad(blur.psf, [(0, m % 2 * (i - len(sizes) in halved)) for i, (m, _) in enumerate(sizes)])
    blur = Blur(coarse(padded) * 2 ** len(halved), both.shape[2:], str(blur.boundary))
    problem = replace(problem, operator=blur)
    light = combined(coarse(g), by=w)
    light = blur.adjoint(combined(light, w, b=-problem.fidelity.background, out=light), True)
    seen = blur.adjoint(w)
    least = g.dtype.type(0.9 * largest(seen))
    planes = [float(mean_of_light(light[at], seen[at], least).min()) for at in np.ndindex(light.shape[:-2])]
    highest = min(min(planes) / blur.dc_gain, high)
    del light, seen, g  # room for the runs
    if not low < highest:
        return low
    problem, both, w = cut(problem, both, w, side=watched_sides(blur.psf), interior=True, most=2)
    del blur  # with its spectrum
    one, other, w = (contiguous(x) for x in (both[::2], both[1::2], w[::2]))

    def unlikely(darkest: float) -> float:
        run = _Run(replace(problem, bounds=(darkest, high)), one, w, watched=True)
        divergences: list[float] = []
        for n in run.steps(None, 60):
            divergences.append(problem.fidelity.value(problem.operator.forward(run.point), other, w))
            if n >= min(60, 1.5 * int(np.argmin(divergences)) + 4):
                break
        return min(divergences)

    best, least = low, math.inf
    for level in np.linspace(low, highest, 9)[::-1].tolist():
        if not (found := unlikely(level)) <= least:
            break
        best, least = level, found
    for step in ((highest - low) / 16, (highest - low) / 32):  # parts of the last step
        if best + step <= highest and (found := unlikely(best + step)) <= least:
            best, least = best + step, found
    return best


def heavy_ball(k: int) -> float:
    """Return how far to extrapolate along the last move, in the k-th iteration since a restart."""
    return (k - 1) / (k + 2)


class _Run:
    """Frames (n, c, M, N) that take their steps together, and the loop over these steps.

    Attributes
    ----------
    point : (n, c, P, Q) array
        The scene after the last iteration.
    least_share : float
        The extrapolation keeps at least this share of a pixel's value.
    objective, change : float
        For `point`: the data term D, and the last iteration's relative change of the scene.
    ahead : int
        Number of iterations by which `point` is ahead of these numbers, if each iteration is `watched`.
    agreed, ended : float, bool
        Share of pixels that the last step moved by consensus; whether `point` is final since few pixels moved.
    """

    least_share = 0.1

    def __init__(self, problem: Problem, g: Array, w: Array, watched: bool = False) -> None:
        self.problem, self.g, self.xp = problem, g, problem.xp
        xp, shape = self.xp, (*g.shape[:2], *problem.operator.scene_shape)
        self.w = xp.broadcast_to(w, g.shape)
        self.bounds = problem.bounds or (0.0, math.inf)
        plain = problem.fidelity.weights is None
        self.mean = float(sum_of(g)) / g.size if plain else float(sum_of(self.w * g)) / float(sum_of(self.w))
        self.floor = g.dtype.type(np.finfo(g.dtype).eps * self.mean)
        # A copy: `adjoint` returns a view, which would keep the whole torus in memory.
        sensitivity = combined(problem.operator.adjoint(contiguous(w)))
        most = xp.asarray([largest(x) for x in sensitivity.reshape(-1, *shape[2:])], g.dtype)
        most = most.reshape(*sensitivity.shape[:2], *[1] * (len(shape) - 2))
        # Below the root of eps, rounding of the transforms would decide the quotient.
        sensitivity = without_small(sensitivity, most, np.sqrt(np.finfo(sensitivity.dtype).eps))
        self.sensitivity = xp.broadcast_to(sensitivity, shape)
        self.point: Array = None
        self.objective = self.change = self.agreed = math.inf
        self.consensus, self.few_agreed, self.ended = problem.stop.consensus and not watched, False, False
        self.watched, self.ahead = watched or self.consensus, int(problem.device.gpu is not None)
        if self.consensus:
            self.deviation = deviation(problem, g)[0] / xp.maximum(g, self.floor)
            self.signs = random_signs(g.shape, g.dtype, xp)

    def first(self, start: Array | None) -> Array:
        """Return the first scene: `start`, or the image's brightness; without zeros, which would remain."""
        level = max(self.mean - self.problem.fidelity.background, 0.01 * self.mean) / self.problem.operator.dc_gain
        low, high = self.bounds
        if start is None:
            scene = self.xp.empty(self.sensitivity.shape, self.g.dtype)
            stored(scene, scene.dtype.type(min(max(level, low), high)))
            return scene
        return contiguous(start.clip(max(1e-6 * level, low), high).reshape(self.sensitivity.shape))

    def ascent(self, ratio: Array) -> Array:
        """Return Hᵀ of w g/(Hf + b), which may be overwritten; with consensus, Hᵀw where two images disagree."""
        xp, operator, point, s = self.xp, self.problem.operator, self.point, self.sensitivity
        if not self.consensus:
            return operator.adjoint(ratio, True)
        self.signs = xp.roll(self.signs, ratio.shape[-1] + 1)  # new noise in each step
        half = operator.adjoint(self.deviation * self.signs * ratio)
        top, safe = operator.adjoint(ratio, True), xp.where(s > 0, s, 1)
        one, other = ((point * xp.maximum(top + x, 0) / safe).clip(*self.bounds) - point for x in (half, -half))
        product = one * other * s / xp.maximum(point, self.floor)
        agree = (operator.adjoint(operator.forward(product), True) > 0) & (product != 0)
        self.agreed = float(sum_of(agree.astype(s.dtype))) / agree.size
        self.few_agreed = self.agreed < 0.01
        top[...] = xp.where(agree, top, s)
        return top

    def steps(self, start: Array | None, limit: int, tolerance: float = 0.0) -> Iterator[int]:
        """Iterate to a change within `tolerance`, or to `limit`; yield each iteration's number once it is measured.

        On a GPU, `point` is valid after the last iteration only; if iterations are watched, it is one iteration ahead.
        """
        with block_map(self.problem, self.sensitivity.shape) as blocks:
            if self.problem.device.gpu is not None:
                steps: Any = richardson_lucy_gpu.GpuSteps(self, self.first(start), tolerance, limit)
            else:
                self.point = self.first(start)
                steps = _ArraySteps(self, self.point.copy(), blocks)
            n, before = 0, -1
            while n > before:
                before = n
                for self.objective, self.change in steps.iterate(n):
                    yield n
                    n += 1


class _ArraySteps:
    """The steps of a run as array operations; `deblur.solvers.richardson_lucy_gpu` has them as CUDA kernels."""

    def __init__(self, run: _Run, first: Array, blocks: BlockMap) -> None:
        self.run, self.blocks, self.f = run, blocks, first
        self.momentum, self.before, self.change = 0, math.inf, math.inf

    def iterate(self, n: int) -> Iterator[tuple[float, float]]:
        """Yield objective and change of the point, then compute the next point."""
        run, xp, operator = self.run, self.run.xp, self.run.problem.operator
        f, point, (low, high) = self.f, run.point, run.bounds
        background = run.g.dtype.type(run.problem.fidelity.background)
        expected = operator.forward(point)

        def compare(i: int, rows: slice) -> float:
            g, e, w = run.g[i, :, rows], expected[i, :, rows], run.w[i, :, rows]
            if background:
                e += background
            xp.maximum(e, run.floor, out=e)
            e_g = e - g
            quotient = g / e
            xp.log(xp.where(quotient > 0, quotient, 1), out=e)
            e *= g
            e += e_g
            e *= w
            divergence = float(e.sum(dtype=np.float64))
            xp.multiply(w, quotient, out=e)
            return divergence

        def advance(i: int, rows: slice) -> tuple[float, float]:
            up, p, old, s = (x[i, :, rows] for x in (top, point, f, run.sensitivity))
            xp.maximum(up, 0, out=up)
            up *= p
            new = xp.divide(up, s, out=p.copy(), where=s > 0)
            new.clip(low, high, out=new)
            moved = xp.subtract(new, old, out=up)
            squares = float((moved * moved).sum(dtype=np.float64)), float((new * new).sum(dtype=np.float64))
            old[...] = new
            # Not down to zero: multiplicative steps could not raise it again.
            moved *= new.dtype.type(heavy_ball(self.momentum))
            moved += new
            xp.maximum(moved, new.dtype.type(run.least_share) * new, out=p)
            p.clip(low, high, out=p)
            return squares

        divergence = math.fsum(self.blocks(compare, expected.shape[2]))
        run.ended = run.few_agreed
        yield divergence, self.change
        top = run.ascent(expected)
        self.momentum = 1 if divergence > self.before else self.momentum + 1
        self.before = divergence
        moved, size = map(math.fsum, zip(*self.blocks(advance, top.shape[2]), strict=True))
        self.change = math.sqrt(moved) / (math.sqrt(size) + float(run.floor))

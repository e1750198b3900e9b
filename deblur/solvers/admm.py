"""Method ADMM: each term has its own copy of its argument; each step is pixelwise or diagonal in frequency.

The problem is written with one split for each term,

    minimise D(W; v + b, g) + λ Σ_p R_p(u_p) + ι(z)   subject to   v = K x,  u_p = L_p x,  z = x ,

where x lives on a periodic domain around the scene, with lengths that suit the FFT, and K is the periodic blur on that
domain (`deblur.solvers.domain`). Frame, mask and weights enter the pixelwise step for v alone: outside the frame v is
free, and inside it K x equals H f exactly [1]_, [2]_. Nothing is assumed of the scene beyond the frame (boundary
"unknown"). A varying PSF is a weighted sum of blurs: K x holds all of these blurs, and the pixelwise step forms the
sum. If the scene is dark beyond the frame, z is held at 0 there. Differences that reach out of the scene are free, too.
If the boundary continues the scene by its own pixels, or if only products with H are known, x is the scene itself, and
conjugate gradients apply H.

One iteration in scaled form with penalty parameters ρ [3]_ has three steps: x solves the normal equations of all
splits; each argument is over-relaxed and added to the running sum of its residuals; its copy becomes the proximal map
of that sum.

References
----------
.. [1] M. S. C. Almeida, M. A. T. Figueiredo, Deconvolving images with unknown boundaries using the alternating
   direction method of multipliers, IEEE Trans. Image Process. 22 (2013) 3074-3086.
.. [2] A. Matakos, S. Ramani, J. A. Fessler, Accelerated edge-preserving image restoration without boundary
   artifacts, IEEE Trans. Image Process. 22 (2013) 2019-2029.
.. [3] S. Boyd, N. Parikh, E. Chu, B. Peleato, J. Eckstein, Distributed optimization and statistical learning via
   the alternating direction method of multipliers, Found. Trends Mach. Learn. 3 (2011) 1-122.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..device import Array, require_memory
from ..errors import ConvergenceError
from ..normalization import Scale
from ..norms import norms_of, shifted
from ..pool import pool
from ..problem import FLOAT64, Problem, Solution, history_of, peak
from ..terms import DIFFERENCES, REGULARIZERS
from ..threads import all_cores, cores
from . import admm_gpu
from .admm_arrays import ArraySteps
from .certificate import excess
from .domain import block_map, domain_of, splits
from .spectrum import diagonal
from .splits import Extrapolation, State, Steps


def refuses(problem: Problem) -> str | None:
    """Return None if the regularizer has a proximal map, else the reason in words."""
    known = problem.regularizer in REGULARIZERS
    return None if known else f"the regularizer {problem.regularizer!r} has no proximal map"


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes kept, and those of the x step and of the copies' update; see `deblur.problem`."""
    operator, frames, (image, scene, torus, kept, product) = problem.operator, problem.frames, problem.sizes
    regularizers = REGULARIZERS.get(problem.regularizer, ())
    kinds = [len(DIFFERENCES[p.differences](problem.axes)) for p in regularizers] or [0]
    boxed = problem.bounds is not None or operator.boundary.dark or not regularizers
    split, parts = splits(operator), 1 + len(operator.components[-1]) if splits(operator) else 1
    whole = operator.boundary.continued or not (split or operator.shift_invariant)  # x is the scene itself
    domain, w = scene if whole else torus, problem.fidelity.weights
    copies = 1 + 2 * (parts + sum(kinds) + boxed)  # x and two copies of each split's images
    # The right-hand side, x and its copies; the data, colours in two layouts, or hidden pixels cleared; weights or a
    # mask, and products.
    held = frames * (1 + copies) * domain
    held += frames * image * (1 + (problem.colours > 1 or w is not None)) + (0 if w is None else 2.2 * w.nbytes)
    if not whole:
        held += (parts + 1 + (parts + 1) * split) * domain  # K, |K|² and the step's inverse, and the weights of parts
        step = 2.0 * (parts + 1) * frames * domain  # K x before and after, and spectra
    else:
        iterates = not diagonal(operator)
        held += (2 + iterates) * domain + kept  # the power, the step's inverse, and the symbol
        # The vectors of conjugate gradients.
        step = frames * ((7.2 if iterates else 2) * domain + product) + 0.8 * domain * iterates
    # For each core a block with a border, its differences, the relaxed and new copies, and the proximal map's arrays. A
    # GPU's block is a volume; its images are updated by one kernel.
    each = max(2 * parts, sum(kinds) + 2 * max(kinds)) + 3
    block = math.inf if problem.axes == 3 and problem.device.gpu is not None else cores() << 19
    copied = frames * parts * domain + min(block, problem.colours * domain) * each
    return held, step, copied


class Admm:
    """The ADMM solver of a problem: its domain and regularizers; see `deblur.problem.Factor`.

    The symbols are computed when first used.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.domain = domain = domain_of(problem)
        self.regularizers = REGULARIZERS.get(problem.regularizer, ())
        self.boxed = problem.bounds is not None or domain.pinned or not self.regularizers

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Minimise for frames that share regularizers and stop together; see `deblur.problem.Factor`.

        Raises
        ------
        ConvergenceError
            If the iteration diverged.
        """
        scale = Scale.of_image(self.problem, g)
        state = start.state if start is not None and isinstance(start.state, State) else None
        # A start whose values differ by a factor of more than 256 is of no use.
        if state is not None and abs(state.scale.image - scale.image) <= 8:
            scale = state.scale
        else:
            state = None
        with self.steps(scale.near(self.problem), scale.down(g)) as steps:
            run = _Run(self, scale, steps, state)
            found = run.solution()
        if not run.rounded:
            return found
        more = Admm(self.problem.computed_in(FLOAT64)).solve(g.astype(np.float64))
        return replace(more, scene=more.scene.astype(g.dtype), why=f"{more.why}, in float64", state=None)

    @contextlib.contextmanager
    def steps(self, problem: Problem, g: Array, held: bool = False) -> Iterator[Steps]:
        """Yield the operations of one solve with their arrays; `held`: the box's copy is set from outside.

        Raises
        ------
        MemoryError
            If the arrays do not fit into free memory.
        """
        domain = self.domain
        frames, gpu = math.prod(g.shape[:2]), problem.device.gpu
        needed = int(peak(memory(replace(problem, frames=frames)))) - (0 if gpu is None else pool(gpu).nbytes)
        what = f"ADMM on {frames} frame(s) of {' x '.join(map(str, domain.shape))}"
        instead = "restore the frames one by one, or tiles of the image that overlap by the PSF's size"
        require_memory(needed, problem.xp, what, instead)
        if admm_gpu.serves(domain, problem, g):
            with admm_gpu.steps(domain, problem, g, held) as steps:
                yield steps
        else:
            with all_cores(), block_map(problem, (*g.shape[:2], *domain.shape)) as blocks:
                yield ArraySteps(self, problem, g, blocks, held)

    def fits(self, state: State, frames: tuple[int, ...]) -> bool:
        """Return whether a state belongs to frames (k, c) of this problem: equal shapes, dtype and number of splits."""
        kinds = [len(DIFFERENCES[p.differences](self.problem.axes)) for p in self.regularizers]
        return (
            state.x.shape == (*frames, *self.domain.shape)
            and state.x.dtype == self.problem.dtype
            and [len(split) for split in state.u] == [self.domain.parts, *kinds, *[1] * self.boxed]
        )


prepare = Admm


class Schedule:
    """Penalty parameters ρ and λ at the start, how both change, and the stopping rule.

    All numbers are relative to the image and the operator, so units do not matter. They determine the number of
    iterations, not the minimiser.

    Parameters
    ----------
    problem : Problem
        In units in which the image has size one.
    weight, level, scale : float
        The mean weight, the mean of |g|, and the standard deviation of the visible pixels.

    Attributes
    ----------
    rho : list of float
        ρ of each split: the data's, one for each regularizer, the box's.
    stiffest : float
        The λ up to which ρ of a regularizer grows with λ. A larger ρ moves flat areas too slowly.
    first_lam : float
        The first λ. A small λ is approached from a larger one.
    rtol : float
        Relative residual to stop at. 5e-3 is within 0.05 dB of the minimiser. If λ is so small that the data are
        followed almost exactly, even an image far from the minimiser may meet 5e-3, so 4e-4 is used.
    excess : float
        Allowed excess of the objective over its minimum, relative to the objective. It is infinite, so that the
        residuals alone decide, if the caller gives `rtol` and for large scenes, whose bound costs several iterations.
    least_share : float
        The least part of the objective that `excess` may be relative to. If λ is small, most of the objective may be
        a residual that no scene within the bounds removes, and the part that λ decides is tiny beside it.
    lagging : float
        ρ changes if one of a split's two residuals is this many times as large as the other. If λ is small, detail that
        the blur nearly removes comes back only if no ρ is larger than necessary.
    most : int
        Largest number of iterations.
    """

    def __init__(self, problem: Problem, weight: float, level: float, scale: float) -> None:
        fidelity, lam, gain, stop = problem.fidelity, problem.lam, problem.operator.norm_bound, problem.stop
        regularizers = REGULARIZERS.get(problem.regularizer, ())
        squares = any(p.norm == "square" for p in regularizers)
        weight = max(weight, float(np.finfo(problem.dtype).tiny))
        level = level + fidelity.background or scale  # of a black image
        curvature = {"poisson": weight / level, "l1": weight / (0.05 * scale)}.get(fidelity.name, weight)
        stiff = 1.0 if squares else 2 * gain / scale
        self.stiffest = curvature * gain**2 / stiff
        prior = stiff * min(lam, self.stiffest) or 1e-3 * curvature * gain**2
        self.rho = [0.1 * curvature, *[prior] * len(regularizers), 0.03 * curvature * gain**2]
        large = curvature * scale / gain
        small = 0 < lam < 1e-3 * large
        self.least_share = 1e-6 if small else 1.0
        self.first_lam = 1e-2 * large if small and not squares and fidelity.name != "l1" else lam
        self.rtol = stop.looser * (4e-4 if small else 5e-3) if stop.rtol is None else stop.rtol
        cheap = math.prod(problem.operator.scene_shape) <= 1 << 12
        above = stop.looser**2 * (2e-4 if fidelity.name == "l1" else 3e-4)
        self.excess = above if cheap and stop.rtol is None else math.inf
        self.lagging = 2.0 if small else 3.0
        self.most = (2000 if cheap else 500) if stop.max_iterations is None else stop.max_iterations

    def balanced(self, primal: float, dual: float) -> float:
        """Return the factor for a split's ρ: 2 if the primal residual is too large, ½ if the dual one is, else 1."""
        if primal > self.lagging * dual or dual > self.lagging * primal:
            return 2.0 if primal > dual else 0.5
        return 1.0


class _Run:
    """The loop of one solve.

    Attributes
    ----------
    rounded : bool
        Whether float64 is needed: the bound was not reached in float32, or only if its rounding is disregarded.
    """

    def __init__(self, factor: Admm, scale: Scale, steps: Steps, start: State | None) -> None:
        self.problem, self.scale, self.steps, self.domain = steps.problem, scale, steps, factor.domain
        self.schedule = Schedule(self.problem, *steps.measure())
        self.objective: list[float] = []
        self.worst: list[tuple[float, float]] = []  # the largest primal and dual residual
        if start is not None and factor.fits(start, steps.g.shape[:2]):
            steps.resume(start)
            self.lam, lam = start.lam, self.problem.lam
        else:
            steps.begin(self.schedule.rho)
            self.lam, lam = self.problem.lam, self.schedule.first_lam
        self.factor = factor
        self.past: list[tuple[int, Array]] = []  # scenes at the checks
        self._move_to(lam)

    def _move_to(self, lam: float) -> None:
        """Change λ: ρ of the regularizers and their duals scale with it."""
        if self.lam > 0 and lam > 0:
            ratio, most = lam / self.lam, self.schedule.stiffest
            stiffer = min(lam, most) / min(self.lam, most)
            for split in range(1, 1 + len(self.factor.regularizers)):
                self.steps.rho[split] *= ratio
                if stiffer != ratio:
                    self.steps.rescale(split, stiffer / ratio)
        self.lam = lam
        self._prepare()

    def _prepare(self) -> None:
        schedule = self.schedule
        armed = self.lam <= self.problem.lam and schedule.excess == math.inf
        # The certificate does not see errors of the step. A step with larger ones would stall above the minimum.
        self.steps.prepare(self.lam, schedule.rtol if schedule.excess == math.inf else 1e-4, armed)
        self.extrapolation = Extrapolation(self.steps)

    def solution(self) -> Solution:
        """Iterate to convergence or the largest number of iterations.

        The objective's excess decides, or in a large scene the residuals; see `Schedule`.
        """
        steps, schedule, problem = self.steps, self.schedule, self.problem
        sums: np.ndarray = np.zeros((0, 1, 5))
        n, converged, above, exact, away, check = 0, False, math.inf, 0.0, 0.0, 10
        bounded = schedule.excess < math.inf
        while not converged and n < schedule.most:
            falling = self.lam > problem.lam
            every = 8 if falling else 10
            steps.submit(min(every - n % every, schedule.most - n, steps.batch))
            self._record(sums)  # of the iterations before, while a GPU is busy
            sums, within = steps.collect()
            n += len(sums)
            # Checked at the same iterations on every device, although a GPU submits batches.
            if bounded and not falling and ((n >= check and n % every == 0) or n == schedule.most):
                check = 9 * n // 8
                above, exact, away = excess(self.factor, steps, float(sums[-1, :, 0].sum()), schedule.least_share)
                within = self._still(n) and above <= schedule.excess and away <= 1e-2
            converged = within
            if falling and n % every == 0:
                self._move_to(max(self.lam / 4, problem.lam))
            elif not falling and not converged and n % every == 0:
                if n <= 200 or (bounded and n % 50 == 0):
                    self._balance(sums[-1])
                if bounded and n < schedule.most:
                    self.extrapolation.advance()
        inexact = exact > 3 * schedule.excess if converged else bounded and problem.stop.max_iterations is None
        self.rounded = problem.dtype == np.float32 and inexact
        self._record(sums)
        state, (primal, dual) = steps.state(self.lam, self.scale), self.worst[-1]
        scene = state.x[(..., *self.domain.scene)]
        if problem.bounds is not None:
            scene = scene.clip(*problem.bounds)
        why = (
            f"the relative primal residual {primal:.1e} and dual residual {dual:.1e} after {n} iterations "
            f"are {'within' if converged else 'not yet within'} the tolerance {schedule.rtol:.1e}"
        )
        if bounded:
            share = "its value" if schedule.least_share == 1 else "its value or, if less, ten times the regularizer's"
            why = f"after {n} iterations the objective exceeds its minimum by at most {above:.1e} of {share}"
            why += f" (tolerance {schedule.excess:.1e})"
            why += f", and the image at most {away:.1e} of its norm from the minimiser (tolerance 1e-2)" if away else ""
            if not converged and above <= schedule.excess and away <= 1e-2:
                why += ", but the image still moves: the data and the regularizer hardly determine some of it"
        history = history_of(self.objective, *zip(*self.worst, strict=True))
        return Solution(self.scale.up(scene), n, converged, why, history, state)

    def _still(self, n: int) -> bool:
        """Return whether the scene has moved by at most 3e-3 of its norm during the last third of n iterations.

        Where the objective is flat, an image may be far from the minimiser although the objective is near its minimum.
        """
        x = self.steps.x[(..., *self.domain.scene)].copy()
        self.past.append((n, x))
        while len(self.past) > 1 and 3 * self.past[1][0] <= 2 * n:
            del self.past[0]
        before, old = self.past[0]
        moved, size = norms_of(x - old, x)
        return 3 * before <= 2 * n and moved <= 3e-3 * size

    def _balance(self, sums: np.ndarray) -> None:
        """Double ρ of a split whose primal residual is much larger than its dual one; halve it in the reverse case."""
        factors = [self.schedule.balanced(*pair) for pair in self.steps.relative(sums).tolist()]
        # Beside a much larger ρ, rounding hides the other splits' part of the normal equations.
        most = 1e-3 / np.finfo(self.problem.dtype).eps * self.schedule.rho[0]
        for split, factor in enumerate(factors):
            if factor != 1 and factor * self.steps.rho[split] <= most:
                self.steps.rescale(split, factor)
        if any(factor != 1 for factor in factors):
            self._prepare()

    def _record(self, sums: np.ndarray) -> None:
        """Add iterations to the history and report them.

        Raises
        ------
        ConvergenceError
            If a number is not finite.
        """
        values = shifted(sums[..., 0].sum(axis=1), self.scale.objective(self.problem)).tolist()
        residuals = self.steps.relative(sums)
        for value, pairs in zip(values, residuals, strict=True):
            if not (math.isfinite(value) and np.isfinite(pairs).all()):
                raise ConvergenceError(
                    f"ADMM diverged: the objective became {value} at iteration {len(self.worst) + 1}. Scale the "
                    "image to about [0, 1], use float64, or a larger λ"
                )
            self.objective.append(value)
            primal, dual = pairs.max(axis=0).tolist()
            self.worst.append((primal, dual))
            self.problem.stop.report(len(self.worst), max(primal, dual))


def first_frames(solution: Solution, count: int) -> Solution:
    """Return the solution for the first `count` frames alone, as a start for one solve, and empty the given one.

    A start by its state has no scene.
    """
    if not isinstance(state := solution.state, State):
        return replace(solution, scene=solution.scene[:count].copy())
    for split in (*state.u, *state.t):  # one after the other, so that few arrays exist twice
        split[:] = [a[:count].copy() for a in split]
    state = replace(state, x=state.x[:count].copy(), given_up=True)
    return replace(solution, scene=solution.scene[:0].copy(), state=state)

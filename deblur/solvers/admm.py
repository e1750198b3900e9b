"""ADMM: every term gets a copy of what it looks at, and each step is pixelwise or diagonal in frequency.

The problem is written with one split for each term,

    minimise D(W; v + b, g) + λ Σ_p R_p(u_p) + ι(z)   subject to   v = K x,  u_p = L_p x,  z = x ,

where x lives on a periodic domain around the scene, of lengths that the FFT likes, and K is the periodic blur
there (`deblur.solvers.domain`). The frame, the mask and the weights are part of the pixelwise step for v: outside
the frame v is free, and K x in the frame is H f exactly [1]_, [2]_. So nothing is assumed of the scene beyond the
frame (boundary "unknown"). A PSF that varies is a sum of blurs with weights: K x is all of these blurs, and the sum a
part of the pixelwise step. For a scene that is dark beyond the frame, z is held at 0. Differences that would reach out
of the scene are free likewise. Where the scene is continued by its own pixels, or nothing is known of H but its
products, x is the scene itself, and H enters by conjugate gradients.

One iteration, in scaled form with penalties ρ [3]_: x solves the normal equations of all splits; each copy is the
proximal map of what x shows it, over-relaxed, plus its running sum of residuals.

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

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..device import Array, all_cores, get_xp, require_memory
from ..norms import total as sum_of
from ..problem import Problem, Solution, Work
from ..terms import DIFFERENCES, PENALTIES, Difference, Penalty, inside
from . import admm_gpu
from .domain import Runner, domain_of, splits
from .schedule import (
    BALANCE_EVERY,
    BALANCE_UNTIL,
    FALL_EVERY,
    Record,
    Rho,
    balanced,
    first_lam,
    first_penalties,
    lagging,
    next_lam,
    tolerance,
)
from .splits import Split, State, relaxed, store, total
from .start import all_weights, first_scene
from .units import Units, in_units

_INNER = 1e-2  # residual of the conjugate gradients inside, over the tolerance
_FAR = 2.0**8  # a start whose values are so many times as large or small is none

# What `work` reckons with: iterations, and transforms in each.
_EXPECTED, _ON_TORUS, _ON_SCENE = 53, 4, 50


def refuses(problem: Problem) -> str | None:
    """None if the penalty has a proximal map, else the reason in words."""
    return None if problem.penalty in PENALTIES else f"the penalty {problem.penalty!r} has no proximal map"


def work(problem: Problem) -> Work:
    """An operation is a multiply-add of a transform, 2.5 n log2 n for the n pixels of the scene."""
    operator = problem.operator
    n = math.prod(operator.scene_shape)
    transform = 2.5 * n * math.log2(n + 1)
    if splits(operator):
        count = 2 * operator.terms + 2
    else:
        count = _ON_SCENE if operator.stationary is None or operator.boundary.continued else _ON_TORUS
    penalties = PENALTIES.get(problem.penalty, ())
    return Work(transform, _EXPECTED * count * transform, _bytes(problem, penalties, problem.frames * n))


def prepare(problem: Problem) -> Admm:
    """The domain, the symbols of the differences, and the weights on it."""
    return Admm(problem)


def _bytes(problem: Problem, penalties: tuple[Penalty, ...], pixels: int) -> int:
    parts = sum(len(DIFFERENCES[p.differences]) for p in penalties)
    boxed = problem.bounds is not None or problem.operator.boundary.dark or not penalties
    parts += 3 * (problem.operator.terms - 1) if splits(problem.operator) else 0
    return pixels * problem.dtype.itemsize * (12 + 2 * parts + 2 * boxed)


class Admm:
    """All of it that does not depend on the image."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.domain = domain = domain_of(problem)
        self.penalties = PENALTIES.get(problem.penalty, ())
        self.boxed = problem.bounds is not None or domain.pinned or not self.penalties

    @cached_property
    def symbols(self) -> list[Array]:
        """Σ|L|² of each penalty in frequency."""
        rows, cols = self.domain.rows, self.domain.cols
        return [sum(d.symbol(rows, cols) for d in DIFFERENCES[p.differences]) for p in self.penalties]

    @cached_property
    def weights(self) -> Array:
        """W as the frames have it."""
        return all_weights(self.problem)

    @cached_property
    def w(self) -> Array:
        """W on the domain, zero beyond the frame."""
        return self.on_domain(self.weights)

    def on_domain(self, part: Array) -> Array:
        """Images (k, c, M, N) laid into what K gives."""
        out = self.problem.xp.zeros((*part.shape[:2], *self.domain.data_shape), self.problem.dtype)
        out[(..., *self.domain.frame)] = part
        return out

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Minimise for frames that share penalties and stop together; see `deblur.problem.Factor`.

        Raises
        ------
        ConvergenceError
            If the iteration diverged.
        """
        units = in_units(self.problem, g)
        state = start.state if start is not None and isinstance(start.state, State) else None
        if state is not None:
            if 1 / _FAR <= state.unit / units.unit <= _FAR:
                units = in_units(self.problem, g, state.unit)
            else:
                state = None
        if admm_gpu.serves(self.domain, self.problem, g):
            return admm_gpu.solve(self.problem, self.domain, units, state)
        with all_cores():
            iteration = Iteration(self, units, state)
            try:
                return _solve(iteration)
            finally:
                iteration.run.close()


class Iteration:
    """The arrays of one solve and the steps on them."""

    def __init__(self, factor: Admm, units: Units, start: State | None = None) -> None:
        self.factor, self.units, self.domain = factor, units, factor.domain
        self.problem, self.xp, self.penalties = units.problem, units.problem.xp, factor.penalties
        problem, domain, g, w = self.problem, self.domain, units.g, factor.weights
        k, c = g.shape[:2]
        self.shape = (k, c, *domain.shape)
        require_memory(
            _bytes(problem, self.penalties, math.prod(self.shape)),
            problem.xp,
            f"ADMM on {k * c} frame(s) of {domain.shape[0]} x {domain.shape[1]}",
            "restore the frames one by one, or tiles of the image that overlap by the PSF's size",
        )
        self.run = Runner(problem, self.shape)
        self.free = not problem.operator.boundary.wraps  # differences that leave the scene are not counted
        self.g, self.w = factor.on_domain(g), factor.w
        self.scale = _scale(g, w)
        self.rho = self._first_penalties(g, w)
        self.lam = problem.lam
        self.rtol, self.ratio = tolerance(problem, self.large), lagging(problem, self.large)
        if start is not None and self._fits(start):
            self.state = start.copy(k)
            self.move_to(problem.lam)
            return
        self.lam = first_lam(problem, self.large)
        x = self._on_scene(first_scene(problem, g))
        kx = domain.blurred(x)
        u = [self._differences(x, p) for p in self.penalties]
        self.state = State(
            x,
            Split(kx, [v.copy() for v in kx], self.rho.data),
            [Split(v, [c.copy() for c in v], self.rho.prior) for v in u],
            Split([x.copy()], [x.copy()], self.rho.box) if factor.boxed else None,
            problem.lam,
            units.unit,
        )
        self.move_to(self.lam)

    # -- setting up --------------------------------------------------------------------------

    def _on_scene(self, scene: Array) -> Array:
        """The scene, continued over the rest of the domain: by zero where it is held there, else anyhow."""
        pads = [(0, n - p) for n, p in zip(self.domain.shape, scene.shape[-2:], strict=True)]
        return self.xp.pad(scene, [(0, 0), (0, 0), *pads], mode="constant" if self.domain.pinned else "edge")

    def _differences(self, x: Array, penalty: Penalty) -> list[Array]:
        p = self._block(x, 0, x.shape[-2])
        return [d.forward(p) for d in DIFFERENCES[penalty.differences]]

    def _first_penalties(self, g: Array, w: Array) -> Rho:
        """ρ of each split before any balancing."""
        rho, self.large = first_penalties(self.problem, float(w.mean()), float(abs(g).mean()), self.scale)
        return rho

    def _fits(self, start: State) -> bool:
        return (
            start.x.shape == self.shape
            and start.x.dtype == self.problem.dtype
            and len(start.data.u) == self.domain.parts
            and len(start.penalties) == len(self.penalties)
            and (start.box is not None) == self.factor.boxed
        )

    def move_to(self, lam: float) -> None:
        """Go on with another λ: the prior's penalties and duals are of its size, and scale with it."""
        if self.state.lam > 0 and lam > 0:
            for split in self.state.penalties:
                split.rho *= lam / self.state.lam
        self.lam = self.state.lam = lam

    # -- one iteration -----------------------------------------------------------------------

    def prepare(self) -> None:
        """Set the domain's step for the penalties as they stand."""
        state, symbol = self.state, 0 * (self.domain.rows + self.domain.cols)
        for part, split in zip(self.factor.symbols, state.penalties, strict=True):
            symbol = symbol + split.rho * part
        if state.box is not None:
            symbol = symbol + state.box.rho
        # Errors of the step add to the residuals that the iteration is judged by.
        self.step = self.domain.stepper(state.data.rho, symbol, _INNER * self.rtol, self.run)

    def advance(self, right: Array) -> list[Array]:
        """The next x into the state, and K x; `right` is room to work in."""
        self.state.x, kx = self.step(self.state.data.t, self._right(right), self.state.x)
        return kx

    def _block(self, x: Array, first: int, last: int, mode: str | None = None) -> Array:
        """Rows first to last of `x` with a border of one pixel, continued as the domain has it."""
        mode = mode or self.domain.border
        rows = x.shape[-2]
        out = self.xp.empty((*x.shape[:-2], last - first + 2, x.shape[-1] + 2), x.dtype)
        out[..., 1:-1, 1:-1] = x[..., first:last, :]
        for at, row, end in ((0, first - 1, first == 0), (-1, last, last == rows)):
            if not end or mode == "wrap":
                out[..., at, 1:-1] = x[..., row % rows, :]
            elif mode == "edge":
                out[..., at, 1:-1] = x[..., min(max(row, 0), rows - 1), :]
            else:
                out[..., at, 1:-1] = 0
        if mode == "wrap":
            out[..., 0], out[..., -1] = out[..., -2], out[..., 1]
        elif mode == "edge":
            out[..., 0], out[..., -1] = out[..., 1], out[..., -2]
        else:
            out[..., 0] = out[..., -1] = 0
        return out

    def _right(self, right: Array) -> Array:
        """Σ ρ Lᵀ(u − d) of all splits but the data's, written into `right`."""
        state = self.state

        def gather(i: int, rows: slice) -> None:
            out = right[i, :, rows]
            if state.box is not None:
                self.xp.multiply(state.box.t[0][i, :, rows], state.box.rho, out=out)
            else:
                out[...] = 0
            for penalty, split in zip(self.penalties, state.penalties, strict=True):
                for d, t in zip(DIFFERENCES[penalty.differences], split.t, strict=True):
                    mode = self.domain.border if d.even else self.domain.adjoint_border
                    out += split.rho * d.adjoint(self._block(t[i], rows.start, rows.stop, mode))

        self.run(gather, right.shape[-2])
        return right

    def copies(self, x: Array, kx: list[Array]) -> tuple[float, np.ndarray]:
        """Update every copy and its dual.

        Returns
        -------
        objective : float
            D + λR at the copies.
        residuals : (splits, 2) array
            Relative primal and dual residual of each split, in the order of `splits`.
        """
        state = self.state

        def priors(i: int, rows: slice) -> list:
            p = self._block(x[i], rows.start, rows.stop)
            found: list = []
            for penalty, split in zip(self.penalties, state.penalties, strict=True):
                kinds = DIFFERENCES[penalty.differences]
                a = [d.forward(p) for d in kinds]
                u = [v[i, :, rows] for v in split.u]
                t = [v[i, :, rows] for v in split.t]
                q = [relaxed(*parts) for parts in zip(a, u, t, strict=True)]
                free = [(n, e) for n, d in enumerate(kinds) for e in self._uncounted(d, rows)]
                kept = [q[n][e].copy() for n, e in free]
                for n, e in free:
                    q[n][e] = 0
                new = penalty.prox([v[None] for v in q], self.lam / split.rho)
                value = self.lam * penalty.total(new)
                new = [v[0] for v in new]
                for (n, e), v in zip(free, kept, strict=True):
                    q[n][e] = new[n][e] = v
                sums = [store(*parts) for parts in zip(a, u, t, q, new, strict=True)]
                found.append([value, [sum(column) for column in zip(*sums, strict=True)]])
            if state.box is not None:
                a, u, t = x[i, :, rows], state.box.u[0][i, :, rows], state.box.t[0][i, :, rows]
                q = relaxed(a, u, t)
                new = self._boxed(q, rows)
                found.append([0.0, store(a, u, t, q, new)])
            return found

        value, residuals = self.copy_data(kx)
        totals = total(self.run(priors, x.shape[-2]))
        return value + sum(v for v, _ in totals), np.array(
            [residuals, *(self._relative(s) for _, s in totals)]
        )

    def copy_data(self, kx: list[Array]) -> tuple[float, tuple[float, float]]:
        """Update the copy of K x: (D, (relative primal and dual residual))."""
        split = self.state.data

        def data(i: int, rows: slice) -> list:
            g, w = self.g[i, :, rows], self.w[i % len(self.w), :, rows]
            parts = [[v[i, :, rows] for v in kind] for kind in (kx, split.u, split.t)]
            q = [relaxed(*part) for part in zip(*parts, strict=True)]
            if not self.domain.mixed:
                [seen] = new = [self.problem.fit.prox(q[0], g, w, split.rho)]
            else:
                # The data see Σ m q alone, and what moves it is spread over all q as m is.
                mixed = [m[rows] for m in self.domain.mixed]
                power = self.domain.mixed_power[rows]
                before = sum(m * v for m, v in zip(mixed, q, strict=True))
                seen = self.problem.fit.prox(before, g, w, split.rho / power)
                move = (seen - before) / power
                new = [v + m * move for m, v in zip(mixed, q, strict=True)]
            value = self.problem.fit.total(seen, g, w)
            sums = [store(*part) for part in zip(*parts, q, new, strict=True)]
            return [[value, [sum(column) for column in zip(*sums, strict=True)]]]

        [(value, sums)] = total(self.run(data, kx[0].shape[-2]))
        return value, self._relative(sums)

    def _relative(self, sums: list[float]) -> tuple[float, float]:
        """Relative primal and dual residual from ‖a − u‖², ‖u − u before‖², ‖a‖², ‖u‖²."""
        primal, dual, seen, copy = sums
        floor = (np.finfo(self.problem.dtype).eps * self.scale) ** 2 * math.prod(self.shape)
        size = max(seen, copy, floor)
        return math.sqrt(primal / size), math.sqrt(dual / size)

    def _uncounted(self, difference: Difference, rows: slice) -> Iterator[tuple[slice, slice, slice]]:
        """The parts of a block at which a difference would reach out of the scene."""
        if not self.free:
            return
        r, c = inside(difference, self.problem.operator.scene_shape)
        every = slice(None)
        height = rows.stop - rows.start
        top, bottom = (min(max(n - rows.start, 0), height) for n in (r.start, r.stop))
        if top:
            yield every, slice(0, top), every
        if bottom < height:
            yield every, slice(bottom, height), every
        if c.start:
            yield every, every, slice(0, c.start)
        if c.stop < self.shape[-1]:
            yield every, every, slice(c.stop, self.shape[-1])

    def _boxed(self, q: Array, rows: slice) -> Array:
        """The nearest point of the bounds, in the scene; beyond it, 0 where it is held there and `q` else."""
        r, c = self.domain.scene
        height = min(max(r.stop - rows.start, 0), rows.stop - rows.start)
        new = self.xp.zeros_like(q) if self.domain.pinned else q.copy()
        part = q[..., :height, c]
        new[..., :height, c] = part if self.problem.bounds is None else part.clip(*self.problem.bounds)
        return new

    def splits(self) -> list[Split]:
        """All splits, in the order of the residuals."""
        box = [self.state.box] if self.state.box is not None else []
        return [self.state.data, *self.state.penalties, *box]

    def balance(self, residuals: np.ndarray) -> None:
        """Raise the penalty of a split whose primal residual lags behind its dual one, and the reverse."""
        moved = False
        for split, (primal, dual) in zip(self.splits(), residuals, strict=True):
            factor = balanced(primal, dual, self.ratio)
            if factor != 1:
                split.rescale(factor)
                moved = True
        if moved:
            self.prepare()


def _scale(g: Array, w: Array) -> float:
    """The standard deviation of what is visible of the image, or its size if it is constant."""
    w = get_xp(g).broadcast_to((w > 0).astype(g.dtype), g.shape)
    count = float(sum_of(w))
    mean = float(sum_of(w * g)) / count
    deviation = math.sqrt(float(sum_of(w * (g - mean) ** 2)) / count)
    return deviation if deviation > 1e-6 * abs(mean) else abs(mean) or 1.0


def _solve(it: Iteration) -> Solution:
    problem, state = it.problem, it.state
    it.prepare()
    record = Record(problem, it.units, it.rtol)
    right = it.xp.empty(it.shape, problem.dtype)
    converged = False
    for n in range(1, record.most + 1):
        kx = it.advance(right)
        value, residuals = it.copies(state.x, kx)
        record.see(value, residuals)
        if it.lam > problem.lam:
            if n % FALL_EVERY == 0:
                it.move_to(next_lam(problem, it.lam))
                it.prepare()
            continue
        converged = bool(residuals.max() <= it.rtol)
        if converged:
            break
        if n % BALANCE_EVERY == 0 and n <= BALANCE_UNTIL:
            it.balance(residuals)
    return record.solution(state.x[(..., *it.domain.scene)], converged, state)


def first_frames(solution: Solution, count: int) -> Solution:
    """The solution of the first `count` frames, to begin from where they are solved alone."""
    state = solution.state.copy(count) if isinstance(solution.state, State) else None
    return replace(solution, scene=solution.scene[:count].copy(), state=state)

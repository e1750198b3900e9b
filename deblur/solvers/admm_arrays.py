"""ADMM's steps as array operations, for every domain, in NumPy and CuPy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ..device import Array, get_xp, is_cupy
from ..norms import squares, total as sum_of
from ..pixelwise import fused
from ..problem import Problem
from ..terms import DIFFERENCES, Difference, Regularizer, inside
from .domain import BlockMap
from .splits import RELAXATION, State, Steps
from .start import all_weights, first_scene

if TYPE_CHECKING:
    from .admm import Admm


class ArraySteps(Steps):
    """See `Steps`. A `held` box is set from outside; beyond the scene, where nothing constrains it, it follows x."""

    def __init__(self, factor: Admm, problem: Problem, g: Array, blocks: BlockMap, held: bool) -> None:
        self.factor, self.problem, self.xp, self.g = factor, problem, problem.xp, g
        self.domain, self.blocks, self.held = factor.domain, blocks, held
        self.shape = (*g.shape[:2], *self.domain.shape)
        self.w = all_weights(problem)
        self.right = self.xp.empty(self.shape, self.problem.dtype)
        # Count all differences, also those that reach out of the scene.
        self.counted = problem.operator.boundary.wraps

    def statistics(self) -> tuple[float, float, float, float]:
        g, w = self.g, all_weights(self.problem)
        visible = self.xp.broadcast_to((w > 0).astype(g.dtype), g.shape)
        count = float(sum_of(visible))
        mean = float(sum_of(visible * g)) / count
        deviation = math.sqrt(float(sum_of(visible * (g - mean) ** 2)) / count)
        return float(w.mean()), float(abs(g).mean()), mean, deviation

    def begin(self, rho: list[float]) -> None:
        scene = first_scene(self.problem, self.g)
        pads = [(0, n - p) for n, p in zip(self.domain.shape, scene.shape[2:], strict=True)]
        self.x = x = self.xp.pad(scene, [(0, 0), (0, 0), *pads], mode="constant" if self.domain.pinned else "edge")
        block = self._block(x, 0, x.shape[2])
        self.u = [
            self.domain.blurred(x),
            *([d.forward(block) for d in self._stencils(p)] for p in self.factor.regularizers),
            *([[x.copy()]] if self.factor.boxed else []),
        ]
        self.t = [[a.copy() for a in split] for split in self.u]
        self.rho = rho[: len(self.u)]

    def resume(self, state: State) -> None:
        state = state if state.given_up else state.copy(len(self.g))
        self.x, self.u, self.t, self.rho = state.x, state.u, state.t, state.rho

    def prepare(self, lam: float, rtol: float, armed: bool) -> None:
        self.lam, self.tolerance = lam, rtol if armed else -1.0
        symbol: Array = 0 * sum(self.domain.squares)
        for regularizer, rho in zip(self.factor.regularizers, self.rho[1:], strict=False):
            symbol = symbol + rho * self.domain.symbol(regularizer.differences)
        if self.factor.boxed:
            symbol = symbol + self.rho[-1]
        # Errors of the step add to the residuals that decide when to stop.
        self.step = self.domain.stepper(self.rho[0], symbol, 1e-2 * rtol, self.blocks)

    def submit(self, count: int) -> None:
        self.count = count

    def collect(self) -> tuple[np.ndarray, bool]:
        rows: list[np.ndarray] = []
        for _ in range(self.count):
            self.x, kx = self.step(self.t[0], self._right_side(), self.x)
            rows.append(np.concatenate([self._update_data(kx), self._update_others()]))
            if bool(self.relative(rows[-1]).max() <= self.tolerance):
                return np.array(rows), True
        return np.array(rows), False

    def rescale(self, split: int, factor: float) -> None:
        self.rho[split] *= factor
        for u, t in zip(self.u[split], self.t[split], strict=True):
            t[...] = u + (t - u) * (1 / factor)

    # -- the steps ---------------------------------------------------------------------------

    def _stencils(self, regularizer: Regularizer) -> tuple[Difference, ...]:
        return DIFFERENCES[regularizer.differences](self.problem.axes)

    def _block(self, x: Array, first: int, last: int, mode: str | None = None) -> Array:
        """Return rows first to last of `x` with a border of one pixel, continued by the domain's rule or by `mode`."""
        mode, axes = mode or self.domain.border, self.problem.axes
        front, (rows, *rest) = x.shape[: x.ndim - axes], x.shape[x.ndim - axes :]
        inner = (slice(1, -1),) * (axes - 1)
        out = self.xp.empty((*front, last - first + 2, *(n + 2 for n in rest)), x.dtype)
        along = [slice(None)] * len(front)
        out[(..., slice(1, -1), *inner)] = x[(*along, slice(first, last))]
        for at, row in ((0, first - 1), (-1, last)):
            near = row % rows if mode == "wrap" else min(max(row, 0), rows - 1)
            out[(*along, at, *inner)] = 0 if mode == "constant" and near != row else x[(*along, near)]
        for axis in range(1, axes):
            line = out.swapaxes(axis - axes, 0)
            line[0], line[-1] = {"wrap": (line[-2], line[1]), "edge": (line[1], line[-2]), "constant": (0, 0)}[mode]
        return out

    def _right_side(self) -> Array:
        """Return Σ ρ Lᵀ(u − d) over all splits except the data's."""

        def gather(i: int, rows: slice) -> None:
            out = self.right[i, :, rows]
            if self.factor.boxed:
                self.xp.multiply(self.t[-1][0][i, :, rows], self.rho[-1], out=out)
            else:
                out[...] = 0
            for p, regularizer in enumerate(self.factor.regularizers, 1):
                for d, t in zip(self._stencils(regularizer), self.t[p], strict=True):
                    mode = self.domain.border if d.even else self.domain.adjoint_border
                    _add(out, d.adjoint(self._block(t[i], rows.start, rows.stop, mode)), t.dtype.type(self.rho[p]))

        self.blocks(gather, self.shape[2])
        return self.right

    def _update_data(self, kx: list[Array]) -> np.ndarray:
        """Update the copy of K x and its dual; return the data split's five sums (see `Steps.collect`)."""
        rho, fidelity, domain = self.rho[0], self.problem.fidelity, self.domain

        def data(i: int, rows: slice) -> list:
            a, u, t = ([v[i, :, rows] for v in kind] for kind in (kx, self.u[0], self.t[0]))
            q = [_relaxed(*parts) for parts in zip(a, u, t, strict=True)]
            new = [v.copy() for v in q]  # kept beyond the frame, where there are no data
            top, sides = range(domain.data_shape[0])[domain.frame[0]], domain.frame[1:]
            first, last = max(rows.start, top.start), min(rows.stop, top.stop)
            if first >= last:
                return [[0.0, *_stored(a, u, t, q, new)]]
            here, image = (slice(first, last), *sides), slice(first - top.start, last - top.start)
            at = (slice(None), slice(first - rows.start, last - rows.start), *sides)
            g, w = self.g[i, :, image], self.w[i % len(self.w), :, image]
            if not domain.mixed:
                seen = new[0][at] = fidelity.prox(q[0][at], g, w, rho)
            else:
                # The data depend on Σ m q alone. Its change is spread over the parts q in proportion to m.
                mixed, power = [m[here] for m in domain.mixed], domain.mixed_power[here]
                before = sum(m * v[at] for m, v in zip(mixed, q, strict=True))
                seen = fidelity.prox(before, g, w, rho / power)
                move = (seen - before) / power
                for m, v in zip(mixed, new, strict=True):
                    v[at] += m * move
            return [[fidelity.total(seen, g, w), *_stored(a, u, t, q, new)]]

        return _totals(self.blocks(data, kx[0].shape[2]))

    def _update_others(self) -> np.ndarray:
        """Update the copies of differences and box and their duals; return the five sums of each of their splits."""
        regularizers, x = self.factor.regularizers, self.x

        def priors(i: int, rows: slice) -> list:
            block = self._block(x[i], rows.start, rows.stop)
            found: list = []
            for p, regularizer in enumerate(regularizers, 1):
                kinds = self._stencils(regularizer)
                a = [d.forward(block) for d in kinds]
                u, t = ([v[i, :, rows] for v in kind] for kind in (self.u[p], self.t[p]))
                q = [_relaxed(*parts) for parts in zip(a, u, t, strict=True)]
                free = [(n, e) for n, d in enumerate(kinds) for e in self._uncounted(d, rows)]
                kept = [q[n][e].copy() for n, e in free]
                for n, e in free:
                    q[n][e] = 0
                new = regularizer.prox([v[None] for v in q], self.lam / self.rho[p])
                value = self.lam * regularizer.total(new)
                new = [v[0] for v in new]
                for (n, e), v in zip(free, kept, strict=True):
                    q[n][e] = new[n][e] = v
                found.append([value, *_stored(a, u, t, q, new)])
            if self.factor.boxed and not self.held:
                a, u, t = ([v[i, :, rows]] for v in (x, self.u[-1][0], self.t[-1][0]))
                q = [_relaxed(a[0], u[0], t[0])]
                found.append([0.0, *_stored(a, u, t, q, [self._boxed(q[0], rows)])])
            return found

        if not self.held:
            return _totals(self.blocks(priors, x.shape[2]))
        if not self.domain.pinned:
            t, scene = self.t[-1][0], (..., *self.domain.scene)
            inner = t[scene].copy()
            t[...] = x
            t[scene] = inner
        return np.zeros((1, 5))

    def _uncounted(self, difference: Difference, rows: slice) -> Iterator[tuple[slice, ...]]:
        """Yield the parts of a block in which a difference would reach out of the scene."""
        if self.counted:
            return
        counted = inside(difference, self.problem.operator.scene_shape)
        block = [(rows.start, rows.stop), *((0, n) for n in self.shape[3:])]
        for axis, (where, (first, last)) in enumerate(zip(counted, block, strict=True)):
            start, stop = (min(max(n, first), last) - first for n in (where.start, where.stop))
            before = (slice(None),) * (1 + axis)
            if start:
                yield *before, slice(0, start)
            if stop < last - first:
                yield *before, slice(stop, last - first)

    def _boxed(self, q: Array, rows: slice) -> Array:
        """Return q projected on the bounds inside the scene; beyond it, 0 if the domain is pinned, else q."""
        r, *rest = self.domain.scene
        height = min(max(r.stop - rows.start, 0), rows.stop - rows.start)
        new = self.xp.zeros_like(q) if self.domain.pinned else q.copy()
        here = (slice(None), slice(height), *rest)
        new[here] = q[here] if self.problem.bounds is None else q[here].clip(*self.problem.bounds)
        return new


@fused
def _add(_xp: ModuleType, out: Array, x: Array, by: Array) -> None:
    out += by * x


@fused
def _relaxed(_xp: ModuleType, a: Array, u: Array, t: Array) -> Array:
    """Return q = α a + (1 − α) u + d, the over-relaxed argument of the proximal map, from t = u − d."""
    q = RELAXATION * a
    q += (2 - RELAXATION) * u
    q -= t
    return q


@fused
def _moved(xp: ModuleType, a: Array, u: Array, t: Array, q: Array, new: Array) -> None:
    """Store the new copy in u and t = u − d = 2u − q; turn `q` into the dual and `new` into the primal residual."""
    xp.multiply(new, 2, out=t)
    t -= q
    xp.subtract(u, new, out=q)
    u[...] = new
    new -= a


def _stored(a: list[Array], u: list[Array], t: list[Array], q: list[Array], new: list[Array]) -> list:
    """Store the new copies, and return ‖a − u‖², ‖u − u before‖², ‖a‖² and ‖u‖² of the split."""
    sums = [0, 0, 0, 0]
    for seen, copy, shown, dual, primal in zip(a, u, t, q, new, strict=True):
        _moved(seen, copy, shown, dual, primal)
        sums = [s + _square(v) for s, v in zip(sums, (primal, dual, seen, copy), strict=True)]
    return sums


def _square(x: Array) -> Array:
    if is_cupy(x):
        return squares(x)
    # Not BLAS's dot: from 10000 elements on it starts its own threads, which would wait for ours, and ours for them.
    every = [*range(x.ndim)]
    return np.einsum(x, every, x, every, [])


def _totals(blocks: list[list[list]]) -> np.ndarray:
    """Return the sums (splits, 5) over all blocks, in float64 on the host, after one synchronisation with a GPU."""
    flat = [number for block in blocks for row in block for number in row]
    on_gpu = [x for x in flat if is_cupy(x)]
    if on_gpu:
        found = iter(get_xp(*on_gpu).stack([x.astype(np.float64) for x in on_gpu]).tolist())
        flat = [next(found) if is_cupy(x) else x for x in flat]
    return np.array(flat, np.float64).reshape(len(blocks), -1, 5).sum(axis=0)

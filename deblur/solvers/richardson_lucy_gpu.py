"""The steps of Richardson-Lucy on the GPU: launches of ``cuda/richardson_lucy.cu`` and the operator's products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array
from ..graphs import captured

KEPT = 0.1  # the extrapolation takes no pixel below this fraction of its value

_SIZES = kernels.Constants("richardson_lucy")
_BLOCKS = 4  # of a launch, on each multiprocessor


class StepsOnGPU:
    """Like the NumPy steps of a run, but that the numbers of a move are read with those of the next point."""

    def __init__(self, run: Any, f: Array, expected: bool) -> None:
        import cupy

        self._run, self._f, self._wanted = run, f, expected
        self._g, self._w, self._seen, self._sensitivity = map(
            cupy.ascontiguousarray, (run.g, run.w, run.seen.view(np.uint8), run.sensitivity)
        )
        most = _BLOCKS * kernels.properties(f.device.id).multiprocessors
        self._blocks = min(most, -(-f[0].size // _SIZES.THREADS))
        self._sums = cupy.zeros(_SIZES.SUMS, np.float64)
        self._partial = cupy.empty(_SIZES.SUMS * self._blocks, np.float64)
        self._ticket = cupy.zeros(1, np.uint32)
        self._ratio = cupy.empty_like(self._g)
        self._step: Array | None = None
        self._moved = False

    def _launch(self, name: str, *args: Any) -> None:
        kernels.launch("richardson_lucy", name, self._blocks, _SIZES.THREADS, *args, dtype=self._f.dtype)

    def expect(self, point: Array) -> tuple[Array, float, float]:
        """What the scene should have given, the counts' divergence from it, and the last move's relative change."""
        import cupy

        run, view = self._run, _planes(self._run.operator.forward(point))
        expected = cupy.empty_like(self._g) if self._wanted else None
        self._launch(
            "expect", *view, self._g, self._w, run.background, run.floor, self._ratio, expected, None, self._sums,
            self._partial, self._ticket,
        )  # fmt: skip
        divergence, _, _, moved, size = self._sums.tolist()
        change = math.sqrt(moved) / (math.sqrt(size) + run.floor) if self._moved else math.inf
        return expected, divergence, change

    def move(self, point: Array, near: Array | None, v: Array | None, afresh: bool) -> Array:
        """The next point; `afresh` if it is not to be extrapolated by the step before this one."""
        import cupy

        run, (low, high), old = self._run, self._run.bounds, self._f
        last_step = None if afresh else self._step
        self._f, self._step, move = (cupy.empty_like(old) for _ in range(3))
        self._launch(
            "advance", *_planes(run.operator.adjoint(self._ratio)), point, old, self._seen, self._sensitivity,
            near, v, run.problem.lam, low, high, last_step, self._f, move, self._step, None,
            self._sums, self._partial, self._ticket,
        )  # fmt: skip
        self._moved = True
        if last_step is None:
            return self._f
        point = cupy.empty_like(old)
        self._launch("extrapolate", point, self._f, move, old.size, KEPT, low, high, None, self._sums)
        return point

    def go(self, point: Array, tolerance: float, limit: int) -> Iterator[tuple[Array, float, float]]:
        """Iterate without total variation, by a captured graph, until a move's relative change is within the tolerance.

        Yields
        ------
        point, divergence, change
            Of every iteration; the point is that of the last only.
        """
        import cupy

        current = cupy.cuda.get_current_stream()
        # What the graph's products write to, and their plans, belong to it alone.
        own, pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
        control = np.zeros(_SIZES.CONTROL + 2 * _SIZES.BATCH)
        control[_SIZES.TOLERANCE], control[_SIZES.LIMIT], control[_SIZES.FLOOR] = (
            tolerance,
            limit,
            self._run.floor,
        )
        self._control = cupy.asarray(control)
        point, self._f = point.copy(), self._f.copy()
        self._step, self._move = cupy.zeros_like(point), cupy.empty_like(point)
        own.wait_event(current.record())
        with cupy.cuda.using_allocator(pool.malloc):
            with own:
                self._iterate(point)
            current.wait_event(own.record())
            graph = captured(lambda: self._iterate(point), own)
        n, done = 0, False
        while not done:
            for _ in range(min(_SIZES.BATCH, limit + 1 - n) - (n == 0)):
                if graph is None:
                    self._iterate(point)
                else:
                    graph.launch(current)
            control = self._control.get()
            now, done = int(control[_SIZES.COUNT]), bool(control[_SIZES.DONE])
            records = control[_SIZES.CONTROL :].reshape(-1, 2)
            for i in range(n, now):
                yield point, *records[i % _SIZES.BATCH].tolist()
            n = now

    def _iterate(self, point: Array) -> None:
        run, (low, high) = self._run, self._run.bounds
        self._launch(
            "expect", *_planes(run.operator.forward(point)), self._g, self._w, run.background, run.floor, self._ratio,
            None, self._control, self._sums, self._partial, self._ticket,
        )  # fmt: skip
        self._launch(
            "advance", *_planes(run.operator.adjoint(self._ratio)), point, self._f, self._seen, self._sensitivity,
            None, None, 0.0, low, high, self._step, self._f, self._move, self._step, self._control, self._sums,
            self._partial, self._ticket,
        )  # fmt: skip
        self._launch(
            "extrapolate", point, self._f, self._move, point.size, KEPT, low, high, self._control, self._sums
        )


def _planes(x: Array) -> tuple[Array, int, int, int, int, int]:
    """Images (c, M, N), contiguous or a part of larger ones, as the kernels take them."""
    planes, rows, cols = x.shape
    return x, x.strides[1] // x.itemsize, x.strides[0] // x.itemsize, planes, rows, cols

"""The steps of Richardson-Lucy on the GPU: launches of ``cuda/richardson_lucy.cu`` and the operator's products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array

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
            "expect", *view, self._g, self._w, run.background, run.floor, self._ratio, expected, self._sums,
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
        self._f, self._step = cupy.empty_like(old), cupy.empty_like(old)
        self._launch(
            "advance", *_planes(run.operator.adjoint(self._ratio)), point, old, self._seen, self._sensitivity,
            near, v, run.problem.lam, low, high, last_step, self._f, self._step, self._sums, self._partial,
            self._ticket,
        )  # fmt: skip
        self._moved = True
        if last_step is None:
            return self._f
        point = cupy.empty_like(old)
        self._launch("extrapolate", point, self._f, old, old.size, KEPT, low, high, self._sums)
        return point


def _planes(x: Array) -> tuple[Array, int, int, int, int, int]:
    """Images (c, M, N), contiguous or a part of larger ones, as the kernels take them."""
    planes, rows, cols = x.shape
    return x, x.strides[1] // x.itemsize, x.strides[0] // x.itemsize, planes, rows, cols

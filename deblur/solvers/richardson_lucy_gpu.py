"""Richardson-Lucy without total variation on the GPU: three launches of ``cuda/richardson_lucy.cu`` and two products.

An iteration is captured as a CUDA graph once a run and replayed (`deblur.graphs.Loop`); the host looks at the numbers
every few iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array
from ..graphs import Loop

_AT = kernels.Constants("richardson_lucy")
_BLOCKS = 4  # of a launch, on each multiprocessor
_EAGER = 3  # iterations before it pays to capture one


def steps(
    run: Any, first: Array, kept: float, tolerance: float, limit: int
) -> Iterator[tuple[int, float, float, float]]:
    """Iterate until a move's relative change is within the tolerance, `limit` is reached or numbers are not finite.

    Parameters
    ----------
    run : deblur.solvers.richardson_lucy._Run
        Its `point` is that of the last iteration of all, when that is given.
    first : (n, c, P, Q) array
        Where to begin.
    kept : float
        The extrapolation takes no pixel below this fraction of its value.

    Yields
    ------
    n, divergence, change, misses : int, float, float, float
        Of every iteration, a few at a time.
    """
    iteration = _Iteration(run, first, kept, tolerance, limit)
    loop = Loop(_EAGER)
    n, done = 0, False
    while not done:
        for _ in range(min(_AT.BATCH if n else _EAGER, limit + 1 - n)):  # a few may be enough
            loop(iteration)
        control = iteration.control.get()
        now, done = int(control[_AT.COUNT]), bool(control[_AT.DONE])
        records = control[_AT.CONTROL :].reshape(-1, _AT.RECORD)
        for i in range(n, now):
            divergence, change, misses = records[i % _AT.BATCH].tolist()
            yield i, divergence, change, misses
        n = now


class _Iteration:
    """The arrays of a run, and an iteration on them."""

    def __init__(self, run: Any, first: Array, kept: float, tolerance: float, limit: int) -> None:
        import cupy

        self._run, self._kept, self._point = run, kept, run.point
        self._point[...] = first
        self._f, self._move, self._step = first.copy(), cupy.empty_like(first), cupy.zeros_like(first)
        self._g, self._w, seen, self._sensitivity = map(
            cupy.ascontiguousarray, (run.g, run.w, run.seen, run.sensitivity)
        )
        self._seen = seen.view(np.uint8)
        self._held = None if run.held is None else cupy.ascontiguousarray(run.held)
        self._ratio = cupy.empty_like(self._g)
        control = np.zeros(_AT.CONTROL + _AT.BATCH * _AT.RECORD)
        control[_AT.TOLERANCE], control[_AT.LIMIT], control[_AT.FLOOR] = tolerance, limit, run.floor
        self.control = cupy.asarray(control)
        most = _BLOCKS * kernels.properties(first.device.id).multiprocessors
        self._blocks = min(most, -(-first[0, 0].size // _AT.THREADS))
        self._sums = cupy.zeros(_AT.SUMS, np.float64)
        self._partial = cupy.empty(_AT.SUMS * self._blocks, np.float64)
        self._ticket = cupy.zeros(1, np.uint32)

    def __call__(self) -> None:
        run, (low, high) = self._run, self._run.bounds
        operator, background = run.problem.operator, run.problem.fit.background
        self._launch(
            "expect", *_planes(operator.forward(self._point)), self._g, self._w, self._held, background, run.floor,
            self._ratio, self.control, self._sums, self._partial, self._ticket,
        )  # fmt: skip
        self._launch(
            "advance", *_planes(operator.adjoint(self._ratio)), self._point, self._seen, self._sensitivity, low, high,
            self._f, self._move, self._step, self.control, self._sums, self._partial, self._ticket,
        )  # fmt: skip
        self._launch(
            "extrapolate", self._point, self._f, self._move, self._f.size, self._kept, low, high, self.control,
            self._sums,
        )  # fmt: skip

    def _launch(self, name: str, *args: Any) -> None:
        kernels.launch("richardson_lucy", name, self._blocks, _AT.THREADS, *args, dtype=self._f.dtype)


def _planes(x: Array) -> tuple[Array, int, int, int, int, int]:
    """Images (n, c, M, N), contiguous or a part of larger ones, as the kernels take them."""
    import cupy

    x = x.reshape(-1, *x.shape[-2:])
    if x.strides[2] != x.itemsize:
        x = cupy.ascontiguousarray(x)
    planes, rows, cols = x.shape
    return x, x.strides[1] // x.itemsize, x.strides[0] // x.itemsize, planes, rows, cols

"""Richardson-Lucy on the GPU: three launches of ``cuda/richardson_lucy.cu`` and two products.

An iteration is captured as a CUDA graph once a run and replayed (`deblur.graphs.Loop`); the host looks at the numbers
every few iterations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import kernels
from ..device import Array
from ..graphs import Loop

_AT = kernels.Constants("richardson_lucy")
_EAGER = 3  # iterations before it pays to capture one


class GpuSteps:
    """The steps of a `deblur.solvers.richardson_lucy._Run` as CUDA kernels.

    Parameters
    ----------
    run : _Run
        Its `point` is that of the last iteration.
    first : (n, c, P, Q) array
        The scene to begin with.
    tolerance, limit : float, int
        The device stops after a relative change within the tolerance, after so many iterations, or at a number that is
        not finite.
    """

    def __init__(self, run: Any, first: Array, tolerance: float, limit: int) -> None:
        import cupy

        self._run, self._point, self._limit = run, run.point, limit
        self._f, self._move, self._step = first, cupy.empty_like(first), cupy.zeros_like(first)
        self._g, self._w, seen, self._sensitivity = map(
            cupy.ascontiguousarray, (run.g, run.w, run.seen, run.sensitivity)
        )
        self._seen = seen.view(np.uint8)
        self._held = None if run.held is None else cupy.ascontiguousarray(run.held)
        self._ratio = cupy.empty_like(self._g)
        control = np.zeros(_AT.CONTROL + _AT.BATCH * _AT.RECORD)
        control[_AT.TOLERANCE], control[_AT.LIMIT], control[_AT.FLOOR] = tolerance, limit, run.floor
        self._control = cupy.asarray(control)
        self._sums = cupy.zeros(_AT.SUMS, np.float64)
        self._reduction = kernels.Reduction("richardson_lucy", first[0, 0].size, _AT.SUMS - _AT.OF_EXPECT)
        self._loop = Loop(_EAGER)

    def iterate(self, n: int) -> list[list[float]]:
        """A few iterations from the one numbered `n`: divergence, change and squared error at held pixels of each."""
        for _ in range(min(_AT.BATCH if n else _EAGER, self._limit + 1 - n)):  # a few may be enough
            self._loop(self._iteration)
        control = self._control.get()
        records = control[_AT.CONTROL :].reshape(-1, _AT.RECORD)
        return records[[i % _AT.BATCH for i in range(n, int(control[_AT.COUNT]))]].tolist()

    def _iteration(self) -> None:
        run, (low, high) = self._run, self._run.bounds
        operator, background = run.problem.operator, run.problem.fidelity.background
        dtype, launch = self._f.dtype, self._reduction.launch
        launch(
            "expect", *_planes(operator.forward(self._point)), self._g, self._w, self._held, background, run.floor,
            self._ratio, self._control, self._sums, dtype=dtype,
        )  # fmt: skip
        launch(
            "advance", *_planes(operator.adjoint(self._ratio)), self._point, self._seen, self._sensitivity, low, high,
            self._f, self._move, self._step, self._control, self._sums, dtype=dtype,
        )  # fmt: skip
        kernels.launch(
            "richardson_lucy", "extrapolate", self._reduction.blocks, _AT.THREADS, self._point, self._f, self._move,
            self._f.size, run.least_share, low, high, self._control, self._sums, dtype=dtype,
        )  # fmt: skip


def _planes(x: Array) -> tuple[Array, int, int, int, int, int]:
    """Images (n, c, M, N), contiguous or a part of larger ones, as the kernels take them."""
    import cupy

    x = x.reshape(-1, *x.shape[-2:])
    if x.strides[2] != x.itemsize:
        x = cupy.ascontiguousarray(x)
    planes, rows, cols = x.shape
    return x, x.strides[1] // x.itemsize, x.strides[0] // x.itemsize, planes, rows, cols

"""Richardson-Lucy on the GPU: two launches of ``cuda/richardson_lucy.cu`` and two products.

An iteration of images is captured as a CUDA graph once a run and replayed (`deblur.graphs.Loop`); the host looks at the
numbers every few iterations. Large ones are not captured: a graph's memory is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels
from ..device import Array, cupy
from ..graphs import Loop

if TYPE_CHECKING:
    from .richardson_lucy import _Run

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

    def __init__(self, run: _Run, first: Array, tolerance: float, limit: int) -> None:
        self._run, self._point, self._limit, self._f = run, run.point, limit, first
        self._g, self._sensitivity = cupy.ascontiguousarray(run.g), cupy.ascontiguousarray(run.sensitivity)
        self._w = cupy.ascontiguousarray(run.w) if any(run.w.strides) else None
        self._ratio = cupy.empty_like(self._g)
        control = np.zeros(_AT.CONTROL + _AT.BATCH * _AT.RECORD)
        control[_AT.TOLERANCE], control[_AT.LIMIT], control[_AT.FLOOR] = tolerance, limit, run.floor
        self._control = cupy.asarray(control)
        self._sums = cupy.zeros(_AT.SUMS, np.float64)
        self._reduction = kernels.Reduction("richardson_lucy", first[0, 0].size, _AT.SUMS - _AT.OF_EXPECT)
        # Of a larger scene a launch takes no time beside the work.
        graph = first.size < 1 << 25 and not run.consensus
        self._loop: Any = Loop(_EAGER) if graph else lambda step: step()

    def iterate(self, n: int) -> list[list[float]]:
        """A few iterations from the one numbered `n`: divergence and change of each."""
        batch = 1 if self._run.watched else _AT.BATCH if n else _EAGER
        for _ in range(min(batch, self._limit + 1 - n)):  # a few may be enough
            self._loop(self._iteration)
        control = self._control.get()
        records = control[_AT.CONTROL :].reshape(-1, _AT.RECORD)
        return records[[i % _AT.BATCH for i in range(n, int(control[_AT.COUNT]))]].tolist()

    def _iteration(self) -> None:
        run, (low, high) = self._run, self._run.bounds
        operator, background = run.problem.operator, run.problem.fidelity.background
        dtype, launch = self._f.dtype, self._reduction.launch
        launch(
            "expect", *_volumes(operator.forward(self._point)), self._g, self._w, background, run.floor,
            self._ratio, self._control, self._sums, dtype=dtype,
        )  # fmt: skip
        run.ended = run.few_agreed
        if run.ended:
            return
        launch(
            "advance", *_volumes(run.ascent(self._ratio)), self._point, self._sensitivity, run.least_share, low,
            high, self._f, self._control, self._sums, dtype=dtype,
        )  # fmt: skip


def _volumes(x: Array) -> tuple[Array, int, int, int, int, int, int, int]:
    """Frames (n, c, *space), contiguous or a part of larger ones, as the kernels take them."""
    x = x.reshape(x.shape[0] * x.shape[1], *(1,) * (5 - x.ndim), *x.shape[2:])
    if x.strides[3] != x.itemsize:
        x = cupy.ascontiguousarray(x)
    stride, lds, ld, _ = (n // x.itemsize for n in x.strides)
    return x, ld, lds, stride, *x.shape

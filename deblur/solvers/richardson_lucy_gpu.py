"""Richardson-Lucy on the GPU: two launches of ``cuda/richardson_lucy.cu`` and two products.

For images, an iteration is captured as a CUDA graph once a run and replayed (`deblur.graphs.Loop`). The host reads the
numbers every few iterations. Iterations of large scenes are not captured, since a graph's memory is its own.

Volumes are never copied. The point lies in a torus of zeros, and its slices are transformed into a second array. All
else happens in that array: w g/(Hf + b) replaces Hf, with zeros around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels
from ..device import Array, Device, cupy
from ..graphs import Loop
from ..norms import contiguous
from ..operators.torus import corner
from ..operators.torus_gpu import product_of_volumes, serves
from ..pixelwise import copied, stored

if TYPE_CHECKING:
    from .richardson_lucy import _Run

_AT = kernels.Constants("richardson_lucy")
_EAGER = 3  # iterations before it pays to capture one


class GpuSteps:
    """The steps of a `deblur.solvers.richardson_lucy._Run` as CUDA kernels.

    Parameters
    ----------
    run : _Run
        The run; its `point`, which is created here, belongs to the last iteration.
    first : (n, c, P, Q) array
        The first scene.
    tolerance, limit : float, int
        The device stops after `limit` iterations, at a relative change within the tolerance, or at a number that is
        not finite.
    """

    def __init__(self, run: _Run, first: Array, tolerance: float, limit: int) -> None:
        self._run, self._limit, blur, device = run, limit, run.problem.operator.shift_invariant, Device.of(first)
        self._torus, self._room, shape = None, None, first.shape
        if blur is not None and run.problem.axes == 3 and not (blur.boundary.continued or run.consensus):
            lengths, by = blur.torus(device).lengths, blur.transfer(first.dtype, device)
            if serves(first, lengths, by):
                self._torus, shape = (lengths, by), (*shape[:3], *lengths[1:])
                self._room = cupy.empty((*shape[:4], 2 * by.shape[-1]), first.dtype)
        self._f, self._sensitivity, self._point = map(_lined, (first.shape, first.shape, shape), 3 * [first.dtype])
        views = [corner(x, first.shape[2:]) for x in (self._f, self._sensitivity, self._point)]
        for view, x in zip(views, (first, run.sensitivity, first), strict=True):
            stored(view, x)
        _, run.sensitivity, run.point = views
        self._g = contiguous(run.g)
        self._w = contiguous(run.w) if any(run.w.strides) else None
        control = np.zeros(_AT.CONTROL + _AT.BATCH * _AT.RECORD)
        control[_AT.TOLERANCE], control[_AT.LIMIT], control[_AT.FLOOR] = tolerance, limit, run.floor
        self._control = cupy.asarray(control)
        self._sums = cupy.zeros(_AT.SUMS, np.float64)
        self._reduction = kernels.Reduction("richardson_lucy", first[0, 0].size, _AT.SUMS - _AT.OF_EXPECT)
        # For a larger scene the launches take no time compared with the work.
        graph = first.size < 1 << 25 and not run.consensus
        self._loop: Any = Loop(_EAGER) if graph else lambda step: step()

    def iterate(self, n: int) -> list[list[float]]:
        """Run a few iterations from the one numbered `n`; return divergence and change of each."""
        batch = 1 if self._run.watched else _AT.BATCH if n else _EAGER
        for _ in range(min(batch, self._limit + 1 - n)):  # fewer may suffice
            self._loop(self._iteration)
        control = self._control.get()
        records = control[_AT.CONTROL :].reshape(-1, _AT.RECORD)
        return records[[i % _AT.BATCH for i in range(n, int(control[_AT.COUNT]))]].tolist()

    def _iteration(self) -> None:
        run, torus, dtype, launch = self._run, self._torus, self._f.dtype, self._reduction.launch
        operator, background, (low, high) = run.problem.operator, run.problem.fidelity.background, run.bounds
        image, scene = operator.image_shape, operator.scene_shape
        if torus is None:
            room = operator.forward(run.point)
        else:
            room = product_of_volumes(self._point, *torus, False, image, out=self._room)
        seen, *lie = _volumes(corner(room, image))
        launch(
            "expect", seen, *lie, *(lie if torus is None else room.shape)[-2:], self._g, self._w, background, run.floor,
            self._control, self._sums, dtype=dtype,
        )  # fmt: skip
        run.ended = run.few_agreed
        if run.ended:
            return
        if torus is None:
            room = run.ascent(seen.reshape(self._g.shape))
        else:
            product_of_volumes(room[..., : image[0], :, :], *torus, True, scene, out=room)
        launch(
            "advance", *_volumes(corner(room, scene)), self._point, *_volumes(self._point)[:-3:-1], self._sensitivity,
            run.least_share, low, high, self._f, self._f.shape[-1], self._control, self._sums, dtype=dtype,
        )  # fmt: skip


def _lined(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return zeros whose rows begin at whole cache lines; the last axis may be longer than requested."""
    line = 128 // dtype.itemsize
    return cupy.zeros((*shape[:-1], -(-shape[-1] // line) * line), dtype)


def _volumes(x: Array) -> tuple[Array, int, int, int, int, int, int, int]:
    """Return frames (n, c, *space), contiguous or part of larger ones, with strides and shape as kernel arguments."""
    x = x.reshape(x.shape[0] * x.shape[1], *(1,) * (5 - x.ndim), *x.shape[2:])
    if x.strides[3] != x.itemsize:
        x = copied(x)
    stride, lds, ld, _ = (n // x.itemsize for n in x.strides)
    return x, ld, lds, stride, *x.shape

"""The network's steps between matrix products on the GPU: ``cuda/network.cu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import kernels
from ..device import Array, cupy

_AT = kernels.Constants("network")


def entered(x: Array, near: Array, shape: tuple[int, int], scale: float, level: float) -> Array:
    """The network's input, (9, P, Q): a plane and its estimate times `scale`, continued to `shape`, and `level`."""
    high, wide = shape[0] // 2, shape[1] // 2
    (x, ldx, _), (near, ldnear, _) = kernels.images(x), kernels.images(near)
    out = cupy.empty((9, high, wide), np.float32)
    _launch("enter", high * wide, out, high, wide, x, ldx, near, ldnear, *x.shape[1:], scale, level, dtype=x.dtype)
    return out


def gather(out: Array, x: Array, top: int, rectified: bool) -> None:
    """The nine neighbours of each pixel of (C, P, Q), zero beyond the borders, of the rows from `top` on.

    out : (9 C rows Q,) float32 array; `rectified` sets negative numbers to zero.
    """
    c, rows, cols = x.shape
    count = out.size // 9
    _launch("gather", count, out, x, c, rows, cols, top, count // (c * cols), rectified)


def apart(x: Array) -> Array:
    """(C, 2P, 2Q) as (4C, P, Q)."""
    c, rows, cols = x.shape
    return _moved("apart", x, (4 * c, rows // 2, cols // 2), (c, rows, cols))


def together(x: Array) -> Array:
    """(4C, P, Q) as (C, 2P, 2Q)."""
    c, rows, cols = x.shape
    shape = (c // 4, 2 * rows, 2 * cols)
    return _moved("together", x, shape, shape)


def _moved(name: str, x: Array, shape: tuple[int, ...], whole: tuple[int, ...]) -> Array:
    out = cupy.empty(shape, np.float32)
    _launch(name, x.size, out, x, *whole)
    return out


def _launch(name: str, size: int, *args: Any, dtype: Any = np.float32) -> None:
    blocks = kernels.blocks("network", size, per_multiprocessor=16)
    kernels.launch("network", name, blocks, _AT.THREADS, *args, dtype=dtype)

"""What stands between the products of the network on the GPU: ``cuda/network.cu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import kernels
from ..device import Array

_AT = kernels.Constants("network")
_BLOCKS = 16  # of a launch, on each multiprocessor


def entered(x: Array, near: Array, shape: tuple[int, int], scale: float, level: float) -> Array:
    """A plane and its estimate times `scale`, continued to `shape`, as what goes in: (9, P, Q)."""
    import cupy

    high, wide = shape[0] // 2, shape[1] // 2
    (x, ldx, _), (near, ldnear, _) = kernels.images(x), kernels.images(near)
    out = cupy.empty((9, high, wide), np.float32)
    _launch(
        "enter", high * wide, out, high, wide, x, ldx, near, ldnear, *x.shape[1:], scale, level, dtype=x.dtype
    )
    return out


def conv3(x: Array, w: Array, most: int, rectified: bool = False) -> Array:
    """A 3 x 3 convolution of (C, P, Q), zero beyond the edges, of what is positive alone if `rectified`.

    No more than about `most` numbers are gathered at a time.
    """
    import cupy

    c, rows, cols = x.shape
    high = min(rows, max(1, most // (9 * c * cols)))
    gathered, found = cupy.empty(9 * c * high * cols, np.float32), []
    for top in range(0, rows, high):
        some = min(high, rows - top)
        strip = gathered[: 9 * c * some * cols]
        _launch("gather", c * some * cols, strip, x, c, rows, cols, top, some, rectified)
        found.append((w @ strip.reshape(9 * c, -1)).reshape(len(w), some, cols))
    return found[0] if len(found) == 1 else cupy.concatenate(found, axis=1)


def apart(x: Array) -> Array:
    """(C, 2P, 2Q) as (4C, P, Q)."""
    import cupy

    c, rows, cols = x.shape
    out = cupy.empty((4 * c, rows // 2, cols // 2), np.float32)
    _launch("apart", x.size, out, x, c, rows, cols)
    return out


def together(x: Array) -> Array:
    """(4C, P, Q) as (C, 2P, 2Q)."""
    import cupy

    c, rows, cols = x.shape
    out = cupy.empty((c // 4, 2 * rows, 2 * cols), np.float32)
    _launch("together", x.size, out, x, c // 4, 2 * rows, 2 * cols)
    return out


def _launch(name: str, size: int, *args: Any, dtype: Any = np.float32) -> None:
    import cupy

    most = _BLOCKS * kernels.properties(cupy.cuda.runtime.getDevice()).multiprocessors
    kernels.launch("network", name, min(most, -(-size // _AT.THREADS)), _AT.THREADS, *args, dtype=dtype)

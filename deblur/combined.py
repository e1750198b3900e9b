"""Sums of two stacks of images, each times a number."""

from __future__ import annotations

import numpy as np

from . import kernels
from .device import Array, get_xp


def combined(x: Array, y: Array, a: float = 1.0, b: float = 1.0) -> Array:
    """a x + b y, for arrays (..., M, N) of one shape and dtype; a new array.

    On a GPU it is one launch of a kernel of our own, however the images lie: each operation of CuPy is compiled by a
    first call, for each layout by itself.
    """
    xp = get_xp(x, y)
    if (
        xp is np
        or x.shape != y.shape
        or x.dtype != y.dtype
        or x.dtype.char not in "fd"
        or x.ndim < 2
        or not x.size
    ):
        left = x if a == 1 else x * x.dtype.type(a)
        if abs(b) == 1:
            return left + y if b == 1 else left - y
        right = y * y.dtype.type(b)
        return xp.add(left, right, out=right if right.dtype == x.dtype else None)
    out = xp.empty(x.shape, x.dtype)
    (x, *x_lies), (y, *y_lies) = kernels.images(x), kernels.images(y)
    planes, rows, cols = x.shape
    kernels.spread(
        "combined",
        "combine",
        rows * cols,
        out,
        planes,
        rows,
        cols,
        x,
        *x_lies,
        a,
        y,
        *y_lies,
        b,
        dtype=out.dtype,
    )
    return out

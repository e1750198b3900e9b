"""Sums of two stacks of images, each times a number, products of matrices, and work on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from . import kernels
from .device import Array, get_xp, is_cupy
from .threads import all_cores, cores

_SMALL = 1 << 22  # multiplications that one thread does in the time that a thread takes to begin, about


def combined(x: Array, y: Array, a: float = 1.0, b: float = 1.0) -> Array:
    """a x + b y, for arrays (..., M, N) of one shape and dtype; a new array.

    On a GPU it is one launch of a kernel of our own, however the images lie: each operation of CuPy is compiled by a
    first call, for each layout by itself.
    """
    xp = get_xp(x, y)
    alike = x.shape == y.shape and x.dtype == y.dtype
    if xp is np or not alike or x.dtype.char not in "fd" or x.ndim < 2 or not x.size:
        left = x if a == 1 else x * x.dtype.type(a)
        if abs(b) == 1:
            return left + y if b == 1 else left - y
        right = y * y.dtype.type(b)
        return xp.add(left, right, out=right if right.dtype == x.dtype else None)
    out = xp.empty(x.shape, x.dtype)
    (x, *x_lies), (y, *y_lies) = kernels.images(x), kernels.images(y)
    planes, rows, cols = x.shape
    kernels.spread(
        "combined", "combine", rows * cols, out, planes, rows, cols, x, *x_lies, a, y, *y_lies, b, dtype=out.dtype,
    )  # fmt: skip
    return out


def product(a: Array, b: Array) -> Array:
    """a @ b of matrices or stacks of them; on the host each core has a thread and rows of `a`, see `all_cores`."""
    rows, threads = a.shape[-2], cores()
    if is_cupy(a) or threads == 1 or rows * b.size < _SMALL:
        return a @ b
    stacks = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty((*stacks, rows, b.shape[-1]), np.result_type(a, b))
    ends = [rows * k // threads for k in range(threads + 1)]

    def part(start: int, stop: int) -> None:
        np.matmul(a[..., start:stop, :], b, out=out[..., start:stop, :])

    with all_cores():
        on_cores(part, ends, ends[1:])
    return out


def on_cores(work: Callable[..., Any], *of: Iterable[Any]) -> list:
    """`work` of every item, in order; a thread for each core, none beside this one if there is one core or item."""
    threads, parts = cores(), [*zip(*of, strict=False)]
    if threads == 1 or len(parts) < 2:
        return [work(*part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, *zip(*parts, strict=True)))

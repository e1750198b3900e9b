"""Sums and Euclidean norms, added up in double precision, where they do not overflow; the largest modulus."""

from __future__ import annotations

import math

import numpy as np

from . import kernels
from .device import Array, cupy, get_xp, is_cupy


def norms(x: Array) -> np.ndarray:
    """The norm of each entry of a stack, on the host."""
    if is_cupy(x):
        return np.sqrt(_sums_on_gpu([x], len(x)).get())
    return np.sqrt([_sum_of_squares(part) for part in x])


def norms_of(*arrays: Array) -> list[float]:
    """The norm of each array, on the host; a GPU is waited for once."""
    if get_xp(*arrays) is np:
        return [math.sqrt(_sum_of_squares(x)) for x in arrays]
    return np.sqrt(_sums_on_gpu(arrays, 1).get()).tolist()


def residual_norms(b: Array, a: Array, f: Array, lam: float, g: Array, d: Array) -> list[float]:
    """The norms of b, a − λf, g and d on a GPU: the first three scenes, the others images, (..., rows, columns)."""
    b, a, f, g, d = (kernels.images(x) for x in (b, a, f, g, d))
    sums, planes = cupy.empty(4, np.float64), b[0]
    room = kernels.Reduction("norms", math.prod(planes.shape[1:]), 4)
    scenes, images = (*b, *a, *f, lam, *planes.shape[1:]), (len(g[0]), *g, *d, *g[0].shape[1:])
    room.launch("residuals", sums, len(planes), *scenes, *images, dtype=planes.dtype)
    return np.sqrt(sums.get()).tolist()


def total(x: Array) -> Array:
    """The sum of all numbers of a float array, as a float64 without dimensions, which a GPU need not be waited for."""
    return _sums_on_gpu([x], 1, squares=False)[0] if is_cupy(x) else x.sum(dtype=np.float64)


def squares(x: Array) -> Array:
    """The sum of the squares of a float array, as `total` gives sums."""
    return _sums_on_gpu([x], 1)[0] if is_cupy(x) else np.float64(_sum_of_squares(x))


def totals(x: Array) -> Array:
    """The sum of each entry of a stack of float arrays, float64, where they lie."""
    return _sums_on_gpu([x], len(x), squares=False) if is_cupy(x) else x.reshape(len(x), -1).sum(1, np.float64)


def _sum_of_squares(x: np.ndarray) -> float:
    """Without a copy in double precision: einsum converts a few thousand numbers at a time."""
    every = [*range(x.ndim)]
    return float(np.einsum(x, every, x, every, [], dtype=np.float64))


def largest(x: Array) -> float:
    """The largest |x|: infinite or NaN where `x` holds such values; 0 of nothing."""
    if not x.size:
        return 0.0
    if not is_cupy(x):
        return float(max(x.max(), -x.min()) if x.dtype.kind == "f" else abs(x).max())
    return float(largest_bits(x).view(np.float64).item())


def largest_bits(x: Array) -> Array:
    """The bits of the largest |x| as a float64, (1,), on the GPU where `x` is."""
    bits = cupy.zeros(1, np.uint64)
    x = cupy.ascontiguousarray(x)
    kernels.spread("norms", "largest", x.size, bits, x, x.size, dtype=x.dtype)
    return bits


def _sums_on_gpu(arrays: list[Array] | tuple[Array, ...], entries: int, squares: bool = True) -> Array:
    """Sums of the numbers of each array's entries, or of their squares, one after the other; on the device."""
    out = cupy.zeros((len(arrays), entries), np.float64)
    stacks = [kernels.images(x if x.ndim > 1 + (entries > 1) else x.reshape(entries, 1, -1)) for x in arrays]
    room = kernels.Reduction("norms", max(math.prod(x.shape[1:]) for x, *_ in stacks), rows=entries)
    for sums, (x, ld, stride) in zip(out, stacks, strict=True):
        if x.size:
            room.launch(
                "add_up", sums, x, ld, stride, len(x) // entries, *x.shape[1:], squares, dtype=x.dtype
            )  # fmt: skip
    return out.reshape(-1)

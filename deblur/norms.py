"""Sums and Euclidean norms, added up in double precision, where they do not overflow; the largest modulus."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from . import kernels
from .device import Array, get_xp, is_cupy

_SOME = 1 << 18
_BLOCKS = 4  # of a launch, on each multiprocessor


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


def judged_norms(b: Array, a: Array, f: Array, lam: float, g: Array, d: Array) -> list[float]:
    """The norms of b, a − λf, g and d, on the host: the first three scenes, the others images, (..., rows, columns)."""
    if not is_cupy(b):
        return norms_of(b, a - b.dtype.type(lam) * f, g, d)
    sums = _summed(
        "judged", 4, b, *kernels.images(b), *kernels.images(a), *kernels.images(f), lam, *b.shape[-2:],
        *kernels.images(g), *kernels.images(d),
        *g.shape[-2:],
    )  # fmt: skip
    return np.sqrt(sums.get()).tolist()


def probed(g: Array, seen: Array, moved: Array, shown: Array) -> tuple[float, float]:
    """‖g − seen‖² and the inner product of moved − seen with `shown`, for images (..., M, N)."""
    if is_cupy(g):
        images = (kernels.images(x) for x in (g, seen, moved, shown))
        first, second = _summed("probed", 2, g, *g.shape[-2:], *itertools.chain(*images)).tolist()
        return first, second
    return float(total((g - seen) ** 2)), float(total((moved - seen) * shown))


def _summed(kernel: str, count: int, like: Array, *args: Any) -> Array:
    """What a kernel of so many sums makes of arrays as large as `like`, its first argument their planes."""
    import cupy

    threads = kernels.Constants("norms").THREADS
    most = _BLOCKS * kernels.properties(like.device.id).multiprocessors
    blocks = max(1, min(most, -(-like.size // threads)))
    sums, ticket = cupy.empty(count, np.float64), cupy.zeros(1, np.uint32)
    kernels.launch(
        "norms", kernel, blocks, threads, sums, like.size // math.prod(like.shape[-2:]), *args,
        cupy.empty(count * blocks, np.float64), ticket, dtype=like.dtype,
    )  # fmt: skip
    return sums


def total(x: Array) -> Array:
    """The sum of all numbers of a float array, as a float64 without dimensions, which a GPU need not be waited for."""
    return _sums_on_gpu([x], 1, squares=False)[0] if is_cupy(x) else x.sum(dtype=np.float64)


def squares(x: Array) -> Array:
    """The sum of the squares of a float array, as `total` gives sums."""
    return _sums_on_gpu([x], 1)[0] if is_cupy(x) else np.float64(_sum_of_squares(x))


def totals(x: Array) -> Array:
    """The sum of each entry of a stack of float arrays, float64, where they lie."""
    return (
        _sums_on_gpu([x], len(x), squares=False) if is_cupy(x) else x.reshape(len(x), -1).sum(1, np.float64)
    )


def _sum_of_squares(x: np.ndarray) -> float:
    """Some of it at a time, so that no copy in double precision is as large as the picture."""
    flat, total = x.reshape(-1), 0.0
    for at in range(0, flat.size, _SOME):
        some = flat[at : at + _SOME].astype(np.float64, copy=False)
        total += float(np.einsum("i,i->", some, some))
    return total


def largest(x: Array) -> float:
    """The largest |x|: infinite or NaN where `x` holds such values; 0 of nothing."""
    if not x.size:
        return 0.0
    if not is_cupy(x):
        return float(max(x.max(), -x.min()) if x.dtype.kind == "f" else abs(x).max())
    return float(largest_bits(x).view(np.float64).item())


def largest_bits(x: Array) -> Array:
    """The bits of the largest |x| as a float64, (1,), where it lies on a GPU."""
    import cupy

    threads = kernels.Constants("norms").THREADS
    most = _BLOCKS * kernels.properties(x.device.id).multiprocessors
    bits = cupy.zeros(1, np.uint64)
    x = cupy.ascontiguousarray(x)
    blocks = min(most, -(-x.size // threads))
    kernels.launch("norms", "largest", blocks, threads, bits, x, x.size, dtype=x.dtype)
    return bits


def _sums_on_gpu(arrays: list[Array] | tuple[Array, ...], entries: int, squares: bool = True) -> Array:
    """Sums of the numbers of each array's entries, or of their squares, one after the other; on the device."""
    import cupy

    threads = kernels.Constants("norms").THREADS
    most = _BLOCKS * kernels.properties(cupy.cuda.runtime.getDevice()).multiprocessors
    count = entries * len(arrays)
    # The sums, and behind them the tickets of the blocks, which begin at zero.
    room = cupy.zeros(2 * count, np.float64)
    out, tickets = room[:count], room[count:].view(np.uint32)
    for i, x in enumerate(arrays):
        if not x.size:
            continue
        planes = x.reshape(-1, *x.shape[-2:]) if x.ndim > 1 + (entries > 1) else x.reshape(entries, 1, -1)
        item = x.itemsize
        if planes.strides[2] != item and planes.shape[2] > 1:
            planes = cupy.ascontiguousarray(planes)
        _, rows, cols = planes.shape
        ld = planes.strides[1] // item if rows > 1 else cols
        stride = planes.strides[0] // item if len(planes) > 1 else 0
        blocks = max(1, min(-(-rows * cols // threads), -(-most // entries)))
        partial = cupy.empty(entries * blocks, np.float64)
        kernels.launch(
            "norms", "add_up", (blocks, entries), threads, out[i * entries : (i + 1) * entries], planes, ld,
            stride, len(planes) // entries, rows, cols, squares, partial, tickets[i * entries : (i + 1) * entries],
            dtype=x.dtype,
        )  # fmt: skip
    return out

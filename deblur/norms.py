"""Compute sums, norms, largest moduli and linear combinations of arrays, and products of matrices, on CPU and GPU.

Sums and norms are accumulated in double precision, so that they do not overflow.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from . import kernels
from .device import Array, cupy, get_xp, is_cupy
from .pixelwise import copied, fused, planes_of
from .threads import all_cores, cores, on_cores

_SMALL = 1 << 22  # about as many multiplications as one thread does in the time that another takes to start


def norms(x: Array) -> np.ndarray:
    """Return the Euclidean norm of each entry of a stack, on the host."""
    if is_cupy(x):
        return np.sqrt(_sums_on_gpu([x], len(x)).get())
    return np.sqrt([_sum_of_squares(part) for part in x])


def norms_of(*arrays: Array) -> list[float]:
    """Return the Euclidean norm of each array, on the host; a GPU is waited for only once."""
    if get_xp(*arrays) is np:
        return [math.sqrt(_sum_of_squares(x)) for x in arrays]
    return np.sqrt(_sums_on_gpu(arrays, 1).get()).tolist()


def residual_norms(b: Array, a: Array, f: Array, lam: float, g: Array, d: Array) -> list[float]:
    """Return the norms of b, a − λf, g and d on a GPU; b, a and f are scenes, g and d images, all (...,
    rows, columns).
    """
    b, a, f, g, d = (planes_of(x) for x in (b, a, f, g, d))
    sums, planes = cupy.empty(4, np.float64), b[0]
    room = kernels.Reduction("norms", math.prod(planes.shape[1:]), 4)
    scenes, images = (*b, *a, *f, lam, *planes.shape[1:]), (len(g[0]), *g, *d, *g[0].shape[1:])
    room.launch("residuals", sums, len(planes), *scenes, *images, dtype=planes.dtype)
    return np.sqrt(sums.get()).tolist()


def total(x: Array) -> Array:
    """Return the sum of all elements of a float array as a 0-D float64 array, without waiting for a GPU."""
    return _sums_on_gpu([x], 1, squares=False)[0] if is_cupy(x) else x.sum(dtype=np.float64)


def squares(x: Array) -> Array:
    """Return the sum of the squares of a float array as a 0-D float64 array, without waiting for a GPU."""
    return _sums_on_gpu([x], 1)[0] if is_cupy(x) else np.float64(_sum_of_squares(x))


def totals(x: Array) -> Array:
    """Return the sum of each entry of a stack of float arrays, in float64, on the device of `x`."""
    return _sums_on_gpu([x], len(x), squares=False) if is_cupy(x) else x.reshape(len(x), -1).sum(1, np.float64)


def alike(x: Array, value: float) -> Array:
    """Return a float array that is 1 where x equals `value`, else 0, to be summed by `total` or `totals`."""
    return _alike(x, x.dtype.type(value), np.ones((), x.dtype if x.dtype.kind == "f" else np.float32)[()])


@fused
def _alike(_xp: ModuleType, x: Array, value: Array, one: Array) -> Array:
    return (x == value) * one


def _sum_of_squares(x: np.ndarray) -> float:
    """Return the sum of squares without a copy in double precision: einsum converts a few thousand numbers
    at a time.
    """
    every = [*range(x.ndim)]
    return float(np.einsum(x, every, x, every, [], dtype=np.float64))


def largest(x: Array) -> float:
    """Return the largest |x|, infinite or NaN if `x` holds such values; 0 for an empty array."""
    if not x.size:
        return 0.0
    if not is_cupy(x):
        return float(max(x.max(), -x.min()) if x.dtype.kind == "f" else abs(x).max())
    return float(largest_bits(x).view(np.float64).item())


def shifted(value: Any, by: int) -> Any:
    """Return `value`, a number or an array, times 2^by; beyond the range of its dtype the result is infinite or 0."""
    if not by:
        return value
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(value, by)) if isinstance(value, float) else get_xp(value).ldexp(value, by)


def normalized(x: Array, least: int = 0) -> tuple[Array, int]:
    """Return `x` divided by the power of two just above its largest entry, and the exponent of that power.

    If the exponent is less than `least`, these are `x` itself and 0.
    """
    power = int(np.frexp(largest(x))[1])
    return (x, 0) if abs(power) < least else (shifted(x, -power), power)


def largest_bits(x: Array) -> Array:
    """Return the bits of the largest |x| as a float64, in an array (1,) on the GPU of `x`."""
    bits = cupy.zeros(1, np.uint64)
    x = contiguous(x)
    kernels.spread("norms", "largest", x.size, bits, x, x.size, dtype=x.dtype)
    return bits


def _sums_on_gpu(arrays: list[Array] | tuple[Array, ...], entries: int, squares: bool = True) -> Array:
    """Return the sums of the entries of each array, or of their squares, one after the other, on the device."""
    out = cupy.zeros((len(arrays), entries), np.float64)
    stacks = [planes_of(x if x.ndim > 1 + (entries > 1) else x.reshape(entries, 1, -1)) for x in arrays]
    room = kernels.Reduction("norms", max(math.prod(x.shape[1:]) for x, *_ in stacks), rows=entries)
    for sums, (x, ld, stride) in zip(out, stacks, strict=True):
        if x.size:
            room.launch(
                "add_up", sums, x, ld, stride, len(x) // entries, *x.shape[1:], squares, dtype=x.dtype
            )  # fmt: skip
    return out.reshape(-1)


def combined(
    x: Array, y: Array | None = None, a: float = 1.0, b: float = 1.0, by: Array | None = None, out: Array | None = None
) -> Array:
    """Return a x + b y, or a x without `y`, for arrays (..., M, N) of one dtype; `by` is a further factor of x.

    On a GPU this is one launch, whatever the layout of the images.

    Parameters
    ----------
    x : (..., M, N) array
    y, by : array, optional
        Arrays with the shape of x, or of its last two axes.
    a, b : float
        Factors.
    out : array, optional
        Array for the result, which may be x itself; by default a new array.

    Returns
    -------
    (..., M, N) array
    """
    if is_cupy(x):
        room = get_xp(x).empty(x.shape, x.dtype) if out is None else out
        given = [array for array in (x, y, by, room) if array is not None]
        alike = room.shape == x.shape and all(v.shape in (x.shape, x.shape[-2:]) and v.dtype == x.dtype for v in given)
        if alike and x.dtype.char in "fd" and x.ndim > 1 and x.size:
            lie: list[Any] = [(None, 0, 0) if v is None else planes_of(v) for v in (room, x, y, by)]
            if lie[0][0].data.ptr == room.data.ptr:  # not a copy of the output
                planes, rows, cols = lie[1][0].shape
                args = (*lie[0], planes, rows, cols, *lie[1], a, *lie[2], b, *lie[3])
                kernels.spread("combined", "combine", rows * cols, *args, dtype=x.dtype)
                return room
    xp, one = get_xp(x), x.dtype.type
    if by is not None or a != 1 or y is None:
        x = xp.multiply(x, one(a) if by is None else by if a == 1 else by * one(a), out=out if y is None else None)
    if y is None or abs(b) == 1:
        return x if y is None else (xp.add if b == 1 else xp.subtract)(x, y, out=out)
    right = y * y.dtype.type(b)
    return xp.add(x, right, out=right if out is None and right.dtype == x.dtype else out)


def contiguous(x: Array) -> Array:
    """Return x itself if it is C-contiguous, else a C-contiguous copy."""
    return x if x.flags.c_contiguous else copied(x)


def outer(x: Array, y: Array) -> Array:
    """Return the product of each element of x with each element of the vector y, in an array with one more axis."""
    return (x.reshape(-1, 1) @ y[None]).reshape(*x.shape, -1)


def product(a: Array, b: Array) -> Array:
    """Return a @ b for matrices or stacks of them; on the host each core multiplies some rows of `a` (see
    `all_cores`).
    """
    rows, threads = a.shape[-2], cores()
    if is_cupy(a) or threads == 1 or rows * b.size < _SMALL:
        return a @ b
    out = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), rows, b.shape[-1]), np.result_type(a, b))
    ends = [rows * k // threads for k in range(threads + 1)]

    def part(start: int, stop: int) -> None:
        np.matmul(a[..., start:stop, :], b, out=out[..., start:stop, :])

    with all_cores():
        on_cores(part, ends, ends[1:])
    return out

"""The matrices of an axis, and sums and differences of opposite pixels, on the GPU: ``cuda/kronecker.cu``."""

from __future__ import annotations

import math

import numpy as np

from .. import kernels
from ..device import Array, sent

_AT = kernels.Constants("kronecker")
_BLOCKS = 8  # of a launch, on each multiprocessor


def parts(
    factor: np.ndarray, pixel: np.ndarray, weight: np.ndarray, shape: tuple[int, int], split: bool
) -> list[Array]:
    """The blur of one axis as a float64 matrix, or its even-to-even and odd-to-odd parts.

    Parameters
    ----------
    factor : (m,) array
        The PSF along the axis.
    pixel, weight : (M + m - 1, 2) arrays
        What each place that it reaches reads of the scene: see `deblur.operators.normal.two_a_place`.
    shape : (M, P)
        Of the matrix.
    split : bool
        It is centrosymmetric.
    """
    import cupy

    rows, cols = shape
    halves = (rows // 2, cols // 2)
    sizes = [(rows - halves[0], cols - halves[1]), halves] if split else [shape]
    out = [cupy.empty(size, np.float64) for size in sizes]
    kernels.launch(
        "kronecker", "parts", *_launched(out[0].size), out[0], out[1] if split else None, sent(factor), len(factor),
        sent(pixel), sent(weight), rows, cols, dtype=np.float64,
    )  # fmt: skip
    return out


def whole(even: Array, odd: Array, n: int, dtype: np.dtype) -> Array:
    """The columns of an even and an odd part's bases, float64, as vectors of `n` pixels, (n, columns)."""
    import cupy

    columns = even.shape[1] + odd.shape[1]
    out = cupy.empty((n, columns), dtype)
    even, odd = (cupy.ascontiguousarray(x.T) for x in (even, odd))  # as the library leaves them
    kernels.launch(
        "kronecker", "whole", *_launched(out.size), even, odd, out, n, columns, len(even), math.sqrt(0.5), dtype=dtype
    )  # fmt: skip
    return out


def fold(x: Array, axis: int) -> list[Array]:
    """As `deblur.solvers.kronecker` states it, for CuPy arrays."""
    import cupy

    x, n = cupy.ascontiguousarray(x), x.shape[axis]
    even, odd = (cupy.empty(_resized(x, axis, size), x.dtype) for size in (n - n // 2, n // 2))
    _launch("fold", x, even, odd, even.size, n, axis)
    return [even, odd]


def unfold(even: Array, odd: Array, axis: int, n: int) -> Array:
    """As `deblur.solvers.kronecker` states it, for CuPy arrays."""
    import cupy

    x = cupy.empty(_resized(even, axis, n), even.dtype)
    even, odd = cupy.ascontiguousarray(even), cupy.ascontiguousarray(odd)
    _launch("unfold", even, odd, x, even.size, n, axis)
    return x


def _resized(x: Array, axis: int, size: int) -> tuple[int, ...]:
    shape = list(x.shape)
    shape[axis] = size
    return tuple(shape)


def _launch(name: str, first: Array, second: Array, third: Array, pairs: int, n: int, axis: int) -> None:
    inner = first.shape[-1] if axis == -2 else 1
    kernels.launch(
        "kronecker", name, *_launched(pairs), first, second, third, pairs, n, inner, math.sqrt(0.5), dtype=first.dtype
    )  # fmt: skip


def _launched(size: int) -> tuple[int, int]:
    """Blocks and threads for so many elements."""
    import cupy

    most = _BLOCKS * kernels.properties(cupy.cuda.runtime.getDevice()).multiprocessors
    return min(most, -(-size // _AT.THREADS)), _AT.THREADS

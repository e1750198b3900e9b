"""The matrices of an axis, and sums and differences of opposite pixels, on the GPU: ``cuda/kronecker.cu``."""

from __future__ import annotations

import math

import numpy as np

from .. import kernels
from ..device import Array, cupy, to_device


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
    rows, cols = shape
    halves = (rows // 2, cols // 2)
    sizes = [(rows - halves[0], cols - halves[1]), halves] if split else [shape]
    out = [cupy.empty(size, np.float64) for size in sizes]
    taps, pixels, weights = map(to_device, (factor, pixel, weight))
    args = (*out, *[None] * (not split), taps, len(factor), pixels, weights, rows, cols)
    kernels.spread("kronecker", "parts", out[0].size, *args, dtype=np.float64)
    return out


def whole(even: Array, odd: Array, n: int, dtype: np.dtype) -> Array:
    """The columns of an even and an odd part's bases, float64, as vectors of `n` pixels, (n, columns)."""
    columns = even.shape[1] + odd.shape[1]
    out = cupy.empty((n, columns), dtype)
    even, odd = (cupy.ascontiguousarray(x.T) for x in (even, odd))  # as the library leaves them
    args = (even, odd, out, n, columns, len(even), math.sqrt(0.5))
    kernels.spread("kronecker", "whole", out.size, *args, dtype=dtype)
    return out


def fold(x: Array, axis: int) -> list[Array]:
    """As `deblur.solvers.kronecker` states it, for CuPy arrays."""
    x, n = cupy.ascontiguousarray(x), x.shape[axis]
    even, odd = (cupy.empty(_resized(x, axis, size), x.dtype) for size in (n - n // 2, n // 2))
    _launch("fold", x, even, odd, even.size, n, axis)
    return [even, odd]


def unfold(even: Array, odd: Array, axis: int, n: int) -> Array:
    """As `deblur.solvers.kronecker` states it, for CuPy arrays."""
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
    args = (first, second, third, pairs, n, inner, math.sqrt(0.5))
    kernels.spread("kronecker", name, pairs, *args, dtype=first.dtype)

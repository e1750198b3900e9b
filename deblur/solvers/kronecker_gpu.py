"""Sums and differences of opposite pixels on the GPU: ``cuda/kronecker.cu``."""

from __future__ import annotations

import math

from .. import kernels
from ..device import Array

_AT = kernels.Constants("kronecker")
_BLOCKS = 8  # of a launch, on each multiprocessor


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
    most = _BLOCKS * kernels.properties(first.device.id).multiprocessors
    kernels.launch(
        "kronecker", name, min(most, -(-pairs // _AT.THREADS)), _AT.THREADS,
        first, second, third, pairs, n, inner, math.sqrt(0.5), dtype=first.dtype,
    )  # fmt: skip

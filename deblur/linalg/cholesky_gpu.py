"""Cholesky factorisation, solution and inverse on the GPU.

A factor of moderate size is one launch of ``cuda/cholesky.cu``, which goes through the matrix tile by tile. A larger
matrix, or one that is to be inverted, is processed in units of a few block columns. A unit is factored by recursion,
down to the size that one launch does best: the left half of its columns, down to the last row; the subtraction of
their product from the right half, all rows at once; the right half. This chain runs on an urgent stream, on which the
finished unit is also subtracted from the next unit's columns, so that the chain can continue. At the same time one
product subtracts it from all other columns.

The inverse is finished in the same sweep, in the memory of one matrix. Let Q be the inverse of the factor. The rows of
Q that belong to a unit are known as soon as the unit is factored. They enter the rows of Q below, as far as these are
known, and the sum Qᵀ Q; then their memory is free. Besides the matrix, this needs two slabs of a unit's width.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array, cupy, get_xp, require_memory
from ..graphs import side_streams, worked
from .matmul_gpu import WORKSPACE, cublas_at, gemm
from .pivots_gpu import PivotStatus
from .triangular_gpu import invert_blocks, invert_lower, leading

_SIZES = kernels.Constants("cholesky")
# Block columns of a unit, for matrices of up to SMALL rows and for larger ones: for a factor, for an inverse, and for
# one in float32, whose products run best when wide. LAUNCH: block columns that one launch factors; with more,
# products by cuBLAS or `half` between launches are faster than its own.
SMALL = 5120
UNITS, INVERSE_UNITS, SINGLE_INVERSE_UNITS = (40, 16), (4, 8), (8, 16)
LAUNCH = (40, 8)
# The float16 parts of `half`, scaled row by row, are accurate in the norm of each row and column: an element of
# A - X Xᵀ to rounding of √(aᵢᵢ aⱼⱼ), which is all that Cholesky factorisation guarantees.
ENGINE = "fastest"


class _Columns:
    """The factorisation of `a` by block columns, in its lower triangle, with the data that its launches share."""

    def __init__(self, a: Array, status: PivotStatus, share: int = 1) -> None:
        """Prepare for `a`; the factorisation may fill 1/`share` of the device."""
        self.a, self.n, self.status = a, len(a), status
        self.leaf = _SIZES.LEAF
        self.count, self._ld = -(-self.n // self.leaf), leading(a)
        self.blocks = cupy.empty((self.count, self.leaf, self.leaf), a.dtype)
        self._progress, self._tickets = cupy.zeros((2, self.count), np.uint32)
        self._launch = kernels.get("cholesky", "factor_unit", a.dtype)
        self._most = kernels.properties(a.device.id).multiprocessors // share
        self._shared = kernels.Constants("cholesky", a.dtype).UNIT_BYTES

    @property
    def fit(self) -> bool:
        """Whether the device has the shared memory that the kernel needs, as an H200 has; if not, cuSOLVER factors."""
        return kernels.properties(self.a.device.id).shared_memory >= self._shared

    def factor_by_library(self) -> None:
        """Factor all columns with cuSOLVER."""
        from cupy.cuda import cusolver, device
        from cupy_backends.cuda.libs import cublas

        handle, char = device.get_cusolver_handle(), "s" if self.a.dtype == np.float32 else "d"
        # The lower triangle of a row-major matrix is the upper one of a column-major one.
        matrix = (handle, cublas.CUBLAS_FILL_MODE_UPPER, self.n, self.a.data.ptr, self._ld)
        size = getattr(cusolver, f"{char}potrf_bufferSize")(*matrix)
        space, info = cupy.empty(size, self.a.dtype), cupy.zeros(1, np.int32)
        getattr(cusolver, f"{char}potrf")(*matrix, space.data.ptr, size, info.data.ptr)
        cupy.copyto(self.status.failed, info - 1, where=info > 0)

    def factor(self, first: int, last: int) -> None:
        """Factor block columns `first` to `last`, from which all earlier columns have been subtracted."""
        if last - first <= LAUNCH[self.n > SMALL]:
            tiles = sum(self.count - j for j in range(first, last))
            self._launch(
                min(self._most, tiles), _SIZES.LEAF_THREADS, self.a, self._ld, self.n, first, last, self.blocks,
                self._progress, self._tickets[first:], self.status.failed, shared_mem=self._shared,
            )  # fmt: skip
            return
        middle = first + (1 << (last - first - 1).bit_length() - 1)
        self.factor(first, middle)
        self.take_off(first, middle, middle, last)
        self.factor(middle, last)

    def take_off(self, first: int, last: int, begin: int, end: int) -> None:
        """Subtract the product of the finished columns `first` to `last` from columns `begin` to `end`."""
        row, left = begin * self.leaf, first * self.leaf
        m, n, k = self.n - row, min(end * self.leaf, self.n) - row, last * self.leaf - left
        char, item, ld = self.a.dtype.char, self.a.itemsize, self._ld
        if n <= 8 * self.leaf and (char == "d" or m * n * k < 1 << 31):
            # So small a square is computed whole, in one launch with the rows below it; entries above the diagonal
            # are arbitrary.
            x = (self.a.data.ptr + (row * ld + left) * item, ld)
            c = (self.a.data.ptr + row * (ld + 1) * item, ld)
            cublas_at(char, (m, n, k), -1.0, 1.0, (*x, False), (*x, True), c)
            return
        x, c = self.a[row:, left : left + k], self.a[row:, row : row + n]
        gemm(x, x[:n].T, c, -1.0, 1.0, lower_only=True, engine=ENGINE)


def _inverse_unit(n: int, dtype: np.dtype) -> int:
    return SINGLE_INVERSE_UNITS[n > SMALL] if dtype == np.float32 else INVERSE_UNITS[n > SMALL]


def _sweep(columns: _Columns, unit: int, inverse: bool = False) -> None:
    """Factor all columns, unit by unit; for the `inverse`, finish each unit once it is subtracted from the others.

    This runs during the factorisation of the next unit and changes the unit's columns. The unit's triangle is inverted
    before, on a third stream.
    """
    count, rest, unfinished = columns.count, None, None
    edges = [*range(0, count, unit), count]
    if not columns.fit:
        columns.factor_by_library()
        for first, last in pairwise(edges):
            if inverse:
                _invert_triangle(columns, first, last)
                _invert_unit(columns, first, last)
        return
    if not inverse and unit >= count:
        columns.factor(0, count)
        return
    main, (urgent, inverting) = cupy.cuda.get_current_stream(), side_streams()
    urgent.wait_event(main.record())
    for first, last, after in zip(edges, edges[1:], [*edges[2:], count]):
        with urgent:
            columns.factor(first, last)
            factored = urgent.record()
            if rest is not None:
                urgent.wait_event(rest)
            if last < count:
                columns.take_off(first, last, last, after)
            taken = urgent.record()
        if inverse:
            inverting.wait_event(factored)
            with inverting:
                _invert_triangle(columns, first, last)
                inverted = inverting.record()
        # The host is hardly faster than the device, so it submits the chain of launches first.
        if unfinished:
            _invert_unit(columns, *unfinished)
        if after < count:
            main.wait_event(factored)
            columns.take_off(first, last, after, count)
            rest = main.record()
        unfinished = (first, last, taken, inverted) if inverse else None
    main.wait_event(taken)
    if unfinished:
        _invert_unit(columns, *unfinished)


def _invert_triangle(columns: _Columns, first: int, last: int) -> None:
    """Invert a unit's triangle in place, with zeros above."""
    rows = slice(first * columns.leaf, min(last * columns.leaf, columns.n))
    square = columns.a[rows, rows]
    invert_lower(square, invert_blocks(square, columns.status))


def cholesky(a: Array, room: Array, given: Array | None = None, later: bool = False) -> tuple[Array, PivotStatus]:
    """Return L with zeros above, in `room` (which may be `a`), and the status; `given` is the caller's argument.

    A failed pivot raises an error, unless the status is to be checked `later`.
    """
    n = len(a)
    if n == 0:
        return room, PivotStatus()
    with worked("cholesky", _factored, a, room) as (x, status):
        l = room if room.flags.c_contiguous else cupy.empty(a.shape, a.dtype)  # noqa: E741
        store = kernels.get("cholesky", "store_factor", a.dtype)
        store((n, -(-n // _SIZES.STORED)), 256, x, leading(x), n, l, leading(l))
        if later:
            status = status.copy()
        else:
            status.check("not positive definite", given)
    if l is not room:
        room[...] = l
    return room, status


def _factored(a: Array) -> PivotStatus:
    """Write L into the lower triangle of `a`, which alone is read; entries above are arbitrary."""
    status = PivotStatus()
    _sweep(_Columns(a, status), UNITS[len(a) > SMALL])
    return status


def inverse(a: Array, room: Array, given: Array | None = None) -> Array:
    """Return the inverse of a symmetric positive definite `a` in `room`, which may be `a`; `given` as in `cholesky`."""
    n = len(a)
    if n == 0:
        return room
    # Two slabs of a unit's width, and the packed operands of products.
    needed = 2 * _inverse_unit(n, a.dtype) * _SIZES.LEAF * n * a.itemsize + WORKSPACE
    what = f"Beside the matrix, the inverse of one of {n} x {n} in {a.dtype}"
    instead = "use cholesky and cholesky_solve, which need the matrix alone, or a smaller matrix"
    require_memory(needed, get_xp(a), what, instead)
    out = room if room.flags.c_contiguous else cupy.empty(a.shape, a.dtype)
    with worked("cholesky_inverse", _inverted, a, out) as (x, status):
        tiles = -(-n // _SIZES.EDGE)
        kernels.get("cholesky", "mirror", a.dtype)(
            (tiles, tiles), (_SIZES.EDGE, 8), x, leading(x), n, out, leading(out), status.overflow
        )
        status.check("not positive definite", given)
    if out is not room:
        room[...] = out
    return room


def _inverted(a: Array) -> PivotStatus:
    status = PivotStatus()
    # With more blocks, simultaneous products would have to wait.
    _sweep(_Columns(a, status, 2), _inverse_unit(len(a), a.dtype), inverse=True)
    return status


def _invert_unit(columns: _Columns, first: int, last: int, *events: Any) -> None:
    """Compute the rows of Q = L⁻¹ of one unit, and replace them by their Qᵀ Q, after `events`.

    Left of the unit's columns and from its rows down, `a` holds the product of L's finished columns with
    their part of Q; above its rows, the lower triangle of the sum Qᵀ Q so far. The unit's triangle is already inverted.
    """
    for event in events:
        cupy.cuda.get_current_stream().wait_event(event)
    a, start, stop = columns.a, first * columns.leaf, min(last * columns.leaf, columns.n)
    q = cupy.empty((stop - start, stop), a.dtype)
    below = cupy.empty((columns.n - stop, stop - start), a.dtype)
    kernels.get("cholesky", "take_unit", a.dtype)(
        columns.n - start, 256, a, leading(a), start, stop, q, leading(q), below, leading(below)
    )
    if start:
        gemm(q[:, start:], a[start:stop, :start], q[:, :start], -1.0, engine=ENGINE)
        a[start:stop, :start] = 0
    if stop < columns.n:
        gemm(below, q, a[stop:, :stop], 1.0, 1.0, engine=ENGINE)
    gemm(q.T, q, a[:stop, :stop], 1.0, 1.0, lower_only=True, engine=ENGINE)

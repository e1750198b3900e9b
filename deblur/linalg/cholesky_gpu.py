"""Cholesky factorisation, solution and inverse on the GPU.

The matrix is gone through by units of a few block columns. A unit is factored by recursion: the left half
of its columns, down to the last row; their product off the right half, all rows at once; the right half.
A single block column is one launch of ``cuda/cholesky.cu``. This is a chain of short launches,
and it runs on an urgent stream: the finished unit is taken off the next one's columns there, so that the
chain can go on, and off all others by one product beside it.

The inverse is finished in the same sweep, in the one matrix's memory. With Q the inverse of the factor,
the rows of Q that belong to a unit are known as soon as the unit is factored; they go into the rows of Q
below, as far as these are known, and into the sum Qᵀ Q, and then their place is free. All that needs
beside the matrix is two slabs of a unit's width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..device import Array, require_memory
from ..errors import SingularMatrixError
from ..graphs import side_streams, worked
from .krylov import cg
from .matmul_gpu import WORKSPACE, cublas_at, gemm
from .pivots_gpu import PivotStatus
from .triangular_gpu import (
    invert_blocks,
    invert_lower,
    leading,
    put_blocks,
    substitute_lower,
)

_SIZES = kernels.Constants("cholesky")
# Block columns that are factored in one go: of matrices up to so many rows, and of larger ones.
UNITS, SMALL = (4, 8), 5120
SINGLE_INVERSE_UNITS = (8, 16)  # of a float32 inverse, whose products run best when they are wide
# Scaled row by row, the float16 parts of `half` are accurate in the norm of each row and column: an element of A - X Xᵀ
# to rounding of √(aᵢᵢ aⱼⱼ), which is all that Cholesky's factorisation promises.
ENGINE = "fastest"


class _Columns:
    """The factorisation of `a` by block columns, in its lower triangle; a place for what its launches share."""

    def __init__(self, a: Array, status: PivotStatus) -> None:
        import cupy

        self.a, self.n, self.status = a, len(a), status
        self.leaf = _SIZES.LEAF
        self.count, self._ld = -(-self.n // self.leaf), leading(a)
        self.blocks = cupy.empty((self.count, self.leaf, self.leaf), a.dtype)
        self._launch = kernels.get("cholesky", "factor_panel", a.dtype)
        self._most = kernels.properties(a.device.id).multiprocessors
        self._shared = kernels.Constants("cholesky", a.dtype).PANEL_BYTES

    def factor(self, first: int, last: int) -> None:
        """Factor block columns `first` to `last`, from which all columns before them are already taken off."""
        if last - first == 1:
            k = first * self.leaf
            grid = min(self._most, 1 + max(0, -(-(self.n - k - self.leaf) // _SIZES.ROWS)))
            self._launch(
                grid, _SIZES.LEAF_THREADS, self.a, self._ld, self.n, k, self.blocks, self.status.failed,
                shared_mem=self._shared,
            )  # fmt: skip
            return
        middle = first + (1 << (last - first - 1).bit_length() - 1)
        self.factor(first, middle)
        self.take_off(first, middle, middle, last)
        self.factor(middle, last)

    def take_off(self, first: int, last: int, begin: int, end: int) -> None:
        """Take the product of the finished columns `first` to `last` off those from `begin` to `end`."""
        row, left = begin * self.leaf, first * self.leaf
        m, n, k = self.n - row, min(end * self.leaf, self.n) - row, last * self.leaf - left
        char, item, ld = self.a.dtype.char, self.a.itemsize, self._ld
        if n <= 8 * self.leaf and (char == "d" or m * n * k < 1 << 31):
            # So small a square is done whole, which is one launch with the rows below it: above the diagonal
            # anything may come to be.
            x = (self.a.data.ptr + (row * ld + left) * item, ld)
            c = (self.a.data.ptr + row * (ld + 1) * item, ld)
            cublas_at(char, (m, n, k), -1.0, 1.0, x, False, x, True, c)
            return
        x, c = self.a[row:, left : left + k], self.a[row:, row : row + n]
        gemm(x, x[:n], c, -1.0, 1.0, transb=True, lower_only=True, engine=ENGINE)


def _unit(n: int) -> int:
    return UNITS[n > SMALL]


def _inverse_unit(n: int, dtype: np.dtype) -> int:
    return SINGLE_INVERSE_UNITS[n > SMALL] if dtype == np.float32 else _unit(n)


def _sweep(columns: _Columns, unit: int, finish: Callable[[int, int], None] | None = None) -> None:
    """Factor all columns, unit by unit; call `finish` for the block columns of each when it has been taken off.

    What `finish` launches runs beside the factorisation of the next unit, and may change the unit's columns.
    """
    import cupy

    main, urgent = cupy.cuda.get_current_stream(), side_streams().urgent
    count, rest, unfinished = columns.count, None, None
    urgent.wait_event(main.record())
    for first in range(0, count, unit):
        last, after = min(first + unit, count), min(first + 2 * unit, count)
        with urgent:
            columns.factor(first, last)
            factored = urgent.record()
            if rest is not None:
                urgent.wait_event(rest)
            if last < count:
                columns.take_off(first, last, last, after)
            taken = urgent.record()
        # The host is hardly faster than the device: the chain of launches comes first here, too.
        if unfinished and finish:
            main.wait_event(unfinished[2])
            finish(*unfinished[:2])
        if after < count:
            main.wait_event(factored)
            columns.take_off(first, last, after, count)
            rest = main.record()
        unfinished = (first, last, taken)
    main.wait_event(taken)
    if finish:
        finish(first, last)


def factor(a: Array, status: PivotStatus) -> Array:
    """Put L into the lower triangle of `a`, reading that only; what lies above is left over.

    `status` learns of a pivot that fails.
    """
    columns = _Columns(a, status)
    _sweep(columns, _unit(len(a)))
    put_blocks(a, columns.blocks)
    return a


def cholesky(
    a: Array, room: Array, given: Array | None = None, later: bool = False
) -> tuple[Array, PivotStatus]:
    """L with zeros above, in `room`, which may be `a`, and what was found; `given` is what the caller passed.

    A pivot that fails raises, unless the status is to be checked `later`.
    """
    import cupy

    n = len(a)
    if n == 0:
        return room, PivotStatus()
    with worked("cholesky", _factored, a, room) as (x, (status, blocks)):
        l = room if room.flags.c_contiguous else cupy.empty(a.shape, a.dtype)  # noqa: E741
        kernels.get("cholesky", "store_factor", a.dtype)(
            (n, -(-n // _SIZES.STORED)), 256, x, leading(x), n, blocks, l, leading(l)
        )
        if later:
            status = status.copy()
        else:
            status.check("not positive definite", given)
    if l is not room:
        room[...] = l
    return room, status


def _factored(a: Array) -> tuple[PivotStatus, Array]:
    status = PivotStatus()
    columns = _Columns(a, status)
    _sweep(columns, _unit(len(a)))
    return status, columns.blocks


def inverse(a: Array, room: Array, given: Array | None = None) -> Array:
    """The inverse of the symmetric positive definite `a`, in `room`, which may be `a`; `given` as in `cholesky`."""
    import cupy

    n = len(a)
    if n == 0:
        return room
    # Two slabs of a unit's width, and what the products pack.
    require_memory(
        2 * _inverse_unit(n, a.dtype) * _SIZES.LEAF * n * a.itemsize + WORKSPACE,
        cupy,
        f"Beside the matrix, the inverse of one of {n} x {n} in {a.dtype}",
        "use cholesky and cholesky_solve, which need the matrix alone, or a smaller matrix",
    )
    out = room if room.flags.c_contiguous else cupy.empty(a.shape, a.dtype)
    with worked("cholesky_inverse", _inverted, a, out) as (x, status):
        tiles = -(-n // _SIZES.TILE)
        kernels.get("cholesky", "mirror", a.dtype)(
            (tiles, tiles), (_SIZES.TILE, 8), x, leading(x), n, out, leading(out), status.overflow
        )
        status.check("not positive definite", given)
    if out is not room:
        room[...] = out
    return room


def _inverted(a: Array) -> PivotStatus:
    status = PivotStatus()
    columns = _Columns(a, status)
    _sweep(columns, _inverse_unit(len(a), a.dtype), lambda first, last: _invert_unit(columns, first, last))
    return status


def _invert_unit(columns: _Columns, first: int, last: int) -> None:
    """The rows of Q = L⁻¹ of one unit, and Qᵀ Q of these rows in their place.

    Left of the unit's columns and from its rows down, `a` holds the product of L's finished columns with
    their part of Q; above its rows, the lower triangle of the sum Qᵀ Q so far.
    """
    import cupy

    a, start, stop = columns.a, first * columns.leaf, min(last * columns.leaf, columns.n)
    square = a[start:stop, start:stop]
    put_blocks(square, columns.blocks[first:last])
    invert_lower(square, invert_blocks(square, columns.status))
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
    gemm(q, q, a[:stop, :stop], 1.0, 1.0, transa=True, lower_only=True, engine=ENGINE)


class MixedInfo(NamedTuple):
    """How a mixed-precision solution went.

    ``iterations``: of conjugate gradients preconditioned with the float32 factor. ``backward_error``:
    ‖b - A x‖ / (‖A‖ ‖x‖ + ‖b‖) in the maximum norm, the largest over the right-hand sides.
    ``fallback``: None, or why everything was done again in float64.
    """

    iterations: int
    backward_error: float
    fallback: str | None


def solve(l: Array, inverses: Array, b: Array) -> None:  # noqa: E741
    """Solve L Lᵀ X = B in the place of B, shape (n, k), row-major."""
    substitute_lower(l, inverses, b)
    substitute_lower(l, inverses, b, trans=True)


def solve_mixed(a: Array, b: Array, tolerance: float, max_iterations: int) -> tuple[Array, MixedInfo]:
    """Solution of A X = B, float64, shape (n, k), from a float32 factor of A.

    Conjugate gradients, one for each column, with the float32 solve as the preconditioner: where
    refinement would converge they do so faster, and they go on where it would not.
    """
    import cupy

    def largest(x: Array) -> Array:
        return cupy.abs(x).max(axis=0)

    rows = [slice(start, start + 1024) for start in range(0, len(a), 1024)]
    norm_a = max(float(cupy.abs(a[part]).sum(axis=1).max()) for part in rows)

    def backward_error(x: Array, r: Array) -> float:
        return float((largest(r) / cupy.maximum(norm_a * largest(x) + largest(b), 1e-300)).max())

    # The scaling to a unit diagonal keeps the float32 copy in range and lowers its condition.
    scale = 1 / cupy.sqrt(a.diagonal())
    single = cupy.empty(a.shape, np.float32)
    for part in rows:
        single[part] = a[part] * scale[part, None] * scale
    status = PivotStatus()
    factor(single, status)
    inverses = invert_blocks(single, status)
    reason: str | None = None
    try:
        status.check("not positive definite in float32")
    except SingularMatrixError as error:
        reason = str(error).split(" cannot")[0]

    def precondition(r: Array) -> Array:
        size = largest(r)
        size = cupy.where(size > 0, size, 1)
        z = cupy.ascontiguousarray((r / size * scale[:, None]).astype(np.float32))
        solve(single, inverses, z)
        return z.astype(np.float64) * scale[:, None] * size

    iterations = 0
    if reason is None:
        x, iterations, error_reached = cg(
            a.__matmul__, b, dot=lambda x, y: (x * y).sum(axis=0), rtol=tolerance, max_iterations=max_iterations,
            precondition=precondition, measure=lambda step: backward_error(step.x, step.r), flexible=True,
        )  # fmt: skip
        if not error_reached <= tolerance:
            reason = f"a backward error of {error_reached:.1e} after {iterations} iterations"
    if reason is not None:
        status = PivotStatus()
        x = b.copy()
        l = factor(a.copy(), status)  # noqa: E741
        solve(l, invert_blocks(l, status), x)
        status.check("not positive definite", a)
        error_reached = backward_error(x, b - a @ x)
    return x, MixedInfo(iterations, error_reached, reason)

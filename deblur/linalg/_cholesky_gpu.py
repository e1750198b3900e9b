"""Cholesky factorisation, solution and inverse on the GPU.

The factorisation works by recursion on block columns: factor the left half of the columns, down to
the last row; take its product off the right half, all rows at once; factor the right half. A single
block column of LEAF is one launch of ``cuda/cholesky.cu``. So most operations happen in products
with long inner dimensions, and there are three launches for each LEAF columns. The inverse goes on
with GETS (`_triangular_gpu`) and with Qᵀ Q, by slabs of rows of Q from the top: a slab is last read
before the sum takes its place, so that no second n × n matrix is needed.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..backend import Array
from ..errors import SingularMatrixError
from ._gemm import choose_engine, gemm
from ._gpu_status import PivotStatus
from ._triangular_gpu import (
    LEAF,
    THREADS,
    clear_upper,
    invert_blocks,
    invert_lower,
    leading,
    leaf_shared,
    put_blocks,
    substitute_lower,
)

STRIP_ROWS = 32  # ROWS of cholesky.cu


def factor(a: Array, status: PivotStatus) -> Array:
    """Put L into the lower triangle of `a`, reading that only; what lies above is left over.

    `status` learns of a pivot that fails.
    """
    import cupy

    n = len(a)
    count = -(-n // LEAF)
    blocks = cupy.empty((count, LEAF, LEAF), a.dtype)
    launch = kernels.get("cholesky", "factor_panel", a.dtype)
    most = kernels.multiprocessors(a.device.id)
    shared, ld = leaf_shared(a.dtype, LEAF + STRIP_ROWS), leading(a)

    def columns(first: int, last: int) -> None:
        if last - first == 1:
            k = first * LEAF
            grid = min(most, 1 + max(0, -(-(n - k - LEAF) // STRIP_ROWS)))
            launch(grid, THREADS, a, ld, n, k, blocks, status.failed, shared_mem=shared)
            return
        half = 1 << (last - first - 1).bit_length() - 1
        columns(first, first + half)
        middle, stop = (first + half) * LEAF, min(last * LEAF, n)
        _subtract_square(a[middle:, first * LEAF : middle], a[middle:, middle:stop])
        columns(first + half, last)

    columns(0, count)
    put_blocks(a, blocks)
    return a


def _subtract_square(x: Array, c: Array) -> None:
    """The lower trapezoid of C less X X[:w]ᵀ; above the diagonal of C anything may come to be."""
    width = c.shape[1]
    head = x[:width]
    if choose_engine(len(c), width, x.shape[1], c.dtype) == "split":
        gemm(x, head, c, -1.0, 1.0, transb=True, lower_only=True)
    elif width <= 4 * LEAF:
        gemm(x, head, c, -1.0, 1.0, transb=True)
    else:
        _syrk(head, c[:width], -1.0, trans=False)
        if width < len(c):
            gemm(x[width:], head, c[width:], -1.0, 1.0, transb=True)


def _syrk(x: Array, c: Array, alpha: float, trans: bool) -> None:
    """The lower triangle of C += alpha X Xᵀ, or alpha Xᵀ X with `trans`, by cuBLAS."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    real: Any = ctypes.c_float if c.dtype.char == "f" else ctypes.c_double
    scale, keep = real(alpha), real(1)
    n, k = (x.shape[1], x.shape[0]) if trans else x.shape
    # Row-major lower is column-major upper.
    (cublas.ssyrk if c.dtype.char == "f" else cublas.dsyrk)(
        device.get_cublas_handle(), cublas.CUBLAS_FILL_MODE_UPPER,
        cublas.CUBLAS_OP_N if trans else cublas.CUBLAS_OP_T, n, k,
        ctypes.addressof(scale), x.data.ptr, leading(x), ctypes.addressof(keep), c.data.ptr, leading(c),
    )  # fmt: skip


def cholesky(a: Array, given: Array | None = None) -> Array:
    """L with zeros above, in the memory of `a` if that is row-major; `given` is what the caller passed."""
    import cupy

    l = cupy.ascontiguousarray(a)  # noqa: E741
    if len(l):
        status = PivotStatus()
        factor(l, status)
        clear_upper(l)
        status.check("not positive definite", given)
    return _in_order_of(a, l)


def _in_order_of(a: Array, result: Array) -> Array:
    """`result` in the memory of `a`, if it is not there already."""
    if result.data.ptr != a.data.ptr:
        a[...] = result
    return a


def inverse(a: Array, given: Array | None = None) -> Array:
    """The inverse of the symmetric positive definite `a`, in its place; `given` is what the caller passed."""
    import cupy

    n, result = len(a), a
    if n == 0:
        return a
    a = cupy.ascontiguousarray(a)
    status = PivotStatus()
    factor(a, status)
    invert_lower(a, invert_blocks(a, status))
    _square_in_place(a)
    tiles = -(-n // 32)
    kernels.get("cholesky", "mirror", a.dtype)((tiles, tiles), (32, 8), a, leading(a), n, status.overflow)
    status.check("not positive definite", given)
    return _in_order_of(result, a)


def _square_in_place(q: Array) -> None:
    """The lower triangle of Qᵀ Q in the place of a lower triangular Q (with zeros above)."""
    n = len(q)
    step = 1024 if q.dtype.char == "f" or n > 6400 else 512
    for start in range(0, n, step):
        stop = min(start + step, n)
        slab = q[start:stop, :stop].copy()
        q[start:stop, :stop] = 0
        square = q[:stop, :stop]
        if choose_engine(stop, stop, stop - start, q.dtype) == "split":
            gemm(slab, slab, square, 1.0, 1.0, transa=True, lower_only=True)
        else:
            _syrk(slab, square, 1.0, trans=True)


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
    x, iterations = cupy.zeros_like(b), 0
    error_reached = float("inf")

    def precondition(r: Array) -> Array:
        size = largest(r)
        size = cupy.where(size > 0, size, 1)
        z = cupy.ascontiguousarray((r / size * scale[:, None]).astype(np.float32))
        solve(single, inverses, z)
        return z.astype(np.float64) * scale[:, None] * size

    if reason is None:
        r = b
        z = precondition(r)
        p, rz = z, (r * z).sum(axis=0)  # r: the residual, z: preconditioned, p: the direction
        while iterations < max_iterations:
            iterations += 1
            ap = a @ p
            curvature = (p * ap).sum(axis=0)
            x += cupy.where(curvature > 0, rz / cupy.where(curvature > 0, curvature, 1), 0) * p
            r_before, r = r, b - a @ x  # the true one: the recursion would drift below what x can reach
            error_reached = backward_error(x, r)
            if not error_reached > tolerance:
                break
            z = precondition(r)
            # The flexible form of beta: float32 rounding makes the preconditioner another one each time.
            beta = cupy.where(rz > 0, ((r - r_before) * z).sum(axis=0) / cupy.where(rz > 0, rz, 1), 0)
            p, rz = z + beta * p, (r * z).sum(axis=0)
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

"""C = alpha op(A) op(B) + beta C on the GPU: the engine under every blocked algorithm of this package.

Private, and lean: it works in place on row-major views (any leading dimension, any offset) and checks
only what would corrupt memory. The public, checked face is `deblur.linalg.matmul`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ..backend import Array

ENGINES = ("auto", "cublas", "tf32", "tf32x3")


def _layout(x: Array, trans: bool, name: str) -> tuple[int, int, int, bool]:
    """Rows and columns of op(x), its leading dimension, and whether memory holds op(x) transposed."""
    rows, cols = x.shape
    size = x.itemsize
    down, across = (s // size for s in x.strides)
    if across == 1 or cols == 1:
        ld = down if rows > 1 else max(cols, 1)
    elif down == 1 or rows == 1:
        ld, trans, rows, cols = across, not trans, cols, rows
    else:
        raise ValueError(f"{name} has strides {x.strides}: one of its two axes must be contiguous")
    if ld < max(cols, 1):
        raise ValueError(f"{name} has strides {x.strides}: its rows overlap")
    return (cols, rows, ld, True) if trans else (rows, cols, ld, False)


def gemm(
    a: Array,
    b: Array,
    c: Array,
    alpha: float = 1.0,
    beta: float = 0.0,
    transa: bool = False,
    transb: bool = False,
    lower_only: bool = False,
    engine: str = "auto",
) -> Array:
    """C = alpha op(A) op(B) + beta C, in place in `c`, which is also returned.

    Parameters
    ----------
    a, b : cupy.ndarray
        op(A), shape (m, k), and op(B), shape (k, n), in `c`'s dtype: views with one contiguous axis.
        They may be the same array; neither may share memory with `c`.
    c : cupy.ndarray
        Shape (m, n), float32 or float64, row-major with any leading dimension. Not read if `beta` is 0.
    alpha, beta : float
        Scalars on the host.
    transa, transb : bool
        Whether op transposes.
    lower_only : bool
        Compute only c[i, j] with i >= j; what lies above the diagonal keeps its values.
    engine : str
        One of `ENGINES`.
    """
    import cupy

    m, k, lda, a_across = _layout(a, transa, "a")
    k_b, n, ldb, b_across = _layout(b, transb, "b")
    m_c, n_c, ldc, c_across = _layout(c, False, "c")
    if k != k_b or (m, n) != (m_c, n_c):
        raise ValueError(f"op(a) is {(m, k)}, op(b) is {(k_b, n)} and c is {c.shape}: they do not fit")
    if not (a.dtype == b.dtype == c.dtype) or c.dtype.char not in "fd":
        raise TypeError(f"a, b and c must all be float32 or all float64, not {a.dtype}, {b.dtype}, {c.dtype}")
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    if m == 0 or n == 0:
        return c
    if c_across and c.shape[0] > 1 and c.shape[1] > 1:
        raise ValueError(f"c has strides {c.strides}: it must be row-major")

    if engine == "tf32x3" and c.dtype.char == "f":
        return _tf32x3(a, b, c, alpha, beta, transa, transb, lower_only)
    if not lower_only:
        _cublas(a, lda, a_across, b, ldb, b_across, c, ldc, m, n, k, alpha, beta, engine == "tf32")
        return c
    block = 1024
    for j in range(0, n, block):
        end = min(j + block, n)
        b_j = b[j:end] if transb else b[:, j:end]
        a_j = a[:, j:end] if transa else a[j:end]
        diagonal = cupy.empty((min(end, m) - j, end - j), c.dtype)
        gemm(a_j, b_j, diagonal, alpha, 0.0, transa, transb, engine=engine)
        keep = cupy.tri(*diagonal.shape, dtype=bool)
        target = c[j:end, j:end]
        if beta != 0.0:
            diagonal += beta * target
        cupy.copyto(target, diagonal, where=keep)
        if end < m:
            a_j = a[:, end:] if transa else a[end:]
            gemm(a_j, b_j, c[end:, j:end], alpha, beta, transa, transb, engine=engine)
        if end >= m:
            break
    return c


def _cublas(
    a: Array, lda: int, a_across: bool, b: Array, ldb: int, b_across: bool, c: Array, ldc: int,
    m: int, n: int, k: int, alpha: float, beta: float, tf32: bool = False,
) -> None:  # fmt: skip
    """The product by cuBLAS. Row-major C is column-major C', and C' = op(B)' op(A)': so B goes first."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    real: Any
    if c.dtype.char == "f":
        real, kind = ctypes.c_float, 0  # CUDA_R_32F
        compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32 if tf32 else cublas.CUBLAS_COMPUTE_32F
    else:
        real, kind, compute = ctypes.c_double, 1, cublas.CUBLAS_COMPUTE_64F  # CUDA_R_64F
    scale, keep = real(alpha), real(beta)
    cublas.gemmEx(
        device.get_cublas_handle(), int(b_across), int(a_across), n, m, k,
        ctypes.addressof(scale), b.data.ptr, kind, ldb, a.data.ptr, kind, lda,
        ctypes.addressof(keep), c.data.ptr, kind, ldc, compute, cublas.CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip


def _tf32x3(
    a: Array, b: Array, c: Array, alpha: float, beta: float, transa: bool, transb: bool, lower_only: bool
) -> Array:
    """Three TF32 products of split operands by cuBLAS: fast, but its accumulators truncate (error ~ k)."""
    import cupy

    split = cupy.ElementwiseKernel(
        "float32 x", "float32 hi, float32 lo",
        # Round to the 10 stored bits of TF32, to nearest, ties away; the rest is exact.
        "hi = __int_as_float((__float_as_int(x) + 0x1000) & 0xffffe000); lo = x - hi;",
        "deblur_tf32_split",
    )  # fmt: skip
    a_hi, a_lo = split(a)
    b_hi, b_lo = (a_hi, a_lo) if b is a else split(b)
    for x, y in ((a_lo, b_hi), (a_hi, b_lo), (a_hi, b_hi)):
        gemm(x, y, c, alpha, beta, transa, transb, lower_only, engine="tf32")
        beta = 1.0
    return c

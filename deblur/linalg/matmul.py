"""Products of two matrices, and of a matrix with its own transpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from ..device import Array, get_xp
from ..threads import symmetric_products
from . import matmul_gpu
from .checks import as_float, as_matrix, column_major, contiguous
from .transpose import mirror_lower


def matmul(a: Any, b: Any, *, check_finite: bool = True) -> Array:
    """Return the product of two matrices, or of a matrix and a vector.

    Parameters
    ----------
    a : array_like, shape (m, k)
        Real matrix.
    b : array_like, shape (k, n) or (k,)
        Real matrix or vector.
    check_finite : bool
        Look for NaN and infinity in `a` and `b` first.

    Returns
    -------
    ndarray, shape (m, n) or (m,)
        The product: float32 if `a` and `b` both are (or float16), else float64.

    Raises
    ------
    ValueError
        If shapes do not match, or an entry is not finite.
    TypeError
        If an argument is complex, sparse or masked.

    Notes
    -----
    On a GPU, every element of a float32 product is as accurate as in float32 arithmetic. For large matrices on Hopper,
    the product is three tensor-core products of operands split into two TF32 numbers each, summed outside the tensor
    cores [1]_. Non-finite elements may then give NaN where the result is infinite.

    References
    ----------
    .. [1] H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while
       surpassing the FP32 theoretical peak performance", Int. J. High Perform. Comput. Appl. 36
       (2022) 475-491.
    """
    a = as_matrix(a, "a", finite=check_finite)
    b = as_float(b, "b", finite=check_finite)
    xp = get_xp(a, b)
    if b.ndim not in (1, 2) or a.shape[1] != b.shape[0]:
        raise ValueError(f"a of shape {a.shape} and b of shape {b.shape} cannot be multiplied")
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = (contiguous(x.astype(dtype, copy=False)) for x in (a, b))
    if xp is np or b.ndim == 1:
        return xp.matmul(a, b)
    return matmul_gpu.gemm(a, b, xp.empty((len(a), b.shape[1]), dtype))


def gram(a: Any, *, trans: bool = False, check_finite: bool = True) -> Array:
    """Return AᵀA, or AAᵀ with ``trans=True``, exactly symmetric: one half is computed and mirrored.

    Parameters
    ----------
    a : array_like, shape (m, n)
        Real matrix.
    trans : bool
        Whether to compute AAᵀ.
    check_finite : bool
        As in `matmul`.

    Returns
    -------
    ndarray, shape (n, n), or (m, m) with ``trans=True``
        The product; Fortran and C order are the same for a symmetric matrix.

    Raises
    ------
    ValueError, TypeError
        As `matmul`.
    """
    a = as_matrix(a, finite=check_finite)
    xp, n = get_xp(a), a.shape[0 if trans else 1]
    if xp is not np:
        product = xp.empty((n, n), a.dtype)
        a = contiguous(a)
        left, right = (a, a.T) if trans else (a.T, a)
        matmul_gpu.gemm(left, right, product, lower_only=True)
        mirror_lower(product)
        return product
    if a.size == 0:  # an empty sum is zero, but BLAS rejects empty arrays
        return np.zeros((n, n), a.dtype)
    a, flipped = column_major(a)
    syrk = scipy.linalg.get_blas_funcs("syrk", (a,))
    with symmetric_products(n, a.itemsize):
        product = syrk(1.0, a, trans=trans == flipped, lower=True)
    mirror_lower(product)
    return product

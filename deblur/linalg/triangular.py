"""Triangular matrices: their inverse ("GETS"), and systems of equations.

The thesis [1]_ calls this GETS: Gaussian elimination of a triangular system, here augmented
with the identity, so that the result is the inverse. It needs no pivot search and normalises each row
once, and the zeros of the inverse are known: n³/3 operations instead of 2 n³.

On the CPU, LAPACK's `trtri` and BLAS's `trsm` and `trsv` do the work, through SciPy. On the GPU it is
products, with the inverses of small diagonal blocks from ``cuda/triangular.cu``.

References
----------
.. [1] Thesis on image restoration by matrix inversion in CUDA (about 2012), sec. 5.2.3.
"""

# ruff: noqa: E741 (L is the name of a lower triangular matrix in every text)

from __future__ import annotations

from typing import Any

import scipy

from ..device import Array, blocks, get_xp, is_cupy
from ..errors import check_flags
from . import checks, triangular_gpu
from .pivots_gpu import PivotStatus
from .transpose import TILE


def gets(l: Any, *, lower: bool = True, check_finite: bool = True) -> Array:
    """Return the inverse of a triangular matrix.

    Parameters
    ----------
    l : array_like, shape (n, n)
        Matrix, of which the lower triangle (the upper one with ``lower=False``) is read.
    lower : bool
        Whether to read the lower triangle.
    check_finite : bool
        Look for NaN and infinity in `l` first, in both triangles, and estimate the condition.
        On the GPU they are found during the inversion, in the triangle that is read.

    Returns
    -------
    ndarray, shape (n, n)
        The inverse, with zeros in the other triangle.

    Raises
    ------
    SingularMatrixError
        If a diagonal entry is zero or its reciprocal overflows (``index`` is its position), or,
        with ``index`` None, if the inverse overflows elsewhere.
    ValueError
        If `l` is not a square matrix, or not finite.
    TypeError
        If `l` is complex, sparse or masked.

    Warns
    -----
    LinAlgWarning
        If the reciprocal condition number is below eps (on the CPU, with `check_finite`).
    """
    check_flags(lower=lower)
    l = checks.as_matrix(l, "l", square=True, finite=not is_cupy(l) and check_finite)
    if is_cupy(l):
        status = PivotStatus()
        x = triangular_gpu.inverse(l.copy(order="K"), lower, status)
        status.check("singular", l)
        return x
    checks.check_pivots(l.diagonal())
    rcond = checks.triangle_rcond(l, lower) if check_finite else 1.0
    x = inverse(l.copy(order="K"), lower=lower)
    checks.check_overflow(x, "the inverse")
    checks.warn_ill_conditioned(rcond, l.dtype)
    return x


def solve_triangular(l: Any, b: Any, *, trans: bool = False, lower: bool = True, check_finite: bool = True) -> Array:
    """Return the solution of L X = B, or of Lᵀ X = B with ``trans=True``, for a triangular L.

    Parameters
    ----------
    l : array_like, shape (n, n)
        Matrix, of which the lower triangle (the upper one with ``lower=False``) is read.
    b : array_like, shape (n,) or (n, k)
        One right-hand side, or k of them.
    trans : bool
        Solve with the transpose of `l`.
    lower : bool
        As in `gets`.
    check_finite : bool
        Look for NaN and infinity in `l` and `b` first, and estimate the condition of `l`.

    Returns
    -------
    ndarray, shape of `b`
        The solution: float32 if `l` and `b` both are (or float16), else float64.

    Raises
    ------
    SingularMatrixError
        If a diagonal entry is zero or its reciprocal overflows (``index`` is its position), or,
        with ``index`` None, if the solution overflows.
    ValueError
        If shapes do not match, or an entry is not finite.
    TypeError
        If an argument is complex, sparse or masked.

    Warns
    -----
    LinAlgWarning
        If the reciprocal condition number is below eps (on the CPU, with `check_finite`).
    """
    check_flags(trans=trans, lower=lower)
    l, b = checks.as_system(l, b, ("l", "b"), finite=check_finite)
    checks.check_pivots(l.diagonal())
    substitute(l, b, trans=trans, lower=lower)
    checks.check_overflow(b, "the solution")
    if check_finite and not is_cupy(b):
        checks.warn_ill_conditioned(checks.triangle_rcond(l, lower), l.dtype)
    return b


def inverse(l: Array, *, lower: bool = True) -> Array:
    """Return `gets` without any check, in place on a contiguous array."""
    if is_cupy(l):
        return triangular_gpu.inverse(l, lower)
    if len(l) == 0:  # LAPACK rejects empty arrays
        return l
    a, flipped = checks.column_major(l)
    scipy.linalg.get_lapack_funcs("trtri", (a,))(a, lower=lower != flipped, overwrite_c=True)
    clear_triangle(l, lower=not lower)
    return l


def substitute(l: Array, x: Array, *, trans: bool | tuple[bool, ...] = False, lower: bool = True) -> None:
    """Solve as `solve_triangular` in place on a contiguous `x`, unchecked, and once for each of several `trans`."""
    turns = trans if isinstance(trans, tuple) else (trans,)
    if x.size == 0:
        return
    if is_cupy(x):
        triangular_gpu.substitute(l, x, turns, lower)
        return
    a, flipped = checks.column_major(l)
    trsv, trsm = scipy.linalg.get_blas_funcs(("trsv", "trsm"), (a,))
    how: Any = {"lower": lower != flipped}
    for turn in turns:
        if x.ndim == 1:
            trsv(a, x, trans=turn != flipped, overwrite_x=True, **how)
        elif x.flags.f_contiguous:
            trsm(1.0, a, x, trans_a=turn != flipped, overwrite_b=True, **how)
        else:  # Xᵀ op(A)ᵀ = Bᵀ
            trsm(1.0, a, x.T, side=1, trans_a=turn == flipped, overwrite_b=True, **how)


def clear_triangle(a: Array, *, lower: bool) -> None:
    """Set the strictly lower (or strictly upper) triangle of a square matrix to zero, in place."""
    keep = get_xp(a).triu if lower else get_xp(a).tril
    for tile in blocks(len(a), TILE):
        a[tile, slice(0, tile.start) if lower else slice(tile.stop, None)] = 0
        a[tile, tile] = keep(a[tile, tile])

"""Symmetric positive definite matrices: Cholesky factor, solution and inverse.

A = L Lᵀ takes n³/3 operations. A solve needs two triangular systems and no inverse. An inverse
takes the thesis's three steps: Cholesky, GETS (Q = L⁻¹, n³/3 operations), and A⁻¹ = L⁻ᵀ L⁻¹ = Qᵀ Q,
of which one half is computed (n³/3), all in the memory of one matrix.

On the CPU the steps are LAPACK's `potrf` and `potri` (the last two), through SciPy. On the GPU they are launches of
``cuda/cholesky.cu``, which factor many block columns each, and products (see `cholesky_gpu`).

References
----------
.. [1] Thesis on image restoration by matrix inversion in CUDA (about 2012), sec. 5.2.2-5.2.4.
.. [2] N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, ch. 10
   and sec. 14.3.
"""

# ruff: noqa: E741 (L is the name of a lower triangular matrix in every text)

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import scipy

from ..device import Array, is_cupy
from ..errors import SingularMatrixError
from ..threads import symmetric_products
from . import checks, cholesky_gpu
from .transpose import mirror_lower
from .triangular import clear_triangle, substitute


def cholesky(a: Any, *, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the Cholesky factor L of a symmetric positive definite matrix, A = L Lᵀ.

    Parameters
    ----------
    a : array_like, shape (n, n)
        Real matrix, of which only the lower triangle is read; the upper one is taken to be its mirror
        image. float16 and float32 are computed in float32, all else in float64.
    overwrite_a : bool
        Let L replace `a`, if `a` is a contiguous float32 or float64 array.
    check_finite : bool
        Look for NaN and infinity in `a` first, in both triangles. On the GPU they are found during the
        factorisation, in the lower triangle.

    Returns
    -------
    ndarray, shape (n, n)
        L, lower triangular with zeros above, its diagonal positive; in the memory order of `a`.

    Raises
    ------
    SingularMatrixError
        If `a` is not positive definite to rounding; ``index`` is the position of the first pivot
        that is not positive. With `overwrite_a`, `a` is then left half factored.
    ValueError
        If `a` is not a square matrix, or not finite; or if `overwrite_a` is set and `a` is read-only.
    TypeError
        If `a` is complex, sparse or masked.
    """
    given, a = a, checks.as_matrix(a, square=True, finite=not is_cupy(a) and check_finite)
    room = checks.scratch(a, given, overwrite_a, empty=is_cupy(a))
    if is_cupy(a):
        return cholesky_gpu.cholesky(a, room, given)[0]
    _factor(room)
    clear_triangle(room, lower=False)
    return room


def cholesky_begun(a: Array) -> tuple[Array, Callable[[], None] | None]:
    """Return L in the memory of `a`, and a function that waits for it and raises SingularMatrixError if there is none.

    `a` is a finite float32 or float64 matrix. On the CPU the factor is complete, and the function is None.
    """
    if not is_cupy(a):
        return cholesky(a, overwrite_a=True, check_finite=False), None
    factor, status = cholesky_gpu.cholesky(a, a, later=True)
    return factor, partial(status.check, "not positive definite")


def cholesky_solve(l: Any, b: Any, *, check_finite: bool = True) -> Array:
    """Return the solution of A X = B from the Cholesky factor of A, by two triangular systems.

    Parameters
    ----------
    l : array_like, shape (n, n)
        Factor from `cholesky`, of which the lower triangle is read.
    b : array_like, shape (n,) or (n, k)
        One right-hand side, or k of them.
    check_finite : bool
        Look for NaN, infinity and zero pivots first, and check overflow and condition afterwards. May be
        omitted for a valid factor if the caller checks the solution.

    Returns
    -------
    ndarray, shape of `b`
        The solution: float32 if `l` and `b` both are (or float16), else float64.

    Raises
    ------
    SingularMatrixError
        If a diagonal entry of `l` is zero or its reciprocal overflows (``index`` is its position),
        or, with ``index`` None, if the solution overflows.
    ValueError
        If shapes do not match, or an entry is not finite.
    TypeError
        If an argument is complex, sparse or masked.

    Warns
    -----
    LinAlgWarning
        If an estimate of the reciprocal condition number is below eps (on the CPU, with `check_finite`).
    """
    l, b = checks.as_system(l, b, ("l", "b"), finite=check_finite)
    if check_finite:
        checks.check_pivots(l.diagonal())
    substitute(l, b, trans=(False, True))
    if check_finite:
        checks.check_overflow(b, "the solution")
        if not is_cupy(b):
            checks.warn_ill_conditioned(checks.triangle_rcond(l, True, of_product=True), l.dtype)
    return b


def cholesky_inverse(a: Any, *, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the inverse of a symmetric positive definite matrix: Cholesky, GETS, Qᵀ Q.

    Parameters
    ----------
    a, overwrite_a, check_finite
        As in `cholesky`, but here the inverse replaces `a`.

    Returns
    -------
    ndarray, shape (n, n)
        The inverse, exactly symmetric.

    Raises
    ------
    SingularMatrixError
        As `cholesky`; also, with ``index`` None, if the inverse overflows.
    ValueError, TypeError
        As `cholesky`.

    Warns
    -----
    LinAlgWarning
        If the reciprocal condition number is below eps (on the CPU, with `check_finite`).

    Notes
    -----
    n³ operations, half of a general inverse. To apply the inverse to a few vectors, use `cholesky`
    and `cholesky_solve` instead: they take a third of the operations and are more accurate.
    """
    given, matrix = a, checks.as_matrix(a, square=True, finite=not is_cupy(a) and check_finite)
    a = checks.scratch(matrix, given, overwrite_a, empty=is_cupy(matrix))
    if is_cupy(a):
        return cholesky_gpu.inverse(matrix, a, given)
    norm = checks.log2_norm(a) if check_finite else None
    _factor(a)
    if len(a):
        c, flipped = checks.column_major(a)
        potri = scipy.linalg.get_lapack_funcs("potri", (c,))
        with symmetric_products(len(a), a.itemsize):
            potri(c, lower=not flipped, overwrite_c=True)
        mirror_lower(a)
    checks.check_inverse(a, norm)
    return a


def _factor(a: Array) -> None:
    """Write L into the lower triangle of a contiguous `a`; the upper triangle keeps its values."""
    if len(a) == 0:  # LAPACK rejects empty arrays
        return
    c, flipped = checks.column_major(a)
    potrf = scipy.linalg.get_lapack_funcs("potrf", (c,))
    with symmetric_products(len(a), a.itemsize):
        _, info = potrf(c, lower=not flipped, clean=False, overwrite_a=True)
    if info > 0:
        raise SingularMatrixError(
            f"the matrix is not positive definite: pivot {info - 1}, counted from 0, is not positive; "
            "regularise it (a larger lambda), or use gauss_jordan_inverse for a matrix that is not positive definite",
            index=info - 1,
        )
    checks.check_pivots(a.diagonal())  # some builds of LAPACK do not report NaN

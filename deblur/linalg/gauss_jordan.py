"""Blocked Gauss-Jordan elimination with partial pivoting: inverse in place, and solution.

For a panel of `block` columns with pivot block D (after row switches), one step turns

    ⎡ A  P  B ⎤        ⎡ A  0  B ⎤   ⎡ -P D⁻¹ ⎤
    ⎢ C  D  E ⎥   to   ⎢ 0  0  0 ⎥ + ⎢    D⁻¹ ⎥ [C  I  E]
    ⎣ F  Q  G ⎦        ⎣ F  0  G ⎦   ⎣ -Q D⁻¹ ⎦

which switches rows, normalises the pivot rows and makes zeros above and below them, for `block`
columns at once. The panel's columns become columns of the identity, so their memory is free: the
inverse is stored there, and no second n × n matrix is needed. After the last panel the matrix
holds (P A)⁻¹ = A⁻¹ Pᵀ, and the row switches are undone as column switches.

The pivots of a panel are those of LAPACK's `getrf` on its rows from the diagonal down, since
partial pivoting does not consider the rows above. The factors of `getrf` also give the
multipliers -P D⁻¹ and -Q D⁻¹ by triangular solves. The rest is the rank-`block` update, which takes
2 n³ of about 2 n³ + 2 n² block operations.

References
----------
.. [1] E. S. Quintana-Ortí, G. Quintana-Ortí, X. Sun, R. van de Geijn, "A note on parallel matrix
   inversion", SIAM J. Sci. Comput. 22 (2001) 1762-1771.
.. [2] N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, sec. 14.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from ..device import Array, blocks, is_cupy
from . import checks, gauss_jordan_gpu
from .transpose import turn

BLOCK = 128  # with far fewer columns, memory bounds the update; with far more, the panel dominates
_PROBES = 4  # right-hand sides for the estimate of the condition
STRIP = 64  # rows processed at a time if an expression needs a temporary


def gauss_jordan_inverse(a: Any, *, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the inverse of a square matrix by blocked, in-place Gauss-Jordan elimination.

    Parameters
    ----------
    a : array_like, shape (n, n)
        Real matrix. float16 and float32 are computed in float32, all else in float64.
    overwrite_a : bool
        Let the inverse replace `a`, without a second n × n matrix. If `a` is a contiguous float32 or
        float64 array, `a` itself is returned; otherwise `a` keeps its values.
    check_finite : bool
        Look for NaN and infinity in `a` first, and estimate the condition. On the GPU they are found during
        the elimination.

    Returns
    -------
    ndarray, shape (n, n)
        The inverse, in the memory order of `a`.

    Raises
    ------
    SingularMatrixError
        If a pivot is zero, subnormal, or too small for its reciprocal to be represented; ``index`` is its
        position (on the GPU, where the transpose is eliminated, that of a row that depends on
        earlier rows). Also, with ``index`` None, if the inverse overflows. With `overwrite_a`, `a` is
        then left half eliminated.
    ValueError
        If `a` is not a square matrix, or not finite; or if `overwrite_a` is set and `a` is read-only.
    TypeError
        If `a` is complex, sparse or masked.

    Warns
    -----
    LinAlgWarning
        If the reciprocal condition number is below eps (on the CPU, with `check_finite`).

    Notes
    -----
    2 n³ operations [1]_. The condition number in the 1-norm is
    ``norm(a, 1) * norm(inverse, 1)``, which costs only n² operations. For a symmetric positive
    definite matrix, `cholesky_inverse` takes half the operations.

    References
    ----------
    .. [1] E. S. Quintana-Ortí et al., SIAM J. Sci. Comput. 22 (2001) 1762-1771.
    """
    given, a = a, checks.as_matrix(a, square=True, finite=not is_cupy(a) and check_finite)
    a = checks.scratch(a, given, overwrite_a)
    if is_cupy(a):
        # Row operations always make X A - I small. Applied to the transpose, they make A X - I small, which a
        # solution needs. A column-major array already is a transpose.
        by_rows = a.flags.c_contiguous
        if by_rows:
            turn(a)
        gauss_jordan_gpu.inverse(a if by_rows else a.T, None if a is given else given)
        if by_rows:
            turn(a)
        return a
    norm = checks.log2_norm(a) if check_finite else None
    columns = np.argsort(_eliminate(a, []))
    for rows in blocks(len(a), STRIP):
        a[rows] = a[rows][:, columns]
    checks.check_inverse(a, norm)
    return a


def gauss_jordan_solve(a: Any, b: Any, *, check_finite: bool = True) -> Array:
    """Return the solution of A X = B by blocked Gauss-Jordan elimination of A augmented with B.

    Parameters
    ----------
    a : array_like, shape (n, n)
        Real matrix.
    b : array_like, shape (n,) or (n, k)
        One right-hand side, or k of them.
    check_finite : bool
        As in `gauss_jordan_inverse`.

    Returns
    -------
    ndarray, shape of `b`
        The solution: float32 if `a` and `b` both are (or float16), else float64.

    Raises
    ------
    SingularMatrixError
        As `gauss_jordan_inverse`.
    ValueError
        If shapes do not match, or an entry is not finite.
    TypeError
        If an argument is complex, sparse or masked.

    Warns
    -----
    LinAlgWarning
        If an estimate of the reciprocal condition number is below eps (on the CPU, with `check_finite`).

    Notes
    -----
    n³ + 2 n² k operations, compared with 2/3 n³ + 2 n² k of an LU factorisation; the zeros above the
    pivots make the difference.
    """
    given, b = checks.as_system(a, b, finite=check_finite)
    a = given.copy(order="F")  # so that the columns still to be eliminated are contiguous
    n = len(a)
    x = b[:, None] if b.ndim == 1 else b
    if is_cupy(a):
        gauss_jordan_gpu.solve(a, x, given)
        return b
    norm, count = (checks.log2_norm(a), _PROBES) if check_finite else (0.0, 0)
    # Of white noise z, the mean of ‖A⁻¹z‖² is the square of A⁻¹'s Frobenius norm.
    scale = 2.0 ** np.clip(norm, -100, 100)  # so that A⁻¹z stays in range
    probes = np.asfortranarray(scale * np.random.default_rng(0).standard_normal((n, count)), a.dtype)
    _eliminate(a, [x, probes])
    checks.check_overflow(x, "the solution")
    if count:
        checks.warn_ill_conditioned(scale * count**0.5 * 2.0 ** -(norm + checks.log2_norm(probes, "F")), a.dtype)
    return b


def _eliminate(a: np.ndarray, right: list[np.ndarray]) -> np.ndarray:
    """Eliminate the columns of [A right]: `right` becomes A⁻¹ right, or, if it is empty, A becomes (P A)⁻¹.

    Returns the index of the row of A that was moved to each place.
    """
    order = np.arange(len(a))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for panel in blocks(len(a), BLOCK):
            targets = [a[:, panel.stop :], *right] if right else [a]
            multipliers, order[panel.start :] = _eliminate_panel(a, targets, order[panel.start :], panel)
            if not right:  # the panel now has the identity's columns
                a[:, panel] = 0
                a[panel, panel] = np.eye(panel.stop - panel.start)
            for target in targets:
                pivot_rows = target[panel].copy()
                target[panel] = 0
                _rank_update(target, multipliers, pivot_rows)
    return order


def _eliminate_panel(a: Array, targets: Sequence[Array], order: Array, panel: slice) -> tuple[Array, Array]:
    """Choose the pivots of a panel, switch the rows of all `targets`, and return the multipliers and the new order.

    The multipliers, (n, b) in Fortran order, are D⁻¹ in the panel's rows and -P D⁻¹, -Q D⁻¹ above and
    below (see the top of this file). `order` has one entry for each row from ``panel.start`` down, and is
    switched like these rows.
    """
    k, b = panel.start, panel.stop - panel.start
    getrf, trsm = scipy.linalg.get_lapack_funcs("getrf", (a,)), scipy.linalg.get_blas_funcs("trsm", (a,))

    factors, switches, _ = getrf(a[k:, panel])
    # OpenBLAS does not divide by a pivot below the normal numbers.
    checks.check_pivots(np.where(abs(factors.diagonal()) < np.finfo(a.dtype).tiny, 0, factors.diagonal()), k)
    switched = np.arange(len(a) - k)
    for row, other in enumerate(switches):
        switched[row], switched[other] = switched[other], switched[row]
    moved = np.flatnonzero(switched != np.arange(len(switched)))
    for target in targets:
        target[k + moved] = target[k + switched[moved]]

    # -P D⁻¹ and D⁻¹ need both factors of D = L U; below them, getrf has already applied U⁻¹.
    multipliers = np.empty((len(a), b), a.dtype, order="F")
    multipliers[:k] = -a[:k, panel]
    multipliers[k : k + b] = np.eye(b)
    multipliers[: k + b] = trsm(1.0, factors[:b], multipliers[: k + b], side=1)
    multipliers[k + b :] = -factors[b:]
    multipliers = trsm(1.0, factors[:b], multipliers, side=1, lower=1, diag=1, overwrite_b=True)
    return multipliers, order[switched]


def _rank_update(a: Array, left: Array, right: Array) -> None:
    """Compute ``a += left @ right`` in place, for a contiguous `a`.

    This calls SciPy's BLAS, not NumPy's product. NumPy cannot accumulate, and if both bring their own
    BLAS, as their wheels do, alternating calls make two sets of threads compete.
    """
    if a.size == 0:  # f2py rejects empty arrays
        return
    gemm = scipy.linalg.get_blas_funcs("gemm", (a,))
    if a.flags.f_contiguous:
        gemm(1.0, left, right, beta=1.0, c=a, overwrite_c=True)
    else:
        gemm(1.0, right.T, left, trans_b=True, beta=1.0, c=a.T, overwrite_c=True)

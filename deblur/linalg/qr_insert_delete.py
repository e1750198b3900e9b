"""Insertion and deletion of rows and columns in a factorisation A = QR: counterparts of two SciPy functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from ..device import Array, check_finite as refuse_nonfinite, get_xp, unwrapped
from ..errors import check_choice, check_count, check_flags
from ..norms import normalized
from .checks import as_block, position
from .qr import factor
from .qr_plan import rotations_are_faster
from .qr_update import add_columns, add_rows, complement, remove_columns, remove_rows, unit_complement


def qr_insert(
    Q: Array,
    R: Array,
    u: Array,
    k: int,
    which: str = "row",
    rcond: float | None = None,
    overwrite_qru: bool = False,
    check_finite: bool = True,
) -> tuple[Array, Array]:
    """Return the factorisation of A with rows or columns inserted, from that of A = QR.

    Counterpart of `scipy.linalg.qr_insert` for NumPy and CuPy.

    Parameters
    ----------
    Q : (M, M) or (M, N) array
        From the full or the economic factorisation; float32 or float64, in any byte order.
    R : (M, N) or (N, N) array
        In Q's dtype.
    u : (N,) or (p, N) array for rows, (M,) or (M, p) array for columns
        The rows or columns to insert, in Q's dtype.
    k : int
        Position before which they are inserted; from −M to M for rows, −N to N for columns.
    which : {"row", "col"}
        Whether u is rows or columns.
    rcond : float, optional
        For columns into an economic factorisation only: a lower bound on the
        reciprocal condition number of Q with one more column u/‖u‖. By default
        eps of the dtype.
    overwrite_qru : bool
        Allow Q, R and u to be overwritten. Only SciPy's routines use this.
    check_finite : bool
        Whether to look for NaN and infinity first.

    Returns
    -------
    Q1, R1 : arrays
        The full form stays full. The economic form stays economic, (M + p, N) (N, N) or
        (M, N + p) (N + p, N + p), unless there are now more columns than rows: then it is
        (M, M) (M, N + p).

    Raises
    ------
    ValueError
        If shapes or dtypes do not match, `k` is out of range, `which` is unknown, `rcond`
        is given for another form, or an entry is not finite.
    TypeError
        If an array is complex, sparse or masked, or if NumPy and CuPy arrays are mixed.
    LinAlgError
        If a column of u lies in the span of Q, by the criterion of `rcond`.

    See Also
    --------
    plan_update : predicts whether an update or a new factorisation is faster.

    Notes
    -----
    The signs of R's rows are not unique. On the CPU, SciPy's compiled rotations insert one row or
    column, or a few, if they are faster. Blocks, and arrays on the GPU, use the sweeps of
    `deblur.linalg.sweeps`.

    References
    ----------
    .. [1] S. Hammarling, C. Lucas, "Updating the QR factorization and the least
       squares problem", MIMS EPrint 2008.111, University of Manchester.
    .. [2] R. Andrew, N. Dingle, "Implementing QR factorization updating algorithms
       on GPUs", Parallel Computing 40 (2014).
    """
    check_flags(overwrite_qru=overwrite_qru, check_finite=check_finite)
    Q, R, u = _checked(which, check_finite, Q=Q, R=R, u=u)
    m, n = len(Q), R.shape[1]
    if u.dtype != Q.dtype:
        raise ValueError(f"u must have the dtype of Q and R, {Q.dtype}, not {u.dtype}: convert it")
    axis, length = (0, n) if which == "row" else (1, m)
    u = as_block(u, axis, length)
    if rcond is not None and not (which == "col" and _is_economic(Q)):
        raise ValueError("rcond applies only to columns that are inserted into an economic factorisation")
    k = position(k, m if which == "row" else n)
    if check_finite:
        refuse_nonfinite(u, "u")
    return insert(Q, R, u, k, which, rcond, overwrite_qru) if u.shape[axis] else (Q.copy(), R.copy())


def insert(
    Q: Array, R: Array, u: Array, k: int, which: str = "row", rcond: float | None = None, overwrite: bool = False
) -> tuple[Array, Array]:
    """Return `qr_insert` of a matrix `u` at 0 ≤ k, without any check."""
    xp, m, n, economic = get_xp(Q), len(Q), R.shape[1], _is_economic(Q)
    name, count = ("add_rows", len(u)) if which == "row" else ("add_columns", u.shape[1])
    unit, power = normalized(u) if which == "col" and economic else (u, 0)
    if xp is np and rotations_are_faster(name, m, n, count, economic) and not _close_to_span(Q, unit, which, economic):
        return scipy.linalg.qr_insert(Q, R, u, k, which, rcond, overwrite, False)
    if which == "row":
        Q, R = add_rows(Q, R, n, k, u)
        return (Q[:, :n], R[:n]) if economic else (Q, R)
    if economic and n + count > m:
        if rcond is not None:
            _, _, c = complement(unit[:, : m - n], Q.__matmul__, Q.T.__matmul__)
            _check_independent(c, unit, rcond)
        Q, R, economic = *_completed(Q, R), False
    if not economic:
        return add_columns(Q, R, n, k, Q.T @ u)
    s, w, c = complement(unit, Q.__matmul__, Q.T.__matmul__)
    _check_independent(c, unit, float(np.finfo(Q.dtype).eps) if rcond is None else rcond)
    Q, R = xp.hstack([Q, w]), xp.vstack([R, xp.zeros((count, n), R.dtype)])
    return add_columns(Q, R, n, k, xp.ldexp(xp.vstack([s, c]), power), triangular=True)


def qr_delete(
    Q: Array, R: Array, k: int, p: int = 1, which: str = "row", overwrite_qr: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """Return the factorisation of A with rows or columns removed, from that of A = QR.

    Counterpart of `scipy.linalg.qr_delete` for NumPy and CuPy.

    Parameters
    ----------
    Q, R : arrays
        As in `qr_insert`.
    k : int
        The first row or column to remove; from −M to M − 1 for rows, −N to N − 1 for columns.
    p : int
        Number of rows or columns to remove.
    which : {"row", "col"}
        Whether rows or columns are removed.
    overwrite_qr : bool
        Allow Q and R to be overwritten. Only SciPy's routines use this.
    check_finite : bool
        Whether to look for NaN and infinity first.

    Returns
    -------
    Q1, R1 : arrays
        The full form stays full. The economic form stays economic, (M − p, N) (N, N) or (M, N − p)
        (N − p, N − p), unless there are now more columns than rows: then it is
        (M − p, M − p) (M − p, N).

    Raises
    ------
    ValueError
        If shapes or dtypes do not match, `k` or `p` is out of range, `which` is
        unknown, or an entry is not finite.
    TypeError
        If an array is complex, sparse or masked, or if NumPy and CuPy arrays are mixed.

    Notes
    -----
    See `qr_insert`.
    """
    check_flags(overwrite_qr=overwrite_qr, check_finite=check_finite)
    Q, R = _checked(which, check_finite, Q=Q, R=R)
    size = len(Q) if which == "row" else R.shape[1]
    k, p = position(k, size - 1, size), check_count(p, "p")
    if not 0 < p <= size - k:
        raise ValueError(f"p = {p} is out of range: from position {k} on there are {size - k} {which}s")
    return delete(Q, R, np.arange(k, k + p), which, overwrite_qr)


def delete(Q: Array, R: Array, gone: np.ndarray, which: str = "row", overwrite: bool = False) -> tuple[Array, Array]:
    """Return `qr_delete` of one or more ascending indices, without any check."""
    xp, m, n, economic = get_xp(Q), len(Q), R.shape[1], _is_economic(Q)
    k, p = int(gone[0]), len(gone)
    name = "remove_rows" if which == "row" else "remove_columns"
    downdates = economic and which == "row"  # only here vectors may lie in the span of Q
    if (
        xp is np
        and gone[-1] - k == p - 1  # SciPy removes adjacent ones only
        and rotations_are_faster(name, m, n, p, economic)
        # Near the span of Q, SciPy fails or leaves a column of zeros in Q.
        and not (downdates and (m - p < n or not np.linalg.norm(Q[k : k + p], 2) < 0.995))
    ):
        return scipy.linalg.qr_delete(Q, R, k, p, which, overwrite, False)
    if which == "col":
        Q, R = remove_columns(Q, R, n, gone)
        return (Q[:, : n - p], R[: n - p]) if economic else (Q, R)
    if economic and m - p < n:
        Q, R, economic = *_completed(Q, R), False
    where = xp.asarray(gone)
    if economic:
        z, w, c = unit_complement(Q, where)
        Q, R, z = xp.hstack([Q, w]), xp.vstack([R, xp.zeros((p, n), R.dtype)]), xp.vstack([z, c])
    else:
        z = Q[where].T
    Q = Q[xp.asarray(np.delete(np.arange(m), gone))]
    return remove_rows(Q, R, n, z, triangular=economic)


def _is_economic(q: Array) -> bool:
    return q.shape[0] != q.shape[1]


def _checked(which: str, finite: bool, **given: Any) -> list[Array]:
    """Return Q, R and the other arguments as arrays; raise ValueError for Q and R that SciPy refuses."""
    check_choice(which, ("row", "col"), "which")
    xp = get_xp(*given.values())
    q, r, *_ = arrays = [xp.asarray(unwrapped(a, name)) for name, a in given.items()]
    if q.ndim != 2 or r.ndim != 2:
        raise ValueError(f"Q and R must be matrices, not of shapes {q.shape} and {r.shape}: update them one by one")
    if q.dtype != r.dtype or q.dtype not in (np.float32, np.float64):
        raise ValueError(f"Q and R must both be float32 or both float64, not {q.dtype} and {r.dtype}")
    economic = _is_economic(q)
    if q.shape[1] != r.shape[0] or (economic and (r.shape[0] != r.shape[1] or q.shape[0] < q.shape[1])):
        raise ValueError(
            f"Q {q.shape} and R {r.shape} do not belong together: (M, M) and (M, N), or, with M > N, (M, N) and "
            "(N, N) are needed"
        )
    if finite:
        refuse_nonfinite(q, "Q")
        refuse_nonfinite(r, "R")
    return arrays


def _check_independent(c: Array, u: Array, rcond: float) -> None:
    """Raise LinAlgError if a column of u is nearly in the span of Q and earlier columns; see `complement`."""
    xp = get_xp(c)
    size = xp.linalg.norm(u[:, : c.shape[1]], axis=0)
    sine = abs(xp.diagonal(c)) / xp.where(size == 0, 1, size)
    # [Q, u/‖u‖] has the singular values √(1 ± cos), and 1.
    found = sine / (1 + xp.sqrt(1 - xp.minimum(sine, 1) ** 2))
    reciprocal = float(found.min()) if found.size else 1.0
    if not reciprocal >= rcond:
        raise np.linalg.LinAlgError(
            f"a column of u lies in the span of Q: [Q, u/‖u‖] has the reciprocal condition number "
            f"{reciprocal:.2g} < rcond = {rcond:.2g}; use the full factorisation, or leave that column out"
        )


def _close_to_span(q: np.ndarray, u: np.ndarray, which: str, economic: bool) -> bool:
    """Return whether columns lie so near the span of Q that SciPy may leave a column of zeros in Q."""
    if which == "row" or not economic:
        return False
    size = np.square(u).sum(axis=0)
    return not bool((size - np.square(q.T @ u).sum(axis=0) > 1e-2 * size).all())


def _completed(q: Array, r: Array) -> tuple[Array, Array]:
    """Return the full form of an economic factorisation."""
    xp = get_xp(q)
    m, n = q.shape
    every, _ = factor(q, "complete")
    return xp.hstack([q, every[:, n:]]), xp.vstack([r, xp.zeros((m - n, r.shape[1]), r.dtype)])

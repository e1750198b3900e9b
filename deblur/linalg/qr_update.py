"""QR updating: rows and columns put in or taken out of A = QR for less than a new factorisation.

Four updates, two sweeps. Whatever enters or leaves, the work is to meet the
triangle R with p further rows and to make it a triangle again:

- `sweep_down` annihilates p full rows below a triangle, from the first block
  of columns to the last. Added rows are those p rows. So are the rows of R that
  belong to removed columns: what is left of R below and beside them is a
  triangle already.
- `sweep_up` annihilates p full columns beside a triangle, from the last block
  of rows to the first, and so collects them in p rows at the top. Added columns
  are Q'U. Removed rows are the rows of Q, transposed: once they are unit
  vectors, those rows of A stand in p rows of R and can be struck out.

Right-hand sides ride along as further columns of R: [R d] with d = Q'b.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import get_lapack_funcs

from ..backend import Array, asnumpy, get_xp, is_cupy
from .qr import qr
from .triangular import gets

__all__ = ["qr_delete", "qr_insert"]

BLOCK = 64  # columns (sweep_down) or rows (sweep_up) annihilated at a time
PANEL = 32  # reflections to one T in sweep_up
# Up to how many rows or columns SciPy's rotations are taken (benchmarks/bench_qr_update.py shows both).
ROTATIONS = {"add_rows": 16, "remove_rows": 16, "add_columns": 16, "remove_columns": 32}
CACHED = 1 << 16  # entries of Q up to which it is four times as many


def qr_insert(
    Q: Array,
    R: Array,
    u: Array,
    k: int,
    which: str = "row",
    rcond: float | None = None,
    overwrite_qru: bool = False,
    check_finite: bool = True,
    *,
    p: int | None = None,
) -> tuple[Array, Array]:
    """The factorisation of A with rows or columns put in, from that of A = QR.

    The counterpart of `scipy.linalg.qr_insert`, for NumPy and CuPy.

    Parameters
    ----------
    Q : (M, M) or (M, N) array
        From the full or the economic factorisation; float32 or float64.
    R : (M, N) or (N, N) array
        Of Q's dtype.
    u : (N,) or (p, N) array for rows, (M,) or (M, p) array for columns
        What is put in, of Q's dtype.
    k : int
        The row or column before which; from −M to M for rows, −N to N for columns.
    which : {"row", "col"}
    rcond : float, optional
        Only for columns into an economic factorisation: a lower bound on the
        reciprocal condition number of Q with a column u/‖u‖ beside it. Default
        is eps of the dtype.
    overwrite_qru : bool
        Q, R and u need not be kept. Only SciPy's routines make use of it.
    check_finite : bool
        Whether to look for NaN and infinity first.
    p : int, optional
        The number of rows or columns in `u`, if it is to be checked.

    Returns
    -------
    Q1, R1 : arrays
        Full stays full. Economic stays economic, (M + p, N) (N, N) or
        (M, N + p) (N + p, N + p), unless there are then more columns than rows: that
        gives (M, M) (M, N + p).

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, a `k` out of range, an unknown
        `which`, an `rcond` where it has no meaning, non-finite entries.
    LinAlgError
        If a column of u lies in the span of Q, as `rcond` says it.

    See Also
    --------
    plan_update : whether an update or a new factorisation is the faster.

    Notes
    -----
    The signs of R's rows are free. On the CPU one row or column goes to SciPy's
    compiled rotations where those are the faster; blocks, and the GPU, go to the
    sweeps of this module.

    References
    ----------
    .. [1] S. Hammarling, C. Lucas, "Updating the QR factorization and the least
       squares problem", MIMS EPrint 2008.111, University of Manchester.
    .. [2] R. Andrew, N. Dingle, "Implementing QR factorization updating algorithms
       on GPUs", Parallel Computing 40 (2014).
    """
    if _is_scipys(Q, R, u):
        return scipy.linalg.qr_insert(Q, R, u, k, which, rcond, overwrite_qru, check_finite)
    Q, R, economic = _checked(Q, R, which, check_finite)
    xp = get_xp(Q, R, u)
    m, n = len(Q), R.shape[1]
    u = xp.asarray(u)
    if u.dtype != Q.dtype:
        raise ValueError(f"u must have the dtype of Q and R, {Q.dtype}, not {u.dtype}: convert it")
    length, other = (n, "(N,) or (p, N)") if which == "row" else (m, "(M,) or (M, p)")
    if u.ndim not in (1, 2):
        raise ValueError(f"u must have 1 or 2 dimensions, not {u.ndim}")
    if u.shape[-1 if which == "row" else 0] != length:
        raise ValueError(f"u of shape {u.shape} does not fit: {other} is needed, with M = {m} and N = {n}")
    if u.ndim == 1:
        u = u[None] if which == "row" else u[:, None]
    count = u.shape[0 if which == "row" else 1]
    if p is not None and operator.index(p) != count:
        raise ValueError(f"p = {p}, but u of shape {u.shape} holds {count}")
    if rcond is not None and not (which == "col" and economic):
        raise ValueError("rcond has a meaning only where columns go into an economic factorisation")
    k = _position(k, m if which == "row" else n, inclusive=True)
    if check_finite:
        _check_finite(u, "u")
    if count == 0:
        return Q.copy(), R.copy()
    name = "add_rows" if which == "row" else "add_columns"
    if (
        xp is np
        and rotations_are_faster(name, m, n, count, economic)
        and not _close_to_span(Q, u, which, economic)
    ):
        return scipy.linalg.qr_insert(Q, R, u, k, which, rcond, overwrite_qru, False)
    if which == "row":
        Q, R = add_rows(Q, R, n, k, u)
        return (Q[:, :n], R[:n]) if economic else (Q, R)
    if not economic:
        return add_columns(Q, R, n, k, Q.T @ u)
    if n + count > m:
        if rcond is not None:
            _, _, c = complement(u[:, : m - n], Q.__matmul__, Q.T.__matmul__)
            _check_independent(c, u, rcond)
        Q, R = _completed(Q, R)
        return add_columns(Q, R, n, k, Q.T @ u)
    s, w, c = complement(u, Q.__matmul__, Q.T.__matmul__)
    _check_independent(c, u, float(np.finfo(Q.dtype).eps) if rcond is None else rcond)
    Q, R = xp.hstack([Q, w]), xp.vstack([R, xp.zeros((count, n), R.dtype)])
    return add_columns(Q, R, n, k, xp.vstack([s, c]), triangular=True)


def qr_delete(
    Q: Array,
    R: Array,
    k: int,
    p: int = 1,
    which: str = "row",
    overwrite_qr: bool = False,
    check_finite: bool = True,
) -> tuple[Array, Array]:
    """The factorisation of A with rows or columns taken out, from that of A = QR.

    The counterpart of `scipy.linalg.qr_delete`, for NumPy and CuPy.

    Parameters
    ----------
    Q : (M, M) or (M, N) array
        From the full or the economic factorisation; float32 or float64.
    R : (M, N) or (N, N) array
        Of Q's dtype.
    k : int
        The first row or column to go; from −M to M − 1 for rows, −N to N − 1 for columns.
    p : int
        How many.
    which : {"row", "col"}
    overwrite_qr : bool
        Q and R need not be kept. Only SciPy's routines make use of it.
    check_finite : bool
        Whether to look for NaN and infinity first.

    Returns
    -------
    Q1, R1 : arrays
        Full stays full. Economic stays economic, (M − p, N) (N, N) or (M, N − p)
        (N − p, N − p), unless there are then more columns than rows: that gives
        (M − p, M − p) (M − p, N).

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, `k` or `p` out of range, an
        unknown `which`, non-finite entries.

    Notes
    -----
    See `qr_insert`.
    """
    if _is_scipys(Q, R):
        return scipy.linalg.qr_delete(Q, R, k, p, which, overwrite_qr, check_finite)
    Q, R, economic = _checked(Q, R, which, check_finite)
    m, n = len(Q), R.shape[1]
    size = m if which == "row" else n
    k, p = _position(k, size, inclusive=False), operator.index(p)
    if not 0 < p <= size - k:
        raise ValueError(f"p = {p} is out of range: from position {k} on there are {size - k} {which}s")
    xp, name = get_xp(Q), "remove_rows" if which == "row" else "remove_columns"
    downdates = economic and which == "row"  # the one form whose vectors may lie in the span of Q
    if (
        xp is np
        and rotations_are_faster(name, m, n, p, economic)
        and not (downdates and _near_span(Q, k, p, n))
    ):
        return scipy.linalg.qr_delete(Q, R, k, p, which, overwrite_qr, False)
    if which == "col":
        Q, R = remove_columns(Q, R, n, np.arange(k, k + p))
        return (Q[:, : n - p], R[: n - p]) if economic else (Q, R)
    if economic and m - p < n:
        Q, R, economic = *_completed(Q, R), False
    if economic:
        z, w, c = unit_complement(Q, slice(k, k + p))
        Q, R, z = xp.hstack([Q, w]), xp.vstack([R, xp.zeros((p, n), R.dtype)]), xp.vstack([z, c])
    else:
        z = Q[k : k + p].T
    Q = xp.concatenate([Q[:k], Q[k + p :]])
    return remove_rows(Q, R, n, z, triangular=economic)


def _is_scipys(*arrays: Any) -> bool:
    """Whether only SciPy serves these, so that it may also judge them: complex numbers, stacks of matrices."""
    if any(is_cupy(a) for a in arrays):
        return False
    return any(np.iscomplexobj(a) or np.ndim(a) > 2 for a in arrays)


def _checked(q: Any, r: Any, which: str, finite: bool) -> tuple[Array, Array, bool]:
    """Q and R as arrays, and whether they are the economic form; ValueError for all that SciPy refuses."""
    if which not in ("row", "col"):
        raise ValueError(f"which must be 'row' or 'col', not {which!r}")
    xp = get_xp(q, r)
    q, r = xp.asarray(q), xp.asarray(r)
    if q.ndim != 2 or r.ndim != 2:
        raise ValueError(f"Q and R must be matrices, not of shapes {q.shape} and {r.shape}")
    if q.dtype != r.dtype or q.dtype not in (np.float32, np.float64):
        raise ValueError(f"Q and R must both be float32 or both float64, not {q.dtype} and {r.dtype}")
    economic = q.shape[0] != q.shape[1]
    if q.shape[1] != r.shape[0] or (economic and (r.shape[0] != r.shape[1] or q.shape[0] < q.shape[1])):
        raise ValueError(
            f"Q {q.shape} and R {r.shape} do not belong together: (M, M) and (M, N), or, with M > N, (M, N) and "
            "(N, N) are needed"
        )
    if finite:
        _check_finite(q, "Q")
        _check_finite(r, "R")
    return q, r, economic


def _check_finite(a: Array, name: str) -> None:
    if not bool(get_xp(a).isfinite(a).all()):
        raise ValueError(f"{name} holds NaN or infinity")


def _position(k: int, size: int, *, inclusive: bool) -> int:
    """`k` counted from the front."""
    last = size if inclusive else size - 1
    if not -size <= operator.index(k) <= last:
        raise ValueError(f"k = {k} is out of bounds: {-size} to {last} are possible")
    return k + size if k < 0 else k


def _check_independent(c: Array, u: Array, rcond: float) -> None:
    """LinAlgError if a column of u is nearly in the span of Q and the columns before it; see `complement`."""
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
    """Whether columns lie so near the span of Q that SciPy may leave Q with a column of zeros."""
    if which == "row" or not economic:
        return False
    size = np.square(u).sum(axis=0)
    return not bool((size - np.square(q.T @ u).sum(axis=0) > 1e-2 * size).all())


def _near_span(q: np.ndarray, k: int, p: int, n: int) -> bool:
    """Whether unit vectors k to k + p lie near the span of Q: SciPy then fails, or leaves Q with a column of zeros."""
    return len(q) - p < n or not np.linalg.norm(q[k : k + p], 2) < 0.995


def _completed(q: Array, r: Array) -> tuple[Array, Array]:
    """The full form of an economic factorisation."""
    xp = get_xp(q)
    m, n = q.shape
    every, _ = qr(q, "complete", check_finite=False)
    return xp.hstack([q, every[:, n:]]), xp.vstack([r, xp.zeros((m - n, r.shape[1]), r.dtype)])


def rotations_are_faster(which: str, m: int, n: int, p: int, economic: bool = True) -> bool:
    """Whether SciPy's rotations, compiled but one at a time, serve an update of NumPy arrays by p rows or columns.

    They lose their advantage when Q no longer fits the cache. SciPy puts blocks of rows into the full form by
    reflections of Q's whole length: never faster.
    """
    if which == "add_rows" and not economic:
        return p == 1
    return p <= ROTATIONS[which] * (4 if m * n <= CACHED else 1)


# ---------------------------------------------------------------- the two sweeps


def sweep_down(r: Array, u: Array, q: Array | None = None, e: Array | None = None) -> None:
    """Annihilate the rows `u` below the triangle `r`: Hᵀ [r; u] = [r̃; 0], and [q e] ← [q e] H. In place.

    Parameters
    ----------
    r : (t, t + s) array
        Upper trapezoidal: a triangle and s further columns.
    u : (p, t + s) array
        Full. Its first t columns become zero; the others go through the same H.
    q : (m, t) array, optional
        The columns of Q that belong to the rows of `r`.
    e : (m, p) array, optional
        Those that belong to the rows of `u`.

    Notes
    -----
    A block J of columns of [r; u] has the structure of LAPACK's `tpqrt`: its
    reflections are V = [I; v] in the rows of J and of u alone, and the zeros of r
    are neither read nor written. The rest is products: 2pt(t + 2s) operations for
    r, 4mpt for Q. On CuPy arrays `sweeps_gpu` does it.

    References
    ----------
    .. [1] R. Andrew, N. Dingle, "Implementing QR factorization updating algorithms
       on GPUs", Parallel Computing 40 (2014), section 3.3.
    """
    if 0 in (r.shape[0], u.shape[0]):
        return
    if is_cupy(r):
        from . import sweeps_gpu

        sweeps_gpu.sweep_down(r, u, q, e)
        return
    t = len(r)
    for j in range(0, t, BLOCK):
        here, rest = slice(j, min(j + BLOCK, t)), slice(min(j + BLOCK, t), None)
        r[here, here], v, tau = _tpqrt(r[here, here], u[:, here], BLOCK)
        u[:, here] = 0
        x = tau.T @ (r[here, rest] + v.T @ u[:, rest])
        r[here, rest] -= x
        u[:, rest] -= v @ x
        if q is not None and e is not None:
            x = (q[:, here] + e @ v) @ tau
            q[:, here] -= x
            e -= x @ v.T


def sweep_up(c: Array, z: Array, w: Array, r: Array, e: Array | None = None, q: Array | None = None) -> None:
    """Annihilate the columns `z` by the triangle `c`: Hᵀ [c; z] = [c̃; 0], the triangle `r` kept one. In place.

    Hᵀ [w; r] = [w̃; r̃] and [e q] ← [e q] H, with r̃ upper trapezoidal again.

    Parameters
    ----------
    c : (p, p) array
        Upper triangular, and so it stays.
    z : (t, p) array
        Full. It is used up: nothing of use is left in it.
    w : (p, t + s) array
        The rows that belong to `c`. The first t columns must be zero.
    r : (t, t + s) array
        The rows that belong to `z`: a triangle and s further columns.
    e : (m, p) array, optional
        The columns of Q that belong to the rows of `c`.
    q : (m, t) array, optional
        Those that belong to the rows of `z`.

    Notes
    -----
    Rotations in the planes of one row of r, from the last to the first, and the
    rows of c would keep r a triangle by themselves (this is the classical
    algorithm, in one launch or one loop a rotation). A block J of rows taken
    together, again with V = [I; v] of `tpqrt`, fills the square r[J, J] and
    nothing else; the QR factorisation of that square mends it. The reflections
    depend on c and z alone, the squares not on each other: on the GPU the sweep is a
    handful of launches whatever t is. With blocks of b rows, 2pt(t + 2s) + bt(t + 2s)
    operations for r and (4p + 2b)mt for Q.
    """
    if 0 in z.shape:
        return
    if is_cupy(r):
        from . import sweeps_gpu

        sweeps_gpu.sweep_up(c, z, w, r, e, q)
        return
    t, p = z.shape
    for j in reversed(range(0, t, BLOCK)):
        here, rest = slice(j, min(j + BLOCK, t)), slice(min(j + BLOCK, t), None)
        c[...], v, tau = _tpqrt(c, z[here], PANEL)
        rows = r[here, j:]
        for i in range(0, p, PANEL):
            pivots = slice(i, min(i + PANEL, p))
            v_i, t_i = v[:, pivots], tau[: pivots.stop - i, pivots]
            x = t_i.T @ (w[pivots, j:] + v_i.T @ rows)
            w[pivots, j:] -= x
            rows -= v_i @ x
            if q is not None and e is not None:
                x = (e[:, pivots] + q[:, here] @ v_i) @ t_i
                e[:, pivots] -= x
                q[:, here] -= x @ v_i.T
        turn, r[here, here] = scipy.linalg.qr(r[here, here], check_finite=False)
        r[here, rest] = turn.T @ r[here, rest]
        if q is not None:
            q[:, here] = q[:, here] @ turn


def _tpqrt(a: np.ndarray, b: np.ndarray, panel: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """QR of a triangle `a` above a rectangle `b`: the new triangle, v of V = [I; v], and T by panels."""
    tpqrt = get_lapack_funcs("tpqrt", (a, b))
    triangle, v, t, info = tpqrt(0, min(panel, len(a)), a, b)
    assert info == 0  # only a wrong argument makes it anything else
    return triangle, v, t


# ---------------------------------------------------------------- what the sweeps need around them


def triangularise(columns: Array, rest: Array, q: Array | None) -> None:
    """Make `columns` (g, p) upper trapezoidal by reflections; apply them to `rest` (g, s) and q (m, g). In place."""
    if 0 in columns.shape:
        return
    xp = get_xp(columns)
    k = min(columns.shape)
    h, tau = qr(columns, "raw", check_finite=False)
    h = h.T
    v = xp.tril(h[:, :k], -1) + xp.eye(len(h), k, dtype=h.dtype)
    v *= tau != 0  # a column that was zero below its diagonal is not reflected
    # T⁻¹ = strict upper triangle of VᵀV + diag(1/tau): Puglisi, SIAM J. Sci. Stat. Comput. 13 (1992).
    t = gets(xp.triu(v.T @ v, 1) + xp.diag(1 / xp.where(tau == 0, 1, tau)), lower=False, check_finite=False)
    columns[...] = xp.triu(h)
    if rest.shape[1]:
        rest -= v @ (t.T @ (v.T @ rest))
    if q is not None:
        q -= ((q @ v) @ t) @ v.T


def complement(
    u: Array,
    forward: Callable[[Array], Array],
    adjoint: Callable[[Array], Array],
    *,
    s: Array | None = None,
    exact: bool = True,
) -> tuple[Array, Array, Array]:
    """Split U = QS + WC with QᵀW = 0, WᵀW = I and C upper triangular.

    Parameters
    ----------
    u : (m, p) array
        With p ≤ m − n.
    forward, adjoint : callable
        y ↦ Qy and x ↦ Qᵀx for an m × n Q with orthonormal columns, which need
        not exist: x ↦ A R⁻¹ x will do.
    s : (n, p) array, optional
        QᵀU, where it is known: for unit vectors it is rows of Q.
    exact : bool
        Whether that Q is orthonormal to rounding, as a stored one is.

    Returns
    -------
    s : (n, p), w : (m, p), c : (p, p) arrays

    Raises
    ------
    LinAlgError
        If W does not become orthogonal to Q.

    Notes
    -----
    Gram-Schmidt by blocks, repeated. "Twice is enough" (Kahan) for U itself; but
    where a column of U lies in the span of Q, its column of W is what rounding
    left, and only W itself, orthogonalised until nothing changes, is sure to be
    orthogonal to Q [1]_. Such a column of C is zero to rounding. Once is enough where
    U stands well off the span, ‖C⁻¹‖‖U‖ small, and Q is exact.

    References
    ----------
    .. [1] J. W. Daniel, W. B. Gragg, L. Kaufman, G. W. Stewart, "Reorthogonalization
       and stable algorithms for updating the Gram-Schmidt QR factorization", Math.
       Comput. 30 (1976) 772-795.
    """
    xp = get_xp(u)
    s = adjoint(u) if s is None else s
    w, c = qr(u - forward(s), check_finite=False)
    if exact and bool((xp.diagonal(c) != 0).all()):
        spread = xp.linalg.norm(u) * xp.linalg.norm(gets(c, lower=False, check_finite=False))
        if float(spread) <= 10 * u.shape[1]:
            return s, w, c
    enough = 0.5 if exact else float(np.finfo(u.dtype).eps) ** 0.75
    for _ in range(6):
        inside = adjoint(w)
        s = s + inside @ c
        w, again = qr(w - forward(inside), check_finite=False)
        c = again @ c
        if float(xp.linalg.norm(inside)) <= enough:
            return s, w, xp.triu(c)
    raise np.linalg.LinAlgError(
        "orthogonalising against Q, or A R⁻¹ in its place, does not converge: it is far from orthonormal, "
        "as for an ill-conditioned A"
    )


def unit_complement(q: Array, where: Any) -> tuple[Array, Array, Array]:
    """`complement` of the unit vectors E of the rows `where` (a slice or indices) of Q.

    E − QZᵀ, with Z those rows of Q, has the Gram matrix I − ZZᵀ. Where its Cholesky factor CᵀC is well
    conditioned, W = (E − QZᵀ)C⁻¹ is orthonormal without a QR factorisation: one product, and on a GPU one wait.
    """
    xp = get_xp(q)
    z = q[where]
    p = len(z)
    wide = z.astype(np.float64)
    try:
        lower = np.linalg.cholesky(np.eye(p) - asnumpy(wide @ wide.T))
        inverse = np.linalg.inv(lower)
        spread = float(np.linalg.norm(inverse, 1) * np.linalg.norm(inverse, np.inf))  # a bound of ‖C⁻¹‖₂²
    except np.linalg.LinAlgError:
        spread = np.inf
    if spread <= 100:
        turn = xp.asarray(inverse.T.astype(q.dtype))
        w = q @ (z.T @ -turn)
        w[where] += turn
        return z.T, w, xp.asarray(lower.T.astype(q.dtype))
    unit = xp.zeros((len(q), p), q.dtype)
    unit[where] = xp.eye(p, dtype=q.dtype)
    return complement(unit, q.__matmul__, q.T.__matmul__, s=z.T)


# ---------------------------------------------------------------- the four updates
#
# Each takes Q or None and R with its further columns, n columns of it being the matrix, and returns new
# arrays. With l rows, R is (l, n + s): l = m for the full form, l = n for the economic one, and the
# economic form is extended beforehand, by columns W of Q and rows of R, where p more rows are needed.


def add_rows(q: Array | None, r: Array, n: int, k: int, u: Array) -> tuple[Array | None, Array]:
    """Rows `u` (p, n + s) before row `k`. The new rows of R and columns of Q come after the triangle's."""
    xp = get_xp(r)
    p, rows = len(u), len(r)
    t = min(rows, n)
    r = xp.concatenate([r[:t], u, r[t:]])
    if q is not None:
        wide = xp.zeros((len(q) + p, rows + p), q.dtype)
        for to, of in ((slice(0, k), slice(0, k)), (slice(k + p, None), slice(k, None))):
            wide[to, :t], wide[to, t + p :] = q[of, :t], q[of, t:]
        wide[k : k + p, t : t + p] = xp.eye(p, dtype=q.dtype)
        q = wide
    new = slice(t, t + p)
    sweep_down(r[:t], r[new], _columns(q, slice(0, t)), _columns(q, new))
    triangularise(r[new, t:n], r[new, n:], _columns(q, new))
    return q, r


def remove_columns(q: Array | None, r: Array, n: int, gone: np.ndarray) -> tuple[Array | None, Array]:
    """Columns `gone` (ascending) taken out. The rows of R that were theirs come after the triangle's."""
    k, rows = int(gone[0]), len(r)
    t = min(rows, n)
    kept, alive = _runs(gone, n), _runs(gone[gone < t], t)
    dead = _runs(np.setdiff1d(np.arange(t), gone), t)
    order = [*alive, *dead, slice(t, rows)]
    r = _gather(r, order, [*kept, slice(n, r.shape[1])])
    if q is not None:
        q = _gather(q, [slice(0, len(q))], order)
    stop, n = sum(s.stop - s.start for s in alive), n - len(gone)
    up = slice(stop, t)
    sweep_down(r[k:stop, k:], r[up, k:], _columns(q, slice(k, stop)), _columns(q, up))
    triangularise(r[up, stop:n], r[up, n:], _columns(q, up))
    return q, r


def add_columns(
    q: Array | None, r: Array, n: int, k: int, s: Array, triangular: bool = False
) -> tuple[Array | None, Array]:
    """Columns whose QᵀU is `s` (l, p) before column `k`; `triangular` if s[n:] is so already."""
    xp = get_xp(r)
    rows, p = s.shape
    base = min(rows, max(k, min(n, rows - p)))
    s, work = s.copy(), r[k:, k:].copy()
    low = None if q is None else q[:, base:].copy()
    if not triangular:
        triangularise(s[base:], work[base - k :], low)
    stop = min(base + p, rows)  # rows base to stop become rows k to k + p
    first, last = slice(0, base - k), slice(base - k, stop - k)
    middle = None if q is None else q[:, k:base].copy()
    sweep_up(s[base:stop], s[k:base], work[last], work[first], _columns(low, slice(0, stop - base)), middle)
    new = xp.zeros((rows, r.shape[1] + p), r.dtype)
    new[:k, :k], new[:k, k : k + p], new[:k, k + p :] = r[:k, :k], s[:k], r[:k, k:]
    new[k : k + stop - base, k : k + p] = s[base:stop]
    new[k:, k + p :] = xp.concatenate([work[last], work[first], work[stop - k :]])
    if q is not None and low is not None:
        q = xp.concatenate([q[:, :k], low[:, : stop - base], middle, low[:, stop - base :]], axis=1)
    return q, new


def remove_rows(
    q: Array | None, r: Array, n: int, z: Array, triangular: bool = False
) -> tuple[Array | None, Array]:
    """Rows whose rows of Q are `z` (l, p), transposed, taken out; `q` is without them already and is used up."""
    xp = get_xp(r)
    rows, p = z.shape
    base = min(n, rows - p)
    z, r = z.copy(), r.copy()
    if not triangular:
        triangularise(z[base:], r[base:], _columns(q, slice(base, None)))
    out = slice(base, base + p)
    sweep_up(z[out], z[:base], r[out], r[:base], _columns(q, out), _columns(q, slice(0, base)))
    if base + p == rows:
        return _columns(q, slice(0, base)), r[:base]
    if q is not None:
        q = xp.concatenate([q[:, :base], q[:, base + p :]], axis=1)
    return q, xp.concatenate([r[:base], r[base + p :]])


def _columns(a: Array | None, which: slice) -> Array | None:
    return None if a is None else a[:, which]


def _runs(gone: np.ndarray, n: int) -> list[slice]:
    """What is left of range(n) without the ascending indices `gone`, as slices."""
    edges = [-1, *(int(i) for i in gone), n]
    return [slice(a + 1, b) for a, b in itertools.pairwise(edges) if b > a + 1]


def _gather(a: Array, rows: list[slice], columns: list[slice]) -> Array:
    """A new array of these rows and columns of `a`, in this order, copied once."""
    xp = get_xp(a)
    if len(rows) * len(columns) > 16:
        index = [np.concatenate([np.arange(s.start, s.stop) for s in parts]) for parts in (rows, columns)]
        return xp.ascontiguousarray(a[xp.asarray(index[0])[:, None], xp.asarray(index[1])])
    new = xp.empty([sum(s.stop - s.start for s in parts) for parts in (rows, columns)], a.dtype)
    i = 0
    for row in rows:
        j, below = 0, i + row.stop - row.start
        for column in columns:
            right = j + column.stop - column.start
            new[i:below, j:right] = a[row, column]
            j = right
        i = below
    return new

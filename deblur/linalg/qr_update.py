"""QR updating: rows and columns put in or taken out of A = QR for less than a new factorisation.

Four updates, two sweeps. Whatever enters or leaves, the work is to meet the
triangle R with p further rows and to make it a triangle again (`sweeps`):

- Added rows are p rows for `sweep_down`. So are the rows of R that belong to
  removed columns: the rest of R, below and on the right of them, is a triangle already.
- Added columns are Q'U, p columns for `sweep_up`. Removed rows are the rows of Q,
  transposed: once they are unit vectors, those rows of A stand in p rows of R and
  can be struck out.

Nothing is checked here; `qr_insert_delete` has the public functions, `qr_model` the model.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..device import Array, Map, asnumpy, get_xp
from .qr import factor
from .sweeps import sweep_down, sweep_up, triangularise
from .triangular import inverse

Factors = tuple[Array | None, Array]  # Q and R, of a full factorisation too; or None and [R d]

# Each takes Q or None and R with its further columns, n columns of it being the matrix, and returns new
# arrays. With l rows, R is (l, n + s): l = m for the full form, l = n for the economic one, and the
# economic form is extended beforehand, by columns W of Q and rows of R, where p more rows are needed.


def add_rows(q: Array | None, r: Array, n: int, k: int, u: Array) -> Factors:
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


def remove_columns(q: Array | None, r: Array, n: int, gone: np.ndarray) -> Factors:
    """Columns `gone` (ascending) taken out. The rows of R that were theirs come after the triangle's."""
    k, rows = int(gone[0]), len(r)
    t = min(rows, n)
    kept, alive = _runs(gone, n), _runs(gone[gone < t], t)
    order = [*alive, *_runs(np.setdiff1d(np.arange(t), gone), t), slice(t, rows)]
    r = _gather(r, order, [*kept, slice(n, r.shape[1])])
    if q is not None:
        q = _gather(q, [slice(0, len(q))], order)
    stop, n = sum(s.stop - s.start for s in alive), n - len(gone)
    up = slice(stop, t)
    sweep_down(r[k:stop, k:], r[up, k:], _columns(q, slice(k, stop)), _columns(q, up))
    triangularise(r[up, stop:n], r[up, n:], _columns(q, up))
    return q, r


def add_columns(q: Array | None, r: Array, n: int, k: int, s: Array, triangular: bool = False) -> Factors:
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


def remove_rows(q: Array | None, r: Array, n: int, z: Array, triangular: bool = False) -> Factors:
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


# ---------------------------------------------------------------- columns of Q that do not exist yet


def complement(
    u: Array, forward: Map, adjoint: Map, *, s: Array | None = None, exact: bool = True
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
    w, c = factor(u - forward(s))
    if exact and bool((xp.diagonal(c) != 0).all()):
        spread = xp.linalg.norm(u) * xp.linalg.norm(inverse(c.copy(), lower=False))
        if float(spread) <= 10 * u.shape[1]:
            return s, w, c
    enough = 0.5 if exact else float(np.finfo(u.dtype).eps) ** 0.75
    for _ in range(6):
        inside = adjoint(w)
        s = s + inside @ c
        w, again = factor(w - forward(inside))
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

"""QR updating: adding rows and columns to A = QR, or removing them, for less than a new factorisation.

Four updates use two sweeps. In each case, p further rows or columns meet the
triangle R, and a sweep restores a triangle (`sweeps`):

- Added rows are p rows for `sweep_down`. So are the rows of R that belong to
  removed columns; the rest of R is a triangle already.
- Added columns are Q'U, p columns for `sweep_up`. For removed rows, `sweep_up` gets the rows of Q,
  transposed: once they are unit vectors, these rows of A are p rows of R, which
  are deleted.

Nothing is checked here. `qr_insert_delete` has the public functions, `qr_model` the model.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..device import Array, Map, asnumpy, get_xp
from .qr import factor
from .sweeps import sweep_down, sweep_up, triangularise
from .triangular import inverse

Factors = tuple[Array | None, Array]  # Q and R (also of a full factorisation), or None and [R d]

# Each function takes Q or None, and R with further columns; its first n columns belong to the matrix. It returns new
# arrays. R is (l, n + s), with l = m for the full form and l = n for the economic one. If p more rows are needed, the
# caller extends the economic form by columns W of Q and rows of R.


def add_rows(q: Array | None, r: Array, n: int, k: int, u: Array) -> Factors:
    """Insert rows `u` (p, n + s) before row `k`. The new rows of R and columns of Q follow the triangle's."""
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
    """Remove columns `gone` (ascending). The rows of R that belonged to them follow the triangle's."""
    k, rows = int(gone[0]), len(r)
    t = min(rows, n)
    kept, alive = _runs(gone, n), _runs(gone[gone < t], t)
    order = [*alive, *_runs(np.setdiff1d(np.arange(t), gone), t), slice(t, rows)]
    r = _gather(_gather(r, [*kept, slice(n, r.shape[1])], 1), order, 0)
    if q is not None:
        q = _gather(q, order, 1)
    stop, n = sum(s.stop - s.start for s in alive), n - len(gone)
    up = slice(stop, t)
    sweep_down(r[k:stop, k:], r[up, k:], _columns(q, slice(k, stop)), _columns(q, up))
    triangularise(r[up, stop:n], r[up, n:], _columns(q, up))
    return q, r


def add_columns(q: Array | None, r: Array, n: int, k: int, s: Array, triangular: bool = False) -> Factors:
    """Insert columns with QᵀU = `s` (l, p) before column `k`; `triangular` if s[n:] is upper triangular already."""
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
    """Remove rows whose rows of Q, transposed, are `z` (l, p); `q` no longer has them, and is destroyed."""
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
    """Return range(n) without the ascending indices `gone`, as slices."""
    return [slice(a + 1, b) for a, b in itertools.pairwise([-1, *map(int, gone), n]) if b > a + 1]


def _gather(a: Array, parts: list[slice], axis: int) -> Array:
    """Return a new array of these rows (axis 0) or columns (axis 1) of `a`, in this order."""
    return get_xp(a).concatenate([a[at] if axis == 0 else a[:, at] for at in parts], axis=axis)


# ---------------------------------------------------------------- further columns of Q


def complement(
    u: Array, forward: Map, adjoint: Map, *, s: Array | None = None, exact: bool = True
) -> tuple[Array, Array, Array]:
    """Split U = QS + WC with QᵀW = 0, WᵀW = I and C upper triangular.

    Parameters
    ----------
    u : (m, p) array
        Matrix U, with p ≤ m − n.
    forward, adjoint : callable
        y ↦ Qy and x ↦ Qᵀx for an m × n Q with orthonormal columns. Q need not be
        stored: y ↦ A R⁻¹ y will do.
    s : (n, p) array, optional
        QᵀU, if it is known; for unit vectors it is rows of Q.
    exact : bool
        Whether Q is orthonormal to rounding, as a stored one is.

    Returns
    -------
    s, w, c : (n, p), (m, p) and (p, p) arrays
        S, W and C.

    Raises
    ------
    LinAlgError
        If W does not become orthogonal to Q.

    Notes
    -----
    Block Gram-Schmidt, repeated. "Twice is enough" (Kahan) for U itself. But if
    a column of U lies in the span of Q, its column of W is rounding error, and only a
    W that is orthogonalised until nothing changes is sure to be
    orthogonal to Q [1]_. The corresponding column of C is zero to rounding. Once is enough if
    U is well outside the span, with ‖C⁻¹‖‖U‖ small, and Q is exact.

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
        s, rest, found = s + inside @ c, w - forward(inside), float(xp.linalg.norm(inside))
        if found > 0.5:  # a column that lies in the span; its rest may be exactly zero, which has no direction
            rest += xp.asarray(np.random.default_rng(0).standard_normal(w.shape) * np.finfo(w.dtype).eps, w.dtype)
        w, again = factor(rest)
        c = again @ c
        if found <= enough:
            return s, w, xp.triu(c)
    raise np.linalg.LinAlgError(
        "orthogonalising against Q, or A R⁻¹ in its place, does not converge: it is far from orthonormal, "
        "as for an ill-conditioned A"
    )


def unit_complement(q: Array, where: Any) -> tuple[Array, Array, Array]:
    """Return the `complement` of the unit vectors E of the rows `where` (a slice or indices) of Q.

    With Z these rows of Q, E − QZᵀ has the Gram matrix I − ZZᵀ = CᵀC. If the Cholesky factor C is well
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

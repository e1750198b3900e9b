"""A least-squares problem whose rows and columns change, with an updated QR factorisation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..device import Array, Map, all_true, get_xp, is_cupy, unwrapped
from ..errors import check_choice, check_flags
from .checks import as_block, as_matrix, as_rhs, check_overflow, check_pivots, check_rank, indices, position
from .qr import factor
from .qr_insert_delete import delete, insert
from .qr_plan import UpdatePlan, plan_update
from .qr_update import Factors, add_columns, add_rows, complement, remove_columns, remove_rows
from .triangular import substitute

METHODS = ("auto", "update", "refactor")
# Updates accumulate rounding errors. After this many in a row, "auto" factors anew, while the errors are still
# within a small multiple of a fresh factorisation's (benchmarks/bench_qr_update.py measures them).
FRESH_FOR = 20


class QRModel:
    """The problem min ‖A x − b‖₂ for an A that gains and loses rows and columns.

    The model keeps A, b, R and d = Qᵀb of the economic factorisation A = QR and, on request,
    Q. Each change updates them or factors anew, whichever
    `plan_update` predicts to be faster. A change that fails leaves the model unchanged.

    Parameters
    ----------
    a : (M, N) array_like
        Matrix with M ≥ N; NumPy or CuPy. float32 stays float32, all else becomes float64.
    b : (M,) or (M, S) array_like
        One right-hand side, or S of them.
    keep_q : bool
        Whether to keep Q. Adding rows and removing columns need no Q. Without Q, removing rows and adding
        columns use A R⁻¹ instead, see Notes.
    method : {"auto", "update", "refactor"}
        How to make a change, by default. "auto" follows the plan, and factors anew after 20 updates
        in a row to limit their rounding errors.
    check_finite : bool
        Whether to look for NaN and infinity, in `a`, `b` and all that is added later.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of the current matrix.
    a, b, q, r, d : arrays
        The current matrix (M, N), right-hand sides, Q (M, N) or None, R (N, N), Qᵀb.
    plan : UpdatePlan or None
        The plan of the last change.
    note : str
        A remark on the last change; may be empty.
    age : int
        Number of updates since the last factorisation.

    Raises
    ------
    ValueError
        If M < N, shapes do not match, or an entry is not finite.
    TypeError
        If an entry is complex, or if NumPy and CuPy arrays are mixed.

    Notes
    -----
    Without Q, the rows of Q to be removed are rows of A R⁻¹. Their part outside the range of A
    comes from Gram-Schmidt against A R⁻¹, repeated: the corrected
    semi-normal equations [1]_. This is as accurate as with Q while cond(A)·eps is
    well below 1. If the repetition does not converge, or its result does not satisfy
    SᵀS + CᵀC = UᵀU to rounding, the model factors anew and says so in `note`. It does so with Q, too, if in some
    column the removed rows were 30 times as large as all that are left: the rounding of larger numbers would stay.

    References
    ----------
    .. [1] Å. Björck, H. Park, L. Eldén, "Accurate downdating of least squares
       solutions", SIAM J. Matrix Anal. Appl. 15 (1994) 549-568.

    Examples
    --------
    >>> import numpy as np
    >>> from deblur.linalg import QRModel
    >>> x = np.arange(6.0)
    >>> model = QRModel(np.stack([np.ones(6), x], axis=1), 1 + 2 * x)
    >>> model.add_rows([[1.0, 9.0]], [100.0])
    >>> model.remove_rows(6)
    >>> model.solve().round(9).tolist()
    [1.0, 2.0]
    """

    def __init__(self, a: Any, b: Any, *, keep_q: bool = True, method: str = "auto", check_finite: bool = True) -> None:
        self._method = check_choice(method, METHODS, "method")
        check_flags(keep_q=keep_q, check_finite=check_finite)
        self._finite = bool(check_finite)
        a = as_matrix(a, "a", finite=self._finite)
        get_xp(a, b)
        b = as_rhs(b, len(a), finite=self._finite)
        if len(a) < a.shape[1]:
            raise ValueError(
                f"a least-squares model needs at least as many rows as columns, not {a.shape}; "
                "numpy.linalg.lstsq gives the minimum-norm solution of a wide system"
            )
        dtype = np.result_type(a.dtype, b.dtype)
        self._is_vector = b.ndim == 1
        # Copies: later changes of the caller's arrays must not reach the model.
        a, b = a.astype(dtype), b.astype(dtype)
        b = b[:, None] if self._is_vector else b
        self.keep_q = bool(keep_q)
        self.plan: UpdatePlan | None = None
        self.note = ""
        self._take(a, (), b, self._factored(a, b))

    # -- data ---------------------------------------------------------------------------------

    def _take(self, a: Array, edits: tuple[Map, ...], b: Array, factors: Factors, age: int = 0) -> None:
        """Become the model of A (M, N), edited, and b (M, S) with these factors, economic or full."""
        q, rd = factors
        n = rd.shape[1] - (b.shape[1] if q is None else 0)
        if q is not None:
            q = q[:, :n]
            rd = get_xp(q).concatenate([rd[:n], q.T @ b], axis=1)
        self._a, self._edits, self._b, self._rd, self.q, self.age = a, edits, b, rd[:n], q, age
        self.shape, self.r = (len(b), n), rd[:n, :n]
        self.b, self.d = self._outward(b), self._outward(rd[:n, n:])

    @property
    def a(self) -> Array:
        # Edited when read: an update without Q may touch far fewer numbers than A has entries.
        a = self._a
        for edit in self._edits:
            a = edit(a)
        self._a, self._edits = a, ()
        return a

    def solve(self) -> Array:
        """Return the least-squares solution, (N,) or (N, S).

        Raises
        ------
        SingularMatrixError
            If R is singular to rounding, because columns of A are dependent; or if the solution overflows.
        """
        r, n = self.r, self.shape[1]
        if n:
            why = "column {} of A depends on the others to rounding, so the solution is not unique; "
            instead = "remove that column, or use numpy.linalg.lstsq for the minimum-norm solution"
            check_rank(r.diagonal(), max(self.shape), why + instead)
        x = self._rd[:, n:].copy()
        substitute(r, x, lower=False)
        check_overflow(x, "the solution")
        return self._outward(x)

    def residual(self) -> Array:
        """Return b − A x for the x of `solve`, (M,) or (M, S), computed from A itself."""
        return self._outward(self._b - self.a @ self.solve().reshape(self.shape[1], self._b.shape[1]))

    # -- changes ------------------------------------------------------------------------------

    def add_rows(self, u: Any, b: Any, k: int | None = None, *, method: str | None = None) -> None:
        """Add equations.

        Parameters
        ----------
        u : (N,) or (P, N) array_like
            The rows of A to add.
        b : scalar or (P,) for one right-hand side, (S,) or (P, S) for S of them
            The right-hand sides of these rows.
        k : int, optional
            Row before which to insert them; by default at the end.
        method : {"auto", "update", "refactor"}, optional
            Overrides the model's method.

        Raises
        ------
        ValueError, TypeError
            As the constructor; also if `k` is out of range.
        """
        m, n = self.shape
        u = self._as_block(u, 0, n)
        xp = get_xp(b, self._rd)
        b, rhs = xp.asarray(unwrapped(b, "b")), self._b.shape[1]
        if b.size != len(u) * rhs:
            raise ValueError(f"b of shape {b.shape} does not fit: {len(u)} rows and {rhs} right-hand side(s)")
        b = as_matrix(b.reshape(len(u), rhs), "b", finite=self._finite).astype(self._rd.dtype)
        k = m if k is None else position(k, m)

        def update() -> Factors:
            if self.q is not None:
                return insert(self.q, self.r, u, k)
            return add_rows(None, self._rd, n, k, xp.concatenate([u, b], axis=1))

        self._change("add_rows", len(u), k, method, update, partial(_insert, k=k, u=u), _insert(self._b, k, b, 0))

    def remove_rows(self, rows: Any, *, method: str | None = None) -> None:
        """Remove equations.

        Parameters
        ----------
        rows : int, slice or sequence of int
            Rows to remove, as in `numpy.delete`; none may appear twice.
        method : {"auto", "update", "refactor"}, optional
            Overrides the model's method.

        Raises
        ------
        ValueError
            If fewer rows than columns would be left, or an index is out of range or repeated.
        """
        m, n = self.shape
        gone = indices(rows, m, "rows")
        p = len(gone)
        if m - p < n:
            raise ValueError(f"{m - p} rows would be left for {n} columns: remove at most {m - n}, or columns first")

        def update() -> Factors:
            if self.q is not None:
                return delete(self.q, self.r, gone)
            xp = get_xp(self._rd)
            where, unit = xp.asarray(gone), xp.zeros((m, p), self._rd.dtype)
            unit[where, xp.arange(p)] = 1
            rd, z = self._extended(unit, where)
            return remove_rows(None, rd, n, z, triangular=True)

        self._change("remove_rows", p, 0, method, update, partial(_delete, gone=gone), _delete(self._b, gone))

    def add_columns(self, u: Any, k: int | None = None, *, method: str | None = None) -> None:
        """Add unknowns.

        Parameters
        ----------
        u : (M,) or (M, P) array_like
            The columns of A to add.
        k : int, optional
            Column before which to insert them; by default at the end.
        method : {"auto", "update", "refactor"}, optional
            Overrides the model's method.

        Raises
        ------
        ValueError
            If there would be more columns than rows, shapes do not match, or an entry is not finite.
        """
        m, n = self.shape
        u = self._as_block(u, 1, m)
        k = n if k is None else position(k, n)
        p = u.shape[1]
        if n + p > m:
            raise ValueError(f"{m} rows are too few for {n + p} columns: add at most {m - n} columns, or rows first")

        def update() -> Factors:
            if self.q is not None:
                return insert(self.q, self.r, u, k, "col", rcond=0.0)
            rd, z = self._extended(u)
            return add_columns(None, rd, n, k, z, triangular=True)

        self._change("add_columns", p, k, method, update, partial(_insert, k=k, u=u, axis=1), self._b)

    def remove_columns(self, columns: Any, *, method: str | None = None) -> None:
        """Remove unknowns.

        Parameters
        ----------
        columns : int, slice or sequence of int
            Columns to remove, as in `numpy.delete`; none may appear twice.
        method : {"auto", "update", "refactor"}, optional
            Overrides the model's method.

        Raises
        ------
        ValueError
            If an index is out of range or repeated.
        """
        n = self.shape[1]
        gone = indices(columns, n, "columns")
        p = len(gone)

        def update() -> Factors:
            return remove_columns(None, self._rd, n, gone) if self.q is None else delete(self.q, self.r, gone, "col")

        k = int(gone[0]) if p else 0
        self._change("remove_columns", p, k, method, update, partial(_delete, gone=gone, axis=1), self._b)

    # -- implementation -----------------------------------------------------------------------

    def _change(
        self, which: str, p: int, k: int, method: str | None, update: Callable[[], Factors], edit: Map, b: Array
    ) -> None:
        """Change the model by the plan, to A edited and b; nothing is changed until all is computed."""
        method = self._method if method is None else check_choice(method, METHODS, "method")
        if p == 0:
            return
        m, n = self.shape
        device = "gpu" if is_cupy(self._rd) else "cpu"
        plan = plan_update(
            which, m, n, p, k, keep_q=self.keep_q, rhs=self._b.shape[1], dtype=self._rd.dtype, device=device
        )
        note = ""
        if method == "auto":
            method = plan.choice
            if method == "update" and self.age >= FRESH_FOR:
                method = "refactor"
                note = f"factored anew after {self.age} updates, to limit their rounding errors"
        factors, age = None, 0
        if method == "update":
            try:
                made = update()
                if which == "remove_rows":  # rounding errors of large rows would stay
                    norm = partial(get_xp(b).linalg.norm, axis=0)
                    with np.errstate(over="ignore"):
                        kept = norm(self._rd[:, : made[1].shape[1]]) <= 30 * norm(made[1])
                    if not all_true(kept):
                        raise np.linalg.LinAlgError("the removed rows were far larger than all that are left")
                factors, age = made, self.age + 1
            except np.linalg.LinAlgError as error:
                note = f"factored anew, as the update was inaccurate: {error}"
        a, edits = self._a, (*self._edits, edit)
        if factors is None:
            a, edits = edit(self.a), ()
            factors = self._factored(a, b)
        self._take(a, edits, b, factors, age)
        self.plan, self.note = plan, note

    def _factored(self, a: Array, b: Array) -> Factors:
        """Factor from scratch. Without Q, the R of [A b] holds the R of A and Qᵀb."""
        return factor(a) if self.keep_q else (None, factor(get_xp(a).concatenate([a, b], axis=1), "r"))

    def _extended(self, u: Array, units: Array | None = None) -> tuple[Array, Array]:
        """Return [R d] with the rows of further columns W of Q, and [QᵀU; WᵀU], by `complement`.

        A R⁻¹ replaces Q. If `units` are given, u holds these unit vectors.

        Raises
        ------
        LinAlgError
            If A R⁻¹ is too far from orthonormal.
        """
        a, r, rd, xp = self.a, self.r, self._rd, get_xp(u)
        check_pivots(r.diagonal())
        s = None if units is None else _substitute(r, a[units].T, trans=True)
        z, w, c = complement(
            u, lambda y: a @ _substitute(r, y), lambda x: _substitute(r, a.T @ x, trans=True), s=s, exact=False
        )
        defect = float(xp.linalg.norm(z.T @ z + c.T @ c - u.T @ u))
        size = float(xp.linalg.norm(u)) ** 2
        if not defect <= 100 * np.sqrt(len(u)) * float(np.finfo(u.dtype).eps) * size:
            raise np.linalg.LinAlgError(f"AR⁻¹ is orthonormal only to {defect / size:.1g}: an update needs Q")
        below = xp.zeros((w.shape[1], rd.shape[1]), rd.dtype)
        below[:, len(rd) :] = w.T @ self._b
        return xp.concatenate([rd, below]), xp.concatenate([z, c])

    def _as_block(self, u: Any, axis: int, length: int) -> Array:
        """Return a copy of `u` in the model's dtype; see `as_block`."""
        u = as_block(get_xp(self._rd, u).asarray(unwrapped(u, "u")), axis, length)
        return as_matrix(u, "u", finite=self._finite).astype(self._rd.dtype)

    def _outward(self, x: Array) -> Array:
        return x[:, 0] if self._is_vector else x


def _substitute(r: Array, x: Array, trans: bool = False) -> Array:
    """Return R⁻¹x or, for `trans`, R⁻ᵀx."""
    x = x.copy(order="K")
    substitute(r, x, trans=trans, lower=False)
    return x


def _insert(a: Array, k: int, u: Array, axis: int = 0) -> Array:
    parts = [a[:k], u, a[k:]] if axis == 0 else [a[:, :k], u, a[:, k:]]
    return get_xp(a).concatenate(parts, axis=axis)


def _delete(a: Array, gone: np.ndarray, axis: int = 0) -> Array:
    return a.take(get_xp(a).asarray(np.delete(np.arange(a.shape[axis]), gone)), axis)

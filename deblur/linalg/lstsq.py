"""Least squares through QR: general matrices, and the damped problem of deblurring.

`lstsq` answers for any matrix, a rank-deficient one included. `damped_qr`
factors [H; √λ I] once for many right-hand sides, by bands where H has them:
the route of the reconstruction method ``qr``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

from ..device import Array, all_true, as_real, check_finite, float_dtype, get_xp, is_cupy, unwrapped
from ..errors import SingularMatrixError
from .band_triangle import BandTriangle
from .checks import as_float, as_rhs
from .qr import factor

__all__ = ["DampedQR", "LstsqResult", "damped_qr", "lstsq"]


class LstsqResult(NamedTuple):
    """Result of `lstsq`: the solution, the norm of its residual, and the numerical rank."""

    x: Array
    """(..., N) or (..., N, K): the least-squares solution, of minimum norm where it is not unique."""
    residual_norm: Array
    """(...) or (..., K): ‖b − Ax‖₂ of each right-hand side, computed from x itself."""
    rank: Any
    """int, or (...) integers for a stack: the numerical rank found."""


def lstsq(
    a: Array,
    b: Array,
    rcond: float | None = None,
    *,
    on_deficient: str = "min-norm",
    check_finite: bool = True,
) -> LstsqResult:
    """Minimise ‖Ax − b‖₂, for one matrix or a stack, whatever the rank.

    Parameters
    ----------
    a : (..., M, N) array_like
        Tall, square or wide.
    b : (M,) or (..., M, K) array_like
        Right-hand sides. For a stack of matrices b is (..., M, K), or (..., M)
        with exactly one dimension less than `a`.
    rcond : float, optional
        Directions in which A is smaller than rcond·‖A‖ count as absent. Default
        is max(M, N)·eps of the dtype.
    on_deficient : {"min-norm", "raise"}
        For a matrix of rank below min(M, N): the solution of minimum norm, or
        an error that gives the rank.
    check_finite : bool
        Whether to look for NaN and infinity first. Without it they make NaN of the solution.

    Returns
    -------
    LstsqResult
        ``x``, ``residual_norm``, ``rank``.

    Raises
    ------
    ValueError
        For shapes that do not fit, an unknown `on_deficient`, a negative or
        non-finite `rcond`, or non-finite entries.
    TypeError
        For complex or non-numeric entries, or NumPy and CuPy arrays mixed.
    SingularMatrixError
        With ``on_deficient="raise"``, for a matrix of deficient rank.

    Notes
    -----
    On the CPU this is LAPACK's `gelsy`: QR with column pivoting, the rank by
    incremental condition estimation, and for a deficient rank the complete
    orthogonal decomposition, which gives the minimum norm [1]_. On the GPU it is
    the plain QR, whose R is then tested: ‖R‖‖R⁻¹‖ in the Frobenius norm is at
    most N times the condition number, so that a small one proves the full rank;
    only matrices that fail the test pay for the singular values of R.

    References
    ----------
    .. [1] G. Quintana-Ortí, X. Sun, C. H. Bischof, "A BLAS-3 version of the QR
       factorization with column pivoting", SIAM J. Sci. Comput. 19 (1998).
    """
    xp = get_xp(a, b)
    a, b, is_vector = _checked(unwrapped(a, "a"), unwrapped(b, "b"), rcond, on_deficient, check_finite)
    m, n = a.shape[-2:]
    lost = None
    if not check_finite:  # LAPACK may answer all the same, with finite numbers
        fine = xp.isfinite(a), xp.isfinite(b)
        if not (all_true(fine[0]) and all_true(fine[1])):
            a, b = (xp.where(good, v, v.dtype.type(0)) for good, v in zip(fine, (a, b), strict=True))
            lost = ~(fine[0].all(axis=(-2, -1), keepdims=True) & fine[1].all(axis=-2, keepdims=True))
    if rcond is None:
        rcond = max(m, n, 1) * float(np.finfo(a.dtype).eps)
    if 0 in a.shape or b.shape[-1] == 0:
        x = xp.zeros((*a.shape[:-2], n, b.shape[-1]), a.dtype)
        rank = xp.zeros(a.shape[:-2], dtype=int)
        if 0 not in a.shape[-2:]:  # no right-hand side asks for anything, but the rank is still a fact
            s = xp.linalg.svd(a, compute_uv=False)
            rank = (s > rcond * s[..., :1]).sum(axis=-1)
    elif xp is np:
        x, rank = _lstsq_lapack(a, b, rcond)
    else:
        x, rank = _lstsq_gpu(a, b, rcond)
    if on_deficient == "raise" and a.size and bool((rank < min(m, n)).any()):
        worst = int(rank.min())
        which = ""
        if a.ndim > 2:
            which = f" (the worst of {rank.size} matrices; {int((rank < min(m, n)).sum())} fail)"
        raise SingularMatrixError(
            f"the {m} x {n} matrix has rank {worst}, not {min(m, n)}, at rcond = {rcond:.3g}{which}: its "
            "least-squares solution is not unique; on_deficient='min-norm' returns the smallest one",
            worst,
        )
    if lost is not None:
        x = xp.where(lost, x.dtype.type(np.nan), x)
    residual = b - a @ x
    norm = xp.linalg.norm(residual, axis=-2)
    if is_vector:
        x, norm = x[..., 0], norm[..., 0]
    return LstsqResult(x, norm, int(rank) if a.ndim == 2 else rank)


def _checked(
    a: Array, b: Array, rcond: float | None, on_deficient: str, finite: bool
) -> tuple[Array, Array, bool]:
    """`a` and `b` in their common dtype, b with its column axis, and whether b came without one."""
    if on_deficient not in ("min-norm", "raise"):
        raise ValueError(f"on_deficient must be 'min-norm' or 'raise', not {on_deficient!r}")
    if rcond is not None and not 0 <= rcond < np.inf:
        raise ValueError(f"rcond must be a finite number >= 0, not {rcond}")
    if a.ndim < 2:
        raise np.linalg.LinAlgError(
            f"a must be a matrix or a stack of matrices, not an array of shape {a.shape}"
        )
    is_vector = b.ndim == a.ndim - 1
    columns = b[..., None] if is_vector else b
    if columns.ndim != a.ndim or columns.shape[:-1] != a.shape[:-1]:
        raise ValueError(
            f"b of shape {b.shape} does not belong to a of shape {a.shape}: "
            f"{a.shape[:-1]} or {(*a.shape[:-1], 'K')} is needed"
        )
    a, columns = as_float(a, "a", finite=finite), as_float(columns, "b", finite=finite)
    dtype = np.result_type(a.dtype, columns.dtype)
    return a.astype(dtype, copy=False), columns.astype(dtype, copy=False), is_vector


def _lstsq_lapack(a: np.ndarray, b: np.ndarray, rcond: float) -> tuple[np.ndarray, np.ndarray]:
    """gelsy on each matrix of the stack."""
    batch = a.shape[:-2]
    x = np.empty((*batch, a.shape[-1], b.shape[-1]), a.dtype)
    rank = np.empty(batch, dtype=int)
    for i in np.ndindex(*batch):
        x[i], _, rank[i], _ = scipy.linalg.lstsq(
            a[i], b[i], cond=rcond, lapack_driver="gelsy", check_finite=False
        )
    return x, rank


def _lstsq_gpu(a: Array, b: Array, rcond: float) -> tuple[Array, Array]:
    """Plain QR for every matrix whose R proves its rank; the singular values of R for the others."""
    xp = get_xp(a)
    m, n = a.shape[-2:]
    is_tall = m >= n
    q, r = factor(a if is_tall else a.swapaxes(-1, -2))
    batch, k = a.shape[:-2], min(m, n)
    r = r.reshape(-1, k, k)
    # A = QR is tall: x = R⁻¹Qᵀb. A = RᵀQᵀ is wide: x = QR⁻ᵀb, which is the minimum norm already.
    inner = (q.swapaxes(-1, -2) @ b if is_tall else b).reshape(-1, k, b.shape[-1])
    # A zero on the diagonal would make the batched solver divide by it; a one in its place keeps the
    # numbers finite, and the matrix is known to be suspect.
    diagonal = xp.diagonal(r, axis1=-2, axis2=-1)
    broken = (diagonal == 0).any(axis=-1)
    safe = r + xp.eye(k, dtype=r.dtype) * (diagonal == 0)[:, None, :]
    inverse_norm = xp.linalg.norm(xp.linalg.inv(safe), axis=(-2, -1))
    condition = xp.linalg.norm(r, axis=(-2, -1)) * inverse_norm
    suspect = broken | ~(condition * max(rcond, float(np.finfo(a.dtype).eps)) < 1)
    y = xp.linalg.solve(safe if is_tall else safe.swapaxes(-1, -2), inner)
    rank = xp.full(len(r), k)
    if bool(suspect.any()):
        where = xp.flatnonzero(suspect)
        u, s, vt = xp.linalg.svd(r[where] if is_tall else r[where].swapaxes(-1, -2), full_matrices=False)
        keep = s > rcond * s[:, :1]
        c = xp.where(keep[..., None], u.swapaxes(-1, -2) @ inner[where], 0) / xp.where(keep, s, 1)[..., None]
        y[where] = vt.swapaxes(-1, -2) @ c
        rank[where] = keep.sum(axis=-1)
    y = y.reshape(*batch, k, b.shape[-1])
    return (y if is_tall else q @ y), rank.reshape(batch)


@dataclass(frozen=True)
class DampedQR:
    """The triangle R of [H; √λ I] = QR, kept to solve min ‖Hx − b‖² + λ‖x‖² again and again.

    Made by `damped_qr`. `r` holds R's upper band on the CPU (row u − d is the
    d-th superdiagonal, LAPACK's order) and the full triangle on the GPU.
    """

    h: Any
    lam: float
    r: Array
    #: Hᵀ: a matrix of its own on the GPU, where products with a transposed sparse matrix add in any order.
    ht: Any

    def solve(self, b: Array) -> Array:
        """The minimiser for each right-hand side.

        Parameters
        ----------
        b : (M,) or (M, K) array
            Finite; computed in the dtype of the factor.

        Returns
        -------
        x : (N,) or (N, K) array

        Raises
        ------
        ValueError
            If b's length is not the number of H's rows, or b is not finite.

        Notes
        -----
        Corrected semi-normal equations [1]_: RᵀRx = Hᵀb, then one step of
        refinement with the residual b − Hx. Q is not needed, and while cond(R)
        stays under eps^(-1/2) the error is that of the QR method, not that of the normal
        equations.

        References
        ----------
        .. [1] Å. Björck, "Stability analysis of the method of seminormal
           equations for linear least squares problems", Linear Algebra Appl.
           88/89 (1987) 31-48.
        """
        get_xp(self.r, b)  # refuses a mixture of host and device
        b = as_rhs(b, self.h.shape[0], dtype=self.r.dtype)
        x = self._seminormal(self.ht @ b)
        return x + self._seminormal(self.ht @ (b - self.h @ x) - self.r.dtype.type(self.lam) * x)

    def rcond(self) -> float:
        """An estimate of 1/(‖RᵀR‖ ‖(RᵀR)⁻¹‖): the inverse by power iteration, from white noise, the norm by a bound.

        The corrected semi-normal equations are worth nothing below eps.
        """
        xp = get_xp(self.r)
        # Products, because on a GPU sums along an axis would first be compiled.
        columns, rows = (abs(a) @ xp.asarray(np.ones(a.shape[1], a.dtype)) for a in (self.ht, self.h))
        norm = float(columns.max()) * float(rows.max()) + self.lam
        z = xp.asarray(np.random.default_rng(0).standard_normal(self.h.shape[1]).astype(self.r.dtype))
        largest = 0.0
        for _ in range(4):
            z = self._seminormal(z / abs(z).max())
            largest = float(abs(z).max())
            if not 0 < largest < np.inf:
                return 0.0
        return 1 / (norm * largest)

    def _seminormal(self, y: Array) -> Array:
        """(RᵀR)⁻¹ y."""
        if not is_cupy(y):
            # R is the Cholesky factor of HᵀH + λI up to the signs of its rows, which cancel here.
            return scipy.linalg.cho_solve_banded((self.r, False), y, check_finite=False)
        from cupyx.scipy.linalg import solve_triangular

        y = solve_triangular(self.r, y, trans="T", check_finite=False)
        return solve_triangular(self.r, y, check_finite=False)


def damped_qr(h: Any, lam: float) -> DampedQR:
    """Factor [H; √λ I] = QR, keeping only R, for use on many right-hand sides.

    Parameters
    ----------
    h : (M, N) array or sparse matrix
        NumPy or CuPy, dense or from `scipy.sparse` / `cupyx.scipy.sparse`. Fast
        where its nonzeros lie in a band, as those of a blur do when pixels are
        taken row by row.
    lam : float
        The damping λ ≥ 0 of min ‖Hx − b‖² + λ‖x‖² (λ = damp² of
        `scipy.sparse.linalg.lsqr`).

    Returns
    -------
    DampedQR
        With ``.solve(b)``.

    Raises
    ------
    ValueError
        For a negative or non-finite λ, an H that is not a matrix, is empty, or not finite.
    TypeError
        For complex entries.
    SingularMatrixError
        If a diagonal entry of R vanishes to rounding, or by an estimate its condition number squared is above
        1/eps: λ is too small for this H.

    Notes
    -----
    √λ I is triangular already, so R starts as √λ I and the rows of H are
    rotated into it, a block at a time [1]_. On the CPU only R's band is touched
    (`BandTriangle`): for a blur of half-bandwidth p that is 16Np² operations and
    2p numbers for each pixel, where the dense factorisation takes
    10/3 N³ and N². No matrix of 2N rows is formed.

    References
    ----------
    .. [1] C. L. Lawson, R. J. Hanson, *Solving Least Squares Problems*, 1974, chapter 27.
    """
    sparse = hasattr(h, "tocsr")
    h = h if sparse else as_real(h, "H")
    if h.ndim != 2 or 0 in h.shape:
        raise ValueError(f"H must be a non-empty matrix, not {type(h).__name__} of shape {h.shape}")
    if isinstance(lam, (bool, np.bool_)) or not 0 <= lam < np.inf:
        raise ValueError(f"lam must be a finite number >= 0, not {lam}")
    h = h.tocsr() if sparse else h
    values = h.data if sparse else h
    check_finite(values, "H")
    dtype = float_dtype(values)
    h = h.astype(dtype, copy=False)
    n = h.shape[1]
    start = np.full(n, np.sqrt(lam), dtype)
    if get_xp(values) is np:
        h = h.copy() if sparse else h  # whose entries may be put in order
        ht, triangle = h.T, BandTriangle(start).with_rows(h)
        r, diagonal = triangle.upper_band(), abs(triangle.rows[:, 0])
    else:
        h, ht, r = _factored_on_gpu(h, start)
        diagonal = abs(r.diagonal())
    if not float(diagonal.min()) > n * float(np.finfo(dtype).eps) * float(diagonal.max()):
        smallest = int(diagonal.argmin())
        raise SingularMatrixError(
            f"[H; sqrt(lam) I] is singular to rounding at column {smallest} "
            f"with lam = {lam:.3g}; take a larger lam",
            smallest,
        )
    factor = DampedQR(h, float(lam), r, ht)
    rcond = factor.rcond()
    if not rcond > float(np.finfo(dtype).eps):
        raise SingularMatrixError(
            f"[H; sqrt(lam) I] is singular to {dtype} rounding with lam = {lam:.3g}: the square of its reciprocal "
            f"condition number is {rcond:.1e}; take a larger lam"
            + (" or float64" if dtype == np.float32 else "")
        )
    return factor


def _factored_on_gpu(h: Any, start: np.ndarray) -> tuple[Any, Any, Array]:
    """H in canonical form, Hᵀ by rows, and R of [H; diag(start)] as a full matrix.

    CuPy compiles kernels for seconds to sort, transpose or slice a sparse matrix, so the host works on its structure.
    R is full because on a GPU large products matter more than the zeros in them.
    """
    import cupy

    (m, n), sparse = h.shape, hasattr(h, "tocsr")
    if sparse:
        places = _places(h)
        if not places.has_canonical_format:
            h = h.copy()
            h.sum_duplicates()
            places = _places(h)
        h.has_canonical_format = True
        turned = places.T.tocsr()
        data = h.data.take(cupy.asarray(turned.data))
        ht = type(h)((data, cupy.asarray(turned.indices), cupy.asarray(turned.indptr)), (n, m))
        ht.has_canonical_format = True
        full = np.diff(places.indptr) > 0
        first, last = np.zeros((2, m), np.int64)  # the columns of a row's nonzeros; 0, 0 for none
        first[full] = places.indices[places.indptr[:-1][full]]
        last[full] = places.indices[places.indptr[1:][full] - 1] + 1
    else:
        ht, nonzero = h.T, h != 0
        full = nonzero.any(axis=1)
        first = (nonzero.argmax(axis=1) * full).get()
        last = ((n - nonzero[:, ::-1].argmax(axis=1)) * full).get()
    r = cupy.diag(cupy.asarray(start))
    i = 0
    while i < m:
        # Rows in number about half the columns they touch: fewer would send R's window round the
        # cache more often, more would widen it.
        j = min(i + max(32, int(last[i] - first[i]) // 2), m)
        lo, hi = int(first[i:j].min()), int(last[:j].max())
        if hi > lo:
            block = h[i:j, lo:hi] if not sparse else cupy.zeros((j - i, hi - lo), h.dtype)
            if sparse:
                some = places[i:j].tocoo()
                at = some.row.astype(np.int64) * (hi - lo) + some.col - lo
                block.reshape(-1)[cupy.asarray(at)] = h.data[places.indptr[i] : places.indptr[j]]
            r[lo:hi, lo:hi] = factor(cupy.concatenate([r[lo:hi, lo:hi], block]), "r")
        i = j
    return h, ht, r


def _places(h: Any) -> scipy.sparse.csr_array:
    """The structure of a sparse matrix on a GPU, on the host: its entries are their places in `h.data`."""
    return scipy.sparse.csr_array((np.arange(h.nnz), h.indices.get(), h.indptr.get()), shape=h.shape)

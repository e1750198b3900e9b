"""The damped least-squares problem of deblurring by QR, as the method ``qr`` solves it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from ..device import Array, as_real, check_finite, cupy, float_dtype, get_xp, is_cupy
from ..errors import SingularMatrixError, check_number
from ..norms import largest, normalized, shifted
from .band_triangle import BandTriangle
from .checks import as_rhs, check_rank
from .qr import factor


@dataclass(frozen=True, eq=False)
class DampedQR:
    """The triangle R of [H; √λ I] = QR, which solves min ‖Hx − b‖² + λ‖x‖² for many right-hand sides.

    `damped_qr` returns it. On the CPU, `r` is the band of Rᵀ (row d is the d-th subdiagonal, LAPACK's
    order); on the GPU it is the full triangle R. `power` is 0 for entries of ordinary size; `h`, `ht` and `r` are those
    of [H; √λ I] divided by 2^`power`, so that squares stay in range.
    """

    h: Any
    lam: float
    r: Array
    #: Hᵀ: a separate matrix on the GPU, where products with a transposed sparse matrix add in arbitrary order.
    ht: Any
    power: int = 0

    def solve(self, b: Array) -> Array:
        """Return the minimiser for each right-hand side.

        Parameters
        ----------
        b : (M,) or (M, K) array
            Finite right-hand sides; converted to the dtype of the factor.

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
        refinement with the residual b − Hx. Q is not needed. As long as cond(R) is below eps^(-1/2),
        the error is that of the QR method instead of that of the normal equations.

        References
        ----------
        .. [1] Å. Björck, "Stability analysis of the method of seminormal
           equations for linear least squares problems", Linear Algebra Appl.
           88/89 (1987) 31-48.
        """
        get_xp(self.r, b)  # refuses a mixture of host and device
        b, power = normalized(as_rhs(b, self.h.shape[0], dtype=self.r.dtype))
        x, damping = self._seminormal(self.ht @ b), self.r.dtype.type(math.ldexp(self.lam, -2 * self.power))
        x += self._seminormal(self.ht @ (b - self.h @ x) - damping * x)
        return shifted(x, power - self.power)

    def rcond(self) -> float:
        """Return an estimate of 1/(‖RᵀR‖ ‖(RᵀR)⁻¹‖): the inverse's norm by power iteration, ‖RᵀR‖ by a bound.

        If it is below eps, the corrected semi-normal equations are worthless.
        """
        xp = get_xp(self.r)
        # Matrix products: on a GPU, sums along an axis would have to be compiled.
        cols, rows = (abs(a) @ xp.asarray(np.ones(a.shape[1], a.dtype)) for a in (self.ht, self.h))
        root = math.hypot(math.sqrt(cols.max()) * math.sqrt(rows.max()), math.ldexp(math.sqrt(self.lam), -self.power))
        z = xp.asarray(np.random.default_rng(0).standard_normal(self.h.shape[1]).astype(self.r.dtype))
        largest = 0.0
        for _ in range(4):
            z = self._seminormal(z / abs(z).max() * z.dtype.type(root))
            largest = float(abs(z).max())
            if not 0 < largest < np.inf:
                return 0.0
        return 1 / (root * largest)

    def _seminormal(self, y: Array) -> Array:
        """Return (RᵀR)⁻¹ y."""
        if not is_cupy(y):
            # Rᵀ is the Cholesky factor of HᵀH + λI up to the signs of its columns, which cancel here.
            return scipy.linalg.cho_solve_banded((self.r, True), y, check_finite=False)
        from cupyx.scipy.linalg import solve_triangular

        y = solve_triangular(self.r, y, trans="T", check_finite=False)
        return solve_triangular(self.r, y, check_finite=False)


def damped_qr(h: Any, lam: float) -> DampedQR:
    """Factor [H; √λ I] = QR, keeping only R, for use on many right-hand sides.

    Parameters
    ----------
    h : (M, N) array or sparse matrix
        NumPy or CuPy, dense or from `scipy.sparse` / `cupyx.scipy.sparse`. Fast
        if its nonzeros lie in a band, as those of a blur do for pixels
        numbered row by row.
    lam : float
        The damping λ ≥ 0 of min ‖Hx − b‖² + λ‖x‖² (λ = damp² of
        `scipy.sparse.linalg.lsqr`).

    Returns
    -------
    DampedQR
        The factor, with ``.solve(b)``.

    Raises
    ------
    ValueError
        If λ is negative or not finite, or H is not a matrix, empty, or not finite.
    TypeError
        If H has complex entries.
    SingularMatrixError
        If a diagonal entry of R vanishes to rounding, or if the estimate of R's squared condition number is above
        1/eps: λ is too small for this H.

    Notes
    -----
    √λ I is already triangular. So R starts as √λ I, and the rows of H are
    rotated into it, one block at a time [1]_. On the CPU only R's band is touched
    (`BandTriangle`): a blur of half-bandwidth p takes 16Np² operations and
    2p numbers for each pixel, compared with 10/3 N³ operations and N² numbers
    of a dense factorisation. No matrix of 2N rows is formed.

    References
    ----------
    .. [1] C. L. Lawson, R. J. Hanson, *Solving Least Squares Problems*, 1974, chapter 27.
    """
    sparse = hasattr(h, "tocsr")
    h = h.tocsr() if sparse else as_real(h, "H")
    if h.ndim != 2 or 0 in h.shape:
        raise ValueError(f"H must be a non-empty matrix, not {type(h).__name__} of shape {h.shape}")
    lam = check_number(lam, "lam")
    values = h.data if sparse else h
    check_finite(values, "H")
    dtype = float_dtype(values)
    n, power = h.shape[1], math.frexp(max(largest(values), math.sqrt(lam)))[1]
    power = 0 if abs(power) < 24 else power  # squares of smaller entries stay in range
    values = shifted(values.astype(dtype, copy=False), -power)
    h = type(h)((values, h.indices, h.indptr), h.shape) if sparse else values
    start = np.full(n, math.ldexp(math.sqrt(lam), -power), dtype)
    if get_xp(values) is np:
        h = h.copy() if sparse else h  # a copy, since its entries may be reordered
        ht, triangle = h.T, BandTriangle(start).with_rows(h)
        r, diagonal = triangle.rows.T, triangle.rows[:, 0]
    else:
        h, ht, r = _factored_on_gpu(h, start)
        diagonal = r.diagonal()
    singular = f"[H; sqrt(lam) I] is singular to {dtype} rounding with lam = {lam:.3g}"
    check_rank(diagonal, n, f"{singular} at column {{}}; take a larger lam")
    factor = DampedQR(h, float(lam), r, ht, power)
    rcond = factor.rcond()
    if not rcond > float(np.finfo(dtype).eps):
        raise SingularMatrixError(
            f"{singular}: the square of its reciprocal condition number is {rcond:.1e}; take a larger lam"
            + (" or float64" if dtype == np.float32 else "")
        )
    return factor


def _factored_on_gpu(h: Any, start: np.ndarray) -> tuple[Any, Any, Array]:
    """Return H in canonical form, Hᵀ by rows, and R of [H; diag(start)] as a full matrix.

    CuPy compiles kernels for seconds to sort, transpose or slice a sparse matrix, so the host works on its structure.
    R is full, because on a GPU large products matter more than the zeros in R.
    """
    (m, n), sparse = h.shape, hasattr(h, "tocsr")
    if sparse:
        places = _places(h)
        if not places.has_canonical_format:
            h = h.copy()
            h.sum_duplicates()
            places = _places(h)
        h.has_canonical_format = True
        turned = places.T.tocsr()
        parts = (cupy.asarray(part.astype(np.int32)) for part in (turned.indices, turned.indptr))
        ht = type(h)((h.data.take(cupy.asarray(turned.data)), *parts), (n, m))
        ht.has_canonical_format = True
        full = np.diff(places.indptr) > 0
        first, last = np.zeros((2, m), np.int64)  # range of the columns of a row's nonzeros; 0, 0 for none
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
        # About half as many rows as the columns they touch: fewer rows would move R's window through the
        # cache more often, more rows would widen it.
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
    """Return the structure of a sparse GPU matrix on the host; its entries are the indices into `h.data`."""
    return scipy.sparse.csr_array((np.arange(h.nnz), h.indices.get(), h.indptr.get()), shape=h.shape)

"""A banded triangle R that rows are rotated into and out of: RᵀR ± uᵀu without leaving the band.

The matrices of blur touch few columns a row, in a band, and so do the triangles of their QR factorisations. This
is `sweep_down` and `sweep_up` of `sweeps` on windows that slide along the band, without a Q.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.lib.stride_tricks import as_strided

from ..errors import SingularMatrixError
from .checks import check_rank
from .sweeps import BLOCK, PANEL, sweep_down, sweep_up, tpqrt


class BandTriangle:
    """The upper triangular R with RᵀR = diag(d)² + Σ uᵀu over all rows u rotated in and not out again.

    Parameters
    ----------
    diagonal : (N,) array
        d, what R starts with: √λ of a damped least-squares problem. float32 or float64.

    Attributes
    ----------
    rows : (N, B + 1) array
        ``rows[i, t]`` is R[i, i + t]; zero beyond the last column. B grows as it must. The transpose is Rᵀ as LAPACK
        keeps a lower band, so that L = Rᵀ is the Cholesky factor, up to the signs of its columns.

    Notes
    -----
    On NumPy arrays alone. An instance is never changed: each method returns another one.
    """

    def __init__(self, diagonal: np.ndarray) -> None:
        self.rows = np.array(diagonal)[:, None]

    @property
    def bandwidth(self) -> int:
        """B, the number of superdiagonals kept."""
        return self.rows.shape[1] - 1

    def with_rows(self, u: Any) -> BandTriangle:
        """R after rows have been added to the matrix: RᵀR + UᵀU.

        Parameters
        ----------
        u : (P, N) sparse matrix
            Fast where each row's nonzeros lie close together and the rows come in the order of their columns.

        Notes
        -----
        One sweep down the blocks of R. The rows that begin in a block join those carried on from the blocks
        above; what they hold in the block's columns is annihilated against its triangle, and what is left of
        them is carried on. About 4NB² operations for as many rows as columns [1]_, and 4NB for a single row.

        References
        ----------
        .. [1] C. L. Lawson, R. J. Hanson, *Solving Least Squares Problems*, 1974, chapter 27.
        """
        u, first, last = _ordered(u, 1)
        # (RᵀR)[i, k] is not zero only where one row has both columns, and R has the band of RᵀR.
        new = self._copy(max(self.bandwidth, int((last - first).max(initial=1)) - 1))
        carried = np.zeros((0, 0), self.rows.dtype)
        triangle: np.ndarray | None = None
        begun = 0
        for j, stop, reach in new._blocks():
            begin = int(np.searchsorted(first, stop))
            entering = u[begun:begin, j:reach].toarray().astype(carried.dtype)
            carried = np.pad(carried, ((0, 0), (0, reach - j - carried.shape[1])))
            carried, begun = np.concatenate([carried, entering]), begin
            if len(carried) > reach - j and triangle is None:
                triangle = np.zeros((0, 0), carried.dtype)
            if triangle is not None:
                # Too many to be carried as they are: they are gathered in a triangle of their own, of which only
                # the first rows have anything in this block's columns.
                triangle = np.pad(triangle, (0, reach - j - len(triangle)))
                if len(carried):
                    triangle = tpqrt(triangle, carried, PANEL)[0]
                carried, triangle = triangle[: stop - j], triangle[stop - j :, stop - j :]
            if len(carried) == 0:
                carried = carried[:, stop - j :]
                continue
            rows = new._window(j, stop, reach)
            sweep_down(rows, carried)
            carried = carried[:, stop - j :]
            carried = carried[np.any(carried != 0, axis=1)]
            new._put(j, rows)
        return new

    def without_rows(self, u: Any) -> BandTriangle:
        """R after rows have been taken out of the matrix: RᵀR − UᵀU.

        Parameters
        ----------
        u : (P, N) sparse matrix
            Rows that were added before.

        Raises
        ------
        SingularMatrixError
            If the matrix, or that without the rows, is singular to rounding.

        Notes
        -----
        The blocked form of LINPACK's downdating [1]_: Z = R⁻ᵀUᵀ are the rows of Q, CᵀC = I − ZᵀZ their part outside
        the range, and one sweep up the rows of R turns [C; Z] into [I; 0]. The result is that of a matrix
        whose entries were changed by rounding; RᵀR is as good as eps·‖R‖² allows, whatever C is. R̃ is banded again in
        exact arithmetic; the rows are ordered so that those already done with, whose entries lie
        further right, are never touched again. About 4PNB + 2·64·NB operations.

        References
        ----------
        .. [1] G. W. Stewart, "The effects of rounding error on an algorithm for downdating a
           Cholesky factorization", J. Inst. Maths. Applics. 23 (1979) 203-213.
        """
        u, first, _ = _ordered(u, -1)
        p = u.shape[0]
        if p == 0:
            return self
        z = self._transpose_solution(u.T.toarray())
        try:
            c = scipy.linalg.cholesky(np.eye(p, dtype=z.dtype) - z.T @ z, check_finite=False)
        except np.linalg.LinAlgError:
            raise SingularMatrixError(f"without these {p} rows the matrix is singular: increase the damping") from None
        new = self._copy(self.bandwidth)
        w = np.zeros((p, len(self.rows)), z.dtype)
        for j, stop, reach in reversed(self._blocks()):
            done = int(np.searchsorted(-first, -stop, side="right"))  # rows that begin at `stop` or later
            if done == p:
                continue
            rows = new._window(j, stop, reach)
            sweep_up(c[done:, done:], z[j:stop, done:], w[done:, j:reach], rows)
            new._put(j, rows)
        return new

    def solve(self, y: np.ndarray) -> np.ndarray:
        """(RᵀR)⁻¹ y for y (N,) or (N, K).

        Raises
        ------
        SingularMatrixError
            If a diagonal entry of R vanishes to rounding.
        """
        self._check()
        return scipy.linalg.cho_solve_banded((self.rows.T, True), y, check_finite=False)

    def _transpose_solution(self, y: np.ndarray) -> np.ndarray:
        """R⁻ᵀ y, by blocks, so that many columns cost products."""
        self._check()
        x = y.astype(self.rows.dtype)
        for j, stop, reach in self._blocks():
            rows = self._window(j, stop, reach)
            x[j:stop] = scipy.linalg.solve_triangular(rows[:, : stop - j], x[j:stop], trans=1, check_finite=False)
            x[stop:reach] -= rows[:, stop - j :].T @ x[j:stop]
        return x

    def _check(self) -> None:
        check_rank(self.rows[:, 0], len(self.rows), "R is singular to rounding at column {}: increase the damping")

    # -- windows ------------------------------------------------------------------------------

    def _blocks(self) -> list[tuple[int, int, int]]:
        """Where each block of rows begins and ends, and where its columns end."""
        n = len(self.rows)
        stops = [(j, min(j + BLOCK, n)) for j in range(0, n, BLOCK)]
        return [(j, stop, min(stop + self.bandwidth, n)) for j, stop in stops]

    def _copy(self, bandwidth: int) -> BandTriangle:
        new = BandTriangle(self.rows[:, 0])
        new.rows = np.zeros((len(self.rows), min(bandwidth, len(self.rows) - 1) + 1), self.rows.dtype)
        new.rows[:, : self.rows.shape[1]] = self.rows
        return new

    def _window(self, lo: int, hi: int, reach: int) -> np.ndarray:
        """R[lo:hi, lo:reach] as a dense array, with reach = min(hi + bandwidth, N)."""
        dense = np.zeros((hi - lo, hi - lo + self.bandwidth), self.rows.dtype)
        _sheared(dense, self.rows.shape[1])[...] = self.rows[lo:hi]
        return dense[:, : reach - lo]

    def _put(self, lo: int, dense: np.ndarray) -> None:
        """Write what `_window` gave, changed. What lies beyond the band is rounding and is dropped."""
        size, columns = dense.shape
        wide = np.zeros((size, size + self.bandwidth), dense.dtype)
        wide[:, :columns] = dense
        self.rows[lo : lo + size] = _sheared(wide, self.rows.shape[1])


def _sheared(dense: np.ndarray, width: int) -> np.ndarray:
    """The view with [i, t] = dense[i, i + t]."""
    down, across = dense.strides
    return as_strided(dense, (len(dense), width), (down + across, across))


def _ordered(u: Any, direction: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """The rows that are not zero, by their first column up (1) or down (-1); that column, and one past the last."""
    u = scipy.sparse.csr_array(u, copy=True)
    u.sum_duplicates()
    u.eliminate_zeros()
    u = u[np.flatnonzero(np.diff(u.indptr))]
    first, last = u.indices[u.indptr[:-1]], u.indices[u.indptr[1:] - 1] + 1
    order = np.argsort(direction * first, kind="stable")
    return u[order], first[order], last[order]

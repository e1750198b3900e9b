"""A banded triangle R that is updated when rows enter or leave: RᵀR ± uᵀu, within the band.

A row of a blur matrix touches few columns within a band, and so does a row of its QR factor R. This module applies
`sweep_down` and `sweep_up` of `sweeps` to windows that slide along the band, without Q.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.lib.stride_tricks import as_strided

from ..device import blocks
from ..errors import SingularMatrixError
from .checks import check_rank
from .sweeps import BLOCK, PANEL, sweep_down, sweep_up, tpqrt


class BandTriangle:
    """The upper triangular R with RᵀR = diag(d)² + Σ uᵀu over all rows u that were added and not removed.

    Parameters
    ----------
    diagonal : (N,) array
        d, the diagonal of the initial R: √λ of a damped least-squares problem. float32 or float64.

    Attributes
    ----------
    rows : (N, B + 1) array
        ``rows[i, t]`` is R[i, i + t], and zero beyond the last column. B grows as needed. The transpose is Rᵀ as a
        lower band in LAPACK's format: L = Rᵀ is the Cholesky factor up to the signs of its columns.

    Notes
    -----
    For NumPy arrays only. An instance is immutable: each method returns a new one.
    """

    def __init__(self, diagonal: np.ndarray) -> None:
        self.rows = np.array(diagonal)[:, None]

    @property
    def bandwidth(self) -> int:
        """B, the number of superdiagonals that are stored."""
        return self.rows.shape[1] - 1

    def with_rows(self, u: Any) -> BandTriangle:
        """Return R after rows have been added to the matrix: RᵀR + UᵀU.

        Parameters
        ----------
        u : (P, N) sparse matrix
            The rows. Fast if each row's nonzeros lie close together and the rows are ordered by their columns.

        Notes
        -----
        One sweep goes down the blocks of R. The rows that begin in a block join those carried over from the blocks
        above. The block's triangle annihilates their part in the block's columns, and the remainders are carried on.
        This takes about 4NB² operations for as many rows as columns [1]_, and 4NB for a single row.

        References
        ----------
        .. [1] C. L. Lawson, R. J. Hanson, *Solving Least Squares Problems*, 1974, chapter 27.
        """
        u, first, last = _ordered(u, 1)
        # (RᵀR)[i, k] is nonzero only if a row has entries in both columns, and R has the band of RᵀR.
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
                # Too many rows to carry them as they are: they are reduced to a triangle, of which only the first rows
                # have entries in this block's columns.
                triangle = np.pad(triangle, (0, reach - j - len(triangle)))
                if len(carried):
                    triangle = tpqrt(triangle, carried, PANEL)[0]
                carried, triangle = triangle[: stop - j], triangle[stop - j :, stop - j :]
            if len(carried):
                rows = new._window(j, stop, reach)
                sweep_down(rows, carried)
                new._put(j, rows)
            carried = carried[:, stop - j :]
            carried = carried[np.any(carried != 0, axis=1)]
        return new

    def without_rows(self, u: Any) -> BandTriangle:
        """Return R after rows have been removed from the matrix: RᵀR − UᵀU.

        Parameters
        ----------
        u : (P, N) sparse matrix
            Rows that were added before.

        Raises
        ------
        SingularMatrixError
            If the matrix is singular to rounding, before or after the removal.

        Notes
        -----
        Blocked form of LINPACK's downdating [1]_: Z = R⁻ᵀUᵀ are the rows of Q, CᵀC = I − ZᵀZ their part outside the
        range, and one sweep up the rows of R turns [C; Z] into [I; 0]. The result is exact for a matrix whose entries
        were changed by rounding, so RᵀR is accurate to eps·‖R‖², whatever C is. R̃ is banded again in exact arithmetic.
        The rows are ordered so that finished ones, whose entries lie further right, are not touched again. This takes
        about 4PNB + 2·64·NB operations.

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
        """Return (RᵀR)⁻¹ y for y (N,) or (N, K).

        Raises
        ------
        SingularMatrixError
            If a diagonal entry of R vanishes to rounding.
        """
        self._check()
        return scipy.linalg.cho_solve_banded((self.rows.T, True), y, check_finite=False)

    def _transpose_solution(self, y: np.ndarray) -> np.ndarray:
        """Return R⁻ᵀ y, by blocks, so that many columns become matrix products."""
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
        """Return, for each block of rows, its first row, its end, and the end of its columns."""
        n = len(self.rows)
        return [(rows.start, rows.stop, min(rows.stop + self.bandwidth, n)) for rows in blocks(n, BLOCK)]

    def _copy(self, bandwidth: int) -> BandTriangle:
        new = BandTriangle(self.rows[:, 0])
        new.rows = np.pad(self.rows, ((0, 0), (0, min(bandwidth, len(self.rows) - 1) - self.bandwidth)))
        return new

    def _window(self, lo: int, hi: int, reach: int) -> np.ndarray:
        """Return R[lo:hi, lo:reach] as a dense array, with reach = min(hi + bandwidth, N)."""
        dense = np.zeros((hi - lo, hi - lo + self.bandwidth), self.rows.dtype)
        _sheared(dense, self.rows.shape[1])[...] = self.rows[lo:hi]
        return dense[:, : reach - lo]

    def _put(self, lo: int, dense: np.ndarray) -> None:
        """Write a modified `_window` back; entries beyond the band are rounding errors and are dropped."""
        wide = np.pad(dense, ((0, 0), (0, len(dense) + self.bandwidth - dense.shape[1])))
        self.rows[lo : lo + len(dense)] = _sheared(wide, self.rows.shape[1])


def _sheared(dense: np.ndarray, width: int) -> np.ndarray:
    """Return the view with [i, t] = dense[i, i + t]."""
    down, across = dense.strides
    return as_strided(dense, (len(dense), width), (down + across, across))


def _ordered(u: Any, direction: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the nonzero rows, ordered by first column up (1) or down (-1), with first column and end of each."""
    u = scipy.sparse.csr_array(u, copy=True)
    u.sum_duplicates()
    u.eliminate_zeros()
    u = u[np.flatnonzero(np.diff(u.indptr))]
    first, last = u.indices[u.indptr[:-1]], u.indices[u.indptr[1:] - 1] + 1
    order = np.argsort(direction * first, kind="stable")
    return u[order], first[order], last[order]

"""Method ``banded``: banded Cholesky of HHᵀ + λI, exact for any λ, for small images or PSFs.

With the pixels numbered along the shorter side of the image, HHᵀ + λI has
its nonzeros within a band of about (m - 1) N + (n - 1) diagonals on either
side, for a PSF of m x n and a shorter side of N pixels. LAPACK's blocked
``pbtrf`` factors it without fill beyond the band:

    tikhonov   f = Hᵀ (HHᵀ + λI)⁻¹ g          hht   f = (HHᵀ + λI)⁻¹ Hᵀ g

It serves where iterations stall because λ is too small, and as the exact
reference at sizes for which a dense matrix does not fit. A periodic boundary
couples opposite edges, which fills the band; method `fft` serves it.

On a GPU the matrix is block tridiagonal, in blocks of whole lines of pixels. With diagonal blocks D_i and
C_i to the left of D_i,

    X_i = L_{i-1}⁻¹ C_iᵀ ,   L_i L_iᵀ = D_i − X_iᵀ X_i .

Each step is a dense factorisation, a triangular solve and a product. Together they take up to three times the
operations of ``pbtrf``, in few launches. The fixed cost of a block makes small blocks slow.

References
----------
E. Anderson et al., *LAPACK Users' Guide*, SIAM 1999, on ``pbtrf`` and ``pbtrs``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy

from ..device import Array, Map, blocks, get_xp, require_memory
from ..errors import SingularMatrixError
from ..linalg import cholesky, gram
from ..linalg.triangular import substitute
from ..operators.blur import Blur
from ..operators.normal import NormalRows
from ..problem import Factor, Problem, peak
from .refine import Factored, close_to_singular, refuse_singular, singular

#: Least number of rows of a block, and largest number of rows of a matrix that is treated as one block.
LEAST_ROWS, WHOLE_ROWS = 768, 4096
_INSTEAD = 'use method="pcg", which needs no matrix, or a larger λ with it'


def refuses(problem: Problem) -> str | None:
    """Return None if the method serves this problem, else the reason in words."""
    if problem.blur.boundary.wraps:
        return "boundary 'periodic' couples opposite edges, so HHᵀ has no narrow band; method 'fft' solves it"
    return None


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes of the banded factor, of the matrix that it is computed from, and of a solve."""
    blur, size, gpu = problem.blur, problem.dtype.itemsize, problem.device.gpu is not None
    numbers = 2 * _block(blur) if gpu else _bandwidth(blur) + 1  # of each row
    # A GPU factors block by block. Else HHᵀ is a sparse float64 matrix with indices, and a copy in coordinate form.
    made = 6 * _block(blur) ** 2 * size if gpu else 40 * blur.shape[0] * math.prod(2 * m - 1 for m in blur.psf.shape)
    return float(blur.shape[0] * numbers * size), float(made), 4.0 * problem.frames * blur.shape[0] * size


def prepare(problem: Problem) -> Factor:
    """Return the banded Cholesky factor.

    Raises
    ------
    MemoryError
        If the factor does not fit into free memory.
    SingularMatrixError
        If HHᵀ + λI is singular to rounding.
    """
    blur = problem.blur
    size = f"A banded factor of {blur.shape[0]} x {_bandwidth(blur) + 1}"
    require_memory(int(peak(memory(problem))), problem.xp, size, _INSTEAD)
    turned = blur.image_shape[1] > blur.image_shape[0]
    if turned:
        blur = Blur(blur.psf.T, blur.image_shape[::-1], blur.boundary, origin=blur.origin[::-1])
    try:
        factor: _Band | BlockFactor
        if problem.device.gpu is None:
            factor = _Band(blur, problem.lam, problem.dtype)
        else:
            factor = BlockFactor(blur.shape[0], _block(blur), NormalRows(blur, problem.lam, problem.dtype))
        if close_to_singular(problem):
            refuse_singular(problem, factor.largest, factor.solve)
    except (np.linalg.LinAlgError, SingularMatrixError) as error:
        raise singular(problem, error) from error
    return Factored(problem, partial(_turned, factor.solve, blur.image_shape[::-1]) if turned else factor.solve)


def _turned(solve: Map, shape: tuple[int, ...], b: Array) -> Array:
    """Solve for columns b of images of this shape, by a `solve` for transposed images."""
    lines = b.reshape(*shape, -1).swapaxes(0, 1)
    return solve(lines.reshape(b.shape)).reshape(lines.shape).swapaxes(0, 1).reshape(b.shape)


def _reach(blur: Blur) -> list[int]:
    """Return, along each axis, the largest distance of two pixels with a nonzero entry of HHᵀ."""
    return [
        min(size, max(m - 1, 2 * max(o, m - 1 - o)) + 1) - 1
        for size, m, o in zip(blur.image_shape, blur.psf.shape, blur.origin, strict=True)
    ]


def _bandwidth(blur: Blur) -> int:
    """Return the number of diagonals on either side of the main one, for pixels numbered along the shorter side."""
    reach, (rows, cols) = _reach(blur), blur.image_shape
    return reach[0] * cols + reach[1] if cols <= rows else reach[1] * rows + reach[0]


def _block(blur: Blur) -> int:
    """Return the rows of HHᵀ in a block that couples with its neighbours alone: whole lines along the shorter side."""
    lines = _reach(blur)[int(np.argmax(blur.image_shape))]
    line, n = min(blur.image_shape), blur.shape[0]
    return n if n <= WHOLE_ROWS else min(max(lines, -(-LEAST_ROWS // line)) * line, n)


class _Band:
    """The banded Cholesky factor of HHᵀ + λI in LAPACK's format, on the host."""

    def __init__(self, blur: Blur, lam: float, dtype: np.dtype) -> None:
        h = blur.to_sparse()
        a = scipy.sparse.tril(h @ h.T, format="coo")
        below = a.row - a.col
        band = np.zeros((int(below.max()) + 1, blur.shape[0]), dtype, order="F")
        band[below, a.col] = a.data
        band[0] += dtype.type(lam)
        del a, below
        self.largest = float(abs(band).max())  # of a symmetric definite matrix it is on the diagonal
        self.lower = scipy.linalg.cholesky_banded(band, lower=True, overwrite_ab=True, check_finite=False)

    def solve(self, b: Array) -> Array:
        return scipy.linalg.cho_solve_banded((self.lower, True), b, check_finite=False)


class BlockFactor:
    """The Cholesky factor of a symmetric positive definite, block tridiagonal matrix.

    Parameters
    ----------
    n, block : int
        Rows of the matrix and of a block (the last block may have fewer).
    rows : callable
        ``rows(first, last, left, right)`` returns the entries of rows first to last, columns left to right.

    Attributes
    ----------
    largest : float
        The largest entry of the matrix, which lies on its diagonal.

    Raises
    ------
    SingularMatrixError
        If the matrix is not positive definite to rounding.
    """

    def __init__(self, n: int, block: int, rows: Callable[[int, int, int, int], Array]) -> None:
        self._places = blocks(n, block)
        self._diagonal: list[Array] = []
        self._above: list[Array] = []  # X of the next block
        largest: list[Array] = []
        for at in self._places:
            left = at.start - block if at.start else 0
            both = rows(at.start, at.stop, left, at.stop)
            square = get_xp(both).ascontiguousarray(both[:, at.start - left :])
            largest.append(square.diagonal().max())
            if at.start:
                x = get_xp(both).ascontiguousarray(both[:, :block].T)
                substitute(self._diagonal[-1], x)
                square -= gram(x, check_finite=False)
                self._above.append(x)
            self._diagonal.append(cholesky(square, overwrite_a=True, check_finite=False))
        self.largest = max(map(float, largest))

    def solve(self, b: Array) -> Array:
        """Return the solution for right-hand sides (n, k)."""
        x = get_xp(b).array(b, order="C")
        parts = [x[at] for at in self._places]
        for i, part in enumerate(parts):
            if i:
                part -= self._above[i - 1].T @ parts[i - 1]
            substitute(self._diagonal[i], part)
        for i, part in reversed(list(enumerate(parts))):
            if i + 1 < len(parts):
                part -= self._above[i] @ parts[i + 1]
            substitute(self._diagonal[i], part, trans=True)
        return x

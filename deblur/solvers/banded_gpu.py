"""Cholesky's factor of a band on the GPU: of blocks along the diagonal, each of which meets only its neighbours.

A banded matrix is block tridiagonal in blocks that are long enough. With D_i on its diagonal and C_i before that,

    X_i = L_{i-1}⁻¹ C_iᵀ ,   L_i L_iᵀ = D_i − X_iᵀ X_i ,

which are a dense factor, a triangular system and a product each: as many operations as LAPACK's ``pbtrf`` takes, up to
a factor of three, and in few launches. What a block costs beside its operations makes small blocks not worth it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..device import Array, get_xp
from ..linalg import cholesky, gram
from ..linalg.triangular import substitute

#: Rows that a block has at least, and rows of a matrix that is one block.
LEAST, WHOLE = 768, 4096


class BlockFactor:
    """The factor of a symmetric positive definite matrix, kept.

    Parameters
    ----------
    n, block : int
        Rows of the matrix and of a block (fewer in the last).
    rows : callable
        From first, last, left and right to the entries of these rows and columns.

    Raises
    ------
    SingularMatrixError
        If the matrix is not positive definite to rounding.
    """

    def __init__(self, n: int, block: int, rows: Callable[[int, int, int, int], Array]) -> None:
        self._places = [slice(first, min(first + block, n)) for first in range(0, n, block)]
        self._diagonal: list[Array] = []
        self._above: list[Array] = []  # X of the next block
        self._largest: list[Array] = []
        for at in self._places:
            left = at.start - block if at.start else 0
            both = rows(at.start, at.stop, left, at.stop)
            square = get_xp(both).ascontiguousarray(both[:, at.start - left :])
            self._largest.append(square.diagonal().max())
            if at.start:
                x = get_xp(both).ascontiguousarray(both[:, :block].T)
                substitute(self._diagonal[-1], x)
                square -= gram(x, check_finite=False)
                self._above.append(x)
            self._diagonal.append(cholesky(square, overwrite_a=True, check_finite=False))

    @property
    def largest(self) -> float:
        """The largest entry of the matrix, which is on its diagonal."""
        return max(map(float, self._largest))

    def solve(self, b: Array) -> Array:
        """The solution for right-hand sides (n, k)."""
        x = get_xp(b).array(b, order="C")
        before: Array = None
        for i, at in enumerate(self._places):
            if i:
                x[at] -= self._above[i - 1].T @ before
            before = x[at]
            substitute(self._diagonal[i], before)
        for i, at in reversed(list(enumerate(self._places))):
            if i + 1 < len(self._places):
                x[at] -= self._above[i] @ x[self._places[i + 1]]
            substitute(self._diagonal[i], x[at], trans=True)
        return x

"""Householder QR of [H; √λ I]: the least-squares route, which never squares the condition number.

The Tikhonov image minimises ‖[H; √λ I] f − [g; 0]‖, and with the QR
factorisation of that tall matrix, R f = Qᵀ [g; 0]. HHᵀ is never formed, so
the condition number that matters is √(σ² + λ)'s and not its square (Björck,
*Numerical Methods for Least Squares Problems*, SIAM 1996, section 2.7).

The formula "hht" is no least-squares problem; it is refused.

An operation of `work` is one floating-point operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend import Array
from ..errors import SingularMatrixError
from .base import Info, Problem, Work


def refuses(problem: Problem) -> str | None:
    """None, or why QR does not serve this problem."""
    if problem.formula == "hht":
        return 'QR solves the least-squares problem, and formula "hht" is none; use formula="tikhonov"'
    if problem.inverse:
        return "QR solves without forming an inverse; use cholesky or gauss-jordan for one"
    return None


def work(problem: Problem) -> Work:
    """Householder QR of a (MN + PQ) x PQ matrix whose lower block is diagonal; see the module."""
    rows, cols = problem.blur.shape
    band = min(cols, 2 * problem.blur.psf.shape[0] * problem.blur.scene_shape[1])
    return Work(2.0 * cols * band * (rows / cols + 1) * band, 4.0 * cols * band, cols * band * 8.0)


def prepare(problem: Problem) -> Any:
    """Factor once; each image then costs a product with Hᵀ and two triangular solves."""
    from ..linalg.lstsq import DampedLeastSquares

    blur = problem.blur
    try:
        factor = DampedLeastSquares(blur.to_sparse(), problem.lam, dtype=problem.dtype, xp=problem.xp)
    except SingularMatrixError as error:
        raise SingularMatrixError(
            f"[H; √λ I] with λ = {problem.lam:g} has dependent columns to {problem.dtype} rounding ({error}); "
            "this blur loses some patterns altogether, so use a larger λ",
            error.index,
        ) from error
    return _Factor(problem, factor)


class _Factor:
    def __init__(self, problem: Problem, factor: Any) -> None:
        self._shape = problem.blur.scene_shape
        self._factor = factor

    def solve(self, g: Array) -> tuple[Array, Info]:
        f = self._factor.solve(g.reshape(len(g), -1).T)
        return np.ascontiguousarray(f.T).reshape(-1, *self._shape), Info()

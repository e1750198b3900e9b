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

from ..device import Array
from ..errors import SingularMatrixError
from ..problem import Direct, Factor, Problem, Work


def refuses(problem: Problem) -> str | None:
    """None, or why QR does not serve this problem."""
    if problem.formula == "hht":
        return 'QR solves the least-squares problem, and formula "hht" is none; use formula="tikhonov"'
    if problem.inverse:
        return "QR solves without forming an inverse; use cholesky or gauss-jordan for one"
    return None


def work(problem: Problem) -> Work:
    """Rotating the rows of H into a triangle of half-bandwidth p takes about 8 P Q p² operations."""
    blur = problem.blur
    unknowns = blur.shape[1]
    if blur.boundary.wraps or problem.device.gpu is not None:
        band = unknowns  # the first rows of H reach the last columns
    else:
        band = min(unknowns, (blur.psf.shape[0] - 1) * blur.scene_shape[1] + blur.psf.shape[1])
    return Work(
        2.0 * unknowns * band * band, 8.0 * unknowns * band, 3 * unknowns * band * problem.dtype.itemsize
    )


def prepare(problem: Problem) -> Factor:
    """Factor once; each image then costs products with H and triangular solves."""
    from ..linalg import damped_qr

    blur = problem.blur
    h = blur.to_sparse().astype(problem.dtype)
    if problem.device.gpu is not None:
        import cupyx.scipy.sparse

        h = cupyx.scipy.sparse.csr_matrix(h)
    try:
        factor = damped_qr(h, problem.lam)
    except SingularMatrixError as error:
        raise SingularMatrixError(
            f"[H; √λ I] with λ = {problem.lam:g} has dependent columns to {problem.dtype} rounding ({error}); "
            "this blur loses some patterns altogether, so use a larger λ",
            error.index,
        ) from error
    return _Triangle(problem, factor)


class _Triangle(Direct):
    def __init__(self, problem: Problem, factor: Any) -> None:
        self._shape = problem.blur.scene_shape
        self._factor = factor

    def scenes(self, g: Array) -> Array:
        f = self._factor.solve(g.reshape(len(g), -1).T)
        return f.T.reshape(-1, *self._shape)

"""Method ``qr``: Householder QR of [H; √λ I], which never squares the condition number.

The Tikhonov image minimises ‖[H; √λ I] f − [g; 0]‖. With the QR factorisation
of that tall matrix, R f = Qᵀ [g; 0]. HHᵀ is never formed, so accuracy depends
on the condition number of [H; √λ I], not on its square (Björck,
*Numerical Methods for Least Squares Problems*, SIAM 1996, section 2.7).

The formula "hht" is not a least-squares problem; it is refused.

Q is not stored. Solves use RᵀR, and one step of refinement restores the
accuracy as long as eps cond(R)² is not far above one. Beyond that, the problem
counts as singular. A wide H has dependent columns, which only √λ separates, so
cond(R) is ‖H‖/√λ however well-conditioned HHᵀ + λI is. If that is too much for
float32, the factor is computed in float64.
"""

from __future__ import annotations

import math

from ..device import Array
from ..errors import SingularMatrixError
from ..linalg import damped_qr
from ..linalg.damped import DampedQR
from ..problem import Direct, Factor, Problem
from .refine import singular


def refuses(problem: Problem) -> str | None:
    """Return None if QR serves this problem, else the reason in words."""
    if problem.formula == "hht":
        return 'QR solves the least-squares problem, and formula "hht" is not one; use formula="tikhonov"'
    return "QR solves without forming an inverse; use cholesky or gauss-jordan for one" if problem.inverse else None


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes of the triangle, which has half the bandwidth of H, and of the matrix it is computed from."""
    blur = problem.blur
    reach = sum((m - 1) * math.prod(blur.scene_shape[axis + 1 :]) for axis, m in enumerate(blur.psf.shape))
    # With a boundary that wraps, the first rows of H reach the last columns.
    whole = blur.boundary.wraps or problem.device.gpu is not None or reach >= blur.shape[1]
    triangle = float(blur.shape[1] * (blur.shape[1] if whole else reach + 1) * problem.dtype.itemsize)
    return triangle, 2 * triangle, 0.0


def prepare(problem: Problem) -> Factor:
    """Compute the triangle R; a solve then costs products with H and triangular solves.

    Raises
    ------
    SingularMatrixError
        If [H; √λ I] is singular to rounding.
    """
    h = problem.blur.to_sparse().astype(problem.dtype)
    if problem.device.gpu is not None:
        import cupyx.scipy.sparse

        h = cupyx.scipy.sparse.csr_matrix(h)
    try:
        factor = damped_qr(h, problem.lam)
    except SingularMatrixError as error:
        raise singular(problem, error, "[H; √λ I]") from error
    return _Triangle(problem, factor)


class _Triangle(Direct):
    def __init__(self, problem: Problem, factor: DampedQR) -> None:
        self._shape = problem.blur.scene_shape
        self._factor = factor

    def scenes(self, g: Array) -> Array:
        return self._factor.solve(g.reshape(len(g), -1).T).T.reshape(-1, *self._shape)

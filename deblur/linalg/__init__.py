"""Dense linear algebra: NumPy arrays in, NumPy out; CuPy in, CuPy out."""

# isort: off
# Inverses, symmetric and triangular matrices, products, iteration.
from .cholesky import cholesky, cholesky_inverse, cholesky_solve
from .gauss_jordan import gauss_jordan_inverse, gauss_jordan_solve
from .gauss_seidel import GaussSeidelInfo, gauss_seidel
from .matmul import gram, matmul
from .triangular import gets, solve_triangular

# Orthogonal factorisations and least squares.
from .damped import DampedQR, damped_qr
from .qr import qr
from .qr_model import QRModel
from .qr_plan import UpdatePlan, plan_update
from .qr_insert_delete import qr_delete, qr_insert
from .qr_gpu import choose_qr
# isort: on

__all__ = [
    "DampedQR",
    "GaussSeidelInfo",
    "QRModel",
    "UpdatePlan",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "choose_qr",
    "damped_qr",
    "gauss_jordan_inverse",
    "gauss_jordan_solve",
    "gauss_seidel",
    "gets",
    "gram",
    "matmul",
    "plan_update",
    "qr",
    "qr_delete",
    "qr_insert",
    "solve_triangular",
]

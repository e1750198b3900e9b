"""Dense linear algebra: NumPy arrays in, NumPy out; CuPy in, CuPy out."""

# isort: off
# Inverses, symmetric and triangular matrices, products, iteration.
from .cholesky import cholesky as cholesky, cholesky_inverse as cholesky_inverse, cholesky_solve as cholesky_solve
from .gauss_jordan import gauss_jordan_inverse as gauss_jordan_inverse, gauss_jordan_solve as gauss_jordan_solve
from .gauss_seidel import GaussSeidelInfo as GaussSeidelInfo, gauss_seidel as gauss_seidel
from .matmul import gram as gram, matmul as matmul
from .triangular import gets as gets, solve_triangular as solve_triangular

# Orthogonal factorisations and least squares.
from .damped import DampedQR as DampedQR, damped_qr as damped_qr
from .qr import qr as qr
from .qr_model import QRModel as QRModel
from .qr_plan import UpdatePlan as UpdatePlan, plan_update as plan_update
from .qr_insert_delete import qr_delete as qr_delete, qr_insert as qr_insert
from .qr_gpu import choose_qr as choose_qr
# isort: on

__all__ = sorted(name for name, value in vars().items() if callable(value))

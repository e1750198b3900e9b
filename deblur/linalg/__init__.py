from .householder import apply_householder, compact_wy, householder, householder_matrix
from .lstsq import DampedQR, LstsqResult, damped_lstsq, damped_qr, lstsq
from .qr import qr, qr_blocked

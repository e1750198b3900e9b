"""Householder QR of a matrix or of a stack of matrices.

On the CPU, LAPACK does the work (`geqrf`, `orgqr` through SciPy; stacks
through NumPy's compiled loop). The CUDA kernels factor panels of columns and
combine each panel's reflections in compact WY form I − VTVᵀ. They update the rest of
the matrix by products, and form Q by applying the blocks backwards to the identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from ..device import Array, get_xp, is_cupy, unwrapped
from ..errors import check_choice
from . import qr_gpu
from .checks import as_float
from .qr_gpu import MODES


def qr(a: Array, mode: str = "reduced", *, check_finite: bool = True) -> Any:
    """Return the factorisation A = QR of a matrix, or of every matrix of a stack.

    Parameters
    ----------
    a : (..., M, N) array_like
        Tall, wide, square or empty, in any memory layout; not changed. float32 is
        computed in float32, all else in float64.
    mode : {"reduced", "complete", "r", "raw"}
        Result to return, with K = min(M, N), as in `numpy.linalg.qr`:

        - "reduced": Q (..., M, K), R (..., K, N);
        - "complete": Q (..., M, M), R (..., M, N);
        - "r": R (..., K, N) alone;
        - "raw": h (..., N, M) and tau (..., K), the reflections: the
          *transpose* of h holds R on and above its diagonal, and the Householder vectors
          v below it (v's leading 1 is not stored).
    check_finite : bool
        Whether to look for NaN and infinity first. Otherwise they spread
        through the result.

    Returns
    -------
    Q, R or R or (h, tau)
        As `mode` requests; in the array library of `a`.

    Raises
    ------
    ValueError
        If `a` has fewer than two dimensions or non-finite entries, or for an unknown `mode`.
    TypeError
        If `a` is complex, sparse, masked or not numeric.

    Notes
    -----
    ‖QᵀQ − I‖ and ‖QR − A‖/‖A‖ are of the order of eps·√N for any matrix, even
    a rank-deficient one. The diagonal of R shows a deficiency only roughly;
    `scipy.linalg.qr` with ``pivoting=True`` shows it.

    On the CPU, NumPy computes a stack of float32 matrices in float64.
    On the GPU, `choose_qr` says which kernels serve a shape. Their signs are
    LAPACK's, except for very tall matrices, which are factored in blocks of
    rows. If the part of a column below the diagonal is smaller than 1e-15 of the column's
    largest entry (float32; 1e-145 in float64), the kernels take it for zero, so that no
    square underflows.
    """
    a = unwrapped(a, "a")
    check_choice(mode, MODES, "mode")
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"a must be a matrix or a stack of them, not of shape {a.shape}")
    factors = factor(as_float(a, "a", finite=check_finite), mode)
    return factors if mode == "r" else tuple(factors)


def factor(a: Array, mode: str = "reduced") -> Any:
    """Return `qr` of a float32 or float64 array without any check, with the signs of the reflections."""
    if is_cupy(a):
        if a.size:
            return qr_gpu.factor(a, mode)
        xp, empty = get_xp(a), factor(np.zeros(a.shape, a.dtype), mode)
        return xp.asarray(empty) if mode == "r" else tuple(map(xp.asarray, empty))
    if a.ndim > 2 or a.size == 0:
        return np.linalg.qr(a, mode=mode)  # type: ignore[call-overload]
    if mode == "raw":
        (h, tau), _ = scipy.linalg.qr(a, mode="raw", check_finite=False)
        return h.T, tau
    if mode == "r":
        (r,) = scipy.linalg.qr(a, mode="r", check_finite=False)
        return r[: min(a.shape)]
    return scipy.linalg.qr(a, mode="economic" if mode == "reduced" else "full", check_finite=False)

"""Method ``banded``: banded Cholesky of HHᵀ + λI, exact for any λ, for small images or PSFs.

With the pixels numbered along the shorter side of the image, HHᵀ + λI has
its nonzeros within a band of about (m - 1) N + (n - 1) diagonals on either
side, for a PSF of m x n and a shorter side of N pixels. LAPACK's blocked
``pbtrf`` factors it without fill beyond the band:

    tikhonov   f = Hᵀ (HHᵀ + λI)⁻¹ g          hht   f = (HHᵀ + λI)⁻¹ Hᵀ g

It serves where iterations stall because λ is too small, and is the exact
check at sizes where a dense matrix does not fit. A periodic boundary couples
opposite edges, which fills the band; `fft` solves that one anyway.

An operation of `work` is one multiply-add of the factorisation, n b², or of
one solve, 4 n b, for n pixels and a band of b.

References
----------
E. Anderson et al., *LAPACK Users' Guide*, SIAM 1999, on ``pbtrf`` and ``pbtrs``.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse

from ..device import Array, require_memory
from ..errors import SingularMatrixError
from ..operators.blur import Blur
from ..problem import Direct, Factor, Problem, Work

_INSTEAD = 'use method="pcg", which needs no matrix, or a larger λ with it'


def refuses(problem: Problem) -> str | None:
    """None if the method serves this problem, else the reason in words."""
    if problem.device.gpu is not None:
        return (
            "CuPy has no banded Cholesky; move the image to the CPU with cupy.asnumpy, or use another method"
        )
    if problem.blur.boundary.wraps:
        return "boundary 'periodic' couples opposite edges, so HHᵀ has no narrow band; method 'fft' solves it"
    return None


def work(problem: Problem) -> Work:
    """One banded factorisation, two triangular solves and a product with Hᵀ a solve."""
    n, b, size = problem.blur.shape[0], _bandwidth(problem.blur), problem.dtype.itemsize
    m1, m2 = problem.blur.psf.shape
    entries = n * (2 * m1 - 1) * (2 * m2 - 1)
    # H Hᵀ is formed as a sparse float64 matrix, with its indices and a copy in coordinate form.
    return Work(n * b * b, 4 * n * b, n * (b + 1) * size + 40 * entries + 4 * problem.frames * n * size)


def prepare(problem: Problem) -> Factor:
    """The banded Cholesky factor."""
    return _Banded(problem)


def _bandwidth(blur: Blur) -> int:
    """Diagonals on either side of the main one, with the pixels numbered along the shorter side."""
    reach = [
        min(size, max(m - 1, 2 * max(o, m - 1 - o)) + 1) - 1
        for size, m, o in zip(blur.image_shape, blur.psf.shape, blur.origin, strict=True)
    ]
    rows, cols = blur.image_shape
    return reach[0] * cols + reach[1] if cols <= rows else reach[1] * rows + reach[0]


class _Banded(Direct):
    """The kept factor."""

    def __init__(self, problem: Problem) -> None:
        blur = problem.blur
        needed = int(work(problem).bytes)
        require_memory(needed, np, f"A banded factor of {blur.shape[0]} x {_bandwidth(blur) + 1}", _INSTEAD)
        self._blur, self._hht = blur, problem.formula == "hht"
        self._turned = blur.image_shape[1] > blur.image_shape[0]
        if self._turned:
            blur = Blur(blur.psf.T, blur.image_shape[::-1], blur.boundary, origin=blur.origin[::-1])
        h = blur.to_sparse()
        a = scipy.sparse.tril(h @ h.T, format="coo")
        below = a.row - a.col
        band = np.zeros((int(below.max()) + 1, blur.shape[0]), problem.dtype, order="F")  # as LAPACK has it
        band[below, a.col] = a.data
        band[0] += problem.dtype.type(problem.lam)
        del a, below
        norm = float(abs(band).max())  # of a symmetric definite matrix the largest entry is on the diagonal
        try:
            self._factor = scipy.linalg.cholesky_banded(
                band, lower=True, overwrite_ab=True, check_finite=False
            )
        except np.linalg.LinAlgError as error:
            raise SingularMatrixError(
                f"HHᵀ + λI is singular to {problem.dtype} at λ = {problem.lam:g} ({error}); use a larger λ"
                + (" or float64" if problem.dtype == np.float32 else "")
            ) from error

        if problem.lam < blur.shape[0] * float(np.finfo(problem.dtype).eps) * blur.gain**2:
            self._refuse_singular(problem, norm)

    def _refuse_singular(self, problem: Problem, norm: float) -> None:
        """Raise SingularMatrixError if what the factor makes of white noise is too large for its dtype to mean."""
        z = np.random.default_rng(0).standard_normal(problem.blur.shape[0]).astype(problem.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            x = scipy.linalg.cho_solve_banded((self._factor, True), z, check_finite=False)
            rcond = float(abs(z).max()) / (norm * float(abs(x).max()))
        if not rcond > float(np.finfo(problem.dtype).eps):
            raise SingularMatrixError(
                f"HHᵀ + λI is singular to {problem.dtype} at λ = {problem.lam:g}: its reciprocal condition number is "
                f"at most {rcond:.1e}; use a larger λ"
                + (" or float64" if problem.dtype == np.float32 else "")
            )

    def scenes(self, g: Array) -> Array:
        b = self._blur.adjoint(g) if self._hht else g
        turned = b.swapaxes(1, 2) if self._turned else b
        columns = turned.reshape(len(b), -1).T
        z = scipy.linalg.cho_solve_banded((self._factor, True), columns, check_finite=False)
        z = z.T.reshape(turned.shape)
        if self._turned:
            z = z.swapaxes(1, 2)
        return z if self._hht else self._blur.adjoint(z)

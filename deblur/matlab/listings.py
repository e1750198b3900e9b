"""The functions of the published listings: the system matrix of a filter, and its inversion."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..device import Array, asnumpy
from ..operators.matrix import filter2matrix as convolution_matrix
from ..pipeline import reconstruct
from .arguments import as_array, as_matrix, as_real, as_scalar, as_size, as_whole


def filter2matrix(h: Array, rowsf: int, colsf: int, rowsg: int, colsg: int) -> np.ndarray:
    """Return the system matrix of a filter as in the published listing, which is a correlation.

    Row i of H holds the weights of all pixels of f in pixel i of g; pixels are
    ordered row by row. With c = ceil(size(h)/2), one-based,

        g[k, l] = sum_{i,j} h[i, j] f[k + i - c1, l + j - c2],   zero outside f.

    `deblur.filter2matrix` is the matrix of the convolution. This matrix is the
    same with `h` rotated by 180 degrees.

    Parameters
    ----------
    h : (m, n) array
        The filter.
    rowsf, colsf : int
        Size of the image f.
    rowsg, colsg : int
        Size of the image g, whose first pixel coincides with the first pixel of f.

    Returns
    -------
    H : (rowsg * colsg, rowsf * colsf) float64 ndarray, always on the host

    Raises
    ------
    ValueError
        For a filter that is empty, not finite or zero everywhere, or a size that is not positive.
    InsufficientMemoryError
        If the matrix would not fit in memory; it is raised before the allocation.

    Notes
    -----
    The listing reserves rowsf * colsg columns instead of rowsf * colsf. If f and g
    differ in width, its H therefore has additional columns of zeros (colsg > colsf)
    or lacks some columns of zeros; the entries are the same. The size here is the
    one that can be multiplied by im2vector(f).

    References
    ----------
    Table 6.1 of the thesis behind this project (about 2012: image restoration by
    inverting the system matrix with CUDA, called from MATLAB).
    """
    psf, origin = _as_psf(h)
    sizes = {"rowsf": rowsf, "colsf": colsf, "rowsg": rowsg, "colsg": colsg}
    return convolution_matrix(psf, *(as_whole(n, name) for name, n in sizes.items()), origin=origin)


def _as_psf(h: Any) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the filter of the listing as the PSF of a convolution, and the origin of the PSF.

    A rotation by 180 degrees moves the element ceil(size/2) (one-based) to floor(size/2) (zero-based).
    """
    h = as_matrix(as_real(h, "h"), "h")
    return asnumpy(h)[::-1, ::-1], (h.shape[0] // 2, h.shape[1] // 2)


def im2vector(image: Array) -> Array:
    """Return the pixels of an (M, N) image, row by row, as a column (M * N, 1) of the same class.

    Notes
    -----
    This is ``reshape(image', M*N, 1)`` of the published listing, table 6.2. The result is a column, as in MATLAB;
    ``.ravel()`` makes it 1-D.
    """
    return as_matrix(image, "image").reshape(-1, 1)


def vector2im(vector: Array, shape: tuple[int, int] | None = None) -> Array:
    """Return the image of a vector; this is the inverse of `im2vector`.

    Parameters
    ----------
    vector : (M * N, 1), (1, M * N) or (M * N,) array
        The pixels, row by row.
    shape : (int, int), optional
        Rows and columns of the image, in a row or a column. Without it the image is square, as it always is in the
        published listing (table 6.2).

    Returns
    -------
    image : (M, N) array of the same class

    Raises
    ------
    ValueError
        If the length is not rows * columns, or, without `shape`, is not a square number.
    """
    vector = as_array(vector, "vector")
    n = vector.size
    if max(vector.shape) != n:
        raise ValueError(f"vector must be a row or a column, not of shape {vector.shape}")
    if shape is None:
        side = math.isqrt(n)
        if side * side != n:
            raise ValueError(f"{n} pixels do not make a square image; give shape=(rows, columns)")
        shape = (side, side)
    size = as_size(shape, "shape")
    if len(size) != 2 or math.prod(size) != n:
        raise ValueError(f"{n} pixels do not fill an image of shape {size}; give (rows, columns)")
    return vector.reshape(size)


def reconstruction(g: Array, h: Array, lambda_: float) -> Array:
    """Return the image f = (H Hᵀ + λ I)⁻¹ Hᵀ g, the literal formula of the published listing.

    H is `filter2matrix` of `h`, the correlation. The result is the regularised
    least-squares image only if H Hᵀ = Hᵀ H, as for a filter that is point-symmetric
    about its centre. `deblur.reconstruct` returns that image for any filter.

    Parameters
    ----------
    g : (M, N) array
        The blurred image, of any class. Its values are not scaled.
    h : (m, n) array
        The filter that blurred it, as a correlation.
    lambda_ : float
        The regularisation parameter λ >= 0 of the formula; it is not multiplied by ‖h‖₁².

    Returns
    -------
    f : (M, N) float64 array

    Raises
    ------
    ValueError
        For NaN or infinity, wrong dimensions, a filter larger than the image, or a negative λ.
    SingularMatrixError
        If H Hᵀ + λ I is singular to working precision.
    InsufficientMemoryError
        If the (M * N, M * N) matrix would not fit in memory.

    Notes
    -----
    The listing computes in single precision and returns only square images. This
    function computes in float64, and g may have any shape. It solves the system by
    Cholesky factorisation instead of multiplying by an inverse.

    References
    ----------
    Table 6.2 of the thesis named under `filter2matrix`.
    """
    g = as_matrix(as_real(g, "g"), "g")
    lam = as_scalar(lambda_, "lambda_", 0)
    psf, origin = _as_psf(h)
    return reconstruct(g, psf, lam, method="cholesky", formula="hht", origin=origin, boundary="zero")

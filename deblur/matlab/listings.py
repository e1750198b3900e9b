"""The published listings: the system matrix of a filter, and its inversion."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..device import Array, asnumpy
from ..operators.matrix import filter2matrix as convolution_matrix
from ..pipeline import reconstruct
from .arguments import as_array, as_matrix, as_real, as_scalar, as_size, as_whole


def filter2matrix(h: Array, rowsf: int, colsf: int, rowsg: int, colsg: int) -> np.ndarray:
    """The system matrix of a filter, as the published listing builds it: a correlation.

    Row i of H holds what every pixel of f contributes to pixel i of g; pixels
    are taken row by row. With c = ceil(size(h)/2), one-based,

        g[k, l] = sum_{i,j} h[i, j] f[k + i - c1, l + j - c2],   zero outside f.

    `deblur.filter2matrix` is the matrix of the convolution; this one is the
    same with `h` turned by 180 degrees.

    Parameters
    ----------
    h : (m, n) array
        The filter.
    rowsf, colsf : int
        Size of the image f.
    rowsg, colsg : int
        Size of the image g. Its first pixel lies on the first pixel of f.

    Returns
    -------
    H : (rowsg * colsg, rowsf * colsf) float64 ndarray, always on the host

    Raises
    ------
    ValueError
        For a filter that is empty, not finite or zero everywhere, or a size that is not positive.
    InsufficientMemoryError
        If the matrix would not fit, before it is allocated.

    Notes
    -----
    The listing reserves rowsf * colsg columns instead of rowsf * colsf. Where
    f and g differ in width, its H therefore has columns of zeros too many
    (colsg > colsf) or lacks some that are zero; the entries are the same. The
    size here is the one that multiplies im2vector(f).

    References
    ----------
    Table 6.1 of the thesis that this project grew from (about 2012: image
    restoration by inverting the system matrix with CUDA, called from MATLAB).
    """
    psf, origin = _as_psf(h)
    sizes = {"rowsf": rowsf, "colsf": colsf, "rowsg": rowsg, "colsg": colsg}
    return convolution_matrix(psf, *(as_whole(n, name) for name, n in sizes.items()), origin=origin)


def _as_psf(h: Any) -> tuple[np.ndarray, tuple[int, int]]:
    """The listing's filter as the PSF of a convolution, and the PSF's origin.

    Turned by 180 degrees, the element ceil(size/2) (one-based) comes to lie at floor(size/2) (zero-based).
    """
    h = as_matrix(as_real(h, "h"), "h")
    return asnumpy(h)[::-1, ::-1], (h.shape[0] // 2, h.shape[1] // 2)


def im2vector(image: Array) -> Array:
    """The pixels of an (M, N) image, row by row, as a column: (M * N, 1), of the same class.

    Notes
    -----
    Published listing, table 6.2: ``reshape(image', M*N, 1)``. A column stays a
    column, as in MATLAB; ``.ravel()`` makes a 1-D array of it.
    """
    return as_matrix(image, "image").reshape(-1, 1)


def vector2im(vector: Array, shape: tuple[int, int] | None = None) -> Array:
    """The image that `im2vector` made a vector of.

    Parameters
    ----------
    vector : (M * N, 1), (1, M * N) or (M * N,) array
    shape : (int, int), optional
        Rows and columns of the image, in a row or a column. Without it the image is square, which
        is all that the published listing (table 6.2) can do.

    Returns
    -------
    image : (M, N) array of the same class

    Raises
    ------
    ValueError
        If the length is not rows * columns, or without `shape` not a square number.
    """
    vector = as_array(vector, "vector")
    n = vector.size
    if max(vector.shape) != n:
        raise ValueError(f"vector must be a row or a column, not of shape {vector.shape}")
    if shape is None:
        side = math.isqrt(n)
        if side * side != n:
            raise ValueError(f"{n} pixels make no square image; give shape=(rows, columns)")
        shape = (side, side)
    size = as_size(shape, "shape")
    if len(size) != 2 or math.prod(size) != n:
        raise ValueError(f"{n} pixels do not fill an image of shape {size}; give (rows, columns)")
    return vector.reshape(size)


def reconstruction(g: Array, h: Array, lambda_: float) -> Array:
    """The image f = (H Hᵀ + λ I)⁻¹ Hᵀ g, by the published listing's literal formula.

    H is `filter2matrix` of `h`, the correlation. This is the regularised
    least-squares image only where H Hᵀ = Hᵀ H, as for a filter that is
    point-symmetric about its centre; `deblur.reconstruct` gives it for any.

    Parameters
    ----------
    g : (M, N) array
        The degraded image. Its values are used as they are, unscaled, of whatever class.
    h : (m, n) array
        The filter that degraded it, for a correlation.
    lambda_ : float
        λ >= 0.

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
        If the (M * N, M * N) matrix would not fit.

    Notes
    -----
    The listing computes in single precision and returns square images only;
    this computes in float64, and g may have any shape. The system is solved
    by Cholesky factorisation instead of multiplied by an inverse.

    References
    ----------
    Table 6.2 of the thesis named under `filter2matrix`.
    """
    g = as_matrix(as_real(g, "g"), "g")
    lam = as_scalar(lambda_, "lambda_", 0)
    psf, origin = _as_psf(h)
    return reconstruct(g, psf, lam, method="cholesky", formula="hht", origin=origin, boundary="zero")

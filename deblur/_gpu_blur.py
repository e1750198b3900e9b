"""H and HHᵀ + λI on the GPU, written by kernels straight from the PSF: only the PSF crosses the bus."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from . import kernels
from .backend import Array
from .blur import Blur


def dense_matrix(blur: Blur, dtype: Any = np.float64) -> Array:
    """The system matrix H as a dense CuPy array.

    Parameters
    ----------
    blur : Blur
        Any boundary.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    (pixels of the image, pixels of the scene) cupy.ndarray

    Notes
    -----
    Where a reflected scene pixel is met three times or more, the order of the sum, and so its
    last bit, may differ from call to call.
    """
    import cupy

    dtype = np.dtype(dtype)
    h = cupy.empty(blur.shape, dtype)
    tables: list[Array] = []
    for axis in (0, 1):
        pixel, weight = _two_a_place(blur._extension(axis))
        tables += [cupy.asarray(pixel), cupy.asarray(weight.astype(dtype))]
    kernels.launch(
        "blur", "dense_rows", blur.shape[0], 256, h, blur.shape[1], blur.image_shape[1], *blur.scene_shape,
        cupy.asarray(blur.psf.astype(dtype)), *blur.psf.shape, *tables, dtype=dtype,
    )  # fmt: skip
    return h


def normal_matrix(blur: Blur, lam: float, dtype: Any = np.float64) -> Array:
    """HHᵀ + λI as a dense CuPy array, formed by its structure.

    Parameters
    ----------
    blur : Blur
        Any boundary. For ``zero`` and ``unknown`` each entry is a sum over the overlap of two
        PSFs; for the others H is multiplied with its transpose as a sparse matrix.
    lam : float
        Added to the diagonal.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    (M * N, M * N) cupy.ndarray, symmetric
    """
    import cupy

    dtype = np.dtype(dtype)
    size = blur.shape[0]
    if blur.boundary in ("zero", "unknown"):
        a = cupy.empty((size, size), dtype)
        kernels.launch(
            "blur", "normal_rows", size, 256, a, size, *blur.image_shape, cupy.asarray(blur.psf),
            *blur.psf.shape, *blur.origin, blur.boundary == "unknown", lam, dtype=dtype,
        )  # fmt: skip
        return a
    from cupyx.scipy.sparse import csr_matrix

    h = csr_matrix(scipy.sparse.csr_matrix(blur.to_sparse()))
    a = (h @ h.T.tocsr()).toarray().astype(dtype)
    a.reshape(-1)[:: size + 1] += dtype.type(lam)
    return a


def _two_a_place(e: scipy.sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """The entries of a matrix that has at most two a row: their columns and values, zero where there is none."""
    pixel = np.zeros((e.shape[0], 2), np.int32)
    weight = np.zeros((e.shape[0], 2))
    row = np.repeat(np.arange(e.shape[0]), np.diff(e.indptr))
    slot = np.arange(len(row)) - e.indptr[row]
    pixel[row, slot], weight[row, slot] = e.indices, e.data
    return pixel, weight

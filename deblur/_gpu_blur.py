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

    h = cupy.empty(blur.shape, np.dtype(dtype))
    _dense_rows(blur, h, 0, _tables(blur))
    return h


def _tables(blur: Blur) -> list[Array]:
    """The boundary as `dense_rows` of blur.cu takes it, in float64: pixels and weights by axis."""
    import cupy

    return [cupy.asarray(table) for axis in (0, 1) for table in _two_a_place(blur._extension(axis))]


def _dense_rows(blur: Blur, h: Array, first: int, tables: list[Array]) -> None:
    """Rows `first` on of H, as many as `h` has."""
    import cupy

    kernels.launch(
        "blur", "dense_rows", len(h), 256, h, blur.shape[1], first, blur.image_shape[1], *blur.scene_shape,
        cupy.asarray(blur.psf.astype(h.dtype)), *blur.psf.shape,
        *(table if table.dtype.kind == "i" else table.astype(h.dtype) for table in tables), dtype=h.dtype,
    )  # fmt: skip


def normal_matrix(blur: Blur, lam: float, dtype: Any = np.float64) -> Array:
    """HHᵀ + λI as a dense CuPy array, formed by its structure.

    Parameters
    ----------
    blur : Blur
        Any boundary. For ``zero`` and ``unknown`` each entry is a sum over the overlap of two
        PSFs; for the others it is a row of H, blurred.
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
    a = cupy.empty((size, size), dtype)
    if blur.boundary in ("zero", "unknown"):
        kernels.launch(
            "blur", "normal_rows", size, 256, a, size, *blur.image_shape, cupy.asarray(blur.psf),
            *blur.psf.shape, *blur.origin, blur.boundary == "unknown", lam, dtype=dtype,
        )  # fmt: skip
        return a
    tables, psf = _tables(blur), cupy.asarray(blur.psf)
    some = cupy.empty((min(size, 512), size), dtype)  # rows of H: at most a small part of what HHᵀ takes
    for first in range(0, size, len(some)):
        h = some[: size - first]
        _dense_rows(blur, h, first, tables)
        kernels.launch(
            "blur", "normal_rows_continued", len(h), 256, a, size, h, size, first, *blur.image_shape, psf,
            *psf.shape, *tables, lam, dtype=dtype,
        )  # fmt: skip
    return a


def _two_a_place(e: scipy.sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """The entries of a matrix that has at most two a row: their columns and values, zero where there is none."""
    pixel = np.zeros((e.shape[0], 2), np.int32)
    weight = np.zeros((e.shape[0], 2))
    row = np.repeat(np.arange(e.shape[0]), np.diff(e.indptr))
    slot = np.arange(len(row)) - e.indptr[row]
    pixel[row, slot], weight[row, slot] = e.indices, e.data
    return pixel, weight

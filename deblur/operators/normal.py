"""The matrix HHᵀ + λI of a blur, dense or by rows.

Functions that use more structure than the sparse H serve images of two axes. Dense matrices of volumes are too large
to matter.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import DTypeLike

from .. import kernels
from ..device import CPU, Array, Device, cupy, require_memory, to_device
from .blur import Blur

INSTEAD = 'use method="auto" or a structured method (pcg, fft, dct, kronecker), which needs no matrix'


def normal_matrix(blur: Blur, lam: float, dtype: DTypeLike = np.float64, device: Device = CPU) -> Array:
    """Return the dense matrix HHᵀ + λI, formed from the PSF without an n³ product.

    Parameters
    ----------
    blur : Blur
    lam : float
        λ, which is added to the diagonal.
    dtype : dtype
        float32 or float64.
    device : Device
        Device on which the matrix is built.

    Returns
    -------
    (pixels, pixels) array, symmetric

    Raises
    ------
    InsufficientMemoryError
        If the matrix would not fit into memory; nothing is allocated then.
    """
    dtype = np.dtype(dtype)
    n = blur.shape[0]
    require_memory(n * n * dtype.itemsize, device.xp, f"A dense HHᵀ of {n} x {n} in {dtype}", INSTEAD)
    flat = blur.psf.ndim == 2
    if device.gpu is not None and flat:
        return NormalRows(blur, lam, dtype)(0, n, 0, n)
    if flat and (blur.boundary.dark or blur.boundary.open):
        a = _almost_toeplitz(blur, dtype)
    else:
        h = blur.to_sparse()
        a = (h @ h.T).astype(dtype).toarray()
    a[np.diag_indices(n)] += lam
    return device.xp.asarray(a)


def _almost_toeplitz(blur: Blur, dtype: np.dtype) -> np.ndarray:
    """Return HHᵀ for a scene that ends at the frame (zero) or is larger than it (unknown).

    Pixels p and p + d share the scene pixels that both see, so
    (HHᵀ)[p, p + d] = sum over k of h[k] h[k + d], restricted to the k inside the scene as
    seen from p. One window for the rows and one for the columns express the restriction: two thin products.
    """
    h, (rows, cols) = blur.psf, blur.image_shape
    m, n = h.shape
    size = rows * cols
    inside = []
    for count, length, origin in zip((rows, cols), h.shape, blur.origin, strict=True):
        seen = np.arange(count)[:, None] + origin - np.arange(length)  # scene index of PSF entry k at pixel i
        inside.append(np.where(blur.boundary.open | ((seen >= 0) & (seen < count)), 1.0, 0.0))
    a = np.zeros((size, size), dtype)
    # a4[i, j, i', j'] couples pixel (i, j) with pixel (i', j').
    a4 = a.reshape(rows, cols, rows, cols)
    for d1 in range(m):
        for d2 in range(-(n - 1), n) if d1 else range(n):
            left, right = max(0, -d2), min(n, n - d2)
            w = h[: m - d1, left:right] * h[d1:, left + d2 : right + d2]
            if not w.any():
                continue
            v = inside[0][:, : m - d1] @ w @ inside[1][:, left:right].T
            i = np.arange(rows - d1)[:, None]
            j = np.arange(max(0, -d2), min(cols, cols - d2))
            a4[i, j, i + d1, j + d2] = v[i, j]
            a4[i + d1, j + d2, i, j] = v[i, j]
    return a


class NormalRows:
    """Rows of HHᵀ + λI on the current GPU, computed directly from the PSF.

    If the scene is dark beyond its frame, or larger than the frame, each entry is a sum over the overlap of two PSFs.
    Otherwise each row is a blurred row of H.
    """

    def __init__(self, blur: Blur, lam: float, dtype: np.dtype) -> None:
        self._blur, self._lam, self._dtype = blur, lam, dtype
        self._psf = to_device(np.ascontiguousarray(blur.psf))
        ends = blur.boundary.dark or blur.boundary.open
        # The boundary in the form that `dense_rows` of blur.cu takes, in float64: pixels and weights by axis.
        self._tables = [] if ends else [to_device(t) for i in (0, 1) for t in two_a_place(blur.extension(i))]

    def __call__(self, first: int, last: int, left: int, right: int) -> Array:
        """Return rows `first` to `last` of the columns `left` to `right`."""
        blur, dtype, width = self._blur, self._dtype, right - left
        a = cupy.empty((last - first, width), dtype)
        if not self._tables:
            kernels.launch(
                "blur", "normal_rows", len(a), 256, a, width, first, left, width, *blur.image_shape, self._psf,
                *blur.psf.shape, *blur.origin, blur.boundary.open, self._lam, dtype=dtype,
            )  # fmt: skip
            return a
        size = blur.shape[1]
        # Rows of H, in a small part of the memory of HHᵀ.
        some = cupy.empty((min(len(a), 512), size), dtype)
        for start in range(0, len(a), len(some)):
            rows = a[start : start + len(some)]
            h = some[: len(rows)]
            kernels.launch(
                "blur", "dense_rows", len(h), 256, h, size, first + start, blur.image_shape[1], *blur.scene_shape,
                to_device(blur.psf.astype(dtype, order="C")), *blur.psf.shape,
                *(t if t.dtype.kind == "i" else t.astype(dtype) for t in self._tables), dtype=dtype,
            )  # fmt: skip
            kernels.launch(
                "blur", "normal_rows_continued", len(h), 256, rows, width, h, size, first + start, left, width,
                *blur.image_shape, self._psf, *blur.psf.shape, *self._tables, self._lam, dtype=dtype,
            )  # fmt: skip
        return a


def two_a_place(e: scipy.sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and values of the entries of a matrix with at most two a row; zeros where there is none."""
    pixel = np.zeros((e.shape[0], 2), np.int32)
    weight = np.zeros((e.shape[0], 2))
    row = np.repeat(np.arange(e.shape[0]), np.diff(e.indptr))
    slot = np.arange(len(row)) - e.indptr[row]
    pixel[row, slot], weight[row, slot] = e.indices, e.data
    return pixel, weight

"""The orthonormal DCT-II of images on the GPU, its inverse, and the DST-I: ``cuda/cosine.cu``.

Each takes one real transform of cuFFT. Along the first axis of a volume, the DCT is a product with its matrix, which
costs one pass over the volume. CuPy's transforms serve lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy

from .. import kernels
from ..device import Array, cupy
from ..pixelwise import planes_of
from .torus_gpu import plans


def dct(x: Array, by: Array | None = None, axes: int = 2) -> Array:
    """Return the cosine coefficients of images (..., M, N), or of volumes, times `by`, an array of an image's shape."""
    if axes == 3:
        c = _along_first(dct(x), _matrix(x.shape[-3], x.dtype, x.device.id))
        return c if by is None else cupy.multiply(c, by, out=c)
    images, ld, stride = planes_of(x)
    planes, *shape = images.shape
    v, spectra = _pair(planes, shape, x.dtype)
    args = (images, ld, stride, v, planes, *shape, False)
    kernels.spread("cosine", "shuffle", v[0].size // 2 + 1, *args, dtype=x.dtype)
    plans(v.shape[1:], planes, x.dtype)[0].fft(v, spectra, 0)
    factor = None if by is None else cupy.ascontiguousarray(by, x.dtype)
    args = (spectra.view(x.dtype), v, planes, *shape, factor)
    kernels.spread("cosine", "cosines", spectra[0].size, *args, dtype=x.dtype)
    return v.reshape(x.shape)


def idct(c: Array, axes: int = 2) -> Array:
    """Return the images, or volumes, with cosine coefficients (..., M, N)."""
    if axes == 3:
        c = _along_first(c, _matrix(c.shape[-3], c.dtype, c.device.id).T)
    coefficients = cupy.ascontiguousarray(c.reshape(-1, *c.shape[-2:]))
    planes, *shape = coefficients.shape
    v, spectra = _pair(planes, shape, c.dtype)
    args = (coefficients, spectra.view(c.dtype), planes, *shape, 1 / math.prod(shape))
    kernels.spread("cosine", "spectra", spectra[0].size, *args, dtype=c.dtype)
    plans(v.shape[1:], planes, c.dtype)[1].fft(spectra, v, 0)
    out = cupy.empty(v.shape, c.dtype)
    args = (*planes_of(out), v, planes, *shape, True)
    kernels.spread("cosine", "shuffle", v[0].size // 2 + 1, *args, dtype=c.dtype)
    return out.reshape(c.shape)


def dst(x: Array, by: Array | None = None) -> Array:
    """Return the sine coefficients of images (..., M, N), times `by` (M, N); without `by` it is its own inverse."""
    images, ld, stride = planes_of(x)
    planes, rows, cols = images.shape
    odd, spectra = _pair(planes, (2 * (rows + 1), 2 * (cols + 1)), x.dtype)
    args = (images, ld, stride, odd, planes, rows, cols)
    kernels.spread("cosine", "odd", odd[0].size, *args, dtype=x.dtype)
    plans(odd.shape[1:], planes, x.dtype)[0].fft(odd, spectra, 0)
    out = cupy.empty((planes, rows, cols), x.dtype)
    factor = None if by is None else cupy.ascontiguousarray(by, x.dtype)
    args = (spectra.view(x.dtype), out, planes, rows, cols, factor, -0.5 / math.sqrt((rows + 1) * (cols + 1)))
    kernels.spread("cosine", "sines", rows * cols, *args, dtype=x.dtype)
    return out.reshape(x.shape)


def _pair(planes: int, shape: Sequence[int], dtype: np.dtype) -> tuple[Array, Array]:
    """Return empty images of a shape, and empty half spectra of them."""
    half = (*shape[:-1], shape[-1] // 2 + 1)
    spectra = cupy.empty((planes, *half), np.result_type(dtype, np.complex64))
    return cupy.empty((planes, *shape), dtype), spectra


@lru_cache(maxsize=8)
def _matrix(n: int, dtype: np.dtype, device: int) -> Array:
    """Return the matrix of the orthonormal DCT-II of n numbers, on the current device, cached."""
    return cupy.asarray(scipy.fft.dct(np.eye(n), axis=0, norm="ortho").astype(dtype))


def _along_first(x: Array, matrix: Array) -> Array:
    """Multiply the first of the three axes of volumes (..., L, M, N) by a matrix."""
    return cupy.matmul(matrix, x.reshape(-1, x.shape[-3], math.prod(x.shape[-2:]))).reshape(x.shape)


def serves(x: Array, axes: int) -> bool:
    """Return whether the transforms serve images like x, with `axes` axes of space."""
    return axes > 1 and x.dtype in (np.float32, np.float64) and min(x.shape) > 0 and min(x.shape[-2:]) > 1

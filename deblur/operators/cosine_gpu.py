"""The orthonormal DCT-II of images on the GPU, its inverse, and the DST-I, each by one real transform of theirs:
``cuda/cosine.cu``. They serve images of two axes; CuPy's own serve lines and volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import kernels
from ..device import Array, cupy
from .torus_gpu import plans


def dct(x: Array, by: Array | None = None) -> Array:
    """The cosine coefficients of images (..., M, N), times an array (M, N)."""
    images, ld, stride = kernels.images(x)
    planes, *shape = images.shape
    v, spectra = _pair(planes, shape, x.dtype)
    args = (images, ld, stride, v, planes, *shape, False)
    kernels.spread("cosine", "shuffle", v[0].size // 2 + 1, *args, dtype=x.dtype)
    plans(v.shape[1:], planes, x.dtype)[0].fft(v, spectra, 0)
    args = (
        spectra.view(x.dtype),
        v,
        planes,
        *shape,
        None if by is None else cupy.ascontiguousarray(by, x.dtype),
    )
    kernels.spread("cosine", "cosines", spectra[0].size, *args, dtype=x.dtype)
    return v.reshape(x.shape)


def idct(c: Array) -> Array:
    """The images of cosine coefficients (..., M, N)."""
    coefficients = cupy.ascontiguousarray(c.reshape(-1, *c.shape[-2:]))
    planes, *shape = coefficients.shape
    v, spectra = _pair(planes, shape, c.dtype)
    args = (coefficients, spectra.view(c.dtype), planes, *shape, 1 / math.prod(shape))
    kernels.spread("cosine", "spectra", spectra[0].size, *args, dtype=c.dtype)
    plans(v.shape[1:], planes, c.dtype)[1].fft(spectra, v, 0)
    out = cupy.empty(v.shape, c.dtype)
    args = (*kernels.images(out), v, planes, *shape, True)
    kernels.spread("cosine", "shuffle", v[0].size // 2 + 1, *args, dtype=c.dtype)
    return out.reshape(c.shape)


def dst(x: Array, by: Array | None = None) -> Array:
    """The sine coefficients of images (..., M, N), times an array (M, N); it is its own inverse."""
    images, ld, stride = kernels.images(x)
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
    """Empty images of a shape, and their half spectra."""
    half = (*shape[:-1], shape[-1] // 2 + 1)
    spectra = cupy.empty((planes, *half), np.result_type(dtype, np.complex64))
    return cupy.empty((planes, *shape), dtype), spectra


def serves(x: Array, axes: int) -> bool:
    """Whether the transforms take images like these, of so many axes of space."""
    return axes == 2 and x.dtype in (np.float32, np.float64) and min(x.shape) > 0 and min(x.shape[-2:]) > 1

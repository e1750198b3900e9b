"""The orthonormal DCT-II of images on the GPU, its inverse, and the DST-I, each by one real transform of theirs:
``cuda/cosine.cu``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array
from .torus_gpu import plans

_THREADS = kernels.Constants("cosine").THREADS
_BLOCKS = 8  # of a launch, on each multiprocessor


def dct(x: Array, by: Array | None = None) -> Array:
    """The cosine coefficients of images (..., M, N), times an array (M, N)."""
    import cupy

    images = _images(x)
    shape, planes = images.shape[1:], len(images)
    there, _ = plans(shape, planes, x.dtype)
    v = cupy.empty((planes, *shape), x.dtype)
    _launch("shuffle", *_view(images), v, planes, *shape, False, size=v[0].size // 2 + 1)
    spectra = cupy.empty((planes, shape[0], shape[1] // 2 + 1), np.result_type(x.dtype, np.complex64))
    there.fft(v, spectra, 0)
    _launch("cosines", spectra.view(x.dtype), v, planes, *shape, _factor(by, x), size=spectra[0].size)
    return v.reshape(x.shape)


def idct(c: Array) -> Array:
    """The images of cosine coefficients (..., M, N)."""
    import cupy

    coefficients = cupy.ascontiguousarray(c.reshape(-1, *c.shape[-2:]))
    shape, planes = coefficients.shape[1:], len(coefficients)
    _, back = plans(shape, planes, c.dtype)
    spectra = cupy.empty((planes, shape[0], shape[1] // 2 + 1), np.result_type(c.dtype, np.complex64))
    _launch(
        "spectra", coefficients, spectra.view(c.dtype), planes, *shape, 1 / math.prod(shape), size=spectra[0].size
    )  # fmt: skip
    v, out = cupy.empty((planes, *shape), c.dtype), cupy.empty((planes, *shape), c.dtype)
    back.fft(spectra, v, 0)
    _launch("shuffle", *_view(out), v, planes, *shape, True, size=v[0].size // 2 + 1)
    return out.reshape(c.shape)


def dst(x: Array, by: Array | None = None) -> Array:
    """The sine coefficients of images (..., M, N), times an array (M, N); it is its own inverse."""
    import cupy

    images = _images(x)
    (rows, cols), planes = images.shape[1:], len(images)
    lengths = (2 * (rows + 1), 2 * (cols + 1))
    there, _ = plans(lengths, planes, x.dtype)
    odd = cupy.empty((planes, *lengths), x.dtype)
    _launch("odd", *_view(images), odd, planes, rows, cols, size=math.prod(lengths))
    spectra = cupy.empty((planes, lengths[0], cols + 2), np.result_type(x.dtype, np.complex64))
    there.fft(odd, spectra, 0)
    out = cupy.empty((planes, rows, cols), x.dtype)
    scale = -0.5 / math.sqrt((rows + 1) * (cols + 1))
    _launch("sines", spectra.view(x.dtype), out, planes, rows, cols, _factor(by, x), scale, size=rows * cols)
    return out.reshape(x.shape)


def _images(x: Array) -> Array:
    """Images (k, M, N) with adjacent pixels in a row."""
    import cupy

    images = x.reshape(-1, *x.shape[-2:])
    return images if images.strides[2] == x.itemsize else cupy.ascontiguousarray(images)


def _factor(by: Array | None, x: Array) -> Array | None:
    import cupy

    return None if by is None else cupy.ascontiguousarray(by, x.dtype)


def serves(x: Array) -> bool:
    """Whether the transforms take images like these."""
    return x.dtype in (np.float32, np.float64) and min(x.shape) > 0 and min(x.shape[-2:]) > 1


def _view(images: Array) -> tuple[Array, int, int]:
    return images, images.strides[1] // images.itemsize, images.strides[0] // images.itemsize


def _launch(name: str, first: Array, *args: Any, size: int) -> None:
    most = _BLOCKS * kernels.properties(first.device.id).multiprocessors
    kernels.launch("cosine", name, min(most, -(-size // _THREADS)), _THREADS, first, *args, dtype=first.dtype)

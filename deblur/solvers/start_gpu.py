"""The first scene on the GPU: ``cuda/start.cu``."""

from __future__ import annotations

import math

from .. import kernels
from ..device import Array

_AT = kernels.Constants("start")
_BLOCKS = 8  # of a launch, on each multiprocessor


def smoothed_and_continued(
    g: Array, shape: tuple[int, int], first: tuple[int, int], sigma: float, wraps: bool, scale: float
) -> Array:
    """Images (..., M, N) smoothed by a Gaussian and laid into scenes, continued by their edge pixels, times a number.

    Parameters
    ----------
    g : (..., M, N) array
    shape : (int, int)
        Of the scenes.
    first : (int, int)
        Where the image's first pixel lies in them.
    sigma : float
        Standard deviation in pixels, as SciPy's filter takes it; 0 smooths nothing.
    wraps : bool
        Whether an image goes on at its other edge, for the Gaussian.
    scale : float
    """
    import cupy

    radius = int(4 * sigma + 0.5)
    lead, space = g.shape[:-2], (g.shape[-2], g.shape[-1])
    if radius:
        g = _smooth(g, space, (0, 0), 0, wraps, sigma, 1.0)
    out = _smooth(g, shape, first, 1, wraps, sigma, scale)
    return cupy.ascontiguousarray(out.reshape(*lead, *shape))


def serves(g: Array, sigma: float) -> bool:
    """Whether the kernel takes such images."""
    return g.ndim >= 2 and g.dtype.kind == "f" and g.size > 0 and int(4 * sigma + 0.5) <= _AT.MOST_RADIUS


def _smooth(
    g: Array,
    shape: tuple[int, int],
    first: tuple[int, int],
    axis: int,
    wraps: bool,
    sigma: float,
    scale: float,
) -> Array:
    import cupy

    images = g.reshape(-1, *g.shape[-2:])
    if images.strides[2] != g.itemsize:
        images = cupy.ascontiguousarray(images)
    out = cupy.empty((len(images), *shape), g.dtype)
    most = _BLOCKS * kernels.properties(g.device.id).multiprocessors
    kernels.launch(
        "start", "smooth", min(most, -(-math.prod(shape) // _AT.THREADS)), _AT.THREADS, out, len(images), *shape,
        *first, images, images.strides[1] // g.itemsize, images.strides[0] // g.itemsize, *images.shape[1:], axis,
        wraps, int(4 * sigma + 0.5), sigma or 1.0, scale, dtype=g.dtype,
    )  # fmt: skip
    return out

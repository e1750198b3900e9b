"""Check masks and weights, and detect clipped pixels."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .device import Array, asnumpy, check_finite, float_dtype, get_xp, unwrapped

#: A frame counts as clipped if its largest value is _CLIPPED_SHARE times as frequent as the next _NEXT are on average.
_CLIPPED_SHARE, _NEXT = 4.0, 3


def check_mask(mask: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return a mask as an array of bool, True at the pixels to hide.

    Parameters
    ----------
    mask : array
        Booleans, or numbers that are all 0 or 1 and not floats; NumPy or CuPy.
    shape : tuple of int, optional
        The required shape; not checked if not given.

    Raises
    ------
    TypeError
        If it holds neither booleans nor integers, or is a masked array with hidden values.
    ValueError
        For another shape, or numbers other than 0 and 1.
    """
    mask = unwrapped(mask, "the mask")
    _check_shape(mask, shape, "the mask")
    if mask.dtype.kind in "uif":
        odd = mask[(mask != 0) & (mask != 1)]
        if odd.size:
            raise ValueError(
                f"the mask must be boolean, True at the pixels to hide, not numbers such as {float(odd[0]):.4g}; "
                "to weigh pixels use weights"
            )
    if mask.dtype.kind not in "bui":
        raise TypeError(f"the mask must be boolean, True where to hide, not {mask.dtype}; use mask.astype(bool)")
    return mask.astype(bool)


def check_weights(weights: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return weights as an array of finite numbers ≥ 0, in their own dtype.

    Parameters
    ----------
    weights : array
        One weight for each pixel; 0 hides the pixel. NumPy or CuPy.
    shape : tuple of int, optional
        The required shape; not checked if not given.

    Raises
    ------
    TypeError
        If they are not real numbers, or a masked array with hidden values.
    ValueError
        For another shape, or weights that are negative, NaN or infinite.
    """
    weights = unwrapped(weights, "weights")
    _check_shape(weights, shape, "weights")
    if weights.dtype.kind not in "buif":
        raise TypeError(f"weights must be real numbers, not {weights.dtype}")
    check_finite(weights, "weights")
    negative = weights[weights < 0]
    if negative.size:
        raise ValueError(
            f"weights must not be negative: {negative.size} lie below zero, the least is {float(negative.min()):.4g}; "
            "0 hides a pixel"
        )
    return weights


def _check_shape(a: Array, shape: tuple[int, ...] | None, name: str) -> None:
    if shape is not None and a.shape != tuple(shape):
        raise ValueError(f"{name} must have the image's shape {tuple(shape)}, not {a.shape}")


def saturated(g: Array) -> Array:
    """Return a mask of the pixels that the sensor clipped: connected regions at the largest value.

    Parameters
    ----------
    g : (..., M, N) array
        Frames, each examined separately; NumPy or CuPy.

    Returns
    -------
    mask : (..., M, N) array of bool
        True at a clipped pixel and at its eight neighbours.

    Raises
    ------
    ValueError
        If `g` has fewer than two axes, holds no pixels, or is not finite.
    TypeError
        If `g` does not hold real numbers.

    Notes
    -----
    A region is a connected set of pixels within 6 % of the frame's range below its largest value. It must contain the
    largest value at least four times. Of its pixels, those within three pixels of one with the largest value count as
    clipped, since a JPEG spreads one value over several.

    A frame is clipped if its values accumulate at the upper end, since clipping moves all larger values there. A smooth
    peak that is rounded to levels has a flat top, too, but it is no larger than the terraces below it. One of two
    conditions must hold. Either the largest value is at least four times as frequent as the next three values are on
    average. Or the uppermost 6 % of the range contain four times as many pixels as the next three such intervals do on
    average; then the largest value must not be rare among them, as it is in an even, bright sky. JPEGs of low quality
    can conceal clipping.

    Each region is enlarged by one pixel, because the interpolation of a camera and the rounding of a JPEG mix a clipped
    pixel with its neighbours. It is not enlarged by the PSF: the pixels around a lamp hold its blurred light in
    agreement with the model, and only they determine the lamp's brightness (``benchmarks/bench_light.py`` measures
    both).
    """
    g = unwrapped(g, "the image")
    float_dtype(g, name="the image: ")
    if g.ndim < 2 or not g.size:
        raise ValueError(f"an image (..., M, N) is needed, not shape {g.shape}")
    check_finite(g, "the image")
    return get_xp(g).stack([_saturated(frame) for frame in g.reshape(-1, *g.shape[-2:])]).reshape(g.shape)


def _saturated(g: Array) -> Array:
    xp = get_xp(g)
    around = xp.ones((3, 3), bool)
    top, least = g.max(), g.min()
    width = 0.06 * (float(top) - float(least))  # the range over which a JPEG spreads a clipped value
    largest, near = g == top, g >= top - width
    # Regions contain at most all pixels of the largest value. If even these are too few, no region need be found.
    if width > 0 and int(largest.sum()) >= 4 and _heaped(g, largest, near, width):
        ndimage = import_module("scipy.ndimage" if xp is np else "cupyx.scipy.ndimage")
        blots, _ = ndimage.label(near, structure=around)
        often = xp.bincount(blots[largest], minlength=int(blots.max()) + 1) >= 4  # fewer pixels are a highlight
        found = largest & often[blots]
        if bool(found.any()) and _heaped(g, found, near, width):
            # CuPy needs `brute_force` for several iterations.
            found = ndimage.binary_dilation(found, structure=around, iterations=3, mask=near, brute_force=True)
            return ndimage.binary_dilation(found, structure=around)
    return xp.zeros(g.shape, bool)


def _heaped(g: Array, found: Array, near: Array, width: Array) -> bool:
    """Return True if values accumulate at the largest value, `found`, or in the interval `near` it."""
    xp = get_xp(g)
    count, top = int(found.sum()), g.max()
    below = g[g < top]
    many = min(below.size, count)  # a value with more pixels than that rules out clipping anyway
    counts = asnumpy(xp.unique(xp.partition(below, below.size - many)[-many:], return_counts=True)[1])
    if count >= _CLIPPED_SHARE * float(np.mean(counts[-_NEXT:])):
        return True
    lower = int((g >= top - (1 + _NEXT) * width).sum()) - int(near.sum())
    most = int(xp.unique(g[near], return_counts=True)[1].max())
    return int(near.sum()) >= _CLIPPED_SHARE * lower / _NEXT and count >= 0.5 * most

"""What is said of single pixels: masks and weights, checked, and what a sensor clipped."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .device import Array, asnumpy, check_finite, get_xp, plain

_BLOT = 4  # touching pixels at the largest value from which on they are a blot, and not a highlight
_HEAPED = 4.0  # times as many pixels in blots as have one of the next values
_NEXT = 3  # so many next values


def check_mask(mask: Any, shape: tuple[int, ...] | None = None) -> Array:
    """A mask as an array of bool, True at the pixels to hide.

    Parameters
    ----------
    mask : array
        Boolean, or whole numbers that are all 0 or 1; NumPy or CuPy.
    shape : tuple of int, optional
        What it must have; not looked at if not given.

    Raises
    ------
    TypeError
        If it holds neither booleans nor whole numbers, or is a masked array with hidden values.
    ValueError
        For another shape, or numbers other than 0 and 1.
    """
    mask = plain(mask, "the mask")
    _check_shape(mask, shape, "the mask")
    if mask.dtype.kind in "uif":
        odd = mask[(mask != 0) & (mask != 1)]
        if odd.size:
            raise ValueError(
                f"the mask must be boolean, True at the pixels to hide, not numbers such as {float(odd[0]):.4g}; "
                "to weigh pixels use weights"
            )
    if mask.dtype.kind not in "bui":
        raise TypeError(
            f"the mask must be boolean, True at the pixels to hide, not {mask.dtype}; use mask.astype(bool)"
        )
    return mask.astype(bool)


def check_weights(weights: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Weights as an array of real numbers, finite and ≥ 0, in the dtype that they have.

    Parameters
    ----------
    weights : array
        One for each pixel; 0 hides it. NumPy or CuPy.
    shape : tuple of int, optional
        What they must have; not looked at if not given.

    Raises
    ------
    TypeError
        If they are no real numbers, or a masked array with hidden values.
    ValueError
        For another shape, or weights that are negative, NaN or infinite.
    """
    weights = plain(weights, "weights")
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
    """The pixels of a blurred image that the sensor clipped: blots at the largest value.

    Parameters
    ----------
    g : (..., M, N) array
        Frames, each looked at by itself; NumPy or CuPy.

    Returns
    -------
    mask : (..., M, N) array of bool
        True at a pixel that was clipped, and at its eight neighbours.

    Raises
    ------
    ValueError
        If `g` is not finite.

    Notes
    -----
    A blot is four pixels or more of the frame's largest value that touch each other. A smooth peak that is merely
    rounded to levels has a flat top too, but one no larger than the terraces below it; clipping heaps up in one value
    all that would have lain above. The frame is taken to be clipped where its blots hold at least four times as many
    pixels as have one of the next three values.

    The blots are grown by one pixel, because what a camera interpolates and a JPEG rounds mixes a clipped pixel with
    its neighbours. They are not grown by the PSF: the pixels around a lamp hold its smeared light as the model has it,
    and they alone say how bright it is (``benchmarks/bench_light.py`` measures both).
    """
    g = plain(g, "the image")
    check_finite(g, "the image")
    xp = get_xp(g)
    return xp.stack([_saturated(frame) for frame in g.reshape(-1, *g.shape[-2:])]).reshape(g.shape)


def _saturated(g: Array) -> Array:
    xp = get_xp(g)
    ndimage = import_module("scipy.ndimage" if xp is np else "cupyx.scipy.ndimage")
    around = xp.ones((3, 3), bool)
    top = g.max()
    # The blots, and the largest values that are left: unlike all values of a frame these are few.
    blots, _ = ndimage.label(g == top, structure=around)
    sizes = xp.bincount(blots.ravel())
    sizes[0] = 0
    found = (sizes >= _BLOT)[blots]
    below = g[g < top]
    if not bool(found.any()) or not below.size:  # an even frame is no clipped one
        return xp.zeros(g.shape, bool)
    many = min(below.size, int(found.sum()))
    _, counts = (
        asnumpy(a) for a in xp.unique(xp.partition(below, below.size - many)[-many:], return_counts=True)
    )
    if float(found.sum()) < _HEAPED * float(np.mean(counts[-_NEXT:])):
        return xp.zeros(g.shape, bool)
    return ndimage.binary_dilation(found, structure=around)

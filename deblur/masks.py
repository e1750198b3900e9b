"""Checks of masks and weights, and detection of clipped pixels."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .device import Array, asnumpy, check_finite, float_dtype, get_xp, unwrapped

#: Values that a sensor clipped are this many times as frequent as lower ones are, on average over the next _NEXT.
_CLIPPED_SHARE, _NEXT = 4.0, 3


def check_mask(mask: Any, shape: tuple[int, ...] | None = None) -> Array:
    """A mask as an array of bool, True at the pixels to hide.

    Parameters
    ----------
    mask : array
        Boolean, or whole numbers that are all 0 or 1; NumPy or CuPy.
    shape : tuple of int, optional
        The required shape; not checked if not given.

    Raises
    ------
    TypeError
        If it holds neither booleans nor whole numbers, or is a masked array with hidden values.
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
    """Weights as an array of real numbers, finite and ≥ 0, in the dtype that they have.

    Parameters
    ----------
    weights : array
        One for each pixel; 0 hides it. NumPy or CuPy.
    shape : tuple of int, optional
        The required shape; not checked if not given.

    Raises
    ------
    TypeError
        If they are no real numbers, or a masked array with hidden values.
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
    """The pixels of a blurred image that the sensor clipped: blots at the largest value.

    Parameters
    ----------
    g : (..., M, N) array
        Frames, each examined by itself; NumPy or CuPy.

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
    A blot is connected, within 6 % of the range below the frame's largest value, and holds that value four times or
    more; of it those pixels are taken that are within three of one that has it, since a JPEG spreads what was one value
    over several. A smooth peak that is merely rounded to levels has a flat top too, but one no larger than the terraces
    below it; clipping heaps up at the end all that would have lain above. The frame is taken to be clipped where its
    largest value occurs at least four times as often as each of the next three do, on average; or the 6 % at the end
    as often, over the next three such parts, unless the largest value is rare among them, as in an even, bright sky.
    JPEGs of low quality can hide clipping from this.

    The blots are grown by one pixel, because what a camera interpolates and a JPEG rounds mixes a clipped pixel with
    its neighbours. They are not grown by the PSF: the pixels around a lamp hold its smeared light as the model has it,
    and they alone say that it is there and how bright (``benchmarks/bench_light.py`` measures both).
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
    # Blots hold at most all pixels of the largest value. Where even these do not heap up, no blot need be looked for.
    if width > 0 and int(largest.sum()) >= 4 and _heaped(g, largest, near, width):
        ndimage = import_module("scipy.ndimage" if xp is np else "cupyx.scipy.ndimage")
        blots, _ = ndimage.label(near, structure=around)
        often = xp.bincount(blots[largest], minlength=int(blots.max()) + 1) >= 4  # fewer are a highlight
        found = largest & often[blots]
        if bool(found.any()) and _heaped(g, found, near, width):
            # CuPy has no other way of several iterations.
            found = ndimage.binary_dilation(found, structure=around, iterations=3, mask=near, brute_force=True)
            return ndimage.binary_dilation(found, structure=around)
    return xp.zeros(g.shape, bool)


def _heaped(g: Array, found: Array, near: Array, width: Array) -> bool:
    """Whether values heap up at the largest one, `found`, or at those `near` it."""
    xp = get_xp(g)
    count, top = int(found.sum()), g.max()
    below = g[g < top]
    many = min(below.size, count)  # a value that more pixels have than that forbids it anyway
    counts = asnumpy(xp.unique(xp.partition(below, below.size - many)[-many:], return_counts=True)[1])
    if count >= _CLIPPED_SHARE * float(np.mean(counts[-_NEXT:])):
        return True
    lower = int((g >= top - (1 + _NEXT) * width).sum()) - int(near.sum())
    most = int(xp.unique(g[near], return_counts=True)[1].max())
    return int(near.sum()) >= _CLIPPED_SHARE * lower / _NEXT and count >= 0.5 * most

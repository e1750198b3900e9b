"""Convert between linear light and the numbers of an image, by the tone curve of sRGB (IEC 61966-2-1)."""

from __future__ import annotations

import numpy as np

from ..device import Array, as_real, get_xp, unwrapped
from .arrays import as_float

#: Names of the tone curves that ``gamma=`` accepts; "linear" is none.
GAMMAS = ("srgb", "linear")


def linear_light(image: Array) -> Array:
    """Return the linear light of an sRGB image; `srgb` is the inverse.

    A lens blurs light linearly; the numbers of a JPEG are roughly its square root.
    The curve continues above 1, and below 0 by point symmetry, because noise exceeds
    both limits.

    Parameters
    ----------
    image : array
        NumPy or CuPy, any shape; integers, or floating point on a scale where
        0 is black and 1 white.

    Returns
    -------
    array of the same shape
        Linear light, in the floating-point dtype of `as_float`: 0 is black and 1 white.

    Raises
    ------
    ValueError
        If a value is below -1 or above 2, which noise does not explain.
    TypeError
        For integers that are not unsigned with 8 or 16 bits.

    References
    ----------
    .. [1] IEC 61966-2-1:1999, sRGB. Display P3 has the same curve.
    """
    image = unwrapped(image, "image")
    xp = get_xp(image)
    check_levels(image)
    x = as_float(image)
    least, largest = (float(f(x)) if x.size else 0.0 for f in (xp.min, xp.max))
    if not (least >= -1 and largest <= 2):
        why = f"gamma='srgb' needs numbers from 0, black, to 1, white, and these go from {least:.4g} to {largest:.4g};"
        raise ValueError(f"{why} divide by the value of white, or leave gamma out if they are light already")
    return unbent(x)


def unbent(x: Array) -> Array:
    """Return `linear_light` of floating point, without a limit on the values."""
    xp, size = get_xp(x), abs(x)
    return xp.copysign(xp.where(size <= 0.04045, size / 12.92, ((size + 0.055) / 1.055) ** 2.4), x)


def srgb(light: Array) -> Array:
    """Return the numbers of an sRGB image with this light; this is the inverse of `linear_light`.

    Parameters
    ----------
    light : array
        Linear light in floating point, NumPy or CuPy, any shape: 0 is black and 1 white. The curve continues beyond.

    Returns
    -------
    array of the same shape, in float32 or float64
    """
    light = as_real(light, "light")
    xp, size = get_xp(light), abs(light)
    return xp.copysign(xp.where(size <= 0.0031308, 12.92 * size, 1.055 * size ** (1 / 2.4) - 0.055), light)


def measured(image: Array) -> bool:
    """Return True if the numbers of an image are measured values, such as counts or heights, and not levels.

    Unsigned integers of 8 and 16 bits are levels; their largest value is white.
    """
    return image.dtype.kind in "iu" and image.dtype not in (np.uint8, np.uint16)


def check_levels(image: Array) -> None:
    """Raise TypeError if the integers of an image are not levels, so that no tone curve applies to them."""
    if measured(image):
        raise TypeError(
            "gamma='srgb' is for pictures, whose numbers are levels of 8 or 16 bits or floats from 0 to 1, and not for "
            f"{image.dtype}, which counts or measures: leave gamma out"
        )

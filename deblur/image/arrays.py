"""Images as vectors and as values in [0, 1], without files."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import Array, get_xp, unwrapped
from ..errors import check_count


def im2vector(image: Array) -> Array:
    """The pixels of an image as one vector, row by row: the order of the columns and rows of H.

    Parameters
    ----------
    image : (M, N) array
        NumPy or CuPy, any dtype.

    Returns
    -------
    v : (M * N,) array
        A view of `image` where its memory layout allows, else a copy.

    Raises
    ------
    ValueError
        If `image` is not 2-D or holds no pixels.
    """
    image = unwrapped(image, "the image")
    if image.ndim != 2 or image.size == 0:
        raise ValueError(f"image must be a non-empty 2-D array, not shape {image.shape}; take one colour at a time")
    return image.reshape(-1)


def vector2im(v: Array, shape: tuple[int, int]) -> Array:
    """The image whose pixels, row by row, are the vector: the inverse of `im2vector`.

    Parameters
    ----------
    v : (M * N,) or (M * N, 1) array
        NumPy or CuPy, any dtype.
    shape : (int, int)
        Rows M and columns N.

    Returns
    -------
    image : (M, N) array
        A view of `v` where its memory layout allows, else a copy.

    Raises
    ------
    ValueError
        If `v` is no vector or does not hold M * N numbers.
    """
    v = unwrapped(v, "the vector")
    if not np.iterable(shape) or len(tuple(shape)) != 2:
        raise ValueError(f"shape must be (rows, columns), two positive whole numbers, not {shape!r}")
    rows, cols = (check_count(n, "each of shape (rows, columns)") for n in shape)
    if v.ndim not in (1, 2) or v.shape[1:] not in ((), (1,)) or v.size != rows * cols:
        raise ValueError(f"a vector of {rows} * {cols} = {rows * cols} pixels is needed, not shape {v.shape}")
    return v.reshape(rows, cols)


def as_float(image: Array, dtype: Any = np.float64) -> Array:
    """The image as floating point: integers scaled to [0, 1], floats as they are.

    The rule is that of ``skimage.util.img_as_float``: unsigned integers are
    divided by the largest value of their dtype, signed ones likewise (giving
    [-1, 1]), True is 1. Floating point keeps its dtype and its values,
    whatever their range.

    Parameters
    ----------
    image : array
        NumPy or CuPy, any shape.
    dtype : dtype
        What integers become; float64 by default.

    Returns
    -------
    array of the same shape
        In `dtype`, or the dtype of a floating-point `image`, which is returned itself.

    Raises
    ------
    TypeError
        For complex, object and string arrays, and masked arrays with masked values.
    """
    image = unwrapped(image, "the image")
    xp = get_xp(image)
    kind = image.dtype.kind
    if kind == "f":
        return image
    if kind == "b":
        return image.astype(dtype)
    if kind not in "iu":
        raise TypeError(f"an image must hold real numbers, not dtype {image.dtype}")
    # Multiplied by the reciprocal, not divided: that is what scikit-image rounds to.
    scaled = xp.multiply(image, 1.0 / np.iinfo(image.dtype).max, dtype=np.dtype(dtype))
    return xp.maximum(scaled, -1.0) if kind == "i" else scaled


def shaped(image: Any) -> Array:
    """`image` itself if it has a shape, of whatever library; else as an array."""
    return image if hasattr(image, "shape") and hasattr(image, "ndim") else unwrapped(image, "the image")


def is_colour(image: Array) -> bool:
    """Whether this module takes `image` as colour: three or more axes, the last of length 3."""
    image = shaped(image)
    return image.ndim >= 3 and image.shape[-1] == 3


def looks_coloured(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape can only be one colour picture, (M, N, 3) or with its opacity (M, N, 4)."""
    return len(shape) == 3 and shape[2] in (3, 4) and min(shape[:2]) > 4

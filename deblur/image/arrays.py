"""Images as vectors and as values in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import Array, asnumpy, float_dtype, get_xp, unwrapped
from ..errors import check_count


def im2vector(image: Array) -> Array:
    """Return the pixels of an image as one vector, row by row, which is the order of the rows and columns of H.

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
    """Return the image whose pixels, row by row, are the vector; this is the inverse of `im2vector`.

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
        If `v` is not a vector or does not hold M * N numbers, or `shape` is not a pair of positive whole numbers.
    """
    v = unwrapped(v, "the vector")
    if not np.iterable(shape) or len(tuple(shape)) != 2:
        raise ValueError(f"shape must be (rows, columns), two positive whole numbers, not {shape!r}")
    rows, cols = (check_count(n, "each of shape (rows, columns)") for n in shape)
    if v.ndim not in (1, 2) or v.shape[1:] not in ((), (1,)) or v.size != rows * cols:
        raise ValueError(f"a vector of {rows} * {cols} = {rows * cols} pixels is needed, not shape {v.shape}")
    return v.reshape(rows, cols)


def as_float(image: Array, dtype: Any = np.float64) -> Array:
    """Return the image as floating point: integers are scaled to [0, 1], floats do not change.

    The rule is that of ``skimage.util.img_as_float``. Integers are divided by the
    largest value of their dtype, which gives [-1, 1] for signed integers. True is 1.
    Floating point keeps its dtype and its values, whatever their range.

    Parameters
    ----------
    image : array
        NumPy or CuPy, any shape.
    dtype : dtype
        The floating-point dtype for integers; float64 by default.

    Returns
    -------
    array of the same shape
        In `dtype`; a floating-point `image` is returned itself.

    Raises
    ------
    TypeError
        For complex, object and string arrays, and masked arrays with masked values.
    """
    image = unwrapped(image, "the image")
    xp = get_xp(image)
    float_dtype(image, "the image: ")  # raises for a dtype that is not a real number
    kind = image.dtype.kind
    if kind == "f":
        return image
    if kind == "b":
        return image.astype(dtype)
    # Multiply by the reciprocal instead of dividing, to round like scikit-image.
    scaled = xp.multiply(image, 1.0 / np.iinfo(image.dtype).max, dtype=np.dtype(dtype))
    return xp.maximum(scaled, -1.0) if kind == "i" else scaled


def shaped(image: Any) -> Array:
    """Return `image` itself if it has a shape, whatever its library, else `image` as an array."""
    return image if hasattr(image, "shape") and hasattr(image, "ndim") else unwrapped(image, "the image")


def is_colour(image: Array) -> bool:
    """Return True if `image` counts as colour: three or more axes, the last of length 3."""
    image = shaped(image)
    return image.ndim >= 3 and image.shape[-1] == 3


def looks_coloured(shape: tuple[int, ...]) -> bool:
    """Return True if an array of this shape can only be one colour image, (M, N, 3), or (M, N, 4) with opacity."""
    return len(shape) == 3 and shape[2] in (3, 4) and min(shape[:2]) > 4


def step_of(g: Array) -> float:
    """Return the step between the levels that values were rounded to, or 0 if there are none.

    In flat areas, rounding leaves no visible noise, but an error all the same.
    """
    values = asnumpy(g.ravel()[:: -(-g.size // 2**14)]).astype(np.float64)  # a sample suffices
    levels = np.unique(values)
    if not 16 <= len(levels) <= values.size / 16:
        return 0.0
    apart = np.diff(levels)
    steps = apart / apart.min()
    return float(apart.min()) if float(abs(steps - np.rint(steps)).max()) < 1e-3 else 0.0

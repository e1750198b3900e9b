"""Measure the difference of two images: `immse` and `psnr`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..device import Array, float_dtype, get_xp
from .arguments import IMAGE_CLASSES, as_array, as_scalar, check_class


def _error(x: Any, y: Any, names: tuple[str, str]) -> tuple[float, np.dtype]:
    """Return the mean squared error of two arrays, and their class."""
    a, b = as_array(x, names[0]), as_array(y, names[1])
    get_xp(a, b)  # raises unless both are on one device
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"{names[0]} ({a.dtype}, {a.shape}) and {names[1]} ({b.dtype}, {b.shape}) "
            "must have the same class and shape"
        )
    float_dtype(a, f"{names[0]}: ")  # raises for complex numbers
    return float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).mean()), a.dtype


def _measure(value: float, dtype: np.dtype) -> float:
    """Return a number as MATLAB does: in single for images in single, and infinite beyond the range of single."""
    with np.errstate(over="ignore"):
        return dtype.type(value) if dtype == np.float32 else value


def immse(x: Array, y: Array) -> float:
    """Return the mean squared error of two arrays of the same class and shape.

    Integers are not scaled: the error is in squared grey levels. It is computed in
    float64 for every class.

    Parameters
    ----------
    x, y : arrays of the same class and shape
        Real numbers.

    Returns
    -------
    float
        For images in single a numpy.float32, since MATLAB returns single then.

    Raises
    ------
    ValueError
        If class or shape differ.
    TypeError
        For complex numbers.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``immse``.
    """
    return _measure(*_error(x, y, ("x", "y")))


def psnr(a: Array, ref: Array, peakval: float | None = None) -> float:
    """Return the peak signal-to-noise ratio of an image and a reference, in decibels.

    It is 10 log10(peakval² / immse(a, ref)), and infinite for equal images. MATLAB's
    second output, ``snr``, is ``10*log10(mean(ref**2) / immse(a, ref))``.

    Parameters
    ----------
    a, ref : arrays of the same class and shape
        uint8, uint16, int16, float32 or float64.
    peakval : float, optional
        The peak of the signal. By default 1 for floating-point images, and the range
        of the class for integers: 255 for uint8, 65535 for uint16 and int16.

    Returns
    -------
    float
        For images in single a numpy.float32, since MATLAB returns single then.

    Raises
    ------
    TypeError
        For another class.
    ValueError
        If class or shape differ, or `peakval` is not a positive number.

    Notes
    -----
    Octave's package uses another peak for int16.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``psnr``.
    """
    error, dtype = _error(a, ref, ("a", "ref"))
    check_class(dtype, "a", IMAGE_CLASSES)
    peak = 1.0 if dtype.kind == "f" else float(np.iinfo(dtype).max) - np.iinfo(dtype).min
    peak = peak if peakval is None else as_scalar(peakval, "peakval", 0, above=True)
    return _measure(10 * math.log10(peak**2 / error) if error else math.inf, dtype)

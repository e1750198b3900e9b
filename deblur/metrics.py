"""Measures of the difference between an image and the truth: mean squared error, PSNR, SSIM.

All of them scale integers to [0, 1] (`deblur.image.as_float`), as `deblur.reconstruct` does, so an 8-bit file and a
float result can be compared. `deblur.matlab.immse` does not scale.
"""

from __future__ import annotations

import math

import numpy as np

from .device import Array, asnumpy, check_finite, get_xp
from .errors import check_axis, check_number
from .image import as_float


def _pair(truth: Array, image: Array, largest: float = 0.0) -> tuple[Array, Array, int]:
    """Return both images in float64, divided by a power of two, and its exponent; raise ValueError if they cannot be
    compared.
    """
    xp = get_xp(truth, image)
    a, b = (xp.asarray(as_float(x)) for x in (truth, image))
    if a.shape != b.shape:
        raise ValueError(f"the images have different shapes, {a.shape} and {b.shape}; crop them to the same frame")
    if a.size == 0:
        raise ValueError(f"the images hold no pixels (shape {a.shape})")
    check_finite(a, "truth")
    check_finite(b, "image")
    a, b = a.astype(np.float64), b.astype(np.float64)
    exponent = math.frexp(max(float(abs(a).max()), float(abs(b).max()), largest))[1]
    return xp.ldexp(a, -exponent), xp.ldexp(b, -exponent), exponent


def mse(truth: Array, image: Array) -> float:
    """Return the mean squared error, mean((truth - image)²), on the unit scale.

    Parameters
    ----------
    truth, image : arrays of one shape
        NumPy or CuPy; integers are scaled to [0, 1]. Summed in float64.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the shapes differ, or a value is NaN or infinite.
    """
    a, b, exponent = _pair(truth, image)
    with np.errstate(over="ignore"):
        return float(np.ldexp(float(((a - b) ** 2).mean()), 2 * exponent))


def psnr(truth: Array, image: Array, *, data_range: float = 1.0) -> float:
    """Return the peak signal-to-noise ratio, 10 log₁₀(data_range² / MSE), in decibels.

    Parameters
    ----------
    truth, image : arrays of one shape
        NumPy or CuPy; integers are scaled to [0, 1].
    data_range : float
        The difference between white and black, 1 by default; 255 for
        floating-point images on the scale of 8 bits.

    Returns
    -------
    float
        Infinity if the images are equal.

    Raises
    ------
    ValueError
        If the shapes differ, a value is NaN or infinite, or data_range is not positive.
    """
    check_number(data_range, "data_range", above=True)
    a, b, exponent = _pair(truth, image)
    error = float(((a - b) ** 2).mean())
    return math.inf if error == 0 else 20 * (math.log10(data_range) - exponent * math.log10(2)) - 10 * math.log10(error)


def ssim(truth: Array, image: Array, *, data_range: float = 1.0, channel_axis: int | None = None) -> float:
    """Return the structural similarity, with the window and constants of its authors [1]_, computed by scikit-image.

    Parameters
    ----------
    truth, image : arrays of one shape, at least 11 pixels along each axis
        NumPy or CuPy (copied to the host); integers are scaled to [0, 1].
    data_range : float
        The difference between white and black, 1 by default.
    channel_axis : int, optional
        The axis of the colours, over which the result is averaged. Without it,
        all axes are spatial.

    Returns
    -------
    float
        1 if the images are equal.

    Raises
    ------
    ValueError
        If the shapes differ, a value is NaN or infinite, an axis is shorter
        than the 11-pixel window, or data_range is not positive.

    Notes
    -----
    The window is Gaussian with a standard deviation of 1.5 pixels, and covariances are those of the population, as in
    [1]_. The default of scikit-image is a uniform 7 x 7 window, which gives other figures.

    References
    ----------
    .. [1] Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, "Image quality assessment: from error
           visibility to structural similarity", IEEE Trans. Image Processing 13 (4), 2004, 600-612.
    """
    data_range = check_number(data_range, "data_range", above=True)
    a, b, exponent = _pair(truth, image, data_range)
    space = list(a.shape)
    if channel_axis is not None:
        del space[check_axis(channel_axis, a.ndim, "channel_axis")]
    if not space or min(space) < 11:
        hint = "; for a colour image give channel_axis=-1" if a.ndim > 2 and channel_axis is None else ""
        raise ValueError(f"SSIM needs 11 pixels along each axis of space, not shape {a.shape}{hint}")

    from skimage.metrics import structural_similarity

    window = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    images = asnumpy(a), asnumpy(b)
    span = math.ldexp(data_range, -exponent)
    return float(structural_similarity(*images, data_range=span, channel_axis=channel_axis, **window))

"""Add noise by name: `imnoise`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..degradation import with_noise
from ..device import Array, asnumpy
from ..errors import generator
from . import arguments

_NOISE: dict[str, dict[str, Any]] = {  # parameters and their defaults
    "gaussian": {"m": 0, "var_gauss": 0.01},
    "localvar": {"intensity_map": None, "var_local": None},
    "poisson": {},
    "salt & pepper": {"d": 0.05},
    "speckle": {"var_speckle": 0.05},
}
# Number of counts for a value of 1; an integer is itself a count.
_POISSON_SCALE = {"uint8": 255.0, "uint16": 65535.0, "float32": 1e6, "float64": 1e12}


def imnoise(
    img: Array, type: str = "gaussian", *parameters: Any, seed: int | np.random.Generator | None = None
) -> Array:
    """Add noise to an image.

    - ``"gaussian", m=0, var_gauss=0.01``: white noise of this mean and variance;
    - ``"localvar", var_local``: white noise of mean 0 with a variance for each
      pixel, an array of the image's shape;
    - ``"localvar", intensity_map, var_local``: the same, with the variance
      interpolated linearly from the pixel's value; two vectors of one length;
    - ``"poisson"``: a Poisson count in place of each value;
    - ``"salt & pepper", d=0.05``: about a fraction d of the pixels, half of them
      set to the lowest value of the class and half to the highest;
    - ``"speckle", var_speckle=0.05``: img + n img with *uniform* n of mean 0.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64
        The image, of any shape. Integers are scaled from the range of their class
        to [0, 1], and all parameters refer to that scale. Floating-point values are
        clipped to [0, 1].
    type : str
        One of the names above.
    *parameters
        The parameters of the noise, in this order.
    seed : int or numpy.random.Generator, optional
        The seed of the random numbers. The same seed gives the same noise, but not
        that of MATLAB. A CuPy image gets the same noise as a NumPy image.

    Returns
    -------
    noisy : array of img's class and shape
        The noisy image, clipped to [0, 1] or to the range of the class.

    Raises
    ------
    TypeError
        For another class. Poisson noise is not defined for int16.
    ValueError
        For NaN or infinity, an unknown type, or a parameter out of range.

    Notes
    -----
    The mean count of Poisson noise is the integer value of a pixel, 1e12 times a
    float64 value, or 1e6 times a float32 value. All counts are drawn from the Poisson
    distribution; MATLAB draws large ones from its normal limit.

    This follows MATLAB's documentation. Octave's package has a default speckle
    variance of 0.04, draws n from a normal distribution, and has no ``"localvar"``.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``imnoise``.
    """
    kind = arguments.match_word(type, tuple(_NOISE), "the noise type")
    defaults = _NOISE[kind]
    arguments.check_count("imnoise", kind, parameters, tuple(defaults))
    if kind == "localvar" and not parameters:
        raise ValueError("imnoise 'localvar' needs var_local, or intensity_map and var_local")
    values = [*parameters, *list(defaults.values())[len(parameters) :]]
    # A signed value is not a count, so MATLAB has no Poisson noise for int16.
    classes = tuple(_POISSON_SCALE) if kind == "poisson" else arguments.IMAGE_CLASSES
    a, x, xp = arguments.as_image(img, "img", classes)
    dtype, x, rng = a.dtype, asnumpy(x).clip(0, 1), generator(seed)
    if kind == "gaussian":
        mean, variance = arguments.as_scalar(values[0], "m"), arguments.as_scalar(values[1], "var_gauss", 0)
        x = with_noise(x + mean, "gaussian", math.sqrt(variance), rng)
    elif kind == "localvar":
        x = x + np.sqrt(_local_variance(x, *parameters)) * rng.standard_normal(x.shape)
    elif kind == "poisson":
        x = with_noise(x, kind, _POISSON_SCALE[dtype.name], rng)
    elif kind == "salt & pepper":
        x = with_noise(x, "salt-pepper", arguments.as_scalar(values[0], "d", 0, 1), rng)
    else:
        # A uniform number of width w has the variance w² / 12.
        width = math.sqrt(12 * arguments.as_scalar(values[0], "var_speckle", 0))
        x = x + width * (rng.random(x.shape) - 0.5) * x
    return xp.asarray(arguments.from_double(x.clip(0, 1), dtype))


def _local_variance(x: np.ndarray, *parameters: Any) -> np.ndarray:
    variance = asnumpy(arguments.as_real(parameters[-1], "var_local"))
    if not (variance >= 0).all():
        raise ValueError(f"var_local must not be negative; the smallest is {variance.min():g}")
    if len(parameters) == 1:
        if variance.shape != x.shape:
            raise ValueError(f"var_local must have the image's shape {x.shape}, not {variance.shape}")
        return variance
    intensity = asnumpy(arguments.as_real(parameters[0], "intensity_map")).ravel()
    variance = variance.ravel()
    if intensity.size != variance.size or not (np.diff(intensity) > 0).all():
        raise ValueError(
            f"intensity_map must increase and be as long as var_local; their lengths are "
            f"{intensity.size} and {variance.size}"
        )
    return np.interp(x, intensity, variance)

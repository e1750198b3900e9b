"""The level of the noise in an image."""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from ..device import Array, as_real, check_finite, get_xp
from ..problem import Problem
from ..solvers.start import filled

# High-pass filter of the Daubechies wavelet with two vanishing moments.
_DB2 = np.array([1 - 3**0.5, 3**0.5 - 3, 3 + 3**0.5, -1 - 3**0.5]) / (4 * 2**0.5)
_MEDIAN = 0.6744897501960817  # median of |x| for x standard normal
_QUIETER = 0.8  # below this the blocks' power is less than the median's by more than chance
_SIDE, _QUANTILE = 6, 0.05  # blocks of coefficients, and how many of them are taken to hold noise alone


def estimate_noise(g: Array) -> float:
    """The standard deviation of white noise in an image, from its finest diagonal wavelet coefficients.

    It is the median modulus of the coefficients of the db2 wavelet over 0.6745 [1]_,
    unless the quietest 5 % of the 6 x 6 blocks of coefficients hold clearly less:
    then it is their root mean square, over what that is for pure noise [2]_. A
    picture adds to both, but seldom everywhere.

    Parameters
    ----------
    g : (..., M, N) array
        An image, or frames with the same noise (their root mean square is returned).

    Returns
    -------
    float
        In the units of `g`; 0 for an image without fine detail, such as a constant one.

    Raises
    ------
    ValueError
        If a side is under 4 pixels, or `g` is not finite.

    Notes
    -----
    A blurred picture has little left at these frequencies, so the estimate is
    close; it is too large where the blur is slight, the picture is texture all
    over and the noise weak. Noise that is not white (JPEG, demosaicing,
    resampling) is not seen for what it is. ``benchmarks/bench_lambda.py``
    measures the accuracy.

    References
    ----------
    .. [1] D. L. Donoho, I. M. Johnstone, Biometrika 81 (1994) 425-455.
    .. [2] S. I. Olsen, Estimation of noise in images: an evaluation, CVGIP 55 (1993) 319-323.
    """
    g = as_real(g, "the image")
    if g.ndim < 2 or min(g.shape[-2:]) < len(_DB2):
        raise ValueError(
            f"the noise of an image of shape {g.shape} cannot be estimated: at least 4 x 4 pixels are "
            "needed; give its standard deviation (noise=...)"
        )
    check_finite(g, "the image")
    x = g.reshape(-1, *g.shape[-2:]).astype(np.float64)
    for _ in range(2):  # along the rows, then along the columns
        n = x.shape[-1] - len(_DB2) + 1
        x = sum(float(w) * x[..., k : k + n] for k, w in enumerate(_DB2))[..., ::2].swapaxes(-1, -2)
    # Coefficients no larger are of clipped or painted areas: no noise is to be seen there.
    flat = 1e-12 * float(abs(g).max())
    return math.sqrt(sum(_noise_power(frame, flat) for frame in x) / len(x))


def _noise_power(x: Array, flat: float) -> float:
    """The estimate from one frame's coefficients, squared."""
    xp = get_xp(x)
    moduli = abs(x)
    some = moduli[moduli > flat]
    if some.size == 0:
        return 0.0
    power = float(xp.median(some) / _MEDIAN) ** 2
    rows, cols = (n // _SIDE for n in x.shape)
    x = x[: rows * _SIDE, : cols * _SIDE].reshape(rows, _SIDE, cols, _SIDE)
    blocks = (x**2).mean(axis=(1, 3))[(abs(x) > flat).all(axis=(1, 3))]
    if blocks.size * _QUANTILE < 1:
        return power
    expected = scipy.special.chdtri(_SIDE**2, 1 - _QUANTILE) / _SIDE**2
    quiet = float(xp.quantile(blocks, _QUANTILE)) / expected
    return quiet if quiet < _QUIETER * power else power


def check_noise(noise: float | None) -> float | None:
    """`noise` itself, or ValueError if it is no level of noise."""
    if noise is not None and (isinstance(noise, (bool, np.bool_)) or not (np.isfinite(noise) and noise >= 0)):
        raise ValueError(
            f"noise must be a standard deviation >= 0 (of photon counts the gain), not {noise!r}; leave it out to have "
            "it estimated"
        )
    return noise


def noise_variance(problem: Problem, g: Array) -> float:
    """ν, estimated from the image: the variance of additive noise, or the gain of photon counts.

    Pixels of weight 0 are filled from their neighbours first. For counts it is the variance of 2√(g + b), which
    does not depend on the brightness (Bartlett 1936).

    Parameters
    ----------
    problem : Problem
    g : (k, c, M, N) array
    """
    seen = filled(g, problem.fit.weights)
    if problem.fit.name == "poisson":
        xp = get_xp(g)
        seen = 2 * xp.sqrt(xp.maximum(seen, 0))
    return estimate_noise(seen) ** 2

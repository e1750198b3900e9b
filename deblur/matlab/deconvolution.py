"""Deconvolution by a filter, on the periodic model: `deconvwnr` and `deconvreg`.

The image is assumed to be periodic, so that the blur is one product of Fourier transforms. `deblur.matlab.edgetaper`
makes an image fit this model; `deblur.reconstruct` does not need it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from ..device import Array, asnumpy, get_fft
from .arguments import EPS, as_filter, as_image, as_like, as_psf, as_real, as_scalar, from_double
from .transfer import filtered, psf2otf

# ---------------------------------------------------------------------------------------------
# Wiener
# ---------------------------------------------------------------------------------------------


def deconvwnr(img: Array, psf: Array, nsr: Any = 0.0, icorr: Any = None) -> Array:
    """Deblur an image by the Wiener filter.

    - ``deconvwnr(img, psf)`` is the inverse filter;
    - ``deconvwnr(img, psf, nsr)`` uses the ratio of noise power to signal power;
    - ``deconvwnr(img, psf, ncorr, icorr)`` uses the autocorrelation functions of noise and image.

    Let H and G be the transforms of PSF and image, and S and N the power of signal and noise. The result is the inverse
    transform of H* S G / (|H|² S + N). With nsr, N is nsr and S is 1. A denominator below √eps is replaced by √eps.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64
        The image, N-D, blurred circularly. Integers are scaled to [0, 1].
    psf : array
        The PSF, not larger than the image in any dimension; it is not normalised.
    nsr : float or array
        The noise-to-signal ratio, not negative. An array with the shape of the image holds the ratio at each frequency,
        the zeroth first. With `icorr` this argument is the autocorrelation of the noise.
    icorr : float or array, optional
        The autocorrelation of the image. Each autocorrelation is one of three. An array has as many dimensions as the
        image, is not larger, and has its zero lag at element floor(size/2), counted from zero. A vector applies to all
        directions in the dimensions of the PSF, and is interpolated linearly from its centre to its end. A number is
        the power of white noise, which has only the zero lag.

    Returns
    -------
    array of img's class and shape

    Raises
    ------
    TypeError
        For another class of image.
    ValueError
        For a PSF or autocorrelation that is larger than the image, a negative or misshapen nsr, NaN or infinity.

    Notes
    -----
    Octave's package adds eps if nsr is 0, and has no autocorrelations.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``deconvwnr``. R. C. Gonzalez, R. E. Woods, *Digital
    Image Processing*, 3rd ed., 2007, section 5.8.
    """
    img, x, xp = as_image(img, "img")
    kernel = as_psf(psf, x)
    otf = psf2otf(kernel, x.shape)
    if icorr is None:
        noise, signal = as_like(nsr, "nsr", x), 1.0
    else:
        noise, signal = (_power(c, n, kernel.shape, x) for c, n in ((nsr, "ncorr"), (icorr, "icorr")))
    top = xp.conj(otf) * signal
    below = xp.maximum(abs(otf) ** 2 * signal + noise, math.sqrt(EPS))
    return from_double(filtered(top / below, x), img.dtype)


def _power(corr: Any, name: str, psf: tuple[int, ...], image: Array) -> Array:
    """Return the power at each frequency of an autocorrelation function, given in one of the three forms."""
    c, shape = as_real(corr, name), image.shape
    if c.size > 1 and max(c.shape) == c.size and max(shape) < math.prod(shape):
        half = asnumpy(c).ravel()[c.size // 2 :]
        lags = np.ix_(*(np.arange(n) - n // 2 if m > 1 else np.zeros(1) for n, m in zip(shape, psf, strict=True)))
        c = np.interp(np.sqrt(sum(lag**2 for lag in lags)), np.arange(len(half)), half, right=0.0)
    return abs(psf2otf(as_filter(c, image, name), shape))


# ---------------------------------------------------------------------------------------------
# Constrained least squares
# ---------------------------------------------------------------------------------------------


def deconvreg(
    img: Array, psf: Array, noisepower: float = 0.0, lrange: Any = (1e-9, 1e9), regop: Any = None
) -> tuple[Array, float]:
    """Deblur an image by a regularised filter: return the smoothest image whose residual has the power of the noise.

    The image J is the inverse transform of H* G / (|H|² + λ |R|²), where R is the transform of the regularisation
    operator. λ is chosen such that ‖img − psf * J‖² = noisepower.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64
        The image, N-D, blurred circularly. Integers are scaled to [0, 1].
    psf : array
        The PSF, not larger than the image in any dimension.
    noisepower : float
        The variance of the noise times the number of pixels, on the scale of [0, 1].
    lrange : (float, float) or float
        The range in which λ is searched. A number is λ itself, and `noisepower` is ignored.
    regop : array, optional
        The regularisation operator; by default the Laplacian in the dimensions in which the PSF has more than one
        element.

    Returns
    -------
    J : array of img's class and shape
        The restored image.
    lagra : float
        λ; it is an end of `lrange` if no λ inside gives the requested residual.

    Raises
    ------
    TypeError
        For another class of image.
    ValueError
        For a PSF or operator that is larger than the image, a negative noise power, a range that is not
        positive and increasing, NaN or infinity.

    Notes
    -----
    MATLAB returns only J if one output is requested. λ is found as a root, since the residual increases with λ;
    MATLAB's minimiser stops at a tolerance of its own.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``deconvreg``. R. C. Gonzalez, R. E. Woods, *Digital
    Image Processing*, 3rd ed., 2007, section 5.9.
    """
    img, x, xp = as_image(img, "img")
    kernel = as_psf(psf, x)
    power = as_scalar(noisepower, "noisepower", 0)
    ends = [as_scalar(v, "lrange", 0) for v in np.ravel(asnumpy(lrange))]
    if len(ends) not in (1, 2) or (len(ends) == 2 and not 0 < ends[0] < ends[1]):
        raise ValueError(f"lrange must be a number or two increasing positive numbers, not {lrange!r}")
    otf = psf2otf(kernel, x.shape)
    operator = as_filter(_laplacian(kernel.shape) if regop is None else regop, x, "regop")
    h2, r2 = abs(otf) ** 2, abs(psf2otf(operator, x.shape)) ** 2
    spectrum = get_fft(xp).fftn(x)
    energy = abs(spectrum) ** 2 / x.size

    def below(lam: float) -> Array:
        return xp.maximum(h2 + lam * r2, np.finfo(np.float64).tiny)

    def residual(t: float) -> float:
        lam = math.exp(t)
        return float((energy * (lam * r2 / below(lam)) ** 2).sum()) - power

    low, high = (math.log(v) if len(ends) > 1 else 0.0 for v in (ends[0], ends[-1]))
    if len(ends) == 1 or residual(low) >= 0:
        lam = ends[0]
    elif residual(high) <= 0:
        lam = ends[1]
    else:
        lam = math.exp(scipy.optimize.brentq(residual, low, high, xtol=1e-12, rtol=1e-12))
    return from_double(get_fft(xp).ifftn(xp.conj(otf) * spectrum / below(lam)).real, img.dtype), lam


def _laplacian(psf: tuple[int, ...]) -> np.ndarray:
    """Return the Laplacian in the dimensions of the PSF: in each, -2 at the centre and 1 on both sides."""
    lengths = [3 if m > 1 or max(psf) == 1 else 1 for m in psf]
    distance = sum(abs(x - n // 2) for x, n in zip(np.indices(lengths), lengths, strict=True))
    return np.where(distance == 1, 1.0, np.where(distance == 0, -2.0 * lengths.count(3), 0.0))

"""Deconvolution on the periodic model: `deconvwnr`, `deconvreg` and `deconvlucy`.

The image is its own continuation, and the blur one product of Fourier
transforms. `deblur.matlab.edgetaper` makes an image fit that model;
`deblur.reconstruct` does without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..backend import Array, asnumpy, check_finite, get_fft
from ..variational.richardson_lucy import extrapolation
from .arguments import (
    EPS,
    IMAGE_CLASSES,
    as_array,
    as_real,
    as_scalar,
    as_whole,
    check_class,
    from_double,
    im2double,
)
from .transfer import psf2otf


def _image(img: Any) -> tuple[Array, Array, ModuleType]:
    """The image as it came, the same as doubles in [0, 1] if it holds integers, and its array module."""
    img, xp = as_array(img, "img")
    check_class(img, "img", IMAGE_CLASSES)
    check_finite(img, "img")
    return img, im2double(img), xp


def _psf(psf: Any, shape: tuple[int, ...], xp: ModuleType) -> Array:
    """The PSF in float64 with as many dimensions as the image, on its device."""
    psf = xp.asarray(asnumpy(as_real(psf, "psf")[0]))
    if psf.ndim > len(shape):
        raise ValueError(f"psf has more dimensions {psf.shape} than the image {shape}")
    psf = psf.reshape(psf.shape + (1,) * (len(shape) - psf.ndim))
    if not bool(psf.any()):
        raise ValueError("psf is zero everywhere")
    if any(m > n for m, n in zip(psf.shape, shape, strict=True)):
        raise ValueError(f"psf {psf.shape} is larger than the image {shape}; crop it")
    return psf


def _product(otf: Array, x: Array, xp: ModuleType) -> Array:
    fft = get_fft(xp)
    return fft.ifftn(otf * fft.fftn(x)).real


# ---------------------------------------------------------------------------------------------
# Wiener
# ---------------------------------------------------------------------------------------------


def deconvwnr(img: Array, psf: Array, nsr: Any = 0.0, icorr: Any = None) -> Array:
    """Deblur an image by the Wiener filter.

    - ``deconvwnr(img, psf)`` is the inverse filter;
    - ``deconvwnr(img, psf, nsr)`` takes the ratio of noise power to signal power;
    - ``deconvwnr(img, psf, ncorr, icorr)`` takes the autocorrelation functions of noise and image.

    With H, G, S and N the transforms of PSF and image and the power of signal
    and noise, the result is the inverse transform of H* S G / (|H|² S + N);
    nsr stands for N with S = 1. A denominator below √eps is taken for √eps.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64
        N-D, blurred circularly. Integers are scaled to [0, 1].
    psf : array
        Not larger than the image in any dimension; used as it is.
    nsr : float or array
        Not negative; an array of the image's shape holds the ratio at each frequency, the zeroth first.
        With `icorr`, the noise's autocorrelation.
    icorr : float or array, optional
        Autocorrelation of the image, as the noise's: an array with the image's number of dimensions and not larger, its
        centre (element floor(size/2) counted from zero) the zero lag; or a vector, which goes for every direction in
        the PSF's dimensions alike, linear between its values from the centre to the end; or a number, the power of
        white noise, which is the zero lag alone.

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
    Octave's package adds eps where nsr is 0 instead, and has no autocorrelations.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``deconvwnr``. R. C. Gonzalez, R. E. Woods, *Digital
    Image Processing*, 3rd ed., 2007, section 5.8.
    """
    img, x, xp = _image(img)
    kernel = _psf(psf, x.shape, xp)
    otf = psf2otf(kernel, x.shape)
    noise: Any
    signal: Any
    if icorr is None:
        noise, _ = as_real(nsr, "nsr")
        if bool((noise < 0).any()) or not (noise.size == 1 or noise.shape == x.shape):
            raise ValueError(
                f"nsr must be a number >= 0 or an array of the image's shape {x.shape} of them, not {nsr!r}"
            )
        noise, signal = (xp.asarray(asnumpy(noise)) if noise.size > 1 else float(noise.item())), 1.0
    else:
        noise, signal = (
            _power(c, n, kernel.shape, x.shape, xp) for c, n in ((nsr, "ncorr"), (icorr, "icorr"))
        )
    top = xp.conj(otf) * signal
    below = xp.maximum(abs(otf) ** 2 * signal + noise, math.sqrt(EPS))
    return from_double(_product(top / below, x, xp), img.dtype)


def _power(corr: Any, name: str, psf: tuple[int, ...], shape: tuple[int, ...], xp: ModuleType) -> Array:
    """The power at each frequency of an autocorrelation function given in one of the three ways."""
    c = xp.asarray(asnumpy(as_real(corr, name)[0]))
    axes = [axis for axis, m in enumerate(psf) if m > 1]
    if c.size > 1 and max(c.shape) == c.size and max(shape) < math.prod(shape):
        half = asnumpy(c).ravel()[c.size // 2 :]
        square = np.zeros((1,) * len(shape))
        for axis in axes:
            lag = np.arange(shape[axis]) - shape[axis] // 2
            square = square + (lag**2).reshape([-1 if d == axis else 1 for d in range(len(shape))])
        c = xp.asarray(np.interp(np.sqrt(square), np.arange(len(half)), half, right=0.0))
    if c.ndim > len(shape) or any(m > n for m, n in zip(c.shape, shape, strict=False)):
        raise ValueError(f"{name} {c.shape} is larger than the image {shape}")
    return abs(psf2otf(c, shape))


# ---------------------------------------------------------------------------------------------
# Constrained least squares
# ---------------------------------------------------------------------------------------------


def deconvreg(
    img: Array, psf: Array, noisepower: float = 0.0, lrange: Any = (1e-9, 1e9), regop: Any = None
) -> tuple[Array, float]:
    """Deblur an image by a regularised filter: the smoothest image that leaves a residual of the noise's power.

    The image J is the inverse transform of H* G / (|H|² + λ |R|²), R the
    transform of the regularisation operator, and λ such that
    ‖img − psf * J‖² = noisepower.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64
        N-D, blurred circularly. Integers are scaled to [0, 1].
    psf : array
        Not larger than the image in any dimension.
    noisepower : float
        The variance of the noise times the number of pixels, on the scale of [0, 1].
    lrange : (float, float) or float
        Where λ is looked for; a number is taken for λ itself, and `noisepower` is ignored.
    regop : array, optional
        R; by default the Laplacian in those dimensions in which the PSF has more than one element.

    Returns
    -------
    J : array of img's class and shape
    lagra : float
        λ: an end of `lrange` if no λ within gives the residual asked for.

    Raises
    ------
    TypeError
        For another class of image.
    ValueError
        For a PSF or operator that is larger than the image, a negative noise power, a range that is not
        positive and increasing, NaN or infinity.

    Notes
    -----
    MATLAB returns the first alone when one output is asked for. λ is the root of the residual, which grows
    with it; MATLAB's minimiser stops at a tolerance of its own.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``deconvreg``. R. C. Gonzalez, R. E. Woods, *Digital
    Image Processing*, 3rd ed., 2007, section 5.9.
    """
    from scipy.optimize import brentq

    img, x, xp = _image(img)
    kernel = _psf(psf, x.shape, xp)
    power = as_scalar(noisepower, "noisepower", 0)
    ends = [as_scalar(v, "lrange", 0) for v in np.ravel(asnumpy(lrange))]
    if len(ends) not in (1, 2) or (len(ends) == 2 and not 0 < ends[0] < ends[1]):
        raise ValueError(f"lrange must be a number or two increasing positive numbers, not {lrange!r}")
    otf = psf2otf(kernel, x.shape)
    operator = psf2otf(_laplacian(kernel.shape) if regop is None else _regop(regop, x.shape), x.shape)
    h2, r2 = abs(otf) ** 2, abs(xp.asarray(operator)) ** 2
    spectrum = get_fft(xp).fftn(x)
    energy = abs(spectrum) ** 2 / x.size

    def below(lam: float) -> Array:
        return xp.maximum(h2 + lam * r2, np.finfo(np.float64).tiny)

    def residual(t: float) -> float:
        lam = math.exp(t)
        return float((energy * (lam * r2 / below(lam)) ** 2).sum()) - power

    if len(ends) == 1:
        lam = ends[0]
    else:
        low, high = (math.log(v) for v in ends)
        if residual(low) >= 0:
            lam = ends[0]
        elif residual(high) <= 0:
            lam = ends[1]
        else:
            lam = math.exp(brentq(residual, low, high, xtol=1e-12, rtol=1e-12))
    out = get_fft(xp).ifftn(xp.conj(otf) * spectrum / below(lam)).real
    return from_double(out, img.dtype), lam


def _laplacian(psf: tuple[int, ...]) -> np.ndarray:
    """Minus 2 in the middle and 1 on either side, summed over the dimensions that the PSF has."""
    axes = [axis for axis, m in enumerate(psf) if m > 1] or list(range(len(psf)))
    out = np.zeros([3 if axis in axes else 1 for axis in range(len(psf))])
    middle = [1 if axis in axes else 0 for axis in range(len(psf))]
    for axis in axes:
        for step, value in ((-1, 1.0), (0, -2.0), (1, 1.0)):
            at = list(middle)
            at[axis] += step
            out[tuple(at)] += value
    return out


def _regop(regop: Any, shape: tuple[int, ...]) -> np.ndarray:
    operator = asnumpy(as_real(regop, "regop")[0])
    if operator.ndim > len(shape) or any(m > n for m, n in zip(operator.shape, shape, strict=False)):
        raise ValueError(f"regop {operator.shape} is larger than the image {shape}")
    return operator


# ---------------------------------------------------------------------------------------------
# Lucy and Richardson
# ---------------------------------------------------------------------------------------------


def deconvlucy(
    img: Any,
    psf: Array,
    numit: int | None = None,
    dampar: Any = None,
    weight: Any = None,
    readout: Any = None,
    subsmpl: int | None = None,
) -> Any:
    """Deblur an image by the damped, accelerated Lucy-Richardson method.

    None stands for MATLAB's ``[]``: the default. Beginning from the image
    itself, and with H circular, each iteration takes the step of
    `deblur.variational.richardson_lucy` from a point extrapolated by Biggs and
    Andrews's rule, with the ratio of image and model

        ratio = weight (img + readout) / (H f + readout) ,

    which damping draws towards 1 where they agree within dampar.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64, or a list of such arrays
        N-D. Integers are scaled to [0, 1] while it works. A list is MATLAB's cell array: ``[img]`` asks for a
        list back, and that list goes on where it ended: [img, result, the result before it, internal], all
        but the first in float64 (integers scaled to [0, 1]).
    psf : array
        Not larger than the (finer) image in any dimension; used as it is.
    numit : int
        Iterations, 10 by default.
    dampar : float or array
        Deviation, in the units of the image, below which a pixel is damped [1]_: with the half squared
        deviation u = (D log(D/M) − D + M)/(dampar²/2) of model M and data D, limited to 1, the ratio minus 1 is
        multiplied by u⁹ (10 − 9 u). 0 by default: none.
    weight : array
        The quality of each pixel, 0 for a bad one; ones by default.
    readout : float or array
        Additive noise (background) and the variance of the camera's read-out noise, in the units of the image; 0 by
        default.
    subsmpl : int
        How many times finer than the image the PSF's grid is, 1 by default. The result is on the finer grid.

    Returns
    -------
    J : array of img's class
        Of img's shape, times `subsmpl` in the PSF's dimensions; or the list described above.

    Raises
    ------
    TypeError
        For another class of image.
    ValueError
        For a PSF that is larger than the image, numbers out of range, arrays of another shape than the image's,
        weights that are zero everywhere, NaN or infinity.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``deconvlucy``.

    .. [1] R. J. Hanisch, R. L. White, R. L. Gilliland, "Deconvolution of Hubble Space Telescope images and
       spectra", in *Deconvolution of Images and Spectra*, ed. P. A. Jansson, 2nd ed., Academic Press 1997.
    .. [2] D. S. C. Biggs, M. Andrews, Appl. Opt. 36 (1997) 1766-1775.
    """
    cell = isinstance(img, list | tuple) and len(img) > 0 and all(getattr(a, "ndim", 0) >= 2 for a in img)
    if cell and len(img) not in (1, 4):
        raise ValueError(
            f"a list must hold the image alone, or the four arrays of an earlier call, not {len(img)}"
        )
    given, x, xp = _image(img[0] if cell else img)
    iterations = as_whole(10 if numit is None else numit, "numit")
    finer = as_whole(1 if subsmpl is None else subsmpl, "subsmpl")
    kernel = xp.asarray(asnumpy(as_real(psf, "psf")[0]))
    axes = [axis for axis, m in enumerate(kernel.shape) if m > 1]
    shape = tuple(n * finer if axis in axes else n for axis, n in enumerate(x.shape))
    otf = psf2otf(_psf(kernel, shape, xp), shape)
    scale = float(np.iinfo(given.dtype).max) - np.iinfo(given.dtype).min if given.dtype.kind in "iu" else 1.0
    w = _like_image(weight, "weight", 1.0, x, xp)
    damping = _like_image(dampar, "dampar", 0.0, x, xp) / scale
    background = _like_image(readout, "readout", 0.0, x, xp) / scale
    if not bool((w > 0).any()):
        raise ValueError("weight is zero everywhere: no pixel is left to restore the image from")

    def spread(a: Array) -> Array:
        for axis in axes:
            a = xp.repeat(a, finer, axis=axis)
        return a

    data = xp.maximum(w * (x + background), 0)
    sensitivity = _product(xp.conj(otf), spread(w), xp) + math.sqrt(EPS)
    if cell and len(img) == 4:
        f, before = (xp.asarray(a) for a in img[1:3])
        steps = list(xp.moveaxis(xp.asarray(img[3]), -1, 0))  # the last, and the one before it
        if f.shape != shape or before.shape != shape or any(s.shape != shape for s in steps):
            raise ValueError(f"the list is of a call with other sizes: {f.shape} is not {shape}")
    else:
        f = before = spread(x)
        steps = [xp.zeros(shape), xp.zeros(shape)]
    for _ in range(iterations):
        a = extrapolation(steps[0], steps[1])  # 0 before there are two
        point = xp.maximum(f + a * (f - before), 0)
        model = _binned(_product(otf, point, xp), axes, finer) + background
        model = xp.where(model == 0, EPS, model)
        ratio = _damped(data, model, damping, xp)
        new = xp.maximum(point * _product(xp.conj(otf), spread(ratio), xp) / sensitivity, 0)
        before, f = f, new
        steps = [new - point, steps[0]]
    if cell:
        return [given, f, before, xp.stack(steps, axis=-1)]
    return from_double(f, given.dtype)


def _like_image(value: Any, name: str, default: float, x: Array, xp: ModuleType) -> Array:
    """A number or an array of the image's shape, not negative."""
    a = xp.asarray(asnumpy(as_real(default if value is None else value, name)[0]))
    if a.size == 1:
        a = xp.full(x.shape, float(a.item()))
    if a.shape != x.shape or bool((a < 0).any()):
        raise ValueError(f"{name} must be a number >= 0, or an array of the image's shape {x.shape} of them")
    return a


def _binned(x: Array, axes: Sequence[int], by: int) -> Array:
    """The mean of each `by` neighbours along `axes`."""
    for axis in axes:
        shape = [*x.shape[:axis], x.shape[axis] // by, by, *x.shape[axis + 1 :]]
        x = x.reshape(shape).mean(axis=axis + 1)
    return x


def _damped(data: Array, model: Array, damping: Array, xp: ModuleType) -> Array:
    """data/model, drawn towards 1 where the two agree within the damping."""
    ratio = data / model
    safe = xp.where(ratio > 0, ratio, 1)
    deviation = xp.where(data > 0, data * xp.log(safe) + model - data, model)
    u = xp.minimum(deviation / xp.where(damping > 0, damping**2 / 2, 1), 1)
    return xp.where(damping > 0, 1 + u**9 * (10 - 9 * u) * (ratio - 1), ratio)

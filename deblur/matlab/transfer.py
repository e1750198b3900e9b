"""Transfer functions, and images prepared for them: `psf2otf`, `otf2psf` and `edgetaper`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..device import Array, check_finite, get_fft, get_xp
from .arguments import EPS, as_array, as_image, as_psf, as_size, from_double


def _sizes(a: Array, name: str, outsize: Sequence[int] | None) -> tuple[Array, tuple[int, ...]]:
    """Return `a` in double precision, and `outsize`, both with the same number of dimensions; missing
    dimensions are 1.
    """
    a = as_array(a, name)
    check_finite(a, name)
    a = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    size = a.shape if outsize is None else as_size(outsize, "outsize", 0)
    dims = max(a.ndim, len(size))
    return a.reshape(a.shape + (1,) * (dims - a.ndim)), size + (1,) * (dims - len(size))


def _real_if_rounding(x: Array, like: Array) -> Array:
    """Return `x` without its imaginary part if that is at most the rounding error of an FFT of `like`."""
    xp = get_xp(x)
    noise = EPS * like.size * math.log2(like.size)
    return x.real.copy() if float(xp.abs(x.imag).max()) <= noise * float(xp.abs(x).max()) else x


def psf2otf(psf: Array, outsize: Sequence[int] | None = None) -> Array:
    """Return the optical transfer function of a point spread function.

    The PSF is padded with zeros at its end to `outsize`, shifted circularly until its
    centre (element floor(size/2), counted from zero) is the first element, and
    transformed.

    Parameters
    ----------
    psf : array, N-D, real or complex
        The point spread function.
    outsize : sequence of int, optional
        Shape of the result, at least that of the PSF in every dimension; by default that of the PSF.

    Returns
    -------
    otf : array of shape `outsize`, complex128
        The transfer function; float64 if its imaginary part is only rounding error,
        as for a point-symmetric PSF.

    Raises
    ------
    ValueError
        If the PSF is larger than `outsize`, or holds NaN or infinity.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``psf2otf``.
    """
    psf, size = _sizes(psf, "psf", outsize)
    xp = get_xp(psf)
    if any(m > n for m, n in zip(psf.shape, size, strict=True)):
        raise ValueError(f"outsize {size} is smaller than the PSF {psf.shape}; crop the PSF or enlarge outsize")
    padded = xp.pad(psf, [(0, n - m) for m, n in zip(psf.shape, size, strict=True)])
    centred = xp.roll(padded, tuple(-(m // 2) for m in psf.shape), tuple(range(padded.ndim)))
    return _real_if_rounding(get_fft(xp).fftn(centred), psf)


def otf2psf(otf: Array, outsize: Sequence[int] | None = None) -> Array:
    """Return the point spread function of an optical transfer function; this is the inverse of `psf2otf`.

    Parameters
    ----------
    otf : array, N-D, real or complex
        The optical transfer function.
    outsize : sequence of int, optional
        Shape of the PSF, at most that of the OTF in every dimension; by default that of the OTF.

    Returns
    -------
    psf : array of shape `outsize`, float64
        The point spread function; complex128 if its imaginary part is more than rounding error.

    Raises
    ------
    ValueError
        If `outsize` is larger than the OTF or not positive, or the OTF holds NaN or infinity.

    Notes
    -----
    As documented, the origin is first moved to the centre, and then the PSF is cut
    out; Octave's package uses the opposite order.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``otf2psf``.
    """
    otf, size = _sizes(otf, "otf", outsize)
    if not all(1 <= m <= n for m, n in zip(size, otf.shape, strict=True)):
        raise ValueError(f"outsize {size} must be positive and not larger than the OTF {otf.shape}")
    return window(_real_if_rounding(get_fft(get_xp(otf)).ifftn(otf), otf), size)


def window(x: Array, size: tuple[int, ...]) -> Array:
    """Return an array of `size` with the elements of `x` around its first element, which moves to the centre."""
    x = get_xp(x).roll(x, tuple(m // 2 for m in size), tuple(range(x.ndim)))
    return x[tuple(slice(m) for m in size)]


def filtered(otf: Array, x: Array) -> Array:
    """Return the real array `x` filtered circularly."""
    fft = get_fft(get_xp(x))
    return fft.ifftn(otf * fft.fftn(x)).real


def edgetaper(img: Array, psf: Array) -> Array:
    """Blur an image towards its edges, so that its periodic continuation has no steps.

    The result is w img + (1 - w) b, where b is the image blurred circularly by the PSF.
    The weight w is 0 at the edges, and 1 where the distance from them exceeds the PSF's
    size. In each dimension it has the factor 1 minus the normalised autocorrelation of
    the PSF's projection onto that dimension. The result stays between the smallest and
    the largest value of the image.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64
        The image, N-D.
    psf : array
        The PSF, smaller than half the image in every dimension in which it has more than
        one element. It is divided by its sum unless it has negative elements.

    Returns
    -------
    tapered : array of img's class and shape
        The blurred image.

    Raises
    ------
    TypeError
        For another class of image.
    ValueError
        If the PSF is too large, zero everywhere or a single element, or if either holds NaN or infinity.

    Notes
    -----
    Octave's package says that its own function differs from MATLAB's, and its values
    are different.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``edgetaper``. The weight is
    as in U. Schmidt, S. Roth, "Shrinkage Fields for Effective Image
    Restoration", CVPR 2014, supplement.
    """
    img, x, xp = as_image(img, "img")
    kernel, shape = as_psf(psf, x), x.shape
    axes = [axis for axis, m in enumerate(kernel.shape) if m > 1]
    if not axes or any(shape[axis] <= 2 * kernel.shape[axis] for axis in axes):
        raise ValueError(f"psf {kernel.shape} must have several elements and be smaller than half the image {shape}")
    if bool((kernel >= 0).all()):
        kernel = kernel / kernel.sum()
    fft = get_fft(xp)
    weight = xp.ones((1,) * x.ndim)
    for axis in axes:
        n = shape[axis]
        projection = kernel.sum(axis=tuple(d for d in range(kernel.ndim) if d != axis))
        # A period of n - 1, followed by its first element, is symmetric about the centre of the image.

        correlation = fft.ifft(xp.abs(fft.fft(projection, n - 1)) ** 2).real
        correlation = xp.concatenate([correlation, correlation[:1]]) / correlation.max()
        weight = weight * (1 - correlation).reshape([n if d == axis else 1 for d in range(x.ndim)])
    tapered = (weight * x + (1 - weight) * filtered(psf2otf(kernel, shape), x)).clip(x.min(), x.max())
    return from_double(tapered, img.dtype)

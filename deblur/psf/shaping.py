"""Preparing a measured PSF: centring, cropping, resampling to the image's pixels and removing noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .estimate import (
    PSFEstimate,
    border,
    centre,
    centre_of_gravity,
    energy_outside,
    gains,
    graded,
    grey,
    placed,
    shift,
    width,
)
from .models import Size, as_shape, coordinates, unit_sum


def recentre(psf: Any) -> np.ndarray:
    """Move the PSF's centre of gravity to its centre by a Fourier shift, so that the restored image is not displaced.

    Parameters
    ----------
    psf : (m, n) array

    Returns
    -------
    (m, n) array, float64
        Non-negative if `psf` is, with the same sum. Values that leave the frame are lost.
    """
    h = grey(psf, "the PSF")
    total = h.sum()
    if not total > 0:
        raise ValueError(
            "the PSF sums to zero or less: it has no centre of gravity; subtract its background first"
        )
    wide = placed(h, tuple(n + 2 * (n // 2) for n in h.shape))
    for _ in range(3):
        away = np.array(centre_of_gravity(wide))
        whole = np.rint(away)
        wide = np.roll(wide, -whole.astype(int), (0, 1))
        if np.abs(away - whole).max() > 1e-3:
            wide = shift(wide, whole - away)
            if h.min() >= 0:
                wide = np.maximum(wide, 0)
    moved = placed(wide, h.shape)
    return moved * (total / moved.sum())


def crop(psf: Any, energy: float = 0.999) -> np.ndarray:
    """Crop the PSF to the smallest centred part of odd sides that holds a share of its light.

    Parameters
    ----------
    psf : (m, n) array
    energy : float
        The share, above 0 and at most 1.

    Returns
    -------
    array, float64
        Its sum is one.
    """
    h = grey(psf, "the PSF")
    if not 0 < energy <= 1:
        raise ValueError(f"energy is a share of the light, above 0 and at most 1, not {energy!r}")
    if energy == 1:
        return unit_sum(h)
    distance = np.maximum(*np.abs(np.broadcast_arrays(*coordinates(h.shape))))
    inside = np.cumsum(np.bincount(distance.ravel(), h.ravel()))
    enough = inside >= (energy - 1e-12) * inside[-1]
    reach = int(enough.argmax()) if enough.any() else len(inside)
    return unit_sum(placed(h, tuple(2 * min(reach, c) + 1 for c in centre(h.shape))))


def resample(psf: Any, scale: float) -> np.ndarray:
    """Resample the PSF: each new pixel is the mean over its area of a cubic spline through the old pixels.

    Parameters
    ----------
    psf : (m, n) array
    scale : float
        New pixels per old pixel along an axis: 2 for an image whose pixels are half as large.

    Returns
    -------
    array, float64
        Of odd sides, with a sum of one.
    """
    from scipy.ndimage import map_coordinates

    h = grey(psf, "the PSF")
    if not (math.isfinite(scale) and 0.02 <= scale <= 50):
        raise ValueError(f"scale must be new pixels in one old pixel, between 0.02 and 50, not {scale!r}")
    if scale == 1:
        return unit_sum(h)
    fine = 5  # sampling points per new pixel, along each axis
    sides, at = [], []
    for n, c in zip(h.shape, centre(h.shape), strict=True):
        reach = max(math.ceil((max(c, n - 1 - c) + 0.5) * scale - 0.5), 0)
        sides.append(2 * reach + 1)
        at.append(((np.arange(sides[-1] * fine) + 0.5) / fine - 0.5 - reach) / scale + c)
    values = map_coordinates(h, np.meshgrid(*at, indexing="ij"), order=3, mode="constant")
    out = values.reshape(sides[0], fine, sides[1], fine).mean(axis=(1, 3))
    return unit_sum(np.maximum(out, 0) if h.min() >= 0 else out)


def denoise(psf: Any, noise: float | None = None) -> np.ndarray:
    """Subtract the PSF's background and attenuate each pixel by Wiener's factor for the noise.

    Parameters
    ----------
    psf : (m, n) array
        In any unit, on a background that is the same all along its border.
    noise : float, optional
        Standard deviation of a pixel; by default that of the border.

    Returns
    -------
    (m, n) array, float64
        Non-negative, with a sum of one.
    """
    h = grey(psf, "the PSF")
    background, deviation = _level(border(h))
    noise = deviation if noise is None else noise
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be a standard deviation, not {noise!r}")
    h = h - background
    return unit_sum(np.maximum(h * gains(h, noise**2), 0))


def _level(values: np.ndarray) -> tuple[float, float]:
    """The median of values, and their standard deviation by the median absolute deviation."""
    level = float(np.median(values))
    return level, 1.4826 * float(np.median(np.abs(values - level)))


def prepare(
    psf: Any,
    *,
    clean: bool = False,
    scale: float = 1.0,
    centred: bool = True,
    energy: float | None = None,
    size: Size | None = None,
) -> PSFEstimate:
    """Prepare a PSF that was read from a file for use, and estimate its error.

    Parameters
    ----------
    psf : (m, n) array
    clean : bool
        `denoise` it.
    scale : float
        `resample` it: new pixels per old pixel along an axis.
    centred : bool
        `recentre` it (default).
    energy : float, optional
        `crop` it to this share of its light.
    size : int or (int, int), optional
        Crop it or pad it with zeros to this size, centre upon centre.

    Returns
    -------
    PSFEstimate
        ``error`` follows from the noise of the border, the background there and the light beyond the frame.
        ``details``: ``moved``, the rows and columns by which it was recentred; ``background`` and ``noise``
        of its border over its peak; ``energy_outside``, extrapolated; ``energy_cut``, the share that `energy` and
        `size` removed.

    Raises
    ------
    ValueError
        For an array that is no PSF.
    """
    h = grey(psf, "the PSF")
    top = float(h.max())
    if not (top > 0 and h.sum() > 0):
        raise ValueError(
            "a PSF holds light; this one sums to zero or less: subtract its background, or negate it"
        )
    edge = border(h) / top
    background, noise, outside = float(np.quantile(edge, 0.05)), 0.0, 0.0
    if np.abs(edge - np.median(edge)).mean() < 0.05:  # an even border shows background and noise, not the PSF
        background, noise = _level(edge)
        outside = energy_outside(np.maximum(h - background * top, 0))
    per_pixel = top * math.sqrt(h.size) / float(np.linalg.norm(h))
    if clean:
        left = math.sqrt(float(gains(h / top - background, noise**2).mean()))
        error = math.hypot(noise * left * per_pixel, outside)
        h = denoise(h)
    else:
        error = math.hypot(noise * per_pixel, outside, background * per_pixel)
    if scale != 1:
        h = resample(h, scale)
    moved = centre_of_gravity(np.maximum(h, 0))
    whole = unit_sum(recentre(h) if centred else h)
    h = whole if energy is None else crop(whole, energy)
    if size is not None:
        h = unit_sum(placed(h, as_shape(size)))
    lies = f"its border lies at {100 * background:.2g} % of its peak"
    off = f"its centre of gravity is ({moved[0]:+.1f}, {moved[1]:+.1f}) pixels from its centre"
    notes = {
        f"{lies}: a background, or cut wings (clean=True)": abs(background) > 1e-3 and not clean,
        f"{off}: centred=True moves it": max(map(abs, moved)) > 0.5 and not centred,
        f"about {100 * outside:.0f} % of its light falls outside its frame": outside > 0.03,
    }
    status, why = graded(error, "", notes)
    cut = max(1 - float(placed(whole, h.shape).sum()), 0.0)
    details = {"moved": moved if centred else (0.0, 0.0), "background": background, "noise": noise}
    details |= {"fwhm": width(h), "energy_outside": outside, "energy_cut": cut}
    return PSFEstimate(h, error, status, why, details)

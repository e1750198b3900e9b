"""A measured PSF made ready: centred, in the picture's pixels, without noise, and no larger than it need be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .estimate import (
    PSFEstimate,
    PSFStatus,
    centre,
    centre_of_gravity,
    energy_outside,
    gains,
    grey,
    placed,
    shift,
    unit_sum,
    width,
)
from .models import Size, as_shape

_PLAIN = 0.05  # of the peak, by which a border may differ along itself that shows background and noise
_FINE = 5  # points a pixel, along each axis, over which a resampled pixel is the mean


def recentre(psf: Any) -> np.ndarray:
    """The PSF with its centre of gravity on its centre, moved by its Fourier series; a restored picture then stays put.

    Parameters
    ----------
    psf : (m, n) array

    Returns
    -------
    (m, n) array, float64
        Non-negative if `psf` is, with the same sum. What leaves the frame is lost.
    """
    h = grey(psf, "the PSF")
    if not h.sum() > 0:
        raise ValueError(
            "the PSF sums to zero or less: it has no centre of gravity; subtract its background first"
        )
    total = h.sum()
    room = [n + 2 * (n // 2) for n in h.shape]
    wide = placed(h, (room[0], room[1]))
    for _ in range(3):
        away = centre_of_gravity(wide)
        whole = np.rint(away).astype(int)
        part = np.array(away) - whole
        wide = np.roll(wide, -whole, (0, 1))
        if np.abs(part).max() > 1e-3:
            wide = shift(wide, -part)
            if h.min() >= 0:
                wide = np.maximum(wide, 0)
    moved = placed(wide, (h.shape[0], h.shape[1]))
    return moved * (total / moved.sum())


def crop(psf: Any, energy: float = 0.999) -> np.ndarray:
    """The smallest middle of the PSF, of odd sides, that holds a share of its light.

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
    r, c = centre(h.shape)
    y, x = np.abs(np.arange(h.shape[0]) - r), np.abs(np.arange(h.shape[1]) - c)
    total = float(h.sum())
    for reach in range(max(h.shape)):
        inside = np.ix_(y <= reach, x <= reach)
        if h[inside].sum() >= (energy - 1e-12) * total:
            break
    return unit_sum(placed(h, (2 * min(reach, r) + 1, 2 * min(reach, c) + 1)) if energy < 1 else h)


def resample(psf: Any, scale: float) -> np.ndarray:
    """The PSF on other pixels: each is the mean of a cubic spline through the old ones over its area.

    Parameters
    ----------
    psf : (m, n) array
    scale : float
        New pixels a length of one old pixel: 2 for a picture whose pixels are half as large.

    Returns
    -------
    array, float64
        Of odd sides, with a sum of one.
    """
    from scipy.ndimage import map_coordinates

    h = grey(psf, "the PSF")
    if not (math.isfinite(scale) and 0.02 <= scale <= 50):
        raise ValueError(f"scale must be new pixels in one old pixel, between 0.02 and 50, not {scale!r}")
    sides, at = [], []
    for n, c in zip(h.shape, centre(h.shape), strict=True):
        reach = max(math.ceil((max(c, n - 1 - c) + 0.5) * scale - 0.5), 0)
        fine = (np.arange((2 * reach + 1) * _FINE) + 0.5) / _FINE - 0.5 - reach
        sides.append(2 * reach + 1)
        at.append(fine / scale + c)
    if scale == 1:
        return unit_sum(h)
    values = map_coordinates(h, np.meshgrid(*at, indexing="ij"), order=3, mode="constant")
    out = values.reshape(sides[0], _FINE, sides[1], _FINE).mean(axis=(1, 3))
    return unit_sum(np.maximum(out, 0) if h.min() >= 0 else out)


def denoise(psf: Any, noise: float | None = None) -> np.ndarray:
    """The PSF without its background, and with each pixel multiplied by how surely it rises above the noise.

    Parameters
    ----------
    psf : (m, n) array
        In any unit, on a background that is the same all along its border.
    noise : float, optional
        Standard deviation of a pixel; that of the border if not given.

    Returns
    -------
    (m, n) array, float64
        Non-negative, with a sum of one.
    """
    h = grey(psf, "the PSF")
    border = _border(h)
    h = h - np.median(border)
    if noise is None:
        noise = 1.4826 * float(np.median(np.abs(border - np.median(border))))
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be a standard deviation, not {noise!r}")
    return unit_sum(np.maximum(h * gains(h, noise**2), 0))


def _border(h: np.ndarray) -> np.ndarray:
    return np.concatenate([h[0], h[-1], h[:, 0], h[:, -1]])


def prepare(
    psf: Any,
    *,
    clean: bool = False,
    scale: float = 1.0,
    centred: bool = True,
    energy: float | None = None,
    size: Size | None = None,
) -> PSFEstimate:
    """Make a PSF that was read from a file ready for use, and tell what is to be told of it.

    Parameters
    ----------
    psf : (m, n) array
    clean : bool
        `denoise` it.
    scale : float
        `resample` it: new pixels a length of one old one.
    centred : bool
        `recentre` it (default).
    energy : float, optional
        `crop` it to this share of its light.
    size : int or (int, int), optional
        Cut or fill it with zeros to this size, centre upon centre.

    Returns
    -------
    PSFEstimate
        ``error`` is what the noise of the border, the background there and the light beyond the frame make of it.
        ``details``: ``moved``, the rows and columns that its centre of gravity was off; ``background`` and ``noise``
        of its border over its peak; ``energy_outside``, extrapolated; ``energy_cut``, what `energy` and `size` took.

    Raises
    ------
    ValueError
        For what is no PSF.
    """
    h = grey(psf, "the PSF")
    top = float(h.max())
    if not (top > 0 and h.sum() > 0):
        raise ValueError(
            "a PSF has light in it; this one sums to zero or less: subtract its background, or negate it"
        )
    border = _border(h) / top
    background, noise, outside = float(np.quantile(border, 0.05)), 0.0, 0.0
    if (
        np.abs(border - np.median(border)).mean() < _PLAIN
    ):  # it shows what lies around, and not the PSF itself
        background = float(np.median(border))
        noise = 1.4826 * float(np.median(np.abs(border - background)))
        outside = energy_outside(np.maximum(h - background * top, 0))
    size_of = float(np.linalg.norm(h)) / top
    left = float(gains(h / top - background, noise**2).mean()) if clean else 1.0
    error = math.hypot(noise * math.sqrt(h.size * left) / size_of, outside)
    if not clean:
        error = math.hypot(error, abs(background) * math.sqrt(h.size) / size_of)
    if clean:
        h = denoise(h)
    if scale != 1:
        h = resample(h, scale)
    moved = centre_of_gravity(np.maximum(h, 0))
    if centred:
        h = recentre(h)
    h = unit_sum(h)
    before = h
    if energy is not None:
        h = crop(h, energy)
    if size is not None:
        h = unit_sum(placed(h, as_shape(size)))
    kept = float(placed(before, (h.shape[0], h.shape[1])).sum())
    status, reasons = PSFStatus.of(error), []
    if abs(background) > 1e-3 and not clean:
        reasons.append(
            f"its border lies at {100 * background:.2g} % of its peak: a background, or cut wings (clean=True)"
        )
    if max(abs(m) for m in moved) > 0.5 and not centred:
        reasons.append(
            f"its centre of gravity is ({moved[0]:+.1f}, {moved[1]:+.1f}) pixels off: centred=True moves it"
        )
    if outside > 0.03:
        reasons.append(f"about {100 * outside:.0f} % of its light falls outside its frame")
    details = {
        "moved": moved if centred else (0.0, 0.0),
        "background": background,
        "noise": noise,
        "fwhm": width(h),
        "energy_outside": outside,
        "energy_cut": max(1 - kept, 0.0),
    }
    return PSFEstimate(h, error, status, "; ".join(reasons), details)

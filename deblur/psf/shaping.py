"""Prepare a PSF of an image or a volume: centre it, crop it, resample it to the pixels of the image, and
remove noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from ..errors import as_number, check_flags, check_number, warn
from .estimate import PSFEstimate, border, energy_outside, gains, graded, grey, listed, pixels, placed, shift, width
from .models import Lengths, Size, as_shape, centre, centre_of_gravity, coordinates, per_axis, unit_sum


def recentre(psf: Any) -> np.ndarray:
    """Move the PSF's centre of gravity to its centre by a Fourier shift, so that the restored image is not displaced.

    Parameters
    ----------
    psf : (m, n) or (p, m, n) array
        The PSF.

    Returns
    -------
    array of the same shape, float64
        The shifted PSF with the same sum, non-negative if `psf` is. Values that leave the frame are lost.

    Raises
    ------
    ValueError
        If the sum of the PSF is not positive.
    """
    h, unit = grey(psf, "the PSF", (1, 2, 3))
    total = h.sum()
    if not total > 0:
        raise ValueError("the PSF sums to zero or less and has no centre of gravity; subtract its background")
    wide = placed(h, tuple(n + 2 * (n // 2) for n in h.shape))
    for _ in range(3):
        away = np.array(centre_of_gravity(wide))
        whole = np.rint(away)
        wide = np.roll(wide, -whole.astype(int), tuple(range(h.ndim)))
        if np.abs(away - whole).max() > 1e-3:
            wide = shift(wide, whole - away)
            if h.min() >= 0:
                wide = np.maximum(wide, 0)
    moved = placed(wide, h.shape)
    return moved * (total / moved.sum()) * unit


def crop(psf: Any, energy: float = 0.999) -> np.ndarray:
    """Crop the PSF to the smallest centred part of odd sides that holds a share of its light, or keep it whole.

    Parameters
    ----------
    psf : (m, n) or (p, m, n) array
        The PSF.
    energy : float
        The share, above 0 and at most 1.

    Returns
    -------
    array, float64
        The cropped PSF, with a sum of one.
    """
    h, _ = grey(psf, "the PSF", (1, 2, 3))
    if not 0 < as_number(energy) <= 1:
        raise ValueError(f"energy is a share of the light, above 0 and at most 1, not {energy!r}")
    if energy == 1:
        return unit_sum(h)
    distance = np.max(np.abs(np.broadcast_arrays(*coordinates(h.shape))), axis=0)
    inside = np.cumsum(np.bincount(distance.ravel(), h.ravel()))
    enough = inside >= (energy - 1e-12) * inside[-1]
    reach = int(enough.argmax()) if enough.any() else len(inside)
    return unit_sum(placed(h, tuple(2 * min(reach, c) + 1 for c in centre(h.shape))))


def resample(psf: Any, scale: Lengths) -> np.ndarray:
    """Resample the PSF by a spline that keeps the means over the old pixels and is averaged over the new ones.

    Parameters
    ----------
    psf : (m, n) or (p, m, n) array
        The PSF.
    scale : float or one for each axis
        Number of new pixels per old pixel along an axis, from 0.02 to 50: 2 for an image whose pixels are half as
        large.

    Returns
    -------
    array, float64
        The resampled PSF, with odd sides and a sum of one.
    """
    h, _ = grey(psf, "the PSF", (1, 2, 3))
    scales = per_axis(scale, h.ndim, "scale, new pixels in one old pixel,")
    if not (min(scales) >= 0.02 and max(scales) <= 50):
        raise ValueError(f"scale, new pixels in one old pixel, must lie between 0.02 and 50, not {scale!r}")
    out, room = h, 4  # pixels of darkness beyond each end
    for axis, (n, c, s) in enumerate(zip(h.shape, centre(h.shape), scales, strict=True)):
        if s != 1:
            reach = max(math.ceil((max(c, n - 1 - c) + 0.5) * s - 0.5), 0)
            at = ((np.arange(2 * reach + 2) - 0.5 - reach) / s + c + 0.5 + room).clip(0, n + 2 * room)
            # The light up to the end of each old pixel is known exactly. Its spline gives the light up to the ends of
            # the new pixels, limited to the values on both sides, since the light never decreases.
            light = np.cumsum(np.pad(np.moveaxis(out, axis, 0), [(room + 1, room)] + [(0, 0)] * (h.ndim - 1)), axis=0)
            found = scipy.interpolate.make_interp_spline(np.arange(len(light)), light, k=5)(at)
            if h.min() >= 0:
                found = found.clip(light[np.floor(at).astype(int)], light[np.ceil(at).astype(int)])
            out = np.moveaxis(np.diff(found, axis=0), 0, axis)
    return unit_sum(out)


def for_voxels(psf: Any, voxel: Lengths | None, image_voxel: Lengths | None) -> np.ndarray:
    """Return the PSF on the voxels of an image, if it was measured or computed on other voxels.

    Parameters
    ----------
    psf : (m, n) or (p, m, n) array
        The PSF.
    voxel, image_voxel : float, or one for each axis, or None
        Sides of a voxel of the PSF and of the image, in the same unit, or (distance of the planes, side of a pixel).
        None stands for unknown sides, NaN for one unknown side.

    Returns
    -------
    array, float64
        The PSF with a sum of one, resampled along the axes where the sizes differ by more than 1 %; without such an
        axis it is not changed.

    Raises
    ------
    ValueError
        For sizes that are not positive, or that differ by a factor of more than 50.

    Warns
    -----
    PSFWarning
        If only one of the two sizes along an axis is known, so that the PSF is not resampled there. Also if the PSF's
        voxels are larger than the image's, and too coarse for its shape.
    """
    h, unit = grey(psf, "the PSF", (1, 2, 3))
    given = (math.nan if sides is None else sides for sides in (voxel, image_voxel))
    own, its = (np.array(per_axis(sides, h.ndim, "voxel", gaps=True)) for sides in given)
    for whose, sides, other in (("PSF", own, its), ("image", its, own)):
        if (gap := np.isnan(sides) & ~np.isnan(other)).any():
            along, known = ("ZYX"[-h.ndim :][i] for i in np.flatnonzero(gap)), listed(other[gap], "g")
            warn(
                f"the size of the {whose}'s voxels along {', '.join(along)} is not known, the other's is {known}: "
                "nothing is resampled there"
            )
    scales = np.where(np.abs(own / its - 1) >= 0.01, own / its, 1.0)
    peak = np.unravel_index(h.argmax(), h.shape)
    for axis, scale in enumerate(scales):
        line = np.moveaxis(h, axis, 0)[(slice(None), *np.delete(peak, axis))]
        # The spectrum of the line at the Nyquist frequency, relative to that at zero.
        if scale > 1 and abs((line[::2].sum() - line[1::2].sum()) / line.sum()) > 0.15:
            warn(
                f"along axis {axis} the PSF's voxels of {own[axis]:g} are larger than the image's of {its[axis]:g}, "
                "and too coarse: measure or compute it on smaller ones"
            )
    return resample(h, scales.tolist()) if (scales != 1).any() else h * unit


def denoise(psf: Any, noise: float | None = None) -> np.ndarray:
    """Subtract the PSF's background and attenuate each pixel by Wiener's factor for the noise.

    Parameters
    ----------
    psf : (m, n) or (p, m, n) array
        The PSF, in any unit, on a background that is constant along its border.
    noise : float, optional
        Standard deviation of the noise of a pixel, in the unit of the PSF; by default that of the border.

    Returns
    -------
    array of the same shape, float64
        The PSF, non-negative and with a sum of one.
    """
    h, unit = grey(psf, "the PSF", (1, 2, 3))
    background, deviation = _level(border(h))
    noise = deviation if noise is None else min(check_number(noise, "noise, a standard deviation,") / unit, 1e100)
    h = h - background
    return unit_sum(np.maximum(h * gains(h, noise**2), 0))


def cut_off_noise(psf: np.ndarray, least: float = 0.03) -> float:
    """Return the share of the light of a PSF (m, n) that is noise cut off at zero; 0 if it is not above `least`.

    The border shows such noise, far below the peak. An irregular border near the peak is light, as of a mask in an
    aperture.
    """
    edge, light = border(psf), float(psf.sum())
    share = float(edge.mean()) * psf.size / light if light > 0 and psf.min() >= 0 else 0.0
    return share if share > least and is_cut_off(edge) and edge[edge > 0].mean() < 0.06 * psf.max() else 0.0


def without_cut_off_noise(psf: np.ndarray) -> np.ndarray:
    """Return the PSF after `denoise`, with the same sum and a warning, if `cut_off_noise` finds noise; else the PSF
    itself.
    """
    if not (share := cut_off_noise(psf)):
        return psf
    warn(f"{share:.0%} of the PSF's light is noise cut off at zero, and was removed; deblur.Blur(psf, ...) keeps it")
    return denoise(psf) * psf.sum()


def is_cut_off(values: np.ndarray) -> bool:
    """Return True if values along a border are noise that was cut off at zero: zeros and other values alternate
    randomly.
    """
    return len(values) > 28 and bool(np.diff(values > 0).mean() > 0.3)


def _level(values: np.ndarray) -> tuple[float, float]:
    """Return the median of values, and their standard deviation by the median absolute deviation.

    For noise that was cut off at zero, return its mean, and its standard deviation before it was cut off.
    """
    level, upper = np.quantile(values, (0.5, 0.8413)).tolist()
    if is_cut_off(values):
        return float(values[values < 3 * upper].mean()), upper
    return level, 1.4826 * float(np.median(np.abs(values - level)))


def prepare(
    psf: Any,
    *,
    clean: bool = False,
    scale: Lengths = 1.0,
    centred: bool = True,
    energy: float | None = None,
    size: Size | None = None,
) -> PSFEstimate:
    """Prepare a PSF from a file for use, and estimate its error.

    Parameters
    ----------
    psf : (m, n) or (p, m, n) array
        The PSF.
    clean : bool
        True removes noise and background by `denoise`.
    scale : float or one for each axis
        Number of new pixels per old pixel along an axis, for `resample`.
    centred : bool
        True (default) moves the centre of gravity to the centre by `recentre`.
    energy : float, optional
        Share of the light to which `crop` reduces the PSF.
    size : int or tuple of int, optional
        Final size, to which the PSF is cropped or padded with zeros around its centre.

    Returns
    -------
    PSFEstimate
        ``error`` follows from noise and background at the border, and from the light beyond the frame. ``details`` has
        ``moved``, the shift by `recentre` along each axis in pixels; ``background`` and ``noise`` of the border,
        relative to the peak; ``fwhm`` in pixels; ``energy_outside``, the extrapolated share of the light beyond the
        frame; and ``energy_cut``, the share that `energy` and `size` removed.

    Raises
    ------
    ValueError
        If the array is not a PSF.
    """
    check_flags(clean=clean, centred=centred)
    h = unit_sum(grey(psf, "the PSF", (1, 2, 3))[0])
    top = float(h.max())
    # A line or a box fills its frame, so that its border is the PSF itself.
    edge = border(h) / top if min(h.shape) > 2 and np.ptp(h) > 0 else np.zeros(1)
    background, noise, outside = float(np.quantile(edge, 0.05)), 0.0, 0.0
    if edge.any() and np.abs(edge - np.median(edge)).mean() < 0.05:  # shows background and noise, not the PSF
        background, noise = _level(edge)
        outside = energy_outside(np.maximum(h - background * top, 0))
    per_pixel = top * math.sqrt(h.size) / float(np.linalg.norm(h))
    left = math.sqrt(float(gains(h / top - background, noise**2).mean())) if clean else 1.0
    error = math.hypot(noise * left * per_pixel, outside, 0.0 if clean else background * per_pixel)
    h = resample(denoise(h) if clean else h, scale)
    moved = centre_of_gravity(np.maximum(h, 0))
    whole = unit_sum(recentre(h) if centred else h)
    h = whole if energy is None else crop(whole, energy)
    if size is not None:
        h = unit_sum(placed(h, as_shape(size, h.ndim)))
    lies = f"its border lies at {100 * background:.2g} % of its peak"
    off = f"its centre of gravity is {listed(moved, '+.1f')} {pixels(h)} from its centre"
    notes = {
        f"{lies}: a background, or cut wings (clean=True)": abs(background) > 1e-3 and not clean,
        f"{off}: centred=True moves it": max(map(abs, moved)) > 0.5 and not centred,
        f"about {100 * outside:.0f} % of its light falls outside its frame": outside > 0.03,
    }
    cut = max(1 - float(placed(whole, h.shape).sum()), 0.0)
    details = {"moved": moved if centred else (0.0,) * h.ndim, "background": background, "noise": noise}
    details |= {"fwhm": width(h), "energy_outside": outside, "energy_cut": cut}
    return graded(h, error, details, notes)

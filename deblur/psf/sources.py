"""Find point sources, such as stars and beads, on a slowly varying background."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import scipy

from ..device import as_real
from ..operators.matrix import by

FOUND = 6.0  # least signal-to-noise ratio of a source


def flat_tops(image: np.ndarray) -> np.ndarray:
    """Return the pixels of saturated peaks: at least three bright neighbours that share the largest value around them.

    If the brightest peak is flat, all pixels with its value are saturated.
    """
    low, high = np.median(image), image.max()
    peaks = image == scipy.ndimage.maximum_filter(image, 5)
    labels, _ = scipy.ndimage.label(peaks & (image > low + 0.8 * (high - low)))
    flat = np.bincount(labels.ravel())[labels] * (labels > 0) >= 3
    return flat | (image == high) if (flat & (image == high)).any() else flat


def without_background(image: np.ndarray, side: int) -> tuple[np.ndarray, float, float]:
    """Return the image minus its background, interpolated between blocks of about `side` pixels, the noise's
    deviation, and the share of pixels where noise was cut off at black.
    """
    blocks = [max(n // max(side, 32), 1) for n in image.shape]
    ends = [np.array_split(np.arange(n), b) for n, b in zip(image.shape, blocks, strict=True)]

    def measured(values: np.ndarray) -> np.ndarray:
        return np.array([_clipped(values[np.ix_(*part)]) for part in itertools.product(*ends)])

    cells, dark = measured(image), image == image.min()
    cut_off, gain = float(dark.mean()), (3.2 * math.sqrt(math.pi)) ** (image.ndim / 2)
    # Noise alternates with black, sources do not. Means over neighbours show level and size of noise that was cut off.
    alternates = cut_off > 0.25 and np.diff(dark).mean() > cut_off * (1 - cut_off)
    means = measured(scipy.ndimage.gaussian_filter(image, 1.6)) * (1, gain) if alternates else cells
    hidden = np.median(means[:, 1]) > 2 * np.median(cells[:, 1])
    level, spread = (means if hidden else cells).T.reshape(2, *blocks)
    if min(blocks[-2:]) > 2:
        level = scipy.ndimage.median_filter(level, 3, mode="nearest")  # a block full of sources is too bright
    at = [(np.arange(n) + 0.5) * b / n - 0.5 for n, b in zip(image.shape, blocks, strict=True)]
    above = image - scipy.ndimage.map_coordinates(level, np.meshgrid(*at, indexing="ij"), order=1, mode="nearest")
    rounding = 16 * np.finfo(float).eps * float(np.abs(image).max())  # every image has rounding errors
    return above, max(float(np.median(spread)), 1e-9 * float(np.abs(above).max()), rounding), cut_off * hidden


def _clipped(values: np.ndarray) -> tuple[float, float]:
    """Return level and standard deviation without sources, by five rounds of clipping at three deviations above the
    median.
    """
    v = values.ravel()
    for _ in range(5):
        middle = float(np.median(v))
        away = np.abs(v - middle)
        # If the noise is smaller than the step of integer values, most values are equal.

        spread = float(np.median(away)) / 0.6745 or float(away.min(where=away > 0, initial=away.max())) / 2
        kept = v[(v <= middle + 3 * spread) & (v >= middle - 4 * spread)]
        if len(kept) in (0, len(v)):
            break
        v = kept
    return float(np.median(v)), max(float(np.std(v)), spread)


def detected(above: np.ndarray, noise: float, positions: Any) -> tuple[np.ndarray, float, np.ndarray]:
    """Find sources by matched filtering with Gaussians.

    Parameters
    ----------
    above : (M, N) or (P, M, N) array
        The image without its background.
    noise : float
        The standard deviation of the noise.
    positions : (k, 2) or (k, 3) array or None
        Indices of the sources to within two pixels, if they are known.

    Returns
    -------
    positions : (k, 2) or (k, 3) array
        Indices of the brightest pixels, in order of brightness.
    scale : float
        Standard deviation of the Gaussian that detects them best, in pixels.
    snr : (k,) array
        Signal-to-noise ratios.

    Raises
    ------
    ValueError
        If no point exceeds the noise.
    """
    best, scale, signal = 0.0, 1.0, above
    for width in (1.0, 1.6, 2.5, 4.0, 6.3):
        if 8 * width > min(above.shape):
            break
        gain = (2 * math.sqrt(math.pi) * width) ** (above.ndim / 2) / (noise or 1.0)
        filtered = scipy.ndimage.gaussian_filter(above, width, mode="constant") * gain
        peak = filtered == scipy.ndimage.maximum_filter(filtered, 2 * math.ceil(2 * width) + 1)
        score = float(np.sqrt(np.sort(filtered[peak & (filtered > FOUND)])[-50:]).sum())  # of the 50 brightest peaks
        if score > 1.02 * best:
            best, scale, signal, peaks = score, width, filtered, peak
    if best == 0:
        raise ValueError(
            f"no point rises {FOUND:g} times above the noise, and the brightest pixel by itself "
            f"{above.max() / (noise or 1.0):.2g} times: show stars or beads, or expose longer"
        )
    if positions is None:
        at = np.argwhere(peaks & (signal > FOUND))
    else:
        near = np.clip(np.rint(positions).astype(int), 2, np.array(above.shape) - 3)
        offsets = np.indices([5] * above.ndim).reshape(above.ndim, -1).T - 2
        at = near + offsets[signal[tuple(np.moveaxis(near[:, None] + offsets, -1, 0))].argmax(axis=1)]
    most = 1200 if above.ndim == 2 else 100  # more would not improve the mean
    at = at[np.argsort(signal[tuple(at.T)])[::-1][:most]]
    return at.astype(float), scale, signal[tuple(at.T)]


def checked_positions(positions: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return positions as a (k, axes) array; raise ValueError unless they are inside an image of this shape."""
    names = ("plane", "row", "column")[-len(shape) :]
    at = np.atleast_2d(as_real(positions, "positions", float))
    if at.ndim != 2 or at.shape[1] != len(shape) or at.size == 0 or not np.isfinite(at).all():
        raise ValueError(f"positions must be (k, {len(shape)}) finite numbers, {', '.join(names)}, not {at.shape}")
    outside = ((at < -0.5) | (at > np.array(shape) - 0.5)).any(axis=1)
    if outside.any():
        first = ", ".join(f"{name} {value:g}" for name, value in zip(names, at[outside][0], strict=True))
        raise ValueError(
            f"{int(outside.sum())} of {len(at)} positions, such as {first}, lie outside the image of {by(shape)}; "
            f"positions are ({', '.join(names)}), not (x, y)"
        )
    return at

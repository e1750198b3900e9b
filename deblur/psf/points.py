"""The PSF from pictures of points: stars, beads, pinholes.

Every point is the PSF itself, displaced by a fraction of a pixel, as bright as the point, on a background, with
neighbours. The sources are found by matched filtering, the PSF is the robust mean of their pictures after these have
been displaced back, and each source is fitted with it anew: three or four rounds settle it. In every round the other
sources, as far as they are known, are taken off (P. B. Stetson, DAOPHOT, PASP 99 (1987) 191). What shift and
average do to a PSF that the pixels sample badly is Anderson and King's subject (PASP 112 (2000) 1360): the fractions of
many points cancel the aliases.

Where the PSF varies, each source is centred by the PSF of its place: the mean and a few eigen-PSFs, whose shares are
smooth functions of the position, as in PSFEx (E. Bertin, 2011). What of it is more than noise the sources tell that
are left out in turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.fft

from ..operators.varying import cell_centres
from .estimate import (
    PSFEstimate,
    PSFMap,
    PSFStatus,
    centre_of_gravity,
    energy_outside,
    gains,
    grey,
    placed,
    shift,
    width,
)
from .models import Size, as_shape, unit_sum

_SCALES = (1.0, 1.6, 2.5, 4.0, 6.3)  # standard deviations of the filters that look for sources
_FOUND, _USED = 6.0, 15.0  # signal over noise of what is a source, and of what is averaged
_MOST = 300  # the brightest sources are averaged; more do not better the mean
_SPREAD = 0.5  # of the light, what lies beyond the first size only of what is no point
_MARGIN = 4  # pixels round the PSF that show the background
_ROUNDS = 4
_FEWEST = 8  # sources that show how the PSF varies
_FORETOLD = 0.8  # of the squared error of the mean: with what is left a function of the position counts
_UNSEEN = 0.01  # relative error that no scatter shows
_SAMPLED, _UNDERSAMPLED = 2.0, 0.02  # a width in pixels, and the error that narrower PSFs have besides


def from_points(
    image: Any,
    positions: Any = None,
    size: Size | None = None,
    *,
    saturation: float | None = None,
    grid: tuple[int, int] | None = None,
) -> PSFEstimate:
    """Measure the PSF from a picture of stars, beads or pinholes.

    Parameters
    ----------
    image : (M, N) array
        Bright points on a dark, slowly varying background, in any unit, not
        compressed by a tone curve.
    positions : (k, 2) array, optional
        Rows and columns of the points, to a pixel or two; found if not given.
    size : int or (int, int), optional
        Rows and columns of the PSF; by default as far as it rises above the noise.
    saturation : float, optional
        From this value on a pixel is saturated. By default what integers
        reach at most, and tops that are flat. Saturated points are left out.
    grid : (int, int), optional
        Also tell how the PSF varies: PSFs in the middle of so many rows and
        columns of equal parts of the picture, as `PSFEstimate.map`.

    Returns
    -------
    PSFEstimate
        Its centre of gravity is the centre. ``details``: ``points`` used,
        ``left_out`` and why, ``fwhm``, ``energy_outside``
        (beyond the size, extrapolated), ``positions`` (k, 2) and ``flux`` (k,)
        of those used, ``variation``: how much PSFs differ across the picture,
        relative to their mean.

    Raises
    ------
    ValueError
        If there is no point, all are saturated or too near the edge, or
        positions lie outside the picture; says what to do.

    Notes
    -----
    What is measured holds the pixel's own aperture, since the pixels saw the
    points. A bead that is not small against the PSF widens it.

    Examples
    --------
    >>> import numpy as np, deblur
    >>> sky = np.zeros((90, 90))
    >>> sky[[20, 30, 65], [25, 60, 40]] = 50, 80, 30
    >>> truth = deblur.psf.gaussian(15, 1.7)
    >>> picture = deblur.degrade(sky, truth, noise=0.005, seed=0)
    >>> found = deblur.psf.from_points(picture, size=15)
    >>> bool(abs(found.psf - truth).max() < 0.01 * truth.max())
    True
    """
    top = saturation
    if top is None and np.asarray(image).dtype.kind in "iu":
        top = float(np.iinfo(np.asarray(image).dtype).max)
    picture = grey(image)
    if min(picture.shape) < 9:
        raise ValueError(
            f"a picture of {picture.shape[0]} x {picture.shape[1]} pixels has no room for points"
        )
    if size is not None:
        size = as_shape(size)
        if max(size[0] / picture.shape[0], size[1] / picture.shape[1]) > 0.5:
            raise ValueError(f"a PSF of size {size} is more than half of a picture of {picture.shape}")
    saturated = np.zeros(picture.shape, bool) if top is None else picture >= top
    flat = _flattened(picture)
    saturated |= flat
    if flat.any() and flat[picture == picture.max()].any():  # where one top was cut off, all were
        saturated |= picture == picture.max()
    above, noise = _without_background(picture, 48 if size is None else 3 * max(size))
    at, scale, snr = _found(above, noise) if positions is None else _given(positions, above, noise)
    half = max(math.ceil(4.5 * scale) + 1, 4)
    shape = (2 * half + 1, 2 * half + 1) if size is None else size
    field = _Field(above, noise, saturated, at, scale, snr)
    mean = field.average(shape)
    if size is None:
        for _ in range(4):
            side = _needed(mean)
            if side <= max(mean.psf.shape) or side + 2 * _MARGIN > 0.5 * min(picture.shape):
                break
            if energy_outside(mean.psf) > _SPREAD:
                break
            mean = field.average((side, side))
        side = min(_needed(mean), max(mean.psf.shape))
        mean = mean.cut((side, side))
    return _estimate(mean, picture.shape, grid)


# ---------------------------------------------------------------------------------------------
# Sources
# ---------------------------------------------------------------------------------------------


def _flattened(picture: np.ndarray) -> np.ndarray:
    """Pixels of high tops that are flat: three or more neighbours that all hold the largest value around."""
    from scipy import ndimage

    low = np.median(picture)
    top = (picture == ndimage.maximum_filter(picture, 5)) & (picture > low + 0.8 * (picture.max() - low))
    labels, _ = ndimage.label(top)
    return np.bincount(labels.ravel())[labels] * (labels > 0) >= 3


def _without_background(picture: np.ndarray, side: int) -> tuple[np.ndarray, float]:
    """The picture less its slowly varying background, and the noise's standard deviation."""
    from scipy.interpolate import RegularGridInterpolator

    side = max(side, 32)
    blocks = [max(n // side, 1) for n in picture.shape]
    rows, cols = (np.linspace(0, n, b + 1).astype(int) for n, b in zip(picture.shape, blocks, strict=True))
    level, spread = np.zeros(blocks), np.zeros(blocks)
    for i in range(blocks[0]):
        for j in range(blocks[1]):
            level[i, j], spread[i, j] = _clipped(picture[rows[i] : rows[i + 1], cols[j] : cols[j + 1]])
    noise = float(np.median(spread))
    if max(blocks) == 1:
        return picture - level[0, 0], noise
    if min(blocks) > 2:
        from scipy.ndimage import median_filter

        level = median_filter(level, 3, mode="nearest")  # a block full of sources is not believed
    middle = [(edges[1:] + edges[:-1] - 1) / 2 for edges in (rows, cols)]
    for axis in (0, 1):
        if len(middle[axis]) == 1:  # one block: the same all along
            middle[axis] = np.array([0.0, picture.shape[axis]])
            level = np.repeat(level, 2, axis)
    smooth = RegularGridInterpolator(middle, level, bounds_error=False, fill_value=None)
    y, x = (np.clip(np.arange(n), m[0], m[-1]) for n, m in zip(picture.shape, middle, strict=True))
    return picture - smooth((y[:, None], x[None, :])), noise


def _clipped(values: np.ndarray) -> tuple[float, float]:
    """Level and standard deviation of what is left after five rounds of clipping beyond three deviations above."""
    v = np.sort(values.ravel())
    for _ in range(5):
        middle = float(np.median(v))
        spread = float(np.median(np.abs(v - middle))) / 0.6745
        kept = v[(v <= middle + 3 * spread) & (v >= middle - 4 * spread)]
        if len(kept) in (0, len(v)):
            break
        v = kept
    return float(np.median(v)), max(float(np.std(v)) if len(v) > 1 else 0.0, spread)


def _found(above: np.ndarray, noise: float) -> tuple[np.ndarray, float, np.ndarray]:
    """Where sources are, the standard deviation of the filter that sees them best, and their signal over noise."""
    from scipy.ndimage import gaussian_filter, maximum_filter

    floor = max(noise, 1e-9 * float(np.abs(above).max())) or 1.0
    best: tuple[float, float] = (0.0, 1.0)
    for scale in _SCALES:
        if 8 * scale > min(above.shape):
            break
        filtered = gaussian_filter(above, scale, mode="constant") * (2 * math.sqrt(math.pi) * scale / floor)
        peaks = np.sort(filtered[_is_peak(filtered, scale)])[::-1]
        peaks = peaks[peaks > _FOUND][:50]
        score = float(np.sqrt(peaks).sum()) if len(peaks) else 0.0
        if score > 1.02 * best[0]:
            best = (score, scale)
    score, scale = best
    if score == 0:
        raise ValueError(
            f"no point rises {_FOUND:g} times above the noise (standard deviation {noise:.3g}); show a picture of "
            "stars, beads or pinholes, expose it longer, or give positions"
        )
    filtered = gaussian_filter(above, scale, mode="constant") * (2 * math.sqrt(math.pi) * scale / floor)
    reach = maximum_filter(filtered, 2 * math.ceil(2 * scale) + 1)
    at = np.argwhere((filtered == reach) & (filtered > _FOUND))
    snr = filtered[tuple(at.T)]
    order = np.argsort(snr)[::-1][: 4 * _MOST]
    return at[order].astype(float), scale, snr[order]


def _is_peak(filtered: np.ndarray, scale: float) -> np.ndarray:
    from scipy.ndimage import maximum_filter

    return filtered == maximum_filter(filtered, 2 * math.ceil(2 * scale) + 1)


def _given(positions: Any, above: np.ndarray, noise: float) -> tuple[np.ndarray, float, np.ndarray]:
    at = np.atleast_2d(np.asarray(positions, dtype=float))
    if at.ndim != 2 or at.shape[1] != 2 or at.size == 0 or not np.isfinite(at).all():
        raise ValueError(
            f"positions must be (k, 2) finite numbers, rows and columns, not of shape {at.shape}"
        )
    outside = ((at < -0.5) | (at > np.array(above.shape) - 0.5)).any(axis=1)
    if outside.any():
        r, c = at[outside][0]
        raise ValueError(
            f"{int(outside.sum())} of {len(at)} positions lie outside the picture of {above.shape[0]} x "
            f"{above.shape[1]} pixels, the first at row {r:g}, column {c:g}; positions are (row, column), not (x, y)"
        )
    _, scale, _ = _found(above, noise)
    near = np.clip(np.rint(at).astype(int), 2, np.array(above.shape) - 3)
    windows = above[
        near[:, 0, None, None] + np.arange(-2, 3)[:, None], near[:, 1, None, None] + np.arange(-2, 3)
    ]
    first = windows.reshape(len(at), -1).argmax(axis=1)
    snr = windows.max(axis=(1, 2)) / max(noise, np.finfo(float).tiny) * scale
    return near + np.stack([first // 5 - 2, first % 5 - 2], axis=1).astype(float), scale, snr


# ---------------------------------------------------------------------------------------------
# The mean
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mean:
    """The mean PSF, the variance of each of its pixels, and the pictures (k, m, n) that it is the mean of, with their
    weights."""

    psf: np.ndarray
    variance: np.ndarray
    stamps: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class _Measured(_Mean):
    """The mean of sources at places, with their fluxes, and why others were left out."""

    at: np.ndarray
    flux: np.ndarray
    left_out: dict[str, int]

    def cut(self, shape: tuple[int, int]) -> _Measured:
        stamps = np.stack([placed(s, shape) for s in self.stamps])
        return replace(
            self, psf=placed(self.psf, shape), variance=placed(self.variance, shape), stamps=stamps
        )


class _Field:
    """A picture of sources without its background."""

    def __init__(
        self,
        above: np.ndarray,
        noise: float,
        saturated: np.ndarray,
        at: np.ndarray,
        scale: float,
        snr: np.ndarray,
    ) -> None:
        self.above, self.noise, self.saturated = above, noise, saturated
        self.at, self.scale, self.snr = at, scale, snr

    def average(self, shape: tuple[int, int]) -> _Measured:
        """The mean PSF of a shape."""
        large = (shape[0] + 2 * _MARGIN, shape[1] + 2 * _MARGIN)
        reach = [n // 2 + 1 for n in large]
        padded = np.pad(self.above, [(r, r) for r in reach])
        at = self._centred()
        own = np.rint(at)
        good, left_out = self._usable(own, large, shape)
        stamps = _cut(padded, own, reach, large)
        window = np.zeros(large)
        window[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN] = 1
        core = _disc(large, 2.5 * self.scale)
        flux = (stamps * core).sum(axis=(1, 2))
        flux = np.maximum(flux, self.noise)
        back = shift(stamps, own - at) / flux[:, None, None]
        psf = unit_sum(np.maximum(np.median(back[good], axis=0), 0) * window)
        seen = np.broadcast_to(psf, back.shape)  # the PSF as each source shows it
        level = np.zeros(len(at))
        for turn in range(_ROUNDS):
            for _ in range(2):
                at = np.clip(at, 0, np.array(self.above.shape) - 1.0)
                own = np.rint(at)
                fitted, model = _rendered(seen, at, own, flux, padded.shape, reach)
                stamps = _cut(padded - model, own, reach, large) + fitted
                at, flux, level = _fit(stamps, seen, at, own, flux, level)
            back = shift(stamps - level[:, None, None], own - at) / flux[:, None, None]
            if turn in (1, 2):
                odd = self._odd(back, seen, flux, good)
                if odd.any():
                    left_out["of another shape, or blended"] = left_out.get(
                        "of another shape, or blended", 0
                    ) + int(odd.sum())
                    good &= ~odd
            alike = _alike(back[good], (seen - psf)[good], self.noise / flux[good], psf)
            seen = _Variation(at[good], alike, self.above.shape).psfs(at) * window
            away = np.array([centre_of_gravity(np.maximum(h * gains(h, alike.variance), 0)) for h in seen])
            seen = shift(seen, -away) * window
            total = seen.sum(axis=(1, 2))
            seen, flux, at = seen / total[:, None, None], flux * total, at + away
            psf = np.average(seen[good], axis=0, weights=alike.weights)
        inner = (..., slice(_MARGIN, -_MARGIN), slice(_MARGIN, -_MARGIN))
        level = level - flux * _pedestal(flux[good], level[good])
        stamps = (stamps - level[:, None, None])[good] / flux[good, None, None]
        at, own, flux = at[good], own[good], flux[good]
        back = shift(stamps, own - at) + _aliases(stamps, at - own, self.noise / flux)
        alike = _alike(back, seen[good] - psf, self.noise / flux, psf)
        return _Measured(
            alike.psf[inner], alike.variance[inner], alike.stamps[inner], alike.weights, at, flux, left_out
        )

    def _centred(self) -> np.ndarray:
        """Centres of gravity under a Gaussian window, which follows them."""
        at, s = self.at.copy(), max(self.scale, 1.0)
        r = math.ceil(3 * s)
        padded = np.pad(self.above, r)
        y = np.arange(-r, r + 1)
        for _ in range(4):
            own = np.rint(at)
            stamps = _cut(padded, own, [r, r], (2 * r + 1, 2 * r + 1))
            away = own - at
            wy = np.exp(-(((y + away[:, :1]) / (1.5 * s)) ** 2))
            wx = np.exp(-(((y + away[:, 1:]) / (1.5 * s)) ** 2))
            weighted = np.maximum(stamps, 0) * wy[:, :, None] * wx[:, None, :]
            total = np.maximum(weighted.sum(axis=(1, 2)), np.finfo(float).tiny)
            step = np.stack(
                [
                    (weighted.sum(axis=2) * (y + away[:, :1])).sum(axis=1) / total,
                    (weighted.sum(axis=1) * (y + away[:, 1:])).sum(axis=1) / total,
                ],
                axis=1,
            )
            at = np.clip(at + np.clip(1.5 * step, -s, s), 0, np.array(self.above.shape) - 1.0)
        return np.where(np.abs(at - self.at).max(axis=1, keepdims=True) > 2 * s + 2, self.at, at)

    def _usable(
        self, own: np.ndarray, large: tuple[int, int], shape: tuple[int, int]
    ) -> tuple[np.ndarray, dict[str, int]]:
        """Which sources can be averaged, and why others cannot."""
        rows, cols = self.above.shape
        before = np.array([(n - 1) // 2 for n in shape])
        after = np.array([n // 2 for n in shape])
        inside = ((own >= before) & (own + after <= np.array([rows - 1, cols - 1]))).all(axis=1)
        reach = [n // 2 + 1 for n in shape]
        spoilt = _cut(np.pad(self.saturated, [(r, r) for r in reach]), own, reach, shape).any(axis=(1, 2))
        faint = self.snr < (_USED if (self.snr >= _USED).sum() >= 3 else _FOUND)
        # A neighbour that is nearly as bright and stands inside the PSF cannot be taken off cleanly.
        apart = np.abs(own[:, None] - own[None])
        near = (apart < np.maximum(2.2 * self.scale, 3)).all(axis=2) & (
            self.snr[None] > 0.2 * self.snr[:, None]
        )
        np.fill_diagonal(near, False)
        good, left_out = np.ones(len(own), bool), {}
        for bad, why in (
            (spoilt, "saturated"),
            (~inside, "too near the edge"),
            (near.any(axis=1), "with a neighbour too near"),
            (faint, "too faint"),
        ):
            if (bad & good).any():
                left_out[why] = int((bad & good).sum())
            good &= ~bad
        if good.sum() > _MOST:
            left_out[f"not among the {_MOST} brightest"] = int(good.sum()) - _MOST
            good &= np.cumsum(good) <= _MOST  # they are in order of brightness
        if not good.any():
            raise ValueError(_no_source(left_out, shape))
        return good, left_out

    def _odd(self, back: np.ndarray, psfs: np.ndarray, flux: np.ndarray, good: np.ndarray) -> np.ndarray:
        """Sources that differ from their PSFs by more than noise and the others do."""
        difference, size = (((a) ** 2).sum(axis=(1, 2)) for a in (back - psfs, psfs))
        beyond = np.sqrt(np.maximum(difference - back[0].size * (self.noise / flux) ** 2, 0) / size)
        usual = np.median(beyond[good])
        spread = np.median(np.abs(beyond[good] - usual)) / 0.6745
        limit = max(usual + 5 * spread, 0.15)
        odd = good & (beyond > limit)
        return odd if odd.sum() < good.sum() else np.zeros_like(odd)


def _no_source(left_out: dict[str, int], shape: tuple[int, int]) -> str:
    told = ", ".join(f"{n} {why}" for why, n in left_out.items())
    if left_out.get("saturated", 0) >= 0.5 * sum(left_out.values()):
        advice = "expose shorter, so that no top is cut off, or pass saturation=... if these values are sound"
    elif "too near the edge" in left_out:
        advice = f"show points further inside than half of the PSF ({shape[0]} x {shape[1]}), or pass a smaller size"
    else:
        advice = "show points that stand alone and are bright, or give their positions"
    return f"of {sum(left_out.values())} points none can be used ({told}): {advice}"


def _cut(padded: np.ndarray, own: np.ndarray, reach: list[int], shape: tuple[int, int]) -> np.ndarray:
    """Pictures (k, m, n) of `shape` around pixels of an image that was padded by `reach`."""
    rows, cols = (
        own[:, axis, None].astype(int) + reach[axis] + np.arange(shape[axis]) - (shape[axis] - 1) // 2
        for axis in (0, 1)
    )
    return padded[rows[:, :, None], cols[:, None, :]]


def _disc(shape: tuple[int, int], radius: float) -> np.ndarray:
    y, x = (np.arange(n) - (n - 1) // 2 for n in shape)
    return np.hypot(y[:, None], x[None, :]) <= radius


def _rendered(
    psfs: np.ndarray,
    at: np.ndarray,
    own: np.ndarray,
    flux: np.ndarray,
    shape: tuple[int, ...],
    reach: list[int],
) -> tuple[np.ndarray, np.ndarray]:
    """Each source as its PSF shows it, and all of them in the padded picture."""
    fitted = shift(psfs, at - own) * flux[:, None, None]
    picture = np.zeros(shape)
    m, n = psfs.shape[1:]
    corner = own.astype(int) + np.array(reach) - np.array([(m - 1) // 2, (n - 1) // 2])
    for (r, c), source in zip(corner, fitted, strict=True):
        picture[r : r + m, c : c + n] += source
    return fitted, picture


def _fit(
    stamps: np.ndarray,
    psfs: np.ndarray,
    at: np.ndarray,
    own: np.ndarray,
    flux: np.ndarray,
    level: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One step of Gauss and Newton for position, flux and background of each source."""
    e = 0.05
    away = at - own
    here = shift(psfs, away)
    down, right = (
        (shift(psfs, away + e * unit) - shift(psfs, away - e * unit)) / (2 * e)
        for unit in (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    )
    k = len(stamps)
    basis = np.stack([here, down, right, np.ones_like(here)], axis=1).reshape(k, 4, -1)
    gram = basis @ basis.swapaxes(1, 2)
    gram += 1e-9 * np.eye(4) * np.trace(gram, axis1=1, axis2=2)[:, None, None]
    found = np.linalg.solve(gram, (basis @ stamps.reshape(k, -1, 1)))[:, :, 0]
    fitted = np.where(found[:, 0] > 0.1 * flux, found[:, 0], flux)
    step = np.clip(found[:, 1:3] / fitted[:, None], -0.5, 0.5)
    drift = np.clip(at + step, own - 1.5, own + 1.5)
    return drift, fitted, np.where(found[:, 0] > 0.1 * flux, found[:, 3], level)


def _pedestal(flux: np.ndarray, level: np.ndarray) -> float:
    """How much of the background around a source is its own light, by unit of flux: the wings beyond the PSF's size,
    which make bright sources stand on more than faint ones."""
    if len(flux) < 6:
        return 0.0
    away = flux - flux.mean()
    slope = float((away * level).sum() / max((away**2).sum(), np.finfo(float).tiny))
    left = level - level.mean() - slope * away
    error = math.sqrt(float((away**2 * left**2).sum())) / max(float((away**2).sum()), np.finfo(float).tiny)
    return slope if slope > 3 * error else 0.0


def _aliases(stamps: np.ndarray, away: np.ndarray, noise: np.ndarray) -> np.ndarray | float:
    """What a PSF, sampled at its centre, has beyond what Fourier shifts can bring back there: (m, n), or 0.

    The spectrum of a displaced PSF at ω is the sum over its aliases a of e^(−2πi(ω + a)d) H(ω + a). Displacing the
    picture back rights the phase of a = 0 alone, and in the mean over many d the others cancel. They are found by
    least squares, three of them with a = 0, and taken where they explain sources that were left out better.
    """
    k, m, n = stamps.shape
    if k < 8:
        return 0.0
    fy, fx = np.meshgrid(scipy.fft.fftfreq(m), scipy.fft.fftfreq(n), indexing="ij")
    alias = [np.zeros((m, n, 2))]
    for down, right in ((1, 0), (0, 1), (1, 1)):
        alias.append(np.stack([-np.sign(fy) * down, -np.sign(fx) * right], axis=-1))
    frequency = np.stack([fy, fx], axis=-1)[None] + np.stack(alias)  # (4, m, n, 2)
    phase = np.exp(-2j * np.pi * np.einsum("amnc,kc->mnka", frequency, away))
    weights = 1 / np.maximum(noise**2, 0.1 * np.median(noise**2))
    weights /= weights.sum()
    spectra = scipy.fft.fft2(stamps).transpose(1, 2, 0)[..., None]
    left = phase.conj().swapaxes(-1, -2) * weights
    gram, right_side = left @ phase, left @ spectra
    ridge = np.diag([0.0, 1, 1, 1]) / k
    inverse = np.linalg.inv(gram + ridge)
    found = inverse @ right_side
    # Each source left out in turn, by its leverage.
    leverage = np.einsum("mnka,mnab,mnbk->mnk", phase, inverse, left).real[..., None]
    risk = (np.abs((spectra - phase @ found) / np.maximum(1 - leverage, 0.1)) ** 2)[..., 0] @ weights
    plain = left[..., :1, :] @ spectra
    alone = (np.abs((spectra - phase[..., :1] @ plain) / (1 - weights[:, None])) ** 2)[..., 0] @ weights
    if not risk.sum() < 0.98 * alone.sum():
        return 0.0
    return scipy.fft.ifft2(found.sum(axis=(2, 3)) - plain[..., 0, 0]).real


def _alike(stamps: np.ndarray, differing: np.ndarray, noise: np.ndarray, last: np.ndarray) -> _Mean:
    """The mean of pictures less what each differs by from the mean PSF, without outlying pixels, which are mended."""
    k = len(stamps)
    floor = np.maximum(noise**2, (1e-6 * last.max()) ** 2)
    if k == 1:
        return _Mean(stamps[0], np.broadcast_to(floor[0], last.shape), stamps, np.ones(1))
    same = stamps - differing
    middle = np.median(same, axis=0) if k > 2 else last
    variance = np.maximum(np.mean((same - middle) ** 2, axis=(1, 2)), floor)
    kept = np.ones(same.shape, bool)
    if k > 4:
        z = (same - middle) / np.sqrt(variance)[:, None, None]
        usual = np.maximum(np.median(np.abs(z), axis=0) / 0.6745, 0.5)
        kept = np.abs(z) <= 5 * usual
    weights = 1 / variance
    w = kept * weights[:, None, None]
    total = w.sum(axis=0)
    mean = (w * same).sum(axis=0) / total
    scatter = (w**2 * (same - mean) ** 2).sum(axis=0) / total**2 * k / (k - 1)
    white = 1 / (kept / floor[:, None, None]).sum(axis=0)
    stamps = np.where(kept, stamps, mean + differing)
    return _Mean(mean, np.maximum(scatter, white), stamps, weights / weights.sum())


def _needed(mean: _Mean) -> int:
    """The side of a square that holds the PSF as far as it rises above the noise; larger than it if it was cut off."""
    m, n = mean.psf.shape
    y, x = (np.arange(k) - (k - 1) // 2 for k in (m, n))
    ring = np.rint(np.hypot(y[:, None], x[None, :])).astype(int)
    last = min((m - 1) // 2, (n - 1) // 2)
    count = np.bincount(ring.ravel())[: last + 1]
    level = np.bincount(ring.ravel(), mean.psf.ravel())[: last + 1] / count
    error = np.sqrt(np.bincount(ring.ravel(), mean.variance.ravel())[: last + 1]) / count
    seen = (level > 3 * error) & (level > 2e-4 * level.max())
    radius = int(np.flatnonzero(seen)[-1]) if seen.any() else 1
    while radius > 1 and not seen[radius - 1]:  # a ring that stands alone is chance
        radius -= 1
    if radius >= last - 1:
        return 2 * math.ceil(1.5 * last) + 1
    return 2 * max(radius + 1, 2) + 1


# ---------------------------------------------------------------------------------------------
# What is told
# ---------------------------------------------------------------------------------------------


def _clean(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, float]:
    """A PSF without the noise that can be told from it, and its relative error."""
    g = gains(mean, variance)
    psf = unit_sum(np.maximum(mean * g, 0))
    left = (g**2 * variance).sum() + ((1 - g) ** 2 * np.maximum(mean**2 - variance, 0)).sum()
    return psf, float(np.sqrt(left / (psf**2).sum()))


def _estimate(mean: _Measured, frame: tuple[int, ...], grid: tuple[int, int] | None) -> PSFEstimate:
    psf, error = _clean(mean.psf, mean.variance)
    k, outside = len(mean.at), energy_outside(psf)
    varied = _Variation(mean.at, mean, frame)
    fwhm = width(psf)
    # What scatter does not show: light beyond the frame scales all the rest, and pixels that are too coarse.
    error = math.hypot(error, _UNSEEN, outside, _UNDERSAMPLED if fwhm < _SAMPLED else 0.0)
    status = PSFStatus.of(error)
    reasons = [f"the mean of {k} points" if k > 1 else "one point alone"]
    if k < 3 and status is PSFStatus.MEASURED:
        status = PSFStatus.ROUGH
        reasons.append("with so few nothing shows whether one is a blend; show three or more")
    if fwhm < _SAMPLED and status is PSFStatus.MEASURED:
        status = PSFStatus.ROUGH
        reasons.append(f"it is {fwhm:.2f} pixels wide, too narrow to be sampled well")
    if outside > 0.03:
        status = PSFStatus.ROUGH if status is PSFStatus.MEASURED else status
        reasons.append(f"about {100 * outside:.0f} % of its light falls outside: give a larger size")
    if varied.variation > 0.1:
        status = PSFStatus.ROUGH if status is PSFStatus.MEASURED else status
        reasons.append(
            f"it varies by {100 * varied.variation:.0f} % across the picture: ask for grid=(rows, columns)"
        )
    if status is PSFStatus.DOUBTFUL:
        reasons.append(f"they differ by noise or shape so that {100 * error:.0f} % of it is uncertain")
    details = {
        "points": k,
        "left_out": ", ".join(f"{n} {why}" for why, n in mean.left_out.items()) or "none",
        "fwhm": fwhm,
        "energy_outside": outside,
        "variation": varied.variation,
        "positions": mean.at,
        "flux": mean.flux,
    }
    return PSFEstimate(
        psf, error, status, "; ".join(reasons), details, None if grid is None else varied.map(grid)
    )


class _Variation:
    """The mean PSF and what changes with the position: eigen-PSFs, each times a smooth function.

    The eigen-PSFs are the singular vectors of the sources' pictures less their mean, the functions thin-plate splines
    (G. Wahba, Spline Models for Observational Data, 1990), as stiff as predicts the sources left out best; where
    nothing does, the eigen-PSF is noise.
    """

    def __init__(self, at: np.ndarray, mean: _Mean, frame: tuple[int, ...]) -> None:
        self._mean, self._frame = mean, frame
        k = len(at)
        self._parts, self._shares, self._size = np.zeros((0, *mean.psf.shape)), np.zeros((k, 0)), np.zeros(0)
        if k < _FEWEST:
            return
        self._spline = _ThinPlate(self._scaled(at), mean.weights)
        flat = (mean.stamps - mean.psf).reshape(k, -1)
        vectors = np.linalg.svd(np.sqrt(mean.weights)[:, None] * flat, full_matrices=False)[2][: k // 4]
        shares = flat @ vectors.T
        smooth, foretold = self._spline.smoothed(shares)
        n = len(foretold) if foretold.all() else int(foretold.argmin())  # they stand in order of their size
        self._parts, self._shares = vectors[:n].reshape(n, *mean.psf.shape), smooth[:, :n]
        self._size = mean.weights @ shares[:, :n] ** 2

    @property
    def variation(self) -> float:
        """How much PSFs differ from their mean, relative to it."""
        return float(np.sqrt((self._shares**2).sum(axis=1).mean() / (self._mean.psf**2).sum()))

    def _scaled(self, places: np.ndarray) -> np.ndarray:
        return 2 * (places / (np.array(self._frame) - 1)) - 1

    def _shares_at(self, places: np.ndarray) -> np.ndarray:
        if not len(self._parts):
            return np.zeros((len(places), 0))
        return self._spline.at(self._scaled(places), self._shares)

    def psfs(self, places: np.ndarray) -> np.ndarray:
        """The PSF at (p, 2) places, (p, m, n)."""
        return self._mean.psf + np.tensordot(self._shares_at(places), self._parts, 1)

    def map(self, grid: tuple[int, int]) -> PSFMap:
        if len(grid) != 2 or any(int(n) != n or n < 1 for n in grid):
            raise ValueError(f"grid must be (rows, columns), two positive whole numbers, not {grid!r}")
        positions = cell_centres(grid, self._frame)
        places = positions.reshape(-1, 2)
        noisier = 1 + (self._shares_at(places) ** 2 / self._size).sum(
            axis=1
        )  # the eigen-PSFs have noise, too
        psfs = []
        for h, v in zip(self.psfs(places), noisier, strict=True):
            away = centre_of_gravity(_clean(h, self._mean.variance * v)[0])
            psfs.append(_clean(shift(h, -np.array(away)), self._mean.variance * v)[0])
        return PSFMap(positions, np.stack(psfs).reshape(*grid, *self._mean.psf.shape))


class _ThinPlate:
    """Smoothing splines through values at (k, 2) places with weights (k,): the least weighted squares and bending."""

    def __init__(self, at: np.ndarray, weights: np.ndarray) -> None:
        self._at, self._root = at, np.sqrt(weights / weights.mean())[:, None]
        self._plane = _planes(at)
        kernel = _thin_plate(at, at)
        free = np.linalg.qr(self._plane, mode="complete")[0][:, 3:]
        inside = np.linalg.pinv(free.T @ kernel @ free, rcond=1e-10, hermitian=True)
        self._bent = free @ inside @ free.T  # from values to the coefficients of the kernel
        self._flat = np.linalg.pinv(self._plane) @ (np.eye(len(at)) - kernel @ self._bent)
        # In these modes every stiffness is a factor.
        self._stiff, self._modes = np.linalg.eigh(self._bent / self._root / self._root.T)
        self._stiff[:3] = 0  # planes do not bend

    def smoothed(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Columns of values (k, j), each as smooth as foretells best what is left out, and (j,) whether that is
        better than the mean of the others does."""
        k = len(values)
        scaled = self._root * values
        along = self._modes.T @ scaled
        least = _FORETOLD * ((scaled / (1 - self._root**2 / k)) ** 2).sum(axis=0)
        foretold, best = np.zeros(values.shape[1], bool), np.zeros_like(values)
        for softness in [0.0, *np.geomspace(1e-3, 1e6, 28)]:
            passed = (
                softness / (softness + self._stiff / np.median(self._stiff)) if softness else self._stiff == 0
            )
            leverage = self._modes**2 @ passed
            if leverage.sum() > k / 2 or leverage.max() > 0.95:  # little is left to foretell
                break
            fitted = self._modes @ (passed[:, None] * along)
            risk = (((scaled - fitted) / (1 - leverage)[:, None]) ** 2).sum(axis=0)
            better = risk < least
            least, best = np.where(better, risk, least), np.where(better, fitted / self._root, best)
            foretold |= better
        return best, foretold

    def at(self, places: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Smooth columns of values (k, j) at other places (p, 2)."""
        return _thin_plate(places, self._at) @ (self._bent @ values) + _planes(places) @ (self._flat @ values)


def _planes(at: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(at), 1)), at], axis=1)


def _thin_plate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """r² log r between the places."""
    square = ((a[:, None] - b[None]) ** 2).sum(axis=2)
    return 0.5 * square * np.log(np.maximum(square, np.finfo(float).tiny))

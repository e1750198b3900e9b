"""Measure the PSF from images of points: stars, beads, pinholes.

Each point shows the PSF, shifted by a fraction of a pixel, scaled by the flux of the point, on a background, and with
neighbours. Matched filtering finds the sources (`sources`). The PSF is the robust mean of their images after these have
been shifted back, and each source is fitted again with it. Four rounds converge. In every round the other known sources
are subtracted (P. B. Stetson, DAOPHOT, PASP 99 (1987) 191). Anderson and King (PASP 112 (2000) 1360) treat the shift
and mean of an undersampled PSF: the aliases cancel over the different fractions of pixels of many points.

Volumes of beads are treated in the same way, but the aliases of an undersampled PSF remain.

If the PSF varies, each source is centred by the PSF of its position. This is the mean plus a few eigen-PSFs whose
coefficients are smooth functions of the position (`variation`), as in PSFEx (E. Bertin, 2011).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from ..device import Shape
from ..errors import check_number
from ..operators.matrix import by
from ..operators.varying import cell_centres
from .estimate import PSFEstimate, PSFStatus, energy_outside, gains, graded, grey, placed, shift, width
from .models import Size, as_shape, centre, coordinates, radii, unit_sum
from .sources import FOUND, checked_positions, detected, flat_tops, without_background
from .variation import MeanPSF, Variation, clean

_USED, _MOST = 15.0, 300  # least signal-to-noise ratio, and largest number, of averaged sources
_MARGIN = 4  # pixels around the PSF that show the background


def from_points(
    image: Any,
    positions: Any = None,
    size: Size | None = None,
    *,
    saturation: float | None = None,
    grid: tuple[int, int] | None = None,
) -> PSFEstimate:
    """Measure the PSF from an image of stars, beads or pinholes.

    Parameters
    ----------
    image : (M, N) or (P, M, N) array
        An image or a volume of bright points on a dark, slowly varying background, in any unit that is proportional to
        light (no tone curve).
    positions : (k, 2) or (k, 3) array, optional
        Rows and columns (or planes, rows and columns) of the points, to within two pixels; by default they are
        detected.
    size : int or tuple of int, optional
        Rows and columns (or planes, rows and columns) of the PSF; by default the part that exceeds the noise.
    saturation : float, optional
        Smallest value of a saturated pixel. By default the largest value of an integer dtype, and flat peaks, count as
        saturated. Saturated points are left out.
    grid : (int, int), optional
        Also estimate how the PSF varies: `PSFEstimate.map` holds PSFs at the centres of this many rows and columns of
        equal parts of an image.

    Returns
    -------
    PSFEstimate
        The PSF, with its centre of gravity at the centre. ``details`` has the number of used ``points``; ``left_out``,
        the number of other points by reason; ``fwhm`` in pixels; ``energy_outside``, the extrapolated share of the
        light beyond the size (for a volume beside it, and not part of its error); ``positions`` (k, 2) or (k, 3) and
        ``flux`` (k,) of the used points; and ``variation``, the difference of the PSFs across the image relative to
        their mean.

    Raises
    ------
    ValueError
        If there is no point, all points are saturated or too near the edge, or positions are outside the image; the
        message contains advice.

    Notes
    -----
    The measured PSF contains the aperture of the pixels. A bead widens it unless it is small compared with the PSF.
    If the background was subtracted and most of its noise cut off at black, the PSF lacks faint wings, and is ROUGH.

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
    picture, unit = grey(image, axes=(2, 3))
    if min(picture.shape) < 9:
        raise ValueError(f"an image of {by(picture.shape)} pixels has no room for points")
    if grid is not None and picture.ndim != 2:
        raise ValueError(f"grid={grid!r} is for images; a volume has one PSF: leave grid out")
    cells = None if grid is None else cell_centres(grid, picture.shape)
    # The PSF may have as many planes as the volume, but only half as many rows and columns.
    room = [n if axis < picture.ndim - 2 else n // 2 for axis, n in enumerate(picture.shape)]
    if size is not None:
        size = as_shape(size, picture.ndim)
        if any(n > most for n, most in zip(size, room, strict=True)):
            raise ValueError(f"a PSF of size {size} is more than half of {by(picture.shape)} pixels or has more planes")
    if positions is not None:
        positions = checked_positions(positions, picture.shape)
    saturated = flat_tops(picture)
    kind = np.asarray(image).dtype
    if saturation is not None or kind.kind in "iu":
        top = np.iinfo(kind).max if saturation is None else check_number(saturation, "saturation")
        saturated |= picture >= top / unit
    above, noise, cut_off = without_background(picture, 48 if size is None else 3 * max(size))
    field = _Field(above, noise, cut_off, saturated, *detected(above, noise, positions), unit)
    if size is not None:
        return field.estimate(*field.average(size), cells)
    # The number of planes is limited so that half of the beads show all of them. The search for a larger size ends
    # if an image has no points.

    depth = np.minimum(field.at, np.array(picture.shape) - 1 - field.at)[:, : picture.ndim - 2]
    most = [*2 * np.median(depth, axis=0).astype(int) + 1, *[min(room[-2:]) - 2 * _MARGIN] * 2]
    side = 2 * max(math.ceil(4.5 * field.scale) + 1, 4) + 1
    shape = tuple(min(side, n) if axis < picture.ndim - 2 else side for axis, n in enumerate(most))
    found = field.average(shape)
    for _ in range(4):
        needed = _needed(found[0])
        sides = zip(shape, needed, most, strict=True)
        larger = tuple(max(n, need) if need <= end else n for n, need, end in sides)
        if larger == shape or (picture.ndim == 2 and energy_outside(found[0].psf) > 0.5):
            break
        wider = field.average(larger)
        if picture.ndim == 3 and 2 * len(wider[1]) < len(found[1]):
            break  # the beads are too near to each other to show more
        found, shape = wider, larger
    return field.estimate(found[0].cut(tuple(map(min, needed, shape))), *found[1:], cells)


@dataclass(frozen=True)
class _Field:
    """The sources of an image or volume.

    It holds the values `above` the background, their noise, the share of pixels where it was cut off at black, the
    saturated pixels, the positions `at` (k, axes), filter `scale` and signal-to-noise ratios (k,) of the sources, and
    the unit of the values.
    """

    above: np.ndarray
    noise: float
    cut_off: float
    saturated: np.ndarray
    at: np.ndarray
    scale: float
    snr: np.ndarray
    unit: float

    def average(self, shape: Shape) -> tuple[MeanPSF, np.ndarray, np.ndarray, dict[str, int]]:
        """Return the mean PSF, positions (k, axes) and fluxes (k,) of its sources, and the number of other sources by
        reason.
        """
        # Transforms of lengths with large prime factors would take several times as long.
        large = tuple(scipy.fft.next_fast_len(n + 2 * _MARGIN, real=True) for n in shape)
        at, own, axes = self.at, np.rint(self.at), tuple(range(1, len(shape) + 1))
        good, left_out = self._usable(own, shape)
        stamps = _cut(self.above, own, large)
        window = placed(np.ones(shape), large)
        core = radii(large) <= 2.5 * self.scale
        flux, level = np.maximum((stamps * core).sum(axis=axes), self.noise), np.zeros(len(at))
        back = shift(stamps, own - at) / np.expand_dims(flux, axes)
        psf = np.maximum(np.median(back[good], axis=0), 0) * window
        _check_light(psf.sum(), len(own))
        psf = unit_sum(psf)
        psfs = np.broadcast_to(psf, back.shape)  # of each source
        for turn in range(4):
            for _ in range(2 if turn < 2 else 1):
                at = np.clip(at, 0, np.array(self.above.shape) - 1.0)
                own = np.rint(at)
                fitted = shift(psfs, at - own) * np.expand_dims(flux, axes)
                stamps = _cut(self.above - _rendered(fitted, own, self.above.shape), own, large) + fitted
                at, flux, level = _gauss_newton(stamps, psfs, at, own, flux, level)
            back = shift(stamps - np.expand_dims(level, axes), own - at) / np.expand_dims(flux, axes)
            odd = self._odd(back, psfs, flux, good)
            if turn in (1, 2) and odd.any():
                left_out["of another shape, or blended"] += int(odd.sum())
                good &= ~odd
            mean = _robust_mean(back[good], (psfs - psf)[good], self.noise / flux[good], psf)
            psfs = Variation(at[good], mean, self.above.shape).psfs(at) * window
            clear = np.maximum(psfs * gains(psfs, mean.variance), 0)
            weight = clear.sum(axis=axes)
            _check_light(weight.min(), len(own))
            away = np.stack([(clear * line).sum(axis=axes) / weight for line in coordinates(large)], axis=1)
            psfs = shift(psfs, -away) * window
            total = psfs.sum(axis=axes)
            psfs, flux, at = psfs / np.expand_dims(total, axes), flux * total, at + away
            psf = np.average(psfs[good], axis=0, weights=mean.weights)
        # The PSF of a wide-field microscope has light everywhere in a volume, so the slope need not be significant.
        level = level - flux * _pedestal(flux[good], level[good], 3.0 if len(axes) == 2 else 0.0)
        stamps = ((stamps - np.expand_dims(level, axes)) / np.expand_dims(flux, axes))[good]
        at, own, flux = at[good], own[good], flux[good]
        back = shift(stamps, own - at)
        if width(psf) < 4 and len(axes) == 2:  # a wider PSF is well sampled
            back = back + _aliases(stamps, at - own, self.noise / flux)
        mean = _robust_mean(back, psfs[good] - psf, self.noise / flux, psf).cut(shape)
        return mean, at, flux, left_out

    def estimate(
        self, mean: MeanPSF, at: np.ndarray, flux: np.ndarray, left_out: dict[str, int], cells: np.ndarray | None
    ) -> PSFEstimate:
        """Return the result for the values that `average` returned, with a map of PSFs at `cells` (R, S, 2)."""
        _check_light(np.maximum(mean.psf * gains(mean.psf, mean.variance), 0).sum(), len(at))
        psf, error = clean(mean.psf, mean.variance)
        k, outside, fwhm = len(at), energy_outside(psf), width(psf)
        varied, axes = Variation(at, mean, self.above.shape), self.above.ndim
        # The scatter contains neither the light beyond the frame, which scales the rest, nor the effect of coarse
        # pixels. A volume never holds all light, so this part is left out for it.
        error = math.hypot(error, 0.01, outside if axes == 2 else 0.0, 0.02 if fwhm < 2 else 0.0)
        advice = "ask for grid=(rows, columns)" if axes == 2 else "measure it in parts of the volume"
        rough = {
            "a blend cannot be recognised among so few; show three or more": k < 3,
            f"it is {fwhm:.2f} pixels wide, too narrow to be sampled well": fwhm < 2,
            f"about {100 * outside:.0f} % of its light falls outside: give a larger size": outside > 0.03,
            f"it varies by {100 * varied.variation:.0f} % across the image: {advice}": varied.variation > 0.1,
            "noise was cut off at black, and faint wings with it: keep the camera's offset": self.cut_off > 0.6,
            f"noise and differences of shape make {100 * error:.0f} % uncertain": not PSFStatus.of(error).ok,
        }
        details = {"points": k, "left_out": _listed(left_out), "fwhm": fwhm, "energy_outside": outside}
        details |= {"variation": varied.variation, "positions": at, "flux": flux * self.unit}
        first = f"the mean of {k} points" if k > 1 else "one point alone"
        found = graded(psf, error, details, {first: True}, rough)
        return found if cells is None else replace(found, map=varied.map(cells))

    def _usable(self, own: np.ndarray, shape: Shape) -> tuple[np.ndarray, Counter[str]]:
        """Return which sources can be averaged (k,), and the numbers of the others by reason."""
        before = np.array(centre(shape))
        inside = ((own >= before) & (own - before + shape <= self.above.shape)).all(axis=1)
        # A neighbour that is similarly bright and inside the PSF cannot be subtracted accurately.
        apart = np.abs(own[:, None] - own[None]).max(axis=2)
        near = (apart < max(2.2 * self.scale, 3)) & (self.snr[None] > 0.2 * self.snr[:, None])
        np.fill_diagonal(near, False)
        good, left_out = np.ones(len(own), bool), Counter[str]()
        for bad, why in (
            (_cut(self.saturated, own, shape).any(axis=tuple(range(1, len(shape) + 1))), "saturated"),
            (~inside, "too near the edge"),
            (near.any(axis=1), "with a neighbour too near"),
            (self.snr < (_USED if (self.snr >= _USED).sum() >= 3 else FOUND), "too faint"),
        ):
            left_out[why] = int((bad & good).sum())
            good &= ~bad
        left_out[f"not among the {_MOST} brightest"] = max(int(good.sum()) - _MOST, 0)
        good &= np.cumsum(good) <= _MOST  # the sources are in order of brightness
        if good.any():
            return good, left_out
        if left_out["saturated"] >= 0.5 * len(own):
            advice = "expose shorter, or pass saturation=... if these values are valid"
        elif left_out["too near the edge"]:
            advice = f"show points further inside than half of the PSF ({by(shape)}) or pass a smaller size"
        else:
            advice = "show points that stand alone and are bright, or give their positions"
        raise ValueError(f"of {len(own)} points none can be used ({_listed(left_out)}): {advice}")

    def _odd(self, back: np.ndarray, psfs: np.ndarray, flux: np.ndarray, good: np.ndarray) -> np.ndarray:
        """Return the sources (k,) that differ from their PSFs by more than the noise and the other sources do; none if
        all do.
        """
        difference, size = ((a**2).sum(axis=tuple(range(1, a.ndim))) for a in (back - psfs, psfs))
        beyond = np.sqrt(np.maximum(difference - back[0].size * (self.noise / flux) ** 2, 0) / size)
        usual = np.median(beyond[good])
        spread = np.median(np.abs(beyond[good] - usual)) / 0.6745
        odd = good & (beyond > max(usual + 5 * spread, 0.15))
        return odd if odd.sum() < good.sum() else np.zeros_like(odd)


def _check_light(total: float, points: int) -> None:
    """Raise ValueError unless a PSF has light."""
    if not 0 < total < math.inf:
        raise ValueError(f"{points} places have no common shape above the noise: show stars, beads or pinholes")


def _listed(left_out: dict[str, int]) -> str:
    return ", ".join(f"{n} {why}" for why, n in left_out.items() if n) or "none"


def _pixels(own: np.ndarray, shape: Shape, frame: Shape) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return the indices of the pixels of stamps in an image, clipped to its frame, and which of them are inside (k, m,
    n).

    The indices are arrays that broadcast, such as rows (k, m, 1) and columns (k, 1, n).
    """
    places = np.expand_dims(own.T.astype(int), tuple(range(2, own.shape[1] + 2)))
    at = [place + line for place, line in zip(places, coordinates(shape), strict=True)]
    clipped = tuple(np.clip(line, 0, n - 1) for line, n in zip(at, frame, strict=True))
    return clipped, functools.reduce(np.logical_and, map(np.equal, at, clipped))


def _cut(image: np.ndarray, own: np.ndarray, shape: Shape) -> np.ndarray:
    """Return stamps (k, m, n) of an image around the pixels `own` (k, 2), zero beyond the image."""
    at, inside = _pixels(own, shape, image.shape)
    return image[at] * inside


def _rendered(fitted: np.ndarray, own: np.ndarray, shape: Shape) -> np.ndarray:
    """Return an image of this shape with the sum of sources (k, m, n) at pixels `own` (k, 2)."""
    image, (at, inside) = np.zeros(shape), _pixels(own, fitted.shape[1:], shape)
    np.add.at(image, at, fitted * inside)
    return image


def _gauss_newton(
    stamps: np.ndarray, psfs: np.ndarray, at: np.ndarray, own: np.ndarray, flux: np.ndarray, level: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return position, flux and background of each source after one Gauss-Newton step."""
    k = len(stamps)
    basis = np.concatenate([shift(psfs, at - own, slopes=True), np.ones_like(psfs)[None]]).swapaxes(0, 1)
    basis = basis.reshape(k, at.shape[1] + 2, -1)
    gram = basis @ basis.swapaxes(1, 2)
    gram += 1e-9 * np.eye(gram.shape[1]) * np.trace(gram, axis1=1, axis2=2)[:, None, None]
    found = np.linalg.solve(gram, basis @ stamps.reshape(k, -1, 1))[:, :, 0]
    bright = found[:, 0] > 0.1 * flux  # otherwise the step is unreliable
    fitted = np.where(bright, found[:, 0], flux)
    step = np.clip(found[:, 1:-1] / fitted[:, None], -0.5, 0.5)
    return np.clip(at + step, own - 1.5, own + 1.5), fitted, np.where(bright, found[:, -1], level)


def _pedestal(flux: np.ndarray, level: np.ndarray, least: float) -> float:
    """Return the background around a source per unit of its flux, which the wings beyond the PSF's size cause.

    The result is 0 unless it exceeds `least` times its standard error.
    """
    if len(flux) < 6:
        return 0.0
    away = flux - flux.mean()
    square = max(float(away @ away), np.finfo(float).tiny)
    slope = float(away @ level) / square
    error = float(np.linalg.norm(away * (level - level.mean() - slope * away))) / square
    return slope if slope > least * error else 0.0


def _aliases(stamps: np.ndarray, away: np.ndarray, noise: np.ndarray) -> np.ndarray | float:
    """Return a correction (m, n) of the mean of shifted stamps for undersampling, or 0.

    The spectrum of a shifted PSF at ω is the sum over its aliases a of e^(−2πi(ω + a)d) H(ω + a). Shifting the image
    back corrects only the phase of a = 0; the others cancel in the mean over many d. Least squares estimates three
    aliases together with a = 0. The result is used if it predicts left-out sources better.
    """
    k, m, n = stamps.shape
    if k < 8:
        return 0.0
    fy, fx = np.meshgrid(scipy.fft.fftfreq(m), scipy.fft.fftfreq(n), indexing="ij")
    frequency = np.stack([fy, fx], axis=-1)
    alias = -np.sign(frequency) * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[:, None, None]  # (4, m, n, 2)
    phase = np.exp(-2j * np.pi * np.einsum("amnc,kc->mnka", frequency + alias, away))
    weights = 1 / np.maximum(noise**2, 0.1 * np.median(noise**2))
    weights /= weights.sum()
    spectra = scipy.fft.fft2(stamps).transpose(1, 2, 0)[..., None]
    left = phase.conj().swapaxes(-1, -2) * weights
    inverse = np.linalg.inv(left @ phase + np.diag([0.0, 1, 1, 1]) / k)
    found = inverse @ (left @ spectra)
    # Leave out each source in turn, by its leverage.
    leverage = np.einsum("mnka,mnab,mnbk->mnk", phase, inverse, left).real[..., None]
    risk = (np.abs((spectra - phase @ found) / np.maximum(1 - leverage, 0.1)) ** 2)[..., 0] @ weights
    plain = left[..., :1, :] @ spectra
    alone = (np.abs((spectra - phase[..., :1] @ plain) / (1 - weights[:, None])) ** 2)[..., 0] @ weights
    if not risk.sum() < 0.98 * alone.sum():
        return 0.0
    return scipy.fft.ifft2(found.sum(axis=(2, 3)) - plain[..., 0, 0]).real


def _robust_mean(stamps: np.ndarray, differing: np.ndarray, noise: np.ndarray, last: np.ndarray) -> MeanPSF:
    """Return the mean of stamps minus their differences from the mean PSF, with outlying pixels replaced."""
    k = len(stamps)
    floor = np.maximum(noise**2, (1e-6 * last.max()) ** 2)
    if k == 1:
        return MeanPSF(stamps[0], np.broadcast_to(floor[0], last.shape), stamps, np.ones(1))
    same = stamps - differing
    middle = np.median(same, axis=0) if k > 2 else last
    axes = tuple(range(1, same.ndim))
    variance = np.maximum(np.mean((same - middle) ** 2, axis=axes), floor)
    kept = np.ones(same.shape, bool)
    if k > 4:
        z = np.abs(same - middle) / np.expand_dims(np.sqrt(variance), axes)
        kept = z <= 5 * np.maximum(np.median(z, axis=0) / 0.6745, 0.5)
    weights = 1 / variance
    w = kept * np.expand_dims(weights, axes)
    total = w.sum(axis=0)
    mean = (w * same).sum(axis=0) / total
    scatter = (w**2 * (same - mean) ** 2).sum(axis=0) / total**2 * k / (k - 1)
    white = 1 / (kept / np.expand_dims(floor, axes)).sum(axis=0)
    stamps = np.where(kept, stamps, mean + differing)
    return MeanPSF(mean, np.maximum(scatter, white), stamps, weights / weights.sum())


def _needed(mean: MeanPSF) -> Shape:
    """Return the sides of the part in which the PSF exceeds the noise, 1.5 times as long if the PSF is cut off.

    They are the number of planes, if there are any, and twice the side of a square.
    """
    planes, wide = tuple(range(mean.psf.ndim - 2)), (-2, -1)
    across = _reach(mean.psf.sum(axis=planes), mean.variance.sum(axis=planes))
    return (*(_reach(mean.psf.sum(axis=wide), mean.variance.sum(axis=wide)) for _ in planes), across, across)


def _reach(psf: np.ndarray, variance: np.ndarray) -> int:
    """Return the width in pixels of the part of an image, or of a line, that exceeds the noise."""
    ring = np.rint(radii(psf.shape)).astype(int).ravel()
    last = (min(psf.shape) - 1) // 2
    parts = (np.ones_like(psf), psf, variance)
    count, total, square = (np.bincount(ring, a.ravel())[: last + 1] for a in parts)
    level, error = total / count, np.sqrt(square) / count
    seen = (level > 3 * error) & (level > 2e-4 * level.max())
    pairs = np.flatnonzero(seen[1:] & seen[:-1])  # a single ring is chance
    radius = int(pairs[-1]) + 1 if len(pairs) else 1
    return 2 * (math.ceil(1.5 * last) if radius >= last - 1 else max(radius + 1, 2)) + 1

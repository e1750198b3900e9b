"""The PSF from slanted edges.

Across a straight edge a picture shows the PSF summed along the edge, and summed up: the edge spread. An edge that is
slightly slanted crosses each row of pixels at another fraction of a pixel, so that all rows together sample the edge
spread many times a pixel; this is how ISO 12233 measures the modulation transfer function (MTF) of a camera
(P. D. Burns, "Slanted-edge MTF for digital camera and scanner analysis", Proc. IS&T PICS, 2000).

If the PSF is round, one edge determines it: Abel's integral equation relates its profile to the line spread. It is
solved here in the form in which noise does least harm: the PSF is a sum, with weights that are not negative, of discs
and Gaussians of all widths, and what each makes of an edge on the pixels is known; non-negative least squares
finds the weights. Such a sum falls from its centre outwards. Where it does not fit, rings take the place of discs.
Two edges of different directions give an elliptical PSF, three its direction as well.

What is found is the blur that makes an ideal edge, each of whose pixels holds the part of it that is bright, the edge
that was seen. So the aperture of the pixels is no part of it, as in a sharp photograph; the MTF, as ISO 12233 has it,
holds that aperture.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .estimate import PSFEstimate, PSFStatus, grey, width
from .models import Size, as_shape, unit_sum

Region = tuple[int, int, int, int]

_BIN = 0.125  # of a pixel, in which the edge spread is averaged
_CONTRAST = 10.0  # least difference of the two sides over the noise
_BEND = 1.0  # pixels by which an edge may bend
_DRAWS = 16  # of the bootstrap
_UNSEEN = 0.015  # relative error that the bootstrap does not show
_BINNED = 5e-4  # error of the edge spread, over the contrast, that binning makes
_CHANCE = 20.0  # by how much of χ² more profiles must better a fit


@dataclass(frozen=True, eq=False)
class _Edge:
    """An edge that was measured: its normal (rows, columns) from dark to bright, the edge spread `level` (b,) at the
    distances `t` (b,), from `count` (b,) pixels each, the noise of one pixel, and what is told of it."""

    normal: np.ndarray
    t: np.ndarray
    level: np.ndarray
    count: np.ndarray
    noise: float
    region: Region
    overshoot: float
    clipped: bool
    rise: float

    @property
    def angle(self) -> float:
        """Degrees from the nearest row, column or diagonal of the pixels."""
        turn = math.degrees(math.atan2(abs(self.normal[0]), abs(self.normal[1])))
        return min(abs(turn - a) for a in (0, 45, 90))

    def moved(self, by: float) -> _Edge:
        """The same with its distances larger by a number of pixels."""
        return replace(self, t=self.t + by)


def from_edge(
    image: Any, region: Region | Sequence[Region] | None = None, size: Size | None = None
) -> PSFEstimate:
    """Measure the PSF from the picture of a straight, slightly slanted edge between dark and bright.

    Parameters
    ----------
    image : (M, N) array
        In any unit that is proportional to light (no tone curve, no sharpening).
    region : (top, bottom, left, right) or a sequence of them, optional
        Rows and columns, the latter not included, of a part that holds one
        edge and its two plain sides. Found if not given. Two regions with
        edges of different directions give an elliptical PSF whose axes lie
        along rows and columns (or along the edges, if these are diagonal),
        three or more also its direction.
    size : int or (int, int), optional
        Rows and columns of the PSF; by default as far as it reaches.

    Returns
    -------
    PSFEstimate
        ``details``: ``edges``, ``angle`` of each in degrees from the pixels' rows, columns or diagonals, ``regions``,
        ``mtf50`` in cycles per pixel; ``distance``, ``edge_spread`` and ``line_spread`` (b,), ``frequency`` and
        ``mtf`` (f,) of the first edge; ``stretch``, the longest width over the shortest.

    Raises
    ------
    ValueError
        If there is no edge, it is not straight, not slanted, or too faint; says what to do.

    Notes
    -----
    A round PSF is assumed of one edge; motion and astigmatism are not.

    Examples
    --------
    >>> import numpy as np, deblur
    >>> y, x = np.mgrid[:80, :80]
    >>> sharp = np.clip(x - 40 + 0.1 * (y - 40) + 0.5, 0, 1)  # 1 in 10
    >>> picture = deblur.degrade(sharp, deblur.psf.gaussian(15, 1.5), noise=0.002, boundary="reflect", seed=0)
    >>> found = deblur.psf.from_edge(picture, size=15)
    >>> bool(abs(found.psf - deblur.psf.gaussian(15, 1.5)).max() < 0.1 * found.psf.max())
    True
    """
    picture = grey(image)
    if size is not None:
        size = as_shape(size)
    edges = [_measured(picture, r) for r in _regions(region, picture)]
    if len(edges) > 1:
        _check_directions(edges)
    rise = max(edge.rise for edge in edges)
    reach = min(math.ceil(1.6 * rise) + 2, max(int(min(edge.t.max() for edge in edges)) - 1, 2))
    shape = (2 * reach + 1, 2 * reach + 1) if size is None else size
    return _estimate(edges, shape, size is None)


def _regions(region: Any, picture: np.ndarray) -> list[Region]:
    if region is None:
        return [_found(picture)]
    given = np.asarray(region)
    if given.ndim not in (1, 2) or given.shape[-1] != 4 or given.size == 0 or given.dtype.kind not in "iu":
        raise ValueError(
            f"region must be four whole numbers (top, bottom, left, right), or several such, not {region!r}"
        )
    m, n = picture.shape
    for top, bottom, left, right in np.atleast_2d(given):
        if not (0 <= top < bottom <= m and 0 <= left < right <= n):
            raise ValueError(
                f"the region of rows {top} to {bottom} and columns {left} to {right} does not lie in a picture of "
                f"{m} x {n} pixels; it is (top, bottom, left, right)"
            )
        if min(bottom - top, right - left) < 16:
            raise ValueError(
                f"a region of {bottom - top} x {right - left} pixels is too small to measure an edge; take at least "
                "16 x 16, better 60 x 60"
            )
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in np.atleast_2d(given)]


def _found(picture: np.ndarray) -> Region:
    """The part of the picture that looks most like two plain sides of one straight slanted edge."""
    from scipy.ndimage import gaussian_filter

    smooth = gaussian_filter(picture, 1.5)
    dy, dx = np.gradient(smooth)
    candidates: list[tuple[float, Region]] = []
    least = min(picture.shape)
    for side in sorted({min(96, least), min(64, least), min(40, least)}, reverse=True):
        if side < 16:
            continue
        starts = [
            np.unique(np.linspace(0, n - side, max(2 * n // side, 1) + 1).astype(int)) for n in picture.shape
        ]
        for top in starts[0]:
            for left in starts[1]:
                part = (slice(top, top + side), slice(left, left + side))
                a, b = dy[part], dx[part]
                tensor = np.array([[(a * a).sum(), (a * b).sum()], [(a * b).sum(), (b * b).sum()]])
                small, large = np.linalg.eigvalsh(tensor)
                coherence = (large - small) / (large + small + np.finfo(float).tiny)
                low, high = np.percentile(smooth[part], [10, 90])
                candidates.append(
                    (
                        float((high - low) * coherence**3),
                        (int(top), int(top + side), int(left), int(left + side)),
                    )
                )
    candidates.sort(reverse=True)
    best: tuple[float, Region] | None = None
    failures: list[ValueError] = []
    for _, region in candidates[:24]:
        try:
            edge = _measured(picture, region)
        except ValueError as error:
            failures.append(error)
            continue
        contrast = float(np.ptp(edge.level)) or 1.0
        # What is not the edge: texture and bends spoil the measurement like noise; more pixels mend it.
        spoilt = (edge.noise + 1e-3 * contrast) / contrast / math.sqrt(region[1] - region[0])
        if best is None or spoilt < 0.9 * best[0]:
            best = (spoilt, region)
    if best is None:
        raise ValueError(
            "no straight, slanted edge between two plain sides was found; give region=(top, bottom, left, right)"
            + (f". The likeliest part was refused: {failures[0]}" if failures else "")
        )
    return best[1]


def _measured(picture: np.ndarray, region: Region) -> _Edge:
    top, bottom, left, right = region
    part = picture[top:bottom, left:right]
    where = f"rows {top} to {bottom}, columns {left} to {right}"
    t, normal = _distances(part, where)
    reach = min(float(-t.min()), float(t.max()))
    sides = [part[(t < -0.6 * reach) & (t > -reach)], part[(t > 0.6 * reach) & (t < reach)]]
    if min(map(len, sides)) < 20:
        raise ValueError(
            f"in {where} one side of the edge is missing; take a part with the edge in its middle"
        )
    dark, bright = (float(np.median(side)) for side in sides)
    index = np.floor(t / _BIN).astype(int)
    low, high = math.ceil(-reach / _BIN), math.floor(reach / _BIN)
    inside = (index >= low) & (index < high)
    count = np.bincount(index[inside] - low, minlength=high - low).astype(float)
    value = np.bincount(index[inside] - low, part[inside], minlength=high - low)
    place = np.bincount(index[inside] - low, t[inside], minlength=high - low)
    have = count > 0
    central = np.abs(np.arange(low, high) + 0.5) * _BIN < 3
    quarter = have[central][: 2 * (central.sum() // 2)].reshape(-1, 2).any(axis=1)
    if quarter.mean() < 0.9:
        raise ValueError(
            f"the edge in {where} is not slanted: all its rows cross the pixels at the same fractions (its normal is "
            f"{math.degrees(math.atan2(normal[0], normal[1])):.1f} degrees from a row). Turn it, or the camera, by 3 "
            "to 10 degrees, or take a longer part of it"
        )
    level, middle = value[have] / count[have], place[have] / count[have]
    count = count[have]
    # The noise: what pixels differ by from their bin's mean, and the slope within a bin is small.
    square = np.bincount(index[inside] - low, part[inside] ** 2, minlength=high - low)[have]
    many = count >= 3
    within = (square - count * level**2)[many].sum() / max((count[many] - 1).sum(), 1)
    slope = np.gradient(level, middle)
    within -= float((count[many] * slope[many] ** 2).sum() / count[many].sum()) * _BIN**2 / 12
    noise = math.sqrt(max(float(within), 0.0))
    contrast = bright - dark
    if not contrast > _CONTRAST * noise:
        raise ValueError(
            f"the edge in {where} is too faint: its sides differ by {contrast:.3g} and the noise is {noise:.2g}; light "
            f"it better, expose longer or average several pictures (at least {_CONTRAST:g} to 1 is needed)"
        )
    at_an_end = [max(np.mean(side == side.max()), np.mean(side == side.min())) for side in sides]
    clipped = noise > 0 and max(at_an_end) > 0.3 and min(at_an_end) < 1
    smooth = np.convolve(level, np.ones(8) / 8, "valid")
    beyond = max(smooth.max() - bright, dark - smooth.min()) / contrast
    rising, at = np.maximum.accumulate(smooth), middle[4:][: len(smooth)]
    tenth, nine = (float(np.interp(dark + f * contrast, rising, at)) for f in (0.1, 0.9))
    rise = max(nine - tenth, 1.0)
    return _Edge(normal, middle, level, count, noise, region, float(beyond), bool(clipped), rise)


def _distances(part: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Each pixel's distance from the edge, and the edge's normal, from dark to bright."""
    from scipy.ndimage import gaussian_filter

    dy, dx = np.gradient(gaussian_filter(part, 1.0))
    upright = bool((dx**2).sum() >= (dy**2).sum())
    a = part if upright else part.T
    slope = gaussian_filter(a, (2.0, 1.0), order=(0, 1))[:, 2:-2]
    rising = 1.0 if slope.sum() >= 0 else -1.0
    weight = np.maximum(rising * slope, 0)
    rows, cols = np.arange(len(a)), np.arange(a.shape[1])[2:-2]
    strength = weight.max(axis=1)
    if not strength.max() > 0:
        raise ValueError(f"there is no edge in {where}: all is of one brightness")
    use = strength > 0.3 * np.median(strength)
    at = (cols[weight.argmax(axis=1)]).astype(float)
    line = _robust_line(rows[use], at[use], 1)
    half = max(a.shape[1] / 4, 4.0)
    for _ in range(6):
        centre = np.polyval(line, rows)
        near = weight * np.exp(-(((cols - centre[:, None]) / half) ** 2) * 2)
        total = near.sum(axis=1)
        use = total > 0.3 * np.median(total)
        at[use] = (near * cols).sum(axis=1)[use] / total[use]
        spread = np.sqrt(np.median((near * (cols - centre[:, None]) ** 2).sum(axis=1)[use] / total[use]))
        half = float(np.clip(4 * spread, 3, half))
        line = _robust_line(rows[use], at[use], 1)
    if use.sum() < 12:
        raise ValueError(f"there is no edge in {where} that goes from side to side; take another part")
    curve = _robust_line(rows[use], at[use], 2)
    left = at[use] - np.polyval(curve, rows[use])
    scatter = np.median(np.abs(left)) / 0.6745
    # 5.3 pixels: what a row's noise may displace its centre by in a picture that can be used at all.
    if scatter > 5.3:
        raise ValueError(
            f"there is no straight edge in {where}: its place scatters by {scatter:.1f} pixels from row to row; take a "
            "part with one edge and two plain sides"
        )
    bend = abs(curve[0]) * (len(a) / 2) ** 2
    error = scatter / math.sqrt(use.sum()) * 4
    if bend > max(_BEND, 5 * error):
        raise ValueError(
            f"the edge in {where} is not straight: it bends by {bend:.1f} pixels; take a shorter part of it, or an "
            "edge that is straight"
        )
    direction = np.array([-line[0], 1.0]) * rising / math.hypot(line[0], 1)
    y, x = np.indices(a.shape)
    edge = np.polyval(curve if bend > 5 * error else line, y)
    t = (x - edge) * direction[1]
    if not upright:
        return t.T, direction[::-1]
    return t, direction


def _robust_line(x: np.ndarray, y: np.ndarray, degree: int) -> np.ndarray:
    """A polynomial by least squares, three times without what lies far from the last."""
    kept = np.ones(len(x), bool)
    fit = np.polyfit(x, y, degree)
    for _ in range(3):
        left = np.abs(y - np.polyval(fit, x))
        kept = left <= max(4 * float(np.median(left[kept])), 1e-6)
        if kept.sum() <= degree + 2:
            break
        fit = np.polyfit(x[kept], y[kept], degree)
    return fit


def _check_directions(edges: list[_Edge]) -> None:
    for i, one in enumerate(edges):
        if all(abs(one.normal @ two.normal) > 0.9 for j, two in enumerate(edges) if j != i):
            raise ValueError(
                f"all {len(edges)} edges have nearly the same direction: they tell nothing of the other; take edges "
                "that cross at an angle of 30 degrees or more, or one region alone"
            )


# ---------------------------------------------------------------------------------------------
# From edge spreads to the PSF
# ---------------------------------------------------------------------------------------------


def ideal(t: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """The part of a pixel, whose centre lies at a distance t from an ideal edge, that is bright."""
    long, short = sorted(np.abs(normal), reverse=True)
    short = max(short, 1e-6)

    def twice(u: np.ndarray) -> np.ndarray:  # the second integral of a step
        return np.maximum(u, 0) ** 2 / 2

    a, b = (long + short) / 2, (long - short) / 2
    return (twice(t + a) - twice(t + b) - twice(t - b) + twice(t - a)) / (long * short)


def _discs(shape: tuple[int, int], radii: np.ndarray, form: np.ndarray) -> np.ndarray:
    """Ellipses of given radii (k, m, n), each with a sum of one: {x : |form x| <= radius}, integrated over pixels."""
    n = 6
    fine = (np.arange(n) + 0.5) / n - 0.5
    y, x = ((np.arange(s) - (s - 1) // 2)[:, None] + fine for s in shape)
    at = np.stack(np.meshgrid(y.ravel(), x.ravel(), indexing="ij"))
    distance = np.sqrt((np.einsum("ab,bmn->amn", form, at) ** 2).sum(axis=0))
    # Soft over one fine cell, so that the area changes smoothly with the radius.
    inside = np.clip((radii[:, None, None] - distance) * n + 0.5, 0, 1)
    area = inside.reshape(len(radii), shape[0], n, shape[1], n).sum(axis=(2, 4))
    total = area.sum(axis=(1, 2))
    tiny = total < 1
    if tiny.any():  # smaller than a fine cell: a point
        area[tiny] = 0
        area[tiny, (shape[0] - 1) // 2, (shape[1] - 1) // 2] = 1
    return area / area.sum(axis=(1, 2), keepdims=True)


def _distance(shape: tuple[int, int], form: np.ndarray) -> np.ndarray:
    """|form x| of the pixels' centres x."""
    y, x = (np.arange(s) - (s - 1) // 2 for s in shape)
    at = np.stack(np.meshgrid(y, x, indexing="ij"))
    return np.sqrt((np.einsum("ab,bmn->amn", form, at) ** 2).sum(axis=0))


def _bells(shape: tuple[int, int], widths: np.ndarray, form: np.ndarray) -> np.ndarray:
    """Gaussians of given standard deviations (k, m, n), sampled at the pixels' centres, each with a sum of one."""
    bells = np.exp(-((_distance(shape, form) / widths[:, None, None]) ** 2) / 2)
    return bells / bells.sum(axis=(1, 2), keepdims=True)


def _airys(shape: tuple[int, int], radii: np.ndarray, form: np.ndarray) -> np.ndarray:
    """Airy patterns by the radii of their first dark rings (k, m, n), sampled alike."""
    from scipy.special import j1

    v = np.maximum(_distance(shape, form) * 3.8317 / radii[:, None, None], 1e-8)
    patterns = (2 * j1(v) / v) ** 2
    return patterns / patterns.sum(axis=(1, 2), keepdims=True)


@functools.lru_cache(maxsize=8)
def _pixels_seen(edge: _Edge, shape: tuple[int, int]) -> np.ndarray:
    """The edge spread of each pixel of a PSF at the edge's distances: (b, m n)."""
    y, x = (np.arange(s) - (s - 1) // 2 for s in shape)
    across = (y[:, None] * edge.normal[0] + x[None, :] * edge.normal[1]).ravel()
    return ideal(edge.t[:, None] - across, edge.normal)


def _seen(edge: _Edge, parts: np.ndarray) -> np.ndarray:
    """The edge spread of each part (k, m, n) of a PSF: (b, k)."""
    return _pixels_seen(edge, parts.shape[1:]) @ parts.reshape(len(parts), -1).T


class _Fit:
    """Non-negative weights of profiles that explain edges: Gaussians, and what `kind` names besides."""

    def __init__(self, edges: list[_Edge], shape: tuple[int, int], form: np.ndarray, kind: str) -> None:
        reach = min(shape) / 2 * float(np.linalg.norm(form, -2))
        parts = [_bells(shape, np.geomspace(0.35, max(reach / 2, 0.7), 16), form)]
        if kind == "airys":
            parts.append(_airys(shape, np.geomspace(1.0, max(reach, 1.5), 24), form))
        elif kind == "discs":
            parts.append(_discs(shape, np.concatenate([[0.05], np.arange(0.5, reach + 0.25, 0.35)]), form))
        self.parts = np.concatenate(parts)
        # For each edge: its weights' columns, and its own dark level and slope, of either sign.
        blocks, right = [], []
        for i, edge in enumerate(edges):
            end = max(len(edge.level) // 8, 1)
            dark, bright = float(np.median(edge.level[:end])), float(np.median(edge.level[-end:]))
            error = np.hypot(edge.noise / np.sqrt(edge.count), _BINNED * (bright - dark))
            own = np.stack([np.ones_like(edge.t), edge.t / np.abs(edge.t).max()], axis=1)
            nuisance = np.zeros((len(edge.t), 4 * len(edges)))
            nuisance[:, 4 * i : 4 * i + 4] = np.concatenate([own, -own], axis=1)
            weight = (bright - dark) / error
            blocks.append(np.concatenate([_seen(edge, self.parts), nuisance], axis=1) * weight[:, None])
            right.append((edge.level - dark) / error)
        self.matrix, self.right = np.concatenate(blocks), np.concatenate(right)
        self.q, self.r = np.linalg.qr(self.matrix)
        self.found = self.solved(self.right)
        self.square = float(((self.right - self.matrix @ self.found) ** 2).sum())
        self.explained = self.matrix @ self.found

    def solved(self, right: np.ndarray) -> np.ndarray:
        """The weights that explain `right` best."""
        from scipy.optimize import nnls

        return nnls(self.r, self.q.T @ right)[0]

    @property
    def misfit(self) -> float:
        """Root mean square of what is not explained, over what noise leaves."""
        return math.sqrt(self.square / len(self.right))

    @property
    def psf(self) -> np.ndarray:
        return self._psf(self.found)

    def _psf(self, found: np.ndarray) -> np.ndarray:
        return unit_sum(np.einsum("k,kmn->mn", found[: len(self.parts)], self.parts))

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """PSFs (draws, m, n) as other noise, and other misfit, would have given them."""
        level = max(1.0, self.misfit)
        noise = level * rng.standard_normal((_DRAWS, len(self.right)))
        return np.stack([self._psf(self.solved(self.explained + n)) for n in noise])


def _simplest(edges: list[_Edge], shape: tuple[int, int], form: np.ndarray) -> tuple[_Fit, float]:
    """The fit by Gaussians alone, unless Airy patterns or discs better it by more than chance; and how far, relative to
    its PSF, that of the others lies that explain the edges as well.

    An edge hardly tells a narrow Gaussian from a disc of its width, and few PSFs are sums of discs.
    """
    fits = [_Fit(edges, shape, form, kind) for kind in ("bells", "airys", "discs")]
    fit = fits[0]
    for other in fits[1:]:
        if other.square + _CHANCE * max(1.0, other.misfit**2) < fit.square:
            fit = other
    chance = _CHANCE * max(1.0, fit.misfit**2)
    apart = [float(np.linalg.norm(f.psf - fit.psf)) for f in fits if f.square < fit.square + chance]
    return fit, max(apart) / float(np.linalg.norm(fit.psf))


def _form(parameters: Sequence[float], frame: np.ndarray) -> np.ndarray:
    """The matrix of determinant one that makes the ellipse a circle."""
    from scipy.linalg import expm

    u, v = (*parameters, 0.0)[:2]
    return expm(-frame.T @ np.array([[u, v], [v, -u]]) @ frame / 2)


def _frame(edges: list[_Edge]) -> tuple[np.ndarray, str]:
    """The axes along which two edges stretch the PSF."""
    near = [max(abs(e.normal)) > math.cos(math.radians(27)) for e in edges]
    if all(near):
        return np.eye(2), "rows and columns"
    a, b = edges[0].normal
    return np.array([[a, b], [-b, a]]), "the first edge and across it"


def _centred(edge: _Edge, shape: tuple[int, int], form: np.ndarray) -> _Edge:
    """The edge with its distances from where it really is, which the first fit by rows knows to a tenth of a pixel."""
    for _ in range(3):
        fit = _Fit([edge], shape, form, "bells")
        e, k = 0.02, len(fit.parts)
        change = (_seen(edge.moved(e), fit.parts) - _seen(edge.moved(-e), fit.parts)) / (2 * e)
        slope = change @ fit.found[:k] * fit.matrix[:, k]
        away = float(slope @ (fit.right - fit.explained)) / float(slope @ slope)
        edge = edge.moved(float(np.clip(away, -0.5, 0.5)))
    return edge


def _estimate(edges: list[_Edge], shape: tuple[int, int], crop: bool) -> PSFEstimate:
    from scipy.optimize import minimize, minimize_scalar

    form, reasons = np.eye(2), ["one edge, and a round PSF is assumed"]
    if len(edges) > 1:
        frame, words = _frame(edges)
        if len(edges) == 2:
            found = minimize_scalar(
                lambda u: _Fit(edges, shape, _form([u], frame), "bells").square,
                bounds=(-1.6, 1.6),
                options={"xatol": 0.01},
            )
            form = _form([float(found.x)], frame)
            reasons = [f"two edges; its axes are taken to lie along {words}"]
        else:
            found = minimize(
                lambda p: _Fit(edges, shape, _form(p, frame), "bells").square,
                [0.1, 0.1],
                method="Nelder-Mead",
                options={"xatol": 0.01, "fatol": 0, "maxfev": 60},
            )
            form = _form(list(found.x), frame)
            reasons = [f"{len(edges)} edges"]
    edges = [_centred(edge, shape, form) for edge in edges]
    fit, apart = _simplest(edges, shape, form)
    draws = fit.drawn(np.random.default_rng(0))
    # NNLS takes few profiles; which ones is up to the noise, and their mean is smoother than any.
    psf = unit_sum((fit.psf + draws.sum(axis=0)) / (1 + len(draws)))
    size = float(np.sqrt((psf**2).sum()))
    scatter = float(np.sqrt(((draws - psf) ** 2).sum(axis=(1, 2)).mean())) / size
    error = math.hypot(scatter, _UNSEEN, 0.5 * apart)
    status = PSFStatus.of(error)
    if any(e.overshoot > 0.04 for e in edges):
        status = PSFStatus.DOUBTFUL
        over = max(e.overshoot for e in edges)
        reasons.append(
            f"beside the edge the picture overshoots by {100 * over:.0f} %: it was sharpened, or it is no plain edge; "
            "take the picture without sharpening, from raw data"
        )
    if any(e.clipped for e in edges):
        status = PSFStatus.DOUBTFUL
        reasons.append(
            "a side of the edge is saturated or cut off at black; expose so that both sides keep detail"
        )
    if fit.misfit > 3 and status is PSFStatus.MEASURED:
        status = PSFStatus.ROUGH
        reasons.append(
            "no such PSF that falls outwards explains the edge to the noise: it is another, the sides are not plain, "
            "or values are not proportional to light"
        )
    if crop:
        psf = _cropped(psf)
    stretch = np.linalg.svd(form, compute_uv=False)
    details = {
        "edges": len(edges),
        "angle": tuple(round(e.angle, 2) for e in edges),
        "regions": tuple(e.region for e in edges),
        "fwhm": width(psf),
        "stretch": float(stretch[0] / stretch[-1]),
        **_transfer(edges[0]),
    }
    return PSFEstimate(psf, error, status, "; ".join(reasons), details)


def _cropped(psf: np.ndarray) -> np.ndarray:
    """The PSF as far as it holds all but a thousandth of its light."""
    m, n = psf.shape
    y, x = (np.abs(np.arange(k) - (k - 1) // 2) for k in (m, n))
    distance = np.maximum(y[:, None], x[None, :])
    for reach in range(1, int(distance.max()) + 1):
        if psf[distance <= reach].sum() >= 0.999:
            break
    inside = np.ix_(y <= reach, x <= reach)
    return unit_sum(psf[inside])


def _transfer(edge: _Edge) -> dict[str, Any]:
    """Line spread and MTF as ISO 12233 computes them, from quarters of pixels."""
    step = 0.25
    half = min(-edge.t.min(), edge.t.max(), 32.0)
    n = 2 * int(half / step) - 2
    t = (np.arange(n) - n / 2 + 0.5) * step
    index = np.rint((edge.t - t[0]) / step).astype(int)
    inside = (index >= 0) & (index < n)
    count = np.bincount(index[inside], edge.count[inside], minlength=n)
    total = np.bincount(index[inside], (edge.count * edge.level)[inside], minlength=n)
    have = count > 0
    spread = np.interp(t, t[have], total[have] / count[have])
    line = np.gradient(spread, step)
    line_window = line * np.hamming(n)
    frequency = np.fft.rfftfreq(n, step)
    mtf = np.abs(np.fft.rfft(line_window))
    mtf = mtf / mtf[0] / np.maximum(np.sinc(2 * step * frequency), 0.1)  # the central difference's own
    shown = frequency <= 1
    below = np.flatnonzero(mtf < 0.5)
    if len(below) and below[0] > 0:
        i = below[0]
        mtf50 = float(np.interp(0.5, [mtf[i], mtf[i - 1]], [frequency[i], frequency[i - 1]]))
    else:
        mtf50 = math.nan
    return {
        "mtf50": mtf50,
        "distance": t,
        "edge_spread": spread,
        "line_spread": line / max(float(line.sum() * step), np.finfo(float).tiny),
        "frequency": frequency[shown],
        "mtf": mtf[shown],
    }

"""Measure the edge spread of a straight, slightly slanted edge.

A slanted edge crosses each row of pixels at a different fraction of a pixel. All rows together therefore sample the
edge spread many times per pixel, as in ISO 12233 (P. D. Burns, "Slanted-edge MTF for digital camera and scanner
analysis", Proc. IS&T PICS, 2000).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from ..device import unwrapped

Region = tuple[int, int, int, int]

_BIN = 0.125  # width of the bins of the edge spread in pixels
_CONTRAST = 10.0  # least difference of the two sides, in standard deviations of the noise


@dataclass(frozen=True, eq=False)
class Edge:
    """A measured edge.

    Attributes
    ----------
    normal : (2,) array
        Unit vector (rows, columns) from dark to bright.
    t, level, count : (b,) array
        Distances from the edge in pixels, the edge spread there, and the number of pixels of each bin.
    noise : float
        Standard deviation of a pixel.
    region : (top, bottom, left, right)
        The region of the image that holds the edge.
    overshoot : float
        The largest excess of the edge spread over the two sides, relative to the contrast.
    clipped : bool
        True if a side is saturated or cut off at black.
    rise : float
        The distance in pixels from 10 % to 90 % of the contrast.
    """

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
        """The angle in degrees to the nearest of rows, columns and diagonals of the pixels."""
        turn = math.degrees(math.atan2(abs(self.normal[0]), abs(self.normal[1])))
        return min(abs(turn - a) for a in (0, 45, 90))


def edges_in(image: np.ndarray, region: Any) -> list[Edge]:
    """Return the edges in the given regions of an image (M, N), or in the region that looks most like an edge."""
    if region is None and min(image.shape) >= 16:
        return [_found(image)]
    given = unwrapped((0, image.shape[0], 0, image.shape[1]) if region is None else region, "region")
    if given.ndim not in (1, 2) or given.shape[-1] != 4 or given.size == 0 or given.dtype.kind not in "iu":
        raise ValueError(f"region must be four whole numbers (top, bottom, left, right), not {region!r}")
    m, n = image.shape
    regions = [(int(a), int(b), int(c), int(d)) for a, b, c, d in np.atleast_2d(given)]
    for top, bottom, left, right in regions:
        where = f"the region (top, bottom, left, right) = ({top}, {bottom}, {left}, {right})"
        if not (0 <= top < bottom <= m and 0 <= left < right <= n):
            raise ValueError(f"{where} is not inside an image of {m} x {n} pixels")
        if min(bottom - top, right - left) < 16:
            raise ValueError(f"{where} is too small; take at least 16 x 16, better 60 x 60")
    edges = [_measured(image, one) for one in regions]
    normals = np.array([edge.normal for edge in edges])
    if len(edges) > 1 and (np.abs(normals @ normals.T) > 0.9).all(axis=1).any():
        raise ValueError(f"all {len(edges)} edges have the same direction; cross them at 30 degrees or more")
    return edges


def _found(image: np.ndarray) -> Edge:
    """Return the edge of the part that looks most like two plain sides of one straight slanted edge."""
    smooth = scipy.ndimage.gaussian_filter(image, 1.5)
    dy, dx = np.gradient(smooth)
    candidates: list[tuple[float, Region]] = []
    for side in {min(n, *image.shape) for n in (96, 64, 40)}:
        means = (scipy.ndimage.uniform_filter(a, side) for a in (dy * dy, dx * dx, dy * dx, smooth, smooth**2))
        yy, xx, yx, mean, square = means
        coherence = np.hypot(yy - xx, 2 * yx) / (yy + xx + np.finfo(float).tiny)
        score = np.sqrt(np.maximum(square - mean**2, 0)) * coherence**3
        ends = ((n - side, max(2 * n // side, 1) + 1) for n in image.shape)
        tops, lefts = (np.unique(np.linspace(0, last, count).astype(int)) for last, count in ends)
        for top in tops.tolist() if side >= 16 else ():
            for left in lefts.tolist():
                middle = score[top + side // 2, left + side // 2]
                candidates.append((float(middle), (top, top + side, left, left + side)))
    best: tuple[float, Edge] | None = None
    refused = ""
    for _, region in sorted(candidates, reverse=True)[:24]:
        try:
            edge = _measured(image, region)
        except ValueError as error:
            refused = refused or f". The likeliest part was rejected: {error}"
            continue
        # Texture and bends act like noise; more pixels reduce their effect.
        spoilt = (edge.noise / (float(np.ptp(edge.level)) or 1.0) + 1e-3) / math.sqrt(region[1] - region[0])
        if best is None or spoilt < 0.9 * best[0]:
            best = (spoilt, edge)
    if best is None:
        raise ValueError(f"no straight, slanted edge was found; give region=(top, bottom, left, right){refused}")
    return best[1]


def _measured(image: np.ndarray, region: Region) -> Edge:
    top, bottom, left, right = region
    part = image[top:bottom, left:right]
    where = f"rows {top} to {bottom}, columns {left} to {right}"
    t, normal = _distances(part, where)
    reach = min(float(-t.min()), float(t.max()))
    sides = [part[(t < -0.6 * reach) & (t > -reach)], part[(t > 0.6 * reach) & (t < reach)]]
    if min(map(len, sides)) < 20:
        raise ValueError(f"in {where} a side of the edge is missing; take a part with the edge in its middle")
    dark, bright = (float(np.median(side)) for side in sides)
    contrast = bright - dark
    low, high = math.ceil(-reach / _BIN), math.floor(reach / _BIN)
    index = np.floor(t / _BIN).astype(int) - low
    inside = (index >= 0) & (index < high - low)
    weights = (np.ones_like(part), part, t)
    count, value, place = (np.bincount(index[inside], w[inside], minlength=high - low) for w in weights)
    have = count > 0
    central = np.abs(np.arange(low, high) + 0.5) * _BIN < 3
    if (have[1:] | have[:-1])[central[1:]].mean() < 0.9:
        raise ValueError(
            f"the edge in {where} is not slanted, at {math.degrees(math.atan2(*normal)):.1f} degrees: rotate it by "
            "3 to 10 degrees, or take a longer part of it"
        )
    count = count[have]
    level, middle = value[have] / count, place[have] / count
    rest = part - np.interp(t, middle, level)
    noise = float(np.std(rest[inside], ddof=len(level)))
    if not contrast > _CONTRAST * noise:
        raise ValueError(
            f"the edge in {where} is too faint: its sides differ by {contrast / noise:.2g} times the noise, and "
            f"{_CONTRAST:g} times is needed; light it better, expose longer or average several images"
        )
    extreme = [max(np.mean(side == side.max()), np.mean(side == side.min())) for side in sides]
    clipped = noise > 0 and max(extreme) > 0.3 and min(extreme) < 1
    smooth = np.convolve(level, np.ones(8) / 8, "valid")
    overshoot = float(max(smooth.max() - bright, dark - smooth.min()) / contrast)
    rising = np.maximum.accumulate(smooth)
    tenth, nine = np.interp([dark + 0.1 * contrast, dark + 0.9 * contrast], rising, middle[4:][: len(smooth)])
    rise = max(float(nine - tenth), 1.0)
    return Edge(normal, middle, level, count, noise, region, overshoot, bool(clipped), rise)


def _distances(part: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance of each pixel from the edge (m, n), and the normal of the edge (2,), from dark to bright."""
    dy, dx = np.gradient(scipy.ndimage.gaussian_filter(part, 1.0))
    upright = bool((dx**2).sum() >= (dy**2).sum())
    a = part if upright else part.T
    slope = scipy.ndimage.gaussian_filter(a, (2.0, 1.0), order=(0, 1))[:, 2:-2]
    rising = 1.0 if slope.sum() >= 0 else -1.0
    weight = np.maximum(rising * slope, 0)
    rows, cols = np.arange(len(a)), np.arange(a.shape[1])[2:-2]
    if not weight.any():
        raise ValueError(f"there is no edge in {where}: it is constant")
    at = cols[weight.argmax(axis=1)].astype(float)
    line, half = _robust_line(rows, at, 1), max(a.shape[1] / 4, 4.0)
    for _ in range(6):
        away = cols - np.polyval(line, rows)[:, None]
        near = weight * np.exp(-2 * (away / half) ** 2)
        total = near.sum(axis=1)
        use = total > 0.3 * np.median(total)
        at[use] = (near * cols).sum(axis=1)[use] / total[use]
        spread = np.sqrt(np.median((near * away**2).sum(axis=1)[use] / total[use]))
        half = float(np.clip(4 * spread, 3, half))
        line = _robust_line(rows[use], at[use], 1)
    if use.sum() < 12:
        raise ValueError(f"there is no edge in {where} that goes from side to side; take another part")
    curve = _robust_line(rows[use], at[use], 2)
    scatter = float(np.median(np.abs(at[use] - np.polyval(curve, rows[use])))) / 0.6745
    if scatter > 5.3:  # more than noise displaces the centre of a row in a usable image
        raise ValueError(f"no straight edge is in {where}: it scatters by {scatter:.1f} pixels; take two plain sides")
    bend = abs(curve[0]) * (len(a) / 2) ** 2
    certain = 20 * scatter / math.sqrt(use.sum())
    if bend > max(1.0, certain):
        raise ValueError(f"the edge in {where} is not straight: it bends by {bend:.1f} pixels; shorten it")
    direction = np.array([-line[0], 1.0]) * rising / math.hypot(line[0], 1)
    edge = np.polyval(curve if bend > certain else line, rows)
    t = (np.arange(a.shape[1]) - edge[:, None]) * direction[1]
    return (t, direction) if upright else (t.T, direction[::-1])


def _robust_line(x: np.ndarray, y: np.ndarray, degree: int) -> np.ndarray:
    """Return the coefficients of a least-squares polynomial, fitted again three times without outliers."""
    kept = np.ones(len(x), bool)
    fit = np.polyfit(x, y, degree)
    for _ in range(3):
        left = np.abs(y - np.polyval(fit, x))
        kept = left <= max(4 * float(np.median(left[kept])), 1e-6)
        if kept.sum() <= degree + 2:
            break
        fit = np.polyfit(x[kept], y[kept], degree)
    return fit


def transfer(edge: Edge, unit: float) -> dict[str, Any]:
    """Return edge spread (times a unit), line spread and MTF as in ISO 12233, at every quarter of a pixel."""
    step = 0.25
    n = 2 * int(min(-edge.t.min(), edge.t.max(), 32.0) / step) - 2
    t = (np.arange(n) - n / 2 + 0.5) * step
    spread = np.interp(t, edge.t, edge.level)  # interpolates between two bins of half that width
    line = np.gradient(spread, step)
    frequency = np.fft.rfftfreq(n, step)
    mtf = np.abs(np.fft.rfft(line * np.hamming(n)))
    mtf = mtf / mtf[0] / np.maximum(np.sinc(2 * step * frequency), 0.1)  # without the MTF of the central difference
    i = int(np.argmax(mtf < 0.5))  # 0 if there is none
    mtf50 = float(np.interp(0.5, mtf[[i, i - 1]], frequency[[i, i - 1]])) if i else math.nan
    line = line / max(float(line.sum() * step), np.finfo(float).tiny)
    found = {"mtf50": mtf50, "distance": t, "edge_spread": spread * unit, "line_spread": line}
    return found | {"frequency": frequency[frequency <= 1], "mtf": mtf[frequency <= 1]}

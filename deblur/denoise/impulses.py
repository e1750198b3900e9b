"""Detection of impulses: pixels that are dead, saturated, or hit by salt-and-pepper noise."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from ..device import Array, as_real, asnumpy, check_finite, get_xp

_WINDOW = 7  # side, in pixels, of the window for the local scatter
_FAR, _FAR_EXTREME = 10.0, 4.0  # least distance in local scatters; the second for pixels at an end of the range
_FLOOR, _FLOOR_EXTREME = 0.08, 0.02  # least distance as a fraction of the frame's range
_CLUSTER = 3  # neighbours of equal value that an impulse may have
_OFTEN, _SHARE = 8, 1e-3  # least number of pixels with a set value, and their least fraction of the frame
_SPIKE, _NEAR = 5, 50  # how many times as often a set value occurs as adjacent values; their number on each side


def detect(g: Array) -> Array:
    """Return impulses of a blurred image, and dead rows and columns: pixels that neither blur nor noise explains.

    Parameters
    ----------
    g : (..., M, N) array
        Frames, each examined separately; NumPy or CuPy.

    Returns
    -------
    mask : (..., M, N) array of bool
        True at an impulse, and on all of a dead row or column.

    Raises
    ------
    ValueError
        If `g` is not finite.

    Notes
    -----
    A blurred pixel does not stand out alone: some of its eight neighbours are as bright, and some as dark. A pixel
    is an impulse if it is above the second brightest of them, or below the second darkest, by 10 times the
    scatter and by 8 % of the frame's range. The scatter is that of the image about its neighbours' medians, the local
    or the typical one of the frame, whichever is larger. If the pixel shares the least or largest value of the
    frame with two others, as salt, pepper, dead and saturated pixels do, 4 times and 2 % suffice. Two impulses may
    touch, and up to four with one such extreme value.

    Moreover, a value was set instead of measured if it occurs far more often than adjacent values, and nearly always
    at pixels that are alone with it. Its pixels are impulses, and pixels of other values must then stand
    out three times as far. At an end of the range, where clipping also accumulates values, this applies only if the
    next value is far. It finds impulses in sharpened pictures, whose detail overshoots them.

    *False alarms*: true detail of one pixel, such as stars, specks and dots of small print in a hardly blurred
    picture. Areas that are truly black or white are not impulses, unless they have at most four pixels.
    *Missed*: impulses that differ from their surroundings by less than these distances, such as pepper on a black coat,
    and larger groups of touching impulses. ``benchmarks/bench_noise.py`` measures both.
    """
    xp = get_xp(g)
    g = as_real(g, "the image")
    check_finite(g, "the image")
    frames = g.reshape(-1, *g.shape[-2:])
    rows, columns = (xp.stack([_dead(frame.swapaxes(0, axis)) for frame in frames]) for axis in (0, 1))
    points = xp.stack([_detect(_mended(*parts)) for parts in zip(frames, rows, columns, strict=True)])
    return (points | rows[:, :, None] | columns[:, None, :]).reshape(g.shape)


def _dead(g: Array) -> Array:
    """Return which rows of a frame, except the outermost two, differ from adjacent rows over most of their length."""
    xp = get_xp(g)
    found = xp.zeros(len(g), bool)
    size = float(g.max() - g.min())
    if min(g.shape) < 8 or not size > 0:
        return found
    for _ in range(16):
        # A blurred picture nearly equals the cubic through two rows on either side.
        off = xp.zeros_like(g)
        off[2:-2] = g[2:-2] - (4 * (g[1:-3] + g[3:-1]) - (g[:-4] + g[4:])) / 6
        # Quartiles, not only the median: on an edge of the picture, half of a row differs.
        low, high = xp.quantile(off, xp.asarray([0.25, 0.75]), axis=1)
        typical = xp.where((low * high > 0) & ~found, xp.minimum(abs(low), abs(high)), 0)
        middle = xp.median(off, axis=1)
        for other in (xp.roll(middle, 1), xp.roll(middle, -1)):  # rows beside a dead one differ by two thirds as much
            share = -other / xp.where(middle == 0, 1, middle)
            typical = xp.where((share > 0.45) & (share < 0.9), typical, 0)
        scatter = float(xp.median(abs(middle))) / 0.6745
        at = int(typical.argmax())
        if not float(typical[at]) > max(_FAR * scatter, _FLOOR_EXTREME * size):
            return found
        found[at] = True
        g = g.copy()
        g[at] = (4 * (g[at - 1] + g[at + 1]) - (g[at - 2] + g[at + 2])) / 6
    return xp.zeros_like(found)  # 16 lines are a pattern, not defects


def _mended(g: Array, rows: Array, columns: Array) -> Array:
    """Return a frame with its dead rows and columns replaced by the nearest ones that are not dead."""
    if not bool(rows.any() | columns.any()):
        return g
    for axis, dead in ((0, asnumpy(rows)), (1, asnumpy(columns))):
        living = np.nonzero(~dead)[0]
        nearest = living[np.abs(living[None] - np.arange(len(dead))[:, None]).argmin(axis=1)]
        g = get_xp(g).take(g, get_xp(g).asarray(nearest), axis=axis)
    return g


def _detect(g: Array) -> Array:
    xp = get_xp(g)
    low, high = float(g.min()), float(g.max())
    size = high - low
    if min(g.shape) < 3 or not size > 0:
        return xp.zeros(g.shape, bool)
    p = xp.pad(g, 1, mode="reflect")
    shifts = [divmod(k, 3) for k in range(9) if k != 4]
    around = xp.stack([p[i : i + g.shape[0], j : j + g.shape[1]] for i, j in shifts])
    alike = (abs(around - g) <= 1e-6 * size).sum(axis=0)
    around.sort(axis=0)
    distance = xp.maximum(g - around[-2], around[1] - g)
    filters = import_module("scipy.ndimage" if xp is np else "cupyx.scipy.ndimage")
    scatter = filters.median_filter(abs(g - 0.5 * (around[3] + around[4])), size=_WINDOW) / 0.6745
    # Clipped areas have no scatter, and only noise at their edges.
    ends = ((g == low) | (g == high)).astype(g.dtype)
    measured = scatter[filters.uniform_filter(ends, size=_WINDOW) < 0.3]
    typical = xp.median(measured) if measured.size else scatter.max()
    scatter = xp.maximum(scatter, typical)
    found = _set_values(g, alike)
    # If set values have been found, other impulses are unlikely and must stand out more clearly.
    far = 3.0 if bool(found.any()) else 1.0
    found |= distance > far * xp.maximum(_FAR * scatter, _FLOOR * size)
    need = xp.maximum(_FAR_EXTREME * scatter, _FLOOR_EXTREME * size)
    for end, sign in ((low, -1), (high, 1)):
        here = g == end
        if int(here.sum()) >= 3:  # a single brightest pixel is a highlight
            found |= _stands_out(g, here & (alike <= _CLUSTER), sign * need)
    lone = alike <= 1
    for end, sign in ((low, -1), (high, 1)):
        here = g == end
        if int((found & here).sum()) >= max(_OFTEN, 0.1 * _SHARE * g.size):
            rest = (~(here | found)).astype(g.dtype)
            level = filters.gaussian_filter(g * rest, 1.0)
            level /= xp.maximum(filters.gaussian_filter(rest, 1.0), 1e-3)
            near = filters.uniform_filter(here.astype(g.dtype), size=5) <= 0.25
            found |= here & lone & near & (sign * (end - level) > xp.maximum(3.3 * typical, _FLOOR * size))
    return found


def _stands_out(g: Array, here: Array, need: Array | None) -> Array:
    """Return which of the pixels `here`, all of one value, belong to a group small enough to occur by chance.

    With `need`, they must also exceed the second brightest neighbour of another value by it (or, if it is negative,
    fall below the second darkest), and by twice as much if they touch more than one pixel of their value.
    """
    xp = get_xp(g)
    rows, cols = xp.nonzero(here)
    at = rows[:, None] + (xp.arange(25) // 5)[None], cols[:, None] + (xp.arange(25) % 5)[None]
    window = xp.pad(g, 2, mode="reflect")[at]
    value = window[:, 12:13]
    # Counted within the frame, since mirroring would repeat an impulse near the border.
    same = (window == value) & xp.pad(xp.ones(g.shape, bool), 2)[at]
    good = same.sum(axis=1) <= _CLUSTER + 1
    if need is not None:
        asked = need[rows, cols]
        up = xp.where(asked > 0, 1.0, -1.0).astype(g.dtype)
        inner = window.reshape(-1, 5, 5)[:, 1:4, 1:4].reshape(-1, 9)
        others = xp.sort(xp.where(inner == value, -np.inf, inner * up[:, None]), axis=1)
        crowded = same.reshape(-1, 5, 5)[:, 1:4, 1:4].sum(axis=(1, 2)) > 2
        good &= value[:, 0] * up - others[:, -2] > abs(asked) * xp.where(crowded, 2.0, 1.0)
    found = xp.zeros_like(here)
    found[rows, cols] = good
    return found


def _set_values(g: Array, alike: Array) -> Array:
    """Return the pixels whose value occurs too often for a blurred picture.

    `alike` is the number of neighbours of a pixel with its value.
    """
    xp = get_xp(g)
    values, counts = (asnumpy(a) for a in xp.unique(g, return_counts=True))
    found = xp.zeros(g.shape, bool)
    often = counts >= max(_OFTEN, _SHARE * g.size)
    # In a clipped frame, noise makes isolated pixels at the end of the range, but then the next value is close.
    often[[0, -1]] &= [_apart(values), _apart(values[::-1])]
    for at in np.nonzero(often)[0]:
        near = np.concatenate([counts[max(at - _NEAR, 0) : at], counts[at + 1 : at + 1 + _NEAR]])
        if counts[at] >= _SPIKE * np.quantile(near, 0.95):
            here = g == values[at]
            if float((here & (alike <= 1)).sum()) >= 0.8 * counts[at]:
                found |= _stands_out(g, here & (alike <= _CLUSTER), None)
    return found


def _apart(values: np.ndarray) -> bool:
    """Return whether the first of a frame's sorted values is far from the others."""
    if len(values) < 4:
        return False
    gaps = np.abs(np.diff(values[: _NEAR + 2]))
    return bool(gaps[0] > max(0.01 * abs(values[-1] - values[0]), 2 * gaps[1:].max()))

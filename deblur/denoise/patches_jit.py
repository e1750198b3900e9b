"""The inner loops of `deblur.denoise.patches`, compiled by Numba where it is installed.

Each works on one strip of groups and holds no lock, so that threads run strips side by side. The first call ever
compiles, for some seconds; the machine code is then kept on disk.

Sizes are constants here, so that a compiler sees through every loop: groups of 16 patches of 4 x 4 or 8 x 8 pixels,
and 4 groups at a time. The 64 numbers that belong to one pixel of all these patches, its lanes, lie side by side, the 4
groups innermost, and each step of a transform is a loop over them with a vector unit's whole width. A compiler takes
that width only where it sees that what a loop reads and writes does not overlap. Hence every step works on one array,
and distances in it are constants.
"""

from __future__ import annotations

import math

import numba
import numpy as np

SIDES, STACK = (4, 8), 16
_TEAM = 4
_LANES = STACK * _TEAM
# Where the patches of a stack lie among the lanes: those that Haar's wavelets take together are half of them apart.
_PLACES = np.array([0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]) * _TEAM
_HALF, _ROOT = np.float32(0.5), np.float32(math.sqrt(0.5))
_A1, _A3 = (np.float32(math.sqrt(0.5) * math.cos(k * math.pi / 8)) for k in (1, 3))
_C1, _C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(0.5 * math.cos(k * math.pi / 16)) for k in range(1, 8))
_exact = numba.njit(cache=True, nogil=True, error_model="numpy")
_FAST = {"contract", "reassoc", "nsz"}
_compiled = numba.njit(error_model="numpy", fastmath=_FAST)  # a part of the filter
_filter = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)


@_exact  # rounded as arrays would be: many patches are as good as each other
def nearest(pilot, rows, cols, moves, side):
    """For each reference patch the indices of its nearest moves, ascending; 0, no move, where there are fewer."""
    high, wide = pilot.shape
    near = np.zeros((len(rows), len(cols), STACK), np.int32)
    best = np.empty((len(cols), STACK), np.float32)
    sums = np.empty(wide, np.float32)
    for i in range(len(rows)):
        row = rows[i]
        best[:] = np.inf
        best[:, 0] = -1.0  # always of the group
        for k in range(1, len(moves)):
            dy, dx = moves[k, 0], moves[k, 1]
            if row + dy < 0 or row + dy + side > high:
                continue
            left, right = max(0, -dx), wide - max(0, dx)
            n = right - left
            c = sums[:n]
            c[:] = 0
            for s in range(side):
                here = pilot[row + s, left:right]
                there = pilot[row + dy + s, left + dx : right + dx]
                for x in range(n):
                    d = here[x] - there[x]
                    c[x] += d * d
            n -= side - 1
            if side == 4:
                for x in range(n):
                    c[x] = c[x] + c[x + 1] + c[x + 2] + c[x + 3]
            else:
                for x in range(n):
                    c[x] = c[x] + c[x + 1] + c[x + 2] + c[x + 3] + c[x + 4] + c[x + 5] + c[x + 6] + c[x + 7]
            for j in range(len(cols)):
                x = cols[j] - left
                if x < 0 or x >= n:
                    continue
                d = c[x]
                if d < best[j, STACK - 1]:
                    at = STACK - 1
                    while best[j, at - 1] > d:
                        best[j, at] = best[j, at - 1]
                        near[i, j, at] = near[i, j, at - 1]
                        at -= 1
                    best[j, at] = d
                    near[i, j, at] = k
    return near


@_compiled
def _gather(image, first, a, side):
    wide, pixels = image.shape[1], image.ravel()
    at = np.empty(_LANES, np.int64)
    for g in range(_TEAM):
        patches = first[min(g, len(first) - 1)]  # the last team may be short
        for n in range(STACK):
            at[_PLACES[n] + g] = patches[n]
    for y in range(side):
        for x in range(side):
            lanes, shift = a[(y * side + x) * _LANES :], y * wide + x
            for i in range(_LANES):
                lanes[i] = pixels[np.uint64(at[i] + shift)]  # without a sign: never counted from the end


def _wavelets(half):
    """Sums and differences of the first `half` lanes of each pixel and those behind them, in place."""

    @_compiled
    def level(a, pixels):
        for p in range(pixels):
            lanes = a[p * _LANES :]
            for i in range(half):
                u, v = lanes[i], lanes[i + half]
                lanes[i] = (u + v) * _ROOT
                lanes[i + half] = (u - v) * _ROOT

    return level


_level1, _level2, _level3, _level4 = (_wavelets(_LANES >> k) for k in (1, 2, 3, 4))


@_compiled
def _across(a, pixels):
    """Haar's wavelets across each stack, in place: sums come first, and on with those."""
    _level1(a, pixels)
    _level2(a, pixels)
    _level3(a, pixels)
    _level4(a, pixels)


@_compiled
def _across_back(a, pixels):
    _level4(a, pixels)
    _level3(a, pixels)
    _level2(a, pixels)
    _level1(a, pixels)


@_compiled
def _cosines4(a0, a1, a2, a3):
    s0, s1, d0, d1 = a0 + a3, a1 + a2, a0 - a3, a1 - a2
    return _HALF * (s0 + s1), _A1 * d0 + _A3 * d1, _HALF * (s0 - s1), _A3 * d0 - _A1 * d1


@_compiled
def _back4(y0, y1, y2, y3):
    s0, s1 = _HALF * (y0 + y2), _HALF * (y0 - y2)
    d0, d1 = _A1 * y1 + _A3 * y3, _A3 * y1 - _A1 * y3
    return s0 + d0, s1 + d1, s1 - d1, s0 - d0


@_compiled
def _cosines8(a0, a1, a2, a3, a4, a5, a6, a7):
    s0, s1, s2, s3 = a0 + a7, a1 + a6, a2 + a5, a3 + a4
    d0, d1, d2, d3 = a0 - a7, a1 - a6, a2 - a5, a3 - a4
    t0, t1, t2, t3 = s0 + s3, s1 + s2, s1 - s2, s0 - s3
    return (
        _C4 * (t0 + t1),
        _C1 * d0 + _C3 * d1 + _C5 * d2 + _C7 * d3,
        _C2 * t3 + _C6 * t2,
        _C3 * d0 - _C7 * d1 - _C1 * d2 - _C5 * d3,
        _C4 * (t0 - t1),
        _C5 * d0 - _C1 * d1 + _C7 * d2 + _C3 * d3,
        _C6 * t3 - _C2 * t2,
        _C7 * d0 - _C5 * d1 + _C3 * d2 - _C1 * d3,
    )


@_compiled
def _back8(y0, y1, y2, y3, y4, y5, y6, y7):
    t0, t1 = _C4 * (y0 + y4), _C4 * (y0 - y4)
    t3, t2 = _C2 * y2 + _C6 * y6, _C6 * y2 - _C2 * y6
    s0, s1, s2, s3 = t0 + t3, t1 + t2, t1 - t2, t0 - t3
    d0 = _C1 * y1 + _C3 * y3 + _C5 * y5 + _C7 * y7
    d1 = _C3 * y1 - _C7 * y3 - _C1 * y5 - _C5 * y7
    d2 = _C5 * y1 - _C1 * y3 + _C7 * y5 + _C3 * y7
    d3 = _C7 * y1 - _C5 * y3 + _C3 * y5 - _C1 * y7
    return s0 + d0, s1 + d1, s2 + d2, s3 + d3, s3 - d3, s2 - d2, s1 - d1, s0 - d0


def _of_each(line, side, step):
    """The transform `line` of each line of pixels that lie `step` apart in a patch, in place."""
    d, other = step * _LANES, (side if step == 1 else 1) * _LANES

    @_compiled
    def four(a):
        for k in range(4):
            c = a[k * other :]
            for i in range(_LANES):
                c[i], c[i + d], c[i + 2 * d], c[i + 3 * d] = line(c[i], c[i + d], c[i + 2 * d], c[i + 3 * d])

    @_compiled
    def eight(a):
        for k in range(8):
            c = a[k * other :]
            for i in range(_LANES):
                (
                    c[i],
                    c[i + d],
                    c[i + 2 * d],
                    c[i + 3 * d],
                    c[i + 4 * d],
                    c[i + 5 * d],
                    c[i + 6 * d],
                    c[i + 7 * d],
                ) = line(
                    c[i],
                    c[i + d],
                    c[i + 2 * d],
                    c[i + 3 * d],
                    c[i + 4 * d],
                    c[i + 5 * d],
                    c[i + 6 * d],
                    c[i + 7 * d],
                )

    return four if side == 4 else eight


_rows4, _columns4 = _of_each(_cosines4, 4, 1), _of_each(_cosines4, 4, 4)
_rows4_back, _columns4_back = _of_each(_back4, 4, 1), _of_each(_back4, 4, 4)
_rows8, _columns8 = _of_each(_cosines8, 8, 1), _of_each(_cosines8, 8, 8)
_rows8_back, _columns8_back = _of_each(_back8, 8, 1), _of_each(_back8, 8, 8)


@_compiled
def _forward(image, first, a, side):
    _gather(image, first, a, side)
    _across(a, side * side)
    if side == 4:
        _rows4(a)
        _columns4(a)
    else:
        _rows8(a)
        _columns8(a)


@_compiled
def _inverse(a, side):
    if side == 4:
        _rows4_back(a)
        _columns4_back(a)
    else:
        _rows8_back(a)
        _columns8_back(a)
    _across_back(a, side * side)


@_compiled
def _shrunk(a, b, v, local, power):
    """The coefficients `a` shrunk by b²/(b² + v), in place, and what they keep of the noise added to `power`."""
    for p in range(len(v)):
        u, c, d = v[p], a[p * _LANES :], b[p * _LANES :]
        for i in range(_LANES):
            noise = u * local[i]
            e = d[i] * d[i]
            s = e / (e + noise)
            c[i] *= s
            power[i] += s * s * noise


@_compiled
def _kept(a, v, local, power, threshold):
    """The coefficients `a` but for those that are small beside the noise, as `_shrunk`; the mean stays."""
    mean = a[:_TEAM].copy()
    for p in range(len(v)):
        u, c = v[p], a[p * _LANES :]
        for i in range(_LANES):
            noise = u * local[i]
            keep = c[i] * c[i] > threshold * noise
            c[i] = c[i] if keep else np.float32(0)
            power[i] += noise if keep else np.float32(0)
    for g in range(_TEAM):
        if a[g] != mean[g]:
            a[g] = mean[g]
            power[g] += v[0] * local[g]


@_compiled
def _scatter(a, first, w, edge, total, weight, base, side):
    """Add patches, tapered by `edge`, to what comes back to their places, and their weights to their first pixels."""
    wide = total.shape[1]
    for y in range(side):
        for x in range(side):
            c, taper = a[(y * side + x) * _LANES :], edge[y] * edge[x]
            for i in range(_LANES):
                c[i] *= w[i] * taper
    pixels, places = total.ravel(), weight.ravel()
    for g in range(len(first)):
        for n in range(STACK):
            at = first[g, n] - base * wide
            places[at] += w[g]
            c, out = a[_PLACES[n] + g :], pixels[at:]
            if side == 4:
                for y in range(4):
                    for x in range(4):
                        out[y * wide + x] += c[(y * 4 + x) * _LANES]
            else:
                for y in range(8):
                    for x in range(8):
                        out[y * wide + x] += c[(y * 8 + x) * _LANES]


@_filter
def filtered(noisy, pilot, wiener, level, first, base, high, v, threshold, usual, edge, side):
    """(sums of a strip's filtered patches, sums of their weights at their first pixels), rows from `base` on, `high`
    of them."""
    wide = noisy.shape[1]
    total = np.zeros((high, wide), np.float32)
    weight = np.zeros((high, wide), np.float32)
    a = np.empty(side * side * _LANES, np.float32)
    b = np.empty(side * side * _LANES, np.float32)
    local = np.ones(_LANES, np.float32)
    power = np.empty(_LANES, np.float32)
    w = np.empty(_LANES, np.float32)
    for start in range(0, len(first), _TEAM):
        team = first[start : start + _TEAM]
        _forward(noisy, team, a, side)
        if level.size:
            for g in range(len(team)):
                mean = np.float32(0)
                for n in range(STACK):
                    mean += level[team[g, n] // wide, team[g, n] % wide]
                for n in range(STACK):
                    local[n * _TEAM + g] = mean / STACK
        power[:] = 0
        if wiener:
            _forward(pilot, team, b, side)
            _shrunk(a, b, v, local, power)
        else:
            _kept(a, v, local, power, threshold)
        _inverse(a, side)
        for g in range(_TEAM):
            spent = np.float32(0)
            for n in range(STACK):
                spent += power[n * _TEAM + g]
            for n in range(STACK):
                w[n * _TEAM + g] = usual / max(spent, np.float32(1e-3) * usual)
        _scatter(a, team, w, edge, total, weight, base, side)
    return total, weight

"""The inner loops of `deblur.denoise.patches`, compiled by Numba where it is installed.

Each works on one strip of groups and holds no lock, so that threads run strips side by side. The first call ever
compiles, for some seconds; the machine code is then kept on disk.

Sizes are constants here, so that a compiler sees through every loop: groups of 16 patches of 8 x 8 pixels, and
8 groups at a time. The 128 numbers that belong to one pixel of all these patches lie side by side, the 8 groups
innermost, and each step of a transform is a loop over them with a vector unit's whole width.
"""

from __future__ import annotations

import math

import numba
import numpy as np

SIDES, STACK = (4, 8), 16
_TEAM = 4
_LANES = STACK * _TEAM
_HALF, _ROOT = np.float32(0.5), np.float32(math.sqrt(0.5))
_A1, _A3 = (np.float32(math.sqrt(0.5) * math.cos(k * math.pi / 8)) for k in (1, 3))
_C1, _C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(0.5 * math.cos(k * math.pi / 16)) for k in range(1, 8))
_exact = numba.njit(cache=True, nogil=True, error_model="numpy")
_compiled = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})


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
    wide = image.shape[1]
    for g in range(_TEAM):
        at = first[min(g, len(first) - 1)]  # the last team may be short
        for n in range(STACK):
            top, left = at[n] // wide, at[n] % wide
            for y in range(side):
                line = image[top + y, left : left + side]
                for x in range(side):
                    a[(y * side + x) * _LANES + n * _TEAM + g] = line[x]


@_compiled
def _across(a, pixels, inverse):
    """Haar's wavelets across each stack, in place: sums at the even places, and on with those."""
    for p in range(pixels):
        for level in range(4):
            step = 8 >> level if inverse else 1 << level
            for n in range(0, STACK, 2 * step):
                i = p * _LANES + n * _TEAM
                j = i + step * _TEAM
                for g in range(_TEAM):
                    u, v = a[i + g], a[j + g]
                    a[i + g] = (u + v) * _ROOT
                    a[j + g] = (u - v) * _ROOT


@_compiled
def _cosines(a, start, step, side):
    """The cosine transform of four or eight numbers, `step` apart, in place."""
    if side == 4:
        for i in range(start, start + _LANES):
            a0, a1, a2, a3 = a[i], a[i + step], a[i + 2 * step], a[i + 3 * step]
            s0, s1, d0, d1 = a0 + a3, a1 + a2, a0 - a3, a1 - a2
            a[i] = _HALF * (s0 + s1)
            a[i + step] = _A1 * d0 + _A3 * d1
            a[i + 2 * step] = _HALF * (s0 - s1)
            a[i + 3 * step] = _A3 * d0 - _A1 * d1
        return
    for i in range(start, start + _LANES):
        a0, a1, a2, a3 = a[i], a[i + step], a[i + 2 * step], a[i + 3 * step]
        a4, a5, a6, a7 = a[i + 4 * step], a[i + 5 * step], a[i + 6 * step], a[i + 7 * step]
        s0, s1, s2, s3 = a0 + a7, a1 + a6, a2 + a5, a3 + a4
        d0, d1, d2, d3 = a0 - a7, a1 - a6, a2 - a5, a3 - a4
        t0, t1, t2, t3 = s0 + s3, s1 + s2, s1 - s2, s0 - s3
        a[i] = _C4 * (t0 + t1)
        a[i + step] = _C1 * d0 + _C3 * d1 + _C5 * d2 + _C7 * d3
        a[i + 2 * step] = _C2 * t3 + _C6 * t2
        a[i + 3 * step] = _C3 * d0 - _C7 * d1 - _C1 * d2 - _C5 * d3
        a[i + 4 * step] = _C4 * (t0 - t1)
        a[i + 5 * step] = _C5 * d0 - _C1 * d1 + _C7 * d2 + _C3 * d3
        a[i + 6 * step] = _C6 * t3 - _C2 * t2
        a[i + 7 * step] = _C7 * d0 - _C5 * d1 + _C3 * d2 - _C1 * d3


@_compiled
def _cosines_back(a, start, step, side):
    if side == 4:
        for i in range(start, start + _LANES):
            y0, y1, y2, y3 = a[i], a[i + step], a[i + 2 * step], a[i + 3 * step]
            s0, s1 = _HALF * (y0 + y2), _HALF * (y0 - y2)
            d0, d1 = _A1 * y1 + _A3 * y3, _A3 * y1 - _A1 * y3
            a[i], a[i + 3 * step] = s0 + d0, s0 - d0
            a[i + step], a[i + 2 * step] = s1 + d1, s1 - d1
        return
    for i in range(start, start + _LANES):
        y0, y1, y2, y3 = a[i], a[i + step], a[i + 2 * step], a[i + 3 * step]
        y4, y5, y6, y7 = a[i + 4 * step], a[i + 5 * step], a[i + 6 * step], a[i + 7 * step]
        t0, t1 = _C4 * (y0 + y4), _C4 * (y0 - y4)
        t3, t2 = _C2 * y2 + _C6 * y6, _C6 * y2 - _C2 * y6
        s0, s1, s2, s3 = t0 + t3, t1 + t2, t1 - t2, t0 - t3
        d0 = _C1 * y1 + _C3 * y3 + _C5 * y5 + _C7 * y7
        d1 = _C3 * y1 - _C7 * y3 - _C1 * y5 - _C5 * y7
        d2 = _C5 * y1 - _C1 * y3 + _C7 * y5 + _C3 * y7
        d3 = _C7 * y1 - _C5 * y3 + _C3 * y5 - _C1 * y7
        a[i], a[i + 7 * step] = s0 + d0, s0 - d0
        a[i + step], a[i + 6 * step] = s1 + d1, s1 - d1
        a[i + 2 * step], a[i + 5 * step] = s2 + d2, s2 - d2
        a[i + 3 * step], a[i + 4 * step] = s3 + d3, s3 - d3


@_compiled
def _forward(image, first, a, side):
    _gather(image, first, a, side)
    _across(a, side * side, False)
    for k in range(side):
        _cosines(a, k * _LANES, side * _LANES, side)
    for k in range(side):
        _cosines(a, k * side * _LANES, _LANES, side)


@_compiled
def _inverse(a, side):
    for k in range(side):
        _cosines_back(a, k * side * _LANES, _LANES, side)
    for k in range(side):
        _cosines_back(a, k * _LANES, side * _LANES, side)
    _across(a, side * side, True)


@_compiled
def filtered(noisy, pilot, wiener, level, first, base, high, v, threshold, usual, edge, side):
    """(sums of a strip's filtered patches, sums of their weights), from row `base` on, (high, columns)."""
    wide = noisy.shape[1]
    total = np.zeros((high, wide), np.float32)
    weight = np.zeros((high, wide), np.float32)
    a = np.empty(side * side * _LANES, np.float32)
    b = np.empty(side * side * _LANES, np.float32)
    local = np.ones(_LANES, np.float32)
    power = np.empty(_LANES, np.float32)
    for start in range(0, len(first), _TEAM):
        team = first[start : start + _TEAM]
        _forward(noisy, team, a, side)
        if wiener:
            _forward(pilot, team, b, side)
        if level.size:
            for g in range(len(team)):
                mean = np.float32(0)
                for n in range(STACK):
                    mean += level[team[g, n] // wide, team[g, n] % wide]
                for n in range(STACK):
                    local[n * _TEAM + g] = mean / STACK
        power[:] = 0
        for p in range(side * side):
            u, at = v[p], p * _LANES
            if wiener:
                for i in range(_LANES):
                    e = b[at + i] * b[at + i]
                    s = e / (e + u * local[i])
                    a[at + i] *= s
                    power[i] += s * s * u * local[i]
            else:
                for i in range(_LANES):
                    keep = a[at + i] * a[at + i] > threshold * u * local[i]
                    keep = keep or (p == 0 and i < _TEAM)  # the mean stays
                    a[at + i] = a[at + i] if keep else np.float32(0)
                    power[i] += u * local[i] if keep else np.float32(0)
        _inverse(a, side)
        for g in range(len(team)):
            spent = np.float32(0)
            for n in range(STACK):
                spent += power[n * _TEAM + g]
            w = usual / max(spent, np.float32(1e-3) * usual)
            for n in range(STACK):
                top, left = team[g, n] // wide - base, team[g, n] % wide
                for y in range(side):
                    t, s = total[top + y, left : left + side], weight[top + y, left : left + side]
                    for x in range(side):
                        p = y * side + x
                        c = w * edge[y] * edge[x]
                        t[x] += c * a[p * _LANES + n * _TEAM + g]
                        s[x] += c
    return total, weight

"""Inner loops of `deblur.denoise.patches`, compiled by Numba if it is installed.

Each works on one strip of groups and releases the GIL, so threads run strips in parallel. The very first call
compiles for about a dozen seconds on one core; the machine code is then kept on disk.

Sizes are constants, so that the compiler can unroll the loops: groups of 16 patches of 4 x 4 or 8 x 8 pixels, and 4
groups at a time. The 64 numbers that belong to one pixel of all these patches, its lanes, are contiguous, with the 4
groups innermost, and each step of a transform is a loop over them. The compiler uses vector instructions only if
reads and writes cannot overlap, so distances within an array are constants.
"""

import math

import numba
import numpy as np

from .patches import SIDES, STACK, opponent

_TEAM = 4
_LANES = STACK * _TEAM
# Places of the patches of a stack among the lanes: Haar's wavelets combine lanes that are half of them apart.
_PLACES = np.array([0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]) * _TEAM
_ROOT = np.float32(math.sqrt(0.5))
# Rounded as array operations round, since many patches are equally good.
_precise = numba.njit(error_model="numpy")
_exact = numba.njit(cache=True, nogil=True, error_model="numpy")
_FAST = {"contract", "reassoc", "nsz"}
_compiled = numba.njit(error_model="numpy", fastmath=_FAST)  # a part of the filter
_filter = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)


@_precise
def _distances(pilot, row, dy, dx, side, lines, sums):
    """Compute the distances of a row's patches from those moved by (dy, dx) to `sums`; return first column and number.

    Loops take the compiler a quarter of the time of slices.
    """
    left, n = max(0, -dx), pilot.shape[1] - abs(dx)
    for x in range(n):
        lines[x] = sums[x] = 0
    for s in range(side):
        here, there = pilot[row + s, left:], pilot[row + dy + s, left + dx :]
        for x in range(n):
            d = here[x] - there[x]
            lines[x] += d * d
    n -= side - 1
    for s in range(side):
        ahead = lines[s:]
        for x in range(n):
            sums[x] += ahead[x]
    return left, n


@_exact
def nearest(pilot, rows, cols, moves, side):
    """Return the indices of each reference patch's nearest moves, ascending; 0, no move, if there are fewer."""
    near = np.zeros((len(rows), len(cols), STACK), np.int32)
    best = np.empty((len(cols), STACK), np.float32)
    lines, sums = np.empty_like(pilot[0]), np.empty_like(pilot[0])
    for i, row in enumerate(rows):
        for j in range(len(cols)):
            for at in range(STACK):
                best[j, at] = np.inf if at else -1.0  # the reference patch always belongs to its group
        for k in range(1, len(moves)):
            dy, dx = moves[k, 0], moves[k, 1]
            if row + dy < 0 or row + dy + side > len(pilot):
                continue
            left, n = _distances(pilot, row, dy, dx, side, lines, sums)
            for j in range(len(cols)):
                x = cols[j] - left
                if x < 0 or x >= n:
                    continue
                d = sums[x]
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
                lanes[i] = pixels[np.uint64(at[i] + shift)]  # unsigned, so never counted from the end


@_compiled
def _haar(a, pixels, back):
    """Apply Haar's wavelets across each stack, in place, sums first; or the inverse."""
    for level in range(4):
        half = _TEAM << level if back else _LANES >> level + 1
        for p in range(pixels):
            lanes = a[p * _LANES :]
            for i in range(half):
                u, v = lanes[i], lanes[i + half]
                lanes[i] = (u + v) * _ROOT
                lanes[i + half] = (u - v) * _ROOT


def _both_ways(matrix):
    """Return a function that multiplies rows and columns of each patch by a (side, side) matrix, in place."""
    matrix = matrix.astype(np.float32)
    side = len(matrix)
    column = side * _LANES

    @_compiled
    def transform(a, work):
        for source, target, start, step in ((a, work, column, _LANES), (work, a, _LANES, column)):
            for k in range(side):
                row, out = source[k * start :], target[k * start :]
                for u in range(side):
                    for i in range(_LANES):
                        c = np.float32(0)
                        for x in range(side):
                            c += matrix[u, x] * row[i + x * step]
                        out[i + u * step] = c

    return transform


_cosines4, _cosines8 = (_both_ways(opponent(side)) for side in SIDES)
_inverse4, _inverse8 = (_both_ways(opponent(side).T) for side in SIDES)


@_compiled
def _forward(image, first, a, work, side):
    _gather(image, first, a, side)
    _haar(a, side * side, False)
    if side == 4:
        _cosines4(a, work)
    else:
        _cosines8(a, work)


@_compiled
def _shrunk(a, b, v, local, power):
    """Shrink the coefficients `a` by b²/(b² + v) in place, and add the remaining noise to `power`."""
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
    """Remove the coefficients `a` that are small compared with the noise; else as `_shrunk`. The mean is kept."""
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
def _scatter(a, first, w, edge, total, weight, side):
    """Add patches, tapered by `edge`, at their places to `total`, and their weights at their first pixels."""
    wide = total.shape[1]
    for y in range(side):
        for x in range(side):
            c, taper = a[(y * side + x) * _LANES :], edge[y] * edge[x]
            for i in range(_LANES):
                c[i] *= w[i] * taper
    pixels, places = total.ravel(), weight.ravel()
    for g in range(len(first)):
        for n in range(STACK):
            at = first[g, n]
            places[at] += w[g]
            c, out = a[_PLACES[n] + g :], pixels[at:]
            for y in range(side):
                for x in range(side):
                    out[y * wide + x] += c[(y * side + x) * _LANES]


@_filter
def filtered(noisy, pilot, level, first, v, threshold, edge):
    """Return the sums of a strip's filtered patches, and the sums of their weights at the patches' first pixels.

    An empty `pilot` requests thresholding, an empty `level` means constant variances v.
    """
    wide, side, usual = noisy.shape[1], len(edge), v.mean()
    total = np.zeros(noisy.shape, np.float32)
    weight = np.zeros(noisy.shape, np.float32)
    a = np.empty(side * side * _LANES, np.float32)
    b = np.empty(side * side * _LANES, np.float32)
    work = np.empty(side * side * _LANES, np.float32)
    local = np.ones(_LANES, np.float32)
    power, w = np.empty(_LANES, np.float32), np.empty(_LANES, np.float32)
    for start in range(0, len(first), _TEAM):
        team = first[start : start + _TEAM]
        _forward(noisy, team, a, work, side)
        if level.size:
            for g in range(len(team)):
                mean = np.float32(0)
                for n in range(STACK):
                    mean += level[team[g, n] // wide, team[g, n] % wide]
                for n in range(STACK):
                    local[n * _TEAM + g] = mean / STACK
        power[:] = 0
        if pilot.size:
            _forward(pilot, team, b, work, side)
            _shrunk(a, b, v, local, power)
        else:
            _kept(a, v, local, power, threshold)
        if side == 4:
            _inverse4(a, work)
        else:
            _inverse8(a, work)
        _haar(a, side * side, True)
        for g in range(_TEAM):
            spent = np.float32(0)
            for n in range(STACK):
                spent += power[n * _TEAM + g]
            for n in range(STACK):
                w[n * _TEAM + g] = usual / max(spent, np.float32(1e-3) * usual)
        _scatter(a, team, w, edge, total, weight, side)
    return total, weight

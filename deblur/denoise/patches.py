"""Groups of similar patches, which are filtered together.

Photographs repeat themselves. The patches most similar to a reference patch are stacked. A transform of the stack
(cosines within a patch, Haar's wavelets across the stack) concentrates their common content in few coefficients [1]_.
Coefficients that are small compared with the noise are removed, and the patches return to their places. Overlapping
patches are averaged, weighted by the inverse of their remaining noise.

A GPU uses the kernels of ``cuda/patches.cu`` (`deblur.denoise.patches_gpu`). The CPU processes strips of reference rows
in parallel on all cores: by the compiled loops of `deblur.denoise.patches_jit` if Numba is installed
(``pip install deblur-toolkit[fast]``), else, and for patches or groups of other sizes, by array operations. All give
the same result, to rounding.

References
----------
.. [1] K. Dabov, A. Foi, V. Katkovnik, K. Egiazarian, Image denoising by sparse 3-D transform-domain collaborative
   filtering, IEEE Trans. Image Process. 16 (2007) 2080-2095.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import scipy

from ..device import Array, asnumpy, blocks, get_xp
from ..threads import on_cores
from . import patches_gpu

#: Sides of patches, and number of patches of a group, that compiled loops and kernels serve.
SIDES, STACK = (4, 8), 16
_STRIP = 1 << 11  # approximate number of groups in a strip
_THRESHOLD = 2.7  # standard deviations of the noise below which a coefficient is removed


@cache
def _compiled() -> ModuleType | None:
    """Return the module of compiled loops; None if Numba is missing or has no place to store them."""
    try:
        return import_module(".patches_jit", __package__)
    except (ImportError, RuntimeError):
        return None


@cache
def _moves(up: int, along: int) -> np.ndarray:
    """Return all moves up to these distances, (n, 2), the shortest first, which is no move."""
    moves = [(dy, dx) for dy in range(-up, up + 1) for dx in range(-along, along + 1)]
    return np.array(sorted(moves, key=lambda d: d[0] ** 2 + d[1] ** 2))


@cache
def _cosines(side: int) -> np.ndarray:
    """Return the matrix of the cosine transform of a patch, (side², side²)."""
    return np.kron(opponent(side), opponent(side)).astype(np.float32)


@cache
def _haar(n: int) -> np.ndarray:
    """Return the orthonormal Haar matrix for a power of two, the mean first."""
    if n == 1:
        return np.ones((1, 1))
    return np.concatenate([np.kron(_haar(n // 2), [1, 1]), np.kron(np.eye(n // 2), [1, -1])]) / np.sqrt(2)


def side_in(shape: tuple[int, ...], side: int = 8) -> int:
    """Return the side of a patch, at most that of the image."""
    return min(side, *shape[:2])


class Groups:
    """The places of similar patches of an image.

    Parameters
    ----------
    pilot : (P, Q) array
        Image with little noise that determines similarity; NumPy or CuPy.
    side : int
        Side of a patch in pixels, at most that of the image.
    step : int
        Distance of reference patches in pixels.
    radius : int
        Largest distance in pixels, along each axis, of similar patches; at most 127.
    """

    def __init__(self, pilot: Array, side: int = 8, step: int = 4, radius: int = 12) -> None:
        self._xp = xp = get_xp(pilot)
        self.shape = pilot.shape
        self.side = side = side_in(pilot.shape, side)
        high, wide = (n - side for n in pilot.shape)  # place of the last patch
        self._rows, self._cols = (np.unique(np.append(np.arange(0, n + 1, step), n)) for n in (high, wide))
        self._moves = moves = _moves(min(radius, high), min(radius, wide))
        self._count = 1 << (min(STACK, len(moves)).bit_length() - 1)
        served = side in SIDES and self._count == STACK
        self._jit = _compiled() if served and xp is np else None
        self._strips = blocks(len(self._rows), max(1, _STRIP // len(self._cols)))  # rows of reference patches
        self._edge = np.kaiser(side, 2.0).astype(np.float32)
        pilot = xp.ascontiguousarray(pilot, np.float32)
        self._places: patches_gpu.Places | None = None
        if served and xp is not np:
            self._places = patches_gpu.places(
                pilot.shape, *(a.tobytes() for a in (self._rows, self._cols, moves, self._edge)), pilot.device.id
            )
            if self._places is not None:
                self.first = patches_gpu.firsts(pilot, self._places, side)
                return
        lines = xp.asarray(moves @ [pilot.shape[1], 1])

        def firsts(strip: slice) -> Array:
            rows = self._rows[strip]
            if self._jit is not None:
                near = self._jit.nearest(pilot, rows, self._cols, moves, side)
            else:
                near = self._nearest(pilot, rows)
            here = xp.asarray(rows[:, None] * pilot.shape[1] + self._cols)
            return (here[..., None] + lines[near]).reshape(-1, self._count)

        #: Flat index of each patch's first pixel, (groups, patches).
        self.first = xp.concatenate(self._each(firsts))

    @property
    def captures(self) -> bool:
        """Whether a graph can capture the work, because it consists of kernels only."""
        return self._places is not None

    def of(self, pilot: Array) -> Groups:
        """Return the groups of another image of the same size; only if `captures`."""
        assert self._places is not None
        other = copy(self)
        other.first = patches_gpu.firsts(self._xp.ascontiguousarray(pilot, np.float32), self._places, self.side)
        return other

    def _each(self, function: Callable[[slice], Any]) -> list:
        """Return the results of `function` for all strips, in order; on the CPU it runs on all cores."""
        return on_cores(function, self._strips) if self._xp is np else [function(strip) for strip in self._strips]

    def _nearest(self, pilot: Array, at: np.ndarray) -> Array:
        """Return the indices of the nearest moves for each reference patch, (rows, columns, patches), ascending.

        If a move would leave the image, the reference patch, index 0, replaces it. Of equally good moves the shorter
        one is taken.
        """
        xp, side = self._xp, self.side
        up, along = self._moves.max(axis=0)
        beyond = xp.pad(pilot, ((up, up), (along, along)), constant_values=np.inf)
        top, bottom = int(at[0]), int(at[-1]) + side
        rows, cols = xp.asarray(at - top), xp.asarray(self._cols)
        distance = xp.empty((len(self._moves), len(rows), len(cols)), np.float32)
        for k, (y, x) in enumerate(np.add(self._moves, [up, along]).tolist()):
            # Squared differences of the image and itself shifted, summed over each patch.
            d = pilot[top:bottom] - beyond[top + y : bottom + y, x : x + pilot.shape[1]]
            d *= d
            distance[k] = _sums(_sums(d, rows, side, 0), cols, side, 1)
        distance[0] = -1.0  # the reference patch always belongs to its group
        # Nonnegative floats sort like their bits: with the index appended, one partition sorts by both.
        key = xp.ascontiguousarray(distance.reshape(len(self._moves), -1).T).view(np.int32).astype(np.int64)
        key = (key << 16) | xp.arange(len(self._moves))
        if self._count < len(self._moves):
            key = xp.partition(key, self._count - 1, axis=1)[:, : self._count]
        key = xp.sort(key, axis=1)
        near = xp.where(key >> 16 == int(np.float32(np.inf).view(np.int32)), 0, key & 0xFFFF)
        return near.reshape(len(rows), len(cols), self._count)

    def variances(self, covariance: Array, level: float = 1.0) -> Array:
        """Return the noise's variance, times `level`, in each of a patch's cosine coefficients, (side²,).

        Parameters
        ----------
        covariance : (m, n) array
            Autocovariance of stationary noise; lag (0, 0) comes first, negative lags at the end.
        """
        i = np.arange(self.side)
        lag = i[:, None] - i
        # Rows of small lags only: a few numbers, used on the host.
        near = np.concatenate([asnumpy(covariance[: self.side]), asnumpy(covariance[1 - self.side :])])
        full = near[lag[:, None, :, None], lag[None, :, None, :]]
        full = full.reshape(self.side**2, -1).astype(np.float64)
        t = _cosines(self.side).astype(np.float64)
        return get_xp(covariance).asarray(level * np.maximum(np.einsum("ij,jk,ik->i", t, full, t), 0))

    def wiener(self, noisy: Array, pilot: Array, variances: Array, level: Array | None = None) -> Array:
        """Return `noisy`, each coefficient times p²/(p² + v), with the pilot's coefficient p and the noise variance v.

        Parameters
        ----------
        noisy, pilot : (P, Q) arrays
        variances : (side²,) array
            Variances of the noise, as `variances` returns them.
        level : (P, Q) array, optional
            Factor of the noise's variance at each pixel.
        """
        return self._filtered(noisy, pilot, variances, level)

    def threshold(self, noisy: Array, variances: Array, level: Array | None = None) -> Array:
        """Return `noisy` without coefficients below 2.7 standard deviations of the noise; the mean is kept."""
        return self._filtered(noisy, None, variances, level)

    def _filtered(self, noisy: Array, pilot: Array | None, variances: Array, level: Array | None) -> Array:
        xp, side = self._xp, self.side
        a = xp.ascontiguousarray(noisy, np.float32)
        b = None if pilot is None else xp.ascontiguousarray(pilot, np.float32)
        if level is not None:  # the mean of each patch
            level = level.astype(np.float32)
            for axis in (0, 1):
                level = _sums(level, xp.arange(level.shape[axis] - side + 1), side, axis) / np.float32(side)
        if self._places is not None:
            v = variances.astype(np.float64, copy=False)
            found = patches_gpu.filtered(a, b, self.first, v, level, _THRESHOLD**2, self._places.edge)
            return found.astype(noisy.dtype, copy=False)
        # Without noise nothing is shrunk; the floor avoids 0/0.
        v = xp.maximum(variances, max(1e-12 * float((a * a).mean()), 1e-30)).astype(np.float32)
        # The weights of groups are relative to the noise, so their sums are of order one on every scale.
        usual = v.mean()
        total, weight = xp.zeros((2, *self.shape), np.float32)
        parts = self._each(lambda strip: self._strip(strip, a, b, v, usual, level))
        for rows, sums, weights in parts:
            total[rows] += sums
            weight[rows] += weights
        weight = weight[: 1 - side or None, : 1 - side or None]
        for axis in (0, 1):
            weight = _spread(weight, self._edge, axis)
        return (total / weight).astype(noisy.dtype)

    def _strip(
        self, strip: slice, a: Array, b: Array | None, v: Array, usual: Array, level: Array | None
    ) -> tuple[slice, Array, Array]:
        """Return a strip's rows of pixels, the sums of its filtered patches there, and the sums of their weights.

        The weights are at the patches' first pixels.

        Parameters
        ----------
        a, b : (P, Q) arrays
            The image, and the pilot; without a pilot, coefficients are thresholded.
        v : (side²,) array
            Variances of the noise.
        usual : number
            Mean of the variances.
        level : (P - side + 1, Q - side + 1) array or None
            Factor of the variances for each patch.
        """
        xp, side, threshold = self._xp, self.side, np.float32(_THRESHOLD**2)
        at, up, groups = self._rows[strip], int(self._moves[:, 0].max()), len(self._cols)
        rows = slice(max(0, int(at[0]) - up), int(at[-1]) + up + side)
        part = a[rows]
        first = self.first[strip.start * groups : strip.stop * groups] - rows.start * a.shape[1]  # in the strip
        if self._jit is not None:
            pilot, locally = (np.zeros((0, 0), np.float32) if x is None else x[rows] for x in (b, level))
            return rows, *self._jit.filtered(part, pilot, locally, first, v, threshold, self._edge)
        within, across = xp.asarray(_cosines(side)), xp.asarray(_haar(self._count).astype(np.float32))
        first = first.T  # (patches, groups)
        patch = np.add.outer(np.arange(side) * part.shape[1], np.arange(side)).ravel()
        pixels = first[..., None] + xp.asarray(patch)

        def across_stacks(matrix: Array, groups: Array) -> Array:
            return (matrix @ groups.reshape(self._count, -1)).reshape(groups.shape)

        def gathered(image: Array) -> Array:
            """Return the coefficients of the groups, (patches, groups, side²)."""
            return across_stacks(across, image.ravel()[pixels] @ within.T)

        local = v
        if level is not None:
            row, col = first // part.shape[1], first % part.shape[1]
            local = level[rows][row, col].mean(axis=0)[:, None] * v
        c = gathered(part)
        if b is None:
            shrink = (c * c > threshold * local).astype(c.dtype)
            shrink[0, :, 0] = 1
        else:
            shrink = gathered(b[rows]) ** 2
            shrink /= shrink + local
        w = usual / xp.maximum((shrink * shrink * local).sum(axis=(0, 2)), np.float32(1e-3) * usual)
        c *= shrink * w[:, None]
        c = across_stacks(across.T, c) @ within * xp.asarray(np.outer(self._edge, self._edge).ravel())
        total = xp.bincount(pixels.ravel(), c.ravel(), part.size)
        weight = xp.bincount(first.ravel(), xp.broadcast_to(w, first.shape).ravel(), part.size)
        return rows, total.reshape(part.shape), weight.reshape(part.shape)


def _sums(d: Array, at: Array, side: int, axis: int) -> Array:
    """Return the sums of `side` rows (columns) of `d`, beginning at each index in `at`."""
    xp = get_xp(d)
    total = xp.take(d, at, axis=axis)
    for k in range(1, side):
        total += xp.take(d, at + k, axis=axis)
    return total


def _spread(w: Array, by: np.ndarray, axis: int) -> Array:
    """Add each number of `w`, times `by`, to itself and the places after it; return the longer array."""
    shape = list(w.shape)
    shape[axis] += len(by) - 1
    out = get_xp(w).zeros(shape, w.dtype)
    for k, factor in enumerate(by.tolist()):
        there = slice(k, k + w.shape[axis])
        out[there if axis == 0 else (slice(None), there)] += factor * w
    return out


def opponent(c: int) -> np.ndarray:
    """Return the orthonormal cosine transform, (c, c), which turns c colours into their mean and c − 1 differences.

    For three colours these are the opponent colours.
    """
    return scipy.fft.dct(np.eye(c), axis=0, norm="ortho")


def mixed(matrix: Array, planes: Array) -> Array:
    """Multiply colours (c, P, Q) by a matrix of `opponent`, or by its transpose for the inverse."""
    return planes if len(planes) == 1 else get_xp(planes).einsum("ab,bij->aij", matrix, planes)

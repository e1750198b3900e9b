"""Groups of similar patches, and filtering them together.

A photograph repeats itself: round each reference patch the most similar ones nearby are stacked, and a transform of
the stack, cosines within a patch and Haar's wavelets across the stack, gathers what they share in few
coefficients [1]_. What is small beside the noise is taken out, and every patch goes back to its place; where
patches overlap they are averaged, those of little noise counting most.

References
----------
.. [1] K. Dabov, A. Foi, V. Katkovnik, K. Egiazarian, Image denoising by sparse 3-D transform-domain collaborative
   filtering, IEEE Trans. Image Process. 16 (2007) 2080-2095.
"""

from __future__ import annotations

import numpy as np
import scipy.fft

from ..device import Array, get_xp

_SIDE, _STEP, _RADIUS, _STACK = 8, 4, 12, 16
_CHUNK = 1 << 12  # groups transformed at a time
_THRESHOLD = 2.7  # standard deviations below which a coefficient is noise


def _haar(n: int) -> np.ndarray:
    """The orthonormal Haar matrix of a power of two, the mean first."""
    if n == 1:
        return np.ones((1, 1))
    coarse = np.kron(_haar(n // 2), [1, 1])
    fine = np.kron(np.eye(n // 2), [1, -1])
    return np.concatenate([coarse, fine]) / np.sqrt(2)


class Groups:
    """Where the similar patches of an image lie.

    Parameters
    ----------
    pilot : (P, Q) array
        An image with little noise: what similarity is judged by. NumPy or CuPy.
    side : int
        Side of a patch in pixels; smaller where the image is.
    step : int
        From one reference patch to the next.
    radius : int
        Pixels each way within which similar patches are looked for.
    stack : int
        Patches in a group, a power of two.
    """

    def __init__(
        self, pilot: Array, side: int = _SIDE, step: int = _STEP, radius: int = _RADIUS, stack: int = _STACK
    ) -> None:
        xp = get_xp(pilot)
        self.shape = pilot.shape
        self.side = side = min(side, *pilot.shape)
        high, wide = (n - side for n in pilot.shape)  # the last place of a patch
        rows, cols = (np.unique(np.append(np.arange(0, n + 1, step), n)) for n in (high, wide))
        reach = [
            (dy, dx)
            for dy in range(-min(radius, high), min(radius, high) + 1)
            for dx in range(-min(radius, wide), min(radius, wide) + 1)
        ]
        reach.sort(key=lambda d: d[0] ** 2 + d[1] ** 2)  # the patch itself first
        count = 1 << (min(stack, len(reach)).bit_length() - 1)
        pilot = pilot.astype(np.float32)
        at_rows, at_cols = xp.asarray(rows), xp.asarray(cols)
        distance = xp.full((len(reach), len(rows), len(cols)), np.inf, np.float32)
        for k, (dy, dx) in enumerate(reach):
            # Squared differences of the image and itself shifted, summed over each patch that lies in both.
            top, left = max(0, -dy), max(0, -dx)
            bottom, right = pilot.shape[0] - max(0, dy), pilot.shape[1] - max(0, dx)
            d = pilot[top:bottom, left:right] - pilot[top + dy : bottom + dy, left + dx : right + dx]
            d *= d
            r = (rows >= top) & (rows <= bottom - side)
            c = (cols >= left) & (cols <= right - side)
            if r.any() and c.any():
                r, c = (slice(int(m.argmax()), len(m) - int(m[::-1].argmax())) for m in (r, c))
                sums = _windows(d, side, at_rows[r] - top, 0)
                distance[k, r, c] = _windows(sums, side, at_cols[c] - left, 1)
        distance = distance.reshape(len(reach), -1)
        distance[0] = -1.0  # always of the group
        near = xp.argpartition(distance, count - 1, axis=0)[:count] if count < len(reach) else None
        if near is None:
            near = xp.broadcast_to(xp.arange(count)[:, None], (count, distance.shape[1]))
        order = xp.argsort(xp.take_along_axis(distance, near, axis=0), axis=0)
        near = xp.take_along_axis(near, order, axis=0)
        # A place that would reach out of the image is taken by the reference patch again.
        near = xp.where(xp.isinf(xp.take_along_axis(distance, near, axis=0)), 0, near)
        moves = xp.asarray(np.array([dy * pilot.shape[1] + dx for dy, dx in reach]))
        here = (at_rows[:, None] * pilot.shape[1] + at_cols).reshape(-1)
        #: Flat index of each patch's first pixel, (groups, patches).
        self.first = (here + moves[near]).T
        inside = np.arange(side)
        self._pixels = xp.asarray((inside[:, None] * pilot.shape[1] + inside).reshape(-1))
        cosine = scipy.fft.dct(np.eye(side), axis=0, norm="ortho")
        self._within = xp.asarray(np.kron(cosine, cosine).astype(np.float32))
        self._across = xp.asarray(_haar(count).astype(np.float32))
        window = np.kaiser(side, 2.0)
        self._window = xp.asarray(np.outer(window, window).reshape(-1).astype(np.float32))

    def variances(self, covariance: Array) -> Array:
        """The noise's variance in each of the patch's cosine coefficients, (side²,).

        Parameters
        ----------
        covariance : (m, n) array
            Autocovariance of stationary noise, lag (0, 0) first, negative lags at the end.
        """
        xp = get_xp(covariance)
        i = xp.arange(self.side)
        lag = i[:, None] - i
        full = covariance[lag[:, None, :, None], lag[None, :, None, :]]
        full = full.reshape(self.side**2, -1).astype(np.float64)
        t = self._within.astype(np.float64)
        return xp.maximum(xp.einsum("ij,jk,ik->i", t, full, t), 0)

    def wiener(self, noisy: Array, pilot: Array, variances: Array, level: Array | None = None) -> Array:
        """`noisy`, each coefficient shrunk by p²/(p² + v), p being the pilot's and v the noise's variance.

        Parameters
        ----------
        noisy, pilot : (P, Q) arrays
        variances : (side²,) array
            Of the noise, as `variances` has them.
        level : (P, Q) array, optional
            By how much the noise's variance differs from place to place.
        """

        def shrink(a: Array, b: Array, v: Array) -> tuple[Array, Array]:
            b *= b
            b /= b + v
            a *= b
            b *= b
            return a, (b * v).sum(axis=(1, 2))

        return self._filtered(shrink, noisy, pilot, variances, level)

    def threshold(self, noisy: Array, variances: Array, level: Array | None = None) -> Array:
        """`noisy` without the coefficients below 2.7 standard deviations of the noise; the mean stays."""

        def shrink(a: Array, _b: Array, v: Array) -> tuple[Array, Array]:
            keep = a * a > _THRESHOLD**2 * v
            keep[:, 0, 0] = True
            a *= keep
            return a, (keep * v).sum(axis=(1, 2))

        return self._filtered(shrink, noisy, None, variances, level)

    def _filtered(self, shrink, noisy: Array, pilot: Array | None, variances: Array, level: Array | None):
        xp = get_xp(noisy)
        flat = noisy.astype(np.float32).reshape(-1)
        guide = None if pilot is None else pilot.astype(np.float32).reshape(-1)
        scale = None if level is None else level.astype(np.float32).reshape(-1)
        total, weight = (xp.zeros(noisy.size, np.float64) for _ in range(2))
        # Without noise nothing is shrunk; the floor keeps 0/0 out.
        v = xp.maximum(variances, max(1e-12 * float((flat * flat).mean()), 1e-30)).astype(np.float32)
        usual = float(v.mean())
        for at in range(0, len(self.first), _CHUNK):
            pixels = self.first[at : at + _CHUNK, :, None] + self._pixels
            a = self._transformed(flat, pixels)
            b = None if guide is None else self._transformed(guide, pixels)
            local = v if scale is None else v * scale[pixels].mean(axis=(1, 2))[:, None, None]
            a, power = shrink(a, b, local)
            a = xp.matmul(self._across.T, a) @ self._within
            w = (usual / xp.maximum(power, 1e-3 * usual))[:, None] * self._window
            w = xp.broadcast_to(w[:, None, :], a.shape)
            a *= w
            total += xp.bincount(pixels.reshape(-1), a.reshape(-1), noisy.size)
            weight += xp.bincount(pixels.reshape(-1), w.reshape(-1), noisy.size)
        return (total / weight).reshape(noisy.shape).astype(noisy.dtype)

    def _transformed(self, flat: Array, pixels: Array) -> Array:
        return get_xp(flat).matmul(self._across, flat[pixels] @ self._within.T)


def _windows(d: Array, side: int, at: Array, axis: int) -> Array:
    """The sums of `side` rows (columns) of `d` from each of `at` on."""
    xp = get_xp(d)
    sums = xp.cumsum(d, axis=axis, dtype=np.float64)
    upto = xp.take(sums, at + side - 1, axis=axis)
    before = xp.take(sums, xp.maximum(at - 1, 0), axis=axis)
    first = (at > 0).reshape((-1, 1) if axis == 0 else (1, -1))
    return (upto - first * before).astype(np.float32)


def opponent(c: int) -> np.ndarray:
    """The orthonormal matrix that takes c colours apart: their mean first (for three, the opponent colours)."""
    return scipy.fft.dct(np.eye(c), axis=0, norm="ortho")

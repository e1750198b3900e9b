"""Fit of a blurred image's power spectrum by Whittle's likelihood; see `deblur.tuning.psf_error` for the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import product

import numpy as np

from ..device import Array, Device, asnumpy
from ..norms import combined, largest, outer, squares
from ..operators.blur import Blur
from ..operators.torus import Torus


def power_of(g: Array, side: int, windows: Sequence[int]) -> np.ndarray:
    """Return the mean power of Hann windows of up to three frames, as half a spectrum (side, side // 2 + 1).

    `windows` is the number of windows along each axis. White noise has its variance at each frequency.
    """
    device = Device.of(g)
    taper = np.sin(np.pi * (np.arange(side) + 0.5) / side) ** 2
    dtype = np.float64 if device.gpu is None else g.dtype
    window = outer(*[device.xp.asarray((taper / np.linalg.norm(taper)).astype(dtype))] * 2)
    starts = [np.rint(np.linspace(0, n - side, k)).astype(int) for n, k in zip(g.shape[-2:], windows, strict=True)]
    at = [*product(g.reshape(-1, *g.shape[-2:])[:3], *starts)]
    torus, power = Torus((side, side), device), None
    for frame, top, left in at:
        spectrum = torus.analyse(combined(frame[top : top + side, left : left + side], by=window), True)
        for part in (spectrum.real.reshape(-1, 1), spectrum.imag.reshape(-1, 1)):
            power = combined(part, power, by=part)
    return asnumpy(power).astype(np.float64).reshape(side, -1) / len(at)


@lru_cache(maxsize=8)
def cells(side: int, shape: tuple[int, int], psf: bytes) -> Cells:
    """Return the cells for windows of `side` pixels a side and a PSF, given by shape and float64 bytes; cached."""
    h = np.frombuffer(psf).reshape(shape)
    return Cells(Torus((side, side)).power(h / h.sum()))


class Cells:
    """Frequencies, grouped into cells of similar radius, direction and attenuation by the blur."""

    def __init__(self, blur: np.ndarray) -> None:
        side = len(blur)
        down, right = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None]
        squares = down**2 + right**2
        scene = 1 / np.maximum(squares, 0.25 / side**2)  # approximate power of pictures; the fit corrects it
        # Frequencies on an axis hold what continues beyond the frame; low ones follow no law. Both are left out.
        some = (squares > (6 / side) ** 2) & (right > 0) & (right < 0.5) & (down != 0)
        blurred, white = tapered(scene * blur)[some], tapered(scene)[some]
        radius, angle = 0.5 * np.log(squares[some]), np.arctan2(*np.broadcast_arrays(down, right))[some]
        octave, turn = (radius - radius.min()) / np.ptp(radius), angle / np.pi + 0.5
        parts = octave, turn, np.log(blurred / white + 1e-12) / 0.35
        kinds = [np.floor(part * n).astype(int) for part, n in zip(parts, (12, 8, 1), strict=True)]
        kinds[2] -= kinds[2].min()
        _, cell = np.unique(np.ravel_multi_index(kinds, [n.max() + 1 for n in kinds]), return_inverse=True)
        self.count = np.bincount(cell).astype(float)
        self._some, self._cell = some, cell
        # The PSF's power, averaged over all directions, and an upper bound of its part that is white noise of a
        # measured PSF; such noise has next to no power at few frequencies only.
        own = (np.bincount(kinds[0], blur[some]) / np.maximum(np.bincount(kinds[0]), 1))[kinds[0]]
        self.floor = float(min(np.quantile(blur[some], 0.005) / 0.005, np.quantile(own, 0.05)))
        x, self.blurred, self.white, two, cross, four, radius, own = (
            np.bincount(cell, values) / self.count
            for values in (
                2 * parts[0] - 1, blurred, white, np.cos(2 * angle), np.sin(2 * angle), np.cos(4 * angle), radius, own
            )
        )  # fmt: skip
        self.radius, self.own = np.exp(radius), np.maximum(own, self.floor or 1.0)
        self.basis = np.stack([np.ones_like(x), x, x * x, two, cross, four, x * two, x * cross], axis=1)

    @property
    def zeros(self) -> bool:
        """Whether the blur removes at least 2 % of the frequencies almost entirely."""
        return bool((self.blurred < 1e-3 * self.white) @ self.count >= 0.02 * self.count.sum())

    def means(self, power: np.ndarray) -> np.ndarray:
        """Return the mean of a half spectrum over each cell."""
        return np.bincount(self._cell, power[self._some]) / self.count

    def fitted(
        self, power: np.ndarray, noise: float | None, error: float | None, start: np.ndarray | None = None
    ) -> tuple[np.ndarray, float, float, float]:
        """Fit the parameters to a power spectrum; return them, loss, scatter of powers and the deviation of ε².

        The parameters (n + 2,) are those of log S, the colour of the noise, log ε² and log σ². A given `noise` (σ) or
        `error` (ε) is kept. The method is Fisher scoring with Levenberg's damping.
        """
        n, count, top = self.basis.shape[1] + 1, self.count, float(power.max())
        # The prior of S is that of pictures, as strong as twenty powers. Noise that was resampled or stored as JPEG is
        # not quite white.
        mean = np.array([0, -0.3, *[0] * n])
        weight = 20 / np.array([1e9, 0.8, 0.3, 0.5, 0.5, 0.5, 0.3, 0.3, 2, 1e9, 1e9]) ** 2
        limits = np.full((n + 2, 2), [-math.inf, math.inf])
        limits[n - 1 :] = [-0.3, 0.3], *np.log([[1e-10, max(0.09, (error or 0.0) ** 2)], [1e-22 * top, top]])
        if start is None:
            level = math.log(float(np.median(power / (self.blurred + 1e-3 * self.white))))
            start = np.array([level, *[0] * (n - 1), math.log(1e-3), math.log(0.5 * float(power.min()) + 1e-22 * top)])
        at, free, fine = start.copy(), np.ones(n + 2, bool), 4 * self.radius**2 - 1
        for i, given, least in ((n, error, 1e-10), (n + 1, noise, 1e-22 * top)):
            if given is not None:
                at[i], free[i] = math.log(max(given**2, least)), False

        def model(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            scene, (error, white) = self.scene(at), np.exp(at[n:])
            noise = white * np.exp(at[n - 1] * fine)
            # A measured PSF contains noise. The true PSF probably has less power than the measured one by that noise.
            hidden, turns = min(error, self.floor), 2.0 * (error < self.floor)
            true, part = 1 - hidden / self.own, hidden / self.own
            total = scene * (true**2 * self.blurred + (error - hidden * part) * self.white) + noise
            turned = error * self.white - turns * part * (hidden * self.white + true * self.blurred)
            parts = np.stack([fine * noise, scene * turned, noise])
            loss = count @ (np.log(total) + power / total) + 0.5 * weight @ (at - mean) ** 2
            slopes = np.concatenate([self.basis * (1 - noise / total)[:, None], (parts / total).T], axis=1)
            return float(loss), total, slopes

        loss, total, slopes = model(at)
        damping, information = 1e-2, np.zeros((0, 0))
        for _ in range(40):
            information = (slopes * count[:, None]).T @ slopes + np.diag(weight)
            slope = slopes.T @ (count * np.minimum(power / total - 1, 30)) - weight * (at - mean)
            damped = information + np.diag(damping * np.diag(information) + 1e-9 * count.sum())
            step = np.zeros(n + 2)
            step[free] = np.linalg.solve(damped[np.ix_(free, free)], slope[free]).clip(-2, 2)
            other = (at + step).clip(*limits.T)
            found = model(other)
            gain = loss - found[0]
            damping = max(damping / 6, 1e-7) if gain >= 0 else 8 * damping
            if gain >= 0:
                at, (loss, total, slopes) = other, found
            if 0 <= gain < 0.02 or damping > 1e8:
                break
        scatter = max(float(count @ (power / total - 1) ** 2) / len(count), 1.0)
        slopes[:, n] /= math.exp(at[n])  # derivative by ε² instead of its logarithm
        information = ((slopes * count[:, None]).T @ slopes + np.diag(weight))[np.ix_(free, free)]
        deviation = 0.0 if error is not None else math.sqrt(scatter * abs(float(np.linalg.pinv(information)[n, n])))
        return at, loss, scatter, deviation

    def scene(self, at: np.ndarray) -> np.ndarray:
        """Return S over 1/|k|² in each cell, from the parameters of a fit."""
        return np.exp((self.basis @ at[:-3]).clip(-99, 99))


def fitted_spectrum(g: Array, psf: np.ndarray) -> tuple[Cells, np.ndarray] | None:
    """Return the cells for a PSF and an image's power in them; None if the image is too small or too flat."""
    edges = [min(m // 2, n // 16) for m, n in zip(psf.shape, g.shape[-2:], strict=True)]  # affected by the boundary
    g = g[..., edges[0] : g.shape[-2] - edges[0], edges[1] : g.shape[-1] - edges[1]]
    side = min(max(256, 4 * max(psf.shape)), *g.shape[-2:])
    if side < max(32, 2 * max(psf.shape)) or abs(psf.sum()) <= 1e-3 * abs(psf).sum():
        return None
    found = cells(side, psf.shape, np.ascontiguousarray(psf, np.float64).tobytes())
    means = found.means(power_of(g, side, [min(-(-n // side), 3) for n in g.shape[-2:]]))
    shows = means.max() > (max(1e-12, 8 * float(np.finfo(g.dtype).eps)) * largest(g)) ** 2
    return (found, means) if shows else None


def left_by(blur: Blur, g: Array, error: float) -> float:
    """Return the standard deviation of what an error ε of the PSF leaves unexplained in frames; see `NoiseModel.left`.

    The scene is estimated as the linear formula does with λ = ε², in which noise counts as at most half of itself.
    """
    torus, wrong = Torus(blur.image_shape, Device.of(g)), (error * blur.dc_gain) ** 2
    taper = reduce(np.multiply.outer, [np.hanning(n + 2)[1:-1] / math.sqrt(0.375 * (n + 1) / n) for n in torus.lengths])
    power = torus.power(blur.psf)
    power = power * (scene_law(torus.squared_frequencies()) > 0) / (power + wrong) ** 2
    residual = torus.filter(g * torus.device.xp.asarray(taper.astype(g.dtype)), (wrong * power) ** 0.5)
    return math.sqrt(float(squares(residual)) / g.size)


def scene_law(squares: Array) -> Array:
    """Return 1/|k|², a picture's power, from squared frequencies; 0 below 0.1 cycles per pixel.

    There a wrong PSF with the right sum leaves hardly any residual.
    """
    return (squares > 0.1**2) / np.maximum(squares, 0.1**2)


def tapered(power: np.ndarray) -> np.ndarray:
    """Return a half spectrum of power, smoothed as Hann's taper smooths it."""
    for axis in range(power.ndim - 1):
        power = (4 * power + np.roll(power, 1, axis) + np.roll(power, -1, axis)) / 6
    wide = np.pad(power, [*[(0, 0)] * (power.ndim - 1), (1, 1)], mode="reflect")
    return (4 * power + wide[..., :-2] + wide[..., 2:]) / 6

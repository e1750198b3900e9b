"""Compare the power spectrum of a blurred image with that of a PSF.

The expected power of an image is M(ω) = A(ω) |ĥ(ω)|² + N. A is the power of the scene, which decreases smoothly with
the frequency and depends smoothly on the direction. |ĥ|² is the power of the blur. The noise N is white or decreases
with the frequency. Blurs differ in the positions where |ĥ|² is near zero, which no smooth A can imitate.

The power is the mean of the periodograms of overlapping windows (Welch). A is the exponential of a few smooth
functions, fitted by maximum likelihood for exponentially distributed powers (Whittle). Two PSFs are compared by their
deviances. Power contains no phase: a PSF, the PSF rotated by 180 degrees, and shifted PSFs are equivalent here.

"""

from __future__ import annotations

import functools
import math

import numpy as np
import scipy

from ..operators.torus import Torus, wound
from ..solvers.whittle import power_of, tapered
from ..tuning import noise_level

_LARGEST = 4.0  # limit of residuals and deviances, so that single frequencies (textures) do not dominate


class PictureSpectrum:
    """The power of an image at half of the frequencies of a window.

    Attributes
    ----------
    side : int
        Side of the window in pixels.
    power : (n,) array
        The power at the frequencies that are `used`.
    noise : float
        The noise N, in the unit of `power`.
    """

    def __init__(self, image: np.ndarray) -> None:
        least = min(image.shape)
        self.side = side = 128 if least >= 256 else 2 * (least // 4)
        if least < 32:
            raise ValueError(f"an image of shape {image.shape} is too small: 32 x 32 are needed, better 256 x 256")
        power = power_of(image, side, [max(math.ceil(2 * n / side) - 1, 1) for n in image.shape])
        self.noise = max(noise_level(image) ** 2, 1e-12 * float(image.var()), np.finfo(float).tiny)
        self.y, self.x = y, x = np.meshgrid(scipy.fft.fftfreq(side), scipy.fft.rfftfreq(side), indexing="ij")
        radius, turn = np.hypot(y, x), np.arctan2(y, x)
        # Picture frames and buildings have power along the axes. The lowest frequencies follow no statistics.
        away = (x * side > 1.5) & (np.abs(y) * side > 1.5)
        self.used = away & (radius * side >= 2.5) & (x < 0.5) & (np.abs(y) < 0.5)
        self.power = power[self.used]
        r, t = radius[self.used], turn[self.used]
        log = np.log(r)
        turns = [f(k * t) * g for k in (2, 4) for f in (np.cos, np.sin) for g in (1, log)]
        self.smooth = np.stack([np.ones_like(r), log, log**2, r**2, *turns], axis=1)
        low = 1 - r**2 / (r**2).max()  # 0 at the highest frequency, where the noise was measured
        self.high = np.stack([np.ones_like(r), low], axis=1)
        self.smooth[:, 1:] -= self.smooth[:, 1:].mean(axis=0)
        self.smooth[:, 1:] /= self.smooth[:, 1:].std(axis=0)

    def transfer(self, psf: np.ndarray) -> np.ndarray:
        """Return |ĥ|² of a PSF at the used frequencies, smeared by the window."""
        sides = (self.side, self.side)
        return self.smeared(Torus(sides).power(wound(psf, sides)))

    def smeared(self, power: np.ndarray) -> np.ndarray:
        """Return half of a power spectrum at the used frequencies, smeared by the window."""
        return tapered(power)[self.used]

    def fit(self, transfer: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the deviance and the model (n,) of the image's power for a blur of power `transfer` (n,).

        Damped Fisher scoring finds the likeliest scene and noise. The deviance is a mean over the frequencies.
        """
        x, p, h = self.smooth, self.power, np.maximum(transfer, 1e-9)
        clear = np.maximum(p - self.noise, 0.05 * p) / np.maximum(h, 0.02 * h.max())
        root = np.sqrt(np.minimum(h / h.max(), 1))
        scene = np.linalg.lstsq(root[:, None] * x, root * np.log(clear), rcond=None)[0]
        # Logarithms of the noise relative to the estimate: at the highest frequency, and the rise to low ones (JPEG).
        level = np.zeros(2)
        best, model, kept = math.inf, p, (scene, level)
        for _ in range(12):
            signal = np.exp(np.clip(x @ scene, -200, 200)) * h
            noise = self.noise * np.exp(self.high @ level)
            m = signal + noise
            ratio = p / m
            # The mean of P/M − 1 − log(P/M), limited at each frequency.
            deviance = float(np.minimum(ratio - 1 - np.log(np.maximum(ratio, 1e-30)), _LARGEST).mean())
            if not deviance < best:
                scene, level = (scene + kept[0]) / 2, (level + kept[1]) / 2
                continue
            gain, best, model, kept = best - deviance, deviance, m, (scene, level)
            if gain < 1e-4 * best:
                break
            left = np.clip((p - m) / m, -1, _LARGEST)
            a = np.concatenate([x * (signal / m)[:, None], self.high * (noise / m)[:, None]], axis=1)
            step = np.linalg.solve(a.T @ a + 1e-6 * len(p) * np.eye(a.shape[1]), a.T @ left)
            step /= max(1.0, float(np.abs(step).max()) / 2)
            scene = scene + step[:-2]
            level = np.clip(level + step[-2:], (-1.0, 0.0), (3.0, 5.0))
        return best, model

    @functools.cached_property
    def without_blur(self) -> tuple[float, np.ndarray]:
        """The result of `fit` without a blur."""
        return self.fit(np.ones_like(self.power))

    def matched(self, transfers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Correlate the logarithms of the powers of blurs (k, n) with the residual of the model without blur, without a
        fit.

        Return, for each blur, the signed share of the residual's square that it explains (k,), and the depth of its
        zeros in the image relative to the expected depth (k,), which is 1 if the image was blurred by it.
        """
        none = self.without_blur[1]
        left = np.clip(np.log(np.maximum(self.power, 1e-30) / none), -_LARGEST, _LARGEST)
        q, _ = np.linalg.qr(self.smooth)
        left -= q @ (q.T @ left)
        ratio = self.noise / np.maximum(none - self.noise, 1e-3 * self.noise)
        h = transfers / np.maximum(transfers.mean(axis=1, keepdims=True), 1e-12)
        pattern = np.log(h + ratio + 0.01) - np.log(1 + ratio)
        pattern -= (pattern @ q) @ q.T
        along, own = pattern @ left, (pattern**2).sum(axis=1)
        return along * np.abs(along) / (own * float((left**2).sum()) + 1e-30), along / (own + 1e-30)

    def depth(self, transfer: np.ndarray) -> float:
        """Return the depth of the zeros for one blur of power (n,), as `matched` does."""
        return float(self.matched(transfer[None])[1][0])

    def against(self, one: float, other: float) -> float:
        """Return the log-likelihood ratio of blurs with the deviances `one` and `other`."""
        # About one in three neighbouring frequencies of a window is independent.
        return len(self.power) / 6 * math.log(max(other, 1e-12) / max(one, 1e-12))


def compressed(image: np.ndarray) -> bool:
    """Return True if the image shows the 8 x 8 blocks of JPEG, whose edges have larger third differences.

    Quantisation noise has no smooth spectrum, and fills the zeros of a blur.
    """
    ratios = []
    for a in (image, image.T):
        if a.shape[1] < 48:
            return False
        third = np.abs(a[:, 3:] - 3 * a[:, 2:-1] + 3 * a[:, 1:-2] - a[:, :-3])
        mean = np.minimum(third, np.quantile(third, 0.95)).mean(axis=0)
        phase = mean[: len(mean) // 8 * 8].reshape(-1, 8).mean(axis=0)
        k = int(phase.argmax())
        others = float(np.delete(phase, [k, (k + 1) % 8, (k - 1) % 8]).mean())
        ratios.append(float(phase[k]) / others if others > 0 else 1.0)
    return min(ratios) > 1.1

"""What every measurement of a PSF gives back, and what several of them share."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.fft

from ..device import Array, as_real, asnumpy, check_finite
from ..errors import warn

MEASURED_BELOW, ROUGH_BELOW = 0.1, 0.3  # relative errors of a PSF that count as measured, and as a start


class PSFStatus(enum.Enum):
    """How far an estimate of a PSF can be trusted. The value says it to the user."""

    MEASURED = "noise and scatter leave the error that is told"
    ROUGH = "an estimate to start from: look at the restored picture, and at `deblur.psf.check`, before you believe it"
    DOUBTFUL = "not to be trusted"

    @property
    def ok(self) -> bool:
        """Whether the PSF may be used."""
        return self is not PSFStatus.DOUBTFUL

    @classmethod
    def of(cls, error: float) -> PSFStatus:
        """What a relative error by itself would say."""
        if not error < ROUGH_BELOW:
            return cls.DOUBTFUL
        return cls.MEASURED if error < MEASURED_BELOW else cls.ROUGH


@dataclass(frozen=True)
class PSFMap:
    """PSFs on a grid of places of a picture, as `deblur.VaryingBlur` takes them: ``VaryingBlur(map.psfs, shape)``.

    Attributes
    ----------
    positions : (R, S, 2) array
        The centres of R x S equal parts of the picture, in rows and columns.
    psfs : (R, S, m, n) array
        The PSF at each, with a sum of one.
    """

    positions: np.ndarray
    psfs: np.ndarray


@dataclass(frozen=True)
class PSFEstimate:
    """A PSF from data. It can be given to `deblur.reconstruct` as it is.

    Attributes
    ----------
    psf : (m, n) array, float64
        Non-negative, with a sum of one and its centre at ``((m - 1) // 2, (n - 1) // 2)``.
    error : float
        Its relative error ‖psf − truth‖ / ‖truth‖ as the data themselves tell it.
    status : PSFStatus
        ``status.ok`` says whether to use it, ``status.value`` in words.
    why : str
        What the status rests on.
    details : mapping
        What else was measured; its entries stand in the docstring of each source.
    map : PSFMap or None
        How it varies across the picture, where that was asked for.
    """

    psf: np.ndarray
    error: float
    status: PSFStatus
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)
    map: PSFMap | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not self.status.ok:
            warn(f"this PSF is {self.status.value}: {self.why}")
        return np.array(self.psf, dtype=dtype) if copy else np.asarray(self.psf, dtype=dtype)

    def __str__(self) -> str:
        rows, cols = self.psf.shape
        fwhm, away = width(self.psf), centre_of_gravity(self.psf)
        lines = [
            f"PSF         {rows} x {cols} pixels, {fwhm:.2f} wide at half its height, "
            f"centre of gravity ({away[0]:+.2f}, {away[1]:+.2f}) from its centre",
            f"status      {self.status.name.lower()}: {self.status.value}",
            f"error       {percent(self.error)} (estimated)",
        ]
        if self.why:
            lines.append(f"why         {self.why}")
        for name, value in self.details.items():
            if isinstance(value, str | int | float | tuple):
                lines.append(f"{name.replace('_', ' '):<11} {_in_words(value)}")
        if self.map is not None:
            rows, cols = self.map.psfs.shape[:2]
            lines.append(f"map         {rows} x {cols} PSFs across the picture")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"PSFEstimate(psf {self.psf.shape}, error={self.error:.2g}, status={self.status.name})"


def percent(part: float) -> str:
    """A part of one, in words with two digits: "0.12 %", "110 %"."""
    return f"{100 * part:.2g} %" if part < 0.995 else f"{100 * part:.0f} %"


def _in_words(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_in_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------------
# What several sources share
# ---------------------------------------------------------------------------------------------


def grey(image: Any, what: str = "the image") -> np.ndarray:
    """A picture as (M, N) float64 on the host, checked."""
    a = as_real(image, what)
    if a.ndim != 2 or a.size == 0:
        hint = "; take one channel, such as image[..., 1]" if a.ndim == 3 and a.shape[-1] in (3, 4) else ""
        raise ValueError(f"{what} must be (rows, columns), not of shape {a.shape}{hint}")
    check_finite(a, what)
    return asnumpy(a).astype(np.float64)


def unit_sum(psf: np.ndarray) -> np.ndarray:
    total = psf.sum()
    if not (np.isfinite(total) and total > 0):
        raise ValueError("nothing is left of the PSF: its values sum to zero or less")
    return psf / total


def centre(shape: tuple[int, ...]) -> tuple[int, int]:
    return (shape[0] - 1) // 2, (shape[1] - 1) // 2


def centre_of_gravity(psf: np.ndarray) -> tuple[float, float]:
    """How far it lies from the PSF's centre, in rows and columns."""
    total, (r, c) = psf.sum(), centre(psf.shape)
    y, x = np.indices(psf.shape)
    return float(((y - r) * psf).sum() / total), float(((x - c) * psf).sum() / total)


def width(psf: np.ndarray) -> float:
    """The diameter of the disc that has as many pixels as lie above half the largest value."""
    top = psf.max()
    area = np.clip((psf / top - 0.5) * 4 + 0.5, 0, 1).sum() if top > 0 else 0.0
    return 2 * math.sqrt(float(area) / math.pi)


def energy_outside(psf: np.ndarray) -> float:
    """The share of the light that falls beyond the PSF's frame, if the wings go on as a power of the radius."""
    m, n = psf.shape
    y, x = (np.arange(k) - (k - 1) // 2 for k in (m, n))
    radius = np.hypot(y[:, None], x[None, :])
    last = min((m - 1) // 2, (n - 1) // 2)
    if last < 3:
        return 0.0
    outer = float(psf[(radius > last - 0.5) & (radius <= last + 0.5)].mean())
    inner = float(psf[(radius > 0.7 * last - 0.5) & (radius <= 0.7 * last + 0.5)].mean())
    if not outer > 1e-12 * psf.max():
        return 0.0
    power = max(math.log(max(inner / outer, 1.0)) / -math.log(0.7), 2.2)
    beyond = 2 * math.pi * outer * last**2 / (power - 2)
    return min(beyond / (1 + beyond), 1.0)


def shift(stack: Array, by: Array) -> Array:
    """Pictures (..., m, n) displaced by fractions of pixels (..., 2), by their Fourier series: periodic, exact for
    what the pixels sample well."""
    m, n = stack.shape[-2:]
    by = np.asarray(by)[..., None, None, :]
    y, x = scipy.fft.fftfreq(m)[:, None], scipy.fft.rfftfreq(n)[None, :]
    # The Nyquist frequency has no phase of its own: a real picture keeps the cosine.
    phase_y, phase_x = np.exp(-2j * np.pi * y * by[..., 0]), np.exp(-2j * np.pi * x * by[..., 1])
    if m % 2 == 0:
        phase_y[..., m // 2, :] = np.cos(np.pi * by[..., 0, 0])
    if n % 2 == 0:
        phase_x[..., :, -1] = np.cos(np.pi * by[..., 0, 1])
    return scipy.fft.irfft2(scipy.fft.rfft2(stack) * phase_y * phase_x, s=(m, n))


def placed(psf: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The PSF cut or filled with zeros to another shape, centre upon centre."""
    out = np.zeros(shape)
    here, there = [], []
    for m, n, c, d in zip(psf.shape, shape, centre(psf.shape), centre(shape), strict=True):
        before, after = min(c, d), min(m - c, n - d)
        here.append(slice(c - before, c + after))
        there.append(slice(d - before, d + after))
    out[tuple(there)] = psf[tuple(here)]
    return out


def gains(psf: np.ndarray, variance: np.ndarray | float) -> np.ndarray:
    """What to multiply each pixel of a noisy PSF with: Wiener's factor, from the power in its 3 x 3 neighbourhood."""
    from scipy.ndimage import uniform_filter

    power = uniform_filter(psf**2, 3, mode="constant")
    noise = uniform_filter(np.broadcast_to(variance, psf.shape), 3, mode="nearest")
    return np.clip(1 - noise / np.maximum(power, np.finfo(float).tiny), 0, 1)

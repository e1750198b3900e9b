"""The result of all measurements of a PSF, and functions that several measurements share."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from ..device import Array, as_real, asnumpy, check_finite
from ..errors import warn
from ..terms import first_difference_power
from .models import centre, centre_of_gravity, radii


class PSFStatus(enum.Enum):
    """How reliable an estimate of a PSF is; the value explains it to the user."""

    MEASURED = "the estimated error accounts for noise and scatter"
    ROUGH = "a first estimate: check the restored image, and the PSF by `deblur.psf.check`"
    DOUBTFUL = "unreliable"

    @property
    def ok(self) -> bool:
        """True if the PSF may be used."""
        return self is not PSFStatus.DOUBTFUL

    @classmethod
    def of(cls, error: float) -> PSFStatus:
        """Return the status for a relative error alone: MEASURED below 10 %, ROUGH below 30 %, else DOUBTFUL."""
        if not error < 0.3:
            return cls.DOUBTFUL
        return cls.MEASURED if error < 0.1 else cls.ROUGH


@dataclass(frozen=True, eq=False)
class PSFMap:
    """PSFs at the centres of equal parts of an image, for ``deblur.VaryingBlur(map.psfs, shape)``.

    Attributes
    ----------
    positions : (R, S, 2) array
        Rows and columns, in pixels, of the centres of R x S equal parts of the image.
    psfs : (R, S, m, n) array
        The PSF at each position, with a sum of one.
    """

    positions: np.ndarray
    psfs: np.ndarray


@dataclass(frozen=True, eq=False)
class PSFEstimate:
    """A PSF estimated from data; `deblur.reconstruct` accepts it in place of an array.

    Attributes
    ----------
    psf : (m, n) or (p, m, n) array, float64
        Non-negative, with a sum of one and its centre at ``((m - 1) // 2, (n - 1) // 2)``.
    error : float
        The relative error ‖psf − truth‖ / ‖truth‖, estimated from the data.
    status : PSFStatus
        ``status.ok`` is False for a PSF that should not be used.
    why : str
        The reasons for the status.
    details : mapping
        Further results; the function that measured the PSF documents them.
    map : PSFMap or None
        The PSFs across the image, if requested.
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
        size, away = " x ".join(map(str, self.psf.shape)), listed(centre_of_gravity(self.psf), "+.2f")
        lines = [
            f"PSF         {size} pixels, {width(self.psf):.2f} wide at half its height, "
            f"centre of gravity {away} from its centre",
            f"status      {self.status.name.lower()}: {self.status.value}",
            f"error       {percent(self.error)} (estimated)",
        ]
        if self.why:
            lines.append(f"reason      {self.why}")
        for name, value in self.details.items():
            if isinstance(value, str | int | float | tuple):
                lines.append(f"{name.replace('_', ' '):<11} {_in_words(value)}")
        if self.map is not None:
            rows, cols = self.map.psfs.shape[:2]
            lines.append(f"map         {rows} x {cols} PSFs across the image")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"PSFEstimate(psf {self.psf.shape}, error={self.error:.2g}, status={self.status.name})"


def graded(psf: np.ndarray, error: float, details: Mapping[str, Any], *reasons: Mapping[str, Any]) -> PSFEstimate:
    """Return the result for a PSF, with its status and the reasons for it.

    `reasons` are up to three mappings {reason: applies}. A reason of the first does not limit the status, one of the
    second limits it to ROUGH, and one of the third to DOUBTFUL.
    """
    status, why = PSFStatus.of(error), list[str]()
    for best, checks in zip(PSFStatus, reasons, strict=False):
        held = [reason for reason, applies in checks.items() if applies]
        if held:
            status = max(status, best, key=list(PSFStatus).index)
        why += filter(None, held)
    return PSFEstimate(psf, error, status, "; ".join(why), details)


def percent(part: float) -> str:
    """Return a fraction in per cent with two digits: "0.12 %", "110 %"."""
    return f"{100 * part:.2g} %" if part < 0.995 else f"{100 * part:.0f} %"


def listed(values: tuple[float, ...], form: str) -> str:
    """Return numbers in brackets: "(+0.5, -1.0)"."""
    return f"({', '.join(format(value, form) for value in values)})"


def pixels(psf: np.ndarray) -> str:
    """Return the unit of a displacement of a PSF, in words."""
    return "planes, rows and columns" if psf.ndim == 3 else "pixels"


def _in_words(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_in_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def grey(image: Any, what: str = "the image", axes: tuple[int, ...] = (2,)) -> tuple[np.ndarray, float]:
    """Return an image in float64 on the host divided by a power of two, and that power.

    The power prevents squares from overflowing or vanishing. Raise ValueError unless the image is real, finite and has
    one of these numbers of axes.
    """
    a = as_real(image, what)
    colours = a.ndim > 2 and a.shape[-1] in (3, 4) and what == "the image"
    if a.ndim not in axes or a.size == 0 or colours:
        hint = "; take one channel, such as image[..., 1]" if colours else ""
        known = " or ".join(f"({', '.join(('planes', 'rows', 'columns')[-n:])})" for n in axes)
        raise ValueError(f"{what} must be {known}, not of shape {a.shape}{hint}")
    check_finite(a, what)
    values = asnumpy(a).astype(np.float64)
    exponent = math.frexp(float(np.abs(values).max()))[1] - 1
    return np.ldexp(values, -exponent), math.ldexp(1.0, exponent)


def middle(image: np.ndarray, side: int) -> np.ndarray:
    """Return the central part of an image (M, N), at most `side` pixels along each axis."""
    rows, cols = (slice(max(n - side, 0) // 2, (n + min(n, side)) // 2) for n in image.shape)
    return image[rows, cols]


def border(a: np.ndarray) -> np.ndarray:
    """Return the outermost pixels of an array."""
    return np.concatenate([a.take(end, axis).ravel() for axis in range(a.ndim) for end in (0, -1)])


def width(psf: np.ndarray) -> float:
    """Return the diameter of a disc (for a volume, of a ball) with as many pixels as exceed half the largest value."""
    top, half = psf.max(), psf.ndim / 2
    content = float(np.clip((psf / top - 0.5) * 4 + 0.5, 0, 1).sum()) if top > 0 else 0.0
    return float(2 * (content * math.gamma(half + 1) / math.pi**half) ** (0.5 / half))


def energy_outside(psf: np.ndarray) -> float:
    """Return the share of the light beyond the PSF's frame, if the wings continue as a power of the radius.

    Wings surround a PSF, so the median over a ring measures them; a path that touches the frame is bright only in few
    pixels of a ring. For a volume the light beside it is estimated, summed over all planes, since the number of planes
    over which a microscope spreads its light is unknown.
    """
    psf = psf.sum(axis=tuple(range(psf.ndim - 2)))
    radius = radii(psf.shape)
    last = (min(psf.shape) - 1) // 2
    inner, outer = (float(np.median(psf[(radius > r - 0.5) & (radius <= r + 0.5)])) for r in (0.7 * last, last))
    if last < 1 or not outer > 1e-12 * psf.max():
        return 0.0
    if last < 3:  # too few rings to show wings; a Gaussian has the least
        return min(outer / float(psf.max()), 1.0) ** ((1 + 0.5 / last) ** 2)
    power = max(math.log(max(inner / outer, 1.0)) / -math.log(0.7), 2.2)
    beyond = 2 * math.pi * outer * last**2 / (power - 2)
    return min(beyond / (max(float(psf.sum()), 0.0) + beyond), 1.0)


def distance(h: np.ndarray, other: np.ndarray) -> float:
    """Return ‖h − other‖ of two PSFs of norm one and one shape, at the shift by whole pixels at which it is least."""
    room = [2 * n for n in h.shape]
    correlation = scipy.fft.irfft2(scipy.fft.rfft2(h, room).conj() * scipy.fft.rfft2(other, room), room).max()
    return math.sqrt(max(2 - 2 * float(correlation / np.sqrt((h**2).sum() * (other**2).sum())), 0.0))


def shift(stack: Array, by: Array, slopes: bool = False) -> Array:
    """Return images (..., m, n) shifted by fractions of pixels (..., 2), or volumes (..., p, m, n) shifted by (..., 3).

    The shift uses the Fourier series: it is periodic, and exact for band-limited images. With `slopes` the result is
    (3, ..., m, n), or (4, ..., p, m, n): the shifted images, and their derivatives with respect to the shift along each
    axis.
    """
    by = np.asarray(by)
    axes = tuple(range(-by.shape[-1], 0))
    sides = [stack.shape[axis] for axis in axes]
    moved, rates = scipy.fft.rfftn(stack, axes=axes), []
    for axis, n in zip(axes, sides, strict=True):
        frequency = scipy.fft.rfftfreq(n) if axis == -1 else scipy.fft.fftfreq(n)
        rate = (-2j * np.pi * frequency).reshape(-1, *[1] * (-1 - axis))
        phase = np.exp(rate * by[(..., axis, *[None] * len(axes))])
        if n % 2 == 0:  # at the Nyquist frequency a real image has only the cosine
            nyquist = (..., n // 2, *[slice(None)] * (-1 - axis))
            phase[nyquist], rate[n // 2] = phase[nyquist].real, 0
        moved = moved * phase
        rates.append(rate)
    return scipy.fft.irfftn(np.stack([moved, *(moved * r for r in rates)]) if slopes else moved, sides, axes)


def gradient_power(shape: Sequence[int]) -> np.ndarray:
    """Return |1 − e^{iω}|² summed over the axes of a periodic image, at half of its frequencies."""
    rows, columns = (first_difference_power(n, True, np) for n in shape)
    return np.add.outer(rows, columns[: len(columns) // 2 + 1])


def placed(psf: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the PSF cropped or padded with zeros to another shape, with the same centre."""
    out = np.zeros(shape)
    here, there = [], []
    for m, n, c, d in zip(psf.shape, shape, centre(psf.shape), centre(shape), strict=True):
        before, after = min(c, d), min(m - c, n - d)
        here.append(slice(c - before, c + after))
        there.append(slice(d - before, d + after))
    out[tuple(there)] = psf[tuple(here)]
    return out


def gains(psf: np.ndarray, variance: np.ndarray | float) -> np.ndarray:
    """Return Wiener's factor of each pixel of a noisy PSF, from the power of the pixel and its neighbours.

    Several PSFs (..., m, n) have one variance (m, n).
    """
    axes = np.ndim(variance) or psf.ndim
    power = scipy.ndimage.uniform_filter(psf**2, [1] * (psf.ndim - axes) + [3] * axes, mode="constant")
    noise = scipy.ndimage.uniform_filter(np.broadcast_to(variance, psf.shape[-axes:]), 3, mode="nearest")
    return np.clip(1 - noise / np.maximum(power, np.finfo(float).tiny), 0, 1)

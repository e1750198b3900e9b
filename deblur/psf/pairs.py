"""The PSF from a sharp and a blurred picture of the same thing: least squares with the picture in the operator's place.

blurred = gain · (h ∗ sharp) + offset + noise is linear in h. Only pixels count whose whole neighbourhood is in the
frame, so that nothing is assumed beyond it. The normal equations, with λ‖∇h‖² added, are solved by conjugate gradients
with the transforms of a torus; pixels of h that come out negative are held at zero and the rest is solved again. λ is
the one that predicts pixels left out best. Two exposures seldom lie upon each other: the displacement by whole pixels
is found by phase correlation, the rest from the centre of gravity of a first h.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.fft

from ..linalg import krylov
from ..operators.torus import Torus
from ..tuning import noise_level
from .estimate import (
    PSFEstimate,
    PSFStatus,
    centre_of_gravity,
    energy_outside,
    grey,
    shift,
    width,
)
from .models import Size, as_shape, unit_sum

_LAMBDAS = (3e-2, 3e-3, 3e-4, 3e-5)  # of the mean power of the sharp picture's gradient
_SPARE = 3  # pixels by which the first PSF is larger on every side, so that a displacement fits in
_ROUNDS = 4  # of holding negative pixels at zero
_ENOUGH = 256  # pixels a side to choose λ by
_LEFT_OUT = 0.2  # of the pixels, in blocks, to choose λ by
_DRAWS = 4  # of noise, to tell the error by
_UNSEEN = 0.005
_RTOL, _MOST = 1e-5, 200


def from_pair(sharp: Any, blurred: Any, size: Size) -> PSFEstimate:
    """Measure the PSF from a sharp and a blurred picture of the same thing.

    Parameters
    ----------
    sharp, blurred : (M, N) array
        Of one size, in units that are proportional to light; exposures may
        differ, and one may be displaced against the other.
    size : int or (int, int)
        Rows and columns of the PSF; rather too large than too small.

    Returns
    -------
    PSFEstimate
        Its centre of gravity is the centre. ``details``: ``shift`` of `blurred` against `sharp` in rows and columns,
        ``gain`` and ``offset`` of its brightness, ``explained``: the share of its variance that the PSF explains,
        ``residual``: what is left, over the noise of `blurred`, ``energy_outside``.

    Raises
    ------
    ValueError
        If the pictures differ in size, show nothing, or do not register; says what to do.

    Notes
    -----
    A turn, another scale, parallax or a subject that moved are not allowed for; they show as a residual well above the
    noise, which the status tells.

    Examples
    --------
    >>> import deblur
    >>> sharp = deblur.data.load("camera")[:128, :128]
    >>> truth = deblur.psf.camera_shake(9, 3)
    >>> blurred = deblur.degrade(sharp, truth, noise=0.002, boundary="reflect", seed=0)
    >>> found = deblur.psf.from_pair(sharp, blurred, 11)
    >>> bool(abs(found.psf[1:-1, 1:-1] - truth).max() < 0.1 * truth.max())
    True
    """
    shape = as_shape(size)
    s, b = grey(sharp, "the sharp picture"), grey(blurred, "the blurred picture")
    if s.shape != b.shape:
        raise ValueError(
            f"the sharp picture has {s.shape[0]} x {s.shape[1]} pixels and the blurred one {b.shape[0]} x "
            f"{b.shape[1]}; cut them to the same part"
        )
    room = [n - 2 * (m + 2 * _SPARE) for n, m in zip(s.shape, shape, strict=True)]
    if min(room) < 16:
        raise ValueError(
            f"pictures of {s.shape[0]} x {s.shape[1]} pixels do not determine a PSF of {shape[0]} x {shape[1]}: take "
            "larger pictures or a smaller size"
        )
    for picture, name in ((s, "sharp"), (b, "blurred")):
        if not np.ptp(picture) > 0:
            raise ValueError(
                f"the {name} picture is of one brightness: it shows nothing that could be blurred"
            )
    whole = _displacement(s, b, max(shape))
    s, b = _overlapping(s, b, whole)
    large = (shape[0] + 2 * _SPARE, shape[1] + 2 * _SPARE)
    if min(n - m for n, m in zip(s.shape, large, strict=True)) < 16:
        raise ValueError(_unregistered(f"they overlap by {s.shape[0]} x {s.shape[1]} pixels alone"))
    first = _System(s, b, large)
    rows, cols = (slice(max(n - _ENOUGH, 0) // 2, (n + min(n, _ENOUGH)) // 2) for n in s.shape)
    lam = _System(s[rows, cols], b[rows, cols], large).best_lambda()
    h = first.solved(lam)
    explained = first.explained(h)
    if not explained > 0.3:
        raise ValueError(
            _unregistered(f"the best PSF explains {100 * max(explained, 0):.0f} % of the blurred one alone")
        )
    away = np.array(centre_of_gravity(h))
    if np.abs(away).max() > 0.02:
        # The sharp picture is displaced and not the PSF, which may have edges that the pixels sample badly.
        s = shift(np.pad(s, 8, mode="reflect"), away)[8:-8, 8:-8]
    edge = 2 + math.ceil(np.abs(away).max())
    system = _System(s, b, shape, edge)
    h = system.solved(lam)
    return _estimate(system, h, lam, whole + away)


def _unregistered(why: str) -> str:
    return (
        f"the two pictures do not register: {why}. Take both with the camera on a tripod and the same lens and focal "
        "length, check that they show the same part in the same orientation, or pass a larger size"
    )


def _displacement(s: np.ndarray, b: np.ndarray, reach: int) -> np.ndarray:
    """By how many whole pixels `b` lies below and to the right of `s`."""
    from scipy.ndimage import gaussian_filter

    window = np.outer(*(np.hanning(n + 2)[1:-1] for n in s.shape))
    broad = max(reach / 4, 1.0)  # at the blur's own scale, so that its shape has no say
    x, y = (window * (gaussian_filter(a, broad) - gaussian_filter(a, 4 * broad)) for a in (s, b))
    cross = scipy.fft.rfft2(y) * scipy.fft.rfft2(x).conj()
    correlation = scipy.fft.irfft2(
        cross / np.maximum(np.abs(cross), 1e-3 * np.abs(cross).max()) ** 0.5, s=s.shape
    )
    at = np.array(np.unravel_index(correlation.argmax(), s.shape))
    return np.where(at > np.array(s.shape) // 2, at - np.array(s.shape), at)


def _overlapping(s: np.ndarray, b: np.ndarray, by: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    here = tuple(slice(max(-d, 0), n - max(d, 0)) for d, n in zip(by, s.shape, strict=True))
    there = tuple(slice(max(d, 0), n - max(-d, 0)) for d, n in zip(by, s.shape, strict=True))
    return s[here], b[there]


class _System:
    """The normal equations of h for pictures that lie upon each other."""

    def __init__(self, s: np.ndarray, b: np.ndarray, shape: tuple[int, int], edge: int = 0) -> None:
        self.shape = shape
        before = [
            n // 2 + edge for n in shape
        ]  # rows that the PSF reaches back to, its origin being (n - 1) // 2
        after = [(n - 1) // 2 + edge for n in shape]
        rows, cols = (slice(f, n - a) for f, a, n in zip(before, after, s.shape, strict=True))
        corner = [(n - 1) // 2 for n in shape]
        down, right = (slice(i.start + c, i.stop + c) for i, c in zip((rows, cols), corner, strict=True))
        self.place = (..., down, right)
        self.level = float(s.mean())
        self.s, self.b = s - self.level, b[rows, cols]
        self.torus = Torus([scipy.fft.next_fast_len(n, real=True) for n in s.shape])
        self.spectrum = self.torus.analyse(self.s)
        self.kept = np.ones(self.b.shape)
        self.power = float((np.diff(s, axis=0) ** 2).mean() + (np.diff(s, axis=1) ** 2).mean()) / 2

    def forward(self, h: np.ndarray) -> np.ndarray:
        """h ∗ sharp, where all of it is in the frame."""
        return self.torus.synthesise(self.torus.analyse(h) * self.spectrum)[self.place]

    def adjoint(self, r: np.ndarray) -> np.ndarray:
        full = np.zeros((*r.shape[:-2], *self.torus.lengths))
        full[self.place] = r
        back = self.torus.synthesise(self.torus.analyse(full) * self.spectrum.conj())
        return back[..., : self.shape[0], : self.shape[1]]

    def _free(self, r: np.ndarray) -> np.ndarray:
        """Less its mean over the pixels that count: what an offset cannot explain."""
        r = r * self.kept
        return r - self.kept * (r.sum(axis=(-2, -1), keepdims=True) / self.kept.sum())

    def normal(self, h: np.ndarray, lam: float, support: np.ndarray) -> np.ndarray:
        out = self.adjoint(self._free(self.forward(h * support))) + self._rough(h * support, lam)
        return out * support

    def _rough(self, h: np.ndarray, lam: float) -> np.ndarray:
        """λ times the Laplacian of h, which is zero beyond its frame."""
        p = np.pad(h, [(0, 0)] * (h.ndim - 2) + [(1, 1), (1, 1)])
        laplacian = 4 * h - p[..., 2:, 1:-1] - p[..., :-2, 1:-1] - p[..., 1:-1, 2:] - p[..., 1:-1, :-2]
        return lam * self.power * self.kept.sum() * laplacian

    def solved(
        self, lam: float, right: np.ndarray | None = None, support: np.ndarray | None = None
    ) -> np.ndarray:
        """h that is not negative, or, for right sides and a support that are given, the linear solution."""
        if right is not None and support is not None:
            return self._cg(right, lam, support)
        right = self.adjoint(self._free(self.b))
        support, h = np.ones(self.shape), np.zeros(self.shape)
        for _ in range(_ROUNDS):
            h = self._cg(right, lam, support, h)
            negative = h < 0
            if not negative.any():
                break
            h = np.maximum(h, 0)
            support = support * ~negative
        return np.maximum(h, 0)

    def _cg(
        self, right: np.ndarray, lam: float, support: np.ndarray, start: np.ndarray | None = None
    ) -> np.ndarray:
        def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return (a * b).sum(axis=(-2, -1), keepdims=True)

        small, inverse = self._preconditioner(lam)
        return krylov.cg(
            lambda h: self.normal(h, lam, support),
            right * support,
            None if start is None else start * support,
            dot=dot,
            precondition=lambda r: support * small.filter(r, inverse),
            rtol=_RTOL,
            max_iterations=_MOST,
        ).x

    def _preconditioner(self, lam: float) -> tuple[Torus, np.ndarray]:
        """The inverse of the normal equations as if a torus of twice the PSF's size were all there is.

        The picture's autocorrelation is what they hold but for the frame's edges.
        """
        whole = self.torus.synthesise(np.abs(self.spectrum) ** 2)
        size = [2 * n for n in self.shape]
        lags = [np.fft.fftfreq(n, 1 / n).astype(int) for n in size]
        taper = np.outer(*(np.cos(np.pi * lag / n) ** 2 for lag, n in zip(lags, size, strict=True)))
        small = Torus(size)
        power = small.analyse(whole[np.ix_(lags[0], lags[1])] * taper).real
        y, x = np.fft.fftfreq(size[0])[:, None], np.fft.rfftfreq(size[1])[None, :]
        rough = 4 - 2 * np.cos(2 * np.pi * y) - 2 * np.cos(2 * np.pi * x)
        power = np.maximum(power, 1e-6 * power.max()) * self.kept.sum() / self.s.size
        return small, 1 / (power + lam * self.power * self.kept.sum() * rough)

    def residual(self, h: np.ndarray) -> np.ndarray:
        r = self.b - self.forward(h)
        return r - r.mean()

    def explained(self, h: np.ndarray) -> float:
        return 1 - float(self.residual(h).var() / self.b.var())

    def best_lambda(self) -> float:
        """The λ whose PSF predicts blocks of pixels that it did not see best."""
        rng = np.random.default_rng(0)
        coarse = rng.random([-(-n // 16) for n in self.b.shape]) < _LEFT_OUT
        hidden = np.kron(coarse, np.ones((16, 16), bool))[: self.b.shape[0], : self.b.shape[1]]
        if not (0 < hidden.mean() < 0.6):
            return _LAMBDAS[1]
        self.kept = (~hidden).astype(float)
        risks = []
        for lam in _LAMBDAS:
            h = self.solved(lam)
            r = self.b - self.forward(h)
            r -= r[~hidden].mean()
            risks.append(float((r[hidden] ** 2).mean()))
        self.kept = np.ones(self.b.shape)
        return _LAMBDAS[int(np.argmin(risks))]


def _estimate(system: _System, h: np.ndarray, lam: float, moved: np.ndarray) -> PSFEstimate:
    residual = system.residual(h)
    noise = noise_level(system.b)
    support = (h > 0).astype(float)
    draws = float(residual.std()) * np.random.default_rng(0).standard_normal((_DRAWS, *residual.shape))
    right = np.stack([system.adjoint(d - d.mean()) for d in draws])
    scatter = system.solved(lam, right, support)
    bias = system.solved(lam, system._rough(h, lam)[None], support)
    size = float(np.linalg.norm(h))
    outside = energy_outside(h)
    error = math.hypot(
        float(np.sqrt((scatter**2).sum(axis=(1, 2)).mean())) / size,
        float(np.linalg.norm(bias)) / size,
        _UNSEEN,
    )
    gain = float(h.sum())
    psf = unit_sum(h)
    ratio = float(residual.std()) / max(noise, 1e-12 * float(np.abs(system.b).max()))
    status, reasons = PSFStatus.of(error), [f"{residual.size} pixels for the {h.size} of the PSF"]
    explained = system.explained(h)
    if explained < 0.8:
        status = PSFStatus.DOUBTFUL
        reasons.append(f"it explains {100 * explained:.0f} % of the blurred picture alone")
    elif ratio > 3 and explained < 0.999:
        status = PSFStatus.ROUGH if status is PSFStatus.MEASURED else status
        reasons.append(
            f"what it leaves is {ratio:.1f} times the noise: the pictures are turned or scaled against each other, "
            "something moved, the PSF varies or is larger than its size, or values are not proportional to light"
        )
    border = float(psf.sum() - psf[1:-1, 1:-1].sum())
    if border > 0.03:
        status = PSFStatus.ROUGH if status is PSFStatus.MEASURED else status
        reasons.append(f"{100 * border:.0f} % of it lies at the border of its frame: pass a larger size")
    details = {
        "shift": (float(moved[0]), float(moved[1])),
        "gain": gain,
        "offset": float((system.b - system.forward(h)).mean()) - gain * system.level,
        "explained": explained,
        "residual": ratio,
        "fwhm": width(psf),
        "energy_outside": outside,
    }
    return PSFEstimate(psf, error, status, "; ".join(reasons), details)

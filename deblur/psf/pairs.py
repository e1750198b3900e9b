"""Measure the PSF from a sharp and a blurred image of the same scene, by least squares.

The model blurred = gain · (h ∗ sharp) + offset + noise is linear in h. Only pixels whose whole neighbourhood is in the
frame are used, so that nothing is assumed beyond it. The normal equations, with λ‖∇h‖² added, are solved by conjugate
gradients with the transforms of a torus. Negative pixels of h are set to zero, and the others are solved for again. λ
is the one that predicts left-out pixels best. Phase correlation finds the displacement between the exposures by whole
pixels; the rest follows from the centre of gravity of a first h.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from ..linalg import krylov
from ..operators.torus import Torus
from ..tuning import noise_level
from ..vector_ops import Systems
from .estimate import PSFEstimate, energy_outside, graded, gradient_power, grey, middle, shift, width
from .models import Size, as_shape, centre_of_gravity, unit_sum

_LAMBDAS = (3e-2, 3e-3, 3e-4, 3e-5)  # relative to the mean power of the sharp image's gradient
_SPARE = 3  # pixels by which the first PSF is larger on every side, to hold a displacement


def from_pair(sharp: Any, blurred: Any, size: Size) -> PSFEstimate:
    """Measure the PSF from a sharp and a blurred image of the same scene.

    Parameters
    ----------
    sharp, blurred : (M, N) array
        The images, of the same size, in units that are proportional to light.
        Their exposures may differ, and one may be displaced.
    size : int or (int, int)
        Rows and columns of the PSF; too large is better than too small.

    Returns
    -------
    PSFEstimate
        The PSF, with its centre of gravity at the centre. ``details`` has the ``shift`` of `blurred` relative to
        `sharp` in rows and columns; ``gain`` and ``offset`` of its brightness; ``explained``, the share of its variance
        that the PSF explains; ``residual``, the residual in standard deviations of its noise; ``fwhm`` in pixels; and
        ``energy_outside``, the extrapolated share of the light beyond the size.

    Raises
    ------
    ValueError
        If the images differ in size, are constant, or do not register; the message contains advice.

    Notes
    -----
    Rotation, another scale, parallax and moving objects are not modelled. They cause a residual clearly above the
    noise, which lowers the status.

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
    (s, one), (b, unit) = grey(sharp, "the sharp image"), grey(blurred, "the blurred image")
    if s.shape != b.shape:
        raise ValueError(f"the images have the shapes {s.shape} and {b.shape}; cut them to the same part")
    if min(n - 2 * (m + 2 * _SPARE) for n, m in zip(s.shape, shape, strict=True)) < 16:
        raise ValueError(f"images {s.shape} do not determine a PSF {shape}: take larger images or a smaller size")
    for image, name in ((s, "sharp"), (b, "blurred")):
        if not np.ptp(image) > 0:
            raise ValueError(f"the {name} image is constant: it does not show a blur")
    whole = _displacement(s, b, max(shape))
    s, b = (_overlap(a, d) for a, d in ((s, -whole), (b, whole)))
    large = (shape[0] + 2 * _SPARE, shape[1] + 2 * _SPARE)
    if min(n - m for n, m in zip(s.shape, large, strict=True)) < 16:
        raise ValueError(_unregistered(f"they overlap by only {s.shape[0]} x {s.shape[1]} pixels"))
    lam = _System(middle(s, 256), middle(b, 256), large).best_lambda()
    first = _System(s, b, large)
    h = first.solved(lam)
    explained = first.explained(h)
    if not explained > 0.3:
        found = f"the best PSF explains {100 * max(explained, 0):.0f} % of the blurred one"
        raise ValueError(_unregistered(found))
    away = np.array(centre_of_gravity(h))
    if np.abs(away).max() > 0.02:
        # Shift the sharp image and not the PSF, whose edges the pixels may undersample.
        s = shift(np.pad(s, 8, mode="reflect"), away)[8:-8, 8:-8]
    system = _System(s, b, shape, 2 + math.ceil(np.abs(away).max()))
    return _estimate(system, system.solved(lam), lam, whole + away, [unit / one, unit])


def _unregistered(why: str) -> str:
    return f"the two images do not register: {why}. Use a tripod and one focal length, or pass a larger size"


def _displacement(s: np.ndarray, b: np.ndarray, reach: int) -> np.ndarray:
    """Return by how many whole pixels `b` is below and to the right of `s`."""
    window = np.outer(*(np.hanning(n + 2)[1:-1] for n in s.shape))
    broad = max(reach / 4, 1.0)  # the scale of the blur, so that its shape has no effect
    smoothed = scipy.ndimage.gaussian_filter
    x, y = (window * (smoothed(a, broad) - smoothed(a, 4 * broad)) for a in (s, b))
    cross = scipy.fft.rfft2(y) * scipy.fft.rfft2(x).conj()
    modulus = np.abs(cross)
    correlation = scipy.fft.irfft2(cross / np.maximum(modulus, 1e-3 * modulus.max()) ** 0.5, s=s.shape)
    at = np.array(np.unravel_index(correlation.argmax(), s.shape))
    return np.where(at > np.array(s.shape) // 2, at - np.array(s.shape), at)


def _overlap(a: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return the part of an image that is also visible in another image, which is displaced by -`by` pixels."""
    return a[tuple(slice(max(d, 0), n - max(-d, 0)) for d, n in zip(by, a.shape, strict=True))]


class _System:
    """The normal equations of a PSF h (m, n) for registered images, without the outermost `edge` pixels."""

    def __init__(self, s: np.ndarray, b: np.ndarray, shape: tuple[int, ...], edge: int = 0) -> None:
        self.shape = shape
        sides = [*zip(shape, s.shape, strict=True)]
        # The PSF reaches n // 2 pixels back, since its origin is (n - 1) // 2.
        inside = tuple(slice(n // 2 + edge, k - (n - 1) // 2 - edge) for n, k in sides)
        self.place: tuple[Any, ...] = (..., *(slice(n - 1 + edge, k - edge) for n, k in sides))
        self.level = float(s.mean())
        self.s, self.b = s - self.level, b[inside]
        self.torus = Torus([scipy.fft.next_fast_len(n, real=True) for n in s.shape])
        self.spectrum = self.torus.analyse(self.s)
        self.kept = np.ones(self.b.shape)
        self.power = float((np.diff(s, axis=0) ** 2).mean() + (np.diff(s, axis=1) ** 2).mean()) / 2

    def forward(self, h: np.ndarray) -> np.ndarray:
        """Return h ∗ sharp where all of it is in the frame."""
        return self.torus.product(h, self.spectrum)[self.place]

    def adjoint(self, r: np.ndarray) -> np.ndarray:
        full = np.zeros((*r.shape[:-2], *self.torus.lengths))
        full[self.place] = r
        return self.torus.product(full, self.spectrum, conjugate=True, shape=self.shape)

    def _free(self, r: np.ndarray) -> np.ndarray:
        """Return r without its mean over the kept pixels, which the offset explains."""
        r = r * self.kept
        return r - self.kept * (r.sum(axis=(-2, -1), keepdims=True) / self.kept.sum())

    def rough(self, h: np.ndarray, lam: float) -> np.ndarray:
        """Return λ times the negative Laplacian of h, which is zero beyond its frame."""
        laplacian = -sum(np.diff(h, 2, axis, prepend=0, append=0) for axis in (-2, -1))
        return lam * self.power * self.kept.sum() * laplacian

    def solved(self, lam: float) -> np.ndarray:
        """Return the non-negative h; negative pixels are set to zero at most four times."""
        right = self.adjoint(self._free(self.b))
        support, h = np.ones(self.shape), np.zeros(self.shape)
        for _ in range(4):
            h = self.linear(right, lam, support, h)
            negative = h < 0
            if not negative.any():
                break
            h = np.maximum(h, 0)
            support = support * ~negative
        return np.maximum(h, 0)

    def linear(self, right: np.ndarray, lam: float, support: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """Return the solutions (..., m, n) for right-hand sides (..., m, n); they are zero outside a support (m, n)."""

        def normal(h: np.ndarray) -> np.ndarray:
            h = h * support
            return (self.adjoint(self._free(self.forward(h))) + self.rough(h, lam)) * support

        small, inverse = self._preconditioner(lam)

        def nearly(r: np.ndarray) -> np.ndarray:
            return support * small.filter(r, inverse)

        ops = Systems(lambda a, b: (a * b).sum(axis=(-2, -1), keepdims=True))
        begin = None if start is None else start * support
        return krylov.cg(normal, right * support, ops, begin, precondition=nearly, rtol=1e-5, max_iterations=200)[0]

    def _preconditioner(self, lam: float) -> tuple[Torus, np.ndarray]:
        """Return the inverse of the normal equations on a torus of twice the PSF's size.

        Apart from the edges of the frame, the normal equations are a convolution with the image's autocorrelation.
        """
        whole = self.torus.synthesise(np.abs(self.spectrum) ** 2)
        size = [2 * n for n in self.shape]
        lags = [np.fft.fftfreq(n, 1 / n).astype(int) for n in size]
        taper = np.outer(*(np.cos(np.pi * lag / n) ** 2 for lag, n in zip(lags, size, strict=True)))
        small = Torus(size)
        power = small.analyse(whole[np.ix_(*lags)] * taper).real
        power = np.maximum(power, 1e-6 * power.max()) / self.s.size + lam * self.power * gradient_power(size)
        return small, 1 / (power * self.kept.sum())

    def residual(self, h: np.ndarray) -> np.ndarray:
        r = self.b - self.forward(h)
        return r - r.mean()

    def explained(self, h: np.ndarray) -> float:
        """Return the share of the blurred image's variance that h explains."""
        return 1 - float(self.residual(h).var() / self.b.var())

    def best_lambda(self) -> float:
        """Return the λ whose PSF predicts left-out pixels best; a fifth of the pixels is left out, in blocks."""
        coarse = np.random.default_rng(0).random([-(-n // 16) for n in self.b.shape]) < 0.2
        hidden = np.kron(coarse, np.ones((16, 16), bool))[: self.b.shape[0], : self.b.shape[1]]
        if not (0 < hidden.mean() < 0.6):
            return _LAMBDAS[1]
        self.kept = (~hidden).astype(float)
        risks = []
        for lam in _LAMBDAS:
            r = self.b - self.forward(self.solved(lam))
            risks.append(float(((r - r[~hidden].mean())[hidden] ** 2).mean()))
        return _LAMBDAS[int(np.argmin(risks))]


def _estimate(system: _System, h: np.ndarray, lam: float, moved: np.ndarray, units: list[float]) -> PSFEstimate:
    """Return the result for a PSF h and λ, a displacement, and the units of gain and offset."""
    residual = system.residual(h)
    support, size = (h > 0).astype(float), float(np.linalg.norm(h))
    draws = float(residual.std()) * np.random.default_rng(0).standard_normal((4, *residual.shape))
    right = np.stack([system.adjoint(d - d.mean()) for d in draws] + [system.rough(h, lam)])
    *scatter, bias = (np.linalg.norm(one) / size for one in system.linear(right, lam, support))
    # 0.005 is an additional error found by simulations.
    error = math.hypot(math.sqrt(np.mean(np.square(scatter))), bias, 0.005)
    gain, psf = float(h.sum()), unit_sum(h)
    ratio = float(residual.std()) / max(noise_level(system.b), 1e-12 * float(np.abs(system.b).max()))
    explained = system.explained(h)
    outermost = float(psf.sum() - psf[1:-1, 1:-1].sum())
    wrong = "rotation, scale, motion, a PSF that varies or is larger, or values not linear in light"
    rough = {
        f"the residual is {ratio:.1f} times the noise: {wrong}": ratio > 3 and 0.8 <= explained < 0.999,
        f"{100 * outermost:.0f} % of it is at its border: pass a larger size": outermost > 0.03,
    }
    doubtful = {f"it explains only {100 * explained:.0f} % of the blurred image": explained < 0.8}
    offset = float((system.b - system.forward(h)).mean()) - gain * system.level
    details = {"shift": (float(moved[0]), float(moved[1])), "gain": gain * units[0], "offset": offset * units[1]}
    details |= {"explained": explained, "residual": ratio}
    details |= {"fwhm": width(psf), "energy_outside": energy_outside(h)}
    return graded(psf, error, details, {f"{residual.size} pixels for the {h.size} of the PSF": True}, rough, doubtful)

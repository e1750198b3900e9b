"""Compute the mean PSF of an image, and how the PSF varies with the position."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy

from .estimate import PSFMap, gains, placed, shift
from .models import centre_of_gravity, unit_sum


@dataclass(frozen=True)
class MeanPSF:
    """The mean PSF of sources.

    Attributes
    ----------
    psf, variance : (m, n) or (p, m, n) array
        The mean, and the variance of each of its pixels.
    stamps : (k, ...) array
        The centred images of the sources, each with unit flux.
    weights : (k,) array
        Their weights in the mean, with a sum of one.
    """

    psf: np.ndarray
    variance: np.ndarray
    stamps: np.ndarray
    weights: np.ndarray

    def cut(self, shape: tuple[int, ...]) -> MeanPSF:
        """Return the same mean with another shape and the same centre."""
        psf, variance, *stamps = (placed(a, shape) for a in (self.psf, self.variance, *self.stamps))
        return MeanPSF(psf, variance, np.stack(stamps), self.weights)


def clean(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a PSF with its noise attenuated, and its relative error.

    The light of a volume may be spread over voxels that are each fainter than the noise. Therefore, for a volume, the
    means over neighbours and the differences from these means are attenuated separately.
    """
    found, left = np.zeros_like(mean), 0.0
    for side in (3, 9, 1) if mean.ndim == 3 else (1,):
        smooth = scipy.ndimage.uniform_filter(mean, side, mode="nearest") if side > 1 else np.zeros_like(mean)
        part = mean - smooth
        g = gains(part, variance)
        found += part * g
        left += (g**2 * variance).sum() + ((1 - g) ** 2 * np.maximum(part**2 - variance, 0)).sum()
        mean, variance = smooth, scipy.ndimage.uniform_filter(variance, side, mode="nearest") / side**mean.ndim
    psf = unit_sum(np.maximum(found, 0))
    return psf, float(np.sqrt(left / (psf**2).sum()))


class Variation:
    """The mean PSF plus eigen-PSFs, each times a polynomial of the position.

    The eigen-PSFs are the singular vectors of the sources' images minus their mean [1]_. The degree of the polynomials
    is the one that predicts left-out sources best. An eigen-PSF that no polynomial predicts is noise.

    Attributes
    ----------
    variation : float
        Root mean square difference of the PSFs from their mean, relative to it.

    References
    ----------
    .. [1] E. Bertin, "Automated morphometry with SExtractor and PSFEx", ADASS XX, 2011.
    """

    def __init__(self, at: np.ndarray, mean: MeanPSF, frame: tuple[int, ...]) -> None:
        self._mean, self._frame, self._degree = mean, frame, 0
        root = np.sqrt(mean.weights)[:, None]
        scaled = root * (mean.stamps - mean.psf).reshape(len(at), -1)
        vectors = np.linalg.eigh(scaled @ scaled.T)[1].T[::-1][: len(at) // 4] @ scaled  # largest first
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(float).tiny)
        values = scaled @ vectors.T  # times the roots of the weights
        least, coefficients = 0.8 * ((values / (1 - root**2)) ** 2).sum(axis=0), np.zeros((1, len(vectors)))
        predicted = np.zeros(len(vectors), bool)
        for degree in range(1, 8):
            powers = root * self._powers(at, degree)
            if 2 * powers.shape[1] > len(at):
                break
            inverse = np.linalg.pinv(powers)
            leverage = np.einsum("ij,ji->i", powers, inverse)[:, None]
            left = (values - powers @ (inverse @ values)) / np.maximum(1 - leverage, 0.05)
            risk = (left**2).sum(axis=0)
            if np.minimum(risk, least).sum() < least.sum():
                predicted |= risk < least
                least, self._degree = np.minimum(risk, least), degree
                coefficients = inverse @ values
        n = len(predicted) if predicted.all() else int(predicted.argmin())  # they are in order of size
        self._coefficients = coefficients[:, :n]
        self._parts = vectors[:n].reshape(n, *mean.psf.shape)
        self._size = (values[:, :n] ** 2).sum(axis=0)
        self.variation = float(np.sqrt((self._shares_at(at) ** 2).sum(axis=1).mean() / (mean.psf**2).sum()))

    def _powers(self, places: np.ndarray, degree: int) -> np.ndarray:
        """Return the monomials of up to this degree at positions (p, axes), as (p, j)."""
        at = 2 * places / (np.array(self._frame) - 1) - 1
        powers = itertools.product(range(degree + 1), repeat=at.shape[1])
        return np.stack([(at**power).prod(axis=1) for power in powers if sum(power) <= degree], axis=1)

    def _shares_at(self, places: np.ndarray) -> np.ndarray:
        return self._powers(places, self._degree) @ self._coefficients

    def psfs(self, places: np.ndarray) -> np.ndarray:
        """Return the PSF at each of the positions (p, axes)."""
        return self._mean.psf + np.tensordot(self._shares_at(places), self._parts, 1)

    def map(self, positions: np.ndarray) -> PSFMap:
        """Return PSFs at positions (R, S, 2)."""
        places = positions.reshape(-1, 2)
        # The eigen-PSFs are noisy, too, which increases the variance.

        noisier = 1 + (self._shares_at(places) ** 2 / self._size).sum(axis=1)
        psfs = []
        for h, v in zip(self.psfs(places), noisier, strict=True):
            away = centre_of_gravity(clean(h, self._mean.variance * v)[0])
            psfs.append(clean(shift(h, -np.array(away)), self._mean.variance * v)[0])
        return PSFMap(positions, np.stack(psfs).reshape(*positions.shape[:2], *self._mean.psf.shape))

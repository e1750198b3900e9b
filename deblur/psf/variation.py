"""The mean PSF of an image, and how the PSF varies with the position."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..operators.varying import cell_centres
from .estimate import PSFMap, centre_of_gravity, gains, placed, shift
from .models import unit_sum


@dataclass(frozen=True)
class MeanPSF:
    """The mean of sources.

    Attributes
    ----------
    psf, variance : (m, n) array
        The mean and the variance of each of its pixels.
    stamps : (k, m, n) array
        The centred images of the sources, each with unit flux.
    weights : (k,) array
        Their weights in the mean; they sum to one.
    """

    psf: np.ndarray
    variance: np.ndarray
    stamps: np.ndarray
    weights: np.ndarray

    def cut(self, shape: tuple[int, int]) -> MeanPSF:
        """The same with another shape, centre upon centre."""
        return replace(
            self,
            psf=placed(self.psf, shape),
            variance=placed(self.variance, shape),
            stamps=np.stack([placed(s, shape) for s in self.stamps]),
        )


def clean(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, float]:
    """A PSF with its noise attenuated, and its relative error."""
    g = gains(mean, variance)
    psf = unit_sum(np.maximum(mean * g, 0))
    left = (g**2 * variance).sum() + ((1 - g) ** 2 * np.maximum(mean**2 - variance, 0)).sum()
    return psf, float(np.sqrt(left / (psf**2).sum()))


class Variation:
    """The mean PSF plus eigen-PSFs, each times a smooth function of the position.

    The eigen-PSFs are the singular vectors of the sources' images less their mean, the functions thin-plate splines
    (G. Wahba, Spline Models for Observational Data, 1990) with the smoothness that predicts left-out sources best. An
    eigen-PSF that no spline predicts is noise.
    """

    def __init__(self, at: np.ndarray, mean: MeanPSF, frame: tuple[int, ...]) -> None:
        from scipy.interpolate import RBFInterpolator

        self._mean, self._frame = mean, frame
        self._parts, self._spline = np.zeros((0, *mean.psf.shape)), None
        self._shares = np.zeros((len(at), 0))
        if len(at) < 8:
            return
        flat = (mean.stamps - mean.psf).reshape(len(at), -1)
        root = np.sqrt(mean.weights)[:, None]
        vectors = np.linalg.svd(root * flat, full_matrices=False)[2][: len(at) // 4]
        shares, places = flat @ vectors.T, self._scaled(at)
        kernel = _kernel(places)
        smooth, predicted = _smoothed(places, shares, mean.weights, kernel)
        n = len(predicted) if predicted.all() else int(predicted.argmin())  # in order of their size
        if n:
            self._parts, self._shares = vectors[:n].reshape(n, *mean.psf.shape), smooth[:, :n]
            self._size = mean.weights @ shares[:, :n] ** 2
            self._spline = RBFInterpolator(places, self._shares, **kernel)

    @property
    def variation(self) -> float:
        """Root mean square difference of the PSFs from their mean, relative to it."""
        return float(np.sqrt((self._shares**2).sum(axis=1).mean() / (self._mean.psf**2).sum()))

    def _scaled(self, places: np.ndarray) -> np.ndarray:
        return 2 * (places / (np.array(self._frame) - 1)) - 1

    def _shares_at(self, places: np.ndarray) -> np.ndarray:
        return np.zeros((len(places), 0)) if self._spline is None else self._spline(self._scaled(places))

    def psfs(self, places: np.ndarray) -> np.ndarray:
        """The PSF at (p, 2) places, (p, m, n)."""
        return self._mean.psf + np.tensordot(self._shares_at(places), self._parts, 1)

    def map(self, grid: tuple[int, int]) -> PSFMap:
        """PSFs at the centres of (rows, columns) equal parts of the image."""
        if len(grid) != 2 or any(int(n) != n or n < 1 for n in grid):
            raise ValueError(f"grid must be (rows, columns), two positive whole numbers, not {grid!r}")
        positions = cell_centres(grid, self._frame)
        places = positions.reshape(-1, 2)
        # The eigen-PSFs are noisy, too.
        noisier = (
            1 + (self._shares_at(places) ** 2 / self._size).sum(axis=1)
            if len(self._parts)
            else np.ones(len(places))
        )
        psfs = []
        for h, v in zip(self.psfs(places), noisier, strict=True):
            away = centre_of_gravity(clean(h, self._mean.variance * v)[0])
            psfs.append(clean(shift(h, -np.array(away)), self._mean.variance * v)[0])
        return PSFMap(positions, np.stack(psfs).reshape(*grid, *self._mean.psf.shape))


def _kernel(at: np.ndarray) -> dict[str, Any]:
    """Options of SciPy's RBFInterpolator: thin plates need three places off a line."""
    if np.linalg.matrix_rank(at - at.mean(axis=0), tol=1e-3) < 2:
        return {"kernel": "linear", "degree": 0}
    return {"kernel": "thin_plate_spline", "degree": 1}


def _smoothed(
    at: np.ndarray, values: np.ndarray, weights: np.ndarray, kernel: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Columns of values (k, j) at (k, 2) places, each with the smoothness that predicts left-out values best, and (j,)
    whether the squared error is then below 0.8 of that of the mean."""
    from scipy.interpolate import RBFInterpolator

    least = 0.8 * (weights[:, None] * (values / (1 - weights[:, None])) ** 2).sum(axis=0)
    predicted, best = np.zeros(values.shape[1], bool), np.zeros_like(values)
    for smoothing in np.geomspace(1e4, 1e-7, 34):
        hat = RBFInterpolator(at, np.eye(len(at)), smoothing=smoothing * weights.mean() / weights, **kernel)(
            at
        )
        leverage = np.diag(hat)
        if leverage.sum() > len(at) / 2 or leverage.max() > 0.95:  # too little is left to predict
            break
        fitted = hat @ values
        risk = (weights[:, None] * ((values - fitted) / (1 - leverage)[:, None]) ** 2).sum(axis=0)
        better = risk < least
        least, best = np.where(better, risk, least), np.where(better, fitted, best)
        predicted |= better
    return best, predicted

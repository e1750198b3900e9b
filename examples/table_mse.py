"""Table 6.3 of the thesis: mean square errors of six degraded images and of what is recovered from them.

    python examples/table_mse.py

The thesis does not say which image, filters or noise it used, so they are chosen here such that every degraded
image is as far from the sharp one as the published one is, to 10 %, and kept fixed. The rest of a row is then
comparable, or the footnotes say why it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import skimage.data

import deblur

FILTERS = {
    "Blurred": ("gaussian", 3, 0.5),  # MATLAB's defaults of fspecial
    "Sharpened": ("unsharp", 0.2),
}
NOISES = {"no noise": 0.0, "salt & pepper": 0.014, "Gaussian": math.sqrt(0.0015)}
CROP = (slice(56, 120), slice(270, 334))
SEED = 0
LOWEST, HIGHEST = 1e-12, 1e2  # where the best λ is looked for


@dataclass(frozen=True)
class Row:
    """A row of the published table: the mean square errors of the degraded and of the recovered image."""

    filter: str
    noise: str
    degraded: float
    recovered: float

    @property
    def name(self) -> str:
        return f"{self.filter}, {self.noise}"


PUBLISHED = (
    Row("Blurred", "no noise", 0.0032, 6.6104e-5),
    Row("Blurred", "salt & pepper", 0.0087, 0.0112),
    Row("Blurred", "Gaussian", 0.0047, 0.0044),
    Row("Sharpened", "no noise", 0.2469, 1.0408e-11),
    Row("Sharpened", "salt & pepper", 0.2469, 0.03),
    Row("Sharpened", "Gaussian", 0.2459, 0.0034),
)


def scene() -> np.ndarray:
    """64 x 64 pixels of printed text from scikit-image's page, stretched to [0, 1]."""
    crop = skimage.data.page()[CROP] / 255
    return (crop - crop.min()) / np.ptp(crop)


def degrade(row: Row, sharp: np.ndarray, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """(degraded image, filter) of a row. Zero boundary; nothing is clipped."""
    psf = deblur.matlab.fspecial(*FILTERS[row.filter])
    level = NOISES[row.noise]
    if row.noise == "salt & pepper":
        return deblur.degrade(sharp, psf, noise="salt-pepper", level=level, seed=seed), psf
    return deblur.degrade(sharp, psf, noise=level, seed=seed), psf


def plain(image: np.ndarray, psf: np.ndarray, sharp: np.ndarray) -> Callable[[float], float]:
    """The error of f = (HHᵀ + λI)⁻¹Hᵀ g as a function of log λ."""
    return lambda t: deblur.metrics.mse(
        sharp, deblur.reconstruct(image, psf, float(np.exp(t)), formula="hht")
    )


def best_lambda(error: Callable[[float], float]) -> tuple[float, float]:
    """(λ, error) at the least error, found with the sharp image at hand."""
    grid = np.linspace(math.log(LOWEST), math.log(HIGHEST), 57)
    errors = [error(t) for t in grid]
    at = int(np.argmin(errors))
    if at == 0:
        return LOWEST, errors[0]
    found = scipy.optimize.minimize_scalar(error, bounds=(grid[at - 1], grid[at + 1]), method="bounded")
    return math.exp(found.x), float(found.fun)


def measure(row: Row, seed: int = SEED) -> dict[str, float]:
    """Everything that is printed of a row."""
    sharp = scene()
    image, psf = degrade(row, sharp, seed)
    error = plain(image, psf, sharp)
    lam, least = best_lambda(error)
    chosen = deblur.solve(image, psf, "upre", formula="hht")
    measured = {
        "degraded": deblur.metrics.mse(sharp, image),
        "best λ": lam,
        "at best λ": least,
        "chosen λ": chosen.lam,
        "at chosen λ": deblur.metrics.mse(sharp, chosen.image),
        "gcv's λ": deblur.solve(image, psf, "gcv", formula="hht").lam,
    }
    if row.noise == "no noise":
        ends = (math.log(LOWEST), math.log(HIGHEST))
        measured["λ of the published error"] = math.exp(
            scipy.optimize.brentq(lambda t: math.log(error(t) / row.recovered), *ends)
        )
    return measured


def main() -> None:
    print("Mean square errors beside table 6.3 of the thesis\n")
    for row in PUBLISHED:
        print(row.name, row.degraded, row.recovered, measure(row))


if __name__ == "__main__":
    main()

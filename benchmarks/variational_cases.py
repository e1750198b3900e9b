"""The cases of bench_variational.py: photographs, blurred and made noisy, and how a result is scored.

Six kinds of noise, each on four photographs with four PSFs, half of them with nothing beyond the frame and
half with a scene that goes on: 24 cases, fixed before any method was run on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import _common  # noqa: F401  (puts this checkout first on the path)
import numpy as np
from bench_lambda import PSFS, photograph

from deblur import Blur, metrics
from deblur.degrade import degrade

#: What each noise is to `degrade`; "8 bit" rounds to 256 levels.
NOISES: dict[str, dict[str, Any]] = {
    "none": {},
    "gaussian 0.01": {"noise": 0.01},
    "gaussian 0.04": {"noise": 0.04},
    "salt & pepper 2 %": {"noise": "salt-pepper", "level": 0.02},
    "poisson 400": {"noise": "poisson", "level": 400},
    "8 bit": {},
}
IMAGES = ("camera", "astronaut", "coffee", "cat", "coins", "rocket", "moon", "brick")
KERNELS = ("gaussian 9, 1.5", "disk 7", "motion 15, 30", "camera shake 17", "box 4", "one-sided 6")


@dataclass(frozen=True)
class Case:
    """One row of the benchmark, by name."""

    image: str
    psf: str
    noise: str
    boundary: str
    seed: int
    size: int = 256

    def make(self) -> tuple[Blur, np.ndarray, np.ndarray]:
        """(blur, blurred image, truth inside its frame)."""
        h = PSFS[self.psf]()
        h = h / h.sum()
        beyond = self.boundary == "unknown"
        photo = photograph(self.image)
        rows, cols = (self.size + (m - 1 if beyond else 0) for m in h.shape)
        top, left = (photo.shape[0] - rows) // 2, (photo.shape[1] - cols) // 2
        scene = photo[top : top + rows, left : left + cols]
        g = degrade(scene, h, boundary=self.boundary, seed=self.seed, **NOISES[self.noise])
        if self.noise == "8 bit":
            g = np.rint(np.clip(g, 0, 1) * 255) / 255
        blur = Blur(h, g.shape, self.boundary)
        return blur, g, scene[blur.crop]

    def unharmed(self, g: np.ndarray) -> np.ndarray:
        """Where the noise left the blurred image as it was: true but at impulses."""
        clean = replace(self, noise="none").make()[1]
        return np.abs(g - clean) < 1e-9

    def __str__(self) -> str:
        edge = "beyond" if self.boundary == "unknown" else "zero"
        return f"{self.image}, {self.psf}, {self.noise}, {edge}"


def cases(size: int = 256) -> list[Case]:
    """The 24 cases. Every PSF and every noise four times, every photograph three times."""
    rows = []
    for i, noise in enumerate(NOISES):
        for j, shift in enumerate((0, 1, 3, 4)):
            image = IMAGES[(4 * i + j) % len(IMAGES)]
            kernel = KERNELS[(i + shift) % len(KERNELS)]
            boundary = ("zero", "unknown")[(i // 3 + j) % 2]
            rows.append(Case(image, kernel, noise, boundary, 4000 + len(rows), size))
    return rows


def score(truth: np.ndarray, image: np.ndarray) -> float:
    """PSNR after clipping to [0, 1], which can only help: every method gets it."""
    return metrics.psnr(truth, np.clip(image, 0.0, 1.0))

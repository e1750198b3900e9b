"""The photographs, PSFs and cases that the benchmarks share, and what all of them do to a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import _common  # noqa: F401  (puts this checkout first on the path)
import numpy as np

from deblur import Blur, metrics, psf
from deblur.degradation import degrade

# ---------------------------------------------------------------- photographs

#: Photographs of scikit-image that methods were developed on, and those set aside to report on.
DEVELOPED = ("camera", "astronaut", "coffee", "cat", "coins", "rocket", "moon", "brick")
SET_ASIDE = (
    "motorcycle, left", "motorcycle, right", "retina", "hubble_deep_field", "immunohistochemistry", "grass", "gravel",
    "cell", "clock",
)  # fmt: skip
KINDS = {"developed on": DEVELOPED, "set aside": SET_ASIDE}


def colour(name: str) -> np.ndarray:
    """A photograph by name, (M, N, 3) or grey (M, N), float64 in [0, 1]."""
    from skimage import data, util

    if name.startswith("motorcycle"):
        image = data.stereo_motorcycle()[name.endswith("right")]
    else:
        image = getattr(data, name)()
    return util.img_as_float(image)


def photograph(name: str) -> np.ndarray:
    """The same without colour."""
    from skimage.color import rgb2gray

    image = colour(name)
    return rgb2gray(image[..., :3]) if image.ndim == 3 else image


def crop(image: np.ndarray, size: Any) -> np.ndarray:
    """The middle of an image, at most `size` pixels a side, or as many rows and columns."""
    rows, cols = np.minimum(size, image.shape[:2]).tolist()
    top, left = (image.shape[0] - rows) // 2, (image.shape[1] - cols) // 2
    return image[top : top + rows, left : left + cols]


def window(image: np.ndarray, size: Any, rng: np.random.Generator) -> np.ndarray:
    """`size` pixels a side, or as many rows and columns, at a random place of a photograph, which is continued by its
    mirror image where it is too small."""
    sides = np.broadcast_to(size, 2).tolist()
    pads = [(0, max(0, side - n)) for side, n in zip(sides, image.shape)] + [(0, 0)] * (image.ndim - 2)
    image = np.pad(image, pads, mode="reflect")
    top, left = (int(rng.integers(0, n - side + 1)) for side, n in zip(sides, image.shape))
    return image[top : top + sides[0], left : left + sides[1]]


def going_on(scene: np.ndarray, h: np.ndarray, noise: float, seed: int) -> tuple[Blur, np.ndarray, np.ndarray]:
    """(blur, blurred and noisy picture of a scene that goes on beyond the frame, the truth inside that)."""
    g = degrade(scene, h, noise=noise, boundary="unknown", seed=seed)
    blur = Blur(h, g.shape, "unknown")
    return blur, g, scene[blur.crop]


def mirrored(image: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """A picture of any size: the image repeated by reflection."""
    pads = [(0, max(0, n - m)) for n, m in zip((rows, cols), image.shape)]
    return np.pad(image, pads, mode="symmetric")[:rows, :cols]


def stored(image: np.ndarray, form: str) -> np.ndarray:
    """The image after it was kept: as "real numbers", "clipped" to [0, 1], in "8 bit", as "PNG" or "JPEG <quality>"."""
    if form == "real numbers":
        return image
    image = np.clip(image, 0, 1)
    if form == "clipped":
        return image
    levels = np.rint(image * 255).astype(np.uint8)
    if form.startswith("JPEG"):
        import io

        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(levels).save(buffer, "JPEG", quality=int(form.split()[1]))
        levels = np.asarray(Image.open(buffer))
    return levels / 255


# ---------------------------------------------------------------- PSFs

PSFS: dict[str, Callable[[], np.ndarray]] = {
    "gaussian 9, 1.5": lambda: psf.gaussian(9, 1.5),
    "gaussian 15, 2.5": lambda: psf.gaussian(15, 2.5),
    "disk 3": lambda: psf.disk(3),
    "disk 7": lambda: psf.disk(7),
    "disk 11": lambda: psf.disk(11),
    "motion 9, 0": lambda: psf.motion(9, 0),
    "motion 15, 30": lambda: psf.motion(15, 30),
    "camera shake 15": lambda: psf.camera_shake(15, 3),
    "camera shake 17": lambda: psf.camera_shake(17, 3),
    "box 4": lambda: psf.box(4),
    "one-sided 6": lambda: np.outer(np.exp(-np.arange(6) / 2), np.exp(-np.arange(6) / 2)),
    "gaussian 3, 0.5": lambda: psf.gaussian(3, 0.5),
}
HARDLY = "gaussian 3, 0.5"  # the PSF that hardly blurs


def kernel(name: str) -> np.ndarray:
    """A PSF of `PSFS`, of sum one."""
    h = PSFS[name]()
    return h / h.sum()


def centred(h: np.ndarray, origin: tuple[int, int]) -> np.ndarray:
    """The PSF in an odd array with its origin in the middle, where scikit-image's `wiener` looks for it."""
    reach = [max(o, m - 1 - o) for o, m in zip(origin, h.shape, strict=True)]
    out = np.zeros((2 * reach[0] + 1, 2 * reach[1] + 1))
    top, left = reach[0] - origin[0], reach[1] - origin[1]
    out[top : top + h.shape[0], left : left + h.shape[1]] = h
    return out


def padded(g: np.ndarray, width: tuple[int, int]) -> np.ndarray:
    """The image continued below and to the right so that it repeats smoothly: its two mirrors, blended."""
    for axis, w in enumerate(width):
        g = np.moveaxis(g, axis, 0)
        t = np.arange(1, w + 1) / (w + 1)
        t = (t * t * (3 - 2 * t)).reshape(-1, 1)
        g = np.concatenate([g, g[: -w - 1 : -1] * (1 - t) + g[:w][::-1] * t])
        g = np.moveaxis(g, 0, axis)
    return g


def best_wiener(g: np.ndarray, h: np.ndarray, truth: np.ndarray) -> float:
    """The best PSNR of scikit-image's `wiener` over its parameter, found with the truth at hand."""
    from skimage.restoration import wiener

    rows, cols = truth.shape
    balances = 10.0 ** np.arange(-6, 2.1, 0.25)
    return max(metrics.psnr(truth, wiener(g, h, b, clip=False)[:rows, :cols]) for b in balances)


# ---------------------------------------------------------------- 24 cases: photographs, PSFs, noises, boundaries

#: What each noise is to `degrade`; "8 bit" rounds to 256 levels.
NOISES: dict[str, dict[str, Any]] = {
    "none": {},
    "gaussian 0.01": {"noise": 0.01},
    "gaussian 0.04": {"noise": 0.04},
    "salt & pepper 2 %": {"noise": "salt-pepper", "level": 0.02},
    "poisson 400": {"noise": "poisson", "level": 400},
    "8 bit": {},
}
KERNELS = ("gaussian 9, 1.5", "disk 7", "motion 15, 30", "camera shake 17", "box 4", "one-sided 6")


@dataclass(frozen=True)
class Case:
    """One case of `cases`, by name; nothing is computed before `make`."""

    image: str
    psf: str
    noise: str
    boundary: str
    seed: int
    size: int = 256

    def make(self) -> tuple[Blur, np.ndarray, np.ndarray]:
        """(blur, blurred image, truth inside its frame)."""
        h = kernel(self.psf)
        beyond = self.boundary == "unknown"
        scene = crop(photograph(self.image), [self.size + (m - 1 if beyond else 0) for m in h.shape])
        g = degrade(scene, h, boundary=self.boundary, seed=self.seed, **NOISES[self.noise])
        if self.noise == "8 bit":
            g = np.rint(np.clip(g, 0, 1) * 255) / 255
        blur = Blur(h, g.shape, self.boundary)
        return blur, g, scene[blur.crop]

    def unharmed(self, g: np.ndarray) -> np.ndarray:
        """Where the noise left the blurred image as it was: everywhere but at impulses."""
        return np.abs(g - replace(self, noise="none").make()[1]) < 1e-9

    def hints(self) -> dict[str, Any]:
        """What a user says about the noise: its kind, no number."""
        if self.noise.startswith("salt"):
            return {"mask": "auto"}
        return {"data": "poisson"} if self.noise.startswith("poisson") else {}

    def __str__(self) -> str:
        edge = "beyond" if self.boundary == "unknown" else "zero"
        return f"{self.image}, {self.psf}, {self.noise}, {edge}"


def cases(size: int = 256) -> list[Case]:
    """The 24 cases, fixed before any method was run on them.

    Six kinds of noise, each on four photographs with four PSFs, half of them with nothing beyond the frame and half
    with a scene that goes on. Every PSF and every noise is met four times, every photograph three times.
    """
    rows = []
    for i, noise in enumerate(NOISES):
        for j, shift in enumerate((0, 1, 3, 4)):
            image = DEVELOPED[(4 * i + j) % len(DEVELOPED)]
            name = KERNELS[(i + shift) % len(KERNELS)]
            rows.append(Case(image, name, noise, ("zero", "unknown")[(i // 3 + j) % 2], 4000 + len(rows), size))
    return rows


def score(truth: np.ndarray, image: np.ndarray) -> float:
    """PSNR after clipping to [0, 1], which can only help: every method gets it."""
    return metrics.psnr(truth, np.clip(image, 0.0, 1.0))

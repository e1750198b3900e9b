"""Two sets of scikit-image's photographs: those that methods were developed on, and those set aside to report on."""

from __future__ import annotations

import numpy as np

DEVELOPED = ("camera", "astronaut", "coffee", "cat", "coins", "rocket", "moon", "brick")
SET_ASIDE = (
    "motorcycle, left",
    "motorcycle, right",
    "retina",
    "hubble_deep_field",
    "immunohistochemistry",
    "grass",
    "gravel",
    "cell",
    "clock",
)


def colour(name: str) -> np.ndarray:
    """A photograph by name, (M, N, 3) or grey (M, N), float64 in [0, 1]."""
    from skimage import data, util

    if name.startswith("motorcycle"):
        image = data.stereo_motorcycle()[name.endswith("right")]
    else:
        image = getattr(data, name)()
    return util.img_as_float(image)


def grey(name: str) -> np.ndarray:
    """The same without colour, by the weights of Rec. 709."""
    image = colour(name)
    return image[..., :3] @ [0.2125, 0.7154, 0.0721] if image.ndim == 3 else image


def window(image: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """A square of a photograph at a place drawn at random; one that is too small is continued by its mirror image."""
    rows, cols = image.shape[:2]
    pads = [(0, max(0, size - rows)), (0, max(0, size - cols))] + [(0, 0)] * (image.ndim - 2)
    image = np.pad(image, pads, mode="reflect")
    top, left = (int(rng.integers(0, n - size + 1)) for n in image.shape[:2])
    return image[top : top + size, left : left + size]

"""Make the sample images and their checksums from the photographs that scikit-image installs.

Run from the repository's root: ``python data/make_images.py``. The pixels
come out the same everywhere; the bytes of a PNG depend on the compressor's
version, so the checksums are written anew with the files.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import skimage

HERE = Path(__file__).resolve().parent


def reduce(image: np.ndarray, factor: int) -> np.ndarray:
    """Means of factor x factor pixels, rounded to 8 bits."""
    rows, cols = (n // factor for n in image.shape)
    return np.rint(image.reshape(rows, factor, cols, factor).mean(axis=(1, 3))).astype(np.uint8)


def make() -> dict[str, np.ndarray]:
    """All sample images by name, 8-bit."""

    def original(name: str) -> np.ndarray:
        return iio.imread(Path(skimage.__file__).parent / "data" / f"{name}.png", plugin="pillow")

    camera = original("camera")
    return {
        "camera": camera,
        "camera64": reduce(camera[48:304, 128:384], 4),
        "cat": original("chelsea")[22:278, 100:356],
        "brick": reduce(original("brick"), 2),
        "text": original("text")[:, 96:352],
        "clock": original("clock_motion")[22:278, 80:336],
    }


def main() -> None:
    sums = []
    for name, pixels in make().items():
        content = iio.imwrite("<bytes>", pixels, extension=".png", plugin="pillow", optimize=True)
        (HERE / f"{name}.png").write_bytes(content)
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}.png\n")
    (HERE / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()

"""Make the sample images, their checksums and README.md from the photographs that scikit-image installs.

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

from deblur import data

HERE = Path(__file__).resolve().parent

README = """\
# Sample images

Photographs free of copyright, all taken from scikit-image's installed data (each one's terms are those
that scikit-image states in the docstring of its function in `skimage.data`). `deblur.data.load(name)` reads
one as float64 in [0, 1] and checks its SHA-256 against `SHA256SUMS`; `deblur.data.info(name)` says what is
written here. `make_images.py` made the files and this page from the table in `deblur/data.py`.

| name | shows | author | licence | source | what was done | shape |
|---|---|---|---|---|---|---|
"""


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
    rows = []
    for about in map(data.info, data.names()):
        shape = " x ".join(map(str, about.shape))
        cells = [about.name, about.title, about.author, about.licence, about.source, about.made, shape]
        rows.append("| " + " | ".join(cells) + " |\n")
    (HERE / "README.md").write_text(README + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

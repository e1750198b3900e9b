"""Small photographs for experiments, free of copyright, each checked against its SHA-256.

The files lie under ``data/`` at the top of the repository and are installed
as the package ``deblur.images``. This table says where each comes from;
``data/make_images.py`` made them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from .image import as_float


@dataclass(frozen=True)
class ImageInfo:
    """Where a sample image comes from.

    Attributes
    ----------
    name : str
        Its name for `load`.
    title, author, licence, source : str
        Its subject, its author, its terms of use, and its origin.
    made : str
        Changes made to the source.
    shape : tuple of int
        (M, N), or (M, N, 3) for colour. Pixels are 8-bit.
    sha256 : str
        Of the PNG file.
    """

    name: str
    title: str
    author: str
    licence: str
    source: str
    made: str
    shape: tuple[int, ...]
    sha256: str


_CC0, _SKIMAGE = "CC0 1.0", "scikit-image, data/"

# title, author, licence, source, changes, shape
_TABLE: dict[str, tuple[str, str, str, str, str, tuple[int, ...]]] = {
    "camera": (
        "A photographer with a camera on a tripod", "Lav Varshney", _CC0, f"{_SKIMAGE}camera.png", "as it is",
        (512, 512),
    ),
    "camera64": (
        "The same photographer's head and camera, small enough for a dense matrix", "Lav Varshney", _CC0,
        f"{_SKIMAGE}camera.png", "rows 48-303 and columns 128-383, reduced by means of 4 x 4 pixels", (64, 64),
    ),
    "cat": (
        "The face of Chelsea, a cat, in colour", "Stéfan van der Walt", _CC0, f"{_SKIMAGE}chelsea.png",
        "rows 22-277 and columns 100-355", (256, 256, 3),
    ),
    "brick": (
        "A brick wall", "CC0Textures (Bricks25), prepared by the scikit-image team", _CC0, f"{_SKIMAGE}brick.png",
        "reduced by means of 2 x 2 pixels", (256, 256),
    ),
    "text": (
        "Formulas written by hand", "unnamed contributor of Wikipedia", "public domain",
        f"{_SKIMAGE}text.png, from en.wikipedia.org/wiki/File:Corner.png", "columns 96-351", (172, 256),
    ),
    "clock": (
        "A wall clock, truly blurred: the camera moved sideways. There is no sharp original", "Stéfan van der Walt",
        "public domain", f"{_SKIMAGE}clock_motion.png", "rows 22-277 and columns 80-335", (256, 256),
    ),
}  # fmt: skip


def _folder() -> Path:
    """Where the files are: the installed package ``deblur.images``, or in a checkout ``data/``."""
    try:
        package = import_module("deblur.images")
    except ModuleNotFoundError:
        return Path(__file__).resolve().parent.parent / "data"
    return Path(package.__path__[0])


def names() -> tuple[str, ...]:
    """The names that `load` knows."""
    return tuple(_TABLE)


def info(name: str) -> ImageInfo:
    """Where a sample image comes from, its licence, shape and SHA-256.

    Raises
    ------
    ValueError
        If there is no image of that name; the message lists them.
    OSError
        If the list of checksums is missing.
    """
    if name not in _TABLE:
        raise ValueError(f"there is no sample image {name!r}; there are {', '.join(_TABLE)}")
    lines = _read(_folder() / "SHA256SUMS").decode().splitlines()
    sums = {file: digest for digest, file in (line.split(maxsplit=1) for line in lines)}
    return ImageInfo(name, *_TABLE[name], sha256=sums[f"{name}.png"])


def load(name: str) -> np.ndarray:
    """A sample image, checked and scaled.

    Parameters
    ----------
    name : str
        One of `names`: ``"camera"`` (512 x 512), ``"camera64"`` (64 x 64),
        ``"cat"`` (256 x 256, colour), ``"brick"`` (256 x 256), ``"text"``
        (172 x 256), ``"clock"`` (256 x 256, really blurred by motion).

    Returns
    -------
    image : (M, N) or (M, N, 3) ndarray, float64
        Values in [0, 1].

    Raises
    ------
    ValueError
        If there is no image of that name, or its file is not the one that was published.
    OSError
        If the file is missing.
    """
    import imageio.v3 as iio

    expected = info(name).sha256
    path = _folder() / f"{name}.png"
    content = _read(path)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} is damaged or was changed: its SHA-256 is {found}, not {expected}; restore the file "
            "(git checkout data/) or install deblur-toolkit again"
        )
    return as_float(iio.imread(content, extension=".png", plugin="pillow"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{path} is missing, so the sample images are not installed whole; install deblur-toolkit again, "
            "or restore the file (git checkout data/)"
        ) from error

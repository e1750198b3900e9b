"""Small photographs for experiments, free of copyright, each checked against its SHA-256.

The files are in ``data/`` at the top of the repository, and are installed as the package ``deblur.images``. Their
README.md has a table of their sources; ``data/make_images.py`` made them.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .errors import check_choice, naming
from .image import as_float


@dataclass(frozen=True)
class ImageInfo:
    """The origin of a sample image.

    Attributes
    ----------
    name : str
        Its name for `load`.
    title, author, licence, source : str
        Its subject, its author, its terms of use, and its source.
    made : str
        Changes made to the source.
    shape : tuple of int
        (M, N), or (M, N, 3) for colour. Pixels have 8 bits.
    sha256 : str
        SHA-256 of the PNG file, hexadecimal.
    """

    name: str
    title: str
    author: str
    licence: str
    source: str
    made: str
    shape: tuple[int, ...]
    sha256: str


def _folder() -> Path:
    """Return the folder of the files: ``images`` in the package, or ``data`` in a checkout without symbolic links."""
    package = Path(__file__).resolve().parent
    return package / "images" if (package / "images").is_dir() else package.parent / "data"


def names() -> tuple[str, ...]:
    """Return the names that `load` accepts."""
    return tuple(_table())


def info(name: str) -> ImageInfo:
    """Return the origin of a sample image, with its licence, shape and SHA-256.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    ImageInfo

    Raises
    ------
    ValueError
        If there is no image of that name; the message lists all names.
    OSError
        If the table or the list of checksums is missing.
    """
    table = _table()
    check_choice(name, table, "sample image")
    name, title, author, licence, source, made, shape = table[name]
    sums = dict(line.split()[::-1] for line in content_of(_folder() / "SHA256SUMS").decode().splitlines())
    sides = tuple(map(int, shape.split(" x ")))
    return ImageInfo(name, title, author, licence, source, made, sides, sums[f"{name}.png"])


def _table() -> dict[str, list[str]]:
    """Return the rows of the table in README.md, by their first cell."""
    lines = content_of(_folder() / "README.md").decode().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row for row in rows[1:]}


def load(name: str) -> np.ndarray:
    """Return a sample image as floats, after a check of its file.

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
        If there is no image of that name, or its file was changed.
    OSError
        If the file is missing or cannot be read.
    """
    from PIL import Image

    content = content_of(_folder() / f"{name}.png", info(name).sha256)
    return as_float(np.array(Image.open(io.BytesIO(content))))


def content_of(path: Path, sha256: str | None = None) -> bytes:
    """Return the content of a file of deblur; raise OSError if it cannot be read, ValueError for another SHA-256."""
    again = "install deblur-toolkit again, or restore the file from git"
    with naming(path, "cannot be read", again):
        content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, found):
        raise ValueError(f"{path} is damaged or was changed: its SHA-256 is {found}, not {sha256}; {again}")
    return content

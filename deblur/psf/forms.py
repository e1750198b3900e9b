"""The command line's short forms of PSFs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InsufficientMemoryError
from ..image import located
from .files import load
from .models import Size, airy, box, camera_shake, delta, disk, gaussian, moffat, motion


def as_size(text: str) -> Size:
    rows, cross, cols = text.lower().partition("x")
    return (int(rows), int(cols)) if cross else int(rows)


# For each form its syntax, its builder, the reader of each argument, and the number of required ones.
TABLE: dict[str, tuple[str, Callable[..., np.ndarray], tuple[Callable[[str], Any], ...], int]] = {
    "gaussian": ("gaussian:SIZE,SIGMA", gaussian, (as_size, float), 2),
    "disk": ("disk:SIZE[,RADIUS]", disk, (as_size, float), 1),
    "motion": ("motion:LENGTH[,ANGLE]", motion, (float, float), 1),
    "box": ("box:SIZE", box, (as_size,), 1),
    "moffat": ("moffat:SIZE,FWHM[,BETA]", moffat, (as_size, float, float), 2),
    "airy": ("airy:SIZE,RADIUS", airy, (as_size, float), 2),
    "shake": ("shake:SIZE,SEED", camera_shake, (as_size, int), 2),
    "delta": ("delta:SIZE", delta, (as_size,), 1),
}

#: The short forms that `parse` knows, for help texts.
FORMS = (*(usage for usage, *_ in TABLE.values()), "a path to an image, .npy, .npz, .mat, .csv or .txt")


def parse(text: str) -> np.ndarray:
    """A PSF from the command line's short form, or from a file.

    Parameters
    ----------
    text : str
        ``gaussian:9,1.2``, ``disk:7``, ``motion:15,30``, ``box:5``,
        ``moffat:15,3``, ``airy:15,4``, ``shake:17,1``, ``delta:3`` (see `FORMS`),
        or the path of a file for `load`. SIZE is ``9`` or ``9x7`` (rows x columns),
        lengths are in pixels, ANGLE in degrees.

    Returns
    -------
    psf : (rows, columns) ndarray, float64

    Raises
    ------
    ValueError
        If the text is no form and no file, or its numbers are wrong; the
        message lists the forms.
    OSError
        If the file cannot be read.
    """
    known = "; the forms are " + ", ".join(FORMS)
    name, colon, rest = text.strip().partition(":")
    form = TABLE.get(name.strip().lower())
    if form is None or not colon:
        if not text.strip() or not located(text)[0].exists():
            raise ValueError(f"{text!r} is neither a file nor a known form of PSF{known}")
        return load(text)
    usage, build, readers, needed = form
    words = [word.strip() for word in rest.split(",")]
    if not needed <= len(words) <= len(readers):
        raise ValueError(f"psf {text!r} must be written {usage}{known}")
    try:
        arguments = [read(word) for read, word in zip(readers, words, strict=False)]
    except ValueError:
        raise ValueError(
            f"psf {text!r} must be written {usage}, with numbers for the words in capitals{known}"
        ) from None
    try:
        return build(*arguments)
    except ValueError as error:
        raise ValueError(f"psf {text!r}: {error}") from None
    except InsufficientMemoryError as error:
        raise InsufficientMemoryError(f"psf {text!r}: {error}", error.needed, error.free) from None

"""The command line's short forms of PSFs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InsufficientMemoryError
from ..image import located
from .files import load
from .models import Size, airy, box, camera_shake, delta, disk, gaussian, moffat, motion
from .optics import confocal, light_sheet, microscope


def as_size(text: str) -> Size:
    sides = tuple(int(word) for word in text.lower().split("x"))
    return sides if len(sides) > 1 else sides[0]


def as_lengths(text: str) -> float | tuple[float, ...]:
    """Numbers along several axes, such as "0.3x0.13", or one for all."""
    lengths = tuple(float(word) for word in text.lower().split("x"))
    return lengths if len(lengths) > 1 else lengths[0]


# For each form its syntax, its builder, the reader of each of its first parameters, and the number of required ones.
TABLE: dict[str, tuple[str, Callable[..., np.ndarray], tuple[Callable[[str], Any], ...], int]] = {
    "gaussian": ("gaussian:SIZE,SIGMA", gaussian, (as_size, as_lengths), 2),
    "disk": ("disk:SIZE[,RADIUS]", disk, (as_size, float), 1),
    "motion": ("motion:LENGTH[,ANGLE]", motion, (float, float), 1),
    "box": ("box:SIZE", box, (as_size,), 1),
    "moffat": ("moffat:SIZE,FWHM[,BETA]", moffat, (as_size, float, float), 2),
    "airy": ("airy:SIZE,RADIUS", airy, (as_size, float), 2),
    "shake": ("shake:SIZE,SEED", camera_shake, (as_size, int), 2),
    "delta": ("delta:SIZE", delta, (as_size,), 1),
    "microscope": (
        "microscope:SIZE,VOXEL,WAVELENGTH,NA[,INDEX[,Z[,MODEL]]]",
        microscope,
        (as_size, as_lengths, float, float, as_lengths, float, str),
        4,
    ),
    "confocal": (
        "confocal:SIZE,VOXEL,EXCITATION,EMISSION,NA[,INDEX[,PINHOLE]]",
        confocal,
        (as_size, as_lengths, float, float, float, as_lengths, float),
        5,
    ),
    "lightsheet": (
        "lightsheet:SIZE,VOXEL,WAVELENGTH,NA,SHEET[,INDEX]",
        light_sheet,
        (as_size, as_lengths, float, float, float, as_lengths),
        5,
    ),
}

#: The short forms that `parse` knows, for help texts.
FORMS = (
    *(usage for usage, *_ in TABLE.values()),
    "volume:PATH of a file with planes",
    "a path to an image, .npy, .npz, .mat, .csv or .txt",
)


def parse(text: str) -> np.ndarray:
    """A PSF from the command line's short form, or from a file.

    Parameters
    ----------
    text : str
        ``gaussian:9,1.2``, ``disk:7``, ``motion:15,30``, ``box:5``,
        ``moffat:15,3``, ``airy:15,4``, ``shake:17,1``, ``delta:3`` (see `FORMS`),
        ``microscope:31x25x25,0.3x0.13,0.461,1.45``, ``confocal:...``, ``lightsheet:...``
        or the path of a file for `load`; ``volume:PATH`` takes its pages for planes.
        SIZE is ``9`` or ``9x7`` (rows x columns), of a volume ``5x9x7``; lengths are in
        pixels, ANGLE in degrees, and those of microscopes in micrometres: VOXEL is
        ``0.13`` or ``0.3x0.13`` (distance of the planes x side of a pixel). INDEX is ``1.515`` or
        ``1.515x1.33x5``, as for `microscope`.

    Returns
    -------
    psf : (rows, columns) or (planes, rows, columns) ndarray, float64

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
    name = name.strip().lower()
    form = TABLE.get(name)
    if name == "volume" and colon:
        return load(rest.strip(), volume=True)
    if form is None or not colon:
        if not text.strip() or not located(text)[0].exists():
            raise ValueError(f"{text!r} is neither a file nor a known form of PSF{known}")
        return load(text)
    usage, build, readers, needed = form
    words = [word.strip() for word in rest.split(",")]
    if not needed <= len(words) <= len(readers):
        raise ValueError(f"psf {text!r} must be written {usage}{known}")
    try:
        parameters = zip(inspect.signature(build).parameters, readers, words, strict=False)
        arguments = {parameter: read(word) for parameter, read, word in parameters}
    except ValueError:
        raise ValueError(
            f"psf {text!r} must be written {usage}, with numbers for the words in capitals{known}"
        ) from None
    try:
        return build(**arguments)
    except ValueError as error:
        raise ValueError(f"psf {text!r}: {error}") from None
    except InsufficientMemoryError as error:
        raise InsufficientMemoryError(f"psf {text!r}: {error}", error.needed, error.free) from None

"""Parse the short forms of PSFs of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from ..errors import InsufficientMemoryError, nearest, shown
from ..image.reading import located
from .files import load_with_voxel
from .models import Lengths, airy, box, camera_shake, delta, disk, gaussian, moffat, motion
from .optics import confocal, light_sheet, microscope


def _along_axes(text: str, kind: type = float) -> Any:
    """Return numbers along several axes, such as "0.3x0.13", or one number for all."""
    numbers = tuple(map(kind, text.lower().split("x")))
    return numbers if len(numbers) > 1 else numbers[0]


#: The builder of each form. Its parameters, in order, are the words of the form.
TABLE: dict[str, Callable[..., np.ndarray]] = {
    build.__name__: build for build in (gaussian, disk, motion, box, moffat, airy, delta, microscope, confocal)
} | {"shake": camera_shake, "lightsheet": light_sheet}
# Readers of words that are not a single number.
_READERS: dict[str, Callable[[str], object]] = {"size": partial(_along_axes, kind=int), "seed": int, "model": str}
_READERS |= dict.fromkeys(("sigma", "voxel", "index"), _along_axes)


def _words(name: str) -> tuple[str, list[str], int]:
    """Return the syntax of a form, its parameters, and the number of required parameters."""
    stated = [p for p in inspect.signature(TABLE[name]).parameters.values() if p.default is not False]
    needed = sum(p.default is p.empty for p in stated)
    names = [p.name.upper() for p in stated]
    optional = "".join(f"[,{word}" for word in names[needed:]) + "]" * (len(names) - needed)
    return f"{name}:{','.join(names[:needed])}{optional}", [p.name for p in stated], needed


_FILES = ("volume:PATH of a file with planes", "a path to an image, .npy, .npz, .mat, .csv or .txt")

#: The short forms that `parse` accepts, for help texts.
FORMS = (*(_words(name)[0] for name in TABLE), *_FILES)


def parse(text: str) -> np.ndarray:
    """Return the PSF of a short form of the command line, or of a file.

    Parameters
    ----------
    text : str
        ``gaussian:9,1.2``, ``disk:7``, ``motion:15,30``, ``box:5``,
        ``moffat:15,3``, ``airy:15,4``, ``shake:17,1``, ``delta:3`` (see `FORMS`),
        ``microscope:31x25x25,0.3x0.13,0.461,1.45``, ``confocal:...``, ``lightsheet:...``
        or the path of a file for `load`; ``volume:PATH`` reads its pages as planes.
        SIZE is ``9``, ``9x7`` (rows x columns), or ``5x9x7`` for a volume. Lengths are in
        pixels, and in micrometres for microscopes; ANGLE is in degrees. VOXEL is ``0.13``
        or ``0.3x0.13`` (distance of the planes x side of a pixel). INDEX is ``1.515`` or
        ``1.515x1.33x5``, as for `microscope`.

    Returns
    -------
    psf : (rows, columns) or (planes, rows, columns) ndarray, float64

    Raises
    ------
    ValueError
        If the text is neither a form nor a file, or its numbers are wrong; the
        message lists the forms.
    TypeError
        If it is neither text nor a path.
    OSError
        If the file cannot be read.
    """
    return parse_with_voxel(text)[0]


def parse_with_voxel(text: str) -> tuple[np.ndarray, Lengths | None]:
    """Return the PSF as `parse` does, and its voxel sides in micrometres, if its form or its file gives them.

    Those of a form are as its VOXEL: (distance of the planes, side of a pixel), or one side for all axes.
    """
    known = "; the forms are " + ", ".join(FORMS)
    if not isinstance(text, str | PathLike):
        raise TypeError(f"a PSF's form or file must be text, not {shown(text)}{known}")
    text = str(text)
    name, colon, rest = text.strip().partition(":")
    name = name.strip().lower()
    if name not in TABLE or not colon:
        if name != "volume" and (not text.strip() or "\0" in text or not located(text)[0].exists()):
            near = nearest(name, {form: _words(form)[0] for form in TABLE})
            raise ValueError(f"{text!r} is neither a file nor a known form of PSF{near}{known}")
        return load_with_voxel(text)
    usage, parameters, needed = _words(name)
    words = [word.strip() for word in rest.split(",")]
    if not needed <= len(words) <= len(parameters):
        raise ValueError(f"psf {text!r} must be written {usage}{known}")
    try:
        values = [_READERS.get(p, float)(word) for p, word in zip(parameters, words, strict=False)]
        arguments: dict[str, Any] = dict(zip(parameters, values, strict=False))
    except ValueError:
        raise ValueError(f"psf {text!r} must be written {usage}, in numbers{known}") from None
    try:
        return TABLE[name](**arguments), arguments.get("voxel")
    except (ValueError, InsufficientMemoryError) as error:
        error.args = (f"psf {text!r}: {error}",)
        raise

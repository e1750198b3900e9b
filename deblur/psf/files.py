"""PSFs from files."""

from __future__ import annotations

import math
import os
import zipfile
from os import PathLike
from pathlib import Path
from typing import IO

import numpy as np

from .. import image as image_file
from ..device import check_finite, format_bytes, require_memory


def _read_table(path: Path) -> np.ndarray:
    if path.suffix.lower() in (".csv", ".txt"):
        lines = path.read_text(encoding="utf-8-sig").replace(",", " ").replace(";", " ").splitlines()
        if not any(line.strip() for line in lines):
            raise ValueError("it holds no numbers")
        return np.loadtxt(lines, ndmin=2)
    with image_file.opened(path) as f:
        if not zipfile.is_zipfile(f):
            return _read_npy(f, f.seek(0, os.SEEK_END))
        with zipfile.ZipFile(f) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            names = list(members)
            if "psf" not in names and len(names) != 1:
                raise ValueError(
                    f"it holds {len(names)} arrays {names}; name one of them 'psf' or keep only one"
                )
            member = members["psf" if "psf" in names else names[0]]
            with archive.open(member) as stream:
                return _read_npy(stream, member.file_size)


def _read_npy(f: IO[bytes], size: int) -> np.ndarray:
    """The array in a .npy of `size` bytes, if it holds what its header promises and memory does too."""
    f.seek(0)
    version = np.lib.format.read_magic(f)
    if version > (2, 0):
        raise ValueError("it holds named fields, not real numbers")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(f)
    promised = math.prod(shape) * dtype.itemsize
    if promised > size and not dtype.hasobject:
        raise ValueError(
            f"its header promises {format_bytes(promised)} and it holds {format_bytes(size)}; it is damaged or was "
            "cut short"
        )
    require_memory(2 * promised, np, f"a PSF of shape {shape}", "use a smaller one")
    f.seek(0)
    return np.lib.format.read_array(f, allow_pickle=False)


def load(path: str | PathLike[str], *, normalize: bool = True, allow_negative: bool = False) -> np.ndarray:
    """Read a PSF from an image (PNG, TIFF, ...), a NumPy file (.npy, .npz) or a table (.csv, .txt).

    Parameters
    ----------
    path : path
        An image is read as `deblur.image.read` does: integers scaled to
        [0, 1]; a grey picture saved as colour is taken as grey. An ``.npz``
        holds one array, or one named ``psf``. A table has one row of the PSF
        a line, numbers separated by commas, semicolons or spaces.
    normalize : bool
        Divide by the sum, so that blurring keeps the brightness (default). False
        keeps the values as they are in the file.
    allow_negative : bool
        Accept values below zero, as a sharpening filter has them.

    Returns
    -------
    psf : (rows, columns) ndarray, float64

    Raises
    ------
    OSError
        If the file is missing or cannot be read.
    ValueError
        If what it holds is no PSF: not 2-D, coloured, NaN or infinite,
        negative, or summing to zero.
    """
    path = image_file.check_readable(path)
    is_table = path.suffix.lower() in (".npy", ".npz", ".csv", ".txt")
    picture = None if is_table else image_file.read(path)
    try:
        psf = _read_table(path) if picture is None else picture
        if psf.dtype.kind not in "biuf":
            raise ValueError(f"it holds {psf.dtype}, not real numbers")
        psf = psf.astype(np.float64)
        if psf.ndim == 3 and psf.shape[-1] == 3:
            if np.ptp(psf, axis=-1).any():
                raise ValueError(
                    "its colours differ; convert it to grey, or save one channel as its own file"
                )
            psf = psf[..., 0]  # a grey picture saved as colour
        if psf.ndim != 2 or psf.size == 0:
            raise ValueError(f"a PSF is a non-empty 2-D array, this one has shape {psf.shape}")
        check_finite(psf, "it")
        if not allow_negative and psf.min() < 0:
            raise ValueError(
                f"its smallest value is {psf.min():.4g}, and light cannot be negative; subtract the "
                "background, or pass allow_negative=True for a sharpening filter"
            )
        total = psf.sum()
        if not abs(total) > 1e-12 * np.abs(psf).sum():
            raise ValueError("its values sum to zero, so a blurred image would lose its brightness")
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot use {path} as a PSF: {error}") from error
    return psf / total if normalize else psf

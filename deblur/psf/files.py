"""PSFs from files, and to files."""

from __future__ import annotations

import io
import math
import os
import zipfile
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from .. import image as image_file
from ..device import check_finite, format_bytes, require_memory

_TEXT, _ARRAYS = (".csv", ".txt", ".dat"), (".npy", ".npz", ".mat")


def _read_matlab(path: Path, name: str) -> np.ndarray:
    """The array of a name in a .mat, or the only one that could be a PSF."""
    from scipy.io import loadmat

    try:
        held = loadmat(path)
    except NotImplementedError:
        raise ValueError("it is a MATLAB file of version 7.3; save it with save(..., '-v7')") from None
    except Exception as error:
        raise ValueError(f"it is no MATLAB file that SciPy reads ({error})") from error
    arrays = {
        key: a
        for key, a in held.items()
        if not key.startswith("__") and isinstance(a, np.ndarray) and a.dtype.kind in "biuf" and a.size > 1
    }
    return arrays[_named(name, list(arrays))]


def _named(name: str, held: list[str]) -> str:
    """The name among those held, or the only one."""
    if name not in held and len(held) != 1:
        raise ValueError(f"it holds {len(held)} arrays {held}; name one of them {name!r} or keep only one")
    return name if name in held else held[0]


def read_table(path: Path, name: str = "psf") -> np.ndarray:
    """The array in a file, of this name where it can hold several; ValueError says what is wrong with it."""
    if path.suffix.lower() == ".mat":
        return _read_matlab(path, name)
    if path.suffix.lower() in _TEXT:
        lines = path.read_text(encoding="utf-8-sig").replace(",", " ").replace(";", " ").splitlines()
        if not any(line.strip() for line in lines):
            raise ValueError("it holds no numbers")
        return np.loadtxt(lines, ndmin=2)
    with image_file.opened(path) as f:
        if not zipfile.is_zipfile(f):
            return _read_npy(f, f.seek(0, os.SEEK_END))
        with zipfile.ZipFile(f) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            member = members[_named(name, list(members))]
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
    """Read a PSF from an image (PNG, TIFF, FITS, ...), a NumPy or MATLAB file (.npy, .npz, .mat) or a table.

    Parameters
    ----------
    path : path
        An image is read as `deblur.image.read` does: integers scaled to
        [0, 1]; a grey picture saved as colour is taken as grey. An ``.npz`` or
        ``.mat`` holds one array, or one named ``psf``. A table has one row of the PSF
        a line, numbers separated by commas, semicolons or spaces.
    normalize : bool
        Divide by the sum, so that blurring keeps the brightness (default). False
        keeps the values as they are in the file.
    allow_negative : bool
        Accept values below zero, as a sharpening filter has them.

    Returns
    -------
    psf : (rows, columns) ndarray, float64
        As it stands in the file: `deblur.psf.prepare` centres, crops, resamples and cleans it.

    Raises
    ------
    OSError
        If the file is missing or cannot be read.
    ValueError
        If what it holds is no PSF: not 2-D, coloured, NaN or infinite,
        negative, or summing to zero.
    """
    path = image_file.check_readable(path)
    is_table = path.suffix.lower() in (*_TEXT, *_ARRAYS)
    picture = None if is_table else image_file.read(path)
    try:
        psf = read_table(path) if picture is None else picture
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


def read_grey(path: str | PathLike[str]) -> np.ndarray:
    """A picture from a file, grey: of colours their mean. Integers keep their unit, whose end is saturation."""
    picture = image_file.read(path, as_float=False)
    return picture.mean(axis=-1) if image_file.is_colour(picture) else picture


def save(path: str | PathLike[str], psf: Any, *, overwrite: bool = False) -> None:
    """Write a PSF to a .npy, .csv, .txt or .tif (float32), which `load` and the command line read.

    Parameters
    ----------
    path : path
    psf : (m, n) array or PSFEstimate
        Of an estimate with a `map`, an ``.npz`` holds ``psf``, ``psfs`` (R, S, m, n) and ``positions`` as well.
    overwrite : bool
        Replace a file that is there.

    Raises
    ------
    ValueError
        For another suffix.
    OSError
        If the file cannot be written.
    """
    suffix, held = Path(path).suffix.lower(), io.BytesIO()
    h = np.asarray(getattr(psf, "psf", psf), dtype=np.float64)
    if suffix == ".npy":
        np.save(held, h)
    elif suffix == ".npz":
        varying = getattr(psf, "map", None)
        more = {} if varying is None else {"psfs": varying.psfs, "positions": varying.positions}
        np.savez(held, psf=h, **more)
    elif suffix in _TEXT:
        np.savetxt(held, h, fmt="%.17g", delimiter="," if suffix == ".csv" else " ")
    elif suffix in (".tif", ".tiff"):
        import tifffile

        tifffile.imwrite(held, h.astype(np.float32), photometric="minisblack")
    else:
        raise ValueError(f"a PSF is written to .npy, .npz, .csv, .txt or .tif, not to {suffix!r}: {path}")
    image_file.write_whole(path, held.getvalue(), overwrite)

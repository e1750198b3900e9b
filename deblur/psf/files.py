"""Read PSFs and grids of PSFs from files, and write them."""

from __future__ import annotations

import io
import itertools
import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy

from .. import image as image_file
from ..device import as_real, check_finite, format_bytes, require_memory, unwrapped
from ..errors import check_flags, check_path, shown
from ..image.arrays import looks_coloured
from ..image.metadata import inverse
from ..image.ome import settings
from ..image.outputs import write_whole
from ..image.reading import FilePath, check_readable, opened, read_stored
from ..operators.matrix import by
from ..operators.varying import check_grid
from .models import unit_sum

_TEXT, _ARRAYS = (".csv", ".txt", ".dat"), (".npy", ".npz", ".mat")
_WITH_PLANES = (*_ARRAYS, ".tif", ".tiff", ".fits", ".fit", ".fts")  # suffixes of files that may contain a volume


def _read_matlab(path: Path, name: str) -> np.ndarray:
    """Return the array with a name in a .mat file, or the only array that could be a PSF."""
    try:
        held = scipy.io.loadmat(path)
    except Exception as error:  # damaged files raise many kinds of exceptions
        raise ValueError(f"SciPy does not read it; save it with save(..., '-v7') ({error})") from error
    numbers = (np.size(a) > 1 and np.asarray(a).dtype.kind in "biuf" for a in held.values())
    return held[_named(name, list(itertools.compress(held, numbers)))]


def _named(name: str, held: list[str]) -> str:
    """Return the name if it is among those in the file, else the only one."""
    if name not in held and len(held) != 1:
        raise ValueError(f"it holds {len(held)} arrays {held}; name one of them {name!r} or keep only one")
    return name if name in held else held[0]


def read_table(path: Path, name: str = "psf") -> np.ndarray:
    """Return the array in a file, with this name if there are several; raise ValueError with the reason if it is
    invalid.
    """
    if path.suffix.lower() == ".mat":
        return _read_matlab(path, name)
    if path.suffix.lower() in _TEXT:
        return numbers_in(path)
    with opened(path) as f:
        if not zipfile.is_zipfile(f):
            return _read_npy(f, f.seek(0, os.SEEK_END), path)
        with zipfile.ZipFile(f) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            member = members[_named(name, list(members))]
            with archive.open(member) as stream:
                return _read_npy(stream, member.file_size, path)


def numbers_in(path: Path) -> np.ndarray:
    """Return the table in a text file; raise ValueError with the row and column, counted from 1, that hold
    no number.
    """
    lines = [line.partition("#")[0] for line in path.read_text("utf-8-sig", "replace").splitlines()]
    if any("," in line and ";" in line for line in lines):
        raise ValueError("it has commas and semicolons in one line: write 0.5 for 0,5, and one sign between numbers")
    cells = (line.replace(",", " ").replace(";", " ").split() for line in lines)
    table = [[_number(cell, row, i) for i, cell in enumerate(line, 1)] for row, line in enumerate(cells, 1)]
    lengths = {len(line) for line in table} - {0}
    if len(lengths) != 1:
        raise ValueError("its lines hold different numbers of values" if lengths else "it holds no numbers")
    return np.array([line for line in table if line])


def _number(cell: str, row: int, i: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"row {row}, column {i} holds {shown(cell)}, not a number; remove headings or units") from None


def _read_npy(f: IO[bytes], size: int, path: Path) -> np.ndarray:
    """Return the array in a .npy file of `size` bytes, if the file is complete and fits in memory."""
    f.seek(0)
    try:
        version = np.lib.format.read_magic(f)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(f)
        if dtype.hasobject:
            raise ValueError
    except (ValueError, EOFError):
        raise ValueError("it is not a NumPy array of numbers, or was cut short; save it with numpy.save") from None
    promised = math.prod(shape) * dtype.itemsize
    if promised > size:
        raise ValueError(f"its header promises {format_bytes(promised)} and it has {format_bytes(size)}: cut short")
    require_memory(2 * promised, np, f"{path}: an array of shape {shape}", "use a smaller PSF")
    f.seek(0)
    return np.lib.format.read_array(f, allow_pickle=False)


def load(
    path: FilePath, *, normalize: bool = True, allow_negative: bool = False, volume: bool | None = None
) -> np.ndarray:
    """Read a PSF from an image (PNG, TIFF, FITS, ...), a NumPy or MATLAB file (.npy, .npz, .mat) or a table.

    Parameters
    ----------
    path : path
        The file; ``volume:PATH`` reads PATH with ``volume=True``. An image is read as by `deblur.image.read`, which
        scales integers to [0, 1]. A grey image saved as colour counts as grey, and the tag Orientation of a camera is
        not applied (`upright` rotates a PSF). An ``.npz`` or ``.mat`` must contain one array, or one named ``psf``. A
        table has one row of the PSF per line, with numbers separated by commas, semicolons or spaces.
    normalize : bool
        True (default) divides by the sum, so that blurring keeps the mean. False keeps the values of the file.
    allow_negative : bool
        True accepts values below zero, as a sharpening filter has.
    volume : bool, optional
        True reads the pages of a file, or the first axis of an array, as planes. False expects one image. By default
        the file decides: a TIFF says whether its pages are along Z. An array does not.

    Returns
    -------
    psf : (rows, columns) or (planes, rows, columns) ndarray, float64
        The PSF, neither centred nor cropped; use `deblur.psf.prepare` for that.

    Raises
    ------
    OSError
        If the file is missing or cannot be read.
    ValueError
        If the content is not a PSF: it is neither 2-D nor a volume, might be a stack of 2-D PSFs, has colours, NaN,
        infinity or negative values, or its sum is not positive.
    """
    return load_with_voxel(path, normalize, allow_negative, volume)[0]


def load_with_voxel(
    path: FilePath, normalize: bool = True, allow_negative: bool = False, volume: bool | None = None
) -> tuple[np.ndarray, tuple[float, ...] | None]:
    """Return the PSF as `load` does, and its voxel sides in micrometres: NaN for an unknown side, None if all are
    unknown.
    """
    check_flags(normalize=normalize, allow_negative=allow_negative, volume=volume is not None and volume)
    if str(path).startswith("volume:"):
        path, volume = str(path).removeprefix("volume:").strip(), True
    file = check_readable(path)
    is_table = file.suffix.lower() in (*_TEXT, *_ARRAYS)
    picture, found = (None, image_file.Metadata()) if is_table else read_stored(path)
    try:
        psf = read_table(file) if picture is None else image_file.as_float(picture)
        if psf.dtype.kind not in "biuf":
            raise ValueError(f"it holds {psf.dtype}, not real numbers")
        psf = psf.astype(np.float64)
        has_planes = found.axes == "Z" if looks_coloured(psf.shape) else file.suffix.lower() in _WITH_PLANES
        if psf.ndim == 3 and psf.shape[-1] == 3 and not (has_planes if volume is None else volume):
            if np.ptp(psf, axis=-1).any():
                raise ValueError("its colours differ; convert it to grey, or save one channel")
            psf = psf[..., 0]  # a grey image saved as colour
        if psf.ndim == 3 and volume is None and found.axes != "Z":
            raise ValueError(
                f"its shape {psf.shape} may be that of a volume, for which pass volume=True (in the command "
                f"volume:{path}), or of {len(psf)} 2-D PSFs: save the one you mean as its own file"
            )
        if psf.ndim not in ((2, 3) if volume is None else (3,) if volume else (2,)) or psf.size == 0:
            raise ValueError(f"a PSF is a non-empty {'volume' if volume else '2-D array'}, not of shape {psf.shape}")
        check_finite(psf, "it", "a PSF is light, so set them to 0 or to the mean of their neighbours")
        if not allow_negative and psf.min() < 0:
            raise ValueError(f"its least value is {psf.min():.4g}: subtract the background or pass allow_negative=True")
        of_unit_sum = unit_sum(psf)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot use {path} as a PSF: {error}") from error
    return of_unit_sum if normalize else psf, found.voxel(psf.ndim)


def read_grey(path: FilePath) -> tuple[np.ndarray, dict[str, Any]]:
    """Return a grey image or volume (the mean of its colours) in the orientation of the sensor, and arguments for
    `save`.

    The arguments are its orientation and voxel. Integers keep their unit, whose maximum is saturation.
    """
    picture, found = read_stored(path)
    if image_file.is_colour(picture):
        picture = picture.mean(axis=-1)
    if picture.ndim == 3 and set(found.axes) & set("TC"):
        raise ValueError(f"{path} holds {len(picture)} images, not a volume: save one as its own file")
    return picture, {"orientation": found.orientation, "voxel": found.voxel(picture.ndim)}


def upright(psf: np.ndarray, orientation: int) -> np.ndarray:
    """Rotate a PSF from the orientation of the sensor to that of the upright image; its centre stays its centre.

    Parameters
    ----------
    psf : (m, n), (p, m, n) or (R, S, m, n) array
        A PSF, or the PSFs of R x S parts of the image.
    orientation : int
        The orientation tag of the image's file, 1 (upright) to 8; see `deblur.image.Metadata`.

    Returns
    -------
    psf : array
        The rotated PSF. An even side that was mirrored has a further row or column of zeros.

    Raises
    ------
    ValueError
        If the array has fewer than two axes.
    """
    h = unwrapped(psf, "the PSF")
    if h.ndim < 2:
        raise ValueError(f"a PSF of shape {h.shape} has no rows and columns; those of images and volumes have")
    h = image_file.upright(h, orientation, -2)
    (mirrored,) = np.argwhere(image_file.upright(np.arange(4).reshape(2, 2), orientation) == 0)
    more = [(0, int(flip and n % 2 == 0)) for flip, n in zip(mirrored, h.shape[-2:], strict=True)]
    h = np.pad(h, [(0, 0)] * (h.ndim - 2) + more)
    return image_file.upright(h, orientation, 0) if h.ndim == 4 else h


def load_grid(path: FilePath, grid: tuple[int, int] | None = None) -> np.ndarray:
    """Read the PSFs of R x S equal parts of an image, for `deblur.VaryingBlur` and ``psfs=``.

    Parameters
    ----------
    path : path
        One of three: a folder of R·S files for `load`, which are read in the order of their names, row by row from
        the upper left; an ``.npy`` file with an array (R, S, m, n), or an ``.npz`` with one named ``psfs``, as `save`
        and ``deblur psf points --grid`` write it; or an image of stars, beads or pinholes that fills the frame, from
        which `from_points` measures the PSFs.
    grid : (int, int), optional
        R and S; required unless the file holds an array.

    Returns
    -------
    psfs : (R, S, m, n) ndarray, float64

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, the grid is missing, the number of files is not R·S, the PSFs differ in size, or the
        measured PSF is unreliable.
    """
    path, grid = check_path(path), None if grid is None else check_grid(grid)
    if not path.is_dir():
        check_readable(path)
    if path.suffix.lower() in (".npy", ".npz"):
        try:
            psfs = read_table(path, "psfs")
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"cannot use {path} as PSFs: {error}") from error
        if psfs.ndim != 4 or psfs.shape[:2] != (grid or psfs.shape[:2]):
            first = "rows, columns" if grid is None else f"{grid[0]}, {grid[1]}"
            raise ValueError(f"{path} holds an array of shape {psfs.shape}, and a grid of PSFs is ({first}, m, n)")
        return psfs.astype(np.float64)
    if grid is None:
        raise ValueError(f"say how many rows and columns of PSFs {path} has, for example 5x5")
    if not path.is_dir():
        from .points import from_points

        found = from_points(read_grey(path)[0], grid=grid)
        if not found.status.ok or found.map is None:
            raise ValueError(
                f"the PSF measured from {path} is {found.status.value}: {found.why}. Inspect it: deblur psf points "
                f"{path} --grid {grid[0]}x{grid[1]} --size N -o psfs.npz"
            )
        return found.map.psfs
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    if len(files) != grid[0] * grid[1]:
        raise ValueError(f"{path} holds {len(files)} files, and a grid of {grid[0]} x {grid[1]} has {np.prod(grid)}")
    each = [load(p) for p in files]
    for p, h in zip(files, each, strict=True):
        if h.shape != each[0].shape:
            sizes = f"{p.name} is {by(h.shape)} and {files[0].name} {by(each[0].shape)}"
            raise ValueError(f"{sizes}: pad smaller ones with zeros, so that their centres agree")
    return np.array(each).reshape(*grid, *each[0].shape)


def check_suffix(path: FilePath) -> str:
    """Return the suffix of a path in small letters; raise ValueError if `save` does not support it."""
    suffix = check_path(path).suffix.lower()
    if suffix not in (".npy", ".npz", *_TEXT, ".tif", ".tiff"):
        raise ValueError(f"a PSF is written to .npy, .npz, .csv, .txt or .tif, not to {suffix!r}: {path}")
    return suffix


def save(path: FilePath, psf: Any, *, overwrite: bool = False, orientation: int = 1, voxel: Any = None) -> None:
    """Write a PSF to a .npy, .npz, .csv, .txt or .tif (float32) file, which `load` and the command line read.

    Parameters
    ----------
    path : path
        The file.
    psf : (m, n) or (p, m, n) array or PSFEstimate
        The PSF. A volume needs .npy, .npz or .tif. For an estimate with a `map`, an ``.npz`` holds ``psf``, ``psfs``
        (R, S, m, n) and, with orientation 1, ``positions``.
    overwrite : bool
        Replace an existing file.
    orientation : int
        The orientation tag of the file in whose upright image the PSF was measured. The PSF is written in the
        orientation of the sensor.
    voxel : sequence of float, optional
        The voxel sides of the PSF in micrometres, one for each axis, NaN for an unknown side; only a .tif stores them.

    Raises
    ------
    ValueError
        For another suffix, or a volume in a table.
    OSError
        If the file cannot be written.
    """
    suffix, held = check_suffix(path), io.BytesIO()
    back = inverse(orientation)
    h = upright(as_real(getattr(psf, "psf", psf), "the PSF", np.float64), back)
    if suffix == ".npy":
        np.save(held, h)
    elif suffix == ".npz":
        varying = getattr(psf, "map", None)
        more: dict[str, Any] = {} if varying is None else {"psfs": upright(varying.psfs, back)}
        if varying is not None and orientation == 1:
            more["positions"] = varying.positions
        np.savez(held, psf=h, **more)
    elif suffix in _TEXT:
        if h.ndim != 2:
            raise ValueError(f"a table has two axes: write {h.shape} to .npy, .npz or .tif, not {path}")
        np.savetxt(held, h, fmt="%.17g", delimiter="," if suffix == ".csv" else " ")
    else:
        import tifffile

        axes = "ZYX"[3 - h.ndim :]
        spacing = {axis: side for axis, side in zip(axes, voxel or (), strict=False) if side > 0}
        tifffile.imwrite(held, h.astype(np.float32), photometric="minisblack", **settings(axes, spacing, ()))
    write_whole(path, held.getvalue(), overwrite)

"""PSFs at places of a picture, from files: a folder of PSFs, an array, or a picture of stars."""

from __future__ import annotations

import zipfile
from os import PathLike
from pathlib import Path

import numpy as np

from .files import load, read_grey, read_table
from .points import from_points


def load_grid(path: str | PathLike[str], grid: tuple[int, int] | None = None) -> np.ndarray:
    """Read the PSFs of a picture on a grid of R x S equal parts, for `deblur.VaryingBlur` and ``psfs=``.

    Parameters
    ----------
    path : path
        A folder of R·S files that `load` reads, in the order of their names: row by row from the upper left; an
        ``.npy`` file with an array (R, S, m, n), or an ``.npz`` with one named ``psfs``, as `save` and
        ``deblur psf points --grid`` write it; or a picture of stars, beads or pinholes that fills the frame, from
        which `from_points` measures them.
    grid : (int, int), optional
        R and S. Needed but for an array.

    Returns
    -------
    psfs : (R, S, m, n) ndarray, float64

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, no grid, another number of files than it has places, PSFs of several sizes, or none
        that can be trusted.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no such folder or file: {path}")
    if path.suffix.lower() in (".npy", ".npz"):
        try:
            psfs = read_table(path, "psfs")
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"cannot use {path} as PSFs: {error}") from error
        if psfs.ndim != 4 or (grid is not None and psfs.shape[:2] != grid):
            asked = "(rows, columns, m, n)" if grid is None else f"({grid[0]}, {grid[1]}, m, n)"
            raise ValueError(f"{path} holds an array of shape {psfs.shape}, and a grid of PSFs is {asked}")
        return psfs.astype(np.float64)
    if grid is None:
        raise ValueError(f"say how many rows and columns of PSFs {path} has, for example 5x5")
    if not path.is_dir():
        found = from_points(read_grey(path), grid=grid)
        if not found.status.ok or found.map is None:
            raise ValueError(
                f"the PSF measured from {path} is {found.status.value}: {found.why}. Measure it by itself and look at "
                f"it: deblur psf points {path} --grid {grid[0]}x{grid[1]} --size N -o psfs.npz"
            )
        return found.map.psfs
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    if len(files) != grid[0] * grid[1]:
        raise ValueError(
            f"{path} holds {len(files)} files, and a grid of {grid[0]} x {grid[1]} has {grid[0] * grid[1]} places"
        )
    each = [load(p) for p in files]
    for p, h in zip(files, each, strict=True):
        if h.shape != each[0].shape:
            raise ValueError(
                f"{p.name} is {h.shape[0]} x {h.shape[1]} and {files[0].name} {each[0].shape[0]} x "
                f"{each[0].shape[1]}: pad the smaller ones with zeros, so that their centres agree"
            )
    return np.array(each).reshape(*grid, *each[0].shape)

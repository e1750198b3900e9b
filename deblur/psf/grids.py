"""PSFs at places of a picture, from files: a folder of PSFs, an array, or a picture of stars."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from .. import image
from .estimate import PSFMap
from .files import load
from .points import from_points


def load_grid(path: str | PathLike[str], grid: tuple[int, int] | None = None) -> PSFMap:
    """Read the PSFs of a picture on a grid of R x S equal parts, for `deblur.VaryingBlur` and ``psfs=``.

    Parameters
    ----------
    path : path
        A folder of R·S files that `load` reads, in the order of their names: row by row from the upper left; an
        ``.npy`` file with an array (R, S, m, n); or a picture of stars, beads or pinholes that fills the frame, from
        which `from_points` measures them.
    grid : (int, int), optional
        R and S. Needed but for an array.

    Returns
    -------
    PSFMap
        With positions as parts of the frame, (R, S, 2) from 0 to 1.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, no grid, another number of files than it has places, or PSFs of several sizes.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no such folder or file: {path}")
    if path.suffix == ".npy":
        psfs = np.load(path, allow_pickle=False)
        if psfs.ndim != 4 or (grid is not None and psfs.shape[:2] != grid):
            asked = "(rows, columns, m, n)" if grid is None else f"({grid[0]}, {grid[1]}, m, n)"
            raise ValueError(f"{path} holds an array of shape {psfs.shape}, and a grid of PSFs is {asked}")
        return _map(psfs)
    if grid is None:
        raise ValueError(f"say how many rows and columns of PSFs {path} has, for example 5x5")
    if not path.is_dir():
        found = from_points(image.read(path, as_float=False), grid=grid)
        if not found.status.ok or found.map is None:
            raise ValueError(f"the PSF measured from {path} is {found.status.value}: {found.why}")
        return _map(found.map.psfs)
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    if len(files) != grid[0] * grid[1]:
        raise ValueError(
            f"{path} holds {len(files)} files, and a grid of {grid[0]} x {grid[1]} has {grid[0] * grid[1]} places"
        )
    found_psfs = [load(p) for p in files]
    for p, h in zip(files, found_psfs, strict=True):
        if h.shape != found_psfs[0].shape:
            raise ValueError(
                f"{p.name} is {h.shape[0]} x {h.shape[1]} and {files[0].name} {found_psfs[0].shape[0]} x "
                f"{found_psfs[0].shape[1]}: pad the smaller ones with zeros, so that their centres agree"
            )
    return _map(np.array(found_psfs).reshape(*grid, *found_psfs[0].shape))


def _map(psfs: np.ndarray) -> PSFMap:
    centres = [(np.arange(k) + 0.5) / k for k in psfs.shape[:2]]
    return PSFMap(np.stack(np.meshgrid(*centres, indexing="ij"), -1), psfs)

"""Matrix transposition by tiles: in place for a square matrix, and on a GPU out of place for any shape.

A tile and its mirror tile across the diagonal fit into cache together; element by element, one of
the two matrices would be walked with a stride of a whole row. In place, the tiles above the
diagonal are swapped with those below, and those on it are transposed where they are.

References
----------
.. [1] M. Scarpino, "OpenCL in Action", Manning 2012, sec. 12.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array, get_xp

TILE = 128


def turned(a: Array, out: Array | None = None) -> Array:
    """The transpose of a matrix of any dtype and memory order, in C order, or in `out`."""
    xp = get_xp(a)
    if out is None:
        out = xp.empty(a.shape[::-1], a.dtype)
    if xp is np or not (out.flags.c_contiguous and _launch("transpose", a, out)):
        out[...] = a.T
    return out


def turn(a: Array) -> None:
    """Transpose a square matrix in its own memory, whatever its strides."""
    if get_xp(a) is not np and _launch("transpose_in_place", a):
        return
    for rows, columns in _tile_pairs(len(a)):
        below = a[columns, rows].copy()
        a[columns, rows] = a[rows, columns].T
        a[rows, columns] = below.T


def mirror_lower(a: Array) -> None:
    """Copy the lower triangle of a square matrix over the upper one, in place."""
    if get_xp(a) is not np and _launch("transpose_mirror", a):
        return
    for rows, columns in _tile_pairs(len(a)):
        if rows == columns:
            xp = get_xp(a)
            a[rows, rows] = xp.tril(a[rows, rows]) + xp.tril(a[rows, rows], -1).T
        else:
            a[rows, columns] = a[columns, rows].T


def _tile_pairs(n: int) -> Iterator[tuple[slice, slice]]:
    """Row and column ranges of the tiles on and above the diagonal of an n × n matrix."""
    for i in range(0, n, TILE):
        for j in range(i, n, TILE):
            yield slice(i, i + TILE), slice(j, j + TILE)


def _launch(kernel: str, a: Array, out: Array | None = None) -> bool:
    """Run a kernel of cuda/transpose.cu on a GPU matrix, or return False if it is not one for it.

    The kernels only move bits, so that a dtype of 4 or 8 bytes passes as float32 or float64.
    """
    rows, cols = a.shape
    if a.itemsize not in (4, 8) or (cols > 1 and a.strides[1] != a.itemsize):
        return False
    real = np.float32 if a.itemsize == 4 else np.float64
    ld = a.strides[0] // a.itemsize if rows > 1 else cols
    if ld < cols:
        return False
    sizes = kernels.Constants("transpose", real)
    side = sizes.SIDE
    tiles = -(-rows // side) * -(-cols // side)
    extent = (rows,) if out is None else (rows, cols)
    arrays: tuple[Any, ...] = (a.view(real), ld)
    if out is not None:
        arrays += (out.view(real), rows)
    if tiles:
        kernels.launch("transpose", kernel, tiles, (side, sizes.ROWS), *extent, *arrays, dtype=real)
    return True

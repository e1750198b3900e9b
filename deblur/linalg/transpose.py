"""Matrix transposition by tiles on a GPU (in place for square matrices, else into another array), and mirroring.

A tile and its mirror tile across the diagonal fit into the cache together. Element by element, one of
the two matrices would be accessed with the stride of a whole row.

References
----------
.. [1] M. Scarpino, "OpenCL in Action", Manning 2012, sec. 12.1.
"""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..device import Array, blocks, is_cupy
from .triangular_gpu import leading

TILE = 128


def turned(a: Array, out: Array) -> Array:
    """Write the transpose of a CuPy matrix whose rows have adjacent elements to a contiguous `out`, and return it."""
    _launch("transpose", a, len(a), a.shape[1], a, leading(a), out, len(a))
    return out


def turn(a: Array) -> None:
    """Transpose in place a square CuPy matrix whose rows have adjacent elements."""
    _launch("transpose_in_place", a, len(a), a, leading(a))


def mirror_lower(a: Array) -> None:
    """Copy the lower triangle of a square matrix over the upper one, in place; a CuPy matrix must be contiguous."""
    if is_cupy(a):
        _launch("transpose_mirror", a, len(a), a, leading(a))
        return
    for tile in blocks(len(a), TILE):
        a[tile, tile] = np.tril(a[tile, tile]) + np.tril(a[tile, tile], -1).T
        a[: tile.start, tile] = a[tile, : tile.start].T


def _launch(kernel: str, a: Array, *args: object) -> None:
    """Launch a kernel of cuda/transpose.cu over the tiles of `a`."""
    sizes = kernels.Constants("transpose", a.dtype)
    tiles = -(-len(a) // sizes.SIDE) * -(-a.shape[1] // sizes.SIDE)
    if tiles:
        kernels.launch("transpose", kernel, tiles, (sizes.SIDE, sizes.ROWS), *args, dtype=a.dtype)

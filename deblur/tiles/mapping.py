"""Tiles of Dask arrays: each stored chunk is read once, and cut up for its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Array
from .refining import corrected
from .windows import Edges, Sides, restore

if TYPE_CHECKING:
    from .tiling import Tiling


def mapped(tiling: Tiling, img: Any) -> Any:
    """The restored picture as a lazy Dask array with the axes of `img`."""
    import dask.array as da

    axes = tiling.axes
    x = in_tiles(tiling, img.transpose(axes.order))
    seen = overlapped(tiling, x)
    found: list[Any] = []
    for number in range(tiling.plan.passes):
        out = da.map_blocks(
            Job(tiling, x.numblocks, last=number == tiling.plan.passes - 1),
            seen,
            *found,
            dtype=tiling.dtype,
            chunks=x.chunks,
            meta=x._meta.astype(tiling.dtype),
            name=f"deblur-{tiling.recipe.token}-{number}",
            enforce_ndim=True,
        )
        found = [overlapped(tiling, out)]  # y, of which the next pass sees as much as of the image
    return out.transpose(tuple(np.argsort(axes.order)))


class Job:
    """Restores a block with its surroundings and cuts it. It holds little of a `Tiling`: it travels with the tasks.

    Parameters
    ----------
    tiling : Tiling
    counts : tuple of int
        How many blocks there are along each axis of `Axes.order`.
    last : bool
        Of tiles that are refined in passes, whether this is the last one, which gives the restored scene and not y.
    """

    def __init__(self, tiling: Tiling, counts: tuple[int, ...], last: bool = True) -> None:
        self.recipe, self.overlap, self.counts = tiling.recipe, tiling.beyond, counts
        self.refines, self.last = tiling.plan.passes > 1, last
        self.wraps = tiling.plan.boundary == "periodic"
        self.coloured = tiling.axes.channel is not None
        self.stack = tuple(tiling.axes.shape[a] for a in tiling.axes.stack)

    def __dask_tokenize__(self) -> Any:
        return self.recipe.token

    def restored(self, block: Array, place: tuple[int, ...], y: Array | None = None) -> tuple[Array, float]:
        """The tile at a place, counted in tiles; and what the last of several passes changed at most."""
        sides, trim = at_frame(place[-2:], self.counts[-2:], self.overlap, self.wraps)
        frame = 0
        if len(self.recipe.psfs) > 1:  # then each block is one frame
            frame = int(np.ravel_multi_index(place[: len(self.stack)], self.stack))
        form = (-1, block.shape[-3] if self.coloured else 1, *block.shape[-2:])
        window, change = block.reshape(form), 0.0
        if self.refines:
            known = None if y is None else y.reshape(form)
            f, change = corrected(self.recipe, window, known, frame, sides, trim, last=self.last)
        else:
            f = restore(self.recipe, window, frame, sides, trim)
        return f.reshape(*block.shape[:-2], *f.shape[-2:]), change

    def __call__(self, block: Array, y: Array | None = None, *, block_id: tuple[int, ...]) -> Array:
        try:
            return self.restored(block, block_id, y)[0]
        except ValueError as error:
            raise ValueError(f"the tile {tuple(map(int, block_id))} (counted in tiles): {error}") from None


def together(tiling: Tiling) -> int:
    """Frames that a worker can solve at once, unless each has its own PSF."""
    if len(tiling.recipe.psfs) > 1:
        return 1
    return max(1, tiling.plan.memory // (tiling.plan.bytes * tiling.axes.colours))


def in_tiles(tiling: Tiling, x: Any) -> Any:
    """A Dask array in `Axes.order` with the plan's tiles as its chunks, and as many frames in each as fit."""
    rows, cols = (tuple(b - a for a, b in cuts) for cuts in tiling.cuts)
    most = together(tiling)
    front: list[Any] = []
    for axis in range(x.ndim - 2):
        if axis == len(tiling.axes.stack):
            front.append(-1)  # colours stay together
        elif axis == len(tiling.axes.stack) - 1:  # the last axis of the stack keeps its chunks
            front.append(tuple(p for c in x.chunks[axis] for p in _split(c, most)))
        else:
            front.append(1)
    return x.rechunk((*front, rows, cols))


def _split(n: int, most: int) -> list[int]:
    return [min(most, n - i) for i in range(0, n, most)]


def overlapped(tiling: Tiling, x: Any) -> Any:
    """The blocks with what they see of their neighbours: nothing beyond the frame, unless the picture wraps round."""
    from dask.array import overlap as lap

    depth, boundary = {}, {}
    for axis, (d, cuts) in enumerate(zip(tiling.beyond, tiling.cuts, strict=True), x.ndim - 2):
        depth[axis] = d if len(cuts) > 1 else 0
        boundary[axis] = "periodic" if tiling.plan.boundary == "periodic" and len(cuts) > 1 else "none"
    for axis in range(x.ndim - 2):
        depth[axis], boundary[axis] = 0, "none"
    return lap.overlap(x, depth, boundary, allow_rechunk=False) if any(depth.values()) else x


def at_frame(place: Any, count: Any, overlap: Any, wraps: bool) -> tuple[Sides, Edges]:
    """(which sides of a block are the picture's, what to cut off), from its place among the blocks."""
    sides, trim = [], []
    for i, n, d in zip(place, count, overlap, strict=True):
        first, last = (i == 0, i == n - 1) if not wraps or n == 1 else (False, False)
        sides.append((first, last))
        trim.append((0 if first else d, 0 if last else d))
    return tuple(sides), tuple(trim)  # type: ignore[return-value]

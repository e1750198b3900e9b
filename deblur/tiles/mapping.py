"""Tiles of Dask arrays: each stored chunk is read once, and cut up for its neighbours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Array
from .windows import Edges, Sides, restore

if TYPE_CHECKING:
    from .tiling import Tiling


def mapped(tiling: Tiling, img: Any) -> Any:
    """The restored picture as a lazy Dask array with the axes of `img`."""
    axes = tiling.axes
    x = in_tiles(tiling, img.transpose(axes.order))
    spread = overlapped(tiling, x)
    out = spread.map_blocks(
        _block,
        tiling=_Job(tiling),
        counts=x.numblocks,
        dtype=tiling.dtype,
        chunks=x.chunks,
        meta=x._meta.astype(tiling.dtype),
        name=f"deblur-{tiling.recipe.token}",
        enforce_ndim=True,
    )
    return out.transpose(tuple(np.argsort(axes.order)))


class _Job:
    """What a block needs of a `Tiling`: little, since it travels with every task."""

    def __init__(self, tiling: Tiling) -> None:
        self.recipe, self.overlap, self.wraps = (
            tiling.recipe,
            tiling.plan.overlap,
            tiling.plan.boundary == "periodic",
        )
        self.coloured = tiling.axes.channel is not None
        self.stack = tuple(tiling.axes.shape[a] for a in tiling.axes.stack)

    def __dask_tokenize__(self) -> Any:
        return self.recipe.token


def in_tiles(tiling: Tiling, x: Any) -> Any:
    """A Dask array in `Axes.order` with the plan's tiles as its chunks, and as many frames in each as fit."""
    rows, cols = (tuple(b - a for a, b in cuts) for cuts in tiling.cuts)
    window = math.prod(tiling.plan.window) * tiling.axes.colours * tiling.dtype.itemsize
    front: list[Any] = []
    for axis in range(x.ndim - 2):
        if axis == len(tiling.axes.stack):
            front.append(-1)  # colours stay together
        elif axis == len(tiling.axes.stack) - 1 and len(tiling.recipe.psfs) == 1:
            # The last axis of the stack keeps the chunks it has, if several frames fit a worker.
            most = max(1, tiling.plan.memory // max(1, 8 * window))
            front.append(tuple(p for c in x.chunks[axis] for p in _split(c, most)))
        else:
            front.append(1)
    return x.rechunk((*front, rows, cols))


def _split(n: int, most: int) -> list[int]:
    return [min(most, n - i) for i in range(0, n, most)]


def overlapped(tiling: Tiling, x: Any, overlap: Any = None) -> Any:
    """The blocks with what they see of their neighbours: nothing beyond the frame, unless the picture wraps round."""
    from dask.array import overlap as lap

    depth, boundary = {}, {}
    for axis, (d, cuts) in enumerate(
        zip(overlap or tiling.plan.overlap, tiling.cuts, strict=True), x.ndim - 2
    ):
        depth[axis] = d if len(cuts) > 1 else 0
        boundary[axis] = "periodic" if tiling.plan.boundary == "periodic" and len(cuts) > 1 else "none"
    for axis in range(x.ndim - 2):
        depth[axis], boundary[axis] = 0, "none"
    return lap.overlap(x, depth, boundary, allow_rechunk=False) if any(depth.values()) else x


def _block(block: Array, tiling: _Job, counts: tuple[int, ...], block_info: Any = None) -> Array:
    """One block with its surroundings, restored and cut."""
    place = block_info[0]["chunk-location"]
    sides, trim = at_frame(place[-2:], counts[-2:], tiling.overlap, tiling.wraps)
    frame = 0
    if len(tiling.recipe.psfs) > 1:
        frame = int(np.ravel_multi_index(place[: len(tiling.stack)], tiling.stack))
    window = block.reshape(-1, block.shape[-3] if tiling.coloured else 1, *block.shape[-2:])
    try:
        f = restore(tiling.recipe, window, frame, sides, trim)
    except ValueError as error:
        raise ValueError(f"the tile {tuple(map(int, place))} (counted in tiles): {error}") from None
    return f.reshape(*block.shape[:-2], *f.shape[-2:])


def at_frame(place: Any, count: Any, overlap: Any, wraps: bool) -> tuple[Sides, Edges]:
    """(which sides of a block are the picture's, what to cut off), from its place among the blocks."""
    sides, trim = [], []
    for i, n, d in zip(place, count, overlap, strict=True):
        first, last = (i == 0, i == n - 1) if not wraps or n == 1 else (False, False)
        sides.append((first, last))
        trim.append((0 if first else d, 0 if last else d))
    return tuple(sides), tuple(trim)  # type: ignore[return-value]

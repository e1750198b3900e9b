"""Tiles of Dask arrays: each stored chunk is read once, and `dask.array.overlap` lends its neighbours a part of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Array, is_cupy
from .refining import corrected
from .windows import Edges, Sides, surroundings

if TYPE_CHECKING:
    from .tiling import Tiling

Place = tuple[int, ...]  # of a block, counted in blocks along each axis of `Layout.order`
Blocks = tuple[tuple[int, ...], ...]  # their lengths along each of these axes


def lazily(tiling: Tiling, img: Any) -> Any:
    """The restored image as a lazy Dask array with the axes of `img`."""
    order = tiling.layout.order
    x = in_tiles(tiling, img.transpose(order))
    found: list[Any] = []
    for number in range(tiling.plan.passes):  # a pass sees as much of the y of the last one as of x
        name, meta = f"deblur-{tiling.recipe.token}-{number}", x._meta.astype(tiling.dtype)
        found = [graph(BlockMap(tiling, number), [x, *found], name, x.chunks, meta)]
    return found[0].transpose(tuple(np.argsort(order)))


def graph(blocks: BlockMap, arrays: Sequence[Any], name: str, chunks: Any, meta: Array) -> Any:
    """A lazy array of `BlockMap.task` for each block of Dask arrays that are cut alike."""
    import dask.array as da
    from dask.array.overlap import overlap

    depth = dict(enumerate(blocks.overlap, arrays[0].ndim - len(blocks.overlap)))
    edge = "periodic" if blocks.recipe.boundary.wraps else "none"
    windows = [overlap(x, depth, edge, allow_rechunk=False) for x in arrays]
    return da.map_blocks(blocks.run, *windows, name=name, chunks=chunks, dtype=meta.dtype, meta=meta)


class BlockMap:
    """Restores the tile of a block from its window. It holds little of a `Tiling`: it travels with the tasks.

    Parameters
    ----------
    tiling : Tiling
    number : int
        Of the pass.

    Attributes
    ----------
    overlap : list of int
    stack : tuple of int
        Frames along each axis of the stack.
    last : bool or None
        Of tiles that are refined, whether this pass gives the restored scene and not y; None of others.
    """

    def __init__(self, tiling: Tiling, number: int) -> None:
        layout, passes = tiling.layout, tiling.plan.passes
        self.recipe, self.cuts, self.colours = tiling.recipe, tiling.cuts, layout.colours
        self.overlap = [d if len(cuts) > 1 else 0 for d, cuts in zip(tiling.beyond, tiling.cuts, strict=True)]
        self.stack = tuple(layout.shape[a] for a in layout.stack)
        self.last = number == passes - 1 if passes > 1 else None

    def __dask_tokenize__(self) -> Any:
        return self.recipe.token

    def run(self, *windows: Any, block_id: Place) -> Any:
        """`task` for the windows of a block, as `dask.array.map_blocks` calls it."""
        return self.task(block_id, *windows)

    def around(self, place: Place) -> tuple[list[list[slice]], Sides, Edges]:
        """(spans that are read, which sides are the image's, what to cut off) of the window of a block."""
        tile = [cuts[i] for cuts, i in zip(self.cuts, place[-len(self.cuts) :], strict=True)]
        space = [cuts[-1][1] for cuts in self.cuts]
        return surroundings(tile, self.overlap, space, self.recipe.boundary.wraps)

    def restored(self, place: Place, window: Array, y: Array | None = None) -> tuple[Array, float]:
        """The tile at a place; and the largest change of the last of several passes."""
        _, sides, trim = self.around(place)
        # Where each frame has its own PSF, each block is one frame.
        frame = int(np.ravel_multi_index(place[: len(self.stack)], self.stack)) if len(self.recipe.psfs) > 1 else 0
        front, space = window.shape[: -len(self.cuts)], window.shape[-len(self.cuts) :]
        form = (-1, self.colours, *space)
        known = None if y is None else y.reshape(form)
        f, change = corrected(self.recipe, window.reshape(form), known, frame, sides, trim, self.last)
        return f.reshape(*front, *f.shape[2:]), change

    def task(self, place: Place, *windows: Array) -> Any:
        """The tile at a place, or ValueError that names it."""
        try:
            f = self.restored(place, *windows)[0]
        except ValueError as error:
            raise ValueError(f"the tile {place} (counted in tiles): {error}") from None
        return f if self.recipe.device == "cpu" or is_cupy(f) else f.copy()  # staging memory is reused


def together(tiling: Tiling) -> int:
    """Frames that a worker can solve at once, unless each has its own PSF."""
    if len(tiling.recipe.psfs) > 1:
        return 1
    return max(1, tiling.plan.memory // (tiling.plan.bytes * tiling.layout.colours))


def fit_together(tiling: Tiling) -> bool:
    """Whether a process has room for the tiles that wait until their neighbours are read: up to two rows of them.

    Where it has, each stored chunk is read once; else each tile reads its window for itself.
    """
    plan = tiling.plan
    held = 2 * plan.tile[0] * math.prod(plan.shape[1:]) * tiling.dtype.itemsize * tiling.layout.colours
    held *= (2 if plan.passes > 1 else 1) if any(plan.overlap) else 0
    return held <= tiling.workers * (plan.memory - plan.bytes)


def blocks_of(tiling: Tiling, frames: Sequence[int]) -> Blocks:
    """The lengths of the blocks along each axis of `Layout.order`: tiles, and as many frames in each as fit.

    `frames` are parts of the last axis of the stack, which are kept apart.
    """
    most, layout = together(tiling), tiling.layout
    front = [(1,) * layout.shape[axis] for axis in layout.stack[:-1]]
    if layout.stack:
        front.append(tuple(min(most, n - i) for n in frames for i in range(0, n, most)))
    if layout.channel is not None:
        front.append((layout.colours,))  # colours stay together
    return (*front, *(tuple(b - a for a, b in cuts) for cuts in tiling.cuts))


def in_tiles(tiling: Tiling, x: Any) -> Any:
    """A Dask array in `Layout.order` with these blocks as its chunks."""
    return x.rechunk(blocks_of(tiling, x.chunks[max(0, len(tiling.layout.stack) - 1)]))

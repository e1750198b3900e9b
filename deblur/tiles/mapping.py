"""Tiles of Dask arrays: each chunk is read once, and `dask.array.overlap` lends its neighbours a part of it."""

from __future__ import annotations

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
    import dask.array as da
    from dask.array.overlap import overlap

    layout = tiling.layout
    x = img.transpose(layout.order)
    x = x.rechunk(blocks_of(tiling, x.chunks[max(0, len(layout.stack) - 1)]))
    edge = "periodic" if tiling.recipe.boundary.wraps else "none"
    found: list[Any] = []
    for number in range(tiling.plan.passes):  # a pass sees as much of the y of the last one as of x
        tiles, name = BlockMap(tiling, number), f"deblur-{tiling.recipe.token}-{number}"
        depth = dict(enumerate(tiles.overlap, x.ndim - len(tiles.overlap)))
        windows = [overlap(each, depth, edge, allow_rechunk=False) for each in (x, *found)]
        meta = x._meta.astype(tiling.dtype)
        found = [da.map_blocks(tiles, *windows, name=name, chunks=x.chunks, dtype=tiling.dtype, meta=meta)]
    return found[0].transpose(tuple(np.argsort(layout.order)))


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

    def around(self, place: Place) -> tuple[list[list[slice]], Sides, Edges]:
        """(spans that are read, which sides are the image's, what to cut off) of the window of a block."""
        tile = [cuts[i] for cuts, i in zip(self.cuts, place[-len(self.cuts) :], strict=True)]
        return surroundings(tile, self.overlap, [cuts[-1][1] for cuts in self.cuts], self.recipe.boundary.wraps)

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

    def __call__(self, *windows: Array, block_id: Place) -> Any:
        """The tile of a block from its windows, or ValueError that names it, as `dask.array.map_blocks` calls it."""
        try:
            f = self.restored(block_id, *windows)[0]
        except ValueError as error:
            raise ValueError(f"the tile {block_id} (counted in tiles): {error}") from None
        return f if self.recipe.device == "cpu" or is_cupy(f) else f.copy()  # staging memory is reused


def blocks_of(tiling: Tiling, frames: Sequence[int]) -> Blocks:
    """The lengths of the blocks along each axis of `Layout.order`: tiles, and as many frames in each as fit.

    `frames` are parts of the last axis of the stack, which are kept apart.
    """
    plan, layout = tiling.plan, tiling.layout
    most = 1 if len(tiling.recipe.psfs) > 1 else max(1, plan.memory // (plan.bytes * layout.colours))
    front = [(1,) * layout.shape[axis] for axis in layout.stack[:-1]]
    if layout.stack:
        front.append(tuple(min(most, n - i) for n in frames for i in range(0, n, most)))
    if layout.channel is not None:
        front.append((layout.colours,))  # colours stay together
    return (*front, *(tuple(b - a for a, b in cuts) for cuts in tiling.cuts))

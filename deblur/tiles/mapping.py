"""Tiles of Dask arrays: each chunk is read once, and `dask.array.overlap` shares parts of it with its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Array, is_cupy
from .refining import corrected
from .windows import surroundings

if TYPE_CHECKING:
    from .tiling import Tiling


def lazily(tiling: Tiling, img: Any) -> Any:
    """Return the restored image as a lazy Dask array with the axes of `img`."""
    import dask.array as da
    from dask.array.overlap import overlap

    layout = tiling.layout
    x = img.transpose(layout.order)
    x = x.rechunk(blocks_of(tiling, x.chunks[max(0, len(layout.stack) - 1)]))
    edge = "periodic" if tiling.recipe.boundary.wraps else "none"
    found: list[Any] = []
    for number in range(tiling.plan.passes):  # a pass sees as much of the last y as of x
        tiles, name = BlockMap(tiling, number), f"deblur-{tiling.recipe.token}-{number}"
        depth = dict(enumerate(tiles.overlap, x.ndim - len(tiles.overlap)))
        windows = [overlap(each, depth, edge, allow_rechunk=False) for each in (x, *found)]
        meta = x._meta.astype(tiling.dtype)
        found = [da.map_blocks(tiles, *windows, name=name, chunks=x.chunks, dtype=tiling.dtype, meta=meta)]
    return found[0].transpose(tuple(np.argsort(layout.order)))


class BlockMap:
    """Restores the tile of a block from its windows. It holds few parts of a `Tiling`, since it is sent with tasks.

    Parameters
    ----------
    tiling : Tiling
    tiling : Tiling
        The decisions.
    number : int
        Number of the pass.

    Attributes
    ----------
    overlap : list of int
        Pixels that are read beyond a tile, along each axis of space.
    stack : tuple of int
        Numbers of frames along each axis of the stack.
    last : bool or None
        For tiles that are refined, whether this pass returns the restored scene instead of y; else None.
    """

    def __init__(self, tiling: Tiling, number: int) -> None:
        layout, passes = tiling.layout, tiling.plan.passes
        self.recipe, self.cuts, self.colours = tiling.recipe, tiling.cuts, layout.colours
        self.overlap = [d if len(cuts) > 1 else 0 for d, cuts in zip(tiling.beyond, tiling.cuts, strict=True)]
        self.stack = tuple(layout.shape[a] for a in layout.stack)
        self.last = number == passes - 1 if passes > 1 else None

    def __dask_tokenize__(self) -> Any:
        return self.recipe.token

    def __call__(self, *windows: Array, block_id: tuple[int, ...]) -> Any:
        """Return the tile of a block from its windows, as `dask.array.map_blocks` calls it; ValueError names the block.

        `block_id` counts blocks along each axis of `Layout.order`.
        """
        tile = [cuts[i] for cuts, i in zip(self.cuts, block_id[-len(self.cuts) :], strict=True)]
        size = [cuts[-1][1] for cuts in self.cuts]
        _, sides, trim = surroundings(tile, self.overlap, size, self.recipe.boundary.wraps)
        # If each frame has its own PSF, each block is one frame.
        frame = int(np.ravel_multi_index(block_id[: len(self.stack)], self.stack)) if len(self.recipe.psfs) > 1 else 0
        front, space = windows[0].shape[: -len(size)], windows[0].shape[-len(size) :]
        image, *known = (window.reshape(-1, self.colours, *space) for window in windows)
        try:
            f, _ = corrected(self.recipe, image, known[0] if known else None, frame, sides, trim, self.last)
        except ValueError as error:
            raise ValueError(f"the tile {block_id} (counted in tiles): {error}") from None
        f = f.reshape(*front, *f.shape[2:])
        return f if self.recipe.device == "cpu" or is_cupy(f) else f.copy()  # the staging memory is used again


def blocks_of(tiling: Tiling, frames: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the lengths of the blocks along each axis of `Layout.order`: tiles, with as many frames as fit.

    `frames` are the chunks of the last axis of the stack, which are not merged.
    """
    layout, most = tiling.layout, tiling.together
    front = [(1,) * layout.shape[axis] for axis in layout.stack[:-1]]
    if layout.stack:
        front.append(tuple(min(most, n - i) for n in frames for i in range(0, n, most)))
    if layout.channel is not None:
        front.append((layout.colours,))  # colours stay together
    return (*front, *(tuple(b - a for a, b in cuts) for cuts in tiling.cuts))

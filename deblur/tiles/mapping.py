"""Tiles of Dask arrays: each chunk is read once, and `dask.array.overlap` shares parts of it with its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
    beyond = [d if len(cuts) > 1 else 0 for d, cuts in zip(tiling.beyond, tiling.cuts, strict=True)]
    depth = dict(enumerate(beyond, x.ndim - len(beyond)))
    made: dict[str, Any] = {"chunks": x.chunks, "dtype": tiling.dtype, "meta": x._meta.astype(tiling.dtype)}
    found: list[Any] = []
    for number in range(tiling.plan.passes):  # a pass sees as much of the last y as of x
        windows = [overlap(each, depth, edge, allow_rechunk=False) for each in (x, *found)]
        tile = partial(_tile, tiling, beyond, tiling.last(number))
        found = [da.map_blocks(tile, *windows, name=f"deblur-{tiling.recipe.token}-{number}", **made)]
    return found[0].transpose(tuple(np.argsort(layout.order)))


def _tile(tiling: Tiling, overlap: Sequence[int], last: bool | None, *windows: Array, block_id: tuple[int, ...]) -> Any:
    """Return the tile of a block from its windows, as `dask.array.map_blocks` calls it; ValueError names the block.

    `block_id` counts blocks along each axis of `Layout.order`. If each frame has its own PSF, each block is one frame.
    """
    recipe, layout, front = tiling.recipe, tiling.layout, windows[0].shape[: -len(overlap)]
    tile = [cuts[i] for cuts, i in zip(tiling.cuts, block_id[-len(overlap) :], strict=True)]
    _, sides, trim = surroundings(tile, overlap, layout.space, recipe.boundary.wraps)
    if len(recipe.psfs) > 1:
        stack = [layout.shape[axis] for axis in layout.stack]
        recipe = recipe.of(int(np.ravel_multi_index(block_id[: len(stack)], stack)))
    image, *known = (x.reshape(-1, layout.colours, *x.shape[-len(overlap) :]) for x in windows)
    try:
        f, _ = corrected(recipe, image, known[0] if known else None, sides, trim, last)
    except ValueError as error:
        raise ValueError(f"the tile {block_id} (counted in tiles): {error}") from None
    f = f.reshape(*front, *f.shape[2:])
    return f if recipe.device == "cpu" or is_cupy(f) else f.copy()  # the staging memory is used again


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

"""Tiles of Dask arrays: each stored chunk is read once, and lends its neighbours the strips that they see of it.

There are three tasks for a tile: its chunk, the strips along the chunk's sides, and the tile, made from the chunk
and the strips of its neighbours. `dask.array.overlap` makes ten, and passes whole chunks on: in two processes tiles of
1024 x 1024 pixels took 1.25 times the CPU time, and those of 512 x 512 1.4 times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Array, get_xp, is_cupy, staging
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
    from dask.highlevelgraph import HighLevelGraph

    tasks: dict[Any, Any] = {}
    for place in np.ndindex(*arrays[0].numblocks):
        parts: list[Any] = []
        for i, x in enumerate(arrays):
            strips = [(f"{name}-strips-{i}", *there) for there in blocks.neighbours(place).values()]
            parts += [(x.name, *place), strips]
            if blocks.steps:
                tasks[(f"{name}-strips-{i}", *place)] = (blocks.strips, (x.name, *place))
        tasks[(name, *place)] = (blocks.run, list(place), *parts)
    return da.Array(HighLevelGraph.from_collections(name, tasks, arrays), name, chunks, meta=meta)


class BlockMap:
    """Assembles the window of a block and restores its tile. It holds little of a `Tiling`: it travels with the tasks.

    Parameters
    ----------
    tiling : Tiling
    number : int
        Of the pass.

    Attributes
    ----------
    overlap : list of int
    steps : list of tuple of int
        The directions in which a tile sees parts of other blocks.
    stack : tuple of int
        Frames along each axis of the stack.
    last : bool or None
        Of tiles that are refined, whether this pass gives the restored scene and not y; None of others.
    """

    def __init__(self, tiling: Tiling, number: int) -> None:
        layout, passes = tiling.layout, tiling.plan.passes
        self.recipe, self.cuts, self.colours = tiling.recipe, tiling.cuts, layout.colours
        self.overlap = [d if len(cuts) > 1 else 0 for d, cuts in zip(tiling.beyond, tiling.cuts, strict=True)]
        self.steps = list(itertools.product(*((0, -1, 1) if d else (0,) for d in self.overlap)))[1:]
        self.stack = tuple(layout.shape[a] for a in layout.stack)
        self.last = number == passes - 1 if passes > 1 else None

    def __dask_tokenize__(self) -> Any:
        return self.recipe.token

    def neighbours(self, place: Place) -> dict[Place, Place]:
        """The places of the blocks that a tile sees a part of, by their direction."""
        found, counts, axes = {}, [len(cuts) for cuts in self.cuts], len(self.cuts)
        for step in self.steps:
            at = [i + s for i, s in zip(place[-axes:], step, strict=True)]
            if self.recipe.boundary.wraps:
                at = [i % n for i, n in zip(at, counts, strict=True)]
            if all(0 <= i < n for i, n in zip(at, counts, strict=True)):
                found[step] = (*place[:-axes], *at)
        return found

    def strips(self, block: Array) -> dict[Place, Array]:
        """The parts of a block that its neighbours see, by the direction in which they see it."""
        space = zip(self.overlap, block.shape[-len(self.cuts) :], strict=True)
        seen: list[dict[int, slice]] = [{-1: slice(n - d, n), 0: slice(0, n), 1: slice(0, d)} for d, n in space]
        at = {step: tuple(s[i] for s, i in zip(seen, step, strict=True)) for step in self.steps}
        return {step: block[(..., *part)].copy() for step, part in at.items()}  # views keep the block

    def window(self, place: Place, block: Array, around: Sequence[dict[Place, Array]]) -> Array:
        """A block with the strips of its neighbours."""
        if not around:
            return block
        axes = len(self.cuts)
        parts = {(0,) * axes: block}
        parts |= {step: strips[step] for step, strips in zip(self.neighbours(place), around, strict=True)}
        lengths = ({step[axis]: part.shape[axis - axes] for step, part in parts.items()} for axis in range(axes))
        ends = [np.cumsum([0, *(length.get(i, 0) for i in (-1, 0, 1))]).tolist() for length in lengths]
        empty = get_xp(block).empty if self.recipe.device == "cpu" or is_cupy(block) else staging
        out = empty((*block.shape[:-axes], *(end[-1] for end in ends)), block.dtype.newbyteorder("="))
        for step, part in parts.items():
            at: Any = (..., *(slice(*end[i + 1 : i + 3]) for end, i in zip(ends, step, strict=True)))
            out[at] = part
        return out

    def run(self, place: Sequence[int], *parts: Any) -> Any:
        """`task` for the windows of the block at a place, each from the block and its neighbours' strips."""
        at = tuple(map(int, place))
        return self.task(at, *(self.window(at, *seen) for seen in zip(parts[::2], parts[1::2], strict=True)))

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

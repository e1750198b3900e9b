"""Tiles of Dask arrays: each stored chunk is read once, and lends its neighbours what they see of it.

There are three tasks for a tile: its chunk, the strips along the chunk's four sides, and the tile, made from the chunk
and the strips of its neighbours. `dask.array.overlap` makes ten, each of which takes a scheduler and a worker some
milliseconds of Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Array, get_xp, is_cupy, staging
from .refining import corrected
from .windows import Edges, Sides, restore

if TYPE_CHECKING:
    from .tiling import Tiling


def mapped(tiling: Tiling, img: Any) -> Any:
    """The restored picture as a lazy Dask array with the axes of `img`."""
    axes = tiling.axes
    x = in_tiles(tiling, img.transpose(axes.order))
    found: list[Any] = []
    for number in range(tiling.plan.passes):
        job = Job(tiling, x.numblocks, last=number == tiling.plan.passes - 1)
        name, meta = f"deblur-{tiling.recipe.token}-{number}", x._meta.astype(tiling.dtype)
        found = [
            jobs(job, [x, *found], name, x.chunks, meta)
        ]  # y, of which the next pass sees as much as of x
    return found[0].transpose(tuple(np.argsort(axes.order)))


def jobs(job: Job, seen: Sequence[Any], name: str, chunks: Any, meta: Array) -> Any:
    """A job for each block of Dask arrays that are cut alike, as a lazy array of what they give back."""
    import dask.array as da
    from dask.highlevelgraph import HighLevelGraph

    graph: dict[Any, Any] = {}
    for place in np.ndindex(*seen[0].numblocks):
        around = [there for _, there in job.neighbours(place)]
        parts: list[Any] = []
        for i, x in enumerate(seen):
            parts += [(x.name, *place), [(f"{name}-strips-{i}", *there) for there in around]]
            if any(job.overlap):
                graph[(f"{name}-strips-{i}", *place)] = (strips, (x.name, *place), job.overlap)
        graph[(name, *place)] = (job, list(place), *parts)
    return da.Array(HighLevelGraph.from_collections(name, graph, seen), name, chunks, meta=meta)


def strips(block: Array, overlap: Sequence[int]) -> list[Array]:
    """What neighbours see of a block: its first and last rows, and its first and last columns."""
    (d, e), (m, n) = overlap, block.shape[-2:]
    return [
        part.copy()  # not the block itself, which would stay for them
        for part in (block[..., :d, :], block[..., m - d :, :], block[..., :e], block[..., n - e :])
    ]


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
        self.recipe, self.counts = tiling.recipe, counts
        rows, cols = (d if len(cuts) > 1 else 0 for d, cuts in zip(tiling.beyond, tiling.cuts, strict=True))
        self.overlap = (rows, cols)
        self.refines, self.last = tiling.plan.passes > 1, last
        self.wraps = tiling.plan.boundary == "periodic"
        self.coloured = tiling.axes.channel is not None
        self.stack = tuple(tiling.axes.shape[a] for a in tiling.axes.stack)

    def __dask_tokenize__(self) -> Any:
        return self.recipe.token

    def neighbours(self, place: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, ...]]]:
        """(in which direction, at which place) the blocks are that a tile sees something of, in a fixed order."""
        found = []
        for step in itertools.product(*((-1, 0, 1) if d else (0,) for d in self.overlap)):
            at = [i + s for i, s in zip(place[-2:], step, strict=True)]
            if self.wraps:
                at = [i % n for i, n in zip(at, self.counts[-2:], strict=True)]
            if any(step) and all(0 <= i < n for i, n in zip(at, self.counts[-2:], strict=True)):
                found.append(((step[0], step[1]), (*place[:-2], *at)))
        return found

    def window(self, place: Sequence[int], block: Array, around: Sequence[Sequence[Array]]) -> Array:
        """A block with what its neighbours lend it."""
        steps = [step for step, _ in self.neighbours(place)]
        if not steps:
            return block
        spans = []  # of the pieces before, at and after the block, along either axis
        for axis, (d, n) in enumerate(zip(self.overlap, block.shape[-2:], strict=True)):
            first = d if any(step[axis] < 0 for step in steps) else 0
            last = d if any(step[axis] > 0 for step in steps) else 0
            spans.append((slice(first), slice(first, first + n), slice(first + n, first + n + last)))
        shape = (*block.shape[:-2], *(s[2].stop for s in spans))
        empty = get_xp(block).empty if self.recipe.device == "cpu" or is_cupy(block) else staging
        out = empty(shape, block.dtype.newbyteorder("="))
        out[..., spans[0][1], spans[1][1]] = block
        for (i, j), (top, bottom, left, right) in zip(steps, around, strict=True):
            piece = (bottom, None, top)[i + 1]
            if piece is None:
                piece = left if j > 0 else right
            elif j:
                piece = piece[..., : self.overlap[1]] if j > 0 else piece[..., -self.overlap[1] :]
            out[..., spans[0][i + 1], spans[1][j + 1]] = piece
        return out

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

    def __call__(self, place: Sequence[int], *parts: Any) -> Any:
        """What a task does with the block at a place, its neighbours' strips and, of a later pass, those of y."""
        windows = [self.window(place, *seen) for seen in zip(parts[::2], parts[1::2], strict=True)]
        return self.done(tuple(map(int, place)), *windows)

    def done(self, place: tuple[int, ...], window: Array, y: Array | None = None) -> Any:
        """What a task gives back."""
        try:
            f = self.restored(window, place, y)[0]
        except ValueError as error:
            raise ValueError(f"the tile {place} (counted in tiles): {error}") from None
        return f if self.recipe.device == "cpu" or is_cupy(f) else f.copy()  # not what is kept for staging


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


def at_frame(place: Any, count: Any, overlap: Any, wraps: bool) -> tuple[Sides, Edges]:
    """(which sides of a block are the picture's, what to cut off), from its place among the blocks."""
    sides, trim = [], []
    for i, n, d in zip(place, count, overlap, strict=True):
        first, last = (i == 0, i == n - 1) if not wraps or n == 1 else (False, False)
        sides.append((first, last))
        trim.append((0 if first else d, 0 if last else d))
    return tuple(sides), tuple(trim)  # type: ignore[return-value]

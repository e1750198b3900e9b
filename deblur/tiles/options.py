"""The options of `plan_tiles`, `tiled` and `stream` that a restoration without tiles does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..options import Options, defaults

TOLERANCE = 1e-3


class PlanOptions(Options, total=False):
    """tolerance : float
        Largest error at a seam, against the image solved whole, as a part of the image's range; 1e-3 by default. With
        boundary "zero" the range begins at 0: an image far above it needs a smaller one for its contrast.
    safe : bool
        False: the sharp prediction, made with the correlation that photographs have, which held in 99 of 100 cases
        of ``benchmarks/bench_tiles.py``. True: the L1 tail, which no image can exceed inside the border; it asks for
        1.2 to 2 times the overlap.
    memory : int, optional
        Bytes that the arrays of one worker may take; by default half of what is free, for all workers together.
    tile, overlap : int or tuple of int, optional
        Instead of the planned ones, one number or one for each axis; the seam of an overlap is then predicted or
        measured, and warned of where it is above the tolerance.
    passes : int, optional
        Solve tiles of this overlap so often: more than once is "refine". By default as often as it takes.
    chunk : int or tuple of int, optional
        Tiles are multiples of this, such as the chunks of a store, if such tiles fit.
    device : str, int or Device
        Where windows are solved: "cpu" (default), "gpu" or a GPU's number. CuPy arrays are solved where they are."""

    tolerance: Annotated[float, TOLERANCE]
    safe: Annotated[bool, False]
    memory: Annotated[int | None, None]
    tile: Annotated[int | Sequence[int] | None, None]
    overlap: Annotated[int | Sequence[int] | None, None]
    passes: Annotated[int | None, None]
    chunk: Annotated[int | Sequence[int] | None, None]
    device: Annotated[Any, "cpu"]


class TileOptions(PlanOptions, total=False):
    """workers : int or distributed.Client, optional
        Threads, each with one tile; by default one a core. A client (`cluster`) for `stream` alone.
    channel_axis : int, optional
        The axis of the colours; an image (M, N, 3) or (M, N, 4) is colour without it.
    stack_axis : int or tuple of int, optional
        The axes that frames are counted along. Frames share what is prepared for a window."""

    workers: Annotated[Any, None]
    channel_axis: Annotated[int | None, None]
    stack_axis: Annotated[int | Sequence[int] | None, None]


def parted(options: Mapping[str, Any], kind: Any) -> tuple[dict[str, Any], Options]:
    """(the options of `kind` with their defaults, those of `deblur.reconstruct`)."""
    own = {name: default for name, default in defaults(kind).items() if name not in Options.__annotations__}
    rest: Any = {name: value for name, value in options.items() if name not in own}
    return {name: options.get(name, default) for name, default in own.items()}, rest

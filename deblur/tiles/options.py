"""The options that only `plan_tiles`, `tiled` and `stream` have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..options import Options, defaults

TOLERANCE = 1e-3


class PlanOptions(Options, total=False):
    """tolerance : float
        Largest error at a seam, relative to the image solved whole, as a share of the image's range; by default 1e-3.
        With boundary "zero" the range begins at 0: a bright image needs a smaller tolerance for its contrast.
    safe : bool
        False: the sharp prediction, for the correlation that photographs have; it held in 99 of 100 cases of
        ``benchmarks/bench_tiles.py``. True: the L1 tail, a bound for every image away from the border; it needs 1.2 to
        2 times the overlap.
    memory : int, optional
        Bytes that the arrays of one worker may use; by default half of the free memory, divided among the workers.
    tile, overlap : int or tuple of int, optional
        Replace the planned ones: one number, or one for each axis. The seam of a given overlap is predicted or
        measured, with a warning if it is above the tolerance.
    passes : int, optional
        How often tiles of this overlap are solved; more than once is "refine". By default as often as necessary.
    chunk : int or tuple of int, optional
        Tiles are multiples of this, such as the chunks of a store, if such tiles fit into memory.
    device : str, int or Device
        Where windows are solved: "cpu" (default), "gpu" or a GPU's number. CuPy arrays stay on their GPU."""

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
        Threads, each with one tile; by default one for each core. `stream` also takes a client (`cluster`).
    channel_axis : int, optional
        Axis of the colours; an image (M, N, 3) or (M, N, 4) is taken for colour without it.
    stack_axis : int or tuple of int, optional
        Axes along which frames are counted. Frames share the prepared solvers of a window."""

    workers: Annotated[Any, None]
    channel_axis: Annotated[int | None, None]
    stack_axis: Annotated[int | Sequence[int] | None, None]


def parted(options: Mapping[str, Any], kind: Any) -> tuple[dict[str, Any], Options]:
    """Return the options of `kind` with their defaults, and the remaining ones, those of `deblur.reconstruct`."""
    own = {name: default for name, default in defaults(kind).items() if name not in Options.__annotations__}
    rest: Any = {name: value for name, value in options.items() if name not in own}
    return {name: options.get(name, default) for name, default in own.items()}, rest

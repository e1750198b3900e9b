"""From one store to another, tile by tile: zarr (OME-Zarr with its pyramid) or TIFF in, zarr out, and no more in memory
than the tiles at work.

What is written is whole: a chunk is renamed into its place when it is complete, so that a chunk that is there is done.
A second start reads λ and the plan from the output, solves the tiles that are missing, and says so.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..options import Options, takes_options
from ..version import __version__
from .checks import Residual, of_tile, ratios
from .mapping import Job, in_tiles, jobs, together
from .plan import TOLERANCE, TilePlan
from .tiling import MORE_PASSES, Axes, Seam, Tiling

ATTRIBUTE = "deblur"
_LOAD = 2**25  # bytes of image that are enough for one task: fewer, larger tasks gain nothing
_GPU_THREADS = 2  # of a process with a GPU: one reads and writes while the other's tile is solved
_SHARES = 64  # tasks that a stack is worth at least, so that workers end together


@dataclass(frozen=True)
class Failure:
    """A tile that could not be restored, and why.

    Attributes
    ----------
    place : tuple of int
        Of the tile, counted in tiles: frames first, then rows and columns.
    rows, columns : (int, int)
        First and beyond the last, in pixels.
    why : str
    """

    place: tuple[int, ...]
    rows: tuple[int, int]
    columns: tuple[int, int]
    why: str

    def __str__(self) -> str:
        where = f"rows {self.rows[0]} to {self.rows[1]}, columns {self.columns[0]} to {self.columns[1]}"
        frame = f"frame {self.place[:-2]}, " if len(self.place) > 2 else ""
        return f"tile {self.place} ({frame}{where}): {self.why}"


@dataclass(frozen=True)
class Report:
    """What `stream` did; ``print(report)`` shows it.

    Attributes
    ----------
    output : str
    plan : TilePlan
    lam : float
    lam_reason, boundary_reason : str
    written, kept : int
        Tiles written now, and those that an earlier start had written.
    failed : tuple of Failure
        Tiles that could not be restored; what they cover is NaN, and a second start tries them again.
    seams : tuple of Seam
        Of a few tiles: what twice the overlap changes.
    residual : Residual or None
        Of the whole picture, from what was written.
    left : float or None
        Where tiles were refined, about what the last of the passes left to be changed, as a part of the picture's
        range: what it changed at most, times the part of that which is left (`TilePlan.seam_once`).
    setup_seconds, seconds, check_seconds : float
        Wall time of deciding, of restoring, and of measuring seams and residual.
    """

    output: str
    plan: TilePlan
    lam: float
    lam_reason: str
    boundary_reason: str
    written: int
    kept: int
    failed: tuple[Failure, ...] = ()
    seams: tuple[Seam, ...] = ()
    residual: Residual | None = None
    left: float | None = None
    setup_seconds: float = 0.0
    seconds: float = 0.0
    check_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every tile was restored, and, where they were refined, to the tolerance."""
        return not self.failed and not self.unfinished

    @property
    def unfinished(self) -> bool:
        """Whether refining ended before what is left was below the tolerance."""
        return self.left is not None and self.left > self.plan.tolerance

    def __str__(self) -> str:
        lines = [
            str(self.plan),
            f"lambda      {self.lam:.4g}: {self.lam_reason}",
            f"boundary    {self.plan.boundary}: {self.boundary_reason}",
        ]
        if self.seams:
            worst = max(s.difference for s in self.seams)
            lines.append(
                f"measured    {worst:.1e} of the range is the most that twice the overlap changes in "
                f"{len(self.seams)} tiles"
            )
        if self.left is not None:
            over = ", above the tolerance" if self.unfinished else ""
            lines.append(f"refined     {self.left:.1e} of the range is about what the last pass left{over}")
        if self.residual is not None:
            linear = "" if self.residual.residual is None else f"residual {self.residual.residual:.1e}, "
            lines.append(
                f"judged      {linear}misfit {self.residual.misfit:.2e} over {self.residual.tiles} tiles"
            )
        went_on = f"; {self.kept} were there from an earlier start" if self.kept else ""
        lines.append(f"written     {self.written} tiles to {self.output} in {self.seconds:.3g} s{went_on}")
        lines += [f"failed      {f}" for f in self.failed]
        return "\n".join(lines)


@dataclass
class Source:
    """A picture on disk: an array that can be sliced, where its frames and colours are, and what OME-Zarr says of it.

    Attributes
    ----------
    array : array-like
    chunks : tuple of int or None
        As stored.
    channel_axis, stack_axis
        As for `deblur.tiled`.
    group : zarr.Group or None
        The OME-Zarr group that it is the largest level of.
    """

    array: Any
    chunks: tuple[int, ...] | None
    channel_axis: int | None = None
    stack_axis: tuple[int, ...] | None = None
    group: Any = None


@takes_options
def stream(
    source: Any,
    target: Any,
    psf: Any,
    lam: float | str = "auto",
    *,
    tolerance: float = TOLERANCE,
    safe: bool = False,
    memory: int | None = None,
    workers: int = 1,
    client: Any = None,
    tile: int | Sequence[int] | None = None,
    overlap: int | Sequence[int] | None = None,
    device: str | int = "cpu",
    channel_axis: int | None = None,
    stack_axis: int | Sequence[int] | None = None,
    check: bool = True,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[Options],
) -> Report:
    """Restore a picture on disk to a zarr store, in bounded memory, and go on where an earlier start ended.

    Parameters
    ----------
    source : path or zarr.Array
        A zarr array, an OME-Zarr group (versions 0.4 and 0.5: axes, scales and channels are kept and the pyramid is
        written anew) or an uncompressed TIFF file, which is mapped.
    target : path
        The zarr store to write: an array, or a group where `source` is OME-Zarr. Floats; NaN where a tile failed.
    psf, lam, tolerance, safe, memory, tile, overlap, device, channel_axis, stack_axis
        As for `deblur.tiled`. Of OME-Zarr all axes but y and x are frames.
    workers : int
        Threads, where there is no client.
    client : distributed.Client, optional
        Where to compute: the processes of `cluster`, several machines, several GPUs.
    check : bool
        Measure the seams of a few tiles, and afterwards the residual of the whole picture from what was written.
    overwrite : bool
        Replace what is at `target`, if it is not this restoration already begun.
    progress : callable, optional
        Called with (tiles done, tiles in all).
    {options}

    Returns
    -------
    Report

    Raises
    ------
    ValueError, TypeError
        For input that makes no sense, or if `target` holds something else, before any work starts.
    OSError
        If the store cannot be written or the disk is full; a later start goes on from there.
    """
    start = time.perf_counter()
    picture, dtype = opened(source, channel_axis, stack_axis), options.pop("dtype", None)
    asked = _asked(picture, psf, lam, tolerance, safe, tile, overlap, dtype, options)
    begun = _begun(target, asked, overwrite)
    given: dict[str, Any] = {"tolerance": tolerance, "safe": safe, "tile": tile, "overlap": overlap}
    if begun:  # λ and plan are those of the first start, whatever memory there is now
        lam, given["passes"] = begun["lam"], begun["passes"]
        given["tile"], given["overlap"] = begun["tile"], begun["overlap"]
        options["boundary"] = begun["boundary"]
        if begun["prior"]:
            options["prior"] = begun["prior"]
    # What a process may take is shared by its threads, each of which has a tile.
    threads = workers if client is None else max(client.nthreads().values(), default=1)
    tiling = Tiling(
        picture.array,
        psf,
        lam,
        memory=memory if memory is None or client is None else memory // threads,
        workers=threads,
        dtype=dtype,
        device=device,
        channel_axis=picture.channel_axis,
        stack_axis=picture.stack_axis,
        chunk=_chunk(picture),
        options=options,
        **given,
    )
    if begun:
        tiling.lam_reason, tiling.boundary_reason = begun["lam_reason"], begun["boundary_reason"]
        tiling.plan = replace(tiling.plan, reason=begun["reason"], seam_once=begun["seam_once"])
    if not begun:
        shutil.rmtree(_passes(target), ignore_errors=True)
    output = _created(target, picture, tiling, asked, overwrite and not begun, begun)
    _hand_out(client, tiling)
    setup = time.perf_counter() - start
    left = None
    for more in range(MORE_PASSES, -1, -1):
        y = _refined(picture, tiling, output, _passes(target), client, workers, progress)
        written, kept, failed, change = _restored(
            picture, tiling, output, client, workers, progress, y, tiling.plan.passes - 1
        )
        if tiling.plan.passes > 1 and written:
            left = tiling.plan.seam_once * change / (tiling.range or 1.0)
        if left is None or left <= tolerance or not more:
            break
        _once_more(target, output, tiling)
    shutil.rmtree(_passes(target), ignore_errors=True)
    if picture.group is not None and not failed:
        _pyramid(target, picture.group, client, workers)
    seconds = time.perf_counter() - start - setup
    seams: tuple[Seam, ...] = ()
    judged = None
    if check:
        seams = tuple(tiling.measure())
        judged = _judged(picture, tiling, output, client, workers)
    return Report(
        str(target), tiling.plan, tiling.lam, tiling.lam_reason, tiling.boundary_reason, written, kept, tuple(failed),
        seams, judged, left, setup, seconds, time.perf_counter() - start - setup - seconds,
    )  # fmt: skip


# -- what is read ----------------------------------------------------------------------------------


def opened(source: Any, channel_axis: int | None = None, stack_axis: Any = None) -> Source:
    """The picture at a path, or the array itself."""
    if not isinstance(source, str | Path):
        return Source(source, getattr(source, "chunks", None), channel_axis, _several(stack_axis))
    path = str(source)
    if path.lower().endswith((".tif", ".tiff")):
        return Source(MappedTiff(path), None, channel_axis, _several(stack_axis))
    zarr = _zarr()
    try:
        found = zarr.open(path, mode="r")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is no zarr store: there is no array and no group; a zarr store or a TIFF file is read in tiles"
        ) from None
    if isinstance(found, zarr.Array):
        return Source(found, found.chunks, channel_axis, _several(stack_axis))
    scales = _multiscales(found)
    if not scales:
        arrays = ", ".join(name for name, _ in found.arrays()) or "none"
        raise ValueError(f"{path} is a zarr group without OME metadata; name one of its arrays ({arrays})")
    level = found[scales[0]["datasets"][0]["path"]]
    names = [a["name"] for a in scales[0].get("axes", [])]
    if names[-2:] != ["y", "x"]:
        raise ValueError(f"the axes of {path} are {names}; they must end in y and x")
    stack = tuple(range(level.ndim - 2))
    return Source(level, level.chunks, None, stack or None, found)


class MappedTiff:
    """A TIFF file whose pixels lie in one piece, mapped where it is sliced; travels to other processes as a name."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            mapped = self._mapped()
        except ValueError as error:
            raise ValueError(
                f"{path} cannot be mapped ({error}): it is compressed or in pieces; write it uncompressed, or as zarr"
            ) from None
        self.shape, self.dtype, self.ndim = mapped.shape, mapped.dtype, mapped.ndim

    def _mapped(self) -> np.ndarray:
        import tifffile

        return tifffile.memmap(self.path, mode="r")

    def __getitem__(self, at: Any) -> np.ndarray:
        return np.array(self._mapped()[at])


def _several(axis: Any) -> tuple[int, ...] | None:
    return None if axis is None else tuple(int(a) for a in np.atleast_1d(axis))


def _multiscales(group: Any) -> list[Any]:
    attributes = dict(group.attrs)
    return (attributes.get("ome") or attributes).get("multiscales") or []


def _chunk(picture: Source) -> tuple[int, int] | None:
    """Rows and columns of a stored chunk, of which tiles are multiples."""
    if picture.chunks is None:
        return None
    axes = Axes.of(picture.array.shape, picture.channel_axis, picture.stack_axis)
    rows, cols = (min(picture.chunks[a], picture.array.shape[a]) for a in axes.order[-2:])
    return rows, cols


# -- what is written -------------------------------------------------------------------------------


def _asked(picture: Source, psf: Any, lam: Any, *rest: Any) -> dict[str, Any]:
    """What makes two restorations the same, as the output remembers it."""
    h = np.asarray(psf, np.float64)
    *numbers, options = rest
    return {
        "shape": list(picture.array.shape),
        "dtype": str(picture.array.dtype),
        "psf": hashlib.sha256(str(h.shape).encode() + h.tobytes()).hexdigest(),
        "lam": str(lam),
        "given": repr(numbers),
        "options": repr(sorted((k, v) for k, v in options.items() if v is not None)),
        "version": __version__,
    }


def _begun(target: Any, asked: dict[str, Any], overwrite: bool) -> dict[str, Any] | None:
    """What an earlier start of the same restoration decided, or None; ValueError if something else is there."""
    zarr = _zarr()
    try:
        there = zarr.open(str(target), mode="r")
    except (FileNotFoundError, ValueError, KeyError):
        if Path(str(target)).exists() and not overwrite and any(Path(str(target)).iterdir()):
            raise ValueError(f"{target} is there and is no zarr store; choose another output") from None
        return None
    said = dict(there.attrs).get(ATTRIBUTE)
    if said is not None and said["asked"] == asked:
        return said
    if overwrite:
        return None
    differs = "" if said is None else _difference(said["asked"], asked)
    raise ValueError(
        f"{target} is there already and is not this restoration{differs}; choose another output, or allow it to be "
        "replaced (overwrite, --force)"
    )


def _difference(there: dict[str, Any], asked: dict[str, Any]) -> str:
    names = [k for k in asked if there.get(k) != asked[k]]
    return f" (another {', '.join(names)})" if names else ""


def _created(
    target: Any, picture: Source, tiling: Tiling, asked: dict[str, Any], overwrite: bool, begun: Any
) -> Any:
    """The output array, as it is or made now."""
    zarr = _zarr()
    level = ""
    if picture.group is not None:
        level = _multiscales(picture.group)[0]["datasets"][0]["path"]
    if begun:
        there = zarr.open(str(target), mode="r+")
        return there[level] if level else there
    decided = {
        "asked": asked,
        "lam": tiling.lam,
        "lam_reason": tiling.lam_reason,
        "boundary": tiling.plan.boundary,
        "boundary_reason": tiling.boundary_reason,
        "prior": tiling.options.get("prior"),
        "tile": list(tiling.plan.tile),
        "overlap": list(tiling.plan.overlap),
        "passes": tiling.plan.passes,
        "seam_once": tiling.plan.seam_once,
        "reason": tiling.plan.reason,
    }
    array = picture.array
    form = (
        picture.group.metadata.zarr_format
        if picture.group is not None
        else getattr(_meta(array), "zarr_format", 3)
    )
    chunks = [1] * array.ndim
    at = tiling.axes.order[-2:]
    unit = _chunk(picture) or tiling.plan.tile
    for axis, c, n in zip(at, unit, tiling.axes.space, strict=True):
        chunks[axis] = min(c, n)
    if tiling.axes.channel is not None:
        chunks[tiling.axes.channel] = array.shape[tiling.axes.channel]
    made: dict[str, Any] = {
        "shape": array.shape,
        "dtype": tiling.dtype,
        "chunks": tuple(chunks),
        "fill_value": np.nan,
        "config": {"write_empty_chunks": True},
    }
    if hasattr(array, "compressors"):
        made["compressors"] = array.compressors or None  # as the picture is stored
    if picture.group is None:
        return zarr.create_array(
            str(target), zarr_format=form, overwrite=overwrite, attributes={ATTRIBUTE: decided}, **made
        )
    attributes = {**dict(picture.group.attrs), ATTRIBUTE: decided}
    group = zarr.create_group(str(target), zarr_format=form, overwrite=overwrite, attributes=attributes)
    names = getattr(_meta(array), "dimension_names", None)
    more = (
        {"chunk_key_encoding": {"name": "v2", "separator": "/"}} if form == 2 else {"dimension_names": names}
    )
    return group.create_array(level, **made, **more)


def _meta(array: Any) -> Any:
    return getattr(array, "metadata", None)


def _present(output: Any) -> set[str]:
    """The chunks that are there: whole ones, since each is renamed into its place when it is complete."""
    from zarr.core.sync import sync

    async def names() -> set[str]:
        prefix = output.store_path.path
        return {key async for key in output.store_path.store.list_prefix(f"{prefix}/" if prefix else "")}

    return sync(names())


def _done(output: Any, region: Sequence[slice]) -> bool:
    """Whether all chunks of a region are there."""
    from zarr.core.sync import sync
    from zarr.storage import LocalStore

    store, names = output.store_path.store, _chunks_of(output, region)
    if isinstance(store, LocalStore):  # without a thread, which takes longer
        return all((store.root / name).is_file() for name in names)
    return all(sync(store.exists(name)) for name in names)


def _chunks_of(output: Any, region: Sequence[slice]) -> Iterator[str]:
    """The names of the chunks that a region covers."""
    spans = [range(s.start // c, -(-s.stop // c)) for s, c in zip(region, output.chunks, strict=True)]
    prefix = output.store_path.path
    for at in itertools.product(*spans):
        key = output.metadata.encode_chunk_key(at)
        yield f"{prefix}/{key}" if prefix else key


class _Writer(Job):
    """Restores a block and writes it to its place.

    What a task returns is what went wrong, or nothing; and what the last of several passes changed at most.
    """

    def __init__(self, tiling: Tiling, x: Any, output: Any, last: bool) -> None:
        super().__init__(tiling, x.numblocks, last)
        self.output, self.order = output, tiling.axes.order
        self._ends = tuple(np.cumsum((0, *c)) for c in x.chunks)

    def spans(self, place: Sequence[int]) -> list[slice]:
        """What a block covers, in `Axes.order`."""
        return [slice(int(e[i]), int(e[i + 1])) for e, i in zip(self._ends, place, strict=True)]

    def region(self, place: Sequence[int]) -> tuple[slice, ...]:
        """What a block covers of the output."""
        region = dict(zip(self.order, self.spans(place), strict=True))
        return tuple(region[axis] for axis in range(len(region)))

    def frames(self, place: Sequence[int]) -> int:
        """How many frames a block has."""
        return math.prod(s.stop - s.start for s in self.spans(place)[: len(self.stack)])

    def failures(self, place: Sequence[int], said: list[tuple[int, str]]) -> list[Failure]:
        """What a task said that went wrong: the last axis of a stack counted in frames, not in blocks of several."""
        *_, rows, cols = spans = self.spans(place)
        last, found = len(self.stack) - 1, []
        for frame, why in said:
            at = [int(i) for i in place]
            if self.stack:
                at[last] = spans[last].start + frame
            found.append(Failure(tuple(at), (rows.start, rows.stop), (cols.start, cols.stop), why))
        return found

    def done(self, place: tuple[int, ...], window: Any, y: Any = None) -> Any:
        failed: list[tuple[int, str]] = []  # which frame of the window, and why
        change = 0.0
        if not _done(self.output, self.region(place)):  # by a worker that was lost before it could say so
            try:
                f, change = self.restored(window, place, y)
                self._write(self.region(place), f)
            except _OF_THE_NUMBERS as error:
                several = self.stack and window.shape[len(self.stack) - 1] > 1
                if not self.last:  # the last pass will say so; until then these pixels are not looked at
                    self.output[self.region(place)] = 0
                elif several:
                    failed = self._one_by_one(window, place, y)
                else:
                    failed = [(0, _said(error))]
        out = np.empty((1,) * len(place), object)
        out[(0,) * len(place)] = failed, change
        return out

    def _one_by_one(self, window: Any, place: tuple[int, ...], y: Any) -> list[tuple[int, str]]:
        """The frames of a window, of which one cannot be restored."""
        failed, axis = [], len(self.stack) - 1
        for i in range(window.shape[axis]):
            one: list[Any] = list(self.region(place))
            at = self.order[axis]
            one[at] = slice(one[at].start + i, one[at].start + i + 1)
            try:
                known = None if y is None else y.take([i], axis)
                self._write(tuple(one), self.restored(window.take([i], axis), place, known)[0])
            except _OF_THE_NUMBERS as error:
                failed.append((i, _said(error)))
        return failed

    def _write(self, region: tuple[slice, ...], f: Any) -> None:
        f = f.transpose(np.argsort(self.order))
        self.output[region] = f.get() if hasattr(f, "get") else f


_OF_THE_NUMBERS = (ValueError, ArithmeticError, RuntimeError)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _passes(target: Any) -> Path:
    """Where the passes of refining are kept until the last one is written."""
    return Path(f"{str(target).rstrip('/')}.passes")


def _refined(
    picture: Source, tiling: Tiling, output: Any, folder: Path, client: Any, workers: int, progress: Any
) -> Any:
    """y as all passes but the last leave it, each an array of its own; None where there is one pass.

    An array is removed once the one after it is whole, so that a second start finds the last one that is.
    """
    zarr, passes = _zarr(), tiling.plan.passes
    if passes == 1 or _whole(output):
        return None
    there = {
        n: zarr.open(str(folder / str(n)), mode="r") for n in range(1, passes) if (folder / str(n)).exists()
    }
    first = max((n for n, array in there.items() if _whole(array)), default=0)
    y = there[first] if first else None
    for number in range(first, passes - 1):
        path = str(folder / str(number + 1))
        if number + 1 in there:
            into = zarr.open(path, mode="r+")
        else:
            into = zarr.create_array(
                path, shape=output.shape, chunks=output.chunks, dtype=output.dtype, compressors=None, fill_value=0,
                config={"write_empty_chunks": True},
            )  # fmt: skip
        _restored(picture, tiling, into, client, workers, progress, y, number)
        shutil.rmtree(folder / str(number), ignore_errors=True)
        y = into
    return y


def _once_more(target: Any, output: Any, tiling: Tiling) -> None:
    """Plan one pass more, and take away what the last one wrote, as an interruption in the one before would have."""
    from zarr.core.sync import sync

    for name in _chunks_of(output, [slice(0, n) for n in output.shape]):
        sync(output.store_path.store.delete(name))
    tiling.plan = replace(tiling.plan, passes=tiling.plan.passes + 1)
    attributes = _zarr().open(str(target), mode="r+").attrs
    attributes[ATTRIBUTE] = {**attributes[ATTRIBUTE], "passes": tiling.plan.passes}


def _restored(
    picture: Source,
    tiling: Tiling,
    output: Any,
    client: Any,
    workers: int,
    progress: Any,
    y: Any,
    number: int,
) -> tuple[int, int, list[Failure], float]:
    """(tiles written, tiles that were there, those that failed, what was changed at most) of pass `number`."""
    import dask.array as da

    token, passes = f"{tiling.recipe.token}-{number}", tiling.plan.passes
    last = number == passes - 1
    arrays = []
    for name, source in (("source", picture), ("y", replace(picture, array=y, chunks=output.chunks))):
        if source.array is not None:
            x = da.from_array(
                source.array, chunks=_reads(source, tiling), fancy=False, asarray=True, name=f"{name}-{token}"
            )
            arrays.append(in_tiles(tiling, x.transpose(tiling.axes.order)))
    x = arrays[0]
    writer, there = _Writer(tiling, x, output, last), _present(output)
    ones = tuple((1,) * n for n in x.numblocks)
    written = jobs(writer, arrays, f"written-{token}", ones, np.empty((0,) * x.ndim, object))
    sizes = {p: writer.frames(p) for p in np.ndindex(*x.numblocks)}
    places = [p for p in sizes if not all(name in there for name in _chunks_of(output, writer.region(p)))]
    total, now = sum(sizes.values()), sum(sizes[p] for p in places)
    kept = done = total - now
    tasks = []
    if places:
        blocks = written.to_delayed(optimize_graph=True)
        tasks = [blocks[p] for p in places]
    failed: list[Failure] = []
    change = 0.0
    if progress is not None:
        progress(number * total + done, passes * total)

    def one_more(i: int) -> None:
        nonlocal done
        done += sizes[places[i]]
        if progress is not None:
            progress(number * total + done, passes * total)

    for place, said in zip(places, _computed(tasks, client, workers, one_more), strict=True):
        wrong, changed = said.item()
        failed += writer.failures(place, wrong)
        change = max(change, changed)
    failed.sort(key=lambda f: f.place)
    return now - len(failed), kept, failed, change


def _reads(picture: Source, tiling: Tiling) -> tuple[Any, ...]:
    """What is read at once: the stored chunks of a tile, and of a few frames; a chunk where tiles would cut it."""
    axes = tiling.axes
    chunks: list[Any] = list(picture.chunks or (1,) * len(axes.shape))
    for axis, cuts in zip(axes.order[-2:], tiling.cuts, strict=True):
        if all(first % chunks[axis] == 0 for first, _ in cuts):
            chunks[axis] = tuple(b - a for a, b in cuts)
    if axes.stack:
        last, window = axes.stack[-1], math.prod(tiling.plan.window) * axes.colours * tiling.dtype.itemsize
        frames = min(together(tiling), _LOAD // window, axes.frames // _SHARES)
        chunks[last] *= max(1, frames // chunks[last])
    if axes.channel is not None:
        chunks[axes.channel] = axes.colours
    return tuple(chunks)


def _computed(
    tasks: list[Any], client: Any, workers: int, ended: Callable[[int], None] | None = None
) -> Sequence[Any]:
    """What the tasks return; `ended` is told of each as it ends. What the store cannot take is an OSError."""
    import dask
    from dask.callbacks import Callback

    if not tasks:
        return []
    try:
        if client is None:
            number = {task.key: i for i, task in enumerate(tasks)}

            def after(key: Any, *_: Any) -> None:
                if ended and key in number:
                    ended(number[key])

            with Callback(posttask=after), dask.config.set(scheduler="threads", num_workers=workers):
                return dask.compute(*tasks)
        from distributed import as_completed

        futures = client.compute(tasks)
        number = {f.key: i for i, f in enumerate(futures)}
        try:
            for future in as_completed(futures):
                if future.status != "finished":
                    future.result()
                if ended:
                    ended(number[future.key])
            return client.gather(futures)  # all at once: each by itself costs a worker's time
        finally:
            client.cancel(futures)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OSError(
                errno.ENOSPC,
                "the disk is full; what was written is whole, and the same call goes on once there is room",
            ) from error
        raise


def _judged(picture: Source, tiling: Tiling, output: Any, client: Any, workers: int) -> Residual | None:
    import dask

    one = dask.delayed(of_tile, pure=False)
    held = dask.delayed(tiling.without_image(), traverse=False)
    source, out = dask.delayed(picture.array, traverse=False), dask.delayed(output, traverse=False)
    tasks = [
        one(held, source, out, frame, tile)
        for frame, tile in itertools.product(range(tiling.axes.frames), tiling.tiles)
    ]
    total = np.zeros(5)
    for part in _computed(tasks, client, workers):
        total += part
    return ratios(tiling, total)


def _pyramid(target: Any, source: Any, client: Any, workers: int) -> None:
    """The smaller levels of an OME-Zarr group, each the means of the one before, of the shapes they had."""
    import dask
    import dask.array as da

    zarr = _zarr()
    group = zarr.open_group(str(target), mode="r+")
    levels = [d["path"] for d in _multiscales(source)[0]["datasets"]]
    for before, level in itertools.pairwise(levels):
        array, like = group[before], source[level]
        factor = [max(1, math.ceil(a / b)) for a, b in zip(array.shape, like.shape, strict=True)]
        if level in group and _whole(group[level]):
            continue
        x = da.from_array(array, chunks=array.chunks, fancy=False)
        # The level has the shape it had: whole blocks of `factor` pixels, the last of them repeated where one is short.
        pad = [(0, max(0, f * b - a)) for a, b, f in zip(array.shape, like.shape, factor, strict=True)]
        x = da.pad(x, pad, mode="edge")[tuple(slice(f * b) for f, b in zip(factor, like.shape, strict=True))]
        x = x.rechunk(tuple(f * c for f, c in zip(factor, like.chunks, strict=True)))
        small = da.coarsen(np.mean, x, dict(enumerate(factor))).astype(array.dtype)
        made: dict[str, Any] = {
            "shape": like.shape, "dtype": array.dtype, "chunks": like.chunks, "fill_value": np.nan, "overwrite": True,
            "config": {"write_empty_chunks": True},
        }  # fmt: skip
        if group.metadata.zarr_format == 2:
            made["chunk_key_encoding"] = {"name": "v2", "separator": "/"}
        else:
            made["dimension_names"] = like.metadata.dimension_names
        out = group.create_array(level, **made)
        stored = da.store(small.rechunk(like.chunks), out, lock=False, compute=False)
        if client is None:
            with dask.config.set(scheduler="threads", num_workers=workers):
                stored.compute()
        else:
            client.compute(stored).result()


def _hand_out(client: Any, tiling: Tiling) -> None:
    """Have reads handed out as they should be by the scheduler of `cluster`.

    Dask gives one read after another to whoever is free. Then neighbours are at different workers, half of the picture
    goes from one to another, and workers wait for the scheduler. Handed out at once, each worker reads its part in one
    piece; but where it takes part in all columns of a wide picture, it holds two rows of tiles until their neighbours
    are there. That is to be no more than it may take.
    """
    if getattr(client, "cluster", None) is None:  # somebody else's scheduler
        return
    plan, each = tiling.plan, tiling.dtype.itemsize * tiling.axes.colours
    held = 2 * plan.tile[0] * plan.shape[1] * each if any(plan.overlap) else 0
    if plan.bytes + held * (2 if plan.passes > 1 else 1) > plan.memory:
        client.run_on_scheduler(_one_by_one)


def _one_by_one(dask_scheduler: Any) -> None:
    dask_scheduler.WORKER_SATURATION = 1.1  # as Dask has it


def _whole(array: Any) -> bool:
    """Whether all chunks of an array are there."""
    there = _present(array)
    return all(name in there for name in _chunks_of(array, [slice(0, n) for n in array.shape]))


@contextmanager
def cluster(
    workers: int, memory: int | None = None, *, gpus: bool = False, scheduler: str | None = None
) -> Iterator[Any]:
    """A `distributed.Client`: of the scheduler at an address, or of processes of this machine, with a thread each.

    Parameters
    ----------
    workers : int
        Processes.
    memory : int, optional
        Bytes for each, which ends a process that takes more; by default no limit is set.
    gpus : bool
        Give each process a GPU of its own, and two threads: by dask-cuda where it is installed, else by
        CUDA_VISIBLE_DEVICES.
    scheduler : str, optional
        Address of a scheduler that runs already, such as ``tcp://host:8786``.
    """
    try:
        import dask
        from distributed import Client, LocalCluster, Nanny, Scheduler, SpecCluster
    except ImportError:
        raise ImportError('several processes need Dask: pip install "deblur-toolkit[dask]"') from None
    if scheduler is not None:
        with Client(scheduler) as client:
            yield client
        return
    # What goes wrong in a task is raised here, in one sentence: the workers need not print it with its traceback.
    quiet: dict[str, Any] = {
        "host": "127.0.0.1",
        "silence_logs": logging.CRITICAL,
        "memory_limit": memory or 0,
    }
    no_page: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    # Dask has its workers give memory back at once; but windows are all alike, and each array of the next would be
    # new pages again, which costs a fifth of the time. What is kept is kept once, and not by each thread that reads.
    environ = "distributed.nanny.pre-spawn-environ."
    kept: dict[str, Any] = {f"{environ}MALLOC_TRIM_THRESHOLD_": None, f"{environ}MALLOC_ARENA_MAX": 2}
    # Nobody looks at what its sampling of every stack finds or at its monitors, and they take a tenth of the time.
    kept["distributed.worker.profile.enabled"] = False
    kept["distributed.admin.tick.interval"] = "500ms"
    kept["distributed.admin.system-monitor.interval"] = "5s"
    # See `_hand_out`.
    kept["distributed.scheduler.worker-saturation"] = math.inf
    with dask.config.set(kept):
        if not gpus:
            local: Any = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=None,
                scheduler_kwargs=no_page,
                **quiet,
            )
        else:
            try:
                from dask_cuda import LocalCUDACluster

                local = LocalCUDACluster(
                    n_workers=workers,
                    threads_per_worker=_GPU_THREADS,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            except ImportError:
                visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
                if len(visible) < workers:
                    visible = [str(i) for i in range(workers)]
                one: dict[str, Any] = {"nthreads": _GPU_THREADS, "dashboard": False, **quiet}
                local = SpecCluster(
                    workers={
                        i: {"cls": Nanny, "options": {**one, "env": {"CUDA_VISIBLE_DEVICES": visible[i]}}}
                        for i in range(workers)
                    },
                    scheduler={"cls": Scheduler, "options": {"host": quiet["host"], "port": 0, **no_page}},
                    silence_logs=logging.CRITICAL,
                )
    with local, Client(local) as client:
        yield client


def _zarr() -> Any:
    try:
        import zarr
    except ImportError:
        raise ImportError('zarr stores need zarr and Dask: pip install "deblur-toolkit[dask]"') from None
    return zarr

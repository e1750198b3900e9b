"""Restoration from one store to another by tiles, in bounded memory: zarr, OME-Zarr (with its pyramid) or TIFF to zarr.

A second start reads λ and the plan from the output, solves the missing tiles, and reports this.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..device import asnumpy
from ..errors import check_callback, naming
from ..image import check_output
from ..image.stores import open_store
from ..options import Options, takes_options
from ..version import __version__
from . import stores
from .checks import Residual, residual
from .options import PlanOptions, TileOptions, parted
from .plan import TilePlan
from .refining import MORE_PASSES
from .stores import ATTRIBUTE, Reader, Source
from .tiling import Tiling, region_in_words
from .windows import Edges

#: Errors that end one tile, but not the others.
_FAILURES = (ValueError, ArithmeticError, RuntimeError, OSError)
_writing = partial(naming, then="every written chunk is whole, and the same call goes on once there is room")


@dataclass(frozen=True)
class Failure:
    """A tile that could not be restored, and the reason.

    Attributes
    ----------
    place : tuple of int
        Place of the tile, counted in tiles: frames first, then the axes of space.
    region : tuple of (int, int)
        First pixel and one past the last, along each axis of space.
    why : str
        The reason.
    """

    place: tuple[int, ...]
    region: tuple[tuple[int, int], ...]
    why: str

    def __str__(self) -> str:
        frame = self.place[: -len(self.region)]
        return f"tile {self.place} ({f'frame {frame}, ' if frame else ''}{region_in_words(self.region)}): {self.why}"


@dataclass(frozen=True)
class Report:
    """The result of `stream`; ``print(report)`` shows it.

    Attributes
    ----------
    output : str
        Path of the output.
    plan : TilePlan
    lam : float
        λ, in the units of `lam` of `deblur.reconstruct`.
    lam_reason, boundary_reason : str
        Reasons for λ and the boundary.
    written, kept : int
        Number of tiles written now, and of tiles that an earlier start had written.
    failed : tuple of Failure
        Tiles that could not be restored; they are NaN, and a second start tries them again.
    seams : tuple of float
        For a few tiles, the largest change by more overlap, as a share of the range.
    residual : Residual or None
        Residual of the whole image, computed from the output.
    left : float or None
        If tiles were refined, the approximate error after the last pass, as a share of the image's range: its largest
        change, times the part of such a change that is left (`TilePlan.seam_once`).
    seconds : float
        Wall time of restoring in seconds, without decisions and measurements of seams and residual.
    """

    output: str
    plan: TilePlan
    lam: float
    lam_reason: str
    boundary_reason: str
    written: int
    kept: int
    failed: tuple[Failure, ...] = ()
    seams: tuple[float, ...] = ()
    residual: Residual | None = None
    left: float | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every tile was restored and, if tiles were refined, the tolerance was reached."""
        return not self.failed and not self.unfinished

    @property
    def unfinished(self) -> bool:
        """Whether refining ended before the error was below the tolerance."""
        return self.left is not None and self.left > self.plan.tolerance

    def __str__(self) -> str:
        lines = [str(self.plan), f"lambda      {self.lam:.4g}: {self.lam_reason}"]
        lines.append(f"boundary    {self.plan.boundary}: {self.boundary_reason}")
        if self.seams:
            most = f"{max(self.seams):.1e} of the range is the most that more overlap changes"
            over = ", above the tolerance" if max(self.seams) > self.plan.tolerance else ""
            lines.append(f"measured    {most} in {len(self.seams)} tiles{over}")
        if self.left is not None:
            over = ", above the tolerance" if self.unfinished else ""
            lines.append(f"refined     {self.left:.1e} of the range is about the error after the last pass{over}")
        if (left := self.residual) is not None:
            linear = "" if left.residual is None else f"residual {left.residual:.1e}, "
            lines.append(f"verified    {linear}data residual {left.data_residual:.2e} over {left.tiles} tiles")
        resumed = f"; {self.kept} were there from an earlier start" if self.kept else ""
        lines.append(f"written     {self.written} tiles to {self.output} in {self.seconds:.3g} s{resumed}")
        lines += [f"failed      {f}" for f in self.failed]
        return "\n".join(lines)


@takes_options(TileOptions, PlanOptions, Options)
def stream(
    source: Any,
    target: Any,
    psf: Any,
    lam: float | str = "auto",
    *,
    check: bool = True,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[TileOptions],
) -> Report:
    """Restore an image on disk to a zarr store, in bounded memory; continue where an earlier start ended.

    Parameters
    ----------
    source : path or zarr.Array
        A zarr array, an OME-Zarr group (versions 0.4 and 0.5; axes, scales and channels are kept, and the pyramid is
        written anew), or a TIFF file, which is memory-mapped or read in pieces (whole, if only Pillow decodes it). All
        axes of an OME-Zarr except those of the PSF (y and x, or z, y and x) are frames.
    target : path
        Path of the zarr store to write: an array, or a group if `source` is OME-Zarr. Values are floats, in the unit
        of the source for volumes of integers, and NaN where a tile failed.
    psf, lam
        As for `deblur.tiled`.
    check : bool
        Measure the seams of a few tiles, and then the residual of the whole image from the output.
    overwrite : bool
        Replace what is at `target`, unless it is this restoration, already begun.
    progress : callable, optional
        Called with (finished tiles, all tiles).
    {options}

    Returns
    -------
    Report

    Raises
    ------
    ValueError, TypeError
        For invalid arguments, or if `target` holds something else, before any work starts.
    OSError
        If the store cannot be written or the disk is full; a later start continues from there. If a part of
        `source` cannot be read, its tiles are in `Report.failed`.
    """
    check_callback(progress, "progress", "done", "all")
    if "://" in (path := str(target).removeprefix("file://")):
        raise ValueError(f"{target} is not a path on this machine; give a folder in a file system")
    given, rest = parted(options, TileOptions)
    workers = 1 if given["workers"] is None else given["workers"]
    threads, memory = workers, given["memory"]
    if not isinstance(workers, int):  # the threads of a process share its memory, and each has a tile
        threads = max(workers.nthreads().values(), default=1)
        memory = memory and memory // threads
    axes = given["channel_axis"], given["stack_axis"]
    image = source if isinstance(source, Source) else Source(source, *axes, rest.get("dtype"), psf_axes=np.ndim(psf))
    check_output(path, [image.name])
    given |= {"workers": threads, "memory": memory, "chunk": image.chunk}
    given |= {"channel_axis": image.channel_axis, "stack_axis": image.stack_axis}
    asked = _asked(image, psf, lam, [given[k] for k in ("tolerance", "safe", "tile", "overlap")], rest)
    with stores.locked(path):
        earlier = stores.begun(path, asked, overwrite)
        if earlier:  # λ and plan of the first start, whatever memory there is now
            lam, rest["boundary"] = earlier["lam"], earlier["boundary"]
            given |= {name: earlier[name] for name in ("tile", "overlap", "passes")}
            if earlier["prior"]:
                rest["prior"] = earlier["prior"]
        tiling = Tiling(image.array, psf, lam, **{**given, **rest})
        if earlier:
            tiling.lam_reason, tiling.boundary_reason = earlier["lam_reason"], earlier["boundary_reason"]
            tiling.plan = replace(tiling.plan, reason=earlier["reason"], seam_once=earlier["seam_once"])
            output = open_store(path, "r+")
            output = output if hasattr(output, "chunks") else output[image.levels[0]]
        else:
            tiling.check_seam()
            with _writing(path):
                output = stores.created(path, image, tiling, _decided(asked, tiling))
        start, left = time.perf_counter(), None
        run = _Run(image, tiling, output, workers, progress)
        for more in range(MORE_PASSES, -1, -1):
            y = run.earlier_passes(Path(path, ".passes"))
            written, kept, failed, change = run.restored(output, y, tiling.plan.passes - 1)
            if tiling.plan.passes > 1 and written:
                left = tiling.plan.seam_once * change / (tiling.range or 1.0)
            if left is None or left <= tiling.plan.tolerance or not more:
                break
            # One more pass: the output of the last one is removed, as if the restoration had been interrupted before
            # it.
            tiling.plan = replace(tiling.plan, passes=tiling.plan.passes + 1)
            with _writing(path):
                for file in stores.chunk_files(output):
                    Path(file).unlink(missing_ok=True)
                open_store(path, "r+").attrs[ATTRIBUTE] = _decided(asked, tiling)
        shutil.rmtree(Path(path, ".passes"), ignore_errors=True)
        with _writing(path):
            if image.group is not None and not failed:
                threaded = {"scheduler": "threads", "num_workers": workers}
                how = threaded if isinstance(workers, int) else {"scheduler": workers}
                for level in stores.pyramid(path, image):
                    level.compute(**how)
            for piece in Path(path).rglob("*.partial"):  # left by zarr in a process that was killed
                piece.unlink()
    seconds = time.perf_counter() - start
    seams = tuple(tiling.measure()) if check else ()
    restored = Reader(output, path, unit=image.unit)
    verified = residual(tiling, image.array, restored, partial(_each, workers)) if check else None
    return Report(
        path, tiling.plan, tiling.lam, tiling.lam_reason, tiling.boundary_reason, written, kept, tuple(failed),
        seams, verified, left, seconds,
    )  # fmt: skip


def _asked(image: Source, psf: Any, lam: Any, numbers: list[Any], options: Any) -> dict[str, Any]:
    """Return what identifies a restoration, as the output stores it."""
    h = np.asarray(psf, np.float64)
    return {
        "source": os.path.realpath(image.name) if image.name else "",
        "changed": os.stat(image.name).st_mtime_ns if os.path.isfile(image.name) else 0,
        "shape": list(image.array.shape),
        "axes": f"{image.metadata.axes} {image.array.where}",
        "dtype": str(image.stored.dtype),
        "psf": hashlib.sha256(str(h.shape).encode() + h.tobytes()).hexdigest(),
        "lam": str(lam),
        "given": repr(numbers),
        "options": repr(sorted((k, v) for k, v in options.items() if v is not None)),
        "version": __version__,
    }


def _decided(asked: dict[str, Any], tiling: Tiling) -> dict[str, Any]:
    """Return the decisions of a first start, for later ones."""
    planned = ("boundary", "passes", "seam_once", "reason", "tile", "overlap")
    return {
        "asked": asked,
        "prior": tiling.recipe.options.get("prior"),
        **{name: getattr(tiling, name) for name in ("lam", "lam_reason", "boundary_reason")},
        **{name: getattr(tiling.plan, name) for name in planned},
    }


class _Run:
    """All tiles of an image on disk, pass by pass, in threads or in the processes of a client."""

    def __init__(self, image: Source, tiling: Tiling, output: Any, workers: Any, progress: Any) -> None:
        self.image, self.tiling, self.output = image, tiling, output
        self.workers, self.progress = workers, progress

    def earlier_passes(self, folder: Path) -> Any:
        """Return y after all passes but the last, each in its own array; None if there is one pass.

        An array is removed once the next one is complete, so a second start finds the last complete one.
        """
        passes = self.tiling.plan.passes if stores.missing(self.output) else 1
        paths = [str(folder / str(number)) for number in range(passes)]
        there = {n: open_store(path, "r+") for n, path in enumerate(paths) if os.path.exists(path)}
        first = max((n for n, array in there.items() if not stores.missing(array)), default=0)
        for number in range(first + 1, passes):
            if number not in there:
                with _writing(paths[number]):
                    there[number] = stores.created_for_pass(paths[number], self.output)
            self.restored(there[number], there.get(number - 1), number - 1)
            shutil.rmtree(paths[number - 1], ignore_errors=True)
        return there.get(passes - 1)

    def restored(self, output: Any, y: Any, number: int) -> tuple[int, int, list[Failure], float]:
        """Return the numbers of written and of earlier tiles, the failures, and the largest change of pass `number`."""
        readers = [self.image.array] if y is None else [self.image.array, Reader(y, f"pass {number}")]
        writer = _Writer(self.tiling, number, output, readers, self.image.unit)
        tiles = self.tiling.tiles
        tasks = itertools.product(self._frames(), tiles)
        todo = [task for task in tasks if stores.missing(output, writer.region(*task))]
        total, passes = self.tiling.layout.frames * len(tiles), self.tiling.plan.passes
        now = sum(count for (_, count), _ in todo)
        finished = number * total + total - now

        def one_more(i: int | None = None) -> None:
            nonlocal finished
            finished += 0 if i is None else todo[i][0][1]
            if self.progress is not None:
                self.progress(finished, passes * total)

        one_more()
        results = _each(self.workers, writer.run, todo, one_more)
        failed = [failure for failures, _ in results for failure in failures]
        return now - len(failed), total - now, failed, max((change for _, change in results), default=0.0)

    def _frames(self) -> list[tuple[int, int]]:
        """Return (first, number) of frames solved at once along the stack's last axis: those of a few chunks."""
        layout, chunks = self.tiling.layout, self.image.chunks
        n = stored = 1
        if layout.stack:
            n, stored = layout.shape[layout.stack[-1]], chunks[layout.stack[-1]] if chunks else 1
        # At most 32 MiB, since larger tasks gain nothing, and so few frames that there are 64 tasks or more.
        window = math.prod(self.tiling.plan.window) * layout.colours * self.tiling.dtype.itemsize
        most = min(2**25 // window, layout.frames // 64)
        step = min(self.tiling.together, stored * max(1, most // stored))
        return [(i + j, min(step, n - j)) for i in range(0, layout.frames, n) for j in range(0, n, step)]


class _Writer:
    """Restores a tile and writes it. It is sent with tasks, and a `Tiling` then leaves the image behind."""

    def __init__(self, tiling: Tiling, number: int, output: Any, readers: list[Reader], unit: float) -> None:
        self.tiling, self.last = tiling, tiling.last(number)
        self.output, self.readers, self.unit = output, readers, 1.0 if self.last is False else unit

    def region(self, frames: tuple[int, int], tile: Edges) -> tuple[slice, ...]:
        """Return the index in the output of a tile of some frames."""
        return self.tiling.layout.at(frames[0], [slice(*span) for span in tile], frames[1])

    def run(self, frames: tuple[int, int], tile: Edges) -> tuple[list[Failure], float]:
        """Restore a tile of some frames and write it; return its failures and its largest change.

        After a failure, each frame is tried separately. A tile is left alone if it was written already, by a worker
        that was lost before it could report.
        """
        (first, count), region, tiling = frames, self.region(frames, tile), self.tiling
        if not stores.missing(self.output, region):
            return [], 0.0
        try:
            f, change = tiling.solve(self.readers, frames, tile, last=self.last)
            f = asnumpy(f * f.dtype.type(self.unit))
        except _FAILURES as error:
            if self.last is not False:
                if count > 1:
                    return [failure for i in range(count) for failure in self.run((first + i, 1), tile)[0]], 0.0
                frame = (region[axis].start for axis in tiling.layout.stack)
                place = (cuts.index(span) for cuts, span in zip(tiling.cuts, tile, strict=True))
                return [Failure((*frame, *place), tile, str(error) or type(error).__name__)], 0.0
            # The last pass fails, too; until then these pixels have no effect.
            f, change = np.zeros([s.stop - s.start for s in region]), 0.0
        with _writing(stores.path_of(self.output)):
            tiling.layout.put(self.output, region, f)
        return [], change


def _each(
    workers: Any, function: Callable[..., Any], arguments: Iterable[Any], ended: Callable[[int], None] = lambda i: None
) -> list[Any]:
    """Do as `itertools.starmap`, by threads or a client; call `ended` with the number of each call as it ends."""
    with ThreadPoolExecutor(workers) if isinstance(workers, int) else workers.get_executor(pure=False) as pool:
        number = {pool.submit(function, *each): i for i, each in enumerate(arguments)}
        try:
            for future in as_completed(number):
                future.result()
                ended(number[future])
            return [future.result() for future in number]
        finally:
            for future in number:
                future.cancel()

"""Images on disk: zarr arrays, OME-Zarr groups and TIFF files as input, and zarr stores as output.

A chunk is renamed into its place when it is complete, so every chunk in its place is whole.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import naming
from ..frames import min_float_dtype
from ..image import Metadata, as_float
from ..image.arrays import looks_coloured
from ..image.axes import in_order
from ..image.metadata import of_tiff
from ..image.outputs import check_replaceable, replace_store
from ..image.reading import Refusal, check_set, read_stored
from ..image.stores import import_zarr, largest_level, multiscales, ome_attributes, open_store, read_part
from .tiling import Layout, Tiling

ATTRIBUTE = "deblur"  # attribute of an output that stores its decisions
#: A missing chunk is NaN, and a finished chunk is stored even if all of it is NaN.
_WHOLE: dict[str, Any] = {"fill_value": np.nan, "config": {"write_empty_chunks": True}}


class Source:
    """An image on disk: an array that can be sliced, its axes, and its OME-Zarr metadata.

    Parameters
    ----------
    source : path or array
    channel_axis, stack_axis, dtype
        As for `deblur.tiled`; a file that names its axes needs no channel_axis and stack_axis.
    psf_axes : int
        Number of axes of the PSF: with three, Z is an axis of space.
    choose : callable, optional
        Names and selects the axes of a file; see `deblur.image.axes.chosen`.

    Attributes
    ----------
    name : str
        Path of the source, or of the file or store behind an array; empty if there is none.
    stored : array-like
    array : Reader
        Reader of `stored` as floats, for the selected part.
    chunks : tuple of int or None
        Shape of a stored chunk.
    layout : Layout
    group : zarr.Group or None
        The OME-Zarr group whose largest level this is.
    metadata : Metadata
        Axes, voxel size and channels, as a file gives them.
    chunk : tuple of int or None
        Sides of a stored chunk along the axes of space; tiles are multiples of it.
    unit : float
        Factor for restored values: a volume of integers, which are counts, keeps its unit.
    levels : list of str
        Names of the arrays of the OME-Zarr group, the largest first.
    """

    def __init__(
        self,
        source: Any,
        channel_axis: int | None = None,
        stack_axis: Any = None,
        dtype: Any = None,
        choose: Callable[[Metadata], tuple[Metadata, tuple[slice, ...]]] | None = None,
        psf_axes: int = 2,
    ) -> None:
        self.group: Any = None
        self.metadata, self.name = Metadata(), path_of(source)
        where: tuple[slice, ...] = ()
        if isinstance(source, str | Path):
            if self.name.lower().endswith((".tif", ".tiff")):
                source = StoredTiff(self.name)
                self.metadata = source.metadata
            else:  # the command restores images, not lines
                self.group, source, self.metadata = largest_level(self.name, 2 if choose else 0)
            if choose is not None:
                self.metadata, where = choose(self.metadata)
            if isinstance(source, StoredTiff):
                self.metadata, order = in_order(self.metadata)
                source.axes[: len(order)] = [source.axes[i] for i in order]
                where = tuple(where[i] for i in order if where)
            pages, axes = len(self.metadata.sizes), self.metadata.axes
            framed = (choose and not looks_coloured(source.shape)) or (axes and set(axes) <= set("TCZ"))
            if self.group or (framed and stack_axis is None):
                channel_axis = pages + 2 if source.ndim > pages + 2 else None
                stack_axis = tuple(i for i, a in enumerate(axes.ljust(pages)) if a != "Z" or psf_axes < 3) or None
        if source.dtype.kind not in "biuf" or 0 in source.shape:
            raise ValueError(f"{self.name or 'the image'} holds {source.dtype} {source.shape}, not real numbers")
        self.channel_axis, self.stack_axis = channel_axis, stack_axis
        self.stored, self.chunks = source, getattr(source, "chunks", None)
        self.array = Reader(source, self.name, dtype, where)
        self.layout = layout = Layout(self.array.shape, psf_axes, channel_axis, stack_axis)
        self.chunk = self.chunks and tuple(min(self.chunks[axis], layout.shape[axis]) for axis in layout.in_space)
        counts = len(layout.space) == 3 and source.dtype.kind in "iu"
        self.unit = float(np.iinfo(source.dtype).max) if counts else 1.0
        datasets = multiscales(self.group)[0]["datasets"] if self.group else [{"path": "0"}]
        self.levels = [str(level["path"]) for level in datasets]

    def attributes(self, target: str) -> dict[str, Any] | None:
        """Return the attributes of an OME-Zarr group for the restoration; None if that is a bare array."""
        named = self.metadata.axes or self.metadata.spacing or target.rstrip("/").endswith(".ome.zarr")
        if self.group is None:
            file = isinstance(self.stored, StoredTiff) and self.channel_axis is None
            return ome_attributes(self.metadata, self.stored.dtype) if named and (file or self.metadata.ngff) else None
        found = json.loads(json.dumps(dict(self.group.attrs)))
        omero = found.get("ome", found).get("omero", {})
        if "C" in self.metadata.axes and "channels" in omero:
            omero["channels"] = omero["channels"][self.array.where[self.metadata.axes.index("C")]]
        return found


def path_of(source: Any) -> str:
    """Return the path of a source, or of the store or file behind an array; else an empty string."""
    if isinstance(source, str | Path):
        return str(source).removeprefix("file://")
    at = getattr(source, "store_path", None)
    if at is None:
        return str(getattr(source, "filename", None) or "")
    root = getattr(at.store, "root", None) or getattr(at.store, "path", None)
    return str(Path(root, at.path)) if root else ""


class Reader:
    """An array that is read as floats (`as_float`); OSError names the first chunk that cannot be read.

    Parameters
    ----------
    array : array-like
    name : str
        Path of the array, for messages.
    dtype : dtype, optional
        Dtype to which integers are converted; by default float32 if it holds them.
    where : sequence of slice
        Part of the array that is read, along the first axes.
    unit : float
        Divisor of the values.
    """

    def __init__(
        self, array: Any, name: str, dtype: Any = None, where: Sequence[slice] = (), unit: float = 1.0
    ) -> None:
        self._array, self._name, self._unit, self.ndim = array, name, unit, array.ndim
        self.where = [*where, *(slice(0, n) for n in array.shape[len(where) :])]
        self.shape = tuple(s.stop - s.start for s in self.where)
        self._chunks: Any = getattr(array, "shards", None) or getattr(array, "chunks", None) or array.shape
        self.dtype = array.dtype if array.dtype.kind == "f" else np.dtype(dtype or min_float_dtype(array.dtype))

    def __getitem__(self, at: tuple[slice, ...]) -> Any:
        spans = [s.indices(n) for s, n in zip(at, self.shape, strict=True)]
        region = tuple(slice(a + w.start, b + w.start) for (a, b, _), w in zip(spans, self.where, strict=True))
        try:
            read = as_float(read_part(self._array, region, self._name))
        except OSError:
            for place in _chunks_in(region, self._chunks) if hasattr(self._array, "chunks") else ():
                each = zip(place, self._chunks, region, strict=True)
                part = tuple(slice(max(s.start, i * c), min(s.stop, i * c + c)) for i, c, s in each)
                key = self._array.metadata.encode_chunk_key(place)
                read_part(self._array, part, f"chunk {key} of {self._name}")
            raise
        return read.astype(self.dtype, copy=False) / self.dtype.type(self._unit)


class StoredTiff:
    """A TIFF file, of which only slices are read, by memory map or by tiles; it is pickled by name.

    A file that only Pillow decodes is read whole, and pickled as an array. `axes` are the places of the array's axes in
    the file, where planar colours precede the rows.

    Raises
    ------
    ValueError
        If the file cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path, self._whole = path, None
        import tifffile

        try:
            with open(path, "rb") as f, tifffile.TiffFile(path) as tiff:
                check_set(tiff, Path(path))
                series, self.axes = tiff.series[0], list(range(tiff.series[0].ndim))
                self._shape, self.dtype, self.ndim = series.shape, series.dtype, series.ndim
                self._in_one_piece = series.dataoffset is not None  # and not compressed
                if "S" in series.axes:
                    self.axes.append(self.axes.pop(series.axes.find("S")))
                pages = series.axes.partition("Y")[0].replace("S", "")
                self.metadata = of_tiff(tiff, f, pages, self.shape[: len(pages)])
            try:
                self[(slice(1),) * self.ndim]
            except ValueError:  # a compression that tifffile reads only with imagecodecs; Pillow may know it
                self._whole = read_stored(path)[0].reshape(self.shape).transpose(np.argsort(self.axes))
        except Refusal as error:
            raise ValueError(f"{path} {error}") from None
        except Exception as error:  # each codec has its own errors
            raise ValueError(f"{path} cannot be read in tiles ({error}): write it uncompressed, or as zarr") from None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._shape[i] for i in self.axes)

    def __getitem__(self, at: Any) -> np.ndarray:
        import tifffile

        region = tuple(at[self.axes.index(i)] for i in range(self.ndim))
        if self._in_one_piece or self._whole is not None:
            stored = tifffile.memmap(self.path, mode="r") if self._whole is None else self._whole
            return np.array(stored[region].transpose(self.axes))
        with tifffile.TiffFile(self.path) as tiff:
            return import_zarr().open_array(tiff.series[0].aszarr(level=0), mode="r")[region].transpose(self.axes)


@contextmanager
def locked(target: str) -> Iterator[None]:
    """Hold the lock of a store while it is written; BlockingIOError if another process or thread holds it."""
    import locket

    path = Path(f"{os.path.realpath(target)}.lock")
    with naming(target):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    lock = locket.lock_file(str(path), timeout=0)
    try:
        lock.acquire()
    except locket.LockError:
        raise BlockingIOError(
            f"{target} is being written by another process, which holds {path}: wait until it ends, or use another "
            "name. The system frees the lock of a process that was killed; the file alone locks nothing"
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        lock = None  # a file system without locks
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        if lock is not None:
            lock.release()


def begun(target: str, asked: dict[str, Any], overwrite: bool) -> dict[str, Any] | None:
    """Return the decisions of an earlier start of the same restoration, or None; ValueError for other content."""
    if not os.path.lexists(target) or (os.path.isdir(target) and not os.listdir(target)):
        return None
    found: dict[str, Any] = {}
    with suppress(FileNotFoundError, ValueError, TypeError):  # not a store, or a damaged one
        found = {**open_store(target).attrs.get(ATTRIBUTE, {})}
    if found.get("asked") == asked:
        return found
    check_replaceable(target)
    if overwrite:
        return None
    differing = ", ".join(k for k in asked if found and found["asked"].get(k) != asked[k])
    raise ValueError(
        f"{target} exists already and is not this restoration{differing and f' (another {differing})'}; choose another "
        "output, or allow it to be replaced (overwrite, --force)"
    )


def created(target: str, picture: Source, tiling: Tiling, decided: dict[str, Any]) -> Any:
    """Create an output array like the source, with the decisions as attribute; it replaces what `begun` accepted."""
    zarr = import_zarr()
    replace_store(target)
    array, layout, shape = picture.stored, tiling.layout, picture.array.shape
    attributes = picture.attributes(target)
    chunks = [1] * array.ndim
    stored = picture.chunk or tiling.plan.tile
    for axis, c, t in zip(layout.in_space, stored, tiling.plan.tile, strict=True):
        chunks[axis] = min(c if t % c == 0 or t >= shape[axis] else t, shape[axis])  # no chunk belongs to two tiles
    if layout.channel is not None:
        chunks[layout.channel] = layout.colours
    made: dict[str, Any] = {"shape": shape, "dtype": tiling.dtype, "chunks": tuple(chunks), **_WHOLE}
    if hasattr(array, "compressors"):
        made["compressors"] = array.compressors or None  # those of the image
    kind = getattr(array if picture.group is None else picture.group, "metadata", None)
    decided, form = {ATTRIBUTE: decided}, getattr(kind, "zarr_format", 3)
    if attributes is None:
        return zarr.create_array(target, attributes=decided, zarr_format=form, **made)
    new = zarr.create_group(target, attributes=attributes | decided, zarr_format=form)
    return new.create_array(picture.levels[0], **made, **_named_as(new, picture))


def _named_as(group: Any, picture: Source) -> dict[str, Any]:
    if group.metadata.zarr_format == 2:
        return {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    names = getattr(getattr(picture.stored, "metadata", None), "dimension_names", None)
    return {"dimension_names": names or [*f"{picture.metadata.axes}YX".lower()]}


def created_for_pass(path: str, like: Any) -> Any:
    """Create the array that a pass of refining leaves to the next one."""
    made = {"shape": like.shape, "chunks": like.chunks, "dtype": like.dtype, "compressors": None}
    return import_zarr().create_array(path, **{**made, **_WHOLE, "fill_value": 0})


def missing(output: Any, region: Sequence[slice] | None = None) -> bool:
    """Return whether a chunk of a region, by default of the whole array, is missing."""
    return not all(os.path.exists(file) for file in chunk_files(output, region))


def chunk_files(output: Any, region: Sequence[slice] | None = None) -> Iterator[str]:
    """Yield the files of the chunks that cover a region, by default the whole array."""
    folder = path_of(output)
    for place in _chunks_in(region or [slice(0, n) for n in output.shape], output.chunks):
        yield os.path.join(folder, output.metadata.encode_chunk_key(place))


def _chunks_in(region: Sequence[slice], chunks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return an iterator over the places of the chunks that cover a region."""
    return itertools.product(*(range(s.start // c, -(-s.stop // c)) for s, c in zip(region, chunks, strict=True)))


def pyramid(target: str, picture: Source) -> Iterator[Any]:
    """Yield lazy tasks that write the smaller levels of an OME-Zarr group: each holds means of the level before."""
    import dask
    import dask.array as da

    group = import_zarr().open_group(target, mode="r+")
    for before, level in itertools.pairwise(picture.levels):
        array, like = group[before], picture.group[level]
        letters = zip(f"{picture.metadata.axes}YX", array.shape, like.shape, strict=True)
        shape = tuple(here if letter in "TC" else there for letter, here, there in letters)
        if level in group and not missing(group[level]):
            continue
        factor = [max(1, math.ceil(a / b)) for a, b in zip(array.shape, shape, strict=True)]
        x = da.from_array(array, chunks=array.chunks, fancy=False)
        # The level keeps its shape: whole blocks of `factor` pixels, with the last pixels repeated if a block is
        # incomplete.
        pad = [(0, max(0, f * b - a)) for a, b, f in zip(array.shape, shape, factor, strict=True)]
        x = da.pad(x, pad, mode="edge")[tuple(slice(f * b) for f, b in zip(factor, shape, strict=True))]
        x = x.rechunk(tuple(f * c for f, c in zip(factor, like.chunks, strict=True)))
        small = da.coarsen(np.mean, x, dict(enumerate(factor))).astype(array.dtype)
        made = {"shape": shape, "dtype": array.dtype, "chunks": like.chunks, "overwrite": True, **_WHOLE}
        out = group.create_array(level, **made, **_named_as(group, picture))
        yield dask.delayed(np.shape)(da.store(small.rechunk(like.chunks), out, lock=False, compute=False))

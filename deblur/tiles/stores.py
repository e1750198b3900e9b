"""Images on disk: zarr arrays, OME-Zarr groups and uncompressed TIFF files to read, and zarr stores to write.

A chunk is renamed into its place when it is complete, so that a chunk that is there is whole.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..frames import min_float_dtype
from ..image import as_float, check_replaceable, replace_store
from ..image.reading import Refusal, check_set
from .tiling import Layout, Tiling

ATTRIBUTE = "deblur"  # under which an output remembers its decisions
#: A missing chunk is NaN, and a chunk that is done is stored, even if it is NaN.
_WHOLE: dict[str, Any] = {"fill_value": np.nan, "config": {"write_empty_chunks": True}}


class Source:
    """An image on disk: an array that can be sliced, its axes, and its OME-Zarr metadata.

    Parameters
    ----------
    source : path or array
    channel_axis, stack_axis, dtype
        As for `deblur.tiled`; an OME-Zarr names its own axes.

    Attributes
    ----------
    name : str
        The path, of an array that has one too; else empty.
    stored : array-like
    array : Reader
        `stored`, as floats.
    chunks : tuple of int or None
        As stored.
    group : zarr.Group or None
        The OME-Zarr group that it is the largest level of.
    """

    def __init__(
        self, source: Any, channel_axis: int | None = None, stack_axis: Any = None, dtype: Any = None
    ) -> None:
        self.group: Any = None
        self.channel_axis, self.stack_axis, self.name = channel_axis, stack_axis, _path_of(source)
        if isinstance(source, str | Path):
            tiff = self.name.lower().endswith((".tif", ".tiff"))
            source = MappedTiff(self.name) if tiff else self._stored(self.name)
        self.stored, self.chunks = source, getattr(source, "chunks", None)
        self.array = Reader(source, self.name, dtype)

    def _stored(self, path: str) -> Any:
        found = opened(path)
        if hasattr(found, "chunks"):
            return found
        scales = _multiscales(found)
        if not scales:
            arrays = ", ".join(name for name, _ in found.arrays()) or "none"
            raise ValueError(
                f"{path} is a zarr group without OME metadata; name one of its arrays ({arrays})"
            )
        names = [a["name"] for a in scales[0].get("axes", [])]
        if names[-2:] != ["y", "x"]:
            raise ValueError(f"the axes of {path} are {names}; they must end in y and x")
        self.group = found
        try:
            level = found[self.levels[0]]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"{path}: its OME metadata name no array that is there ({error!r})") from None
        self.channel_axis, self.stack_axis = None, tuple(range(level.ndim - 2)) or None
        return level

    @property
    def chunk(self) -> tuple[int, int] | None:
        """Rows and columns of a stored chunk, of which tiles are multiples."""
        if self.chunks is None:
            return None
        shape = self.array.shape
        axes = Layout(shape, self.channel_axis, self.stack_axis).order[-2:]
        return min(self.chunks[axes[0]], shape[axes[0]]), min(self.chunks[axes[1]], shape[axes[1]])

    @property
    def levels(self) -> list[str]:
        """The names of the arrays of its OME-Zarr group, the largest first."""
        return [level["path"] for level in _multiscales(self.group)[0]["datasets"]]


def _path_of(source: Any) -> str:
    """The path of a source that is one, or of the store or file behind an array; else empty."""
    if isinstance(source, str | Path):
        return str(source).removeprefix("file://")
    at = getattr(source, "store_path", None)
    if at is None:
        return str(getattr(source, "filename", None) or "")
    root = getattr(at.store, "root", None) or getattr(at.store, "path", None)
    return os.path.join(root, at.path) if root else ""


class Reader:
    """An array that is read as floats (`as_float`) and without an error: what cannot be read is NaN.

    Parameters
    ----------
    array : array-like
    name : str
        Its path, for messages.
    dtype : dtype, optional
        What integers become; by default float32 where that holds them.
    """

    def __init__(self, array: Any, name: str, dtype: Any = None) -> None:
        self._array, self._name, self.shape, self.ndim = array, name, array.shape, array.ndim
        self._chunks: Any = getattr(array, "shards", None) or getattr(array, "chunks", None)
        given = array.dtype
        self.dtype = given if given.kind == "f" else np.dtype(dtype or min_float_dtype(given))

    def __getitem__(self, at: tuple[slice, ...]) -> Any:
        found = self._read(at)
        if not isinstance(found, Exception):
            return found
        if self._chunks is None:
            raise found
        region = [slice(*s.indices(n)) for s, n in zip(at, self.shape, strict=True)]
        out = np.full([s.stop - s.start for s in region], np.nan, self.dtype)
        for _, part, found in self._parts(region):
            if not isinstance(found, Exception):
                out[tuple(slice(p.start - s.start, p.stop - s.start) for p, s in zip(part, region))] = found
        return out

    def _read(self, at: tuple[slice, ...]) -> Any:
        try:
            return as_float(np.asarray(self._array[at])).astype(self.dtype, copy=False)
        except MemoryError:
            raise
        except Exception as error:  # each codec has its own
            return error

    def _parts(self, region: Sequence[slice]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], Any]]:
        """(its place among the chunks, its part of the region, its numbers or the error) of each chunk."""
        for place in _chunks_in(region, self._chunks):
            spans = zip(place, self._chunks, region, strict=True)
            part = tuple(slice(max(s.start, i * c), min(s.stop, i * c + c)) for i, c, s in spans)
            yield place, part, self._read(part)

    def trouble(self, region: Sequence[slice]) -> str:
        """The first chunk of a region that cannot be read, and why; empty if there is none."""
        for place, _, found in self._parts(region) if self._chunks else ():
            if isinstance(found, Exception):
                why = " ".join(str(found).split()) or type(found).__name__
                key = self._array.metadata.encode_chunk_key(place)
                return f"chunk {key} of {self._name} cannot be read ({why}): restore it from a copy"
        return ""


class MappedTiff:
    """A TIFF file whose pixels lie in one piece, mapped when it is sliced; travels to other processes as a name."""

    def __init__(self, path: str) -> None:
        self.path = path
        import tifffile

        try:
            with tifffile.TiffFile(path) as tiff:
                check_set(tiff, Path(path))
            mapped = self._mapped()
        except Refusal as error:
            raise ValueError(f"{path} {error}") from None
        except (ValueError, LookupError) as error:
            raise ValueError(
                f"{path} cannot be mapped ({error}): it is compressed or in pieces; write it uncompressed, or as zarr"
            ) from None
        self.shape, self.dtype, self.ndim = mapped.shape, mapped.dtype, mapped.ndim

    def _mapped(self) -> np.ndarray:
        import tifffile

        return tifffile.memmap(self.path, mode="r")

    def __getitem__(self, at: Any) -> np.ndarray:
        return np.array(self._mapped()[at])


def _multiscales(group: Any) -> list[Any]:
    attributes = dict(group.attrs)
    return (attributes.get("ome") or attributes).get("multiscales") or []


def opened(path: str, mode: str = "r") -> Any:
    """A zarr array or group; an error names the path."""
    try:
        return import_zarr().open(path, mode=mode)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is no zarr store: there is no array and no group; a zarr store or a TIFF file is read in tiles"
        ) from None
    except Exception as error:  # of zarr and of the JSON under it: ValueError, KeyError, TypeError ...
        raise ValueError(
            f"{path}: the metadata of this zarr store are damaged ({error}): restore them from a copy"
        ) from error


@contextmanager
def locked(target: str) -> Iterator[None]:
    """Hold the lock of a store while it is written: BlockingIOError if another process or thread does."""
    import locket

    path = Path(f"{os.path.realpath(target)}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
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
    """The decisions of an earlier start of the same restoration, or None; an error if something else is there."""
    if not os.path.lexists(target) or (os.path.isdir(target) and not os.listdir(target)):
        return None
    found: dict[str, Any] = {}
    with suppress(FileNotFoundError, ValueError, TypeError):  # no store, or a damaged one
        found = {**opened(target).attrs.get(ATTRIBUTE, {})}
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
    """A new output array, like the source, that remembers the decisions; it replaces what `begun` let pass."""
    zarr = import_zarr()
    replace_store(target)
    array, layout, group = picture.stored, tiling.layout, picture.group
    metadata = getattr(array, "metadata", None)
    chunks = [1] * array.ndim
    for axis, c in zip(layout.order[-2:], picture.chunk or tiling.plan.tile, strict=True):
        chunks[axis] = min(c, array.shape[axis])
    if layout.channel is not None:
        chunks[layout.channel] = layout.colours
    made: dict[str, Any] = {"shape": array.shape, "dtype": tiling.dtype, "chunks": tuple(chunks), **_WHOLE}
    if hasattr(array, "compressors"):
        made["compressors"] = array.compressors or None  # as the image is stored
    form = getattr(metadata if group is None else group.metadata, "zarr_format", 3)
    if group is None:
        return zarr.create_array(target, attributes={ATTRIBUTE: decided}, zarr_format=form, **made)
    new = zarr.create_group(target, attributes={**dict(group.attrs), ATTRIBUTE: decided}, zarr_format=form)
    return new.create_array(picture.levels[0], **made, **_named_as(new, array))


def _named_as(group: Any, like: Any) -> dict[str, Any]:
    if group.metadata.zarr_format == 2:
        return {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    return {"dimension_names": getattr(like.metadata, "dimension_names", None)}


def created_for_pass(path: str, like: Any) -> Any:
    """An array for what a pass of refining leaves to the next."""
    made = {"shape": like.shape, "chunks": like.chunks, "dtype": like.dtype, "compressors": None}
    return import_zarr().create_array(path, **{**made, **_WHOLE, "fill_value": 0})


def missing(output: Any, region: Sequence[slice] | None = None) -> bool:
    """Whether a chunk of a region, by default of the whole array, is not there."""
    return not all(os.path.exists(file) for file in chunk_files(output, region))


def chunk_files(output: Any, region: Sequence[slice] | None = None) -> Iterator[str]:
    """The files of the chunks that a region covers, by default the whole array."""
    folder = _path_of(output)
    for place in _chunks_in(region or [slice(0, n) for n in output.shape], output.chunks):
        yield os.path.join(folder, output.metadata.encode_chunk_key(place))


def _chunks_in(region: Sequence[slice], chunks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The places of the chunks that a region covers."""
    spans = (range(s.start // c, -(-s.stop // c)) for s, c in zip(region, chunks, strict=True))
    return itertools.product(*spans)


def pyramid(target: str, picture: Source) -> Iterator[Any]:
    """Lazy tasks that write the smaller levels of an OME-Zarr group: the means of the one before, of the old shapes."""
    import dask
    import dask.array as da

    group = import_zarr().open_group(target, mode="r+")
    for before, level in itertools.pairwise(picture.levels):
        array, like = group[before], picture.group[level]
        if level in group and not missing(group[level]):
            continue
        factor = [max(1, math.ceil(a / b)) for a, b in zip(array.shape, like.shape, strict=True)]
        x = da.from_array(array, chunks=array.chunks, fancy=False)
        # The level has the shape it had: whole blocks of `factor` pixels, the last of them repeated where one is short.
        pad = [(0, max(0, f * b - a)) for a, b, f in zip(array.shape, like.shape, factor, strict=True)]
        x = da.pad(x, pad, mode="edge")[tuple(slice(f * b) for f, b in zip(factor, like.shape, strict=True))]
        x = x.rechunk(tuple(f * c for f, c in zip(factor, like.chunks, strict=True)))
        small = da.coarsen(np.mean, x, dict(enumerate(factor))).astype(array.dtype)
        made = {"shape": like.shape, "dtype": array.dtype, "chunks": like.chunks, "overwrite": True, **_WHOLE}
        out = group.create_array(level, **made, **_named_as(group, like))
        yield dask.delayed(np.shape)(da.store(small.rechunk(like.chunks), out, lock=False, compute=False))


def import_zarr() -> Any:
    """The package zarr, or ImportError that says how to get it."""
    try:
        import zarr
    except ImportError:
        raise ImportError('zarr stores need zarr and Dask: pip install "deblur-toolkit[dask]"') from None
    return zarr

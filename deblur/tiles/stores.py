"""Images on disk: zarr arrays, OME-Zarr groups and uncompressed TIFF files to read, and zarr stores to write.

A chunk is renamed into its place when it is complete, so that a chunk that is there is whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .tiling import Layout, Tiling

ATTRIBUTE = "deblur"  # under which an output remembers its decisions
#: A missing chunk is NaN, and a chunk that is done is stored, even if it is NaN.
_WHOLE: dict[str, Any] = {"fill_value": np.nan, "config": {"write_empty_chunks": True}}


class Source:
    """An image on disk: an array that can be sliced, its axes, and its OME-Zarr metadata.

    Parameters
    ----------
    source : path or array
    channel_axis, stack_axis
        As for `deblur.tiled`; not used for OME-Zarr.

    Attributes
    ----------
    array : array-like
    chunks : tuple of int or None
        As stored.
    group : zarr.Group or None
        The OME-Zarr group that it is the largest level of.
    """

    def __init__(self, source: Any, channel_axis: int | None = None, stack_axis: Any = None) -> None:
        self.group: Any = None
        self.channel_axis, self.stack_axis = channel_axis, stack_axis
        if isinstance(source, str | Path):
            path = str(source)
            source = MappedTiff(path) if path.lower().endswith((".tif", ".tiff")) else self._stored(path)
        self.array, self.chunks = source, getattr(source, "chunks", None)

    def _stored(self, path: str) -> Any:
        zarr = import_zarr()
        try:
            found = zarr.open(path, mode="r")
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} is no zarr store: there is no array and no group; a zarr store or a TIFF file is read in tiles"
            ) from None
        if isinstance(found, zarr.Array):
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
        level = found[self.levels[0]]
        self.channel_axis, self.stack_axis = None, tuple(range(level.ndim - 2)) or None
        return level

    @property
    def chunk(self) -> tuple[int, int] | None:
        """Rows and columns of a stored chunk, of which tiles are multiples."""
        if self.chunks is None:
            return None
        shape = self.array.shape
        axes = Layout(shape, self.channel_axis, self.stack_axis).order[-2:]
        rows, cols = (min(self.chunks[a], shape[a]) for a in axes)
        return rows, cols

    @property
    def levels(self) -> list[str]:
        """The names of the arrays of its OME-Zarr group, the largest first."""
        return [level["path"] for level in _multiscales(self.group)[0]["datasets"]]


class MappedTiff:
    """A TIFF file whose pixels lie in one piece, mapped when it is sliced; travels to other processes as a name."""

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


def _multiscales(group: Any) -> list[Any]:
    attributes = dict(group.attrs)
    return (attributes.get("ome") or attributes).get("multiscales") or []


def begun(target: str, asked: dict[str, Any], overwrite: bool) -> dict[str, Any] | None:
    """What an earlier start of the same restoration decided, or None; ValueError if something else is there."""
    try:
        there = import_zarr().open(target, mode="r")
    except (FileNotFoundError, ValueError, KeyError):
        if Path(target).exists() and not overwrite and any(Path(target).iterdir()):
            raise ValueError(f"{target} exists and is no zarr store; choose another output") from None
        return None
    found = dict(there.attrs).get(ATTRIBUTE)
    if found is not None and found["asked"] == asked:
        return found
    if overwrite:
        return None
    names = [] if found is None else [k for k in asked if found["asked"].get(k) != asked[k]]
    differs = f" (another {', '.join(names)})" if names else ""
    raise ValueError(
        f"{target} exists already and is not this restoration{differs}; choose another output, or allow it to be "
        "replaced (overwrite, --force)"
    )


def created(target: str, picture: Source, tiling: Tiling, decided: dict[str, Any], overwrite: bool) -> Any:
    """A new output array, like the source, that remembers the decisions."""
    zarr = import_zarr()
    array, layout, group = picture.array, tiling.layout, picture.group
    metadata = getattr(array, "metadata", None)
    chunks = [1] * array.ndim
    for axis, c in zip(layout.order[-2:], picture.chunk or tiling.plan.tile, strict=True):
        chunks[axis] = min(c, array.shape[axis])
    if layout.channel is not None:
        chunks[layout.channel] = layout.colours
    made: dict[str, Any] = {"shape": array.shape, "dtype": tiling.dtype, "chunks": tuple(chunks), **_WHOLE}
    if hasattr(array, "compressors"):
        made["compressors"] = array.compressors or None  # as the image is stored
    into: dict[str, Any] = {
        "zarr_format": getattr(metadata if group is None else group.metadata, "zarr_format", 3),
        "overwrite": overwrite,
    }
    if group is None:
        return zarr.create_array(target, attributes={ATTRIBUTE: decided}, **into, **made)
    new = zarr.create_group(target, attributes={**dict(group.attrs), ATTRIBUTE: decided}, **into)
    return new.create_array(picture.levels[0], **made, **_named_as(new, array))


def _named_as(group: Any, like: Any) -> dict[str, Any]:
    if group.metadata.zarr_format == 2:
        return {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    return {"dimension_names": getattr(like.metadata, "dimension_names", None)}


def created_for_pass(path: str, like: Any) -> Any:
    """An array for what a pass of refining leaves to the next."""
    return import_zarr().create_array(
        path,
        shape=like.shape,
        chunks=like.chunks,
        dtype=like.dtype,
        compressors=None,
        **{**_WHOLE, "fill_value": 0},
    )


def present(output: Any) -> set[str]:
    """The names of the chunks that are there."""
    from zarr.core.sync import sync

    async def names() -> set[str]:
        prefix = output.store_path.path
        return {key async for key in output.store_path.store.list_prefix(f"{prefix}/" if prefix else "")}

    return sync(names())


def whole(array: Any) -> bool:
    """Whether all chunks of an array are there."""
    return present(array).issuperset(chunk_names(array))


def done(output: Any, region: Sequence[slice]) -> bool:
    """Whether all chunks of a region are there."""
    from zarr.core.sync import sync

    async def there() -> bool:
        for name in chunk_names(output, region):
            if not await output.store_path.store.exists(name):
                return False
        return True

    return sync(there())


def removed(output: Any) -> None:
    """Delete all chunks of an array."""
    from zarr.core.sync import sync

    for name in chunk_names(output):
        sync(output.store_path.store.delete(name))


def chunk_names(output: Any, region: Sequence[slice] | None = None) -> Iterator[str]:
    """The names of the chunks that a region covers, by default the whole array."""
    region = [slice(0, n) for n in output.shape] if region is None else region
    spans = [range(s.start // c, -(-s.stop // c)) for s, c in zip(region, output.chunks, strict=True)]
    prefix = output.store_path.path
    for at in itertools.product(*spans):
        key = output.metadata.encode_chunk_key(at)
        yield f"{prefix}/{key}" if prefix else key


def pyramid(target: str, picture: Source) -> Iterator[Any]:
    """Lazy tasks that write the smaller levels of an OME-Zarr group: the means of the one before, of the old shapes."""
    import dask
    import dask.array as da

    group = import_zarr().open_group(target, mode="r+")
    for before, level in itertools.pairwise(picture.levels):
        array, like = group[before], picture.group[level]
        if level in group and whole(group[level]):
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

"""Open zarr stores, and read and write the axes, voxel sizes and channels of OME-Zarr (0.4 and 0.5)."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import is_colour
from .metadata import Metadata
from .ome import standard

#: Files that mark a folder as a zarr array or group.
NODES = ("zarr.json", ".zarray", ".zgroup")


def is_store(path: Any) -> bool:
    """Return True if a path is a folder with a zarr array or group."""
    return any(os.path.isfile(os.path.join(path, name)) for name in NODES)


def is_array(path: Path) -> bool:
    """Return True if a path is the folder of a zarr array with readable metadata."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((path / "zarr.json").read_bytes())["node_type"] == "array"
    return (path / ".zarray").is_file()


def import_zarr() -> Any:
    """Return the package zarr; raise ImportError with the command to install it if it is missing."""
    try:
        import zarr
    except ImportError:
        raise ImportError('zarr stores need zarr and Dask: pip install "deblur-toolkit[dask]"') from None
    return zarr


def read_part(array: Any, at: tuple[slice, ...], path: Any) -> np.ndarray:
    """Return a part of a store's array; raise OSError with the path if a chunk of it cannot be read."""
    try:
        return np.asarray(array[at])
    except MemoryError:
        raise
    except Exception as error:  # each codec raises its own kind
        raise _unreadable(path, error) from error


def _unreadable(path: Any, error: Exception) -> OSError:
    why = " ".join(str(error).split()) or type(error).__name__
    return OSError(f"{path} cannot be read ({why}): check its permissions, or restore it from a copy")


def open_store(path: str, mode: str = "r") -> Any:
    """Return a zarr array or group; raise an error with the path if it cannot be opened."""
    try:
        return import_zarr().open(path, mode=mode)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is not a zarr store: it has no array and no group; tiles are read from a zarr store or a TIFF file"
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # from zarr or its JSON: ValueError, KeyError, TypeError ...
        raise ValueError(f"{path}: the metadata of this zarr store are damaged ({error}): restore a copy") from error


def multiscales(group: Any) -> list[Any]:
    """Return the OME-Zarr description of the levels of a group; empty if there is none."""
    attributes = dict(group.attrs)
    return (attributes.get("ome") or attributes).get("multiscales") or []


def largest_level(path: str, least: int = 0) -> tuple[Any, Any, Metadata]:
    """Return the array of a store, which for an OME-Zarr is its largest level; it must have at least `least` axes.

    Returns
    -------
    group : zarr.Group or None
        The group of the array; None if the store is a bare array.
    array : zarr.Array
        The array.
    metadata : Metadata
        Axes, voxel size and channels of the array.

    Raises
    ------
    FileNotFoundError
        If there is no store.
    ValueError
        If the store or its metadata do not describe an image.
    OSError
        If the store cannot be read.
    """
    found = open_store(path)
    if hasattr(found, "chunks"):
        if found.ndim < least:
            raise ValueError(f"{path} has shape {found.shape}, and an image has rows and columns: name another array")
        place = Path(path).resolve()
        if is_store(place.parent):
            with contextlib.suppress(OSError, ValueError):  # no level of this group, or of one that is damaged
                return None, *_described(open_store(str(place.parent)), path, place.name)
        names = getattr(found.metadata, "dimension_names", None) or ()
        if names[-2:] == ("y", "x"):
            return None, found, Metadata(axes=_letters(names), sizes=found.shape[:-2])
        return None, found, Metadata(sizes=found.shape[: -3 if found.ndim > 3 and is_colour(found) else -2])
    if not multiscales(found):
        arrays = ", ".join(name for name, _ in found.arrays()) or "none"
        raise ValueError(f"{path} is a zarr group without OME metadata; name one of its arrays ({arrays})")
    return found, *_described(found, path)


def _described(group: Any, path: str, level: str | None = None) -> tuple[Any, Metadata]:
    """Return the array of a level of an OME-Zarr, by default the largest one, and its metadata."""
    try:
        scales = multiscales(group)
        axes = [axis if isinstance(axis, dict) else {"name": axis} for axis in scales[0].get("axes", [])]
        names, levels = [axis["name"] for axis in axes], scales[0]["datasets"]
        first = levels[[each["path"] for each in levels].index(level) if level else 0]
        array = group[first["path"]]
        moves = [move for each in (first, scales[0]) for move in each.get("coordinateTransformations", [])]
        steps = [move["scale"] for move in moves if "scale" in move] or [[np.nan] * len(axes)]
        sides = zip(axes, np.prod([*zip(*steps, strict=False)], axis=1).tolist(), strict=False)  # checked below
        spacing = {a["name"].upper(): s * unit for a, s in sides if s > 0 and (unit := standard(a.get("unit", "")))}
        channels = (group.attrs.get("ome") or group.attrs).get("omero", {}).get("channels", [])
        labels = tuple(str(channel.get("label", i)) for i, channel in enumerate(channels))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: damaged OME metadata ({error!r}): restore a copy, or name its array") from None
    if names[-2:] != ["y", "x"] or {len(names), *map(len, steps)} != {array.ndim}:
        raise ValueError(
            f"the axes of {path} are {names}, with scales {steps}; needed are {array.ndim}, with y and x last"
        )
    ngff = scales[0] | {"axes": axes, "datasets": [first | {"path": "0"}]}
    kept: dict[str, Any] = {"channels": tuple(channels), "ngff": ngff}
    return array, Metadata(axes=_letters(names), sizes=array.shape[:-2], spacing=spacing, labels=labels, **kept)


def _letters(names: Any) -> str:
    """Return the letters of the axes before rows and columns; "?" for an unknown name."""
    return "".join(name.upper() if name in ("t", "c", "z") else "?" for name in names[:-2])


def ome_attributes(metadata: Metadata, dtype: Any) -> dict[str, Any]:
    """Return the attributes that make a group with an array "0" an OME-Zarr 0.5 [1]_: axes, voxel size, channel names.

    Parameters
    ----------
    metadata : Metadata
        The metadata, with the axes in the order of OME-Zarr: time, channel, Z.
    dtype : dtype
        The dtype of the blurred image; a viewer shows its range.

    References
    ----------
    .. [1] https://ngff.openmicroscopy.org/0.5/
    """
    letters, axes = f"{metadata.axes}YX", []
    for letter in letters:
        kind, unit = {"T": ("time", "second"), "C": ("channel", None)}.get(letter, ("space", "micrometer"))
        axes.append({"name": letter.lower(), "type": kind})
        if unit and metadata.spacing.get(letter):
            axes[-1]["unit"] = unit
    moves = [{"type": "scale", "scale": [metadata.spacing.get(letter) or 1.0 for letter in letters]}]
    scales = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": moves}]}
    if [axis["name"].upper() for axis in metadata.ngff.get("axes", [])] == [*letters]:
        scales = {name: value for name, value in metadata.ngff.items() if name != "version"}
    ome: dict[str, Any] = {"version": "0.5", "multiscales": [scales]}
    if metadata.labels:
        largest = float(np.iinfo(dtype).max) if np.dtype(dtype).kind in "iu" else 1.0
        window = {"start": 0.0, "min": 0.0, "end": largest, "max": largest}
        given = (*metadata.channels, *({},) * len(metadata.labels))
        channels = [{"label": label, "color": "FFFFFF", "window": window} for label in metadata.labels]
        ome["omero"] = {"channels": [shown | channel for shown, channel in zip(channels, given, strict=False)]}
    return {"ome": ome}

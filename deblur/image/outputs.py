"""The one rule for output: what may be written, replaced or deleted. Every writer of the package asks here.

An output is never an input, never in one, and never holds one, by whatever name or link. What is there already is
replaced only if that was requested, and then it is a file, or a folder that holds nothing but a zarr store.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import check_flags, check_path, naming, shown
from .ome import files_of_set
from .reading import FilePath, located
from .stores import is_array, is_store

Content = bytes | Callable[[BinaryIO], object]

#: Every name that zarr or this program gives in a store, but for those of nodes.
_OF_ZARR = re.compile(r"zarr\.json|\.z(array|group|attrs|metadata)|c|(c\.)?\d+(\.\d+)*|\.passes|.+\.partial")


def check_output(path: FilePath, inputs: Iterable[FilePath] = ()) -> Path:
    """The place that `path` names, links resolved, or an error if it is an input, lies in one or holds one.

    Parameters
    ----------
    path : path
        The file or folder to be written.
    inputs : iterable of paths
        Files and folders that are read in the same run. Names of no file are passed over.

    Raises
    ------
    ValueError
        If an input and the output overlap, also by links inside the input.
    """
    target = Path(os.path.realpath(check_path(path)))
    if isinstance(inputs, str | os.PathLike) or not isinstance(inputs, Iterable):
        raise TypeError(f"inputs must be a list of paths, not {shown(inputs)}")
    if any(map(is_array, target.parents)):
        raise ValueError(f"{path} lies in a zarr array, whose folder holds its chunks: use another name")
    own, *near = _identities(target)
    for source in (located(name)[0] for name in inputs if name):
        if not source.exists():
            continue
        for place in _places(source, deep=own is not None):
            its, *beyond = _identities(Path(os.path.realpath(place)))
            same = own is not None and own == its
            how = "is also" if same else "lies in" if its in near else "holds" if own in beyond else ""
            if how:
                raise ValueError(f"{path} {how} an input ({source}); inputs are never overwritten: use another name")
    return target


def _identities(path: Path) -> list[tuple[int, int] | None]:
    """Device and inode of a path, None if it does not exist, and of each folder around it that does."""
    found = [(p.stat().st_dev, p.stat().st_ino) if os.path.exists(p) else None for p in (path, *path.parents)]
    return [found[0], *filter(None, found[1:])]


def _places(source: Path, deep: bool) -> Iterator[FilePath]:
    """An input, the other files of an OME-TIFF, and if `deep` every link inside it, wherever that leads."""
    yield source
    if source.suffix.lower() in (".tif", ".tiff") and source.is_file():
        yield from files_of_set(source, source.stat().st_mtime_ns)
    seen: set[str] = set()
    for folder, folders, files in os.walk(source, followlinks=True) if deep else ():
        entries = (os.path.join(folder, name) for name in (*folders, *files))
        yield from (entry for entry in entries if os.path.islink(entry) and os.path.exists(entry))
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
        seen.add(real)


def check_writable(path: FilePath, overwrite: bool = False, *, inputs: Iterable[FilePath] = ()) -> Path:
    """`path` as a Path that a file of any kind can be written to, or an error before work starts.

    Parameters
    ----------
    path : path
        The file to be written.
    overwrite : bool
        Whether a file that is there may be replaced.
    inputs : iterable of paths
        Files and folders that are read in the same run: they are never written over or into, not
        even with `overwrite`, under whatever name or link.

    Raises
    ------
    FileExistsError
        If the file is there and `overwrite` is False.
    OSError
        If the folder is missing or not writable, or `path` is itself a folder or a device.
    ValueError
        As from `check_output`.
    """
    check_flags(overwrite=overwrite)
    path = check_path(path)
    target = Path(os.path.realpath(path))
    store = path.suffix == ".zarr"
    if target.is_dir() and not store:
        raise IsADirectoryError(f"{path} is a folder; add a file name")
    check_output(path, inputs)
    if target.is_dir() and overwrite:
        check_replaceable(path)
    elif os.path.lexists(target):  # also a link that leads in a circle
        if not (target.is_file() or target.is_dir()):
            raise OSError(f"{path} is not a regular file, so it cannot be replaced; use another name")
        if not overwrite:
            raise FileExistsError(f"{path} is there already; use another name, or overwrite=True (--force)")
    folder = target.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{path}: the folder {folder} does not exist; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path}: the folder {folder} is not writable; use another one")
    return path


def check_replaceable(path: FilePath) -> None:
    """Raise an error unless `path` is a folder that holds a zarr store and nothing else, or nothing at all.

    Raises
    ------
    ValueError, NotADirectoryError
        For a link, whatever it leads to, a folder with other things in it, of which one is named, and a file.
    """
    folder = Path(path)
    if folder.is_symlink():
        raise ValueError(
            f"{path} is a link to {os.path.realpath(path)}: what a link leads to is not deleted; remove the link, or "
            "name the store itself"
        )
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} is a file, and a zarr store is a folder; use another name")
    store = is_store(folder)
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            at = Path(where, name)
            if not store or at.is_symlink() or not (_OF_ZARR.fullmatch(name) or is_store(at)):
                raise ValueError(
                    f"{path} holds {at.relative_to(folder)}, which zarr did not write, and is not deleted; use another "
                    "name, or move that away"
                )


def replace_store(path: FilePath) -> None:
    """Delete the zarr store at `path`, if one is there, once `check_replaceable` allows it."""
    if os.path.lexists(path):
        check_replaceable(path)
        shutil.rmtree(os.path.realpath(path))


def write_whole(path: FilePath, content: Content, overwrite: bool = False) -> None:
    """Write a file of any kind so that it appears whole or not at all.

    It is written under a temporary name in the same folder and then renamed,
    so a full disk or Ctrl-C leaves the old file.

    Parameters
    ----------
    path : path
    content : bytes or callable
        The content, or a function that writes it into the open file.
    overwrite : bool
        Replace a file that is there.

    Raises
    ------
    OSError
        As from `check_writable`, or if the disk does not take it; with the path.
    """
    path = check_writable(path, overwrite)
    target = Path(os.path.realpath(path))  # a link stays a link
    partial = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with naming(path):
            with partial.open("x+b") as f:
                content(f) if callable(content) else f.write(content)
            check_writable(path, overwrite)  # it may have appeared while we worked
            os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)

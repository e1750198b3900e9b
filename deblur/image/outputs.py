"""The rule for output: which files may be written, replaced or deleted. Every writer of the package uses it.

An output is never an input, inside an input, or a folder with an input, whatever its name or links. An existing output
is replaced only on request. It must then be a file, or a folder that contains only a zarr store.
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

#: All names that zarr or deblur uses inside a store, except the names of nodes.
_OF_ZARR = re.compile(r"zarr\.json|\.z(array|group|attrs|metadata)|c|(c\.)?\d+(\.\d+)*|\.passes|.+\.partial")


def check_output(path: FilePath, inputs: Iterable[FilePath] = ()) -> Path:
    """Return `path` with its links resolved; raise an error if it is an input, is inside an input, or contains one.

    Parameters
    ----------
    path : path
        The file or folder to be written.
    inputs : iterable of paths
        Files and folders that are read in the same run. Names without a file are ignored.

    Raises
    ------
    ValueError
        If an input and the output overlap, also by links inside the input, or the output is inside a zarr array.
    TypeError
        If `inputs` is not an iterable of paths.
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
    """Return (device, inode) of a path, or None if it does not exist, and of each existing folder around it."""
    found = [(p.stat().st_dev, p.stat().st_ino) if os.path.exists(p) else None for p in (path, *path.parents)]
    return [found[0], *filter(None, found[1:])]


def _places(source: Path, deep: bool) -> Iterator[FilePath]:
    """Yield an input, the other files of its OME-TIFF, and, if `deep`, all links inside it."""
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
    """Return `path` as a Path if a file can be written there; raise an error before any work starts if not.

    Parameters
    ----------
    path : path
        The file to be written.
    overwrite : bool
        True if an existing file may be replaced.
    inputs : iterable of paths
        Files and folders that are read in the same run. They are never overwritten, not even with `overwrite` or
        under another name or link.

    Raises
    ------
    FileExistsError
        If the file exists and `overwrite` is False.
    OSError
        If the folder is missing or not writable, or `path` is a folder or a device.
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
    elif os.path.lexists(target):  # also true for a circular link
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
    """Raise an error unless `path` is a folder that is empty or contains only a zarr store.

    Raises
    ------
    ValueError
        For a link, and for a folder with other contents, one of which the message names.
    NotADirectoryError
        For a file.
    """
    folder = Path(path)
    if folder.is_symlink():
        raise ValueError(
            f"{path} is a link to {os.path.realpath(path)}: the target of a link is not deleted; remove the link, or "
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
    """Delete the zarr store at `path` if there is one and `check_replaceable` allows it."""
    if os.path.lexists(path):
        check_replaceable(path)
        shutil.rmtree(os.path.realpath(path))


def write_whole(path: FilePath, content: Content, overwrite: bool = False) -> None:
    """Write a file completely or not at all.

    The file is written under a temporary name in the same folder and then renamed, so a full disk or Ctrl-C leaves the
    old file.

    Parameters
    ----------
    path : path
        The file to be written.
    content : bytes or callable
        The content, or a function that writes it to the open file.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    OSError, ValueError
        As from `check_writable`, or if the disk cannot hold the file; the message has the path.
    """
    path = check_writable(path, overwrite)
    target = Path(os.path.realpath(path))  # so that a link stays a link
    partial = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with naming(path):
            with partial.open("x+b") as f:
                content(f) if callable(content) else f.write(content)
            check_writable(path, overwrite)  # the file may have appeared meanwhile
            os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)

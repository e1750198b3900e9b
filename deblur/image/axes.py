"""Name and select the axes of a file, compare them with those of the PSF, and describe them in words."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from .metadata import Metadata


def chosen(
    metadata: Metadata,
    source: str,
    space: int = 2,
    axis: str | None = None,
    time: range | None = None,
    channel: range | None = None,
    planes: bool = False,
) -> tuple[Metadata, tuple[slice, ...]]:
    """Return the metadata of the part to restore, and its slices along the axes of the pages.

    Parameters
    ----------
    metadata : Metadata
        The metadata of the file.
    source : str
        The name of the file, for messages.
    space : int
        The number of axes of the PSF.
    axis : str, optional
        Letters for the axes of the pages, in place of those in the file.
    time, channel : range, optional
        Time points and channels to restore; by default all.
    planes : bool
        Restore the planes of a volume one by one, with a 2-D PSF.

    Raises
    ------
    ValueError
        If the requested axes are not those of the file, or the PSF does not match them.
    """
    letters = (axis if axis and len(axis) == len(metadata.sizes) else metadata.axes) or "?" * len(metadata.sizes)
    written = f"its axes are {letters}YX, {metadata.sizes or 'none'} before the rows"
    if axis not in (None, letters):
        raise ValueError(f"--axis {axis}YX does not fit {source}: {written}")
    if axis not in (None, metadata.axes):
        metadata = _described_anew(metadata, axes=axis)
    lengths = dict(zip(letters, metadata.sizes, strict=True))
    if any(metadata.labels) and "C" in lengths:  # a channel without a name is named by its number
        names = [*metadata.labels, *[""] * lengths["C"]][: lengths["C"]]
        metadata = replace(metadata, labels=tuple(name or str(i) for i, name in enumerate(names)))
    volume, deep = space == 3, "Z" in metadata.axes
    if deep and not (volume or planes):
        raise ValueError(
            f"{source} is a volume ({metadata.axes}YX), and the PSF has no axis Z: give a 3-D PSF (a file with planes, "
            "or a formula with three sizes), or --planes, which restores each plane by itself and keeps the light of "
            "the planes above and below it; if Z is not a depth, name the axes with --axis"
        )
    if planes and (volume or not deep):
        why = "the PSF is that of a volume" if volume else f"{source} has no axis Z"
        raise ValueError(f"--planes does nothing here: {why}; leave it out")
    if volume and not (deep and set(metadata.axes) <= set("TCZ")):
        instead = "name the axes (--axis ZYX, TZYX, CZYX or TCZYX), or" if metadata.sizes else "it is a single plane:"
        why = f"the PSF has three axes, but {source} has no axis Z, or an unknown axis: {written}"
        raise ValueError(f"{why}; {instead} use a 2-D PSF, such as the middle plane of this one")
    for word, some in (("time", time), ("channel", channel)):
        n = lengths.get(word[0].upper(), 0)
        if some is not None and some.stop > n:
            numbers = f"{some[0]}:{some.stop}" if len(some) > 1 else some[0]
            raise ValueError(
                f"--{word} {numbers} is not in {source}, which has {n} of them: {written}; --axis names others"
            )
    ranges = [{"T": time, "C": channel}.get(a) or range(n) for a, n in zip(letters, metadata.sizes, strict=True)]
    where = tuple(slice(r.start, r.stop) for r in ranges)
    if not (time or channel):
        return metadata, where
    pages = np.arange(math.prod(metadata.sizes)).reshape(metadata.sizes)[where].ravel()
    part = slice(channel.start, channel.stop) if channel else slice(None)
    named = {"labels": metadata.labels[part], "channels": metadata.channels[part]}
    alpha = metadata.alpha if metadata.alpha is None else metadata.alpha[pages]
    return _described_anew(metadata, sizes=tuple(map(len, ranges)), alpha=alpha, **named), where


def _described_anew(metadata: Metadata, **changes: Any) -> Metadata:
    """Return the changed metadata without the descriptions of ImageJ and OME; voxel size and channel names stay."""
    lost = ["OME's or ImageJ's description (of other axes)"] if metadata.ome or metadata.imagej else []
    return replace(metadata, ome="", imagej=None, others=(*metadata.others, *lost), **changes)


def in_order(metadata: Metadata) -> tuple[Metadata, tuple[int, ...]]:
    """Return the metadata with the axes in the order of OME-Zarr, and the old position of each axis.

    If a letter is unknown, the axes keep their order and lose their letters.
    """
    axes = metadata.axes if set(metadata.axes) <= set("TCZ") else ""
    order = tuple(sorted(range(len(metadata.sizes)), key=lambda i: "TCZ".index(axes[i]) if axes else i))
    sizes = tuple(metadata.sizes[i] for i in order)
    return replace(metadata, axes="".join(axes[i] for i in order if axes), sizes=sizes), order


def in_words(metadata: Metadata, frame: tuple[int, ...], space: int) -> str:
    """Return a line about the axes of a file, and which of them were restored together."""
    nouns = {"T": "time points", "C": "channels", "Z": "planes"}
    words = [f"{n} {nouns.get(a, 'pages')}" for a, n in zip_longest(metadata.axes, metadata.sizes, fillvalue="?")]
    steps = [f"{metadata.spacing[a]:.4g}" if a in metadata.spacing else "?" for a in "ZYX"]
    rows_columns = " x ".join(map(str, frame[:2]))
    together = "planes restored together" if space == 3 else "each restored by itself"
    voxel = f"voxels of {' x '.join(steps)} µm" if set(steps) != {"?"} else "no voxel size in the file"
    return f"{metadata.axes or '?'}YX: {', '.join(words)} of {rows_columns}, {together}; {voxel}"

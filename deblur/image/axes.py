"""The axes of a file: named, selected, compared with those of the PSF, and put into words."""

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
    """The metadata of the part to be restored, and its slices along the axes of the pages.

    Parameters
    ----------
    metadata : Metadata
        Of the file.
    source : str
        Its name, for messages.
    space : int
        How many axes the PSF has.
    axis : str, optional
        Letters of the axes of the pages, instead of those that the file gives them.
    time, channel : range, optional
        Time points and channels to restore; by default all.
    planes : bool
        Restore the planes of a volume one by one, with a PSF of two axes.

    Raises
    ------
    ValueError
        If the file has other axes, or a PSF of so many axes does not fit them.
    """
    written = f"its axes are {metadata.axes or '?' * len(metadata.sizes)}YX, {metadata.sizes or 'none'} before the rows"
    if axis is not None and len(axis) != len(metadata.sizes):
        raise ValueError(f"--axis {axis}YX does not fit {source}: {written}")
    if axis not in (None, metadata.axes):
        metadata = _described_anew(metadata, axes=axis)
    volume, deep = space == 3, "Z" in metadata.axes
    if deep and not (volume or planes):
        raise ValueError(
            f"{source} is a volume ({metadata.axes}YX), and the PSF has no axis Z: give one in 3-D (a file with "
            "planes, or a form with three sizes), or --planes, which restores each plane by itself and leaves the "
            "light of the planes above and below it; if Z is no depth, name the axes with --axis"
        )
    if planes and (volume or not deep):
        why = "the PSF is that of a volume" if volume else f"{source} has no axis Z"
        raise ValueError(f"--planes does nothing here: {why}; leave it out")
    if volume and not (deep and set(metadata.axes) <= set("TCZ")):
        raise ValueError(
            f"the PSF has three axes, and {source} none that is Z, or one of no known name: {written}; name them "
            "(--axis ZYX, TZYX, CZYX or TCZYX), or use a PSF in 2-D"
        )
    letters = metadata.axes or "?" * len(metadata.sizes)
    wanted = {"T": time, "C": channel}
    for word, letter in (("time", "T"), ("channel", "C")):
        some, n = wanted[letter], dict(zip(letters, metadata.sizes, strict=True)).get(letter, 0)
        if some is not None and some.stop > n:
            raise ValueError(
                f"--{word} {some[-1]} is not in {source}, which has {n} of them: {written}; --axis names others"
            )
    ranges = [wanted.get(a) or range(n) for a, n in zip(letters, metadata.sizes, strict=True)]
    where = tuple(slice(r.start, r.stop) for r in ranges)
    if not (time or channel):
        return metadata, where
    pages = np.arange(math.prod(metadata.sizes)).reshape(metadata.sizes)[where].ravel()
    part = slice(channel.start, channel.stop) if channel else slice(None)
    named = {"labels": metadata.labels[part], "channels": metadata.channels[part]}
    alpha = metadata.alpha if metadata.alpha is None else metadata.alpha[pages]
    return _described_anew(metadata, sizes=tuple(map(len, ranges)), alpha=alpha, **named), where


def _described_anew(metadata: Metadata, **changes: Any) -> Metadata:
    """The changed metadata without the descriptions of ImageJ and OME; voxel size and names of channels stay."""
    lost = ["OME's or ImageJ's description (of other axes)"] if metadata.ome or metadata.imagej else []
    return replace(metadata, ome="", imagej=None, others=(*metadata.others, *lost), **changes)


def in_order(metadata: Metadata) -> tuple[Metadata, tuple[int, ...]]:
    """The metadata with the axes in the order of OME-Zarr, and the place of each before; without unknown letters."""
    axes = metadata.axes if set(metadata.axes) <= set("TCZ") else ""
    order = tuple(sorted(range(len(metadata.sizes)), key=lambda i: "TCZ".index(axes[i]) if axes else i))
    sizes = tuple(metadata.sizes[i] for i in order)
    return replace(metadata, axes="".join(axes[i] for i in order if axes), sizes=sizes), order


def in_words(metadata: Metadata, frame: tuple[int, ...], space: int) -> str:
    """How the axes of a file were read, and what was restored together."""
    nouns = {"T": "time points", "C": "channels", "Z": "planes"}
    words = [f"{n} {nouns.get(a, 'pages')}" for a, n in zip_longest(metadata.axes, metadata.sizes, fillvalue="?")]
    steps = [f"{metadata.spacing[a]:.4g}" for a in "ZYX" if a in metadata.spacing]
    rows_columns = " x ".join(map(str, frame[:2]))
    together = "planes restored together" if space == 3 else "each restored by itself"
    voxel = f"voxels of {' x '.join(steps)} µm" if len(steps) == 3 else "no voxel size in the file"
    return f"{metadata.axes or '?'}YX: {', '.join(words)} of {rows_columns}, {together}; {voxel}"

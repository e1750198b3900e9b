"""The axes of a file: named, selected, compared with those of the PSF, and put into words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from . import ome
from .metadata import Metadata

#: Time, channel and depth in the order of OME-Zarr.
_LETTERS = "TCZ"


def chosen(
    metadata: Metadata,
    source: str,
    space: int = 2,
    axis: str | None = None,
    time: range | None = None,
    channel: range | None = None,
    planes: bool = False,
) -> tuple[Metadata, tuple[slice, ...]]:
    """The metadata of what is to be restored, and where that is along the axes of the pages.

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
        If the file has other axes, or they do not say what a PSF of so many axes has blurred.
    """
    if axis is not None:
        metadata = _named(metadata, axis, source)
    axes, volume = f"{metadata.axes}YX", space == 3
    if "Z" in axes and not volume and not planes:
        raise ValueError(
            f"{source} is a volume ({axes}), and the PSF has no axis Z: give one in 3-D (a file with planes, or a form "
            "with three sizes), or --planes, which restores each plane by itself and leaves the light of the planes "
            "above and below it; if Z is no depth, name the axes with --axis"
        )
    if planes and (volume or "Z" not in axes):
        why = "the PSF is that of a volume" if volume else f"{source} has no axis Z ({axes})"
        raise ValueError(f"--planes does nothing here: {why}; leave it out")
    if volume and "Z" not in axes:
        possible = {1: "ZYX", 2: "TZYX or CZYX", 3: "TCZYX"}.get(len(metadata.sizes))
        instead = f"name them (--axis {possible}), or use" if possible else "use"
        raise ValueError(
            f"the PSF has three axes, and {source} has none that it names Z ({_written(metadata)}): {instead} a PSF in "
            "2-D"
        )
    return _selected(metadata, {"T": time, "C": channel}, source)


def _written(metadata: Metadata) -> str:
    """The axes of a file, and their lengths."""
    sizes = " x ".join(map(str, metadata.sizes)) or "one page"
    return f"its axes are {metadata.axes or '?' * len(metadata.sizes)}YX, {sizes} before rows and columns"


def _named(metadata: Metadata, letters: str, source: str) -> Metadata:
    if len(letters) != len(metadata.sizes):
        raise ValueError(f"--axis {letters}YX does not fit {source}: {_written(metadata)}")
    if letters == metadata.axes:
        return metadata
    lost = ("OME's description (its axes are other ones)",) if metadata.ome else ()
    return replace(metadata, axes=letters, ome="", others=(*metadata.others, *lost))


def _selected(
    metadata: Metadata, wanted: dict[str, range | None], source: str
) -> tuple[Metadata, tuple[slice, ...]]:
    there = dict(zip(metadata.axes, metadata.sizes, strict=False))
    for letter, some in wanted.items():
        word = {"T": "time", "C": "channel"}[letter]
        if some is not None and some.stop > there.get(letter, 0):
            n = there.get(letter)
            has = (
                f"there are {n}, from 0 to {n - 1}" if n else f"there is no axis {letter}; --axis names axes"
            )
            raise ValueError(f"--{word} {some[-1]} is not in {source}: {has} ({_written(metadata)})")
    letters = metadata.axes or "?" * len(metadata.sizes)
    ranges = [wanted.get(a) or range(n) for a, n in zip(letters, metadata.sizes, strict=True)]
    where = tuple(slice(r.start, r.stop) for r in ranges)
    if not any(wanted.values()):
        return metadata, where
    picked = dict(zip(letters, ranges, strict=True))
    pages = np.arange(math.prod(metadata.sizes)).reshape(metadata.sizes)[where].ravel()
    channels = picked.get("C", range(len(metadata.labels)))
    imagej = metadata.imagej and {name: value for name, value in metadata.imagej.items() if name != "Ranges"}
    for name, kept in (("Labels", pages), ("LUTs", channels)):
        if imagej and isinstance(imagej.get(name), list):
            imagej[name] = [value for i, value in enumerate(imagej[name]) if i in kept]
    return replace(
        metadata,
        sizes=tuple(map(len, ranges)),
        labels=tuple(metadata.labels[i] for i in channels if metadata.labels),
        imagej=imagej,
        ome=ome.selected(metadata.ome, picked),
        alpha=metadata.alpha if metadata.alpha is None else metadata.alpha[pages],
    ), where


def in_order(metadata: Metadata) -> tuple[Metadata, tuple[int, ...]]:
    """The metadata with the axes in the order of OME-Zarr, and the place of each before; without unknown letters."""
    known = set(metadata.axes) <= set(_LETTERS)
    axes, places = metadata.axes if known else "", range(len(metadata.sizes))
    order = tuple(sorted(places, key=lambda i: _LETTERS.index(axes[i]) if axes else i))
    sizes = tuple(metadata.sizes[i] for i in order)
    return replace(metadata, axes="".join(axes[i] for i in order if axes), sizes=sizes), order


def in_words(metadata: Metadata, frame: tuple[int, ...], space: int) -> str:
    """How the axes of a file were read, and what was restored together."""
    counts = dict(zip(metadata.axes, metadata.sizes, strict=False))
    nouns = {"T": "time points", "C": "channels"} | ({"Z": "planes"} if space == 2 else {})
    words = [f"{counts[a]} {noun}" for a, noun in nouns.items() if a in counts]
    if space == 3:
        steps = [metadata.spacing.get(a, 0.0) for a in "ZYX"]
        voxel = " x ".join(f"{step:.4g}" for step in steps) + " µm" if all(steps) else "no size in the file"
        words.append(f"a volume of {' x '.join(map(str, (counts['Z'], *frame[:2])))} voxels ({voxel})")
    if not set(counts) <= set(_LETTERS) or not counts:
        words = [f"{math.prod(metadata.sizes)} pages along an axis that the file does not name"]
    return f"{metadata.axes}YX: {' of '.join(words)}{', each page restored by itself' if space == 2 else ''}"

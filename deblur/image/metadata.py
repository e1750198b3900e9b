"""What a picture's file says beside its pixels: read here, and carried to the file that is written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np

from .arrays import is_colour

# Tags by which a TIFF says how its pixels are stored, how large they are, and what is read apart from EXIF here.
_STORAGE = {*range(254, 267), 273, *range(277, 298), 301, *range(317, 348), *range(512, 533), 700, 34675}
_DAMAGED = "EXIF (it cannot be read)"
_ORIENTATION, _DESCRIPTION, _SOFTWARE = 274, 270, 305
_EXIF, _GPS = 0x8769, 0x8825
_WIDTH, _HEIGHT, _INTEROPERABILITY = 40962, 40963, 40965


@dataclass(frozen=True)
class Metadata:
    """What a picture's file says beside its pixels.

    Attributes
    ----------
    exif : bytes
        As PNG, JPEG and TIFF hold it; without the orientation, because `read` turns the pixels upright.
    icc : bytes
        Colour profile.
    dpi : (float, float) or None
        Pixels per inch, across and down.
    axis : str
        The letter that a TIFF gives to the axis of its pages, such as "Z" or "C".
    others : tuple of str
        In words, what the file holds that no file written here would.
    """

    exif: bytes = b""
    icc: bytes = b""
    dpi: tuple[float, float] | None = None
    axis: str = ""
    others: tuple[str, ...] = ()

    def fitted(self, image: np.ndarray) -> Metadata:
        """Without the colour profile if that is for colour and the image is grey, or the reverse."""
        if self.icc and self.icc[16:20] != (b"RGB " if is_colour(image) else b"GRAY"):
            return replace(self, icc=b"", others=(*self.others, "ICC profile (not for these colours)"))
        return self


def turned(orientation: int) -> bool:
    """Whether the tag Orientation exchanges rows and columns."""
    return orientation in (5, 6, 7, 8)


def of_pillow(picture: Any, orientation: int) -> Metadata:
    """The metadata of a `PIL.Image.Image` that has been loaded and turned upright from this orientation."""
    info = picture.info
    words = {"xmp": "XMP", "comment": "comment", "gamma": "gamma", "photoshop": "Photoshop's data"}
    others = [word for key, word in words.items() if info.get(key)]
    if getattr(picture, "text", None) and set(picture.text) - {"XML:com.adobe.xmp"}:
        others.append("PNG texts")
    try:
        exif = _exif(picture.getexif(), picture.size)
    except Exception:  # of as many kinds as tags can be damaged
        exif, others = b"", [*others, _DAMAGED]
    dpi = tuple(float(d) for d in info.get("dpi", (0, 0)))
    dpi = dpi[:: -1 if turned(orientation) else 1]
    return Metadata(
        exif=exif,
        icc=info.get("icc_profile") or b"",
        dpi=(dpi[0], dpi[1]) if all(0 < d < 1e7 for d in dpi) else None,
        others=tuple(others),
    )


def of_tiff(tiff: Any, f: BinaryIO, axis: str) -> Metadata:
    """The metadata of an open `tifffile.TiffFile` that reads `f`."""
    from PIL import Image

    page = tiff.series[0].keyframe
    turn = -1 if turned(orientation_of(page)) else 1
    structured = {
        "is_imagej": "ImageJ's scale and settings",
        "is_ome": "OME's pixel size and channel names",
        "is_geotiff": "place on the map (GeoTIFF)",
        "is_lsm": "LSM data",
        "is_stk": "MetaMorph's data",
        "is_nih": "NIH Image's data",
        "is_fluoview": "FluoView's data",
    }
    others = [word for flag, word in structured.items() if getattr(tiff, flag, False)]
    if 700 in page.tags:
        others.append("XMP")
    drop = set(_STORAGE)
    if others or tiff.is_shaped:
        drop.add(_DESCRIPTION)  # it holds what is named above, or the shape of the array
    if page.software.startswith("tifffile"):
        drop.add(_SOFTWARE)
    tags = Image.Exif()
    f.seek(0)
    try:
        tags.load_from_fp(f)
        exif = _exif(tags, (page.imagewidth, page.imagelength)[::turn], drop)
    except Exception:  # of as many kinds as tags can be damaged
        exif, others = b"", [*others, _DAMAGED]
    profile = page.tags.get(34675)
    return Metadata(
        exif=exif,
        icc=b"" if profile is None else bytes(profile.value),
        dpi=_tiff_dpi(page, turn),
        axis=axis if axis in ("Z", "T", "C") else "",
        others=tuple(others),
    )


def orientation_of(page: Any) -> int:
    """The tag Orientation of a `tifffile.TiffPage`, 1 to 8."""
    return int(page.tags.valueof("Orientation", 1))


def _tiff_dpi(page: Any, turn: int) -> tuple[float, float] | None:
    try:
        per_inch = {2: 1.0, 3: 2.54}[int(page.tags["ResolutionUnit"].value)]
        x, y = (page.tags[name].value for name in ("XResolution", "YResolution"))
        dpi = per_inch * x[0] / x[1], per_inch * y[0] / y[1]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None  # none is given, or none in a unit of length
    return dpi[::turn] if all(0 < d < 1e7 for d in dpi) else None


def _exif(tags: Any, size: tuple[int, int], drop: Collection[int] = ()) -> bytes:
    """A `PIL.Image.Exif` as bytes, for a picture of this (width, height) whose pixels stand upright."""
    from PIL import Image

    kept = Image.Exif()
    for tag, value in tags.items():
        if tag not in (_ORIENTATION, _EXIF, _GPS, *drop):
            kept[tag] = value
    for sub in (_EXIF, _GPS):
        inner = dict(tags.get_ifd(sub))
        inner.pop(_INTEROPERABILITY, None)  # a place in the old file
        inner |= {tag: n for tag, n in zip((_WIDTH, _HEIGHT), size, strict=True) if tag in inner}
        if inner:
            kept[sub] = inner
    return kept.tobytes() if len(kept) else b""

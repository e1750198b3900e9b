"""Read the metadata of image files, and write them to the restored file."""

from __future__ import annotations

import functools
import io
import math
import struct
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np

from ..device import Array
from ..errors import check_axis, check_count
from . import ome, png
from .arrays import is_colour, shaped

# Tags of a TIFF that describe the storage and size of its pixels, and tags that are read separately from EXIF.
_STORAGE = {*range(254, 267), 273, *range(277, 298), 301, *range(317, 348), *range(512, 533), 700, 34675}
# Chunks of a PNG that are kept: its texts, and its colour space (tone curve and primaries).
_TEXTS, _COLOURS = (b"tEXt", b"zTXt", b"iTXt"), (b"sRGB", b"gAMA", b"cHRM", b"cICP", b"mDCV", b"cLLI")
#: Suffixes of FITS files.
FITS = ".fits", ".fit", ".fts"


@dataclass(frozen=True)
class Metadata:
    """The metadata of an image file: everything in it except the pixels.

    Attributes
    ----------
    exif : bytes
        The EXIF data without the orientation, because `read` rotates the pixels upright.
    icc : bytes
        The colour profile.
    dpi : (float, float) or None
        Pixels per inch, across and down.
    orientation : int
        The orientation tag of the file, 1 (upright) to 8. `read` has already rotated the pixels.
    alpha : (M, N) or (K, M, N) ndarray or None
        The opacity of each pixel, in the dtype of the file; None if all pixels are opaque.
    axes : str
        The letters of the axes of the pages in the file, such as "Z" or "TC"; "Q" or "I" if they are unknown.
    sizes : tuple of int
        The lengths of these axes, whose product is the number of pages.
    spacing : dict of str to float
        The step along each axis that the file gives: in micrometres along Z, Y and X, in seconds along T.
    labels : tuple of str
        The names of the channels.
    chunks : tuple of (bytes, bytes)
        Texts and colour space of a PNG, as chunks (name, content).
    imagej : dict or None
        ImageJ's settings as tifffile returns them, with "resolution" (pixels per unit, across and down) and "dtype".
    ome : str
        The XML of an OME-TIFF.
    ngff : dict
        The description of the largest level of an OME-Zarr: axes, units, steps, origin, name.
    channels : tuple of dict
        The descriptions of the channels in an OME-Zarr.
    fits : str
        The header of a FITS image, with one line for each card.
    others : tuple of str
        Contents of the file, in words, that deblur cannot write to any file.
    """

    exif: bytes = b""
    icc: bytes = b""
    dpi: tuple[float, float] | None = None
    orientation: int = 1
    alpha: np.ndarray | None = field(default=None, compare=False)
    axes: str = ""
    sizes: tuple[int, ...] = ()
    spacing: dict[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    chunks: tuple[tuple[bytes, bytes], ...] = ()
    imagej: dict[str, Any] | None = None
    ome: str = ""
    ngff: dict[str, Any] = field(default_factory=dict)
    channels: tuple[dict[str, Any], ...] = ()
    fits: str = ""
    others: tuple[str, ...] = ()

    @property
    def camera(self) -> str:
        """Make and model of the camera, if EXIF names them; the make is not repeated if the model begins with it."""
        tags = _exif_of(self.exif)
        make, model = (str(tags.get(tag, "")).strip("\0 ") for tag in (271, 272))
        within = make and model.lower().startswith(make.split()[0].lower())
        return model if within else f"{make} {model}".strip()

    def voxel(self, axes: int) -> tuple[float, ...] | None:
        """Return the sides of a voxel (or, with two axes, of a pixel) in micrometres: NaN for an unknown side, None if
        all are.
        """
        sides = tuple(self.spacing.get(a, math.nan) for a in "ZYX"[3 - axes :])
        return None if all(map(math.isnan, sides)) else sides

    def fitted(self, image: np.ndarray) -> Metadata:
        """Return the metadata for this image: with its pages, and without a colour profile that does not match its
        colours.
        """
        pages = image.shape[: image.ndim - is_colour(image) - 2]
        found = self if math.prod(pages) == math.prod(self.sizes) else replace(self, sizes=pages)
        if self.icc and self.icc[16:20] != (b"RGB " if is_colour(image) else b"GRAY"):
            return replace(found, icc=b"", others=(*self.others, "ICC profile (not for these colours)"))
        return found

    def carried(self, suffix: str, image: Array, bits: int) -> Metadata:
        """Return the metadata that a file with this suffix can hold, for this image with `bits` bits per sample."""
        if suffix in FITS:
            return Metadata(fits=self.fits)
        if suffix == ".zarr":
            return Metadata(spacing=self.spacing, labels=self.labels)
        is_tiff, is_jpeg, colour = suffix.startswith(".tif"), suffix.startswith(".j"), is_colour(image)
        known = not is_tiff or math.prod(self.sizes) == math.prod(image.shape[: image.ndim - colour - 2])
        # A JPEG has one segment of at most 65533 bytes for EXIF, and a BigTIFF stores EXIF in another form.
        exif_fits = len(self.exif) <= 65533 if is_jpeg else image.size * bits // 8 <= 2**32 - 2**25
        # ImageJ supports no transparency, and only colours of 8 bits.
        plain, space = self.alpha is None and self.orientation == 1, image.shape[: image.ndim - colour][-2:]
        for_imagej = self.alpha is None and not turned(self.orientation) and (bits == 8 or not colour)
        return replace(
            self,
            exif=self.exif if exif_fits or suffix == ".png" else b"",
            dpi=None if suffix == ".webp" or (is_jpeg and self.dpi and max(self.dpi) >= 65535) else self.dpi,
            alpha=None if is_jpeg else self.alpha,
            axes=self.axes if known and set(self.axes) <= set("TZC") else "",
            sizes=self.sizes if known else (),
            spacing=self.spacing if is_tiff and known else {},
            chunks=self.chunks if suffix == ".png" else (),
            imagej=self.imagej if is_tiff and for_imagej else None,
            ome=ome.described(self.ome, space, self.sizes, bits) if is_tiff and known and plain else "",
            fits="",
        )

    def as_chunks(self) -> list[png.Chunk]:
        """Return the PNG chunks for the metadata, without the opacity."""
        found = list(self.chunks)
        if self.icc:
            found = [c for c in found if c[0] not in (b"sRGB", b"gAMA", b"cHRM")]
            found.insert(0, (b"iCCP", b"ICC profile\0\0" + zlib.compress(self.icc)))
        if self.dpi:
            found.append((b"pHYs", struct.pack(">IIB", *(round(d / 0.0254) for d in self.dpi), 1)))
        if self.exif:
            found.append((b"eXIf", self.exif.removeprefix(b"Exif\0\0")))
        return found

    def lost(self, kept: Metadata) -> list[str]:
        """Return the names of the parts that are not in `kept`."""
        names = {name for name, _ in self.chunks}
        # Every format means sRGB if no colour space is named.
        space = names.intersection(_COLOURS) and b"sRGB" not in names and not self.icc
        said = "pixel size and channel names"
        held = {
            "EXIF": (self.exif, kept.exif),
            "resolution": (self.dpi, kept.dpi),
            "transparency": (self.alpha is not None, kept.alpha is not None),
            "PNG texts": (names.intersection(_TEXTS), kept.chunks),
            "PNG colour space": (space, kept.chunks),
            f"ImageJ's {'' if kept.spacing else 'scale and '}settings": (self.imagej, kept.imagej),
            f"OME's {'further description' if kept.spacing else said}": (self.ome, kept.ome),
            "FITS header": (self.fits, kept.fits),
            "voxel size": (self.spacing and not (self.ome or self.imagej), kept.spacing),
        }
        return [*self.others, *(words for words, (before, after) in held.items() if before and not after)]


def upright(a: Array, orientation: int, rows: int | None = None) -> Array:
    """Return an image rotated and mirrored by the tag Orientation, 1 to 8, of a camera's file.

    Parameters
    ----------
    a : array
        The image in the orientation of the sensor.
    orientation : int
        The orientation as in `Metadata`.
    rows : int, optional
        The axis of the rows; the columns are the next axis. By default the axes are those of images from `read`.

    Returns
    -------
    array
        The upright image.
    """
    a, orientation = shaped(a), check_count(orientation, "orientation", 0)
    rows = check_axis((-3 if is_colour(a) else -2) if rows is None else rows, a.ndim, "rows")
    if turned(orientation):
        a = a.swapaxes(rows, rows + 1)
    if orientation in (3, 4, 7, 8):
        a = np.flip(a, rows)
    if orientation in (2, 3, 6, 7):
        a = np.flip(a, rows + 1)
    return a if orientation == 1 else np.ascontiguousarray(a)


def inverse(orientation: int) -> int:
    """Return the orientation with which `upright` reverses this one."""
    return 14 - orientation if orientation in (6, 8) else orientation


def turned(orientation: int) -> bool:
    """Return True if the tag Orientation exchanges rows and columns."""
    return orientation in (5, 6, 7, 8)


def of_pillow(picture: Any, orientation: int, f: BinaryIO | None = None) -> Metadata:
    """Return the metadata of a `PIL.Image.Image` that was loaded and rotated upright from this orientation.

    `f` is its file if that is a PNG.
    """
    info = picture.info
    words = {"xmp": "XMP", "comment": "comment", "photoshop": "Photoshop's data"}
    exif, damaged = _exif(picture.getexif, picture.size)
    # Texts with EXIF or XMP describe the old pixels.
    old = b"XML:com.adobe.xmp\0", b"Raw profile type "
    chunks = [] if f is None else png.chunks(f, (*_TEXTS, *_COLOURS))
    return Metadata(
        exif=exif,
        icc=info.get("icc_profile") or b"",
        dpi=_dpi(info.get("dpi", (0, 0)), orientation),
        orientation=orientation,
        chunks=tuple(c for c in chunks if c[0] not in _TEXTS or not c[1].startswith(old)),
        others=(*(word for key, word in words.items() if info.get(key)), *damaged),
    )


def _dpi(resolution: tuple[float, float], orientation: int) -> tuple[float, float] | None:
    x, y = (float(d) for d in resolution[:: -1 if turned(orientation) else 1])
    return (x, y) if 0 < x < 1e7 and 0 < y < 1e7 else None


def of_tiff(tiff: Any, f: BinaryIO, axes: str, sizes: tuple[int, ...] = ()) -> Metadata:
    """Return the metadata of an open `tifffile.TiffFile` that reads `f`; `axes` and `sizes` are those of its pages."""
    from PIL import Image

    page = tiff.series[0].keyframe
    orientation = int(page.tags.valueof("Orientation", 1))
    turn = -1 if turned(orientation) else 1
    formats = ("geotiff", "lsm", "stk", "nih", "fluoview")
    others = [f"{name.upper()} data" for name in formats if getattr(tiff, f"is_{name}", False)]
    if 700 in page.tags:
        others.append("XMP")
    imagej = None
    if tiff.is_imagej:
        shape = ("images", "channels", "slices", "frames", "hyperstack")
        imagej = {name: value for name, value in (tiff.imagej_metadata or {}).items() if name not in shape}
        imagej |= {"resolution": page.resolution[::turn], "dtype": page.dtype}
    described = tiff.ome_metadata or ""
    drop = set(_STORAGE)
    if others or tiff.is_shaped or imagej is not None or described:
        drop.add(270)  # the description contains the data above, or the shape of the array
    if page.software.startswith("tifffile"):
        drop.add(305)

    def tags() -> Any:
        f.seek(0)
        found = Image.Exif()
        found.load_from_fp(f)
        return found

    exif, damaged = _exif(tags, (page.imagewidth, page.imagelength)[::turn], drop)
    profile, measured = page.tags.get(34675), page.tags.valueof(296) in (2, 3) and 282 in page.tags
    return Metadata(
        exif=exif,
        icc=b"" if profile is None else bytes(profile.value),
        dpi=_dpi(page.get_resolution("INCH") if measured else (0, 0), orientation),
        orientation=orientation,
        axes=axes,
        sizes=sizes,
        **ome.steps_and_labels(described, imagej),
        imagej=imagej,
        ome=described,
        others=(*others, *damaged),
    )


def _exif(read: Callable[[], Any], size: tuple[int, int], drop: Collection[int] = ()) -> tuple[bytes, tuple[str, ...]]:
    """Return the EXIF bytes of the tags from `read`, for an upright image of this (width, height), and a remark if
    damaged.
    """
    try:
        tags = read()
        for tag in (274, *drop):  # the orientation first
            tags.pop(tag, None)
        for sub in (34665, 34853):  # the tags of EXIF and of GPS
            inner = tags.get_ifd(sub)
            inner.pop(40965, None)  # an offset in the old file
            inner |= {tag: n for tag, n in zip((40962, 40963), size, strict=True) if tag in inner}
        return (tags.tobytes() if len(tags) else b""), ()
    except Exception:  # damaged tags raise many kinds of exceptions
        return b"", ("EXIF (it cannot be read)",)


# ---------------------------------------------------------------------------------------------
# Writing
# ---------------------------------------------------------------------------------------------


def fits(samples: np.ndarray, metadata: Metadata) -> bytes:
    """Return a FITS file of floating-point images, (M, N) or stacks of them, with the header of the input file."""
    from astropy.io import fits as files

    header = files.Header.fromstring(metadata.fits, sep="\n")
    for about_the_old_values in ("BLANK", "CHECKSUM", "DATASUM", "DATAMIN", "DATAMAX"):
        header.remove(about_the_old_values, ignore_missing=True)
    buffer = io.BytesIO()
    files.PrimaryHDU(samples, header).writeto(buffer, output_verify="silentfix+ignore")
    return buffer.getvalue()


def tiff(samples: np.ndarray, metadata: Metadata) -> bytes | Callable[[BinaryIO], object]:
    """Return a TIFF of images (M, N) or (M, N, 3), or of stacks of them, with metadata that `Metadata.carried`
    returned.

    The result is the content of the file, or a function that writes it to an open file.
    """
    import tifffile

    colour = is_colour(samples)
    pages = samples.shape[: samples.ndim - colour - 2]
    sizes = metadata.sizes if metadata.axes else pages
    options: dict[str, Any] = {"iccprofile": metadata.icc or None}
    if metadata.dpi:
        options |= {"resolution": metadata.dpi, "resolutionunit": "INCH"}
    if metadata.alpha is not None:
        colours = samples if colour else samples[..., None]
        samples = np.concatenate([colours, metadata.alpha[..., None]], axis=-1)
        options |= {"extrasamples": ["unassalpha"], "planarconfig": "contig"}
    inner = "YXS" if colour or metadata.alpha is not None else "YX"
    exif = _exif_of(metadata.exif)
    if metadata.imagej is not None:
        options |= _imagej_options(metadata.imagej, samples.dtype)
        if metadata.axes or not sizes:
            options["metadata"]["axes"] = (metadata.axes if sizes else "") + inner
    elif metadata.ome:
        options |= {"metadata": None, "description": metadata.ome.encode()}
    elif (metadata.spacing or metadata.labels) and metadata.alpha is None and len(metadata.axes) == len(sizes):
        options |= ome.settings(metadata.axes + inner, metadata.spacing, metadata.labels)
    else:
        # The file stores the shape of a stack, since a single page may be a stack, too.
        options["metadata"] = ({"axes": metadata.axes + inner} if metadata.axes else {}) if pages else None
        options["description"] = _ascii(exif.get(270))
    write = functools.partial(
        tifffile.imwrite,
        data=samples.reshape(*sizes, *samples.shape[len(pages) :]),
        photometric="rgb" if colour else "minisblack",
        byteorder="<",
        software=_ascii(exif.get(305)) or "tifffile.py",
        **options,
    )
    if not len(exif):
        return write  # straight into the file: a stack may be large
    buffer = io.BytesIO()
    write(buffer)
    return _with_exif(buffer.getvalue(), exif)


def _imagej_options(settings: dict[str, Any], dtype: np.dtype) -> dict[str, Any]:
    settings = dict(settings)
    resolution, old = settings.pop("resolution"), settings.pop("dtype")
    if old != dtype:
        settings = {name: value for name, value in settings.items() if name not in ("min", "max", "Ranges")}
    for name, value in settings.items():
        if name in ("Labels", "LUTs") and not isinstance(value, list):
            settings[name] = [value]  # tifffile returns a single one without a list
        if isinstance(value, str) and name[0].islower():  # a line of the description, which is ASCII
            settings[name] = value.encode("ascii", "backslashreplace").decode().replace("\\xb5", "\\u00B5")
    return {"imagej": True, "resolution": resolution, "metadata": settings}


def _ascii(text: Any) -> str | None:
    return text if isinstance(text, str) and text.isascii() else None


def _exif_of(exif: bytes) -> Any:
    from PIL import Image

    tags = Image.Exif()
    tags.load(exif)
    return tags


def _with_exif(content: bytes, exif: Any) -> bytes:
    """Return a little-endian TIFF with the tags of a `PIL.Image.Exif` added to its first page.

    The directory of the page is written again at the end of the file, where there is room for more entries.
    """
    content += b"\0" * (len(content) % 2)
    exif.endian = "<"
    added = exif.tobytes(len(content))[14:]  # after the header of a file: a directory and its values
    (first,) = struct.unpack_from("<I", content, 4)
    here, following = _entries(content, first)
    known = {entry[:2] for entry in here}  # their tags
    entries = [*here, *(entry for entry in _entries(added, 0)[0] if entry[:2] not in known)]
    entries.sort(key=lambda entry: struct.unpack_from("<H", entry))
    directory = struct.pack("<H", len(entries)) + b"".join(entries) + following
    at = struct.pack("<I", len(content) + len(added))
    return b"".join([content[:4], at, content[8:], added, directory])


def _entries(content: bytes, at: int) -> tuple[list[bytes], bytes]:
    """Return the entries of a TIFF directory, and the four bytes that point to the next directory."""
    (count,) = struct.unpack_from("<H", content, at)
    end = at + 2 + 12 * count
    return [content[start : start + 12] for start in range(at + 2, end, 12)], content[end : end + 4]

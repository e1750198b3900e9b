"""What a picture's file says beside its pixels: read here, and carried to the file that is written."""

from __future__ import annotations

import functools
import io
import math
import struct
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np

from ..device import Array
from . import png
from .arrays import is_colour

# Tags by which a TIFF says how its pixels are stored, how large they are, and what is read apart from EXIF here.
_STORAGE = {*range(254, 267), 273, *range(277, 298), 301, *range(317, 348), *range(512, 533), 700, 34675}
_DAMAGED = "EXIF (it cannot be read)"
_ORIENTATION, _DESCRIPTION, _SOFTWARE, _MAKE, _MODEL = 274, 270, 305, 271, 272
_EXIF, _GPS = 0x8769, 0x8825
_WIDTH, _HEIGHT, _INTEROPERABILITY = 40962, 40963, 40965


#: Chunks that a PNG keeps: its texts, and by what curve and primaries its numbers are colours.
_TEXTS, _COLOURS = (b"tEXt", b"zTXt", b"iTXt"), (b"sRGB", b"gAMA", b"cHRM", b"cICP", b"mDCV", b"cLLI")
PNG_CHUNKS = (*_TEXTS, *_COLOURS)
_IMAGEJ, _OME = "ImageJ's scale and settings", "OME's pixel size and channel names"
#: What ImageJ's settings say of the array's shape.
_COUNTED = "images", "channels", "slices", "frames", "hyperstack"
#: How the name of a FITS file ends.
FITS = ".fits", ".fit", ".fts"


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
    orientation : int
        How the camera said that the pixels lay, 1 (upright) to 8; they have been turned since.
    camera : str
        Make and model, if EXIF names them.
    alpha : (M, N) or (K, M, N) ndarray or None
        The opacity of each pixel, if the file has some that are not opaque; in the file's dtype.
    axes : str
        The letters that a TIFF gives to the axes of its pages, such as "Z" or "TC"; empty if they are not known.
    sizes : tuple of int
        The lengths of these axes, whose product is the number of pages.
    chunks : tuple of (bytes, bytes)
        Texts and colour space of a PNG, as it holds them: (name, content).
    imagej : dict or None
        ImageJ's settings as tifffile gives them, with "resolution", pixels per unit across and down, and "dtype".
    ome : str
        The XML of an OME-TIFF.
    fits : str
        The header of a FITS image, a line for each card.
    others : tuple of str
        In words, what the file holds that no file written here would.
    """

    exif: bytes = b""
    icc: bytes = b""
    dpi: tuple[float, float] | None = None
    orientation: int = 1
    camera: str = ""
    alpha: np.ndarray | None = field(default=None, compare=False)
    axes: str = ""
    sizes: tuple[int, ...] = ()
    chunks: tuple[tuple[bytes, bytes], ...] = ()
    imagej: dict[str, Any] | None = None
    ome: str = ""
    fits: str = ""
    others: tuple[str, ...] = ()

    def fitted(self, image: np.ndarray) -> Metadata:
        """Without the colour profile if that is for colour and the image is grey, or the reverse."""
        if self.icc and self.icc[16:20] != (b"RGB " if is_colour(image) else b"GRAY"):
            return replace(self, icc=b"", others=(*self.others, "ICC profile (not for these colours)"))
        return self

    def carried(self, suffix: str, image: Array, bits: int) -> Metadata:
        """The part of it that goes into a file with this suffix, for this image with so many bits a sample."""
        if suffix in FITS:
            return Metadata(fits=self.fits)
        kept = replace(self, fits="")
        if suffix in (".jpg", ".jpeg"):
            kept = replace(
                kept, exif=self.exif if len(self.exif) <= 65533 else b""
            )  # it has one segment for it
            kept = replace(kept, dpi=self.dpi if self.dpi and max(self.dpi) < 65535 else None, alpha=None)
        if suffix != ".png":
            kept = replace(kept, chunks=())
        colour = is_colour(image)
        pages = image.shape[: image.ndim - colour - 2]
        if not suffix.startswith(".tif"):
            return replace(kept, imagej=None, ome="")
        if math.prod(self.sizes) != math.prod(pages):
            kept = replace(kept, axes="", sizes=())
        if self.alpha is not None or turned(self.orientation) or (colour and bits != 8):
            kept = replace(kept, imagej=None)  # it knows no transparency, and colours of 8 bits alone
        if kept.ome:
            kept = replace(kept, ome=_ome_for(self, image, bits))
        if image.size * bits // 8 > 2**32 - 2**25:
            kept = replace(kept, exif=b"")  # a BigTIFF, which has EXIF in another form
        return kept

    def as_chunks(self) -> list[tuple[bytes, bytes]]:
        """What a PNG says beside its pixels, but for their opacity."""
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
        """In words, what is not in `kept`."""
        texts = [content for name, content in self.chunks if name in _TEXTS]
        named = any(name == b"sRGB" for name, _ in self.chunks)  # what every format means where none is named
        space = [name for name, _ in self.chunks if name in _COLOURS and name != b"sRGB"]
        return [
            *self.others,
            *(
                word
                for word, is_lost in {
                    "EXIF": self.exif and not kept.exif,
                    "resolution": self.dpi and not kept.dpi,
                    "transparency": self.alpha is not None and kept.alpha is None,
                    "PNG texts": texts and not kept.chunks,
                    "PNG colour space": space and not kept.chunks and not named and not self.icc,
                    _IMAGEJ: self.imagej and not kept.imagej,
                    _OME: self.ome and not kept.ome,
                    "FITS header": self.fits and not kept.fits,
                }.items()
                if is_lost
            ),
        ]


def turned(orientation: int) -> bool:
    """Whether the tag Orientation exchanges rows and columns."""
    return orientation in (5, 6, 7, 8)


def of_pillow(picture: Any, orientation: int, f: BinaryIO | None = None) -> Metadata:
    """The metadata of a `PIL.Image.Image` that has been loaded and turned upright from this orientation.

    `f` is its file, if that is a PNG.
    """
    info = picture.info
    words = {"xmp": "XMP", "comment": "comment", "photoshop": "Photoshop's data"}
    others = [word for key, word in words.items() if info.get(key)]
    # Texts that hold EXIF or XMP speak of the old pixels.
    told = [] if f is None else [c for c in png.chunks(f, PNG_CHUNKS) if not _speaks_of_pixels(c)]
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
        orientation=orientation,
        camera=_camera(exif),
        chunks=tuple(told),
        others=tuple(others),
    )


def _speaks_of_pixels(chunk: tuple[bytes, bytes]) -> bool:
    return chunk[0] in _TEXTS and chunk[1].startswith((b"XML:com.adobe.xmp\0", b"Raw profile type "))


def _camera(exif: bytes) -> str:
    """Make and model; the make once where the model begins with it."""
    from PIL import Image

    tags = Image.Exif()
    tags.load(exif)
    make, model = (str(tags.get(tag, "")).strip("\0 ") for tag in (_MAKE, _MODEL))
    return model if make and model.lower().startswith(make.split()[0].lower()) else f"{make} {model}".strip()


def of_tiff(tiff: Any, f: BinaryIO, axes: str, sizes: tuple[int, ...] = ()) -> Metadata:
    """The metadata of an open `tifffile.TiffFile` that reads `f`; `axes` and `sizes` are those of its pages."""
    from PIL import Image

    page = tiff.series[0].keyframe
    orientation = orientation_of(page)
    turn = -1 if turned(orientation) else 1
    structured = {
        "is_geotiff": "place on the map (GeoTIFF)",
        "is_lsm": "LSM data",
        "is_stk": "MetaMorph's data",
        "is_nih": "NIH Image's data",
        "is_fluoview": "FluoView's data",
    }
    others = [word for flag, word in structured.items() if getattr(tiff, flag, False)]
    if 700 in page.tags:
        others.append("XMP")
    imagej = dict(tiff.imagej_metadata or {}) if tiff.is_imagej else None
    ome = (tiff.ome_metadata or "") if tiff.is_ome else ""
    drop = set(_STORAGE)
    if others or tiff.is_shaped or imagej is not None or ome:
        drop.add(_DESCRIPTION)  # it holds what is named above, or the shape of the array
    if page.software.startswith("tifffile"):
        drop.add(_SOFTWARE)
    if imagej is not None:
        imagej = {name: value for name, value in imagej.items() if name not in _COUNTED}
        imagej |= {"resolution": page.resolution[::turn], "dtype": page.dtype}
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
        orientation=orientation,
        camera=_camera(exif),
        axes=axes if set(axes) <= set("TZC") else "",
        sizes=sizes,
        imagej=imagej,
        ome=ome,
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


# ---------------------------------------------------------------------------------------------
# TIFF, written
# ---------------------------------------------------------------------------------------------


def _ome_for(metadata: Metadata, image: Array, bits: int) -> str:
    """The XML of an OME-TIFF for the same scene in other numbers; empty if it does not describe such an image.

    What it says of objective, channels and pixel size stays as it is. What it says of the file is written anew: the
    type of a sample, and that the planes follow each other in the order that it names.
    """
    if metadata.alpha is not None or metadata.orientation != 1:
        return ""
    try:
        root = ElementTree.fromstring(metadata.ome)
        space = root.tag[: root.tag.index("}") + 1] if root.tag.startswith("{") else ""
        (pixels,) = (p for picture in root.iter(f"{space}Image") for p in picture.findall(f"{space}Pixels"))
        rows, columns = image.shape[-3:-1] if is_colour(image) else image.shape[-2:]
        if (int(pixels.attrib["SizeY"]), int(pixels.attrib["SizeX"])) != (rows, columns):
            return ""
    except (ElementTree.ParseError, KeyError, ValueError):
        return ""
    ElementTree.register_namespace("", space.strip("{}"))
    root.attrib.pop("UUID", None)
    for name in ("SignificantBits", "Interleaved"):
        pixels.attrib.pop(name, None)
    pixels.attrib |= {"Type": {8: "uint8", 16: "uint16", 32: "float"}[bits], "BigEndian": "false"}
    for name in ("TiffData", "BinData", "MetadataOnly"):
        for old in pixels.findall(f"{space}{name}"):
            pixels.remove(old)
    planes = ElementTree.Element(f"{space}TiffData", IFD="0", PlaneCount=str(math.prod(metadata.sizes)))
    pixels.insert(len(pixels.findall(f"{space}Channel")), planes)
    return ElementTree.tostring(root, "unicode", xml_declaration=False)


def fits(samples: np.ndarray, metadata: Metadata) -> bytes:
    """A FITS file of floating-point numbers, (M, N) or stacks of them, with the header that they were read with."""
    from astropy.io import fits as files

    header = files.Header.fromstring(metadata.fits, sep="\n")
    for spoke_of_the_old in ("BLANK", "CHECKSUM", "DATASUM", "DATAMIN", "DATAMAX"):
        header.remove(spoke_of_the_old, ignore_missing=True)
    buffer = io.BytesIO()
    files.PrimaryHDU(samples, header).writeto(buffer, output_verify="silentfix+ignore")
    return buffer.getvalue()


def tiff(samples: np.ndarray, metadata: Metadata) -> bytes | Callable[[BinaryIO], object]:
    """A TIFF of these samples, (M, N), (M, N, 3) or stacks of them, with the metadata that `Metadata.carried` left.

    Its content, or what writes it into a file.
    """
    import tifffile

    colour = is_colour(samples)
    pages = samples.shape[: samples.ndim - colour - 2]
    sizes = metadata.sizes if metadata.axes else pages
    options: dict[str, Any] = {"iccprofile": metadata.icc or None}
    if metadata.dpi:
        options |= {"resolution": metadata.dpi, "resolutionunit": "INCH"}
    if metadata.alpha is not None:
        samples = np.concatenate(
            [samples if colour else samples[..., None], metadata.alpha[..., None]], axis=-1
        )
        options |= {"extrasamples": ["unassalpha"], "planarconfig": "contig"}
    inner = "YXS" if colour or metadata.alpha is not None else "YX"
    exif = _exif_of(metadata.exif)
    if metadata.imagej is not None:
        options |= _imagej_options(metadata.imagej, samples.dtype)
        options["metadata"] |= (
            {"axes": (metadata.axes if sizes else "") + inner} if metadata.axes or not sizes else {}
        )
    elif metadata.ome:
        options |= {"metadata": None, "description": metadata.ome.encode()}
    else:
        # The shape of a stack is noted in the file, since one of a single page is a stack too.
        options["metadata"] = ({"axes": metadata.axes + inner} if metadata.axes else {}) if pages else None
        options["description"] = _ascii(exif.get(_DESCRIPTION))
    write = functools.partial(
        tifffile.imwrite,
        data=samples.reshape(*sizes, *samples.shape[len(pages) :]),
        photometric="rgb" if colour else "minisblack",
        byteorder="<",
        software=_ascii(exif.get(_SOFTWARE)) or "tifffile.py",
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
            settings[name] = [value]  # tifffile gives the only one by itself
        if isinstance(value, str) and name[0].islower():  # a line of the description, which is ASCII
            settings[name] = value.encode("ascii", "backslashreplace").decode().replace("\\xb5", "\\u00B5")
    return {"imagej": True, "resolution": resolution, "metadata": settings}


def _ascii(text: Any) -> str | None:
    return text if isinstance(text, str) and text.isascii() else None


def _exif_of(exif: bytes) -> Any:
    from PIL import Image

    tags = Image.Exif()
    if exif:
        tags.load(exif)
    return tags


def _with_exif(content: bytes, exif: Any) -> bytes:
    """A TIFF, of which every number is little-endian, with the tags of a `PIL.Image.Exif` on its first page.

    The page's directory is written anew at the end of the file, where there is room for more entries.
    """
    content += b"\0" * (len(content) % 2)
    exif.endian = "<"
    added = exif.tobytes(len(content))[
        14:
    ]  # after the name and the header of a file: a directory and its values
    (first,) = struct.unpack_from("<I", content, 4)
    here, following = _entries(content, first)
    there, _ = _entries(added, 0)
    known = {tag for tag, _ in here}
    every = sorted([*here, *(entry for entry in there if entry[0] not in known)], key=lambda entry: entry[0])
    at = len(content) + len(added)
    directory = struct.pack("<H", len(every)) + b"".join(entry for _, entry in every) + following
    return b"".join([content[:4], struct.pack("<I", at), content[8:], added, directory])


def _entries(content: bytes, at: int) -> tuple[list[tuple[int, bytes]], bytes]:
    """The entries of a TIFF directory, each after its tag, and the four bytes that point to the next directory."""
    (count,) = struct.unpack_from("<H", content, at)
    entries = [content[at + 2 + 12 * i :][:12] for i in range(count)]
    return [(struct.unpack_from("<H", e)[0], e) for e in entries], content[at + 2 + 12 * count :][:4]

"""Read image files.

The content decides the format. tifffile reads TIFF, because it reports whether zero means white, whether the numbers
are indices into a palette, and whether a fourth sample is opacity. astropy reads FITS with its header. Pillow reads
PNG, JPEG and the rest. Messages and warnings of these packages are suppressed; errors are raised here, with the path.
"""

from __future__ import annotations

import bz2
import gzip
import io
import logging
import math
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..device import check_finite, format_bytes, require_memory
from ..errors import check_flags, check_path, naming
from . import arrays, metadata, ome, png
from .metadata import Metadata, inverse, upright
from .stores import is_store, largest_level, read_part

FilePath = str | PathLike[str]
_MAPPED = 2**26  # bytes; a TIFF of at least this size is mapped into memory
logging.getLogger("tifffile").addHandler(logging.NullHandler())  # keeps its remarks off stderr
_EMPTY = "{} is empty (0 bytes); it may not have been written completely"


def located(path: FilePath) -> tuple[Path, str]:
    """Return the path of a file, and the extension of a FITS file in brackets after its name, as in ``a.fits[SCI]``.

    The name of a PSF's file may begin with ``volume:``.
    """
    if not check_path(path).exists():
        path = os.fsdecode(path).strip().removeprefix("volume:").strip()
    path = check_path(path)
    name, bracket, extension = str(path).removesuffix("]").rpartition("[")
    plain = not bracket or not str(path).endswith("]") or path.exists()
    return (path, "") if plain else (Path(name), extension)


def check_readable(path: FilePath) -> Path:
    """Return the file of `path` as a Path; raise an error with the reason if it cannot be read.

    A pipe, such as ``/dev/stdin`` after ``|``, is not opened, since it can be read only once.

    Raises
    ------
    OSError
        FileNotFoundError, IsADirectoryError or PermissionError, with the path and advice.
    ValueError
        If the file is empty.
    """
    path = located(path)[0]
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; check the name and the folder")
    if path.is_dir() and not is_store(path):
        raise IsADirectoryError(f"{path} is a folder; name one file in it")
    if path.is_fifo() or path.is_dir():
        return path
    if not path.is_file():
        raise OSError(f"{path} is a terminal or another device; name a file, or send one through a pipe")
    with naming(path, "cannot be read", "check its permissions"), path.open("rb") as f:
        if not f.read(1):
            raise ValueError(_EMPTY.format(path))
    return path


@contextmanager
def opened(path: FilePath) -> Iterator[BinaryIO]:
    """Open a checked file at its beginning; the content of a pipe is first copied to memory."""
    path = check_readable(path)
    with path.open("rb") as f:
        if path.is_file():
            yield f
            return
        content = bytearray()
        while chunk := f.read(1 << 20):
            content += chunk
            what = f"{path}, which has sent {format_bytes(len(content))} and goes on,"
            require_memory(3 * len(content), np, what, "save it as a file first")
    if not content:
        raise ValueError(_EMPTY.format(path))
    yield io.BytesIO(content)


def read(path: FilePath, *, as_float: bool = True) -> np.ndarray:
    """Read an image file: PNG, JPEG, TIFF (8, 16, 32 bit, several pages), FITS, WebP, BMP and others that Pillow reads.

    The content decides the format, not the name. Indices into a palette become colours, a TIFF with zero as white is
    inverted, and the orientation tag of a camera is applied. An alpha channel that is opaque everywhere is dropped. A
    large TIFF without compression is mapped into memory and read when it is used. An OME-TIFF in several files is read
    completely, whichever file is named. FITS, also packed by gzip or bzip2, needs astropy; the scale in its header is
    applied, and its rows keep the order of the file, as in astropy. HEIC needs pillow-heif.

    Parameters
    ----------
    path : path
        A local file, or a pipe. Brackets select one of several images of a FITS file, by name or number:
        ``a.fits[SCI]``, ``a.fits[SCI,2]``, ``a.fits[1]``.
    as_float : bool
        True (default) returns float64, with integers scaled to [0, 1] as by `deblur.image.as_float`; floating point
        keeps its dtype and values. False returns the dtype of the file.

    Returns
    -------
    image : (M, N), (M, N, 3), (K, M, N) or (K, M, N, 3) ndarray

    Raises
    ------
    OSError
        If the file is missing or unreadable.
    ValueError
        If the file holds no image, a damaged image, or an image that cannot be read without loss. The latter are:
        transparency and NaN or infinity (`read_with_metadata` reads both), CMYK and other print colours, pages of
        different sizes, and a part of an OME-TIFF without the other files. The message says how to convert the file.
    InsufficientMemoryError
        If the image would not fit in the free memory. This replaces Pillow's limit on the number of pixels, unless the
        program has set its own ``PIL.Image.MAX_IMAGE_PIXELS``.
    """
    check_flags(as_float=as_float)
    image, found = read_stored(path)
    image = upright(image, found.orientation)
    return arrays.as_float(image) if as_float else image


def read_stored(path: FilePath) -> tuple[np.ndarray, Metadata]:
    """Return the image in the file's dtype and the sensor's orientation, and the metadata; raise errors as
    `read` does.
    """
    image, found = _decoded(path)
    if found.alpha is not None:
        raise ValueError(
            f"{path} is partly transparent, and its background is not known; put it on a background (flatten it) in an "
            "image editor, or use read_with_metadata, which returns colours and transparency separately"
        )
    check_finite(image, str(path))
    return image, found


def read_with_metadata(path: FilePath) -> tuple[np.ndarray, Metadata]:
    """Read an image in the dtype of the file, as by ``read(path, as_float=False)``, and the metadata of the file.

    Parameters
    ----------
    path : path
        As for `read`.

    Returns
    -------
    image : ndarray
        The image. It may contain NaN and infinity, as in FITS files where nothing was measured.
    metadata : Metadata
        The metadata, with the opacity; `deblur.image.writing.left_out` names the parts that `write` cannot write to
        another file.

    Raises
    ------
    OSError, ValueError, InsufficientMemoryError
        As for `read`, except that transparency and values that are not finite are allowed.
    """
    image, found = _decoded(path)
    alpha = None if found.alpha is None else upright(found.alpha, found.orientation)
    return upright(image, found.orientation), replace(found, alpha=alpha)


def _decoded(path: FilePath) -> tuple[np.ndarray, Metadata]:
    """Return the image and its opacity in the orientation of the file, and the other metadata for the upright image."""
    file, extension = located(path)
    image, found = _read_store(file) if is_store(file) else _read_file(file, extension)
    if image.dtype.kind not in "biuf":
        raise ValueError(f"{path} holds {image.dtype}, not real numbers; save the real part or magnitude")
    return image.astype(image.dtype.newbyteorder("="), copy=False), found.fitted(image)


def _read_file(file: Path, extension: str) -> tuple[np.ndarray, Metadata]:
    with opened(file) as f, warnings.catch_warnings(action="ignore"):
        head = f.read(512)
        try:
            for start, unpack in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open)):
                f.seek(0)
                if head.startswith(start) and (inside := unpack(f).read(512)).startswith(_FITS):
                    f.seek(0)
                    f, head = unpack(f), inside  # type: ignore[assignment]
            f.seek(0)
            if head.startswith(_FITS):
                image, found = _read_fits(f, file, extension)
            elif extension:
                raise Refusal(f"is not a FITS file, so it has no extension {extension!r}")
            elif head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
                image, found = _read_tiff(f, file)
            else:
                if head[4:8] == b"ftyp":
                    with suppress(ImportError):  # without it the message below says what to install
                        import_module("pillow_heif").register_heif_opener()
                image, found = _read_with_pillow(f, file)
            image, found = _without_alpha(image, found)
        except Refusal as error:
            raise ValueError(f"{file} {error}") from error.__cause__
        except MemoryError:
            raise
        except Exception as error:
            # Decoders raise a dozen kinds of exception for damaged files (SyntaxError among them).
            raise ValueError(
                f"cannot read {file} as an image: {_what_is_wrong(head, error)}. Known formats are PNG, JPEG, TIFF, "
                "FITS and others that Pillow reads; if a viewer opens the file, save it again as PNG or TIFF"
            ) from error
    return image, found


_CONVERT = "convert it to RGB or grey in an image editor first"
_PLAIN = "save the planes that are there as a plain TIFF"
_CHANNELS = "save the channels you mean as a grey or RGB file"


class Refusal(ValueError):
    """A valid file whose image cannot be used; the message continues after the path."""


# First bytes of files.
_FITS = b"SIMPLE  ="
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF", b"II*\0", b"II+\0", b"MM\0", _FITS)
_OTHERS = {
    b"MATLAB 5": "it is a MATLAB file; save the picture with imwrite, or the PSF as .csv",
    b"\x89HDF": "it is an HDF5 file (or MATLAB 7.3); save the picture it holds as TIFF",
    b"\x93NUMPY": "it is a NumPy array, which only --psf takes; save a picture as TIFF (deblur.image.write)",
    b"PK\x03\x04": "it is a zip archive; unpack it first",
    b"\x1f\x8b": "it is compressed with gzip; unpack it first",
    b"%PDF": "it is a PDF; export the picture from it",
    b"%!PS": "it is PostScript; export it as a picture",
}


def _what_is_wrong(head: bytes, error: Exception) -> str:
    """Return the reason why a file that begins with `head` could not be read."""
    if isinstance(error, OSError) and error.errno:
        return f"the system says: {os.strerror(error.errno)}"
    for start, words in _OTHERS.items():
        if head.startswith(start):
            return words
    if head[4:8] == b"ftyp":
        return "it is an HEIC picture; install pillow-heif (pip install 'deblur-toolkit[heif]'), or save it as JPEG"
    if head.startswith(_PICTURES):
        return "it is damaged or was cut short"
    text = head.decode("utf-8-sig", "replace")[:-1]  # the last character may be cut
    if "\ufffd" not in text and all(c.isprintable() or c.isspace() for c in text):
        return "it holds text"
    return "it is damaged, or of an unknown kind"


def _check_memory(path: Path, shape: tuple[int, ...], itemsize: int) -> None:
    # The copy of the decoder, the array, and the array as float64.
    needed = math.prod(shape) * (2 * itemsize + 8)
    size = " x ".join(str(n) for n in shape)
    require_memory(needed, np, f"{path}: an image of {size} numbers", "cut it into parts, or free memory")


# ---------------------------------------------------------------------------------------------
# Pillow
# ---------------------------------------------------------------------------------------------

_limit_lock = threading.RLock()


@contextmanager
def _limit_lifted() -> Iterator[None]:
    """Lift Pillow's limit on the number of pixels, which guards against forged headers, as the memory check does here.

    A limit that the program has set itself stays.
    """
    from PIL import Image

    with _limit_lock:
        limit = Image.MAX_IMAGE_PIXELS
        if limit == 1024**3 // 12:
            Image.MAX_IMAGE_PIXELS = None
        try:
            yield
        except Image.DecompressionBombError as error:
            raise Refusal(f"has more than twice PIL.Image.MAX_IMAGE_PIXELS = {limit} pixels") from error
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _read_with_pillow(f: BinaryIO, path: Path) -> tuple[np.ndarray, Metadata]:
    from PIL import Image, ImageOps, ImageSequence

    with _limit_lifted(), Image.open(f) as picture:
        mode, frames, size = picture.mode, getattr(picture, "n_frames", 1), picture.size[::-1]
        _check_memory(path, (*size, len(picture.getbands())), 4 if mode[:1] in ("I", "F") else 1)
        if mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "I", "F") and not mode.startswith("I;16"):
            raise Refusal(f"has the colours {mode}; {_CONVERT}")
        is_png, key = picture.format == "PNG", picture.info.get("transparency")
        raw = str(picture.tile[0][3]) if is_png and picture.tile else ""
        # pillow-heif rotates the pixels upright and stores the original orientation.
        orientation = picture.info.get("original_orientation") or picture.getexif().get(274, 1)
        film = frames > 1 and (picture.format == "GIF" or picture.custom_mimetype == "image/apng")
        picture.load()
        standing = ImageOps.exif_transpose(picture)
        found = metadata.of_pillow(standing, orientation, f if is_png else None)
        if film:
            _check_memory(path, (frames, *size, 4), 1)
            # The frames of a film may have different modes; RGBA can represent all of them.
            image = np.stack([np.asarray(frame.convert("RGBA")) for frame in ImageSequence.Iterator(picture)])
        elif raw.endswith("16B") and (raw != "I;16B" or key is not None):
            # Pillow reduces colours of 16 bits to 8, and ignores a transparent grey of 16 bits.
            _check_memory(path, (*size, 4), 2)
            image = png.read_deep(f, picture, raw, key)
        else:
            # Pillow applies a palette and the transparency of a key colour only in a conversion.
            if key is not None or mode == "PA":
                standing = standing.convert("RGBA")
            elif mode == "P":
                standing = standing.convert(standing.palette.mode if standing.palette else "RGB")
            image = upright(np.array(standing), inverse(orientation), 0)
            if frames > 1:
                found = replace(found, others=(*found.others, f"{frames - 1} further pictures"))
    if mode == "I" and image.dtype == np.int32 and image.min() >= 0 and image.max() <= 65535:
        image = image.astype(np.uint16)  # Pillow returns 16-bit PGM as 32-bit integers
    if image.ndim == 2:
        image = image[..., None]
    may_be_grey = image.shape[-1] > 2 and (mode not in ("RGB", "RGBA") or picture.format == "WEBP")
    if may_be_grey and not np.ptp(image[..., :3], axis=-1).any():
        image = np.delete(image, (1, 2), axis=-1)  # a palette of greys, or a WebP, which always stores colour
    return image, found


# ---------------------------------------------------------------------------------------------
# FITS
# ---------------------------------------------------------------------------------------------


def _read_fits(f: BinaryIO, path: Path, extension: str) -> tuple[np.ndarray, Metadata]:
    try:
        from astropy.io import fits
    except ImportError as error:
        raise Refusal("is a FITS file; install astropy to read it (pip install astropy)") from error
    name, _, version = extension.upper().partition(",")
    with fits.open(f, memmap=False, lazy_load_hdus=False) as units:
        images = {i: u for i, u in enumerate(units) if u.is_image and u.header.get("NAXIS", 0) > 0}
        wanted = f"{name},{version or 1}"
        found = [u for i, u in images.items() if extension in ("", str(i)) or f"{u.name},{u.ver}" == wanted]
        if len(found) != 1:
            names = ", ".join(f"[{i}] {unit.name},{unit.ver}" for i, unit in images.items())
            which = f"no image {extension!r}" if extension else f"{len(images)} images"
            example = f"; name one, as in {path.name}[{next(iter(images))}]" if images else ""
            raise Refusal(f"holds {which}{f': {names}' if names else ''}{example}")
        header, shape = found[0].header, found[0].shape
        _check_memory(path, shape, abs(header["BITPIX"]) // 8)
        image = found[0].data
    while image.ndim > 2 and image.shape[0] == 1:
        image = image[0]
    if image.ndim not in (2, 3) or image.size == 0:
        raise Refusal(f"holds an array of shape {shape}; save an image or a stack of images from it")
    return image[..., None], Metadata(fits=header.tostring(sep="\n"))


def _read_store(path: Path) -> tuple[np.ndarray, Metadata]:
    _, array, found = largest_level(str(path), 2)
    _check_memory(path, array.shape, array.dtype.itemsize)
    image = read_part(array, (slice(None),), path)
    return image.reshape(-1, *image.shape[len(found.sizes) :]) if found.sizes else image, found


# ---------------------------------------------------------------------------------------------
# TIFF
# ---------------------------------------------------------------------------------------------


def _read_tiff(f: BinaryIO, path: Path) -> tuple[np.ndarray, Metadata]:
    import tifffile

    # Open it by its path, since an OME-TIFF may name further files beside it.
    with tifffile.TiffFile(path if path.is_file() else f) as tiff:
        series = list(tiff.series)
        page = series[0].keyframe
        bits, unsigned, is_float = page.bitspersample, page.sampleformat == 1, page.sampleformat == 3
        bytes_each, pages = -(-bits // 8), [each for one in series for each in one.pages]
        one_page = len(tiff.pages) == len(pages) == 1
        if any(s.shape != series[0].shape or s.dtype != series[0].dtype for s in series):
            shapes = ", ".join(str(s.shape) for s in series[:4])
            raise Refusal(f"holds images of different sizes or types ({shapes}); save the one you mean as its own file")
        check_set(tiff, path)
        if any(int(extra) not in (1, 2) for extra in page.extrasamples):
            raise Refusal(f"has {page.samplesperpixel} samples a pixel, some of unknown meaning; {_CHANNELS}")
        # With up to 8 bits Pillow reads all colours and compressions.
        if one_page and unsigned and bits <= 8:
            return _tiff_through_pillow(f, path, tiff)
        colours = tifffile.PHOTOMETRIC(1 if page.photometric is None else page.photometric).name
        if colours not in ("MINISBLACK", "MINISWHITE", "RGB"):
            name = "CMYK (print colours)" if colours == "SEPARATED" else colours
            raise Refusal(f"has the colours {name}; {_CONVERT}")
        if bits not in (1, 8, 16, 32, 64):
            raise Refusal(f"has {bits} bits a sample; save it with 8, 16 or 32")
        size = math.prod(series[0].shape) * bytes_each
        mapped = len(series) == 1 and series[0].dataoffset is not None and size >= _MAPPED and path.is_file()
        try:
            if mapped:  # pages are read when they are needed, and the file is never changed
                image = np.asarray(tifffile.memmap(path, mode="c"))
            else:
                _check_memory(path, (len(series), *series[0].shape), bytes_each)
                image = np.stack([s.asarray() for s in series]) if len(series) > 1 else series[0].asarray()
        except ValueError as error:
            if "imagecodecs" not in str(error):  # without it tifffile reads few compressions
                raise
            # Pillow does not reduce grey floats and grey of 16 bits.
            if one_page and page.samplesperpixel == 1 and (is_float or (unsigned and bits == 16)):
                return _tiff_through_pillow(f, path, tiff)
            name = tifffile.COMPRESSION(page.compression).name
            raise Refusal(f"is compressed with {name}; install imagecodecs, or save without compression") from error
        one = series[0] if series[0].ndim > 1 else page  # tifffile drops the rows of a line
        axes = ("I" if len(series) > 1 else "") + one.axes
        image = image.reshape(*image.shape[: len(axes) - len(one.axes)], *one.shape)
        along = [(axis, n) for axis, n in zip(axes, image.shape, strict=True) if axis not in "YXS" and n > 1]
        sizes = tuple(n for _, n in along) or image.shape[: axes.index("Y")][:1]
        found = metadata.of_tiff(tiff, f, "".join(axis for axis, _ in along), sizes)
    image = np.moveaxis(image, axes.index("S"), -1) if "S" in axes else image[..., None]
    if colours == "MINISWHITE":
        if image.dtype.kind not in "bu":
            raise Refusal("says that zero is white, but not what is black; save it with zero as black")
        image = ~image
    if 1 in page.extrasamples and not _opaque(image):
        raise Refusal("is premultiplied by its alpha; save it not premultiplied, or flatten it")
    return image.reshape(-1, *image.shape[-3:]) if image.ndim > 4 else image, found


def check_set(tiff: Any, path: Path) -> None:
    """Raise Refusal if a TIFF, open as `tifffile.TiffFile`, was cut short, or lacks planes of its OME set."""
    tiff.filehandle.seek(tiff.pages.next_page_offset)  # 0 after the last page
    if any(tiff.filehandle.read(tiff.tiff.offsetsize)):
        raise Refusal(f"was cut short: more follows its page {len(tiff.pages)}; copy it again, or {_PLAIN}")
    root = ome.parsed(tiff.ome_metadata)
    elsewhere = root.find("{*}BinaryOnly")
    if elsewhere is not None:
        name = elsewhere.get("MetadataFile")
        raise Refusal(f"is one file of an OME-TIFF that {name} describes; read that if it is a TIFF, or {_PLAIN}")
    described = sum(ome.planes(pixels) for pixels in root.iterfind("{*}Image/{*}Pixels"))
    there = sum(page is not None for one in tiff.series for page in one.pages)
    if there < described:
        missing = ", ".join(sorted({f.name for f in ome.files_of_set(path, path.stat().st_mtime_ns) if not f.exists()}))
        instead = f"put {missing} beside it, or {_PLAIN}" if missing else _PLAIN
        raise Refusal(f"holds {there} of the {described} planes of its OME-TIFF; {instead}")


def _tiff_through_pillow(f: BinaryIO, path: Path, tiff: Any) -> tuple[np.ndarray, Metadata]:
    f.seek(0)
    return _read_with_pillow(f, path)[0], metadata.of_tiff(tiff, f, "")


def _opaque(image: np.ndarray) -> bool:
    """Return True if the last sample of each pixel is fully opaque."""
    opaque = 1.0 if image.dtype.kind == "f" else np.iinfo(image.dtype).max
    return bool((image[..., -1] == opaque).all())


def _without_alpha(image: np.ndarray, found: Metadata) -> tuple[np.ndarray, Metadata]:
    """Split an image whose last axis holds its samples into its colours, and its metadata with the opacity.

    Grey loses the last axis. The opacity is None if there is none, or all pixels are opaque.
    """
    samples = image.shape[-1]
    if samples not in (1, 2, 3, 4):
        raise Refusal(f"has {samples} samples a pixel; {_CHANNELS}")
    if samples in (2, 4):
        if not _opaque(image):
            found = replace(found, alpha=np.ascontiguousarray(image[..., -1]))
        image = image[..., :-1]
    return (image[..., 0] if image.shape[-1] == 1 else image), found

"""Images as vectors, as numbers in [0, 1], and as files.

Grey images are (M, N), colour images (M, N, 3), stacks (K, M, N) or
(K, M, N, 3): an array of three or more axes whose last one has length 3 is
colour, everywhere in this module.

PNG, JPEG and the like go through imageio. TIFF goes through tifffile, which
is what imageio reads TIFF with, because only there can be seen whether zero
means white, whether the numbers are a palette's, and whether a fourth sample
is transparency.
"""

from __future__ import annotations

import io
import os
import secrets
import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .backend import Array, asnumpy, check_finite, get_xp

FilePath = str | PathLike[str]

#: Suffixes that `write` knows, with the bits per sample each can hold (32 is floating point).
FORMATS = {
    ".png": (8, 16),
    ".jpg": (8,),
    ".jpeg": (8,),
    ".tif": (8, 16, 32),
    ".tiff": (8, 16, 32),
}


# ---------------------------------------------------------------------------------------------
# Vectors and numbers
# ---------------------------------------------------------------------------------------------


def im2vector(image: Array) -> Array:
    """The pixels of an image as one vector, row by row: the order of the columns and rows of H.

    Parameters
    ----------
    image : (M, N) array
        NumPy or CuPy, any dtype.

    Returns
    -------
    v : (M * N,) array
        A view of `image` where its memory layout allows, else a copy.

    Raises
    ------
    ValueError
        If `image` is not 2-D or holds no pixels.
    """
    image = get_xp(image).asarray(image)
    if image.ndim != 2 or image.size == 0:
        raise ValueError(
            f"image must be a non-empty 2-D array, not shape {image.shape}; take one colour at a time"
        )
    return image.reshape(-1)


def vector2im(v: Array, shape: tuple[int, int]) -> Array:
    """The image whose pixels, row by row, are the vector: the inverse of `im2vector`.

    Parameters
    ----------
    v : (M * N,) or (M * N, 1) array
        NumPy or CuPy, any dtype.
    shape : (int, int)
        Rows M and columns N.

    Returns
    -------
    image : (M, N) array
        A view of `v` where its memory layout allows, else a copy.

    Raises
    ------
    ValueError
        If `v` is no vector or does not hold M * N numbers.
    """
    v = get_xp(v).asarray(v)
    if len(tuple(shape)) != 2 or any(int(n) != n or n < 1 for n in shape):
        raise ValueError(f"shape must be (rows, columns), two positive whole numbers, not {shape!r}")
    rows, cols = (int(n) for n in shape)
    if v.ndim not in (1, 2) or v.shape[1:] not in ((), (1,)) or v.size != rows * cols:
        raise ValueError(f"a vector of {rows} * {cols} = {rows * cols} pixels is needed, not shape {v.shape}")
    return v.reshape(rows, cols)


def as_float(image: Array) -> Array:
    """The image as floating point: integers scaled to [0, 1], floats as they are.

    The rule is that of ``skimage.util.img_as_float``: unsigned integers are
    divided by the largest value of their dtype, signed ones likewise (giving
    [-1, 1]), True is 1. Floating point keeps its dtype and its values,
    whatever their range.

    Parameters
    ----------
    image : array
        NumPy or CuPy, any shape.

    Returns
    -------
    array of the same shape
        float64, or the dtype of a floating-point `image`, which is returned itself.

    Raises
    ------
    TypeError
        For complex, object and string arrays.
    """
    xp = get_xp(image)
    image = xp.asarray(image)
    kind = image.dtype.kind
    if kind == "f":
        return image
    if kind == "b":
        return image.astype(np.float64)
    if kind not in "iu":
        raise TypeError(f"an image must hold real numbers, not dtype {image.dtype}")
    # Multiplied by the reciprocal, not divided: that is what scikit-image rounds to.
    scaled = xp.multiply(image, 1.0 / np.iinfo(image.dtype).max, dtype=np.float64)
    return xp.maximum(scaled, -1.0) if kind == "i" else scaled


def is_colour(image: Array) -> bool:
    """Whether this module takes `image` as colour: three or more axes, the last of length 3."""
    return image.ndim >= 3 and image.shape[-1] == 3


# ---------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------


def check_readable(path: FilePath) -> Path:
    """`path` as a Path, or an error that says why it cannot be read.

    Raises
    ------
    OSError
        FileNotFoundError, IsADirectoryError, PermissionError: each with the path and what to try.
    ValueError
        If the file is empty.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; check the name and the folder")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name one file in it")
    try:
        with path.open("rb") as f:
            empty = not f.read(1)
    except PermissionError as error:
        raise PermissionError(f"{path}: you may not read this file; check its permissions") from error
    if empty:
        raise ValueError(f"{path} is empty (0 bytes); it may not have been written completely")
    return path


def read(path: FilePath, *, as_float: bool = True) -> np.ndarray:
    """Read an image file: PNG, JPEG, TIFF (8, 16, 32 bit, several pages) and what else Pillow knows.

    The file is known by its content, not its name. Palettes are turned into
    the colours they stand for, black-on-white TIFFs into the usual sense, and
    a camera's turned JPEG is turned upright. An alpha channel that is opaque
    everywhere is dropped.

    Parameters
    ----------
    path : path
        A file on this machine; an address on the web is not fetched.
    as_float : bool
        True (default): float64, integers scaled to [0, 1] as
        `deblur.image.as_float` does; floating point keeps its dtype and values.
        False: the file's own dtype.

    Returns
    -------
    image : (M, N), (M, N, 3), (K, M, N) or (K, M, N, 3) ndarray

    Raises
    ------
    OSError
        If the file is missing or unreadable.
    ValueError
        If it holds no image, a damaged one, or one that cannot be taken
        without loss: transparency, CMYK and other print colours, 16-bit
        colour PNG, pages of different sizes, NaN or infinity. The message says
        how to convert it.
    """
    path = check_readable(path)
    with path.open("rb") as f:
        head = f.read(26)
    try:
        if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            image = _read_tiff(path)
        else:
            image = _read_with_pillow(path, head)
    except (_Refusal, MemoryError):
        raise
    except Exception as error:
        # Decoders meet damaged files with a dozen kinds of exception (SyntaxError among them).
        raise ValueError(
            f"cannot read {path} as an image: {_first_line(error)}. Known formats are PNG, JPEG, TIFF and "
            "others that Pillow reads; if a viewer opens the file, save it again as PNG or TIFF"
        ) from error
    if image.dtype.kind not in "biuf":
        raise ValueError(
            f"{path} holds {image.dtype} values, not real numbers; save their real part or magnitude"
        )
    check_finite(image, str(path))
    return _scaled(image) if as_float else image


class _Refusal(ValueError):
    """A file that is whole but cannot be taken as it is; the text is complete."""


# `read` has a parameter of this function's name.
_scaled = as_float


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _read_with_pillow(path: Path, head: bytes = b"") -> np.ndarray:
    import imageio.v3 as iio

    if head[:8] == b"\x89PNG\r\n\x1a\n" and head[24:25] == b"\x10" and head[25:26] != b"\0":
        raise _Refusal(
            f"{path} is a colour PNG of 16 bits, of which Pillow reads only 8; save it as a 16-bit TIFF"
        )
    with warnings.catch_warnings():
        # Pillow warns of large pictures long before it refuses them.
        warnings.filterwarnings("ignore", message="Image size")
        # The list of metadata that imageio has applied itself would lack the mode and the palette.
        meta = iio.immeta(path, plugin="pillow", exclude_applied=False)
        mode = meta["mode"]
        if mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "I", "F") and not mode.startswith("I;16"):
            raise _Refusal(
                f"{path} has the colours {mode}, which become RGB only with a colour profile; "
                "convert it to RGB in an image editor first"
            )
        if "transparency" in meta and mode.startswith("I"):
            raise _Refusal(f"{path} has 16 bits and a transparent colour; save it without transparency")
        # The palette's or the key colour's transparency is only seen when asked for.
        image = iio.imread(
            path,
            plugin="pillow",
            rotate=True,
            mode="RGBA" if "transparency" in meta or mode == "PA" else None,
        )
    if mode == "I" and image.dtype == np.int32 and image.min() >= 0 and image.max() <= 65535:
        image = image.astype(np.uint16)  # Pillow hands 16-bit PGM over as 32-bit integers
    colour = mode in ("LA", "P", "PA", "RGB", "RGBA") or "transparency" in meta
    image = _without_alpha(image, path) if colour else image
    if mode not in ("RGB", "RGBA") and is_colour(image) and not np.ptp(image, axis=-1).any():
        image = image[..., 0]  # a palette of greys
    frames_first = image.ndim - 2 - is_colour(image)
    return image[0] if frames_first and image.shape[0] == 1 else image  # a GIF of one frame


def _read_tiff(path: Path) -> np.ndarray:
    import tifffile

    with tifffile.TiffFile(path) as tiff:
        series = list(tiff.series)
        page = series[0].keyframe
        bits, one_page, unsigned = page.bitspersample, len(tiff.pages) == 1, page.sampleformat == 1
        if any(s.shape != series[0].shape or s.dtype != series[0].dtype for s in series):
            shapes = ", ".join(str(s.shape) for s in series[:4])
            raise _Refusal(
                f"{path} holds images of different sizes or types ({shapes}); "
                "save the one you mean as its own file"
            )
        if any(int(extra) not in (1, 2) for extra in page.extrasamples):
            raise _Refusal(
                f"{path} has {page.samplesperpixel} samples a pixel, some of unknown meaning; "
                "save the channels you mean as a grey or RGB file"
            )
        if one_page and unsigned and bits <= 8:
            return _read_with_pillow(path)  # knows all colours and compressions, at this depth
        colours = tifffile.PHOTOMETRIC(1 if page.photometric is None else page.photometric).name
        if colours not in ("MINISBLACK", "MINISWHITE", "RGB"):
            name = "CMYK (print colours)" if colours == "SEPARATED" else colours
            raise _Refusal(
                f"{path} has the colours {name}; convert it to grey or RGB in an image editor first"
            )
        if bits not in (1, 8, 16, 32, 64):
            raise _Refusal(f"{path} has {bits} bits a sample; save it with 8, 16 or 32")
        try:
            image = np.stack([s.asarray() for s in series]) if len(series) > 1 else series[0].asarray()
        except ValueError as error:
            if "imagecodecs" not in str(error):  # tifffile without that package knows few compressions
                raise
            is_float = page.sampleformat == 3
            if one_page and page.samplesperpixel == 1 and (is_float or (unsigned and bits == 16)):
                return _read_with_pillow(path)  # the deeper images that Pillow does not shorten
            name = tifffile.COMPRESSION(page.compression).name
            raise _Refusal(
                f"{path} is compressed with {name}; install imagecodecs (pip install imagecodecs) "
                "or save the file without compression"
            ) from error
        axes = ("I" if len(series) > 1 else "") + series[0].axes
    if "S" in axes and not axes.endswith("S"):  # colours stored plane by plane
        image, axes = np.moveaxis(image, axes.index("S"), -1), axes.replace("S", "") + "S"
    if colours == "MINISWHITE":
        if image.dtype.kind not in "bu":
            raise _Refusal(
                f"{path} says that zero is white, but not what is black; save it with zero as black"
            )
        image = ~image
    if axes.endswith("S"):
        image = _without_alpha(image, path)
    pictures = image.shape[: axes.index("Y")]
    if sum(n > 1 for n in pictures) > 1:
        raise _Refusal(
            f"{path} is a stack along several axes, {axes} = {image.shape}; save one axis as pages"
        )
    return image if len(pictures) <= 1 else image.reshape(-1, *image.shape[len(pictures) :])


def _without_alpha(image: np.ndarray, path: Path) -> np.ndarray:
    """An image whose last axis is its samples, less an opaque alpha channel; grey loses the axis."""
    samples = image.shape[-1]
    if samples in (2, 4):
        opaque = 1.0 if image.dtype.kind == "f" else np.iinfo(image.dtype).max
        if not (image[..., -1] == opaque).all():
            raise _Refusal(
                f"{path} is transparent in places, and what lies behind it is not known; "
                "put it on a background (flatten it) in an image editor first"
            )
        image = image[..., :-1]
    elif samples not in (1, 3):
        raise _Refusal(
            f"{path} has {samples} samples a pixel; save the channels you mean as a grey or RGB file"
        )
    return image[..., 0] if image.shape[-1] == 1 else image


# ---------------------------------------------------------------------------------------------
# Writing
# ---------------------------------------------------------------------------------------------


def check_writable(path: FilePath, overwrite: bool = False, *, inputs: Iterable[FilePath] = ()) -> Path:
    """`path` as a Path that a file of any kind can be written to, or an error before work starts.

    Parameters
    ----------
    path : path
        The file to be written.
    overwrite : bool
        Whether a file that is there may be replaced.
    inputs : iterable of paths
        Files that are read in the same run: they are never written over, not
        even with `overwrite`, under whatever name or link.

    Raises
    ------
    FileExistsError
        If the file is there and `overwrite` is False.
    OSError
        If the folder is missing or not writable, or `path` is itself a folder or a device.
    ValueError
        If `path` is one of `inputs`.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; add a file name")
    if target.exists():
        for source in inputs:
            if Path(source).exists() and target.samefile(source):
                raise ValueError(
                    f"{path} is also an input ({source}), and inputs are never overwritten; use another name"
                )
        if not target.is_file():
            raise OSError(f"{path} is not a regular file, so it cannot be replaced; use another name")
        if not overwrite:
            raise FileExistsError(
                f"{path} is there already; use another name, or allow it to be replaced "
                "(overwrite=True, --force)"
            )
    folder = target.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{path}: the folder {folder} does not exist; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{path}: the folder {folder} is not writable; use another folder or its permissions"
        )
    return path


def check_format(path: FilePath, image: Array, bits: int | None = None) -> int:
    """The bits per sample with which `write` would save this image, or an error if it cannot.

    Parameters
    ----------
    path : path
        Its suffix names the format; see `FORMATS`.
    image : array
        Only its shape and dtype are looked at.
    bits : {8, 16, 32}, optional
        What was asked for. By default an 8- or 16-bit image keeps its depth
        where the format holds it; all else gets 8 bits in PNG and JPEG and
        32 (floating point) in TIFF.

    Raises
    ------
    ValueError
        For an unknown suffix, a shape that is no image, a depth or a stack that the format does not hold.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(
            f"{path}: cannot write {suffix or 'a file without a suffix'}; use one of {', '.join(FORMATS)}"
        )
    is_tiff = suffix.startswith(".tif")
    pages = image.ndim - is_colour(image)
    if pages not in (2, 3) or image.size == 0:
        raise ValueError(
            "an image is a non-empty (M, N), (M, N, 3), (K, M, N) or (K, M, N, 3) array, "
            f"not shape {image.shape}"
        )
    if pages == 3 and not is_tiff:
        raise ValueError(f"{path}: {suffix} holds one picture, not a stack of {image.shape[0]}; write a .tif")
    if bits is None:
        own = 8 * image.dtype.itemsize if image.dtype.kind in "bu" else 0
        bits = own if own in FORMATS[suffix] else (32 if is_tiff else 8)
    if bits not in FORMATS[suffix]:
        raise ValueError(f"{path}: {suffix} holds {FORMATS[suffix]} bits a sample, not {bits!r}")
    if bits == 16 and suffix == ".png" and is_colour(image):
        raise ValueError(f"{path}: colour PNGs of 16 bits cannot be written here; use 8 bits, or a .tif")
    return bits


def write(path: FilePath, image: Array, *, bits: int | None = None, overwrite: bool = False) -> int:
    """Write an image file: PNG, JPEG or TIFF, by the suffix.

    The file appears whole or not at all: it is written under a temporary name
    in the same folder and then renamed.

    Parameters
    ----------
    path : path
        Ends in ``.png``, ``.jpg``, ``.jpeg``, ``.tif`` or ``.tiff``.
    image : (M, N), (M, N, 3), (K, M, N) or (K, M, N, 3) array
        NumPy or CuPy. Integers are scaled from their dtype's range, floating
        point from [0, 1]. Stacks need TIFF, which gets one page a picture.
    bits : {8, 16, 32}, optional
        Bits per sample; 32 is floating point (TIFF only), which keeps the
        values as they are. See `check_format` for the default.
    overwrite : bool
        Replace a file that is there.

    Returns
    -------
    clipped : int
        How many values lay outside [0, 1] and were set to its end by rounding
        to 8 or 16 bits; 0 for 32 bits.

    Raises
    ------
    OSError
        If the file is there (without `overwrite`), or the folder is missing or not writable.
    ValueError
        If the image holds NaN or infinity, or does not fit the format.
    """
    path = check_writable(path, overwrite)
    bits = check_format(path, image, bits)
    image = asnumpy(image)
    check_finite(image, "the image")
    samples, clipped = _quantize(as_float(image), bits)
    content = _encode(samples, path.suffix.lower())
    target = Path(os.path.realpath(path))  # a link stays a link
    partial = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with partial.open("xb") as f:
            f.write(content)
        check_writable(path, overwrite)  # it may have appeared while we worked
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return clipped


def _quantize(image: np.ndarray, bits: int) -> tuple[np.ndarray, int]:
    """`image` in the dtype of the file, and the number of values that had to be clipped."""
    if bits == 32:
        with np.errstate(over="ignore"):
            samples = image.astype(np.float32)
        check_finite(samples, "the image as 32-bit floating point")
        return samples, 0
    top = 2**bits - 1
    levels = np.rint(image.astype(np.float64) * top)
    clipped = int(np.count_nonzero((levels < 0) | (levels > top)))
    return np.clip(levels, 0, top).astype(np.uint8 if bits == 8 else np.uint16), clipped


def _encode(samples: np.ndarray, suffix: str) -> bytes:
    if suffix.startswith(".tif"):
        import tifffile

        buffer = io.BytesIO()
        tifffile.imwrite(buffer, samples, photometric="rgb" if is_colour(samples) else "minisblack")
        return buffer.getvalue()
    import imageio.v3 as iio

    # All of the colour kept in a JPEG: a deblurred image is looked at for its detail.
    options: dict[str, Any] = {} if suffix == ".png" else {"quality": 95, "subsampling": 0}
    return iio.imwrite("<bytes>", samples, extension=suffix, plugin="pillow", **options)

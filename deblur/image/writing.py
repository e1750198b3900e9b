"""Write image files, completely or not at all, and never over an input."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Array, as_real, asnumpy, check_finite, unwrapped
from ..errors import as_number, check_flags, check_path, shown
from . import png
from .arrays import as_float, is_colour, shaped
from .light import measured
from .metadata import FITS, Metadata, fits, tiff
from .outputs import Content, check_writable, write_whole
from .reading import FilePath

#: Suffixes that `write` supports, with the bits per sample of each format (32 is floating point).
FORMATS: dict[str, tuple[int, ...]] = {".png": (8, 16), ".jpg": (8,), ".jpeg": (8,), ".webp": (8,)}
FORMATS |= dict.fromkeys((".tif", ".tiff"), (8, 16, 32)) | dict.fromkeys(FITS, (32,))


def check_format(path: FilePath, image: Array, bits: int | None = None) -> int:
    """Return the bits per sample with which `write` would save this image; raise an error if it cannot.

    Parameters
    ----------
    path : path
        The file, whose suffix names the format; see `deblur.image.writing.FORMATS`.
    image : array
        The image; only its shape and dtype matter.
    bits : {8, 16, 32}, optional
        The requested bits per sample. By default an 8- or 16-bit image keeps its bits if the format supports them.
        Other images get 8 bits in PNG, JPEG and WebP, and 32 (floating point) in TIFF and FITS.

    Returns
    -------
    bits : int

    Raises
    ------
    ValueError
        For an unknown suffix, a shape that is not an image, bits, colours or a stack that the format does not support,
        or FITS without astropy.
    """
    suffix = check_path(path).suffix.lower()
    if suffix not in FORMATS:
        kind = suffix or "a file without a suffix"
        raise ValueError(f"{path}: cannot write {kind}; use one of {', '.join(FORMATS)}")
    if suffix in FITS and find_spec("astropy") is None:
        raise ValueError(f"{path} is a FITS file; install astropy to write it (pip install astropy)")
    is_tiff, image = suffix.startswith(".tif"), shaped(image)
    pages = image.ndim - is_colour(image)
    if pages not in (2, 3) or image.size == 0:
        raise ValueError(f"an image is (M, N), (M, N, 3), (K, M, N) or (K, M, N, 3), not shape {image.shape}")
    if is_colour(image) and suffix in FITS:
        raise ValueError(f"{path}: a FITS image has no colours; write a .tif, or the channels as a stack")
    if pages == 3 and not is_tiff and suffix not in FITS:
        raise ValueError(f"{path}: {suffix} holds one picture, not a stack of {image.shape[0]}; write a .tif")
    most = {".webp": 2**14 - 1, ".jpg": 2**16 - 1, ".jpeg": 2**16 - 1}.get(suffix, math.inf)
    if max(image.shape) > most:
        raise ValueError(f"{path}: {suffix} holds at most {most} pixels a side, not {image.shape}; write a .tif")
    if bits is None:
        own = 8 * image.dtype.itemsize if image.dtype.kind in "bu" else 0
        bits = own if own in FORMATS[suffix] else 32 if 32 in FORMATS[suffix] else 8
    if as_number(bits) not in FORMATS[suffix]:
        held = " or ".join(map(str, FORMATS[suffix]))
        others = [other for other, depths in FORMATS.items() if as_number(bits) in depths]
        instead = f"; {', '.join(others)} hold {bits}" if others else ""
        raise ValueError(f"{path}: {suffix} holds {held} bits a sample, not {bits!r}{instead}")
    return bits


def write(
    path: FilePath, image: Array, *, bits: int | None = None, overwrite: bool = False, metadata: Metadata | None = None
) -> int:
    """Write an image file: PNG, JPEG, WebP (without loss), TIFF or FITS, by the suffix.

    The file is written completely or not at all, as by `deblur.image.outputs.write_whole`.

    Parameters
    ----------
    path : path
        The file, with the suffix ``.png``, ``.jpg``, ``.jpeg``, ``.webp``, ``.tif``, ``.tiff``, ``.fits``, ``.fit`` or
        ``.fts``.
    image : (M, N), (M, N, 3), (K, M, N) or (K, M, N, 3) array
        The image, NumPy or CuPy. Integers are scaled from the range of their dtype, floating point from [0, 1]. A stack
        needs FITS, or TIFF with one page per image.
    bits : {8, 16, 32}, optional
        Bits per sample; 32 is floating point (TIFF and FITS), which does not change the values. See `check_format` for
        the default.
    overwrite : bool
        Replace an existing file.
    metadata : Metadata, optional
        Metadata from `deblur.image.read_with_metadata`, with the opacity, to write with the pixels.
        `deblur.image.writing.left_out` names the parts that cannot be written.

    Returns
    -------
    clipped : int
        Number of values outside [0, 1] that were clipped for 8 or 16 bits; 0 for 32 bits.

    Raises
    ------
    OSError
        If the file exists (without `overwrite`), or the folder is missing or not writable.
    ValueError
        If the image holds NaN or infinity, or does not match the format.
    TypeError
        If the image does not hold real numbers, or `metadata` is not a Metadata.
    """
    path = check_writable(path, overwrite)
    if not isinstance(metadata, Metadata | None):
        raise TypeError(f"metadata must be a Metadata, as read_with_metadata gives it, or None, not {shown(metadata)}")
    image = asnumpy(unwrapped(image, "the image"))
    bits = check_format(path, image, bits)
    as_real(image[:0], "the image")  # raises for a dtype that is not a real number
    if image.dtype == f"uint{bits}":  # no conversion
        samples, clipped = image, 0
    else:
        check_finite(image, "the image")
        samples, clipped = _quantize(as_float(image), bits)
    write_whole(path, _encode(samples, path.suffix.lower(), metadata or Metadata()), overwrite)
    return clipped


def fit_to_levels(
    path: FilePath,
    image: Array,
    source: Array,
    bits: int,
    *,
    clip: bool = False,
    rescale: bool = False,
    counts: bool = False,
) -> tuple[np.ndarray, str]:
    """Return a restored image in the unit of its file, and a description of how its values were changed.

    A file of 8 or 16 bits holds levels from black to white only: an image with other values is rejected, clipped or
    rescaled. Measured integers (see `measured`) keep their unit. A float file can hold all of them, a file of 16 bits
    those from 0 to 65535. All integers of a FITS file keep their unit, too, since its header names it.

    Parameters
    ----------
    path : path
        The file to be written, for messages.
    image : array
        The restored image, in the unit of ``as_float(source)``.
    source : array
        The blurred image in the dtype of its file.
    bits : {8, 16, 32}
        Bits per sample of the file; see `check_format`.
    clip : bool
        Accept any number of clipped pixels.
    rescale : bool
        Scale the values so that the smallest is black and the largest white.
    counts : bool
        True if all integers are measured values, as those of a microscope.

    Returns
    -------
    image : ndarray
        The image to write.
    words : str
        The description; empty if nothing was changed.

    Raises
    ------
    ValueError
        If more than a tenth of all values would be clipped that are not already black or white in `source`, or if
        floats would be rounded to fewer than 8 levels.
    """
    check_flags(clip=clip, rescale=rescale, counts=counts)
    image, source = asnumpy(image), asnumpy(source)
    top = 2.0**bits - 1
    white = top if measured(source) else 1.0  # the number that becomes white
    words = ""
    counts = counts or Path(path).suffix.lower() in FITS
    if measured(source) or (source.dtype.kind in "iu" and counts):
        image = image * np.iinfo(source.dtype).max  # back to the unit before `as_float`
        words = f"the numbers are in the unit of the {source.dtype} input"
    if bits == 32:
        return image, words
    least, largest = float(image.min()), float(image.max())
    if rescale:
        span = f"{least:.4g} to {largest:.4g}"
        return (image - least) / ((largest - least) or 1.0), f"rescaled: {span} became black to white"
    if not clip:
        _check_lost(path, float(_lost(image, source, white, bits).mean()), white, least, largest)
    if source.dtype.kind == "f" and 0 < (largest - least) * top < 8:
        raise ValueError(
            f"{path}: the values, {least:.4g} to {largest:.4g}, would be rounded to fewer than 8 of "
            f"{2**bits} levels, since white is 1; {_INSTEAD}"
        )
    return image if white == 1 else image / white, words


_INSTEAD = "write a .tif with --bits 32, which keeps the numbers, or use --rescale"


def _lost(image: np.ndarray, source: np.ndarray, white: float, bits: int) -> np.ndarray:
    """Return True where `image` is outside black to white and `source` is neither black nor white."""
    ends = np.iinfo(source.dtype) if source.dtype.kind in "iu" else None
    saturated = (source == (ends.min if ends else 0)) | (source == (ends.max if ends else 1))
    half = 0.5 * white / (2.0**bits - 1)
    return ((image < -half) | (image > white + half)) & ~saturated


def _check_lost(path: FilePath, share: float, white: float, least: float, largest: float) -> None:
    if share > 0.1:
        raise ValueError(
            f"{path}: {100 * share:.3g} % of the values lie outside 0 (black) to {white:g} (white) and would be "
            f"clipped, and the input is not black or white there; the values are {least:.4g} to {largest:.4g}; "
            f"{_INSTEAD}, or --clip to accept it"
        )


class Levels:
    """A restored image or stack of 8 or 16 bits, filled part by part, so that it is never in memory as floats.

    Parameters
    ----------
    path : path
        The file to be written, for messages.
    source : array
        The blurred image, uint8 or uint16.
    bits : {8, 16}
        Bits per sample of the file.

    Attributes
    ----------
    samples : ndarray
        The levels, with the shape of `source`.
    clipped : int
        Number of clipped values.
    least : float
        The smallest value before clipping.
    """

    def __init__(self, path: FilePath, source: np.ndarray, bits: int) -> None:
        self.samples = np.empty(source.shape, f"uint{bits}")
        self._path, self._bits = path, bits
        self.begin()

    def begin(self) -> None:
        """Discard all parts and start again."""
        self.clipped = self._lost = 0
        self.least, self._largest = np.inf, -np.inf

    def take(self, image: Array, source: Array) -> np.ndarray:
        """Count a restored part and return its levels; `source` is the blurred part."""
        image, source = asnumpy(image), asnumpy(source)
        levels, clipped = _quantize(image, self._bits)
        self._lost += int(np.count_nonzero(_lost(image, source, 1.0, self._bits)))
        self.clipped += clipped
        self.least = min(self.least, float(image.min()))
        self._largest = max(self._largest, float(image.max()))
        return levels

    def check(self) -> None:
        """Raise ValueError, as `fit_to_levels` does, if too many values were clipped."""
        _check_lost(self._path, self._lost / self.samples.size, 1.0, self.least, self._largest)


def _quantize(image: np.ndarray, bits: int) -> tuple[np.ndarray, int]:
    """Return `image` in the dtype of the file, and the number of clipped values."""
    if bits == 32:
        if (most := float(np.abs(image).max())) > float(np.finfo(np.float32).max):
            raise ValueError(f"the image reaches {most:.3g}, and 32-bit floating point ends at 3.4e38: scale it")
        return image.astype(np.float32), 0
    top, clipped = 2**bits - 1, 0
    samples = np.empty(image.shape, f"uint{bits}")
    # Work in parts of about a million values, whose copies take little memory.
    parts = max(1, min(len(image), image.size >> 20))
    for rows, out in zip(np.array_split(image, parts), np.array_split(samples, parts), strict=True):
        levels = rows.astype(np.float64)
        levels *= top
        np.rint(levels, out=levels)
        clipped += int(np.count_nonzero((levels < 0) | (levels > top)))
        out[...] = np.clip(levels, 0, top, out=levels)
    return samples, clipped


def left_out(path: FilePath, image: Array, bits: int, metadata: Metadata) -> list[str]:
    """Return the names of the metadata that `write` would not write to this file.

    Parameters
    ----------
    path : path
        The file, whose suffix names the format.
    image : array
        The image to be written; only its shape matters.
    bits : {8, 16, 32}
        Bits per sample, as from `check_format`.
    metadata : Metadata
        The metadata to be written.

    Returns
    -------
    words : list of str
    """
    return metadata.lost(metadata.carried(Path(path).suffix.lower(), image, bits))


def _encode(samples: np.ndarray, suffix: str, metadata: Metadata) -> Content:
    from PIL import Image

    metadata = metadata.carried(suffix, samples, 8 * samples.dtype.itemsize)
    if metadata.alpha is not None:
        alpha = as_float(metadata.alpha)
        if alpha.shape != samples.shape[: samples.ndim - is_colour(samples)]:
            raise ValueError(f"the metadata's alpha has shape {alpha.shape}, the image {samples.shape}")
        metadata = replace(metadata, alpha=_quantize(alpha, 8 * samples.dtype.itemsize)[0])
    if suffix.startswith(".tif"):
        return tiff(samples, metadata)
    if suffix in FITS:
        return fits(samples, metadata)
    buffer = io.BytesIO()
    if metadata.alpha is not None:
        colours = samples if is_colour(samples) or suffix == ".png" else np.stack([samples] * 3, axis=-1)
        samples = np.dstack([colours, metadata.alpha])
    if suffix == ".png":
        deep = samples.ndim == 3 and samples.dtype == np.uint16
        if not deep:
            Image.fromarray(samples).save(buffer, format="PNG", compress_type=png.STRATEGY)
        return png.with_chunks(png.write_deep(samples) if deep else buffer.getvalue(), metadata.as_chunks())
    options: dict[str, Any] = {"exif": metadata.exif, "icc_profile": metadata.icc, "dpi": metadata.dpi}
    options = {name: value for name, value in options.items() if value}
    if suffix == ".webp":
        Image.fromarray(samples).save(buffer, format="WEBP", lossless=True, exact=True, **options)
    else:  # no chroma subsampling: a deblurred image is viewed for its detail
        Image.fromarray(samples).save(buffer, format="JPEG", quality=95, subsampling=0, **options)
    return buffer.getvalue()

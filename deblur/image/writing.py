"""Writing image files: whole or not at all, never over an input."""

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

#: Suffixes that `write` knows, with the bits per sample each can hold (32 is floating point).
FORMATS: dict[str, tuple[int, ...]] = {".png": (8, 16), ".jpg": (8,), ".jpeg": (8,), ".webp": (8,)}
FORMATS |= dict.fromkeys((".tif", ".tiff"), (8, 16, 32)) | dict.fromkeys(FITS, (32,))


def check_format(path: FilePath, image: Array, bits: int | None = None) -> int:
    """The bits per sample with which `write` would save this image, or an error if it cannot.

    Parameters
    ----------
    path : path
        Its suffix names the format; see `FORMATS`.
    image : array
        Only its shape and dtype count.
    bits : {8, 16, 32}, optional
        The requested depth. By default an 8- or 16-bit image keeps its depth
        where the format holds it; all else gets 8 bits in PNG, JPEG and WebP and
        32 (floating point) in TIFF and FITS.

    Raises
    ------
    ValueError
        For an unknown suffix, a shape that is no image, a depth, colours or a stack that the format does not
        hold, or FITS without astropy.
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

    The file appears whole or not at all, as with `write_whole`.

    Parameters
    ----------
    path : path
        Ends in ``.png``, ``.jpg``, ``.jpeg``, ``.webp``, ``.tif``, ``.tiff``, ``.fits``, ``.fit`` or ``.fts``.
    image : (M, N), (M, N, 3), (K, M, N) or (K, M, N, 3) array
        NumPy or CuPy. Integers are scaled from their dtype's range, floating
        point from [0, 1]. Stacks need TIFF, which gets one page a picture, or FITS.
    bits : {8, 16, 32}, optional
        Bits per sample; 32 is floating point (TIFF and FITS), which keeps the
        values as they are. See `check_format` for the default.
    overwrite : bool
        Replace a file that is there.
    metadata : Metadata, optional
        To be written with the pixels, opacity included, from
        `deblur.image.read_with_metadata`; `left_out` names the rest.

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
    if not isinstance(metadata, Metadata | None):
        raise TypeError(f"metadata must be a Metadata, as read_with_metadata gives it, or None, not {shown(metadata)}")
    image = asnumpy(unwrapped(image, "the image"))
    bits = check_format(path, image, bits)
    as_real(image[:0], "the image")  # refuses other dtypes than numbers
    if image.dtype == f"uint{bits}":  # as they are
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
    """A restored image in the unit of its file, and how its values were changed, in words.

    Levels hold black to white alone: an image that they do not hold is refused, clipped or rescaled. Measured integers
    (see `measured`) keep their unit: a float file holds them all, levels of 16 bits those from 0 to 65535. So do all
    integers in a FITS file, whose header names their unit.

    Parameters
    ----------
    path : path
        Where it is to be written, for the messages.
    image : array
        The restored image, in the unit of ``as_float(source)``.
    source : array
        The image that was restored, as it was read.
    bits : {8, 16, 32}
        Of the file; see `check_format`.
    clip : bool
        Accept that any number of pixels are clipped.
    rescale : bool
        Make the least value black and the largest white.
    counts : bool
        All integers are measured, as a microscope's are.

    Returns
    -------
    image : ndarray
    words : str
        Empty if nothing was changed.

    Raises
    ------
    ValueError
        If more than a tenth of the values would be clipped that were not black
        or white in `source` already, or if floats would be rounded to a few levels.
    """
    check_flags(clip=clip, rescale=rescale, counts=counts)
    image, source = asnumpy(image), asnumpy(source)
    top = 2.0**bits - 1
    white = top if measured(source) else 1.0  # the number that becomes white
    words = ""
    counts = counts or Path(path).suffix.lower() in FITS
    if measured(source) or (source.dtype.kind in "iu" and counts):
        image = image * np.iinfo(source.dtype).max  # the unit that `as_float` took away
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
    """Where `image` lies outside black to white, and `source` was not black or white already."""
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
    """An image or stack of 8 or 16 bits that is restored part by part: never in memory as floating point.

    Parameters
    ----------
    path : path
        Where it is to be written, for the messages.
    source : array
        What is restored, of uint8 or uint16.
    bits : {8, 16}
        Of the file.

    Attributes
    ----------
    samples : ndarray
        The levels, shaped like `source`.
    clipped : int
        How many values lay outside black to white.
    least : float
        The least value.
    """

    def __init__(self, path: FilePath, source: np.ndarray, bits: int) -> None:
        self.samples = np.empty(source.shape, f"uint{bits}")
        self._path, self._bits = path, bits
        self.begin()

    def begin(self) -> None:
        """Start again: no part was taken."""
        self.clipped = self._lost = 0
        self.least, self._largest = np.inf, -np.inf

    def take(self, image: Array, source: Array) -> np.ndarray:
        """The levels of a restored part; `source` is the blurred part."""
        image, source = asnumpy(image), asnumpy(source)
        levels, clipped = _quantize(image, self._bits)
        self._lost += int(np.count_nonzero(_lost(image, source, 1.0, self._bits)))
        self.clipped += clipped
        self.least = min(self.least, float(image.min()))
        self._largest = max(self._largest, float(image.max()))
        return levels

    def check(self) -> None:
        """Raise ValueError as `fit_to_levels` if too much was clipped."""
        _check_lost(self._path, self._lost / self.samples.size, 1.0, self.least, self._largest)


def _quantize(image: np.ndarray, bits: int) -> tuple[np.ndarray, int]:
    """`image` in the dtype of the file, and the number of values that had to be clipped."""
    if bits == 32:
        if (most := float(np.abs(image).max())) > float(np.finfo(np.float32).max):
            raise ValueError(f"the image reaches {most:.3g}, and 32-bit floating point ends at 3.4e38: scale it")
        return image.astype(np.float32), 0
    top, clipped = 2**bits - 1, 0
    samples = np.empty(image.shape, f"uint{bits}")
    # In parts of about a million values, of which a copy takes little memory.
    parts = max(1, min(len(image), image.size >> 20))
    for rows, out in zip(np.array_split(image, parts), np.array_split(samples, parts), strict=True):
        levels = rows.astype(np.float64)
        levels *= top
        np.rint(levels, out=levels)
        clipped += int(np.count_nonzero((levels < 0) | (levels > top)))
        out[...] = np.clip(levels, 0, top, out=levels)
    return samples, clipped


def left_out(path: FilePath, image: Array, bits: int, metadata: Metadata) -> list[str]:
    """The metadata that `write` would not write into this file, in words.

    Parameters
    ----------
    path : path
        Its suffix names the format.
    image : array
        The image to be written; only its shape counts.
    bits : {8, 16, 32}
        As `check_format` gives them.
    metadata : Metadata

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

"""Point spread functions: builders with sizes in pixels, a reader for files, the command line's short forms.

Every builder returns a float64 array of shape (rows, columns), non-negative
and summing to one, whose centre is the pixel ((rows - 1) // 2, (columns - 1) // 2).
That is where `scipy.signal.convolve2d(..., "same")` and `deblur.Blur` take it
to be, so an even size blurs without shifting by a whole pixel.

`gaussian`, `moffat` and `airy` are *sampled* at the pixel centres, as MATLAB's
fspecial does. `disk` and `motion` have edges and are *integrated* over the
pixels exactly, so they change smoothly with radius, length and angle.
`camera_shake` spreads each point of its path over the four nearest pixels.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.special

from . import image as image_file
from .device import check_finite, format_bytes, require_memory
from .errors import InsufficientMemoryError

Size = int | tuple[int, int]


def _shape(size: Size) -> tuple[int, int]:
    pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2 or any(isinstance(n, bool) or not (n >= 1 and n == n // 1) for n in pair):
        raise ValueError(f"size must be a positive whole number of pixels or (rows, columns), not {size!r}")
    rows, cols = int(pair[0]), int(pair[1])
    _check_memory(rows, cols)
    return rows, cols


def _check_memory(rows: int, cols: int) -> None:
    # The builders hold up to ten arrays of the PSF's size at a time.
    require_memory(80 * rows * cols, np, f"a PSF of {rows} x {cols} pixels", "use a smaller size")


def _positive(value: float, name: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive finite number, not {value!r}")
    return float(value)


def _grid(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Row and column distances of each pixel centre from the PSF's centre, as a column and a row."""
    rows, cols = _shape(size)
    return np.arange(rows)[:, None] - (rows - 1) // 2, np.arange(cols)[None, :] - (cols - 1) // 2


def _unit_sum(weights: np.ndarray) -> np.ndarray:
    total = weights.sum()
    if not (np.isfinite(total) and total > 0):
        raise ValueError(
            "these parameters give a PSF that floating-point numbers cannot hold; use less extreme ones"
        )
    return weights / total


def delta(size: Size) -> np.ndarray:
    """The PSF that does not blur: one at the centre, zero elsewhere.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns).

    Returns
    -------
    psf : (rows, columns) ndarray, float64
    """
    y, x = _grid(size)
    return ((y == 0) & (x == 0)).astype(np.float64)


def box(size: Size) -> np.ndarray:
    """Uniform blur: the mean over size pixels.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns). An even size reaches one pixel further
        down and to the right, as everywhere in this module.

    Returns
    -------
    psf : (rows, columns) ndarray, float64
    """
    shape = _shape(size)
    return np.full(shape, 1.0 / (shape[0] * shape[1]))


def gaussian(size: Size, sigma: float | tuple[float, float]) -> np.ndarray:
    """Gaussian blur, sampled at the pixel centres and cut to the size given.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns). Six sigma holds all but 0.3 % of an axis.
    sigma : float or (float, float)
        Standard deviation in pixels, or one along the columns (vertical) and
        one along the rows (horizontal).

    Returns
    -------
    psf : (rows, columns) ndarray, float64
        Separable (rank one).
    """
    pair = tuple(sigma) if isinstance(sigma, tuple | list) else (sigma, sigma)
    if len(pair) != 2:
        raise ValueError(f"sigma must be one number or two, not {sigma!r}")
    with np.errstate(over="ignore", under="ignore"):  # far outside, exp(-inf) = 0 is the right answer
        y, x = (
            np.exp(-0.5 * (t / _positive(s, "sigma")) ** 2) for t, s in zip(_grid(size), pair, strict=True)
        )
    return _unit_sum(y * x)


def _quarter_disk_area(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    """Area of {0 <= u <= x, 0 <= v <= y, u² + v² <= r²}, odd in x and y: its differences give any pixel."""
    sign = np.sign(x) * np.sign(y)
    x, y = np.minimum(np.abs(x), r), np.minimum(np.abs(y), r)

    def under_circle(u: np.ndarray) -> np.ndarray:  # the integral of sqrt(r² - u²) from 0 to u
        return 0.5 * (u * np.sqrt(r * r - u * u) + r * r * np.arcsin(u / r))

    corner = np.minimum(x, np.sqrt(r * r - y * y))  # up to here the rectangle lies below the circle
    return sign * (corner * y + under_circle(x) - under_circle(corner))


def disk(size: Size, radius: float | None = None) -> np.ndarray:
    """Uniform disc, the blur of a defocused lens: each pixel holds the exact area the disc covers of it.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns).
    radius : float, optional
        Radius in pixels. By default the largest that fits, which for an odd
        size is ``size / 2``: the disc's diameter is then the PSF's size.

    Returns
    -------
    psf : (rows, columns) ndarray, float64
    """
    y, x = _grid(size)
    if radius is None:
        radius = (min(y.size, x.size) - 1) // 2 + 0.5
    farthest = np.hypot(np.abs(y) + 0.5, np.abs(x) + 0.5)
    r = min(_positive(radius, "radius"), farthest.max())  # a larger disc covers everything just as well
    top, bottom, left, right = y - 0.5, y + 0.5, x - 0.5, x + 0.5
    area = (
        _quarter_disk_area(right, bottom, r)
        - _quarter_disk_area(left, bottom, r)
        - _quarter_disk_area(right, top, r)
        + _quarter_disk_area(left, top, r)
    )
    # The difference of four areas leaves rounding where the answer is plainly nothing or the whole pixel.
    nearest = np.hypot(np.maximum(np.abs(y) - 0.5, 0), np.maximum(np.abs(x) - 0.5, 0))
    return _unit_sum(np.where(nearest >= r, 0.0, np.where(farthest <= r, 1.0, np.clip(area, 0.0, 1.0))))


def motion(length: float, angle: float = 0.0) -> np.ndarray:
    """Straight uniform motion: each pixel holds the exact length of the path that lies in it.

    Parameters
    ----------
    length : float
        Length of the path in pixels, at least one. At angle 0 an odd length
        gives that many equal pixels in a row.
    angle : float
        Direction in degrees, counter-clockwise from the horizontal as the
        image is displayed (rows count downwards), as in MATLAB's fspecial.

    Returns
    -------
    psf : (rows, columns) ndarray, float64
        The smallest odd-sized array that holds the path; point-symmetric.
    """
    if not _positive(length, "length") >= 1:
        raise ValueError(f"length must be at least 1 pixel, not {length!r}; a length of 1 does not blur")
    if not math.isfinite(angle):
        raise ValueError(f"angle must be finite, not {angle!r}")
    turn = math.radians(angle)
    step = np.array([-math.sin(turn), math.cos(turn)]) * length  # (rows, columns), end to end
    step[np.abs(step) < 1e-12 * length] = 0.0  # so that 90 and 180 degrees are exactly upright and level
    half = [max(math.ceil(abs(s) / 2 - 0.5 - 1e-9), 0) for s in step]
    _check_memory(2 * half[0] + 1, 2 * half[1] + 1)
    # The path is p(t) = t * step for -1/2 <= t <= 1/2; it is cut wherever it crosses a pixel edge.
    cuts = [np.array([-0.5, 0.5])]
    cuts += [(np.arange(-h, h + 2) - 0.5) / s for h, s in zip(half, step, strict=True) if s != 0]
    t = np.unique(np.clip(np.concatenate(cuts), -0.5, 0.5))
    middle, weight = (t[1:] + t[:-1]) / 2, np.diff(t)
    real = weight > 1e-12  # where an edge is met by a corner, rounding leaves slivers
    pixel = [
        np.clip(np.rint(middle[real] * s).astype(int), -h, h) + h for h, s in zip(half, step, strict=True)
    ]
    psf = np.zeros((2 * half[0] + 1, 2 * half[1] + 1))
    np.add.at(psf, tuple(pixel), weight[real])
    return _unit_sum(psf)


def moffat(size: Size, fwhm: float, beta: float = 4.765) -> np.ndarray:
    """Moffat profile (1 + (r/α)²)^(-β), a star seen through turbulent air; sampled at the pixel centres.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns).
    fwhm : float
        Full width at half maximum in pixels; α = fwhm / (2 sqrt(2^(1/β) - 1)).
    beta : float
        Slope of the wings, above 1 (below that the profile holds infinite
        light). The default is what turbulence theory gives [1]_.

    Returns
    -------
    psf : (rows, columns) ndarray, float64

    References
    ----------
    .. [1] I. Trujillo, J. A. L. Aguerri, J. Cepa, C. M. Gutiérrez, "The effects of seeing on Sérsic
           profiles - II. The Moffat PSF", MNRAS 328, 2001, 977-985.
    """
    if not (math.isfinite(beta) and beta > 1):
        raise ValueError(f"beta must be a finite number above 1, not {beta!r}")
    y, x = _grid(size)
    alpha = _positive(fwhm, "fwhm") / (2 * math.sqrt(math.expm1(math.log(2) / beta)))
    with np.errstate(over="ignore"):
        return _unit_sum(np.exp(-beta * np.log1p((y / alpha) ** 2 + (x / alpha) ** 2)))


def airy(size: Size, radius: float) -> np.ndarray:
    """Airy pattern (2 J₁(v)/v)², the diffraction of a round aperture; sampled at the pixel centres.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns).
    radius : float
        Radius of the first dark ring in pixels: 1.22 λN / pixel pitch for a
        lens of f-number N.

    Returns
    -------
    psf : (rows, columns) ndarray, float64
    """
    y, x = _grid(size)
    v = np.hypot(y, x) * (scipy.special.jn_zeros(1, 1)[0] / _positive(radius, "radius"))
    v[v == 0] = 1e-8  # the limit at the centre is 1, and J₁(v)/v is 1/2 to rounding here
    return _unit_sum((2 * scipy.special.j1(v) / v) ** 2)


def camera_shake(size: Size, seed: int | np.random.Generator) -> np.ndarray:
    """The trace of an unsteady hand: a smooth random path, exposed evenly in time, that fills the size.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns). The path is stretched until it touches an edge.
    seed : int or numpy.random.Generator
        The same seed gives the same PSF.

    Returns
    -------
    psf : (rows, columns) ndarray, float64
        Not symmetric; its centre of gravity is the centre pixel, so the
        restored image is not displaced.

    Notes
    -----
    The path is a cosine series with normal coefficients falling as k^(-3/2),
    between Brownian motion (k^-1) and its integral (k^-2): it turns as a hand
    does but has no kinks. Bright spots are where it lingers, as in the
    measured traces that random-trajectory models [1]_ imitate.

    References
    ----------
    .. [1] G. Boracchi, A. Foi, "Modeling the performance of image restoration from motion blur",
           IEEE Trans. Image Processing 21 (8), 2012, 3502-3517.
    """
    rows, cols = _shape(size)
    rng = np.random.default_rng(seed)
    k = np.arange(1, 13)
    t = (np.arange(4096) + 0.5) / 4096
    # Each cosine's mean over t is zero, and so is the path's.
    path = (rng.standard_normal((2, len(k))) * k**-1.5) @ np.cos(np.pi * k[:, None] * t)
    room = [((n - 1) // 2, n // 2) for n in (rows, cols)]  # pixels before and after the centre
    fits = [
        reach / extent
        for p, (before, after) in zip(path, room, strict=True)
        for reach, extent in ((before, -p.min()), (after, p.max()))
        if before > 0
    ]
    psf = np.zeros((rows, cols))
    y, x = (
        before
        + (p * min(fits) if before > 0 else np.zeros_like(p))  # an axis under 3 pixels has no room to move
        for p, (before, _) in zip(path, room, strict=True)
    )
    i = np.clip(np.floor(y).astype(int), 0, max(rows - 2, 0))
    j = np.clip(np.floor(x).astype(int), 0, max(cols - 2, 0))
    dy, dx = y - i, x - j
    for a, wy in ((0, 1 - dy), (1, dy)):
        for b, wx in ((0, 1 - dx), (1, dx)):
            # A one-pixel axis has no neighbour; its weight there is zero.
            np.add.at(psf, (np.minimum(i + a, rows - 1), np.minimum(j + b, cols - 1)), wy * wx)
    return _unit_sum(np.maximum(psf, 0.0))


# ---------------------------------------------------------------------------------------------
# Files and short forms
# ---------------------------------------------------------------------------------------------


def _read_table(path: Path) -> np.ndarray:
    if path.suffix.lower() in (".csv", ".txt"):
        lines = path.read_text(encoding="utf-8-sig").replace(",", " ").replace(";", " ").splitlines()
        if not any(line.strip() for line in lines):
            raise ValueError("it holds no numbers")
        return np.loadtxt(lines, ndmin=2)
    with image_file.opened(path) as f:
        if not zipfile.is_zipfile(f):
            return _read_npy(f, f.seek(0, os.SEEK_END))
        with zipfile.ZipFile(f) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            names = list(members)
            if "psf" not in names and len(names) != 1:
                raise ValueError(
                    f"it holds {len(names)} arrays {names}; name one of them 'psf' or keep only one"
                )
            member = members["psf" if "psf" in names else names[0]]
            with archive.open(member) as stream:
                return _read_npy(stream, member.file_size)


def _read_npy(f: IO[bytes], size: int) -> np.ndarray:
    """The array in a .npy of `size` bytes, if it holds what its header promises and memory does too."""
    f.seek(0)
    version = np.lib.format.read_magic(f)
    if version > (2, 0):
        raise ValueError("it holds named fields, not real numbers")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(f)
    promised = math.prod(shape) * dtype.itemsize
    if promised > size and not dtype.hasobject:
        raise ValueError(
            f"its header promises {format_bytes(promised)} and it holds {format_bytes(size)}; it is damaged or was "
            "cut short"
        )
    require_memory(2 * promised, np, f"a PSF of shape {shape}", "use a smaller one")
    f.seek(0)
    return np.lib.format.read_array(f, allow_pickle=False)


def load(path: str | PathLike[str], *, normalize: bool = True, allow_negative: bool = False) -> np.ndarray:
    """Read a PSF from an image (PNG, TIFF, ...), a NumPy file (.npy, .npz) or a table (.csv, .txt).

    Parameters
    ----------
    path : path
        An image is read as `deblur.image.read` does: integers scaled to
        [0, 1]; a grey picture saved as colour is taken as grey. An ``.npz``
        holds one array, or one named ``psf``. A table has one row of the PSF
        a line, numbers separated by commas, semicolons or spaces.
    normalize : bool
        Divide by the sum, so that blurring keeps the brightness (default). False
        keeps the values as they are in the file.
    allow_negative : bool
        Accept values below zero, as a sharpening filter has them.

    Returns
    -------
    psf : (rows, columns) ndarray, float64

    Raises
    ------
    OSError
        If the file is missing or cannot be read.
    ValueError
        If what it holds is no PSF: not 2-D, coloured, NaN or infinite,
        negative, or summing to zero.
    """
    path = image_file.check_readable(path)
    is_table = path.suffix.lower() in (".npy", ".npz", ".csv", ".txt")
    picture = None if is_table else image_file.read(path)
    try:
        psf = _read_table(path) if picture is None else picture
        if psf.dtype.kind not in "biuf":
            raise ValueError(f"it holds {psf.dtype}, not real numbers")
        psf = psf.astype(np.float64)
        if psf.ndim == 3 and psf.shape[-1] == 3:
            if np.ptp(psf, axis=-1).any():
                raise ValueError(
                    "its colours differ; convert it to grey, or save one channel as its own file"
                )
            psf = psf[..., 0]  # a grey picture saved as colour
        if psf.ndim != 2 or psf.size == 0:
            raise ValueError(f"a PSF is a non-empty 2-D array, this one has shape {psf.shape}")
        check_finite(psf, "it")
        if not allow_negative and psf.min() < 0:
            raise ValueError(
                f"its smallest value is {psf.min():.4g}, and light cannot be negative; subtract the "
                "background, or pass allow_negative=True for a sharpening filter"
            )
        total = psf.sum()
        if not abs(total) > 1e-12 * np.abs(psf).sum():
            raise ValueError("its values sum to zero, so a blurred image would lose its brightness")
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot use {path} as a PSF: {error}") from error
    return psf / total if normalize else psf


def _number(text: str) -> float:
    return float(text)


def _whole(text: str) -> int:
    return int(text)


def _size(text: str) -> Size:
    rows, cross, cols = text.lower().partition("x")
    return (int(rows), int(cols)) if cross else int(rows)


# One row a form: how it is written, its builder, the reader of each argument, and how many are needed.
_FORMS: dict[str, tuple[str, Callable[..., np.ndarray], tuple[Callable[[str], Any], ...], int]] = {
    "gaussian": ("gaussian:SIZE,SIGMA", gaussian, (_size, _number), 2),
    "disk": ("disk:SIZE[,RADIUS]", disk, (_size, _number), 1),
    "motion": ("motion:LENGTH[,ANGLE]", motion, (_number, _number), 1),
    "box": ("box:SIZE", box, (_size,), 1),
    "moffat": ("moffat:SIZE,FWHM[,BETA]", moffat, (_size, _number, _number), 2),
    "airy": ("airy:SIZE,RADIUS", airy, (_size, _number), 2),
    "shake": ("shake:SIZE,SEED", camera_shake, (_size, _whole), 2),
    "delta": ("delta:SIZE", delta, (_size,), 1),
}

#: The short forms that `parse` knows, for help texts.
FORMS = (*(usage for usage, *_ in _FORMS.values()), "a path to an image, .npy, .npz, .csv or .txt")


def parse(text: str) -> np.ndarray:
    """A PSF from the command line's short form, or from a file.

    Parameters
    ----------
    text : str
        ``gaussian:9,1.2``, ``disk:7``, ``motion:15,30``, ``box:5``,
        ``moffat:15,3``, ``airy:15,4``, ``shake:17,1``, ``delta:3`` (see `FORMS`),
        or the path of a file for `load`. SIZE is ``9`` or ``9x7`` (rows x columns),
        lengths are in pixels, ANGLE in degrees.

    Returns
    -------
    psf : (rows, columns) ndarray, float64

    Raises
    ------
    ValueError
        If the text is no form and no file, or its numbers are wrong; the
        message lists the forms.
    OSError
        If the file cannot be read.
    """
    known = "; the forms are " + ", ".join(FORMS)
    name, colon, rest = text.strip().partition(":")
    form = _FORMS.get(name.strip().lower())
    if form is None or not colon:
        if not text.strip() or not Path(text).exists():
            raise ValueError(f"{text!r} is neither a file nor a known form of PSF{known}")
        return load(text)
    usage, build, readers, needed = form
    words = [word.strip() for word in rest.split(",")]
    if not needed <= len(words) <= len(readers):
        raise ValueError(f"psf {text!r} must be written {usage}{known}")
    try:
        arguments = [read(word) for read, word in zip(readers, words, strict=False)]
    except ValueError:
        raise ValueError(
            f"psf {text!r} must be written {usage}, with numbers for the words in capitals{known}"
        ) from None
    try:
        return build(*arguments)
    except ValueError as error:
        raise ValueError(f"psf {text!r}: {error}") from None
    except InsufficientMemoryError as error:
        raise InsufficientMemoryError(f"psf {text!r}: {error}", error.needed, error.free) from None

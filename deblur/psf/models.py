"""Point spread functions by formula, with sizes in pixels.

Every builder returns a float64 array of shape (rows, columns), non-negative
and summing to one, whose centre is the pixel ((rows - 1) // 2, (columns - 1) // 2).
`scipy.signal.convolve2d(..., "same")` and `deblur.Blur` use the same centre,
so that an even size blurs without shifting by a whole pixel. `delta`, `box` and
`gaussian` know any number of axes: volumes are (planes, rows, columns).

`gaussian`, `moffat` and `airy` are *sampled* at the pixel centres, as MATLAB's
fspecial does; `gaussian` can be integrated over the pixels instead. `disk` and
`motion` have edges and are *integrated* over the pixels exactly, so they change smoothly with radius, length and angle.
`camera_shake` spreads each point of its path over the four nearest pixels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy

from ..device import require_memory
from ..errors import as_number, check_flags, check_number, generator

Size = int | tuple[int, ...]
Lengths = float | Sequence[float]


def as_shape(size: Size, axes: int | None = 2) -> tuple[int, ...]:
    """The sides of a PSF of so many axes, or of any number (None); one whole number is the side of a square."""
    sides = tuple(size) if isinstance(size, tuple | list) else (size,) * (axes or 2)
    counted = len(sides) == axes if axes else 0 < len(sides) < 4
    if not counted or not all(as_number(n).is_integer() and n >= 1 for n in sides):
        names = "(planes, rows, columns)" if axes == 3 else "(rows, columns)"
        more = "" if axes else " or (planes, rows, columns)"
        raise ValueError(f"size must be a positive whole number of pixels or {names}{more}, not {size!r}")
    shape = tuple(int(n) for n in sides)
    _check_memory(shape)
    return shape


def _check_memory(shape: tuple[int, ...]) -> None:
    # The builders hold up to ten arrays of the PSF's size at a time.
    pixels = " x ".join(map(str, shape))
    require_memory(80 * math.prod(shape), np, f"a PSF of {pixels} pixels", "use a smaller size")


def per_axis(values: Lengths, axes: int, name: str, gaps: bool = False) -> tuple[float, ...]:
    """A positive number for each axis; one may stand for all, and of a volume the last of two for rows and columns.

    With `gaps` NaN stands for one that is not known.
    """
    each = tuple(values) if np.iterable(values) else (values,)
    if axes == 3 and len(each) == 2:
        each += each[1:]
    if len(each) not in (1, axes):
        raise ValueError(f"{name} must be one number, or one for each of {axes} axes, not {values!r}")
    return tuple(x if gaps and x != x else check_number(x, name, above=True) for x in (each * axes)[:axes])


def coordinates(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Distances of each pixel centre from the PSF's centre along each axis, as a column (m, 1) and a row (1, n)."""
    return np.ix_(*(np.arange(n) - (n - 1) // 2 for n in shape))


def radii(shape: tuple[int, ...]) -> np.ndarray:
    """The distance of each pixel centre from the PSF's centre."""
    return functools.reduce(np.hypot, coordinates(shape), np.zeros(()))


def unit_sum(psf: np.ndarray) -> np.ndarray:
    """The PSF divided by its sum; ValueError if that is not positive and finite, beyond rounding."""
    total = psf.sum()
    if not (np.isfinite(total) and total > 1e-12 * np.abs(psf).sum()):
        raise ValueError("the PSF's values sum to zero or less, or to no number: subtract its background or negate it")
    return psf / total


def delta(size: Size) -> np.ndarray:
    """The PSF that does not blur: one at the centre, zero elsewhere.

    Parameters
    ----------
    size : int or tuple of int
        Pixels, or (rows, columns), or (planes, rows, columns).

    Returns
    -------
    psf : ndarray, float64
    """
    return (radii(as_shape(size, None)) == 0).astype(np.float64)


def box(size: Size) -> np.ndarray:
    """Uniform blur: the mean over size pixels.

    Parameters
    ----------
    size : int or tuple of int
        Pixels, or (rows, columns), or (planes, rows, columns). An even size
        reaches one pixel further down and to the right, as everywhere in this module.

    Returns
    -------
    psf : ndarray, float64
    """
    shape = as_shape(size, None)
    return np.full(shape, 1.0 / math.prod(shape))


def gaussian(size: Size, sigma: Lengths, integrated: bool = False) -> np.ndarray:
    """Gaussian blur, cut to the given size.

    Parameters
    ----------
    size : int or tuple of int
        Pixels, or (rows, columns), or (planes, rows, columns). Six sigma holds
        all but 0.3 % of an axis.
    sigma : float or tuple of float
        Standard deviation in pixels, or one along each axis: first along the
        columns (vertical), last along the rows (horizontal). Of a volume also
        (along the planes, within them).
    integrated : bool
        Integrate over each pixel. By default the values are those at the pixel centres.

    Returns
    -------
    psf : ndarray, float64
        Separable (rank one).
    """
    check_flags(integrated=integrated)
    shape = as_shape(size, None)
    along = zip(coordinates(shape), per_axis(sigma, len(shape), "sigma"), strict=True)
    return unit_sum(functools.reduce(np.multiply, [bell(line, width, integrated) for line, width in along]))


def bell(line: np.ndarray, sigma: float, integrated: bool = False) -> np.ndarray:
    """exp(−(line/sigma)²/2) at distances from the centre, or integrals over the pixels there, of any brightness."""
    with np.errstate(over="ignore", under="ignore"):  # far outside, exp(-inf) = 0 is the right answer
        if integrated:
            away = -np.abs(line)  # the tail that is not 1 less a rounding error
            return scipy.special.ndtr((away + 0.5) / sigma) - scipy.special.ndtr((away - 0.5) / sigma)
        return np.exp(-0.5 * (line / sigma) ** 2)


def _quarter_disk_area(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    """Area of {0 <= u <= x, 0 <= v <= y, u² + v² <= r²}, odd in x and y: its differences give any pixel."""
    sign = np.sign(x) * np.sign(y)
    x, y = np.minimum(np.abs(x), r), np.minimum(np.abs(y), r)

    def under_circle(u: np.ndarray) -> np.ndarray:  # the integral of sqrt(r² - u²) from 0 to u
        return 0.5 * (u * np.sqrt(r * r - u * u) + r * r * np.arcsin(u / r))

    corner = np.minimum(x, np.sqrt(r * r - y * y))  # up to here the rectangle lies below the circle
    return sign * (corner * y + under_circle(x) - under_circle(corner))


def disk_area(y: np.ndarray, x: np.ndarray, radius: float) -> np.ndarray:
    """The area that a disc covers of pixels at distances y (m, 1) and x (1, n) from its centre: (m, n), up to 1."""
    farthest = np.hypot(np.abs(y) + 0.5, np.abs(x) + 0.5)
    r = min(radius, farthest.max())  # a larger disc covers everything just as well
    ends = _quarter_disk_area(np.append(x - 0.5, x[:, -1:] + 0.5, 1), np.append(y - 0.5, y[-1:] + 0.5, 0), r)
    area = np.diff(np.diff(ends, axis=0), axis=1)
    # The difference of four areas leaves rounding where the answer is plainly nothing or the whole pixel.
    nearest = np.hypot(np.maximum(np.abs(y) - 0.5, 0), np.maximum(np.abs(x) - 0.5, 0))
    return np.where(nearest >= r, 0.0, np.where(farthest <= r, 1.0, np.clip(area, 0.0, 1.0)))


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
    y, x = coordinates(as_shape(size))
    if radius is None:
        radius = (min(y.size, x.size) - 1) // 2 + 0.5
    return unit_sum(disk_area(y, x, check_number(radius, "radius", above=True)))


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
    if not check_number(length, "length", above=True) >= 1:
        raise ValueError(f"length must be at least 1 pixel, not {length!r}; a length of 1 does not blur")
    if not math.isfinite(as_number(angle)):
        raise ValueError(f"angle must be finite, not {angle!r}")
    half = [max(math.ceil(abs(s) / 2 - 0.5 - 1e-9), 0) for s in _step(length, angle)]
    shape = (2 * half[0] + 1, 2 * half[1] + 1)
    _check_memory(shape)
    y, x = coordinates(shape)
    return unit_sum(path_length(y, x, length, angle))


def _step(length: float, angle: float) -> np.ndarray:
    """Rows and columns from end to end of a straight path."""
    turn = math.radians(angle)
    step = np.array([-math.sin(turn), math.cos(turn)]) * length
    step[np.abs(step) < 1e-12 * length] = 0.0  # so that 90 and 180 degrees are exactly upright and level
    return step


def path_length(y: np.ndarray, x: np.ndarray, length: float, angle: float) -> np.ndarray:
    """The share of a straight path in each pixel at distances y (m, 1) and x (1, n) from its middle: (m, n)."""
    # The path is p(t) = t * step for -1/2 <= t <= 1/2; it is cut wherever it crosses a pixel edge.
    step, lines = _step(length, angle), (y.ravel(), x.ravel())
    cuts = [np.array([-0.5, 0.5])]
    cuts += [(np.append(line, line[-1] + 1) - 0.5) / s for s, line in zip(step, lines, strict=True) if s]
    t = np.unique(np.clip(np.concatenate(cuts), -0.5, 0.5))
    middle, share = (t[1:] + t[:-1]) / 2, np.diff(t)
    pixel = np.stack([np.rint(middle * s - line[0]) for s, line in zip(step, lines, strict=True)]).astype(int)
    # Where an edge is met by a corner, rounding leaves slivers.
    inside = ((pixel >= 0) & (pixel < [[y.size], [x.size]])).all(axis=0) & (share > 1e-12)
    out = np.zeros((y.size, x.size))
    np.add.at(out, tuple(pixel[:, inside]), share[inside])
    return out


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
    if not (math.isfinite(as_number(beta)) and beta > 1):
        raise ValueError(f"beta must be a finite number above 1, not {beta!r}")
    y, x = coordinates(as_shape(size))
    return unit_sum(moffat_profile(y, x, check_number(fwhm, "fwhm", above=True), beta))


def moffat_profile(y: np.ndarray, x: np.ndarray, fwhm: float, beta: float) -> np.ndarray:
    """(1 + (r/α)²)^(−β) at distances y (m, 1) and x (1, n) from the centre."""
    alpha = fwhm / (2 * math.sqrt(math.expm1(math.log(2) / beta)))
    with np.errstate(over="ignore"):
        return np.exp(-beta * np.log1p((y / alpha) ** 2 + (x / alpha) ** 2))


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
    return unit_sum(airy_profile(radii(as_shape(size)), check_number(radius, "radius", above=True)))


def airy_profile(distance: np.ndarray, radius: float | np.ndarray) -> np.ndarray:
    """(2 J₁(v)/v)² at distances from the centre; `radius` is that of the first dark ring."""
    v = distance * (scipy.special.jn_zeros(1, 1)[0] / radius)
    v = np.maximum(v, 1e-8)  # the limit at the centre is 1, and J₁(v)/v is 1/2 to rounding here
    return (2 * scipy.special.j1(v) / v) ** 2


def camera_shake(size: Size, seed: int | np.random.Generator) -> np.ndarray:
    """Camera shake: a smooth random path, exposed evenly in time, that fills the size.

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
    between Brownian motion (k^-1) and its integral (k^-2): it turns but has no
    kinks. It is bright where it moves slowly, as in the measured traces that
    random-trajectory models [1]_ imitate.

    References
    ----------
    .. [1] G. Boracchi, A. Foi, "Modeling the performance of image restoration from motion blur",
           IEEE Trans. Image Processing 21 (8), 2012, 3502-3517.
    """
    shape = np.array(as_shape(size))
    rng = generator(seed)
    k = np.arange(1, 13)
    t = (np.arange(4096) + 0.5) / 4096
    # Each cosine's mean over t is zero, and so is the path's.
    path = (rng.standard_normal((2, len(k))) * k**-1.5) @ np.cos(np.pi * k[:, None] * t)
    before, after = (shape - 1) // 2, shape // 2  # pixels on either side of the centre
    moves = before > 0  # an axis under 3 pixels has no room to move
    fits = np.minimum(before / -path.min(axis=1), after / path.max(axis=1))[moves]
    at = before[:, None] + (moves * min(fits, default=0.0))[:, None] * path
    return unit_sum(spread(at, shape).sum(axis=1).reshape(shape))


def spread(at: np.ndarray, shape: Sequence[int] | np.ndarray) -> scipy.sparse.csr_array:
    """The matrix (pixels, points) that spreads the light of points over the four nearest pixels of an array.

    `at` are their places (2, k), in pixels from its first one; light beyond the array is lost.
    """
    pixels = np.floor(at).astype(int) + np.reshape([[0, 0], [0, 1], [1, 0], [1, 1]], (4, 2, 1))
    inside = ((pixels >= 0) & (pixels < np.reshape(shape, (2, 1)))).all(axis=1)
    shares = np.maximum(1 - abs(at - pixels), 0).prod(axis=1) * inside
    rows = np.ravel_multi_index(tuple(pixels.swapaxes(0, 1)), tuple(shape), mode="clip")
    columns = np.broadcast_to(np.arange(at.shape[1]), rows.shape)
    return scipy.sparse.csr_array((shares.ravel(), (rows.ravel(), columns.ravel())), (math.prod(shape), at.shape[1]))

"""Point spread functions by formula, with sizes in pixels.

Every builder returns a float64 array of shape (rows, columns), non-negative and with a sum of one. `deblur.psf` says
where its centre is. `delta`, `box` and `gaussian` accept any number of axes: volumes are (planes, rows, columns).

`gaussian`, `moffat` and `airy` are *sampled* at the pixel centres, like MATLAB's fspecial; `gaussian` can be integrated
over the pixels instead. `disk` and `motion` have edges and are *integrated* exactly over the pixels, so that they
change smoothly with radius, length and angle. `camera_shake` spreads each point of its path over the four nearest
pixels.
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
    """Return the sides of a PSF with this number of axes, or any number (None); one whole number is the side of a
    square.
    """
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
    # The builders hold up to ten arrays of the PSF's size at the same time.
    pixels = " x ".join(map(str, shape))
    require_memory(80 * math.prod(shape), np, f"a PSF of {pixels} pixels", "use a smaller size")


def per_axis(values: Lengths, axes: int, name: str, gaps: bool = False) -> tuple[float, ...]:
    """Return a positive number for each axis; one number applies to all axes.

    For a volume the second of two numbers applies to rows and columns. With `gaps` NaN stands for an unknown number.
    """
    each = tuple(values) if np.iterable(values) else (values,)
    if axes == 3 and len(each) == 2:
        each += each[1:]
    if len(each) not in (1, axes):
        raise ValueError(f"{name} must be one number, or one for each of {axes} axes, not {values!r}")
    return tuple(x if gaps and x != x else check_number(x, name, above=True) for x in (each * axes)[:axes])


def centre(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the pixel that is the centre of a PSF of this shape."""
    return tuple((n - 1) // 2 for n in shape)


def coordinates(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Return the distances of the pixel centres from the PSF's centre along each axis, as a column (m, 1) and a row (1,
    n).
    """
    return np.ix_(*(np.arange(n) - c for n, c in zip(shape, centre(shape), strict=True)))


def centre_of_gravity(psf: np.ndarray) -> tuple[float, ...]:
    """Return the displacement of the centre of gravity from the PSF's centre along each axis, in pixels."""
    return tuple(float((line * psf).sum() / (psf.sum() or 1.0)) for line in coordinates(psf.shape))


def radii(shape: tuple[int, ...]) -> np.ndarray:
    """Return the distance of each pixel centre from the PSF's centre."""
    return functools.reduce(np.hypot, coordinates(shape), np.zeros(()))


def unit_sum(psf: np.ndarray) -> np.ndarray:
    """Return the PSF divided by its sum; raise ValueError if the sum is not positive and finite, beyond rounding."""
    total = psf.sum()
    if not (np.isfinite(total) and total > 1e-12 * np.abs(psf).sum()):
        raise ValueError("the PSF's sum is zero or less, or not finite: subtract its background or negate it")
    return psf / total


def delta(size: Size) -> np.ndarray:
    """Return the PSF that does not blur: one at the centre, zero elsewhere.

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
    """Return the PSF of a uniform blur: the mean over `size` pixels.

    Parameters
    ----------
    size : int or tuple of int
        Pixels, or (rows, columns), or (planes, rows, columns). An even size
        extends one pixel further down and to the right, as everywhere in this module.

    Returns
    -------
    psf : ndarray, float64
    """
    shape = as_shape(size, None)
    return np.full(shape, 1.0 / math.prod(shape))


def gaussian(size: Size, sigma: Lengths, integrated: bool = False) -> np.ndarray:
    """Return a Gaussian PSF, cut to the given size.

    Parameters
    ----------
    size : int or tuple of int
        Pixels, or (rows, columns), or (planes, rows, columns). Six sigma holds
        all but 0.3 % of the light along an axis.
    sigma : float or tuple of float
        Standard deviation in pixels, or one for each axis: the first is along the
        columns (vertical), the last along the rows (horizontal). For a volume it may
        be (across the planes, within the planes).
    integrated : bool
        True integrates over each pixel. By default the values are those at the pixel centres.

    Returns
    -------
    psf : ndarray, float64
        The PSF, which is separable (rank one).
    """
    check_flags(integrated=integrated)
    shape = as_shape(size, None)
    along = zip(coordinates(shape), per_axis(sigma, len(shape), "sigma"), strict=True)
    return unit_sum(functools.reduce(np.multiply, [bell(line, width, integrated) for line, width in along]))


def bell(line: np.ndarray, sigma: float, integrated: bool = False) -> np.ndarray:
    """Return exp(−(line/sigma)²/2) at distances from the centre, or its integrals over the pixels there, of any
    brightness.
    """
    with np.errstate(over="ignore", under="ignore"):  # far outside, exp(-inf) = 0 is correct
        if integrated:
            away = -np.abs(line)  # use the tail near 0, not the one near 1, which has rounding errors
            return scipy.special.ndtr((away + 0.5) / sigma) - scipy.special.ndtr((away - 0.5) / sigma)
        return np.exp(-0.5 * (line / sigma) ** 2)


def _quarter_disk_area(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    """Return the area of {0 <= u <= x, 0 <= v <= y, u² + v² <= r²}, odd in x and y; its differences give any pixel."""
    sign = np.sign(x) * np.sign(y)
    x, y = np.minimum(np.abs(x), r), np.minimum(np.abs(y), r)

    def under_circle(u: np.ndarray) -> np.ndarray:  # the integral of sqrt(r² - u²) from 0 to u
        return 0.5 * (u * np.sqrt(r * r - u * u) + r * r * np.arcsin(u / r))

    corner = np.minimum(x, np.sqrt(r * r - y * y))  # up to here the rectangle lies below the circle
    return sign * (corner * y + under_circle(x) - under_circle(corner))


def disk_area(y: np.ndarray, x: np.ndarray, radius: float) -> np.ndarray:
    """Return the area that a disc covers of each pixel at distances y (m, 1) and x (1, n) from its centre: (m, n), up
    to 1.
    """
    farthest = np.hypot(np.abs(y) + 0.5, np.abs(x) + 0.5)
    r = min(radius, farthest.max())  # a larger disc covers the same pixels
    ends = _quarter_disk_area(np.append(x - 0.5, x[:, -1:] + 0.5, 1), np.append(y - 0.5, y[-1:] + 0.5, 0), r)
    area = np.diff(np.diff(ends, axis=0), axis=1)
    # The difference of four areas has rounding errors where the answer is exactly nothing or the whole pixel.
    nearest = np.hypot(np.maximum(np.abs(y) - 0.5, 0), np.maximum(np.abs(x) - 0.5, 0))
    return np.where(nearest >= r, 0.0, np.where(farthest <= r, 1.0, np.clip(area, 0.0, 1.0)))


def disk(size: Size, radius: float | None = None) -> np.ndarray:
    """Return the PSF of a defocused lens, a uniform disc: each pixel holds the exact area that the disc covers.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns).
    radius : float, optional
        Radius in pixels. By default the largest radius that fits, which is
        ``size / 2`` for an odd size: the diameter of the disc is then the PSF's size.

    Returns
    -------
    psf : (rows, columns) ndarray, float64
    """
    y, x = coordinates(as_shape(size))
    if radius is None:
        radius = (min(y.size, x.size) - 1) // 2 + 0.5
    return unit_sum(disk_area(y, x, check_number(radius, "radius", above=True)))


def motion(length: float, angle: float = 0.0) -> np.ndarray:
    """Return the PSF of straight uniform motion: each pixel holds the exact length of the path inside it.

    Parameters
    ----------
    length : float
        Length of the path in pixels, at least one. At angle 0 an odd length
        gives this number of equal pixels in a row.
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
    """Return rows and columns from end to end of a straight path."""
    turn = math.radians(angle)
    step = np.array([-math.sin(turn), math.cos(turn)]) * length
    step[np.abs(step) < 1e-12 * length] = 0.0  # so that 90 and 180 degrees are exactly vertical and horizontal
    return step


def path_length(y: np.ndarray, x: np.ndarray, length: float, angle: float) -> np.ndarray:
    """Return the share of a straight path in each pixel at distances y (m, 1) and x (1, n) from its middle: (m, n)."""
    # The path is p(t) = t * step for -1/2 <= t <= 1/2. It is cut where it crosses the edges of pixels.
    step, lines = _step(length, angle), (y.ravel(), x.ravel())
    cuts = [np.array([-0.5, 0.5])]
    cuts += [(np.append(line, line[-1] + 1) - 0.5) / s for s, line in zip(step, lines, strict=True) if s]
    t = np.unique(np.clip(np.concatenate(cuts), -0.5, 0.5))
    middle, share = (t[1:] + t[:-1]) / 2, np.diff(t)
    pixel = np.stack([np.rint(middle * s - line[0]) for s, line in zip(step, lines, strict=True)]).astype(int)
    # Where the path meets a corner, rounding leaves very short pieces.
    inside = ((pixel >= 0) & (pixel < [[y.size], [x.size]])).all(axis=0) & (share > 1e-12)
    out = np.zeros((y.size, x.size))
    np.add.at(out, tuple(pixel[:, inside]), share[inside])
    return out


def moffat(size: Size, fwhm: float, beta: float = 4.765) -> np.ndarray:
    """Return a Moffat profile (1 + (r/α)²)^(-β), a star seen through turbulent air, sampled at the pixel centres.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns).
    fwhm : float
        Full width at half maximum in pixels; α = fwhm / (2 sqrt(2^(1/β) - 1)).
    beta : float
        Slope of the wings, above 1 (otherwise the profile holds infinite
        light). The default follows from the theory of turbulence [1]_.

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
    """Return (1 + (r/α)²)^(−β) at distances y (m, 1) and x (1, n) from the centre."""
    alpha = fwhm / (2 * math.sqrt(math.expm1(math.log(2) / beta)))
    with np.errstate(over="ignore"):
        return np.exp(-beta * np.log1p((y / alpha) ** 2 + (x / alpha) ** 2))


def airy(size: Size, radius: float) -> np.ndarray:
    """Return an Airy pattern (2 J₁(v)/v)², the diffraction of a round aperture, sampled at the pixel centres.

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
    """Return (2 J₁(v)/v)² at distances from the centre; `radius` is that of the first dark ring."""
    v = distance * (scipy.special.jn_zeros(1, 1)[0] / radius)
    v = np.maximum(v, 1e-8)  # the limit at the centre is 1; at 1e-8 it is reached to rounding
    return (2 * scipy.special.j1(v) / v) ** 2


def camera_shake(size: Size, seed: int | np.random.Generator) -> np.ndarray:
    """Return the PSF of camera shake: a smooth random path that fills the size, with equal exposure at all times.

    Parameters
    ----------
    size : int or (int, int)
        Pixels, or (rows, columns). The path is stretched until it touches an edge.
    seed : int or numpy.random.Generator
        The same seed gives the same PSF.

    Returns
    -------
    psf : (rows, columns) ndarray, float64
        The PSF, which is not symmetric. Its centre of gravity is the central
        pixel, so that the restored image is not displaced.

    Notes
    -----
    The path is a cosine series whose normal coefficients decrease as k^(-3/2), which
    is between Brownian motion (k^-1) and its integral (k^-2): it has turns but no
    kinks. It is bright where it moves slowly, like the measured traces that
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
    # The mean of each cosine over t is zero, and so is that of the path.
    path = (rng.standard_normal((2, len(k))) * k**-1.5) @ np.cos(np.pi * k[:, None] * t)
    before, after = (shape - 1) // 2, shape // 2  # pixels on either side of the centre
    moves = before > 0  # an axis under 3 pixels has no room to move
    fits = np.minimum(before / -path.min(axis=1), after / path.max(axis=1))[moves]
    at = before[:, None] + (moves * min(fits, default=0.0))[:, None] * path
    return unit_sum(spread(at, shape).sum(axis=1).reshape(shape))


def spread(at: np.ndarray, shape: Sequence[int] | np.ndarray) -> scipy.sparse.csr_array:
    """Return the matrix (pixels, points) that spreads the light of points over the four nearest pixels of an array.

    `at` holds the positions (2, k) of the points, in pixels from the first one; light beyond the array is lost.
    """
    pixels = np.floor(at).astype(int) + np.reshape([[0, 0], [0, 1], [1, 0], [1, 1]], (4, 2, 1))
    inside = ((pixels >= 0) & (pixels < np.reshape(shape, (2, 1)))).all(axis=1)
    shares = np.maximum(1 - abs(at - pixels), 0).prod(axis=1) * inside
    rows = np.ravel_multi_index(tuple(pixels.swapaxes(0, 1)), tuple(shape), mode="clip")
    columns = np.broadcast_to(np.arange(at.shape[1]), rows.shape)
    return scipy.sparse.csr_array((shares.ravel(), (rows.ravel(), columns.ravel())), (math.prod(shape), at.shape[1]))

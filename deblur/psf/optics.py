"""PSFs of microscopes: images and volumes of wide-field, confocal and light-sheet microscopes.

The field of a point at the distance r from the axis and z from the focus is an integral over the angle θ of the rays
that the objective accepts: of J₀(k n r sin θ) exp(i k W(θ, z)), with the wave number k in vacuum, the refractive index
n and the path W. The intensity is its squared modulus. It depends only on r and z, and is computed on a grid of r. Its
cubic spline is integrated over each voxel by Gauss-Legendre quadrature. All numbers of points follow from the finest
period of the intensity.

Lengths are in micrometres. In a volume (planes, rows, columns) the focus moves deeper into the specimen from plane to
plane.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy

from ..errors import as_number, check_choice, check_number
from .models import Lengths, Size, as_shape, coordinates, per_axis, unit_sum

Index = float | tuple[float, float, float]
Intensity = Callable[[np.ndarray, np.ndarray], np.ndarray]

#: The models of a point's field.
MODELS = ("richards-wolf", "gibson-lanni", "born-wolf")


def microscope(
    size: Size,
    voxel: Lengths,
    *,
    wavelength: float,
    na: float,
    index: Index = 1.515,
    z: float = 0.0,
    model: str = "richards-wolf",
) -> np.ndarray:
    """Return the PSF of a wide-field microscope, integrated over each voxel.

    Parameters
    ----------
    size : int or (int, int) or (int, int, int)
        Pixels, or (rows, columns), or (planes, rows, columns); all odd.
    voxel : float or (float, float) or (float, float, float)
        Side of a pixel in the specimen in micrometres: that of the camera divided by the magnification. For a volume
        (distance of the planes, side of a pixel), or all three sides.
    wavelength : float
        Wavelength of the detected light in vacuum, in micrometres.
    na : float
        Numerical aperture.
    index : float or (float, float, float)
        Refractive index of the immersion medium and the specimen. If the specimen has another index, which spreads the
        light along z, give (index of the immersion medium, index of the specimen, depth of the point below the
        coverslip in micrometres).
    z : float
        Distance of the focus from the point in micrometres; for a volume that of its central plane. Below a coverslip
        it is measured from the paraxial focus.
    model : {"richards-wolf", "gibson-lanni", "born-wolf"}
        The model of the field: vectorial for unpolarised light [1]_; scalar [2]_; scalar and paraxial [3]_, which is
        accurate for a small `na`.

    Returns
    -------
    psf : ndarray, float64
        The PSF, non-negative and with a sum of one.

    Raises
    ------
    ValueError
        For an even size, a length that is not positive, or an `na` that the index does not allow.

    References
    ----------
    .. [1] B. Richards, E. Wolf, "Electromagnetic diffraction in optical systems II", Proc. R. Soc. A 253, 1959.
    .. [2] S. F. Gibson, F. Lanni, J. Opt. Soc. Am. A 9, 1992, 154-166.
    .. [3] M. Born, E. Wolf, "Principles of Optics", section 8.8.

    Examples
    --------
    >>> import deblur
    >>> psf = deblur.psf.microscope((9, 65, 65), (1.0, 0.2), wavelength=0.5, na=0.5, index=1.0)
    >>> bool(psf[4].sum() < 1.05 * psf[0].sum())  # a wide-field microscope spreads the same light over each plane
    True
    """
    return _integrated(size, voxel, wavelength / (2 * na), _field(wavelength, na, index, model), z)


def confocal(
    size: Size,
    voxel: Lengths,
    *,
    excitation: float,
    emission: float,
    na: float,
    index: Index = 1.515,
    pinhole: float | None = None,
) -> np.ndarray:
    """Return the PSF of a confocal or spinning-disk microscope.

    It is the PSF of the excitation times the PSF of the emission through the pinhole. With `emission` equal to
    `excitation` and a pinhole of 0 it is the PSF of a two-photon microscope.

    Parameters
    ----------
    size, voxel, na, index
        As for `microscope`.
    excitation, emission : float
        Wavelengths in vacuum, in micrometres.
    pinhole : float, optional
        Radius of the pinhole divided by the magnification in front of it, in micrometres; by default one Airy unit,
        0.61 emission / na.

    Returns
    -------
    psf : ndarray, float64
        The PSF, non-negative and with a sum of one. Errors are those of `microscope`.
    """
    excited, detected = (_field(wavelength, na, index, MODELS[0]) for wavelength in (excitation, emission))
    reach = 0.61 * emission / na if pinhole is None else check_number(pinhole, "pinhole, a radius in micrometres,")

    def product(radii: np.ndarray, planes: np.ndarray) -> np.ndarray:
        across, share = _nodes(0, reach, 2 * na * reach / emission)
        weights = across * share if reach else share
        n = 2 * len(across)
        turns = np.exp(1j * np.pi * (np.arange(n) + 0.5) / n)  # the other half is symmetric
        at = np.abs(radii[:, None, None] + across[:, None] * turns).reshape(len(radii), -1)
        wide = np.append(radii, radii[-1] + radii[1] * np.arange(1, reach / radii[1] + 3))
        return excited(radii, planes) * _averaged(wide, detected(wide, planes), at, np.repeat(weights, n))

    return _integrated(size, voxel, 1 / (2 * na * (1 / excitation + 1 / emission)), product)


def light_sheet(
    size: Size, voxel: Lengths, *, wavelength: float, na: float, sheet: float, index: Index = 1.333
) -> np.ndarray:
    """Return the PSF of a light-sheet microscope: that of the detection times the profile of the sheet along z.

    Parameters
    ----------
    size, voxel, wavelength, na, index
        As for `microscope`, for the detection.
    sheet : float
        Waist of the light sheet in micrometres: the distance from its middle at which its intensity, a Gaussian, has
        decreased to exp(-2).

    Returns
    -------
    psf : ndarray, float64
        The PSF, non-negative and with a sum of one. Errors are those of `microscope`.
    """
    detected, waist = _field(wavelength, na, index, MODELS[0]), check_number(sheet, "sheet", above=True)
    finest = min(wavelength / (2 * na), waist)
    return _integrated(size, voxel, finest, lambda r, z: detected(r, z) * np.exp(-2 * (z / waist) ** 2))


def _field(wavelength: float, na: float, index: Index, model: str) -> Intensity:
    """Return a function for the intensity (r, z) of a point's image at distances (r,) from the axis and planes (z,)."""
    check_choice(model, MODELS, "model")
    if not 0.05 <= check_number(wavelength, "a wavelength") <= 20:
        raise ValueError(f"a wavelength is in micrometres, such as 0.52; {wavelength!r} would not be light")
    each = tuple(map(as_number, index)) if np.iterable(index) else (as_number(index), as_number(index), 0.0)
    if len(each) != 3 or not all(0.1 <= n <= 10 for n in each[:2]):
        raise ValueError(f"index must be one number, or (index, specimen's index, depth), not {index!r}")
    n, inside, depth = each
    check_number(depth, "the depth below the coverslip")
    if not 1e-3 <= check_number(na, "na") < n:
        raise ValueError(f"na = {na:g} must lie below the immersion index, {n:g} here (air 1, water 1.333, oil 1.515)")
    if model == "born-wolf" and inside != n:
        raise ValueError(f"born-wolf has one refractive index, not {n:g} and {inside:g}: use gibson-lanni")
    steepest = math.asin(min(na, inside) / n)  # steeper rays do not leave the specimen

    def intensity(radii: np.ndarray, planes: np.ndarray) -> np.ndarray:
        lateral = float(radii[-1]) * n * math.sin(steepest)
        axial = (np.abs(planes).max() + depth * n / inside) * n * (1 - math.cos(steepest)) + depth * inside
        angle, weight = _nodes(0, steepest, (lateral + axial) / wavelength)
        cos, sin = np.cos(angle), np.sin(angle)
        path = np.outer(n * sin**2 / 2 if model == "born-wolf" else -n * cos, planes)
        path += depth * (np.sqrt(np.maximum(inside**2 - (n * sin) ** 2, 0)) - n / inside * n * cos)[:, None]
        waves = weight[:, None] * np.exp(2j * np.pi / wavelength * path)
        parts: list[tuple[int, np.ndarray]] = [(0, sin * cos)]
        if model == "richards-wolf":
            even = np.sqrt(cos) * sin
            parts = [(0, even * (1 + cos)), (1, math.sqrt(2) * even * sin), (2, even * (1 - cos))]
        total = np.zeros((len(radii), len(planes)))
        for order, share in parts:
            bessel = scipy.special.jv(order, 2 * np.pi * n / wavelength * np.outer(radii, sin)) * share
            total += np.abs(bessel @ waves) ** 2
        return total

    return intensity


def _nodes(low: float, high: float, periods: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points and weights of Gauss-Legendre quadrature for the mean of a function with at most
    `periods` periods.
    """
    if not periods <= 1e3:
        raise ValueError(f"the PSF extends over {periods:.3g} wavelengths: use smaller voxels, size, sheet or z")
    x, w = np.polynomial.legendre.leggauss(4 + math.ceil(4 * periods))
    return low + (high - low) * (x + 1) / 2, w / 2


def _averaged(radii: np.ndarray, table: np.ndarray, at: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sums (k, z), with weights (q,), over distances `at` (k, q) of a function tabulated (r, z) at
    `radii` (r,).
    """
    spline = scipy.interpolate.CubicSpline(radii, table)
    return np.stack([weights @ spline(distances) for distances in at])


def _integrated(size: Size, voxel: Lengths, finest: float, intensity: Intensity, z: float = 0.0) -> np.ndarray:
    """Return the PSF of an intensity, integrated over each voxel; `finest` is the finest period of the intensity."""
    shape = as_shape(size, None)
    if len(shape) == 1 or not all(n % 2 for n in shape):
        raise ValueError(f"size must be odd along each axis, so that the focus is in a pixel, not {size!r}")
    sides = per_axis(voxel, len(shape), "voxel")
    if not math.isfinite(as_number(z)):
        raise ValueError(f"z must be a distance in micrometres, not {z!r}")
    # An image is one plane without thickness.
    shape, sides = (1,) * (3 - len(shape)) + shape, (0.0,) * (3 - len(shape)) + sides
    (within, thick), (down, high), (right, wide) = (_nodes(-s / 2, s / 2, s / finest) for s in sides)
    inner, lines = (within, down, right), map(np.ravel, coordinates(shape))
    planes, y, x = (np.add.outer(line * s, p) for line, s, p in zip(lines, sides, inner, strict=True))
    y, x = y[shape[1] // 2 :], x[shape[2] // 2 :]  # a quarter of the pixels; the others are mirrored
    at = np.hypot(y[:, None, :, None], x[None, :, None, :]).reshape(len(y) * len(x), -1)
    step = finest / 20  # the error of the spline is then 1e-5
    radii = step * np.arange(math.ceil(at.max() / step) + 3)
    table = intensity(radii, z + planes.ravel()).reshape(len(radii), *planes.shape) @ thick
    quarter = _averaged(radii, table, at, np.outer(high, wide).ravel())
    mirrored = np.ix_(*(np.abs(line.ravel()) for line in coordinates(shape[1:])))
    psf = quarter.reshape(len(y), len(x), -1)[mirrored]
    return unit_sum(np.maximum(np.moveaxis(psf, -1, 0), 0).reshape(as_shape(size, None)))

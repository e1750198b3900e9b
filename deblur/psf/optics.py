"""PSFs of microscopes: images and volumes of wide-field, confocal and light-sheet microscopes.

A point's field at the distance r from the axis and z from the focus is an integral over the angle θ of the rays that
the objective takes: of J₀(k n r sin θ) exp(i k W(θ, z)) with the vacuum's wave number k, the refractive index n and the
path W. Its squared modulus is the intensity. It depends on r and z alone and is computed on a fine grid of r; a sparse
matrix of cubic interpolation, times the weights of Gauss and Legendre, integrates it over each pixel, and sums at their
points within each plane integrate it along z. All numbers of points follow from the finest period of the intensity.

Lengths are in micrometres. In a volume (planes, rows, columns) the focus moves deeper into the specimen from plane to
plane.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse
import scipy.special

from .models import Size, as_shape, coordinates, positive, unit_sum

Length = float | tuple[float, ...]
Intensity = Callable[[np.ndarray, np.ndarray], np.ndarray]
_FINE = 20  # distances from the axis in the finest period: cubic interpolation is then right to 1e-4

#: How a point's field is computed.
MODELS = ("richards-wolf", "gibson-lanni", "born-wolf")


def microscope(
    size: Size,
    voxel: Length,
    *,
    wavelength: float,
    na: float,
    index: float | tuple[float, float, float] = 1.515,
    z: float = 0.0,
    model: str = "richards-wolf",
) -> np.ndarray:
    """The PSF of a wide-field microscope, integrated over each voxel.

    Parameters
    ----------
    size : int or (int, int) or (int, int, int)
        Pixels, or (rows, columns), or (planes, rows, columns); odd.
    voxel : float or (float, float) or (float, float, float)
        Side of a pixel in the specimen in micrometres: that of the camera over the magnification. Of a volume
        (distance of the planes, side of a pixel), or all three sides.
    wavelength : float
        Of the detected light in vacuum, in micrometres.
    na : float
        Numerical aperture.
    index : float or (float, float, float)
        Refractive index of the immersion medium and the specimen. If the specimen has another one, which spreads the
        light along z: (index of the immersion medium, index of the specimen, depth of the point below the coverslip).
    z : float
        Distance of the focus from the point, of a volume that of its central plane, in micrometres. Below a coverslip
        it counts from the paraxial focus.
    model : {"richards-wolf", "gibson-lanni", "born-wolf"}
        Vectorial for unpolarised light [1]_; scalar [2]_; scalar and paraxial [3]_, which holds for a small `na`.

    Returns
    -------
    psf : ndarray, float64

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
    >>> psf = deblur.psf.microscope((31, 25, 25), (0.3, 0.13), wavelength=0.461, na=1.45)
    >>> bool(psf[15].sum() < 1.2 * psf[5].sum())  # a wide-field microscope spreads the same light over each plane
    True
    """
    intensity = _field(wavelength, na, index, model)
    return _integrated(size, voxel, wavelength / (2 * na), intensity, z)


def confocal(
    size: Size,
    voxel: Length,
    *,
    excitation: float,
    emission: float,
    na: float,
    index: float | tuple[float, float, float] = 1.515,
    pinhole: float | None = None,
) -> np.ndarray:
    """The PSF of a confocal or spinning-disk microscope: that of the excitation times that seen through the pinhole.

    With `emission` equal to `excitation` and a pinhole of 0 it is that of a two-photon microscope.

    Parameters
    ----------
    size, voxel, na, index
        As for `microscope`.
    excitation, emission : float
        Wavelengths in vacuum, in micrometres.
    pinhole : float, optional
        Radius of the pinhole over the magnification in front of it, in micrometres; by default one Airy unit,
        0.61 emission / na.

    Returns
    -------
    psf : ndarray, float64
    """
    excited, detected = (_field(wavelength, na, index, MODELS[0]) for wavelength in (excitation, emission))
    reach = 0.61 * emission / na if pinhole is None else pinhole
    if not (math.isfinite(reach) and reach >= 0):
        raise ValueError(f"pinhole must be a radius in micrometres, zero or larger, not {pinhole!r}")

    def product(radii: np.ndarray, planes: np.ndarray) -> np.ndarray:
        step = radii[1]
        away, share = _nodes(0, reach, reach / (step * _FINE))
        turn = (
            np.pi * (np.arange(2 * len(away)) + 0.5) / (2 * len(away))
        )  # half a turn, the other half being alike
        at = np.sqrt(
            radii[:, None, None] ** 2
            + away[:, None] ** 2
            + 2 * radii[:, None, None] * away[:, None] * np.cos(turn)
        )
        wide = step * np.arange(len(radii) + math.ceil(reach / step) + 3)
        weights = np.repeat(away * share if reach else np.ones_like(away), len(turn))
        return excited(radii, planes) * (
            _interpolation(at.reshape(len(radii), -1), step, len(wide), weights) @ detected(wide, planes)
        )

    return _integrated(size, voxel, 1 / (2 * na * (1 / excitation + 1 / emission)), product)


def light_sheet(
    size: Size,
    voxel: Length,
    *,
    wavelength: float,
    na: float,
    sheet: float,
    index: float | tuple[float, float, float] = 1.333,
) -> np.ndarray:
    """The PSF of a light-sheet microscope: that of the detection times the profile of the sheet along z.

    Parameters
    ----------
    size, voxel, wavelength, na, index
        As for `microscope`, of the detection.
    sheet : float
        Distance from the middle of the sheet in micrometres at which its intensity, a Gaussian, has fallen to exp(-2):
        the waist of its beam.

    Returns
    -------
    psf : ndarray, float64
    """
    detected, waist = _field(wavelength, na, index, MODELS[0]), positive(sheet, "sheet")
    finest = min(wavelength / (2 * na), waist)
    return _integrated(size, voxel, finest, lambda r, z: detected(r, z) * np.exp(-2 * (z / waist) ** 2))


def _field(wavelength: float, na: float, index: float | tuple[float, float, float], model: str) -> Intensity:
    """The intensity of a point's image at distances (r,) from the axis and planes (z,): (r, z)."""
    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, not {model!r}")
    if not 0.05 <= positive(wavelength, "a wavelength") <= 20:
        raise ValueError(f"a wavelength is in micrometres, such as 0.52; {wavelength!r} would be no light")
    n, inside, depth = index if isinstance(index, tuple | list) else (index, index, 0.0)
    n, inside = (positive(each, "index") for each in (n, inside))
    if not (math.isfinite(depth) and depth >= 0):
        raise ValueError(f"the depth below the coverslip must be zero or more micrometres, not {depth!r}")
    if not positive(na, "na") < n:
        raise ValueError(
            f"na = {na:g} must lie below the refractive index of the immersion medium, {n:g} here: "
            "1 for air, 1.333 for water, 1.515 for oil"
        )
    if model == "born-wolf" and inside != n:
        raise ValueError(f"born-wolf knows one refractive index, not {n:g} and {inside:g}: take gibson-lanni")
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
            for field in (waves.real, waves.imag):
                total += (bessel @ field) ** 2
        return total

    return intensity


def _nodes(low: float, high: float, periods: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of Gauss and Legendre for a function of at most so many periods between two ends."""
    x, w = np.polynomial.legendre.leggauss(4 + math.ceil(4 * periods))
    return low + (high - low) * (x + 1) / 2, w * (high - low) / 2


def _interpolation(at: np.ndarray, step: float, count: int, weights: np.ndarray) -> scipy.sparse.csr_matrix:
    """The matrix (k, count) of sums with weights (q,) over distances `at` (k, q) of an even function, by a cubic
    through its values at four of the distances 0, step, 2 step, ..."""
    whole = np.floor(at / step)
    t = at / step - whole
    cubic = np.stack(
        [
            -t * (t - 1) * (t - 2) / 6,
            (t + 1) * (t - 1) * (t - 2) / 2,
            -(t + 1) * t * (t - 2) / 2,
            (t + 1) * t * (t - 1) / 6,
        ],
        axis=-1,
    )
    columns = np.abs(whole.astype(int)[..., None] + np.arange(-1, 3))
    rows = np.repeat(np.arange(len(at)), columns[0].size)
    return scipy.sparse.csr_matrix(
        ((cubic * weights[:, None]).ravel(), (rows, columns.ravel())), (len(at), count)
    )


def _integrated(size: Size, voxel: Length, finest: float, intensity: Intensity, z: float = 0.0) -> np.ndarray:
    """The PSF of an intensity whose finest period is given, integrated over each voxel."""
    shape = as_shape(size, None)
    if len(shape) == 1 or not all(n % 2 for n in shape):
        raise ValueError(
            f"size must be odd along rows, columns and planes, so that the focus is a pixel's, not {size!r}"
        )
    sides = tuple(voxel) if isinstance(voxel, tuple | list) else (voxel,)
    if not 1 <= len(sides) <= len(shape):
        raise ValueError(f"voxel must be its side, or one for each of {len(shape)} axes, not {voxel!r}")
    sides = tuple(positive(side, "a side of the voxel") for side in (*sides, *[sides[-1]] * 2)[: len(shape)])
    if not math.isfinite(z):
        raise ValueError(f"z must be a distance in micrometres, not {z!r}")
    *deep, rows, cols = (_nodes(-side / 2, side / 2, side / finest) for side in sides)
    y, x = (
        (np.arange(n // 2 + 1) * side)[:, None] + at
        for n, side, (at, _) in zip(shape[-2:], sides[-2:], (rows, cols), strict=True)
    )
    # A quarter of the pixels; the others mirror it.
    at = np.hypot(y[:, None, :, None], x[None, :, None, :]).reshape(len(y) * len(x), -1)
    step = finest / _FINE
    radii = step * np.arange(math.ceil(at.max() / step) + 3)
    planes, thick = np.array([[z]]), np.ones(1)
    if deep:
        ((within, thick),) = deep
        planes = z + sides[0] * coordinates(shape)[0].reshape(-1, 1) + within
    table = intensity(radii, planes.ravel()).reshape(len(radii), *planes.shape) @ thick
    quarter = _interpolation(at, step, len(radii), np.outer(rows[1], cols[1]).ravel()) @ table
    mirrored = np.ix_(*(np.abs(line.ravel()) for line in coordinates(shape[-2:])))
    psf = quarter.reshape(len(y), len(x), -1)[mirrored]
    return unit_sum(np.maximum(np.moveaxis(psf, -1, 0), 0).reshape(shape))

"""PSFs that other packages compute: adapters, which need the package installed and hold none of its formulas."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np

from .models import Size, as_shape, coordinates, unit_sum


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"this PSF is computed by the package {name}, which is not installed: pip install {name}, or "
            '"deblur-toolkit[psf]" for all of them'
        ) from error


def _square(size: int) -> int:
    m, n = as_shape(size)
    if m != n or m % 2 == 0:
        raise ValueError(f"size must be one odd number of pixels here, not {size!r}")
    return m


def microscope(
    size: int,
    pixel: float,
    *,
    wavelength: float,
    na: float,
    z: float = 0.0,
    model: str = "vectorial",
    **more: Any,
) -> np.ndarray:
    """The PSF of a wide-field microscope, by the package psfmodels [1]_.

    Parameters
    ----------
    size : int
        Rows and columns, odd.
    pixel : float
        Side of a pixel in the specimen, in micrometres: the camera's over the magnification.
    wavelength : float
        Of the light that is seen, in micrometres.
    na : float
        Numerical aperture.
    z : float
        Defocus in micrometres.
    model : {"vectorial", "scalar", "gaussian"}
    **more
        Further arguments of ``psfmodels.make_psf``: refractive indices, thickness and so on.

    Returns
    -------
    psf : (size, size) ndarray, float64

    Raises
    ------
    ImportError
        If psfmodels is not installed.

    References
    ----------
    .. [1] F. Aguet, D. Van De Ville, M. Unser, "An accurate PSF model with few parameters for axially shift-variant
           deconvolution", ISBI 2008; S. F. Gibson, F. Lanni, J. Opt. Soc. Am. A 9 (1992) 154-166.
    """
    n = _square(size)
    made = _package("psfmodels").make_psf([z], nx=n, dxy=pixel, wvl=wavelength, NA=na, model=model, **more)
    return unit_sum(np.asarray(made, dtype=np.float64)[0])


def confocal(size: int, pixel: float, *, kind: str = "confocal", **more: Any) -> np.ndarray:
    """The PSF of a confocal, two-photon or wide-field microscope in its focus, by the package psf of C. Gohlke.

    Parameters
    ----------
    size : int
        Rows and columns, odd.
    pixel : float
        Side of a pixel in the specimen, in micrometres.
    kind : {"confocal", "twophoton", "widefield"}
    **more
        Further arguments of ``psf.PSF``: ``ex_wavelen`` and ``em_wavelen`` in nanometres, ``num_aperture``,
        ``refr_index``, ``magnification``, ``pinhole_radius`` in micrometres.

    Returns
    -------
    psf : (size, size) ndarray, float64

    Raises
    ------
    ImportError
        If psf is not installed.
    """
    n, package = _square(size), _package("psf")
    kinds = {"confocal": package.CONFOCAL, "twophoton": package.TWOPHOTON, "widefield": package.WIDEFIELD}
    if kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(kinds)}, not {kind!r}")
    half = (n + 1) // 2
    # Its dims are the distances of the last pixel from the first, along z and along the radius.
    computed = package.PSF(
        package.ISOTROPIC | kinds[kind], shape=(half, half), dims=((half - 1) * pixel,) * 2, **more
    )
    at = np.abs(np.arange(n) - (half - 1))  # it gives a quarter of the focal plane
    return unit_sum(np.asarray(computed.slice(0), dtype=np.float64)[np.ix_(at, at)])


def from_photutils(model: Any, size: Size) -> np.ndarray:
    """The PSF that a model of photutils describes, at the pixels: `EPSFBuilder`'s, a gridded one, or a formula.

    Parameters
    ----------
    model : photutils.psf model
        Evaluated at ``(x_0, y_0)`` where it stands; of a gridded model that is the place in the picture.
    size : int or (int, int)

    Returns
    -------
    psf : (rows, columns) ndarray, float64
    """
    shape = as_shape(size)
    if not (callable(model) and hasattr(model, "x_0") and hasattr(model, "y_0")):
        raise TypeError(
            "a PSF model of photutils is needed, which has x_0 and y_0, such as EPSFBuilder's, not "
            f"{type(model).__name__}"
        )
    y, x = coordinates(shape)
    rows, cols = np.broadcast_arrays(y + float(model.y_0.value), x + float(model.x_0.value))
    return unit_sum(np.asarray(model(cols, rows), dtype=np.float64))

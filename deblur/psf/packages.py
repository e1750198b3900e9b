"""Adapters of packages that compute PSFs; each needs its package installed."""

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
        Side of a pixel in the specimen in micrometres: that of the camera over the magnification.
    wavelength : float
        Of the detected light, in micrometres.
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
    """The in-focus PSF of a confocal, two-photon or wide-field microscope, by the package psf of C. Gohlke.

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
    # dims are the distances of the last pixel from the first, along z and along the radius.
    computed = package.PSF(
        package.ISOTROPIC | kinds[kind], shape=(half, half), dims=((half - 1) * pixel,) * 2, **more
    )
    at = np.abs(np.arange(n) - (half - 1))  # the package returns a quarter of the focal plane
    return unit_sum(np.asarray(computed.slice(0), dtype=np.float64)[np.ix_(at, at)])


def from_photutils(model: Any, size: Size) -> np.ndarray:
    """Sample a PSF model of photutils: that of `EPSFBuilder`, a gridded one, or a formula.

    Parameters
    ----------
    model : photutils.psf model
        Evaluated at its ``(x_0, y_0)``; for a gridded model that is the position in the image.
    size : int or (int, int)

    Returns
    -------
    psf : (rows, columns) ndarray, float64
    """
    shape = as_shape(size)
    if not (callable(model) and hasattr(model, "x_0") and hasattr(model, "y_0")):
        raise TypeError(
            f"model must be a PSF model of photutils with x_0 and y_0, from EPSFBuilder, not {type(model).__name__}"
        )
    y, x = coordinates(shape)
    rows, cols = np.broadcast_arrays(y + float(model.y_0.value), x + float(model.x_0.value))
    return unit_sum(np.asarray(model(cols, rows), dtype=np.float64))

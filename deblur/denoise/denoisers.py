"""Denoisers for plug and play: this project's, scikit-image's, and BM3D if it is installed.

Each is a function of an image, (P, Q) or (P, Q, C), and the standard deviation of its noise, and returns an
image of the same shape. Values may be on any scale and are not clipped. ``method="pnp"`` takes any function of this
form.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..device import Array, asnumpy, cupy, get_xp, is_cupy
from ..errors import check_choice
from ..graphs import Repeated
from . import patches


def collaborative(image: Array, sigma: float) -> Array:
    """Denoise by collaborative filtering of groups of similar patches; see `deblur.denoise.patches`.

    NumPy or CuPy. Hard thresholding gives a first estimate. A Wiener filter then uses its groups and its spectrum.
    """
    if not sigma > 0:
        return image.copy()
    variances = get_xp(image).full(patches.side_in(image.shape) ** 2, sigma**2)
    return _collaborative(image, variances, _colours(image), patches.Groups)


def _colours(image: Array) -> Array:
    """Return the matrix of the opponent colours of an image."""
    count = 1 if image.ndim == 2 else image.shape[-1]
    return get_xp(image).asarray(patches.opponent(count).astype(image.dtype))


def _collaborative(image: Array, variances: Array, colours: Array, grouped: Callable[[Array], patches.Groups]) -> Array:
    """Denoise as `collaborative`, for noise with these variances of a patch's coefficients."""
    xp = get_xp(image)
    planes = image[None] if image.ndim == 2 else xp.moveaxis(image, -1, 0)
    planes = patches.mixed(colours, planes)
    groups = grouped(planes[0])
    first = [groups.threshold(plane, variances) for plane in planes]
    groups = grouped(first[0])
    found = xp.stack([groups.wiener(a, b, variances) for a, b in zip(planes, first, strict=True)])
    found = patches.mixed(colours.T, found)
    return found[0] if image.ndim == 2 else xp.ascontiguousarray(xp.moveaxis(found, 0, -1))


def repeated(denoiser: Callable[[Array, float], Array], like: Array) -> Callable[[Array, float], Array]:
    """Return a denoiser for many images like this one: on a GPU, `collaborative` is replayed as a graph."""
    if denoiser is not collaborative or not is_cupy(like):
        return denoiser
    groups = patches.Groups(like if like.ndim == 2 else like[..., 0])
    if not groups.captures:
        return denoiser
    # The graph reads these arrays, and the tables of the groups.
    variances, colours = cupy.empty(groups.side**2, np.float64), _colours(like)
    replay = Repeated(lambda image: _collaborative(image, variances, colours, groups.of), 1)

    def replayed(image: Array, sigma: float) -> Array:
        """Return the filtered image, which the next call overwrites."""
        if not sigma > 0:
            return image.copy()
        variances.fill(sigma**2)
        return replay(image)

    return replayed


def _on_host(function: Callable[[np.ndarray, float], np.ndarray]) -> Callable[[Array, float], Array]:
    """Make a NumPy denoiser take CuPy arrays, too: the image is copied to the host, and the result back."""

    @wraps(function)
    def denoise(image: Array, sigma: float) -> Array:
        if not sigma > 0:
            return image.copy()
        return get_xp(image).asarray(function(asnumpy(image), float(sigma)).astype(image.dtype, copy=False))

    return denoise


def _channels(image: np.ndarray) -> dict[str, Any]:
    return {"channel_axis": -1} if image.ndim == 3 else {}


@_on_host
def nlm(image: np.ndarray, sigma: float) -> np.ndarray:
    """Denoise by non-local means (Buades, Coll & Morel 2005), with scikit-image."""
    from skimage.restoration import denoise_nl_means

    return denoise_nl_means(image, patch_size=5, patch_distance=9, h=0.8 * sigma, sigma=sigma, **_channels(image))


@_on_host
def wavelet(image: np.ndarray, sigma: float) -> np.ndarray:
    """Denoise by wavelet thresholding (BayesShrink), averaged over shifts, with scikit-image and PyWavelets."""
    from skimage.restoration import denoise_wavelet

    options = {"sigma": sigma, "wavelet": "db2", "method": "BayesShrink", "rescale_sigma": False}
    total = np.zeros_like(image)
    for shift in itertools.product(range(4), range(4)):
        moved = np.roll(image, shift, (0, 1))
        total += np.roll(denoise_wavelet(moved, **options, **_channels(image)), [-n for n in shift], (0, 1))
    return total / 16


@_on_host
def tv(image: np.ndarray, sigma: float) -> np.ndarray:
    """Denoise by total variation (Chambolle 2004), with scikit-image."""
    from skimage.restoration import denoise_tv_chambolle

    return denoise_tv_chambolle(image, weight=1.2 * sigma, **_channels(image))


@_on_host
def bilateral(image: np.ndarray, sigma: float) -> np.ndarray:
    """Denoise by the bilateral filter (Tomasi & Manduchi 1998), with scikit-image."""
    from skimage.restoration import denoise_bilateral

    # scikit-image's filter takes images from 0 to 1 only, and mixes colours too strongly.
    low, high = float(image.min()), float(image.max())
    size = (high - low) or 1.0
    options = {"sigma_color": 2 * sigma / size, "sigma_spatial": 1.5, "mode": "edge"}
    planes = np.moveaxis(np.atleast_3d(image), -1, 0)
    found = [low + size * denoise_bilateral((plane - low) / size, **options) for plane in planes]
    return np.stack(found, axis=-1).reshape(image.shape)


@_on_host
def bm3d(image: np.ndarray, sigma: float) -> np.ndarray:
    """Denoise by BM3D, with its authors' package, whose licence is for non-commercial use."""
    import bm3d

    return bm3d.bm3d(image, sigma) if image.ndim == 2 else bm3d.bm3d_rgb(image, sigma)


_TABLE = {function.__name__: function for function in (collaborative, nlm, wavelet, tv, bilateral, bm3d)}
#: The module and the package that a denoiser needs and deblur does not require.
_PACKAGES = {"wavelet": ("pywt", "PyWavelets"), "bm3d": ("bm3d", "bm3d")}


def is_named(denoiser: Any) -> bool:
    """Return whether a denoiser is in the table; all of these take images on any scale."""
    return any(denoiser is function for function in _TABLE.values())


def get(name: str) -> Callable[[Array, float], Array]:
    """Return the denoiser of that name.

    Parameters
    ----------
    name : {"collaborative", "nlm", "wavelet", "tv", "bilateral", "bm3d"}

    Returns
    -------
    callable
        ``denoise(image, sigma)``; see `deblur.denoise.denoisers`.

    Raises
    ------
    ValueError
        If the name is unknown.
    ImportError
        If the package that it needs is not installed.
    """
    check_choice(name, _TABLE, "denoiser")
    module, package = _PACKAGES.get(name, ("", ""))
    if module and find_spec(module) is None:
        raise ImportError(f"the denoiser {name!r} needs the package {package}: pip install {package}")
    return _TABLE[name]

"""The regularizer "natural": neighbouring pixels of a scene are correlated.

λ‖f‖² assumes independent pixels. The pixels of a photograph are not: its power falls with the frequency, as about
1/|ω|² (D. J. Field, J. Opt. Soc. Am. A 4 (1987) 2379-2394). The power of an estimate should fall likewise where noise
covers the scene. B correlates neighbours by three taps along each axis. From independent numbers u it makes a scene Bu
whose pixels have the same variance, and whose power falls to 1/9 along each axis. The regularizer "natural" is

    λ ‖B⁻¹f‖² ,  ‖B⁻¹f‖² = min ‖u‖² over Bu = f ,

so λ keeps its meaning, the variance of the noise over that of the scene. Solvers need no change: u minimises the
problem with λ‖u‖² for the blur HB, whose PSF is two pixels larger. Wider taps model photographs slightly better and
cost several times the iterations.

With an open boundary, u reaches beyond the scene. Otherwise u is continued as the scene is, since the symmetric B
preserves periodic and mirrored scenes. A scene that is zero beyond its frame is not of the form Bu.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, get_xp, is_cupy
from . import torus_gpu
from .blur import Blur
from .boundary import Boundary

TAPS = np.array([1.0, 4.0, 1.0]) / np.sqrt(18)


def coloured(blur: Blur) -> Blur:
    """Return HB, the blur from u to the image, cached with the blur."""

    def build() -> Blur:
        psf = _mixed(np.pad(blur.psf, 2), blur.psf.ndim)
        return Blur(psf, blur.image_shape, blur.boundary, origin=[o + 1 for o in blur.origin])

    return blur.cached(("natural",), build)


def scenes(u: Array, boundary: Boundary, axes: int = 2) -> Array:
    """Return the scenes Bu, (..., P, Q), of numbers u: (..., P + 2, Q + 2) for an open boundary, else (..., P, Q).

    A scene has `axes` axes of space.
    """
    if not boundary.open:
        for axis in range(-axes, 0):
            u = boundary.extend(u, axis, 1, 1)
    return _mixed(u, axes)


def covariance(f: Array, boundary: Boundary, axes: int = 2) -> Array:
    """Return BBᵀf for scenes (..., P, Q)."""
    return scenes(numbers(f, boundary, axes), boundary, axes)


def numbers(f: Array, boundary: Boundary, axes: int = 2) -> Array:
    """Return Bᵀf, with the transpose of `scenes`."""
    front, space = f.shape[: f.ndim - axes], f.shape[f.ndim - axes :]
    wide = get_xp(f).zeros((*front, *(n + 4 for n in space)), f.dtype)
    wide[(..., *[slice(2, -2)] * axes)] = f
    u = _mixed(wide, axes)  # numbers (..., P + 2, Q + 2)
    if not boundary.open:
        for axis in range(-1, -axes - 1, -1):
            u = boundary.fold(u, axis, 1, 1)
    return u


def _mixed(u: Array, axes: int) -> Array:
    """Apply the three taps along each axis, where all of them lie inside (..., P + 2, Q + 2)."""
    side, middle = (u.dtype.type(tap) for tap in TAPS[:2])
    if is_cupy(u) and axes == 2:
        return torus_gpu.mixed(u, side, middle)
    for axis in range(-axes, 0):
        after = [slice(None)] * (-1 - axis)
        out = (middle / side) * u[(..., slice(1, -1), *after)]
        out += u[(..., slice(None, -2), *after)]
        out += u[(..., slice(2, None), *after)]
        out *= side
        u = out
    return u

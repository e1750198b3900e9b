"""The regularizer "natural": neighbouring pixels of a scene are correlated.

λ‖f‖² assumes independent pixels. Those of a photograph are not: its power falls with the frequency, as about 1/|ω|²
(D. J. Field, J. Opt. Soc. Am. A 4 (1987) 2379-2394), and that of an estimate should fall likewise where noise covers
the scene. B, three taps along each axis, correlates neighbours: from independent numbers u it makes a scene Bu whose
pixels have the same variance, and whose power falls to 1/9 along each axis. The regularizer "natural" is

    λ ‖B⁻¹f‖² ,  ‖B⁻¹f‖² = min ‖u‖² over Bu = f ,

so that λ keeps its meaning, the variance of the noise over that of the scene. Solvers need no change: u minimises the
problem with λ‖u‖² for the blur HB, whose PSF is two pixels larger. Wider taps model photographs a little better and
cost several times the iterations.

With an open boundary u reaches beyond the scene; otherwise it is continued as the scene is: B is symmetric, so that it
keeps periodic and mirrored scenes so. A scene that is zero beyond its frame is not of the form Bu.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, get_xp, is_cupy
from . import torus_gpu
from .blur import Blur
from .boundary import Boundary

TAPS = np.array([1.0, 4.0, 1.0]) / np.sqrt(18)


def coloured(blur: Blur) -> Blur:
    """HB: from u to the image."""

    def build() -> Blur:
        psf = _mixed(np.pad(blur.psf, 2))
        return Blur(psf, blur.image_shape, blur.boundary, origin=(blur.origin[0] + 1, blur.origin[1] + 1))

    return blur.cached("natural", build)


def scenes(u: Array, boundary: Boundary) -> Array:
    """Bu, (..., P, Q): of numbers (..., P + 2, Q + 2) where the boundary is open, else of as many."""
    if not boundary.open:
        for axis in (-2, -1):
            u = boundary.extend(u, axis, 1, 1)
    return _mixed(u)


def covariance(f: Array, boundary: Boundary) -> Array:
    """BBᵀf for scenes (..., P, Q)."""
    return scenes(numbers(f, boundary), boundary)


def numbers(f: Array, boundary: Boundary) -> Array:
    """Bᵀf, the transpose of `scenes`."""
    wide = get_xp(f).zeros((*f.shape[:-2], f.shape[-2] + 4, f.shape[-1] + 4), f.dtype)
    wide[..., 2:-2, 2:-2] = f
    u = _mixed(wide)  # to numbers (..., P + 2, Q + 2)
    if not boundary.open:
        for axis in (-1, -2):
            u = boundary.fold(u, axis, 1, 1)
    return u


def _mixed(u: Array) -> Array:
    """The three taps along both axes, where all of them lie in (..., P + 2, Q + 2)."""
    side, middle = (u.dtype.type(tap) for tap in TAPS[:2])
    if is_cupy(u):
        return torus_gpu.mixed(u, side, middle)
    for at in (lambda part: (..., part, slice(None)), lambda part: (..., part)):
        out = u[at(slice(None, -2))] + u[at(slice(2, None))]
        out *= side
        out += middle * u[at(slice(1, -1))]
        u = out
    return u

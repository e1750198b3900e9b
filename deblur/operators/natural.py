"""Scenes as those of photographs: neighbouring pixels are alike.

λ‖f‖² expects of a scene that each of its pixels is drawn by itself. Those of a photograph are not: its power falls with
the frequency, as about 1/|ω|² (D. J. Field, J. Opt. Soc. Am. A 4 (1987) 2379-2394), and what is restored should fall
likewise where noise hides it. B, three taps along each axis, makes neighbours alike: of independent numbers u it makes
a scene Bu whose pixels have their variance, and whose power falls to 1/9 along each axis. The penalty "natural" is

    λ ‖B⁻¹f‖² ,  ‖B⁻¹f‖² = min ‖u‖² over Bu = f ,

so that λ stays what it was, the variance of the noise over that of the scene. No solver need know: the u that it asks
for is that of λ‖u‖² for the blur HB, whose PSF is two pixels larger. Wider taps fit photographs a little better and
cost several times the iterations.

B reaches beyond the scene, so that the boundary must be open.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, get_xp
from .blur import Blur

_TAPS = np.array([0.25, 1.0, 0.25])
TAPS = _TAPS / np.linalg.norm(_TAPS)


def coloured(blur: Blur) -> Blur:
    """HB: from u to the image."""

    def build() -> Blur:
        psf = scenes(np.pad(blur.psf, 2))
        return Blur(psf, blur.image_shape, blur.boundary, origin=(blur.origin[0] + 1, blur.origin[1] + 1))

    return blur.kept("natural", build)


def scenes(u: Array) -> Array:
    """Bu, (..., P, Q), of numbers (..., P + 2, Q + 2)."""
    side, middle = (u.dtype.type(tap) for tap in TAPS[:2])
    for at in (lambda part: (..., part, slice(None)), lambda part: (..., part)):
        out = u[at(slice(None, -2))] + u[at(slice(2, None))]
        out *= side
        out += middle * u[at(slice(1, -1))]
        u = out
    return u


def covariance(f: Array) -> Array:
    """BBᵀf for scenes (..., P, Q)."""
    beyond = [(0, 0)] * (f.ndim - 2) + [(2, 2), (2, 2)]
    return scenes(scenes(get_xp(f).pad(f, beyond)))

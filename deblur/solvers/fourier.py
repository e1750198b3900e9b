"""Method ``fft``: the periodic boundary, solved by one division in frequency.

With a periodic boundary H is block circulant with circulant blocks, and the
discrete Fourier transform F diagonalises it: H = F* diag(ĥ) F, ĥ the
transform of the PSF with its origin at index 0. H is normal, so both formulas
are the same:

    f = F* [ conj(ĥ) / (|ĥ|² + λ) · F g ] .

The singular values are |ĥ|, and |u_iᵀ g| are the moduli of the unitary
transform of g.

References
----------
P. C. Hansen, J. G. Nagy, D. P. O'Leary, *Deblurring Images: Matrices, Spectra,
and Filtering*, SIAM 2006, section 4.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ..device import Array, Device, get_xp
from ..operators.blur import Blur
from ..problem import Factor, Problem
from .spectrum import SpectralFactor, Spectrum, memory as memory


class FourierSpectrum(Spectrum):
    """The spectrum of a periodic blur: the half of the frequencies that a real transform keeps."""

    def __init__(self, blur: Blur, dtype: DTypeLike, device: Device) -> None:
        super().__init__(blur.transfer(dtype, device))
        self._torus, self._scale = blur.torus(device), 1 / np.sqrt(blur.shape[0])

    @property
    def singular_values(self) -> Array:
        return self._whole(abs(self.values))

    def _whole(self, half: Array) -> Array:
        """Return the moduli of all frequencies from those of the half that a real transform keeps."""
        xp = get_xp(half)
        *others, last = self._torus.lengths
        mirrored = half[..., 1 : (last + 1) // 2][..., ::-1]
        for axis, n in enumerate(others, -1 - len(others)):
            mirrored = mirrored.take(-xp.arange(n) % n, axis)
        return xp.concatenate([half, mirrored], axis=-1)

    def analyse(self, x: Array) -> Array:
        return self._torus.analyse(x)

    def synthesise(self, x: Array) -> Array:
        return self._torus.synthesise(x, overwrite=True)

    def coefficients(self, g: Array) -> Array:
        return self._whole(abs(self.analyse(g)) * g.dtype.type(self._scale))

    def filtered(self, g: Array, by: Array) -> Array:
        return self._torus.filter(g, by)


def refuses(problem: Problem) -> str | None:
    """Return None if the Fourier transform diagonalises this blur, else the reason in words."""
    if problem.blur.boundary.transform != "fourier":
        return f"it serves boundary 'periodic', not {problem.blur.boundary!r}"
    return None


def decompose(blur: Blur, dtype: DTypeLike, device: Device) -> Spectrum:
    """Return the spectrum of a blur that `refuses` accepts, cached with the blur."""
    return blur.cached(("fft", np.dtype(dtype), device), lambda: FourierSpectrum(blur, dtype, device))


def prepare(problem: Problem) -> Factor:
    """Compute the filter in frequency; a solve then costs two transforms."""
    return SpectralFactor(decompose(problem.blur, problem.dtype, problem.device), problem)

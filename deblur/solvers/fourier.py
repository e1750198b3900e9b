"""Method ``fft``: the periodic boundary, solved by one division in frequency.

With a periodic boundary H is block circulant with circulant blocks, and the
discrete Fourier transform F diagonalises it: H = F* diag(ĥ) F, ĥ the
transform of the PSF with its origin at index 0. H is normal, so both formulas
are the same:

    f = F* [ conj(ĥ) / (|ĥ|² + λ) · F g ] .

The singular values are |ĥ|, and |u_iᵀ g| are the moduli of the unitary
transform of g.

An operation of `work` is one multiply-add of a transform, 2.5 n log2 n for
each of the two real transforms.

References
----------
P. C. Hansen, J. G. Nagy, D. P. O'Leary, *Deblurring Images: Matrices, Spectra,
and Filtering*, SIAM 2006, section 4.2.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ..backend import Array, get_fft, get_xp
from ..blur import Blur
from .base import Factor, Info, Problem, Work
from .spectrum import Spectrum, all_cores, check_regular, kept


class FourierSpectrum(Spectrum):
    """The spectrum of a periodic blur; transforms of real data keep half of it."""

    def __init__(self, blur: Blur, dtype: Any, xp: ModuleType) -> None:
        self._shape = blur.image_shape
        self._values = blur.transfer(dtype, xp)
        modulus = abs(self._values)
        self.singular_values = self._whole(modulus)
        safe = modulus + (modulus == 0)
        self._phase = self._values.conj() / safe  # v_i = phase · u_i; any phase will do where σ = 0
        self._scale = 1 / np.sqrt(self._shape[0] * self._shape[1])

    def _whole(self, half: Array) -> Array:
        """The moduli of all frequencies from those of the half that a real transform keeps."""
        xp = get_xp(half)
        rows, cols = self._shape
        mirrored = half[..., 1 : (cols + 1) // 2][..., ::-1]
        return xp.concatenate([half, mirrored[..., -xp.arange(rows) % rows, :]], axis=-1)

    def coefficients(self, g: Array) -> Array:
        return self._whole(abs(get_fft(get_xp(g)).rfft2(g)) * g.dtype.type(self._scale))

    def restore(self, g: Array, weights: Array) -> Array:
        fft = get_fft(get_xp(g))
        spectrum = fft.rfft2(g)
        spectrum *= weights[:, : self._values.shape[1]] * self._phase
        return fft.irfft2(spectrum, s=self._shape)


def refuses(problem: Problem) -> str | None:
    """None if the Fourier transform diagonalises this blur, else the reason in words."""
    if problem.blur.boundary != "periodic":
        return f"it serves boundary 'periodic', not {problem.blur.boundary!r}"
    return None


def work(problem: Problem) -> Work:
    """Two transforms a solve; three arrays of the image's size."""
    n = problem.blur.shape[0]
    transform = 2.5 * n * np.log2(n + 1)
    return Work(transform, 2 * transform, (4 + 3 * problem.frames) * n * problem.dtype.itemsize)


def decompose(blur: Blur, dtype: Any, xp: ModuleType) -> Spectrum:
    """The spectrum of a blur that `refuses` accepts."""
    return kept("fft", blur, dtype, xp, lambda: FourierSpectrum(blur, dtype, xp))


def prepare(problem: Problem) -> Factor:
    """What the transform of an image is multiplied by, kept; a solve costs two transforms."""
    return _Division(problem)


class _Division:
    """conj(ĥ) / (|ĥ|² + λ) on the half of the frequencies that a real transform keeps."""

    def __init__(self, problem: Problem) -> None:
        h = problem.blur.transfer(problem.dtype, problem.xp)
        modulus = abs(h)
        check_regular(modulus, problem.lam)
        modulus *= modulus
        modulus += modulus.dtype.type(problem.lam)
        self._multiplier = h.conj()
        self._multiplier /= modulus
        self._shape, self._fft = problem.blur.image_shape, get_fft(problem.xp)

    def solve(self, g: Array) -> tuple[Array, Info]:
        """Scenes (k, M, N) for images (k, M, N)."""
        with all_cores():
            spectrum = self._fft.rfft2(g)
            spectrum *= self._multiplier
            return self._fft.irfft2(spectrum, s=self._shape, overwrite_x=True), Info()

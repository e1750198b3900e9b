"""Method ``dct``: the reflect boundary, solved by one division after a cosine transform.

With half-sample symmetric continuation and a PSF that is symmetric in each
axis, h[k, l] = h[±k, ±l], the DCT-II diagonalises the blur: H = T diag(s) Tᵀ
with T = C₁ᵀ ⊗ C₂ᵀ the inverse orthonormal DCT-II and

    s[p, q] = sum over k, l of h[k, l] cos(π k p / M) cos(π l q / N) .

Lines and volumes have one such factor for each axis. Point symmetry,
h[k, l] = h[-k, -l], is not enough in two dimensions: a diagonal motion blur
has it and is not diagonalised.

References
----------
M. K. Ng, R. H. Chan, W.-C. Tang, "A fast algorithm for deblurring models with
Neumann boundary conditions", SIAM J. Sci. Comput. 21 (1999), Theorem 3.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from ..device import Array, Device, is_cupy
from ..norms import combined
from ..operators import cosine_gpu
from ..operators.blur import Blur
from ..problem import Factor, Problem
from .spectrum import SpectralFactor, Spectrum, memory as memory, quadrant, symbol_at


def refuses(problem: Problem) -> str | None:
    """Return None if the cosine transform diagonalises this blur, else the reason in words."""
    if problem.blur.boundary.transform != "cosine":
        return f"it serves boundary 'reflect', not {problem.blur.boundary!r}"
    if quadrant(problem.blur) is None:
        return (
            "the cosine transform diagonalises the blur only if the PSF is symmetric in each axis about its "
            "origin (Ng, Chan & Tang 1999); point symmetry alone is not enough"
        )
    return None


def decompose(blur: Blur, dtype: DTypeLike, device: Device) -> Spectrum:
    """Return the spectrum of a blur that `refuses` accepts, cached with the blur."""
    return blur.cached(("dct", np.dtype(dtype), device), lambda: CosineSpectrum(blur, dtype, device))


def prepare(problem: Problem) -> Factor:
    """Compute the eigenvalues; a solve then costs two transforms."""
    return SpectralFactor(decompose(problem.blur, problem.dtype, problem.device), problem)


class CosineSpectrum(Spectrum):
    """The spectrum of a blur that is diagonal under the DCT-II."""

    def __init__(self, blur: Blur, dtype: DTypeLike, device: Device) -> None:
        super().__init__(symbol_at(blur, [2 * n for n in blur.image_shape], 0, dtype, device))
        self._device = device
        self._axes = tuple(range(-self.values.ndim, 0))

    def _served(self, x: Array) -> bool:
        return self._device.gpu is not None and cosine_gpu.serves(x, len(self._axes))

    def analyse(self, x: Array) -> Array:
        if self._served(x):
            return cosine_gpu.dct(x, axes=len(self._axes))
        return self._device.fft.dctn(x, type=2, axes=self._axes, norm="ortho")

    def synthesise(self, x: Array) -> Array:
        if self._served(x):
            return cosine_gpu.idct(x, len(self._axes))
        return self._device.fft.idctn(x, type=2, axes=self._axes, norm="ortho", overwrite_x=True)

    def filtered(self, g: Array, by: Array) -> Array:
        return filtered(g, by, len(self._axes))


def filtered(x: Array, by: Array, axes: int) -> Array:
    """Multiply the cosine coefficients of images by `by`; the last `axes` axes are transformed."""
    if is_cupy(x) and cosine_gpu.serves(x, axes) and by.shape == x.shape[-axes:]:
        return cosine_gpu.idct(cosine_gpu.dct(x, by, axes), axes)
    fft, along = Device.of(x).fft, tuple(range(-axes, 0))
    c = fft.dctn(x, axes=along, norm="ortho")
    return fft.idctn(combined(c, by=by, out=c), axes=along, norm="ortho", overwrite_x=True)

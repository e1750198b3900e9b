"""A periodic domain: where a blur is one product in frequency, and how images get there and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from ..device import CPU, Array, Device, get_xp
from . import torus_gpu


class Torus:
    """A periodic domain of given lengths, and the transforms of real images on it.

    Parameters
    ----------
    lengths : sequence of int
        Its size along each axis of space.
    device : Device
        Where its arrays live.
    """

    def __init__(self, lengths: Sequence[int], device: Device = CPU) -> None:
        self.lengths, self.device = tuple(lengths), device
        self._axes = tuple(range(-len(self.lengths), 0))

    def analyse(self, x: Array, overwrite: bool = False) -> Array:
        """Half spectra of images no larger than the torus, laid into its first corner."""
        if self.device.gpu is not None and torus_gpu.transforms(x, self.lengths):
            return torus_gpu.analyse(x, self.lengths)
        return self.device.fft.rfftn(x, s=self.lengths, axes=self._axes, overwrite_x=overwrite)

    def synthesise(self, spectrum: Array, overwrite: bool = False) -> Array:
        """The images of half spectra, of the torus's size."""
        if self.device.gpu is not None and torus_gpu.transforms(spectrum, self.lengths):
            return torus_gpu.synthesise(spectrum, self.lengths, overwrite)
        return self.device.fft.irfftn(spectrum, s=self.lengths, axes=self._axes, overwrite_x=overwrite)

    def product(self, x: Array, by: Array, conjugate: bool = False) -> Array:
        """F⁻¹ (by · F Rᵀ x) on the whole torus, R the restriction to `x`'s size; or with the symbol's conjugate."""
        if self.device.gpu is not None and torus_gpu.serves(x, self.lengths, by):
            return torus_gpu.product(x, self.lengths, by, conjugate)
        spectrum = self.analyse(x)
        spectrum *= by.conj() if conjugate else by
        return self.synthesise(spectrum, overwrite=True)

    def filter(self, x: Array, by: Array) -> Array:
        """R F⁻¹ (by · F Rᵀ x)."""
        return corner(self.product(x, by), x.shape[-len(self.lengths) :])

    def spectrum(self, psf: np.ndarray, origin: Sequence[int], dtype: DTypeLike = np.float64) -> Array:
        """The PSF's half spectrum with its origin at index 0: computed in float64, given in complex `dtype`."""
        xp = self.device.xp
        if self.device.gpu is not None and torus_gpu.serves_psf(psf, self.lengths):
            return torus_gpu.spectrum(psf, self.lengths, origin, np.dtype(dtype))
        h = xp.zeros(self.lengths)
        h[tuple(slice(m) for m in psf.shape)] = xp.asarray(psf)
        spectrum = self.analyse(xp.roll(h, [-o for o in origin], range(h.ndim)))
        return spectrum.astype(np.result_type(dtype, np.complex64), copy=False)

    def power(self, psf: np.ndarray) -> Array:
        """|c|² of the PSF on half of the frequencies, float64; where its origin lies does not matter."""
        if self.device.gpu is not None and torus_gpu.serves_psf(psf, self.lengths):
            return torus_gpu.spectrum(psf, self.lengths, (0, 0), None)
        c = self.analyse(self.device.xp.asarray(psf))
        return c.real**2 + c.imag**2


def corner(x: Array, shape: Sequence[int]) -> Array:
    """What of the last axes lies in the first corner."""
    return x[(..., *(slice(n) for n in shape))]


def wrapped(x: Array, lengths: Sequence[int]) -> Array:
    """Images (..., M, N) continued to the lengths of a torus, one for each axis of space, by mirrored pixels that blend
    from the end of the axis to its beginning, so that they wrap smoothly."""
    xp = get_xp(x)
    for axis, length in zip(range(-len(lengths), 0), lengths, strict=True):
        n, gap = x.shape[axis], length - x.shape[axis]
        x = xp.moveaxis(x, axis, -1)
        at = np.minimum(np.arange(gap), n - 1)
        t = (np.arange(gap) + 0.5) / max(gap, 1)
        rise = xp.asarray((t * t * (3 - 2 * t)).astype(x.dtype))
        after, before = x[..., xp.asarray(n - 1 - at)], x[..., xp.asarray(at[::-1])]
        x = xp.moveaxis(xp.concatenate([x, after * (1 - rise) + before * rise], axis=-1), -1, axis)
    return x

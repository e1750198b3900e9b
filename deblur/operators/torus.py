"""A periodic domain: where a blur is one product in frequency, and how images get there and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy
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
        if self.device.gpu is None:  # axis by axis: lines of zeros are not transformed
            if len(self.lengths) == 3:
                shape = (*x.shape[:-3], *self.lengths[:-1], self.lengths[-1] // 2 + 1)
                dtype, room = np.result_type(x, np.complex64), x.base  # `synthesise` put x into as large a spectrum?
                if not overwrite or not isinstance(room, np.ndarray) or room.ctypes.data != x.ctypes.data:
                    room = None
                if room is None or (room.shape, room.dtype) != (shape, dtype):
                    room = np.empty(shape, dtype)
                for at in reversed(_slices(x.shape)):  # behind what is still to be read
                    room[at] = Torus(self.lengths[1:]).analyse(x[at])
                room[..., x.shape[-3] :, :, :] = 0
                return scipy.fft.fft(room, axis=-3, overwrite_x=True)
            spectrum = scipy.fft.rfft(x, self.lengths[-1])
            for axis in self._axes[-2::-1]:
                spectrum = scipy.fft.fft(spectrum, self.lengths[axis], axis, overwrite_x=True)
            return spectrum
        if torus_gpu.transforms(x, self.lengths):
            return torus_gpu.analyse(x, self.lengths)
        return self.device.fft.rfftn(x, s=self.lengths, axes=self._axes, overwrite_x=overwrite)

    def synthesise(self, spectrum: Array, overwrite: bool = False, shape: Sequence[int] | None = None) -> Array:
        """The images of half spectra: the first corner of that shape, or the whole torus."""
        shape = self.lengths if shape is None else shape
        if self.device.gpu is None:
            if len(self.lengths) == 3:  # images take the place of spectra that are not needed any more
                volume = np.ascontiguousarray(scipy.fft.ifft(spectrum, axis=-3, overwrite_x=overwrite))
                size = (*spectrum.shape[:-3], *shape)
                out = volume.view(volume.real.dtype).reshape(-1)[: math.prod(size)].reshape(size)
                for at in _slices(size):
                    out[at] = Torus(self.lengths[1:]).synthesise(volume[at], True, shape[1:])
                return out
            for axis in self._axes[:-1]:
                spectrum = scipy.fft.ifft(spectrum, axis=axis, overwrite_x=overwrite)
                spectrum = spectrum[(..., slice(shape[axis]), *(slice(None),) * (-1 - axis))]
                overwrite = True
            return scipy.fft.irfft(spectrum, self.lengths[-1])[..., : shape[-1]]
        if torus_gpu.transforms(spectrum, self.lengths):
            return corner(torus_gpu.synthesise(spectrum, self.lengths, overwrite), shape)
        return corner(self.device.fft.irfftn(spectrum, s=self.lengths, axes=self._axes, overwrite_x=overwrite), shape)

    def product(
        self, x: Array, by: Array, conjugate: bool = False, shape: Sequence[int] | None = None, overwrite: bool = False
    ) -> Array:
        """F⁻¹ (by · F Rᵀ x), R the restriction to `x`'s size, or with the symbol's conjugate; the whole torus, or its
        first corner of a shape. With `overwrite` perhaps in the memory of x."""
        if self.device.gpu is not None and torus_gpu.serves(x, self.lengths, by):
            shape = tuple(shape or self.lengths)
            return corner(torus_gpu.product(x, self.lengths, by, conjugate, shape), shape)
        spectrum = self.analyse(x, overwrite)
        if conjugate:  # in place: (s* h)* = s h*
            self.device.xp.conjugate(spectrum, out=spectrum)
        spectrum *= by
        if conjugate:
            self.device.xp.conjugate(spectrum, out=spectrum)
        return self.synthesise(spectrum, overwrite=True, shape=shape)

    def filter(self, x: Array, by: Array) -> Array:
        """R F⁻¹ (by · F Rᵀ x)."""
        return self.product(x, by, shape=x.shape[-len(self.lengths) :])

    def response(self, by: Array) -> Array:
        """F⁻¹ by: what one pixel becomes under a symbol."""
        return self.product(self.device.xp.asarray(np.ones((1,) * len(self.lengths), by.real.dtype)), by)

    def spectrum(self, psf: np.ndarray, origin: Sequence[int], dtype: DTypeLike = np.float64) -> Array:
        """The PSF's half spectrum with its origin at index 0: computed in float64, given in complex `dtype`."""
        xp = self.device.xp
        if self.device.gpu is not None and torus_gpu.serves_psf(psf, self.lengths):
            return torus_gpu.spectrum(psf, self.lengths, origin, np.dtype(dtype))
        turns = [  # the origin comes to index 0
            xp.asarray(np.exp(2j * np.pi / n * (np.arange(n) * o % n)).reshape(-1, *(1,) * (psf.ndim - 1 - axis)))
            for axis, (n, o) in enumerate(zip(self.lengths, origin, strict=True))
        ]
        lines = self.device.fft.rfft(xp.asarray(psf, np.float64), self.lengths[-1])
        lines *= turns[-1][: lines.shape[-1]]
        out = xp.empty((*self.lengths[:-1], lines.shape[-1]), np.result_type(dtype, np.complex64))
        # Few columns at once: in double precision, three times, all would take six times the memory of the spectrum.
        least = 1 << 18 if self.device.gpu is None else 1 << 22
        step = max(1, lines.shape[-1] // 8, least // math.prod(self.lengths[:-1]))
        for first in range(0, lines.shape[-1], step):
            part = lines[..., first : first + step]
            for axis in self._axes[-2::-1]:
                part = self.device.fft.fft(part, self.lengths[axis], axis)
                part *= turns[axis]
            out[..., first : first + step] = part
        return out

    def power(self, psf: np.ndarray) -> Array:
        """|c|² of the PSF on half of the frequencies, float64; where its origin lies does not matter."""
        if self.device.gpu is not None and torus_gpu.serves_psf(psf, self.lengths):
            return torus_gpu.spectrum(psf, self.lengths, (0, 0), None)
        c = self.analyse(self.device.xp.asarray(psf))
        power = c.real**2
        power += c.imag**2
        return power


def fast_lengths(least: Sequence[int], device: Device) -> tuple[int, ...]:
    """Lengths of a torus, these at least, that are transformed fast."""
    smooth = tuple(scipy.fft.next_fast_len(n, real=True) for n in least)
    return smooth if device.gpu is None else torus_gpu.fast_lengths(tuple(least), smooth)


def _slices(shape: Sequence[int]) -> list[tuple[int | slice, ...]]:
    """Where volumes (..., L, M, N) have slices that fit the cache of the cores together."""
    step = max(1, (scipy.fft.get_workers() << 17) // math.prod(shape[-2:]))
    parts = [slice(first, min(first + step, shape[-3])) for first in range(0, shape[-3], step)]
    return [(*at, part) for at in np.ndindex(*shape[:-3]) for part in parts]


def wound(psf: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """A PSF that is longer than a torus, wound round it; any other one as it is."""
    if all(m <= n for m, n in zip(psf.shape, lengths, strict=True)):
        return psf
    out = np.zeros(np.minimum(psf.shape, lengths))
    np.add.at(out, np.ix_(*(np.arange(m) % n for m, n in zip(psf.shape, lengths, strict=True))), psf)
    return out


def corner(x: Array, shape: Sequence[int]) -> Array:
    """The first corner, of that size, of the last axes."""
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

"""A periodic domain, on which a blur is one product in frequency, and its transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
import scipy
from numpy.typing import DTypeLike

from ..device import CPU, Array, Device, blocks, get_xp
from . import torus_gpu


class Torus:
    """A periodic domain of given lengths, and the transforms of real images on it.

    Parameters
    ----------
    lengths : sequence of int
        Length along each axis of space.
    device : Device
        Device of its arrays.
    """

    def __init__(self, lengths: Sequence[int], device: Device = CPU) -> None:
        self.lengths, self.device = tuple(lengths), device
        self._axes = tuple(range(-len(self.lengths), 0))

    def analyse(self, x: Array, overwrite: bool = False) -> Array:
        """Return the half spectra of images no larger than the torus, which are laid into its first corner."""
        if self.device.gpu is None:  # axis by axis, so that lines of zeros are not transformed
            if len(self.lengths) == 3:
                shape = (*x.shape[:-3], *self.lengths[:-1], self.lengths[-1] // 2 + 1)
                dtype, room = np.result_type(x, np.complex64), x.base  # `synthesise` puts x into a spectrum
                if not overwrite or not isinstance(room, np.ndarray) or room.ctypes.data != x.ctypes.data:
                    room = None
                if room is None or (room.shape, room.dtype) != (shape, dtype):
                    room = np.empty(shape, dtype)
                for at in reversed(_slices(x.shape)):  # from the end, behind slices still to be read
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
        """Return the images of half spectra: the first corner of that shape, or the whole torus."""
        shape = self.lengths if shape is None else shape
        if self.device.gpu is None:
            if len(self.lengths) == 3:  # images overwrite spectra that are no longer needed
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
        """Return F⁻¹ (by · F Rᵀ x), or the same with the conjugate of `by`; R restricts the torus to the size of x.

        The result is the whole torus, or its first corner of a shape. `overwrite` allows it to use the memory of x.
        """
        if self.device.gpu is not None and torus_gpu.serves(x, self.lengths, by):
            shape = tuple(shape or self.lengths)
            return corner(torus_gpu.product(x, self.lengths, by, conjugate, shape), shape)
        spectrum = self.analyse(x, overwrite)
        if conjugate:  # in place, by (s* h)* = s h*
            self.device.xp.conjugate(spectrum, out=spectrum)
        spectrum *= by
        if conjugate:
            self.device.xp.conjugate(spectrum, out=spectrum)
        return self.synthesise(spectrum, overwrite=True, shape=shape)

    def filter(self, x: Array, by: Array) -> Array:
        """Return R F⁻¹ (by · F Rᵀ x), images of the size of x."""
        return self.product(x, by, shape=x.shape[-len(self.lengths) :])

    def response(self, by: Array) -> Array:
        """Return F⁻¹ by, the response to one pixel."""
        return self.product(self.device.xp.asarray(np.ones((1,) * len(self.lengths), by.real.dtype)), by)

    def spectrum(self, psf: np.ndarray, origin: Sequence[int], dtype: DTypeLike = np.float64) -> Array:
        """Return the PSF's half spectrum with its origin at index 0, computed in float64, in complex `dtype`."""
        xp = self.device.xp
        if self.device.gpu is not None and torus_gpu.serves_psf(psf, self.lengths):
            return torus_gpu.spectrum(psf, self.lengths, origin, np.dtype(dtype))
        turns = [  # phases that move the origin to index 0
            xp.asarray(np.exp(2j * np.pi / n * (np.arange(n) * o % n)).reshape(-1, *(1,) * (psf.ndim - 1 - axis)))
            for axis, (n, o) in enumerate(zip(self.lengths, origin, strict=True))
        ]
        lines = self.device.fft.rfft(xp.asarray(psf, np.float64), self.lengths[-1])
        lines *= turns[-1][: lines.shape[-1]]
        out = xp.empty((*self.lengths[:-1], lines.shape[-1]), np.result_type(dtype, np.complex64))
        # A few columns at a time: all at once, in double precision and three arrays, would take six times the spectrum.
        least = 1 << 18 if self.device.gpu is None else 1 << 22
        step = max(1, lines.shape[-1] // 8, least // math.prod(self.lengths[:-1]))
        for columns in blocks(lines.shape[-1], step):
            part = lines[..., columns]
            for axis in self._axes[-2::-1]:
                part = self.device.fft.fft(part, self.lengths[axis], axis)
                part *= turns[axis]
            out[..., columns] = part
        return out

    def squared_frequencies(self) -> Array:
        """Return |k|², in cycles per pixel, on half of the frequencies."""
        along = [*map(np.fft.fftfreq, self.lengths[:-1]), np.fft.rfftfreq(self.lengths[-1])]
        return reduce(self.device.xp.add, [self.device.xp.asarray(k**2) for k in np.ix_(*along)])

    def power(self, psf: np.ndarray) -> Array:
        """Return the PSF's |ĥ|² on half of the frequencies, float64; it does not depend on the origin."""
        if self.device.gpu is not None and torus_gpu.serves_psf(psf, self.lengths):
            return torus_gpu.spectrum(psf, self.lengths, (0, 0), None)
        c = self.analyse(self.device.xp.asarray(psf))
        power = c.real**2
        power += c.imag**2
        return power


def fast_lengths(least: Sequence[int], device: Device) -> tuple[int, ...]:
    """Return lengths of a torus, at least `least`, with fast transforms."""
    smooth = tuple(scipy.fft.next_fast_len(n, real=True) for n in least)
    return smooth if device.gpu is None else torus_gpu.fast_lengths(tuple(least), smooth)


def _slices(shape: Sequence[int]) -> list[tuple[int | slice, ...]]:
    """Return indices of volumes (..., L, M, N) that cut them into slices that fit the cores' cache together."""
    step = max(1, (scipy.fft.get_workers() << 17) // math.prod(shape[-2:]))
    return [(*at, part) for at in np.ndindex(*shape[:-3]) for part in blocks(shape[-3], step)]


def wound(psf: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Return a PSF wrapped round a torus that is shorter; a PSF that fits is returned as it is."""
    if all(m <= n for m, n in zip(psf.shape, lengths, strict=True)):
        return psf
    out = np.zeros(np.minimum(psf.shape, lengths))
    np.add.at(out, np.ix_(*(np.arange(m) % n for m, n in zip(psf.shape, lengths, strict=True))), psf)
    return out


def corner(x: Array, shape: Sequence[int]) -> Array:
    """Return the first corner, of that size, of the last axes."""
    return x[(..., *(slice(n) for n in shape))]


def wrapped(x: Array, lengths: Sequence[int]) -> Array:
    """Return images (..., M, N) continued to the lengths of a torus, given for each axis of space.

    Mirrored pixels blend from the end of each axis to its beginning, so that the images wrap smoothly.
    """
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

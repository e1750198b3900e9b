"""The border of images on the GPU: ``cuda/pcg.cu`` moves its data and forms its matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .. import kernels
from ..device import Array, cupy
from ..operators.torus_gpu import plans
from ..pixelwise import planes_of
from .border import Border, Patch

_AT = kernels.Constants("pcg")


class BorderGPU(Border):
    """A border with bands on the current GPU, for an open boundary; see `Border`."""

    @cached_property
    def _geometry(self) -> tuple[int, ...]:
        return (*self.shape, *self.ends[0], *self.ends[1])

    def take(self, x: Array) -> Array:
        s = cupy.empty((len(x), self.size), x.dtype)
        self._launch("take", self.size, s, *planes_of(x), *self._geometry, self.size, s)
        return s

    def put(self, s: Array, out: Array) -> Array:
        self._launch("put", self.size, out, *_rows(s), *self._geometry, self.size, *planes_of(out))
        return out

    def cut(self, z: Array, axis: int) -> Array:
        """As `Border.cut`, but padded with zeros to the band's torus, with an image's two edges next to each other."""
        high, wide = self.bands[axis].torus(self.device).lengths
        out, deep = cupy.empty((2 * len(z), high, wide), z.dtype), 2 * self.depth[axis]
        args = (*planes_of(z), *self.shape, axis, deep, high, wide, out)
        self._launch("cut", high * wide, out, *args)
        return out

    def join(self, z: Array, products: dict[int, Array]) -> Array:
        s = cupy.empty((len(z), self.size), z.dtype)
        parts = [(p, *p.shape[1:]) if p is not None else (None, 0, 0) for p in map(products.get, (0, 1))]
        args = (*planes_of(z), self.lam, *self._geometry, self.size, *parts[0], *parts[1], s)
        self._launch("join", self.size, s, *args)
        return s

    def lay(self, s: Array, axis: int, length: int) -> Array:
        band = cupy.empty((len(s), 2 * self.depth[axis], length), s.dtype)
        self._launch("lay", band[0].size, band, *_rows(s), *self._geometry, axis, length, band)
        return band

    def unlay(self, bands: dict[int, Array]) -> Array:
        parts = [(b, b.shape[2]) if b is not None else (None, 0) for b in map(bands.get, (0, 1))]
        [like, *_] = bands.values()
        out = cupy.empty((len(like), self.size), like.dtype)
        self._launch("unlay", self.size, out, *parts[0], *parts[1], *self._geometry, self.size, out)
        return out

    def band_inverse(self, axis: int, symbol: Array, dtype: np.dtype) -> Array:
        """As `Border.band_inverse`, but (2 e, 2 e, frequencies): neighbouring threads read neighbouring numbers."""
        return self.device.xp.ascontiguousarray(super().band_inverse(axis, symbol, dtype).transpose(1, 2, 0))

    def system(self, axis: int, symbol: Array, dtype: np.dtype) -> Array:
        (across, half), e = symbol.shape, self.depth[axis]
        count, blocks, threads = 4 * e - 1, -(-symbol.shape[1] // _AT.THREADS), _AT.THREADS
        tables = cupy.empty((3, count, half, 2), np.float64)
        args: tuple[object, ...] = (symbol, across, half, self.shape[axis] - 2 * e, count, tables)
        kernels.launch("pcg", "lags", (blocks, -(-count // _AT.LAGS), 2), threads, *args, dtype=dtype)
        g = cupy.empty((half, 2 * e, 2 * e), np.result_type(dtype, np.complex64))
        args = (tables, e, half, g.view(dtype))
        kernels.launch("pcg", "edges", (blocks, 2 * e, 2 * e), threads, *args, dtype=dtype)
        return g

    def solve(self, band: Array, inverse: Array, length: int) -> Array:
        k, depth, real, half = len(band), band.shape[1], band.dtype, length // 2 + 1
        there, back = plans((length,), k * depth, real)
        spectrum = cupy.empty((k, depth, half), inverse.dtype)
        there.fft(band, spectrum, 0)
        solved = cupy.empty_like(spectrum)
        grid = (-(-half // _AT.THREADS), depth, -(-k // _AT.FRAMES))
        args = (inverse.view(real), spectrum.view(real), depth, half, k, 1 / length, solved.view(real))
        kernels.launch("pcg", "solve", grid, _AT.THREADS, *args, dtype=real)
        back.fft(solved, band, 0)
        return band

    def patches(self, patches: Sequence[Patch]) -> Sequence[Patch]:
        """As `Border.patches`, but stacked into one patch with arrays (patches, ...) on the device."""
        if not patches:
            return []
        index, own, inverse = zip(*patches, strict=True)
        places = [cupy.asarray(np.stack(part).astype(np.int32)) for part in (index, own)]
        return [(places[0], places[1], cupy.stack(inverse))]

    def replace(self, out: Array, s: Array, patches: Sequence[Patch]) -> None:
        for index, own, inverse in patches:
            grid = (-(-own.size // (_AT.THREADS // 32)), -(-len(s) // _AT.FRAMES))
            sizes = (len(index), index.shape[1], own.shape[1])
            args = (inverse, index, own, *sizes, *_rows(s), self.size, len(s), out)
            kernels.launch("pcg", "patch", grid, _AT.THREADS, *args, dtype=s.dtype)

    def _launch(self, name: str, size: int, like: Array, *args: object) -> None:
        """Launch a kernel over `size` elements of each frame of `like`."""
        grid = (kernels.blocks("pcg", size, len(like), per_multiprocessor=4), len(like))
        kernels.launch("pcg", name, grid, _AT.THREADS, *args, dtype=like.dtype)


def _rows(s: Array) -> tuple[Array, int]:
    """Return border vectors with the stride between their frames, as kernel arguments."""
    return s, s.strides[0] // s.itemsize

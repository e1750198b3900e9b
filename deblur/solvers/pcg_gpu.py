"""Method pcg on the GPU: the rim of images and the preconditioner of its system, by ``cuda/pcg.cu``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array, Device
from ..operators.blur import Blur
from ..operators.torus_gpu import plans

_AT = kernels.Constants("pcg")
_BLOCKS = 4  # of a launch, on each multiprocessor


class Rim:
    """What `deblur.solvers.pcg._Rim` does, for images that have bands and an open boundary.

    Parameters
    ----------
    shape : (int, int)
        Of the images.
    ends : ((int, int), (int, int))
        Along each axis, where the first edge's pixels end and the last one's begin.
    size : int
        Of a rim vector.
    bands : list of (int, int, Blur)
        Axis, depth, and the blur of images twice as deep, of the edges that differ from the inside.
    lam : float
    symbol : callable
        That of HHᵀ on a blur's torus.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        ends: Sequence[tuple[int, int]],
        size: int,
        bands: list[tuple[int, int, Blur]],
        lam: float,
        symbol: Callable[[Blur, np.dtype, Device], Array],
    ) -> None:
        self.size, self._lam, self._symbol = size, lam, symbol
        self.geometry = (*shape, *ends[0], *ends[1])
        self._bands = bands

    def take(self, x: Array) -> Array:
        """The rim of images: (k, M, N) to (k, size)."""
        import cupy

        s = cupy.empty((len(x), self.size), x.dtype)
        _launch("take", self.size, len(x), *_images(x), *self.geometry, self.size, s, dtype=x.dtype)
        return s

    def put(self, s: Array, out: Array) -> Array:
        """Write rim vectors (k, size) into contiguous images (k, M or more, N or more), and return them."""
        _launch("put", self.size, len(s), *_rows(s), *self.geometry, self.size, *_images(out), dtype=s.dtype)
        return out

    def product(self, z: Array) -> Array:
        """(HHᵀ + λI) z on the rim, for images z (k, M, N)."""
        import cupy

        k, real, at = len(z), z.dtype, _images(z)
        found: dict[int, Array] = {}
        for axis, e, band in self._bands:
            device = Device.of(z)
            torus, symbol = band.torus(device), self._symbol(band, real, device)
            high, wide = torus.lengths
            laid = cupy.empty((2 * k, high, wide), real)
            _launch(
                "cut", laid[0].size, 2 * k, *at, *self.geometry[:2], axis, 2 * e, high, wide, laid, dtype=real
            )
            found[axis] = torus.product(laid, symbol)
        s = cupy.empty((k, self.size), real)
        parts = [(found[a], *found[a].shape[1:]) if a in found else (None, 0, 0) for a in (0, 1)]
        _launch(
            "join",
            self.size,
            k,
            *at,
            self._lam,
            *self.geometry,
            self.size,
            *parts[0],
            *parts[1],
            s,
            dtype=real,
        )
        return s


def edges(symbol: Array, size: int, e: int, dtype: np.dtype) -> Array:
    """G on two opposite edges, e pixels deep, for each frequency along them: (frequencies, 2 e, 2 e), complex.

    Parameters
    ----------
    symbol : (across, frequencies) float64 array
        That of HHᵀ + λI on the torus, for an open boundary.
    size : int
        Of the image from one edge to the other.
    """
    import cupy

    (across, half), count = symbol.shape, 4 * e - 1
    tables = cupy.empty((3, count, half, 2), np.float64)
    blocks = -(-half // _AT.THREADS)
    kernels.launch(
        "pcg", "lags", (blocks, -(-count // _AT.LAGS), 2), _AT.THREADS, symbol, across, half, size - 2 * e, count,
        tables, dtype=dtype,
    )  # fmt: skip
    g = cupy.empty((half, 2 * e, 2 * e), np.result_type(dtype, np.complex64))
    kernels.launch(
        "pcg", "edges", (blocks, 2 * e, 2 * e), _AT.THREADS, tables, e, half, g.view(dtype), dtype=dtype
    )
    return g


class Schwarz:
    """What `deblur.solvers.pcg._Schwarz` does.

    Parameters
    ----------
    rim : Rim
    bands : list of (int, int, (2 e, 2 e, frequencies) array)
        Axis, length of the transform, and the inverses for each frequency.
    patches : list of (index, own, inverse)
        As `deblur.solvers.pcg._corner_patches` gives them.
    """

    def __init__(
        self,
        rim: Rim,
        bands: list[tuple[int, int, Array]],
        patches: list[tuple[np.ndarray, np.ndarray, Array]],
    ) -> None:
        import cupy

        self._rim, self._bands = rim, bands
        self._patches = None
        if patches:
            index, own, inverse = zip(*patches, strict=True)
            places = [cupy.asarray(np.stack(part).astype(np.int32)) for part in (index, own)]
            self._patches = (cupy.stack(inverse), *places)

    def __call__(self, s: Array) -> Array:
        import cupy

        k, real, size, geometry = len(s), s.dtype, self._rim.size, self._rim.geometry
        at = _rows(s)
        parts: list[tuple[Array | None, int]] = [(None, 0), (None, 0)]
        for axis, length, inverse in self._bands:
            depth, half = len(inverse), length // 2 + 1
            there, back = plans((length,), k * depth, real)
            band = cupy.empty((k, depth, length), real)
            _launch("lay", band[0].size, k, *at, *geometry, axis, length, band, dtype=real)
            spectrum = cupy.empty((k, depth, half), inverse.dtype)
            there.fft(band, spectrum, 0)
            solved = cupy.empty_like(spectrum)
            kernels.launch(
                "pcg", "solve", (-(-half // _AT.THREADS), depth, -(-k // _AT.FRAMES)), _AT.THREADS, inverse.view(real),
                spectrum.view(real), depth, half, k, 1 / length, solved.view(real), dtype=real,
            )  # fmt: skip
            back.fft(solved, band, 0)
            parts[axis] = (band, length)
        out = cupy.empty((k, size), real)
        _launch("unlay", size, k, *parts[0], *parts[1], *geometry, size, out, dtype=real)
        if self._patches is not None:
            inverse, index, own = self._patches
            rows = own.size
            kernels.launch(
                "pcg", "patch", (-(-rows // (_AT.THREADS // 32)), -(-k // _AT.FRAMES)), _AT.THREADS, inverse, index,
                own, len(index), index.shape[1], own.shape[1], *at, size, k, out, dtype=real,
            )  # fmt: skip
        return out


def _blocks(size: int, rows: int) -> int:
    import cupy

    most = _BLOCKS * kernels.properties(cupy.cuda.runtime.getDevice()).multiprocessors
    return max(1, min(-(-most // rows), -(-size // _AT.THREADS)))


def _images(x: Array) -> tuple[Array, int, int]:
    """Images (k, M, N) as the kernels take them."""
    return x, x.strides[1] // x.itemsize, x.strides[0] // x.itemsize


def _rows(s: Array) -> tuple[Array, int]:
    return s, s.strides[0] // s.itemsize


def _launch(name: str, size: int, rows: int, *args: Any, dtype: Any) -> None:
    kernels.launch("pcg", name, (_blocks(size, rows), rows), _AT.THREADS, *args, dtype=dtype)


def serves(size: int, lengths: Sequence[int]) -> bool:
    """Whether positions on images and bands of that kind are counted by the kernels."""
    return size > 0 and math.prod(lengths) < 1 << 31

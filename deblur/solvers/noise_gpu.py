"""What the level of the noise is read from, on the GPU: ``cuda/noise.cu``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array, Device, get_fft
from ..norms import squares, totals
from ..operators.torus import Torus

_AT = kernels.Constants("noise")
_BLOCKS = 8  # of a launch, on each multiprocessor


def extremes(g: Array) -> tuple[tuple[float, float], tuple[int, int]]:
    """The smallest and the largest pixel of a frame (M, N), and how many are like each."""
    import cupy

    found = cupy.zeros(4, np.uint64)
    image = _image(g)
    _launch("extremes", g.size, found[:2], *image, dtype=g.dtype)
    _launch("count_extremes", g.size, found[2:], found[:2], *image, dtype=g.dtype)
    ends, counts = np.split(found.get(), 2)
    ends[0] = ~ends[0]
    # As the kernels order numbers: the bits of those below zero are turned round.
    negative = ends < np.uint64(1 << 63)
    ends = np.where(negative, ~ends, ends ^ np.uint64(1 << 63)).view(np.float64)
    return (float(ends[0]), float(ends[1])), (int(counts[0]), int(counts[1]))


def looks(
    g: Array,
    side: int,
    most: int,
    ends: Sequence[float],
    window: np.ndarray,
    least: np.ndarray,
    middle: np.ndarray,
) -> np.ndarray:
    """Of blocks of a frame: means, powers by either weights, shares of pixels at `ends`; on the host, (4, blocks).

    Of many blocks some `most` are looked at; fewer are joined by those that lie half a side away.

    Parameters
    ----------
    g : (M, N) array
    side : int
        Of a block, at most 32.
    most : int
    ends : up to two floats
    window : (side,) array
        Along rows and columns.
    least, middle : (side, side // 2 + 1) array
        Weights of the half spectrum's powers.
    """
    import cupy

    parts = [
        (g.shape[0] - down) // side * ((g.shape[1] - right) // side)
        for down in (0, side // 2)
        for right in (0, side // 2)
    ]
    step = max(parts[0] // most, 1) if parts[0] >= most else 1
    blocks = -(-parts[0] // step) if parts[0] >= most else sum(parts)
    found = cupy.empty((4, blocks), np.float64)
    given = cupy.asarray(np.concatenate([window, least.ravel(), middle.ravel()]))
    kernels.launch(
        "noise", "look", blocks, _AT.THREADS, found, *_image(g), side, step, *_low_and_high(ends), given[:side],
        given[side : side + least.size], given[side + least.size :], dtype=g.dtype,
    )  # fmt: skip
    return found.get()


def at_zeros(
    g: Array,
    psf: np.ndarray,
    ends: Sequence[float],
    windows: tuple[np.ndarray, np.ndarray],
    share: float,
    likely: tuple[float, float, float],
) -> tuple[float, float, int]:
    """The median power of a frame at that share of its frequencies where the blur leaves least of a picture.

    Parameters
    ----------
    g : (M, N) array
    psf : (m, n) array
    ends : up to two floats
        Pixels there are clipped.
    windows : (M,) and (N,) arrays
    share : float
    likely : (float, float, float)
        Of a picture's power, (f² + flat) to minus `fall`, and of the blur's: what leaks at least.

    Returns
    -------
    power : float
    seen : float
        The sum of the window's squares, where nothing is clipped.
    clipped : int
        How many pixels are.
    """
    import cupy

    shape = (int(g.shape[0]), int(g.shape[1]))
    (rows, cols), half = shape, shape[1] // 2 + 1
    flat, fall, leaks = likely
    windowed = cupy.empty(shape, np.float64)
    unclipped = cupy.empty(shape, np.float64) if ends else None
    bits = cupy.zeros(2, np.uint64)  # how many are clipped; the blur's largest power
    down, across = (cupy.asarray(window) for window in windows)
    _launch(
        "centre", g.size, windowed, unclipped, bits[:1], *_image(g), totals(g[None]), *_low_and_high(ends), down,
        across, dtype=g.dtype,
    )  # fmt: skip
    spectrum = get_fft(cupy).rfft2(windowed)

    finer = -(-max(psf.shape) // min(shape))
    blur = cupy.ascontiguousarray(Torus([finer * n for n in shape], Device.of(g)).power(psf))
    picture, power = cupy.empty((rows, half), np.float64), cupy.empty((rows, half), np.float64)
    size = picture.size
    _launch("spread", size, picture, bits[1:], blur, blur.shape[1], finer, rows, half, dtype=g.dtype)
    _launch(
        "weigh",
        size,
        picture,
        power,
        bits[1:],
        spectrum.view(np.float64),
        rows,
        cols,
        flat,
        fall,
        leaks,
        dtype=g.dtype,
    )
    found = cupy.empty(2, np.float64)
    rank = max(round(share * size), 1) - 1
    _pick(found[:1], picture, None, None, rank, dtype=g.dtype)
    _pick(found[1:], power, picture, found[:1], -1, dtype=g.dtype)
    if unclipped is None:
        return float(found[1]), 1.0, 0
    return float(found[1]), float(squares(unclipped)), int(bits[0])


def _pick(out: Array, x: Array, gate: Array | None, most: Array | None, rank: int, dtype: Any) -> None:
    kernels.launch("noise", "pick", 1, _AT.PICKERS, out, x, gate, most, x.size, rank, dtype=dtype)


def _image(g: Array) -> tuple[Array, int, int, int]:
    """A frame with adjacent pixels in a row, how far its rows are apart, and its shape."""
    import cupy

    if g.strides[1] != g.itemsize and g.shape[1] > 1:
        g = cupy.ascontiguousarray(g)
    return g, g.strides[0] // g.itemsize if g.shape[0] > 1 else g.shape[1], *g.shape


def _low_and_high(ends: Sequence[float]) -> tuple[float, float]:
    """Two numbers that pixels are compared with; nothing is like NaN."""
    low, high = (*ends, math.nan, math.nan)[:2]
    return low, high


def _launch(name: str, size: int, *args: Any, dtype: Any) -> None:
    import cupy

    most = _BLOCKS * kernels.properties(cupy.cuda.runtime.getDevice()).multiprocessors
    kernels.launch("noise", name, min(most, -(-size // _AT.THREADS)), _AT.THREADS, *args, dtype=dtype)

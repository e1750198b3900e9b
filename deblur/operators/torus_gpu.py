"""Products on a torus on the GPU: cuFFT's plans, and ``cuda/torus.cu`` between them."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array

_AT = kernels.Constants("torus")
_THREADS = _AT.THREADS
_BLOCKS = 8  # of a launch, on each multiprocessor
_MOST = 8  # pairs of plans that a thread keeps
_MOST_TAPS = 128 * 128  # of a PSF whose spectrum is added up directly


class _Plans(threading.local):
    """The last pairs of plans of a thread, by what they transform and on which stream: a plan has one work area."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()


_plans = _Plans()


def plans(lengths: tuple[int, ...], batch: int, dtype: np.dtype) -> tuple[Any, Any]:
    """cuFFT's plans of so many real transforms, there and back (not divided by n), for the current stream."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    key = (lengths, batch, dtype.char, cupy.cuda.runtime.getDevice(), stream.ptr)
    found = _plans.kept.pop(key, None)
    if found is None:
        found = new_plans(lengths, batch, dtype)
    _plans.kept[key] = found
    while len(_plans.kept) > _MOST:
        _plans.kept.popitem(last=False)
    return found


def new_plans(lengths: tuple[int, ...], batch: int, dtype: np.dtype) -> tuple[Any, Any]:
    """A pair of plans of one's own."""
    from cupy.cuda import cufft

    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    there, back = (
        (cufft.CUFFT_R2C, cufft.CUFFT_C2R) if dtype.char == "f" else (cufft.CUFFT_D2Z, cufft.CUFFT_Z2D)
    )
    if len(lengths) == 1:
        return cufft.Plan1d(lengths[0], there, batch), cufft.Plan1d(lengths[0], back, batch)
    return tuple(
        cufft.PlanNd(
            lengths, a, 1, math.prod(a), b, 1, math.prod(b), kind, batch, "C", len(lengths) - 1, b[-1]
        )
        for kind, a, b in ((there, lengths, half), (back, half, lengths))
    )


def product(x: Array, lengths: tuple[int, ...], by: Array, conjugate: bool) -> Array:
    """F⁻¹ (by · F Rᵀ x) on the whole torus, for images (..., M, N) in its first corner."""
    import cupy

    dtype = x.dtype
    images = x.reshape(-1, *x.shape[-2:])
    there, back = plans(lengths, len(images), dtype)
    if images.shape[1:] != lengths or not images.flags.c_contiguous:
        images = _laid(images, lengths)
    spectra = cupy.empty((len(images), *by.shape), np.result_type(dtype, np.complex64))
    there.fft(images, spectra, 0)
    by = cupy.ascontiguousarray(by)
    is_complex = by.dtype.kind == "c"
    launch(
        "multiply", by.size, spectra.view(dtype), len(images), by.size,
        by.view(dtype) if is_complex else by, is_complex, conjugate, 1 / math.prod(lengths), dtype=dtype,
    )  # fmt: skip
    out = cupy.empty((*x.shape[:-2], *lengths), dtype)
    back.fft(spectra, out, 0)
    return out


def serves(x: Array, lengths: tuple[int, ...], by: Array) -> bool:
    """Whether `product` takes these arrays."""
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    fits = x.size and len(lengths) == 2 and max(lengths) < 1 << 31 and by.shape == half
    return bool(fits) and x.dtype.kind == "f" and by.dtype in (x.dtype, np.result_type(x.dtype, np.complex64))


def serves_psf(psf: np.ndarray, lengths: tuple[int, ...]) -> bool:
    """Whether `spectrum` takes a PSF: it is to be small beside the torus."""
    return psf.ndim == 2 and psf.size <= _MOST_TAPS and len(lengths) == 2 and max(lengths) <= 65535 * _AT.ROWS


def spectrum(
    psf: np.ndarray, lengths: tuple[int, ...], origin: tuple[int, int], dtype: np.dtype | None
) -> Array:
    """Half of the PSF's spectrum with its origin at index 0, complex of `dtype`; without one |ĥ|² in float64."""
    import cupy

    (m, n), (rows, cols), half = psf.shape, lengths, lengths[1] // 2 + 1
    h = cupy.asarray(np.ascontiguousarray(psf, np.float64))
    line = cupy.empty((m, half, 2), np.float64)
    real = np.dtype(np.float32) if dtype is None else dtype
    launch("lines", m * half, h, m, n, origin[1], cols, half, line, dtype=real)
    power = cupy.empty((rows, half), np.float64) if dtype is None else None
    out = None if dtype is None else cupy.empty((rows, half), np.result_type(dtype, np.complex64))
    kernels.launch(
        "torus", "columns", (-(-half // _THREADS), -(-rows // _AT.ROWS)), _THREADS, line, m, origin[0], rows, half,
        None if out is None else out.view(real), power, dtype=real,
    )  # fmt: skip
    return power if out is None else out


def quotient(h: Array, lam: float) -> Array:
    """conj(h) / (|h|² + λ)."""
    import cupy

    out, real = cupy.empty_like(h), np.dtype(h.real.dtype)
    launch("quotient", h.size, h.view(real), h.size, lam, out.view(real), dtype=real)
    return out


def judged(g: Array, scene: Array, h: Array, lam: float) -> tuple[Array, Array]:
    """Hf, and ‖Hᵀ(g − Hf) − λf‖² and ‖Hᵀg‖² on the device, (2,), for scenes and images of a blur that wraps.

    Parameters
    ----------
    g, scene : (..., M, N) arrays
    h : (M, N // 2 + 1) array
        The blur's eigenvalues.
    lam : float
    """
    import cupy

    real, lengths = g.dtype, (g.shape[-2], g.shape[-1])
    pair = [cupy.ascontiguousarray(a.reshape(-1, *lengths)) for a in (g, scene)]
    planes, half = len(pair[0]), h.shape[1]
    there, back = plans(lengths, planes, real)
    spectra = [cupy.empty((planes, *h.shape), h.dtype) for _ in pair]
    for a, spectrum in zip(pair, spectra, strict=True):
        there.fft(a, spectrum, 0)
    blocks = _most_blocks()
    sums, ticket = cupy.empty(2, np.float64), cupy.zeros(1, np.uint32)
    launch(
        "judged", h.size, spectra[1].view(real), spectra[0].view(real), cupy.ascontiguousarray(h).view(real), planes,
        h.size, half, lengths[1] % 2 == 0, lam, 1 / math.prod(lengths), sums, cupy.empty(2 * blocks, np.float64),
        ticket, dtype=real,
    )  # fmt: skip
    seen = cupy.empty((planes, *lengths), real)
    back.fft(spectra[1], seen, 0)
    return seen.reshape(g.shape), sums / math.prod(lengths)


def _laid(images: Array, lengths: tuple[int, ...]) -> Array:
    import cupy

    item = images.itemsize
    if images.strides[2] != item and images.shape[2] > 1:
        images = cupy.ascontiguousarray(images)
    out = cupy.empty((len(images), *lengths), images.dtype)
    rows, cols = images.shape[1:]
    ld = images.strides[1] // item if rows > 1 else cols
    stride = images.strides[0] // item if len(images) > 1 else 0
    launch(
        "lay", math.prod(lengths), out, len(images), *lengths, images, ld, stride, rows, cols,
        dtype=images.dtype,
    )  # fmt: skip
    return out


def launch(name: str, size: int, *args: Any, dtype: np.dtype) -> None:
    """A kernel of ``torus.cu`` over so many elements."""
    kernels.launch("torus", name, min(_most_blocks(), -(-size // _THREADS)), _THREADS, *args, dtype=dtype)


def _most_blocks() -> int:
    import cupy

    return _BLOCKS * kernels.properties(cupy.cuda.runtime.getDevice()).multiprocessors

"""Products on a torus on the GPU: cuFFT's plans, and the kernels of ``pad.cu``, ``spectrum.cu``, ``verify.cu``.

Transforms and products serve one to three axes; kernels for spectra of small PSFs serve two.
"""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import kernels
from ..device import Array, Shape, cupy, making, to_device
from ..norms import combined
from ..pixelwise import copied, planes_of
from ..pool import pool

if TYPE_CHECKING:
    from cupy.cuda import MemoryPointer
    from cupy.cuda.cufft import PlanNd

    Plans = tuple[PlanNd, PlanNd]

_AT = kernels.Constants("spectrum")
_DEPTH = kernels.Constants("volume")

#: Numbers of lines before and after, along each axis, by which a scene is continued.
Pads = Sequence[tuple[int, int]]


def plans(lengths: Shape, batch: int, dtype: np.dtype, row: int = 0) -> Plans:
    """Return cuFFT's plans of `batch` real transforms, forward and inverse (unnormalised), for the current stream.

    `row` is the distance between the rows of images. If it equals that of their half spectra, transforms may be in
    place.
    """
    # A plan has one work area, about twice the size of its data, so it serves one stream and one thread.
    user = cupy.cuda.get_current_stream().ptr, threading.get_ident()
    key = ("plans", lengths, batch, dtype.char, row, *user)
    nbytes = 4 * batch * math.prod(lengths) * dtype.itemsize
    device = cupy.cuda.runtime.getDevice()
    return pool(device).get(key, lambda: new_plans(lengths, batch, dtype, row), nbytes)


@making()
def new_plans(lengths: Shape, batch: int, dtype: np.dtype, row: int = 0) -> Plans:
    """Return a pair of plans that no other caller uses."""
    from cupy.cuda import cufft

    half = half_of(lengths)
    there, back = (cufft.CUFFT_R2C, cufft.CUFFT_C2R) if dtype.char == "f" else (cufft.CUFFT_D2Z, cufft.CUFFT_Z2D)
    if len(lengths) == 1:
        return cufft.Plan1d(lengths[0], there, batch), cufft.Plan1d(lengths[0], back, batch)
    whole = (*lengths[:-1], row or lengths[-1])
    areas: list[MemoryPointer] = []

    def shared(nbytes: int) -> MemoryPointer:
        """Return one work area for both plans, which never run at once."""
        if not areas or areas[0].mem.size < nbytes:
            areas.insert(0, allocate(nbytes))
        return areas[0]

    allocate = cupy.cuda.get_allocator()
    with cupy.cuda.using_allocator(shared):
        return tuple(
            cufft.PlanNd(lengths, a, 1, math.prod(a), b, 1, math.prod(b), kind, batch, "C", len(lengths) - 1, b[-1])
            for kind, a, b in ((there, whole, half), (back, half, whole))
        )


def analyse(x: Array, lengths: Shape) -> Array:
    """Return half spectra of images (..., M, N) in the torus's first corner."""
    images = _whole(x, lengths)
    spectra = cupy.empty((*x.shape[: -len(lengths)], *half_of(lengths)), np.result_type(x.dtype, np.complex64))
    plans(lengths, len(images), x.dtype)[0].fft(images, spectra, 0)
    return spectra


def synthesise(spectra: Array, lengths: Shape, overwrite: bool) -> Array:
    """Return the images of half spectra (..., M, N // 2 + 1), which `overwrite` allows to be destroyed."""
    aligned = spectra.flags.c_contiguous and spectra.data.ptr % spectra.itemsize == 0
    if not (overwrite and aligned and spectra.dtype.kind == "c"):
        spectra = copied(spectra, np.result_type(spectra.dtype, np.complex64))
    out = cupy.empty((*spectra.shape[: -len(lengths)], *lengths), spectra.real.dtype)
    plans(lengths, out.size // math.prod(lengths), out.dtype)[1].fft(spectra, out, 0)
    return combined(out, a=1 / math.prod(lengths), out=out)


def transforms(x: Array, lengths: Shape) -> bool:
    """Return whether `analyse` or `synthesise` serves these arrays."""
    return len(lengths) in (1, 2, 3) and x.size > 0 and x.dtype.char in "fdFD"


def product(x: Array, lengths: Shape, by: Array, conjugate: bool, shape: Shape, pads: Pads = ()) -> Array:
    """Return F⁻¹ (by · F Rᵀ x) for images in the torus's first corner: a corner of at least `shape`.

    With `pads`, scenes are first mirrored beyond their edges or, with `conjugate`, finally folded back.
    """
    if len(lengths) == 3:
        return product_of_volumes(x, lengths, by, conjugate, shape, pads)
    dtype, images = x.dtype, _whole(mirrored(x, lengths, pads) if pads and not conjugate else x, lengths)
    spectra = cupy.empty((len(images), *by.shape), np.result_type(dtype, np.complex64))
    there, back = plans(lengths, len(images), dtype)
    there.fft(images, spectra, 0)
    args = (spectra.view(dtype), len(images), by.size, *_symbol(by, dtype), conjugate, 1 / math.prod(lengths))
    kernels.spread("spectrum", "multiply", by.size, *args, dtype=dtype)
    out = cupy.empty((*x.shape[: -len(lengths)], *lengths), dtype)
    back.fft(spectra, out, 0)
    return folded(out, shape, pads) if pads and conjugate else out


def _symbol(by: Array, dtype: np.dtype) -> tuple[Array, bool]:
    """Return a symbol as the kernels take it: real numbers, and whether pairs of them are complex numbers."""
    by = cupy.ascontiguousarray(by)
    return (by.view(dtype), True) if by.dtype.kind == "c" else (by, False)


def product_of_volumes(
    x: Array, lengths: Shape, by: Array, conjugate: bool, shape: Shape, pads: Pads = (), out: Array = None
) -> Array:
    """Return the product of volumes, in slices of (M, 2 (N // 2 + 1)) pixels, in new memory or `out`, which may hold x.

    cuFFT transforms a few slices at a time, since it needs as much memory again; ``volume.cu`` works between its
    transforms. The slices of x may be as long as the torus, or longer, with zeros around them.
    """
    dtype, given, wanted = x.dtype, x.shape[-3], shape[0]
    slices, none = (lengths[1], 2 * by.shape[-1]), 3 * [(0, 0)]
    first, *rest = pads or none
    even = math.prod(lengths[1:]) % 2 == 0  # cuFFT requires data aligned to pairs of numbers
    found = None
    if even and out is None and not pads and shape[1:] == lengths[1:]:
        found = cupy.empty((*x.shape[:-3], wanted, *lengths[1:]), dtype)
    out = cupy.empty((*x.shape[:-3], max(given, wanted), *slices), dtype) if out is None else out
    found = out if found is None else found
    device, plane = kernels.properties(cupy.cuda.runtime.getDevice()), lengths[1] * by.shape[-1]
    chunk = max(out.shape[-3] // 4, device.cache // (2 * plane * dtype.itemsize), 1)
    columns = _columns(lengths[0], dtype.itemsize)
    how = min(-(-plane // columns), 16 * device.multiprocessors), (columns, _DEPTH.THREADS // columns)
    shared = lengths[0] * (2 * dtype.itemsize * (columns + 1) + 4)
    stages = _radices(lengths[0])
    radices = sum(radix << 4 * i for i, radix in enumerate(stages))
    spans = [(0, given), (0, wanted)]
    spans[conjugate] = first[0], spans[conjugate][1] + sum(first)
    symbol = *_symbol(by, dtype), conjugate, 1 / math.prod(lengths)
    args = (given, *spans[0], wanted, *spans[1], lengths[0], radices, len(stages), plane, *symbol)
    for image, volume, result in zip(*(a.reshape(-1, *a.shape[-3:]) for a in (x, out, found)), strict=True):
        laid = image.shape[1] == lengths[1] and image.shape[2] >= lengths[2] and image.size % (2 * given) == 0
        if not (laid and image.flags.c_contiguous and image.data.ptr % (2 * dtype.itemsize) == 0):
            image = _laid(image, slices, none[1:] if conjugate else rest, out=volume[:given])
        for i in range(0, given, chunk):
            _slices(image[i : min(i + chunk, given)], volume[i : min(i + chunk, given)], lengths, back=False)
        kernels.get("volume", "depth", dtype)(*how, volume, *args, shared_mem=shared)
        for i in range(0, wanted, chunk):
            _slices(volume[i : min(i + chunk, wanted)], result[i : min(i + chunk, wanted)], lengths, back=True)
    return folded(out, shape[1:], rest) if pads and conjugate else found


def _slices(x: Array, out: Array, lengths: Shape, back: bool) -> None:
    """Transform each slice into rows that hold half a spectrum, or back; this may be in place."""
    kinds = [x.dtype, np.result_type(x.dtype, np.complex64)]
    row = (out if back else x).shape[-1]
    plans(lengths[1:], len(x), x.dtype, row)[back].fft(x.view(kinds[back]), out.view(kinds[not back]), 0)


def _radices(length: int) -> list[int]:
    """Return the radices of the stages of a transform; the last one may be without a kernel."""
    stages = []
    for radix in (4, 2, 3, 5, 7):
        while length % radix == 0:
            stages.append(radix)
            length //= radix
    return stages + [length] * (length > 1)


def _columns(length: int, itemsize: int) -> int:
    """Return how many columns a block of ``volume.cu`` takes, at most two cache lines; 0 if too few fit."""
    room = kernels.properties(cupy.cuda.runtime.getDevice()).shared_memory // length
    most = (room - 4) // (2 * itemsize) - 1
    return min(128 // itemsize, 1 << most.bit_length() - 1) if most * itemsize >= 16 else 0


def serves(x: Array, lengths: Shape, by: Array) -> bool:
    """Return whether `product` serves these arrays."""
    fits = x.size and len(lengths) in (1, 2, 3) and max(lengths) < 1 << 31 and by.shape == half_of(lengths)
    fits = fits and (len(lengths) < 3 or serves_depth(lengths[0], x.itemsize))
    return bool(fits) and x.dtype.kind == "f" and by.dtype in (x.dtype, np.result_type(x.dtype, np.complex64))


def serves_depth(length: int, itemsize: int) -> bool:
    """Return whether ``volume.cu`` transforms lines of that length."""
    return 1 < max(_radices(length), default=1) <= 7 and _columns(length, itemsize) > 0


@functools.cache
def _times() -> list[dict[int, float]]:
    """Return cuFFT's times for equally many columns, and rows, of each length, from ``lengths.json``."""
    times = json.loads((Path(__file__).parent / "lengths.json").read_text())
    return [{int(n): t for n, t in times[lines].items()} for lines in ("columns", "rows")]


@functools.cache
def fast_lengths(least: Shape, smooth: Shape) -> Shape:
    """Return the lengths, at least `least`, with the fastest columns and rows of cuFFT; `smooth` if no time is known.

    cuFFT may transform 5-smooth columns of one length by one kernel, and of the next by three.
    """
    found = list(smooth)
    for axis in range(-min(len(least), 2), 0):
        table = {n: t for n, t in _times()[axis].items() if least[axis] <= n <= 1.25 * least[axis]}
        found[axis] = min(table, key=lambda n: table[n], default=found[axis])
    return tuple(found)


def half_of(lengths: Shape) -> Shape:
    """Return the shape of the half spectra on a torus."""
    return *lengths[:-1], lengths[-1] // 2 + 1


def serves_psf(psf: np.ndarray, lengths: Shape) -> bool:
    """Return whether `spectrum` serves a PSF, which must be small compared with the torus."""
    return psf.ndim == 2 and psf.size <= 128 * 128 and len(lengths) == 2 and max(lengths) <= 65535 * _AT.ROWS


def spectrum(psf: np.ndarray, lengths: Shape, origin: Sequence[int], dtype: np.dtype | None) -> Array:
    """Return half of the PSF's spectrum, with its origin at index 0, in complex `dtype`; for None |ĥ|² in float64."""
    if dtype is None:
        return _added_up(psf, lengths, origin, "power", cupy.empty(half_of(lengths), np.float64))
    out = cupy.empty(half_of(lengths), np.result_type(dtype, np.complex64))
    return _added_up(psf, lengths, origin, "spectrum", out)


def symbol(psf: np.ndarray, lengths: Shape, origin: Sequence[int], first: int, out: Array) -> Array:
    """Return the real part of a PSF's spectrum at as many frequencies as `out` has, from `first` on along each axis."""
    return _added_up(psf, lengths, origin, "symbol", out, first)


def _added_up(psf: np.ndarray, lengths: Shape, origin: Sequence[int], kind: str, out: Array, first: int = 0) -> Array:
    """Compute the spectrum of a PSF, its power or its real part, into `out`."""
    (m, n), (rows, half) = psf.shape, out.shape
    # Powers are in double precision, whatever dtype the kernel file is compiled for.
    real = np.dtype(np.float32 if kind == "power" else out.dtype.char.lower())
    line, h = cupy.empty((m, half, 2), np.float64), to_device(np.ascontiguousarray(psf, np.float64))
    args: tuple[object, ...] = (h, m, n, origin[1], lengths[1], first, half, line)
    kernels.spread("spectrum", "lines", m * half, *args, dtype=real)
    numbers = out.view(real) if kind == "spectrum" else out
    outs = [numbers if kind == name else None for name in ("spectrum", "power", "symbol")]
    args = (line, m, origin[0], lengths[0], first, rows, half, *outs)
    grid = (-(-half // _AT.THREADS), -(-rows // _AT.ROWS))
    kernels.launch("spectrum", "columns", grid, _AT.THREADS, *args, dtype=real)
    return out


def residual_norms(g: Array, scene: Array, h: Array, lam: float) -> tuple[Array, Array]:
    """Return Hf, and (‖Hᵀ(g − Hf) − λf‖², ‖Hᵀg‖²) on the device, for a blur that wraps.

    Parameters
    ----------
    g, scene : (..., M, N) arrays
        Images and scenes f.
    h : (M, N // 2 + 1) array
        The blur's eigenvalues.
    lam : float
    """
    real, lengths = g.dtype, g.shape[-h.ndim :]
    pair = [_whole(a, lengths) for a in (g, scene)]
    planes, half = len(pair[0]), h.shape[-1]
    there, back = plans(lengths, planes, real)
    spectra = [cupy.empty((planes, *h.shape), h.dtype) for _ in pair]
    for a, spectrum in zip(pair, spectra, strict=True):
        there.fft(a, spectrum, 0)
    sums = cupy.empty(2, np.float64)
    view = [a.view(real) for a in (spectra[1], spectra[0], cupy.ascontiguousarray(h))]
    args = (*view, planes, h.size, half, lengths[-1] % 2 == 0, lam, 1 / math.prod(lengths), sums)
    kernels.Reduction("verify", h.size, 2).launch("measured", *args, dtype=real)
    seen = cupy.empty((planes, *lengths), real)
    back.fft(spectra[1], seen, 0)
    return seen.reshape(g.shape), sums / math.prod(lengths)


def _whole(x: Array, lengths: Shape) -> Array:
    """Return images (..., M, N) in the torus's first corner, (k, *lengths), contiguous and aligned for cuFFT."""
    images = x.reshape(-1, *x.shape[-len(lengths) :])
    aligned = images.flags.c_contiguous and images.data.ptr % (2 * images.itemsize) == 0
    if aligned and images.shape[1:] == lengths:
        return images
    if len(lengths) == 2:
        return _laid(images, lengths)
    out = cupy.zeros((len(images), *lengths), images.dtype)
    out[(..., *map(slice, images.shape[1:]))] = images
    return out


def _laid(images: Array, lengths: Shape, pads: Pads = ((0, 0), (0, 0)), out: Array | None = None) -> Array:
    """Return images (k, M, N) in a torus's first corner, mirrored at their edges as far as `pads` says."""
    out = cupy.empty((len(images), *lengths), images.dtype) if out is None else out
    images, ld, stride = planes_of(images)
    shape = images.shape[1:]
    args = (out, len(images), *lengths, images, ld, stride, *shape, *_extent(shape, pads))
    kernels.spread("pad", "lay", math.prod(lengths), *args, dtype=images.dtype)
    return out


def mixed(x: Array, side: float, middle: float) -> Array:
    """Apply three taps along both axes, where all of them lie inside (..., M + 2, N + 2)."""
    rows, cols = x.shape[-2] - 2, x.shape[-1] - 2
    out = cupy.empty((*x.shape[:-2], rows, cols), x.dtype)
    images, ld, stride = planes_of(x)
    args = (out, len(images), rows, cols, images, ld, stride, side, middle)
    kernels.spread("pad", "mix", rows * cols, *args, dtype=x.dtype)
    return out


def mirrored(x: Array, lengths: Shape, pads: Pads) -> Array:
    """Return scenes (..., M, N), mirrored at their edges as far as `pads` says, in a torus's first corner."""
    return _laid(x.reshape(-1, *x.shape[-2:]), lengths, pads).reshape(*x.shape[:-2], *lengths)


def folded(x: Array, shape: Shape, pads: Pads) -> Array:
    """Apply the transpose of `mirrored` to contiguous x; return scenes of `shape`."""
    out, size = cupy.empty((*x.shape[:-2], *shape), x.dtype), math.prod(shape)
    planes = out.size // max(size, 1)
    args = (out, planes, *shape, x, x.shape[-1], math.prod(x.shape[-2:]), *_extent(shape, pads))
    kernels.spread("pad", "fold", size, *args, dtype=x.dtype)
    return out


def _extent(shape: Shape, pads: Pads) -> tuple[int, int, int, int]:
    """Return the number of lines before the first row and column, and the number of rows and columns with pads."""
    (top, below), (left, right) = pads
    return top, left, top + shape[0] + below, left + shape[1] + right

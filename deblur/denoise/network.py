"""A small U-Net denoiser [1]_, conditioned on the result of the patch-based stage.

The image is split into four of half its size, with every other pixel each [2]_. A fifth plane holds the noise's
standard deviation [2]_. Four more planes hold an estimate of the picture whose errors differ from the image's. Three
levels follow, each with half the sides of the one before. A level has pairs of 3 x 3 convolutions with a rectifier
between them; the result of a pair is added to its input. The decoder adds the encoder's result at each level. The
output is the noise, which is subtracted from the image. There are no biases, so an image twice as bright, with twice
the noise, gives twice the result [3]_, and pictures may be on any scale.

``network.npz`` has the weights, about 1.4 million of 16 bits. ``tools/fit_network.py`` fitted them, and lists the
pictures of the fit; no benchmark reports results of the network for any of them.

References
----------
.. [1] O. Ronneberger, P. Fischer, T. Brox, U-Net, MICCAI 2015, 234-241; residual pairs as in K. Zhang, Y. Li, W. Zuo,
   L. Zhang, L. Van Gool, R. Timofte, IEEE Trans. Pattern Anal. Mach. Intell. 44 (2022) 6360-6376.
.. [2] K. Zhang, W. Zuo, L. Zhang, FFDNet, IEEE Trans. Image Process. 27 (2018) 4608-4622.
.. [3] S. Mohan, Z. Kadkhodaie, E. P. Simoncelli, C. Fernandez-Granda, Robust and interpretable blind image denoising
   via bias-free convolutional neural networks, ICLR 2020.
.. [4] A. Lavin, S. Gray, Fast algorithms for convolutional neural networks, CVPR 2016, 4013-4021.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import kernels
from ..data import content_of
from ..device import Array, Device, cupy, get_xp, is_cupy
from ..norms import combined, largest, product
from ..pixelwise import planes_of
from ..threads import all_cores, cores, on_cores

WEIGHTS = Path(__file__).with_name("network.npz")
SHA256 = "5b449045cd404f121c4b30860e79829c0ce7786d0bfae456a3c48dd95c69b703"
#: The sides of the network's input are multiples of this.
MULTIPLE = 8
_LEVELS = 3
_AT = kernels.Constants("network")
_NOTHING = 1e-5  # ratio to the largest modulus below which moduli are rounding errors
_STRIP, _STRIP_GPU = 1 << 19, 1 << 26  # approximate number of values that are gathered for one product


@cache
def _winograd() -> list[np.ndarray]:
    """Return Winograd's matrices [4]_: for 6 x 6 pixels, for products, and for weights of a 3 x 3 convolution."""

    def values(n: int) -> np.ndarray:  # of a polynomial with n coefficients at six points, infinity the last
        return np.vstack([np.vander([0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5)], n, increasing=True), np.eye(n)[-1]])

    return [np.kron(a, a) for a in (np.linalg.inv(values(6)).T, values(4).T, values(3))]


def read(path: Path = WEIGHTS) -> dict[str, np.ndarray]:
    """Return a file's weights, float32; convolutions are 1 x 1 (out, in), 3 x 3 (out, 9, in), 2 x 2 (out, in, 4).

    Raises
    ------
    ValueError
        If the file has another SHA-256.
    """
    with np.load(io.BytesIO(content_of(path, SHA256))) as arrays:
        return {name: arrays[name].astype(np.float32) for name in arrays.files}


@cache
def _weights(device: Device) -> dict[str, Array]:
    """Return the weights as matrices on the current device, for products with gathered values; see `_conv3`."""
    weights = read()
    if device.gpu is None:
        convolutions = {name: _winograd()[2] @ w for name, w in weights.items() if w.shape[1] == 9}
        weights |= {name: w.transpose(1, 0, 2).astype(np.float32, order="C") for name, w in convolutions.items()}
    return {name: device.xp.asarray(w if w.shape[0] == 36 else w.reshape(len(w), -1)) for name, w in weights.items()}


def network(planes: Array, sigma: float, near: Array) -> Array:
    """Return planes (c, P, Q) without their noise, each denoised separately; NumPy or CuPy.

    Parameters
    ----------
    planes : (c, P, Q) array
        The noisy planes, on any scale.
    sigma : float
        Standard deviation of the noise.
    near : (c, P, Q) array
        Estimates of the planes without noise.

    Returns
    -------
    array of the planes' shape and dtype, computed in float32
    """
    size = largest(planes)
    if not (sigma > 0 and size > 0):
        return planes.copy()

    def denoised(x: Array, clean: Array) -> Array:
        if largest(x) <= _NOTHING * size:  # a colour difference of a grey picture
            return x
        return combined(x, _noise(x, sigma, clean, size).astype(x.dtype, copy=False), b=-size)

    with all_cores():
        found = [denoised(*pair) for pair in zip(planes, near, strict=True)]
    return found[0][None] if len(found) == 1 else get_xp(planes).stack(found)


def _noise(x: Array, sigma: float, near: Array, size: float) -> Array:
    """Return the noise of a plane (P, Q), relative to `size`, in float32."""
    w = _weights(Device.of(x))
    padded = (x.shape[0] + -x.shape[0] % MULTIPLE, x.shape[1] + -x.shape[1] % MULTIPLE)
    inside: list[Any] = [None if is_cupy(x) else _tiled(np.ones(padded, np.float32))[:1]]
    head = _conv3(_entered(x, near, padded, 1 / size, sigma / size), w["head"], inside[0])
    y, levels = head.copy(), []
    for level in range(_LEVELS):
        y = _pairs(y, w, f"left{level}", inside[level])
        if level < _LEVELS - 1:
            levels.append(y)
            y = _product(w[f"down{level}"], _apart(y))
            inside.append(None if is_cupy(x) else _apart(inside[level])[:1])
    for level in reversed(range(_LEVELS - 1)):
        near = levels.pop()
        y = combined(near, _together(_product(w[f"up{level}"], y)), out=near)
        y = _pairs(y, w, f"right{level}", inside[level])
    y = _conv3(combined(y, head), w["tail"], inside[0])
    return (_together(y)[0] if is_cupy(x) else _whole(y))[: x.shape[0], : x.shape[1]]


def _entered(x: Array, near: Array, padded: tuple[int, int], scale: float, level: float) -> Array:
    """Return the network's input: a plane and its estimate, scaled, padded and split, with `level` between them."""
    if is_cupy(x):
        high, wide = padded[0] // 2, padded[1] // 2
        (x, ldx, _), (near, ldnear, _) = planes_of(x), planes_of(near)
        out = cupy.empty((9, high, wide), np.float32)
        _launch("enter", high * wide, out, high, wide, x, ldx, near, ldnear, *x.shape[1:], scale, level, dtype=x.dtype)
        return out
    more = [(0, n - m) for n, m in zip(padded, x.shape, strict=True)]
    parts, others = (_tiled(np.pad((scale * a).astype(np.float32), more, mode="edge")) for a in (x, near))
    return np.concatenate([parts, _tiled(np.full(padded, level, np.float32))[:1], others])


def _pairs(x: Array, w: dict[str, Array], name: str, inside: Array) -> Array:
    """Apply pairs of convolutions with a rectifier between them; each pair is added to its input."""
    k = 0
    while f"{name}.{k}.a" in w:
        x = _conv3(_conv3(x, w[f"{name}.{k}.a"], inside), w[f"{name}.{k}.b"], inside, to=x)
        k += 1
    return x


def _product(w: Array, x: Array) -> Array:
    """Apply a 1 x 1 convolution to (C, P, Q)."""
    return product(w, x.reshape(len(x), -1)).reshape(len(w), *x.shape[1:])


def _conv3(x: Array, w: Array, inside: Array, to: Array | None = None) -> Array:
    """Apply a 3 x 3 convolution to (C, P, Q), zero beyond the borders; with `to`, rectify x first and add to `to`.

    A GPU gathers the nine neighbours of each pixel for a matrix product. On the CPU, Winograd's algorithm turns 6 x 6
    pixels into 4 x 4, with a quarter of the multiplications. Each strip of tiles belongs to one thread, see
    `deblur.threads.all_cores`.

    inside : array
        For the CPU, in the form of a plane: 1 at pixels of the picture, else 0.
    """
    if is_cupy(x):
        (c, rows, cols), xp = x.shape, get_xp(x)
        found, high = [], max(1, _STRIP_GPU // (9 * c * cols))
        for top in range(0, rows, high):
            gathered = xp.empty((3, 3, c, min(high, rows - top), cols), np.float32)
            _launch("gather", gathered.size // 9, gathered, x, c, rows, cols, top, gathered.shape[3], to is not None)
            found.append((w @ gathered.reshape(9 * c, -1)).reshape(len(w), -1, cols))
        y = found[0] if len(found) == 1 else xp.concatenate(found, axis=1)
        return y if to is None else combined(to, y)
    c, step = len(x), x.shape[4]
    out = np.zeros((w.shape[1], *x.shape[1:]), np.float32) if to is None else to
    planes, sums, within = (a.reshape(len(a), 4, 4, -1) for a in (x, out, inside))
    stop = (x.shape[3] - 2) * step
    turns = -(-36 * c * stop // (_STRIP * cores()))  # strips for each thread, equally many for all
    some = -(-(stop - step - 1) // (turns * cores()))

    def strip(start: int) -> None:
        values = np.empty((36, c, min(some, stop - start)), np.float32)
        _forward(planes, start, step, to is not None, values)
        _back(w @ values, start, within[0], sums)

    on_cores(strip, range(step + 1, stop, some))
    return out


def _forward(planes: Array, start: int, step: int, rectified: bool, values: Array) -> None:
    """Transform 6 x 6 pixels of the tiles from `start` on, and of their neighbours, to `values`, (36, C, tiles)."""
    _, c, wide = values.shape
    tiles = np.empty((c, 6, 6, wide), np.float32)
    to, of = [slice(1), slice(1, 5), slice(5, 6)], [slice(3, 4), slice(4), slice(1)]
    for y, x in np.ndindex(3, 3):  # each tile and its neighbours
        at = start + (y - 1) * step + x - 1
        tiles[:, to[y], to[x]] = planes[:, of[y], of[x], at : at + wide]
    if rectified:
        np.maximum(tiles, 0, out=tiles)
    np.matmul(_winograd()[0].astype(np.float32), tiles.reshape(c, 36, wide), out=values.transpose(1, 0, 2))


def _back(values: Array, start: int, inside: Array, sums: Array) -> None:
    """Add 4 x 4 pixels of each tile to `sums`, computed from `values`."""
    _, c, wide = values.shape
    found = (_winograd()[1].astype(np.float32) @ values.transpose(1, 0, 2)).reshape(c, 4, 4, wide)
    found *= inside[..., start : start + wide]
    sums[..., start : start + wide] += found


def _tiled(x: Array) -> Array:
    """Return a plane (P, Q) as four of even and odd rows and columns, (4, 4, 4, rows, cols), in tiles of 4 x 4 pixels.

    The axes in the middle are those within a tile. One row above, two rows below and one column on the left are zero,
    so the neighbours of tile i of the last two axes, taken as one, are i ± 1 and i ± cols. The number of tiles can be
    halved as often as the network requires.
    """
    x = np.pad(x, [(0, -n % (4 * MULTIPLE)) for n in x.shape])
    high, wide = (n // 8 for n in x.shape)
    return _bordered(x.reshape(high, 4, 2, wide, 4, 2).transpose(2, 5, 1, 4, 0, 3))


def _bordered(x: Array) -> Array:
    return np.pad(x.reshape(-1, 4, 4, *x.shape[-2:]), [*[(0, 0)] * 3, (1, 2), (1, 0)])


def _whole(x: Array) -> Array:
    """Return the plane of which `_tiled` made x."""
    x = x[..., 1:-2, 1:]
    high, wide = x.shape[-2:]
    return x.reshape(2, 2, 4, 4, high, wide).transpose(4, 2, 0, 5, 3, 1).reshape(8 * high, 8 * wide)


def _apart(x: Array) -> Array:
    """Return (C, 2P, 2Q) as (4C, P, Q), the even and odd rows and columns of each plane; on the CPU in tiles."""
    if is_cupy(x):
        c, rows, cols = x.shape
        return _moved_on_gpu("apart", x, (4 * c, rows // 2, cols // 2), x.shape)
    x = x[..., 1:-2, 1:]
    x = x.reshape(len(x), 2, 2, 2, 2, x.shape[3] // 2, 2, x.shape[4] // 2, 2)
    return _bordered(x.transpose(0, 2, 4, 6, 1, 8, 3, 5, 7))


def _together(x: Array) -> Array:
    """Return (4C, P, Q) as (C, 2P, 2Q), the inverse of `_apart`."""
    if is_cupy(x):
        shape = len(x) // 4, 2 * x.shape[1], 2 * x.shape[2]
        return _moved_on_gpu("together", x, shape, shape)
    x = x[..., 1:-2, 1:]
    c, (high, wide) = len(x) // 4, x.shape[-2:]
    parts = x.reshape(c, 2, 2, 2, 2, 2, 2, high, wide).transpose(0, 4, 1, 6, 2, 7, 3, 8, 5)
    out = np.zeros((c, 4, 4, 2 * high + 3, 2 * wide + 1), np.float32)
    inner = out[..., 1:-2, 1:].reshape(parts.shape)
    for k in (0, 1):  # a single assignment would move two numbers at a time
        inner[..., k] = parts[..., k]
    return out


def _moved_on_gpu(name: str, x: Array, shape: tuple[int, ...], whole: tuple[int, ...]) -> Array:
    out = cupy.empty(shape, np.float32)
    _launch(name, x.size, out, x, *whole)
    return out


def _launch(name: str, size: int, *args: Any, dtype: Any = np.float32) -> None:
    blocks = kernels.blocks("network", size, per_multiprocessor=16)
    kernels.launch("network", name, blocks, _AT.THREADS, *args, dtype=dtype)

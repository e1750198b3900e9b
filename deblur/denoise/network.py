"""A small U-Net denoiser [1]_, conditioned on the result of the patch-based stage.

The image is split into four of half its size, every other pixel each [2]_, with a fifth plane that holds the
noise's standard deviation [2]_, and four more of an estimate of the picture whose errors differ from the image's.
Three levels follow, each of half the sides of the one before: pairs of 3 x 3 convolutions with a rectifier between
them, whose result is added to their input. The decoder adds the encoder's result at each level. The output is the
noise, which is subtracted from the image. Without biases the network answers an image twice as bright, of twice the
noise, with twice the result [3]_, so that pictures may lie on any scale.

``network.npz`` has the weights, about 1.4 million of 16 bits. ``tools/fit_network.py`` fitted them, and says to
which pictures; no benchmark here reports what the network makes of one of them.

References
----------
.. [1] O. Ronneberger, P. Fischer, T. Brox, U-Net, MICCAI 2015, 234-241; residual pairs as in K. Zhang, Y. Li, W. Zuo,
   L. Zhang, L. Van Gool, R. Timofte, IEEE Trans. Pattern Anal. Mach. Intell. 44 (2022) 6360-6376.
.. [2] K. Zhang, W. Zuo, L. Zhang, FFDNet, IEEE Trans. Image Process. 27 (2018) 4608-4622.
.. [3] S. Mohan, Z. Kadkhodaie, E. P. Simoncelli, C. Fernandez-Granda, Robust and interpretable blind image denoising
   via bias-free convolutional neural networks, ICLR 2020.
"""

from __future__ import annotations

import hashlib
import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .. import kernels
from ..device import Array, Device, cupy, get_xp, is_cupy
from ..norms import combined, largest, product
from ..threads import all_cores, cores, on_cores

WEIGHTS = Path(__file__).with_name("network.npz")
SHA256 = "5b449045cd404f121c4b30860e79829c0ce7786d0bfae456a3c48dd95c69b703"
#: The sides of what the network takes are multiples of this.
MULTIPLE = 8
_LEVELS = 3
_AT = kernels.Constants("network")
_NOTHING = 1e-5  # moduli below this share of the largest are rounding
_STRIP, _STRIP_GPU = 1 << 16, 1 << 26  # numbers that are gathered for one product, about


@cache
def _winograd() -> list[np.ndarray]:
    """Winograd's matrices [4]_: of 6 x 6 pixels, of products, and of the weights of a 3 x 3 convolution."""

    def values(n: int) -> np.ndarray:  # at six points, infinity the last, of the n coefficients of a polynomial
        return np.vstack([np.vander([0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5)], n, increasing=True), np.eye(n)[-1]])

    return [np.kron(a, a) for a in (np.linalg.inv(values(6)).T, values(4).T, values(3))]


def read(path: Path = WEIGHTS, sha256: str | None = SHA256) -> dict[str, np.ndarray]:
    """The weights in a file, float32: convolutions of 1 x 1 as (out, in), 3 x 3 as (out, 9, in), 2 x 2 as (out, in, 4).

    Raises
    ------
    ValueError
        If the file's SHA-256 is another.
    """
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise ValueError(
            f"the weights in {path} do not match their checksum: SHA-256 {found}, not {sha256}; install the "
            "package again"
        )
    with np.load(io.BytesIO(content)) as arrays:
        return {name: arrays[name].astype(np.float32) for name in arrays.files}


@cache
def _weights(device: Device) -> dict[str, Array]:
    """The weights as matrices on the current device, for products with what is gathered; see `_conv3`."""
    weights = read()
    if device.gpu is None:
        convolutions = {name: _winograd()[2] @ w for name, w in weights.items() if w.shape[1] == 9}
        weights |= {name: w.transpose(1, 0, 2).astype(np.float32, order="C") for name, w in convolutions.items()}
    return {name: device.xp.asarray(w if w.shape[0] == 36 else w.reshape(len(w), -1)) for name, w in weights.items()}


def network(planes: Array, sigma: float, near: Array) -> Array:
    """Planes (c, P, Q) without their noise, each by itself; NumPy or CuPy.

    Parameters
    ----------
    planes : (c, P, Q) array
        On any scale.
    sigma : float
        Standard deviation of the noise.
    near : (c, P, Q) array
        Estimates of the planes without noise.

    Returns
    -------
    array of the planes' shape and dtype; computed in float32
    """
    size = largest(planes)
    if not (sigma > 0 and size > 0):
        return planes.copy()

    def denoised(x: Array, clean: Array) -> Array:
        if largest(x) <= _NOTHING * size:  # the colours of a grey picture
            return x
        if is_cupy(x):
            return combined(x, _noise(x, sigma, clean, size).astype(x.dtype, copy=False), b=-size)
        x, clean = ((a / size).astype(np.float32) for a in (x, clean))
        return (size * (x - _noise(x, sigma / size, clean))).astype(planes.dtype)

    with all_cores():
        found = [denoised(*pair) for pair in zip(planes, near, strict=True)]
    return found[0][None] if len(found) == 1 else get_xp(planes).stack(found)


def _noise(x: Array, sigma: float, near: Array, size: float = 1.0) -> Array:
    """The noise of a plane (P, Q), all of them over `size`: moduli up to 1, float32."""
    w = _weights(Device.of(x))
    padded = (x.shape[0] + -x.shape[0] % MULTIPLE, x.shape[1] + -x.shape[1] % MULTIPLE)
    y = head = _conv3(_entered(x, near, padded, 1 / size, sigma / size), w["head"])
    levels = []
    for level in range(_LEVELS):
        y = _pairs(y, w, f"left{level}")
        if level < _LEVELS - 1:
            levels.append(y)
            y = _product(w[f"down{level}"], _apart(y))
    for level in reversed(range(_LEVELS - 1)):
        y = combined(levels[level], _together(_product(w[f"up{level}"], y)))
        y = _pairs(y, w, f"right{level}")
    return _together(_conv3(combined(y, head), w["tail"]))[0, : x.shape[0], : x.shape[1]]


def _entered(x: Array, near: Array, padded: tuple[int, int], scale: float, level: float) -> Array:
    """What goes in: a plane and its estimate, continued and taken apart, and the noise's level between them."""
    if is_cupy(x):
        return _entered_on_gpu(x, near, padded, scale, level)
    more = [(0, n - m) for n, m in zip(padded, x.shape, strict=True)]
    parts, others = (_apart(np.pad(a, more, mode="edge")[None]) for a in (x, near))
    return np.concatenate([parts, np.full((1, *parts.shape[1:]), level, np.float32), others])


def _pairs(x: Array, w: dict[str, Array], name: str) -> Array:
    """Pairs of convolutions with a rectifier between them, each pair added to what went in."""
    k = 0
    while f"{name}.{k}.a" in w:
        y = _conv3(x, w[f"{name}.{k}.a"])
        x = combined(x, _conv3(y, w[f"{name}.{k}.b"], rectified=True))
        k += 1
    return x


def _product(w: Array, x: Array) -> Array:
    """A 1 x 1 convolution of (C, P, Q)."""
    return product(w, x.reshape(len(x), -1)).reshape(len(w), *x.shape[1:])


def _conv3(x: Array, w: Array, rectified: bool = False) -> Array:
    """A 3 x 3 convolution of (C, P, Q), zero beyond the borders, after a rectifier if `rectified`.

    A GPU gathers the nine neighbours of each pixel, and a matrix product follows. On the CPU 6 x 6 pixels become 4 x 4
    by Winograd's algorithm, with a quarter of the multiplications. Each strip of rows belongs to one thread, see
    `deblur.threads.all_cores`.
    """
    c, rows, cols = x.shape
    if is_cupy(x):
        xp, high = get_xp(x), max(1, _STRIP_GPU // (9 * c * cols))
        found = []
        for top in range(0, rows, high):
            gathered = xp.empty((3, 3, c, min(high, rows - top), cols), np.float32)
            _gather_on_gpu(gathered, x, top, rectified)
            found.append((w @ gathered.reshape(9 * c, -1)).reshape(len(w), -1, cols))
        return found[0] if len(found) == 1 else xp.concatenate(found, axis=1)
    high, wide = -(-rows // 4), -(-cols // 4)
    padded = np.zeros((c, 4 * high + 2, 4 * wide + 2), np.float32)
    np.maximum(x, 0 if rectified else -np.inf, out=padded[:, 1 : 1 + rows, 1 : 1 + cols])
    plane, row, item = padded.strides
    into, back, _ = (a.astype(np.float32) for a in _winograd())
    out = np.empty((w.shape[1], high, 4, wide, 4), np.float32)
    some = max(1, min(-(-high // cores()), _STRIP // (36 * c * wide)))

    def strip(top: int) -> None:
        shape = (6, 6, c, min(some, high - top), wide)
        tiles = as_strided(padded[:, 4 * top :], shape, (row, item, plane, 4 * row, 4 * item))
        values = (into @ tiles.reshape(36, -1)).reshape(36, c, -1)
        tiles = (back @ (w @ values).reshape(36, -1)).reshape(4, 4, -1, *shape[3:])
        out[:, top : top + some] = tiles.transpose(2, 3, 0, 4, 1)

    on_cores(strip, range(0, high, some))
    return out.reshape(-1, 4 * high, 4 * wide)[:, :rows, :cols]


def _apart(x: Array) -> Array:
    """(C, 2P, 2Q) as (4C, P, Q): of each plane the pixels of even and odd rows and columns."""
    if is_cupy(x):
        return _apart_on_gpu(x)
    c, rows, cols = x.shape
    x = x.reshape(c, rows // 2, 2, cols // 2, 2).transpose(0, 2, 4, 1, 3)
    return x.reshape(4 * c, rows // 2, cols // 2)


def _together(x: Array) -> Array:
    """(4C, P, Q) as (C, 2P, 2Q): the way back."""
    if is_cupy(x):
        return _together_on_gpu(x)
    c, rows, cols = x.shape
    x = x.reshape(c // 4, 2, 2, rows, cols).transpose(0, 3, 1, 4, 2)
    return x.reshape(c // 4, 2 * rows, 2 * cols)


def _entered_on_gpu(x: Array, near: Array, shape: tuple[int, int], scale: float, level: float) -> Array:
    """The network's input, (9, P, Q): a plane and its estimate times `scale`, continued to `shape`, and `level`."""
    high, wide = shape[0] // 2, shape[1] // 2
    (x, ldx, _), (near, ldnear, _) = kernels.images(x), kernels.images(near)
    out = cupy.empty((9, high, wide), np.float32)
    _launch("enter", high * wide, out, high, wide, x, ldx, near, ldnear, *x.shape[1:], scale, level, dtype=x.dtype)
    return out


def _gather_on_gpu(out: Array, x: Array, top: int, rectified: bool) -> None:
    """The nine neighbours of each pixel of (C, P, Q), zero beyond the borders, of the rows from `top` on.

    out : (9 C rows Q,) float32 array; `rectified` sets negative numbers to zero.
    """
    c, rows, cols = x.shape
    count = out.size // 9
    _launch("gather", count, out, x, c, rows, cols, top, count // (c * cols), rectified)


def _apart_on_gpu(x: Array) -> Array:
    """(C, 2P, 2Q) as (4C, P, Q)."""
    c, rows, cols = x.shape
    return _moved_on_gpu("apart", x, (4 * c, rows // 2, cols // 2), (c, rows, cols))


def _together_on_gpu(x: Array) -> Array:
    """(4C, P, Q) as (C, 2P, 2Q)."""
    c, rows, cols = x.shape
    shape = (c // 4, 2 * rows, 2 * cols)
    return _moved_on_gpu("together", x, shape, shape)


def _moved_on_gpu(name: str, x: Array, shape: tuple[int, ...], whole: tuple[int, ...]) -> Array:
    out = cupy.empty(shape, np.float32)
    _launch(name, x.size, out, x, *whole)
    return out


def _launch(name: str, size: int, *args: Any, dtype: Any = np.float32) -> None:
    blocks = kernels.blocks("network", size, per_multiprocessor=16)
    kernels.launch("network", name, blocks, _AT.THREADS, *args, dtype=dtype)

"""Predefined filters and filtering: `fspecial` and `imfilter`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..device import Array, asnumpy, get_xp
from ..psf import disk as disk_psf
from . import arguments


def _grid(size: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Return row and column coordinates of a filter, zero at its centre (which is between pixels for an even size)."""
    return np.ix_(*(np.arange(n) - (n - 1) / 2 for n in size))


def _hsize(value: Any) -> tuple[int, int]:
    size = arguments.as_size(value, "hsize")
    if len(size) > 2:
        raise ValueError(f"hsize must be one number or two (rows, columns), not {value!r}")
    return size[0], size[-1]


def _gaussian(hsize: Any = 3, sigma: Any = 0.5) -> np.ndarray:
    y, x = _grid(_hsize(hsize))
    h = np.exp(-(x * x + y * y) / (2 * arguments.as_scalar(sigma, "sigma", 0, above=True) ** 2))
    h[h < arguments.EPS * h.max()] = 0
    total = h.sum()
    return h / total if total else h


def _log(hsize: Any = 5, sigma: Any = 0.5) -> np.ndarray:
    h = _gaussian(hsize, sigma)
    y, x = _grid(h.shape)
    s2 = arguments.as_scalar(sigma, "sigma") ** 2
    h = h * (x * x + y * y - 2 * s2) / s2**2
    return h - h.mean()  # the cut-off tails must not leave a response to a flat image


def _laplacian(alpha: Any = 0.2) -> np.ndarray:
    a = arguments.as_scalar(alpha, "alpha", 0, 1)
    corner, edge = a / (a + 1), (1 - a) / (a + 1)
    return np.array([[corner, edge, corner], [edge, -4 / (a + 1), edge], [corner, edge, corner]])


def _disk(radius: Any = 5) -> np.ndarray:
    r = arguments.as_scalar(radius, "radius", 0, above=True)
    return disk_psf(2 * math.ceil(r - 0.5) + 1, r)


def _motion(length: Any = 9, theta: Any = 0) -> np.ndarray:
    length = max(1.0, arguments.as_scalar(length, "len", high=2.0**31))
    phi = arguments.as_scalar(theta, "theta") % 180 / 180 * math.pi
    c, s, half = math.cos(phi), math.sin(phi), (length - 1) / 2
    # The filter covers pixels nearer than 1 to the bounding box of the line. A small slack keeps a horizontal line one
    # row high. MATLAB subtracts the slack from the signed reach, so that an obtuse angle may leave columns of zeros.
    reach = [abs(math.trunc(half * t + math.copysign(1, t) - length * arguments.EPS)) for t in (s, c)]
    y, x = np.ogrid[reach[0] : -reach[0] - 1 : -1, -reach[1] : reach[1] + 1]
    along, across = x * c + y * s, abs(y * c - x * s)
    beyond = np.hypot(x, y) >= half
    h = np.maximum(1 - np.where(beyond, np.hypot(across, half - abs(along)), across), 0)
    return h / h.sum()


def _edges(middle: int) -> np.ndarray:
    """Return a smoothed vertical difference, Prewitt's or Sobel's."""
    return np.outer([1.0, 0, -1], [1, middle, 1])


_FSPECIAL: dict[str, tuple[Callable[..., np.ndarray], tuple[str, ...]]] = {
    "average": (lambda hsize=3: np.ones(_hsize(hsize)) / math.prod(_hsize(hsize)), ("hsize",)),
    "disk": (_disk, ("radius",)),
    "gaussian": (_gaussian, ("hsize", "sigma")),
    "laplacian": (_laplacian, ("alpha",)),
    "log": (_log, ("hsize", "sigma")),
    "motion": (_motion, ("len", "theta")),
    "prewitt": (partial(_edges, 1), ()),
    "sobel": (partial(_edges, 2), ()),
    "unsharp": (lambda alpha=0.2: np.pad([[1.0]], 1) - _laplacian(alpha), ("alpha",)),
}


def fspecial(type: str, *parameters: Any) -> np.ndarray:
    """Return a predefined 2-D filter, as a correlation kernel for `imfilter`.

    - ``"average", hsize=3``: the mean over hsize pixels;
    - ``"disk", radius=5``: pillbox, the area of each pixel inside the disk; the
      side is 2 ceil(radius - 1/2) + 1;
    - ``"gaussian", hsize=3, sigma=0.5``: exp(-(x² + y²) / (2 sigma²)), values
      below eps times the largest set to zero, normalised;
    - ``"laplacian", alpha=0.2``: 3 by 3, 0 <= alpha <= 1;
    - ``"log", hsize=5, sigma=0.5``: Laplacian of Gaussian, shifted to sum zero;
    - ``"motion", len=9, theta=0``: motion by len pixels, theta degrees
      counter-clockwise from the horizontal;
    - ``"prewitt"``, ``"sobel"``: 3 by 3, for horizontal edges (transpose for vertical ones);
    - ``"unsharp", alpha=0.2``: 3 by 3, the unit filter less the Laplacian.

    Parameters
    ----------
    type : str
        One of the names above.
    *parameters
        The parameters of the filter, in this order. `hsize` is a whole number
        for a square filter, or a row or column of two, rows and columns. All
        lengths are in pixels.

    Returns
    -------
    h : 2-D float64 ndarray

    Raises
    ------
    ValueError
        For an unknown type, too many parameters or one out of its range.

    Notes
    -----
    These filters follow MATLAB. Octave 7's package normalises ``"log"`` in another
    way, centres ``"motion"`` between pixels for odd lengths, and has no ``"disk"``
    with a fractional radius.

    For ``"motion"`` MATLAB documents max(1 - d, 0), where d is the distance of a
    pixel from the line of length len - 1. The values that it returns (for instance
    0.0754, 0.1883 and 0.3215 for a length of 3 at 45 degrees) show a refinement,
    which is used here: if a pixel is farther from the centre than half the length,
    d is its distance from the end of the line, even if its projection is on the
    line. MATLAB's size is used, too: if an obtuse angle puts the ends of the line
    on whole columns, a column of zeros stays on each side. Length 9 at 120 degrees
    is 9 by 7 (MATLAB Answers 307822 explains both).

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``fspecial``.
    """
    kind = arguments.match_word(type, tuple(_FSPECIAL), "the filter type")
    build, names = _FSPECIAL[kind]
    arguments.check_count("fspecial", kind, parameters, names)
    return build(*parameters)


_FILTER_CLASSES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
_PAD_MODES = {"symmetric": "symmetric", "replicate": "edge", "circular": "wrap"}
_FILTER_OPTIONS = (*_PAD_MODES, "same", "full", "corr", "conv")


def imfilter(a: Array, h: Array, *options: str | float) -> Array:
    """Filter an N-D array with an N-D kernel.

    Parameters
    ----------
    a : array
        The image. Dimensions that `h` lacks are filtered slice by slice, so an
        (M, N, 3) image with a 2-D `h` is filtered channel by channel.
    h : array
        The kernel, of any real class.
    *options
        Options in any order. The last one counts if two exclude each other.

        - boundary: a number (the value outside, default 0; it is rounded and
          clipped to the class of `a`), ``"symmetric"`` (mirrored, with the edge
          pixel repeated), ``"replicate"`` (nearest edge pixel) or ``"circular"``;
        - size: ``"same"`` (default) or ``"full"``;
        - mode: ``"corr"`` (default) or ``"conv"``.

    Returns
    -------
    b : array of a's class
        The filtered image with the shape of `a`, or ``shape(a) + shape(h) - 1``
        for ``"full"``. It is computed in float64. For integer and logical classes,
        values are rounded (halves away from zero) and clipped to the class's range.

    Raises
    ------
    TypeError
        For complex numbers, 64-bit integers or half precision.
    ValueError
        For an unknown option, an empty array, or a kernel with NaN or infinity.

    Notes
    -----
    The centre of the kernel is its element floor((size(h) + 1)/2), one-based, so
    an even kernel acts as if a row of zeros preceded it. MATLAB documents this for
    both ``"corr"`` and ``"conv"``: convolution rotates the kernel by 180 degrees
    about that element. ``"conv"`` then equals SciPy's ``convolve2d(a, h, "same")``.
    Octave's package rotates an even kernel about its middle, which shifts the result
    of ``"conv"`` by one pixel. For ``"full"`` it loses a row of an even kernel, and
    pads the image by only half the kernel. Otherwise it agrees.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``imfilter`` and "What Is
    Image Filtering in the Spatial Domain?".
    """
    a = arguments.as_array(a, "a")
    xp = get_xp(a)
    arguments.check_class(a.dtype, "a", _FILTER_CLASSES)
    weights = asnumpy(arguments.as_real(h, "h"))
    mode: dict[str, Any] = {"mode": "constant"}
    full = conv = False
    for option in options:
        if not isinstance(option, str):
            value = arguments.as_scalar(option, "the boundary value")
            value = float(value != 0) if a.dtype.kind == "b" else value  # every number but 0 is true
            cast = arguments.saturate(np.asarray(value), a.dtype)
            mode = {"mode": "constant", "constant_values": float(cast)}
            continue
        word = arguments.match_word(option, _FILTER_OPTIONS, "an option of imfilter")
        if word in _PAD_MODES:
            mode = {"mode": _PAD_MODES[word]}
        elif word in ("same", "full"):
            full = word == "full"
        else:
            conv = word == "conv"
    shape = a.shape
    dims = max(a.ndim, weights.ndim)
    a = a.reshape(shape + (1,) * (dims - a.ndim))
    weights = weights.reshape(weights.shape + (1,) * (dims - weights.ndim))
    before = [m - 1 if full else (m - 1) // 2 for m in weights.shape]
    after = [m - 1 if full else m // 2 for m in weights.shape]
    if conv:
        weights = np.flip(weights)
        before, after = after, before
    padded = xp.pad(a.astype(np.float64), list(zip(before, after, strict=True)), **mode)
    # One shifted sum per element, in double as documented. This is faster than SciPy's direct correlation, and
    # unlike scipy.ndimage it ignores no small weight.
    b = xp.zeros([n - m + 1 for n, m in zip(padded.shape, weights.shape, strict=True)])
    for at in np.argwhere(weights):
        b += weights[tuple(at)] * padded[tuple(slice(k, k + n) for k, n in zip(at, b.shape, strict=True))]
    return arguments.saturate(b if full else b.reshape(shape), a.dtype)

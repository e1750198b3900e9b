"""MATLAB's image functions by MATLAB's rules, for people who bring their scripts along.

Argument order, defaults, names, centres, class behaviour and rounding are
those that the MATLAB documentation states, also where the rest of `deblur`
does otherwise: `filter2matrix` here is a *correlation*, as the published
listing has it. The rules that hold for every function:

- A number, list or tuple is ``double``, as a MATLAB literal is; an array keeps
  its class. A 1-D array is a row vector, (1, n).
- A name such as ``"gaussian"`` may be written in any case and shortened as
  long as it stays unambiguous.
- NumPy array in, NumPy array out; CuPy array in, CuPy array out.

GNU Octave's image package differs in places from what MATLAB documents; each
function says where, and which side is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .backend import Array, asnumpy, check_finite, get_fft, get_xp, is_cupy
from .blur import filter2matrix as convolution_matrix
from .pipeline import reconstruct
from .psf import disk as disk_psf

__all__ = [
    "deconvlucy",
    "deconvreg",
    "deconvwnr",
    "edgetaper",
    "filter2matrix",
    "fspecial",
    "im2vector",
    "imfilter",
    "immse",
    "imnoise",
    "otf2psf",
    "psf2otf",
    "psnr",
    "reconstruction",
    "vector2im",
]

_EPS = float(np.finfo(np.float64).eps)
_IMAGE_CLASSES = ("uint8", "uint16", "int16", "float32", "float64")

# ---------------------------------------------------------------------------------------------
# Arguments as MATLAB reads them
# ---------------------------------------------------------------------------------------------


def _array(a: Any, name: str) -> tuple[Array, ModuleType]:
    """`a` as a non-empty array of two or more dimensions, and its array module."""
    if not isinstance(a, np.ndarray | np.generic) and not is_cupy(a):
        a = np.asarray(a)
        if a.dtype.kind in "iu":
            a = a.astype(np.float64)
    xp = get_xp(a)
    a = xp.atleast_2d(a)
    if a.size == 0:
        raise ValueError(f"{name} is empty (shape {a.shape})")
    if a.dtype.kind not in "biufc":
        raise TypeError(f"{name} must hold numbers, not dtype {a.dtype}")
    return a, xp


def _real(a: Any, name: str) -> tuple[Array, ModuleType]:
    """As `_array`, for real and finite numbers, in float64."""
    a, xp = _array(a, name)
    if a.dtype.kind == "c":
        raise TypeError(f"{name} must hold real numbers, not dtype {a.dtype}")
    a = a.astype(np.float64)
    check_finite(a, name)
    return a, xp


def _check_class(a: Array, name: str, classes: Sequence[str]) -> None:
    if a.dtype.name not in classes:
        raise TypeError(
            f"{name} must be of dtype {', '.join(classes)}, not {a.dtype}: convert it with .astype"
        )


def _match(word: Any, choices: Sequence[str], what: str) -> str:
    """The one of `choices` that `word` names: any case, any beginning that no other shares."""
    hits = [c for c in choices if c.startswith(word.lower())] if isinstance(word, str) else []
    if len(hits) != 1:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, choices))}, not {word!r}")
    return hits[0]


def _scalar(
    value: Any, name: str, low: float = -math.inf, high: float = math.inf, *, above: bool = False
) -> float:
    """`value` as a finite float between `low` (exclusive if `above`) and `high`."""
    single = asnumpy(value) if is_cupy(value) else np.asarray(value)
    number = float(single.item()) if single.size == 1 and single.dtype.kind in "biuf" else math.nan
    if not (math.isfinite(number) and low <= number <= high) or (above and number == low):
        span = "" if low == -math.inf else f" {'above' if above else 'of at least'} {low:g}"
        span += "" if high == math.inf else f" and at most {high:g}"
        raise ValueError(f"{name} must be a finite number{span}, not {value!r}")
    return number


def _hsize(value: Any) -> tuple[int, int]:
    size = np.atleast_1d(np.asarray(value))
    size = np.repeat(size, 2) if size.size == 1 else size
    if size.shape != (2,) or size.dtype.kind not in "iuf" or not (size >= 1).all() or (size % 1 != 0).any():
        raise ValueError(
            f"hsize must be a positive whole number or a pair (rows, columns) of them, not {value!r}"
        )
    return int(size[0]), int(size[1])


def _round(x: Array) -> Array:
    """To the nearest whole number, halves away from zero: MATLAB's rounding, which is not NumPy's."""
    xp = get_xp(x)
    whole = xp.trunc(x)
    return whole + xp.sign(x) * (xp.abs(x - whole) >= 0.5)


def _saturate(x: Array, dtype: np.dtype) -> Array:
    """float64 values in class `dtype`: integers and logicals are rounded and held within their range."""
    if dtype.kind == "f":
        return x.astype(dtype)
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return _round(x).clip(low, high).astype(dtype)


def _im2double(a: Array) -> Array:
    """Integers scaled from their class's range to [0, 1]; floating-point and logical values as they are."""
    if a.dtype.kind not in "iu":
        return a.astype(np.float64)
    limits = np.iinfo(a.dtype)
    return (a.astype(np.float64) - limits.min) / (float(limits.max) - limits.min)


def _from_double(x: Array, dtype: np.dtype) -> Array:
    """The way back from `_im2double`."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = x * (float(limits.max) - limits.min) + limits.min
    return _saturate(x, dtype)


# ---------------------------------------------------------------------------------------------
# The published listings: the system matrix and its inversion
# ---------------------------------------------------------------------------------------------


def filter2matrix(h: Array, rowsf: int, colsf: int, rowsg: int, colsg: int) -> np.ndarray:
    """The system matrix of a filter, as the published listing builds it: a correlation.

    Row i of H holds what every pixel of f contributes to pixel i of g; pixels
    are taken row by row. With c = ceil(size(h)/2), one-based,

        g[k, l] = sum_{i,j} h[i, j] f[k + i - c1, l + j - c2],   zero outside f.

    `deblur.filter2matrix` is the matrix of the convolution; this one is the
    same with `h` turned by 180 degrees.

    Parameters
    ----------
    h : (m, n) array
        The filter.
    rowsf, colsf : int
        Size of the image f.
    rowsg, colsg : int
        Size of the image g. Its first pixel lies on the first pixel of f.

    Returns
    -------
    H : (rowsg * colsg, rowsf * colsf) float64 ndarray, always on the host

    Raises
    ------
    ValueError
        For a filter that is empty, not finite or zero everywhere, or a size that is not positive.
    InsufficientMemoryError
        If the matrix would not fit, before it is allocated.

    Notes
    -----
    The listing reserves rowsf * colsg columns instead of rowsf * colsf. Where
    f and g differ in width, its H therefore has columns of zeros too many
    (colsg > colsf) or lacks some that are zero; the entries are the same. The
    size here is the one that multiplies im2vector(f).

    References
    ----------
    Table 6.1 of the thesis that this project grew from (about 2012: image
    restoration by inverting the system matrix with CUDA, called from MATLAB).
    """
    psf, origin = _as_psf(h)
    return convolution_matrix(psf, rowsf, colsf, rowsg, colsg, origin=origin)


def _as_psf(h: Any) -> tuple[np.ndarray, tuple[int, int]]:
    """The listing's filter as the PSF of a convolution, and the PSF's origin.

    Turned by 180 degrees, the element ceil(size/2) (one-based) comes to lie at floor(size/2) (zero-based).
    """
    h, _ = _real(h, "h")
    if h.ndim != 2:
        raise ValueError(f"h must be a matrix, not of shape {h.shape}")
    return asnumpy(h)[::-1, ::-1], (h.shape[0] // 2, h.shape[1] // 2)


def im2vector(image: Array) -> Array:
    """The pixels of an (M, N) image, row by row, as a column: (M * N, 1), of the same class.

    Notes
    -----
    Published listing, table 6.2: ``reshape(image', M*N, 1)``. A column stays a
    column, as in MATLAB; ``.ravel()`` makes a 1-D array of it.
    """
    image, _ = _array(image, "image")
    if image.ndim != 2:
        raise ValueError(f"image must be a matrix, not of shape {image.shape}; take one channel at a time")
    return image.reshape(-1, 1)


def vector2im(vector: Array, shape: tuple[int, int] | None = None) -> Array:
    """The image that `im2vector` made a vector of.

    Parameters
    ----------
    vector : (M * N, 1), (1, M * N) or (M * N,) array
    shape : (int, int), optional
        Rows and columns of the image. Without it the image is square, which
        is all that the published listing (table 6.2) can do.

    Returns
    -------
    image : (M, N) array of the same class

    Raises
    ------
    ValueError
        If the length is not rows * columns, or without `shape` not a square number.
    """
    vector, _ = _array(vector, "vector")
    n = vector.size
    if max(vector.shape) != n:
        raise ValueError(f"vector must be a row or a column, not of shape {vector.shape}")
    if shape is None:
        side = math.isqrt(n)
        if side * side != n:
            raise ValueError(f"{n} pixels make no square image; give shape=(rows, columns)")
        shape = (side, side)
    if math.prod(shape) != n:
        raise ValueError(f"{n} pixels do not fill an image of shape {tuple(shape)}")
    return vector.reshape(shape)


def reconstruction(g: Array, h: Array, lambda_: float) -> Array:
    """The image f = (H Hᵀ + λ I)⁻¹ Hᵀ g, by the published listing's literal formula.

    H is `filter2matrix` of `h`, the correlation. This is the regularised
    least-squares image only where H Hᵀ = Hᵀ H, as for a filter that is
    point-symmetric about its centre; `deblur.reconstruct` gives it for any.

    Parameters
    ----------
    g : (M, N) array
        The degraded image. Its values are used as they are, unscaled, of whatever class.
    h : (m, n) array
        The filter that degraded it, for a correlation.
    lambda_ : float
        λ >= 0.

    Returns
    -------
    f : (M, N) float64 array

    Raises
    ------
    ValueError
        For NaN or infinity, wrong dimensions, a filter larger than the image, or a negative λ.
    SingularMatrixError
        If H Hᵀ + λ I is singular to working precision.
    InsufficientMemoryError
        If the (M * N, M * N) matrix would not fit.

    Notes
    -----
    The listing computes in single precision and returns square images only;
    this computes in float64, and g may have any shape. The system is solved
    by Cholesky factorisation instead of multiplied by an inverse.

    References
    ----------
    Table 6.2 of the thesis named under `filter2matrix`.
    """
    g, _ = _real(g, "g")
    if g.ndim != 2:
        raise ValueError(f"g must be a matrix, not of shape {g.shape}; restore one channel at a time")
    lam = _scalar(lambda_, "lambda_", 0)
    psf, origin = _as_psf(h)
    return reconstruct(g, psf, lam, method="cholesky", formula="hht", origin=origin)


# ---------------------------------------------------------------------------------------------
# fspecial
# ---------------------------------------------------------------------------------------------


def _grid(size: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Row and column coordinates of a filter, zero at its middle (between pixels if even)."""
    y, x = (np.arange(n) - (n - 1) / 2 for n in size)
    return y[:, None], x[None, :]


def _average(hsize: Any = 3) -> np.ndarray:
    size = _hsize(hsize)
    return np.full(size, 1 / math.prod(size))


def _gaussian(hsize: Any = 3, sigma: Any = 0.5) -> np.ndarray:
    y, x = _grid(_hsize(hsize))
    h = np.exp(-(x * x + y * y) / (2 * _scalar(sigma, "sigma", 0, above=True) ** 2))
    h[h < _EPS * h.max()] = 0
    total = h.sum()
    return h / total if total else h


def _log(hsize: Any = 5, sigma: Any = 0.5) -> np.ndarray:
    h = _gaussian(hsize, sigma)
    y, x = _grid(h.shape)
    s2 = float(sigma) ** 2
    h = h * (x * x + y * y - 2 * s2) / s2**2
    return h - h.mean()  # the cut-off tails must not leave a response to a flat image


def _laplacian(alpha: Any = 0.2) -> np.ndarray:
    a = _scalar(alpha, "alpha", 0, 1)
    corner, edge = a / (a + 1), (1 - a) / (a + 1)
    return np.array([[corner, edge, corner], [edge, -4 / (a + 1), edge], [corner, edge, corner]])


def _unsharp(alpha: Any = 0.2) -> np.ndarray:
    h = -_laplacian(alpha)
    h[1, 1] += 1
    return h


def _disk(radius: Any = 5) -> np.ndarray:
    r = _scalar(radius, "radius", 0, above=True)
    return disk_psf(2 * math.ceil(r - 0.5) + 1, r)


def _motion(length: Any = 9, theta: Any = 0) -> np.ndarray:
    length = max(1.0, _scalar(length, "len"))
    phi = math.radians(_scalar(theta, "theta") % 180)
    c, s, half = math.cos(phi), math.sin(phi), (length - 1) / 2
    # Pixels nearer than 1 to the line's bounding box; the slack keeps a horizontal line one row high.
    reach = [math.floor(half * abs(t) + 1 - length * _EPS) for t in (s, c)]
    y, x = np.ogrid[reach[0] : -reach[0] - 1 : -1, -reach[1] : reach[1] + 1]
    along, across = x * c + y * s, abs(y * c - x * s)
    beyond = np.hypot(x, y) >= half
    distance = np.where(beyond, np.hypot(across, half - abs(along)), across)
    h = np.maximum(1 - distance, 0)
    return h / h.sum()


def _prewitt() -> np.ndarray:
    return np.array([[1.0, 1, 1], [0, 0, 0], [-1, -1, -1]])


def _sobel() -> np.ndarray:
    return np.array([[1.0, 2, 1], [0, 0, 0], [-1, -2, -1]])


_FSPECIAL: dict[str, tuple[Callable[..., np.ndarray], tuple[str, ...]]] = {
    "average": (_average, ("hsize",)),
    "disk": (_disk, ("radius",)),
    "gaussian": (_gaussian, ("hsize", "sigma")),
    "laplacian": (_laplacian, ("alpha",)),
    "log": (_log, ("hsize", "sigma")),
    "motion": (_motion, ("len", "theta")),
    "prewitt": (_prewitt, ()),
    "sobel": (_sobel, ()),
    "unsharp": (_unsharp, ("alpha",)),
}


def _check_count(function: str, kind: str, parameters: Sequence[Any], names: Sequence[str]) -> None:
    if len(parameters) > len(names):
        takes = f"takes {', '.join(names)}" if names else "takes no parameters"
        raise ValueError(f"{function} {kind!r} {takes}; {len(parameters)} were given: {tuple(parameters)!r}")


def fspecial(type: str, *parameters: Any) -> np.ndarray:
    """A predefined 2-D filter, as a correlation kernel for `imfilter`.

    - ``"average", hsize=3``: the mean over hsize pixels;
    - ``"disk", radius=5``: pillbox, each pixel's area inside the disk; the
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
        One of the above.
    *parameters
        Its parameters in this order. `hsize` is a whole number for a square
        filter or a pair (rows, columns); all lengths are in pixels.

    Returns
    -------
    h : 2-D float64 ndarray

    Raises
    ------
    ValueError
        For an unknown type, too many parameters or one out of its range.

    Notes
    -----
    Octave 7's package gives other values for ``"log"`` (another normalisation),
    for ``"motion"`` (another construction, centred between pixels for odd
    lengths) and cannot make a ``"disk"`` of fractional radius; these follow
    MATLAB. For ``"motion"`` MATLAB documents max(1 - d, 0), with d the distance
    of a pixel from the line of length len - 1. The values that it returns (for
    instance 0.0754, 0.1883 and 0.3215 for a length of 3 at 45 degrees) show
    one refinement, which is followed here: a pixel farther from the middle
    than the line's half length has its distance taken from the line's end
    point, even where the foot of the perpendicular lies on the line.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``fspecial``.
    """
    kind = _match(type, tuple(_FSPECIAL), "the filter type")
    build, names = _FSPECIAL[kind]
    _check_count("fspecial", kind, parameters, names)
    return build(*parameters)


# ---------------------------------------------------------------------------------------------
# imfilter
# ---------------------------------------------------------------------------------------------

_FILTER_CLASSES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
_PAD_MODES = {"symmetric": "symmetric", "replicate": "edge", "circular": "wrap"}
_FILTER_OPTIONS = (*_PAD_MODES, "same", "full", "corr", "conv")


def imfilter(a: Array, h: Array, *options: str | float) -> Array:
    """Filter an N-D array with an N-D kernel.

    Parameters
    ----------
    a : array
        Image. Dimensions that `h` lacks are filtered slice by slice, so an
        (M, N, 3) image with a 2-D `h` is filtered channel by channel.
    h : array
        Kernel, of any real class.
    *options
        In any order; of two that exclude each other the last one counts.

        - boundary: a number (what lies outside, default 0), ``"symmetric"``
          (mirrored, edge pixel repeated), ``"replicate"`` (nearest edge pixel)
          or ``"circular"``;
        - size: ``"same"`` (default) or ``"full"``;
        - mode: ``"corr"`` (default) or ``"conv"``.

    Returns
    -------
    b : array of a's class
        Of a's shape, or ``shape(a) + shape(h) - 1`` for ``"full"``. Computed in
        float64. For integer and logical classes values are rounded, halves
        away from zero, and held at the ends of the class's range.

    Raises
    ------
    TypeError
        For complex numbers, 64-bit integers or half precision.
    ValueError
        For an unknown option, an empty array, or a kernel with NaN or infinity.

    Notes
    -----
    The kernel's centre is its element floor((size(h) + 1)/2), one-based, so an
    even kernel works as one with a row of zeros put before it. This is
    documented for ``"corr"`` and ``"conv"`` alike: convolution turns the kernel
    about that element. ``"conv"`` then equals SciPy's
    ``convolve2d(a, h, "same")``. Octave's package turns an even kernel about
    its middle instead, one pixel off in ``"conv"``, and for ``"full"`` it loses
    a row of an even kernel and continues the image by half the kernel only; for
    all else it agrees.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``imfilter`` and "What Is
    Image Filtering in the Spatial Domain?".
    """
    a, xp = _array(a, "a")
    _check_class(a, "a", _FILTER_CLASSES)
    weights = asnumpy(_real(h, "h")[0])
    boundary: str | float = 0.0
    full = conv = False
    for option in options:
        if not isinstance(option, str):
            boundary = _scalar(option, "the boundary value")
            continue
        word = _match(option, _FILTER_OPTIONS, "an option of imfilter")
        if word in _PAD_MODES:
            boundary = word
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
    mode: dict[str, Any] = {"mode": "constant", "constant_values": boundary}
    if isinstance(boundary, str):
        mode = {"mode": _PAD_MODES[boundary]}
    padded = xp.pad(a.astype(np.float64), list(zip(before, after, strict=True)), **mode)
    # One shifted sum for each element, in double as documented: faster than SciPy's direct correlation,
    # and unlike scipy.ndimage it leaves no small weight out.
    b = xp.zeros([n - m + 1 for n, m in zip(padded.shape, weights.shape, strict=True)])
    for at in np.argwhere(weights):
        b += weights[tuple(at)] * padded[tuple(slice(k, k + n) for k, n in zip(at, b.shape, strict=True))]
    if not full:
        b = b.reshape(shape)
    return _saturate(b, a.dtype)


# ---------------------------------------------------------------------------------------------
# imnoise
# ---------------------------------------------------------------------------------------------

_NOISE: dict[str, dict[str, Any]] = {  # parameters and their defaults
    "gaussian": {"m": 0, "var_gauss": 0.01},
    "localvar": {"intensity_map": None, "var_local": None},
    "poisson": {},
    "salt & pepper": {"d": 0.05},
    "speckle": {"var_speckle": 0.05},
}
# Counts for a value of 1: an integer is a count itself.
_POISSON_SCALE = {"uint8": 255.0, "uint16": 65535.0, "float32": 1e6, "float64": 1e12}


def imnoise(
    img: Array, type: str = "gaussian", *parameters: Any, seed: int | np.random.Generator | None = None
) -> Array:
    """Add noise to an image.

    - ``"gaussian", m=0, var_gauss=0.01``: white noise of this mean and variance;
    - ``"localvar", var_local``: white noise of mean 0 with a variance for each
      pixel, an array of the image's shape;
    - ``"localvar", intensity_map, var_local``: the same, the variance
      interpolated linearly from the pixel's value; two vectors of one length;
    - ``"poisson"``: a Poisson count in place of each value;
    - ``"salt & pepper", d=0.05``: about a part d of the pixels, one half of
      them set to the lowest value of the class and one half to the highest;
    - ``"speckle", var_speckle=0.05``: img + n img, n *uniform* of mean 0.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64
        Any shape. Integers are scaled from their class's range to [0, 1], and
        all parameters refer to that; floating-point values are clipped to [0, 1].
    type : str
        One of the above.
    *parameters
        Its parameters in this order.
    seed : int or numpy.random.Generator, optional
        Where the random numbers come from; the same seed gives the same noise
        (not MATLAB's: its random stream is another). A CuPy image gets the
        same noise as the NumPy image of its values.

    Returns
    -------
    noisy : array of img's class and shape, clipped to [0, 1] or the class's range

    Raises
    ------
    TypeError
        For another class. Poisson noise is not defined for int16.
    ValueError
        For NaN or infinity, an unknown type, or a parameter out of range.

    Notes
    -----
    Poisson noise takes an integer value as the mean count of its pixel, a
    float64 value times 1e12 and a float32 value times 1e6. Every count is drawn
    from the Poisson distribution, also the large ones that MATLAB draws from
    its normal limit.

    Octave's package has a speckle variance of 0.04 by default and draws n from
    a normal distribution, and it does not know ``"localvar"``; MATLAB's
    documentation is followed.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``imnoise``.
    """
    kind = _match(type, tuple(_NOISE), "the noise type")
    defaults = _NOISE[kind]
    _check_count("imnoise", kind, parameters, tuple(defaults))
    if kind == "localvar" and not parameters:
        raise ValueError("imnoise 'localvar' needs var_local, or intensity_map and var_local")
    values = [*parameters, *list(defaults.values())[len(parameters) :]]
    a, xp = _array(img, "img")
    # A signed value is no count, so MATLAB has no Poisson noise for int16.
    _check_class(a, "img", [c for c in _IMAGE_CLASSES if c != "int16" or kind != "poisson"])
    check_finite(a, "img")
    dtype = a.dtype
    rng = np.random.default_rng(seed)
    x = _im2double(asnumpy(a)).clip(0, 1)
    if kind == "gaussian":
        mean, variance = _scalar(values[0], "m"), _scalar(values[1], "var_gauss", 0)
        x = x + mean + math.sqrt(variance) * rng.standard_normal(x.shape)
    elif kind == "localvar":
        x = x + np.sqrt(_local_variance(x, *parameters)) * rng.standard_normal(x.shape)
    elif kind == "poisson":
        scale = _POISSON_SCALE[dtype.name]
        x = rng.poisson(x * scale) / scale
    elif kind == "salt & pepper":
        d = _scalar(values[0], "d", 0, 1)
        chance = rng.random(x.shape)
        x = np.where(chance < d / 2, 0.0, np.where(chance < d, 1.0, x))
    else:
        # A uniform number of width w has the variance w² / 12.
        width = math.sqrt(12 * _scalar(values[0], "var_speckle", 0))
        x = x + width * (rng.random(x.shape) - 0.5) * x
    return xp.asarray(_from_double(x.clip(0, 1), dtype))


def _local_variance(x: np.ndarray, *parameters: Any) -> np.ndarray:
    variance = asnumpy(_real(parameters[-1], "var_local")[0])
    if not (variance >= 0).all():
        raise ValueError(f"var_local must not be negative; the smallest is {variance.min():g}")
    if len(parameters) == 1:
        if variance.shape != x.shape:
            raise ValueError(f"var_local must have the image's shape {x.shape}, not {variance.shape}")
        return variance
    intensity = asnumpy(_real(parameters[0], "intensity_map")[0]).ravel()
    variance = variance.ravel()
    if intensity.size != variance.size or not (np.diff(intensity) > 0).all():
        raise ValueError(
            f"intensity_map must increase and be as long as var_local; their lengths are "
            f"{intensity.size} and {variance.size}"
        )
    return np.interp(x, intensity, variance)


# ---------------------------------------------------------------------------------------------
# Transfer functions and edges
# ---------------------------------------------------------------------------------------------


def _sizes(a: Array, outsize: Sequence[int] | None) -> tuple[Array, tuple[int, ...]]:
    """`a` and `outsize` with as many dimensions as each other: what is missing has length 1."""
    size = a.shape if outsize is None else tuple(int(n) for n in np.ravel(np.asarray(outsize)))
    dims = max(a.ndim, len(size))
    return a.reshape(a.shape + (1,) * (dims - a.ndim)), size + (1,) * (dims - len(size))


def _real_if_rounding(x: Array, like: Array) -> Array:
    """`x` without its imaginary part, if that is no larger than the rounding of an FFT of `like`."""
    xp = get_xp(x)
    noise = _EPS * like.size * math.log2(like.size)
    if float(xp.abs(x.imag).max()) <= noise * float(xp.abs(x).max()):
        return x.real.copy()
    return x


def psf2otf(psf: Array, outsize: Sequence[int] | None = None) -> Array:
    """The optical transfer function of a point spread function.

    The PSF is padded with zeros at its end to `outsize`, turned circularly
    until its centre, element floor(size/2) counted from zero, is the first
    element, and transformed.

    Parameters
    ----------
    psf : array, N-D, real or complex
    outsize : sequence of int, optional
        Shape of the result, at least that of the PSF in every dimension; by default that of the PSF.

    Returns
    -------
    otf : array of shape `outsize`, complex128
        float64 if the imaginary part is nothing but rounding, as for a
        point-symmetric PSF.

    Raises
    ------
    ValueError
        If the PSF is larger than `outsize`, or holds NaN or infinity.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``psf2otf``.
    """
    psf, xp = _array(psf, "psf")
    check_finite(psf, "psf")
    psf = psf.astype(np.complex128 if psf.dtype.kind == "c" else np.float64)
    psf, size = _sizes(psf, outsize)
    if any(m > n for m, n in zip(psf.shape, size, strict=True)):
        raise ValueError(
            f"outsize {size} is smaller than the PSF {psf.shape}; crop the PSF or enlarge outsize"
        )
    padded = xp.pad(psf, [(0, n - m) for m, n in zip(psf.shape, size, strict=True)])
    axes = tuple(range(padded.ndim))
    centred = xp.roll(padded, tuple(-(m // 2) for m in psf.shape), axes)
    return _real_if_rounding(get_fft(xp).fftn(centred), psf)


def otf2psf(otf: Array, outsize: Sequence[int] | None = None) -> Array:
    """The point spread function of an optical transfer function: the way back from `psf2otf`.

    Parameters
    ----------
    otf : array, N-D, real or complex
    outsize : sequence of int, optional
        Shape of the PSF, at most that of the OTF in every dimension; by default that of the OTF.

    Returns
    -------
    psf : array of shape `outsize`, float64
        complex128 if the imaginary part is more than rounding.

    Raises
    ------
    ValueError
        If `outsize` is larger than the OTF or not positive, or the OTF holds NaN or infinity.

    Notes
    -----
    The origin is moved to the centre first and the PSF cut out then, as
    documented; Octave's package does it the other way round.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``otf2psf``.
    """
    otf, xp = _array(otf, "otf")
    check_finite(otf, "otf")
    otf = otf.astype(np.complex128)
    otf, size = _sizes(otf, outsize)
    if not all(1 <= m <= n for m, n in zip(size, otf.shape, strict=True)):
        raise ValueError(f"outsize {size} must be positive and not larger than the OTF {otf.shape}")
    psf = _real_if_rounding(get_fft(xp).ifftn(otf), otf)
    psf = xp.roll(psf, tuple(m // 2 for m in size), tuple(range(otf.ndim)))
    return psf[tuple(slice(m) for m in size)]


def edgetaper(img: Array, psf: Array) -> Array:
    """Blur an image towards its edges, so that its periodic continuation has no steps.

    The result is w img + (1 - w) b, with b the image blurred circularly by the
    PSF. The weight w is 0 on the edges and 1 further inside than the PSF's
    size: the product over the dimensions of 1 less the normalised
    autocorrelation of the PSF's projection onto that dimension. The result
    keeps within the image's own smallest and largest value.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64
        N-D.
    psf : array
        Smaller than half the image in every dimension in which it has more
        than one element. Divided by its sum unless it has negative elements.

    Returns
    -------
    tapered : array of img's class and shape

    Raises
    ------
    TypeError
        For another class of image.
    ValueError
        If the PSF is too large, zero everywhere or a single element, or if either holds NaN or infinity.

    Notes
    -----
    Octave's package says of its own function that it is not MATLAB's, and its
    values are others.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``edgetaper``; the weight
    as in U. Schmidt, S. Roth, "Shrinkage Fields for Effective Image
    Restoration", CVPR 2014, supplement.
    """
    img, xp = _array(img, "img")
    _check_class(img, "img", _IMAGE_CLASSES)
    check_finite(img, "img")
    x = _im2double(img)
    kernel, _ = _real(psf, "psf")
    kernel, shape = _sizes(xp.asarray(asnumpy(kernel)), img.shape)
    if not bool(kernel.any()):
        raise ValueError("psf is zero everywhere")
    axes = [axis for axis, m in enumerate(kernel.shape) if m > 1]
    if not axes or any(shape[axis] <= 2 * kernel.shape[axis] for axis in axes):
        raise ValueError(
            f"psf {kernel.shape} must have more than one element and be smaller than half the image {shape}"
        )
    if bool((kernel >= 0).all()):
        kernel = kernel / kernel.sum()
    fft = get_fft(xp)
    x = x.reshape(shape)
    weight = xp.ones((1,) * x.ndim)
    for axis in axes:
        n = shape[axis]
        projection = kernel.sum(axis=tuple(d for d in range(kernel.ndim) if d != axis))
        # A period of n - 1, closed by its own first element, is symmetric about the image's middle.
        correlation = fft.ifft(xp.abs(fft.fft(projection, n - 1)) ** 2).real
        correlation = xp.concatenate([correlation, correlation[:1]]) / correlation.max()
        weight = weight * (1 - correlation).reshape([n if d == axis else 1 for d in range(x.ndim)])
    blurred = fft.ifftn(fft.fftn(x) * psf2otf(kernel, shape)).real
    tapered = (weight * x + (1 - weight) * blurred).clip(x.min(), x.max())
    return _from_double(tapered.reshape(img.shape), img.dtype)


# ---------------------------------------------------------------------------------------------
# Measures
# ---------------------------------------------------------------------------------------------


def _pair(x: Any, y: Any, names: tuple[str, str]) -> tuple[Array, Array]:
    a, _ = _array(x, names[0])
    b, _ = _array(y, names[1])
    get_xp(a, b)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(
            f"{names[0]} ({a.dtype}, {a.shape}) and {names[1]} ({b.dtype}, {b.shape}) "
            "must have the same class and shape"
        )
    if a.dtype.kind == "c":
        raise TypeError(f"{names[0]} must hold real numbers, not dtype {a.dtype}")
    return a, b


def immse(x: Array, y: Array) -> float:
    """The mean squared error of two arrays of the same class and shape.

    Integers are not scaled: the error is in squared grey levels. Computed in
    float64 for every class.

    Raises
    ------
    ValueError
        If class or shape differ.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``immse``.
    """
    a, b = _pair(x, y, ("x", "y"))
    return float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).mean())


def psnr(a: Array, ref: Array, peakval: float | None = None) -> float:
    """Peak signal-to-noise ratio of an image against a reference, in decibels.

    10 log10(peakval² / immse(a, ref)); infinite for equal images. (MATLAB's
    second output, ``snr``, is ``10*log10(mean(ref**2) / immse(a, ref))``.)

    Parameters
    ----------
    a, ref : arrays of the same class and shape
        uint8, uint16, int16, float32 or float64.
    peakval : float, optional
        The signal's peak. By default 1 for floating-point images and the span
        of the class for integers: 255 for uint8, 65535 for uint16 and for int16.

    Raises
    ------
    TypeError
        For another class.
    ValueError
        If class or shape differ, or `peakval` is not a positive number.

    Notes
    -----
    Octave's package takes another peak for int16.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``psnr``.
    """
    a, ref = _pair(a, ref, ("a", "ref"))
    _check_class(a, "a", _IMAGE_CLASSES)
    if peakval is not None:
        peak = _scalar(peakval, "peakval", 0, above=True)
    elif a.dtype.kind == "f":
        peak = 1.0
    else:
        peak = float(np.iinfo(a.dtype).max) - np.iinfo(a.dtype).min
    error = immse(a, ref)
    return 10 * math.log10(peak**2 / error) if error else math.inf


# Deconvolution lives in a file of its own, which builds on the functions above: hence down here.
from ._matlab_deconv import deconvlucy, deconvreg, deconvwnr  # noqa: E402

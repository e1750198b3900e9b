"""The system matrix of a blur: `filter2matrix` and its parts.

The model is g = H f + n, for lines, images and volumes alike. A pixel of the blurred image g is

    g[i] = sum_k  h[k] f~[i + origin - k]

where h is the PSF, `origin` the index of its centre, and f~ the scene f
continued beyond its frame by the boundary condition:

============= =================================================================
``zero``      the scene is zero outside
``periodic``  the scene repeats
``reflect``   half-sample symmetric: ... f1 f0 | f0 f1 ... (edge pixel repeated)
``antireflect`` point reflection about the edge pixel: f~[-i] = 2 f[0] - f[i],
              applied along one axis after the other (Serra-Capizzano 2003)
``unknown``   nothing is assumed: the scene is larger than the image by the
              PSF's support, every pixel of it is an unknown, and H is wide
============= =================================================================

H is square for every boundary except ``unknown``. For ``zero`` with the default
origin, g is ``scipy.signal.convolve2d(f, h, "same")``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import scipy
from numpy.typing import DTypeLike

from ..device import Array, as_real, asnumpy, check_finite, require_memory, unwrapped
from ..errors import as_number, check_count, check_dtype, check_flags, shown
from .boundary import Boundary, get_boundary

DENSE_INSTEAD = (
    "use the sparse matrix (sparse=True or Blur.to_sparse), Blur itself, which is never assembled, "
    'or a method that needs no matrix (method="auto" chooses one)'
)


#: Numbers of axes that a PSF may have: for lines, images and volumes.
SPACES = (1, 2, 3)


def check_psf(psf: Array, name: str = "psf", axes: Sequence[int] = (2,)) -> Array:
    """Return `psf` as a finite, non-empty, real float64 array with a number of axes in `axes`, or raise ValueError."""
    a = unwrapped(psf, name)
    if a.ndim not in axes or a.size == 0:
        kinds = " or ".join(f"{n}-D" for n in axes)
        raise ValueError(f"{name} must be a non-empty {kinds} array, not shape {a.shape}")
    a = as_real(a, name, np.float64)
    check_finite(a, name, "set them to 0, or measure the PSF anew")
    if not bool(a.any()):
        raise ValueError(f"{name} is zero everywhere, so the blurred image would contain nothing of the scene")
    return a


def check_origin(origin: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return `origin` as an index into a PSF of that shape, or raise ValueError."""
    o = tuple(origin) if np.iterable(origin) else (origin,)
    if len(o) != len(shape) or not all(as_number(x).is_integer() and 0 <= x < m for x, m in zip(o, shape, strict=True)):
        words = f"an index into the {by(shape)} PSF, a whole number for each axis"
        raise ValueError(f"origin must be {words}, not {shown(origin)}")
    return tuple(map(int, o))


def by(shape: Sequence[int]) -> str:
    """Return a shape in words, such as "5 x 3"."""
    return " x ".join(map(str, shape))


def check_geometry(
    psf: Array, shape: Sequence[int], origin: Sequence[int] | None, longer: bool = False
) -> tuple[np.ndarray, tuple[int, ...], tuple[int, ...]]:
    """Return the checked PSF (read-only, NumPy), image shape and origin of a blur, or raise ValueError.

    `longer` allows a volume with fewer slices than the PSF, as stacks of few slices have.
    """
    h = asnumpy(check_psf(psf, axes=SPACES))
    h.flags.writeable = False
    sides = tuple(shape) if np.iterable(shape) else (shape,)
    if len(sides) != h.ndim:
        names = "(length,) of the line", "(rows, columns) of the image", "(slices, rows, columns) of the volume"
        raise ValueError(
            f"shape must be {names[h.ndim - 1]}, for a {h.ndim}-D PSF ({by(h.shape)}), not {shown(shape)}; a 1-D PSF "
            "blurs lines, a 2-D one images, a 3-D one volumes"
        )
    image = tuple(check_count(n, f"shape[{axis}]") for axis, n in enumerate(sides))
    if max(image) > 2**60:
        raise ValueError(f"an image of {by(image)} pixels does not fit any memory, even in tiles; use a smaller one")
    within = slice(longer and h.ndim == 3, None)
    if any(m > n for m, n in zip(h.shape[within], image[within], strict=True)):
        raise ValueError(
            f"the PSF ({by(h.shape)}) is larger than the image ({by(image)}); crop the PSF to where it is not "
            "negligible or use a larger image" + "; only slices may be fewer than those of the PSF" * within.start
        )
    return h, image, tuple((m - 1) // 2 for m in h.shape) if origin is None else check_origin(origin, h.shape)


def convolution_matrix(
    h: np.ndarray, scene: tuple[int, ...], image: tuple[int, ...], origin: tuple[int, ...], boundary: Boundary
) -> scipy.sparse.csr_array:
    """Return H = T E, where E continues the scene and T convolves ('valid'); neither takes a loop over pixels."""
    entries = np.nonzero(h)  # zeros of the PSF are no entries of H
    wide = [n + m - 1 for n, m in zip(image, h.shape, strict=True)]  # the continued scene
    count, pixels = len(entries[0]), math.prod(image)
    index = np.int32 if max(pixels * count, math.prod(wide)) < 2**31 else np.int64
    # Along each axis, pixel i of g reads pixel i + m - 1 - k of the continued scene for each PSF entry k. Taken from
    # the last entry to the first, the columns are in order.
    last = [m - 1 - k for k, m in zip(entries, h.shape, strict=True)]
    shift = np.ravel_multi_index(last, wide)[::-1].astype(index)
    base = np.arange(math.prod(wide)).reshape(wide)[tuple(slice(n) for n in image)].astype(index)
    indices = (base.reshape(-1, 1) + shift).reshape(-1)
    data = np.tile(h[entries][::-1], pixels)
    indptr = np.arange(0, len(indices) + 1, count, dtype=index)
    t = scipy.sparse.csr_array((data, indices, indptr), shape=(pixels, math.prod(wide)))
    first = [o - (m - 1) for o, m in zip(origin, h.shape, strict=True)]
    e = [boundary.matrix(p, a, a + size + m - 1) for p, a, size, m in zip(scene, first, image, h.shape, strict=True)]
    out = scipy.sparse.csr_array(t @ reduce(partial(scipy.sparse.kron, format="csr"), e))
    out.sort_indices()
    return out


def filter2matrix(
    h: Array,
    rowsf: int | Sequence[int],
    colsf: int | Sequence[int] | None = None,
    rowsg: int | None = None,
    colsg: int | None = None,
    *,
    boundary: str = "zero",
    origin: Sequence[int] | None = None,
    sparse: bool = False,
    dtype: DTypeLike = np.float64,
) -> np.ndarray | scipy.sparse.csr_array:
    """Return the system matrix H of a blur: ``H @ im2vector(f)`` is ``im2vector(h * f)``.

    Pixels are numbered row by row. H is the matrix of the *convolution* g = h * f.
    (The published MATLAB listing of this name builds a correlation; see
    `deblur.matlab.filter2matrix`.)

    Parameters
    ----------
    h : (m, n) array
        The PSF, odd or even, square or not. A PSF with one axis blurs lines, with three volumes.
    rowsf, colsf : int
        Size of the scene f in pixels. `rowsf` may be its shape, (rows, columns), or the length of a line; for volumes
        it must be the shape.
    rowsg, colsg : int, optional
        Size of the image g in pixels; by default that of f. If g is larger by
        the PSF's size less one, this is the 'full' convolution; if g is smaller
        by as much, the 'valid' one. If `rowsf` is a shape, `colsf` may be the shape of g.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How f continues outside its frame (see `deblur.operators.matrix`). For ``"unknown"``,
        f is the larger scene: rowsg and colsg are then by default the
        'valid' size.
    origin : tuple of int, optional
        The index k of h[k] that multiplies f[i] in g[i]. By default g is centred in
        the full convolution, as for SciPy's 'same' and 'valid'; for g of
        f's size that is ``((m - 1) // 2, (n - 1) // 2)``.
    sparse : bool
        True for a ``scipy.sparse.csr_array``, False for a dense array.
    dtype : dtype
        float64 (default) or float32.

    Returns
    -------
    H : (pixels of g, pixels of f) ndarray or csr_array

    Raises
    ------
    ValueError
        If the PSF is empty, not finite, zero everywhere or has more than three axes, a size
        is not positive, the boundary is unknown, or the origin is outside the PSF.
    InsufficientMemoryError
        If the dense matrix would not fit into memory; nothing is allocated then.

    See Also
    --------
    Blur : the same map without a matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from deblur import filter2matrix
    >>> filter2matrix([[1, 2, 3]], 1, 4).astype(int)
    array([[2, 1, 0, 0],
           [3, 2, 1, 0],
           [0, 3, 2, 1],
           [0, 0, 3, 2]])
    """
    check_flags(sparse=sparse)
    h = asnumpy(check_psf(h, "h", SPACES))
    edge = get_boundary(boundary)
    of_f: Any = rowsf if np.iterable(rowsf) else (rowsf,) if colsf is None else (rowsf, colsf)  # or a shape
    of_g: Any = (rowsg, colsg) if colsf is None or not np.iterable(rowsf) else colsf
    if rowsg is colsg is None and of_g is not colsf:
        of_g = (None,) * h.ndim
    if any(map(np.iterable, of_f)) or not all(np.iterable(of) and len(tuple(of)) == h.ndim for of in (of_f, of_g)):
        axes = "(length,)", "(rows, columns)", "(planes, rows, columns)"
        raise ValueError(f"the shapes of f and g must be {axes[h.ndim - 1]}, not {of_f!r} and {of_g!r}")
    names = ("rows", "cols") if h.ndim == 2 else [f"axis {axis} of " for axis in range(h.ndim)]
    scene = tuple(check_count(n, f"{name}f") for n, name in zip(of_f, names, strict=True))
    valid = [p - edge.extra(m) for p, m in zip(scene, h.shape, strict=True)]
    if any(given is None and n < 1 for given, n in zip(of_g, valid, strict=True)):
        raise ValueError(
            f"the PSF ({by(h.shape)}) is larger than the scene ({by(scene)}), of which boundary {boundary!r} leaves "
            "no pixel to g; use a larger scene, or crop the PSF to where it is not negligible"
        )
    sizes = (n if given is None else given for given, n in zip(of_g, valid, strict=True))
    image = tuple(check_count(n, f"{name}g") for n, name in zip(sizes, names, strict=True))
    if origin is None:
        centre = tuple((p + m - 1 - g) // 2 for p, m, g in zip(scene, h.shape, image, strict=True))
    else:
        centre = check_origin(origin, h.shape)
    dtype = check_dtype(dtype) or np.dtype(np.float64)
    rows, cols = math.prod(image), math.prod(scene)
    if not sparse:
        require_memory(rows * cols * dtype.itemsize, np, f"A dense H of {rows} x {cols}", DENSE_INSTEAD)
    matrix = convolution_matrix(h, scene, image, centre, edge).astype(dtype)
    return matrix if sparse else matrix.toarray()

"""The system matrix of a blur: `filter2matrix`, and what it is made of.

The model is g = H f + n. A pixel of the blurred image g is

    g[i] = sum_k  h[k] f~[i + origin - k]

where h is the PSF, `origin` the index of its centre, and f~ the scene f
continued beyond its frame by the boundary condition:

============= =================================================================
``zero``      nothing outside
``periodic``  the scene repeats
``reflect``   half-sample symmetric: ... f1 f0 | f0 f1 ... (edge pixel repeated)
``antireflect`` point reflection about the edge pixel: f~[-i] = 2 f[0] - f[i],
              applied along columns and rows in turn (Serra-Capizzano 2003)
``unknown``   nothing is assumed: the scene is larger than the image by the
              PSF's support, every pixel of it is an unknown, and H is wide
============= =================================================================

Every boundary but ``unknown`` gives a square H. For ``zero`` with the default
origin, g is ``scipy.signal.convolve2d(f, h, "same")``.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike

from ..device import Array, as_real, asnumpy, check_finite, require_memory, unwrapped
from .boundary import Boundary, get_boundary

DENSE_INSTEAD = (
    "use the sparse matrix (sparse=True or Blur.to_sparse), Blur itself, which is never assembled, "
    'or a method that needs no matrix (method="auto" chooses one)'
)


def check_psf(psf: Array, name: str = "psf") -> Array:
    """`psf` as a finite, non-empty, real 2-D float64 array, or an error that says what is wrong."""
    a = unwrapped(psf, name)
    if a.dtype.kind == "U" and a.ndim == 0:
        raise TypeError(
            f"{name} must be an array, not the text {str(a)!r}: deblur.psf.parse makes one of a form such as "
            '"disk:7", deblur.psf.load of a file'
        )
    if a.ndim != 2 or a.size == 0:
        raise ValueError(f"{name} must be a non-empty 2-D array, not shape {a.shape}")
    a = as_real(a, name, np.float64)
    check_finite(a, name, "set them to 0, or measure the PSF anew")
    if not bool(a.any()):
        raise ValueError(f"{name} is zero everywhere, so the blurred image would hold nothing of the scene")
    return a


def check_size(value: Any, name: str) -> int:
    """`value` as a whole number of pixels, at least 1."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (number and value >= 1 and not value % 1):
        raise ValueError(f"{name} must be a positive whole number, not {value!r}")
    return int(value)


def check_origin(origin: Sequence[int], shape: tuple[int, ...]) -> tuple[int, int]:
    """`origin` as an index into a PSF of that shape, or an error."""
    try:
        o = tuple(operator.index(x) for x in origin)
        if any(isinstance(x, bool) for x in origin):
            raise TypeError
    except TypeError:
        raise TypeError(f"origin must be two whole numbers, not {origin!r}") from None
    if len(o) != 2 or not all(0 <= x < m for x, m in zip(o, shape, strict=True)):
        raise ValueError(f"origin must be an index into the {shape[0]} x {shape[1]} PSF, not {origin!r}")
    return o[0], o[1]


def check_geometry(
    psf: Array, shape: Sequence[int], origin: Sequence[int] | None
) -> tuple[np.ndarray, tuple[int, int], tuple[int, int]]:
    """(PSF, image shape, origin) of a blur, checked; the PSF is a read-only NumPy array."""
    if len(tuple(shape)) != 2:
        raise ValueError(f"shape must be (rows, columns) of the image, not {tuple(shape)!r}")
    rows, columns = check_size(shape[0], "shape[0]"), check_size(shape[1], "shape[1]")
    h = asnumpy(check_psf(psf))
    h.flags.writeable = False
    m, n = h.shape
    if m > rows or n > columns:
        raise ValueError(
            f"the PSF ({m} x {n}) is larger than the image ({rows} x {columns}); crop the PSF to where it is not "
            "negligible or use a larger image"
        )
    centre = ((m - 1) // 2, (n - 1) // 2) if origin is None else check_origin(origin, (m, n))
    return h, (rows, columns), centre


def convolution_matrix(
    h: np.ndarray, scene: tuple[int, int], image: tuple[int, int], origin: tuple[int, int], boundary: Boundary
) -> scipy.sparse.csr_array:
    """H = T E: T convolves ('valid'), E continues the scene. Both are written down whole, no loop over pixels."""
    rows, cols = np.nonzero(h)  # zeros of the PSF are no entries of H
    wide = image[1] + h.shape[1] - 1  # width of the continued scene
    high = image[0] + h.shape[0] - 1
    index = np.int32 if max(image[0] * image[1] * len(rows), high * wide) < 2**31 else np.int64
    # Pixel (i, j) of g reads pixel (i + m - 1 - k, j + n - 1 - l) of the continued scene for each
    # PSF entry (k, l); taken from the last entry to the first, the columns come out in order.
    shift = ((h.shape[0] - 1 - rows) * wide + (h.shape[1] - 1 - cols))[::-1].astype(index)
    base = (np.arange(image[0])[:, None] * wide + np.arange(image[1])).astype(index)
    indices = (base.reshape(-1, 1) + shift).reshape(-1)
    data = np.tile(h[rows, cols][::-1], image[0] * image[1])
    indptr = np.arange(0, len(indices) + 1, len(rows), dtype=index)
    t = scipy.sparse.csr_array((data, indices, indptr), shape=(image[0] * image[1], high * wide))
    first = [o - (m - 1) for o, m in zip(origin, h.shape, strict=True)]
    e = [
        boundary.matrix(p, a, a + size + m - 1)
        for p, a, size, m in zip(scene, first, image, h.shape, strict=True)
    ]
    out = scipy.sparse.csr_array(t @ scipy.sparse.kron(e[0], e[1], format="csr"))
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
    origin: tuple[int, int] | None = None,
    sparse: bool = False,
    dtype: DTypeLike = np.float64,
) -> Any:
    """The system matrix H of a blur: ``H @ im2vector(f)`` is ``im2vector(h * f)``.

    Pixels are taken row by row. H is the matrix of the *convolution* g = h * f
    (the published MATLAB listing of this name builds a correlation; that one
    is `deblur.matlab.filter2matrix`).

    Parameters
    ----------
    h : (m, n) array
        The PSF. Odd or even, square or not.
    rowsf, colsf : int
        Size of the scene f in pixels. Its shape, (rows, columns), may stand for both.
    rowsg, colsg : int, optional
        Size of the image g in pixels; by default that of f. With g larger by
        the PSF's size less one this is the 'full' convolution, with g smaller
        by as much the 'valid' one. After the shape of f that of g may follow.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How f goes on outside its frame (see `deblur.operators.matrix`). ``"unknown"``
        reads f as the larger scene: rowsg and colsg then default to the
        'valid' size.
    origin : (int, int), optional
        The index k of h that g[i] takes f[i] by. By default g is centred in
        the full convolution as SciPy's 'same' and 'valid' have it; for g of
        f's size that is ``((m - 1) // 2, (n - 1) // 2)``.
    sparse : bool
        True for a ``scipy.sparse.csr_array``, False for a dense array.
    dtype : dtype
        float64 (default) or float32.

    Returns
    -------
    H : (rowsg * colsg, rowsf * colsf) ndarray or csr_array

    Raises
    ------
    ValueError
        For a PSF that is empty, not 2-D, not finite or zero everywhere, sizes
        that are not positive, an unknown boundary, an origin outside the PSF.
    InsufficientMemoryError
        If the dense matrix would not fit, before it is allocated.

    See Also
    --------
    Blur : the same map without the matrix.

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
    h = asnumpy(check_psf(h, "h"))
    edge = get_boundary(boundary)
    if not isinstance(rowsf, int | np.integer):  # a shape
        shapes: list[Any] = [rowsf, (rowsg, colsg) if colsf is None else colsf]
        if not all(np.shape(shape) == (2,) for shape in shapes):
            raise ValueError(
                f"the shapes of f and g must be (rows, columns), not {shapes[0]!r} and {shapes[1]!r}"
            )
        (rowsf, colsf), (rowsg, colsg) = shapes
    scene = (check_size(rowsf, "rowsf"), check_size(colsf, "colsf"))
    smaller = [edge.extra(m) for m in h.shape]
    image = (
        check_size(scene[0] - smaller[0] if rowsg is None else rowsg, "rowsg"),
        check_size(scene[1] - smaller[1] if colsg is None else colsg, "colsg"),
    )
    if origin is None:
        centred = [(p + m - 1 - g) // 2 for p, m, g in zip(scene, h.shape, image, strict=True)]
        origin = (centred[0], centred[1])
    else:
        origin = check_origin(origin, h.shape)
    dtype = np.dtype(dtype)
    rows, cols = image[0] * image[1], scene[0] * scene[1]
    if not sparse:
        require_memory(rows * cols * dtype.itemsize, np, f"A dense H of {rows} x {cols}", DENSE_INSTEAD)
    matrix = convolution_matrix(h, scene, image, origin, edge).astype(dtype)
    return matrix if sparse else matrix.toarray()

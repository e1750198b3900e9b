"""The blur as a linear map: the matrix `filter2matrix`, and `Blur`, the same map never assembled.

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

from types import ModuleType
from typing import Any

import numpy as np
import scipy.fft
import scipy.sparse

from .backend import Array, asnumpy, check_finite, get_fft, get_xp, require_memory

BOUNDARIES = ("zero", "periodic", "reflect", "antireflect", "unknown")

_DENSE_INSTEAD = (
    "use the sparse matrix (sparse=True or Blur.to_sparse), Blur itself, which is never assembled, "
    'or a method that needs no matrix (method="auto" chooses one)'
)


def check_psf(psf: Array, name: str = "psf") -> Array:
    """`psf` as a finite, non-empty, real 2-D float64 array, or an error that says what is wrong."""
    xp = get_xp(psf)
    a = xp.asarray(psf)
    if a.ndim != 2 or a.size == 0:
        raise ValueError(f"{name} must be a non-empty 2-D array, not shape {a.shape}")
    if a.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, not dtype {a.dtype}")
    a = a.astype(np.float64)
    check_finite(a, name)
    if not bool(xp.any(a)):
        raise ValueError(f"{name} is zero everywhere, so the blurred image would hold nothing of the scene")
    return a


def check_boundary(boundary: str) -> str:
    """`boundary` itself, or ValueError listing the ones known."""
    if boundary not in BOUNDARIES:
        raise ValueError(f"unknown boundary {boundary!r}; choose one of {', '.join(BOUNDARIES)}")
    return boundary


def _check_size(value: Any, name: str) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} must be a positive whole number, not {value!r}")
    return int(value)


# ---------------------------------------------------------------------------------------------
# One axis: how a line of the scene is continued, and the transpose of that
# ---------------------------------------------------------------------------------------------


def _extension_matrix(n: int, first: int, last: int, boundary: str) -> scipy.sparse.csr_array:
    """The matrix that takes f[0..n-1] to f~[first..last-1]: shape (last - first, n), 0, 1 or 2 entries a row."""
    i = np.arange(first, last)
    row = np.arange(last - first)
    if boundary in ("zero", "unknown"):
        keep = (i >= 0) & (i < n)
        rows, cols, data = row[keep], i[keep], np.ones(int(keep.sum()))
    elif boundary == "periodic":
        rows, cols, data = row, i % n, np.ones(len(i))
    elif boundary == "reflect":
        j = i % (2 * n)
        rows, cols, data = row, np.where(j < n, j, 2 * n - 1 - j), np.ones(len(i))
    else:
        if first < -(n - 1) or last > 2 * n - 1:
            raise ValueError(
                f"boundary 'antireflect' can continue {n} pixels by at most {n - 1} on either side; "
                f"{max(-first, last - n)} are needed. Use a smaller PSF or boundary 'reflect'"
            )
        edge = np.where(i < 0, 0, n - 1)
        inside = (i >= 0) & (i < n)
        mirror = np.where(inside, i, 2 * edge - i)
        out = ~inside
        rows = np.concatenate([row, row[out]])
        cols = np.concatenate([mirror, edge[out]])
        data = np.concatenate([np.where(inside, 1.0, -1.0), np.full(int(out.sum()), 2.0)])
    return scipy.sparse.csr_array((data, (rows, cols)), shape=(last - first, n))


def _extend(x: Array, axis: int, before: int, after: int, boundary: str) -> Array:
    """Continue `x` along `axis` by `before` and `after` pixels (reflect or antireflect)."""
    xp = get_xp(x)
    x = xp.moveaxis(x, axis, -1)
    n = x.shape[-1]
    if boundary == "reflect":
        left, right = x[..., :before][..., ::-1], x[..., n - after :][..., ::-1]
    else:
        left = 2 * x[..., :1] - x[..., 1 : before + 1][..., ::-1]
        right = 2 * x[..., -1:] - x[..., n - 1 - after : n - 1][..., ::-1]
    return xp.moveaxis(xp.concatenate([left, x, right], axis=-1), -1, axis)


def _fold(x: Array, axis: int, before: int, after: int, boundary: str) -> Array:
    """The exact transpose of `_extend`: what was continued from a pixel is added back to it."""
    xp = get_xp(x)
    x = xp.moveaxis(x, axis, -1)
    n = x.shape[-1] - before - after
    left, body, right = x[..., :before], x[..., before : before + n].copy(), x[..., before + n :]
    if boundary == "reflect":
        body[..., :before] += left[..., ::-1]
        body[..., n - after :] += right[..., ::-1]
    else:
        body[..., 0] += 2 * left.sum(axis=-1)
        body[..., 1 : before + 1] -= left[..., ::-1]
        body[..., -1] += 2 * right.sum(axis=-1)
        body[..., n - 1 - after : n - 1] -= right[..., ::-1]
    return xp.moveaxis(body, -1, axis)


# ---------------------------------------------------------------------------------------------
# The matrix
# ---------------------------------------------------------------------------------------------


def _convolution_matrix(
    h: np.ndarray,
    scene: tuple[int, int],
    image: tuple[int, int],
    origin: tuple[int, int],
    boundary: str,
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
        _extension_matrix(p, a, a + size + m - 1, boundary)
        for p, a, size, m in zip(scene, first, image, h.shape, strict=True)
    ]
    out = scipy.sparse.csr_array(t @ scipy.sparse.kron(e[0], e[1], format="csr"))
    out.sort_indices()
    return out


def filter2matrix(
    h: Array,
    rowsf: int,
    colsf: int,
    rowsg: int | None = None,
    colsg: int | None = None,
    *,
    boundary: str = "zero",
    origin: tuple[int, int] | None = None,
    sparse: bool = False,
    dtype: Any = np.float64,
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
        Size of the scene f in pixels.
    rowsg, colsg : int, optional
        Size of the image g in pixels; by default that of f. With g larger by
        the PSF's size less one this is the 'full' convolution, with g smaller
        by as much the 'valid' one.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How f goes on outside its frame (see `deblur.blur`). ``"unknown"``
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
        that are not positive, an unknown boundary.
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
    check_boundary(boundary)
    scene = (_check_size(rowsf, "rowsf"), _check_size(colsf, "colsf"))
    smaller = [h.shape[0] - 1, h.shape[1] - 1] if boundary == "unknown" else [0, 0]
    image = (
        _check_size(scene[0] - smaller[0] if rowsg is None else rowsg, "rowsg"),
        _check_size(scene[1] - smaller[1] if colsg is None else colsg, "colsg"),
    )
    if origin is None:
        centred = [(p + m - 1 - g) // 2 for p, m, g in zip(scene, h.shape, image, strict=True)]
        origin = (centred[0], centred[1])
    dtype = np.dtype(dtype)
    rows, cols = image[0] * image[1], scene[0] * scene[1]
    if not sparse:
        require_memory(rows * cols * dtype.itemsize, np, f"A dense H of {rows} x {cols}", _DENSE_INSTEAD)
    matrix = _convolution_matrix(h, scene, image, origin, boundary).astype(dtype)
    return matrix if sparse else matrix.toarray()


# ---------------------------------------------------------------------------------------------
# The map
# ---------------------------------------------------------------------------------------------


class Blur:
    """The blur of images of one size by one PSF, as a linear map that is never assembled.

    Each product costs two FFTs and is exact to rounding. The object works as
    an operator wherever SciPy takes one (``scipy.sparse.linalg.lsqr(blur, g)``,
    ``aslinearoperator(blur)``, ``blur @ f``).

    Parameters
    ----------
    psf : (m, n) array
        The point spread function. It is used as it is; a PSF that keeps the
        image's brightness sums to one.
    shape : (int, int)
        Size (M, N) of the blurred image in pixels.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene goes on beyond the image (see `deblur.blur`).
    origin : (int, int), optional
        Index of the PSF's centre, by default ``((m - 1) // 2, (n - 1) // 2)``.

    Attributes
    ----------
    image_shape : (int, int)
        Size of the blurred image, (M, N).
    scene_shape : (int, int)
        Size of the scene: (M, N), or (M + m - 1, N + n - 1) for ``"unknown"``.
    shape : (int, int)
        Size of the matrix H: (pixels of the image, pixels of the scene).
    psf : (m, n) ndarray
        The PSF as float64, on the host.
    factors : (column, row) or None
        Vectors whose outer product is the PSF, if it is separable to rounding.
    point_symmetric : bool
        Whether the PSF equals itself turned by 180 degrees about its origin.

    Raises
    ------
    ValueError
        For a bad PSF, shape, origin or boundary, or a PSF larger than the image.
    """

    dtype = np.dtype(np.float64)

    def __init__(
        self,
        psf: Array,
        shape: tuple[int, int],
        boundary: str = "zero",
        *,
        origin: tuple[int, int] | None = None,
    ) -> None:
        self.psf = asnumpy(check_psf(psf))
        self.boundary = check_boundary(boundary)
        if len(tuple(shape)) != 2:
            raise ValueError(f"shape must be (rows, columns) of the image, not {tuple(shape)!r}")
        self.image_shape = (_check_size(shape[0], "shape[0]"), _check_size(shape[1], "shape[1]"))
        m, n = self.psf.shape
        if m > self.image_shape[0] or n > self.image_shape[1]:
            raise ValueError(
                f"the PSF ({m} x {n}) is larger than the image ({self.image_shape[0]} x "
                f"{self.image_shape[1]}); crop the PSF to where it is not negligible or use a larger image"
            )
        if origin is None:
            origin = ((m - 1) // 2, (n - 1) // 2)
        if len(tuple(origin)) != 2 or not (0 <= origin[0] < m and 0 <= origin[1] < n):
            raise ValueError(f"origin must be an index into the {m} x {n} PSF, not {origin!r}")
        self.origin = (int(origin[0]), int(origin[1]))
        extra = (m - 1, n - 1) if boundary == "unknown" else (0, 0)
        self.scene_shape = (self.image_shape[0] + extra[0], self.image_shape[1] + extra[1])
        if boundary == "antireflect":
            for axis in (0, 1):  # raises where the continuation would need a second reflection
                self._extension(axis)
        self.shape = (
            self.image_shape[0] * self.image_shape[1],
            self.scene_shape[0] * self.scene_shape[1],
        )
        self.factors = _rank_one_factors(self.psf)
        self.point_symmetric = _is_point_symmetric(self.psf, self.origin)
        self._transfer_cache: dict[tuple[str, str], Array] = {}
        self._sparse: scipy.sparse.csr_array | None = None

    def __repr__(self) -> str:
        m, n = self.psf.shape
        return f"Blur({m}x{n} PSF, image {self.image_shape}, boundary={self.boundary!r})"

    # -- the parts of H ----------------------------------------------------------------------

    @property
    def crop(self) -> tuple[slice, slice]:
        """Where the image lies in the scene: ``scene[..., *blur.crop]`` has the image's size."""
        if self.boundary != "unknown":
            return slice(0, self.image_shape[0]), slice(0, self.image_shape[1])
        at = [m - 1 - o for m, o in zip(self.psf.shape, self.origin, strict=True)]
        return slice(at[0], at[0] + self.image_shape[0]), slice(at[1], at[1] + self.image_shape[1])

    def _extension(self, axis: int) -> scipy.sparse.csr_array:
        m, o = self.psf.shape[axis], self._matrix_origin[axis]
        first = o - (m - 1)
        last = first + self.image_shape[axis] + m - 1
        return _extension_matrix(self.scene_shape[axis], first, last, self.boundary)

    @property
    def _matrix_origin(self) -> tuple[int, int]:
        # With an unknown boundary the scene's first pixel is the first that the PSF can reach.
        if self.boundary == "unknown":
            return self.psf.shape[0] - 1, self.psf.shape[1] - 1
        return self.origin

    def axis_matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """The small dense matrices C, R of a separable blur: H = kron(C, R).

        Returns
        -------
        C : (M, P) ndarray
            What the blur does to each column.
        R : (N, Q) ndarray
            What the blur does to each row.

        Raises
        ------
        ValueError
            If the PSF is not separable.
        """
        if self.factors is None:
            raise ValueError("the PSF is not separable (rank one), so H is no Kronecker product")
        out = []
        for axis, f in enumerate(self.factors):
            h = f.reshape(-1, 1) if axis == 0 else f.reshape(1, -1)
            scene = (self.scene_shape[0], 1) if axis == 0 else (1, self.scene_shape[1])
            image = (self.image_shape[0], 1) if axis == 0 else (1, self.image_shape[1])
            o = (self._matrix_origin[0], 0) if axis == 0 else (0, self._matrix_origin[1])
            # The other axis has one pixel and a 1-wide PSF: any boundary leaves it alone.
            edge = "zero" if self.boundary == "unknown" else self.boundary
            out.append(_convolution_matrix(h, scene, image, o, edge).toarray())
        return out[0], out[1]

    @property
    def gain(self) -> float:
        """The PSF's absolute sum: what ‖H‖ is at most, but for antireflect edges. One for a usual PSF."""
        return float(np.abs(self.psf).sum())

    @property
    def normal(self) -> bool:
        """Whether HHᵀ = HᵀH is known from the structure: the two formulas then give the same image."""
        if self.boundary == "periodic":
            return True
        return self.boundary == "zero" and self.point_symmetric

    # -- products ----------------------------------------------------------------------------

    @property
    def _wraps(self) -> bool:
        return self.boundary == "periodic"

    @property
    def _continued(self) -> bool:
        return self.boundary in ("reflect", "antireflect")

    def _pads(self, axis: int) -> tuple[int, int]:
        o = self.origin[axis]
        return self.psf.shape[axis] - 1 - o, o

    def _fft_geometry(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(FFT lengths, position of the PSF's origin): a circular convolution that is exact on the image."""
        lengths, origins = [], []
        for m, n, o in zip(self.psf.shape, self.image_shape, self.origin, strict=True):
            if self._wraps:
                lengths.append(n)
                origins.append(o)
            elif self.boundary == "zero":
                # What wraps round must only ever meet zeros on one side and discarded pixels on the other.
                lengths.append(scipy.fft.next_fast_len(n + max(o, m - 1 - o), real=True))
                origins.append(o)
            else:
                lengths.append(scipy.fft.next_fast_len(n + m - 1, real=True))
                origins.append(m - 1)
        return (lengths[0], lengths[1]), (origins[0], origins[1])

    def transfer(self, dtype: Any = np.float64, xp: ModuleType = np) -> Array:
        """The PSF's half spectrum at the FFT lengths that `forward` uses, cached for dtype and array module.

        For a periodic boundary these are the eigenvalues of H (half of them;
        the rest are their conjugates).

        Returns
        -------
        (L1, L2 // 2 + 1) complex array
        """
        dtype = np.dtype(dtype)
        key = (xp.__name__, dtype.name)
        if key not in self._transfer_cache:
            (l1, l2), (o1, o2) = self._fft_geometry()
            padded = np.zeros((l1, l2))
            padded[: self.psf.shape[0], : self.psf.shape[1]] = self.psf
            spectrum = scipy.fft.rfft2(np.roll(padded, (-o1, -o2), (0, 1)))
            complex_dtype = np.result_type(dtype, np.complex64)
            self._transfer_cache[key] = xp.asarray(spectrum.astype(complex_dtype))
        return self._transfer_cache[key]

    def _checked(self, x: Array, shape: tuple[int, int], what: str) -> tuple[Array, ModuleType]:
        xp = get_xp(x)
        x = xp.asarray(x)
        if x.ndim < 2 or x.shape[-2:] != shape:
            raise ValueError(f"{what} must have shape (..., {shape[0]}, {shape[1]}), not {x.shape}")
        if x.dtype not in (np.float32, np.float64):
            x = x.astype(np.float64)
        return x, xp

    def forward(self, f: Array) -> Array:
        """Blur: H f, for one scene or a stack of them.

        Parameters
        ----------
        f : (..., P, Q) array
            Scenes of size `scene_shape`. NumPy or CuPy; float32 is kept, all
            else becomes float64.

        Returns
        -------
        g : (..., M, N) array
        """
        f, xp = self._checked(f, self.scene_shape, "the scene")
        if self._continued:
            for axis in (0, 1):
                f = _extend(f, axis - 2, *self._pads(axis), self.boundary)
        fft = get_fft(xp)
        lengths, _ = self._fft_geometry()
        g = fft.irfft2(fft.rfft2(f, s=lengths) * self.transfer(f.dtype, xp), s=lengths)
        return g[..., : self.image_shape[0], : self.image_shape[1]]

    def adjoint(self, g: Array) -> Array:
        """The exact transpose of `forward`: Hᵀ g, for one image or a stack of them.

        Parameters
        ----------
        g : (..., M, N) array

        Returns
        -------
        f : (..., P, Q) array
        """
        g, xp = self._checked(g, self.image_shape, "the image")
        fft = get_fft(xp)
        lengths, _ = self._fft_geometry()
        f = fft.irfft2(fft.rfft2(g, s=lengths) * self.transfer(g.dtype, xp).conj(), s=lengths)
        if not self._continued:
            return f[..., : self.scene_shape[0], : self.scene_shape[1]]
        pads = [self._pads(axis) for axis in (0, 1)]
        high, wide = (n + sum(p) for n, p in zip(self.image_shape, pads, strict=True))
        f = f[..., :high, :wide]
        for axis in (1, 0):
            f = _fold(f, axis - 2, *pads[axis], self.boundary)
        return f

    def matvec(self, x: Array) -> Array:
        """H x for a scene as a vector, row by row: (P * Q,) or (P * Q, 1) in, the same form out."""
        return self.forward(x.reshape(self.scene_shape)).reshape(-1, *x.shape[1:])

    def rmatvec(self, x: Array) -> Array:
        """Hᵀ x for an image as a vector, row by row: (M * N,) or (M * N, 1) in, the same form out."""
        return self.adjoint(x.reshape(self.image_shape)).reshape(-1, *x.shape[1:])

    def matmat(self, x: Array) -> Array:
        """H X for scenes as the columns of X, (P * Q, k)."""
        return self.forward(x.T.reshape(-1, *self.scene_shape)).reshape(x.shape[1], -1).T

    def rmatmat(self, x: Array) -> Array:
        """Hᵀ X for images as the columns of X, (M * N, k)."""
        return self.adjoint(x.T.reshape(-1, *self.image_shape)).reshape(x.shape[1], -1).T

    def __matmul__(self, x: Array) -> Array:
        return self.matvec(x) if x.ndim == 1 else self.matmat(x)

    # -- matrices ----------------------------------------------------------------------------

    def to_sparse(self) -> scipy.sparse.csr_array:
        """H as a float64 ``scipy.sparse.csr_array``; kept, so that asking again costs nothing."""
        if self._sparse is None:
            self._sparse = _convolution_matrix(
                self.psf, self.scene_shape, self.image_shape, self._matrix_origin, self.boundary
            )
        return self._sparse

    def to_dense(self, dtype: Any = np.float64) -> np.ndarray:
        """H as a dense array, refused with the figures if it would not fit memory."""
        dtype = np.dtype(dtype)
        rows, cols = self.shape
        require_memory(rows * cols * dtype.itemsize, np, f"A dense H of {rows} x {cols}", _DENSE_INSTEAD)
        return self.to_sparse().astype(dtype).toarray()


def _rank_one_factors(h: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    u, s, vt = np.linalg.svd(h)
    if len(s) > 1 and s[1] > 4 * max(h.shape) * np.finfo(np.float64).eps * s[0]:
        return None
    # The sign that makes a non-negative PSF's factors non-negative.
    sign = 1.0 if u[:, 0].sum() >= 0 else -1.0
    scale = np.sqrt(s[0])
    return sign * scale * u[:, 0], sign * scale * vt[0]


def _is_point_symmetric(h: np.ndarray, origin: tuple[int, int]) -> bool:
    """Whether h is its own 180 degree rotation about `origin`, to rounding."""
    reach = [max(o, m - 1 - o) for o, m in zip(origin, h.shape, strict=True)]
    centred = np.zeros((2 * reach[0] + 1, 2 * reach[1] + 1))
    top, left = reach[0] - origin[0], reach[1] - origin[1]
    centred[top : top + h.shape[0], left : left + h.shape[1]] = h
    difference = np.abs(centred - centred[::-1, ::-1]).max()
    return bool(difference <= 8 * np.finfo(np.float64).eps * np.abs(h).max())

"""`Blur`: the blur of lines, images or volumes of one size by one PSF, as a linear map without a matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import DTypeLike

from ..device import CPU, Array, Device, is_cupy, require_memory
from . import torus_gpu
from .boundary import get_boundary
from .matrix import DENSE_INSTEAD, check_geometry, convolution_matrix
from .operator import LinearMap
from .torus import Torus, corner, fast_lengths


class Blur(LinearMap):
    """The blur of images of one size by one PSF, as a linear map without a matrix.

    A PSF with one axis blurs lines, with two axes images, with three volumes. Below, (M, N) stands for
    the axes of any of them.

    Each product costs two FFTs and is exact to rounding. SciPy and PyLops take the object as
    a linear operator (``scipy.sparse.linalg.lsqr(blur, g)``,
    ``aslinearoperator(blur)``, ``blur @ f``, ``blur.T @ g``, ``g @ blur``). Blurs compare by value.

    Parameters
    ----------
    psf : (m, n) array
        The point spread function, with one to three axes; it is not normalised. A PSF that keeps the
        image's brightness has the sum one.
    shape : tuple of int
        Size (M, N) of the blurred image in pixels, with one number for each axis of the PSF.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene continues beyond the image (see `deblur.operators.matrix`).
    origin : tuple of int, optional
        Index of the PSF's centre; by default ``((m - 1) // 2, (n - 1) // 2)``.

    Attributes
    ----------
    image_shape : tuple of int
        Size of the blurred image, (M, N).
    scene_shape : tuple of int
        Size of the scene: (M, N), or (M + m - 1, N + n - 1) for ``"unknown"``.
    shape : (int, int)
        Size of the matrix H: (pixels of the image, pixels of the scene).
    psf : (m, n) ndarray
        The PSF as float64, on the host.
    crop : tuple of slice
        Position of the image in the scene: ``scene[..., *blur.crop]`` has the image's size.
    norm_bound : float
        The PSF's absolute sum: an upper bound of ‖H‖, except for boundaries ``"reflect"`` (√2 times as much for each
        axis) and ``"antireflect"``, which repeat pixels of the scene.
    dc_gain : float
        The PSF's sum: the factor by which H multiplies a constant scene away from the edges.
    nonnegative : bool
        Whether H has no negative entry, from the PSF or the boundary.

    Raises
    ------
    ValueError
        If the PSF, shape, origin or boundary is invalid, or the PSF is larger than the image.
    """

    def __init__(
        self, psf: Array, shape: Sequence[int], boundary: str = "zero", *, origin: Sequence[int] | None = None
    ) -> None:
        self.boundary = edge = get_boundary(boundary)
        self.psf, self.image_shape, self.origin = check_geometry(psf, shape, origin, longer=edge.open)
        self.scene_shape = tuple(n + edge.extra(m) for n, m in zip(self.image_shape, self.psf.shape, strict=True))
        for size, pads in zip(self.image_shape, self._pads, strict=True):
            edge.check(size, *pads)
        least = map(edge.torus, self.image_shape, self.psf.shape, self.origin)
        self._least, self._torus_origin = zip(*least, strict=True)
        # Attributes that solvers require of any operator: see `Operator`.
        first = map(edge.offset, self.psf.shape, self.origin)
        self.crop = tuple(slice(a, a + n) for a, n in zip(first, self.image_shape, strict=True))
        self.norm_bound, self.dc_gain = float(np.abs(self.psf).sum()), float(self.psf.sum())
        self.nonnegative = float(self.psf.min()) >= 0 and edge.weight == 1

    @property
    def elongated(self) -> bool:
        """Whether the decomposition of a long axis takes much longer than all work on a square image would."""
        square = math.prod(self.image_shape) ** (1 / self.psf.ndim)
        return sum(n**3 for n in self.image_shape) > max(1e9, 8 * square ** (self.psf.ndim + 1))

    @cached_property
    def factors(self) -> tuple[np.ndarray, ...] | None:
        """One vector for each axis, with the PSF as their outer product if it is separable to rounding; else None."""
        rest, found = self.psf, []
        while rest.ndim > 1:
            u, s, vt = np.linalg.svd(rest.reshape(len(rest), -1), full_matrices=False)
            if len(s) > 1 and s[1] > 4 * max(self.psf.shape) * np.finfo(np.float64).eps * s[0]:
                return None
            # This sign makes the factors of a nonnegative PSF nonnegative.
            scale = np.sqrt(s[0]) * (1.0 if u[:, 0].sum() >= 0 else -1.0)
            found.append(scale * u[:, 0])
            rest = (scale * vt[0]).reshape(rest.shape[1:])
        return *found, rest

    @cached_property
    def centred(self) -> np.ndarray:
        """The PSF, padded with zeros so that its origin is in the middle."""
        pads = [(max(after - before, 0), max(before - after, 0)) for after, before in self._pads]
        return np.pad(self.psf, pads) if any(map(any, pads)) else self.psf

    @cached_property
    def point_symmetric(self) -> bool:
        """Whether the PSF is symmetric under rotation by 180 degrees about its origin, to rounding."""
        difference = np.abs(self.centred - np.flip(self.centred)).max()
        return bool(difference <= 8 * np.finfo(np.float64).eps * np.abs(self.psf).max())

    def __repr__(self) -> str:
        size = "x".join(map(str, self.psf.shape))
        return f"Blur({size} PSF, image {self.image_shape}, boundary={self.boundary!r})"

    def _identity(self) -> tuple[object, ...]:
        return self.psf.shape, self.psf.tobytes(), self.origin, self.image_shape, self.boundary

    def scaled(self, power: int) -> Blur:
        """Return 2^power H, with the same mantissas as H."""
        return Blur(np.ldexp(self.psf, power), self.image_shape, self.boundary, origin=self.origin)

    @property
    def shift_invariant(self) -> Blur:
        """The operator as a blur by one PSF: the object itself."""
        return self

    mean_blur = shift_invariant

    @property
    def normal(self) -> bool:
        """Whether the structure shows that HHᵀ = HᵀH; then both formulas give the same image."""
        return self.boundary.wraps or (self.boundary.toeplitz and self.point_symmetric)

    def power(self, torus: Torus) -> Array:
        """Return |ĥ|² at the half frequencies of a torus, float64."""
        return torus.power(self.psf)

    # -- the parts of H ----------------------------------------------------------------------

    def extension(self, axis: int) -> scipy.sparse.csr_array:
        """Return the sparse matrix that continues the scene along one axis as far as the PSF reaches."""
        m, o = self.psf.shape[axis], self._matrix_origin[axis]
        first = o - (m - 1)
        return self.boundary.matrix(self.scene_shape[axis], first, first + self.image_shape[axis] + m - 1)

    @property
    def _matrix_origin(self) -> tuple[int, ...]:
        # The first pixel of an open scene is the first one that the PSF can reach.
        return tuple(c.start + o for c, o in zip(self.crop, self.origin, strict=True))

    def axis_matrices(self) -> tuple[np.ndarray, ...]:
        """Return the small dense matrices of a separable blur, one for each axis: H = kron(C, R) for an image.

        Returns
        -------
        C : (M, P) ndarray
            Blur along the first axis, which acts on each column of an image.
        R : (N, Q) ndarray
            Blur along the second axis; and so on.

        Raises
        ------
        ValueError
            If the PSF is not separable.
        """
        if self.factors is None:
            raise ValueError("the PSF is not separable (rank one), so H is not a Kronecker product")
        return tuple(axis_matrix(f, self.extension(axis)) for axis, f in enumerate(self.factors))

    # -- products ----------------------------------------------------------------------------

    @property
    def _pads(self) -> list[tuple[int, int]]:
        """Number of pixels of the PSF after its origin and before it, along each axis."""
        return [(m - 1 - o, o) for m, o in zip(self.psf.shape, self.origin, strict=True)]

    def torus(self, device: Device = CPU) -> Torus:
        """Return the torus on which `forward` computes, cached for each device."""
        least, wraps = self._least, self.boundary.wraps
        return self.cached(("torus", device), lambda: Torus(least if wraps else fast_lengths(least, device), device))

    def transfer(self, dtype: DTypeLike = np.float64, device: Device = CPU) -> Array:
        """Return the PSF's half spectrum on the torus of `forward`, cached for each dtype and device.

        For a periodic boundary these are the eigenvalues of H (half of them;
        the others are their conjugates).

        Returns
        -------
        (L1, ..., LN // 2 + 1) complex array
            For a torus of lengths L1, ..., LN.
        """
        key = "transfer", np.dtype(dtype), device
        return self.cached(key, lambda: self.torus(device).spectrum(self.psf, self._torus_origin, dtype))

    def forward(self, f: Array) -> Array:
        """Return the blurred images H f, for one scene or a stack of them.

        Parameters
        ----------
        f : (..., P, Q) array
            Scenes of size `scene_shape`. NumPy or CuPy; float32 stays float32, all
            else becomes float64.

        Returns
        -------
        g : (..., M, N) array
            In the dtype and array library of f.

        Raises
        ------
        ValueError
            If f does not have the scene's size.
        """
        f, device = self.checked(f, self.scene_shape, "the scene")
        torus, transfer = self.torus(device), self.transfer(f.dtype, device)
        if self._by_kernels(f):
            return self._product_by_kernels(f, torus, transfer, False)
        return torus.product(self.continued(f), transfer, shape=self.image_shape)

    def adjoint(self, g: Array, overwrite: bool = False) -> Array:
        """Return Hᵀ g, with the exact transpose of `forward`, for one image or a stack of them.

        Parameters
        ----------
        g : (..., M, N) array
            Images; see `forward` for dtypes.
        overwrite : bool
            Whether the memory of `g` may be used for the product.

        Returns
        -------
        f : (..., P, Q) array

        Raises
        ------
        ValueError
            If g does not have the image's size.
        """
        g, device = self.checked(g, self.image_shape, "the image")
        torus, transfer = self.torus(device), self.transfer(g.dtype, device)
        if self._by_kernels(g):
            return self._product_by_kernels(g, torus, transfer, True)
        return self.folded(torus.product(g, transfer, True, self._reached, overwrite))

    def _by_kernels(self, x: Array) -> bool:
        """Return whether GPU kernels continue scenes like x on the torus, and fold them back."""
        if not (is_cupy(x) and x.size and self.boundary.mirrors and self.psf.ndim > 1):
            return False
        return self.psf.ndim == 2 or torus_gpu.serves_depth(self.torus(Device.of(x)).lengths[0], x.itemsize)

    def _product_by_kernels(self, x: Array, torus: Torus, transfer: Array, conjugate: bool) -> Array:
        shape = self.image_shape
        return corner(torus_gpu.product(x, torus.lengths, transfer, conjugate, shape, self._pads), shape)

    @property
    def _reached(self) -> list[int]:
        """Shape of a scene, continued as far as the PSF reaches."""
        if not self.boundary.continued:
            return list(self.scene_shape)
        return [n + sum(p) for n, p in zip(self.image_shape, self._pads, strict=True)]

    def continued(self, f: Array) -> Array:
        """Return scenes, continued as far as the PSF reaches; a GPU may lay them into the torus, too."""
        if self.psf.ndim == 2 and self._by_kernels(f):
            return torus_gpu.mirrored(f, self.torus(Device.of(f)).lengths, self._pads)
        if self.boundary.continued:
            for axis, pads in enumerate(self._pads):
                f = self.boundary.extend(f, axis - self.psf.ndim, *pads)
        return f

    def folded(self, f: Array) -> Array:
        """Apply the transpose of `continued` to scenes on the torus."""
        if self.psf.ndim == 2 and self._by_kernels(f):
            return torus_gpu.folded(f, self.image_shape, self._pads)
        f = corner(f, self._reached)
        if not self.boundary.continued:
            return f
        for axis, pads in reversed([*enumerate(self._pads)]):
            f = self.boundary.fold(f, axis - self.psf.ndim, *pads)
        return f

    # -- matrices ----------------------------------------------------------------------------

    def to_sparse(self) -> scipy.sparse.csr_array:
        """Return H as a float64 ``scipy.sparse.csr_array``, cached."""
        shapes = self.scene_shape, self.image_shape
        return self.cached("sparse", lambda: convolution_matrix(self.psf, *shapes, self._matrix_origin, self.boundary))

    def to_dense(self, dtype: DTypeLike = np.float64) -> np.ndarray:
        """Return H as a dense array on the host.

        Raises
        ------
        InsufficientMemoryError
            If it would not fit into memory.
        """
        dtype = np.dtype(dtype)
        rows, cols = self.shape
        require_memory(rows * cols * dtype.itemsize, np, f"A dense H of {rows} x {cols}", DENSE_INSTEAD)
        return self.to_sparse().astype(dtype).toarray()


def axis_matrix(factor: np.ndarray, extension: scipy.sparse.csr_array) -> np.ndarray:
    """Return the dense matrix of the blur of one axis by a factor of the PSF; `extension` continues the axis."""
    m, (high, _) = len(factor), extension.shape
    valid = scipy.sparse.diags_array(factor[::-1], offsets=range(m), shape=(high - m + 1, high), format="csr")
    return (valid @ extension).toarray()

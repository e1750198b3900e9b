"""Method ``kronecker``: a separable PSF; one small decomposition and two products for each axis.

If the PSF is an outer product, H = C ⊗ R for every boundary: C blurs the
columns and R the rows. Lines and volumes have one or three such matrices,
applied along one axis after another. With C = Uc Sc Vcᵀ and R = Ur Sr Vrᵀ the singular
values of H are the products of those of C and R. With G the image as a matrix

    f = Vc [ W ∘ (Ucᵀ G Ur) ] Vrᵀ ,   W = σ / (σ² + λ) ,   σ = sc srᵀ .

For "hht", HHᵀ = U S² Uᵀ and Hᵀ = V S Uᵀ give likewise

    f = Uc [ (Ucᵀ F Ur) / (σ² + λ) ] Urᵀ ,   F = Vc [ σ ∘ (Ucᵀ G Ur) ] Vrᵀ .

The decompositions use the structure that PSF and boundary provide:

* A PSF factor that equals its own reversal makes C *centrosymmetric*
  (J C J = C, J the reversal), whatever the boundary: the even and odd halves
  of the space never mix, and one decomposition of size M becomes two of size
  M/2, a quarter of the work. The products are split the same way.
* What remains is often symmetric (C = Cᵀ), or *persymmetric* (J C = (J C)ᵀ:
  every Toeplitz matrix, hence zero and periodic boundaries with any PSF).
  Either way one symmetric eigenproblem gives the singular value
  decomposition: J C = Q Λ Qᵀ means C = (J Q) Λ Qᵀ.
* C and R are decomposed once if they are equal.

References
----------
P. C. Hansen, J. G. Nagy, D. P. O'Leary, *Deblurring Images: Matrices, Spectra,
and Filtering*, SIAM 2006, section 4.4. A. Cantoni, P. Butler, "Eigenvalues and
eigenvectors of symmetric centrosymmetric matrices", Linear Algebra Appl. 13
(1976), for the even-odd splitting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np
from numpy.typing import DTypeLike

from .. import kernels
from ..device import Array, Device, Shape, asnumpy, cupy, get_xp, is_cupy, to_device
from ..norms import outer, product
from ..operators.blur import Blur, axis_matrix
from ..operators.normal import two_a_place
from ..problem import Factor, Problem
from ..threads import all_cores
from .spectrum import SpectralFactor, Spectrum

_ROUNDING = 16 * float(np.finfo(np.float64).eps)  # relative to the largest entry
# Largest length of an axis for which a GPU multiplies by whole matrices: halves would save less than their launches.
_WHOLE = 1024

#: U, the singular values and V of one matrix.
Svd = tuple[Array, Array, Array]


def refuses(problem: Problem) -> str | None:
    """Return None if the blur is a Kronecker product, else the reason in words."""
    if problem.blur.factors is None:
        return "the PSF is not separable (its matrix has a rank above one), so H is not a Kronecker product"
    return None


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes of bases and the filter, of the largest decomposition, and of products; see `deblur.problem`."""
    blur, (image, scene, *_) = problem.blur, problem.sizes
    sizes = [m * n for m, n in zip(blur.image_shape, blur.scene_shape, strict=True)]
    # Even and odd halves of U and V, which are the same if each matrix is symmetric. A PSF without symmetry, which has
    # twice as many, is rare.
    same = blur.boundary.toeplitz or blur.boundary.transform == "cosine"
    one, values = problem.dtype.itemsize / (1 + same), (2 - (problem.formula == "hht")) * image
    # In float64 the matrix, its bases and LAPACK's arrays.
    return one * sum(sizes) + values, (24 - one) * max(sizes) - values, 5 * scene * problem.frames


def decompose(blur: Blur, dtype: DTypeLike, device: Device) -> Spectrum:
    """Return the spectrum of a separable blur, cached with the blur."""
    return blur.cached(("kronecker", np.dtype(dtype), device), lambda: KroneckerSpectrum(blur, dtype, device))


@all_cores()
def prepare(problem: Problem) -> Factor:
    """Compute the decompositions; a solve then costs two products for each axis."""
    return SpectralFactor(decompose(problem.blur, problem.dtype, problem.device), problem)


class KroneckerSpectrum(Spectrum):
    """The spectrum of H = C ⊗ R, decomposed in float64 and stored in `dtype`."""

    def __init__(self, blur: Blur, dtype: DTypeLike, device: Device) -> None:
        self._by_axis, self._normal = _axes(blur, np.dtype(dtype), device), blur.normal
        super().__init__(reduce(outer, (one.values for one in self._by_axis)))

    def analyse(self, x: Array) -> Array:
        return self._applied(_AxisSvd.left_t, x)

    def synthesise(self, x: Array) -> Array:
        return self._applied(_AxisSvd.right, x)

    def hht(self, g: Array, lam: float) -> Array:
        if self._normal:
            return super().hht(g, lam)
        s = self.values
        return self._applied(_AxisSvd.left, self.analyse(self.filtered(g, s)) / (s * s + s.dtype.type(lam)))

    def _applied(self, step: Callable[[_AxisSvd, Array, int], Array], x: Array) -> Array:
        """Apply `step` along each axis, the last axis first."""
        x = step(self._by_axis[-1], x, -1)
        for axis, one in reversed([*enumerate(self._by_axis[:-1], -len(self._by_axis))]):
            after = x.shape[axis + 1 :]  # merged into one axis
            x = step(one, x.reshape(*x.shape[: axis + 1], -1), -2)
            x = x.reshape(*x.shape[:-1], *after)
        return x


def _axes(blur: Blur, dtype: np.dtype, device: Device) -> list[_AxisSvd]:
    """Decompose the matrix of each axis; axes of one length with the same factor share one decomposition."""
    assert blur.factors is not None
    h = [_reversible(factor) for factor in blur.factors]
    found: list[_AxisSvd] = []
    kinds = [*zip(blur.image_shape, blur.origin, map(len, h), strict=True)]

    def alike(a: int, b: int) -> bool:
        return kinds[a] == kinds[b] and bool(np.abs(h[a] - h[b]).max() <= _ROUNDING * np.abs(h[a]).max())

    for axis, factor in enumerate(h):
        shared = next((found[before] for before in range(axis) if alike(before, axis)), None)
        found.append(shared or _axis(blur, axis, factor, dtype, device))
    return found


def _axis(blur: Blur, axis: int, factor: np.ndarray, dtype: np.dtype, device: Device) -> _AxisSvd:
    """Decompose the matrix of one axis, using the structure of the factor and the boundary."""
    shape, boundary = (blur.image_shape[axis], blur.scene_shape[axis]), blur.boundary
    # Every boundary continues both ends by the same rule. If the origin is the middle, both ends are continued equally
    # far. An open scene is not continued.
    centred = boundary.open or 2 * blur.origin[axis] == len(factor) - 1
    split = min(shape) > 1 and centred and np.array_equal(factor, factor[::-1])
    symmetric = split and (boundary.toeplitz or boundary.transform == "cosine")
    if device.gpu is None:
        a = axis_matrix(factor, blur.extension(axis))
        # The even-to-even and odd-to-odd parts of a centrosymmetric matrix.
        parts = [_fold(part, -1)[i] for i, part in enumerate(_fold(a, -2))] if split else [a]
    else:
        parts = _parts_on_gpu(factor, *two_a_place(blur.extension(axis)), shape, split)
    found = [_svd(part, symmetric, boundary.toeplitz) for part in parts]
    if device.gpu is not None and split and max(shape) <= _WHOLE:
        found = [_joined(found, shape, dtype)]
    return _AxisSvd(found, shape, dtype)


def _joined(parts: list[Svd], shape: tuple[int, int], dtype: np.dtype) -> Svd:
    """Return the decomposition of a centrosymmetric matrix from those of its even and odd parts."""
    (u, s, v), (u_odd, s_odd, v_odd) = parts
    right = _whole_on_gpu(v, v_odd, shape[1], dtype)
    left = right if u is v else _whole_on_gpu(u, u_odd, shape[0], dtype)
    return left, np.concatenate([asnumpy(s), asnumpy(s_odd)]), right


def _reversible(factor: np.ndarray) -> np.ndarray:
    """Return a PSF factor, made exactly symmetric if it is symmetric to rounding."""
    symmetric = (factor + factor[::-1]) / 2
    return symmetric if np.abs(factor - symmetric).max() <= _ROUNDING * np.abs(factor).max() else factor


class _AxisSvd:
    """A = U diag(values) Vᵀ for one axis of the image, U (M, M), V (P, M), applied to images.

    If A is centrosymmetric, U and V have the form [E; O] with an even and an odd part. Every product then splits into
    two of half the size, on sums and differences of opposite pixels.

    Parameters
    ----------
    parts : list of (U, values, V)
        The decomposition of A, or those of its even and odd parts.
    shape : (int, int)
        Shape (M, P) of A.
    dtype : dtype
        Dtype of U and V as stored.
    """

    def __init__(self, parts: list[Svd], shape: tuple[int, int], dtype: np.dtype) -> None:
        xp = get_xp(parts[0][0])
        self._split = len(parts) > 1
        self._v = [xp.ascontiguousarray(v, dtype) for _, _, v in parts]
        self._u = [
            mine if u is v else xp.ascontiguousarray(u, dtype) for mine, (u, _, v) in zip(self._v, parts, strict=True)
        ]
        self.values = xp.asarray(np.concatenate([asnumpy(s) for _, s, _ in parts]).astype(dtype))
        self._sizes = shape

    def left_t(self, x: Array, axis: int) -> Array:
        """Apply Uᵀ along `axis` (-1 or -2), from M values to M."""
        if not self._split:
            return _product(self._u[0].T, x, axis)
        parts = zip(self._u, _fold(x, axis), strict=True)
        return get_xp(x).concatenate([_product(u.T, part, axis) for u, part in parts], axis=axis)

    def left(self, x: Array, axis: int) -> Array:
        """Apply U along `axis`, from M values to M."""
        return self._synthesise(x, self._u, axis, self._sizes[0])

    def right(self, x: Array, axis: int) -> Array:
        """Apply V along `axis`, from M values to P."""
        return self._synthesise(x, self._v, axis, self._sizes[1])

    def _synthesise(self, x: Array, basis: list[Array], axis: int, size: int) -> Array:
        if not self._split:
            return _product(basis[0], x, axis)
        even, odd = get_xp(x).split(x, [basis[0].shape[1]], axis)
        return _unfold(_product(basis[0], even, axis), _product(basis[1], odd, axis), axis, size)


def _product(b: Array, x: Array, axis: int) -> Array:
    """Apply the matrix b along `axis` (-1 or -2) of images."""
    return product(b, x) if axis == -2 else product(x, b.T)


def _fold(x: Array, axis: int) -> list[Array]:
    """Return the even and odd parts of x along `axis`, as halves in orthonormal coordinates."""
    if axis == -1:
        return [part[..., 0] for part in _fold(x[..., None], -2)]
    n, half = x.shape[-2], x.shape[-2] // 2
    if is_cupy(x) and x.size:
        even, odd = (cupy.empty((*x.shape[:-2], size, x.shape[-1]), x.dtype) for size in (n - half, half))
        _launch("fold", cupy.ascontiguousarray(x), even, odd, even.size, n)
        return [even, odd]
    front, back = x[..., :half, :], x[..., n - 1 : n - 1 - half : -1, :]
    scale = x.dtype.type(np.sqrt(0.5))
    even, odd = (front + back) * scale, (front - back) * scale
    if n % 2:
        even = get_xp(x).concatenate([even, x[..., half : half + 1, :]], axis=-2)
    return [even, odd]


def _unfold(even: Array, odd: Array, axis: int, n: int) -> Array:
    """Return x from its even and odd parts: the inverse and transpose of `_fold`."""
    if axis == -1:
        return _unfold(even[..., None], odd[..., None], -2, n)[..., 0]
    x, half = get_xp(even).empty((*even.shape[:-2], n, even.shape[-1]), even.dtype), n // 2
    if is_cupy(even) and even.size:
        _launch("unfold", cupy.ascontiguousarray(even), cupy.ascontiguousarray(odd), x, even.size, n)
        return x
    scale = even.dtype.type(np.sqrt(0.5))
    paired = even[..., :half, :]
    x[..., :half, :] = (paired + odd) * scale
    x[..., n - 1 : n - 1 - half : -1, :] = (paired - odd) * scale
    if n % 2:
        x[..., half, :] = even[..., half, :]
    return x


def _svd(a: Array, symmetric: bool, flipped: bool) -> Svd:
    """Return U (M, M), s (M,) and V (P, M) with A = U diag(s) Vᵀ.

    If A is symmetric or, for `flipped`, becomes symmetric by reversing its rows, a symmetric eigenproblem is solved; s
    then has values of either sign.
    """
    xp = get_xp(a)
    if is_cupy(a) and len(a) <= (64 if symmetric or flipped else 256):  # LAPACK takes less time than cuSOLVER
        left, s, right = _svd(asnumpy(a), symmetric, flipped)
        return (u := xp.asarray(left)), xp.asarray(s), u if left is right else xp.asarray(right)
    if symmetric:
        s, q = xp.linalg.eigh(a)
        return q, s, q
    if flipped:
        s, q = xp.linalg.eigh(a[::-1])
        return q[::-1], s, q
    u, s, vt = xp.linalg.svd(a, full_matrices=False)
    return u, s, vt.T


def _parts_on_gpu(factor: np.ndarray, pixel: np.ndarray, weight: np.ndarray, shape: Shape, split: bool) -> list[Array]:
    """Return the blur of one axis as a float64 matrix on the GPU, or its even-to-even and odd-to-odd parts.

    Parameters
    ----------
    factor : (m,) array
        The PSF along the axis.
    pixel, weight : (M + m - 1, 2) arrays
        Scene pixels and weights of each place that the blur reads: see `deblur.operators.normal.two_a_place`.
    shape : (M, P)
        Shape of the matrix.
    split : bool
        Whether the matrix is centrosymmetric and is to be split.
    """
    rows, cols = shape
    halves = (rows // 2, cols // 2)
    sizes = [(rows - halves[0], cols - halves[1]), halves] if split else [shape]
    out = [cupy.empty(size, np.float64) for size in sizes]
    taps, pixels, weights = map(to_device, (factor, pixel, weight))
    args = (*out, *[None] * (not split), taps, len(factor), pixels, weights, rows, cols)
    kernels.spread("kronecker", "parts", out[0].size, *args, dtype=np.float64)
    return out


def _whole_on_gpu(even: Array, odd: Array, n: int, dtype: np.dtype) -> Array:
    """Return the basis vectors of `n` pixels (n, columns) from float64 bases of the even and the odd part."""
    columns = even.shape[1] + odd.shape[1]
    out = cupy.empty((n, columns), dtype)
    even, odd = (cupy.ascontiguousarray(x.T) for x in (even, odd))  # the library leaves them in column order
    args = (even, odd, out, n, columns, len(even), math.sqrt(0.5))
    kernels.spread("kronecker", "whole", out.size, *args, dtype=dtype)
    return out


def _launch(name: str, first: Array, second: Array, third: Array, pairs: int, n: int) -> None:
    """Launch a kernel over the pairs of opposite rows of images with `n` rows."""
    args = (first, second, third, pairs, n, first.shape[-1], math.sqrt(0.5))
    kernels.spread("kronecker", name, pairs, *args, dtype=first.dtype)

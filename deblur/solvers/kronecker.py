"""Method ``kronecker``: a separable PSF, two small decompositions, four products.

If the PSF is an outer product, H = C ⊗ R for every boundary: C blurs the
columns and R the rows. With C = Uc Sc Vcᵀ and R = Ur Sr Vrᵀ the singular
values of H are the products of theirs, and with G the image as a matrix

    f = Vc [ W ∘ (Ucᵀ G Ur) ] Vrᵀ ,   W = σ / (σ² + λ) ,   σ = sc srᵀ .

For "hht" the same with HHᵀ = U S² Uᵀ and Hᵀ = V S Uᵀ:

    f = Uc [ (Ucᵀ F Ur) / (σ² + λ) ] Urᵀ ,   F = Vc [ σ ∘ (Ucᵀ G Ur) ] Vrᵀ .

The decompositions use what the boundary gives them:

* A PSF factor that equals its own reversal makes C *centrosymmetric*
  (J C J = C, J the reversal), whatever the boundary: the even and odd halves
  of the space never mix, and one decomposition of size M becomes two of size
  M/2, a quarter of the work. The products are split the same way.
* What remains is often symmetric (C = Cᵀ), or *persymmetric* (J C = (J C)ᵀ:
  every Toeplitz matrix, hence zero and periodic boundaries with any PSF).
  Either way one symmetric eigenproblem gives the singular value
  decomposition: J C = Q Λ Qᵀ means C = (J Q) Λ Qᵀ.
* C and R are decomposed once if they are equal.

An operation of `work` is one multiply-add of a dense product; a symmetric
eigenproblem counts 9 n³, a general decomposition 22 n³.

References
----------
P. C. Hansen, J. G. Nagy, D. P. O'Leary, *Deblurring Images: Matrices, Spectra,
and Filtering*, SIAM 2006, section 4.4. A. Cantoni, P. Butler, "Eigenvalues and
eigenvectors of symmetric centrosymmetric matrices", Linear Algebra Appl. 13
(1976), for the even-odd splitting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import Array, Device, get_xp, is_cupy
from ..norms import largest
from ..operators.blur import Blur
from ..operators.normal import dense_matrix
from ..problem import Factor, Problem, Work
from . import kronecker_gpu
from .spectrum import SpectralFactor, Spectrum

_ROUNDING = 16 * float(np.finfo(np.float64).eps)  # relative to the largest entry


def refuses(problem: Problem) -> str | None:
    """None if the blur is a Kronecker product, else the reason in words."""
    if problem.blur.factors is None:
        return "the PSF is not separable (its matrix has a rank above one), so H is no Kronecker product"
    return None


def work(problem: Problem) -> Work:
    """Two decompositions to set up, four products of the image's size to solve."""
    blur = problem.blur
    assert blur.factors is not None
    (m, n), (p, q) = blur.image_shape, blur.scene_shape
    setup, split = 0.0, []
    for factor, rows, cols in zip(blur.factors, (m, n), (p, q), strict=True):
        halves = 2 if np.array_equal(_reversible(factor), _reversible(factor)[::-1]) else 1
        # A cosine or a Toeplitz structure makes one symmetric eigenproblem of it.
        symmetric = blur.boundary.toeplitz or (halves == 2 and blur.boundary.transform == "cosine")
        setup += (9 if symmetric else 22) * halves * (rows / halves) * (rows / halves) * (cols / halves)
        split.append(halves)
    solve = (m * m * n + p * m * n) / split[0] + (n * n * m + q * n * p) / split[1]
    numbers = 6 * (p * p + q * q) + (2 + 4 * problem.frames) * p * q
    return Work(setup, solve, numbers * problem.dtype.itemsize)


def decompose(blur: Blur, dtype: Any, device: Device) -> Spectrum:
    """The spectrum of a separable blur."""
    key = ("kronecker", np.dtype(dtype), device)
    return blur.kept(key, lambda: KroneckerSpectrum(blur, dtype, device))


def prepare(problem: Problem) -> Factor:
    """The two decompositions, kept; a solve costs four products."""
    return SpectralFactor(decompose(problem.blur, problem.dtype, problem.device), problem)


class KroneckerSpectrum(Spectrum):
    """The spectrum of H = C ⊗ R. Decomposed in float64, kept in `dtype`."""

    def __init__(self, blur: Blur, dtype: Any, device: Device) -> None:
        # A reversed factor is its own reversal to rounding only; exactly so, the parts decouple exactly.
        c, r = map(_snap, _axis_matrices(blur, device))
        self._c = _AxisSvd(c, dtype)
        # Both axes of a square image under a PSF that is its own transpose: the same to rounding is the same.
        same = c.shape == r.shape and largest(c - r) <= _ROUNDING * largest(c)
        self._r = self._c if same else _AxisSvd(r, dtype)
        self.singular_values = self._c.values[:, None] * self._r.values

    def _analyse(self, g: Array) -> Array:
        return self._c.left_t(self._r.left_t(g, -1), -2)

    def coefficients(self, g: Array) -> Array:
        return abs(self._analyse(g))

    def restore(self, g: Array, weights: Array) -> Array:
        return self._c.right(self._r.right(self._analyse(g) * weights, -1), -2)

    def hht(self, g: Array, lam: float) -> Array:
        s = self.singular_values
        x = self._analyse(self.restore(g, s)) / (s * s + s.dtype.type(lam))
        return self._c.left(self._r.left(x, -1), -2)


def _axis_matrices(blur: Blur, device: Device) -> list[Array]:
    """`Blur.axis_matrices` in float64 on any device; of a GPU's only the PSF crosses the bus."""
    if device.gpu is None:
        return list(blur.axis_matrices())
    assert blur.factors is not None
    return [
        dense_matrix(Blur(factor[:, None], (size, 1), blur.boundary, origin=(origin, 0)))
        for factor, size, origin in zip(blur.factors, blur.image_shape, blur.origin, strict=True)
    ]


def _reversible(factor: np.ndarray) -> np.ndarray:
    """A PSF factor, exactly symmetric if it is so to rounding."""
    symmetric = (factor + factor[::-1]) / 2
    rounding = _ROUNDING * np.abs(factor).max()
    return symmetric if np.abs(factor - symmetric).max() <= rounding else factor


def _snap(a: Array) -> Array:
    """`a`, exactly centrosymmetric if it is so to rounding."""
    symmetric = (a + a[::-1, ::-1]) / 2
    return symmetric if largest(a - symmetric) <= _ROUNDING * largest(a) else a


class _AxisSvd:
    """A = U diag(values) Vᵀ for one axis of the image, U (M, M), V (P, M), applied to images.

    If A is centrosymmetric, U and V are [E; O] of an even and an odd part, and every product is two
    of half the size on the sums and differences of opposite pixels.
    """

    def __init__(self, a: Array, dtype: Any) -> None:
        xp = get_xp(a)
        self._split = min(a.shape) > 1 and largest(a - a[::-1, ::-1]) == 0
        parts = _even_odd(a) if self._split else [a]
        u, s, v = zip(*(_svd(part) for part in parts), strict=True)
        self._u = [xp.ascontiguousarray(x, dtype) for x in u]
        self._v = [xp.ascontiguousarray(x, dtype) for x in v]
        self.values = xp.concatenate(s).astype(dtype)
        self._sizes = a.shape

    def left_t(self, x: Array, axis: int) -> Array:
        """Uᵀ along `axis` (-1 or -2), M values to M."""
        parts = _fold(x, axis) if self._split else [x]
        return get_xp(x).concatenate(
            [_product(u.T, part, axis) for u, part in zip(self._u, parts, strict=True)], axis=axis
        )

    def left(self, x: Array, axis: int) -> Array:
        """U along `axis`, M values to M."""
        return self._synthesise(x, self._u, axis, self._sizes[0])

    def right(self, x: Array, axis: int) -> Array:
        """V along `axis`, M values to P."""
        return self._synthesise(x, self._v, axis, self._sizes[1])

    def _synthesise(self, x: Array, basis: list[Array], axis: int, size: int) -> Array:
        if not self._split:
            return _product(basis[0], x, axis)
        cut = basis[0].shape[1]
        even, odd = x[_at(axis, slice(cut))], x[_at(axis, slice(cut, None))]
        return _unfold(_product(basis[0], even, axis), _product(basis[1], odd, axis), axis, size)


def _product(b: Array, x: Array, axis: int) -> Array:
    """The matrix b applied along `axis` of images."""
    return b @ x if axis == -2 else x @ b.T


def _at(axis: int, index: Any) -> tuple[Any, ...]:
    return (..., index) if axis == -1 else (..., index, slice(None))


def _fold(x: Array, axis: int) -> list[Array]:
    """The even and odd parts along `axis`, as halves in orthonormal coordinates."""
    if is_cupy(x) and x.size:
        return kronecker_gpu.fold(x, axis)
    xp, n = get_xp(x), x.shape[axis]
    half = n // 2
    front, back = x[_at(axis, slice(half))], x[_at(axis, slice(n - 1, n - 1 - half, -1))]
    scale = x.dtype.type(np.sqrt(0.5))
    even, odd = (front + back) * scale, (front - back) * scale
    if n % 2:
        even = xp.concatenate([even, x[_at(axis, slice(half, half + 1))]], axis=axis)
    return [even, odd]


def _unfold(even: Array, odd: Array, axis: int, n: int) -> Array:
    """The inverse, and transpose, of `_fold`."""
    if is_cupy(even) and even.size:
        return kronecker_gpu.unfold(even, odd, axis, n)
    half = n // 2
    scale = even.dtype.type(np.sqrt(0.5))
    shape = list(even.shape)
    shape[axis] = n
    x = get_xp(even).empty(shape, even.dtype)
    paired = even[_at(axis, slice(half))]
    x[_at(axis, slice(half))] = (paired + odd) * scale
    x[_at(axis, slice(n - 1, n - 1 - half, -1))] = (paired - odd) * scale
    if n % 2:
        x[_at(axis, half)] = even[_at(axis, half)]
    return x


def _even_odd(a: Array) -> list[Array]:
    """The even-to-even and odd-to-odd parts of a centrosymmetric matrix."""
    return [_fold(part, -1)[i] for i, part in enumerate(_fold(a, -2))]


def _svd(a: Array) -> tuple[Array, Array, Array]:
    """U (M, M), s (M,), V (P, M) with A = U diag(s) Vᵀ; by a symmetric eigenproblem where there is one."""
    xp = get_xp(a)
    if a.shape[0] == a.shape[1]:
        for flipped in (False, True):
            b = a[::-1] if flipped else a
            if _is_symmetric(b):
                values, q = xp.linalg.eigh((b + b.T) / 2)
                signs = xp.copysign(1.0, values)
                u = q * signs
                return (u[::-1] if flipped else u), abs(values), q
    u, s, vt = xp.linalg.svd(a, full_matrices=False)
    return u, s, vt.T


def _is_symmetric(b: Array) -> bool:
    return largest(b - b.T) <= _ROUNDING * largest(b)

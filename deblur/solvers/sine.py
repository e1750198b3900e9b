"""Method ``dst``: sine transforms, for the zero boundary with a 3 x 3 PSF and for the antireflect boundary.

Both want a PSF that is symmetric in each axis about its origin. Let S be the
orthonormal DST-I, θ_k = π k / (n + 1) its angles and
h(θ, φ) = sum over k, l of h[k, l] cos(k θ) cos(l φ) the PSF's symbol.

**zero.** A Toeplitz matrix of one dimension is diagonalised by S if it is
symmetric and tridiagonal. H is a sum of products of such matrices if the PSF
reaches no farther than one pixel, and then H = (S ⊗ S) diag(h(θ_k, φ_l)) (S ⊗ S)
outright. The PSF's own zeros decide, not its array's size. A wider PSF is
*not* diagonalised: entries of H next to the corners differ, and this method
refuses it.

**antireflect.** H is diagonalised by the antireflective transform, which is
not orthogonal: in one dimension its columns are the two straight lines that
are 1 at one edge pixel and 0 at the other (extended by antireflection they
stay straight, and a symmetric PSF leaves them so), and the sine vectors of
the n - 2 pixels between the edges. In two dimensions H = T Λ T⁻¹, T a Kronecker
product of such matrices, so that HᵀH + λI is *not* diagonal. It is solved
exactly all the same:

* W, with unit vectors for the edge pixels and sine vectors for the interior,
  is orthogonal; in its coordinates T = I + (the lines' sine coefficients in
  the columns of the edges), and T⁻¹ = 2I − T.
* HᵀH + λI restricted to the interior coordinates is diagonal, Λ² + λ. What is
  left after eliminating them is the Schur complement of the edge pixels,

      E ᵀE + λI + λ Bᵀ (Λ² + λ)⁻¹ B ,   H = [E 0; B Λ] ,

  a matrix of as many rows as the image has edge pixels; nothing in it
  cancels, whatever λ. Even and odd coordinates of each axis do not mix, which
  splits it into four of a quarter of the size, each factored once by Cholesky.

The cost of a solve is that of two sine transforms and of two triangular
solves. For "hht", with (HHᵀ + λI)⁻¹ = (I − H (HᵀH + λI)⁻¹ Hᵀ)/λ, twice that.

SciPy's DST-I of n values is an FFT of 2 (n + 1) values, slow where n + 1 has a
large prime factor (n = 256: 257). There, up to some size, S is multiplied out.

An operation of `work` is one multiply-add of a transform, 2.5 n log2 n, or of
the Cholesky factors.

References
----------
D. Bini, F. Di Benedetto, "A new preconditioner for the parallel solution of
positive definite Toeplitz systems", SPAA 1990 (the matrices that S
diagonalises). S. Serra-Capizzano, "A note on antireflective boundary
conditions and fast deblurring models", SIAM J. Sci. Comput. 25 (2003).
A. Aricò, M. Donatelli, S. Serra-Capizzano, "Spectral analysis of the
anti-reflective algebra", Linear Algebra Appl. 428 (2008), for T.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import scipy.linalg

from ..backend import Array, get_fft, get_xp, require_memory
from ..blur import Blur
from ..errors import SingularMatrixError
from .base import Factor, Info, Problem, Work
from .spectrum import OrthogonalSpectrum, SpectralFactor, Spectrum, all_cores, cosine_symbol, kept, quadrant

#: Above this size a Bluestein FFT beats the product with the sine matrix.
_MATRIX_LIMIT = 1500


def refuses(problem: Problem) -> str | None:
    """None if a sine transform solves this blur exactly, else the reason in words."""
    blur = problem.blur
    if blur.boundary not in ("zero", "antireflect"):
        return f"it serves boundaries 'zero' and 'antireflect', not {blur.boundary!r}"
    quarter = quadrant(blur)
    if quarter is None:
        return (
            "the PSF is not symmetric in each axis about its origin; point symmetry alone is not enough "
            "(Serra-Capizzano 2003)"
        )
    if blur.boundary == "zero" and max(quarter.shape) > 2:
        return (
            "with boundary 'zero' the sine transform diagonalises the blur only if the PSF reaches one pixel "
            f"from its origin (3 x 3), and this one reaches {max(quarter.shape) - 1}"
        )
    if blur.boundary == "antireflect" and not problem.lam > 0:
        return "with boundary 'antireflect' it solves HᵀH + λI, which needs λ > 0"
    return None


def work(problem: Problem) -> Work:
    """Two transforms a solve, and the edge pixels' Cholesky factors for antireflect."""
    blur = problem.blur
    n, size = blur.shape[0], problem.dtype.itemsize
    transform = 2.5 * n * np.log2(n + 1)
    memory = (2 + 4 * problem.frames) * n * size
    if blur.boundary == "zero":
        return Work(n, 2 * transform, memory)
    edge = sum(blur.image_shape) / 2  # unknowns of each of the four parts
    rounds = 2 if problem.formula == "hht" else 1
    return Work(4 * edge**3 / 3, rounds * (2 * transform + 8 * edge**2), memory + 10 * edge**2 * 8)


def decompose(blur: Blur, dtype: Any, xp: ModuleType) -> Spectrum:
    """The spectrum for boundary "zero"; the antireflective transform is not orthogonal and has none."""
    if blur.boundary != "zero":
        raise ValueError(f"the sine transform gives no singular values for boundary {blur.boundary!r}")

    def build() -> Spectrum:
        quarter = quadrant(blur)
        assert quarter is not None
        rows, cols = (_angles(n) for n in blur.image_shape)
        values = xp.asarray(cosine_symbol(quarter, rows, cols).astype(dtype))
        along = [sine_transform(n, dtype, xp) for n in blur.image_shape]

        def forward(x: Array) -> Array:
            return along[1](along[0](x, -2, False), -1, True)

        def inverse(x: Array) -> Array:  # of coefficients, which nobody else holds
            return along[1](along[0](x, -2, True), -1, True)

        return OrthogonalSpectrum(values, forward, inverse)

    return kept("dst", blur, dtype, xp, build)


def prepare(problem: Problem) -> Factor:
    """The eigenvalues, and the edge pixels' Cholesky factors for antireflect."""
    if problem.blur.boundary == "zero":
        return SpectralFactor(decompose(problem.blur, problem.dtype, problem.xp), problem)
    return _Antireflective(problem)


def _angles(n: int) -> np.ndarray:
    return np.pi * np.arange(1, n + 1) / (n + 1)


def sine_transform(n: int, dtype: Any, xp: ModuleType) -> Callable[[Array, int, bool], Array]:
    """The orthonormal DST-I of n values along an axis (-1 or -2); it is its own inverse.

    Returns
    -------
    callable
        (x, axis, overwrite) to the transform of x along that axis; with `overwrite` x may be destroyed, so that no
        new memory is touched.
    """
    if n == 1 or (n <= _MATRIX_LIMIT and _largest_prime_factor(n + 1) > 100):
        k = np.arange(1, n + 1)
        angles = np.outer(k, k) % (2 * (n + 1)) * (np.pi / (n + 1))
        matrix = xp.asarray((np.sqrt(2 / (n + 1)) * np.sin(angles)).astype(dtype))
        return lambda x, axis, overwrite: matrix @ x if axis == -2 else x @ matrix
    if n == 0:
        return lambda x, axis, overwrite: x
    fft = get_fft(xp)
    if xp is np:
        return lambda x, axis, overwrite: fft.dst(x, type=1, axis=axis, norm="ortho", overwrite_x=overwrite)

    def by_fft(x: Array, axis: int, overwrite: bool) -> Array:  # cupyx has types 2 and 3 only
        x = xp.moveaxis(x, axis, -1)
        zero = xp.zeros_like(x[..., :1])
        odd = xp.concatenate([zero, x, zero, -x[..., ::-1]], axis=-1)
        out = fft.rfft(odd, axis=-1)[..., 1 : n + 1].imag * x.dtype.type(-np.sqrt(0.5 / (n + 1)))
        return xp.moveaxis(out, -1, axis)

    return by_fft


def _largest_prime_factor(n: int) -> int:
    p = 2
    while p * p <= n:
        if n % p:
            p += 1
        else:
            n //= p
    return n


class _Part:
    """The coordinates of one parity along each axis: H = T Λ T⁻¹ on (1 + k, 1 + m) numbers.

    Row 0 and column 0 belong to the edge pixels, the rest to the interior.
    """

    def __init__(self, values: Array, lines: tuple[Array, Array], lam: float, dtype: np.dtype) -> None:
        # values (1 + k, 1 + m): the symbol at angle 0 and at the interior's; lines: the straight lines'
        # sine coefficients, (k,) and (m,).
        xp = get_xp(values)
        p, q = (line.astype(np.float64) for line in lines)
        k, m = len(p), len(q)
        inner = values[1:, 1:]
        self._inverse = 1 / (inner**2 + lam)
        # B, the interior's response to the edge pixels: e0 x s_j and s_i x e0 answer in their own column
        # or row of coordinates, the corner pixel everywhere.
        by_cols = (values[:1, 1:] - inner) * p[:, None]
        by_rows = (values[1:, :1] - inner) * q
        corner = xp.zeros((1 + k, 1 + m))
        corner[0, 0] = 1
        corner = _transform(values * _transform(corner, p, q, -1), p, q, 1)
        w = lam * self._inverse
        n = 1 + m + k
        schur = xp.zeros((n, n))
        # Edge unknowns in the order corner, row 0, column 0. First lam Bᵀ (Λ² + lam)⁻¹ B ...
        schur[0, 0] = (w * corner[1:, 1:] ** 2).sum()
        schur[0, 1 : 1 + m] = (w * corner[1:, 1:] * by_cols).sum(axis=0)
        schur[0, 1 + m :] = (w * corner[1:, 1:] * by_rows).sum(axis=1)
        cols, rows = xp.arange(1, 1 + m), xp.arange(1 + m, n)
        schur[cols, cols] = (w * by_cols**2).sum(axis=0)
        schur[rows, rows] = (w * by_rows**2).sum(axis=1)
        schur[1 : 1 + m, 1 + m :] = (w * by_cols * by_rows).T
        # ... then Eᵀ E + lam: E is diagonal but for the corner's column.
        down = xp.concatenate([corner[0, 1:], corner[1:, 0]])
        diagonal = xp.concatenate([values[0, 1:], values[1:, 0]])
        schur[0, 0] += corner[0, 0] ** 2 + (down**2).sum()
        schur[0, 1:] += down * diagonal
        edge = xp.arange(1, n)
        schur[edge, edge] += diagonal**2
        schur[xp.arange(n), xp.arange(n)] += lam
        self._solve = _cholesky_solver(schur, dtype)
        self._values, self._p, self._q = (x.astype(dtype) for x in (values, p, q))
        self._inverse = self._inverse.astype(dtype)

    def forward(self, x: Array) -> Array:
        """H on these coordinates."""
        return _transform(self._values * _transform(x, self._p, self._q, -1), self._p, self._q, 1)

    def adjoint(self, x: Array) -> Array:
        """Hᵀ on these coordinates."""
        y = self._values * _transform_t(x, self._p, self._q, 1)
        return _transform_t(y, self._p, self._q, -1)

    def solve(self, b: Array) -> Array:
        """(HᵀH + λI)⁻¹ b: eliminate the interior, solve for the edge pixels, put them back in."""
        xp = get_xp(b)
        x = xp.zeros_like(b)
        x[..., 1:, 1:] = b[..., 1:, 1:] * self._inverse
        # With the interior eliminated the edges' right-hand side is b_E − Bᵀ Λ (Λ² + λ)⁻¹ b_I.
        carried = self.adjoint(self.forward(x))
        e = xp.concatenate([(b - carried)[..., 0, :], (b - carried)[..., 1:, 0]], axis=-1)
        e = self._solve(e)
        cols = b.shape[-1]
        edges = xp.zeros_like(b)
        edges[..., 0, :], edges[..., 1:, 0] = e[..., :cols], e[..., cols:]
        carried = self.adjoint(self.forward(edges))
        x[..., 1:, 1:] -= carried[..., 1:, 1:] * self._inverse
        return x + edges


def _transform(x: Array, p: Array, q: Array, sign: int) -> Array:
    """T (sign 1) or T⁻¹ (sign -1) of both axes: the edge's line is added to, or taken from, the interior."""
    x = x.copy()
    x[..., 1:, :] += sign * p[:, None] * x[..., :1, :]
    x[..., :, 1:] += sign * q * x[..., :, :1]
    return x


def _transform_t(x: Array, p: Array, q: Array, sign: int) -> Array:
    """The transpose of `_transform`."""
    x = x.copy()
    x[..., :, 0] += sign * (x[..., :, 1:] @ q)
    x[..., 0, :] += sign * (p @ x[..., 1:, :])
    return x


def _cholesky_solver(a: Array, dtype: np.dtype) -> Callable[[Array], Array]:
    """Solve with a symmetric matrix of which the upper triangle is given, for vectors (k, n)."""
    if get_xp(a) is np:
        try:
            factor = scipy.linalg.cho_factor(a, lower=False, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError as error:
            raise SingularMatrixError(f"HᵀH + λI is singular to float64 ({error}); use a larger λ") from error
        triangle = factor[0].astype(dtype)
        return lambda b: scipy.linalg.cho_solve((triangle, False), b.T, check_finite=False).T
    import cupy
    from cupyx.scipy.linalg import solve_triangular

    upper = cupy.triu(a, 1)
    lower = cupy.linalg.cholesky(upper + upper.T + cupy.diag(cupy.diag(a))).astype(dtype)

    def solve(b: Array) -> Array:
        y = solve_triangular(lower, b.T, lower=True)
        return solve_triangular(lower, y, lower=True, trans=1).T

    return solve


class _Antireflective:
    """The prepared solver for the antireflect boundary."""

    def __init__(self, problem: Problem) -> None:
        blur, xp = problem.blur, problem.xp
        needed = int(10 * (sum(blur.image_shape) / 2) ** 2 * 8)
        require_memory(needed, xp, "Factoring the equations of the edge pixels", 'use method="pcg" instead')
        quarter = quadrant(blur)
        assert quarter is not None
        self._lam, self._hht = problem.dtype.type(problem.lam), problem.formula == "hht"
        self._sine = [sine_transform(max(n - 2, 0), problem.dtype, xp) for n in blur.image_shape]
        rows, cols = (_parities(n) for n in blur.image_shape)
        self._parts = []
        for row_index, row_angles, p in rows:
            for col_index, col_angles, q in cols:
                values = xp.asarray(cosine_symbol(quarter, row_angles, col_angles))
                part = _Part(values, (xp.asarray(p), xp.asarray(q)), problem.lam, problem.dtype)
                index = (..., xp.asarray(row_index)[:, None], xp.asarray(col_index))
                self._parts.append((index, part))

    def _coordinates(self, x: Array) -> Array:
        """Images to the coordinates W, and back: W is symmetric and orthogonal."""
        x = x.copy()
        half = x.dtype.type(np.sqrt(0.5))
        for axis, sine in ((-2, self._sine[0]), (-1, self._sine[1])):
            y = x.swapaxes(axis, -1)  # a view: x is changed through it
            if y.shape[-1] > 1:
                inner = x[..., 1:-1, :] if axis == -2 else x[..., 1:-1]
                y[..., 1:-1] = sine(inner, axis, False).swapaxes(axis, -1)
                first, last = y[..., 0].copy(), y[..., -1].copy()
                y[..., 0], y[..., -1] = (first + last) * half, (first - last) * half
        return x

    def solve(self, g: Array) -> tuple[Array, Info]:
        """Scenes (k, M, N) for images (k, M, N)."""
        with all_cores():
            x = self._coordinates(g)
            for index, part in self._parts:
                b = part.adjoint(x[index])
                y = part.solve(b)
                if self._hht:  # (HHᵀ + λI)⁻¹ b = (b − H (HᵀH + λI)⁻¹ Hᵀ b)/λ
                    y = (b - part.forward(part.solve(part.adjoint(b)))) / self._lam
                x[index] = y
            return self._coordinates(x), Info()


def _parities(n: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For the even and the odd vectors of n pixels: coordinates, angles, the straight line's sine coefficients.

    In the coordinates of an axis the first is the sum and the last the difference of the edge pixels,
    over √2; between them are the sine coefficients, odd ones even vectors and even ones odd vectors.
    """
    if n == 1:
        return [(np.zeros(1, dtype=int), np.zeros(1), np.zeros(0))]
    k = np.arange(1, n - 1)
    interior = 1 - 2 * k / (n - 1)
    out = []
    for edge, chosen, line in ((0, k[::2], np.ones(n - 2)), (n - 1, k[1::2], interior)):
        sines = np.sin(np.outer(chosen, k) % (2 * (n - 1)) * (np.pi / (n - 1)))
        coefficients = sines @ line / np.sqrt(n - 1)  # √(2/(n-1)) of the transform, 1/√2 of the edge
        index = np.concatenate([[edge], chosen])
        out.append((index, np.concatenate([[0.0], np.pi * chosen / (n - 1)]), coefficients))
    return out

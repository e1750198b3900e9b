"""Method ``dst``: sine transforms, for the zero boundary with a 3 x 3 PSF and for the antireflect boundary.

Both require a PSF that is symmetric in each axis about its origin. Let S be the
orthonormal DST-I, θ_k = π k / (n + 1) its angles and
h(θ, φ) = sum over k, l of h[k, l] cos(k θ) cos(l φ) the PSF's symbol.

**zero.** S diagonalises a one-dimensional Toeplitz matrix that is symmetric and
tridiagonal. If the PSF reaches one pixel from its origin, H is a sum of Kronecker
products of such matrices, and H = (S ⊗ S) diag(h(θ_k, φ_l)) (S ⊗ S).
Zeros at the border of the PSF's array do not count. A wider PSF is
*not* diagonalised, since entries of H next to the corners differ; this method
refuses it.

**antireflect.** The antireflective transform diagonalises H. It is not
orthogonal: in one dimension, its columns are the two straight lines that are 1 at
one edge pixel and 0 at the other, and the sine vectors of the n - 2 pixels between
the edges. (Antireflection extends the lines as straight lines, and a symmetric PSF
preserves these.) In two dimensions H = T Λ T⁻¹, where T is a Kronecker product of
such matrices, so HᵀH + λI is *not* diagonal. It is still solved exactly:

* W, with unit vectors for the edge pixels and sine vectors for the interior,
  is orthogonal; in its coordinates T = I + (the lines' sine coefficients in
  the columns of the edges), and T⁻¹ = 2I − T.
* HᵀH + λI, restricted to the interior coordinates, is diagonal: Λ² + λ.
  Eliminating them leaves the Schur complement of the edge pixels,

      E ᵀE + λI + λ Bᵀ (Λ² + λ)⁻¹ B ,   H = [E 0; B Λ] ,

  a matrix with one row for each edge pixel, in which nothing cancels,
  whatever λ. Even and odd coordinates of each axis do not mix, so it
  splits into four matrices of a quarter of the size, each factored once by Cholesky.

A solve costs two sine transforms and two triangular solves, in float64
whatever the image's dtype. In directions that λ alone determines, (HᵀH + λI)⁻¹
amplifies the rounding of Hᵀg, and no Hᵀ damps it again. If that may be a
twentieth of the image, the method raises an error. "hht" uses
(HHᵀ + λI)⁻¹ = (I − H (HᵀH + λI)⁻¹ Hᵀ)/λ, in which digits cancel: rounding leaves
eps ‖H‖²/λ of the image, whatever the condition number. So the result is refined.

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

from functools import partial
from itertools import product

import numpy as np
import scipy
from numpy.typing import DTypeLike

from ..device import Array, Device, get_fft, get_xp, require_memory
from ..errors import SingularMatrixError
from ..linalg import cholesky, cholesky_solve
from ..operators import cosine_gpu
from ..operators.blur import Blur
from ..problem import FLOAT64, Direct, Factor, Problem, Scenes, peak
from ..threads import all_cores
from . import spectrum
from .refine import close_to_singular, refuse_singular, scenes_of
from .spectrum import SpectralFactor, Spectrum, cosine_symbol, quadrant, symbol_at


def refuses(problem: Problem) -> str | None:
    """Return None if a sine transform solves this blur exactly, else the reason in words."""
    blur = problem.blur
    if blur.boundary.transform not in ("sine", "antireflective"):
        return f"it serves boundaries 'zero' and 'antireflect', not {blur.boundary!r}"
    quarter = quadrant(blur)
    if quarter is None:
        return (
            "the PSF is not symmetric in each axis about its origin; point symmetry alone is not enough "
            "(Serra-Capizzano 2003)"
        )
    if not _antireflective(blur) and max(quarter.shape) > 2:
        return (
            "with boundary 'zero' the sine transform diagonalises the blur only if the PSF reaches one pixel "
            f"from its origin (3 x 3), and this one reaches {max(quarter.shape) - 1}"
        )
    if _antireflective(blur) and not problem.lam > 0:
        return "with boundary 'antireflect' it solves HᵀH + λI, which needs λ > 0"
    return None


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes as for any spectrum or, for antireflect, in float64, with the edge pixels' Cholesky factors."""
    if not _antireflective(problem.blur):
        return spectrum.memory(problem)
    image, factors = 8.0 * problem.blur.shape[0], 8.0 * sum(n * n for n in problem.blur.image_shape)
    return 4 * image + factors, 2.3 * image, 3 * image * problem.frames


def _antireflective(blur: Blur) -> bool:
    return blur.boundary.transform == "antireflective"


def decompose(blur: Blur, dtype: DTypeLike, device: Device) -> Spectrum:
    """Return the spectrum for boundary "zero"; ValueError for "antireflect", whose transform is not orthogonal."""
    if _antireflective(blur):
        raise ValueError(f"the sine transform gives no singular values for boundary {blur.boundary!r}")
    return blur.cached(("dst", np.dtype(dtype), device), lambda: SineSpectrum(blur, dtype, device))


def prepare(problem: Problem) -> Factor:
    """Compute the eigenvalues and, for antireflect, the edge pixels' Cholesky factors."""
    if _antireflective(problem.blur):
        return _Antireflective(problem)
    return SpectralFactor(decompose(problem.blur, problem.dtype, problem.device), problem)


class SineSpectrum(Spectrum):
    """The spectrum of a blur that is diagonal under the DST-I."""

    def __init__(self, blur: Blur, dtype: DTypeLike, device: Device) -> None:
        super().__init__(symbol_at(blur, [2 * (n + 1) for n in blur.image_shape], 1, dtype, device))
        self._device = device

    def analyse(self, x: Array, overwrite: bool = False) -> Array:
        if self._device.gpu is not None and cosine_gpu.serves(x, 2):
            return cosine_gpu.dst(x)
        return transformed(transformed(x, -2, overwrite), -1, overwrite=True)

    def synthesise(self, x: Array) -> Array:
        return self.analyse(x, overwrite=True)

    def filtered(self, g: Array, by: Array) -> Array:
        if self._device.gpu is not None and cosine_gpu.serves(g, 2):
            return cosine_gpu.dst(cosine_gpu.dst(g, by))
        return super().filtered(g, by)


def transformed(x: Array, axis: int, overwrite: bool = False) -> Array:
    """Return the orthonormal DST-I along an axis, which is its own inverse; `overwrite` lets it destroy x."""
    n, xp = x.shape[axis], get_xp(x)
    if n == 0:
        return x
    if xp is np:
        return scipy.fft.dst(x, type=1, axis=axis, norm="ortho", overwrite_x=overwrite)
    x = xp.moveaxis(x, axis, -1)  # cupyx has types 2 and 3 only
    zero = xp.zeros_like(x[..., :1])
    odd = xp.concatenate([zero, x, zero, -x[..., ::-1]], axis=-1)
    out = get_fft(xp).rfft(odd, axis=-1)[..., 1 : n + 1].imag * x.dtype.type(-np.sqrt(0.5 / (n + 1)))
    return xp.moveaxis(out, -1, axis)


class _Part:
    """The solver for coordinates of one parity along each axis: H = T Λ T⁻¹ on (1 + k, 1 + m) numbers.

    Row 0 and column 0 belong to the edge pixels, the rest to the interior.
    """

    def __init__(self, values: Array, lines: tuple[Array, Array], lam: float) -> None:
        # values (1 + k, 1 + m): the symbol at angle 0 and at the interior's angles; lines (k,) and (m,): the sine
        # coefficients of the straight lines.
        xp = get_xp(values)
        p, q = lines
        k, m = len(p), len(q)
        inner = values[1:, 1:]
        self._inverse = 1 / (inner**2 + lam)
        # B, the interior's response to the edge pixels: e0 x s_j and s_i x e0 respond in their own column or row of
        # coordinates, the corner pixel everywhere.
        by_cols = (values[:1, 1:] - inner) * p[:, None]
        by_rows = (values[1:, :1] - inner) * q
        corner = xp.zeros((1 + k, 1 + m))
        corner[0, 0] = 1
        corner = _transform(values * _transform(corner, p, q, -1), p, q, 1)
        w = lam * self._inverse
        n = 1 + m + k
        schur = xp.zeros((n, n))
        # The lower triangle, with edge unknowns in the order corner, row 0, column 0. First lam Bᵀ (Λ² + lam)⁻¹ B ...
        schur[0, 0] = (w * corner[1:, 1:] ** 2).sum()
        schur[1 : 1 + m, 0] = (w * corner[1:, 1:] * by_cols).sum(axis=0)
        schur[1 + m :, 0] = (w * corner[1:, 1:] * by_rows).sum(axis=1)
        edge = xp.arange(1, n)
        schur[edge, edge] = xp.concatenate([(w * by_cols**2).sum(axis=0), (w * by_rows**2).sum(axis=1)])
        schur[1 + m :, 1 : 1 + m] = w * by_cols * by_rows
        # ... then Eᵀ E + lam: E is diagonal except for the corner's column.
        down = xp.concatenate([corner[0, 1:], corner[1:, 0]])
        diagonal = xp.concatenate([values[0, 1:], values[1:, 0]])
        schur[0, 0] += corner[0, 0] ** 2 + (down**2).sum() + lam
        schur[1:, 0] += down * diagonal
        schur[edge, edge] += diagonal**2 + lam
        try:
            self._factor = cholesky(schur, overwrite_a=True, check_finite=False)
        except SingularMatrixError as error:
            raise SingularMatrixError(f"HᵀH + λI is singular to float64 ({error}); use a larger λ") from error
        self._values, self._p, self._q = values, p, q

    def forward(self, x: Array) -> Array:
        """Apply H to these coordinates."""
        return _transform(self._values * _transform(x, self._p, self._q, -1), self._p, self._q, 1)

    def adjoint(self, x: Array) -> Array:
        """Apply Hᵀ to these coordinates."""
        return _transform_t(self._values * _transform_t(x, self._p, self._q, 1), self._p, self._q, -1)

    def solve(self, b: Array) -> Array:
        """Return (HᵀH + λI)⁻¹ b: eliminate the interior, solve for the edge pixels, and substitute back."""
        xp = get_xp(b)
        x = xp.zeros_like(b)
        x[..., 1:, 1:] = b[..., 1:, 1:] * self._inverse
        # Eliminating the interior turns the edges' right-hand side into b_E − Bᵀ Λ (Λ² + λ)⁻¹ b_I.
        carried = self.adjoint(self.forward(x))
        e = xp.concatenate([(b - carried)[..., 0, :], (b - carried)[..., 1:, 0]], axis=-1)
        e = cholesky_solve(self._factor, e.T, check_finite=False).T
        cols = b.shape[-1]
        edges = xp.zeros_like(b)
        edges[..., 0, :], edges[..., 1:, 0] = e[..., :cols], e[..., cols:]
        x[..., 1:, 1:] -= self.adjoint(self.forward(edges))[..., 1:, 1:] * self._inverse
        return x + edges


def _transform(x: Array, p: Array, q: Array, sign: int) -> Array:
    """Apply T (sign 1) or T⁻¹ (sign -1) along both axes: add the edges' lines to the interior, or subtract them."""
    x = x.copy()
    x[..., 1:, :] += sign * p[:, None] * x[..., :1, :]
    x[..., :, 1:] += sign * q * x[..., :, :1]
    return x


def _transform_t(x: Array, p: Array, q: Array, sign: int) -> Array:
    """Apply the transpose of `_transform`."""
    x = x.copy()
    x[..., :, 0] += sign * (x[..., :, 1:] @ q)
    x[..., 0, :] += sign * (p @ x[..., 1:, :])
    return x


class _Antireflective(Direct):
    """The prepared solver for the antireflect boundary."""

    def __init__(self, problem: Problem) -> None:
        blur, xp = problem.blur, problem.xp
        what, instead = "Factoring the equations of the edge pixels", 'use method="pcg" instead'
        require_memory(int(peak(memory(problem))), xp, what, instead)
        self._problem = problem
        quarter = quadrant(blur)
        assert quarter is not None
        self._parts = []
        for (row_index, row_angles, p), (col_index, col_angles, q) in product(*map(_parities, blur.image_shape)):
            values = cosine_symbol(quarter, (row_angles, col_angles), problem.device)
            part = _Part(values, (xp.asarray(p), xp.asarray(q)), problem.lam)
            self._parts.append(((..., xp.asarray(row_index)[:, None], xp.asarray(col_index)), part))
        if close_to_singular(double := problem.computed_in(FLOAT64)):
            refuse_singular(double, blur.norm_bound**2, partial(self._solved, right=True), most=0.05)

    def _coordinates(self, x: Array) -> Array:
        """Transform images to the coordinates W, or back, in place: W is symmetric and orthogonal."""
        half = x.dtype.type(np.sqrt(0.5))
        for axis in (-2, -1):
            y = x.swapaxes(axis, -1)  # a view, through which x is changed
            if y.shape[-1] > 1:
                inner = x[..., 1:-1, :] if axis == -2 else x[..., 1:-1]
                y[..., 1:-1] = transformed(inner, axis).swapaxes(axis, -1)
                first, last = y[..., 0].copy(), y[..., -1].copy()
                y[..., 0], y[..., -1] = (first + last) * half, (first - last) * half
        return x

    def scenes(self, g: Array) -> Scenes:
        return scenes_of(self._problem, g, self._inverse) if self._problem.formula == "hht" else self._solved(g)

    @all_cores()
    def _solved(self, g: Array, right: bool = False) -> Array:
        """Return (HᵀH + λI)⁻¹ Hᵀg, or (HᵀH + λI)⁻¹ g if g is already a `right`-hand side."""
        # T is far from orthogonal: float32 loses too much.
        x = self._coordinates(g.reshape(-1, *self._problem.blur.image_shape).astype(FLOAT64))
        for index, part in self._parts:
            x[index] = part.solve(x[index] if right else part.adjoint(x[index]))
        return self._coordinates(x).reshape(g.shape).astype(g.dtype, copy=False)

    def _inverse(self, g: Array) -> Array:
        """Return (HHᵀ + λI)⁻¹ g."""
        return (g - self._problem.blur.forward(self._solved(g))) / self._problem.lam


def _parities(n: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return, for even and for odd vectors of n pixels, their coordinates, angles and the line's sine coefficients.

    Along an axis, the first coordinate is the sum of the edge pixels over √2 and the last one their difference over √2.
    Between them are the sine coefficients: odd-numbered ones belong to even vectors, even-numbered ones to odd vectors.
    """
    if n == 1:
        return [(np.zeros(1, dtype=int), np.zeros(1), np.zeros(0))]
    k = np.arange(1, n - 1)
    interior = 1 - 2 * k / (n - 1)
    out = []
    for edge, chosen, line in ((0, k[::2], np.ones(n - 2)), (n - 1, k[1::2], interior)):
        sines = np.sin(np.outer(chosen, k) % (2 * (n - 1)) * (np.pi / (n - 1)))
        coefficients = sines @ line / np.sqrt(n - 1)  # √(2/(n-1)) is the transform's factor, 1/√2 the edge's
        index = np.concatenate([[edge], chosen])
        out.append((index, np.concatenate([[0.0], np.pi * chosen / (n - 1)]), coefficients))
    return out

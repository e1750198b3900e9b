"""Krylov spaces: GMRES, and the Golub-Kahan bidiagonalisation, each for a stack of right-hand sides at once.

Conjugate gradients are in `deblur.linalg.krylov`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from ..device import Array, Device, get_xp, is_cupy, require_memory
from ..graphs import Repeated
from ..norms import norms
from ..operators.operator import Operator
from . import krylov_gpu

_EAGER = 2  # iterations of GMRES before it pays to capture one
_BLOCK = 16  # basis vectors are allocated in blocks of this many


def gmres(
    product: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    c: Array,
    finished: Callable[[int, np.ndarray], bool],
    limit: int,
    capture: bool = False,
) -> tuple[Array, int]:
    """GMRES with right preconditioning for a stack of right-hand sides, one Krylov space each.

    Parameters
    ----------
    product, precondition : callable
        (k, n) to (k, n).
    c : (k, n) array
    finished : callable
        Called with (iteration, residual norms (k,)); True ends the iteration.
    limit : int
        Most iterations.
    capture : bool
        Whether both, on a GPU, may be captured as a graph: they read nothing back, and keep what they use.

    Returns
    -------
    s : (k, n) array
    iterations : int
    """
    k, basis = len(c), _basis(c, limit)

    def both(v: Array) -> Array:
        return product(precondition(v))

    step = Repeated(both, _EAGER) if capture else both
    # The small matrices live on the host in float64: a few numbers an iteration. Givens rotations keep
    # the Hessenberg matrices triangular and rhs[:, j] the norm that is left.
    triangle = np.zeros((k, limit + 1, limit))
    rhs = np.zeros((k, limit + 1))
    rotations: list[tuple[np.ndarray, np.ndarray]] = []
    rhs[:, 0], j = basis.norm, 0
    while not finished(j, abs(rhs[:, j])) and j < limit:
        # A frame whose space is exhausted (norm 0) goes on with zeros, which change nothing.
        column = triangle[:, :, j]
        column[:, : j + 2] = basis.orthogonalise(step(basis.grow()))
        norm = column[:, j + 1].copy()
        for i, (cos, sin) in enumerate(rotations):
            upper = cos * column[:, i] + sin * column[:, i + 1]
            column[:, i + 1] = cos * column[:, i + 1] - sin * column[:, i]
            column[:, i] = upper
        length = np.hypot(column[:, j], norm)
        some = np.where(length > 0, length, 1)
        cos, sin = np.where(length > 0, column[:, j] / some, 1.0), norm / some
        rotations.append((cos, sin))
        column[:, j], column[:, j + 1] = some, 0
        rhs[:, j + 1], rhs[:, j] = -sin * rhs[:, j], cos * rhs[:, j]
        j += 1
    if j == 0:
        return get_xp(c).zeros_like(c), 0
    y = np.stack(
        [scipy.linalg.solve_triangular(t[:j, :j], r[:j]) for t, r in zip(triangle, rhs, strict=True)]
    )
    return precondition(basis.combination(y)), j


class _Basis:
    """An orthonormal basis for each frame, grown vector by vector from `c` (k, n) on.

    Attributes
    ----------
    norm : (k,) array
        Of `c`, on the host.
    """

    def __init__(self, c: np.ndarray, limit: int) -> None:
        k, n = c.shape
        self._all = np.empty((k, limit + 1, n), c.dtype)
        self._count, self._left = 0, c
        self.norm = self._size = norms(c)

    def grow(self) -> np.ndarray:
        """What the last vector has that is not in the basis, of norm 1, becomes a part of it; (k, n)."""
        inverse = 1 / np.where(self._size > 0, self._size, np.inf)
        v = self._all[:, self._count] = self._left * inverse.astype(self._left.dtype)[:, None]
        self._count += 1
        return v

    def orthogonalise(self, w: np.ndarray) -> np.ndarray:
        """Take from `w` what it has of the basis; (k, count + 1) coefficients, the norm of the rest last."""
        found = np.zeros((len(w), self._count + 1))
        for _ in range(2):  # classical Gram-Schmidt, twice
            v = self._all[:, : self._count]
            h = v @ w[:, :, None]
            w = w - (h.swapaxes(1, 2) @ v)[:, 0]
            found[:, :-1] += h[:, :, 0]
        self._left, self._size = w, norms(w)
        found[:, -1] = self._size
        return found

    def combination(self, y: np.ndarray) -> np.ndarray:
        """Σ y_i v_i, for y (k, count) on the host."""
        return (y.astype(self._all.dtype)[:, None] @ self._all[:, : y.shape[1]])[:, 0]


def _basis(c: Array, limit: int) -> _Basis | krylov_gpu.Basis:
    return krylov_gpu.Basis(c, limit) if is_cupy(c) else _Basis(c, limit)


class _GolubKahan:
    """The vectors of a bidiagonalisation: both bases, or the last vector of each."""

    def __init__(self, operator: Operator, g: np.ndarray, keep: bool) -> None:
        self._operator, self._keep = operator, keep
        self._v_blocks: list[np.ndarray] = []
        self._u_blocks: list[np.ndarray] = []
        self._steps, self._norm = 0, 0.0
        self._tiny = 8 * float(np.finfo(g.dtype).eps)
        self._beta, self._u = self._normalised(g, 0.0)
        self._alpha, self._v = self._normalised(operator.adjoint(self._u), 0.0)
        self._norm = float(self._alpha.max())
        self._store()

    def first(self) -> tuple[np.ndarray, np.ndarray]:
        """β_1 and α_1."""
        return self._beta, self._alpha

    def advance(self, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """So many steps more, one product with H and one with Hᵀ each: β and α of each."""
        return [self._step() for _ in range(count)]

    def _step(self) -> tuple[np.ndarray, np.ndarray]:
        kept = self._steps + 1
        u = self._operator.forward(self._v) - _times(self._alpha, self._u)
        u = self._orthogonalised(u, self._u_blocks, kept)
        self._beta, self._u = self._normalised(u, self._tiny * self._norm)
        v = self._operator.adjoint(self._u) - _times(self._beta, self._v)
        v = self._orthogonalised(v, self._v_blocks, kept)
        self._norm = max(self._norm, float(self._beta.max()))
        self._alpha, self._v = self._normalised(v, self._tiny * self._norm)
        self._norm = max(self._norm, float(self._alpha.max()))
        self._steps += 1
        self._store()
        return self._beta, self._alpha

    def combination(self, y: np.ndarray) -> np.ndarray:
        """Σ y_i v_i over the basis of scenes, (k, P, Q), for y (k, steps)."""
        f = np.zeros((len(y), self._v[0].size), self._v.dtype)
        for i, block in enumerate(self._v_blocks):
            part = y[:, i * _BLOCK : (i + 1) * _BLOCK].astype(f.dtype)
            f += (part[:, None, :] @ block[:, : part.shape[1]])[:, 0]
        return f.reshape(self._v.shape)

    def _normalised(self, x: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
        """The norms of the frames of `x`, and `x` divided by them; both zero where the norm is rounding."""
        norm = norms(x)
        norm *= norm > floor
        return norm, _times(1 / np.where(norm > 0, norm, np.inf), x)

    def _store(self) -> None:
        if not self._keep:
            return
        for blocks, x in ((self._u_blocks, self._u), (self._v_blocks, self._v)):
            at = self._steps % _BLOCK
            if at == 0:
                blocks.append(np.empty((len(x), _BLOCK, x[0].size), x.dtype))
            blocks[-1][:, at] = x.reshape(len(x), -1)

    def _orthogonalised(self, x: np.ndarray, blocks: list[np.ndarray], count: int) -> np.ndarray:
        flat = x.reshape(len(x), -1, 1)
        for i, block in enumerate(blocks):
            basis = block[:, : count - i * _BLOCK]
            flat = flat - basis.swapaxes(1, 2) @ (basis @ flat)
        return flat.reshape(x.shape)


class Bidiagonalization:
    """The Golub-Kahan bidiagonalisation of an operator, started from images and grown step by step.

    Parameters
    ----------
    operator : Operator
    g : (k, M, N) array
        The images; each has a bidiagonalisation of its own, all advance together.
    keep : bool
        Keep both bases and orthogonalise against them. False keeps no basis:
        B then comes from the short recurrences alone, which is enough for
        quadrature (the spectral measure of g), not for solutions.

    Attributes
    ----------
    steps : int
        Steps taken.
    norm : float
        The largest of both so far; ‖H‖ is at least that.
    alphas, betas : list of (k,) ndarray
        α_1 … α_{steps + 1} and β_1 … β_{steps + 1}, zero from where a frame's Krylov space is exhausted.
    """

    def __init__(self, operator: Operator, g: Array, keep: bool = True) -> None:
        self.vectors = (krylov_gpu.GolubKahan if is_cupy(g) else _GolubKahan)(operator, g, keep)
        self.steps = 0
        beta, alpha = self.vectors.first()
        self.betas, self.alphas, self.norm = [beta], [alpha], float(alpha.max())

    def step(self) -> None:
        """One step: a product with H and one with Hᵀ."""
        self.advance(1)

    def advance(self, count: int) -> None:
        """So many steps, at least one, or until every frame's Krylov space is exhausted."""
        together = (
            1 if isinstance(self.vectors, _GolubKahan) else count
        )  # a GPU is asked for its numbers once
        for _ in range(0, count, together):
            for beta, alpha in self.vectors.advance(together):
                if self.steps and self.exhausted:
                    return
                self.betas.append(beta)
                self.alphas.append(alpha)
                self.norm = max(self.norm, float(beta.max()), float(alpha.max()))
                self.steps += 1

    def ahead(self, count: int) -> None:
        """Let a GPU begin with so many steps to come."""
        if not isinstance(self.vectors, _GolubKahan):
            self.vectors.ahead(count)

    @property
    def exhausted(self) -> bool:
        """Whether every frame's Krylov space is used up: the small problem is then the whole problem."""
        return self.ended(slice(None))

    def ended(self, frames: slice) -> bool:
        """`exhausted`, of some frames."""
        return bool(np.all((self.alphas[-1][frames] == 0) | (self.betas[-1][frames] == 0)))

    def matrix(self, frame: int) -> np.ndarray:
        """B of one frame, (steps + 1, steps), float64."""
        k = self.steps
        b = np.zeros((k + 1, k))
        i = np.arange(k)
        b[i, i] = [a[frame] for a in self.alphas[:k]]
        b[i + 1, i] = [a[frame] for a in self.betas[1:]]
        return b

    def residuals(self, lam: float) -> tuple[np.ndarray, np.ndarray]:
        """‖Hᵀ(g − Hf) − λf‖ and ‖f‖ of every frame for f = V y at this λ, known without a product."""
        left, sizes = np.zeros((2, len(self.betas[0])))
        for frame, scale in enumerate(self.alphas[0] * self.betas[0]):
            if scale > 0:
                # O(k): the tridiagonal BᵀB + λI; good enough to stop by, `coefficients` solves afresh.
                a = np.array([x[frame] for x in self.alphas[: self.steps]])
                b = np.array([x[frame] for x in self.betas[1:]])
                band = np.zeros((2, self.steps))
                band[1] = a * a + b * b + lam
                band[0, 1:] = b[:-1] * a[1:]
                band[1] += band[1] == 0  # what lies beyond an exhausted space
                y = np.zeros(self.steps)
                y[0] = scale
                y = scipy.linalg.solveh_banded(band, y) if self.steps > 1 else y / band[1]
                left[frame], sizes[frame] = self.alphas[-1][frame] * b[-1] * abs(y[-1]), np.linalg.norm(y)
        return left, sizes

    def residual(self, lam: float) -> float:
        """The largest ‖Hᵀ(g − Hf) − λf‖ / ‖Hᵀg‖ of the frames."""
        scale = self.alphas[0] * self.betas[0]
        return float((self.residuals(lam)[0] / np.where(scale > 0, scale, 1.0)).max())

    def coefficients(self, lam: float) -> np.ndarray:
        """y of every frame, (k, steps), float64: the small least-squares problem through its SVD."""
        out = []
        for frame in range(len(self.betas[0])):
            p, s, qt = np.linalg.svd(self.matrix(frame), full_matrices=False)
            denominator = s * s + lam
            weights = s / (denominator + (denominator == 0))
            out.append((weights * p[0] * self.betas[0][frame]) @ qt)
        return np.array(out)

    def scene(self, lam: float) -> Array:
        """f = V y, (k, P, Q): the Tikhonov solution at this λ in the space spanned so far."""
        return self.vectors.combination(self.coefficients(lam))

    def measure(self, frames: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """The spectral measure of g that B knows: Ritz values of HHᵀ and the squared parts of g at them.

        Sums of a function of HHᵀ over it, Σ weight · φ(value), are the Gauss quadrature of
        gᵀ φ(HHᵀ) g (Golub & von Matt, J. Comput. Graph. Stat. 6 (1997) 1-34). All frames together, or some.
        """
        values, weights = [], []
        for frame in range(len(self.betas[0]))[frames]:
            a = np.array([x[frame] for x in self.alphas[: self.steps]] + [0.0])
            b = np.array([x[frame] for x in self.betas[: self.steps + 1]])
            squares = a * a
            squares[1:] += b[1:] ** 2
            found, p = scipy.linalg.eigh_tridiagonal(squares, a[:-1] * b[1:])  # of BBᵀ
            values.append(np.maximum(found[::-1], 0.0))
            weights.append((b[0] * p[0, ::-1]) ** 2)
        return np.concatenate(values), np.concatenate(weights)


def _times(factors: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Each frame of `x` by its own number."""
    return x * factors.astype(x.dtype)[:, None, None]


def require_bases(operator: Operator, steps: int, frames: int, dtype: Any, device: Device) -> None:
    """Raise InsufficientMemoryError if `steps` pairs of basis vectors would not fit."""
    numbers = math.prod(operator.image_shape) + math.prod(operator.scene_shape)
    needed = (steps + 1 + _BLOCK) * numbers * frames * np.dtype(dtype).itemsize
    require_memory(
        needed,
        device.xp,
        f"A bidiagonalisation of {steps} steps, which keeps {steps} images and scenes a frame,",
        "give a smaller max_iterations or a larger λ, or use method 'pcg', which keeps five",
    )

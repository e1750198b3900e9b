"""Krylov methods: GMRES and Golub-Kahan bidiagonalisation, each for a stack of right-hand sides at once.

Conjugate gradients are in `deblur.linalg.krylov`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy

from ..device import Array, Map, asnumpy, get_xp, is_cupy
from ..graphs import Repeated
from ..operators.operator import Operator
from ..vector_ops import Record, frame_vectors

_BLOCK = 16  # number of basis vectors that are allocated at once


def gmres(
    product: Map, precondition: Map, c: Array, finished: Callable[[int, np.ndarray], bool], limit: int, capture: bool
) -> tuple[Array, int]:
    """Solve with GMRES and right preconditioning for a stack of right-hand sides, each with its own Krylov space.

    Parameters
    ----------
    product, precondition : callable
        Maps from (k, n) to (k, n).
    c : (k, n) array
    finished : callable
        ``finished(iteration, residual norms (k,))``; True ends the iteration.
    limit : int
        Largest number of iterations.
    capture : bool
        Whether a GPU may capture both callables as a graph: they read nothing back and reuse their memory.

    Returns
    -------
    s : (k, n) array
    iterations : int
    """
    k, basis = len(c), _Basis(c, limit)

    def both(v: Array) -> Array:
        return product(precondition(v))

    step = Repeated(both, 2) if capture else both
    # The small matrices live on the host in float64: an iteration reads few numbers. For the row w that begins with 1
    # and satisfies w H = 0 with the Hessenberg matrix H, the residual norm is ‖c‖ / ‖w‖.
    hessenberg, w, j = np.zeros((k, limit + 1, limit)), np.eye(1, limit + 1).repeat(k, axis=0), 0
    while not finished(j, basis.norm / np.linalg.norm(w, axis=1)) and j < limit:
        # A frame whose Krylov space is exhausted (norm 0) continues with zeros, which change nothing.
        hessenberg[:, : j + 2, j] = column = basis.orthogonalise(step(basis.grow()))
        seen = (column[:, :-1] * w[:, : j + 1]).sum(axis=1)
        w[:, j + 1] = (-seen / np.maximum(column[:, -1], 1e-100)).clip(-1e150, 1e150)
        j += 1
    if j == 0:
        return get_xp(c).zeros_like(c), 0
    q, r = np.linalg.qr(hessenberg[:, : j + 1, :j])
    y = np.linalg.solve(r + np.eye(j) * (r == 0), q[:, 0, :, None] * basis.norm[:, None, None])
    return precondition(basis.combination(y[..., 0])), j


class _Basis:
    """An orthonormal basis for each frame, which grows vector by vector, starting from `c` (k, n).

    Attributes
    ----------
    norm : (k,) array
        Norms of `c`, on the host.
    """

    def __init__(self, c: Array, limit: int) -> None:
        (k, n), xp = c.shape, get_xp(c)
        self._ops = frame_vectors(c, k, n, limit + 1)
        self._all, self._count = xp.empty((k, limit + 1, n), c.dtype), 0
        # The squared norm of the last vector's remainder outside the basis, and the coefficients of two projections.
        self._report = xp.zeros((2 * (limit + 1) + 1, k))
        self._rest = self._ops.subtract(c.copy(), self._all, self._report[:0], self._report[0])
        self.norm = np.sqrt(asnumpy(self._report[0]))

    def grow(self) -> Array:
        """Normalise the last vector's remainder, add it to the basis, and return it, (k, n)."""
        v = self._all[:, self._count]
        self._ops.scale(self._rest, self._report[0], v)
        self._count += 1
        return v

    def orthogonalise(self, w: Array) -> np.ndarray:
        """Subtract from `w` its projection; return the coefficients (k, count + 1), the norm of the remainder last."""
        j, w = self._count, get_xp(w).ascontiguousarray(w)
        for turn in (1, 2):  # classical Gram-Schmidt, twice
            h = self._report[turn : 2 * j + 1 : 2]
            self._ops.project(self._all, w, h)
            w = self._ops.subtract(w, self._all, h, self._report[0] if turn == 2 else None)
        self._rest, found = w, asnumpy(self._report[: 2 * j + 1])
        return np.concatenate([found[1::2] + found[2::2], np.sqrt(found[:1])]).T

    def combination(self, y: np.ndarray) -> Array:
        """Return Σ y_i v_i over the basis vectors v_i, for y (k, count) on the host."""
        xp = get_xp(self._all)
        return self._ops.subtract(xp.zeros_like(self._rest), self._all, xp.asarray(np.ascontiguousarray(-y.T)))


class Bidiagonalization:
    """The Golub-Kahan bidiagonalisation of an operator, started from images and grown step by step.

    Parameters
    ----------
    operator : Operator
    g : (k, M, N) or (k, C, M, N) array
        The images, with channels if the operator mixes them. Each has its own bidiagonalisation, and all advance
        together.
    keep : bool
        Whether to keep both bases and orthogonalise against them. Without bases, B
        comes from the short recurrences alone. This is accurate enough for
        quadrature (the spectral measure of g), but not for solutions. On a GPU a step
        without bases is captured once and replayed.

    Attributes
    ----------
    steps : int
        Steps taken.
    norm : float
        The largest entry of B so far, a lower bound of ‖H‖.
    alphas, betas : list of (k,) ndarray
        α_1 … α_{steps + 1} and β_1 … β_{steps + 1}; zero once a frame's Krylov space is exhausted.
    """

    def __init__(self, operator: Operator, g: Array, keep: bool = True) -> None:
        k, xp = len(g), get_xp(g)
        self._operator, self._keep = operator, keep
        # Side 0 has the images and side 1 the scenes: the last vector of each and, with `keep`, both bases.
        self._shapes = (g.shape[1:], (*g.shape[1 : -len(operator.image_shape)], *operator.scene_shape))
        sizes = [math.prod(shape) for shape in self._shapes]
        self._last = [xp.empty((k, n), g.dtype) for n in sizes]
        self._bases: tuple[list[Array], list[Array]] = ([], [])
        # The FFT plans of an operator with one PSF are cached, so a step can be captured.
        self._ops = frame_vectors(g, k, max(sizes), _BLOCK, lambda: not keep and operator.shift_invariant is not None)
        self._squared, self._h = xp.zeros(k), xp.zeros((_BLOCK, k))
        self._record, self._tiny = Record(k, xp), 8 * float(np.finfo(g.dtype).eps)
        self.steps, self._submitted = 0, 0  # steps whose norms were read, and steps submitted to the device
        self._recur(0, g, None)
        self._settle(0, first=True)
        self._recur(1, operator.adjoint(self._images(0)), None)
        self._settle(1, first=True)
        beta, alpha = asnumpy(self._record.log)[0]
        self.betas, self.alphas, self.norm = [beta.copy()], [alpha.copy()], float(alpha.max())

    def advance(self, count: int = 1) -> None:
        """Take `count` steps, at least one, unless every frame's Krylov space is exhausted before.

        A step costs one product with H and one with Hᵀ.
        """
        # The host reads a GPU's norms as rarely as possible.
        together = Record.LOG if is_cupy(self._squared) else 1
        last = self.steps + count
        while self.steps < last:
            now = min(last - self.steps, together)
            self._submit(now)
            log = asnumpy(self._record.log)
            for at in range(self.steps + 1, self.steps + 1 + now):
                if self.steps and self.ended():
                    return
                beta, alpha = log[at % Record.LOG].copy()
                self.betas.append(beta)
                self.alphas.append(alpha)
                self.norm = max(self.norm, float(beta.max()), float(alpha.max()))
                self.steps += 1

    def ahead(self, count: int) -> None:
        """Let a GPU begin with `count` further steps, without waiting for it."""
        if is_cupy(self._squared) and not (self.steps and self.ended()):
            self._submit(count)

    def _submit(self, count: int) -> None:
        """Submit up to `count` further steps to the device."""
        while self._submitted < self.steps + min(count, Record.LOG):
            self._ops.loop(self._advance)
            self._submitted += 1

    def _advance(self) -> None:
        for side in range(2):
            images = self._images(1 - side)
            seen = self._operator.adjoint(images) if side else self._operator.forward(images)
            self._recur(side, seen, self._last[side])
            for i, block in enumerate(self._bases[side]):
                h = self._h[: self._submitted + 1 - i * _BLOCK]
                self._ops.project(block, self._last[side], h)
                self._last[side] = self._ops.subtract(self._last[side], block, h, self._squared)
            self._settle(side)

    def _images(self, side: int) -> Array:
        return self._last[side].reshape(-1, *self._shapes[side])

    def _recur(self, side: int, x: Array, old: Array | None) -> None:
        """Subtract α (or β) times the previous vector from the product x."""
        if self._keep and old is not None:  # the previous vector belongs to the basis and must stay
            self._last[side] = get_xp(x).empty(old.shape, old.dtype)
        self._ops.recur(self._last[side], x, self._record.norms[1 - side], old, self._squared)

    def _settle(self, side: int, first: bool = False) -> None:
        """Divide the last vector by its norm, and add it to the basis."""
        out = w = self._last[side]
        self._ops.settle(self._squared, self._tiny, side, first, self._record)
        if self._keep:
            bases, at = self._bases[side], 0 if first else (self._submitted + 1) % _BLOCK
            if at == 0:
                bases.append(get_xp(w).empty((len(w), _BLOCK, w.shape[1]), w.dtype))
            out = bases[-1][:, at]
        self._ops.scale(w, self._squared, out)
        self._last[side] = out

    def ended(self, frames: slice = slice(None)) -> bool:
        """Return whether the Krylov spaces of these frames are exhausted: the small problem then is the whole one."""
        return bool(np.all((self.alphas[-1][frames] == 0) | (self.betas[-1][frames] == 0)))

    def matrices(self) -> np.ndarray:
        """Return B of every frame, (k, steps + 1, steps), in float64."""
        i = np.arange(self.steps)
        b = np.zeros((len(self.betas[0]), self.steps + 1, self.steps))
        b[:, i, i], b[:, i + 1, i] = np.array(self.alphas[: self.steps]).T, np.array(self.betas[1:]).T
        return b

    def residuals(self, lam: float) -> tuple[np.ndarray, np.ndarray]:
        """Return ‖Hᵀ(g − Hf) − λf‖ and ‖f‖ of every frame for the solution f = V y at λ, without a product with H."""
        left, sizes = np.zeros((2, len(self.betas[0])))
        a, b = np.array(self.alphas[: self.steps]).T, np.array(self.betas).T
        for frame in np.flatnonzero(self.alphas[0] * self.betas[0]):
            # O(k): the equations √λ u + B y = β₁ e₁ and Bᵀu = √λ y, with rows interleaved, are tridiagonal and regular.
            band = np.zeros((3, 2 * self.steps + 1))
            band[0, 1::2] = band[2, :-1:2] = a[frame]
            band[0, 2::2] = band[2, 1:-1:2] = b[frame, 1:]
            band[1, ::2], band[1, 1::2] = math.sqrt(lam), -math.sqrt(lam)
            y = scipy.linalg.solve_banded((1, 1), band, np.eye(1, band.shape[1])[0] * b[frame, 0])[1::2]
            left[frame], sizes[frame] = self.alphas[-1][frame] * b[frame, -1] * abs(y[-1]), np.linalg.norm(y)
        return left, sizes

    def scene(self, lam: float) -> Array:
        """Return f = V y, (k, P, Q) or (k, C, P, Q): the Tikhonov solution for λ in the space spanned so far."""
        p, s, qt = np.linalg.svd(self.matrices(), full_matrices=False)
        weights = s / (s * s + lam) * p[:, 0] * self.betas[0][:, None]
        y = (weights[:, None] @ qt)[:, 0]
        k, n, xp = len(y), self._last[1].shape[1], get_xp(self._squared)
        f = xp.zeros((k, n), self._last[1].dtype)
        for i, block in enumerate(self._bases[1]):
            h = xp.asarray(np.ascontiguousarray(-y.T[i * _BLOCK : (i + 1) * _BLOCK]))
            f = self._ops.subtract(f, block, h)
        return f.reshape(k, *self._shapes[1])

    def measure(self, frames: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return the spectral measure of g by B: Ritz values of HHᵀ, and the squared parts of g that belong to them.

        Σ weight · φ(value) is the Gauss quadrature of gᵀ φ(HHᵀ) g for a function φ (Golub & von Matt, J. Comput. Graph.
        Stat. 6 (1997) 1-34). The measures of the frames are concatenated.
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


def vectors(steps: int) -> int:
    """Return the number of vectors that each basis has room for after `steps` steps."""
    return -(-(steps + 1) // _BLOCK) * _BLOCK

"""The vector operations of Krylov iterations, in NumPy and by CUDA kernels.

The loops of the iterations are in `deblur.linalg.krylov` and `deblur.solvers.krylov`; they do not depend on the array
library. `Systems` and `SystemsGPU` (``cuda/conjugate.cu``) hold the vectors of conjugate gradients. `Frames` and
`FramesGPU` (``cuda/krylov.cu``) work on bases of Krylov spaces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import kernels
from .device import Array, cupy, get_xp, is_cupy
from .graphs import Loop
from .norms import contiguous, norms
from .pixelwise import planes_of

# ---------------------------------------------------------------- conjugate gradients


class Systems:
    """The vectors of conjugate gradients for one solve, with the operations of the array library.

    Parameters
    ----------
    dot : callable
        The inner product. If it returns a number, all vectors form one system. If it returns an array, with length 1
        along the summed axes, each entry of it is a separate system with its own steps. A solved system does not change
        any more.
    measure : callable, optional
        A function of `Systems` that returns the number to compare with the tolerance. It is called before the first
        iteration and after each one. By default it is the largest relative residual of all systems.

    Attributes
    ----------
    x, r, p : array
        The iterate, the residual b − A x, and the last direction. They change in place.
    alpha : number or array
        The length of the last step, alpha·p; 0 before the first iteration.
    rz : number or array
        ⟨r, M r⟩, an estimate of the squared error in the energy norm, in the shape that `dot` returns.
    """

    def __init__(self, dot: Callable[[Array, Array], Any], measure: Callable[[Any], float] | None = None) -> None:
        self._dot, self._measure = dot, measure

    def begin(self, b: Array, x: Array, r: Array) -> None:
        """Start from x with r = b − A x; the iteration overwrites both arrays."""
        xp = get_xp(b)
        self.x, self.r, self.p, self._b = x, r, xp.zeros_like(b), b
        self.alpha = self._beta = self.rz = 0.0
        if self._measure is None:
            size = xp.sqrt(self._dot(b, b))
            self._size = size + (size == 0)

    def direction(self) -> Array:
        """Return the next direction, which `aim` has prepared."""
        self.p *= self._beta
        self.p += self._z
        del self._z  # free the memory before A p
        return self.p

    def advance(self, ap: Array) -> None:
        """Move x to the minimum along p, given A p."""
        curvature = self._dot(self.p, ap)
        self.alpha = self.rz / (curvature + (curvature == 0))
        self.x += self.p * self.alpha
        self.r -= ap * self.alpha

    def aim(self, z: Array) -> None:
        """Prepare the next direction from z = M r."""
        before, self.rz = self.rz, self._dot(self.r, z)
        self._beta, self._z = self.rz / (before + (before == 0)), z

    def residual(self) -> float:
        """Return the number to compare with the tolerance."""
        if self._measure is not None:
            return self._measure(self)
        return float((get_xp(self.r).sqrt(self._dot(self.r, self.r)) / self._size).max())

    def sums(self) -> np.ndarray:
        """Return ‖r‖², ⟨x, b + r⟩, ‖p‖², ‖x‖² and alpha of each system, (5, systems), on the host."""
        x, r, p = self.x, self.r, self.p
        found = [self._dot(r, r), self._dot(x, self._b + r), self._dot(p, p), self._dot(x, x)]
        return np.stack([*found, np.broadcast_to(self.alpha, found[0].shape)]).reshape(5, -1)

    def loop(self, step: Callable[[], None]) -> None:
        """Run a step."""
        step()


class SystemsGPU(Systems):
    """`Systems` on a GPU, with a system for each frame and channel (k, c, P, Q) and four launches per iteration.

    Parameters
    ----------
    measure : callable
        As for `Systems`; it can read `sums`.
    capture : bool
        True if the products may be captured as a graph: they read nothing back, and their arrays stay alive.
    """

    def __init__(self, measure: Callable[[Any], float], capture: bool) -> None:
        self._measure, self._loop = measure, Loop(3, capture)

    def begin(self, b: Array, x: Array, r: Array) -> None:
        self._b, self.x, self.r = map(contiguous, (b, x, r))
        self.p, systems = cupy.zeros_like(self.x), b.shape[0] * b.shape[1]
        self._n = b.size // systems
        self._at = kernels.Constants("conjugate")
        self._control = cupy.zeros((systems, self._at.CONTROL), np.float64)
        self._sum = kernels.Reduction("conjugate", self._n, 4, systems)
        self._move(self._b)  # alpha is 0: this only computes the sums

    def direction(self) -> Array:
        return self.p

    def advance(self, ap: Array) -> None:
        ap = contiguous(ap)
        self._sum.launch("curve", self.p, ap, self._n, self._control, dtype=self.x.dtype)
        self._move(ap)

    def _move(self, ap: Array) -> None:
        vectors = (self.x, self.r, self.p, ap, self._b)
        self._sum.launch("advance", *vectors, self._n, self._control, dtype=self.x.dtype)

    def aim(self, z: Array) -> None:
        systems = len(self._control)
        if z.size // systems != math.prod(z.shape[-2:]):  # a volume: stack its planes as rows
            z = get_xp(z).ascontiguousarray(z).reshape(systems, -1, z.shape[-1])
        planes, ld, stride = planes_of(z)
        z_args = (planes, ld, stride, *planes.shape[1:], self._n, self._control)
        self._sum.launch("energy", self.r, *z_args, dtype=self.x.dtype)
        grid = (self._sum.blocks, len(self._control))
        kernels.launch("conjugate", "turn", grid, self._at.THREADS, self.p, *z_args, dtype=self.x.dtype)

    def loop(self, step: Callable[[], None]) -> None:
        self._loop(step)

    def sums(self) -> np.ndarray:
        at = self._at
        return self._control.get()[:, [at.RESIDUAL, at.VALUE, at.MOVED, at.SIZE, at.ALPHA]].T


def image_systems(b: Array, measure: Callable[[np.ndarray], float], capture: bool) -> Systems:
    """Return the vectors of a system for each frame and channel of b (k, c, P, Q); `measure` is a function of
    `Systems.sums`.
    """

    def by_sums(at: Systems) -> float:
        return measure(at.sums())

    if is_cupy(b):
        return SystemsGPU(by_sums, capture)
    every = [*range(b.ndim)]
    one = (1,) * (b.ndim - 2)
    return Systems(lambda x, y: np.einsum(x, every, y, every, [0, 1]).reshape(*x.shape[:2], *one), by_sums)


# ---------------------------------------------------------------- bases of Krylov spaces


class Frames:
    """Operations on vectors (k, n), one for each frame, and on bases (k, vectors, n).

    The coefficients `h` are (count, k), for the first `count` vectors of a basis. Squared norms are (k,). Both are
    float64, on the device of the vectors.
    """

    def project(self, basis: Array, w: Array, h: Array) -> None:
        """Set h to the inner products of w with the vectors of the basis."""
        h[...] = (basis[:, : len(h)] @ w[:, :, None])[:, :, 0].T

    def subtract(self, w: Array, basis: Array, h: Array, squared: Array | None = None) -> Array:
        """Return w − Σ h_i v_i, which may overwrite w, and set `squared` to its squared norm."""
        w = w - (h.T.astype(w.dtype)[:, None] @ basis[:, : len(h)])[:, 0]
        if squared is not None:
            squared[...] = norms(w) ** 2
        return w

    def recur(self, out: Array, x: Array, factor: Array, old: Array | None, squared: Array) -> None:
        """Set out = x − factor · old for images x, and `squared` to its squared norm; `old` may be `out`, or None for
        zero.
        """
        images = out.reshape(x.shape)
        if old is None:
            images[...] = x
        else:
            np.multiply(old, -factor.astype(out.dtype)[:, None], out=out)
            images += x
        squared[...] = norms(out) ** 2

    def scale(self, w: Array, squared: Array, out: Array) -> None:
        """Set `out` to w divided by its norm, or to zero if the norm is zero."""
        np.multiply(w, (1 / np.sqrt(np.where(squared > 0, squared, np.inf))).astype(w.dtype)[:, None], out=out)

    def settle(self, squared: Array, tiny: float, side: int, first: bool, record: Record) -> None:
        """Store norms in the record; a norm of at most `tiny` times the largest so far becomes zero."""
        norm = np.sqrt(squared)
        norm *= norm > (0 if first else tiny * record.scalars[0])
        record.log[int(record.scalars[1]) % len(record.log), side] = record.norms[side] = norm
        squared[...] = norm * norm
        if side or not first:
            record.scalars[0] = max(record.scalars[0], norm.max())
        record.scalars[1] += side

    def loop(self, step: Callable[[], None]) -> None:
        """Run a step."""
        step()


class Record:
    """The norms of a bidiagonalisation: side 0 is β of images, side 1 is α of scenes.

    Attributes
    ----------
    norms : (2, k) array
        The last norms of each side.
    scalars : (2,) array
        The largest norm so far, and the number of steps.
    log : (LOG, 2, k) array
        The norms of the last LOG steps.
    """

    LOG = 64

    def __init__(self, k: int, xp: Any) -> None:
        self.norms, self.scalars, self.log = xp.zeros((2, k)), xp.zeros(2), xp.zeros((self.LOG, 2, k))


class FramesGPU:
    """`Frames` on a GPU.

    Parameters
    ----------
    k, n, most : int
        Number of frames, length of the longest vector, and number of vectors in the largest basis.
    dtype : dtype
        The dtype of the vectors.
    capture : bool
        True if a step may be captured as a graph.
    """

    def __init__(self, k: int, n: int, most: int, dtype: np.dtype, capture: bool) -> None:
        self.loop = Loop(1, capture)
        self._real, self._blocks = dtype, kernels.blocks("krylov", n, k, per_multiprocessor=4)
        self._room = cupy.empty(k * most * self._blocks, np.float64), cupy.zeros(k * most, np.uint32)

    def project(self, basis: Array, w: Array, h: Array) -> None:
        args = (*_apart(basis), w, w.shape[1], *_apart(h), *self._room)
        self._launch("project", (self._blocks, len(h), len(w)), *args)

    def subtract(self, w: Array, basis: Array, h: Array, squared: Array | None = None) -> Array:
        args = (w, *_apart(basis), len(h), w.shape[1], *_apart(h), squared, *self._room)
        self._launch("subtract", (self._blocks, len(w)), *args)
        return w

    def recur(self, out: Array, x: Array, factor: Array, old: Array | None, squared: Array) -> None:
        if x.ndim != 3:  # with channels, or vectors
            x = get_xp(x).ascontiguousarray(x).reshape(len(x), -1, x.shape[-1])
        x, ld, stride = planes_of(x)
        before = (None, 0) if old is None else _apart(old)
        args = (out, x, ld, stride, x.shape[2], out.shape[1], factor, *before, squared, *self._room)
        self._launch("recur", (self._blocks, len(out)), *args)

    def scale(self, w: Array, squared: Array, out: Array) -> None:
        self._launch("scaled", (self._blocks, len(w)), w, squared, w.shape[1], *_apart(out))

    def settle(self, squared: Array, tiny: float, side: int, first: bool, record: Record) -> None:
        args = (squared, len(squared), tiny, side, first, record.norms[side], record.scalars, record.log)
        self._launch("settle", (1,), *args)

    def _launch(self, name: str, grid: tuple[int, ...], *args: Any) -> None:
        kernels.launch("krylov", name, grid, kernels.Constants("krylov").THREADS, *args, dtype=self._real)


def _apart(a: Array) -> tuple[Array, int]:
    """Return an array of rows or stacks, and the number of elements between the starts of two of them."""
    return a, a.strides[0] // a.itemsize


def frame_vectors(like: Array, k: int, n: int, most: int, capture: Callable[[], bool] = bool) -> Frames | FramesGPU:
    """Return the operations for arrays like `like`; see `FramesGPU`."""
    return FramesGPU(k, n, most, like.dtype, capture()) if is_cupy(like) else Frames()

"""Vector operations of the Krylov iterations, once in NumPy and once by our CUDA kernels.

The loops are written once, in `deblur.linalg.krylov` and `deblur.solvers.krylov`; they know no array library.
`Systems` and `SystemsGPU` (``cuda/conjugate.cu``) hold the vectors of conjugate gradients, `Frames` and `FramesGPU`
(``cuda/krylov.cu``) work on bases of Krylov spaces.
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

# ---------------------------------------------------------------- conjugate gradients


class Systems:
    """The vectors of conjugate gradients for one solve, by the array library's own operations.

    Parameters
    ----------
    dot : callable
        The inner product, on the host or not. One that gives a number makes one system of everything. One that gives an
        array, with length 1 along the axes it sums over, makes a system of its own of each entry, with
        steps of its own; a system that is solved stands still.
    measure : callable, optional
        `Systems` ↦ what is compared with the tolerance, called before the first iteration and after each.
        By default the relative residual, the largest of all systems.

    Attributes
    ----------
    x, r, p : array
        The iterate, b − A x, and the direction along which x was moved last. They change in place.
    alpha : number or array
        x was moved by alpha·p last; 0 before the first iteration.
    rz : number or array
        ⟨r, M r⟩, an estimate of the squared error in the energy norm, in the shape that `dot` gives.
    """

    def __init__(self, dot: Callable[[Array, Array], Any], measure: Callable[[Any], float] | None = None) -> None:
        self._dot, self._measure = dot, measure

    def begin(self, b: Array, x: Array, r: Array) -> None:
        """Start from x, with r = b − A x; both become the iteration's own."""
        xp = get_xp(b)
        self.x, self.r, self.p, self._b = x, r, xp.zeros_like(b), b
        self.alpha = self._beta = self.rz = 0.0
        if self._measure is None:
            size = xp.sqrt(self._dot(b, b))
            self._size = size + (size == 0)

    def direction(self) -> Array:
        """The next direction, from what `aim` was given."""
        self.p *= self._beta
        self.p += self._z
        del self._z  # before A p takes memory
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
        """What is compared with the tolerance."""
        if self._measure is not None:
            return self._measure(self)
        return float((get_xp(self.r).sqrt(self._dot(self.r, self.r)) / self._size).max())

    def sums(self) -> np.ndarray:
        """‖r‖², ⟨x, b + r⟩, ‖p‖², ‖x‖² and alpha of each system, (5, systems)."""
        x, r, p = self.x, self.r, self.p
        found = [self._dot(r, r), self._dot(x, self._b + r), self._dot(p, p), self._dot(x, x)]
        return np.stack([*found, np.broadcast_to(self.alpha, found[0].shape)]).reshape(5, -1)

    def loop(self, step: Callable[[], None]) -> None:
        """Do a step."""
        step()


class SystemsGPU(Systems):
    """As `Systems`, a system for each frame and channel (k, c, P, Q): four launches an iteration.

    Parameters
    ----------
    measure : callable
        As for `Systems`; `sums` is what it can read.
    capture : bool
        Whether the products may be captured as a graph: they read nothing back, and keep what they use.
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
        self._move(self._b)  # by nothing: for the sums

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
        if z.size // systems != math.prod(z.shape[-2:]):  # volumes: slices below one another
            z = get_xp(z).ascontiguousarray(z).reshape(systems, -1, z.shape[-1])
        planes, ld, stride = kernels.images(z)
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
    """A system for each frame and channel of b (k, c, P, Q), measured by what `Systems.sums` gives."""

    def by_sums(at: Systems) -> float:
        return measure(at.sums())

    if is_cupy(b):
        return SystemsGPU(by_sums, capture)
    every = [*range(b.ndim)]
    one = (1,) * (b.ndim - 2)
    return Systems(lambda x, y: np.einsum(x, every, y, every, [0, 1]).reshape(*x.shape[:2], *one), by_sums)


# ---------------------------------------------------------------- bases of Krylov spaces


class Frames:
    """Operations on vectors (k, n), one a frame, and bases (k, vectors, n) of them.

    Coefficients `h` are (count, k), of the first `count` vectors of a basis, and squared norms (k,): both
    float64, and where the vectors are.
    """

    def project(self, basis: Array, w: Array, h: Array) -> None:
        """h = the inner products of w with vectors of the basis."""
        h[...] = (basis[:, : len(h)] @ w[:, :, None])[:, :, 0].T

    def subtract(self, w: Array, basis: Array, h: Array, squared: Array | None = None) -> Array:
        """w less Σ h_i v_i, which may be in w's place, and its squared norm."""
        w = w - (h.T.astype(w.dtype)[:, None] @ basis[:, : len(h)])[:, 0]
        if squared is not None:
            squared[...] = norms(w) ** 2
        return w

    def recur(self, out: Array, x: Array, factor: Array, old: Array | None, squared: Array) -> None:
        """out = x − factor · old for images x, and its squared norm; `old` may be `out`, or None for nothing."""
        images = out.reshape(x.shape)
        if old is None:
            images[...] = x
        else:
            np.multiply(old, -factor.astype(out.dtype)[:, None], out=out)
            images += x
        squared[...] = norms(out) ** 2

    def scale(self, w: Array, squared: Array, out: Array) -> None:
        """out = w over its norm, or zero where that is zero."""
        np.multiply(w, (1 / np.sqrt(np.where(squared > 0, squared, np.inf))).astype(w.dtype)[:, None], out=out)

    def settle(self, squared: Array, tiny: float, side: int, first: bool, record: Record) -> None:
        """Take the norms into the record, as zero where they are at most `tiny` of the largest so far."""
        norm = np.sqrt(squared)
        norm *= norm > (0 if first else tiny * record.scalars[0])
        record.log[int(record.scalars[1]) % len(record.log), side] = record.norms[side] = norm
        squared[...] = norm * norm
        if side or not first:
            record.scalars[0] = max(record.scalars[0], norm.max())
        record.scalars[1] += side

    def loop(self, step: Callable[[], None]) -> None:
        """Do a step."""
        step()


class Record:
    """The norms of a bidiagonalisation: side 0 is β of images, side 1 α of scenes.

    Attributes
    ----------
    norms : (2, k) array
        The last of each side.
    scalars : (2,) array
        The largest norm so far, and the steps.
    log : (LOG, 2, k) array
        The norms of the last steps.
    """

    LOG = 64

    def __init__(self, k: int, xp: Any) -> None:
        self.norms, self.scalars, self.log = xp.zeros((2, k)), xp.zeros(2), xp.zeros((self.LOG, 2, k))


class FramesGPU:
    """As `Frames`.

    Parameters
    ----------
    k, n, most : int
        Frames, elements of the longest vector, and vectors of the largest basis.
    dtype : dtype
    capture : bool
        Whether a step may be captured as a graph.
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
        if x.ndim != 3:  # with channels, or no images
            x = get_xp(x).ascontiguousarray(x).reshape(len(x), -1, x.shape[-1])
        x, ld, stride = kernels.images(x)
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
    """An array of rows, or of stacks, that may lie apart, and the elements between their beginnings."""
    return a, a.strides[0] // a.itemsize


def frame_vectors(like: Array, k: int, n: int, most: int, capture: Callable[[], bool] = bool) -> Frames | FramesGPU:
    """The operations for arrays like `like`; see `FramesGPU`."""
    return FramesGPU(k, n, most, like.dtype, capture()) if is_cupy(like) else Frames()

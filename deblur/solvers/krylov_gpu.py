"""Bases of Krylov spaces on the GPU, by ``cuda/krylov.cu``: GMRES's, and those of the Golub-Kahan bidiagonalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array
from ..graphs import Loop
from ..operators.operator import Operator

_AT = kernels.Constants("krylov")
_BLOCKS = 4  # of a launch, on each multiprocessor
_BLOCK = 16  # basis vectors are allocated in blocks of this many


class Basis:
    """What `deblur.solvers.krylov._Basis` does: an orthonormal basis for each frame, grown vector by vector."""

    def __init__(self, c: Array, limit: int) -> None:
        import cupy

        k, n = c.shape
        self._count, self._real = 0, c.dtype
        self._all = cupy.empty((k, limit + 1, n), c.dtype)
        self._blocks = _blocks(n, k)
        self._report = cupy.empty(
            (2 * (limit + 1) + 1, k), np.float64
        )  # the squared norm, and both projections
        self._room = cupy.empty(k * (limit + 1) * self._blocks, np.float64)
        self._tickets = cupy.zeros(k * (limit + 1), np.uint32)
        self._w = cupy.ascontiguousarray(c).copy()
        self._subtract(0, self._report, k)
        self.norm = np.sqrt(self._report[0].get())

    def grow(self) -> Array:
        """What the last vector has that is not in the basis, of norm 1, becomes a part of it."""
        k, n = self._w.shape
        v = self._all[:, self._count]
        self._launch("scaled", (self._blocks, k), self._w, self._report, n, *_rows(v))
        self._count += 1
        return v

    def orthogonalise(self, w: Array) -> np.ndarray:
        """Take from `w` what it has of the basis, twice; (k, count + 1) coefficients, the norm of the rest last."""
        import cupy

        (k, n), j = w.shape, self._count
        self._w = cupy.ascontiguousarray(w)
        for turn in (1, 2):
            self._launch(
                "project", (self._blocks, j, k), self._all, self._apart, self._w, n, self._report[turn:], 2 * k,
                self._room, self._tickets,
            )  # fmt: skip
            self._subtract(j, self._report[turn:], 2 * k)
        found = self._report[: 2 * j + 1].get()
        return np.concatenate([found[1::2] + found[2::2], np.sqrt(found[:1])]).T

    def combination(self, y: np.ndarray) -> Array:
        """Σ y_i v_i, for y (k, count)."""
        import cupy

        k, j = y.shape
        self._w = cupy.zeros_like(self._w)
        self._subtract(j, cupy.asarray(np.ascontiguousarray(-y.T)), k)
        return self._w

    @property
    def _apart(self) -> int:
        return self._all.shape[1] * self._all.shape[2]

    def _subtract(self, count: int, h: Array, step: int) -> None:
        k, n = self._w.shape
        self._launch(
            "subtract", (self._blocks, k), self._w, self._all, self._apart, count, n, h, step, self._report, self._room,
            self._tickets,
        )  # fmt: skip

    def _launch(self, name: str, grid: tuple[int, ...], *args: Any) -> None:
        kernels.launch("krylov", name, grid, _AT.THREADS, *args, dtype=self._real)


class GolubKahan:
    """What `deblur.solvers.krylov._GolubKahan` does; without bases a step is captured once and replayed."""

    def __init__(self, operator: Operator, g: Array, keep: bool) -> None:
        import cupy

        self._operator, self._keep, self._real = operator, keep, g.dtype
        k = len(g)
        self._tiny = 8 * float(np.finfo(g.dtype).eps)
        # Images and scenes: the last vector of each, flat; and where `keep`, both bases.
        self._shapes = (operator.image_shape, operator.scene_shape)
        self._last: list[Array] = [cupy.empty((k, math.prod(s)), g.dtype) for s in self._shapes]
        self._bases: tuple[list[Array], list[Array]] = ([], [])
        self._blocks = _blocks(max(map(math.prod, self._shapes)), k)
        self._norms = cupy.zeros((2, k), np.float64)  # the last β and α
        self._squared, self._h = cupy.zeros(k, np.float64), cupy.empty((_BLOCK, k), np.float64)
        self._scalars, self._log = (
            cupy.zeros(_AT.SCALARS, np.float64),
            cupy.zeros((_AT.LOG, 2, k), np.float64),
        )
        self._room = cupy.empty(k * _BLOCK * self._blocks, np.float64)
        self._tickets = cupy.zeros(k * _BLOCK, np.uint32)
        self._taken = self._read = 0  # steps that were given to the device, and whose numbers were asked for
        # Of an operator with one PSF the plans are kept.
        self._loop = Loop(1, not keep and operator.stationary is not None)
        for side, x in enumerate((lambda: g, lambda: operator.adjoint(self._image(0)))):
            self._recur(side, x(), None)
            self._settle(side, first=True)

    def first(self) -> tuple[np.ndarray, np.ndarray]:
        """β_1 and α_1."""
        return self._seen(0, 1)[0]

    def advance(self, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """So many steps more: β and α of each."""
        found: list[tuple[np.ndarray, np.ndarray]] = []
        while count > 0:
            now = min(count, _AT.LOG)
            self.ahead(now)
            found += self._seen(self._read + 1, now)
            self._read += now
            count -= now
        return found

    def ahead(self, count: int) -> None:
        """Give so many of the steps to come to the device, which does them while the host does something else."""
        while self._taken < self._read + min(count, _AT.LOG):
            self._loop(self._step)
            self._taken += 1

    def _step(self) -> None:
        products: Sequence[Callable[[Array], Array]] = (self._operator.forward, self._operator.adjoint)
        for side, product in enumerate(products):
            self._recur(side, product(self._image(1 - side)), self._last[side])
            if self._keep:
                for block in self._bases[side][:-1]:
                    self._orthogonalise(side, block, _BLOCK)
                block = self._bases[side][-1]
                self._orthogonalise(side, block, (self._taken % _BLOCK) + 1)
            self._settle(side)

    def combination(self, y: np.ndarray) -> Array:
        """Σ y_i v_i over the basis of scenes, (k, P, Q), for y (k, steps)."""
        import cupy

        k, n = len(y), self._last[1].shape[1]
        out = cupy.zeros((k, n), self._real)
        for i, block in enumerate(self._bases[1]):
            part = y[:, i * _BLOCK : (i + 1) * _BLOCK]
            if part.size:
                self._subtract(out, block, part.shape[1], cupy.asarray(np.ascontiguousarray(-part.T)))
        return out.reshape(k, *self._shapes[1])

    def _image(self, side: int) -> Array:
        return self._last[side].reshape(-1, *self._shapes[side])

    def _recur(self, side: int, x: Array, old: Array | None) -> None:
        """The product of side 0 (1) less α (β) times the vector before."""
        import cupy

        if x.strides[2] != x.itemsize:
            x = cupy.ascontiguousarray(x)
        if self._keep and old is not None:  # the vector before is in the basis and stays there
            self._last[side] = cupy.empty_like(old)
        out = self._last[side]
        k, n = out.shape
        self._launch(
            "recur", (self._blocks, k), out, x, x.strides[1] // x.itemsize, x.strides[0] // x.itemsize, x.shape[2], n,
            self._norms[1 - side], *((None, 0) if old is None else _rows(old)), self._squared, self._room,
            self._tickets,
        )  # fmt: skip

    def _orthogonalise(self, side: int, block: Array, count: int) -> None:
        w = self._last[side]
        k, n = w.shape
        self._launch(
            "project",
            (self._blocks, count, k),
            block,
            block.shape[1] * n,
            w,
            n,
            self._h,
            k,
            self._room,
            self._tickets,
        )
        self._subtract(w, block, count, self._h)

    def _subtract(self, w: Array, block: Array, count: int, h: Array) -> None:
        k, n = w.shape
        self._launch(
            "subtract", (self._blocks, k), w, block, block.shape[1] * n, count, n, h, k, self._squared, self._room,
            self._tickets,
        )  # fmt: skip

    def _settle(self, side: int, first: bool = False) -> None:
        """Its norm, by which it is divided; and into the basis with it."""
        import cupy

        w = self._last[side]
        k, n = w.shape
        self._launch(
            "settle",
            (1,),
            self._squared,
            k,
            self._tiny,
            side,
            first,
            self._norms[side],
            self._scalars,
            self._log,
        )
        to = w
        if self._keep:
            bases, at = self._bases[side], 0 if first else (self._taken + 1) % _BLOCK
            if at == 0:
                bases.append(cupy.empty((k, _BLOCK, n), self._real))
            to = bases[-1][:, at]
        self._launch("scaled", (self._blocks, k), w, self._squared, n, *_rows(to))
        self._last[side] = to

    def _seen(self, at: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
        log = self._log.get()
        return [(log[i % _AT.LOG, 0], log[i % _AT.LOG, 1]) for i in range(at, at + count)]

    def _launch(self, name: str, grid: tuple[int, ...], *args: Any) -> None:
        kernels.launch("krylov", name, grid, _AT.THREADS, *args, dtype=self._real)


def _blocks(size: int, rows: int) -> int:
    import cupy

    most = _BLOCKS * kernels.properties(cupy.cuda.runtime.getDevice()).multiprocessors
    return max(1, min(-(-most // rows), -(-size // _AT.THREADS)))


def _rows(s: Array) -> tuple[Array, int]:
    """Vectors (k, n) as the kernels take them, which may lie apart."""
    return s, s.strides[0] // s.itemsize

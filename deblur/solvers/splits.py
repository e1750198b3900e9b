"""ADMM's copies of what each term looks at, with their duals: kept, moved on, and handed to the next solve."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..device import Array, get_xp, is_cupy

RELAXATION = 1.8


@dataclass
class Split:
    """The copies u of what one term looks at, kept with t = u − d, d being the scaled dual; ρ its penalty."""

    u: list[Array]
    t: list[Array]
    rho: float

    def rescale(self, factor: float) -> None:
        """Multiply ρ; the dual ρ d stays what it is."""
        self.rho *= factor
        for u, t in zip(self.u, self.t, strict=True):
            t -= u
            t *= 1 / factor
            t += u

    def copy(self, frames: int) -> Split:
        """A split of its own, of the first so many frames."""
        return Split([u[:frames].copy() for u in self.u], [t[:frames].copy() for t in self.t], self.rho)


@dataclass
class State:
    """All that an iteration carries on, in units of `unit`: what a warm start begins from."""

    x: Array
    data: Split
    penalties: list[Split]
    box: Split | None
    lam: float
    unit: float

    def copy(self, frames: int) -> State:
        """A state of its own, of the first so many frames."""
        return replace(
            self,
            x=self.x[:frames].copy(),
            data=self.data.copy(frames),
            penalties=[s.copy(frames) for s in self.penalties],
            box=None if self.box is None else self.box.copy(frames),
        )


def relaxed(a: Array, u: Array, t: Array) -> Array:
    """α a + (1 − α) u + d, over-relaxed, with t = u − d."""
    q = RELAXATION * a
    q += (2 - RELAXATION) * u
    q -= t
    return q


def store(a: Array, u: Array, t: Array, q: Array, new: Array) -> list:
    """Put the new copy in the place of the old, t = u − d = 2u − q beside it; the sums that residuals need."""
    u -= new
    dual = _square(u)
    u[...] = new
    new *= 2
    new -= q
    t[...] = new
    seen, copy = _square(a), _square(u)
    return [_square(a - u), dual, seen, copy]


def _square(x: Array) -> Array:
    if is_cupy(x):
        return get_xp(x).vdot(x, x)
    # Not BLAS's dot: from 10000 elements on it starts threads of its own, which wait for ours and ours for them.
    return np.einsum("cij,cij->", x, x)


def total(blocks: list) -> list:
    """The blocks' [value, sums] of each split added up, as floats of the host; a GPU is waited for once."""
    flat = [number for block in blocks for value, sums in block for number in (value, *sums)]
    on_gpu = [x for x in flat if is_cupy(x)]
    if on_gpu:
        xp = get_xp(*on_gpu)
        found = iter(xp.stack([x.astype(np.float64) for x in on_gpu]).tolist())
        flat = [next(found) if is_cupy(x) else x for x in flat]
    table = np.array(flat, np.float64).reshape(len(blocks), -1, 5).sum(axis=0)
    return [[row[0], row[1:]] for row in table.tolist()]

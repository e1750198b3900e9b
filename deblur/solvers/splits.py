"""ADMM's copies of what each term sees, with their duals, and the vector operations that an iteration is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..device import Array, asnumpy, get_xp
from ..normalization import Scale
from ..norms import norms_of
from ..problem import Problem
from .domain import Domain

RELAXATION = 1.8


@dataclass(frozen=True)
class State:
    """What a warm start begins from: the scene on the domain, and the copies of each split with their duals.

    Attributes
    ----------
    x : array
        The scene on the domain.
    u, t : lists of lists of arrays
        For each split (the data's, the regularizers', the box's) its copies, and t = u − d with the scaled dual d.
    rho : list of float
        ρ of each split.
    lam : float
        λ of these ρ.
    scale : Scale
        The units of all of it.
    """

    x: Array
    u: list[list[Array]]
    t: list[list[Array]]
    rho: list[float]
    lam: float
    scale: Scale

    def copy(self, frames: int) -> State:
        """A state of its own, of the first so many frames."""
        u, t = ([[a[:frames].copy() for a in split] for split in kind] for kind in (self.u, self.t))
        return replace(self, x=self.x[:frames].copy(), u=u, t=t, rho=[*self.rho])


class Extrapolation:
    """Anderson's acceleration of ADMM, between batches of iterations at the same ρ.

    ADMM repeats one map of q = 2u − t. After each batch the next one begins at the affine combination of the last five
    results whose moves of q, in the norm of Σ ρ ‖q‖², nearly cancel. If that doubles the move, the last result is taken
    up again, and the memory is emptied [1]_.

    References
    ----------
    .. [1] A. Fu, J. Zhang, S. Boyd, Anderson accelerated Douglas-Rachford splitting, SIAM J. Sci. Comput. 42 (2020)
       A3560-A3583.
    """

    def __init__(self, steps: Steps) -> None:
        splits = [*zip(steps.rho, steps.u, strict=True), *zip(steps.rho, steps.t, strict=True)]
        self._parts = [(math.sqrt(rho), a) for rho, split in splits for a in split]
        self._points: list[Array] = []
        self._moves: list[Array] = []
        self._start: Array | None = None

    def advance(self) -> None:
        """Move the splits, after a batch."""
        xp = get_xp(self._parts[0][1])
        new = xp.concatenate([root * a.ravel() for root, a in self._parts])
        if self._start is not None:
            move = _q(new) - self._start
            if self._moves and norms_of(move)[0] > 2 * norms_of(self._moves[-1])[0]:
                new, self._points, self._moves = self._points[-1], [], []
            else:
                self._points, self._moves = [*self._points[-4:], new], [*self._moves[-4:], move]
                bends = xp.stack([other - move for other in self._moves])  # the last is zero
                gram, right = (asnumpy(a).astype(np.float64) for a in (bends @ bends.T, bends @ move))
                least = (1e-10 + 10 * float(np.finfo(new.dtype).eps)) * (np.trace(gram) + norms_of(move)[0] ** 2 or 1)
                shares = np.linalg.solve(gram + least * np.eye(len(gram)), -right)
                new = new + sum(s * (p - new) for s, p in zip(shares.tolist(), self._points, strict=True))
            ends = np.cumsum([a.size for _, a in self._parts])[:-1]
            for (root, a), part in zip(self._parts, xp.split(new, ends.tolist()), strict=True):
                a[...] = part.reshape(a.shape) / root
        self._start = _q(new)


def _q(point: Array) -> Array:
    """2u − t of a vector of u and t."""
    half = point.size // 2
    return 2 * point[:half] - point[half:]


class Steps(Protocol):
    """The vector operations of one solve by ADMM, in array operations (`admm_arrays`) or CUDA kernels (`admm_gpu`).

    Attributes
    ----------
    x : array
        The scene on the domain, after `begin` or `resume`.
    u, t, rho : lists
        Of each split, as in `State`.
    batch : int
        Iterations that may be submitted at once.
    """

    x: Array
    u: list[list[Array]]
    t: list[list[Array]]
    rho: list[float]
    problem: Problem
    domain: Domain
    g: Array
    batch: int = 1
    level: float
    scale: float

    def statistics(self) -> tuple[float, float, float, float]:
        """The mean weight, the mean of |g|, and the mean and standard deviation of the visible pixels."""

    def begin(self, rho: list[float]) -> None:
        """Begin at the first scene, with no residual and these regularizers."""

    def resume(self, state: State) -> None:
        """Begin where an earlier solve ended."""

    def prepare(self, lam: float, rtol: float, armed: bool) -> None:
        """Set the numbers of the iterations to come; only if `armed` may they stop at a residual of `rtol`."""

    def submit(self, count: int) -> None:
        """Begin so many iterations; a GPU is not waited for."""

    def collect(self) -> tuple[np.ndarray, bool]:
        """The sums of the iterations submitted, (n, splits, 5), and whether the last one met the tolerance.

        The sums of a split are its term, ‖a − u‖², ‖u − u before‖², ‖a‖² and ‖u‖², a being what the term sees of x.
        """

    def rescale(self, split: int, factor: float) -> None:
        """Multiply ρ of a split; the dual ρ d stays what it is."""

    def state(self, lam: float, scale: Scale) -> State:
        """All that a later solve needs to go on."""
        return State(self.x, self.u, self.t, self.rho, lam, scale)

    def dual(self, split: int) -> list[Array]:
        """ρ d: a subgradient of the term at u."""
        return [self.rho[split] * (u - t) for u, t in zip(self.u[split], self.t[split], strict=True)]

    def measure(self) -> tuple[float, float, float]:
        """The mean weight, the mean of |g|, and the standard deviation of the visible pixels, or their size."""
        weight, level, mean, deviation = self.statistics()
        self.level, self.scale = level, deviation if deviation > 1e-6 * abs(mean) else abs(mean) or 1.0
        return weight, level, self.scale

    @property
    def least_size(self) -> float:
        """The squared norm below which the size of what a split sees does not count: 1e-3 of the image's, or rounding.

        The differences of a flat scene vanish, and their residuals are not to be relative to that.
        """
        eps = float(np.finfo(self.problem.dtype).eps)
        return max(1e-3 * self.scale, 1e3 * eps * self.level) ** 2 * math.prod(self.x.shape)

    def relative(self, sums: np.ndarray) -> np.ndarray:
        """Relative primal and dual residual (..., splits, 2) of each split."""
        size = np.maximum(np.maximum(sums[..., 3], sums[..., 4]), self.least_size)
        with np.errstate(invalid="ignore", over="ignore"):
            return np.sqrt(sums[..., 1:3] / size[..., None])

"""ADMM's splits: the state of their copies and duals, and the protocol of the operations of one iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..device import Array, asnumpy, get_xp
from ..normalization import Scale
from ..norms import norms_of
from ..pixelwise import copied
from ..problem import Problem
from .domain import Domain

RELAXATION = 1.8


@dataclass(frozen=True)
class State:
    """Start of a warm solve: the scene on the domain, and each split's copies and duals.

    Attributes
    ----------
    x : array
        The scene on the domain.
    u, t : lists of lists of arrays
        For each split (the data's, the regularizers', the box's), its copies u, and t = u − d for the scaled dual d.
    rho : list of float
        ρ of each split.
    lam : float
        λ that belongs to these ρ.
    scale : Scale
        Units of all arrays.
    given_up : bool
        True if a solve that starts from the state may overwrite its arrays.
    """

    x: Array
    u: list[list[Array]]
    t: list[list[Array]]
    rho: list[float]
    lam: float
    scale: Scale
    given_up: bool = False

    def copy(self, frames: int) -> State:
        """Return a copy of the state for the first `frames` frames."""
        u, t = ([[copied(a[:frames]) for a in split] for split in kind] for kind in (self.u, self.t))
        return replace(self, x=copied(self.x[:frames]), u=u, t=t, rho=[*self.rho])


class Extrapolation:
    """Anderson acceleration of ADMM, between batches of iterations at constant ρ.

    An ADMM iteration is a fixed-point map of q = 2u − t. After each batch, the next one starts at an affine combination
    of the last five results. Its coefficients minimise the combined change of q, in the norm Σ ρ ‖q‖². If that doubles
    the change, the method goes back to the last result and forgets the earlier ones [1]_.

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
        """Replace the splits by their extrapolation; to be called after each batch."""
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
    """Return q = 2u − t, for a vector that holds u and then t."""
    half = point.size // 2
    return 2 * point[:half] - point[half:]


class Steps(Protocol):
    """The operations of one solve by ADMM, as array operations (`admm_arrays`) or CUDA kernels (`admm_gpu`).

    Attributes
    ----------
    x : array
        The scene on the domain, after `begin` or `resume`.
    u, t, rho : lists
        Copies, u − d, and ρ of each split, as in `State`.
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
        """Start from the first scene, with zero duals and these ρ."""

    def resume(self, state: State) -> None:
        """Start from the state at which an earlier solve ended."""

    def prepare(self, lam: float, rtol: float, armed: bool) -> None:
        """Set λ and tolerance of the next iterations; only if `armed`, they stop at a relative residual of `rtol`."""

    def submit(self, count: int) -> None:
        """Start `count` iterations, without waiting for a GPU."""

    def collect(self) -> tuple[np.ndarray, bool]:
        """Return the sums (n, splits, 5) of the submitted iterations, and whether the last one met the tolerance.

        The sums of a split are the value of its term, ‖a − u‖², ‖u − u before‖², ‖a‖² and ‖u‖², where a is the term's
        argument at x, such as K x.
        """

    def rescale(self, split: int, factor: float) -> None:
        """Multiply a split's ρ by `factor`, and keep its unscaled dual ρ d."""

    def state(self, lam: float, scale: Scale) -> State:
        """Return the state from which a later solve can continue."""
        return State(self.x, self.u, self.t, self.rho, lam, scale)

    def dual(self, split: int) -> list[Array]:
        """Return the unscaled dual ρ d of a split, a subgradient of its term at u."""
        return [self.rho[split] * (u - t) for u, t in zip(self.u[split], self.t[split], strict=True)]

    def measure(self) -> tuple[float, float, float]:
        """Return the mean weight, the mean of |g|, and the visible pixels' deviation (their |mean| if flat)."""
        weight, level, mean, deviation = self.statistics()
        self.level, self.scale = level, deviation if deviation > 1e-6 * abs(mean) else abs(mean) or 1.0
        return weight, level, self.scale

    @property
    def least_size(self) -> float:
        """The least squared norm that the residuals of a split are relative to: 1e-3 of the image, or its rounding.

        The differences of a flat scene vanish; without this floor their relative residuals would not be small.
        """
        eps = float(np.finfo(self.problem.dtype).eps)
        return max(1e-3 * self.scale, 1e3 * eps * self.level) ** 2 * math.prod(self.x.shape)

    def relative(self, sums: np.ndarray) -> np.ndarray:
        """Return the relative primal and dual residual (..., splits, 2) of each split, from sums (..., splits, 5)."""
        size = np.maximum(np.maximum(sums[..., 3], sums[..., 4]), self.least_size)
        with np.errstate(invalid="ignore", over="ignore"):
            return np.sqrt(sums[..., 1:3] / size[..., None])

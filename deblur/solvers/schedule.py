"""ADMM's schedule: the penalties it begins with, how λ falls and ρ is balanced, and when it ends.

The numbers are in units that make them free of the image's scale. They decide how many iterations it takes, not what
is found; ``benchmarks/bench_variational_speed.py`` measures both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..device import Array
from ..errors import ConvergenceError
from ..problem import History, Problem, Solution
from ..terms import PENALTIES
from .units import Units

# Within 0.05 dB of the minimiser; where λ is so small that the data are all but followed exactly, an image far from it
# may meet the first.
_RTOL, _RTOL_SMALL = 5e-3, 4e-4
MAX_ITERATIONS = 500

_RHO_DATA = 0.1  # over the data term's curvature
_RHO_PRIOR = 2.0  # over λ / (standard deviation of the image)
_RHO_BOX = 0.03
# A small λ is approached from a large one: until λ/scale comes under the first figure nothing is done; then it
# starts at the second and falls by the third every so many iterations.
_SMALL, _FIRST, _FALL, FALL_EVERY = 1e-3, 1e-2, 4.0, 8
BALANCE_EVERY, BALANCE_UNTIL = 10, 200
# A residual that is so many times the other one lags behind. For a small λ what the blur has nearly taken away comes
# back only where no penalty is larger than it need be, so that little is let pass.
_LAGGING, _LAGGING_SMALL = 10.0, 2.0


class Rho(NamedTuple):
    """ρ of each kind of split."""

    data: float
    prior: float
    box: float


def first_penalties(problem: Problem, mean: float, level: float, scale: float) -> tuple[Rho, float]:
    """ρ of each split before any balancing, and the λ that counts as large.

    Parameters
    ----------
    problem : Problem
        In units in which the image is of size one.
    mean, level, scale : float
        The mean weight, the mean of |g|, and the standard deviation of what is visible of the image.
    """
    tiny = float(np.finfo(problem.dtype).tiny)
    mean = max(mean, tiny)
    level = max(level + problem.fit.background, tiny)
    curvature = {
        "gaussian": mean,
        "huber": mean,
        "poisson": mean / level,
        "l1": mean / (0.05 * scale),
    }[problem.fit.name]
    gain = problem.operator.gain
    prior = _RHO_PRIOR * problem.lam * gain / scale
    rho = Rho(
        _RHO_DATA * curvature,
        problem.lam if "square" in _norms(problem) else prior or curvature * gain**2 * 1e-3,
        _RHO_BOX * curvature * gain**2,
    )
    return rho, curvature * scale / gain


def tolerance(problem: Problem, large: float) -> float:
    """The relative residual to stop at."""
    own = _RTOL_SMALL if _small(problem, large) else _RTOL
    return problem.stop.looser * own if problem.stop.rtol is None else problem.stop.rtol


def lagging(problem: Problem, large: float) -> float:
    """How many times the other one a residual is that lags behind it."""
    return _LAGGING_SMALL if _small(problem, large) else _LAGGING


def _small(problem: Problem, large: float) -> bool:
    return 0 < problem.lam < _SMALL * large


def first_lam(problem: Problem, large: float) -> float:
    """The λ to begin with."""
    return (
        _FIRST * large
        if _small(problem, large) and "square" not in _norms(problem) and problem.fit.name != "l1"
        else problem.lam
    )


def next_lam(problem: Problem, lam: float) -> float:
    """The λ to go on with."""
    return max(lam / _FALL, problem.lam)


def balanced(primal: float, dual: float, ratio: float) -> float:
    """What a split's ρ is multiplied by: more where the primal residual lags behind the dual one, and the reverse."""
    if primal > ratio * dual or dual > ratio * primal:
        return 2.0 if primal > dual else 0.5
    return 1.0


def _norms(problem: Problem) -> set[str]:
    return {p.norm for p in PENALTIES.get(problem.penalty, ())}


class Record:
    """What an iteration has found so far."""

    def __init__(self, problem: Problem, units: Units, rtol: float) -> None:
        self._problem, self._units, self.rtol = problem, units, rtol
        self._objective: list[float] = []
        self._worst: list[tuple[float, float]] = []

    @property
    def iterations(self) -> int:
        """How many there were."""
        return len(self._worst)

    @property
    def most(self) -> int:
        """How many there may be."""
        asked = self._problem.stop.max_iterations
        return MAX_ITERATIONS if asked is None else asked

    def see(self, value: float, residuals: np.ndarray) -> None:
        """Take down an iteration: its objective, and the (splits, 2) primal and dual residuals.

        Raises
        ------
        ConvergenceError
            If they are no numbers.
        """
        self.see_all(np.array([value]), residuals[None])

    def see_all(self, values: np.ndarray, residuals: np.ndarray) -> None:
        """`see` for several iterations: (n,) and (n, splits, 2)."""
        values = self._units.objective(values)
        worst = residuals.max(axis=1)
        before = self.iterations
        sound = np.isfinite(values) & np.isfinite(residuals).all(axis=(1, 2))
        count = len(values) if sound.all() else int(sound.argmin())
        self._objective += values[:count].tolist()
        self._worst += list(map(tuple, worst[:count].tolist()))
        if self._problem.stop.callback is not None:
            for i, pair in enumerate(self._worst[before:], start=before + 1):
                self._problem.stop.report(i, max(pair))
        if count < len(values):
            raise ConvergenceError(
                f"ADMM diverged: the objective became {values[count]} at iteration {self.iterations + 1}. Scale the "
                "image to about [0, 1], use float64, or a larger λ"
            )

    def solution(self, x: Array, converged: bool, state: object) -> Solution:
        """The end, at the scenes `x`."""
        worst, bounds, n = self._worst[-1], self._problem.bounds, self.iterations
        why = (
            f"the relative primal residual {worst[0]:.1e} and dual residual {worst[1]:.1e} after {n} iterations "
            f"are {'within' if converged else 'not yet within'} the tolerance {self.rtol:.1e}"
        )
        scene = (x if bounds is None else x.clip(*bounds)) * x.dtype.type(self._units.unit)
        return Solution(scene, n, converged, why, history(self._objective, self._worst), state)


def history(objective: list[float], worst: list[tuple[float, float]]) -> History:
    """The record of an iteration from its objectives and (primal, dual) residuals."""
    residuals = np.array(worst).reshape(-1, 2)
    return History(np.array(objective), residuals[:, 0].copy(), residuals[:, 1].copy())

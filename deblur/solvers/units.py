"""Problems in units in which an image's numbers are of size one, so that no square leaves the range of its dtype.

The units are powers of two: nothing is rounded differently.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..device import Array
from ..norms import largest
from ..problem import Problem
from ..terms import is_quadratic


@dataclass(frozen=True)
class Units:
    """A problem and its frames in units of `unit`: a scene in them times `unit` is the scene."""

    problem: Problem
    g: Array
    unit: float
    degree: int
    """D of a frame s times as bright is s**degree times as large."""

    def objective(self, value: Any) -> Any:
        """D + λR of the problem as it was given, from what it is in these units."""
        for _ in range(self.degree):
            value = value * self.unit  # becomes infinite where a power would raise
        return value


def in_units(problem: Problem, g: Array, unit: float | None = None) -> Units:
    """The problem of frames (k, c, M, N) in units of their largest visible value, or of `unit`."""
    fidelity, xp = problem.fidelity, problem.xp
    if unit is None:
        _, exponent = math.frexp(
            largest(g if fidelity.weights is None else xp.where(fidelity.weights > 0, g, 0))
        )
        most = np.finfo(g.dtype).maxexp - 2  # so that 1 / unit is a number, too
        unit = 2.0 ** min(max(exponent, -most), most)
    degree = 2 if fidelity.name in ("gaussian", "huber") else 1
    power = (2 if is_quadratic(problem.regularizer) else 1) - degree
    scaled = replace(
        problem,
        lam=problem.lam * unit**power,
        fidelity=replace(fidelity, background=fidelity.background / unit, delta=fidelity.delta / unit),
        bounds=None if problem.bounds is None else (problem.bounds[0] / unit, problem.bounds[1] / unit),
    )
    return Units(scaled, g if unit == 1 else g * g.dtype.type(1 / unit), unit, degree)

"""ADMM's schedule: the regularizers it begins with, how λ falls and ρ is balanced, and when it ends.

The numbers are relative to the image and the operator, so that no unit matters. They decide how many iterations a solve
takes, not what it finds; ``benchmarks/bench_variational_speed.py`` measures both.
"""

from __future__ import annotations

import math

import numpy as np

from ..problem import Problem
from ..terms import REGULARIZERS


class Schedule:
    """What a solve begins with and where it stops.

    Parameters
    ----------
    problem : Problem
        In units in which the image is of size one.
    weight, level, scale : float
        The mean weight, the mean of |g|, and the standard deviation of the visible pixels.

    Attributes
    ----------
    rho : list of float
        ρ of each split: the data's, one for each regularizer, the box's.
    stiffest : float
        The λ up to which ρ of a regularizer grows with λ. A larger ρ moves what is flat too slowly.
    first_lam : float
        λ to begin with. A small λ is approached from a large one.
    rtol : float
        Relative residual to stop at. 5e-3 is within 0.05 dB of the minimiser; where λ is so small that the data are
        followed almost exactly, an image far from the minimiser may meet that.
    excess : float
        How far the objective may be above its minimum, relative to it; infinite where `rtol` is asked for, and for
        large scenes, where the residuals decide alone: to evaluate the bound costs as much as some iterations.
    least_share : float
        The least part of the objective that `excess` may be relative to. Where λ is small most of the objective may be
        what no scene within the bounds explains, beside which all vanishes that λ decides.
    lagging : float
        A split's residual lags behind the other one if that is so many times as large. Where λ is small, what the blur
        has nearly removed comes back only if no regularizer is larger than necessary.
    most : int
        Most iterations.
    """

    def __init__(self, problem: Problem, weight: float, level: float, scale: float) -> None:
        fidelity, lam, gain, stop = problem.fidelity, problem.lam, problem.operator.norm_bound, problem.stop
        regularizers = REGULARIZERS.get(problem.regularizer, ())
        squares = any(p.norm == "square" for p in regularizers)
        weight = max(weight, float(np.finfo(problem.dtype).tiny))
        level = level + fidelity.background or scale  # of a black image
        curvature = {"poisson": weight / level, "l1": weight / (0.05 * scale)}.get(fidelity.name, weight)
        stiff = 1.0 if squares else 2 * gain / scale
        self.stiffest = curvature * gain**2 / stiff
        prior = stiff * min(lam, self.stiffest) or 1e-3 * curvature * gain**2
        self.rho = [0.1 * curvature, *[prior] * len(regularizers), 0.03 * curvature * gain**2]
        large = curvature * scale / gain
        small = 0 < lam < 1e-3 * large
        self.least_share = 1e-6 if small else 1.0
        self.first_lam = 1e-2 * large if small and not squares and fidelity.name != "l1" else lam
        self.rtol = stop.looser * (4e-4 if small else 5e-3) if stop.rtol is None else stop.rtol
        cheap = math.prod(problem.operator.scene_shape) <= 1 << 12
        above = stop.looser**2 * (2e-4 if fidelity.name == "l1" else 3e-4)
        self.excess = above if cheap and stop.rtol is None else math.inf
        self.lagging = 2.0 if small else 10.0
        self.most = (2000 if cheap else 500) if stop.max_iterations is None else stop.max_iterations

    def balanced(self, primal: float, dual: float) -> float:
        """The factor of a split's ρ: 2 where the primal residual lags behind the dual one, ½ for the reverse."""
        if primal > self.lagging * dual or dual > self.lagging * primal:
            return 2.0 if primal > dual else 0.5
        return 1.0

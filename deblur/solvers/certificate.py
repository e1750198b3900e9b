"""Upper bound for how far the objective at an iterate of ADMM is above its minimum, from copies and duals.

After a step, the dual y = ρ d of each split is a subgradient of its term F at the copy u. So for every scene f

    Σ F(A f) ≥ Σ [F(u) + ⟨y, A f − u⟩] .

With the minimiser f* for f and s = Σ Aᵀ y it follows that, for every scene z within the bounds,

    objective(z) − minimum ≤ Σ [F(A z) − F(u) − ⟨y, A z − u⟩] + ⟨s, z − f*⟩ .

Each term of the sum is a Bregman distance between A z and the copy u; it vanishes as they converge. s vanishes as the
duals balance. The last product is at most ‖s‖ ‖z − f*‖. If the quadratic terms alone give the objective the curvature
μ, then ‖z − f*‖ is at most (2 gap/μ)^½, where gap is the left side; this bounds both. Pixels that no datum sees have
the regularizer's curvature alone. Without curvature, ‖z − f*‖ is unknown. It is then taken as 1 % of ‖z‖, or of the
deviation of g where a scene passes through zero: ten times the product measured in experiments.

With data term "l1", several scenes may have the least objective, just as several numbers may be a median of others.
The path decides which of them a solve finds, and the bound does not measure their distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..device import Array, asnumpy
from ..norms import norms_of, total
from ..problem import Problem
from ..terms import ORDER, adjoint_differences, differences, is_quadratic
from .spectrum import diagonal
from .splits import Steps
from .start import all_weights, half_width

if TYPE_CHECKING:
    from .admm import Admm


def excess(factor: Admm, steps: Steps, copies: float, least: float) -> tuple[float, float, float]:
    """Return two bounds of the objective's relative excess over its minimum, and a bound of ‖z − f*‖/‖z‖.

    z is the scene that the solve would return now. The first bound disregards rounding in the problem's dtype, the
    second one only rounding in float64. The first bound is relative to the objective. The second one, and in float64
    both, are relative to ten times the regularizer's part of the objective, if that is less, but at least to `least` of
    the objective. The bound of ‖z − f*‖/‖z‖ is 0 if it is unknown.

    Parameters
    ----------
    factor : Admm
    steps : Steps
        State after an iteration.
    copies : float
        Σ F(u) after that iteration.
    least : float
        The least part of the objective that a bound is relative to.
    """
    problem, domain, x = steps.problem, steps.domain, steps.x
    inner, options = (..., *domain.scene), (problem.operator.boundary.wraps, problem.axes)
    scene = x[inner] if problem.bounds is None else x[inner].clip(*problem.bounds)
    z = problem.xp.zeros_like(x) if domain.pinned else x.copy()
    z[inner] = scene
    shown, y = domain.blurred(z), steps.dual(0)
    linear, s = _products(y, shown, steps.u[0]), domain.transposed(y)
    for p, regularizer in enumerate(factor.regularizers, 1):
        y, u = ([part[inner] for part in kind] for kind in (steps.dual(p), steps.u[p]))
        linear += _products(y, [*differences(scene, regularizer.differences, *options)], u)
        s[inner] += adjoint_differences(y, regularizer.differences, *options)
    if factor.boxed:
        y = steps.dual(-1)
        linear += _products(y, [z], steps.u[-1])
        s += y[0]
    seen = domain.mixture(shown)[(..., *domain.frame)]
    objective = problem.objective(steps.g, scene, seen)
    part = min(max(10 * (objective - problem.fidelity.value(seen, steps.g)), least * objective), objective)
    (left, size), mu = norms_of(s[inner] if domain.pinned else s, z), _curvature(factor, problem)
    bregman = objective - copies - linear + (0.0 if mu else 1e-2 * left * max(size, steps.scale * math.sqrt(z.size)))
    slope = left / math.sqrt(mu) if mu else 0.0  # gap ≤ bregman + slope √(2 gap)
    about = problem.fidelity.value(0 * steps.g, steps.g) + 30 * problem.lam * float(total(abs(scene)))
    rounding = [float(np.finfo(dtype).eps) * about for dtype in (x.dtype, np.float64)]
    # A negative value is rounding alone, of which float64 must have less.
    roots = [slope + math.sqrt(slope**2 + 2 * max(b, 0.0)) for b in (bregman - rounding[0], abs(bregman) - rounding[1])]
    parts = part if x.dtype == np.float64 else objective, part
    above, exact = (0.5 * root**2 / (p + r or 1.0) for root, p, r in zip(roots, parts, rounding, strict=True))
    return above, exact, roots[0] / (math.sqrt(mu) * norms_of(scene)[0] or 1.0) if mu else 0.0


def _curvature(factor: Admm, problem: Problem) -> float:
    """Return μ, the least curvature of the quadratic terms over all frequencies; 0 if another term decides."""
    if not is_quadratic(problem.regularizer):
        return 0.0
    domain, [regularizer] = factor.domain, factor.regularizers
    curvature = problem.lam * domain.symbol(regularizer.differences) + 0 * domain.power
    if problem.fidelity.name != "gaussian" or regularizer.differences == "identity":
        return float(curvature.min())
    w = asnumpy(all_weights(problem))
    hidden = w < 1e-2 * w.mean()
    seen = float((curvature + float(w[~hidden].min()) * domain.power).min())
    half = half_width(hidden)
    if not half and diagonal(problem.operator):
        return seen
    # Otherwise frequencies do not diagonalise the data term. Pixels that no datum sees (hidden by a mask or, at an
    # edge, up to half of the PSF's pixels) are determined by differences to their neighbours alone.
    stretch = 2 * max(problem.operator.mean_blur.psf.shape) + 4 * half + 2
    return min(seen, problem.lam * (2 * math.sin(math.pi / stretch)) ** (2 * ORDER[regularizer.differences]))


def _products(y: Sequence[Array], shown: Sequence[Array], u: Sequence[Array]) -> float:
    """Return Σ ⟨y, A z − u⟩ over the arrays of a split; `shown` is A z."""
    return sum(float(total(p * (a - b))) for p, a, b in zip(y, shown, u, strict=True))

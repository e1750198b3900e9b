"""How far an iterate of ADMM is above the minimum, at most: a bound from its copies and duals.

After a step the dual y = ρ d of each split is a subgradient of its term at the copy u. So for every scene f

    Σ F(A f) ≥ Σ [F(u) + ⟨y, A f − u⟩] ,

and with the minimiser f* for f, and s = Σ Aᵀ y, for every scene z within the bounds

    objective(z) − minimum ≤ Σ [F(A z) − F(u) − ⟨y, A z − u⟩] + ⟨s, z − f*⟩ .

Each term of the sum is a Bregman distance between what z shows and the copy, which vanishes as they meet; s vanishes
as the duals balance. The last product is at most ‖s‖ ‖z − f*‖, of which the second factor is not known: it counts as
1 % of ‖z‖, ten times what the product is where that was measured.

With data term "l1" several scenes may have the least objective, as several numbers may be the median of some others.
Which of them a solve ends at depends on the path, and the bound says nothing of their distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..device import Array
from ..norms import norms_of, total
from ..terms import adjoint_differences, differences
from .splits import Steps

if TYPE_CHECKING:
    from .admm import Admm


def excess(factor: Admm, steps: Steps, copies: float) -> list[float]:
    """The bound over the objective, for the scene that a solve would end with now.

    First without what rounding in the problem's dtype makes of both where they should vanish, then without what
    rounding in float64 makes of them.

    Parameters
    ----------
    factor : Admm
    steps : Steps
        After an iteration.
    copies : float
        Σ F(u) of that iteration.
    """
    problem, domain, x = steps.problem, steps.domain, steps.x
    inner, options = (..., *domain.scene), (problem.operator.boundary.wraps, problem.axes)
    scene = x[inner] if problem.bounds is None else x[inner].clip(*problem.bounds)
    z = problem.xp.zeros_like(x) if domain.pinned else x.copy()
    z[inner] = scene
    data, *others = steps.splits
    shown, y = domain.blurred(z), data.dual
    linear, s = _products(y, shown, data.u), domain.transposed(y)
    for regularizer, split in zip(factor.regularizers, others, strict=False):
        y, u = ([part[inner] for part in kind] for kind in (split.dual, split.u))
        linear += _products(y, differences(scene, regularizer.differences, *options), u)
        s[inner] += adjoint_differences(y, regularizer.differences, *options)
    if factor.boxed:
        linear += _products(others[-1].dual, [z], others[-1].u)
        s += others[-1].dual[0]
    seen = domain.mixture(shown)[(..., *domain.frame)]
    objective = problem.objective(steps.g, scene, seen)
    left, size = norms_of(s[inner] if domain.pinned else s, z)
    bound = objective - copies - linear + 1e-2 * left * size
    size = problem.fidelity.value(0 * steps.g, steps.g) + 30 * problem.lam * float(total(abs(scene)))
    rounding = (float(np.finfo(dtype).eps) * size for dtype in (x.dtype, np.float64))
    return [max(bound - r, 0.0) / (objective + r or 1.0) for r in rounding]


def _products(y: Sequence[Array], shown: Sequence[Array], u: Sequence[Array]) -> float:
    """⟨y, A z − u⟩."""
    return sum(float(total(p * (a - b))) for p, a, b in zip(y, shown, u, strict=True))

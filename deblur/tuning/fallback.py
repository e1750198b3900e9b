"""Where a rule's λ cannot be trusted: the discrepancy, with what the boundary gets wrong counted as noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..device import Array
from ..operators.blur import Blur
from ..operators.operator import Operator
from ..problem import Problem
from ..solvers.noise import noise_variance
from ..solvers.start import filled, prior_scene
from . import choose
from .choice import RULES, LambdaChoice
from .sampled import Prepare

# ‖f_λ‖ over its size where the boundary's error is allowed for: with a boundary that fits at most 1.25 in 166
# photographs, mostly more where the picture is lost.
_GROWN = 1.3
_LEAST = 4  # pixels a side without which noise cannot be estimated


def sounder(
    problem: Problem, g: Array, found: LambdaChoice, noise: float | None, prepare: Prepare | None
) -> LambdaChoice:
    """`found`, or if it is not settled, or trusts the edges too much, the λ of a sounder rule; its reason says so.

    A rule runs to the end of its range, or to where error rules the scene, mostly because the boundary is not that of
    the picture: what it makes of the pixels at the edge is then an error of the data, larger than the noise. The
    discrepancy with both together needs no more than their size.

    Parameters
    ----------
    problem, g, noise, prepare
        As for `deblur.tuning.choose`.
    found : LambdaChoice

    Returns
    -------
    LambdaChoice
        `found` itself, also where there is no sounder rule.
    """
    if RULES["discrepancy"].refuses(problem) is not None or (
        found.converged and not len(found.solution_norms)
    ):
        return found
    source = "estimated" if noise is None else "given"
    counts = problem.fidelity.name == "poisson"
    error = 0.0 if counts else boundary_error(problem.operator, filled(g, problem.fidelity.weights))
    why = _doubt(found, g, error, problem.operator) if found.converged else found.remark
    if not why:
        return found
    if noise is None and min(g.shape[-2:]) >= _LEAST:
        noise = noise_variance(problem, g) if counts else math.sqrt(noise_variance(problem, g))
    elif found.rule == "discrepancy" and not error:
        return found  # with this very noise
    level = math.hypot(noise or 0.0, error)
    other = choose(problem, g, "discrepancy", noise=level, prepare=prepare) if level > 0 else found
    words = f"makes the residual as large as the noise, {noise or 0.0:.3g} as {source}"
    if error:
        words += (
            f", and what boundary {str(problem.operator.boundary)!r} gets wrong at the edges, {error:.3g}"
        )
    if not other.converged and found.rule != "gcv":
        other = choose(problem, g, "gcv", prepare=prepare)
        words, source = RULES["gcv"].summary, "not used"
    if not other.converged:
        return found
    return replace(
        other,
        reason=f"λ = {other.lam:.3g} {words}: the sounder rule, since with {found.rule!r} {why}",
        remark=why,
        noise_source=source,
    )


def _doubt(found: LambdaChoice, g: Array, error: float, operator: Operator) -> str:
    """Why a λ of the linear formula trusts the edges more than they deserve; empty if it does not.

    It leaves less than the boundary may get wrong, and the scene there is much larger than one that allows for that,
    and than the image makes one expect. Of a boundary that fits the scene has its size by then, but for a PSF that
    sharpens.
    """
    residuals, sizes = found.residual_norms / math.sqrt(g.size), found.solution_norms
    if not (error > 0 and len(sizes)):
        return ""
    at, wary = (int(np.searchsorted(*pair)) for pair in ((found.lambdas, found.lam), (residuals, error)))
    if wary <= at or wary >= len(sizes):
        return ""
    expected = math.sqrt(float((g.astype(np.float64) ** 2).sum()))
    if abs(operator.dc_gain) * sizes[at] <= _GROWN * expected or sizes[at] <= _GROWN * sizes[wary]:
        return ""
    return (
        f"the scene is {sizes[at] / sizes[wary]:.2g} times as large as one that allows for the boundary's error of "
        f"{error:.3g}: the model of the blur is wrong"
    )


def boundary_error(operator: Operator, g: Array) -> float:
    """Root mean square of what a boundary makes of the pixels at the edge, beside what the picture is likely to do.

    Likely is that it goes on as it ends; with boundary "unknown" nothing is said of it, and the error is 0.
    """
    blur = operator.shift_invariant
    if blur is None or blur.boundary.open:
        return 0.0
    free = Blur(blur.psf, blur.image_shape, "unknown", origin=blur.origin)
    scene = prior_scene(free, g)
    error = free.forward(scene) - blur.forward(scene[(..., *free.crop)])
    return math.sqrt(float((error.astype(np.float64) ** 2).mean()))

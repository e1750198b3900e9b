"""Where a rule's λ cannot be trusted: the discrepancy, with what the boundary gets wrong counted as noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..device import Array
from ..operators.blur import Blur
from ..operators.operator import Operator
from ..problem import Problem
from ..solvers.start import filled, prior_scene
from . import choose
from .choice import RULES, LambdaChoice
from .noise import noise_variance
from .sampled import Prepare

_LEAST = 4  # pixels a side without which noise cannot be estimated


def sounder(
    problem: Problem, g: Array, found: LambdaChoice, noise: float | None, prepare: Prepare | None
) -> LambdaChoice:
    """`found`, or if it is not settled the λ of a sounder rule, where there is one; its reason says so.

    A rule runs to the end of its range, or to where error rules the scene, mostly because the boundary is not that of
    the picture: what it makes of the pixels at the edge is then an error of the data, larger than the noise. The
    discrepancy with both together needs no more than their size.

    Parameters
    ----------
    problem, g, noise, prepare
        As for `deblur.tuning.choose`.
    found : LambdaChoice
    """
    if found.settled or RULES["discrepancy"].refuses(problem) is not None:
        return found
    source = "estimated" if noise is None else "given"
    counts = problem.fit.name == "poisson"
    error = 0.0 if counts else boundary_error(problem.operator, filled(g, problem.fit.weights))
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
    if not other.settled and found.rule != "gcv":
        other = choose(problem, g, "gcv", prepare=prepare)
        words, source = RULES["gcv"].summary, "not used"
    if not other.settled:
        return found
    return replace(
        other,
        reason=f"λ = {other.lam:.3g} {words}: the sounder rule, since with {found.rule!r} {found.remark}",
        remark=found.remark,
        noise_source=source,
    )


def boundary_error(operator: Operator, g: Array) -> float:
    """Root mean square of what a boundary makes of the pixels at the edge, beside what the picture is likely to do.

    Likely is that it goes on as it ends; with boundary "unknown" nothing is said of it, and the error is 0.
    """
    blur = operator.stationary
    if blur is None or blur.boundary.open:
        return 0.0
    free = Blur(blur.psf, blur.image_shape, "unknown", origin=blur.origin)
    scene = prior_scene(free, g)
    error = free.forward(scene) - blur.forward(scene[(..., *free.crop)])
    return math.sqrt(float(np.mean(np.square(error, dtype=np.float64))))

"""Verify a solution: measure residual, data residual and objective with the operator alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from .device import Array
from .norms import combined, norms_of, residual_norms
from .operators import torus_gpu
from .operators.natural import covariance
from .problem import Problem, Solution
from .terms import FORMULA


def joined(parts: list[Solution]) -> Solution:
    """Return the measured figures of several parts of an image together, with the outcome of the worst of their
    iterations.
    """
    worst = max(parts, key=lambda part: (not part.converged, part.iterations))
    if len(parts) == 1:
        return worst
    sizes = np.array([part.sizes for part in parts])
    left = sizes * [(part.residual, part.data_residual) for part in parts]
    residual, data_residual = (
        math.hypot(*pair) / (math.hypot(*size) or 1.0) for pair, size in zip(left.T, sizes.T, strict=True)
    )
    error = max(part.error for part in parts)
    return replace(worst, residual=residual, data_residual=data_residual, error=error)


def small_residual(dtype: np.dtype) -> float:
    """Return the largest relative residual that shows an image to be accurate, the cube root of eps.

    A backward stable solver leaves a residual of eps times the condition number. Beyond the cube root of eps the image
    has lost more digits than a display shows.
    """
    return float(np.finfo(dtype).eps) ** (1 / 3)


def verify(
    problem: Problem, g: Array, solution: Solution, image: Array, keep: tuple[slice, ...] | None = None
) -> Solution:
    """Return the solution with measured figures, which do not rely on its solver, and without the solver's state.

    Parameters
    ----------
    problem : Problem
        The solved problem.
    g : (k, c, M, N) array
        The data of the solve: g − H f̄ if the scene is centred on f̄.
    solution : Solution
        The solution of the solver.
    image : (k, c, M, N) array
        The frames, whose norm is the denominator of the data residual.
    keep : tuple of slice, optional
        The spatial region to measure, for a linear system whose scene has the size of the image; by default all.

    Returns
    -------
    Solution
    """
    operator, fidelity, scene = problem.operator, problem.fidelity, solution.scene
    blur, plain = operator.shift_invariant, problem.regularizer == "identity" and fidelity.weights is None
    quick = plain and problem.quadratic and not fidelity.background and keep is None
    quick = quick and problem.device.gpu is not None
    if quick and blur is not None and blur.boundary.wraps:  # needs half as many transforms
        return _in_frequency(problem, g, solution, image)
    seen = operator.forward(scene)
    direct = problem.quadratic and solution.history is None
    objective = None if direct else problem.objective(g, scene, seen)
    linear = plain and problem.formula == "tikhonov"
    # For a small image a GPU computes two products faster together than one after the other.
    if linear and quick and direct and g.size <= 1 << 18:
        pair = problem.xp.empty((2, *g.shape), g.dtype)
        combined(g, out=pair[0])
        combined(g, seen, b=-1, out=pair[1])
        b, a = operator.adjoint(pair)
        found = residual_norms(b, a, scene, problem.lam, image, pair[1])
        return _measured(problem, solution, found, None, pair[1])
    difference = combined(g, seen, b=-1)
    del seen
    if fidelity.background:
        difference -= g.dtype.type(fidelity.background)
    shown = image, difference  # without hidden pixels
    if fidelity.weights is not None:
        visible = fidelity.weights > 0
        shown = visible * image, visible * difference
    if not problem.quadratic:
        size, data_residual = norms_of(*shown)
        past = solution.history
        # A method that stops before its first iteration, as for a black image, has converged.
        last = 0.0 if past is None or not len(past) else max(past.primal[-1], past.dual[-1])
        return _measured(problem, solution, [1.0, float(last), size, data_residual], objective, difference)
    lam, where = problem.lam, ... if keep is None else (..., *keep)
    b = problem.right(g)
    if linear and problem.device.gpu is not None:
        parts = (b, operator.adjoint(difference), scene, image, difference)
        b, a, scene, image, shown_difference = (x[where] for x in parts)
        found = residual_norms(b, a, scene, lam, image, shown_difference)
        return _measured(problem, solution, found, objective, difference, where)
    if problem.regularizer == "natural":  # (BBᵀHᵀH + λI) f = BBᵀHᵀ g
        b = covariance(b, operator.boundary, problem.axes)
    [size] = norms_of(b[where])
    if problem.formula == "hht":
        r = combined(combined(b, operator.forward(operator.adjoint(scene)), b=-1), scene, b=-lam)
    elif problem.regularizer in FORMULA:
        del b  # free the memory before Hᵀ
        r = operator.adjoint(difference if fidelity.weights is None else fidelity.weights * difference)
        if problem.regularizer == "natural":
            r = covariance(r, operator.boundary, problem.axes)
        r = combined(r, scene, b=-lam)
    else:
        r = combined(b, problem.normal(scene), b=-1)
    norms = [size, *norms_of(*(x[where] for x in (r, *shown)))]
    return _measured(problem, solution, norms, objective, difference, where)


def _measured(
    problem: Problem, solution: Solution, norms: list[float], objective: float | None, left: Array, where: Any = ...
) -> Solution:
    """Return the solution with its figures, computed from the norms ‖b‖, ‖b − A f‖, ‖g‖ and ‖H f + b − g‖."""
    scale, residual, size, data_residual = norms
    error = math.inf
    bounded = problem.quadratic and problem.regularizer == "identity" and problem.lam
    if bounded and residual > small_residual(problem.dtype) * scale:
        error = residual / ((problem.lam * norms_of(solution.scene[where])[0]) or math.nan)
    return replace(
        solution,
        state=None,  # it may be ten times as large as the scene
        residual=residual / (scale or 1.0),
        data_residual=data_residual / (size or 1.0),
        objective=objective,
        difference=left,
        sizes=(scale, size),
        error=error,
    )


def _in_frequency(problem: Problem, g: Array, solution: Solution, image: Array) -> Solution:
    """Return the measured solution of a periodic blur.

    Both formulas agree there, and norms are those of spectra (Parseval).
    """
    h = problem.blur.transfer(problem.dtype, problem.device)
    seen, sums = torus_gpu.residual_norms(g, solution.scene, h, problem.lam)
    difference = combined(g, seen, b=-1)
    residual, scale = (math.sqrt(s) for s in sums.tolist())
    objective = None if solution.history is None else problem.objective(g, solution.scene)
    return _measured(problem, solution, [scale, residual, *norms_of(image, difference)], objective, difference)

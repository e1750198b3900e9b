"""Error bars of nonlinear estimators by the parametric bootstrap [1]_.

A scene f̃ takes the place of the true one, is blurred, and gets new noise of the same strength. Restoring it with the
same λ has a known error, noise and bias together:

    e_i = restore(H f̃ + n_i; λ) − f̃ ,   s = mean_i e_i² ,   std² = c² s^(1−w) S^w ,

the mean taken over neighbouring pixels, too, and S that of s over the frame: where f̃ is smooth by mistake the data do
not contradict it, so that s varies more than the errors do. An estimate is smoother than the truth, and its bias would
be too small; f̃ is therefore restored at λ/2, which adds about as much detail as the estimate lacks. The factor c
corrects the rest; c and w were fitted on photographs, and ``benchmarks/bench_posterior.py`` measures on others how many
true errors lie within two deviations.

References
----------
.. [1] B. Efron, R. J. Tibshirani, *An Introduction to the Bootstrap*, Chapman & Hall 1993, chapters 6 and 10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .device import Array
from .errors import generator
from .methods import METHODS
from .problem import Problem
from .solvers.start import smoothed

#: The methods whose estimates are simulated, and c; of a quadratic regularizer with bounds it is 1.25.
FACTORS = {"tv": 1.15, "tv-aniso": 1.15, "tv2": 1.35, "collaborative": 1.85}
WHOLE = 0.3  # w


def simulated(
    problem: Problem,
    name: str,
    g: Array,
    sigma: float,
    count: int,
    seed: int | None,
    callback: Callable[[int], None] | None = None,
) -> tuple[Array, Array]:
    """(the deviation of each pixel of a scene, the standard error of that), by `count` simulated images.

    Parameters
    ----------
    problem : Problem
        The problem that was solved.
    name : str
        Of the method, in `METHODS`.
    g : (M, N) array
    sigma : float
        Standard deviation of the noise, where the weights are one.
    count : int
        At least 2; with the scene that stands for the true one so many images and one more are restored.
    seed : int or None
    callback : callable, optional
        Called with the number of images restored.
    """
    xp, operator, weights = problem.xp, problem.operator, problem.fidelity.weights
    rng = generator(seed)
    method = METHODS[name]
    truth = method.prepare(replace(problem, lam=0.5 * problem.lam)).solve(g[None, None]).scene[0, 0]
    seen = operator.forward(truth)
    spread: Array | float = sigma
    if weights is not None:  # the noise of a hidden pixel has no effect
        spread = sigma / xp.sqrt(xp.where(weights > 0, weights, 1))
    solver = method.prepare(problem)
    squares = []
    for i in range(count):
        noise = xp.asarray(rng.standard_normal(g.shape).astype(g.dtype))
        found = solver.solve((seen + spread * noise).astype(g.dtype)[None, None])
        squares.append(smoothed((found.scene[0, 0] - truth) ** 2, g.ndim))
        if callback is not None:
            callback(i + 1)
    stack = xp.stack(squares)
    local = xp.maximum(stack.mean(axis=0), np.finfo(g.dtype).tiny)
    whole = float(local[operator.crop].mean())
    std = FACTORS.get(name, 1.25) * xp.sqrt(local ** (1 - WHOLE) * whole**WHOLE)
    # To first order, for a power of an estimate with an error.
    error = (1 - WHOLE) / 2 * std * stack.std(axis=0, ddof=1) / (np.sqrt(count) * local)
    return std, error

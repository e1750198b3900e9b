"""How far an answer that is no linear one may be off: images like the one at hand are simulated and restored.

The parametric bootstrap [1]_. A scene f̃ stands for the true one, is blurred, and gets new noise of the same strength;
what restores the image with the same λ then misses f̃ by an error that is known, its noise and its bias together:

    e_i = restore(H f̃ + n_i; λ) − f̃ ,   s = mean_i e_i² ,   std² = c² s^(1−w) S^w ,

the mean taken over neighbouring pixels, too, and S that of s over the frame: where f̃ is smooth by mistake nothing shows
that the truth is not, so that s differs more from place to place than the errors do. An answer is smoother than the
truth, and would show too little bias if it stood for it: f̃ is restored with a weaker prior, at `_LESS` λ, which has
about as much detail again as the answer lacks. c, the same for every picture, is what is left to be made good; it and w
were fitted on photographs, and ``benchmarks/bench_posterior.py`` measures on others how many true errors lie within two
deviations.

References
----------
.. [1] B. Efron, R. J. Tibshirani, *An Introduction to the Bootstrap*, Chapman & Hall 1993, chapters 6 and 10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .device import Array, get_xp
from .methods import METHODS
from .problem import Problem

#: The methods whose answers are simulated, and c.
FACTORS = {"tv": 1.15, "tv-aniso": 1.15, "tv2": 1.35, "collaborative": 1.85}
_BOUNDED = 1.25  # c of a quadratic penalty with bounds
_WHOLE = 0.3  # w
_LESS = 0.5
_POOL = 2.0  # standard deviation in pixels of the neighbourhood over which squares are averaged


def factor(name: str) -> float:
    """c of the answers of a method."""
    return FACTORS.get(name, _BOUNDED)


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
        As it was restored.
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
    xp, operator, weights = problem.xp, problem.operator, problem.fit.weights
    rng = np.random.default_rng(seed)
    method = METHODS[name]
    truth = method.prepare(replace(problem, lam=_LESS * problem.lam)).solve(g[None, None]).scene[0, 0]
    seen = operator.forward(truth)
    spread: Array | float = sigma
    if weights is not None:  # a hidden pixel's noise is not looked at
        spread = sigma / xp.sqrt(xp.where(weights > 0, weights, 1))
    solver = method.prepare(problem)
    squares = []
    for i in range(count):
        noise = xp.asarray(rng.standard_normal(g.shape).astype(g.dtype))
        found = solver.solve((seen + spread * noise).astype(g.dtype)[None, None])
        squares.append(pooled((found.scene[0, 0] - truth) ** 2, _POOL))
        if callback is not None:
            callback(i + 1)
    stack = xp.stack(squares)
    local = xp.maximum(stack.mean(axis=0), np.finfo(g.dtype).tiny)
    whole = float(local[operator.crop].mean())
    std = factor(name) * xp.sqrt(local ** (1 - _WHOLE) * whole**_WHOLE)
    # To first order, for a power of what has an error of its own.
    error = (1 - _WHOLE) / 2 * std * stack.std(axis=0, ddof=1) / (np.sqrt(count) * local)
    return std, error


def pooled(x: Array, width: float) -> Array:
    """A mean over neighbouring pixels, with the weights of a Gaussian of that standard deviation."""
    if get_xp(x) is np:
        from scipy.ndimage import gaussian_filter
    else:
        from cupyx.scipy.ndimage import gaussian_filter
    return gaussian_filter(x, width, mode="reflect")

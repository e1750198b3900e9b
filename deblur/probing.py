"""The diagonal of an inverse (HᵀWH + λLᵀL)⁻¹, estimated from products with random vectors: see `deblur.posterior`.

`probe` estimates the diagonal of D = (HᵀWH + λLᵀL)⁻¹ in two ways, each with half of the probes, and takes
their mean, weighted at each pixel by the inverse of their variances:

*Random signs* z [1]_: z ∘ Dz has the mean diag D. A control variate reduces its variance: let T be the same inverse on
a torus around the scene, where it is diagonal in frequency and its diagonal constant, t. Then t + z ∘ (Dz − Tz) has the
same mean, and D and T differ only near the scene's borders. For a large λ this estimate is far the better one.

*Samples* of the posterior [2]_: f = D (Hᵀ√W n + √λ Lᵀm) with white noise n and m, whose square has the mean diag D.
For every λ, k of them give the deviation to 1/√(2k) of itself.

Each probe takes one solve. Without weights and for L = I that is one with HHᵀ + λI, by the preferred exact method:
Dz = (z − Hᵀ(HHᵀ + λI)⁻¹Hz)/λ, and for a scene f₀ drawn from the prior, f₀ + Hᵀ(HHᵀ + λI)⁻¹(n − Hf₀) is a sample.
Otherwise it is conjugate gradients, preconditioned by T. The variance of the first estimate comes from its scatter,
pooled over neighbouring pixels; that of the second is known; together they give the standard error. Weights that come
from the estimates themselves, and the root, leave a bias towards small values of a fraction of that error.

References
----------
.. [1] C. Bekas, E. Kokiopoulou, Y. Saad, "An estimator for the diagonal of a matrix", Appl. Numer. Math. 57
       (2007) 1214-1229.
.. [2] G. Papandreou, A. Yuille, "Gaussian sampling by local perturbations", NIPS 2010.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np

from .device import Array, get_xp
from .errors import ConvergenceError
from .linalg.krylov import cg
from .methods import METHODS, choose
from .operators.natural import TAPS, numbers, scenes
from .problem import Problem, Stop
from .solvers.domain import TorusDomain
from .solvers.start import smoothed
from .terms import DIFFERENCES, REGULARIZERS, adjoint_differences, counted
from .vector_ops import Systems

Counted = Callable[[int], None]  # called with the probes completed so far


def drawn(problem: Problem, u: Array, axes: int | None = None) -> Array:
    """Scenes, or with one axis their lines, from what the prior takes for independent numbers."""
    return scenes(u, problem.operator.boundary, axes or problem.axes) if problem.regularizer == "natural" else u


def probe(problem: Problem, probes: int, rng: np.random.Generator, report: Counted) -> tuple[Array, Array]:
    """Estimates of diag (HᵀWH + λLᵀL)⁻¹ and of their standard deviation, of the scene's shape, in float64."""
    xp, shape = problem.xp, problem.operator.scene_shape
    torus = _Preconditioner(problem)
    draw = _quadratic_draws(problem, rng, torus) if problem.asked else _linear_draws(problem, rng)
    signs_sum, signs_square, sample_sum = (xp.zeros(shape) for _ in range(3))
    left = count = probes // 2  # of either kind
    while left:
        k = min(4, left)  # signs and as many samples are solved for together
        left -= k
        z = xp.asarray((rng.integers(0, 2, (k, *shape)) * 2 - 1).astype(problem.dtype))
        inverse, sample = draw(z)
        estimate = torus.diagonal + (z * (inverse - torus(z))).astype(np.float64)
        signs_sum += estimate.sum(axis=0)
        signs_square += (estimate * estimate).sum(axis=0)
        sample_sum += (sample.astype(np.float64) ** 2).sum(axis=0)
        report(probes - 2 * left)
    first, second = signs_sum / count, sample_sum / count
    v1 = smoothed((signs_square - count * first * first).clip(0, None) / ((count - 1) * count), problem.axes)
    v2 = 2 * second * second / count  # of the mean of `count` squares of normal numbers
    return ((v2 * first + v1 * second) / (v1 + v2)).clip(*torus.bounds), xp.sqrt(v1 * v2 / (v1 + v2))


class _Preconditioner:
    """T = R (w̄ |h|² + λ|l|²)⁻¹ Rᵀ, R the restriction of a torus to the scene, w̄ the mean weight."""

    def __init__(self, problem: Problem) -> None:
        form, lam, w = problem.linear_form, problem.lam, problem.fidelity.weights
        operator, mixed = form.operator, problem.xp.ones(1)
        self._domain = domain = TorusDomain(operator.mean_blur, problem.dtype, problem.device)
        weight, most = (1.0, 1.0) if w is None else (float(w.mean()), float(w.max()))
        prior = domain.symbol(REGULARIZERS[form.regularizer][0].differences)
        if problem.regularizer == "natural":  # B, as a blur
            mixed = domain.torus.power(reduce(np.multiply.outer, [TAPS] * problem.axes))
        self._inverse = (mixed * domain.inverse(weight, lam * prior)).astype(problem.dtype)
        self.diagonal = float(domain.torus.synthesise(self._inverse).ravel()[0])  # its one value there
        # The diagonal of the inverse lies between the inverses of the largest and smallest eigenvalue.
        norm = (operator.boundary.weight * operator.norm_bound) ** 2
        least = float(mixed.min()) / (most * norm + lam * float(prior.max()))
        self.bounds = least, 1 / (lam * float(prior.min()) or 1e-300)

    def __call__(self, z: Array) -> Array:
        return self._domain.filter(z, self._inverse)


_Draw = Callable[[Array], tuple[Array, Array]]


def _linear_draws(problem: Problem, rng: np.random.Generator) -> _Draw:
    """From signs z, (Dz, as many samples of the posterior), for D = (HᵀH + λI)⁻¹."""
    whole, problem = problem, problem.linear_form
    operator, xp, dtype, lam = problem.operator, problem.xp, problem.dtype, problem.lam
    # The residual amounts to an error of D of at most 1/(2 √λ) times itself, a thousandth here.
    rtol = min(1e-4, max(1e-3 * math.sqrt(lam) / operator.norm_bound, 20 * float(np.finfo(dtype).eps)))
    problem = replace(problem, stop=Stop(rtol=rtol))
    factor = METHODS[choose(problem).method].prepare(problem)

    def draw(z: Array) -> tuple[Array, Array]:
        k, z = len(z), numbers(z, operator.boundary, problem.axes) if whole.regularizer == "natural" else z
        f = xp.asarray((rng.standard_normal(z.shape) / math.sqrt(lam)).astype(dtype))
        n = xp.asarray(rng.standard_normal((k, *operator.image_shape)).astype(dtype))
        # One solve for both: Hᵀ(HHᵀ + λI)⁻¹ of Hz and of n − Hf.
        found = factor.solve(xp.concatenate([operator.forward(z), n - operator.forward(f)])[:, None])
        if not found.converged:
            raise ConvergenceError(f"a probe could not be solved for: {found.why}")
        y = found.scene[:, 0]
        return drawn(whole, (z - y[:k]) / dtype.type(lam)), drawn(whole, f + y[k:])

    return draw


def _quadratic_draws(problem: Problem, rng: np.random.Generator, precondition: _Preconditioner) -> _Draw:
    """The same for D = (HᵀWH + λLᵀL)⁻¹, by conjugate gradients to a ten-thousandth in the energy norm."""
    operator, weights, xp, dtype = problem.operator, problem.fidelity.weights, problem.xp, problem.dtype
    root = 1.0 if weights is None else xp.sqrt(weights)
    kind, wraps = REGULARIZERS[problem.regularizer][0].differences, operator.boundary.wraps

    def noise(*shape: int) -> Array:
        return xp.asarray(rng.standard_normal(shape).astype(dtype))

    def draw(z: Array) -> tuple[Array, Array]:
        k = len(z)
        right = operator.adjoint(root * noise(k, *operator.image_shape))
        kinds = DIFFERENCES[kind](problem.axes)
        m = [noise(*z.shape) if wraps else counted(noise(*z.shape), difference) for difference in kinds]
        right += dtype.type(math.sqrt(problem.lam)) * adjoint_differences(m, kind, wraps, problem.axes)
        b = xp.concatenate([z, right])
        start = _dot(b, precondition(b))
        systems = Systems(_dot, lambda at: float((at.rz / start).max()))
        x, _, left = cg(problem.normal, b, systems, precondition=precondition, rtol=1e-8, max_iterations=1000)
        if not left <= 1e-8:
            raise ConvergenceError(
                f"a probe could not be solved for in 1000 iterations with {problem.strength}: use "
                f"a larger λ, or method 'cholesky' for a small image"
            )
        return x[:k], x[k:]

    return draw


def _dot(x: Array, y: Array) -> Array:
    sums = get_xp(x).einsum("ki,ki->k", x.reshape(len(x), -1), y.reshape(len(y), -1))
    return sums.reshape(-1, *[1] * (x.ndim - 1))

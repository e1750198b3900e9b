"""Estimate the diagonal of an inverse (HᵀWH + λLᵀL)⁻¹ from products with random vectors; see `deblur.posterior`.

`probe` estimates the diagonal of D = (HᵀWH + λLᵀL)⁻¹ in two ways, each with half of the probes. It returns their mean,
weighted at each pixel by the inverse variances.

*Random signs* z [1]_: z ∘ Dz has the mean diag D. A control variate reduces its variance. Let T be the same inverse on
a torus around the scene. T is diagonal in frequency, and its diagonal is a constant t. Then t + z ∘ (Dz − Tz) has the
same mean, and D and T differ only near the borders of the scene. For a large λ this estimate is much the better one.

*Samples* of the posterior [2]_: f = D (Hᵀ√W n + √λ Lᵀm) with white noise n and m. The mean of f² is diag D. For any λ,
k samples give the standard deviation with a relative error of 1/√(2k).

Each probe takes one solve. Without weights and for L = I, the preferred exact method solves with HHᵀ + λI:
Dz = (z − Hᵀ(HHᵀ + λI)⁻¹Hz)/λ, and for a scene f₀ drawn from the prior, f₀ + Hᵀ(HHᵀ + λI)⁻¹(n − Hf₀) is a sample.
In other cases conjugate gradients, preconditioned by T, solve with D⁻¹.

The variance of the first estimate is measured from its scatter, averaged over neighbouring pixels. The variance of the
second is known. Both together give the standard error. Since the weights come from the estimates themselves, and a
square root is taken, the result is biased towards small values by a fraction of the standard error.

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
from .methods import METHODS, serving
from .operators.natural import TAPS, numbers, scenes
from .problem import Problem, Stop
from .solvers.domain import TorusDomain
from .solvers.start import smoothed
from .terms import DIFFERENCES, adjoint_differences, counted, kind_of
from .vector_ops import Systems

Counted = Callable[[int], None]  # called with the number of completed probes


def drawn(problem: Problem, u: Array, axes: int | None = None) -> Array:
    """Return scenes (or, with `axes=1`, their lines) for independent numbers u: Bu for the prior "natural", else u."""
    return scenes(u, problem.operator.boundary, axes or problem.axes) if problem.regularizer == "natural" else u


def probe(problem: Problem, probes: int, rng: np.random.Generator, report: Counted) -> tuple[Array, Array]:
    """Return estimates of diag (HᵀWH + λLᵀL)⁻¹ and of their standard deviation, with the shape of the scene, in
    float64.
    """
    xp, shape = problem.xp, problem.operator.scene_shape
    torus = _Preconditioner(problem)
    draw = _quadratic_draws(problem, rng, torus) if problem.asked else _linear_draws(problem, rng)
    signs_sum, signs_square, sample_sum = (xp.zeros(shape) for _ in range(3))
    left = count = probes // 2  # of each kind
    while left:
        k = min(4, left)  # k signs and k samples are solved for together
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
    v2 = 2 * second * second / count  # variance of the mean of `count` squared normal numbers
    return ((v2 * first + v1 * second) / (v1 + v2)).clip(*torus.bounds), xp.sqrt(v1 * v2 / (v1 + v2))


class _Preconditioner:
    """T = R (w̄ |h|² + λ|l|²)⁻¹ Rᵀ, where R restricts a torus to the scene and w̄ is the mean weight."""

    def __init__(self, problem: Problem) -> None:
        form, lam, w = problem.linear_form, problem.lam, problem.fidelity.weights
        operator, mixed = form.operator, problem.xp.ones(1)
        self._domain = domain = TorusDomain(operator.mean_blur, problem.dtype, problem.device)
        weight, most = (1.0, 1.0) if w is None else (float(w.mean()), float(w.max()))
        prior = domain.symbol(kind_of(form.regularizer))
        if problem.regularizer == "natural":  # the power spectrum of B
            mixed = domain.torus.power(reduce(np.multiply.outer, [TAPS] * problem.axes))
        self._inverse = (mixed * domain.inverse(weight, lam * prior)).astype(problem.dtype)
        self.diagonal = float(domain.torus.synthesise(self._inverse).ravel()[0])  # constant on the torus

        # The diagonal of the inverse lies between the inverses of the largest and smallest eigenvalue.
        norm = (operator.boundary.weight * operator.norm_bound) ** 2
        least = float(mixed.min()) / (most * norm + lam * float(prior.max()))
        self.bounds = least, float(mixed.max()) / (lam * float(prior.min()) or 1e-300)

    def __call__(self, z: Array) -> Array:
        return self._domain.filter(z, self._inverse)


_Draw = Callable[[Array], tuple[Array, Array]]


def _linear_draws(problem: Problem, rng: np.random.Generator) -> _Draw:
    """Return a function of signs z whose value is (Dz, as many samples of the posterior), for D = (HᵀH + λI)⁻¹."""
    whole, problem = problem, problem.linear_form
    operator, xp, dtype, lam = problem.operator, problem.xp, problem.dtype, problem.lam
    # A residual r causes a relative error of D of at most r/(2 √λ), which is a thousandth here.
    rtol = min(1e-4, max(1e-3 * math.sqrt(lam) / operator.norm_bound, 20 * float(np.finfo(dtype).eps)))
    problem = replace(problem, stop=Stop(rtol=rtol))
    factor = METHODS[next(serving(problem)).method].prepare(problem)

    def draw(z: Array) -> tuple[Array, Array]:
        k, z = len(z), numbers(z, operator.boundary, problem.axes) if whole.regularizer == "natural" else z
        f = xp.asarray((rng.standard_normal(z.shape) / math.sqrt(lam)).astype(dtype))
        n = xp.asarray(rng.standard_normal((k, *operator.image_shape)).astype(dtype))
        # One solve for both: Hᵀ(HHᵀ + λI)⁻¹ of Hz and of n − Hf.
        found = factor.solve(xp.concatenate([operator.forward(z), n - operator.forward(f)])[:, None])
        if not found.converged:
            raise ConvergenceError(f"the solve of a probe did not converge: {found.why}")
        y = found.scene[:, 0]
        return drawn(whole, (z - y[:k]) / dtype.type(lam)), drawn(whole, f + y[k:])

    return draw


def _quadratic_draws(problem: Problem, rng: np.random.Generator, precondition: _Preconditioner) -> _Draw:
    """Return such a function as `_linear_draws` for D = (HᵀWH + λLᵀL)⁻¹, by conjugate gradients to 1e-4 in the energy
    norm.
    """
    operator, weights, xp, dtype = problem.operator, problem.fidelity.weights, problem.xp, problem.dtype
    root = 1.0 if weights is None else xp.sqrt(weights)
    kind, wraps = kind_of(problem.regularizer), operator.boundary.wraps

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
                f"the solve of a probe did not converge in 1000 iterations with {problem.strength}: use "
                f"a larger λ, or method 'cholesky' for a small image"
            )
        return x[:k], x[k:]

    return draw


def _dot(x: Array, y: Array) -> Array:
    sums = get_xp(x).einsum("ki,ki->k", x.reshape(len(x), -1), y.reshape(len(y), -1))
    return sums.reshape(-1, *[1] * (x.ndim - 1))

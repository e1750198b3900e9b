"""Quadratic penalties with weights: one linear system, solved by preconditioned conjugate gradients.

With data term "gaussian" and no bounds the problem is (HᵀWH + λLᵀL) f = HᵀW(g − b). The preconditioner is the
same operator with W replaced by its mean and the scene by a periodic domain around it (a mirrored one for
"reflect" and "antireflect"), where it is diagonal in frequency. Without weights, with boundary "periodic", or
with "reflect", the gradient and a PSF symmetric along each axis, it is the operator itself, and the first
step is the direct solution. With bounds or another data term the problem is ADMM's.
"""

from __future__ import annotations

import math

import numpy as np

from ..backend import Array, get_fft, get_xp
from ..errors import ConvergenceError
from ..solvers.spectrum import all_cores
from . import admm
from .problem import History, Solution, VariationalProblem, first_scene, weighted
from .terms import DIFFERENCES, PENALTIES, adjoint_differences, differences

MAX_ITERATIONS = 1000
_DIFFERENCES = {name: PENALTIES[name][0].differences for name in ("identity", "gradient", "laplacian")}


def refuses(problem: VariationalProblem) -> str | None:
    """None: every problem with a quadratic penalty is served."""
    return None if problem.method in _DIFFERENCES else f"{problem.method!r} is no quadratic penalty"


def linear(problem: VariationalProblem) -> bool:
    """Whether the minimiser solves one linear system."""
    return problem.data == "gaussian" and problem.bounds is None and problem.method in _DIFFERENCES


def gradient(problem: VariationalProblem, g: Array, scene: Array) -> Array:
    """The gradient of the objective of a `linear` problem: (HᵀWH + λLᵀL) f − HᵀW(g − b), (k, c, P, Q).

    Parameters
    ----------
    problem : VariationalProblem
    g : (k, c, M, N) array
    scene : (k, c, P, Q) array
    """
    misfit = problem.blur.forward(scene) + problem.background - g
    kind = _DIFFERENCES[problem.method]
    prior = adjoint_differences(differences(scene, kind, problem.wrap), kind, problem.wrap)
    return problem.blur.adjoint(weighted(problem) * misfit) + problem.lam * prior


def solve(problem: VariationalProblem, g: Array, start: Solution | None = None) -> Solution:
    """Minimise the problem for the frames `g`.

    Parameters and errors are those of `deblur.variational.admm.solve`. Each frame and channel is solved for itself.
    """
    if not linear(problem):
        return admm.solve(problem, g, start)
    with all_cores():
        return _pcg(problem, g, start)


def _pcg(problem: VariationalProblem, g: Array, start: Solution | None) -> Solution:
    xp = problem.xp
    eps = float(np.finfo(problem.dtype).eps)
    rtol = problem.rtol
    if rtol is None:
        # What is hidden is held by λ alone: an error there is that much smaller in the residual.
        rtol = max(min(1e-6, 0.01 * problem.lam / (problem.lam + problem.blur.gain**2)), 30 * eps)
    most = MAX_ITERATIONS if problem.max_iterations is None else problem.max_iterations
    zero = problem.xp.zeros((*g.shape[:2], *problem.blur.scene_shape), problem.dtype)
    right = -gradient(problem, g, zero)
    f = (
        start.scene.copy()
        if start is not None and start.scene.shape == zero.shape
        else first_scene(problem, g)
    )
    precondition = _Preconditioner(problem)
    flat = xp.zeros_like(g) + problem.background  # with it `gradient` is the operator alone
    size = xp.sqrt(_dot(right, right))
    size = size + (size == 0)
    constant = 0.5 * float(xp.sum(weighted(problem) * (g - problem.background) ** 2, dtype=np.float64))

    def look() -> tuple[float, float]:
        return constant - 0.5 * float(_dot(f, right + r).sum()), float((xp.sqrt(_dot(r, r)) / size).max())

    r = right - gradient(problem, flat, f)
    z = precondition(r)
    p, rz = z, _dot(r, z)
    history: list[tuple[float, float, float]] = []
    n, (value, residual), change = 0, look(), 0.0
    while residual > rtol and n < most:
        n += 1
        ap = gradient(problem, flat, p)
        curvature = _dot(p, ap)
        alpha = rz / (curvature + (curvature == 0))  # a frame that is solved stands still
        f = f + alpha * p
        r = r - alpha * ap
        change = float((abs(alpha) * xp.sqrt(_dot(p, p) / (_dot(f, f) + (rz == 0)))).max())
        z = precondition(r)
        before, rz = rz, _dot(r, z)
        p = z + (rz / (before + (before == 0))) * p
        value, residual = look()
        if not math.isfinite(value + residual):
            raise ConvergenceError(
                f"conjugate gradients broke down at iteration {n}: the residual became {residual}; use a larger λ "
                "or float64"
            )
        history.append((value, residual, change))
        if problem.callback is not None:
            problem.callback(n, residual)
    converged = residual <= rtol
    why = (
        f"the relative residual {residual:.1e} of the linear system after {n} iterations of conjugate gradients "
        f"is {'within' if converged else 'not within'} the tolerance {rtol:.1e}"
    )
    columns = np.array(history or [(value, residual, change)]).T
    return Solution(f, n, converged, why, History(*columns))


def _dot(a: Array, b: Array) -> Array:
    """The inner product of each frame and channel, (k, c, 1, 1), in the arrays' dtype."""
    return get_xp(a).einsum("kcij,kcij->kc", a, b)[:, :, None, None]


class _Preconditioner:
    """(w̄ KᵀK + λLᵀL)⁻¹ on the domain around the scene, w̄ the mean weight."""

    def __init__(self, problem: VariationalProblem) -> None:
        xp = problem.xp
        domain = admm.domain_of(problem)
        symbol = sum(d.symbol(domain.rows, domain.cols) for d in DIFFERENCES[_DIFFERENCES[problem.method]])
        mean = 1.0 if problem.weights is None else float(xp.mean(problem.weights))
        total = mean * domain.power + problem.lam * symbol
        floor = float(np.finfo(problem.dtype).eps) * float(total.max())
        self._inverse = (1 / xp.maximum(total, floor)).astype(problem.dtype)
        self._domain, self._fft, self._scene = domain, get_fft(xp), problem.blur.scene_shape

    def __call__(self, r: Array) -> Array:
        fft, shape = self._fft, self._domain.shape
        if isinstance(self._domain, admm._CosineDomain):
            spectrum = fft.dctn(r, axes=(-2, -1), norm="ortho")
            return fft.idctn(spectrum * self._inverse, axes=(-2, -1), norm="ortho")
        z = fft.irfft2(fft.rfft2(r, s=shape) * self._inverse, s=shape)
        return z[..., : self._scene[0], : self._scene[1]]

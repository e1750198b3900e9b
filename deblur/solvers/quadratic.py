"""Quadratic penalties with weights: one linear system, solved by preconditioned conjugate gradients.

With the fit "gaussian" and no bounds the problem is (HᵀWH + λLᵀL) f = HᵀW(g − b). The preconditioner is the
same operator with W replaced by its mean and H by the surrogate on ADMM's domain, where it is diagonal in frequency.
Without weights, with a boundary that wraps, or with "reflect", the gradient and a PSF symmetric along each axis, it
is the operator itself, and the first step is the direct solution. With bounds or another fit the problem is ADMM's.

A residual r leaves an error of the scene of up to ‖r‖/λ, where ‖f‖² alone holds it: unless told otherwise the
iteration goes on until that is small beside the scene. Differences hold the inside of a hole less: with them the second
half of the iterations must not have moved the scene either. Where float32 cannot carry so small a residual, float64
goes on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..device import Array, all_cores
from ..errors import ConvergenceError
from ..linalg.krylov import cg
from ..norms import norms
from ..problem import FLOAT64, Factor, History, Problem, Solution, Work
from ..terms import PENALTIES, is_quadratic
from ..vector_ops import image_systems
from . import admm
from .domain import domain_of
from .start import first_scene
from .units import in_units

MAX_ITERATIONS = 1500
_RTOL, _CLOSE, _MOVED = 1e-6, 5e-3, 1e-2  # relative residual, ‖r‖/λ and move over ‖f‖ that are small enough
_FEWEST = 4  # iterations after which a move tells anything
_ROUNDING = 30  # eps of relative residual that rounding leaves
_STIFFER = 20  # times the prior, where no one PSF says what the frame lets through: a fifth fewer iterations
_EXPECTED, _TRANSFORMS = 30, 6  # iterations that `work` reckons with, and transforms in each


def refuses(problem: Problem) -> str | None:
    """None: every problem with a quadratic penalty is served."""
    return None if is_quadratic(problem.penalty) else f"{problem.penalty!r} is no quadratic penalty"


def work(problem: Problem) -> Work:
    """An operation is a multiply-add of a transform, 2.5 n log2 n for the n pixels of the scene."""
    if not problem.quadratic:
        return admm.work(problem)
    n = math.prod(problem.operator.scene_shape)
    transform = 2.5 * n * math.log2(n + 1)
    return Work(
        transform, _EXPECTED * _TRANSFORMS * transform, 14.0 * n * problem.frames * problem.dtype.itemsize
    )


def prepare(problem: Problem) -> Factor:
    """The preconditioner; what ADMM prepares where the minimiser solves no linear system."""
    return Quadratic(problem) if problem.quadratic else admm.prepare(problem)


class Quadratic:
    """The system's preconditioner (w̄ KᵀK + λLᵀL)⁻¹ on the domain around the scene, w̄ the mean weight."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        most = problem.stop.max_iterations
        self._most = MAX_ITERATIONS if most is None else most
        self.domain = domain = domain_of(replace(problem, operator=problem.operator.surrogate))
        [penalty] = PENALTIES[problem.penalty]
        mean = 1.0 if problem.fit.weights is None else float(problem.xp.mean(problem.fit.weights))
        stationary = problem.operator.stationary is not None
        power = None if stationary else domain.power_of(problem.operator)
        lam = (1 if stationary else _STIFFER) * problem.lam
        self.inverse = domain.regularised(mean, lam, penalty.differences, power)

    @cached_property
    def _exact(self) -> Quadratic:
        """The same in float64."""
        fit = self.problem.fit
        weights = None if fit.weights is None else fit.weights.astype(np.float64)
        return Quadratic(replace(self.problem, dtype=FLOAT64, fit=replace(fit, weights=weights)))

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Solve for each frame and channel by itself; see `deblur.problem.Factor`.

        Raises
        ------
        ConvergenceError
            If conjugate gradients broke down.
        """
        with all_cores():
            found, close = self._solve(g, start)
            spent = found.iterations == self._most
            if close or spent or self.problem.dtype == FLOAT64 or not self.problem.lam:
                return found
            more, _ = self._exact._solve(g.astype(FLOAT64), found, found.iterations)
        before, after = found.history, more.history
        assert before is not None
        assert after is not None
        return replace(
            more,
            scene=more.scene.astype(self.problem.dtype),
            iterations=found.iterations + more.iterations,
            why=f"{more.why}, the last {more.iterations} in float64",
            history=History(*map(np.append, vars(before).values(), vars(after).values())),
        )

    def _solve(self, g: Array, start: Solution | None, done: int = 0) -> tuple[Solution, bool]:
        """The solution after iterations already `done`, and whether it is as close as it should be."""
        units = in_units(self.problem, g)
        problem, g, unit, xp = units.problem, units.g, units.unit, self.problem.xp
        right = problem.right(g)
        if start is not None and start.scene.shape == right.shape:
            first = (start.scene * start.scene.dtype.type(1 / unit)).astype(right.dtype, copy=False)
        else:
            first = first_scene(problem, g)
        frames = right.reshape(-1, *right.shape[2:])
        size = norms(frames)
        size += size == 0
        constant = problem.fit.value(xp.zeros_like(g), g)
        rtol, eps = problem.stop.rtol, float(np.finfo(g.dtype).eps)
        rounding = _ROUNDING * eps
        history: list[tuple[float, float, float]] = []
        path: list[float] = []  # how far all iterations so far have moved the scene
        close = False

        def measure(sums: np.ndarray) -> float:
            """What is left over what may be, from (5, k c): ‖r‖², ⟨x, right + r⟩, ‖p‖², ‖x‖² and the α by which x was
            moved along p."""
            nonlocal close
            n, (left, aligned, step, norm, alpha) = len(history), sums
            left, norm = np.sqrt(left), np.sqrt(norm)
            residual = float((left / size).max())
            value = units.objective(constant - 0.5 * float(aligned.sum()))
            change = float((abs(alpha) * np.sqrt(step) / (norm + (norm == 0))).max())
            history.append((value, residual, change))
            path.append(change + (path[-1] if path else 0.0))
            if not math.isfinite(value + residual):
                raise ConvergenceError(
                    f"conjugate gradients broke down at iteration {n}: the residual became {residual}; use a larger "
                    "λ or float64"
                )
            if n:
                problem.stop.report(done + n, residual)
            if rtol is not None:
                close = bool((left <= rtol * size).all())
                return residual / rtol if residual else 0.0
            allowed = np.minimum(max(_RTOL, rounding) * size, _CLOSE * problem.lam * norm)
            still = problem.penalty == "identity" or bool((left <= eps * size).all())
            moved = 0.0 if still else (path[n] - path[n // 2]) / _MOVED if n >= _FEWEST else math.inf
            close = bool((left <= allowed).all()) and moved <= 1
            excess = float((left / np.maximum(allowed, rounding * size)).max())
            return max(excess, moved) if g.dtype == FLOAT64 else excess

        def precondition(r: Array) -> Array:
            return self.domain.filter(r, self.inverse)

        capture = problem.operator.stationary is not None  # its FFT plans are cached
        f, n, excess = cg(
            problem.normal,
            right,
            image_systems(right, measure, capture),
            first,
            precondition=precondition,
            rtol=1.0,
            max_iterations=self._most - done,
        )
        converged, (_, residual, _) = excess <= 1, history[-1]
        why = (
            f"the relative residual {residual:.1e} of the linear system after {n} iterations of conjugate gradients "
            f"is {'within' if converged else 'not within'} the tolerance{f' {rtol:.1e}' if rtol else ''}"
        )
        columns = np.array(history[1:] or history).T
        return Solution(f * f.dtype.type(unit), n, converged, why, History(*columns)), close

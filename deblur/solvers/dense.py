"""Dense methods: HHᵀ + λI is formed, factored (or swept over), and stored.

Four methods share everything but the factorisation: ``cholesky``,
``gauss-jordan``, ``gauss-seidel`` and ``lu`` (SciPy's general solver, the
reference). All work on the matrix A = HHᵀ + λI of size n = M N pixels:

    tikhonov   f = Hᵀ (A⁻¹ g)          hht   f = A⁻¹ (Hᵀ g)

Products with Hᵀ go through `Blur.adjoint`. An inverse is formed only if the
problem requests it (``inverse=True``), as the thesis does throughout.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import scipy

from .. import linalg
from ..device import Array
from ..errors import SingularMatrixError
from ..linalg.cholesky import cholesky_begun
from ..norms import norms
from ..operators.normal import normal_matrix
from ..problem import Direct, Factor, Problem
from .refine import Factored, close_to_singular, refined, refuse_singular, singular


class Dense:
    """A dense method; `deblur.methods.METHODS` holds one instance for each name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def refuses(self, problem: Problem) -> str | None:
        if problem.inverse and self.name == "lu":
            return "it is the reference for solving; use cholesky or gauss-jordan for an inverse"
        return None

    def memory(self, problem: Problem) -> tuple[float, ...]:
        """Return the bytes of the matrix, of a copy, and of an inverse or a sweep."""
        a = float(problem.blur.shape[0] ** 2 * problem.dtype.itemsize)
        return a, a * (self.name == "lu"), a * {"gauss-jordan": 1.3, "gauss-seidel": 0.3}.get(self.name, 0.0)

    def prepare(self, problem: Problem) -> Factor:
        a = normal_matrix(problem.blur, problem.lam, problem.dtype, problem.device)
        # The largest entry is needed only if A may be singular; on a GPU, `max` would be compiled and waited for.
        largest = float(a.diagonal().max()) if close_to_singular(problem) else None
        try:
            return _FACTORS[self.name](problem, a, largest)
        except SingularMatrixError as error:
            raise singular(problem, error) from error


def _times(inverse: Array, b: Array) -> Array:
    return (b.T @ inverse).T


def _multiplied(problem: Problem, inverse: Array) -> Factor:
    """Return a factor that multiplies by the inverse, which is symmetric as A is."""
    remark = "the inverse was formed, as requested" if problem.inverse else ""
    return Factored(problem, partial(_times, inverse), remark)


def _cholesky(problem: Problem, a: Array, largest: float | None) -> Factor:
    if problem.inverse:
        return _multiplied(problem, linalg.cholesky_inverse(a, overwrite_a=True, check_finite=False))
    factor, look = cholesky_begun(a)
    solve = partial(linalg.cholesky_solve, factor, check_finite=False)
    if look and largest is not None:
        look()
    refuse_singular(problem, largest, solve)
    return Factored(problem, solve, look=look)


def _gauss_jordan(problem: Problem, a: Array, largest: float | None) -> Factor:
    """Return the inverse if it will be used again, else solve for each image: Gauss-Jordan elimination keeps no factor.

    A solve rounds a little worse than the other methods, so it is corrected.
    """
    if not (problem.inverse or problem.reuse):
        solve = partial(linalg.gauss_jordan_solve, a, check_finite=False)
        refuse_singular(problem, largest, solve)
        return Factored(problem, solve, "")
    inverse = linalg.gauss_jordan_inverse(a, overwrite_a=True, check_finite=False)
    refuse_singular(problem, largest, partial(_times, inverse))
    return _multiplied(problem, inverse)


def _lu(problem: Problem, a: Array, largest: float | None) -> Factor:
    lapack = import_module("scipy.linalg" if problem.device.gpu is None else "cupyx.scipy.linalg")
    with warnings.catch_warnings():
        # A pivot that is exactly zero shows in the solution.
        warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
        lu, pivots = lapack.lu_factor(a, overwrite_a=True, check_finite=False)
    solve = partial(_lu_solved, lapack.lu_solve, lu, pivots)
    refuse_singular(problem, largest, solve)
    return Factored(problem, solve)


def _lu_solved(solve: Callable[..., Array], lu: Array, pivots: Array, b: Array) -> Array:
    # SciPy's solve changes the pivots in place for a while: threads must not share them.
    return solve((lu, pivots.copy()), b, check_finite=False)


def _aim(problem: Problem) -> float:
    """Return the relative residual to aim at: by default, one that leaves an error of about 1e-9 in the image.

    See `deblur.solvers.refine` for the amplification by λ.
    """
    if problem.early:
        return problem.early
    relative = problem.lam / problem.blur.norm_bound**2
    amplified = relative if problem.formula == "hht" else relative**0.5
    return max(1e-9 * min(amplified, 1.0), 4 * float(np.finfo(problem.dtype).eps))


class _GaussSeidel(Direct):
    """Gauss-Seidel sweeps for each image, or once for the inverse, which then multiplies each image."""

    def __init__(self, problem: Problem, a: Array, largest: float | None) -> None:
        if largest is not None:  # sweeps do not notice a singular matrix
            _cholesky(replace(problem, inverse=False), a.copy(), largest)
        self._problem, self._a, self._inverse = problem, a, None
        self._aim = _aim(problem)
        self._limit = 20_000 if problem.stop.max_iterations is None else problem.stop.max_iterations
        if problem.inverse:
            identity = problem.xp.eye(len(a), dtype=problem.dtype)
            self._inverse, self._sweeps = self._solve(identity, self._aim, 0, 1.0)

    def _solve(self, b: Array, rtol: float, done: int, size: float) -> tuple[Array, linalg.GaussSeidelInfo]:
        def report(sweep: int, residual: float) -> None:
            self._problem.stop.report(done + sweep, size * residual)

        solve = partial(linalg.gauss_seidel, acceleration="cg", callback=report, check_finite=False)
        return solve(self._a, b, rtol=rtol, max_sweeps=self._limit - done)

    def _correction(self, r: Array, scale: np.ndarray, target: float, done: int) -> tuple[Array, int, bool]:
        rows = r.reshape(len(r), -1)
        if self._inverse is not None:
            # A is symmetric, and each column of its inverse has a small relative error. Multiplied as rows, they give
            # a small relative error of the result; as columns, an error relative to the inverse.
            return (rows @ self._inverse).reshape(r.shape), 0 if done else self._sweeps.sweeps, True
        size = float((norms(r) / scale).max()) or 1.0
        x, info = self._solve(rows.T, min(target / size, 1.0), done, size)
        return x.T.reshape(r.shape), info.sweeps, info.converged

    def scenes(self, g: Array) -> tuple[Array, int, bool, str]:
        return refined(self._problem, g, self._correction, aim=self._aim, limit=self._limit)


_FACTORS: dict[str, Callable[[Problem, Array, float | None], Factor]] = {
    "cholesky": _cholesky,
    "gauss-jordan": _gauss_jordan,
    "gauss-seidel": _GaussSeidel,
    "lu": _lu,
}

"""Iterative refinement until an image is accurate, and the tolerance that defines this.

With A = HHᵀ + λI, a residual r = b − A z leaves a relative error in the image f of at most

    hht        ‖A⁻¹r‖ / ‖f‖    ≤  ‖r‖ / (λ ‖f‖) ,
    tikhonov   ‖HᵀA⁻¹r‖ / ‖f‖  ≤  ‖r‖ / (2 √λ ‖f‖) ,

so no fixed residual guarantees an accurate image: a small λ amplifies it. On the other hand, no solver is more accurate
than rounding, which leaves eps cond(A). `converged` means that the relative error of the image is at most

    2e-6 + 300 eps cond(A) in float64,   1e-4 + 300 eps cond(A) in float32,   and 1e-2 in any case .

This module requires half of the first number and of the last, and a part of the second that leaves room for the
bounds. For cond(A) only lower bounds are known (‖A⁻¹‖ is at least ‖z‖/‖A z‖), so an error is excused by less than
cond(A) at most. If neither bound decides, one more round does: the length of its step is the error that the image had.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..device import Array, Map, random_sizes
from ..errors import SingularMatrixError
from ..norms import combined, norms
from ..problem import Direct, Problem, Scenes

#: Largest relative error of the image that counts as converged.
MOST = 5e-3

#: ``correction(r, sizes, target, iterations so far)`` returns d with ‖r − A d‖ at most target times `sizes` for every
#: image, the number of iterations that it took, and whether it got there.
Correction = Callable[[Array, np.ndarray, float, int], tuple[Array, int, bool]]


def singular(problem: Problem, error: Exception, matrix: str = "HHᵀ + λI") -> SingularMatrixError:
    """Return the error for a matrix of the problem that a method found singular; `error` says how."""
    return SingularMatrixError(
        f"{matrix} with {problem.strength} is singular to {problem.dtype} rounding ({error}); "
        "the blur removes some patterns entirely, so use a larger λ"
        + (" or float64 images" if problem.dtype == np.float32 else ""),
        getattr(error, "index", None),
    )


def refuse_singular(problem: Problem, largest: float | None, solve: Map, most: float = 1.0) -> None:
    """Raise SingularMatrixError if the solution for random right-hand sides is too large to be accurate in the dtype.

    `solve` solves with the matrix A for right-hand sides (n, k). `largest` is the largest entry of A, or None if A is
    not `close_to_singular`; then nothing is checked. `most` is the largest relative error that rounding may leave.
    """
    if largest is None:
        return
    given = random_sizes(problem.blur.image_shape, problem.dtype, problem.xp).reshape(-1, 1)
    with np.errstate(all="ignore"):
        rcond = 1 / np.float64(largest * float(abs(solve(given)).max()))
    if not most * rcond > float(np.finfo(problem.dtype).eps):
        raise SingularMatrixError(f"its reciprocal condition number is at most {rcond:.1e}")


def close_to_singular(problem: Problem) -> bool:
    """Return whether λ is too small to rule out a singular matrix."""
    n_eps = max(100, problem.blur.shape[0]) * float(np.finfo(problem.dtype).eps)
    return problem.lam < n_eps * problem.blur.norm_bound**2


def tolerance(problem: Problem) -> tuple[float, float]:
    """Return the relative error that the image may have, and the multiple of cond(A) that rounding may add to it."""
    return 1e-6 if problem.dtype == np.float64 else 5e-5, 20 * float(np.finfo(problem.dtype).eps)


def refined(
    problem: Problem, g: Array, solve: Correction, *, aim: float = np.inf, limit: float = np.inf
) -> tuple[Array, int, bool, str]:
    """Return scenes for images g (n, M, N), corrected until accurate, and the other results of `Direct.scenes`.

    Parameters
    ----------
    solve : callable
        The solver; see `Correction`.
    aim : float
        Relative residual down to which it is worth iterating, as far as rounding allows. By default infinite, as for a
        direct solver; a residual that the user gave then does not decide in place of the image.
    limit : float
        Largest number of iterations.
    """
    operator, lam, hht = problem.operator, problem.lam, problem.formula == "hht"
    rtol = problem.stop.rtol if aim < np.inf else None
    b = operator.adjoint(g) if hht else g
    size = norms(b)
    scale = np.where(size > 0, size, 1.0)
    z, image, r, iterations, reached, solved = None, None, b, 0, np.inf, False
    while True:
        step, used, solved = solve(r, scale, aim if not reached <= aim else 0.1 * reached, iterations)
        z = step if z is None else combined(step, z)
        iterations += used
        scene = operator.adjoint(z)
        r = combined(combined(b, operator.forward(scene), b=-1), z, b=-lam)
        before, reached = reached, float((norms(r) / scale).max())
        image, old = (z if hht else scene), image
        problem.stop.report(iterations, reached)
        right = reached <= (rtol or np.inf)
        if right and not (rtol and problem.early):
            moved = norms(combined(image, old, b=-1)) if solved and old is not None else np.array(np.inf)
            right = _right(problem, norms(r), norms(z), norms(image), size, moved)
        # `not <` so that NaN stops too.
        if (right and reached <= aim) or iterations >= limit or not reached < 0.5 * before:
            break
    if right:
        return image, iterations, True, f"relative residual {reached:.1e} of (HHᵀ + λI) z"
    if not reached <= 1:  # the iteration diverged: a black image is nearer
        image = problem.xp.zeros_like(image)
    why = "stopped" if iterations >= limit else "stagnated"
    asked = f"{rtol:.1e} was requested" if rtol and not reached <= rtol else "too much to guarantee an accurate image"
    more = ", or float64" if b.dtype == np.float32 else ""
    why = (
        f"{why} after {iterations} iterations at relative residual {reached:.1e} ({asked}) with {problem.strength}: "
        f"use a larger λ, method 'kronecker' if the PSF is separable, 'banded' or 'cholesky' for a small image{more}"
    )
    return image, iterations, False, why


def scenes_of(problem: Problem, g: Array, solve: Map, remark: str | None = None) -> Scenes:
    """Return scenes for images g (n, M, N) by a direct `solve` with HHᵀ + λI, as `Direct.scenes` does.

    An image that is not yet accurate is corrected if there is a remark (which an accurate image gets), and for "hht",
    which amplifies a residual by 1/λ instead of its root.
    """
    if remark is None and problem.formula == "tikhonov":
        return problem.operator.adjoint(solve(g))
    image, _, right, why = refined(problem, g, lambda r, *_: (solve(r), 0, True))
    return image, 0, right, (remark or "") if right else why


class Factored(Direct):
    """A direct method that knows A⁻¹, with A = HHᵀ + λI.

    Parameters
    ----------
    problem : Problem
    columns : callable
        Solves with A for right-hand sides (n, k).
    remark : str, optional
        See `refine.scenes_of`.
    look : callable, optional
        Waits for the factorisation; raises SingularMatrixError if it failed.
    """

    def __init__(
        self, problem: Problem, columns: Map, remark: str | None = None, look: Callable[[], None] | None = None
    ) -> None:
        self._problem, self._columns, self._remark, self._look = problem, columns, remark, look

    def synchronize(self) -> None:
        """See `deblur.problem.synchronize`."""
        try:
            if self._look is not None:
                self._look()
        except SingularMatrixError as error:
            raise singular(self._problem, error) from error

    def _solved(self, b: Array) -> Array:
        return self._columns(b.reshape(len(b), -1).T).T.reshape(b.shape)

    def scenes(self, g: Array) -> Scenes:
        return scenes_of(self._problem, g, self._solved, self._remark)


def _right(problem: Problem, r: np.ndarray, z: np.ndarray, image: np.ndarray, b: np.ndarray, moved: np.ndarray) -> bool:
    """Return whether every frame is within the tolerance, from norms of r, z, image and b and the last change."""
    close, rounding = tolerance(problem)
    norm, lam = problem.operator.norm_bound**2 + problem.lam, problem.lam
    inverse = z / np.maximum(b + r, np.finfo(np.float64).tiny)  # ‖A⁻¹‖ is at least ‖z‖/‖A z‖
    if problem.formula == "hht":
        bound = min(close * lam + rounding * norm, MOST * lam)
    else:  # ‖HᵀA⁻¹‖ is also at most the root of ‖A⁻¹‖
        root = 2 * lam**0.5
        bound = np.minimum(close * root + rounding * norm * np.sqrt(inverse), MOST * root)
    still = moved <= np.minimum(close + rounding * norm * inverse, MOST) * image
    return bool(((r <= bound * image) | still).all())

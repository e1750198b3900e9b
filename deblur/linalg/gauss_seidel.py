"""Blocked Gauss-Seidel iteration, plain or as the preconditioner of conjugate gradients.

With A = L + D + U (strictly lower, diagonal, strictly upper part), a sweep solves
(L + D) x⁺ = b - U x. For a block I of rows, with new x to its left and old x from it on,

    x_I += K_II⁻¹ (b_I - A_I: x),     K = L + D,

equals the sweep of these rows one by one, whatever the size of the block. Most of the work is the
product with the block's rows; the triangular solve is small. The part of the product left of the
block is stored until the next sweep, where it completes b - A x for the x between the sweeps. So the
true residual is known at no cost, one sweep late.

The error of the plain iteration falls by a factor of about 1 - c/κ(A) in a sweep, too slowly for
κ = 10⁶. With ``acceleration="cg"``, a forward and a backward sweep, M = K D⁻¹ Kᵀ for symmetric A,
precondition conjugate gradients, which need about √κ(M⁻¹A) iterations. By Eisenstat's trick [2]_,
the iteration runs on K⁻¹ A K⁻ᵀ. Since A = K + Kᵀ - D, a product with this matrix takes two triangular
solves, and an iteration reads the matrix once, as a plain sweep does.

References
----------
.. [1] Y. Saad, "Iterative Methods for Sparse Linear Systems", 2nd ed., SIAM 2003, sec. 4.1, 9.2.2.
.. [2] S. C. Eisenstat, "Efficient implementation of a class of preconditioned conjugate gradient
   methods", SIAM J. Sci. Stat. Comput. 2 (1981) 1-4.
.. [3] H. A. van der Vorst, Q. Ye, "Residual replacement strategies for Krylov subspace iterative
   methods for the convergence of true residuals", SIAM J. Sci. Comput. 22 (2000) 835-852.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..device import Array, asnumpy, blocks, get_xp
from ..errors import check_callback, check_choice, check_count, check_number
from ..norms import combined, largest, normalized, norms
from ..vector_ops import Systems
from .checks import as_rhs, as_system, check_overflow, check_pivots, contiguous
from .krylov import cg
from .triangular import substitute

BLOCK = 256  # rows of a block: large enough for fast products, small enough for a cheap triangular solve
STALL = 100  # the iteration stagnates after this many sweeps without a residual lower by 0.1 %

Callback = Callable[[int, float], object]
Status = Literal["converged", "max_sweeps", "stagnated", "diverged", "indefinite"]


@dataclass(frozen=True)
class GaussSeidelInfo:
    """Result of a Gauss-Seidel iteration: its status and residual.

    Attributes
    ----------
    sweeps : int
        Sweeps done; with ``acceleration="cg"``, iterations, each as expensive as a sweep.
    relative_residual : float
        ‖b - A x‖/‖b‖ of the returned x, computed in float64; for several right-hand sides, the largest
        one.
    status : {"converged", "max_sweeps", "stagnated", "diverged", "indefinite"}
        Only "converged" means that the requested residual was reached.
    reason : str
        The status in words, with a remedy.
    """

    sweeps: int
    relative_residual: float
    status: Status
    reason: str

    @property
    def converged(self) -> bool:
        """Whether the requested residual was reached."""
        return self.status == "converged"


def gauss_seidel(
    a: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float | None = None,
    max_sweeps: int = 1000,
    acceleration: Literal["cg"] | None = None,
    callback: Callback | None = None,
    check_finite: bool = True,
) -> tuple[Array, GaussSeidelInfo]:
    """Return the solution of A X = B by Gauss-Seidel sweeps, and how the iteration ended.

    Parameters
    ----------
    a : array_like, shape (n, n)
        Real matrix without zeros on its diagonal. The sweeps converge if it is symmetric positive
        definite or strictly diagonally dominant.
    b : array_like, shape (n,) or (n, k)
        One right-hand side, or k of them. For the identity, the solution is the inverse.
    x0 : array_like, shape of `b`, optional
        First iterate; zero by default.
    rtol : float, optional
        Relative residual ‖b - A x‖/‖b‖ to reach in every column of `b`. By default the square
        root of eps of the dtype.
    max_sweeps : int
        Largest number of sweeps.
    acceleration : {None, "cg"}
        None for the plain iteration. "cg" for conjugate gradients, preconditioned by a forward and a
        backward sweep. It needs a symmetric positive definite `a`, and serves condition numbers of a
        million and more.
    callback : callable, optional
        Called as ``callback(sweep, relative_residual)`` after each sweep. With "cg" the residual is
        an estimate; the true one is computed before convergence is reported.
    check_finite : bool
        Look for NaN and infinity in `a`, `b` and `x0` first.

    Returns
    -------
    x : ndarray, shape of `b`
        The last iterate: float32 if `a` and `b` both are (or float16), else float64.
    info : GaussSeidelInfo
        Whether the iteration converged, and the true residual. Stagnation and divergence raise no
        error: check ``info.converged``.

    Raises
    ------
    SingularMatrixError
        If a diagonal entry is zero or its reciprocal overflows (``index`` is its position), or,
        with ``index`` None, if the solution overflows.
    ValueError
        If shapes do not match, an entry is not finite, an option is out of range, or with
        ``acceleration="cg"`` if `a` is not symmetric or has a negative diagonal entry.
    TypeError
        If an argument is complex, sparse or masked.
    """
    a, b = as_system(a, b, finite=check_finite)
    n, eps = len(a), float(np.finfo(a.dtype).eps)
    rtol = eps**0.5 if rtol is None else check_number(rtol, "rtol")
    max_sweeps = check_count(max_sweeps, "max_sweeps", 0)
    check_choice(acceleration, (None, "cg"), "acceleration")
    check_callback(callback, "callback", "sweep", "relative_residual")
    why = "Gauss-Seidel divides by the diagonal of the matrix, whose entry {}, counted from 0, is {:.3g}; "
    check_pivots(a.diagonal(), text=f"{why}reorder the equations, or use gauss_jordan_solve")
    x = get_xp(a).zeros_like(b) if x0 is None else as_rhs(x0, n, "x0", dtype=a.dtype, finite=check_finite).copy()
    if x.shape != b.shape:
        raise ValueError(f"x0 must have the shape of b, {b.shape}, not {x.shape}")
    if b.size == 0:
        return x, GaussSeidelInfo(0, 0.0, "converged", "there is nothing to solve")
    if acceleration == "cg":
        _check_symmetric(a, eps**0.5)
    a, power = normalized(contiguous(a), 20)  # so that neither squares nor their products with `a` vanish

    most = asnumpy(abs(get_xp(b).ascontiguousarray(b.T)).max(axis=-1))
    # Each column is divided by a power of two near its largest entry, which keeps squares in range.
    xp, exponent = get_xp(a), get_xp(a).asarray(np.frexp(most)[1] - 1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        report = callback or (lambda sweep, residual: None)
        system = _System(a, xp.ldexp(b, -exponent), xp.ldexp(x, power - exponent), rtol, report)
        status, sweeps = (_sweep if acceleration is None else _conjugate_gradients)(system, max_sweeps)
        relative = system.relative_residual()
        x = xp.ldexp(system.x, exponent - power)
    if status == "max_sweeps" and not rtol < relative < np.inf:
        status = "converged" if relative <= rtol else "diverged"
    if status != "diverged":
        check_overflow(x, "the solution")
    return x, GaussSeidelInfo(sweeps, relative, status, _reason(status, sweeps, relative, rtol))


# The host makes all decisions, so it gets the sums over columns. Columns become rows before they are summed, for
# which CuPy has compiled kernels.


def _norms(x: Array) -> np.ndarray:
    """Return the Euclidean norm of each column."""
    rows = get_xp(x).ascontiguousarray(x.T)
    return norms(rows.reshape(-1, len(x))).reshape(rows.shape[:-1])


def _dots(x: Array, y: Array) -> Any:
    """Return the inner product of each column of x with that of y; a number on the host for one column."""
    sums = get_xp(x).ascontiguousarray((x * y).T).sum(axis=-1)
    return float(sums.reshape(-1)[0]) if sums.size == 1 else sums


class _System:
    """The system A X = B with the current `x`, the measure of its residual, and its progress."""

    def __init__(self, a: Array, b: Array, x: Array, rtol: float, callback: Callback) -> None:
        norm = _norms(b)
        # If a column of b is zero, so is its x, and it has no relative residual.
        x = x * get_xp(x).asarray((norm != 0).astype(x.dtype))
        self.a, self.b, self.x, self.rtol, self.callback = a, b, x, rtol, callback
        self._norm = np.where(norm == 0, 1.0, norm)
        self.lowest, self.last_gain, self.patience = np.inf, 0, STALL

    def relative(self, residual: Array) -> np.ndarray:
        """Return ‖r‖/‖b‖ of each column."""
        return _norms(residual) / self._norm

    def residual(self) -> Array:
        """Return b - A x in float64, without a second n × n matrix for float32."""
        x = self.x.astype(np.float64, copy=False)
        residual = self.b.astype(np.float64)
        for rows in blocks(len(x), BLOCK):
            combined(residual[rows], self.a[rows].astype(np.float64, copy=False) @ x, b=-1, out=residual[rows])
        return residual

    def relative_residual(self) -> float:
        """Return the largest ‖b - A x‖/‖b‖ over all columns."""
        return float(self.relative(self.residual()).max())

    def stagnates(self, sweep: int, relative: float) -> bool:
        """Return whether no residual has been lower by 0.1 % for `patience` sweeps."""
        if relative < 0.999 * self.lowest:
            self.lowest, self.last_gain = relative, sweep
        return sweep - self.last_gain >= self.patience


def _sweep(system: _System, max_sweeps: int) -> tuple[Status, int]:
    """Run plain sweeps; return the status and the number of sweeps."""
    a, b, x, xp = system.a, system.b, system.x, get_xp(system.a)
    parts = blocks(len(a), BLOCK)
    corners = [xp.ascontiguousarray(a[rows, rows]) for rows in parts]
    left = [a[rows, : rows.start] @ x[: rows.start] for rows in parts]
    residual, first = xp.empty_like(b), np.inf
    for sweep in range(max_sweeps):
        for i, rows in enumerate(parts):
            rest = b[rows] - a[rows, rows.start :] @ x[rows.start :]
            residual[rows] = rest - left[i]
            left[i] = a[rows, : rows.start] @ x[: rows.start]
            step = rest - left[i]
            substitute(corners[i], step)
            x[rows] += step
        relative = float(system.relative(residual).max())  # of x before this sweep
        if sweep == 0:
            first = relative
        else:
            system.callback(sweep, relative)
        if not relative <= 1e8 * max(first, 1.0):
            return "diverged", sweep + 1
        if relative <= system.rtol and system.relative_residual() <= system.rtol:
            return "converged", sweep + 1
        if system.stagnates(sweep, relative):
            return "stagnated", sweep + 1
    return "max_sweeps", max_sweeps


def _conjugate_gradients(system: _System, max_sweeps: int) -> tuple[Status, int]:
    """Run conjugate gradients on K⁻¹ A K⁻ᵀ; return the status and the number of iterations."""
    ops = _Transformed(system)
    if system.lowest <= system.rtol:
        return "converged", 0
    cg(ops.apply, ops.transformed(), ops, precondition=ops.scaled, rtol=0.0, max_iterations=max_sweeps)
    return ops.status, ops.sweeps


class _Transformed(Systems):
    """Conjugate gradients in the transformed space: r = K⁻¹ (b - A x), and a step along p moves x along K⁻ᵀ p.

    The preconditioner M becomes D⁻¹ there. √rz, the M⁻¹-norm of b - A x, is free and estimates the residual's norm.
    Whenever the norm itself is computed, the ratio of the two is corrected.
    """

    def __init__(self, system: _System) -> None:
        super().__init__(_dots, _Transformed._estimate)
        self._system = system
        self._diagonal = system.a.diagonal().copy().reshape(-1, *(1,) * (system.x.ndim - 1))
        system.lowest = self._lowest_computed = self._compute()
        # The residual may rise for a long time, but without rounding n steps suffice.
        system.patience = STALL + len(system.x)
        self.status: Status = "max_sweeps"
        self.sweeps, self._failed_checks = -1, 0

    def _compute(self) -> float:
        """Compute the residual; return its largest relative norm."""
        self._true = self._system.residual()
        self._norms = self._system.relative(self._true)
        return float(self._norms.max())

    def scaled(self, r: Array) -> Array:
        """Return D r."""
        return self._diagonal * r

    def transformed(self) -> Array:
        """Return K⁻¹ times the computed residual."""
        r = get_xp(self._true).ascontiguousarray(self._true.astype(self._system.a.dtype))
        substitute(self._system.a, r)
        return r

    def apply(self, p: Array) -> Array:
        """Return K⁻¹ A K⁻ᵀ p."""
        self._step = p.copy()
        substitute(self._system.a, self._step, trans=True)
        image = p - self.scaled(self._step)
        substitute(self._system.a, image)
        image += self._step
        return image

    def advance(self, ap: Array) -> None:
        if ((asnumpy(self._dot(self.p, ap)) <= 0) & (asnumpy(self.rz) > 0)).any():
            self.status = "indefinite"
            return
        super().advance(ap)
        self._system.x += self._step * self.alpha

    def _estimate(self) -> float:
        """Return the estimated residual; zero if the iteration has ended, with the reason in `status`."""
        if self.status == "indefinite":
            return 0.0
        self.sweeps += 1
        system = self._system
        if self.sweeps == 0:
            self._calibrate()
            return np.inf
        estimate = float((self._ratio * np.sqrt(asnumpy(self.rz))).max())
        if not estimate < np.inf:
            return self._end("diverged")
        if estimate <= system.rtol:
            estimate = self._compute()
            if estimate <= system.rtol:
                system.callback(self.sweeps, estimate)
                return self._end("converged")
            self._failed_checks = 0 if estimate < 0.1 * self._lowest_computed else self._failed_checks + 1
            if self._failed_checks >= 3:
                return self._end("stagnated")
            self._lowest_computed = min(self._lowest_computed, estimate)
            system.lowest, system.last_gain, system.patience = estimate, self.sweeps, STALL
            self._correct()
        system.callback(self.sweeps, estimate)
        return self._end("stagnated") if system.stagnates(self.sweeps, estimate) else estimate

    def _end(self, status: Status) -> float:
        self.status = status
        return 0.0

    def _calibrate(self) -> None:
        root = np.sqrt(asnumpy(self.rz))
        self._ratio = self._norms / np.where(root > 0, root, np.inf)

    def _correct(self) -> None:
        """Replace the recurrence's residual by the computed one [3]_.

        If rounding has separated the two, the old direction is not conjugate to the new residual, and the column
        starts anew.
        """
        drift = self.r - self.transformed()
        self.r -= drift
        before = self._beta
        self.aim(self.scaled(self.r))
        self._beta = self._beta * before * (self._dot(drift, self.scaled(drift)) <= 0.01 * self.rz)
        self._calibrate()


def _check_symmetric(a: Array, rtol: float) -> None:
    """Raise ValueError if `a` is not symmetric to `rtol` of its largest entry, or has a negative diagonal entry."""
    diagonal, needed = asnumpy(a.diagonal()), "acceleration='cg' needs a positive definite symmetric matrix, but"
    advice = "use acceleration=None or gauss_jordan_solve"
    if (diagonal < 0).any():
        at = int(np.argmax(diagonal < 0))
        raise ValueError(f"{needed} diagonal entry {at} is {diagonal[at]:.3g}; {advice}")
    bound = rtol * largest(a)
    for rows in blocks(len(a), BLOCK):
        difference = largest(a[rows] - a[:, rows].T)
        if not difference <= bound:
            raise ValueError(f"{needed} a and its transpose differ by {difference:.3g}; {advice}")


def _reason(status: Status, sweeps: int, relative: float, rtol: float) -> str:
    """Return the status in words."""
    where = f"relative residual {relative:.1e} after {sweeps} sweeps ({rtol:.1e} was requested)"
    return {
        "converged": where,
        "max_sweeps": f"{where}: allow more with max_sweeps, or try acceleration='cg' (symmetric positive "
        "definite matrices) or a direct method",
        "stagnated": f"{where}, and it no longer falls: the matrix is singular or too ill-conditioned for this dtype; "
        "request a larger rtol, regularise more, or use float64, acceleration='cg' or a direct method",
        "diverged": f"{where}: the iteration diverges, as it may for a matrix that is neither symmetric positive "
        "definite nor diagonally dominant; use gauss_jordan_solve",
        "indefinite": f"{where}: the matrix is not positive definite to rounding; use acceleration=None or "
        "gauss_jordan_solve",
    }[status]

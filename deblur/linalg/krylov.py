"""Conjugate gradients, written once: for an operator that is only a function, on the CPU and on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..device import Array, get_xp

__all__ = ["Conjugate", "Step", "cg"]


class Step(NamedTuple):
    """Where an iteration of `cg` stands, in the arrays that it works in: copy what you keep."""

    x: Array
    r: Array
    """b − A x"""
    rz: Any
    """⟨r, M r⟩, an estimate of the squared error in the energy norm, in the shape that `dot` gives."""
    alpha: Any
    """x was moved by alpha·p last; 0 before the first iteration."""
    p: Array


class Conjugate(NamedTuple):
    """What `cg` returns."""

    x: Array
    iterations: int
    residual: float
    """What `measure` said last: by default ‖b − A x‖/‖b‖. Not a number if the iteration broke down."""


def cg(
    apply: Callable[[Array], Array],
    b: Array,
    start: Array | None = None,
    *,
    dot: Callable[[Array, Array], Any],
    rtol: float,
    max_iterations: int,
    precondition: Callable[[Array], Array] | None = None,
    measure: Callable[[Step], float] | None = None,
    flexible: bool = False,
) -> Conjugate:
    """Solve A x = b, or many such systems side by side, by preconditioned conjugate gradients.

    Parameters
    ----------
    apply : callable
        x ↦ A x, symmetric and positive definite (or semidefinite, with b in its range).
    b : array
        Any shape; NumPy or CuPy.
    start : array of b's shape, optional
        Where to begin; by default zero. It is not changed.
    dot : callable
        The inner product. One that gives a number makes one system of everything. One that gives an
        array, with length 1 along the axes it sums over, makes a system of its own of each entry, with
        steps of its own; a system that is solved stands still.
    rtol : float
        Where to stop: at `measure` ≤ rtol.
    max_iterations : int
        After which to stop in any case; whether `residual` ≤ rtol says how it ended.
    precondition : callable, optional
        r ↦ M r, symmetric and positive definite, near the inverse of A.
    measure : callable, optional
        `Step` ↦ what is compared with `rtol`, called before the first iteration and after each. By default
        the relative residual, the largest of all systems.
    flexible : bool
        For an M that is another one each time, as one in lower precision is by its rounding: the residual
        is computed anew (one product more an iteration), and the next direction is made conjugate
        with that in mind (Polak and Ribière's form).

    Returns
    -------
    Conjugate

    References
    ----------
    .. [1] Y. Saad, "Iterative Methods for Sparse Linear Systems", 2nd ed., SIAM 2003, sec. 9.2.
    """
    xp = get_xp(b)
    if measure is None:
        size = xp.sqrt(dot(b, b))
        size = size + (size == 0)

        def measure(step: Step) -> float:
            return float((xp.sqrt(dot(step.r, step.r)) / size).max())

    x, r = (xp.zeros_like(b), b.copy()) if start is None else (start.copy(), b - apply(start))
    z = r if precondition is None else precondition(r)
    p, rz = z.copy(), dot(r, z)
    n, residual = 0, measure(Step(x, r, rz, 0.0, p))
    while residual > rtol and n < max_iterations:  # ends with what is not a number, too
        n += 1
        ap = apply(p)
        curvature = dot(p, ap)
        alpha = rz / (curvature + (curvature == 0))
        x += alpha * p
        if flexible:
            last, r = r, b - apply(x)
        else:
            r -= alpha * ap
        z = r if precondition is None else precondition(r)
        before, rz = rz, dot(r, z)
        residual = measure(Step(x, r, rz, alpha, p))
        p *= (dot(r - last, z) if flexible else rz) / (before + (before == 0))
        p += z
    return Conjugate(x, n, residual)

"""Conjugate gradients, written once: for an operator that is only a function, on the CPU and on the GPU."""

from __future__ import annotations

from ..device import Array, Map, get_xp
from ..norms import combined
from ..vector_ops import Systems


def cg(
    apply: Map,
    b: Array,
    ops: Systems,
    start: Array | None = None,
    *,
    precondition: Map | None = None,
    rtol: float,
    max_iterations: int,
) -> tuple[Array, int, float]:
    """Solve A x = b, or many such systems side by side, by preconditioned conjugate gradients.

    Parameters
    ----------
    apply : callable
        x ↦ A x, symmetric and positive definite (or semidefinite, with b in its range).
    b : array
        Any shape; NumPy or CuPy.
    ops : Systems
        The vector operations for one solve: which entries form a system, and how convergence is measured.
    start : array of b's shape, optional
        Where to begin; by default zero. It is not changed.
    precondition : callable, optional
        r ↦ M r, symmetric and positive definite, near the inverse of A.
    rtol : float
        The measure at which to stop.
    max_iterations : int
        After which to stop in any case; whether `residual` ≤ rtol says how it ended.

    Returns
    -------
    x : array of b's shape
    iterations : int
    residual : float
        The last measure: by default ‖b − A x‖/‖b‖. Not a number if the iteration broke down.

    References
    ----------
    .. [1] Y. Saad, "Iterative Methods for Sparse Linear Systems", 2nd ed., SIAM 2003, sec. 9.2.
    """

    def aim() -> None:
        ops.aim(ops.r if precondition is None else precondition(ops.r))

    def step() -> None:
        ops.advance(apply(ops.direction()))
        aim()

    if start is None:
        ops.begin(b, get_xp(b).zeros_like(b), combined(b))
    else:
        ops.begin(b, start.copy(), combined(b, apply(start), b=-1))
    aim()
    n, residual = 0, ops.residual()
    while residual > rtol and n < max_iterations:  # ends with what is not a number, too
        n += 1
        ops.loop(step)
        residual = ops.residual()
    return ops.x, n, residual

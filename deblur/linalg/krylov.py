"""The loop of conjugate gradients, written once for the CPU and the GPU; the operator is a function."""

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
        x ↦ A x, symmetric and positive definite (or semidefinite with b in its range).
    b : array
        Any shape; NumPy or CuPy.
    ops : Systems
        The vector operations for one solve: which entries form a system, and how convergence is measured.
    start : array of b's shape, optional
        First iterate, which is not changed; zero by default.
    precondition : callable, optional
        r ↦ M r, symmetric and positive definite, where M approximates the inverse of A.
    rtol : float
        Value of the measure at which to stop.
    max_iterations : int
        Largest number of iterations; `residual` ≤ rtol means that the iteration converged.

    Returns
    -------
    x : array of b's shape
    iterations : int
    residual : float
        The last measure: by default ‖b − A x‖/‖b‖. NaN if the iteration broke down.

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
    while residual > rtol and n < max_iterations:  # NaN ends it, too
        n += 1
        ops.loop(step)
        residual = ops.residual()
    return ops.x, n, residual

"""Conjugate gradients on the GPU, four launches of ``cuda/conjugate.cu`` an iteration beside the two products.

An iteration that is repeated often is captured as a CUDA graph (`deblur.graphs.Loop`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array
from ..graphs import Loop

_AT = kernels.Constants("conjugate")
_BLOCKS = 4  # of a launch, on each multiprocessor, for all systems together
_EAGER = 3  # iterations before it pays to capture one

__all__ = ["cg"]


def cg(
    apply: Callable[[Array], Array],
    b: Array,
    start: Array,
    precondition: Callable[[Array], Array],
    measure: Callable[[np.ndarray], float],
    rtol: float,
    max_iterations: int,
    capture: bool,
) -> tuple[Array, int, float]:
    """Solve A x = b for each frame and channel of `b` by preconditioned conjugate gradients.

    Parameters
    ----------
    apply, precondition : callable
        As for `deblur.linalg.krylov.cg`, for arrays shaped like `b`.
    b, start : (k, c, P, Q) arrays
    measure : callable
        Called before the first iteration and after each with the (5, k c) sums ‖r‖², ⟨x, b + r⟩, ‖p‖², ‖x‖² and the α
        by which x was moved along p; gives what is compared with `rtol`.
    rtol, max_iterations : float, int
        Where to stop.
    capture : bool
        Whether both products may be captured: they read nothing back, and keep what they use as long as it is used.

    Returns
    -------
    x : (k, c, P, Q) array
    iterations : int
    residual : float
    """
    state = _State(apply, b, start, precondition)
    loop = Loop(_EAGER, capture)
    residual, n = measure(state.sums()), 0
    while residual > rtol and n < max_iterations:  # ends with what is not a number, too
        n += 1
        loop(state.step)
        residual = measure(state.sums())
    return state.x, n, residual


class _State:
    """The arrays of a solve, and an iteration on them."""

    def __init__(
        self,
        apply: Callable[[Array], Array],
        b: Array,
        start: Array,
        precondition: Callable[[Array], Array],
    ) -> None:
        import cupy

        self._apply, self._precondition = apply, precondition
        self._b, self.x = cupy.ascontiguousarray(b), start.copy(order="C")
        self._r, self._p = cupy.ascontiguousarray(b - apply(start)), cupy.zeros_like(self.x)
        self._systems = b.shape[0] * b.shape[1]
        self._n = b.size // self._systems
        most = _BLOCKS * kernels.properties(b.device.id).multiprocessors
        self._blocks = max(1, min(most // self._systems, -(-self._n // _AT.THREADS)))
        self._control = cupy.zeros((self._systems, _AT.CONTROL), np.float64)
        self._room = cupy.empty(4 * self._systems * self._blocks, np.float64)
        self._ticket = cupy.zeros(self._systems, np.uint32)
        self._advance(self._b)  # by nothing
        self._turn()

    def step(self) -> None:
        """An iteration."""
        import cupy

        product = cupy.ascontiguousarray(self._apply(self._p))
        self._launch("curve", self._p, product, self._n, self._control, self._room, self._ticket)
        self._advance(product)
        self._turn()

    def sums(self) -> np.ndarray:
        """What `measure` is told."""
        at = [_AT.RESIDUAL, _AT.VALUE, _AT.MOVED, _AT.SIZE, _AT.ALPHA]
        return self._control.get()[:, at].T

    def _advance(self, product: Array) -> None:
        self._launch(
            "advance",
            self.x,
            self._r,
            self._p,
            product,
            self._b,
            self._n,
            self._control,
            self._room,
            self._ticket,
        )

    def _turn(self) -> None:
        import cupy

        z = self._precondition(self._r)
        planes = z.reshape(-1, *z.shape[-2:])
        if planes.strides[2] != z.itemsize:
            planes = cupy.ascontiguousarray(planes)
        at = (planes, planes.strides[1] // z.itemsize, planes.strides[0] // z.itemsize, *planes.shape[1:])
        self._launch("energy", self._r, *at, self._n, self._control, self._room, self._ticket)
        self._launch("turn", self._p, *at, self._n, self._control)

    def _launch(self, name: str, *args: Any) -> None:
        kernels.launch(
            "conjugate", name, (self._blocks, self._systems), _AT.THREADS, *args, dtype=self.x.dtype
        )

"""What a solver is given and what it gives back: the one line at which all methods meet.

A solver module offers three functions, and one row of `deblur.methods.METHODS`
names it:

``refuses(problem)``
    None if the method serves this problem exactly, else the reason in words.
``work(problem)``
    `Work`: the operations and bytes it would take, for the choice of method.
``prepare(problem)``
    A `Factor`: all that does not depend on the image, kept for reuse.

A solver solves and counts; it does not judge. The residual that a user sees
is measured by `deblur.reconstruct` through the blur itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np

from ..backend import Array
from ..blur import Blur

FORMULAS = ("tikhonov", "hht")
FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class Problem:
    """One regularised deblurring problem, without the image.

    ``formula="tikhonov"``: f = Hᵀ(HHᵀ + λI)⁻¹ g, which is (HᵀH + λI)⁻¹ Hᵀ g,
    the minimiser of ‖Hf − g‖² + λ‖f‖². ``formula="hht"``: f = (HHᵀ + λI)⁻¹ Hᵀ g.
    """

    blur: Blur
    lam: float
    formula: str = "tikhonov"
    dtype: np.dtype = FLOAT64
    xp: ModuleType = np
    #: Images that will be solved for together; only the choice of method looks at it.
    frames: int = 1
    #: Relative residual at which an iteration may stop; None is the method's own default.
    rtol: float | None = None
    #: Most iterations (sweeps) an iteration may take; None is the method's own default.
    max_iterations: int | None = None
    #: Form (HHᵀ + λI)⁻¹ and multiply by it, where a method can: slower, and only for those who want to see it.
    inverse: bool = False
    #: Called as it goes with (iterations so far, relative residual); what is so far 0 may be told too.
    callback: Callable[[int, float], None] | None = None


@dataclass(frozen=True)
class Info:
    """What a solver says of one solve: counts, and why it stopped."""

    #: Iterations or sweeps; 0 for a direct method.
    iterations: int = 0
    #: True if the method reached what it aims at; a direct method always does or raises.
    converged: bool = True
    #: Why it stopped, or a remark for the user ("preconditioner: ..."); may be empty.
    note: str = ""


def backward_error(problem: Problem, relative_residual: float, x: Array, b: Array) -> float:
    """The largest normwise backward error ‖b − Ax‖ / (‖A‖ ‖x‖ + ‖b‖) of A = HHᵀ + λI (Rigal & Gaches 1967).

    Where rounding forbids the residual aimed at, this says whether any solver could have done better: at
    the size of the dtype's eps, x is the exact solution of a system that rounding cannot tell from A x = b.

    Parameters
    ----------
    problem : Problem
    relative_residual : float
        ‖b − Ax‖ / ‖b‖, the largest of all right-hand sides.
    x, b : (n, k) arrays
        Right-hand sides as columns.
    """
    norm = problem.blur.gain**2 + problem.lam  # a bound on ‖A‖
    sizes = [problem.xp.linalg.norm(v.astype(np.float64, copy=False), axis=0) for v in (x, b)]
    return float((relative_residual * sizes[1] / (norm * sizes[0] + sizes[1] + (sizes[1] == 0))).max())


@dataclass(frozen=True)
class Work:
    """What a method would take for a problem: counted, not timed.

    `setup` and `solve` are operation counts in the method's own unit (its docstring says which); the
    cost model multiplies them with measured seconds per operation.
    """

    setup: float
    solve: float
    bytes: float


class Factor(Protocol):
    """A prepared solver: call it with images, get scenes."""

    def solve(self, g: Array) -> tuple[Array, Info]:
        """Solve for a stack of images.

        Parameters
        ----------
        g : (k, M, N) array of the problem's dtype and array module

        Returns
        -------
        f : (k, P, Q) array
            Scenes of the blur's `scene_shape`.
        info : Info
        """
        ...

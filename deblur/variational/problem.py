"""The variational problem, stated once: what a solver is given, what it gives back, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from ..backend import Array
from ..blur import Blur

FLOAT64 = np.dtype(np.float64)

#: A denoiser: called with an image and the standard deviation of the noise in it, returns the image
#: without the noise, of the same shape. Grey images come as (P, Q), colour as (P, Q, C).
Denoiser = Callable[[Array, float], Array]


@dataclass(frozen=True)
class VariationalProblem:
    """minimise D(W; H f + b, g) + λ R(L f) subject to lo ≤ f ≤ hi, without the image g.

    Attributes
    ----------
    blur : Blur
        H, for any PSF and boundary.
    method : str
        The row of `deblur.variational.METHODS` that names R∘L.
    lam : float
        λ ≥ 0.
    data : {"gaussian", "poisson", "l1", "huber"}
        D.
    weights : array or None
        W: shape that broadcasts to the frames (k, c, M, N), of the problem's dtype and array module; 0 hides a pixel.
        None is one everywhere.
    bounds : (float, float) or None
        lo and hi; either may be infinite.
    background : float
        b ≥ 0, light that reached the sensor without having been blurred.
    delta : float
        δ of the Huber term, in the units of g.
    denoiser : callable or None
        For "pnp": ``denoiser(image, sigma)``.
    dtype : dtype
        float32 or float64: what is computed in.
    xp : module
        numpy or cupy.
    rtol : float or None
        Relative primal and dual residual at which an iteration stops; None is the method's own default.
    max_iterations : int or None
        None is the method's own default.
    callback : callable or None
        Called with (iterations so far, larger of the relative residuals).
    """

    blur: Blur
    method: str = "tv"
    lam: float = 0.0
    data: str = "gaussian"
    weights: Array | None = None
    bounds: tuple[float, float] | None = None
    background: float = 0.0
    delta: float = 0.01
    denoiser: Denoiser | None = None
    dtype: np.dtype = FLOAT64
    xp: ModuleType = np
    rtol: float | None = None
    max_iterations: int | None = None
    callback: Callable[[int, float], None] | None = None


@dataclass(frozen=True)
class History:
    """What an iteration did, one entry an iteration; float64 on the host.

    Attributes
    ----------
    objective : (iterations,) array
        D + λR at each iterate, as the solver saw it; NaN where a prior has no value (a denoiser).
    primal, dual : (iterations,) arrays
        Relative primal and dual residuals (for a method without a dual, the relative change).
    """

    objective: np.ndarray = field(default_factory=lambda: np.zeros(0))
    primal: np.ndarray = field(default_factory=lambda: np.zeros(0))
    dual: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Solution:
    """What a variational solver gives back.

    Attributes
    ----------
    scene : (k, c, P, Q) array
        Scenes of the blur's `scene_shape`.
    iterations : int
    converged : bool
        Whether the stopping tolerance was reached.
    why : str
        Why it stopped, in words, with the figures.
    history : History
    state : object
        What a later call needs to begin here; private to the solver.
    note : str
        A remark for the user; may be empty.
    """

    scene: Array
    iterations: int
    converged: bool
    why: str
    history: History
    state: Any = None
    note: str = ""

"""The variational problem, stated once: what a solver is given, what it gives back, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from ..backend import Array, get_fft, get_xp
from ..blur import Blur
from .terms import DataTerm, penalty_value

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

    @property
    def wrap(self) -> bool:
        """Whether differences of the scene go round its edges."""
        return self.blur.boundary == "periodic"


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

    scene: Array = field(repr=False)
    iterations: int
    converged: bool
    why: str
    history: History = field(repr=False)
    state: Any = field(default=None, repr=False)
    note: str = ""


def weighted(problem: VariationalProblem) -> Array | float:
    """W as it is, or 1."""
    return 1.0 if problem.weights is None else problem.weights


def objective(problem: VariationalProblem, g: Array, scene: Array) -> float:
    """D(W; H f + b, g) + λ R(L f), computed from the scene with `Blur` alone.

    Parameters
    ----------
    problem : VariationalProblem
    g : (k, c, M, N) array
    scene : (k, c, P, Q) array

    Returns
    -------
    float
        NaN for a prior without a value (a denoiser). The bounds are not looked at.
    """
    term = DataTerm(problem.data, problem.background, problem.delta)
    value = term.value(problem.blur.forward(scene), g, weighted(problem))
    if problem.method == "richardson-lucy":
        return value + (problem.lam * penalty_value("tv", scene, problem.wrap) if problem.lam else 0.0)
    return value + problem.lam * penalty_value(problem.method, scene, problem.wrap)


def filled(g: Array, weights: Array | None) -> Array:
    """`g` with the pixels of weight 0 taken from their neighbours, so that nothing hidden is seen by anyone.

    They get the mean of what is visible under a Gaussian of growing width: the start of an iteration, never a
    result.
    """
    if weights is None:
        return g
    xp = get_xp(g)
    visible = xp.broadcast_to(weights > 0, g.shape)
    if bool(visible.all()):
        return g
    fft = get_fft(xp)
    shape = tuple(2 * n for n in g.shape[-2:])  # room for the Gaussian not to wrap round
    spectra = [fft.rfft2(xp.where(visible, part, 0).astype(g.dtype), s=shape) for part in (g, 1)]
    out, missing = xp.where(visible, g, 0), ~visible
    squares = xp.fft.fftfreq(shape[0])[:, None] ** 2 + xp.fft.rfftfreq(shape[1]) ** 2
    sigma = 1.0
    while bool(missing.any()):
        low = xp.exp(-2 * (np.pi * sigma) ** 2 * squares).astype(g.dtype)
        total, count = (fft.irfft2(s * low, s=shape)[..., : g.shape[-2], : g.shape[-1]] for s in spectra)
        reached = missing & (count > 1e-3)
        out = xp.where(reached, total / xp.where(reached, count, 1), out)
        missing &= ~reached
        sigma *= 2
        if sigma > sum(g.shape[-2:]):
            # A frame with nothing visible at all (another of the stack has): its level is unknown.
            out = xp.where(missing, 0, out)
            break
    return out.astype(g.dtype, copy=False)


def first_scene(problem: VariationalProblem, g: Array) -> Array:
    """Where an iteration begins: the image over the PSF's sum, its edges going on beyond the frame."""
    xp, blur = problem.xp, problem.blur
    seen = filled(g, problem.weights) - problem.background
    total = float(blur.psf.sum())
    if abs(total) > 1e-3 * blur.gain:  # else the PSF takes the mean away, and nothing is known of it
        seen = seen / total
    pads = [(at.start, size - at.stop) for at, size in zip(blur.crop, blur.scene_shape, strict=True)]
    scene = xp.pad(seen, [(0, 0)] * (g.ndim - 2) + pads, mode="edge")
    if problem.bounds is not None:
        scene = xp.clip(scene, *problem.bounds)
    return scene.astype(problem.dtype, copy=False)

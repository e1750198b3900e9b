"""The problem that every solver receives, and the solution that it returns.

Arrays are frames (k, c, *space): k images, their c colours, and the axes of space, one for lines, two for images and
three for volumes. Where shapes are written (k, c, M, N), M and N stand for any of them.

Every method minimises

    D(W; H f + b, g) + λ R(L f)   subject to   lo ≤ f ≤ hi

over the scene f. D with its weights and background is the `fidelity` (`deblur.terms.DataFidelity`), R∘L the
`regularizer`. The linear
formula f = Hᵀ(HHᵀ + λI)⁻¹ g is the case of least squares and the identity, with λ on the scale of
‖Hf − g‖² + λ‖f‖²: the ½ of both terms cancel. Its other form, ``formula="hht"``, f = (HHᵀ + λI)⁻¹Hᵀ g, minimises
nothing.

A solver module offers three functions, and one row of `deblur.methods.METHODS` names it:

``refuses(problem)``
    None if the method serves this problem, else the reason in words.
``memory(problem)``
    The bytes that set-up and solve need at once.
``prepare(problem)``
    A `Factor`: all that does not depend on the image, kept for reuse. Solving changes nothing in it, so that threads
    may share it.

A solver solves and counts iterations. `deblur.verify` measures the residual that a user sees, with the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .device import CPU, Array, Device
from .norms import combined
from .operators.blur import Blur
from .operators.natural import coloured
from .operators.operator import Operator
from .operators.varying import VaryingBlur
from .terms import (
    FORMULA,
    REGULARIZERS,
    DataFidelity,
    adjoint_differences,
    differences,
    is_quadratic,
    regularizer_value,
)

if TYPE_CHECKING:
    from .solvers.noise import NoiseModel

FORMULAS = ("tikhonov", "hht")
FLOAT64 = np.dtype(np.float64)

#: A denoiser: called with an image and the standard deviation of the noise in it, returns the image
#: without the noise, of the same shape. Grey images come as (P, Q), colour as (P, Q, C).
Denoiser = Callable[[Array, float], Array]


@dataclass(frozen=True)
class Stop:
    """Stopping rule of an iteration."""

    #: Relative residual at which the iteration may stop; None is the method's default.
    rtol: float | None = None
    #: Most iterations (sweeps); None is the method's default.
    max_iterations: int | None = None
    #: Called with (iterations so far, relative residual).
    callback: Callable[[int, float], None] | None = field(default=None, compare=False)
    #: Factor by which the method's default tolerance is relaxed.
    looser: float = 1.0
    #: Whether Richardson-Lucy stops at each pixel by gradient consensus.
    consensus: bool = False

    def report(self, iteration: int, residual: float) -> None:
        """Call the callback, if there is one."""
        if self.callback is not None:
            self.callback(iteration, residual)


def check_bounds(bounds: Iterable[float] | str | None) -> tuple[float, float] | None:
    """Bounds in the form of `Problem.bounds`: (lo, hi), or None for none."""
    if bounds is None:
        return None
    if isinstance(bounds, str):
        if bounds != "nonnegative":
            raise ValueError(f"bounds must be None, 'nonnegative' or a pair (lo, hi), not {bounds!r}")
        return 0.0, math.inf
    try:
        lo, hi = (float(b) for b in bounds)
    except (TypeError, ValueError):
        raise TypeError(f"bounds must be None, 'nonnegative' or a pair (lo, hi), not {bounds!r}") from None
    if not lo < hi:
        raise ValueError(f"the bounds cross: lo = {lo:g} must be below hi = {hi:g}")
    return (lo, hi) if math.isfinite(lo) or math.isfinite(hi) else None


@dataclass(frozen=True)
class Problem:
    """One deblurring problem, without the image. Compared by value; pickles if its callback and denoiser do.

    Attributes
    ----------
    operator : Operator
        H.
    lam : float
        λ ≥ 0, in the units that `deblur.reconstruct` gives.
    regularizer : str
        R∘L: a name in `deblur.terms.REGULARIZERS`, or one without a value ("natural", "denoiser", "patches").
    fidelity : DataFidelity
        D, with weights and background.
    bounds : (float, float) or None
        lo and hi; either may be infinite.
    denoiser : callable or None
        For the regularizer "denoiser": ``denoiser(image, sigma)``.
    formula : {"tikhonov", "hht"}
        Of the linear formula.
    inverse : bool
        Form (HHᵀ + λI)⁻¹ and multiply by it, with the methods that can: slower, for demonstration.
    dtype : dtype
        float32 or float64, of all arrays.
    device : Device
    frames : int
        Images that will be solved for together; used by the choice of method, and by `pcg` to see what set-up pays.
    reuse : bool
        Whether more images follow, so that the factor will be used again.
    stop : Stop
    noise : NoiseModel or None
        The noise, and what an error of the PSF leaves; None if nothing needs it.
    """

    operator: Operator
    lam: float = 0.0
    regularizer: str = "identity"
    fidelity: DataFidelity = field(default_factory=DataFidelity)
    bounds: tuple[float, float] | None = None
    denoiser: Denoiser | None = None
    formula: str = "tikhonov"
    inverse: bool = False
    dtype: np.dtype = FLOAT64
    device: Device = CPU
    frames: int = 1
    reuse: bool = False
    stop: Stop = field(default_factory=Stop)
    noise: NoiseModel | None = None

    @property
    def xp(self) -> ModuleType:
        """numpy or cupy: where arrays are made."""
        return self.device.xp

    @property
    def blur(self) -> Blur:
        """The operator as a blur by one PSF; TypeError for any other operator."""
        blur = self.operator.shift_invariant
        if blur is None:
            raise TypeError(f"{self.operator!r} is not a blur by one PSF")
        return blur

    @property
    def axes(self) -> int:
        """Axes of space: 1 for lines, 2 for images, 3 for volumes."""
        return len(self.operator.image_shape)

    @property
    def sizes(self) -> tuple[float, ...]:
        """Bytes of an image, a scene, the torus of H, what H keeps, and what a product takes beside its result."""
        operator, blur = self.operator, self.operator.mean_blur
        shapes = blur.image_shape, blur.scene_shape, blur.torus(self.device).lengths
        image, scene, torus = (math.prod(shape) * self.dtype.itemsize for shape in shapes)
        if isinstance(operator, VaryingBlur):  # the spectra of all PSFs that are mixed, and the weight of each
            kept = operator.terms * ((2 * operator.channels if operator.channels else 1) * torus + image)
            return image, scene, torus, kept, 6.0 * torus
        return image, scene, torus, torus, self.axes * torus

    @property
    def strength(self) -> str:
        """λ in words, without a unit: a solver has the problem divided by powers of two."""
        return f"λ = {self.lam / self.operator.norm_bound / self.operator.norm_bound:.3g} ‖H‖²"

    def computed_in(self, dtype: DTypeLike) -> Problem:
        """The same problem in another dtype."""
        w = self.fidelity.weights
        fidelity = replace(self.fidelity, weights=None if w is None else w.astype(dtype))
        return replace(self, dtype=np.dtype(dtype), fidelity=fidelity)

    @property
    def early(self) -> float:
        """The residual at which an iteration may stop before the image is right: `rtol` above 1e-6; else 0."""
        return rtol if (rtol := self.stop.rtol or 0.0) > 1e-6 else 0.0

    @property
    def quadratic(self) -> bool:
        """Whether the minimiser solves one linear system."""
        return self.fidelity.name == "gaussian" and self.bounds is None and is_quadratic(self.regularizer)

    @property
    def asked(self) -> list[str]:
        """What the linear formula cannot serve, in words."""
        parts = {
            "weights or a mask": self.fidelity.weights is not None,
            f"the data term {self.fidelity.name!r}": self.fidelity.name != "gaussian",
            "a background": self.fidelity.background != 0,
            "bounds": self.bounds is not None,
            f"the regularizer {self.regularizer!r}": self.regularizer not in FORMULA,
        }
        return [words for words, asked in parts.items() if asked]

    @property
    def linear_form(self) -> Problem:
        """The problem that linear methods solve: with the regularizer "natural" that for u (f = Bu), else itself."""
        if self.regularizer != "natural":
            return self
        return replace(self, operator=coloured(self.blur), regularizer="identity")

    def normal(self, f: Array) -> Array:
        """(HᵀWH + λLᵀL) f for scenes (..., P, Q), of a quadratic regularizer."""
        seen = self.operator.forward(f)
        if self.fidelity.weights is not None:
            seen = self.fidelity.weights * seen
        seen = self.operator.adjoint(seen)
        if self.regularizer != "identity":
            kind, wraps = REGULARIZERS[self.regularizer][0].differences, self.operator.boundary.wraps
            f = adjoint_differences(differences(f, kind, wraps, self.axes), kind, wraps, self.axes)
        return combined(seen, f, b=self.lam)

    def right(self, g: Array) -> Array:
        """HᵀW(g − b) for images (..., M, N): with `normal`, the system that a quadratic problem's minimiser solves."""
        seen = g - g.dtype.type(self.fidelity.background) if self.fidelity.background else g
        return self.operator.adjoint(seen if self.fidelity.weights is None else self.fidelity.weights * seen)

    def objective(self, g: Array, scene: Array, seen: Array | None = None) -> float:
        """D + λR of a scene (k, c, P, Q) for frames (k, c, M, N), computed with the operator alone.

        NaN for a regularizer without a value (a denoiser). Bounds are ignored. `seen` is Hf, if known.
        """
        value = self.fidelity.value(self.operator.forward(scene) if seen is None else seen, g)
        if not self.lam:
            return value
        return value + self.lam * regularizer_value(self.regularizer, scene, self.operator.boundary.wraps)


def history_of(objective: ArrayLike, primal: ArrayLike, dual: ArrayLike = 0.0) -> np.recarray:
    """A row for each iteration, with the fields `objective`, `primal` and `dual`; float64 on the host.

    Parameters
    ----------
    objective : (iterations,) array
        D + λR at each iterate, as the solver computed it; NaN for a regularizer without a value (a denoiser).
    primal, dual : (iterations,) arrays
        Relative primal and dual residuals (for a method without a dual, the relative change).
    """
    fields = [(name, np.float64) for name in ("objective", "primal", "dual")]
    return np.rec.fromarrays(np.broadcast_arrays(objective, primal, dual), dtype=fields)


@dataclass(frozen=True)
class Solution:
    """Result of a solver, and from `residual` on what `deblur.verify` measures of it.

    Attributes
    ----------
    scene : (k, c, P, Q) array
        Scenes of the operator's `scene_shape`.
    iterations : int
        Iterations or sweeps; 0 for a direct method.
    converged : bool
        Whether the method reached its tolerance; a direct method always does or raises.
    why : str
        Why the iteration stopped, or a remark, with the figures; may be empty.
    history : recarray or None
        See `history_of`; None for a direct method.
    state : object
        State from which a later solve may start; private to the solver.
    stopped : bool
        Whether the iteration ended short of a minimiser by design, for it regularises itself.
    residual : float
        ‖b − A f‖ / ‖b‖ of the linear system; for a problem without one, the larger of the iteration's last relative
        primal and dual residuals.
    data_residual : float
        ‖H f + b − g‖ / ‖g‖ over the pixels that are not hidden.
    objective : float or None
        D + λR; None for a method without a history.
    difference : (k, c, M, N) array
        g − H f − b.
    sizes : (float, float)
        Denominators of residual and data residual: ‖b‖ of the linear system, or 1 without one, and ‖g‖.
    error : float
        A bound on the relative error of the scene, ‖b − A f‖/(λ‖f‖); infinite where it is not needed or not known.
    """

    scene: Array = field(repr=False)
    iterations: int = 0
    converged: bool = True
    why: str = ""
    history: np.recarray | None = field(default=None, repr=False)
    state: object = field(default=None, repr=False)
    stopped: bool = False
    residual: float = math.nan
    data_residual: float = math.nan
    objective: float | None = None
    difference: Array = field(default=None, repr=False)
    sizes: tuple[float, float] = (1.0, 1.0)
    error: float = math.inf


class Factor(Protocol):
    """A prepared solver."""

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Solve for frames and their colours, all together.

        Parameters
        ----------
        g : (k, c, M, N) array of the problem's dtype and device
        start : Solution, optional
            Of a similar image or another λ, to start from; a direct method ignores it.
        """


def synchronize(factor: Factor) -> None:
    """Wait for a factorisation on a GPU, and raise SingularMatrixError if it failed."""
    look = getattr(factor, "synchronize", None)
    if look is not None:
        look()


#: Scenes (n, P, Q); of an iterative method the iterations, whether it converged, and why.
Scenes = Array | tuple[Array, int, bool, str]


class Direct:
    """A `Factor` of a linear method that solves for all `scenes` as one stack."""

    def scenes(self, g: Array) -> Scenes:
        """Scenes (n, P, Q) for images (n, M, N); an iterative method adds iterations, converged and why."""
        raise NotImplementedError

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """See `Factor`."""
        found = self.scenes(g.reshape(-1, *g.shape[2:]))
        scene, *said = found if isinstance(found, tuple) else (found,)
        return Solution(scene.reshape(*g.shape[:2], *scene.shape[1:]), *said)

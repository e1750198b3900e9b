"""The problem that a solver receives, and the solution that it returns.

Arrays are frames (k, c, *space): k images, their c colours, and the spatial axes: one for lines, two for images and
three for volumes. In a shape written as (k, c, M, N), M and N stand for all spatial axes.

Every method minimises

    D(W; H f + b, g) + λ R(L f)   subject to   lo ≤ f ≤ hi

over the scene f. D with its weights and background is the `fidelity` (`deblur.terms.DataFidelity`), and R∘L is the
`regularizer`. The linear formula f = Hᵀ(HHᵀ + λI)⁻¹ g is the case of least squares with the identity. It minimises
‖Hf − g‖² + λ‖f‖², since the factors ½ of both terms cancel. Its other form, ``formula="hht"``, is
f = (HHᵀ + λI)⁻¹Hᵀ g; it does not minimise an objective.

A row of `deblur.methods.METHODS` names a solver module, which has three functions:

``refuses(problem)``
    Returns None if the method can solve this problem, else the reason in words.
``memory(problem)``
    Returns the bytes that are kept, and for each phase the bytes that it needs besides (see `peak`). The phases of a
    linear method are set-up and solve.
``prepare(problem)``
    Returns a `Factor`: all data that do not depend on the image, for reuse. A solve does not change it, so that threads
    may share it.

A solver solves and counts iterations. `deblur.verify` measures the residual that a user sees, with the operator alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
from .terms import FORMULA, DataFidelity, adjoint_differences, differences, is_quadratic, kind_of, regularizer_value
from .threads import cores

if TYPE_CHECKING:
    from .solvers.noise import NoiseModel

FORMULAS = ("tikhonov", "hht")
FLOAT64 = np.dtype(np.float64)

#: A function of an image and the standard deviation of its noise that returns the image without noise, in the same
#: shape: (P, Q) for grey images, (P, Q, C) for colour.
Denoiser = Callable[[Array, float], Array]


@dataclass(frozen=True)
class Stop:
    """The stopping rule of an iteration."""

    #: Relative residual at which the iteration may stop; None for the method's default.
    rtol: float | None = None
    #: Largest number of iterations (sweeps); None for the method's default.
    max_iterations: int | None = None
    #: Function that is called with (iterations so far, relative residual).
    callback: Callable[[int, float], None] | None = field(default=None, compare=False)
    #: Factor by which the method's default tolerance is relaxed.
    looser: float = 1.0
    #: True if Richardson-Lucy stops at each pixel separately, by gradient consensus.
    consensus: bool = False

    def report(self, iteration: int, residual: float) -> None:
        """Call the callback if there is one."""
        if self.callback is not None:
            self.callback(iteration, residual)


def check_bounds(bounds: Iterable[float] | str | None) -> tuple[float, float] | None:
    """Return bounds as in `Problem.bounds`: (lo, hi) or None; raise TypeError or ValueError if they are invalid."""
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
    """A deblurring problem without the image.

    Problems are compared by value. A problem can be pickled if its callback and its denoiser can.

    Attributes
    ----------
    operator : Operator
        The operator H.
    lam : float
        λ ≥ 0, in the units of `deblur.reconstruct`.
    regularizer : str
        R∘L: a name in `deblur.terms.REGULARIZERS`, or one without a value ("natural", "denoiser", "patches").
    fidelity : DataFidelity
        D, with weights and background.
    bounds : (float, float) or None
        lo and hi; either may be infinite.
    denoiser : callable or None
        The function ``denoiser(image, sigma)`` of the regularizer "denoiser".
    formula : {"tikhonov", "hht"}
        The form of the linear formula.
    inverse : bool
        True to form (HHᵀ + λI)⁻¹ and multiply by it, which is slower and serves demonstration. Not all methods can.
    dtype : dtype
        float32 or float64, the dtype of all arrays.
    device : Device
        The device of all arrays.
    frames : int
        Number of images that are solved for together. The choice of method depends on it, and the set-up of `pcg`.
    reuse : bool
        True if more images follow, so that the factor is used again.
    stop : Stop
        The stopping rule.
    noise : NoiseModel or None
        The noise, including the effect of the PSF's error; None if no method needs it.
    searched : bool
        True if a rule chooses λ.
    held : (int, int)
        The images and the scenes, for each frame, that the pipeline holds for the linear formula: a copy of the image
        in another dtype or order of axes, the data, and the scene that they are centred on.
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
    searched: bool = False
    held: tuple[int, int] = (0, 0)

    @property
    def xp(self) -> ModuleType:
        """The array module of the problem's arrays: numpy or cupy."""
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
        """The number of spatial axes: 1 for lines, 2 for images, 3 for volumes."""
        return len(self.operator.image_shape)

    @property
    def sizes(self) -> tuple[float, ...]:
        """The bytes of an image, a scene, the torus of H, the cached data of H, and the work arrays of a product."""
        operator, blur = self.operator, self.operator.mean_blur
        shapes = blur.image_shape, blur.scene_shape, blur.torus(self.device).lengths
        image, scene, torus = (math.prod(shape) * self.dtype.itemsize for shape in shapes)
        if isinstance(operator, VaryingBlur):  # the spectrum and the weights of each PSF
            kept = operator.terms * ((2 * operator.channels if operator.channels else 1) * torus + image)
            return image, scene, torus, kept, 6.0 * torus
        return image, scene, torus, torus, self.axes * torus

    @property
    def colours(self) -> int:
        """The frames that are taken for the colours of one image, which some methods solve for together: three."""
        return 3 if self.frames == 3 else 1

    @property
    def slices(self) -> float:
        """The bytes of the slices of a volume that a host transforms at the same time; 0 if H wraps."""
        sliced = self.axes == 3 and self.device.gpu is None and not self.operator.boundary.wraps
        return min(self.frames * self.sizes[2], (cores() << 17) * self.dtype.itemsize) * sliced

    @property
    def strength(self) -> str:
        """λ as text, relative to ‖H‖², since a solver receives the normalised problem."""
        return f"λ = {self.lam / self.operator.norm_bound / self.operator.norm_bound:.3g} ‖H‖²"

    def computed_in(self, dtype: DTypeLike) -> Problem:
        """Return the same problem in another dtype."""
        w = self.fidelity.weights
        fidelity = replace(self.fidelity, weights=None if w is None else w.astype(dtype))
        return replace(self, dtype=np.dtype(dtype), fidelity=fidelity)

    @property
    def early(self) -> float:
        """`rtol` if it is above 1e-6, so that an iteration may stop before the image is accurate; else 0."""
        return rtol if (rtol := self.stop.rtol or 0.0) > 1e-6 else 0.0

    @property
    def quadratic(self) -> bool:
        """True if the minimiser is the solution of one linear system."""
        return self.fidelity.name == "gaussian" and self.bounds is None and is_quadratic(self.regularizer)

    @property
    def asked(self) -> list[str]:
        """The parts of the problem, in words, that the linear formula cannot include."""
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
        """The problem that linear methods solve: for the regularizer "natural" that of u with f = Bu, else this
        problem.
        """
        if self.regularizer != "natural":
            return self
        return replace(self, operator=coloured(self.blur), regularizer="identity")

    def normal(self, f: Array) -> Array:
        """Return (HᵀWH + λLᵀL) f for scenes (..., P, Q), for a quadratic regularizer."""
        seen = self.operator.forward(f)
        if self.fidelity.weights is not None:
            seen = self.fidelity.weights * seen
        seen = self.operator.adjoint(seen)
        if self.regularizer != "identity":
            kind, wraps = kind_of(self.regularizer), self.operator.boundary.wraps
            f = adjoint_differences(differences(f, kind, wraps, self.axes), kind, wraps, self.axes)
        return combined(seen, f, b=self.lam)

    def right(self, g: Array) -> Array:
        """Return HᵀW(g − b) for images (..., M, N), the right-hand side of the system `normal` f = HᵀW(g − b)."""
        seen = g - g.dtype.type(self.fidelity.background) if self.fidelity.background else g
        return self.operator.adjoint(seen if self.fidelity.weights is None else self.fidelity.weights * seen)

    def objective(self, g: Array, scene: Array, seen: Array | None = None) -> float:
        """Return D + λR of a scene (k, c, P, Q) for frames (k, c, M, N), computed with the operator alone.

        It is NaN for a regularizer without a value (a denoiser). Bounds are ignored. `seen` is Hf, if it is known.
        """
        value = self.fidelity.value(self.operator.forward(scene) if seen is None else seen, g)
        if not self.lam:
            return value
        return value + self.lam * regularizer_value(self.regularizer, scene, self.operator.boundary.wraps)


def peak(needed: Sequence[float]) -> float:
    """Return the largest number of bytes needed at the same time, from those kept and those of each phase."""
    return needed[0] + max(needed[1:], default=0.0)


def linear_peak(problem: Problem, needed: Sequence[float]) -> float:
    """Return the largest number of bytes that set-up, solve and verification of a linear method need at the same time.

    `needed` are the bytes that its solver keeps, besides the spectrum of H, and those of its set-up and of a solve.
    """
    kept, set_up, solve = needed
    boundary, shape, searched = problem.operator.boundary, problem.operator.image_shape, problem.searched
    image, scene, torus = (problem.frames * size for size in problem.sizes[:3])
    # A search for λ leaves an image and, where "natural" replaces another prior, the data and their prior scene.
    drawn = problem.regularizer == "natural" and not problem.held[1]
    data = (problem.held[0] + searched + drawn) * image + (problem.held[1] + drawn) * scene
    # A product: the continued scene or the result, and a spectrum. Also the scene and g − Hf, or what Hᵀ folds back.
    product = torus + problem.slices + ((problem.slices or torus) if boundary.continued else scene)
    verified = product + scene + max(torus * boundary.continued, image) + 3 * scene * (problem.formula == "hht")
    if problem.regularizer == "natural":  # B and its transpose
        solve, verified = max(solve, 5.3 * scene), max(verified, (1 + 2 * boundary.wraps) * torus + 5 * scene)
    # The comparison of an image with its PSF, in `deblur.data_checks`.
    checks = 60.0 * min(math.prod(shape), 1 << 16) * (boundary.open and len(shape) == 2 and min(shape) >= 128)
    checked = problem.sizes[2] + max(verified, image + 2 * scene + checks)
    return kept + max(set_up + data * searched, data + max(solve, checked))


def history_of(objective: ArrayLike, primal: ArrayLike, dual: ArrayLike = 0.0) -> np.recarray:
    """Return a record array with one row for each iteration and the float64 fields `objective`, `primal` and `dual`.

    Parameters
    ----------
    objective : (iterations,) array
        D + λR at each iterate, as the solver computed it; NaN for a regularizer without a value (a denoiser).
    primal, dual : (iterations,) arrays
        Relative primal and dual residuals; for a method without a dual residual, the relative change.

    Returns
    -------
    (iterations,) recarray
        On the host.
    """
    fields = [(name, np.float64) for name in ("objective", "primal", "dual")]
    return np.rec.fromarrays(np.broadcast_arrays(objective, primal, dual), dtype=fields)


@dataclass(frozen=True)
class Solution:
    """The solution of a solver. `deblur.verify` measures the attributes from `residual` on.

    Attributes
    ----------
    scene : (k, c, P, Q) array
        Scenes with the operator's `scene_shape`.
    iterations : int
        Number of iterations or sweeps; 0 for a direct method.
    converged : bool
        True if the method reached its tolerance; a direct method always does or raises an error.
    why : str
        Why the iteration stopped, or a remark, with the figures; may be empty.
    history : recarray or None
        The history of the iteration, see `history_of`; None for the linear formula.
    state : object
        State from which a later solve may start; private to the solver.
    stopped : bool
        True if the iteration stopped before a minimum by design, since the iteration itself regularises.
    residual : float
        ‖b − A f‖ / ‖b‖ of the linear system. Without a linear system it is the larger of the last relative primal and
        dual residuals of the iteration.
    data_residual : float
        ‖H f + b − g‖ / ‖g‖ over the pixels that are not hidden.
    objective : float or None
        D + λR; None for the linear formula.

    difference : (k, c, M, N) array
        g − H f − b.
    sizes : (float, float)
        The denominators of residual and data residual: ‖b‖ of the linear system (1 if there is none), and ‖g‖.
    error : float
        A bound on the relative error of the scene, ‖b − A f‖/(λ‖f‖); infinite if it is not needed or not known.
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
    """A prepared solver: all data that do not depend on the image."""

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Return the solution for all frames and colours together.

        Parameters
        ----------
        g : (k, c, M, N) array of the problem's dtype and device
            The blurred images.
        start : Solution, optional
            A solution for a similar image or another λ, to start from; a direct method ignores it.
        """


def synchronize(factor: Factor) -> None:
    """Wait for a factorisation on a GPU, and raise SingularMatrixError if it failed."""
    look = getattr(factor, "synchronize", None)
    if look is not None:
        look()


#: Scenes (n, P, Q), or (scenes, iterations, converged, why) from an iterative method.
Scenes = Array | tuple[Array, int, bool, str]


class Direct:
    """A base class for the `Factor` of a linear method; a subclass solves for a stack of images in `scenes`."""

    def scenes(self, g: Array) -> Scenes:
        """Return scenes (n, P, Q) for images (n, M, N); an iterative method adds iterations, converged and why."""
        raise NotImplementedError

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Return the solution for frames; see `Factor`."""
        found = self.scenes(g.reshape(-1, *g.shape[2:]))
        scene, *said = found if isinstance(found, tuple) else (found,)
        return Solution(scene.reshape(*g.shape[:2], *scene.shape[1:]), *said)

"""Decisions that are made once for all tiles (operator, λ, prior, noise and solver), and the solver of one window.

All calls from tiles into the pipeline of the package are in this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np

from ..device import CPU, Array, Device
from ..errors import MethodError, as_number
from ..frames import Frames
from ..image import as_float
from ..image.light import unbent
from ..methods import METHODS, serving
from ..operators.blur import Blur
from ..operators.boundary import BOUNDARIES, Boundary
from ..options import Options
from ..pipeline import Deblurrer
from ..plan import detect_boundary
from ..problem import Problem, Solution
from ..request import Request, check_request
from ..solvers.start import prior_scene
from ..terms import DataFidelity
from ..tuning import LambdaChoice, estimate_noise
from ..tuning.boundary import AGAINST, SAFE, evidence
from ..verify import verify

Lazy = Callable[[], np.ndarray]

_REFUSED = {
    "mask": "fill hidden pixels before (numpy.ma.filled), or restore the image whole",
    "weights": "restore the image whole",
    "psfs": "give one PSF, or one for each frame as psf",
    "inverse": "no matrix is formed of a tile",
    "callback": "many tiles are solved in parallel",
}


@dataclass(frozen=True, eq=False)
class Recipe:
    """All that windows are solved with, decided once for the whole image. It can be pickled.

    Attributes
    ----------
    psfs : (k, m, n) ndarray
        One PSF, or one for each frame, with as many axes of space as the image has.
    lam : float
    options : dict
        Options of `deblur.reconstruct` that were given, the dtype, and the boundary of the image.
    lam_reason, boundary_reason : str
        Reasons for λ and the boundary.
    linear : bool
        Whether the linear formula is solved.
    device : str or int
        Name of the device that solves windows; each process finds its own device.
    threads : int or None
        Number of threads for the transforms of one window; None for all cores.
    window : tuple of int
        Size of most windows; windows of about this size are filtered on one torus.
    token : str
        Key of the recipe in the caches of a process.
    """

    psfs: np.ndarray
    lam: float
    options: Options
    lam_reason: str = ""
    boundary_reason: str = ""
    linear: bool = True
    device: str | int = "cpu"
    threads: int | None = 1
    window: tuple[int, ...] = ()
    token: str = field(default_factory=lambda: uuid4().hex)

    @property
    def boundary(self) -> Boundary:
        """The boundary of the image."""
        return BOUNDARIES[self.options["boundary"]]

    @property
    def psf(self) -> np.ndarray:
        """The first PSF, which is the only one of the recipe for one frame."""
        return np.asarray(self.psfs[0])

    def of(self, frame: int) -> Recipe:
        """Return the recipe for one frame, or itself if all frames have the same PSF."""
        if len(self.psfs) == 1:
            return self
        return replace(self, psfs=self.psfs[frame : frame + 1], token=f"{self.token}-{frame}")

    def request(self, shape: tuple[int, ...], device: Device = CPU) -> Request:
        """Return the checked request for windows of this shape."""
        return check_request(self.psf, shape, self.lam, self.options, device, reuse=True)


def decide(
    psfs: Array, shape: tuple[int, ...], lam: float | str, options: Options, seam: float, corners: Lazy, samples: Lazy
) -> Recipe:
    """Make all decisions that must be the same in all tiles.

    Parameters
    ----------
    psfs : (k, m, n) ndarray
        One PSF, or one for each frame; the first one is used for the decisions.
    shape : tuple of int
        Shape of the image.
    lam : float or str
    options : Options
    seam : float
        Largest error at a seam, as a share of the range.
    corners, samples : callable
        Return the image's corners joined, (1, c, M, N), and windows spread over it, (n, c, M, N). They are called
        only if a decision needs them.

    Raises
    ------
    MethodError
        For an option that tiles do not support, or a method that does not serve the problem.
    """
    for name, instead in _REFUSED.items():
        if options.get(name) is not None and options.get(name) is not False:
            raise MethodError(f"tiles do not support {name}: {instead}")
    options, psf = {**options}, psfs[0]
    request = check_request(psf, shape, lam, options, CPU, reuse=True)
    if request.candidates:
        request = _read_boundary(request, psf, options, corners())
    problem = request.problem
    options["boundary"] = str(problem.operator.boundary)
    if request.linear:
        options["prior"] = request.prior
    lam, lam_reason = request.rule, request.lam_reason
    if isinstance(lam, str):
        lam, lam_reason, options["prior"] = _choose_lam(psf, request, options, samples().astype(np.float64), corners)
        if not request.linear:
            del options["prior"]
    if request.method == "richardson-lucy" and lam == 0 and problem.stop.rtol is None:
        raise MethodError(
            "richardson-lucy with λ = 0 stops by its own rule, at another iteration in each tile, which leaves "
            "seams for any overlap; give λ above 0, or rtol"
        )
    if problem.asked and request.noise is None:  # otherwise methods would estimate it from each tile
        options["noise"] = float(estimate_noise(samples().astype(np.float64), axes=problem.axes))
    if problem.quadratic and not request.linear and problem.stop.rtol is None:
        # An iteration that ends early leaves an error, most where pixels are determined by their neighbours alone.
        seam = as_number(seam) * float(np.ptp(samples()) / (abs(samples()).max() or 1.0))
        options["rtol"] = max(1e-13, 0.02 * seam * float(lam) / problem.operator.norm_bound**2)
    return Recipe(psfs, float(lam), options, lam_reason, request.boundary_reason, not problem.asked)


def _read_boundary(request: Request, psf: np.ndarray, options: Options, corners: np.ndarray) -> Request:
    """Return the request with the boundary that is detected in the image's corners."""
    border = check_request(psf, corners.shape[2:], request.lam, options, CPU)
    shown = np.ma.masked_invalid(corners)
    if shown.mask.all():
        found, why = SAFE, "the border of the image has no value that is finite"
    else:
        border = detect_boundary(border, Frames(shown, channel_axis=1, stack_axis=0, axes=psf.ndim))
        found, why = str(border.problem.operator.boundary), border.boundary_reason
    return request.under(found, f"{why}, in its corners" if psf.ndim == 2 else why)


def _choose_lam(
    psf: np.ndarray, request: Request, options: Options, stack: np.ndarray, corners: Lazy
) -> tuple[float, str, str]:
    """Return λ, its reason and the prior, from all windows together; "natural" is the prior if there is noise to hide.

    The windows are parts of a scene that continues beyond their edges, so λ of the linear formula is chosen with
    boundary "unknown". If the border of the image may not be a mirror, λ allows for the mirror's error at all edges.
    """
    named: Any = {**options, "formula": "tikhonov"}
    edge, linear = BOUNDARIES[named["boundary"]], not request.problem.asked
    given = named if edge.continued and not linear else {**named, "boundary": "unknown"}
    if linear:  # λ of the linear formula does not depend on the method
        named["method"] = given["method"] = "auto"
        if request.prior != "natural":
            given["prior"] = "auto" if request.may_be_natural else "smooth"
    choice, prior = _tuned(psf, stack, request.lam, given)
    if linear and edge.continued and prior != "natural" and not _follows(psf, str(edge), corners()):
        choice, prior = _tuned(psf, stack, request.rule, named)
    reason = f"{choice.reason}; from {len(stack)} windows spread over the image"
    if request.may_be_natural and prior == "natural":
        return choice.lam, f"{reason}; prior 'natural', which hides noise better", "natural"
    return choice.lam, reason, request.prior


def of_whole(recipe: Recipe, rule: str, options: Options, image: np.ndarray) -> Recipe:
    """Return the recipe with λ and prior chosen from a whole image (1, c, *space), which is not cut."""
    choice, prior = _tuned(recipe.psf, image, rule, {**options, "boundary": str(recipe.boundary)})
    kept = {**recipe.options, "prior": prior} if "prior" in recipe.options else recipe.options
    return replace(recipe, lam=choice.lam, lam_reason=choice.reason, options=kept)


def _tuned(psf: np.ndarray, stack: np.ndarray, rule: float | str, options: Any) -> tuple[LambdaChoice, str]:
    """Return λ by a rule from images (n, c, *space), and its prior. Tiles keep the numbers of blurred light."""
    made = Deblurrer(psf, stack.shape[2:], rule, **{**options, "gamma": options.get("gamma") or "linear"})
    choice = made.tune(stack, channel_axis=1, stack_axis=0)
    assert choice is not None
    return choice, made.prior


def _follows(psf: np.ndarray, edge: str, corners: np.ndarray) -> bool:
    """Return whether the border of the image clearly has this boundary."""
    if psf.ndim == 1 or any(m > n for m, n in zip(psf.shape, corners.shape[2:], strict=True)):
        return False
    g, shown = np.nan_to_num(corners.astype(np.float64)), np.isfinite(corners)
    return evidence(Blur(psf, corners.shape[2:]), g, shown, among=(edge,)).get(edge, 0.0) > AGAINST


def working_bytes(problem: Problem, shape: tuple[int, ...], method: str) -> int:
    """Return the bytes that a method allocates for an image of this shape with the problem's PSF and boundary."""
    blur = problem.blur
    part = replace(problem, operator=Blur(blur.psf, shape, blur.boundary, origin=blur.origin))
    if method == "auto":
        try:
            method = next(serving(part, memory=2**200)).method  # without a limit
        except MethodError:
            method = "pcg"
    return int(METHODS[method].memory(part))


def window_solver(recipe: Recipe, shape: tuple[int, ...], device: Device) -> Callable[[Array], Array]:
    """Return a function that restores windows (k, c, M, N) of this shape as images."""
    gpu = False if device.gpu is None else device.gpu
    deblurrer = Deblurrer(recipe.psf, shape, recipe.lam, gpu=gpu, **recipe.options)
    return lambda window: deblurrer(window, stack_axis=0, channel_axis=1)


def verified(recipe: Recipe, f: Array, g: Array, keep: tuple[slice, ...]) -> Solution:
    """Verify the linear formula with `deblur.verify`, in float64, over the part `keep` of windows (c, M, N).

    `f` is the scene and `g` its image. `keep` must exclude a `deblur.tiles.reach.margin` at the window's edges, within
    which H and its adjoint are not exact.
    """
    options: Options = {**recipe.options, "dtype": "float64", "boundary": "reflect"}
    request = check_request(recipe.psf, f.shape[1:], recipe.lam, options, CPU)
    f, g = f.astype(np.float64), as_float(g).astype(np.float64)
    if request.options["gamma"] == "srgb":
        f, g = unbent(f), unbent(g)
    problem = request.problem
    regularizer = "natural" if problem.regularizer == "natural" else "identity"
    centre = prior_scene(problem.blur, g) if request.prior != "zero" else np.zeros_like(f)
    posed = Problem(problem.blur, problem.lam, regularizer, DataFidelity(background=problem.fidelity.background))
    return verify(posed, g - problem.blur.forward(centre), Solution(f - centre), g, keep)

"""Check the options of one restoration, and make the problem that they describe."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import launches
from .denoise.denoisers import get as get_denoiser
from .device import Device, unwrapped
from .errors import MethodError, check_callback, check_choice, check_dtype
from .methods import METHODS, Choice, named, serving
from .operators.adapted import AdaptedOperator
from .operators.blur import Blur
from .operators.operator import Operator
from .operators.varying import VaryingBlur
from .options import Options, check_lam, check_values, defaults
from .problem import FLOAT64, Denoiser, Problem, Stop, check_bounds
from .psf import PSFEstimate, PSFMap, PSFStatus
from .psf.shaping import without_cut_off_noise
from .solvers.noise import NoiseModel
from .terms import DataFidelity
from .tuning import check_rule
from .tuning.boundary import CLEARLY, SAFE

DEFAULT_DENOISER = "collaborative"
AS_REQUESTED = "as requested"


@dataclass(frozen=True)
class Request:
    """The checked options of a restoration: a problem without the image, and the decisions that need the image.

    Attributes
    ----------
    problem : Problem
        The problem without the weights. λ is 0 if a rule chooses it. If the boundary is to be detected, the operator
        has the first candidate.
    operator_for : callable
        A function that returns the operator for a boundary.
    candidates : tuple of str
        The boundaries that the image decides between; empty if the boundary is named or already detected.
    lam : float or str
        λ, or the name of its rule.
    lam_reason : str
        Where λ comes from.
    method : str
        "auto" or a name in `METHODS`.
    reason : str
        The reason for the method; empty if "auto" chooses it by structure.
    linear : bool
        True if the linear formula is solved.
    noise : float or None
        The standard deviation of the noise, or the gain of photon counts.
    options : dict
        All `Options`, checked; masks and weights in the layout of the image.
    boundary_reason : str
        Where the boundary comes from.
    light : str or None
        A sentence if the first image shows that light was blurred before a tone curve, and else an empty one; None
        before that image.
    """

    problem: Problem
    operator_for: Callable[[str], Operator]
    candidates: tuple[str, ...]
    lam: float | str
    lam_reason: str
    method: str
    reason: str
    linear: bool
    noise: float | None
    options: dict[str, Any]
    boundary_reason: str = AS_REQUESTED
    light: str | None = None

    def hides(self, masked: Any) -> bool:
        """Return True if the image's own mask, `masked`, another mask or weights were given."""
        return not masked is self.options["mask"] is self.options["weights"] is None

    @property
    def prior(self) -> str:
        """The prior before λ is known."""
        if self.options["prior"] != "auto":
            return str(self.options["prior"])
        return "smooth" if self.linear and self.problem.operator.boundary.open else "zero"

    @property
    def dark(self) -> bool:
        """True if the scene is black beyond the frame, or drawn to black by λ‖f‖² where the data do not
        determine it.
        """
        edge = self.problem.operator.boundary
        return edge.dark or (edge.open and self.problem.regularizer == "identity" and self.prior == "zero")

    @property
    def may_be_natural(self) -> bool:
        """True if the prior becomes "natural" when the choice of λ detects noise."""
        open_choice = self.options["prior"] == "auto" and self.linear and self.lam == "auto"
        return open_choice and refuses_natural(self.problem) is None

    @property
    def rule(self) -> float | str:
        """λ, or its rule for this problem."""
        if not isinstance(self.lam, str):
            return self.lam
        rule = check_rule(self.lam, self.problem, self.noise)
        # "auto" has a fast version that needs the prior scene.
        return self.lam if self.prior != "zero" and self.noise is None else rule

    def begin_compiling(self, dtype: Any) -> None:
        """Begin to compile the GPU kernels for an image of that dtype, while the host begins to work."""
        gpu = self.problem.device.gpu
        if gpu is not None and self.problem.axes == 2:
            launches.begin(self.method + " auto" * isinstance(self.lam, str), dtype, gpu)

    def under(self, boundary: str, reason: str) -> Request:
        """Return the request with a detected boundary, and the reason for it."""
        operator = self.problem.operator if self.problem.operator.boundary == boundary else self.operator_for(boundary)
        problem = replace(self.problem, operator=operator)
        return _with_prior(replace(self, problem=problem, candidates=(), boundary_reason=reason))

    def problem_with_lam(self) -> Problem:
        """Return the problem, with an arbitrary λ > 0 if a rule is to choose it."""
        problem = self.problem
        return replace(problem, lam=problem.operator.norm_bound**2) if isinstance(self.lam, str) else problem

    def choice(self, problem: Problem) -> Choice:
        """Return the method for a problem with its λ; raise MethodError if a named method cannot solve it."""
        if self.method == "auto":
            choice = next(serving(problem))
            return replace(choice, reason=self.reason) if self.reason else choice
        return named(self.method, problem, self.reason)


def check_request(
    psf: Any, shape: tuple[int, ...], lam: Any, options: Options, device: Device, **known: bool
) -> Request:
    """Check all options and return the request that they describe.

    Parameters
    ----------
    psf : array, LinearOperator or None
        The PSF, or the operator.
    shape : tuple of int
        The spatial shape of the image.
    lam : float or str
        λ, or the name of a rule.
    options : Options
        The options that are not default.
    device : Device
        The device of the problem.
    **known : bool
        `reuse`: more images follow (see `Problem`); `masked`: the image itself hides pixels.

    Raises
    ------
    ValueError, TypeError
        For a value that is invalid or out of its range.
    MethodError
        If a named method cannot solve the problem.
    """
    o: dict[str, Any] = defaults() | options
    lam, lam_reason = check_lam(lam), AS_REQUESTED
    method = check_choice(o["method"], ("auto", *METHODS), "method")
    check_values(o)
    bounds, denoiser = check_bounds(o["bounds"]), _denoiser(o["denoiser"])
    beyond = {
        "a mask": o["mask"] is not None or known.get("masked", False),
        "weights": o["weights"] is not None,
        "bounds": bounds is not None,
        f"the data term {o['data']!r}": o["data"] not in (None, "gaussian"),
        "a background": o["background"] != 0,
        "a denoiser": denoiser is not None,
    }
    asked = [words for words, given in beyond.items() if given]
    regularizer, reason = _regularizer(method, asked, denoiser)
    if regularizer == "denoiser" and denoiser is None:
        denoiser = _denoiser(DEFAULT_DENOISER)
        reason = f"{AS_REQUESTED}; with the denoiser {DEFAULT_DENOISER!r}, since none was named"
    if method == "richardson-lucy":  # photon counts are not negative
        low, high = bounds or (0.0, math.inf)
        bounds = max(low, 0.0), high
    row = METHODS.get(method)
    idle = " and ".join(f"{name}={o[name]!r}" for name in ("rtol", "max_iterations") if o[name] is not None)
    if idle and row is not None and not row.iterative:
        raise MethodError(f"method {method!r} does not iterate: {idle} would do nothing; leave it out")
    linear = not asked and (row is None or row.linear)
    if o["prior"] != "auto" and not linear:
        raise MethodError(f"method {method!r} cannot be used here: prior belongs to the linear formula")
    if lam == "auto" and row is not None and row.lam is not None:
        lam, lam_reason = row.lam, f"the default of {row.name}"
    boundary, dtype = o["boundary"], check_dtype(o["dtype"])
    if hasattr(psf, "matvec"):
        if boundary != "auto" or o["origin"] is not None:
            raise ValueError(f"boundary and origin belong to a PSF, and psf is an operator ({type(psf).__name__})")
        psf = psf if hasattr(psf, "mean_blur") else AdaptedOperator(psf, shape)
        boundary = psf.boundary
        if isinstance(psf, AdaptedOperator) and device.gpu is not None:
            raise TypeError("this operator computes on the CPU, and the image is on the GPU: give cupy.asnumpy(image)")
    operator_for = functools.partial(_operator, psf, o["psfs"], shape, o["origin"], isinstance(lam, str))
    noise, data = o["noise"], o["data"] or (row.fidelity if row else "gaussian")
    fidelity, counts = DataFidelity(data, float(o["background"] or 0.0), o["delta"] or 0.0), data == "poisson"
    if isinstance(noise, tuple) and not counts:
        raise ValueError(f"noise={noise!r} is for photon counts (data='poisson'); give one standard deviation")
    if counts and noise is not None:
        noise = NoiseModel(*noise) if isinstance(noise, tuple) else NoiseModel(float(noise), 0.0)
    problem = Problem(
        operator_for(SAFE if boundary == "auto" else boundary),
        0.0 if isinstance(lam, str) else lam,
        regularizer,
        # `deblur.plan` adds the weights of the image.
        fidelity,
        bounds,
        denoiser,
        o["formula"],
        bool(o["inverse"]),
        dtype or FLOAT64,
        device,
        reuse=known.get("reuse", False),
        stop=Stop(o["rtol"], o["max_iterations"], o["callback"], consensus=o["stop"] is not None),
        noise=noise if counts else None,
    )
    if o["psf_error"] is None and isinstance(psf, PSFEstimate) and psf.status is PSFStatus.MEASURED:
        o["psf_error"] = psf.error * float((psf.psf**2).sum()) ** 0.5 / abs(float(psf.psf.sum()))
    level = noise.gain if isinstance(noise, NoiseModel) else noise
    request = Request(problem, operator_for, (), lam, lam_reason, method, reason, linear, level, o)
    return _with_candidates(request) if boundary == "auto" else _with_prior(request)


def _with_prior(request: Request) -> Request:
    """Return the request with the regularizer of its prior; raise an error if prior, rule or method cannot be used."""
    problem = request.problem
    if request.options["prior"] == "natural":
        why = refuses_natural(problem)
        if why is not None:
            raise MethodError(f"prior='natural' cannot be used here: {why}; use prior='smooth'")
        request = replace(request, problem=replace(problem, regularizer="natural"))
    if isinstance(request.lam, str):
        check_rule(request.lam, problem, request.noise)
    if request.method != "auto":
        named(request.method, request.problem_with_lam())  # raises before any work starts
    return request


def _with_candidates(request: Request) -> Request:
    """Return the request with the boundaries to choose from: those under which its method can solve the problem."""
    candidates: tuple[str, ...] = (SAFE, *CLEARLY)
    if request.method != "auto" or request.problem.formula != "tikhonov":
        candidates = tuple(name for name in candidates if _serves(request, name))
        # A mirrored scene looks like a scene that is smooth at its edge, so "reflect" only replaces "unknown".
        if SAFE not in candidates and _serves(request, "reflect"):
            candidates += ("reflect",)
        if not candidates and not _serves(request, "antireflect"):
            return _with_prior(request)  # raises with the solver's reason
        candidates = candidates or ("antireflect",)
    return replace(request.under(candidates[0], "to be detected"), candidates=candidates)


def _serves(request: Request, boundary: str) -> bool:
    """Return True if the request can be solved under a boundary."""
    try:
        problem = request.under(boundary, "").problem_with_lam()
    except ValueError:  # also of a named method that cannot solve it
        return False
    automatic = (row for row in METHODS.values() if row.automatic)
    return request.method != "auto" or any(row.refuses(problem) is None for row in automatic)


def refuses_natural(problem: Problem) -> str | None:
    """Return the reason why the regularizer "natural" cannot replace the identity; None if it can."""
    operator = problem.operator
    if problem.formula != "tikhonov":
        return f"formula={problem.formula!r} has no objective"
    if operator.boundary.dark:
        return f"with boundary {str(operator.boundary)!r} the scene ends at the frame"
    if operator.shift_invariant is None:
        return "the PSF varies"
    if any(n < m + 2 for n, m in zip(operator.image_shape, operator.shift_invariant.psf.shape, strict=True)):
        return "the picture is hardly larger than the PSF"
    return None


def _operator(psf: Any, psfs: Any, shape: tuple[int, ...], origin: Any, clean: bool, boundary: str) -> Operator:
    """Return the blur by one PSF, by one PSF for each colour, or by PSFs that vary; `clean` removes noise from a
    cut-off PSF.
    """
    if psf is psfs is None:
        raise TypeError("give the PSF: psf=..., or psfs=... for one that varies across the picture")
    if psf is not None and psfs is not None:
        raise TypeError("psf and psfs were both given; psfs takes the place of psf")
    if hasattr(psf, "matvec"):
        return psf
    if isinstance(psfs, PSFMap):
        psfs = psfs.psfs
    if psfs is not None:
        if isinstance(psfs, tuple) and len(psfs) != 2:
            raise ValueError(f"psfs as a tuple must be (PSFs, positions), not {len(psfs)} arrays")
        psfs, places = psfs if isinstance(psfs, tuple) else (psfs, None)
        # Such an error of the PSF mostly changes a blurred image by a tenth as much, below the noise of a good camera.
        return VaryingBlur(psfs, shape, boundary, positions=places, tolerance=0.01, origin=origin)
    psf = unwrapped(psf, "psf")
    if psf.ndim == 3 and len(tuple(shape)) == 2:  # (C, m, n)
        return VaryingBlur(psf[None, None], shape, boundary, origin=origin)
    blur = Blur(psf, shape, boundary, origin=origin)
    h = without_cut_off_noise(blur.psf) if clean and psf.ndim == 2 else blur.psf
    return blur if h is blur.psf else Blur(h, shape, boundary, origin=origin)


def _regularizer(method: str, asked: list[str], denoiser: Any) -> tuple[str, str]:
    """Return the regularizer and the reason, from the named method or from the other options."""
    if method != "auto":
        row = METHODS[method]
        if row.linear and asked:
            others = [m.name for m in METHODS.values() if not m.linear]
            raise MethodError(
                f"method {method!r} cannot be used here: it inverts the linear formula, which cannot include "
                f"{' and '.join(asked)}; use method='auto' or one of {', '.join(others)}"
            )
        if denoiser is not None and row.regularizer != "denoiser":
            raise MethodError(f"method {method!r} cannot be used here: it takes no denoiser; use method='pnp'")
        return row.regularizer, AS_REQUESTED
    if denoiser is not None:
        return "denoiser", f"{' and '.join(asked)} was given: a denoiser is a prior by itself"
    if asked:
        return "gradient", (
            f"the linear formula cannot include {' and '.join(asked)}; the gradient regularizer is the closest to it "
            "that does not fail where pixels are hidden (method='tv' or 'tv2' keep edges better)"
        )
    return "identity", ""


def _denoiser(denoiser: Any) -> Denoiser | None:
    if isinstance(denoiser, str):
        return get_denoiser(denoiser)
    check_callback(denoiser, "denoiser, if it is not a name,", "image", "sigma")
    return denoiser

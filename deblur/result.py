"""The result of a restoration: the image, all decisions and diagnostics."""

from __future__ import annotations

import enum
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .device import Array
from .errors import ConvergenceError
from .frames import ALL, Frames, Part, min_float_dtype
from .image import Levels, srgb
from .methods import METHODS
from .normalization import Scale
from .norms import largest, shifted
from .operators.operator import Operator
from .pixelwise import copied
from .problem import Problem, Solution
from .solvers.refine import MOST
from .tuning import LambdaChoice
from .verify import joined, small_residual

if TYPE_CHECKING:
    from .plan import NormalizedImage, Plan
    from .request import Request


class Status(enum.Enum):
    """The outcome of a solve. The value describes it to the user, with advice.

    NOT_CONVERGED is not rare for small images with the data fidelity "l1", since the certificate of ADMM needs more
    than its 2,000 iterations there.
    """

    SOLVED = "solved directly"
    CONVERGED = "converged to the requested tolerance"
    STOPPED = "stopped by design before a minimum, since the iterations themselves regularise"
    NOT_CONVERGED = (
        "did not converge: use a larger λ or more iterations (max_iterations), "
        'or for the linear formula a direct method (method="kronecker", "banded" or "cholesky")'
    )
    INACCURATE = (
        "the measured residual is too large for a reliable image: the matrix is too ill conditioned for this dtype; "
        "use a larger λ, or float64 images"
    )
    UNSETTLED = (
        "solved with a λ that is a guess: the named rule reached the end of its range, or a λ at which errors dominate "
        'the scene; give noise=..., λ as a number, another rule (lam="auto" has a fallback rule) or another boundary'
    )

    @property
    def ok(self) -> bool:
        """True if the image solves the problem that was posed."""
        return self in (Status.SOLVED, Status.CONVERGED, Status.STOPPED)

    @classmethod
    def of(cls, method: str, problem: Problem, solution: Solution, guessed: bool = False) -> Status:
        """Return the status of a measured solution; `guessed` means that its λ is uncertain."""
        residual = solution.residual
        if not np.isfinite(residual):
            return cls.INACCURATE
        if solution.stopped:
            return cls.STOPPED
        if not solution.converged:
            return cls.NOT_CONVERGED
        enough = max(small_residual(problem.dtype), 10 * (problem.stop.rtol or 0.0))
        if problem.quadratic and not (residual <= enough or solution.error <= MOST):
            return cls.INACCURATE
        return cls.UNSETTLED if guessed else cls.CONVERGED if METHODS[method].iterative else cls.SOLVED


@dataclass(frozen=True, eq=False)
class Result:
    """A restored image with all decisions and diagnostics.

    Attributes
    ----------
    image : array
        The restored image, with the shape of the input.
    method : str
        The method that solved the problem.
    reason : str
        The reason for the method.
    status : Status
        The outcome of the solve: ``status.ok``, and ``status.value`` in words.
    why : str
        Why the solver stopped, or its remark, with the figures; may be empty.
    residual : float
        ‖b − A f‖ / ‖b‖ of the linear system, measured by `deblur.verify` with the operator alone. The system is
        (HᵀH + λI) f = Hᵀ g for "tikhonov", (HHᵀ + λI) f = Hᵀ g for "hht", and the normal equations for a quadratic
        regularizer. For other problems it is the larger of the last relative primal and dual residuals of the
        iteration.
    data_residual : float
        ‖H f + b − g‖ / ‖g‖ over the pixels that are not hidden: the difference between the blurred scene and the data.
    iterations : int
        Number of iterations; 0 for a direct method.
    seconds : float
        Wall time in seconds of set-up, solve and verification together.
    setup_seconds : float
        Wall time in seconds of the set-up, which a `Deblurrer` spends only once.
    lam : float
        The λ that was used, in the units of `reconstruct`, with intensities as in the scaled image.
    lam_reason : str
        Where λ came from.
    lambda_choice : LambdaChoice or None
        The whole curve, if a rule chose λ.
    problem : Problem
        The solved problem: operator, data fidelity with its weights, regularizer, bounds and so on.
    prior : str
        The prior of the linear formula: "zero", "smooth" or "natural".
    prior_reason : str
        The reason for the prior.
    boundary_reason : str
        Where the boundary came from.
    residual_image : array
        g − H f − b, with the shape of the input image. With a gamma it is in linear light.
    objective : float or None
        D(W; H f + b, g) + λ R(L f), measured with the operator; NaN for a regularizer without a value (a denoiser).
        None for the linear formula.
    history : recarray or None
        A row for each iteration, with the fields `objective`, and `primal` and `dual`, the relative residuals; None for
        the linear formula.
    mask : array of bool or None
        The hidden pixels, given or detected, with the shape of the input image.
    gamma : {"srgb"} or None
        The tone curve of the input and of `image`. λ, residual, data residual, objective and `residual_image` refer to
        linear light.
    dtype_reason : str
        The reason for the dtype of the computation.
    checks : str
        How the image contradicts the PSF or the boundary, or why this was not checked; empty if it agrees with both.
    """

    image: Array
    method: str
    reason: str
    status: Status
    why: str
    residual: float
    data_residual: float
    iterations: int
    seconds: float
    setup_seconds: float
    lam: float
    lam_reason: str
    lambda_choice: LambdaChoice | None
    problem: Problem
    prior: str
    prior_reason: str
    boundary_reason: str
    residual_image: Array
    objective: float | None = None
    history: np.recarray | None = None
    mask: Array | None = None
    gamma: str | None = None
    dtype_reason: str = ""
    checks: str = ""

    @property
    def blur(self) -> Operator:
        """The operator H that was inverted."""
        return self.problem.operator

    @property
    def boundary(self) -> str:
        """The boundary: how the scene continues beyond the frame."""
        return str(self.blur.boundary)

    @property
    def formula(self) -> str:
        """The linear formula: "tikhonov" or "hht"."""
        return self.problem.formula

    def or_raise(self) -> Result:
        """Return the result if it solves the problem, else raise ConvergenceError with it."""
        if self.status.ok:
            return self
        why = self.lam_reason if self.status is Status.UNSETTLED else self.why
        why = f" ({why})" if why else ""
        raise ConvergenceError(
            f"{self.method} with λ = {self.lam:g} {self.status.value}. Relative residual "
            f"{self.residual:.1e} after {self.iterations} iterations{why}",
            self,
        )

    def __str__(self) -> str:
        gamma, mask = self.gamma, self.mask
        valued = self.objective is not None and not math.isnan(self.objective)
        lines = {
            "method": f"{self.method}: {self.reason}",
            "lambda": f"{self.lam:.4g}: {self.lam_reason}",
            "boundary": f"{self.boundary}: {self.boundary_reason}",
            "regularizer": self._regularizer_in_words(),
            "computed": f"in {self.problem.dtype.name}: {self.dtype_reason}",
            "noise": str(self.problem.noise or ""),
            "gamma": gamma and f"{gamma}: restored in linear light; λ and the residual refer to light",
            "masked": mask is not None
            and f"{int(mask.sum())} of {mask.size} values ({100 * float(mask.mean()):.2g} %)",
            "objective": valued and f"{self.objective:.6g} (measured)",
            "status": f"{self.status.name.lower()}: {self.status.value}",
            "residual": f"{self.residual:.2e} (measured), data residual {self.data_residual:.3e}",
            "iterations": str(self.iterations),
            "seconds": f"{self.seconds:.3g} (set-up {self.setup_seconds:.3g})",
            "stop reason": self.why,
            "checks": self.checks,
        }
        return "\n".join(f"{label:<12}{text}" for label, text in lines.items() if text)

    def _regularizer_in_words(self) -> str:
        problem = self.problem
        if METHODS[self.method].linear:
            formula = "(HHᵀ + λI)⁻¹Hᵀ" if self.formula == "hht" else "Hᵀ(HHᵀ + λI)⁻¹"
            return f"regularised towards {_PRIOR_IN_WORDS[self.prior].format(formula)}: {self.prior_reason}"
        words = f"{METHODS[self.method].summary}; data term {problem.fidelity.name}"
        if problem.bounds is not None:
            words += " with {:g} ≤ f ≤ {:g}".format(*problem.bounds)
        return words

    def __repr__(self) -> str:
        return (
            f"Result(image {self.image.shape} {self.image.dtype}, method={self.method!r}, "
            f"status={self.status.name}, residual={self.residual:.2e}, lam={self.lam:.4g})"
        )


_PRIOR_IN_WORDS = {
    "zero": "zero: f = {} g",
    "smooth": "the smoothed image f̄, by λ‖f − f̄‖²",
    "natural": "the smoothed image f̄, by λ‖B⁻¹(f − f̄)‖², with neighbouring pixels correlated as in photographs",
}


class Output:
    """The restored parts of an image, collected in the units of the image.

    Parameters
    ----------
    frames : Frames
        The frames of the input.
    begun : float
        `time.perf_counter` at the beginning of the call, in seconds.
    setup : (mark, mark) or None
        `Device.mark` before and after the set-up, if this call included it.
    into : Levels, optional
        Receives the restored image part by part. Image and residual are then not kept here.
    """

    def __init__(self, frames: Frames, begun: float, setup: Any = None, into: Levels | None = None) -> None:
        self.frames, self.begun, self.setup, self.into = frames, begun, setup, into
        self.image: Array = None
        self.residual: Array = None
        self.solutions: list[Solution] = []
        if into is not None:
            into.begin()

    def add(self, at: Part, solution: Solution, scene: Array, plan: Plan) -> None:
        """Add the scene of a part, and the measured figures of its solution."""
        frames, into, scale, dtype = self.frames, self.into, plan.scale, plan.problem.dtype
        restored = scene[(..., *plan.problem.operator.crop)]
        _check_range(restored, scale, dtype)
        light = shifted(restored, scale.scene)
        part = light if frames.gamma is None else srgb(light)
        if into is not None:
            frames.place(into.samples, at, into.take(part, frames.given_part(at)))
        else:
            left = shifted(solution.difference, scale.image)
            # A solution with a history may be kept as the next start, so that its scene must be copied.
            if at == ALL and frames.opacity is None:
                self.image = frames.restore(
                    part.astype(dtype, copy=False) if solution.history is None else copied(part, dtype)
                )
                self.residual = frames.restore(left.astype(dtype, copy=False))
            else:
                if self.image is None:
                    self.image, self.residual = frames.empty(dtype, frames.opacity), frames.empty(dtype)
                frames.place(self.image, at, part)
                frames.place(self.residual, at, left)
        self.solutions.append(replace(solution, scene=None, difference=None))


def assemble(output: Output, problem: Problem, plan: Plan, image: NormalizedImage, request: Request) -> Result:
    """Return the result of a plan; `problem` is in the units of the image."""
    frames, scale = output.frames, plan.scale
    solution = joined(output.solutions)
    objective, history = solution.objective, solution.history
    power = scale.objective(problem)
    if history is not None:
        history = history.copy()
        history.objective = shifted(scale.weight * history.objective, power)
    stop = replace(problem.stop, callback=None)  # a callback may be impossible to pickle
    mask = image.mask
    return Result(
        image=output.image,
        method=plan.choice.method,
        reason=scale.described(plan.choice.reason),
        status=Status.of(plan.choice.method, problem, solution, plan.uncertain),
        why=scale.described(solution.why),
        residual=solution.residual,
        data_residual=solution.data_residual,
        iterations=solution.iterations,
        seconds=time.perf_counter() - output.begun,
        setup_seconds=0.0 if output.setup is None else problem.device.between(*output.setup),
        lam=float(problem.lam),
        lam_reason=plan.lam_reason,
        lambda_choice=plan.lambda_choice,
        problem=replace(problem, stop=stop),
        prior="natural" if problem.regularizer == "natural" else image.prior,
        prior_reason=plan.prior_reason,
        boundary_reason=request.boundary_reason,
        residual_image=output.residual,
        objective=None if objective is None else shifted(scale.weight * objective, power),
        history=history,
        mask=None if mask is None else frames.restore(problem.xp.broadcast_to(mask, frames.extent)),
        gamma=frames.gamma,
        dtype_reason=_why_dtype(problem.dtype, frames),
    )


def _why_dtype(dtype: np.dtype, frames: Frames) -> str:
    if dtype != frames.dtype:
        return f"with so small a λ {frames.dtype}, which the image has, would lose too many digits"
    if frames.given.kind != "f" and dtype == min_float_dtype(frames.given):
        return f"enough for {frames.given.name} pixels"
    return "as the image is" if dtype == frames.given else "as requested"


def _check_range(image: Array, scale: Scale, dtype: np.dtype) -> None:
    """Raise OverflowError if the dtype cannot hold an image on its own scale."""
    if not scale and image.dtype == dtype:
        return
    top = largest(image)
    if not 0 < top < np.inf:
        return
    exponent, holds = np.frexp(top)[1] + scale.scene, np.finfo(dtype)
    if not holds.minexp < exponent <= holds.maxexp:
        more = " or take dtype='float64'" if dtype == np.float32 else ""
        raise OverflowError(
            f"{dtype} cannot hold the restored image: it reaches {top:.2g} times 2^{scale.scene}, with an "
            f"image of the size 2^{scale.image} and a PSF of 2^{scale.psf}: scale one of them{more}"
        )

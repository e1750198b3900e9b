"""What a restoration gives back: the image, and everything that was decided and measured on the way."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from .device import Array
from .frames import ALL, Frames, Part, enough
from .image import Levels
from .judge import Verdict, joined
from .methods import METHODS, Choice
from .norms import largest
from .operators.operator import Operator
from .problem import History, Problem, Solution, Stop
from .solvers.scaling import Scale, shifted
from .tuning import LambdaChoice


class Status(enum.Enum):
    """How a solve ended. The value says it to the user, with what to try."""

    SOLVED = "solved directly"
    CONVERGED = "converged to the tolerance asked for"
    NOT_CONVERGED = (
        "did not converge: use a larger λ or more iterations (max_iterations), "
        'or for the linear formula a direct method (method="kronecker", "banded" or "cholesky")'
    )
    INACCURATE = (
        "the measured residual is too large for the image to be trusted: the matrix is too ill conditioned "
        "for this dtype; use a larger λ, or float64 images"
    )
    UNSETTLED = (
        "solved a problem whose λ is a guess: the rule that was named ran to the end of its range or to where error "
        'rules the scene; give noise=... or λ as a number, or take another rule (lam="auto" falls back by itself) or '
        "another boundary"
    )

    @property
    def ok(self) -> bool:
        """Whether the image solves the problem that was posed."""
        return self in (Status.SOLVED, Status.CONVERGED)

    @classmethod
    def of(
        cls, method: str, problem: Problem, solution: Solution, residual: float, guessed: bool = False
    ) -> Status:
        """The status of a solution whose residual was measured; `guessed` says that its λ cannot be trusted."""
        if not np.isfinite(residual):
            return cls.INACCURATE
        if not solution.converged:
            return cls.NOT_CONVERGED
        # A backward stable solver leaves eps times the condition number; past the cube root of eps the
        # image has lost more digits than a display shows.
        enough = max(float(np.finfo(problem.dtype).eps) ** (1 / 3), 10 * (problem.stop.rtol or 0.0))
        if problem.quadratic and not residual <= enough:
            return cls.INACCURATE
        if guessed:
            return cls.UNSETTLED
        return cls.CONVERGED if METHODS[method].iterative else cls.SOLVED


@dataclass(frozen=True)
class Result:
    """A restored image and everything that was decided and measured on the way.

    Attributes
    ----------
    image : array
        The restored image, shaped like the input.
    method : str
        The method that solved it.
    reason : str
        Why that method.
    status : Status
        How the solve ended; ``status.ok`` and ``status.value`` (in words).
    why : str
        Why the solver stopped, or what it remarked, with the figures; may be empty.
    residual : float
        ‖b − A f‖ / ‖b‖ of the system solved, measured afterwards by `deblur.judge` with the operator and
        not by the method: (HᵀH + λI) f = Hᵀ g for "tikhonov", (HHᵀ + λI) f = Hᵀ g for "hht", the normal equations
        for a quadratic penalty. Where the minimiser solves no linear system: the larger of the iteration's
        last relative primal and dual residuals, and `objective` is what is measured.
    misfit : float
        ‖H f − g‖ / ‖g‖: how well the restored scene, blurred again, explains the data (those not hidden).
    iterations : int
        0 for a direct method.
    seconds : float
        Wall time of set-up, solve and judging together.
    setup_seconds : float
        The part of it that a `Deblurrer` spends once.
    lam : float
        The λ used.
    lam_reason : str
        Where λ came from.
    lambda_choice : LambdaChoice or None
        The whole curve, if λ was chosen automatically.
    problem : Problem
        What was solved: operator, fit with its weights, penalty, bounds and so on.
    prior : str
        What the scene was drawn towards: "zero", "smooth" or "natural".
    prior_reason : str
        Why.
    boundary_reason : str
        Where the boundary came from.
    residual_image : array
        g − H f, shaped like the input image (cropped by nothing: it has g's size). With a gamma, in light.
    objective : float or None
        D(W; H f + b, g) + λ R(L f), measured with the operator; NaN for a prior without a value (a denoiser). None
        for the linear formula.
    history : History or None
        Objective, primal and dual residual at each iteration, of the methods that keep them.
    mask : array of bool or None
        The pixels that were hidden, given or detected, shaped like the input image.
    gamma : {"srgb"} or None
        The curve by which the numbers of the input and of `image` stand for light. λ, residual, misfit, objective
        and `residual_image` are about light.
    dtype_reason : str
        Why `image` was computed in its dtype.
    predicted_seconds : float
        What the cost model said that `seconds` would be, once λ was known (`deblur.choose_method` says it before).
    """

    image: Array
    method: str
    reason: str
    status: Status
    why: str
    residual: float
    misfit: float
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
    history: History | None = None
    mask: Array | None = None
    gamma: str | None = None
    dtype_reason: str = ""
    predicted_seconds: float = math.nan

    @property
    def blur(self) -> Operator:
        """The linear map that was inverted."""
        return self.problem.operator

    @property
    def boundary(self) -> str:
        """How the scene was taken to go on beyond the frame."""
        return str(self.blur.boundary)

    @property
    def formula(self) -> str:
        """ "tikhonov" or "hht"."""
        return self.problem.formula

    @property
    def primal_residual(self) -> float | None:
        """The iteration's last relative primal residual."""
        return None if self.history is None else float(self.history.primal[-1])

    @property
    def dual_residual(self) -> float | None:
        """The iteration's last relative dual residual."""
        return None if self.history is None else float(self.history.dual[-1])

    def __str__(self) -> str:
        lines = [
            f"method      {self.method}: {self.reason}",
            f"lambda      {self.lam:.4g}: {self.lam_reason}",
            f"boundary    {self.boundary}: {self.boundary_reason}",
            f"penalty     {self._penalty_in_words()}",
            f"computed    in {self.problem.dtype.name}: {self.dtype_reason}",
        ]
        if self.gamma is not None:
            lines.append(
                f"gamma       {self.gamma}: restored in linear light, as which λ and the residual are meant"
            )
        if self.mask is not None:
            share = 100 * float(self.mask.mean())
            lines.append(f"masked      {int(self.mask.sum())} of {self.mask.size} values ({share:.2g} %)")
        if self.objective is not None and not math.isnan(self.objective):
            lines.append(f"objective   {self.objective:.6g} (measured)")
        lines += [
            f"status      {self.status.name.lower()}: {self.status.value}",
            f"residual    {self.residual:.2e} (measured), misfit {self.misfit:.3e}",
            f"iterations  {self.iterations}",
            f"seconds     {self.seconds:.3g} (predicted {self.predicted_seconds:.2g}, of which set-up "
            f"{self.setup_seconds:.3g})",
        ]
        if self.why:
            lines.append(f"stop reason {self.why}")
        return "\n".join(lines)

    def _penalty_in_words(self) -> str:
        problem = self.problem
        if METHODS[self.method].linear:
            return f"regularised towards {_PRIOR_IN_WORDS[self.prior]}: {self.prior_reason}"
        words = f"{METHODS[self.method].summary}; data term {problem.fit.name}"
        if problem.bounds is not None:
            words += " with {:g} ≤ f ≤ {:g}".format(*problem.bounds)
        return words

    def __repr__(self) -> str:
        return (
            f"Result(image {self.image.shape} {self.image.dtype}, method={self.method!r}, "
            f"status={self.status.name}, residual={self.residual:.2e}, lam={self.lam:.4g})"
        )


_PRIOR_IN_WORDS = {
    "zero": "zero, by λ‖f‖²",
    "smooth": "the smoothed image f̄, by λ‖f − f̄‖²",
    "natural": "the smoothed image f̄, by λ‖B⁻¹(f − f̄)‖², in which neighbouring pixels are alike as in photographs",
}


@dataclass(frozen=True)
class Piece:
    """A part of an image, solved for and judged: its scene has the prior added. On the scale that it was solved on."""

    at: Part
    solution: Solution
    verdict: Verdict
    scene: Array


def build(
    frames: Frames,
    problem: Problem,
    choice: Choice,
    pieces: Iterable[Piece],
    scale: Scale,
    *,
    prior: str,
    prior_reason: str,
    mask: Array | None,
    lam_reason: str,
    lambda_choice: LambdaChoice | None,
    boundary_reason: str,
    guessed: bool,
    start: float,
    setup: Callable[[], float] | None,
    predicted: float,
    into: Levels | None = None,
) -> Result:
    """The one place where a Result is put together.

    `pieces` are on the `scale` that the problem, in the units of the image, was solved on; each is forgotten before the
    next is asked for. `start` is the time at which the work began, and `setup` tells what is spent once. Given `into`
    the image goes there, and the Result has neither it nor the residual.
    """
    stop = Stop(problem.stop.rtol, problem.stop.max_iterations)  # a callback need not pickle
    if lambda_choice is not None:
        lambda_choice = replace(lambda_choice, solution=None)  # a whole iteration's memory
    image: Array = None
    residual: Array = None
    if into is not None:
        into.begin()
    solutions, verdicts = [], []
    for piece in pieces:
        restored = piece.scene[(..., *problem.operator.crop)]
        _check_range(restored, scale)
        part = frames.curved(shifted(restored, scale.scene))
        direct = (
            piece.solution.history is None and piece.solution.state is None
        )  # nobody else keeps the scene
        if into is not None:
            frames.place(into.samples, piece.at, into.take(part, frames.given_part(piece.at)))
        else:
            parts = part, shifted(piece.verdict.difference, scale.image)
            if piece.at == ALL and frames.opacity is None and direct:
                image, residual = (frames.restore(x.astype(problem.dtype, copy=False)) for x in parts)
            else:
                if image is None:
                    image, residual = frames.empty(problem.dtype, frames.opacity), frames.empty(problem.dtype)
                frames.place(image, piece.at, parts[0])
                frames.place(residual, piece.at, parts[1])
            del parts
        # Of more than one part only figures are kept.
        solutions.append(replace(piece.solution, scene=None, state=None))
        verdicts.append(replace(piece.verdict, difference=None))
        objective = piece.verdict.objective
        del piece, restored, part  # before the next is made
    solution = max(solutions, key=lambda s: (not s.converged, s.iterations))
    measured, misfit = joined(verdicts)
    history = solution.history
    power = scale.objective(problem)
    if power and history is not None:
        history = replace(history, objective=shifted(history.objective, power))
    return Result(
        image=image,
        method=choice.method,
        reason=scale.said(choice.reason),
        status=Status.of(choice.method, problem, solution, measured, guessed),
        why=scale.said(solution.why),
        residual=measured,
        misfit=misfit,
        iterations=solution.iterations,
        seconds=time.perf_counter() - start,
        setup_seconds=0.0 if setup is None else setup(),
        lam=float(problem.lam),
        lam_reason=lam_reason,
        lambda_choice=lambda_choice,
        problem=replace(problem, stop=stop),
        prior=prior,
        prior_reason=prior_reason,
        boundary_reason=boundary_reason,
        residual_image=residual,
        objective=None if objective is None else shifted(objective, power),
        history=history,
        mask=None if mask is None else frames.restore(problem.xp.broadcast_to(mask, frames.extent)),
        gamma=frames.gamma,
        dtype_reason=_why_dtype(problem.dtype, frames.given),
        predicted_seconds=predicted,
    )


def _why_dtype(dtype: np.dtype, given: np.dtype) -> str:
    if given.kind != "f" and dtype == enough(given):
        return f"enough for {given.name} pixels"
    return "as the image is" if dtype == given else "as asked for"


def _check_range(image: Array, scale: Scale) -> None:
    """Raise OverflowError if an image has no place in its dtype once it is back on its own scale."""
    if not scale:
        return
    top = largest(image)
    if not 0 < top < np.inf:
        return
    exponent, holds = np.frexp(top)[1] + scale.scene, np.finfo(image.dtype)
    if not holds.minexp < exponent <= holds.maxexp:
        more = " or pass a float64 image" if image.dtype == np.float32 else ""
        raise OverflowError(
            f"{image.dtype} does not hold the restored image: it reaches {top:.2g} times 2^{scale.scene}, with an "
            f"image of the size 2^{scale.image} and a PSF of 2^{scale.psf}: scale one of them{more}"
        )

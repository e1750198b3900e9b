"""The decisions of the pipeline for one image, which later images reuse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .errors import ConvergenceError, InsufficientMemoryError, MethodError, SingularMatrixError
from .methods import METHODS, Choice
from .normalization import Scale, shifted
from .normalized_image import NormalizedImage
from .problem import FLOAT64, Factor, Problem, Solution
from .progress import report_phase
from .request import Request
from .solvers.noise import NoiseModel, weighed
from .tuning import LambdaChoice
from .tuning.choice import restated
from .tuning.select import choose_lambda, oversmoothed, with_psf_error, with_unexplained

#: Failures after which another attempt may succeed.
RECOVERABLE = (SingularMatrixError, InsufficientMemoryError, MethodError, ConvergenceError)


@dataclass(frozen=True)
class Plan:
    """The decisions for one image, which later images reuse. A plan is never changed, only replaced.

    Attributes
    ----------
    problem : Problem
        The normalised problem, with λ.
    scale : Scale
        The scale of the normalised problem.
    choice : Choice
        The method, and the others that can solve the problem.
    lam_reason, prior_reason : str
        How λ and the prior were chosen.
    lambda_choice : LambdaChoice or None
        The choice of λ by a rule, in the units of the image.
    uncertain : bool
        True if a named rule found no reliable λ.
    factor : Factor or None
        The prepared solver; None until the plan is prepared.
    start : Solution or None
        The last solution of the search for λ.
    """

    problem: Problem
    scale: Scale
    choice: Choice
    lam_reason: str
    prior_reason: str
    lambda_choice: LambdaChoice | None = None
    uncertain: bool = False
    factor: Factor | None = None
    start: Solution | None = None

    def serves(self, image: NormalizedImage) -> bool:
        """Return True if an image leads to the same normalised problem."""
        one, other = self.problem, image.problem
        return (self.scale, one.fidelity, one.dtype) == (image.scale, other.fidelity, other.dtype)

    def with_lam(self, factor: float, request: Request) -> Plan:
        """Return the plan with λ multiplied by `factor`, not prepared."""
        problem = replace(self.problem, lam=factor * self.problem.lam)
        shown = self.scale.lam(problem, problem.lam)
        reason = f"{self.lam_reason}; raised to {shown:.3g}, since no method solves the problem with less"
        return replace(self, problem=problem, choice=request.choice(problem), lam_reason=reason, factor=None)

    def in_units_of_image(self, problem: Problem, request: Request) -> Problem:
        """Return the problem in the units of image and PSF."""
        given = request.problem
        delta, weights = shifted(problem.fidelity.delta, self.scale.image), problem.fidelity.weights
        if weights is not None and self.scale.weight != 1:
            weights = self.scale.weight * weights.astype(FLOAT64)
        return replace(
            given,
            lam=self.lam if isinstance(request.rule, str) else given.lam,
            regularizer=problem.regularizer,
            fidelity=replace(given.fidelity, weights=weights, delta=delta),
            frames=problem.frames,
            dtype=problem.dtype,
            noise=self.noise,
        )

    @property
    def lam(self) -> float:
        """λ in the units of the image."""
        return float(self.scale.lam(self.problem, self.problem.lam))

    @property
    def noise(self) -> NoiseModel | None:
        """The noise for which λ was chosen, in the units of the image."""
        return self.problem.noise and self.problem.noise.scaled(self.scale.image)


def decided(request: Request, kept: Plan | None, image: NormalizedImage) -> Plan:
    """Return the kept plan if it fits the image, else a plan whose λ and prior come from a rule or from the
    kept plan.
    """
    rule = request.rule
    if kept is not None and kept.serves(image):
        return kept
    problem, scale = image.problem, image.scale
    if kept is not None:
        if isinstance(rule, str):
            lam = float(scale.lam(problem, kept.lam, down=True))
            problem = replace(problem, lam=lam, regularizer=kept.problem.regularizer)
        return replace(kept, problem=problem, scale=scale, factor=None)
    prior_reason = "the default" if request.options["prior"] == "auto" else "as requested"
    if not isinstance(rule, str):
        return Plan(problem, scale, request.choice(problem), request.lam_reason, prior_reason)
    report_phase("λ")
    named, noise, kind = request.lam != "auto", image.noise, problem.linear_form.regularizer
    # The method that solves during the search; the rules of the linear formula need none.
    searching = (m for m in METHODS.values() if m.automatic and m.regularizer == kind)
    method = next(searching) if request.method == "auto" else METHODS[request.method]
    if request.linear:
        problem = weighed(problem, image.seen(image.parts[0]), noise, request.options["psf_error"])
    elif not named:
        problem, rule, noise = with_unexplained(problem, image.part()[1], rule, noise)
    found, regularizer, why = choose_lambda(problem, image, rule, request.may_be_natural, noise, method)
    if rule == "auto":
        found = with_psf_error(found, problem)
    problem = replace(problem, lam=float(found.lam), regularizer=regularizer)
    stated = restated(replace(found, solution=None), problem, scale)
    uncertain = named and not (found.converged or oversmoothed(found, image.prior, method))
    choice, why = request.choice(problem), why or prior_reason
    return Plan(problem, scale, choice, stated.reason, why, stated, uncertain, start=found.solution)

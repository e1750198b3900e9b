"""Choosing λ from the image itself.

`choose` serves any problem. The linear formula has every λ at once from a decomposition (`spectral`); any other problem
is solved for several λ (`sampled`). `choice` has the table of rules, and `select` decides for the pipeline: the rule,
its fallback, and the prior.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..normalization import Scale, shifted
from ..solvers.noise import NoiseModel, check_noise, estimate_noise, estimate_noise_model, noise_level, psf_error
from ..solvers.start import prior_scene
from .choice import RULES, LambdaChoice, check_rule, restated
from .spectral import choose_lambda

if TYPE_CHECKING:
    from ..device import Array
    from ..problem import Problem
    from .sampled import Prepare

__all__ = [
    "RULES",
    "LambdaChoice",
    "NoiseModel",
    "check_noise",
    "check_rule",
    "choose",
    "choose_lambda",
    "estimate_noise",
    "estimate_noise_model",
    "noise_level",
    "prior_scene",
    "psf_error",
]


def choose(
    problem: Problem, g: Array, rule: str = "auto", *, noise: float | None = None, prepare: Prepare | None = None
) -> LambdaChoice:
    """λ of a problem, chosen from the image itself.

    Parameters
    ----------
    problem : Problem
        Its `lam` is not used.
    g : (k, c, M, N) array
        The frames; they share one λ. For the linear formula with a prior scene f̄: g − H f̄.
        ("auto" is quicker with that and an open boundary, see `choose_lambda`, and must not be given the frames.)
    rule : str
        "auto" or a name in `RULES`; see `check_rule`.
    noise : float, optional
        Standard deviation of additive noise, or for the fit "poisson" the gain: variance = gain × value. Estimated
        if a rule needs it and it is not given.
    prepare : callable, optional
        From a problem to its `Factor`: the method that will solve it (``METHODS[name].prepare``). Only the linear
        formula needs none.

    Returns
    -------
    LambdaChoice

    Raises
    ------
    ValueError
        For an unknown rule, one that does not serve the problem, or noise that is negative or not finite.
    ConvergenceError
        If a solution diverged on the way.
    """
    check_noise(noise)
    check_rule(rule, problem, noise)
    if not problem.asked:
        return choose_lambda(problem.linear_form.operator, g, rule, noise=noise)
    from .select import apply_rule  # imports the table of methods, which imports this package

    scale = Scale.of(problem, g)
    noise = None if noise is None else shifted(float(noise), -scale.image)
    choice = apply_rule(scale.near(problem), shifted(g, -scale.image), rule, noise, prepare)
    return restated(replace(choice, solution=None), problem, scale) if scale else choice

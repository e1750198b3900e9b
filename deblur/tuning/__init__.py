"""Choosing λ from the image itself.

`choose` is the one way in for any problem. The linear formula has every λ at once from a decomposition (`spectral`);
any other problem is solved for one λ after the other (`sampled`). `choice` has the table of rules, `fallback` what is
taken where a rule cannot be trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..solvers.noise import NoiseModel, check_noise, estimate_noise, estimate_noise_model, noise_level
from ..solvers.start import prior_scene
from .choice import RULES, LambdaChoice, Rule, check_rule
from .spectral import choose_lambda

if TYPE_CHECKING:
    from ..device import Array
    from ..problem import Problem
    from .sampled import Prepare

__all__ = [
    "RULES",
    "LambdaChoice",
    "NoiseModel",
    "Rule",
    "check_noise",
    "check_rule",
    "choose",
    "choose_lambda",
    "estimate_noise",
    "estimate_noise_model",
    "noise_level",
    "prior_scene",
]


def choose(
    problem: Problem,
    g: Array,
    rule: str = "auto",
    *,
    noise: float | None = None,
    prepare: Prepare | None = None,
) -> LambdaChoice:
    """λ of a problem, chosen from the image itself.

    Parameters
    ----------
    problem : Problem
        Its `lam` is not looked at.
    g : (k, c, M, N) array
        The frames; they share one λ. For the linear formula drawn towards a prior scene: what is left of them.
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
    named = check_rule(rule, problem, noise)
    if not problem.asked:
        return choose_lambda(problem.linear_form.operator, g, rule, noise=noise)
    rule = named
    if prepare is None:
        raise ValueError(
            f"a problem with {' and '.join(problem.asked)} is solved on the way: name the method's prepare"
        )
    from .sampled import search  # the table of methods is needed only here

    return search(problem, g, rule, noise, prepare)

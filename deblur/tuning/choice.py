"""The table of the rules that choose λ, and the record of a chosen λ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import nearest
from ..normalization import Scale, shifted
from ..problem import Problem, Solution

_IMPULSES = ("l1", "huber")

#: The end of a search: λ, a remark on the rule's curve, and whether λ can be trusted.
Search = tuple[float, str, bool]


@dataclass(frozen=True)
class Rule:
    """One row of the table of rules.

    Attributes
    ----------
    name : str
    summary : str
        What λ does, for help texts and reasons.
    linear : bool
        Whether it serves the linear formula (`deblur.tuning.spectral`).
    others : bool
        Whether it serves every other problem (`deblur.tuning.sampled`).
    noise : bool
        Whether it needs the level of the noise, given or estimated.
    robust : bool
        Whether it serves data terms whose residual has outliers, and so no meaningful variance.
    """

    name: str
    summary: str
    linear: bool = True
    others: bool = True
    noise: bool = False
    robust: bool = False

    def refuses(self, problem: Problem) -> str | None:
        """None if the rule serves the problem, else the reason in words."""
        if not problem.asked:
            return None if self.linear else "it is not for the linear formula"
        if not self.others:
            return f"it is for the linear formula, which has no place for {' and '.join(problem.asked)}"
        if problem.fidelity.name in _IMPULSES and not self.robust:
            return (
                f"it measures the variance of the residual, and with data={problem.fidelity.name!r} impulses rule it "
                "(or mask the impulses and keep data='gaussian')"
            )
        return None


RULES: dict[str, Rule] = {
    r.name: r
    for r in (
        Rule("gcv", "minimises generalised cross-validation"),
        Rule("discrepancy", "makes the residual as large as the noise", noise=True),
        Rule("lcurve", "is the corner of the L-curve", others=False),
        Rule("upre", "minimises the unbiased risk estimate", others=False, noise=True),
        Rule("sure", "minimises Stein's unbiased risk estimate", linear=False, noise=True),
        Rule("whiteness", "makes the residual whitest", linear=False, robust=True),
    )
}


def check_rule(rule: str, problem: Problem | None = None, noise: float | None = None) -> str:
    """The rule that serves the problem, with "auto" resolved.

    "auto" is "gcv" for the linear formula, and "upre" if the noise is given. Elsewhere it is "sure" if the noise is
    given, "whiteness" for the fits "l1" and "huber", and else "gcv".

    Parameters
    ----------
    rule : str
        "auto" or a name in `RULES`.
    problem : Problem, optional
        Without it only the name is checked, and "auto" stays.
    noise : float, optional
        The noise's level, if it is given.

    Raises
    ------
    ValueError
        For an unknown rule, or one that does not serve; it lists those that do.
    """
    if not isinstance(rule, str) or rule not in ("auto", *RULES):
        near = nearest(rule, {name: name for name in ("auto", *RULES)})
        raise ValueError(f"unknown rule {rule!r} for λ; give a number >= 0, 'auto' or one of {', '.join(RULES)}{near}")
    if problem is None:
        return rule
    blur = problem.operator.shift_invariant
    if problem.formula == "hht" and not (blur is not None and blur.normal):
        raise ValueError(
            f"the rule {rule!r} chooses λ for the least-squares formula; with formula='hht' and a blur "
            "for which HHᵀ and HᵀH differ, give λ as a number"
        )
    if rule == "auto":
        if not problem.asked:
            return "gcv" if noise is None else "upre"
        return "whiteness" if problem.fidelity.name in _IMPULSES else "gcv" if noise is None else "sure"
    reason = RULES[rule].refuses(problem)
    if reason is not None:
        serve = ", ".join(["auto", *(name for name, row in RULES.items() if row.refuses(problem) is None)])
        raise ValueError(f"the rule {rule!r} cannot choose λ here: {reason}; use one of {serve}")
    return rule


#: What a λ shows at which the scene grows again.
AMPLIFIED = "the scene there is ruled by amplified error: the model of the blur is wrong"
#: What lies in the image beyond a λ that is larger than the rule's, since cross-validation takes it for the scene.
COLOURED = "what lies beyond is noise that lacks fine frequencies, or the model of the blur is wrong"


def explained(lam: float, rule: str, how: str, level: str = "", remark: str = "") -> str:
    """The reason for a λ: what the rule does, the noise level it used, how it was evaluated, and the remark."""
    words = f"λ = {lam:.3g} {RULES[rule].summary}" + (f" ({level})" if level else "")
    return "; ".join(filter(None, [f"{words}, {how}", remark]))


def vertex(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """Where the parabola through three points (t, value) has its vertex; the second t if they lie on a line."""
    (ta, fa), (tb, fb), (tc, fc) = a, b, c
    below, above = (tb - ta) * (fb - fc), (tb - tc) * (fb - fa)
    return tb if below == above else tb - 0.5 * ((tb - ta) * below - (tb - tc) * above) / (below - above)


def _none() -> np.ndarray:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class LambdaChoice:
    """A chosen λ with everything that led to it. All arrays are NumPy float64, and empty where a rule has none.

    Attributes
    ----------
    lam : float
        The chosen λ, in the units that `deblur.reconstruct` gives.
    rule : str
        The rule that chose it: a name in `RULES`.
    reason : str
        Why, in one sentence.
    remark : str
        What is wrong with the curve ("monotone ...", "flat ..."); empty if nothing is.
    converged : bool
        False if λ cannot be trusted: error dominates the scene there, or the search ended at an end of its range.
        (Only the smallest λ may be right, for data without noise; it is converged if the scene no longer changes.)
    noise : float or None
        Standard deviation of the noise that the rule used (for photon counts the gain: variance over value); None if
        it used none.
    noise_source : str
        "given", "estimated" or "not used".
    lambdas : (m,) array
        The λ evaluated, increasing.
    values : (m,) array
        The rule's function at them. Of "discrepancy" it is, for the linear formula, the root mean square residual
        (to be compared with `noise`), else the logarithm of the mean square residual over the noise's variance.
    residual_norms, solution_norms : (m,) array
        ‖g − H f_λ‖ and ‖f_λ‖ at them, of all frames together. Linear formula only.
    singular_values : (p,) array
        Singular values of H, decreasing; for large images gathered in narrow bins, and from a
        bidiagonalisation its Ritz values. Linear formula only.
    coefficients : (p,) array
        Root mean square of |u_iᵀ g| at them, over the frames and the bin.
    decomposition : str
        Where the singular values come from; empty but for the linear formula.
    degrees : (m,) array
        Degrees of freedom over pixels at `lambdas`; NaN for a rule that does not need them.
    solution : Solution or None
        The last solution of the search, a start for the next; None where it is not one of the whole problem.
    """

    lam: float
    rule: str
    reason: str
    remark: str = ""
    converged: bool = True
    noise: float | None = None
    noise_source: str = "not used"
    lambdas: np.ndarray = field(default_factory=_none)
    values: np.ndarray = field(default_factory=_none)
    residual_norms: np.ndarray = field(default_factory=_none)
    solution_norms: np.ndarray = field(default_factory=_none)
    singular_values: np.ndarray = field(default_factory=_none)
    coefficients: np.ndarray = field(default_factory=_none)
    decomposition: str = ""
    degrees: np.ndarray = field(default_factory=_none)
    solution: Solution | None = None

    def __repr__(self) -> str:
        return f"LambdaChoice(lam={self.lam:.4g}, rule={self.rule!r}, {self.reason})"


def restated(choice: LambdaChoice, problem: Problem, scale: Scale) -> LambdaChoice:
    """The choice for a normalised problem, in the units of `problem`, from which it differs by `scale`."""
    if not scale:
        return choice
    linear = not problem.asked
    of_residual = {"gcv": 2, "upre": 2, "sure": 2, "discrepancy": 1 if linear else 0}.get(choice.rule, 0)
    if problem.fidelity.name == "poisson":  # whose residuals are over the root of the counts
        of_residual //= 2
    value = float(scale.lam(problem, choice.lam))
    return replace(
        choice,
        lam=value,
        reason=f"λ = {value:.3g}; {scale.described(choice.reason)}",
        remark=scale.described(choice.remark),
        noise=None if choice.noise is None else shifted(choice.noise, scale.image),
        lambdas=scale.lam(problem, choice.lambdas),
        values=shifted(choice.values, of_residual * scale.image),
        residual_norms=shifted(choice.residual_norms, scale.image),
        solution_norms=shifted(choice.solution_norms, scale.scene),
        singular_values=shifted(choice.singular_values, scale.psf),
        coefficients=shifted(choice.coefficients, scale.image),
    )

"""The table of rules that choose λ, and the record of a chosen λ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import nearest
from ..normalization import Scale
from ..norms import shifted
from ..problem import Problem, Solution

_IMPULSES = ("l1", "huber")

#: The result of a search: λ, a remark on the rule's curve, and whether λ is reliable.
Search = tuple[float, str, bool]


@dataclass(frozen=True)
class Rule:
    """A row of the table of rules.

    Attributes
    ----------
    name : str
        Name of the rule.
    summary : str
        The property of its λ, for help texts and reasons.
    linear : bool
        Whether it serves the linear formula (`deblur.tuning.spectral`).
    others : bool
        Whether it serves every other problem (`deblur.tuning.sampled`).
    noise : bool
        Whether it needs the noise level, given or estimated.
    robust : bool
        Whether it serves data terms whose residual has outliers, so that its variance means nothing.
    """

    name: str
    summary: str
    linear: bool = True
    others: bool = True
    noise: bool = False
    robust: bool = False

    def refuses(self, problem: Problem) -> str | None:
        """Return None if the rule serves the problem, else the reason in words."""
        if not problem.asked:
            return None if self.linear else "it does not serve the linear formula"
        if not self.others:
            return f"it is for the linear formula, which cannot include {' and '.join(problem.asked)}"
        if problem.fidelity.name in _IMPULSES and not self.robust:
            return (
                f"it uses the variance of the residual, which impulses dominate with data={problem.fidelity.name!r} "
                "(alternatively, mask the impulses and keep data='gaussian')"
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
    """Return the rule that serves the problem, with "auto" replaced by a rule.

    For the linear formula, "auto" is "upre" if the noise is given, else "gcv". For other problems it is "whiteness" for
    the data terms "l1" and "huber"; otherwise it is "sure" if the noise is given, else "gcv".

    Parameters
    ----------
    rule : str
        "auto" or a name in `RULES`.
    problem : Problem, optional
        Without it, only the name is checked, and "auto" is returned as it is.
    noise : float, optional
        The noise level, if it is given.

    Raises
    ------
    ValueError
        For an unknown rule, or one that does not serve the problem; the message lists the rules that do.
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


#: Remark on a λ below which the norm of the scene grows again.
AMPLIFIED = "amplified error dominates the scene there: the model of the blur is wrong"
#: Remark on a λ above the rule's, if the image has a component that cross-validation takes for the scene.
COLOURED = "what lies beyond is noise that lacks fine frequencies, or the model of the blur is wrong"


def explained(lam: float, rule: str, how: str, level: str = "", remark: str = "") -> str:
    """Return the reason for a λ: the rule's property, the noise level used, the evaluation, and the remark."""
    words = f"λ = {lam:.3g} {RULES[rule].summary}" + (f" ({level})" if level else "")
    return "; ".join(filter(None, [f"{words}, {how}", remark]))


def vertex(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """Return the t of the vertex of the parabola through three points (t, value), or the second t for a line."""
    (ta, fa), (tb, fb), (tc, fc) = a, b, c
    below, above = (tb - ta) * (fb - fc), (tb - tc) * (fb - fa)
    return tb if below == above else tb - 0.5 * ((tb - ta) * below - (tb - tc) * above) / (below - above)


def _none() -> np.ndarray:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class LambdaChoice:
    """A chosen λ, with the data that led to it. All arrays are NumPy float64, and empty if the rule has none.

    Attributes
    ----------
    lam : float
        The chosen λ, in the units of `lam` of `deblur.reconstruct`.
    rule : str
        The rule that chose it: a name in `RULES`.
    reason : str
        Reason for λ, in one sentence.
    remark : str
        A defect of the rule's curve ("monotone ...", "flat ..."); empty if there is none.
    converged : bool
        False if λ is unreliable: error dominates the scene there, or the search ended at an end of its range. (At the
        smallest λ it is True if the scene no longer changes, as for data without noise.)
    noise : float or None
        Standard deviation of the noise that the rule used, in units of the image (for photon counts the gain, variance
        over value); None if it used none.
    noise_source : str
        "given", "estimated" or "not used".
    lambdas : (m,) array
        The evaluated λ, increasing.
    values : (m,) array
        The rule's function at `lambdas`. For "discrepancy" it is the root mean square residual, to be compared with
        `noise`, for the linear formula, and otherwise the logarithm of mean square residual over noise variance.
    residual_norms, solution_norms : (m,) array
        ‖g − H f_λ‖ and ‖f_λ‖ at `lambdas`, over all frames. Linear formula only.
    singular_values : (p,) array
        Singular values of H, decreasing; large images have them in narrow bins, and a
        bidiagonalisation gives Ritz values. Linear formula only.
    coefficients : (p,) array
        Root mean square of |u_iᵀ g| at the singular values, over the frames and each bin.
    decomposition : str
        Source of the singular values; empty for other problems than the linear formula.
    degrees : (m,) array
        Degrees of freedom over pixels at `lambdas`; NaN if the rule does not need them.
    solution : Solution or None
        Last solution of the search, a start for the next solve; None if it does not solve the whole problem. The scene
        of a start by ADMM's state is empty.
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
    """Return the choice for a normalised problem in the units of `problem`; they differ by `scale`."""
    if not scale:
        return choice
    linear = not problem.asked
    of_residual = {"gcv": 2, "upre": 2, "sure": 2, "discrepancy": 1 if linear else 0}.get(choice.rule, 0)
    if problem.fidelity.name == "poisson":  # residuals are divided by the root of the counts
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

"""Beyond the linear formula: weights, noise models, edges, bounds and denoisers in one problem.

Every method here minimises

    D(W; H f + b, g) + λ R(L f)   subject to   lo ≤ f ≤ hi

over the scene f, for every boundary of `deblur.blur`:

===================== ==================================================================================
D, ``data``           ``"gaussian"`` ½ Σ w (Hf + b − g)²; ``"poisson"`` Σ w (Hf + b − g log(Hf + b)), up to
                      what g alone decides; ``"l1"`` Σ w |Hf + b − g|; ``"huber"`` the square up to δ, then
                      its tangent
W, ``weights, mask``  one weight ≥ 0 for each pixel of g; 0, or True in the mask, hides the pixel
R∘L, ``method``       a row of `METHODS`
lo, hi, ``bounds``    none, ``"nonnegative"`` or a pair; either end may be infinite
===================== ==================================================================================

With the data term "gaussian" λ is on the scale of the linear formula ‖Hf − g‖² + λ‖f‖²: the ½ of both terms
cancel. `problem.py` states the problem, `terms.py` its terms; each solver is one file with ``refuses(problem)``
and ``solve(problem, g, start)``. `deblur.solve` is the way in.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..backend import Array
    from .problem import Solution, VariationalProblem


@dataclass(frozen=True)
class VariationalMethod:
    """One row of the table of variational methods.

    Attributes
    ----------
    name : str
    summary : str
        One line for help texts.
    module : str
        Where it is solved, below `deblur.variational`.
    default_lam : float or "auto"
        λ where none is given; "auto" tunes it (`deblur.variational.tuning`).
    """

    name: str
    summary: str
    module: str
    default_lam: float | str = "auto"

    @property
    def _solver(self) -> Any:
        return import_module(f"deblur.variational.{self.module}")

    def refuses(self, problem: VariationalProblem) -> str | None:
        """None if the method serves the problem exactly, else the reason in words."""
        return self._solver.refuses(problem)

    def solve(self, problem: VariationalProblem, g: Array, start: Solution | None = None) -> Solution:
        """The minimiser for the frames `g`, (k, c, M, N), begun from an earlier solution if one is given."""
        return self._solver.solve(problem, g, start)


METHODS: dict[str, VariationalMethod] = {
    m.name: m
    for m in (
        VariationalMethod("identity", "λ/2 ‖f‖², with weights, bounds or a noise model", "quadratic"),
        VariationalMethod("gradient", "λ/2 ‖∇f‖², smooth; the default with a mask or weights", "quadratic"),
        VariationalMethod("laplacian", "λ/2 ‖∇²f‖², smoother still", "quadratic"),
        VariationalMethod("tv", "λ Σ|∇f|, total variation: keeps edges; colours share theirs", "admm"),
        VariationalMethod("tv-aniso", "λ Σ|∂₁f| + |∂₂f|, total variation along the axes", "admm"),
        VariationalMethod("tv2", "λ Σ(|∇f| + |∇²f|), edges without staircases", "admm"),
        VariationalMethod(
            "collaborative",
            "tv, then groups of similar patches: the best pictures, for longer",
            "collaborative",
        ),
        VariationalMethod("pnp", "any denoiser as the prior (plug and play)", "admm"),
        VariationalMethod(
            "richardson-lucy", "multiplicative steps for photon counts", "richardson_lucy", 0.0
        ),
    )
}

#: The rules of `deblur.variational.tuning` that choose λ.
RULES = ("gcv", "sure", "discrepancy", "whiteness")

__all__ = ["METHODS", "RULES", "VariationalMethod"]

"""The table of methods, and the choice among them.

`METHODS` is the one list of what deblur can solve with: the tests, the
command line, the comparison and the printed tables iterate over it.
`choose_method` is what ``method="auto"`` does, open to anyone who wants to see
it. A new method is one file below `deblur.solvers` and one row here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from . import costs
from .device import CPU, Device, format_bytes, free_memory
from .errors import InsufficientMemoryError, MethodError
from .operators.blur import Blur
from .operators.operator import Operator
from .problem import FORMULAS, Factor, Problem, Work, confirm
from .solvers.natural import Natural


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    name : str
    summary : str
        One line for help texts.
    module : str
        Where it is implemented, below `deblur.solvers`.
    attribute : str
        The object in that module that offers `refuses`, `work` and `prepare`; empty for the module itself.
    iterative : bool
        Whether it stops at a tolerance.
    linear : bool
        It inverts the linear formula: least squares with ‖f‖² and nothing else.
    stationary : bool
        It needs a blur by one PSF.
    automatic : bool
        ``method="auto"`` may take it.
    varying : bool
        It may take it at least where the PSF varies, for which the cheaper methods have no place.
    penalty : str
        R∘L, see `deblur.problem`.
    fit : str
        The data term where none is named.
    lam : float or None
        λ where none is given; None leaves it to a rule.
    """

    name: str
    summary: str
    module: str
    attribute: str = ""
    iterative: bool = False
    linear: bool = False
    stationary: bool = False
    automatic: bool = False
    varying: bool = False
    penalty: str = "identity"
    fit: str = "gaussian"
    lam: float | None = None

    @property
    def _solver(self) -> Any:
        return _solver(self.module, self.attribute)

    def refuses(self, problem: Problem) -> str | None:
        """None if the method serves the problem, else the reason in words."""
        operator = problem.operator
        if self.linear and problem.asked:
            return f"it inverts the linear formula, which has no place for {' and '.join(problem.asked)}"
        if self.linear:
            problem = problem.plain
        if problem.penalty != self.penalty:
            return f"its penalty is {self.penalty!r}, not {problem.penalty!r}"
        if problem.formula == "hht":
            if not self.linear:
                return 'formula "hht" belongs to the linear formula'
            if operator.scene_shape != operator.image_shape:
                return (
                    f'formula "hht" multiplies (HHᵀ + λI)⁻¹ with Hᵀ, and with boundary {str(operator.boundary)!r} H is '
                    'wide so that their sizes differ; use formula="tikhonov"'
                )
        if problem.inverse and not self.linear:
            return "inverse belongs to the linear formula"
        if self.stationary and operator.stationary is None:
            return "it needs one PSF for the whole picture, and this operator has none"
        return self._solver.refuses(problem)

    def work(self, problem: Problem) -> Work:
        """Operations and bytes, counted."""
        return self._solver.work(problem.plain)

    def prepare(self, problem: Problem, later: bool = False) -> Factor:
        """All that does not depend on the image; `later` leaves it to the caller to `confirm` it."""
        made = self._solver.prepare(problem.plain)
        if not later:
            confirm(made)
        return Natural(made, problem.operator.boundary) if problem.penalty == "natural" else made


@cache
def _solver(module: str, attribute: str) -> Any:
    loaded = import_module(f"deblur.solvers.{module}")
    return loaded.Dense(attribute) if module == "dense" else loaded


def _linear(name: str, summary: str, module: str, attribute: str = "", **more: Any) -> Method:
    return Method(
        name, summary, module, attribute, linear=True, automatic=True, **{"stationary": True, **more}
    )


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        _linear("fft", "one division in frequency; periodic boundary", "fourier"),
        _linear("dct", "one division after a cosine transform; reflect boundary", "cosine"),
        _linear("dst", "sine transform; zero boundary with a 3 x 3 PSF, or antireflect", "sine"),
        _linear("kronecker", "two small decompositions; separable PSF, any boundary", "kronecker"),
        _linear(
            "pcg",
            "preconditioned Krylov iteration with FFT products; any PSF and boundary",
            "pcg",
            iterative=True,
        ),
        _linear(
            "hybrid-lsqr",
            "Golub-Kahan bidiagonalisation; any PSF and boundary",
            "hybrid_lsqr",
            iterative=True,
            stationary=False,
        ),
        _linear("banded", "banded Cholesky; small images, or λ too small to iterate", "banded"),
        _linear("cholesky", "dense Cholesky of HHᵀ + λI", "dense", "cholesky"),
        _linear("gauss-jordan", "dense Gauss-Jordan elimination of HHᵀ + λI", "dense", "gauss-jordan"),
        _linear(
            "gauss-seidel", "accelerated sweeps over dense HHᵀ + λI", "dense", "gauss-seidel", iterative=True
        ),
        _linear("lu", "SciPy's general dense solver, the yardstick", "dense", "lu"),
        _linear("qr", "Householder least squares on [H; √λ I]", "qr"),
        Method(
            "identity",
            "λ/2 ‖f‖², with weights, bounds or a noise model",
            "quadratic",
            iterative=True,
            varying=True,
        ),
        Method(
            "gradient",
            "λ/2 ‖∇f‖², smooth; the default with a mask or weights",
            "quadratic",
            iterative=True,
            automatic=True,
            penalty="gradient",
        ),
        Method("laplacian", "λ/2 ‖∇²f‖², smoother still", "quadratic", iterative=True, penalty="laplacian"),
        Method(
            "tv",
            "λ Σ|∇f|, total variation: keeps edges; colours share theirs",
            "admm",
            iterative=True,
            penalty="tv",
        ),
        Method(
            "tv-aniso",
            "λ Σ|∂₁f| + |∂₂f|, total variation along the axes",
            "admm",
            iterative=True,
            penalty="tv-aniso",
        ),
        Method("tv2", "λ Σ(|∇f| + |∇²f|), edges without staircases", "admm", iterative=True, penalty="tv2"),
        Method(
            "collaborative",
            "tv, then groups of similar patches: the best pictures, for longer",
            "collaborative",
            iterative=True,
            penalty="patches",
        ),
        Method(
            "pnp",
            "any denoiser as the prior (plug and play)",
            "plug_and_play",
            iterative=True,
            automatic=True,
            penalty="denoiser",
        ),
        Method(
            "richardson-lucy",
            "multiplicative steps for photon counts",
            "richardson_lucy",
            iterative=True,
            penalty="tv",
            fit="poisson",
            lam=0.0,
        ),
    )
}


@dataclass(frozen=True)
class Choice:
    """What `choose_method` decided, and everything it looked at.

    Attributes
    ----------
    method : str
        The method taken.
    reason : str
        One sentence that says why.
    seconds : dict of str to float
        Predicted seconds of every method that could serve, cheapest first.
    refused : dict of str to str
        Why each of the others could not.
    """

    method: str
    reason: str
    seconds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method}: {self.reason}"


def check_method(method: str) -> str:
    """`method` itself, or ValueError listing the ones known."""
    if method != "auto" and method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose 'auto' or one of {', '.join(METHODS)}")
    return method


def check_formula(formula: str) -> str:
    """`formula` itself, or ValueError listing the ones known."""
    if formula not in FORMULAS:
        raise ValueError(f"unknown formula {formula!r}; choose one of {', '.join(FORMULAS)}")
    return formula


#: Pixels that the linear formula is solved for at a time: no more than that, or one frame, is in memory.
TOGETHER, TOGETHER_GPU = 1 << 20, 1 << 26


def call_seconds(
    name: str, problem: Problem, lam: float | str = 0.0, read: bool = False, loading: bool = True
) -> float:
    """Seconds that a whole call takes by the cost model.

    Parameters
    ----------
    name : str
        A row of `METHODS` that serves the problem.
    problem : Problem
    lam : float or str
        λ as it was asked for: what a rule takes to choose it counts.
    read : bool
        The boundary is read off the picture.
    loading : bool
        Importing what nobody has used yet counts.
    """
    row = METHODS[name]
    seconds = costs.predicted_seconds(name, row.work(problem), problem)
    if loading:
        seconds += costs.loading_seconds(name, lam, row.linear, problem.device)
    if isinstance(lam, str) and problem.asked and problem.penalty != "denoiser":
        pilot = replace(problem, penalty="tv") if problem.penalty == "patches" else problem
        by = "tv" if problem.penalty == "patches" else name
        seconds += costs.searched(pilot, METHODS[by].work(pilot), by)
    return seconds + costs.beside(problem, lam, read)


def solve_seconds(name: str, problem: Problem) -> float:
    """The part of `call_seconds` that is left once all is set up."""
    work = replace(METHODS[name].work(problem), setup=0.0)
    return costs.predicted_seconds(name, work, problem) + costs.beside(problem, 0.0, False)


#: The methods that restore a photograph better than the linear formula, cheapest first.
BETTER = ("tv", "collaborative")


def better(problem: Problem, lam: float | str = "auto", read: bool = True) -> dict[str, float]:
    """The methods of `BETTER` that serve the problem, with the seconds that each takes by the cost model.

    The parameters are those of `call_seconds`.
    """
    stated = {
        name: replace(problem, penalty=METHODS[name].penalty, formula="tikhonov", inverse=False)
        for name in BETTER
    }
    return {
        name: call_seconds(name, other, lam, read)
        for name, other in stated.items()
        if METHODS[name].refuses(other) is None
    }


def named(
    method: str,
    problem: Problem,
    reason: str = "as asked for",
    lam: float | str = 0.0,
    read: bool = False,
    loading: bool = True,
) -> Choice:
    """The choice of a method asked for by name, or MethodError if it cannot serve; the others are `call_seconds`'s."""
    refusal = METHODS[method].refuses(problem)
    if refusal is not None:
        raise MethodError(f"method {method!r} cannot serve here: {refusal}")
    return Choice(method, reason, {method: call_seconds(method, problem, lam, read, loading)})


def choose(
    problem: Problem,
    memory: int | None = None,
    lam: float | str = 0.0,
    read: bool = False,
    loading: bool = True,
) -> Choice:
    """`choose_method` for a problem already put together: among the rows that have its penalty.

    `lam`, `read` and `loading` say what is a part of the seconds predicted, as for `call_seconds`.
    """
    free = free_memory(problem.xp) if memory is None else memory
    short: list[float] = []
    most = TOGETHER if problem.device.gpu is None else TOGETHER_GPU
    some = max(1, min(problem.frames, most // math.prod(problem.operator.image_shape)))
    beside = costs.beside(problem, lam, read)
    if loading:
        beside += costs.loading_seconds("", lam, True, problem.device)
    seconds: dict[str, float] = {}
    refused: dict[str, str] = {}
    varying = problem.operator.stationary is None
    rows = [
        m
        for m in METHODS.values()
        if m.penalty == problem.plain.penalty and (m.automatic or (varying and m.varying))
    ]
    for method in rows:
        reason = method.refuses(problem)
        if reason is None and len(rows) > 1:
            work = method.work(problem)
            needed = work.bytes
            if method.linear and some < problem.frames:
                needed = method.work(replace(problem, frames=some)).bytes
            if needed > free:
                reason = f"it takes {format_bytes(needed)} and {format_bytes(free)} are free"
                short.append(needed)
            else:
                seconds[method.name] = costs.predicted_seconds(method.name, work, problem) + beside
        elif reason is None:
            why = f"the method for the penalty {problem.penalty!r}"
            return named(method.name, problem, why, lam, read, loading)
        if reason is not None:
            refused[method.name] = reason
    if not seconds and short:
        least = min(short)
        fits = ["tiles: deblur.tiled, or on the command line a .zarr store as IN and OUT"]
        if problem.dtype == np.float64 and least / 2 <= free:
            fits.insert(0, "dtype='float32', with half of it")
        raise InsufficientMemoryError(
            f"the picture does not fit: {format_bytes(least)} are needed and {format_bytes(free)} are free. "
            f"What would: {'; '.join(fits)}",
            int(least),
            free,
        )
    if not seconds:
        raise MethodError(
            "no method can serve this problem: "
            + "; ".join(f"{name}: {why}" for name, why in refused.items())
        )
    seconds = dict(sorted(seconds.items(), key=lambda item: item[1]))
    best, *others = seconds
    operator = problem.operator
    reason = (
        f"the cheapest exact method for a {' x '.join(map(str, operator.image_shape))} image with boundary "
        f"{str(operator.boundary)!r}, {_psf_in_words(operator)}, λ = {problem.lam:g} and {problem.dtype.name}: "
        f"predicted {seconds_in_words(seconds[best])}"
    )
    if others:
        reason += f"; next would be {others[0]} with {seconds_in_words(seconds[others[0]])}"
    return Choice(best, reason, seconds, refused)


def seconds_in_words(s: float) -> str:
    """To two digits: 0.41 ms, 98 ms, 0.26 s, 1500 s."""
    amount, unit = (s, "s") if s >= 0.0995 else (1e3 * s, "ms")
    return f"{float(f'{amount:.2g}'):.15g} {unit}"


def _psf_in_words(operator: Operator) -> str:
    blur = operator.stationary
    if blur is None:
        return "a PSF that varies"
    m, n = blur.psf.shape
    kind = "a separable" if blur.factors is not None else "a non-separable"
    symmetry = "point-symmetric" if blur.point_symmetric else "asymmetric"
    return f"{kind}, {symmetry} {m} x {n} PSF"


def choose_method(
    blur: Blur,
    lam: float | str,
    *,
    formula: str = "tikhonov",
    dtype: Any = np.float64,
    frames: int = 1,
    device: str | int | Device = CPU,
    memory: int | None = None,
) -> Choice:
    """Which method ``method="auto"`` would take, and why.

    It asks every linear row of `METHODS` whether it serves the problem exactly,
    counts the operations and bytes of those that do, and takes the one with
    the smallest predicted time. Nothing is computed.

    Parameters
    ----------
    blur : Blur
        PSF, image size and boundary.
    lam : float or str
        The regularisation parameter λ, on which iterations depend; or "auto" or the rule that would choose it, which
        is a part of the seconds: what is solved is then reckoned for λ as usual.
    formula : {"tikhonov", "hht"}
    dtype : dtype
        float32 or float64.
    frames : int
        Images to be solved for together.
    device : str, int or Device
        "cpu" (default), "gpu" or a GPU's number.
    memory : int, optional
        Bytes that may be used; by default what is free.

    Returns
    -------
    Choice
        ``choice.method``, ``choice.reason``, the predicted ``seconds`` of all
        candidates and why the others were ``refused``.

    Raises
    ------
    MethodError
        If no method can serve, with every method's reason.

    Examples
    --------
    >>> import deblur
    >>> blur = deblur.Blur(deblur.psf.gaussian(9, 1.5), (256, 256), "periodic")
    >>> deblur.choose_method(blur, 1e-3).method
    'fft'
    """
    problem = Problem(
        blur,
        costs.USUAL * blur.gain**2 if isinstance(lam, str) else lam,
        formula=check_formula(formula),
        dtype=np.dtype(dtype),
        device=Device.named(device),
        frames=frames,
    )
    return choose(problem, memory, lam)

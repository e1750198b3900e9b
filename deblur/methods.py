"""The table of methods, and the choice among them.

`METHODS` is the one list of what deblur can solve with: the tests, the
command line and the printed tables iterate over it. `choose_method` is what
``method="auto"`` does, open to anyone who wants to see it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .backend import format_bytes, free_memory
from .blur import Blur
from .errors import MethodError
from .solvers.base import FORMULAS, Factor, Problem, Work


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
        The object in that module that offers `refuses`, `work` and `prepare`;
        empty for the module itself.
    iterative : bool
        Whether it stops at a tolerance.
    """

    name: str
    summary: str
    module: str
    attribute: str = ""
    iterative: bool = False

    @property
    def _solver(self) -> Any:
        return _solver(self.module, self.attribute)

    def refuses(self, problem: Problem) -> str | None:
        """None if the method serves the problem exactly, else the reason in words."""
        return self._solver.refuses(problem)

    def work(self, problem: Problem) -> Work:
        """Operations and bytes, counted."""
        return self._solver.work(problem)

    def prepare(self, problem: Problem) -> Factor:
        """All that does not depend on the image."""
        return self._solver.prepare(problem)


@cache
def _solver(module: str, attribute: str) -> Any:
    loaded = import_module(f"deblur.solvers.{module}")
    return loaded.Dense(attribute) if module == "dense" else loaded


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("fft", "one division in frequency; periodic boundary", "fourier"),
        Method("dct", "one division after a cosine transform; reflect boundary", "cosine"),
        Method("dst", "sine transform; zero boundary with a 3 x 3 PSF, or antireflect", "sine"),
        Method("kronecker", "two small decompositions; separable PSF, any boundary", "kronecker"),
        Method(
            "pcg", "preconditioned Krylov iteration with FFT products; any PSF and boundary", "pcg", "", True
        ),
        Method("hybrid-lsqr", "Golub-Kahan bidiagonalisation; any PSF and boundary", "hybrid_lsqr", "", True),
        Method("banded", "banded Cholesky; small images, or λ too small to iterate", "banded"),
        Method("cholesky", "dense Cholesky of HHᵀ + λI", "dense", "cholesky"),
        Method("gauss-jordan", "dense Gauss-Jordan elimination of HHᵀ + λI", "dense", "gauss-jordan"),
        Method("gauss-seidel", "accelerated sweeps over dense HHᵀ + λI", "dense", "gauss-seidel", True),
        Method("lu", "SciPy's general dense solver, the yardstick", "dense", "lu"),
        Method("qr", "Householder least squares on [H; √λ I]", "qr"),
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


@cache
def _rates() -> dict[str, dict[str, dict[str, float]]]:
    """Measured seconds per operation: {"cpu" | "gpu": {method: {overhead, setup, solve}}}."""
    return json.loads((Path(__file__).parent / "costs.json").read_text())["rates"]


def predicted_seconds(name: str, work: Work, problem: Problem) -> float:
    """Seconds that `work` takes by the measured rates of ``deblur/costs.json``.

    The rates are figures of one machine. They rank methods; they are no promise.
    """
    place = "cpu" if problem.xp is np else "gpu"
    rate = _rates()[place].get(name) or _rates()["cpu"][name]
    # float32 halves the bytes and doubles the lanes of a vector unit.
    speed = 0.5 if problem.dtype == np.float32 else 1.0
    return rate["overhead"] + speed * (
        rate["setup"] * work.setup + rate["solve"] * work.solve * problem.frames
    )


def choose(problem: Problem, memory: int | None = None) -> Choice:
    """`choose_method` for a problem already put together."""
    free = free_memory(problem.xp) if memory is None else memory
    seconds: dict[str, float] = {}
    refused: dict[str, str] = {}
    for name, method in METHODS.items():
        reason = method.refuses(problem)
        if reason is None:
            work = method.work(problem)
            if work.bytes > free:
                reason = f"it takes {format_bytes(work.bytes)} and {format_bytes(free)} are free"
            else:
                seconds[name] = predicted_seconds(name, work, problem)
        if reason is not None:
            refused[name] = reason
    if not seconds:
        raise MethodError(
            "no method can serve this problem: "
            + "; ".join(f"{name}: {why}" for name, why in refused.items())
        )
    seconds = dict(sorted(seconds.items(), key=lambda item: item[1]))
    best, *others = seconds
    blur = problem.blur
    reason = (
        f"the cheapest exact method for a {blur.image_shape[0]} x {blur.image_shape[1]} image with boundary "
        f"{blur.boundary!r}, {_psf_in_words(blur)}, λ = {problem.lam:g} and {problem.dtype.name}: "
        f"predicted {_seconds_in_words(seconds[best])}"
    )
    if others:
        reason += f"; next would be {others[0]} with {_seconds_in_words(seconds[others[0]])}"
    return Choice(best, reason, seconds, refused)


def _seconds_in_words(s: float) -> str:
    return f"{s:.2g} s" if s >= 1 else f"{s * 1e3:.2g} ms"


def _psf_in_words(blur: Blur) -> str:
    m, n = blur.psf.shape
    kind = "a separable" if blur.factors is not None else "a non-separable"
    symmetry = "point-symmetric" if blur.point_symmetric else "asymmetric"
    return f"{kind}, {symmetry} {m} x {n} PSF"


def choose_method(
    blur: Blur,
    lam: float,
    *,
    formula: str = "tikhonov",
    dtype: Any = np.float64,
    frames: int = 1,
    xp: ModuleType = np,
    memory: int | None = None,
) -> Choice:
    """Which method ``method="auto"`` would take, and why.

    It asks every row of `METHODS` whether it serves the problem exactly,
    counts the operations and bytes of those that do, and takes the one with
    the smallest predicted time. Nothing is computed.

    Parameters
    ----------
    blur : Blur
        PSF, image size and boundary.
    lam : float
        The regularisation parameter λ; iterations depend on it.
    formula : {"tikhonov", "hht"}
    dtype : dtype
        float32 or float64.
    frames : int
        Images to be solved for together.
    xp : module
        numpy (default) or cupy.
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
    problem = Problem(blur, lam, check_formula(formula), np.dtype(dtype), xp, frames)
    return choose(problem, memory)

"""deblur's linear methods: every row of `deblur.methods.METHODS`, and what it takes by itself."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from ...blur import Blur
from ...methods import METHODS, choose
from ...pipeline import Deblurrer
from ...regularization import LambdaChoice, choose_lambda, prior_scene
from ...solvers.base import Problem
from ..cases import Task
from .base import Answer, Contestant, Setting, Solver, Watch

#: The boundary under which a method that serves only one is shown.
_OWN_BOUNDARY = {"fft": "periodic", "dct": "reflect", "dst": "antireflect"}


def contestants() -> list[Contestant]:
    """deblur's choice and each of its methods; one oracle serves all, as they solve the same problem."""
    auto = Linear("auto", "deblur", "the cheapest exact method, as deblur chooses it", "λ", (1e-6, 1.0))
    rows = [
        Linear(name, "deblur", method.summary, "λ", own_boundary=_OWN_BOUNDARY.get(name))
        for name, method in METHODS.items()
    ]
    return [auto, *rows]


class Linear(Contestant):
    """The minimiser of ‖Hf − g‖² + λ‖f − f̄‖², by one row of METHODS."""

    def refuses(self, task: Task) -> str | None:
        if self.name == "auto":
            return None
        return METHODS[self.name].refuses(_problem(task, _lam(task)))

    def predicted(self, task: Task, value: float | None) -> float | None:
        """Seconds by the cost model; a method that does not fit memory raises with the figures."""
        if self.name == "auto":
            return None
        choice = choose(_problem(task, 0.0 if value is None else value))
        if self.name in choice.refused:
            raise MemoryError(choice.refused[self.name])
        return choice.seconds[self.name]

    def choose(self, task: Task) -> Setting:
        lam = task.lam
        if not isinstance(lam, str):
            return Setting(lam, "given", "as given")
        key = ("λ", task.boundary)
        if key not in task.shared:
            start = time.perf_counter()
            blur, g = Blur(task.psf, task.shape, task.boundary), _frames(task.blurred)
            if _prior(task) == "smooth":
                g = g - blur.forward(prior_scene(blur, g))
            choice = choose_lambda(blur, g, lam)
            seconds = time.perf_counter() - start
            reason = f"{choice.reason}; shared by deblur's linear methods"
            task.shared[key] = Setting(float(choice.lam), "rule", reason, seconds, l_curve(choice))
        return task.shared[key]

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        assert value is not None
        deblurrer = Deblurrer(
            task.psf, task.shape, value, method=self.name, boundary=task.boundary, prior=_prior(task), callback=watch
        )  # fmt: skip
        deblurrer._prepare(_frames(task.blurred))  # λ is a number, so only the number of frames is read

        def solver(g: np.ndarray) -> Answer:
            result = deblurrer.solve(g, channel_axis=-1 if task.colour else None)
            notes = [result.note] if result.note else []
            if self.name == "auto":
                notes.insert(0, f"took {result.method}")
            return Answer(result.image, result.iterations, result.residual, note="; ".join(notes))

        return solver


def _prior(task: Task) -> str:
    """What pipeline's prior="auto" is, which cannot tell once λ is a number."""
    return "smooth" if task.boundary == "unknown" and isinstance(task.lam, str) else "zero"


def _lam(task: Task) -> float:
    """λ where it is known; a refusal does not hang on its value, only on its being zero."""
    return 1e-3 if isinstance(task.lam, str) else task.lam


def _problem(task: Task, lam: float) -> Problem:
    blur = task.shared.setdefault(("blur", task.boundary), Blur(task.psf, task.shape, task.boundary))
    return replace(Problem(blur, lam), frames=3 if task.colour else 1)


def _frames(g: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(g, -1, 0)) if g.ndim == 3 else g[None]


def l_curve(choice: LambdaChoice | None) -> dict[str, Any] | None:
    """The L-curve of a chosen λ as plain numbers, for the report."""
    if choice is None:
        return None
    some = (choice.residual_norms > 0) & (choice.solution_norms > 0)
    lambdas = choice.lambdas[some]
    if len(lambdas) < 2:
        return None
    return {
        "x": [float(f"{v:.4g}") for v in choice.residual_norms[some]],
        "y": [float(f"{v:.4g}") for v in choice.solution_norms[some]],
        "lambdas": [float(f"{v:.4g}") for v in lambdas],
        "at": int(np.argmin(np.abs(np.log(lambdas / choice.lam)))),
        "lam": float(choice.lam),
    }

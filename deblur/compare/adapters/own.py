"""deblur's own methods: every row of its table, called as anyone calls it, and what it takes by itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import MethodError
from ...methods import METHODS, choose_method
from ...operators.blur import Blur
from ...pipeline import Deblurrer
from ...solvers.start import prior_scene
from ...tuning import LambdaChoice, choose_lambda
from ..cases import Task
from .base import Answer, Contestant, Setting, Solver, Watch, reason_alone

#: The boundary under which a method that serves only one is shown.
_OWN_BOUNDARY = {"fft": "periodic", "dct": "reflect", "dst": "antireflect"}
#: Where the oracle looks for λ: of the linear formula, which one row does for all, and of the others.
_LINEAR, _SEARCH = (1e-6, 1.0), (1e-5, 1e-1)


def contestants() -> list[Contestant]:
    """deblur's choice, each method by itself, plug and play with two denoisers, and tv that looks for bad pixels."""
    linear: dict[str, Any] = {"family": "deblur", "parameter": "λ", "linear": True}
    tuned: dict[str, Any] = {"family": "deblur", "parameter": "λ", "search": _SEARCH}
    rows = [Own("auto", summary="the cheapest exact method, as deblur chooses it", search=_LINEAR, **linear)]
    for name, row in METHODS.items():
        if name == "pnp":
            nlm, bm3d = ({"method": name, "denoiser": denoiser} for denoiser in ("nlm", "bm3d"))
            package: dict[str, Any] = {"module": "bm3d", "install": "pip install bm3d"}
            rows.append(Own(name, summary="non-local means as the prior", extra=nlm, **tuned))
            rows.append(Own("pnp-bm3d", summary="BM3D as the prior", extra=bm3d, **package, **tuned))
        elif row.lam is not None:
            rows.append(Untuned(name, "deblur", row.summary))
        elif row.linear:
            rows.append(Own(name, summary=row.summary, own_boundary=_OWN_BOUNDARY.get(name), **linear))
        else:
            rows.append(Own(name, summary=row.summary, **tuned))
    masked = {"method": "tv", "mask": "auto"}
    what = "total variation without the pixels that a detector calls bad"
    return [*rows, Own("tv-masked", summary=what, extra=masked, **tuned)]


@dataclass(frozen=True)
class Own(Contestant):
    """One `deblur.Deblurrer`; `extra` holds what it is given beside the method's name.

    Attributes
    ----------
    linear : bool
        Whether it minimises ‖Hf − g‖² + λ‖f − f̄‖², as all methods do that share one λ and one cost model.
    """

    linear: bool = False

    def refuses(self, task: Task) -> str | None:
        # A refusal does not hang on the value of λ, only on its being zero.
        try:
            self._deblurrer(task, 1e-3 if isinstance(task.lam, str) else task.lam)
        except MethodError as error:
            return reason_alone(error)
        return None

    def predicted(self, task: Task, value: float | None) -> float | None:
        """Seconds by the cost model; a method that does not fit memory raises with the figures."""
        if not self.linear or self.name == "auto":
            return None
        choice = choose_method(_blur(task), value or 0.0, frames=3 if task.colour else 1)
        if self.name in choice.refused:
            raise MemoryError(choice.refused[self.name])
        return choice.seconds[self.name]

    def choose(self, task: Task) -> Setting:
        if not isinstance(task.lam, str):
            return Setting(task.lam, "given", "as given")
        if not self.linear:
            # λ's own rule for these terms; what the user asked for is a rule of the linear formula.
            result = self._deblurrer(task, "auto").solve(task.blurred, channel_axis=_channel_axis(task))
            return Setting(float(result.lam), "rule", result.lam_reason, result.setup_seconds)
        key = ("λ", task.boundary)
        if key not in task.shared:
            task.shared[key] = _shared_lambda(task, task.lam)
        return task.shared[key]

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        deblurrer = self._deblurrer(task, value or 0.0, watch)
        if self.linear:
            deblurrer.tune(task.blurred, channel_axis=_channel_axis(task))  # λ is a number: only the set-up

        def solver(g: np.ndarray) -> Answer:
            result = deblurrer.solve(g, channel_axis=_channel_axis(task))
            notes = [f"took {result.method}"] if self.name == "auto" else []
            notes += [result.why] if result.why else []
            # Only the equations of the linear formula have a residual that all methods share.
            residual = result.residual if self.linear else None
            return Answer(result.image, result.iterations, residual, note="; ".join(notes))

        return solver

    def _deblurrer(self, task: Task, lam: float | str, watch: Watch | None = None) -> Deblurrer:
        arguments: dict[str, Any] = {"method": self.name, **self.extra}
        return Deblurrer(task.psf, task.shape, lam, boundary=task.boundary, callback=watch, **arguments)


class Untuned(Own):
    """Richardson-Lucy, without a penalty: stopping early is what regularises, and deblur decides when."""

    def choose(self, task: Task) -> Setting:
        return Setting(None, "automatic", "stopped when its residual looks like noise")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        solver = super().prepare(task, value, watch)
        return lambda g: solver(np.maximum(g, 0))  # it counts photons, and noise may fall below none


def _shared_lambda(task: Task, rule: str) -> Setting:
    start = time.perf_counter()
    blur, g = _blur(task), _frames(task.blurred)
    if blur.boundary.open:  # as the prior "auto" has it
        g = g - blur.forward(prior_scene(blur, g))
    choice = choose_lambda(blur, g, rule)
    seconds = time.perf_counter() - start
    reason = f"{choice.reason}; shared by deblur's linear methods"
    return Setting(float(choice.lam), "rule", reason, seconds, _l_curve(choice))


def _blur(task: Task) -> Blur:
    return Blur(task.psf, task.shape, task.boundary)


def _channel_axis(task: Task) -> int | None:
    return -1 if task.colour else None


def _frames(g: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(g, -1, 0)) if g.ndim == 3 else g[None]


def _l_curve(choice: LambdaChoice) -> dict[str, Any] | None:
    """The L-curve of a chosen λ as plain numbers, for the page."""
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

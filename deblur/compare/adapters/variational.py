"""deblur's variational methods: every row of `deblur.variational.METHODS`, with no parameter given."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...pipeline import Deblurrer, Result
from ...variational import METHODS
from ..cases import Task
from .base import Answer, Contestant, Setting, Solver, Watch

_SEARCH = (1e-5, 1e-1)


def contestants() -> list[Contestant]:
    """One row a method, those that need a denoiser with one, and total variation that looks for bad pixels."""
    rows: list[Contestant] = []
    for name, method in METHODS.items():
        if name == "richardson-lucy":
            rows.append(RichardsonLucy(name, "deblur", method.summary))
        elif name == "pnp":
            nlm = {"method": name, "denoiser": "nlm"}
            bm3d = {"method": name, "denoiser": "bm3d"}
            rows.append(Variational(name, "deblur", "non-local means as the prior", "λ", _SEARCH, extra=nlm))
            rows.append(
                Variational(
                    "pnp-bm3d", "deblur", "BM3D as the prior", "λ", _SEARCH, module="bm3d", install="pip install bm3d",
                    extra=bm3d,
                )
            )  # fmt: skip
        else:
            rows.append(Variational(name, "deblur", method.summary, "λ", _SEARCH))
    masked = {"method": "tv", "mask": "auto"}
    what = "total variation without the pixels that a detector calls bad"
    return [*rows, Variational("tv-masked", "deblur", what, "λ", _SEARCH, extra=masked)]


class Variational(Contestant):
    """D(Hf, g) + λ R(f), by `deblur.Deblurrer` as anyone calls it."""

    def _solve(self, task: Task, g: np.ndarray, lam: float | str, watch: Watch | None = None) -> Result:
        arguments: dict[str, Any] = {"method": self.name, **self.extra}
        deblurrer = Deblurrer(task.psf, task.shape, lam, boundary=task.boundary, callback=watch, **arguments)
        return deblurrer.solve(g, channel_axis=-1 if task.colour else None)

    def choose(self, task: Task) -> Setting:
        if not isinstance(task.lam, str):
            return Setting(task.lam, "given", "as given")
        # λ's own rule for these terms; what the user asked for is a rule of the linear formula.
        result = self._solve(task, task.blurred, "auto")
        return Setting(float(result.lam), "rule", result.lam_reason, result.setup_seconds)

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        def solver(g: np.ndarray) -> Answer:
            result = self._solve(task, g, 0.0 if value is None else value, watch)
            return Answer(result.image, result.iterations, note=result.note)

        return solver


class RichardsonLucy(Variational):
    """Without a penalty: stopping early is what regularises, and deblur decides when."""

    def choose(self, task: Task) -> Setting:
        return Setting(None, "automatic", "stopped when its residual looks like noise")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        solver = super().prepare(task, value, watch)
        return lambda g: solver(np.maximum(g, 0))  # it counts photons, and noise may fall below none

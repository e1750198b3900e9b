"""deblur's variational methods: every row of `deblur.variational.METHODS`, with no parameter given."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ...pipeline import Result, solve
from ..cases import Task
from .base import Answer, Contestant, Setting, Solver, Watch


def contestants() -> list[Contestant]:
    """One row a method, and total variation that looks for bad pixels itself."""
    try:
        from ...variational import METHODS
    except ImportError:
        return []
    search = (1e-5, 1e-1)
    rows = [Variational(name, "deblur", method.summary, "λ", search) for name, method in METHODS.items()]
    masked = Variational(
        "tv, mask auto", "deblur", "total variation without the pixels that its detector calls bad", "λ", search,
        extra={"method": "tv", "mask": "auto"},
    )  # fmt: skip
    return [*rows, masked]


class Variational(Contestant):
    """D(Hf, g) + λ R(f), by `deblur.solve` as anyone calls it."""

    def _solve(self, task: Task, lam: float | str, watch: Watch | None = None) -> Result:
        arguments: dict[str, Any] = {"method": self.name, **self.extra}
        return solve(
            task.blurred, task.psf, lam, boundary=task.boundary, callback=watch,
            channel_axis=-1 if task.colour else None, **arguments,
        )  # fmt: skip

    def choose(self, task: Task) -> Setting:
        if not isinstance(task.lam, str):
            return Setting(task.lam, "given", "as given")
        start = time.perf_counter()
        result = self._solve(task, "auto")
        return Setting(float(result.lam), "rule", result.lam_reason, time.perf_counter() - start)

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        assert value is not None

        def solver(g: np.ndarray) -> Answer:
            result = self._solve(task, value, watch)
            return Answer(result.image, result.iterations, note=result.note)

        return solver

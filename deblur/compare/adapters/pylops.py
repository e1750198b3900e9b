"""PyLops: LSQR on its `Convolve2D`, regularised by stopping early."""

from __future__ import annotations

import numpy as np

from ..cases import Task
from .base import Answer, Contestant, Setting, Solver, Watch, by_channel, centred


def contestants() -> list[Contestant]:
    return [
        LSQR(
            "pylops-lsqr", "PyLops", "LSQR stopped early; black beyond the frame", "iterations", (1, 200), True,
            "zero", "pylops", "pip install pylops",
        )
    ]  # fmt: skip


class LSQR(Contestant):
    def choose(self, task: Task) -> Setting:
        return Setting(
            10, "default", "PyLops's own number of iterations; stopping is its only regularisation"
        )

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        from pylops.optimization.basic import lsqr
        from pylops.signalprocessing import Convolve2D

        psf, count = centred(task.psf), int(value or 1)
        offset = [n // 2 for n in psf.shape]
        operator = Convolve2D(task.shape, psf, offset=offset, dtype="float64")

        def solver(g: np.ndarray) -> Answer:
            def one(channel: np.ndarray) -> np.ndarray:
                x, *_ = lsqr(operator, channel.ravel(), niter=count, calc_var=False)
                return np.asarray(x).reshape(channel.shape)

            return Answer(by_channel(one, g), count)

        return solver

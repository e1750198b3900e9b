"""TRIPs-Py: hybrid LSQR with its own generalised cross-validation, on deblur's map of the blur."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import aslinearoperator

from ...operators.blur import Blur
from ..cases import Task
from .base import Answer, Contestant, Setting, Solver, Watch, by_channel


def contestants() -> list[Contestant]:
    return [
        HybridLSQR(
            "trips-hybrid-lsqr", "TRIPs-Py", "Golub-Kahan with λ by its own GCV", "iterations", (2, 100), True,
            None, "trips", "pip install git+https://github.com/trips-py/trips-py",
        )
    ]  # fmt: skip


class HybridLSQR(Contestant):
    def choose(self, task: Task) -> Setting:
        return Setting(20, "default", "20 iterations, each with λ by its own GCV")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        from trips.solvers.Hybrid_LSQR import hybrid_lsqr

        blur = Blur(task.psf, task.shape, task.boundary)
        operator, count = aslinearoperator(blur), max(2, int(value or 2))

        def solver(g: np.ndarray) -> Answer:
            def one(channel: np.ndarray) -> np.ndarray:
                x = np.asarray(hybrid_lsqr(operator, channel.reshape(-1, 1), count, regparam="gcv")[0])
                return x.reshape(blur.scene_shape)[blur.crop]

            return Answer(by_channel(one, g), count)

        return solver

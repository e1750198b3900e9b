"""SCICO: total variation by ADMM with a 'valid' convolution, which assumes nothing beyond the frame."""

from __future__ import annotations

import numpy as np

from ..cases import Task
from .base import Answer, Contestant, Setting, Solver, Watch, by_channel


def contestants() -> list[Contestant]:
    return [
        TotalVariation(
            "scico-tv", "SCICO", "isotropic total variation by ADMM; nothing assumed beyond the frame", "λ",
            (1e-4, 1e-1), False, "unknown", "scico", "pip install scico",
        )
    ]  # fmt: skip


class TotalVariation(Contestant):
    def choose(self, task: Task) -> Setting:
        return Setting(2e-3, "default", "a fixed value for pictures on [0, 1]; SCICO has no rule")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        import scico.numpy as snp
        from scico import functional, linop, loss
        from scico.optimize.admm import ADMM, LinearSubproblemSolver

        assert value is not None
        # With mode 'valid' the kernel's centre does not matter: the frame is cut out of the larger scene.
        m, n = task.psf.shape
        scene = (task.shape[0] + m - 1, task.shape[1] + n - 1)
        top, left = m - 1 - (m - 1) // 2, n - 1 - (n - 1) // 2
        kernel = snp.array(task.psf.astype(np.float32))
        blur = linop.Convolve(h=kernel, input_shape=scene, input_dtype=np.float32, mode="valid")
        gradient = linop.FiniteDifference(input_shape=scene, input_dtype=np.float32, append=0)

        def solver(g: np.ndarray) -> Answer:
            def one(channel: np.ndarray) -> np.ndarray:
                y = snp.array(channel.astype(np.float32))
                start = snp.pad(y, [(top, m - 1 - top), (left, n - 1 - left)], mode="edge")
                admm = ADMM(
                    f=loss.SquaredL2Loss(y=y, A=blur),
                    g_list=[value * functional.L21Norm()],
                    C_list=[gradient],
                    rho_list=[10 * value],
                    x0=start,
                    maxiter=100,
                    subproblem_solver=LinearSubproblemSolver(cg_kwargs={"tol": 1e-4, "maxiter": 25}),
                )
                x = np.asarray(admm.solve(), dtype=np.float64)
                return x[top : top + channel.shape[0], left : left + channel.shape[1]]

            return Answer(by_channel(one, g), 100)

        return solver

"""SCICO: total variation by ADMM with a 'valid' convolution, which assumes nothing beyond the frame."""

from __future__ import annotations

import numpy as np

from ..cases import Task
from .base import Channel, Entrant, Setting


def entrants() -> list[Entrant]:
    """Return total variation at a fixed λ."""
    reason = "a fixed value for pictures on [0, 1]; SCICO has no rule"
    return [
        Entrant(
            "scico-tv", "SCICO", "isotropic total variation by ADMM; nothing assumed beyond the frame", _tv,
            Setting(2e-3, reason=reason), parameter="λ", search=(1e-4, 1e-1), own_boundary="unknown", module="scico",
            install="pip install scico",
        )
    ]  # fmt: skip


def _tv(task: Task, value: float | None) -> Channel:
    import scico.numpy as snp
    from scico import functional, linop, loss
    from scico.optimize.admm import ADMM, LinearSubproblemSolver

    assert value is not None
    # With mode 'valid' the centre of the kernel does not matter, since the frame is cut out of the larger scene.
    m, n = task.psf.shape
    scene = (task.shape[0] + m - 1, task.shape[1] + n - 1)
    top, left = m - 1 - (m - 1) // 2, n - 1 - (n - 1) // 2
    kernel = snp.array(task.psf.astype(np.float32))
    blur = linop.Convolve(h=kernel, input_shape=scene, input_dtype=np.float32, mode="valid")
    gradient = linop.FiniteDifference(input_shape=scene, input_dtype=np.float32, append=0)

    def channel(g: np.ndarray) -> np.ndarray:
        y = snp.array(g.astype(np.float32))
        admm = ADMM(
            f=loss.SquaredL2Loss(y=y, A=blur),
            g_list=[value * functional.L21Norm()],
            C_list=[gradient],
            rho_list=[10 * value],
            x0=snp.pad(y, [(top, m - 1 - top), (left, n - 1 - left)], mode="edge"),
            maxiter=100,
            subproblem_solver=LinearSubproblemSolver(cg_kwargs={"tol": 1e-4, "maxiter": 25}),
        )
        return np.asarray(admm.solve(), np.float64)[top : top + g.shape[0], left : left + g.shape[1]]

    return channel

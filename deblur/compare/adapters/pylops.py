"""PyLops: LSQR with its operator `Convolve2D`, regularised by early stopping."""

from __future__ import annotations

import numpy as np

from ..cases import Task
from .base import Channel, Entrant, Setting, centred


def entrants() -> list[Entrant]:
    """Return LSQR with PyLops's own number of iterations."""
    reason = "PyLops's own number of iterations; stopping is its only regularisation"
    return [
        Entrant(
            "pylops-lsqr", "PyLops", "LSQR stopped early; black beyond the frame", _lsqr,
            Setting(10, reason=reason), parameter="iterations", search=(1, 200), whole=True, own_boundary="zero",
            module="pylops", install="pip install pylops",
        )
    ]  # fmt: skip


def _lsqr(task: Task, value: float | None) -> Channel:
    from pylops.optimization.basic import lsqr
    from pylops.signalprocessing import Convolve2D

    psf = centred(task.psf)
    operator = Convolve2D(task.shape, psf, offset=[n // 2 for n in psf.shape], dtype="float64")

    def channel(g: np.ndarray) -> np.ndarray:
        x, *_ = lsqr(operator, g.ravel(), niter=int(value or 1), calc_var=False)
        return np.asarray(x).reshape(g.shape)

    return channel

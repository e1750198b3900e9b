"""TRIPs-Py: hybrid LSQR with its own generalised cross-validation, on deblur's operator."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import aslinearoperator

from ...operators.blur import Blur
from ..cases import Task
from .base import Channel, Entrant, Setting


def entrants() -> list[Entrant]:
    """Return hybrid LSQR, for every boundary."""
    return [
        Entrant(
            "trips-hybrid-lsqr", "TRIPs-Py", "Golub-Kahan with λ by its own GCV", _hybrid_lsqr,
            Setting(20, reason="20 iterations, each with λ by its own GCV"), parameter="iterations", search=(2, 100),
            whole=True, module="trips", install="pip install git+https://github.com/trips-py/trips-py",
        )
    ]  # fmt: skip


def _hybrid_lsqr(task: Task, value: float | None) -> Channel:
    from trips.solvers.Hybrid_LSQR import hybrid_lsqr

    blur = Blur(task.psf, task.shape, task.boundary)
    operator, count = aslinearoperator(blur), max(2, int(value or 2))

    def channel(g: np.ndarray) -> np.ndarray:
        x = np.asarray(hybrid_lsqr(operator, g.reshape(-1, 1), count, regparam="gcv")[0])
        return x.reshape(blur.scene_shape)[blur.crop]

    return channel

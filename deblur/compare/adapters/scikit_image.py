"""scikit-image: `wiener`, `unsupervised_wiener` and `richardson_lucy`, as its documentation uses them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cases import Task
from .base import Answer, Contestant, Setting, Solver, Watch, by_channel, centred


def contestants() -> list[Contestant]:
    package: dict[str, Any] = {
        "family": "scikit-image",
        "module": "skimage",
        "install": "pip install scikit-image",
    }
    return [
        Wiener(
            "skimage-wiener", summary="Wiener-Hunt filter with a Laplacian; the scene repeats itself",
            parameter="balance", search=(1e-5, 1e2), own_boundary="periodic", **package,
        ),
        UnsupervisedWiener(
            "skimage-unsupervised-wiener", summary="Wiener-Hunt filter that draws its parameters (Gibbs sampler)",
            own_boundary="periodic", **package,
        ),
        RichardsonLucy(
            "skimage-richardson-lucy", summary="Richardson-Lucy iteration; black beyond the frame",
            parameter="iterations", search=(1, 300), whole=True, own_boundary="zero", **package,
        ),
    ]  # fmt: skip


class Wiener(Contestant):
    def choose(self, task: Task) -> Setting:
        return Setting(
            0.1, "default", "the value in the example of scikit-image's documentation; it has no rule"
        )

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        from skimage.restoration import wiener

        psf = centred(task.psf)
        return lambda g: Answer(by_channel(lambda c: wiener(c, psf, value, clip=False), g))


class UnsupervisedWiener(Contestant):
    def choose(self, task: Task) -> Setting:
        return Setting(None, "automatic", "it estimates its own parameters")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        from skimage.restoration import unsupervised_wiener

        psf = centred(task.psf)
        return lambda g: Answer(by_channel(lambda c: unsupervised_wiener(c, psf, clip=False, rng=0)[0], g))


class RichardsonLucy(Contestant):
    def choose(self, task: Task) -> Setting:
        return Setting(50, "default", "scikit-image's own number of iterations")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        from skimage.restoration import richardson_lucy

        psf, count = centred(task.psf), int(value or 1)

        def solver(g: np.ndarray) -> Answer:
            # It is defined for light; noise below zero would make it diverge.
            light = np.maximum(g, 0)
            return Answer(
                by_channel(lambda c: richardson_lucy(c, psf, num_iter=count, clip=False), light), count
            )

        return solver

"""scikit-image: `wiener`, `unsupervised_wiener`, `richardson_lucy`: with its defaults, and padded as the careful do."""

from __future__ import annotations

from collections.abc import Callable
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
    wiener: dict[str, Any] = {**package, "parameter": "balance", "search": (1e-5, 1e2)}
    lucy: dict[str, Any] = {**package, "parameter": "iterations", "search": (1, 300), "whole": True}
    mirrored: dict[str, Any] = {"own_boundary": "reflect", "extra": {"pad": True}}
    return [
        Wiener(
            "skimage-wiener", summary="Wiener-Hunt filter with a Laplacian; the scene repeats itself",
            own_boundary="periodic", **wiener,
        ),
        Wiener("skimage-wiener-padded", summary="the same on a picture mirrored at its edges", **wiener, **mirrored),
        UnsupervisedWiener(
            "skimage-unsupervised-wiener", summary="Wiener-Hunt filter that draws its parameters (Gibbs sampler)",
            own_boundary="periodic", **package,
        ),
        RichardsonLucy(
            "skimage-richardson-lucy", summary="Richardson-Lucy iteration; black beyond the frame",
            own_boundary="zero", **lucy,
        ),
        RichardsonLucy(
            "skimage-richardson-lucy-padded", summary="the same on a picture mirrored at its edges", **lucy, **mirrored
        ),
    ]  # fmt: skip


class _Padded(Contestant):
    def _run(self, task: Task, g: np.ndarray, restore: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """`restore` on each channel, mirrored at its edges for two PSF widths where that was asked for."""
        if not self.extra.get("pad"):
            return by_channel(restore, g)
        widths = [2 * n for n in task.psf.shape]
        inside = tuple(slice(w, w + n) for w, n in zip(widths, task.shape, strict=True))
        return by_channel(lambda c: restore(np.pad(c, [(w, w) for w in widths], mode="symmetric"))[inside], g)


class Wiener(_Padded):
    def choose(self, task: Task) -> Setting:
        return Setting(
            0.1, "default", "the value in the example of scikit-image's documentation; it has no rule"
        )

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        from skimage.restoration import wiener

        psf = centred(task.psf)
        return lambda g: Answer(self._run(task, g, lambda c: wiener(c, psf, value)))


class UnsupervisedWiener(Contestant):
    def choose(self, task: Task) -> Setting:
        return Setting(None, "automatic", "it estimates its own parameters")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        from skimage.restoration import unsupervised_wiener

        psf = centred(task.psf)
        return lambda g: Answer(by_channel(lambda c: unsupervised_wiener(c, psf, rng=0)[0], g))


class RichardsonLucy(_Padded):
    def choose(self, task: Task) -> Setting:
        return Setting(50, "default", "scikit-image's own number of iterations")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        from skimage.restoration import richardson_lucy

        psf, count = centred(task.psf), int(value or 1)

        def solver(g: np.ndarray) -> Answer:
            # It is defined for light; noise below zero would make it diverge.
            light = np.maximum(g, 0)
            return Answer(self._run(task, light, lambda c: richardson_lucy(c, psf, num_iter=count)), count)

        return solver

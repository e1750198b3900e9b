"""deblur's own methods: all rows of its table, called through `deblur.Deblurrer` as a user would call them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...errors import MethodError
from ...methods import METHODS, choose_method, expected_seconds
from ...operators.blur import Blur
from ...pipeline import Deblurrer
from ..cases import Task
from .base import Answer, Entrant, Setting, Solver, Watch

#: The boundary in the tables of a method that supports only one boundary.
OWN_BOUNDARY = {"fft": "periodic", "dct": "reflect", "dst": "antireflect"}


def entrants() -> list[Entrant]:
    """Return deblur's choice, each method, plug and play with two denoisers, and tv with a mask of detected
    bad pixels.
    """
    linear: Callable[..., Own] = partial(Own, family="deblur", parameter="λ", linear=True)
    tuned: Callable[..., Own] = partial(Own, family="deblur", parameter="λ", search=(1e-5, 1e-1))
    stopped = Setting(None, "automatic", "stopped when its residual looks like noise")
    # Only the row "auto" searches for the oracle's λ, for all linear methods.
    rows = [linear("auto", summary="the cheapest exact method, as deblur chooses it", search=(1e-6, 1.0))]
    for name, row in METHODS.items():
        if name == "pnp":
            rows.append(tuned(name, summary="non-local means as the prior", options={"denoiser": "nlm"}))
            bm3d = {"module": "bm3d", "install": "pip install bm3d"}
            options = {"method": name, "denoiser": "bm3d"}
            rows.append(tuned("pnp-bm3d", summary="BM3D as the prior", options=options, **bm3d))
        elif row.lam is not None:
            rows.append(Own(name, "deblur", row.summary, setting=stopped, light=True))
        elif row.linear:
            rows.append(linear(name, summary=row.summary, own_boundary=OWN_BOUNDARY.get(name)))
        else:
            rows.append(tuned(name, summary=row.summary))
    what = "total variation without the pixels that a detector calls bad"
    return [*rows, tuned("tv-masked", summary=what, options={"method": "tv", "mask": "auto"})]


@dataclass(frozen=True)
class Own(Entrant):
    """A method of deblur, run by a `deblur.Deblurrer`.

    Attributes
    ----------
    linear : bool
        True if the method minimises ‖Hf − g‖² + λ‖f − f̄‖². All such methods share one λ.
    options : dict
        Options of the Deblurrer; by default the method with this name.
    """

    linear: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def refuses(self, task: Task) -> str | None:
        # A refusal does not depend on the value of λ, only on whether it is zero.
        try:
            self._deblurrer(task, 1e-3 if isinstance(task.lam, str) else task.lam)
        except MethodError as error:
            return str(error).partition("cannot be used here: ")[2] or str(error)
        return None

    def predicted(self, task: Task, value: float | None) -> float | None:
        if not self.linear or self.name == "auto":
            return None
        blur = Blur(task.psf, task.shape, task.boundary)
        choice = choose_method(blur, value or 0.0, frames=3 if task.channel_axis else 1)
        if self.name in choice.refused:
            raise MemoryError(choice.refused[self.name])
        if METHODS[self.name].module in ("dense", "qr"):
            return math.prod(blur.shape) ** 1.5 / 1e11  # n³/3 multiplications at about 3e10 per second
        return expected_seconds(self.name, task.blurred.size)

    def choose(self, task: Task) -> Setting:
        if not self.parameter:
            return self.setting
        if not isinstance(task.lam, str):
            return Setting(task.lam, "given", "as given")
        if not self.linear:
            # Use the rule of this regularizer, since the requested rule is for the linear formula.
            return _chosen(task, self._deblurrer(task, "auto"))
        if task.boundary not in task.shared:
            prior = Deblurrer(task.psf, task.shape, 1.0, boundary=task.boundary).prior
            deblurrer = Deblurrer(task.psf, task.shape, task.lam, boundary=task.boundary, prior=prior)
            task.shared[task.boundary] = _chosen(task, deblurrer, "; shared by deblur's linear methods")
        return task.shared[task.boundary]

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        deblurrer = self._deblurrer(task, value or 0.0, watch)
        if self.linear:
            deblurrer.tune(task.blurred, channel_axis=task.channel_axis)  # λ is a number, so this only does the set-up

        def solver(g: np.ndarray) -> Answer:
            g = np.maximum(g, 0) if self.light else g
            result = deblurrer.solve(g, channel_axis=task.channel_axis)
            notes = [f"took {result.method}"] if self.name == "auto" else []
            notes += [result.why] if result.why else []
            # Only the linear formula has a linear system that is the same for all methods.
            residual = result.residual if self.linear else None
            return Answer(result.image, result.iterations, residual, note="; ".join(notes))

        return solver

    def _deblurrer(self, task: Task, lam: float | str, watch: Watch | None = None) -> Deblurrer:
        options = {"method": self.name, **self.options}
        return Deblurrer(task.psf, task.shape, lam, boundary=task.boundary, callback=watch, **options)


def _chosen(task: Task, deblurrer: Deblurrer, remark: str = "") -> Setting:
    """Return λ by the rule of `deblurrer`, with its L-curve as plain numbers if the rule has one."""
    start = time.perf_counter()
    choice = deblurrer.tune(task.blurred, channel_axis=task.channel_axis)
    assert choice is not None
    seconds, curve = time.perf_counter() - start, None
    some = (choice.residual_norms > 0) & (choice.solution_norms > 0)
    if some.sum() > 1:
        norms = (choice.residual_norms, choice.solution_norms)
        x, y = ([float(f"{v:.4g}") for v in values[some]] for values in norms)
        at = int(np.argmin(np.abs(np.log(choice.lambdas[some] / choice.lam))))
        curve = {"x": x, "y": y, "at": at, "lam": float(choice.lam)}
    return Setting(float(deblurrer.lam), "rule", choice.reason + remark, seconds, curve)

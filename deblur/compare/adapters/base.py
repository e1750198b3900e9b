"""The interface between the comparison and the methods that it runs.

An adapter is one small file with a function ``entrants()`` that returns a list of `Entrant`. An entrant sees a `Task`,
never the truth. It says whether it can solve the task, chooses its parameter from the task, and restores.
`deblur.compare.scoring` takes all measurements.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cases import Task

#: A function that is called with (iterations so far, the objective or the residual of the method).
Watch = Callable[[int, float], None]


@dataclass(frozen=True)
class Setting:
    """The value of a parameter, and its source.

    Attributes
    ----------
    value : float or None
        The value; None if the method has no parameter, or finds it while it solves.
    how : str
        "rule", "given", "default", "automatic" or "oracle", for the table.
    reason : str
        The source of the value, in a sentence.
    seconds : float
        Time in seconds that the choice took.
    curve : dict or None
        ``{"x": ‖g − Hf‖, "y": ‖f‖, "at": index, "lam": λ}`` of an L-curve.
    """

    value: float | None = None
    how: str = "default"
    reason: str = "no parameter to choose"
    seconds: float = 0.0
    curve: dict[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """A restored picture, and the report of its method.

    Attributes
    ----------
    image : array
        The restored picture, with the shape of ``task.blurred``.
    iterations : int or None
        Number of iterations.
    residual : float or None
        Relative residual of the linear system, if deblur's own verification has measured it.
    note : str
        A remark for the table.
    """

    image: Any
    iterations: int | None = None
    residual: float | None = None
    note: str = ""


Channel = Callable[[np.ndarray], np.ndarray]
Solver = Callable[[np.ndarray], Answer]


@dataclass(frozen=True)
class Entrant:
    """A method of the comparison.

    Attributes
    ----------
    name, family, summary : str
        The name of the method, its package, and a description in one line.
    restore : callable, optional
        ``restore(task, value)`` does everything that does not depend on the picture and returns a function from one
        grey channel to the restored one. A subclass may override `prepare` instead.
    setting : Setting
        The value of the parameter if no rule chooses it.
    parameter : str
        The name of the parameter; empty if the method has none.
    search : (float, float) or None
        The range of the oracle's search for the parameter. None for a method without a parameter, or one whose
        parameter is shared with another method.
    whole : bool
        True if the parameter is the number of iterations.
    own_boundary : str or None
        The boundary that the method assumes if it cannot assume the requested one.
    padded : bool
        True if pictures are mirrored at their borders, by twice the width of the PSF, before the restoration.
    light : bool
        True if the method needs non-negative pictures: values below zero are set to zero.
    module, install : str
        The module that must be importable, and the command that installs it; empty for deblur's own methods.
    """

    name: str
    family: str
    summary: str
    restore: Callable[[Task, float | None], Channel] | None = None
    setting: Setting = Setting()
    parameter: str = ""
    search: tuple[float, float] | None = None
    whole: bool = False
    own_boundary: str | None = None
    padded: bool = False
    light: bool = False
    module: str = ""
    install: str = ""

    def missing(self) -> str | None:
        """Return None if the method is installed, else the command that installs it."""
        return None if not self.module or importlib.util.find_spec(self.module) is not None else self.install

    def refuses(self, task: Task) -> str | None:
        """Return None if the method can solve the task, else the reason in words."""
        if self.own_boundary is not None and task.boundary != self.own_boundary:
            return f"it assumes boundary {self.own_boundary!r}"
        return None

    def predicted(self, task: Task, value: float | None) -> float | None:
        """Return the predicted seconds of one restoration, or None if unknown; raise MemoryError if it does not fit in
        memory.
        """
        return None

    def choose(self, task: Task) -> Setting:
        """Return the parameter, chosen from the task alone."""
        return self.setting

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        """Do all work that does not depend on the picture, and return a solver to call with the picture."""
        if self.restore is None:
            raise NotImplementedError(f"{self.name} needs restore=, or a class that overrides prepare")
        channel = self.restore(task, value)
        widths = [2 * n if self.padded else 0 for n in task.psf.shape]
        inside = tuple(slice(w, w + n) for w, n in zip(widths, task.shape, strict=True))

        def solver(g: np.ndarray) -> Answer:
            g = np.maximum(g, 0) if self.light else g
            planes = np.moveaxis(np.atleast_3d(g), -1, 0)
            padded = [np.pad(plane, [(w, w) for w in widths], mode="symmetric") for plane in planes]
            restored = np.stack([channel(plane)[inside] for plane in padded], axis=-1)
            return Answer(restored.reshape(g.shape), int(value) if self.whole and value else None)

        return solver


def centred(psf: np.ndarray) -> np.ndarray:
    """Return the PSF padded with zeros in front to odd numbers of rows and columns, so that its centre is in the
    middle.

    For an even size deblur takes the pixel before the middle as the centre. Other packages differ; odd sizes avoid the
    question.
    """
    return np.pad(psf, [(1 - n % 2, 0) for n in psf.shape])

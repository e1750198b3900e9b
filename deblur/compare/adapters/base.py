"""The interface between the comparison and the methods that it runs.

An adapter is one small file with a function ``entrants()`` that returns a
list of `Entrant`. An entrant sees a `Task`, never the truth; it says whether
it can serve, chooses its parameter from what it sees, and restores.
`deblur.compare.scoring` takes all measurements.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cases import Task

#: Called with (iterations so far, what the method minimises or its residual).
Watch = Callable[[int, float], None]


@dataclass(frozen=True)
class Setting:
    """A parameter chosen without the truth.

    Attributes
    ----------
    value : float or None
        None if the method has none, or finds it while it solves.
    how : str
        "rule", "given", "default" or "automatic", for the table.
    reason : str
        Where it comes from, in a sentence.
    seconds : float
        Time spent on the choice.
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
    """A restored picture and what its method reports about it.

    Attributes
    ----------
    image : array
        Shaped like ``task.blurred``.
    iterations : int or None
    residual : float or None
        Relative residual of the linear system solved, where deblur's own verification has measured it.
    note : str
    """

    image: Any
    iterations: int | None = None
    residual: float | None = None
    note: str = ""


Channel = Callable[[np.ndarray], np.ndarray]
Solver = Callable[[np.ndarray], Answer]


@dataclass(frozen=True)
class Entrant:
    """A method that takes part.

    Attributes
    ----------
    name, family, summary : str
        Its name, the package that it belongs to, and one line about it.
    restore : callable, optional
        ``restore(task, value)`` does everything that does not depend on the picture and returns a function from one
        grey channel to the restored one. A subclass may override `prepare` instead.
    setting : Setting
        The value of the parameter if no rule chooses it.
    parameter : str
        The name of its parameter; empty if it has none.
    search : (float, float) or None
        The range of the oracle's search for the parameter; None for a method without one, or that shares it with
        another.
    whole : bool
        Whether the parameter is the number of iterations.
    own_boundary : str or None
        The boundary that it assumes if it cannot assume the requested one.
    padded : bool
        Whether pictures are mirrored at their borders, for two PSF widths, before they are restored.
    light : bool
        Whether it is defined for non-negative pictures only: values below zero are set to zero.
    module, install : str
        What must be importable, and the command that installs it; empty for deblur's own.
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
        """None if it is installed, else the command that installs it."""
        return None if not self.module or importlib.util.find_spec(self.module) is not None else self.install

    def refuses(self, task: Task) -> str | None:
        """None if it can serve, else the reason in words."""
        if self.own_boundary is not None and task.boundary != self.own_boundary:
            return f"it assumes boundary {self.own_boundary!r}"
        return None

    def predicted(self, task: Task, value: float | None) -> float | None:
        """Predicted seconds of one restoration, or None; MemoryError if it does not fit memory."""
        return None

    def choose(self, task: Task) -> Setting:
        """Its parameter, chosen from the task alone."""
        return self.setting

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        """Everything that does not depend on the picture; the solver is then called with the picture."""
        if self.restore is None:
            raise NotImplementedError(f"{self.name} needs restore=, or a class that overrides prepare")
        channel = self.restore(task, value)
        widths = [2 * n if self.padded else 0 for n in task.psf.shape]
        inside = tuple(slice(w, w + n) for w, n in zip(widths, task.shape, strict=True))

        def solver(g: np.ndarray) -> Answer:
            if self.light:
                g = np.maximum(g, 0)
            planes = np.moveaxis(np.atleast_3d(g), -1, 0)
            padded = [np.pad(plane, [(w, w) for w in widths], mode="symmetric") for plane in planes]
            restored = np.stack([channel(plane)[inside] for plane in padded], axis=-1)
            return Answer(restored.reshape(g.shape), int(value) if self.whole and value else None)

        return solver


def centred(psf: np.ndarray) -> np.ndarray:
    """The PSF with an odd number of rows and columns and its centre in the middle, by zeros in front.

    deblur takes the centre of an even size to be the pixel before the middle; other packages do not agree
    on it, and odd sizes avoid the question.
    """
    return np.pad(psf, [(1 - n % 2, 0) for n in psf.shape])

"""What a method of a comparison offers: the one line at which ours and other people's meet.

An adapter is one small file with a function ``contestants()`` that returns a
list of `Contestant`. A contestant is shown a `Task`, never the truth; it says
whether it can serve, chooses its parameter from what it sees, and restores.
It measures nothing that counts: the judge does.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import MethodError
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
        What choosing it took.
    curve : dict or None
        ``{"x": ‖g − Hf‖, "y": ‖f‖, "at": index}`` of an L-curve.
    """

    value: float | None
    how: str
    reason: str
    seconds: float = 0.0
    curve: dict[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """A restored picture and what its method says of it.

    Attributes
    ----------
    image : array
        Shaped like ``task.blurred``.
    iterations : int or None
    residual : float or None
        Relative residual of the linear system solved, where deblur's own judge has measured it.
    note : str
    """

    image: Any
    iterations: int | None = None
    residual: float | None = None
    note: str = ""


Solver = Callable[[np.ndarray], Answer]


@dataclass(frozen=True)
class Contestant:
    """A method that takes part. Adapters override what differs.

    Attributes
    ----------
    name, family, summary : str
        What it is called, whose it is, and one line about it.
    parameter : str
        What its parameter is called; empty if it has none.
    search : (float, float) or None
        The range in which the judge looks for the oracle's value of the parameter; None for a method
        without one, or that shares it with another.
    whole : bool
        Whether the parameter counts something.
    own_boundary : str or None
        What it assumes beyond the frame if it cannot assume what is asked for.
    module, install : str
        What must be importable, and the command that installs it; empty for deblur's own.
    """

    name: str
    family: str
    summary: str
    parameter: str = ""
    search: tuple[float, float] | None = None
    whole: bool = False
    own_boundary: str | None = None
    module: str = ""
    install: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def missing(self) -> str | None:
        """None if it is installed, else what to type."""
        if not self.module or importlib.util.find_spec(self.module) is not None:
            return None
        return f"not installed: {self.install}"

    def refuses(self, task: Task) -> str | None:
        """None if it can serve, else the reason in words."""
        if self.own_boundary is not None and task.boundary != self.own_boundary:
            return f"it assumes that the scene is {_BEYOND[self.own_boundary]} beyond the frame"
        return None

    def predicted(self, task: Task, value: float | None) -> float | None:
        """Seconds it will take, if that can be told."""
        return None

    def choose(self, task: Task) -> Setting:
        """Its parameter, chosen from what the task shows."""
        return Setting(None, "default", "no parameter to choose")

    def prepare(self, task: Task, value: float | None, watch: Watch | None = None) -> Solver:
        """All that does not depend on the picture; the solver is then called with the picture."""
        raise NotImplementedError


_BEYOND = {
    "zero": "black",
    "periodic": "repeated",
    "reflect": "mirrored",
    "antireflect": "continued by point reflection",
    "unknown": "unknown",
}


def reason_alone(error: MethodError) -> str:
    """Why a method of deblur cannot serve, without its name, which stands in the row already."""
    return str(error).partition("cannot serve here: ")[2] or str(error)


def centred(psf: np.ndarray) -> np.ndarray:
    """The PSF with an odd number of rows and columns and its centre in the middle, by zeros in front.

    deblur takes the centre of an even size to be the pixel before the middle; other packages do not agree
    on it, and with odd sizes they need not.
    """
    return np.pad(psf, [(1 - n % 2, 0) for n in psf.shape])


def by_channel(solver: Callable[[np.ndarray], np.ndarray], g: np.ndarray) -> np.ndarray:
    """A method for grey pictures on each colour by itself."""
    if g.ndim == 2:
        return solver(g)
    return np.stack([solver(np.ascontiguousarray(g[..., c])) for c in range(g.shape[-1])], axis=-1)

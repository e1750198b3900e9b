"""The errors of deblur that carry more than a sentence, and its warning.

Plain mistakes in an argument are ``ValueError`` or ``TypeError``; the classes
here exist where a caller can act on what the error carries.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")


class SingularMatrixError(np.linalg.LinAlgError):
    """A matrix has no inverse, or none that the dtype can represent.

    Attributes
    ----------
    index : int or None
        The zero-based position of the pivot that failed, where there is one.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class MethodError(ValueError):
    """The requested method cannot serve this problem; the text says why."""


class InsufficientMemoryError(MemoryError):
    """The work was refused before it began because it would not fit memory.

    Attributes
    ----------
    needed, free : int
        Bytes that the work would take, and bytes that are free.
    """

    def __init__(self, message: str, needed: int, free: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.free = free


class ConvergenceError(RuntimeError):
    """An iteration ended without the requested accuracy.

    Attributes
    ----------
    result : deblur.Result or object
        The last iterate, with its status and measured residual.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class NoGPUError(RuntimeError):
    """A GPU was requested and none can be used; the text says what is missing."""


class PSFWarning(UserWarning):
    """The data contradict the PSF or the boundary, or an estimated PSF is unreliable; the text says what to try."""


def check_choice(value: _T, known: Iterable[str | None], name: str) -> _T:
    """`value`, or ValueError with the known names for another one and for what is no name."""
    names = [*known]
    if not (value is None or isinstance(value, str)) or value not in names:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(map(str, names))}")
    return value


def warn(text: str, category: type[Warning] = PSFWarning) -> None:
    """Give a warning at the line of the program that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)

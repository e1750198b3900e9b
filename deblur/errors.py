"""The errors of deblur that carry more than a sentence.

Plain mistakes in an argument are ``ValueError`` or ``TypeError``; the classes
here exist where a caller can act on what the error carries.
"""

from __future__ import annotations

from typing import Any

import numpy as np


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
    """A method was asked for that cannot serve this problem; the text says why."""


class InsufficientMemoryError(MemoryError):
    """The work was refused before it began because it would not fit.

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
    """An iteration ended without the accuracy that was asked for.

    Attributes
    ----------
    result : deblur.Result or object
        What had been reached, with its status and measured residual.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class NoGPUError(RuntimeError):
    """A GPU was asked for by name and none can be used; the text says what is missing."""

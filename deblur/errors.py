"""Errors of deblur that carry data, its warning, and checks of single arguments.

A mistake in an argument is a ``ValueError`` or ``TypeError``. The classes here exist where a caller can act on the data
that the error carries.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")


class SingularMatrixError(np.linalg.LinAlgError):
    """A matrix has no inverse, or none that the dtype can represent.

    Attributes
    ----------
    index : int or None
        The zero-based position of the pivot that failed, or None if there is no such pivot.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class MethodError(ValueError):
    """The requested method cannot solve this problem; the message gives the reason."""


class InsufficientMemoryError(MemoryError):
    """The work was refused before it began, since it would not fit in memory, or a GPU's memory is full.

    Attributes
    ----------
    needed, free : int
        Bytes that the work needs, and bytes that are free.
    """

    def __init__(self, message: str, needed: int = 0, free: int = 0) -> None:
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
    """A GPU was requested and none can be used; the message says what is missing."""


class PSFWarning(UserWarning):
    """The data contradict the PSF or the boundary, or an estimated PSF is unreliable; the message suggests a remedy."""


def shown(value: Any) -> str:
    """Return the Python expression of a value in one line of at most 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_choice(value: _T, known: Iterable[str | None], name: str) -> _T:
    """Return `value` if it is one of the known names, else raise ValueError with the list of them."""
    names = [*known]
    if not (value is None or isinstance(value, str)) or value not in names:
        meant = nearest(value, {word.lower(): word for word in filter(None, names)})
        raise ValueError(f"unknown {name} {shown(value)}; choose one of {', '.join(filter(None, names))}{meant}")
    return value


def nearest(word: Any, meant: dict[str, str]) -> str:
    """Return "; did you mean ...?" with the meaning of the nearest word in `meant`, or "" if none is near.

    The keys of `meant` are words in small letters.
    """
    near = difflib.get_close_matches(str(word).lower(), meant, 1)
    return f"; did you mean {meant[near[0]]}?" if near else ""


def as_number(value: Any) -> float:
    """Return `value` as a float, or NaN, which fails every comparison, if it is not a single number."""
    try:
        return math.nan if isinstance(value, (str, bool, np.bool_)) or np.ndim(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def check_number(value: Any, name: str, above: bool = False) -> float:
    """Return `value` as a finite float >= 0, or > 0 if `above`; raise ValueError for anything else."""
    number = as_number(value)
    if not (math.isfinite(number) and number >= 0 and (number or not above)):
        words = "a positive finite number" if above else "a finite number >= 0"
        raise ValueError(f"{name} must be {words}, not {shown(value)}")
    return number


def check_count(value: Any, name: str, least: int = 1) -> int:
    """Return `value` as a whole number >= `least`; raise ValueError for anything else."""
    if not (as_number(value).is_integer() and value >= least):
        words = "a positive whole number" if least == 1 else f"a whole number >= {least}"
        raise ValueError(f"{name} must be {words}, not {shown(value)}")
    return int(value)


def check_flags(**flags: Any) -> None:
    """Raise TypeError unless each value is True, False, 1 or 0."""
    for name, value in flags.items():
        if not (isinstance(value, bool | np.bool_ | int) and value in (0, 1)):
            raise TypeError(f"{name} must be True or False, not {shown(value)}")


def generator(seed: Any) -> np.random.Generator:
    """Return a random generator for a seed (a whole number >= 0), for a generator (itself), or for None (not
    reproducible).
    """
    given = seed is None or isinstance(seed, np.random.Generator)
    return np.random.default_rng(seed if given else check_count(seed, "seed", 0))


def check_callback(function: Any, name: str, *values: str) -> None:
    """Raise TypeError unless `function` is None or can be called with arguments named `values`."""
    try:
        if function is not None:
            inspect.signature(function).bind(*values)
    except TypeError:
        takes = f"one that takes {inspect.signature(function)}" if callable(function) else shown(function)
        raise TypeError(f"{name} must be a function that takes ({', '.join(values)}), not {takes}") from None
    except ValueError:
        return  # a compiled function may have no signature


def check_dtype(dtype: Any) -> np.dtype | None:
    """Return float32 or float64, given by any of its names, or None for None; raise TypeError for anything else."""
    if dtype is None:
        return None
    with contextlib.suppress(TypeError):
        if (named := np.dtype(dtype)) in (np.float32, np.float64):
            return named
    raise TypeError(f"dtype must be 'float32' or 'float64', not {dtype!r}")


def check_axis(axis: Any, ndim: int, name: str) -> int:
    """Return the position of an axis among `ndim`, counted from the front; raise TypeError or ValueError if it is
    invalid.
    """
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(f"{name} must be a whole number, the position of an axis, not {shown(axis)}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} = {axis} is not an axis of an image of {ndim} axes, 0 to {ndim - 1}")
    return int(axis) % ndim


def check_path(path: Any) -> Path:
    """Return `path` as a Path; raise TypeError, ValueError or OSError if it cannot name a file or cannot be reached."""
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"the name of a file is text or a pathlib.Path, not {shown(path)}") from None
    if not name.strip() or "\0" in name:
        raise ValueError(f"{shown(name)} is not the name of a file: it is blank, or holds the character NUL")
    with naming(name, "cannot be reached", "use another name, or check the permissions of its folders"):
        Path(name).exists()
    return Path(name)


@contextlib.contextmanager
def naming(path: Any, failed: str = "could not be written", then: str = "nothing was changed there") -> Iterator[None]:
    """Complete an OSError raised inside with the path, what failed, the reason, and what is left or can be tried."""
    try:
        yield
    except OSError as error:
        if error.errno is None and str(path) in str(error):  # ours
            raise
        why = os.strerror(error.errno) if error.errno else f"{error}, as on a full disk"  # NumPy gives no number
        raise type(error)(f"{path} {failed}: {why}; {then}") from error


def warn(text: str, category: type[Warning] = PSFWarning) -> None:
    """Issue a warning that points at the line of the user's program that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)

"""Progress events of the pipeline, for a listener to display. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Progress(NamedTuple):
    """A phase of the work begins.

    Attributes
    ----------
    phase : str
        Its name, such as "λ" or "solve".
    left : float or None
        Seconds predicted for the rest of the work, if there is a prediction.
    """

    phase: str
    left: float | None = None


_listener: ContextVar[Callable[[Progress], None] | None] = ContextVar("listener", default=None)


def report_phase(phase: str, left: float | None = None) -> None:
    """Report to the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(Progress(phase, left))


def has_listener() -> bool:
    """Whether there is a listener."""
    return _listener.get() is not None


@contextmanager
def listening(listener: Callable[[Progress], None] | None) -> Iterator[None]:
    """Report every phase of the restorations in here to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)

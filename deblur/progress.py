"""How far a restoration has come: the road tells it, and whoever listens shows it. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Progress(NamedTuple):
    """Where the work is.

    Attributes
    ----------
    phase : str
        What is being done now, such as "λ" or "solve".
    left : float or None
        Seconds that are predicted for what is still to be done; None where nobody knows.
    """

    phase: str
    left: float | None = None


_listener: ContextVar[Callable[[Progress], None] | None] = ContextVar("listener", default=None)


def tell(phase: str, left: float | None = None) -> None:
    """Tell the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(Progress(phase, left))


def heard() -> bool:
    """Whether anybody listens."""
    return _listener.get() is not None


@contextmanager
def listening(listener: Callable[[Progress], None] | None) -> Iterator[None]:
    """Have `listener` told of every phase of the restorations in here."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)

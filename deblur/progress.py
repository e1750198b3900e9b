"""Progress events of the pipeline, which a listener displays. This module prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def report_phase(phase: str) -> None:
    """Report to the listener, if there is one, that a phase of the work begins, such as "λ" or "solve"."""
    listener = _listener.get()
    if listener is not None:
        listener(phase)


@contextmanager
def listening(listener: Callable[[str], None] | None) -> Iterator[None]:
    """Report every phase of the restorations inside to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)

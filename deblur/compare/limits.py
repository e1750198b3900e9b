"""What one method may take and what it took: the time limit, and the peak of memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any


class TooSlow(BaseException):
    """The time limit has passed. No `Exception`, so that no method can swallow it."""


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raise `TooSlow` after so many seconds, where the system can: on Unix, in the main thread.

    A call into compiled code is not torn out of it; it ends first.
    """
    usable = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    if not usable:
        yield
        return

    def alarm(number: int, frame: Any) -> None:
        raise TooSlow(f"{what} was stopped after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Peak:
    """The most memory held at once inside the block, in bytes, above what was held when it began."""

    def __enter__(self) -> Peak:
        gc.collect()
        _give_back()
        self._reset = _reset_peak()
        self._before = _status_bytes("VmRSS")
        tracemalloc.start()
        self.bytes = 0
        return self

    def __exit__(self, *error: object) -> None:
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if self._reset:
            self.bytes = max(self.bytes, _status_bytes("VmHWM") - self._before)


def _give_back() -> None:
    """Return freed pages to the system, so that what is used anew is seen; glibc only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _reset_peak() -> bool:
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        return False
    return True


def _status_bytes(name: str) -> int:
    with contextlib.suppress(OSError), open("/proc/self/status") as f:
        for line in f:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0

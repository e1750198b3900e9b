"""The limits on one method and what it used: time, and peak memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class TooSlow(BaseException):
    """The time limit has passed. Not an `Exception`, so that a method does not catch it by accident."""


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raise `TooSlow` after `seconds`, where the system can: on Unix, in the main thread.

    A call into compiled code ends first.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise TooSlow(f"{what} was stopped after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Peak:
    """The peak memory inside the block in bytes, above that at its beginning.

    NumPy's allocations are traced; on Linux the process's resident set counts too, for compiled libraries.
    """

    def __enter__(self) -> Peak:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # return freed pages to the system; glibc only
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.bytes, self._before = 0, None
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
            self._before = _status_bytes("VmRSS")
        tracemalloc.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if self._before is not None:
            self.bytes = max(self.bytes, _status_bytes("VmHWM") - self._before)


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

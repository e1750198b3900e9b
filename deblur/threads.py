"""Control the number of threads: a limit set by a scheduler, the environment or the cores; run work on
these threads.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import scipy

_granted: ContextVar[int | None] = ContextVar("granted", default=None)


@contextmanager
def thread_limit(threads: int | None) -> Iterator[None]:
    """Limit the work inside to this number of threads, as a scheduler of many solves must; None changes nothing."""
    before = _granted.set(_granted.get() if threads is None else threads)
    try:
        yield
    finally:
        _granted.reset(before)


def cores() -> int:
    """Return how many threads may work in parallel: the `thread_limit`, else OMP_NUM_THREADS, else one per core."""
    asked = _granted.get()
    if asked is not None:
        return asked
    granted = os.environ.get("OMP_NUM_THREADS", "")
    return int(granted) if granted.isdecimal() and int(granted) else usable_cores()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def all_cores() -> Iterator[None]:
    """Let SciPy's transforms use `cores` threads, and each matrix product of NumPy and SciPy one thread.

    Threads of OpenBLAS wait for one another in busy loops. If another process occupies one of two cores, products on
    two threads take eight times as long as on one.
    """
    # A number of workers that the caller has set is kept. SciPy reports one worker if none was set, so a caller who
    # wants one thread must use `thread_limit`.
    own = _granted.get() is None and scipy.fft.get_workers() != 1
    with _one_blas_thread, nullcontext() if own else scipy.fft.set_workers(cores()):
        yield


class _OneBlasThread:
    """A limit of one BLAS thread for the whole process, while any thread is inside."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                libraries = _blas("scipy.linalg" in sys.modules)
                self._before = [(library, library.get_num_threads()) for library in libraries]
                _limit([(library, 1) for library in libraries])

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _limit(self._before)


_one_blas_thread = _OneBlasThread()


def symmetric_products(n: int, itemsize: int) -> AbstractContextManager[None]:
    """Return a context in which BLAS may multiply a matrix of n rows by its own transpose (`syrk`, `potrf`, `potri`).

    OpenBLAS packs n / √threads columns of each thread into a buffer of 32 MiB, without a check of their length: longer
    ones overwrite other memory and end the process (OpenBLAS issue 2562). Such a product gets one thread.
    """
    length = n * itemsize / 65536  # of columns for one thread; 1.33 is safe on SkylakeX, 1.39 is not
    overrun = length > 1 and any(length**2 > library.get_num_threads() for library in _blas(True))
    return _one_blas_thread if overrun else nullcontext()


def _limit(threads: list[tuple[Any, int]]) -> None:
    """Set the threads of libraries. threadpoolctl 3.8 obeys only the first thread that used it, unless that
    is cleared.
    """
    for library, count in threads:
        forget = getattr(library, "clear_controlling_thread", lambda force: None)
        forget(force=True)
        library.set_num_threads(count)
        forget(force=True)


@functools.cache
def _blas(of_scipy: bool) -> list[Any]:
    """Return the BLAS library of NumPy, and that of SciPy once its module is loaded."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def on_cores(work: Callable[..., Any], *of: Iterable[Any]) -> list:
    """Return the results of `work` for all items, in order, with one thread per core; with one core or item, without
    threads.
    """
    threads, parts = cores(), [*zip(*of, strict=False)]
    if threads == 1 or len(parts) < 2:
        return [work(*part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, *zip(*parts, strict=True)))

"""Handle terminal, pipe and Ctrl-C for the command.

`deblur/__init__.py` imports this module first, so that Ctrl-C during the other imports ends the command with one line
and code 130. Therefore this module must import quickly. A program that imports deblur keeps its own handling of Ctrl-C.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

from .progress import listening

INTERRUPTED = "deblur: interrupted; no file is left half written"


def _leave(signum: int, frame: Any) -> None:
    # An exception here would be raised inside the module that is being imported; NumPy converts it to another one.
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(130)


def _is_the_command() -> bool:
    """Return True if this is ``deblur ...`` or ``python -m deblur ...``, whose argv[0] is "-m" during this import."""
    program = sys.argv[0] if getattr(sys, "argv", None) else ""
    if program == "-m":
        return any(a[:1] == "-" and a[-1:] == "m" and b == "deblur" for a, b in pairwise(sys.orig_argv))
    return os.path.basename(program) in ("deblur", "deblur.exe")


def _swap(old: Any, new: Any) -> bool:
    """Replace the handler `old` by `new`; return False if another handler is set."""
    if signal.getsignal(signal.SIGINT) is not old:
        return False
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, new)
        return True
    return False


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt inside, so that partial files are removed."""
    swapped = _swap(_leave, signal.default_int_handler)
    try:
        yield
    finally:
        if swapped:
            _swap(signal.default_int_handler, _leave)


def keep_memory() -> None:
    """Let the C library of this process keep freed memory for the next arrays.

    By default it returns large arrays to the kernel, which clears the memory for each new array. This takes a fifth of
    the time of tv. For volumes the library would keep too much memory.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):  # of glibc
        mallopt(-1, 1 << 29)  # M_TRIM_THRESHOLD
        mallopt(-3, 1 << 27)  # M_MMAP_THRESHOLD


if _is_the_command():
    _swap(signal.default_int_handler, _leave)


@contextmanager
def warnings_in_words(where: str = "") -> Iterator[None]:
    """Print the warnings issued inside, one line each, at the end; with `where`, issue them again with this
    file name.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(" ".join(str(one.message).split()) for one in caught):
        if where:
            warnings.warn(f"{where}: {text}", stacklevel=2)
        else:
            print(f"deblur: warning: {text}", file=sys.stderr)


@contextmanager
def progress(what: str, enabled: bool) -> Iterator[Callable[..., None] | None]:
    """Show a line on a terminal with the phase of the work and its time, redrawn by tqdm; show nothing in a pipe.

    Parameters
    ----------
    what : str
        The first word of the line.
    enabled : bool
        False shows nothing.

    Yields
    ------
    show : callable or None
        ``show(done, total, note)`` displays the number of finished parts; None if nothing is shown.
    """
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from tqdm import tqdm

    ended = threading.Event()
    with tqdm(desc=what, leave=False, bar_format=_UNCOUNTED) as bar:

        def show(done: int = 0, total: int | None = None, note: str = "") -> None:
            bar.bar_format = _UNCOUNTED if total is None else None
            bar.n, bar.total = done, total
            bar.set_postfix_str(note, refresh=False)

        def redraw() -> None:  # even if the work reports nothing for a while
            while not ended.wait(0.2):
                bar.refresh()

        thread = threading.Thread(target=redraw, daemon=True)
        thread.start()
        try:
            with listening(lambda phase: bar.set_description_str(f"{what}: {phase}", refresh=False)):
                yield show
        finally:
            ended.set()
            thread.join()


_UNCOUNTED = "{desc} [{elapsed}{postfix}]"


def iterations(show: Callable[..., None] | None) -> Callable[[int, float], None] | None:
    """Return a callback that shows the iterations and the residual of a method; None if nothing is shown."""
    if show is None:
        return None
    return lambda iteration, residual: show(note=f"{iteration} iterations, residual {residual:.1e}")


def report(text: str) -> None:
    """Print the report of a command; a closed or full stdout does not fail the command."""
    try:
        print(text, flush=True)
    except OSError as error:
        abandon_stdout()
        if not isinstance(error, BrokenPipeError):  # `deblur ... | head` is not an error
            print(f"deblur: done, but stdout cannot be written: {error.strerror}", file=sys.stderr)


def abandon_stdout() -> None:
    """Redirect stdout to the null device, so that Python does not fail when it flushes stdout at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

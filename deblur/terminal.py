"""How the command meets a terminal, a pipe and Ctrl-C.

`deblur/__init__.py` imports this before anything else, so that Ctrl-C while
the rest is imported ends the command with one line and code 130. A program
that imports deblur keeps its own handling: only the command gets another.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NoReturn

INTERRUPTED = "deblur: interrupted; no file is left half written"


def _leave(signum: int, frame: Any) -> None:
    # An exception would be raised inside whatever is imported, and NumPy makes another one of it.
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(130)


def _is_the_command() -> bool:
    """Whether this is ``deblur ...`` or ``python -m deblur ...``, whose argv[0] is "-m" during this import."""
    program = sys.argv[0] if getattr(sys, "argv", None) else ""
    if program == "-m":
        return any(
            a.startswith("-") and a.endswith("m") and b == "deblur" for a, b in pairwise(sys.orig_argv)
        )
    return os.path.basename(program) in ("deblur", "deblur.exe")


def _swap(old: Any, new: Any) -> bool:
    """Put `new` in the place of the handler `old`; False if another one is there."""
    if signal.getsignal(signal.SIGINT) is not old:
        return False
    try:
        signal.signal(signal.SIGINT, new)
    except ValueError:  # not in the main thread
        return False
    return True


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in here, so that what was begun is cleared away."""
    swapped = _swap(_leave, signal.default_int_handler)
    try:
        yield
    finally:
        if swapped:
            _swap(signal.default_int_handler, _leave)


if _is_the_command():
    _swap(signal.default_int_handler, _leave)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse prints the whole usage."""
        self.exit(2, f"deblur: {' '.join(message.split())} (usage: {self.prog} --help)\n")


@contextmanager
def progress(what: str, enabled: bool) -> Any:
    """A callback for iterations that shows a bar on a terminal, and nothing in a pipe."""
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=what, unit=" iterations", leave=False) as bar:

        def callback(iteration: int, residual: float) -> None:
            bar.update(iteration - bar.n)
            bar.set_postfix_str(f"residual {residual:.1e}", refresh=False)

        yield callback


def report(text: str) -> None:
    """Print what was done. That nobody can read it does not undo it."""
    try:
        print(text, flush=True)
    except OSError as error:
        abandon_stdout()
        if not isinstance(error, BrokenPipeError):  # `deblur ... | head` is no mistake
            print(f"deblur: done, but stdout cannot be written: {error.strerror}", file=sys.stderr)


def abandon_stdout() -> None:
    """Keep Python from failing at its end, when it writes the rest of what stdout holds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

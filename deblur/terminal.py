"""How the command meets a terminal, a pipe and Ctrl-C.

`deblur/__init__.py` imports this before anything else, so that Ctrl-C while
the rest is imported ends the command with one line and code 130: this module
imports nothing that takes long. A program that imports deblur keeps its own
handling: only the command gets another.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from .progress import Progress, listening

_REDRAWN = 0.2  # seconds between two looks of the progress line
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


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Warnings given in here are said at the end, one line each."""
    from .errors import PSFWarning  # NumPy comes with it

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", PSFWarning)
        yield
    for text in dict.fromkeys(" ".join(str(one.message).split()) for one in told):
        print(f"deblur: warning: {text}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    #: Adds the arguments, once they are asked for: what a command imports for them no other command pays for.
    fill: Callable[[Parser], None] | None = None

    def filled(self) -> Parser:
        """Itself, with all its arguments."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        return self

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """As argparse has it."""
        self.filled()
        return super().parse_known_args(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """One line, where argparse prints the whole usage."""
        self.exit(2, f"deblur: {' '.join(message.split())} (usage: {self.prog} --help)\n")


def rows_by_columns(text: str) -> tuple[int, int]:
    """What an option such as ``5x7`` says; a single number says both."""
    rows, cross, columns = text.lower().partition("x")
    try:
        size = int(rows), int(columns if cross else rows)
    except ValueError:
        size = 0, 0
    if min(size) < 1:
        raise argparse.ArgumentTypeError(
            f"ROWSxCOLUMNS such as 15x17, or 15 for both, is needed, not {text!r}"
        )
    return size


class Shown(NamedTuple):
    """What shows how far the work is.

    `phase` names what is being done now, `after` says how many seconds of work follow what tells its own progress, and
    `iterated` is a callback for iterations.
    """

    phase: Callable[..., None]
    after: Callable[[float], None]
    iterated: Callable[[int, float], None] | None


@contextmanager
def progress(what: str, enabled: bool) -> Iterator[Shown]:
    """A line that moves from now on, with the phase and the time left, on a terminal; nothing in a pipe."""
    if not (enabled and sys.stderr.isatty()):
        yield Shown(lambda phase, left=None: None, lambda seconds: None, None)
        return
    line = _Line(what)
    line.start()
    try:
        with listening(line.told):
            yield Shown(line.phase, line.after, line.iterated)
    finally:
        line.end()


class _Line(threading.Thread):
    """Redraws the line several times a second, whatever the work is doing."""

    def __init__(self, what: str) -> None:
        super().__init__(daemon=True)
        self._what, self._phase, self._said = what, "begin", ""
        self._begun = self._told = time.monotonic()
        self._left: float | None = None
        self._after = 0.0
        self._ended = threading.Event()

    def phase(self, phase: str, left: float | None = None) -> None:
        """`left`: seconds predicted for all that is still to be done; without it what was predicted last holds on."""
        if left is not None:
            self._left, self._told = left, time.monotonic()
        self._phase, self._said = phase, ""

    def told(self, progress: Progress) -> None:
        """Of a restoration, which more work follows."""
        phase, left = progress
        self.phase(phase, None if left is None else left + self._after)

    def after(self, seconds: float) -> None:
        self._after = seconds

    def iterated(self, iteration: int, residual: float) -> None:
        self._said = f"{iteration} iterations, residual {residual:.1e}"

    def run(self) -> None:
        from tqdm import tqdm

        with tqdm(total=1.0, leave=False, bar_format="{desc} {percentage:3.0f} %|{bar}|{postfix}") as bar:
            while not self._ended.wait(_REDRAWN):
                now = time.monotonic()
                words = [f"{now - self._begun:.0f} s"]
                if self._left is not None:
                    left = max(self._left - (now - self._told), 0.0)
                    bar.n = (now - self._begun) / (now - self._begun + left + _REDRAWN)
                    words.append(f"about {left:.0f} s left" if left >= 1 else "almost done")
                bar.set_description_str(f"{self._what}: {self._phase}", refresh=False)
                bar.set_postfix_str(", ".join(filter(None, [*words, self._said])), refresh=False)
                bar.refresh()

    def end(self) -> None:
        self._ended.set()
        self.join()


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

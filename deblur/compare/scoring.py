"""Run one method on one case, verify its answer, time it, and measure the result.

The order is fixed. A method is not run if it is not installed, refuses the task, or would exceed memory or the time
limit; its row has the reason. Any other method chooses its parameter from the task, restores once (this answer is
verified and measured), is timed, and runs once more to measure memory. Only this module sees the truth. If the truth
determined a parameter, the row says "oracle".
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import math
import signal
import statistics
import textwrap
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from .. import metrics
from ..device import as_real, check_finite
from ..errors import MethodError
from ..operators.blur import Blur
from ..plot import cumulative_periodogram, thinned
from .adapters.base import Answer, Entrant, Setting, Watch
from .cases import Case, Task
from .findings import Row, Settings
from .store import shown

Pictures = dict[str, np.ndarray]


def measure(row: Row, case: Case, picture: np.ndarray) -> np.ndarray | None:
    """Fill in the row's measures of quality, and return the residual picture, averaged over colours, or None."""
    if case.truth is not None:
        row.mse = metrics.mse(case.truth, picture)
        row.psnr = metrics.psnr(case.truth, picture)
        before = metrics.psnr(case.truth, case.blurred)
        row.gain = row.psnr - before if math.isfinite(before) and math.isfinite(row.psnr) else None
        if min(picture.shape[:2]) >= 11:  # the window of SSIM
            row.ssim = metrics.ssim(case.truth, picture, channel_axis=-1 if picture.ndim == 3 else None)
    # Only pixels whose blur is inside the frame are measured. They depend on no boundary, so all methods are equal.
    rows, columns = (n - m + 1 for n, m in zip(picture.shape[:2], case.psf.shape, strict=True))
    if rows < case.psf.shape[0] or columns < case.psf.shape[1]:
        return None
    inner = Blur(case.psf, (rows, columns), "unknown")
    g, f = (np.moveaxis(np.atleast_3d(x), -1, 0) for x in (case.blurred, picture))
    g = g[:, *inner.crop]
    residual = g - inner.forward(np.ascontiguousarray(f))
    row.data_residual = float(np.linalg.norm(residual) / (np.linalg.norm(g) or 1.0))
    if min(residual.shape[-2:]) > 1 and float(np.ptp(residual)) > 0:
        _, share = cumulative_periodogram(residual)
        row.whiteness = float(np.abs(share[:, 0] - share[:, 1]).max())
    return residual.mean(axis=0)


def baseline(case: Case, key: str) -> tuple[Row, Pictures]:
    """Return the row of the blurred picture itself, which every method should beat, and its pictures."""
    row = Row(key, case.name, case.key, "blurred", "", case.boundary, setting="nothing done")
    return row, shown(key, case, case.blurred, measure(row, case, case.blurred))


def score(
    entrant: Entrant, case: Case, task: Task, key: str, settings: Settings, oracle: bool = False
) -> tuple[Row, Pictures]:
    """Return the row and the 8-bit pictures of one method on one case; an error of the method becomes the row's reason.

    The method sees only `task`. With `oracle` the search for its parameter uses the truth.
    """
    row = Row(key, case.name, case.key, entrant.name, entrant.family, case.boundary, parameter=entrant.parameter)
    row.how = "oracle" if oracle else ""
    pictures: Pictures = {}
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        try:
            missing = entrant.missing()
            if missing is None:
                pictures = _scored(row, entrant, case, task, settings)
            else:
                row.status, row.reason = "not installed", missing
        except TooSlow as stopped:
            row.status = "too slow"
            row.reason = f"{stopped}; allow more (--time-limit) or take a smaller picture (--size)"
        except (MethodError, MemoryError) as error:
            row.status, row.reason = "refused", _one_line(error)
        except (Exception, SystemExit) as error:  # other packages may raise anything
            row.status, row.reason = "failed", f"{type(error).__name__}: {_one_line(error) or 'no message'}"
    if warned:
        row.note = "; ".join(filter(None, [row.note, f"warned: {_one_line(warned[0].message)}"]))
    return row, pictures


def _one_line(message: object) -> str:
    return textwrap.shorten(str(message), 300, placeholder="…")


def _scored(row: Row, entrant: Entrant, case: Case, task: Task, settings: Settings) -> Pictures:
    """Fill in the row, and return its pictures."""
    task = _with_boundary(row, entrant, task, settings)
    if row.how == "oracle":
        setting = _oracle(entrant, case, task, settings)
    else:
        with time_limit(2 * settings.time_limit, "choosing its parameter"):
            setting = entrant.choose(task)
    row.value, row.how, row.setting = setting.value, setting.how, setting.reason
    row.choose_s, row.curve = setting.seconds, setting.curve
    seconds = entrant.predicted(task, setting.value)
    limit = settings.time_limit
    if seconds is not None and seconds > limit:
        raise TooSlow(f"not run: its predicted time of {seconds:.2g} s exceeds the time limit of {limit:g} s")

    def watch(iteration: int, residual: float) -> None:
        if math.isfinite(residual):
            row.history.append((int(iteration), float(residual)))

    with time_limit(limit, "restoring"):  # the warm-up
        answer, first = _run(entrant, task, row.value, watch)
    row.history = [row.history[i] for i in thinned(len(row.history), 200)]
    row.iterations, row.residual, row.note = answer.iterations, answer.residual, answer.note
    residual = measure(row, case, answer.image)
    _timed(row, entrant, task, settings, first)
    if settings.memory and sum(first) <= settings.time_limit / 4:
        row.peak_bytes = peak_bytes(lambda: entrant.prepare(task, setting.value)(task.blurred.copy()))
    return shown(row.key, case, answer.image, residual)


def _with_boundary(row: Row, entrant: Entrant, task: Task, settings: Settings) -> Task:
    """Return the task with a boundary that the method can assume; raise MethodError if there is none."""
    reason = entrant.refuses(task)
    if reason is None:
        return task
    other = replace(task, boundary=entrant.own_boundary or task.boundary)
    if settings.other_boundary == "refuse" or entrant.refuses(other) is not None:
        raise MethodError(reason)
    row.assumes = other.boundary
    return other


def _run(
    entrant: Entrant, task: Task, value: float | None, watch: Watch | None = None
) -> tuple[Answer, tuple[float, float]]:
    """Return a verified answer, and the seconds of set-up and of solve."""
    g = task.blurred.copy()
    start = time.perf_counter()
    solver = entrant.prepare(task, value, watch)
    middle = time.perf_counter()
    answer = solver(g)
    end = time.perf_counter()
    picture = as_real(answer.image, "its answer", np.float64)
    if picture.shape != task.blurred.shape:
        raise ValueError(f"it returned shape {picture.shape} for a picture of shape {task.blurred.shape}")
    check_finite(picture, "its answer", "only finite numbers are measured")
    if not np.array_equal(g, task.blurred):
        raise ValueError("it changed the picture that it received")
    return replace(answer, image=picture), (middle - start, end - middle)


def _timed(row: Row, entrant: Entrant, task: Task, settings: Settings, first: tuple[float, float]) -> None:
    """Fill in the medians of set-up and solve over the timed runs, which together take about half the time limit."""
    runs: list[tuple[float, float]] = []
    while len(runs) < settings.repeats and sum(map(sum, [first, *runs])) <= settings.time_limit / 2:
        runs.append(_run(entrant, task, row.value)[1])
    row.runs = len(runs)
    if not runs:
        row.note = "; ".join(filter(None, [row.note, "timed once, without a warm-up"]))
    setup, solve = zip(*(runs or [first]), strict=True)
    row.setup_s, row.solve_s = statistics.median(setup), statistics.median(solve)
    row.solve_min_s, row.solve_max_s = min(solve), max(solve)


def _oracle(entrant: Entrant, case: Case, task: Task, settings: Settings) -> Setting:
    """Return the parameter with the smallest MSE, found by a search on a logarithmic scale."""
    assert entrant.search is not None
    tried: dict[float, float] = {}
    failures: list[Exception] = []
    start = time.perf_counter()

    def error(log: float) -> float:
        if time.perf_counter() - start > 2 * settings.time_limit:
            raise TimeoutError
        value = float(np.rint(np.exp(log)) if entrant.whole else np.exp(log))
        if value not in tried:
            try:
                with time_limit(settings.time_limit, "restoring"):
                    answer, _ = _run(entrant, task, value)
                tried[value] = metrics.mse(case.truth, answer.image)
            except Exception as failure:  # another value may work
                failures.append(failure)
        return tried.get(value, math.inf)

    with contextlib.suppress(TimeoutError):
        _search(error, list(np.log(np.geomspace(*entrant.search, 8))))
    if not tried:
        raise ValueError("; ".join(["no value of its parameter gave a picture", *map(str, failures[:1])]))
    best = min(tried, key=tried.__getitem__)
    reason = f"the best of {len(tried)} values, found with the truth, which no user has"
    return Setting(best, "oracle", reason, time.perf_counter() - start)


def _search(error: Callable[[float], float], grid: list[float]) -> None:
    """Call `error` on the grid, beyond the grid if the minimum is at its end, and then around the minimum."""
    found, step = {x: error(x) for x in grid}, grid[1] - grid[0]
    for end, by in ((min, -step), (max, step)):
        while found[at := end(found)] < min(value for x, value in found.items() if x != at):
            found[at + by] = error(at + by)
    grid = sorted(found)
    at = grid.index(min(grid, key=found.__getitem__))
    around = (grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)])
    scipy.optimize.minimize_scalar(error, bounds=around, method="bounded", options={"maxiter": 8})


# -- time and memory -----------------------------------------------------------------------------


class TooSlow(BaseException):
    """Raised when the time limit has passed. It is not an `Exception`, so that a method does not catch it
    by accident.
    """


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raise `TooSlow` after `seconds` if the system can, which is on Unix in the main thread.

    A running call of compiled code ends first.
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


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak memory of some work in bytes, above the memory at its beginning.

    NumPy's allocations are traced. On Linux the resident set of the process counts, too, to include compiled libraries.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # return freed pages to the system; glibc only
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = None
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        before = _status_bytes("VmRSS")
    tracemalloc.start()
    try:
        work()
        traced = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return traced if before is None else max(traced, _status_bytes("VmHWM") - before)


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

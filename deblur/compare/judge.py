"""The judge: runs one method on one case, checks its answer, then times it, and measures everything itself.

The order is fixed. A method that is not installed, refuses, or would not fit
memory or the time limit is not run, and its row says why. The others choose
their parameter from what they are shown, restore once (that answer is checked
and judged), are timed, and run once more with memory measured. Only the judge
sees the truth; where its eyes were used to set a parameter the row says
"oracle".
"""

from __future__ import annotations

import contextlib
import io
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from .. import metrics
from ..device import Array
from ..errors import ConvergenceError, MethodError
from ..operators.blur import Blur
from ..plot import cumulative_periodogram
from .adapters.base import Answer, Contestant, Setting, reason_alone
from .cases import Case, Task
from .findings import Row, Settings
from .limits import Peak, TooSlow, time_limit

#: How many restorations' time choosing a parameter may take.
_CHOOSING = 2


# ---------------------------------------------------------------------------------------------
# Measures
# ---------------------------------------------------------------------------------------------


def inner_residual(case: Case, picture: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """g and g − h * f on the pixels whose blur lies wholly inside the frame; None where there is none.

    It needs no assumption about what lies beyond the frame, so it judges every method alike.
    """
    rows, columns = (n - m + 1 for n, m in zip(picture.shape[:2], case.psf.shape, strict=True))
    if rows < case.psf.shape[0] or columns < case.psf.shape[1]:
        return None
    inner = Blur(case.psf, (rows, columns), "unknown")
    g = case.blurred[inner.crop]
    if picture.ndim == 2:
        return g, g - inner.forward(picture)
    channels = [inner.forward(picture[..., c]) for c in range(picture.shape[-1])]
    return g, g - np.stack(channels, axis=-1)


def measure(row: Row, case: Case, picture: np.ndarray) -> np.ndarray | None:
    """Fill in the row's measures of quality; returns the residual picture, if there is one."""
    if case.truth is not None:
        colour = -1 if picture.ndim == 3 else None
        row.mse = metrics.mse(case.truth, picture)
        row.psnr = metrics.psnr(case.truth, picture)
        before = metrics.psnr(case.truth, case.blurred)
        row.gain = row.psnr - before if math.isfinite(before) and math.isfinite(row.psnr) else None
        row.ssim = (
            metrics.ssim(case.truth, picture, channel_axis=colour) if min(picture.shape[:2]) >= 11 else None
        )
    inner = inner_residual(case, picture)
    if inner is None:
        return None
    g, residual = inner
    data = float(np.linalg.norm(g))
    row.misfit = float(np.linalg.norm(residual)) / (data or 1.0)
    frames = residual if residual.ndim == 2 else np.moveaxis(residual, -1, 0)
    if min(frames.shape[-2:]) > 1 and float(np.ptp(residual)) > 0:
        _, share = cumulative_periodogram(frames)
        row.whiteness = float(np.abs(share[:, 0] - share[:, 1]).max())
    return residual


# ---------------------------------------------------------------------------------------------
# One row
# ---------------------------------------------------------------------------------------------


@dataclass
class Judged:
    """A row with the pictures that belong to it."""

    row: Row
    restored: np.ndarray | None = None
    residual: np.ndarray | None = None


class _Refused(Exception):
    """Ends a row before it ran: (status, reason)."""


def baseline(case: Case, key: str) -> Judged:
    """The row of the blurred picture itself, which every method must beat."""
    row = Row(key, case.name, case.key, "blurred", "", case.boundary, setting="nothing done")
    return Judged(row, case.blurred, measure(row, case, case.blurred))


def judge(
    contestant: Contestant, case: Case, task: Task, key: str, settings: Settings, oracle: bool = False
) -> Judged:
    """Run one method on one case; whatever it does, a row comes back.

    `task` is what the method is shown of the case. With `oracle` its parameter is looked for with the truth.
    """
    row = Row(
        key, case.name, case.key, contestant.name, contestant.family, case.boundary,
        parameter=contestant.parameter, how="oracle" if oracle else "",
    )  # fmt: skip
    told: list[warnings.WarningMessage] = []
    try:
        with _quiet(told):
            judged = _run(row, contestant, case, task, settings, oracle)
    except _Refused as end:
        row.status, row.reason = end.args
        judged = Judged(row)
    except TooSlow as stopped:
        row.status = "too slow"
        row.reason = f"{stopped}; allow more (--time-limit) or take a smaller picture (--size)"
        judged = Judged(row)
    except MethodError as error:
        row.status, row.reason = "refused", _one_line(reason_alone(error))
        judged = Judged(row)
    except (Exception, SystemExit) as error:  # whatever other people's code raises
        row.status, row.reason = "failed", _in_words(error)
        judged = Judged(row)
    if told:
        first = f"warned: {_one_line(str(told[0].message))}"
        row.note = f"{row.note}; {first}" if row.note else first
    return judged


@contextlib.contextmanager
def _quiet(told: list[warnings.WarningMessage]) -> Iterator[None]:
    """Methods may print and warn; what they print is dropped and the first warning kept for the row."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        try:
            yield
        finally:
            told.extend(caught)


def _in_words(error: BaseException) -> str:
    text = _one_line(str(error)) or "no message"
    return text if isinstance(error, ConvergenceError) else f"{type(error).__name__}: {text}"


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:299] + "…"


def _run(
    row: Row, contestant: Contestant, case: Case, task: Task, settings: Settings, oracle: bool
) -> Judged:
    missing = contestant.missing()
    if missing is not None:
        raise _Refused("not installed", missing)
    task = _with_boundary(row, contestant, task, settings)
    if oracle:
        setting = _oracle(contestant, case, task, settings)
    else:
        with time_limit(_CHOOSING * settings.time_limit, "choosing its parameter"):
            setting = contestant.choose(task)
    row.value, row.how, row.setting = setting.value, setting.how, setting.reason
    row.choose_s, row.curve = setting.seconds, setting.curve
    _check_cost(contestant, task, setting.value, settings)

    answer, first = _verified(row, contestant, task, setting.value, settings)
    picture = np.asarray(answer.image, dtype=np.float64)
    row.iterations, row.residual, row.note = answer.iterations, answer.residual, answer.note
    residual = measure(row, case, picture)
    _timed(row, contestant, task, setting.value, settings, first)
    if settings.memory and sum(first) <= settings.time_limit / 4:
        with Peak() as peak:
            contestant.prepare(task, setting.value)(task.blurred.copy())
        row.peak_bytes = peak.bytes
    return Judged(row, picture, residual)


def _with_boundary(row: Row, contestant: Contestant, task: Task, settings: Settings) -> Task:
    """The task with a boundary that the method can assume, or the reason why there is none."""
    reason = contestant.refuses(task)
    if reason is None:
        return task
    own = contestant.own_boundary
    if own is not None and own != task.boundary and settings.other_boundary == "own":
        other = replace(task, boundary=own)
        if contestant.refuses(other) is None:
            row.assumes = own
            return other
    raise _Refused("refused", reason)


def _check_cost(contestant: Contestant, task: Task, value: float | None, settings: Settings) -> None:
    try:
        seconds = contestant.predicted(task, value)
    except MemoryError as error:
        raise _Refused("refused", _one_line(str(error))) from None
    if seconds is not None and seconds > settings.time_limit:
        raise _Refused(
            "too slow",
            f"not run: it would take about {seconds:.2g} s by the cost model, more than the time limit of "
            f"{settings.time_limit:g} s (--time-limit)",
        )


def _verified(
    row: Row, contestant: Contestant, task: Task, value: float | None, settings: Settings
) -> tuple[Answer, tuple[float, float]]:
    """The first answer, checked, and the (set-up, solve) seconds it took: the warm-up."""
    g = task.blurred.copy()
    with time_limit(settings.time_limit, "restoring"):
        start = time.perf_counter()
        solver = contestant.prepare(task, value, lambda i, r: row.history.append((int(i), float(r))))
        middle = time.perf_counter()
        answer = solver(g)
        end = time.perf_counter()
    picture: Array = np.asarray(answer.image)
    if picture.shape != task.blurred.shape:
        raise ValueError(f"it returned shape {picture.shape} for a picture of shape {task.blurred.shape}")
    if picture.dtype.kind not in "biuf":
        raise TypeError(f"it returned {picture.dtype}, not real numbers")
    wrong = int(np.count_nonzero(~np.isfinite(picture)))
    if wrong:
        raise ValueError(f"its answer holds {wrong} values that are NaN or infinite")
    if not np.array_equal(g, task.blurred):
        raise ValueError("it changed the picture that it was given")
    row.history = _thinned([point for point in row.history if math.isfinite(point[1])])
    return answer, (middle - start, end - middle)


def _thinned(history: list[tuple[int, float]], most: int = 200) -> list[tuple[int, float]]:
    if len(history) <= most:
        return history
    return [history[i] for i in np.unique(np.linspace(0, len(history) - 1, most).astype(int))]


def _timed(
    row: Row,
    contestant: Contestant,
    task: Task,
    value: float | None,
    settings: Settings,
    first: tuple[float, float],
) -> None:
    """Medians of set-up and solve over the timed runs, which may take half the time limit together."""
    spent = 0.0
    runs: list[tuple[float, float]] = []
    while len(runs) < settings.repeats and spent + sum(first) <= settings.time_limit / 2:
        g = task.blurred.copy()
        start = time.perf_counter()
        solver = contestant.prepare(task, value)
        middle = time.perf_counter()
        solver(g)
        end = time.perf_counter()
        runs.append((middle - start, end - middle))
        spent += end - start
    row.runs = len(runs)
    if not runs:
        row.note = "; ".join(filter(None, [row.note, "timed once, without a warm-up, as it takes long"]))
    setup, solve = zip(*(runs or [first]), strict=True)
    row.setup_s, row.solve_s = statistics.median(setup), statistics.median(solve)
    row.solve_min_s, row.solve_max_s = min(solve), max(solve)


def _oracle(contestant: Contestant, case: Case, task: Task, settings: Settings) -> Setting:
    """The parameter with the smallest MSE, by a grid and then a golden section in its logarithm."""
    assert contestant.search is not None
    assert case.truth is not None
    truth = case.truth
    tried: dict[float, float] = {}
    failures: list[Exception] = []
    start = time.perf_counter()

    def error(log: float) -> float:
        value = float(np.exp(log))
        value = float(round(value)) if contestant.whole else value
        if value not in tried:
            try:
                with time_limit(settings.time_limit, "restoring"):
                    picture = np.asarray(contestant.prepare(task, value)(task.blurred.copy()).image)
                tried[value] = float(((picture - truth) ** 2).mean())
            except Exception as failure:  # another value may do
                failures.append(failure)
        return tried.get(value, math.inf)

    low, high = (math.log(end) for end in contestant.search)
    grid = np.linspace(low, high, 8)
    _search(error, list(grid), budget=lambda: time.perf_counter() - start < 2 * settings.time_limit)
    finite = {value: e for value, e in tried.items() if math.isfinite(e)}
    if not finite:
        raise ValueError(
            "no value of its parameter gave a picture" + (f": {failures[0]}" if failures else "")
        )
    best = min(finite, key=finite.__getitem__)
    return Setting(
        best, "oracle", f"the best of {len(tried)} values, found with the truth: no one could know it",
        time.perf_counter() - start,
    )  # fmt: skip


def _search(error: Callable[[float], float], grid: list[float], budget: Callable[[], bool]) -> None:
    """Call `error` on the grid, beyond the end of it where the least lies there, and then around the least."""
    values = []
    for x in grid:
        if not budget():
            return
        values.append(error(x))
    step = grid[1] - grid[0]
    while values[0] < min(values[1:]) and budget():
        grid, values = [grid[0] - step, *grid], [error(grid[0] - step), *values]
    while values[-1] < min(values[:-1]) and budget():
        grid, values = [*grid, grid[-1] + step], [*values, error(grid[-1] + step)]
    at = int(np.argmin(values))
    a, b = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    ratio = (math.sqrt(5) - 1) / 2
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    for _ in range(6):
        if not budget():
            return
        if error(c) < error(d):
            b, d = d, c
            c = b - ratio * (b - a)
        else:
            a, c = c, d
            d = a + ratio * (b - a)

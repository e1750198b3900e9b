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
import ctypes
import gc
import io
import math
import signal
import statistics
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from .. import metrics
from ..backend import Array
from ..blur import Blur
from ..errors import ConvergenceError, MethodError
from ..plot import cumulative_periodogram
from .adapters.base import Answer, Contestant, Setting
from .cases import Case, Task

#: What a row can end as. Only "ok" rows have figures.
STATUSES = ("ok", "refused", "not installed", "failed", "too slow")


@dataclass
class Row:
    """One method on one case: what it was asked, how it ended and what was measured.

    Attributes
    ----------
    key : str
        Changes with everything that can change the result.
    case, case_key : str
        The case, in words and by its key.
    method, family : str
    assumes : str
        The boundary that the method assumed; it may be another than the case's.
    status : str
        One of `STATUSES`.
    reason : str
        Why it did not run or failed, and what to try; empty for "ok".
    parameter, how, setting : str
        What its parameter is called; how its value was found ("rule", "given", "default", "automatic" or
        "oracle", which alone has seen the truth); the sentence that says it.
    value : float or None
    mse, psnr, ssim, gain : float or None
        Against the truth, unclipped; `gain` is the PSNR less that of the blurred picture, in dB. None without a truth.
    misfit : float or None
        ‖g − h * f‖ / ‖g‖ where the blur needs nothing beyond the frame: the same for every method and boundary.
    whiteness : float or None
        Largest distance between the cumulative periodograms of that residual and of white noise; 0 is white.
    residual : float or None
        Relative residual of the linear system solved, for deblur's linear methods.
    iterations : int or None
    choose_s, setup_s, solve_s : float or None
        Seconds to choose the parameter (once), to set up, and to solve: medians over `runs`.
    solve_min_s, solve_max_s : float or None
        Their spread.
    runs : int
        Timed runs after the warm-up; 0 if the first run alone reached the time limit.
    peak_bytes : int or None
        Most memory held at once, of what NumPy counts and what the system saw the process grow by.
    note : str
    history : list of (int, float)
        What an iterative method reported as it went: iterations, residual.
    curve : dict or None
        L-curve of the rule that chose λ.
    session : int
        Which of the record's machines and times measured it.
    """

    key: str
    case: str
    case_key: str
    method: str
    family: str
    assumes: str
    status: str = "ok"
    reason: str = ""
    parameter: str = ""
    how: str = ""
    setting: str = ""
    value: float | None = None
    mse: float | None = None
    psnr: float | None = None
    ssim: float | None = None
    gain: float | None = None
    misfit: float | None = None
    whiteness: float | None = None
    residual: float | None = None
    iterations: int | None = None
    choose_s: float | None = None
    setup_s: float | None = None
    solve_s: float | None = None
    solve_min_s: float | None = None
    solve_max_s: float | None = None
    runs: int = 0
    peak_bytes: int | None = None
    note: str = ""
    history: list[tuple[int, float]] = field(default_factory=list)
    curve: dict[str, Any] | None = None
    session: int = 0

    @property
    def label(self) -> str:
        """The method, and whether the truth has set its parameter."""
        return f"{self.method} (oracle {self.parameter})" if self.how == "oracle" else self.method

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Settings:
    """How a comparison is run.

    Attributes
    ----------
    lam : float or str
        λ, or the rule for it, of the methods that take one.
    other_boundary : {"own", "refuse"}
        What happens to a method that cannot assume the case's boundary: it is run on the same picture with
        the one it has, and the row says so, or it is shown as refused.
    oracle : bool
        Add rows whose parameter is the best in hindsight, found with the truth.
    time_limit : float
        Seconds that one restoration may take, set-up included; choosing the parameter, which takes several, may
        take twice that.
    repeats : int
        Timed runs after the warm-up.
    memory : bool
        Run once more to measure memory.
    seed : int
        Of the noise in the pictures; for the record.
    """

    lam: float | str = "gcv"
    other_boundary: str = "own"
    oracle: bool = False
    time_limit: float = 20.0
    repeats: int = 3
    memory: bool = True
    seed: int = 0


#: How many restorations' time choosing a parameter may take.
_CHOOSING = 2


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


# ---------------------------------------------------------------------------------------------
# Measures
# ---------------------------------------------------------------------------------------------


def inner_residual(case: Case, picture: np.ndarray) -> np.ndarray | None:
    """g − h * f on the pixels whose blur lies wholly inside the frame; None where there is none.

    It needs no assumption about what lies beyond the frame, so it judges every method alike.
    """
    rows, columns = (n - m + 1 for n, m in zip(picture.shape[:2], case.psf.shape, strict=True))
    if rows < case.psf.shape[0] or columns < case.psf.shape[1]:
        return None
    inner = Blur(case.psf, (rows, columns), "unknown")

    def one(g: np.ndarray, f: np.ndarray) -> np.ndarray:
        return g[inner.crop] - inner.forward(f)

    if picture.ndim == 2:
        return one(case.blurred, picture)
    return np.stack([one(case.blurred[..., c], picture[..., c]) for c in range(picture.shape[-1])], axis=-1)


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
    residual = inner_residual(case, picture)
    if residual is not None:
        data = float(np.linalg.norm(case.blurred[_inside(case, residual)]))
        row.misfit = float(np.linalg.norm(residual)) / data if data else float(np.linalg.norm(residual))
        frames = residual if residual.ndim == 2 else np.moveaxis(residual, -1, 0)
        if min(frames.shape[-2:]) > 1 and float(np.ptp(residual)) > 0:
            _, share = cumulative_periodogram(frames)
            row.whiteness = float(np.abs(share[:, 0] - share[:, 1]).max())
    return residual


def _inside(case: Case, residual: np.ndarray) -> tuple[slice, slice]:
    return Blur(case.psf, residual.shape[:2], "unknown").crop


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
    """Run one method on one case. Whatever the method does, a row comes back.

    Parameters
    ----------
    contestant : Contestant
    case : Case
    task : Task
        What the method is shown of it.
    key : str
        The row's key.
    settings : Settings
    oracle : bool
        Look for the best parameter with the truth, and say so.

    Returns
    -------
    Judged
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
        row.status, row.reason = (
            "refused",
            _one_line(str(error).partition("cannot serve here: ")[2] or str(error)),
        )
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
    values = []
    for x in grid:
        if not budget():
            return
        values.append(error(x))
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

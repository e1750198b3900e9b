"""Shared by every benchmark: the record of the machine, timing in turns, tables, and the results file.

A script measures and calls `save`, which prints its tables and writes ``benchmarks/results/<name>.json``: environment,
settings, raw results, and the tables as text. ``render.py`` copies the tables into README.md and docs/. No figure is
typed by hand.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import os
import re
import statistics
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT))  # a benchmark measures this checkout, whatever else is installed

from deblur.compare import record  # noqa: E402

PACKAGES = ("cupy-cuda12x", "cupy-cuda13x", "torch", "jax", "jaxlib")


# ---------------------------------------------------------------- the record


def environment() -> dict[str, Any]:
    """Hardware, versions, threads and commit: what a reader needs to judge or repeat a figure.

    The commit measured is ``DEBLUR_COMMIT`` where set (a copy without .git), else git's HEAD.
    """
    found = record.environment(PACKAGES) | {"gpu": _gpu()}
    if "DEBLUR_COMMIT" in os.environ:
        found |= {"commit": os.environ["DEBLUR_COMMIT"], "uncommitted_changes": None}
    return found


def _gpu() -> dict[str, Any] | None:
    """The current CUDA device as CuPy sees it; None where there is none."""
    try:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    except Exception:  # no CuPy, no driver, no device: all mean no GPU here
        return None
    runtime = cupy.cuda.runtime
    return {
        "name": properties["name"].decode(),
        "memory_bytes": int(properties["totalGlobalMem"]),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "cuda_driver": runtime.driverGetVersion(),
        "cuda_runtime": runtime.runtimeGetVersion(),
        "driver": _first_line(record.output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")),
        "cupy": cupy.__version__,
    }


def _first_line(text: str | None) -> str | None:
    """Of what is said once for each GPU."""
    return text.splitlines()[0] if text else None


# ---------------------------------------------------------------- timing


def time_together(
    contestants: Mapping[str, Callable[[], object]],
    *,
    repeats: int = 7,
    warmup: int = 1,
    synchronize: Callable[[], object] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """Seconds of each contestant, measured in turns.

    Taking turns lets a change of the machine's load fall on all alike, so that ratios mean
    something on a shared machine.

    Parameters
    ----------
    contestants : mapping of str to callable
        Called without arguments. Anything not to be timed belongs outside.
    repeats, warmup : int
        Timed and untimed rounds.
    synchronize : callable
        Called before each clock reading; a GPU needs it.

    Returns
    -------
    dict
        Name to ``{"median_s", "min_s", "max_s", "all_s"}``.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warmup + repeats):
        for name, call in contestants.items():
            synchronize()
            start = time.perf_counter()
            call()
            synchronize()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: summary(all_s) for name, all_s in seconds.items()}


def time_on_gpu(
    contestants: Mapping[str, Callable[[], object]], *, repeats: int = 5, warmup: int = 3
) -> dict[str, dict[str, Any]]:
    """`time_together` on the current GPU, with what part of it is whose.

    Beside the seconds on the wall each contestant gets ``device_s``, from the first of its work that begins on the
    device to the last that ends there (by events on the legacy stream, for which all others wait), and ``host_s``,
    until the call comes back; both are medians.
    """
    import cupy

    wait = cupy.cuda.Device().synchronize
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contestants}
    for turn in range(warmup + repeats):
        for name, call in contestants.items():
            first, last = cupy.cuda.Event(), cupy.cuda.Event()
            wait()
            start = time.perf_counter()
            first.record(cupy.cuda.Stream.null)
            call()
            host = time.perf_counter() - start
            last.record(cupy.cuda.Stream.null)
            wait()
            if turn >= warmup:
                wall = time.perf_counter() - start
                rows[name].append((wall, 1e-3 * cupy.cuda.get_elapsed_time(first, last), host))
    found = {}
    for name, measured in rows.items():
        wall_s, device_s, host_s = zip(*measured)
        found[name] = summary(wall_s) | {"device_s": statistics.median(device_s), "host_s": statistics.median(host_s)}
    return found


def gpu_rates(dtype: str, n: int = 8192) -> dict[str, float]:
    """What floors are made of, measured now: operations a second of a product n x n x n by each engine that is in use
    for `dtype`, and bytes a second (read and written) of a copy.
    """
    import cupy

    from deblur.linalg.matmul_gpu import gemm

    a, b = cupy.random.default_rng(n).standard_normal((2, n, n), dtype=dtype)
    c = cupy.empty_like(a)
    engines = ("cublas", "split", "half") if dtype == "float32" else ("cublas",)
    calls: dict[str, Callable[[], object]] = {
        engine: functools.partial(gemm, a, b, c, engine=engine) for engine in engines
    }
    times = time_on_gpu(calls | {"copy": functools.partial(cupy.copyto, c, a)})
    rates = {engine: 2 * n**3 / times[engine]["device_s"] for engine in engines}
    return rates | {"copy": 2 * c.nbytes / times["copy"]["device_s"]}


@contextmanager
def slowed_host() -> Iterator[int]:
    """All threads of this process on one core, which another busy process shares; yields the core's number.

    What a program costs the host then counts for twice as much and more: a device that waits for launches shows it.
    """
    tasks = [int(name) for name in os.listdir("/proc/self/task")]
    before = {task: os.sched_getaffinity(task) for task in tasks}
    core = max(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for task in (busy.pid, *tasks):
            os.sched_setaffinity(task, {core})
        yield core
    finally:
        busy.kill()
        busy.wait()
        for task, cores in before.items():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(task, cores)


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """Median and spread of timings in seconds."""
    return {
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "max_s": max(seconds),
        "all_s": list(seconds),
    }


def losses(decibels: Any) -> dict[str, float]:
    """Median, 95th percentile and worst of losses in dB."""
    median, most = (float(x) for x in np.percentile(decibels, (50, 95)))
    return {"median_loss_db": median, "loss_db_95th_percentile": most, "worst_loss_db": float(np.max(decibels))}


# ---------------------------------------------------------------- running


def parser(description: str) -> argparse.ArgumentParser:
    """A parser that shows the module's docstring as it is."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def asked(description: str, **defaults: Any) -> argparse.Namespace:
    """The options of the command line, by their defaults: False is a flag, a tuple a choice of its words, None a whole
    number that is not given; other numbers are of their own type.
    """
    arguments = parser(description)
    for name, default in defaults.items():
        how: dict[str, Any] = {"type": int if default is None else type(default)}
        if default is False:
            how = {"action": "store_true"}
        elif isinstance(default, tuple):
            how = {"nargs": "+", "choices": default}
        arguments.add_argument("--" + name.replace("_", "-"), default=default, **how)
    return arguments.parse_args()


def answer_of(*arguments: str, **environ: str) -> Any:
    """The last line, as JSON, that a Python of its own prints with these arguments."""
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | environ, stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def each(function: Callable[..., Any], work: Sequence[tuple[Any, ...]], workers: int | None = None) -> list[Any]:
    """``function(*arguments)`` for every item of `work`, in `workers` new processes, by default one for each core.

    Several processes have one BLAS thread each. One worker means this process.
    """
    from tqdm import tqdm

    workers = workers or os.cpu_count() or 1
    if workers == 1:
        return [function(*arguments) for arguments in tqdm(work, disable=None)]
    for variable in record.THREAD_VARIABLES:
        os.environ[variable] = "1"
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(function, *arguments) for arguments in work]
        return [future.result() for future in tqdm(waiting, disable=None)]


# ---------------------------------------------------------------- tables and results


class _Cells(string.Formatter):
    """Templates such as ``"{times[ours][median_s]:ms}"`` filled from one row of results.

    Beside Python's formats: ``ms`` (seconds as milliseconds, three digits), ``sci`` (one digit and exponent), ``.1p``
    (a share in per cent). A value that is missing, None or NaN becomes a dash.
    """

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        value = kwargs
        for key in re.findall(r"[^\[\]]+", field_name):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "–"
        if format_spec == "ms":
            ms = 1e3 * value
            return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"
        if format_spec == "sci":
            return f"{value:.0e}".replace("e-0", "e-")
        share = format_spec.endswith("p")
        return f"{100 * value:{format_spec[:-1]}f} %" if share else format(value, format_spec)


def table(title: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], notes: str = "") -> dict[str, Any]:
    """A table in the form that results files hold: {"title", "columns", "rows", "notes"}.

    Parameters
    ----------
    title, notes : str
        Markdown paragraphs before and after the table.
    columns : mapping
        Heading to a template of the cell, filled from a row of `rows`: see `_Cells`.
    """
    cells = [[_Cells().vformat(template, (), row) for template in columns.values()] for row in rows]
    return {"title": title, "columns": list(columns), "rows": cells, "notes": notes}


def show(tables: Sequence[Mapping[str, Any]]) -> None:
    """Print tables as aligned columns."""
    for found in tables:
        lines = [found["columns"], *found["rows"]]
        widths = [max(map(len, column)) for column in zip(*lines)]
        print(f"\n{found['title']}\n")
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        print(found["notes"])


def load(name: str) -> dict[str, Any]:
    """A results file as it is recorded; empty results where there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"settings": {}, "results": {}}


def measured_before(name: str, parts: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Results of an earlier run in results/<name>.json, and the commit of each of its parts that is of another one."""
    stored, now = load(name), environment()["commit"]
    if not stored["results"]:
        return {}, {}
    kept = dict.fromkeys(parts, stored["environment"]["commit"]) | stored["settings"].get("kept", {})
    return stored["results"], {part: commit for part, commit in kept.items() if commit != now}


def save(
    name: str,
    results: object,
    tables: Sequence[Mapping[str, Any]] = (),
    summary: str = "",
    *,
    write: bool = True,
    **settings: Any,
) -> None:
    """Print the tables and write ``benchmarks/results/<name>.json``.

    Parameters
    ----------
    results : object
        The raw figures, as JSON can hold them.
    tables : sequence
        Of `table`: what the documentation shows.
    summary : str
        One Markdown sentence with the main figures, for lists.
    write : bool
        False only prints.
    **settings
        Sizes, seeds and repeats; under ``kept`` the commit of each part that was not measured in this run.
    """
    show(tables)
    if not write:
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    shown = {"script": Path(sys.argv[0]).name, "tables": list(tables), "summary": summary}
    found = {"environment": environment(), "settings": settings, **shown, "results": results}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"written: {path}")

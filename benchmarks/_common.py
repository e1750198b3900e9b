"""What every benchmark script shares: the record of the machine, fair timing, and the results file.

A script under ``benchmarks/`` prints a table and writes ``benchmarks/results/<name>.json`` through
`save`. Figures anywhere else in the project are read from those files, never typed.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
        "driver": _first_line(
            record.output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        ),
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
        found[name] = summary(wall_s) | {
            "device_s": statistics.median(device_s),
            "host_s": statistics.median(host_s),
        }
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


# ---------------------------------------------------------------- cases side by side


def side_by_side(workers: int | None = None) -> ProcessPoolExecutor:
    """A pool of so many new processes, by default one for each core; several have one thread each."""
    workers = workers or os.cpu_count() or 1
    if workers > 1:
        for variable in record.THREAD_VARIABLES:
            os.environ[variable] = "1"
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))


# ---------------------------------------------------------------- output


def print_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Print `rows` as aligned columns, with the keys of the first row as the header."""
    header = list(rows[0])
    cells = [header, *([_text(row[key]) for key in header] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def measured_before(name: str, parts: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Results of an earlier run in results/<name>.json, and the commit of each of its parts that is of another one."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}, {}
    stored, now = json.loads(path.read_text(encoding="utf-8")), environment()["commit"]
    kept = dict.fromkeys(parts, stored["environment"]["commit"]) | stored["settings"].get("kept", {})
    return stored["results"], {part: commit for part, commit in kept.items() if commit != now}


def save(name: str, results: object, **settings: Any) -> Path:
    """Write ``benchmarks/results/<name>.json``: environment, settings and results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    record = {"environment": environment(), "settings": settings, "results": results}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path

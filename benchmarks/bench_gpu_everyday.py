"""Milliseconds of the everyday methods on a GPU, beside the least that their transforms and passes cost there.

    python benchmarks/bench_gpu_everyday.py                    writes benchmarks/results/gpu_everyday.json
    python benchmarks/bench_gpu_everyday.py --cpu              only prints the CPU's column, with the cores it has
    python benchmarks/bench_gpu_everyday.py --first            writes benchmarks/results/first_calls.json

"cold" is a whole `deblur.solve` with a PSF and an image that were not seen before, in a warm process; "kept" a
`Deblurrer` that has its factor. The device is waited for at both ends. "device" is how long the device is busy in
either, and "launches" how much it is given to do, both by CUPTI through PyTorch where that is installed; the rest of
the time, "host", the device waits for Python. The floor is measured in the same run: cuFFT's real transforms, and
passes over the image at the rate of a copy, as many as the method needs at least. "cpu" is a cold call of another
process, on two cores. "asked" are the project's targets. Volumes are a blurred picture, darker from slice to slice,
and are called VOLUME times.

--first: the first `reconstruct` of a process by each method, with empty and with full caches (CuPy's, ours, NVRTC's
and the driver's). Every call has a process of its own, after the imports and a first allocation, which make the
context; Python keeps its bytecode. "compiled" is the number of NVRTC's calls. The image has 128 x 128 pixels in
float32, or 32 x 32 for a dense method; λ is given, but for the last row, which has no option.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from _common import ROOT, answer_of, asked, gpu_rates, save, table

import deblur
from deblur.methods import METHODS

REPEATS, VOLUME = 5, 2


@dataclass(frozen=True)
class Cell:
    """A row of the table: a problem, and the transforms and passes that it needs, each time or in all."""

    method: str
    side: int | tuple[int, ...]
    options: dict[str, Any]
    lam: float | str
    transforms: int
    passes: int = 0
    iterated: bool = False
    frames: int = 1
    cold: float | None = None  # the target, in milliseconds
    kept: float | None = None
    cpu: bool = False
    psf: tuple[int, ...] = ()  # of a volume

    @property
    def call(self) -> str:
        """The key of the call in the CPU's column."""
        return f"{self.method} {self.lam} {self.options.get('max_iterations', '')} {self.side}"


UNKNOWN = {"boundary": "unknown"}
LUCY = UNKNOWN | {"rtol": 1e-12, "max_iterations": 100}
FIFTY = LUCY | {"max_iterations": 50}
PERIODIC, REFLECT, ZERO = ({"boundary": name} for name in ("periodic", "reflect", "zero"))
CELLS = [
    Cell("fft", 1024, PERIODIC, 1e-2, 2, 4, cpu=True),
    Cell("fft", 4096, PERIODIC, 1e-2, 2, 4, cold=3, kept=1.5),
    Cell("dct", 1024, REFLECT, 1e-2, 2, 4, cpu=True),
    Cell("dct", 4096, REFLECT, 1e-2, 2, 4, cold=8, kept=4),
    Cell("dst", 1024, ZERO, 1e-2, 4, 4, cpu=True),
    Cell("dst", 2048, ZERO, 1e-2, 4, 4),
    Cell("kronecker", 1024, ZERO, 1e-2, 0, 4, cpu=True),
    Cell("kronecker", 2048, ZERO, 1e-2, 0, 4, cold=40),
    Cell("cholesky", 64, ZERO, 1e-3, 0, 4, cold=2, cpu=True),
    Cell("banded", 64, UNKNOWN, 1e-2, 2, 4, cpu=True),
    Cell("pcg", 1024, UNKNOWN, 1e-2, 10, 20, cpu=True),
    Cell("pcg", 4096, UNKNOWN, 1e-2, 10, 20, cold=60, kept=12),
    Cell("pcg", 512, UNKNOWN, 1e-2, 10, 20, frames=200, kept=40),
    Cell("hybrid-lsqr", 1024, UNKNOWN, 1e-2, 4, 8, iterated=True, cpu=True),
    Cell("gradient", 1024, UNKNOWN, 1e-2, 4, 12, iterated=True, cpu=True),
    Cell("tv", 256, UNKNOWN, 2e-3, 4, 25, iterated=True, cold=6, cpu=True),
    Cell("tv", 1024, UNKNOWN, 2e-3, 4, 25, iterated=True, cold=20, cpu=True),
    Cell("tv", 4096, UNKNOWN, 2e-3, 4, 25, iterated=True, cold=200),
    Cell("tv2", 1024, UNKNOWN, 2e-3, 4, 40, iterated=True, cpu=True),
    Cell("tv", 256, UNKNOWN, "auto", 4, 25, iterated=True, cold=18, cpu=True),
    Cell("tv", 1024, UNKNOWN, "auto", 4, 25, iterated=True, cold=60, cpu=True),
    Cell("collaborative", 256, UNKNOWN, "auto", 4, 25, iterated=True),
    Cell("collaborative", 1024, UNKNOWN, "auto", 4, 25, iterated=True, cold=250, cpu=True),
    Cell("pnp", 256, UNKNOWN | {"denoiser": "collaborative"}, 1e-3, 4, 25, iterated=True, cold=300, cpu=True),
    Cell("richardson-lucy", 1024, LUCY, 0.0, 4, 20, iterated=True, cold=40, cpu=True),
    Cell("richardson-lucy", 1024, UNKNOWN, 0.0, 4, 20, iterated=True, cpu=True),
    Cell("auto", 1024, UNKNOWN, "auto", 10, 20, cold=40, cpu=True),
    Cell("auto", 1024, UNKNOWN, "gcv", 10, 20, cold=40, cpu=True),
    Cell("auto", 4096, {}, "auto", 10, 20),
    Cell("fft", (64, 512, 512), PERIODIC, 1e-2, 2, 4, psf=(15, 31, 31)),
    Cell("dct", (64, 512, 512), REFLECT, 1e-2, 2, 4, psf=(15, 31, 31)),
    Cell("pcg", (64, 512, 512), UNKNOWN, 1e-2, 10, 20, psf=(15, 31, 31)),
    Cell("tv", (128, 512, 512), UNKNOWN, 2e-3, 4, 25, iterated=True, cold=1000, psf=(15, 31, 31)),
    Cell("richardson-lucy", (64, 1024, 1024), FIFTY, 0.0, 4, 20, iterated=True, psf=(31, 61, 61)),
    Cell("richardson-lucy", (64, 1024, 1024), FIFTY | PERIODIC, 0.0, 4, 20, iterated=True, cold=280, psf=(31, 61, 61)),
    Cell("richardson-lucy", (35, 2048, 2048), FIFTY, 0.0, 4, 20, iterated=True, cold=3000, psf=(69, 181, 181)),
]


@functools.cache
def psfs_for(method: str, shape: tuple[int, ...] = ()) -> list[np.ndarray]:
    """PSFs that the method serves and that fit the picture, one for each call, which it takes no time to make."""
    return [_psf_for(method, shape, i) for i in range(REPEATS + 1)]


def _psf_for(method: str, shape: tuple[int, ...], i: int) -> np.ndarray:
    if shape:
        axes = [np.exp(-0.5 * ((np.arange(n) - n // 2) / (0.15 * n + 0.01 * i)) ** 2) for n in shape]
        return functools.reduce(np.multiply.outer, [axis / axis.sum() for axis in axes])
    if method == "dst":
        return deblur.psf.gaussian(3, 0.8 + 0.01 * i)
    if method in ("dct", "kronecker"):
        return deblur.psf.gaussian(15, 2.0 + 0.01 * i)
    if method in ("cholesky", "banded"):
        return deblur.psf.gaussian(9, 2.0 + 0.01 * i)
    return deblur.psf.camera_shake(17, 3) + 1e-10 * i


@functools.cache
def picture(side: int, psf: bytes, shape: tuple[int, int]) -> np.ndarray:
    """A blurred and noisy picture."""
    sharp = np.tile(deblur.data.load("camera").astype(np.float32), (8, 8))[:side, :side]
    h = np.frombuffer(psf).reshape(shape)
    return deblur.degrade(sharp, h, noise=0.01, boundary="reflect", seed=0).clip(0, 1).astype(np.float32)


def blurred(cell: Cell) -> np.ndarray:
    """The picture of a cell."""
    if isinstance(cell.side, tuple):
        dimmed = np.linspace(1, 0.3, cell.side[0], dtype=np.float32)
        psf = psfs_for("auto")[0]
        return dimmed[:, None, None] * picture(cell.side[-1], psf.tobytes(), psf.shape)
    psf = psfs_for(cell.method)[0]
    return picture(cell.side, psf.tobytes(), psf.shape)


def solved(cell: Cell, image: Any, i: int) -> Any:
    """A cold call."""
    stack = {"stack_axis": 0} if cell.frames > 1 else {}
    psf = psfs_for(cell.method, cell.psf)[i]
    return deblur.solve(image, psf, cell.lam, method=cell.method, check=False, **stack, **cell.options)


def milliseconds(call: Callable[[int], Any], wait: Callable[[], None], repeats: int = REPEATS) -> dict[str, float]:
    """Median and spread of `call(0)`, `call(1)` ..., after one that is not counted."""
    call(repeats)
    found = []
    for i in range(repeats):
        wait()
        start = time.perf_counter()
        call(i)
        wait()
        found.append(1e3 * (time.perf_counter() - start))
    return {"median": statistics.median(found), "least": min(found), "most": max(found)}


def device_busy(call: Callable[[], Any], wait: Callable[[], None]) -> tuple[float | None, int | None]:
    """Milliseconds that the device works for a call, and the kernels and copies that it is given."""
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return None, None
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        call()
        wait()
    events = [e for e in recorded.key_averages() if e.self_device_time_total > 0]
    return 1e-3 * sum(e.self_device_time_total for e in events), sum(e.count for e in events)


def measured(cell: Cell, copy_rate: float) -> dict[str, Any]:
    """One row of the table."""
    import cupy
    import cupyx.scipy.fft as fft

    wait = cupy.cuda.Device().synchronize
    g, stack = cupy.asarray(blurred(cell)), {}
    if cell.frames > 1:
        g, stack = cupy.stack([g * np.float32(1 - 1e-3 * i) for i in range(cell.frames)]), {"stack_axis": 0}
    repeats = VOLUME if cell.psf else REPEATS
    images = [g + np.float32(1e-3 * i) for i in range(repeats + 1)]
    first = solved(cell, g, 0)
    chosen = {"boundary": first.boundary} | ({"prior": "natural"} if first.prior == "natural" else {})
    kept = deblur.Deblurrer(
        psfs_for(cell.method, cell.psf)[0], cell.side if cell.psf else g.shape[-2:], float(first.lam),
        dtype=np.float32, gpu=True, method=cell.method, **cell.options | chosen,
    )  # fmt: skip
    row: dict[str, Any] = {"method": cell.method, "side": cell.side, "frames": cell.frames}
    row |= {"lam": str(cell.lam), "boundary": first.boundary, "prior": first.prior}
    row["iterations"] = first.iterations
    calls = {
        "cold": lambda i: solved(cell, images[i], i),
        "kept": lambda i: kept.solve(images[i], check=False, **stack),
    }
    for name, call in calls.items():
        found = milliseconds(call, wait, repeats)
        row |= {f"{name}_{part}": found[part] for part in ("median", "least", "most")}
        row[f"{name}_device"], row[f"{name}_launches"] = device_busy(lambda call=call: call(1), wait)
        row[f"{name}_asked"] = getattr(cell, name)
    times = max(first.iterations, 1) if cell.iterated else 1
    axes = range(-(len(cell.psf) or 2), 0)
    transform = milliseconds(lambda i: fft.rfftn(images[i], axes=axes), wait, repeats)["median"]
    row["floor"] = times * (cell.transforms * transform + 1e3 * cell.passes * g.nbytes / copy_rate)
    return row


def cpu_calls() -> dict[str, float]:
    """Milliseconds of the same calls on the CPU, with the cores of this process."""
    found = {}
    for cell in CELLS:
        if not cell.cpu:
            continue
        host, taken = blurred(cell), []
        solved(cell, host[:64, :64], 1)  # imports, and compiled code
        while not taken or (len(taken) < REPEATS and sum(taken) < 1e3):
            start = time.perf_counter()
            solved(cell, host, len(taken))
            taken.append(1e3 * (time.perf_counter() - start))
        found[cell.call] = statistics.median(taken)
    return found


def on_two_cores() -> dict[str, float]:
    """The same by a process of its own, on the first two cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:2]))  # the process begins with this
    try:
        threads = {f"{library}_NUM_THREADS": "2" for library in ("OMP", "OPENBLAS", "MKL")}
        return answer_of(__file__, "--cpu", **threads)
    finally:
        os.sched_setaffinity(0, before)


# ---------------------------------------------------------------- first calls

DENSE = ("qr", "cholesky", "gauss-jordan", "gauss-seidel", "lu", "banded")
PROGRAM = """
import json, sys, time
start = time.perf_counter()
import numpy as np, cupy, deblur
from cupy.cuda import nvrtc
cupy.zeros(1).sum().item()
imports = time.perf_counter() - start
compiled, create = [0], nvrtc.createProgram
def counted(*args):
    compiled[0] += 1
    return create(*args)
nvrtc.createProgram = counted
method, side, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
psf = deblur.psf.gaussian(3, 0.8) if method == "dst" else deblur.psf.gaussian(7, 1.5)
g = cupy.asarray(deblur.degrade(deblur.data.load("camera")[:side, :side], psf, noise=0.01, seed=0).astype(np.float32))
start = time.perf_counter()
deblur.reconstruct(g, psf, **options)
cupy.cuda.Device().synchronize()
print(json.dumps({"seconds": time.perf_counter() - start, "imports": imports, "compiled": compiled[0]}))
"""


def first_call(method: str, cache: str) -> dict[str, float]:
    """Of a process of its own."""
    boundaries = {"fft": "periodic", "dct": "reflect", "dst": "zero", "kronecker": "zero"}
    options: dict[str, Any] = {"method": method, "boundary": boundaries.get(method, "unknown")}
    options |= {"lam": 0.0 if method == "richardson-lucy" else 1e-2}
    options |= {"denoiser": "collaborative"} if method == "pnp" else {}
    side, given = "32" if method in DENSE else "128", json.dumps({} if method == "default" else options)
    caches = {"CUPY_CACHE_DIR": cache, "CUDA_CACHE_PATH": f"{cache}/driver", "PYTHONDONTWRITEBYTECODE": ""}
    return answer_of("-c", PROGRAM, method, side, given, PYTHONPATH=str(ROOT), **caches)


def first_calls() -> None:
    rows = []
    for method in (*METHODS, "default"):
        with tempfile.TemporaryDirectory() as cache:
            empty, full = first_call(method, cache), first_call(method, cache)
        rows.append({"method": method, "empty_cache": empty["seconds"], "full_cache": full["seconds"]})
        rows[-1] |= {"imports": full["imports"], "compiled": empty["compiled"]}
    save("first_calls", rows, first_tables(rows), dtype="float32", unit="seconds")


def first_tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    title = (
        "**First calls.** Seconds of a process's first call, 128² (dense methods: 32²) with λ given, and of one with "
        "no option at all, when everything must be compiled and when nothing need be; and the number of the compiler's "
        f"calls in the first case. Importing CuPy and deblur, with a context, takes {rows[0]['imports']:.1f} s before."
    )
    columns = {"method": "{method}", "empty caches": "{empty_cache:.1f}", "full": "{full_cache:.2f}"}
    return [table(title, columns | {"compilations": "{compiled}"}, rows)]


# ---------------------------------------------------------------- the tables


def tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def shown(t: dict[str, Any]) -> dict[str, Any]:
        frames = f"{t['frames']} × " if t["frames"] > 1 else ""
        size = f"{t['side']}²" if isinstance(t["side"], int) else " × ".join(map(str, t["side"]))
        call = f"{t['method']} {frames}{size}" + (f", λ {t['lam']}" if t["lam"].isalpha() else "")
        cold, kept = (f" (≤ {t[key]:g})" if t[key] else "" for key in ("cold_asked", "kept_asked"))
        row = {"call": call, "cold target": cold, "kept target": kept, "steps": t["iterations"] or "direct"}
        return t | row | {"faster": t["cpu"] / t["cold_median"] if t["cpu"] else None}

    title = (
        "**On a GPU: everyday methods.** Milliseconds in float32: a whole call with a new PSF and a new image, the "
        "same with the factor kept (in brackets the target), the device's share of that, and the least that the "
        "method's transforms and passes over the image cost, launched one by one: of small images a replayed graph "
        "costs less. The CPU's column is the cold call on two cores of the same machine."
    )
    columns = {"method": "{call}", "iterations": "{steps}", "cold": "{cold_median:.1f}{cold target}"}
    columns |= {"kept": "{kept_median:.1f}{kept target}", "device": "{kept_device:.1f}"}
    columns |= {"floor": "{floor:.2f}", "CPU": "{cpu:.0f}", "CPU / GPU": "{faster:.0f}"}
    return [table(title, columns, [shown(t) for t in rows])]


def main() -> None:
    options = asked(__doc__, cpu=False, first=False)
    if options.cpu:
        print(json.dumps(cpu_calls()))
        return
    if options.first:
        first_calls()
        return
    rate, cpu = gpu_rates("float32")["copy"], on_two_cores()
    rows = [measured(cell, rate) | {"cpu": cpu.get(cell.call) if cell.cpu else None} for cell in CELLS]
    save("gpu_everyday", rows, tables(rows), repeats=REPEATS, dtype="float32", unit="milliseconds")


if __name__ == "__main__":
    main()

"""Milliseconds of the everyday methods on a GPU, beside the least that their transforms and passes cost there.

    python benchmarks/bench_gpu_everyday.py                    writes benchmarks/results/gpu_everyday.json
    python benchmarks/bench_gpu_everyday.py --cpu cpu.json     only measures the CPU's column, with the cores it has
    python benchmarks/bench_gpu_everyday.py --with cpu.json    takes that from there

"cold" is a whole `deblur.solve` with a PSF and an image that were not seen before, in a warm process; "kept" a
`Deblurrer` that has its factor. The device is waited for at both ends. "device" is how long the device is busy in
either, and "launches" how much it is given to do, both by CUPTI through PyTorch where that is installed; the rest of
the time, "host", the device waits for Python. "slowed" is cold again with the host slowed: this process on one core,
which another busy one shares. The floor is measured in the same run: cuFFT's real transforms, and passes over the
image at the rate of a copy, as many as the method cannot do without. "cpu" is a cold call of another process, on two
cores. "asked" are the figures that the project sets itself. "small" are cold calls of small pictures, beside the CPU's.
`bench_first_calls.py` measures the first calls of a process.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _common import print_table, save, slowed_host

import deblur

REPEATS, SLOWED = 5, 3
SMALL = (64, 128, 256)


@dataclass(frozen=True)
class Cell:
    """A row of the table: a problem, and the transforms and passes that it cannot do without, each time or in all."""

    method: str
    side: int
    options: dict[str, Any]
    lam: float | str
    transforms: int
    passes: int = 0
    iterated: bool = False
    frames: int = 1
    cold: float | None = None  # asked for, in milliseconds
    kept: float | None = None
    cpu: bool = False
    small: bool = False  # small pictures, too

    def called(self, side: int) -> str:
        """What stands for the call in the record of the CPU."""
        return f"{self.method} {self.lam} {self.options.get('max_iterations', '')} {side}"


UNKNOWN = {"boundary": "unknown"}
LUCY = UNKNOWN | {"rtol": 1e-12, "max_iterations": 100}
PERIODIC, REFLECT, ZERO = ({"boundary": name} for name in ("periodic", "reflect", "zero"))
CELLS = [
    Cell("fft", 1024, PERIODIC, 1e-2, 2, 4, cpu=True, small=True),
    Cell("fft", 4096, PERIODIC, 1e-2, 2, 4, cold=3, kept=1.5),
    Cell("dct", 1024, REFLECT, 1e-2, 2, 4, cpu=True, small=True),
    Cell("dct", 4096, REFLECT, 1e-2, 2, 4, cold=8, kept=4),
    Cell("dst", 1024, ZERO, 1e-2, 4, 4, cpu=True, small=True),
    Cell("dst", 2048, ZERO, 1e-2, 4, 4),
    Cell("kronecker", 1024, ZERO, 1e-2, 0, 4, cpu=True, small=True),
    Cell("kronecker", 2048, ZERO, 1e-2, 0, 4, cold=40),
    Cell("cholesky", 64, ZERO, 1e-3, 0, 4, cold=2, cpu=True),
    Cell("banded", 64, UNKNOWN, 1e-2, 2, 4, cpu=True),
    Cell("pcg", 1024, UNKNOWN, 1e-2, 10, 20, cpu=True, small=True),
    Cell("pcg", 4096, UNKNOWN, 1e-2, 10, 20, cold=60, kept=12),
    Cell("pcg", 512, UNKNOWN, 1e-2, 10, 20, frames=200, kept=40),
    Cell("hybrid-lsqr", 1024, UNKNOWN, 1e-2, 4, 8, iterated=True, cpu=True, small=True),
    Cell("gradient", 1024, UNKNOWN, 1e-2, 4, 12, iterated=True, cpu=True, small=True),
    Cell("tv", 256, UNKNOWN, 2e-3, 4, 25, iterated=True, cold=6, cpu=True, small=True),
    Cell("tv", 1024, UNKNOWN, 2e-3, 4, 25, iterated=True, cold=20, cpu=True),
    Cell("tv", 4096, UNKNOWN, 2e-3, 4, 25, iterated=True, cold=200),
    Cell("tv2", 1024, UNKNOWN, 2e-3, 4, 40, iterated=True, cpu=True, small=True),
    Cell("tv", 256, UNKNOWN, "auto", 4, 25, iterated=True, cold=18, cpu=True, small=True),
    Cell("tv", 1024, UNKNOWN, "auto", 4, 25, iterated=True, cold=60, cpu=True),
    Cell("collaborative", 256, UNKNOWN, "auto", 4, 25, iterated=True),
    Cell("collaborative", 1024, UNKNOWN, "auto", 4, 25, iterated=True, cold=250, cpu=True),
    Cell("pnp", 256, UNKNOWN | {"denoiser": "collaborative"}, 1e-3, 4, 25, iterated=True, cold=300, cpu=True),
    Cell("richardson-lucy", 1024, LUCY, 0.0, 4, 20, iterated=True, cold=40, cpu=True),
    Cell("richardson-lucy", 1024, UNKNOWN, 0.0, 4, 20, iterated=True, cpu=True, small=True),
    Cell("auto", 1024, UNKNOWN, "auto", 10, 20, cold=40, cpu=True, small=True),
    Cell("auto", 1024, UNKNOWN, "gcv", 10, 20, cold=40, cpu=True, small=True),
    Cell("auto", 4096, {}, "auto", 10, 20),
]


@functools.cache
def psfs_for(method: str) -> list[np.ndarray]:
    """PSFs that the method serves, one for each call: what it takes to make them is no part of a restoration."""
    return [_psf_for(method, i) for i in range(REPEATS + 1)]


def _psf_for(method: str, i: int) -> np.ndarray:
    if method == "dst":
        return deblur.psf.gaussian(3, 0.8 + 0.01 * i)
    if method in ("dct", "kronecker"):
        return deblur.psf.gaussian(15, 2.0 + 0.01 * i)
    if method in ("cholesky", "banded"):
        return deblur.psf.gaussian(9, 2.0 + 0.01 * i)
    return deblur.psf.camera_shake(17, 3 + i)


@functools.cache
def picture(side: int, psf: bytes, shape: tuple[int, int]) -> np.ndarray:
    """A blurred and noisy picture."""
    sharp = np.tile(deblur.data.load("camera").astype(np.float32), (8, 8))[:side, :side]
    h = np.frombuffer(psf).reshape(shape)
    return deblur.degrade(sharp, h, noise=0.01, boundary="reflect", seed=0).clip(0, 1).astype(np.float32)


def blurred(cell: Cell, side: int) -> np.ndarray:
    """The picture of a cell, of that size."""
    psf = psfs_for(cell.method)[0]
    return picture(side, psf.tobytes(), psf.shape)


def solved(cell: Cell, image: Any, i: int) -> Any:
    """A cold call."""
    stack = {"stack_axis": 0} if image.ndim > 2 else {}
    psf = psfs_for(cell.method)[i]
    return deblur.solve(image, psf, cell.lam, method=cell.method, check=False, **stack, **cell.options)


def milliseconds(
    call: Callable[[int], Any], wait: Callable[[], None], repeats: int = REPEATS
) -> dict[str, float]:
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
    g, stack = cupy.asarray(blurred(cell, cell.side)), {}
    if cell.frames > 1:
        g, stack = cupy.stack([g * np.float32(1 - 1e-3 * i) for i in range(cell.frames)]), {"stack_axis": 0}
    images = [g + np.float32(1e-3 * i) for i in range(REPEATS + 1)]
    first = solved(cell, g, 0)
    chosen = {"boundary": first.boundary} | ({"prior": "natural"} if first.prior == "natural" else {})
    kept = deblur.Deblurrer(
        psfs_for(cell.method)[0], g.shape[-2:], float(first.lam), dtype=np.float32, gpu=True, method=cell.method,
        **cell.options | chosen,
    )  # fmt: skip
    row: dict[str, Any] = {"method": cell.method, "side": cell.side, "frames": cell.frames}
    row |= {"lam": str(cell.lam), "boundary": first.boundary, "prior": first.prior}
    row["iterations"] = first.iterations
    calls = {
        "cold": lambda i: solved(cell, images[i], i),
        "kept": lambda i: kept.solve(images[i], check=False, **stack),
    }
    for name, call in calls.items():
        found = milliseconds(call, wait)
        row |= {f"{name}_{part}": found[part] for part in ("median", "least", "most")}
        row[f"{name}_device"], row[f"{name}_launches"] = device_busy(lambda call=call: call(1), wait)
        asked = getattr(cell, name)
        row |= {f"{name}_asked": asked, f"{name}_met": None if asked is None else found["median"] <= asked}
    with slowed_host():
        row["cold_slowed"] = milliseconds(calls["cold"], wait, SLOWED)["median"]
    times = max(first.iterations, 1) if cell.iterated else 1
    transform = milliseconds(lambda i: fft.rfft2(images[i]), wait)["median"]
    row["floor"] = times * (cell.transforms * transform + 1e3 * cell.passes * g.nbytes / copy_rate)
    return row


def small_ones() -> list[dict[str, Any]]:
    """Cold calls of small pictures."""
    import cupy

    wait = cupy.cuda.Device().synchronize
    rows = []
    for cell in CELLS:
        for side in SMALL if cell.small else ():
            g = cupy.asarray(blurred(cell, side))
            images = [g + np.float32(1e-3 * i) for i in range(REPEATS + 1)]
            found = milliseconds(lambda i: solved(cell, images[i], i), wait)  # noqa: B023 (called at once)
            rows.append({"method": cell.method, "lam": str(cell.lam), "side": side, "cold": found["median"]})
            rows[-1]["call"] = cell.called(side)
    return rows


def cpu_calls() -> dict[str, float]:
    """Milliseconds of the same calls on the CPU, with the cores of this process."""
    found = {}
    for cell in CELLS:
        sides = [*([cell.side] if cell.cpu else []), *(SMALL if cell.small else ())]
        if sides:
            solved(cell, blurred(cell, SMALL[0]), 1)  # imports, and what is compiled
        for side in sides:
            host, taken = blurred(cell, side), []
            while not taken or (len(taken) < REPEATS and sum(taken) < 1e3):
                start = time.perf_counter()
                solved(cell, host, len(taken))
                taken.append(1e3 * (time.perf_counter() - start))
            found[cell.called(side)] = statistics.median(taken)
            print(f"{cell.called(side)}: {found[cell.called(side)]:.3g} ms on the CPU", flush=True)
    return found


def on_two_cores() -> dict[str, float]:
    """The same by a process of its own, on the first two cores."""
    threads = {f"{library}_NUM_THREADS": "2" for library in ("OMP", "OPENBLAS", "MKL")}
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(before)[:2]))  # the process begins with this
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cpu.json"
            subprocess.run([sys.executable, __file__, "--cpu", path], env=os.environ | threads, check=True)
            return json.loads(path.read_text())
    finally:
        os.sched_setaffinity(0, before)


def copied_bytes_a_second() -> float:
    """Bytes read and written by a copy of a gigabyte."""
    import cupy

    x = cupy.random.random(1 << 27)
    y = cupy.empty_like(x)
    found = milliseconds(lambda _: cupy.copyto(y, x), cupy.cuda.Device().synchronize)
    return 2 * x.nbytes / (1e-3 * found["median"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", type=Path, metavar="FILE", help="only measure the CPU's column, into a file")
    parser.add_argument("--with", dest="beside", type=Path, metavar="FILE", help="take it from there")
    arguments = parser.parse_args()
    if arguments.cpu:
        arguments.cpu.write_text(json.dumps(cpu_calls()))
        return
    rate = copied_bytes_a_second()
    rows = []
    for cell in CELLS:
        rows.append(measured(cell, rate) | {"cpu": cell.called(cell.side) if cell.cpu else None})
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    small = small_ones()
    cpu = json.loads(arguments.beside.read_text()) if arguments.beside else on_two_cores()
    for row in rows:
        row["cpu"] = cpu.get(row["cpu"])
    for row in small:
        row["cpu"] = cpu.get(row.pop("call"))
    print_table(rows)
    print_table(small)
    path = save(
        "gpu_everyday", rows, repeats=REPEATS, dtype="float32", unit="milliseconds", copy_bytes_a_second=rate,
        small=small,
    )  # fmt: skip
    print(f"written: {path}")


if __name__ == "__main__":
    main()

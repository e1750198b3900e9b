"""Milliseconds of the everyday methods on a GPU, beside the least that their transforms and passes cost there.

    python benchmarks/bench_gpu_everyday.py          writes benchmarks/results/gpu_everyday.json

"cold" is a whole `deblur.solve` with a PSF and an image that were not seen before, in a warm process; "kept" a
`Deblurrer` that has its factor. The device is waited for at both ends. "device" is how long the device was busy in a
kept solve, and "launches" how much it was given to do, both by CUPTI through PyTorch where that is installed; what is
left of the time is the host's. The floor is measured in the same run: CuPy's transforms, and passes over the image at
the rate of a copy, as many as the method cannot do without. "cpu" is one cold call on two cores. "first" are seconds of
the first call of a process, with an empty and with a full compilation cache.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from _common import ROOT, print_table, save

import deblur

REPEATS = 5


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
    cpu: bool = False


UNKNOWN = {"boundary": "unknown"}
LUCY = UNKNOWN | {"rtol": 1e-12, "max_iterations": 100}
CELLS = [
    Cell("fft", 1024, {"boundary": "periodic"}, 1e-2, 2, 4, cpu=True),
    Cell("fft", 4096, {"boundary": "periodic"}, 1e-2, 2, 4),
    Cell("dct", 1024, {"boundary": "reflect"}, 1e-2, 2, 4),
    Cell("dct", 4096, {"boundary": "reflect"}, 1e-2, 2, 4),
    Cell("dst", 2048, {"boundary": "zero"}, 1e-2, 4, 4),
    Cell("kronecker", 2048, {"boundary": "zero"}, 1e-2, 0, 4),
    Cell("pcg", 1024, UNKNOWN, 1e-2, 10, 20, cpu=True),
    Cell("pcg", 4096, UNKNOWN, 1e-2, 10, 20),
    Cell("pcg", 512, UNKNOWN, 1e-2, 10, 20, frames=200),
    Cell("hybrid-lsqr", 1024, UNKNOWN, 1e-2, 4, 8, iterated=True),
    Cell("gradient", 1024, UNKNOWN, 1e-2, 4, 12, iterated=True, cpu=True),
    Cell("tv", 64, UNKNOWN, 2e-3, 4, 25, iterated=True, cpu=True),
    Cell("tv", 256, UNKNOWN, 2e-3, 4, 25, iterated=True, cpu=True),
    Cell("tv", 1024, UNKNOWN, 2e-3, 4, 25, iterated=True, cpu=True),
    Cell("tv", 4096, UNKNOWN, 2e-3, 4, 25, iterated=True),
    Cell("tv2", 1024, UNKNOWN, 2e-3, 4, 40, iterated=True, cpu=True),
    Cell("tv", 256, UNKNOWN, "auto", 4, 25, iterated=True),
    Cell("tv", 1024, UNKNOWN, "auto", 4, 25, iterated=True),
    Cell("collaborative", 256, UNKNOWN, "auto", 4, 25, iterated=True),
    Cell("collaborative", 1024, UNKNOWN, "auto", 4, 25, iterated=True),
    Cell("pnp", 256, UNKNOWN | {"denoiser": "collaborative"}, 1e-3, 4, 25, iterated=True),
    Cell("richardson-lucy", 1024, LUCY, 0.0, 4, 20, iterated=True),
    Cell("richardson-lucy", 1024, UNKNOWN, 0.0, 4, 20, iterated=True, cpu=True),
    Cell("auto", 1024, UNKNOWN, "auto", 10, 20, cpu=True),
    Cell("auto", 1024, UNKNOWN, "gcv", 10, 20),
]
FIRST = ("pcg", "tv", "fft", "cholesky", "kronecker", "dct", "collaborative", "qr")


def psf_for(method: str, i: int) -> np.ndarray:
    """A PSF that the method serves, another one for each i."""
    if method == "dst":
        return deblur.psf.gaussian(3, 0.8 + 0.01 * i)
    if method in ("dct", "kronecker"):
        return deblur.psf.gaussian(15, 2.0 + 0.01 * i)
    return deblur.psf.camera_shake(17, 3 + i)


@functools.cache
def picture(side: int, psf: bytes, shape: tuple[int, int]) -> np.ndarray:
    """A blurred and noisy picture."""
    sharp = np.tile(deblur.data.load("camera").astype(np.float32), (8, 8))[:side, :side]
    h = np.frombuffer(psf).reshape(shape)
    return deblur.degrade(sharp, h, noise=0.01, boundary="reflect", seed=0).clip(0, 1).astype(np.float32)


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


def device_busy(call: Callable[[], Any], wait: Callable[[], None]) -> dict[str, float | None]:
    """Milliseconds that the device works for a call, and the kernels and copies that it is given."""
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return {"device": None, "launches": None}
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        call()
        wait()
    events = [e for e in recorded.key_averages() if e.self_device_time_total > 0]
    return {
        "device": 1e-3 * sum(e.self_device_time_total for e in events),
        "launches": sum(e.count for e in events),
    }


def measured(cell: Cell, copy_rate: float) -> dict[str, Any]:
    """One row of the table."""
    import cupy
    import cupyx.scipy.fft as fft

    wait = cupy.cuda.Device().synchronize
    method, side = cell.method, cell.side
    psfs = [psf_for(method, i) for i in range(REPEATS + 1)]
    host = picture(side, psfs[0].tobytes(), psfs[0].shape)
    g, stack = cupy.asarray(host), {}
    if cell.frames > 1:
        g, stack = cupy.stack([g * np.float32(1 - 1e-3 * i) for i in range(cell.frames)]), {"stack_axis": 0}
    images = [g + np.float32(1e-3 * i) for i in range(REPEATS + 1)]

    def solved(i: int, image: Any) -> Any:
        return deblur.solve(image, psfs[i], cell.lam, method=method, check=False, **stack, **cell.options)

    def transformed(i: int) -> Any:
        return fft.dctn(images[i], norm="ortho") if method == "dct" else fft.rfft2(images[i])

    first = solved(0, g)
    lam = float(first.lam)  # kept: λ is what was chosen
    kept = deblur.Deblurrer(
        psfs[0], g.shape[-2:], lam, dtype=np.float32, gpu=True, method=method, **cell.options
    )
    row: dict[str, Any] = {"method": method, "side": side, "frames": cell.frames, "lam": str(cell.lam)}
    row["iterations"] = first.iterations
    repeats = REPEATS if cell.lam != "auto" else 3
    cold = milliseconds(lambda i: solved(i, images[i]), wait, repeats)
    warm = milliseconds(lambda i: kept.solve(images[i], check=False, **stack), wait, repeats)
    for name, found in (("cold", cold), ("kept", warm)):
        row |= {f"{name}_{part}": found[part] for part in ("median", "least", "most")}
    row |= device_busy(lambda: kept.solve(images[0], check=False, **stack), wait)
    times = max(first.iterations, 1) if cell.iterated else 1
    row["floor"] = times * (
        cell.transforms * milliseconds(transformed, wait)["median"] + 1e3 * cell.passes * g.nbytes / copy_rate
    )
    row["cpu"] = on_two_cores(lambda: solved(1, host)) if cell.cpu else None
    return row


def on_two_cores(call: Callable[[], Any]) -> float:
    """Milliseconds of one call on two cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(cores)[:2]))
    try:
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)
    finally:
        os.sched_setaffinity(0, cores)


def copied_bytes_a_second() -> float:
    """Bytes read and written by a copy of a gigabyte."""
    import cupy

    x = cupy.random.random(1 << 27)
    y = cupy.empty_like(x)
    found = milliseconds(lambda _: cupy.copyto(y, x), cupy.cuda.Device().synchronize)
    return 2 * x.nbytes / (1e-3 * found["median"])


def first_calls() -> Iterator[dict[str, dict[str, float]]]:
    """Seconds of the first `reconstruct` of a process by each method, without imports: all that are known so far."""
    program = (
        "import time, numpy as np, cupy, deblur;"
        "cupy.zeros(1).sum().item();"
        "n = 32 if '{method}' in ('qr', 'cholesky') else 128;"
        "g = cupy.asarray(deblur.data.load('camera')[:n, :n].astype(np.float32));"
        "m = '{method}'; b = {{'fft': 'periodic', 'dct': 'reflect', 'kronecker': 'zero'}}.get(m, 'unknown');"
        "psf = deblur.psf.gaussian(7, 1.5); start = time.perf_counter();"
        "deblur.reconstruct(g, psf, 0.0 if m == 'richardson-lucy' else 1e-2, method=m, boundary=b);"
        "cupy.cuda.Device().synchronize(); print(time.perf_counter() - start)"
    )
    found: dict[str, dict[str, float]] = {}
    for method in FIRST:
        with tempfile.TemporaryDirectory() as folder:
            seconds = []
            for _ in range(2):
                done = subprocess.run(
                    [sys.executable, "-c", program.format(method=method)],
                    env=os.environ | {"CUPY_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                seconds.append(float(done.stdout.split()[-1]))
        found[method] = {"empty_cache": seconds[0], "full_cache": seconds[1]}
        yield found


def main() -> None:
    rate = copied_bytes_a_second()
    rows = []
    for cell in CELLS:
        rows.append(measured(cell, rate))
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    print_table(rows)
    for first in chain([{}], first_calls()):  # the rows are there, whatever becomes of the first calls
        path = save(
            "gpu_everyday", rows, repeats=REPEATS, dtype="float32", unit="milliseconds",
            copy_bytes_a_second=rate, first_call_seconds=first,
        )  # fmt: skip
    print(first)
    print(f"written: {path}")


if __name__ == "__main__":
    main()

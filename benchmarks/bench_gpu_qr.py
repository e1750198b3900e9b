"""Householder QR on the GPU against torch, CuPy and JAX: time, speed-up and error of every cell.

Reduced Q and R are both formed, in float32, from the same normal random input. A peer that loops over the
batch is left out of the cells where its time on the shape's smallest batch foretells more than
`LONGEST` seconds; the table says so. The check for NaN and infinity, which no peer makes, is off in
``ours`` and on in ``ours, checked``.

The sweep is of single matrices, square, tall and wide, in both dtypes, with what the device and the host took of each
time, and the floor: the operations for Q and R at the rate of cuBLAS in the same run, or the bytes of A, Q and R at
that of a copy, whichever is longer. A part of it is done again with the host slowed: this process on one core, which
another busy one shares.

    python benchmarks/bench_gpu_qr.py
    python benchmarks/bench_gpu_qr.py --parts sweep     a part alone, beside the others as they were
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from _common import (
    gpu_rates,
    measured_before,
    print_table,
    save,
    slowed_host,
    time_on_gpu,
    time_together,
)

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves memory to the others

import cupy
import numpy as np

from deblur.linalg import choose_qr, qr

# (rows, columns): batches. The published grid for Apple silicon (cormaccinnsealach/qr-apple-silicon), then
# the large single matrices.
GRID: dict[tuple[int, int], tuple[int, ...]] = {
    (64, 64): (100, 500, 1000, 5000, 10000, 15000),
    (128, 64): (100, 500, 1000, 5000, 10000, 15000),
    (256, 128): (100, 500, 1000, 5000),
    (512, 256): (100, 500, 1000),
    (512, 512): (1, 8, 16, 32),
    (1024, 512): (1, 8, 16, 32),
    (5000, 5000): (1, 8),
    (8192, 8192): (1,),
    (16384, 4096): (1,),
    (20000, 1000): (1,),
}
SQUARE = (
    16,
    32,
    64,
    100,
    128,
    200,
    257,
    300,
    400,
    512,
    700,
    1000,
    1500,
    2000,
    2200,
    2400,
    2560,
    2800,
    3000,
    3200,
    3500,
)
SWEEP = (
    *((n, n) for n in (*SQUARE, 4000, 5000, 6400, 8192, 10000)),
    *(
        (128, 16),
        (512, 64),
        (1000, 200),
        (3000, 2999),
        (4000, 1000),
        (6000, 3000),
        (10000, 500),
        (10000, 2500),
    ),
    *(
        (16, 128),
        (64, 512),
        (200, 1000),
        (2500, 3000),
        (1000, 4000),
        (3000, 6000),
        (500, 10000),
        (2500, 10000),
    ),
)
SLOWED = (
    (64, 64),
    (300, 300),
    (1000, 1000),
    (2560, 2560),
    (3500, 3500),
    (4000, 1000),
    (5000, 5000),
    (8192, 8192),
)
LONGEST = 1.4  # seconds that a peer's single call may take
PARTS = ("sweep float32", "sweep float64", "slowed", "grid", "hostile")


def peers() -> dict[str, Callable[[Any], Callable[[], Any]]]:
    """Name to a function that takes the input and returns the call to time."""
    found: dict[str, Callable[[Any], Callable[[], Any]]] = {"cupy": lambda a: partial(cupy.linalg.qr, a)}
    try:
        import torch

        found["torch"] = lambda a: partial(torch.linalg.qr, torch.from_dlpack(a))
    except ImportError:
        pass
    try:
        import jax

        factor = jax.jit(jax.numpy.linalg.qr)
        found["jax"] = lambda a: partial(
            lambda b: jax.block_until_ready(factor(b)), jax.dlpack.from_dlpack(a)
        )
    except ImportError:
        pass
    return found


def errors(a: Any, q: Any, r: Any) -> dict[str, float]:
    """Worst matrix of (at most 64 of) the stack: ‖QᵀQ−I‖ and ‖QR−A‖/‖A‖, over √n·eps."""
    unit = np.sqrt(min(a.shape[-2:])) * np.finfo(q.dtype).eps
    orthogonality = backward = 0.0
    for i in range(0, len(a), max(1, len(a) // 64)):
        a64, q64, r64 = (x[i].astype(cupy.float64) for x in (a, q, r))
        orthogonality = max(orthogonality, loss_of_orthogonality(q64))
        backward = max(backward, float(cupy.linalg.norm(q64 @ r64 - a64) / cupy.linalg.norm(a64)))
    return {"orthogonality": orthogonality / unit, "backward": backward / unit}


def loss_of_orthogonality(q: Any) -> float:
    """‖QᵀQ − I‖ with more digits than float64 has, whose own rounding would be a good part of what is measured.

    Q is the sum of parts. The products of the first with itself and with the second have so few digits that their sums
    are exact; what is rounded is far smaller.
    """
    digits = (53 - int(np.ceil(np.log2(len(q))))) // 2 - 1
    high = cupy.ldexp(cupy.rint(cupy.ldexp(q, digits)), -digits)
    rest = q - high
    middle = cupy.ldexp(cupy.rint(cupy.ldexp(rest, 2 * digits)), -2 * digits)
    gram = high.T @ high
    gram[cupy.diag_indices(len(gram))] -= 1
    for part in (middle, rest - middle):
        gram += (cross := high.T @ part) + cross.T
    gram += rest.T @ rest
    return float(cupy.linalg.norm(gram))


def hostile(m: int, n: int, batch: int) -> dict[str, dict[str, float]]:
    """The errors on matrices that break careless codes."""
    rng = np.random.default_rng(7)
    a = rng.standard_normal((batch, m, n))
    zeros = a.copy()
    zeros[..., ::3] = 0
    cases = {
        "graded rows": a * np.logspace(0, -12, m)[:, None],
        "graded columns": a * np.logspace(-12, 12, n),
        "columns 1e-30 to 1e30": a * 10.0 ** rng.integers(-30, 31, n),
        "nearly dependent": a[..., :1] + 1e-7 * a,
        "zero columns": zeros,
        "triangular": np.triu(a),
    }
    found = {}
    for name, case in cases.items():
        x = cupy.asarray(case, dtype=np.float32)
        q, r = qr(x)
        # Columns are scaled together with R's, by powers of two, so that the judge's squares do not overflow.
        scale = cupy.exp2(-cupy.frexp(abs(x).max(axis=1, keepdims=True))[1].astype(cupy.float64))
        x64, r64 = x.astype(cupy.float64) * scale, r.astype(cupy.float64) * scale
        found[name] = errors(x64, q, r64)
    return found


def floor(m: int, n: int, dtype: str, rates: dict[str, float]) -> float:
    """Seconds that Q and R cannot do without."""
    k, columns = min(m, n), max(n - m, 0)
    # R of the first k columns and Q of the same, and k reflections applied to the columns beyond.
    operations = 2 * (2 * m * k**2 - 2 * k**3 / 3) + 4 * columns * (m * k - k**2 / 2)
    moved = (m * n + m * k + k * n) * np.dtype(dtype).itemsize
    return max(operations / rates["cublas"], moved / rates["copy"])


def sweep(shapes: Iterable[tuple[int, int]], dtype: str, others: dict[str, Any]) -> list[dict[str, Any]]:
    """Every shape in one dtype: times of all, the best of the others, and our errors."""
    rows, rates = [], gpu_rates(dtype)
    for m, n in shapes:
        a = cupy.random.default_rng(n).standard_normal((m, n), dtype=dtype)
        calls = {"ours": partial(qr, a, check_finite=False)} | {
            name: make(a) for name, make in others.items()
        }
        times = time_on_gpu(calls, repeats=3 if m * n > 1 << 24 else 5)
        best = min(others, key=lambda x: times[x]["median_s"])
        q, r = qr(a, check_finite=False)
        rows.append(
            {
                "rows": m,
                "columns": n,
                "dtype": dtype,
                "kernel": choose_qr(a.shape, a.dtype).kernel,
                "times": times,
                "floor_s": floor(m, n, dtype, rates),
                "best_peer": best,
                "speedup_over_best": times[best]["median_s"] / times["ours"]["median_s"],
                "errors_over_sqrt_n_eps": errors(a[None], q[None], r[None]),
            }
        )
        del a, q, r, calls
        cupy.get_default_memory_pool().free_all_blocks()
    return rows


def print_sweep(rows: list[dict[str, Any]]) -> None:
    print_table(
        [
            {"shape": f"{x['rows']}x{x['columns']}", "dtype": x["dtype"], "kernel": x["kernel"]}
            | {
                f"{name} {part}": round(x["times"][name][key] * 1e3, 3)
                for name in ("ours",)
                for part, key in (("ms", "median_s"), ("device", "device_s"), ("host", "host_s"))
            }
            | {"floor": round(1e3 * x["floor_s"], 3)}
            | {"best/ours": f"{x['speedup_over_best']:.2f} ({x['best_peer']})"}
            | {"orth": round(x["errors_over_sqrt_n_eps"]["orthogonality"], 2)}
            for x in rows
        ]
    )


def grid(others: dict[str, Any], repeats: int, quick: bool) -> Iterator[list[dict[str, Any]]]:
    """All cells of `GRID` that are known so far."""
    rows, results = [], []
    for (m, n), batches in GRID.items():
        seconds_each: dict[str, float] = {}
        for batch in batches[-1:] if quick else batches:
            a = cupy.random.default_rng(batch).standard_normal((batch, m, n), dtype=cupy.float32)
            given = a if batch > 1 else a[0]  # one matrix as everybody would pass it
            calls = {
                "ours": partial(qr, given, check_finite=False),
                "ours, checked": partial(qr, given),
            }
            left_out = [name for name, each in seconds_each.items() if each * batch > LONGEST]
            calls |= {name: make(given) for name, make in others.items() if name not in left_out}
            included = [each * batch for name, each in seconds_each.items() if name not in left_out]
            big = batch * m * n * n > 2e11 or max(included, default=0) > 0.1
            times = time_together(
                calls,
                repeats=3 if big else repeats,
                warmup=1 if big else 2,
                synchronize=cupy.cuda.Device().synchronize,
            )
            for name in others:
                if name in times:
                    seconds_each[name] = times[name]["median_s"] / batch
            q, r = qr(a, check_finite=False)
            error = errors(a, q, r)
            plan = choose_qr(a.shape, a.dtype)
            best = min((x for x in others if x in times), key=lambda x: times[x]["median_s"])
            speedup = times[best]["median_s"] / times["ours"]["median_s"]
            results.append(
                {
                    "rows": m,
                    "columns": n,
                    "batch": batch,
                    "kernel": plan.kernel,
                    "times": times,
                    "left_out": left_out,
                    "best_peer": best,
                    "speedup_over_best": speedup,
                    "speedup_over": {
                        x: times[x]["median_s"] / times["ours"]["median_s"] for x in others if x in times
                    },
                    "errors_over_sqrt_n_eps": error,
                }
            )
            rows.append(
                {"shape": f"{m}x{n}", "batch": batch, "kernel": plan.kernel}
                | {
                    f"{x} ms": round(times[x]["median_s"] * 1e3, 3) if x in times else "--"
                    for x in ("ours", "ours, checked", *others)
                }
                | {"best/ours": f"{speedup:.2f} ({best})"}
                | {"orth": round(error["orthogonality"], 2), "back": round(error["backward"], 2)}
            )
            del a, given, q, r, calls
            cupy.get_default_memory_pool().free_all_blocks()
        yield results  # a long run that is cut short leaves what it has
    print_table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one batch for each shape of the grid")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()

    (found, kept), others = measured_before("gpu_qr", PARTS), peers()
    for part in arguments.parts:
        kept.pop(part, None)
        if part.startswith("sweep"):
            dtype = part.split()[1]
            rest = [x for x in found.get("sweep", []) if x["dtype"] != dtype]
            print_sweep(swept := sweep(SWEEP, dtype, others))
            found["sweep"] = sorted(rest + swept, key=lambda x: x["dtype"])
        elif part == "slowed":
            with slowed_host():
                print_sweep(slowed := sweep(SLOWED, "float32", others))
            found["slowed"] = slowed
        elif part == "grid":
            for cells in grid(others, arguments.repeats, arguments.quick):
                found["grid"] = cells
                keep(found, arguments.repeats, kept)
        else:
            found["hostile_errors_over_sqrt_n_eps"] = hard = {
                f"{m}x{n}, batch {b}": hostile(m, n, b)
                for m, n, b in ((64, 64, 50), (300, 200, 1), (2000, 600, 1))
            }
            for shape, cases in hard.items():
                print(shape, {name: {k: round(v, 2) for k, v in e.items()} for name, e in cases.items()})
        print(keep(found, arguments.repeats, kept))


def keep(results: dict[str, Any], repeats: int, kept: dict[str, str]) -> Path:
    return save("gpu_qr", results, repeats=repeats, longest_peer_call_s=LONGEST, kept=kept)


if __name__ == "__main__":
    main()

"""Householder QR on the GPU against torch, CuPy and JAX: time, speed-up and error of every cell.

Reduced Q and R are both formed, in float32, from the same normal random input. A peer that loops over the
batch is left out of the cells where its time on the shape's smallest batch foretells more than
`LONGEST` seconds; the table says so. The check for NaN and infinity, which no peer makes, is off in
``ours`` and on in ``ours, checked``.

    python benchmarks/bench_gpu_qr.py
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _common import print_table, save, time_together

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
    (5000, 5000): (1, 8, 16, 32),
    (8192, 8192): (1,),
    (16384, 4096): (1,),
    (20000, 1000): (1,),
}
LONGEST = 1.4  # seconds that a peer's single call may take


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
    """Worst matrix of (at most 64 of) the stack, in float64: ‖QᵀQ−I‖ and ‖QR−A‖/‖A‖, over √n·eps."""
    unit = np.sqrt(min(a.shape[-2:])) * np.finfo(np.float32).eps
    orthogonality = backward = 0.0
    for i in range(0, len(a), max(1, len(a) // 64)):
        a64, q64, r64 = (x[i].astype(cupy.float64) for x in (a, q, r))
        gram = q64.T @ q64
        gram[cupy.diag_indices(len(gram))] -= 1
        orthogonality = max(orthogonality, float(cupy.linalg.norm(gram)))
        backward = max(backward, float(cupy.linalg.norm(q64 @ r64 - a64) / cupy.linalg.norm(a64)))
    return {"orthogonality": orthogonality / unit, "backward": backward / unit}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one batch for each shape")
    arguments = parser.parse_args()

    others = peers()
    rows, results = [], []
    for (m, n), batches in GRID.items():
        seconds_each: dict[str, float] = {}
        for batch in batches[-1:] if arguments.quick else batches:
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
                repeats=3 if big else arguments.repeats,
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
        keep({"grid": results}, arguments.repeats)  # a long run that is cut short leaves what it has
    print_table(rows)
    hard = {
        f"{m}x{n}, batch {b}": hostile(m, n, b) for m, n, b in ((64, 64, 50), (300, 200, 1), (2000, 600, 1))
    }
    for shape, cases in hard.items():
        print(shape, {name: {k: round(v, 2) for k, v in e.items()} for name, e in cases.items()})
    print(keep({"grid": results, "hostile_errors_over_sqrt_n_eps": hard}, arguments.repeats))


def keep(results: dict[str, Any], repeats: int) -> Path:
    return save("gpu_qr", results, repeats=repeats, dtype="float32", longest_peer_call_s=LONGEST)


if __name__ == "__main__":
    main()

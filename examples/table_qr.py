"""The grid of QR factorisations: one matrix, thousands of matrices, tall ones, in float32.

    python examples/table_qr.py          the smaller cells on this CPU; a GPU's grid, measured or as recorded
    python examples/table_qr.py --all    every cell on the CPU too: minutes, and gigabytes

Reduced Q and R are both formed. On a machine with a GPU the grid is measured against CuPy. Without a GPU the table
shows the grid recorded against torch, CuPy and JAX, and says so. Errors are ‖QᵀQ − I‖ and ‖QR − A‖/‖A‖ (Frobenius
norms) over √n eps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from _recorded import find_gpu, origin, recorded, show

from deblur.device import format_bytes, free_memory
from deblur.linalg import choose_qr, qr

GRID: dict[tuple[int, int], tuple[int, ...]] = {
    (64, 64): (100, 1000, 5000, 15000),
    (128, 64): (100, 1000, 5000, 15000),
    (256, 128): (100, 1000, 5000),
    (512, 256): (100, 500, 1000),
    (512, 512): (1, 8, 16, 32),
    (1024, 512): (1, 8, 16, 32),
    (5000, 5000): (1,),
    (8192, 8192): (1,),
    (16384, 4096): (1,),
    (20000, 1000): (1,),
}
SMALL = 5e8  # m n² batch: about a second on one core
HEADER = ["matrix", "batch"]


def measure(m: int, n: int, batch: int, xp: Any = np, repeats: int = 3) -> list[str]:
    """One row: kernel, milliseconds of ours and of the array library's, times faster, errors."""
    a = xp.asarray(np.random.default_rng(batch).standard_normal((batch, m, n), dtype=np.float32))
    given = a if batch > 1 else a[0]
    times = {}
    for name, call in (("ours", lambda: qr(given)), ("theirs", lambda: xp.linalg.qr(given))):
        call()
        times[name] = statistics.median(_seconds(call, xp) for _ in range(repeats))
    q, r = qr(given)
    errors = [f"{e:.2g}" for e in _errors(given.reshape(-1, m, n), q, r, xp)]
    kernel = "LAPACK" if xp is np else choose_qr(given.shape, np.float32).kernel
    ms = [f"{1e3 * times[k]:.3g}" for k in ("ours", "theirs")]
    return [f"{m} x {n}", str(batch), kernel, *ms, f"{times['theirs'] / times['ours']:.1f}", *errors]


def _seconds(call: Any, xp: Any) -> float:
    _wait(xp)
    start = time.perf_counter()
    call()
    _wait(xp)
    return time.perf_counter() - start


def _wait(xp: Any) -> None:
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def _errors(a: Any, q: Any, r: Any, xp: Any) -> tuple[float, float]:
    """The worst of the first 16 matrices."""
    n = min(a.shape[-2:])
    unit = n**0.5 * float(np.finfo(np.float32).eps)
    a, q, r = (x.reshape(-1, *x.shape[-2:])[:16].astype(np.float64) for x in (a, q, r))
    orthogonality = xp.linalg.norm(q.swapaxes(1, 2) @ q - xp.eye(n), axis=(1, 2))
    backward = xp.linalg.norm(q @ r - a, axis=(1, 2)) / xp.linalg.norm(a, axis=(1, 2))
    return float(orthogonality.max()) / unit, float(backward.max()) / unit


def table(xp: Any, everything: bool) -> None:
    """Measure and print the grid on the CPU or the GPU that is here."""
    rows, left_out = [], []
    for (m, n), batches in GRID.items():
        for batch in batches:
            needed, free = 6 * 4 * batch * (m * n + n * n), free_memory(xp)
            if needed > free:
                print(f"{m} x {n}, batch {batch}: takes {format_bytes(needed)}, {format_bytes(free)} are free")
            elif xp is np and not everything and batch * m * n * n > SMALL:
                left_out.append(f"{m} x {n} x {batch}")
            else:
                rows.append(measure(m, n, batch, xp))
    show([*HEADER, "kernel", "ms", f"{xp.__name__}, ms", "times faster", "orthogonality", "backward"], rows)
    if left_out:
        print(f"left out ({len(left_out)} larger cells): run with --all")


def from_results(record: dict[str, Any]) -> None:
    """Print the grid as it was recorded."""
    peers = sorted({name for cell in record["results"]["grid"] for name in cell["speedup_over"]})
    rows = []
    for cell in record["results"]["grid"]:
        ms = [cell["times"][name]["median_s"] if name in cell["times"] else None for name in ("ours", *peers)]
        errors = cell["errors_over_sqrt_n_eps"]
        rows.append(
            [
                f"{cell['rows']} x {cell['columns']}",
                str(cell["batch"]),
                cell["kernel"],
                *("–" if s is None else f"{1e3 * s:.3g}" for s in ms),
                f"{cell['speedup_over_best']:.1f} ({cell['best_peer']})",
                f"{errors['orthogonality']:.2g}",
                f"{errors['backward']:.2g}",
            ]
        )
    show([*HEADER, "kernel", "ms", *(f"{p}, ms" for p in peers), "times faster", "orthogonality", "backward"], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every cell on the CPU")
    options = parser.parse_args(arguments)
    print("QR on this CPU, float32: LAPACK, a batch through NumPy\n")
    table(np, options.all)
    xp = find_gpu()
    if xp is not None:
        print("\nQR on the GPU that is here, float32\n")
        table(xp, True)
        return
    record = recorded("gpu_qr")
    if record is None:
        print("\nNo GPU here, and benchmarks/results/gpu_qr.json has not been recorded yet.")
        return
    print(f"\nNo GPU here. QR on a GPU, float32, {origin(record)}; times faster than the best library\n")
    from_results(record)


if __name__ == "__main__":
    main()

"""The dense inverses and solvers on one GPU against cuSOLVER through torch and CuPy, in one run.

Seconds are wall-clock with the device synchronised before and after, through the public functions as a
user calls them: checks, the copy of the input and the wait for the pivots' status included; what the device and the
host took of them stands beside, and the floor: the operations at the rate of a product of the same run, or the
reading and writing of the matrix at that of a copy, whichever is longer. "slowed" is n = 4096 again with the host
slowed: this process on one core, which another busy one shares. The peers work out of place as well. Errors are
‖A X - I‖ / (n eps ‖A‖ ‖X‖) in Frobenius norms.

    python benchmarks/bench_gpu_inverse.py
    python benchmarks/bench_gpu_inverse.py --parts float32     a part alone, beside the others as they were
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from _common import gpu_rates, measured_before, print_table, save, slowed_host, time_on_gpu

SIZES = (4096, 6400, 9216, 16384)
# Seconds of the MATLAB inverse in table 5.1 of the thesis (Core 2 Duo; images of 64, 80, 96 and 128 pixels a side).
THESIS_MATLAB = {4096: 24.29, 6400: 87.5, 9216: 259.0, 16384: 1497.0}
# What is asked for: (ours, of how much of the peer's time).
TARGETS = {
    ("cholesky_inverse", "float32"): ("torch cholesky + cholesky_inverse", 0.30),
    ("cholesky_inverse", "float64"): ("torch cholesky + cholesky_inverse", 1 / 2),
    ("gauss_jordan_inverse", "float32"): ("cupy.linalg.inv", 1 / 2),
    ("gauss_jordan_inverse", "float64"): ("cupy.linalg.inv", 1 / 2),
    ("cholesky", "float32"): ("torch cholesky", 0.85),
    ("cholesky", "float64"): ("torch cholesky", 0.85),
    ("gets", "float32"): ("torch solve_triangular", 1 / 2),
    ("gets", "float64"): ("torch solve_triangular", 1 / 2),
}
# Operations, over n³, and the engine of the products that do them in float32.
WORK = {
    "cholesky": (1 / 3, "half"),
    "gets": (1 / 3, "split"),
    "cholesky_inverse": (1.0, "half"),
    "gauss_jordan_inverse": (2.0, "split"),
}
PARTS = ("float32", "float64", "slowed", "ill_conditioned", "reconstruct")


def well_conditioned(n: int, dtype: Any, cp: Any) -> tuple[Any, Any]:
    """A general matrix and a symmetric positive definite one, from a fixed seed."""
    rng = cp.random.default_rng(n)
    general = rng.standard_normal((n, n), dtype=dtype)
    definite = general @ general.T / n + cp.eye(n, dtype=dtype)
    return general, (definite + definite.T) / 2


def residual(a: Any, x: Any, cp: Any) -> float:
    """‖A X - I‖ / (n eps ‖A‖ ‖X‖), the product in float64."""
    n, eps = len(a), np.finfo(a.dtype).eps
    a, x = a.astype(np.float64), x.astype(np.float64)
    r = a @ x
    r.reshape(-1)[:: n + 1] -= 1
    return float(cp.linalg.norm(r) / (n * eps * cp.linalg.norm(a) * cp.linalg.norm(x)))


def one_size(n: int, dtype: Any, repeats: int, only_times: bool = False) -> dict[str, Any]:
    """All contestants on one pair of matrices."""
    import cupy as cp
    import torch

    from deblur import linalg

    general, definite = well_conditioned(n, dtype, cp)
    m, s = torch.as_tensor(general, device="cuda"), torch.as_tensor(definite, device="cuda")
    t_factor = torch.linalg.cholesky(s)
    factor = cp.asarray(t_factor)
    identity = torch.eye(n, device="cuda", dtype=s.dtype)
    calls: dict[str, Any] = {
        "cholesky": lambda: linalg.cholesky(definite),
        "torch cholesky": lambda: torch.linalg.cholesky(s),
        "gets": lambda: linalg.gets(factor),
        "torch solve_triangular": lambda: torch.linalg.solve_triangular(t_factor, identity, upper=False),
        "cholesky_inverse": lambda: linalg.cholesky_inverse(definite),
        "torch cholesky + cholesky_inverse": lambda: torch.cholesky_inverse(torch.linalg.cholesky(s)),
        "gauss_jordan_inverse": lambda: linalg.gauss_jordan_inverse(general),
        "cupy.linalg.inv": lambda: cp.linalg.inv(general),
        "torch.linalg.inv": lambda: torch.linalg.inv(m),
    }
    if n <= 6400:  # beyond, one takes seconds
        unit = cp.eye(n, dtype=dtype)
        calls["gauss_seidel"] = lambda: linalg.gauss_seidel(definite, unit, acceleration="cg")
    if dtype == np.float64:
        b = cp.random.default_rng(1).standard_normal(n)
        t_b = torch.as_tensor(b, device="cuda")[:, None]
        calls["cholesky + cholesky_solve"] = lambda: linalg.cholesky_solve(linalg.cholesky(definite), b)
        calls["torch cholesky + cholesky_solve"] = lambda: torch.cholesky_solve(t_b, torch.linalg.cholesky(s))
    times = time_on_gpu(calls, repeats=repeats)
    if only_times:
        return {"times": times}
    errors = {
        "cholesky_inverse": residual(definite, linalg.cholesky_inverse(definite), cp),
        "gauss_jordan_inverse": residual(general, linalg.gauss_jordan_inverse(general), cp),
        "gets": residual(factor, linalg.gets(factor), cp),
        "torch cholesky + cholesky_inverse": residual(
            definite, cp.asarray(torch.cholesky_inverse(torch.linalg.cholesky(s))), cp
        ),
        "cupy.linalg.inv": residual(general, cp.linalg.inv(general), cp),
    }
    return {"times": times, "errors": errors}


def floors_of(n: int, dtype: str, rates: dict[str, float]) -> dict[str, float]:
    """Seconds that each of ours cannot do without."""
    bytes_moved = 2 * n * n * np.dtype(dtype).itemsize
    return {
        ours: max(
            share * n**3 / rates[engine if dtype == "float32" else "cublas"], bytes_moved / rates["copy"]
        )
        for ours, (share, engine) in WORK.items()
    }


def verdicts_of(dtype: str, times: dict[str, Any]) -> dict[str, Any]:
    """Each target: who it is measured against, the ratio, and whether it is reached."""
    found = {}
    for (ours, of), (peer, share) in TARGETS.items():
        if of == dtype:
            ratio = times[ours]["median_s"] / times[peer]["median_s"]
            found[ours] = {"peer": peer, "ratio": ratio, "asked": share, "reached": ratio <= share}
    return found


def slowed(repeats: int) -> list[dict[str, Any]]:
    """n = 4096 on a slowed host."""
    rows = []
    with slowed_host():
        for name in ("float32", "float64"):
            record = one_size(4096, np.dtype(name).type, repeats, only_times=True)
            rows.append({"dtype": name, "n": 4096, **record, "verdicts": verdicts_of(name, record["times"])})
            free_caches()
    return rows


def free_caches() -> None:
    import cupy as cp
    import torch

    cp.get_default_memory_pool().free_all_blocks()
    torch.cuda.empty_cache()


def ill_conditioned(n: int = 2048) -> list[dict[str, Any]]:
    """Residuals in float64 against the condition number; eigenvalues fall geometrically."""
    import cupy as cp

    from deblur import linalg

    rng = cp.random.default_rng(7)
    q, _ = cp.linalg.qr(rng.standard_normal((n, n)))
    p, _ = cp.linalg.qr(rng.standard_normal((n, n)))
    rows = []
    for condition in (1e2, 1e4, 1e6, 1e8, 1e10):
        d = cp.logspace(0, -np.log10(condition), n)
        definite, general = (q * d) @ q.T, (q * d) @ p
        definite = (definite + definite.T) / 2
        rows.append(
            {
                "condition": condition,
                "cholesky_inverse": residual(definite, linalg.cholesky_inverse(definite), cp),
                "gauss_jordan_inverse": residual(general, linalg.gauss_jordan_inverse(general), cp),
                "cupy.linalg.inv": residual(general, cp.linalg.inv(general), cp),
            }
        )
    return rows


def pipeline(repeats: int) -> dict[str, Any]:
    """`reconstruct` on a CuPy image, everything included, beside the times of the thesis."""
    import cupy as cp

    import deblur
    from deblur.device import Device
    from deblur.linalg import cholesky
    from deblur.operators.normal import normal_matrix

    x = np.arange(-4, 5)
    psf = np.exp(-(x[:, None] ** 2 + x**2) / 8.0)
    psf /= psf.sum()
    device = Device.named("gpu")
    out: dict[str, Any] = {}
    for side in (64, 80, 96, 128):
        for dtype in (np.float32, np.float64):
            image = cp.random.default_rng(side).random((side, side)).astype(dtype)
            matrix = normal_matrix(deblur.Blur(psf, image.shape), 1e-3, dtype, device)
            calls = {
                "reconstruct": lambda image=image: deblur.reconstruct(
                    image, psf, 1e-3, method="cholesky", boundary="zero"
                ),
                "normal_matrix": lambda image=image, dtype=dtype: normal_matrix(
                    deblur.Blur(psf, image.shape), 1e-3, dtype, device
                ),
                "cholesky": lambda matrix=matrix: cholesky(matrix),
            }
            times = time_on_gpu(calls, repeats=repeats)
            exact = deblur.reconstruct(
                image.get().astype(np.float64), psf, 1e-3, method="pcg", rtol=1e-12, boundary="zero"
            )
            found = deblur.reconstruct(image, psf, 1e-3, method="cholesky", boundary="zero").get()
            out[f"{side} x {side} {np.dtype(dtype)}"] = {
                "times": times,
                "relative_difference_to_pcg": float(np.linalg.norm(found - exact) / np.linalg.norm(exact)),
                "thesis_matlab_inverse_s": THESIS_MATLAB[side * side],
            }
    return out


def launch_overhead() -> float:
    """Seconds of Python for one launch through `kernels.launch`, the device not waited for."""
    import time

    import cupy as cp

    from deblur import kernels

    a = cp.zeros((8, 8), np.float32)
    for count in (10, 1000):
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(count):
            kernels.launch("triangular", "clear_upper", 8, 256, a, 8, 8, dtype=np.float32)
        seconds = (time.perf_counter() - start) / count
    cp.cuda.Device().synchronize()
    return seconds


def sized(dtype: str, sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    """Every size in one dtype."""
    rates, found, rows = gpu_rates(dtype), [], []
    for n in sizes:
        record = one_size(n, np.dtype(dtype).type, repeats)
        free_caches()
        verdicts = verdicts_of(dtype, record["times"])
        floors = floors_of(n, dtype, rates)
        found.append({"dtype": dtype, "n": n, **record, "verdicts": verdicts, "floors_s": floors})
        for ours, verdict in verdicts.items():
            times, peer = record["times"][ours], record["times"][verdict["peer"]]
            rows.append(
                {
                    "dtype": dtype,
                    "n": n,
                    "ours": ours,
                    "ms": 1e3 * times["median_s"],
                    "device": 1e3 * times["device_s"],
                    "floor": 1e3 * floors[ours],
                    "peer": verdict["peer"],
                    "peer ms": 1e3 * peer["median_s"],
                    "ratio": verdict["ratio"],
                    "asked": verdict["asked"],
                    "error": record["errors"].get(ours, ""),
                }
            )
    print_table(rows)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results, kept = measured_before("gpu_inverse", PARTS)
    results["launch_overhead_s"] = launch_overhead()
    for part in options.parts:
        if part in ("float32", "float64"):
            others = [row for row in results.get("sizes", []) if row["dtype"] != part]
            results["sizes"] = sorted(
                others + sized(part, options.sizes, options.repeats), key=lambda row: (row["dtype"], row["n"])
            )
        elif part == "slowed":
            results["slowed"] = slowed(options.repeats)
            for row in results["slowed"]:
                print("slowed", row["dtype"], {k: round(v["ratio"], 3) for k, v in row["verdicts"].items()})
        elif part == "ill_conditioned":
            results["ill_conditioned"] = ill_conditioned()
            print_table(results["ill_conditioned"])
        else:
            results["reconstruct"] = pipeline(options.repeats)
            for case, row in results["reconstruct"].items():
                print(case, {k: round(1e3 * v["median_s"], 3) for k, v in row["times"].items()}, row)
        kept.pop(part, None)
        save("gpu_inverse", results, sizes=list(options.sizes), repeats=options.repeats, kept=kept)
    print("launch", results["launch_overhead_s"])


if __name__ == "__main__":
    main()

"""QR updating on the GPU beside new factorisations by torch, CuPy and ourselves: the sweeps of the literature.

    python benchmarks/bench_gpu_qr_update.py                  about 2 minutes; writes results/qr_update_gpu.json
    python benchmarks/bench_gpu_qr_update.py --quick          small sizes, writes nothing

The sweeps are those of figures 6-14 of Andrew & Dingle (Parallel Computing 40, 2014), at sizes for a GPU of today, and
the accuracy is that of its tables 3-5. Update and rivals begin with everything on the device and end with the solution
of the least-squares problem; the rivals are handed the changed matrix. Added rows and removed columns need no Q, added
columns and removed rows update it too. "update" is `QRModel`, "sweep" the arithmetic alone, without the model's
bookkeeping. "speed-up" is the best rival's median over the update's.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import numpy as np
from _common import print_table, save, time_together
from bench_qr_update import WORDS, Case

from deblur.linalg import QRModel, plan_update, qr, solve_triangular
from deblur.linalg import sweeps_gpu as gpu
from deblur.linalg.qr_update import add_rows, remove_columns


def sweeps(scale: float) -> Iterator[tuple[int, str, int, int, int, int]]:
    """(figure, which, m, n, p, k) of every cell."""

    def size(x: float) -> int:
        return 1 if x == 1 else max(4, round(x * scale))

    for figure, n in ((6, 1000), (7, 4000)):
        for k in (0, 0.5, 0.9, 1):
            yield figure, "add_columns", size(10000), size(n), size(32), int(size(n) * k)
    for p in (1, 16, 64, 128, 256):
        yield 8, "add_columns", size(10000), size(2000), size(p), size(2000)
    for m in (2000, 4000, 8000, 16000):
        yield 9, "remove_columns", size(m), size(2000), size(200), size(1000)
    for m in (8000, 16000, 32000):
        yield 9, "remove_columns", size(m), size(4000), size(200), size(3600)
    for k, p in itertools.product((0, 0.5, 0.9, 1), (1, 100, 400, 1000)):
        n = size(4000)
        if n * k <= n - size(p) or k == 1:  # 1: the last ones
            yield 10, "remove_columns", size(8000), n, size(p), min(int(n * k), n - size(p))
    for m in (2000, 4000, 8000, 16000):
        yield 11, "add_rows", size(m), size(1000), size(100), 0
    for n, p in itertools.product((500, 1000, 2000, 4000), (1, 64, 256, 1000)):
        yield 12, "add_rows", size(8000), size(n), size(p), 0
    for m, p in itertools.product((2200, 2500, 3000, 4000, 8000), (1, 16, 64)):
        yield 13, "remove_rows", size(m), size(2000), size(p), size(m) // 2
    for n, p in itertools.product((250, 500, 1000, 2000, 4000), (1, 32, 64, 128)):
        yield 14, "remove_rows", size(2 * n), size(n), size(p), size(n)


class OnDevice(Case):
    """`Case` with random numbers made on the device."""

    def __init__(self, which: str, m: int, n: int, p: int, k: int, dtype: Any) -> None:
        rng = cupy.random.default_rng(m * 7919 + n * 31 + p)

        def uniform(*shape: int) -> Any:
            return 2 * rng.random(shape, dtype=dtype) - 1

        self.which, self.m, self.n, self.p, self.k, self.xp = which, m, n, p, k, cupy
        self.keep_q = which in ("add_columns", "remove_rows")
        self.a, self.b, self.e = uniform(m, n), uniform(m), uniform(p)
        self.u = uniform(p, n) if which.endswith("rows") else uniform(m, p)
        self.model = QRModel(self.a, self.b, keep_q=self.keep_q, check_finite=False)
        self.plan = plan_update(which, m, n, p, k, keep_q=self.keep_q, dtype=dtype, device="gpu")

    def changed(self) -> tuple[Any, Any]:
        k, p, axis = self.k, self.p, 0 if self.which.endswith("rows") else 1
        a, b, after = self.a, self.b, k if self.which.startswith("add") else k + p
        middle = [self.u] if self.which.startswith("add") else []
        if axis == 1:
            return cupy.concatenate([a[:, :k], *middle, a[:, after:]], axis=1), b
        ends = [self.e] if middle else []
        return cupy.concatenate([a[:k], *middle, a[after:]]), cupy.concatenate([b[:k], *ends, b[after:]])

    def rivals(self) -> dict[str, Callable[[], Any]]:
        """Least squares by a new QR factorisation; Q is formed by nobody."""
        import torch
        from cupyx import lapack

        a, b = self.changed()
        n, both = a.shape[1], cupy.concatenate([a, b[:, None]], axis=1)
        a_torch, b_torch = torch.from_dlpack(a), torch.from_dlpack(b[:, None])

        def ours() -> Any:
            r = qr(both, "r", check_finite=False)
            return solve_triangular(r[:n, :n], r[:n, n], lower=False, check_finite=False)

        return {
            "torch.linalg.lstsq": lambda: torch.linalg.lstsq(a_torch, b_torch, driver="gels").solution[:, 0],
            "cupyx.lapack.gels": lambda: lapack.gels(a, b),
            "deblur qr": ours,
        }

    def sweep(self) -> Callable[[], Any] | None:
        """[R d] updated and solved with, where no Q takes part."""
        rd, n = self.model._state.rd, self.n
        rows = cupy.concatenate([self.u, self.e[:, None]], axis=1) if self.which == "add_rows" else None
        gone = np.arange(self.k, self.k + self.p)
        if self.keep_q:
            return None

        def run() -> Any:
            if rows is not None:
                new, count = add_rows(None, rd, n, 0, rows)[1], n
            else:
                new, count = remove_columns(None, rd, n, gone)[1], n - self.p
            return solve_triangular(new[:count, :count], new[:count, count], lower=False, check_finite=False)

        return run


def measure(figure: int, case: OnDevice, repeats: int) -> dict[str, Any]:
    """Times of one cell, once every way has given the same solution."""
    rivals = case.rivals()
    sweep = case.sweep()
    calls: dict[str, Callable[[], Any]] = {"update": lambda: case.change("update")}
    calls |= {"sweep": sweep} if sweep else {}
    calls |= rivals
    solutions = {name: cupy.from_dlpack(call()).astype(np.float64) for name, call in calls.items()}
    reference = solutions["torch.linalg.lstsq"]
    size = float(cupy.linalg.norm(reference))
    difference = {name: float(cupy.linalg.norm(x - reference)) / size for name, x in solutions.items()}
    eps = float(np.finfo(case.a.dtype).eps)
    for name, x in difference.items():
        if not x <= 1e5 * eps:
            raise SystemExit(f"{name} differs by {x:.1e} at {case.plan}: nothing to time")
    del solutions
    seconds = time_together(calls, repeats=repeats, synchronize=cupy.cuda.Device().synchronize)
    median = {name: row["median_s"] for name, row in seconds.items()}
    refactor = {name: median[name] for name in rivals}
    action, axis = WORDS[case.which]
    sweep_name = "down" if case.which in ("add_rows", "remove_columns") else "up"
    return {
        "figure": figure, "action": action, "which": axis, "dtype": case.a.dtype.name,
        "m": case.m, "n": case.n, "p": case.p, "k": case.k, "keep_q": case.keep_q,
        "update_s": median["update"], "sweep_s": median.get("sweep"), "refactor_s": refactor,
        "speedup_over_best_refactor": min(refactor.values()) / median["update"],
        "speedup_over_own_qr": refactor["deblur qr"] / median["update"],
        "planned": case.plan.choice,
        "planned_s": {"update": case.plan.update_seconds, "refactor": case.plan.refactor_seconds},
        "sweep_launches": gpu.launches(sweep_name, case.p, case.a.dtype),
        "difference": difference,
        "seconds": seconds,
    }  # fmt: skip


# ---------------------------------------------------------------- accuracy


def errors(model: QRModel, exact: Any) -> dict[str, float]:
    """Normwise error of the solution, ‖QᵀQ − I‖₂ and ‖QR − A‖₂/‖A‖₂, in float64."""
    q, r, a = (x.astype(np.float64) for x in (model.q, model.r, model.a))
    norm = cupy.linalg.norm
    return {
        "solution": float(norm(model.solve() - exact) / norm(exact)),
        "orthogonality": float(norm(q.T @ q - cupy.eye(q.shape[1]), 2)),
        "backward": float(norm(q @ r - a, 2) / norm(a, 2)),
    }


def judged(what: str, model: QRModel) -> dict[str, Any]:
    """The errors of a model and of a fresh factorisation of the same data, against a float64 solution."""
    exact = cupy.linalg.lstsq(model.a.astype(np.float64), model.b.astype(np.float64), rcond=None)[0]
    ours, theirs = errors(model, exact), errors(QRModel(model.a, model.b), exact)
    m, n = model.shape
    return {
        "what": what, "dtype": model.r.dtype.name, "m": m, "n": n, "update": ours, "full": theirs,
        "ratio": {name: ours[name] / theirs[name] for name in ours},
    }  # fmt: skip


def apply(model: QRModel, which: str, rng: np.random.Generator, p: int, k: int) -> None:
    m, n = model.shape

    def uniform(*shape: int) -> Any:
        return cupy.asarray(rng.uniform(-1, 1, shape))

    if which == "add_rows":
        model.add_rows(uniform(p, n), uniform(p), k)
    elif which == "add_columns":
        model.add_columns(uniform(m, p), k)
    elif which == "remove_rows":
        model.remove_rows(slice(k, k + p))
    else:
        model.remove_columns(slice(k, k + p))


def start(m: int, n: int, dtype: Any, method: str) -> tuple[QRModel, np.random.Generator]:
    rng = np.random.default_rng(9)
    a, b = (cupy.asarray(rng.uniform(-1, 1, shape).astype(dtype)) for shape in ((m, n), (m,)))
    return QRModel(a, b, method=method), rng


def accuracy(scale: float, count: int) -> list[dict[str, Any]]:
    """After one update of each kind, and after `count` random ones that keep the model near m x n."""
    rows = []
    m, n, p = (max(4, round(x * scale)) for x in (800, 300, 40))
    for dtype in (np.float32, np.float64):
        for which in WORDS:
            model, rng = start(m, n, dtype, "update")
            apply(model, which, rng, p, n // 3)
            rows.append(judged(f"{which}, once", model))
        for method in ("auto", "update"):
            model, rng = start(m, n, dtype, method)
            for _ in range(count):
                high, wide = model.shape
                size = int(rng.integers(1, max(2, p)))
                if rng.integers(2):
                    which, end = "remove_rows" if high > m + rng.integers(-p, p) else "add_rows", high
                else:
                    which, end = "remove_columns" if wide > n + rng.integers(-p, p) else "add_columns", wide
                apply(model, which, rng, size, int(rng.integers(0, end - size)))
            rows.append(judged(f"{count} random updates, method={method!r}", model))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--count", type=int, default=1000, help="random updates in a row")
    arguments = parser.parse_args()
    scale, repeats = (0.1, 1) if arguments.quick else (1.0, arguments.repeats)
    results, table = [], []
    for dtype, (figure, *what) in itertools.product((np.float32, np.float64), sweeps(scale)):
        row = measure(figure, OnDevice(*what, dtype=dtype), repeats)
        results.append(row)
        table.append(
            {name: row[name] for name in ("figure", "action", "which", "dtype", "m", "n", "p", "k")}
            | {"update ms": row["update_s"] * 1e3, "sweep ms": 1e3 * (row["sweep_s"] or float("nan"))}
            | {f"{name} ms": s * 1e3 for name, s in row["refactor_s"].items()}
            | {"speed-up": row["speedup_over_best_refactor"], "planned": row["planned"]}
        )
        cupy.get_default_memory_pool().free_all_blocks()
    print_table(table)
    exact = accuracy(scale, 30 if arguments.quick else arguments.count)
    print_table(
        [
            {"what": row["what"], "dtype": row["dtype"]}
            | row["update"]
            | {f"{name} ratio": ratio for name, ratio in row["ratio"].items()}
            for row in exact
        ]
    )
    best = {}
    for row in results:
        name = f"{row['action']} {row['which']}, {row['dtype']}"
        best[name] = max(best.get(name, 0.0), row["speedup_over_best_refactor"])
    print("best cells:", {name: round(x, 2) for name, x in best.items()})
    if not arguments.quick:
        print(save("qr_update_gpu", {"sweeps": results, "accuracy": exact, "best": best}, repeats=repeats))


if __name__ == "__main__":
    main()

"""QR updating beside new factorisations, on the CPU or on a GPU: the sweeps of the literature.

    python benchmarks/bench_qr_update.py            5 minutes on 2 cores; writes results/qr_update_cpu.json
    python benchmarks/bench_qr_update.py --gpu      2 minutes; writes results/qr_update_gpu.json
    python benchmarks/bench_qr_update.py --quick    small sizes, writes nothing

The sweeps are those of figures 6-14 of Andrew & Dingle (Parallel Computing 40, 2014), at sizes for a CPU or a GPU of
today, and the accuracy is that of its tables 3-5. Updates and rivals begin with everything in place, the rivals with
the changed matrix, and end with the solution of the least-squares problem. "planned" is the choice of `plan_update`.
Run ``tools/fit_update_costs.py`` first on a machine whose constants are not yet recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
from _common import asked, save, table, time_together

from deblur.linalg import QRModel, plan_update, qr, solve_triangular

WORDS = {
    "remove_columns": ("delete", "col", "columns removed"),
    "add_columns": ("insert", "col", "columns added"),
    "add_rows": ("insert", "row", "rows added"),
    "remove_rows": ("delete", "row", "rows removed"),
}
Cell = tuple[int, str, int, int, int, int, bool]  # figure, which, m, n, p, k, keep_q


def cpu_sweeps(scale: float) -> Iterator[Cell]:
    def size(x: float) -> int:
        return max(4, round(x * scale))

    m, both = size(2000), (False, True)
    for figure, n in ((6, size(300)), (7, size(700))):
        for k in np.linspace(0, n, 5).astype(int).tolist():
            yield figure, "add_columns", m, n, size(50), k, True
    for p in (1, 10, 50, 100, 200):
        yield 8, "add_columns", m, size(600), size(p), size(500), True
    for rows, keep_q in itertools.product((1000, 2000, 4000, 6000), both):
        yield 9, "remove_columns", size(rows), size(500), size(50), size(250), keep_q
    for k, p, keep_q in itertools.product((0, 250, 400), (1, 10, 50, 100), both):
        yield 10, "remove_columns", m, size(500), size(p), size(k), keep_q
    for rows, keep_q in itertools.product((1000, 2000, 4000, 6000), both):
        yield 11, "add_rows", size(rows), size(300), size(50), 0, keep_q
    for n, p, keep_q in itertools.product((100, 300, 600), (1, 20, 100, 300), both):
        yield 12, "add_rows", m, size(n), size(p), 0, keep_q
    for rows, n in ((700, 600), (1200, 600), (2000, 600), (2000, 300), (4000, 300)):
        yield 13, "remove_rows", size(rows), size(n), size(20), size(rows) // 2, True
    for p, keep_q in itertools.product((1, 10, 50, 100, 200), both):
        yield 14, "remove_rows", m, size(500), size(p), size(1000), keep_q


def gpu_sweeps(scale: float) -> Iterator[Cell]:
    def size(x: float) -> int:
        return 1 if x == 1 else max(4, round(x * scale))

    for (figure, n), k in itertools.product(((6, 1000), (7, 4000)), (0, 0.5, 0.9, 1)):
        yield figure, "add_columns", size(10000), size(n), size(32), int(size(n) * k), True
    for p in (1, 16, 64, 128, 256):
        yield 8, "add_columns", size(10000), size(2000), size(p), size(2000), True
    for m in (2000, 4000, 8000, 16000):
        yield 9, "remove_columns", size(m), size(2000), size(200), size(1000), False
    for m in (8000, 16000, 32000):
        yield 9, "remove_columns", size(m), size(4000), size(200), size(3600), False
    for k, p in itertools.product((0, 0.5, 0.9, 1), (1, 100, 400, 1000)):
        n = size(4000)
        if n * k <= n - size(p) or k == 1:  # 1: the last ones
            yield 10, "remove_columns", size(8000), n, size(p), min(int(n * k), n - size(p)), False
    for m in (2000, 4000, 8000, 16000):
        yield 11, "add_rows", size(m), size(1000), size(100), 0, False
    for n, p in itertools.product((500, 1000, 2000, 4000), (1, 64, 256, 1000)):
        yield 12, "add_rows", size(8000), size(n), size(p), 0, False
    for m, p in itertools.product((2200, 2500, 3000, 4000, 8000), (1, 16, 64)):
        yield 13, "remove_rows", size(m), size(2000), size(p), size(m) // 2, True
    for n, p in itertools.product((250, 500, 1000, 2000, 4000), (1, 32, 64, 128)):
        yield 14, "remove_rows", size(2 * n), size(n), size(p), size(n), True


def apply(model: QRModel, which: str, added: tuple[Any, Any], k: int, p: int, **options: Any) -> None:
    """One change of a model; `added` has the new rows with their data, or the new columns."""
    if which == "add_rows":
        model.add_rows(*added, k, **options)
    elif which == "add_columns":
        model.add_columns(added[0], k, **options)
    elif which == "remove_rows":
        model.remove_rows(slice(k, k + p), **options)
    else:
        model.remove_columns(slice(k, k + p), **options)


class Case:
    """One update of one random problem, by every way there is."""

    def __init__(self, update: tuple[str, int, int, int, int, bool], *, xp: Any = np, dtype: Any = np.float64) -> None:
        which, m, n, p, k, keep_q = update
        rng = xp.random.default_rng(m * 7919 + n * 31 + p)

        def uniform(*shape: int) -> Any:
            return (2 * rng.random(shape) - 1).astype(dtype)

        self.which, self.m, self.n, self.p, self.k, self.keep_q, self.xp = which, m, n, p, k, keep_q, xp
        self.a, self.b, self.e = uniform(m, n), uniform(m), uniform(p)
        self.u = uniform(p, n) if which.endswith("rows") else uniform(m, p)
        self.model = QRModel(self.a, self.b, keep_q=keep_q, check_finite=False)
        device = "cpu" if xp is np else "gpu"
        self.plan = plan_update(which, m, n, p, k, keep_q=keep_q, dtype=dtype, device=device)

    def change(self, method: str) -> Any:
        """The model's change and the new solution; the model itself is put back."""
        before = vars(self.model).copy()
        try:
            apply(self.model, self.which, (self.u, self.e), self.k, self.p, method=method)
            return self.model.solve()
        finally:
            vars(self.model).update(before)

    def changed(self) -> tuple[Any, Any]:
        """A and b afterwards."""
        k, axis, xp = self.k, 0 if self.which.endswith("rows") else 1, self.xp
        added, after = self.which.startswith("add"), k if self.which.startswith("add") else k + self.p
        before, behind = (slice(None, k), slice(after, None))
        if axis == 1:
            return xp.concatenate([self.a[:, before], *([self.u] * added), self.a[:, behind]], axis=1), self.b
        a = xp.concatenate([self.a[before], *([self.u] * added), self.a[behind]])
        return a, xp.concatenate([self.b[before], *([self.e] * added), self.b[behind]])

    def rivals(self) -> dict[str, Callable[[], Any]]:
        """New factorisations of the changed matrix."""
        a, b = self.changed()
        if self.xp is not np:
            return self._gpu_rivals(a, b)

        def full() -> Any:
            q, r = scipy.linalg.qr(a, mode="economic", check_finite=False)
            return scipy.linalg.solve_triangular(r, q.T @ b, check_finite=False)

        def without_q() -> Any:
            d, r = scipy.linalg.qr_multiply(a, b, "right")
            return scipy.linalg.solve_triangular(r, d, check_finite=False)

        found = {"QRModel refactor": lambda: self.change("refactor"), "scipy.linalg.qr": full}
        return found if self.keep_q else found | {"scipy.linalg.qr_multiply": without_q}

    def _gpu_rivals(self, a: Any, b: Any) -> dict[str, Callable[[], Any]]:
        import torch
        from cupyx import lapack

        n, both = a.shape[1], self.xp.concatenate([a, b[:, None]], axis=1)
        a_torch, b_torch = torch.from_dlpack(a), torch.from_dlpack(b[:, None])

        def ours() -> Any:
            r = qr(both, "r", check_finite=False)
            return solve_triangular(r[:n, :n], r[:n, n], lower=False, check_finite=False)

        def torchs() -> Any:
            return self.xp.from_dlpack(torch.linalg.lstsq(a_torch, b_torch, driver="gels").solution[:, 0])

        return {"torch.linalg.lstsq": torchs, "cupyx.lapack.gels": lambda: lapack.gels(a, b), "deblur qr": ours}

    def scipys(self) -> Callable[[], Any]:
        """SciPy's update of Q and R."""
        q, r = scipy.linalg.qr(self.a, mode="economic", check_finite=False)
        (action, axis, _), b = WORDS[self.which], self.changed()[1]

        def run() -> Any:
            if action == "insert":
                q1, r1 = scipy.linalg.qr_insert(q, r, self.u, self.k, axis, check_finite=False)
            else:
                q1, r1 = scipy.linalg.qr_delete(q, r, self.k, self.p, axis, check_finite=False)
            return scipy.linalg.solve_triangular(r1, q1.T @ b, check_finite=False)

        return run


def measure(figure: int, case: Case, repeats: int) -> dict[str, Any]:
    """Times of one cell, once every way has given the same solution."""
    xp, rivals, peers = case.xp, case.rivals(), {}
    if xp is np:
        peers = {"scipy.linalg.qr_insert/qr_delete": case.scipys()}
    calls = {"update": lambda: case.change("update"), **rivals, **peers}
    solutions = {name: call().astype(np.float64) for name, call in calls.items()}
    reference = next(solutions[name] for name in ("scipy.linalg.qr", "torch.linalg.lstsq") if name in solutions)
    for name, x in solutions.items():
        difference = float(xp.linalg.norm(x - reference) / xp.linalg.norm(reference))
        if not difference <= (1e-8 if xp is np else 1e5 * float(np.finfo(case.a.dtype).eps)):
            raise SystemExit(f"{name} differs by {difference:.1e} at {case.plan}: nothing to time")
    wait = {} if xp is np else {"synchronize": xp.cuda.Device().synchronize}
    seconds = time_together(calls, repeats=repeats, **wait)
    median = {name: row["median_s"] for name, row in seconds.items()}
    refactor = {name: median[name] for name in rivals}
    action, axis, _ = WORDS[case.which]
    return {
        "figure": figure, "action": action, "which": axis, "dtype": case.a.dtype.name, "m": case.m, "n": case.n,
        "p": case.p, "k": case.k, "keep_q": case.keep_q, "update_s": median["update"], "refactor_s": refactor,
        "peers_s": {name: median[name] for name in peers}, "planned": case.plan.choice, "seconds": seconds,
    }  # fmt: skip


# ---------------------------------------------------------------- accuracy


def errors(model: QRModel, exact: Any, xp: Any) -> dict[str, float]:
    """Normwise error of the solution, ‖QᵀQ − I‖₂ and ‖QR − A‖₂/‖A‖₂, in float64."""
    q, r, a = (x.astype(np.float64) for x in (model.q, model.r, model.a))
    norm = xp.linalg.norm
    return {
        "solution": float(norm(model.solve() - exact) / norm(exact)),
        "orthogonality": float(norm(q.T @ q - xp.eye(q.shape[1]), 2)),
        "backward": float(norm(q @ r - a, 2) / norm(a, 2)),
    }


def compared(what: str, model: QRModel, xp: Any) -> dict[str, Any]:
    """The errors of a model and of a fresh factorisation of the same data, against a float64 solution."""
    exact = xp.linalg.lstsq(model.a.astype(np.float64), model.b.astype(np.float64), rcond=None)[0]
    ours, theirs = errors(model, exact, xp), errors(QRModel(model.a, model.b), exact, xp)
    ratio = {name: ours[name] / theirs[name] for name in ours}
    return {"what": what, "dtype": str(model.r.dtype), "update": ours, "full": theirs, "ratio": ratio}


def accuracy(scale: float, count: int, xp: Any) -> list[dict[str, Any]]:
    """After one update of each kind, and after `count` random ones that keep the model near m x n."""
    m, n, most = (max(4, round(x * scale)) for x in (800, 300, 40))
    rows = []
    for dtype in (np.float32, np.float64):
        rng = np.random.default_rng(9)

        def uniform(*shape: int, rng: np.random.Generator = rng, dtype: Any = dtype) -> Any:
            return xp.asarray(rng.uniform(-1, 1, shape).astype(dtype))

        def changed(model: QRModel, which: str, p: int, k: int) -> None:
            high, wide = model.shape
            added = (uniform(p, wide), uniform(p)) if which == "add_rows" else (uniform(high, p), None)
            apply(model, which, added, k, p)

        for which in WORDS:
            model = QRModel(uniform(m, n), uniform(m), method="update")
            changed(model, which, most, n // 3)
            rows.append(compared(f"{which}, once", model, xp))
        for method in ("auto", "update"):
            model = QRModel(uniform(m, n), uniform(m), method=method)
            for _ in range(count):
                high, wide = model.shape
                size = int(rng.integers(1, max(2, most)))
                axis, end, aim = ("rows", high, m) if rng.integers(2) else ("columns", wide, n)
                which = f"remove_{axis}" if end > aim + rng.integers(-most, most) else f"add_{axis}"
                changed(model, which, size, int(rng.integers(0, end - size)))
            rows.append(compared(f"{count} random updates, method={method!r}", model, xp))
    return rows


# ---------------------------------------------------------------- the tables


def planned_over_new(cell: dict[str, Any]) -> float:
    """Time of the plan's choice over that of a new factorisation by our own `qr`."""
    own = next(v for name, v in cell["refactor_s"].items() if name in ("QRModel refactor", "deblur qr"))
    return cell["update_s"] / own if cell["planned"] == "update" else 1.0


def tables(r: dict[str, Any], place: str) -> list[dict[str, Any]]:
    rows = []
    for (action, axis, words), keep_q in itertools.product(WORDS.values(), (False, True)):
        cells = [s for s in r["sweeps"] if (s["action"], s["which"], s["keep_q"]) == (action, axis, keep_q)]
        if not cells:
            continue
        gains = [min(s["refactor_s"].values()) / s["update_s"] for s in cells]
        row = {"what": words, "kept": "Q and R" if keep_q else "R alone", "cells": len(cells)}
        row |= {"least": min(gains), "most": max(gains), "plan": max(map(planned_over_new, cells))}
        rows.append(row | {"best": cells[gains.index(max(gains))]})
    ratios: dict[str, dict[str, float]] = {}
    for a in r["accuracy"]:
        errors = ratios.setdefault(a["what"] if "random" in a["what"] else "one update", {})
        for what, ratio in a["ratio"].items():
            errors[what] = max(ratio, errors.get(what, 0.0))
    title = (
        f"**QR updating on the {place}.** The least-squares solution after rows or columns were added or removed, by "
        "an update, against the fastest full factorisation of any library in the same run, over the sweeps of Andrew & "
        "Dingle (2014). *Plan / new* is the time of `plan_update`'s choice over that of our own new factorisation, in "
        "the worst cell."
    )
    columns = {"update": "{what}", "kept": "{kept}", "cells": "{cells}"}
    columns |= {"times faster": "{least:.1f} to {most:.1f}"}
    columns |= {"best cell": "{best[m]} × {best[n]}, p = {best[p]}, k = {best[k]}"}
    columns |= {"plan / new": "{plan:.2f}"}
    second = "A `QRModel` with `method='auto'` factors anew before errors add up:"
    exact = {"error over that of a full factorisation, the largest": "{case}"}
    exact |= {name: f"{{{name}:.1f}}" for name in ratios["one update"]}
    lines = [{"case": case} | errors for case, errors in ratios.items()]
    return [table(title, columns, rows), table(second, exact, lines)]


def main() -> None:
    options = asked(__doc__, gpu=False, quick=False)
    scale, repeats, count = (0.1, 1, 50) if options.quick else (1.0, 5, 1000)
    xp, place, dtypes, cells = np, "CPU", (np.float64,), cpu_sweeps(scale)
    if options.gpu:
        import cupy as xp

        place, dtypes, cells = "GPU", (np.float32, np.float64), gpu_sweeps(scale)
    sweeps = [
        measure(figure, Case(what, xp=xp, dtype=dtype), repeats)
        for (figure, *what), dtype in itertools.product(list(cells), dtypes)
    ]
    found = {"sweeps": sweeps, "accuracy": accuracy(scale, count, xp)}
    name, write = f"qr_update_{place.lower()}", not options.quick
    save(name, found, tables(found, place), write=write, repeats=repeats)


if __name__ == "__main__":
    main()

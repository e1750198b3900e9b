"""QR updating on the CPU, beside new factorisations and SciPy's qr_insert/qr_delete: the sweeps of the literature.

    python benchmarks/bench_qr_update.py            about 5 minutes on 2 cores; writes results/qr_update_cpu.json
    python benchmarks/bench_qr_update.py --quick    small sizes, writes nothing

The sweeps are those of figures 6-14 of Andrew & Dingle (Parallel Computing 40, 2014), at sizes for a CPU, and the
accuracy is that of its tables 3-5. An update and its rivals end with the solution of the least-squares problem.
"speed-up" is the best rival's median over the update's; "planned" is what `plan_update` said beforehand, and
"taken" the time of its choice over the faster of our two ways, update or refactor. Run
``fit_update_costs.py`` first on a machine whose constants are not yet in deblur/linalg/update_costs.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from _common import print_table, save, time_together

import deblur
from deblur.linalg import QRModel, plan_update, qr_insert_delete

WORDS = {
    "add_rows": ("insert", "row"),
    "remove_rows": ("delete", "row"),
    "add_columns": ("insert", "col"),
    "remove_columns": ("delete", "col"),
}


def sweeps(scale: float) -> Iterator[tuple[int, str, int, int, int, int, bool]]:
    """(figure, which, m, n, p, k, keep_q) of every cell."""

    def size(x: float) -> int:
        return max(4, round(x * scale))

    m = size(2000)
    for figure, n in ((6, size(300)), (7, size(700))):
        for k in np.linspace(0, n, 5).astype(int).tolist():
            yield figure, "add_columns", m, n, size(50), k, True
    for p in (1, 10, 50, 100, 200):
        yield 8, "add_columns", m, size(600), size(p), size(500), True
    for rows in (1000, 2000, 4000, 6000):
        for keep_q in (False, True):
            yield 9, "remove_columns", size(rows), size(500), size(50), size(250), keep_q
    for k in (0, 250, 400):
        for p in (1, 10, 50, 100):
            for keep_q in (False, True):
                yield 10, "remove_columns", m, size(500), size(p), size(k), keep_q
    for rows in (1000, 2000, 4000, 6000):
        for keep_q in (False, True):
            yield 11, "add_rows", size(rows), size(300), size(50), 0, keep_q
    for n in (100, 300, 600):
        for p in (1, 20, 100, 300):
            for keep_q in (False, True):
                yield 12, "add_rows", m, size(n), size(p), 0, keep_q
    for rows, n in ((700, 600), (1200, 600), (2000, 600), (2000, 300), (4000, 300)):
        yield 13, "remove_rows", size(rows), size(n), size(20), size(rows) // 2, True
    for p in (1, 10, 50, 100, 200):
        for keep_q in (False, True):
            yield 14, "remove_rows", m, size(500), size(p), size(1000), keep_q


class Case:
    """One update of one random problem, by every way there is."""

    def __init__(
        self, which: str, m: int, n: int, p: int, k: int, keep_q: bool, xp: Any = np, dtype: Any = np.float64
    ) -> None:
        rng = np.random.default_rng(m * 7919 + n * 31 + p)
        self.which, self.m, self.n, self.p, self.k, self.keep_q, self.xp = which, m, n, p, k, keep_q, xp
        self.a, self.b = (xp.asarray(rng.uniform(-1, 1, s), dtype=dtype) for s in ((m, n), (m,)))
        rows = which.endswith("rows")
        self.u = xp.asarray(rng.uniform(-1, 1, (p, n) if rows else (m, p)), dtype=dtype)
        self.e = xp.asarray(rng.uniform(-1, 1, p), dtype=dtype)
        self.model = QRModel(self.a, self.b, keep_q=keep_q, check_finite=False)
        self.plan = plan_update(
            which, m, n, p, k, keep_q=keep_q, dtype=dtype, device="cpu" if xp is np else "gpu"
        )

    def change(self, method: str) -> Any:
        """The model's change and the new solution; the model itself is put back."""
        model, state = self.model, self.model._state
        try:
            if self.which == "add_rows":
                model.add_rows(self.u, self.e, self.k, method=method)
            elif self.which == "add_columns":
                model.add_columns(self.u, self.k, method=method)
            elif self.which == "remove_rows":
                model.remove_rows(slice(self.k, self.k + self.p), method=method)
            else:
                model.remove_columns(slice(self.k, self.k + self.p), method=method)
            return model.solve()
        finally:
            model._state = state

    def changed(self) -> tuple[np.ndarray, np.ndarray]:
        """A and b afterwards."""
        k, p, axis = self.k, self.p, 0 if self.which.endswith("rows") else 1
        if self.which.startswith("add"):
            a = np.insert(self.a, [k] * p, self.u, axis)
            return a, np.insert(self.b, [k] * p, self.e) if axis == 0 else self.b
        gone = slice(k, k + p)
        return np.delete(self.a, gone, axis), np.delete(self.b, gone) if axis == 0 else self.b

    def scipys(self) -> Callable[[], Any]:
        q, r = scipy.linalg.qr(self.a, mode="economic", check_finite=False)
        action, axis = WORDS[self.which]
        b = self.changed()[1]

        def run() -> Any:
            if action == "insert":
                q1, r1 = scipy.linalg.qr_insert(q, r, self.u, self.k, axis, check_finite=False)
            else:
                q1, r1 = scipy.linalg.qr_delete(q, r, self.k, self.p, axis, check_finite=False)
            return scipy.linalg.solve_triangular(r1, q1.T @ b, check_finite=False)

        return run

    def rivals(self) -> dict[str, Callable[[], Any]]:
        """New factorisations by SciPy, of the changed matrix as it would be at hand."""
        a, b = self.changed()

        def full() -> Any:
            q, r = scipy.linalg.qr(a, mode="economic", check_finite=False)
            return scipy.linalg.solve_triangular(r, q.T @ b, check_finite=False)

        def without_q() -> Any:
            d, r = scipy.linalg.qr_multiply(a, b, "right")
            return scipy.linalg.solve_triangular(r, d, check_finite=False)

        if self.keep_q:
            return {"scipy.linalg.qr": full}
        return {"scipy.linalg.qr": full, "scipy.linalg.qr_multiply": without_q}


def measure(figure: int, case: Case, repeats: int) -> dict[str, Any]:
    """Times of one cell, once every way has given the same solution."""
    calls = {"update": lambda: case.change("update"), "QRModel refactor": lambda: case.change("refactor")}
    calls |= case.rivals()
    peer = "scipy.linalg.qr_insert/qr_delete"
    calls[peer] = case.scipys()
    solutions = {name: call() for name, call in calls.items()}
    reference = solutions["scipy.linalg.qr"]
    for name, x in solutions.items():
        difference = np.linalg.norm(x - reference) / np.linalg.norm(reference)
        if not difference <= 1e-8:
            raise SystemExit(f"{name} differs by {difference:.1e} at {case.plan}: nothing to time")
    seconds = time_together(calls, repeats=repeats)
    median = {name: row["median_s"] for name, row in seconds.items()}
    refactor = {x: median[x] for x in median if x not in ("update", peer)}
    action, axis = WORDS[case.which]
    ours = {"update": median["update"], "refactor": median["QRModel refactor"]}
    return {
        "figure": figure, "action": action, "which": axis, "m": case.m, "n": case.n, "p": case.p, "k": case.k,
        "keep_q": case.keep_q, "update_s": median["update"], "refactor_s": refactor, "peers_s": {peer: median[peer]},
        "speedup_over_best_refactor": min(refactor.values()) / median["update"],
        "speedup_over_scipy_update": median[peer] / median["update"],
        "planned": case.plan.choice,
        "planned_s": {"update": case.plan.update_seconds, "refactor": case.plan.refactor_seconds},
        "taken_over_best": ours[case.plan.choice] / min(ours.values()),
        "taken_over_refactor": ours[case.plan.choice] / ours["refactor"],
        "seconds": seconds,
    }  # fmt: skip


# ---------------------------------------------------------------- where SciPy's rotations and our blocks cross


PS = (1, 4, 8, 16, 32, 64, 128)


def crossing(scale: float, repeats: int, measured: Callable[..., bool]) -> list[dict[str, Any]]:
    """qr_insert and qr_delete by SciPy and by our sweeps alone, for growing p."""
    rng, rows = np.random.default_rng(3), []
    for (m, n), mode in (
        ((250, 200), "economic"),
        ((2000, 400), "economic"),
        ((900, 600), "economic"),
        ((900, 600), "full"),
    ):
        m, n = round(m * scale), round(n * scale)
        q, r = scipy.linalg.qr(rng.uniform(-1, 1, (m, n)), mode=mode)
        ours = np.ascontiguousarray(q), np.ascontiguousarray(r)
        for p in PS:
            u, v = rng.uniform(-1, 1, (p, n)), rng.uniform(-1, 1, (m, p))
            calls = {
                "add_rows": ("qr_insert", (u, m // 2)),
                "remove_rows": ("qr_delete", (m // 2, p)),
                "add_columns": ("qr_insert", (v, n // 3, "col")),
                "remove_columns": ("qr_delete", (n // 3, p, "col")),
            }
            for which, (name, rest) in calls.items():
                if "remove" in which and p > n // 3:
                    continue
                times = time_together(
                    {
                        "scipy": partial(getattr(scipy.linalg, name), q, r, *rest, check_finite=False),
                        "ours": partial(getattr(qr_insert_delete, name), *ours, *rest, check_finite=False),
                    },
                    repeats=repeats,
                )
                taken = measured(which, m, n, p, mode == "economic")
                median = {x: t["median_s"] for x, t in times.items()}
                rows.append(
                    {"which": which, "mode": mode, "m": m, "n": n, "p": p, "rotations_taken": taken} | median
                )
    return rows


# ---------------------------------------------------------------- deblurring


def deblurring(side: int, repeats: int) -> list[dict[str, Any]]:
    """Bad pixels hidden and an exposure added by `QRDeblurrer`, beside the same from scratch."""
    rng = np.random.default_rng(7)
    psfs = deblur.psf.camera_shake(7, 3), deblur.psf.camera_shake(7, 11)
    images = rng.random((2, side, side))
    rows = []
    for boundary in ("zero", "unknown"):
        problem = deblur.QRDeblurrer(psfs[0], (side, side), 1e-2, boundary=boundary)
        for share in (0.005, 0.02, 0.1, None):
            if share is None:
                what, arguments = "exposure added", (psfs[1],)
                call, given = problem.add_exposure, images
            else:
                mask = rng.random((side, side)) < share
                what, arguments = f"{mask.sum()} pixels hidden", (mask,)
                call, given = problem.hide, images[:1]
            state, results = problem._state, {}
            again = partial(_changed_again, problem, state, call, arguments, given, results)
            times = time_together({x: partial(again, x) for x in ("update", "refactor")}, repeats=repeats)
            problem._state = state
            rows.append(
                {"boundary": boundary, "side": side, "what": what}
                | {f"{x}_s": t["median_s"] for x, t in times.items()}
                | {"speedup": times["refactor"]["median_s"] / times["update"]["median_s"]}
                | {"largest_difference": float(abs(results["update"] - results["refactor"]).max())}
            )
    return rows


def _changed_again(
    problem: Any, state: Any, call: Any, arguments: Any, images: Any, results: dict, method: str
) -> None:
    problem._state = state
    call(*arguments, method=method)
    results[method] = problem(*images)


# ---------------------------------------------------------------- accuracy


def errors(model: QRModel, exact: np.ndarray) -> dict[str, float]:
    """Normwise error of the solution, ‖QᵀQ − I‖₂ and ‖QR − A‖₂/‖A‖₂, in float64."""
    q, r, a = (np.asarray(x, np.float64) for x in (model.q, model.r, model.a))
    return {
        "solution": float(np.linalg.norm(model.solve() - exact) / np.linalg.norm(exact)),
        "orthogonality": float(np.linalg.norm(q.T @ q - np.eye(q.shape[1]), 2)),
        "backward": float(np.linalg.norm(q @ r - a, 2) / np.linalg.norm(a, 2)),
    }


def judged(what: str, model: QRModel) -> dict[str, Any]:
    """The errors of a model and of a fresh factorisation of the same data; float32 against a float64 solution."""
    fresh = QRModel(model.a, model.b)
    exact = np.linalg.lstsq(np.asarray(model.a, np.float64), np.asarray(model.b, np.float64), rcond=None)[0]
    ours, theirs = errors(model, exact), errors(fresh, exact)
    m, n = model.shape
    return {
        "what": what,
        "dtype": str(model.r.dtype),
        "m": m,
        "n": n,
        "update": ours,
        "full": theirs,
        "ratio": {name: ours[name] / theirs[name] for name in ours},
    }


def accuracy(scale: float, count: int) -> list[dict[str, Any]]:
    rows = []
    m, n, p = (max(4, round(x * scale)) for x in (800, 300, 40))
    for dtype in (np.float32, np.float64):
        for which in WORDS:
            case = Case(which, m, n, p, n // 3, True, dtype=dtype)
            state = case.model._state
            case.change("update")
            case.model._state = state
            case.model._method = "update"
            _apply(case.model, which, np.random.default_rng(5), p, n // 3)
            rows.append(judged(f"{which}, once", case.model))
        for method in ("auto", "update"):
            model = _wandered(m, n, p, dtype, method, count)
            rows.append(judged(f"{count} random updates, method={method!r}", model))
    return rows


def _wandered(m: int, n: int, p: int, dtype: Any, method: str, count: int) -> QRModel:
    """A model after `count` random updates that keep it near m x n."""
    rng = np.random.default_rng(9)
    a, b = rng.uniform(-1, 1, (m, n)).astype(dtype), rng.uniform(-1, 1, m).astype(dtype)
    model = QRModel(a, b, method=method)
    for _ in range(count):
        rows, columns = model.shape
        which = str(rng.choice(list(WORDS)))
        if which.endswith("rows"):
            which = "remove_rows" if rows > m + rng.integers(-p, p) else "add_rows"
        else:
            which = "remove_columns" if columns > n + rng.integers(-p, p) else "add_columns"
        size = int(rng.integers(1, max(2, p)))
        end = rows if which.endswith("rows") else columns
        _apply(model, which, rng, size, int(rng.integers(0, end - size)))
    return model


def _apply(model: QRModel, which: str, rng: np.random.Generator, p: int, k: int) -> None:
    m, n = model.shape
    if which == "add_rows":
        model.add_rows(rng.uniform(-1, 1, (p, n)), rng.uniform(-1, 1, p), k)
    elif which == "add_columns":
        model.add_columns(rng.uniform(-1, 1, (m, p)), k)
    elif which == "remove_rows":
        model.remove_rows(slice(k, k + p))
    else:
        model.remove_columns(slice(k, k + p))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    scale, repeats = (0.1, 1) if arguments.quick else (1.0, arguments.repeats)
    results, table = [], []
    for figure, *what in sweeps(scale):
        row = measure(figure, Case(*what), repeats)
        results.append(row)
        table.append(
            {name: row[name] for name in ("figure", "action", "which", "m", "n", "p", "k", "keep_q")}
            | {"update ms": row["update_s"] * 1e3, "best new QR ms": min(row["refactor_s"].values()) * 1e3}
            | {"SciPy's update ms": min(row["peers_s"].values()) * 1e3}
            | {"speed-up": row["speedup_over_best_refactor"], "planned": row["planned"]}
            | {"taken": row["taken_over_best"]}
        )
    print_table(table)
    worst = max(results, key=lambda row: row["taken_over_refactor"])
    print(
        f"\nthe plan's choice is at worst {worst['taken_over_refactor']:.2f} times as slow as a new factorisation "
        f"(figure {worst['figure']}, p = {worst['p']}), and the right one in "
        f"{sum(row['taken_over_best'] == 1 for row in results)} of {len(results)} cells\n"
    )
    qr_insert_delete.rotations_are_faster, kept = lambda *_: False, qr_insert_delete.rotations_are_faster
    try:
        blocks = crossing(scale, repeats, kept)
    finally:
        qr_insert_delete.rotations_are_faster = kept
    print(
        "qr_insert/qr_delete: SciPy's time over that of our sweeps; * where SciPy's routine is the one taken"
    )
    print_table(
        [
            {"which": which, "mode": mode, "size": f"{m} x {n}"}
            | {f"p = {p}": "--" for p in PS}
            | {
                f"p = {row['p']}": f"{row['scipy'] / row['ours']:.2f}{'*' * row['rotations_taken']}"
                for row in blocks
                if (row["which"], row["mode"], row["m"], row["n"]) == (which, mode, m, n)
            }
            for which, mode, m, n in dict.fromkeys((x["which"], x["mode"], x["m"], x["n"]) for x in blocks)
        ]
    )
    restored = deblurring(round(64 * max(scale, 0.25)), repeats)
    print("\nQRDeblurrer: a change and the picture restored after it")
    print_table(restored)
    exact = accuracy(scale, 50 if arguments.quick else 1000)
    print_table(
        [
            {"what": row["what"], "dtype": row["dtype"]}
            | {f"{name}": row["update"][name] for name in row["update"]}
            | {f"{name} ratio": row["ratio"][name] for name in row["ratio"]}
            for row in exact
        ]
    )
    if not arguments.quick:
        print(
            save(
                "qr_update_cpu",
                {"sweeps": results, "crossing": blocks, "deblurring": restored, "accuracy": exact},
                repeats=repeats,
            )
        )


if __name__ == "__main__":
    main()

"""QR updating: how much time it saves against factoring anew, for rows or columns added to A = QR or removed.

    python examples/table_qr_update.py                            four updates here, and the recorded sweeps
    python examples/table_qr_update.py --shape 4000 800 50        rows, columns, and how many come or go
    python examples/table_qr_update.py --picture updating.png     also draws the sweeps

The sweeps are those of figures 6-14 of R. Andrew and N. Dingle, Parallel Computing 40 (2014), recorded by
benchmarks/bench_qr_update.py on a CPU and benchmarks/bench_qr_update.py --gpu on a GPU. Each time includes the
solution of the least-squares problem. "planned" is the prediction of deblur.linalg.plan_update.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from _recorded import find_gpu, origin, recorded, show

from deblur.linalg import QRModel

#: The best that the paper reports against a full factorisation on a Tesla M2050, in words where it gives no number.
PUBLISHED = {
    ("insert", "col"): "3.5",
    ("delete", "col"): "13.5",
    ("insert", "row"): "about 2",
    ("delete", "row"): "under 1, but for few rows of a nearly square A",
}
WORDS = {
    ("insert", "col"): "columns added",
    ("delete", "col"): "columns removed",
    ("insert", "row"): "rows added",
    ("delete", "row"): "rows removed",
}


def here(m: int, n: int, p: int, xp: Any = np, repeats: int = 3) -> list[list[str]]:
    """The four updates in the middle of an m x n matrix, measured on this machine."""
    rng = np.random.default_rng(0)
    a, b, rows, e, columns = (xp.asarray(rng.standard_normal(s)) for s in ((m, n), m, (p, n), p, (m, p)))
    model = QRModel(a, b)
    changes = {
        ("insert", "col"): lambda x, how: x.add_columns(columns, n // 2, method=how),
        ("delete", "col"): lambda x, how: x.remove_columns(slice(n // 2, n // 2 + p), method=how),
        ("insert", "row"): lambda x, how: x.add_rows(rows, e, m // 2, method=how),
        ("delete", "row"): lambda x, how: x.remove_rows(slice(m // 2, m // 2 + p), method=how),
    }
    table = []
    for kind, change in changes.items():
        times, solutions = {}, []
        for how in ("update", "refactor"):
            seconds = []
            for _ in range(repeats + 1):
                changed = copy.deepcopy(model)
                _wait(xp)
                start = time.perf_counter()
                change(changed, how)
                solution = changed.solve()
                _wait(xp)
                seconds.append(time.perf_counter() - start)
            times[how] = statistics.median(seconds[1:])  # the first call compiles and warms up
            solutions.append(solution)
        difference = float(xp.linalg.norm(solutions[0] - solutions[1]) / xp.linalg.norm(solutions[1]))
        planned = copy.deepcopy(model)
        change(planned, "auto")
        assert planned.plan is not None
        ms = [f"{1e3 * times[how]:.2f}" for how in ("update", "refactor")]
        speed = f"{times['refactor'] / times['update']:.2f}"
        table.append([WORDS[kind], *ms, speed, PUBLISHED[kind], planned.plan.choice, f"{difference:.0e}"])
    return table


def _wait(xp: Any) -> None:
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def speedup(cell: dict[str, Any]) -> float:
    """Of an update over the best full factorisation of its run."""
    return min(cell["refactor_s"].values()) / cell["update_s"]


def sweeps(record: dict[str, Any]) -> None:
    """Print every recorded cell, and the best of each kind beside the published one."""
    cells = record["results"]["sweeps"]
    rows = []
    for c in cells:
        best = min(c["refactor_s"], key=c["refactor_s"].get)
        rows.append(
            [
                str(c["figure"]),
                WORDS[c["action"], c["which"]],
                *(str(c[x]) for x in ("m", "n", "p", "k")),
                {True: "yes", False: "no"}.get(c.get("keep_q"), "–"),
                f"{1e3 * c['update_s']:.3g}",
                f"{1e3 * c['refactor_s'][best]:.3g} ({best})",
                f"{speedup(c):.2f}",
                c.get("planned") or "–",
            ]
        )
    show(["figure", "", "m", "n", "p", "k", "Q kept", "ms", "full, ms", "speed-up", "planned"], rows)
    print()
    kinds = {(c["action"], c["which"]): None for c in cells}
    best_of = {k: max(speedup(c) for c in cells if (c["action"], c["which"]) == k) for k in kinds}
    show(["best cell", "speed-up", "published"], [[WORDS[k], f"{s:.2f}", PUBLISHED[k]] for k, s in best_of.items()])


def draw(path: Path, records: dict[str, dict[str, Any]]) -> None:
    """Speed-up of every recorded cell, a panel for each kind of update."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for ax, kind in zip(figure.subplots(1, 4, sharey=True), WORDS, strict=True):
        for (device, record), marker in zip(records.items(), "os", strict=False):
            cells = [c for c in record["results"]["sweeps"] if (c["action"], c["which"]) == kind]
            ax.loglog([c["p"] for c in cells], [speedup(c) for c in cells], marker, alpha=0.6, label=device)
        ax.axhline(1, color="0.6", lw=1)
        ax.set(title=WORDS[kind], xlabel="p")
    figure.axes[0].set_ylabel("times faster than the best full factorisation")
    figure.axes[0].legend()
    figure.savefig(path, dpi=100)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=3, default=(1500, 300, 30), metavar=("M", "N", "P"))
    parser.add_argument("--picture", type=Path, help="where to draw the recorded sweeps")
    options = parser.parse_args(arguments)
    m, n, p = options.shape
    if not 0 < p < n <= m - p:
        raise SystemExit(f"--shape M N P needs 0 < P < N <= M - P, not {m} {n} {p}")
    header = ["", "update, ms", "refactor, ms", "speed-up", "published, best", "planned", "difference of solutions"]
    xp = find_gpu()
    for words, library in (("this CPU", np), *((("the GPU here", xp),) if xp else ())):
        print(f"\n{p} rows or columns in the middle of {m} x {n}, float64, on {words}\n")
        show(header, here(m, n, p, library))
    records = {}
    for device, name in (("GPU", "qr_update_gpu"), ("CPU", "qr_update_cpu")):
        record = recorded(name)
        if record is None:
            print(f"\n{device}: benchmarks/results/{name}.json has not been recorded yet.")
            continue
        records[device] = record
        no_gpu = "no GPU here; " if device == "GPU" and xp is None else ""
        print(f"\nSweeps on a {device}: {no_gpu}{origin(record)}\n")
        sweeps(record)
    if options.picture and records:
        draw(options.picture, records)
        print(f"\nwritten: {options.picture}")


if __name__ == "__main__":
    main()

"""Table 5.1 and figures 5.18-5.19 of the thesis: how long it takes to invert the system matrix.

    python examples/table_inversion.py                        the published sizes, as far as memory goes
    python examples/table_inversion.py --sizes 1024 4096      other sizes (squares: the matrix is of an image)
    python examples/table_inversion.py --picture times.png    also draws both figures

The published sizes take some minutes. What would take longer than --limit is not run, and the table says so. The
matrix is HHᵀ + λI of a square image. Every inverse is checked before its time is printed. On a machine without a GPU,
the table shows the GPU's figures from benchmarks/results.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _recorded import find_gpu, origin, recorded, show

import deblur
from deblur import linalg
from deblur.device import Device, format_bytes, free_memory
from deblur.operators.normal import normal_matrix

# Table 5.1, in seconds: MATLAB's inv in double precision. Figures 5.18 and 5.19 have no numbers beside them but these.
PUBLISHED = {4096: 24.29, 6400: 87.46, 9216: 259.31, 16384: 1496.89}
PUBLISHED_RATIOS = "Gauss-Seidel up to 8 times, Cholesky + GETS + product 4 times faster than MATLAB's inv"
PSF, LAM = deblur.psf.disk(7), 0.01
MATRICES = 4  # held at once, at the most: the matrix, a copy, the inverse, and the identity that goes in
FIRST = 24 * 24  # the size from which the next one's time is foreseen
MATLAB, BUILT_IN = "MATLAB (published)", "linalg.inv"

#: Each inverse as a function of (array library, matrix).
METHODS: dict[str, Callable[[Any, Any], Any]] = {
    BUILT_IN: lambda xp, a: xp.linalg.inv(a),
    "Gauss-Jordan": lambda xp, a: linalg.gauss_jordan_inverse(a),
    "Cholesky + GETS + product": lambda xp, a: linalg.cholesky_inverse(a),
    "Gauss-Seidel": lambda xp, a: linalg.gauss_seidel(a, xp.eye(len(a), dtype=a.dtype), acceleration="cg")[0],
}
#: What these are called in benchmarks/results/gpu_inverse.json.
RECORDED = {
    BUILT_IN: "cupy.linalg.inv",
    "Gauss-Jordan": "gauss_jordan_inverse",
    "Cholesky + GETS + product": "cholesky_inverse",
    "Gauss-Seidel": "gauss_seidel",
}


def side_of(n: int) -> int:
    """The side of the square image that has `n` pixels."""
    side = math.isqrt(n)
    if side * side != n or side < max(PSF.shape):
        raise SystemExit(f"{n} is not the number of pixels of a square image of at least 7 x 7; try 4096")
    return side


class Contest:
    """Times every method on one device, size after size."""

    def __init__(self, dtype: str, limit: float, xp: Any = np) -> None:
        self.dtype, self.limit, self.xp = np.dtype(dtype), limit, xp
        self.figures: dict[int, dict[str, float]] = {}
        self.remarks: list[str] = []
        self._per_n3: dict[str, float] = {}  # seconds over n³, from the size before
        self._run(FIRST)  # also the first call, in which a GPU compiles

    def measure(self, n: int) -> None:
        """Adds the figures of size `n`, and remarks on what was not run."""
        needed, free = MATRICES * n * n * self.dtype.itemsize, free_memory(self.xp)
        self.figures[n] = {}
        if needed > free:
            self.remarks.append(
                f"n = {n} was not run: {MATRICES} matrices take {format_bytes(needed)}, "
                f"and {format_bytes(free)} are free"
            )
            return
        self.figures[n] = self._run(n)

    def _run(self, n: int) -> dict[str, float]:
        side = side_of(n)
        a = normal_matrix(deblur.Blur(PSF, (side, side)), LAM, self.dtype, Device.of(self.xp.zeros(0)))
        figures = {}
        for name, invert in METHODS.items():
            expected = self._per_n3.get(name, 0.0) * n**3
            if expected > self.limit:
                self.remarks.append(
                    f"{name} was not run at n = {n}: it would take about {expected:.0f} s, "
                    f"more than --limit {self.limit:g}"
                )
                continue
            figures[name] = self._seconds(invert, a)
            self._per_n3[name] = figures[name] / n**3
        return figures

    def _seconds(self, invert: Callable[[Any, Any], Any], a: Any) -> float:
        xp = self.xp
        self._wait()
        start = time.perf_counter()
        inverse = invert(xp, a)
        self._wait()
        seconds = time.perf_counter() - start
        # ‖A X v − v‖ against ‖A‖ ‖X‖ ‖v‖, with ‖A‖ ≤ 1 + λ and ‖X‖ ≤ 1/λ for this matrix. Gauss-Seidel stops at √eps.
        v = xp.asarray(np.random.default_rng(0).standard_normal(len(a)).astype(a.dtype))
        error = float(xp.linalg.norm(a @ (inverse @ v) - v) / xp.linalg.norm(v)) * LAM / (1 + LAM)
        eps = float(np.finfo(a.dtype).eps)
        if not error <= max(10 * len(a) * eps, eps**0.5):
            raise SystemExit(f"wrong inverse at n = {len(a)}: relative residual {error:.1e}")
        return seconds

    def _wait(self) -> None:
        if self.xp is not np:
            self.xp.cuda.get_current_stream().synchronize()


def from_results(sizes: list[int], dtype: str) -> tuple[str, dict[int, dict[str, float]]]:
    """(where from, figures of the GPU by size), as recorded."""
    record = recorded("gpu_inverse")
    if record is None:
        return "not recorded yet", {}
    times = {r["n"]: r["times"] for r in record["results"]["sizes"] if r["dtype"] == dtype}
    figures: dict[int, dict[str, float]] = {
        n: {name: times[n][key]["median_s"] for name, key in RECORDED.items() if key in times[n]}
        for n in sizes
        if n in times
    }
    return origin(record), figures


def line(n: int, figures: dict[str, float]) -> list[str]:
    """The cells of one row."""
    published = f"{PUBLISHED[n]:.2f}" if n in PUBLISHED else "–"
    cells = [f"{n}", f"{math.isqrt(n)} x {math.isqrt(n)}", published]
    return cells + [f"{figures[name]:.4g}" if name in figures else "–" for name in METHODS]


def report(title: str, figures: dict[int, dict[str, float]], remarks: list[str]) -> None:
    """Both tables of one device: seconds (table 5.1, figure 5.18), ratios (figure 5.19)."""
    header = ["n", "image", MATLAB, *METHODS]
    print(f"\n{title}: seconds\n")
    show(header, [line(n, row) for n, row in figures.items()])
    for remark in remarks:
        print(remark)
    if not any(figures.values()):
        return
    print(f"\n{title}: times faster than {BUILT_IN} on the same machine (the thesis: {PUBLISHED_RATIOS})\n")
    ratios = {n: {name: row[BUILT_IN] / s for name, s in row.items()} for n, row in figures.items() if BUILT_IN in row}
    names = [name for name in METHODS if name != BUILT_IN]
    show(["n", *names], [[str(n), *(f"{r[x]:.3g}" if x in r else "–" for x in names)] for n, r in ratios.items()])


def draw(path: Path, devices: dict[str, dict[int, dict[str, float]]]) -> None:
    """Figures 5.18 and 5.19: seconds, and ratios to the built-in inverse of the same machine."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    times, ratios = figure.subplots(1, 2)
    times.loglog(list(PUBLISHED), list(PUBLISHED.values()), "k^--", label=MATLAB)
    for (device, rows), style in zip(devices.items(), ("o-", "s:"), strict=False):
        for colour, name in enumerate(METHODS):
            seconds = {n: row[name] for n, row in rows.items() if name in row}
            ratio = {n: rows[n][BUILT_IN] / s for n, s in seconds.items() if BUILT_IN in rows[n]}
            for ax, points in ((times, seconds), (ratios, {} if name == BUILT_IN else ratio)):
                if points:
                    ax.loglog(*zip(*points.items()), style, color=f"C{colour}", label=f"{name}, {device}")
    times.set(xlabel="n", ylabel="seconds", title="Inversion of an n × n matrix")
    ratios.axhline(1, color="0.7", lw=1)
    ratios.set(xlabel="n", ylabel="times", title=f"Times faster than {BUILT_IN} on the same machine")
    for ax in (times, ratios):
        ax.legend(fontsize=7)
        ax.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(PUBLISHED), metavar="N")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds that one inverse may take")
    parser.add_argument("--picture", type=Path, help="where to draw figures 5.18 and 5.19")
    options = parser.parse_args(arguments)
    for n in options.sizes:
        side_of(n)
    print("Inversion of HHᵀ + λI beside table 5.1 of the thesis (MATLAB's inv on a CPU of about 2012)")
    here = Contest(options.dtype, options.limit)
    devices = {"CPU": here.figures}
    for n in options.sizes:
        here.measure(n)
    report(f"This CPU, {options.dtype}", here.figures, here.remarks)
    xp = find_gpu()
    if xp is not None:
        there = Contest(options.dtype, options.limit, xp)
        for n in options.sizes:
            there.measure(n)
        where, devices["GPU"], remarks = "measured here", there.figures, there.remarks
    else:
        where, devices["GPU"] = from_results(options.sizes, options.dtype)
        remarks = []
    if devices["GPU"]:
        report(f"GPU, {options.dtype}, {where}", devices["GPU"], remarks)
    else:
        print(f"\nNo GPU here, and no figures of these sizes in benchmarks/results ({where}).")
    if options.picture:
        draw(options.picture, devices)
        print(f"\nwritten: {options.picture}")


if __name__ == "__main__":
    main()

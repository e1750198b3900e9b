"""Time the choices of a method that differ from those of the deleted cost model: ``python tools/compare_choices.py``.

``tools/recorded_choices.json`` has 500 problems with the method that the cost model of commit f8e277a chose on a CPU.
For each problem of at most SIDE pixels a side whose choice has changed both methods are timed in turns; the table has
the ratio of their seconds, set-up and solve together.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import numpy as np

import deblur
from deblur.methods import METHODS, serving
from deblur.problem import Problem

SIDE, TURNS = 128, 3


def psf_of(name: str) -> np.ndarray:
    """The PSF of a recorded problem: a form, or "random:N" of N x N pixels."""
    if name.startswith("random:"):
        n = int(name.partition(":")[2])
        h = np.random.default_rng(0).random((n, n))
        return h / h.sum()
    return deblur.psf.parse(name)


def seconds(method: str, problem: Problem, g: np.ndarray) -> float:
    """Set-up and solve with a method, the least of a few turns."""
    taken = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        METHODS[method].prepare(problem).solve(g)
        taken.append(time.perf_counter() - begun)
    return min(taken)


def main() -> None:
    rows = json.loads((Path(__file__).parent / "recorded_choices.json").read_text())
    changed, ratios = 0, []
    for side, psf, boundary, lam, dtype, before in rows:
        blur = deblur.Blur(psf_of(psf), (side, side), boundary)
        problem = Problem(blur, lam, dtype=np.dtype(dtype))
        after = next(serving(problem)).method
        changed += after != before
        if after == before or side > SIDE:
            continue
        g = np.random.default_rng(1).random((1, 1, side, side)).astype(dtype)
        try:
            ratio = seconds(after, problem, g) / seconds(before, problem, g)
        except deblur.SingularMatrixError:
            continue
        ratios.append(ratio)
        print(f"{side:5} {psf:16} {boundary:12} {lam:8.0e} {dtype} {before:>12} -> {after:12} {ratio:6.2f}")
    print(f"{changed} of {len(rows)} choices changed; {len(ratios)} timed")
    if ratios:
        worse = sum(ratio > 1.3 for ratio in ratios)
        print(f"median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}; above 1.3: {worse}")


if __name__ == "__main__":
    main()

"""Inverses and solutions of dense matrices on the CPU, beside NumPy's and SciPy's.

    python benchmarks/bench_cpu_linalg.py [--quick]

Prints a table and writes benchmarks/results/cpu_linalg.json. Each of our functions is timed in
turns with the library's on the same matrix, after its answer has been checked against it. In the
table, "ratio" is our median over the library's: below 1, ours is the faster. ``--quick`` takes
small sizes and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from _common import print_table, save, time_together

from deblur import linalg

REPEATS = 7


def compare(
    what: str, n: int, ours: Callable[[], np.ndarray], peer: str, theirs: Callable[[], np.ndarray]
) -> dict[str, Any]:
    """Time `ours` and `theirs` in turns, once they are known to agree."""
    mine, reference = ours(), theirs()
    difference = float(np.linalg.norm(mine - reference) / np.linalg.norm(reference))
    if not difference <= 1e-8:
        raise SystemExit(f"{what} at n = {n} differs from {peer} by {difference:.1e}: nothing to time")
    seconds = time_together({what: ours, peer: theirs}, repeats=REPEATS)
    ratio = seconds[what]["median_s"] / seconds[peer]["median_s"]
    return {"what": what, "n": n, "peer": peer, "ratio": ratio, "difference": difference, "seconds": seconds}


def general(n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Gauss-Jordan against LU, on a Gaussian random matrix."""
    a, b = rng.standard_normal((n, n)), rng.standard_normal(n)
    return [
        compare(
            "gauss_jordan_inverse",
            n,
            lambda: linalg.gauss_jordan_inverse(a),
            "numpy.linalg.inv",
            lambda: np.linalg.inv(a),
        ),
        compare(
            "gauss_jordan_solve",
            n,
            lambda: linalg.gauss_jordan_solve(a, b),
            "numpy.linalg.solve",
            lambda: np.linalg.solve(a, b),
        ),
    ]


def positive_definite(n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Cholesky against SciPy's Cholesky and NumPy's LU, on a shifted Gram matrix."""
    h = rng.standard_normal((n, n))
    a, b = linalg.gram(h) / n + 0.01 * np.eye(n), rng.standard_normal(n)
    return [
        compare(
            "cholesky + cholesky_solve",
            n,
            lambda: linalg.cholesky_solve(linalg.cholesky(a), b),
            "scipy cho_factor + cho_solve",
            lambda: scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), b),
        ),
        compare(
            "cholesky_inverse",
            n,
            lambda: linalg.cholesky_inverse(a),
            "numpy.linalg.inv",
            lambda: np.linalg.inv(a),
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds, no results file")
    quick = parser.parse_args().quick
    rng = np.random.default_rng(2026)
    results = []
    for n in (256, 512) if quick else (512, 1024, 2048):
        results += general(n, rng)
    for n in (512,) if quick else (1024, 2048, 4096):
        results += positive_definite(n, rng)
    print_table(
        [
            {
                "what": r["what"],
                "n": r["n"],
                "ms": 1e3 * r["seconds"][r["what"]]["median_s"],
                "from": 1e3 * r["seconds"][r["what"]]["min_s"],
                "to": 1e3 * r["seconds"][r["what"]]["max_s"],
                "against": r["peer"],
                "its ms": 1e3 * r["seconds"][r["peer"]]["median_s"],
                "ratio": r["ratio"],
            }
            for r in results
        ]
    )
    if not quick:
        print("written:", save("cpu_linalg", results, repeats=REPEATS, dtype="float64").name)


if __name__ == "__main__":
    main()

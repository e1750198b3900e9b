"""Agreement of every linear method with a dense float64 solve, and dense linear algebra on the CPU beside its peers.

    python benchmarks/bench_core.py [--parts core linalg] [--quick]

Writes benchmarks/results/core.json and cpu_linalg.json; --quick takes small sizes and writes nothing. Times are taken
in turns with the peer's on the same matrix, after the answers have been compared.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from _common import asked, save, table, time_together

import deblur
from deblur import BOUNDARIES, Blur, linalg
from deblur.methods import METHODS
from deblur.problem import Problem

LAMBDAS = (1e-2, 1e-4, 1e-6)
REPEATS = 7
PSFS = (deblur.psf.gaussian(3, 0.6), deblur.psf.gaussian(7, 1.2), deblur.psf.camera_shake(9, 3))


def dense(blur: Blur, g: np.ndarray, lam: float) -> dict[str, np.ndarray]:
    """The dense float64 solution inside the frame, by formula."""
    h = blur.to_dense()
    factor = scipy.linalg.lu_factor(h @ h.T + lam * np.eye(len(h)))
    scenes = {"tikhonov": h.T @ scipy.linalg.lu_solve(factor, g.ravel())}
    if blur.crop == tuple(slice(0, n) for n in blur.scene_shape):
        scenes["hht"] = scipy.linalg.lu_solve(factor, h.T @ g.ravel())
    return {formula: scene.reshape(blur.scene_shape)[blur.crop] for formula, scene in scenes.items()}


def agreement(size: int) -> list[dict[str, Any]]:
    """The largest relative difference of each method from the dense solve, over PSFs, boundaries and formulas."""
    sharp = deblur.data.load("camera")[96 : 96 + size + 8, 96 : 96 + size + 8]
    names = [name for name, method in METHODS.items() if method.linear]
    keys = [f"lambda {lam:g}" for lam in LAMBDAS]
    rows = {(name, dtype): dict.fromkeys(keys) for name in names for dtype in ("float64", "float32")}
    failed = dict.fromkeys(rows, 0)
    for psf, boundary, lam in itertools.product(PSFS, BOUNDARIES, LAMBDAS):
        blur = Blur(psf, (size, size), boundary)
        scene = sharp[: blur.scene_shape[0], : blur.scene_shape[1]]
        g = deblur.degrade(scene, psf, noise=0.01, boundary=boundary, seed=1)
        for (formula, expected), (name, dtype) in itertools.product(dense(blur, g, lam).items(), rows):
            if METHODS[name].refuses(Problem(blur, lam, formula=formula)) is not None:
                continue
            more = {"rtol": 1e-12} if name == "hybrid-lsqr" and dtype == "float64" else {}
            try:
                result = deblur.solve(
                    g.astype(dtype), psf, lam, method=name, boundary=boundary, formula=formula, prior="zero",
                    check=False, **more,
                )  # fmt: skip
            except deblur.SingularMatrixError:
                failed[name, dtype] += 1
                continue
            if not result.status.ok:
                failed[name, dtype] += 1
                continue
            error = float(np.linalg.norm(result.image - expected) / np.linalg.norm(expected))
            row, key = rows[name, dtype], f"lambda {lam:g}"
            row[key] = max(row[key] or 0.0, error)
    return [
        {"method": name, "dtype": dtype} | row | {"refused or reported as failed": failed[name, dtype]}
        for (name, dtype), row in rows.items()
    ]


def compared(what: str, ours: Callable[[], np.ndarray], peer: str, theirs: Callable[[], np.ndarray]) -> dict[str, Any]:
    """Time `ours` and `theirs` in turns, once they are known to agree."""
    mine, reference = ours(), theirs()
    difference = float(np.linalg.norm(mine - reference) / np.linalg.norm(reference))
    if not difference <= 1e-8:
        raise SystemExit(f"{what} differs from {peer} by {difference:.1e}: nothing to time")
    seconds = time_together({what: ours, peer: theirs}, repeats=REPEATS)
    ratio = seconds[what]["median_s"] / seconds[peer]["median_s"]
    return {"what": what, "peer": peer, "ratio": ratio, "difference": difference, "seconds": seconds}


def on_cpu(quick: bool) -> list[dict[str, Any]]:
    """Gauss-Jordan on random matrices and Cholesky on shifted Gram matrices, against NumPy and SciPy."""
    rng, rows = np.random.default_rng(2026), []
    for n in (256, 512) if quick else (512, 1024, 2048):
        a, b = rng.standard_normal((n, n)), rng.standard_normal(n)
        rows += [
            {"n": n} | compared(what, lambda f=f, x=x: f(*x), peer, lambda p=p, x=x: p(*x))
            for what, f, peer, p, x in (
                ("gauss_jordan_inverse", linalg.gauss_jordan_inverse, "numpy.linalg.inv", np.linalg.inv, (a,)),
                ("gauss_jordan_solve", linalg.gauss_jordan_solve, "numpy.linalg.solve", np.linalg.solve, (a, b)),
            )
        ]  # fmt: skip
    for n in (512,) if quick else (1024, 2048, 4096):
        h, b = rng.standard_normal((n, n)), rng.standard_normal(n)
        a = linalg.gram(h) / n + 0.01 * np.eye(n)
        solved = compared(
            "cholesky + cholesky_solve",
            lambda a=a, b=b: linalg.cholesky_solve(linalg.cholesky(a), b),
            "scipy cho_factor + cho_solve",
            lambda a=a, b=b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), b),
        )
        inverted = compared(
            "cholesky_inverse", lambda a=a: linalg.cholesky_inverse(a), "numpy.linalg.inv", lambda a=a: np.linalg.inv(a)
        )
        rows += [{"n": n} | solved, {"n": n} | inverted]
    return rows


def core_tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    columns = {"method": "{method}", "dtype": "{dtype}"}
    columns |= {f"λ = {lam:g}": f"{{lambda {lam:g}:sci}}" for lam in LAMBDAS}
    title = (
        "**Agreement.** The largest relative difference of each method from a dense float64 solve at "
        f"{r['size']} × {r['size']} pixels, over three PSFs, all boundaries and both formulas that it serves. A solve "
        "that the method or the verification reports as failed is counted in the last column and gives no image."
    )
    notes = (
        f"`filter2matrix` with a 9 × 9 PSF and 64 × 64 pixels takes "
        f"{1e3 * r['sparse']['median_s']:.2f} ms, `python -c 'import deblur'` {r['import']['median_s']:.2f} s."
    )
    columns["reported as failed"] = "{refused or reported as failed}"
    return [table(title, columns, r["agreement"], notes)]


def core_summary(r: dict[str, Any]) -> str:
    errors = [row[f"lambda {lam:g}"] or 0 for row in r["agreement"] if row["dtype"] == "float64" for lam in LAMBDAS]
    return (
        f"In float64 every method agrees with a dense solve to a relative difference of {max(errors):.0e} or better "
        f"({r['size']} × {r['size']} pixels, λ from 1e-2 to 1e-6), or says that it failed."
    )


def linalg_tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    columns = {"`deblur.linalg`": "{what}", "n": "{n}", "peer": "{peer}", "time ratio": "{ratio:.2f}"}
    columns["relative difference"] = "{difference:sci}"
    return [table("**Dense linear algebra on the CPU.** Time over that of the peer, in one run.", columns, rows)]


def main() -> None:
    options = asked(__doc__, parts=("core", "linalg"), quick=False)
    write = not options.quick
    if "core" in options.parts:
        psf, size = np.random.default_rng(0).random((9, 9)), 16 if options.quick else 32
        start = [sys.executable, "-c", "import deblur"]
        calls = {"sparse": lambda: deblur.filter2matrix(psf, 64, 64, sparse=True)}
        calls["import"] = lambda: subprocess.run(start, check=True)
        found = {"size": size, "agreement": agreement(size)} | time_together(calls)
        save("core", found, core_tables(found), core_summary(found), write=write)
    if "linalg" in options.parts:
        rows = on_cpu(options.quick)
        save("cpu_linalg", rows, linalg_tables(rows), write=write, repeats=REPEATS, dtype="float64")


if __name__ == "__main__":
    main()

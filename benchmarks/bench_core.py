"""The core's figures: agreement with a dense float64 solve, Cholesky beside SciPy's, and import time.

    python benchmarks/bench_core.py [--quick]

Writes benchmarks/results/core.json. --quick uses smaller images and writes nothing.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np
from _common import print_table, save, time_together
from scipy.linalg import cho_factor, cho_solve, lu_factor, lu_solve

import deblur
from deblur import BOUNDARIES, Blur
from deblur.methods import METHODS
from deblur.operators.normal import normal_matrix
from deblur.problem import Problem

LINEAR = {name: method for name, method in METHODS.items() if method.linear}
LAMBDAS = (1e-2, 1e-4, 1e-6)
PSFS = {
    "gaussian 3x3": deblur.psf.gaussian(3, 0.6),
    "gaussian 7x7": deblur.psf.gaussian(7, 1.2),
    "camera shake 9x9": deblur.psf.camera_shake(9, 3),
}


def agreement(size: int) -> list[dict[str, object]]:
    """The largest relative difference of each method from the dense solve, over PSFs, boundaries and formulas."""
    sharp = deblur.data.load("camera")[96 : 96 + size + 8, 96 : 96 + size + 8]
    rows: list[dict[str, object]] = []
    worst: dict[tuple[str, float, str], float] = {}
    refused: dict[tuple[str, float, str], int] = {}
    for psf in PSFS.values():
        for boundary in BOUNDARIES:
            blur = Blur(psf, (size, size), boundary)
            scene = sharp[: blur.scene_shape[0], : blur.scene_shape[1]]
            g = deblur.degrade(scene, psf, noise=0.01, boundary=boundary, seed=1)
            h = blur.to_dense()
            normal = h @ h.T
            for lam in LAMBDAS:
                a = normal + lam * np.eye(len(normal))
                factor = lu_factor(a)
                exact = {"tikhonov": h.T @ lu_solve(factor, g.ravel())}
                if boundary != "unknown":
                    exact["hht"] = lu_solve(factor, h.T @ g.ravel())
                for formula, scene_vector in exact.items():
                    expected = scene_vector.reshape(blur.scene_shape)[blur.crop]
                    for name, method in LINEAR.items():
                        if method.refuses(Problem(blur, lam, formula=formula)) is not None:
                            continue
                        for dtype in ("float64", "float32"):
                            key = (name, lam, dtype)
                            try:
                                result = deblur.solve(
                                    g.astype(dtype),
                                    psf,
                                    lam,
                                    method=name,
                                    boundary=boundary,
                                    formula=formula,
                                    prior="zero",
                                    rtol=1e-12 if name == "hybrid-lsqr" and dtype == "float64" else None,
                                    check=False,
                                )
                            except deblur.SingularMatrixError:
                                refused[key] = refused.get(key, 0) + 1
                                continue
                            if not result.status.ok:
                                refused[key] = refused.get(key, 0) + 1
                                continue
                            error = float(np.linalg.norm(result.image - expected) / np.linalg.norm(expected))
                            worst[key] = max(worst.get(key, 0.0), error)
            print(f"  {psf.shape[0]} x {psf.shape[1]}, {boundary}: done", flush=True)
    for name in LINEAR:
        for dtype in ("float64", "float32"):
            rows.append(
                {"method": name, "dtype": dtype}
                | {f"lambda {lam:g}": worst.get((name, lam, dtype)) for lam in LAMBDAS}
                | {
                    "refused or reported as failed": sum(
                        refused.get((name, lam, dtype), 0) for lam in LAMBDAS
                    )
                }
            )
    return rows


def cholesky_ratio(size: int, repeats: int) -> dict[str, object]:
    """Method ``cholesky`` from the matrix on, and from the PSF on, beside SciPy's on the same matrix."""
    psf, lam = PSFS["gaussian 7x7"], 1e-3
    g = deblur.degrade(deblur.data.load("camera")[:size, :size], psf, noise=0.01, seed=1)
    blur = Blur(psf, g.shape)
    a = normal_matrix(blur, lam)
    h = blur.to_sparse()

    def scipys() -> np.ndarray:
        return h.T @ cho_solve(cho_factor(a.copy(), overwrite_a=True), g.ravel())

    def ours_from_matrix() -> np.ndarray:
        factor = deblur.linalg.cholesky(a.copy(), overwrite_a=True)
        return blur.adjoint(deblur.linalg.cholesky_solve(factor, g.ravel()).reshape(g.shape))

    def ours() -> np.ndarray:
        return deblur.reconstruct(g, psf, lam, method="cholesky", boundary="zero")

    seconds = time_together({"scipy": scipys, "ours": ours_from_matrix, "reconstruct": ours}, repeats=repeats)
    return {
        "n": size * size,
        "seconds": seconds,
        "ratio, same matrix": seconds["ours"]["median_s"] / seconds["scipy"]["median_s"],
        "ratio, reconstruct with forming the matrix and judging": seconds["reconstruct"]["median_s"]
        / seconds["scipy"]["median_s"],
        "relative difference": float(np.linalg.norm(ours().ravel() - scipys()) / np.linalg.norm(scipys())),
    }


def import_seconds(repeats: int) -> dict[str, float]:
    """Median wall seconds of two interpreters, taken in turns."""
    seconds: dict[str, list[float]] = {"scipy.linalg": [], "deblur": []}
    for _ in range(repeats):
        for name, taken in seconds.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import scipy.linalg, {name}"], check=True)
            taken.append(time.perf_counter() - start)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    return medians | {"difference": medians["deblur"] - medians["scipy.linalg"]}


def sparse_assembly(repeats: int) -> dict[str, float]:
    """filter2matrix, 64 x 64 pixels, 9 x 9 PSF, sparse."""
    psf = np.random.default_rng(0).random((9, 9))
    taken = time_together({"sparse": lambda: deblur.filter2matrix(psf, 64, 64, sparse=True)}, repeats=repeats)
    return taken["sparse"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    size, repeats = (16, 3) if quick else (32, 7)
    ratio = cholesky_ratio(24 if quick else 64, repeats)
    imports = import_seconds(repeats)
    assembly = sparse_assembly(repeats)
    rows = agreement(size)
    print("\nLargest relative difference from the dense float64 solve")
    print_table(rows)
    print(
        f"\nCholesky at n = {ratio['n']}: {ratio['ratio, same matrix']:.2f} x SciPy's time on the same matrix"
    )
    print(f"import deblur: {imports['difference']:.3f} s more than import scipy.linalg")
    print(f"filter2matrix, sparse, 64 x 64, 9 x 9 PSF: {assembly['median_s']:.4f} s")
    if not quick:
        print(
            save(
                "core",
                {"size": size, "agreement": rows, "cholesky": ratio, "import": imports, "sparse": assembly},
            )
        )

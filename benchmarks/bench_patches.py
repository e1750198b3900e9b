"""Seconds of the collaborative method with compiled loops and with arrays, and what Numba adds to an installation.

    python benchmarks/bench_patches.py [--sides 256 1024]

Camera (mirrored side by side for 1024), a Gaussian PSF, noise of 0.01, boundary "unknown", float32: λ given and chosen.
The first call is timed in a fresh process whose cache of machine code is empty. Writes benchmarks/results/patches.json.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import _common
import numpy as np
from bench_variational_speed import scene

import deblur
from deblur import Blur
from deblur.denoise import patches
from deblur.device import cores

PSF, NOISE, REPEATS = deblur.psf.gaussian(13, 2.0), 0.01, 3
FIRST = "import time; t = time.perf_counter(); import numpy; from deblur.denoise import patches; "
FIRST += "x = numpy.zeros((64, 64)); patches.Groups(x).wiener(x, x, numpy.ones(64)); print(time.perf_counter() - t)"


def one(side: int) -> dict[str, Any]:
    """Median seconds with λ chosen and given, and the gain."""
    sharp = scene(side + len(PSF) - 1)
    g = deblur.degrade(sharp, PSF, noise=NOISE, boundary="unknown", seed=0).astype(np.float32)
    said: dict[str, Any] = {"method": "collaborative", "boundary": "unknown", "check": False}
    truth = sharp[Blur(PSF, g.shape, "unknown").crop]
    deblur.solve(g[:64, :64], PSF, **said)  # so that all is loaded
    row: dict[str, Any] = {"side": side}
    lam: float | str = "auto"
    for name in ("chosen", "given"):
        seconds = []
        for _ in range(REPEATS if side < 1000 else 1):
            start = time.perf_counter()
            result = deblur.solve(g, PSF, lam, **said)
            seconds.append(time.perf_counter() - start)
        row[f"lam_{name}_s"] = float(np.median(seconds))
        lam = result.lam
    return row | {"gain_db": deblur.metrics.psnr(truth, result.image) - deblur.metrics.psnr(truth, g)}


def first_call() -> float:
    """Seconds of the first filter of all, compilation included."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", FIRST],
            env=os.environ | {"NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(_common.ROOT)},
            check=True,
            capture_output=True,
            text=True,
        )
    return float(done.stdout)


def installed_bytes() -> int:
    """What Numba and llvmlite take on disk."""
    parts = [importlib.metadata.distribution(name) for name in ("numba", "llvmlite")]
    return sum(path.size or 0 for part in parts for path in part.files or ())


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[256, 1024])
    sides = parser.parse_args().sides
    found: dict[str, Any] = {
        "installed_mb": installed_bytes() / 1e6,
        "first_call_s": first_call(),
        "rows": [],
    }
    compiled = patches._compiled
    for road in ("compiled", "arrays"):
        patches._compiled = compiled if road == "compiled" else lambda: None
        found["rows"] += [{"road": road, **one(side)} for side in sides]
        _common.print_table(found["rows"])
    patches._compiled = compiled
    _common.save(
        "patches",
        found,
        noise=NOISE,
        repeats=REPEATS,
        cores=cores(),
        numba=importlib.metadata.version("numba"),
    )


if __name__ == "__main__":
    main()

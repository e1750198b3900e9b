"""Seconds with a PSF that varies; about four minutes on two cores.

Total variation at 2048 x 2048 in float32, to its tolerance, with the mean PSF and six eigen-PSFs and with the mean PSF
alone, for scenes that are mirrored at the frame and for scenes that go on beyond it. And one product at 512 x 512 with
25 PSFs, beside PyLops' operator where it is installed. Writes ``results/varying_speed.json``.

    python benchmarks/bench_varying_speed.py [--side N]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")

import argparse
import time
from typing import Any

import _common
import numpy as np
from bench_varying import NOISE, grid

import deblur
from deblur.problem import Problem
from deblur.solvers import admm

TERMS, LAM = 7, 2e-3


def operator(side: int, boundary: str) -> deblur.VaryingBlur:
    """With six eigen-PSFs: the tolerance that gives them."""
    low, high = 1e-9, 0.9
    for _ in range(60):
        middle = (low * high) ** 0.5
        found = deblur.VaryingBlur(grid(9, side), (side, side), boundary, tolerance=middle)
        if found.terms == TERMS:
            return found
        low, high = (middle, high) if found.terms > TERMS else (low, middle)
    raise RuntimeError(f"no tolerance gives {TERMS} terms")


def total_variation(side: int, boundary: str) -> dict[str, Any]:
    """Processor seconds of tv with λ given: six eigen-PSFs beside one PSF, each restoring what it blurred."""
    camera = deblur.data.load("camera").astype(np.float32)
    varying = operator(side, boundary)
    out: dict[str, Any] = {"boundary": boundary, "side": side}
    for name, op in (("one PSF", varying.mean_blur), ("six eigen-PSFs", varying)):
        turns = [-(-n // k) for n, k in zip(op.scene_shape, camera.shape, strict=True)]
        scene = np.tile(camera, turns)[: op.scene_shape[0], : op.scene_shape[1]]
        g = op.forward(scene)
        g += np.float32(NOISE) * np.random.default_rng(1).standard_normal(g.shape, np.float32)
        start = time.process_time()  # of all threads: other programs do not count
        solution = admm.prepare(Problem(op, LAM, "tv", dtype=np.dtype(np.float32))).solve(g[None, None])
        seconds = time.process_time() - start
        out[name] = {"seconds": seconds, "iterations": solution.iterations, "converged": solution.converged}
    return out | {"ratio": out["six eigen-PSFs"]["seconds"] / out["one PSF"]["seconds"]}


def products() -> dict[str, Any]:
    """Seconds of one product H f."""
    n = 512
    h = grid(5, n)
    blur = deblur.VaryingBlur(h, (n, n), "zero")
    f = np.random.default_rng(2).random((n, n))
    run = {"VaryingBlur": lambda: blur.forward(f)}
    try:
        from pylops.signalprocessing import NonStationaryConvolve2D
    except ImportError:
        pass
    else:
        at = tuple(n // 10 + n // 5 * np.arange(5))
        for engine in ("numpy", "numba"):
            try:
                theirs = NonStationaryConvolve2D(dims=(n, n), hs=h, ihx=at, ihz=at, engine=engine)
                theirs @ f.ravel()
            except Exception as error:  # an engine that is not installed is left out
                print(f"PyLops with {engine}: {error}")
                continue
            run[f"PyLops ({engine})"] = lambda op=theirs: op @ f.ravel()
    return _common.time_together(run, repeats=3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=2048)
    side = parser.parse_args().side
    results: dict[str, Any] = {"product": products(), "tv": []}
    print(results["product"])
    for boundary in ("unknown", "reflect"):
        results["tv"].append(total_variation(side, boundary))
        print(results["tv"][-1], flush=True)
        _common.save("varying_speed", results, lam=LAM, noise=NOISE)


if __name__ == "__main__":
    main()

"""Seconds of total variation with unknown boundary, and what the stopping tolerance costs; about six minutes.

Camera (512 x 512; mirrored side by side for 1024), a Gaussian PSF, a camera shake and noise of 0.01. For each size and
dtype: seconds by median, iterations, and the PSNR's distance from its limit, which a run to a tolerance of 1e-4
gives. Writes ``results/variational_speed.json`` (with ``--gpu``: ``variational_speed_gpu.json``).

    python benchmarks/bench_variational_speed.py [--gpu]
    python benchmarks/bench_variational_speed.py --sizes 64      only these, and writes nothing
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import _common
import numpy as np

import deblur
from deblur import Blur
from deblur.device import CPU, Device, asnumpy
from deblur.methods import METHODS
from deblur.problem import Problem, Stop

SIZES = (256, 512, 1024)
PSFS = {"gaussian 13, 2": deblur.psf.gaussian(13, 2.0), "camera shake 17": deblur.psf.camera_shake(17, 1)}
LAMS = {"tv": 4e-4, "tv2": 4e-4}
NOISE, REPEATS = 0.01, 3
LIMIT = Stop(1e-4, 400)


def scene(side: int) -> np.ndarray:
    """A photograph of `side` pixels a side: camera, mirrored where it is too small."""
    photo = deblur.data.load("camera")
    while len(photo) < side:
        photo = np.block([[photo, photo[:, ::-1]], [photo[::-1], photo[::-1, ::-1]]])
    at = (len(photo) - side) // 2
    return photo[at : at + side, at : at + side]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpu", action="store_true", help="on CuPy arrays")
    parser.add_argument("--sizes", type=int, nargs="+", help="pixels a side; writes nothing")
    options = parser.parse_args()
    device = Device.named("gpu") if options.gpu else CPU
    rows = []
    for side in options.sizes or SIZES:
        for kernel, psf in PSFS.items():
            sharp = scene(side + len(psf) - 1)
            g = deblur.degrade(sharp, psf, noise=NOISE, boundary="unknown", seed=0)
            blur = Blur(psf, g.shape, "unknown")
            truth = sharp[blur.crop]
            for method, lam in LAMS.items():
                limit = None
                for dtype in (np.float64, np.float32):
                    problem = Problem(blur, lam, method, dtype=np.dtype(dtype), device=device)
                    frames = device.xp.asarray(g[None, None].astype(dtype))

                    def psnr(solution: Any, truth: np.ndarray = truth, blur: Blur = blur) -> float:
                        return deblur.metrics.psnr(
                            truth, asnumpy(solution.scene)[0, 0][blur.crop].astype(float)
                        )

                    if limit is None:
                        tight = replace(problem, stop=LIMIT)
                        limit = psnr(METHODS[method].prepare(tight).solve(frames))
                    seconds = []
                    for _ in range(REPEATS + 1):
                        device.synchronize()
                        start = time.perf_counter()
                        solution = METHODS[method].prepare(problem).solve(frames)
                        device.synchronize()
                        seconds.append(time.perf_counter() - start)
                    timing = _common.summary(seconds[1:])
                    rows.append(
                        {
                            "side": side,
                            "psf": kernel,
                            "method": method,
                            "dtype": np.dtype(dtype).name,
                            "seconds": timing["median_s"],
                            "min_s": timing["min_s"],
                            "max_s": timing["max_s"],
                            "iterations": solution.iterations,
                            "psnr_blurred": deblur.metrics.psnr(truth, g),
                            "psnr": psnr(solution),
                            "psnr_from_limit": psnr(solution) - limit,
                        }
                    )
                    _common.print_table(rows[-1:])
    if options.sizes:
        return
    name = "variational_speed_gpu" if device != CPU else "variational_speed"
    path = _common.save(name, rows, limit_rtol=LIMIT.rtol, noise=NOISE, lam=LAMS, repeats=REPEATS)
    print(f"\nwritten: {path.relative_to(_common.ROOT)}")


if __name__ == "__main__":
    main()

"""Measure what each method takes over one Fourier transform: the one number a method behind "about 25 s".

``python tools/fit_seconds.py [METHOD ...]`` on two cores writes ``deblur/transforms.json``, or only the rows of these
methods: for each the time of a call of a fresh `deblur.solve` per pixel, over that of a transform there and back. Of
two sizes, and for a method that is not linear a noisy picture with black around it, which takes it most iterations, the
number is the geometric mean of the least and the largest. Times are of the CPU over the number of cores, which other
processes hardly change.
"""

from __future__ import annotations

import json
import math
import sys
import time
import timeit
from pathlib import Path

import numpy as np
import scipy.fft

import deblur
from deblur.methods import METHODS
from deblur.threads import cores

TARGET = Path(deblur.__file__).parent / "transforms.json"
#: What serves one boundary only, and the side of the images of methods that solve dense systems.
BOUNDARIES = {"fft": "periodic", "dct": "reflect", "dst": "antireflect"}
DENSE = {"cholesky": 48, "gauss-jordan": 48, "gauss-seidel": 48, "lu": 48, "qr": 48, "banded": 128}


def main() -> None:
    psf = deblur.psf.gaussian(9, 1.6)
    found = json.loads(TARGET.read_text())["transforms"]
    x = np.ones((512, 512), np.float32)
    there = timeit.repeat(lambda: scipy.fft.irfft2(scipy.fft.rfft2(x)), number=1, repeat=9, timer=time.process_time)
    for method in sys.argv[1:] or ("auto", *METHODS):
        ratios, linear = [], method == "auto" or METHODS[method].linear
        usual = BOUNDARIES.get(method, "unknown")
        cases = [(DENSE.get(method, 128), 0.01, usual), (DENSE.get(method, 512), 0.01, usual)]
        for side, noise, boundary in cases if linear else [*cases, (256, 0.03, "zero")]:
            scene = deblur.data.load("camera")[:side, :side]
            g = deblur.degrade(scene, psf, noise=noise, seed=0, boundary=boundary)
            g = g.clip(0)
            lam = 1e-2 if method != "auto" and linear else "auto"
            given = {} if method == "auto" else {"boundary": boundary}
            taken = []
            for _ in range(1 + (method != "pnp")):
                begun = time.process_time()
                deblur.solve(g, psf, lam, method=method, check=False, **given)
                taken.append((time.process_time() - begun) / cores())
            ratios.append(min(taken) / g.size / (min(there) / x.size))
        found[method] = float(f"{math.sqrt(min(ratios) * max(ratios)):.2g}")
    text = {"unit": "time of a call over that of a Fourier transform there and back", "transforms": found}
    TARGET.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Measure what each method takes over one Fourier transform: the one number a method behind "about 25 s".

``python tools/fit_seconds.py`` on two quiet cores writes ``deblur/transforms.json``: for each method the time of a call
of a fresh `deblur.solve` per pixel, over the time per pixel of a transform there and back, the median over sizes.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import deblur
from deblur.methods import METHODS, _transform_seconds

TARGET = Path(deblur.__file__).parent / "transforms.json"
#: What serves one boundary only, and the side of the images of methods that solve dense systems.
BOUNDARIES = {"fft": "periodic", "dct": "reflect", "dst": "antireflect"}
DENSE = {"cholesky": 48, "gauss-jordan": 48, "gauss-seidel": 48, "lu": 48, "qr": 48, "banded": 128}


def main() -> None:
    psf = deblur.psf.gaussian(9, 1.6)
    found = {}
    for method in ("auto", *METHODS):
        ratios = []
        for side in (DENSE.get(method, 128), DENSE.get(method, 256)):
            scene = deblur.data.load("camera")[:side, :side]
            g = deblur.degrade(scene, psf, noise=0.01, seed=0, boundary=BOUNDARIES.get(method, "unknown"))
            g = g.clip(0)
            lam = "auto" if method == "auto" else 1e-2 if METHODS[method].linear else 3e-3
            given = {} if method == "auto" else {"boundary": BOUNDARIES.get(method, "unknown")}
            taken = []
            for _ in range(1 + (method != "pnp")):
                begun = time.perf_counter()
                deblur.solve(g, psf, lam, method=method, check=False, **given)
                taken.append(time.perf_counter() - begun)
            ratios.append(min(taken) / g.size / _transform_seconds())
        found[method] = float(f"{statistics.median(ratios):.2g}")
    text = {"unit": "time of a call over that of a Fourier transform there and back", "transforms": found}
    TARGET.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Record what calls launch on a GPU: ``python tools/record_launches.py`` writes ``deblur/launches.json``.

For each method, with λ given and chosen, a process of its own restores two pictures; a dense method has small ones. The
kernels that it got are written as file, kernel, and dtype where it is not the image's. A first call has them compiled
side by side (`deblur.launches.begin`). Run it after a change of what a method launches.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from deblur.launches import RECORD
from deblur.methods import METHODS
from deblur.threads import usable_cores

BOUNDARIES = {"fft": "periodic", "dct": "reflect", "dst": "zero", "kronecker": "zero"}
DENSE = ("qr", "cholesky", "gauss-jordan", "gauss-seidel", "lu", "banded")
PROGRAM = """
import json, sys
import cupy, numpy as np, deblur
from deblur import kernels, pixelwise
options, shapes = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for rows, cols in shapes:
    psf = deblur.psf.gaussian(3, 0.8) if options.get("boundary") == "zero" else deblur.psf.gaussian(7, 1.5)
    scene = np.tile(deblur.data.load("camera"), (2, 2))[:rows, :cols]
    g = deblur.degrade(scene, psf, noise=0.01, seed=0).astype(np.float32)
    deblur.reconstruct(cupy.asarray(g), psf, **options)
own = [[stem, name, np.dtype(dtype).name] for stem, name, dtype, _ in kernels._kernels]
print(json.dumps(own + [["pixelwise", *row] for row in pixelwise.record(np.dtype(np.float32))]))
"""


def launched(call: str) -> list[list[str]]:
    """What a call launches, the key of ``launches.json``."""
    method, *chosen = call.split()
    options: dict[str, Any] = {"lam": "auto" if chosen else 0.0 if method == "richardson-lucy" else 1e-2}
    if method != "auto":
        options |= {"method": method, "boundary": BOUNDARIES.get(method, "unknown")}
    shapes = [(32, 32)] if method in DENSE else [(128, 128), (500, 700)]
    command = [sys.executable, "-c", PROGRAM, json.dumps(options), json.dumps(shapes)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{call}: {done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    return sorted([stem, name, *more] if more != ["float32"] else [stem, name] for stem, name, *more in found)


def main() -> None:
    calls = [f"{method}{auto}" for method in ("auto", *METHODS) for auto in ("", " auto")]
    with ThreadPoolExecutor(max(1, usable_cores() // 2)) as pool:
        found = dict(zip(calls, pool.map(launched, calls), strict=True))
    rows = ",\n".join(f"{json.dumps(call)}: {json.dumps(kernels)}" for call, kernels in found.items())
    RECORD.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main()

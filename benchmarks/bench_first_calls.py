"""Seconds of the first `reconstruct` of a process on a GPU, by each method, with empty and with full caches.

    python benchmarks/bench_first_calls.py          writes benchmarks/results/first_calls.json

Every call has a process of its own, after `import deblur` and `import cupy` and a first allocation, which make the
context: "imports" is how long these take. An empty cache is one of CuPy's kernels, of ours beside them, of NVRTC and of
the driver. "compiled" is how often NVRTC was called, for our files and for CuPy's kernels. "_wheel" has the machine
code of our kernels that a wheel brings (`deblur.machine_code` packs it first, for this card alone). The image has
128 x 128 pixels in float32, or 32 x 32 where the method is a dense one; λ is given, but for the last row, which gives
no option.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _common import ROOT, print_table, save

from deblur import kernels, machine_code
from deblur.methods import METHODS

SMALL = ("qr", "cholesky", "gauss-jordan", "gauss-seidel", "lu", "banded")
PROGRAM = """
import json, sys, time
start = time.perf_counter()
import numpy as np, cupy, deblur
from cupy.cuda import nvrtc
cupy.zeros(1).sum().item()
imports = time.perf_counter() - start
compiled, create = [0], nvrtc.createProgram
def counted(*args):
    compiled[0] += 1
    return create(*args)
nvrtc.createProgram = counted
method, side, options, deblur.kernels.PACKED = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
g = cupy.asarray(deblur.data.load("camera")[:side, :side].astype(np.float32))
psf = deblur.psf.gaussian(3, 0.8) if method == "dst" else deblur.psf.gaussian(7, 1.5)
start = time.perf_counter()
deblur.reconstruct(g, psf, **options)
cupy.cuda.Device().synchronize()
print(json.dumps({"seconds": time.perf_counter() - start, "imports": imports, "compiled": compiled[0]}))
"""


def options(method: str) -> dict[str, Any]:
    """What `reconstruct` is given beside the image and the PSF."""
    if method == "default":
        return {}
    boundary = {"fft": "periodic", "dct": "reflect", "dst": "zero", "kronecker": "zero"}.get(
        method, "unknown"
    )
    found = {"method": method, "boundary": boundary, "lam": 0.0 if method == "richardson-lucy" else 1e-2}
    return found | ({"denoiser": "collaborative"} if method == "pnp" else {})


def first_call(method: str, cache: str, packed: Path) -> dict[str, float]:
    """Of a process of its own, with the machine code in `packed`, if that is there."""
    side = 32 if method in SMALL else 128
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, method, str(side), json.dumps(options(method)), str(packed)],
        env=os.environ
        | {"CUPY_CACHE_DIR": cache, "CUDA_CACHE_PATH": f"{cache}/driver", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "machine_code.zip"
        machine_code.pack(packed, [kernels.architecture()])
        for method in (*METHODS, "default"):
            row: dict[str, Any] = {"method": method}
            for road, brought in {"": Path(folder) / "none", "_wheel": packed}.items():
                with tempfile.TemporaryDirectory() as cache:
                    try:
                        empty, full = first_call(method, cache, brought), first_call(method, cache, brought)
                    except subprocess.CalledProcessError as error:  # the rows of the others are worth having
                        print(f"{method} failed: {error.stderr[-1000:]}", flush=True)
                        break
                row |= {
                    f"empty_cache{road}": empty["seconds"],
                    f"full_cache{road}": full["seconds"],
                    f"compiled{road}": empty["compiled"],
                    "imports": full["imports"],
                }
            else:
                rows.append(row)
                path = save("first_calls", rows, dtype="float32", unit="seconds")
    print_table(rows)
    print(f"written: {path}")


if __name__ == "__main__":
    main()

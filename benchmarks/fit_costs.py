"""Measure what an operation of every method costs here, and write deblur/costs.json.

    python benchmarks/fit_costs.py          on the CPU
    python benchmarks/fit_costs.py --gpu    on the GPU

Each method is run at a few sizes that it serves; seconds are fitted as overhead + rate x operations, by least
squares on relative errors with no negative coefficient. `deblur.methods.choose_method` multiplies the rates with
the operations that a method counts for the problem at hand. They rank methods; they are no promise.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time

import numpy as np
from _common import ROOT, environment
from scipy.optimize import nnls

import deblur
from deblur.blur import Blur
from deblur.methods import METHODS
from deblur.solvers.base import Problem, Work

TARGET = ROOT / "deblur" / "costs.json"
DENSE = [(24, 24), (32, 40), (48, 48), (64, 64)]
FAST = [(64, 64), (128, 128), (256, 256), (512, 512), (768, 1024)]
MIDDLE = [(32, 32), (48, 64), (64, 64)]
SHAKE, GAUSS, TINY = deblur.psf.camera_shake(9, 3), deblur.psf.gaussian(9, 1.5), deblur.psf.gaussian(3, 0.6)

LONG_ENOUGH = 8.0  # seconds spent on one case, after which its median must do

#: method: (boundary, PSFs, image sizes)
CASES = {
    "fft": ("periodic", [SHAKE], FAST),
    "dct": ("reflect", [GAUSS], FAST),
    "dst": ("zero", [TINY], FAST),
    "kronecker": ("zero", [GAUSS], FAST),
    "pcg": ("zero", [SHAKE, GAUSS], FAST[:4]),
    "hybrid-lsqr": ("zero", [SHAKE, GAUSS], FAST[:2]),
    "banded": ("zero", [SHAKE, TINY], MIDDLE),
    "qr": ("zero", [SHAKE, TINY], MIDDLE),
}


def fit(works: list[Work], seconds: list[float]) -> dict[str, float]:
    """Non-negative overhead and rates that fit the seconds with small relative errors."""
    columns = np.array([[1.0, work.setup, work.solve] for work in works])
    scales = columns.max(axis=0)
    scales[scales == 0] = 1
    coefficients, _ = nnls(columns / scales / np.array(seconds)[:, None], np.ones(len(seconds)))
    return dict(zip(("overhead", "setup", "solve"), (coefficients / scales).tolist(), strict=True))


def measure(name: str, xp, repeats: int) -> dict[str, float]:
    boundary, psfs, shapes = CASES.get(name, ("zero", [GAUSS], DENSE))
    works, seconds = [], []
    rng = np.random.default_rng(0)
    for psf in psfs:
        for shape in shapes:
            for frames in (1, 4):
                g = xp.asarray(rng.random((frames, *shape)))
                taken = []
                for _ in range(repeats):
                    problem = Problem(
                        Blur(psf, shape, boundary), 1e-3, xp=xp
                    )  # fresh: nothing is cached on it
                    start = time.perf_counter()
                    METHODS[name].prepare(problem).solve(g)
                    synchronize(xp)
                    taken.append(time.perf_counter() - start)
                    if sum(taken) > LONG_ENOUGH:
                        break
                work = METHODS[name].work(problem)
                works.append(dataclasses.replace(work, solve=work.solve * frames))
                seconds.append(statistics.median(taken[1:] or taken))
    return fit(works, seconds)


def synchronize(xp) -> None:
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gpu", action="store_true")
parser.add_argument(
    "--repeats", type=int, default=4, help="runs of each case, the first not counted; default 4"
)
parser.add_argument("--output", default=TARGET, help="default deblur/costs.json")
arguments = parser.parse_args()
place, xp = "cpu", np
if arguments.gpu:
    import cupy as xp

    place = "gpu"
stored = (
    json.loads(TARGET.read_text()) if TARGET.exists() else {"measured": {}, "rates": {"cpu": {}, "gpu": {}}}
)
for name in METHODS:
    try:
        stored["rates"][place][name] = measure(name, xp, arguments.repeats)
    except Exception as error:
        print(f"{name:<14}not measured: {type(error).__name__}: {error}")
        continue
    row = stored["rates"][place][name]
    print(f"{name:<14}" + "".join(f"{key} {value:.3g} s  " for key, value in row.items()), flush=True)
stored["measured"][place] = environment()
with open(arguments.output, "w") as f:
    json.dump(stored, f, indent=1, sort_keys=True)
    f.write("\n")

"""Measure what an operation of every method costs here, and write deblur/costs.json.

    python benchmarks/fit_costs.py                    on the CPU
    python benchmarks/fit_costs.py --gpu              on the GPU
    python benchmarks/fit_costs.py --methods tv pnp   only these; the others stay as they are stored

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
from collections.abc import Callable
from functools import partial

import numpy as np
from _common import ROOT, environment
from bench_structured import blurred
from scipy.optimize import nnls

import deblur
from deblur import Blur
from deblur.denoise import denoisers
from deblur.device import CPU, Array, Device
from deblur.methods import METHODS, road_work
from deblur.problem import Problem, Work
from deblur.terms import Fit
from deblur.tuning import choose as tune
from deblur.tuning import prior_scene

TARGET = ROOT / "deblur" / "costs.json"
DENSE = [(24, 24), (32, 40), (48, 48), (64, 64)]
FAST = [(64, 64), (128, 128), (256, 256), (512, 512), (768, 1024)]
ROAD = [(64, 64), (256, 256), (512, 512), (1024, 1024)]
MIDDLE = [(32, 32), (48, 64), (64, 64)]
SHAKE, GAUSS, TINY = deblur.psf.camera_shake(9, 3), deblur.psf.gaussian(9, 1.5), deblur.psf.gaussian(3, 0.6)

LONG_ENOUGH = 8.0  # seconds spent on one case, after which its median must do
FRAMES = (1, 4)
LAM = 1e-3  # but for a method that has one of its own
DENOISER = "collaborative"  # what "pnp" takes where none is named

#: method: (boundary, PSFs, image sizes)
CASES = {
    "fft": ("periodic", [SHAKE], FAST),
    "dct": ("reflect", [GAUSS], FAST),
    "dst": ("zero", [TINY], FAST),
    "kronecker": ("zero", [GAUSS], FAST),
    "pcg": ("unknown", [SHAKE, GAUSS, deblur.psf.motion(15, 30)], [*FAST[:4], (1024, 1024)]),
    "hybrid-lsqr": ("zero", [SHAKE, GAUSS], FAST[:2]),
    "banded": ("zero", [SHAKE, TINY], MIDDLE),
    "qr": ("zero", [SHAKE, TINY], MIDDLE),
    **{name: ("unknown", [SHAKE, GAUSS], FAST[:3]) for name in ("identity", "gradient", "laplacian")},
    **{name: ("unknown", [SHAKE, GAUSS], FAST[:3]) for name in ("tv", "tv-aniso", "tv2", "richardson-lucy")},
    "collaborative": ("unknown", [SHAKE], [(64, 64), (128, 128), (192, 192)]),
    "pnp": ("unknown", [SHAKE], MIDDLE[:1]),
}


def fit(works: list[Work], seconds: list[float]) -> dict[str, float]:
    """Non-negative overhead and rates that fit the seconds with small relative errors."""
    columns = np.array([[1.0, work.setup, work.solve] for work in works])
    scales = columns.max(axis=0)
    scales[scales == 0] = 1
    coefficients, _ = nnls(columns / scales / np.array(seconds)[:, None], np.ones(len(seconds)))
    return dict(zip(("overhead", "setup", "solve"), (coefficients / scales).tolist(), strict=True))


def measure(name: str, device: Device, repeats: int) -> dict[str, float]:
    """The rates of one method."""
    method = METHODS[name]
    boundary, psfs, shapes = CASES.get(name, ("zero", [GAUSS], DENSE))
    works, seconds = [], []
    for psf in psfs:
        for shape in shapes:
            one = np.maximum(blurred(Blur(psf, shape, boundary)), 0)
            for frames in FRAMES:
                g = device.xp.asarray(np.repeat(one, frames, axis=0))
                taken: list[float] = []
                while len(taken) < repeats and sum(taken) <= LONG_ENOUGH:
                    problem = Problem(
                        Blur(psf, shape, boundary),  # fresh: nothing is kept on it
                        LAM if method.lam is None else method.lam,
                        method.penalty,
                        Fit(method.fit),
                        denoiser=denoisers.get(DENOISER) if method.penalty == "denoiser" else None,
                        device=device,
                    )
                    device.synchronize()
                    start = time.perf_counter()
                    method.prepare(problem).solve(g)
                    device.synchronize()
                    taken.append(time.perf_counter() - start)
                work = method.work(problem)
                works.append(dataclasses.replace(work, solve=work.solve * frames))
                seconds.append(statistics.median(taken[1:] or taken))
    return fit(works, seconds)


def measure_road(device: Device, repeats: int) -> dict[str, float]:
    """The rates of what a call of the linear formula takes beside its method, and of choosing λ."""
    works, seconds = [], []

    def least(call: Callable[[], object]) -> float:
        taken = []
        for _ in range(repeats):
            device.synchronize()
            start = time.perf_counter()
            call()
            device.synchronize()
            taken.append(time.perf_counter() - start)
        return min(taken)

    for psf in (SHAKE, GAUSS):
        for shape in ROAD:
            blur = Blur(psf, shape, "unknown")
            g = device.xp.asarray(blurred(blur)[0, 0])
            problem = Problem(blur, LAM, device=device)
            left = (g - blur.forward(prior_scene(blur, g)))[None, None]
            call = least(partial(deblur.solve, g, psf, LAM, boundary="unknown", method="pcg"))
            alone = least(partial(_alone, problem, left))
            rule = least(partial(tune, problem, left, "auto"))
            works += [road_work(problem), road_work(problem, "auto")]
            seconds += [max(call - alone, 0.1 * call), max(call - alone, 0.1 * call) + rule]
    return fit(works, seconds)


def _alone(problem: Problem, g: Array) -> None:
    METHODS["pcg"].prepare(problem).solve(g)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument(
        "--repeats", type=int, default=4, help="runs of each case, the first not counted; default 4"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=[*METHODS, "road"], default=[*METHODS, "road"], metavar="NAME"
    )
    parser.add_argument("--output", default=TARGET, help="default deblur/costs.json")
    arguments = parser.parse_args()
    device = Device.named("gpu") if arguments.gpu else CPU
    place = "gpu" if arguments.gpu else "cpu"
    stored = json.loads(TARGET.read_text())
    for name in arguments.methods:
        try:
            row = (measure_road if name == "road" else partial(measure, name))(device, arguments.repeats)
        except Exception as error:
            print(f"{name:<16}not measured: {type(error).__name__}: {error}")
            continue
        stored["rates"][place][name] = row
        print(f"{name:<16}" + "".join(f"{key} {value:.3g} s  " for key, value in row.items()), flush=True)
    stored["measured"][place] = environment()
    with open(arguments.output, "w") as f:
        json.dump(stored, f, indent=1, sort_keys=True)
        f.write("\n")


if __name__ == "__main__":
    main()

"""Where Richardson-Lucy stops, against its best iteration and against the blurred picture; five minutes on 16 cores.

Photographs that the rule was developed on and photographs set aside, blurred by PSFs drawn at random with the scene
going on beyond the frame; white noise, photon noise or rounding to 8 bits. Best is the best of 300 iterations, found
with the truth at hand. Colour is measured by what is left of the truth's colours: the error of the differences
between channels, restored and blurred. Writes ``results/richardson_lucy.json``.

    python benchmarks/bench_richardson_lucy.py [--cases N] [--workers N]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import _common
import numpy as np
import photographs

import deblur
from deblur import psf
from deblur.metrics import psnr
from deblur.problem import Problem
from deblur.solvers.richardson_lucy import _Run
from deblur.solvers.start import all_weights
from deblur.terms import DataFidelity

PSFS = {
    "gaussian 9, 1.5": psf.gaussian(9, 1.5),
    "gaussian 15, 2.5": psf.gaussian(15, 2.5),
    "disk 7": psf.disk(7),
    "disk 3": psf.disk(3),
    "motion 15, 30": psf.motion(15, 30.0),
    "camera shake 15": psf.camera_shake(15, 3),
    "box 4": psf.box(4),
    "hardly any: gaussian 3, 0.5": psf.gaussian(3, 0.5),
}
NOISES = (
    *(("white", level) for level in (0.001, 0.003, 0.01, 0.03, 0.05)),
    *(("photons", level) for level in (100.0, 400.0, 3000.0)),
    ("8 bit", 0.0),
    ("8 bit", 0.01),
)
SIZE, MOST, COLOUR = 256, 300, 5  # pixels a side; iterations; every so many cases are in colour
KINDS = {"developed on": photographs.DEVELOPED, "set aside": photographs.SET_ASIDE}


def degraded(scene: np.ndarray, h: np.ndarray, kind: str, level: float, seed: int) -> np.ndarray:
    """One channel made worse."""
    if kind == "photons":
        return deblur.degrade(scene, h, noise="poisson", level=level, boundary="unknown", seed=seed)
    g = deblur.degrade(scene, h, noise=level, boundary="unknown", seed=seed)
    return np.rint(g.clip(0, 1) * 255) / 255 if kind == "8 bit" else np.maximum(g, 0)


def measure(case: tuple[str, int]) -> dict[str, Any]:
    """One picture restored, and the best of its iterations."""
    which, at = case
    rng = np.random.default_rng([23, at])
    names = KINDS[which]
    name, kernel = names[at % len(names)], str(rng.choice(list(PSFS)))
    kind, level = NOISES[rng.integers(len(NOISES))]
    h = PSFS[kernel] / PSFS[kernel].sum()
    image = photographs.colour(name) if at % COLOUR == 0 else photographs.grey(name)
    image = photographs.window(image, SIZE + 14, rng)
    channels = [image[..., i] for i in range(3)] if image.ndim == 3 else [image]
    g = np.stack([degraded(c, h, kind, level, 1000 * at + i) for i, c in enumerate(channels)])
    g = g.astype(np.float32)
    blur = deblur.Blur(h, g.shape[1:], "unknown")
    truth = np.stack([c[blur.crop] for c in channels])

    problem = Problem(blur, 0.0, "tv", DataFidelity("poisson"), dtype=np.dtype(np.float32))
    run = _Run(problem, g[None], all_weights(problem))
    each = []
    for n in run.steps(None, MOST):
        each.append(psnr(truth, run.point[0][(..., *blur.crop)].clip(0, 1)))
        if n == MOST:
            break
    begin = time.perf_counter()
    found = deblur.solve(g, h, method="richardson-lucy", boundary="unknown", channel_axis=0, check=False)
    row = {
        "set": which,
        "image": name,
        "psf": kernel,
        "noise": kind,
        "level": level,
        "colour": len(g) == 3,
        "seconds": time.perf_counter() - begin,
        "input": psnr(truth, g.clip(0, 1)),
        "psnr": psnr(truth, found.image.clip(0, 1)),
        "iterations": found.iterations,
        "status": found.status.name,
        "best": max(each),
        "best iteration": int(np.argmax(each)),
    }
    if len(g) == 3:
        chroma = [x.clip(0, 1) - x.clip(0, 1).mean(axis=0) for x in (truth, g, found.image)]
        row |= {"colour error before": _rms(chroma[1] - chroma[0]), "after": _rms(chroma[2] - chroma[0])}
    return row


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).mean()))


def table(results: list[dict[str, Any]]) -> list[dict[str, object]]:
    """One line for each set of photographs and kind of noise."""
    lines: list[dict[str, object]] = []
    for which in KINDS:
        for kind in ("all", "white", "photons", "8 bit"):
            rows = [r for r in results if r["set"] == which and kind in ("all", r["noise"])]
            if not rows:
                continue
            lost = np.array([r["best"] - r["psnr"] for r in rows])
            gain = np.array([r["psnr"] - r["input"] for r in rows])
            colour = [r["after"] / r["colour error before"] for r in rows if r["colour"] and "after" in r]
            lines.append(
                {
                    "photographs": which,
                    "noise": kind,
                    "cases": len(rows),
                    "dB below the best, median": float(np.median(lost)),
                    "95 %": float(np.quantile(lost, 0.95)),
                    "most": float(lost.max()),
                    "gain dB": float(gain.mean()),
                    "below the input": int((gain < 0).sum()),
                    "least gain dB": float(gain.min()),
                    "not converged": sum(r["status"] != "CONVERGED" for r in rows),
                    "colour error, after over before": float(np.median(colour)) if colour else float("nan"),
                }
            )
    return lines


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=120, help="of each set of photographs")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    cases = [(which, at) for which in KINDS for at in range(options.cases)]
    with _common.side_by_side(options.workers) as pool:
        results = list(pool.map(measure, cases))
    _common.print_table(table(results))
    path = _common.save("richardson_lucy", results, iterations=MOST)
    print(f"\nwritten: {path.relative_to(_common.ROOT)}")


if __name__ == "__main__":
    main()

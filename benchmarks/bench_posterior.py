"""How many true errors lie within two of the deviations that `posterior_std` gives for answers that are no linear ones.

    python benchmarks/bench_posterior.py [--workers N] [--pieces N] [--methods tv tv2 ...]

Pieces of photographs, blurred by six PSFs with the scene going on beyond the frame, white noise of three levels; λ and
the noise's level are found from the image. For each method the share of pixels whose error is at most two deviations:
of all cases, the middle one, the 5th and the 95th in a hundred, and how many of the cases lie between 90 and 98 %.
c of `deblur.resampling` was fitted on four photographs and fourteen of those that ``fit_network.py`` names, for the
most cases between; ``fitted_c`` would have 94.5 % lie within. Five were set aside. Writes
benchmarks/results/posterior.json; 15 minutes on six cores.
"""

from __future__ import annotations

import argparse
from typing import Any

import _common
import numpy as np
import photographs
from bench_lambda import PSFS

import deblur
from deblur import Blur, resampling

NAME = "posterior"
FITTED = ("camera", "coins", "cat", "moon")
SET_ASIDE = ("astronaut", "coffee", "rocket", "brick", "immunohistochemistry")
KERNELS = ("gaussian 9, 1.5", "disk 7", "motion 15, 30", "camera shake 17", "box 4", "one-sided 6")
NOISES = (0.003, 0.01, 0.03)
PIECES, SIDE, COVERED = 2, 128, 0.945
#: What is restored: (method, bounds).
ANSWERS = {
    "tv": ("tv", None),
    "tv2": ("tv2", None),
    "collaborative": ("collaborative", None),
    "gradient, bounded": ("gradient", (0.0, 1.0)),
    "tv, bounded": ("tv", (0.0, 1.0)),
}


def measure(name: str, at: int, answer: str) -> dict[str, Any]:
    """One case: the `at`-th of a photograph."""
    rng = np.random.default_rng([at, *name.encode()])
    photo = photographs.grey(name)
    psf = PSFS[KERNELS[int(rng.integers(len(KERNELS)))]]()
    psf = psf / psf.sum()
    rows, cols = (SIDE + m - 1 for m in psf.shape)
    top, left = (int(rng.integers(0, n - m + 1)) for n, m in zip(photo.shape, (rows, cols), strict=True))
    scene = photo[top : top + rows, left : left + cols]
    noise = NOISES[at % len(NOISES)]
    g = deblur.degrade(scene, psf, noise=noise, boundary="unknown", seed=at)
    blur = Blur(psf, g.shape, "unknown")
    method, bounds = ANSWERS[answer]
    found = deblur.solve(g, psf, method=method, bounds=bounds, boundary="unknown", check=False)
    spread = deblur.posterior_std(blur, found.lam, image=g, regularizer=method, bounds=bounds)
    ratio = abs(found.image - scene[blur.crop]) / spread.std
    return {
        "picture": name,
        "answer": answer,
        "noise": noise,
        "set aside": name in SET_ASIDE,
        "covered": float((ratio <= 2).mean()),
        # What c would have to be multiplied by for this case.
        "factor": float(np.quantile(ratio, COVERED) / 2),
        "rms_error": float(np.sqrt(((found.image - scene[blur.crop]) ** 2).mean())),
        "rms_deviation": float(np.sqrt((spread.std**2).mean())),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each answer and half."""
    out: dict[str, Any] = {}
    for answer in dict.fromkeys(row["answer"] for row in rows):
        c = resampling.FACTORS.get(ANSWERS[answer][0], 1.25)
        for half, aside in (("fitted", False), ("set aside", True)):
            chosen = [row for row in rows if row["answer"] == answer and row["set aside"] == aside]
            if not chosen:
                continue
            covered = np.array([row["covered"] for row in chosen])
            out[f"{answer}, {half}"] = {
                "cases": len(chosen),
                "covered": float(covered.mean()),
                "median": float(np.median(covered)),
                "5 %": float(np.quantile(covered, 0.05)),
                "95 %": float(np.quantile(covered, 0.95)),
                "cases_between_90_and_98": float(((covered >= 0.9) & (covered <= 0.98)).mean()),
                "fitted_c": c * float(np.exp(np.mean(np.log([row["factor"] for row in chosen])))),
            }
    return out


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=list(ANSWERS), choices=list(ANSWERS))
    parser.add_argument("--pieces", type=int, default=PIECES, help="of each photograph and level of noise")
    options = parser.parse_args()
    work = [
        (name, at, answer)
        for answer in options.methods
        for name in FITTED + SET_ASIDE
        for at in range(options.pieces * len(NOISES))
    ]
    with _common.side_by_side(options.workers) as pool:
        rows = list(pool.map(measure, *zip(*work, strict=True)))
    found = {"summary": summary(rows), "cases": rows}
    _common.print_table([{"": name, **row} for name, row in found["summary"].items()])
    if options.methods == list(ANSWERS):
        _common.save(NAME, found, size=SIDE, covered=COVERED, pieces=options.pieces)


if __name__ == "__main__":
    main()

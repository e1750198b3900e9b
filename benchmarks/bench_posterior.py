"""How many true errors lie within two of the deviations that `posterior_std` gives for nonlinear methods.

    python benchmarks/bench_posterior.py [--workers N]

Pieces of photographs, blurred by six PSFs with the scene going on beyond the frame, white noise of three levels; λ and
the level of the noise are found from the image. For each method the share of pixels whose error is at most two
deviations: of all cases, the median, the 5th and the 95th percentile, and how many of the cases lie between 90 and 98
%. The factors of `deblur.posterior` were fitted on four of these photographs and fourteen others; times "factor"
here, 94.5 % of the errors would lie within. Five photographs were set aside. Writes benchmarks/results/posterior.json;
15 minutes on six cores.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from _common import asked, each, save, table
from cases import KERNELS, going_on, kernel, photograph, window

import deblur

FITTED = ("camera", "coins", "cat", "moon")
SET_ASIDE = ("astronaut", "coffee", "rocket", "brick", "immunohistochemistry")
NOISES = (0.003, 0.01, 0.03)
SIDE, COVERED = 128, 0.945
#: (method, bounds) of each answer.
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
    photo, psf = photograph(name), kernel(KERNELS[int(rng.integers(len(KERNELS)))])
    scene, noise = window(photo, [SIDE + m - 1 for m in psf.shape], rng), NOISES[at % len(NOISES)]
    _, g, truth = going_on(scene, psf, noise, at)
    method, bounds = ANSWERS[answer]
    found = deblur.solve(g, psf, method=method, bounds=bounds, boundary="unknown", check=False)
    ratio = abs(found.image - truth) / deblur.posterior_std(found, image=g).std
    row = {"picture": name, "answer": answer, "noise": noise, "set aside": name in SET_ASIDE}
    return row | {"covered": float((ratio <= 2).mean()), "factor": float(np.quantile(ratio, COVERED) / 2)}


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By answer and half."""
    out: dict[str, Any] = {}
    for answer, (half, aside) in itertools.product(ANSWERS, (("fitted", False), ("set aside", True))):
        chosen = [row for row in rows if row["answer"] == answer and row["set aside"] == aside]
        covered = np.array([row["covered"] for row in chosen])
        out[f"{answer}, {half}"] = {
            "cases": len(chosen),
            "covered": float(covered.mean()),
            "median": float(np.median(covered)),
            "5 %": float(np.quantile(covered, 0.05)),
            "95 %": float(np.quantile(covered, 0.95)),
            "cases_between_90_and_98": float(((covered >= 0.9) & (covered <= 0.98)).mean()),
            "factor": float(np.exp(np.mean(np.log([row["factor"] for row in chosen])))),
        }
    return out


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    title = (
        "**Deviations of nonlinear methods.** The share of pixels whose true error is at most two of what "
        "`posterior_std` gives, on photographs that its factor was fitted to and on others."
    )
    rows = [{"name": name, "low": 100 * found["5 %"]} | found for name, found in r["summary"].items()]
    columns = {"answer": "{name}", "cases": "{cases}", "errors within two deviations": "{covered:.1p}"}
    columns |= {"median": "{median:.1p}", "5 to 95 % of the cases": "{low:.1f} to {95 %:.1p}"}
    return [table(title, columns | {"between 90 and 98 %": "{cases_between_90_and_98:.0p}"}, rows)]


def main() -> None:
    options = asked(__doc__, workers=1)
    pieces = range(2 * len(NOISES))
    rows = each(measure, list(itertools.product(FITTED + SET_ASIDE, pieces, ANSWERS)), options.workers)
    found = {"summary": summed(rows), "cases": rows}
    save("posterior", found, tables(found), size=SIDE, covered=COVERED)


if __name__ == "__main__":
    main()

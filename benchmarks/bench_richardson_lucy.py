"""Where Richardson-Lucy stops, against its best iteration and against the blurred picture; ten minutes on 16 cores.

Photographs that the rule was developed on and photographs set aside, blurred by PSFs drawn at random with the scene
going on beyond the frame; white noise, photon noise or rounding to 8 bits. Best is the best of runs of 1 to 300
iterations, found with the truth at hand. Colour is measured by the error of the differences between channels, restored
over blurred. Writes benchmarks/results/richardson_lucy.json.

    python benchmarks/bench_richardson_lucy.py [--cases N, of each set] [--workers N]
"""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

import numpy as np
from _common import asked, each, save, table
from cases import HARDLY, KINDS, colour, kernel, photograph, stored, window

import deblur
from deblur.metrics import psnr

KERNELS = (
    "gaussian 9, 1.5", "gaussian 15, 2.5", "disk 7", "disk 3", "motion 15, 30", "camera shake 15", "box 4", HARDLY,
)  # fmt: skip
NOISES = (
    *(("white", level) for level in (0.001, 0.003, 0.01, 0.03, 0.05)),
    *(("photons", level) for level in (100.0, 400.0, 3000.0)),
    ("8 bit", 0.0),
    ("8 bit", 0.01),
)
SIZE, MOST, COLOUR = 256, 300, 5  # pixels a side; iterations; every fifth case is in colour


def degraded(scene: np.ndarray, h: np.ndarray, kind: str, level: float, seed: int) -> np.ndarray:
    """One blurred and noisy channel."""
    if kind == "photons":
        return deblur.degrade(scene, h, noise="poisson", level=level, boundary="unknown", seed=seed)
    g = deblur.degrade(scene, h, noise=level, boundary="unknown", seed=seed)
    return stored(g, "8 bit") if kind == "8 bit" else np.maximum(g, 0)


def measure(which: str, at: int) -> dict[str, Any]:
    """One picture restored, and the best of its iterations."""
    rng = np.random.default_rng([23, at])
    names = KINDS[which]
    name, psf = names[at % len(names)], str(rng.choice(KERNELS))
    kind, level = NOISES[rng.integers(len(NOISES))]
    h = kernel(psf)
    image = window(colour(name) if at % COLOUR == 0 else photograph(name), SIZE + 14, rng)
    channels = [image[..., i] for i in range(3)] if image.ndim == 3 else [image]
    blurred = [degraded(c, h, kind, level, 1000 * at + i) for i, c in enumerate(channels)]
    g = np.stack(blurred).astype(np.float32)
    crop = deblur.Blur(h, g.shape[1:], "unknown").crop
    truth = np.stack([c[crop] for c in channels])

    common: dict[str, Any] = {
        "method": "richardson-lucy",
        "boundary": "unknown",
        "channel_axis": 0,
        "check": False,
    }
    restored = functools.partial(deblur.solve, g, h, **common)

    counts = np.unique(np.rint(MOST ** np.linspace(0, 1, 25)).astype(int)).tolist()
    by_count = [psnr(truth, restored(rtol=1e-12, max_iterations=n).image.clip(0, 1)) for n in counts]
    begin = time.perf_counter()
    found = restored()
    row = {"set": which, "image": name, "psf": psf, "noise": kind, "level": level, "colour": len(g) == 3}
    row |= {"seconds": time.perf_counter() - begin}
    row |= {"iterations": found.iterations, "status": found.status.name}
    row |= {"input": psnr(truth, g.clip(0, 1)), "psnr": psnr(truth, found.image.clip(0, 1))}
    row |= {"best": max(by_count), "best iteration": counts[int(np.argmax(by_count))]}
    if len(g) == 3:
        sharp, before, after = (x.clip(0, 1) - x.clip(0, 1).mean(axis=0) for x in (truth, g, found.image))
        errors = (float(np.sqrt(((x - sharp) ** 2).mean())) for x in (before, after))
        row |= dict(zip(("colour error before", "after"), errors))
    return row


def tables(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = []
    for which, kind in itertools.product(KINDS, ("all", "white", "photons", "8 bit")):
        rows = [r for r in results if r["set"] == which and kind in ("all", r["noise"])]
        if not rows:
            continue
        lost = np.array([r["best"] - r["psnr"] for r in rows])
        gain = np.array([r["psnr"] - r["input"] for r in rows])
        line = {"set": which, "noise": kind, "cases": len(rows)}
        line |= {"median": np.median(lost), "gain": gain.mean()}
        line |= {"95": np.quantile(lost, 0.95), "below": (gain < 0).sum(), "least": gain.min()}
        line |= {"unfinished": sum(r["status"] != "CONVERGED" for r in rows)}
        errors = [r["after"] / r["colour error before"] for r in rows if r["colour"]]
        lines.append(line | {"colour": np.median(errors)})
    columns = {"photographs": "{set}", "noise": "{noise}", "cases": "{cases}"}
    columns |= {"dB below the best iteration, median": "{median:.2f}", "95 %": "{95:.2f}"}
    columns |= {"gain, dB": "{gain:+.1f}"}
    columns |= {"below the input": "{below}", "least gain": "{least:+.1f}", "not converged": "{unfinished}"}
    columns |= {"error of colours over the input's": "{colour:.2f}"}
    title = "**Where Richardson-Lucy stops**, without options; the best iteration was found with the truth at hand."
    return [table(title, columns, lines)]


def main() -> None:
    options = asked(__doc__, cases=120, workers=None)
    rows = each(measure, [(which, at) for which in KINDS for at in range(options.cases)], options.workers)
    save("richardson_lucy", rows, tables(rows), iterations=MOST)


if __name__ == "__main__":
    main()

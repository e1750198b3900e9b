"""Where Richardson-Lucy stops, against its best number of iterations, on volumes and on photographs; half an hour.

Volumes that the rule was developed on and volumes set aside, blurred by a microscope's PSF, with the scene going on
beyond the frame, with counted photons and a background; photographs of both kinds. Best is the best of some numbers of
iterations, found with the truth at hand. deconwolf runs on the volumes, if `dw` is on the path, with 20 to 200
iterations and as many threads. Writes benchmarks/results/volumes.json.

    python benchmarks/bench_volumes.py [--photographs N, of each set] [--workers N]
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.ndimage
from _common import asked, each, save, table
from cases import KINDS, PSFS, kernel, photograph, window

import deblur

SCENES = {"developed on": ("bars", "beads"), "set aside": ("filaments", "nuclei")}
PHOTONS = (15.0, 150.0, 5000.0)  # at the brightest voxel
SHAPE, SIZE, THREADS = (24, 80, 80), 256, 2
COUNTS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
PEER = (20, 50, 100, 200)  # iterations of deconwolf


def scene(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Boxes, spheres, lines, or lumps of texture, at most about 1."""
    f, at = np.zeros(shape), np.moveaxis(np.indices(shape), 0, -1)
    for _ in range(40):
        centre, value = rng.random(3) * shape, rng.uniform(0.3, 1)
        away = (at - centre) * (2, 1, 1)
        if name == "bars":
            f[(abs(away) < rng.permutation([3, 4, 60])).all(axis=-1)] = value
        elif name == "beads":
            f += value * (np.linalg.norm(away, axis=-1) < rng.uniform(1, 4))
        elif name == "nuclei":
            f = np.maximum(f, value * (np.linalg.norm(away, axis=-1) < rng.uniform(8, 16)))
        else:
            path = centre + np.cumsum(rng.standard_normal((400, 3)) * (0.2, 0.6, 0.6), axis=0)
            f[tuple((path % shape).astype(int).T)] += value
    if name == "nuclei":
        f *= np.exp(scipy.ndimage.gaussian_filter(rng.standard_normal(shape), 1.2) * 3)
    return f / np.quantile(f, 0.999)


def deconwolf(g: np.ndarray, h: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    import tifffile

    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("g.tif", "h.tif", "out.tif")]
        for path, volume in zip(paths, (g, h)):
            tifffile.imwrite(path, volume.astype(np.float32), imagej=True)
        begin = time.perf_counter()
        options = f"--iter {count} --float --threads {THREADS} --overwrite --out {paths[2]}".split()
        subprocess.run(["dw", *options, *paths[:2]], check=True, capture_output=True)
        return tifffile.imread(paths[2]), time.perf_counter() - begin


def measure(which: str, name: str, level: float, seed: int) -> dict[str, Any]:
    """One scene, restored by itself, by each number of iterations and by deconwolf."""
    rng, solid = np.random.default_rng([23, seed]), name in sum(SCENES.values(), ())
    h = (
        deblur.psf.microscope((31, 33, 33), (0.25, 0.1), wavelength=0.52, na=1.4)
        if solid
        else kernel(str(rng.choice([key for key in PSFS if key != "box 4"])))
    )
    shape = SHAPE if solid else (SIZE, SIZE)
    full = tuple(n + m - 1 for n, m in zip(shape, h.shape))
    blur = deblur.Blur(h, shape, "unknown")
    truth = scene(name, full, rng) + 0.02 if solid else window(photograph(name), full, rng)
    mean = np.maximum(blur.forward(truth), 0)
    truth, peak = truth[blur.crop] * level / mean.max(), level / mean.max()
    g = rng.poisson(mean * peak).astype(np.float32)
    options: dict[str, Any] = {"method": "richardson-lucy", "boundary": "unknown", "check": False}

    def quality(f: np.ndarray) -> float:
        return float(10 * np.log10((truth**2).sum() / ((f - truth) ** 2).sum()))

    begin = time.perf_counter()
    own = deblur.solve(g, h, **options)
    row = {"set": which, "scene": name, "volume": solid, "photons": level, "iterations": own.iterations}
    row |= {"seconds": time.perf_counter() - begin, "snr": quality(own.image), "status": own.status.name}
    options["rtol"] = 1e-12
    counted = {n: quality(deblur.solve(g, h, max_iterations=n, **options).image) for n in COUNTS}
    best = max(counted, key=lambda n: counted[n])
    row |= {"best": max(counted[best], row["snr"]), "best count": best, "by count": counted}
    if solid and shutil.which("dw"):
        row["deconwolf"] = {n: (quality(f), s) for n in PEER for f, s in [deconwolf(g, h, n)]}
    return row


def tables(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = []
    for which, solid, level in itertools.product(SCENES, (True, False), PHOTONS):
        rows = [r for r in results if (r["set"], r["volume"], r["photons"]) == (which, solid, level)]
        if not rows:
            continue
        lost = np.array([r["best"] - r["snr"] for r in rows])
        peers = [max(q for q, _ in r["deconwolf"].values()) for r in rows if "deconwolf" in r]
        what = "volumes" if solid else "photographs"
        line = {"set": which, "what": what, "photons": level, "cases": len(rows), "mean": lost.mean()}
        line |= {"worst": lost.max(), "snr": np.mean([r["snr"] for r in rows])}
        line |= {"peer": np.mean(peers) if peers else np.nan}
        lines.append(line)
    columns = {"": "{what}, {set}", "photons": "{photons:.0f}", "cases": "{cases}", "SNR, dB": "{snr:.2f}"}
    columns |= {"below the best number of iterations, mean": "{mean:.2f}", "worst": "{worst:.2f}"}
    columns |= {"deconwolf's best of 20 to 200": "{peer:.2f}"}
    return [table("**Where Richardson-Lucy stops**, with nothing given.", columns, lines)]


def main() -> None:
    options = asked(__doc__, photographs=40, workers=1)
    work = [(which, name, n) for which in SCENES for name in SCENES[which] for n in PHOTONS]
    pictures = [(which, i) for which in KINDS for i in range(options.photographs)]
    work += [(which, KINDS[which][i % len(KINDS[which])], PHOTONS[i % 3]) for which, i in pictures]
    rows = each(measure, [(*item, seed) for seed, item in enumerate(work)], options.workers)
    save("volumes", rows, tables(rows), counts=COUNTS, threads=THREADS)


if __name__ == "__main__":
    main()

"""Richardson-Lucy on volumes with nothing given: quality, where it stops, and time; about 8 minutes of one core.

Volumes that the method was developed on and volumes set aside, blurred by a microscope's PSF, with the scene going on
beyond the frame, with counted photons and a background. Best is the best of five numbers of iterations, under the
darkest level that was found, with the truth at hand. Consensus is the option that stops each pixel by itself. The
acceleration of Biggs and Andrews makes the same steps under the same level, from other points; its best is that of the
same five numbers. deconwolf 0.4.7 runs on all, if `dw` is on the path, with 20 to 200 iterations. Then both restore a
larger volume with the same number of iterations, on one thread. Writes benchmarks/results/volumes.json.

    python benchmarks/bench_volumes.py
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.ndimage
from _common import asked, each, save, table

import deblur
from deblur.threads import thread_limit

SCENES = {"developed on": ("bars", "beads"), "set aside": ("filaments", "nuclei")}
PHOTONS = (15.0, 150.0, 5000.0)  # at the brightest voxel
SHAPE, LARGE, THREADS = (20, 56, 56), (48, 128, 128), 1
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


def cpu() -> float:
    """CPU seconds of this process and of those that it has waited for: other work on the machine does not count."""
    return sum(os.times()[:4])


def deconwolf(g: np.ndarray, h: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    import tifffile

    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("g.tif", "h.tif", "out.tif")]
        for path, volume in zip(paths, (g, h)):
            tifffile.imwrite(path, volume.astype(np.float32), imagej=True)
        begin = cpu()
        options = f"--iter {count} --float --threads {THREADS} --overwrite --out {paths[2]}".split()
        subprocess.run(["dw", *options, *paths[:2]], check=True, capture_output=True)
        return tifffile.imread(paths[2]), cpu() - begin


def biggs(g: np.ndarray, blur: deblur.Blur, low: float, most: int) -> Iterator[np.ndarray]:
    """The scenes after 1, 2, ... iterations, accelerated as Biggs and Andrews (Appl. Opt. 36, 1997) do."""
    seen = blur.adjoint(np.ones_like(g))
    shown = np.maximum(seen, 1e-3 * seen.max())
    now = before = np.full(blur.scene_shape, max(g.mean(), low), g.dtype)
    steps = [np.zeros_like(now)] * 2
    for _ in range(most):
        last, other = steps
        a = float(np.vdot(last, other) / max(np.vdot(other, other), 1e-30))
        point = np.maximum(now + min(max(a, 0), 1) * (now - before), low)
        ratio = g / np.maximum(blur.forward(point), 1e-6 * g.mean())
        before, now = now, np.maximum(point * blur.adjoint(ratio).clip(0) / shown, low)
        now[seen < shown] = point[seen < shown]
        steps = [now - point, last]
        yield now


def problem(name: str, shape: tuple[int, ...], level: float, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Counts, PSF and truth."""
    h = deblur.psf.microscope((21, 25, 25), (0.25, 0.1), wavelength=0.52, na=1.4)
    blur = deblur.Blur(h, shape, "unknown")
    truth = scene(name, blur.scene_shape, rng) + 0.02
    mean = np.maximum(blur.forward(truth), 0)
    peak = level / mean.max()
    return rng.poisson(mean * peak).astype(np.float32), h, truth[blur.crop] * peak


def measure(which: str, name: str, level: float, seed: int) -> dict[str, Any]:
    """One scene, restored by itself, by some numbers of iterations and by deconwolf."""
    g, h, truth = problem(name, SHAPE, level, np.random.default_rng([23, seed]))
    options: dict[str, Any] = {"method": "richardson-lucy", "boundary": "unknown", "check": False}

    def quality(f: np.ndarray) -> float:
        return float(10 * np.log10((truth**2).sum() / ((f - truth) ** 2).sum()))

    own = deblur.solve(g, h, **options)
    row = {"set": which, "scene": name, "photons": level, "iterations": own.iterations}
    row |= {"snr": quality(own.image), "status": own.status.name}
    by_pixel = deblur.solve(g, h, stop="consensus", **options)
    row["consensus"] = {by_pixel.iterations: quality(by_pixel.image)}
    options |= {"rtol": 1e-12, "bounds": (float(own.image.min()), np.inf)}
    counts = {max(round(own.iterations * 1.5**k), 1) for k in range(-2, 3)}
    by_count = {n: quality(deblur.solve(g, h, max_iterations=n, **options).image) for n in sorted(counts)}
    blur, low = deblur.Blur(h, g.shape, "unknown"), max(float(own.image.min()), 1e-6)
    scenes = enumerate(biggs(g, blur, low, max(counts)), 1)
    row["Biggs-Andrews"] = {n: quality(f[blur.crop]) for n, f in scenes if n in counts}
    row |= {"best": max([*by_count.values(), row["snr"]]), "by count": by_count}
    if shutil.which("dw"):
        row["deconwolf"] = {n: quality(deconwolf(g, h, n)[0]) for n in PEER}
    return row


def speed(count: int = 50) -> dict[str, Any]:
    """CPU seconds of both for so many iterations; deconwolf's with its start and its files."""
    g, h, _ = problem("nuclei", LARGE, 150.0, np.random.default_rng(0))
    options: dict[str, Any] = {"rtol": 1e-12, "max_iterations": count, "boundary": "unknown", "check": False}
    begin = cpu()
    with thread_limit(THREADS):
        deblur.solve(g, h, method="richardson-lucy", **options)
    own = cpu() - begin
    return {"iterations": count, "own": own, "deconwolf": deconwolf(g, h, count)[1] if shutil.which("dw") else None}


def tables(results: list[dict[str, Any]], times: dict[str, Any]) -> list[dict[str, Any]]:
    lines = []
    for which, level in itertools.product(SCENES, PHOTONS):
        rows = [r for r in results if (r["set"], r["photons"]) == (which, level)]
        lost = np.array([r["best"] - r["snr"] for r in rows])
        peers = [max(r["deconwolf"].values()) for r in rows if "deconwolf" in r]
        others = [np.mean([max(r[name].values()) for r in rows]) for name in ("consensus", "Biggs-Andrews")]
        line = {"set": which, "photons": level, "cases": len(rows), "mean": lost.mean(), "worst": lost.max()}
        line |= {"snr": np.mean([r["snr"] for r in rows]), "peer": np.mean(peers) if peers else np.nan}
        line |= {"best": np.mean([r["best"] for r in rows])} | dict(zip(("consensus", "biggs"), others, strict=True))
        lines.append(line)
    columns = {"": "{set}", "photons": "{photons:.0f}", "volumes": "{cases}", "SNR, dB": "{snr:.2f}"}
    columns |= {"below the best number of iterations, mean": "{mean:.2f}", "worst": "{worst:.2f}"}
    columns |= {"with consensus": "{consensus:.2f}", "best number, heavy ball": "{best:.2f}"}
    columns |= {"best number, Biggs-Andrews": "{biggs:.2f}", "deconwolf's best of 20 to 200": "{peer:.2f}"}
    size = " x ".join(map(str, LARGE))
    seconds = {"iterations": "{iterations}", "deblur, CPU s": "{own:.1f}", "deconwolf, CPU s": "{deconwolf:.1f}"}
    title = "**Richardson-Lucy on volumes**, without options."
    return [table(title, columns, lines), table(f"**Time**, {size} voxels, threads: {THREADS}.", seconds, [times])]


def main() -> None:
    asked(__doc__)
    work = [(which, name, n) for which in SCENES for name in SCENES[which] for n in PHOTONS]
    rows, times = each(measure, [(*item, seed) for seed, item in enumerate(work)], 1), speed()
    save("volumes", {"quality": rows, "time": times}, tables(rows, times), threads=THREADS)


if __name__ == "__main__":
    main()

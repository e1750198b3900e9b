"""The six standard deblurring experiments, and colours together against one by one; gains over the input in dB.

    python benchmarks/bench_experiments.py [--quick] [--workers N] [--methods NAME ...]

The experiments are those of the literature (Danielyan, Katkovnik, Egiazarian, IEEE Trans. Image Process. 21 (2012)):
periodic blur by 1/(1 + x² + y²) on [−7, 7]² (1, 2), 9 x 9 uniform (3), [1 4 6 4 1]ᵀ[1 4 6 4 1]/256 (4) and Gaussians of
1.6 and 0.4 pixels (5, 6); noise of √2, √8, 40 dB below the blurred picture, 7, 2 and 8 of 255. On eight photographs of
256² pixels: four on which the collaborative method was tuned, four that were set aside before.

Ours are given nothing but the PSF, the boundary and that pixels lie between 0 and 1; the bm3d package, where it is
installed, is given the noise's level. "collaborative, its pass alone" is the method without its steps between data
and patches, and "collaborative, without its network" lacks the last four of them. For colours, twelve photographs:
collaborative for all channels together and for each by itself. Writes benchmarks/results/experiments.json; about an
hour on one core. With --methods these alone, and the colours if "collaborative" is one; all else stays as it is
stored.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from importlib.util import find_spec
from typing import Any

import _common
import numpy as np
from bench_lambda import crop, photograph

import deblur
from deblur import Blur
from deblur.denoise import denoisers
from deblur.solvers import collaborative

NAME = "experiments"
TUNED = ("camera", "coins", "cat", "moon")
SET_ASIDE = ("astronaut", "coffee", "rocket", "brick")
HALVED = ("camera", "astronaut")  # by means of 2 x 2 pixels
SIDE = 256
PASS, BARE = "collaborative, its pass alone", "collaborative, without its network"
OURS = ("auto", "tv", PASS, BARE, "collaborative", "pnp")
NOISES = (2**0.5, 8**0.5, None, 7.0, 2.0, 8.0)  # of 255; None: 40 dB below the blurred picture
#: Twelve pieces of colour photographs: name, first row and column.
COLOURED = tuple(
    (name, *at) for name in ("astronaut", "coffee", "rocket") for at in ((0, 0), (0, 220), (150, 100))
)
COLOURED += (("cat", 0, 0), ("cat", 40, 190), ("immunohistochemistry", 100, 100))


def psfs() -> list[np.ndarray]:
    """The experiments' PSFs, of sum one."""
    i = np.arange(-7, 8)
    slow = 1 / (1 + i[:, None] ** 2 + i**2)
    binomial = np.array([1.0, 4, 6, 4, 1])
    gaussians = [np.exp(-(np.arange(-12, 13) ** 2) / (2 * s * s)) for s in (1.6, 0.4)]
    separable = [np.outer(k, k) for k in (np.ones(9), binomial, *gaussians)]
    return [h / h.sum() for h in (slow, slow, *separable)]


def picture(name: str) -> np.ndarray:
    """A photograph of 256 x 256 pixels."""
    photo = photograph(name)
    if name in HALVED:
        photo = photo.reshape(256, 2, 256, 2).mean(axis=(1, 3))
    return crop(photo, SIDE)


def gain(truth: np.ndarray, g: np.ndarray, image: np.ndarray) -> float:
    """ISNR: by how much the image is nearer to the truth than `g` is, in dB."""
    return float(10 * np.log10(((g - truth) ** 2).sum() / ((image - truth) ** 2).sum()))


def ours(method: str, g: np.ndarray, psf: np.ndarray, **said: Any) -> tuple[np.ndarray, float]:
    """(the image, seconds)."""
    if method != "auto":
        said["bounds"] = (0, 1)
    if method == "pnp":
        said["denoiser"] = "collaborative"
    steps, last = collaborative._STRENGTHS, collaborative._LAST_STEPS
    collaborative._STRENGTHS = () if method == PASS else steps
    collaborative._LAST_STEPS = 0 if method == BARE else last
    try:
        start = time.perf_counter()
        result = deblur.solve(g, psf, method=method.partition(",")[0], check=False, **said)
        return result.image, time.perf_counter() - start
    finally:
        collaborative._STRENGTHS, collaborative._LAST_STEPS = steps, last


def bm3d_restored(g: np.ndarray, psf: np.ndarray, noise: float) -> np.ndarray:
    """The bm3d package's deblurring of a periodic picture whose noise's deviation is `noise`."""
    import bm3d

    if not hasattr(np, "trapz"):  # which it calls; NumPy 2.4 has it under its new name alone
        setattr(np, "trapz", np.trapezoid)  # noqa: B010
    return bm3d.bm3d_deblurring(g[..., None], noise, psf).reshape(g.shape)  # of (M, N) it makes M channels


def experiment(name: str, number: int, methods: tuple[str, ...], others: bool) -> dict[str, Any]:
    """One row: these methods of ours on one picture and experiment, and the others that need no parameter."""
    truth, psf, level = picture(name), psfs()[number - 1], NOISES[number - 1]
    clean = Blur(psf, truth.shape, "periodic").forward(truth)
    noise = 0.01 * clean.std() if level is None else level / 255
    g = clean + noise * np.random.default_rng(100 * number).standard_normal(clean.shape)
    row: dict[str, Any] = {
        "picture": name,
        "experiment": number,
        "set aside": name in SET_ASIDE,
        "gain": {},
        "seconds": {},
    }
    for method in methods:
        image, row["seconds"][method] = ours(method, g, psf, boundary="periodic")
        row["gain"][method] = gain(truth, g, image)
    if not others:
        return row
    row["gain"]["the denoiser alone, noise known"] = gain(truth, g, denoisers.collaborative(g, noise))
    if find_spec("bm3d"):
        import bm3d  # noqa: F401  (before the clock starts)

        start = time.perf_counter()
        image = bm3d_restored(g, psf, noise)
        row["seconds"]["bm3d, noise known"] = time.perf_counter() - start
        row["gain"]["bm3d, noise known"] = gain(truth, g, image)
    return row


def colours(name: str, top: int, left: int) -> dict[str, Any]:
    """One row: a colour photograph restored together, and channel by channel with the same λ."""
    from skimage import data, util

    scene = util.img_as_float(getattr(data, name)())[top : top + 208, left : left + 208, :3]
    psf = deblur.psf.gaussian(9, 1.5)
    g = deblur.degrade(scene, psf, noise=0.02, boundary="unknown", seed=top + left)
    truth = scene[Blur(psf, g.shape[:2], "unknown").crop]
    together = deblur.solve(g, psf, method="collaborative", boundary="unknown", channel_axis=-1, check=False)
    alone = [
        deblur.solve(g[..., c], psf, method="collaborative", boundary="unknown", check=False).image
        for c in range(3)
    ]
    return {
        "picture": f"{name} from {top}, {left}",
        "together": gain(truth, g, together.image),
        "one by one": gain(truth, g, np.stack(alone, axis=-1)),
    }


def summary(rows: list[dict[str, Any]], coloured: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean gains: of each half by experiment, and for the colours."""
    out: dict[str, Any] = {}
    for half, chosen in (
        ("tuned on", [r for r in rows if not r["set aside"]]),
        ("set aside", [r for r in rows if r["set aside"]]),
        ("all", rows),
    ):
        if not chosen:
            continue
        table = {}
        for method in chosen[0]["gain"]:
            by = {str(n): [r["gain"][method] for r in chosen if r["experiment"] == n] for n in range(1, 7)}
            table[method] = {n: float(np.mean(v)) for n, v in by.items() if v}
            table[method]["mean"] = float(np.mean([r["gain"][method] for r in chosen]))
            table[method]["least"] = float(min(r["gain"][method] for r in chosen))
        out[half] = table
    if coloured:
        gains = [r["together"] - r["one by one"] for r in coloured]
        out["colours"] = {
            "mean_db": float(np.mean(gains)),
            "least_db": float(min(gains)),
            "pictures": len(gains),
        }
    return out


def merged(row: dict[str, Any], stored: list[dict[str, Any]]) -> dict[str, Any]:
    """A row, and what it lacks from the stored one of the same picture and experiment."""
    [old] = [r for r in stored if all(r[key] == row[key] for key in ("picture", "experiment"))]
    for part in ("gain", "seconds"):
        kept = {name: x for name, x in old[part].items() if name in OURS or name.endswith("noise known")}
        both = kept | row[part]
        row[part] = {name: both[name] for name in (*OURS, *kept) if name in both}
    return row


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two experiments on one picture; writes nothing")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=OURS, help="measure these alone")
    options = parser.parse_args()
    methods = tuple(options.methods or OURS)
    stored = json.loads((_common.RESULTS / f"{NAME}.json").read_text()) if options.methods else None
    names = TUNED[:1] if options.quick else TUNED + SET_ASIDE
    numbers = (1, 6) if options.quick else range(1, 7)
    work = [(name, number, methods, stored is None) for number in numbers for name in names]
    places = COLOURED[: 1 if options.quick else None] if "collaborative" in methods else ()
    with _common.side_by_side(options.workers) as pool:
        waiting = [pool.submit(experiment, *w) for w in work]
        painted = [pool.submit(colours, *at) for at in places]
        rows, coloured = [w.result() for w in waiting], [w.result() for w in painted]
    kept: dict[str, str] = {}  # the commit of each row that is not measured now
    if stored is not None:
        before, last = stored["settings"]["kept"], stored["environment"]["commit"]
        rows_there = stored["results"]["summary"]["all"]
        kept = {name: before.get(name, last) for name in rows_there if name not in methods}
        coloured = coloured or stored["results"]["colours"]
        rows = [merged(row, stored["results"]["experiments"]) for row in rows]
    found = {"summary": summary(rows, coloured), "experiments": rows, "colours": coloured}
    for half, table in found["summary"].items():
        print(f"\n{half}")
        _common.print_table([{"": k, **v} for k, v in table.items()] if half != "colours" else [table])
    if not options.quick:
        versions = {} if stored is None else stored["settings"]["versions"]
        if stored is None and find_spec("bm3d"):
            versions = {"bm3d": importlib.metadata.version("bm3d")}
        _common.save(NAME, found, size=SIDE, versions=versions, kept=kept)


if __name__ == "__main__":
    main()

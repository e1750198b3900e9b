"""Is the boundary read off the picture right, and what does the call give when nothing at all is said?

(a) Crops of photographs, 64² to 512², blurred by a PSF of any kind under a boundary of zero, periodic or unknown (the
real scene beyond the frame), with noise of a standard deviation from 0 to 0.05. What is taken is counted against what
was true, also without the cases that nobody could tell: those in which the picture differs from one of the same scene
in its true surroundings by less than the noise hides. Where another boundary was taken, the picture is restored under
both, and the loss is the difference in PSNR (60 dB counts as perfect).
(r) The same for a boundary of reflect, which is never taken: the loss, by the noise.
(b) The real scene beyond the frame and nothing given, `deblur.reconstruct(g, psf)`, beside the blurred picture and
scikit-image's `wiener` after smooth padding at its best parameter, found with the truth at hand.
(c) Seconds of reading the boundary, and of the whole call, in turns.

The photographs of (a) are others than those by which the reading was tuned, those of (b) others than those by which
the rules for λ were.

    python benchmarks/bench_auto_boundary.py [--cases N] [--parts arbc]

Writes benchmarks/results/auto_boundary.json; parts left out stay as they are stored.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from typing import Any

import _common
import numpy as np
from bench_boundary import best_wiener, centred, padded

import deblur
from deblur.device import Array
from deblur.tuning.boundary import evidence, find_boundary

#: By these the reading was tuned: camera, coffee, cat, brick, moon, page, ihc, motorcycle_left.
HELD_OUT = ("astronaut", "coins", "rocket", "grass", "gravel", "retina", "hubble_deep_field", "clock", "cell")
#: By these the rules for λ were: camera, astronaut, coffee, cat, coins, brick, grass, page, rocket, moon.
NEVER_SEEN = (
    "gravel",
    "retina",
    "hubble_deep_field",
    "clock",
    "cell",
    "immunohistochemistry",
    "stereo_motorcycle",
)
BOUNDARIES = ("zero", "periodic", "unknown")
NOISE = (0.0, 0.001, 0.003, 0.01, 0.02, 0.05)
SIZES = (64, 96, 128, 192, 256, 384, 512)
PERFECT = 60.0
LEVEL = 1 / 255 / 12**0.5  # of the noise that a file of 8 bits has in any case, where nobody can tell
SURE = 10.0  # logarithm of a likelihood


@cache
def photograph(name: str) -> Array:
    """One of scikit-image's photographs, grey, in [0, 1]."""
    from skimage import data

    image = getattr(data, name)()
    image = deblur.image.as_float(image[0] if isinstance(image, tuple) else image)
    return image if image.ndim == 2 else image[..., :3].mean(axis=2)


def draw_psf(rng: np.random.Generator) -> tuple[str, Array]:
    """A PSF of any kind that a newcomer has, and its name."""
    whole = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    kind = ("gaussian", "disk", "motion", "line", "camera_shake", "box")[whole(0, 5)]
    if kind == "gaussian":
        sigma = float(rng.uniform(0.6, 3))
        h = deblur.psf.gaussian(2 * round(3 * sigma) + 1, sigma)
    elif kind == "disk":
        h = deblur.psf.disk(whole(3, 15))
    elif kind == "motion":
        h = deblur.psf.motion(whole(5, 24), float(rng.uniform(0, 180)))
    elif kind == "line":
        h = deblur.psf.motion(whole(5, 20), float(rng.choice([0, 90])))
    elif kind == "camera_shake":
        h = deblur.psf.camera_shake(int(rng.choice([9, 13, 17, 25])), whole(0, 999))
    else:
        h = deblur.psf.box(whole(2, 9))
    return f"{kind} {h.shape[0]} x {h.shape[1]}", h


def draw(seed: int, names: tuple[str, ...], sizes: tuple[int, ...]) -> dict[str, Any]:
    """A crop with what lies around it, a PSF and noise."""
    rng = np.random.default_rng(seed)
    while True:
        name, (words, h), size = str(rng.choice(names)), draw_psf(rng), int(rng.choice(sizes))
        picture, need = photograph(name), [size + m - 1 for m in h.shape]
        room = [n - m for n, m in zip(picture.shape, need, strict=True)]
        if min(room) >= 0:
            break
    top, left = (int(rng.integers(0, n + 1)) for n in room)
    scene = picture[top : top + need[0], left : left + need[1]]
    if np.ptp(scene) < 0.05:  # black sky alone
        return draw(seed + 100_000, names, sizes)
    return {
        "name": name,
        "psf": words,
        "size": size,
        "noise": float(rng.choice(NOISE)),
        "h": h,
        "scene": scene,
    }


def one_boundary(arguments: tuple[int, str]) -> dict[str, Any]:
    """A case of (a) or (r)."""
    seed, boundary = arguments
    case = draw(seed, HELD_OUT, SIZES)
    h, scene, noise = case.pop("h"), case.pop("scene"), case["noise"]
    blur = deblur.Blur(h, (case["size"],) * 2, "unknown")
    truth = scene[blur.crop]
    beyond = blur.forward(scene)
    clean = beyond if boundary == "unknown" else deblur.Blur(h, truth.shape, boundary).forward(truth)
    g = clean + noise * np.random.default_rng(seed).standard_normal(clean.shape)
    found = find_boundary(blur, g[None, None]).boundary
    hidden = float(((clean - beyond) ** 2).sum()) / 2 / (noise**2 + LEVEL**2)
    loss = 0.0
    if found != boundary:
        taken, known = (
            min(
                PERFECT,
                deblur.metrics.psnr(truth, deblur.solve(g, h, boundary=b, prior="smooth", check=False).image),
            )
            for b in (found, boundary)
        )
        loss = known - taken
    return case | {
        "boundary": boundary,
        "found": found,
        "tellable": boundary == "unknown" or hidden > SURE,
        "loss_db": loss,
        "evidence": evidence(blur, g[None, None]),
    }


def one_call(seed: int) -> dict[str, Any]:
    """A case of (b)."""
    case = draw(seed, NEVER_SEEN, SIZES[:5]) | {"seed": seed}
    h, scene = case.pop("h"), case.pop("scene")
    blur = deblur.Blur(h, (case["size"],) * 2, "unknown")
    truth, clean = scene[blur.crop], blur.forward(scene)
    g = clean + case["noise"] * np.random.default_rng(seed).standard_normal(clean.shape)
    odd = centred(h, blur.origin)
    wiener, _ = best_wiener(padded(g, (2 * odd.shape[0], 2 * odd.shape[1])), odd, truth)
    result = deblur.solve(g, h, check=False)
    return case | {
        "input_db": min(PERFECT, deblur.metrics.psnr(truth, g)),
        "padded_wiener_db": min(PERFECT, wiener),
        "ours_db": min(PERFECT, deblur.metrics.psnr(truth, result.image)),
        "ok": result.status.ok,
        "boundary": result.boundary,
        "prior": result.prior,
        "lam": result.lam,
        "lam_reason": result.lam_reason,
    }


def of_boundaries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    table = []
    for boundary in BOUNDARIES:
        its = [row for row in rows if row["boundary"] == boundary]
        told = [row for row in its if row["tellable"]]
        table.append(
            {
                "boundary": boundary,
                "cases": len(its),
                "found": sum(row["found"] == boundary for row in its),
                "tellable": len(told),
                "found_of_tellable": sum(row["found"] == boundary for row in told),
                **{f"taken for {b}": sum(row["found"] == b for row in its) for b in BOUNDARIES},
                "mean_loss_db": float(np.mean([row["loss_db"] for row in its])),
                "worst_loss_db": float(np.max([row["loss_db"] for row in its])),
            }
        )
    return table


def of_calls(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ours, given, wiener = (
        np.array([row[key] for row in rows]) for key in ("ours_db", "input_db", "padded_wiener_db")
    )
    return {
        "cases": len(rows),
        "mean_input_db": float(given.mean()),
        "mean_padded_wiener_db": float(wiener.mean()),
        "mean_ours_db": float(ours.mean()),
        "below_input": int((ours < given - 0.1).sum()),
        "worst_gain_db": float((ours - given).min()),
        "below_padded_wiener": int((ours < wiener).sum()),
        "other_boundary": sum(row["boundary"] != "unknown" for row in rows),
    }


def seconds() -> list[dict[str, Any]]:
    """Part (c)."""
    from bench_photographs import scene

    rows = []
    for size in (256, 1024):
        for words in ("gaussian:9,1.5", "motion:15,30", "disk:31"):
            h = deblur.psf.parse(words)
            sharp = scene((size + h.shape[0] - 1, size + h.shape[1] - 1))
            sharp = (sharp if sharp.ndim == 2 else sharp.mean(axis=2)).astype(np.float32)
            g = deblur.degrade(sharp, h, noise=0.01, boundary="unknown", seed=0).astype(np.float32)
            blur = deblur.Blur(h, g.shape, "unknown")
            found = _common.time_together(
                {
                    "reading": lambda blur=blur, g=g: evidence(blur, g[None, None]),
                    "call": lambda g=g, h=h: deblur.reconstruct(g, h),
                    "lam given": lambda g=g, h=h: deblur.reconstruct(g, h, 1e-2),
                },
                repeats=5,
            )
            rows.append({"size": size, "psf": words} | {k: v["median_s"] for k, v in found.items()})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=480, help="of (a) and of (b); of (r) a quarter")
    parser.add_argument("--parts", default="arbc")
    parser.add_argument("--workers", type=int, help="processes; default one for each core")
    options = parser.parse_args()
    from tqdm import tqdm

    path = _common.RESULTS / "auto_boundary.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    if "c" in options.parts:
        results["seconds"] = seconds()
        _common.print_table(results["seconds"])
    with _common.side_by_side(options.workers) as pool:
        if "a" in options.parts:
            cases = [(110_000 + i, BOUNDARIES[i % 3]) for i in range(options.cases)]
            rows = list(tqdm(pool.map(one_boundary, cases), total=len(cases), disable=None))
            results["boundaries"] = {
                "summary": of_boundaries(rows),
                "mean_loss_db": float(np.mean([row["loss_db"] for row in rows])),
                "missed": [row for row in rows if row["boundary"] != row["found"]],
            }
            _common.print_table(results["boundaries"]["summary"])
        if "r" in options.parts:
            cases = [(130_000 + i, "reflect") for i in range(options.cases // 4)]
            rows = list(tqdm(pool.map(one_boundary, cases), total=len(cases), disable=None))
            results["reflect_loss_db"] = {
                f"{noise:g}": float(np.mean([row["loss_db"] for row in rows if row["noise"] == noise]))
                for noise in NOISE
            }
            _common.print_table([results["reflect_loss_db"]])
        if "b" in options.parts:
            seeds = range(120_000, 120_000 + options.cases)
            rows = list(tqdm(pool.map(one_call, seeds), total=len(seeds), disable=None))
            results["nothing_given"] = {
                "summary": of_calls(rows),
                "below": [row for row in rows if row["ours_db"] < row["input_db"]],
            }
            _common.print_table([results["nothing_given"]["summary"]])
    _common.save("auto_boundary", results, perfect_db=PERFECT)
    print(f"\nwritten to {path.relative_to(_common.ROOT)}")


if __name__ == "__main__":
    main()

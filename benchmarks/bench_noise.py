"""The noise level estimated from a picture, and impulses found in it; about two minutes each.

    python benchmarks/bench_noise.py [--parts level impulses] [--cases N] [--workers N]

level: N pictures each of photographs that the estimate was developed on and of others, blurred by PSFs drawn at random
with the scene going on beyond the frame, white noise from 0.001 to 0.08 of full scale; as real numbers, clipped to
[0, 1], and in 8 bits. The truth is the standard deviation of what was added where nothing is clipped, with rounding.
Sharpened pictures (unsharp mask after the noise) are right within 20 %, refused, or wrong. Noise that grows with the
light is compared at the 10, 50 and 90 % of the picture's own values. Writes benchmarks/results/noise.json.

impulses: photographs, a page, text and an area of true black and white, blurred, made noisy, with 2 % salt and pepper
and without. Writes
benchmarks/results/impulses.json.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from _common import asked, each, save, table
from cases import DEVELOPED, HARDLY, KINDS, kernel, photograph, stored, window
from scipy.ndimage import gaussian_filter

import deblur
from deblur.denoise.impulses import detect
from deblur.tuning import estimate_noise, estimate_noise_model

KERNELS = (
    "gaussian 9, 1.5", "gaussian 15, 2.5", "disk 7", "disk 3", "motion 15, 30", "motion 9, 0", "camera shake 15",
    "box 4", HARDLY,
)  # fmt: skip
LEVELS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08)
DEPTHS = ("real numbers", "clipped", "8 bit")
SIZE, SHARPENED, WITHIN = 256, 3, 0.2  # pixels a side; every third case is also sharpened; right within 20 %

# ---------------------------------------------------------------- the level


def estimated(g: np.ndarray, h: np.ndarray | None) -> float | None:
    """None if it is refused."""
    try:
        return estimate_noise(g, h)
    except ValueError:
        return None


def sharpened(g: np.ndarray, radius: float, amount: float) -> np.ndarray:
    return g + amount * (g - gaussian_filter(g, radius))


def level_case(which: str, at: int) -> dict[str, Any]:
    """One degraded picture, and the estimates with and without the PSF."""
    rng = np.random.default_rng([11, at])
    names = KINDS[which]
    name, psf = names[at % len(names)], str(rng.choice(KERNELS))
    level, depth, h = float(rng.choice(LEVELS)), str(rng.choice(DEPTHS)), kernel(psf)
    clean = deblur.degrade(window(photograph(name), SIZE + 14, rng), h, boundary="unknown")
    g = stored(clean + level * rng.standard_normal(clean.shape), depth)
    seen = np.ones(g.shape, bool)
    if depth != "real numbers":
        seen = (clean > 0.02 + 2 * level) & (clean < 0.98 - 2 * level)
    true = float(np.sqrt(((g - clean)[seen] ** 2).mean())) if seen.sum() >= 500 else level
    row = {"set": which, "image": name, "psf": psf, "level": level, "depth": depth, "true": true}
    row |= {"estimated": estimated(g, None), "with the PSF": estimated(g, h)}
    if at % SHARPENED == 0:
        how = rng.choice([0.7, 1.0, 1.5, 2.0]), rng.choice([0.5, 1.0, 2.0])
        point = np.zeros((65, 65))
        point[32, 32] = 1
        row["sharpened true"] = float(np.linalg.norm(sharpened(point, *how))) * true
        row["sharpened"] = estimated(sharpened(g, *how), h)
    gain, read = float(1 / rng.choice([100, 300, 1000, 3000])), float(rng.choice([0.002, 0.005, 0.01, 0.02]))
    light = rng.poisson(clean.clip(0, None) / gain) * gain + read * rng.standard_normal(clean.shape)
    model = estimate_noise_model(light)
    values = np.quantile(clean.clip(0, None), [0.1, 0.5, 0.9])
    spread = np.sqrt(model.gain * values + model.read**2) / np.sqrt(gain * values + read**2) - 1
    return row | {"signal-dependent error": spread.tolist()}


def level_tables(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    hardly = [r for r in results if not r["psf"].endswith(HARDLY)]
    but = "all, but the PSF that hardly blurs"
    lines = []
    for kind, depth in itertools.product(KINDS, ("all", *DEPTHS, but)):
        rows = hardly if depth == but else [r for r in results if depth in ("all", r["depth"])]
        rows = [r for r in rows if r["set"] == kind]
        for key, way in (("estimated", "the image alone"), ("with the PSF", "the PSF given")):
            if depth in DEPTHS and key == "estimated":
                continue
            error = np.array([abs(r[key] / r["true"] - 1) for r in rows if r[key] is not None])
            line = {"set": kind, "depth": depth, "way": way, "cases": len(rows), "median": np.median(error)}
            lines.append(line | {"95": np.quantile(error, 0.95)})
    sharp = [r for r in results if "sharpened true" in r]
    refused = sum(r["sharpened"] is None for r in sharp)
    right = sum(r["sharpened"] is not None and abs(r["sharpened"] / r["sharpened true"] - 1) <= WITHIN for r in sharp)
    shares = [100 * count / len(sharp) for count in (right, refused, len(sharp) - right - refused)]
    aside = [r for r in hardly if r["set"] == "set aside"]
    grows = 100 * abs(np.array([r["signal-dependent error"] for r in aside]))
    title = (
        "**The noise, estimated.** Levels from 0.001 to 0.08 of full scale, nine PSFs of which one hardly blurs; the "
        "truth is what was added where nothing is clipped, rounding included."
    )
    notes = (
        f"Of sharpened pictures {shares[0]:.0f} % are right within {100 * WITHIN:.0f} %, {shares[1]:.0f} % are refused "
        f"and {shares[2]:.0f} % wrong. For noise that grows with the light, the error of the deviation at dark, middle "
        f"and bright values of photographs set aside is {np.median(grows):.1f} % in the median and "
        f"{np.quantile(grows, 0.95):.1f} % at 95 % ({len(aside)} pictures)."
    )
    columns = {"photographs": "{set}", "kept as": "{depth}", "from": "{way}", "cases": "{cases}"}
    columns |= {"error, median": "{median:.1p}", "95 %": "{95:.1p}"}
    return [table(title, columns, lines, notes)]


# ---------------------------------------------------------------- impulses

PSFS = {
    "gaussian 9, 1.5": deblur.psf.gaussian(9, 1.5),
    "disk 5": deblur.psf.disk(5),
    "motion 9, 30": deblur.psf.motion(9, 30.0),
    "camera shake 11": deblur.psf.camera_shake(11, 1),
    "hardly any: gaussian 3, 0.5": deblur.psf.gaussian(3, 0.5),
}
NOISES = (0.0, 0.01, 0.04)
DRAWN = ("page", "text", "black and white areas")
SHARE, VISIBLE = 0.02, 3.0


def scene(name: str) -> np.ndarray:
    """A picture; or grey with black and white squares from 2 to 64 pixels."""
    if name != DRAWN[-1]:
        return photograph(name)[: SIZE + 10, : SIZE + 10]
    picture, at = np.full((SIZE + 10, SIZE + 10), 0.5), 8
    for side in (2, 4, 8, 16, 32, 64):
        picture[at : at + side, 20 : 20 + side] = 0.0
        picture[at : at + side, 120 : 120 + side] = 1.0
        at += side + 10
    return picture


def impulse_case(depth: str, psf: str, noise: float, name: str, seed: int) -> dict[str, Any]:
    """Counts for one blurred image."""
    g = deblur.degrade(scene(name), PSFS[psf], noise=noise, boundary="unknown", seed=seed)
    draw = np.random.default_rng(100 + seed).random(g.shape)
    hit = draw < SHARE
    clean, struck = stored(g, depth), stored(np.where(draw < SHARE / 2, 0.0, np.where(hit, 1.0, g)), depth)
    found, seen = detect(struck), hit & (abs(struck - clean) > max(VISIBLE * noise, 0.02))
    counted = {"impulses": hit, "missed": hit & ~found, "visible": seen, "visible missed": seen & ~found}
    counted |= {"false": found & ~hit, "false without impulses": detect(clean), "pixels": np.ones(g.shape)}
    row = {"image": name, "psf": psf, "noise": noise, "depth": depth}
    return row | {what: int(pixels.sum()) for what, pixels in counted.items()}


def impulse_tables(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for r in results:
        if r["depth"] == "clipped":  # which differs little from 8 bits
            continue
        what = "print and flat areas" if r["image"] in DRAWN else "photographs"
        words = f"{what}, {'hardly blurred' if r['psf'].startswith('hardly') else 'blurred'}"
        kind = {"what": words, "depth": r["depth"], "noise": r["noise"]}
        total = sums.setdefault(tuple(kind.values()), kind)
        for name, value in r.items():
            if isinstance(value, int):
                total[name] = total.get(name, 0) + value
    for t in sums.values():
        t |= {"of all": t["missed"] / t["impulses"], "of visible": t["visible missed"] / t["visible"]}
        t |= {"million": t["pixels"] / 1e6}
    title = (
        "**Impulses found by `mask='auto'`** at 2 % salt and pepper. An impulse is visible if it stands out of the "
        "noise."
    )
    columns = {"picture": "{what}", "values": "{depth}", "noise": "{noise:g}", "missed": "{of all:.1p}"}
    columns |= {"missed of the visible": "{of visible:.1p}", "false alarms": "{false}"}
    columns |= {"the same without impulses": "{false without impulses}", "million pixels": "{million:.1f}"}
    return [table(title, columns, list(sums.values()))]


def main() -> None:
    options = asked(__doc__, parts=("level", "impulses"), cases=360, workers=None)
    if "level" in options.parts:
        rows = each(level_case, [(which, at) for which in KINDS for at in range(options.cases)], options.workers)
        save("noise", rows, level_tables(rows), within=WITHIN)
    if "impulses" in options.parts:
        product = itertools.product(DEPTHS, PSFS, NOISES, list(enumerate((*DEVELOPED, *DRAWN))))
        rows = each(impulse_case, [(*case, name, seed) for *case, (seed, name) in product], options.workers)
        save("impulses", rows, impulse_tables(rows), share=SHARE)


if __name__ == "__main__":
    main()

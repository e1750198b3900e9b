"""How near the estimated noise is to the true one: photographs × PSFs × levels, and sharpened; about two minutes.

Photographs that the estimate was developed on and photographs set aside for this table, blurred by PSFs drawn at
random with the scene going on beyond the frame, with white noise from 0.001 to 0.08 of full scale; as real numbers,
clipped to [0, 1], and in 8 bits. The truth is the standard deviation of what was added where nothing is clipped,
rounding included. Sharpened pictures (unsharp mask after the noise) are right within 20 %, refused, or wrong. Noise
that grows with the light, of gains from 1/3000 to 1/100 and read noise from 0.002 to 0.02, is compared at the 10, 50
and 90 % of the picture's own values. Writes ``results/noise.json``.

    python benchmarks/bench_noise.py [--cases N]
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Any

import _common
import numpy as np
import photographs
from scipy.ndimage import gaussian_filter

import deblur
from deblur import psf
from deblur.tuning import estimate_noise, estimate_noise_model

HARDLY = "hardly any: gaussian 3, 0.5"
PSFS = {
    "gaussian 9, 1.5": psf.gaussian(9, 1.5),
    "gaussian 15, 2.5": psf.gaussian(15, 2.5),
    "disk 7": psf.disk(7),
    "disk 3": psf.disk(3),
    "motion 15, 30": psf.motion(15, 30.0),
    "motion 9, 0": psf.motion(9, 0.0),
    "camera shake 15": psf.camera_shake(15, 3),
    "box 4": psf.box(4),
    HARDLY: psf.gaussian(3, 0.5),
}
LEVELS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08)
DEPTHS = ("real numbers", "clipped", "8 bit")
SIZE, SHARPENED = 256, 3  # pixels a side; every so many cases are sharpened, too
WITHIN = 0.2


def case(names: tuple[str, ...], at: int) -> dict[str, Any]:
    """One picture made worse, and what is estimated of it with and without the PSF."""
    rng = np.random.default_rng([11, at])
    name = names[at % len(names)]
    kernel, level, depth = str(rng.choice(list(PSFS))), rng.choice(LEVELS), str(rng.choice(DEPTHS))
    h = PSFS[kernel] / PSFS[kernel].sum()
    scene = photographs.window(photographs.grey(name), SIZE + 14, rng)
    clean = deblur.degrade(scene, h, boundary="unknown")
    g = clean + level * rng.standard_normal(clean.shape)
    seen = np.ones(g.shape, bool)
    if depth != "real numbers":
        g = g.clip(0, 1)
        seen = (clean > 0.02 + 2 * level) & (clean < 0.98 - 2 * level)
    if depth == "8 bit":
        g = np.rint(g * 255) / 255
    true = float(np.sqrt(((g - clean)[seen] ** 2).mean())) if seen.sum() >= 500 else float(level)
    row = {"image": name, "psf": kernel, "level": float(level), "depth": depth, "true": true}
    for key, given in (("estimated", None), ("with the PSF", h)):
        row[key] = _estimated(g, given)
    if at % SHARPENED == 0:
        radius, amount = rng.choice([0.7, 1.0, 1.5, 2.0]), rng.choice([0.5, 1.0, 2.0])
        point = np.zeros((65, 65))
        point[32, 32] = 1
        gain = float(np.linalg.norm(_sharpened(point, radius, amount)))
        sharp = _estimated(_sharpened(g, radius, amount), h)
        row |= {"sharpened true": gain * true, "sharpened": sharp}
    gain, read = float(1 / rng.choice([100, 300, 1000, 3000])), float(rng.choice([0.002, 0.005, 0.01, 0.02]))
    light = rng.poisson(clean.clip(0, None) / gain) * gain + read * rng.standard_normal(clean.shape)
    model = estimate_noise_model(light, h)
    values = np.quantile(clean.clip(0, None), [0.1, 0.5, 0.9])
    spread = np.sqrt(model.gain * values + model.read**2) / np.sqrt(gain * values + read**2) - 1
    return row | {"gain": gain, "read": read, "signal-dependent error": [float(e) for e in spread]}


def _sharpened(g: np.ndarray, radius: float, amount: float) -> np.ndarray:
    return g + amount * (g - gaussian_filter(g, radius))


def _estimated(g: np.ndarray, h: np.ndarray | None) -> float | None:
    """None if it is refused."""
    try:
        return estimate_noise(g, h)
    except ValueError:
        return None


def table(results: list[dict[str, Any]]) -> list[dict[str, object]]:
    """One line for each set of photographs, depth and way; "blurred" leaves out the PSF that hardly blurs."""
    lines: list[dict[str, object]] = []
    for kind in ("developed on", "set aside"):
        for depth in ("all", *DEPTHS, "all, blurred"):
            rows = [
                r
                for r in results
                if r["set"] == kind
                and (depth.startswith("all") or depth == r["depth"])
                and not (depth.endswith("blurred") and r["psf"] == HARDLY)
            ]
            for key in ("estimated", "with the PSF"):
                kept = [r for r in rows if r[key] is not None]
                error = np.array([abs(r[key] / r["true"] - 1) for r in kept])
                lines.append(
                    {
                        "photographs": kind,
                        "kept as": depth,
                        "way": "the PSF given" if key != "estimated" else "the image alone",
                        "cases": len(rows),
                        "error, median %": 100 * float(np.median(error)),
                        "error, 95 %": 100 * float(np.quantile(error, 0.95)),
                        "refused %": 100 * (1 - len(kept) / len(rows)),
                    }
                )
    return lines


def signal_dependent(results: list[dict[str, Any]], which: str) -> dict[str, float]:
    """Errors of the deviation at dark, middle and bright values, in per cent."""
    rows = [r for r in results if r["set"] == which and r["psf"] != HARDLY]
    error = 100 * abs(np.array([r["signal-dependent error"] for r in rows]))
    return {"cases": len(rows), "median %": float(np.median(error)), "95 %": float(np.quantile(error, 0.95))}


def sharpened(results: list[dict[str, Any]]) -> dict[str, float]:
    """What became of sharpened pictures, in per cent."""
    rows = [r for r in results if "sharpened true" in r]
    refused = sum(r["sharpened"] is None for r in rows)
    right = sum(
        r["sharpened"] is not None and abs(r["sharpened"] / r["sharpened true"] - 1) <= WITHIN for r in rows
    )
    counts = {"refused": refused, "right": right, "wrong": len(rows) - refused - right}
    return {key: 100 * count / len(rows) for key, count in counts.items()}


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=360, help="of each set of photographs")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    sets = {"developed on": photographs.DEVELOPED, "set aside": photographs.SET_ASIDE}
    results: list[dict[str, Any]] = []
    with _common.side_by_side(options.workers) as pool:
        for kind, names in sets.items():
            rows = pool.map(partial(case, names), range(options.cases), chunksize=8)
            results += [{"set": kind} | row for row in rows]
    _common.print_table(table(results))
    print({key: f"{value:.1f} %" for key, value in sharpened(results).items()})
    for kind in sets:
        print(f"grows with the light, {kind}: {signal_dependent(results, kind)}")
    path = _common.save("noise", results, within=WITHIN)
    print(f"\nwritten: {path.relative_to(_common.ROOT)}")


if __name__ == "__main__":
    main()

"""How many impulses `detect` misses and how many false alarms it raises; about two minutes.

Photographs, a page, text and an area of true black and white, blurred, made noisy, with 2 % salt and pepper and
without; as real numbers, clipped to [0, 1], and in 8 bits. Of the photographs in 8 bits it is also found how many must
be missed: black where the picture is black but for noise cannot be told from noise, and who knows the picture before
the noise, and the noise's strength, takes an impulse for one where chance would put its value seldom enough for one
false alarm in 10⁵ pixels. Writes ``results/impulses.json``.

    python benchmarks/bench_impulses.py
"""

from __future__ import annotations

from typing import Any

import _common
import numpy as np
from bench_lambda import photograph
from scipy.special import ndtr

import deblur
from deblur.denoise.impulses import detect

PHOTOGRAPHS = ("camera", "astronaut", "coffee", "cat", "coins", "rocket", "moon", "brick")
PSFS = {
    "gaussian 9, 1.5": deblur.psf.gaussian(9, 1.5),
    "disk 5": deblur.psf.disk(5),
    "motion 9, 30": deblur.psf.motion(9, 30.0),
    "camera shake 11": deblur.psf.camera_shake(11, 1),
    "hardly any: gaussian 3, 0.5": deblur.psf.gaussian(3, 0.5),
}
NOISES = (0.0, 0.01, 0.04)
DEPTHS = ("real numbers", "clipped", "8 bit")
SHARE, SIZE, VISIBLE, RARE = 0.02, 256, 3.0, 1e-5


def areas() -> np.ndarray:
    """Grey with black and white squares from 2 to 64 pixels."""
    picture = np.full((SIZE + 10, SIZE + 10), 0.5)
    at = 8
    for side in (2, 4, 8, 16, 32, 64):
        picture[at : at + side, 20 : 20 + side] = 0.0
        picture[at : at + side, 120 : 120 + side] = 1.0
        at += side + 10
    return picture


def scenes() -> dict[str, np.ndarray]:
    """What is looked at, by name."""
    import skimage.data
    from skimage.util import img_as_float

    found = {name: photograph(name) for name in PHOTOGRAPHS}
    found |= {name: img_as_float(getattr(skimage.data, name)()) for name in ("page", "text")}
    found["black and white areas"] = areas()
    return {name: picture[: SIZE + 10, : SIZE + 10] for name, picture in found.items()}


def stored(g: np.ndarray, depth: str) -> np.ndarray:
    """The image as it is kept."""
    if depth == "real numbers":
        return g
    g = np.clip(g, 0, 1)
    return g if depth == "clipped" else np.round(g * 255) / 255


def measure(g: np.ndarray, noise: float, depth: str, seed: int) -> dict[str, int]:
    """Counts for one blurred image."""
    draw = np.random.default_rng(seed).random(g.shape)
    hit = draw < SHARE
    clean, struck = stored(g, depth), stored(np.where(draw < SHARE / 2, 0.0, np.where(hit, 1.0, g)), depth)
    found = detect(struck)
    seen = hit & (abs(struck - clean) > max(VISIBLE * noise, 0.02))
    return {
        "impulses": int(hit.sum()),
        "missed": int((hit & ~found).sum()),
        "visible": int(seen.sum()),
        "visible missed": int((seen & ~found).sum()),
        "false": int((found & ~hit).sum()),
        "false without impulses": int(detect(clean).sum()),
        "pixels": int(g.size),
    }


def hidden(noise: float) -> float:
    """The share of impulses in 8 bits that even who knows the blurred photographs has to miss."""
    chances = []
    for psf in [h for name, h in PSFS.items() if not name.startswith("hardly")]:
        for name in PHOTOGRAPHS:
            clean = deblur.degrade(scenes()[name], psf, noise=0, boundary="unknown")
            ends = clean - 0.5 / 255, 1 - 0.5 / 255 - clean
            # That noise takes a pixel to black, or to white; both impulses are as frequent.
            chances += [
                ndtr(-far / noise).ravel() if noise else (far <= 0).astype(float).ravel() for far in ends
            ]
    each = np.sort(np.concatenate(chances))
    alarms = 2 * np.cumsum(each) / each.size  # of every pixel, for each of the two values
    return float((alarms > RARE).mean())


def main() -> None:
    """Measure, print and save."""
    results: list[dict[str, Any]] = []
    for depth in DEPTHS:
        for kernel, psf in PSFS.items():
            for noise in NOISES:
                for seed, (name, scene) in enumerate(scenes().items()):
                    g = deblur.degrade(scene, psf, noise=noise, boundary="unknown", seed=seed)
                    row = measure(g, noise, depth, 100 + seed)
                    results.append({"image": name, "psf": kernel, "noise": noise, "depth": depth} | row)
    _common.print_table(table(results))
    path = _common.save(
        "impulses",
        results,
        share=SHARE,
        visible_from=f"{VISIBLE:g} standard deviations, or 0.02",
        hidden={f"{noise:g}": hidden(noise) for noise in NOISES},
    )
    print(f"\nwritten: {path.relative_to(_common.ROOT)}")


def table(results: list[dict[str, Any]]) -> list[dict[str, object]]:
    """One line for each depth, noise and kind of picture; pictures that are hardly blurred by themselves."""
    lines: list[dict[str, object]] = []
    kinds = {"photographs": PHOTOGRAPHS} | {
        name: (name,) for name in ("page", "text", "black and white areas")
    }
    for hardly in (False, True):
        for kind, images in kinds.items():
            for depth in DEPTHS:
                for noise in NOISES:
                    rows = [
                        r
                        for r in results
                        if r["image"] in images
                        and (r["depth"], r["noise"]) == (depth, noise)
                        and r["psf"].startswith("hardly") == hardly
                    ]
                    total = {
                        key: sum(r[key] for r in rows) for key in rows[0] if isinstance(rows[0][key], int)
                    }
                    lines.append(
                        {
                            "picture": kind + (", hardly blurred" if hardly else ""),
                            "kept as": depth,
                            "noise": noise,
                            "missed %": 100 * total["missed"] / total["impulses"],
                            "visible missed %": 100 * total["visible missed"] / max(total["visible"], 1),
                            "false": total["false"],
                            "false without": total["false without impulses"],
                            "pixels": total["pixels"],
                        }
                    )
    return lines


if __name__ == "__main__":
    main()

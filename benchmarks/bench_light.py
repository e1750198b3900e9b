"""Night scenes with lamps, as a camera stores them: restored as numbers and as light, clipped pixels hidden or not.

Photographs made dark, with lamps in them, are blurred in light, clipped at white, and stored by the curve of sRGB in 8
bits, as PNG and as JPEG. The lamps are below white, or up to 20 times above it. Ways to restore are compared by the
PSNR of the stored numbers with those of the sharp scene, everywhere and near lamps (within the PSF's size, without the
lamps), where ringing is, and by how much of the lamps' brightness is left. The blots that ``mask="saturated"`` finds
are also tried without their rim, and grown by the PSF's size. Writes ``results/light.json`` and ``docs/light.png``;
about two minutes on 16 cores.

    python benchmarks/bench_light.py
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from _common import ROOT, each, save, table
from cases import photograph, stored
from scipy import ndimage

import deblur
from deblur import image, metrics
from deblur.masks import saturated

# "coffee", "cat" and "rocket" are those that the rule for clipped pixels was made with.
PHOTOGRAPHS = ("camera", "astronaut", "coins", "moon")
PSFS = {
    "disk 7": deblur.psf.disk(7),
    "motion 15, 30": deblur.psf.motion(15, 30.0),
    "camera shake 13": deblur.psf.camera_shake(13, 2),
}
LAMPS = {"below white": (0.5, 1.0), "above white": (2.0, 20.0)}
STORED = ("PNG", "JPEG 92")
SIZE, NUMBER, DARK, NOISE = 160, 8, 0.3, 0.002
SHOWN = ("camera", "disk 7", "PNG")  # what docs/light.png shows

LIGHT = {"method": "tv", "gamma": "srgb"}
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, numbers": {"gamma": "linear"},
    "auto, light": {"gamma": "srgb"},
    "tv": {"method": "tv"},
    "tv, numbers": {"method": "tv", "gamma": "linear"},
    "tv, light": LIGHT,
    "tv, light, hidden": LIGHT | {"mask": "saturated"},
    "tv, light, hidden, not negative": LIGHT | {"mask": "saturated", "bounds": "nonnegative"},
    "tv, light, hidden as far as the PSF": LIGHT | {"mask": "as far as the PSF"},
}


def scene(name: str, psf: np.ndarray, lamps: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(the light of frame and surroundings, where the lamps are)."""
    rng = np.random.default_rng(seed)
    rows, cols = (SIZE + n - 1 for n in psf.shape)
    light = DARK * image.linear_light(photograph(name)[:rows, :cols])
    y, x = np.mgrid[:rows, :cols]
    lit = np.zeros(light.shape, bool)
    for _ in range(NUMBER):
        row, col, radius = rng.uniform(0, rows), rng.uniform(0, cols), rng.uniform(1.5, 4)
        disk = (y - row) ** 2 + (x - col) ** 2 <= radius**2
        light[disk], lit = np.exp(rng.uniform(*np.log(LAMPS[lamps]))), lit | disk
    return light, lit


def camera(light: np.ndarray) -> np.ndarray:
    """The numbers that a camera makes of this light."""
    return image.srgb(np.clip(light, 0, 1))


def case(name: str, kernel: str, lamps: str, how: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(figures by way, pictures by way)."""
    psf = PSFS[kernel]
    seed = PHOTOGRAPHS.index(name)
    light, lit = scene(name, psf, lamps, seed)
    g = stored(camera(deblur.degrade(light, psf, boundary="unknown", noise=NOISE, seed=seed)), how)
    g = np.rint(255 * g).astype(np.uint8)
    crop = deblur.Blur(psf, g.shape, "unknown").crop
    sharp, lit = stored(camera(light[crop]), "8 bit"), lit[crop]
    near = ndimage.binary_dilation(lit, np.ones((3, 3)), iterations=max(psf.shape)) & ~lit
    found = saturated(image.linear_light(g))

    pictures, figures = {"sharp": sharp, "blurred": g / 255}, {}
    for way, options in WAYS.items():
        if "mask" in options and not found.any():
            continue  # nothing is clipped
        if options.get("mask") == "as far as the PSF":
            options = options | {"mask": ndimage.binary_dilation(found, np.ones(psf.shape))}
        pictures[way] = np.clip(deblur.solve(g, psf, boundary="unknown", check=False, **options).image, 0, 1)
    for way, picture in pictures.items():
        if way != "sharp":
            around, left = np.mean((picture - sharp)[near] ** 2), float(picture[lit].mean() / sharp[lit].mean())
            figures[way] = {"psnr": metrics.psnr(sharp, picture), "near": float(-10 * np.log10(around)), "left": left}
    row = {"image": name, "psf": kernel, "lamps": lamps, "stored": how, "clipped": float((g == 255).mean())}
    return row | {"ways": figures}, pictures


def picture(shown: dict[str, dict[str, np.ndarray]], rows: dict[str, dict[str, Any]]) -> np.ndarray:
    """Two rows of panels with their names and PSNR: lamps below white, and above it."""
    from PIL import Image, ImageDraw, ImageFont

    ways = ["sharp", "blurred", "tv, numbers", "tv, light", "tv, light, hidden, not negative"]
    zoom, gap, title = 2, 6, 34
    side = zoom * SIZE
    sheet = Image.new("L", (len(ways) * (side + gap) - gap, 2 * (side + title)), 255)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for i, (lamps, pictures) in enumerate(shown.items()):
        for way in [way for way in ways if way in pictures]:
            at = ways.index(way) * (side + gap), i * (side + title)
            panel = Image.fromarray(np.rint(255 * pictures[way]).astype(np.uint8))
            sheet.paste(panel.resize((side, side), Image.Resampling.NEAREST), (at[0], at[1] + title))
            known = rows[lamps]["ways"].get(way)
            words = f"{way}\n" + (f"{known['psnr']:.1f} dB" if known else f"lamps {lamps}")
            draw.multiline_text((at[0], at[1] + 1), words, fill=0, font=font, spacing=2)
    return np.asarray(sheet)


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    found = {(s["lamps"], s["stored"], s["way"]): s for s in r["summary"]}
    title = (
        "Night scenes with lamps, as a camera stores them: PSNR in dB, of the whole picture / of what is near lamps. "
        "*Numbers*: `--gamma linear`; *light*: `--gamma srgb`; *hidden*: `--mask saturated`; "
        "*not negative*: `--bounds nonnegative`."
    )
    kinds = list(dict.fromkeys(key[:2] for key in found))
    rows = []
    for way in dict.fromkeys(key[2] for key in found):
        of_kinds = [found.get((*kind, way)) for kind in kinds]
        cells = {f"cell {i}": s and f"{s['psnr']:.1f} / {s['near']:.1f}" for i, s in enumerate(of_kinds)}
        rows.append({"way": way} | cells)
    columns = {"": "{way}"} | {f"lamps {lamps}, {how}": f"{{cell {i}}}" for i, (lamps, how) in enumerate(kinds)}
    wide = [s for s in r["summary"] if s["way"] == "tv, light, hidden as far as the PSF"]
    narrow = [found[s["lamps"], s["stored"], "tv, light, hidden"] for s in wide]
    left = [100 * sum(s["left"] for s in some) / len(some) for some in (narrow, wide)]
    notes = (
        f"Of the brightness that clipped lamps have in the sharp picture, {left[0]:.0f} % is restored where the mask "
        f"is grown by one pixel, and {left[1]:.0f} % where it is grown by the PSF: there is less ringing then, but "
        "little is left of the lamps."
    )
    for method in ("auto", "tv"):
        psnr = [(case["ways"][method]["psnr"], case["ways"][f"{method}, numbers"]["psnr"]) for case in r["cases"]]
        gains = [found - numbers for found, numbers in psnr if found != numbers]
        change = f"{min(gains):+.1f} to {max(gains):+.1f} dB, {sum(gains) / len(gains):+.1f} dB in the mean"
        notes += f" Left to itself, `{method}` finds the curve in {len(gains)} of {len(psnr)} pictures: {change}."
    return [table(title, columns, rows, notes)]


def main() -> None:
    rows, shown, about = [], {}, {}
    for row, pictures in each(case, list(itertools.product(PHOTOGRAPHS, PSFS, LAMPS, STORED))):
        rows.append(row)
        if (row["image"], row["psf"], row["stored"]) == SHOWN:
            shown[row["lamps"]], about[row["lamps"]] = pictures, row
    summary = []
    for lamps, how, way in itertools.product(LAMPS, STORED, ["blurred", *WAYS]):
        same = [r["ways"] for r in rows if (r["lamps"], r["stored"]) == (lamps, how)]
        figures = [ways[way] for ways in same if way in ways]
        if len(figures) > len(same) / 2:
            means = {key: float(np.mean([f[key] for f in figures])) for key in ("psnr", "near", "left")}
            summary.append({"lamps": lamps, "stored": how, "way": way, "cases": len(figures), **means})
    found = {"summary": summary, "cases": rows}
    save("light", found, tables(found), size=SIZE, noise=NOISE)
    image.write(ROOT / "docs" / "light.png", picture(shown, about), overwrite=True)


if __name__ == "__main__":
    main()

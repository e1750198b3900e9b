"""The six standard deblurring experiments, and colours together against one by one; gains over the input in dB.

    python benchmarks/bench_experiments.py [--quick] [--workers N]

The experiments are those of the literature (Danielyan, Katkovnik, Egiazarian, IEEE Trans. Image Process. 21 (2012)):
periodic blur by 1/(1 + x² + y²) on [−7, 7]² (1, 2), 9 x 9 uniform (3), [1 4 6 4 1]ᵀ[1 4 6 4 1]/256 (4) and Gaussians of
1.6 and 0.4 pixels (5, 6); noise of √2, √8, 40 dB below the blurred picture, 7, 2 and 8 of 255. On eight photographs of
256² pixels: four on which the collaborative method was tuned, four that were set aside before.

Ours have no option but the PSF, the boundary and that pixels lie between 0 and 1; the bm3d package, where it is
installed, has the level of the noise. For colours, twelve photographs: collaborative for all channels together and for
each by itself. Writes benchmarks/results/experiments.json; about an hour on one core. --quick: one
experiment on two photographs, which writes nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from _common import asked, each, save, table
from cases import colour, crop, photograph

import deblur
from deblur import Blur
from deblur.denoise import denoisers

TUNED = ("camera", "coins", "cat", "moon")
SET_ASIDE = ("astronaut", "coffee", "rocket", "brick")
HALVED = ("camera", "astronaut")  # by means of 2 x 2 pixels
SIDE = 256
OURS = ("auto", "tv", "collaborative", "pnp")
NOISES = (2**0.5, 8**0.5, None, 7.0, 2.0, 8.0)  # of 255; None: 40 dB below the blurred picture
#: Twelve pieces of colour photographs: name, first row and column.
COLOURED = tuple((name, *at) for name in ("astronaut", "coffee", "rocket") for at in ((0, 0), (0, 220), (150, 100)))
COLOURED += (("cat", 0, 0), ("cat", 40, 190), ("immunohistochemistry", 100, 100))


def psfs() -> list[np.ndarray]:
    """The experiments' PSFs, of sum one."""
    i = np.arange(-7, 8)
    slow = 1 / (1 + i[:, None] ** 2 + i**2)
    binomial = np.array([1.0, 4, 6, 4, 1])
    gaussians = [np.exp(-(np.arange(-12, 13) ** 2) / (2 * s * s)) for s in (1.6, 0.4)]
    return [h / h.sum() for h in (slow, slow, *[np.outer(k, k) for k in (np.ones(9), binomial, *gaussians)])]


def picture(name: str) -> np.ndarray:
    """A photograph of 256 x 256 pixels."""
    photo = photograph(name)
    if name in HALVED:
        photo = photo.reshape(256, 2, 256, 2).mean(axis=(1, 3))
    return crop(photo, SIDE)


def gain(truth: np.ndarray, g: np.ndarray, image: np.ndarray) -> float:
    """ISNR: by how much the image is nearer to the truth than `g` is, in dB."""
    return float(10 * np.log10(((g - truth) ** 2).sum() / ((image - truth) ** 2).sum()))


def restored(method: str, g: np.ndarray, psf: np.ndarray) -> np.ndarray:
    """By one of our methods, with nothing but the PSF, the boundary and, but for "auto", the bounds."""
    options: dict[str, Any] = {} if method == "auto" else {"bounds": (0, 1)}
    if method == "pnp":
        options["denoiser"] = "collaborative"
    return deblur.solve(g, psf, method=method, boundary="periodic", check=False, **options).image


def bm3d_restored(g: np.ndarray, psf: np.ndarray, noise: float) -> np.ndarray:
    """The bm3d package's deblurring of a periodic picture whose noise's deviation is `noise`."""
    import bm3d

    if not hasattr(np, "trapz"):  # bm3d calls it; NumPy 2.4 has it under its new name alone
        setattr(np, "trapz", np.trapezoid)  # noqa: B010
    return bm3d.bm3d_deblurring(g[..., None], noise, psf).reshape(g.shape)  # of (M, N) it makes M channels


def experiment(name: str, number: int) -> dict[str, Any]:
    """The gain of every method on one picture and experiment."""
    truth, psf, level = picture(name), psfs()[number - 1], NOISES[number - 1]
    clean = Blur(psf, truth.shape, "periodic").forward(truth)
    noise = 0.01 * clean.std() if level is None else level / 255
    g = clean + noise * np.random.default_rng(100 * number).standard_normal(clean.shape)
    images = {method: restored(method, g, psf) for method in OURS}
    images["the denoiser alone, noise known"] = denoisers.collaborative(g, noise)
    if find_spec("bm3d"):
        images["bm3d, noise known"] = bm3d_restored(g, psf, noise)
    gains = {method: gain(truth, g, image) for method, image in images.items()}
    return {"picture": name, "experiment": number, "set aside": name in SET_ASIDE, "noise": noise, "gain": gains}


def colours(name: str, top: int, left: int) -> dict[str, Any]:
    """A colour photograph restored together, and channel by channel."""
    scene = colour(name)[top : top + 208, left : left + 208, :3]
    psf = deblur.psf.gaussian(9, 1.5)
    g = deblur.degrade(scene, psf, noise=0.02, boundary="unknown", seed=top + left)
    truth = scene[Blur(psf, g.shape[:2], "unknown").crop]
    options: dict[str, Any] = {"method": "collaborative", "boundary": "unknown", "check": False}
    together = deblur.solve(g, psf, channel_axis=-1, **options).image
    alone = np.stack([deblur.solve(g[..., c], psf, **options).image for c in range(3)], axis=-1)
    row = {"picture": f"{name} from {top}, {left}", "together": gain(truth, g, together)}
    return row | {"one by one": gain(truth, g, alone)}


def summed(rows: list[dict[str, Any]], coloured: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean gains: of each half by experiment, and for the colours."""
    out: dict[str, Any] = {}
    for half, aside in (("tuned on", False), ("set aside", True)):
        chosen = [row for row in rows if row["set aside"] == aside]
        out[half] = {}
        for method in rows[0]["gain"]:
            gains = np.array([row["gain"][method] for row in chosen])
            numbers = np.array([row["experiment"] for row in chosen])
            means = {str(n): float(gains[numbers == n].mean()) for n in dict.fromkeys(numbers.tolist())}
            out[half][method] = means | {"mean": float(gains.mean()), "least": float(gains.min())}
    differences = [row["together"] - row["one by one"] for row in coloured]
    found = {"mean_db": float(np.mean(differences)), "least_db": min(differences), "pictures": len(coloured)}
    return out | {"colours": found}


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    title = (
        "**The six standard experiments.** Gains over the input in dB, on four photographs that the collaborative "
        "method was tuned on and four that were set aside; our methods had no option but the PSF and the bounds 0 to 1."
    )
    rows = [
        {"half": half, "method": method} | gains
        for half in ("tuned on", "set aside")
        for method, gains in r["summary"][half].items()
    ]
    columns = {"photographs": "{half}", "method": "{method}"} | {str(n): f"{{{n}:.2f}}" for n in range(1, 7)}
    found = r["summary"]["colours"]
    notes = (
        f"Colours together gain {found['mean_db']:.2f} dB on colours one by one in the mean of {found['pictures']} "
        f"photographs, and {found['least_db']:.2f} at least."
    )
    return [table(title, columns | {"mean": "{mean:.2f}", "least": "{least:.2f}"}, rows, notes)]


def main() -> None:
    options = asked(__doc__, quick=False, workers=1)
    names = (TUNED[0], SET_ASIDE[0]) if options.quick else TUNED + SET_ASIDE
    numbers = (6,) if options.quick else range(1, 7)
    rows = each(experiment, [(name, number) for number in numbers for name in names], options.workers)
    coloured = each(colours, COLOURED[: 1 if options.quick else None], options.workers)
    found = {"summary": summed(rows, coloured), "experiments": rows, "colours": coloured}
    save("experiments", found, tables(found), write=not options.quick, size=SIDE)


if __name__ == "__main__":
    main()

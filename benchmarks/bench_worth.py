"""The error of a PSF and photon noise, read off blurred pictures, and likenesses of real exposures.

Tables are of photographs that had no part in tuning, and of those that methods were developed on where they say so.

python benchmarks/bench_worth.py
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from _common import asked, each, save, table
from bench_refine import drawn, points, turned
from cases import KINDS, SET_ASIDE, crop, photograph, window
from scipy.signal import fftconvolve

from deblur import degrade, metrics, psf, solve
from deblur.tuning import estimate_noise_model, psf_error

NAMES = tuple(name for name in SET_ASIDE if not name.startswith("motorcycle, right"))
RESTORED = {"linear": {"prior": "natural"}} | {x: {"method": x} for x in ("tv", "tv2", "pnp", "collaborative")}
SHAPES = {"disk": psf.disk(11), "motion": psf.motion(15, 30), "Gaussian": psf.gaussian(13, 2.0)}


def error_case(name: str, shape: str, size: float) -> dict[str, object]:
    """ε read off a picture blurred by a PSF that is wrong by white noise of norm `size`, and λ with it."""
    rng = np.random.default_rng(len(name) + len(shape))
    kernel = SHAPES[shape]
    true = kernel + size / math.sqrt(kernel.size) * rng.standard_normal(kernel.shape)
    g = degrade(crop(photograph(name), 256), true / true.sum(), noise=1e-3, boundary="unknown", seed=1)
    found, uncertainty = psf_error(g, kernel)
    true_size = float(np.linalg.norm(true / true.sum() - kernel))
    return {"size": size, "true": true_size, "found": found, "uncertainty": uncertainty}


def photon_case(name: str, peak: float) -> dict[str, object]:
    """Gain of total variation over the input, with the data term left alone and by counts; the gain of the sensor."""
    kernel, sharp = psf.disk(13), crop(photograph(name), 200)
    g = np.random.default_rng(1).poisson(peak * degrade(sharp, kernel, boundary="unknown").clip(0, None)) / peak
    truth = crop(sharp, g.shape[0])
    rows = {"input": g}
    for key, options in (("default", {}), ("poisson", {"data": "poisson"})):
        rows[key] = solve(g, kernel, method="tv", check=False, **options).image
    found = {key: metrics.psnr(truth, image) for key, image in rows.items()}
    return {"peak": peak, "gain": estimate_noise_model(g).gain * peak, **found}


def exposure_case(name: str, seed: int) -> dict[str, float]:
    """A likeness of a real exposure: camera shake that turns by up to 2° over the frame, and a measured kernel with
    white errors of norm 0.04 to 0.08. Each method with nothing given, and with the best of seven values of λ."""
    rng = np.random.default_rng([27, seed])
    light = points("shake", rng)
    size = int(2.16 * abs(light).max()) + 6 | 1
    scene, kernel = window(photograph(name), 254 + size, rng), drawn(light, size, True)
    kernel = kernel + rng.uniform(0.04, 0.08) / size * rng.standard_normal(kernel.shape)
    sides = (drawn(turned(t) @ light, size, True) for t in np.radians(rng.uniform(-1, 1, 2)))
    left, right = (fftconvolve(scene, h, "valid") for h in sides)
    g = left + (right - left) * np.linspace(0, 1, 255) + 1e-3 * rng.standard_normal(left.shape)
    g, truth = np.rint(255 * g.clip(0, 1)) / 255, crop(scene, 225)
    found = {"input": metrics.psnr(truth, crop(g, 225))}
    for method, options in RESTORED.items():
        restored = partial(solve, g, kernel / kernel.sum(), check=False, **options)
        chosen = restored()
        tried = chosen, *(restored(chosen.lam * 2.0**n) for n in (-3, -2, -1, 1, 2, 3))
        psnrs = [metrics.psnr(truth, crop(x.image, 225)) for x in tried]
        found |= {method: psnrs[0], f"{method}, best": max(psnrs)}
    return found


def main() -> None:
    workers = asked(__doc__, workers=None).workers
    sizes, peaks = (0.0, 0.03, 0.06), (50, 500, 5000)
    errors = each(error_case, [(n, s, e) for e in sizes for n in NAMES for s in SHAPES], workers)
    photons = each(photon_case, [(n, p) for p in peaks for n in NAMES[:4]], workers)
    work = [(kind, name, i) for kind, names in KINDS.items() for i, name in enumerate(names)]
    exposures = each(exposure_case, [row[1:] for row in work], workers)
    lines, likenesses = [], []
    for kind, names in KINDS.items():
        rows = [r for r, (k, *_) in zip(exposures, work) if k == kind]
        likenesses.append({"kind": kind, "n": len(names)} | {k: float(np.mean([r[k] for r in rows])) for k in rows[0]})
    for size in sizes:
        rows = [r for r in errors if r["size"] == size]
        near = [size > 0 and r["found"] > 0 and abs(math.log(r["found"] / r["true"])) <= math.log(1.5) for r in rows]
        middle, share = float(np.median([r["found"] for r in rows])), float(np.mean(near)) if size else math.nan
        lines.append({"size": size, "n": len(rows), "median": middle, "near": share})
    light = []
    for peak in peaks:
        rows = [r for r in photons if r["peak"] == peak]
        means = {k: float(np.mean([r[k] for r in rows])) for k in ("input", "default", "poisson")}
        light.append({"peak": peak, "gain": float(np.median([r["gain"] for r in rows])), **means})
    tables = [
        table(
            "**The error of a PSF, read off the picture.** White errors of norm ε in three PSFs, noise 0.001.",
            {"ε": "{size}", "cases": "{n}", "read, median": "{median:.3f}", "within a factor of 1.5": "{near:.0p}"},
            lines,
        ),
        table(
            "**Photon noise, without options.** PSNR of `tv` in dB; *gain* is the gain read off over the true one.",
            {
                "photons at white": "{peak}", "gain": "{gain:.2f}", "blurred": "{input:.2f}",
                "default": "{default:.2f}", "data='poisson'": "{poisson:.2f}",
            },
            light,
        ),
        table(
            "**Simulated real exposures, without options.** White errors of norm 0.04 to 0.08 in camera shake that "
            "rotates over the frame; noise 0.001, 8 bit. PSNR in dB, in brackets with the best λ of seven.",
            {"photographs": "{kind}", "n": "{n}", "blurred": "{input:.2f}"}
            | {x: f"{{{x}:.2f}} ({{{x}, best:.2f}})" for x in RESTORED},
            likenesses,
        ),
    ]  # fmt: skip
    save("worth", {"errors": errors, "photons": photons, "exposures": exposures}, tables, sizes=sizes, peaks=peaks)


if __name__ == "__main__":
    main()

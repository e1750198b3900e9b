"""The error of a PSF and photon noise, read off blurred pictures; photographs that had no part in tuning.

python benchmarks/bench_worth.py
"""

from __future__ import annotations

import math

import numpy as np
from _common import each, parser, save, table
from cases import SET_ASIDE, crop, photograph

from deblur import degrade, metrics, psf, solve
from deblur.tuning import estimate_noise_model, psf_error

NAMES = tuple(name for name in SET_ASIDE if not name.startswith("motorcycle, right"))
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
    clean = degrade(sharp, kernel, boundary="unknown").clip(0, None)
    g = np.random.default_rng(1).poisson(peak * clean) / peak
    truth = crop(sharp, g.shape[0])
    rows = {"input": g}
    for key, options in (("default", {}), ("poisson", {"data": "poisson"})):
        rows[key] = solve(g, kernel, method="tv", check=False, **options).image
    found = {key: metrics.psnr(truth, image) for key, image in rows.items()}
    return {"peak": peak, "gain": estimate_noise_model(g, kernel).gain * peak, **found}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--workers", type=int)
    workers = arguments.parse_args().workers
    sizes, peaks = (0.0, 0.03, 0.06), (50, 500, 5000)
    errors = each(error_case, [(n, s, e) for e in sizes for n in NAMES for s in SHAPES], workers)
    photons = each(photon_case, [(n, p) for p in peaks for n in NAMES[:4]], workers)
    lines = []
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
            "**Photon noise, nothing given.** `tv`, PSNR in dB; the gain read off, over the true one.",
            {
                "photons at white": "{peak}", "gain": "{gain:.2f}", "blurred": "{input:.2f}",
                "default": "{default:.2f}", "data='poisson'": "{poisson:.2f}",
            },
            light,
        ),
    ]  # fmt: skip
    save("worth", {"errors": errors, "photons": photons}, tables, sizes=sizes, peaks=peaks)


if __name__ == "__main__":
    main()

"""How well a picture is restored whose PSF is not known; about twenty minutes of one core.

Forty pictures of 256 x 256, shaken along paths that were not used for tuning, the scene going on beyond the frame,
with noise. Each is restored with the estimated PSF and with the true one, both with everything else chosen by itself;
the squared errors of both, after registration to the truth, are compared (the error ratio of A. Levin, Y. Weiss,
F. Durand, W. T. Freeman, "Understanding and evaluating blind deconvolution algorithms", CVPR 2009). Writes
``results/blind.json``.

    python benchmarks/bench_blind.py [--workers N]
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from _common import asked, each, save, table
from cases import photograph, window
from scipy.ndimage import shift
from skimage.registration import phase_cross_correlation

import deblur

PHOTOGRAPHS = ("camera", "astronaut", "coffee", "cat", "coins")
SIZES, NOISES, SIDE, CASES, BORDER = (9, 13, 17, 21), (0.005, 0.01, 0.02), 256, 40, 24
SEED = 90_000  # tuning used others


def squared_error(truth: np.ndarray, image: np.ndarray) -> float:
    """Of an image registered to the truth, without its border: the displacement is not determined by the data."""
    by = phase_cross_correlation(truth, image, upsample_factor=20)[0]
    if abs(by).max() > BORDER // 2:
        by = np.zeros(2)
    moved = shift(image, by, order=3, mode="nearest")
    return float(((moved - truth)[BORDER:-BORDER, BORDER:-BORDER] ** 2).mean())


def case(i: int) -> dict[str, Any]:
    """One picture."""
    rng = np.random.default_rng(SEED + i)
    name, size, noise = PHOTOGRAPHS[i % len(PHOTOGRAPHS)], int(rng.choice(SIZES)), float(rng.choice(NOISES))
    scene = window(photograph(name), SIDE + size - 1, rng)
    psf = deblur.psf.camera_shake(size, rng)
    blur = deblur.Blur(psf, (SIDE, SIDE), "unknown")
    truth = scene[blur.crop]
    g = blur.forward(scene) + noise * rng.standard_normal((SIDE, SIDE))
    start = time.process_time()  # of all threads: what one quiet core would take
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the status is recorded
        found = deblur.blind(g, size + size // 3)
    seconds = time.process_time() - start
    errors = [
        squared_error(truth, image)
        for image in (g, found.image, deblur.reconstruct(g, psf, method="tv", boundary="unknown"))
    ]
    return {
        "picture": name,
        "size": size,
        "noise": noise,
        "seconds": seconds,
        "psnr": dict(zip(("blurred", "blind", "known PSF"), (-10 * np.log10(errors)).tolist(), strict=True)),
        "error ratio": errors[1] / errors[2],
        "similarity": found.psf.details["similarity"],
        "trusted": found.psf.status.ok,
    }


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ratio, trusted = (np.array([row[name] for row in rows]) for name in ("error ratio", "trusted"))
    return {
        "cases": len(rows),
        "ratio at most 2": float((ratio <= 2).mean()),
        "ratio at most 3": float((ratio <= 3).mean()),
        "trusted": float(trusted.mean()),
        "ratio at most 3 where trusted": float((ratio[trusted] <= 3).mean()),
        "better than the blurred picture": float(
            np.mean([r["psnr"]["blind"] > r["psnr"]["blurred"] for r in rows])
        ),
        "median seconds": float(np.median([row["seconds"] for row in rows])),
        "most seconds": max(row["seconds"] for row in rows),
    }


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    cases, s, lines = r["cases"], r["summary"], []
    for noise in sorted({c["noise"] for c in cases}):
        some = [c for c in cases if c["noise"] == noise]
        ratios = np.array([c["error ratio"] for c in some])
        line = {"noise": noise, "cases": len(some), "median": sorted(ratios)[len(ratios) // 2]}
        line |= {"two": 100 * (ratios <= 2).mean(), "three": 100 * (ratios <= 3).mean()}
        lines.append(line | {"psnr": {k: np.mean([c["psnr"][k] for c in some]) for k in some[0]["psnr"]}})
    title = (
        f"**Without a PSF.** `deblur.blind` on {s['cases']} pictures of 256 × 256, shaken along paths of 9 to 21 "
        "pixels that were not used for tuning. The *error ratio* is that of the squared errors with the estimated PSF "
        "and with the true one, both restored by `tv` with automatic λ; the other columns are PSNR in dB."
    )
    columns = {"noise": "{noise:g}", "cases": "{cases}", "error ratio, median": "{median:.1f}"}
    columns |= {"at most 2, %": "{two:.0f}", "at most 3, %": "{three:.0f}", "blurred": "{psnr[blurred]:.1f}"}
    columns |= {"restored": "{psnr[blind]:.1f}", "with the true PSF": "{psnr[known PSF]:.1f}"}
    notes = (
        f"Of all, {100 * s['ratio at most 2']:.0f} % are within 2 and {100 * s['ratio at most 3']:.0f} % within 3. "
        f"{100 * s['trusted']:.0f} % of the PSFs are called trustworthy, and "
        f"{100 * s['ratio at most 3 where trusted']:.0f} % of these are within 3. With little noise the true PSF "
        "restores so well that the error of the estimate counts for more. "
        f"{100 * s['better than the blurred picture']:.0f} % are better than the blurred picture; one takes "
        f"{s['median seconds']:.0f} s on one core, {s['most seconds']:.0f} s at most."
    )
    return [table(title, columns, lines, notes)]


def main() -> None:
    options = asked(__doc__, workers=1)
    rows = each(case, [(i,) for i in range(CASES)], options.workers)
    found = {"summary": summed(rows), "cases": rows}
    save("blind", found, tables(found), workers=options.workers)


if __name__ == "__main__":
    main()

"""How well a picture is restored whose PSF is not known; about seven minutes of one core.

Forty pictures of 255 x 255 like real exposures: shaken along paths and photographs that were not used for tuning, the
PSF turning a little across the frame, the scene going on beyond it, lights beyond white in some, noise, and 8 bits.
Each is restored with the estimated PSF and with the true one, by the same method with everything else chosen by itself;
the least squared errors of both over displacements are compared (the error ratio of A. Levin, Y. Weiss, F. Durand,
W. T. Freeman, "Understanding and evaluating blind deconvolution algorithms", CVPR 2009). Some are also restored with
less of the estimate's stages. Writes ``results/blind.json``.

    python benchmarks/bench_blind.py [--workers N]
"""

from __future__ import annotations

import time
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
from _common import asked, each, save, table
from cases import photograph, stored, window
from scipy.ndimage import rotate, shift
from scipy.optimize import brute

import deblur
from deblur.psf import blurred

PHOTOGRAPHS = ("coins", "motorcycle, right", "immunohistochemistry", "rocket", "page", "retina", "hubble_deep_field")
SIZES, NOISES, SIDE, CASES, BORDER = (13, 17, 21, 27, 35), (0.001, 0.004, 0.01, 0.02), 255, 40, 24
SEED = 170_000  # tuning used others
STAGED = 12  # cases that are also restored with less
#: What each stage of the estimate gains: settings of `deblur.psf.blurred` without it.
STAGES: dict[str, dict[str, Any]] = {
    "all": {"_STEPS": blurred._STEPS},
    "a third of the iterations": {"_STEPS": 5, "_LAST_STEPS": 4},
    "faint pixels and small parts kept": {"_cleaned": lambda h, faint: blurred.unit_sum(h)},
}


def squared_error(truth: np.ndarray, image: np.ndarray) -> float:
    """The least over displacements, which the data do not determine, of an image without its border."""

    def at(by: np.ndarray) -> float:
        moved = shift(image, by, order=3, mode="nearest")
        return float(((moved - truth)[BORDER:-BORDER, BORDER:-BORDER] ** 2).mean())

    reach = slice(-BORDER // 2, BORDER // 2 + 1, 2)
    return float(brute(at, (reach, reach), full_output=True)[1])


def exposure(i: int) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    """The settings, the picture, the truth and the mean PSF of a case."""
    rng = np.random.default_rng(SEED + i)
    name, size, noise = PHOTOGRAPHS[i % len(PHOTOGRAPHS)], int(rng.choice(SIZES)), float(rng.choice(NOISES))
    scene = window(photograph(name), SIDE + size - 1, rng)
    if i % 4 == 0:
        scene = np.where(scene >= np.quantile(scene, 0.9995), 4.0, scene)
    psf = deblur.psf.camera_shake(size, rng)
    turn = rng.uniform(-2, 2)  # degrees from end to end
    psfs = np.array([[rotate(psf, turn * a, reshape=False, order=1)] for a in (-0.5, 0.5)])
    blur = deblur.VaryingBlur(psfs / psfs.sum(axis=(2, 3), keepdims=True), (SIDE, SIDE), "unknown")
    g = stored(blur.forward(scene) + noise * rng.standard_normal((SIDE, SIDE)), "8 bit")
    return {"picture": name, "size": size, "noise": noise}, g, np.clip(scene[blur.crop], 0, 1), psf


def case(i: int, stage: str, factor: float) -> dict[str, Any]:
    """One picture, with some stages of the estimate, for a size so many times the true one (0: none given)."""
    (settings, g, truth, psf), start = exposure(i), time.process_time()  # of all threads
    with warnings.catch_warnings(), patch.multiple(blurred, **STAGES[stage]):
        warnings.simplefilter("ignore")  # the status is recorded
        found = deblur.blind(g, round(factor * len(psf)) or None)
    seconds = time.process_time() - start
    known = deblur.reconstruct(g, psf, method="tv", boundary="unknown")
    errors = [squared_error(truth, np.clip(image, 0, 1)) for image in (g, found.image, known)]
    return settings | {
        **{"stage": stage, "factor": factor, "seconds": seconds, "trusted": found.psf.status.ok},
        "psnr": dict(zip(("blurred", "blind", "known PSF"), (-10 * np.log10(errors)).tolist(), strict=True)),
        "error ratio": errors[1] / errors[2],
        "details": dict(found.psf.details),
    }


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of some cases, and their mean PSNR."""
    ratio, trusted = (np.array([row[name] for row in rows]) for name in ("error ratio", "trusted"))
    return {
        "cases": len(rows),
        "median": float(np.median(ratio)),
        **{f"within {limit}": float((ratio <= limit).mean()) for limit in (1.5, 2, 3)},
        "trusted": float(trusted.mean()),
        "within 3 where trusted": float((ratio[trusted] <= 3).mean()) if trusted.any() else None,
        "psnr": {k: float(np.mean([r["psnr"][k] for r in rows])) for k in rows[0]["psnr"]},
        "seconds": float(np.median([row["seconds"] for row in rows])),
    }


def tables(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    title = (
        f"**Without a PSF.** `deblur.blind` on {lines[0]['cases']} exposures, {SIDE} × {SIDE}, not used for tuning, "
        f"paths of {SIZES[0]} to {SIZES[-1]} pixels. *Error ratio*: squared error over that with the true PSF."
    )
    columns = {"estimate": "{what}", "cases": "{cases}", "error ratio, median": "{median:.1f}"}
    columns |= {f"at most {limit:g}": f"{{within {limit:g}:.0p}}" for limit in (1.5, 2, 3)}
    columns |= {"trusted": "{trusted:.0p}", "at most 3 where trusted": "{within 3 where trusted:.0p}"}
    columns |= {"dB": "{psnr[blurred]:.1f}, {psnr[blind]:.1f}, {psnr[known PSF]:.1f}"}
    notes = f"One takes {lines[0]['seconds']:.1f} s of one core. The lines after the first are of {STAGED} pictures."
    return [table(title, columns, lines, notes)]


def main() -> None:
    options = asked(__doc__, workers=1)
    kinds = {stage: (stage, 1.0) for stage in STAGES} | {
        "size twice the true one": ("all", 2.0),
        "size left out": ("all", 0.0),
    }
    work = [(i, *kind) for kind in kinds.values() for i in range(CASES if kind == kinds["all"] else STAGED)]
    rows, lines = each(case, work, options.workers), []
    for what, kind in kinds.items():
        some = [row for row in rows if (row["stage"], row["factor"]) == kind]
        lines += [{"what": what, **summed(some)}]
        lines += [{"what": "all, the first pictures", **summed(some[:STAGED])}] if len(lines) == 1 else []
    save("blind", {"lines": lines, "cases": rows}, tables(lines), workers=options.workers)


if __name__ == "__main__":
    main()

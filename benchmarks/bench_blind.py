"""How well a picture is restored whose PSF nobody knows; about twenty minutes of one core.

Forty pictures of 256 x 256, shaken along paths that were not used for tuning, the scene going on beyond the frame,
with noise. Each is restored with the estimated PSF and with the true one, both with everything else chosen by itself;
the squared errors of both, after registration to the truth, are compared (the error ratio of A. Levin, Y. Weiss,
F. Durand, W. T. Freeman, "Understanding and evaluating blind deconvolution algorithms", CVPR 2009). Writes
``results/blind.json``.

    python benchmarks/bench_blind.py [--workers N]
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")

import _common
import numpy as np
from bench_lambda import photograph
from scipy.ndimage import shift
from skimage.registration import phase_cross_correlation

import deblur

PHOTOGRAPHS = ("camera", "astronaut", "coffee", "cat", "coins")
SIZES, NOISES, SIDE, CASES, RIM = (9, 13, 17, 21), (0.005, 0.01, 0.02), 256, 40, 24
SEED = 90_000  # tuning used others


def squared_error(truth: np.ndarray, image: np.ndarray) -> float:
    """Of an image registered to the truth, without its rim: where it was before it was shaken, nobody knows."""
    by = phase_cross_correlation(truth, image, upsample_factor=20)[0]
    if abs(by).max() > RIM // 2:
        by = np.zeros(2)
    moved = shift(image, by, order=3, mode="nearest")
    return float(((moved - truth)[RIM:-RIM, RIM:-RIM] ** 2).mean())


def case(i: int) -> dict[str, Any]:
    """One picture."""
    rng = np.random.default_rng(SEED + i)
    name, size, noise = PHOTOGRAPHS[i % len(PHOTOGRAPHS)], int(rng.choice(SIZES)), float(rng.choice(NOISES))
    picture = photograph(name)
    room = SIDE + size - 1
    top, left = (int(rng.integers(0, n - room + 1)) for n in picture.shape)
    scene = picture[top : top + room, left : left + room]
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1, help="processes")
    workers = parser.parse_args().workers
    if workers == 1:
        rows = [case(i) for i in range(CASES)]
    else:
        with _common.side_by_side(workers) as pool:
            rows = list(pool.map(case, range(CASES)))
    ratio, trusted = (np.array([row[name] for row in rows]) for name in ("error ratio", "trusted"))
    summary = {
        "cases": len(rows),
        "ratio at most 2": float((ratio <= 2).mean()),
        "ratio at most 3": float((ratio <= 3).mean()),
        "median ratio": float(np.median(ratio)),
        "trusted": float(trusted.mean()),
        "ratio at most 3 where trusted": float((ratio[trusted] <= 3).mean()),
        "better than the blurred picture": float(
            np.mean([r["psnr"]["blind"] > r["psnr"]["blurred"] for r in rows])
        ),
        "mean psnr": {name: float(np.mean([r["psnr"][name] for r in rows])) for name in rows[0]["psnr"]},
        "median seconds": float(np.median([row["seconds"] for row in rows])),
        "most seconds": max(row["seconds"] for row in rows),
    }
    for row in rows:
        print(row)
    print(summary)
    _common.save("blind", {"summary": summary, "cases": rows}, workers=workers)


if __name__ == "__main__":
    main()

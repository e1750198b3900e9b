"""Times of the structured methods beside scikit-image's `wiener`, and the memory of a large image.

    python benchmarks/bench_structured.py [--quick]

Writes benchmarks/results/structured.json. --quick takes 256 x 256 images, fewer rounds, no large image, and writes
nothing; --large prints the large image's row alone.

Each case is timed in turns with `skimage.restoration.wiener` on the same image and PSF. "cold" is everything
from the PSF on, "kept" a solve with the set-up done.
"""

from __future__ import annotations

import json
import resource
import time
import warnings
from typing import Any

import numpy as np
from _common import answer_of, asked, save, table, time_together
from cases import mirrored

import deblur
from deblur import Blur
from deblur.methods import METHODS
from deblur.problem import Problem

PSFS = {
    "gaussian 9x9": deblur.psf.gaussian(9, 1.5),
    "disk 7x7": deblur.psf.disk(7),
    "camera shake 17x17": deblur.psf.camera_shake(17, 0),
    "gaussian 3x3": deblur.psf.gaussian(3, 0.5),
}
CASES = [("pcg", name, "zero", lam) for name in list(PSFS)[:3] for lam in (1e-2, 1e-3)]
CASES += [
    ("pcg", "camera shake 17x17", "unknown", 1e-3),
    ("kronecker", "gaussian 9x9", "zero", 1e-3),
    ("kronecker", "gaussian 9x9", "unknown", 1e-3),
    ("dst", "gaussian 3x3", "zero", 1e-3),
    ("dst", "gaussian 9x9", "antireflect", 1e-3),
    ("dct", "gaussian 9x9", "reflect", 1e-3),
    ("fft", "camera shake 17x17", "periodic", 1e-3),
]
LARGE = 4096


def blurred(blur: Blur, dtype: type = np.float64) -> np.ndarray:
    """One noisy image as frames (1, 1, M, N)."""
    noise = 0.01 * np.random.default_rng(0).standard_normal(blur.image_shape)
    return (blur.forward(mirrored(deblur.data.load("camera"), *blur.scene_shape)) + noise)[None, None].astype(dtype)


def timed(size: int, rounds: int, name: str, psf_name: str, boundary: str, lam: float) -> dict[str, Any]:
    """One row."""
    from skimage.restoration import wiener

    psf, method = PSFS[psf_name], METHODS[name]
    blur = Blur(psf, (size, size), boundary)
    g, factor = blurred(blur), method.prepare(Problem(blur, lam))
    calls = {
        "wiener": lambda: wiener(g[0, 0], psf, lam, clip=False),
        "cold": lambda: method.prepare(Problem(Blur(psf, (size, size), boundary), lam)).solve(g),
        "kept": lambda: factor.solve(g),
    }
    seconds, found = time_together(calls, repeats=rounds), factor.solve(g)
    row: dict[str, Any] = {"method": name, "psf": psf_name, "boundary": boundary, "lambda": lam}
    for call in ("cold", "kept"):  # ratios by round: a disturbance of a round affects all three
        row[f"{call}_ratio"] = float(np.median(np.divide(seconds[call]["all_s"], seconds["wiener"]["all_s"])))
    row |= {"iterations": found.iterations, "converged": found.converged, "spread": seconds}
    return row


def large() -> dict[str, Any]:
    """One float32 image with a 31 x 31 PSF; run in a process of its own, for its peak memory."""
    blur = Blur(deblur.psf.camera_shake(31, 0), (LARGE, LARGE))
    g = blurred(blur, np.float32)
    start = time.perf_counter()
    found = METHODS["pcg"].prepare(Problem(blur, 1e-3, dtype=np.dtype(np.float32))).solve(g)
    row = {"size": LARGE, "psf": "camera shake 31x31", "seconds": time.perf_counter() - start}
    row |= {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    row |= {"iterations": found.iterations, "converged": found.converged}
    return row


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [row | {"steps": row["iterations"] or "direct"} for row in r["times"]]
    columns = {"method": "{method}", "PSF": "{psf}", "boundary": "{boundary}", "λ": "{lambda:g}"}
    columns |= {"first frame": "{cold_ratio:.1f}", "kept": "{kept_ratio:.1f}", "iterations": "{steps}"}
    title = (
        "**Large images.** Time for 1024 × 1024 pixels in float64, to a relative residual of 1e-8, over that of one "
        "call of scikit-image's `wiener` in the same run; *kept* is the second frame of a `Deblurrer`."
    )
    if "large" not in r:
        return [table(title, columns, rows)]
    big = r["large"]
    notes = (
        f"{big['size']} × {big['size']} pixels in float32 with a {big['psf']} PSF: {big['seconds']:.0f} s and "
        f"{big['peak_bytes'] / 2**30:.1f} GiB at the peak, {big['iterations']} iterations."
    )
    return [table(title, columns, rows, notes)]


def summary(r: dict[str, Any]) -> str:
    pcg = [row["cold_ratio"] for row in r["times"] if row["method"] == "pcg"]
    return (
        f"An exact solve of 1024 × 1024 pixels for any PSF takes {min(pcg):.0f} to {max(pcg):.0f} times one call of "
        "scikit-image's `wiener`, which assumes a periodic scene."
    )


def main() -> None:
    options = asked(__doc__, quick=False, large=False)
    warnings.simplefilter("ignore")
    if options.large:
        print(json.dumps(large()))
        return
    size, rounds = (256, 3) if options.quick else (1024, 7)
    found: dict[str, Any] = {"times": [timed(size, rounds, *case) for case in CASES]}
    if not options.quick:
        found["large"] = answer_of(__file__, "--large")
    write = not options.quick
    save("structured", found, tables(found), summary(found), write=write, size=size, rounds=rounds)


if __name__ == "__main__":
    main()

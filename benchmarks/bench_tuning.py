"""What λ by windows and loose solutions costs and loses for tv and its kin; three minutes on 16 cores.

Photographs that it was developed on and photographs set aside, blurred by PSFs drawn at random with the scene going on
beyond the frame, white noise from 0.002 to 0.04. Each is solved with λ given, with λ chosen as it is, and with λ chosen
as it was: from the whole picture by solutions to a tight tolerance. One core each. Writes ``results/tuning.json``.

    python benchmarks/bench_tuning.py [--cases N] [--workers N]
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import Any

import _common
import numpy as np
import photographs

import deblur
from deblur import psf
from deblur.metrics import psnr
from deblur.solvers import windows
from deblur.tuning import sampled

PSFS = {
    "gaussian 9, 1.5": psf.gaussian(9, 1.5),
    "disk 7": psf.disk(7),
    "disk 11": psf.disk(11),
    "motion 15, 30": psf.motion(15, 30.0),
    "camera shake 15": psf.camera_shake(15, 3),
}
LEVELS = (0.002, 0.005, 0.01, 0.02, 0.04)
#: Pixels a side, method, colours, share of pixels hidden; how many cases of each a set of photographs has.
PROBLEMS = (
    (128, "tv", 1, 0.0, 8),
    (256, "tv", 1, 0.0, 16),
    (512, "tv", 1, 0.0, 8),
    (1024, "tv", 1, 0.0, 8),
    (256, "tv2", 1, 0.0, 8),
    (256, "tv", 3, 0.0, 8),
    (256, "tv", 1, 0.05, 8),
)
KINDS = {"developed on": photographs.DEVELOPED, "set aside": photographs.SET_ASIDE}
AS_IT_WAS = {
    (sampled, "_KAPPA"): 0.5,
    (sampled, "_RTOL"): 1e-2,
    (sampled, "_RTOL_LEAST"): 5e-4,
    (sampled, "_RTOL_OF_NOISE"): 0.2,
    (windows, "_SIDE"): math.inf,
}


def scene(names: tuple[str, ...], at: int, size: int, colours: int, rng: np.random.Generator) -> np.ndarray:
    """A window of one photograph; large ones are four, side by side."""

    def part(name: str, side: int) -> np.ndarray:
        image = photographs.colour(name) if colours > 1 else photographs.grey(name)
        image = np.stack([image] * 3, axis=-1) if colours > 1 and image.ndim == 2 else image
        return photographs.window(image, side, rng)

    if size <= 512:
        return part(names[at % len(names)], size)
    parts = [part(names[(at + 3 * i) % len(names)], -(-size // 2)) for i in range(4)]
    rows = [np.concatenate(parts[i : i + 2], axis=1) for i in (0, 2)]
    return np.concatenate(rows)[:size, :size]


def measure(case: tuple[str, int, int]) -> dict[str, Any]:
    """One picture, solved three times."""
    which, problem, at = case
    size, method, colours, share, _ = PROBLEMS[problem]
    rng = np.random.default_rng([31, problem, at])
    kernel, level = str(rng.choice(list(PSFS))), float(rng.choice(LEVELS))
    h = PSFS[kernel] / PSFS[kernel].sum()
    truth = scene(KINDS[which], at, size + 14, colours, rng)
    channels = [truth[..., i] for i in range(3)] if truth.ndim == 3 else [truth]
    g = np.stack(
        [
            deblur.degrade(c, h, noise=level, boundary="unknown", seed=100 * at + i)
            for i, c in enumerate(channels)
        ]
    ).astype(np.float32)
    crop = deblur.Blur(h, g.shape[1:], "unknown").crop
    truth = np.stack([c[crop] for c in channels])
    options: dict[str, Any] = {"method": method, "boundary": "unknown", "check": False}
    if share:
        options["mask"] = rng.random(g.shape[1:]) < share

    def solved(lam: float | str) -> tuple[float, Any]:
        begin = time.perf_counter()
        result = deblur.solve(g, h, lam, channel_axis=0, **options)
        return time.perf_counter() - begin, result

    seconds, now = solved("auto")
    given, _ = solved(now.lam)
    kept = {(module, name): getattr(module, name) for module, name in AS_IT_WAS}
    for (module, name), value in AS_IT_WAS.items():
        setattr(module, name, value)
    try:
        before_seconds, before = solved("auto")
    finally:
        for (module, name), value in kept.items():
            setattr(module, name, value)
    _, alike = solved(before.lam)  # both from nothing
    _, mine = solved(now.lam)
    return {
        "set": which,
        "size": size,
        "method": method,
        "colours": colours,
        "hidden": share,
        "psf": kernel,
        "level": level,
        "seconds": seconds,
        "seconds, λ given": given,
        "seconds, as it was": before_seconds,
        "lam": now.lam,
        "lam as it was": before.lam,
        "psnr": psnr(truth, mine.image.clip(0, 1)),
        "psnr as it was": psnr(truth, alike.image.clip(0, 1)),
    }


def table(results: list[dict[str, Any]]) -> list[dict[str, object]]:
    """One line for each kind of problem and set of photographs."""
    lines: list[dict[str, object]] = []
    for size, method, colours, share, _ in PROBLEMS:
        for which in KINDS:
            kind = {"set": which, "size": size, "method": method, "colours": colours, "hidden": share}
            rows = [r for r in results if all(r[key] == value for key, value in kind.items())]
            if not rows:
                continue
            lost = np.array([r["psnr as it was"] - r["psnr"] for r in rows])
            words = f"{size}²" + (", colour" if colours > 1 else "") + (", mask" if share else "")
            lines.append(
                {
                    "picture": words,
                    "method": method,
                    "photographs": which,
                    "cases": len(rows),
                    "solves it takes": _median(rows, "seconds"),
                    "as it was": _median(rows, "seconds, as it was"),
                    "dB lost, median": float(np.median(lost)),
                    "95 %": float(np.quantile(lost, 0.95)),
                    "most": float(lost.max()),
                }
            )
    return lines


def _median(rows: list[dict[str, Any]], key: str) -> float:
    """In solves with λ given, all told."""
    return float(np.median([r[key] / r["seconds, λ given"] for r in rows]))


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100, help="at most, of each problem and set")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    cases = [
        (which, problem, at)
        for problem in sorted(range(len(PROBLEMS)), key=lambda i: -PROBLEMS[i][0])
        for which in KINDS
        for at in range(min(PROBLEMS[problem][-1], options.cases))
    ]
    with _common.side_by_side(options.workers) as pool:
        results = list(pool.map(measure, cases))
    _common.print_table(table(results))
    path = _common.save("tuning", results)
    print(f"\nwritten: {path.relative_to(_common.ROOT)}")


if __name__ == "__main__":
    main()

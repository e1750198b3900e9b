"""How far `deblur.psf.refine` corrects a wrong PSF; about ten minutes of one core.

Parts of 256 x 256 of photographs, blurred by camera shake along random paths, discs, Gaussians and motions, with
Gaussian noise from none to 0.01 and the scene going on beyond the frame. The PSF that is passed is wrong in one to
three ways: rotated by 1 to 2 degrees, 2 to 5 % too large or small, without pixel integration, with noise of 1 to 3 % of
its peak, in 8 bit, or with a tone curve. Every sixth is exact. The error is ‖h − truth‖/‖truth‖ after the best
displacement. Neither the photographs nor the PSFs were used for development. Writes ``results/refine.json``.

    python benchmarks/bench_refine.py [--cases N] [--workers N]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.fft
from _common import asked, each, save, table
from cases import photograph, window
from scipy.optimize import minimize
from scipy.signal import fftconvolve
from scipy.special import ndtri

import deblur
from deblur.psf.estimate import placed
from deblur.psf.models import spread

PHOTOGRAPHS = ("astronaut", "motorcycle, left", "retina", "moon", "text", "immunohistochemistry", "gravel")
KINDS = ("shake", "shake", "disk", "gaussian", "motion")
ERRORS = ("rotation", "scale", "pixel", "noise", "8 bit", "tone curve")
SIDE, SEED = 256, 4321


def points(kind: str, rng: np.random.Generator) -> np.ndarray:
    """The light of a PSF as equal points (2, n)."""
    even = (np.arange(6000) + 0.5) / 6000
    if kind == "shake":
        k = np.arange(1, 13)
        path = (rng.standard_normal((2, 12)) * k**-1.5) @ np.cos(np.pi * k[:, None] * even)
        found = path * rng.uniform(8, 24) / np.ptp(path, axis=1).max()
    elif kind == "motion":
        length, turn = rng.uniform(6, 18), rng.uniform(0, np.pi)
        found = (even - 0.5) * length * np.array([[np.sin(turn)], [np.cos(turn)]])
    else:
        u = (np.arange(150) + 0.5) / 150
        y, x = (a.ravel() for a in np.meshgrid(u, u, indexing="ij"))
        if kind == "disk":
            found = rng.uniform(2, 6) * np.stack([2 * y - 1, 2 * x - 1])[:, np.hypot(2 * y - 1, 2 * x - 1) < 1]
        else:
            found = turned(rng.uniform(0, np.pi)) @ (ndtri(np.stack([y, x])) * rng.uniform(1, 2.6, (2, 1)))
    return found - found.mean(axis=1, keepdims=True)


def turned(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def drawn(light: np.ndarray, size: int, pixel: bool) -> np.ndarray:
    """The PSF (size, size) of points, each spread over the four nearest pixels, or also over a pixel's square."""
    steps = (np.arange(6) + 0.5) / 6 - 0.5 if pixel else np.zeros(1)
    square = np.stack(np.meshgrid(steps, steps, indexing="ij")).reshape(2, 1, -1)
    at = (light[..., None] + square).reshape(2, -1) + (size - 1) // 2
    h = spread(at, (size, size)).sum(axis=1).reshape(size, size)
    return h / h.sum()


def spoilt(light: np.ndarray, size: int, errors: list[str], rng: np.random.Generator) -> tuple[Any, Any]:
    """The true PSF and the wrong one."""
    wrong = light
    if "rotation" in errors:
        wrong = turned(np.radians(rng.uniform(1, 2) * rng.choice([-1, 1]))) @ wrong
    if "scale" in errors:
        wrong = wrong * (1 + rng.uniform(0.02, 0.05) * rng.choice([-1, 1]))
    truth, h = drawn(light, size, "pixel" in errors), drawn(wrong, size, False)
    if "noise" in errors:
        h = np.maximum(h + rng.uniform(0.01, 0.03) * h.max() * rng.standard_normal(h.shape), 0)
    if "tone curve" in errors:
        h = h ** (1 / rng.choice([1.4, 1.8, 2.2]))
    if "8 bit" in errors:
        h = np.rint(h / h.max() * 255)
    return truth, h / h.sum()


def distance(h: np.ndarray, truth: np.ndarray) -> float:
    """The relative error of a PSF after the best displacement."""
    room = [scipy.fft.next_fast_len(2 * max(h.shape + truth.shape))] * 2
    a, b = (scipy.fft.fft2(placed(p / p.sum(), (max(h.shape + truth.shape) | 1,) * 2), room) for p in (h, truth))
    y, x = scipy.fft.fftfreq(room[0])[:, None], scipy.fft.fftfreq(room[1])

    def square(by: np.ndarray) -> float:
        return float((abs(a * np.exp(-2j * np.pi * (y * by[0] + x * by[1])) - b) ** 2).mean())

    whole = np.unravel_index(scipy.fft.ifft2(b * a.conj()).real.argmax(), room)
    start = [n - room[0] * (n > room[0] // 2) for n in whole]
    simplex = np.array(start) + np.array([[0, 0], [0.4, 0], [0, 0.4]])
    found = minimize(square, start, method="Nelder-Mead", options={"initial_simplex": simplex, "xatol": 1e-3})
    return float(np.sqrt(found.fun / (abs(b) ** 2).mean()))


def case(i: int) -> dict[str, Any]:
    rng = np.random.default_rng([SEED, i])
    kind, name, noise = (str(rng.choice(KINDS)), str(rng.choice(PHOTOGRAPHS)), float(rng.choice([0, 1e-3, 3e-3, 1e-2])))
    light = points(kind, rng)
    size = min(int(2.16 * abs(light).max()) + 6 | 1, 33)
    count = 0 if i % 6 == 5 else int(rng.choice([1, 1, 1, 2, 3]))
    errors = sorted(rng.choice(ERRORS, count, replace=False).tolist())
    truth, given = spoilt(light, size, errors, rng)
    image = fftconvolve(window(photograph(name), SIDE + size - 1, rng), truth, "valid")
    image += noise * rng.standard_normal(image.shape)
    start = time.process_time()
    found = deblur.psf.refine(image, given)
    return {
        "picture": name, "psf": kind, "noise": noise, "errors": errors, "before": distance(given, truth),
        "after": distance(found.psf, truth), "estimated": found.error, "changed": found.details["changed"],
        "evidence": found.details["evidence"], "seconds": time.process_time() - start,
    }  # fmt: skip


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    before, after = (np.array([row[name] for row in rows]) for name in ("before", "after"))
    return {
        "cases": len(rows),
        "before, median": float(np.median(before)),
        "after, median": float(np.median(after)),
        "falls by, median": float(np.median(before / np.maximum(after, 1e-12))),
        "changed": float(np.mean([row["changed"] != "nothing" for row in rows])),
        "worse by 0.01": float((after > before + 0.01).mean()),
        "seconds, median": float(np.median([row["seconds"] for row in rows])),
    }


def tabulated(summary: dict[str, Any]) -> dict[str, Any]:
    cases, exact = sum(summary[name]["cases"] for name in ("exact", "wrong")), summary["exact"]
    title = (
        f"**A wrong PSF, corrected.** `deblur.psf.refine` on {cases} pictures of 256 × 256 with PSFs that are wrong in "
        "one to three ways, or exact. The error is relative, after the best displacement; medians."
    )
    columns = {"PSF": "{name}", "cases": "{cases}", "error before": "{before, median:.3f}"}
    columns |= {"after": "{after, median:.3f}", "falls by": "{falls by, median:.1f}", "changed": "{changed:.2f}"}
    notes = (
        f"{100 * (1 - exact['changed']):.0f} % of the exact PSFs come back as they are. One takes "
        f"{summary['wrong']['seconds, median']:.0f} s of one core."
    )
    rows = [{"name": name, **row} for name, row in summary.items() if name != "exact"]
    return table(title, columns, rows, notes)


def main() -> None:
    options = asked(__doc__, cases=60, workers=1)
    rows = each(case, [(i,) for i in range(options.cases)], options.workers)
    wrong = [row for row in rows if row["before"] > 0]
    groups = {"exact": [row for row in rows if not row["before"]], "wrong": wrong}
    groups["wrong by 0.03 or more"] = [row for row in wrong if row["before"] >= 0.03]
    groups |= {f"wrong by {name}": [row for row in wrong if name in row["errors"]] for name in ERRORS}
    summary = {name: summed(group) for name, group in groups.items() if group}
    found = {"summary": summary, "cases": rows}
    save("refine", found, [tabulated(summary)], workers=options.workers, seed=SEED, side=SIDE)


if __name__ == "__main__":
    main()

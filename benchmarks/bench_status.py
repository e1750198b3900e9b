"""Is a solvable problem solved, and is what calls itself right right?

(a) Realistic draws: a crop of a photograph of `deblur.data`, 8 to 256 pixels a side, blurred by a PSF of any kind,
with noise of a standard deviation from 0 to 0.05, restored by the default road with every boundary and with λ by rule
or as a number. Counted: errors, results that are not ok, and the pictures that came out worse than they went in.
(b) The property of ``tests/test_factors.py``, random problems by every linear method against a dense answer, with more
draws than the suite has time for.

    python benchmarks/bench_status.py [--draws N] [--seed S] [--property N] [--workers N] [--quick]

Writes benchmarks/results/status.json; with --quick it is a small run that writes nothing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import _common
import numpy as np

import deblur
from deblur.device import Array

NAMES = deblur.data.names()
NOISE = (0.0, 0.0, 1e-4, 1e-3, 5e-3, 0.01, 0.02, 0.05)
RULES = ("auto", "auto", "auto", "auto", "gcv", "discrepancy", "lcurve", "upre")
PERFECT = 60.0  # dB beyond which nobody sees a difference
PART = 250  # random problems of one process at a time
DTYPES = (np.float64, np.float64, np.float32, np.uint8)


@dataclass(frozen=True)
class Draw:
    """One realistic problem.

    Attributes
    ----------
    image : array
        Blurred and noisy; its last axis is colour where it has three.
    truth : array
        The sharp picture inside the same frame.
    psf : array
    lam : float or str
    options : dict
        Of `deblur.solve`.
    words : str
        What was drawn.
    """

    image: Array
    truth: Array
    psf: Array
    lam: float | str
    options: dict[str, Any]
    words: str


@cache
def _photograph(name: str) -> Array:
    return deblur.image.as_float(deblur.data.load(name))


def _psf(rng: np.random.Generator, most: int) -> tuple[Array, str]:
    """A PSF of any kind, with sides of at most `most` pixels."""
    side = int(rng.integers(1, most + 1))
    width = float(rng.uniform(0.3, max(side / 4, 0.5)))
    angle = float(rng.choice([0, 90, rng.uniform(0, 180)]))
    kinds = {
        "gaussian": lambda: deblur.psf.gaussian(side, width),
        "box": lambda: deblur.psf.box((side, int(rng.integers(1, most + 1)))),
        "disk": lambda: deblur.psf.disk(side),
        "motion": lambda: deblur.psf.motion(side, angle),
        "moffat": lambda: deblur.psf.moffat(side, max(width, 0.5)),
        "airy": lambda: deblur.psf.airy(side, max(width, 0.5)),
        "shake": lambda: deblur.psf.camera_shake(max(side, 3) | 1, rng),
        "any": lambda: rng.random((side, int(rng.integers(1, most + 1)))),
        "sides": lambda: np.outer(np.exp(-np.arange(side) / width), np.exp(-np.arange(side) / width)),
    }
    kind = str(rng.choice(list(kinds)))
    h = kinds[kind]()
    return h / h.sum(), f"{kind} {h.shape[0]}x{h.shape[1]}"


def draw(rng: np.random.Generator, largest: int = 256) -> Draw:
    """One realistic problem of at most `largest` pixels a side."""
    while True:
        name = str(rng.choice(NAMES))
        photograph = _photograph(name)
        rows, cols = (int(min(np.exp(rng.uniform(np.log(8), np.log(largest))), 256)) for _ in range(2))
        h, kind = _psf(rng, max(min(rows, cols, 25) // 2, 1))
        # A camera's scene goes on beyond the frame; now and then it ends as the boundary says.
        boundary = str(rng.choice(list(deblur.BOUNDARIES)))
        beyond = boundary == "unknown" or rng.random() < 0.5
        extra = tuple(n - 1 if beyond else 0 for n in h.shape)
        shape = rows + extra[0], cols + extra[1]
        if shape[0] > photograph.shape[0] or shape[1] > photograph.shape[1]:
            continue
        at = [int(rng.integers(0, n - m + 1)) for n, m in zip(photograph.shape, shape)]
        scene = photograph[at[0] : at[0] + shape[0], at[1] : at[1] + shape[1]]
        if scene.ndim == 3 and rng.random() < 0.5:
            scene = scene.mean(axis=-1)
        break
    axis = -1 if scene.ndim == 3 else None
    noise = float(rng.choice(NOISE))
    blurred = deblur.degrade(
        scene, h, noise=noise, boundary="unknown" if beyond else boundary, channel_axis=axis, seed=rng
    )
    top, left = (n // 2 if beyond else 0 for n in h.shape)
    truth = scene[top : top + rows, left : left + cols]
    dtype = DTYPES[rng.integers(len(DTYPES))]
    image = (np.clip(np.rint(255 * blurred), 0, 255) if dtype is np.uint8 else blurred).astype(dtype)
    lam = float(10.0 ** rng.uniform(-5, 0)) if rng.random() < 0.3 else str(rng.choice(RULES))
    words = (
        f"{name} {rows}x{cols}{' colour' if axis else ''} {np.dtype(dtype).name}, {kind}, noise {noise:g}, "
        f"{'beyond the frame' if beyond else 'within'}, boundary {boundary}, λ {lam}"
    )
    return Draw(image, truth, h, lam, {"boundary": boundary, "channel_axis": axis}, words)


def outcome(d: Draw) -> dict[str, Any]:
    """What the default road makes of a draw: {"status", "method", "lam", "gain_db", "settled", "words"}."""
    try:
        result = deblur.solve(d.image, d.psf, d.lam, check=False, **d.options)
    except Exception as error:  # any error is a failure: it is counted, not raised
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{at.name}:{at.lineno}"
        return {"status": "ERROR", "words": d.words, "error": f"{type(error).__name__}: {error} ({where})"}
    before, after = (min(deblur.metrics.psnr(d.truth, x), PERFECT) for x in (d.image, result.image))
    return {
        "status": result.status.name,
        "method": result.method,
        "lam": result.lam,
        "lam_reason": result.lam_reason,
        "converged": result.lambda_choice is None or result.lambda_choice.converged,
        "gain_db": after - before,
        "words": d.words,
    }


def realistic(draws: int, seed: int, workers: int) -> dict[str, Any]:
    """The counts over so many draws, and every one that failed."""
    rng = np.random.default_rng(seed)
    with _common.side_by_side(workers) as pool:
        found = list(pool.map(outcome, [draw(rng) for _ in range(draws)], chunksize=10))
    good = [f for f in found if f["status"] in ("SOLVED", "CONVERGED")]
    by_number = [f for f in good if f["lam_reason"] == "as given"]
    by_rule = sorted((f for f in good if f["lam_reason"] != "as given"), key=lambda f: f["gain_db"])
    return {
        "draws": draws,
        "seed": seed,
        "statuses": dict(Counter(f["status"] for f in found)),
        "ok_without_a_settled_lambda": sum(not f["converged"] for f in good),
        "failures": [f for f in found if f["status"] not in ("SOLVED", "CONVERGED")],
        "gain_db": {"rule": _gains(by_rule), "number": _gains(by_number)},
        "worst": by_rule[:10],
    }


def _gains(found: list[dict[str, Any]]) -> dict[str, float]:
    gains = np.array([f["gain_db"] for f in found] or [np.nan])
    quantiles = {f"{q}%": float(np.percentile(gains, q)) for q in (1, 10, 50, 90)}
    return quantiles | {"below -3 dB": int((gains < -3).sum()), "of": len(found)}


def property_of_status(draws: int, seed: int, workers: int) -> dict[str, Any]:
    """How many random answers call themselves right, and how many of these are not."""
    parts = range(-(-draws // PART))
    with _common.side_by_side(workers) as pool:
        found = list(pool.map(_part, [(seed, i, min(PART, draws - i * PART)) for i in parts]))
    called = sum((Counter(f["called_right"]) for f in found), Counter())
    wrong = [w for f in found for w in f["wrong"]]
    return {"draws": draws, "seed": seed, "called_right": dict(called), "wrong": wrong}


def _part(which: tuple[int, int, int]) -> dict[str, Any]:
    """`property_of_status` for one part of the draws: (seed, number of the part, draws)."""
    sys.path.insert(0, str(_common.ROOT / "tests"))
    module = importlib.import_module("test_factors")
    rng = np.random.default_rng(which[:2])
    answers: Counter[str] = Counter()
    wrong = []
    for i in range(which[2]):
        problem, g = module.draw_problem(rng)
        names = [*module.DIRECT, *(n for n in module.ITERATIVE if n != "gauss-seidel" or g.size <= 49)]
        for name in names:
            solution = module.answer(name, problem, g)
            if solution is None or not solution.converged:
                continue
            answers[name] += 1
            excess = module.wrong(problem, solution, g)
            if not excess <= 1:
                at = f"part {which[1]}, draw {i}"
                wrong.append(
                    {"at": at, "method": name, "problem": repr(problem), "times_allowed": float(excess)}
                )
    return {"called_right": dict(answers), "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--property", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes; default 1")
    parser.add_argument("--quick", action="store_true", help="60 and 100 draws, and nothing is written")
    args = parser.parse_args()
    if args.quick:
        args.draws, args.property = 60, 100
    start = time.perf_counter()
    results = {"realistic": realistic(args.draws, args.seed, args.workers)}
    results["property"] = found = property_of_status(args.property, args.seed, args.workers)
    seconds = time.perf_counter() - start
    r = results["realistic"]
    print(f"{r['draws']} realistic draws: {r['statuses']}, {seconds:.0f} s")
    for f in r["failures"]:
        print("  ", f)
    _common.print_table([{"λ by": kind, **row} for kind, row in r["gain_db"].items()])
    for f in r["worst"]:
        print("  ", f"{f['gain_db']:.1f} dB", f["method"], f["words"], f["lam_reason"])
    answers = sum(found["called_right"].values())
    print(f"{found['draws']} random problems: {answers} answers, {len(found['wrong'])} wrong")
    if not args.quick:
        print(_common.save("status", results, draws=args.draws, property=args.property, seed=args.seed))


if __name__ == "__main__":
    main()

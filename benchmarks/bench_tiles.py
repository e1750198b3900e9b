"""Is the seam what `plan_tiles` foretold? Tiles against the picture solved whole, on PSFs and pictures set aside.

Each case is a PSF, λ, boundary, tile, dtype, tolerance and picture drawn at random with a fixed seed. The picture is
solved whole and in tiles of the planned overlap; the largest difference over the picture's range is the seam. Then the
overlap is made smaller by an eighth at a time until the seam is above the tolerance, and the last step halved down to
a thirty-second: what the plan took over the smallest that would have done is its price. A case whose overlap is larger
than the tile drawn gets the next larger tile. `deblur.tiles.reach` was fitted on the other PSFs and pictures below
(``FITTED``), which are drawn here in one case of four, for comparison.

Writes benchmarks/results/tiles_prediction.json.

    python benchmarks/bench_tiles.py [--processes N] [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any

import _common
import numpy as np

import deblur
from deblur import plan_tiles, psf
from deblur.tiles import Tiling
from deblur.tiles.reach import CORRELATION, SHARP


def two_points() -> np.ndarray:
    """A double exposure."""
    h = np.zeros((5, 9))
    h[0, 0], h[4, 8] = 0.6, 0.4
    return h


def ring() -> np.ndarray:
    """A mirror telescope out of focus."""
    h = psf.disk(13)
    h[3:10, 3:10] -= psf.disk(7) * (h[6, 6] / psf.disk(7)[3, 3])
    return h / h.sum()


def ghost() -> np.ndarray:
    """A reflection in the lens beside the picture."""
    h = np.zeros((4, 12))
    h[3, 0], h[0, 11] = 0.7, 0.3
    return h


def afterglow() -> np.ndarray:
    """A sensor that is read out too early: a tail to one side."""
    h = 0.7 ** np.arange(18.0)[None]
    return h / h.sum()


#: On these the constants of `deblur.tiles.reach` and `deblur.tiles.plan` were set, with the pictures below.
FITTED: dict[str, Callable[[], np.ndarray]] = {
    "gaussian 9, 1.5": lambda: psf.gaussian(9, 1.5),
    "gaussian 19, 3": lambda: psf.gaussian(19, 3),
    "disk 7": lambda: psf.disk(7),
    "disk 5": lambda: psf.disk(5),
    "disk 9": lambda: psf.disk(9),
    "motion 15, 30": lambda: psf.motion(15, 30),
    "motion 9, 0": lambda: psf.motion(9, 0),
    "motion 9, 30": lambda: psf.motion(9, 30),
    "motion 7, 90": lambda: psf.motion(7, 90),
    "camera shake 17": lambda: psf.camera_shake(17, 3),
    "camera shake 25": lambda: psf.camera_shake(25, 7),
    "moffat 15, 4": lambda: psf.moffat(15, 4),
    "airy 21, 4": lambda: psf.airy(21, 4),
    "box 4": lambda: psf.box(4),
    "box 5": lambda: psf.box(5),
    "box 7": lambda: psf.box(7),
    "two points": two_points,
}
#: These were never used while fitting.
ASIDE: dict[str, Callable[[], np.ndarray]] = {
    "gaussian 7, 1": lambda: psf.gaussian(7, 1.0),
    "gaussian 13, 2.2": lambda: psf.gaussian(13, 2.2),
    "gaussian 15, (1, 3)": lambda: psf.gaussian(15, (1.0, 3.0)),
    "disk 11": lambda: psf.disk(11),
    "disk 4": lambda: psf.disk(5, 2.0),
    "motion 21, 60": lambda: psf.motion(21, 60),
    "motion 12, 45": lambda: psf.motion(12, 45),
    "motion 11, 90": lambda: psf.motion(11, 90),
    "camera shake 21": lambda: psf.camera_shake(21, 11),
    "camera shake 31": lambda: psf.camera_shake(31, 5),
    "moffat 21, 5, 2.5": lambda: psf.moffat(21, 5, 2.5),
    "airy 15, 3": lambda: psf.airy(15, 3),
    "box 6": lambda: psf.box(6),
    "box 3 x 9": lambda: psf.box((3, 9)),
    "ghost": ghost,
    "afterglow": afterglow,
    "ring": ring,
}
FITTED_PICTURES = ("blocks", "camera", "stars")
PICTURES = ("astronaut", "coins", "moon", "page", "lines")
LAMBDAS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
TOLERANCES = (1e-2, 1e-3, 1e-4)
NOISE = (0.003, 0.01, 0.03)
#: Side of the picture for each tile: three tiles along an axis at least, so that one is inside.
SIDES = {128: 512, 256: 896, 512: 1408, 1024: 2560}
CHANCES = {128: 0.5, 256: 0.3, 512: 0.14, 1024: 0.06}
#: Cases of each tile, on which the time goes that a case of 1024 takes.
CASES = {128: 76, 256: 54, 512: 26, 1024: 12}
_STEP, _FINE = 1.0 / 8, 1.0 / 32
_PATIENCE = 25.0  # seconds of a case, after which it is not asked what overlap would have done
_SAVED = 15.0  # seconds from one record to the next


def scene(name: str, side: int, rng: np.random.Generator) -> np.ndarray:
    """A scene of that size between 0 and 1, put together from squares of a picture."""
    if name == "blocks":
        n = -(-side // 16)
        return np.kron(rng.random((n, n)), np.ones((16, 16)))[:side, :side]
    if name == "stars":
        out = np.zeros((side, side))
        out[tuple(rng.integers(0, side, (2, side * side // 1300)))] = 1
        return out
    if name == "lines":
        y, x = np.indices((side, side))
        return ((x + 2 * y) // 23 % 2 + (3 * x - y) // 61 % 2) / 2.0
    if name == "camera":
        source = deblur.data.load("camera")
    else:
        from skimage import data

        source = np.asarray(getattr(data, name)(), float)
        source = source.mean(axis=-1) if source.ndim == 3 else source
        source = source / source.max()
    piece = min(128, *source.shape)
    n = -(-side // piece)
    rows = []
    for _ in range(n):
        row = []
        for _ in range(n):
            a, b = (rng.integers(0, m - piece + 1) for m in source.shape)
            row.append(np.rot90(source[a : a + piece, b : b + piece], rng.integers(4)))
        rows.append(np.hstack(row))
    return np.vstack(rows)[:side, :side]


def draw(number: int) -> dict[str, Any]:
    """The case of that number."""
    rng = np.random.default_rng([20261123, number])
    aside = number % 4 != 0
    return {
        "number": number,
        "aside": aside,
        "psf": str(rng.choice(list(ASIDE if aside else FITTED))),
        "picture": str(rng.choice(PICTURES if aside else FITTED_PICTURES)),
        "lam": float(rng.choice(LAMBDAS)),
        "boundary": str(rng.choice(list(deblur.BOUNDARIES))),
        "tile": int(rng.choice(list(CHANCES), p=list(CHANCES.values()))),
        "dtype": str(rng.choice(["float32", "float64"])),
        "tolerance": float(rng.choice(TOLERANCES)),
        "noise": float(rng.choice(NOISE)),
    }


def planned(case: dict[str, Any]) -> dict[str, Any]:
    """The case with its plan, of the smallest tile from the one drawn on that any overlap can serve."""
    h = (ASIDE | FITTED)[case["psf"]]()
    plan = None
    for tile in (t for t in SIDES if t >= case["tile"]):
        try:
            plan = plan_tiles(
                h / h.sum(), case["lam"], (SIDES[tile], SIDES[tile]), boundary=case["boundary"], dtype=case["dtype"],
                tolerance=case["tolerance"], tile=tile, memory=2**40,
            )  # fmt: skip
        except ValueError as error:
            return case | {"answer": "refused", "reason": str(error)}
        case = case | {"tile": tile}
        if plan.answer == "tiles":
            break
    assert plan is not None
    return case | {"answer": plan.answer, "reason": plan.reason, "plan": plan}


def one_case(case: dict[str, Any]) -> dict[str, Any]:
    """The case with its seam measured."""
    start = time.perf_counter()
    plan = case.pop("plan")
    h = (ASIDE | FITTED)[case["psf"]]()
    h = h / h.sum()
    tile, tolerance, shape = case["tile"], case["tolerance"], plan.shape
    rng = np.random.default_rng([7, case["number"]])
    blur = deblur.Blur(h, shape, case["boundary"])
    g = blur.forward(
        scene(case["picture"], max(blur.scene_shape), rng)[: blur.scene_shape[0], : blur.scene_shape[1]]
    )
    g = g + case["noise"] * rng.standard_normal(shape)
    options: Any = {"boundary": case["boundary"]}
    whole = deblur.solve(g, h, case["lam"], **options, check=False).image
    span = float(np.ptp(g))
    image = g.astype(case["dtype"])

    def seam(overlap: tuple[int, ...]) -> float:
        tiling = Tiling(
            image, h, case["lam"], tile=tile, tolerance=tolerance, memory=2**40, overlap=overlap, workers=1,
            options=options,
        )  # fmt: skip
        return float(abs(tiling(image) - whole).max()) / span

    measured = seam(plan.overlap)
    most = max(plan.overlap)

    def does(smaller: int) -> bool | None:
        """Whether that overlap would have done, both axes in proportion; None if time is over."""
        if time.perf_counter() - start > _PATIENCE:
            return None
        return seam(tuple(round(d * smaller / most) for d in plan.overlap)) <= tolerance

    least, short, done = most, -1, True if measured <= tolerance else None
    while done and least > 0:
        smaller = min(least - 1, int(least * (1 - _STEP)))
        if done := does(smaller):
            least = smaller
        else:
            short = smaller
    while done is not None and least - short > max(1, _FINE * least):
        middle = (least + short) // 2
        if done := does(middle):
            least = middle
        else:
            short = middle
    return case | {
        "overlap": list(plan.overlap),
        "in_psf_sizes": round(max(plan.overlap) / max(h.shape), 2),
        "predicted": plan.seam,
        "measured": measured,
        "held": measured <= tolerance,
        "smallest": None if done is None else least,
        "ratio": None if done is None else most / max(least, 1),
        "work": plan.work,
        "seconds": time.perf_counter() - start,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the cases that were cut into tiles."""
    ratios = [r["ratio"] for r in rows if r["ratio"] is not None]
    return {
        "cases": len(rows),
        "with_the_smallest_found": len(ratios),
        "psfs": len({r["psf"] for r in rows}),
        "held_percent": 100 * sum(r["held"] for r in rows) / max(len(rows), 1),
        "worst_over_tolerance": max((r["measured"] / r["tolerance"] for r in rows), default=None),
        "overlap_over_smallest_median": float(np.median(ratios)) if ratios else None,
        "overlap_over_smallest_90": float(np.percentile(ratios, 90)) if ratios else None,
        "overlap_in_psf_sizes_median": float(np.median([r["in_psf_sizes"] for r in rows])) if rows else None,
        "overlap_in_psf_sizes_largest": max((r["in_psf_sizes"] for r in rows), default=None),
    }


def results(
    rows: list[dict[str, Any]], not_cut: int, drawn: int, abandoned: list[dict[str, Any]]
) -> dict[str, Any]:
    rows = sorted(rows, key=lambda r: r["number"])
    return {
        "all": summary(rows),
        "aside": summary([r for r in rows if r["aside"]]),
        "fitted": summary([r for r in rows if not r["aside"]]),
        "by_boundary": {b: summary([r for r in rows if r["boundary"] == b]) for b in deblur.BOUNDARIES},
        "by_tile": {str(t): summary([r for r in rows if r["tile"] == t]) for t in SIDES},
        "by_dtype": {d: summary([r for r in rows if r["dtype"] == d]) for d in ("float32", "float64")},
        "by_lam": {f"{x:g}": summary([r for r in rows if r["lam"] == x]) for x in LAMBDAS},
        "drawn": drawn,  # of which each tile has its number of cases
        "not_cut": not_cut,  # for these λ and tolerance the tiles are smaller than the overlap, or it has no end
        "abandoned": abandoned,  # not finished in time, or not begun
        "cases": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", type=float, default=1.0, help="of the cases, to try the script")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=1e9, help="end after this time, with what there is")
    args = parser.parse_args()
    start = saved = time.perf_counter()
    rows: list[dict[str, Any]] = []
    pool = ProcessPoolExecutor(args.processes)
    room = {tile: max(1, int(args.part * n)) for tile, n in CASES.items()}
    drawn, not_cut, cut = 0, 0, []
    while any(room.values()):
        for case in pool.map(planned, (draw(i) for i in range(drawn, drawn + 4 * args.processes))):
            drawn += 1
            if case["answer"] != "tiles":
                not_cut += 1
            elif room[case["tile"]]:
                room[case["tile"]] -= 1
                cut.append(case)
    # The large ones first: none of them is still at work when the others have ended.
    cut.sort(key=lambda c: -c["tile"])
    waiting = {pool.submit(one_case, case): case for case in cut}

    def record() -> None:
        left = [{k: v for k, v in case.items() if k != "plan"} for case in waiting.values()]
        found = results(rows, not_cut, drawn, left)
        _common.save("tiles_prediction", found, correlation=CORRELATION, sharp=SHARP, step=_FINE)

    while waiting and time.perf_counter() - start < args.seconds:
        done, _ = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            rows.append(future.result())
            del waiting[future]
        if time.perf_counter() - saved > _SAVED:
            record()
            saved = time.perf_counter()
    for process in list(pool._processes.values()) if waiting else []:
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    record()
    found = results(rows, not_cut, drawn, [])
    for name in ("all", "aside", "fitted"):
        print(name, json.dumps(found[name]))
    print(f"{not_cut} of {drawn} not cut, {len(waiting)} abandoned")
    for row in sorted(rows, key=lambda r: -r["measured"] / r["tolerance"])[:8]:
        print(
            {
                k: row[k]
                for k in ("psf", "picture", "lam", "boundary", "tile", "tolerance", "measured", "overlap")
            }
        )


if __name__ == "__main__":
    main()

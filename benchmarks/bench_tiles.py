"""Is the seam what `plan_tiles` foretold? Tiles against the picture solved whole, on PSFs and pictures set aside.

Each case is a PSF, λ, boundary, tile, dtype, tolerance and picture drawn at random with a fixed seed. The picture is
solved whole and in tiles of the planned overlap; the largest difference over the picture's range is the seam. Then the
smallest overlap that keeps the tiles with the largest seams below the tolerance is found by halving, up to a 32nd: what
the plan took over that is its price, which the other tiles can only make smaller. A case whose overlap is larger than
the tile drawn gets the next larger tile. `deblur.tiles.reach` was fitted on the other PSFs and pictures below
(``FITTED``), which are drawn here in one case of four, for comparison.

Some cases more are those whose overlap is larger than the tile, and whose tiles are refined in passes, as many as a
part of the picture took: is what they leave below the tolerance, and how many had the plan foretold?

And in a process of its own, what ``deblur plan`` takes for a picture of 100 000² pixels.

Writes benchmarks/results/tiles_prediction.json.

    python benchmarks/bench_tiles.py [--processes N] [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any

import _common
import numpy as np

import deblur
from deblur import plan_tiles, psf
from deblur.errors import ConvergenceError, InsufficientMemoryError
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


def three_points() -> np.ndarray:
    """A camera that was pushed twice."""
    h = np.zeros((7, 6))
    h[6, 0], h[2, 3], h[0, 5] = 0.25, 0.55, 0.2
    return h


def afterglow() -> np.ndarray:
    """A sensor that is read out too early: a tail to one side."""
    h = 0.7 ** np.arange(18.0)[None]
    return h / h.sum()


def halo() -> np.ndarray:
    """A lens that is not clean."""
    h = 0.3 * psf.disk(15)
    h[7, 7] += 0.7
    return h


def coma() -> np.ndarray:
    """A lens that is not straight: a fan."""
    y, x = np.indices((8, 9))
    h = np.where(abs(x - 4) <= y / 2, 1 / (1.0 + y) ** 1.5, 0.0)
    return h / h.sum()


def trail() -> np.ndarray:
    """Charge that is left behind while a sensor is read out, and dies away for long."""
    h = 0.85 ** np.arange(24.0)[:, None]
    return h / h.sum()


def pushed() -> np.ndarray:
    """A camera that rested at four places."""
    h = np.zeros((9, 5))
    h[0, 4], h[3, 0], h[5, 3], h[8, 1] = 0.2, 0.45, 0.15, 0.2
    return h


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
    "ghost": ghost,
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
    "three points": three_points,
    "afterglow": afterglow,
    "ring": ring,
}
#: These were never used while fitting.
ASIDE: dict[str, Callable[[], np.ndarray]] = {
    "gaussian 11, (2.5, 1.2)": lambda: psf.gaussian(11, (2.5, 1.2)),
    "gaussian 17, 2.7": lambda: psf.gaussian(17, 2.7),
    "disk 13": lambda: psf.disk(13),
    "disk 7, 2.6": lambda: psf.disk(7, 2.6),
    "motion 17, 75": lambda: psf.motion(17, 75),
    "motion 10, 20": lambda: psf.motion(10, 20),
    "motion 13, 0": lambda: psf.motion(13, 0),
    "camera shake 19": lambda: psf.camera_shake(19, 23),
    "camera shake 27": lambda: psf.camera_shake(27, 2),
    "moffat 17, 3": lambda: psf.moffat(17, 3),
    "airy 19, 5": lambda: psf.airy(19, 5),
    "box 8": lambda: psf.box(8),
    "box 9 x 2": lambda: psf.box((9, 2)),
    "halo": halo,
    "coma": coma,
    "trail": trail,
    "pushed": pushed,
}
FITTED_PICTURES = ("blocks", "camera", "stars")
PICTURES = ("astronaut", "coins", "moon", "page", "lines")
LAMBDAS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
TOLERANCES = (1e-2, 1e-3, 1e-4)
NOISE = (0.003, 0.01, 0.03)
#: Side of the picture for each tile: three tiles along an axis, so that one is inside.
SIDES = {128: 384, 256: 768, 512: 1408, 1024: 2560}
CHANCES = {128: 0.5, 256: 0.3, 512: 0.14, 1024: 0.06}
#: Cases of each tile: one of 1024 takes the time of fifty of 128.
CASES = {128: 130, 256: 76, 512: 12, 1024: 5}
REFINED = 12  # cases of tiles that are refined
TILES_REFINED = (256, 320, 384)
_FINE = 1.0 / 32
_WORST = 3  # tiles on which the smallest overlap is looked for
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
    rng = np.random.default_rng([20261127, number])
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


def planned(number: int) -> dict[str, Any]:
    """The case of that number with its plan, of the smallest tile from the one drawn on that any overlap can serve."""
    case = draw(number)
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


def planned_refined(number: int) -> dict[str, Any]:
    """A case whose overlap is larger than its tile, with the plan of the passes that it takes instead."""
    case = draw(number)
    rng = np.random.default_rng([20261128, number])
    tile = int(rng.choice(TILES_REFINED))
    case |= {"tile": tile, "lam": float(rng.choice(LAMBDAS[3:]))}
    h = (ASIDE | FITTED)[case["psf"]]()
    side = 5 * tile // 2
    given: dict[str, Any] = {name: case[name] for name in ("boundary", "dtype", "tile", "tolerance")}
    try:
        whole = plan_tiles(h / h.sum(), case["lam"], (side, side), memory=2**40, **given).whole_bytes
        plan = plan_tiles(h / h.sum(), case["lam"], (side, side), memory=whole - 1, **given)
    except ValueError as error:
        return case | {"answer": "refused", "reason": str(error)}
    return case | {"answer": plan.answer, "reason": plan.reason, "plan": plan, "memory": whole - 1}


def posed(
    case: dict[str, Any], h: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, float]:
    """(the picture of a case, solved whole, its range)."""
    rng = np.random.default_rng([7, case["number"]])
    blur = deblur.Blur(h, shape, case["boundary"])
    g = blur.forward(
        scene(case["picture"], max(blur.scene_shape), rng)[: blur.scene_shape[0], : blur.scene_shape[1]]
    )
    g = g + case["noise"] * rng.standard_normal(shape)
    whole = deblur.solve(g, h, case["lam"], boundary=case["boundary"], check=False).image
    return g.astype(case["dtype"]), whole, float(np.ptp(g))


def one_case(case: dict[str, Any]) -> dict[str, Any]:
    """The case with its seam measured."""
    start = time.process_time()
    plan = case.pop("plan")
    h = (ASIDE | FITTED)[case["psf"]]()
    h = h / h.sum()
    tolerance, most = case["tolerance"], max(plan.overlap)
    image, whole, span = posed(case, h, plan.shape)

    def tiling(overlap: tuple[int, ...]) -> Tiling:
        return Tiling(
            image, h, case["lam"], tile=case["tile"], tolerance=tolerance, memory=2**40, overlap=overlap, workers=1,
            boundary=case["boundary"],
        )  # fmt: skip

    def seam(made: Tiling, tile: Any) -> float:
        (a, b), (c, d) = tile
        restored = made.solve(image, 0, tile, made.plan.overlap)[0, 0]
        return float(abs(restored - whole[a:b, c:d]).max()) / span

    made = tiling(plan.overlap)
    seams = sorted(((seam(made, tile), tile) for tile in made.tiles), reverse=True)
    measured = seams[0][0]

    def does(smaller: int) -> bool:
        """Whether that overlap would have done for the worst tiles, both axes in proportion."""
        made = tiling(tuple(round(d * smaller / most) for d in plan.overlap))
        return all(seam(made, tile) <= tolerance for _, tile in seams[:_WORST])

    least, short = most, -1
    while measured <= tolerance and least - short > max(1, _FINE * least):
        middle = (least + short) // 2
        if does(middle):
            least = middle
        else:
            short = middle
    found = measured <= tolerance
    return case | {
        "overlap": list(plan.overlap),
        "in_psf_sizes": round(most / max(h.shape), 2),
        "predicted": plan.seam,
        "measured": measured,
        "held": measured <= tolerance,
        "smallest": least if found else None,
        "ratio": most / max(least, 1) if found else None,
        "work": plan.work,
        "cpu_seconds": time.process_time() - start,
    }


def one_refined(case: dict[str, Any]) -> dict[str, Any]:
    """The case with what its passes leave, measured."""
    start = time.process_time()
    plan = case.pop("plan")
    h = (ASIDE | FITTED)[case["psf"]]()
    h = h / h.sum()
    image, whole, span = posed(case, h, plan.shape)
    row = case | {"overlap": list(plan.overlap), "passes_foretold": plan.passes}
    try:
        made = Tiling(
            image, h, case["lam"], tile=case["tile"], tolerance=case["tolerance"], memory=case["memory"], workers=1,
            boundary=case["boundary"],
        )  # fmt: skip
        restored = made(image)
    except (InsufficientMemoryError, ConvergenceError) as error:
        return row | {"refused": str(error), "cpu_seconds": time.process_time() - start}
    left = float(abs(restored - whole).max()) / span
    return row | {
        "passes": made.plan.passes,
        "on_a_part": made.plan.seam,
        "measured": left,
        "held": left <= case["tolerance"],
        "cpu_seconds": time.process_time() - start,
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


def summary_refined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the cases whose tiles were refined; one that is refused says so before the picture is cut."""
    done = [r for r in rows if "refused" not in r]
    return {
        "cases": len(rows),
        "refused": len(rows) - len(done),
        "psfs": len({r["psf"] for r in rows}),
        "held_percent": 100 * sum(r["held"] for r in done) / max(len(done), 1),
        "worst_over_tolerance": max((r["measured"] / r["tolerance"] for r in done), default=None),
        "passes": sorted({r["passes"] for r in done}),
        "more_than_foretold": sum(r["passes"] > r["passes_foretold"] for r in done),
    }


def plan_seconds(repeats: int = 5) -> dict[str, float]:
    """The least that ``deblur plan`` takes from start to end, by the clock and of CPU, compiled as when installed."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [
        sys.executable,
        "-m",
        "deblur",
        "plan",
        "--shape",
        "100000x100000",
        "--psf",
        "disk:7",
        "--lam",
        "0.01",
    ]
    clock, cpu = [], []
    for _ in range(repeats):
        before, start = os.times(), time.perf_counter()
        subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        clock.append(time.perf_counter() - start)
        after = os.times()
        cpu.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    return {"clock": min(clock), "cpu": min(cpu)}


def results(
    rows: list[dict[str, Any]], refined: list[dict[str, Any]], not_cut: int, drawn: int, abandoned: list[Any]
) -> dict[str, Any]:
    rows, refined = (sorted(part, key=lambda r: r["number"]) for part in (rows, refined))
    return {
        "all": summary(rows),
        "aside": summary([r for r in rows if r["aside"]]),
        "fitted": summary([r for r in rows if not r["aside"]]),
        "by_boundary": {b: summary([r for r in rows if r["boundary"] == b]) for b in deblur.BOUNDARIES},
        "by_tile": {str(t): summary([r for r in rows if r["tile"] == t]) for t in SIDES},
        "by_dtype": {d: summary([r for r in rows if r["dtype"] == d]) for d in ("float32", "float64")},
        "by_lam": {f"{x:g}": summary([r for r in rows if r["lam"] == x]) for x in LAMBDAS},
        "refined": summary_refined(refined),
        "drawn": drawn,  # of which each tile has its number of cases
        "not_cut": not_cut,  # for these λ and tolerance the tiles are smaller than the overlap, or it has no end
        "abandoned": abandoned,  # not finished in time, or not begun
        "cpu_seconds": sum(r["cpu_seconds"] for r in [*rows, *refined]),
        "cases": rows,
        "cases_refined": refined,
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
    refined: list[dict[str, Any]] = []
    plan_takes = plan_seconds()
    pool = ProcessPoolExecutor(args.processes)
    room = {tile: max(1, int(args.part * n)) for tile, n in CASES.items()}
    drawn, not_cut, cut = 0, 0, []
    number = 0
    while any(room.values()):
        some = range(number, number + 4 * args.processes)
        number = some.stop
        wanted = [n for n in some if any(room[t] for t in SIDES if t >= draw(n)["tile"])]
        for case in pool.map(planned, wanted):
            drawn += 1
            if case["answer"] != "tiles":
                not_cut += 1
            elif room[case["tile"]]:
                room[case["tile"]] -= 1
                cut.append(case)
    in_passes: list[dict[str, Any]] = []
    number = 0
    while len(in_passes) < max(1, int(args.part * REFINED)):
        found = pool.map(planned_refined, range(number, number + 4 * args.processes))
        in_passes += [case for case in found if case["answer"] == "refine"]
        number += 4 * args.processes
    # The large ones first: none of them is still at work when the others have ended.
    cut.sort(key=lambda c: -c["tile"])
    waiting = {pool.submit(one_refined, case): case for case in in_passes[:REFINED]}
    waiting |= {pool.submit(one_case, case): case for case in cut}

    def recorded() -> dict[str, Any]:
        left = [{k: v for k, v in case.items() if k != "plan"} for case in waiting.values()]
        found = results(rows, refined, not_cut, drawn, left) | {"plan_seconds": plan_takes}
        _common.save("tiles_prediction", found, correlation=CORRELATION, sharp=SHARP, step=_FINE)
        return found

    while waiting and time.perf_counter() - start < args.seconds:
        done, _ = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            row = future.result()
            (refined if "passes_foretold" in row else rows).append(row)
            del waiting[future]
        if time.perf_counter() - saved > _SAVED:
            recorded()
            saved = time.perf_counter()
    for process in list(pool._processes.values()) if waiting else []:
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    found = recorded()
    for name in ("all", "aside", "fitted", "refined"):
        print(name, json.dumps(found[name]))
    print(f"{not_cut} of {drawn} not cut, {len(waiting)} abandoned; {found['cpu_seconds']:.0f} s of CPU")
    for row in sorted(rows, key=lambda r: -r["measured"] / r["tolerance"])[:8]:
        print(
            {
                k: row[k]
                for k in ("psf", "picture", "lam", "boundary", "tile", "tolerance", "measured", "overlap")
            }
        )


if __name__ == "__main__":
    main()

"""Is the seam as small as `plan_tiles` predicts? Tiles against the picture solved whole, on random cases.

Each case is a PSF, λ, boundary, tile, dtype, tolerance and picture drawn at random with a fixed seed. The picture is
solved whole and in tiles of the planned overlap; the largest difference over the picture's range is the seam. Then the
smallest overlap that keeps the tiles with the largest seams below the tolerance is found by halving, up to a 32nd: the
planned overlap over it is the price of the plan. A case whose overlap is larger than the tile drawn gets the next
larger tile. `deblur.tiles.reach` was fitted on other PSFs and pictures (``FITTED``), which are drawn here in one case
of four.

In some cases more the overlap is larger than the tile, and the tiles are refined in passes, whose number is compared
with the plan's. Writes
benchmarks/results/tiles_prediction.json.

    python benchmarks/bench_tiles.py [--workers N] [--part SHARE]

A share of the cases tries the script, and writes nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from _common import asked, each, save, table
from cases import photograph, window

import deblur
from deblur import plan_tiles, psf
from deblur.errors import ConvergenceError, InsufficientMemoryError
from deblur.tiles import Tiling

Pair = tuple[int, int]


def points(shape: Pair, weights: dict[Pair, float]) -> np.ndarray:
    """A PSF of a few points."""
    h = np.zeros(shape)
    for at, weight in weights.items():
        h[at] = weight
    return h


def ring() -> np.ndarray:
    """A mirror telescope out of focus."""
    h = psf.disk(13)
    h[3:10, 3:10] -= psf.disk(7) * (h[6, 6] / psf.disk(7)[3, 3])
    return h


def fan() -> np.ndarray:
    """A lens with coma."""
    y, x = np.indices((8, 9))
    return np.where(abs(x - 4) <= y / 2, 1 / (1.0 + y) ** 1.5, 0.0)


DRAWN = {
    "two points": lambda: points((5, 9), {(0, 0): 0.6, (4, 8): 0.4}),
    "reflection": lambda: points((4, 12), {(3, 0): 0.7, (0, 11): 0.3}),
    "three points": lambda: points((7, 6), {(6, 0): 0.25, (2, 3): 0.55, (0, 5): 0.2}),
    "four points": lambda: points((9, 5), {(0, 4): 0.2, (3, 0): 0.45, (5, 3): 0.15, (8, 1): 0.2}),
    "tail": lambda: 0.7 ** np.arange(18.0)[None],
    "long tail": lambda: 0.85 ** np.arange(24.0)[:, None],
    "halo": lambda: 0.3 * psf.disk(15) + points((15, 15), {(7, 7): 0.7}),
    "ring": ring,
    "fan": fan,
    "gaussian 15, (1, 3)": lambda: psf.gaussian(15, (1.0, 3.0)),
    "gaussian 11, (2.5, 1.2)": lambda: psf.gaussian(11, (2.5, 1.2)),
    "moffat 21, 5, 2.5": lambda: psf.moffat(21, 5, 2.5),
    "disk 7, 2.6": lambda: psf.disk(7, 2.6),
    "disk 5, 2": lambda: psf.disk(5, 2.0),
}
#: On these the constants of `deblur.tiles` were set, with the pictures below.
FITTED = (
    "gaussian:9,1.5", "gaussian:19,3", "disk:7", "disk:5", "disk:9", "motion:15,30", "motion:9,0", "motion:9,30",
    "motion:7,90", "shake:17,3", "shake:25,7", "moffat:15,4", "airy:21,4", "box:4", "box:5", "box:7", "two points",
    "reflection", "gaussian:7,1", "gaussian:13,2.2", "gaussian 15, (1, 3)", "disk:11", "disk 5, 2", "motion:21,60",
    "motion:12,45", "motion:11,90", "shake:21,11", "shake:31,5", "moffat 21, 5, 2.5", "airy:15,3", "box:6", "box:3x9",
    "three points", "tail", "ring",
)  # fmt: skip
#: These were never used while fitting.
ASIDE = (
    "gaussian 11, (2.5, 1.2)", "gaussian:17,2.7", "disk:13", "disk 7, 2.6", "motion:17,75", "motion:10,20",
    "motion:13,0", "shake:19,23", "shake:27,2", "moffat:17,3", "airy:19,5", "box:8", "box:9x2", "halo", "fan",
    "long tail", "four points",
)  # fmt: skip
FITTED_PICTURES = ("blocks", "camera", "stars")
PICTURES = ("astronaut", "coins", "moon", "page", "lines")
LAMBDAS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
#: Side of the picture for each tile (three tiles along an axis, so that one is inside), its chance, and its cases.
TILES = {128: (384, 0.5, 130), 256: (768, 0.3, 76), 512: (1408, 0.14, 12), 1024: (2560, 0.06, 5)}
REFINED = 12


def kernel(name: str) -> np.ndarray:
    h = DRAWN[name]() if name in DRAWN else psf.parse(name)
    return h / h.sum()


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
    source = photograph(name)
    piece = min(128, *source.shape)

    def square() -> np.ndarray:
        return np.rot90(window(source, piece, rng), rng.integers(4))

    n = -(-side // piece)
    return np.block([[square() for _ in range(n)] for _ in range(n)])[:side, :side]


def draw(number: int) -> dict[str, Any]:
    """The case of that number."""
    rng = np.random.default_rng([20261127, number])
    aside = number % 4 != 0
    return {
        "number": number,
        "aside": aside,
        "psf": str(rng.choice(ASIDE if aside else FITTED)),
        "picture": str(rng.choice(PICTURES if aside else FITTED_PICTURES)),
        "lam": float(rng.choice(LAMBDAS)),
        "boundary": str(rng.choice(list(deblur.BOUNDARIES))),
        "tile": int(rng.choice(list(TILES), p=[chance for _, chance, _ in TILES.values()])),
        "dtype": str(rng.choice(["float32", "float64"])),
        "tolerance": float(rng.choice([1e-2, 1e-3, 1e-4])),
        "noise": float(rng.choice([0.003, 0.01, 0.03])),
    }


def planned(case: dict[str, Any], side: int, memory: int) -> Any:
    """The plan of a case; None where it is refused."""
    given = {name: case[name] for name in ("boundary", "dtype", "tolerance", "tile")}
    try:
        return plan_tiles(kernel(case["psf"]), case["lam"], (side, side), memory=memory, **given)
    except ValueError:
        return None


def cut(number: int) -> dict[str, Any]:
    """The case with the smallest tile, from the one drawn on, that an overlap can serve; "side" is None for none."""
    case = draw(number)
    for tile in (t for t in TILES if t >= case["tile"]):
        case |= {"tile": tile, "side": TILES[tile][0], "memory": 2**40}
        plan = planned(case, case["side"], case["memory"])
        if plan is None or plan.answer == "tiles":
            break
    return case if plan is not None and plan.answer == "tiles" else case | {"side": None}


def cut_refined(number: int) -> dict[str, Any]:
    """A case in which memory for the whole picture is missing; "side" is None unless its tiles are refined."""
    rng = np.random.default_rng([20261128, number])
    case = draw(number) | {"tile": int(rng.choice([256, 320, 384])), "lam": float(rng.choice(LAMBDAS[3:]))}
    side = 5 * case["tile"] // 2
    whole = planned(case, side, 2**40)
    memory = 0 if whole is None else whole.whole_bytes - 1
    plan = planned(case, side, memory) if memory else None
    return case | {"memory": memory, "side": side if plan is not None and plan.answer == "refine" else None}


def posed(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, float]:
    """(the picture of a case, solved whole, its range)."""
    rng, h, shape = np.random.default_rng([7, case["number"]]), kernel(case["psf"]), (case["side"],) * 2
    blur = deblur.Blur(h, shape, case["boundary"])
    rows, cols = blur.scene_shape
    g = blur.forward(scene(case["picture"], max(rows, cols), rng)[:rows, :cols])
    g = g + case["noise"] * rng.standard_normal(shape)
    whole = deblur.solve(g, h, case["lam"], boundary=case["boundary"], check=False).image
    return g.astype(case["dtype"]), whole, float(np.ptp(g))


def tiling(case: dict[str, Any], image: np.ndarray, **more: Any) -> Tiling:
    return Tiling(
        image, kernel(case["psf"]), case["lam"], tile=case["tile"], tolerance=case["tolerance"], memory=case["memory"],
        workers=1, options={"boundary": case["boundary"]}, **more,
    )  # fmt: skip


def one_case(case: dict[str, Any]) -> dict[str, Any]:
    """The case with its seam measured, and the smallest overlap that serves."""
    image, whole, span = posed(case)
    plan, tolerance = planned(case, case["side"], case["memory"]), case["tolerance"]
    most = max(plan.overlap)

    def seam(made: Tiling, tile: Any) -> float:
        (a, b), (c, d) = tile
        return float(abs(made.solve([image], (0, 1), tile, made.plan.overlap)[0][0, 0] - whole[a:b, c:d]).max()) / span

    made = tiling(case, image, overlap=plan.overlap)
    seams = sorted(((seam(made, tile), tile) for tile in made.tiles), reverse=True)
    measured, least, short = seams[0][0], most, -1
    while measured <= tolerance and least - short > max(1, least / 32):
        middle = (least + short) // 2
        smaller = tiling(case, image, overlap=tuple(round(d * middle / most) for d in plan.overlap))
        if all(seam(smaller, tile) <= tolerance for _, tile in seams[:3]):  # the tiles with the largest seams
            least = middle
        else:
            short = middle
    held = measured <= tolerance
    row = {"overlap": list(plan.overlap), "in_psf_sizes": most / max(kernel(case["psf"]).shape), "held": held}
    row |= {"predicted": plan.seam, "measured": measured, "ratio": most / max(least, 1) if held else None}
    return case | row


def one_refined(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the error that its passes leave, measured."""
    image, whole, span = posed(case)
    row = case | {"passes_foretold": planned(case, case["side"], case["memory"]).passes}
    try:
        made = tiling(case, image)
        restored = made(image)
    except (InsufficientMemoryError, ConvergenceError) as error:
        return row | {"refused": str(error)}
    left = float(abs(restored - whole).max()) / span
    return row | {"passes": made.plan.passes, "measured": left, "held": left <= case["tolerance"]}


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over cases that were cut into tiles."""
    ratios, sizes = [r["ratio"] for r in rows if r["ratio"] is not None], [r["in_psf_sizes"] for r in rows]
    return {
        "cases": len(rows),
        "held_percent": 100 * sum(r["held"] for r in rows) / len(rows),
        "worst_over_tolerance": max(r["measured"] / r["tolerance"] for r in rows),
        "overlap_over_smallest_median": float(np.median(ratios)) if ratios else None,
        "overlap_over_smallest_90": float(np.percentile(ratios, 90)) if ratios else None,
        "overlap_in_psf_sizes_median": float(np.median(sizes)),
        "overlap_in_psf_sizes_largest": max(sizes),
    }


def summed_refined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the cases whose tiles were refined."""
    done = [r for r in rows if "refused" not in r]
    return {
        "cases": len(rows),
        "refused": len(rows) - len(done),
        "held_percent": 100 * sum(r["held"] for r in done) / len(done),
        "worst_over_tolerance": max(r["measured"] / r["tolerance"] for r in done),
        "passes": sorted({r["passes"] for r in done}),
        "more_than_foretold": sum(r["passes"] > r["passes_foretold"] for r in done),
    }


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    groups = {"all": r["all"], "PSFs and pictures set aside": r["aside"], "those it was fitted on": r["fitted"]}
    groups |= r["by_boundary"] | {f"tile {k}": v for k, v in r["by_tile"].items()} | r["by_dtype"]
    groups |= {f"λ = {k}": v for k, v in r["by_lam"].items()}
    rows = [
        {"name": k, "held": f"{v['held_percent']:.1f}".removesuffix(".0")} | v for k, v in groups.items() if v["cases"]
    ]  # fmt: skip
    columns = {"cases": "{name}", "n": "{cases}", "seam below the tolerance, %": "{held}"}
    columns |= {"worst seam / tolerance": "{worst_over_tolerance:.2g}"}
    columns |= {"overlap / smallest that serves, median": "{overlap_over_smallest_median:.2f}"}
    columns |= {"90 %": "{overlap_over_smallest_90:.2f}"}
    sizes = "{overlap_in_psf_sizes_median:.1f} … {overlap_in_psf_sizes_largest:.0f}"
    passes = r["refined"]
    title = (
        f"Of {r['drawn']} random cases {r['not_cut']} cannot be cut into tiles of up to 1024 pixels, as the plan says; "
        f"{r['all']['cases']} were measured. Of {passes['cases']} more, whose overlap is larger than their tile and "
        f"which are refined in {passes['passes'][0]} to {passes['passes'][-1]} passes, {passes['held_percent']:.0f} % "
        f"are below the tolerance at the end, the worst at {passes['worst_over_tolerance']:.2f} of it; "
        f"{passes['more_than_foretold']} took more passes than predicted, and {passes['refused']} were refused before "
        f"they began."
    )
    return [table(title, columns | {"overlap in PSF sizes, median … largest": sizes}, rows)]


def main() -> None:
    options = asked(__doc__, workers=None, part=1.0)
    room = {tile: max(1, int(options.part * cases)) for tile, (_, _, cases) in TILES.items()}
    chosen: list[dict[str, Any]] = []
    drawn = not_cut = 0
    for number in itertools.count():
        if not any(room.values()):
            break
        if not any(left for tile, left in room.items() if tile >= draw(number)["tile"]):
            continue
        case, drawn = cut(number), drawn + 1
        if case["side"] is None:
            not_cut += 1
        elif room[case["tile"]]:
            room[case["tile"]] -= 1
            chosen.append(case)
    refinable = (case for case in map(cut_refined, itertools.count()) if case["side"])
    few = list(itertools.islice(refinable, max(1, int(options.part * REFINED))))
    chosen.sort(key=lambda case: -case["tile"])  # the large ones first
    rows, refined = (
        each(f, [(c,) for c in some], options.workers) for f, some in ((one_case, chosen), (one_refined, few))
    )

    def by(key: str, values: Any) -> dict[str, Any]:
        groups = {f"{v:g}" if isinstance(v, float) else str(v): [r for r in rows if r[key] == v] for v in values}
        return {name: summed(some) for name, some in groups.items() if some}

    halves = {"all": rows, "aside": [r for r in rows if r["aside"]]}
    halves["fitted"] = [r for r in rows if not r["aside"]]
    keys = {"boundary": deblur.BOUNDARIES, "tile": TILES, "dtype": ("float32", "float64"), "lam": LAMBDAS}
    found = {half: summed(some) for half, some in halves.items()}
    found |= {f"by_{key}": by(key, values) for key, values in keys.items()}
    found |= {"refined": summed_refined(refined), "drawn": drawn, "not_cut": not_cut}
    found |= {"cases": rows, "cases_refined": refined}
    save("tiles_prediction", found, tables(found), write=options.part == 1)


if __name__ == "__main__":
    main()

"""How good is the λ that each rule chooses? PSNR at it against the PSNR at the best λ.

Scikit-image's bundled photographs × PSFs × boundaries × noise from 0.1 % to 5 % of full scale. Each case
is restored over a fine grid of λ and at the chosen λ by a method that is exact for it; the best λ is the
best of all of them, found with the truth at hand. With the boundary unknown the scene is regularised
towards `prior_scene`, elsewhere towards zero. Then, on pictures of one megapixel whose scene goes on beyond the frame,
what "auto", which looks at the spectrum alone, loses against "gcv" of the whole picture, and the seconds of both.
Writes benchmarks/results/lambda_choice.json.

    python benchmarks/bench_lambda.py [--cases N] [--size PIXELS] [--large N]

With --cases 0 or --large 0 that part stays as it is stored.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import _common
import numpy as np

from deblur import Blur, metrics, psf
from deblur.methods import METHODS
from deblur.problem import Problem, Solution, Stop
from deblur.tuning import choose_lambda, estimate_noise, prior_scene

IMAGES = ("camera", "astronaut", "coffee", "cat", "coins", "brick", "grass", "page", "rocket", "moon")
BOUNDARIES = ("zero", "periodic", "reflect", "unknown")
NOISE = (0.001, 0.003, 0.01, 0.03, 0.05)
PSFS: dict[str, Callable[[], np.ndarray]] = {
    "gaussian 9, 1.5": lambda: psf.gaussian(9, 1.5),
    "gaussian 15, 2.5": lambda: psf.gaussian(15, 2.5),
    "disk 7": lambda: psf.disk(7),
    "disk 11": lambda: psf.disk(11),
    "motion 9, 0": lambda: psf.motion(9, 0),
    "motion 15, 30": lambda: psf.motion(15, 30),
    "camera shake 17": lambda: psf.camera_shake(17, 3),
    "box 4": lambda: psf.box(4),
    "one-sided 6": lambda: np.outer(np.exp(-np.arange(6) / 2), np.exp(-np.arange(6) / 2)),
    "gaussian 3, 0.5": lambda: psf.gaussian(3, 0.5),
}
#: The rules as the table names them: rule, noise given?, other options of choose_lambda.
RULES: dict[str, tuple[str, bool, dict[str, str]]] = {
    "auto": ("auto", False, {}),
    "gcv": ("gcv", False, {}),
    "discrepancy, noise given": ("discrepancy", True, {}),
    "discrepancy, noise estimated": ("discrepancy", False, {}),
    "upre, noise given": ("upre", True, {}),
    "upre, noise estimated": ("upre", False, {}),
    "lcurve": ("lcurve", False, {}),
    "gcv as published": ("gcv", False, {"norm": "data"}),
    "upre as published, noise given": ("upre", True, {"norm": "data"}),
}
EXACT = ("fft", "dct", "dst", "kronecker", "pcg")  # the first that serves
GRID = 10.0 ** np.arange(0.5, -7.01, -0.25)
_GIVE_UP = 8.0  # dB below the best so far, where the descent in λ ends


def photograph(name: str) -> np.ndarray:
    """One of scikit-image's bundled photographs, grey, float64 in [0, 1]."""
    from skimage import color, data, util

    image = util.img_as_float(getattr(data, name)())
    return color.rgb2gray(image[..., :3]) if image.ndim == 3 else image


def crop(image: np.ndarray, size: int) -> np.ndarray:
    """The middle of an image, at most `size` pixels a side."""
    rows, cols = (min(size, n) for n in image.shape)
    top, left = (image.shape[0] - rows) // 2, (image.shape[1] - cols) // 2
    return image[top : top + rows, left : left + cols]


def make_case(name: str, kernel: str, boundary: str, noise: float, size: int, seed: int) -> tuple[Any, ...]:
    """(blur, noisy image, the truth inside its frame, the scene regularised towards)."""
    h = PSFS[kernel]()
    h = h / h.sum()
    scene = crop(photograph(name), size)
    shape = scene.shape
    if boundary == "unknown":
        shape = (shape[0] - h.shape[0] + 1, shape[1] - h.shape[1] + 1)
    blur = Blur(h, shape, boundary)
    clean = blur.forward(scene)
    g = clean + noise * np.random.default_rng(seed).standard_normal(clean.shape)
    prior = prior_scene(blur, g) if boundary == "unknown" else np.zeros(blur.scene_shape)
    return blur, g, scene[blur.crop], prior


def restore(blur: Blur, g: np.ndarray, prior: np.ndarray, lam: float) -> np.ndarray | None:
    """The Tikhonov solution inside the frame; None where λ is too small for the iteration."""
    solution = _solved(blur, g, prior, lam)
    return (prior + solution.scene[0, 0])[blur.crop] if solution.converged else None


def _solved(blur: Blur, g: np.ndarray, prior: np.ndarray, lam: float) -> Solution:
    rtol = 1e-6 if g.dtype == np.float64 else 1e-5
    problem = Problem(blur, float(lam), dtype=g.dtype, stop=Stop(rtol=rtol))
    large = g.size > 1 << 18  # where two decompositions would take longest of all
    methods = EXACT if not large else ("fft", "dct", "dst", "pcg")
    method = next(name for name in methods if METHODS[name].refuses(problem) is None)
    return METHODS[method].prepare(problem).solve((g - blur.forward(prior))[None, None])


def one_case(arguments: tuple[Any, ...]) -> dict[str, Any]:
    name, kernel, boundary, noise = arguments[:4]
    blur, g, truth, prior = make_case(*arguments)
    curve: list[float] = []
    for lam in GRID:
        image = restore(blur, g, prior, lam)
        if image is None:
            break
        curve.append(metrics.psnr(truth, image))
        if curve[-1] < max(curve) - _GIVE_UP:
            break
    chosen = {}
    for label, (rule, given, options) in RULES.items():
        choice = choose_lambda(blur, g - blur.forward(prior), rule, noise=noise if given else None, **options)
        image = restore(blur, g, prior, choice.lam)
        # Where λ is too small to be solved for, the loss is at least that of the smallest that was.
        chosen[label] = {
            "lam": choice.lam,
            "psnr": curve[-1] if image is None else metrics.psnr(truth, image),
            "solved": image is not None,
            "remark": choice.remark,
        }
    best = max([*curve, *(c["psnr"] for c in chosen.values())])
    for c in chosen.values():
        c["loss_db"] = best - c["psnr"]
    return {
        "image": name,
        "psf": kernel,
        "boundary": boundary,
        "noise": noise,
        "noise_estimated": estimate_noise(g),
        "psnr_input": metrics.psnr(truth, g),
        "psnr_best": best,
        "lam_best": float(GRID[int(np.argmax(curve))]),
        "rules": chosen,
    }


#: Pictures of a megapixel: two as they are, two of four photographs each.
LARGE = (
    ("retina",),
    ("hubble_deep_field",),
    ("camera", "coffee", "grass", "astronaut"),
    ("moon", "brick", "cat", "gravel"),
)
LARGE_NOISE = (0.002, 0.01, 0.04)


def large_picture(names: tuple[str, ...]) -> np.ndarray:
    """One photograph, or four as quarters of one picture; at most 1024 pixels a side."""
    if len(names) == 1:
        return crop(photograph(names[0]), 1024)
    quarters = []
    for name in names:
        image = photograph(name)
        room = [(0, max(512 - n, 0)) for n in image.shape]
        quarters.append(crop(np.pad(image, room, mode="symmetric"), 512))
    return np.block([quarters[:2], quarters[2:]])


def large_case(arguments: tuple[Any, ...]) -> dict[str, Any]:
    """λ and seconds of "auto" and "gcv" for one picture in float32, and the dB that the first loses."""
    names, kernel, noise, seed = arguments
    h = PSFS[kernel]()
    h = h / h.sum()
    scene = large_picture(names)
    blur = Blur(h, (scene.shape[0] - h.shape[0] + 1, scene.shape[1] - h.shape[1] + 1), "unknown")
    g = blur.forward(scene)
    g = (g + noise * np.random.default_rng(seed).standard_normal(g.shape)).astype(np.float32)
    prior, truth = prior_scene(blur, g), scene[blur.crop]
    row: dict[str, Any] = {"picture": " ".join(names), "psf": kernel, "noise": noise}
    for rule in ("auto", "gcv"):
        start = time.perf_counter()
        choice = choose_lambda(blur, g - blur.forward(prior), rule)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        solution = _solved(blur, g, prior, choice.lam)
        row[rule] = {
            "lam": choice.lam,
            "by": choice.decomposition,
            "seconds": seconds,
            "solve_seconds": time.perf_counter() - start,
            "converged": solution.converged,
            "psnr": metrics.psnr(truth, (prior + solution.scene[0, 0])[blur.crop]),
        }
    row["loss_db"] = row["gcv"]["psnr"] - row["auto"]["psnr"]
    return row


def large_cases(count: int) -> list[tuple[Any, ...]]:
    """A fixed draw from pictures, PSFs and levels of noise."""
    product = list(itertools.product(LARGE, PSFS, LARGE_NOISE))
    order = np.random.default_rng(4).permutation(len(product))[:count]
    return [(*product[i], 5000 + int(i)) for i in order]


def all_cases(count: int, size: int) -> list[tuple[Any, ...]]:
    """A fixed, even draw from the full product: image and boundary in turn, PSF and noise shuffled."""
    rng = np.random.default_rng(3)
    pairs = list(itertools.product(PSFS, NOISE))
    frames = itertools.cycle(itertools.product(IMAGES, BOUNDARIES))
    cases: list[tuple[Any, ...]] = []
    while len(cases) < count:
        for k in rng.permutation(len(pairs)):
            kernel, noise = pairs[k]
            image, boundary = next(frames)
            cases.append((image, kernel, boundary, noise, size, 1000 + len(cases)))
    return cases[:count]


def summary(rows: list[dict[str, Any]], label: str) -> dict[str, float]:
    loss = np.array([row["rules"][label]["loss_db"] for row in rows])
    return {
        "cases": len(rows),
        "median_loss_db": float(np.median(loss)),
        "loss_db_95th_percentile": float(np.percentile(loss, 95)),
        "worst_loss_db": float(loss.max()),
        "share_within_0.5_db": float((loss <= 0.5).mean()),
        "share_within_2_db": float((loss <= 2).mean()),
    }


def of_cases(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of the rules, all together and by boundary, noise, PSF and photograph."""
    groups: dict[str, list[dict[str, Any]]] = {"all": rows}
    for key, values in (("boundary", BOUNDARIES), ("noise", NOISE), ("psf", PSFS), ("image", IMAGES)):
        for value in values:
            groups[f"{key} {value}"] = [row for row in rows if row[key] == value]
    table = {
        group: {label: summary(members, label) for label in RULES}
        for group, members in groups.items()
        if members
    }
    print(f"{len(rows)} cases; dB below the best λ (median / 95th percentile / share within 2 dB)\n")
    _common.print_table(
        [
            {
                "rule": label,
                **{
                    group: "{median_loss_db:.2f} / {loss_db_95th_percentile:.2f} / {share_within_2_db:.0%}".format(
                        **table[group][label]
                    )
                    for group in ["all", *(f"boundary {b}" for b in BOUNDARIES)]
                },
            }
            for label in RULES
        ]
    )
    ratio = np.array([row["noise_estimated"] / row["noise"] for row in rows])
    estimate = {str(q): float(np.percentile(ratio, q)) for q in (0, 5, 25, 50, 75, 95, 100)}
    print("\nestimated noise / true noise, percentiles:", {q: round(v, 3) for q, v in estimate.items()})
    return {"summary": table, "noise_estimate_over_truth": estimate, "cases": rows}


def of_large(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What "auto" loses against "gcv" on pictures of a megapixel."""
    lost = np.array([row["loss_db"] for row in rows])
    quick = {
        "cases": len(rows),
        "median_loss_db": float(np.median(lost)),
        "loss_db_95th_percentile": float(np.percentile(lost, 95)),
        "worst_loss_db": float(lost.max()),
        "mean_loss_db": float(lost.mean()),
        "median_share_of_solve": float(
            np.median([r["auto"]["seconds"] / r["auto"]["solve_seconds"] for r in rows])
        ),
        "median_share_of_solve_gcv": float(
            np.median([r["gcv"]["seconds"] / r["gcv"]["solve_seconds"] for r in rows])
        ),
    }
    print(f"\nauto against gcv on pictures of a megapixel: {quick}")
    return {"large": quick, "large_cases": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--large", type=int, default=60, help="cases of a megapixel; default 60")
    parser.add_argument("--workers", type=int, help="processes; default one for each core")
    options = parser.parse_args()
    from tqdm import tqdm

    path = _common.RESULTS / "lambda_choice.json"
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    with _common.side_by_side(options.workers) as pool:
        if options.cases:
            cases = all_cases(options.cases, options.size)
            results |= of_cases(list(tqdm(pool.map(one_case, cases), total=len(cases), disable=None)))
        if options.large:
            cases = large_cases(options.large)
            results |= of_large(list(tqdm(pool.map(large_case, cases), total=len(cases), disable=None)))
    _common.save("lambda_choice", results, size=options.size, psnr="not clipped, inside the frame")
    print(f"\nwritten to {path.relative_to(_common.ROOT)}")


if __name__ == "__main__":
    main()

"""How good is the λ that each rule chooses? PSNR at it against the PSNR at the best λ.

Scikit-image's bundled photographs × PSFs × boundaries × noise from 0.1 % to 5 % of full scale. Each case is restored
over a fine grid of λ and at the chosen λ by a method that is exact for it; the best λ is the best of all of them,
found with the truth at hand. With the boundary unknown the scene is regularised towards `prior_scene`, elsewhere
towards zero. Writes benchmarks/results/lambda_choice.json.

    python benchmarks/bench_lambda.py [--cases N] [--size PIXELS] [--workers N]
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from _common import asked, each, losses, save, table
from cases import crop, kernel, photograph

from deblur import Blur, metrics
from deblur.methods import METHODS
from deblur.problem import Problem, Stop
from deblur.tuning import choose_lambda, estimate_noise, prior_scene

IMAGES = ("camera", "astronaut", "coffee", "cat", "coins", "brick", "grass", "page", "rocket", "moon")
BOUNDARIES = ("zero", "periodic", "reflect", "unknown")
NOISE = (0.001, 0.003, 0.01, 0.03, 0.05)
KERNELS = (
    "gaussian 9, 1.5", "gaussian 15, 2.5", "disk 7", "disk 11", "motion 9, 0", "motion 15, 30", "camera shake 17",
    "box 4", "one-sided 6", "gaussian 3, 0.5",
)  # fmt: skip
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
GIVE_UP = 8.0  # dB below the best so far, where the descent in λ ends


def make_case(name: str, psf: str, boundary: str, noise: float, size: int, seed: int) -> tuple[Any, ...]:
    """(blur, noisy image, the truth inside its frame, the scene regularised towards)."""
    h, scene = kernel(psf), crop(photograph(name), size)
    reach = (m - 1 if boundary == "unknown" else 0 for m in h.shape)
    blur = Blur(h, tuple(n - m for n, m in zip(scene.shape, reach)), boundary)
    clean = blur.forward(scene)
    g = clean + noise * np.random.default_rng(seed).standard_normal(clean.shape)
    prior = prior_scene(blur, g) if boundary == "unknown" else np.zeros(blur.scene_shape)
    return blur, g, scene[blur.crop], prior


def restore(blur: Blur, g: np.ndarray, prior: np.ndarray, lam: float) -> np.ndarray | None:
    """The Tikhonov solution inside the frame; None where λ is too small for the iteration."""
    problem = Problem(blur, float(lam), stop=Stop(rtol=1e-6))
    method = next(name for name in EXACT if METHODS[name].refuses(problem) is None)
    solution = METHODS[method].prepare(problem).solve((g - blur.forward(prior))[None, None])
    return (prior + solution.scene[0, 0])[blur.crop] if solution.converged else None


def one_case(*arguments: Any) -> dict[str, Any]:
    name, psf, boundary, noise = arguments[:4]
    blur, g, truth, prior = make_case(*arguments)
    curve: list[float] = []
    for lam in GRID:
        image = restore(blur, g, prior, lam)
        if image is None:
            break
        curve.append(metrics.psnr(truth, image))
        if curve[-1] < max(curve) - GIVE_UP:
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
    row = {"image": name, "psf": psf, "boundary": boundary, "noise": noise}
    row |= {"noise_estimated": estimate_noise(g), "psnr_input": metrics.psnr(truth, g), "psnr_best": best}
    return row | {"lam_best": float(GRID[np.argmax(curve)]), "rules": chosen}


def all_cases(count: int, size: int) -> list[tuple[Any, ...]]:
    """A fixed, even draw from the full product: image and boundary in turn, PSF and noise shuffled."""
    rng = np.random.default_rng(3)
    pairs = list(itertools.product(KERNELS, NOISE))
    frames = itertools.cycle(itertools.product(IMAGES, BOUNDARIES))
    cases: list[tuple[Any, ...]] = []
    while len(cases) < count:
        for k in rng.permutation(len(pairs)):
            psf, noise = pairs[k]
            image, boundary = next(frames)
            cases.append((image, psf, boundary, noise, size, 1000 + len(cases)))
    return cases[:count]


def lost(rows: list[dict[str, Any]], label: str) -> dict[str, float]:
    loss = np.array([row["rules"][label]["loss_db"] for row in rows])
    return {"cases": len(rows)} | losses(loss) | {"share_within_2_db": float((loss <= 2).mean())}


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{"rule": rule} | found for rule, found in r["summary"]["all"].items()]
    columns = {"rule": "{rule}", "median": "{median_loss_db:.2f}"}
    columns |= {"95th percentile": "{loss_db_95th_percentile:.2f}"}
    columns |= {"within 2 dB": "{share_within_2_db:.0p}", "worst": "{worst_loss_db:.1f}"}
    title = (
        f"**λ chosen by a rule.** PSNR lost against the best λ, in dB, over {rows[0]['cases']} cases of image, PSF, "
        "noise level and boundary. *As published* is the rule for the error of the data instead of the scene's."
    )
    return [table(title, columns, rows)]


def summary(r: dict[str, Any]) -> str:
    gcv = r["summary"]["all"]["gcv"]
    return (
        f"λ by `gcv` loses {gcv['median_loss_db']:.2f} dB in the median against the best λ, and "
        f"{gcv['loss_db_95th_percentile']:.1f} dB at the 95th percentile."
    )


def main() -> None:
    options = asked(__doc__, cases=200, size=192, workers=None)
    rows = each(one_case, all_cases(options.cases, options.size), options.workers)
    found = {"summary": {"all": {rule: lost(rows, rule) for rule in RULES}}, "cases": rows}
    settings = {"size": options.size, "psnr": "not clipped, inside the frame"}
    save("lambda_choice", found, tables(found), summary(found), **settings)


if __name__ == "__main__":
    main()

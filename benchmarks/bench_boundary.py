"""What the boundary costs on real photographs, and what boundary "unknown" with automatic λ gives.

A photograph is blurred and cropped to the pixels that see nothing beyond its frame ('valid'), so that the
scene goes on outside as it does in a camera. Restored are the noisy data by

- boundary "unknown", λ chosen by gcv and by discrepancy (noise estimated), towards `prior_scene` and towards zero;
- the boundaries zero, periodic, reflect and antireflect, which are all wrong here, λ by gcv;
- scikit-image's `wiener` as it is and after a smooth periodic padding, each at its best parameter, found
  with the truth at hand.

Writes benchmarks/results/boundary.json.

    python benchmarks/bench_boundary.py [--size PIXELS]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import _common
import numpy as np
from bench_lambda import crop, photograph, restore

from deblur import Blur, metrics, psf
from deblur.tuning import choose_lambda, prior_scene

IMAGES = ("camera", "astronaut", "coffee", "cat")
NOISE = (0.002, 0.01, 0.04)
PSFS: dict[str, Callable[[], np.ndarray]] = {
    "gaussian 9, 1.5": lambda: psf.gaussian(9, 1.5),
    "disk 7": lambda: psf.disk(7),
    "motion 15, 30": lambda: psf.motion(15, 30),
    "camera shake 17": lambda: psf.camera_shake(17, 3),
    "box 4": lambda: psf.box(4),
}
WRONG = ("zero", "periodic", "reflect", "antireflect")
BALANCES = 10.0 ** np.arange(-6, 2.1, 0.25)
LAMBDAS = 10.0 ** np.arange(-4, 0.6, 0.5)


def centred(h: np.ndarray, origin: tuple[int, int]) -> np.ndarray:
    """The PSF in an odd array with its origin in the middle, which is where `wiener` looks for it."""
    reach = [max(o, m - 1 - o) for o, m in zip(origin, h.shape, strict=True)]
    out = np.zeros((2 * reach[0] + 1, 2 * reach[1] + 1))
    top, left = reach[0] - origin[0], reach[1] - origin[1]
    out[top : top + h.shape[0], left : left + h.shape[1]] = h
    return out


def padded(g: np.ndarray, width: tuple[int, int]) -> np.ndarray:
    """The image continued below and to the right so that it repeats smoothly: its two mirrors, blended."""
    for axis, w in enumerate(width):
        g = np.moveaxis(g, axis, 0)
        t = np.arange(1, w + 1) / (w + 1)
        t = (t * t * (3 - 2 * t)).reshape(-1, 1)
        g = np.concatenate([g, g[: -w - 1 : -1] * (1 - t) + g[:w][::-1] * t])
        g = np.moveaxis(g, 0, axis)
    return g


def best_wiener(g: np.ndarray, h: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """The best PSNR of `wiener` over its parameter, and the parameter."""
    from skimage.restoration import wiener

    rows, cols = truth.shape
    results = [metrics.psnr(truth, wiener(g, h, b, clip=False)[:rows, :cols]) for b in BALANCES]
    return max(results), float(BALANCES[int(np.argmax(results))])


def one_case(arguments: tuple[Any, ...]) -> dict[str, Any]:
    name, kernel, noise, size, seed = arguments
    h = PSFS[kernel]()
    h = h / h.sum()
    scene = crop(photograph(name), size)
    shape = (scene.shape[0] - h.shape[0] + 1, scene.shape[1] - h.shape[1] + 1)
    blur = Blur(h, shape, "unknown")
    truth = scene[blur.crop]
    clean = blur.forward(scene)
    g = clean + noise * np.random.default_rng(seed).standard_normal(clean.shape)
    out: dict[str, Any] = {"image": name, "psf": kernel, "noise": noise, "input": metrics.psnr(truth, g)}

    def ours(label: str, b: Blur, prior: np.ndarray, rule: str) -> None:
        choice = choose_lambda(b, g - b.forward(prior), rule)
        image = restore(b, g, prior, choice.lam)
        out[label] = float("-inf") if image is None else metrics.psnr(truth, image)
        out[f"{label}: λ"], out[f"{label}: remark"] = choice.lam, choice.remark

    def at_best(label: str, b: Blur, prior: np.ndarray) -> None:
        images = [restore(b, g, prior, lam) for lam in LAMBDAS]
        out[label] = max(metrics.psnr(truth, image) for image in images if image is not None)

    prior, nothing = prior_scene(blur, g), np.zeros(blur.scene_shape)
    ours("unknown, gcv", blur, prior, "gcv")
    ours("unknown, discrepancy", blur, prior, "discrepancy")
    at_best("unknown, best λ", blur, prior)
    ours("unknown towards zero, gcv", blur, nothing, "gcv")
    at_best("unknown towards zero, best λ", blur, nothing)
    for boundary in WRONG:
        wrong = Blur(h, shape, boundary)
        ours(f"{boundary}, gcv", wrong, np.zeros(shape), "gcv")
        at_best(f"{boundary}, best λ", wrong, np.zeros(shape))
    odd = centred(h, blur.origin)
    out["wiener, best"], out["wiener, best: balance"] = best_wiener(g, odd, truth)
    wide = padded(g, (2 * odd.shape[0], 2 * odd.shape[1]))
    out["padded wiener, best"], out["padded wiener, best: balance"] = best_wiener(wide, odd, truth)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=144)
    options = parser.parse_args()
    from tqdm import tqdm

    product = itertools.product(IMAGES, PSFS, NOISE)
    cases = [(*case, options.size, 2000 + i) for i, case in enumerate(product)]
    with _common.side_by_side() as pool:
        rows = list(tqdm(pool.map(one_case, cases), total=len(cases), disable=None))

    labels = [key for key in rows[0] if ": " not in key and key not in ("image", "psf", "noise")]
    table = []
    for label in labels:
        values = np.array([row[label] for row in rows])
        gain = values - np.array([row["input"] for row in rows])
        padded_best = np.array([row["padded wiener, best"] for row in rows])
        table.append(
            {
                "method": label,
                "mean_psnr_db": float(values.mean()),
                **{
                    f"noise {noise:g}": float(np.mean([row[label] for row in rows if row["noise"] == noise]))
                    for noise in NOISE
                },
                "worst_gain_over_input_db": float(gain.min()),
                "cases_below_input": int((gain < 0).sum()),
                "cases_at_least_padded_wiener": int((values >= padded_best).sum()),
            }
        )
    print(f"{len(rows)} cases, PSNR in dB\n")
    _common.print_table(table)
    path = _common.save("boundary", {"summary": table, "cases": rows}, size=options.size, psnr="not clipped")
    print(f"\nwritten to {path.relative_to(_common.ROOT)}")


if __name__ == "__main__":
    main()

"""The boundary: its price on photographs, whether it is detected, and the call with no option at all.

    python benchmarks/bench_boundary.py [--parts price detected] [--cases N, of the detection] [--workers N]

price: a photograph is blurred and cropped to the pixels that depend on nothing beyond its frame, so that the scene goes
on outside as it does in a camera. The noisy data are restored with boundary "unknown" and with the boundaries zero,
periodic, reflect and antireflect, all wrong here, and by scikit-image's `wiener` as it is and after a smooth periodic
padding, at its best parameter. Writes benchmarks/results/boundary.json.

detected: crops of photographs, 64² to 512², blurred by a PSF of any kind under a boundary of zero, periodic or unknown
(the real scene beyond the frame), with noise from 0 to 0.05. The detected boundary is counted against the true one. A
case is decidable if the surroundings change the picture by more than the noise hides. Where another boundary was
detected, the loss is the difference in PSNR (60 dB counts as perfect). Then `deblur.solve(g, psf)` with no option,
where the scene goes on. The photographs are others than those by which the detection, or the rules for λ, were tuned.
Writes benchmarks/results/auto_boundary.json.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from _common import asked, each, save, table
from cases import best_wiener, centred, crop, going_on, kernel, padded, photograph, window

import deblur
from deblur import Blur, metrics
from deblur.tuning import choose_lambda, prior_scene

IMAGES = ("camera", "astronaut", "coffee", "cat")
KERNELS = ("gaussian 9, 1.5", "disk 7", "motion 15, 30", "camera shake 17", "box 4")
WRONG = ("zero", "periodic", "reflect", "antireflect")
#: Others than those that tuned the detection: camera, coffee, cat, brick, moon, page, ihc, motorcycle.
HELD_OUT = ("astronaut", "coins", "rocket", "grass", "gravel", "retina", "hubble_deep_field", "clock", "cell")
#: Others than those that tuned λ: camera, astronaut, coffee, cat, coins, brick, grass, page, rocket, moon.
NEVER_SEEN = (
    "gravel", "retina", "hubble_deep_field", "clock", "cell", "immunohistochemistry", "motorcycle, left",
)  # fmt: skip
BOUNDARIES = ("zero", "periodic", "unknown")
SIZES = (64, 96, 128, 192, 256, 384, 512)
PERFECT = 60.0
LEVEL = 1 / 255 / 12**0.5  # of the noise that a file of 8 bits has in any case
SURE = 10.0  # logarithm of a likelihood

# ---------------------------------------------------------------- the price


def padded_wiener(g: np.ndarray, blur: Blur, truth: np.ndarray) -> float:
    h = centred(blur.psf, blur.origin)
    return best_wiener(padded(g, (2 * h.shape[0], 2 * h.shape[1])), h, truth)


def one_price(name: str, psf: str, noise: float, size: int, seed: int) -> dict[str, Any]:
    """PSNR of every way on one photograph."""
    h, scene = kernel(psf), crop(photograph(name), size)
    blur, g, truth = going_on(scene, h, noise, seed)
    out: dict[str, Any] = {"image": name, "psf": psf, "noise": noise, "input": metrics.psnr(truth, g)}

    def restored(label: str, boundary: str, towards: np.ndarray, *rules: str) -> None:
        b = Blur(h, g.shape, boundary)

        def at(lam: float) -> float:
            method = deblur.Deblurrer(h, g.shape, lam, boundary=boundary, prior="zero")
            return metrics.psnr(truth, method.solve(g - b.forward(towards), check=False).image + towards[b.crop])

        for rule in rules:
            out[f"{label}, {rule}"] = at(choose_lambda(b, g - b.forward(towards), rule).lam)
        out[f"{label}, best λ"] = max(map(at, 10.0 ** np.arange(-4, 0.6, 0.5)))

    restored("unknown", "unknown", prior_scene(blur, g), "gcv", "discrepancy")
    restored("unknown towards zero", "unknown", np.zeros(blur.scene_shape), "gcv")
    for boundary in WRONG:
        restored(boundary, boundary, np.zeros(g.shape), "gcv")
    out["wiener, best"] = best_wiener(g, centred(h, blur.origin), truth)
    return out | {"padded wiener, best": padded_wiener(g, blur, truth)}


def price(size: int, workers: int | None) -> None:
    product = itertools.product(IMAGES, KERNELS, (0.002, 0.01, 0.04))
    rows = each(one_price, [(*case, size, 2000 + i) for i, case in enumerate(product)], workers)
    lines = []
    for label in [key for key in rows[0] if key not in ("image", "psf", "noise")]:
        values = np.array([row[label] for row in rows])
        gain = values - [row["input"] for row in rows]
        line = {"method": label, "mean_psnr_db": float(values.mean())}
        line |= {"worst_gain_over_input_db": float(gain.min())}
        lines.append(line | {"cases_below_input": int((gain < 0).sum())})
    found = {"summary": lines, "cases": rows}
    save("boundary", found, price_tables(found), price_summary(found), size=size, psnr="not clipped")


def price_tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    cases = len(r["cases"])
    title = (
        f"**Photographs whose scene goes on beyond the frame.** {cases} cases. *best* means a parameter found "
        'with the sharp picture; *towards zero* is `prior="zero"`, without it `prior="smooth"`.'
    )
    columns = {"method": "{method}", "mean PSNR, dB": "{mean_psnr_db:.2f}"}
    columns |= {"worst gain over the input, dB": "{worst_gain_over_input_db:+.2f}"}
    return [table(title, columns | {"below the input": f"{{cases_below_input}} of {cases}"}, r["summary"])]


def price_summary(r: dict[str, Any]) -> str:
    by = {line["method"]: line for line in r["summary"]}
    ours, peer = by["unknown, gcv"], by["padded wiener, best"]
    return (
        f'On {len(r["cases"])} photographs whose scene goes on beyond the frame, `boundary="unknown"` with λ by `gcv` '
        f"reaches {ours['mean_psnr_db']:.1f} dB in the mean; smoothly padded `wiener` at its best parameter "
        f"{peer['mean_psnr_db']:.1f} dB. It was below the blurred input in {ours['cases_below_input']} of them."
    )


# ---------------------------------------------------------------- the detection


def draw_psf(rng: np.random.Generator) -> tuple[str, np.ndarray]:
    """A PSF of any common kind, and its name."""
    kinds = {
        "gaussian": lambda: deblur.psf.gaussian(2 * round(3 * (s := rng.uniform(0.6, 3))) + 1, s),
        "disk": lambda: deblur.psf.disk(int(rng.integers(3, 16))),
        "motion": lambda: deblur.psf.motion(int(rng.integers(5, 25)), float(rng.uniform(0, 180))),
        "line": lambda: deblur.psf.motion(int(rng.integers(5, 21)), float(rng.choice([0, 90]))),
        "camera_shake": lambda: deblur.psf.camera_shake(int(rng.choice([9, 13, 17, 25])), rng),
        "box": lambda: deblur.psf.box(int(rng.integers(2, 10))),
    }
    kind = str(rng.choice(list(kinds)))
    h = kinds[kind]()
    return f"{kind} {h.shape[0]} x {h.shape[1]}", h


def draw(seed: int, names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[dict[str, Any], Any, np.ndarray]:
    """A case, its blur, and a crop with its surroundings."""
    rng = np.random.default_rng(seed)
    while True:
        name, (words, h), size = str(rng.choice(names)), draw_psf(rng), int(rng.choice(sizes))
        picture, need = photograph(name), [size + m - 1 for m in h.shape]
        if min(n - m for n, m in zip(picture.shape, need)) < 0:
            continue
        scene = window(picture, need, rng)
        if np.ptp(scene) >= 0.05:  # not black sky alone
            break
    noise = float(rng.choice([0.0, 0.001, 0.003, 0.01, 0.02, 0.05]))
    return {"name": name, "psf": words, "size": size, "noise": noise}, Blur(h, (size, size), "unknown"), scene


def one_detection(seed: int, boundary: str) -> dict[str, Any]:
    """The boundary detected in one picture, and the loss by a wrong one."""
    case, blur, scene = draw(seed, HELD_OUT, SIZES)
    h, truth, beyond, noise = blur.psf, scene[blur.crop], blur.forward(scene), case["noise"]
    clean = beyond if boundary == "unknown" else Blur(h, truth.shape, boundary).forward(truth)
    g = clean + noise * np.random.default_rng(seed).standard_normal(clean.shape)
    result = deblur.solve(g, h, prior="smooth", check=False)
    hidden = float(((clean - beyond) ** 2).sum()) / 2 / (noise**2 + LEVEL**2)
    loss = 0.0
    if result.boundary != boundary:
        known = deblur.solve(g, h, boundary=boundary, prior="smooth", check=False)
        loss = limited(truth, known.image) - limited(truth, result.image)
    case |= {"boundary": boundary, "found": result.boundary, "loss_db": loss}
    return case | {"tellable": boundary == "unknown" or hidden > SURE}


def limited(truth: np.ndarray, image: np.ndarray) -> float:
    return min(PERFECT, metrics.psnr(truth, image))


def one_call(seed: int) -> dict[str, Any]:
    """The call without options beside padded `wiener`."""
    case, blur, scene = draw(seed, NEVER_SEEN, SIZES[:5])
    _, g, truth = going_on(scene, blur.psf, case["noise"], seed)
    result = deblur.solve(g, blur.psf, check=False)
    case |= {"seed": seed, "input_db": limited(truth, g), "ours_db": limited(truth, result.image)}
    case |= {"padded_wiener_db": min(PERFECT, padded_wiener(g, blur, truth))}
    return case | {"boundary": result.boundary, "lam": result.lam}


def detected(cases: int, workers: int | None) -> None:
    rows = each(one_detection, [(110_000 + i, BOUNDARIES[i % 3]) for i in range(cases)], workers)
    lines = []
    for boundary in BOUNDARIES:
        its = [row for row in rows if row["boundary"] == boundary]
        line = {"boundary": boundary, "cases": len(its)}
        line |= {"found": sum(row["found"] == boundary for row in its)}
        line |= {"tellable": sum(row["tellable"] for row in its)}
        line |= {f"taken for {b}": sum(row["found"] == b for row in its) for b in BOUNDARIES}
        line |= {"mean_loss_db": float(np.mean([row["loss_db"] for row in its]))}
        lines.append(line | {"worst_loss_db": max(row["loss_db"] for row in its)})
    missed = [row for row in rows if row["boundary"] != row["found"]]
    mean = float(np.mean([row["loss_db"] for row in rows]))
    found: dict[str, Any] = {"boundaries": {"summary": lines, "mean_loss_db": mean, "missed": missed}}
    calls = each(one_call, [(120_000 + i,) for i in range(cases)], workers)
    gain = np.array([row["ours_db"] - row["input_db"] for row in calls])
    kinds = ("input_db", "padded_wiener_db", "ours_db")
    means = {f"mean_{kind}": float(np.mean([row[kind] for row in calls])) for kind in kinds}
    means |= {"cases": len(calls), "below_input": int((gain < -0.1).sum())}
    below = [row for row in calls if row["ours_db"] < row["input_db"]]
    found["nothing_given"] = {"summary": means | {"worst_gain_db": float(gain.min())}, "below": below}
    save("auto_boundary", found, detected_tables(found), detected_summary(found), perfect_db=PERFECT)


def detected_tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    read, s = r["boundaries"], r["nothing_given"]["summary"]
    title = (
        f"**The boundary, detected in the picture.** {sum(row['cases'] for row in read['summary'])} crops of "
        "photographs that had no part in tuning the detection, 64² to 512², noise from 0 to 0.05. *Decidable* are "
        "those in which the surroundings change the picture by more than noise hides. The loss is against the true "
        f"boundary as an option, in dB, 60 dB being perfect; {read['mean_loss_db']:.3f} in the mean."
    )
    notes = (
        f"**No option.** `deblur.reconstruct(g, psf)` in {s['cases']} crops of other photographs whose scene goes on "
        f"beyond the frame, in dB in the mean: the blurred input {s['mean_input_db']:.2f}, scikit-image's `wiener` "
        "after smooth padding at its best parameter, found with the sharp picture, "
        f"{s['mean_padded_wiener_db']:.2f}, the call {s['mean_ours_db']:.2f}. More than 0.1 dB below its input in "
        f"{s['below_input']}; the least gain is {s['worst_gain_db']:.2f} dB."
    )
    columns = {"blurred with": "{boundary}", "cases": "{cases}", "decidable": "{tellable}"}
    columns |= {"taken for zero": "{taken for zero}", "periodic": "{taken for periodic}"}
    columns |= {"unknown": "{taken for unknown}"}
    columns |= {"mean loss": "{mean_loss_db:.2f}", "worst": "{worst_loss_db:.2f}"}
    return [table(title, columns, read["summary"], notes)]


def detected_summary(r: dict[str, Any]) -> str:
    by = {row["boundary"]: row for row in r["boundaries"]["summary"]}
    zero, periodic, unknown = (by[name] for name in BOUNDARIES)
    return (
        f"The boundary is detected: of pictures blurred with zero beyond the frame {zero['found']} of {zero['cases']} "
        f"were recognised, of periodic ones {periodic['found']} of {periodic['cases']}; of those whose scene goes on "
        f"{unknown['cases'] - unknown['found']} of {unknown['cases']} were taken for either."
    )


def main() -> None:
    options = asked(__doc__, parts=("price", "detected"), cases=480, workers=None)
    if "price" in options.parts:
        price(144, options.workers)
    if "detected" in options.parts:
        detected(options.cases, options.workers)


if __name__ == "__main__":
    main()

"""The accuracy of PSFs from data, of the error that each reports, and of the check of a PSF.

Synthetic cases that none of the methods was tuned on: other pictures, other seeds, PSFs of every kind. (The check's
allowance for JPEG alone was set on these photographs, with other PSFs and other noise.)

(a) points: fields of 12 to 40 stars with companions and noise. (b) edge: one slanted edge, round PSFs. (c) edges: two
edges, elliptical PSFs. (d) pair: a photograph, blurred, displaced by a fraction of a pixel, of another exposure. (e)
picture: defocus and motion from the blurred picture alone. For each: the relative error ‖h − truth‖/‖truth‖, over the
error that the estimate reports, the cases that it calls doubtful, and the loss of a restoration (default options) with
the estimate against one with the true PSF. (f) check: hundreds of right PSFs, and of turned, mirrored, resized and
foreign ones. (g) warning: how often `reconstruct` warns of a right PSF, of one turned and of one resized, for pictures
in seven forms, some with a tone curve.

    python benchmarks/bench_psf.py [--cases N] [--checks N] [--warnings N] [--seed S] [--workers N] [--quick]

--cases is of each source. Writes benchmarks/results/psf.json; with --quick it is a small run that writes nothing.
"""

from __future__ import annotations

import math
import time
from functools import cache
from typing import Any

import cases
import numpy as np
from _common import asked, each, save, table

import deblur
from deblur.image.light import linear_light, srgb
from deblur.psf.checking import mismatch
from deblur.psf.estimate import centre_of_gravity, placed, shift

#: The methods were tuned on "camera", "brick", "clock" and "cat".
PICTURES = (
    "astronaut", "coffee", "coins", "moon", "page", "rocket", "grass", "gravel", "motorcycle, left", "text",
)  # fmt: skip


@cache
def photograph(name: str) -> np.ndarray:
    """One of scikit-image's pictures, grey, at most 400 pixels a side."""
    return cases.crop(cases.photograph(name), 400)


def round_psf(rng: np.random.Generator) -> tuple[np.ndarray, str]:
    kind = str(rng.choice(["gaussian", "moffat", "disk", "airy"]))
    if kind == "gaussian":
        return deblur.psf.gaussian(31, float(rng.uniform(0.8, 3))), kind
    if kind == "moffat":
        return deblur.psf.moffat(41, float(rng.uniform(2.2, 5)), float(rng.uniform(2.5, 5))), kind
    if kind == "disk":
        return deblur.psf.disk(17, float(rng.uniform(1.6, 6))), kind
    return deblur.psf.airy(41, float(rng.uniform(2.5, 5))), kind


def any_psf(rng: np.random.Generator) -> tuple[np.ndarray, str]:
    kind = str(rng.choice(["round", "motion", "shake", "shake"]))
    if kind == "round":
        return round_psf(rng)
    if kind == "motion":
        return deblur.psf.motion(float(rng.uniform(5, 16)), float(rng.uniform(-90, 90))), kind
    return deblur.psf.camera_shake(2 * int(rng.integers(4, 9)) + 1, rng), kind


# ---------------------------------------------------------------- the cases


def points(rng: np.random.Generator) -> tuple[Any, np.ndarray, str]:
    """A field of stars, each drawn by its formula at its place."""
    kind = str(rng.choice(["gaussian", "moffat", "oval", "coma"]))
    a, b = float(rng.uniform(0.9, 2.6)), float(rng.uniform(2.5, 4.5))
    ratio, turn = float(rng.uniform(1.1, 1.8)), float(rng.uniform(0, math.pi))

    def profile(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        u, v = y * math.cos(turn) + x * math.sin(turn), x * math.cos(turn) - y * math.sin(turn)
        if kind == "gaussian":
            return np.exp(-(y**2 + x**2) / (2 * a**2))
        if kind == "moffat":
            return (1 + (y**2 + x**2) / (1.7 * a) ** 2) ** -b
        if kind == "oval":
            return np.exp(-((u / ratio) ** 2 + v**2) / (2 * a**2))
        return sum(
            (1.1 - t) * np.exp(-((u - 3 * t * a) ** 2 + v**2) / (2 * (a * (0.7 + 0.6 * t)) ** 2))
            for t in np.linspace(0, 1, 9)
        )

    n, noise = 260, float(rng.choice([0.002, 0.005, 0.01]))
    sky = 0.2 + 0.05 * np.linspace(0, 1, n) + noise * rng.standard_normal((n, n))
    y, x = np.indices((n, n))
    at = np.arange(61.0) - 30
    truth = profile(at[:, None], at[None, :])
    unit = truth.sum()
    stars = int(rng.integers(12, 41))
    for k in range(2 * stars):
        r, c = rng.uniform(3, n - 4, 2)
        flux = 10 ** rng.uniform(0.3, 1.4) if k < stars else 10 ** rng.uniform(-1, 0.3)
        near = (slice(max(int(r) - 25, 0), int(r) + 26), slice(max(int(c) - 25, 0), int(c) + 26))
        sky[near] += flux / unit * profile(y[near] - r, x[near] - c)
    away = centre_of_gravity(truth)
    for _ in range(3):
        truth = profile(at[:, None] + away[0], at[None, :] + away[1])
        more = centre_of_gravity(truth)
        away = (away[0] + more[0], away[1] + more[1])
    return deblur.psf.from_points(sky), truth / truth.sum(), f"{kind}, noise {noise}"


def drawn_edge(degrees: float, side: int, at: float) -> np.ndarray:
    a = math.radians(degrees)
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    u = (np.arange(16) + 0.5) / 16 - 0.5
    t = y * math.sin(a) + x * math.cos(a) + at
    mean = np.zeros((side, side))
    for p in u:
        mean += np.clip(0.5 + (t + p * math.sin(a)) / abs(math.cos(a)), 0, 1)
    return 0.2 + 0.6 * mean / 16


def edge(rng: np.random.Generator) -> tuple[Any, np.ndarray, str]:
    truth, kind = round_psf(rng)
    noise = float(rng.choice([0.002, 0.005, 0.01]))
    scene = drawn_edge(float(rng.uniform(3, 12) * rng.choice([-1, 1])), 150, float(rng.uniform(-1, 1)))
    seen = deblur.degrade(scene, truth, noise=noise, boundary="reflect", seed=rng)[25:-25, 25:-25]
    return deblur.psf.from_edge(seen), truth, f"{kind}, noise {noise}"


def edges(rng: np.random.Generator) -> tuple[Any, np.ndarray, str]:
    sigma = rng.uniform(0.9, 2.6, 2)
    truth = deblur.psf.gaussian(31, (float(sigma[0]), float(sigma[1])))
    noise = float(rng.choice([0.002, 0.005, 0.01]))
    one, other = (drawn_edge(float(rng.uniform(3, 12)), 130, at) for at in (0.2, 0.1))
    seen = deblur.degrade(np.concatenate([one, other.T], axis=1), truth, noise=noise, boundary="reflect", seed=rng)
    return deblur.psf.from_edge(seen, [(20, 110, 20, 110), (20, 110, 150, 240)]), truth, f"noise {noise}"


def pair(rng: np.random.Generator) -> tuple[Any, np.ndarray, str]:
    truth, kind = any_psf(rng)
    truth = deblur.psf.crop(deblur.psf.recentre(truth), 0.9999)
    name, noise = str(rng.choice(PICTURES)), float(rng.choice([0.002, 0.005, 0.01]))
    scene = photograph(name)[:260, :260]
    moved = shift(np.pad(scene, 16, mode="reflect"), rng.uniform(-6, 6, 2))[16:-16, 16:-16]
    seen = float(rng.uniform(0.6, 1.2)) * deblur.degrade(moved, truth, boundary="reflect")
    seen = seen + float(rng.uniform(0, 0.1)) + noise * rng.standard_normal(seen.shape)
    found = deblur.psf.from_pair(scene[16:-16, 16:-16], seen[16:-16, 16:-16], max(truth.shape) + 4)
    return found, truth, f"{name}, {kind}, noise {noise}"


def picture(rng: np.random.Generator) -> tuple[Any, np.ndarray, str]:
    kind = str(rng.choice(["disk", "motion"]))
    if kind == "disk":
        truth = deblur.psf.disk(19, float(rng.uniform(2, 8)))
    else:
        truth = deblur.psf.motion(float(rng.uniform(6, 25)), float(rng.uniform(-85, 85)))
    name, noise = str(rng.choice(PICTURES)), float(rng.choice([0.002, 0.005, 0.01]))
    seen = deblur.degrade(photograph(name), truth, noise=noise, boundary="unknown", seed=rng)
    return deblur.psf.fit(seen, of="image"), truth, f"{name}, {kind}, noise {noise}"


MAKE = {make.__name__: make for make in (points, edge, edges, pair, picture)}
SOURCES = tuple(MAKE)


def one(source: str, number: int, seed: int) -> dict[str, Any]:
    """One case of a source: what was found, and what a restoration loses by it."""
    rng = np.random.default_rng([seed, SOURCES.index(source), number])
    start = time.perf_counter()
    try:
        found, truth, words = MAKE[source](rng)
    except ValueError as error:
        return {"source": source, "refused": str(error)[:200]}
    seconds = time.perf_counter() - start
    shape = (81, 81)
    true = placed(truth, shape)
    error = float(np.linalg.norm(placed(found.psf, shape) - true) / np.linalg.norm(true))
    scene = photograph(PICTURES[number % len(PICTURES)])[:200, :200]
    blurred = deblur.degrade(scene, deblur.psf.crop(truth, 0.9995), noise=0.005, boundary="unknown", seed=rng)
    frames = {}
    for name, h in (("true", deblur.psf.crop(truth, 0.9995)), ("found", deblur.psf.crop(found.psf, 0.9995))):
        frames[name] = psnr_inside(scene, deblur.solve(blurred, h, boundary="unknown", check=False).image, truth)
    frames["blurred"] = psnr_inside(scene, blurred, truth)
    row = {"source": source, "words": words, "error": error, "told": found.error}
    return row | {"status": found.status.name, "seconds": seconds, "psnr": frames}


def psnr_inside(scene: np.ndarray, restored: np.ndarray, truth: np.ndarray) -> float:
    """PSNR where the blurred picture shows the scene, whatever part of a pixel the two are displaced by."""
    margin = 32  # a PSF has 61 rows at most
    inside = scene[margin:-margin, margin:-margin]
    top, left = ((s - r) // 2 for s, r in zip(scene.shape, restored.shape, strict=True))
    seen = restored[margin - top :, margin - left :][: inside.shape[0], : inside.shape[1]]
    return float(deblur.metrics.psnr(inside, seen))


# ---------------------------------------------------------------- the check and the warning


def blurred(rng: np.random.Generator, forms: tuple[str, ...], boundaries: tuple[str, ...]) -> tuple[Any, ...]:
    """(a picture in one of these forms, its PSF, the kind of the PSF)."""
    h, kind = any_psf(rng)
    h = deblur.psf.crop(deblur.psf.recentre(h), 0.999)
    name, noise = str(rng.choice(PICTURES)), float(rng.choice([0.001, 0.003, 0.01, 0.02]))
    form, scene = str(rng.choice(forms)), photograph(name)
    if form.startswith("sRGB"):  # light is blurred, and the camera's curve put upon it
        scene = linear_light(scene)
    elif form == "clipped":
        scene = 1.6 * scene
    image = deblur.degrade(scene, h, noise=noise, boundary=str(rng.choice(boundaries)), seed=rng)
    if form.startswith("sRGB"):
        image, form = srgb(np.clip(image, 0, 1)), form.removeprefix("sRGB, ").replace("sRGB", "8 bit")
    return cases.stored(image, form), h, kind


def checked(number: int, seed: int) -> dict[str, str]:
    """The verdict of `deblur.psf.check` on a picture with its right PSF and with wrong ones."""
    rng = np.random.default_rng([seed, 99, number])
    image, h, kind = blurred(rng, ("real numbers", "8 bit", "JPEG 90"), ("unknown",))
    scale = float(rng.choice([0.6, 0.75, 1.33, 1.7]))
    trials = {"right": h, "resized": deblur.psf.resample(h, scale), "foreign": any_psf(rng)[0]}
    if kind == "shake":
        trials["turned"] = h[::-1, ::-1]
    if kind in ("shake", "motion"):
        trials["mirrored"] = h[:, ::-1]
    return {label: deblur.psf.check(image, psf).verdict.name for label, psf in trials.items()}


def warned(number: int, seed: int) -> dict[str, bool]:
    """Whether `reconstruct` warns of a picture's right PSF and of wrong ones."""
    rng = np.random.default_rng([seed, 98, number])
    forms = ("real numbers", "clipped", "8 bit", "JPEG 90", "JPEG 75", "sRGB", "sRGB, JPEG 90")
    image, h, kind = blurred(rng, forms, ("unknown", "unknown", "reflect", "zero", "periodic"))
    scale = float(rng.choice([0.5, 0.6, 0.75, 1.33, 1.7, 2]))
    trials = {"right": h, "resized": deblur.psf.resample(h, scale)}
    if kind == "shake":
        trials["turned"] = h[::-1, ::-1]
    return {label: mismatch(image, psf) is not None for label, psf in trials.items()}


# ---------------------------------------------------------------- the run

#: What a warning and the verdicts of a check are counted as.
OUTCOMES: dict[Any, str] = {True: "warned", "DOES_NOT_FIT": "alarms", "FITS": "fits"}


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The line of a source."""
    done = [r for r in rows if "refused" not in r]
    good = [r for r in done if r["status"] != "DOUBTFUL"]
    psnr = [r["psnr"] for r in good]
    loss = [p["true"] - p["found"] for p in psnr]
    gain = [(p["found"] - p["blurred"]) / max(p["true"] - p["blurred"], 0.1) for p in psnr]
    return {
        "cases": len(rows),
        "refused": len(rows) - len(done),
        "doubtful": len(done) - len(good),
        "error_median": float(np.median([r["error"] for r in good])),
        "error_90": float(np.quantile([r["error"] for r in good], 0.9)),
        "within_twice_told": float(np.mean([r["error"] <= 2 * r["told"] for r in good])),
        "loss_median_db": float(np.median(loss)),
        "loss_90_db": float(np.quantile(loss, 0.9)),
        "gain_kept_median": float(np.median(gain)),
    }


def tables(r: dict[str, Any], checks: int) -> list[dict[str, Any]]:
    names = {
        "points": "stars, 12 to 40",
        "edge": "one slanted edge",
        "edges": "two slanted edges, an ellipse",
        "pair": "sharp and blurred picture",
        "picture": "blurred picture alone: defocus, motion",
    }
    shares = ("error_median", "error_90", "within_twice_told", "gain_kept_median")
    rows = []
    for source, line in r["sources"].items():
        row = {"name": names[source], "unused": line["refused"] + line["doubtful"]}
        rows.append(line | row | {k: 100 * line[k] for k in shares})
    columns = {"PSF from": "{name}", "cases": "{cases}", "refused or doubtful": "{unused}"}
    columns |= {"error, %": "{error_median:.1f}", "90 % below, %": "{error_90:.1f}"}
    columns |= {"within twice the estimated error, %": "{within_twice_told:.0f}"}
    columns |= {"loss, dB": "{loss_median_db:.2f}", "90 % below, dB": "{loss_90_db:.2f}"}
    columns |= {"gain kept, %": "{gain_kept_median:.0f}"}
    title = (
        "**PSFs from data.** Synthetic cases on pictures that no method was tuned on. *Error* is ‖h − truth‖/‖truth‖, "
        "the median; *loss* the PSNR of a restoration with the estimate below that with the true PSF, and *gain kept* "
        "the part of the latter's gain over the blurred picture, both of the cases that are neither refused nor "
        "doubtful."
    )
    kinds = {
        "right": "the right one",
        "turned": "rotated by 180°",
        "mirrored": "mirrored",
        "resized": "0.6 to 1.7 times its size",
        "foreign": "of another picture",
    }
    trials = [{"name": name, **r["check"][kind]} for kind, name in kinds.items()]
    second = (
        f"`deblur.psf.check` of {checks} pictures, as floats, 8 bits and JPEG, with their right PSF and with wrong "
        "ones; its allowance for JPEG was set on the same photographs with other PSFs. The size of a Gaussian cannot "
        "be checked, and a symmetric PSF equals its own rotation."
    )
    judged = {"PSF": "{name}", "trials": "{trials}", "does not fit": "{alarms}", "fits": "{fits}"}
    warned = (r["warnings"][kind] for kind in ("right", "turned", "resized"))
    right, turned, resized = (f"{kind['warned']} of {kind['trials']}" for kind in warned)
    notes = (
        f"`reconstruct` warns in {right} cases with the right PSF (seven forms of pictures, some with a tone curve; "
        f"five boundaries), in {turned} where it was rotated by 180°, and in {resized} where it was taken for pixels "
        "of another size."
    )
    return [table(title, columns, rows), table(second, judged, trials, notes)]


def main() -> None:
    options = asked(__doc__, cases=60, checks=400, warnings=600, seed=2026, workers=None, quick=False)
    numbers = (2, 6, 6) if options.quick else (options.cases, options.checks, options.warnings)
    found: dict[str, Any] = {}
    rows = each(one, [(s, i, options.seed) for s in SOURCES for i in range(numbers[0])], options.workers)
    found["sources"] = {s: summed([r for r in rows if r["source"] == s]) for s in SOURCES}
    verdicts, alarms = (
        each(f, [(i, options.seed) for i in range(n)], options.workers)
        for f, n in ((checked, numbers[1]), (warned, numbers[2]))
    )
    for part, trials in (("check", verdicts), ("warnings", alarms)):
        found[part] = {}
        for kind, outcome in (item for row in trials for item in row.items()):
            counts = found[part].setdefault(kind, dict.fromkeys(("trials", *OUTCOMES.values()), 0))
            counts["trials"] += 1
            if outcome in OUTCOMES:
                counts[OUTCOMES[outcome]] += 1
    settings = {"cases": numbers[0], "checks": numbers[1], "pictures": PICTURES}
    save("psf", found, tables(found, numbers[1]), write=not options.quick, **settings)


if __name__ == "__main__":
    main()

"""How good are PSFs from data, does each know its own error, and does the check of a PSF raise false alarms?

Synthetic cases that none of the methods was tuned on: other pictures, other seeds, PSFs of every kind. (The check's
allowance for JPEG alone was set on these photographs, with other PSFs and other noise.)

(a) points: fields of 12 to 40 stars with companions and noise. (b) edge: one slanted edge, round PSFs. (c) edges: two
edges, elliptical PSFs. (d) pair: a photograph, blurred, displaced by a fraction of a pixel, of another exposure.
(e) picture: defocus and motion from the blurred picture alone. For each: the relative error ‖h − truth‖/‖truth‖, over
the error that the estimate tells, the cases that it calls doubtful, and what a restoration (default road, λ by rule)
with the estimate loses against one with the true PSF. (f) check: hundreds of right PSFs, and of turned, mirrored,
resized and foreign ones. (g) alarm: how often `reconstruct` warns of a right PSF, of one turned and of one resized, for
pictures in seven forms, some with a tone curve, and what the look at the picture takes of the call.

    python benchmarks/bench_psf.py [--cases N] [--checks N] [--alarms N] [--seed S] [--workers N] [--quick]

Writes benchmarks/results/psf.json; with --quick it is a small run that writes nothing.
"""

from __future__ import annotations

import argparse
import io
import math
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import _common
import numpy as np
from PIL import Image

import deblur
from deblur.image.light import linear_light, srgb
from deblur.psf.checking import alarm
from deblur.psf.estimate import centre_of_gravity, placed, shift

#: The methods were tuned on "camera", "brick", "clock" and "cat".
PICTURES = (
    "astronaut",
    "chelsea",
    "coffee",
    "coins",
    "moon",
    "page",
    "rocket",
    "grass",
    "gravel",
    "motorcycle_left",
)
SOURCES = ("points", "edge", "edges", "pair", "picture")


@cache
def photograph(name: str) -> np.ndarray:
    """One of scikit-image's pictures, grey, at most 400 pixels a side."""
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    [path] = [p for p in folder.iterdir() if p.stem == name and p.suffix in (".png", ".jpg")]
    picture = deblur.image.read(path)
    picture = picture[..., :3].mean(axis=-1) if picture.ndim == 3 else picture
    rows, cols = (slice((n - min(n, 400)) // 2, (n + min(n, 400)) // 2) for n in picture.shape)
    return picture[rows, cols]


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
    both = [
        drawn_edge(float(rng.uniform(3, 12)), 130, 0.2),
        drawn_edge(float(rng.uniform(3, 12)), 130, 0.1).T,
    ]
    seen = deblur.degrade(np.concatenate(both, axis=1), truth, noise=noise, boundary="reflect", seed=rng)
    return deblur.psf.from_edge(seen, [(20, 110, 20, 110), (20, 110, 150, 240)]), truth, f"noise {noise}"


def pair(rng: np.random.Generator) -> tuple[Any, np.ndarray, str]:
    truth, kind = any_psf(rng)
    truth = deblur.psf.crop(deblur.psf.recentre(truth), 0.9999)
    name, noise = str(rng.choice(PICTURES)), float(rng.choice([0.002, 0.005, 0.01]))
    scene = photograph(name)[:260, :260]
    moved = shift(np.pad(scene, 16, mode="reflect"), rng.uniform(-6, 6, 2))[16:-16, 16:-16]
    seen = float(rng.uniform(0.6, 1.2)) * deblur.degrade(moved, truth, boundary="reflect") + float(
        rng.uniform(0, 0.1)
    )
    seen = seen + noise * rng.standard_normal(seen.shape)
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


MAKE: dict[str, Callable[[np.random.Generator], tuple[Any, np.ndarray, str]]] = {
    "points": points,
    "edge": edge,
    "edges": edges,
    "pair": pair,
    "picture": picture,
}


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
        restored = deblur.solve(blurred, h, boundary="unknown", check=False).image
        frames[name] = psnr_inside(scene, restored, truth)
    frames["blurred"] = psnr_inside(scene, blurred, truth)
    return {
        "source": source,
        "words": words,
        "error": error,
        "told": found.error,
        "status": found.status.name,
        "seconds": seconds,
        "psnr": frames,
    }


def psnr_inside(scene: np.ndarray, restored: np.ndarray, truth: np.ndarray) -> float:
    """PSNR where the blurred picture shows the scene, whatever part of a pixel the two are displaced by."""
    margin = 32  # a PSF has 61 rows at most
    inside = scene[margin:-margin, margin:-margin]
    top, left = ((s - r) // 2 for s, r in zip(scene.shape, restored.shape, strict=True))
    seen = restored[
        margin - top : margin - top + inside.shape[0], margin - left : margin - left + inside.shape[1]
    ]
    return float(deblur.metrics.psnr(inside, seen))


# ---------------------------------------------------------------- the check


def checked(number: int, seed: int) -> dict[str, Any]:
    """A picture with its right PSF and with wrong ones: what the check says of each."""
    rng = np.random.default_rng([seed, 99, number])
    h, kind = any_psf(rng)
    h = deblur.psf.crop(deblur.psf.recentre(h), 0.999)
    name, noise = str(rng.choice(PICTURES)), float(rng.choice([0.001, 0.003, 0.01, 0.02]))
    image = deblur.degrade(photograph(name), h, noise=noise, boundary="unknown", seed=rng)
    form = str(rng.choice(["float", "8 bits", "JPEG 90"]))
    if form != "float":
        image = (np.clip(image, 0, 1) * 255).round() / 255
    if form == "JPEG 90":
        held = io.BytesIO()
        Image.fromarray((image * 255).astype(np.uint8)).save(held, "JPEG", quality=90)
        image = np.asarray(Image.open(held)) / 255.0
    scale = float(rng.choice([0.6, 0.75, 1.33, 1.7]))
    stranger, strange = any_psf(rng)
    trials = {"right": h, "resized": deblur.psf.resample(h, scale), "foreign": stranger}
    if kind == "shake":
        trials["turned"] = h[::-1, ::-1]
    if kind in ("shake", "motion"):
        trials["mirrored"] = h[:, ::-1]
    out: dict[str, Any] = {
        "words": f"{name}, {kind}, noise {noise}, {form}, foreign {strange}, scale {scale}",
        "kind": kind,
    }
    for label, psf in trials.items():
        start = time.perf_counter()
        found = deblur.psf.check(image, psf)
        numbers = {k: v for k, v in found.details.items() if isinstance(v, float)}
        out[label] = {"verdict": found.verdict.name, "seconds": time.perf_counter() - start, **numbers}
    return out


# ---------------------------------------------------------------- the warning


def alarmed(number: int, seed: int) -> dict[str, Any]:
    """A picture with its right PSF and with wrong ones: whether `reconstruct` would warn of each."""
    rng = np.random.default_rng([seed, 98, number])
    h, kind = any_psf(rng)
    h = deblur.psf.crop(deblur.psf.recentre(h), 0.999)
    name, noise = str(rng.choice(PICTURES)), float(rng.choice([0.001, 0.003, 0.01, 0.02]))
    form = str(rng.choice(["float", "clipped", "8 bits", "JPEG 90", "JPEG 75", "sRGB", "sRGB, JPEG 90"]))
    scene = photograph(name)
    if form.startswith("sRGB"):  # light is blurred, and the camera's curve put upon it
        scene = linear_light(scene)
    elif form == "clipped":
        scene = 1.6 * scene
    boundary = str(rng.choice(["unknown", "unknown", "reflect", "zero", "periodic"]))
    image = deblur.degrade(scene, h, noise=noise, boundary=boundary, seed=rng)
    if form != "float":
        image = np.clip(image, 0, 1)
    if form.startswith("sRGB"):
        image = srgb(image)
    if form not in ("float", "clipped"):
        image = (image * 255).round() / 255
    if "JPEG" in form:
        held = io.BytesIO()
        Image.fromarray((image * 255).astype(np.uint8)).save(held, "JPEG", quality=int(form[-2:]))
        image = np.asarray(Image.open(held)) / 255.0
    trials = {
        "right": h,
        "resized": deblur.psf.resample(h, float(rng.choice([0.5, 0.6, 0.75, 1.33, 1.7, 2]))),
    }
    if kind == "shake":
        trials["turned"] = h[::-1, ::-1]
    return {"words": f"{name}, {kind}, noise {noise}, {form}, {boundary}"} | {
        label: alarm(image, psf) for label, psf in trials.items()
    }


def alarm_seconds() -> list[dict[str, Any]]:
    """What the look at the picture takes, beside the call with nothing but the PSF and with tv."""
    h, rows = deblur.psf.camera_shake(17, 3), []
    for side in (256, 400, 512):
        scene = deblur.data.load("camera").astype(float)[:side, :side]
        image = deblur.degrade(scene, h, noise=0.005, boundary="unknown", seed=0)
        calls = {
            "alarm": lambda image=image: alarm(image, h),
            "reconstruct": lambda image=image: deblur.reconstruct(image, h),
            "tv": lambda image=image: deblur.reconstruct(image, h, method="tv"),
        }
        seconds = {name: t["median_s"] for name, t in _common.time_together(calls, repeats=5).items()}
        rows.append({"side": side, **seconds, "share": seconds["alarm"] / seconds["reconstruct"]})
    return rows


# ---------------------------------------------------------------- the run


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The line of a source."""
    done = [r for r in rows if "refused" not in r]
    good = [r for r in done if r["status"] != "DOUBTFUL"]
    loss = [r["psnr"]["true"] - r["psnr"]["found"] for r in good]
    gain = [
        (r["psnr"]["found"] - r["psnr"]["blurred"]) / max(r["psnr"]["true"] - r["psnr"]["blurred"], 0.1)
        for r in good
    ]
    return {
        "cases": len(rows),
        "refused": len(rows) - len(done),
        "doubtful": len(done) - len(good),
        "error_median": float(np.median([r["error"] for r in good])),
        "error_90": float(np.quantile([r["error"] for r in good], 0.9)),
        "error_over_told_median": float(np.median([r["error"] / r["told"] for r in good])),
        "within_twice_told": float(np.mean([r["error"] <= 2 * r["told"] for r in good])),
        "loss_median_db": float(np.median(loss)),
        "loss_90_db": float(np.quantile(loss, 0.9)),
        "gain_kept_median": float(np.median(gain)),
        "seconds_median": float(np.median([r["seconds"] for r in good])),
    }


def alarms(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each kind of trial: how many, and of how many the check says that they do not fit."""
    out = {}
    for label in ("right", "turned", "mirrored", "resized", "foreign"):
        some = [r[label] for r in rows if label in r]
        out[label] = {
            "trials": len(some),
            "alarms": sum(t["verdict"] == "DOES_NOT_FIT" for t in some),
            "fits": sum(t["verdict"] == "FITS" for t in some),
            "seconds_median": float(np.median([t["seconds"] for t in some])) if some else 0.0,
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=60, help="of each source")
    parser.add_argument("--checks", type=int, default=400)
    parser.add_argument("--alarms", type=int, default=600)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    cases, checks, looks = (2, 4, 4) if args.quick else (args.cases, args.checks, args.alarms)
    seconds = alarm_seconds()
    with _common.side_by_side(args.workers) as pool:
        jobs = {s: [pool.submit(one, s, i, args.seed) for i in range(cases)] for s in SOURCES}
        trials = [pool.submit(checked, i, args.seed) for i in range(checks)]
        warned = [pool.submit(alarmed, i, args.seed) for i in range(looks)]
        rows = {s: [job.result() for job in found] for s, found in jobs.items()}
        checked_rows = [t.result() for t in trials]
        warned_rows = [w.result() for w in warned]
    lines = {s: summed(found) for s, found in rows.items()}
    _common.print_table([{"source": s, **line} for s, line in lines.items()])
    print()
    _common.print_table([{"psf": label, **line} for label, line in alarms(checked_rows).items()])
    for row in checked_rows:
        if row["right"]["verdict"] == "DOES_NOT_FIT":
            print("false alarm:", row["words"], row["right"])
    warnings = {
        label: {
            "trials": sum(label in r for r in warned_rows),
            "warned": sum(r.get(label) is not None for r in warned_rows),
        }
        for label in ("right", "turned", "resized")
    }
    print(warnings)
    for row in warned_rows:
        if row["right"] is not None:
            print("false warning:", row["words"], row["right"])
    _common.print_table(seconds)
    if not args.quick:
        results = {
            "sources": lines,
            "check": alarms(checked_rows),
            "warnings": warnings,
            "warning seconds": seconds,
        }
        _common.save("psf", results, cases=cases, checks=checks, seed=args.seed, pictures=PICTURES)


if __name__ == "__main__":
    main()

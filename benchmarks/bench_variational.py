"""The variational methods beside the peers, on 24 photographs made worse in six ways; see variational_cases.py.

    python benchmarks/bench_variational.py [--quick] [--pnp] [--peers] [--scico FILE] [--workers N]

For each case, in dB: the blurred image; every peer at its own best parameter, found with the truth at hand
(`unsupervised_wiener`, which has none, as it is); ours with no number given (the noise's kind is named where it is
impulses or photons: mask="auto", data="poisson"); ours at the best λ. Writes benchmarks/results/variational.json.

The peers' figures are kept in benchmarks/results/variational_peers.json, so that ours can be run again without them:
--peers measures them anew, --scico takes in what peer_scico.py wrote. Ours take about 15 minutes on one core, the
peers 5, and plug and play (--pnp) 30 more. Speed, impulses and the thesis's table have scripts of their own:
bench_variational_speed.py, bench_impulses.py, bench_table_mse.py.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import _common
import numpy as np
from bench_boundary import centred, padded
from bench_experiments import SET_ASIDE
from variational_cases import Case, cases, score

import deblur
from deblur import Blur
from deblur.methods import METHODS
from deblur.problem import Problem
from deblur.terms import DataFidelity

NAME, PEERS = "variational", "variational_peers"
OURS = ("tv", "tv2", "collaborative")
AUTOMATIC = ("tv", "collaborative")
FACTORS = 2.0 ** np.arange(2, -2.1, -0.5)  # of the tuned λ, where the best is looked for first
SMALLEST = 1e-7


def hints(case: Case) -> dict[str, Any]:
    """What a user says about the noise: its kind, no number."""
    if case.noise.startswith("salt"):
        return {"mask": "auto"}
    return {"data": "poisson"} if case.noise.startswith("poisson") else {}


# ---------------------------------------------------------------- the peers


def restorers(blur: Blur, g: np.ndarray) -> dict[str, Callable[[Any], np.ndarray]]:
    """By each peer's name: its parameter to the restored image inside the frame."""
    from skimage.restoration import richardson_lucy, unsupervised_wiener, wiener

    rows, cols = g.shape
    h = centred(blur.psf, blur.origin)
    wide = padded(g, (2 * h.shape[0], 2 * h.shape[1]))
    mirrored = np.pad(np.maximum(g, 0), [(n, n) for n in h.shape], mode="symmetric")
    inner = tuple(slice(n, n + m) for n, m in zip(h.shape, g.shape))

    def unsupervised(_: None) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return unsupervised_wiener(g, h, clip=False, rng=0)[0]

    return {
        "wiener": lambda balance: wiener(g, h, balance, clip=False),
        "wiener, padded": lambda balance: wiener(wide, h, balance, clip=False)[:rows, :cols],
        "richardson_lucy, mirrored": lambda steps: richardson_lucy(mirrored, h, steps, clip=False)[inner],
        "unsupervised_wiener": unsupervised,
        "pylops cgls": lambda steps: cgls(blur, g, steps),
    }


def cgls(
    blur: Blur, g: np.ndarray, steps: int, look: Callable[[np.ndarray], None] | None = None
) -> np.ndarray:
    """PyLops's CGLS with the case's own boundary; `look` is shown the image after each step."""
    import pylops

    class Operator(pylops.LinearOperator):
        def __init__(self) -> None:
            super().__init__(dtype=np.float64, shape=blur.shape)

        def _matvec(self, x: np.ndarray) -> np.ndarray:
            return blur.matvec(x)

        def _rmatvec(self, x: np.ndarray) -> np.ndarray:
            return blur.rmatvec(x)

    def inside(x: np.ndarray) -> np.ndarray:
        return x.reshape(blur.scene_shape)[blur.crop]

    pads = [(c.start, n - c.stop) for c, n in zip(blur.crop, blur.scene_shape)]
    start = np.pad(g, pads, mode="edge").ravel()
    callback = None if look is None else lambda x: look(inside(x))
    x = pylops.optimization.basic.cgls(Operator(), g.ravel(), start, niter=steps, tol=0, callback=callback)[0]
    return inside(x)


def peers_of(at: int, size: int) -> dict[str, Any]:
    """Every peer's best PSNR on one case, and the parameter it took."""
    case = cases(size)[at]
    blur, g, truth = case.make()
    restore = restorers(blur, g)
    out: dict[str, Any] = {"case": str(case)}

    def best(name: str, tried: dict[Any, float]) -> None:
        parameter = max(tried, key=tried.__getitem__)
        out[name] = {"psnr": tried[parameter], "parameter": parameter}

    balances = 10.0 ** np.arange(-7, 1.1, 0.25)
    for name in ("wiener", "wiener, padded"):
        best(name, {float(b): score(truth, restore[name](b)) for b in balances})
    name, tried, last = "richardson_lucy, mirrored", {}, -math.inf
    for steps in np.unique(np.rint(2.0 ** np.arange(0, 8.1, 0.5)).astype(int)):
        value = score(truth, restore[name](int(steps)))
        tried[int(steps)] = value
        if value < last - 1:
            break
        last = value
    best(name, tried)
    best("unsupervised_wiener", {None: score(truth, restore["unsupervised_wiener"](None))})
    if find_spec("pylops"):
        seen: list[float] = []
        cgls(blur, g, 150, lambda image: seen.append(score(truth, image)))
        best("pylops cgls", dict(enumerate(seen, start=1)))
    return out


def measure_peers(options: argparse.Namespace, count: int) -> None:
    rows = _each(peers_of, count, options, "peers")
    versions = {}
    for package in ("scikit-image", "pylops"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    record = _read(PEERS) or {"results": {}}
    results = record["results"]
    results |= {"cases": {row.pop("case"): row for row in rows}, "versions": versions}
    _common.save(PEERS, results)


def take_in_scico(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    results = (_read(PEERS) or {"results": {"cases": {}}})["results"]
    results["scico"] = found
    _common.save(PEERS, results)


def peer_table() -> dict[str, dict[str, float]]:
    """case: {peer: dB}, from the recorded file."""
    record = _read(PEERS)
    if record is None:
        return {}
    table = {
        name: {peer: row[peer]["psnr"] for peer in row}
        for name, row in record["results"].get("cases", {}).items()
    }
    for row in record["results"].get("scico", {}).get("cases", []):
        table.setdefault(row["case"], {})["scico admm-tv"] = row["psnr"]
    return table


# ---------------------------------------------------------------- ours


def ours_of(at: int, size: int) -> dict[str, Any]:
    """One case: with no number given, and at the best λ."""
    case = cases(size)[at]
    blur, g, truth = case.make()
    said = hints(case)
    if "data" in said:
        g = np.maximum(g, 0)
    row: dict[str, Any] = {"case": str(case), "noise": case.noise, "boundary": case.boundary}
    row["input"] = score(truth, g)
    for method in AUTOMATIC:
        start = time.perf_counter()
        result = deblur.solve(g, blur.psf, method=method, boundary=case.boundary, check=False, **said)
        took = time.perf_counter() - start
        start = time.perf_counter()
        deblur.solve(g, blur.psf, result.lam, method=method, boundary=case.boundary, check=False, **said)
        row[f"{method}, automatic"] = {
            "psnr": score(truth, result.image),
            "lam": result.lam,
            "why": result.lam_reason,
            "seconds": took,
            "seconds_given_lam": time.perf_counter() - start,
        }
    tuned = row["tv, automatic"]["lam"]
    fit = DataFidelity(said.get("data", "gaussian"))
    if "mask" in said:
        from deblur.denoise.impulses import detect

        mask = detect(g)
        clean = case.unharmed(g)
        row["mask"] = {
            "impulses": int((~clean).sum()),
            "missed": int((~clean & ~mask).sum()),
            "false_alarms": int((clean & mask).sum()),
        }
        fit = replace(fit, weights=(~mask).astype(float)[None, None])
    frames = g[None, None]
    for pilot, methods in (("tv", ("tv", "collaborative")), ("tv2", ("tv2",))):
        seen: dict[str, dict[float, float]] = {method: {} for method in methods}
        solution = None
        lams = list(tuned * FACTORS)
        while lams:
            lam = lams.pop(0)

            def solved(method: str, start: Any, lam: float = lam) -> Any:
                problem = Problem(blur, lam, METHODS[method].regularizer, fit)
                return METHODS[method].prepare(problem).solve(frames, start)

            solution = solved(pilot, solution)
            for method in methods:
                final = solution if method == pilot else solved(method, solution)
                seen[method][lam] = score(truth, final.scene[0, 0][blur.crop])
            # Downwards for as long as it gets better; the walk begins above.
            if (
                not lams
                and lam / 2 >= SMALLEST
                and any(max(s, key=s.__getitem__) == lam for s in seen.values())
            ):
                lams.append(lam / 2)
        for method in methods:
            lam = max(seen[method], key=seen[method].__getitem__)
            automatic = row.get(f"{method}, automatic")
            if automatic is not None and automatic["psnr"] > seen[method][lam]:
                seen[method][automatic["lam"]] = automatic["psnr"]  # it, too, is a λ that was tried
                lam = automatic["lam"]
            row[f"{method}, best λ"] = {
                "psnr": seen[method][lam],
                "lam": lam,
                "tried": {f"{k:.3g}": v for k, v in seen[method].items()},
            }
    return row


def plug_and_play_of(at: int, size: int) -> dict[str, Any]:
    """One case with the collaborative filter as a denoiser, with no number given and at λ half and twice as large."""
    case = cases(size)[at]
    blur, g, truth = case.make()
    said = hints(case) | {
        "method": "pnp",
        "denoiser": "collaborative",
        "boundary": case.boundary,
        "check": False,
    }
    if "data" in said:
        g = np.maximum(g, 0)
    start = time.perf_counter()
    result = deblur.solve(g, blur.psf, **said)
    took = time.perf_counter() - start
    tried = {1.0: score(truth, result.image)}
    for factor in (0.5, 2.0):
        tried[factor] = score(truth, deblur.solve(g, blur.psf, factor * result.lam, **said).image)
    best = max(tried, key=tried.__getitem__)
    return {
        "case": str(case),
        "noise": case.noise,
        "input": score(truth, g),
        "automatic": {"psnr": tried[1.0], "lam": result.lam, "seconds": took},
        "best λ": {"psnr": tried[best], "lam": best * result.lam},
    }


def plug_and_play(options: argparse.Namespace, count: int) -> dict[str, Any]:
    rows = _each(plug_and_play_of, count, options, "pnp")
    means = {label: float(np.mean([row[label]["psnr"] for row in rows])) for label in ("automatic", "best λ")}
    gain = min(row["automatic"]["psnr"] - row["input"] for row in rows)
    seconds = float(np.median([row["automatic"]["seconds"] for row in rows]))
    return {"mean_psnr_db": means, "worst_gain_over_input_db": gain, "median_s": seconds, "cases": rows}


def quality(options: argparse.Namespace, count: int) -> dict[str, Any]:
    rows = _each(ours_of, count, options, "ours")
    peers = peer_table()
    for row in rows:
        row["peers"] = peers.get(row["case"], {})
    return {"summary": summary(rows), "cases": rows}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The issue's figures, from the rows."""
    known = [row for row in rows if row["peers"]]
    names = sorted({peer for row in known for peer in row["peers"]})
    labels = [key for key in rows[0] if key.endswith((", automatic", ", best λ"))]

    def mean(values: list[float]) -> float:
        return float(np.mean(values)) if values else math.nan

    def means(chosen: list[dict[str, Any]]) -> dict[str, float]:
        table = {"input": mean([row["input"] for row in chosen])}
        for name in names:
            values = [row["peers"].get(name, math.nan) for row in chosen]
            if not np.isnan(values).any():
                table[name] = mean(values)
        return table | {label: mean([row[label]["psnr"] for row in chosen]) for label in labels}

    out: dict[str, Any] = {"mean_psnr_db": {"all": means(rows)}}
    for half, aside in (("tuned on", False), ("set aside", True)):
        chosen = [row for row in rows if (row["case"].partition(",")[0] in SET_ASIDE) == aside]
        out["mean_psnr_db"][half] = means(chosen) if chosen else {}
    for noise in dict.fromkeys(row["noise"] for row in rows):
        out["mean_psnr_db"][noise] = means([row for row in rows if row["noise"] == noise])
    spared = [row for row in rows if not row["noise"].startswith("salt")]
    out["mean_psnr_db"]["all but salt & pepper"] = means(spared) if spared else {}
    for method in AUTOMATIC:
        loss = np.array(
            [row[f"{method}, best λ"]["psnr"] - row[f"{method}, automatic"]["psnr"] for row in rows]
        )
        gain = np.array([row[f"{method}, automatic"]["psnr"] - row["input"] for row in rows])
        ratio = [
            row[f"{method}, automatic"]["seconds"] / row[f"{method}, automatic"]["seconds_given_lam"]
            for row in rows
        ]
        out[f"{method}, automatic"] = {
            "median_loss_db": float(np.median(loss)),
            "loss_db_95th_percentile": float(np.percentile(loss, 95)),
            "worst_loss_db": float(loss.max()),
            "worst_gain_over_input_db": float(gain.min()),
            "median_time_over_one_solve": float(np.median(ratio)),
        }
    if known:
        for label in [
            *(f"{method}, automatic" for method in AUTOMATIC),
            *(f"{method}, best λ" for method in OURS),
        ]:
            behind = {row["case"]: max(row["peers"].values()) - row[label]["psnr"] for row in known}
            worst = max(behind, key=behind.__getitem__)
            out[f"{label}: behind the best peer"] = {
                "worst_db": behind[worst],
                "worst_case": worst,
                "cases_over_0.5_db": sum(b > 0.5 for b in behind.values()),
            }
    masks = [row["mask"] for row in rows if "mask" in row]
    if masks:
        out["detector"] = {key: sum(m[key] for m in masks) for key in masks[0]}
    return out


# ---------------------------------------------------------------- running


def _each(function: Any, count: int, options: argparse.Namespace, what: str) -> list[dict[str, Any]]:
    """`function(case, size)` for every case, side by side."""
    from tqdm import tqdm

    sizes = [options.size] * count
    if options.workers == 1:
        return [function(*work) for work in tqdm(list(zip(range(count), sizes)), desc=what, disable=None)]
    with _common.side_by_side(options.workers) as pool:
        return list(tqdm(pool.map(function, range(count), sizes), total=count, desc=what, disable=None))


def _read(name: str) -> dict[str, Any] | None:
    path = _common.RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def show(found: dict[str, Any]) -> None:
    table = found["mean_psnr_db"]
    print("Mean PSNR in dB\n")
    _common.print_table(
        [
            {"": name, **{group: float(values.get(name, math.nan)) for group, values in table.items()}}
            for name in table["all"]
        ]
    )
    for key, value in found.items():
        if key != "mean_psnr_db":
            print(f"\n{key}: {value}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="6 cases of 96 pixels a side; writes nothing")
    parser.add_argument("--peers", action="store_true", help="measure the peers anew, before the rest")
    parser.add_argument("--peers-only", action="store_true", help="stop after the peers")
    parser.add_argument("--scico", type=Path, help="take in a file of peer_scico.py")
    parser.add_argument("--pnp", action="store_true", help="plug and play alone; the rest stays as recorded")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    options.size = 96 if options.quick else 256
    count = 6 if options.quick else len(cases())
    start = time.perf_counter()
    if options.scico:
        take_in_scico(options.scico)
    if options.peers:
        measure_peers(options, len(cases()))
    if options.peers_only:
        return
    begun = time.perf_counter()
    recorded = {} if options.quick else (_read(NAME) or {"results": {}})["results"]
    if options.pnp:
        results = recorded | {"plug and play": plug_and_play(options, count)}
        print({k: v for k, v in results["plug and play"].items() if k != "cases"})
    else:
        results = recorded | quality(options, count)
        results["seconds"] = time.perf_counter() - begun
    if not options.quick:
        _common.save(NAME, results, size=options.size, psnr="clipped to [0, 1], inside the frame")
    if "summary" in results:
        show(results["summary"])
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()

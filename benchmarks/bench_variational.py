"""The variational methods beside the peers, on the 24 photographs of ``cases.py``.

    python benchmarks/bench_variational.py [--quick] [--parts ours peers scico] [--workers N]

ours: for each case, in dB, the blurred image; every peer at its own best parameter, found with the truth at hand
(`unsupervised_wiener`, which has none, as it is); ours with no number given (the kind of the noise is named where it is
impulses or photons: mask="auto", data="poisson"); ours at the best λ. Writes benchmarks/results/variational.json;
about 15 minutes on one core.

peers, scico: their figures, kept in benchmarks/results/variational_peers.json, so that ours can run without them.
SCICO is ADMM for 0.5 ‖Ax − y‖² + λ ‖Dx‖₂,₁ with `LinearSubproblemSolver`, as in SCICO's own examples; λ runs over
powers of two from a guess until PSNR has fallen on both sides of the best, then over half a step; for the best two
other regularizers ρ are tried. It needs `scico` and JAX, and takes a minute or two on a GPU, an hour on two cores.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from _common import each, load, losses, parser, save, table
from bench_experiments import SET_ASIDE
from cases import Case, cases, centred, padded, score

import deblur
from deblur import Blur
from deblur.denoise.impulses import detect

PEERS = "variational_peers"
AUTOMATIC = ("tv", "collaborative")
FACTORS = 2.0 ** np.arange(2, -2.1, -0.5)  # of the tuned λ, where the best is looked for first
SMALLEST = 1e-7
#: λ of SCICO's first try, by noise; its ρ over λ: differences below its inverse are taken for noise at first.
SCICO = {
    "none": 2e-5, "gaussian 0.01": 3e-4, "gaussian 0.04": 4e-3, "salt & pepper 2 %": 3e-2, "poisson 400": 3e-3,
    "8 bit": 3e-5,
}  # fmt: skip
SPLIT = 20.0

# ---------------------------------------------------------------- the peers


def restorers(blur: Blur, g: np.ndarray) -> dict[str, Callable[[Any], np.ndarray]]:
    """By each peer's name: its parameter to the restored image inside the frame."""
    from skimage.restoration import richardson_lucy, unsupervised_wiener, wiener

    rows, cols = g.shape
    h = centred(blur.psf, blur.origin)
    wide = padded(g, (2 * h.shape[0], 2 * h.shape[1]))
    around = np.pad(np.maximum(g, 0), [(n, n) for n in h.shape], mode="symmetric")
    inner = tuple(slice(n, n + m) for n, m in zip(h.shape, g.shape))

    def unsupervised(_: None) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return unsupervised_wiener(g, h, clip=False, rng=0)[0]

    return {
        "wiener": lambda balance: wiener(g, h, balance, clip=False),
        "wiener, padded": lambda balance: wiener(wide, h, balance, clip=False)[:rows, :cols],
        "richardson_lucy, mirrored": lambda steps: richardson_lucy(around, h, steps, clip=False)[inner],
        "unsupervised_wiener": unsupervised,
        "pylops cgls": lambda steps: cgls(blur, g, steps),
    }


def cgls(blur: Blur, g: np.ndarray, steps: int, listener: Callable[[np.ndarray], None] | None = None) -> np.ndarray:
    """PyLops's CGLS with the case's own boundary; `listener` gets the image after each step."""
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

    callback = None if listener is None else lambda x: listener(inside(x))
    start = extended(blur, g).ravel()
    x = pylops.optimization.basic.cgls(Operator(), g.ravel(), start, niter=steps, tol=0, callback=callback)[0]
    return inside(x)


def extended(blur: Blur, g: np.ndarray) -> np.ndarray:
    """The image continued to the scene's shape by its outermost pixels."""
    return np.pad(g, [(c.start, n - c.stop) for c, n in zip(blur.crop, blur.scene_shape)], mode="edge")


def peers_of(at: int, size: int) -> dict[str, Any]:
    """Every peer's best PSNR on one case, and the parameter it took."""
    case = cases(size)[at]
    blur, g, truth = case.make()
    restore = restorers(blur, g)
    out: dict[str, Any] = {"case": str(case)}

    def best(name: str, tried: dict[Any, float]) -> None:
        parameter = max(tried, key=tried.__getitem__)
        out[name] = {"psnr": tried[parameter], "parameter": parameter}

    for name in ("wiener", "wiener, padded"):
        best(name, {float(b): score(truth, restore[name](b)) for b in 10.0 ** np.arange(-7, 1.1, 0.25)})
    name, tried, last = "richardson_lucy, mirrored", {}, -math.inf
    for steps in np.unique(np.rint(2.0 ** np.arange(0, 8.1, 0.5)).astype(int)):
        value = tried[int(steps)] = score(truth, restore[name](int(steps)))
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


def scico_solved(case: Case, lam: float, rho: float) -> np.ndarray:
    """The image restored by SCICO inside its frame."""
    import jax
    from scico import functional, linop, loss
    from scico.optimize.admm import ADMM, LinearSubproblemSolver

    blur, g, _ = case.make()
    h, y = jax.numpy.asarray(blur.psf, "float32"), jax.numpy.asarray(g, "float32")
    mode = "valid" if case.boundary == "unknown" else "same"
    a = linop.Convolve(h=h, input_shape=blur.scene_shape, mode=mode)
    d = linop.FiniteDifference(input_shape=blur.scene_shape, append=0)
    solver = ADMM(
        f=loss.SquaredL2Loss(y=y, A=a),
        g_list=[lam * functional.L21Norm()],
        C_list=[d],
        rho_list=[rho],
        x0=jax.numpy.asarray(extended(blur, g), "float32"),
        maxiter=400,
        subproblem_solver=LinearSubproblemSolver(cg_kwargs={"tol": 1e-5, "maxiter": 50}),
        itstat_options={"display": False, "itstat_func": lambda obj: (), "fields": {}},
    )
    solver.subproblem_solver.lhs_op.jit()
    return np.asarray(solver.solve()).astype(float)[blur.crop]


def scico_of(at: int, size: int) -> dict[str, Any]:
    """SCICO's best PSNR on one case, and its λ and ρ."""
    case = cases(size)[at]
    truth = case.make()[2]
    seen: dict[tuple[float, float], float] = {}

    def at_lam(lam: float, split: float = SPLIT) -> float:
        if (lam, split) not in seen:
            seen[lam, split] = score(truth, scico_solved(case, lam, split * lam))
        return seen[lam, split]

    lam, step = SCICO[case.noise], 2.0
    if at_lam(lam * step) < at_lam(lam):
        step = 1 / step
    while lam * step >= 1e-6 and at_lam(lam * step) > at_lam(lam):
        lam *= step
    lam = max((lam, lam / 2**0.5, lam * 2**0.5), key=at_lam)
    for split in (SPLIT / 4, SPLIT * 4):
        at_lam(lam, split)
    lam, split = max(seen, key=seen.__getitem__)
    return {"case": str(case), "psnr": seen[lam, split], "lam": lam, "rho": split * lam}


def peer_table() -> dict[str, dict[str, float]]:
    """case: {peer: dB}, from the recorded file."""
    record = load(PEERS)["results"]
    found = {
        name: {peer: figures["psnr"] for peer, figures in row.items()} for name, row in record.get("cases", {}).items()
    }
    for row in record.get("scico", {}).get("cases", []):
        found.setdefault(row["case"], {})["scico admm-tv"] = row["psnr"]
    return found


# ---------------------------------------------------------------- ours


def ours_of(at: int, size: int) -> dict[str, Any]:
    """One case: with no number given, and at the best λ."""
    case = cases(size)[at]
    blur, g, truth = case.make()
    said = case.hints()
    if "data" in said:
        g = np.maximum(g, 0)
    row: dict[str, Any] = {"case": str(case), "noise": case.noise, "boundary": case.boundary}
    row["input"] = score(truth, g)
    if "mask" in said:
        mask, clean = detect(g), case.unharmed(g)
        row["mask"] = {
            "impulses": int((~clean).sum()),
            "missed": int((~clean & ~mask).sum()),
            "false_alarms": int((clean & mask).sum()),
        }
        said = {"mask": mask}

    def solved(method: str, lam: float | str) -> Any:
        return deblur.solve(g, blur.psf, lam, method=method, boundary=case.boundary, check=False, **said)

    for method in AUTOMATIC:
        result = solved(method, "auto")
        row[f"{method}, automatic"] = {"psnr": score(truth, result.image), "lam": result.lam}
    tuned = row["tv, automatic"]["lam"]
    for method in ("tv", "collaborative", "tv2"):
        seen = {lam: score(truth, solved(method, lam).image) for lam in tuned * FACTORS}
        while min(seen) / 2 >= SMALLEST and max(seen, key=seen.__getitem__) == min(seen):
            lam = min(seen) / 2  # downwards for as long as it gets better
            seen[lam] = score(truth, solved(method, lam).image)
        automatic = row.get(f"{method}, automatic")
        if automatic is not None:
            seen[automatic["lam"]] = max(seen.get(automatic["lam"], 0.0), automatic["psnr"])
        lam = max(seen, key=seen.__getitem__)
        row[f"{method}, best λ"] = {"psnr": seen[lam], "lam": lam}
    return row


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean PSNR by group of cases, and the losses by automatic λ."""
    labels = [key for key in rows[0] if key.endswith((", automatic", ", best λ"))]
    names = sorted({peer for row in rows for peer in row["peers"]})

    def means(chosen: list[dict[str, Any]]) -> dict[str, float]:
        found = {"input": [row["input"] for row in chosen]}
        found |= {name: [row["peers"].get(name, math.nan) for row in chosen] for name in names}
        found |= {label: [row[label]["psnr"] for row in chosen] for label in labels}
        return {label: float(np.mean(values)) for label, values in found.items() if not np.isnan(values).any()}

    def aside(row: dict[str, Any]) -> bool:
        return row["case"].partition(",")[0] in SET_ASIDE

    groups = {"all": rows, "tuned on": [row for row in rows if not aside(row)]}
    groups |= {"set aside": [row for row in rows if aside(row)]}
    groups |= {noise: [r for r in rows if r["noise"] == noise] for noise in dict.fromkeys(r["noise"] for r in rows)}
    groups |= {"all but salt & pepper": [row for row in rows if not row["noise"].startswith("salt")]}
    out: dict[str, Any] = {"mean_psnr_db": {group: means(some) for group, some in groups.items() if some}}
    for label in (f"{method}, automatic" for method in AUTOMATIC):
        loss = np.array([row[label.replace("automatic", "best λ")]["psnr"] - row[label]["psnr"] for row in rows])
        least = min(row[label]["psnr"] - row["input"] for row in rows)
        out[label] = losses(loss) | {"worst_gain_over_input_db": least}
    masks = [row["mask"] for row in rows if "mask" in row]
    out["detector"] = {key: sum(m[key] for m in masks) for key in ("impulses", "missed", "false_alarms")}
    return out


def tables(r: dict[str, Any]) -> list[dict[str, Any]]:
    found, groups = r["summary"]["detector"], r["summary"]["mean_psnr_db"]
    title = (
        f"**Beyond the linear formula.** {len(r['cases'])} photographs of 256 × 256 pixels by PSF, noise and boundary. "
        "*best λ*, and the parameter of every other package but `unsupervised_wiener`, were found with the sharp "
        "picture; *automatic* has no number given, and finds impulses by `mask='auto'`."
    )
    rows = [
        {"name": name} | {group: values.get(name) for group, values in groups.items()}
        for name in sorted(groups["all"], key=groups["all"].__getitem__)
    ]
    columns = {"mean PSNR, dB": "{name}"} | {group: f"{{{group}:.1f}}" for group in groups}
    lines = [{"name": k} | v for k, v in r["summary"].items() if k.endswith(", automatic")]
    lost = {"automatic λ": "{name}", "median loss, dB": "{median_loss_db:.2f}"}
    lost |= {"95th percentile": "{loss_db_95th_percentile:.2f}", "worst": "{worst_loss_db:.2f}"}
    lost |= {"worst gain over the input": "{worst_gain_over_input_db:+.1f}"}
    notes = (
        f"Of {found['impulses']} impulses in these pictures {found['missed']} were missed, with "
        f"{found['false_alarms']} false alarms."
    )
    return [table(title, columns, rows), table("The loss of the automatic λ against the best λ:", lost, lines, notes)]


def summary(r: dict[str, Any]) -> str:
    names = ("collaborative, automatic", "tv, automatic", "scico admm-tv")
    groups = (r["summary"]["mean_psnr_db"][group] for group in ("all", "all but salt & pepper"))
    means, fair = ([f"{group[name]:.1f}" for name in names] for group in groups)
    return (
        f"On {len(r['cases'])} pictures (PSFs, noises and boundaries mixed) with no number given, `collaborative` "
        f"reaches {means[0]} dB in the mean and `tv` {means[1]}; SCICO's total variation at its best parameter "
        f"{means[2]} (without salt and pepper, for which it has no mask: {fair[0]}, {fair[1]} and {fair[2]})."
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help="6 cases of 96 pixels a side; writes nothing")
    arguments.add_argument("--parts", nargs="+", choices=("ours", "peers", "scico"), default=("ours",))
    arguments.add_argument("--workers", type=int, default=1)
    options = arguments.parse_args()
    size, count = (96, 6) if options.quick else (256, len(cases()))
    work = [(at, size) for at in range(count)]
    start = time.perf_counter()
    if "peers" in options.parts:
        found = {row.pop("case"): row for row in each(peers_of, work, options.workers)}
        save(PEERS, load(PEERS)["results"] | {"cases": found})
    if "scico" in options.parts:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        scico = {"scico": importlib.metadata.version("scico"), "cases": each(scico_of, work, options.workers)}
        save(PEERS, load(PEERS)["results"] | {"scico": scico})
    if "ours" in options.parts:
        rows, peers = each(ours_of, work, options.workers), peer_table()
        for row in rows:
            row["peers"] = peers.get(row["case"], {})
        result = {"summary": summed(rows), "cases": rows, "seconds": time.perf_counter() - start}
        shown = (tables(result), summary(result))
        settings: dict[str, Any] = {"size": size, "psnr": "clipped, inside the frame"}
        save("variational", result, *shown, write=not options.quick, **settings)


if __name__ == "__main__":
    main()

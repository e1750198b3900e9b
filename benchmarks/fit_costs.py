"""Measure what an operation of every method, and of what a call does beside, costs here: writes deblur/costs.json.

    taskset -c 0,1 python benchmarks/fit_costs.py                    on two CPU cores, as many as a user has at least
    python benchmarks/fit_costs.py --gpu                             on the GPU
    python benchmarks/fit_costs.py --methods tv pnp                  only these; the others stay as they are stored
    python benchmarks/fit_costs.py --raw a.json --methods pcg files  only measure, into a file
    python benchmarks/fit_costs.py --from a.json b.json              only fit, to what such files hold

Whole calls of `deblur.solve` are timed part by part: reading the boundary, choosing λ, set-up, solve, and the rest. For
each part seconds are fitted as overhead + rate x operations, by least squares on relative errors with no negative
coefficient. `deblur.costs` multiplies the rates with the operations that a method counts for the problem at hand, and
with the pace of the machine it runs on, which is measured here too.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _common import ROOT, environment
from scipy.optimize import nnls

import deblur
from deblur import Blur, costs, prior
from deblur.denoise import patches
from deblur.device import CPU, Device
from deblur.methods import METHODS, Method
from deblur.options import Request
from deblur.problem import Factor, Problem
from deblur.solvers.windows import looked_at

TARGET = ROOT / "deblur" / "costs.json"
TINY, SMALL, MIDDLE, LARGE = [(24, 24), (32, 40), (48, 48)], (64, 64), (256, 256), (2048, 2048)
SIZES = [SMALL, MIDDLE, (1024, 1024), LARGE]
SHAKE, GAUSS, NARROW = deblur.psf.camera_shake(9, 3), deblur.psf.gaussian(9, 1.5), deblur.psf.gaussian(3, 0.6)
MOTION = deblur.psf.motion(15, 30)
LONG_ENOUGH = 1.0  # seconds spent on one case, after which its median must do


@dataclasses.dataclass(frozen=True)
class Case:
    """One call: method, boundary, PSF, rows and columns, λ, frames, dtype."""

    method: str
    boundary: str
    psf: np.ndarray
    shape: tuple[int, int]
    lam: float | str = 1e-2
    frames: int = 1
    dtype: str = "float32"
    compiled: bool = True


def cases(device: Device) -> Iterator[Case]:
    """All calls."""
    for shape in SIZES:
        yield Case("pcg", "auto", MOTION, shape, "auto")
        yield Case("pcg", "unknown", MOTION, shape)
        if shape != LARGE:
            yield Case("pcg", "unknown", MOTION, shape, 3e-3)
    for psf in (SHAKE, GAUSS):
        for shape in (SMALL, MIDDLE):
            yield Case("pcg", "unknown", psf, shape)
            yield Case("pcg", "auto", psf, shape, "auto")
    yield Case("pcg", "unknown", MOTION, MIDDLE, dtype="float64")
    yield Case("pcg", "auto", MOTION, (1024, 1024), "auto", 3)
    for shape in (SMALL, MIDDLE, (512, 512)):
        yield Case("pcg", "unknown", MOTION, shape, "gcv")
    for name, boundary, psf in (
        ("fft", "periodic", SHAKE),
        ("dct", "reflect", GAUSS),
        ("dst", "zero", NARROW),
        ("kronecker", "zero", GAUSS),
    ):
        for shape in (SMALL, MIDDLE, (1024, 1024)):
            yield Case(name, boundary, psf, shape)
        yield Case(name, boundary, psf, MIDDLE, dtype="float64")
        yield Case(name, boundary, psf, MIDDLE, frames=16)
        for shape in (SMALL, MIDDLE):
            yield Case(name, boundary, psf, shape, "auto")
    for name in ("cholesky", "gauss-jordan", "gauss-seidel", "lu", "qr", "banded"):
        for shape in TINY:
            yield Case(name, "zero", GAUSS, shape, dtype="float64")
        yield Case(name, "zero", GAUSS, TINY[1], frames=4, dtype="float64")
    for name in (
        ("cholesky", "banded") if device.gpu is not None else ()
    ):  # where smaller ones are all overhead
        for shape in (SMALL, (96, 96)):
            yield Case(name, "zero", GAUSS, shape)
    for psf in (SHAKE, MOTION):
        for shape in (SMALL, MIDDLE):
            yield Case("hybrid-lsqr", "unknown", psf, shape)
    for name in ("tv", "tv2", "tv-aniso", "gradient", "identity", "laplacian"):
        for shape in (SMALL, MIDDLE, (512, 512)):
            yield Case(name, "unknown", SHAKE, shape, 2e-3)
        if name in ("tv", "tv2", "gradient"):
            for shape in (SMALL, MIDDLE):
                yield Case(name, "unknown", MOTION, shape, "auto")
    yield Case("tv", "unknown", SHAKE, MIDDLE, 2e-3, 3)
    yield Case("tv", "unknown", SHAKE, MIDDLE, 2e-3, dtype="float64")
    yield Case("tv", "unknown", MOTION, (1024, 1024), "auto")
    yield from photons()


def photons() -> Iterator[Case]:
    """Of the methods that take long."""
    for psf in (SHAKE, MOTION):
        for shape in SIZES[:3]:
            yield Case("richardson-lucy", "unknown", psf, shape, 0.0)
        for shape in (SMALL, MIDDLE):
            yield Case("richardson-lucy", "unknown", psf, shape, 1e-3)
    yield Case("richardson-lucy", "unknown", MOTION, MIDDLE, 0.0, 3)
    for shape in (SMALL, MIDDLE, (512, 512)):
        yield Case("collaborative", "unknown", SHAKE, shape, 2e-3)
    for shape in (SMALL, (128, 128)):
        yield Case("collaborative", "unknown", SHAKE, shape, 2e-3, compiled=False)
        yield Case("pnp", "unknown", SHAKE, shape, 2e-4)


# ---------------------------------------------------------------------------------------------
# One call, part by part
# ---------------------------------------------------------------------------------------------


class Clock:
    """Seconds of the parts of a call; of parts within parts the outer counts."""

    def __init__(self, device: Device) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._device, self._running = device, False

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        if self._running:
            yield
            return
        self._running = True
        self._device.synchronize()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._device.synchronize()
            self.seconds[name] += time.perf_counter() - start
            self._running = False

    def within(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed as a part."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return function(*args, **kwargs)

        return timed


class _Timed:
    """A factor whose solves are timed."""

    def __init__(self, factor: Factor, clock: Clock) -> None:
        self.solve = clock.within("solve", factor.solve)


@contextlib.contextmanager
def timed(clock: Clock) -> Iterator[None]:
    """Have the parts of calls in here timed."""
    prepare, decided, tune, spectrum = Method.prepare, Request.decided, prior.tune, prior.from_spectrum
    setup = clock.within("set-up", prepare)
    Method.prepare = lambda self, problem, later=False: _Timed(setup(self, problem), clock)  # type: ignore[method-assign,assignment]
    Request.decided = clock.within("boundary", decided)  # type: ignore[method-assign]
    prior.tune, prior.from_spectrum = clock.within("λ", tune), clock.within("λ", spectrum)
    try:
        yield
    finally:
        Method.prepare, Request.decided = prepare, decided  # type: ignore[method-assign]
        prior.tune, prior.from_spectrum = tune, spectrum


def picture(shape: tuple[int, int]) -> np.ndarray:
    """A photograph of any size: the middle of the camera image, repeated by reflection."""
    photo = deblur.data.load("camera")[100:, 180:]
    return np.pad(
        photo, [(0, max(n - p, 0)) for n, p in zip(shape, photo.shape, strict=True)], mode="symmetric"
    )[: shape[0], : shape[1]]


def run(case: Case, device: Device, repeats: int) -> dict[str, Any]:
    """The seconds of the parts of one call, the median of some, and what it solved."""
    boundary = "unknown" if case.boundary == "auto" else case.boundary
    blur = Blur(case.psf / case.psf.sum(), case.shape, boundary)
    g = blur.forward(picture(blur.scene_shape))
    rng = np.random.default_rng(0)
    stack = np.stack([g + 0.01 * rng.standard_normal(case.shape) for _ in range(case.frames)])
    img = device.xp.asarray(np.maximum(stack, 0).astype(case.dtype))
    options: dict[str, Any] = {"method": case.method, "boundary": case.boundary, "check": False}
    if case.method == "pnp":
        options["denoiser"] = "collaborative"
    taken: list[dict[str, float]] = []
    compiled = patches._compiled
    if not case.compiled:
        patches._compiled = lambda: None  # type: ignore[assignment]
    try:
        # On a GPU the first call may compile, for seconds.
        while len(taken) < repeats and sum(t["all"] for t in taken[device.gpu is not None :]) <= LONG_ENOUGH:
            clock = Clock(device)
            with timed(clock):
                device.synchronize()
                start = time.perf_counter()
                result = deblur.solve(img, case.psf / case.psf.sum(), case.lam, stack_axis=0, **options)
                device.synchronize()
                clock.seconds["all"] = time.perf_counter() - start
            taken.append(dict(clock.seconds))
    finally:
        patches._compiled = compiled
    taken = taken[1:] or taken
    parts = {name: statistics.median(t[name] for t in taken) for name in taken[0]}
    problem = dataclasses.replace(result.problem, frames=case.frames)
    work = METHODS[case.method].work(problem)
    return {
        "method": case.method,
        "boundary": result.boundary,
        "separable": blur.factors is not None,
        "psf": list(case.psf.shape),
        "shape": list(case.shape),
        "rule": case.lam if isinstance(case.lam, str) else None,
        "frames": case.frames,
        "dtype": case.dtype,
        "compiled": case.compiled,
        "lam": result.lam,
        "iterations": result.iterations,
        "setup_work": work.setup,
        "solve_work": work.solve,
        "step_work": work.steps,
        "seconds": parts,
    }


# ---------------------------------------------------------------------------------------------
# Beside the calls
# ---------------------------------------------------------------------------------------------


def files(repeats: int) -> list[dict[str, Any]]:
    """Seconds of writing and reading a photograph, by format and size."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in (SMALL, MIDDLE, (1024, 1024)):
            grey = picture(shape)
            noisy = grey + 0.01 * np.random.default_rng(0).standard_normal(shape)
            colour = np.clip(np.stack([noisy, 0.9 * noisy, noisy**2], axis=-1), 0, 1).astype(np.float32)
            for suffix, bits in ((".png", 8), (".png", 16), (".jpg", 8), (".tif", 16)):
                path = Path(folder) / f"picture{suffix}"
                levels = (colour * (2**bits - 1)).astype(f"uint{bits}")
                calls: dict[str, Callable[[], object]] = {
                    "write": partial(deblur.image.write, path, colour, bits=bits, overwrite=True),
                    "read": partial(deblur.image.read_with_metadata, path),
                }
                for what, call in calls.items():
                    taken = []
                    for _ in range(repeats):
                        start = time.perf_counter()
                        call()
                        taken.append(time.perf_counter() - start)
                    rows.append(
                        {
                            "what": what,
                            "suffix": suffix,
                            "bits": bits,
                            "bytes": levels.nbytes,
                            "seconds": min(taken),
                        }
                    )
    return rows


def loading(repeats: int) -> dict[str, float]:
    """Seconds of importing what a call may need, in a fresh process; of Numba also the machine code kept on disk."""
    first = "import deblur.denoise.patches as p; import time, numpy; t = time.perf_counter(); {}; "
    first += "print(time.perf_counter() - t)"
    what = {module: f"import {module}" for module in ("scipy.ndimage", "scipy.optimize")}
    if find_spec("numba"):
        what["numba"] = "x = numpy.zeros((64, 64)); p.Groups(x).wiener(x, x, numpy.ones(64))"
    out = {}
    for module, words in what.items():
        line = [sys.executable, "-c", first.format(words)]
        out[module] = min(
            float(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
            for _ in range(repeats)
        )
    return out


# ---------------------------------------------------------------------------------------------
# The fit
# ---------------------------------------------------------------------------------------------


def stated(row: dict[str, Any]) -> Problem:
    """The problem of a call."""
    blur = Blur(np.ones(row["psf"]), tuple(row["shape"]), row["boundary"])
    regularizer = METHODS[row["method"]].regularizer
    return Problem(blur, row["lam"], regularizer, dtype=np.dtype(row["dtype"]), frames=row["frames"])


def wider(row: dict[str, Any]) -> float:
    """What a call's operations take over those in float32."""
    return 1.0 if row["dtype"] == "float32" else costs.FLOAT64


def fit(works: Sequence[Sequence[float]], seconds: Sequence[float], over: Sequence[float]) -> list[float]:
    """Coefficients that are not negative and fit seconds with small errors relative to `over`."""
    columns = np.array(works) / np.array(over)[:, None]
    scales = columns.max(axis=0)
    scales[scales == 0] = 1
    coefficients, _ = nnls(columns / scales, np.array(seconds) / np.array(over))
    return (coefficients / scales).tolist()


def rates(overhead: float, setup: float = 0.0, solve: float = 0.0, step: float = 0.0) -> dict[str, float]:
    return {"overhead": overhead, "setup": setup, "solve": solve, "step": step}


_ROUGHLY = 2.0  # how much less it matters which part of the whole is set-up


def of_method(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Overhead, seconds for an operation of set-up and of solve, and for an iteration as such: the whole is to be
    right, and the parts roughly."""
    works, seconds, over = [], [], []
    for row in rows:
        setup, solve = (row["seconds"].get(part, 0.0) for part in ("set-up", "solve"))
        factor = wider(row)
        frames, setting_up = row["frames"], factor * row["setup_work"]
        works += [[1.0, setting_up, factor * frames * row["solve_work"], frames * row["step_work"]]]
        works += [[0.0, setting_up, 0.0, 0.0], [works[-1][0], 0.0, *works[-1][2:]]]
        seconds += [setup + solve, setup, solve]
        over += [setup + solve, *[_ROUGHLY * (setup + solve)] * 2]
    return rates(*fit(works, seconds, over))


def beside(rows: list[dict[str, Any]], part: str, count: Callable[[Problem], float]) -> dict[str, float]:
    """Overhead and seconds for an operation of a part of calls."""
    taken = [row["seconds"][part] for row in rows]
    works = [[1.0, wider(row) * row["frames"] * count(stated(row))] for row in rows]
    overhead, solve = fit(works, taken, taken)
    return rates(overhead, 0.0, solve)


def searches(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What looking for λ takes, in solves of the pixels that are looked at."""
    ratios = []
    for row in rows:
        share = looked_at(stated(row)) / math.prod(row["shape"])
        ratios.append(row["seconds"]["λ"] / (share * row["seconds"]["solve"]))
    return rates(0.0, 0.0, float(np.exp(np.mean(np.log(ratios)))))


def fitted(raw: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The rates of all rows that there are measurements of."""
    rows = raw["rows"]
    out: dict[str, dict[str, float]] = {}
    for name in METHODS:
        for compiled in (True, False):
            those = [r for r in rows if (r["method"], r["rule"], r["compiled"]) == (name, None, compiled)]
            if those:
                out[name if compiled else f"{name}, arrays"] = of_method(those)
    linear = [r for r in rows if METHODS[r["method"]].linear and max(r["shape"]) > 48]
    for row in linear:
        row["seconds"]["road"] = 2 * row["seconds"]["all"] - sum(row["seconds"].values())
    ruled = [r for r in linear if r["rule"] == "auto"]
    for name, part, count, those in (
        ("road", "road", costs.transform, linear),
        ("boundary", "boundary", costs.rim, [r for r in linear if "boundary" in r["seconds"]]),
        (
            "λ by the decomposition",
            "λ",
            costs.transform,
            [r for r in ruled if r["method"] in ("fft", "dct", "dst")],
        ),
        ("λ by the spectrum", "λ", costs.transform, [r for r in ruled if r["method"] == "pcg"]),
        ("λ by steps", "λ", costs.steps, [r for r in linear if r["rule"] == "gcv" and not r["separable"]]),
    ):
        if those:
            out[name] = beside(those, part, count)
    for name, quadratic in (("search", False), ("search, quadratic", True)):
        others = [r for r in rows if r["rule"] and not METHODS[r["method"]].linear]
        those = [r for r in others if stated(r).quadratic == quadratic]
        if those:
            out[name] = searches(those)
    out["step"] = rates(statistics.median(raw["steps"]))
    for module, taken in raw.get("loading", {}).items():
        out[f"import {module}"] = rates(taken)
    for what in ("write", "read"):
        for suffix in sorted({r["suffix"] for r in raw.get("files", [])}):
            those = [r for r in raw["files"] if (r["suffix"], r["what"]) == (suffix, what)]
            taken = [r["seconds"] for r in those]
            overhead, byte = fit([[1.0, r["bytes"]] for r in those], taken, taken)
            out[f"{what} {suffix}"] = rates(overhead, 0.0, byte)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each case, the first not counted; default 3"
    )
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, "files", "loading"], metavar="NAME")
    parser.add_argument("--raw", type=Path, help="measure into this file and fit nothing")
    parser.add_argument("--from", dest="source", type=Path, nargs="+", help="fit what these files hold")
    arguments = parser.parse_args()
    place = "gpu" if arguments.gpu else "cpu"
    if arguments.source:
        parts = [json.loads(path.read_text()) for path in arguments.source]
        raw = {key: [one for part in parts for one in part[key]] for key in ("rows", "steps")}
        raw |= {key: p[key] for p in parts for key in ("files", "loading", "environment") if key in p}
    else:
        raw = measured(Device.named("gpu") if arguments.gpu else CPU, arguments)
        if arguments.raw:
            return
    stored = json.loads(TARGET.read_text())
    found, step = fitted(raw), stored["rates"][place].get("step")
    if step and set(stored["rates"][place]) - set(found):  # what stays was measured at that pace
        faster = step["overhead"] / found["step"]["overhead"]
        found = {name: {key: faster * x for key, x in row.items()} for name, row in found.items()}
        for name in ("search", "search, quadratic"):  # solves, no seconds
            if name in found:
                found[name] = rates(0.0, 0.0, found[name]["solve"] / faster)
    stored["rates"][place] |= found
    stored["measured"][place] = raw["environment"]
    TARGET.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    print(f"written: {TARGET.relative_to(ROOT)}")


def measured(device: Device, arguments: argparse.Namespace) -> dict[str, Any]:
    """All that is asked for, written away as it comes."""
    asked = arguments.methods or [*METHODS, "files", "loading"]
    raw: dict[str, Any] = {"environment": environment(), "rows": [], "steps": [costs.step()]}
    if "files" in asked and device == CPU:
        raw["files"] = files(arguments.repeats)
    if "loading" in asked and device == CPU:
        raw["loading"] = loading(arguments.repeats)
    for case in cases(device):
        if case.method not in asked or (device.gpu is not None and not case.compiled):
            continue
        try:
            row = run(case, device, arguments.repeats)
        except Exception as error:
            print(f"{case.method} {case.shape}: {type(error).__name__}: {error}", flush=True)
            continue
        raw["rows"].append(row)
        raw["steps"].append(costs.step())
        parts = "  ".join(f"{name} {1e3 * s:.3g}" for name, s in row["seconds"].items())
        print(f"{case.method:<16}{case.shape!s:<14}{case.lam!s:<8}{parts} ms", flush=True)
        if arguments.raw:
            arguments.raw.write_text(json.dumps(raw))
    return raw


if __name__ == "__main__":
    main()

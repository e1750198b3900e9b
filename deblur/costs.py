"""What work takes: counted operations times measured seconds, at the pace of the machine at hand.

`costs.json` has a row for each method and for each part of a call beside it: the seconds of one call, of an operation
of set-up, of one of a solve and of an iteration as such, all in float32, as ``benchmarks/fit_costs.py`` measured them
on two cores of one machine. How much slower or faster this machine is tells a step of an iteration in small, timed once
in a process.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .device import CPU, Device, all_cores, cores
from .operators.varying import VaryingBlur
from .problem import Problem, Work
from .solvers.windows import looked_at

FLOAT64 = 1.6  # of float32's seconds: twice the bytes, and half the numbers in a vector unit
_STEPS = 60  # of two bidiagonalisations, which a rule for λ of the linear formula takes for a photograph
_SMALL = 128 * 128  # pixels up to which a separable blur is decomposed for λ
_WIDE = 6  # PSFs that an image must be wide for its spectrum to settle λ
_WIDE_PARTS = 12, 128  # the same for PSFs that vary, and pixels

#: λ of a photograph over the square of the blur's gain, by which seconds are foretold before it is known.
USUAL = 1e-2


@cache
def rates() -> dict[str, dict[str, dict[str, float]]]:
    """Measured seconds: {"cpu" | "gpu": {row: {"overhead", "setup", "solve", "step"}}}."""
    return json.loads((Path(__file__).parent / "costs.json").read_text())["rates"]


def step() -> float:
    """Seconds of what a solver does all the time, in small: the least of a few, about a millisecond each."""
    x = np.ones((512, 512), np.float32)
    taken = []
    with all_cores():
        for _ in range(6):
            begun = time.perf_counter()
            spectrum = CPU.fft.rfft2(x)
            spectrum *= spectrum
            y = CPU.fft.irfft2(spectrum)
            y -= x
            float((y * y).sum())
            taken.append(time.perf_counter() - begun)
    return min(taken)


def pace(device: Device) -> float:
    """How many times as long work takes here as where the rates were measured; 1 on a GPU."""
    return 1.0 if device.gpu is not None else _pace(cores())


@cache
def _pace(threads: int) -> float:
    """See `pace`; `threads` is what it depends on."""
    return step() / rates()["cpu"]["step"]["overhead"]


def _row(name: str, device: Device) -> dict[str, float]:
    """The rates of a row; where it was not measured on a GPU those of the CPU, and where it never was pcg's."""
    found = rates()
    if name == "collaborative" and device.gpu is None and find_spec("numba") is None:
        name = "collaborative, arrays"
    own = found["gpu"].get(name) if device.gpu is not None else None
    return own or found["cpu"].get(name) or found["cpu"]["pcg"]


def predicted_seconds(name: str, work: Work, problem: Problem) -> float:
    """Seconds that the work of one row takes for all frames of the problem."""
    rate = _row(name, problem.device)
    wider = 1.0 if problem.dtype == np.float32 else FLOAT64
    operations = rate["setup"] * work.setup + rate["solve"] * work.solve * problem.frames
    steps = rate.get("step", 0.0) * work.steps * problem.frames
    return float(pace(problem.device) * (rate["overhead"] + wider * operations + steps))


def beside(problem: Problem, lam: float | str, read: bool) -> float:
    """Seconds of a call beside its method, without the search for λ of what is no linear formula.

    Parameters
    ----------
    problem : Problem
    lam : float or str
        λ, or the rule that chooses it.
    read : bool
        The boundary is read off the picture.
    """
    seconds = predicted_seconds("road", Work(0.0, transform(problem), 0.0), problem)
    if read:
        seconds += predicted_seconds("boundary", Work(0.0, rim(problem), 0.0), problem)
    if isinstance(lam, str) and not problem.asked:
        seconds += _linear_rule(problem.plain, lam)
        if problem.penalty == "natural" and not problem.operator.boundary.open:  # both are looked for
            seconds += _linear_rule(replace(problem, penalty="identity"), lam)
    return seconds


def searched(problem: Problem, work: Work, name: str) -> float:
    """Seconds of looking for λ by solutions of the method `name`, of which `work` is one."""
    share = looked_at(problem) / math.prod(problem.operator.image_shape)
    solve = predicted_seconds(name, Work(0.0, share * work.solve, 0.0), problem)
    solve -= predicted_seconds(name, Work(0.0, 0.0, 0.0), problem)
    return _row("search, quadratic" if problem.quadratic else "search", problem.device)["solve"] * solve


def _linear_rule(problem: Problem, rule: str) -> float:
    """Seconds of choosing λ of the linear formula; see `deblur.tuning.spectral`."""
    from .solvers import cosine, fourier, kronecker, sine

    blur, once = problem.operator.stationary, transform(problem)
    quick = Work(0.0, once, 0.0)
    if blur is not None:
        small = math.prod(blur.image_shape) <= _SMALL
        if any(solver.refuses(problem) is None for solver in (fourier, cosine, sine)):
            return predicted_seconds("λ by the decomposition", quick, problem)
        if blur.factors is not None and (small or rule != "auto" or not blur.boundary.open):
            decomposed = replace(kronecker.work(problem), solve=0.0)
            by = predicted_seconds("kronecker", decomposed, problem)
            return by + predicted_seconds("λ by the decomposition", quick, problem)
        wide = all(n >= _WIDE * m for n, m in zip(blur.image_shape, blur.psf.shape, strict=True))
        if rule == "auto" and blur.boundary.open and wide:
            return predicted_seconds("λ by the spectrum", quick, problem)
    elif rule == "auto" and problem.operator.boundary.open:
        shapes = zip(problem.operator.image_shape, problem.operator.surrogate.psf.shape, strict=True)
        if all(n >= max(_WIDE_PARTS[0] * m, _WIDE_PARTS[1]) for n, m in shapes):
            return predicted_seconds("λ by the spectrum", quick, problem)
    return predicted_seconds("λ by steps", Work(0.0, steps(problem), 0.0), problem)


def transform(problem: Problem) -> float:
    """Multiply-adds of one transform of the scene."""
    n = math.prod(problem.operator.scene_shape)
    return 2.5 * n * math.log2(max(n, 2))


def rim(problem: Problem) -> float:
    """Pixels along the edges of the image."""
    return 2.0 * sum(problem.operator.image_shape)


def steps(problem: Problem) -> float:
    """Multiply-adds of the bidiagonalisations that a rule for λ takes: of an image and of a random one."""
    operator = problem.operator
    transforms = 1 + operator.terms if isinstance(operator, VaryingBlur) else 2  # of a product
    return 2 * transforms * _STEPS * transform(problem)


def loading_seconds(name: str, lam: float | str, linear: bool, device: Device) -> float:
    """Seconds of importing what a call of the method needs, where nobody has imported it in this process.

    Parameters
    ----------
    name : str
    lam : float or str
        λ, or the rule that chooses it.
    linear : bool
        It is a method of the linear formula.
    device : Device
        On a GPU none of these is needed.
    """
    if device.gpu is not None:
        return 0.0
    rule = isinstance(lam, str)
    needed = {
        "scipy.ndimage": linear or rule,
        "scipy.optimize": linear and lam == "discrepancy",
        "numba": name in ("collaborative", "pnp") and find_spec("numba") is not None,
    }
    missing = [module for module, there in needed.items() if there and module not in sys.modules]
    return pace(CPU) * sum(rates()["cpu"][f"import {module}"]["overhead"] for module in missing)


def file_seconds(what: str, suffix: str, values: float) -> float:
    """Seconds of reading ("read") or writing ("write") a file of so many bytes of pixels, by its suffix."""
    suffix = {".jpeg": ".jpg", ".tiff": ".tif"}.get(suffix, suffix)
    rate = rates()["cpu"].get(f"{what} {suffix}")
    return pace(CPU) * (rate["overhead"] + rate["solve"] * values) if rate else 0.0

"""Today's answers, written down: what `test_recorded_answers.py` holds every later version to.

``python tests/record_answers.py`` writes them to ``tests/data/recorded_answers.npz`` (arrays) and ``.json`` (all else,
one case a line). They were taken from version 0.1.0, commit 8861672.

The rule: a recorded answer may only be changed together with a line in CHANGELOG.md that says why. A new case is
written without touching the others by ``python tests/record_answers.py --new``; ``--again`` and the beginnings of
their names takes cases again.

This module is the one list of the cases. They call public functions and classes only. Each method is asked for every
boundary, formula and dtype, with PSFs of every kind of symmetry; a combination that is refused is recorded by the name
of the exception's type. `ROUNDING` and `STOPPING` say how far an answer may be from the recorded one, and why.
``python tests/record_answers.py --moved`` moves all inputs by a rounding error and prints the answers that it carries
over more than a tenth of what is allowed: the allowances are wider than what another BLAS can do.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.ndimage
import scipy.sparse

import deblur
from deblur import linalg, matlab, metrics

ARRAYS = Path(__file__).parent / "data" / "recorded_answers.npz"
WORDS = ARRAYS.with_suffix(".json")

BOUNDARIES = ("zero", "periodic", "reflect", "antireflect", "unknown")
DTYPES = ("float64", "float32")
DIRECT = ("fft", "dct", "dst", "kronecker", "banded", "cholesky", "gauss-jordan", "lu", "qr")
ITERATIVE = ("pcg", "hybrid-lsqr", "gauss-seidel")
QUADRATIC = ("identity", "gradient", "laplacian")
SPLIT = ("tv", "tv-aniso", "tv2", "collaborative", "pnp")
VARIATIONAL = (*QUADRATIC, *SPLIT, "richardson-lucy")

# How far an answer may be from the recorded one, over the largest modulus of the recorded array; (float64, float32).
#
# A direct method leaves rounding errors times the condition number of HHᵀ + λI, about 1/λ: 100 in float64, 10 in
# float32, and 1000 where an option is looked at with λ = 0.001 in float64.
ROUNDING = {"float64": 1e-12, "float32": 1e-5}
LAM_LINEAR = {"float64": 1e-2, "float32": 1e-1}
# A method that iterates is asked for a residual of `ASKED`, which 1/λ turns into an error of at most `SOLVED`. With its
# own default (a residual of 1e-8 and 1e-6, or the root of the dtype's eps for Gauss-Seidel) it may err by `STOPPING`.
ASKED = {"float64": 1e-12, "float32": 1e-5}
SOLVED = {"float64": 1e-9, "float32": 2e-3}
STOPPING = {
    **dict.fromkeys(DIRECT, ROUNDING),
    "auto": {"float64": 1e-6, "float32": 1e-4},
    "pcg": {"float64": 1e-6, "float32": 1e-4},
    "hybrid-lsqr": {"float64": 1e-6, "float32": 1e-4},
    "gauss-seidel": {"float64": 1e-6, "float32": 1e-3},
    # Conjugate gradients to a residual of 1e-6, and of at most 0.01 λ.
    **{method: {"float64": 1e-4, "float32": 1e-3} for method in QUADRATIC},
    # Relative primal and dual residuals of 2e-3.
    **{method: {"float64": 2e-3, "float32": 2e-3} for method in SPLIT},
    # The iterate with the whitest residual, or a relative change of 2e-4.
    "richardson-lucy": {"float64": 2e-4, "float32": 2e-3},
}
# After a given number of iterations nothing is left to a tolerance: rounding, and what the iteration makes of it. The
# collaborative filter holds an iteration of its own, to a residual of 1e-3, finds patches in float32, and keeps or
# drops what is near a threshold as rounding has it, eight times over. Weights of very different sizes, as the other
# noise models have, are hard on the conjugate gradients inside ADMM, which stop at 2e-5, most of all with boundary
# "antireflect": one rounding error more or less and they take a step more or less.
STEPS = {"float64": 1e-9, "float32": 1e-4}
STEPS_COLLABORATIVE = {"float64": 4e-3, "float32": 4e-3}
STEPS_NOISE, STEPS_NOISE_ANTIREFLECT = 1e-6, 1e-2
# λ by a rule of the linear formula is a minimum or root searched for in sums that are exact to rounding; by one of the
# variational methods it comes from solutions that stop at a residual of 1e-2 to 5e-4, and so does the image with it;
# those of Richardson-Lucy stop where their own change is small, a number of iterations that rounding may alter.
LAM, LAM_TUNED = {"float64": 1e-6, "float32": 1e-3}, {"float64": 1e-4, "float32": 1e-2}


@dataclass(frozen=True)
class Case:
    """One question: its name, the call, and how far the answer may be from the recorded one."""

    id: str
    call: Callable[[], Any]
    tolerance: float = 1e-12
    lam_tolerance: float = 1e-6

    @property
    def group(self) -> str:
        """The first two words of the name."""
        return "/".join(self.id.split("/")[:2])


# ---------------------------------------------------------------------------------------------
# What the questions are asked of
# ---------------------------------------------------------------------------------------------

PSFS: dict[str, np.ndarray] = {
    "separable": np.outer([1, 2, 1], [2, 3, 2]) / 28,
    "round": np.minimum(np.outer([1, 3, 4, 3, 1], [1, 3, 4, 3, 1]), 9) / 125,  # symmetric, not separable
    "tilted": np.array([[0, 1, 3], [2, 5, 2], [3, 1, 0]]) / 17,  # point-symmetric, but not along the axes
    "asymmetric": np.array([[0, 1, 0, 0, 0], [2, 5, 1, 0, 0], [0, 3, 4, 2, 0], [0, 0, 1, 2, 1]]) / 22.0,
    "even": np.outer([1, 3, 2, 1], [2, 1]) / 21,
}
ORIGINS = {"asymmetric": (1, 2), "even": (2, 0)}  # where the centre is given
SINGLE = ("round", "asymmetric")  # the PSFs that float32 is looked at with


class Inputs:
    """Pictures and matrices, always the same; moved by `move` rounding units if asked for."""

    def __init__(self, move: float = 0) -> None:
        self._move = move

    def _given(self, x: np.ndarray, dtype: str) -> np.ndarray:
        signs = np.random.default_rng(99).integers(0, 2, x.shape) * 2 - 1
        return x.astype(dtype) * (1 + self._move * np.finfo(dtype).eps * signs).astype(dtype)

    def scene(self, rows: int, cols: int, shift: float = 0) -> np.ndarray:
        """A slope, a wave, a square and a dark bar, between 0.1 and 1."""
        i, j = np.mgrid[:rows, :cols] / max(rows, cols)
        x = 0.35 + 0.2 * i + 0.1 * np.sin(9 * j + 5 * i + shift)
        x[rows // 4 : rows // 2, cols // 3 : 2 * cols // 3] += 0.3
        x[-rows // 3 : -rows // 4, 1 : cols // 2] -= 0.25
        return x

    def image(
        self, shape: tuple[int, ...], psf: str = "round", dtype: str = "float64", noise: float = 0.01
    ) -> np.ndarray:
        """The scene, blurred and with noise; leading axes count frames or colours."""
        *lead, rows, cols = shape
        frames = np.stack(
            [
                scipy.ndimage.convolve(self.scene(rows, cols, 0.7 * k), PSFS[psf], mode="nearest")
                for k in range(int(np.prod(lead)))
            ]
        ).reshape(shape)
        frames += noise * np.random.default_rng(rows * cols).standard_normal(shape)
        return self._given(frames, dtype)

    def matrix(self, *shape: int, dtype: str = "float64") -> np.ndarray:
        """Random, well conditioned where square."""
        x = np.random.default_rng(sum(shape)).standard_normal(shape)
        if len(shape) == 2 and shape[0] == shape[1]:
            x += 4 * np.sqrt(shape[0]) * np.eye(shape[0])
        return self._given(x, dtype)


def smoother(image: np.ndarray, sigma: float) -> np.ndarray:
    """A denoiser of one line, for plug and play: the more noise, the nearer to the mean of the neighbours."""
    around = scipy.ndimage.uniform_filter(image, size=(3, 3, 1)[: image.ndim], mode="nearest")
    return image + (around - image) * image.dtype.type(sigma / (sigma + 0.1))


# ---------------------------------------------------------------------------------------------
# The linear formula
# ---------------------------------------------------------------------------------------------


def linear(inputs: Inputs) -> Iterator[Case]:
    """Every method, boundary, formula and dtype, with PSFs of every symmetry."""
    for method, boundary, formula, psf, dtype in product(
        DIRECT + ITERATIVE, BOUNDARIES, ("tikhonov", "hht"), PSFS, DTYPES
    ):
        if dtype == "float32" and psf not in SINGLE:
            continue
        iterative = method in ITERATIVE
        call = partial(
            deblur.solve,
            inputs.image((9, 8), psf, dtype),
            PSFS[psf],
            LAM_LINEAR[dtype],
            method=method,
            boundary=boundary,
            formula=formula,
            prior="zero",
            origin=ORIGINS.get(psf),
            rtol=ASKED[dtype] if iterative else None,
        )
        allowed = SOLVED if iterative else ROUNDING
        yield Case(f"linear/{method}/{boundary}/{formula}/{psf}/{dtype}", call, allowed[dtype])


def linear_options(inputs: Inputs) -> Iterator[Case]:
    """Inverses, priors, axes, tolerances, limits and integers for the linear methods."""
    grey = inputs.image((12, 10), "asymmetric")
    common: dict[str, Any] = {"psf": PSFS["asymmetric"], "origin": ORIGINS["asymmetric"], "lam": 1e-3}

    def case(
        name: str, method: str, image: np.ndarray = grey, dtype: str = "float64", **options: Any
    ) -> Case:
        options = {"boundary": "zero", **common, "method": method, "check": False, **options}
        if options["lam"] != "auto":
            options.setdefault("prior", "zero")
        tolerance = STEPS[dtype] if "max_iterations" in options else STOPPING[method][dtype]
        if options["lam"] == "auto":
            tolerance = max(tolerance, LAM[dtype])
        return Case(f"linear options/{name}", partial(deblur.solve, image, **options), tolerance)

    for method, boundary, dtype in product(DIRECT + ITERATIVE, ("zero", "reflect", "unknown"), DTYPES):
        image = inputs.image((12, 10), "separable", dtype)
        options = {"psf": PSFS["separable"], "origin": None, "lam": LAM_LINEAR[dtype], "boundary": boundary}
        yield case(f"inverse/{method}/{boundary}/{dtype}", method, image, dtype, inverse=True, **options)
    for prior, boundary, lam in product(("auto", "zero", "smooth"), BOUNDARIES, (1e-2, "auto")):
        options = {"prior": prior, "boundary": boundary, "lam": lam}
        yield case(f"prior/{prior}/{boundary}/{lam}", "cholesky", **options)
    for method in DIRECT + ITERATIVE:
        frames = inputs.image((3, 9, 8), "separable")
        boundary = {"fft": "periodic", "dct": "reflect"}.get(method, "zero")
        options = {"psf": PSFS["separable"], "origin": None, "lam": 1e-2, "boundary": boundary}
        colour = np.ascontiguousarray(np.moveaxis(frames, 0, -1))
        both = inputs.image((2, 2, 9, 8), "separable")
        yield case(f"channels/{method}", method, colour, channel_axis=-1, **options)
        yield case(f"frames/{method}", method, frames, stack_axis=0, **options)
        yield case(
            f"both/{method}", method, np.moveaxis(both, 0, -1), stack_axis=0, channel_axis=3, **options
        )
    for method in DIRECT + ITERATIVE:  # the plain inverse: the condition number is that of HHᵀ, 1e5 here
        call = partial(deblur.solve, grey, PSFS["separable"], 0, method=method, boundary="zero", check=False)
        yield Case(f"linear options/lambda zero/{method}", call, 1e-9)
    for method, boundary in product(ITERATIVE, BOUNDARIES):
        yield case(f"as it comes/{method}/{boundary}", method, boundary=boundary)
        yield case(f"few iterations/{method}/{boundary}", method, boundary=boundary, max_iterations=3)
        raising = {"max_iterations": 2, "rtol": 1e-10, "check": True}
        yield case(f"too few iterations/{method}/{boundary}", method, boundary=boundary, **raising)
    for boundary, psf, dtype in product(BOUNDARIES, PSFS, DTYPES):
        image = inputs.image((11, 10), psf, dtype)
        options = {
            "psf": PSFS[psf],
            "origin": ORIGINS.get(psf),
            "lam": LAM_LINEAR[dtype],
            "boundary": boundary,
        }
        yield case(f"auto/{boundary}/{psf}/{dtype}", "auto", image, dtype, **options)
    for kind, top in (("uint8", 255), ("uint16", 65535)):
        yield case(f"integers/{kind}", "lu", np.rint(Inputs().image((12, 10)) * top).astype(kind), lam=1e-2)
    broken = grey.copy()
    broken[2, 3] = np.nan
    wrong: dict[str, dict[str, Any]] = {
        "nan": {"image": broken},
        "three axes": {"image": inputs.image((2, 12, 10))},
        "psf too large": {"image": grey[:3]},
        "negative lambda": {"lam": -1},
        "unknown rule": {"lam": "best"},
        "unknown boundary": {"boundary": "black"},
        "unknown formula": {"formula": "wiener"},
        "unknown prior": {"prior": "rough"},
        "unknown method": {"method": "magic"},
        "rtol out of range": {"rtol": 2},
        "no iterations": {"max_iterations": 0},
        "noise below zero": {"noise": -1},
        "origin outside": {"origin": (9, 9)},
        "axis twice": {"image": inputs.image((2, 12, 10)), "channel_axis": 0, "stack_axis": 0},
        "axis absent": {"channel_axis": 5},
    }
    for name, options in wrong.items():
        yield Case(
            f"linear options/refused/{name}",
            partial(deblur.solve, **{"img": grey, **common, **_renamed(options)}),
        )
    yield Case(
        "linear options/reconstruct",
        partial(deblur.reconstruct, grey, PSFS["round"], 1e-3, boundary="zero"),
        1e-6,
    )
    yield Case(
        "linear options/reconstruct/photograph",
        partial(deblur.reconstruct, grey, PSFS["separable"], boundary="unknown"),
        1e-6,
    )


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    return {"img" if name == "image" else name: value for name, value in options.items()}


# ---------------------------------------------------------------------------------------------
# The variational methods
# ---------------------------------------------------------------------------------------------

LAMS = {"identity": 1e-2, "richardson-lucy": 0.0, "tv": 5e-3, "tv-aniso": 5e-3, "tv2": 2e-3, "pnp": 1e-3}


def _lam(method: str) -> float:
    return LAMS.get(method, 5e-3)


def variational(inputs: Inputs) -> Iterator[Case]:
    """Every method, boundary and dtype: the quadratic ones solved, of the others some steps; and all to the end."""
    for method, boundary, psf, dtype in product(VARIATIONAL, BOUNDARIES, ("asymmetric", "even"), DTYPES):
        if psf != "asymmetric" and (dtype == "float32" or method == "collaborative"):
            continue
        quadratic = method in QUADRATIC
        call = partial(
            deblur.solve,
            inputs.image((11, 10), psf, dtype),
            PSFS[psf],
            _lam(method),
            method=method,
            boundary=boundary,
            origin=ORIGINS.get(psf),
            denoiser=smoother if method == "pnp" else None,
            rtol=ASKED[dtype] if quadratic else None,
            max_iterations=None if quadratic else 4 if method == "pnp" else 10,
            check=False,
        )
        allowed = SOLVED if quadratic else STEPS_COLLABORATIVE if method == "collaborative" else STEPS
        yield Case(f"variational/{method}/{boundary}/{psf}/{dtype}", call, allowed[dtype])
    for method, boundary in product(VARIATIONAL, BOUNDARIES):
        call = partial(
            deblur.solve,
            inputs.image((11, 10)),
            PSFS["round"],
            _lam(method),
            method=method,
            boundary=boundary,
            denoiser=smoother if method == "pnp" else None,
            check=False,
        )
        yield Case(f"variational/{method}/{boundary}/to the end", call, STOPPING[method]["float64"])


def variational_options(inputs: Inputs) -> Iterator[Case]:
    """Masks, weights, bounds, data terms and what else only variational methods know."""
    shape = (12, 11)
    image = inputs.image(shape, "asymmetric")
    rows, cols = shape
    mask = np.zeros(shape, bool)
    mask[3:5, 4:7] = mask[10, 2] = True
    struck = image.copy()
    struck[mask] = np.nan
    weights = 1 + np.arange(rows)[:, None] % 3 * np.ones(cols)
    weights[5, 5] = 0
    impulses = image.copy()
    for k, at in enumerate(((2, 3), (6, 8), (9, 2), (11, 9), (4, 6))):
        impulses[at] = k % 2 * 1.0
    counts = np.random.default_rng(5).poisson(200 * Inputs().image(shape, "asymmetric", noise=0)) / 200
    colour = inputs.image((3, *shape), "asymmetric").transpose(1, 2, 0)
    frames = inputs.image((2, *shape), "asymmetric")
    both = inputs.image((2, 2, *shape), "asymmetric")
    one_frame = np.stack([mask, ~mask & False])
    common: dict[str, Any] = {"psf": PSFS["asymmetric"], "origin": ORIGINS["asymmetric"]}
    zero = common | {"boundary": "zero"}
    asked: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
        "mask": (struck, {"mask": mask}),
        "mask of integers": (image, {"mask": mask.astype(np.uint8)}),
        "mask auto": (impulses, {"mask": "auto"}),
        "weights": (image, {"weights": weights}),
        "mask and weights": (struck, {"mask": mask, "weights": weights}),
        "nonnegative": (image - 0.3, {"bounds": "nonnegative"}),
        "bounds": (image, {"bounds": (0.2, 0.7)}),
        "bounds from below": (image, {"bounds": (0.3, np.inf)}),
        "no bounds": (image, {"bounds": (-np.inf, np.inf)}),
        "gaussian": (image, {"data": "gaussian"}),
        "poisson": (counts, {"data": "poisson"}),
        "poisson with background": (counts + 0.1, {"data": "poisson", "background": 0.1}),
        "poisson below zero": (counts - 0.6, {"data": "poisson"}),
        "l1": (impulses, {"data": "l1"}),
        "huber": (impulses, {"data": "huber"}),
        "huber and noise": (impulses, {"data": "huber", "noise": 0.02}),
        "huber and delta": (impulses, {"data": "huber", "delta": 0.05}),
        "background": (image + 0.2, {"background": 0.2}),
        "channels": (colour, {"channel_axis": -1}),
        "frames": (frames, {"stack_axis": 0}),
        "both": (both, {"stack_axis": 0, "channel_axis": 1}),
        "channels and mask": (colour, {"channel_axis": -1, "mask": mask}),
        "frames and mask of one": (frames, {"stack_axis": 0, "mask": one_frame}),
        "both and all": (
            both,
            {"stack_axis": 0, "channel_axis": 1, "mask": mask, "weights": weights, "bounds": (0, 1)},
        ),
        "formula": (image, {"formula": "hht"}),
        "prior": (image, {"prior": "smooth"}),
        "prior zero": (image, {"prior": "zero"}),
        "inverse": (image, {"inverse": True}),
        "lambda zero": (image, {"lam": 0}),
        "everything hidden": (image, {"mask": np.ones(image.shape, bool)}),
        "mask of a wrong shape": (image, {"mask": mask[1:]}),
        "mask of halves": (image, {"mask": mask / 2}),
        "mask by a wrong name": (image, {"mask": "all"}),
        "weights below zero": (image, {"weights": weights - 2}),
        "weights of a wrong shape": (image, {"weights": weights[1:]}),
        "bounds that cross": (image, {"bounds": (1, 0)}),
        "bounds of one": (image, {"bounds": 1}),
        "unknown data": (image, {"data": "cauchy"}),
        "delta alone": (image, {"delta": 0.1}),
        "background below zero": (image, {"background": -1}),
        "nan": (struck, {}),
    }
    noises = ("poisson", "poisson with background", "l1", "huber", "huber and noise", "huber and delta")
    filtered = (
        "mask",
        "weights",
        "poisson",
        "poisson with background",
        "bounds",
        "l1",
        "channels",
        "both and all",
    )
    for (name, (given, options)), method in product(
        asked.items(), ("auto", "laplacian", "tv", "collaborative", "richardson-lucy")
    ):
        if method == "collaborative" and name not in filtered:
            continue
        boundary = "unknown" if method in ("tv", "auto") else "reflect"
        options = {"lam": _lam(method), "method": method, "boundary": boundary, "prior": "zero", **options}
        call = partial(deblur.solve, given, **common, **options, max_iterations=8, check=False)
        tolerance = STEPS_NOISE if name in noises else STEPS["float64"]
        if method == "collaborative":
            tolerance = STEPS_COLLABORATIVE["float64"]
        yield Case(f"variational options/{name}/{method}", call, tolerance)
    for name, boundary in product(("mask", "weights", "poisson", "l1", "huber", "bounds"), BOUNDARIES):
        given, options = asked[name]
        for method, dtype in (("identity", "float64"), ("tv2", "float32"), ("pnp", "float64")):
            if method == "pnp" and name not in ("mask", "bounds"):
                continue
            tolerance = STEPS[dtype]
            if name in noises:
                tolerance = (
                    STEPS_NOISE_ANTIREFLECT if boundary == "antireflect" else max(STEPS_NOISE, tolerance)
                )
            call = partial(
                deblur.solve,
                given.astype(dtype),
                **common,
                **options,
                lam=_lam(method),
                method=method,
                boundary=boundary,
                denoiser=smoother if method == "pnp" else None,
                max_iterations=8,
                check=False,
            )
            yield Case(f"variational options/{name}/{method}/{boundary}", call, tolerance)
    for method in ("fft", "kronecker", "pcg", "qr"):  # linear methods have no place for these
        for name in ("mask", "weights", "bounds", "poisson", "background"):
            given, options = asked[name]
            call = partial(deblur.solve, given, **common, **options, lam=1e-2, method=method)
            yield Case(f"variational options/{name}/{method}", call)
    for name in ("collaborative", "tv", "nlm", "no such denoiser"):
        call = partial(deblur.solve, image, **zero, lam=1e-3, denoiser=name, max_iterations=4, check=False)
        yield Case(f"variational options/denoiser/{name}", call, 1e-4)  # patches are looked for in float32
    call = partial(deblur.solve, colour, **zero, lam=1e-3, denoiser=smoother, channel_axis=-1, check=False)
    yield Case("variational options/denoiser/colour", call, STOPPING["pnp"]["float64"])
    call = partial(deblur.solve, image, **zero, lam=1e-3, method="pnp", max_iterations=2, check=False)
    yield Case("variational options/denoiser/none named", call, 1e-4)
    for method, rtol in (("gradient", 1e-9), ("tv", 5e-4), ("tv2", 5e-3), ("richardson-lucy", 1e-3)):
        call = partial(deblur.solve, image, **zero, lam=_lam(method), method=method, rtol=rtol)
        yield Case(f"variational options/rtol/{method}", call, 10 * rtol)
    raising = partial(deblur.solve, image, **zero, lam=5e-3, method="tv", max_iterations=3)
    yield Case("variational options/too few iterations", raising)
    lucy: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
        "whitest": (counts, {}),
        "change": (counts, {"rtol": 5e-3}),
        "tv": (counts, {"lam": 0.01}),
        "tv in colour": (np.abs(colour), {"lam": 0.01, "channel_axis": -1}),
        "background": (counts + 0.1, {"background": 0.1}),
        "bounds": (counts, {"bounds": (0.2, 0.8)}),
        "mask": (struck, {"mask": mask}),
        "weights": (counts, {"weights": weights}),
        "gaussian": (counts, {"data": "gaussian"}),
        "negative psf": (counts, {"psf": PSFS["asymmetric"] - 0.01}),
    }
    for (name, (given, options)), boundary in product(lucy.items(), BOUNDARIES):
        options = {"lam": 0.0, "method": "richardson-lucy", "boundary": boundary, **common, **options}
        call = partial(deblur.solve, given, **options, check=False)
        yield Case(
            f"variational options/richardson-lucy/{name}/{boundary}",
            call,
            STOPPING["richardson-lucy"]["float64"],
        )


# ---------------------------------------------------------------------------------------------
# λ, the choice of method, many frames, deviations
# ---------------------------------------------------------------------------------------------


def rules(inputs: Inputs) -> Iterator[Case]:
    """Every rule of both families."""
    for rule, boundary, psf, dtype in product(
        ("gcv", "discrepancy", "lcurve", "upre"), BOUNDARIES, ("separable", "asymmetric"), DTYPES
    ):
        if dtype == "float32" and psf == "asymmetric":
            continue
        image = inputs.image((12, 11), psf, dtype)
        blur = deblur.Blur(PSFS[psf], image.shape, boundary, origin=ORIGINS.get(psf))
        call = partial(deblur.choose_lambda, blur, image, rule)
        yield Case(f"rules/choose_lambda/{rule}/{boundary}/{psf}/{dtype}", call, 1e-6, LAM[dtype])
    image = inputs.image((25, 24), "asymmetric")  # so large that the sums come from a bidiagonalisation
    for rule, boundary in (("gcv", "unknown"), ("lcurve", "zero")):
        blur = deblur.Blur(PSFS["asymmetric"], image.shape, boundary)
        call = partial(deblur.choose_lambda, blur, image, rule)
        yield Case(f"rules/choose_lambda/{rule}/{boundary}/bidiagonalised", call, 1e-6, 1e-5)
    image = inputs.image((12, 11), "separable")
    blur = deblur.Blur(PSFS["separable"], image.shape, "reflect")
    for name, options in {
        "noise": {"rule": "discrepancy", "noise": 0.02},
        "upre and noise": {"rule": "upre", "noise": 0.02},
        "data norm": {"norm": "data"},
        "bounds": {"bounds": (1e-3, 1.0)},
        "unknown rule": {"rule": "sure"},
        "unknown norm": {"norm": "max"},
        "noise below zero": {"noise": -1.0},
    }.items():
        yield Case(f"rules/choose_lambda/{name}", partial(deblur.choose_lambda, blur, image, **options), 1e-6)
    for rule, method in product(
        ("auto", "gcv", "discrepancy", "lcurve", "upre", "sure"), ("auto", "pcg", "hybrid-lsqr")
    ):
        image = inputs.image((11, 10), "asymmetric")
        for name, options in {
            "photograph": {"boundary": "unknown"},
            "hht": {"formula": "hht", "boundary": "zero"},
            "noise": {"noise": 0.02, "boundary": "reflect"},
        }.items():
            if name == "noise" and rule not in ("discrepancy", "upre"):
                continue
            call = partial(deblur.solve, image, PSFS["asymmetric"], rule, method=method, **options)
            yield Case(f"rules/linear/{rule}/{method}/{name}", call, STOPPING["auto"]["float64"], 1e-5)
    shape = (12, 11)
    noisy = inputs.image(shape, "asymmetric", noise=0.03)
    asked: dict[str, tuple[np.ndarray, dict[str, Any], tuple[str, ...]]] = {
        "plain": (noisy, {}, ("auto", "gcv", "sure", "discrepancy", "whiteness", "lcurve")),
        "noise": (noisy, {"noise": 0.03}, ("auto", "discrepancy")),
        "float32": (inputs.image(shape, "asymmetric", "float32", noise=0.03), {}, ("auto", "whiteness")),
        "poisson": (noisy, {"data": "poisson"}, ("auto", "discrepancy")),
        "huber": (noisy, {"data": "huber"}, ("auto", "gcv")),
        "mask": (noisy, {"mask": np.eye(*shape, dtype=bool)}, ("sure", "whiteness")),
    }
    for name, method in product(asked, ("gradient", "tv", "tv2", "collaborative", "pnp", "richardson-lucy")):
        if name not in {"tv": asked, "richardson-lucy": asked, "gradient": ("plain", "noise")}.get(
            method, ("plain",)
        ):
            continue
        given, options, names = asked[name]
        dtype = str(given.dtype)
        for rule in names if method not in ("tv2", "collaborative") else ("auto", "discrepancy"):
            call = partial(
                deblur.solve,
                given,
                PSFS["asymmetric"],
                rule,
                method=method,
                boundary="unknown",
                denoiser=smoother if method == "pnp" else None,
                check=False,
                **options,
            )
            lam = LAM_TUNED["float32" if method == "richardson-lucy" else dtype]
            yield Case(f"rules/{method}/{rule}/{name}", call, max(STOPPING[method][dtype], lam), lam)


def method_choice(_: Inputs) -> Iterator[Case]:
    """What "auto" takes, with the methods that could serve in the order of their predicted seconds."""
    asked = (
        (24, 1e-3, "tikhonov", "float64", 1),
        (24, 1e-2, "hht", "float64", 1),
        (300, 1e-7, "tikhonov", "float64", 20),
        (300, 1e-3, "tikhonov", "float32", 1),
    )
    for boundary, psf, (size, lam, formula, dtype, frames) in product(BOUNDARIES, PSFS, asked):
        blur = deblur.Blur(PSFS[psf], (size, size + 2), boundary, origin=ORIGINS.get(psf))
        options = {"formula": formula, "dtype": dtype, "frames": frames, "memory": 1 << 31}
        call = partial(deblur.choose_method, blur, lam, **options)
        yield Case(f"choose_method/{boundary}/{psf}/{size}/{lam:g}/{formula}/{dtype}/{frames}", call)
    blur = deblur.Blur(PSFS["asymmetric"], (64, 64))
    yield Case("choose_method/no memory", partial(deblur.choose_method, blur, 1e-3, memory=1000))


def many_frames(inputs: Inputs) -> Iterator[Case]:
    """`Deblurrer`, frame after frame, and `QRDeblurrer`, changing its mind."""
    video = inputs.image((3, 12, 11), "asymmetric")
    mask = np.eye(12, 11, dtype=bool)

    def played(
        lam: Any, images: Any = video, axes: dict[str, int] | None = None, **options: Any
    ) -> list[Any]:
        restore = deblur.Deblurrer(PSFS["asymmetric"], (12, 11), lam, **{"boundary": "zero", **options})
        return [restore.solve(frame, **(axes or {}), check=False) for frame in images]

    ways: dict[str, tuple[dict[str, Any], float, float]] = {
        "auto": ({"lam": 1e-2}, 1e-6, 1e-6),
        "cholesky": ({"lam": 1e-2, "method": "cholesky", "boundary": "reflect"}, 1e-12, 1e-6),
        "kept lambda": ({"lam": "gcv", "boundary": "unknown"}, 1e-6, 1e-5),
        "inverse": ({"lam": 1e-2, "method": "gauss-jordan", "inverse": True}, 1e-12, 1e-6),
        "gradient": ({"lam": 1e-2, "method": "gradient", "mask": mask, "rtol": 1e-11}, 1e-8, 1e-6),
        "tv": ({"lam": 5e-3, "method": "tv", "max_iterations": 10}, 1e-9, 1e-6),
        "tv of a rule": ({"lam": "discrepancy", "method": "tv", "max_iterations": 10}, 2e-3, 1e-4),
        "mask auto": ({"lam": 5e-3, "mask": "auto", "rtol": 1e-11}, 1e-8, 1e-6),
        "float32": ({"lam": 1e-2, "method": "lu", "dtype": np.float32}, 1e-5, 1e-6),
    }
    for name, (options, tolerance, lam_tolerance) in ways.items():
        yield Case(f"Deblurrer/{name}", partial(played, **options), tolerance, lam_tolerance)
    for name in ("cholesky", "gradient"):
        options, tolerance, _ = ways[name]
        call = partial(played, images=[video, video[:2]], axes={"stack_axis": 0}, **options)
        yield Case(f"Deblurrer/stacks/{name}", call, tolerance)
    yield Case("Deblurrer/another size", partial(played, 1e-2, images=video[:, 1:]))

    def mind_changed(boundary: str, dtype: str, method: str) -> list[np.ndarray]:
        first, second, _ = video.astype(dtype)
        restore = deblur.QRDeblurrer(
            PSFS["asymmetric"], (12, 11), 1e-2, boundary=boundary, origin=ORIGINS["asymmetric"], dtype=dtype
        )
        found = [restore(first)]
        restore.hide(mask, method=method)
        found.append(restore(first))
        restore.add_exposure(weights=np.where(mask, 2.0, 1.0), method=method)
        found.append(restore(first, second))
        restore.show(mask, method=method)
        restore.refactor()
        return [*found, restore(first, second)]

    for boundary, dtype, method in product(BOUNDARIES, DTYPES, ("auto", "update", "refactor")):
        if method == "auto" or (dtype, boundary) == ("float64", "unknown"):
            call = partial(mind_changed, boundary, dtype, method)
            yield Case(
                f"QRDeblurrer/{boundary}/{dtype}/{method}", call, {"float64": 1e-11, "float32": 1e-4}[dtype]
            )
    for name, options in {"lambda zero": {"lam": 0}, "all hidden": {"lam": 1, "mask": mask | True}}.items():
        yield Case(
            f"QRDeblurrer/refused/{name}", partial(deblur.QRDeblurrer, PSFS["round"], (12, 11), **options)
        )


def deviations(inputs: Inputs) -> Iterator[Case]:
    """`posterior_std` by every way, for every boundary and regularizer, with and without weights."""
    weights = 1 + np.arange(10.0)[:, None] % 3 * np.ones(9)
    weights[4, 4] = 0
    for method, boundary, regularizer, psf in product(
        ("fft", "dct", "dst", "kronecker", "cholesky", "auto"),
        BOUNDARIES,
        QUADRATIC,
        ("separable", "asymmetric"),
    ):
        if psf == ("separable" if method == "auto" else "asymmetric") and regularizer != "identity":
            continue
        blur = deblur.Blur(PSFS[psf], (10, 9), boundary, origin=ORIGINS.get(psf))
        call = partial(deblur.posterior_std, blur, 1e-2, noise=0.01, regularizer=regularizer, method=method)
        # The differences alone leave a constant to the data: condition numbers of 1e4 and more.
        yield Case(f"posterior_std/{method}/{boundary}/{regularizer}/{psf}", call, 1e-10)
        if method == "cholesky" and psf == "separable":
            weighted = partial(call, weights=weights)
            yield Case(f"posterior_std/{method}/{boundary}/{regularizer}/weights", weighted, 1e-10)
    for boundary, regularizer in product(BOUNDARIES, QUADRATIC):
        blur = deblur.Blur(PSFS["asymmetric"], (10, 9), boundary)
        call = partial(
            deblur.posterior_std, blur, 1e-2, noise=0.01, regularizer=regularizer, method="probing", probes=8
        )
        # Probes are solved for by conjugate gradients and weighed by their scatter.
        yield Case(f"posterior_std/probing/{boundary}/{regularizer}", call, 1e-3)
    blur = deblur.Blur(PSFS["separable"], (10, 9), "unknown")
    image = inputs.image((10, 9), "separable")
    yield Case("posterior_std/estimated noise", partial(deblur.posterior_std, blur, 1e-2, image=image), 1e-10)
    single = partial(deblur.posterior_std, blur, 1e-2, noise=0.01, dtype="float32")
    yield Case("posterior_std/float32", single, 1e-4)
    yield Case("posterior_std/no noise", partial(deblur.posterior_std, blur, 1e-2))
    yield Case("posterior_std/lambda zero", partial(deblur.posterior_std, blur, 0, noise=1))


# ---------------------------------------------------------------------------------------------
# Blurs, PSFs, degrading, measures
# ---------------------------------------------------------------------------------------------


def blurs(inputs: Inputs) -> Iterator[Case]:
    """`Blur` forth, back and as a matrix, `filter2matrix`, the PSFs, `degrade` and the measures."""
    for psf, boundary, dtype in product(PSFS, BOUNDARIES, DTYPES):
        blur = deblur.Blur(PSFS[psf], (9, 8), boundary, origin=ORIGINS.get(psf))
        scene, image = inputs.matrix(*blur.scene_shape, dtype=dtype), inputs.matrix(9, 8, dtype=dtype)
        name, tolerance = f"{psf}/{boundary}/{dtype}", ROUNDING[dtype]
        yield Case(f"Blur/forward/{name}", partial(blur.forward, scene), tolerance)
        yield Case(f"Blur/adjoint/{name}", partial(blur.adjoint, image), tolerance)
    for psf, boundary in product(("tilted", "asymmetric", "even"), BOUNDARIES):
        blur = deblur.Blur(PSFS[psf], (6, 5), boundary, origin=ORIGINS.get(psf))
        yield Case(f"Blur/to_sparse/{psf}/{boundary}", blur.to_sparse)
        call = partial(deblur.filter2matrix, PSFS[psf], 6, 5, boundary=boundary)
        yield Case(f"filter2matrix/{psf}/{boundary}", call)
    h = PSFS["asymmetric"]
    yield Case("filter2matrix/full", partial(deblur.filter2matrix, h, 4, 5, 7, 9))
    yield Case("filter2matrix/valid", partial(deblur.filter2matrix, h, 7, 8, 4, 4))
    yield Case("filter2matrix/origin", partial(deblur.filter2matrix, h, 5, 5, origin=(3, 1), sparse=True))
    yield Case("filter2matrix/float32", partial(deblur.filter2matrix, h, 5, 5, dtype=np.float32), 1e-6)
    yield Case("Blur/psf too large", partial(deblur.Blur, h, (3, 3), "reflect"))
    yield Case("Blur/unknown boundary", partial(deblur.Blur, h, (9, 9), "mirror"))
    for name, call in {
        "delta": partial(deblur.psf.delta, (3, 4)),
        "box": partial(deblur.psf.box, (2, 5)),
        "gaussian": partial(deblur.psf.gaussian, (5, 6), (1.0, 2.0)),
        "disk": partial(deblur.psf.disk, 7, 2.6),
        "motion": partial(deblur.psf.motion, 6.5, 35),
        "moffat": partial(deblur.psf.moffat, 7, 3.0, 2.5),
        "airy": partial(deblur.psf.airy, 9, 3.0),
        "camera_shake": partial(deblur.psf.camera_shake, 9, 4),
        "negative width": partial(deblur.psf.gaussian, 5, -1),
        "no size": partial(deblur.psf.box, 0),
    }.items():
        yield Case(f"psf/{name}", call)
    for text in (
        "gaussian:5x3,1.2",
        "disk:5",
        "motion:5,30",
        "box:3",
        "moffat:5,3",
        "airy:7,3",
        "shake:7,1",
        "delta:3",
        "blob:3",
        "disk:x",
    ):
        yield Case(f"psf/parse/{text}", partial(deblur.psf.parse, text))
    scene = inputs.scene(10, 9)
    for boundary, (noise, level) in product(
        BOUNDARIES, ((0.0, None), (0.05, None), ("gaussian", 0.02), ("salt-pepper", 0.1), ("poisson", 500))
    ):
        call = partial(deblur.degrade, scene, h, noise=noise, level=level, boundary=boundary, seed=3)
        yield Case(f"degrade/{noise}/{boundary}", call)
    colour = np.stack([scene, scene**2], axis=-1).astype(np.float32)
    yield Case("degrade/colour", partial(deblur.degrade, colour, h, noise=0.1, channel_axis=-1, seed=1), 1e-5)
    yield Case("degrade/unknown noise", partial(deblur.degrade, scene, h, noise="pink", level=1))
    yield Case("degrade/no level", partial(deblur.degrade, scene, h, noise="poisson"))
    one, two = inputs.image((12, 11)), inputs.image((12, 11), "even")
    for measure in (metrics.mse, metrics.psnr, metrics.ssim):
        yield Case(f"metrics/{measure.__name__}", partial(measure, one, two))
        yield Case(f"metrics/{measure.__name__}/shapes differ", partial(measure, one, two[1:]))
    yield Case(
        "metrics/ssim/colour",
        partial(metrics.ssim, np.stack([one, two]), np.stack([two, two]), channel_axis=0),
    )
    yield Case("metrics/psnr/range", partial(metrics.psnr, one, two, data_range=255))


def matlab_calls(inputs: Inputs) -> Iterator[Case]:
    """`deblur.matlab`, function by function."""
    image = np.clip(inputs.image((12, 11), "asymmetric"), 0, 1)
    bytes_ = np.rint(Inputs().image((12, 11), "asymmetric") * 255).astype(np.uint8)
    h = PSFS["asymmetric"]
    odd = h[:3, 1:4]
    for name, call in {
        "filter2matrix/same": partial(matlab.filter2matrix, odd, 5, 4, 5, 4),
        "filter2matrix/full": partial(matlab.filter2matrix, odd, 4, 4, 6, 6),
        "im2vector": partial(matlab.im2vector, image),
        "vector2im": partial(matlab.vector2im, inputs.matrix(12), (3, 4)),
        "reconstruction": partial(matlab.reconstruction, image, odd, 1e-2),
        "psf2otf": partial(matlab.psf2otf, h, (8, 9)),
        "otf2psf": partial(matlab.otf2psf, np.fft.fft2(inputs.matrix(8, 9)), (4, 5)),
        "edgetaper": partial(matlab.edgetaper, image, h),
        "immse": partial(matlab.immse, image, image**2),
        "psnr": partial(matlab.psnr, image, image**2),
        "psnr/bytes": partial(matlab.psnr, bytes_, bytes_[::-1]),
        "deconvwnr": partial(matlab.deconvwnr, image, h, 0.01),
        "deconvwnr/spectra": partial(matlab.deconvwnr, image, h, np.full((12, 11), 1e-4), image**2),
        "deconvreg": partial(matlab.deconvreg, image, h, 0.02),
        "deconvreg/lambda": partial(matlab.deconvreg, image, h, 0.02, 1e-2),
        "deconvlucy": partial(matlab.deconvlucy, image, h, 5),
        "deconvlucy/damped": partial(matlab.deconvlucy, image, h, 5, 0.02, np.tri(12, 11) + 1, 0.01),
        "deconvlucy/finer": partial(
            matlab.deconvlucy, image, np.kron(odd, np.ones((2, 2)) / 4), 3, None, None, 0, 2
        ),
        "deconvlucy/bytes": partial(matlab.deconvlucy, bytes_, h, 4),
        "deconvlucy/cells": partial(matlab.deconvlucy, [image], h, 2),
        "refused/deconvwnr": partial(matlab.deconvwnr, odd, h),
        "refused/fspecial": partial(matlab.fspecial, "round"),
        "refused/imnoise": partial(matlab.imnoise, image, "pink"),
    }.items():
        tolerance = 1e-6 if name == "deconvreg" else 1e-10 if name.startswith("deconv") else 1e-12
        yield Case(f"matlab/{name}", call, tolerance)
    for type_, *parameters in (
        ("average", (2, 3)),
        ("disk", 2.5),
        ("gaussian", (4, 5), 0.8),
        ("laplacian", 0.3),
        ("log", 5, 0.7),
        ("motion", 5, 40),
        ("prewitt",),
        ("sobel",),
        ("unsharp", 0.4),
    ):
        yield Case(f"matlab/fspecial/{type_}", partial(matlab.fspecial, type_, *parameters))
    for options in product(("symmetric", "replicate", "circular", 0.5), ("same", "full"), ("corr", "conv")):
        call = partial(matlab.imfilter, image[:7, :6], h, *options)
        yield Case("matlab/imfilter/" + "/".join(map(str, options)), call)
    yield Case("matlab/imfilter/bytes", partial(matlab.imfilter, bytes_, h))
    for type_, *parameters in (
        ("gaussian", 0.1, 0.02),
        ("localvar", np.full((12, 11), 0.01)),
        ("poisson",),
        ("salt & pepper", 0.1),
        ("speckle", 0.05),
    ):
        for given in (image, bytes_):
            call = partial(matlab.imnoise, given, type_, *parameters, seed=2)
            yield Case(f"matlab/imnoise/{type_}/{given.dtype}", call)


def linear_algebra(inputs: Inputs) -> Iterator[Case]:
    """`deblur.linalg`, function by function, in both dtypes."""
    for dtype in DTYPES:
        square, tall, wide = (inputs.matrix(m, n, dtype=dtype) for m, n in ((9, 9), (10, 6), (5, 8)))
        b, vector = inputs.matrix(9, 2, dtype=dtype), inputs.matrix(10, dtype=dtype)
        spd = square @ square.T
        lower = np.tril(square)
        deficient = tall.copy()
        deficient[:, 5] = deficient[:, 0] - deficient[:, 1]
        not_definite = spd - 1000 * np.eye(9, dtype=dtype)
        singular = square.copy()
        singular[:, 3] = 0
        calls: dict[str, Callable[[], Any]] = {
            "cholesky": partial(linalg.cholesky, spd),
            "cholesky/not definite": partial(linalg.cholesky, not_definite),
            "cholesky_solve": lambda spd=spd, b=b: linalg.cholesky_solve(linalg.cholesky(spd), b),
            "cholesky_inverse": partial(linalg.cholesky_inverse, spd),
            "gauss_jordan_inverse": partial(linalg.gauss_jordan_inverse, square),
            "gauss_jordan_inverse/blocks": partial(linalg.gauss_jordan_inverse, square, block=4),
            "gauss_jordan_inverse/singular": partial(linalg.gauss_jordan_inverse, singular),
            "gauss_jordan_solve": partial(linalg.gauss_jordan_solve, square, b),
            "gauss_seidel": partial(linalg.gauss_seidel, spd, b, rtol=ASKED[dtype]),
            "gauss_seidel/few": partial(linalg.gauss_seidel, spd, b, max_sweeps=3, block=4),
            "gauss_seidel/cg": partial(linalg.gauss_seidel, spd, b, rtol=ASKED[dtype], acceleration="cg"),
            "matmul": partial(linalg.matmul, tall.T, vector),
            "gram": partial(linalg.gram, tall),
            "gram/transposed": partial(linalg.gram, tall, trans=True),
            "transpose": partial(linalg.transpose, tall),
            "gets": partial(linalg.gets, lower),
            "gets/upper": partial(linalg.gets, lower.T, lower=False),
            "gets/unit diagonal": partial(linalg.gets, lower / 12, unit_diagonal=True),
            "solve_triangular": partial(linalg.solve_triangular, lower, b),
            "solve_triangular/transposed": partial(linalg.solve_triangular, lower, b, trans=True),
            "householder": partial(linalg.householder, vector),
            "householder_matrix": partial(linalg.householder_matrix, vector, 0.1),
            "apply_householder": partial(linalg.apply_householder, vector, 0.1, tall),
            "apply_householder/right": partial(linalg.apply_householder, vector, 0.1, tall.T, "right"),
            "compact_wy": partial(linalg.compact_wy, np.tril(tall)[:, :4], vector[:4]),
            "lstsq": partial(linalg.lstsq, tall, vector),
            "lstsq/wide": partial(linalg.lstsq, wide, vector[:5]),
            "lstsq/deficient": partial(linalg.lstsq, deficient, vector),
            "lstsq/deficient refused": partial(linalg.lstsq, deficient, vector, on_deficient="raise"),
            "damped_lstsq": partial(linalg.damped_lstsq, tall, vector, 0.1),
            "damped_lstsq/sparse": partial(linalg.damped_lstsq, scipy.sparse.csr_array(tall), vector, 0.1),
            "damped_qr": lambda a=tall, b=vector: linalg.damped_qr(a, 0.1).solve(b),
            "qr/reduced": partial(linalg.qr, tall),
            "qr/complete": partial(linalg.qr, tall, "complete"),
            "qr/r": partial(linalg.qr, wide, "r"),
            "qr/raw": partial(linalg.qr, tall, "raw"),
            "qr/positive": partial(linalg.qr, tall, signs="positive"),
            "qr_blocked": partial(linalg.qr_blocked, tall, 4),
            "not finite": partial(linalg.qr, tall * np.nan),
        }
        for which, k in product(("row", "col"), (0, 3)):
            new = inputs.matrix(6, dtype=dtype) if which == "row" else vector
            calls[f"qr_insert/{which}/{k}"] = partial(_updated, tall, linalg.qr_insert, new, k, which)
            calls[f"qr_delete/{which}/{k}"] = partial(_updated, tall, linalg.qr_delete, k, 2, which)
        for way, keep_q in product(("update", "refactor"), (True, False)):
            calls[f"QRModel/{way}/{keep_q}"] = partial(_model, tall, vector, way, keep_q)
        for name, call in calls.items():
            loose = "QRModel" in name or "gauss_seidel" in name
            tolerance = {"float64": 1e-10 if loose else 1e-12, "float32": 1e-3 if loose else 1e-5}[dtype]
            yield Case(f"linalg/{name}/{dtype}", call, tolerance)


def _updated(a: np.ndarray, change: Callable[..., Any], *arguments: Any) -> tuple[np.ndarray, np.ndarray]:
    """The factors after `change`, with the signs that are free made positive."""
    q, r = change(*np.linalg.qr(a, "complete"), *arguments)
    signs = np.ones(len(r), r.dtype)
    diagonal = np.diagonal(r)
    signs[: len(diagonal)] = np.where(diagonal < 0, -1, 1)
    return r * signs[:, None], (q * signs)[:, : len(diagonal)]


def _model(a: np.ndarray, b: np.ndarray, method: str, keep_q: bool) -> list[np.ndarray]:
    model = linalg.QRModel(a, b, keep_q=keep_q, method=method)
    found = [model.solve(), model.residual()]
    model.add_rows(a[:2] * 2, b[:2])
    found.append(model.solve())
    model.remove_rows([1, 4])
    found.append(model.solve())
    model.add_columns(np.cos(np.arange(10.0)).astype(a.dtype))
    found.append(model.solve())
    model.remove_columns(2)
    return [*found, model.solve()]


def cases(move: float = 0) -> list[Case]:
    """All of them; with `move` of inputs that many rounding units away."""
    inputs = Inputs(move)
    groups = (
        linear,
        linear_options,
        variational,
        variational_options,
        rules,
        method_choice,
        many_frames,
        deviations,
        blurs,
        matlab_calls,
        linear_algebra,
    )
    return [case for group in groups for case in group(inputs)]


# ---------------------------------------------------------------------------------------------
# Answers
# ---------------------------------------------------------------------------------------------


def parts(answer: Any, name: str = "") -> dict[str, Any]:
    """What is recorded of an answer: names with arrays, numbers and words."""

    def named(**found: Any) -> dict[str, Any]:
        prefix = f"{name}." if name else ""
        return {f"{prefix}{part}": value for part, value in found.items() if value is not None}

    if isinstance(answer, deblur.Result):
        return named(
            image=answer.image,
            method=answer.method,
            status=answer.status.name,
            lam=None if answer.lambda_choice is None else answer.lam,
            data_residual=answer.data_residual,
            objective=answer.objective,
            mask=answer.mask,
        )
    if isinstance(answer, deblur.LambdaChoice):
        return named(lam=answer.lam, noise=answer.noise)
    if isinstance(answer, deblur.Choice):
        return named(method=answer.method, candidates=" ".join((answer.method, *answer.others)))
    if isinstance(answer, deblur.PosteriorStd):
        # The estimate's own error is rounding where the torus is the scene: it is looked at beside the deviation.
        upper = None if answer.standard_error is None else answer.std + answer.standard_error
        return named(std=answer.scene_std, upper=upper, method=answer.method, noise=answer.noise)
    if isinstance(answer, linalg.GaussSeidelInfo):
        return named(status=answer.status)
    if isinstance(answer, tuple | list):
        found: dict[str, Any] = {}
        for i, part in enumerate(answer):
            found.update(parts(part, f"{name}.{i}" if name else str(i)))
        return found
    if scipy.sparse.issparse(answer):
        return {name or "value": answer.toarray()}
    if isinstance(answer, np.ndarray) and answer.ndim == 0:
        answer = answer[()]
    if isinstance(answer, np.generic):
        answer = answer.item()
    assert isinstance(answer, np.ndarray | float | int | str), f"how is {type(answer)} recorded?"
    return {name or "value": answer}


def answered(case: Case) -> tuple[dict[str, Any], Exception | None]:
    """The parts of the answer, or the name of the type of the refusal; and the refusal itself."""
    try:
        return parts(case.call()), None
    except Exception as error:
        return {"raises": type(error).__name__}, error


def differences(case: Case, expected: dict[str, Any], found: dict[str, Any]) -> list[tuple[float, str]]:
    """Where two answers differ: how many times what is allowed (infinite if they cannot be compared), in words."""
    wrong = []
    for name in [*expected, *(n for n in found if n not in expected)]:
        was, now = expected.get(name), found.get(name)
        excess, words = np.inf, f"{name} was {_short(was)} and is {_short(now)}"
        if isinstance(was, np.ndarray) and isinstance(now, np.ndarray):
            if (was.shape, was.dtype) == (now.shape, now.dtype):
                excess, words = _apart(
                    was, now, case.tolerance, float(np.abs(was).max(initial=0)) or 1.0, name
                )
        elif isinstance(was, float) and isinstance(now, float):
            own = name.split(".")[-1] == "lam"
            scale = abs(was) or 1.0 if own else max(1.0, abs(was))
            excess, words = _apart(was, now, case.lam_tolerance if own else case.tolerance, scale, name)
        elif type(was) is type(now) and was == now:
            continue
        wrong.append((excess, words))
    return wrong


def _apart(was: Any, now: Any, tolerance: float, scale: float, name: str) -> tuple[float, str]:
    same = np.equal(was, now) | (np.isnan(was) & np.isnan(now))
    if np.all(same):
        return 0.0, ""
    if np.asarray(was).dtype.kind in "bui":
        return np.inf, f"{name} differs at {np.sum(~same)} of {np.size(was)} places"
    off = np.where(same, 0, abs(np.subtract(was, now)))
    far = float(np.max(off)) / scale
    return far / tolerance if far == far else np.inf, (
        f"{name} differs by {far:.2g} of {scale:.3g}, and {tolerance:.0e} is allowed"
    )


def _short(value: Any) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else repr(value)


# ---------------------------------------------------------------------------------------------
# The files: arrays end to end in one of each dtype; the words say in order which is whose
# ---------------------------------------------------------------------------------------------


def save(answers: dict[str, dict[str, Any]]) -> None:
    """Write `answers`, {case: {part: value}}."""
    flat: dict[str, list[np.ndarray]] = {}
    lines = []
    for name, answer in answers.items():
        words = {}
        for part, value in answer.items():
            if isinstance(value, np.ndarray):
                flat.setdefault(str(value.dtype), []).append(value.ravel())
                words[part] = [str(value.dtype), *value.shape]
            else:
                words[part] = value
        lines.append(f"{json.dumps(name)}: {json.dumps(words)}")
    WORDS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    np.savez_compressed(ARRAYS, **{dtype: np.concatenate(pieces) for dtype, pieces in flat.items()})


def load() -> dict[str, dict[str, Any]]:
    """What `save` has written."""
    answers = json.loads(WORDS.read_text(encoding="utf-8"))
    with np.load(ARRAYS) as kept:
        flat = dict(kept)
    at = dict.fromkeys(flat, 0)
    for answer in answers.values():
        for part, value in answer.items():
            if isinstance(value, list):
                dtype, *shape = value
                size = int(np.prod(shape))
                answer[part] = flat[dtype][at[dtype] : at[dtype] + size].reshape(shape)
                at[dtype] += size
    return answers


def main() -> None:
    """Write the answers, add those of new cases, or show what rounding does to them."""
    warnings.simplefilter("error")
    if "--moved" in sys.argv:
        recorded = load()
        for case in cases(move=1):
            for excess, words in differences(case, recorded[case.id], answered(case)[0]):
                if excess > 0.1:
                    sys.stdout.write(f"{case.id}: {words}\n")
        return
    recorded = load() if len(sys.argv) > 1 else {}
    if "--again" in sys.argv:  # only where the rule above is kept
        again = tuple(sys.argv[sys.argv.index("--again") + 1 :])
        recorded = {name: answer for name, answer in recorded.items() if not name.startswith(again)}
    start = time.perf_counter()
    answers = {case.id: recorded.get(case.id) or answered(case)[0] for case in cases()}
    save(answers)
    size = ARRAYS.stat().st_size + WORDS.stat().st_size
    sys.stdout.write(f"{len(answers)} answers in {time.perf_counter() - start:.0f} s, {size / 1e6:.2f} MB\n")


if __name__ == "__main__":
    main()

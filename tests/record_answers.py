"""The recorded answers of the public calls, which `test_recorded_answers.py` compares with those of later versions.

``python tests/record_answers.py`` adds the answers of new cases to ``tests/data/recorded_answers.npz``; ``--again``
takes all cases again, or those whose names begin with the words that follow. A recorded answer may only change
together with a line in CHANGELOG.md that says why.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.ndimage

import deblur
from deblur import matlab, metrics, psf
from deblur.problem import Problem

RECORDED = Path(__file__).parent / "data" / "recorded_answers.npz"

# Allowed differences, relative to the largest modulus of the recorded array. A direct method with a condition number
# of 100 (10 in float32), one with condition numbers of 1e4, an iteration to a residual of 1e-12 or for a given number
# of steps, and an iteration that stops by its own default.
ROUNDING, SINGLE, CONDITIONED, ITERATED, STOPPED = 1e-12, 1e-5, 1e-10, 1e-9, 1e-4
SHAPE = (12, 11)
PSFS: dict[str, np.ndarray] = {
    "separable": np.outer([1, 2, 1], [2, 3, 2]) / 28,
    "round": np.minimum(np.outer([1, 3, 4, 3, 1], [1, 3, 4, 3, 1]), 9) / 125,  # symmetric, not separable
    "asymmetric": np.array([[0, 1, 0, 0, 0], [2, 5, 1, 0, 0], [0, 3, 4, 2, 0], [0, 0, 1, 2, 1]]) / 22.0,
    "even": np.outer([1, 3, 2, 1], [2, 1]) / 21,
}
ORIGINS = {"asymmetric": (1, 2), "even": (2, 0)}


class Case(NamedTuple):
    """A call with its name and the allowed difference of its arrays and numbers."""

    id: str
    call: Callable[[], Any]
    tolerance: float = ROUNDING
    lam_tolerance: float = 1e-6


def image(*shape: int, psf: str = "asymmetric", dtype: str = "float64") -> np.ndarray:
    """A slope, a wave, a square and a dark bar, blurred and with noise; leading axes count frames or colours."""
    *lead, rows, cols = shape
    frames = []
    i, j = np.mgrid[:rows, :cols] / max(rows, cols)
    for k in range(int(np.prod(lead))):
        x = 0.35 + 0.2 * i + 0.1 * np.sin(9 * j + 5 * i + 0.7 * k)
        x[rows // 4 : rows // 2, cols // 3 : 2 * cols // 3] += 0.3
        x[-rows // 3 : -rows // 4, 1 : cols // 2] -= 0.25
        frames.append(scipy.ndimage.convolve(x, PSFS[psf], mode="nearest"))
    frames += 0.01 * np.random.default_rng(rows * cols).standard_normal((len(frames), rows, cols))
    return np.reshape(frames, shape).astype(dtype)


def solved(g: np.ndarray, name: str, lam: float | str, **options: Any) -> Callable[[], deblur.Result]:
    """The call of `solve` with the PSF of that name."""
    options = {"origin": ORIGINS.get(name), "check": False, **options}
    return partial(deblur.solve, g, PSFS[name], lam, **options)


def linear() -> Iterator[Case]:
    """Options of the linear methods; by boundary, formula and PSF they are compared with dense solves elsewhere."""
    grey, colours = image(*SHAPE), np.moveaxis(image(3, *SHAPE), 0, -1)
    for option, g, options, tolerance in (
        ("smooth prior", grey, {"prior": "smooth", "boundary": "unknown"}, ROUNDING),
        ("colours", colours, {"channel_axis": -1}, ROUNDING),
        ("uint8", np.rint(grey * 255).astype(np.uint8), {}, SINGLE),
        ("inverse", grey, {"method": "gauss-jordan", "inverse": True}, ROUNDING),
        ("iterations", grey, {"method": "pcg", "max_iterations": 3}, ITERATED),
    ):
        call = solved(g, "asymmetric", 0.01, **{"method": "cholesky", "boundary": "zero"} | options)
        yield Case(f"linear/{option}", call, tolerance)


def variational() -> Iterator[Case]:
    """The variational methods: the quadratic ones solved, of the others some steps."""
    g, steps = image(*SHAPE), {"max_iterations": 8}
    mask = np.zeros(SHAPE, bool)
    mask[3:5, 4:7] = mask[10, 2] = True
    hidden = {"mask": mask, "weights": 1 + np.arange(SHAPE[0])[:, None] % 3 * np.ones(SHAPE[1])}
    impulses = g.copy()
    impulses[2, 3], impulses[6, 8] = 0, 1
    axes = {"stack_axis": 0, "channel_axis": 1}
    for words, img, options, tolerance in (
        ("identity/periodic", g, {"rtol": 1e-12}, ITERATED),
        ("gradient/unknown", g, {"rtol": 1e-12}, ITERATED),
        ("laplacian/antireflect", g, {"rtol": 1e-12}, ITERATED),
        ("tv/unknown", g, steps, ITERATED),
        ("tv-aniso/reflect", g, steps, ITERATED),
        ("tv2/periodic", g, steps, ITERATED),
        ("pnp/zero", g, {"max_iterations": 4, "denoiser": "tv"}, ITERATED),
        ("collaborative/periodic", g, {"max_iterations": 1}, STOPPED),
        ("richardson-lucy/unknown", g, steps, ITERATED),
        ("richardson-lucy/reflect/mask", g, {"mask": mask, **steps}, ITERATED),
        ("tv/reflect/mask, weights and bounds", g, {"bounds": (0.2, 0.7), **hidden, **steps}, ITERATED),
        ("gradient/reflect/automatic mask", impulses, {"mask": "auto", "rtol": 1e-12}, ITERATED),
        ("tv/reflect/poisson", g, {"data": "poisson", "background": 0.1, **steps}, 1e-6),
        ("tv/unknown/l1", impulses, {"data": "l1", **steps}, 1e-6),
        ("tv/reflect/huber", impulses, {"data": "huber", "delta": 0.05, **steps}, 1e-6),
        ("tv/reflect/axes", image(2, 2, *SHAPE), {**axes, "bounds": "nonnegative", **steps}, ITERATED),
        ("tv/zero/float32", g.astype("float32"), steps, STOPPED),
        ("fft/periodic/refused mask", g, {"mask": mask}, ROUNDING),
    ):
        method, boundary = words.split("/")[:2]
        call = solved(img, "asymmetric", 5e-3, method=method, boundary=boundary, **options)
        yield Case(f"variational/{words}", call, tolerance)


def rules() -> Iterator[Case]:
    """λ by the rules, and what follows from it."""
    g = image(*SHAPE)
    for rule in ("gcv", "discrepancy", "lcurve", "upre"):
        blur = deblur.Blur(PSFS["asymmetric"], SHAPE, "reflect")
        yield Case(f"rules/choose_lambda/{rule}", partial(deblur.choose_lambda, blur, g, rule), 1e-6)
    yield Case("rules/detected boundary", solved(g, "asymmetric", "auto"), 1e-6, 1e-5)
    yield Case("rules/tv", solved(g, "asymmetric", "auto", method="tv"), 2e-3, STOPPED)


def many_frames() -> Iterator[Case]:
    """`Deblurrer`, frame after frame, and `QRDeblurrer` with hidden pixels and a second exposure."""
    video = image(3, *SHAPE)

    def play(lam: float | str, **options: Any) -> list[deblur.Result]:
        restore = deblur.Deblurrer(PSFS["asymmetric"], SHAPE, lam, boundary="unknown", **options)
        return [restore.solve(frame, check=False) for frame in video]

    yield Case("Deblurrer/cached lambda", partial(play, "gcv"), 1e-6, 1e-5)
    yield Case("Deblurrer/tv", partial(play, 5e-3, method="tv", max_iterations=10), ITERATED)

    def change() -> list[np.ndarray]:
        restore = deblur.QRDeblurrer(PSFS["asymmetric"], SHAPE, 1e-2, boundary="unknown", origin=(1, 2))
        mask = np.eye(*SHAPE, dtype=bool)
        restore.hide(mask, method="update")
        restore.add_exposure(weights=np.where(mask, 2.0, 1.0), method="update")
        found = [restore(video[0], video[1])]
        restore.show(mask, method="update")
        return [*found, restore(video[0], video[1])]

    yield Case("QRDeblurrer", change, 1e-11)


def others() -> Iterator[Case]:
    """`posterior_std`, PSFs, metrics, `degrade` and `deblur.matlab`."""
    one, two, h = image(*SHAPE), image(*SHAPE, psf="even"), PSFS["asymmetric"]
    clipped = np.clip(one, 0, 1)
    for name, boundary, options, tolerance in (
        ("separable", "periodic", {"regularizer": "gradient"}, CONDITIONED),
        ("asymmetric", "unknown", {}, CONDITIONED),
        ("asymmetric", "reflect", {"method": "probing", "probes": 8}, 1e-3),
    ):
        blur = deblur.Blur(PSFS[name], (10, 9), boundary, origin=ORIGINS.get(name))
        regularizer = options.pop("regularizer", "identity")
        call = partial(deblur.posterior_std, Problem(blur, 1e-2, regularizer), noise=0.01, **options)
        yield Case(f"posterior_std/{boundary}", call, tolerance)
    yield Case("psf", lambda: [psf.disk(7), psf.motion(6.5, 35), psf.airy(9, 3), psf.camera_shake(9, 4)])
    yield Case("metrics", lambda: [metrics.mse(one, two), metrics.psnr(one, two), metrics.ssim(one, two)])
    for noise, level, boundary in (("gaussian", 0.02, "unknown"), ("poisson", 500, "antireflect")):
        options = {"noise": noise, "level": level, "boundary": boundary, "seed": 3}
        yield Case(f"degrade/{noise}", partial(deblur.degrade, clipped, h, **options))
    for call, arguments, tolerance in (
        (matlab.deconvwnr, (h, 0.01), CONDITIONED),
        (matlab.deconvreg, (h, 0.02), 1e-6),
        (matlab.deconvlucy, (h, 5, 0.02, np.tri(*SHAPE) + 1, 0.01), CONDITIONED),
        (matlab.edgetaper, (h,), ROUNDING),
        (matlab.reconstruction, (h[:3, 1:4], 1e-2), ROUNDING),
    ):
        yield Case(f"matlab/{call.__name__}", partial(call, clipped, *arguments), tolerance)


def cases() -> list[Case]:
    """All cases."""
    return [case for group in (linear, variational, rules, many_frames, others) for case in group()]


def parts(answer: Any, name: str) -> dict[str, np.ndarray]:
    """The recorded arrays, numbers and words of an answer, by name."""
    if isinstance(answer, tuple | list):
        return {key: part for i, one in enumerate(answer) for key, part in parts(one, f"{name}{i} ").items()}
    fields = {
        deblur.Result: ("image", "method", "status.name", "lam", "data_residual", "objective", "mask"),
        deblur.LambdaChoice: ("lam", "noise"),
        deblur.PosteriorStd: ("scene_std", "method", "noise"),
    }.get(type(answer), ("real",))
    found = {f"{name}{field}": attrgetter(field)(answer) for field in fields}
    return {key: np.asarray(value) for key, value in found.items() if value is not None}


def answered(case: Case) -> tuple[dict[str, np.ndarray], Exception | None]:
    """The parts of the answer, or the name of the refusal's type and the refusal."""
    try:
        return parts(case.call(), f"{case.id}: "), None
    except Exception as error:
        return {f"{case.id}: raises": np.asarray(type(error).__name__)}, error


def load() -> dict[str, dict[str, np.ndarray]]:
    """Read {case: {part: value}}."""
    recorded: dict[str, dict[str, np.ndarray]] = {}
    with np.load(RECORDED) as arrays:
        for name in arrays.files:
            recorded.setdefault(name.split(":")[0], {})[name] = arrays[name]
    return recorded


def main() -> None:
    """Write the answers of new cases, and of those whose names begin as an argument says."""
    warnings.simplefilter("error")
    recorded = load() if RECORDED.exists() else {}
    answers: dict[str, np.ndarray] = {}
    for case in cases():
        again = "--again" in sys.argv and case.id.startswith(tuple(sys.argv[2:]) or "")
        answers |= answered(case)[0] if again or case.id not in recorded else recorded[case.id]
    np.savez_compressed(RECORDED, **answers)


if __name__ == "__main__":
    main()

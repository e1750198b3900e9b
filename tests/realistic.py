"""Realistic problems drawn at random: a photograph, a PSF of any kind, noise, a boundary, λ by rule or as a number."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import deblur
from deblur.device import Array

NAMES = deblur.data.names()
NOISE = (0.0, 0.0, 1e-4, 1e-3, 5e-3, 0.01, 0.02, 0.05)
RULES = ("auto", "auto", "auto", "auto", "gcv", "discrepancy", "lcurve", "upre")
DTYPES = (np.float64, np.float64, np.float32, np.uint8)


def photograph(size=96, at=(100, 180), name="camera"):
    """A grey square of a sample picture."""
    picture = deblur.image.as_float(deblur.data.load(name))
    picture = picture if picture.ndim == 2 else picture.mean(axis=2)
    return picture[at[0] : at[0] + size, at[1] : at[1] + size]


@dataclass(frozen=True)
class Draw:
    """One realistic problem.

    Attributes
    ----------
    image : array
        Blurred and noisy; its last axis is colour where it has three.
    truth : array
        The sharp picture inside the same frame.
    psf : array
    lam : float or str
    options : dict
        Of `deblur.solve`.
    words : str
        Description of the draw.
    """

    image: Array
    truth: Array
    psf: Array
    lam: float | str
    options: dict[str, Any]
    words: str


@cache
def _photograph(name: str) -> Array:
    return deblur.image.as_float(deblur.data.load(name))


def _psf(rng: np.random.Generator, most: int) -> tuple[Array, str]:
    """A PSF of any kind, with sides of at most `most` pixels."""
    side = int(rng.integers(1, most + 1))
    width = float(rng.uniform(0.3, max(side / 4, 0.5)))
    angle = float(rng.choice([0, 90, rng.uniform(0, 180)]))
    kinds = {
        "gaussian": lambda: deblur.psf.gaussian(side, width),
        "box": lambda: deblur.psf.box((side, int(rng.integers(1, most + 1)))),
        "disk": lambda: deblur.psf.disk(side),
        "motion": lambda: deblur.psf.motion(side, angle),
        "moffat": lambda: deblur.psf.moffat(side, max(width, 0.5)),
        "airy": lambda: deblur.psf.airy(side, max(width, 0.5)),
        "shake": lambda: deblur.psf.camera_shake(max(side, 3) | 1, rng),
        "any": lambda: rng.random((side, int(rng.integers(1, most + 1)))),
        "sides": lambda: np.outer(np.exp(-np.arange(side) / width), np.exp(-np.arange(side) / width)),
    }
    kind = str(rng.choice(list(kinds)))
    h = kinds[kind]()
    return h / h.sum(), f"{kind} {h.shape[0]}x{h.shape[1]}"


def draw(rng: np.random.Generator, largest: int = 256) -> Draw:
    """One realistic problem of at most `largest` pixels a side."""
    while True:
        name = str(rng.choice(NAMES))
        photograph = _photograph(name)
        rows, cols = (int(min(np.exp(rng.uniform(np.log(8), np.log(largest))), 256)) for _ in range(2))
        h, kind = _psf(rng, max(min(rows, cols, 25) // 2, 1))
        # A camera's scene goes on beyond the frame; in some draws it ends as the boundary says.
        boundary = str(rng.choice(list(deblur.BOUNDARIES)))
        beyond = boundary == "unknown" or rng.random() < 0.5
        extra = tuple(n - 1 if beyond else 0 for n in h.shape)
        shape = rows + extra[0], cols + extra[1]
        if shape[0] > photograph.shape[0] or shape[1] > photograph.shape[1]:
            continue
        at = [int(rng.integers(0, n - m + 1)) for n, m in zip(photograph.shape, shape)]
        scene = photograph[at[0] : at[0] + shape[0], at[1] : at[1] + shape[1]]
        if scene.ndim == 3 and rng.random() < 0.5:
            scene = scene.mean(axis=-1)
        break
    axis = -1 if scene.ndim == 3 else None
    noise = float(rng.choice(NOISE))
    blurred = deblur.degrade(
        scene, h, noise=noise, boundary="unknown" if beyond else boundary, channel_axis=axis, seed=rng
    )
    top, left = (n // 2 if beyond else 0 for n in h.shape)
    truth = scene[top : top + rows, left : left + cols]
    dtype = DTYPES[rng.integers(len(DTYPES))]
    image = (np.clip(np.rint(255 * blurred), 0, 255) if dtype is np.uint8 else blurred).astype(dtype)
    lam = float(10.0 ** rng.uniform(-5, 0)) if rng.random() < 0.3 else str(rng.choice(RULES))
    words = (
        f"{name} {rows}x{cols}{' colour' if axis else ''} {np.dtype(dtype).name}, {kind}, noise {noise:g}, "
        f"{'beyond the frame' if beyond else 'within'}, boundary {boundary}, λ {lam}"
    )
    return Draw(image, truth, h, lam, {"boundary": boundary, "channel_axis": axis}, words)


def outcome(d: Draw) -> dict[str, Any]:
    """The outcome of `deblur.solve` with default options: {"status", "method", "words"}, or an error."""
    try:
        result = deblur.solve(d.image, d.psf, d.lam, check=False, **d.options)
    except Exception as error:  # any error is a failure: it is counted, not raised
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{at.name}:{at.lineno}"
        return {"status": "ERROR", "words": d.words, "error": f"{type(error).__name__}: {error} ({where})"}
    return {"status": result.status.name, "method": result.method, "words": d.words}

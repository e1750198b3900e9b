"""The noise of photon counts: the gain, and the variance at each pixel."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ..device import Array, random_signs
from ..kernels import pixelwise
from ..norms import combined, total
from ..operators.torus import Torus
from ..problem import Problem
from .noise import NoiseModel, estimate_noise_model, psf_noise, step_of
from .start import filled
from .windows import cut


def two_images(problem: Problem, g: Array) -> Array:
    """Pairs of images with independent noise of twice the variance: simulated noise is added to one and subtracted from
    the other, at no pixel more than its value. A small image gives several pairs, to be averaged."""
    xp, pairs = problem.xp, max(min(2**15 // g.size, 8), 1)
    v, left = variance(problem, g)
    model = NoiseModel(0.0, math.sqrt(max(float(total(v)) / g.size - left**2, 0.0)), left=left)
    signs = model.coloured(random_signs((pairs, *g.shape), g.dtype, xp))
    sides = xp.asarray(np.array([1, -1], g.dtype).reshape(2, *[1] * (g.ndim - 1)))
    both = pixelwise(lambda xp, v, g, sign, side: g + side * xp.clip(sign * xp.sqrt(v), -g, g), v, g, signs, sides)
    return both.reshape(-1, *g.shape[1:]).astype(g.dtype, copy=False)


def variance(problem: Problem, g: Array) -> tuple[Array, float]:
    """The variance of the noise at each pixel, an upper estimate: too small a variance would hide noise; and the
    deviation of what an error of the PSF leaves of it."""
    if problem.noise is not None:
        return g * problem.noise.gain + problem.noise.read**2, 0.0
    gain, step = photon_gain(problem, g), step_of(g)
    counted = combined(g, a=gain)
    if step and 6 * gain * float(total(g)) <= g.size * step**2:
        # Rounding explains all of it: as much in light and dark, and none where all neighbours have one value.
        moves = itertools.product((1, -1), range(-problem.axes, 0))
        alike = math.prod((g == problem.xp.roll(g, *move) for move in moves), start=True)
        counted = ~alike * g.dtype.type(step**2 / 12)
    if problem.axes != 2 or min(g.shape[-2:]) < 4:
        return counted, 0.0
    seen, psf = filled(g, problem.fidelity.weights), problem.operator.mean_blur.psf
    model = estimate_noise_model(seen)._replace(left=psf_noise(seen, psf).left)
    return problem.xp.maximum(counted, model.variance(g)), model.left


def photon_gain(problem: Problem, g: Array) -> float:
    """The variance of counts over their mean, from the tenth of the frequencies of which the blur leaves least.

    Their noise has the same power at each frequency, that of all counts: bright parts show it, however few they are.
    """
    seen, psf = filled(g, problem.fidelity.weights), problem.operator.mean_blur.psf
    windows = cut(problem, seen, None, side=[round(2 ** (17 / psf.ndim))] * psf.ndim, interior=True, most=2)
    frames = (windows[1] if windows else seen).astype(np.float64)
    sides, xp = frames.shape[2:], problem.xp
    torus = Torus(sides, problem.device)
    folded, lines = np.zeros(np.minimum(psf.shape, sides)), (np.hanning(n + 2)[1:-1] for n in sides)
    np.add.at(folded, np.ix_(*(np.arange(m) % n for m, n in zip(psf.shape, sides, strict=True))), psf)
    taper = math.prod(xp.asarray(x).reshape(-1, *[1] * (len(sides) - 1 - at)) for at, x in enumerate(lines))
    # The taper spreads the power of each frequency.
    left, spread = map(torus.synthesise, (torus.power(folded), abs(torus.analyse(taper)) ** 2))
    left = torus.analyse(left * spread).real
    least = left <= xp.sort(left.ravel())[left.size // 10]
    found = (abs(torus.analyse(frames * taper)) ** 2 * least).sum() / least.astype(np.float64).sum()
    return float(found / (taper**2 * frames).sum())

"""Noise of photon counts: its gain, and its variance at each pixel."""

from __future__ import annotations

import itertools
import math
from functools import reduce
from types import ModuleType

import numpy as np

from ..device import Array, random_signs
from ..image.arrays import step_of
from ..norms import combined, outer, squares, total
from ..operators.torus import Torus, wound
from ..pixelwise import copied, fused
from ..problem import Problem
from .noise import NoiseModel, estimate_noise_model, psf_noise
from .start import filled
from .whittle import tapered
from .windows import cut


def deviation(problem: Problem, g: Array) -> tuple[Array, NoiseModel]:
    """Return the noise's standard deviation at each pixel, at most the pixel's value, and the PSF error's noise model.

    The first result has the shape of g (k, c, *space); the second one is that of `variances`.
    """
    *both, wrong = variances(problem, g)
    return _deviation(*both, g), wrong


@fused
def _deviation(xp: ModuleType, v: Array, u: Array, g: Array) -> Array:
    return xp.minimum(xp.sqrt(xp.maximum(v, u)), g)


def pairs_of(size: float) -> int:
    """Return the number of pairs that `two_images` makes of an image of so many numbers."""
    return int(max(min(2**15 // size, 8), 1))


def two_images(problem: Problem, g: Array) -> tuple[Array, float]:
    """Return pairs of images with independent noise of twice the variance, and the part of λ for the PSF's error.

    Simulated noise is added to one image of a pair and subtracted from the other, at no pixel more than its value. A
    small image yields several pairs, whose results are to be averaged. The second result holds for the linear formula.
    It limits the PSF's error to 0.1, since larger ones are unlikely.
    """
    xp, pairs = problem.xp, pairs_of(g.size)
    (noise, wrong), signs = deviation(problem, g), random_signs((pairs, *g.shape), g.dtype, xp)
    model = wrong._replace(read=math.sqrt(max(float(squares(noise)) / g.size - wrong.left**2, 0.0)))
    seen, noise = (xp.broadcast_to(x, signs.shape) for x in (g, noise))
    noise = combined(model.coloured(signs), by=noise)
    if model.left:  # coloured noise has no largest value
        xp.clip(noise, -seen, seen, out=noise)
    both = xp.empty((pairs, 2, *g.shape[1:]), g.dtype)
    for side in (0, 1):
        combined(seen, noise, b=1 - 2 * side, out=both[:, side : side + 1])
    return both.reshape(-1, *g.shape[1:]), model._replace(psf_error=min(model.psf_error, 0.1)).lam


def variances(problem: Problem, g: Array) -> tuple[Array, Array, NoiseModel]:
    """Return two estimates of the noise's variance at each pixel, and the noise that the PSF's error leaves.

    The larger estimate counts, since too small a variance hides noise. Both are arrays like g.
    """
    if problem.noise is not None:
        return *(g * problem.noise.gain + problem.noise.read**2,) * 2, NoiseModel(0.0, 0.0)
    gain, step = photon_gain(problem, g), step_of(g)
    counted = combined(g, a=gain)
    if step and 6 * gain * float(total(g)) <= g.size * step**2:
        # Rounding explains all noise: it is alike in light and dark, and 0 where all neighbours have the same value.
        moves = itertools.product((1, -1), range(-problem.axes, 0))
        alike = math.prod((g == problem.xp.roll(g, *move) for move in moves), start=True)
        counted = ~alike * g.dtype.type(step**2 / 12)
    if problem.axes != 2 or min(g.shape[-2:]) < 4:
        return counted, counted, NoiseModel(0.0, 0.0)
    seen, psf = filled(g, problem.fidelity.weights), problem.operator.mean_blur.psf
    wrong = psf_noise(seen, psf)
    return counted, estimate_noise_model(seen)._replace(left=wrong.left).variance(g), wrong


def photon_gain(problem: Problem, g: Array) -> float:
    """Return the gain of counts, variance over mean, from the tenth of frequencies that the blur attenuates most.

    The noise of counts is white, with the power of all counts together: bright parts show it, however small they are.
    """
    seen, psf = filled(g, problem.fidelity.weights), problem.operator.mean_blur.psf
    side, xp = round(2 ** (17 / psf.ndim)), problem.xp
    _, seen, _ = cut(problem, seen, None, side=[side] * psf.ndim, interior=True, most=2)
    middle = (slice((n - min(n, side)) // 2, (n + min(n, side)) // 2) for n in seen.shape[2:])
    frames = copied(seen[(..., *middle)], np.float64)
    sides = frames.shape[2:]
    lines = [xp.asarray(np.hanning(n + 2)[1:-1]) for n in sides]
    left = tapered(Torus(sides).power(wound(psf, sides))).ravel()
    # Frequencies of opposite sign have the same power except for rounding.
    least = left <= (1 + 1e-9) * np.partition(left, left.size // 10)[left.size // 10]
    flat, taper = frames.reshape(-1, 1, math.prod(sides)), reduce(outer, lines).reshape(1, -1)
    spectra = Torus(sides, problem.device).analyse(combined(flat, by=taper).reshape(-1, *sides))
    light = total(combined(flat, by=combined(taper, by=taper)))
    power = total(_power_where(spectra, xp.asarray(least.reshape(spectra.shape[1:]))))
    return float(power) / (least.sum() * float(light))


@fused
def _power_where(_xp: ModuleType, spectrum: Array, mask: Array) -> Array:
    return abs(spectrum) ** 2 * mask


@fused
def mean_of_light(xp: ModuleType, light: Array, weight: Array, least: Array) -> Array:
    """Return light / weight, or infinity where the weight is less than `least`."""
    return xp.where(weight < least, xp.inf, light / xp.maximum(weight, least))


@fused
def without_small(_xp: ModuleType, s: Array, most: Array, share: Array) -> Array:
    """Return s, and zero where s is at most that share of `most`."""
    return s * (s > share * most)

"""The level of the noise in an image."""

from __future__ import annotations

import math
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.special

from ..device import Array, as_real, asnumpy, check_finite, get_xp
from ..norms import largest, total
from ..operators.torus import Torus
from ..problem import Problem
from . import noise_gpu
from .start import filled

_SIDES = (32, 16, 8, 4)  # of the blocks that are looked at: the first of which three fit along each side
_BLOCKS = 4096  # looked at, at most
_SHARE = 0.15  # of a block's frequencies: those at which a picture has least
_FALL, _FLAT = 1.5, 1e-3  # a picture's power goes with (squared frequency + flat) to minus this
_LEAKS = 1e-4  # of a picture, where the blur leaves nothing
# The parts of the blocks, from most to least, that are taken to hold noise alone; a smaller part is believed where it
# says clearly less than a larger, and by more than chance.
_PARTS, _QUIETER, _ALIKE = (0.5, 0.2, 0.05, 0.02), 0.9, 0.99
_FINEST, _MIDDLE = 0.02, 1024  # of the frequencies of a picture, or of its middle of so many pixels a side
# Of the pixels of a frame, of a block, and of a picture's middle, at an end of the range: what speaks of clipping, and
# what bears it.
_CLIPPED, _CLIPPED_BLOCK, _CLIPPED_MIDDLE = 1e-3, 0.004, 0.1
# In cycles a pixel; of the blocks; power over that in the band; standard deviations of it that chance may have added.
_BAND, _QUIET, _COLOURED, _CHANCE = (0.18, 0.3), 0.1, 1.2, 4.0
# Values a side that are looked at for rounding; the fewest levels that speak of it, and values for each; how far off
# the lattice levels may be, in steps.
_SAMPLED, _LEVELS, _LATTICE = 128, 16, 1e-3
_SMOOTHED = 2.0  # pixels, of the image that stands for the light
# Parts of an image by brightness; rounds of the fit; how far above the line a part lies that is heeded less, and how
# much less.
_BRIGHTNESSES, _ROUNDS, _ABOVE = 16, 6, (1.15, 0.3)


class _Measured(NamedTuple):
    """The noise's power, and that over its power at middle frequencies: about 1 of white noise."""

    power: float
    colour: float


def estimate_noise(g: Array, psf: Array | None = None) -> float:
    """The standard deviation of white noise in an image, from where the picture has least.

    The image is looked at in blocks of 32 x 32 pixels, and of each the power at the finest frequencies. It is the
    noise's in the quietest blocks: their quantiles, over what those are for pure noise [1]_; blocks in which pixels
    are clipped do not count. With the PSF the frequencies are those that it leaves least of, in the blocks and in the
    whole picture, where a blur has zeros.

    Parameters
    ----------
    g : (..., M, N) array
        An image, or frames with the same noise (their root mean square is returned).
    psf : (m, n) array, optional
        Of the blur, if it is known.

    Returns
    -------
    float
        In the units of `g`; 0 for an image without fine detail, such as a constant one.

    Raises
    ------
    ValueError
        If a side is under 4 pixels, `g` is not finite, or its noise is stronger at fine than at middle frequencies, as
        in sharpened pictures: it has no one level then.

    Notes
    -----
    It is too large where the blur is slight, the picture is texture all over and the noise weak, and too small where
    the noise lacks fine frequencies (JPEG, demosaicing, resampling). Noise of rounding counts as noise.
    ``benchmarks/bench_noise.py`` measures the accuracy.

    References
    ----------
    .. [1] S. I. Olsen, Estimation of noise in images: an evaluation, CVGIP 55 (1993) 319-323.
    """
    level, colour = _measured(g, psf)
    if colour > _COLOURED:
        raise ValueError(
            f"the noise has {colour:.2g} times the power at fine frequencies that it has at middle ones, as in a "
            "sharpened picture, and no one level; give its standard deviation (noise=...), or use the picture before "
            "it was sharpened"
        )
    return level


def noise_level(g: Array, psf: Array | None = None) -> float:
    """`estimate_noise`, whatever colour the noise has: for what needs no more than its size."""
    return _measured(g, psf)[0]


def _measured(g: Array, psf: Array | None) -> tuple[float, float]:
    """(standard deviation, colour) of the noise of frames together."""
    psf = None if psf is None else asnumpy(psf).astype(np.float64)
    g = _checked(g)
    found = [_of_frame(frame, psf) for frame in g.reshape(-1, *g.shape[-2:])]
    return math.sqrt(sum(f.power for f in found) / len(found)), float(np.median([f.colour for f in found]))


def _checked(g: Array) -> Array:
    g = as_real(g, "the image")
    if g.ndim < 2 or min(g.shape[-2:]) < _SIDES[-1]:
        raise ValueError(
            f"the noise of an image of shape {g.shape} cannot be estimated: at least 4 x 4 pixels are "
            "needed; give its standard deviation (noise=...)"
        )
    if not math.isfinite(largest(g)):
        check_finite(g, "the image")
    return g


class _Blocks(NamedTuple):
    """Of the blocks of one frame that show noise: mean values, powers at middle frequencies and at those with least."""

    means: np.ndarray
    middle: np.ndarray
    least: np.ndarray
    freedom: float  # of the last, if it is noise alone
    ends: list[float]  # of the frame's range, where it is clipped


def _looked_at(g: Array, psf: np.ndarray | None, sides: tuple[int, ...]) -> _Blocks:
    side = next((n for n in sides if 3 * n <= min(g.shape)), sides[-1])
    window = _window((side, side))
    at, squares = _least((side, side), psf, _SHARE), _squares((side, side))
    band = (squares > _BAND[0] ** 2) & (squares < _BAND[1] ** 2)
    weights = [m / m.sum() for m in (at, band)]
    values, counts = _extremes(g) if get_xp(g) is np else noise_gpu.extremes(g)
    ends = [value for value, count in zip(values, counts) if count > max(8, _CLIPPED * g.size)]
    # A few numbers of each block: they are looked at on the host.
    if get_xp(g) is np:
        means, least, middle = _powers(g, side, ends, window, weights)
    else:
        found = noise_gpu.looks(g, side, _BLOCKS, ends, _hann(side), *weights)
        means, least, middle = found[:3, _whole(found[3])]
    # What is smaller is of clipped or painted areas: no noise is to be seen there.
    seen = least > (1e-12 * max(abs(v) for v in values)) ** 2
    return _Blocks(means[seen], middle[seen], least[seen], _freedom(window, at), ends)


def _extremes(g: np.ndarray) -> tuple[tuple[float, float], tuple[int, int]]:
    """The smallest and the largest pixel, and how many are like each."""
    low, high = float(g.min()), float(g.max())
    return (low, high), (int(np.count_nonzero(g == low)), int(np.count_nonzero(g == high)))


def _whole(clipped: np.ndarray) -> np.ndarray | slice:
    """The blocks that are hardly clipped, if they are enough; all of them if not."""
    whole = np.flatnonzero(clipped <= _CLIPPED_BLOCK)
    return whole if len(whole) >= 1 / min(_PARTS[1:]) else slice(None)


def _powers(
    g: np.ndarray, side: int, ends: list[float], window: np.ndarray, weights: list[np.ndarray]
) -> list[np.ndarray]:
    """Of the blocks of a frame that are not clipped: mean values, and powers by each of the weights."""
    blocks = _blocks(g, side)
    if ends:
        blocks = blocks[_whole(np.sum([_means(blocks == end) for end in ends], axis=0))]
    blocks = blocks.astype(np.float64)
    means = _means(blocks)
    spectra = scipy.fft.rfft2((blocks - means[:, None, None]) * window)
    powers = (spectra.real**2 + spectra.imag**2).reshape(len(blocks), -1)
    return [means, *(powers @ m.ravel() for m in weights)]


def _means(blocks: np.ndarray) -> np.ndarray:
    """The mean of each block."""
    side = blocks.shape[-1]
    return blocks.reshape(len(blocks), -1).astype(np.float64, copy=False) @ np.full(side * side, 1 / side**2)


def _of_frame(g: Array, psf: np.ndarray | None) -> _Measured:
    found = _looked_at(g, psf, _SIDES)
    if not len(found.least):
        return _Measured(0.0, 0.0)
    power = _quiet(found.least, found.freedom)
    if psf is not None and min(g.shape) >= 2 * max(psf.shape):
        zeros = _at_zeros(g, psf, found.ends)
        power = zeros if zeros < _QUIETER * power else power
    return _Measured(power, _colour(found.middle, found.least, found.freedom))


class NoiseModel(NamedTuple):
    """Noise whose variance grows with the light: gain × value + read².

    Attributes
    ----------
    gain : float
        Of photon noise: variance over value.
    read : float
        Standard deviation of what does not depend on the light.
    """

    gain: float
    read: float

    def variance(self, image: Array) -> Array:
        """The variance of each pixel of an image (..., M, N), by the image smoothed a little."""
        image = as_real(image, "the image")
        smooth = image
        for axis in (-2, -1):
            smooth = _filters(image).gaussian_filter1d(smooth, _SMOOTHED, axis=axis, mode="nearest")
        return self.gain * get_xp(image).maximum(smooth, 0) + self.read**2

    def weights(self, image: Array) -> Array:
        """Weights that make the noise of an image even, one in the mean: for ``weights=`` of `deblur.reconstruct`."""
        variance = self.variance(image)
        if not float(variance.max()) > 0:
            return get_xp(variance).ones_like(variance)
        weights = 1 / get_xp(variance).maximum(variance, 1e-6 * float(variance.max()))
        return (weights / weights.mean()).astype(variance.dtype)


def estimate_noise_model(g: Array, psf: Array | None = None) -> NoiseModel:
    """Photon gain and read noise of an image, from how the noise of its quiet parts grows with their brightness.

    Parameters
    ----------
    g : (..., M, N) array
        An image, or frames with the same noise, in units of light (0 is black).
    psf : (m, n) array, optional
        Of the blur, if it is known.

    Returns
    -------
    NoiseModel

    Raises
    ------
    ValueError
        As `estimate_noise`, but for the colour of the noise.

    Notes
    -----
    Blocks as `estimate_noise` looks at are sorted by brightness; of each part the quietest blocks give the variance,
    and a line with no negative coefficient is laid through them, by least squares that heed a part less which lies
    above it: picture adds, and never takes away [1]_. What is known of the line then evens out each part.

    References
    ----------
    .. [1] A. Foi, M. Trimeche, V. Katkovnik, K. Egiazarian, Practical Poissonian-Gaussian noise modeling and fitting
       for single-image raw-data, IEEE Trans. Image Process. 17 (2008) 1737-1754.
    """
    from scipy.optimize import nnls

    psf = None if psf is None else asnumpy(psf).astype(np.float64)
    g = _checked(g)
    looks = [_looked_at(frame, psf, _SIDES[1:]) for frame in g.reshape(-1, *g.shape[-2:])]
    means, least = (np.concatenate([getattr(x, name) for x in looks]) for name in ("means", "least"))
    if not len(least):
        return NoiseModel(0.0, 0.0)
    means = np.maximum(means, 0)
    parts = np.array_split(np.argsort(means), max(1, min(_BRIGHTNESSES, len(means) // 40)))
    values, line = np.array([means[part].mean() for part in parts]), np.ones(len(means))
    for _ in range(_ROUNDS):
        variances = np.array(
            [_quiet(least[part] / line[part], looks[0].freedom) * line[part].mean() for part in parts]
        )
        weight = 1 / variances
        for _ in range(_ROUNDS):
            sides = np.stack([values, np.ones_like(values)], axis=1)
            (gain, square), _ = nnls(sides * weight[:, None], variances * weight)
            fidelity = np.maximum(gain * values + square, np.finfo(float).tiny)
            above = variances / fidelity
            weight = np.where(above > _ABOVE[0], _ABOVE[1] / above, 1) / fidelity
        line = np.maximum(gain * means + square, np.finfo(float).tiny)
    return NoiseModel(float(gain), math.sqrt(float(square)))


def _at_zeros(g: Array, psf: np.ndarray, ends: list[float]) -> float:
    """The power where the blur leaves least of the picture; infinite where too much is clipped."""
    g = g[tuple(slice((n - min(n, _MIDDLE)) // 2, (n + min(n, _MIDDLE)) // 2) for n in g.shape)]
    if get_xp(g) is not np:
        windows = _hann(g.shape[0]), _hann(g.shape[1])
        middle, seen, hidden = noise_gpu.at_zeros(g, psf, ends, windows, _FINEST, (_FLAT, _FALL, _LEAKS))
        return math.inf if hidden > _CLIPPED_MIDDLE * g.size else middle / math.log(2) / seen
    window = _window(g.shape)
    seen = 1.0  # the sum of the window's squares
    if ends:
        clipped = sum(((g == end).astype(g.dtype) for end in ends), np.zeros(g.shape, g.dtype))
        if float(total(clipped)) > _CLIPPED_MIDDLE * g.size:
            return math.inf
        seen = float(total(window**2 * (1 - clipped)))  # what is clipped holds no noise
    spectrum = scipy.fft.rfft2((g - g.mean()).astype(np.float64) * window)
    power = spectrum.real**2 + spectrum.imag**2
    middle = float(np.median(power[_least(g.shape, psf, _FINEST)]))
    return middle / math.log(2) / seen  # of an exponential distribution


def _hann(n: int) -> np.ndarray:
    """Hann's window, with squares that sum to one: white noise keeps its power at each frequency."""
    window = np.hanning(n + 2)[1:-1]
    return window / np.linalg.norm(window)


def _window(shape: tuple[int, int]) -> np.ndarray:
    return _hann(shape[0])[:, None] * _hann(shape[1])


def _blocks(g: np.ndarray, side: int) -> np.ndarray:
    """Blocks (n, side, side) of a frame, which overlap by half where they are not too many."""
    found = []
    for down in (0, side // 2):
        for right in (0, side // 2):
            rows, cols = (g.shape[0] - down) // side, (g.shape[1] - right) // side
            part = g[down : down + rows * side, right : right + cols * side]
            found.append(part.reshape(rows, side, cols, side).swapaxes(1, 2).reshape(-1, side, side))
            if len(found[0]) >= _BLOCKS:
                return found[0][:: len(found[0]) // _BLOCKS]
    return np.concatenate(found)


def _squares(shape: tuple[int, int]) -> np.ndarray:
    """The squared frequencies, in cycles a pixel, of half spectra."""
    rows, cols = np.fft.fftfreq(shape[0]) ** 2, np.fft.rfftfreq(shape[1]) ** 2
    return rows[:, None] + cols


def _least(shape: tuple[int, int], psf: np.ndarray | None, share: float) -> np.ndarray:
    """Where in its half spectrum a blurred picture is likely to have least: this share of the frequencies."""
    picture = (_squares(shape) + _FLAT) ** -_FALL
    if psf is not None:
        finer = -(-max(psf.shape) // min(shape))
        power = Torus([finer * n for n in shape]).power(psf)[::finer, ::finer]
        # What the window makes of it: the mean of each and its eight neighbours.
        power = np.pad(power, ((1, 1), (0, 0)), mode="wrap")
        power = np.pad(power[:-2] + power[1:-1] + power[2:], ((0, 0), (1, 1)), mode="reflect")
        power = (power[:, :-2] + power[:, 1:-1] + power[:, 2:]) / 9
        picture *= power / max(float(power.max()), np.finfo(float).tiny) + _LEAKS
    count = max(round(share * picture.size), 1)
    return picture <= np.partition(picture.ravel(), count - 1)[count - 1]


def _freedom(window: np.ndarray, at: np.ndarray) -> float:
    """The shape of the gamma distribution that the power of white noise at some frequencies nearly has."""
    both = at | np.roll(at[::-1], 1, 0)
    full = np.concatenate([both, both[:, -2:0:-1]], axis=1).astype(float)
    shared = abs(np.fft.fft2(window**2)) ** 2  # what two frequencies have in common
    pairs = np.fft.ifft2(abs(np.fft.fft2(full)) ** 2).real
    return full.sum() ** 2 / (2 * (shared * pairs).sum())


def _quiet(of_block: np.ndarray, freedom: float) -> float:
    """The noise's power, from the power of each block."""
    power = math.inf

    def expected(part: float) -> float:
        return float(scipy.special.gammaincinv(freedom, part)) / freedom

    for part in _PARTS:
        if part == _PARTS[0] or part * len(of_block) >= 1:
            says = float(np.quantile(of_block, part)) / expected(part)
            power = says if says < _QUIETER * power else power
    # Where a clear part of the picture is quiet its blocks are known now, and tell better than their least.
    alike = of_block[of_block <= power * expected(_ALIKE)]
    return min(power, float(np.median(alike)) / expected(0.5)) if len(alike) else power


def _colour(middle: np.ndarray, of_block: np.ndarray, freedom: float) -> float:
    """The power of each block over that at middle frequencies, in those with least of both; as little as may be."""
    both = middle + of_block
    quiet = both <= np.quantile(both, _QUIET)
    chance = math.sqrt(2 / (freedom * float(quiet.sum())))
    return float(of_block[quiet].mean() / middle[quiet].mean()) / (1 + _CHANCE * chance)


def _filters(x: Array) -> ModuleType:
    return import_module("scipy.ndimage" if get_xp(x) is np else "cupyx.scipy.ndimage")


def check_noise(noise: float | None) -> float | None:
    """`noise` itself, or ValueError if it is no level of noise."""
    if noise is not None and (isinstance(noise, (bool, np.bool_)) or not (np.isfinite(noise) and noise >= 0)):
        raise ValueError(
            f"noise must be a standard deviation >= 0 (of photon counts the gain), not {noise!r}; leave it out to have "
            "it estimated"
        )
    return noise


def noise_variance(problem: Problem, g: Array) -> float:
    """ν, estimated from the image: the variance of additive noise, or the gain of photon counts.

    Pixels of weight 0 are filled from their neighbours first; noise is at least that of rounding. For counts it is the
    variance of 2√(g + b), which does not depend on the brightness (Bartlett 1936).

    Parameters
    ----------
    problem : Problem
    g : (k, c, M, N) array
    """
    seen = filled(g, problem.fidelity.weights)
    if problem.fidelity.name == "poisson":
        xp = get_xp(g)
        return noise_level(2 * xp.sqrt(xp.maximum(seen, 0))) ** 2
    blur = problem.operator.shift_invariant
    return max(noise_level(seen, None if blur is None else blur.psf) ** 2, _rounded(g) ** 2 / 12)


def _rounded(g: Array) -> float:
    """The step between the levels that values were rounded to, or 0 where none is to be seen.

    Where a picture is flat, rounding leaves no noise to see, and an error all the same.
    """
    steps = [-(-n // _SAMPLED) for n in g.shape[-2:]]
    values = asnumpy(g.reshape(-1, *g.shape[-2:])[0, :: steps[0], :: steps[1]]).astype(np.float64)
    levels = np.unique(values)
    if not _LEVELS <= len(levels) <= values.size / _LEVELS:
        return 0.0
    apart = np.diff(levels)
    step = float(apart.min())
    return step if float(abs(apart / step - np.rint(apart / step)).max()) < _LATTICE else 0.0

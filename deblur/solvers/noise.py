"""The level of the noise in an image."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy

from ..device import Array, Device, as_real, asnumpy, check_finite, get_fft, get_xp
from ..errors import check_count, check_number
from ..kernels import pixelwise
from ..normalization import shifted
from ..norms import alike, combined, largest, outer, squares, total, totals
from ..operators.torus import Torus
from ..problem import Problem
from .start import filled, smoothed
from .whittle import fitted_spectrum, scene_law

_SIDES = (32, 16, 8, 4)  # of the blocks: the first of which three fit along each side
_BLOCKS = 4096  # with more of them a frame is sampled
_SHARE = 0.15  # of a block's frequencies: those at which a picture has least
_PARTS = (0.5, 0.2, 0.05, 0.02)  # of the blocks, from most to least, that are taken to hold only noise
_ALIKE = 0.99  # part of the blocks of pure noise that are kept to refine its power
_CLIPPED = 1e-3  # part of the pixels at an end of the range: clipping, if more; a block may have it
_BAND = (0.18, 0.3)  # middle frequencies, in cycles per pixel
_WRONG = 1.2  # power at a PSF's zeros over that of the quietest blocks from which the PSF is wrong
_COLOURED = 1.2  # power at fine over that at middle frequencies above which noise has no single level


def estimate_noise(g: Array, psf: Array | None = None, axes: int = 2) -> float:
    """The standard deviation of white noise in an image, from where the picture has least.

    The image is cut into blocks of 32 x 32 pixels, and each block gives its power at the finest frequencies. In the
    quietest blocks this is the power of the noise: their quantiles are divided by those of pure noise [1]_. Blocks
    with clipped pixels do not count. A PSF that leaves next to nothing of some frequencies shows the noise there, under
    any texture, by the fit of `psf_error`.

    Parameters
    ----------
    g : (..., M, N) array
        An image, or frames with the same noise (their root mean square is returned).
    psf : (m, n) array, optional
        Of the blur, if it is known.
    axes : int
        Of space. Volumes are frames, their slices; of lines the noise is the scatter of their third differences.

    Returns
    -------
    float
        In the units of `g`; 0 for an image without fine detail, such as a constant one.

    Raises
    ------
    ValueError
        If a side is under 4 pixels, `g` is not finite, or its noise is stronger at fine than at middle frequencies, as
        in sharpened images: it has no single level then.

    Notes
    -----
    The estimate is too large where the blur is slight, texture is everywhere and the noise weak, and too small where
    the noise lacks fine frequencies (JPEG, demosaicing). ``benchmarks/bench_noise.py`` measures the accuracy.

    References
    ----------
    .. [1] S. I. Olsen, Estimation of noise in images: an evaluation, CVGIP 55 (1993) 319-323.
    """
    level, colour = _measured(g, psf, axes)
    if colour > _COLOURED:
        raise ValueError(
            f"the noise has {colour:.2g} times the power at fine frequencies that it has at middle ones, as in a "
            "sharpened picture, and no one level; give noise=..., or the picture before it was sharpened"
        )
    return level


def noise_level(g: Array, psf: Array | None = None, axes: int = 2) -> float:
    """`estimate_noise` without the check of the noise's colour, for uses that need its size only."""
    return _measured(g, psf, axes)[0]


def shows_noise(g: Array, axes: int) -> bool:
    """Whether images, of so many axes of space, are large enough for an estimate of their noise."""
    return min(g.shape[-min(axes, 2) :]) >= _SIDES[-1]


def _measured(g: Array, psf: Array | None, axes: int) -> tuple[float, float]:
    """Standard deviation of the noise of all frames, and the median of its colour over them."""
    g, power_of_two = _unit(g)
    if check_count(axes, "axes") == 1:
        scatter = abs(np.diff(asnumpy(g).astype(np.float64), 3, axis=-1)) / math.sqrt(20)
        scatter = scatter[scatter > 1e-12 * largest(g)]  # as of blocks: values that are all the same hold no noise
        return shifted(1.4826 * float(np.median(scatter)) if scatter.size else 0.0, power_of_two), 1.0
    blocks, freedom = _noise_blocks(g, _SIDES)
    frames = [frame for frame in blocks if frame.size]
    if not frames:
        return 0.0, 0.0
    power = sum(_quiet(least, freedom) for _, _, least in frames) / math.prod(g.shape[:-2])
    fit = None if psf is None or axes > 2 else fitted_spectrum(g, _psf_for(g, psf))
    if fit is not None and fit[0].zeros:
        at_zeros = math.exp(fit[0].fitted(fit[1], None, 0.0)[0][-1])
        power = at_zeros if at_zeros < _WRONG * power else power
    level = shifted(math.sqrt(power), power_of_two)
    return level, float(np.median([_colour(middle, least, freedom) for _, middle, least in frames]))


def _unit(g: Array) -> tuple[Array, int]:
    """An image whose squares neither overflow nor vanish, and the power of two that it was divided by."""
    g = as_real(g, "the image")
    mantissa, exponent = math.frexp(largest(g))
    if not math.isfinite(mantissa):
        check_finite(g, "the image")
    return (g, 0) if abs(exponent) < 40 else (shifted(g, -exponent), exponent)


def _psf_for(g: Array, psf: Array) -> np.ndarray:
    h = asnumpy(as_real(psf, "psf", np.float64))
    if h.ndim != 2 or g.ndim < 2:
        raise ValueError(f"a PSF (m, n) and an image (..., M, N) are needed, not shapes {h.shape} and {g.shape}")
    return h


def _noise_blocks(g: Array, sides: tuple[int, ...]) -> tuple[list[np.ndarray], float]:
    """(the blocks of each frame that show noise, shape of the gamma distribution of pure noise), of a checked image.

    Of the n blocks of a frame an array (3, n): mean values, and powers at middle and at the least frequencies.
    """
    if g.ndim < 2 or not shows_noise(g, 2):
        raise ValueError(f"the noise of {g.shape} pixels cannot be estimated: give noise=..., or 4 x 4 pixels or more")
    side = next((n for n in sides if 3 * n <= min(g.shape[-2:])), sides[-1])
    hann = np.hanning(side + 2)[1:-1]
    window = np.outer(hann, hann) / (hann @ hann)  # white noise keeps its power at each frequency
    squares = np.fft.fftfreq(side)[:, None] ** 2 + np.fft.rfftfreq(side) ** 2
    band = (squares > _BAND[0] ** 2) & (squares < _BAND[1] ** 2)
    least = squares >= np.quantile(squares, 1 - _SHARE)
    freedom = _freedom(window, least)
    # The mean power over the frequencies of a mask, as a product with real and imaginary parts.
    masks = np.stack([np.repeat(at.ravel() / at.sum(), 2) for at in (band, least)], axis=1)
    xp = get_xp(g)
    masks, window, share = map(xp.asarray, (masks, window, np.full(side * side, 1 / side**2)))
    found = []
    for frame in g.reshape(-1, *g.shape[-2:]):
        blocks = _sampled(frame, side)
        some, smallest = _unclipped(blocks), (1e-12 * largest(blocks)) ** 2
        blocks = blocks.astype(np.float64)  # in place of the frame's dtype
        means = blocks.reshape(len(blocks), -1) @ share
        combined(blocks, outer(means, xp.asarray(np.ones(side * side))).reshape(blocks.shape), b=-1, out=blocks)
        parts = get_fft(xp).rfft2(combined(blocks, by=window, out=blocks)).view(np.float64)
        of_band, of_least = asnumpy(combined(parts, by=parts, out=parts).reshape(len(blocks), -1) @ masks).T
        some = some & (of_least > smallest)  # what is smaller belongs to clipped or painted areas
        found.append(np.stack([asnumpy(means), of_band, of_least])[:, some])
    return found, freedom


def _sampled(g: Array, side: int) -> Array:
    """Blocks (n, side, side) of a frame: they overlap by half, or come from some strips of a large frame."""
    rows, cols = (n // side for n in g.shape)
    every = rows * cols // _BLOCKS
    shifts = [0] if every else [0, side // 2]
    strips = [g[at * side : (at + 1) * side] for at in range(0, rows, every)] if every else [g]
    found = []
    for strip, down, right in product(strips, shifts, shifts):
        rows, cols = (strip.shape[0] - down) // side, (strip.shape[1] - right) // side
        part = strip[down : down + rows * side, right : right + cols * side]
        found.append(part.reshape(rows, side, cols, side).swapaxes(1, 2).reshape(-1, side, side))
    return get_xp(g).concatenate(found)


def _unclipped(blocks: Array) -> np.ndarray:
    """Which blocks (n, side, side) have hardly a clipped pixel, if they are enough; all otherwise."""
    count, size = len(blocks), blocks[0].size
    limits = float(blocks.min()), float(blocks.max())
    ends = [asnumpy(totals(alike(blocks, end))) / size for end in limits]
    clipped = sum(x for x in ends if size * x.sum() > max(8, _CLIPPED * count * size))
    whole = np.broadcast_to(clipped <= _CLIPPED, count)
    return whole if whole.sum() * min(_PARTS) >= 1 else np.ones(count, bool)


class NoiseModel(NamedTuple):
    """Noise whose variance grows with the light: gain × value + read².

    Attributes
    ----------
    gain : float
        Of photon noise: variance over value.
    read : float
        Standard deviation of what does not depend on the light.
    psf_error : float
        ε, the size of the PSF's error relative to its sum; see `psf_error`.
    uncertainty : float
        Of ε; infinite where nothing can be read off, or where an error of the PSF alone would leave less.
    left : float
        Standard deviation of what the PSF's error leaves at frequencies above 0.1 cycles per pixel.
    light : float
        Mean value of the image.
    """

    gain: float
    read: float
    psf_error: float = 0.0
    uncertainty: float = 0.0
    left: float = 0.0
    light: float = 0.0

    @property
    def level(self) -> float:
        """Standard deviation of all noise, for the mean light."""
        return math.sqrt(self.gain * self.light + self.read**2 + self.left**2)

    @property
    def share(self) -> float:
        """The part of all noise that the PSF's error leaves."""
        return (self.left / self.level) ** 2 if self.left else 0.0

    @property
    def lam(self) -> float:
        """What the PSF's error adds to λ: ε², or if it was read off its `share` of at most 0.1² (docs/worth.md)."""
        likely = self.psf_error if self.psf_error > 0.3 else min(self.psf_error, 0.1)  # 0.3: JPEG
        return self.share * likely**2 if self.uncertainty else self.psf_error**2

    def __str__(self) -> str:
        words = f"standard deviation {self.read:.2g}" if self.level else "not estimated"
        if self.gain:
            words += f"; photon gain {self.gain:.2g}: pixels are weighed by the inverse of their variance"
        if self.left and math.isinf(self.uncertainty):
            words += f"; a blur by this PSF leaves {self.left:.2g} unexplained, in some places most of it"
            return f"{words}: are the values proportional to light (see gamma), and is no light clipped?"
        if self.psf_error:
            source = f"±{self.uncertainty:.1g}, read off the image" if self.uncertainty else "given"
            words += f"; error of the PSF {self.psf_error:.2g} of its sum ({source}) leaves {self.left:.2g}"
        again = "; JPEG leaves the same; else measure the PSF again, or try deblur.psf.refine"
        return words + again * (self.psf_error > 0.05)

    def scaled(self, by: int) -> NoiseModel:
        """The model of the image times 2^by."""
        return self._replace(**{x: shifted(getattr(self, x), by) for x in ("gain", "read", "left", "light")})

    def coloured(self, white: Array) -> Array:
        """White noise (..., M, N) with this noise's spectrum: the PSF's error leaves a part of the scene's."""
        if not self.left:
            return white
        (m, n), xp = white.shape[-2:], get_xp(white)
        scene = scene_law(xp.asarray(np.fft.fftfreq(m)[:, None] ** 2) + xp.asarray(np.fft.rfftfreq(n) ** 2))
        by = xp.sqrt(1 - self.share + self.share / float(scene.mean()) * scene)
        return Torus((m, n), Device.of(white)).filter(white, by.astype(white.dtype))

    def variance(self, image: Array) -> Array:
        """The variance of each pixel of an image (..., M, N), by the image smoothed a little."""
        image = as_real(image, "the image")
        line = np.array([self.gain, self.read**2 + self.left**2], image.dtype)
        return pixelwise(lambda xp, light, gain, rest: gain * xp.maximum(light, 0) + rest, smoothed(image), *line)

    def weights(self, image: Array) -> Array:
        """Weights, one in the mean, that make an image's noise uniform: ``weights=`` of `deblur.reconstruct`."""
        variance = self.variance(image)
        # Where hardly any photon was counted one is assumed: a square overstates how certain darkness is.
        weights = 1 / get_xp(variance).maximum(variance, max(self.gain**2, 1e-6 * float(variance.max())) or 1.0)
        return (weights / weights.mean()).astype(variance.dtype)


def estimate_noise_model(g: Array) -> NoiseModel:
    """Photon gain and read noise of an image, from how the noise of its quiet parts grows with their brightness.

    Parameters
    ----------
    g : (..., M, N) array
        An image, or frames with the same noise, in units of light (0 is black).

    Returns
    -------
    NoiseModel

    Raises
    ------
    ValueError
        As `estimate_noise`, but for the colour of the noise.

    Notes
    -----
    The blocks of `estimate_noise` are sorted by brightness. The quietest blocks of each part give its variance, and a
    line without negative coefficients is fitted by least squares that weigh a part less if it lies above the line,
    since picture detail only adds variance [1]_. The read noise is at least that of rounding. The line then equalises
    the blocks within each part.

    References
    ----------
    .. [1] A. Foi, M. Trimeche, V. Katkovnik, K. Egiazarian, Practical Poissonian-Gaussian noise modeling and fitting
       for single-image raw-data, IEEE Trans. Image Process. 17 (2008) 1737-1754.
    """
    g, power_of_two = _unit(g)
    blocks, freedom = _noise_blocks(g, _SIDES[1:])
    means, _, least = np.concatenate(blocks, axis=1)
    means = np.maximum(means, 0)
    if not len(least):
        return NoiseModel(0.0, 0.0)
    parts = np.array_split(np.argsort(means), max(1, min(16, len(means) // 40)))
    values, line = np.array([means[part].mean() for part in parts]), np.ones(len(means))
    rounding, unit = step_of(g) ** 2 / 12, float(values.mean()) or 1.0
    sides = np.stack([np.ones_like(values), values / unit], axis=1)  # of one brightness alone the noise is not photons'
    for _ in range(6):
        quiet = [_quiet(least[part] / line[part], freedom) for part in parts]
        variances = np.array([power * line[part].mean() for power, part in zip(quiet, parts, strict=True)])
        weight = 1 / variances
        for _ in range(6):
            (square, gain), _ = scipy.optimize.nnls(sides * weight[:, None], (variances - rounding) * weight)
            square, gain = square + rounding, gain / unit
            fidelity = np.maximum(gain * values + square, np.finfo(float).tiny)
            weight = np.minimum(fidelity / variances, 1) ** 2 / fidelity
        line = np.maximum(gain * means + square, np.finfo(float).tiny)
    return NoiseModel(float(gain), math.sqrt(float(square))).scaled(power_of_two)


def psf_error(g: Array, psf: Array, noise: float | None = None) -> tuple[float, float]:
    """How wrong a PSF is, relative to its sum, and how uncertain that is, from the power spectrum of a blurred image.

    Where a blur leaves next to nothing of a frequency, a wrong PSF leaves a part of the picture. The power of tapered
    windows is fitted by P(k) = S(k) (|ĥ(k)|² + ε²) + σ², S smooth, by Whittle's likelihood [1]_ (docs/worth.md).

    Parameters
    ----------
    g : (..., M, N) array
        The blurred image, or frames blurred alike; NumPy or CuPy. Some windows of it are read.
    psf : (m, n) array
    noise : float, optional
        Standard deviation of white noise in the units of `g`, if it is known.

    Returns
    -------
    epsilon, uncertainty : float
        ε is 0 if an exact PSF explains the image as well. The uncertainty is infinite if the image is too small for
        the PSF, or too flat.

    Raises
    ------
    ValueError
        If the image is not finite.

    References
    ----------
    .. [1] P. Whittle, Estimation and information in stationary time series, Ark. Mat. 2 (1953) 423-434.
    """
    g, power_of_two = _unit(g)
    noise = None if noise is None else shifted(check_number(noise, "noise"), -power_of_two)
    return psf_noise(g, _psf_for(g, psf), noise)[2:4]


def weighed(
    problem: Problem, g: Array, noise: float | None, error: float | None, kept: NoiseModel | None = None
) -> Problem:
    """The problem with the noise of its frames (k, c, M, N), as far as it is not given, or `kept` from another image.

    The linear formula needs only what an error of the PSF leaves, which is read off images of two axes.
    Photon noise with five times the variance of the dark, and more than an error of the PSF leaves, gets weights: the
    inverse of its variance at each pixel [1]_.

    References
    ----------
    .. [1] A. Foi, M. Trimeche, V. Katkovnik, K. Egiazarian, Practical Poissonian-Gaussian noise modeling and fitting
       for single-image raw-data, IEEE Trans. Image Process. 17 (2008) 1737-1754.
    """
    blur, fidelity = problem.operator.shift_invariant, problem.fidelity
    if fidelity.name != "gaussian":
        return problem
    seen = filled(g, fidelity.weights)
    net = seen - fidelity.background if fidelity.background else seen
    model = kept or NoiseModel(0.0, noise or 0.0, error or 0.0)
    if kept is None and blur is not None and problem.axes == 2 and error != 0:
        model = psf_noise(seen, blur.psf, noise, error)
    if kept is None and problem.asked and noise is None:
        model = model._replace(read=max(model.read, math.sqrt(noise_variance(problem, g))))  # JPEG hides fine noise
        if fidelity.weights is None and problem.axes > 1:
            light, bright = estimate_noise_model(net), float(total(seen)) / seen.size
            # No pixel holds more than 10⁶ photons: a smaller gain is texture.
            if light.gain * bright > max(5 * light.read**2, model.left**2, 1e-6 * largest(net) * bright):
                model = model._replace(gain=light.gain, read=light.read, light=bright)
    if model.gain and fidelity.weights is None:
        fidelity = replace(fidelity, weights=model.weights(net).astype(problem.dtype, copy=False))
    return replace(problem, noise=model, fidelity=fidelity)


def psf_noise(g: Array, psf: np.ndarray, noise: float | None = None, error: float | None = None) -> NoiseModel:
    """`psf_error` with the noise that the error leaves in the image; for a checked image."""
    fit = fitted_spectrum(g, psf)
    if fit is None:
        return NoiseModel(0.0, noise or 0.0, 0.0, math.inf)
    found, means = fit
    wrong, loss, scatter, deviation = found.fitted(means, noise, error)
    square, white = np.exp(wrong[-2:]).tolist()
    if error is None:
        gained = 2 * (found.fitted(means, noise, 0.0, wrong)[1] - loss) / scatter
        gained *= float(total(abs(g))) ** 2 / (g.size * float(squares(g)))  # few lights have few independent powers
        # What is uncertain counts less. Noise of a measured PSF lifts |ĥ|² too: ε is read a tenth too small.
        square *= 1.2 * max(1 - (10 / gained) ** 2, 0.0) if gained > 0 else 0.0
    power = found.scene(wrong) * found.white * found.count
    fine, epsilon = float(power @ (scene_law(found.radius**2) > 0) / found.count.sum()), math.sqrt(square)
    uncertainty = math.sqrt(square + deviation) - epsilon
    return NoiseModel(0.0, math.sqrt(white), epsilon, uncertainty, math.sqrt(square * fine))


def _freedom(window: np.ndarray, at: np.ndarray) -> float:
    """The shape of the gamma distribution that the power of white noise at some frequencies nearly has."""
    both = at | np.roll(at[::-1], 1, 0)
    full = np.concatenate([both, both[:, -2:0:-1]], axis=1).astype(float)
    shared = abs(np.fft.fft2(window**2)) ** 2  # what two frequencies have in common
    pairs = np.fft.ifft2(abs(np.fft.fft2(full)) ** 2).real
    return full.sum() ** 2 / (2 * (shared * pairs).sum())


def _quiet(of_block: np.ndarray, freedom: float) -> float:
    """The noise's power, from the power of each block."""
    # From sorted powers: quantiles by NumPy's functions take ten times as long for so few blocks.
    ordered, count = np.sort(of_block), len(of_block)
    parts = [part for part in _PARTS if part * count >= 1] or [_PARTS[0]]
    *expected, middle, most = scipy.special.gammaincinv(freedom, [*parts, 0.5, _ALIKE]) / freedom
    quantiles = np.interp(np.multiply(parts, count - 1), np.arange(count), ordered)
    power = float((quantiles / expected).min())
    # Where a clear part of the picture is quiet its blocks are known now; their median is more exact.
    alike = int(np.searchsorted(ordered, power * most, "right"))
    return min(power, float(ordered[[(alike - 1) // 2, alike // 2]].mean() / middle)) if alike else power


def _colour(middle: np.ndarray, least: np.ndarray, freedom: float) -> float:
    """The noise's power at the least over that at middle frequencies, less four standard deviations: 1 if white."""
    both = middle + least
    quiet = both <= np.quantile(both, 0.1)
    chance = math.sqrt(2 / (freedom * float(quiet.sum())))
    return float(least[quiet].mean() / middle[quiet].mean()) / (1 + 4 * chance)


def check_noise(noise: float | None) -> float | None:
    """`noise` itself, or ValueError if it is no level of noise."""
    return None if noise is None else check_number(noise, "noise")


def noise_variance(problem: Problem, g: Array) -> float:
    """ν, estimated from the image: the variance of additive noise, or the gain of photon counts.

    Pixels of weight 0 are filled from their neighbours first; noise is at least that of rounding. For counts it is the
    variance of 2√(g + b), which does not depend on the brightness (Bartlett 1936), or how the noise grows with it.

    Parameters
    ----------
    problem : Problem
    g : (k, c, M, N) array
    """
    seen, blur = filled(g, problem.fidelity.weights), problem.operator.shift_invariant
    psf = None if blur is None else blur.psf
    if problem.fidelity.name == "poisson":
        xp = get_xp(g)
        least = noise_level(2 * xp.sqrt(xp.maximum(seen, 0)), axes=problem.axes) ** 2
        # Where no photon was counted there is no noise, whatever the gain.
        return least if problem.axes == 1 else max(least, estimate_noise_model(seen).gain)
    return max(noise_level(seen, psf, problem.axes) ** 2, step_of(g) ** 2 / 12)


def step_of(g: Array) -> float:
    """The step between the levels that values were rounded to, or 0 without such levels.

    Where a picture is flat, rounding leaves no noise to see, and an error all the same.
    """
    values = asnumpy(g.ravel()[:: -(-g.size // 2**14)]).astype(np.float64)  # some suffice
    levels = np.unique(values)
    if not 16 <= len(levels) <= values.size / 16:
        return 0.0
    apart = np.diff(levels)
    steps = apart / apart.min()
    return float(apart.min()) if float(abs(steps - np.rint(steps)).max()) < 1e-3 else 0.0

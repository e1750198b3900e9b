"""Estimates of the noise in an image: its level, its photon gain, and the part that an error of the PSF leaves."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import NamedTuple

import numpy as np
import scipy

from ..device import Array, Device, as_real, asnumpy, check_finite, get_fft, get_xp
from ..errors import check_count, check_number
from ..image.arrays import step_of
from ..norms import alike, combined, largest, normalized, outer, shifted, squares, total, totals
from ..operators.matrix import check_psf
from ..operators.torus import Torus
from ..pixelwise import copied, fused, modulus, stored
from ..problem import Problem
from .start import all_weights, filled, smoothed
from .whittle import fitted_spectrum, left_by, scene_law

_SIDES = (32, 16, 8, 4)  # sides of blocks: the first one is used that fits three times along each side
_BLOCKS = 4096  # a frame with more blocks is sampled
_SHARE = 0.15  # share of a block's frequencies, the highest ones, where a picture has least power
_PARTS = (0.5, 0.2, 0.05, 0.02)  # shares of the blocks, from largest to least, that may hold only noise
_ALIKE = 0.99  # share of the blocks of pure noise that refine the estimate of its power
_CLIPPED = 1e-3  # share of pixels at an end of the range above which they count as clipped, in the image or a block
_BAND = (0.18, 0.3)  # middle frequencies, in cycles per pixel
_WRONG = 1.2  # ratio of the power at a PSF's zeros to that of the quietest blocks above which the PSF is wrong
_COLOURED = 1.2  # ratio of the power at fine to that at middle frequencies above which noise has no single level


def estimate_noise(g: Array, psf: Array | None = None, axes: int = 2) -> float:
    """Return the standard deviation of white noise in an image, estimated where the picture is quietest.

    The image is cut into blocks of 32 x 32 pixels, and the power at the finest frequencies is computed for each block.
    In the quietest blocks this is the power of the noise: quantiles over the blocks are divided by those of pure
    noise [1]_. Blocks with clipped pixels do not count. If a PSF removes some frequencies almost entirely, the power
    there is noise, whatever the texture; the fit of `psf_error` reads it. The estimate is too large if the blur is
    slight, texture is everywhere and the noise is weak, and too small if the noise lacks fine frequencies (JPEG,
    demosaicing). ``benchmarks/bench_noise.py`` measures the accuracy.

    Parameters
    ----------
    g : (..., M, N) array
        An image, or frames with the same noise (the root mean square is returned). NumPy or CuPy, real.
    psf : (m, n) array, optional
        The PSF of the blur, if it is known; used for images only.
    axes : int
        Axes of space. Volumes are taken as frames, their slices. For lines, third differences show the noise.

    Returns
    -------
    float
        The level, in the units of `g`; 0 for an image without fine detail, such as a constant one.

    Raises
    ------
    ValueError
        If a side is under 4 pixels, if `g` is not finite or `psf` is not two-dimensional, or if the noise is stronger
        at fine than at middle frequencies, as in sharpened images, so that it has no single level.

    References
    ----------
    .. [1] S. I. Olsen, Estimation of noise in images: an evaluation, CVGIP 55 (1993) 319-323.
    """
    level, colour = _measured(g, psf, axes)
    if colour > _COLOURED:
        raise ValueError(
            f"the noise has {colour:.2g} times as much power at fine as at middle frequencies, as in a sharpened "
            "picture, so it has no single level; give noise=..., or the picture before it was sharpened"
        )
    return level


def noise_level(g: Array, psf: Array | None = None, axes: int = 2) -> float:
    """Return the level as `estimate_noise` does, without its check of the noise's colour."""
    return _measured(g, psf, axes)[0]


def shows_noise(g: Array, axes: int) -> bool:
    """Return whether images of `axes` axes of space are large enough for an estimate of their noise."""
    return min(g.shape[-min(axes, 2) :]) >= _SIDES[-1]


def _measured(g: Array, psf: Array | None, axes: int) -> tuple[float, float]:
    """Return the standard deviation of the noise of all frames, and the median of its colour over the frames."""
    g, power_of_two = _unit(g)
    if check_count(axes, "axes") == 1:
        scatter = _typical(np.diff(asnumpy(g).astype(np.float64), 3, axis=-1) / math.sqrt(20), g)
        return shifted(1.4826 * scatter, power_of_two), 1.0
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


def _typical(off: Array, g: Array) -> float:
    """Return the median modulus of differences between pixels; equal values hold no noise, as with blocks."""
    sizes = asnumpy(abs(off))
    sizes = sizes[sizes > 1e-12 * largest(g)]
    return float(np.median(sizes)) if sizes.size else 0.0


def _unit(g: Array) -> tuple[Array, int]:
    """Return the image, divided by a power of two so that squares neither overflow nor vanish, and its exponent."""
    g = as_real(g, "the image")
    if not math.isfinite(largest(g)):
        check_finite(g, "the image")
    return normalized(g, 40)


def _psf_for(g: Array, psf: Array) -> np.ndarray:
    if g.ndim < 2:
        raise ValueError(f"an image (..., M, N) is needed, not shape {g.shape}")
    return asnumpy(check_psf(psf))


def _noise_blocks(g: Array, sides: tuple[int, ...]) -> tuple[list[np.ndarray], float]:
    """Return the blocks of each frame that show noise, and the shape of the gamma distribution of pure noise.

    The n blocks of a frame are an array (3, n): mean values, power at middle and power at the finest frequencies.
    """
    if g.ndim < 2 or not shows_noise(g, 2):
        raise ValueError(f"the noise of {g.shape} pixels cannot be estimated: give noise=..., 4 x 4 pixels, or axes=1")
    side = next((n for n in sides if 3 * n <= min(g.shape[-2:])), sides[-1])
    hann = np.hanning(side + 2)[1:-1]
    window = np.outer(hann, hann) / (hann @ hann)  # white noise keeps its power at each frequency
    squares = np.fft.fftfreq(side)[:, None] ** 2 + np.fft.rfftfreq(side) ** 2
    band = (squares > _BAND[0] ** 2) & (squares < _BAND[1] ** 2)
    least = squares >= np.quantile(squares, 1 - _SHARE)
    freedom = _freedom(window, least)
    # The mean power over the frequencies of a mask is a product with squared real and imaginary parts.
    masks = np.stack([np.repeat(at.ravel() / at.sum(), 2) for at in (band, least)], axis=1)
    xp = get_xp(g)
    masks, window, share = map(xp.asarray, (masks, window, np.full(side * side, 1 / side**2)))
    found = []
    for frame in g.reshape(-1, *g.shape[-2:]):
        blocks = _sampled(frame, side)
        some, smallest = _unclipped(blocks), (1e-12 * largest(blocks)) ** 2
        blocks = copied(blocks, np.float64)  # in place of the frame's dtype
        means = blocks.reshape(len(blocks), -1) @ share
        combined(blocks, outer(means, xp.asarray(np.ones(side * side))).reshape(blocks.shape), b=-1, out=blocks)
        parts = get_fft(xp).rfft2(combined(blocks, by=window, out=blocks)).view(np.float64)
        of_band, of_least = asnumpy(combined(parts, by=parts, out=parts).reshape(len(blocks), -1) @ masks).T
        some = some & (of_least > smallest)  # less power than this belongs to clipped or painted areas
        found.append(np.stack([asnumpy(means), of_band, of_least])[:, some])
    return found, freedom


def _sampled(g: Array, side: int) -> Array:
    """Return blocks (n, side, side) of a frame, overlapping by half, or from some strips of a large frame."""
    rows, cols = (n // side for n in g.shape)
    every = rows * cols // _BLOCKS
    shifts = [0] if every else [0, side // 2]
    strips = [g[at * side : (at + 1) * side] for at in range(0, rows, every)] if every else [g]
    found = []
    for strip, down, right in product(strips, shifts, shifts):
        rows, cols = (strip.shape[0] - down) // side, (strip.shape[1] - right) // side
        part = strip[down : down + rows * side, right : right + cols * side]
        found.append(part.reshape(rows, side, cols, side).swapaxes(1, 2))
    ends = np.cumsum([0, *(len(part) * part.shape[1] for part in found)])
    blocks = get_xp(g).empty((ends[-1], side, side), g.dtype)
    for part, start, stop in zip(found, ends, ends[1:], strict=False):
        stored(blocks[start:stop].reshape(part.shape), part)
    return blocks


def _unclipped(blocks: Array) -> np.ndarray:
    """Return which blocks (n, side, side) have hardly any clipped pixel; all blocks if too few have."""
    count, size = len(blocks), blocks[0].size
    ends = [asnumpy(totals(alike(blocks, end))) / size for end in (float(blocks.min()), float(blocks.max()))]
    clipped = sum(x for x in ends if size * x.sum() > max(8, _CLIPPED * count * size))
    whole = np.broadcast_to(clipped <= _CLIPPED, count)
    return whole if whole.sum() * min(_PARTS) >= 1 else np.ones(count, bool)


class NoiseModel(NamedTuple):
    """Noise whose variance grows with the light: gain × value + read².

    Attributes
    ----------
    gain : float
        Variance of photon noise over the value, in units of the image.
    read : float
        Standard deviation of the noise that does not depend on the light.
    psf_error : float
        ε, the PSF's error relative to its sum; see `psf_error`.
    uncertainty : float
        Uncertainty of ε; infinite if ε cannot be estimated, or if such an error alone would leave less than `left`.
    left : float
        Standard deviation of the residual that the PSF's error leaves at frequencies above 0.1 cycles per pixel.
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
        """Standard deviation of all noise at the mean light, in units of the image."""
        return math.sqrt(self.gain * self.light + self.read**2 + self.left**2)

    @property
    def share(self) -> float:
        """Share of the variance of all noise that the PSF's error causes."""
        return (self.left / self.level) ** 2 if self.left else 0.0

    @property
    def lam(self) -> float:
        """Part of λ that allows for the PSF's error, relative to the squared sum of the PSF.

        It is ε² if ε was given. If ε was estimated, it is ε² times `share`, with ε limited to 0.1 unless it exceeds
        0.3, as for JPEG (docs/worth.md).
        """
        likely = self.psf_error if self.psf_error > 0.3 else min(self.psf_error, 0.1)  # 0.3: JPEG
        return self.share * likely**2 if self.uncertainty else self.psf_error**2

    def __str__(self) -> str:
        words = f"standard deviation {self.read:.2g}" if self.level else "not estimated"
        if self.gain:
            words += f"; photon gain {self.gain:.2g}: pixels are weighted by their inverse variance"
        if self.left and math.isinf(self.uncertainty):
            words += f"; a blur by this PSF leaves {self.left:.2g} unexplained, in some places most of the variance"
            return f"{words}: are the values proportional to light (see gamma), and is no light clipped?"
        if self.psf_error:
            source = f"±{self.uncertainty:.1g}, estimated from the image" if self.uncertainty else "given"
            words += f"; error of the PSF {self.psf_error:.2g} of its sum ({source}) leaves {self.left:.2g}"
        again = "; JPEG has the same effect; otherwise measure the PSF again, or try deblur.psf.refine"
        return words + again * (self.psf_error > 0.05)

    def scaled(self, by: int) -> NoiseModel:
        """Return the model of the image times 2^by."""
        return self._replace(**{x: shifted(getattr(self, x), by) for x in ("gain", "read", "left", "light")})

    def coloured(self, white: Array, axes: int = 2) -> Array:
        """Turn white noise (..., M, N) into noise with this model's spectrum, part of which is that of a scene."""
        if not self.left:
            return white
        torus, xp = Torus(white.shape[-axes:], Device.of(white)), get_xp(white)
        scene = scene_law(torus.squared_frequencies())
        by = xp.sqrt(1 - self.share + self.share / float(scene.mean()) * scene)
        return torus.filter(white, by.astype(white.dtype))

    def variance(self, image: Array) -> Array:
        """Return the variance of each pixel of an image (..., M, N), taken from the slightly smoothed image."""
        image = as_real(image, "the image")
        return _variance(smoothed(image), *np.array([self.gain, self.read**2 + self.left**2], image.dtype))

    def weights(self, image: Array) -> Array:
        """Return weights with mean one that make an image's noise uniform, for ``weights=`` of `deblur.reconstruct`."""
        variance = self.variance(image)
        # Where hardly any photon was counted, one is assumed: the model would be too certain of darkness.
        weights = 1 / get_xp(variance).maximum(variance, max(self.gain**2, 1e-6 * float(variance.max())) or 1.0)
        return (weights / weights.mean()).astype(variance.dtype)


def estimate_noise_model(g: Array) -> NoiseModel:
    """Return photon gain and read noise of an image, from the noise of quiet areas of different brightness.

    Parameters
    ----------
    g : (..., M, N) array
        An image, or frames with the same noise, in units of light (0 is black). NumPy or CuPy.

    Returns
    -------
    NoiseModel
        With `gain` and `read` alone; both are 0 for an image without fine detail.

    Raises
    ------
    ValueError
        If a side is under 4 pixels, or `g` is not finite.

    Notes
    -----
    The blocks of `estimate_noise` are sorted by brightness and divided into parts. The quietest blocks of each part
    give its variance. A line without negative coefficients is fitted by least squares; a part above the line has less
    weight, since picture detail only adds variance [1]_. The read noise is at least that of rounding. The line then
    equalises the blocks within each part, and the fit is repeated.

    References
    ----------
    .. [1] A. Foi, M. Trimeche, V. Katkovnik, K. Egiazarian, Practical Poissonian-Gaussian noise modeling and fitting
       for single-image raw-data, IEEE Trans. Image Process. 17 (2008) 1737-1754.
    """
    g, power_of_two = _unit(g)
    blocks, freedom = _noise_blocks(g, _SIDES[1:])
    means, middle, least = np.concatenate(blocks, axis=1)
    means = np.maximum(means, 0)
    if not len(least):
        return NoiseModel(0.0, 0.0)
    # Equal means, which few counts have, differ by rounding: other frequencies order their blocks, not their places.
    order = np.lexsort((middle, np.round(means / (means.max() or 1.0), 12)))
    parts = np.array_split(order, max(1, min(16, len(means) // 40)))
    values, line = np.array([means[part].mean() for part in parts]), np.ones(len(means))
    rounding = step_of(g) ** 2 / 12
    for _ in range(6):
        variances = np.array([_quiet(least[part] / line[part], freedom) * line[part].mean() for part in parts])
        weight = 1 / variances
        for _ in range(6):
            square, gain = _line(values, variances - rounding, weight**2)
            square += rounding
            fidelity = np.maximum(gain * values + square, np.finfo(float).tiny)
            weight = np.minimum(fidelity / variances, 1) ** 2 / fidelity
        line = np.maximum(gain * means + square, np.finfo(float).tiny)
    return NoiseModel(float(gain), math.sqrt(float(square))).scaled(power_of_two)


def _line(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """Return the least-squares line y = a + b x with weights w, a ≥ 0 and b ≥ 0, for x ≥ 0; b is 0 if all x agree."""
    (middle, mean), square = w @ np.stack([x, y], axis=1) / w.sum(), w @ x**2
    spread = w @ (x - middle) ** 2
    b = max(float(w @ ((x - middle) * y) / spread), 0.0) if spread > 1e-12 * square else 0.0
    a = float(mean - b * middle)
    return (a, b) if a >= 0 else (0.0, max(float(w @ (x * y) / square), 0.0) if square else 0.0)


def psf_error(g: Array, psf: Array, noise: float | None = None) -> tuple[float, float]:
    """Return the relative error of a PSF and its uncertainty, from the power spectrum of a blurred image.

    If a blur removes a frequency almost entirely, a wrong PSF leaves a part of the picture there. The power of tapered
    windows is fitted by P(k) = S(k) (|ĥ(k)|² + ε²) + σ², with S smooth, by Whittle's likelihood [1]_ (docs/worth.md).

    Parameters
    ----------
    g : (..., M, N) array
        The blurred image, or frames with the same blur; NumPy or CuPy. Some windows of it are read.
    psf : (m, n) array
        The PSF; its sum does not matter.
    noise : float, optional
        Standard deviation of white noise, in the units of `g`, if it is known.

    Returns
    -------
    epsilon, uncertainty : float
        ε, relative to the sum of the PSF, and its standard deviation. ε is 0 if an exact PSF explains the image as
        well. The uncertainty is infinite if the image is too small for the PSF, or too flat.

    Raises
    ------
    ValueError
        If the image is not finite, `psf` is not two-dimensional, or `noise` is negative or not finite.

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
    """Return the problem with a noise model of frames (k, c, M, N) and, for photon noise, with weights.

    The noise is estimated as far as it is not given, read already (`problem.noise`), or `kept` from another image. The
    linear formula needs only the residual of the PSF's error. A pixel's weight is the inverse of its photon noise
    (see `estimate_noise_model`) if that exceeds five times the read noise's and what the PSF's error leaves.
    """
    blur, fidelity = problem.operator.shift_invariant, problem.fidelity
    if fidelity.name != "gaussian":
        return problem
    seen = filled(g, fidelity.weights)
    net = seen - fidelity.background if fidelity.background else seen
    model = kept or NoiseModel(0.0, noise or 0.0)
    if kept is None and blur is not None and problem.axes == 2 and error != 0:
        model = problem.noise or psf_noise(seen, blur.psf, noise, error)
    if kept is None and error and not model.psf_error:
        model = model._replace(psf_error=error, uncertainty=0.0, left=left_by(problem.operator.mean_blur, seen, error))
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


@fused
def _variance(xp: ModuleType, light: Array, gain: Array, rest: Array) -> Array:
    return gain * xp.maximum(light, 0) + rest


def psf_noise(g: Array, psf: np.ndarray, noise: float | None = None, error: float | None = None) -> NoiseModel:
    """Return a noise model with the PSF's error, as `psf_error` estimates it, and its residual; for a checked image."""
    fit = fitted_spectrum(g, psf)
    if fit is None:
        return NoiseModel(0.0, noise or 0.0, 0.0, math.inf)
    found, means = fit
    wrong, loss, scatter, deviation = found.fitted(means, noise, error)
    square, white = np.exp(wrong[-2:]).tolist()
    if error is None:
        gained = 2 * (found.fitted(means, noise, 0.0, wrong)[1] - loss) / scatter
        # An image of few lights has fewer powers.
        gained *= float(total(modulus(g))) ** 2 / (g.size * float(squares(g)))
        # An uncertain ε counts less. Noise of a measured PSF raises |ĥ|², too: ε is estimated a tenth too small.
        square *= 1.2 * max(1 - (10 / gained) ** 2, 0.0) if gained > 0 else 0.0
    power = found.scene(wrong) * found.white * found.count
    fine, epsilon = float(power @ (scene_law(found.radius**2) > 0) / found.count.sum()), math.sqrt(square)
    return NoiseModel(0.0, math.sqrt(white), epsilon, math.sqrt(square + deviation) - epsilon, math.sqrt(square * fine))


def _freedom(window: np.ndarray, at: np.ndarray) -> float:
    """Return the shape of the gamma distribution that approximates the power of white noise at frequencies `at`."""
    both = at | np.roll(at[::-1], 1, 0)
    full = np.concatenate([both, both[:, -2:0:-1]], axis=1).astype(float)
    shared = abs(np.fft.fft2(window**2)) ** 2  # covariance of two frequencies
    return full.sum() ** 2 / (2 * (shared * np.fft.ifft2(abs(np.fft.fft2(full)) ** 2).real).sum())


def _quiet(of_block: np.ndarray, freedom: float) -> float:
    """Return the power of the noise, from the power of each block."""
    # Quantiles from sorted powers: NumPy's quantile takes ten times as long for so few blocks.
    ordered, count = np.sort(of_block), len(of_block)
    parts = [part for part in _PARTS if part * count >= 1] or [_PARTS[0]]
    *expected, middle, most = scipy.special.gammaincinv(freedom, [*parts, 0.5, _ALIKE]) / freedom
    quantiles = np.interp(np.multiply(parts, count - 1), np.arange(count), ordered)
    power = float((quantiles / expected).min())
    # If a clear part of the picture is quiet, its blocks are known now; their median is more exact.
    alike = int(np.searchsorted(ordered, power * most, "right"))
    return min(power, float(ordered[[(alike - 1) // 2, alike // 2]].mean() / middle)) if alike else power


def _colour(middle: np.ndarray, least: np.ndarray, freedom: float) -> float:
    """Return the noise's power at the finest over that at middle frequencies, less four deviations; 1 if white."""
    both = middle + least
    quiet = both <= np.quantile(both, 0.1)
    chance = math.sqrt(2 / (freedom * float(quiet.sum())))
    return float(least[quiet].mean() / middle[quiet].mean()) / (1 + 4 * chance)


def check_noise(noise: float | None) -> float | None:
    """Return `noise`, or raise ValueError if it is not a level of noise."""
    return None if noise is None else check_number(noise, "noise")


def noise_variance(problem: Problem, g: Array) -> float:
    """Return the variance of additive noise, or the gain of photon counts, estimated from frames (k, c, M, N).

    Pixels of weight 0 are filled from their neighbours first. The noise is at least that of rounding. Impulses, for
    which "huber" is, are no noise: the median distance of a pixel from the median of 3 x 3 limits the level. For
    counts, the gain is the larger of two estimates: the variance of 2√(g + b), which does not depend on the brightness
    (Bartlett 1936), and the growth of the noise with the brightness.
    """
    seen, blur = filled(g, problem.fidelity.weights), problem.operator.shift_invariant
    psf = None if blur is None else blur.psf
    if problem.fidelity.name == "poisson":
        xp = get_xp(g)
        least = noise_level(2 * xp.sqrt(xp.maximum(seen, 0)), axes=problem.axes) ** 2
        # Without any counted photon there is no noise, whatever the gain.
        return least if problem.axes == 1 else max(least, estimate_noise_model(seen).gain)
    level = noise_level(seen, psf, problem.axes)
    if problem.fidelity.name == "huber" and problem.axes > 1:
        host = asnumpy(seen)  # a GPU would compile such a filter for seconds
        off = host - scipy.ndimage.median_filter(host, (*[1] * (host.ndim - 2), 3, 3))
        level = min(level, 1.47 * _typical(off * asnumpy(all_weights(problem) > 0), host))
    return max(level**2, step_of(g) ** 2 / 12)

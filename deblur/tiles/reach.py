"""The distance to which a pixel influences the restored scene, from PSF and λ by one FFT.

Far from every border, the restored scene is a convolution of the image with one kernel,

    k = F⁻¹[ conj(ĥ) / (|ĥ|² + λ|l̂|²) ] ,

where l̂ is the symbol of the regularizer's differences (one for the linear formula; that of B⁻¹, which correlates
neighbouring pixels, for the prior "natural"). A tile that sees d pixels beyond its edge has the error
Σ k(x − y) δ(y), summed over the pixels y outside its window, where δ is the error of the window's continuation. Two
numbers follow from k alone:

- The L1 tail, Σ|k| beyond d, times the image's range bounds the error of a tile away from the border, because δ never
  exceeds the range.
- A sharper one is the root mean square of that sum for a random δ whose deviation is the range, and whose correlation
  falls with the distance as in photographs, exp(−(|y| + |x|)/`CORRELATION`). The largest error in practice is
  smaller: the deviation of an image is a few times smaller than its range, which leaves room for the largest of many
  pixels.

The tails' decay depends on the frequencies at which |ĥ|² is near λ or below, and not on the size of the PSF.
The prior of the linear formula changes only smooth components, and not the tail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from ..device import Array
from ..operators.natural import TAPS
from ..operators.torus import Torus, wound
from ..pool import pool
from ..problem import Problem
from ..terms import ORDER, first_difference_power, kind_of

#: Pixels over which the correlation of photographs falls to 1/e. The prediction is nearly as sharp with 4 to 16, but
#: not with 1 (white) or 64: see benchmarks/bench_tiles.py, which also tests the factor on PSFs and images set aside.
CORRELATION = 8.0
#: In 99 of 100 cases, the largest error at a seam is at most this many times the predicted root mean square.
SHARP = 1.5
#: The error after k passes of `deblur.tiles.refining` is at most this times the k-th power of the seam of their
#: overlap, if that is at most a fifth and tiles are twice as long as their surroundings.
REFINED = 2.0
PRIOR_REACH = 32  # pixels; the Gaussian of the prior is shorter than half of it
#: Sides of the torus on which the kernel of an image is computed; the next is used if one contains too little of it.
_SIDES = (512, 2048, 4096, 8192)


class Reach:
    """The tails of the kernel along one axis; index d of an array is the tail beyond d pixels.

    Parameters
    ----------
    problem : Problem
        Problem with λ and regularizer.
    psf : array
        The PSF, whose first axis is that of the tails.
    origin : sequence of int
    lengths : sequence of int
        Lengths of the torus on which the kernel is computed.

    Attributes
    ----------
    before, after : (n,) arrays
        Σ|k| on either side; a bound only if the torus has equal sides.
    sharp : (n,) array
        Root mean square of Σ k δ for a random δ, for the worse side.
    top : float
        max |k̂|, the largest amplification of rounding.
    """

    def __init__(self, problem: Problem, psf: np.ndarray, origin: Sequence[int], lengths: Sequence[int]) -> None:
        torus = Torus(lengths)
        # A PSF longer than the torus wraps round it, as k does.
        h = torus.spectrum(wound(psf, lengths), [o % n for o, n in zip(origin, lengths, strict=True)])
        spectrum = multiplier(torus, h, problem)
        self.top = float(abs(spectrum).max())
        k = torus.synthesise(spectrum, overwrite=True)
        # The lines after the middle, and before it. Beyond a quarter of the side, the wrapped part matters.
        half, last, lines = len(k) // 2, len(k) // 4 + 1, abs(k).reshape(len(k), -1).sum(axis=1)
        sides = (slice(1, half), slice(None, half, -1))
        self.after, self.before = (np.append(np.cumsum(lines[side][::-1])[::-1], 0.0)[:last] for side in sides)
        self.sharp = np.sqrt(np.maximum(*(_field(k[side]) for side in sides)))[:last]

    def tail(self, safe: bool) -> np.ndarray:
        """Return the L1 tail of the worse side if `safe`, else the sharp prediction."""
        return np.maximum(self.before, self.after) if safe else self.sharp

    def bound(self, tile: int, overlap: int) -> float:
        """Return the largest sum of |k| outside the window along this axis, over all pixels of the tile."""
        last = len(self.before) - 1
        at = np.minimum(overlap + np.arange(min(tile, last)), last)
        return float((self.before[at] + self.after[np.minimum(2 * overlap + tile - 1 - at, last)]).max())


def margin(psf: Sequence[int]) -> tuple[int, ...]:
    """Return the depth in pixels, by axis, within which HHᵀ and H f̄ are not exact at a window's edges."""
    return tuple(m + PRIOR_REACH // 2 for m in psf)


def strip(psf: int, overlap: int) -> int:
    """Return the depth of the strip along the border that is solved as an image, for lengths of PSF and overlap.

    With less than six PSFs, `pcg` has no room for its preconditioner.
    """
    return max(overlap, 6 * psf)


def worthwhile(strips: Sequence[Sequence[int]], window: Sequence[int]) -> bool:
    """Return whether to solve strips of these shapes instead of the whole window: if they are at most half of it."""
    return sum(map(math.prod, strips)) <= 0.5 * math.prod(window)


def multiplier(torus: Torus, h: Array, problem: Problem) -> Array:
    """Return k at half of a torus's frequencies, from the PSF's spectrum there, complex128, on the torus's device.

    Raises
    ------
    ValueError
        If λ is 0 and the PSF's spectrum has zeros.
    """
    xp, lam, regularizer = torus.device.xp, problem.lam, problem.regularizer
    power = h.real**2 + h.imag**2
    *steps, last = (first_difference_power(n, True, xp) for n in torus.lengths)
    grid = xp.ix_(*steps, last[: len(last) // 2 + 1])
    if regularizer == "natural":  # |b̂|⁻² of B, which correlates neighbours
        power += lam / math.prod(TAPS[1] + TAPS[0] * (2 - step) for step in grid) ** 2
    elif regularizer == "identity":
        power += lam
    else:
        power += lam * sum(grid) ** ORDER[kind_of(regularizer)]
    if not float(power.min()) > np.finfo(np.float64).eps * float(power.max()):
        raise ValueError(
            f"with {problem.strength} the influence of a pixel is unlimited: the PSF removes some frequencies "
            "entirely; give a larger λ, such as 1e-4 ‖H‖²"
        )
    k = h.conj()
    k /= power
    return k


def _field(lines: np.ndarray) -> np.ndarray:
    """Return the mean square of Σ k δ over the lines beyond d = 0, 1, ..., for a random δ of unit deviation.

    Across the axis, the correlation is a spectrum. Along it, a recursion runs from the farthest line to the nearest:
    with r = ρ^|step|, the sum over pairs of lines grows by |k|² + 2 Re k* Σ ρ^distance k'.
    """
    rho, spectrum, across = np.exp(-1 / CORRELATION), np.ones(()), lines.shape[1:] or (1,)
    k = scipy.fft.rfftn(lines[::-1].reshape(-1, *across), axes=range(1, 1 + len(across)))
    for n in across:
        lag = np.minimum(np.arange(n), n - np.arange(n))
        spectrum = np.multiply.outer(spectrum, scipy.fft.fft(rho**lag).real)
    spectrum = spectrum[..., : k.shape[-1]]
    spectrum[..., 1 : (n + 1) // 2] *= 2  # the half that a real transform omits
    farther = np.zeros_like(k)
    for i in range(1, len(k)):
        np.add(farther[i - 1], k[i - 1], out=farther[i])
        farther[i] *= rho
    pairs = (k.real**2 + k.imag**2) + 2 * (k.conj() * farther).real
    grown = np.cumsum(pairs.reshape(len(k), -1) @ spectrum.ravel() / math.prod(across))
    return np.append(np.maximum(grown, 0)[::-1], 0.0)


def reach(problem: Problem, axis: int, least: float, *, safe: bool) -> Reach:
    """Return the kernel's tails along an axis, up to where they fall below `least`.

    If they do not fall so far within the largest torus, the arrays end before.

    Parameters
    ----------
    problem : Problem
        Problem with PSF, λ and regularizer.
    axis : int
    least : float
        Limit of the sharp prediction, or of the L1 tail if `safe`.
    safe : bool
        Use a torus of equal sides, on which the L1 tail is a bound.
    """
    # Along the first axis of a PSF with moved axes: symmetric PSFs have the same kernel along several axes.
    h, origin = np.moveaxis(problem.blur.psf, axis, 0), list(problem.blur.origin)
    origin.insert(0, origin.pop(axis))
    sides = [n for n in (_SIDES if h.ndim < 3 else (128, 256, 512)) if not safe or n**h.ndim <= 2**24]
    if sides[-1] < 2 * max(h.shape):
        raise ValueError(
            f"the reach of a pixel's influence can be computed for PSFs of up to {sides[-1] // 2} pixels along "
            f"an axis, not for {problem.blur.psf.shape}: crop it (deblur.psf.prepare), or restore the image whole"
        )

    def tails() -> Reach:
        for along in (n for n in sides if n >= 2 * len(h)):
            # This many pixels suffice across a long torus, since frequencies there are samples of an integral.
            across = [along if safe else min(along, 128 if h.ndim == 3 else max(512, 2 * m)) for m in h.shape[1:]]
            found = Reach(problem, h, origin, [along, *across])
            if found.tail(safe)[-1] <= least:
                break
        return found

    # Cached, since a plan is computed again for another tile or overlap, and for each frame.
    lam, regularizer, alike = float(problem.lam), problem.regularizer, (h / abs(h).max()).round(12)
    key = ("reach", alike.tobytes(), f"{abs(h).max():.12e}", h.shape, *origin, lam, regularizer, float(least), safe)
    return pool(None).get(key, tails, h.nbytes + 6 * sides[-1])

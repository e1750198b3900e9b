"""Estimate the PSF of camera shake from the blurred image alone.

Two steps alternate on a sequence of scales, each √2 times as fine as the one before:

1. Find the scene with few edges whose blurred image is nearest to the input. It minimises ‖W(h∗f − g)‖² + λ‖∇f‖₀, by
   half-quadratic splitting [1]_ [2]_. λ decreases, so that more and more edges appear.
2. Find the PSF that maps the gradients of the scene to those of g, by non-negative least squares inside the frame.
   Remove faint pixels and small isolated parts of the PSF.

Noise of the image that remains in the scene as edges draws the PSF towards a single pixel. Therefore the weight W is a
low-pass filter, which attenuates high frequencies more if the noise is stronger.

More iterations follow at the finest scale, with a λ that follows from the noise. The two steps converge slowly, so
each iteration goes nearly twice as far (over-relaxation). First, an estimate at a coarse scale determines the size of
the PSF.

The centre of the PSF is unknown during the iteration, so its frame is half as large again as the result. Beyond the
borders of the image, the values that scene and PSF predict are used.

The result depends on the start, since an error at a coarse scale persists, and no λ suits all images. Therefore two
PSFs are estimated, with different initial λ. The PSF whose scene needs fewer edges is the result: the scene of a wrong
PSF must contain the rest of the blur.

References
----------
.. [1] L. Xu, S. Zheng, J. Jia, "Unnatural L0 sparse representation for natural image deblurring", CVPR 2013.
.. [2] J. Pan, Z. Hu, Z. Su, M.-H. Yang, "Deblurring text images via L0-regularized intensity and gradient prior",
   CVPR 2014.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy

from ..errors import check_callback
from ..operators.torus import Torus, wrapped
from ..operators.varying import cell_centres
from ..solvers.noise import noise_level
from ..threads import cores
from .estimate import PSFEstimate, PSFMap, PSFStatus, distance, gradient_power, grey, placed
from .models import Size, as_shape, centre_of_gravity, coordinates, unit_sum

_CONTRAST = 0.2  # standard deviation to which the image is scaled; all other values refer to it
_LEAST_LAM = 1e-4  # limit of λ at all scales
_STEPS, _LAST_STEPS = 10, 16  # iterations at each scale, and the additional ones at the finest
_UNLIKE = 0.04  # largest difference of the two PSFs of a reliable estimate
_SIDE = 400  # largest side of the window that is used
_FIRST_LAMS = (16e-3, 128e-3)  # the initial λ of each estimate


def from_blurred(
    image: Any,
    size: Size | None = None,
    *,
    grid: tuple[int, int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PSFEstimate:
    """Estimate the PSF of camera shake from the blurred image alone.

    Parameters
    ----------
    image : (M, N) array
        The blurred grey image. For a large image the 400 x 400 pixels with the strongest edges are used, or more for a
        large PSF.
    size : int or (int, int), optional
        Upper limit of the PSF's rows and columns: at least 3 and at most half the image. By default it is 61, or a
        quarter of the image if that is less, and the PSF is cropped. A far too large size degrades the estimate.
    grid : (int, int), optional
        Also estimate how the PSF varies: `PSFEstimate.map` holds PSFs at the centres of this many rows and columns of
        equal parts. In simulations of a rotating camera this restores 0.4 to 1 dB better than one PSF.
    progress : callable, optional
        Called as ``progress(finished steps, all steps)``.

    Returns
    -------
    PSFEstimate
        Its centre of gravity is at the centre to within a pixel, since the displacement cannot be determined. If the
        size would then cut the PSF off, the PSF is as near to the centre as possible.

        ``details`` has two entries. ``difference`` is that of the two PSFs with different starts, weighted by the power
        of a typical image: ‖(|ĥ₁| − |ĥ₂|) / |k|‖ / ‖|ĥ₁| / |k|‖. ``radius`` is the root mean square distance in pixels
        of the PSF's light from its centre.

        ``status`` is DOUBTFUL in three cases. The PSFs differ, since the image has too few sharp edges, or the blur is
        not shift-invariant. The radius is below 1.5 pixels, as for an image that is not blurred. Noise dominates.

    Raises
    ------
    ValueError
        If the image is constant, or too small for a PSF of this size.

    Notes
    -----
    Images of texture without edges (a brick wall, grass), or with little contrast, do not determine the PSF.
    ``benchmarks/bench_blind.py`` measures how often the estimate is correct.
    """
    check_callback(progress, "progress", "steps", "all")
    whole, _ = grey(image)
    shape = as_shape((max(min(61, min(whole.shape) // 4), 3) | 1) if size is None else size)
    s = max(shape) | 1
    if min(shape) < 1 or max(shape) < 3 or min(whole.shape) < max(2 * max(shape), 16):
        why = f"a PSF of {shape[0]} x {shape[1]} cannot be found in an image of {whole.shape[0]} x {whole.shape[1]}: it"
        raise ValueError(f"{why} must have 3 pixels or more, and the image twice as many, and 16 at least")
    positions = None if grid is None else cell_centres(grid, whole.shape, max(shape))
    window = _part(whole, _sharpest(whole), max(_SIDE, 6 * s))
    if not float(window.std()) > 1e-6 * float(abs(window).max()):
        raise ValueError("the image is constant, so that nothing shows the blur")
    y = _scaled(window, window)
    noise = noise_level(y.astype(float))
    done, total = itertools.count(1), len(_FIRST_LAMS) + 1 + (0 if grid is None else grid[0] * grid[1])

    def step() -> None:
        if progress:
            progress(next(done), total)

    s = _frame(y, s, size is None, noise)
    step()
    found, edges = [], []
    with ThreadPoolExecutor(max(1, min(cores(), len(_FIRST_LAMS)))) as pool:
        for h, share in pool.map(lambda first: _estimated(y, s, first, noise), _FIRST_LAMS):
            found.append(h)
            edges.append(share)
            step()
    h = found[int(np.argmin(edges))]
    error = max(distance(other, h) for other in found) / math.sqrt(2)
    status, why, details = _status(found, h, noise / _CONTRAST)
    shape = tuple(np.minimum(shape, s)) if size is None else shape
    by = _into(h, shape)
    psf, varying = unit_sum(placed(_moved(h, by), shape)), None
    if positions is not None:
        local, cells = [], positions.shape[:2]
        side = max(6 * s, *(-(-n // k) for n, k in zip(whole.shape, cells, strict=True)))
        for centre in positions.reshape(-1, 2):
            part = _Scale(_scaled(_part(whole, centre, min(side, _SIDE)), window), s, noise)
            local.append(unit_sum(placed(_moved(_refined(part, h, centred=False), by), shape)))
            step()
        varying = PSFMap(positions, np.array(local, float).reshape(*cells, *shape))
    return PSFEstimate(psf, error, status, why, details, varying)


def _status(found: list[np.ndarray], h: np.ndarray, noise: float) -> tuple[PSFStatus, str, dict[str, float]]:
    """Return the status of the PSF h, which was chosen from `found`, with its reasons and the evidence."""
    radius = math.sqrt(sum(float((line**2 * h).sum()) for line in coordinates(h.shape)))
    difference = max(_difference(h, other) for other in found)
    differ = f"PSFs from two starts differ by {difference:.2f}, weighted by the power of a typical image"
    doubts = {
        "the image is not blurred, or too little of it shows the blur: the PSF's radius is "
        f"{radius:.1f} pixels (root mean square), 1.5 or more are needed": radius < 1.5,
        f"noise is {noise:.2f} of the image's standard deviation": noise > 0.2,
        f"{differ}, less than {_UNLIKE:g} is needed": difference >= _UNLIKE,
    }
    held = "; ".join(reason for reason, applies in doubts.items() if applies)
    details = {"difference": difference, "radius": radius}
    return PSFStatus.DOUBTFUL if held else PSFStatus.ROUGH, held or differ, details


def _sharpest(y: np.ndarray) -> tuple[int, int]:
    """Return the centre of the window of `_SIDE` pixels with the strongest edges."""
    steep = np.hypot(np.diff(y, axis=0, append=y[-1:]), np.diff(y, axis=1, append=y[:, -1:]))
    # Use the mean gradient, not the largest, since one lamp at night is not an edge everywhere.
    mean = scipy.ndimage.uniform_filter(steep, [min(n, _SIDE) for n in y.shape], mode="constant")
    return np.unravel_index(mean.argmax(), y.shape)


def _part(y: np.ndarray, centre: Sequence[float] | np.ndarray, side: int) -> np.ndarray:
    """Return the part of an image around a point, at most `side` pixels along each axis."""
    top, left = (int(max(0, min(c - side / 2, n - side))) for c, n in zip(centre, y.shape, strict=True))
    return y[top : top + side, left : left + side]


def _frame(y: np.ndarray, size: int, guess: bool, noise: float) -> int:
    """Return the side of the frame in which a PSF is estimated, with room for a centre that is still unknown.

    A default size (`guess`) is replaced by the size that an estimate at a coarse scale needs.
    """
    most = size if guess else 3 * size // 2 | 1
    if size <= 9:
        return most
    coarse = max(9, most // 3 | 1)
    h, _ = _estimated(_resized(y, coarse / most), coarse, _FIRST_LAMS[0], noise * coarse / most)
    variance = max(float((line**2 * h).sum()) for line in coordinates(h.shape))
    needed = math.ceil(5.6 * math.sqrt(variance) * most / coarse + 3) | 1
    return min(max(needed, 9 if guess else size), most)


def _resized(a: np.ndarray, by: float, least: int = 16) -> np.ndarray:
    from skimage.transform import resize

    shape = [max(least, round(n * by)) for n in a.shape]
    return resize(a, shape, order=1, anti_aliasing=True, mode="reflect").astype(np.float32)


def _estimated(y: np.ndarray, size: int, lam: float, noise: float) -> tuple[np.ndarray, float]:
    """Return the PSF (size, size) for an initial λ, and the share of pixels with an edge in its scene."""
    sizes = [size]
    while sizes[-1] > 5:
        sizes.append(math.ceil(sizes[-1] / math.sqrt(2)) | 1)
    h = np.zeros((sizes[-1], sizes[-1]), np.float32)
    h[sizes[-1] // 2, sizes[-1] // 2 - 1 : sizes[-1] // 2 + 1] = 0.5
    for s in reversed(sizes):
        scale = _Scale(y if s == size else _resized(y, s / size), s, noise * s / size)
        h = _centred(unit_sum(np.maximum(_resized(h, s / len(h), 3), 0)))
        for _ in range(_STEPS):
            h = _centred(scale.iterated(h, lam, 0.05))
            lam = max(lam / 1.05, _LEAST_LAM)
    h = _refined(scale, h)
    return h, scale.edges(h)


def _refined(scale: _Scale, h: np.ndarray, centred: bool = True) -> np.ndarray:
    """Return the PSF after the last iterations, which start from h."""
    for _ in range(_LAST_STEPS):
        h = scale.iterated(h, scale.lam, 0.02)
        h = _centred(h) if centred else h
    return h


class _Scale:
    """The image at one scale, weighted in frequency and continued periodically without steps, and the two steps."""

    def __init__(self, seen: np.ndarray, size: int, noise: float) -> None:
        self.size, rows_cols = size, seen.shape
        lengths = [scipy.fft.next_fast_len(n + size, real=True) for n in rows_cols]
        self._power = gradient_power(lengths).astype(np.float32)
        self._weight = np.exp(-min(1250 * noise**2, 1.1) * self._power)
        self.lam = min(max(6 * noise**2 * float((self._weight**2).mean()), _LEAST_LAM), _FIRST_LAMS[0])  # of the noise
        self._torus = Torus(lengths)
        self._seen = self._weight * self._torus.analyse(wrapped(seen, lengths))
        self._grown = self._torus.synthesise(self._seen)
        self._gradients, self._seen_part = _differences(self._grown), tuple(slice(n) for n in rows_cols)
        self._inside = np.zeros(self._gradients.shape, bool)  # True if both pixels of a difference are in the frame
        self._inside[0, : rows_cols[0], : rows_cols[1] - 1] = True
        self._inside[1, : rows_cols[0] - 1, : rows_cols[1]] = True

    def iterated(self, h: np.ndarray, lam: float, faint: float) -> np.ndarray:
        """Return the cleaned PSF after both steps, with 1.9 times their change."""
        return _cleaned(np.maximum(1.9 * self.psf(self.scene(h, lam), h) - 0.9 * h, 0), faint)

    def scene(self, h: np.ndarray, lam: float) -> np.ndarray:
        """Return a scene with few edges, which minimises ‖W(h∗f − g)‖² + λ‖∇f‖₀."""
        blur = self._weight * self._spectrum(h)
        right, power = blur.conj() * self._seen, abs(blur) ** 2
        f, beta = self._grown, 2 * lam  # the weight of the splitting
        while beta < 1e3:
            steep = _differences(f)
            steep *= (steep**2).sum(axis=0) >= lam / beta
            back = np.roll(steep[0], 1, 1) + np.roll(steep[1], 1, 0) - steep[0] - steep[1]
            spectrum = self._torus.analyse(back, overwrite=True)
            spectrum *= np.float32(beta)
            spectrum += right
            spectrum *= 1 / (power + np.float32(beta) * self._power)
            f = self._torus.synthesise(spectrum, overwrite=True)
            beta *= 2
        beyond = self._torus.synthesise(blur * self._torus.analyse(f))
        beyond[self._seen_part] = self._grown[self._seen_part]
        self._grown, self._seen = beyond, self._torus.analyse(beyond)
        return f

    def edges(self, h: np.ndarray) -> float:
        """Return the share of pixels with an edge in the scene; it is large if the scene contains a part of
        the blur.
        """
        steep = _differences(self.scene(h, self.lam)) * self._inside
        return float(((steep**2).sum(axis=0) > 1e-6).mean())

    def _spectrum(self, h: np.ndarray) -> np.ndarray:
        return self._torus.spectrum(h, [len(h) // 2] * 2, np.float32)

    def psf(self, f: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Return the PSF that maps the gradients of f to those of g: it minimises ‖W(h∗∇f − ∇g)‖² + ridge ‖h‖² with h ≥
        0.

        Only pixels of the frame count. Each of two rounds minimises a quadratic upper bound that touches the objective
        at h: the Toeplitz form for gradients of f that are visible everywhere.
        """
        spectra = self._weight * self._torus.analyse(_differences(f))
        lags = self._torus.synthesise((abs(spectra) ** 2).sum(axis=0))
        ridge = np.float32(0.01 * float(lags[0, 0]))
        for _ in range(2):
            missed = self._inside * (self._gradients - self._torus.synthesise(self._spectrum(h) * spectra))
            back = self._torus.synthesise((spectra.conj() * self._torus.analyse(missed)).sum(axis=0))
            h = _descended(h, _window(back, self.size // 2), _window(lags, self.size - 1), ridge)
        return unit_sum(h)


def finest_scale(image: np.ndarray, size: int) -> _Scale:
    """Return the part of an image with the strongest edges, for PSFs (size, size) of odd size."""
    window = _part(image, _sharpest(image), max(_SIDE, 6 * size))
    y = _scaled(window, window)
    return _Scale(y, size, noise_level(y.astype(float)))


def _scaled(part: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Return a part of an image in the unit in which a window has the deviation `_CONTRAST`, with black at zero."""
    return ((part - float(np.quantile(window, 1e-3))) * (_CONTRAST / float(window.std()))).astype(np.float32)


def _descended(h: np.ndarray, back: np.ndarray, lags: np.ndarray, ridge: np.float32) -> np.ndarray:
    """Return the minimum over x ≥ 0 of ½ (x − h)ᵀ T (x − h) − backᵀ(x − h) + ½ ridge ‖x‖², where T is Toeplitz.

    `lags` (2s − 1, 2s − 1) is T's response to one pixel. 24 projected gradient steps with restarted momentum lead from
    the PSF h (s, s) to the minimum.
    """
    torus = Torus([scipy.fft.next_fast_len(len(lags) + len(h), real=True)] * 2)
    symbol = torus.spectrum(lags, [len(h) - 1] * 2, np.float32)
    steepest, b = np.float32(abs(symbol).max() + ridge), torus.filter(h, symbol) + back
    ahead, pace = h, 1.0
    for _ in range(24):
        slope = torus.filter(ahead, symbol) + ridge * ahead - b
        new = np.maximum(ahead - slope / steepest, 0)
        if ((ahead - new) * (new - h)).sum() > 0:
            ahead, pace = new, 1.0
        faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
        ahead, pace, h = new + np.float32((pace - 1) / faster) * (new - h), faster, new
    return h


def _differences(f: np.ndarray) -> np.ndarray:
    """Return the differences (2, M, N) to the next column and to the next row of a periodic image."""
    out = np.empty((2, *f.shape), f.dtype)
    for to, lines in ((out[0].T, f.T), (out[1], f)):  # `np.diff` with an end would copy the image twice
        np.subtract(lines[1:], lines[:-1], out=to[:-1])
        np.subtract(lines[0], lines[-1], out=to[-1])
    return out


def _window(a: np.ndarray, reach: int) -> np.ndarray:
    """Return the pixels up to `reach` around the first pixel of a periodic image."""
    return np.roll(a, [reach] * 2, (0, 1))[: 2 * reach + 1, : 2 * reach + 1]


def _cleaned(h: np.ndarray, faint: float) -> np.ndarray:
    """Return a PSF of unit sum without pixels below `faint` of the largest, and without parts of less than a tenth of
    the sum.
    """
    h = np.where(h < max(faint * float(h.max()), 0.0), 0, h)
    parts, n = scipy.ndimage.label(h > 0, np.ones((3, 3)))
    size = scipy.ndimage.sum_labels(h, parts, np.arange(n + 1))
    return unit_sum(np.where((size >= min(0.1 * h.sum(), size.max()))[parts], h, 0))


def _moved(h: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return a PSF shifted by whole pixels."""
    return unit_sum(scipy.ndimage.shift(h, by, order=0)) if by.any() else h


def _centred(h: np.ndarray) -> np.ndarray:
    """Return a PSF whose centre of gravity is at its centre, to within a pixel."""
    return _moved(h, -np.rint(centre_of_gravity(h)))


def _into(h: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the shortest shift (2,) after which the central part of that shape holds as much light as possible."""
    by = []
    for axis, length in enumerate(shape):
        line, middle = h.sum(axis=1 - axis), (len(h) - 1) // 2 - (length - 1) // 2
        light = [line[i : i + length].sum() - 1e-6 * abs(i - middle) for i in range(len(h) - length + 1)]
        by.append(middle - int(np.argmax(light)) if light else 0)
    return np.array(by)


def _difference(h: np.ndarray, other: np.ndarray) -> float:
    """Return the relative difference of two PSFs, weighted by the power of a typical image (1/|k|²), whatever their
    centres.
    """
    n = max(128, 2 * len(h))
    squares = scipy.fft.fftfreq(n)[:, None] ** 2 + scipy.fft.fftfreq(n) ** 2
    squares[0, 0] = np.inf
    one, two = (abs(scipy.fft.fft2(a, (n, n))) for a in (h, other))
    return math.sqrt(((one - two) ** 2 / squares).sum() / (one**2 / squares).sum())

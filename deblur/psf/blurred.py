"""The PSF of camera shake from the blurred image alone.

From coarse scales to fine ones two steps alternate:

1. the scene with few edges whose blurred image is nearest to the input: ‖h∗f − g‖² + λ‖∇f‖₀, by half-quadratic
   splitting [1]_ [2]_, with decreasing λ, so that ever more edges appear;
2. the PSF that takes the scene's gradients to those of g, in one of two ways: by one division in frequency, that is
   regularised least squares, whose negative, faint and isolated pixels are removed; or by non-negative least squares
   within the frame. The first converges from further away, the second is more accurate.

At the finest scale a few more iterations follow, with λ of the noise. The division's values beyond the PSF's frame then
show the error of its pixels, and faint paths well above that error are kept.

Properties that the image does not determine depend on the procedure: so eight PSFs are estimated, by either way with
another first scale, another first λ and its decay, or without edges that are part of a texture as in [3]_. The last
iterations start from their mean, weighted by the correlation with the one that is most similar to all. Their
similarity decides the status.

References
----------
.. [1] L. Xu, S. Zheng, J. Jia, "Unnatural L0 sparse representation for natural image deblurring", CVPR 2013.
.. [2] J. Pan, Z. Hu, Z. Su, M.-H. Yang, "Deblurring text images via L0-regularized intensity and gradient prior",
   CVPR 2014.
.. [3] L. Xu, J. Jia, "Two-phase kernel estimation for robust motion deblurring", ECCV 2010.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft

from ..device import all_cores
from ..operators.torus import Torus, wrapped
from ..tuning import noise_level
from .estimate import PSFEstimate, PSFStatus, centre_of_gravity, grey, placed
from .models import Size, as_shape, unit_sum

_CONTRAST = 0.2  # standard deviation to which the image is scaled; all other values refer to it
_LEAST_LAM = 1e-4  # limit of λ at all scales
_STEPS, _LAST_STEPS = 5, 4  # iterations at each scale, and the additional ones at the finest
_FINAL_FAINT = 0.01  # pixels below this part of the largest are removed in the last iterations
_ALIKE = 0.8  # least mean correlation of the PSFs of a trusted estimate


# How the estimates are made: the first λ, the factor by which it decreases in each iteration, the side of the PSF at
# the coarsest scale, whether edges that are part of a texture are left out, and whether the PSF follows from one
# division in frequency; otherwise from non-negative least squares.
_WAYS = tuple(
    (*way, division)
    for division in (True, False)
    for way in ((8e-3, 1.1, 5, False), (32e-3, 1.1, 3, False), (8e-3, 1.1, 3, True), (8e-3, 1.05, 5, False))
)


def from_blurred(
    image: Any, size: Size, *, progress: Callable[[int, int], None] | None = None
) -> PSFEstimate:
    """Estimate the PSF of uniform camera shake from the blurred image alone.

    Parameters
    ----------
    image : (M, N) array
        The blurred grey image, at least four times as large as `size`. Of a large one the 1024 x 1024 pixels
        with the strongest edges are used.
    size : int or (int, int)
        Upper limit of the PSF's rows and columns; a third too large does no harm.
    progress : callable, optional
        Called with (PSFs estimated so far, their number).

    Returns
    -------
    PSFEstimate
        With its centre of gravity, to a pixel, at the centre, since the displacement cannot be known.
        ``details``: ``similarity``, the mean correlation of the PSFs that were estimated in different ways;
        ``data residual``, the root mean square difference of the image blurred by one of them and by their mean, in the
        image's unit, plus 2 % of its standard deviation for their common error: a restoration should count it as noise.
        ``status`` is DOUBTFUL if the PSFs differ: the image has too few sharp edges apart from the
        blur, or the blur is not shift-invariant.

    Raises
    ------
    ValueError
        If the image is constant or too small for such PSFs.

    Notes
    -----
    Images of texture without edges (a brick wall, grass), or with hardly any contrast, do not determine the PSF.
    ``benchmarks/bench_blind.py`` measures how often the estimate is right.
    """
    y, shape = grey(image), as_shape(size)
    s = max(shape) | 1
    if max(shape) < 3 or min(y.shape) < 4 * s:
        raise ValueError(
            f"a PSF of {shape[0]} x {shape[1]} cannot be found in an image of {y.shape[0]} x {y.shape[1]}: it must "
            "have 3 pixels or more, and the image 4 times as many"
        )
    y = _part(y)
    deviation = float(y.std())
    if not deviation > 1e-6 * float(abs(y).max()):
        raise ValueError("the image is constant, so that nothing shows the blur")
    y = (y - y.mean()) * (_CONTRAST / deviation)
    last_lam = min(max(16 * noise_level(y) ** 2, _LEAST_LAM), 1e-3)
    found, tell = [], progress or (lambda *_: None)
    with all_cores():
        for i, way in enumerate(_WAYS):
            found.append(_estimated(y, s, way, last_lam))
            tell(i + 1, len(_WAYS) + 1)
    similar = np.array([[_aligned(a, b)[1] for b in found] for a in found])
    best = int(similar.sum(axis=1).argmax())
    similarity = float((similar.sum(axis=1)[best] - 1) / (len(found) - 1))
    aligned = np.array([_aligned(h, found[best])[0] for h in found])
    weights = similar[best] ** 4 / (similar[best] ** 4).sum()
    mean = np.tensordot(weights, aligned, 1)
    error = float(np.sqrt(weights @ ((aligned - mean) ** 2).sum(axis=(1, 2)) / (mean**2).sum()))
    room = [scipy.fft.next_fast_len(n + s, real=True) for n in y.shape]
    wrong = scipy.fft.irfft2(scipy.fft.rfft2(aligned - mean, room) * scipy.fft.rfft2(y, room), room)
    wrong = wrong[:, s - 1 : y.shape[0], s - 1 : y.shape[1]]
    # 2 %: the error that all ways have in common, from simulations.
    apart = float(np.sqrt(weights @ (wrong**2).mean(axis=(1, 2)))) / _CONTRAST
    data_residual = math.hypot(apart, 0.02) * deviation
    scale, psf = _Scale(y, s, texture=False), _cleaned(mean, _FINAL_FAINT)
    with all_cores():
        for _ in range(_LAST_STEPS):
            psf = _centred(scale.nonnegative_psf(scale.scene(psf, last_lam), psf))
    tell(len(_WAYS) + 1, len(_WAYS) + 1)
    psf = unit_sum(placed(_centred(_cleaned(psf, _FINAL_FAINT)), shape))
    status = PSFStatus.ROUGH if similarity >= _ALIKE else PSFStatus.DOUBTFUL
    why = (
        f"PSFs found in {len(found)} ways are {'' if status.ok else 'only '}{similarity:.2f} alike (correlation; "
        f"{_ALIKE} or more are needed)"
    )
    if status.ok and psf.max() > 0.8:
        status, why = PSFStatus.DOUBTFUL, "no blur was found: nearly all of the PSF is one pixel"
    return PSFEstimate(psf, error, status, why, {"similarity": similarity, "data_residual": data_residual})


def _part(y: np.ndarray) -> np.ndarray:
    """The 1024 x 1024 pixels of a large image with the strongest edges."""
    rows, cols = (min(n, 1024) for n in y.shape)
    steep = np.hypot(np.diff(y, axis=0, append=y[-1:]), np.diff(y, axis=1, append=y[:, -1:]))
    starts = [
        sorted({*range(0, n - k + 1, k // 2), n - k}) for n, k in zip(y.shape, (rows, cols), strict=True)
    ]
    # The mean gradient and not the largest: one lamp at night is not an edge everywhere.
    i, j = max(itertools.product(*starts), key=lambda at: steep[at[0] :, at[1] :][:rows, :cols].mean())
    return y[i : i + rows, j : j + cols]


def _estimated(
    y: np.ndarray, size: int, way: tuple[float, float, int, bool, bool], last_lam: float
) -> np.ndarray:
    """The PSF (size, size), in one way."""
    from skimage.transform import resize

    lam, decay, coarsest, texture, division = way
    sizes = [size]
    while sizes[-1] > coarsest:
        sizes.append(min(math.ceil(sizes[-1] / math.sqrt(2)) | 1, sizes[-1] - 2))
    h = np.zeros((sizes[-1], sizes[-1]))
    middle = sizes[-1] // 2
    h[middle, middle - 1 : middle + 1] = 0.5
    for s in reversed(sizes):
        seen = y
        if s != size:
            shape = [max(16, round(n * s / size)) for n in y.shape]
            seen = resize(y, shape, order=1, anti_aliasing=True, mode="reflect")
        if len(h) != s:
            h = resize(h, (s, s), order=1, anti_aliasing=True, mode="reflect")
            h = _centred(unit_sum(np.maximum(h, 0)))
        scale = _Scale(seen, s, texture)
        for step in range(_STEPS):
            h = scale.iterated(h, lam, step, division)
            lam = max(lam / decay, _LEAST_LAM)
    for step in range(_STEPS, _STEPS + _LAST_STEPS):
        h = scale.iterated(h, last_lam, step, division, last=True)
    return h


class _Scale:
    """The image at one scale, continued so that it wraps smoothly, and the two steps."""

    def __init__(self, seen: np.ndarray, size: int, texture: bool) -> None:
        self._size, self._frame = size, seen.shape
        grown = wrapped(seen, [scipy.fft.next_fast_len(n + 2 * size, real=True) for n in seen.shape])
        self._shape = grown.shape
        self._seen = scipy.fft.rfft2(grown)
        rows, cols = scipy.fft.fftfreq(self._shape[0])[:, None], scipy.fft.rfftfreq(self._shape[1])
        self._d = np.exp(2j * np.pi * cols) - 1, np.exp(2j * np.pi * rows) - 1
        self._power = abs(self._d[0]) ** 2 + abs(self._d[1]) ** 2
        self._edges = _edge_measure(grown, size, self._frame) if texture else None
        self._gradients = _differences(grown)
        self._inside = np.zeros(self._gradients.shape, bool)  # both pixels of a difference in the frame
        self._inside[0, : self._frame[0], : self._frame[1] - 1] = True
        self._inside[1, : self._frame[0] - 1, : self._frame[1]] = True

    def iterated(
        self, h: np.ndarray, lam: float, step: int, division: bool, last: bool = False
    ) -> np.ndarray:
        """Both steps, from h on, and the cleaning of the PSF."""
        f = self.scene(h, lam)
        if not division:
            h = self.nonnegative_psf(f, h, self._strong(step))
            return _centred(_cleaned(h, _FINAL_FAINT if last else 0.05))
        h, error = self.divided_psf(f, step)
        return _centred(_cleaned(h, error=error) if last else _cleaned(h, 0.1))

    def scene(self, h: np.ndarray, lam: float) -> np.ndarray:
        """Few edges: the least ‖h∗f − g‖² + λ‖∇f‖₀."""
        spectrum = self._spectrum(h)
        right, power = spectrum.conj() * self._seen, abs(spectrum) ** 2
        f = scipy.fft.irfft2(self._seen, self._shape)
        beta = 2 * lam  # the weight of the splitting
        while beta < 1e5:
            u, v = _differences(f)
            small = u * u + v * v < lam / beta
            u[small] = v[small] = 0
            back = np.roll(u, 1, 1) - u + np.roll(v, 1, 0) - v
            spectrum = (right + beta * scipy.fft.rfft2(back)) / (power + beta * self._power)
            f = scipy.fft.irfft2(spectrum, self._shape)
            beta *= 2
        return f

    def _spectrum(self, h: np.ndarray) -> np.ndarray:
        return Torus(self._shape).spectrum(h, [len(h) // 2] * 2)

    def _strong(self, step: int) -> np.ndarray | bool:
        """Where the edges are that may be used: ever more; everywhere, if texture counts as edges."""
        if self._edges is None:
            return True
        inside = self._edges[: self._frame[0], : self._frame[1]]
        return self._edges >= np.quantile(inside, 0.5 * 0.9**step)

    def divided_psf(self, f: np.ndarray, step: int) -> tuple[np.ndarray, float]:
        """The PSF (size, size) that takes the gradients of f to those of g, by one division, and its pixels' error.

        Beyond its frame the PSF is zero, so that the values there show the error.
        """
        keep = np.zeros(self._shape, bool)
        keep[: self._frame[0], : self._frame[1]] = True
        spectra = scipy.fft.rfft2(np.where(keep & self._strong(step), _differences(f), 0))
        power = (abs(spectra) ** 2).sum(axis=0)
        right = sum(part.conj() * d for part, d in zip(spectra, self._d, strict=True)) * self._seen
        wide = scipy.fft.irfft2(right / (power + 0.1 + 0.1 * power.mean()), self._shape)
        s = self._size
        around = np.roll(wide, [s + s // 2] * 2, (0, 1))[: 3 * s, : 3 * s]
        around[s : 2 * s, s : 2 * s] = 0
        return _window(wide, s // 2), float(np.sqrt((around**2).sum() / (8 * s * s)))

    def nonnegative_psf(self, f: np.ndarray, h: np.ndarray, edges: np.ndarray | bool = True) -> np.ndarray:
        """The PSF that takes the gradients of f to those of g, from h on: the least ‖h∗∇f − ∇g‖² + ridge ‖h‖², h ≥ 0.

        Only pixels of the frame count. Each of two rounds minimises a quadratic that touches the sum at h and lies
        above it: the Toeplitz one of f's gradients seen everywhere.
        """
        spectra = scipy.fft.rfft2(np.where(edges, _differences(f), 0))
        lags = scipy.fft.irfft2((abs(spectra) ** 2).sum(axis=0), self._shape)
        above = _Toeplitz(_window(lags, self._size - 1), 0.01 * lags[0, 0])
        for _ in range(2):
            missed = self._gradients - scipy.fft.irfft2(self._spectrum(h) * spectra, self._shape)
            missed *= self._inside
            back = scipy.fft.irfft2((spectra.conj() * scipy.fft.rfft2(missed)).sum(axis=0), self._shape)
            h = above.least(above.times(h) + _window(back, self._size // 2), h)
        return unit_sum(h)


class _Toeplitz:
    """The quadratic ½ hᵀ(T + ridge) h − bᵀh of PSFs h (s, s), T Toeplitz."""

    def __init__(self, lags: np.ndarray, ridge: float) -> None:
        size, self._ridge = (len(lags) + 1) // 2, ridge
        self._torus = Torus([scipy.fft.next_fast_len(len(lags) + size, real=True)] * 2)
        self._symbol = self._torus.spectrum(lags, [size - 1] * 2)
        self._steepest = float(abs(self._symbol).max()) + ridge

    def times(self, h: np.ndarray) -> np.ndarray:
        """T h."""
        return self._torus.filter(h, self._symbol)

    def least(self, b: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Its minimum over h ≥ 0, from h on: 60 projected gradient steps with restarted momentum."""
        ahead, pace = h, 1.0
        for _ in range(60):
            slope = self.times(ahead) + self._ridge * ahead - b
            new = np.maximum(ahead - slope / self._steepest, 0)
            if ((ahead - new) * (new - h)).sum() > 0:
                ahead, pace = new, 1.0
            faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
            ahead, pace, h = new + (pace - 1) / faster * (new - h), faster, new
        return h


def _differences(f: np.ndarray) -> np.ndarray:
    """Differences (2, M, N) to the next column and to the next row of an image that wraps."""
    return np.stack([np.roll(f, -1, 1) - f, np.roll(f, -1, 0) - f])


def _window(a: np.ndarray, reach: int) -> np.ndarray:
    """The pixels up to `reach` around the first pixel of an image that wraps."""
    return np.roll(a, [reach] * 2, (0, 1))[: 2 * reach + 1, : 2 * reach + 1]


def _edge_measure(g: np.ndarray, size: int, frame: tuple[int, ...]) -> np.ndarray:
    """Large where gradients within a PSF's reach point the same way, as at an edge, and do not cancel."""
    from scipy.ndimage import uniform_filter

    u, v = _differences(g)
    steep = np.hypot(u, v)
    mean_u, mean_v, mean = (uniform_filter(a, max(size, 3), mode="wrap") for a in (u, v, steep))
    return np.hypot(mean_u, mean_v) / (mean + 0.5 * steep[: frame[0], : frame[1]].mean())


def _cleaned(h: np.ndarray, faint: float = 0.0, error: float | None = None) -> np.ndarray:
    """A PSF of unit sum without negative and faint pixels and small isolated parts.

    Pixels below `faint` of the largest are faint, and parts with less than a tenth of the sum small; with an error,
    pixels below four errors, and parts without a pixel of eight.
    """
    from scipy.ndimage import label, maximum, sum_labels

    h = np.maximum(h, 0)
    h = np.where(h < (faint * h.max() if error is None else min(4 * error, 0.5 * h.max())), 0, h)
    parts, n = label(h > 0, np.ones((3, 3)))
    size = (sum_labels if error is None else maximum)(h, parts, np.arange(n + 1))
    enough = 0.1 * h.sum() if error is None else 8 * error
    return unit_sum(np.where((size >= min(enough, size.max()))[parts], h, 0))


def _centred(h: np.ndarray) -> np.ndarray:
    """Its centre of gravity moved to the centre, by whole pixels."""
    from scipy.ndimage import shift

    by = -np.rint(centre_of_gravity(h))
    return unit_sum(shift(h, by, order=0)) if by.any() else h


def _aligned(h: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, float]:
    """(h displaced by whole pixels to where its correlation with another PSF is largest, that correlation)."""
    from scipy.ndimage import shift

    room = [2 * n for n in h.shape]
    correlation = scipy.fft.irfft2(scipy.fft.rfft2(h, room).conj() * scipy.fft.rfft2(to, room), room)
    at = np.unravel_index(correlation.argmax(), correlation.shape)
    by = [int(i) - n * (i > n // 2) for i, n in zip(at, room, strict=True)]
    return shift(h, by, order=0), float(correlation.max() / np.sqrt((h**2).sum() * (to**2).sum()))

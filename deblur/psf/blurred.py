"""The PSF of camera shake from the blurred picture alone.

Where a picture has edges, a blurred one tells what became of them. From coarse scales to fine ones two steps take
turns:

1. the picture with few edges that, blurred by the PSF so far, is nearest to what was seen: ‖h∗f − g‖² + λ‖∇f‖₀, by
   half-quadratic splitting [1]_ [2]_, with λ falling so that ever more edges come in;
2. the PSF that takes that picture's gradients to those of g, in one of two ways. By one division in frequency,
   regularised least squares, of which what is negative, faint or apart is dropped; or by least squares among PSFs that
   are not negative, within the frame. The one finds its way from further off, the other comes nearer.

At the finest scale a few more turns follow, with λ of the noise. There the division tells by what it finds beyond the
PSF's frame how wrong each of its pixels is, and faint paths that stand out from that stay.

What is not determined by the picture differs when it is done differently: so eight PSFs are found, by either step with
another first scale, another first λ and its decay, or edges that are part of a texture left out as in [3]_. From their
mean, in which each counts as it is like the one that is most like all, the last turns go on. How alike they are tells
how far to trust it.

References
----------
.. [1] L. Xu, S. Zheng, J. Jia, "Unnatural L0 sparse representation for natural image deblurring", CVPR 2013.
.. [2] J. Pan, Z. Hu, Z. Su, M.-H. Yang, "Deblurring text images via L0-regularized intensity and gradient prior",
   CVPR 2014.
.. [3] L. Xu, J. Jia, "Two-phase kernel estimation for robust motion deblurring", ECCV 2010.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft

from ..device import all_cores
from ..tuning import noise_level
from .estimate import PSFEstimate, PSFStatus, grey, placed
from .models import Size, as_shape, unit_sum

_CONTRAST = 0.2  # standard deviation that the picture is brought to
_STEPS = 5  # turns at each scale
_LAST_LAM, _STIFFEST = 1e-4, 1e5  # the least λ, and the largest weight of the splitting
_RIDGE, _RIDGE_OF_MEAN = 0.1, 0.1  # what least squares adds to the spectrum of the gradients
_FAINT, _APART = 0.1, 0.1  # of the PSF's largest value, of its sum: less is dropped
_ROUNDS, _PROJECTIONS = 2, 60  # of least squares without division, and of the descent in each
_SMALL_RIDGE, _SMALL_FAINT = 0.01, 0.05  # there: of the gradients' power, and of the PSF's largest value
_SETTLING = 4  # more turns at the finest scale, with λ of the noise
_LAM_OF_NOISE, _MOST_LAM = 16, 1e-3  # λ of these: so many times the noise's variance, at most
_CERTAIN, _CERTAIN_PART = 4, 8  # times that error: less is dropped, and parts that nowhere have as much
_SHARED = 0.02  # of the picture's deviation: the misfit of what all ways have in common, as tuning found it
_FINAL_FAINT = 0.01  # of the mean PSF, and in the turns that go on from it
_ALIKE = 4  # a PSF counts in the mean as this power of its correlation with the one that is most like all
_TEXTURE = 0.5  # what is added, in mean gradients, where edges are told from texture
_PIXELS = 1024  # rows and columns of the part that is looked at
_LEAST = 4  # PSFs that the picture must have room for
_POINT = 0.8  # of the light in one pixel is no blur
_DOUBTFUL = 0.8  # similarity below which PSFs are not trusted


@dataclass(frozen=True)
class _Way:
    """How one of the estimates is made."""

    lam: float = 8e-3
    decay: float = 1.1
    coarsest: int = 3
    texture: bool = False
    division: bool = True


_WAYS = tuple(
    _Way(**way, division=division)
    for division in (True, False)
    for way in ({"coarsest": 5}, {"lam": 32e-3}, {"texture": True}, {"coarsest": 5, "decay": 1.05})
)


def from_blurred(
    image: Any, size: Size, *, progress: Callable[[int, int], None] | None = None
) -> PSFEstimate:
    """Estimate the PSF of uniform camera shake from the blurred picture alone.

    Parameters
    ----------
    image : (M, N) array
        The blurred picture, at least four times as large as `size`; no colours. Of a large one the 1024 x 1024 pixels
        with the strongest edges are looked at.
    size : int or (int, int)
        Rows and columns that the PSF has at most; a third more than it has does no harm.
    progress : callable, optional
        Called with (PSFs estimated so far, their number).

    Returns
    -------
    PSFEstimate
        With its centre of gravity, to a pixel, at the centre: where a picture was before it was shaken, nobody
        knows. ``details``: ``similarity``, the mean correlation of the PSFs that were found in different ways;
        ``misfit``, by how much the picture blurred by one of them differs from it blurred by their mean, and 2 % of
        its deviation for what they have in common (root mean square, in its own unit): noise to whoever restores it.
        ``status`` is DOUBTFUL where they differ: there is too little in the picture that is sharp but for the
        blur, or the blur is not the same everywhere.

    Raises
    ------
    ValueError
        If the picture is constant or has no room for such PSFs.

    Notes
    -----
    A picture of texture without edges (a brick wall, grass), or hardly any contrast, does not tell its PSF.
    ``benchmarks/bench_blind.py`` measures how often it is right.
    """
    y = grey(image)
    shape = as_shape(size)
    s = max(shape) + (1 - max(shape) % 2)
    if max(shape) < 3 or min(y.shape) < _LEAST * s:
        raise ValueError(
            f"a PSF of {shape[0]} x {shape[1]} cannot be found in a picture of {y.shape[0]} x {y.shape[1]}: it must "
            f"have 3 pixels or more, and the picture {_LEAST} times as many"
        )
    y = _part(y)
    deviation = float(y.std())
    if not deviation > 1e-6 * float(abs(y).max()):
        raise ValueError("the picture is constant, so that nothing shows what blurred it")
    y = (y - y.mean()) * (_CONTRAST / deviation)
    settled = min(max(_LAM_OF_NOISE * noise_level(y) ** 2, _LAST_LAM), _MOST_LAM)
    found = []
    with all_cores():
        for i, way in enumerate(_WAYS):
            found.append(_estimated(y, s, way, settled))
            if progress is not None:
                progress(i + 1, len(_WAYS) + 1)
    similar = np.array([[_aligned(a, b)[1] for b in found] for a in found])
    middle = int(similar.sum(axis=1).argmax())
    similarity = float((similar.sum(axis=1)[middle] - 1) / (len(found) - 1))
    aligned = np.array([_aligned(h, found[middle])[0] for h in found])
    weights = similar[middle] ** _ALIKE / (similar[middle] ** _ALIKE).sum()
    mean = np.tensordot(weights, aligned, 1)
    error = float(np.sqrt(weights @ ((aligned - mean) ** 2).sum(axis=(1, 2)) / (mean**2).sum()))
    room = [scipy.fft.next_fast_len(n + s, real=True) for n in y.shape]
    wrong = scipy.fft.irfft2(scipy.fft.rfft2(aligned - mean, room) * scipy.fft.rfft2(y, room), room)
    seen = wrong[:, s - 1 : y.shape[0], s - 1 : y.shape[1]]
    misfit = (
        math.hypot(float(np.sqrt(weights @ (seen**2).mean(axis=(1, 2)))) / _CONTRAST, _SHARED) * deviation
    )
    with all_cores():
        psf = _gone_on(y, _cleaned(mean, _FINAL_FAINT), settled)
    if progress is not None:
        progress(len(_WAYS) + 1, len(_WAYS) + 1)
    psf = unit_sum(placed(_centred(psf), shape))
    status = PSFStatus.ROUGH if similarity >= _DOUBTFUL else PSFStatus.DOUBTFUL
    why = (
        f"PSFs found in {len(found)} ways are {'' if status.ok else 'only '}{similarity:.2f} alike (correlation; "
        f"{_DOUBTFUL} or more are needed)"
    )
    if status.ok and psf.max() > _POINT:
        status, why = PSFStatus.DOUBTFUL, "no blur was found: nearly all of the PSF is one pixel"
    return PSFEstimate(psf, error, status, why, {"similarity": similarity, "misfit": misfit})


def _part(y: np.ndarray) -> np.ndarray:
    """Of a large picture the part with the strongest edges."""
    rows, cols = (min(n, _PIXELS) for n in y.shape)
    if (rows, cols) == y.shape:
        return y
    energy = np.zeros(y.shape)
    energy[:-1] += np.diff(y, axis=0) ** 2
    energy[:, :-1] += np.diff(y, axis=1) ** 2
    corners = [
        (i, j)
        for i in sorted({*range(0, y.shape[0] - rows + 1, rows // 2), y.shape[0] - rows})
        for j in sorted({*range(0, y.shape[1] - cols + 1, cols // 2), y.shape[1] - cols})
    ]
    # The typical gradient, not the largest: one lamp in the night is not an edge everywhere.
    i, j = max(
        corners, key=lambda at: float(np.sqrt(energy[at[0] : at[0] + rows, at[1] : at[1] + cols]).mean())
    )
    return y[i : i + rows, j : j + cols]


def _estimated(y: np.ndarray, size: int, way: _Way, settled: float) -> np.ndarray:
    """The PSF (size, size), in one way; with the λ of the last turns."""
    sizes = [size]
    while sizes[-1] > way.coarsest:
        smaller = math.ceil(sizes[-1] / math.sqrt(2)) | 1
        sizes.append(min(smaller, sizes[-1] - 2))
    h, lam = np.zeros((sizes[-1], sizes[-1])), way.lam
    middle = sizes[-1] // 2
    h[middle, middle - 1 : middle + 1] = 0.5
    for s in reversed(sizes):
        seen = y if s == size else _resized(y, [max(16, round(n * s / size)) for n in y.shape])
        if len(h) != s:
            h = _centred(unit_sum(np.maximum(_resized(h, (s, s)), 0)))
        scale = _Scale(seen, s, way.texture)
        for step in range(_STEPS):
            h = scale.turn(h, lam, step, way.division)
            lam = max(lam / way.decay, _LAST_LAM)
    for step in range(_STEPS, _STEPS + _SETTLING):
        h = scale.turn(h, settled, step, way.division, settling=True)
    return h


def _gone_on(y: np.ndarray, h: np.ndarray, settled: float) -> np.ndarray:
    """The last turns, from the mean of what was found."""
    scale = _Scale(y, len(h), texture=False)
    for _ in range(_SETTLING):
        h = _centred(scale.nonnegative_psf(scale.scene(h, settled), h))
    return _cleaned(h, _FINAL_FAINT)


class _Scale:
    """The picture at one scale, grown so that it wraps smoothly, and the two steps."""

    def __init__(self, seen: np.ndarray, size: int, texture: bool) -> None:
        self._size, self._frame = size, seen.shape
        grown = _wrapped(_wrapped(seen, 0, size), 1, size)
        self._shape = grown.shape
        self._seen = scipy.fft.rfft2(grown)
        rows, cols = scipy.fft.fftfreq(self._shape[0])[:, None], scipy.fft.rfftfreq(self._shape[1])
        self._d = np.exp(2j * np.pi * cols) - 1, np.exp(2j * np.pi * rows) - 1
        self._power = abs(self._d[0]) ** 2 + abs(self._d[1]) ** 2
        self._edges = _told_from_texture(grown, size, self._frame) if texture else None
        self._gradients = np.stack(self._differences(grown))
        self._inside = np.zeros(self._gradients.shape, bool)  # both pixels of a difference in the frame
        self._inside[0, : self._frame[0], : self._frame[1] - 1] = True
        self._inside[1, : self._frame[0] - 1, : self._frame[1]] = True

    def turn(
        self, h: np.ndarray, lam: float, step: int, division: bool, settling: bool = False
    ) -> np.ndarray:
        """Both steps, from h on, and what cannot be of a PSF taken from it."""
        f = self.scene(h, lam)
        if not division:
            edges = self._strong(step)
            h = self.nonnegative_psf(f, h, edges)
            return _centred(_cleaned(h, _FINAL_FAINT if settling else _SMALL_FAINT))
        h, error = self.divided_psf(f, step)
        return _centred(_certain(h, error) if settling else _cleaned(h, _FAINT))

    def _differences(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.roll(f, -1, 1) - f, np.roll(f, -1, 0) - f

    def scene(self, h: np.ndarray, lam: float) -> np.ndarray:
        """Few edges: the least ‖h∗f − g‖² + λ‖∇f‖₀."""
        spectrum = self._spectrum(h)
        right, power = spectrum.conj() * self._seen, abs(spectrum) ** 2
        f = scipy.fft.irfft2(self._seen, self._shape)
        beta = 2 * lam
        while beta < _STIFFEST:
            u, v = self._differences(f)
            small = u * u + v * v < lam / beta
            u[small] = v[small] = 0
            back = np.roll(u, 1, 1) - u + np.roll(v, 1, 0) - v
            f = scipy.fft.irfft2(
                (right + beta * scipy.fft.rfft2(back)) / (power + beta * self._power), self._shape
            )
            beta *= 2
        return f

    def _spectrum(self, h: np.ndarray) -> np.ndarray:
        wide = np.zeros(self._shape)
        wide[: len(h), : len(h)] = h
        return scipy.fft.rfft2(np.roll(wide, [-(len(h) // 2)] * 2, (0, 1)))

    def _strong(self, step: int) -> np.ndarray | bool:
        """Where edges are that may be used: ever more; everywhere, if texture is not told from edges."""
        if self._edges is None:
            return True
        inside = self._edges[: self._frame[0], : self._frame[1]]
        return self._edges >= np.quantile(inside, 0.5 * 0.9**step)

    def divided_psf(self, f: np.ndarray, step: int) -> tuple[np.ndarray, float]:
        """What takes the gradients of f to those of g, (size, size), by one division; and the error of its pixels.

        Beyond its frame the PSF is zero, and what is found there tells its error.
        """
        keep = np.zeros(self._shape, bool)
        keep[: self._frame[0], : self._frame[1]] = True
        keep &= self._strong(step)
        spectra = [scipy.fft.rfft2(np.where(keep, part, 0)) for part in self._differences(f)]
        power = sum(abs(part) ** 2 for part in spectra)
        right = sum(part.conj() * d for part, d in zip(spectra, self._d, strict=True)) * self._seen
        wide = scipy.fft.irfft2(right / (power + _RIDGE + _RIDGE_OF_MEAN * power.mean()), self._shape)
        s = self._size
        around = np.roll(wide, [s + s // 2] * 2, (0, 1))[: 3 * s, : 3 * s]
        around[s : 2 * s, s : 2 * s] = 0
        return _window(wide, s // 2), float(np.sqrt((around**2).sum() / (8 * s * s)))

    def nonnegative_psf(self, f: np.ndarray, h: np.ndarray, edges: np.ndarray | bool = True) -> np.ndarray:
        """What takes the gradients of f to those of g, from h on: the least ‖h∗∇f − ∇g‖² + ridge ‖h‖² for h ≥ 0.

        Only pixels of the frame count. Each round takes the least of a quadratic that touches the sum at h and lies
        above it: the Toeplitz one of f's gradients seen everywhere.
        """
        spectra = scipy.fft.rfft2(np.where(edges, np.stack(self._differences(f)), 0))
        lags = scipy.fft.irfft2((abs(spectra) ** 2).sum(axis=0), self._shape)
        above = _Toeplitz(_window(lags, self._size - 1), _SMALL_RIDGE * lags[0, 0])
        for _ in range(_ROUNDS):
            missed = self._gradients - scipy.fft.irfft2(self._spectrum(h) * spectra, self._shape)
            missed *= self._inside
            back = scipy.fft.irfft2((spectra.conj() * scipy.fft.rfft2(missed)).sum(axis=0), self._shape)
            h = above.least(above.times(h) + _window(back, self._size // 2), h)
        return unit_sum(h)


class _Toeplitz:
    """The quadratic ½ hᵀ(T + ridge) h − bᵀh of PSFs h (s, s), T Toeplitz."""

    def __init__(self, lags: np.ndarray, ridge: float) -> None:
        self._size, self._ridge = (len(lags) + 1) // 2, ridge
        self._room = [scipy.fft.next_fast_len(len(lags) + self._size, real=True)] * 2
        wide = np.zeros(self._room)
        wide[: len(lags), : len(lags)] = lags
        self._symbol = scipy.fft.rfft2(np.roll(wide, [1 - self._size] * 2, (0, 1)))
        self._steepest = float(abs(self._symbol).max()) + ridge

    def times(self, h: np.ndarray) -> np.ndarray:
        """T h."""
        product = scipy.fft.irfft2(self._symbol * scipy.fft.rfft2(h, self._room), self._room)
        return product[: self._size, : self._size]

    def least(self, b: np.ndarray, h: np.ndarray) -> np.ndarray:
        """The least of it for h ≥ 0, from h on: projected gradients with momentum that starts again."""
        ahead, pace = h, 1.0
        for _ in range(_PROJECTIONS):
            slope = self.times(ahead) + self._ridge * ahead - b
            new = np.maximum(ahead - slope / self._steepest, 0)
            if ((ahead - new) * (new - h)).sum() > 0:
                ahead, pace = new, 1.0
            faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
            ahead, pace, h = new + (pace - 1) / faster * (new - h), faster, new
        return h


def _window(a: np.ndarray, reach: int) -> np.ndarray:
    """What lies up to `reach` pixels around the first pixel of a picture that wraps."""
    return np.roll(a, [reach] * 2, (0, 1))[: 2 * reach + 1, : 2 * reach + 1]


def _told_from_texture(g: np.ndarray, size: int, frame: tuple[int, ...]) -> np.ndarray:
    """Large where gradients within a PSF's reach point the same way, as at an edge, and do not cancel."""
    from scipy.ndimage import uniform_filter

    u, v = np.roll(g, -1, 1) - g, np.roll(g, -1, 0) - g
    steep = np.hypot(u, v)
    mean_u, mean_v, mean = (uniform_filter(a, max(size, 3), mode="wrap") for a in (u, v, steep))
    return np.hypot(mean_u, mean_v) / (mean + _TEXTURE * steep[: frame[0], : frame[1]].mean())


def _wrapped(a: np.ndarray, axis: int, room: int) -> np.ndarray:
    """`a` grown along an axis by mirrored pixels that go over from its end to its beginning."""
    n = a.shape[axis]
    gap = scipy.fft.next_fast_len(n + 2 * room, real=True) - n
    a = np.moveaxis(a, axis, 0)
    at = np.arange(gap)
    after, before = a[np.maximum(n - 1 - at, 0)], a[np.minimum(gap - 1 - at, n - 1)]
    weight = (0.5 - 0.5 * np.cos(np.pi * (at + 1) / (gap + 1)))[:, None]
    return np.moveaxis(np.concatenate([a, (1 - weight) * after + weight * before]), 0, axis)


def _resized(a: np.ndarray, shape: Any) -> np.ndarray:
    from skimage.transform import resize

    return resize(a, tuple(shape), order=1, anti_aliasing=True, mode="reflect")


def _cleaned(h: np.ndarray, faint: float) -> np.ndarray:
    """A PSF without what is negative, faint, or a small part by itself; its sum is one."""
    from scipy.ndimage import label, sum_labels

    h = np.maximum(h, 0)
    h = np.where(h < faint * h.max(), 0, h)
    parts, n = label(h > 0, np.ones((3, 3)))
    if n > 1:
        shares = sum_labels(h, parts, np.arange(n + 1)) / h.sum()
        h = np.where((shares >= min(_APART, shares.max()))[parts], h, 0)
    return unit_sum(h)


def _certain(h: np.ndarray, error: float) -> np.ndarray:
    """A PSF without what its error could be, and parts that nowhere stand out from it; its sum is one."""
    from scipy.ndimage import label, maximum

    h = np.maximum(h, 0)
    h = np.where(h < min(_CERTAIN * error, 0.5 * h.max()), 0, h)
    parts, n = label(h > 0, np.ones((3, 3)))
    if n > 1:
        tops = maximum(h, parts, np.arange(n + 1))
        h = np.where((tops >= min(_CERTAIN_PART * error, h.max()))[parts], h, 0)
    return unit_sum(h)


def _centred(h: np.ndarray) -> np.ndarray:
    """Its centre of gravity brought to the centre, to a pixel."""
    from scipy.ndimage import center_of_mass, shift

    by = [round((n - 1) / 2 - c) for n, c in zip(h.shape, center_of_mass(h), strict=True)]
    return unit_sum(shift(h, by, order=0)) if any(by) else h


def _aligned(h: np.ndarray, to: np.ndarray) -> tuple[np.ndarray, float]:
    """(h displaced by whole pixels to where it is most like another, its correlation with that)."""
    from scipy.ndimage import shift

    room = [2 * n for n in h.shape]
    correlation = scipy.fft.irfft2(scipy.fft.rfft2(h, room).conj() * scipy.fft.rfft2(to, room), room)
    at = np.unravel_index(correlation.argmax(), correlation.shape)
    by = [int(i) - n * (i > n // 2) for i, n in zip(at, room, strict=True)]
    return shift(h, by, order=0), float(correlation.max() / np.sqrt((h**2).sum() * (to**2).sum()))

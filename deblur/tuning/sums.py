"""The sums in the rules for the linear formula: residual, solution and influence at any λ.

They are exact if the blur has a spectral decomposition. `deblur.tuning.spectral` defines them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise, product

import numpy as np
import scipy

from .. import kernels
from ..device import Array, Device, asnumpy, blocks, cupy, get_xp, is_cupy
from ..norms import largest_bits
from ..operators.blur import Blur
from ..operators.operator import Operator
from ..operators.torus import Torus
from ..operators.varying import VaryingBlur
from ..problem import Problem
from ..solvers import cosine, fourier, kronecker, sine
from ..solvers.spectrum import Spectrum

Lambdas = float | np.ndarray  # one λ, or several; results have the same form
_EXACT = 1 << 15  # number of singular values above which they are gathered into bins
_BIN = 2e-2  # relative width of a bin
_LEAST = 1e-24  # ratio to the largest σ² below which all values share one bin
_DENSE = 24 * 24  # pixels up to which an SVD of the matrix is the cheapest decomposition
_TILE = 1024  # side of the tiles of a large picture, in pixels
_ROOM = 4  # least side of a tile, or of a part with its own PSF, in lengths of the PSF
# For a varying PSF: largest number of parts along each axis, and their least side in pixels.
_PARTS, _PART = 4, 64
#: Growth of ‖f_λ‖ over a decade of λ, relative to its least growth at larger λ, above which the model is wrong.
GROWTH = 1.1


@dataclass(frozen=True)
class FilterSums:
    """ρ, ξ and A as functions of λ, or of an array of λ: sums over two discrete measures.

    Intermediate results for an array of λ are kept until another array is requested.

    Attributes
    ----------
    values, power : (p,) arrays
        σ_i², and the power of the image at each of them, summed over frames.
    operator, counts : (q,) arrays
        σ_i², and the number of singular values at each of them, for one frame.
    frames : float
        Number of frames; not an integer if a part of each represents it.
    decomposition : str
        Origin of the sums, in words.
    """

    values: np.ndarray
    power: np.ndarray
    operator: np.ndarray
    counts: np.ndarray
    frames: float
    decomposition: str
    _kept: list[np.ndarray] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def top(self) -> float:
        """Largest σ²."""
        return float(self.operator.max())

    @property
    def pixels(self) -> float:
        """N, the number of pixels of all frames."""
        return float(self.counts.sum()) * self.frames

    def _left(self, lam: Lambdas) -> tuple[np.ndarray, np.ndarray]:
        """Return (λ/(σ² + λ))² for the image and λ/(σ² + λ) for the operator: a row for each λ, or one row."""
        if not self._kept or self._kept[0] is not lam:
            column = np.asarray(lam)[..., None]
            hidden = column / (self.values + column)
            free = hidden if self.operator is self.values else column / (self.operator + column)
            self._kept[:] = np.asarray(lam), hidden**2, free
        return self._kept[1], self._kept[2]

    def residual(self, lam: Lambdas) -> Lambdas:
        """Return ρ(λ)."""
        return self._left(lam)[0] @ self.power

    def solution(self, lam: Lambdas) -> Lambdas:
        """Return ξ(λ)."""
        return self._left(lam)[0] @ (self.values * self.power) / lam**2

    def influence(self, lam: float) -> float:
        """Return A(λ) for all frames together."""
        return self.frames * float((self.operator / (self.operator + lam)) @ self.counts)

    def implied_variance(self, lam: float) -> float:
        """Return the noise variance ρ/(N − A) that λ implies (Wahba, J. R. Stat. Soc. B 45 (1983))."""
        return float(self.residual(lam)) / max(self.pixels - self.influence(lam), np.finfo(float).tiny)

    def gcv(self, lam: Lambdas, floor: float = math.inf) -> Lambdas:
        """Return the GCV function N ρ/(N − A)², with sums weighted by 1/(1 + σ²/floor)."""
        residual, free, total = self._weighted(lam, floor)
        return residual * total / free**2  # `free` is N - A without cancellation at small λ

    def upre(self, lam: Lambdas, noise: float, floor: float = math.inf) -> Lambdas:
        """Return the unbiased risk estimate (ρ + 2 s² A − N s²)/N, with sums weighted by 1/(1 + σ²/floor)."""
        residual, free, total = self._weighted(lam, floor)
        return (residual + noise**2 * (total - 2 * free)) / self.pixels

    def _weighted(self, lam: Lambdas, floor: float) -> tuple[Lambdas, Lambdas, float]:
        """Return ρ, N − A and N, with sums weighted by 1/(1 + σ²/floor)."""
        hidden, free = self._left(lam)
        counts = self.frames * self.counts / (1 + self.operator / floor)
        return hidden @ (self.power / (1 + self.values / floor)), free @ counts, float(counts.sum())

    def amplified(self, lam: float, high: float) -> bool:
        """Return whether error dominates the scene at λ: its norm was constant and grows again as λ falls.

        A picture's components enter at large λ and decay with σ, so ‖f_λ‖ grows more and more slowly. A component of
        the image that no scene can cause is divided by ever smaller σ.
        """
        looks = np.geomspace(lam, max(high, lam), 1 + max(1, round(2 * math.log10(max(high / lam, 1)))))
        here, above = self.solution(looks), self.solution(10 * looks)
        growth = here / np.where(above > 0, above, 1.0)
        return bool(growth[0] > GROWTH**2 * growth.min())

    def balanced(self, lambdas: np.ndarray, beyond: float = 16.0, typical: bool = False) -> float:
        """Return the λ of least expected error ‖f_λ − f‖², for noise of any colour.

        Consider the power in an octave of σ², relative to that of a white scene; octaves are taken together until they
        have 64 values. It falls from octave to octave for a scene, and rises for noise. Where it exceeds `beyond` times
        its least value so far, it counts as noise in part; above 16 times, entirely. The octaves before have as much
        noise. If `typical`, the power is at first the median over eighths of an octave. A texture has its power in few
        eighths, but so has the error of a wrong boundary.
        """

        def by_octaves(s2: np.ndarray, of: np.ndarray) -> np.ndarray:
            """Return sums over eighths of octaves of σ² > 0, (81, 8), the largest first, for all frames."""
            eighths = 8 * np.log2(self.top / np.maximum(s2, 2.0**-80 * self.top))
            return self.frames * np.bincount(eighths.astype(int), of * (s2 > 0), 648).reshape(81, 8)

        counts = by_octaves(self.operator, self.counts)
        passed = by_octaves(self.operator, self.operator * self.counts)
        power = by_octaves(self.values, self.power / self.frames)
        count, starts = counts.sum(axis=1), [0]
        for octave in range(81):
            if min(count[starts[-1] : octave].sum(), count[octave:].sum()) >= 64:
                starts.append(octave)
        parts, passed, seen = (np.add.reduceat(x, starts)[1:] for x in (counts, passed, power))  # not the prior scene
        count, passed, power = (x.sum(axis=1) for x in (parts, passed, seen))
        shown = power
        if typical and self.operator is self.values:
            shown = count * np.nanmedian(seen / np.where(parts > 0, parts, np.nan), axis=1)
        scene = passed * np.minimum.accumulate(shown / passed)
        shown = np.where(shown > 16 * scene, power, shown)
        found = np.where(shown > beyond * scene, shown - scene, 0)
        before = count * np.maximum.accumulate((found / count)[::-1])[::-1]  # as much noise as in later octaves
        noise = np.minimum(np.maximum(before, found), power)
        s2, lam = passed / count, lambdas[:, None]
        error = (lam**2 * (power - noise) / s2 + s2 * noise) / (s2 + lam) ** 2
        return float(lambdas[np.argmin(error.sum(axis=1))])

    def curvature(self, lam: float) -> float:
        """Return the curvature of the L-curve (log √ρ, log √ξ) at λ, positive at a corner; derivatives are by log λ.

        For Tikhonov's f_λ, ρ′ = −λ ξ′, so ξ and its derivatives suffice.
        """
        d = self.values + lam
        part = self.values * self.power
        rho, xi = float(self.residual(lam)), float(part @ d**-2)
        slope = -2 * lam * float(part @ d**-3)
        bend = slope + 6 * lam**2 * float(part @ d**-4)
        x1, y1 = -lam * slope / rho / 2, slope / xi / 2
        x2 = (-lam * (slope + bend) / rho) / 2 - 2 * x1 * x1
        y2 = bend / xi / 2 - 2 * y1 * y1
        return (x1 * y2 - x2 * y1) / (x1 * x1 + y1 * y1) ** 1.5


def _gathered(s2: Array, power: Array, count: Array | None = None, roots: bool = False) -> tuple[np.ndarray, ...]:
    """Return σ², power and counts on the host; long lists in bins of relative width `_BIN`.

    Each entry represents `count` singular values, one by default. If `roots`, the arrays are those of σ and of the
    moduli of each frame's coefficients. On the host, float64 squares of a block at a time are enough.
    """

    def squared(s2: Array, power: Array) -> tuple[Array, Array]:
        return s2.astype(np.float64) ** (1 + roots), (power.astype(np.float64) ** (1 + roots)).sum(axis=0)

    shape, s2, power = s2.shape, s2.ravel(), power.reshape(-1, s2.size)
    if count is None and s2.size <= _EXACT:
        s2, power = squared(asnumpy(s2), asnumpy(power))
        order = np.argsort(-s2, kind="stable")
        return s2[order], power[order], np.ones(s2.size)
    count = None if count is None else get_xp(count).broadcast_to(count, shape).ravel()
    bins = int(math.log(1 / _LEAST) / _BIN)
    if is_cupy(s2):
        found = _binned_on_gpu(*squared(s2, power), count, bins)
    else:
        found, top = np.zeros((3, bins + 1)), float(s2.max()) ** (1 + roots)
        for at in blocks(s2.size, 1 << 13):
            values, powers = squared(s2[at], power[:, at])
            weights = np.ones(values.size) if count is None else count[at]
            where = np.log(np.maximum(values, top * _LEAST) * (1 / top)) * (-1 / _BIN)
            where = np.clip(where.astype(np.int64), 0, bins)
            found += [np.bincount(where, x, bins + 1) for x in (weights, weights * values, weights * powers)]
    counts, values, powers = found
    some = counts > 0
    return values[some] / counts[some], powers[some], counts[some]


def _binned_on_gpu(s2: Array, power: Array, count: Array | None, bins: int) -> np.ndarray:
    """Return, for each bin, sums of counts, counts times σ² and counts times power, (3, bins + 1): ``cuda/sums.cu``."""
    s2, power, count = (None if x is None else cupy.ascontiguousarray(x, np.float64) for x in (s2, power, count))
    out, threads = cupy.zeros((3, bins + 1), np.float64), kernels.Constants("sums").THREADS
    blocks = min(4 * kernels.properties(s2.device.id).multiprocessors, -(-s2.size // threads))
    kernels.launch(
        "sums", "binned", blocks, threads, out, bins, s2, power, count, s2.size, largest_bits(s2).view(np.float64),
        _LEAST, _BIN, dtype=np.float64,
    )  # fmt: skip
    return out.get()


def _decomposition(operator: Operator, g: Array) -> tuple[Spectrum, str, Array] | None:
    """Return the spectrum of the operator, its name in words and the frames, or None.

    Pieces stand for frames with an axis that takes too long to decompose.
    """
    blur, device = operator.shift_invariant, Device.of(g)
    if blur is None:
        return None
    problem = Problem(blur, 1.0, dtype=np.dtype(g.dtype), device=device)
    for module, name in (
        (fourier, "the Fourier transform"),
        (cosine, "the cosine transform"),
        (sine, "the sine transform"),
        (kronecker, "the singular values of the separable blur"),
    ):
        # "antireflect" is diagonal in a basis that is not orthogonal, so it has no singular values.
        served = module is not sine or blur.boundary.transform == "sine"
        long = module is kronecker and blur.elongated
        # A piece has no edge of the image, and many pixels of a narrow image depend on its edges.
        served = served and (not long or blur.boundary.open or blur.psf.ndim == 1)
        if served and module.refuses(problem) is None:
            if long:
                blur, g = _pieces(blur, g)
                name += ", in pieces" if blur.image_shape != operator.image_shape else ""
            return module.decompose(blur, problem.dtype, device), name, g
    return None


def _pieces(blur: Blur, g: Array) -> tuple[Blur, Array]:
    """Return equal pieces of frames (k, *space) along their long axes, as frames, and their blur."""
    counts = [max(n // max(1000, 2 * m), 1) for n, m in zip(blur.image_shape, blur.psf.shape, strict=True)]
    sides = [n // count for n, count in zip(blur.image_shape, counts, strict=True)]
    for axis, (side, count) in enumerate(zip(sides, counts, strict=True), 1):
        parts = [(slice(None),) * axis + (slice(i * side, (i + 1) * side),) for i in range(count)]
        g = get_xp(g).concatenate([g[part] for part in parts])
    return Blur(blur.psf, sides, "unknown" if max(counts) > 1 else blur.boundary, origin=blur.origin), g


def exact_sums(operator: Operator, g: Array) -> FilterSums | None:
    """Return the sums of an operator with an affordable decomposition, else None."""
    if (found := _decomposition(operator, g)) is not None:
        spectrum, name, g = found
        s = spectrum.singular_values
        # On the host, one frame after the other takes less memory.
        c = spectrum.coefficients(g) if is_cupy(g) else reduce(np.hypot, map(spectrum.coefficients, g[:, None]))
    elif (blur := operator.shift_invariant) is not None and g[0].size <= _DENSE:
        u, s, _ = np.linalg.svd(blur.to_dense(), full_matrices=False)
        c, name = asnumpy(g).reshape(len(g), -1).astype(np.float64) @ u, "the singular values of the matrix"
    else:
        return None
    values, power, counts = _gathered(s, c, roots=True)
    return FilterSums(values, power, values, counts, len(g), name)


def spectral_sums(blur: Blur, left: Iterable[Array], *others: Blur) -> list[FilterSums]:
    """Return the sums of a blur away from its boundary, from the power spectrum of images less H times a prior scene.

    Away from the edges, the blur is a product in frequency. A taper removes the edges, and with them the jump from one
    edge of the picture to the opposite one, which would dominate all frequencies. The taper's leakage decreases with
    its width relative to the PSF. Large pictures are cut into tiles that overlap by their tapers (P. D. Welch, IEEE
    Trans. Audio Electroacoust. 15 (1967) 70-73). It costs one transform of the images.

    Parameters
    ----------
    blur : Blur
    left : iterable of (M, N) arrays
        The residuals g − H f̄; for an image itself, the taper would spread the mean over all frequencies.
    *others : Blur
        Blurs by hardly larger PSFs, whose sums are computed from the same spectrum.

    Returns
    -------
    list of FilterSums
        The sums of each blur; empty for images too small for the PSF.
    """
    if any(n < _ROOM * m for n, m in zip(blur.image_shape, blur.psf.shape, strict=True)):
        return []
    tapers, starts = zip(*map(_tiles, blur.image_shape, blur.psf.shape), strict=True)
    places = [*product(*starts)]
    shape = tuple(map(len, tapers))
    frames = 0
    power: Array = 0.0
    for image in left:
        frames += 1
        torus, xp = Torus(shape, Device.of(image)), get_xp(image)
        taper = reduce(xp.multiply.outer, map(xp.asarray, tapers)).astype(image.dtype)
        for place in places:
            tile = image[tuple(slice(a, a + n) for a, n in zip(place, shape, strict=True))]
            spectrum = torus.analyse(tile * taper, True)
            power = power + (spectrum.real**2 + spectrum.imag**2)
    # The tiles represent all pixels, so that norms are those of the images.
    share = math.prod(blur.image_shape) / math.prod(shape)
    tiles, weight = len(places), math.prod(float((t**2).sum()) for t in tapers)
    power = power * (share / (tiles * weight))
    # Most frequencies also represent their conjugates.
    twice = torus.device.xp.asarray(2.0 - (2 * np.arange(power.shape[-1]) % shape[-1] == 0))
    seen = "the tapered picture" if tiles == 1 else f"{tiles} tapered tiles of the picture"
    found = []
    for one in (blur, *others):
        values, powers, counts = _gathered(torus.power(one.psf), power, twice)
        found.append(FilterSums(values, powers, values, counts, share * frames, f"the spectrum of {seen}"))
    return found


def local_sums(operator: Operator, left: Iterable[Array]) -> list[FilterSums]:
    """Return `spectral_sums` of a varying PSF: of parts of the frame, each with the PSF at its centre.

    The result is empty if too few parts would be large enough for the PSF.
    """
    if not isinstance(operator, VaryingBlur):
        return []
    shape, psf = operator.image_shape, operator.mean_blur.psf.shape
    most = _PARTS if operator.terms > 1 else 1
    parts = [min(most, n // max(_ROOM * m, _PART)) for n, m in zip(shape, psf, strict=True)]
    if min(parts) < min(most, 2):
        return []
    cuts = [np.rint(np.linspace(0, n, k + 1)).astype(int) for n, k in zip(shape, parts, strict=True)]
    (rows, cols), images = ([slice(*pair) for pair in pairwise(cut)] for cut in cuts), list(left)
    colours = operator.channels or 1
    found = []
    for at in product(rows, cols):
        space = at[0].stop - at[0].start, at[1].stop - at[1].start
        middle = [(part.start + part.stop - 1) / 2 for part in at]
        psfs = operator.psf_at(*middle).reshape(colours, *psf)
        for colour, h in enumerate(psfs):
            blur = Blur(h, space, "unknown", origin=operator.mean_blur.origin)
            found += spectral_sums(blur, [image[at] for image in images[colour::colours]])
    frames = len(images) / colours
    values, power = (np.concatenate(list(x)) for x in zip(*((s.values, s.power) for s in found), strict=True))
    counts = np.concatenate([s.counts * (s.frames / frames) for s in found])
    words = f"the spectra of {len(rows) * len(cols)} parts of the picture, each with the PSF in its middle"
    return [FilterSums(values, power, values, counts, frames, words)]


def _tiles(n: int, m: int) -> tuple[np.ndarray, list[int]]:
    """Return the taper of tiles along an axis of n pixels, for a PSF of m, and the tiles' first pixels."""
    if n < 1.5 * _TILE:  # one tile in the middle, of a length with a fast transform
        length = next(k for k in range(n, 0, -1) if scipy.fft.next_fast_len(k, real=True) == k)
        starts = [(n - length) // 2]
    else:
        length = scipy.fft.next_fast_len(max(_TILE, min(2 * _ROOM * m, n)), real=True)
        length = min(length, n)
        starts = np.rint(np.linspace(0, n - length, 1 - (n - length) // (m - 1 - length))).astype(int).tolist()
    # The depth of the taper is large relative to the PSF, and small relative to the picture.
    taper, edge = np.ones(length), max(m - 1, min(4 * (m - 1), length // 4))
    rise = np.sin(np.pi / 2 * (np.arange(edge) + 0.5) / max(edge, 1)) ** 2
    taper[:edge], taper[length - edge :] = rise, rise[::-1]
    return taper, starts

"""Detection of the boundary: the one under which the border of the picture is most likely.

The border is cut into blocks along each edge, W pixels deep. A block is tapered and transformed along the edge. At each
of its K lowest frequencies, the result is a line across the edge, y = H f + n, where H is the small matrix of the PSF,
transformed likewise and continued as the boundary says. The scene is only assumed to have a spectrum that falls as
1/|ω|², as that of photographs does: the covariance along such a line is S = exp(−κ|x − x'|)/2κ, where κ is the
frequency along the edge. The evidence of a boundary is the likelihood of all blocks, each with its own contrast,

    −n Σ log(yᴴ(HSHᴴ + λI)⁻¹y) − Σ log det(HSHᴴ + λI) ,

at the λ that maximises it (the generalised maximum likelihood of [1]_). It counts what a boundary leaves unexplained
and also what it leaves undetermined, so the more specific boundary is preferred if it is correct:

``zero``
    f is 0 beyond the edge, and the border is as dark as H makes it.
``periodic``
    The opposite edge follows each edge; both borders are one line, and the scene may jump where they meet.
``reflect``
    f is mirrored at the edge.
``unknown``
    f continues with the same statistics, and nothing else is known of it.

For a volume, the sums along each axis are pictures, which are examined. An edge belongs to two of them and counts by
half in each. A line has only two ends, which contain too little information.

No product with the whole picture is formed. ``benchmarks/bench_boundary.py`` measures how often the result is correct.

References
----------
.. [1] G. Wahba, Ann. Statist. 13 (1985) 1378-1402.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..device import Array, asnumpy, get_xp
from ..norms import contiguous
from ..operators.blur import Blur
from ..operators.boundary import BOUNDARIES, Boundary
from ..solvers.start import DIM, filled
from ..threads import all_cores

#: The boundaries that are detected, and by how much the logarithm of their evidence must exceed that of "unknown", the
#: safe answer. A mirrored scene cannot be distinguished from one that is smooth at its edge, and a wrong "reflect"
#: costs more than a correct one gains.
CLEARLY = {"zero": 5.0, "periodic": 5.0}
SAFE = "unknown"
#: By how much the evidence of "unknown" must exceed that of a named boundary for a warning, and for which boundaries.
AGAINST = 100.0
TESTED = ("zero", "periodic", "reflect")

_DEEP = 16  # W
_FREQUENCIES = 6  # K
_BLOCK = 32  # least length of a block along the edge, in pixels; it also has at least four times the PSF's
_LAMBDAS = 10.0 ** np.arange(-6, 3)  # for a PSF with sum one; at the last value all is noise
_FLAT = 1e-6  # least deviation of a block that is used, over the largest value


def find_boundary(
    blur: Blur, g: Array, weights: Array | None = None, among: tuple[str, ...] = (*CLEARLY, SAFE)
) -> tuple[str, str, float]:
    """Return the boundary of a picture, the reason, and the logarithm of its evidence over that of "unknown".

    The result is "unknown" unless another boundary explains the border clearly better.

    Parameters
    ----------
    blur : Blur
        The PSF and the size of the image; its boundary is not used.
    g : (k, c, M, N) or (k, c, L, M, N) array
        The frames, without background. NumPy or CuPy; only their border is copied to the host.
    weights : array that broadcasts to `g`, optional
        0 at hidden pixels.
    among : tuple of str
        The boundaries to choose from. Without "unknown", the one with the most evidence is returned.
    """
    found = evidence(blur, g, weights, among)
    if not found:
        name = SAFE if SAFE in among else among[0]
        return name, "the border of the picture is uninformative, and the boundary changes nothing", 0.0
    others = {name: value for name, value in found.items() if name != SAFE}
    said = f"log evidence over 'unknown': {', '.join(f'{name} {value:+.0f}' for name, value in others.items())}"
    best = max(others, key=others.__getitem__)
    if SAFE not in among:
        those = "the only possible one" if len(among) == 1 else f"the best of {', '.join(among)}"
        return best, f"{those}, by the border of the picture ({said})", found[best]
    clear = {name: value for name, value in others.items() if value > CLEARLY.get(name, np.inf)}
    if not clear:
        return SAFE, f"detected: no other boundary explains the border of the picture clearly better ({said})", 0.0
    best = max(clear, key=clear.__getitem__)
    return best, f"detected: it explains the border of the picture best ({said})", found[best]


@all_cores()
def evidence(
    blur: Blur, g: Array, weights: Array | None = None, among: tuple[str, ...] = (*CLEARLY, SAFE)
) -> dict[str, float]:
    """Return the logarithm of each boundary's evidence over that of "unknown"; empty if the border is uninformative.

    See `find_boundary` for the parameters.
    """
    if blur.psf.ndim == 3:
        each = []
        for axis in range(3):
            shape, origin = ([*sizes[:axis], *sizes[axis + 1 :]] for sizes in (blur.image_shape, blur.origin))
            shown = None if weights is None else get_xp(g).broadcast_to(weights > 0, g.shape).all(axis - 3)
            each.append(evidence(Blur(blur.psf.sum(axis), shape, origin=origin), g.sum(axis - 3), shown, among))
        return {name: sum(one.get(name, 0.0) for one in each) / 2 for name in (*among, SAFE) if any(each)}
    total = {name: np.zeros((2, len(_LAMBDAS))) for name in (*among, SAFE)}
    seen = False
    frames = g.reshape(-1, *blur.image_shape)
    shown = None if weights is None else get_xp(g).broadcast_to(weights > 0, g.shape).reshape(frames.shape)
    for axis in (0, 1):
        if blur.psf.shape[axis] == 1 or blur.image_shape[axis] < 2:
            continue  # no light comes in from beyond these edges
        border = _Border(blur, frames, shown, axis)
        if border.blocks:
            seen = True
            for name in total:
                total[name] = total[name] + border.likelihood(BOUNDARIES[name])
    most = {name: e.max(axis=1) for name, e in total.items()}
    safe = most[SAFE][0]
    return {name: float(its - max(safe, chance)) for name, (its, chance) in most.items()} if seen else {}


class _Border:
    """Two opposite edges of a picture: their lines, and the PSF's action on them."""

    def __init__(self, blur: Blur, frames: Array, shown: Array | None, axis: int) -> None:
        h, origin = np.moveaxis(blur.psf / blur.norm_bound, axis, 1), blur.origin[axis]
        side, across = blur.image_shape[1 - axis], blur.image_shape[axis]
        length = side // max(1, side // max(_BLOCK, 4 * len(h)))
        self._deep = min(_DEEP, across // 2)
        waves = np.arange(min(_FREQUENCIES, length // 2 + 1))
        # The arguments of `_model` at both ends: from the far one, the PSF is reversed.
        ways = (h, origin), (h[:, ::-1], h.shape[1] - 1 - origin)
        self._ends = [(psf.tobytes(), len(h), at, length, len(waves), self._deep) for psf, at in ways]
        self._shares = np.where(waves == 0, 0.5, 1.0)  # the first frequency is real, the others have two parts
        taper = np.sin(np.pi / length * (np.arange(length) + 0.5)) ** 2
        taper /= np.linalg.norm(taper)

        ends = np.stack([self._blocks(x, length) for x in _ends(frames, axis, self._deep)])
        ends /= max(float(frames.max()), -float(frames.min())) or 1.0
        some = np.ptp(ends, axis=(0, 2, 3)) > _FLAT
        if shown is not None:
            visible = np.stack([self._blocks(x, length) for x in _ends(shown, axis, self._deep)])
            some &= (visible.mean(axis=(2, 3)) >= 0.75).all(axis=0)
            ends = filled(ends, visible)
        self.blocks = int(some.sum())
        if not self.blocks:
            return
        ends = ends[:, some]
        # The scene's brightness there, from the image where the border is not dark.
        inner = np.median(ends[..., self._deep // 2 :], axis=(0, 2, 3))
        self._bright = h.sum()
        level = inner / self._bright if abs(self._bright) > DIM else 0 * inner
        self._level = np.fft.fft(taper)[: len(waves), None] * level
        # (frequencies, pixels from the edge inwards, blocks)
        waves_of = np.fft.fft(ends * taper[:, None], axis=2)[:, :, : len(waves)]
        self._near, self._far = waves_of.transpose(0, 2, 3, 1)
        self._turn = np.exp(2j * np.pi / length * waves)

    def _blocks(self, strip: np.ndarray, length: int) -> np.ndarray:
        """Cut a strip (frames, pixels along the edge, pixels across) into blocks (blocks, length, pixels across).

        If there are few blocks, they overlap by half, since the taper hides about half of each.
        """
        step = length if strip.shape[1] >= 8 * length else max(1, length // 2)
        windows = np.lib.stride_tricks.sliding_window_view(strip, length, axis=1)[:, ::step]
        return windows.swapaxes(2, 3).reshape(-1, length, strip.shape[2])

    def likelihood(self, edge: Boundary) -> np.ndarray:
        """Return the log likelihood at each λ, (2, λ): of the boundary, and of a chance resemblance to it.

        By chance, a scene may fade towards the edge though its level does not, or may be alike at opposite edges, one
        of them reversed. The second row is minus infinity if the boundary has no such resemblance.
        """
        ends, level = [], self._level[:, None]
        if edge.wraps:
            turned = self._turn[:, None, None] * self._far[..., ::-1].conj()
            *model, ones = _model(*self._ends[0], edge)
            lines = [np.concatenate([far[:, ::-1], self._near], axis=1) for far in (self._far, turned)]
            ends = [(model, [line - ones[:, None] * level for line in lines])]
        else:
            for y, end in zip((self._near, self._far), self._ends, strict=True):
                *model, ones = _model(*end, edge)
                means = (ones, np.full_like(ones, self._bright))[: 2 if edge.dark else 1]
                ends.append((model, [y - mean[:, None] * level for mean in means]))
        power, volume, n = 0.0, 0.0, 0.0
        for (values, vectors), lines in ends:
            values = np.maximum(values, 0) + _LAMBDAS[:, None, None]  # (λ, frequencies, pixels)
            white = abs(vectors.conj().swapaxes(1, 2) @ np.concatenate(lines, axis=2)) ** 2
            weights = (self._shares[:, None] / values).reshape(len(_LAMBDAS), -1)
            power = power + weights @ white.reshape(weights.shape[1], -1)  # (λ, hypotheses x blocks)
            volume = volume + np.log(values).sum(axis=2) @ self._shares
            n += self._shares.sum() * vectors.shape[1]
        out = np.full((2, len(_LAMBDAS)), -np.inf)
        for way, part in enumerate(np.split(np.log(power + n * _FLAT**2), len(lines), axis=1)):
            out[way] = -n * part.sum(axis=1) - self.blocks * volume
        return out


@lru_cache(maxsize=16)  # a symmetric PSF has the same models at all four edges
def _model(
    psf: bytes, rows: int, origin: int, length: int, count: int, deep: int, edge: Boundary
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the eigenvalues and eigenvectors of HSHᴴ of a line at each of `count` frequencies, and H of ones; cached.

    A scene that repeats has both ends in one line.
    """
    h, waves = np.frombuffer(psf).reshape(rows, -1), np.arange(count)
    kernels = np.exp(-2j * np.pi / length * np.outer(waves, np.arange(rows))) @ h
    kappa = 2 * np.pi / length * np.hypot(waves, 0.5)[:, None, None]
    m, pixels = h.shape[1], deep * (1 + edge.wraps)
    lines = np.zeros((len(kernels), pixels, pixels + m - 1), complex)
    for i in range(pixels):
        lines[:, i, i : i + m] = kernels[:, ::-1]
    first = origin - (m - 1)  # the first scene pixel that H reaches, counted from the edge
    if not (edge.open or edge.wraps):
        lines = lines @ edge.matrix(pixels + m, first, first + lines.shape[2]).toarray()
    at = np.arange(lines.shape[2])
    scene = np.exp(-kappa * abs(at[:, None] - at)) / (2 * kappa)
    if edge.wraps:
        inside = at + first >= deep
        scene *= inside[:, None] == inside
    return (*np.linalg.eigh(lines @ scene @ lines.conj().swapaxes(1, 2)), lines[0].real.sum(axis=1))


def _ends(frames: Array, axis: int, deep: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last pixels along an axis, on the host: (frames, along the edge, from the edge inwards)."""
    x = frames.swapaxes(1, 2) if axis == 0 else frames
    near, far = (asnumpy(contiguous(part)).astype(np.float64) for part in (x[..., :deep], x[..., -deep:]))
    return near, far[..., ::-1]

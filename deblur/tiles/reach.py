"""How far a pixel's influence reaches, told from PSF and λ by one FFT.

Far from every edge the restored scene is a convolution of the image with one kernel,

    k = F⁻¹[ conj(ĥ) / (|ĥ|² + λ|l̂|²) ] ,

l̂ the symbol of the penalty's differences (one for the linear formula). A tile that sees d pixels beyond its edge is
wrong by what k brings in from beyond them: Σ k(x − y) δ(y) over the pixels y outside its window, δ being what the
window's own continuation puts in the place of the picture. Two numbers follow from k alone:

- its L1 tail, Σ|k| beyond d, times the picture's range bounds the error of a tile inside the picture, because δ is
  never larger than the range;
- its L2 tail, √(Σ k²) beyond d, is proportional to the error that is met: δ has many signs. `SHARP` is the factor.

How fast the tails fall is decided by the places where |ĥ|² comes near λ or below, and not by the size of the PSF. The
prior of the linear formula changes only what is smooth, and the tail not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..operators.torus import Torus
from ..terms import DIFFERENCES, PENALTIES

#: The largest error at a seam, as a part of the picture's range, is below this many L2 tails:
#: benchmarks/bench_tiles.py, which fits it on some PSFs and pictures and checks it on others.
SHARP = 3.0
#: And the root of its mean square next to the seam.
SHARP_RMS = 0.25
#: Side of the torus on which the kernel is computed: the next is taken where the first shows too little of it. A tail
#: is read off a quarter of the side, where what comes round the torus does not count yet.
_SIDES = (512, 2048, 4096, 8192)
_SIDES_SQUARE = (512, 2048, 4096)
_ACROSS = 512  # enough across the direction of a long torus: frequencies there are samples of an integral


@dataclass(frozen=True)
class Reach:
    """The tails of the kernel along one axis; index d of an array is what lies further than d pixels away.

    Attributes
    ----------
    before, after : (n,) arrays
        Σ|k| on either side; a bound only of a square torus.
    energy : (n,) array
        √(Σ k²) of the worse side.
    total : float
        √(Σ k²) of the whole kernel: what white noise of deviation one becomes.
    top : float
        max |k̂|, by which rounding is amplified at most.
    """

    before: np.ndarray
    after: np.ndarray
    energy: np.ndarray
    total: float
    top: float

    def bound(self, tile: int, overlap: int) -> float:
        """The largest sum of |k| outside the window that a pixel of the tile can have along this axis."""
        last = len(self.before) - 1
        at = np.minimum(overlap + np.arange(min(tile, last)), last)
        return float((self.before[at] + self.after[np.minimum(2 * overlap + tile - 1 - at, last)]).max())


def multiplier(
    torus: Torus, psf: np.ndarray, origin: Sequence[int], lam: float, penalty: str = "identity"
) -> np.ndarray:
    """k on half of the frequencies of a torus: complex128, on the torus's device.

    Raises
    ------
    ValueError
        If λ is 0 where the PSF's spectrum is, too.
    """
    xp = torus.device.xp
    h = torus.spectrum(psf, origin)
    power = h.real**2 + h.imag**2
    if penalty == "identity":
        power += lam
    else:
        steps = [4 * xp.sin(np.pi * xp.arange(n) / n) ** 2 for n in torus.lengths]
        rows, cols = steps[0][:, None], steps[1][None, : torus.lengths[1] // 2 + 1]
        [quadratic] = PENALTIES[penalty]
        power += lam * sum(d.symbol(rows, cols) for d in DIFFERENCES[quadratic.differences])
    if not float(power.min()) > np.finfo(np.float64).eps * float(power.max()):
        raise ValueError(
            f"with λ = {lam:g} the influence of a pixel has no end: the PSF takes some frequencies away altogether; "
            "give a larger λ, such as 1e-4"
        )
    h = h.conj()
    h /= power
    return h


def _tails(
    psf: np.ndarray, origin: Sequence[int], lam: float, penalty: str, axis: int, along: int, across: int
) -> Reach:
    lengths = (along, across) if axis == 0 else (across, along)
    torus = Torus(lengths)
    # A PSF longer than the torus wraps round it, as k itself does.
    folded = np.zeros([min(m, n) for m, n in zip(psf.shape, lengths, strict=True)])
    np.add.at(
        folded, tuple(np.ix_(*(np.arange(m) % n for m, n in zip(psf.shape, lengths, strict=True)))), psf
    )
    spectrum = multiplier(torus, folded, [o % n for o, n in zip(origin, lengths, strict=True)], lam, penalty)
    top = float(abs(spectrum).max())
    k = np.moveaxis(torus.synthesise(spectrum, overwrite=True), axis, 0)
    half = along // 2

    def beyond(lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums further than d = 0, 1, ... to the left and to the right."""
        right, left = lines[1:half], lines[:half:-1]
        return tuple(np.append(np.cumsum(side[::-1])[::-1], 0.0) for side in (left, right))  # type: ignore[return-value]

    squares = np.einsum("ij,ij->i", k, k)
    before, after = beyond(abs(k).sum(axis=1))
    return Reach(before, after, np.sqrt(np.maximum(*beyond(squares))), float(np.sqrt(squares.sum())), top)


def reach(
    psf: np.ndarray, origin: Sequence[int], lam: float, penalty: str, axis: int, least: float, *, safe: bool
) -> Reach:
    """The kernel's tails along an axis, as far out as where they fall below `least`.

    They may not fall so far within the largest torus; then the arrays end before.

    Parameters
    ----------
    psf : (m, n) ndarray
    origin : (int, int)
    lam : float
    penalty : str
    axis : {0, 1}
    least : float
        Of the L2 tail, or of the L1 tail if `safe`.
    safe : bool
        Take a square torus, on which the L1 tail is a bound.
    """
    for along in _SIDES_SQUARE if safe else _SIDES:
        if along < 2 * psf.shape[axis]:
            continue
        across = along if safe else min(along, max(_ACROSS, 2 * psf.shape[1 - axis]))
        tails = _tails(psf, origin, lam, penalty, axis, along, across)
        quarter = along // 4
        measure = np.maximum(tails.before, tails.after) if safe else tails.energy
        if measure[quarter] <= least:
            break
    kept = slice(quarter + 1)
    return replace(tails, before=tails.before[kept], after=tails.after[kept], energy=tails.energy[kept])

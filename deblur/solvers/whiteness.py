"""How white a residual is: by its power in frequency, and by its autocorrelation.

Both are the sum of the squared autocorrelation over the squared variance. `spectral_whiteness` takes it round the
image, lag zero included, by Parseval's theorem: one transform an iteration of Richardson-Lucy, which compares
iterates of one image. `whiteness` compares solutions whose images may be masked: lags that wrap round or meet hidden
pixels would mislead it, so it transforms twice the size and weighs each lag by the pairs it has.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, get_fft, get_xp


def spectral_whiteness(residual: Array) -> float:
    """n Σ|R|⁴/(Σ|R|²)² of a residual's n frequencies but the zeroth: 2 for white noise, n/2 for one wave.

    Parameters
    ----------
    residual : (M, N) or (c, M, N) array
        The mean over channels is returned.
    """
    xp = get_xp(residual)
    power = abs(get_fft(xp).rfft2(residual.astype(np.float64))) ** 2
    power[..., 0, 0] = 0
    # The half spectrum: columns other than the first and, for even widths, the last stand for two.
    n = residual.shape[-1]
    twice = xp.full(power.shape[-1], 2.0)
    twice[0] = 1
    if n % 2 == 0:
        twice[-1] = 1
    count = residual.shape[-2] * n - 1
    first, second = (power * twice).sum(axis=(-2, -1)), (power * power * twice).sum(axis=(-2, -1))
    return float((count * second / xp.maximum(first * first, np.finfo(np.float64).tiny)).mean())


def whiteness(e: Array, visible: Array | None = None) -> float:
    """The power of the normalised autocorrelation of `e` away from lag zero, times the pixels; about 1 for white noise.

    Parameters
    ----------
    e : (..., M, N) array
        Residuals; frames are judged one by one and averaged.
    visible : array that broadcasts to `e`, optional
        1 where `e` counts, 0 elsewhere.

    Returns
    -------
    float

    Notes
    -----
    Lags up to half the image each way. Where pixels are hidden each lag is divided by the pairs it has.
    """
    xp = get_xp(e)
    fft = get_fft(xp)
    m, n = e.shape[-2:]
    w = xp.ones(e.shape, e.dtype) if visible is None else xp.broadcast_to(visible, e.shape).astype(e.dtype)
    e, w = e.reshape(-1, m, n), w.reshape(-1, m, n)
    count = w.sum(axis=(-2, -1), keepdims=True, dtype=np.float64)
    e = w * (e - (w * e).sum(axis=(-2, -1), keepdims=True, dtype=np.float64) / count)
    shape = (2 * m, 2 * n)

    def correlated(x: Array) -> Array:
        full = fft.irfft2(abs(fft.rfft2(x, s=shape)) ** 2, s=shape)
        rows = xp.concatenate([full[..., : m // 2 + 1, :], full[..., -(m // 2) :, :]], axis=-2)
        return xp.concatenate([rows[..., : n // 2 + 1], rows[..., -(n // 2) :]], axis=-1)

    pairs = xp.maximum(correlated(w), 1)
    variance = (e**2).sum(axis=(-2, -1), keepdims=True, dtype=np.float64) / count
    # A lag of p pairs has variance 1/p in white noise; weighting by p gives every lag the same.
    power = (correlated(e) / xp.where(variance > 0, variance, 1)) ** 2 / pairs
    power = power.reshape(len(e), -1)
    return float((power[:, 1:].sum(axis=-1, dtype=np.float64) / (power.shape[1] - 1)).mean())

"""How white a residual is: the power of its autocorrelation away from lag zero, where nothing is correlated in noise.

Solutions are compared whose images may be masked: lags that wrap round or meet hidden pixels would mislead it, so it
transforms twice the size and weighs each lag by the pairs it has.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, get_fft, get_xp
from ..norms import totals


def whiteness(e: Array, visible: Array | None = None) -> float:
    """The power of the normalised autocorrelation of `e` away from lag zero, times the pixels; about 1 for white noise.

    Parameters
    ----------
    e : (..., M, N) array
        Residuals; the values of the frames are averaged.
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
    count = totals(w)[:, None, None]
    e = w * (e - totals(w * e)[:, None, None] / count)
    shape = (2 * m, 2 * n)

    def correlated(x: Array) -> Array:
        full = fft.irfft2(abs(fft.rfft2(x, s=shape)) ** 2, s=shape)
        rows = xp.concatenate([full[..., : m // 2 + 1, :], full[..., -(m // 2) :, :]], axis=-2)
        return xp.concatenate([rows[..., : n // 2 + 1], rows[..., -(n // 2) :]], axis=-1)

    pairs = xp.maximum(correlated(w), 1)
    variance = totals(e**2)[:, None, None] / count
    # A lag of p pairs has variance 1/p in white noise; weighting by p gives every lag the same.
    power = (correlated(e) / xp.where(variance > 0, variance, 1)) ** 2 / pairs
    power = power.reshape(len(e), -1)
    return float((power[:, 1:].sum(axis=-1, dtype=np.float64) / (power.shape[1] - 1)).mean())

"""How white a residual is: the power of its autocorrelation away from lag zero, where nothing is correlated in noise.

Solutions are compared whose images may be masked: lags that wrap round or meet hidden pixels would mislead it, so it
transforms twice the size and weighs each lag by the pairs it has.
"""

from __future__ import annotations

import numpy as np

from ..device import Array, Device, get_xp
from ..norms import totals
from ..operators.torus import Torus


def whiteness(e: Array, visible: Array | None = None, axes: int = 2) -> float:
    """The power of the normalised autocorrelation of `e` away from lag zero, times the pixels; about 1 for white noise.

    Parameters
    ----------
    e : (..., M, N) array
        Residuals; the values of the frames are averaged.
    visible : array that broadcasts to `e`, optional
        1 where `e` counts, 0 elsewhere.
    axes : int
        Of space, the last ones.

    Returns
    -------
    float

    Notes
    -----
    Lags up to half the image each way. Where pixels are hidden each lag is divided by the pairs it has.
    """
    xp = get_xp(e)
    space = e.shape[-axes:]
    torus, one = Torus([2 * n for n in space], Device.of(e)), (1,) * len(space)
    w = xp.ones(e.shape, e.dtype) if visible is None else xp.broadcast_to(visible, e.shape).astype(e.dtype)
    e, w = e.reshape(-1, *space), w.reshape(-1, *space)
    count = totals(w).reshape(-1, *one)
    e = w * (e - totals(w * e).reshape(-1, *one) / count)

    def correlated(x: Array) -> Array:
        found = torus.synthesise(abs(torus.analyse(x)) ** 2)
        for axis, n in enumerate(space, 1):
            lags = xp.concatenate([xp.arange(n // 2 + 1), xp.arange(2 * n - n // 2, 2 * n)])
            found = found.take(lags, axis)
        return found

    pairs = xp.maximum(correlated(w), 1)
    variance = totals(e**2).reshape(-1, *one) / count
    # A lag of p pairs has variance 1/p in white noise; weighting by p gives every lag the same.
    power = (correlated(e) / xp.where(variance > 0, variance, 1)) ** 2 / pairs
    power = power.reshape(len(e), -1)
    return float((power[:, 1:].sum(axis=-1, dtype=np.float64) / (power.shape[1] - 1)).mean())

"""Sums over a spectrum in bins, on the GPU: the launch of ``cuda/sums.cu``."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..device import Array
from ..norms import largest_bits

_BLOCKS = 4  # of a launch, on each multiprocessor


def binned(s2: Array, power: Array, count: Array | None, least: float, width: float, bins: int) -> np.ndarray:
    """Sums of the counts, of counts times σ² and times power, in each bin: (3, bins + 1), on the host.

    Parameters
    ----------
    s2, power : arrays of one size
    count : array, optional
        By default every entry counts once.
    least : float
        Over the largest σ²: what is smaller lies in the last bin.
    width : float
        Of a bin, in logarithms.
    bins : int
    """
    import cupy

    s2, power, count = (
        None if x is None else cupy.ascontiguousarray(x, np.float64) for x in (s2, power, count)
    )
    out = cupy.zeros((3, bins + 1), np.float64)
    threads = kernels.Constants("sums").THREADS
    most = _BLOCKS * kernels.properties(s2.device.id).multiprocessors
    kernels.launch(
        "sums", "binned", min(most, -(-s2.size // threads)), threads, out, bins, s2, power, count, s2.size,
        largest_bits(s2).view(np.float64), least, width, dtype=np.float64,
    )  # fmt: skip
    return out.get()

"""The values of penalties on the GPU: the launches of ``cuda/terms.cu``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import kernels
from .device import Array

_AT = kernels.Constants("terms")
_BLOCKS = 4  # of a launch, on each multiprocessor

#: The numbers of norms and kinds of differences that ``cuda/differences.cuh`` knows.
NORMS = {"square": _AT.SQUARE, "absolute": _AT.ABSOLUTE, "vector": _AT.VECTOR_NORM}
KINDS = {"identity": 1, "gradient": 2, "hessian": 3}


def values(scene: Array, penalties: Sequence[tuple[str, str]], wrap: bool) -> list[float]:
    """The sums over all pixels of scenes (k, c, P, Q), for differences and norms as `deblur.terms.Penalty` has them."""
    import cupy

    scene = cupy.ascontiguousarray(scene)
    most = _BLOCKS * kernels.properties(scene.device.id).multiprocessors
    blocks = max(1, min(most, -(-math.prod(scene.shape[2:]) * len(scene) // _AT.THREADS)))
    count = len(penalties)
    room = cupy.zeros(2 * count, np.float64)  # the sums, and behind them tickets, which begin at zero
    out, tickets = room[:count], room[count:].view(np.uint32)
    for i, (kind, norm) in enumerate(penalties):
        kernels.launch(
            "terms", "value", blocks, _AT.THREADS, scene, *scene.shape, KINDS[kind], NORMS[norm], wrap,
            out[i : i + 1], cupy.empty(blocks, np.float64), tickets[i : i + 1], dtype=scene.dtype,
        )  # fmt: skip
    return out.get().tolist()


def serves(scene: Array, penalties: Sequence[tuple[str, str]]) -> bool:
    """Whether `values` takes these: a plane is to have fewer than 2³¹ pixels."""
    known = all(kind in KINDS and norm in NORMS for kind, norm in penalties)
    return known and scene.dtype.char in "fd" and 0 < math.prod(scene.shape[2:]) < 1 << 31

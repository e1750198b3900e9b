"""The values of regularizers on the GPU: the launches of ``cuda/terms.cu``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import kernels
from .device import Array, cupy

_AT = kernels.Constants("terms")

#: The numbers of norms and kinds of differences that ``cuda/differences.cuh`` knows.
NORMS = {"square": _AT.SQUARE, "absolute": _AT.ABSOLUTE, "vector": _AT.VECTOR_NORM}
KINDS = {"identity": 1, "gradient": 2, "hessian": 3}


def values(scene: Array, regularizers: Sequence[tuple[str, str]], wrap: bool) -> list[float]:
    """The sums over all pixels of scenes (k, c, P, Q), for the (differences, norm) of each regularizer."""
    scene = cupy.ascontiguousarray(scene)
    reduction = kernels.Reduction("terms", math.prod(scene.shape[2:]) * len(scene))
    out = cupy.empty(len(regularizers), np.float64)
    for i, (kind, norm) in enumerate(regularizers):
        reduction.launch(
            "value", scene, *scene.shape, KINDS[kind], NORMS[norm], wrap, out[i : i + 1], dtype=scene.dtype
        )
    return out.get().tolist()


def serves(scene: Array, regularizers: Sequence[tuple[str, str]]) -> bool:
    """Whether `values` takes these: images of two axes, a plane of which has fewer than 2³¹ pixels."""
    known = all(kind in KINDS and norm in NORMS for kind, norm in regularizers)
    return known and scene.ndim == 4 and scene.dtype.char in "fd" and 0 < math.prod(scene.shape[2:]) < 1 << 31

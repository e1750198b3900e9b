"""Groups of similar patches on the GPU: the launches of ``cuda/patches.cu``.

Nothing is read back, and only the tables of a geometry are sent to the device.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..device import Array, cupy

_AT = kernels.Constants("patches")


class Places(NamedTuple):
    """The tables of a geometry on a device: places of reference patches, moves of other patches, weights of pixels."""

    rows: Array
    cols: Array
    order: Array
    lines: Array
    edge: Array
    up: int
    along: int
    pitch: int


@functools.lru_cache(16)
def places(shape: tuple[int, int], rows: bytes, cols: bytes, moves: bytes, edge: bytes, device: int) -> Places | None:
    """Return the tables of a geometry on a device; None if its window is too large for a block.

    Parameters
    ----------
    shape : (int, int)
        Shape of the image.
    rows, cols, moves : bytes
        Bytes of int64 arrays: the rows and the columns of reference patches, and the moves (n, 2) of others, the
        nearest first, with all moves up to the largest distance in each direction.
    edge : bytes
        Bytes of a float32 array with a weight for each pixel along a patch's side.
    """
    weights = np.frombuffer(edge, np.float32)
    side = len(weights)
    r, c = (np.frombuffer(a, np.int64).astype(np.int32) for a in (rows, cols))
    steps = np.frombuffer(moves, np.int64).reshape(-1, 2)
    up, along = (int(n) for n in steps.max(axis=0))
    together = min(_AT.REFERENCES, len(c))
    width = int((c[together - 1 :] - c[: len(c) - together + 1]).max()) + side + 2 * along
    window = (side + 2 * up) * width * 4  # bytes of shared memory
    if window > 48 << 10 or math.prod(shape) >= 1 << 31 or len(r) > 65535:
        return None
    order = np.empty(len(steps), np.int32)
    order[(steps[:, 0] + up) * (2 * along + 1) + steps[:, 1] + along] = np.arange(len(steps))
    lines = (steps @ [shape[1], 1]).astype(np.int32)
    there, across, ranks, offsets, kept = (cupy.asarray(a) for a in (r, c, order, lines, weights))
    return Places(there, across, ranks, offsets, kept, up, along, width)


def firsts(pilot: Array, at: Places, side: int) -> Array:
    """Return the flat index of each patch's first pixel, (groups, patches), int32, for a float32 pilot."""
    rows, cols = len(at.rows), len(at.cols)
    first = cupy.empty((rows * cols, _AT.STACK), np.int32)
    kernels.get("patches", f"nearest{side}", np.float32)(
        (-(-cols // _AT.REFERENCES), rows), _AT.THREADS, pilot, *pilot.shape, at.rows, at.cols, cols, at.up, at.along,
        at.order, at.lines, at.pitch, first, shared_mem=(side + 2 * at.up) * at.pitch * 4,
    )  # fmt: skip
    return first


def filtered(
    noisy: Array, pilot: Array | None, first: Array, variances: Array, level: Array | None, least: float, edge: Array
) -> Array:
    """Return `noisy`, filtered in groups, float32; see `deblur.denoise.patches.Groups`.

    Parameters
    ----------
    noisy, pilot : (P, Q) float32 arrays
        The image and the pilot; without a pilot, coefficients are thresholded.
    first : (groups, patches) int32 array
    variances : (side²,) float64 array
    level : (P - side + 1, Q - side + 1) float32 array or None
        Factor of the variances for each patch.
    least : float
        Square of the number of standard deviations below which a coefficient is removed.
    edge : (side,) float32 array
        Weights of a patch's pixels, along each axis.
    """
    side, (high, wide) = len(edge), noisy.shape
    blocks = kernels.blocks("patches", noisy.size, per_multiprocessor=4)
    control = cupy.empty(_AT.CONTROL, np.float64)
    v = cupy.empty(side * side, np.float32)
    partial, ticket = cupy.empty(2 * blocks, np.float64), cupy.zeros(1, np.uint32)
    kernels.launch(
        "patches", "measure", blocks, _AT.THREADS, noisy, noisy.size, variances, side * side, v, control, partial,
        ticket, dtype=np.float32,
    )  # fmt: skip
    total, weight = cupy.zeros((2, high, wide), np.int64)
    groups = _AT.THREADS // (32 if side == 8 else 16)
    kernels.launch(
        "patches", f"filter{side}", -(-len(first) // groups), _AT.THREADS, noisy, pilot, wide, first, len(first), v,
        level, least, edge, control, total, weight, dtype=np.float32,
    )  # fmt: skip
    out = cupy.empty(noisy.shape, np.float32)
    kernels.launch(
        "patches", "divide", blocks, _AT.THREADS, total, weight, high, wide, side, edge, control, out,
        dtype=np.float32,
    )  # fmt: skip
    return out

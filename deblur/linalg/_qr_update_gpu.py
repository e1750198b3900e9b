"""The two sweeps of QR updating on the GPU: in which launches they run.

The kernels are those of ``cuda/qr_update.cu``; `deblur.linalg.qr_update` states
the same algorithms in NumPy, and says which update is which sweep.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .. import kernels
from ..backend import Array
from ._qr_gpu import qr_gpu
from ._triangular_gpu import leading

NB = 32  # columns of a panel or tile, as in qr_update.cu
STEP = 64  # rows of z to a step of `sweep_up`
SIDE = NB + STEP
WARPS = 8
HOLDERS = 4
THREADS = 32 * WARPS


def launches(which: str, p: int, dtype: Any = np.float32) -> int:
    """Kernel launches of a sweep over a block of p rows or columns, whatever the size of R and Q.

    Parameters
    ----------
    which : {"down", "up"}
        `sweep_down` serves added rows and removed columns, `sweep_up` added columns and removed rows.
    p : int
    dtype : float32 or float64

    Returns
    -------
    int
    """
    if which == "down":
        return 2 * -(-p // _most_rows(np.dtype(dtype).itemsize))
    return 3 * -(-p // NB) + 2


def sweep_down(r: Array, u: Array, q: Array | None, e: Array | None) -> None:
    """`deblur.linalg.qr_update.sweep_down` for CuPy arrays whose rows have adjacent elements.

    Two launches for each `_most_rows` rows of `u`, whatever the size of R: one that clears two counters,
    and one that does everything else.
    """
    import cupy

    t, item = len(r), r.itemsize
    if q is None or e is None:
        q = e = r[:0, :0]
    panels = -(-t // NB)
    tiles = panels + -(-(r.shape[1] - t) // NB) + -(-len(q) // NB)
    most = _most_rows(item)
    step = -(-len(u) // -(-len(u) // most))  # blocks of one size
    each = _rows_a_warp(min(step, len(u)))
    v = cupy.empty(panels * WARPS * each * NB, r.dtype)
    t_all = cupy.empty(panels * NB * NB, r.dtype)
    kernel = kernels.get("qr_update", f"qr_down_{each}", r.dtype)
    for first in range(0, len(u), step):
        rows, own = u[first : first + step], e[:, first : first + step]
        d, f = r[:, t:], rows[:, t:]
        kernel(
            tiles, THREADS, r, leading(r), t, rows, leading(rows), len(rows), d, leading(d), f, leading(f),
            d.shape[1], q, leading(q), own, leading(own), len(q), v, t_all, cupy.zeros(2 + panels, np.uint32),
            shared_mem=_down_bytes(each, item),
        )  # fmt: skip


def sweep_up(c: Array, z: Array, w: Array, r: Array, e: Array | None, q: Array | None) -> None:
    """`deblur.linalg.qr_update.sweep_up` for CuPy arrays whose rows have adjacent elements.

    Three launches for each `NB` columns of `z`, whatever their length: the chain of reflections, the
    products they amount to, and their application to everything. Two more at the end for the diagonal
    blocks, which then are full: their factorisation, and its part of the last products.
    """
    import cupy

    t, p = z.shape
    dtype, item = r.dtype, r.itemsize
    if q is None or e is None:
        q = e = r[:0, :0]
    steps = -(-t // STEP)
    pitch, wide, side = (x + 16 // item for x in (NB, STEP, SIDE))
    buffers = 2 if item == 4 else 1
    v = cupy.empty(steps * STEP * NB, dtype)
    t_all = cupy.empty(steps * NB * NB, dtype)
    products = cupy.empty((steps, SIDE, SIDE), dtype)
    squares = cupy.empty((steps, STEP, STEP), dtype)
    chain, begin, end, apply = (
        kernels.get("qr_update", f"qr_up_{name}", dtype) for name in ("chain", "open", "close", "sweep")
    )
    for first in range(0, p, NB):
        here, later = slice(first, min(first + NB, p)), slice(first + NB, p)
        corner, column, over, own = c[here, here], z[:, here], w[here], e[:, here]
        d, f = z[:, later], c[here, later]
        chain(
            1, THREADS, column, leading(column), t, len(over), corner, leading(corner), v, t_all,
            shared_mem=_panel_bytes(STEP // WARPS, item) + 2 * STEP * pitch * item,
        )  # fmt: skip
        squares_in, squares_out = first > 0, first + NB < p
        begin(
            steps, 256, v, t_all, r, leading(r), t, squares_in, products, squares,
            shared_mem=((2 * STEP + NB) * pitch + 2 * STEP * wide) * item,
        )  # fmt: skip
        if not squares_out:
            turns, _ = qr_gpu(squares, "reduced")
            end(steps, 256, turns, products, shared_mem=STEP * (wide + side) * item)
        tiles = -(-r.shape[1] // NB) + -(-d.shape[1] // NB) + -(-len(q) // NB)
        apply(
            tiles, 256, products, r, leading(r), t, r.shape[1], over, leading(over), len(over), d, leading(d),
            f, leading(f), d.shape[1], q, leading(q), own, leading(own), len(q), squares_in,
            squares_out, shared_mem=(SIDE * pitch + buffers * SIDE * side) * item,
        )  # fmt: skip


def _rows_a_warp(p: int) -> int:
    """The variant of `qr_down` for p rows."""
    return next(each for each in (4, 8, 16, 32) if p <= WARPS * each)


@functools.cache
def _most_rows(item: int) -> int:
    """Rows of U to a launch: what shared memory, and in float64 the registers, hold."""
    import cupy

    limit = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["sharedMemPerBlockOptin"]
    return WARPS * max(each for each in (4, 8, 16, 128 // item) if _down_bytes(each, item) <= limit)


def _down_bytes(each: int, item: int) -> int:
    """Shared memory of `qr_down`: struct Down."""
    pitch = NB + 16 // item
    return _panel_bytes(each, item) + ((4 + WARPS) * NB + 2 * WARPS * each) * pitch * item


def _panel_bytes(each: int, item: int) -> int:
    """Struct Panel."""
    vector = 16 // item
    squares = 3 * NB * (NB + vector) + NB // 2 * (NB // 2 + vector)
    return (squares + (2 * HOLDERS + WARPS + 1) * NB + 2 * WARPS * each) * item

"""The two sweeps of QR updating on the GPU, as launches.

The kernels are those of ``cuda/qr_down.cu`` and ``cuda/qr_up.cu``; `deblur.linalg.sweeps` states
the same algorithms in NumPy, and `deblur.linalg.qr_update` says which update uses which sweep.
"""

from __future__ import annotations

import functools

import numpy as np

from .. import kernels
from ..device import Array, cupy
from .qr_gpu import factor
from .triangular_gpu import leading

_VARIANTS = (4, 8, 16, 32)  # rows of U for each warp, of the kernels qr_down_ROWS


def sweep_down(r: Array, u: Array, q: Array | None, e: Array | None) -> None:
    """`deblur.linalg.sweeps.sweep_down` for CuPy arrays whose rows have adjacent elements.

    Two launches for each `_most_rows` rows of `u`, whatever the size of R: one clears the counters,
    the other does everything else.
    """
    t, sizes = len(r), kernels.Constants("qr_down", r.dtype)
    nb = sizes.NB
    if q is None or e is None:
        q = e = r[:0, :0]
    panels = -(-t // nb)
    tiles = panels + -(-(r.shape[1] - t) // nb) + -(-len(q) // nb)
    step = -(-len(u) // -(-len(u) // _most_rows(r.dtype)))  # blocks of equal size
    each = next(each for each in _VARIANTS if min(step, len(u)) <= sizes.WARPS * each)
    v = cupy.empty(panels * sizes.WARPS * each * nb, r.dtype)
    t_all = cupy.empty(panels * nb * nb, r.dtype)
    kernel = kernels.get("qr_down", f"qr_down_{each}", r.dtype)
    for first in range(0, len(u), step):
        rows, own = u[first : first + step], e[:, first : first + step]
        d, f = r[:, t:], rows[:, t:]
        kernel(
            tiles, sizes.THREADS, r, leading(r), t, rows, leading(rows), len(rows), d, leading(d), f, leading(f),
            d.shape[1], q, leading(q), own, leading(own), len(q), v, t_all, cupy.zeros(2 + panels, np.uint32),
            shared_mem=sizes.DOWN_BYTES(each),
        )  # fmt: skip


def sweep_up(c: Array, z: Array, w: Array, r: Array, e: Array | None, q: Array | None) -> None:
    """`deblur.linalg.sweeps.sweep_up` for CuPy arrays whose rows have adjacent elements.

    Three launches for each NB columns of `z`, whatever their length: the chain of reflections, their
    products, and the application to everything. At the end two more factor the diagonal blocks, which then are
    full, and include these factors in the last products.
    """
    (t, p), dtype = z.shape, r.dtype
    sizes = kernels.Constants("qr_up", dtype)
    nb, height, side = sizes.NB, sizes.STEP, sizes.SIDE
    if q is None or e is None:
        q = e = r[:0, :0]
    steps = -(-t // height)
    v = cupy.empty(steps * height * nb, dtype)
    t_all = cupy.empty(steps * nb * nb, dtype)
    products = cupy.empty((steps, side, side), dtype)
    squares = cupy.empty((steps, height, height), dtype)
    chain, begin, end, apply = (
        kernels.get("qr_up", f"qr_up_{name}", dtype) for name in ("chain", "open", "close", "sweep")
    )
    for first in range(0, p, nb):
        here, later = slice(first, min(first + nb, p)), slice(first + nb, p)
        corner, column, over, own = c[here, here], z[:, here], w[here], e[:, here]
        d, f = z[:, later], c[here, later]
        chain(
            1, sizes.THREADS, column, leading(column), t, len(over), corner, leading(corner), v, t_all,
            shared_mem=sizes.CHAIN_BYTES,
        )  # fmt: skip
        squares_in, squares_out = first > 0, first + nb < p
        begin(
            steps, 256, v, t_all, r, leading(r), t, squares_in, products, squares,
            shared_mem=sizes.OPEN_BYTES,
        )  # fmt: skip
        if not squares_out:
            turns, _ = factor(squares, "reduced")
            end(steps, 256, turns, products, shared_mem=sizes.CLOSE_BYTES)
        tiles = -(-r.shape[1] // nb) + -(-d.shape[1] // nb) + -(-len(q) // nb)
        apply(
            tiles, 256, products, r, leading(r), t, r.shape[1], over, leading(over), len(over), d, leading(d),
            f, leading(f), d.shape[1], q, leading(q), own, leading(own), len(q), squares_in,
            squares_out, shared_mem=sizes.SWEEP_BYTES,
        )  # fmt: skip


@functools.cache
def _most_rows(dtype: np.dtype) -> int:
    """Return the rows of U for one launch, limited by shared memory and, in float64, by registers."""
    sizes = kernels.Constants("qr_down", dtype)
    limit = kernels.properties(cupy.cuda.runtime.getDevice()).shared_memory
    return sizes.WARPS * max(
        each for each in _VARIANTS if each <= 128 // dtype.itemsize and sizes.DOWN_BYTES(each) <= limit
    )

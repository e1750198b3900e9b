"""Gauss-Jordan elimination on the GPU: the scheme of `gauss_jordan.py` with the kernels of ``cuda/gauss_jordan.cu``.

One launch eliminates a panel of MAX_PANEL columns, pivots included. Two panels are combined to one of twice
the width by products within their columns, and so on, up to a width whose rank-`width` update of all other
columns runs at full speed. The columns that come next are updated first and are eliminated on a second stream
while the rest of the update runs, so the latency of the panels' launches is hidden behind the product.
The host reads nothing back until the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import kernels
from ..device import Array, all_true, cupy
from ..graphs import side_streams, worked
from .matmul_gpu import gemm
from .pivots_gpu import PivotStatus
from .transpose import turned

_SIZES = kernels.Constants("gauss_jordan")
WIDTHS = (256, 1024)  # columns eliminated before all others are updated, for small and for large matrices
LARGE = 12000
# Wider panels increase the residual A X - B; for an inverse the transpose avoids this, for a solution it cannot.
SOLVE_WIDTH = 128


class _Elimination:
    """The elimination of columns of one n-row matrix `a`, in place; the kernel for its panels is chosen once."""

    def __init__(self, a: Array) -> None:
        n = len(a)
        self.a, self.n = a, n
        self.status = PivotStatus()
        self.pivots = cupy.empty(n, np.int32)
        self.place = cupy.empty(n, np.int32)
        self.width = min(n, WIDTHS[n >= LARGE])  # the largest width that `inverse` uses
        self.strip = cupy.empty((self.width, self.width), a.dtype)
        self.grid_arguments: tuple[Any, ...] = ()
        threads, per_block = _SIZES.PANEL_THREADS, -(-n // _SIZES.CLUSTER)
        if per_block <= 2 * threads and _has_clusters(a.device.id):
            rows = 1 if per_block <= threads else 2
            self.kernel = kernels.get("gauss_jordan", f"panel_cluster_{rows}", a.dtype)
            self.blocks, self.threads = _SIZES.CLUSTER, -(-per_block // (32 * rows)) * 32
        else:
            self.kernel = kernels.get("gauss_jordan", "panel_grid", a.dtype)
            resident = self.kernel.resident_blocks(threads, _SIZES.PANEL_BYTES)
            if -(-n // threads) > resident:
                raise ValueError(
                    f"Gauss-Jordan elimination on this GPU takes at most {resident * threads} rows, not {n}; "
                    "use cholesky_inverse, or a NumPy array"
                )
            # Few blocks make the barrier cheaper, many the rest: 32 blocks, or fewer for small n, or more if n requires
            # it.
            self._spread(min(resident, max(-(-n // threads), min(32, -(-n // 32)))))
        self.gather = kernels.get("gauss_jordan", "gather", a.dtype)
        self.of_dtype = kernels.Constants("gauss_jordan", a.dtype)

    def _spread(self, blocks: int) -> None:
        """Use this many blocks, which meet at a barrier and must all run at once."""
        self.blocks, self.threads = blocks, -(-self.n // (32 * blocks)) * 32
        self.counter = cupy.zeros(1, np.uint32)
        self.grid_arguments = (cupy.empty(blocks * _SIZES.BOXES, np.uint8), self.counter)

    def columns(self, k: int, stop: int) -> None:
        """Eliminate columns `k` to `stop`; the rows of a single panel are not switched within it yet."""
        if stop - k <= _SIZES.MAX_PANEL:
            self._panel(k, stop)
            return
        panels = -(-(stop - k) // _SIZES.MAX_PANEL)
        middle = k + (1 << (panels - 1).bit_length() - 1) * _SIZES.MAX_PANEL
        self.columns(k, middle)
        self._update(k, middle, middle, stop, k)
        self.columns(middle, stop)
        self._update(middle, stop, k, middle, k)

    def _panel(self, k: int, stop: int) -> None:
        a = self.a
        if self.grid_arguments:
            self.counter.fill(0)
        try:
            self.kernel(
                self.blocks, self.threads, a, a.strides[0] // a.itemsize, self.n, k, stop - k, 0.0,
                self.pivots, self.place, self.status.failed, *self.grid_arguments,
                shared_mem=_SIZES.PANEL_BYTES, cooperative=bool(self.grid_arguments),
            )  # fmt: skip
        except cupy.cuda.driver.CUDADriverError as error:
            # The launch was refused and nothing was started: on a shared card, fewer blocks may run at once.
            if error.status != 720:  # CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                raise
            fewest = -(-self.n // _SIZES.PANEL_THREADS)
            if self.blocks == fewest:
                raise RuntimeError(
                    f"Gauss-Jordan elimination of {self.n} rows needs {fewest} blocks that run at once, which this GPU "
                    "refuses: other processes may be using it; use cholesky_inverse, or a NumPy array"
                ) from None
            self._spread(fewest)
            self._panel(k, stop)

    def _update(self, k: int, stop: int, first: int, last: int, origin: int) -> None:
        """Apply the elimination of columns `k` to `stop` to the adjacent columns `first` to `last`."""
        left, right = min(k, first), max(stop, last)
        strip = self.strip[: stop - k, : right - left]
        self.switch(self.a[:, left:right], strip, k, stop, (k - left, stop - left))
        gemm(self.a[:, k:stop], strip[:, first - left : last - left], self.a[:, first:last], 1.0, 1.0)

    def switch(
        self, target: Array, strip: Array, k: int, stop: int, own: tuple[int, int] = (0, 0), order: Array | None = None
    ) -> None:
        """Switch rows of `target`, whose columns ``own`` are eliminated, and copy the pivot rows to `strip`."""
        columns, item = target.shape[1], target.itemsize
        self.gather(
            -(-columns // self.of_dtype.WIDTH), 256, target, target.strides[0] // item, columns, strip,
            strip.strides[0] // item, k, stop - k, self.pivots, self.place, own[0], own[1],
            stop - k <= _SIZES.MAX_PANEL, order, shared_mem=self.of_dtype.GATHER_BYTES,
        )  # fmt: skip


def _has_clusters(device: int) -> bool:
    return kernels.properties(device).capability == 90


def inverse(a: Array, given: Array | None = None) -> None:
    """Replace the row-major CuPy matrix `a` by its inverse."""
    if len(a):
        with worked("gauss-jordan", _inverted, a, a) as (x, status):
            if x is not a:
                a[...] = x
            status.check("singular", given)


def _inverted(a: Array) -> PivotStatus:
    n = len(a)
    work = _Elimination(a)
    order = cupy.arange(n, dtype=np.int32)
    strip = cupy.empty((work.width, n), a.dtype)
    # For large float64 products, which the card's power limits, cuBLAS is faster with a transposed left factor.
    across = cupy.empty((work.width, n), a.dtype) if n >= LARGE and a.dtype == np.float64 else None
    main, (side, _) = cupy.cuda.get_current_stream(), side_streams()
    # Nothing hides the elimination of the first columns, so there are fewer of them.
    edges, width = [0], min(n, WIDTHS[0])
    while edges[-1] < n:
        edges.append(min(edges[-1] + width, n))
        width = min(2 * width, work.width)
    work.columns(0, edges[1])
    for k, stop, next_stop in zip(edges, edges[1:], [*edges[2:], n]):
        work.switch(a, strip, k, stop, (k, stop), order)
        left = a[:, k:stop] if across is None else turned(a[:, k:stop], across[: stop - k]).T

        def update(first: int, last: int, left: Array = left, count: int = stop - k) -> None:
            if first < last:
                gemm(left, strip[:count, first:last], a[:, first:last], 1.0, 1.0)

        update(stop, next_stop)
        if stop < n:
            side.wait_event(main.record())
            with side:
                work.columns(stop, next_stop)
        update(0, k)
        update(next_stop, n)
        if stop < n:
            main.wait_event(side.record())
    _restore_columns(a, order, work.status)
    return work.status


def solve(a: Array, b: Array, given: Array | None = None) -> None:
    """Replace `b`, shape (n, k), by the solution of A X = B; `a` may be destroyed."""
    n, result = len(a), b
    if n == 0 or b.size == 0:
        return
    a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    work = _Elimination(a)
    strip = cupy.empty((SOLVE_WIDTH, max(n, b.shape[1])), a.dtype)
    for k in range(0, n, SOLVE_WIDTH):
        stop = min(k + SOLVE_WIDTH, n)
        work.columns(k, stop)
        work.switch(a[:, k:], strip, k, stop, (0, stop - k))
        if stop < n:
            gemm(a[:, k:stop], strip[: stop - k, stop - k : n - k], a[:, stop:], 1.0, 1.0)
        work.switch(b, strip, k, stop)
        gemm(a[:, k:stop], strip[: stop - k, : b.shape[1]], b, 1.0, 1.0)
    if not all_true(cupy.isfinite(b)):
        work.status.overflow.fill(0)
    work.status.check("singular", given)
    if b.data.ptr != result.data.ptr:
        result[...] = b


def _restore_columns(a: Array, order: Array, status: PivotStatus) -> None:
    """Undo the row switches as column switches of the inverse, and record an overflow."""
    n, bytes_of_row = len(a), len(a) * a.itemsize
    if bytes_of_row <= kernels.properties(a.device.id).shared_memory:
        kernels.get("gauss_jordan", "restore_columns", a.dtype)(
            n, _SIZES.RESTORE_THREADS, a, a.strides[0] // a.itemsize, n, order, status.overflow,
            shared_mem=bytes_of_row,
        )  # fmt: skip
        return
    columns = cupy.argsort(order)
    for start in range(0, n, 64):  # 64 rows at a time, since fancy indexing copies them
        rows = slice(start, start + 64)
        a[rows] = a[rows][:, columns]
    if not bool(cupy.isfinite(a).all()):
        status.overflow.fill(0)

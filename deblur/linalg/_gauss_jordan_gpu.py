"""Gauss-Jordan elimination on the GPU: the scheme of `gauss_jordan.py` with the kernels of ``cuda/gauss_jordan.cu``.

A panel costs three launches and more: its elimination, pivots included; the row switches; and the
rank-`block` update as a product. Nothing comes back to the host until the end.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .. import kernels
from ..backend import Array
from ._gemm import gemm
from ._gpu_status import PivotStatus

BLOCK = 128  # MAX_PANEL of the .cu file: columns of a panel
THREADS = 512  # PANEL_THREADS
SHARED = 96 << 10  # PANEL_SHARED
CLUSTER = 16
OFFERS = 2 * (16 + 128)  # bytes of mailboxes for each block of panel_grid


class _Panels:
    """Launches the elimination of panels of an n-row matrix; picks the kernel once."""

    def __init__(self, n: int, dtype: np.dtype, threshold: float, status: PivotStatus) -> None:
        import cupy

        self.n, self.threshold, self.status = n, threshold, status
        self.pivots = cupy.empty(n, np.int32)
        self.place = cupy.empty(BLOCK, np.int32)
        self.extra: tuple[Any, ...] = ()
        device = cupy.cuda.runtime.getDevice()
        per_block = -(-n // CLUSTER)
        if per_block <= 2 * THREADS and _has_clusters(device):
            rows = 1 if per_block <= THREADS else 2
            self.kernel = kernels.get("gauss_jordan", f"panel_cluster_{rows}", dtype)
            self.kernel.allow_large_clusters()
            self.grid, self.threads = CLUSTER, -(-per_block // (32 * rows)) * 32
        else:
            self.kernel = kernels.get("gauss_jordan", "panel_grid", dtype)
            resident = self.kernel.resident_blocks(THREADS, SHARED)
            # More than one warp's worth of blocks costs a barrier over more of them, fewer leave rows to wait.
            self.grid = min(resident, max(-(-n // THREADS), min(32, -(-n // 32))))
            self.threads = -(-n // (32 * self.grid)) * 32
            if self.threads > THREADS:
                raise ValueError(
                    f"Gauss-Jordan elimination on this GPU takes at most {resident * THREADS} rows, not {n}; "
                    "use cholesky_inverse, or a NumPy array"
                )
            self.boxes = cupy.empty(self.grid * OFFERS, np.uint8)
            self.counter = cupy.zeros(1, np.uint32)
            self.extra = (self.boxes, self.counter)

    def eliminate(self, a: Array, k: int, nb: int) -> None:
        if self.extra:
            self.counter.fill(0)
        self.kernel(
            self.grid, self.threads, a, a.strides[0] // a.itemsize, self.n, k, nb, self.threshold,
            self.pivots, self.place, self.status.failed, *self.extra,
            shared_mem=SHARED, cooperative=bool(self.extra),
        )  # fmt: skip

    def gather(
        self,
        a: Array,
        strip: Array,
        k: int,
        nb: int,
        own: tuple[int, int] = (0, 0),
        order: Array | None = None,
    ) -> None:
        """Switch the rows of `a`; of its columns, those from ``own[0]`` to ``own[1]`` are the panel's."""
        columns, item = a.shape[1], a.itemsize
        if columns:
            width = 128 // item
            kernels.get("gauss_jordan", "gather", a.dtype)(
                -(-columns // width), 256, a, a.strides[0] // item, columns, strip, strip.strides[0] // item,
                k, nb, self.pivots, self.place, own[0], own[1], order, shared_mem=2 * nb * 128,
            )  # fmt: skip


@functools.cache
def _has_clusters(device: int) -> bool:
    import cupy

    return cupy.cuda.Device(device).compute_capability == "90"


def inverse(a: Array, threshold: float, given: Array | None = None) -> Array:
    """The inverse of the row-major CuPy matrix `a`, in its place."""
    import cupy

    n = len(a)
    if n == 0:
        return a
    status = PivotStatus()
    panels = _Panels(n, a.dtype, threshold, status)
    order = cupy.arange(n, dtype=np.int32)
    strip = cupy.empty((BLOCK, n), a.dtype)
    for k in range(0, n, BLOCK):
        stop = min(k + BLOCK, n)
        nb = stop - k
        panels.eliminate(a, k, nb)
        panels.gather(a, strip, k, nb, (k, stop), order)
        multipliers = a[:, k:stop]
        for columns in (slice(0, k), slice(stop, n)):
            if columns.start < columns.stop:
                gemm(multipliers, strip[:nb, columns], a[:, columns], 1.0, 1.0)
    _restore_columns(a, order, status)
    status.check("singular", given)
    return a


def solve(a: Array, b: Array, threshold: float, given: Array | None = None) -> Array:
    """The solution of A X = B in the place of `b`, shape (n, k); `a` is destroyed."""
    import cupy

    n = len(a)
    if n == 0:
        return b
    status = PivotStatus()
    panels = _Panels(n, a.dtype, threshold, status)
    strip = cupy.empty((BLOCK, max(n, b.shape[1])), a.dtype)
    for k in range(0, n, BLOCK):
        stop = min(k + BLOCK, n)
        nb = stop - k
        panels.eliminate(a, k, nb)
        panels.gather(a[:, k:], strip, k, nb, (0, nb))
        if stop < n:
            gemm(a[:, k:stop], strip[:nb, nb : n - k], a[:, stop:], 1.0, 1.0)
        panels.gather(b, strip, k, nb)
        gemm(a[:, k:stop], strip[:nb, : b.shape[1]], b, 1.0, 1.0)
    status.check("singular", given)
    if not bool(cupy.isfinite(b).all()):
        status.overflow.fill(0)
        status.check("singular", given)
    return b


def _restore_columns(a: Array, order: Array, status: PivotStatus) -> None:
    """Undo the row switches as column switches of the inverse."""
    import cupy

    n, bytes_of_row = len(a), len(a) * a.itemsize
    properties = cupy.cuda.runtime.getDeviceProperties(a.device.id)
    if bytes_of_row <= properties["sharedMemPerBlockOptin"]:
        kernels.get("gauss_jordan", "restore_columns", a.dtype)(
            n, 512, a, a.strides[0] // a.itemsize, n, order, status.overflow, shared_mem=bytes_of_row
        )
        return
    columns = cupy.argsort(order)
    for start in range(0, n, BLOCK):
        rows = slice(start, start + BLOCK)
        a[rows] = a[rows][:, columns]
    if not bool(cupy.isfinite(a[:, 0]).all()):
        status.overflow.fill(0)

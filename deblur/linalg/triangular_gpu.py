"""Triangular matrices on the GPU: inversion level by level, and substitution with inverted diagonal blocks.

One launch inverts the LEAF x LEAF diagonal blocks. All the rest is products: with L₁₁⁻¹ and L₂₂⁻¹
known, the block below them is -L₂₂⁻¹ (L₂₁ L₁₁⁻¹), and two batched products serve a level of equal
pairs of blocks. All matrices are row-major and lower triangular.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import kernels
from ..device import Array, cupy
from .matmul_gpu import choose_engine, cublas_batch_at, gemm
from .pivots_gpu import PivotStatus

_SIZES = kernels.Constants("triangular")
FEW = 8  # largest number of right-hand sides that are solved for one by one, in one launch


def leading(a: Array) -> int:
    """Return the distance between rows of a row-major matrix, in elements."""
    return a.strides[0] // a.itemsize if len(a) > 1 else a.shape[1]


def invert_blocks(l: Array, status: PivotStatus) -> Array:  # noqa: E741
    """Return the inverses of the diagonal blocks, shape (ceil(n / LEAF), LEAF, LEAF)."""
    n, leaf = len(l), _SIZES.LEAF
    blocks = cupy.empty((-(-n // leaf), leaf, leaf), l.dtype)
    kernels.get("triangular", "invert_blocks", l.dtype)(
        len(blocks), _SIZES.LEAF_THREADS, l, leading(l), n, False, blocks, status.failed,
        shared_mem=kernels.Constants("triangular", l.dtype).LEAF_BYTES,
    )  # fmt: skip
    return blocks


def invert_lower(a: Array, inverses: Array) -> None:
    """Replace L by L⁻¹, with zeros above; `inverses` are those of its diagonal blocks."""
    n = len(a)
    kernels.get("triangular", "clear_upper", a.dtype)(n, 256, a, leading(a), n)
    grid = (len(inverses), _SIZES.LEAF // _SIZES.PUT_ROWS)
    kernels.get("triangular", "put_blocks", a.dtype)(grid, 256, a, leading(a), n, inverses)
    work = cupy.empty(n * n // 4 + 1, a.dtype)  # room for the products L₂₁ L₁₁⁻¹ of any level
    size = _SIZES.LEAF
    while size < n:
        pairs, rest = divmod(n, 2 * size)
        engine = choose_engine(size, size, size, a.dtype)
        if batched := pairs > 0 and size <= 1024 and (pairs > 1 or engine == "cublas"):
            _combine_batch(a, size, pairs, work)
        for pair in range(pairs if batched else 0, pairs):
            _combine(a, 2 * size * pair, size, size, work)
        if rest > size:  # the lower block of a last pair is incomplete
            _combine(a, 2 * size * pairs, size, rest - size, work)
        size *= 2


def _parts(size: int) -> int:
    """Return a number of strips, a power of 2, for a product with a triangular factor, to skip most of its zeros."""
    return 1 if size < 512 else 2 if size < 4096 else 4 if size < 8192 else 8


def _combine(a: Array, start: int, size: int, rows: int, work: Array) -> None:
    """Compute the block below the diagonal of one pair of `size` rows and `rows` rows."""
    middle, stop = start + size, start + size + rows
    below = a[middle:stop, start:middle]
    product = work[: rows * size].reshape(rows, size)
    step = -(-size // _parts(size))
    for j in range(0, size, step):
        strip = slice(start + j, min(start + j + step, middle))
        gemm(below[:, j:], a[start + j : middle, strip], product[:, j : j + step])
    step = -(-rows // _parts(rows))
    for i in range(0, rows, step):
        end = min(i + step, rows)
        gemm(a[middle + i : middle + end, middle : middle + end], product[:end], below[i:end], -1.0)


def _combine_batch(a: Array, size: int, pairs: int, work: Array) -> None:
    """Do `_combine` for all pairs of equal blocks at once, by cuBLAS's batched product."""
    char, item, ld = a.dtype.char, a.itemsize, leading(a)
    apart, square = 2 * size * (ld + 1), size * size  # distance of pairs, and of products
    first, base = a.data.ptr, work.data.ptr
    below = first + size * ld * item
    last = first + size * (ld + 1) * item
    step = -(-size // _parts(size))
    for j in range(0, size, step):
        cublas_batch_at(
            char, (size, step, size - j), 1.0, (below + j * item, ld, apart, False),
            (first + j * (ld + 1) * item, ld, apart), (base + j * item, size, square), pairs,
        )  # fmt: skip
    for i in range(0, size, step):
        cublas_batch_at(
            char, (step, size, i + step), -1.0, (last + i * ld * item, ld, apart, False),
            (base, size, square), (below + i * ld * item, ld, apart), pairs,
        )  # fmt: skip


def substitute_lower(l: Array, inverses: Array, x: Array, trans: bool = False) -> None:  # noqa: E741
    """Solve L X = B or Lᵀ X = B in the memory of a contiguous B (n, k); for `inverses` see `invert_blocks`."""
    (n, columns), leaf = x.shape, _SIZES.LEAF
    if columns <= FEW:
        counters = cupy.zeros(1 + columns, np.uint32)
        kernels.get("triangular", "substitute", x.dtype)(
            len(inverses) * columns, _SIZES.SUBSTITUTE_THREADS, l, leading(l), n, inverses, x, columns, trans,
            counters, shared_mem=kernels.Constants("triangular", x.dtype).SUBSTITUTE_BYTES,
        )  # fmt: skip
        return
    starts = range(0, n, leaf)
    for b in reversed(range(len(starts))) if trans else range(len(starts)):
        rows = slice(starts[b], min(starts[b] + leaf, n))
        count = rows.stop - rows.start
        inverted = inverses[b, :count, :count]
        gemm(inverted.T if trans else inverted, x[rows].copy(), x[rows])
        if trans and rows.start:
            gemm(l[rows, : rows.start].T, x[rows], x[: rows.start], -1.0, 1.0)
        elif not trans and rows.stop < n:
            gemm(l[rows.stop :, rows], x[rows], x[rows.stop :], -1.0, 1.0)


def inverse(l: Array, lower: bool = True, status: PivotStatus | None = None) -> Array:  # noqa: E741
    """Return the inverse of the triangular `l`, which is destroyed; `status` records whether it exists."""
    if not lower:
        return inverse(l.T, True, status).T
    l = cupy.ascontiguousarray(l)  # noqa: E741
    if len(l):
        invert_lower(l, invert_blocks(l, status or PivotStatus()))
        if status is not None:
            kernels.get("triangular", "check_lower", l.dtype)(len(l), 256, l, leading(l), status.overflow)
    return l


def substitute(l: Array, x: Array, trans: Sequence[bool], lower: bool) -> None:  # noqa: E741
    """Solve op(L) X = B in the memory of B, (n,) or (n, k), once for each flag in `trans`: whether op transposes."""
    if not lower:
        substitute(l.T, x, [not t for t in trans], True)
        return
    if len(l) > 1 and l.strides[1] != l.itemsize:
        l = cupy.ascontiguousarray(l)  # noqa: E741
    rows = x[:, None] if x.ndim == 1 else x
    work = cupy.ascontiguousarray(rows)
    inverses = invert_blocks(l, PivotStatus())
    for t in trans:
        substitute_lower(l, inverses, work, t)
    if work.data.ptr != x.data.ptr:
        rows[...] = work

"""Householder QR on the GPU: which kernels serve a shape, and the order in which they run.

The kernels are those of ``cuda/qr.cu`` and ``cuda/qr_batched.cu``, whose headers explain the algorithm.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..device import Array, cupy, unwrapped
from ..errors import NoGPUError, check_choice, check_count, check_dtype, shown
from ..graphs import replay, side_streams
from .matmul_gpu import cublas_batch_at, gemm

MODES = ("reduced", "complete", "r", "raw")
# Rows that the largest variants of the kernels hold: 256 threads with several rows each, in 1 or 16 blocks.
BATCHED_ROWS = 256 * 4
WIDE_ROWS = 16 * 256 * 5
CLUSTER_ROWS = 16 * 256 * 8
CHUNK = 512  # rows whose inner products are one sum
OUTER = 128  # columns whose reflections are applied in one product, for a large matrix
# Number of elements from which the panels of one matrix are combined in blocks of OUTER columns.
LARGE = {"f": 1 << 20, "d": 1 << 18}
# Columns whose reflections are applied to Q at once, and rows in one sum: more of them run faster and round more.
FORMING = {"f": (OUTER, CHUNK), "d": (OUTER // 2, CHUNK // 4)}
MOST_CHUNKS = 32


class Plan(NamedTuple):
    """The kernels for a shape, and the reason for them."""

    kernel: str
    """"single-launch", "streaming", "tall-skinny" or "cusolver"."""
    reason: str


def choose_qr(shape: tuple[int, ...], dtype: Any = np.float32, mode: str = "reduced") -> Plan:
    """Return which kernels `qr` uses on the current GPU for a CuPy array of `shape`, and why.

    Parameters
    ----------
    shape : (..., M, N)
        Shape of the array.
    dtype : float32 or float64
    mode : str
        As in `qr`.

    Returns
    -------
    Plan
        ``kernel`` and ``reason``. "single-launch": one block for each matrix.
        "streaming": one launch for each panel, updates over the whole grid.
        "tall-skinny": blocks of rows first, then their triangles (TSQR).
        "cusolver": cuSOLVER, for shapes that none of these serves.

    Raises
    ------
    ValueError, TypeError
        For a shape with fewer than two dimensions, an unknown mode, or another dtype.
    NoGPUError
        If CuPy is not installed.
    """
    check_choice(mode, MODES, "mode")
    if unwrapped(shape, "shape").ndim != 1 or len(shape) < 2 or dtype is None:
        raise ValueError(f"shape must be (..., M, N), and dtype float32 or float64, not {shown(shape)} and {dtype!r}")
    dtype = check_dtype(dtype)
    *stack, m, n = (check_count(side, "each side of shape", 0) for side in shape)
    batch = math.prod(stack)
    lone_and_large = batch == 1 and m * n >= 1 << 14  # one block takes longer than several launches of many blocks
    if mode in ("reduced", "r") and m <= BATCHED_ROWS and not lone_and_large:
        if kernels.Constants("qr_batched", dtype).FACTOR_BYTES(m, n, True) <= _properties().shared_memory:
            return Plan("single-launch", f"a {m} x {n} matrix fits a block's shared memory")
        elif n <= m and batch >= 2 * _properties().multiprocessors:
            return Plan("single-launch", f"{batch} matrices keep every multiprocessor busy, one each")
    if mode in ("reduced", "r") and m > 8 * n and m > BATCHED_ROWS and (n <= 256 or m > CLUSTER_ROWS):
        return Plan("tall-skinny", f"{m} rows of {n}: blocks of rows are independent until their triangles meet")
    if m <= BATCHED_ROWS or (_has_clusters() and m <= CLUSTER_ROWS):
        return Plan("streaming", "panels one after the other, their updates spread over the GPU")
    return Plan("cusolver", f"a panel of {m} rows is more than the registers of a cluster hold on this GPU")


def factor(a: Array, mode: str) -> Any:
    """Return `deblur.linalg.qr.factor` for CuPy arrays that are not empty."""
    q, r = _factors(a, mode)
    return r if mode == "r" else (q, r)


def _factors(a: Array, mode: str) -> tuple[Any, Array]:
    """Return Q (or None) and R; or the raw reflections."""
    *stack, m, n = a.shape
    plan = choose_qr(a.shape, a.dtype, mode)
    a = cupy.ascontiguousarray(a).reshape(math.prod(stack), m, n)
    if plan.kernel == "cusolver":
        out = (None, cupy.linalg.qr(a, mode)) if mode == "r" else cupy.linalg.qr(a, mode)
    elif plan.kernel == "single-launch":
        out = _single_launch(a, mode == "reduced")
    elif plan.kernel == "tall-skinny":
        out = _replayed(f"tall qr {mode}", lambda x: _tall_skinny(x, mode == "reduced"), a)
    elif len(a) > 1 and m * n >= 1 << 22 and _merges(1, m, n, a.dtype):  # each matrix fills the GPU
        parts = [_streaming(a[i : i + 1], mode) for i in range(len(a))]
        out = tuple(None if x[0] is None else cupy.concatenate(x) for x in zip(*parts))
    elif a.size <= 1 << 20:  # more memory, and fewer launches
        out = _replayed(f"whole qr {mode}", lambda x: _streaming(x, mode), a)
    else:
        out = _streaming(a, mode)
    first, second = (None if x is None else x.reshape(*stack, *x.shape[1:]) for x in out)
    return first, second


@functools.cache
def _sizes(dtype: Any) -> kernels.Constants:
    return kernels.Constants("qr", dtype)


def _properties() -> kernels.Properties:
    try:
        return kernels.properties(cupy.cuda.runtime.getDevice())
    except ImportError:
        raise NoGPUError("the choice of QR kernels is about a GPU, and CuPy is not installed") from None


def _has_clusters() -> bool:
    return _properties().capability >= 90


# ---------------------------------------------------------------- one launch for the whole stack


def _single_launch(a: Array, want_q: bool) -> tuple[Array, Array]:
    batch, m, n = a.shape
    k, bytes_of = min(m, n), kernels.Constants("qr_batched", a.dtype).FACTOR_BYTES
    shared = bytes_of(m, n, True) <= _properties().shared_memory
    threads = 64 if m <= 64 else 128 if m <= 128 else 256
    if shared:
        name = "qr_batched_shared_1" if m <= threads else "qr_batched_shared_4"
    else:
        name = "qr_batched_global_2" if m <= 512 else "qr_batched_global_4"
    r = cupy.empty((batch, k, n), a.dtype)
    q = cupy.empty((batch, m, k), a.dtype) if want_q or not shared else None
    kernels.get("qr_batched", name, a.dtype)(
        batch, threads, a, q, r, m, n, int(want_q), shared_mem=bytes_of(m, n, shared)
    )
    return q, r


# ---------------------------------------------------------------- panel by panel


def _panel_kernel(rows: int, narrow: bool) -> tuple[str, int]:
    """Return the name of the panel kernel for so many rows, and the number of blocks of its cluster."""
    if narrow:
        return "qr_panel_16_8", 16
    for cluster, each in ((1, 2), (1, 4), (8, 2), (16, 2), (16, 4)):
        if rows <= 256 * cluster * each:
            return f"qr_panel_{cluster}_{each}", cluster
    return "qr_panel_16_5", 16


def _merges(batch: int, m: int, n: int, dtype: np.dtype) -> bool:
    """Return whether panels are combined in blocks of `OUTER` columns, which are applied by matrix products."""
    return batch == 1 and min(m, n) >= 2 * OUTER and m * n >= LARGE[dtype.char] and _has_clusters()


class _Reflections(NamedTuple):
    """The reflections of A = (I − V₁T₁V₁ᵀ)(I − V₂T₂V₂ᵀ)⋯R, in blocks of `width` columns."""

    v: Array  # (batch, m, blocks * width): unit lower trapezoidal, the zeros written out
    t: Array  # (batch, blocks, width, width)
    inner: int  # columns of a panel


def _streaming(a: Array, mode: str) -> tuple[Any, Array]:
    _, m, n = a.shape
    k = min(m, n)
    exponent = cupy.full((len(a), n), _sizes(a.dtype).NO_EXPONENT, np.int32)
    chunks = min(-(-m // 64), 256)
    kernels.get("qr", "qr_exponents", a.dtype)((-(-n // 32), chunks, len(a)), (32, 8), a, exponent, m, n)
    if mode == "raw":
        work = _scale(a, exponent, -1)
        h = _factor(work)
        below = cupy.zeros_like(work)
        below[:, :, :k] = cupy.tril(h.v[:, :, :k], -1)
        tau = cupy.diagonal(h.t, axis1=-2, axis2=-1).reshape(len(a), -1)[:, :k]
        raw = _scale(work, exponent, 1) + below
        return cupy.ascontiguousarray(raw.swapaxes(-1, -2)), cupy.ascontiguousarray(tau)

    def factored(work: Array) -> Array | None:
        h = _factor(work)
        if mode == "r":
            return None
        q = cupy.zeros((len(a), m, m if mode == "complete" else k), a.dtype)
        columns = q.shape[2]
        q.reshape(len(a), -1)[:, : columns * columns : columns + 1] = 1  # the identity
        _apply_backwards(h, q)
        return q

    with replay(f"qr {mode}", factored, a) as graph:
        work = _scale(a, exponent, -1, None if graph is None else graph.input)
        q = factored(work) if graph is None else graph()
        r = _scale(work if mode == "complete" else work[:, :k], exponent, 1)
        return q if graph is None or q is None else q.copy(), r


def _scale(x: Array, exponent: Array, sign: int, y: Array | None = None) -> Array:
    """Return `x` with its columns multiplied by 2^(sign·exponent): exactly, and so that squares stay in range."""
    batch, m, n = x.shape
    y = cupy.empty(x.shape, x.dtype) if y is None else y
    kernels.get("qr", "qr_scale", x.dtype)(
        (-(-n // 32), min(-(-m // 64), 256), batch), (32, 8),
        x, x.strides[1] // x.itemsize, x.strides[0] // x.itemsize, exponent, y, m, n, sign,
    )  # fmt: skip
    return y


def _factor(work: Array) -> _Reflections:
    """Reduce each `work` (batch, m, n) to its triangle R in place."""
    batch, m, n = work.shape
    k, dtype = min(m, n), work.dtype
    sizes = _sizes(dtype)
    inner = sizes.NARROW if m > WIDE_ROWS else sizes.WIDE
    width = OUTER if _merges(batch, m, n, dtype) else inner
    blocks = -(-k // width)
    v = cupy.zeros((batch, m, blocks * width), dtype)
    h = _Reflections(v, cupy.zeros((batch, blocks, width, width), dtype), inner)
    if width == inner:
        for i in range(blocks):
            _factor_panel(work, i * width, h, n)
        return h

    # A panel keeps a few multiprocessors busy, a product all of them. So the columns of the next block are
    # updated first, and its panels run, with priority, while the rest is updated.
    gram, near = cupy.empty((width, width), dtype), _space(width, width, m, CHUNK // 2, dtype)
    far = _space(width, n, m, CHUNK, dtype)
    merge = kernels.get("qr", "qr_merge_t", dtype)
    caller, (panels, products) = cupy.cuda.get_current_stream(), side_streams()
    ready = caller.record()
    panels.wait_event(ready)
    products.wait_event(ready)
    for i, start in enumerate(range(0, k, width)):
        stop = min(start + width, k)
        edge = min(stop + width, n)
        v_i, t_i = v[0, start:, start : start + width], h.t[0, i]
        with panels:
            for j in range(start, stop, inner):
                _factor_panel(work, j, h, stop)
            _inner_products(v_i, v_i, gram, near, CHUNK // 2)
            merge(1, sizes.MERGE_THREADS, t_i, gram, width, inner, shared_mem=sizes.MERGE_BYTES)
            factored = panels.record()
            panels.wait_event(products.record())  # the next columns belonged to the last block's far columns
            _apply_product(work[0, start:, stop:edge], v_i, t_i, near, True)
        with products:
            products.wait_event(factored)
            _apply_product(work[0, start:, edge:], v_i, t_i, far, True)
    caller.wait_event(panels.record())
    caller.wait_event(products.record())
    return h


def _factor_panel(work: Array, j: int, h: _Reflections, stop: int) -> None:
    """Factor the `inner` columns from j on, and update the columns after them up to `stop`."""
    batch, m, n = work.shape
    width = h.t.shape[-1]
    columns, rows, ldv = min(h.inner, min(m, n) - j), m - j, h.v.shape[2]
    t_j = h.t[:, j // width, j % width :, j % width :]
    v_j = h.v[:, j:, j:]
    name, cluster = _panel_kernel(rows, h.inner == _sizes(work.dtype).NARROW)
    kernels.get("qr", name, work.dtype)(
        (cluster, 1, batch), 256,
        work[:, j:, j:], n, m * n, v_j, ldv, m * ldv, t_j, width, h.t[0].size, rows, columns,
    )  # fmt: skip
    _update(work[:, j:, j + columns : stop], v_j, t_j, h, True)


def _apply_backwards(h: _Reflections, q: Array) -> None:
    """Apply Q ← (I − V₁T₁V₁ᵀ)(I − V₂T₂V₂ᵀ)⋯Q to a Q that starts as the identity.

    Block i changes rows and columns from its first column on.
    """
    width = h.t.shape[-1]
    if width == h.inner:
        for i in reversed(range(h.t.shape[1])):
            start = i * width
            _update(q[:, start:, start:], h.v[:, start:, start:], h.t[:, i], h, False)
        return
    wide, chunk = FORMING[q.dtype.char]
    # A tall Q is so accurate that it needs no chunks.
    chunk = q.shape[1] if q.shape[1] >= 2 * q.shape[2] else chunk
    space = _space(wide, q.shape[2], q.shape[1], chunk, q.dtype)
    for start in reversed(range(0, h.v.shape[2], wide)):
        i, first = divmod(start, width)
        inside = slice(first, first + wide)  # T of some of a block's columns is a part of the block's T
        v_i, t_i = h.v[0, start:, start : start + wide], h.t[0, i, inside, inside]
        _apply_product(q[0, start:, start:], v_i, t_i, space, False, chunk)


def _update(c: Array, v: Array, t: Array, h: _Reflections, transpose: bool) -> None:
    """Apply C ← (I − VTVᵀ)C, or with Tᵀ, for the `inner` first columns of `v`, by the kernel for narrow V."""
    batch, rows, columns = c.shape
    if columns == 0:
        return
    item, sizes = c.dtype.itemsize, _sizes(c.dtype)
    strides = [x.strides for x in (c, v, t)]
    tiles = batch * -(-columns // sizes.TILE)
    # Clusters of blocks that share rows finish sooner while there are too few tiles to fill the GPU.
    cluster = 1
    if _has_clusters() and tiles < _properties().multiprocessors:
        cluster = 16 if rows > 2048 and tiles <= 16 else 8 if rows > 1024 or tiles <= 24 else 1
    name = f"qr_update_{cluster}"
    if h.inner == sizes.NARROW:
        name, cluster = "qr_update_narrow_16", 16
    kernels.get("qr", name, c.dtype)(
        (cluster, -(-columns // sizes.TILE), batch), sizes.UPDATE_THREADS,
        c, strides[0][1] // item, strides[0][0] // item, v, strides[1][1] // item, strides[1][0] // item,
        t, strides[2][1] // item, strides[2][0] // item, rows, columns, int(transpose),
    )  # fmt: skip


def _apply_product(c: Array, v: Array, t: Array, space: Array, transpose: bool, chunk: int = CHUNK) -> None:
    """Apply C ← (I − VTVᵀ)C, or with Tᵀ, as three products; `space` holds the intermediate ones."""
    width, columns = v.shape[1], c.shape[1]
    if columns == 0:
        return
    area = width * columns
    first, second = space[: 2 * area].reshape(2, width, columns)
    _inner_products(v, c, first, space[2 * area :], chunk)
    gemm(t.T if transpose else t, first, second)
    gemm(v, second, c, -1.0, 1.0)


def _space(width: int, columns: int, rows: int, chunk: int, dtype: np.dtype) -> Array:
    """Return the workspace of `_apply_product`, for `width` columns of V and `columns` of C, summed by chunks."""
    return cupy.empty((2 + min(rows // chunk, MOST_CHUNKS)) * width * columns, dtype)


def _inner_products(v: Array, c: Array, out: Array, space: Array, chunk: int) -> None:
    """Compute out = VᵀC, summed within chunks of rows in one batched product, and then over the chunks.

    A long sum in float32 rounds at every step relative to the size it has reached. That error, in VᵀC and above
    all in the VᵀV behind T, would raise ‖QᵀQ − I‖ of large matrices above LAPACK's.
    """
    rows, width = v.shape
    columns, item = c.shape[1], c.itemsize
    chunks = min(rows // chunk, MOST_CHUNKS)
    if chunks < 2:
        gemm(v.T, c, out)
        return
    size = rows // chunks
    parts = space[: chunks * width * columns].reshape(chunks, width, columns)
    ldc, ldv = c.strides[0] // item, v.strides[0] // item
    cublas_batch_at(
        c.dtype.char, (width, columns, size), 1.0, (v.data.ptr, ldv, size * ldv, True), (c.data.ptr, ldc, size * ldc),
        (parts.data.ptr, columns, width * columns), chunks,
    )  # fmt: skip
    if rows > size * chunks:
        gemm(v[size * chunks :].T, c[size * chunks :], parts[0], 1.0, 1.0)
    parts.sum(axis=0, out=out)


# ---------------------------------------------------------------- many more rows than columns


def _tall_skinny(a: Array, want_q: bool) -> tuple[Any, Array]:
    """TSQR (Demmel, Grigori, Hoemmen, Langou 2012): Q and R of blocks of rows, then of their stacked triangles."""
    batch, m, n = a.shape
    target = max(256, 2 * n) if n <= 256 else CLUSTER_ROWS // 2
    blocks = max(2, m // target)
    tall, many = -(-m // blocks), m % blocks or blocks  # `many` blocks of `tall` rows, the others one row less
    parts = cupy.zeros((batch, blocks, tall, n), a.dtype)
    edge = many * tall
    parts[:, :many] = a[:, :edge].reshape(batch, many, tall, n)
    if many < blocks:
        parts[:, many:, : tall - 1] = a[:, edge:].reshape(batch, blocks - many, tall - 1, n)
    parts = parts.reshape(batch * blocks, tall, n)
    mode = "reduced" if want_q else "r"
    q_parts, r_parts = _factors(parts, mode)
    q_top, r = _factors(r_parts.reshape(batch, blocks * n, n), mode)
    if not want_q:
        return None, r
    q_parts, q_top = map(cupy.ascontiguousarray, (q_parts, q_top))
    product = cupy.empty((batch, blocks, tall, n), a.dtype)
    cublas_batch_at(
        a.dtype.char, (tall, n, n), 1.0, (q_parts.data.ptr, n, tall * n, False), (q_top.data.ptr, n, n * n),
        (product.data.ptr, n, tall * n), batch * blocks,
    )  # fmt: skip
    q = cupy.empty((batch, m, n), a.dtype)
    q[:, :edge] = product[:, :many].reshape(batch, edge, n)
    if many < blocks:
        q[:, edge:] = product[:, many:, : tall - 1].reshape(batch, m - edge, n)
    return q, r


def _replayed(name: str, work: Callable[[Array], tuple[Any, Array]], a: Array) -> tuple[Any, Array]:
    """Return `work` on `a`, replayed as a CUDA graph if possible."""
    with replay(name, work, a) as graph:
        if graph is None:
            return work(a)
        graph.input[...] = a
        q, r = graph()
        return None if q is None else q.copy(), r.copy()

"""C = alpha op(A) op(B) + beta C on the GPU, on which every blocked algorithm of this package is built.

It works in place on row-major views (any leading dimension, any offset), and checks only errors that would
corrupt memory. `deblur.linalg.matmul` checks its arguments.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..device import Array, Shape, cupy
from ..errors import NoGPUError, check_choice
from ..graphs import CUBLAS_BYTES, capturing

#: A row-major matrix: address and distance between rows; for an operand, then whether it is transposed.
Place = tuple[int, ...]

ENGINES = {
    "cublas": "cuBLAS in the dtype itself",
    "tiled": "own kernel: shared-memory tiles, register blocking, no tensor cores",
    "split": "own kernel: float32 as three TF32 products on wgmma, summed outside the tensor cores (sm_90)",
    "half": "own kernel: as `split`, of scaled float16 parts: faster, accurate in norm (sm_90)",
}

# Packed operands take 8 bytes an element; a product that would need more than this is split along k.
WORKSPACE = 1 << 30

_SIZES, _WGMMA = kernels.Constants("matmul"), kernels.Constants("matmul_wgmma")


class _Operand(NamedTuple):
    """A matrix of rows x cols: the row-major `array` with leading dimension `ld`, or (`across`) its transpose."""

    array: Array
    rows: int
    cols: int
    ld: int
    across: bool


def _operand(x: Array, name: str) -> _Operand:
    (rows, cols), item = x.shape, x.itemsize
    across = x.strides[1] != item and cols > 1
    if across and x.strides[0] != item and rows > 1:
        raise ValueError(f"{name} has strides {x.strides}: one of its two axes must be contiguous")
    array = x.T if across else x
    ld = array.strides[0] // item if len(array) > 1 else array.shape[1]
    if ld < array.shape[1]:
        raise ValueError(f"{name} has strides {x.strides}: its rows overlap")
    return _Operand(array, rows, cols, max(ld, 1), across)


def _twins(x: _Operand, y: _Operand) -> bool:
    """Return whether one operand is the transpose of the other or of its first rows, in the same memory."""
    return x.array.data.ptr == y.array.data.ptr and x.ld == y.ld and x.across != y.across


def choose_engine(m: int, n: int, k: int, dtype: Any, engine: str = "auto") -> str:
    """Return the engine, a key of `ENGINES`, that `gemm` uses on the current device if `engine` is requested.

    "auto" is the fastest engine whose elements are all as accurate as the dtype's arithmetic. "fastest" includes
    `half`, which is as accurate in norm only.
    """
    check_choice(engine, ("auto", "fastest", *ENGINES), "engine")
    double = np.dtype(dtype) == np.float64
    capability = kernels.properties(cupy.cuda.runtime.getDevice()).capability
    if engine in ("auto", "fastest"):
        # benchmarks/bench_gpu_linalg.py measures where the engines' times cross.
        worth_packing = min(m, n) >= 256 and m * n >= 1 << 21 and k >= 128 and m * n * k >= 1 << 31
        if double or capability != 90 or not worth_packing:
            return "cublas"
        return "split" if engine == "auto" else "half"
    if double and engine in ("split", "half"):
        raise ValueError(f"engine {engine!r} is for float32: choose 'auto', 'cublas' or 'tiled'")
    if engine != "cublas" and capability != 90 and (engine != "tiled" or capability < 80):
        raise NoGPUError(
            f"engine {engine!r} needs compute capability {'8.0 or newer' if engine == 'tiled' else '9.0'}, "
            f"not {capability / 10}"
        )
    return engine


def gemm(
    a: Array, b: Array, c: Array, alpha: float = 1.0, beta: float = 0.0, lower_only: bool = False, engine: str = "auto"
) -> Array:
    """Compute C = alpha A B + beta C in place in `c`, and return it.

    Parameters
    ----------
    a, b : cupy.ndarray
        Shapes (m, k) and (k, n), dtype of `c`; views with one contiguous axis, such as the transpose ``x.T``
        of a row-major x. They may be the same array; neither may share memory with `c`.
    c : cupy.ndarray
        Shape (m, n), float32 or float64, row-major with any leading dimension. Not read if `beta` is 0.
    alpha, beta : float
        Scalars on the host.
    lower_only : bool
        Compute only c[i, j] with i >= j; elements above the diagonal keep their values.
    engine : str
        'auto', 'fastest' or a key of `ENGINES`; see `choose_engine`. cuBLAS computes a lower half only
        for B = A' in the same memory; otherwise `tiled` replaces it.
    """
    if a.shape[1] != len(b) or c.shape != (len(a), b.shape[1]):
        raise ValueError(f"a is {a.shape}, b is {b.shape} and c is {c.shape}: they do not fit")
    x, y, z = _operand(a, "a"), _operand(b, "b"), _operand(c, "c")
    m, n, k = x.rows, y.cols, x.cols
    if not (a.dtype == b.dtype == c.dtype) or c.dtype.char not in "fd":
        raise TypeError(f"a, b and c must all be float32 or all float64, not {a.dtype}, {b.dtype}, {c.dtype}")
    engine = choose_engine(m, n, k, c.dtype, engine)
    if m == 0 or n == 0:
        return c
    if z.across:
        raise ValueError(f"c has strides {c.strides}: it must be row-major")
    if lower_only and engine == "cublas" and m > n and k:  # the rows below the square are full
        gemm(a[:n], b, c[:n], alpha, beta, True, engine)
        gemm(a[n:], b, c[n:], alpha, beta, False, engine)
    elif engine == "tiled" or k == 0 or (lower_only and engine == "cublas" and (m < n or not _twins(x, y))):
        _tiled(x, y, z, alpha, beta, lower_only)
    elif engine in ("split", "half"):
        _wgmma(x, y, z, alpha, beta, lower_only, engine == "half")
    elif lower_only:
        _syrk(x, z, alpha, beta)
    else:
        char = c.dtype.char
        left, right, out = ((v.array.data.ptr, v.ld, v.across) for v in (x, y, z))
        cublas_at(char, (m, n, k), alpha, beta, left, right, out[:2])
    return c


def _tiled(x: _Operand, y: _Operand, z: _Operand, alpha: float, beta: float, lower_only: bool) -> None:
    c = z.array
    tiles = -(-z.rows // _SIZES.TILE) * -(-z.cols // _SIZES.TILE)
    kernels.get("matmul", "matmul_tiled", c.dtype)(
        tiles, 256, z.rows, z.cols, x.cols, x.array, x.ld, x.across, y.array, y.ld, y.across,
        c, z.ld, alpha, beta, lower_only, shared_mem=kernels.Constants("matmul", c.dtype).STAGES_BYTES,
    )  # fmt: skip


def _wgmma(x: _Operand, y: _Operand, z: _Operand, alpha: float, beta: float, lower_only: bool, half: bool) -> None:
    """Pack both operands, in slabs along k if they are large, and multiply."""
    m, n, k = z.rows, z.cols, x.cols
    blocks_m, blocks_n = -(-m // _SIZES.TILE), -(-n // _SIZES.TILE)
    depth = _depth(half)
    chunks = -(-k // depth)
    step = min(chunks, max(1024 // depth, WORKSPACE // (_WGMMA.SLOT * (blocks_m + blocks_n))))
    step = -(-chunks // -(-chunks // step))  # slabs of equal size
    name = "matmul_wgmma_half" if half else "matmul_wgmma"
    multiply = kernels.get("matmul_wgmma", name, np.float32)
    blocks = 2 * -(-blocks_m // 2) * -(-blocks_n // 2)
    for first in range(0, chunks, step):
        part = slice(first * depth, min((first + step) * depth, k))
        count = -(-(part.stop - part.start) // depth)
        of_a = x.array[part] if x.across else x.array[:, part]
        of_b = y.array[:, part] if y.across else y.array[part]
        if _twins(x, y):
            a, a_max = b, b_max = _pack(of_a if m >= n else of_b, x.ld, y.across, half)
        else:
            a, a_max = _pack(of_a, x.ld, not x.across, half)
            b, b_max = _pack(of_b, y.ld, y.across, half)
        multiply(
            blocks, 384, a, b, m, n, count, z.array, z.ld, alpha, beta, lower_only, a_max, b_max,
            shared_mem=_WGMMA.WGMMA_BYTES,
        )  # fmt: skip
        beta = 1.0


def _depth(half: bool) -> int:
    """Return the number of terms along k in a packed chunk."""
    return _WGMMA.SPAN // (2 if half else 4)


def _pack(x: Array, ld: int, along_k: bool, half: bool) -> tuple[Array, Array | None]:
    """Return high and low parts of an operand in the layout of matmul_wgmma.cu, and each row's largest element."""
    rows, k = x.shape if along_k else x.shape[::-1]
    grid = (-(-k // _depth(half)), -(-rows // _SIZES.TILE))
    packed = cupy.empty(grid[0] * grid[1] * _WGMMA.SLOT, np.uint8)
    if not half:
        kernels.get("matmul_wgmma", "matmul_pack", np.float32)(grid, 256, x, ld, along_k, rows, k, packed)
        return packed, None
    row_max = cupy.zeros(rows, np.float32)
    kernels.get("matmul_wgmma", "matmul_row_max", np.float32)(
        (-(-k // _WGMMA.PANEL), grid[1]), 256, x, ld, along_k, rows, k, row_max
    )
    kernels.get("matmul_wgmma", "matmul_pack_half", np.float32)(grid, 256, x, ld, along_k, rows, k, row_max, packed)
    return packed, row_max


@functools.cache
def _scalar(char: str, value: float) -> Any:
    """Return `value` at an address that cuBLAS can read, which stays valid."""
    return (ctypes.c_float if char == "f" else ctypes.c_double)(value)


def _scalar_at(char: str, value: float) -> int:
    return ctypes.addressof(_scalar(char, value))


def cublas_at(char: str, size: Shape, alpha: float, beta: float, a: Place, b: Place, c: Place) -> None:
    """Compute C = alpha op(A) op(B) + beta C by cuBLAS for row-major matrices, without any check.

    This is for chains of small products, for which making views on the host takes longer than the products on the
    device. `char` is the dtype's character, `size` is (m, n, k). Each matrix is a `Place`.
    """
    from cupy_backends.cuda.libs import cublas

    # CUDA_R_32F and CUDA_R_64F
    kind, compute = (0, cublas.CUBLAS_COMPUTE_32F) if char == "f" else (1, cublas.CUBLAS_COMPUTE_64F)
    m, n, k = size
    # Row-major C is column-major C', and C' = op(B)' op(A)': so B goes first.
    _call_cublas(
        "gemmEx", int(b[2]), int(a[2]), n, m, k, _scalar_at(char, alpha), b[0], kind, b[1], a[0], kind, a[1],
        _scalar_at(char, beta), c[0], kind, c[1], compute, cublas.CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip


def cublas_batch_at(char: str, size: Shape, alpha: float, a: Place, b: Place, c: Place, count: int) -> None:
    """Compute C = alpha op(A) B for `count` products of one shape, as `cublas_at` does.

    Each matrix is (address of the first, leading dimension, distance from one to the next), followed for
    A by whether op transposes.
    """
    m, n, k = size
    _call_cublas(
        "sgemmStridedBatched" if char == "f" else "dgemmStridedBatched", 0, int(a[3]), n, m, k,
        _scalar_at(char, alpha), *b, *a[:3], _scalar_at(char, 0.0), *c, count,
    )  # fmt: skip


def _call_cublas(name: str, *args: Any) -> None:
    """Call a cuBLAS function on the current stream, with a separate workspace.

    By default, cuBLAS shares one workspace among a handle's streams, and computes a product differently while another
    stream uses it: the last bits would depend on the progress of the device.
    """
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    handle, capture, library = device.get_cublas_handle(), capturing(), _library()
    stream = cupy.cuda.get_current_stream().ptr
    if capture is None and (library is None or cupy.cuda.runtime.streamIsCapturing(stream)):
        getattr(cublas, name)(handle, *args)  # CuPy's wrapper, which refuses a stream in capture
        return
    space = _space(stream) if capture is None else capture.cublas_space(stream)
    calls = [
        ("cublasSetStream_v2", (stream,)),
        ("cublasSetWorkspace_v2", None if space is None else (space.data.ptr, space.nbytes)),
        (_NAMES[name][0], args),
    ]
    for call, arguments in calls:
        status = 0 if arguments is None else getattr(library, call)(handle, *arguments)
        if status:
            raise RuntimeError(f"{call} failed: cuBLAS status {status}")


_spaces = threading.local()


def _space(stream: int) -> Array | None:
    """Return cuBLAS's workspace for one of this thread's streams, or None if there is no memory for it."""
    kept: dict[tuple[int, int], Array] = vars(_spaces).setdefault("kept", {})
    key = (cupy.cuda.runtime.getDevice(), stream)
    if key not in kept:
        while len(kept) >= 4:  # streams of a thread: the caller's, two side streams, and one more
            del kept[next(iter(kept))]
        with suppress(cupy.cuda.memory.OutOfMemoryError):
            kept[key] = cupy.empty(CUBLAS_BYTES, "u1")
    return kept.get(key)


_NAMES = {
    "gemmEx": ("cublasGemmEx", "iiiiippiipiippiiii"),
    "sgemmStridedBatched": ("cublasSgemmStridedBatched", "iiiiippilpilppili"),
    "dgemmStridedBatched": ("cublasDgemmStridedBatched", "iiiiippilpilppili"),
    "ssyrk": ("cublasSsyrk_v2", "iiiippippi"),
    "dsyrk": ("cublasDsyrk_v2", "iiiippippi"),
}


@functools.cache
def _library() -> Any:
    """Return cuBLAS as CuPy has loaded it, or None if its symbols are not found through CuPy's module."""
    from cupy_backends.cuda.libs import cublas

    kinds = {"i": ctypes.c_int, "l": ctypes.c_longlong, "p": ctypes.c_void_p}
    setters = ("cublasSetStream_v2", "p"), ("cublasSetWorkspace_v2", "pl")
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(cublas.__file__)
        for name, parameters in [*_NAMES.values(), *setters]:
            getattr(library, name).argtypes = [ctypes.c_void_p, *(kinds[p] for p in parameters)]
        return library
    return None


def _syrk(x: _Operand, z: _Operand, alpha: float, beta: float) -> None:
    """Compute the lower half of alpha op(A) op(A)' + beta C by cuBLAS, as the upper half of C'."""
    from cupy_backends.cuda.libs import cublas

    char = z.array.dtype.char
    _call_cublas(
        "ssyrk" if char == "f" else "dsyrk", cublas.CUBLAS_FILL_MODE_UPPER, int(not x.across), z.rows, x.cols,
        _scalar_at(char, alpha), x.array.data.ptr, x.ld, _scalar_at(char, beta), z.array.data.ptr, z.ld,
    )  # fmt: skip

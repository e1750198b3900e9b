"""Argument checks of all functions in `deblur.linalg`.

Each helper returns an array ready for computing, or raises an error that names the argument, the
offending value and a remedy.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import scipy

from ..device import Array, Device, all_true, as_real, asnumpy, check_finite, get_xp, is_cupy, unwrapped
from ..errors import SingularMatrixError, check_count, check_flags
from ..norms import normalized
from ..pixelwise import copied


def as_float(a: Any, name: str, *, dtype: np.dtype | None = None, finite: bool = True) -> Array:
    """Return `a` as a real floating-point array (see `device.as_real`), without NaN and infinity if `finite`.

    On a GPU, it raises an error while a stream is being captured.
    """
    if is_cupy(a):
        Device.of(a).refuse_capture("linear algebra")
    check_flags(check_finite=finite)
    a = as_real(a, name, dtype)
    if finite:
        check_finite(a, name)
    return a


def as_matrix(a: Any, name: str = "a", *, square: bool = False, finite: bool = True) -> Array:
    """Return `a` as a real floating-point matrix (m, n), or (n, n) if `square`; it may be `a` itself.

    Another shape raises LinAlgError, a ValueError, as in NumPy.
    """
    a = unwrapped(a, name)
    if a.ndim != 2:
        raise np.linalg.LinAlgError(f"{name} must be a matrix (2-D), not an array of shape {a.shape}")
    if square and a.shape[0] != a.shape[1]:
        raise np.linalg.LinAlgError(f"{name} must be square, not of shape {a.shape}")
    return as_float(a, name, finite=finite)


def as_rhs(b: Any, rows: int, name: str = "b", *, dtype: np.dtype | None = None, finite: bool = True) -> Array:
    """Return `b` as right-hand side(s) of a system with `rows` equations: shape (rows,) or (rows, k)."""
    b = unwrapped(b, name)
    if b.ndim not in (1, 2) or b.shape[0] != rows:
        raise ValueError(f"{name} must have shape ({rows},) or ({rows}, k), not {b.shape}")
    return as_float(b, name, dtype=dtype, finite=finite)


def as_system(a: Any, b: Any, names: tuple[str, str] = ("a", "b"), *, finite: bool = True) -> tuple[Array, Array]:
    """Return the matrix and right-hand side(s) of one system, in their common dtype; the latter are a copy.

    Raises
    ------
    TypeError
        If one is complex or sparse, or if only one is on the GPU.
    ValueError
        If the shapes do not match, or if `finite` and an entry is NaN or infinite.
    """
    a = as_matrix(a, names[0], square=True, finite=finite)
    b = as_rhs(b, a.shape[0], names[1], finite=finite)
    get_xp(a, b)  # refuses a mixture of host and device
    dtype = np.result_type(a.dtype, b.dtype)
    return a.astype(dtype, copy=False), copied(b, dtype) if b.flags.c_contiguous else b.astype(dtype, order="A")


def scratch(a: Array, given: Any, overwrite: bool, *, empty: bool = False) -> Array:
    """Return a contiguous array that may be destroyed, with the values of `a` or, if `empty`, without values.

    `a` is the result of `as_matrix` for the caller's argument `given`. `a` itself is returned if it is contiguous and
    either the caller allows it (`overwrite`) or it is already a converted copy. Otherwise it is copied.

    Raises
    ------
    ValueError
        If `a` is read-only and `overwrite` is set.
    """
    check_flags(overwrite_a=overwrite)
    xp = get_xp(a)
    lent = xp.may_share_memory(a, given)
    if overwrite and lent and not getattr(a.flags, "writeable", True):
        raise ValueError("a is read-only and cannot be overwritten: leave out overwrite_a=True")
    if (overwrite or not lent) and (a.flags.f_contiguous or a.flags.c_contiguous):
        return a
    return xp.empty_like(a) if empty else a.copy(order="K")


def position(k: int, last: int, size: int | None = None) -> int:
    """Return `k` as a position from 0 to `last`; a negative `k` counts backwards from `size` (by default `last`)."""
    size = last if size is None else size
    if not -size <= check_count(k, "k", -size) <= last:
        raise ValueError(f"k = {k} is out of bounds: {-size} to {last} are possible")
    return int(k) + size if k < 0 else int(k)


def as_block(u: Array, axis: int, length: int) -> Array:
    """Return `u` as a matrix of rows (axis 0) or columns (axis 1) of that length; a vector is one of them."""
    block = u if u.ndim != 1 else u[None] if axis == 0 else u[:, None]
    if block.ndim != 2 or block.shape[1 - axis] != length:
        needed = f"(P, {length})" if axis == 0 else f"({length}, P)"
        raise ValueError(f"u of shape {u.shape} does not fit: {needed} is needed")
    return block


def indices(which: Any, size: int, name: str) -> np.ndarray:
    """Return `which` (an integer, a slice or integers) as ascending indices without repetition."""
    if isinstance(which, slice):
        return np.sort(np.arange(size)[which])
    index = np.atleast_1d(asnumpy(unwrapped(which, name)))
    if index.size == 0:
        return np.zeros(0, dtype=int)
    if index.dtype.kind not in "iu" or index.ndim != 1:
        raise TypeError(f"{name} must be an integer, a slice or a list of integers, not {which!r}")
    if index.min() < -size or index.max() >= size:
        raise ValueError(f"{name} must lie between {-size} and {size - 1}, not {index.min()} to {index.max()}")
    unique = np.unique(index % size)
    if len(unique) != len(index):
        raise ValueError(f"{name} contains an index twice: {which!r}")
    return unique


def contiguous(a: Array) -> Array:
    """Return `a`, copied if its strides do not suit BLAS."""
    return a if a.flags.c_contiguous or a.flags.f_contiguous else a.copy()


def column_major(a: Array) -> tuple[Array, bool]:
    """Return `a` in a form that LAPACK takes without a copy, and whether it is transposed: a C-ordered `a` is.

    Only a non-contiguous `a` is copied.
    """
    if a.flags.f_contiguous:
        return a, False
    return (a.T, True) if a.flags.c_contiguous else (a.copy(order="F"), False)


_PIVOT = "the matrix is singular: pivot {}, counted from 0, is {:.3g}; regularise it (a larger lambda) or use lstsq"


def check_pivots(pivots: Array, first: int = 0, text: str = f"{_PIVOT} of NumPy or CuPy") -> None:
    """Raise SingularMatrixError for the first unusable pivot; the message has its position and value.

    A pivot is unusable if it is not finite, zero, or too small for its reciprocal to be represented. `first` is the
    position of ``pivots[0]`` in the matrix.
    """
    pivots = asnumpy(pivots)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        usable = np.isfinite(1 / pivots) & np.isfinite(pivots)
    if not usable.all():
        i = int(np.argmin(usable))
        raise SingularMatrixError(text.format(first + i, pivots[i]), index=first + i)


def check_rank(diagonal: Array, size: int, text: str) -> None:
    """Raise SingularMatrixError, with the column in its message, if an entry of R's diagonal vanishes to rounding."""
    entries = abs(asnumpy(diagonal))
    smallest = int(entries.argmin())
    if not entries[smallest] > size * np.finfo(entries.dtype).eps * entries.max():
        raise SingularMatrixError(text.format(smallest), smallest)


def check_inverse(a: Array, norm: float | None) -> None:
    """Raise SingularMatrixError if an inverse overflows; warn if it is inaccurate, by the matrix's `log2_norm`, if
    known.
    """
    check_overflow(a, "the inverse")
    if norm is not None:
        warn_ill_conditioned(2.0 ** -(norm + log2_norm(a)), a.dtype, 4)


def warn_ill_conditioned(rcond: float, dtype: np.dtype, stacklevel: int = 3) -> None:
    """Warn, as SciPy does, of a matrix whose reciprocal condition number is below eps."""
    if not rcond >= np.finfo(dtype).eps:
        warnings.warn(
            f"the matrix is ill-conditioned to {dtype} rounding (reciprocal condition number {rcond:.1e}): the result "
            "may have no correct digit; regularise it (a larger lambda), or use float64 or numpy.linalg.lstsq",
            scipy.linalg.LinAlgWarning,
            stacklevel=stacklevel,
        )


def log2_norm(a: np.ndarray, norm: str = "1") -> float:
    """Return log₂ of the 1-norm, or of the Frobenius norm "F", of a contiguous matrix; only a norm out of range takes a
    copy.
    """
    if a.size == 0:
        return -math.inf
    c, flipped = column_major(a)
    lange, norm = scipy.linalg.get_lapack_funcs("lange", (c,)), "I" if flipped and norm == "1" else norm
    value, power = float(lange(norm, c)), 0
    if not np.finfo(a.dtype).tiny < value < np.inf:
        c, power = normalized(c)
        value = float(lange(norm, c))
    return math.log2(value) + power if value else -math.inf


def triangle_rcond(a: np.ndarray, lower: bool, of_product: bool = False) -> float:
    """Return LAPACK's estimate of the reciprocal condition number, in the 1-norm, of a triangle L, or of L Lᵀ."""
    if len(a) == 0:
        return 1.0
    a, flipped = column_major(a)
    down = lower != flipped
    trcon, pocon = scipy.linalg.get_lapack_funcs(("trcon", "pocon"), (a,))

    def estimate(triangle: np.ndarray) -> float:
        if not of_product:
            return trcon(triangle, "I" if flipped else "1", uplo="UL"[down])[0]
        entries = abs(np.tril(triangle) if down else np.triu(triangle).T)
        with np.errstate(over="ignore"):
            norm = (entries @ entries.sum(axis=0)).max()  # of |L| |L|ᵀ, a bound of the norm of L Lᵀ
        return pocon(triangle, norm, uplo="UL"[down])[0]

    # LAPACK gives up and returns 0 if the inverse is near the end of the range. Only then a copy is scaled.
    return float(estimate(a) or estimate(normalized(np.tril(a) if down else np.triu(a))[0]))


def check_overflow(x: Array, what: str) -> None:
    """Raise SingularMatrixError if `x`, computed from finite data, is not finite."""
    if not all_true(get_xp(x).isfinite(x)):
        raise SingularMatrixError(f"{what} overflows the range of {x.dtype}: rescale or regularise the matrix")

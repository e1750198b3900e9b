"""Checks of the arguments of all functions in `deblur.linalg`.

Each helper returns the array ready to compute with, or raises with the
argument's name, the offending value and what to do about it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy

from ..device import Array, Device, all_true, as_real, asnumpy, check_finite, get_xp, is_cupy, unwrapped
from ..errors import SingularMatrixError, check_count, check_flags


def as_float(a: Any, name: str, *, dtype: np.dtype | None = None, finite: bool = True) -> Array:
    """`device.as_real`, checked for NaN and infinity if `finite`. On a GPU no stream may be in capture."""
    if is_cupy(a):
        Device.of(a).refuse_capture("linear algebra")
    check_flags(check_finite=finite)
    a = as_real(a, name, dtype)
    if finite:
        check_finite(a, name)
    return a


def as_matrix(a: Any, name: str = "a", *, square: bool = False, finite: bool = True) -> Array:
    """`a` as a real floating-point matrix, shape (m, n); (n, n) if `square`. It may be `a` itself.

    Another shape is a LinAlgError, as in NumPy, which is a ValueError.
    """
    a = unwrapped(a, name)
    if a.ndim != 2:
        raise np.linalg.LinAlgError(f"{name} must be a matrix (2-D), not an array of shape {a.shape}")
    if square and a.shape[0] != a.shape[1]:
        raise np.linalg.LinAlgError(f"{name} must be square, not of shape {a.shape}")
    return as_float(a, name, finite=finite)


def as_rhs(b: Any, rows: int, name: str = "b", *, dtype: np.dtype | None = None, finite: bool = True) -> Array:
    """`b` as right-hand side(s) of a system with `rows` equations: shape (rows,) or (rows, k)."""
    b = unwrapped(b, name)
    if b.ndim not in (1, 2) or b.shape[0] != rows:
        raise ValueError(f"{name} must have shape ({rows},) or ({rows}, k), not {b.shape}")
    return as_float(b, name, dtype=dtype, finite=finite)


def as_system(a: Any, b: Any, names: tuple[str, str] = ("a", "b"), *, finite: bool = True) -> tuple[Array, Array]:
    """Matrix, and right-hand side(s) that may be destroyed, of one system: matching shapes, their common dtype.

    Raises
    ------
    TypeError
        If one is complex, sparse, or on the GPU while the other is not.
    ValueError
        If the shapes do not fit, or if `finite` and something is NaN or infinite.
    """
    a = as_matrix(a, names[0], square=True, finite=finite)
    b = as_rhs(b, a.shape[0], names[1], finite=finite)
    get_xp(a, b)  # refuses a mixture of host and device
    dtype = np.result_type(a.dtype, b.dtype)
    return a.astype(dtype, copy=False), b.astype(dtype, order="A")


def scratch(a: Array, given: Any, overwrite: bool, *, empty: bool = False) -> Array:
    """A contiguous array with the values of `a` that may be destroyed, or, if `empty`, room for a result.

    `a` is what `as_matrix` made of the caller's `given`. It is returned itself where the caller allows it
    (`overwrite`) or where it is a converted copy already; otherwise, and where it is not contiguous, a copy is.
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
    """`k` counted from the front, of −size to `last`; size is `last` if not given."""
    size = last if size is None else size
    if not -size <= check_count(k, "k", -size) <= last:
        raise ValueError(f"k = {k} is out of bounds: {-size} to {last} are possible")
    return int(k) + size if k < 0 else int(k)


def as_block(u: Array, axis: int, length: int) -> Array:
    """`u` as a matrix of rows (axis 0) or columns (axis 1) of that length; one of them may be a vector."""
    block = u if u.ndim != 1 else u[None] if axis == 0 else u[:, None]
    if block.ndim != 2 or block.shape[1 - axis] != length:
        needed = f"(P, {length})" if axis == 0 else f"({length}, P)"
        raise ValueError(f"u of shape {u.shape} does not fit: {needed} is needed")
    return block


def indices(which: Any, size: int, name: str) -> np.ndarray:
    """`which` (an integer, a slice or integers) as ascending indices without repetition."""
    if isinstance(which, slice):
        return np.sort(np.arange(size)[which])
    index = np.atleast_1d(asnumpy(unwrapped(which, name)))
    if index.size == 0:
        return np.zeros(0, dtype=int)
    if index.dtype.kind not in "iu" or index.ndim != 1:
        raise TypeError(f"{name} must be an integer, a slice or a list of integers, not {which!r}")
    if index.min() < -size or index.max() >= size:
        raise ValueError(f"{name} reach from {index.min()} to {index.max()}, and there are {size}")
    unique = np.unique(index % size)
    if len(unique) != len(index):
        raise ValueError(f"{name} names something twice: {which!r}")
    return unique


def column_major(a: Array) -> tuple[Array, bool]:
    """What LAPACK can work on without a copy: `a`, or its transpose (and True) if `a` is in C order.

    Only a non-contiguous `a` is copied.
    """
    if a.flags.f_contiguous:
        return a, False
    return (a.T, True) if a.flags.c_contiguous else (a.copy(order="F"), False)


_PIVOT = "the matrix is singular: pivot {}, counted from 0, is {:.3g}; regularise it (a larger lambda) or use lstsq"


def check_pivots(pivots: Array, first: int = 0, text: str = f"{_PIVOT} of NumPy or CuPy") -> None:
    """Raise SingularMatrixError, with its place and value in the text, for the first pivot that cannot be divided by.

    A pivot is refused that is not finite, zero, or too small for its
    reciprocal to be represented. `first` is the position of ``pivots[0]`` in the matrix.
    """
    pivots = asnumpy(pivots)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        usable = np.isfinite(1 / pivots) & np.isfinite(pivots)
    if not usable.all():
        i = int(np.argmin(usable))
        raise SingularMatrixError(text.format(first + i, pivots[i]), index=first + i)


def check_rank(diagonal: Array, size: int, text: str) -> None:
    """Raise SingularMatrixError, with the column in the text, if an entry of R's diagonal vanishes to rounding."""
    entries = abs(asnumpy(diagonal))
    smallest = int(entries.argmin())
    if not entries[smallest] > size * np.finfo(entries.dtype).eps * entries.max():
        raise SingularMatrixError(text.format(smallest), smallest)


def check_inverse(a: Array, norm: float) -> None:
    """Raise SingularMatrixError if an inverse overflows; warn if with the matrix's norm, unless 0, it is inaccurate."""
    check_overflow(a, "the inverse")
    if norm:
        warn_ill_conditioned(1 / (norm * matrix_norm(a)), a.dtype, 4)


def warn_ill_conditioned(rcond: float, dtype: np.dtype, stacklevel: int = 3) -> None:
    """Warn of a matrix whose reciprocal condition number is below eps, as SciPy does."""
    if not rcond >= np.finfo(dtype).eps:
        warnings.warn(
            f"the matrix is ill-conditioned to {dtype} rounding (reciprocal condition number {rcond:.1e}): the result "
            "may have no right digit; regularise it (a larger lambda), or use float64 or numpy.linalg.lstsq",
            scipy.linalg.LinAlgWarning,
            stacklevel=stacklevel,
        )


def matrix_norm(a: np.ndarray, norm: str = "1") -> float:
    """The 1-norm or the Frobenius norm "F" of a contiguous matrix: no overflow on the way, no other of its size."""
    if a.size == 0:
        return 0.0
    c, flipped = column_major(a)
    return float(scipy.linalg.get_lapack_funcs("lange", (c,))("I" if flipped and norm == "1" else norm, c))


def triangle_rcond(a: np.ndarray, lower: bool, norm: str = "1") -> float:
    """LAPACK's estimate of a triangle's reciprocal condition number, in the 1-norm or the infinity norm "I"."""
    if len(a) == 0:
        return 1.0
    a, flipped = column_major(a)
    if flipped:
        norm = "I" if norm == "1" else "1"
    uplo = "L" if lower != flipped else "U"
    return float(scipy.linalg.get_lapack_funcs("trcon", (a,))(a, norm=norm, uplo=uplo)[0])


def check_overflow(x: Array, what: str) -> None:
    """Raise SingularMatrixError if `x`, computed from finite data, is not finite."""
    if not all_true(get_xp(x).isfinite(x)):
        raise SingularMatrixError(f"{what} overflows the range of {x.dtype}: rescale or regularise the matrix")

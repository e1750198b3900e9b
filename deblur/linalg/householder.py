"""Householder reflections: one column of zeros made by one mirror.

A reflection P = I − τvvᵀ is symmetric and orthogonal, and with v[0] = 1 it
takes two numbers less to store than it zeroes: v hides in the zeroed entries,
τ next to them.
"""

from __future__ import annotations

import math

import numpy as np

from ..device import Array, as_real, check_finite, float_dtype, get_xp

__all__ = ["apply_householder", "householder"]


def householder(x: Array) -> tuple[Array, float, float]:
    """The reflection that maps `x` onto a multiple of the first unit vector.

    (I − τvvᵀ) x = μe₁ with v[0] = 1 and |μ| = ‖x‖₂. The sign of μ is opposite
    to that of x[0], so that v's divisor x[0] − μ is a sum of two numbers of one
    sign and nothing cancels.

    Parameters
    ----------
    x : (m,) array_like
        A non-empty vector of finite numbers. float32 is computed in float32,
        everything else in float64.

    Returns
    -------
    v : (m,) array
        The mirror's normal, scaled so that v[0] = 1.
    tau : float
        Between 1 and 2; 0 where nothing is to be zeroed (x[1:] = 0 already), so
        that P = I and μ = x[0] keeps its sign, as LAPACK has it.
    mu : float
        The entry that is left. Infinite only if ‖x‖₂ itself passes the dtype's
        range.

    Raises
    ------
    ValueError
        If `x` is not a vector, is empty, or holds NaN or infinity.
    TypeError
        If `x` is complex or not numeric.

    Notes
    -----
    The vector is scaled by a power of two, which is exact, before it is
    squared: entries of 1e-300 or 1e300 neither underflow nor overflow.
    LAPACK's `larfg` is the model [1]_.

    References
    ----------
    .. [1] G. H. Golub, C. F. Van Loan, *Matrix Computations*, 4th ed., 2013,
       section 5.1.
    """
    xp = get_xp(x)
    v = as_real(x, "x").copy()
    if v.ndim != 1 or v.size == 0:
        raise ValueError(f"x must be a non-empty vector, not an array of shape {v.shape}")
    check_finite(v, "x")
    dtype = v.dtype
    largest = float(abs(v[1:]).max()) if v.size > 1 else 0.0
    if largest == 0:
        mu = float(v[0])
        v[0] = 1
        return v, 0.0, mu
    exponent = math.frexp(max(largest, abs(float(v[0]))))[1]
    v = xp.ldexp(v, -exponent)
    alpha = float(v[0])
    mu = -math.copysign(math.sqrt(float(xp.dot(v, v))), alpha)
    v /= dtype.type(alpha - mu)
    v[0] = 1
    with np.errstate(over="ignore"):  # an infinite mu is the documented answer, not an accident
        return v, (mu - alpha) / mu, float(np.ldexp(dtype.type(mu), exponent))


def apply_householder(v: Array, tau: float, a: Array, side: str = "left") -> Array:
    """P·A or A·P for P = I − τvvᵀ, at the cost of two passes over A and without forming P.

    Parameters
    ----------
    v : (m,) array
        The mirror's normal, in any scale that `tau` belongs to.
    tau : float
        The factor of vvᵀ.
    a : (m, n) array for ``side="left"``, (n, m) for ``side="right"``
        Also a vector of m entries. It is not changed.
    side : {"left", "right"}
        Which side of A the reflection stands on.

    Returns
    -------
    array of a's shape

    Raises
    ------
    ValueError
        If the lengths do not agree, or `side` is neither word.
    """
    xp = get_xp(v, a)
    v, a = xp.asarray(as_real(v, "v")), xp.asarray(as_real(a, "a"))
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right', not {side!r}")
    axis = 0 if side == "left" else a.ndim - 1
    if v.ndim != 1 or a.ndim not in (1, 2) or a.shape[axis] != v.size:
        raise ValueError(f"v of shape {v.shape} does not reflect A of shape {a.shape} from the {side}")
    dtype = float_dtype(v, a)
    v, a = v.astype(dtype, copy=False), a.astype(dtype, copy=False)
    scaled = dtype.type(tau) * v
    if a.ndim == 1:
        return a - scaled * (v @ a)
    if side == "left":
        return a - xp.outer(scaled, v @ a)
    return a - xp.outer(a @ v, scaled)

"""The two sweeps of QR updating, which annihilate p rows or columns by a triangle R.

- `sweep_down` annihilates p full rows below a triangle, from the first block
  of columns to the last.
- `sweep_up` annihilates p full columns next to a triangle, from the last block
  of rows to the first, which collects them in p rows at the top.

Right-hand sides are further columns of R: [R d] with d = Q'b. For CuPy arrays `sweeps_gpu` does the work.
"""

from __future__ import annotations

import numpy as np
import scipy

from ..device import Array, blocks, get_xp, is_cupy
from . import sweeps_gpu
from .qr import factor
from .triangular import inverse

BLOCK = 64  # columns (sweep_down) or rows (sweep_up) annihilated at a time
PANEL = 32  # reflections that share a T in sweep_up


def sweep_down(r: Array, u: Array, q: Array | None = None, e: Array | None = None) -> None:
    """Annihilate the rows `u` below the triangle `r`: Hᵀ [r; u] = [r̃; 0], and [q e] ← [q e] H. In place.

    Parameters
    ----------
    r : (t, t + s) array
        Upper trapezoidal: a triangle and s further columns.
    u : (p, t + s) array
        Full. Its first t columns become zero; H is applied to the others.
    q : (m, t) array, optional
        The columns of Q that belong to the rows of `r`.
    e : (m, p) array, optional
        The columns of Q that belong to the rows of `u`.

    Notes
    -----
    A block J of columns of [r; u] has the structure of LAPACK's `tpqrt`: its
    reflections are V = [I; v], in the rows of J and of u only, and the zeros of r
    are neither read nor written. The rest is products: 2pt(t + 2s) operations for
    r, 4mpt for Q.

    References
    ----------
    .. [1] R. Andrew, N. Dingle, "Implementing QR factorization updating algorithms
       on GPUs", Parallel Computing 40 (2014), section 3.3.
    """
    if 0 in (r.shape[0], u.shape[0]):
        return
    if is_cupy(r):
        sweeps_gpu.sweep_down(r, u, q, e)
        return
    for here in blocks(len(r), BLOCK):
        rest = slice(here.stop, None)
        r[here, here], v, tau = tpqrt(r[here, here], u[:, here], BLOCK)
        u[:, here] = 0
        reflect(v, tau, r[here, rest], u[:, rest])
        if q is not None and e is not None:
            reflect(v, tau, q[:, here].T, e.T)


def sweep_up(c: Array, z: Array, w: Array, r: Array, e: Array | None = None, q: Array | None = None) -> None:
    """Annihilate the columns `z` by the triangle `c`: Hᵀ [c; z] = [c̃; 0], and keep `r` a triangle. In place.

    Hᵀ [w; r] = [w̃; r̃] and [e q] ← [e q] H, with r̃ upper trapezoidal again.

    Parameters
    ----------
    c : (p, p) array
        Upper triangular, and stays so.
    z : (t, p) array
        Full; destroyed.
    w : (p, t + s) array
        The rows that belong to `c`. The first t columns must be zero.
    r : (t, t + s) array
        The rows that belong to `z`: a triangle and s further columns.
    e : (m, p) array, optional
        The columns of Q that belong to the rows of `c`.
    q : (m, t) array, optional
        The columns of Q that belong to the rows of `z`.

    Notes
    -----
    Rotations in the planes of one row of r (from the last to the first) and the
    rows of c would keep r a triangle by themselves. This is the classical
    algorithm, with one launch or one loop for each rotation. Here a block J of rows is taken
    at once, again with V = [I; v] of `tpqrt`. It fills the square r[J, J] and
    nothing else, and a QR factorisation of that square restores the triangle. The reflections
    depend on c and z alone, and the squares do not depend on each other: on the GPU the sweep is a
    few launches, whatever t is. With blocks of b rows, it takes 2pt(t + 2s) + bt(t + 2s)
    operations for r and (4p + 2b)mt for Q.
    """
    if 0 in z.shape:
        return
    if is_cupy(r):
        sweeps_gpu.sweep_up(c, z, w, r, e, q)
        return
    for here in reversed(blocks(len(z), BLOCK)):
        rest = slice(here.stop, None)
        c[...], v, tau = tpqrt(c, z[here], PANEL)
        reflect_panels(v, tau, w[:, here.start :], r[here, here.start :])
        if q is not None and e is not None:
            reflect_panels(v, tau, e.T, q[:, here].T)
        turn, r[here, here] = scipy.linalg.qr(r[here, here], check_finite=False)
        r[here, rest] = turn.T @ r[here, rest]
        if q is not None:
            q[:, here] = q[:, here] @ turn


def reflect(v: np.ndarray, t: np.ndarray, top: np.ndarray, below: np.ndarray) -> None:
    """Apply [top; below] ← (I − VTᵀVᵀ) [top; below] with V = [I; v], in place."""
    x = t.T @ (top + v.T @ below)
    top -= x
    below -= v @ x


def reflect_panels(v: np.ndarray, t: np.ndarray, top: np.ndarray, below: np.ndarray) -> None:
    """Apply `reflect` for each panel of `PANEL` columns of v in turn."""
    for panel in blocks(v.shape[1], PANEL):
        reflect(v[:, panel], t[: panel.stop - panel.start, panel], top[panel], below)


def tpqrt(a: np.ndarray, b: np.ndarray, panel: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the QR of a triangle `a` above a rectangle `b`: the new triangle, v of V = [I; v], and T by panels."""
    triangle, v, t, info = scipy.linalg.get_lapack_funcs("tpqrt", (a, b))(0, min(panel, len(a)), a, b)
    assert info == 0  # nonzero for a wrong argument only
    return triangle, v, t


def triangularise(columns: Array, rest: Array, q: Array | None) -> None:
    """Make `columns` (g, p) upper trapezoidal by reflections; apply them to `rest` (g, s) and q (m, g). In place."""
    if 0 in columns.shape:
        return
    xp = get_xp(columns)
    k = min(columns.shape)
    h, tau = factor(columns, "raw")
    h = h.T
    v = xp.tril(h[:, :k], -1) + xp.eye(len(h), k, dtype=h.dtype)
    v *= tau != 0  # a column that is zero below its diagonal is not reflected
    # T⁻¹ = strict upper triangle of VᵀV + diag(1/tau): Puglisi, SIAM J. Sci. Stat. Comput. 13 (1992).
    t = inverse(xp.triu(v.T @ v, 1) + xp.diag(1 / xp.where(tau == 0, 1, tau)), lower=False)
    columns[...] = xp.triu(h)
    if rest.shape[1]:
        rest -= v @ (t.T @ (v.T @ rest))
    if q is not None:
        q -= ((q @ v) @ t) @ v.T

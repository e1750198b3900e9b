"""Dense methods: HHᵀ + λI is written down, factored (or swept over), and kept.

Four methods share everything but the factorisation: ``cholesky``,
``gauss-jordan``, ``gauss-seidel`` and ``lu`` (SciPy's general solver, the
yardstick). All work on the matrix A = HHᵀ + λI of size n = M N pixels:

    tikhonov   f = Hᵀ (A⁻¹ g)          hht   f = A⁻¹ (Hᵀ g)

The products with Hᵀ go through `Blur.adjoint`; an inverse is formed only if
the problem asks for it (``inverse=True``), as the thesis does throughout.

An operation of `work` is one floating-point operation of the factorisation
(``setup``) or of one solve (``solve``).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ..backend import Array, require_memory
from ..blur import Blur
from ..errors import SingularMatrixError
from .base import Info, Problem, Work, backward_error

_INSTEAD = 'use method="auto" or a structured method (pcg, fft, dct, kronecker), which never writes H down'


def normal_matrix(blur: Blur, lam: float, dtype: Any = np.float64, xp: ModuleType = np) -> Array:
    """The dense matrix HHᵀ + λI, formed from the PSF without an n³ product.

    Parameters
    ----------
    blur : Blur
    lam : float
        Added to the diagonal.
    dtype : dtype
        float32 or float64.
    xp : module
        numpy, or cupy to build it on the GPU.

    Returns
    -------
    (M * N, M * N) array, symmetric

    Raises
    ------
    InsufficientMemoryError
        Before anything is allocated.
    """
    dtype = np.dtype(dtype)
    n = blur.shape[0]
    require_memory(n * n * dtype.itemsize, xp, f"A dense HHᵀ of {n} x {n} in {dtype}", _INSTEAD)
    if xp is not np:
        from .._gpu_blur import normal_matrix as on_gpu

        return on_gpu(blur, lam, dtype)
    if blur.boundary in ("zero", "unknown"):
        a = _almost_toeplitz(blur, dtype)
    else:
        h = blur.to_sparse()
        a = (h @ h.T).astype(dtype).toarray()
    a[np.diag_indices(n)] += dtype.type(lam)
    return a


def _almost_toeplitz(blur: Blur, dtype: np.dtype) -> np.ndarray:
    """HHᵀ for scenes that end (zero) or are seen whole (unknown).

    Pixels p and p + d share the scene pixels that both see, so
    (HHᵀ)[p, p + d] = sum over k of h[k] h[k + d], restricted to the k that lie inside the scene as
    seen from p. The restriction is one window for the rows and one for the columns: two thin products.
    """
    h, (rows, cols) = blur.psf, blur.image_shape
    m, n = h.shape
    size = rows * cols
    inside = []
    for count, length, origin in zip((rows, cols), h.shape, blur.origin, strict=True):
        seen = np.arange(count)[:, None] + origin - np.arange(length)  # scene index of PSF entry k at pixel i
        everywhere = blur.boundary == "unknown"
        inside.append(np.where(everywhere | ((seen >= 0) & (seen < count)), 1.0, 0.0))
    a = np.zeros((size, size), dtype)
    # a4[i, j, i', j'] couples pixel (i, j) with pixel (i', j').
    a4 = a.reshape(rows, cols, rows, cols)
    for d1 in range(m):
        for d2 in range(-(n - 1), n) if d1 else range(n):
            left, right = max(0, -d2), min(n, n - d2)
            w = h[: m - d1, left:right] * h[d1:, left + d2 : right + d2]
            if not w.any():
                continue
            v = inside[0][:, : m - d1] @ w @ inside[1][:, left:right].T
            i = np.arange(rows - d1)[:, None]
            j = np.arange(max(0, -d2), min(cols, cols - d2))
            a4[i, j, i + d1, j + d2] = v[i, j]
            a4[i + d1, j + d2, i, j] = v[i, j]
    return a


class _DenseFactor:
    """A kept factorisation (`solve_columns`: right-hand sides as columns) and the formula around it."""

    def __init__(self, problem: Problem, solve_columns: Any) -> None:
        self._problem = problem
        self._solve_columns = solve_columns

    def solve(self, g: Array) -> tuple[Array, Info]:
        blur = self._problem.blur
        if self._problem.formula == "tikhonov":
            z, info = self._solve_columns(_columns(g))
            return blur.adjoint(z.T.reshape(g.shape)), info
        f, info = self._solve_columns(_columns(blur.adjoint(g)))
        return f.T.reshape(g.shape), info


def _columns(images: Array) -> Array:
    return images.reshape(images.shape[0], -1).T


class Dense:
    """One dense method; `deblur.methods.METHODS` holds an instance for each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._factor = {
            "cholesky": _cholesky,
            "gauss-jordan": _gauss_jordan,
            "gauss-seidel": _gauss_seidel,
            "lu": _lu,
        }[name]

    def refuses(self, problem: Problem) -> str | None:
        if problem.formula == "hht" and problem.blur.boundary == "unknown":
            return HHT_UNKNOWN
        if problem.inverse and self.name == "lu":
            return "it is kept as the yardstick for solving; use cholesky or gauss-jordan for an inverse"
        return None

    def work(self, problem: Problem) -> Work:
        n = float(problem.blur.shape[0])
        per_solve = 2 * n * n
        matrix = n * n * problem.dtype.itemsize
        if self.name == "gauss-seidel":
            # Two sweeps and a product an iteration; conjugate gradients need about sqrt(condition) of them.
            iterations = min(n, 5 + np.sqrt(problem.blur.gain**2 / max(problem.lam, 1e-16)))
            return Work(0.0, 6 * n * n * float(iterations), 2 * matrix)
        factor = {"cholesky": n**3 / 3, "lu": 2 * n**3 / 3, "gauss-jordan": n**3}[self.name]
        if problem.inverse:
            factor = {"cholesky": n**3, "gauss-jordan": 2 * n**3}.get(self.name, factor)
        return Work(factor, per_solve, matrix)

    def prepare(self, problem: Problem) -> _DenseFactor:
        blur = problem.blur
        a = normal_matrix(blur, problem.lam, problem.dtype, problem.xp)
        try:
            return _DenseFactor(problem, self._factor(a, problem))
        except SingularMatrixError as error:
            raise SingularMatrixError(
                f"HHᵀ + λI with λ = {problem.lam:g} is singular to {problem.dtype} rounding ({error}); "
                "this blur loses some patterns altogether, so use a larger λ"
                + (" or float64 images" if problem.dtype == np.float32 else ""),
                error.index,
            ) from error


HHT_UNKNOWN = (
    'formula "hht" multiplies (HHᵀ + λI)⁻¹ with Hᵀ, and with boundary "unknown" H is wide so that their sizes '
    'differ; use formula="tikhonov"'
)


def _refuse_singular(rcond: float, dtype: np.dtype) -> None:
    if not (rcond > np.finfo(dtype).eps):
        raise SingularMatrixError(f"its reciprocal condition number is {rcond:.1e}")


def _norm1(a: Array) -> float:
    return float(abs(a).sum(axis=0).max())


def _cholesky(a: Array, problem: Problem) -> Any:
    from .. import linalg

    if problem.inverse:
        return _multiply_by(linalg.cholesky_inverse(a, overwrite_a=True), problem)
    norm = _norm1(a) if _close_to_singular(problem) else None
    factor = linalg.cholesky(a, overwrite_a=True)
    if norm is not None:
        if problem.xp is np:
            from scipy.linalg import get_lapack_funcs

            (pocon,) = get_lapack_funcs(("pocon",), (factor,))
            _refuse_singular(float(pocon(factor, norm, uplo="L")[0]), problem.dtype)
        else:
            d = factor.diagonal()
            _refuse_singular(float((d.min() / d.max()) ** 2), problem.dtype)
    return lambda b: (linalg.cholesky_solve(factor, b, check_finite=False), Info())


def _close_to_singular(problem: Problem) -> bool:
    """Whether λ alone keeps the matrix clear of singular; a condition estimate is spent only where not."""
    n_eps = problem.blur.shape[0] * float(np.finfo(problem.dtype).eps)
    return problem.lam < n_eps * problem.blur.gain**2


def _gauss_jordan(a: Array, problem: Problem) -> Any:
    from .. import linalg

    if problem.inverse or _close_to_singular(problem):
        # The condition number needs the inverse, and once it is there it serves for solving too.
        norm = _norm1(a)
        inverse = linalg.gauss_jordan_inverse(a, overwrite_a=True)
        _refuse_singular(1.0 / (norm * _norm1(inverse)), problem.dtype)
        return _multiply_by(inverse, problem)
    # Gauss-Jordan elimination reduces A to the identity and keeps no factor: each new set of images
    # repeats it, unless the inverse is kept. It is kept from the second set on.
    kept: dict[str, Array] = {}

    def solve(b: Array) -> tuple[Array, Info]:
        if "inverse" in kept:
            return kept["inverse"] @ b, Info()
        if "used" in kept:
            kept["inverse"] = linalg.gauss_jordan_inverse(a, overwrite_a=True)
            return kept["inverse"] @ b, Info()
        kept["used"] = a
        return linalg.gauss_jordan_solve(a, b), Info()

    return solve


def _multiply_by(inverse: Array, problem: Problem) -> Any:
    return lambda b: (inverse @ b, Info(note="the inverse was formed, as asked"))


def _lu(a: Array, problem: Problem) -> Any:
    norm = _norm1(a)
    if problem.xp is np:
        import warnings

        from scipy.linalg import LinAlgWarning, get_lapack_funcs, lu_factor, lu_solve

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LinAlgWarning)  # an exact zero pivot shows in rcond below
            factor = lu_factor(a, overwrite_a=True, check_finite=False)
        (gecon,) = get_lapack_funcs(("gecon",), (factor[0],))
        _refuse_singular(float(gecon(factor[0], norm)[0]), problem.dtype)
    else:
        from cupyx.scipy.linalg import lu_factor, lu_solve

        factor = lu_factor(a, overwrite_a=True, check_finite=False)
        pivots = abs(factor[0].diagonal())
        _refuse_singular(float(pivots.min() / pivots.max()), problem.dtype)
    return lambda b: (lu_solve(factor, b, check_finite=False), Info())


def _gauss_seidel(a: Array, problem: Problem) -> Any:
    from .. import linalg

    eps, n = float(np.finfo(problem.dtype).eps), len(a)
    rtol = problem.rtol
    if rtol is None:
        # With A x = b − r the image is off by A⁻¹r ("hht"), or by HᵀA⁻¹r ("tikhonov"), where ‖A⁻¹‖ <= 1/λ
        # and ‖HᵀA⁻¹‖ <= 1/(2 √λ). This residual leaves an error of about 1e-9.
        scale = problem.lam if problem.formula == "hht" else problem.lam**0.5
        rtol = max(1e-9 * min(scale, 1.0), 4 * eps)
    sweeps = 20_000 if problem.max_iterations is None else problem.max_iterations

    def run(b: Array) -> tuple[Array, Info]:
        x, info = linalg.gauss_seidel(
            a, b, rtol=rtol, max_sweeps=sweeps, acceleration="cg", callback=problem.callback
        )
        if info.status != "stagnated" or problem.rtol is not None or _close_to_singular(problem):
            return x, Info(info.sweeps, info.converged, info.reason)
        # Rounding may forbid the residual aimed at; then the backward error decides.
        backward = backward_error(problem, info.relative_residual, x, b)
        reached = backward <= 4 * eps * n**0.5
        note = f"stopped at a backward error of {backward:.1e}, all that {problem.dtype} allows"
        return x, Info(info.sweeps, reached, note if reached else info.reason)

    if not problem.inverse:
        return run
    inverse, said = run(problem.xp.eye(n, dtype=problem.dtype))
    return lambda b: (inverse @ b, said)

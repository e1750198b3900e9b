"""Method ``hybrid-lsqr``: Golub-Kahan bidiagonalisation with the regularised small problem.

k steps started from the image g give orthonormal images U = [u_1 … u_{k+1}]
and scenes V = [v_1 … v_k] with

    H V = U B,    Hᵀ U = V Bᵀ + α_{k+1} v_{k+1} eᵀ_{k+1},    g = β_1 u_1,

where B, (k + 1, k), is lower bidiagonal: α_1 … α_k on the diagonal and
β_2 … β_{k+1} below it. In the scenes V y the Tikhonov problem is a small one,

    minimise ‖B y − β_1 e_1‖² + λ ‖y‖² ,

and B does not depend on λ: one bidiagonalisation serves every λ. The residual
of the normal equations is known without a product,

    ‖Hᵀ(g − H V y) − λ V y‖ = α_{k+1} β_{k+1} |y_k| ,

and stops the iteration. Both bases are kept and every new vector is
orthogonalised against all of them; without that the vectors lose their
orthogonality and the formula its meaning.

An operation of `work` is one multiply-add.

References
----------
G. Golub, W. Kahan, SIAM J. Numer. Anal. 2 (1965) 205-224. C. C. Paige, M. A.
Saunders, LSQR, ACM TOMS 8 (1982) 43-71. D. P. O'Leary, J. A. Simmons, A
bidiagonalization-regularization procedure, SIAM J. Sci. Stat. Comput. 2
(1981) 474-489.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from ..backend import Array, asnumpy, check_finite, float_dtype, get_xp, require_memory
from ..blur import Blur
from .base import Factor, Info, Problem, Work
from .spectrum import all_cores

if TYPE_CHECKING:
    from ..regularization import LambdaChoice

DEFAULT_RTOL = 1e-8
DEFAULT_STEPS = 500
_BLOCK = 16  # basis vectors are allocated in blocks of this many


class Bidiagonalization:
    """The Golub-Kahan bidiagonalisation of a blur, started from images and grown step by step.

    Parameters
    ----------
    blur : Blur
    g : (k, M, N) array
        The images; each has a bidiagonalisation of its own, all advance together.
    keep : bool
        Keep both bases and orthogonalise against them. False keeps no basis:
        B then comes from the short recurrences alone, which is enough for
        quadrature (the spectral measure of g), not for solutions.

    Attributes
    ----------
    steps : int
        Steps taken.
    alphas, betas : list of (k,) ndarray
        α_1 … α_{steps + 1} and β_1 … β_{steps + 1}, zero from where a frame's Krylov space is exhausted.
    """

    def __init__(self, blur: Blur, g: Array, keep: bool = True) -> None:
        self._blur, self._keep = blur, keep
        self._xp = get_xp(g)
        self._v_blocks: list[Array] = []
        self._u_blocks: list[Array] = []
        self.steps = 0
        self._tiny = 8 * float(np.finfo(g.dtype).eps)
        self._norm_h = 0.0
        beta, self._u = self._normalised(g, 0.0)
        self.betas = [beta]
        alpha, self._v = self._normalised(blur.adjoint(self._u), 0.0)
        self.alphas = [alpha]
        self._norm_h = float(alpha.max())
        self._store()

    def _normalised(self, x: Array, floor: float) -> tuple[np.ndarray, Array]:
        """The norms of the frames of `x`, and `x` divided by them; both zero where the norm is rounding."""
        norm = self._xp.sqrt((x * x).sum(axis=(-2, -1), dtype=np.float64))
        norm = norm * (norm > floor)
        inverse = 1 / (norm + (norm == 0)) * (norm > 0)
        return asnumpy(norm), x * inverse[:, None, None].astype(x.dtype)

    def _store(self) -> None:
        if not self._keep:
            return
        for blocks, x in ((self._u_blocks, self._u), (self._v_blocks, self._v)):
            at = self.steps % _BLOCK
            if at == 0:
                blocks.append(self._xp.empty((len(x), _BLOCK, x[0].size), x.dtype))
            blocks[-1][:, at] = x.reshape(len(x), -1)

    def _orthogonalised(self, x: Array, blocks: list[Array], count: int) -> Array:
        flat = x.reshape(len(x), -1, 1)
        for i, block in enumerate(blocks):
            basis = block[:, : count - i * _BLOCK]
            flat = flat - basis.swapaxes(1, 2) @ (basis @ flat)
        return flat.reshape(x.shape)

    def step(self) -> None:
        """One step: a product with H and one with Hᵀ."""
        column = (slice(None), None, None)
        xp, dtype, kept = self._xp, self._u.dtype, self.steps + 1
        u = self._blur.forward(self._v) - xp.asarray(self.alphas[-1].astype(dtype))[column] * self._u
        u = self._orthogonalised(u, self._u_blocks, kept)
        beta, self._u = self._normalised(u, self._tiny * self._norm_h)
        v = self._blur.adjoint(self._u) - xp.asarray(beta.astype(dtype))[column] * self._v
        v = self._orthogonalised(v, self._v_blocks, kept)
        self._norm_h = max(self._norm_h, float(beta.max()))
        alpha, self._v = self._normalised(v, self._tiny * self._norm_h)
        self._norm_h = max(self._norm_h, float(alpha.max()))
        self.betas.append(beta)
        self.alphas.append(alpha)
        self.steps += 1
        self._store()

    @property
    def exhausted(self) -> bool:
        """Whether every frame's Krylov space is used up: the small problem is then the whole problem."""
        return bool(np.all((self.alphas[-1] == 0) | (self.betas[-1] == 0)))

    def matrix(self, frame: int) -> np.ndarray:
        """B of one frame, (steps + 1, steps), float64."""
        k = self.steps
        b = np.zeros((k + 1, k))
        i = np.arange(k)
        b[i, i] = [a[frame] for a in self.alphas[:k]]
        b[i + 1, i] = [a[frame] for a in self.betas[1:]]
        return b

    def residual(self, lam: float) -> float:
        """The largest ‖Hᵀ(g − Hf) − λf‖ / ‖Hᵀg‖ of the frames for f = V y at this λ, known without a product."""
        worst = 0.0
        for frame in range(len(self.betas[0])):
            scale = self.alphas[0][frame] * self.betas[0][frame]
            if scale > 0:
                # O(k): the tridiagonal BᵀB + λI; good enough to stop by, `coefficients` solves afresh.
                a = np.array([x[frame] for x in self.alphas[: self.steps]])
                b = np.array([x[frame] for x in self.betas[1:]])
                band = np.zeros((2, self.steps))
                band[1] = a * a + b * b + lam
                band[0, 1:] = b[:-1] * a[1:]
                band[1] += band[1] == 0  # what lies beyond an exhausted space
                right = np.zeros(self.steps)
                right[0] = scale
                last = right[0] / band[1, 0]
                if self.steps > 1:
                    last = scipy.linalg.solveh_banded(band, right)[-1]
                worst = max(worst, float(self.alphas[-1][frame] * b[-1] * abs(last) / scale))
        return worst

    def coefficients(self, lam: float) -> np.ndarray:
        """y of every frame, (k, steps), float64: the small least-squares problem through its SVD."""
        out = []
        for frame in range(len(self.betas[0])):
            p, s, qt = np.linalg.svd(self.matrix(frame), full_matrices=False)
            denominator = s * s + lam
            weights = s / (denominator + (denominator == 0))
            out.append((weights * p[0] * self.betas[0][frame]) @ qt)
        return np.array(out)

    def scene(self, lam: float) -> Array:
        """f = V y, (k, P, Q): the Tikhonov solution at this λ in the space spanned so far."""
        xp, y = self._xp, self.coefficients(lam)
        f = xp.zeros((len(y), self._v[0].size), self._v.dtype)
        for i, block in enumerate(self._v_blocks):
            part = xp.asarray(y[:, i * _BLOCK : (i + 1) * _BLOCK].astype(f.dtype))
            f += (part[:, None, :] @ block[:, : part.shape[1]])[:, 0]
        return f.reshape(self._v.shape)

    def measure(self) -> tuple[np.ndarray, np.ndarray]:
        """The spectral measure of g that B knows: Ritz values of HHᵀ and the squared parts of g at them.

        Sums of a function of HHᵀ over it, Σ weight · φ(value), are the Gauss quadrature of
        gᵀ φ(HHᵀ) g (Golub & von Matt, J. Comput. Graph. Stat. 6 (1997) 1-34). All frames together.
        """
        values, weights = [], []
        for frame in range(len(self.betas[0])):
            p, s, _ = np.linalg.svd(self.matrix(frame))
            values.append(np.append(s * s, 0.0))
            weights.append((self.betas[0][frame] * p[0]) ** 2)
        return np.concatenate(values), np.concatenate(weights)


def require_bases(blur: Blur, steps: int, frames: int, dtype: Any, xp: Any) -> None:
    """Raise InsufficientMemoryError if `steps` pairs of basis vectors would not fit."""
    needed = (steps + 1 + _BLOCK) * sum(blur.shape) * frames * np.dtype(dtype).itemsize
    require_memory(
        needed,
        xp,
        f"A bidiagonalisation of {steps} steps, which keeps {steps} images and scenes a frame,",
        "give a smaller max_iterations or a larger λ, or use method 'pcg', which keeps five",
    )


# ---------------------------------------------------------------------------------------------
# The call
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HybridSolution:
    """What `hybrid_lsqr` found.

    Attributes
    ----------
    scene : (..., P, Q) array
        The Tikhonov solution at `lam`.
    lam : float
    choice : LambdaChoice or None
        The curve, if a rule chose λ.
    iterations : int
        Steps of the bidiagonalisation.
    residual : float
        ‖Hᵀ(g − Hf) − λf‖ / ‖Hᵀg‖, measured with the blur; the largest of the frames.
    converged : bool
    note : str
        Why it stopped.
    dual : (..., M, N) array
        (g − Hf)/λ, which is (HHᵀ + λI)⁻¹ g: what to start the next, similar image from.
    bases : Bidiagonalization
        For other λ at no further product: ``bases.scene(lam)``, ``bases.residual(lam)``.
    """

    scene: Array
    lam: float
    choice: LambdaChoice | None
    iterations: int
    residual: float
    converged: bool
    note: str
    dual: Array
    bases: Bidiagonalization


def hybrid_lsqr(
    blur: Blur,
    g: Array,
    lam: float | str,
    *,
    noise: float | None = None,
    rtol: float = DEFAULT_RTOL,
    max_iterations: int | None = None,
    start: Array | None = None,
    callback: Any = None,
) -> HybridSolution:
    """Tikhonov deblurring by Golub-Kahan bidiagonalisation, at a given λ or at one found on the way.

    Parameters
    ----------
    blur : Blur
        Any PSF and boundary.
    g : (..., M, N) array
        Image or stack of images. NumPy or CuPy; float32 is kept, all else becomes float64.
    lam : float or {"gcv", "discrepancy", "lcurve", "upre"}
        λ > 0, or the rule that chooses it (`deblur.regularization.choose_lambda`) from
        the bidiagonalisation itself. The iteration goes on until the rule's λ has settled
        and the solution at it has converged.
    noise : float, optional
        Standard deviation of the noise, for the rules that need it; estimated if not given.
    rtol : float
        Relative residual of the normal equations to stop at.
    max_iterations : int, optional
        Most steps, 500 by default; each keeps one image and one scene of memory.
    start : (..., M, N) array, optional
        Warm start: the `dual` of a similar image solved before. Only with a given λ.
    callback : callable, optional
        Called after each step with (step, relative residual).

    Returns
    -------
    HybridSolution

    Raises
    ------
    ValueError
        For λ that is not positive, an unknown rule, a warm start with a rule, images of the wrong
        shape or not finite.
    InsufficientMemoryError
        If the bases would not fit, before they are allocated.

    Notes
    -----
    A warm start works on the residual of (HHᵀ + λI) z = g. With r = g − (HHᵀ + λI) z₀ the solution is
    f = Hᵀ z₀ + Hᵀ(HHᵀ + λI)⁻¹ r: the same iteration, started from a smaller image.
    """
    from .. import regularization

    xp = get_xp(g)
    g = xp.asarray(g)
    g = g.astype(float_dtype(g), copy=False)
    if g.ndim < 2 or g.shape[-2:] != blur.image_shape:
        raise ValueError(f"the image must have shape (..., {blur.image_shape[0]}, {blur.image_shape[1]}), "
                         f"not {g.shape}")  # fmt: skip
    check_finite(g, "the image")
    rule = lam if isinstance(lam, str) else None
    if rule is not None and start is not None:
        raise ValueError("a warm start belongs to one λ: give λ as a number, or leave out start")
    if rule is None and not (np.isfinite(lam) and float(lam) > 0):
        raise ValueError(f"hybrid-lsqr needs λ > 0, not {lam!r}")
    steps = DEFAULT_STEPS if max_iterations is None else int(max_iterations)
    steps = max(1, min(steps, *blur.shape))
    lead, stack = g.shape[:-2], g.reshape(-1, *blur.image_shape)
    require_bases(blur, steps, len(stack), g.dtype, xp)

    right, scale = stack, xp.asarray(1.0, g.dtype)
    offset: Any = 0.0
    if start is not None:
        z = xp.asarray(start).astype(g.dtype, copy=False).reshape(stack.shape)
        offset = blur.adjoint(z)
        right = stack - blur.forward(offset) - g.dtype.type(float(lam)) * z
        wanted = xp.sqrt((blur.adjoint(stack) ** 2).sum(axis=(-2, -1)))
        have = xp.sqrt((blur.adjoint(right) ** 2).sum(axis=(-2, -1)))
        # The small problem measures its residual against its own start; the user means the image's.
        ratio = wanted / (have + (have == 0))
        scale = (ratio * (have > 0)).min() if bool((have > 0).any()) else xp.asarray(np.inf)
    tolerance = rtol * float(scale)

    bases = Bidiagonalization(blur, right)
    sums = None
    choice: LambdaChoice | None = None
    if rule is not None:
        regularization.check_rule(rule)
        sums = regularization.Settling(blur, stack, rule, noise=noise)
    value = 0.0 if rule is not None else float(lam)
    residual = np.inf
    while bases.steps < steps and not bases.exhausted and residual > tolerance:
        bases.step()
        if sums is not None:
            settled = sums.update(bases, last=bases.steps == steps or bases.exhausted)
            if settled is None:
                continue
            choice = settled
            value = choice.lam
        residual = bases.residual(value)
        if callback is not None:
            callback(bases.steps, residual / float(scale))
    if rule is not None and choice is None:  # an image without a single step: zero everywhere
        assert sums is not None
        choice = sums.update(bases, last=True)
        assert choice is not None
        value = choice.lam
    scene = bases.scene(value) + offset if bases.steps else xp.zeros_like(blur.adjoint(stack)) + offset

    misfit = stack - blur.forward(scene)
    normal = blur.adjoint(misfit) - g.dtype.type(value) * scene
    size = xp.sqrt((blur.adjoint(stack) ** 2).sum(axis=(-2, -1), dtype=np.float64))
    error = xp.sqrt((normal**2).sum(axis=(-2, -1), dtype=np.float64))
    measured = float((error / (size + (size == 0))).max())
    # What the recurrence says can only be reached to rounding: eps ‖H‖²/λ of the scene, at worst.
    floor = 50 * float(np.finfo(g.dtype).eps)
    converged = measured <= max(1.1 * rtol, floor)
    if converged:
        note = f"residual {measured:.1e} after {bases.steps} steps"
    else:
        note = (
            f"residual {measured:.1e} after {bases.steps} of at most {steps} steps, {rtol:g} was asked for: "
            "use a larger λ, more steps (max_iterations) or method 'pcg'"
        )
    return HybridSolution(
        scene=scene.reshape(*lead, *blur.scene_shape),
        lam=value,
        choice=choice,
        iterations=bases.steps,
        residual=measured,
        converged=converged,
        note=note,
        dual=(misfit / g.dtype.type(value)).reshape(g.shape),
        bases=bases,
    )


# ---------------------------------------------------------------------------------------------
# The method
# ---------------------------------------------------------------------------------------------


def _rtol(problem: Problem) -> float:
    if problem.rtol is not None:
        return problem.rtol
    return DEFAULT_RTOL if problem.dtype == np.float64 else 1e-5


def _expected_steps(problem: Problem) -> int:
    """Steps to `rtol` by the bound of conjugate gradients, ‖H‖ taken as the PSF's absolute sum."""
    condition = problem.blur.gain / np.sqrt(problem.lam)
    most = problem.max_iterations or DEFAULT_STEPS
    return int(np.clip(0.5 * condition * np.log(2 / _rtol(problem)), 1, min(most, *problem.blur.shape)))


def refuses(problem: Problem) -> str | None:
    """None if the method serves this problem, else the reason in words."""
    if problem.formula != "tikhonov":
        return "it solves the least-squares problem, which is formula 'tikhonov' and not 'hht'"
    if not problem.lam > 0:
        return "it needs λ > 0: without it the iteration only stops where the noise has taken over"
    return None


def work(problem: Problem) -> Work:
    """Products and orthogonalisation of the steps that the bound of conjugate gradients expects."""
    k = _expected_steps(problem)
    pixels = sum(problem.blur.shape) / 2
    transforms = 4 * 2.5 * pixels * np.log2(pixels + 1)
    steps = k * transforms + 2 * k * k * sum(problem.blur.shape) / 2
    most = problem.max_iterations or DEFAULT_STEPS
    size = min(most, 2 * k) * sum(problem.blur.shape) * problem.frames * problem.dtype.itemsize
    return Work(0.0, steps * problem.frames, size)


class HybridFactor:
    """The prepared solver. Nothing can be prepared without an image; `dual` is kept for a warm start."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.solution: HybridSolution | None = None

    def solve(self, g: Array, start: Array | None = None) -> tuple[Array, Info]:
        """Scenes (k, P, Q) for images (k, M, N); `start` as for `hybrid_lsqr`."""
        p = self._problem
        with all_cores():
            self.solution = s = hybrid_lsqr(
                p.blur,
                g,
                p.lam,
                rtol=_rtol(p),
                max_iterations=p.max_iterations,
                start=start,
                callback=p.callback,
            )
        return s.scene, Info(s.iterations, s.converged, s.note)


def prepare(problem: Problem) -> Factor:
    """A solver that bidiagonalises afresh for every image."""
    return HybridFactor(problem)

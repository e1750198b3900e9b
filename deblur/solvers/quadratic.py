"""Weighted least squares with a quadratic regularizer: one linear system, by preconditioned conjugate gradients.

With Gaussian data fidelity and no bounds the problem is (HᵀWH + λLᵀL) f = HᵀW(g − b). The preconditioner is the same
operator with W replaced by its mean and H by the mean blur on ADMM's domain, where it is diagonal in frequency. It
equals the operator without weights if the boundary wraps, or if the boundary is "reflect", the regularizer "gradient"
and the PSF symmetric along each axis: the first step then is the direct solution. With bounds or another data fidelity,
ADMM solves the problem.

Inside a wide hole of the weights, the mean weight is far too large for all that changes slowly. There ΦTΦ is added to
the preconditioner, for smoothings Φ over 0, 1, 3, 11, … pixels [1]_. Let A be the system's matrix, s = HᵀWH1, and T the
diagonal with T⁻¹ = Φs + λ max |Φ|²|L|². H and Φ have no negative entry, so HᵀWH ≤ diag(s), and neither Φ1 nor
differences grow by a crop. Hence ΦTΦ ≤ A⁻¹ on the range of Φ: each smoothing raises an eigenvalue of the preconditioned
system by at most one, and lowers none.

If the regularizer is ‖f‖², a residual r leaves an error of the scene of up to ‖r‖/λ. Without a user's tolerance, the
iteration ends when the relative residual is at most 1e-6 and this error is at most 0.5 % of the scene. Differences
determine the inside of a hole less well: with them, the second half of the iterations must also have moved the scene by
at most 1 %. If float32 cannot reach such a residual, float64 continues.

References
----------
.. [1] J. H. Bramble, J. E. Pasciak, J. Xu, Parallel multilevel preconditioners, Math. Comp. 55 (1990) 1-22.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..device import Array, Map, Shape
from ..errors import ConvergenceError
from ..linalg.krylov import cg
from ..normalization import Scale
from ..norms import combined, norms, shifted
from ..problem import FLOAT64, Factor, Problem, Solution, history_of
from ..terms import ORDER, REGULARIZERS, is_quadratic, kind_of
from ..threads import all_cores
from ..vector_ops import image_systems
from . import admm
from .domain import domain_of
from .refine import MOST
from .spectrum import diagonal
from .start import all_weights, first_scene, half_width


def refuses(problem: Problem) -> str | None:
    """Return None if the regularizer is quadratic, else the reason in words."""
    name = problem.regularizer
    return None if is_quadratic(name) else f"the regularizer {name!r} is not quadratic"


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes that set-up and solve need; see `deblur.problem`."""
    if not problem.quadratic:
        return admm.memory(problem)
    operator, frames, (image, scene, torus, kept, _) = problem.operator, problem.frames, problem.sizes
    if problem.device.gpu is not None:
        return ((19.0 if problem.axes == 3 else 14.0) * scene * frames,)
    folds, kind = operator.boundary.continued, kind_of(problem.regularizer)
    w, shift_invariant, holes = problem.fidelity.weights, operator.shift_invariant is not None, 0.0
    domain = scene if folds else torus
    # What H keeps; |K|² and the inverse; K, too, if the domain is a torus.
    kept += 2 * domain * (shift_invariant or folds)
    # x, r and p; a product, its copy and that of the scene with borders; a difference, its part of the sum, and the
    # sum; one more term for mixed differences. Without differences, the spectra of a product instead.
    plain = kind == "identity" and shift_invariant
    iterating = 2 * domain + (2 * torus + 3 * scene if plain else (8 + (kind == "hessian")) * scene)
    if w is not None:  # the mask, W and a product; arrays that fill hidden pixels; smoothings
        kept += 3.2 * w.nbytes
        iterating = max(iterating, (8.5 + 12 / problem.dtype.itemsize) * image)
        widths = [max(operator.mean_blur.psf.shape) + 4 * math.sqrt(2 * t) for t in _times(operator.scene_shape)[1:]]
        hole = 2 * half_width(all_weights(problem) == 0) * operator.nonnegative
        count = sum(width < hole for width in widths)
        each = 1 if kind == "identity" else count
        holes = (count > 1) * each * (scene + (scene if folds else torus / 2) * (kind != "identity"))
    # The data and the right-hand side. Before that, arrays for the mean power, in float64: a spectrum of four scenes.
    early = (8.2 * (problem.axes == 2) if shift_invariant else 14.6) * 8 / problem.dtype.itemsize * scene * folds
    needed: float = max(kept + holes + frames * (image + scene + iterating), early)
    # float64 continues where float32 cannot come as close as λ requires, while float32's arrays stay. It also
    # continues if parts beyond the frame still move, which cannot be predicted. A few iterations end before that.
    exact = (w is None and diagonal(operator)) or (problem.stop.max_iterations or 50) < 50
    close = exact or 5e-3 * (problem.lam or 1) >= _rounding(problem.dtype) * operator.norm_bound**2
    if problem.dtype != FLOAT64 and not close:
        needed += needed + kept + frames * scene
    return (needed,)


def _times(shape: Shape) -> list[float]:
    """Return the times t of the smoothings Φ = e^{−tΔ}, over √(2t) pixels each, that a scene's shape may need."""
    return [0.0, *(4.0 ** (2 * i - 1) for i in range(max(shape).bit_length() // 2))]


def _rounding(dtype: np.dtype) -> float:
    """Return the relative residual that rounding leaves."""
    return 30 * float(np.finfo(dtype).eps)


def prepare(problem: Problem) -> Factor:
    """Prepare the preconditioner, or ADMM if the minimiser does not solve a linear system."""
    return Quadratic(problem) if problem.quadratic else admm.prepare(problem)


class Quadratic:
    """The system's preconditioner (w̄ KᵀK + λLᵀL)⁻¹ on the domain around the scene, where w̄ is the mean weight."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._most = problem.stop.max_iterations or 1500
        self.domain = domain = domain_of(replace(problem, operator=problem.operator.mean_blur))
        [regularizer] = REGULARIZERS[problem.regularizer]
        mean = 1.0 if problem.fidelity.weights is None else float(problem.xp.mean(problem.fidelity.weights))
        shift_invariant = problem.operator.shift_invariant is not None
        power = None if shift_invariant else domain.power_of(problem.operator)
        # Without a single PSF, the mean power overestimates what the frame lets through: a larger λ saves a fifth of
        # the iterations.
        lam = (1 if shift_invariant else 20) * problem.lam
        self.inverse = domain.regularised(mean, lam, regularizer.differences, power)
        # The scene is determined everywhere if λ holds each pixel, or if H is diagonal in frequency, as differences
        # are.
        exact = problem.fidelity.weights is None and diagonal(problem.operator)
        self.determined = exact or regularizer.differences == "identity"
        self.holes = self._scales_of_holes(mean, domain.power if power is None else power)

    def _scales_of_holes(self, mean: float, power: Array) -> list[tuple[Array | None, Array]]:
        """Return Φ in frequency (None for I) and T of each smoothing for wide holes; empty if no hole is wide."""
        problem, operator, xp = self.problem, self.problem.operator, self.problem.xp
        w, found, widest = problem.fidelity.weights, [], 0.0
        if w is None or not operator.nonnegative:
            return []
        s = operator.adjoint(w * operator.forward(xp.ones((1, 1, *operator.scene_shape), problem.dtype))).clip(0)
        [regularizer] = REGULARIZERS[problem.regularizer]
        squares = self.domain.symbol("gradient").astype(problem.dtype)
        prior = problem.lam * squares ** ORDER[regularizer.differences]
        # A smoothing is added if the preconditioner is ten times too stiff at its width, provided it is a hundred times
        # too stiff at some width of a pixel or more. Of 420 random problems 106 have such a hole: 66 of them converge
        # within 1,500 iterations, 38 did without smoothings. Single hidden pixels stay below the limit.
        for t in _times(operator.scene_shape):
            by = xp.exp(-t * squares)
            near = 1 / ((self.domain.filter(s, by) if t else s).clip(0) + (prior * by**2).max())
            # The preconditioner's energy of a bump of this width, over the least energy that the bump may have.
            excess = float(((mean * power + prior) * by**2).sum() / (by**2).sum()) * float(near.max())
            widest = max(widest, excess) if t >= 1 else widest
            if excess > 10 and (not t or regularizer.differences != "identity"):
                found.append((by if t else None, near))
        return found if widest > 100 else []

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Solve for each frame and channel independently; see `deblur.problem.Factor`.

        Raises
        ------
        ConvergenceError
            If conjugate gradients broke down.
        """
        with all_cores():
            found, close = self._solve(g, start)
            if close or found.iterations == self._most or self.problem.dtype == FLOAT64:
                return found
            more, _ = Quadratic(self.problem.computed_in(FLOAT64))._solve(g.astype(FLOAT64), found, found.iterations)
        if not more.converged:
            return replace(found, converged=False, why=more.why)
        scene, n = more.scene.astype(self.problem.dtype), found.iterations + more.iterations
        why = f"{more.why}, the last {more.iterations} in float64"
        history = np.concatenate([found.history, more.history]).view(np.recarray)
        return replace(more, scene=scene, iterations=n, why=why, history=history)

    def _solve(self, g: Array, start: Solution | None, done: int = 0) -> tuple[Solution, bool]:
        """Return the solution after iterations already `done`, and whether it is accurate enough for its dtype."""
        scale, xp = Scale.of_image(self.problem, g), self.problem.xp
        problem, g = scale.near(self.problem), scale.down(g)
        right = problem.right(g)
        if start is not None and start.scene.shape == right.shape:
            first = scale.down(start.scene).astype(right.dtype, copy=False)
        else:
            first = first_scene(problem, g)
        frames = right.reshape(-1, *right.shape[2:])
        size = norms(frames)
        size += size == 0
        constant = problem.fidelity.value(xp.zeros_like(g), g)
        rtol, eps = problem.stop.rtol, float(np.finfo(g.dtype).eps)
        rounding = _rounding(g.dtype)
        history: list[tuple[float, float, float]] = []
        path: list[float] = []  # the length of all moves of the scene so far
        close = False

        @np.errstate(over="ignore", invalid="ignore")
        def measure(sums: np.ndarray) -> float:
            """Return the residual over the allowed one; at most 1 means converged.

            `sums` (5, k c) holds ‖r‖², ⟨x, right + r⟩, ‖p‖², ‖x‖² and the α of the last move along p.
            """
            nonlocal close
            n, (left, aligned, step, norm, alpha) = len(history), sums
            left, norm = np.sqrt(left), np.sqrt(norm)
            residual = float((left / size).max())
            value = shifted(constant - 0.5 * float(aligned.sum()), scale.objective(problem))
            change = float((abs(alpha) * np.sqrt(step) / (norm + (norm == 0))).max())
            history.append((value, residual, change))
            path.append(change + (path[-1] if path else 0.0))
            if not math.isfinite(value + residual):
                raise ConvergenceError(
                    f"conjugate gradients broke down at iteration {n}: the residual became {residual}; use a larger "
                    "λ or float64"
                )
            if n:
                problem.stop.report(done + n, residual)
            sure = math.inf if problem.early else 5e-3 * problem.lam * norm
            allowed = np.minimum(max(rtol or 1e-6, rounding) * size, sure)
            still = bool(rtol) or self.determined or bool((left <= eps * size).all())
            moved = 0.0 if still else (path[n] - path[n // 2]) / 1e-2 if n >= 4 else math.inf
            close = bool((left <= allowed).all()) and moved <= 1 and not (rtol or 1.0) < rounding
            excess = float((left / np.maximum(allowed, rounding * size)).max())
            return max(excess, moved) if g.dtype == FLOAT64 else excess

        def precondition(r: Array) -> Array:
            found = self.domain.filter(r, self.inverse)
            for by, near in self.holes:
                part = near * (r if by is None else self.domain.filter(r, by))
                found = combined(found, part if by is None else self.domain.filter(part, by))
            return found

        capture = problem.operator.shift_invariant is not None  # its FFT plans are cached
        ops, most = image_systems(right, measure, capture), self._most - done
        f, n, excess = cg(problem.normal, right, ops, first, precondition=precondition, rtol=1.0, max_iterations=most)
        converged, (_, residual, _) = excess <= 1, history[-1]
        why = (
            f"the relative residual {residual:.1e} of the linear system after {n} iterations of conjugate gradients "
            f"is {'within' if converged else 'not within'} the tolerance{f' {rtol:.1e}' if rtol else ''}"
        )
        length = norms(f.reshape(frames.shape))
        length += length == 0
        if not problem.early and (rounding * size > 5e-3 * problem.lam * length).any():
            close = False
            if converged and g.dtype == FLOAT64:
                # Rounding limits the accuracy of any residual: that of Hᵀg alone is eps of its size.
                left = np.maximum(norms((right - problem.normal(f)).reshape(frames.shape)), eps * norms(frames))
                error = float((self._amplification(problem, right, precondition) * left / length).max())
                converged = error <= MOST
                why += f"; with so small a λ, rounding may leave a relative error of {error:.1e} in the scene"
        return Solution(scale.up(f), n, converged, why, history_of(*np.array(history[1:] or history).T)), close

    def _amplification(self, problem: Problem, right: Array, precondition: Map) -> np.ndarray:
        """Return ‖A⁻¹s‖ / ‖s‖ of the system's matrix A and a random s, for each frame and channel; huge if not found.

        Rounding leaves a residual in all directions alike, and the iteration cannot see the error that it causes.
        """
        s = problem.xp.asarray(np.random.default_rng(0).standard_normal(right.shape))
        systems = image_systems(s, lambda sums: float(np.sqrt(sums[0].max())), capture=False)
        # s has a size of about 1 in each direction; a tolerance of 0.01 leaves none of them out.
        x, _, left = cg(problem.normal, s, systems, precondition=precondition, rtol=0.01, max_iterations=self._most)
        x = x if left <= 0.01 else 1e100 * s
        return norms(x.reshape(-1, *right.shape[2:])) / math.sqrt(math.prod(right.shape[2:]))

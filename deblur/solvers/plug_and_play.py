"""Method ``pnp``: plug-and-play ADMM [1]_; a denoiser of falling strength [2]_ replaces the prior's proximal map.

A denoiser of strength σ stands for a prior of weight λ if the penalty parameter is ρ = λ/σ². σ falls from `_FIRST`
times the image's standard deviation to 1.5 √λ and stays there. Then ρ is the same for every λ, and the fixed point is
that of the last denoiser. Between two calls of the denoiser, the split of the data, which is cheap, takes four steps.

A denoiser need not have a fixed point that the iteration reaches. Unless a number of iterations was requested, the
method also counts as converged if the schedule ends with a residual of at most `_ENOUGH`.

References
----------
.. [1] S. V. Venkatakrishnan, C. A. Bouman, B. Wohlberg, Plug-and-play priors for model based reconstruction,
   GlobalSIP 2013, 945-948.
.. [2] K. Zhang, Y. Li, W. Zuo, L. Zhang, L. Van Gool, R. Timofte, Plug-and-play image restoration with deep
   denoiser prior, IEEE Trans. Pattern Anal. Mach. Intell. 44 (2022) 6360-6376.
"""

from __future__ import annotations

import math

import numpy as np

from ..denoise.denoisers import repeated
from ..device import Array, all_true, get_xp
from ..errors import ConvergenceError
from ..norms import norms_of
from ..problem import Denoiser, Problem, Solution, history_of, peak
from . import admm
from .splits import Steps

#: First denoising strength over the image's standard deviation; calls until the last strength; all calls.
_FIRST, _FALL, _ITERATIONS = 0.5, 16, 40
_ENOUGH = 0.05  # relative residual and change that count as converged at the last strength


def refuses(problem: Problem) -> str | None:
    """Return None if the method serves the problem, else the reason in words."""
    if problem.denoiser is None:
        return "it needs a denoiser (denoiser=..., a function of an image and the noise's standard deviation)"
    return None if problem.lam > 0 else "λ sets the denoiser's strength and must be above 0"


def memory(problem: Problem) -> tuple[float, ...]:
    """Bytes of ADMM, and of what a denoiser takes: four scenes, and places and sums of `deblur.denoise.patches`."""
    denoising = 4 * problem.frames * problem.sizes[1] + 26 * math.prod(problem.operator.scene_shape)
    return peak(admm.memory(problem)), denoising


class PlugAndPlay(admm.Admm):
    """Plug-and-play ADMM; the image keeps its units, since the denoiser may rely on them."""

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Restore frames together, always from the first scene; see `deblur.problem.Factor`.

        Raises
        ------
        ConvergenceError
            If the iteration diverged.
        ValueError
            If the denoiser returns another shape, NaN or infinity.
        """
        with self.steps(self.problem, g, held=True) as steps:
            return _solve(self.problem, steps)


prepare = PlugAndPlay


def _solve(problem: Problem, steps: Steps) -> Solution:
    assert problem.denoiser is not None
    schedule = admm.Schedule(problem, *steps.measure())
    steps.begin(schedule.rho)
    xp, pinned = problem.xp, steps.domain.pinned
    asked = problem.stop.max_iterations
    last = 1.5 * math.sqrt(problem.lam)
    first = max(_FIRST * steps.scale, last)
    scene = (..., *steps.domain.scene)
    z, dual, rho = steps.x.copy(), xp.zeros_like(steps.x), 0.0
    objective: list[float] = []
    worst: list[tuple[float, float]] = []
    most_size = 1e6 * (float(norms_of(z)[0]) ** 2 + steps.scale**2 * z.size)
    converged = False
    denoise = repeated(problem.denoiser, _as_image(z[scene][0]))
    for n in range(1, (_ITERATIONS if asked is None else asked) + 1):
        sigma = first * (last / first) ** min((n - 1) / _FALL, 1.0)
        before_rho, rho = rho, problem.lam / sigma**2
        dual *= before_rho / rho
        value, *residuals = _data_step(steps, z - dual, rho, schedule.rtol)
        shown = steps.x + dual
        before = z[scene]
        z = xp.zeros_like(shown) if pinned else shown.copy()
        z[scene] = _denoised(problem, denoise, shown[scene], sigma)
        dual = shown - z
        seen = z[scene]
        size, primal, change = norms_of(seen, steps.x - z, seen - before)
        size = max(size, math.sqrt(np.finfo(problem.dtype).tiny))
        primal, change = primal / size, change / size
        objective.append(value)
        worst.append((max(primal, residuals[0]), max(change, residuals[1])))
        if not (math.isfinite(value) and math.isfinite(primal)) or size**2 > most_size:
            raise ConvergenceError(
                f"plug and play diverged at iteration {n}: the denoiser makes images grow; use a larger λ or "
                "another denoiser"
            )
        problem.stop.report(n, max(worst[-1]))
        converged = n > _FALL and max(worst[-1]) <= schedule.rtol
        if converged:
            break
    why = (
        f"after {n} calls of the denoiser, the last of strength {sigma:.3g}, the relative residual is "
        f"{worst[-1][0]:.1e} and the change {worst[-1][1]:.1e} (tolerance {schedule.rtol:.1e})"
    )
    if not converged and asked is None and max(worst[-1]) <= _ENOUGH:
        converged = True
        why = f"the schedule has ended, with residual and change of at most {_ENOUGH:g}: {why}"
    history = history_of(objective, *zip(*worst, strict=True))
    return Solution(xp.ascontiguousarray(z[scene]), n, converged, why, history)


def _data_step(steps: Steps, t: Array, rho: float, rtol: float) -> tuple[float, float, float]:
    """Move x towards the minimiser of D(K x) + ρ/2 ‖x − t‖²; return D and the data's relative residuals."""
    steps.t[-1][0][...] = t
    steps.rho[-1] = rho
    steps.prepare(0.0, rtol, armed=False)
    steps.submit(4)
    last = steps.collect()[0][-1]
    primal, dual = steps.relative(last)[0].tolist()
    return float(last[0, 0]), primal, dual


def _as_image(frame: Array) -> Array:
    """Return a frame (c, P, Q) in the layout of denoisers: (P, Q) or (P, Q, c)."""
    xp = get_xp(frame)
    return xp.ascontiguousarray(frame[0] if len(frame) == 1 else xp.moveaxis(frame, 0, -1))


def _denoised(problem: Problem, denoise: Denoiser, scene: Array, sigma: float) -> Array:
    """Apply the denoiser to each frame, check its result, and clip it to the bounds."""
    xp = problem.xp
    out = xp.empty_like(scene)
    for i, frame in enumerate(scene):
        image = _as_image(frame)
        found = denoise(image.copy(), sigma)
        name = getattr(problem.denoiser, "__name__", type(problem.denoiser).__name__)
        if getattr(found, "shape", None) != image.shape:
            raise ValueError(
                f"the denoiser {name!r} was given an image of shape {image.shape} and returned "
                f"{getattr(found, 'shape', type(found).__name__)}; it must keep the shape"
            )
        if not all_true(xp.isfinite(found)):
            raise ValueError(
                f"the denoiser {name!r} returned NaN or infinity for an image with values from "
                f"{float(image.min()):.3g} to {float(image.max()):.3g} and sigma {sigma:.3g}"
            )
        out[i] = found if len(frame) == 1 else xp.moveaxis(found, -1, 0)
    return out if problem.bounds is None else out.clip(*problem.bounds)

"""Similar patches restored together: total variation first, then what the patches of its solution share.

A regularised inverse brings back all that is to be brought back, and a great deal of noise with it; the noise is
coloured, but its spectrum is known. Around a pilot scene p,

    f = p + (HᵀWH + ρI)⁻¹HᵀW (g − b − Hp) ,

with ρ so small that f follows the data wherever the blur has left anything of them. The groups of similar patches
of p then show what is picture: in their transform f is shrunk by p̂²/(p̂² + v), v being the variance of the coloured
noise in each coefficient [1]_. The result is a better pilot, and a second pass follows. The first pilot is the
solution of "tv" at λ, and λ is the only parameter: the noise's level is that of the pilot's residual.

For photon counts the noise varies with the blurred pilot.

References
----------
.. [1] K. Dabov, A. Foi, V. Katkovnik, K. Egiazarian, Image restoration by sparse 3D transform-domain collaborative
   filtering, Proc. SPIE 6812 (2008) 681207.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..backend import Array
from . import METHODS, patches
from .problem import Solution, VariationalProblem

PILOT = "tv"
_RHO = 0.01  # ρ over the square of the PSF's gain
_PASSES = 2
_SPECTRUM = 256  # at least as many frequencies each way for the noise's spectrum


def pilot_problem(problem: VariationalProblem) -> VariationalProblem:
    """The problem whose solution is the first pilot, and whose λ is this method's."""
    return replace(problem, method=PILOT)


def refuses(problem: VariationalProblem) -> str | None:
    """None if the method serves the problem, else the reason in words."""
    if problem.data not in ("gaussian", "poisson"):
        return (
            f"it filters noise of known variance, and data={problem.data!r} is for impulses, which have none; mask "
            'them (mask="auto") and use data="gaussian"'
        )
    return METHODS[PILOT].refuses(pilot_problem(problem))


def solve(problem: VariationalProblem, g: Array, start: Solution | None = None) -> Solution:
    """Restore the frames `g`; parameters and errors are those of `deblur.variational.admm.solve`."""
    pilot = METHODS[PILOT].solve(pilot_problem(problem), g, start)
    scene = pilot.scene
    level, variation = _noise(problem, g, scene)
    for _ in range(_PASSES):
        scene = _filtered(problem, g, scene, level, variation)
    passes = (
        f"{_PASSES} passes over groups of similar patches, for noise of standard deviation {level**0.5:.2g}"
    )
    return replace(pilot, scene=scene, why=f"{pilot.why}; then {passes}")


def _noise(problem: VariationalProblem, g: Array, scene: Array) -> tuple[float, Array | None]:
    """(the noise's mean variance, its variance from place to place over that mean, or None if it is the same)."""
    xp = problem.xp
    seen = problem.blur.forward(scene) + problem.background
    w = xp.ones_like(g) if problem.weights is None else xp.broadcast_to(problem.weights, g.shape)
    if problem.data == "poisson":
        seen = xp.maximum(seen, 1e-3 * float(abs(g).mean()))
        gain = float(xp.sum((w > 0) * (g - seen) ** 2 / seen, dtype=np.float64) / xp.sum(w > 0))
        mean = float(seen.mean())
        blur = problem.blur
        pads = [(c.start, n - c.stop) for c, n in zip(blur.crop, blur.scene_shape, strict=True)]
        return gain * mean, xp.pad(seen / mean, [(0, 0), (0, 0), *pads], mode="edge")
    count = float(xp.sum(w > 0)) or 1.0
    return float(xp.sum(w * (g - seen) ** 2, dtype=np.float64)) / count, None


def _filtered(
    problem: VariationalProblem, g: Array, pilot: Array, level: float, variation: Array | None
) -> Array:
    """One pass: the regularised inverse round the pilot, filtered in groups of the pilot's patches."""
    xp, blur = problem.xp, problem.blur
    rho = _RHO * blur.gain**2
    inverse = replace(
        problem,
        method="identity",
        lam=rho,
        data="gaussian",
        bounds=None,
        background=0.0,
        rtol=1e-3,
        max_iterations=None,
        callback=None,
    )
    residual = g - problem.background - blur.forward(pilot)
    f = pilot + METHODS["identity"].solve(inverse, residual).scene
    covariance = xp.asarray(_covariance(problem, rho, level))
    colours = xp.asarray(patches.opponent(g.shape[1]).astype(problem.dtype))
    out = xp.empty_like(pilot)
    for i in range(len(g)):
        noisy, clean = (xp.einsum("ab,bij->aij", colours, x[i]) for x in (f, pilot))
        groups = patches.Groups(clean[0])
        variances = groups.variances(covariance)
        local = None if variation is None else variation[i].mean(axis=0)
        found = xp.stack([groups.wiener(a, b, variances, local) for a, b in zip(noisy, clean, strict=True)])
        out[i] = xp.einsum("ab,aij->bij", colours, found)
    return out if problem.bounds is None else out.clip(*problem.bounds)


def _covariance(problem: VariationalProblem, rho: float, level: float) -> np.ndarray:
    """The autocovariance of the noise in f, away from the edges."""
    psf = problem.blur.psf
    shape = tuple(max(_SPECTRUM, 2 * n) for n in psf.shape)
    power = np.abs(np.fft.fft2(psf, s=shape)) ** 2
    return np.fft.ifft2(level * power / (power + rho) ** 2).real

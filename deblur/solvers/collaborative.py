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

from ..denoise import patches
from ..device import Array
from ..operators.torus import Torus
from ..problem import Problem, Solution, Stop, Work
from ..terms import Fit
from . import admm, quadratic
from .start import continued
from .units import in_units

PILOT = "tv"
_RHO = 0.01  # ρ over the square of H's gain
_PASSES = 2
_SPECTRUM = 256  # at least as many frequencies each way for the noise's spectrum
_FILTER = 150  # what `work` reckons with for one pass of the filter, in transforms


def pilot_problem(problem: Problem) -> Problem:
    """The problem whose solution is the first pilot, and whose λ is this method's."""
    return replace(problem, penalty=PILOT)


def refuses(problem: Problem) -> str | None:
    """None if the method serves the problem, else the reason in words."""
    if problem.fit.name not in ("gaussian", "poisson"):
        return (
            f"it filters noise of known variance, and data={problem.fit.name!r} is for impulses, which have none; mask "
            'them (mask="auto") and use data="gaussian"'
        )
    return admm.refuses(pilot_problem(problem))


def work(problem: Problem) -> Work:
    """The pilot's, and each pass in its unit."""
    pilot, inverse = admm.work(pilot_problem(problem)), quadratic.work(_inverse_problem(problem))
    more = _PASSES * (inverse.solve + _FILTER * pilot.setup)
    return Work(2 * pilot.setup, pilot.solve + more, max(pilot.bytes, inverse.bytes))


def prepare(problem: Problem) -> Collaborative:
    """The two solvers, and the noise's covariance."""
    return Collaborative(problem)


def _inverse_problem(problem: Problem) -> Problem:
    return replace(
        problem,
        penalty="identity",
        lam=_RHO * problem.operator.gain**2,
        fit=Fit(weights=problem.fit.weights),
        bounds=None,
        stop=Stop(rtol=1e-3),
    )


class Collaborative:
    """The pilot's solver, the regularised inverse, and the noise's autocovariance in it, for noise of variance one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        inverse = _inverse_problem(problem)
        self.pilot, self.inverse = admm.prepare(pilot_problem(problem)), quadratic.prepare(inverse)
        psf = problem.operator.surrogate.psf
        torus = Torus([max(_SPECTRUM, 2 * n) for n in psf.shape], problem.device)
        power = torus.power(psf)
        self.covariance = torus.synthesise(power / (power + inverse.lam) ** 2)

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Restore frames, the pilots together; errors are those of the pilot. See `deblur.problem.Factor`."""
        pilot = self.pilot.solve(g, start)
        units = in_units(self.problem, g)
        problem, g, unit = units.problem, units.g, g.dtype.type(units.unit)
        scene, converged = pilot.scene / unit, pilot.converged
        level, variation = _noise(problem, g, scene)
        for _ in range(_PASSES):
            residual = g - g.dtype.type(problem.fit.background) - problem.operator.forward(scene)
            found = self.inverse.solve(residual)
            scene = _filtered(problem, scene + found.scene, scene, level * self.covariance, variation)
            converged = converged and found.converged
        passes = (
            f"{_PASSES} passes over groups of similar patches, for noise of standard deviation "
            f"{level**0.5 * units.unit:.2g}"
        )
        return replace(pilot, scene=scene * unit, converged=converged, why=f"{pilot.why}; then {passes}")


def _noise(problem: Problem, g: Array, scene: Array) -> tuple[float, Array | None]:
    """(the noise's mean variance, its variance from place to place over that mean, or None if it is the same)."""
    xp = problem.xp
    seen = problem.operator.forward(scene) + problem.fit.background
    w = xp.broadcast_to(xp.asarray(problem.fit.w), g.shape)
    if problem.fit.name == "poisson":
        seen = xp.maximum(seen, 1e-3 * float(abs(g).mean()))
        gain = float(xp.sum((w > 0) * (g - seen) ** 2 / seen, dtype=np.float64) / xp.sum(w > 0))
        mean = float(seen.mean())
        return gain * mean, continued(problem.operator, seen / mean)
    count = float(xp.sum(w > 0)) or 1.0
    return float(xp.sum(w * (g - seen) ** 2, dtype=np.float64)) / count, None


def _filtered(problem: Problem, f: Array, pilot: Array, covariance: Array, variation: Array | None) -> Array:
    """`f`, its noise of this autocovariance away from the edges, filtered in groups of the pilot's patches."""
    xp = problem.xp
    colours = xp.asarray(patches.opponent(f.shape[1]).astype(problem.dtype))
    out = xp.empty_like(pilot)
    for i in range(len(f)):
        noisy, clean = (xp.einsum("ab,bij->aij", colours, x[i]) for x in (f, pilot))
        groups = patches.Groups(clean[0])
        variances = groups.variances(covariance)
        local = None if variation is None else variation[i].mean(axis=0)
        found = xp.stack([groups.wiener(a, b, variances, local) for a, b in zip(noisy, clean, strict=True)])
        out[i] = xp.einsum("ab,aij->bij", colours, found)
    return out if problem.bounds is None else out.clip(*problem.bounds)

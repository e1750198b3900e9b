"""Method ``collaborative``: total variation, then collaborative filtering of similar patches, then a network.

A regularised inverse restores all detail and amplifies the noise. The noise becomes coloured, but its spectrum is
known. Around a pilot scene p,

    f = p + (HᵀWH + ρI)⁻¹HᵀW (g − b − Hp) ,

with ρ so small that f follows the data wherever the blur transmits them. Groups of similar patches of p then separate
picture and noise: in their transform, f is multiplied by p̂²/(p̂² + v), where v is the variance of the coloured noise
in each coefficient [1]_. The pilot is the solution of "tv" at λ, and λ is the only parameter: the noise level σ is
estimated from the image. The pilot lacks fine texture that "tv" mistakes for noise, so this shrinkage removes it. Hard
thresholding of the same groups keeps it. The scene is the mean of both.

Steps on data and patches then alternate, as with frames of such groups [2]_. In five steps the scene x becomes

    x' = argmin ‖Hx − g‖²/σ² + ‖x − y‖²/(α s²) ,   y' = denoise(x'; s) ,   y = y' + β (y' − its last value) ,

where α = 5 and β = 0.3. The strength s falls from 7.2 to 1.44 times the distance by which the first pass moved the
pilot, which estimates the pilot's error. The denoiser is again the mean of two with different errors: hard thresholding
of groups of 4 x 4 patches, and the shrinkage above for 8 x 8 patches, guided by y itself. Both take s for the standard
deviation of white noise.

Four more such steps use a small trained network [3]_, `deblur.denoise.network`. s falls to `_LAST` of the noise's
deviation and y' = network(x'; s), with the starting point as a second input and a different reflection in each step.
The network knows shapes that no other patch of the picture repeats, and its errors differ from those of patches. The
scene is `_SHARE` of the result of these steps plus the rest of their starting point.
``benchmarks/bench_experiments.py`` measures the gain of each stage.

All stages after the pilot are computed in float32, whatever the image's dtype: the noise far exceeds its rounding.

If there is almost no noise, the pilot is moved towards the data instead: by exact solutions if a transform diagonalises
the blur, else by conjugate gradients. If the scene is not larger than the frame, the pixels at the border are hardly
determined by the data, but by the regularizer: the pilot is solved again with a smaller λ and a tighter tolerance.

For photon counts, the variance of the noise is proportional to the blurred pilot.

References
----------
.. [1] K. Dabov, A. Foi, V. Katkovnik, K. Egiazarian, Image restoration by sparse 3D transform-domain collaborative
   filtering, Proc. SPIE 6812 (2008) 681207.
.. [2] A. Danielyan, V. Katkovnik, K. Egiazarian, BM3D frames and variational image deblurring, IEEE Trans. Image
   Process. 21 (2012) 1715-1728.
.. [3] K. Zhang, Y. Li, W. Zuo, L. Zhang, L. Van Gool, R. Timofte, Plug-and-play image restoration with deep
   denoiser prior, IEEE Trans. Pattern Anal. Mach. Intell. 44 (2022) 6360-6376.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..denoise import patches
from ..denoise.network import network
from ..device import CPU, Array, all_true
from ..linalg import krylov
from ..normalization import Scale
from ..norms import combined, norms_of, shifted, squares, total
from ..operators.torus import Torus
from ..pixelwise import copied, modulus
from ..problem import Factor, Problem, Solution, Stop, peak
from ..terms import DataFidelity
from ..threads import all_cores, cores
from ..vector_ops import Systems
from . import admm, cosine, fourier, kronecker, quadratic, sine
from .noise import noise_variance
from .start import brightness_of, continued

PILOT = "tv"
_RHO = 0.01  # ρ over the square of H's norm bound
_RESIDUAL_SHARE = 0.5  # share of the residual's variance that counts as noise, since a wrong model leaves more
# Steps between data and patches: strengths over the distance by which the first pass moved the pilot; 1/α, also for
# the network; β.
_STRENGTHS, _TRUST, _BEYOND = np.geomspace(7.2, 1.44, 5), 0.2, 0.3
# A factor for errors of the PSF, used twice: what they add to λ of the steps, over `NoiseModel.lam`; the variance of
# their residual at all frequencies, over that at fine ones.
_WRONG_PSF = 3.0
# Relative residuals of the linear solves. Exact solutions gain at most 0.02 dB and take a third longer.
_LOOSE, _LOOSER = 1e-2, 3e-2
# Steps with the network: their number; first strength over white; last strength over the noise's deviation; least
# strength over white; weight of their result. The network was trained for such steps.
_LAST_STEPS, _FIRST, _LAST, _LEAST, _SHARE = 4, 0.08, 0.6, 3e-3, 0.8
# Relative to white: largest noise deviation that counts as none (four times as much with what the pilot leaves),
# largest distance from the pilot, the pilot's error, and the deviation that fine texture may show as noise. The noise's
# variance over the pilot's squared error is λ of the step towards data with next to no noise.
_CLEAN, _TOO_FAR, _LEFT, _UNSURE = 1e-4, 0.1, 1e-2, 2e-5
#: The mean variance of the noise, and each pixel's variance over that mean (None if it is constant).
Noise = tuple[float, Array | None]
_WRONG = "further steps would move it too far: the model of the blur is wrong, and the pilot is returned"


def pilot_problem(problem: Problem) -> Problem:
    """Return the problem whose solution is the pilot; it has the λ of this method."""
    return replace(problem, regularizer=PILOT, stop=replace(problem.stop, looser=4.0))


def refuses(problem: Problem) -> str | None:
    """Return None if the method serves the problem, else the reason in words."""
    if problem.fidelity.name not in ("gaussian", "poisson"):
        return (
            f"it filters noise of known variance, and data={problem.fidelity.name!r} is for impulses, which have none; "
            'mask them (mask="auto") and use data="gaussian"'
        )
    return admm.refuses(pilot_problem(problem))


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes of the pilot, which stays, and of the network: 144 numbers a pixel, and 5 MB for each core."""
    network = 4.5 * 32 * math.prod(problem.operator.scene_shape) + cores() * (5 << 20)
    return peak(admm.memory(pilot_problem(problem))), network


def _inverse_problem(problem: Problem) -> Problem:
    return replace(
        problem,
        regularizer="identity",
        lam=_RHO * problem.operator.norm_bound**2 + _error(problem),
        fidelity=DataFidelity(weights=problem.fidelity.weights),
        bounds=None,
        stop=Stop(rtol=_LOOSE),
    )


def _error(problem: Problem) -> float:
    """Return the part of λ in each step towards the data that allows for an error of the PSF."""
    return 0.0 if problem.noise is None else _WRONG_PSF * problem.noise.lam * problem.operator.norm_bound**2


class Collaborative:
    """The solvers of pilot and regularised inverse, and the autocovariance that noise of variance one has after it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        inverse = _inverse_problem(problem.computed_in(np.float32))
        self.pilot, self.inverse = admm.prepare(pilot_problem(problem)), quadratic.prepare(inverse)
        psf = problem.operator.mean_blur.psf
        torus, host = (Torus([max(256, 2 * n) for n in psf.shape], device) for device in (problem.device, CPU))
        power = host.power(psf)  # a GPU would compile each operation
        response = power / (power + inverse.lam) ** 2
        dtype = np.float64 if problem.device.gpu is None else problem.dtype

        def shown(spectrum: np.ndarray) -> Array:
            return copied(torus.synthesise(problem.xp.asarray(spectrum.astype(dtype))), np.float64)

        self.covariance = self.coloured = shown(response)
        if problem.noise is not None and problem.noise.left:
            # The residual of a PSF error has a picture's power spectrum, which falls as 1/|k|².
            rows, cols = (np.fft.fftfreq(n) ** 2 for n in torus.lengths)
            scene = 1 / np.maximum(rows[:, None] + cols[: power.shape[1]], 0.25 / math.prod(torus.lengths))
            scene /= (scene * (scene < 100)).mean()
            self.coloured = shown(scene * response)

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Restore frames, the pilots together; see `deblur.problem.Factor`.

        Raises
        ------
        ConvergenceError
            If the pilot's iteration diverged.
        """
        pilot = self.pilot.solve(g, start)
        scale, seen = Scale.of_image(self.problem, g), g
        problem, g, clean = scale.near(self.problem), scale.down(g), scale.down(pilot.scene)
        level, variation = _noise(problem, g, clean)
        left = 0.0 if problem.noise is None else problem.noise.left**2
        level += (_WRONG_PSF - 1) * left
        covariance = combined(self.covariance, self.coloured, level - _WRONG_PSF * left, _WRONG_PSF * left)
        noise = shifted(level**0.5, scale.image)
        bright = modulus(clean[(..., *problem.operator.crop)]).ravel()
        bright.sort()
        white = float(bright[int(0.995 * bright.size)])
        known = _known(problem, g)
        if math.sqrt(max(level / 16, known)) <= _CLEAN * white * abs(brightness_of(problem.operator)):
            sure = max(known - (_UNSURE * white) ** 2, 0.0)
            near = replace(problem, lam=1e-8 * problem.operator.norm_bound**2 + sure / ((_LEFT * white) ** 2 or 1.0))
            exact = _exact(near)
            if exact is None and problem.operator.scene_shape == problem.operator.image_shape:
                pilot = self._careful(problem).solve(seen, pilot)
                clean = scale.down(pilot.scene)
            scene = _followed(near, g, clean, exact)
            words = f"steps towards the data, which have next to no noise (standard deviation {noise:.2g})"
            if not _moved(problem, scene, clean) <= _TOO_FAR * white:
                scene, words = clean, _WRONG
            return replace(pilot, scene=scale.up(scene), why=f"{pilot.why}; then {words}")
        problem = problem.computed_in(np.float32)
        g, clean = (a.astype(np.float32, copy=False) for a in (g, clean))
        there = None if variation is None else continued(problem.operator, variation).mean(axis=1)
        groups = [_Grouped(problem, frame) for frame in clean]
        found = self.inverse.solve(_residual(problem, g, clean))
        converged, passed = pilot.converged and found.converged, []
        for i, (group, noisy) in enumerate(zip(groups, combined(clean, found.scene), strict=True)):
            variances = group.groups.variances(covariance)
            at = None if there is None else there[i]
            shrunk = group.shrunk(noisy, clean[i], variances, at)
            passed.append(combined(shrunk, group.thresholded(noisy, variances, at), 0.5, 0.5))
        scene = _bounded(problem, passed)
        by = _moved(problem, scene, clean)
        strengths = [float(by * x) for x in _STRENGTHS] if level > 0 and 0 < by < np.inf else []
        words = f"a pass over groups of similar patches, for noise of standard deviation {noise:.2g}"
        if strengths:
            scene = _refined(problem, g, scene, groups, (level, variation), strengths)
            scene = _finished(problem, g, scene, (level, variation), white)
            most, least = (shifted(strengths[i], scale.image) for i in (0, -1))
            words += f", and {len(strengths)} steps between data and patches, of strengths {most:.2g} to {least:.2g}; "
            words += f"{_LAST_STEPS} more with a network"
        if problem.noise is not None and problem.noise.share:  # the mean: the errors of both differ
            scene = combined(scene, clean, 1 - problem.noise.share / 2, problem.noise.share / 2)
        if not _moved(problem, scene, clean) <= _TOO_FAR * white:
            return replace(pilot, converged=converged, why=f"{pilot.why}; then {_WRONG}")
        scene = scale.up(_bounded(replace(problem, dtype=seen.dtype), list(scene)))
        return replace(pilot, scene=scene, converged=converged, why=f"{pilot.why}; then {words}")

    def _careful(self, problem: Problem) -> admm.Admm:
        """Return a more exact solver of the pilot for data without noise; `problem` is in normalised units."""
        smaller = min(1.0, 1e-8 * problem.operator.norm_bound / problem.lam)
        stop = replace(self.problem.stop, rtol=self.problem.stop.rtol or 1e-4)
        return admm.prepare(replace(self.pilot.problem, lam=smaller * self.problem.lam, stop=stop))


prepare = Collaborative


def _moved(problem: Problem, scene: Array, other: Array) -> float:
    """Return the root mean square of scene − other inside the frame."""
    at = (..., *problem.operator.crop)
    moved = combined(scene[at], other[at], b=-1)
    return float(norms_of(moved)[0] / math.sqrt(moved.size))


def _residual(problem: Problem, g: Array, scene: Array) -> Array:
    if problem.fidelity.background:
        g = g - g.dtype.type(problem.fidelity.background)
    return combined(g, problem.operator.forward(scene), b=-1)


def _known(problem: Problem, g: Array) -> float:
    """Return the variance of the noise, given or estimated from the image alone."""
    return problem.noise.level**2 if problem.noise is not None else noise_variance(problem, g)


def _noise(problem: Problem, g: Array, scene: Array) -> Noise:
    """Return the mean variance of the noise, and each pixel's variance over that mean, or None if it is constant."""
    xp = problem.xp
    counts = problem.fidelity.name == "poisson"
    if problem.fidelity.weights is None and not counts:
        left = float(squares(_residual(problem, g, scene)))
        return max(_known(problem, g), _RESIDUAL_SHARE * left / g.size), None
    seen = problem.operator.forward(scene) + problem.fidelity.background
    w = xp.broadcast_to(xp.asarray(problem.fidelity.w), g.shape)
    count, most = float(total((w > 0).astype(g.dtype))) or 1.0, float(w.max())
    if counts:
        seen = xp.maximum(seen, 1e-3 * float(abs(g).mean()))
    level = float(total((w > 0) * (g - seen) ** 2 / seen if counts else w * (g - seen) ** 2)) / count
    # The pilot contains some noise and lacks some detail: the image itself gives the better estimate.
    if counts or all_true((w == 0) | (w == most)):
        level = max((1.0 if counts else most) * noise_variance(problem, g), _RESIDUAL_SHARE * level)
    if not counts:
        return level, None
    mean = float(seen.mean())
    return level * mean, seen / mean


def _bounded(problem: Problem, frames: list[Array]) -> Array:
    scene = frames[0][None] if len(frames) == 1 else problem.xp.stack(frames)
    scene = scene.astype(problem.dtype, copy=False)
    return scene if problem.bounds is None else scene.clip(*problem.bounds)


class _Grouped:
    """The groups of one frame (c, P, Q): its opponent colours share the groups of the colours' mean."""

    def __init__(self, problem: Problem, frame: Array, side: int = 8, **radius: int) -> None:
        self.xp = problem.xp
        self.colours = self.xp.asarray(patches.opponent(len(frame)).astype(frame.dtype))
        self.groups = patches.Groups(self._apart(frame)[0], side=side, step=3 * side // 4, **radius)

    def _apart(self, frame: Array) -> Array:
        return patches.mixed(self.colours, frame)

    def _together(self, planes: list[Array]) -> Array:
        return patches.mixed(self.colours.T, planes[0][None] if len(planes) == 1 else self.xp.stack(planes))

    def white(self, variance: float) -> Array:
        """Return the variances of white noise in a patch's coefficients."""
        return self.xp.asarray(np.full(self.groups.side**2, variance))

    def shrunk(self, noisy: Array, clean: Array, variances: Array, level: Array | None = None) -> Array:
        """Return `noisy`, whose noise has these variances, after Wiener shrinkage by the spectrum of `clean`."""
        pairs = zip(self._apart(noisy), self._apart(clean), strict=True)
        return self._together([self.groups.wiener(a, b, variances, level) for a, b in pairs])

    def thresholded(self, noisy: Array, variances: Array, level: Array | None = None) -> Array:
        """Return `noisy` without the coefficients that are small compared with noise of these variances."""
        return self._together([self.groups.threshold(a, variances, level) for a in self._apart(noisy)])


def _towards(problem: Problem, g: Array, scene: Array, noise: Noise, s: float) -> Array:
    """Return the scene after a step of strength `s` towards the data."""
    (level, variation), linear = noise, _inverse_problem(problem)
    if variation is not None:
        weights = problem.xp.asarray(problem.fidelity.w) / variation
        linear = replace(linear, fidelity=DataFidelity(weights=weights.astype(linear.dtype)))
    lam = _TRUST * level / s**2 + _error(problem)
    inverse, nothing = replace(linear, lam=lam, stop=Stop(rtol=_LOOSER)), Solution(problem.xp.zeros_like(scene))
    return combined(scene, quadratic.prepare(inverse).solve(_residual(problem, g, scene), nothing).scene)


def _refined(
    problem: Problem, g: Array, scene: Array, coarse: list[_Grouped], noise: Noise, strengths: list[float]
) -> Array:
    """Alternate between data and patches with these strengths, starting from `scene`; return the new scene."""
    fine = [_Grouped(problem, frame, 4, radius=8) for frame in scene]
    before = scene
    for s in strengths:
        beyond = combined(scene, combined(scene, before, b=-1), b=_BEYOND)
        closer = _towards(problem, g, beyond, noise, s)
        both = [
            combined(a.thresholded(x, a.white(s**2)), b.shrunk(x, y, b.white(2 * s**2)), 0.5, 0.5)
            for a, b, x, y in zip(fine, coarse, closer, beyond, strict=True)
        ]
        before, scene = scene, _bounded(problem, both)
    return scene


def _finished(problem: Problem, g: Array, near: Array, noise: Noise, white: float) -> Array:
    """Refine `near` by `_LAST_STEPS` plug-and-play steps with the network; `white` is the 99.5 % quantile."""
    last = max(_LAST * math.sqrt(noise[0]) / abs(brightness_of(problem.operator)), _LEAST * white)
    first = max(_FIRST * white, last)
    colours = problem.xp.asarray(patches.opponent(near.shape[1]).astype(near.dtype))
    shown = [patches.mixed(colours, frame) for frame in near]
    scene = near
    for n, s in enumerate(np.geomspace(first, last, _LAST_STEPS).tolist()):
        down, right = 1 - 2 * (n % 2), 1 - 2 * ((n + 1) // 2 % 2)
        turned = slice(None), slice(None, None, down), slice(None, None, right)
        closer = _towards(problem, g, scene, noise, s)
        found = []
        with all_cores():
            for frame, planes in zip(closer, shown, strict=True):
                planes = network(patches.mixed(colours, frame)[turned], s, planes[turned])[turned]
                found.append(patches.mixed(colours.T, planes))
        scene = _bounded(problem, found)
    return combined(near, combined(scene, near, b=-1), b=_SHARE)


def _exact(problem: Problem) -> Factor | None:
    """Return an exact solver by a transform; None if no transform serves the problem."""
    operator = problem.operator
    if operator.scene_shape != operator.image_shape or problem.fidelity.weights is not None:
        return None
    linear = replace(_inverse_problem(problem), lam=problem.lam, stop=Stop())
    methods = (method for method in (fourier, cosine, sine, kronecker) if method.refuses(linear) is None)
    return next((method.prepare(linear) for method in methods), None)


def _followed(problem: Problem, g: Array, scene: Array, exact: Factor | None) -> Array:
    """Move the pilot to the data, for data with next to no noise; return the scene."""
    operator, w = problem.operator, problem.fidelity.w
    if exact is not None:
        return _bounded(problem, list(scene + exact.solve(_residual(problem, g, scene)).scene))

    def normal(x: Array) -> Array:
        return operator.adjoint(w * operator.forward(x)) + problem.lam * x

    right = operator.adjoint(w * _residual(problem, g, scene))
    with all_cores():
        # The inner product of each frame and colour, (k, c, 1, 1).
        systems = Systems(lambda a, b: (a * b).sum(axis=(2, 3), keepdims=True))
        moved, *_ = krylov.cg(normal, right, systems, rtol=1e-7, max_iterations=600)
    return _bounded(problem, list(scene + moved))

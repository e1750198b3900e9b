"""The posterior standard deviation of each pixel of a restored image.

The model: the image is g = H f + n with white Gaussian noise n of standard deviation σ. A priori the scene is white
and Gaussian about its prior mean, with standard deviation σ/√λ. Given g, the scene is Gaussian about the Tikhonov
solution f_λ with the covariance

    C = σ² (HᵀH + λI)⁻¹ .

C depends on the blur, σ and λ, but not on the image. Its diagonal is between σ²/(‖H‖² + λ) and σ²/λ; a pixel that the
data do not determine keeps the prior's standard deviation σ/√λ. C describes the error that the *model* expects, so it
is wrong if λ is unsuitable or the PSF is wrong.

The other quadratic regularizers have a covariance, too. With weights or a mask W (the noise of a pixel has the variance
σ²/w), and with L the gradient or the second derivatives, it is

    C = σ² (HᵀWH + λLᵀL)⁻¹ .

Without weights the diagonal is computed exactly if the method has a decomposition H = U S Vᵀ. For another L than the
identity, ``fft`` and ``dct`` replace λ by λ|l|², where l is the symbol of L:

============= ==========================================================================================
``fft``       V is the Fourier transform, whose entries have one modulus: every pixel has the mean of
              σ²/(s² + λ)
``dct``       V = C₁ᵀ ⊗ C₂ᵀ: the squares of the two cosine matrices applied to 1/(s² + λ) (not for second derivatives)
``dst``       likewise with sine matrices (zero boundary)
``kronecker`` likewise with all right singular vectors of both axes: those in the null space of H belong to 1/λ
``cholesky``  HᵀWH + λLᵀL as a dense matrix, and the squares of its Cholesky factor's inverse summed down the columns
============= ==========================================================================================

All sums have positive terms only, so there is no cancellation even for a small λ.

In all other cases ``probing`` estimates the diagonal (`deblur.probing`).

Estimates that are not linear in the data (total variation, patches, networks, bounds) have no such C. For them
``simulated`` estimates the root mean square error, which includes bias and noise, by the parametric bootstrap [2]_. A
scene f̃ takes the place of the true scene: it is blurred, and new noise of the same strength is added. The error of its
restoration with the same λ is known:

    e_i = restore(H f̃ + n_i; λ) − f̃ ,   s = mean_i e_i² ,   std² = c² s^(1−w) S^w ,

The mean in s also includes neighbouring pixels, and S is the mean of s over the frame. S is needed since s varies more
than the true errors: where f̃ is wrongly smooth, the data do not contradict it. An estimate is smoother than the truth,
so that the bias would be too small. Therefore f̃ is restored at λ/2, which adds about as much detail as the estimate
lacks. The factor c corrects the rest. c and w were fitted to photographs; ``benchmarks/bench_posterior.py`` measures on
other photographs how many true errors are within two standard deviations.

References
----------
.. [1] J. Kaipio, E. Somersalo, *Statistical and Computational Inverse Problems*, Springer 2005, section 3.4.
.. [2] B. Efron, R. J. Tibshirani, *An Introduction to the Bootstrap*, Chapman & Hall 1993, chapters 6 and 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import scipy

from .device import Array, as_real, check_finite, require_memory
from .errors import as_number, check_callback, check_choice, check_count, generator
from .image import as_float, linear_light
from .linalg import cholesky, gets
from .masks import check_weights
from .methods import METHODS
from .probing import Counted, drawn, probe
from .problem import Problem, Stop
from .solvers import cosine, fourier, kronecker, sine
from .solvers.start import all_weights, smoothed
from .terms import FORMULA, ORDER, REGULARIZERS, first_difference_power, is_quadratic, kind_of
from .threads import all_cores
from .tuning import check_noise, estimate_noise

if TYPE_CHECKING:
    from .result import Result

QUADRATIC = (*FORMULA, *(name for name in REGULARIZERS if is_quadratic(name) and name not in FORMULA))
EXACT = ("fft", "dct", "dst", "kronecker", "cholesky")
POSTERIOR_METHODS = ("auto", *EXACT, "simulated", "probing")

#: The factor c of each method whose estimates are simulated; for a quadratic regularizer with bounds it is 1.25.
FACTORS = {"tv": 1.15, "tv-aniso": 1.15, "tv2": 1.35, "collaborative": 1.85}
WHOLE = 0.3  # the exponent w

_SPECTRA = {"fft": fourier, "dct": cosine, "dst": sine, "kronecker": kronecker}


@dataclass(frozen=True, eq=False)
class PosteriorStd:
    """The posterior standard deviation of each pixel of a scene, in the units of the image.

    Attributes
    ----------
    std : (M, N) array
        The standard deviation inside the frame of the image.
    scene_std : (P, Q) array
        The standard deviation of the whole scene (`Blur.scene_shape`), which is larger than the image for boundary
        "unknown".
    method : str
        The method: one of "fft", "dct", "dst", "kronecker", "cholesky", "probing", "simulated".
    exact : bool
        True if the standard deviation was computed exactly, False if it was estimated.
    standard_error : (M, N) array or None
        The standard error of `std` if it was estimated; None if it is exact.
    noise : float
        The standard deviation σ of the noise that was used.
    noise_source : str
        "given" or "estimated".
    lam : float
        λ, in the units of `deblur.reconstruct`.
    regularizer : str
        The regularizer, or the nonlinear method.
    probes : int
        Number of random probes or simulated images; 0 if exact.
    """

    std: Array
    scene_std: Array
    method: str
    exact: bool
    standard_error: Array | None
    noise: float
    noise_source: str
    lam: float
    regularizer: str
    probes: int

    def __repr__(self) -> str:
        kind = "simulated images" if self.method == "simulated" else "probes"
        how = "exact" if self.exact else f"estimated from {self.probes} {kind}"
        return (
            f"PosteriorStd({self.std.shape}, {float(self.std.min()):.3g} to {float(self.std.max()):.3g}, "
            f"method={self.method!r}, {how}, noise={self.noise:.3g} ({self.noise_source}), lam={self.lam:.3g})"
        )


def posterior_std(
    of: Result | Problem,
    *,
    noise: float | None = None,
    image: Array | None = None,
    method: str = "auto",
    probes: int | None = None,
    seed: int | None = 0,
    callback: Callable[[int], None] | None = None,
) -> PosteriorStd:
    """Return the standard deviation of the error of each pixel of a restored image.

    For a quadratic regularizer it is the posterior standard deviation of the model in `deblur.posterior`. For an
    estimate that is not linear in the data it is the root mean square error of simulated images that resemble the given
    one.

    Parameters
    ----------
    of : Result or Problem
        A Result of `deblur.solve`, or a `deblur.problem.Problem` such as ``Problem(blur, 1e-3)``. It determines λ,
        regularizer, prior, weights and bounds, and the dtype and device of the computation.
    noise : float, optional
        Standard deviation σ of the noise at weight one, on the scale of the image. By default it is estimated from
        `image` (`deblur.tuning.estimate_noise`) if that is given. Otherwise it is the noise with which the λ of the
        Result was chosen.
    image : (M, N) array, optional
        The blurred image, as it was restored: integers are scaled to [0, 1]. Estimates that are not linear in the data
        need it.
    method : {"auto", "fft", "dct", "dst", "kronecker", "cholesky", "simulated", "probing"}
        ``"auto"`` chooses an exact method if there is one ("cholesky" only for up to 48 x 48 unknowns), and "probing"
        otherwise. For estimates that are not linear in the data, and only for these, it is "simulated".
    probes : int, optional
        Number of random probes of "probing" (64 by default), or of images that "simulated" restores (4 by default, with
        one more solve); an even number >= 4. The error decreases with its square root. With fewer than 16 probes
        `standard_error` is rough.
    seed : int or None
        Seed of the probes; None gives other probes at each call.
    callback : callable, optional
        Called with the number of completed probes or simulated images.

    Returns
    -------
    PosteriorStd
        The standard deviation, with the dtype and device of the Result's image, or of the Problem.

    Raises
    ------
    TypeError
        If `of` is neither a Result nor a Problem.
    ValueError
        If λ is not above zero, σ and image are both missing, the method is unknown or cannot be used, the estimate has
        no standard deviation, weights are negative or zero everywhere, or the number of probes is odd or below 4.
    ConvergenceError
        If the solve of a probe did not converge, since λ is too small.
    InsufficientMemoryError
        If the matrix of method "cholesky" would not fit in memory.

    Examples
    --------
    >>> import deblur
    >>> psf = deblur.psf.gaussian(7, 1.2)
    >>> blurred = deblur.degrade(deblur.data.load("camera64"), psf, noise=0.01, boundary="unknown", seed=0)
    >>> result = deblur.solve(blurred, psf, 1e-3)
    >>> spread = deblur.posterior_std(result, noise=0.01)
    >>> spread.method, spread.exact
    ('kronecker', True)
    >>> bool(spread.std[0, 0] > spread.std[32, 32])
    True
    """
    problem, regularizer = _stated(of)
    operator, dtype = problem.operator, problem.dtype
    check_choice(method, POSTERIOR_METHODS, "method")
    check_callback(callback, "callback", "completed")
    if probes is not None and check_count(probes, "probes, an even whole number,", 4) % 2:
        raise ValueError(f"probes must be an even whole number of at least 4, not {probes!r}")
    source, choice = "given", getattr(of, "lambda_choice", None)
    g = None if image is None else _plain(image, operator.image_shape, getattr(of, "gamma", None))
    if check_noise(noise) is None and g is not None:
        noise, source = estimate_noise(g, axes=problem.axes), "estimated"
    elif noise is None and choice is not None and choice.noise:
        noise, source = choice.noise, choice.noise_source
    if noise is None:
        raise ValueError("the noise's standard deviation is needed: give noise=... or the blurred image=...")
    name, sigma, xp = method, float(noise), problem.xp
    if method == "auto":  # an exact method that can be used, the cheapest first
        small = math.prod(operator.scene_shape) <= 48 * 48
        names = ("simulated", *_SPECTRA, "cholesky" if small else "probing")
        name = next((name for name in names if _refuses(name, problem, regularizer) is None), "simulated")
    if (reason := _refuses(name, problem, regularizer)) is not None:
        raise ValueError(f"method {name!r} cannot be used here: {reason}")
    error = None
    count = int(probes or (4 if name == "simulated" else 64))
    rng, report = generator(seed), callback or (lambda completed: None)  # the host draws the numbers
    with all_cores(), problem.device.current():
        if name == "simulated":
            if g is None:
                raise ValueError("the blurred image=... is needed: the simulated images resemble it")
            std, error = _simulated(problem, regularizer, xp.asarray(g).astype(dtype), sigma, rng, count, report)
        elif name == "probing":
            diagonal, deviation = probe(problem, count, rng, report)
            std = sigma * xp.sqrt(diagonal)
            # To first order, the error of a square root is the error over twice the root.
            error = sigma * deviation / (2 * xp.sqrt(diagonal))
        else:
            std = sigma * xp.sqrt(_diagonal(problem, name))
    std = std.astype(dtype)
    return PosteriorStd(
        std=std[operator.crop],
        scene_std=std,
        method=name,
        exact=error is None,
        standard_error=None if error is None else error[operator.crop].astype(dtype),
        noise=sigma,
        noise_source=source,
        lam=problem.lam,
        regularizer=regularizer,
        probes=0 if error is None else count,
    )


def _stated(of: Result | Problem) -> tuple[Problem, str]:
    """Return the checked problem of the estimate, and its regularizer or method."""
    problem = getattr(of, "problem", of)
    if not isinstance(problem, Problem):
        raise TypeError(
            f"posterior_std takes the Result of deblur.solve, or a deblur.problem.Problem, not {type(of).__name__}: a "
            "λ alone does not determine its regularizer"
        )
    weights, image_shape = problem.fidelity.weights, problem.operator.image_shape
    if weights is not None:
        weights = check_weights(weights)
        frames = weights.reshape(-1, *weights.shape[-problem.axes :])
        if frames.shape[1:] != image_shape or not bool((frames == frames[:1]).all()):
            raise ValueError(
                f"weights must have the image's shape {image_shape}, and be the same for all frames and colours, not "
                f"{weights.shape}; restore them one by one"
            )
        if not bool((weights > 0).any()):
            raise ValueError("weights must not be zero everywhere: no pixel would be left")
        weights = problem.xp.asarray(frames[0]).astype(problem.dtype)
    if not 0 < as_number(problem.lam) < math.inf:
        raise ValueError(f"λ must be above zero, not {problem.lam!r}: without a prior the deviation has no bound")
    if problem.formula == "hht" and not (problem.operator.shift_invariant and problem.blur.normal):
        raise ValueError("formula='hht' has no objective, so that there is no posterior; use formula='tikhonov'")
    methods = [m.name for m in METHODS.values() if m.regularizer == problem.regularizer and m.name in FACTORS]
    regularizer = problem.regularizer if problem.regularizer in QUADRATIC else (methods or [""])[0]
    if not regularizer or problem.fidelity.name != "gaussian" or problem.fidelity.background:
        raise ValueError(
            f"there is no standard deviation for the regularizer {problem.regularizer!r} and the data term "
            f"{problem.fidelity.name!r}: only for least squares without a background, and one of the regularizers "
            f"{', '.join(QUADRATIC)} and of the methods {', '.join(FACTORS)}"
        )
    fidelity = replace(problem.fidelity, weights=weights)
    return replace(problem, fidelity=fidelity, stop=Stop(), formula="tikhonov", inverse=False), regularizer


def _plain(image: Array, shape: tuple[int, ...], gamma: str | None) -> Array:
    """Return the blurred image as numbers of light, as it was restored."""
    image = as_real(as_float(image), "the image")
    if image.shape != shape:
        raise ValueError(
            f"the image must be grey and of the blur's shape {shape}, not {image.shape}; give frames and colours one "
            "by one"
        )
    check_finite(image, "the image")
    return image if gamma is None else linear_light(image)


def _simulated(
    problem: Problem, name: str, g: Array, sigma: float, rng: np.random.Generator, count: int, report: Counted
) -> tuple[Array, Array]:
    """Return the standard deviation of each pixel of a scene and its standard error, from `count` simulated images like
    `g`.
    """
    xp, operator, method, w = problem.xp, problem.operator, METHODS[name], all_weights(problem)[0, 0]
    truth = method.prepare(replace(problem, lam=0.5 * problem.lam)).solve(g[None, None]).scene[0, 0]
    seen = operator.forward(truth)
    spread = sigma / xp.sqrt(xp.where(w > 0, w, 1))  # the noise of a hidden pixel has no effect
    solver = method.prepare(problem)
    squares = []
    for i in range(count):
        noise = xp.asarray(rng.standard_normal(g.shape).astype(g.dtype))
        found = solver.solve((seen + spread * noise).astype(g.dtype)[None, None])
        squares.append(smoothed((found.scene[0, 0] - truth) ** 2, g.ndim))
        report(i + 1)
    stack = xp.stack(squares)
    local = xp.maximum(stack.mean(axis=0), np.finfo(g.dtype).tiny)
    whole = float(local[operator.crop].mean())
    std = FACTORS.get(name, 1.25) * xp.sqrt(local ** (1 - WHOLE) * whole**WHOLE)
    # To first order, the relative error of s^p is p times the relative error of s.
    return std, (1 - WHOLE) / 2 * std * stack.std(axis=0, ddof=1) / (np.sqrt(count) * local)


def _refuses(name: str, problem: Problem, regularizer: str) -> str | None:
    """Return the reason in words why a method cannot be used; None if it can."""
    if problem.regularizer not in QUADRATIC or problem.bounds is not None:
        if name != "simulated":
            return "the estimate is not linear in the data; use 'simulated'"
        return METHODS[regularizer].refuses(problem)
    if name == "simulated":
        return "the estimate is linear in the data; use 'probing' or an exact method"
    if name not in _SPECTRA:
        return None
    if problem.fidelity.weights is not None:
        return "weights leave the blur without a decomposition; use 'cholesky' or 'probing'"
    if name == "dst" and problem.operator.boundary.transform == "antireflective":
        return "the antireflective transform is not orthogonal; use 'cholesky' or 'probing'"
    diagonal = {"fft": {*QUADRATIC} - {"natural"}, "dct": {*QUADRATIC} - {"laplacian"}, "dst": {"identity"}}
    if problem.regularizer not in diagonal.get(name, FORMULA):
        return f"its transform does not diagonalise the regularizer {problem.regularizer!r}"
    return METHODS[name].refuses(replace(problem.linear_form, regularizer="identity"))


def _diagonal(problem: Problem, name: str) -> Array:
    """Return diag (HᵀWH + λLᵀL)⁻¹ by an exact method, with the shape of the scene."""
    if name == "cholesky":
        return _cholesky(problem)
    xp, form = problem.xp, problem.linear_form
    if name == "kronecker":
        parts = [np.linalg.svd(matrix, full_matrices=True) for matrix in form.blur.axis_matrices()]
        vectors = [vt.T for _, _, vt in parts]
        padded = [np.pad(values, (0, len(vt) - len(values))) for _, values, vt in parts]
        s = xp.asarray(reduce(np.multiply.outer, padded))  # zero for the null space of H
    else:
        s = _SPECTRA[name].decompose(form.blur, np.dtype(np.float64), problem.device).singular_values
    squares = reduce(xp.add.outer, (first_difference_power(n, name == "fft", xp) for n in s.shape))
    inverse = 1 / (s * s + problem.lam * squares ** ORDER[kind_of(form.regularizer)])
    if name == "fft":
        return xp.full(problem.operator.scene_shape, float(inverse.mean()))
    if name != "kronecker":
        transform, kind = (scipy.fft.idct, 2) if name == "dct" else (scipy.fft.dst, 1)
        vectors = [transform(np.eye(n), type=kind, axis=0, norm="ortho") for n in problem.operator.image_shape]
    for axis, columns in enumerate(vectors):  # the eigenvectors are outer products of the columns
        squares = xp.asarray(drawn(problem, columns.T, axes=1).T ** 2)
        inverse = xp.moveaxis(xp.tensordot(squares, inverse, (1, axis)), 0, axis)
    return inverse


def _cholesky(problem: Problem) -> Array:
    form, shape = problem.linear_form, problem.linear_form.operator.scene_shape
    n = math.prod(shape)
    instead = 'use method="probing", which never forms the matrix'
    require_memory(3 * n * n * 8, problem.xp, f"The inverse factor of HᵀWH + λLᵀL, {n} x {n},", instead)
    a = problem.xp.empty((n, n))
    for i in range(0, n, 256):
        units = problem.xp.eye(min(256, n - i), n, i).reshape(-1, *shape)
        a[i : i + 256] = form.normal(units).reshape(-1, n)
    inverse = drawn(problem, gets(cholesky(a, overwrite_a=True, check_finite=False)).reshape(-1, *shape))
    return (inverse * inverse).sum(axis=0)

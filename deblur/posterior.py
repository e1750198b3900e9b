"""The posterior standard deviation of each pixel of a restored image.

The model. The image is g = H f + n with white Gaussian noise n of standard deviation σ. A priori the scene is white
and Gaussian about its prior mean with precision λ/σ² (standard deviation σ/√λ). Given g, the scene is Gaussian about
the Tikhonov solution f_λ with the covariance

    C = σ² (HᵀH + λI)⁻¹ .

C depends on the blur, σ and λ, not on the image. Its diagonal lies between σ²/(‖H‖² + λ) and σ²/λ; a pixel that the
data do not determine keeps the prior's σ/√λ. It is the error that the *model* expects: with an unsuitable λ or a wrong
PSF it is wrong.

The other quadratic regularizers have a C too, with weights or a mask W (precision w/σ² of a pixel) and L the gradient
or the second derivatives:

    C = σ² (HᵀWH + λLᵀL)⁻¹ .

It is exact, without weights, from the decomposition H = U S Vᵀ where the method has one; for another L, ``fft`` and
``dct`` replace λ by λ|l|², l the symbol of L:

============= ==========================================================================================
``fft``       V is the Fourier transform, whose entries have one modulus: every pixel has the mean of
              σ²/(s² + λ)
``dct``       V = C₁ᵀ ⊗ C₂ᵀ: the squares of the two cosine matrices applied to 1/(s² + λ) (not for second derivatives)
``dst``       likewise with sine matrices (zero boundary)
``kronecker`` likewise with all right singular vectors of both axes: those in the null space of H belong to 1/λ
``cholesky``  HᵀWH + λLᵀL as a dense matrix, and the squares of its Cholesky factor's inverse summed down the columns
============= ==========================================================================================

Every sum has positive terms only, so nothing cancels however small λ is.

Otherwise ``probing`` estimates the diagonal of D = (HᵀWH + λLᵀL)⁻¹ in two ways, each with half of the probes, and takes
their mean, weighted at each pixel by the inverse of their variances:

*Random signs* z [1]_: z ∘ Dz has the mean diag D. A control variate reduces its variance: let T be the same inverse on
a torus around the scene, where it is diagonal in frequency and its diagonal constant, t. Then t + z ∘ (Dz − Tz) has the
same mean, and D and T differ only near the scene's borders. For a large λ this estimate is far the better one.

*Samples* of the posterior [2]_: f = D (Hᵀ√W n + √λ Lᵀm) with white noise n and m, whose square has the mean diag D.
For every λ, k of them give the deviation to 1/√(2k) of itself.

Each probe takes one solve. Without weights and for L = I that is one with HHᵀ + λI, by the preferred exact method:
Dz = (z − Hᵀ(HHᵀ + λI)⁻¹Hz)/λ, and for a scene f₀ drawn from the prior, f₀ + Hᵀ(HHᵀ + λI)⁻¹(n − Hf₀) is a sample.
Otherwise it is conjugate gradients, preconditioned by T. The variance of the first estimate comes from its scatter,
pooled over neighbouring pixels; that of the second is known; together they give the standard error. Weights that come
from the estimates themselves, and the root, leave a bias towards small values of a fraction of that error.

Estimates that are not linear in the data (total variation, patches, networks, bounds) have no such C. For them
``simulated`` gives the root mean square error, bias and noise together: see `deblur.resampling`.

References
----------
.. [1] C. Bekas, E. Kokiopoulou, Y. Saad, "An estimator for the diagonal of a matrix", Appl. Numer. Math. 57
       (2007) 1214-1229.
.. [2] G. Papandreou, A. Yuille, "Gaussian sampling by local perturbations", NIPS 2010. For the model:
       J. Kaipio, E. Somersalo, *Statistical and Computational Inverse Problems*, Springer 2005, section 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.fft

from .device import Array, Device, all_cores, as_real, check_finite, get_xp, require_memory
from .errors import ConvergenceError
from .linalg import cholesky, gets
from .linalg.krylov import cg
from .masks import check_weights
from .methods import METHODS, choose
from .operators.blur import Blur
from .operators.torus import Torus
from .problem import Problem, Stop, check_bounds
from .resampling import FACTORS, pooled, simulated
from .solvers import cosine, fourier, kronecker, sine
from .terms import (
    DIFFERENCES,
    ORDER,
    REGULARIZERS,
    DataFidelity,
    adjoint_differences,
    first_difference_power,
    inside,
    is_quadratic,
)
from .tuning import check_noise, estimate_noise
from .vector_ops import Systems

QUADRATIC = tuple(name for name in REGULARIZERS if is_quadratic(name))
EXACT = ("fft", "dct", "dst", "kronecker", "cholesky")
POSTERIOR_METHODS = ("auto", *EXACT, "simulated", "probing")

_SPECTRA: dict[str, Any] = {"fft": fourier, "dct": cosine, "dst": sine, "kronecker": kronecker}


@dataclass(frozen=True)
class PosteriorStd:
    """The posterior standard deviation of a scene, pixel by pixel; in the image's units.

    Attributes
    ----------
    std : (M, N) array
        Within the frame of the image.
    scene_std : (P, Q) array
        Of the whole scene (`Blur.scene_shape`): larger than the image for boundary "unknown".
    method : str
        How it was computed: one of "fft", "dct", "dst", "kronecker", "cholesky", "probing", "simulated".
    exact : bool
        True unless it is an estimate.
    standard_error : (M, N) array or None
        One standard deviation of the estimate's own error; None if it is exact.
    noise : float
        The σ used.
    noise_source : str
        "given" or "estimated".
    lam : float
    regularizer : str
    probes : int
        Random probes used, or images simulated; 0 if exact.
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
    blur: Blur,
    lam: float,
    *,
    noise: float | None = None,
    image: Array | None = None,
    regularizer: str = "identity",
    weights: Array | None = None,
    bounds: tuple[float, float] | None = None,
    method: str = "auto",
    probes: int | None = None,
    seed: int | None = 0,
    dtype: Any = np.float64,
    device: str | int | Device = "cpu",
    callback: Callable[[int], None] | None = None,
) -> PosteriorStd:
    """Standard deviation of the error of each pixel of a restored image; `deblur.posterior` describes the model.

    For quadratic regularizers it is the posterior standard deviation of the model; for estimates that are not linear
    in the data, the root mean square error on simulated images that resemble the given one.

    Parameters
    ----------
    blur : Blur
        PSF, size and boundary, such as ``result.blur`` of `deblur.solve`.
    lam : float
        The λ > 0 that the image was restored with (``result.lam``).
    noise : float, optional
        Standard deviation σ of the noise, on the scale of the image.
    image : (..., M, N) array, optional
        The blurred image, from which σ is estimated if it is not given (`deblur.tuning.estimate_noise`).
        A CuPy array is processed on its GPU. Nonlinear estimates need it, as (M, N).
    regularizer : {"identity", "gradient", "laplacian", "tv", "tv-aniso", "tv2", "collaborative"}
        What λ is the weight of: ‖f‖² (the linear formula), ‖∇f‖² or its second derivatives; or the method.
    weights : (M, N) array, optional
        One weight ≥ 0 for each pixel of the image; 0 for a hidden one (``~result.mask``). NumPy or CuPy.
    bounds : (float, float), optional
        Between which the scene was restored; either may be infinite.
    method : {"auto", "fft", "dct", "dst", "kronecker", "cholesky", "simulated", "probing"}
        ``"auto"`` takes an exact method where there is one, "cholesky" for up to 48 x 48 unknowns, and "probing"
        otherwise; "simulated" for nonlinear estimates, and only for those.
    probes : int, optional
        Random probes of "probing" (64 by default), or images that "simulated" restores (4 by default; one solve
        more); an even number from 4. The error falls with its root.
    seed : int or None
        Of the probes; None draws anew each time.
    dtype : dtype
        float64 (default) or float32: what is computed in.
    device : {"cpu", "gpu"} or int
        Where to compute if no `image` is given; a number is that of a GPU.
    callback : callable, optional
        Called with the number of completed probes or simulated images.

    Returns
    -------
    PosteriorStd

    Raises
    ------
    TypeError
        If `blur` is not a linear map, for instance the image.
    ValueError
        For λ that is not above zero, neither σ nor an image, an unknown method or regularizer, a method that
        cannot serve, weights that are negative or zero everywhere, or a number of probes that is odd or below 4.
    ConvergenceError
        If a probe could not be solved for: λ is too small to iterate.
    InsufficientMemoryError
        If the matrix of method "cholesky" would not fit.
    NoGPUError
        If a GPU is named and none can be used.

    Examples
    --------
    >>> import deblur
    >>> blur = deblur.Blur(deblur.psf.gaussian(7, 1.2), (64, 64), "unknown")
    >>> spread = deblur.posterior_std(blur, 1e-3, noise=0.01)
    >>> spread.method, spread.exact
    ('kronecker', True)
    >>> bool(spread.std[0, 0] > spread.std[32, 32])
    True
    """
    if not hasattr(blur, "forward"):
        raise TypeError(f"blur must be a deblur.Blur, such as result.blur, not {type(blur).__name__}")
    if isinstance(lam, (bool, np.bool_, str)) or np.ndim(lam) or not (np.isfinite(lam) and lam > 0):
        raise ValueError(f"λ must be above zero, not {lam!r}: without a prior the deviation has no bound")
    if method not in POSTERIOR_METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(POSTERIOR_METHODS)}")
    if probes is not None and (isinstance(probes, bool) or int(probes) != probes or probes < 4 or probes % 2):
        raise ValueError(f"probes must be an even whole number of at least 4, not {probes!r}")
    if regularizer not in (*QUADRATIC, *FACTORS):
        raise ValueError(
            f"unknown regularizer {regularizer!r}; choose one of {', '.join((*QUADRATIC, *FACTORS))}"
        )
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype must be float32 or float64, not {dtype}")
    if check_noise(noise) is None and image is None:
        raise ValueError("the noise's standard deviation is needed: give noise=... or the blurred image=...")
    sigma = estimate_noise(image) if noise is None else float(noise)
    place = Device.named(device) if image is None else Device.of(image)
    fidelity = DataFidelity(weights=_weights(weights, blur, dtype, place))
    stated = METHODS[regularizer].regularizer if regularizer in FACTORS else regularizer
    problem = Problem(blur, float(lam), stated, fidelity, check_bounds(bounds), dtype=dtype, device=place)
    xp = problem.xp
    linear = regularizer in QUADRATIC and problem.bounds is None
    name = method if method != "auto" else _choose(problem) if linear else "simulated"
    if linear == (name == "simulated"):
        what = f"the estimate is {'linear' if linear else 'not linear'} in the data"
        other = "'probing' or an exact method" if linear else "'simulated'"
        raise ValueError(f"method {name!r} cannot serve here: {what}; use {other}")
    error = None
    count = int(probes or (4 if name == "simulated" else 64))
    with all_cores(), place.current():
        if name == "simulated":
            row = METHODS[regularizer]
            if (reason := row.refuses(problem)) is not None:
                raise ValueError(f"method {regularizer!r} cannot serve here: {reason}")
            g = _plain(image, blur, dtype)
            std, deviation = simulated(problem, regularizer, g, sigma, count, seed, callback)
            error = deviation[blur.crop].astype(dtype)
        elif name == "probing":
            diagonal, deviation = _probe(problem, count, seed, callback)
            std = sigma * xp.sqrt(diagonal)
            # To first order: the error of a root is the error over twice the root.
            error = (sigma * deviation / (2 * xp.sqrt(diagonal)))[blur.crop].astype(dtype)
        else:
            if (reason := _refuses(name, problem)) is not None:
                raise ValueError(f"method {name!r} cannot serve here: {reason}")
            std = sigma * xp.sqrt(_diagonal(problem, name))
    std = std.astype(dtype)
    return PosteriorStd(
        std=std[blur.crop],
        scene_std=std,
        method=name,
        exact=error is None,
        standard_error=error,
        noise=sigma,
        noise_source="estimated" if noise is None else "given",
        lam=float(lam),
        regularizer=regularizer,
        probes=0 if error is None else count,
    )


def _plain(image: Array | None, blur: Blur, dtype: np.dtype) -> Array:
    """The image that the simulated ones resemble."""
    if image is None:
        raise ValueError("the blurred image=... is needed: the simulated images resemble it")
    if image.shape != blur.image_shape:
        raise ValueError(
            f"the image must be grey and of the blur's shape {blur.image_shape}, not {image.shape}; give frames and "
            "colours one by one"
        )
    image = as_real(image, "the image")
    check_finite(image, "the image")
    return image.astype(dtype)


def _weights(weights: Array | None, blur: Blur, dtype: np.dtype, device: Device) -> Array | None:
    if weights is None:
        return None
    weights = check_weights(weights, blur.image_shape)
    if not bool((weights > 0).any()):
        raise ValueError("weights must not be zero everywhere: no pixel would be left")
    return device.xp.asarray(weights).astype(dtype)


def _refuses(name: str, problem: Problem) -> str | None:
    if name not in _SPECTRA:
        return None
    if problem.fidelity.weights is not None:
        return "weights leave the blur without a decomposition; use 'cholesky' or 'probing'"
    if name == "dst" and problem.operator.boundary.transform == "antireflective":
        return "the antireflective transform is not orthogonal; use 'cholesky' or 'probing'"
    diagonal = {"fft": QUADRATIC, "dct": ("identity", "gradient")}.get(name, ("identity",))
    if problem.regularizer not in diagonal:
        return f"its transform does not diagonalise the regularizer {problem.regularizer!r}"
    return METHODS[name].refuses(replace(problem, regularizer="identity"))


def _choose(problem: Problem) -> str:
    """An exact method that serves, cheapest first, or "probing"."""
    small = math.prod(problem.operator.scene_shape) <= 48 * 48
    exact = (name for name in _SPECTRA if _refuses(name, problem) is None)
    return next(exact, "cholesky" if small else "probing")


def _symbol(problem: Problem, rows: Array, cols: Array) -> Array:
    """|l|² from the squared moduli of first differences along rows and columns."""
    kind = REGULARIZERS[problem.regularizer][0].differences
    return (rows[:, None] + cols) ** ORDER[kind]


def _inverse(problem: Problem, values: Array, wrap: bool) -> Array:
    """1/(s² + λ|l|²) in the layout of the Fourier transform if `wrap`, else of the cosine transform."""
    power = (first_difference_power(n, wrap, problem.xp) for n in values.shape)
    return 1 / (values * values + problem.lam * _symbol(problem, *power))


def _diagonal(problem: Problem, name: str) -> Array:
    """diag (HᵀWH + λLᵀL)⁻¹ by an exact method, of the scene's shape."""
    if name == "cholesky":
        return _cholesky(problem)
    xp, lam = problem.xp, problem.lam
    if name == "kronecker":
        parts = []
        for matrix in problem.blur.axis_matrices():
            _, values, vt = np.linalg.svd(matrix, full_matrices=True)
            parts.append((vt.T, np.pad(values, (0, len(vt) - len(values)))))  # H does not see the others
        (rows, s1), (cols, s2) = parts
        return _separable(rows, cols, 1 / (xp.asarray(np.outer(s1, s2)) ** 2 + lam))
    s = _SPECTRA[name].decompose(problem.blur, np.dtype(np.float64), problem.device).singular_values
    if name == "fft":
        return xp.full(problem.operator.scene_shape, float(_inverse(problem, s, True).mean()))
    inverse = _inverse(problem, s, False) if name == "dct" else 1 / (s * s + lam)
    transform, kind = (scipy.fft.idct, 2) if name == "dct" else (scipy.fft.dst, 1)
    rows, cols = (transform(np.eye(n), type=kind, axis=0, norm="ortho") for n in problem.operator.image_shape)
    return _separable(rows, cols, inverse)


def _separable(rows: np.ndarray, cols: np.ndarray, inverse: Array) -> Array:
    """Σ rows[y, a]² cols[x, b]² inverse[a, b]: the eigenvectors are outer products of the columns."""
    xp = get_xp(inverse)
    return xp.asarray(rows**2) @ inverse @ xp.asarray(cols**2).T


def _cholesky(problem: Problem) -> Array:
    shape = problem.operator.scene_shape
    n = math.prod(shape)
    instead = 'use method="probing", which never writes the matrix down'
    require_memory(3 * n * n * 8, problem.xp, f"The inverse factor of HᵀWH + λLᵀL, {n} x {n},", instead)
    a = problem.xp.empty((n, n))
    for i in range(0, n, 256):
        units = problem.xp.eye(min(256, n - i), n, i).reshape(-1, *shape)
        a[i : i + 256] = problem.normal(units).reshape(-1, n)
    inverse = gets(cholesky(a, overwrite_a=True, check_finite=False))
    return (inverse * inverse).sum(axis=0).reshape(shape)


def _probe(
    problem: Problem, probes: int, seed: int | None, callback: Callable[[int], None] | None
) -> tuple[Array, Array]:
    """Estimates of diag (HᵀWH + λLᵀL)⁻¹ and of their standard deviation, of the scene's shape, in float64."""
    xp, (p, q) = problem.xp, problem.operator.scene_shape
    torus = _Preconditioner(problem)
    rng = np.random.default_rng(seed)  # on the host: one seed, one result
    draw = _quadratic_draws(problem, rng, torus) if problem.asked else _linear_draws(problem, rng)
    signs_sum, signs_square, sample_sum = (xp.zeros((p, q)) for _ in range(3))
    left = count = probes // 2  # of either kind
    while left:
        k = min(4, left)  # signs and as many samples are solved for together
        left -= k
        z = xp.asarray((rng.integers(0, 2, (k, p, q)) * 2 - 1).astype(problem.dtype))
        inverse, sample = draw(z)
        estimate = torus.diagonal + (z * (inverse - torus(z))).astype(np.float64)
        signs_sum += estimate.sum(axis=0)
        signs_square += (estimate * estimate).sum(axis=0)
        sample_sum += (sample.astype(np.float64) ** 2).sum(axis=0)
        if callback is not None:
            callback(probes - 2 * left)
    first, second = signs_sum / count, sample_sum / count
    v1 = pooled((signs_square - count * first * first).clip(0, None) / ((count - 1) * count))
    v2 = 2 * second * second / count  # of the mean of `count` squares of normal numbers
    mean = (v2 * first + v1 * second) / (v1 + v2)
    return mean.clip(*torus.bounds), xp.sqrt(v1 * v2 / (v1 + v2))


class _Preconditioner:
    """T = R (w̄ |h|² + λ|l|²)⁻¹ Rᵀ, R the restriction of a torus to the scene, w̄ the mean weight."""

    def __init__(self, problem: Problem) -> None:
        operator, lam, psf = problem.operator, problem.lam, problem.operator.mean_blur.psf
        lengths = [
            n if operator.boundary.wraps else scipy.fft.next_fast_len(n + m - 1, real=True)
            for n, m in zip(operator.scene_shape, psf.shape, strict=True)
        ]
        w = problem.fidelity.weights
        weight, most = (1.0, 1.0) if w is None else (float(w.mean()), float(w.max()))
        powers = [first_difference_power(n, True, np) for n in lengths]
        prior = _symbol(problem, powers[0], powers[1][: lengths[1] // 2 + 1])
        total = weight * Torus(lengths).power(psf) + lam * prior
        inverse = 1 / np.maximum(total, float(np.finfo(np.float64).eps) * total.max())
        self._torus = Torus(lengths, problem.device)
        self._inverse = problem.xp.asarray(inverse.astype(problem.dtype))
        self.diagonal = float(Torus(lengths).synthesise(inverse)[0, 0])  # its one value there
        # The diagonal of the inverse lies between the inverses of the largest and smallest eigenvalue.
        norm = (operator.boundary.weight * operator.norm_bound) ** 2
        self.bounds = 1 / (most * norm + lam * float(prior.max())), 1 / (lam * float(prior.min()) or 1e-300)

    def __call__(self, z: Array) -> Array:
        return self._torus.filter(z, self._inverse)


_Draw = Callable[[Array], tuple[Array, Array]]


def _linear_draws(problem: Problem, rng: np.random.Generator) -> _Draw:
    """From signs z, (Dz, as many samples of the posterior), for D = (HᵀH + λI)⁻¹."""
    operator, xp, dtype, lam = problem.operator, problem.xp, problem.dtype, problem.lam
    # The residual amounts to an error of D of at most 1/(2 √λ) times itself, a thousandth here.
    rtol = min(1e-4, max(1e-3 * math.sqrt(lam) / operator.norm_bound, 20 * float(np.finfo(dtype).eps)))
    problem = replace(problem, stop=Stop(rtol=rtol))
    factor = METHODS[choose(problem).method].prepare(problem)

    def draw(z: Array) -> tuple[Array, Array]:
        k = len(z)
        f = xp.asarray((rng.standard_normal(z.shape) / math.sqrt(lam)).astype(dtype))
        n = xp.asarray(rng.standard_normal((k, *operator.image_shape)).astype(dtype))
        # One solve for both: Hᵀ(HHᵀ + λI)⁻¹ of Hz and of n − Hf.
        found = factor.solve(xp.concatenate([operator.forward(z), n - operator.forward(f)])[:, None])
        if not found.converged:
            raise ConvergenceError(f"a probe could not be solved for: {found.why}")
        y = found.scene[:, 0]
        return (z - y[:k]) / dtype.type(lam), f + y[k:]

    return draw


def _quadratic_draws(problem: Problem, rng: np.random.Generator, precondition: _Preconditioner) -> _Draw:
    """The same for D = (HᵀWH + λLᵀL)⁻¹, by conjugate gradients to a ten-thousandth in the energy norm."""
    operator, weights, xp, dtype = problem.operator, problem.fidelity.weights, problem.xp, problem.dtype
    root = 1.0 if weights is None else xp.sqrt(weights)
    kind, wraps = REGULARIZERS[problem.regularizer][0].differences, operator.boundary.wraps

    def noise(*shape: int) -> Array:
        return xp.asarray(rng.standard_normal(shape).astype(dtype))

    def draw(z: Array) -> tuple[Array, Array]:
        k = len(z)
        right = operator.adjoint(root * noise(k, *operator.image_shape))
        m = []
        for difference in DIFFERENCES[kind]:
            u = noise(*z.shape)
            at = (..., *inside(difference, operator.scene_shape))
            m.append(xp.zeros_like(u) if not wraps else u)  # zero where the difference is not counted
            m[-1][at] = u[at]
        right += dtype.type(math.sqrt(problem.lam)) * adjoint_differences(m, kind, wraps)
        b = xp.concatenate([z, right])
        start = _dot(b, precondition(b))
        systems = Systems(_dot, lambda at: float((at.rz / start).max()))
        found = cg(problem.normal, b, systems, precondition=precondition, rtol=1e-8, max_iterations=1000)
        if not found.residual <= 1e-8:
            raise ConvergenceError(
                f"a probe could not be solved for in 1000 iterations: use a larger λ than "
                f"{problem.lam:g}, or method 'cholesky' for a small image"
            )
        return found.x[:k], found.x[k:]

    return draw


def _dot(x: Array, y: Array) -> Array:
    return get_xp(x).einsum("kij,kij->k", x, y)[:, None, None]

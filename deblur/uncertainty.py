"""How far each pixel of a restored image can be trusted: the posterior standard deviation.

The model. The image is g = H f + n with white Gaussian noise n of standard
deviation σ, and before it is seen the scene is white and Gaussian about its
prior mean with precision λ/σ² (standard deviation σ/√λ). Given g, the scene is
Gaussian about the Tikhonov solution f_λ, with the covariance

    C = σ² (HᵀH + λI)⁻¹ .

C depends on the blur, σ and λ, not on the picture. Its diagonal lies between
σ²/(‖H‖² + λ) and σ²/λ; a pixel that the image says nothing about keeps the
prior's σ/√λ. It is the error that the *model* expects: a λ that draws the
scene too weakly or too strongly, or a wrong PSF, makes it wrong.

Exact, from the decomposition H = U S Vᵀ where the method has one:

=========== ==========================================================================================
``fft``     V is the Fourier transform, whose entries have one modulus: every pixel has the mean of
            σ²/(s² + λ)
``dct``     V = C₁ᵀ ⊗ C₂ᵀ: the squares of the two cosine matrices applied to 1/(s² + λ)
``dst``     likewise with sine matrices (zero boundary)
``kronecker`` likewise with the right singular vectors of both axes, all of them: those that H does not see
            belong to 1/λ
``cholesky`` HᵀH + λI = L Lᵀ written down, and the squares of L⁻¹ summed down its columns
=========== ==========================================================================================

Every sum has positive terms only, so that nothing cancels however small λ is.

Elsewhere ``probing`` estimates the diagonal of D = (HᵀH + λI)⁻¹ in two ways at
once, each with half of the probes, and takes their mean weighted pixel by pixel
by the inverse of their variances:

*Random signs* z [1]_: z ∘ Dz has the mean diag D. Its variance is made small by
what is known: let T be the same inverse on a torus around the scene, where it
is diagonal in frequency and its diagonal constant, t. Then t + z ∘ (Dz − Tz)
has the same mean, and D and T differ only near the scene's edges. With a large
λ this is the better one by far.

*Samples* of the posterior [2]_: a scene f₀ from the prior and noise n, and
f = f₀ + Hᵀ(HHᵀ + λI)⁻¹(n − Hf₀), whose square has the mean diag D (in units of
σ²). Whatever λ is, k of them give the deviation to 1/√(2k) of itself.

Both take a solve with HHᵀ + λI, by the cheapest exact method. The variance of
the first comes from its scatter, pooled over neighbouring pixels, that of the
second is known; together they give the standard error. Weights that come from
the estimates themselves, and the root, leave a bias towards small values of a
fraction of that error.

References
----------
.. [1] C. Bekas, E. Kokiopoulou, Y. Saad, "An estimator for the diagonal of a matrix", Appl. Numer. Math. 57
       (2007) 1214-1229.
.. [2] G. Papandreou, A. Yuille, "Gaussian sampling by local perturbations", NIPS 2010. For the model:
       J. Kaipio, E. Somersalo, *Statistical and Computational Inverse Problems*, Springer 2005, section 3.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import scipy.fft

from .backend import Array, get_fft, get_xp, require_memory
from .blur import Blur
from .errors import ConvergenceError
from .linalg import cholesky, gets
from .methods import METHODS, choose
from .regularization import estimate_noise
from .solvers import cosine, fourier, kronecker, sine
from .solvers.base import Problem
from .solvers.spectrum import all_cores

EXACT = ("fft", "dct", "dst", "kronecker", "cholesky")
UNCERTAINTY_METHODS = ("auto", *EXACT, "probing")

_PROBES = 64
_BATCH = 8  # probes solved together
_POOL = 2.0  # standard deviation in pixels of the neighbourhood over which the scatter is pooled
_DENSE = 48 * 48  # unknowns up to which "auto" writes the matrix down
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
        How it was computed: one of "fft", "dct", "dst", "kronecker", "cholesky", "probing".
    exact : bool
        True unless it is an estimate.
    standard_error : (M, N) array or None
        One standard deviation of the estimate's own error; None if it is exact.
    noise : float
        The σ used.
    noise_source : str
        "given" or "estimated".
    lam : float
    probes : int
        Random probes used; 0 if exact.
    """

    std: Array
    scene_std: Array
    method: str
    exact: bool
    standard_error: Array | None
    noise: float
    noise_source: str
    lam: float
    probes: int

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"estimated from {self.probes} probes"
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
    method: str = "auto",
    probes: int = _PROBES,
    seed: int | None = 0,
    dtype: Any = np.float64,
    xp: ModuleType = np,
) -> PosteriorStd:
    """Posterior standard deviation of each pixel of the Tikhonov solution; see `deblur.uncertainty` for the model.

    Parameters
    ----------
    blur : Blur
        PSF, size and boundary, such as ``result.blur`` of `deblur.solve`.
    lam : float
        The λ > 0 that the image was restored with (``result.lam``).
    noise : float, optional
        Standard deviation σ of the noise, on the scale of the image.
    image : (..., M, N) array, optional
        The blurred image, from which σ is estimated if it is not given (`deblur.regularization.estimate_noise`).
        If it is a CuPy array the work is done on its GPU.
    method : {"auto", "fft", "dct", "dst", "kronecker", "cholesky", "probing"}
        ``"auto"`` takes an exact one where there is one, the dense one for up to 48 x 48 unknowns, and
        else the estimate.
    probes : int
        Random probes of "probing", an even number from 4: the error falls with the root of it.
    seed : int or None
        Of the probes; None draws anew each time.
    dtype : dtype
        float64 (default) or float32: what is computed in.
    xp : module
        numpy (default) or cupy, if there is no `image` to read it off.

    Returns
    -------
    PosteriorStd

    Raises
    ------
    ValueError
        For λ that is not above zero, neither σ nor an image, an unknown method, one that cannot serve the
        blur, or a number of probes that is odd or below 4.
    ConvergenceError
        If a probe could not be solved for: λ is too small to iterate.
    InsufficientMemoryError
        If method "cholesky" was asked for and its matrix would not fit.

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
    if not (np.isfinite(lam) and lam > 0):
        raise ValueError(f"λ must be above zero, not {lam!r}: without a prior the deviation has no bound")
    if method not in UNCERTAINTY_METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(UNCERTAINTY_METHODS)}")
    if isinstance(probes, bool) or int(probes) != probes or probes < 4 or probes % 2:
        raise ValueError(f"probes must be an even whole number of at least 4, not {probes!r}")
    xp = xp if image is None else get_xp(image)
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype must be float32 or float64, not {dtype}")
    sigma, source = _noise(noise, image)
    problem = Problem(blur, float(lam), dtype=dtype, xp=xp)
    name = _choose(problem) if method == "auto" else method
    error = None
    with all_cores():
        if name == "probing":
            diagonal, deviation = _probe(problem, int(probes), seed)
            std = sigma * xp.sqrt(diagonal)
            # To first order: the error of a root is the error over twice the root.
            error = (sigma * deviation / (2 * xp.sqrt(diagonal)))[blur.crop].astype(dtype)
        else:
            reason = _refuses(name, problem)
            if reason is not None:
                raise ValueError(f"method {name!r} cannot serve here: {reason}")
            std = sigma * xp.sqrt(_DIAGONALS[name](problem))
    std = std.astype(dtype)
    return PosteriorStd(
        std=std[blur.crop],
        scene_std=std,
        method=name,
        exact=error is None,
        standard_error=error,
        noise=sigma,
        noise_source=source,
        lam=float(lam),
        probes=0 if error is None else int(probes),
    )


def _noise(noise: float | None, image: Array | None) -> tuple[float, str]:
    if noise is not None:
        if not (np.isfinite(noise) and noise >= 0):
            raise ValueError(f"noise must be a standard deviation >= 0, not {noise!r}")
        return float(noise), "given"
    if image is None:
        raise ValueError(
            "the standard deviation of the noise is needed: give noise=... or the blurred image=..."
        )
    return estimate_noise(image), "estimated"


def _refuses(name: str, problem: Problem) -> str | None:
    if name in _SPECTRA:
        if name == "dst" and problem.blur.boundary == "antireflect":
            return "the antireflective transform is not orthogonal; use 'cholesky' or 'probing'"
        return _SPECTRA[name].refuses(problem)
    return None


def _choose(problem: Problem) -> str:
    """An exact method that serves, cheapest first, or "probing"."""
    for name in _SPECTRA:
        if _refuses(name, problem) is None:
            return name
    return "cholesky" if math.prod(problem.blur.scene_shape) <= _DENSE else "probing"


# ---------------------------------------------------------------------------------------------
# Exact: diag (HᵀH + λI)⁻¹, of the scene's shape
# ---------------------------------------------------------------------------------------------


def _fourier(problem: Problem) -> Array:
    blur = problem.blur
    s = fourier.decompose(blur, np.dtype(np.float64), problem.xp).singular_values
    return problem.xp.full(blur.scene_shape, float((1 / (s * s + problem.lam)).mean()))


def _separable(problem: Problem, rows: np.ndarray, cols: np.ndarray, values: Array) -> Array:
    """Σ rows[y, a]² cols[x, b]² / (values[a, b]² + λ): the eigenvectors are outer products of the columns."""
    xp = problem.xp
    left, right = xp.asarray(rows**2), xp.asarray(cols**2)
    return left @ (1 / (values * values + problem.lam)) @ right.T


def _cosine(problem: Problem) -> Array:
    blur, xp = problem.blur, problem.xp
    values = cosine.decompose(blur, np.dtype(np.float64), xp).singular_values
    bases = [scipy.fft.idct(np.eye(n), type=2, axis=0, norm="ortho") for n in blur.image_shape]
    return _separable(problem, bases[0], bases[1], values)


def _sine(problem: Problem) -> Array:
    blur, xp = problem.blur, problem.xp
    values = sine.decompose(blur, np.dtype(np.float64), xp).singular_values
    bases = [scipy.fft.dst(np.eye(n), type=1, axis=0, norm="ortho") for n in blur.image_shape]
    return _separable(problem, bases[0], bases[1], values)


def _kronecker(problem: Problem) -> Array:
    parts = []
    for matrix in problem.blur.axis_matrices():
        _, s, vt = np.linalg.svd(matrix, full_matrices=True)
        parts.append((vt.T, np.pad(s, (0, len(vt) - len(s)))))  # what H does not see has singular value 0
    (v1, s1), (v2, s2) = parts
    return _separable(problem, v1, v2, problem.xp.asarray(np.outer(s1, s2)))


def _cholesky(problem: Problem) -> Array:
    blur, xp = problem.blur, problem.xp
    n = blur.shape[1]
    instead = 'use method="probing", which never writes the matrix down'
    require_memory(3 * n * n * 8, xp, f"The inverse factor of HᵀH + λI, {n} x {n},", instead)
    h = blur.to_sparse()
    a = xp.asarray((h.T @ h).toarray())
    a[xp.arange(n), xp.arange(n)] += problem.lam
    inverse = gets(cholesky(a, overwrite_a=True, check_finite=False))
    return (inverse * inverse).sum(axis=0).reshape(blur.scene_shape)


_DIAGONALS = {"fft": _fourier, "dct": _cosine, "dst": _sine, "kronecker": _kronecker, "cholesky": _cholesky}


# ---------------------------------------------------------------------------------------------
# Estimated
# ---------------------------------------------------------------------------------------------


def _probe(problem: Problem, probes: int, seed: int | None) -> tuple[Array, Array]:
    """Estimates of diag (HᵀH + λI)⁻¹ and of their standard deviation, of the scene's shape, in float64."""
    blur, xp, lam = problem.blur, problem.xp, problem.lam
    fft = get_fft(xp)
    lengths = tuple(
        scipy.fft.next_fast_len(n + m - 1, real=True) if blur.boundary != "periodic" else n
        for n, m in zip(blur.scene_shape, blur.psf.shape, strict=True)
    )
    transfer = scipy.fft.rfft2(blur.psf, s=lengths)
    symbol = 1 / (transfer.real**2 + transfer.imag**2 + lam)
    constant = float(scipy.fft.irfft2(symbol, s=lengths)[0, 0])
    multiplier = xp.asarray(symbol.astype(problem.dtype))
    # The residual amounts to an error of D of at most 1/(2 √λ) times itself, a thousandth here.
    rtol = min(1e-4, max(1e-3 * math.sqrt(lam) / blur.gain, 20 * float(np.finfo(problem.dtype).eps)))
    problem = replace(problem, rtol=rtol)
    factor = METHODS[choose(problem).method].prepare(problem)
    rng = np.random.default_rng(seed)  # on the host: one seed, one result
    p, q = blur.scene_shape
    root = problem.dtype.type(math.sqrt(lam))
    signs_sum, signs_square, sample_sum = (xp.zeros((p, q)) for _ in range(3))
    left = probes // 2  # of either kind
    while left:
        k = min(_BATCH // 2, left)
        left -= k
        signs = rng.integers(0, 2, (k, p, q)) * 2.0 - 1
        prior, noise = rng.standard_normal((k, p, q)), rng.standard_normal((k, *blur.image_shape))
        z, f, n = (xp.asarray(x.astype(problem.dtype)) for x in (signs, prior, noise))
        f /= root
        # One solve for both kinds: Hᵀ(HHᵀ + λI)⁻¹ of what the probe, and of what the drawn scene, leaves.
        y, info = factor.solve(xp.concatenate([blur.forward(z), n - blur.forward(f)]))
        if not info.converged:
            raise ConvergenceError(f"a probe could not be solved for: {info.note}")
        torus = fft.irfft2(fft.rfft2(z, s=lengths) * multiplier, s=lengths)[..., :p, :q]
        estimate = constant + (z * ((z - y[:k]) / z.dtype.type(lam) - torus)).astype(np.float64)
        signs_sum += estimate.sum(axis=0)
        signs_square += (estimate * estimate).sum(axis=0)
        sample_sum += ((f + y[k:]).astype(np.float64) ** 2).sum(axis=0)
    count = probes // 2
    first, second = signs_sum / count, sample_sum / count
    v1 = _pooled((signs_square - count * first * first).clip(0, None) / ((count - 1) * count))
    v2 = 2 * second * second / count  # of the mean of `count` squares of normal numbers
    mean = (v2 * first + v1 * second) / (v1 + v2)
    # diag lies between 1/(‖H‖² + λ) and 1/λ; chance does not respect that. (‖H‖ of antireflect may exceed the gain.)
    low = 1 / (blur.gain**2 + lam) if blur.boundary != "antireflect" else 1 / (9 * blur.gain**2 + lam)
    return mean.clip(low, 1 / lam), xp.sqrt(v1 * v2 / (v1 + v2))


def _pooled(x: Array) -> Array:
    """A weighted mean over neighbouring pixels."""
    if get_xp(x) is np:
        from scipy.ndimage import gaussian_filter
    else:
        from cupyx.scipy.ndimage import gaussian_filter
    return gaussian_filter(x, _POOL, mode="reflect")

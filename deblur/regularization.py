"""Choosing λ: generalised cross-validation, discrepancy, L-curve and UPRE, and the noise level they need.

Every rule is a function of two things only. With H = U S Vᵀ these are the
spectrum σ_i² of HHᵀ and the power |u_iᵀ g|² of the image in it:

    residual   ρ(λ) = ‖g − H f_λ‖² = Σ (λ/(σ_i² + λ))² |u_iᵀ g|²
    solution   ξ(λ) = ‖f_λ‖²       = Σ σ_i²/(σ_i² + λ)² |u_iᵀ g|²
    influence  A(λ)                = Σ σ_i²/(σ_i² + λ), the effective number of parameters

The rules are, with N pixels and noise of standard deviation s,

``gcv``
    minimises ρ/(N − A)² [1]_.
``upre``
    minimises ρ + 2 s² A − N s², an unbiased estimate of the predictive risk ‖H f_λ − H f‖² [2]_.
``discrepancy``
    ρ(λ) = N s²: the residual is as large as the noise [3]_.
``lcurve``
    the corner, the point of largest curvature of (log √ρ, log √ξ) [4]_.

*The norm.* Both `gcv` and `upre` as published look for the λ that predicts H f
best, which is several times smaller than the one that restores f best: H
hides the noise that f_λ has been given. With ``norm="scene"``, the default,
every term i of ρ, A and N is weighted by

    w_i = λ₀/(σ_i² + λ₀) ,   λ₀ = λ/4 ,

which measures the same errors in the norm of (HHᵀ + λ₀I)^(−1/2): a wrong
H f_λ counts as the wrong f_λ that it comes from, as far down the spectrum as λ
lets anything through. The λ in λ₀ is that found before, until it repeats.
``norm="data"`` is the published form, w = 1. The weighting is this project's
own; ``benchmarks/bench_lambda.py`` measures both.

*The sums.* Where the blur has a spectral decomposition they are exact. For
other blurs ρ and ξ come from a Golub-Kahan bidiagonalisation started from g,
as Gauss quadrature, and A from a second one started from random signs [5]_; both
grow until the chosen λ settles.

References
----------
.. [1] G. H. Golub, M. Heath, G. Wahba, Technometrics 21 (1979) 215-223.
.. [2] C. R. Vogel, *Computational Methods for Inverse Problems*, SIAM 2002, section 7.1.
.. [3] V. A. Morozov, Soviet Math. Doklady 7 (1966) 414-417.
.. [4] P. C. Hansen, D. P. O'Leary, SIAM J. Sci. Comput. 14 (1993) 1487-1503.
.. [5] G. H. Golub, U. von Matt, J. Comput. Graph. Stat. 6 (1997) 1-34.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import scipy.fft
import scipy.special

from .backend import Array, asnumpy, check_finite, float_dtype, get_xp
from .blur import Blur
from .solvers.base import Problem
from .solvers.hybrid_lsqr import Bidiagonalization
from .solvers.spectrum import all_cores

RULES = ("gcv", "discrepancy", "lcurve", "upre")
NEEDS_NOISE = ("discrepancy", "upre")

NORMS = ("scene", "data")

# The search runs over these multiples of σ_max²; without a decomposition a smaller λ could neither
# be judged by a bidiagonalisation of affordable length nor be solved for.
_RANGE, _RANGE_ITERATIVE = (1e-8, 10.0), (1e-6, 10.0)
_PER_DECADE = 10
_EXACT = 1 << 15  # more singular values than this are gathered into bins
_BIN = 2e-3  # relative width of a bin
_DENSE = 24 * 24  # pixels up to which an SVD of the matrix itself is the cheapest decomposition
_STEPS = 400
_FLOOR = 0.25  # λ₀/λ of the norm "scene"
_SETTLED = 0.03  # relative change of λ, and of the residual at it, over a quarter more steps


def check_rule(rule: str) -> str:
    """`rule` itself, or ValueError listing the ones known."""
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r} for λ; give a number >= 0 or one of {', '.join(RULES)}")
    return rule


@dataclass(frozen=True)
class LambdaChoice:
    """A chosen λ with everything that led to it. All arrays are NumPy float64.

    Attributes
    ----------
    lam : float
        The chosen λ.
    rule : str
        The rule that chose it.
    reason : str
        Why, in one sentence.
    remark : str
        What is wrong with the curve ("monotone ...", "flat ..."); empty if nothing is.
    noise : float or None
        Standard deviation of the noise that the rule used; None if it used none.
    noise_source : str
        "given", "estimated" or "not used".
    lambdas : (m,) array
        The λ looked at, increasing.
    values : (m,) array
        The rule's function at them: the GCV function, the root mean square residual (to be compared
        with `noise`), the curvature of the L-curve, or the estimated risk.
    residual_norms, solution_norms : (m,) array
        ‖g − H f_λ‖ and ‖f_λ‖ at them, of all frames together.
    singular_values : (p,) array
        Singular values of H, decreasing; for large images gathered in narrow bins, and with a
        bidiagonalisation its Ritz values.
    coefficients : (p,) array
        Root mean square of |u_iᵀ g| at them, over the frames and the bin.
    decomposition : str
        Where the singular values come from.
    """

    lam: float
    rule: str
    reason: str
    remark: str
    noise: float | None
    noise_source: str
    lambdas: np.ndarray
    values: np.ndarray
    residual_norms: np.ndarray
    solution_norms: np.ndarray
    singular_values: np.ndarray
    coefficients: np.ndarray
    decomposition: str

    def __repr__(self) -> str:
        return f"LambdaChoice(lam={self.lam:.4g}, rule={self.rule!r}, {self.reason})"


# ---------------------------------------------------------------------------------------------
# The noise level
# ---------------------------------------------------------------------------------------------

# High-pass filter of the Daubechies wavelet with two vanishing moments.
_DB2 = np.array([1 - 3**0.5, 3**0.5 - 3, 3 + 3**0.5, -1 - 3**0.5]) / (4 * 2**0.5)
_MEDIAN = 0.6744897501960817  # median of |x| for x standard normal
_QUIETER = 0.8  # below this the blocks' power is less than the median's by more than chance
_SIDE, _QUANTILE = 6, 0.05  # blocks of coefficients, and how many of them are taken to hold noise alone


def estimate_noise(g: Array) -> float:
    """The standard deviation of white noise in an image, from its finest diagonal wavelet coefficients.

    It is the median modulus of the coefficients of the db2 wavelet over 0.6745 [1]_,
    unless the quietest 5 % of the 6 x 6 blocks of coefficients hold clearly less:
    then it is their root mean square, over what that is for pure noise [2]_. A
    picture adds to both, but seldom everywhere.


    Parameters
    ----------
    g : (..., M, N) array
        An image, or frames with the same noise (their root mean square is returned).

    Returns
    -------
    float
        In the units of `g`; 0 for an image without fine detail, such as a constant one.

    Raises
    ------
    ValueError
        If a side is under 4 pixels, or `g` is not finite.

    Notes
    -----
    A blurred picture has little left at these frequencies, so the estimate is
    close; it is too large where the blur is slight, the picture is texture all
    over and the noise weak. Noise that is not white (JPEG, demosaicing,
    resampling) is not seen for what it is. ``benchmarks/bench_lambda.py``
    measures the accuracy.

    References
    ----------
    .. [1] D. L. Donoho, I. M. Johnstone, Biometrika 81 (1994) 425-455.
    .. [2] S. I. Olsen, Estimation of noise in images: an evaluation, CVGIP 55 (1993) 319-323.
    """
    xp = get_xp(g)
    g = xp.asarray(g)
    if g.ndim < 2 or min(g.shape[-2:]) < len(_DB2):
        raise ValueError(
            f"the noise of an image of shape {g.shape} cannot be estimated: at least 4 x 4 pixels are "
            "needed; give its standard deviation (noise=...)"
        )
    check_finite(g, "the image")
    x = g.reshape(-1, *g.shape[-2:]).astype(np.float64)
    for _ in range(2):  # along the rows, then along the columns
        n = x.shape[-1] - len(_DB2) + 1
        x = sum(float(w) * x[..., k : k + n] for k, w in enumerate(_DB2))[..., ::2].swapaxes(-1, -2)
    flat = 1e-12 * float(
        abs(g).max()
    )  # coefficients of clipped or painted areas: no noise is to be seen there
    return math.sqrt(sum(_noise_power(frame, flat) for frame in x) / len(x))


def _noise_power(x: Array, flat: float) -> float:
    """The estimate from one frame's coefficients, squared."""
    xp = get_xp(x)
    moduli = abs(x)
    some = moduli[moduli > flat]
    if some.size == 0:
        return 0.0
    power = float(xp.median(some) / _MEDIAN) ** 2
    rows, cols = (n // _SIDE for n in x.shape)
    x = x[: rows * _SIDE, : cols * _SIDE].reshape(rows, _SIDE, cols, _SIDE)
    blocks = (x**2).mean(axis=(1, 3))[(abs(x) > flat).all(axis=(1, 3))]
    if blocks.size * _QUANTILE < 1:
        return power
    expected = scipy.special.chdtri(_SIDE**2, 1 - _QUANTILE) / _SIDE**2
    quiet = float(xp.quantile(blocks, _QUANTILE)) / expected
    return quiet if quiet < _QUIETER * power else power


# ---------------------------------------------------------------------------------------------
# What to regularise towards
# ---------------------------------------------------------------------------------------------


def prior_scene(blur: Blur, g: Array, smoothing: float = 3.0) -> Array:
    """The scene to expect before anything is known: the image itself, smoothed and continued by its edge pixels.

    λ‖f‖² draws the restored scene towards black, and beyond the frame, where nothing holds it, all the
    way: with boundary "unknown" the edge of that darkness rings into the picture. Drawing it towards
    this scene f̄ instead is the same formula, applied to g − H f̄:

        f = f̄ + Hᵀ(HHᵀ + λI)⁻¹ (g − H f̄) ,   the minimiser of ‖Hf − g‖² + λ‖f − f̄‖² .

    Parameters
    ----------
    blur : Blur
    g : (..., M, N) array
        The blurred image.
    smoothing : float
        Standard deviation of the Gaussian in pixels; it keeps the noise of g out of f̄.

    Returns
    -------
    (..., P, Q) array
        Of the blur's `scene_shape`, divided by the PSF's sum.
    """
    xp = get_xp(g)
    if xp is np:
        from scipy.ndimage import gaussian_filter1d
    else:
        from cupyx.scipy.ndimage import gaussian_filter1d
    g = xp.asarray(g)
    g = g.astype(float_dtype(g), copy=False)
    for axis in (-2, -1):
        g = gaussian_filter1d(g, smoothing, axis=axis, mode="nearest")
    around = [(c.start, n - c.stop) for c, n in zip(blur.crop, blur.scene_shape, strict=True)]
    total = float(blur.psf.sum())
    bright = total if abs(total) > 1e-3 * blur.gain else 1.0  # an edge filter keeps none
    return xp.pad(g, [(0, 0)] * (g.ndim - 2) + around, mode="edge") / g.dtype.type(bright)


# ---------------------------------------------------------------------------------------------
# The sums
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FilterSums:
    """ρ, ξ and A as functions of λ: two discrete measures and the sums over them.

    Attributes
    ----------
    values, power : (p,) arrays
        σ_i² and the power of the image there, summed over frames.
    operator, counts : (q,) arrays
        σ_i² and how many there are, for one frame.
    frames : int
    decomposition : str
        Where they come from, in words.
    """

    values: np.ndarray
    power: np.ndarray
    operator: np.ndarray
    counts: np.ndarray
    frames: int
    decomposition: str

    @property
    def top(self) -> float:
        """σ_max²."""
        return float(self.operator.max())

    @property
    def pixels(self) -> float:
        """N, the pixels of all frames."""
        return float(self.counts.sum()) * self.frames

    def residual(self, lam: float) -> float:
        """ρ(λ)."""
        return float(((lam / (self.values + lam)) ** 2) @ self.power)

    def solution(self, lam: float) -> float:
        """ξ(λ)."""
        return float((self.values / (self.values + lam) ** 2) @ self.power)

    def influence(self, lam: float) -> float:
        """A(λ), all frames together."""
        return self.frames * float((self.operator / (self.operator + lam)) @ self.counts)

    def gcv(self, lam: float, floor: float = math.inf) -> float:
        """The GCV function N ρ/(N − A)², its sums weighted by 1/(1 + σ²/floor)."""
        data = 1 / (1 + self.values / floor)
        blur = self.frames * self.counts / (1 + self.operator / floor)
        residual = float((lam / (self.values + lam)) ** 2 @ (self.power * data))
        free = float(lam / (self.operator + lam) @ blur)  # not N - A, which would cancel for small λ
        return residual * float(blur.sum()) / free**2

    def upre(self, lam: float, noise: float, floor: float = math.inf) -> float:
        """The unbiased risk estimate (ρ + 2 s² A − N s²)/N, its sums weighted by 1/(1 + σ²/floor)."""
        data = 1 / (1 + self.values / floor)
        blur = self.frames * self.counts / (1 + self.operator / floor)
        residual = float((lam / (self.values + lam)) ** 2 @ (self.power * data))
        influence = float(self.operator / (self.operator + lam) @ blur)
        return (residual + noise**2 * (2 * influence - float(blur.sum()))) / self.pixels

    def rms_residual(self, lam: float) -> float:
        """√(ρ(λ)/N), which the discrepancy principle compares with the noise."""
        return math.sqrt(self.residual(lam) / self.pixels)

    def curvature(self, lam: float) -> float:
        """Curvature of the L-curve (log √ρ, log √ξ) at λ, positive at a corner; all derivatives by log λ.

        For Tikhonov's f_λ, ρ′ = −λ ξ′, so that ξ and its derivatives are enough.
        """
        d = self.values + lam
        part = self.values * self.power
        rho, xi = self.residual(lam), float(part @ d**-2)
        slope = -2 * lam * float(part @ d**-3)
        bend = slope + 6 * lam**2 * float(part @ d**-4)
        x1, y1 = -lam * slope / rho / 2, slope / xi / 2
        x2 = (-lam * (slope + bend) / rho) / 2 - 2 * x1 * x1
        y2 = bend / xi / 2 - 2 * y1 * y1
        return (x1 * y2 - x2 * y1) / (x1 * x1 + y1 * y1) ** 1.5


def _gather(s2: Array, power: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """σ², power and counts on the host; a long list in bins of relative width `_BIN`, by their means."""
    xp = get_xp(s2)
    s2, power = s2.ravel().astype(np.float64), power.ravel().astype(np.float64)
    if s2.size <= _EXACT:
        order = np.argsort(-asnumpy(s2), kind="stable")
        return asnumpy(s2)[order], asnumpy(power)[order], np.ones(s2.size)
    top = float(s2.max())
    bins = int(math.log(1e24) / _BIN)
    where = xp.log(xp.maximum(s2, top * 1e-24) * (1 / top)) * (-1 / _BIN)
    where = xp.clip(where.astype(np.int64), 0, bins)
    counts = asnumpy(xp.bincount(where, minlength=bins + 1)).astype(np.float64)
    values = asnumpy(xp.bincount(where, weights=s2, minlength=bins + 1))
    powers = asnumpy(xp.bincount(where, weights=power, minlength=bins + 1))
    some = counts > 0
    return values[some] / counts[some], powers[some], counts[some]


def _decomposition(blur: Blur, dtype: np.dtype, xp: ModuleType) -> tuple[Any, str] | None:
    """The spectrum of the blur and its name, if there is one."""
    from .solvers import cosine, fourier, kronecker, sine

    problem = Problem(blur, 1.0, dtype=dtype, xp=xp)
    for module, name in (
        (fourier, "the Fourier transform"),
        (cosine, "the cosine transform"),
        (sine, "the sine transform"),
        (kronecker, "the singular values of the separable blur"),
    ):
        if module is sine and blur.boundary == "antireflect":
            continue  # diagonal in a basis that is not orthogonal: no singular values
        if module.refuses(problem) is None:
            return module.decompose(blur, dtype, xp), name
    return None


def _exact_sums(blur: Blur, g: Array) -> FilterSums | None:
    """The sums of a blur whose decomposition is at hand, else None."""
    xp = get_xp(g)
    found = _decomposition(blur, np.dtype(g.dtype), xp)
    if found is not None:
        spectrum, name = found
        s2 = spectrum.singular_values.astype(np.float64) ** 2
        power = (spectrum.coefficients(g).astype(np.float64) ** 2).sum(axis=0)
    elif g[0].size <= _DENSE:
        u, s, _ = np.linalg.svd(blur.to_dense(), full_matrices=False)
        s2, name = s * s, "the singular values of the matrix"
        power = ((u.T @ asnumpy(g).reshape(len(g), -1).T.astype(np.float64)) ** 2).sum(axis=1)
    else:
        return None
    values, power, counts = _gather(s2, power)
    return FilterSums(values, power, values, counts, len(g), name)


# ---------------------------------------------------------------------------------------------
# The rules
# ---------------------------------------------------------------------------------------------


def _noise_level(g: Array, rule: str, noise: float | None) -> tuple[float | None, str]:
    if rule not in NEEDS_NOISE:
        return None, "not used"
    if noise is not None:
        return float(noise), "given"
    return estimate_noise(g), "estimated"


def _refine(function: Callable[[float], float], lambdas: np.ndarray, at: int) -> float:
    """The minimiser of `function` between the neighbours of grid point `at`, in log λ."""
    low, high = lambdas[max(at - 1, 0)], lambdas[min(at + 1, len(lambdas) - 1)]
    from scipy.optimize import minimize_scalar  # half of what importing this module would cost

    found = minimize_scalar(
        lambda t: function(math.exp(t)),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    best = math.exp(found.x)
    return best if function(best) <= function(lambdas[at]) else float(lambdas[at])


def _minimum(
    function: Callable[[float], float], lambdas: np.ndarray, values: np.ndarray, what: str
) -> tuple[float, str]:
    """The minimiser of a curve and a remark on it."""
    at = int(np.argmin(values))
    lam = _refine(function, lambdas, at)
    if at == 0:
        return lam, (
            f"{what} is monotone down to the smallest λ looked at: the data ask for no regularisation, "
            "or the model of the blur is wrong"
        )
    if at == len(lambdas) - 1:
        return lam, (
            f"{what} is monotone up to the largest λ looked at: the image looks like noise alone, "
            "or the model of the blur is wrong"
        )
    low = lambdas[values <= values[at] + 1e-3 * abs(values[at])]
    if low[-1] / low[0] >= 100:
        return lam, (
            f"{what} is flat: from λ = {low[0]:.2g} to {low[-1]:.2g} it stays within 0.1 % of its minimum"
        )
    return lam, ""


def _discrepancy(
    sums: FilterSums, lambdas: np.ndarray, values: np.ndarray, noise: float
) -> tuple[float, str]:
    if values[0] > noise:
        return float(lambdas[0]), (
            f"the residual stays above the noise level {noise:.3g} down to the smallest λ looked at "
            f"({values[0]:.3g} there): the noise level is too small, or the model of the blur is wrong"
        )
    if values[-1] < noise:
        return float(lambdas[-1]), (
            f"the residual stays below the noise level {noise:.3g} up to the largest λ looked at "
            f"({values[-1]:.3g} there): the image looks like noise alone, or the noise level is too large"
        )
    at = int(np.searchsorted(values, noise))
    bracket = (math.log(lambdas[max(at - 1, 0)]), math.log(lambdas[at]))
    from scipy.optimize import brentq

    root = brentq(lambda t: sums.rms_residual(math.exp(t)) - noise, *bracket, xtol=1e-6)
    return math.exp(root), ""


def _corner(sums: FilterSums, lambdas: np.ndarray, values: np.ndarray) -> tuple[float, str]:
    """The L-curve's corner: the largest curvature that is a maximum of its own, not an end of the range."""
    inner = np.arange(1, len(values) - 1)
    peaks = inner[(values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:]) & (values[1:-1] > 0)]
    if len(peaks) == 0:
        at = int(np.argmax(values))
        return float(lambdas[at]), (
            "the L-curve has no corner: its curvature has no positive maximum inside the range looked at"
        )
    at = int(peaks[np.argmax(values[peaks])])
    lam = _refine(lambda x: -sums.curvature(x), lambdas, at)
    rivals = [lambdas[p] for p in peaks if p != at and values[p] > 0.5 * values[at]]
    if rivals:
        others = ", ".join(f"{x:.2g}" for x in rivals)
        return lam, f"the L-curve has more than one corner: λ = {others} would be others"
    return lam, ""


_NAMES = {
    "gcv": "minimises generalised cross-validation",
    "discrepancy": "makes the residual as large as the noise",
    "lcurve": "is the corner of the L-curve",
    "upre": "minimises the unbiased risk estimate",
}


def _in_norm(
    function: Callable[[float, float], float], lambdas: np.ndarray, norm: str
) -> Callable[[float], float]:
    """`function(λ, λ₀)` with the λ₀ of the norm put in."""
    if norm == "data":
        return lambda x: function(x, math.inf)
    at = len(lambdas) - 1  # from above: of two λ that repeat, the safer
    floors: list[float] = []
    while (floor := _FLOOR * float(lambdas[at])) not in floors:
        floors.append(floor)
        at = int(np.argmin([function(x, floor) for x in lambdas]))
    return lambda x: function(x, floor)


def _residual_noise(sums: FilterSums, lambdas: np.ndarray) -> float:
    """The noise level that cross-validation implies: √(ρ/(N − A)) at its λ (Wahba, J. R. Stat. Soc. B 45 (1983)).

    Like the wavelets' it is too large where picture is left in the residual, but it knows the blur: it sees
    weak noise under texture. Infinite if cross-validation has no minimum.
    """
    function = _in_norm(sums.gcv, lambdas, "scene")
    values = np.array([function(x) for x in lambdas])
    lam, remark = _minimum(function, lambdas, values, "")
    return math.inf if remark else math.sqrt(sums.residual(lam) / (sums.pixels - sums.influence(lam)))


def choose_from(
    sums: FilterSums,
    rule: str,
    noise: float | None,
    noise_source: str,
    *,
    norm: str = "scene",
    bounds: tuple[float, float] = _RANGE,
) -> LambdaChoice:
    """Apply a rule to sums that are already there; see `choose_lambda`."""
    low, high = bounds[0] * sums.top, bounds[1] * sums.top
    lambdas = np.geomspace(low, high, 1 + math.ceil(_PER_DECADE * math.log10(high / low)))
    residual = np.sqrt([sums.residual(x) for x in lambdas])
    solution = np.sqrt([sums.solution(x) for x in lambdas])
    values = np.zeros(len(lambdas))
    if noise is not None and noise_source == "estimated" and solution.max() > 0:
        noise = min(noise, _residual_noise(sums, lambdas))
    if not solution.max() > 0:
        # Nothing of the image lies in the range of H: every λ restores the same, empty scene.
        lam = math.sqrt(low * high)
        remark = "the curve is flat: the image is zero, or nothing of it can come through this blur"
    elif rule == "discrepancy":
        values = residual / math.sqrt(sums.pixels)
        lam, remark = _discrepancy(sums, lambdas, values, noise or 0.0)
    elif rule == "lcurve":
        values = np.array([sums.curvature(x) for x in lambdas])
        lam, remark = _corner(sums, lambdas, values)
    else:
        if rule == "gcv":
            function, what = _in_norm(sums.gcv, lambdas, norm), "the GCV curve"
        else:
            risk = lambda x, floor: sums.upre(x, noise or 0.0, floor)  # noqa: E731
            function, what = _in_norm(risk, lambdas, norm), "the curve of the estimated risk"
        values = np.array([function(x) for x in lambdas])
        lam, remark = _minimum(function, lambdas, values, what)
    reason = f"λ = {lam:.3g} {_NAMES[rule]}"
    if noise is not None:
        reason += f" (standard deviation {noise:.3g}, {noise_source})"
    reason += f", by {sums.decomposition}"
    if remark:
        reason += f"; {remark}"
    keep = sums.counts if sums.operator is sums.values else np.ones(len(sums.values))
    order = np.argsort(-sums.values, kind="stable")
    return LambdaChoice(
        lam=float(lam),
        rule=rule,
        reason=reason,
        remark=remark,
        noise=noise,
        noise_source=noise_source,
        lambdas=lambdas,
        values=values,
        residual_norms=residual,
        solution_norms=solution,
        singular_values=np.sqrt(sums.values[order]),
        coefficients=np.sqrt(np.maximum(sums.power, 0) / (keep * sums.frames))[order],
        decomposition=sums.decomposition,
    )


class Settling:
    """Follows a growing bidiagonalisation until the λ of a rule no longer moves.

    Parameters
    ----------
    blur, g, rule, noise, norm, bounds
        As for `choose_lambda`; g is (k, M, N).
    """

    def __init__(
        self,
        blur: Blur,
        g: Array,
        rule: str,
        *,
        noise: float | None = None,
        norm: str = "scene",
        bounds: tuple[float, float] | None = None,
    ) -> None:
        self._rule, self._norm = rule, norm
        self._bounds = bounds or _RANGE_ITERATIVE
        self._noise, self._source = _noise_level(g, rule, noise)
        # A random image of ±1: its spectral measure is, on average, the number of eigenvalues. That it is
        # known no better than the image's at small λ is what keeps their ratio, the GCV function, honest.
        signs = np.random.default_rng(0).integers(0, 2, (1, *blur.image_shape)) * 2 - 1
        self._probe = Bidiagonalization(blur, get_xp(g).asarray(signs.astype(g.dtype)), keep=False)
        self._frames = len(g)
        self._next = 12
        self._last: tuple[float, FilterSums] | None = None
        self._quiet = 0  # checks in a row that found λ where it was
        self._choice: LambdaChoice | None = None

    def update(self, bases: Bidiagonalization, last: bool = False) -> LambdaChoice | None:
        """The choice once it has settled, or if this is the `last` step; None before."""
        if self._choice is not None or not (last or bases.steps >= self._next):
            return self._choice
        self._next = math.ceil(1.25 * bases.steps)
        while self._probe.steps < max(bases.steps, 1):
            self._probe.step()
        values, power = bases.measure()
        words = f"a bidiagonalisation of {bases.steps} steps"
        sums = FilterSums(values, power, *self._probe.measure(), self._frames, words)
        choice = choose_from(
            sums, self._rule, self._noise, self._source, norm=self._norm, bounds=self._bounds
        )
        if self._last is not None:
            lam_before, sums_before = self._last
            # A λ at the end of the range stands still although the residual there does not yet.
            moved = sums_before.residual(choice.lam) / max(sums.residual(choice.lam), np.finfo(float).tiny)
            still = abs(math.log(choice.lam / lam_before)) <= _SETTLED and moved <= 1 + _SETTLED
            self._quiet = self._quiet + 1 if still else 0
        settled = bases.exhausted or self._quiet >= 2
        self._last = choice.lam, sums
        if settled:
            self._choice = choice
        elif last:
            remark = f"λ was still moving after {bases.steps} steps of the bidiagonalisation"
            remark = f"{choice.remark}; {remark}" if choice.remark else remark
            self._choice = replace(choice, remark=remark, reason=f"{choice.reason}; {remark}")
        return self._choice


def choose_lambda(
    blur: Blur,
    g: Array,
    rule: str = "gcv",
    *,
    noise: float | None = None,
    norm: str = "scene",
    bounds: tuple[float, float] | None = None,
    max_steps: int = _STEPS,
) -> LambdaChoice:
    """λ for the Tikhonov formula, chosen from the image itself.

    Parameters
    ----------
    blur : Blur
        Any PSF and boundary.
    g : (..., M, N) array
        The blurred image. Frames and colour channels share one λ. NumPy or CuPy.
    rule : {"gcv", "discrepancy", "lcurve", "upre"}
        See `deblur.regularization`.
    noise : float, optional
        Standard deviation of the noise in the units of `g`, for "discrepancy" and "upre"; by default
        that of `estimate_noise`, or the one that cross-validation implies if that is smaller.
    norm : {"scene", "data"}
        Of the error that "gcv" and "upre" estimate; "data" is their published form.
    bounds : (float, float), optional
        Range of λ as multiples of σ_max²; by default (1e-8, 10), and (1e-6, 10) where there is no
        decomposition.
    max_steps : int
        Most steps of the bidiagonalisation, where there is no decomposition.

    Returns
    -------
    LambdaChoice

    Raises
    ------
    ValueError
        For an unknown rule or norm, noise or bounds out of range, images of another size than the
        blur's or not finite, or too small for their noise to be estimated.
    """
    check_rule(rule)
    if noise is not None and not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be a standard deviation >= 0, not {noise!r}")
    if norm not in NORMS:
        raise ValueError(f"unknown norm {norm!r}; choose one of {', '.join(NORMS)}")
    if bounds is not None and not 0 < bounds[0] < bounds[1] < np.inf:
        raise ValueError(f"bounds must be two increasing positive multiples of σ_max², not {bounds!r}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, not {max_steps!r}")
    xp = get_xp(g)
    g = xp.asarray(g)
    g = g.astype(float_dtype(g), copy=False)
    if g.ndim < 2 or g.shape[-2:] != blur.image_shape:
        raise ValueError(
            f"the image must have shape (..., {blur.image_shape[0]}, {blur.image_shape[1]}), not {g.shape}"
        )
    check_finite(g, "the image")
    g = g.reshape(-1, *blur.image_shape)
    with all_cores():
        return _choose(blur, g, rule, noise, norm, bounds, max_steps)


def _choose(
    blur: Blur,
    g: Array,
    rule: str,
    noise: float | None,
    norm: str,
    bounds: tuple[float, float] | None,
    max_steps: int,
) -> LambdaChoice:
    sums = _exact_sums(blur, g)
    if sums is not None:
        level, source = _noise_level(g, rule, noise)
        return choose_from(sums, rule, level, source, norm=norm, bounds=bounds or _RANGE)
    if g[0].size > 1 << 17:
        g = g.astype(np.float32)  # the sums are wanted to a thousandth: half the time, and it costs nothing
    settling = Settling(blur, g, rule, noise=noise, norm=norm, bounds=bounds)
    steps = min(max_steps, *blur.shape)
    bases = Bidiagonalization(blur, g, keep=False)
    while True:
        bases.step()
        choice = settling.update(bases, last=bases.steps >= steps or bases.exhausted)
        if choice is not None:
            return choice

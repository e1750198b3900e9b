"""Fit parametric PSFs to a measured PSF or to a blurred image.

A measured PSF is fitted by least squares. The unknowns are the parameters, the position to a fraction of a pixel, the
brightness and a background; the intervals are those of the linearised fit.

A blurred image alone determines only blurs whose spectrum has zeros: defocus and straight motion. `spectra` compares
the power of the image with theirs over all radii, or lengths and angles (M. Cannon, "Blind deconvolution of spatially
invariant image blurs with phase", IEEE Trans. ASSP 24 (1976) 58-63, searched for the zeros in the cepstrum).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from ..errors import check_choice
from . import models
from .estimate import PSFEstimate, border, graded, grey, percent, placed, width
from .models import centre, centre_of_gravity, coordinates, unit_sum
from .spectra import PictureSpectrum

_SURE, _DEEP = 30.0, 0.4  # least log-likelihood ratio and least depth of zeros for a blur found in an image


#: The PSF of each kind: a function of (distances in rows (m, 1), in columns (1, n), *parameters) that returns values
#: (m, n), of any brightness. The names of its parameters are those of the result.
KINDS: dict[str, Callable[..., np.ndarray]] = {
    "gaussian": lambda y, x, sigma_rows, sigma_columns: models.bell(y, sigma_rows) * models.bell(x, sigma_columns),
    "moffat": models.moffat_profile,
    "disk": models.disk_area,
    "airy": lambda y, x, radius: models.airy_profile(np.hypot(y, x), radius),
    "motion": models.path_length,
}

#: The kinds, and a Gaussian with one width. A Moffat profile of large beta approaches it, but has one more parameter.
_TRIED = KINDS | {"round": lambda y, x, sigma: models.bell(y, sigma) * models.bell(x, sigma)}


def _names(kind: str) -> list[str]:
    """Return the names of a kind's parameters."""
    return list(inspect.signature(_TRIED[kind]).parameters)[2:]


def fit(psf_or_image: Any, kind: str | None = None, *, of: str = "auto") -> PSFEstimate:
    """Fit a parametric PSF to a measured PSF or, for defocus and motion, to a blurred image.

    Parameters
    ----------
    psf_or_image : (m, n) array
        A blurred image, or a measured PSF. The PSF need not be centred or sum to one, and may have a background.
    kind : {"gaussian", "moffat", "disk", "airy", "motion"}, optional
        The kind of PSF; by default the one that fits best. An image alone allows only ``"disk"`` and ``"motion"``.
    of : {"auto", "psf", "image"}
        Whether the array is a PSF or an image. ``"auto"`` decides for a PSF if the array sums to one, or has at most 64
        pixels a side and a constant border.

    Returns
    -------
    PSFEstimate
        ``psf`` is the fitted PSF, centred. ``details`` has ``kind``, and each parameter with its 95 % interval, for
        example ``radius`` and ``radius_interval``. Lengths are in pixels; ``angle`` is in degrees counter-clockwise
        from the horizontal, as in `deblur.psf.motion`. A fit to a PSF adds ``data_residual``, the relative residual,
        and ``place``, the row and column of the centre. A fit to an image adds ``evidence``, the log-likelihood ratio
        to a sharp image, and ``depth``, the depth of the zeros relative to the expected depth.

    Raises
    ------
    ValueError
        If the kind is unknown or cannot be found in an image alone, or the array is constant.

    Notes
    -----
    The status of a fit to an image alone is at best ROUGH, since it relies on statistics that most scenes follow.
    Verify the result with `deblur.psf.check`.

    Examples
    --------
    >>> import deblur
    >>> found = deblur.psf.fit(deblur.psf.disk(11, 3.7), "disk")
    >>> round(found.details["radius"], 3)
    3.7
    >>> picture = deblur.degrade(deblur.data.load("camera"), deblur.psf.disk(11, 4.3), noise=0.005, boundary="unknown")
    >>> found = deblur.psf.fit(picture, "disk")
    >>> abs(found.details["radius"] - 4.3) < 0.1
    True
    """
    a, unit = grey(psf_or_image, "psf_or_image")
    check_choice(kind, (None, *KINDS), "kind")
    check_choice(of, ("auto", "psf", "image"), "of")
    measured = of == "psf" or (of == "auto" and _looks_like_psf(a, unit))
    return _fit_psf(a, kind) if measured else _fit_image(a, kind)


def _looks_like_psf(a: np.ndarray, unit: float) -> bool:
    if abs(float(a.sum()) * unit - 1) < 1e-3 and a.min() > -0.1 * a.max():
        return True
    edge = border(a)
    low = np.median(edge)
    return max(a.shape) <= 64 and np.abs(edge - low).mean() < 0.05 * (a.max() - low)


def _built(kind: str, parameters: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return the PSF of a kind; without a shape, and always for motion, with the size that holds it."""
    if kind == "motion":
        return models.motion(max(float(parameters[0]), 1.0), float(parameters[1]))
    shape = shape or (2 * math.ceil(parameters[0] + 0.5) + 1,) * 2
    return unit_sum(KINDS[kind](*coordinates(shape), *parameters))


def _interval_details(name: str, value: float, low: float, high: float) -> dict[str, Any]:
    if name == "angle":
        turn = (value + 90) % 180 - 90 - value  # to the same direction between -90 and 90 degrees
        value, low, high = value + turn, low + turn, high + turn
    return {name: float(value), f"{name}_interval": (float(low), float(high))}


def _fit_psf(a: np.ndarray, kind: str | None) -> PSFEstimate:
    a = np.pad(a, thin := int(min(a.shape) < 3))  # a line is surrounded by black
    if a.size < 9 or not np.ptp(a) > 0:
        raise ValueError(f"an array of shape {a.shape} that is constant or has few pixels cannot be fitted as a PSF")
    fits = {name: _least_squares(a, name) for name in ([kind] if kind else _TRIED)}

    def criterion(name: str) -> float:
        """Return the Bayesian information criterion."""
        found = fits[name]
        return a.size * math.log(2 * found.cost + 1e-24) + math.log(a.size) * len(found.x)

    likeliest = min(fits, key=criterion)
    name = "gaussian" if likeliest == "round" else likeliest
    best = fits[name]
    left = best.fun.reshape(a.shape)
    model = a + left
    size = float(np.linalg.norm(model - model.min()))
    square = float((left**2).sum())
    data_residual = math.sqrt(square) / size
    neighbours = float((left[:, 1:] * left[:, :-1]).sum() / max(square, 1e-300))
    structured = neighbours > 0.3 and data_residual > 1e-3
    covariance = np.linalg.pinv(best.jac.T @ best.jac)[2:, 2:] * square / max(a.size - len(best.x) - 2, 1)
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0))
    # The effect of the noise on the PSF, through the parameters of its shape only.
    moved = float(np.einsum("ij,jk,ik", best.jac[:, 2:], covariance, best.jac[:, 2:]))
    error = math.hypot(math.sqrt(max(moved, 0.0)) / max(size, 1e-300), data_residual if structured else 0.0)
    notes = {
        f"the residual of the {name} is {percent(data_residual)} of the PSF": True,
        "it has structure, unlike noise: the PSF is of another kind, or a sum of several": structured,
        f"{name} fits best of {', '.join(KINDS)}": kind is None,
    }
    details: dict[str, Any] = {"kind": name}
    for label, value, deviation in zip(_names(name), best.x[2:], deviations, strict=True):
        details |= _interval_details(label, value, value - 1.96 * deviation, value + 1.96 * deviation)
    down, right = best.x[:2] + centre(a.shape) - thin
    details |= {"data_residual": data_residual, "place": (float(down), float(right))}
    return graded(_built(name, best.x[2:], a.shape), error, details, notes)


def _least_squares(a: np.ndarray, kind: str) -> Any:
    """Return SciPy's least-squares result over (row and column of the position from the centre, *parameters)."""
    (y, x), corner, side = coordinates(a.shape), np.array(centre(a.shape)), 4.0 * max(a.shape)
    clear = np.maximum(a - np.median(border(a)) - 0.05 * np.ptp(a), 0)

    def residual(p: np.ndarray) -> np.ndarray:
        """Return the residual with the best brightness and background for these parameters."""
        basis = np.stack([_TRIED[kind](y - p[0], x - p[1], *p[2:]).ravel(), np.ones(a.size)], axis=1)
        return basis @ np.linalg.lstsq(basis, a.ravel(), rcond=None)[0] - a.ravel()

    limits = {"length": (1.0, side), "beta": (1.05, 100.0), "angle": (-720.0, 720.0)}
    ends = [limits.get(name, (0.1, side)) for name in _names(kind)]
    lower, upper = np.array([*zip(-0.5 - corner, a.shape - corner - 0.5, strict=True), *ends]).T
    fits = []
    for start in _starts(clear)[kind]:
        begin = np.clip([*centre_of_gravity(clear), *start], lower + 1e-6, upper - 1e-6)
        # Begin with coarse steps, since the pixels make the residual rough in the length of the path.
        for step, evaluations in ((1e-3, 60), (1e-5, 30)):
            found = scipy.optimize.least_squares(
                residual, begin, bounds=(lower, upper), diff_step=step, x_scale="jac", max_nfev=evaluations
            )
            begin = found.x
        fits.append(found)
    return min(fits, key=lambda found: found.cost)


def _starts(psf: np.ndarray) -> dict[str, list[list[float]]]:
    """Return initial parameters to try for each kind, from the width of a PSF and the covariance of its light."""
    w, covariance = width(psf), np.cov(np.indices(psf.shape).reshape(2, -1), aweights=psf.ravel(), ddof=0)
    rows, cols = np.sqrt(np.maximum(np.diag(covariance), 0.1))
    values, vectors = np.linalg.eigh(covariance)
    angle = math.degrees(math.atan2(-vectors[0, 1], vectors[1, 1]))
    return {
        "gaussian": [[rows, cols], [w / 2.355, w / 2.355]],
        "moffat": [[w, 2.5], [w, 4.8]],
        "disk": [[w / 2], [math.hypot(rows, cols) * 1.4]],
        "airy": [[1.18 * w], [1.4 * w]],
        "motion": [[math.sqrt(12 * max(values[1], 0.1)), angle]],
        "round": [[w / 2.355]],
    }


def _fit_image(image: np.ndarray, kind: str | None) -> PSFEstimate:
    if kind not in (None, "disk", "motion"):
        raise ValueError(f"an image alone does not show a {kind} blur: use from_points, from_edge, 'disk' or 'motion'")
    if not np.ptp(image) > 0:
        raise ValueError("the image is constant: it does not show a blur")
    spectrum = PictureSpectrum(image)
    found = {k: _search(spectrum, k) for k in ("disk", "motion") if kind in (None, k)}
    name = min(found, key=lambda k: found[k][0])
    deviance, parameters, intervals = found[name]
    evidence = spectrum.against(deviance, spectrum.without_blur[0])
    psf = _built(name, parameters)
    depth = spectrum.depth(spectrum.transfer(psf))
    at_ends = ([*parameters[:i], end, *parameters[i + 1 :]] for i, ends in enumerate(intervals) for end in ends)
    spread = [np.linalg.norm(placed(_built(name, other), psf.shape) - psf) for other in at_ends]
    error = max(0.05, float(np.mean(spread) / np.linalg.norm(psf)) / 1.96)
    unclear = evidence < _SURE or depth < _DEEP
    rival = max(found, key=lambda k: found[k][0])
    close = rival != name and spectrum.against(deviance, found[rival][0]) < 0.35 * evidence
    first = f"from the zeros of the image's spectrum, with a log-likelihood of {evidence:.0f}"
    if unclear:
        share = f"{100 * max(depth, 0):.0f} % of their depth ({100 * _DEEP:.0f} % needed)"
        first = f"no clear zeros of a {name} blur: evidence {evidence:.1f} ({_SURE:g} needed), {share}"
    rough = {"": True, f"a {rival} blur explains it nearly as well": close and not unclear}
    details: dict[str, Any] = {"kind": name}
    for label, value, ends in zip(_names(name), parameters, intervals, strict=True):
        details |= _interval_details(label, value, *ends)
    details |= {"evidence": evidence, "depth": depth}
    return graded(psf, max(error, 0.5) if unclear else error, details, {first: True}, rough, {"": unclear})


def _search(spectrum: PictureSpectrum, kind: str) -> tuple[float, list[float], list[tuple[float, float]]]:
    """Return (deviance, parameters, their 95 % intervals) of the disk or the motion that fits a spectrum best."""
    side = spectrum.side
    limits = (0.5, side / 4) if kind == "disk" else (1.5, side / 2)
    grid = [[radius] for radius in np.arange(1.2, side / 6, 0.25)]
    if kind == "motion":
        turns = [(length, math.ceil(5 * length)) for length in np.geomspace(3, side / 3, 28)]
        grid = [[length, 180 * (k + 0.5) / n - 90] for length, n in turns for k in range(n)]

    y, x = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :]

    def transfer(p: Any) -> np.ndarray:
        if kind == "disk":
            return spectrum.transfer(_built("disk", p))
        turn = math.radians(p[1])
        path = np.sinc(p[0] * (x * math.cos(turn) - y * math.sin(turn)))
        return spectrum.smeared((path * np.sinc(x) * np.sinc(y)) ** 2)

    def deviance(p: Any) -> float:
        return spectrum.fit(transfer([max(p[0], limits[0]), *p[1:]]))[0]

    parts = (grid[i : i + 64] for i in range(0, len(grid), 64))
    match = np.concatenate([spectrum.matched(np.stack([*map(transfer, part)]))[0] for part in parts])
    trials = []
    for i in np.argsort(match)[-4:]:
        steps = np.diag([0.04 * grid[i][0], 20 / grid[i][0]][: len(grid[i])])
        simplex = grid[i] + np.vstack([0 * steps[:1], steps])
        options = {"initial_simplex": simplex, "xatol": 0.01 * len(steps), "fatol": math.inf, "maxfev": 50}
        bounds = [limits, (None, None)][: len(grid[i])]
        trials.append(scipy.optimize.minimize(deviance, grid[i], method="Nelder-Mead", bounds=bounds, options=options))
    best = min(trials, key=lambda trial: trial.fun)
    intervals = []
    # Add the systematic errors, which the likelihood does not contain.
    for unit, systematic in zip(np.eye(len(best.x)), (0.015 * best.x[0], 0.7), strict=False):
        step, ratio = 0.05, 0.0
        while not ratio >= 1.92 and step < side:  # the log-likelihood ratio at the end of a 95 % interval is 1.92
            step *= 1.7
            ratio = min(spectrum.against(best.fun, deviance(best.x + way * step * unit)) for way in (-1, 1))
        half = step * math.sqrt(1.92 / max(ratio, 1.92))  # the log-likelihood is nearly a parabola
        value, half = float(unit @ best.x), math.hypot(half, systematic)
        intervals.append((max(value - half, limits[0] if unit[0] else -math.inf), value + half))
    return float(best.fun), [float(value) for value in best.x], intervals

"""PSFs by formula that fit a measured PSF, or a blurred picture.

A measured PSF is fitted by least squares over its parameters, its place to a fraction of a pixel, its brightness and a
background; the intervals are those of the linearised fit. Of a blurred picture only blurs whose spectrum has zeros can
be found, defocus and straight motion: `spectra` compares the picture's power with theirs over all radii, or lengths
and angles (M. Cannon, "Blind deconvolution of spatially invariant image blurs with phase", IEEE Trans. ASSP 24 (1976)
58-63, looked for the zeros in the cepstrum).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .estimate import PSFEstimate, PSFStatus, grey, percent, placed, width
from .models import airy, disk, disk_area, gaussian, moffat, motion
from .spectra import Fit, PictureSpectrum

_SURE = 30.0  # log-likelihood ratio that a blur from a picture alone must have over none
_DEEP = 0.4  # of the depth that its zeros should have, which the picture's must have
_SYSTEMATIC, _DEGREES = 0.015, 0.7  # what no likelihood shows of a length and of an angle
_CLEAR = 0.35  # of the evidence against no blur, must lie between it and the other kind
_INTERVAL = 1.92  # log-likelihood ratio at the ends of a 95 % interval
_NORMAL = 1.96


@dataclass(frozen=True)
class _Kind:
    """A family of PSFs.

    Attributes
    ----------
    names : tuple of str
        Of its parameters.
    shape : callable
        (distances in rows (m, 1), in columns (1, n), parameters) ↦ values, of any brightness.
    start : callable
        (equivalent width, covariance (2, 2) about the centre) ↦ parameters to begin with.
    least, most : tuple of float
        Bounds.
    build : callable
        (shape, parameters) ↦ PSF.
    """

    names: tuple[str, ...]
    shape: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    start: Callable[[float, np.ndarray], list[list[float]]]
    least: tuple[float, ...]
    most: tuple[float, ...]
    build: Callable[[tuple[int, int], np.ndarray], np.ndarray]


def _airy_values(y: np.ndarray, x: np.ndarray, p: np.ndarray) -> np.ndarray:
    from scipy.special import j1

    v = np.maximum(np.hypot(y, x) * 3.831705970207512 / p[0], 1e-8)
    return (2 * j1(v) / v) ** 2


def _moffat_values(y: np.ndarray, x: np.ndarray, p: np.ndarray) -> np.ndarray:
    alpha = p[0] / (2 * math.sqrt(math.expm1(math.log(2) / p[1])))
    return np.exp(-p[1] * np.log1p((y**2 + x**2) / alpha**2))


def _motion_values(y: np.ndarray, x: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The length of the path in each pixel, as in `deblur.psf.motion`, for a path through any place."""
    turn = math.radians(p[1])
    step = np.array([-math.sin(turn), math.cos(turn)]) * p[0]
    cuts = [np.array([-0.5, 0.5])]
    for s, line in zip(step, (y.ravel(), x.ravel()), strict=True):
        if abs(s) > 1e-9:
            cuts.append((np.append(line, line[-1] + 1) - 0.5) / s)
    t = np.unique(np.clip(np.concatenate(cuts), -0.5, 0.5))
    middle, length = (t[1:] + t[:-1]) / 2, np.diff(t)
    i = np.rint(middle * step[0] - y[0, 0]).astype(int)
    j = np.rint(middle * step[1] - x[0, 0]).astype(int)
    inside = (i >= 0) & (i < y.size) & (j >= 0) & (j < x.size)
    out = np.zeros((y.size, x.size))
    np.add.at(out, (i[inside], j[inside]), length[inside])
    return out


def _along(covariance: np.ndarray) -> list[float]:
    """Length and angle of the motion with these second moments."""
    values, vectors = np.linalg.eigh(covariance)
    down, right = vectors[:, 1]
    return [math.sqrt(12 * max(values[1], 0.1)), math.degrees(math.atan2(-down, right))]


KINDS = {
    "gaussian": _Kind(
        ("sigma_rows", "sigma_columns"),
        lambda y, x, p: np.exp(-0.5 * ((y / p[0]) ** 2 + (x / p[1]) ** 2)),
        lambda w, c: [[math.sqrt(max(c[0, 0], 0.1)), math.sqrt(max(c[1, 1], 0.1))], [w / 2.355, w / 2.355]],
        (0.1, 0.1),
        (1e3, 1e3),
        lambda shape, p: gaussian(shape, (float(p[0]), float(p[1]))),
    ),
    "moffat": _Kind(
        ("fwhm", "beta"),
        _moffat_values,
        lambda w, c: [[w, 2.5], [w, 4.8]],
        (0.2, 1.05),
        (1e3, 100.0),
        lambda shape, p: moffat(shape, float(p[0]), float(p[1])),
    ),
    "disk": _Kind(
        ("radius",),
        lambda y, x, p: disk_area(y, x, float(p[0])),
        lambda w, c: [[w / 2], [math.sqrt(2 * max(np.trace(c), 0.1))]],
        (0.3,),
        (1e3,),
        lambda shape, p: disk(shape, float(p[0])),
    ),
    "airy": _Kind(
        ("radius",),
        _airy_values,
        lambda w, c: [[1.18 * w], [1.4 * w]],
        (0.5,),
        (1e3,),
        lambda shape, p: airy(shape, float(p[0])),
    ),
    "motion": _Kind(
        ("length", "angle"),
        _motion_values,
        lambda w, c: [_along(c)],
        (1.0, -720.0),
        (1e3, 720.0),
        lambda shape, p: motion(float(p[0]), _folded(float(p[1]))),
    ),
}


def fit(psf_or_image: Any, kind: str | None = None, *, of: str = "auto") -> PSFEstimate:
    """The formula that fits a PSF, or, for defocus and motion, a blurred picture.

    Parameters
    ----------
    psf_or_image : (m, n) array
        A PSF, as it was measured: it need not be centred, nor sum to one, and
        may stand on a background. Or a blurred picture.
    kind : {"gaussian", "moffat", "disk", "airy", "motion"}, optional
        By default the one that fits best; of a picture ``"disk"`` or ``"motion"``.
    of : {"auto", "psf", "image"}
        What is given. ``"auto"`` takes for a PSF what sums to one, and what is at most 64 pixels a side and dark at
        its border.

    Returns
    -------
    PSFEstimate
        ``psf`` is the formula's, centred. ``details``: ``kind``, each parameter and its 95 % interval,
        ``radius`` and ``radius_interval`` for instance, lengths in pixels, ``angle`` in degrees counter-clockwise from
        the horizontal as in `deblur.psf.motion`; of a PSF also ``misfit``, the relative difference from it, and
        ``place``, where its centre is; of a picture ``evidence``, how much likelier than no such blur, as a
        logarithm, and ``depth``, how deep the zeros are, beside how deep they should be.

    Raises
    ------
    ValueError
        If the kind is not known, or cannot be told from a picture alone.

    Notes
    -----
    From a picture alone it is never more than an estimate, and the status says so: the scene has to be like most
    scenes. `deblur.psf.check` looks at it once more.

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
    a = grey(psf_or_image, "psf_or_image")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r} of PSF; choose one of {', '.join(KINDS)}")
    if of not in ("auto", "psf", "image"):
        raise ValueError(f"of must be 'auto', 'psf' or 'image', not {of!r}")
    if of == "psf" or (of == "auto" and _looks_like_psf(a)):
        return _fit_psf(a, kind)
    return _fit_image(a, kind)


def _looks_like_psf(a: np.ndarray) -> bool:
    if abs(a.sum() - 1) < 1e-3 and a.min() > -0.1 * a.max():
        return True
    border = np.concatenate([a[0], a[-1], a[:, 0], a[:, -1]])
    low = np.median(border)
    return max(a.shape) <= 64 and np.abs(border - low).mean() < 0.05 * (a.max() - low)


def _folded(angle: float) -> float:
    """The same direction between -90 and 90 degrees."""
    return (angle + 90) % 180 - 90


# ---------------------------------------------------------------------------------------------
# To a PSF
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fitted:
    """Parameters and their covariance, the PSF's place, brightness and background, and what is left."""

    kind: str
    parameters: np.ndarray
    deviation: np.ndarray
    place: np.ndarray
    left: np.ndarray
    model: np.ndarray
    uncertain: float

    @property
    def square(self) -> float:
        return float((self.left**2).sum())


def _fit_psf(a: np.ndarray, kind: str | None) -> PSFEstimate:
    if a.size < 9 or not np.ptp(a) > 0:
        raise ValueError(f"an array of shape {a.shape} and one brightness is no PSF that could be fitted")
    fits = [_least_squares(a, name) for name in ([kind] if kind else KINDS)]
    best = min(fits, key=lambda f: a.size * math.log(f.square + 1e-24) + math.log(a.size) * len(f.parameters))
    family = KINDS[best.kind]
    parameters = best.parameters
    size = float(np.linalg.norm(best.model))
    misfit = float(np.linalg.norm(best.left)) / size
    beside = float((best.left[:, 1:] * best.left[:, :-1]).sum() / max((best.left**2).sum(), 1e-300))
    structured = beside > 0.3 and misfit > 1e-3
    error = math.hypot(best.uncertain, misfit if structured else 0.0)
    psf = family.build((a.shape[0], a.shape[1]), parameters)
    status = PSFStatus.of(error)
    reasons = [f"the {best.kind} leaves {percent(misfit)} of the PSF"]
    if structured:
        reasons.append("and not as noise would: it is of another kind, or several in one")
    if kind is None:
        reasons.append(f"{best.kind} fits best of {', '.join(KINDS)}")
    details: dict[str, Any] = {"kind": best.kind}
    for name, value, deviation in zip(family.names, parameters, best.deviation, strict=True):
        value = float(_folded(value) if name == "angle" else value)
        details[name] = value
        details[f"{name}_interval"] = (value - _NORMAL * float(deviation), value + _NORMAL * float(deviation))
    details |= {"misfit": misfit, "place": (float(best.place[0]), float(best.place[1]))}
    return PSFEstimate(psf, error, status, "; ".join(reasons), details)


def _least_squares(a: np.ndarray, name: str) -> _Fitted:
    from scipy.optimize import least_squares

    family = KINDS[name]
    y, x = np.arange(a.shape[0])[:, None].astype(float), np.arange(a.shape[1])[None, :].astype(float)
    border = np.concatenate([a[0], a[-1], a[:, 0], a[:, -1]])
    clear = np.clip(a - np.median(border), 0.05 * np.ptp(a), None) - 0.05 * np.ptp(a)
    total = clear.sum()
    at = np.array([(y * clear).sum(), (x * clear).sum()]) / total
    dy, dx = y - at[0], x - at[1]
    cross = float((dy * dx * clear).sum() / total)
    covariance = np.array([[(dy**2 * clear).sum() / total, cross], [cross, (dx**2 * clear).sum() / total]])

    def modelled(p: np.ndarray) -> np.ndarray:
        """The best brightness and background for parameters and place."""
        shape = family.shape(y - p[0], x - p[1], p[2:])
        basis = np.stack([shape.ravel(), np.ones(a.size)], axis=1)
        found = np.linalg.lstsq(basis, a.ravel(), rcond=None)[0]
        return basis @ found

    n = len(family.names)
    reach = np.array(a.shape, dtype=float)
    lower = np.array([-0.5, -0.5, *family.least])
    upper = np.array(
        [
            reach[0] - 0.5,
            reach[1] - 0.5,
            *np.minimum(
                family.most, 4 * reach.max() + 720 * np.array([name == "angle" for name in family.names])
            ),
        ]
    )
    best = None
    for start in family.start(width(clear), covariance):
        begin = np.clip(np.array([*at, *start]), lower + 1e-6, upper - 1e-6)
        for step, most in ((1e-3, 60), (1e-5, 30)):  # coarse first: pixels make the path's length rough
            found = least_squares(
                lambda p: modelled(p) - a.ravel(),
                begin,
                bounds=(lower, upper),
                diff_step=step,
                x_scale="jac",
                max_nfev=most,
            )
            begin = found.x
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    left = best.fun.reshape(a.shape)
    variance = float((left**2).sum()) / max(a.size - n - 4, 1)
    inverse = np.linalg.pinv(best.jac.T @ best.jac)
    model = modelled(best.x)
    above = model - model.min()
    # What noise moves the PSF by through the parameters of its form alone.
    form = best.jac[:, 2:]
    moved = float(np.trace(form @ (inverse[2:, 2:] * variance) @ form.T))
    uncertain = math.sqrt(max(moved, 0.0)) / max(float(np.linalg.norm(above)), 1e-300)
    deviation = np.sqrt(np.maximum(np.diag(inverse)[2:] * variance, 0))
    return _Fitted(name, best.x[2:], deviation, best.x[:2], left, above.reshape(a.shape), uncertain)


# ---------------------------------------------------------------------------------------------
# To a picture
# ---------------------------------------------------------------------------------------------


def _fit_image(image: np.ndarray, kind: str | None) -> PSFEstimate:
    if kind not in (None, "disk", "motion"):
        raise ValueError(
            f"a picture alone does not tell a {kind} blur: its spectrum has no zeros to go by. Give the picture of a "
            "point or an edge (deblur.psf.from_points, from_edge), or ask for 'disk' or 'motion'"
        )
    if not np.ptp(image) > 0:
        raise ValueError("the picture is of one brightness: it shows nothing that could be blurred")
    spectrum = PictureSpectrum(image)
    none = spectrum.fit(np.ones_like(spectrum.power))
    found = [
        search(spectrum, none)
        for name, search in (("disk", _defocus), ("motion", _straight))
        if kind in (None, name)
    ]
    deviance, name, parameters, intervals, others = min(found, key=lambda f: f[0])
    evidence = spectrum.against(deviance, none.deviance)
    psf = _built(name, parameters)
    depth = float(spectrum.matched(spectrum.transfer(psf)[None], none)[1][0])
    spread = [
        np.linalg.norm(_padded(_built(name, other), psf.shape) - psf) / np.linalg.norm(psf)
        for other in others
    ]
    error = max(0.05, float(np.mean(spread)) / _NORMAL if spread else 0.3)
    reasons = [
        f"from the zeros of the picture's spectrum: {evidence:.0f} in favour of it as a log-likelihood"
    ]
    status = PSFStatus.ROUGH if error < 0.3 else PSFStatus.DOUBTFUL
    if evidence < _SURE or depth < _DEEP:
        status = PSFStatus.DOUBTFUL
        error = max(error, 0.5)
        reasons = [
            f"the picture's spectrum shows no clear zeros of a {name} blur ({evidence:.1f} in favour of it as a "
            f"log-likelihood, {_SURE:g} needed, and {100 * max(depth, 0):.0f} % of their depth, {100 * _DEEP:.0f} % "
            "needed): it is blurred otherwise, too little, or too noisy"
        ]
    elif len(found) > 1:
        other = max(found, key=lambda f: f[0])
        if spectrum.against(deviance, other[0]) < _CLEAR * evidence:
            reasons.append(f"a {other[1]} blur explains it nearly as well")
    details: dict[str, Any] = {"kind": name}
    for label, value, interval in zip(KINDS[name].names, parameters, intervals, strict=True):
        details[label] = float(value)
        details[f"{label}_interval"] = (float(interval[0]), float(interval[1]))
    details["evidence"] = evidence
    details["depth"] = depth
    return PSFEstimate(psf, error, status, "; ".join(reasons), details)


def _built(name: str, p: Any) -> np.ndarray:
    if name == "disk":
        return disk(2 * math.ceil(p[0] + 0.5) + 1, float(p[0]))
    return motion(max(float(p[0]), 1.0), float(p[1]))


def _padded(psf: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return placed(psf, (shape[0], shape[1]))


_Search = tuple[float, str, list[float], list[tuple[float, float]], list[list[float]]]


def _defocus(spectrum: PictureSpectrum, none: Fit) -> _Search:
    """The disc whose spectrum fits best."""
    from scipy.optimize import minimize_scalar

    def deviance(r: float) -> float:
        return spectrum.fit(spectrum.transfer(_built("disk", [r]))).deviance

    radii = np.arange(1.2, spectrum.side / 6, 0.25)
    match, _ = spectrum.matched(np.stack([spectrum.transfer(_built("disk", [r])) for r in radii]), none)
    best, radius = math.inf, 1.0
    for i in np.argsort(match)[-5:]:
        found = minimize_scalar(
            deviance, bounds=(radii[i] - 0.3, radii[i] + 0.3), method="bounded", options={"xatol": 0.01}
        )
        if found.fun < best:
            best, radius = float(found.fun), float(found.x)
    interval = _interval(spectrum, deviance, best, radius, 0.02, (0.5, spectrum.side / 4))
    return best, "disk", [radius], [interval], [[max(end, 0.5)] for end in interval]


def _straight(spectrum: PictureSpectrum, none: Fit) -> _Search:
    """The motion whose spectrum fits best."""
    from scipy.optimize import minimize

    y, x = np.fft.fftfreq(spectrum.side)[:, None], np.fft.fftfreq(spectrum.side)[None, :]
    pixel = np.sinc(x) * np.sinc(y)

    def transfer(p: Any) -> np.ndarray:
        turn = math.radians(p[1])
        along = np.sinc(p[0] * (x * math.cos(turn) - y * math.sin(turn)))
        return spectrum.smeared((along * pixel) ** 2)

    def deviance(p: Any) -> float:
        if not 1.5 <= p[0] <= spectrum.side / 2:
            return 10.0 + abs(p[0])
        return spectrum.fit(transfer(p)).deviance

    grid, match = [], []
    for length in np.geomspace(3, spectrum.side / 3, 28):
        angles = -90 + 180 * (np.arange(math.ceil(5 * length)) + 0.5) / math.ceil(5 * length)
        grid += [(float(length), float(angle)) for angle in angles]
        match.append(spectrum.matched(np.stack([transfer((length, angle)) for angle in angles]), none)[0])
    best, found = math.inf, None
    for i in np.argsort(np.concatenate(match))[-4:]:
        length, angle = grid[i]
        trial = minimize(
            deviance,
            grid[i],
            method="Nelder-Mead",
            options={
                "initial_simplex": [[length, angle], [1.04 * length, angle], [length, angle + 20 / length]],
                "xatol": 0.02,
                "fatol": 1e-5,
                "maxfev": 50,
            },
        )
        if trial.fun < best:
            best, found = float(trial.fun), trial.x
    assert found is not None
    length, angle = float(found[0]), float(found[1])
    limits = (1.5, spectrum.side / 2)
    lengths = _interval(spectrum, lambda v: deviance((v, angle)), best, length, 0.1, limits)
    angles = _interval(spectrum, lambda v: deviance((length, v)), best, angle, 0.5, (angle - 90, angle + 90))
    folded = _folded(angle)
    turned = folded - angle
    others = [[end, folded] for end in lengths] + [[length, end + turned] for end in angles]
    return best, "motion", [length, folded], [lengths, (angles[0] + turned, angles[1] + turned)], others


def _interval(
    spectrum: PictureSpectrum,
    deviance: Callable[[float], float],
    best: float,
    at: float,
    step: float,
    limits: tuple[float, float],
) -> tuple[float, float]:
    """Where the likelihood falls by what ends a 95 % interval, on both sides."""
    ends = []
    for sign in (-1, 1):
        far, near = step, 0.0
        while (
            limits[0] < at + sign * far < limits[1]
            and spectrum.against(best, deviance(at + sign * far)) < _INTERVAL
        ):
            near, far = far, 1.7 * far
        for _ in range(4):
            middle = (near + far) / 2
            inside = spectrum.against(best, deviance(float(np.clip(at + sign * middle, *limits)))) < _INTERVAL
            near, far = (middle, far) if inside else (near, middle)
        systematic = _DEGREES if limits[1] - limits[0] == 180 else _SYSTEMATIC * at
        ends.append(float(np.clip(at + sign * math.hypot(far, systematic), *limits)))
    return ends[0], ends[1]

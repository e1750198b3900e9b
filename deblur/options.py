"""The one list of options: what may be asked of a restoration, checked once and made into a problem.

An option is declared here, in `Options`, with its default; it is used where it takes effect; and it has a row in
`deblur.cli`. The signatures of `deblur.reconstruct`, `solve` and `Deblurrer`, their documentation and the check for
unknown names are made from this list.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar, get_args, get_type_hints

import numpy as np

from .denoise.denoisers import get as get_denoiser
from .denoise.impulses import detect
from .device import Array, Device, asnumpy, plain
from .errors import MethodError
from .frames import Frames
from .image.light import GAMMAS
from .masks import check_mask, check_weights, saturated
from .methods import METHODS, check_formula, check_method
from .operators.blur import Blur
from .operators.operator import Operator
from .operators.varying import VaryingBlur
from .problem import FLOAT64, Denoiser, Problem, Stop, check_bounds
from .psf import PSFMap
from .solvers.scaling import Scale, shifted
from .terms import FITS, Fit
from .tuning import RULES, check_rule, noise_level
from .tuning.boundary import AGAINST, CLEARLY, SAFE, find_boundary

PRIORS = ("auto", "zero", "smooth", "natural")
#: δ of the Huber term over the noise's standard deviation: 95 % as sharp as least squares where the noise is
#: Gaussian after all (P. J. Huber, Robust Statistics, 1981).
HUBER = 1.345
DEFAULT_DENOISER = "collaborative"
#: Error of a varying PSF, over its sum, at which no more eigen-PSFs are taken: what it leaves in a blurred picture is
#: mostly a tenth of that, below the noise of a good camera.
_VARYING_TOLERANCE = 0.01

#: What ``mask=`` takes by name: functions of the frames that give the pixels to hide.
DETECTORS: dict[str, Callable[[Array], Array]] = {"auto": detect, "saturated": saturated}


class Options(TypedDict, total=False):
    """method : str
        ``"auto"`` takes the cheapest exact method for the linear formula (see
        `choose_method`), or ``"gradient"`` if a mask, weights, bounds, noise
        model or background is given, ``"pnp"`` if a denoiser is; any name in
        `METHODS` overrides it. A method that cannot serve says why.
    boundary : {"auto", "zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene goes on beyond the frame. ``"auto"`` reads it off the
        rim of the picture: ``"unknown"``, where nothing is assumed, as is right
        for a photograph, unless ``"zero"`` or ``"periodic"``
        explains the rim clearly better (`deblur.tuning.boundary`). With a
        boundary that is named nothing is looked at.
    formula : {"tikhonov", "hht"}
        f = Hᵀ(HHᵀ + λI)⁻¹ g (default), or (HHᵀ + λI)⁻¹Hᵀ g as the thesis
        writes it, which is the same image only if HHᵀ = HᵀH, as for a
        point-symmetric PSF with a zero boundary.
    prior : {"auto", "zero", "smooth", "natural"}
        What λ of the linear formula draws the scene towards: ``"zero"`` is the
        formula as written, λ‖f‖²; ``"smooth"`` puts λ‖f − f̄‖² in its place,
        with f̄ the smoothed image (`deblur.tuning.prior_scene`), which keeps a
        photograph from going dark beyond its frame and ringing there;
        ``"natural"``, for any boundary but ``"zero"``, expects neighbouring
        pixels of f − f̄ to be alike, as they are in photographs
        (`deblur.operators.natural`), and hides noise better.
        ``"auto"`` is ``"smooth"`` where the boundary is ``"unknown"`` or read
        off the picture, and ``"zero"`` where another one is named and for
        ``formula="hht"``. Where λ is ``"auto"`` too, and finds more than next
        to no noise, it is ``"natural"`` with any boundary but ``"zero"``,
        unless the PSF blurs nothing.
    dtype : {"float32", "float64"}, optional
        What is computed in. By default what the image needs: float32 for 8 and
        16 bits, for which it is enough (where λ is so small that it is not,
        float64 takes over and the result says so), else the image's own.
        `Deblurrer` takes float64 where none is named.
    origin : (int, int), optional
        Index of the PSF's centre; ``((m - 1) // 2, (n - 1) // 2)`` by default.
    noise : float, optional
        Standard deviation of the noise on the scale of the (scaled) image,
        for the rules that need it; estimated if not given.
    rtol, max_iterations : optional
        When an iterative method stops; its own defaults if not given. A direct
        method that is named takes neither.
    inverse : bool
        Form (HHᵀ + λI)⁻¹ and multiply by it, with the methods that can.
    callback : callable, optional
        Called with (iterations so far, relative residual) as an iterative method goes on.
    mask : array of bool, "auto" or "saturated", optional
        True at the pixels to hide (dead, saturated, hit by an impulse), for
        the image's rows and columns or its full shape. What a hidden pixel
        holds, NaN included, has no effect. ``"auto"`` detects impulses
        (`deblur.denoise.impulses.detect`), ``"saturated"`` what the sensor
        clipped (`deblur.masks.saturated`), in each image anew. What a NumPy
        masked array hides is hidden too, so that both can be had.
    weights : array, optional
        A weight >= 0 for each pixel, shaped like `mask`; the inverse variance
        of the noise, if that is known. 0 hides a pixel.
    bounds : (float, float) or "nonnegative", optional
        Least and largest value that the scene may have; either may be infinite.
    data : {"gaussian", "poisson", "l1", "huber"}, optional
        The noise model: least squares (default); Kullback-Leibler, for photon
        counts (default for ``"richardson-lucy"``); absolute deviation, for
        impulses that no mask names; Huber's mixture of the first and the third.
    background : float
        Light on the sensor that was not blurred, on the scale of the image:
        g = H f + background + noise.
    delta : float, optional
        Where Huber's term turns from squares to absolute values; by default
        1.345 standard deviations of the noise, given or estimated.
    denoiser : callable or str, optional
        For ``"pnp"``: ``denoiser(image, sigma)`` returns `image` without noise
        of standard deviation `sigma`; (P, Q), or (P, Q, C) for colour. Or a
        name in `deblur.denoise.denoisers`; by default ``"collaborative"``.
    gamma : {"srgb"}, optional
        The curve by which the image's numbers stand for light, as in the files
        of cameras and telephones: it is undone, the light restored, and the
        curve put back. By default the numbers are restored as they are, which
        is right for what a program blurred. Integers of 8 and 16 bits, or
        floats from 0 to 1. Noise, bounds, background, delta, λ and what is
        measured are then about light, on a scale from 0, black, to 1, white.
    psfs : array, (array, positions) or PSFMap, optional
        A PSF that varies across the picture, in place of `psf`: (R, S, m, n)
        on an even grid, as a `deblur.psf.PSFMap` has them, or (K, m, n) with
        the row and column (K, 2) of each; one more axis before the last two
        holds colours. See `VaryingBlur`, which is asked for a tolerance of
        1 %. Methods that need one PSF for the whole picture refuse it."""

    method: Annotated[str, "auto"]
    boundary: Annotated[str, "auto"]
    formula: Annotated[str, "tikhonov"]
    prior: Annotated[str, "auto"]
    dtype: Annotated[Any, None]
    origin: Annotated[tuple[int, int] | None, None]
    noise: Annotated[float | None, None]
    rtol: Annotated[float | None, None]
    max_iterations: Annotated[int | None, None]
    inverse: Annotated[bool, False]
    callback: Annotated[Callable[[int, float], None] | None, None]
    mask: Annotated[Array | str | None, None]
    weights: Annotated[Array | None, None]
    bounds: Annotated[tuple[float, float] | str | None, None]
    data: Annotated[str | None, None]
    background: Annotated[float, 0.0]
    delta: Annotated[float | None, None]
    denoiser: Annotated[Denoiser | str | None, None]
    gamma: Annotated[str | None, None]
    psfs: Annotated[Array | tuple[Array, Array] | PSFMap | None, None]


@functools.cache
def defaults() -> dict[str, Any]:
    """Every option and its default."""
    hints = get_type_hints(Options, include_extras=True)
    return {name: get_args(hint)[-1] for name, hint in hints.items()}


_T = TypeVar("_T", bound=Callable[..., Any])


def takes_options(target: _T) -> _T:
    """Show the options in the signature of a function or class and, at "{options}", in its documentation; refuse
    unknown names.

    Static checkers read ``**options: Unpack[Options]``; `inspect.signature`, and with it a notebook's completion, reads
    what is written here.
    """
    stated = inspect.cleandoc(Options.__doc__ or "").replace("\n", "\n    ")
    if isinstance(target, type):
        target.__init__ = _checked(target.__init__, target.__name__)  # type: ignore[misc]
        made: Any = target
    else:
        made = _checked(target, target.__name__)
    made.__doc__ = (made.__doc__ or "").replace("{options}", stated)
    return made


def _checked(function: Callable[..., Any], name: str) -> Any:
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    hints = get_type_hints(Options)
    options = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=hints[option])
        for option, value in defaults().items()
    ]
    known = [*(p.name for p in own), *defaults()]

    @functools.wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, 3)
                hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(defaults())}"
                raise TypeError(f"{name} has no option {key!r}; {hint}")
        return function(*args, **given)

    positional = [p for p in own if p.kind is not p.KEYWORD_ONLY]
    keywords = [p for p in own if p.kind is p.KEYWORD_ONLY]
    checked.__signature__ = signature.replace(parameters=[*positional, *options, *keywords])  # type: ignore[attr-defined]
    return checked


def check_dtype(dtype: Any) -> np.dtype | None:
    """float32 or float64, by whatever name; anything else is an error. None stays."""
    if dtype is None:
        return None
    try:
        named = np.dtype(dtype)
    except TypeError:
        named = None
    if named not in (np.dtype(np.float32), FLOAT64):
        raise TypeError(f"dtype must be 'float32' or 'float64', not {dtype!r}")
    return named


def check_lam(lam: Any) -> float | str:
    """λ as a finite number >= 0, "auto" or the name of a rule; anything else is an error."""
    if isinstance(lam, str):
        return check_rule(lam)
    value = _number(lam)
    if math.isnan(value) and not isinstance(lam, (float, np.floating)):
        raise TypeError(f"λ must be a number or one of the rules {', '.join(RULES)}, not {lam!r}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"λ must be finite and not negative, not {lam!r}")
    return value


def check_gamma(gamma: Any) -> str | None:
    """`gamma` itself, or ValueError listing what there is."""
    if gamma is not None and gamma not in GAMMAS:
        raise ValueError(
            f"unknown gamma {gamma!r}; it is one of {', '.join(map(repr, GAMMAS))}, or None for numbers "
            "that are light already or that a program blurred"
        )
    return gamma


_AS_GIVEN = "as given"
_FRAMES = 32  # of a stack, about, whose rims tell the boundary as well as all would


class Open(NamedTuple):
    """A boundary that is yet to be read off the picture."""

    among: tuple[str, ...]
    named: str  # what does not serve every boundary, as it was asked for
    restated: Callable[[str], Request]


@dataclass(frozen=True)
class Request:
    """What was asked for, checked: a problem, and what can only be decided when the image is there.

    Attributes
    ----------
    problem : Problem
        Without the weights; λ is 0 where a rule is to choose it.
    lam : float or str
        λ, or the name of its rule.
    lam_reason : str
        Where λ came from.
    rule_named : bool
        λ is to be that of this rule, or an error: nobody left it to "auto".
    method : str
        "auto" or a row of `METHODS`.
    reason : str
        Why, where something else than the request itself decided.
    prior : {"zero", "smooth", "natural"}
    noise : float or None
    mask, weights : array, str or None
        As given, in the image's layout.
    gamma : {"srgb"} or None
    boundary_reason, prior_reason : str
        Where they came from.
    natural : bool
        "natural" may take the place of the prior, where λ shows that there is noise to hide.
    open : Open or None
        Where the boundary is to be read off the picture; until then the operator has the first that may be taken.
    """

    problem: Problem
    lam: float | str
    lam_reason: str
    rule_named: bool
    method: str
    reason: str
    prior: str
    noise: float | None
    mask: Array | str | None
    weights: Array | None
    gamma: str | None
    boundary_reason: str = _AS_GIVEN
    prior_reason: str = "as asked for"
    natural: bool = False
    open: Open | None = None

    @property
    def read(self) -> bool:
        """Whether the boundary is, or was, read off the picture."""
        return self.open is not None or self.boundary_reason != _AS_GIVEN

    def decided(self, frames: Frames) -> Request:
        """The request with the boundary that is read off these frames, if it is open; else itself."""
        if self.open is None:
            return self
        fit, bare = self.problem.fit, self.mask is None and self.weights is None and frames.masked is None
        few = bare and not fit.background
        g = frames.levels[:: 1 + len(frames.levels) // _FRAMES] if few else frames.data
        weights = None if bare else self._weights(frames, g)[0]
        g = g - g.dtype.type(fit.background) if fit.background else g
        among = self.open.among
        found = find_boundary(self.problem.operator.surrogate, g, weights, among)
        if SAFE not in among and found.evidence < -AGAINST:
            raise MethodError(
                f"{self.open.named} has no place for the boundary of this picture: {found.reason}. Use another, or "
                f"name boundary={found.boundary!r} to have it all the same"
            )
        return replace(self.open.restated(found.boundary), boundary_reason=found.reason, open=None)

    def near(self, scale: Scale, operator: Operator) -> Request:
        """The request near one; `operator` is its operator there."""
        if not scale:
            return self
        noise = None if self.noise is None else shifted(float(self.noise), -scale.image)
        return replace(self, problem=scale.near(self.problem, operator), noise=noise)

    def stated(self, frames: Frames, g: Array) -> tuple[Problem, Array | None]:
        """(the problem with what depends on the image, the mask or None) for its frames `g`."""
        fit = self.problem.fit
        weights, mask = self._weights(frames, g)
        if fit.name == "poisson":
            _check_counts(g, weights)
        delta = fit.delta
        if fit.name == "huber" and not delta > 0:
            noise = noise_level(g) if self.noise is None else self.noise
            delta = HUBER * max(noise, 1e-4 * float(abs(g).max()), np.finfo(g.dtype).tiny)
        fit = replace(fit, weights=weights, delta=delta)
        return replace(self.problem, fit=fit, frames=len(g) * g.shape[1]), mask

    def _weights(self, frames: Frames, g: Array) -> tuple[Array | None, Array | None]:
        xp, dtype = self.problem.xp, self.problem.dtype
        if isinstance(self.mask, str):
            mask = DETECTORS[self.mask](g)
        else:
            mask = None if self.mask is None else frames.spread(xp.asarray(self.mask), "mask")
        if frames.masked is not None:
            own = frames.spread(xp.asarray(frames.masked), "mask")
            mask = own if mask is None else mask | own
        weights = None
        if self.weights is not None:
            weights = frames.spread(xp.asarray(self.weights), "weights").astype(dtype)
        if mask is None and weights is None:
            return None, None
        hidden = (weights == 0) if mask is None else mask if weights is None else mask | (weights == 0)
        if mask is not None:
            weights = (1.0 if weights is None else weights) * (1 - mask.astype(dtype))
        per_frame = xp.broadcast_to(hidden, g.shape).all(axis=(-2, -1))
        if bool(per_frame.any()):
            what = (
                "the mask hides"
                if self.weights is None
                else "the weights hide"
                if mask is None
                else "mask and weights hide"
            )
            at = asnumpy(per_frame)
            which = "" if at.size == 1 else f" of frame and channel {np.argwhere(at)[0].tolist()}"
            raise ValueError(f"{what} every pixel{which}: nothing is left to restore from")
        return weights, mask


def checked(
    psf: Any,
    shape: tuple[int, int],
    lam: Any,
    options: Options,
    *,
    device: Device,
    reuse: bool = False,
    masked: bool = False,
) -> Request:
    """The request that these options make, or the error that names the one that makes no sense.

    Parameters
    ----------
    psf, shape
        Of the blur.
    lam : float or str
    options : Options
    device, reuse
        Of the problem.
    masked : bool
        The image itself hides pixels.

    Raises
    ------
    ValueError, TypeError
        For a value out of its range.
    MethodError
        If a method is named together with what it does not have.
    """
    stated = functools.partial(
        _checked_under, psf, shape, lam, options, {}, device=device, reuse=reuse, masked=masked
    )
    boundary = options.get("boundary", defaults()["boundary"])
    if boundary != "auto":
        return stated(boundary)
    among: tuple[str, ...] = (SAFE, *CLEARLY)
    if options.get("method", "auto") != "auto" or options.get("formula", "tikhonov") != "tikhonov":
        among = tuple(name for name in among if _serves(stated, name))
        # A mirrored scene is not told from one that is calm at its edge: "reflect" is for what cannot have "unknown".
        if SAFE not in among and _serves(stated, "reflect"):
            among += ("reflect",)
        among = among or ("antireflect",)
        if not _serves(stated, among[0]):
            return stated(SAFE)  # and whoever solves it says why it cannot be
    request = stated(among[0])
    named = " and ".join(f"{name}={options[name]!r}" for name in ("method", "formula") if name in options)
    return replace(request, open=Open(among, named, stated))


def _serves(stated: Callable[[str], Request], boundary: str) -> bool:
    """Whether what was asked for can be had under a boundary."""
    try:
        request = stated(boundary)
    except (ValueError, MethodError):
        return False
    problem = request.problem if not isinstance(request.lam, str) else replace(request.problem, lam=1.0)
    rows = (
        [METHODS[request.method]]
        if request.method != "auto"
        else [m for m in METHODS.values() if m.automatic]
    )
    return any(row.refuses(problem) is None for row in rows)


def _checked_under(
    psf: Any,
    shape: tuple[int, int],
    lam: Any,
    options: Options,
    operators: dict[str, Operator],
    boundary: str,
    *,
    device: Device,
    reuse: bool,
    masked: bool,
) -> Request:
    """The request under a boundary, which need not be the one that was asked for.

    Where several boundaries are tried, `operators` keeps those that were built: one of them is asked for again.
    """
    o: dict[str, Any] = defaults() | options
    lam = check_lam(lam)
    method = check_method(o["method"])
    check_formula(o["formula"])
    if o["prior"] not in PRIORS:
        raise ValueError(f"unknown prior {o['prior']!r}; choose one of {', '.join(PRIORS)}")
    mask, weights = o["mask"], o["weights"]
    if isinstance(mask, str):
        if mask not in DETECTORS:
            raise ValueError(
                f"mask must be {' or '.join(map(repr, DETECTORS))}, or an array that is True at the pixels to hide, "
                f"not {mask!r}"
            )
    elif mask is not None:
        mask = check_mask(mask)
    if weights is not None:
        weights = check_weights(weights)
    _check_number(o["background"], "background", 0.0)
    _check_number(o["noise"], "noise, a standard deviation,", 0.0)
    if o["data"] is not None and o["data"] not in FITS:
        raise ValueError(f"unknown data term {o['data']!r}; choose one of {', '.join(FITS)}")
    _check_number(o["delta"], "delta, where the Huber term turns linear,", 0.0, above=True)
    if o["delta"] is not None and o["data"] != "huber":
        raise ValueError("delta belongs to data='huber'")
    if o["rtol"] is not None and not 0 < _number(o["rtol"]) < 1:
        raise ValueError(f"rtol must lie between 0 and 1, not {o['rtol']!r}")
    steps = o["max_iterations"]
    if steps is not None and not (_number(steps) >= 1 and _number(steps).is_integer()):
        raise ValueError(f"max_iterations must be a positive whole number, not {steps!r}")
    if o["callback"] is not None and not callable(o["callback"]):
        raise TypeError(f"callback must be a function callback(iteration, residual), not {o['callback']!r}")
    bounds, denoiser = check_bounds(o["bounds"]), _denoiser(o["denoiser"])
    dtype = check_dtype(o["dtype"]) or FLOAT64

    asked = [
        words
        for words, given in (
            ("a mask", mask is not None or masked),
            ("weights", weights is not None),
            ("bounds", bounds is not None),
            (f"the data term {o['data']!r}", o["data"] not in (None, "gaussian")),
            ("a background", o["background"] != 0),
            ("a denoiser", denoiser is not None),
        )
        if given
    ]
    penalty, reason = _penalty(method, asked, denoiser)
    if penalty == "denoiser" and denoiser is None:
        denoiser = _denoiser(DEFAULT_DENOISER)
        reason = f"as asked for; with the denoiser {DEFAULT_DENOISER!r}, as none was named"
    row = METHODS.get(method)
    if row is not None and not row.iterative:
        idle = [f"{name}={o[name]!r}" for name in ("rtol", "max_iterations") if o[name] is not None]
        if idle:
            raise MethodError(
                f"method {method!r} does not iterate: {' and '.join(idle)} would do nothing; leave it out"
            )
    linear = not asked and (row is None or row.linear)
    if o["prior"] in ("smooth", "natural") and not linear:
        raise MethodError(f"method {method!r} cannot serve here: prior belongs to the linear formula")
    if boundary not in operators:
        operators[boundary] = _operator(psf, o["psfs"], shape, boundary, o["origin"])
    problem = Problem(
        operators[boundary],
        0.0,
        penalty,
        # What is not known before the image is filled in by `Request.stated`.
        Fit(o["data"] or (row.fit if row else "gaussian"), float(o["background"]), o["delta"] or 0.0),
        bounds,
        denoiser,
        o["formula"],
        bool(o["inverse"]),
        dtype,
        device,
        reuse=reuse,
        stop=Stop(o["rtol"], steps, o["callback"]),
    )
    lam_reason = "as given"
    if lam == "auto" and row is not None and row.lam is not None:
        lam, lam_reason = row.lam, f"the default of {row.name}"
    rule_named = isinstance(lam, str) and lam != "auto"
    photograph = problem.operator.boundary.open or (o["boundary"] == "auto" and o["formula"] == "tikhonov")
    prior, prior_reason = o["prior"], "as asked for"
    if prior == "auto":
        prior, prior_reason = "smooth" if photograph and linear else "zero", "the default here"
    if prior == "natural":
        if (why := _not_natural(problem)) is not None:
            raise MethodError(f"prior='natural' cannot serve here: {why}; use prior='smooth'")
        problem = replace(problem, penalty="natural")
    natural = o["prior"] == "auto" and linear and lam == "auto" and not _not_natural(problem)
    if isinstance(lam, str):
        rule = check_rule(lam, problem, o["noise"])
        lam = rule if prior == "zero" else lam  # "auto" has a quick way that needs the smooth scene
    else:
        problem = replace(problem, lam=lam)
    return Request(
        problem,
        lam,
        lam_reason,
        rule_named,
        method,
        reason,
        prior,
        o["noise"],
        mask,
        weights,
        check_gamma(o["gamma"]),
        prior_reason=prior_reason,
        natural=natural,
    )


def _not_natural(problem: Problem) -> str | None:
    """Why the penalty "natural" cannot be had in the place of the identity; None if it can."""
    operator = problem.operator
    if problem.formula != "tikhonov":
        return f"formula={problem.formula!r} minimises nothing"
    if operator.boundary.dark:
        return f"with boundary {str(operator.boundary)!r} the scene ends at the frame"
    if operator.stationary is None:
        return "the PSF varies"
    if any(n < m + 2 for n, m in zip(operator.image_shape, operator.stationary.psf.shape, strict=True)):
        return "the picture is hardly larger than the PSF"
    return None


def _operator(psf: Any, psfs: Any, shape: tuple[int, int], boundary: str, origin: Any) -> Operator:
    """The blur by one PSF, by one for each colour, or by one that varies."""
    if (psf is None) == (psfs is None):
        raise TypeError(
            "give the PSF: psf=..., or psfs=... for one that varies across the picture"
            if psf is None
            else "psf and psfs were both given; psfs takes the place of psf"
        )
    if isinstance(psfs, PSFMap):
        psfs = psfs.psfs
    if psfs is not None:
        psfs, positions = psfs if isinstance(psfs, tuple) else (psfs, None)
        return VaryingBlur(
            psfs, shape, boundary, positions=positions, tolerance=_VARYING_TOLERANCE, origin=origin
        )
    psf = plain(psf, "psf")
    if psf.ndim == 3:  # (C, m, n)
        return VaryingBlur(psf[None, None], shape, boundary, origin=origin)
    return Blur(psf, shape, boundary, origin=origin)


def _penalty(method: str, asked: list[str], denoiser: Any) -> tuple[str, str]:
    """(the penalty, why), from the method named or from what else was asked for."""
    if method != "auto":
        row = METHODS[method]
        if row.linear and asked:
            others = [m.name for m in METHODS.values() if not m.linear]
            raise MethodError(
                f"method {method!r} cannot serve here: it inverts the linear formula, which has no place for "
                f"{' and '.join(asked)}; use method='auto' or one of {', '.join(others)}"
            )
        if denoiser is not None and row.penalty != "denoiser":
            raise MethodError(f"method {method!r} cannot serve here: it takes no denoiser; use method='pnp'")
        return row.penalty, "as asked for"
    if denoiser is not None:
        return "denoiser", f"{' and '.join(asked)} was given: a denoiser is a prior of its own"
    if asked:
        return "gradient", (
            f"the linear formula has no place for {' and '.join(asked)}; the gradient penalty is the closest to it "
            "that does not fail where pixels are hidden (method='tv' or 'tv2' keep edges better)"
        )
    return "identity", ""


def _number(value: Any) -> float:
    """`value` as a float; NaN, which passes no comparison, if it is no number."""
    try:
        return math.nan if isinstance(value, (str, bool, np.bool_)) else float(value)
    except (TypeError, ValueError):
        return math.nan


def _check_number(value: Any, name: str, least: float, above: bool = False) -> None:
    if value is None:
        return
    number = _number(value)
    if not (math.isfinite(number) and (number > least if above else number >= least)):
        raise ValueError(f"{name} must be a finite number {'>' if above else '>='} {least:g}, not {value!r}")


def _denoiser(denoiser: Any) -> Denoiser | None:
    if isinstance(denoiser, str):
        return get_denoiser(denoiser)
    if denoiser is not None and not callable(denoiser):
        raise TypeError(
            f"denoiser must be a function denoiser(image, sigma) or the name of one, not {type(denoiser).__name__}"
        )
    return denoiser


def _check_counts(g: Array, weights: Array | None) -> None:
    """Raise ValueError if a visible value of Poisson data is below zero."""
    visible = g if weights is None else g * (weights > 0)
    lowest = float(visible.min())
    if lowest < 0:
        count = int((visible < 0).sum())
        raise ValueError(
            f"data='poisson' counts photons, and {count} visible value(s) are below zero (the least is {lowest:.4g}); "
            "subtract less of a background (give it as background=...), hide those pixels, or use data='gaussian'"
        )

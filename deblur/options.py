"""The options of a restoration: their declaration in `Options`, and their checks.

`Options` declares each option with its default and its documentation. The signatures and the documentation of
`deblur.reconstruct`, `solve` and `Deblurrer`, the check for unknown names, and the command line are made from it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, TypedDict, TypeVar, get_args, get_type_hints

import numpy as np

from .denoise.impulses import detect
from .device import Array
from .errors import as_number, check_callback, check_choice, check_count, check_flags, check_number
from .image.light import GAMMAS
from .masks import check_mask, check_weights, saturated
from .operators.boundary import BOUNDARIES, Boundary
from .problem import FORMULAS, Denoiser
from .psf import PSFMap
from .terms import FIDELITIES
from .tuning import RULES, check_rule

PRIORS = ("auto", "zero", "smooth", "natural")

#: Detectors that ``mask=`` accepts by name: functions that return the pixels of the frames to hide.
DETECTORS: dict[str, Callable[[Array], Array]] = {"auto": detect, "saturated": saturated}


class Options(TypedDict, total=False):
    """method : str
        ``"auto"`` chooses the preferred exact method for the linear formula (see
        `choose_method`). With a mask, weights, bounds, a noise model or a
        background it is ``"gradient"``, and with a denoiser ``"pnp"``. Any name
        in `METHODS` overrides it; if that method cannot solve the problem, an
        error gives the reason.
    boundary : {"auto", "zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene continues beyond the frame. ``"auto"`` detects it at the
        border of the image: it is ``"unknown"``, which assumes nothing and is
        right for photographs, unless ``"zero"`` or ``"periodic"`` explains the
        border clearly better (`deblur.tuning.boundary`). A named boundary is
        used without detection.
    formula : {"tikhonov", "hht"}
        f = Hᵀ(HHᵀ + λI)⁻¹ g (default), or f = (HHᵀ + λI)⁻¹Hᵀ g as in the
        thesis. Both give the same image only if HHᵀ = HᵀH, as for a
        point-symmetric PSF with a zero boundary.
    prior : {"auto", "zero", "smooth", "natural"}
        The regularizer of the linear formula. ``"zero"`` is λ‖f‖², the formula
        as written. ``"smooth"`` is λ‖f − f̄‖², where f̄ is the smoothed image
        (`deblur.tuning.prior_scene`): a photograph does not turn dark beyond
        its frame, and rings less there. ``"natural"``, for any boundary but
        ``"zero"``, is a first-order prior on f − f̄. It assumes that
        neighbouring pixels are correlated as in photographs
        (`deblur.operators.natural`), which suppresses noise better. ``"auto"``
        is ``"smooth"`` if the boundary, named or detected, is ``"unknown"``,
        and ``"zero"`` for any other. If `lam` is ``"auto"``, too, and noise is
        detected, ``"auto"`` is ``"natural"``, except for boundary ``"zero"`` or
        a PSF that does not blur.
    dtype : {"float32", "float64"}, optional
        Precision of the computation. By default float32 for 8 and 16 bit
        images, else the dtype of the image. If λ is so small that float32
        fails, float64 is used, and the result reports it.
    origin : (int, int), optional
        Index of the PSF's centre; ``((m - 1) // 2, (n - 1) // 2)`` by default.
    noise : float or (float, float), optional
        Standard deviation of the noise on the scale of the (scaled) image, for
        the rules that need it; estimated if it is not given. With
        ``lam="auto"`` and the linear formula it also selects the rule "upre".
        For photon counts it is the gain (variance over value), or (gain,
        standard deviation of the read-out noise), as
        `deblur.tuning.estimate_noise_model` returns them.
    psf_error : float, optional
        Euclidean norm of the PSF's error, relative to the PSF's sum; 0 for an exact PSF. It is estimated from the image
        if it is not given (`deblur.tuning.psf_error`). Its effect on the image counts as noise in the choice of λ, and
        in "collaborative" and "pnp".
    rtol, max_iterations : optional
        Stopping rule of an iterative method. A direct method that is named
        takes neither. `rtol` has no unit. It bounds a quantity that depends on
        the method. For "pcg" and "gauss-seidel" it is the residual of
        (HHᵀ + λI) z = g over ‖g‖ (of Hᵀg with formula "hht"). For
        "hybrid-lsqr" it is the residual of the normal equations over ‖Hᵀg‖,
        and for "identity", "gradient" and "laplacian" that of their normal
        equations over ‖HᵀWg‖. For "tv", "tv-aniso", "tv2", "pnp" and
        "collaborative" it is the primal and dual residuals over the iterate,
        for "richardson-lucy" the change of a step over the scene. A linear
        method with `rtol` above 1e-6 may stop before the image is accurate;
        with a smaller one the default rule must hold, too. By default a linear
        method stops when the relative error of the image is at most 1e-6 in
        float64, or 5e-5 in float32. "identity", "gradient" and "laplacian" stop
        at a residual of 1e-6, and the methods with primal and dual residuals at
        5e-3, or at 4e-4 for a small λ. "richardson-lucy" stops before it begins
        to fit noise.
    stop : {"consensus"}, optional
        Stopping rule of "richardson-lucy" in place of `rtol`. By default all pixels stop after the number of iterations
        at which the expected error is smallest. With ``"consensus"`` each pixel stops when two images with independent
        noise disagree on its next step (`deblur.solvers.richardson_lucy`).
    inverse : bool
        Form (HHᵀ + λI)⁻¹ explicitly and multiply by it; only some methods can.
    callback : callable, optional
        Called as ``callback(iterations so far, relative residual)`` during an
        iteration.
    mask : array of bool, "auto" or "saturated", optional
        True at the pixels to hide (dead, saturated, hit by an impulse); its
        shape is that of one frame or of the whole image. Values of hidden
        pixels, NaN included, have no effect. ``"auto"`` detects impulses
        (`deblur.denoise.impulses.detect`), and ``"saturated"`` detects pixels
        that the sensor clipped (`deblur.masks.saturated`), in each image
        separately. Pixels hidden by a NumPy masked array are hidden, too.
        Without a mask or weights, `solve` and `reconstruct` hide clipped pixels
        of a single image, if their neighbours contradict their value and the
        method can hide pixels; the default method is then "gradient". A mask
        that is False everywhere prevents this.
    weights : array, optional
        A weight >= 0 for each pixel, shaped like `mask`: the inverse variance
        of the noise, if that is known. 0 hides a pixel. If a rule chooses λ,
        the scale of the weights does not matter. If λ is a number, it does:
        c times the weights with c times the λ give the same image.
    bounds : (float, float) or "nonnegative", optional
        Smallest and largest allowed value of the scene; either may be infinite.
    data : {"gaussian", "poisson", "l1", "huber"}, optional
        The data fidelity. ``"gaussian"`` (default) is least squares.
        ``"poisson"`` is the Kullback-Leibler divergence, for photon counts; it
        is the default for ``"richardson-lucy"``. ``"l1"`` is the absolute
        deviation, for impulses without a mask. Several scenes, up to 5 % apart
        for small images, may minimise it equally well; the result is close to
        one of them. ``"huber"`` is Huber's mixture of least squares and
        absolute deviation.
    background : float
        Unblurred light on the sensor, on the scale of the (scaled) image:
        g = H f + background + noise. For an image of integers, 0.1 is a tenth
        of the largest integer. An offset of the camera is not light: for photon
        counts, subtract it from the image instead.
    delta : float, optional
        Residual at which Huber's term changes from quadratic to linear, on the
        scale of the image; by default 1.345 standard deviations of the noise.
    denoiser : callable or str, optional
        Denoiser for ``"pnp"``: ``denoiser(image, sigma)`` returns `image`,
        (P, Q), or (P, Q, C) for colour, without its noise of standard deviation
        `sigma`. It may also be a name in `deblur.denoise.denoisers`; by default
        it is ``"collaborative"``.
    gamma : {"srgb", "linear"}, optional
        The tone curve between light and the image's numbers, as in the files of
        cameras and telephones. With ``"srgb"`` the curve is undone, the light
        is restored, and the curve is applied again. A curve needs integers of
        8 or 16 bits, or floats from 0 to 1. Noise, bounds, background, delta, λ
        and the diagnostics then refer to light, from 0 (black) to 1 (white).
        With ``"linear"`` the numbers are restored without a curve, which is
        right for images that a program blurred. By default they are, too,
        unless the image shows that light was blurred: its numbers are then
        first changed to those of a blur of numbers (``docs/worth.md``). This is
        examined on a CPU if a rule chooses λ, and noise, weights, `psf_error`,
        data and background are not given, in the first frame of a stack and the
        first image of a `Deblurrer`. The result's ``checks`` say so.
    psfs : array, (array, positions) or PSFMap, optional
        A PSF that varies across the image, in place of `psf`: either (R, S, m,
        n) on an even grid, as in a `deblur.psf.PSFMap`, or (K, m, n) with the
        row and column of each PSF, (K, 2). One more axis before the last two
        holds colours. They become a `VaryingBlur` with a tolerance of 1 %.
        Methods that need one PSF for the whole image raise `MethodError`."""

    method: Annotated[str, "auto"]
    boundary: Annotated[str, "auto"]
    formula: Annotated[str, "tikhonov"]
    prior: Annotated[str, "auto"]
    dtype: Annotated[Any, None]
    origin: Annotated[tuple[int, int] | None, None]
    noise: Annotated[float | tuple[float, float] | None, None]
    psf_error: Annotated[float | None, None]
    rtol: Annotated[float | None, None]
    max_iterations: Annotated[int | None, None]
    stop: Annotated[str | None, None]
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
def _declared(kind: Any) -> dict[str, inspect.Parameter]:
    hints = {name: get_args(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    named = inspect.Parameter.KEYWORD_ONLY
    return {name: inspect.Parameter(name, named, default=d, annotation=a) for name, (a, d) in hints.items()}


def defaults(kind: Any = Options) -> dict[str, Any]:
    """Return {option: default} of all options."""
    return {name: option.default for name, option in _declared(kind).items()}


_T = TypeVar("_T", bound=Callable[..., Any])


def takes_options(*kinds: Any) -> Callable[[_T], _T]:
    """Return a decorator that adds options to a function or class, and raises TypeError for unknown names.

    The options are added to the signature and, at "{options}", to the docstring. The `kinds` are typed dicts that
    document options; the first one has all of them. Static checkers read ``**options: Unpack[Options]``;
    `inspect.signature`, and with it the completion of a notebook, reads the signature made here.
    """
    text = "\n".join(inspect.cleandoc(kind.__doc__ or "") for kind in kinds).replace("\n", "\n    ")

    def shown(target: _T) -> _T:
        made: Any = target
        if isinstance(target, type):
            made.__init__ = _checked(made.__init__, target.__name__, kinds[0])
        else:
            made = _checked(target, target.__name__, kinds[0])
        made.__doc__ = (made.__doc__ or "").replace("{options}", text)
        return made

    return shown


def _checked(function: Callable[..., Any], name: str, kind: Any) -> Any:
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    known = {p.name: p for p in own} | _declared(kind)

    @functools.wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        for key in (key for key in given if key not in known):
            near = difflib.get_close_matches(key, known, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(defaults())}"
            raise TypeError(f"{name} has no option {key!r}; {hint}")
        check_flags(**{key: value for key, value in given.items() if known[key].annotation in (bool, "bool")})
        return function(*args, **given)

    positional = [p for p in own if p.kind is not p.KEYWORD_ONLY]
    keywords = [p for p in own if p.kind is p.KEYWORD_ONLY]
    checked.__signature__ = signature.replace(parameters=[*positional, *_declared(kind).values(), *keywords])  # type: ignore[attr-defined]
    return checked


def check_lam(lam: Any) -> float | str:
    """Return λ as a finite number >= 0, "auto" or the name of a rule; raise TypeError or ValueError for
    anything else.
    """
    if isinstance(lam, str):
        return check_rule(lam)
    value = as_number(lam)
    if math.isnan(value) and not isinstance(lam, (float, np.floating)):
        raise TypeError(f"λ must be a number or one of the rules {', '.join(RULES)}, not {lam!r}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"λ must be finite and not negative, not {lam!r}")
    return value


def check_values(o: dict[str, Any]) -> None:
    """Check and convert the options; raise an error for the first that is out of its range."""
    check_choice(o["formula"], FORMULAS, "formula")
    check_choice(o["gamma"], (None, *GAMMAS), "gamma")
    check_choice(o["prior"], PRIORS, "prior")
    if not isinstance(o["boundary"], Boundary):
        check_choice(o["boundary"], ("auto", *BOUNDARIES), "boundary")
    if isinstance(o["mask"], str) and o["mask"] not in DETECTORS:
        names = " or ".join(map(repr, DETECTORS))
        raise ValueError(f"mask must be {names}, or an array, True at the pixels to hide, not {o['mask']!r}")
    for name, check in (("mask", check_mask), ("weights", check_weights)):
        if not (o[name] is None or (name == "mask" and isinstance(o[name], str))):
            o[name] = check(o[name])
    if type(o["noise"]) is tuple and len(o["noise"]) != 2:  # the package's own noise model has more
        raise ValueError(f"noise must be a number, or (gain, read-out noise), not {o['noise']!r}")
    parts = o["noise"][:2] if isinstance(o["noise"], tuple) else [o["noise"]]
    numbers = [(part, "noise, a standard deviation, or gain and read-out noise,") for part in parts]
    numbers += [(o["background"], "background"), (o["psf_error"], "psf_error, relative to the PSF's sum,")]
    for value, words in numbers:
        if value is not None:
            check_number(value, words)
    if (o["psf_error"] or 0) > 2**0.5:
        raise ValueError(f"psf_error={o['psf_error']:g} is more than two PSFs can differ, 1.41: divide it by their sum")
    check_choice(o["data"], (None, *FIDELITIES), "data term")
    if o["delta"] is not None:
        check_number(o["delta"], "delta, where the Huber term turns linear,", above=True)
        if o["data"] != "huber":
            raise ValueError("delta belongs to data='huber'")
    if o["rtol"] is not None and not 0 < as_number(o["rtol"]) < 1:
        raise ValueError(f"rtol must lie between 0 and 1, not {o['rtol']!r}")
    check_choice(o["stop"], (None, "consensus"), "stop")
    if o["stop"] is not None and (o["method"] != "richardson-lucy" or o["rtol"] is not None):
        raise ValueError("stop='consensus' belongs to method='richardson-lucy', and takes the place of rtol")
    if o["max_iterations"] is not None:
        o["max_iterations"] = check_count(o["max_iterations"], "max_iterations")
    check_callback(o["callback"], "callback", "iterations", "residual")

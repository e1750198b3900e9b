"""Check whether an image matches its request, was clipped by the sensor, or contradicts the PSF or the boundary."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .device import Array, Map
from .errors import warn
from .frames import ALL, Frames
from .image.light import srgb, unbent
from .masks import saturated
from .methods import METHODS, together
from .norms import alike, largest, squares, total
from .operators.blur import Blur
from .plan import pixel_weights
from .problem import Problem, Stop
from .psf.checking import defect, mismatch
from .request import AS_REQUESTED, Request
from .result import Result, Status
from .solvers.noise import psf_noise
from .solvers.start import filled
from .terms import DataFidelity
from .tuning.boundary import AGAINST, TESTED, evidence


def check_frames(frames: Frames, request: Request) -> None:
    """Raise an error unless the frames have the device, size, channels and mask that the request allows."""
    problem = request.problem
    if frames.device != problem.device:
        raise TypeError(
            f"the image lies on the {frames.device} and this Deblurrer was set up for the {problem.device}; "
            f"convert the image or pass gpu={frames.device.gpu is not None} when setting up"
        )
    if frames.space != problem.operator.image_shape:
        here, there = (" x ".join(map(str, s)) for s in (frames.space, problem.operator.image_shape))
        raise ValueError(f"the image has {here} pixels, and the operator or this Deblurrer is for {there}")
    channels = getattr(problem.operator, "channels", None)
    if channels not in (None, frames.extent[1]):
        raise ValueError(
            f"the PSF has {channels} channels and the image {frames.extent[1]}: give one PSF (m, n) for all of "
            "them, or as many as the image has (and name its channel_axis); for the PSF of a volume the image needs "
            "three axes"
        )
    crop = problem.operator.crop
    if frames.opacity is not None and any(at.stop - at.start != n for at, n in zip(crop, frames.space, strict=True)):
        raise ValueError("this operator's scene has another size than the image's opacity: drop the opacity")
    if frames.masked is not None and request.linear:
        raise TypeError(
            "the image is a masked array, and this Deblurrer was set up for the linear formula, which cannot use a "
            "mask: give mask=... or a method such as 'tv' when setting up, or fill the image"
        )


def is_clipped(frames: Frames, request: Request, solve: Callable[[Request, Frames], Result]) -> bool:
    """Return True if the sensor clipped pixels that are to be hidden, by another method if the linear formula was the
    default.

    Two conditions must hold: `saturated` finds such pixels, and a scene restored without them, once blurred, is not
    white there. For a large image only the window that contains most borders of such pixels is restored.

    Around lamps in 12 night scenes the blurred scene differs from the white level by 45 to 69 % (root mean square), and
    on a ground of 40 % of white by 38 to 53 %. For white objects that are blurred but not clipped it differs by at most
    4 %, and in 30 overexposed photographs by 8 to 29 %. Their clipped pixels are near white: hiding them mostly loses.
    """
    problem = request.problem
    if request.hides(frames.masked) or frames.given.kind == "b" or problem.axes != 2:
        return False
    # Under a wrong boundary the scene would contradict white pixels that are not clipped. A PSF that hardly blurs
    # leaves the light of a hidden pixel nowhere else.
    sharp = 2 * largest(problem.operator.mean_blur.psf) > problem.operator.norm_bound
    if sharp or not problem.operator.boundary.open or problem.fidelity.name != "gaussian":
        return False
    by_default = request.method == request.lam == request.options["prior"] == "auto"
    if request.linear and not (by_default and problem.formula == "tikhonov" and not problem.inverse):
        return False
    g, top = frames.levels, frames.largest
    white = float(g.max())
    if float(total(alike(g, white))) <= max(3, 1e-4 * g.size):
        return False
    found = saturated(g) & (g == white)
    count = float(total(found.astype(np.float32)))
    if not (1e-4 * g.size < count < 0.2 * g.size and top > 0):
        return False
    lam = 1e-3 * problem.operator.norm_bound**2
    problem = replace(problem, regularizer="gradient", lam=lam, bounds=None, denoiser=None, stop=Stop())
    options = request.options | {"mask": "saturated"}
    trial = replace(request, problem=problem, lam=lam, method="gradient", linear=False, options=options)
    at = _window(frames, request, found)
    if at is not None:
        frames, found = Frames(frames.given_part(ALL)[at], 1, 0, options), found[at]
        blur = Blur(problem.blur.psf, frames.space, problem.blur.boundary, origin=problem.blur.origin)
        trial = replace(trial, problem=replace(problem, operator=blur), candidates=())
    # The residual counts hidden values as 0, so the blurred scene there is the negative residual.
    off = (frames.spread(solve(trial, frames).residual_image, "the residual") + top) * found
    return math.sqrt(float(squares(off)) / float(total(found.astype(np.float32)))) > 0.33 * top


def as_light(frames: Frames, request: Request, limit: int = 1 << 23) -> tuple[Frames, Request]:
    """Return frames for which the blur keeps the sum of the numbers, and the request with the decision about it.

    The frames are returned as they are unless the first one, or an earlier image, shows that light was blurred and the
    curve c of sRGB was applied afterwards. This is examined on a CPU, for images of two axes, with nothing given in
    numbers. The changed frames are g + H c(l) − c(H l), where l is the scene that a few steps of Richardson-Lucy
    restore from the light. A frame stays as it is if its numbers are not those from black to white, or all so dark that
    the curve is a line. Frames of more than `limit` numbers stay, too, and their note says so.
    """
    problem, blur = request.problem, request.problem.operator.shift_invariant
    given = any(request.options[name] is not None for name in ("gamma", "noise", "psf_error", "weights", "data"))
    given |= bool(request.options["background"]) or not isinstance(request.lam, str) or frames.device.gpu is not None
    if request.light == "" or given or problem.axes != 2 or blur is None or not blur.nonnegative:
        return frames, request
    shown = pixel_weights(request.options, frames, frames.data)[0] if request.hides(frames.masked) else None
    weights = None if shown is None else np.broadcast_to(shown, frames.extent)
    if request.light is None:
        request = _examined(frames, request, weights)
    if not request.light:
        return frames, request
    if math.prod(frames.extent[1:]) > limit:  # all other work on it takes less time and memory than its change
        frames.note = f"{request.light}: the image is too large to be changed (try method='tv' with gamma='srgb'); "
        return frames, request
    out, note = frames.data.copy(), ""
    for i, g in enumerate(out):
        if g.min() >= -0.05 and 0.04 < g.max() <= 1.05:
            note = f"{request.light}: the numbers were changed to those of such a blur (gamma='linear' keeps them); "
            shown = None if weights is None else weights[i : i + 1]
            seen, apart = _blurred(g[None], shown, blur)
            new = np.maximum(g + (apart - seen)[0], 0)
            out[i] = new if shown is None else np.where(shown[0] > 0, new, g)
    return frames.replaced(out, note) if note else frames, request


def _examined(frames: Frames, request: Request, weights: Array) -> Request:
    """Return the request with a sentence if the first frame shows that light was blurred, else with its noise.

    Two scenes are restored: one from the numbers, and one, l, from the light. The frame shows it if the numbers are
    much nearer to c(H l) than to the blurred scene of the numbers. Two distances must agree: the mean, weighted by
    |H c(l) − c(H l)|, and the median over the tenth of the pixels where that weight is largest.

    In 400 draws of blurred numbers with an ε above 0 (with and without lamps, JPEG and an error of the PSF) no median
    distance is less than 0.86 times the other one.
    """
    kept, blur, g = replace(request, light=""), request.problem.blur, frames.part((slice(1), slice(None)))
    if not 0.04 < largest(g) <= 1:  # the curve is a line below 0.04
        return kept
    shown = None if weights is None else weights[:1]
    noise = psf_noise(filled(g, shown), blur.psf)
    whole = frames.extent[0] == 1 and len(frames.parts(together(frames.device))) == 1  # λ is chosen from the first part
    if whole and request.problem.fidelity.name == "gaussian":
        kept = replace(kept, problem=replace(request.problem, noise=noise))
    if not noise.psf_error or g.min() < 0:
        return kept
    at = _window(frames, request, g >= 0.5 * g.max(), 256) or ALL
    g, shown = g[at], None if shown is None else shown[at]
    (seen, apart), (plain, _) = _blurred(g, shown, blur), _blurred(g, shown, blur, np.asarray, np.asarray)
    size = abs(apart - seen) if shown is None else abs(apart - seen) * (shown > 0)
    most = size >= np.quantile(size, 0.9)
    (near, middle), (far, median) = (
        (float((size * off).mean()), float(np.median(off[most]))) for off in (abs(g - seen), abs(g - plain))
    )
    if not (near < 0.8 * far and middle < 0.8 * median):
        return kept
    words = f"a blur of light and the curve of sRGB leave {near / far:.2g} of the residual of a blur of numbers"
    return replace(request, light=words)


def _blurred(g: Array, weights: Array, blur: Blur, before: Map = unbent, after: Map = srgb) -> tuple[Array, Array]:
    """Return c(H l) and H c(l) for a scene l of c⁻¹(g), with c(l) at most white; `before` is c⁻¹ and `after` is c."""
    h = Blur(blur.psf / blur.dc_gain, g.shape[2:], "unknown", origin=blur.origin)
    fidelity, few = DataFidelity("poisson", weights=weights), Stop(rtol=1e-9, max_iterations=15)
    posed = Problem(h, 0.0, "tv", fidelity, dtype=g.dtype, stop=few)
    scene = METHODS["richardson-lucy"].prepare(posed).solve(before(g)).scene
    return after(h.forward(scene)), h.forward(np.minimum(after(scene), 1))  # sharp numbers end at white


def _window(frames: Frames, request: Request, found: Array, most: int = 512) -> tuple[slice, ...] | None:
    """Return the window of a large image on the CPU that best mixes found and other pixels, or None for all."""
    blur, sides = request.problem.operator.shift_invariant, [min(n, most) for n in frames.space]
    (rows, high), (cols, wide) = ((n // side, side) for n, side in zip(frames.space, sides, strict=True))
    if frames.device.gpu is not None or blur is None or rows * cols < 4 or max(blur.psf.shape) > 128:
        return None
    many = found[:, :, : rows * high, : cols * wide].any(axis=(0, 1)).reshape(rows, high, cols, wide).sum(axis=(1, 3))
    mixed = many * (high * wide - many)
    top, left = np.unravel_index(np.argmax(mixed), mixed.shape)
    here = slice(top * high, (top + 1) * high), slice(left * wide, (left + 1) * wide)
    return (slice(None), slice(None), *here) if mixed.any() else None


def with_checks(result: Result, request: Request, frames: Frames, one_image: bool) -> Result:
    """Return the result, and warn if the data contradict the PSF or, with automatic λ, the given boundary."""
    operator, fidelity = request.problem.operator, request.problem.fidelity
    unchecked = {
        "the image is a line": request.problem.axes == 1,
        "a Deblurrer makes no such check, and hides no clipped pixels by itself": not one_image,
        "the image is on a GPU": frames.device.gpu is not None,
        "pixels are hidden": request.hides(frames.masked),
        "the noise is not Gaussian": fidelity.name != "gaussian",
        "the solve failed": result.status in (Status.NOT_CONVERGED, Status.INACCURATE),
    }
    blur = operator.shift_invariant
    if blur is not None and (wrong := defect(blur.psf, blur.origin)) is not None:
        warn(f"this PSF {wrong}")
        return replace(result, checks=f"the PSF {wrong}")
    if why := next((words for words, applies in unchecked.items() if applies), ""):
        return replace(result, checks=f"PSF and boundary were not compared with the image: {why}")
    grey, edge = frames.part((slice(1), slice(None)))[0].mean(axis=0), operator.boundary
    if saturated(grey).any():
        result = replace(result, checks="the sensor may have clipped pixels; they are not hidden: see mask='saturated'")
    if edge.open and blur is not None and (wrong := mismatch(grey, blur.psf)) is not None:
        warn(f"this PSF does not fit the picture: {wrong}; deblur.psf.check says more")
        return replace(result, checks=f"the PSF does not fit the picture: {wrong}")
    if edge in TESTED and request.boundary_reason == AS_REQUESTED and isinstance(request.lam, str):
        name = str(edge)
        against = -evidence(operator.mean_blur, grey - fidelity.background, among=(name,)).get(name, 0.0)
        if against > AGAINST:
            wrong = f"the image border indicates that the scene continues beyond the frame (log evidence {against:.0f})"
            warn(f"boundary {name!r} does not fit the picture: {wrong}; name boundary='unknown', or none")
            return replace(result, boundary_reason=f"{result.boundary_reason}, but {wrong}", checks=wrong)
    return result

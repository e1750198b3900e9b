"""One image of a request, and what is decided for it and kept for the images after it.

An image is normalised, its weights and mask are applied, and it is divided into parts. Its boundary is detected before.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .device import Array, asnumpy, get_xp
from .errors import ConvergenceError, InsufficientMemoryError, MethodError, SingularMatrixError
from .frames import ALL, Frames, Part
from .methods import METHODS, Choice, together
from .normalization import Scale
from .norms import combined, largest, shifted
from .options import DETECTORS
from .problem import FLOAT64, Factor, Problem, Solution
from .progress import report_phase
from .request import Request
from .solvers.noise import NoiseModel, noise_variance, weighed
from .solvers.start import filled, prior_scene
from .tuning import LambdaChoice
from .tuning.boundary import AGAINST, SAFE, find_boundary
from .tuning.choice import restated
from .tuning.select import choose_lambda, oversmoothed, with_psf_error, with_unexplained

#: δ of the Huber term, in standard deviations of the noise. For Gaussian noise it has 95 % of the efficiency of least
#: squares (P. J. Huber, Robust Statistics, 1981).
HUBER = 1.345
#: Failures after which another attempt may succeed.
RECOVERABLE = (SingularMatrixError, InsufficientMemoryError, MethodError, ConvergenceError)


class NormalizedImage:
    """An image in the units of its normalised problem.

    Parameters
    ----------
    request : Request
        The request; its boundary is known.
    frames : Frames
        The frames of the image.
    kept : NoiseModel, optional
        The noise of the earlier image that decided λ, in its units.

    Attributes
    ----------
    scale : Scale
        The powers of two of the normalisation.
    problem : Problem
        The normalised problem, with the image's weights, Huber's δ and the number of frames. λ is 0 if a rule
        chooses it.
    noise : float or None
        The given standard deviation of the noise, normalised.
    prior : {"zero", "smooth", "natural"}
        The prior of the linear formula.
    mask : array of bool or None
        The hidden pixels.
    parts : list of Part
        Parts that are solved for one after the other, so that not all need be in memory at once.

    Raises
    ------
    ValueError
        If background, noise or bounds do not match the scale of the image, or if every pixel is hidden.
    """

    def __init__(self, request: Request, frames: Frames, kept: NoiseModel | None = None) -> None:
        searched = isinstance(request.lam, str)
        problem = replace(request.problem, dtype=frames.dtype, frames=frames.count, searched=searched)
        seen, g, weights, weight, most = np.array([frames.largest]), None, None, 1.0, frames.largest or 1.0
        given, eps, (low, high) = frames.given, float(np.finfo(frames.dtype).eps), problem.bounds or (0.0, 0.0)
        for name, value in (("background", problem.fidelity.background), ("noise", request.noise or 0.0)):
            if given.kind in "iu" and value > 1:
                raise ValueError(
                    f"{name}={value:g} is more than any pixel of dtype {given} holds: such images are scaled to "
                    f"[0, 1], so divide it by {np.iinfo(given).max}"
                )
            if value * eps > most:
                raise ValueError(f"{name}={value:g} leaves no digit of an image of up to {most:.3g}; divide it")
        if max(low, -high) * problem.operator.norm_bound * eps > most:
            raise ValueError(f"bounds={low:g},{high:g} leave no digit of an image of up to {most:.3g}: use its scale")
        self.frames, self.prior, self.mask, self.parts = frames, request.prior, None, [ALL]
        self.scale = Scale.of(problem, seen)
        if not request.linear:
            g = frames.data
            if self.scale.image and request.options["weights"] is not None:
                given_weights = frames.spread(problem.xp.asarray(request.options["weights"]), "weights")
                g = seen = problem.xp.where(given_weights > 0, g, 0)
                self.scale = Scale.of(problem, seen)
            g = shifted(g, -self.scale.image).astype(problem.dtype, copy=False)
            weights, self.mask, weight = pixel_weights(request.options, frames, g)
            self.scale = Scale.of(problem, seen, weight)
        centred, copied = self.prior != "zero", not frames.given_part(ALL).flags.c_contiguous or given != frames.dtype
        self.problem = problem = replace(self.scale.near(problem), held=(copied + centred, int(centred)))
        self.noise = None if request.noise is None else shifted(float(request.noise), -self.scale.image)
        if g is not None:
            self.problem = self._with_frames(request, g, weights, kept and kept.scaled(-self.scale.image))
        elif problem.operator.shift_invariant is not None:  # every frame is a problem of its own
            self.parts = frames.parts(together(frames.device))

    def part(self, at: Part = ALL) -> tuple[Array, Array, Array | None]:
        """Return the frames (k, c, M, N) of a part, the data to solve for, and the prior scene that the data are
        centred on; by default of all frames.
        """
        return self._whole if len(self.parts) == 1 else self._centred(at)

    def seen(self, at: Part) -> Array:
        """Return the frames (k, c, M, N) of a part, normalised, with 0 at hidden pixels."""
        g, weights = shifted(self.frames.part(at), -self.scale.image), self.problem.fidelity.weights
        g = g.astype(self.problem.dtype, copy=False)
        # Pixels of weight 0 may hold any value.
        return g if weights is None else self.problem.xp.where(weights > 0, g, 0)

    def frames_in_turn(self) -> Iterator[Array]:
        """Yield the data of each frame and colour, (M, N)."""
        for at in self.parts:
            data = self.part(at)[1]
            yield from data.reshape(-1, *data.shape[2:])

    def drawn(self, regularizer: str) -> NormalizedImage:
        """Return the image for a regularizer: "natural" centres the data on the smoothed image."""
        if regularizer != "natural" or self.prior != "zero":
            return self
        drawn = copy.copy(self)
        drawn.prior = "smooth"
        drawn.__dict__.pop("_whole", None)
        return drawn

    def _with_frames(self, request: Request, g: Array, weights: Array | None, kept: NoiseModel | None) -> Problem:
        """Return the normalised problem with the parts that depend on its frames `g`: weights, δ and noise."""
        problem, delta = self.problem, self.problem.fidelity.delta
        if problem.fidelity.name == "poisson":
            _check_counts(g, weights, raised=request.method == "richardson-lucy" and request.lam == 0)
        problem = replace(problem, fidelity=replace(problem.fidelity, weights=weights))
        if problem.fidelity.name == "huber" and not delta > 0:
            noise = math.sqrt(noise_variance(problem, g)) if self.noise is None else self.noise
            delta = HUBER * max(noise, 1e-4 * largest(filled(g, weights)), np.finfo(g.dtype).tiny)
            problem = replace(problem, fidelity=replace(problem.fidelity, delta=delta))
        if problem.searched:
            problem = weighed(problem, g, self.noise, request.options["psf_error"], kept)
        return problem

    @cached_property
    def _whole(self) -> tuple[Array, Array, Array | None]:
        return self._centred(ALL)

    def _centred(self, at: Part) -> tuple[Array, Array, Array | None]:
        g = self.seen(at)
        if self.prior == "zero":
            return g, g, None
        scene = prior_scene(self.problem.operator, g)
        return g, combined(g, self.problem.operator.forward(scene), b=-1), scene


def detect_boundary(request: Request, frames: Frames) -> Request:
    """Return the request with the boundary detected in these frames, or the same request if the boundary is known."""
    if not request.candidates:
        return request
    problem = request.problem
    bare = not request.hides(frames.masked)
    background = problem.fidelity.background
    blur = problem.operator.mean_blur
    if problem.axes == 1 or any(m > n for m, n in zip(blur.psf.shape, blur.image_shape, strict=True)):
        reason = "the default: no boundary is detected for a line, or a volume that is shorter than its PSF"
        return request.under(request.candidates[0], reason)
    # At most about 64 frames of a stack are enough.
    few = bare and not background
    g = frames.levels[:: 1 + len(frames.levels) // 32] if few else frames.data
    weights = None if bare else pixel_weights(request.options, frames, g)[0]
    g = g - g.dtype.type(background) if background else g
    boundary, reason, evidence = find_boundary(blur, g, weights, request.candidates)
    if SAFE not in request.candidates and evidence < -AGAINST:
        requested = f"method={request.method!r} with formula={problem.formula!r}"
        raise MethodError(
            f"{requested} cannot be used with the boundary of this picture: {reason}. Use another method, or name "
            f"boundary={boundary!r} to force it"
        )
    return request.under(boundary, reason)


def pixel_weights(options: Mapping[str, object], frames: Frames, g: Array) -> tuple[Array | None, Array | None, float]:
    """Return weights, mask and the factor by which the given weights were divided, in shapes that broadcast to `g`.

    The weights are 0 at hidden pixels and have the mean 1 elsewhere. Weights and mask are None if neither is given.
    """
    xp, dtype, hide, inverse_variance = get_xp(g), frames.dtype, options["mask"], options["weights"]
    given = [] if frames.masked is None else [frames.spread(xp.asarray(frames.masked), "mask")]
    if isinstance(hide, str):
        if len(frames.space) == 1:
            raise MethodError(f"mask={hide!r} detects pixels of images: for a line give the mask itself")
        given.append(DETECTORS[hide](g))
    elif hide is not None:
        given.append(frames.spread(xp.asarray(hide), "mask"))
    mask, weight = given[0] | given[-1] if given else None, 1.0
    if inverse_variance is None and mask is None:
        return None, None, weight
    weights = 1.0 if mask is None else 1.0 - mask.astype(dtype)
    if inverse_variance is not None:
        weights = frames.spread(xp.asarray(inverse_variance), "weights").astype(np.float64) * weights
        most = float(weights.max()) or 1.0
        weight = most * float((weights / most).sum() / max(int((weights > 0).sum()), 1)) or 1.0
        weights = (weights / weight).astype(dtype)
    empty = asnumpy(xp.broadcast_to(weights == 0, g.shape).reshape(*g.shape[:2], -1).all(axis=-1))
    if empty.any():
        parts = {"the mask": mask, "the weights": inverse_variance}
        names = " and ".join(name for name, part in parts.items() if part is not None)
        which = "" if empty.size == 1 else f" of frame and channel {np.argwhere(empty)[0].tolist()}"
        raise ValueError(f"nothing is left to restore from: every pixel{which} is hidden by {names}")
    return weights, mask, weight


def _check_counts(g: Array, weights: Array | None, raised: bool) -> None:
    """Raise ValueError if a visible value of Poisson data is negative.

    A method that raises negative data (`raised`) tolerates values as far below zero as the largest value is above it.
    """
    visible = g if weights is None else g * (weights > 0)
    lowest = float(visible.min())
    if lowest < (-float(visible.max()) if raised else 0):
        count = int((visible < 0).sum())
        raise ValueError(
            f"data='poisson' counts photons, and {count} visible value(s) are below zero (the least is {lowest:.4g}); "
            "subtract less of a background (give it as background=...), hide those pixels, or use data='gaussian'"
        )


@dataclass(frozen=True)
class Plan:
    """The decisions for one image, which later images reuse. A plan is never changed, only replaced.

    Attributes
    ----------
    problem : Problem
        The normalised problem, with λ.
    scale : Scale
        The scale of the normalised problem.
    choice : Choice
        The method, and the others that can solve the problem.
    lam_reason, prior_reason : str
        How λ and the prior were chosen.
    lambda_choice : LambdaChoice or None
        The choice of λ by a rule, in the units of the image.
    uncertain : bool
        True if a named rule found no reliable λ.
    factor : Factor or None
        The prepared solver; None until the plan is prepared.
    start : Solution or None
        The last solution of the search for λ.
    """

    problem: Problem
    scale: Scale
    choice: Choice
    lam_reason: str
    prior_reason: str
    lambda_choice: LambdaChoice | None = None
    uncertain: bool = False
    factor: Factor | None = None
    start: Solution | None = None

    def with_lam(self, factor: float, request: Request) -> Plan:
        """Return the plan with λ multiplied by `factor`, not prepared."""
        problem = replace(self.problem, lam=factor * self.problem.lam)
        shown = self.scale.lam(problem, problem.lam)
        reason = f"{self.lam_reason}; raised to {shown:.3g}, since no method solves the problem with less"
        return replace(self, problem=problem, choice=request.choice(problem), lam_reason=reason, factor=None)

    def in_units_of_image(self, problem: Problem, request: Request) -> Problem:
        """Return the problem in the units of image and PSF."""
        given = request.problem
        delta, weights = shifted(problem.fidelity.delta, self.scale.image), problem.fidelity.weights
        if weights is not None and self.scale.weight != 1:
            weights = self.scale.weight * weights.astype(FLOAT64)
        return replace(
            given,
            lam=self.lam if isinstance(request.rule, str) else given.lam,
            regularizer=problem.regularizer,
            fidelity=replace(given.fidelity, weights=weights, delta=delta),
            frames=problem.frames,
            dtype=problem.dtype,
            noise=self.noise,
        )

    @property
    def lam(self) -> float:
        """λ in the units of the image."""
        return float(self.scale.lam(self.problem, self.problem.lam))

    @property
    def noise(self) -> NoiseModel | None:
        """The noise for which λ was chosen, in the units of the image."""
        return self.problem.noise and self.problem.noise.scaled(self.scale.image)


def decided(request: Request, kept: Plan | None, image: NormalizedImage) -> Plan:
    """Return the kept plan if it fits the image, else a plan whose λ and prior come from a rule or from the
    kept plan.
    """
    rule, problem, scale = request.rule, image.problem, image.scale
    if kept is not None:
        if (kept.scale, kept.problem.fidelity, kept.problem.dtype) == (scale, problem.fidelity, problem.dtype):
            return kept  # the image leads to the same normalised problem
        if isinstance(rule, str):
            lam = float(scale.lam(problem, kept.lam, down=True))
            problem = replace(problem, lam=lam, regularizer=kept.problem.regularizer)
        return replace(kept, problem=problem, scale=scale, factor=None)
    prior_reason = "the default" if request.options["prior"] == "auto" else "as requested"
    if not isinstance(rule, str):
        return Plan(problem, scale, request.choice(problem), request.lam_reason, prior_reason)
    report_phase("λ")
    named, noise, kind = request.lam != "auto", image.noise, problem.linear_form.regularizer
    # The method that solves during the search; the rules of the linear formula need none.
    searching = (m for m in METHODS.values() if m.automatic and m.regularizer == kind)
    method = next(searching) if request.method == "auto" else METHODS[request.method]
    if request.linear:
        problem = weighed(problem, image.seen(image.parts[0]), noise, request.options["psf_error"])
    elif not named:
        problem, rule, noise = with_unexplained(problem, image.part()[1], rule, noise)
    found, regularizer, why = choose_lambda(problem, image, rule, request.may_be_natural, noise, method)
    if rule == "auto":
        found = with_psf_error(found, problem)
    problem = replace(problem, lam=float(found.lam), regularizer=regularizer)
    stated = restated(replace(found, solution=None), problem, scale)
    uncertain = named and not (found.converged or oversmoothed(found, image.prior, method))
    choice, why = request.choice(problem), why or prior_reason
    # The method needs no other spectrum than its own.
    image.problem.operator.mean_blur.release("natural" if regularizer == "natural" else choice.method)
    problem.linear_form.operator.mean_blur.release(choice.method)
    return Plan(problem, scale, choice, stated.reason, why, stated, uncertain, start=found.solution)

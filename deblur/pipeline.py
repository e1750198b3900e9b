"""The road: frames, options, problem, method, λ, solve, judge, result.

`reconstruct` gives the image, `solve` the image with everything that was
decided and measured on the way, `Deblurrer` keeps what does not depend on the
image for many of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Unpack

import numpy as np

from .combined import combined
from .costs import USUAL, loading_seconds
from .device import CPU, Array, Device, asnumpy
from .errors import ConvergenceError, InsufficientMemoryError, MethodError, SingularMatrixError, warn
from .frames import ALL, Frames
from .image import Levels
from .judge import judge
from .methods import METHODS, TOGETHER, TOGETHER_GPU, Choice, call_seconds, choose, named, solve_seconds
from .operators.operator import Operator
from .options import Options, Request, check_dtype, check_gamma, checked, takes_options
from .prior import Tuned, hides_all, mostly_natural, tuned
from .problem import Factor, Problem, Solution, confirm
from .progress import heard, tell
from .psf.checking import alarm
from .result import Piece, Result, Status, build
from .solvers.scaling import Scale, shifted
from .stated import Stated, StatedImage
from .tuning import LambdaChoice
from .tuning.boundary import AGAINST, TOLD, evidence
from .tuning.choice import restated

_FAILED = (Status.NOT_CONVERGED, Status.INACCURATE)
_RAISES = 8  # how often a rule's λ, with which no method succeeds, is made ten times larger


@dataclass(frozen=True)
class _Prepared:
    """What is kept between images. Never changed, only replaced, so that threads see all of it or nothing."""

    problem: Problem
    choice: Choice
    lam_reason: str
    lambda_choice: LambdaChoice | None
    factor: Factor
    scale: Scale  # in which the problem is stated
    guessed: bool = False  # a rule that was named found no λ that can be trusted
    prior_reason: str = ""


@takes_options
class Deblurrer:
    """A deblurring problem without the image: set up once, used on many frames.

    The boundary where none is named, the method, λ where a rule chooses it, and all that they need (factors, spectra,
    the domain of an iteration) are made for the first image and kept. Several threads may use one Deblurrer, and it
    pickles. `tune` decides from an image of your choice, where it must not depend on which one comes first.

    Parameters
    ----------
    psf : (m, n) array
        Point spread function; used as it is (not normalised).
    shape : (int, int)
        Rows and columns of the images to come.
    lam : float or str
        As for `reconstruct`. A rule chooses it from the first image; it is
        kept for the images after it. So is the boundary, where none is named.
    gpu : bool or int
        True if the images will be CuPy arrays on the current GPU; a number names the GPU.
    warm_start : bool
        Begin each solve where the last image's ended. That saves iterations where frames are alike, and makes an
        answer depend, within the tolerance, on the images before it.
    {options}

    Attributes
    ----------
    lam : float or str
        λ, or the rule until the first image has been seen.
    boundary : str
        The boundary, or "auto" until the first image has been seen.
    blur : Operator or None
        The linear map that is inverted, once the boundary is known.
    choice : Choice or None
        The method and why, once λ and the boundary are known.

    Examples
    --------
    >>> import deblur
    >>> psf = deblur.psf.gaussian(5, 1.0)
    >>> restore = deblur.Deblurrer(psf, (48, 48), lam=1e-3)
    >>> frames = [deblur.data.load("camera")[:48, i : i + 48] for i in range(3)]
    >>> restored = [restore(frame) for frame in frames]
    """

    def __init__(
        self,
        psf: Array | None,
        shape: tuple[int, int],
        lam: float | str = "auto",
        *,
        gpu: bool | int = False,
        warm_start: bool = False,
        **options: Unpack[Options],
    ) -> None:
        device = CPU if gpu is False else Device.named("gpu" if gpu is True else gpu)
        self._begin(checked(psf, shape, lam, options, device=device, reuse=True), warm_start)

    @classmethod
    def _of(cls, request: Request) -> Deblurrer:
        self = cls.__new__(cls)
        self._begin(request, False)
        return self

    def _begin(self, request: Request, warm_start: bool) -> None:
        self._warm = warm_start
        self._prepared: _Prepared | None = None
        self._last: Solution | None = None
        self._last_scale = Scale()
        self._lock = threading.Lock()
        self._ask(request)

    def _ask(self, request: Request) -> None:
        """Take this as what is asked for; a method that cannot serve says so."""
        self._scale = Scale.of(request.problem)
        self._operator = self._scale.operator(request.problem.operator)
        problem = self._scale.near(request.problem, self._operator)
        if isinstance(request.lam, str):
            problem = replace(problem, lam=USUAL * problem.operator.gain**2)
        self._first_choice = self._chosen(problem, request)
        self._request = request  # last, for other threads

    def _decide(self, frames: Frames) -> None:
        """Read the boundary off the picture, if it is the first and none was named."""
        read = self._request.open is not None
        problem = replace(self._request.problem, frames=frames.count)
        if self._prepared is None:
            tell("boundary" if read else "begin", self._expected(problem, self._request, read))
        if read:
            self._check(frames)
            with self._lock:
                self._ask(self._request.decided(frames))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def lam(self) -> float | str:
        """λ, or the rule until the first image has been seen."""
        return self._request.lam if self._prepared is None else self._lam(self._prepared)

    def _lam(self, prepared: _Prepared) -> float:
        """λ in the units of the image; a number as it was given."""
        given, problem, scale = self._request.lam, prepared.problem, prepared.scale
        return shifted(problem.lam, scale.lam(problem)) if isinstance(given, str) else given

    @property
    def boundary(self) -> str:
        """The boundary, or "auto" until the first image has been seen."""
        return "auto" if self._request.open is not None else str(self._request.problem.operator.boundary)

    @property
    def prior(self) -> str:
        """What the linear formula expects of the scene; where λ decides, once that is known."""
        problem = self._request.problem if self._prepared is None else self._prepared.problem
        return "natural" if problem.penalty == "natural" else self._request.prior

    @property
    def choice(self) -> Choice | None:
        """The method and why, once λ and the boundary are known."""
        if self._prepared is not None:
            return self._prepared.choice
        unknown = isinstance(self._request.lam, str) or self._request.open is not None
        return None if unknown and self._request.method == "auto" else self._first_choice

    @property
    def blur(self) -> Operator | None:
        """The linear map that is inverted, once the boundary is known."""
        return None if self._request.open is not None else self._request.problem.operator

    def _chosen(self, problem: Problem, request: Request) -> Choice:
        if request.method != "auto":
            return named(request.method, problem, request.reason, request.lam, request.read, loading=False)
        choice = choose(problem, lam=request.lam, read=request.read, loading=False)
        return replace(choice, reason=request.reason) if request.reason else choice

    def _expected(self, problem: Problem, request: Request, read: bool) -> float | None:
        """Seconds until the result is there, λ not yet known; None if nobody wants to know."""
        if not heard():
            return None
        if isinstance(request.lam, str):
            problem = replace(problem, lam=USUAL * problem.operator.gain**2)
            if request.natural and mostly_natural(problem):
                problem = replace(problem, penalty="natural")
        return call_seconds(self._first_choice.method, problem, request.lam, read)

    # -- the road ------------------------------------------------------------------------------

    def solve(
        self,
        img: Array,
        *,
        channel_axis: int | None = None,
        stack_axis: int | None = None,
        check: bool = True,
    ) -> Result:
        """Restore one image, or a colour image or stack together.

        Parameters
        ----------
        img : array
            As for `reconstruct`; its rows and columns must be `shape`.
        channel_axis, stack_axis : int, optional
            As for `reconstruct`.
        check : bool
            Raise if the solve failed (default); False returns the failed
            Result, whose `status` says what happened.

        Returns
        -------
        Result

        Raises
        ------
        ConvergenceError
            If the image does not solve the problem; it carries the Result.
        """
        return self._solve(self._frames(img, channel_axis, stack_axis), check)

    def tune(
        self, img: Array, *, channel_axis: int | None = None, stack_axis: int | None = None
    ) -> LambdaChoice | None:
        """Choose the boundary, λ and the method, and prepare it, from this image; the parameters are those of `solve`.

        Returns
        -------
        LambdaChoice or None
            None if λ was given as a number.
        """
        with self._request.problem.device.current():
            image = self._stated(self._frames(img, channel_axis, stack_axis))
            with self._lock:
                prepared, _ = self._prepare(image)
                self._prepared = prepared
        return prepared.lambda_choice

    def __call__(
        self, img: Array, *, channel_axis: int | None = None, stack_axis: int | None = None
    ) -> Array:
        """The restored image alone: ``solve(img, ...).image``."""
        return self.solve(img, channel_axis=channel_axis, stack_axis=stack_axis).image

    def _frames(self, img: Array, channel_axis: int | None, stack_axis: int | None) -> Frames:
        request = self._request
        return Frames(img, channel_axis, stack_axis, request.mask, request.gamma, request.problem.dtype)

    def _check(self, frames: Frames) -> None:
        """Raise unless the frames are what this Deblurrer was set up for."""
        problem = self._request.problem
        if frames.device != problem.device:
            raise TypeError(
                f"the image lies on the {frames.device} and this Deblurrer was set up for the {problem.device}; "
                f"convert the image or pass gpu={frames.device.gpu is not None} when setting up"
            )
        if frames.space != problem.operator.image_shape:
            here, there = (" x ".join(map(str, s)) for s in (frames.space, problem.operator.image_shape))
            raise ValueError(f"the image has {here} pixels and this Deblurrer was set up for {there}")
        channels = getattr(problem.operator, "channels", None)
        if channels not in (None, frames.extent[1]):
            raise ValueError(
                f"the PSF has {channels} channels and the image {frames.extent[1]}: give one PSF (m, n) for all of "
                "them, or as many as the image has (and name its channel_axis)"
            )
        if frames.masked is not None and METHODS[self._first_choice.method].linear:
            raise TypeError(
                "the image is a masked array, and this Deblurrer was set up for the linear formula, which has no place "
                "for a mask: give mask=... or a method such as 'tv' when setting up, or fill the image"
            )

    def _stated(self, frames: Frames) -> StatedImage:
        """The image with all that is decided about it before λ, the boundary first."""
        start = time.perf_counter()
        name = self._first_choice.method
        loading = loading_seconds(name, self._request.lam, METHODS[name].linear, frames.device)
        self._decide(frames)
        self._check(frames)
        asked = self._request
        scale = Scale.of(asked.problem, frames.extremes)
        if METHODS[self._first_choice.method].linear:  # every frame is a problem of its own
            most = TOGETHER if frames.device.gpu is None else TOGETHER_GPU
            parts = [ALL] if asked.problem.operator.stationary is None else frames.parts(most)
            request = asked.near(scale, self._operator)
            problem = replace(request.problem, frames=frames.count)
            image = StatedImage(frames, scale, request, problem, None, start, parts, None, loading)
            return image if len(parts) > 1 else replace(image, whole=image.stated(ALL))
        g = frames.data
        if scale.image and asked.weights is not None:  # what weighs nothing may hold anything
            g = asked.problem.xp.where(
                frames.spread(asked.problem.xp.asarray(asked.weights), "weights") > 0, g, 0
            )
            scale = Scale.of(asked.problem, g)
        request = asked.near(scale, self._operator)
        g = shifted(g, -scale.image).astype(asked.problem.dtype, copy=False)
        problem, mask = request.stated(frames, g)
        whole = Stated.of(problem.operator, g, request.prior)
        return StatedImage(frames, scale, request, problem, mask, start, [ALL], whole, loading)

    def _prepare(self, image: StatedImage) -> tuple[_Prepared, Solution | None]:
        """Fix λ, the method and its factor, for this image; and where λ's search ended."""
        request, kept, problem, scale = image.request, self._prepared, image.problem, image.scale
        lam_reason, lambda_choice, near, guessed = request.lam_reason, None, None, False
        prior_reason = request.prior_reason
        if kept is not None:
            lam_reason, lambda_choice, guessed = kept.lam_reason, kept.lambda_choice, kept.guessed
            prior_reason = kept.prior_reason
            if isinstance(request.lam, str):
                lam = shifted(self._lam(kept), -scale.lam(problem))
                problem = replace(problem, lam=lam, penalty=kept.problem.penalty)
        elif isinstance(request.lam, str):
            found, penalty, prior_reason = self._tuned(image, request.lam)
            problem, near = replace(problem, lam=float(found.lam), penalty=penalty), found.solution
            lambda_choice = restated(replace(found, solution=None), problem, scale)
            lam_reason = lambda_choice.reason
            guessed = request.rule_named and not (
                found.settled or hides_all(found, request.prior, METHODS[self._first_choice.method])
            )
        for stated, reason in self._larger(problem, scale, lam_reason):
            try:
                choice, factor = self._factored(stated, None if kept is None else kept.choice)
            except (SingularMatrixError, MethodError) as error:
                last = error
                continue
            return _Prepared(
                stated, choice, reason, lambda_choice, factor, scale, guessed, prior_reason
            ), near
        raise last

    def _tuned(self, image: StatedImage, rule: str) -> Tuned:
        """λ by a rule, and the penalty that it is for."""
        tell("λ", self._expected(image.problem, image.request, False))
        return tuned(image, rule, METHODS[self._first_choice.method])

    def _larger(self, problem: Problem, scale: Scale, reason: str) -> Iterator[tuple[Problem, str]]:
        """The problem and where its λ comes from; and where a rule chose a λ so small, the problem with larger ones."""
        yield problem, reason
        if isinstance(self._request.lam, str) and problem.quadratic and problem.stop.max_iterations is None:
            for _ in range(_RAISES):
                problem = replace(problem, lam=10 * problem.lam)
                lam = shifted(problem.lam, scale.lam(problem))
                yield problem, f"{reason}; raised to {lam:.3g}, since no method solves the problem with less"

    def _factored(self, problem: Problem, choice: Choice | None = None) -> tuple[Choice, Factor]:
        """The method chosen, or the next that can be prepared, and its factor."""
        choice = self._chosen(problem, self._request) if choice is None else choice
        tell("set-up", call_seconds(choice.method, problem) if heard() else None)
        alone = self._request.method != "auto" and not isinstance(self._request.lam, str)
        failures: list[str] = []
        for name in dict.fromkeys([choice.method, *choice.seconds]):
            try:
                # Where nothing else would be tried a GPU factors while the host goes on.
                return _after(choice, name, failures), METHODS[name].prepare(problem, later=alone)
            except (SingularMatrixError, InsufficientMemoryError) as error:
                failures.append(f"{name} failed ({error})")
                last = error
        raise last

    def _ready(self, image: StatedImage) -> tuple[_Prepared, Solution | None, bool]:
        """What is kept, made now if it is not there or was made for other weights; and whether it is the first."""
        with self._lock:
            kept = self._prepared
            if kept is not None and (kept.scale, kept.problem.fit) == (image.scale, image.problem.fit):
                return kept, None, False
            self._prepared, near = self._prepare(image)
            return self._prepared, near, kept is None

    def _solve(self, frames: Frames, check: bool, last: bool = True, into: Levels | None = None) -> Result:
        """The result; `last` says that nobody will try anything else if it failed, and `into` takes the image."""
        device = self._request.problem.device
        with device.current():
            begun = device.mark()
            image = self._stated(frames)
            prepared, near, first = self._ready(image)
            setup = partial(device.between, begun, device.mark()) if first else None
            result = self._judged(image, prepared, near, setup, into)
            if last and result.status in _FAILED and self._request.method == "auto":
                result = self._fallen_back(result, image, prepared, setup, into)
            if last and result.status in _FAILED:
                result = self._relaxed(result, image, prepared, setup, into)
        return _or_raised(result) if check else result

    def _judged(
        self,
        image: StatedImage,
        prepared: _Prepared,
        near: Solution | None,
        setup: Callable[[], float] | None,
        into: Levels | None = None,
    ) -> Result:
        """Solve with what is prepared, and judge; `setup` tells what preparing took, if it was done for this image."""
        problem, choice = replace(prepared.problem, frames=image.problem.frames), prepared.choice
        image = image.drawn(problem.penalty)
        if setup is not None:
            predicted = choice.seconds.get(choice.method, 0.0) + image.loading
        else:
            predicted = solve_seconds(choice.method, problem)
        return build(
            image.frames,
            self._as_asked(problem, prepared),
            choice,
            self._solved(image, problem, prepared, near),
            prepared.scale,
            prior="natural" if problem.penalty == "natural" else image.request.prior,
            prior_reason=prepared.prior_reason,
            mask=image.mask,
            lam_reason=prepared.lam_reason,
            lambda_choice=prepared.lambda_choice,
            boundary_reason=image.request.boundary_reason,
            guessed=prepared.guessed,
            start=image.start,
            setup=setup,
            predicted=predicted,
            into=into,
        )

    def _solved(
        self, image: StatedImage, problem: Problem, prepared: _Prepared, near: Solution | None
    ) -> Iterator[Piece]:
        """Part after part, solved and judged."""
        warm = self._warm and len(image.parts) == 1
        if warm and self._last is not None and prepared.scale == self._last_scale:
            near = self._last
        left = solve_seconds(prepared.choice.method, problem) if heard() else None
        begun = time.perf_counter()
        for done, at in enumerate(image.parts):
            if done:  # from what the parts so far have taken
                left = (time.perf_counter() - begun) / done * (len(image.parts) - done)
            tell("solve" if len(image.parts) == 1 else f"solve {done + 1} of {len(image.parts)}", left)
            stated = image.stated(at)
            solution = prepared.factor.solve(stated.data, near)
            if warm:
                self._last, self._last_scale = solution, prepared.scale
            verdict = judge(problem, stated.data, solution, stated.g)
            confirm(prepared.factor)
            scene = solution.scene if stated.prior is None else combined(solution.scene, stated.prior)
            yield Piece(at, solution, verdict, scene)
            del stated, solution, verdict, scene  # before the next is made

    def _as_asked(self, problem: Problem, prepared: _Prepared) -> Problem:
        """The problem in the units of image and PSF."""
        if not prepared.scale:
            return problem
        asked, fit = self._request.problem, problem.fit
        fit = replace(asked.fit, weights=fit.weights, delta=shifted(fit.delta, prepared.scale.image))
        return replace(
            asked, lam=self._lam(prepared), penalty=problem.penalty, fit=fit, frames=problem.frames
        )

    def _fallen_back(
        self,
        failed: Result,
        image: StatedImage,
        prepared: _Prepared,
        setup: Callable[[], float] | None,
        into: Levels | None,
    ) -> Result:
        """The result of the next method that serves and succeeds, or the failed one if none does."""
        choice = prepared.choice
        failures = [f"{failed.method}: {failed.why or failed.status.name.lower()}"]
        for name in choice.seconds:
            if name == failed.method:
                continue
            try:
                factor = METHODS[name].prepare(prepared.problem)
                other = replace(prepared, choice=_after(choice, name, failures), factor=factor)
                result = self._judged(image, other, None, setup, into)
            except (SingularMatrixError, InsufficientMemoryError, ConvergenceError) as error:
                failures.append(f"{name}: {error}")
                continue
            if result.status.ok:
                with self._lock:
                    self._prepared = other
                return result
            failures.append(f"{name}: {result.why or result.status.name.lower()}")
        return failed

    def _relaxed(
        self,
        failed: Result,
        image: StatedImage,
        prepared: _Prepared,
        setup: Callable[[], float] | None,
        into: Levels | None,
    ) -> Result:
        """The result with the least larger λ that succeeds, if a rule chose λ; or the failed one."""
        for problem, reason in islice(
            self._larger(prepared.problem, prepared.scale, prepared.lam_reason), 1, None
        ):
            try:
                choice, factor = self._factored(problem)
                other = replace(prepared, problem=problem, lam_reason=reason, choice=choice, factor=factor)
                result = self._judged(image, other, None, setup, into)
            except (SingularMatrixError, MethodError, ConvergenceError):
                continue
            if result.status not in _FAILED:
                with self._lock:
                    self._prepared = other
                return result
        return failed


def _doubted(result: Result, restore: Deblurrer, frames: Frames) -> Result:
    """The result, with a warning if the picture speaks strongly against its PSF or the boundary that was named: of
    photographs, whose restoration takes ten times as long as the look at them, and that hide nothing."""
    request = restore._request
    operator, fit = request.problem.operator, request.problem.fit
    if (
        frames.device.gpu is not None
        or not (request.mask is None and request.weights is None)
        or frames.masked is not None
        or fit.name != "gaussian"
    ):
        return result
    g = asnumpy(frames.part((slice(1), slice(None)))[0].mean(axis=0))
    if operator.boundary.open:
        wrong = None if operator.stationary is None else alarm(g, operator.stationary.psf)
        if wrong is not None:
            warn(f"this PSF does not fit the picture: {wrong}; deblur.psf.check says more")
        return result
    if request.read or not isinstance(request.lam, str) or operator.boundary not in TOLD:
        return result
    name = str(operator.boundary)
    against = -evidence(operator.surrogate, g - fit.background, among=(name,)).get(name, 0.0)
    if not against > AGAINST:
        return result
    reason = f"the rim of the picture speaks for a scene that goes on (log evidence {against:.0f} against it)"
    warn(f"boundary {name!r} does not fit the picture: {reason}; name boundary='unknown', or none")
    return replace(result, boundary_reason=f"{result.boundary_reason}, but {reason}")


def _or_raised(result: Result) -> Result:
    """The result, or ConvergenceError with it if it does not solve the problem."""
    if result.status.ok:
        return result
    why = result.lam_reason if result.status is Status.UNSETTLED else result.why
    why = f" ({why})" if why else ""
    raise ConvergenceError(
        f"{result.method} with λ = {result.lam:g} {result.status.value}. Relative residual "
        f"{result.residual:.1e} after {result.iterations} iterations{why}",
        result,
    )


def _after(choice: Choice, name: str, failures: list[str]) -> Choice:
    """The choice of `name` after others had failed."""
    if not failures:
        return choice
    return replace(choice, method=name, reason=f"the next that serves, since {'; '.join(failures)}")


@takes_options
def solve(
    img: Array,
    psf: Array | None = None,
    lam: float | str = "auto",
    *,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    check: bool = True,
    **options: Unpack[Options],
) -> Result:
    """Restore a blurred image and say everything about it.

    The parameters are those of `reconstruct`, and ``check``: False returns a
    failed Result instead of raising `ConvergenceError`.

    Returns
    -------
    Result
        ``result.image``, the method and the reason for it, the status, the
        measured residual, λ and how it was chosen, iterations and seconds.
        ``print(result)`` shows them.
    """
    axes = {"channel_axis": channel_axis, "stack_axis": stack_axis}
    return solve_into(None, img, psf, lam, options, check=check, **axes)


def solve_into(
    into: Levels | None,
    img: Array,
    psf: Array | None,
    lam: float | str,
    options: Options,
    *,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    check: bool = True,
) -> Result:
    """`solve`; given `into`, the image goes there part by part, and the Result has neither it nor the residual."""
    # Everything is checked before anything is set up.
    dtype, gamma = check_dtype(options.get("dtype")), check_gamma(options.get("gamma"))

    def prepared(dtype: Any) -> tuple[Deblurrer, Frames]:
        frames = Frames(img, channel_axis, stack_axis, options.get("mask"), gamma, dtype)
        asked: Options = {**options, "dtype": frames.dtype}
        masked = frames.masked is not None
        request = checked(psf, frames.space, lam, asked, device=frames.device, masked=masked)  # type: ignore[arg-type]
        return Deblurrer._of(request), frames

    restore, frames = prepared(dtype)
    if dtype is not None or frames.given.kind == "f" or frames.dtype == np.float64:
        return _doubted(restore._solve(frames, check, into=into), restore, frames)
    try:
        result = restore._solve(frames, False, last=False, into=into)
        if result.status not in _FAILED:
            result = _doubted(result, restore, frames)
            return _or_raised(result) if check else result
        why = result.why or result.status.name.lower()
    except SingularMatrixError as error:
        why = str(error)
    restore, frames = prepared(np.float64)
    return replace(
        restore._solve(frames, check, into=into),
        dtype_reason=f"float32, enough for {frames.given}, was not: {why}",
    )


@takes_options
def reconstruct(
    img: Array,
    psf: Array | None = None,
    lam: float | str = "auto",
    *,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    **options: Unpack[Options],
) -> Array:
    """Restore a blurred image: the minimiser f of ‖H f − g‖² + λ ‖f‖², or of another fit and another penalty.

    The linear formula is what is solved unless another method is named or a mask, weights, bounds, a noise
    model, a background or a denoiser is given; nothing is changed silently (``solve(...).reason`` says what was
    taken and why). All methods minimise D(W; H f + b, g) + λ R(L f) subject to bounds; see `deblur.problem`.

    Parameters
    ----------
    img : array
        The blurred image g: grey (M, N), colour (M, N, 3), colour with opacity
        (M, N, 4), which is kept as it is, or with one or two further axes
        named by `channel_axis` and `stack_axis`. Integers are scaled to
        [0, 1] as ``skimage.img_as_float`` does (uint8 by 255, uint16 by
        65535). A CuPy array is solved on its GPU.
    psf : (m, n) or (C, m, n) array
        Point spread function, odd or even, not larger than the image. Used as
        it is; one that keeps the brightness sums to one. With three axes one
        for each colour channel. Left out where `psfs` is given.
    lam : float or str
        The regularisation parameter λ >= 0, or the rule that chooses it, one of
        `deblur.tuning.RULES`: ``"auto"`` is ``"gcv"`` for the linear formula (with
        the boundary unknown from the picture's spectrum, which is quicker) and
        else the one that is sound for the data term.
    channel_axis : int, optional
        The axis of the colour channels, as in scikit-image, where it is not
        the last of three with 3 or 4 of them, or all 4 are colours.
    stack_axis : int, optional
        The axis along which frames are stacked. Channels and frames are all
        blurred by the same PSF and solved together.
    {options}

    Returns
    -------
    image : array
        Restored image, shaped like `img`, float32 or float64. Nothing is
        clipped.

    Raises
    ------
    ValueError, TypeError
        For input that makes no sense, before any work starts.
    MethodError
        If the method asked for cannot serve the problem, or the linear formula what was asked of it.
    InsufficientMemoryError
        If a matrix would not fit memory, with the figures.
    SingularMatrixError
        If λ is so small (or 0) that the matrix cannot be inverted.
    ConvergenceError
        If what was reached does not solve the problem; carries the `Result`.

    Warns
    -----
    PSFWarning
        If a first look at a photograph shows beyond doubt that the PSF is turned by 180 degrees or of another size, or,
        where λ is left to a rule, that its scene does not go on beyond the frame as the boundary named says; says what
        to try. Not looked at are arrays on a GPU, pictures with hidden pixels, and other noise than Gaussian.
        `deblur.psf.check` looks closer at a PSF.

    See Also
    --------
    solve : the same with method, reason, status, residual, λ and timings.
    Deblurrer : keeps the factorisation for many images.

    References
    ----------
    .. [1] P. C. Hansen, J. G. Nagy, D. P. O'Leary, *Deblurring Images:
       Matrices, Spectra, and Filtering*, SIAM 2006.

    Examples
    --------
    >>> import deblur
    >>> sharp = deblur.data.load("camera")[:64, :64]
    >>> psf = deblur.psf.gaussian(7, 1.2)
    >>> blurred = deblur.degrade(sharp, psf, noise=0.005, seed=0)
    >>> restored = deblur.reconstruct(blurred, psf, 1e-3)
    >>> deblur.metrics.psnr(sharp, restored) > deblur.metrics.psnr(sharp, blurred)
    True
    """
    return solve(img, psf, lam, channel_axis=channel_axis, stack_axis=stack_axis, **options).image

"""Reconstruction pipeline: validate, detect the boundary, normalise, choose λ and solver, solve, verify.

`reconstruct` returns the image, and `solve` returns it with all decisions and diagnostics. `Deblurrer` keeps the data
that do not depend on the image. All three run `Deblurrer._solve`, which tiles, command and comparison call.

`Deblurrer._attempts` yields the attempts: the decided plan, other solvers, a larger λ. Each decision has one function:

1. `request.check_request` checks the options and makes the operator;
2. `frames.Frames` checks the image and splits it into frames;
3. `data_checks.as_light` changes numbers of blurred light, and `plan.detect_boundary` detects an unnamed boundary;
4. `plan.NormalizedImage` scales problem and frames by powers of two;
5. `tuning.choose_lambda` chooses λ and the prior by a rule;
6. `request.Request.choice` chooses the solver;
7. `methods.Method.prepare` computes the data that do not depend on the image;
8. `problem.Factor.solve` solves each part, and `verify.verify` measures the solution with the operator;
9. `result.assemble` makes the `Result`, in the units of the image.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Unpack

from .data_checks import as_light, check_frames, is_clipped, with_checks
from .device import CPU, Array, Device
from .errors import check_flags
from .frames import Frames, space_of
from .image import Levels
from .methods import METHODS, Choice, serving
from .normalization import Scale
from .norms import combined
from .operators.operator import Operator
from .options import Options, takes_options
from .plan import RECOVERABLE, NormalizedImage, Plan, decided, detect_boundary
from .problem import Solution, synchronize
from .progress import report_phase
from .request import Request, check_request
from .result import Output, Result, Status, assemble
from .tuning import LambdaChoice
from .verify import verify


@takes_options(Options)
class Deblurrer:
    """A deblurring problem without the image, set up once and used for many images.

    The first image decides the boundary if none is named, the method, and λ, the noise and whether light was blurred if
    a rule chooses λ. These decisions are kept for later images, with all data needed (factors, spectra, domains).
    Call `tune` to decide from a particular image instead. A Deblurrer can be shared by threads, and pickled.

    Parameters
    ----------
    psf : (m, n) array or LinearOperator
        Point spread function, used without normalisation. See `reconstruct`.
    shape : tuple of int
        Rows and columns of the images; one number for lines, three for volumes. A PSF of three axes is that of a
        volume if `shape` has three numbers, else it holds one PSF for each colour, (C, m, n).
    lam : float or str
        As for `reconstruct`. A rule chooses λ from the first image.
    gpu : bool or int
        True if the images are CuPy arrays on the current GPU; a number selects the GPU.
    warm_start : bool
        Start each solve from the solution of the last image. This saves iterations if the images are similar, but the
        result depends, within the tolerance, on the previous images.
    {options}

    Attributes
    ----------
    lam : float or str
        λ; before the first image the name of the rule.
    boundary : str
        The boundary; "auto" before the first image if none is named.
    prior : str
        The prior of the linear formula; it may become "natural" when λ is chosen.
    blur : Operator or None
        The operator H; None until the boundary is known.
    choice : Choice or None
        The method with its reason; None until λ and the boundary are known.

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
        shape: tuple[int, ...],
        lam: float | str = "auto",
        *,
        gpu: bool | int = False,
        warm_start: bool = False,
        **options: Unpack[Options],
    ) -> None:
        device = CPU if gpu is False else Device.named("gpu" if gpu is True else gpu)
        self._set_up(check_request(psf, shape, lam, options, device, reuse=True), warm_start)

    @classmethod
    def _of(cls, request: Request) -> Deblurrer:
        self = cls.__new__(cls)
        self._set_up(request)
        return self

    def _set_up(self, request: Request, warm_start: bool = False) -> None:
        self._warm = warm_start
        self._plan: Plan | None = None
        self._last: tuple[Solution, Scale] | None = None
        self._lock = threading.RLock()
        self._asked = self._request = request

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def lam(self) -> float | str:
        """λ; before the first image the name of the rule."""
        plan, lam = self._plan, self._request.rule
        return lam if plan is None or not isinstance(lam, str) else plan.lam

    @property
    def boundary(self) -> str:
        """The boundary; "auto" before the first image if none is named."""
        return "auto" if self._request.candidates else str(self._request.problem.operator.boundary)

    @property
    def prior(self) -> str:
        """The prior of the linear formula; it may become "natural" when λ is chosen."""
        problem = self._request.problem if self._plan is None else self._plan.problem
        return "natural" if problem.regularizer == "natural" else self._request.prior

    @property
    def choice(self) -> Choice | None:
        """The method with its reason; None until λ and the boundary are known."""
        request = self._request
        if self._plan is not None:
            return self._plan.choice
        if request.method == "auto" and (isinstance(request.lam, str) or request.candidates):
            return None
        return request.choice(request.problem_with_lam())

    @property
    def blur(self) -> Operator | None:
        """The operator H; None until the boundary is known."""
        return None if self._request.candidates else self._request.problem.operator

    def solve(
        self, img: Array, *, channel_axis: int | None = None, stack_axis: int | None = None, check: bool = True
    ) -> Result:
        """Restore one image; its colours and the frames of a stack are restored together.

        Parameters
        ----------
        img, channel_axis, stack_axis
            As for `reconstruct`; the rows and columns must be `shape`.
        check : bool
            Raise ConvergenceError if the solve failed (default). False
            returns the failed Result, whose `status` names the failure.

        Returns
        -------
        Result

        Raises
        ------
        ConvergenceError
            If the restored image does not solve the problem; the error carries the Result.
        ValueError, TypeError, MethodError, InsufficientMemoryError, SingularMatrixError, OverflowError
            As for `reconstruct`.
        """
        return self._solve(self._frames(img, channel_axis, stack_axis), check)

    def tune(
        self, img: Array, *, channel_axis: int | None = None, stack_axis: int | None = None
    ) -> LambdaChoice | None:
        """Choose boundary, λ and method from this image, and prepare the method; the parameters are those of `solve`.

        Returns
        -------
        LambdaChoice or None
            The choice of λ; None if λ was given as a number.
        """
        with self._request.problem.device.current(), self._lock:
            self._plan, self._request = None, self._asked
            for image, plan in self._attempts(self._frames(img, channel_axis, stack_axis)):
                try:
                    self._plan = replace(self._prepared(image, plan), start=None)
                except RECOVERABLE as error:
                    last = error
                else:
                    return self._plan.lambda_choice
        raise last

    def __call__(self, img: Array, *, channel_axis: int | None = None, stack_axis: int | None = None) -> Array:
        """Return only the restored image: ``solve(img, ...).image``."""
        return self.solve(img, channel_axis=channel_axis, stack_axis=stack_axis).image

    def _frames(self, img: Array, channel_axis: int | None, stack_axis: int | None) -> Frames:
        request = self._request
        frames = Frames(img, channel_axis, stack_axis, request.options, request.problem.axes)
        request.begin_compiling(frames.dtype)
        return frames

    def _solve(self, frames: Frames, check: bool, into: Levels | None = None, one_image: bool = False) -> Result:
        """Restore frames; with `into`, write the image there part by part and return a Result without image and
        residual.
        """
        check_flags(check=check)
        request, begun = self._request, time.perf_counter()
        failed: Result | None = None
        failures: list[str] = []
        device = request.problem.device
        with device.current(), self._deciding():
            mark = device.mark()
            for image, plan in self._attempts(frames):
                fresh = plan.factor is None
                try:
                    plan = self._prepared(image, plan, failures)
                    setup = (mark, device.mark()) if fresh else None
                    result = self._restored(image, plan, Output(frames, begun, setup, into))
                except RECOVERABLE as error:
                    failures.append(f"{plan.choice.method} failed ({error})")
                    last = error
                    continue
                if result.status not in (Status.NOT_CONVERGED, Status.INACCURATE):
                    self._plan = replace(plan, start=None)
                    break
                failures.append(f"{plan.choice.method}: {result.why or result.status.name.lower()}")
                failed = failed or result
            else:
                if failed is None:
                    raise last
                result = failed
            result = with_checks(result, self._request, image.frames, one_image)
            result = replace(result, checks=image.frames.note + result.checks)
        return result.or_raise() if check else result

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Solve an image; until one has a factor, others wait, and start anew if it fails."""
        with self._lock:
            if self._plan is None:
                self._request = self._asked
                yield
                return
        yield

    def _attempts(self, frames: Frames) -> Iterator[tuple[NormalizedImage, Plan]]:
        """Yield the attempts in order; the next one is needed only if the one before it failed."""
        kept = self._plan
        if kept is None:
            report_phase("boundary" if self._request.candidates else "begin")
        check_frames(frames, self._request)
        frames, request = as_light(frames, self._request)
        request = detect_boundary(request, frames)
        if kept is None:  # the first image decides
            self._request = request
        image = NormalizedImage(request, frames, None if kept is None else kept.noise)
        plan = decided(request, kept, image)
        yield image, plan
        if request.method == "auto":
            with suppress(*RECOVERABLE):
                for choice in serving(plan.problem):
                    if choice.method != plan.choice.method:
                        yield image, replace(plan, choice=choice, factor=None)
        if isinstance(request.lam, str) and plan.problem.quadratic and request.problem.stop.max_iterations is None:
            for power in range(1, 9):
                with suppress(*RECOVERABLE):  # without a method for this λ, the errors before it stand
                    yield image, plan.with_lam(10.0**power, request)

    def _prepared(self, image: NormalizedImage, plan: Plan, failures: list[str] | None = None) -> Plan:
        """Return the plan with its solver and factor; the first such plan is kept for later images."""
        with self._lock:
            if plan.factor is not None:
                return plan
            choice = plan.choice
            if failures:
                choice = replace(choice, reason=f"{choice.reason}, since {'; '.join(failures)}")
            report_phase("set-up")
            # If there is no other attempt, a GPU factors while the host continues.
            alone = self._request.method != "auto" and not isinstance(self._request.lam, str)
            factor = METHODS[choice.method].prepare(plan.problem, asynchronous=alone)
            plan = replace(plan, choice=choice, factor=factor)
            if not failures:
                self._plan = replace(plan, start=None)
            return plan

    def _restored(self, image: NormalizedImage, plan: Plan, output: Output) -> Result:
        """Solve and verify one part after the other, and return the Result."""
        assert plan.factor is not None
        image = image.drawn(plan.problem.regularizer)
        problem = METHODS[plan.choice.method].carried(replace(plan.problem, frames=image.problem.frames))
        start, warm = plan.start, self._warm and len(image.parts) == 1
        if warm and self._last is not None and self._last[1] == plan.scale:
            start = self._last[0]
        dtype, count = problem.dtype, len(image.parts)
        for done, at in enumerate(image.parts):
            report_phase("solve" if count == 1 else f"solve {done + 1} of {count}")
            g, data, centre = (x if x is None else x.astype(dtype, copy=False) for x in image.part(at))
            solution = plan.factor.solve(data, start)
            self._last = (solution, plan.scale) if warm else None
            solution = verify(problem, data, solution, g)
            synchronize(plan.factor)
            scene = solution.scene if centre is None else combined(solution.scene, centre)
            output.add(at, solution, scene, plan)
            del g, data, centre, solution, scene  # free the memory before the next part
        return assemble(output, plan.in_units_of_image(problem, self._request), plan, image, self._request)


@takes_options(Options)
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
    """Restore a blurred image, and return it with every decision and diagnostic.

    The parameters are those of `reconstruct`, and ``check``: False returns a failed Result instead of raising
    `ConvergenceError`. The errors are those of `reconstruct`, too.

    Returns
    -------
    Result
        The restored ``image``, the method with its reason, the status, the measured residual, λ with its reason,
        iterations and seconds. ``print`` shows them.
    """
    return solve_into(None, img, psf, lam, options, check=check, channel_axis=channel_axis, stack_axis=stack_axis)


def solve_into(
    into: Levels | None,
    img: Array,
    psf: Array | None,
    lam: float | str,
    options: Options,
    *,
    check: bool = True,
    kept: dict[Any, Deblurrer] | None = None,
    **axes: int | None,
) -> Result:
    """Do the work of `solve`; with `into`, write the image there part by part and return a Result without image and
    residual.
    """
    # `kept` passes the Deblurrer to the next call, which may have another image but must have the same other arguments.
    count = 2 if psf is None else space_of(psf, img, **axes)
    frames = Frames(img, **axes, options=options, axes=count)
    request = check_request(psf, frames.space, lam, options, frames.device, masked=frames.masked is not None)
    request.begin_compiling(frames.dtype)
    with request.problem.device.current():
        if is_clipped(frames, request, lambda r, f: Deblurrer._of(r)._solve(f, False)):
            options = {**options, "mask": "saturated"}
            result = solve_into(into, img, psf, lam, options, check=check, kept=kept, **axes)
            return replace(result, checks=f"pixels that the sensor clipped are hidden; {result.checks}")
        if kept is None or isinstance(request.lam, str):
            return Deblurrer._of(request)._solve(frames, check, into, one_image=True)
        check_frames(frames, request)
        request = detect_boundary(request, frames)
        key = frames.space, frames.dtype, frames.masked is None, str(request.problem.operator.boundary)
        deblurrer = kept.get(key) or Deblurrer._of(request)
        kept.clear()
        kept[key] = deblurrer
        return deblurrer._solve(frames, check, into, one_image=True)


@takes_options(Options)
def reconstruct(
    img: Array,
    psf: Array | None = None,
    lam: float | str = "auto",
    *,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    **options: Unpack[Options],
) -> Array:
    """Restore a blurred image: the minimiser f of ‖H f − g‖² + λ ‖f‖², or of another fidelity and regularizer.

    The linear formula is solved by default. Other cases are: another method is named; a mask, weights, bounds, a noise
    model, a background or a denoiser is given; or the sensor clipped pixels. ``print(solve(...))`` shows the decisions
    with their reasons. All methods minimise D(W; H f + b, g) + λ R(L f) subject to bounds; see `deblur.problem`.

    Parameters
    ----------
    img : array
        The blurred image g: grey (M, N), colour (M, N, 3), or colour with opacity (M, N, 4), which stays unchanged.

        `channel_axis` and `stack_axis` name further axes. Integers are scaled to [0, 1] as ``skimage.img_as_float``
        does (uint8 by 255, uint16 by 65535). A CuPy array is restored on its GPU. With a 1-D PSF the image is a line
        (M,), with a 3-D PSF a volume (L, M, N).
    psf : (m, n), (l, m, n), (m,) or (C, m, n) array, or LinearOperator
        Point spread function h, of odd or even size, not larger than the image. It is not normalised; a PSF that keeps
        the brightness sums to one. It has as many axes as one frame: one for a line, two for an image, three for a
        volume. A PSF of three axes holds one PSF for each colour, (C, m, n), in two cases: the image has two axes
        besides the named ones, or it is (M, N, 3) or (M, N, 4) and there are three PSFs. Omit it if `psfs` is given. A
        linear operator of SciPy or PyLops with ``rmatvec`` can take its place, for methods that need only products. It
        is applied to each frame and colour separately, and the restored image has the shape ``operator.dims``.
    lam : float or str
        The regularisation parameter λ >= 0, or the rule that chooses it, one of `deblur.tuning.RULES`. For the linear
        formula ``"auto"`` is ``"gcv"``; with an unknown boundary it uses the image's power spectrum, which is faster.
        For other problems ``"auto"`` is the rule that suits the data fidelity.

        Units of λ with least squares: ‖h‖₁² for a quadratic regularizer (the linear formula, "identity", "gradient",
        "laplacian"), whatever the intensities; ‖h‖₁ times intensity for total variation ("tv", "tv-aniso", "tv2",
        "collaborative"); intensity² for a denoiser ("pnp"). For ``data="poisson"`` and ``"l1"`` each of these is
        divided by intensity. Intensities are those of the scaled image.
    channel_axis : int, optional
        The axis of the colour channels, as in scikit-image. It is needed unless it is the last of three axes and has
        length 3, or length 4 with opacity.
    stack_axis : int, optional
        The axis along which frames are stacked. All frames have the same PSF. An image of three axes with a 2-D PSF is
        a stack only if this axis is named.
    {options}

    Returns
    -------
    image : array
        Restored image, shaped like `img`, float32 or float64, not clipped.

    Raises
    ------
    ValueError, TypeError
        For invalid input, before any work starts.
    MethodError
        If the requested method, or the linear formula, cannot solve the problem.
    InsufficientMemoryError
        If a matrix does not fit in memory; the message has the figures.
    SingularMatrixError
        If λ is so small (or 0) that the matrix cannot be inverted.
    ConvergenceError
        If the restored image does not solve the problem; the error carries the `Result`.
    OverflowError
        If the dtype cannot hold the restored image, since the scales of image and PSF differ too much.

    Warns
    -----
    PSFWarning
        If the image contradicts the PSF: a PSF rotated by 180 degrees or of another size fits clearly better. With
        automatic λ, if the image contradicts the named boundary. Also if the sum of the PSF is negative, which turns
        light into dark, or if the PSF displaces a volume. `Result.checks` says which checks were skipped; see
        `deblur.psf.check`.

    See Also
    --------
    solve : Returns method, reason, status, residual, λ and timings, too.
    Deblurrer : Keeps the factorisation for many images.

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
    return solve_into(None, img, psf, lam, options, channel_axis=channel_axis, stack_axis=stack_axis).image

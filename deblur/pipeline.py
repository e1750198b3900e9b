"""The one call: check, choose, solve, judge.

`reconstruct` gives the image, `solve` the image with everything that was
decided and measured on the way, `Deblurrer` keeps the factorisation for many
images.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .backend import Array, check_finite, get_xp
from .blur import Blur
from .errors import ConvergenceError, MethodError
from .image import as_float
from .methods import METHODS, Choice, check_formula, check_method, choose
from .regularization import RULES, choose_lambda, estimate_noise, prior_scene
from .solvers.base import Factor, Info, Problem
from .variational import METHODS as VARIATIONAL
from .variational import RULES as TUNING_RULES
from .variational import quadratic
from .variational.problem import Denoiser, History, Solution, VariationalProblem, objective
from .variational.request import DEFAULT_DENOISER, HUBER, Request, check_counts, frame_weights

PRIORS = ("auto", "zero", "smooth")


class Status(enum.Enum):
    """How a solve ended. The value says it to the user, with what to try."""

    SOLVED = "solved directly"
    CONVERGED = "converged to the tolerance asked for"
    NOT_CONVERGED = (
        "did not converge: use a larger λ or more iterations (max_iterations), "
        'or for the linear formula a direct method (method="kronecker", "banded" or "cholesky")'
    )
    INACCURATE = (
        "the measured residual is too large for the image to be trusted: the matrix is too ill conditioned "
        "for this dtype; use a larger λ, or float64 images"
    )

    @property
    def ok(self) -> bool:
        """Whether the image solves the problem that was posed."""
        return self in (Status.SOLVED, Status.CONVERGED)


@dataclass(frozen=True)
class Result:
    """A restored image and everything that was decided and measured on the way.

    Attributes
    ----------
    image : array
        The restored image, shaped like the input.
    method : str
        The method that solved it.
    reason : str
        Why that method.
    status : Status
        How the solve ended; ``status.ok`` and ``status.value`` (in words).
    residual : float
        ‖b − A f‖ / ‖b‖ of the system solved, measured afterwards by this module with `Blur` and not by
        the method: (HᵀH + λI) f = Hᵀ g for "tikhonov", (HHᵀ + λI) f = Hᵀ g for "hht", the normal equations
        for a quadratic penalty. Where the minimiser solves no linear system: the larger of the iteration's
        last relative primal and dual residuals, and `objective` is what is measured.
    misfit : float
        ‖H f − g‖ / ‖g‖: how well the restored scene, blurred again, explains the data (those not hidden).
    iterations : int
        0 for a direct method.
    seconds : float
        Wall time of set-up, solve and judging together.
    setup_seconds : float
        The part of it that a `Deblurrer` spends once.
    lam : float
        The λ used.
    lam_reason : str
        Where λ came from.
    lambda_choice : LambdaChoice or None
        The whole curve, if λ was chosen automatically.
    note : str
        What the solver remarked, if anything.
    blur : Blur
        The linear map that was inverted.
    formula : str
        "tikhonov" or "hht"; "variational" for the methods of `deblur.variational`.
    prior : str
        What the scene was drawn towards: "zero" or "smooth"; "variational" likewise.
    residual_image : array
        g − H f, shaped like the input image (cropped by nothing: it has g's size).
    objective : float or None
        D(W; H f + b, g) + λ R(L f) of a variational method, measured here with `Blur`; NaN for a prior without
        a value (a denoiser). None for the linear formula, as all that follows.
    problem : VariationalProblem or None
        What was minimised: data term, weights, bounds and so on.
    history : History or None
        Objective, primal and dual residual at each iteration.
    mask : array of bool or None
        The pixels that were hidden, given or detected, shaped like the input image.
    why : str
        Why the iteration stopped.
    """

    image: Array
    method: str
    reason: str
    status: Status
    residual: float
    misfit: float
    iterations: int
    seconds: float
    setup_seconds: float
    lam: float
    lam_reason: str
    lambda_choice: Any
    note: str
    blur: Blur
    formula: str
    prior: str
    residual_image: Array
    objective: float | None = None
    problem: VariationalProblem | None = None
    history: History | None = None
    mask: Array | None = None
    why: str = ""

    @property
    def primal_residual(self) -> float | None:
        """The iteration's last relative primal residual."""
        return None if self.history is None else float(self.history.primal[-1])

    @property
    def dual_residual(self) -> float | None:
        """The iteration's last relative dual residual."""
        return None if self.history is None else float(self.history.dual[-1])

    def __str__(self) -> str:
        lines = [
            f"method      {self.method}: {self.reason}",
            f"lambda      {self.lam:.4g}: {self.lam_reason}",
            f"boundary    {self.blur.boundary}; {self._prior_in_words()}",
            f"status      {self.status.name.lower()}: {self.status.value}",
            f"residual    {self.residual:.2e} (measured), misfit {self.misfit:.3e}",
            f"iterations  {self.iterations}",
            f"seconds     {self.seconds:.3g} (of which set-up {self.setup_seconds:.3g})",
        ]
        if self.objective is not None:
            lines.insert(4, f"objective   {self.objective:.6g} (measured); stopped because {self.why}")
        if self.mask is not None:
            share = 100 * float(self.mask.mean())
            lines.insert(3, f"hidden      {int(self.mask.sum())} pixels ({share:.2g} %)")
        if self.note:
            lines.append(f"note        {self.note}")
        return "\n".join(lines)

    def _prior_in_words(self) -> str:
        if self.problem is None:
            return f"regularised towards {_PRIOR_IN_WORDS[self.prior]}"
        words = f"{VARIATIONAL[self.method].summary}; data term {self.problem.data}"
        if self.problem.bounds is not None:
            words += " with {:g} ≤ f ≤ {:g}".format(*self.problem.bounds)
        return words

    def __repr__(self) -> str:
        return (
            f"Result(image {self.image.shape} {self.image.dtype}, method={self.method!r}, "
            f"status={self.status.name}, residual={self.residual:.2e}, lam={self.lam:.4g})"
        )


_PRIOR_IN_WORDS = {"zero": "zero, by λ‖f‖²", "smooth": "the smoothed image f̄, by λ‖f − f̄‖²"}


# ---------------------------------------------------------------------------------------------
# Input
# ---------------------------------------------------------------------------------------------


def check_lam(lam: Any) -> float | str:
    """λ as a finite number >= 0, "auto" or the name of a rule; anything else is an error."""
    if isinstance(lam, str):
        if lam not in ("auto", *RULES, *TUNING_RULES):
            raise ValueError(
                f"unknown rule {lam!r} for λ; give a number >= 0, 'auto', for the linear formula one of "
                f"{', '.join(RULES)}, for the variational methods one of {', '.join(TUNING_RULES)}"
            )
        return lam
    try:
        value = float(lam)
    except (TypeError, ValueError):
        raise TypeError(f"λ must be a number or one of the rules {', '.join(RULES)}, not {lam!r}") from None
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"λ must be finite and not negative, not {lam!r}")
    return value


def _axis(axis: int, ndim: int, name: str) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} = {axis} is no axis of an image with {ndim} dimensions")
    return axis % ndim


class _Frames:
    """An image taken apart into a stack of grey frames (k, M, N), and the way back."""

    def __init__(self, img: Any, channel_axis: int | None, stack_axis: int | None, mask: Any = None) -> None:
        xp = get_xp(img)
        img = xp.asarray(img)
        if img.size == 0:
            raise ValueError(f"the image is empty (shape {img.shape})")
        named = [
            _axis(axis, img.ndim, name)
            for axis, name in ((channel_axis, "channel_axis"), (stack_axis, "stack_axis"))
            if axis is not None
        ]
        if len(set(named)) != len(named):
            raise ValueError("channel_axis and stack_axis name the same axis")
        if img.ndim - len(named) != 2:
            hint = (
                "for colour name the axis of the channels (channel_axis=-1), for a stack of frames the axis "
                "they are counted along (stack_axis=0)"
            )
            raise ValueError(
                f"the image has shape {img.shape}; with {len(named)} axis named there must be two left, rows "
                f"and columns: {hint}"
            )
        image = as_float(img)
        self._shape, self._moved = img.shape, named
        self._coloured, self._stacked = channel_axis is not None, stack_axis is not None
        if mask is not None and not isinstance(mask, str):
            # A dead pixel may hold anything: what is hidden is not even looked at.
            image = xp.where(self._like_image(xp.asarray(mask), "mask"), image.dtype.type(0), image)
        check_finite(image, "the image")
        front = xp.moveaxis(image, named, range(len(named)))
        self._lead = front.shape[: len(named)]
        self.stack = xp.ascontiguousarray(front.reshape(-1, *front.shape[-2:]))

    def _like_image(self, part: Array, name: str) -> Array:
        """`part`, of the image's shape or of its rows and columns alone, as it broadcasts to the image."""
        rows, cols = self._rows_cols()
        if part.shape == (rows, cols):
            xp = get_xp(part)
            for axis in sorted(self._moved):
                part = xp.expand_dims(part, axis)
        elif part.shape != self._shape:
            raise ValueError(
                f"{name} has shape {part.shape}; it must be that of the image, {self._shape}, or its rows and "
                f"columns, {(rows, cols)}"
            )
        return part

    def _rows_cols(self) -> tuple[int, int]:
        rows, cols = (n for axis, n in enumerate(self._shape) if axis not in self._moved)
        return rows, cols

    def grid(self) -> Array:
        """The frames as (k, c, M, N): k frames of c colours."""
        return self._as_grid(self.stack.reshape(*self._lead, *self.stack.shape[1:]))

    def _as_grid(self, front: Array) -> Array:
        xp = get_xp(front)
        if self._coloured and self._stacked:
            return xp.ascontiguousarray(front.swapaxes(0, 1))
        if self._coloured:
            return front[None]
        return front[:, None] if self._stacked else front[None, None]

    def spread(self, part: Array, name: str) -> Array:
        """An array of the image's shape, or of its rows and columns, as it broadcasts to `grid`."""
        xp = get_xp(part)
        part = self._like_image(part, name)
        return self._as_grid(xp.moveaxis(part, self._moved, range(len(self._moved))))

    def from_grid(self, grid: Array) -> Array:
        """The way back from `grid`, to the image's own shape."""
        if self._coloured and self._stacked:
            grid = grid.swapaxes(0, 1)
        return self.restore(grid.reshape(-1, *grid.shape[-2:]))

    def restore(self, stack: Array) -> Array:
        xp = get_xp(stack)
        front = stack.reshape(*self._lead, *stack.shape[-2:])
        return xp.ascontiguousarray(xp.moveaxis(front, range(len(self._moved)), self._moved))


# ---------------------------------------------------------------------------------------------
# The calls
# ---------------------------------------------------------------------------------------------


class Deblurrer:
    """A deblurring problem without the image: set up once, used on many frames.

    Parameters
    ----------
    psf : (m, n) array
        Point spread function; used as it is (not normalised).
    shape : (int, int)
        Rows and columns of the images to come.
    lam : float or str
        As for `reconstruct`. A rule chooses it from the first image; it is
        kept for the images after it.
    method : str
        ``"auto"`` or a name in `METHODS` or `deblur.variational.METHODS`.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene goes on beyond the frame; see `deblur.blur`.
    formula : {"tikhonov", "hht"}
        f = Hᵀ(HHᵀ + λI)⁻¹ g, the regularised least-squares solution, or
        f = (HHᵀ + λI)⁻¹Hᵀ g as the thesis writes it. They are the same image
        only if HHᵀ = HᵀH, as for a point-symmetric PSF with a zero boundary.
    prior : {"auto", "zero", "smooth"}
        What λ draws the scene towards: ``"zero"`` is the formula as written,
        λ‖f‖²; ``"smooth"`` puts λ‖f − f̄‖² in its place, with f̄ the smoothed
        image (`deblur.regularization.prior_scene`), which keeps a photograph
        from going dark beyond its frame and ringing there. ``"auto"`` is
        ``"smooth"`` where both are left to deblur, the boundary
        (``"unknown"``) and λ (a rule), and ``"zero"`` otherwise.
    dtype : dtype
        float64 or float32: what is computed in.
    origin : (int, int), optional
        Index of the PSF's centre; ``((m - 1) // 2, (n - 1) // 2)`` by default.
    noise : float, optional
        Standard deviation of the noise, for the rules that need it; estimated
        from the image if not given.
    rtol, max_iterations : optional
        When an iterative method stops; its own defaults if not given.
    inverse : bool
        Form (HHᵀ + λI)⁻¹ and multiply by it, with the methods that can.
    callback : callable, optional
        Called with (iterations so far, relative residual) as an iterative method goes on.
    mask, weights, bounds, data, background, delta, denoiser : optional
        As for `reconstruct`; with ``mask="auto"`` each image gets its own.
    gpu : bool
        True if the images will be CuPy arrays.

    Attributes
    ----------
    lam : float or str
        λ, or the rule until the first image has been seen.
    choice : Choice or None
        The method and why, once λ is known.

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
        psf: Array,
        shape: tuple[int, int],
        lam: float | str = "auto",
        *,
        method: str = "auto",
        boundary: str = "zero",
        formula: str = "tikhonov",
        prior: str = "auto",
        dtype: Any = np.float64,
        origin: tuple[int, int] | None = None,
        noise: float | None = None,
        rtol: float | None = None,
        max_iterations: int | None = None,
        inverse: bool = False,
        callback: Callable[[int, float], None] | None = None,
        mask: Array | str | None = None,
        weights: Array | None = None,
        bounds: tuple[float, float] | str | None = None,
        data: str | None = None,
        background: float = 0.0,
        delta: float | None = None,
        denoiser: Denoiser | str | None = None,
        gpu: bool = False,
    ) -> None:
        lam = check_lam(lam)
        self._method = method if method in VARIATIONAL else check_method(method)
        self.formula = check_formula(formula)
        if prior not in PRIORS:
            raise ValueError(f"unknown prior {prior!r}; choose one of {', '.join(PRIORS)}")
        self._request = Request.checked(
            mask=mask,
            weights=weights,
            bounds=bounds,
            data=data,
            background=background,
            delta=delta,
            denoiser=denoiser,
        )
        self._variational = self._request.choose(method)
        if method == "pnp" and denoiser is None:
            self._request = replace(self._request, denoiser=Request.default_denoiser())
            self._variational = (
                method,
                f"as asked for; with the denoiser {DEFAULT_DENOISER!r}, as none was named",
            )
        self.lam = _rule_for(lam, self._variational)
        if self._variational is not None:
            for given, name in (
                (formula != "tikhonov", "formula"),
                (prior == "smooth", "prior"),
                (inverse, "inverse"),
            ):
                if given:
                    raise MethodError(
                        f"method {self._variational[0]!r} cannot serve here: {name} belongs to the linear formula"
                    )
        automatic = boundary == "unknown" and isinstance(self.lam, str)
        self.prior = prior if prior != "auto" else "smooth" if automatic else "zero"
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise TypeError(f"dtype must be float32 or float64, not {self.dtype}")
        if noise is not None and not (np.isfinite(noise) and noise >= 0):
            raise ValueError(f"noise must be a standard deviation >= 0, not {noise!r}")
        if rtol is not None and not 0 < rtol < 1:
            raise ValueError(f"rtol must lie between 0 and 1, not {rtol!r}")
        if max_iterations is not None and (int(max_iterations) != max_iterations or max_iterations < 1):
            raise ValueError(f"max_iterations must be a positive whole number, not {max_iterations!r}")
        self.blur = Blur(psf, shape, boundary, origin=origin)
        if isinstance(self.lam, str) and formula == "hht" and not self.blur.normal:
            raise ValueError(
                f"the rule {lam!r} chooses λ for the least-squares formula; with formula='hht' and a blur "
                "for which HHᵀ and HᵀH differ, give λ as a number"
            )
        self._noise = noise
        self._xp = _cupy() if gpu else np
        self._template = Problem(
            self.blur,
            0.0,  # λ and the number of frames are filled in by _problem
            self.formula,
            self.dtype,
            self._xp,
            rtol=rtol,
            max_iterations=max_iterations,
            inverse=bool(inverse),
            callback=callback,
        )
        self.choice: Choice | None = None
        self.lambda_choice: Any = None
        self.lam_reason = "as given"
        self._factor: Factor | None = None
        self._setup_seconds = 0.0
        if self._variational is not None:
            self.choice = Choice(*self._variational)
        elif not isinstance(self.lam, str):
            self._choose(frames=1)  # a method that cannot serve says so before the first image

    def _problem(self, frames: int) -> Problem:
        assert not isinstance(self.lam, str)
        return replace(self._template, lam=self.lam, frames=frames)

    def _choose(self, frames: int) -> None:
        problem = self._problem(frames)
        if self._method == "auto":
            self.choice = choose(problem)
            return
        reason = METHODS[self._method].refuses(problem)
        if reason is not None:
            raise MethodError(f"method {self._method!r} cannot serve here: {reason}")
        self.choice = Choice(self._method, "as asked for")

    def _prepare(self, g: Array) -> None:
        """Fix λ, the method and the factorisation; all but the first call find them there."""
        if isinstance(self.lam, str):
            self.lambda_choice = choose_lambda(self.blur, g, self.lam, noise=self._noise)
            self.lam_reason = self.lambda_choice.reason
            self.lam = float(self.lambda_choice.lam)
        if self._factor is None:
            self._choose(len(g))
            assert self.choice is not None
            self._factor = METHODS[self.choice.method].prepare(self._problem(len(g)))

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
        return self._solve(_Frames(img, channel_axis, stack_axis, self._request.mask), check)

    def _solve(self, frames: _Frames, check: bool) -> Result:
        start = time.perf_counter()
        xp = get_xp(frames.stack)
        if xp is not self._xp:
            here, there = ("CuPy", "NumPy") if xp is not np else ("NumPy", "CuPy")
            raise TypeError(
                f"the image is a {here} array and this Deblurrer was set up for {there}; convert the image "
                f"or pass gpu={xp is not np} when setting up"
            )
        g = frames.stack.astype(self.dtype, copy=False)
        if g.shape[1:] != self.blur.image_shape:
            raise ValueError(
                f"the image has {g.shape[1]} x {g.shape[2]} pixels and this Deblurrer was set up for "
                f"{self.blur.image_shape[0]} x {self.blur.image_shape[1]}"
            )
        if self._variational is not None:
            return self._solve_variational(frames, check, start)
        first = self._factor is None
        data = g
        if self.prior == "smooth":
            prior = prior_scene(self.blur, g)
            g = g - self.blur.forward(prior)  # the deviation from the prior is what is solved for
        self._prepare(g)
        _synchronize(xp)
        setup = time.perf_counter() - start if first else 0.0
        assert self.choice is not None
        assert self._factor is not None
        scene, info = self._factor.solve(g)
        b, r, difference = _judge(self._problem(len(g)), g, scene)
        scale, residual, misfit, size = _norms(b, r, difference, data)
        residual /= scale or 1.0
        if self.prior == "smooth":
            scene = scene + prior
        status = _status(METHODS[self.choice.method].iterative, info, residual, self.dtype)
        result = Result(
            image=frames.restore(scene[(..., *self.blur.crop)]),
            method=self.choice.method,
            reason=self.choice.reason,
            status=status,
            residual=residual,
            misfit=misfit / (size or 1.0),
            iterations=info.iterations,
            seconds=time.perf_counter() - start,
            setup_seconds=setup,
            lam=float(self.lam),
            lam_reason=self.lam_reason,
            lambda_choice=self.lambda_choice,
            note=info.note,
            blur=self.blur,
            formula=self.formula,
            prior=self.prior,
            residual_image=frames.restore(difference),
        )
        if check and not status.ok:
            note = f" ({info.note})" if info.note else ""
            raise ConvergenceError(
                f"{result.method} with λ = {result.lam:g} {status.value}. Relative residual {residual:.1e} "
                f"after {info.iterations} iterations{note}",
                result,
            )
        return result

    def _variational_problem(self, g: Array, weights: Array | None) -> VariationalProblem:
        """The problem of the frames `g`, (k, c, M, N), without λ."""
        assert self._variational is not None
        request, method = self._request, self._variational[0]
        data = request.data or ("poisson" if method == "richardson-lucy" else "gaussian")
        if data == "poisson":
            check_counts(g, weights)
        delta = request.delta
        if data == "huber" and delta is None:
            noise = estimate_noise(g) if self._noise is None else self._noise
            delta = HUBER * max(noise, 1e-4 * float(abs(g).max()), np.finfo(self.dtype).tiny)
        template = self._template
        problem = VariationalProblem(
            self.blur,
            method,
            data=data,
            weights=weights,
            bounds=request.bounds,
            background=request.background,
            delta=delta or 1.0,
            denoiser=request.denoiser,
            dtype=self.dtype,
            xp=self._xp,
            rtol=template.rtol,
            max_iterations=template.max_iterations,
            callback=template.callback,
        )
        # What a rule would choose is above zero, so that one stands for it here.
        refusal = VARIATIONAL[method].refuses(
            replace(problem, lam=1.0 if isinstance(self.lam, str) else self.lam)
        )
        if refusal is not None:
            raise MethodError(f"method {method!r} cannot serve here: {refusal}")
        return problem

    def _solve_variational(self, frames: _Frames, check: bool, start: float) -> Result:
        xp, choice = self._xp, self.choice
        assert choice is not None
        g = frames.grid().astype(self.dtype, copy=False)
        weights, mask = frame_weights(self._request, g, frames.spread, self.dtype, xp)
        problem = self._variational_problem(g, weights)
        near = None
        if isinstance(self.lam, str):
            from .variational.tuning import choose_lambda as tune

            self.lambda_choice = tune(problem, g, self.lam, noise=self._noise)
            self.lam, self.lam_reason = float(self.lambda_choice.lam), self.lambda_choice.reason
            near = self.lambda_choice.solution
        problem = replace(problem, lam=self.lam)
        _synchronize(xp)
        setup = time.perf_counter() - start
        solution = VARIATIONAL[choice.method].solve(problem, g, near)
        status = Status.CONVERGED if solution.converged else Status.NOT_CONVERGED
        value, residual, difference = _judge_variational(problem, g, solution)
        if not np.isfinite(residual):
            status = Status.INACCURATE
        seen = 1 if weights is None else weights > 0
        size, misfit = _norms(seen * g, seen * difference)
        result = Result(
            image=frames.from_grid(solution.scene[(..., *self.blur.crop)]),
            method=choice.method,
            reason=choice.reason,
            status=status,
            residual=residual,
            misfit=misfit / size if size else misfit,
            iterations=solution.iterations,
            seconds=time.perf_counter() - start,
            setup_seconds=setup,
            lam=float(problem.lam),
            lam_reason=self.lam_reason,
            lambda_choice=self.lambda_choice,
            note=solution.note,
            blur=self.blur,
            formula="variational",
            prior="variational",
            residual_image=frames.from_grid(difference),
            objective=value,
            problem=problem,
            history=solution.history,
            mask=None if mask is None else frames.from_grid(xp.broadcast_to(mask, g.shape)),
            why=solution.why,
        )
        if check and not status.ok:
            raise ConvergenceError(
                f"{result.method} with λ = {result.lam:g} {status.value}. It stopped because {solution.why}",
                result,
            )
        return result

    def __call__(
        self, img: Array, *, channel_axis: int | None = None, stack_axis: int | None = None
    ) -> Array:
        """The restored image alone: ``solve(img, ...).image``."""
        return self.solve(img, channel_axis=channel_axis, stack_axis=stack_axis).image


def _cupy() -> Any:
    from .errors import NoGPUError

    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        raise NoGPUError(
            "gpu=True needs CuPy: pip install deblur-toolkit[cuda12] or [cuda13], to match your driver"
        ) from error
    except Exception as error:
        raise NoGPUError(f"gpu=True, but no CUDA device can be used: {error}") from error
    return cupy


def _synchronize(xp: Any) -> None:
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def _norms(*arrays: Array) -> list[float]:
    # In double precision whatever the dtype, and on a GPU with one wait for them all.
    xp = get_xp(*arrays)
    return xp.sqrt(xp.stack([xp.sum(xp.square(x, dtype=np.float64)) for x in arrays])).tolist()


def _judge(problem: Problem, g: Array, f: Array) -> tuple[Array, Array, Array]:
    """b and b − A f of the system solved, and g − H f, computed with the blur alone."""
    blur, lam = problem.blur, problem.lam
    difference = g - blur.forward(f)
    b = blur.adjoint(g)
    if problem.formula == "tikhonov":
        r = blur.adjoint(difference) - lam * f
    else:
        r = b - blur.forward(blur.adjoint(f)) - lam * f
    return b, r, difference


def _judge_variational(
    problem: VariationalProblem, g: Array, solution: Solution
) -> tuple[float, float, Array]:
    """(objective, residual, g − H f − b), measured with the blur; see `Result` for which residual."""
    scene = solution.scene
    difference = g - problem.blur.forward(scene) - problem.background
    value = objective(problem, g, scene)
    if quadratic.linear(problem):
        left, right = _norms(*(quadratic.gradient(problem, g, at) for at in (scene, 0 * scene)))
        residual = left / (right or 1.0)
    else:
        residual = max(float(solution.history.primal[-1]), float(solution.history.dual[-1]))
    return value, residual, difference


def _rule_for(lam: float | str, variational: tuple[str, str] | None) -> float | str:
    """λ, or the rule in place of "auto"; a rule of the other family is an error."""
    if not isinstance(lam, str):
        return lam
    if variational is None:
        if lam not in ("auto", *RULES):
            raise ValueError(
                f"the rule {lam!r} is for the variational methods; here use one of {', '.join(RULES)}"
            )
        return "gcv" if lam == "auto" else lam
    method = variational[0]
    if lam not in ("auto", *TUNING_RULES):
        raise ValueError(
            f"the rule {lam!r} is for the linear formula; with method {method!r} use 'auto' or one of "
            f"{', '.join(TUNING_RULES)}"
        )
    return VARIATIONAL[method].default_lam if lam == "auto" else lam


def _status(iterative: bool, info: Info, residual: float, dtype: np.dtype) -> Status:
    if not info.converged:
        return Status.NOT_CONVERGED
    # A backward stable solver leaves eps times the condition number; past the cube root of eps the
    # image has lost more digits than a display shows. NaN is caught here too.
    if not (residual <= np.finfo(dtype).eps ** (1 / 3)):
        return Status.INACCURATE
    return Status.CONVERGED if iterative else Status.SOLVED


def solve(
    img: Array,
    psf: Array,
    lam: float | str = "auto",
    *,
    method: str = "auto",
    boundary: str = "zero",
    formula: str = "tikhonov",
    prior: str = "auto",
    origin: tuple[int, int] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    noise: float | None = None,
    rtol: float | None = None,
    max_iterations: int | None = None,
    inverse: bool = False,
    callback: Callable[[int, float], None] | None = None,
    mask: Array | str | None = None,
    weights: Array | None = None,
    bounds: tuple[float, float] | str | None = None,
    data: str | None = None,
    background: float = 0.0,
    delta: float | None = None,
    denoiser: Denoiser | str | None = None,
    check: bool = True,
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
    frames = _Frames(img, channel_axis, stack_axis, mask)  # checked before anything is set up
    deblurrer = Deblurrer(
        psf,
        frames.stack.shape[1:],
        lam,
        method=method,
        boundary=boundary,
        formula=formula,
        prior=prior,
        dtype=frames.stack.dtype,
        origin=origin,
        noise=noise,
        rtol=rtol,
        max_iterations=max_iterations,
        inverse=inverse,
        callback=callback,
        mask=mask,
        weights=weights,
        bounds=bounds,
        data=data,
        background=background,
        delta=delta,
        denoiser=denoiser,
        gpu=get_xp(frames.stack) is not np,
    )
    return deblurrer._solve(frames, check)


def reconstruct(
    img: Array,
    psf: Array,
    lam: float | str = "auto",
    *,
    method: str = "auto",
    boundary: str = "zero",
    formula: str = "tikhonov",
    prior: str = "auto",
    origin: tuple[int, int] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    noise: float | None = None,
    rtol: float | None = None,
    max_iterations: int | None = None,
    inverse: bool = False,
    callback: Callable[[int, float], None] | None = None,
    mask: Array | str | None = None,
    weights: Array | None = None,
    bounds: tuple[float, float] | str | None = None,
    data: str | None = None,
    background: float = 0.0,
    delta: float | None = None,
    denoiser: Denoiser | str | None = None,
) -> Array:
    """Restore a blurred image: the minimiser f of ‖H f − g‖² + λ ‖f‖², or of another fit and another penalty.

    The linear formula is what is solved unless a variational method is named or a mask, weights, bounds, a noise
    model, a background or a denoiser is given; nothing is changed silently (``solve(...).reason`` says what was
    taken and why). The variational methods minimise D(W; H f + b, g) + λ R(L f) subject to bounds; see
    `deblur.variational`.

    Parameters
    ----------
    img : array
        The blurred image g: grey (M, N), or with one or two further axes
        named by `channel_axis` and `stack_axis`. Integers are scaled to
        [0, 1] as ``skimage.img_as_float`` does (uint8 by 255, uint16 by
        65535) and become float64; float32 stays float32; float64 is taken as
        it is. A CuPy array is solved on its GPU.
    psf : (m, n) array
        Point spread function, odd or even, not larger than the image. Used as
        it is; one that keeps the brightness sums to one.
    lam : float or str
        The regularisation parameter λ >= 0, or the rule that chooses it: for
        the linear formula one of `deblur.regularization.RULES` (``"auto"`` is
        ``"gcv"``), for a variational method one of `deblur.variational.RULES`
        (``"auto"`` takes the one that is sound for the data term).
    method : str
        ``"auto"`` takes the cheapest exact method for the linear formula (see
        `choose_method`), or ``"gradient"`` if a mask, weights, bounds, noise
        model or background is given, ``"pnp"`` if a denoiser is; any name in
        `METHODS` or `deblur.variational.METHODS` overrides it. A method that
        cannot serve says why.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene goes on beyond the frame. For a photograph it is
        ``"unknown"``: nothing is assumed.
    formula : {"tikhonov", "hht"}
        f = Hᵀ(HHᵀ + λI)⁻¹ g (default), or (HHᵀ + λI)⁻¹Hᵀ g as the thesis
        writes it, which is the same image only if HHᵀ = HᵀH.
    prior : {"auto", "zero", "smooth"}
        What λ draws the scene towards: ``"zero"`` is the formula as written,
        λ‖f‖²; ``"smooth"`` puts λ‖f − f̄‖² in its place, with f̄ the smoothed
        image (`deblur.regularization.prior_scene`), which keeps a photograph
        from going dark beyond its frame and ringing there. ``"auto"`` is
        ``"smooth"`` where both are left to deblur, the boundary
        (``"unknown"``) and λ (a rule), and ``"zero"`` otherwise.
    origin : (int, int), optional
        Index of the PSF's centre; ``((m - 1) // 2, (n - 1) // 2)`` by default.
    channel_axis : int, optional
        The axis of the colour channels, as in scikit-image.
    stack_axis : int, optional
        The axis along which frames are stacked. Channels and frames are all
        blurred by the same PSF and solved together.
    noise : float, optional
        Standard deviation of the noise on the scale of the (scaled) image,
        for the rules that need it; estimated if not given.
    rtol, max_iterations : optional
        When an iterative method stops; its own defaults if not given.
    inverse : bool
        Form (HHᵀ + λI)⁻¹ and multiply by it, with the methods that can.
    callback : callable, optional
        Called with (iterations so far, relative residual) as an iterative method goes on.
    mask : array of bool or "auto", optional
        True at the pixels to hide (dead, saturated, hit by an impulse), for
        the image's rows and columns or its full shape. What a hidden pixel
        holds, NaN included, has no effect. ``"auto"`` detects impulses
        (`deblur.variational.impulses.detect`).
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
        name in `deblur.variational.denoisers`; by default ``"collaborative"``.

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
    return solve(
        img,
        psf,
        lam,
        method=method,
        boundary=boundary,
        formula=formula,
        prior=prior,
        origin=origin,
        channel_axis=channel_axis,
        stack_axis=stack_axis,
        noise=noise,
        rtol=rtol,
        max_iterations=max_iterations,
        inverse=inverse,
        callback=callback,
        mask=mask,
        weights=weights,
        bounds=bounds,
        data=data,
        background=background,
        delta=delta,
        denoiser=denoiser,
    ).image

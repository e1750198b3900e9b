"""The table of methods, and the structural choice of a method.

`METHODS` lists all methods. The tests, the command line, the comparison and the printed tables iterate over it.
`choose_method` shows the choice of ``method="auto"``. A new method is one file below `deblur.solvers` and one row here.
"""

from __future__ import annotations

import json
import math
import timeit
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from .device import CPU, Array, Device, format_bytes, free_memory
from .errors import InsufficientMemoryError, MethodError, check_choice, check_count, check_dtype, check_number
from .operators.blur import Blur
from .operators.boundary import Boundary
from .operators.natural import scenes
from .operators.operator import check_operator
from .problem import FLOAT64, FORMULAS, Factor, Problem, Solution, linear_peak, peak, synchronize
from .solvers.refine import MOST


class Solver(Protocol):
    """The interface of a module below `deblur.solvers`; see `deblur.problem`."""

    def refuses(self, problem: Problem) -> str | None: ...
    def memory(self, problem: Problem) -> tuple[float, ...]: ...
    def prepare(self, problem: Problem) -> Factor: ...


@dataclass(frozen=True)
class Method:
    """A method: one row of the table `METHODS`.

    Attributes
    ----------
    name : str
        Value of the option ``method``.
    summary : str
        Description in one line.
    module : str
        The module below `deblur.solvers` with `refuses`, `memory` and `prepare`; by default it has the method's name.
    iterative, linear : bool
        True if it stops at a tolerance; if it solves only the linear formula: least squares with the regularizer ‖f‖².
    shift_invariant : bool
        True if it needs a blur by one PSF.
    automatic : bool
        True if ``method="auto"`` may choose it.
    varying : bool
        True if ``method="auto"`` may choose it for PSFs that vary, which the faster methods cannot handle.
    regularizer : str
        R∘L, see `deblur.problem`. By default the identity for a linear method, else the method's name.
    fidelity : str
        The default data fidelity.
    lam : float or None
        The default λ; None leaves the choice to a rule.
    orthogonal : bool
        True if it diagonalises H by orthogonal matrices, which lose the fewest digits.
    flat : bool
        True if it is restricted to images, which have two spatial axes.
    """

    name: str
    summary: str
    module: str = ""
    iterative: bool = False
    linear: bool = False
    shift_invariant: bool = False
    automatic: bool = False
    varying: bool = False
    regularizer: str = ""
    fidelity: str = "gaussian"
    lam: float | None = None
    orthogonal: bool = False
    flat: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", self.module or self.name.replace("-", "_"))
        object.__setattr__(self, "regularizer", self.regularizer or ("identity" if self.linear else self.name))

    @cached_property
    def _solver(self) -> Solver:
        loaded = import_module(f"deblur.solvers.{self.module}")
        return loaded.Dense(self.name) if self.module == "dense" else loaded

    def refuses(self, problem: Problem) -> str | None:
        """Return None if the method can solve the problem, else the reason in words."""
        operator = problem.operator
        if self.flat and problem.axes != 2:
            return f"it supports only images of two axes, and this problem has {problem.axes} (see its module)"
        if self.linear and problem.asked:
            return f"it inverts the linear formula, which cannot include {' and '.join(problem.asked)}"
        if self.linear:
            problem = problem.linear_form
        if problem.regularizer != self.regularizer:
            return f"its regularizer is {self.regularizer!r}, not {problem.regularizer!r}"
        if problem.formula == "hht":
            if not self.linear:
                return 'formula "hht" belongs to the linear formula'
            if operator.scene_shape != operator.image_shape:
                return (
                    f'formula "hht" multiplies (HHᵀ + λI)⁻¹ with Hᵀ, and with boundary {str(operator.boundary)!r} H is '
                    'wide so that their sizes differ; use formula="tikhonov"'
                )
        if problem.inverse and not self.linear:
            return "inverse belongs to the linear formula"
        if self.shift_invariant and operator.shift_invariant is None:
            others = ", ".join(m.name for m in METHODS.values() if not m.shift_invariant)
            return f"it needs one PSF for the whole picture, and this operator has none; the methods {others} need none"
        return self._solver.refuses(problem)

    def carried(self, problem: Problem) -> Problem:
        """Return the problem in the dtype of the computation: float64 if float32 may lose too much for a linear method.

        Rounding causes a relative error of the image of eps times the condition number of HHᵀ + λI. If orthogonal
        matrices diagonalise H, the square root of the condition number counts instead.
        """
        if not self.linear or problem.dtype == FLOAT64:
            return problem
        operator, blur = problem.operator, problem.operator.shift_invariant
        condition = (operator.boundary.weight * operator.norm_bound) ** 2 / (problem.lam or math.nan)
        root = self.orthogonal and blur is not None and (problem.formula == "tikhonov" or blur.normal)
        lost = float(np.finfo(problem.dtype).eps) * (condition**0.5 if root else condition)
        return problem if lost <= MOST else replace(problem, dtype=FLOAT64)

    def memory(self, problem: Problem) -> float:
        """Return the bytes at the peak of a search for λ, set-up, solve and verification, with results before them."""
        most = max(1, together(problem.device) // math.prod(problem.operator.image_shape))
        turns = self.linear and problem.operator.shift_invariant is not None and problem.frames > most
        carried = self.carried(replace(problem, frames=most) if turns else problem)
        needed = self._solver.memory(carried.linear_form)
        if self.linear:
            return linear_peak(carried, needed) + turns * 2 * problem.frames * problem.sizes[0]
        return max(peak(needed), import_module("deblur.tuning.select").memory(problem) if problem.searched else 0.0)

    def prepare(self, problem: Problem, asynchronous: bool = False) -> Factor:
        """Return all data that do not depend on the image. If `asynchronous`, the caller must `synchronize` them."""
        carried = self.carried(problem)
        made = self._solver.prepare(carried.linear_form)
        if not asynchronous:
            synchronize(made)
        mixed = problem.operator.boundary if problem.regularizer == "natural" else None
        plain = carried is problem and mixed is None
        return made if plain else Prepared(made, carried.dtype, mixed, problem.axes)


@dataclass(frozen=True)
class Prepared:
    """The factor of a linear method for images of another dtype, or for the regularizer "natural".

    Attributes
    ----------
    inner : Factor
    dtype : dtype
        The dtype of `inner`; the scene gets the dtype of the image.
    boundary : Boundary or None
        If it is given, `inner` solves for u and the scene is Bu (regularizer "natural", `deblur.operators.natural`).
    axes : int
        Number of spatial axes.
    """

    inner: Factor
    dtype: np.dtype
    boundary: Boundary | None
    axes: int = 2

    def synchronize(self) -> None:
        """Wait for the inner factor; see `deblur.problem.synchronize`."""
        synchronize(self.inner)

    def solve(self, g: Array, start: Solution | None = None) -> Solution:
        """Solve for frames; see `deblur.problem.Factor`."""
        found = self.inner.solve(g.astype(self.dtype, copy=False), start if self.boundary is None else None)
        scene = found.scene if self.boundary is None else scenes(found.scene, self.boundary, self.axes)
        return replace(found, scene=scene.astype(g.dtype, copy=False))


_linear = partial(Method, linear=True, shift_invariant=True, automatic=True)
_iteration = partial(Method, iterative=True)


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        _linear("fft", "one division in frequency; periodic boundary", "fourier", orthogonal=True),
        _linear("dct", "one division after a cosine transform; reflect boundary", "cosine", orthogonal=True),
        _linear("dst", "sine transform; zero boundary with a 3 x 3 PSF, or antireflect", "sine", flat=True),
        _linear("kronecker", "two small decompositions; separable PSF, any boundary", orthogonal=True),
        _linear("pcg", "preconditioned Krylov iteration with FFT products; any PSF and boundary", iterative=True),
        _linear(
            "hybrid-lsqr", "Golub-Kahan bidiagonalisation; any PSF and boundary", iterative=True, shift_invariant=False
        ),
        _linear("banded", "banded Cholesky; small images, or λ too small to iterate", flat=True),
        _linear("cholesky", "dense Cholesky of HHᵀ + λI", "dense"),
        _linear("gauss-jordan", "dense Gauss-Jordan elimination of HHᵀ + λI", "dense"),
        _linear("gauss-seidel", "accelerated sweeps over dense HHᵀ + λI", "dense", iterative=True),
        _linear("lu", "SciPy's general dense solver, the yardstick", "dense"),
        _linear("qr", "Householder least squares on [H; √λ I]"),
        _iteration("identity", "λ/2 ‖f‖², with weights, bounds or a noise model", "quadratic", varying=True),
        _iteration("gradient", "λ/2 ‖∇f‖², smooth; the default with a mask or weights", "quadratic", automatic=True),
        _iteration("laplacian", "λ/2 ‖∇²f‖², smoother still", "quadratic"),
        _iteration("tv", "λ Σ|∇f|, total variation: keeps edges; colours share theirs", "admm"),
        _iteration("tv-aniso", "λ Σ|∂₁f| + |∂₂f|, total variation along the axes", "admm"),
        _iteration("tv2", "λ/2 Σ(|∇f| + |∇²f|), edges without staircases", "admm"),
        _iteration(
            "collaborative",
            "tv, then groups of similar patches: the best pictures, for longer",
            regularizer="patches",
            flat=True,
        ),
        _iteration(
            "pnp",
            "any denoiser as the prior (plug and play)",
            "plug_and_play",
            automatic=True,
            regularizer="denoiser",
            flat=True,
        ),
        _iteration(
            "richardson-lucy", "multiplicative steps for photon counts", regularizer="tv", fidelity="poisson", lam=0.0
        ),
    )
}


@dataclass(frozen=True)
class Choice:
    """The chosen method.

    Attributes
    ----------
    method, reason : str
        The name of the method, and the reason in one sentence.
    others : tuple of str
        The other methods that can solve the problem, in the order in which they would be tried (`choose_method`).
    refused : dict of str to str
        For each examined method that cannot solve the problem, the reason.
    """

    method: str
    reason: str
    others: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method}: {self.reason}"


#: Number of pixels that the linear formula solves for at a time, on a CPU and on a GPU; at least one frame.
TOGETHER, TOGETHER_GPU = 1 << 20, 1 << 26


def together(device: Device) -> int:
    """Return the number of pixels that the linear formula solves for at a time."""
    return TOGETHER if device.gpu is None else TOGETHER_GPU


def named(method: str, problem: Problem, reason: str = "as requested") -> Choice:
    """Return the choice of a method requested by name; raise MethodError if it cannot solve the problem."""
    refusal = METHODS[method].refuses(problem)
    if refusal is not None:
        raise MethodError(f"method {method!r} cannot be used here: {refusal}")
    return Choice(method, reason)


def serving(problem: Problem, memory: int | None = None) -> Iterator[Choice]:
    """Yield the methods that can solve the problem and fit in memory, in the structural order, each examined when it is
    needed; raise MethodError or InsufficientMemoryError if there is none.
    """
    varying, kind = problem.operator.shift_invariant is None, problem.linear_form.regularizer
    rows = [m for m in METHODS.values() if m.regularizer == kind and (m.automatic or (varying and m.varying))]
    if len(rows) == 1:
        yield named(rows[0].name, problem, f"the method for the regularizer {problem.regularizer!r}")
        return
    free = free_memory(problem.xp) if memory is None else memory
    some = max(1, min(problem.frames, together(problem.device) // math.prod(problem.operator.image_shape)))
    found, refused, short = False, dict[str, str](), list[float]()
    for name in _by_structure(problem, [m.name for m in rows]):
        row = METHODS[name]
        part = replace(problem, frames=some) if row.linear else problem
        if (reason := row.refuses(problem)) is None and (needed := row.memory(part)) > free:
            reason = f"it takes {format_bytes(needed)} and {format_bytes(free)} are free"
            short.append(needed)
        if reason is None:
            yield Choice(name, "the next that serves" if found else _in_words(problem), (), refused)
            found = True
        else:
            refused[name] = reason
    if found:
        return
    if short:
        least = min(short)
        fits = ["tiles: deblur.tiled, or on the command line a .zarr store as IN and OUT"]
        if problem.dtype == np.float64 and least / 2 <= free:
            fits.insert(0, "dtype='float32', with half of it")
        raise InsufficientMemoryError(
            f"the picture does not fit: {format_bytes(least)} are needed and {format_bytes(free)} are free. "
            f"What would: {'; '.join(fits)}",
            int(least),
            free,
        )
    why = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    raise MethodError(f"no method can solve this problem: {why}")


def _by_structure(problem: Problem, names: list[str]) -> list[str]:
    """Return the names in the order of preference.

    A transform that diagonalises the blur comes first, then two small decompositions if the PSF is separable, then the
    preconditioned iteration or a direct factorisation, whichever takes fewer operations. The iteration needs about
    (‖h‖₁²/λ)^0.42 transforms for disks and camera shake. For small images on a CPU it needs (‖h‖₁²/λ)^0.3 with boundary
    "unknown", and the square root of ‖h‖₁²/λ with others. A banded Cholesky takes N b² multiplications for half
    bandwidth b, a dense one N³/3, and both form HHᵀ. ``tools/compare_choices.py`` compares it with measured times.
    """
    blur = problem.operator.shift_invariant
    if blur is None:
        return names
    gpu, pixels, axes = problem.device.gpu is not None, math.prod(blur.image_shape), problem.axes
    side = math.sqrt(pixels) if axes == 2 else pixels ** (1 / axes)
    # On a GPU the longer side of the PSF counts, since the choice was fitted that way.
    lines = (max(blur.psf.shape) if gpu else blur.psf.shape[int(np.argmax(blur.image_shape))]) - 1
    band = lines * side ** (axes - 1)
    steps = (blur.norm_bound**2 / problem.lam) ** 0.42 if problem.lam > 0 else math.inf
    transforms = steps * math.log2(pixels + 1)
    # Operations per pixel. A product of two entries of the sparse H takes as long as 50 operations. On a CPU the set-up
    # of an iteration takes as long as 2e8 operations in total, and each step as long as 8e6.
    pairs = 0 if gpu else 50 * np.count_nonzero(blur.psf) ** 2
    toeplitz = blur.boundary.dark or blur.boundary.open  # the dense HHᵀ is formed without a product
    work = {"banded": band**2 + pairs, "cholesky": pixels**2 / (3 if gpu else 2) + (0 if toeplitz else pairs)}
    direct = ("cholesky" if 10 * band >= pixels else "banded") if gpu else min(work, key=lambda name: work[name])
    small = gpu and pixels <= 64 * 64
    begin, step, transform = (0.0, 0.0, 150) if gpu else (2e8, 8e6, 20)
    count = steps if gpu else steps ** (0.7 if blur.boundary.open else 1.2)
    iteration = begin / pixels + count * (transform * math.log2(pixels + 1) + step / pixels)
    iterates = not small and iteration < work[direct]
    antireflect = blur.boundary.transform == "antireflective"

    def order() -> Iterator[str]:
        yield from ("fft", "dct")
        if not antireflect or (gpu and side <= 128):
            yield "dst"
        # Products with two dense matrices take `side` operations per pixel.
        if side > (512 if gpu else 2048) and (0.5 if gpu else 25) * transforms < side:
            yield "pcg"
        if small and direct == "banded" and band <= 8 * side:
            yield "banded"
        if not blur.elongated:
            yield "kronecker"
        if side <= 256 or not iterates if gpu else 25 * transforms >= side:  # else its edge pixels take longer
            yield "dst"
        if iterates and not gpu and steps < 3 and max(blur.psf.shape) > 16 and (side > 100 or not toeplitz):
            yield "hybrid-lsqr"  # a few steps end before the border of a wide PSF is set up
        yield from ("pcg", direct) if iterates else (direct, "pcg")
        yield from names

    return [name for name in dict.fromkeys(order()) if name in names]


def _in_words(problem: Problem) -> str:
    operator = problem.operator
    blur = operator.shift_invariant
    if blur is None:
        psf = "an operator without one PSF"
    else:
        kind = "a separable" if blur.factors is not None else "a non-separable"
        symmetry = "point-symmetric" if blur.point_symmetric else "asymmetric"
        psf = f"{kind}, {symmetry} {' x '.join(map(str, blur.psf.shape))} PSF"
    return (
        f"the preferred exact method for a {' x '.join(map(str, operator.image_shape))} image with boundary "
        f"{str(operator.boundary)!r}, {psf}, λ = {problem.lam:g} and {problem.dtype.name}"
    )


def choose_method(
    blur: Blur,
    lam: float | str,
    *,
    formula: str = "tikhonov",
    dtype: DTypeLike = np.float64,
    frames: int = 1,
    device: str | int | Device = CPU,
    memory: int | None = None,
) -> Choice:
    """Return the method that ``method="auto"`` would choose, and the reason.

    The choice depends on three facts: which transform diagonalises the blur, whether the PSF is separable, and how many
    operations an iteration and a factorisation take.

    Parameters
    ----------
    blur : Blur
        PSF, image size and boundary.
    lam : float or str
        The regularisation parameter λ ≥ 0, to be compared with ‖h‖₁²; the number of iterations depends on it. The name
        of a rule stands for λ = 0.01 ‖h‖₁², which is usual for photographs.
    formula : {"tikhonov", "hht"}
    dtype : dtype
        float32 or float64.
    frames : int
        Number of images that are solved for together.
    device : str, int or Device
        "cpu" (default), "gpu" or a GPU's number.
    memory : int, optional
        Number of bytes that may be used; by default all free memory.

    Returns
    -------
    Choice
        The method with its reason, the others that can solve the problem, and why the rest cannot.

    Raises
    ------
    MethodError
        If no method can solve the problem; the message has the reason of every method.
    InsufficientMemoryError
        If no method fits in memory; the message has the figures.
    ValueError, TypeError
        For an invalid argument.
    NoGPUError
        If a GPU is named and none can be used.

    Examples
    --------
    >>> import deblur
    >>> blur = deblur.Blur(deblur.psf.gaussian(9, 1.5), (256, 256), "periodic")
    >>> deblur.choose_method(blur, 1e-3).method
    'fft'
    """
    problem = Problem(
        check_operator(blur),
        1e-2 * blur.norm_bound**2 if isinstance(lam, str) else check_number(lam, "λ"),
        formula=check_choice(formula, FORMULAS, "formula"),
        dtype=check_dtype(dtype) or FLOAT64,
        device=Device.named(device),
        frames=check_count(frames, "frames"),
    )
    first, *others = serving(problem, None if memory is None else check_count(memory, "memory"))
    return replace(first, others=tuple(choice.method for choice in others))


def expected_seconds(method: str, pixels: int) -> float:
    """Return the approximate duration in seconds of a call on the CPU with default options.

    ``tools/fit_seconds.py`` measures one number for each method: the time of a call per pixel over that of a Fourier
    transform. This number is multiplied by the processor time of one transform on this machine.

    Parameters
    ----------
    method : str
        A name in `METHODS`, or "auto".
    pixels : int
        Rows times columns times channels times frames.

    Returns
    -------
    float
    """
    return _seconds()[method] * pixels


@cache
def _seconds() -> dict[str, float]:
    """Return the processor seconds per pixel of each method, from the fastest of three Fourier transforms and their
    inverses.
    """
    x = np.ones((512, 512), np.float32)
    times = timeit.repeat(lambda: CPU.fft.irfft2(CPU.fft.rfft2(x)), number=1, repeat=3, timer=process_time)
    transforms = json.loads((Path(__file__).parent / "transforms.json").read_text())["transforms"]
    return {method: count * min(times) / x.size for method, count in transforms.items()}

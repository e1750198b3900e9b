"""`plan_tiles`: tile, overlap and predicted seam, from PSF and λ alone, before any image is read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from ..device import CPU, Device, format_bytes, free_memory
from ..errors import as_number, check_count, shown
from ..normalization import Scale
from ..operators.matrix import by
from ..options import Options, check_lam, takes_options
from ..request import check_request
from ..solvers.start import SMOOTHING
from ..terms import FORMULA
from .options import PlanOptions, parted
from .problem import working_bytes
from .reach import REFINED, SHARP, Reach, margin, reach, strip, worthwhile
from .windows import lengths, pads

Size = tuple[int, ...]  # along each axis of space

#: Least number of numbers for each pixel of a window that is solved as an image: measured, since no method counts the
#: arrays of its prior.
_AT_LEAST = 18
#: At a border that mirrors or is black, a PSF that is not point-symmetric meets its mirror image. The error along the
#: border is up to this many times the error that reaches as far inside.
_ASYMMETRIC = 30.0
_ANSWERS = {"whole": "solve whole", "refine": "tiles, refined", "measure": "tiles with a measured overlap"}


@dataclass(frozen=True)
class TilePlan:
    """The plan of a restoration by tiles; ``print(plan)`` shows it.

    Attributes
    ----------
    answer : {"tiles", "whole", "refine", "measure", "none"}
        "tiles": cut the image. "whole": solve it at once. "refine": no tile that fits has the necessary overlap, and
        the whole image does not fit. Every tile is solved several times, each time for the residual that its neighbours
        have left. "measure": the seam of this method cannot be predicted, but by comparing tiles of this overlap with
        tiles of a larger one on parts of the image. "none": nothing that fits reaches the tolerance.
    reason : str
        Reason for the answer, in one sentence.
    shape, tile, overlap : tuple of int
        Pixels of the image, of a tile, and of the surroundings that a tile sees on each side. An axis that is not cut
        has no overlap.
    tolerance : float
        Requested largest error at a seam, as a share of the image's range.
    seam : float
        Predicted largest error at a seam, as a share of the range. For "refine", after the last pass; for "measure",
        the largest of a few tiles, and NaN until it is measured.
    bound : float
        L1 tail: a rigorous bound for tiles away from the border; infinite unless the overlap was chosen by it.
    work : float
        Pixels that all passes solve, over pixels of the image.
    bytes, whole_bytes, memory : int
        Bytes of the arrays at the peak of one worker, of the whole image solved at once, and allowed for a worker.
        Python and its libraries need about 150 MB more for each process.
    boundary, method, dtype : str
        As requested; an undecided boundary counts as "unknown".
    passes : int
        How often each tile is solved: once, except for "refine".
    seam_once : float
        For "refine", the part of a pass's largest change that is left after it: predicted as the seam of one pass.
    """

    answer: str
    reason: str
    shape: Size
    tile: Size
    overlap: Size
    tolerance: float
    seam: float
    bound: float
    work: float
    bytes: int
    whole_bytes: int
    memory: int
    boundary: str
    method: str
    dtype: str
    passes: int = 1
    seam_once: float = 0.0

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return math.prod(_up(n, t) for n, t in zip(self.shape, self.tile, strict=True))

    @property
    def window(self) -> Size:
        """Shape of the largest array that is solved at once: a tile with its overlap, no larger than the image."""
        return _window(self.shape, self.tile, self.overlap)

    def __str__(self) -> str:
        lines = [f"answer      {_ANSWERS.get(self.answer, self.answer)}: {self.reason}"]
        if self.answer in ("tiles", "measure", "refine"):
            times = f"in {self.passes} passes " if self.passes > 1 else ""
            lines += [
                f"tiles       {self.tiles} of {by(self.tile)} pixels of an image of {by(self.shape)}, {self.dtype}",
                f"overlap     {by(self.overlap)} pixels on each side; {times}{self.work:.3g} times the image's work",
            ]
        if not math.isnan(self.seam):
            how = "at most" if self.answer == "tiles" else "about"
            when = {"tiles": "predicted", "measure": "measured"}.get(self.answer, "after the last pass")
            bound = f"; never above {self.bound:.1e}" if math.isfinite(self.bound) else ""
            asked = f"(requested: {self.tolerance:.1e})"
            lines.append(f"seam        {how} {self.seam:.1e} of the range {when} {asked}{bound}")
        used = f"{format_bytes(self.bytes)} a worker of " if self.answer != "none" else "a worker may take "
        whole = f"the whole image at once {format_bytes(self.whole_bytes)}"
        lines.append(f"memory      {used}{format_bytes(self.memory)}; {whole}")
        return "\n".join(lines)


class _Task:
    """The checked arguments of `plan_tiles`, for which a plan is made.

    Attributes
    ----------
    problem : Problem
        Its operator is the blur of the whole image.
    method, prior : str
    size : tuple of int
        Shape of the image.
    units : list of tuple of int
        Tiles are multiples of the first of these units with which a tile fits.
    tile, overlap : tuple of int or None
        As requested.
    passes, memory : int
    tolerance : float
    safe : bool
    psf : tuple of int
        The shape of the PSF.
    asymmetric : bool
        Whether the PSF meets its mirror image, which is another PSF, at the border.
    weight, sharp : float
        Ratio of the largest error at the border to that inside, and of the largest error to the predicted deviation.
    tails : list of Reach
        The tails along each axis, once they are known.
    """

    tails: Sequence[Reach] = ()

    def __init__(self, psf: Any, lam: float, shape: Sequence[int], options: PlanOptions) -> None:
        given, rest = parted(options, PlanOptions)
        self.size = _sides(shape, "shape", len(shape) if np.iterable(shape) else 1)
        axes = len(self.size)
        if isinstance(check_lam(lam), str):
            raise TypeError(
                f"plan_tiles needs λ as a number, not the rule {lam!r}, which needs the image: choose it once on a "
                "part of the image, with deblur.choose_lambda"
            )
        self.tolerance = as_number(given["tolerance"])
        if not (0 < self.tolerance < 1):
            raise ValueError(f"tolerance is a part of the range, between 0 and 1, not {given['tolerance']!r}")
        device = Device.named(given["device"])
        memory = free_memory(device.xp) // 2 if given["memory"] is None else given["memory"]
        self.memory = check_count(memory, "memory")
        request = check_request(psf, self.size, float(lam), rest, CPU, reuse=True)
        problem = replace(request.problem, device=device)
        self.problem = Scale.of(problem).near(problem)  # so that squares neither overflow nor vanish
        self.method, self.prior, self.dark = request.method, request.prior, request.dark
        self.units = [] if given["chunk"] is None else [_sides(given["chunk"], "chunk", axes)]
        self.units.append((round(64 ** (2 / axes)),) * axes)  # about as many pixels for any number of axes
        self.tile = None if given["tile"] is None else _sides(given["tile"], "tile", axes)
        self.overlap = None if given["overlap"] is None else _sides(given["overlap"], "overlap", axes, least=0)
        passes, self.safe = given["passes"], given["safe"]
        self.passes = 1 if passes is None else check_count(passes, "passes")
        blur = self.problem.blur
        self.psf, edge = blur.psf.shape, blur.boundary
        self.asymmetric = not (blur.point_symmetric or edge.wraps or edge.open)
        self.weight = _ASYMMETRIC if self.asymmetric else 1.0
        self.sharp = SHARP * math.sqrt(axes / 2)  # measured for two axes; a pixel in a corner sees seams of all axes
        if edge.weight != 1:  # a corner of a border with weights is reached along both sides
            self.weight = (edge.weight * self.weight) ** 2

    def plan(
        self, answer: str, reason: str, tile: Size | None = None, overlap: Sequence[int] = (0, 0, 0), passes: int = 1
    ) -> TilePlan:
        """Return the plan of these tiles, with the seam if tails are known; by default the whole image is the tile."""
        tile, size, problem = tile or self.size, self.size, self.problem
        # A pass reads a margin beyond its overlap, so the overlap of an axis that is cut must not be 0.
        overlap = tuple(0 if t >= n else max(d, int(passes > 1)) for t, d, n in zip(tile, overlap, size, strict=False))
        beyond = [d + m if d and passes > 1 else d for d, m in zip(overlap, margin(self.psf), strict=True)]
        work = float(passes)
        for n, t, d in zip(size, tile, beyond, strict=True):
            ends = 0 if problem.blur.boundary.wraps else 2 * d
            work *= (n + _up(n, t) * 2 * d - ends) / n
        cuts = [x for x in zip(self.tails, tile, overlap, size, strict=False) if x[1] < x[3]]
        # Beyond its end a tail was not computed, but it is no higher there.
        sharp = max((float(tail.sharp[min(d, len(tail.sharp) - 1)]) for tail, _, d, _ in cuts), default=math.nan)
        once, bound = self.weight * self.sharp * sharp, math.inf
        if cuts and self.safe and passes == 1:
            bound = self.weight * sum(tail.bound(t, d) for tail, t, d, _ in cuts)
        seam, seam_once = (REFINED * once**passes, once) if passes > 1 else (once, 0.0)
        return TilePlan(
            answer, reason, size, tile, overlap, self.tolerance, seam, bound, work,
            _need(self, _window(size, tile, beyond), overlap, passes), _need(self, size), self.memory,
            str(problem.blur.boundary), self.method, problem.dtype.name, passes, seam_once,
        )  # fmt: skip


@takes_options(PlanOptions, Options)
def plan_tiles(psf: Any, lam: float, shape: Sequence[int], **options: Unpack[PlanOptions]) -> TilePlan:
    """Plan how to cut an image into tiles so that no seam exceeds a tolerance, from PSF and λ alone.

    A restored pixel depends on the image as far away as the kernel F⁻¹[conj(ĥ)/(|ĥ|² + λ)] reaches. This is not the
    PSF's size: it is the farther, the closer the PSF's spectrum comes to zero and the smaller λ is. The kernel's tail
    is computed by one FFT for each axis, and the overlap is where it falls below the tolerance. The image is not read.

    Parameters
    ----------
    psf : (m, n) array
        Point spread function; it is not normalised.
    lam : float
        λ of the linear formula (or of ``method="gradient"`` or ``"laplacian"``), a number: a rule needs the image.
    shape : tuple of int
        Pixels of the image along each axis of space, of which there are as many as the PSF has.
    {options}

    Returns
    -------
    TilePlan

    Raises
    ------
    ValueError, TypeError
        For invalid arguments, a PSF larger than the image or than a tile with its overlap, or a tolerance
        below the rounding errors of the dtype.

    See Also
    --------
    deblur.choose_method : chooses the method without the image.

    Notes
    -----
    Options have the defaults of `deblur.reconstruct`. ``boundary="auto"`` is planned as "unknown", whose windows need
    the most memory, and ``dtype=None`` as float64. For a method that is not linear, the answer is "measure".

    The bound holds for tiles away from the border. Their windows are continued by their own pixels and filtered with
    k, and the error of the continuation is at most the range. Tiles at the border are solved with the image's own
    boundary; measurements show that their inner edges follow the same tail.

    Examples
    --------
    >>> import deblur
    >>> plan = deblur.plan_tiles(deblur.psf.gaussian(9, 1.5), 1e-2, (100_000, 100_000), memory=2**28)
    >>> plan.answer, plan.overlap
    ('tiles', (15, 15))
    >>> deblur.plan_tiles(deblur.psf.disk(7), 1e-3, (100_000, 100_000), memory=2**28).overlap
    (180, 180)
    """
    task = _Task(psf, lam, shape, options)
    return _predicted(task) if task.problem.quadratic else _measured(task)


def _measured(task: _Task) -> TilePlan:
    """Return the plan of a method whose seam cannot be predicted."""
    overlaps = [task.overlap] if task.overlap else [tuple(k * m for m in task.psf) for k in (4, 2, 1)]
    for overlap in overlaps:
        if (tile := _tile(task, overlap)) is not None:
            break
    if tile is None:
        why = f"no tile with an overlap of {by(overlap)} pixels fits {format_bytes(task.memory)}"
        return _whole_or_none(task, why)
    if tile == task.size:
        return task.plan("whole", "the image is one tile")
    why = f"no formula predicts the seam of method {task.method!r}, so it must be measured on parts of the image"
    return task.plan("measure", f"{why}, against more overlap", tile, overlap)


def _predicted(task: _Task) -> TilePlan:
    """Return the plan whose seam follows from the tails of the kernel."""
    problem, size = task.problem, task.size
    # All axes have seams, and a pixel in a corner sees all of them.
    least = task.tolerance / (len(size) if task.safe else task.sharp) / task.weight
    task.tails = [reach(problem, axis, least, safe=task.safe) for axis in range(len(size))]
    _check_rounding(task, task.tails[0].top)
    wanted = _overlap(task, least, task.safe)
    if wanted is not None:
        wanted = tuple(max(d, _of_the_prior(task)) for d in wanted)
    overlap = task.overlap or wanted
    if task.overlap is not None:
        why = f"the overlap was given; {by(wanted)} pixels suffice" if wanted else "the overlap was given"
    elif wanted is None:
        why = (
            f"with {problem.strength} and this PSF the influence of a pixel does not fall below "
            f"{task.tolerance:.1e} of the range within {max(len(t.sharp) for t in task.tails) - 1} pixels"
        )
    else:
        far = by(wanted if len(set(wanted)) > 1 else wanted[:1])
        why = f"the influence of a pixel falls below {task.tolerance:.1e} of the range {far} pixels away"
    fits = _need(task, size) <= task.memory
    tile = overlap and _tile(task, overlap)
    if not (overlap and tile):
        if overlap:
            why += f", and no tile that fits {format_bytes(task.memory)} is large enough for that"
        return _whole_or_none(task, why) if fits else _refined(task, why)
    if tile == size:
        return task.plan("whole", f"{why}, and one tile is the image")
    if task.passes > 1:
        return task.plan("refine", f"{why}, in {task.passes} passes", tile, overlap, task.passes)
    plan = task.plan("tiles", why, tile, overlap)
    if task.tile is None and fits and (plan.tiles < 4 or plan.work > 2):
        return _whole_or_none(task, f"{why}, but {plan.tiles} tiles of {plan.work:.2g} times the work gain little")
    return plan


def _overlap(task: _Task, least: float, safe: bool = False) -> Size | None:
    """Return the overlap beyond which no tail is above `least`; None if a tail does not fall so far."""
    below = [np.flatnonzero(tail.tail(safe) <= least) for tail in task.tails]
    return tuple(int(b[0]) for b in below) if all(map(len, below)) else None


def _refined(task: _Task, why: str) -> TilePlan:
    """Return the plan with the least work, of all that fit, whose tiles are corrected by passes over the image."""
    plans: list[TilePlan] = []
    able = task.problem.regularizer in FORMULA and task.overlap is None
    for seam in (0.2, 0.1, 0.05, 0.03, 0.02, 0.01) if able else ():
        if (reached := _overlap(task, seam / (task.weight * task.sharp))) is None:
            continue
        # The residual that the neighbours left is known up to a margin beyond the window, where its tile ends.
        overlap = [max(d, 2 * m) for d, m in zip(reached, task.psf, strict=True)]
        beyond = [d + m for d, m in zip(overlap, margin(task.psf), strict=True)]
        passes = max(2, math.ceil(math.log(task.tolerance / REFINED) / math.log(seam)))
        tile = _tile(task, beyond, passes)
        if tile and all(t >= min(2 * b, n) for t, b, n in zip(tile, beyond, task.size, strict=True)):
            reason = f"{why}; {passes} passes over smaller ones should reduce the error below the tolerance"
            plans.append(task.plan("refine", reason, tile, overlap, passes))
    return min(plans, key=lambda plan: plan.work) if plans else _whole_or_none(task, why)


def _whole_or_none(task: _Task, why: str) -> TilePlan:
    """Return the plan if tiles are not possible, for the reason in the words."""
    needed = _need(task, task.size)
    why = f"{why}, and the whole image takes {format_bytes(needed)} of {format_bytes(task.memory)}"
    if needed <= task.memory:
        return task.plan("whole", why)
    larger = "a larger λ, a larger tolerance or more memory for a worker would make tiles possible"
    return task.plan("none", f"{why}; {larger}")


def _check_rounding(task: _Task, top: float) -> None:
    """Raise ValueError if rounding alone exceeds the tolerance.

    A solve leaves about eps · max|k̂| · 8 of the range, five times that at a border, and eps / λ · 2.5 in the corners
    of a border that is continued with weights. If the PSF is not point-symmetric, H may also remove frequencies there
    that h keeps. The factors were measured by ``benchmarks/bench_tiles.py``.
    """
    problem, blur, tile = task.problem, task.problem.blur, task.tile or (1,) * len(task.size)
    edge, gain, lam = blur.boundary, blur.norm_bound, problem.lam or math.inf
    floor = (8.0 if edge.wraps else 40.0) * top * gain
    if edge.weight > 1:
        if task.asymmetric:
            floor = 40.0 * edge.weight**2 * _ASYMMETRIC * max(top, 0.5 / math.sqrt(lam)) * gain
        floor = max(floor, 2.5 * gain**2 / lam)
    floor *= float(np.finfo(problem.dtype).eps)
    if task.tolerance < floor and any(t < n for t, n in zip(tile, task.size, strict=True)):
        more = ", or float64" if problem.dtype == np.float32 else ""
        raise ValueError(
            f"a tolerance of {task.tolerance:.1e} of the range is below what {problem.dtype} holds: with "
            f"{problem.strength} rounding alone is about {floor:.1e}; give a larger tolerance, or a larger λ{more}"
        )


def _of_the_prior(task: _Task) -> int:
    """Return the overlap that the prior's smoothed image needs: its Gaussian is cut off at four deviations.

    At most a tenth of its error reaches the scene: at the border, where the image does not determine the scene.
    """
    if task.prior == "zero" or task.problem.regularizer not in FORMULA:
        return 0
    tails = [0.05 * math.erfc(d / SMOOTHING / math.sqrt(2)) for d in range(math.ceil(4 * SMOOTHING))]
    return sum(tail > task.tolerance for tail in tails)


def _tile(task: _Task, overlap: Sequence[int], passes: int = 1) -> Size | None:
    """Return the smallest tile whose work exceeds the image's by at most a quarter, or the largest that fits.

    A window of more than twice the tile's length is never used. Tiles below 512 x 512 pixels have
    larger overheads.
    """
    size, axes = task.size, len(task.size)
    if task.tile is not None:
        for t, d, m, n in zip(task.tile, overlap, task.psf, size, strict=True):
            if m > min(n, t + 2 * d):
                raise ValueError(
                    f"the PSF ({m} pixels) is larger than a tile with its overlap ({t} + 2 · {d}): take larger tiles"
                )
            if d > t and t < n:
                return None
        return tuple(map(min, task.tile, size))
    # Multiples of the chunk, no smaller than PSF and overlap; each size has four times the pixels of the one before.
    least = [max(m, d, 1) for m, d in zip(task.psf, overlap, strict=True)]
    for units in task.units:
        best: Size | None = None
        for step in itertools.count():
            grown = (_up(m, u) * 4 ** (step / axes) for m, u in zip(least, units, strict=True))
            tile = tuple(min(math.ceil(g) * u, n) for g, u, n in zip(grown, units, size, strict=True))
            window = _window(size, tile, overlap)
            if _need(task, window, overlap, passes) > task.memory:
                break
            work = math.prod(window) / math.prod(tile)
            if work <= 2**axes:
                best = tile
            if (work <= 1.25 and min(tile) ** axes >= 2**18) or tile == size:
                break
        if best is not None:  # as many tiles, but of equal size, without a narrow one at the end
            each = zip(best, size, units, strict=True)
            return tuple(n if t >= n else _up(_up(n, _up(n, t)), u) * u for t, n, u in each)
    return None


def _need(task: _Task, part: Sequence[int], overlap: Sequence[int] = (), passes: int = 1) -> int:
    """Return the bytes at the peak of solving an array of this size: the image, or a window with its overlap."""
    problem, edge = task.problem, task.problem.blur.boundary
    number = problem.dtype.itemsize
    at_border = tuple((m >= n,) * 2 for m, n in zip(part, task.size, strict=True))
    # A filter is computed in double precision, beside the window, the continued window, its transform and the output.
    sides = at_border if edge.wraps else ((False, False),) * len(part)
    pixels = math.prod(lengths(task.psf, part, sides))
    filtered, kept = max(44, 6 * number) * pixels + 2 * number * math.prod(part), 4 * number * pixels

    def solved(shape: Sequence[int]) -> int:
        """Return the bytes of solving as an image: the method, its input and output, and the verification."""
        inner = pads(task.psf, shape, at_border, edge.wraps) if edge.wraps or task.dark else ((0, 0),) * len(shape)
        wide = tuple(max(n, m) + sum(p) for n, m, p in zip(shape, task.psf, inner, strict=True))
        least = max(_AT_LEAST * number, 44) * math.prod(wide)
        more = (3 if problem.quadratic else 10) * math.prod(wide) * number
        return max(working_bytes(problem, wide, task.method) + more, least)

    if passes > 1:
        return solved(part) + 6 * pixels * number
    if not any(overlap) or problem.regularizer not in FORMULA or task.method not in ("auto", "fft"):
        return solved(part)
    if edge.wraps:
        return filtered
    corner = [n - d for n, d in zip(part, overlap, strict=True)]
    strips = [[*corner[:i], strip(m, d) + d, *corner[i + 1 :]] for i, (m, d) in enumerate(zip(task.psf, overlap))]
    if not (all(overlap) and worthwhile(strips, corner)):
        return max(filtered, solved(part))
    return max(filtered, kept + max(map(solved, strips)))


def _window(size: Sequence[int], tile: Sequence[int], beyond: Sequence[int]) -> Size:
    return tuple(min(n, t + 2 * d) for n, t, d in zip(size, tile, beyond, strict=True))


def _up(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def _sides(value: Any, name: str, axes: int, least: int = 1) -> Size:
    sides = tuple(value) if np.iterable(value) else (value,) * axes
    if len(sides) != axes or not all(as_number(n).is_integer() and n >= least for n in sides):
        raise ValueError(
            f"{name} must be a whole number of pixels >= {least}, or one for each of {axes} axes, not {shown(value)}"
        )
    return tuple(map(int, sides))

"""`plan_tiles`: tile, overlap and predicted seam, from PSF and λ alone, before anything is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..device import CPU, Device, float_dtype, format_bytes, free_memory
from ..errors import MethodError
from ..methods import METHODS, check_method, choose
from ..operators.blur import Blur
from ..operators.boundary import get_boundary
from ..options import check_lam
from ..problem import Problem
from ..solvers.start import SMOOTHING
from ..terms import FORMULA, Fit, is_quadratic
from .reach import REFINED, SHARP, SHARP_RMS, margin, reach, strip, worthwhile

TOLERANCE = 1e-3
_UNIT = 64  # tiles are a multiple of this where no chunk says otherwise
_SMALL = 512  # a smaller tile spends more on being a tile than on being solved
_EASY, _MOST = 1.25, 4.0  # work factor that is good enough, and the one from which on tiles do not pay
_WHOLE = 2.0  # work factor from which on a picture that fits memory is better solved whole
_SEAMS = (0.2, 0.1, 0.05, 0.03, 0.02, 0.01)  # of the overlaps that refining is tried with
_OF_A_PASS = 6  # numbers for each pixel that a pass of refining holds beside the solver's own
#: Numbers for each pixel that a window takes which is solved as a picture, at least. It was measured, as no method
#: counts what its prior takes.
_AT_LEAST = 18
#: Bytes, and numbers, for each pixel that a window takes which is filtered: while its filter is made in double
#: precision, and with its input, what it is put together from and its output.
_FILTER_BYTES, _FILTERED = 44, 4
_FEW = 4  # fewer tiles than this are not worth it where the whole picture fits
#: The smoothed image is cut off at this many pixels, and what it is wrong by reaches the scene by this part at most: at
#: the frame, where the scene is not held by the image.
_PRIOR_REACH, _PRIOR = math.ceil(4 * SMOOTHING), 0.1
#: eps · max|k̂| times this is about what a solve in the dtype leaves of the range: of a filter, and at a frame.
_ROUNDING, _ROUNDING_AT_FRAME = 8.0, 40.0
#: eps / λ times this, in the corners of a frame that is continued by weights of its own.
_ROUNDING_IN_CORNERS = 2.5
#: Beside a frame that mirrors or is black a PSF that is no mirror image of itself meets one that is another, and the
#: error that reaches along the frame is up to this many times what reaches as far inside.
_UNEVEN = 30.0


@dataclass(frozen=True)
class TilePlan:
    """What `plan_tiles` decided; ``print(plan)`` shows it.

    Attributes
    ----------
    answer : {"tiles", "whole", "refine", "measure", "none"}
        "tiles": cut the picture. "whole": solve it at once. "refine": no tile that fits has the overlap it takes, and
        the whole picture does not fit: every tile is solved several times, each time for what its neighbours have
        left. "measure": of this method no seam can be foretold: compare tiles of this overlap with tiles of twice as
        much on parts of the picture. "none": not even that reaches the tolerance in this memory.
    reason : str
        Why, in one sentence.
    shape, tile, overlap : (int, int)
        Pixels of the picture, of a tile and of what it sees beyond itself on each side. An axis that one tile covers
        has no overlap.
    tiles : int
        How many.
    tolerance : float
        The largest error at a seam that was asked for, as a part of the picture's range.
    seam, seam_rms : float
        Predicted largest error at a seam and the root of its mean square over the picture, as parts of the range; of
        "refine" the largest after the last pass.
    seam_in_noise : float
        The largest error over the standard deviation of the restored noise.
    bound : float
        The bound of the error (the L1 tail): rigorous for tiles inside the picture; infinite where it was not computed.
    safe : bool
        Whether the overlap was chosen by the bound.
    work : float
        Pixels solved for over pixels of the picture, of all passes.
    bytes, whole_bytes, memory : int
        Arrays at the peak of one worker, those of the whole picture at once, and what a worker may take. Python and
        its libraries come on top: about 150 MB a process.
    lam, boundary, method, dtype
        As asked for.
    passes : int
        How often each tile is solved: once, but for "refine".
    seam_once : float
        Of "refine", of what a pass changes at most about this part is left: foretold, the seam that one pass leaves.
    """

    answer: str
    reason: str
    shape: tuple[int, int]
    tile: tuple[int, int]
    overlap: tuple[int, int]
    tiles: int
    tolerance: float
    seam: float
    seam_rms: float
    seam_in_noise: float
    bound: float
    safe: bool
    work: float
    bytes: int
    whole_bytes: int
    memory: int
    lam: float
    boundary: str
    method: str
    dtype: str
    passes: int = 1
    seam_once: float = 0.0

    @property
    def window(self) -> tuple[int, int]:
        """The largest array that is solved at once: a tile with its overlap, no larger than the picture."""
        rows, cols = (min(n, t + 2 * d) for n, t, d in zip(self.shape, self.tile, self.overlap, strict=True))
        return rows, cols

    def __str__(self) -> str:
        def by(pair: Sequence[int]) -> str:
            return " x ".join(map(str, pair))

        lines = [f"answer      {_ANSWERS[self.answer]}: {self.reason}"]
        if self.answer in ("tiles", "measure", "refine"):
            times = f"in {self.passes} passes " if self.passes > 1 else ""
            lines += [
                f"tiles       {self.tiles} of {by(self.tile)} pixels of a picture of {by(self.shape)}, {self.dtype}",
                f"overlap     {by(self.overlap)} pixels on each side; {times}{self.work:.3g} times the picture's work",
            ]
        if self.answer == "refine":
            lines.append(
                f"seam        about {self.seam:.1e} of the range after the last pass (asked for: {self.tolerance:.1e})"
            )
        if self.answer == "tiles" and any(self.overlap):
            bound = f"; never above {self.bound:.1e}" if math.isfinite(self.bound) else ""
            lines.append(
                f"seam        at most {self.seam:.1e} of the range predicted (asked for: {self.tolerance:.1e}), "
                f"rms {self.seam_rms:.1e}; {self.seam_in_noise:.2g} of the restored noise{bound}"
            )
        lines.append(
            f"memory      {format_bytes(self.bytes)} a worker of {format_bytes(self.memory)}; the whole picture at "
            f"once {format_bytes(self.whole_bytes)}"
        )
        return "\n".join(lines)


_ANSWERS = {
    "tiles": "tiles",
    "whole": "solve whole",
    "refine": "tiles, refined",
    "none": "none",
    "measure": "tiles with a measured margin",
}


def plan_tiles(
    psf: Any,
    lam: float,
    shape: Sequence[int],
    *,
    tolerance: float = TOLERANCE,
    boundary: str = "unknown",
    method: str = "auto",
    dtype: Any = np.float64,
    memory: int | None = None,
    device: str | int | Device = CPU,
    safe: bool = False,
    prior: str = "smooth",
    noise: float = 0.01,
    tile: int | Sequence[int] | None = None,
    overlap: int | Sequence[int] | None = None,
    passes: int | None = None,
    chunk: int | Sequence[int] | None = None,
    origin: tuple[int, int] | None = None,
) -> TilePlan:
    """How to cut a picture into tiles so that no seam exceeds a tolerance, told from PSF and λ beforehand.

    A restored pixel depends on the image as far away as the kernel F⁻¹[conj(ĥ)/(|ĥ|² + λ)] reaches, which is not the
    PSF's size: the closer the PSF's spectrum comes to zero and the smaller λ is, the farther. The kernel's tail is
    computed (one FFT an axis), and the overlap is where it falls below the tolerance. Nothing of the picture is read.

    Parameters
    ----------
    psf : (m, n) array
        Point spread function; used as it is.
    lam : float
        λ of the linear formula (or of ``method="gradient"`` or ``"laplacian"``). A number: a rule would look at the
        picture.
    shape : (int, int)
        Rows and columns of the picture in pixels.
    tolerance : float
        Largest error at a seam, against the picture solved whole, as a part of the image's range.
    boundary : str
        The picture's own, one of `deblur.BOUNDARIES`. What it is changes little: the memory, and the overlap of
        "antireflect".
    method : str
        As for `deblur.reconstruct`. For a method that is not linear the answer is "measure".
    dtype : dtype
        float32 or float64: what is computed in.
    memory : int, optional
        Bytes that the arrays of one worker may take; by default half of what is free on `device`.
    device : str, int or Device
        "cpu" (default), "gpu" or a GPU's number.
    safe : bool
        False: the sharp prediction, made with the correlation that pictures have, which held in 99 of 100 cases of
        ``benchmarks/bench_tiles.py``. True: the L1 tail, which no picture can exceed inside the frame; it asks for
        1.2 to 2 times the overlap.
    prior : {"smooth", "zero", "natural"}
        What the linear formula expects of the scene, as for `deblur.reconstruct`: "smooth" and "natural" are a
        photograph's.
    noise : float
        Standard deviation of the image's noise as a part of its range, for the figure relative to the restored noise.
    tile, overlap : int or (int, int), optional
        Instead of those chosen; the prediction is then made for them.
    passes : int, optional
        Solve tiles of this overlap so often: more than once is "refine".
    chunk : int or (int, int), optional
        Tiles are to be multiples of this, such as the chunks of a store.
    origin : (int, int), optional
        Index of the PSF's centre.

    Returns
    -------
    TilePlan

    Raises
    ------
    ValueError, TypeError
        For input that makes no sense, a PSF larger than the picture or than a tile with its overlap, or a tolerance
        below what the dtype holds.

    See Also
    --------
    deblur.choose_method : the same question for the method.

    Notes
    -----
    The bound holds for tiles away from the frame, whose windows are continued by their own pixels and filtered with
    k: the continuation is wrong by no more than the range. Tiles at the frame are solved with the picture's own
    boundary; their inner edges follow the same tail, by measurement.

    Examples
    --------
    >>> import deblur
    >>> plan = deblur.plan_tiles(deblur.psf.gaussian(9, 1.5), 1e-2, (100_000, 100_000), memory=2**28)
    >>> plan.answer, plan.overlap
    ('tiles', (15, 15))
    >>> deblur.plan_tiles(deblur.psf.disk(7), 1e-3, (100_000, 100_000), memory=2**28).overlap
    (180, 180)
    """
    rows, cols = _pair(shape, "shape")
    size = (rows, cols)
    edge, device = get_boundary(boundary), Device.named(device)
    dtype = float_dtype(np.empty(0, dtype))
    given = check_lam(lam)
    if isinstance(given, str):
        raise TypeError(
            f"plan_tiles needs λ as a number, not the rule {given!r}, which would have to see the picture: choose it "
            "once on a part of the picture, with deblur.choose_lambda"
        )
    if not (0 < tolerance < 1):
        raise ValueError(f"tolerance is a part of the range, between 0 and 1, not {tolerance!r}")
    row = METHODS.get(check_method(method))
    penalty = row.penalty if row else "identity"
    blur = Blur(psf, size, edge, origin=origin)
    free = free_memory(device.xp) // 2 if memory is None else int(memory)
    if free <= 0:
        raise ValueError(f"memory must be a number of bytes above zero, not {memory!r}")

    def need(part: Sequence[int], overlap: Sequence[int] = (0, 0)) -> int:
        """Bytes for an array of this size: the picture, or a window with its overlap."""
        picture = _bytes(blur, part, given, method, dtype, device)
        if not any(overlap) or penalty not in FORMULA or method not in ("auto", "fft"):
            return picture
        filtered = (_FILTER_BYTES + _FILTERED * dtype.itemsize) * math.prod(part)
        if edge.wraps:
            return filtered
        corner = [n - d for n, d in zip(part, overlap, strict=True)]
        depths = [strip(m, d) + d for m, d in zip(blur.psf.shape, overlap, strict=True)]
        alone = [(depths[0], corner[1]), (corner[0], depths[1])]
        if not (all(overlap) and worthwhile(alone, corner)):
            return max(filtered, picture)
        kept = _FILTERED * dtype.itemsize * math.prod(part)
        return max(filtered, kept + max(_bytes(blur, s, given, method, dtype, device) for s in alone))

    if prior not in ("smooth", "zero", "natural"):
        raise ValueError(f"prior is 'smooth', 'zero' or 'natural', not {prior!r}")
    if prior == "natural":
        if penalty != "identity" or edge.dark:
            raise ValueError(
                "prior='natural' is the linear formula's, and the scene must go on beyond the frame"
            )
        penalty = "natural"
    draft = _Draft(blur, given, penalty, dtype, float(tolerance), safe, prior, noise, free, need)
    draft.units = _pair(chunk, "chunk") if chunk is not None else (_UNIT, _UNIT)
    draft.tile = None if tile is None else _pair(tile, "tile")
    draft.overlap = None if overlap is None else _pair(overlap, "overlap", least=0)
    draft.passes = 1 if passes is None else int(passes)
    if row is not None and not (row.linear or (is_quadratic(penalty) and row.fit == "gaussian")):
        return draft.measured(method)
    return draft.made(method)


class _Draft:
    """A plan in the making."""

    units: tuple[int, int]
    tile: tuple[int, int] | None
    overlap: tuple[int, int] | None
    passes: int

    def __init__(
        self,
        blur: Blur,
        lam: float,
        penalty: str,
        dtype: np.dtype,
        tolerance: float,
        safe: bool,
        prior: str,
        noise: float,
        memory: int,
        need: Any,
    ) -> None:
        self.blur, self.lam, self.penalty, self.dtype = blur, lam, penalty, dtype
        self.tolerance, self.safe, self.prior, self.noise = tolerance, safe, prior, noise
        self.memory, self.need = memory, need
        self.size = blur.image_shape

    def measured(self, method: str) -> TilePlan:
        """The plan of a method of which nothing can be foretold."""
        given = self.overlap is not None
        overlap = self.overlap or tuple(4 * m for m in self.blur.psf.shape)
        tile = self._tile(overlap) or self.size
        if tile == self.size:
            return self.plan(
                "whole",
                "the picture is one tile" if self._whole_fits() else "no tile fits the memory",
                self.size,
                (0, 0),
                method,
            )
        why = (
            f"no formula foretells the seam of method {method!r}; "
            + ("the overlap is the one given, and " if given else "")
            + "it has to be measured, at this overlap and at twice that, on parts of the picture"
        )
        return self.plan("measure", why, tile, overlap, method)

    def made(self, method: str) -> TilePlan:
        # Both axes have their seams, and a pixel in a corner sees them all.
        least = self.tolerance / 2
        below = (least if self.safe else self.tolerance / SHARP) / self.weight
        h, origin = self.blur.psf, self.blur.origin
        rows = reach(h, origin, self.lam, self.penalty, 0, below, safe=self.safe)
        alike = h.shape == h.T.shape and np.allclose(h, h.T, rtol=1e-9) and origin[0] == origin[1]
        cols = rows if alike else reach(h, origin, self.lam, self.penalty, 1, below, safe=self.safe)
        self.tails = tails = (rows, cols)
        edge = self.blur.boundary
        factor, top = _ROUNDING if edge.wraps else _ROUNDING_AT_FRAME, rows.top * self.blur.gain
        if self.uneven and edge.weight > 1:  # there H may take away what h does not
            factor, top = (
                factor * edge.weight**2 * _UNEVEN,
                max(top, 0.5 * self.blur.gain / math.sqrt(self.lam or math.inf)),
            )
        eps = float(np.finfo(self.dtype).eps)
        floor = factor * eps * top
        if edge.weight > 1:  # in the corners of the frame both edges amplify
            floor = max(floor, _ROUNDING_IN_CORNERS * eps * self.blur.gain**2 / (self.lam or math.inf))
        if self.tolerance < floor and any(t and t < n for t, n in zip(self.tile or (1, 1), self.size)):
            more = ", or float64" if self.dtype == np.float32 else ""
            raise ValueError(
                f"a tolerance of {self.tolerance:.1e} of the range is below what {self.dtype} holds: with λ = "
                f"{self.lam:g} rounding alone is about {floor:.1e}; ask for more than that, or take a larger λ{more}"
            )
        wanted = []
        for t in tails:
            height = np.maximum(t.before, t.after) if self.safe else SHARP * t.sharp
            height = height * self.weight  # an edge continued by other weights is wrong by more
            enough = np.flatnonzero(height <= (least if self.safe else self.tolerance))
            wanted.append(max(int(enough[0]), self._of_the_prior()) if len(enough) else None)
        return self._answer(wanted, method)

    def _answer(self, wanted: list[int | None], method: str) -> TilePlan:
        room = format_bytes(self.memory)
        whole = f"the whole picture takes {format_bytes(self.need(self.size))} of the {room} there are"
        alone = (
            "the overlap is the one given"
            if self.overlap
            else (
                f"the influence of a pixel falls below {self.tolerance:.1e} of the range {_at(wanted)} pixels away"
            )
        )
        overlap = self.overlap
        if overlap is None:
            if any(d is None for d in wanted):
                farthest = max(len(t.sharp) - 1 for t in self.tails)
                alone = (
                    f"with λ = {self.lam:g} and this PSF the influence of a pixel does not fall below "
                    f"{self.tolerance:.1e} of the range within {farthest} pixels"
                )
                if self._whole_fits():
                    return self.plan("whole", f"{alone}, and {whole}", self.size, (0, 0), method)
                return self._refined(alone, method)
            overlap = (wanted[0] or 0, wanted[1] or 0)
        tile = self._tile(overlap)
        if tile is None:
            alone += f", and no tile that fits {format_bytes(self.memory)} is large enough beside that"
            if self._whole_fits():
                return self.plan("whole", f"{alone}, but {whole}", self.size, (0, 0), method)
            return self._refined(alone, method)
        if tile == self.size:
            return self.plan("whole", f"{alone}, and one tile is the picture", self.size, (0, 0), method)
        if self.passes > 1:
            return self._in_passes(f"{alone}, in {self.passes} passes", tile, overlap, method, self.passes)
        plan = self.plan("tiles", alone, tile, overlap, method)
        if self.tile is not None or not self._whole_fits():
            return plan
        if plan.tiles < _FEW:
            few = f"{alone}, but {plan.tiles} tiles gain little, and {whole}"
            return self.plan("whole", few, self.size, (0, 0), method)
        if plan.work > _WHOLE:
            return self.plan(
                "whole",
                f"{alone}, so that tiles would do {plan.work:.2g} times the work, and {whole}",
                self.size,
                (0, 0),
                method,
            )
        return plan

    def _refined(self, alone: str, method: str) -> TilePlan:
        """Tiles that are put right by passes over the picture: of all that fit, those of the least work."""
        if self.penalty not in FORMULA or self.overlap is not None:
            return self.plan("none", f"{alone}; {_LARGER}", self.size, (0, 0), method)
        best: TilePlan | None = None
        for seam in _SEAMS:
            below = [np.flatnonzero(self.weight * SHARP * t.sharp <= seam) for t in self.tails]
            if not all(map(len, below)):
                continue
            # What the neighbours have left is known a margin beyond the window, and its tile reaches as far.
            overlap = [max(int(b[0]), 2 * m) for b, m in zip(below, self.blur.psf.shape, strict=True)]
            beyond = [d + margin(self.blur.psf.shape) for d in overlap]
            passes = max(2, math.ceil(math.log(self.tolerance / REFINED) / math.log(seam)))
            tile = self._tile(beyond, _OF_A_PASS * self.dtype.itemsize)
            if tile is None or any(
                t < min(2 * b, n) for t, b, n in zip(tile, beyond, self.size, strict=True)
            ):
                continue
            why = f"{alone}; {passes} passes over smaller ones should bring what is left below the tolerance"
            plan = self._in_passes(why, tile, overlap, method, passes)
            if best is None or plan.work < best.work:
                best = plan
        return best or self.plan("none", f"{alone}; {_LARGER}", self.size, (0, 0), method)

    def _in_passes(
        self, why: str, tile: Sequence[int], overlap: Sequence[int], method: str, passes: int
    ) -> TilePlan:
        plan = self.plan("refine", why, tile, overlap, method, passes)
        once = self._predicted(plan.tile, plan.overlap)[0]
        return replace(plan, seam=REFINED * once**passes, seam_once=once)

    @property
    def weight(self) -> float:
        """What the frame makes of the error, against what the kernel says."""
        uneven, own = _UNEVEN if self.uneven else 1.0, self.blur.boundary.weight
        # A frame that is continued by weights of its own is reached along both sides of a corner.
        return uneven if own == 1 else (own * uneven) ** 2

    @property
    def uneven(self) -> bool:
        """Whether the PSF meets one at the frame that is another."""
        edge = self.blur.boundary
        return not (self.blur.point_symmetric or edge.wraps or edge.open)

    def _of_the_prior(self) -> int:
        """The overlap that the smoothed image needs, which the scene is drawn towards: the Gaussian's tail."""
        if self.prior == "zero" or self.penalty not in FORMULA:
            return 0
        tails = [0.5 * math.erfc(d / SMOOTHING / math.sqrt(2)) for d in range(_PRIOR_REACH)]
        return sum(_PRIOR * tail > self.tolerance for tail in tails)

    def _whole_fits(self) -> bool:
        return self.need(self.size) <= self.memory

    def _tile(self, overlap: Sequence[int], more: int = 0) -> tuple[int, int] | None:
        """The smallest tile that does little more than the picture's work, or the largest that fits.

        `more` bytes for each pixel are needed beside what the method takes.
        """
        if self.tile is not None:
            for t, d, m, n in zip(self.tile, overlap, self.blur.psf.shape, self.size, strict=True):
                if m > min(n, t + 2 * d):
                    raise ValueError(
                        f"the PSF ({m} pixels) is larger than a tile with its overlap ({t} + 2 · {d}): take larger "
                        "tiles"
                    )
                if d > t and t < n:
                    return None
            return tuple(min(t, n) for t, n in zip(self.tile, self.size, strict=True))  # type: ignore[return-value]
        best = None
        for doublings in range(40):
            rows, cols = (
                n if u * 2**doublings >= n else u * 2**doublings
                for u, n in zip(self._units(overlap), self.size, strict=True)
            )
            window = [min(n, t + 2 * d) for n, t, d in zip(self.size, (rows, cols), overlap, strict=True)]
            if self.need(window, overlap if not more else (0, 0)) + more * math.prod(window) > self.memory:
                break
            work = math.prod(window) / (rows * cols)
            if work <= _MOST:
                best = (rows, cols)
            if (work <= _EASY and min(rows, cols) >= _SMALL) or best == self.size:
                break
        if best is None:
            return None
        # As many tiles, but all alike: no sliver is left at the end.
        even = (
            n if t >= n else _up(_up(n, _up(n, t)), u) * u
            for t, n, u in zip(best, self.size, self.units, strict=True)
        )
        return tuple(even)  # type: ignore[return-value]

    def _units(self, overlap: Sequence[int]) -> list[int]:
        """The smallest tile worth having along each axis: a multiple of the chunk, no smaller than PSF and overlap."""
        least = [max(m, d, 1) for m, d in zip(self.blur.psf.shape, overlap, strict=True)]
        return [_up(n, u) * u for n, u in zip(least, self.units, strict=True)]

    def plan(
        self,
        answer: str,
        reason: str,
        tile: Sequence[int],
        overlap: Sequence[int],
        method: str,
        passes: int = 1,
    ) -> TilePlan:
        overlap = tuple(0 if t >= n else d for t, d, n in zip(tile, overlap, self.size, strict=True))
        more = margin(self.blur.psf.shape) if passes > 1 else 0
        beyond = [d + more if d else 0 for d in overlap]
        window = [min(n, t + 2 * d) for n, t, d in zip(self.size, tile, beyond, strict=True)]
        if more:
            needed = self.need(window) + _OF_A_PASS * math.prod(window) * self.dtype.itemsize
        else:
            needed = self.need(window, overlap)
        work = float(passes)
        for n, t, d in zip(self.size, tile, beyond, strict=True):
            cuts = [(a, min(a + t, n)) for a in range(0, n, t)]
            work *= (sum(b - a + 2 * d for a, b in cuts) - (0 if self.blur.boundary.wraps else 2 * d)) / n
        seam, rms, bound, noise = math.nan, math.nan, math.inf, math.nan
        if answer == "tiles":
            seam, rms, bound, noise = self._predicted(tile, overlap)
        return TilePlan(
            answer,
            reason,
            self.size,
            (int(tile[0]), int(tile[1])),
            (int(overlap[0]), int(overlap[1])),
            math.prod(_up(n, t) for n, t in zip(self.size, tile, strict=True)),
            self.tolerance,
            seam,
            rms,
            noise,
            bound,
            self.safe,
            work,
            needed,
            self.need(self.size),
            self.memory,
            self.lam,
            str(self.blur.boundary),
            method,
            self.dtype.name,
            passes,
        )

    def _predicted(self, tile: Sequence[int], overlap: Sequence[int]) -> tuple[float, float, float, float]:
        """(largest error, rms over the picture, bound, largest error over the restored noise) of a cut."""
        seam = square = bound = 0.0
        for tails, t, d, n in zip(self.tails, tile, overlap, self.size, strict=True):
            if t >= n:
                continue
            if d >= len(tails.sharp):  # beyond what was computed, but no more than there
                d = len(tails.sharp) - 1
            weight = self.weight
            seam = max(seam, weight * SHARP * float(tails.sharp[d]))
            square += 2 / t * float((tails.sharp[d : d + t] ** 2).sum())
            bound += weight * tails.bound(t, d)
        restored = self.noise * self.tails[0].total
        return (
            seam,
            SHARP_RMS * math.sqrt(square),
            bound if self.safe else math.inf,
            seam / restored if restored else math.inf,
        )


_LARGER = "a larger λ, a larger tolerance or more memory for a worker makes tiles possible"


def _up(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def _at(wanted: Sequence[int | None]) -> str:
    rows, cols = wanted
    return f"{rows}" if rows == cols else f"{rows} (along columns) and {cols} (along rows)"


def _bytes(blur: Blur, part: Sequence[int], lam: float, method: str, dtype: np.dtype, device: Device) -> int:
    """Bytes at the peak of solving an array of this size: what the method counts, its input and its output, or more."""
    shape = tuple(max(n, m) for n, m in zip(part, blur.psf.shape, strict=True))
    row = METHODS.get(method)
    problem = Problem(
        Blur(blur.psf, (shape[0], shape[1]), blur.boundary, origin=blur.origin),
        lam,
        row.penalty if row else "identity",
        Fit(row.fit if row else "gaussian"),
        dtype=dtype,
        device=device,
        reuse=True,
    )
    if row is None:
        try:
            row = METHODS[choose(problem, memory=2**62).method]
        except MethodError:
            row = METHODS["pcg"]
    pixels = math.prod(shape)
    least = max(_AT_LEAST * dtype.itemsize, _FILTER_BYTES) * pixels
    return max(int(row.work(problem).bytes) + 3 * pixels * dtype.itemsize, least)


def _pair(value: Any, name: str, least: int = 1) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, Sequence | np.ndarray) else (value, value)
    if len(pair) != 2 or any(isinstance(n, bool) or int(n) != n or n < least for n in pair):
        raise ValueError(
            f"{name} must be a whole number of pixels >= {least}, or one for rows and one for columns, not {value!r}"
        )
    return int(pair[0]), int(pair[1])

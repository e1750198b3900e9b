"""`tiled` and what it decides before anything is mapped: λ, boundary and plan, from windows spread over the picture."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from ..device import CPU, Array, Device, asnumpy, cores, float_dtype, free_memory, get_xp, is_cupy
from ..errors import ConvergenceError, InsufficientMemoryError, MethodError
from ..frames import Frames, enough
from ..image import as_float
from ..image.arrays import looks_coloured
from ..methods import named
from ..operators.boundary import BOUNDARIES
from ..options import Options, Request, checked, takes_options
from ..pipeline import Deblurrer
from ..tuning import estimate_noise
from ..tuning.boundary import SAFE
from .plan import TOLERANCE, TilePlan, plan_tiles
from .reach import margin
from .refining import corrected
from .windows import Edges, Recipe, Sides, restore

_SAMPLE = 256  # side of the windows that λ is chosen from
_SAMPLES = 9
MORE_PASSES = 4  # passes beyond those planned, before refining is given up
_PASSES = 20  # more than this are not tried: larger tiles are the better answer
_SPARE = 2.0  # passes are as many as bring what is left this far below the tolerance on a part of the picture
_PART = 12  # numbers for each pixel of that part, solved at once and tile by tile
_HIDDEN = 30.0  # times what is left of a part of two tiles is left of the picture
_CHECKED = 4  # tiles whose seam is measured
_REFUSED = {
    "mask": "hide pixels before, or restore the picture whole",
    "weights": "restore the picture whole",
    "psfs": "give one PSF, or one for each frame as psf",
    "inverse": "no matrix is formed of a tile",
    "callback": "many tiles are solved side by side",
}


@dataclass(frozen=True)
class Seam:
    """A seam as measured: a tile solved with the overlap of the plan and with twice that.

    Attributes
    ----------
    frame, row, column : int
        Where the tile begins.
    overlap : (int, int)
    difference : float
        The largest, as a part of the picture's range.
    """

    frame: int
    row: int
    column: int
    overlap: tuple[int, int]
    difference: float


@dataclass(frozen=True)
class Axes:
    """Where rows, columns, colours and frames are in an array."""

    shape: tuple[int, ...]
    stack: tuple[int, ...]
    channel: int | None

    @classmethod
    def of(
        cls, shape: Sequence[int], channel_axis: int | None, stack_axis: int | Sequence[int] | None
    ) -> Axes:
        """The axes that are named, or ValueError if rows and columns are not what is left."""
        n = len(shape)
        if channel_axis is None and stack_axis is None and n == 3 and looks_coloured(tuple(shape)):
            channel_axis = -1
        named = [] if stack_axis is None else list(np.atleast_1d(stack_axis))
        every = [*named, *([] if channel_axis is None else [channel_axis])]
        for axis in every:
            if not -n <= axis < n:
                raise ValueError(f"axis {axis} is no axis of an image with {n} dimensions")
        if len({a % n for a in every}) != len(every) or n - len(every) != 2:
            raise ValueError(
                f"the image has shape {tuple(shape)}; with {len(every)} axis named there must be two left, rows and "
                "columns: for colour name the axis of the channels (channel_axis=-1), for a stack the axes that frames "
                "are counted along (stack_axis=0, or (0, 1))"
            )
        channel = None if channel_axis is None else int(channel_axis % n)
        return cls(tuple(map(int, shape)), tuple(int(a % n) for a in named), channel)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes as windows have them: frames, colours, rows, columns."""
        front = (*self.stack, *(() if self.channel is None else (self.channel,)))
        return (*front, *(a for a in range(len(self.shape)) if a not in front))

    @property
    def space(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        return self.shape[self.order[-2]], self.shape[self.order[-1]]

    @property
    def frames(self) -> int:
        """How many frames there are."""
        return math.prod(self.shape[a] for a in self.stack)

    @property
    def colours(self) -> int:
        return 1 if self.channel is None else self.shape[self.channel]

    def place(self, frame: int) -> tuple[int, ...]:
        """Where a frame is along the axes of the stack."""
        return (
            tuple(int(i) for i in np.unravel_index(frame, [self.shape[a] for a in self.stack]))
            if self.stack
            else ()
        )

    def read(self, img: Any, frame: int, rows: slice, cols: slice) -> Array:
        """A window of one frame, (1, colours, M, N), as it is stored."""
        at: list[Any] = [slice(None)] * len(self.shape)
        for axis, i in zip(self.stack, self.place(frame), strict=True):
            at[axis] = slice(i, i + 1)
        at[self.order[-2]], at[self.order[-1]] = rows, cols
        part = img[tuple(at)]
        part = part.compute() if hasattr(part, "compute") else part
        part = part if is_cupy(part) else np.asarray(part)
        return self.frames_of(part.transpose(self.order))

    def frames_of(self, part: Array) -> Array:
        """An array in `order` as (frames, colours, M, N)."""
        return part.reshape(-1, 1 if self.channel is None else part.shape[-3], *part.shape[-2:])


class Tiling:
    """A restoration by tiles with all that it needs decided: λ, boundary and plan. Call it with the picture.

    Parameters are those of `deblur.tiled`.

    Attributes
    ----------
    plan : TilePlan
    lam : float
    lam_reason, boundary_reason : str
        Where λ and the boundary came from.
    """

    def __init__(
        self,
        img: Any,
        psf: Array,
        lam: float | str = "auto",
        *,
        tolerance: float = TOLERANCE,
        safe: bool = False,
        memory: int | None = None,
        workers: int | None = None,
        tile: int | Sequence[int] | None = None,
        overlap: int | Sequence[int] | None = None,
        passes: int | None = None,
        chunk: int | Sequence[int] | None = None,
        dtype: Any = None,
        device: str | int = "cpu",
        channel_axis: int | None = None,
        stack_axis: int | Sequence[int] | None = None,
        options: Options | None = None,
    ) -> None:
        options = {**(options or {})}
        self.axes = axes = Axes.of(img.shape, channel_axis, stack_axis)
        self.workers = workers or cores()
        self.dtype = float_dtype(np.empty(0, dtype)) if dtype is not None else enough(img.dtype)
        for name, instead in _REFUSED.items():
            if options.get(name) is not None and options.get(name) is not False:
                raise MethodError(f"{name} is not served by tiles: {instead}")
        psfs = _psfs(psf, axes.frames)
        self._img, self._psf_shape = img, psfs.shape[1:]
        place = (
            CPU if memory is not None else Device.named(device)
        )  # this process need not have what workers have
        options["dtype"] = self.dtype.name
        request = checked(psfs[0], axes.space, lam, options, device=CPU, reuse=True)
        if request.open is not None:
            request = self._read_boundary(request, psfs[0], lam, options)
        boundary = request.problem.operator.boundary
        options["boundary"], self.boundary_reason = str(boundary), request.boundary_reason
        if request.method != "auto":  # a method that cannot serve says so now, and not in a tile
            named(request.method, request.problem)
        if not request.problem.asked:
            options["prior"] = request.prior
        self.options = options
        self.asked = request.problem.asked
        if isinstance(request.lam, str):
            lam, self.lam_reason = self._choose_lam(psfs[0], request)
        else:
            lam, self.lam_reason = request.lam, request.lam_reason
        self.lam = float(lam)
        if request.method == "richardson-lucy" and self.lam == 0 and request.problem.stop.rtol is None:
            raise MethodError(
                "richardson-lucy without λ stops where pixels held out say so, at another iteration in each tile: that "
                "leaves seams which no overlap outruns; give λ above 0, or rtol"
            )
        options.update(self._noise_once(request))
        if memory is None:
            memory = free_memory(place.xp) // (2 * self.workers)
        given: dict[str, Any] = {
            "tolerance": tolerance, "safe": safe, "memory": memory, "tile": tile, "passes": passes, "chunk": chunk,
            "boundary": str(boundary), "method": request.method, "dtype": self.dtype,
            "device": place, "origin": options.get("origin"),
            "prior": request.prior if self.asked else options["prior"],
        }  # fmt: skip
        plans = [plan_tiles(h, self.lam, axes.space, overlap=overlap, **given) for h in psfs]
        self.plan = max(plans, key=lambda p: (p.answer == "none", p.passes, p.work))
        self._wraps = boundary.wraps
        self.recipe = Recipe(psfs, self.lam, self.dtype.name, options, device, window=self.plan.window)
        if self.plan.answer == "measure" and overlap is None:
            self.plan = self._with_margin(psfs[0], given)
        if self.plan.answer == "refine" and passes is None and not self._passes_refused(request):
            self.plan = self._with_passes(
                psfs[plans.index(self.plan)], str(device) if place != CPU else "cpu"
            )
        if self.plan.answer == "none":
            raise InsufficientMemoryError(self.plan.reason, self.plan.whole_bytes, self.plan.memory)
        if self.plan.answer == "refine" and self._passes_refused(request):
            why = f"{self.plan.reason}, but of the linear formula alone, without gamma or formula='hht'"
            raise InsufficientMemoryError(why, self.plan.whole_bytes, self.plan.memory)
        if self.plan.answer == "whole" and axes.frames == 1:
            self.recipe = replace(self.recipe, threads=None)
        self.cuts = tuple(
            cut(n, t, max(d, h))
            for n, t, d, h in zip(axes.space, self.plan.tile, self.beyond, psfs.shape[1:], strict=True)
        )

    # -- decided before anything is mapped ---------------------------------------------------------

    def _read_boundary(
        self, request: Request, psf: np.ndarray, lam: float | str, options: Options
    ) -> Request:
        """The request with the boundary read off the rim of the picture's corners, laid side by side."""
        side = [min(n // 2, max(_SAMPLE, 4 * m)) for n, m in zip(self.axes.space, psf.shape, strict=True)]
        if min(side) < 1:
            side = list(self.axes.space)
        ends = [
            [slice(0, s), slice(n - s, n)] if 2 * s <= n else [slice(0, n)]
            for n, s in zip(self.axes.space, side)
        ]
        corners = np.concatenate(
            [
                np.concatenate([asnumpy(self.axes.read(self._img, 0, r, c)) for c in ends[1]], axis=-1)
                for r in ends[0]
            ],
            axis=-2,
        )
        rim = checked(psf, corners.shape[-2:], lam, options, device=CPU)
        try:
            rim = rim.decided(Frames(corners, channel_axis=1, stack_axis=0))
        except ValueError:  # NaN at a corner
            found, why = SAFE, "the rim of the picture has values that are no numbers"
        else:
            found, why = str(rim.problem.operator.boundary), rim.boundary_reason
        assert request.open is not None
        return replace(request.open.restated(found), boundary_reason=f"{why}, in its corners", open=None)

    @cached_property
    def _samples(self) -> np.ndarray:
        """Windows spread over the picture, (n, c, M, N), where something has to be told from them."""
        return _samples(self._img, self.axes, self._psf_shape)

    @property
    def range(self) -> float:
        """Of the image, as far as the windows that were looked at show it."""
        return float(np.ptp(self._samples))

    def _choose_lam(self, psf: np.ndarray, request: Request) -> tuple[float, str]:
        """λ from all windows together, and the prior where there is noise to hide.

        The windows are cut out of the scene, which goes on beyond their edges.
        """
        options: Any = {**self.options} | {"formula": "tikhonov"}
        edge = BOUNDARIES[options["boundary"]]
        if not (edge.continued or edge.open):
            options["boundary"] = "unknown"
        if "prior" in options:  # the linear formula, whose λ no method changes
            options["method"] = "auto"
        rule = request.lam
        stack = self._samples.astype(np.float64)

        def chosen(rule: float | str, options: Any) -> tuple[Deblurrer, str]:
            choose = Deblurrer(psf, stack.shape[-2:], rule, **options)
            found = choose.tune(stack, channel_axis=1, stack_axis=0)
            return choose, found.reason if found is not None else ""

        choose = None
        if request.natural:
            choose, reason = chosen("auto", options | {"prior": "auto", "boundary": "unknown"})
            if choose.prior == "natural":
                self.options["prior"] = choose.prior
                reason += "; prior 'natural', which hides noise better"
        if choose is None or choose.prior not in ("natural", request.prior):
            choose, reason = chosen(rule, options)
        return float(choose.lam), f"{reason}; from {len(stack)} windows spread over the picture"

    def _noise_once(self, request: Request) -> Options:
        """The noise level for methods that would estimate it from each tile."""
        if request.noise is not None or not request.problem.asked:
            return {}
        return {"noise": float(estimate_noise(self._samples.astype(np.float64)))}

    def _with_margin(self, psf: np.ndarray, given: dict[str, Any]) -> TilePlan:
        """The plan with the smallest margin, of those tried, whose seam on the picture itself is small enough.

        An iteration that stops early differs from itself on another window, however wide: where twice the margin no
        longer halves the seam, that is what is left.
        """
        margin = tuple(max(4, m) for m in psf.shape)
        best: tuple[float, TilePlan] | None = None
        while True:
            plan = plan_tiles(psf, self.lam, self.axes.space, overlap=margin, **given)
            if plan.answer != "measure":
                return plan
            seams = self.measure(plan)
            worst = max((s.difference for s in seams), default=0.0)
            said = (
                f"the seam of method {plan.method!r} was measured on {len(seams)} tiles at this overlap and at twice "
                f"that, and is {worst:.1e} of the range"
            )
            if worst <= plan.tolerance:
                return replace(plan, seam=worst, reason=said)
            if best is not None and worst > 0.5 * best[0]:
                left = f"{best[1].reason}, which is what its stopping rule leaves; a smaller rtol lessens it"
                return replace(best[1], reason=left)
            best = worst, replace(plan, seam=worst, reason=said)
            margin = tuple(2 * d for d in margin)
            if any(d > t and t < n for d, t, n in zip(margin, plan.tile, self.axes.space, strict=True)):
                raise MethodError(
                    f"with an overlap of {plan.overlap} pixels the seam of method {plan.method!r} is still {worst:.1e} "
                    f"of the range, above the tolerance {plan.tolerance:.1e}; give a larger tolerance, larger tiles or "
                    "a larger λ"
                )

    def _passes_refused(self, request: Request) -> bool:
        """Whether it is no linear formula, of which alone y is known."""
        return bool(self.asked or request.gamma or self.options.get("formula") == "hht")

    def _with_passes(self, psf: np.ndarray, device: str) -> TilePlan:
        """The plan with as many passes as tiles of it take on a part of the picture.

        The part is laid round a torus, where one transform says what the passes should come to. It is three tiles long,
        the last as short as the picture's, whose neighbours see past it: of a part of two a window sees nearly all.
        Where three do not fit the memory, so much more is taken to be left.
        """
        plan = self.plan
        many = 3 if _PART * self.dtype.itemsize * 9 * math.prod(plan.tile) <= plan.memory else 2
        side = []
        for n, t, d, m in zip(self.axes.space, plan.tile, plan.overlap, psf.shape, strict=True):
            spans = cut(n, t, max(d + margin(psf.shape) if d else 0, m))[-many:]
            side.append(spans[-1][1] - spans[0][0])
        first = [(n - s) // 2 for n, s in zip(self.axes.space, side, strict=True)]
        rows, cols = (slice(a, a + s) for a, s in zip(first, side, strict=True))
        part = as_float(asnumpy(self.axes.read(self._img, 0, rows, cols)))[0, 0].astype(self.dtype)
        known = np.isfinite(part)
        part = np.where(known, part, np.median(part[known]) if known.any() else 0).astype(self.dtype)
        options: Any = self.options | {"boundary": "periodic"}
        torus = Tiling(
            part, psf, self.lam, tile=plan.tile, overlap=plan.overlap, passes=2, tolerance=plan.tolerance,
            memory=2**62, workers=self.workers, dtype=self.dtype, device=device, options=options,
        )  # fmt: skip
        whole = Deblurrer(psf, part.shape, self.lam, **options)(part)
        y, span, shares = None, float(np.ptp(part)) or 1.0, [0.0]
        for number in range(1, _PASSES + 1):
            out, change = torus._pass(part, y, last=True)
            left = float(abs(out - whole).max())
            if number > 1:
                shares.append(left / (change or 1.0))
                if left * (_SPARE if number < _PASSES else 1) <= plan.tolerance * span:
                    break
            y, _ = torus._pass(part, y)
        else:
            raise InsufficientMemoryError(
                f"{plan.reason}; but on a part of the picture {_PASSES} passes over tiles of {plan.tile} with an "
                f"overlap of {plan.overlap} still left {left / span:.1e} of the range: give a larger λ, a larger "
                "tolerance or more memory",
                plan.whole_bytes,
                plan.memory,
            )
        once = max(shares) * (_SPARE if many > 2 else _HIDDEN)
        why = f"{plan.reason}; on a part of the picture {number} passes left {left / span:.1e} of the range"
        return replace(
            plan, passes=number, seam=left / span, seam_once=once, reason=why,
            work=plan.work / plan.passes * number,
        )  # fmt: skip

    # -- tiles -----------------------------------------------------------------------------------------

    @property
    def beyond(self) -> tuple[int, int]:
        """Pixels that are read beyond a tile: its overlap, and where it is refined a margin to know what is left."""
        more = margin(self._psf_shape) if self.plan.passes > 1 else 0
        rows, cols = (d + more if d else 0 for d in self.plan.overlap)
        return rows, cols

    @property
    def tiles(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """The rows and the columns of each tile, as (first, beyond the last)."""
        return list(itertools.product(self.cuts[0], self.cuts[1]))

    def window(
        self, tile: Sequence[tuple[int, int]], overlap: Sequence[int]
    ) -> tuple[list[np.ndarray | slice], Sides, Edges]:
        """(where to read, which sides are the picture's, what to cut off) for a tile; indices where it wraps round."""
        where: list[np.ndarray | slice] = []
        sides, trim = [], []
        for (a, b), d, n in zip(tile, overlap, self.axes.space, strict=True):
            if self._wraps and (a, b) != (0, n):
                where.append(np.arange(a - d, b + d) % n)
                sides.append((False, False))
                trim.append((d, d))
                continue
            first, last = max(0, a - d), min(n, b + d)
            where.append(slice(first, last))
            sides.append((first == 0, last == n))
            trim.append((a - first, last - b))
        return where, tuple(sides), tuple(trim)  # type: ignore[return-value]

    def solve(self, img: Any, frame: int, tile: Sequence[tuple[int, int]], overlap: Sequence[int]) -> Array:
        """One tile of one frame, (1, colours, M, N)."""
        where, sides, trim = self.window(tile, overlap)
        return restore(self.recipe, self._read(img, frame, where), frame, sides, trim)

    def _read(self, img: Any, frame: int, where: Sequence[np.ndarray | slice]) -> Array:
        if all(isinstance(w, slice) for w in where):
            return self.axes.read(img, frame, *where)  # type: ignore[arg-type]
        spans = []
        for w in where:
            runs = [w] if isinstance(w, slice) else np.split(w, np.flatnonzero(np.diff(w) != 1) + 1)
            spans.append([r if isinstance(r, slice) else slice(int(r[0]), int(r[-1]) + 1) for r in runs])
        lines = []
        for rows in spans[0]:
            parts = [self.axes.read(img, frame, rows, cols) for cols in spans[1]]
            lines.append(parts[0] if len(parts) == 1 else get_xp(parts[0]).concatenate(parts, axis=-1))
        return lines[0] if len(lines) == 1 else get_xp(lines[0]).concatenate(lines, axis=-2)

    def measure(self, plan: TilePlan | None = None) -> list[Seam]:
        """The seams of a few tiles spread over the picture: each solved at the overlap and at twice that."""
        plan = plan or self.plan
        if not any(plan.overlap) or plan.passes > 1:
            return []
        seams = []
        side = [min(t, max(_SAMPLE, 2 * d)) for t, d in zip(plan.tile, plan.overlap, strict=True)]
        for frame, corner in _spread(_CHECKED, self.axes.frames, self.axes.space, side):
            tile = tuple((c, c + s) for c, s in zip(corner, side, strict=True))
            try:
                once = self.solve(self._img, frame, tile, plan.overlap)
                twice = self.solve(self._img, frame, tile, [2 * d for d in plan.overlap])
            except ValueError:  # NaN, which the tile itself is blamed for
                continue
            worst = float(abs(once - twice).max()) / (self.range or 1.0)
            seams.append(Seam(frame, tile[0][0], tile[1][0], plan.overlap, worst))
        return seams

    def without_image(self) -> Tiling:
        """This without the picture it was made from, to be sent elsewhere."""
        other = copy.copy(self)
        other._img = None
        other.__dict__.pop("_samples", None)
        return other

    # -- the picture -------------------------------------------------------------------------------

    def __call__(self, img: Any) -> Any:
        """The restored picture: lazy for a Dask array, else an array where `img` was."""
        if hasattr(img, "dask"):
            from .mapping import mapped

            return mapped(self, img)
        if self.plan.passes == 1:
            return self._mapped(
                img, lambda frame, tile: (self.solve(img, frame, tile, self.plan.overlap), 0.0)
            )[0]
        y, wanted = None, self.plan.tolerance * (self.range or 1.0)
        for _ in range(self.plan.passes - 1):
            y, _ = self._pass(img, y)
        for _ in range(MORE_PASSES + 1):
            out, change = self._pass(img, y, last=True)
            if self.plan.seam_once * change <= wanted:
                return out
            y, _ = self._pass(img, y)
        raise ConvergenceError(
            f"after {self.plan.passes + MORE_PASSES} passes tiles still change by {change / self.range:.1e} of the "
            "range; give a larger λ, a larger tolerance or more memory",
            None,
        )

    def _pass(self, img: Any, y: Any, last: bool = False) -> tuple[Any, float]:
        """One pass of refining over the picture: y, or if `last` the scene; and what it changed at most."""

        def one(frame: int, tile: Any) -> tuple[Array, float]:
            where, sides, trim = self.window(tile, self.beyond)
            parts = [None if x is None else self._read(x, frame, where) for x in (img, y)]
            return corrected(self.recipe, parts[0], parts[1], frame, sides, trim, last=last)

        return self._mapped(img, one)

    def _mapped(self, img: Any, solve: Callable[[int, Any], tuple[Array, float]]) -> tuple[Any, float]:
        """All tiles of an array like the picture, by threads; and the largest of the numbers that come with them."""
        out = get_xp(img).empty(img.shape, self.dtype)
        view = out.transpose(self.axes.order)

        def one(job: tuple[int, Any]) -> float:
            frame, ((a, b), (c, d)) = job
            try:
                f, number = solve(frame, ((a, b), (c, d)))
            except ValueError as error:
                raise ValueError(f"the tile of rows {a} to {b} and columns {c} to {d}: {error}") from None
            view[(*self.axes.place(frame), ..., slice(a, b), slice(c, d))] = f[0].reshape(
                *view.shape[len(self.axes.stack) : -2], *f.shape[-2:]
            )
            return number

        jobs: Iterator[tuple[int, Any]] = itertools.product(range(self.axes.frames), self.tiles)
        workers = 1 if self.plan.answer == "whole" and self.axes.frames == 1 else self.workers
        with ThreadPoolExecutor(workers) as pool:
            return out, max(pool.map(one, jobs))


@takes_options
def tiled(
    img: Any,
    psf: Array,
    lam: float | str = "auto",
    *,
    tolerance: float = TOLERANCE,
    safe: bool = False,
    memory: int | None = None,
    workers: int | None = None,
    tile: int | Sequence[int] | None = None,
    overlap: int | Sequence[int] | None = None,
    device: str | int = "cpu",
    channel_axis: int | None = None,
    stack_axis: int | Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Any:
    """Restore a picture of any size tile by tile, with no seam above a tolerance.

    λ and the plan (`plan_tiles`) are decided once, from windows spread over the picture; then every tile is solved with
    as much of the picture around it as the plan says. The edges of the frame keep the boundary asked for.

    Parameters
    ----------
    img : array
        The blurred image, as for `deblur.reconstruct`: a NumPy array (solved by threads) or a memory map, a Dask array
        (a lazy Dask array is returned, and only the windows that λ is chosen from are computed at once), or an xarray
        DataArray of either, which keeps its coordinates.
    psf : (m, n) array, or (k, m, n)
        Point spread function; or one for each of the k frames of a stack.
    lam : float or str
        λ, or the rule that chooses it, from all windows together.
    tolerance : float
        Largest error at a seam, against the picture solved whole, as a part of the image's range.
    safe : bool
        Choose the overlap by the bound (see `plan_tiles`).
    memory : int, optional
        Bytes that the arrays of one worker may take; by default half of what is free, for all workers together.
    workers : int, optional
        Threads for a NumPy array, each with one tile; by default one a core.
    tile, overlap : int or (int, int), optional
        Instead of those planned.
    device : str or int
        Where windows are solved: "cpu", "gpu" or a GPU's number. CuPy arrays are solved where they are.
    channel_axis : int, optional
        The axis of the colours; an image (M, N, 3) or (M, N, 4) is colour without it.
    stack_axis : int or tuple of int, optional
        The axes that frames are counted along. Frames share what is prepared for a window.
    {options}

    Returns
    -------
    array
        Shaped like `img`, of its kind.

    Raises
    ------
    ValueError, TypeError
        For input that makes no sense, before any work starts; and for a tile that holds NaN, which is named.
    MethodError
        For an option that tiles do not serve, such as a mask.
    InsufficientMemoryError
        If no tile that fits the memory can reach the tolerance, not even in passes; it says why.
    ConvergenceError
        If tiles were refined in passes (see `plan_tiles`) and are not yet right after a few more than planned.

    See Also
    --------
    plan_tiles : tile, overlap and seam without the picture.
    deblur.tiles.Tiling : what was decided, and seams as measured.
    deblur.tiles.stream : from a store on disk to another.

    Examples
    --------
    >>> import deblur
    >>> psf = deblur.psf.gaussian(9, 1.5)
    >>> blurred = deblur.degrade(deblur.data.load("camera"), psf, noise=0.01, seed=0)
    >>> restored = deblur.tiled(blurred, psf, 1e-2, tile=128, tolerance=1e-3)
    >>> whole = deblur.reconstruct(blurred, psf, 1e-2)
    >>> bool(abs(restored - whole).max() < 1e-3)
    True
    """
    given: dict[str, Any] = {
        "tolerance": tolerance, "safe": safe, "memory": memory, "workers": workers, "tile": tile, "overlap": overlap,
        "device": device,
    }  # fmt: skip
    if hasattr(img, "dims") and hasattr(img, "coords"):  # an xarray.DataArray
        rest = _dims(img, channel_axis, stack_axis)
        restored = tiled(img.data, psf, lam, channel_axis=channel_axis, stack_axis=rest, **given, **options)
        return img.copy(data=restored)
    if not hasattr(img, "dask") and not is_cupy(img):
        img = np.asanyarray(img)
    dtype = options.pop("dtype", None)
    made = Tiling(
        img, psf, lam, channel_axis=channel_axis, stack_axis=stack_axis, options=options, dtype=dtype, **given
    )
    return made(img)


def cut(n: int, tile: int, least: int) -> list[tuple[int, int]]:
    """An axis cut into tiles; what is left at the end and smaller than `least` belongs to the tile before."""
    firsts = list(range(0, n, tile))
    if len(firsts) > 1 and n - firsts[-1] < least:
        firsts.pop()
    return list(zip(firsts, [*firsts[1:], n], strict=True))


def _samples(img: Any, axes: Axes, psf: Sequence[int]) -> np.ndarray:
    """Windows spread over the picture, read once, without those that are not whole."""
    side = [min(n, max(_SAMPLE, 8 * m)) for n, m in zip(axes.space, psf, strict=True)]
    parts = [
        axes.read(img, frame, *(slice(c, c + s) for c, s in zip(corner, side, strict=True)))
        for frame, corner in _spread(_SAMPLES, axes.frames, axes.space, side)
    ]
    stack = as_float(np.concatenate([asnumpy(p) for p in parts]))
    kept = [p for p in stack if np.isfinite(p).all()]
    if not kept:  # what is missing gets the middle of what is there
        some = [p for p in stack if np.isfinite(p).any()]
        kept = [np.where(np.isfinite(p), p, np.median(p[np.isfinite(p)])) for p in some]
    if not kept:
        raise ValueError(
            f"the {len(stack)} windows that were looked at hold nothing but NaN or infinite values"
        )
    return np.stack(kept)


def _spread(
    count: int, frames: int, space: Sequence[int], side: Sequence[int]
) -> list[tuple[int, tuple[int, int]]]:
    """(frame, corner) of up to `count` windows spread evenly over frames, rows and columns, none the same."""
    across = max(1, math.isqrt(count))
    places = [
        sorted({round(i * (n - s)) for i in (np.arange(across) + 0.5) / across})
        for n, s in zip(space, side, strict=True)
    ]
    corners = list(itertools.product(*places))
    rounds = max(1, min(frames, count // len(corners)))
    picked = []
    for i in range(rounds * len(corners)):
        frame = (i * max(1, frames // (rounds * len(corners)))) % frames if frames > 1 else 0
        picked.append((frame, corners[i % len(corners)]))
    return list(dict.fromkeys(picked))[: max(count, len(corners))]


def _psfs(psf: Any, frames: int) -> np.ndarray:
    h = asnumpy(psf) if not isinstance(psf, list) else np.stack([asnumpy(p) for p in psf])
    h = np.asarray(h, np.float64)
    if h.ndim == 2:
        return h[None]
    if h.ndim != 3 or len(h) != frames:
        raise ValueError(
            f"the PSF has shape {h.shape}; one PSF is (rows, columns), one for each frame ({frames}, rows, columns)"
        )
    return h


def _dims(img: Any, channel_axis: int | None, stack_axis: Any) -> Any:
    """The axes of a DataArray that are frames: all but y and x where there are such, else all but the last two."""
    if stack_axis is not None:
        return stack_axis
    space = {"y", "x"} if {"y", "x"} <= set(img.dims) else set(img.dims[-2:])
    n = img.ndim
    channel = None if channel_axis is None else channel_axis % n
    return tuple(i for i, d in enumerate(img.dims) if d not in space and i != channel) or None

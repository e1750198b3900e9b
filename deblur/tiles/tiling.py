"""`tiled`, and its decisions before any tile is solved: λ, boundary and plan, from windows spread over the image."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Unpack

import numpy as np

from ..device import Array, Device, asnumpy, float_dtype, free_memory, get_xp, is_cupy, unwrapped
from ..errors import InsufficientMemoryError, warn
from ..frames import Axes, min_float_dtype
from ..image import as_float
from ..operators.matrix import SPACES, by, check_psf
from ..options import Options, takes_options
from ..psf.shaping import without_cut_off_noise
from ..threads import cores
from . import refining
from .checks import measured, with_measured_overlap, with_seam
from .options import PlanOptions, TileOptions, parted
from .plan import TilePlan, plan_tiles
from .problem import decide, of_whole
from .reach import margin
from .windows import cut, surroundings

_SAMPLE = 256  # least side of the windows of images from which λ and the boundary are read


class Layout(Axes):
    """Axes of an array that is read in windows, with as many axes of space as a PSF has.

    A PSF with one more axis stands for one PSF for each frame.
    """

    def __init__(self, shape: Sequence[int], psf_axes: int, channel_axis: int | None, stack_axis: Any) -> None:
        left = len(shape) - (0 if stack_axis is None else np.size(stack_axis)) - (channel_axis is not None)
        if psf_axes == left + 1 > 2:  # one PSF for each frame
            psf_axes -= 1
        super().__init__(shape, channel_axis, stack_axis, min(max(psf_axes, 1), max(SPACES)))

    def at(self, frame: int, where: Sequence[slice], count: int = 1) -> tuple[slice, ...]:
        """Return the index of a window of `count` frames from `frame` on, along the last axis of the stack."""
        at = [slice(0, n) for n in self.shape]
        place = np.unravel_index(frame, tuple(self.shape[axis] for axis in self.stack))
        for axis, i in zip(self.stack, place, strict=True):
            at[axis] = slice(int(i), int(i) + (count if axis == self.stack[-1] else 1))
        for axis, part in zip(self.in_space, where, strict=True):
            at[axis] = part
        return tuple(at)

    def read(self, img: Any, frame: int, where: Sequence[Sequence[slice]], count: int = 1) -> Array:
        """Return a window of `count` frames, (count, colours, *space), as stored, from spans along each axis."""
        for axis, spans in enumerate(where):
            if len(spans) > 1:
                parts = [self.read(img, frame, [*where[:axis], [span], *where[axis + 1 :]], count) for span in spans]
                return get_xp(parts[0]).concatenate(parts, axis - len(where))
        found = img[self.at(frame, [span for [span] in where], count)]
        found = found.compute() if hasattr(found, "compute") else found
        return self.split(found if is_cupy(found) else np.asarray(found))

    def put(self, out: Any, at: tuple[slice, ...], frames: Array) -> None:
        """Write frames (k, colours, *space) to their place in an array with the axes of the image."""
        shape = [at[axis].stop - at[axis].start for axis in self.order]
        out[at] = frames.reshape(shape).transpose(np.argsort(self.order).tolist())

    def spread(self, count: int, side: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        """Return (frame, corner) of up to `count` different windows, spread evenly over frames and space."""
        places, left = list[list[int]](), count
        for axes, n, s in zip(range(len(side), 0, -1), self.space, side, strict=True):
            across = int(left ** (1 / axes) + 1e-9)
            left //= across
            places.append(sorted({round(i * (n - s)) for i in (np.arange(across) + 0.5) / across}))
        corners: list[Any] = list(itertools.product(*places))
        total = max(1, min(self.frames, count // len(corners))) * len(corners)
        step = max(1, self.frames // total)
        return list(dict.fromkeys((i * step % self.frames, corners[i % len(corners)]) for i in range(total)))


@takes_options(TileOptions, PlanOptions, Options)
class Tiling:
    """A restoration by tiles with all decisions made: λ, boundary and plan. Call it with the image.

    Parameters
    ----------
    img : array
        Any object with a shape and a dtype that can be sliced.
    psf, lam
        As for `deblur.tiled`.
    {options}

    Attributes
    ----------
    plan : TilePlan
    lam : float
    lam_reason, boundary_reason : str
        Reasons for λ and the boundary.
    recipe : Recipe
        All that windows are solved with.
    side : int
        Least side of the windows from which λ and the boundary are read, and in which seams are measured.
    """

    def __init__(self, img: Any, psf: Array, lam: float | str = "auto", **options: Unpack[TileOptions]) -> None:
        given, rest = parted(options, TileOptions)
        self.img = img = img if hasattr(img, "shape") else unwrapped(img, "the image")
        self._unreadable = ""
        self.workers = given.pop("workers") or cores()
        h = asnumpy(check_psf([*map(asnumpy, psf)] if isinstance(psf, list) else psf, axes=(1, 2, 3, 4)))
        self.layout = layout = Layout(img.shape, h.ndim, given.pop("channel_axis"), given.pop("stack_axis"))
        if np.any(getattr(img, "mask", False)) or hasattr(getattr(img, "_meta", None), "mask"):
            rest["mask"] = "that of the masked array"  # tiles refuse a mask
        dtype = rest.get("dtype")
        self.dtype = min_float_dtype(img.dtype) if dtype is None else float_dtype(np.empty(0, dtype))
        rest["dtype"] = self.dtype.name
        psfs = h[None] if h.ndim == len(layout.space) else h
        if len(psfs) not in (1, layout.frames):
            raise ValueError(
                f"the PSF has shape {h.shape}; it may have one axis for each of the image's, {layout.space}, or one "
                f"more, for one for each frame ({layout.frames})"
            )
        if isinstance(lam, str) and psfs.ndim == 3:
            psfs = np.stack([without_cut_off_noise(one) for one in psfs])
        self._psf_shape, self.side = psfs.shape[1:], round(_SAMPLE ** (2 / len(layout.space)))
        decided = decide(psfs, layout.space, lam, rest, given["tolerance"], self._corners, lambda: self.samples)
        self.lam, self.lam_reason, self.boundary_reason = decided.lam, decided.lam_reason, decided.boundary_reason
        device = given["device"]
        if given["memory"] is not None:  # this process may lack the device of its workers
            given["device"] = "cpu"
        else:
            given["memory"] = free_memory(Device.named(device).xp) // (2 * self.workers)

        def planned(h: np.ndarray, overlap: Any = given["overlap"]) -> TilePlan:
            return plan_tiles(h, self.lam, layout.space, **{**given, **decided.options, "overlap": overlap})

        automatic = decided.linear and isinstance(lam, str)
        plan, h = self._plan(psfs, planned, given["tolerance"] * psfs[0].sum() ** 2 if automatic else 0.0)
        self.plan = plan
        self.recipe = replace(decided, device=device, window=plan.window, lam=self.lam, lam_reason=self.lam_reason)
        self._planned, self._seams = partial(planned, psfs[0]), dict[Any, list[float]]()
        formula = decided.linear and rest.get("gamma") != "srgb" and rest.get("formula") != "hht"
        if plan.answer == "measure" and given["overlap"] is None:
            plan = with_measured_overlap(self, [max(4, m) for m in self._psf_shape], self._planned)
        elif plan.answer == "refine" and not formula:
            why = f"{plan.reason}, but of the linear formula alone, without gamma or formula='hht'"
            plan = replace(plan, answer="none", reason=why)
        elif plan.answer == "refine" and given["passes"] is None:
            plan = refining.with_passes(self, h, plan, given["device"])
        if plan.answer == "none":
            raise InsufficientMemoryError(plan.reason, plan.whole_bytes, plan.memory)
        if plan.answer == "whole" and layout.frames == 1:
            self.workers, self.recipe = 1, replace(self.recipe, threads=None)
            if automatic:
                image = self.window(0, [[slice(0, n)] for n in layout.space])
                if np.isfinite(image).all():  # λ is then chosen from the whole image
                    self.recipe = of_whole(self.recipe, str(lam), rest, image)
                    self.lam, self.lam_reason = self.recipe.lam, self.recipe.lam_reason
        self.plan = plan

    def _plan(self, psfs: np.ndarray, planned: Any, most: float) -> tuple[TilePlan, np.ndarray]:
        """Return the plan of the PSF that needs the most, and that PSF; raise λ up to `most` until tiles are possible.

        A larger λ reaches less far, and one below the tolerance changes little except what H nearly removes.
        """
        chosen = self.lam_reason
        while True:
            with nullcontext() if self.lam >= most else suppress(ValueError):  # rounding alone exceeds the tolerance
                plans = [planned(h) for h in psfs]
                plan = max(plans, key=lambda p: (p.answer == "none", p.passes, p.work))
                if plan.answer != "none" or self.lam >= most:
                    return plan, psfs[plans.index(plan)]
            self.lam *= 10
            self.lam_reason = f"{chosen}; raised to {self.lam:.3g}, with which tiles reach the tolerance"

    def __getstate__(self) -> dict[str, Any]:
        """Return what solves tiles: tasks carry it to other processes, without the image."""
        return {"recipe": self.recipe, "layout": self.layout, "plan": self.plan}

    @property
    def cuts(self) -> tuple[list[tuple[int, int]], ...]:
        """First pixel and one past the last of the tiles along each axis."""
        each = zip(self.layout.space, self.plan.tile, self.beyond, self.recipe.psf.shape, strict=True)
        return tuple(cut(n, t, max(d, h)) for n, t, d, h in each)

    @property
    def tiles(self) -> list[tuple[tuple[int, int], ...]]:
        """First pixel and one past the last along each axis, for each tile."""
        return list(itertools.product(*self.cuts))

    def _corners(self) -> np.ndarray:
        """Return the corners of the first frame, joined, (1, c, *space)."""
        most = [(n // 2, max(self.side, 4 * m)) for n, m in zip(self.layout.space, self._psf_shape, strict=True)]
        sides = zip(self.layout.space, map(min, most), strict=True)
        return self.window(0, [[slice(0, s), slice(n - s, n)] if s else [slice(0, n)] for n, s in sides])

    def window(self, frame: int, where: Sequence[Sequence[slice]]) -> np.ndarray:
        """Return a window of the image, (1, colours, *space), as floats; NaN where it cannot be read.

        A window that cannot be read is read again in halves, down to an eighth of a sample's side.
        """
        try:
            return as_float(asnumpy(self.layout.read(self.img, frame, where)))
        except OSError as error:  # the tiles there will fail
            self._unreadable = str(error)
        sides = [sum(span.stop - span.start for span in spans) for spans in where]
        if max(sides) <= _SAMPLE // 8:
            return np.full((1, self.layout.colours, *sides), np.nan)
        axis = sides.index(max(sides))
        ends = [(span.start, (span.start + span.stop) // 2, span.stop) for span in where[axis]]
        halves = [slice(a, b) for three in ends for a, b in itertools.pairwise(three)]
        parts = [self.window(frame, [*where[:axis], [half], *where[axis + 1 :]]) for half in halves]
        return np.concatenate(parts, axis - len(where))

    @cached_property
    def samples(self) -> np.ndarray:
        """Windows spread over the image, (n, c, *space), read once, without those that are not finite.

        If there are no others, the windows are halved along each axis, as often as necessary.
        """
        layout, sides = self.layout, round(8 ** (2 / len(self._psf_shape)))
        side = [min(n, max(self.side, sides * m)) for n, m in zip(layout.space, self._psf_shape, strict=True)]
        spread = layout.spread(9, side)
        windows = [(frame, [[slice(c, c + s)] for c, s in zip(at, side, strict=True)]) for frame, at in spread]
        stack = np.concatenate([self.window(*window) for window in windows])
        while not (whole := np.isfinite(stack).reshape(len(stack), -1).all(axis=1)).any():
            space = stack.shape[2:]
            side = [n // 2 if n >= 2 * m and n > 1 else n for n, m in zip(space, self._psf_shape, strict=True)]
            if side == [*space]:
                why = f"the {len(spread)} windows of the sample hold only NaN or infinite values"
                raise ValueError(self._unreadable or why)
            halves = ({0: s, n - s: n}.items() for s, n in zip(side, space, strict=True))
            parts: list[Any] = [(..., *(slice(*span) for span in at)) for at in itertools.product(*halves)]
            stack = np.concatenate([stack[part] for part in parts])
        return stack[whole]

    @property
    def together(self) -> int:
        """Number of frames of a tile that fit a worker's memory at once; one if each has its own PSF."""
        return 1 if len(self.recipe.psfs) > 1 else max(1, self.plan.memory // (self.plan.bytes * self.layout.colours))

    @property
    def range(self) -> float:
        """Range of the image, estimated from the sampled windows; it includes 0 if the scene is dark beyond its frame.

        The error of a tile that does not see that edge is as large as the level of the image, not as its contrast.
        """
        beyond = 0.0 if self.recipe.boundary.dark else self.samples.flat[0]
        return float(max(self.samples.max(), beyond) - min(self.samples.min(), beyond))

    @property
    def beyond(self) -> tuple[int, ...]:
        """Pixels that are read beyond a tile: its overlap and, if it is refined, a margin for its residual."""
        each, several = zip(self.plan.overlap, margin(self.recipe.psf.shape), strict=True), self.plan.passes > 1
        return tuple(d + m if d and several else d for d, m in each)

    def measure(self) -> list[float]:
        """Return the seams of a few tiles, as shares of the range: changes by more overlap. Cached for each plan."""
        of = self.plan.tile, self.plan.overlap, self.plan.passes
        if of not in self._seams:
            self._seams[of] = measured(self)
        return self._seams[of]

    def check_seam(self) -> None:
        """Warn if the seam is above the tolerance, with a sufficient overlap; measure the seam if it is not known."""
        plan, instead = self.plan, ""
        if plan.answer == "measure" and math.isnan(plan.seam):
            plan = with_seam(self, plan)
            if plan.seam > plan.tolerance:
                wider = [max(4, m, 2 * d) for m, d in zip(self._psf_shape, plan.overlap, strict=True)]
                found = with_measured_overlap(self, wider, self._planned)
                enough = f"{by(found.overlap)} pixels leave {found.seam:.1e}: " if found.answer == "measure" else ""
                instead = f"; {enough}{found.reason}"
            self.plan = plan
        if plan.passes == 1 and plan.seam > plan.tolerance:
            text = f"tiles with an overlap of {by(plan.overlap)} pixels leave seams of {plan.seam:.1e} of the range"
            warn(f"{text}, above the tolerance {plan.tolerance:.1e}: {plan.reason}{instead}", UserWarning)

    def __call__(self, img: Any) -> Any:
        """Return the restored image: lazy for a Dask array, else an array on the device of `img`."""
        if hasattr(img, "dask"):
            from .mapping import lazily

            return lazily(self, img)
        return refining.refined(self, img) if self.plan.passes > 1 else self.mapped(img)[0]

    def last(self, number: int) -> bool | None:
        """Return whether the pass of this number is the last of several; None if there is one pass."""
        return number == self.plan.passes - 1 if self.plan.passes > 1 else None

    def solve(
        self, images: Sequence[Any], frames: tuple[int, int], tile: Any, overlap: Any = None, last: bool | None = None
    ) -> tuple[Array, float]:
        """Return a tile of `frames`, (first, number), and its change, from the image and, after a first pass, y.

        Both are arrays that can be sliced. Frames that are solved together have one PSF. The tile sees `overlap`
        pixels around it, by default the planned ones. See `deblur.tiles.refining.corrected`.
        """
        recipe, layout = self.recipe.of(frames[0]), self.layout
        where, sides, trim = surroundings(tile, overlap or self.beyond, layout.space, recipe.boundary.wraps)
        image, *known = (layout.read(each, frames[0], where, frames[1]) for each in images)
        return refining.corrected(recipe, image, known[0] if known else None, sides, trim, last)

    def mapped(self, img: Any, y: Any = None, last: bool | None = None) -> tuple[Any, float]:
        """Return all tiles of an array like the image, solved by threads, and the largest change of a tile."""
        layout, out = self.layout, get_xp(img).empty(img.shape, self.dtype)
        images = [img] if y is None else [img, y]

        def one(place: tuple[int, Any]) -> float:
            frame, tile = place
            try:
                f, change = self.solve(images, (frame, 1), tile, last=last)
            except ValueError as error:
                raise ValueError(f"the tile of {region_in_words(tile)}: {error}") from None
            layout.put(out, layout.at(frame, [slice(*span) for span in tile]), f)
            return change

        with ThreadPoolExecutor(self.workers) as threads:
            return out, max(threads.map(one, itertools.product(range(layout.frames), self.tiles)))


def region_in_words(region: Sequence[tuple[int, int]]) -> str:
    """Return a part of space, (first, past the last) along each axis, in words with the names of the axes."""
    names = ("planes", "rows", "columns")[-len(region) :] if len(region) > 1 else ("pixels",)
    return ", ".join(f"{name} {a} to {b}" for name, (a, b) in zip(names, region, strict=True))


@takes_options(TileOptions, PlanOptions, Options)
def tiled(img: Any, psf: Array, lam: float | str = "auto", **options: Unpack[TileOptions]) -> Any:
    """Restore an image, a volume or lines of any size tile by tile, with no seam above a tolerance.

    λ and the plan (`plan_tiles`) are decided once, from windows spread over the image. Then every tile is solved with
    the surroundings that the plan requires. The image's border keeps the requested boundary. If a rule chooses a λ that
    is too small for any plan, λ is raised until there is one. For an image that is solved whole, λ is chosen from all
    of it.

    Parameters
    ----------
    img : array
        The blurred image, as for `deblur.reconstruct`: a NumPy array or memory map (solved by threads), a Dask array
        (the result is lazy; only data for the choice of λ are computed at once), or an xarray
        DataArray of either, which keeps its coordinates.
    psf : (m, n) array, or (k, m, n)
        Point spread function, or one for each of the k frames of a stack, with one, two or three axes of space. Three
        axes stand for a volume, unless `channel_axis` and `stack_axis` leave the image two axes of space.
    lam : float or str
        λ, or the rule that chooses it from all windows together.
    {options}

    Returns
    -------
    array
        The restored image, of the kind and shape of `img`.

    Raises
    ------
    ValueError, TypeError
        For invalid arguments, before any work starts; and for a tile that contains NaN, which is named.
    MethodError
        For an option that tiles do not support, such as a mask.
    InsufficientMemoryError
        If no tile that fits into memory reaches the tolerance, even in passes.
    ConvergenceError
        If refined tiles (see `plan_tiles`) do not reach the tolerance in a few more passes than planned.

    Warns
    -----
    UserWarning
        If the seam of a given overlap, or the error of the method's stopping rule, is above the tolerance.

    Notes
    -----
    The tolerance limits seams. For "identity", "gradient" and "laplacian", the error of the iteration's own stopping
    rule, which tiles and the whole image share, may be larger than a small tolerance; ``rtol=1e-9`` reduces it.

    See Also
    --------
    plan_tiles : tile, overlap and seam without the image.
    deblur.tiles.Tiling : the decisions, and measured seams.
    deblur.tiles.stream : from one store on disk to another.

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
    if hasattr(img, "dims") and hasattr(img, "coords"):  # an xarray.DataArray
        # Frames are all axes but z, y and x if the image has these, else all but the last ones, as many as the PSF has.
        if options.get("stack_axis") is None:
            axes = max(1, np.ndim(psf))
            space = set("zyx"[-axes:]) if set("zyx"[-axes:]) <= set(img.dims) else set(img.dims[-axes:])
            channel = options.get("channel_axis")
            frames = [i for i, d in enumerate(img.dims) if d not in space]
            options["stack_axis"] = [i for i in frames if channel not in (i, i - img.ndim)] or None
        return img.copy(data=tiled(img.data, psf, lam, **options))
    if hasattr(img, "shape") and not hasattr(img, "dask") and not is_cupy(img):
        img = np.asanyarray(img)
    tiling = Tiling(img, psf, lam, **options)
    tiling.check_seam()
    return tiling(tiling.img)

"""One window: a tile and what it sees beyond itself, restored, and cut to the tile.

A window inside the picture is continued by its own pixels until it wraps round, and filtered with the kernel of
`deblur.tiles.reach`: two transforms, whatever the PSF, and the error of the continuation is what the plan bounds.

Of a window at the frame the same is right but for what lies within the overlap of the frame. There strips along the
frame are solved as small pictures with the picture's own boundary, which takes far longer for each pixel than to
filter, and see the overlap beyond what is kept of them. A window that is little larger than its strips is solved as
such a picture itself, and so is every window of a method that is no filter. The inner edges of such a picture then have
the picture's boundary too, which is harmless where the boundary goes on as the window does (reflect, antireflect,
unknown); where it does not, they are continued until they meet it: blended to wrap round (periodic), or faded to black
(zero).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import scipy.fft

from ..device import CPU, Array, Device, all_cores, check_finite, get_xp, granting, staging
from ..image import as_float
from ..operators.blur import Blur
from ..operators.boundary import get_boundary
from ..operators.torus import Torus
from ..options import Options, checked
from ..pipeline import Deblurrer
from ..solvers.start import prior_scene
from .reach import PRIOR_REACH, multiplier, strip, worthwhile

Sides = tuple[tuple[bool, bool], tuple[bool, bool]]
Edges = tuple[tuple[int, int], tuple[int, int]]

#: What a process keeps prepared: the filter and the strips at the sides and corners, of a few PSFs.
_KEPT = 16
_kept: OrderedDict[Any, _Kept] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Recipe:
    """All that windows are solved with, decided once for the whole picture. Pickles.

    Attributes
    ----------
    psfs : (p, m, n) ndarray
        One PSF, or one for each frame.
    lam : float
    dtype : str
    options : dict
        Those of `deblur.reconstruct` that were given, with the boundary of the picture.
    device : str or int
        Where windows are solved, by name: each process looks for its own.
    threads : int or None
        Of the transforms of one window; None is as many as there are.
    window : (int, int)
        The size that most windows have, or nearly: those are filtered on one torus.
    token : str
        Names the recipe in a process that keeps what it prepared.
    """

    psfs: np.ndarray
    lam: float
    dtype: str
    options: Options
    device: str | int = "cpu"
    threads: int | None = 1
    window: tuple[int, int] = (0, 0)
    token: str = field(default_factory=lambda: uuid4().hex)

    def __dask_tokenize__(self) -> str:
        return self.token

    def psf(self, frame: int) -> int:
        """The number of the PSF of that frame."""
        return frame if len(self.psfs) > 1 else 0


def restore(recipe: Recipe, window: Array, frame: int, at_frame: Sides, trim: Edges) -> Array:
    """The tile of a window.

    Parameters
    ----------
    recipe : Recipe
    window : (k, c, M, N) array
        The image there, with its colours, of frames `frame`, `frame` + 1 ...; integers are scaled as
        `deblur.reconstruct` scales them.
    at_frame : ((bool, bool), (bool, bool))
        Whether its first and last row, and its first and last column, are the picture's.
    trim : ((int, int), (int, int))
        Rows and columns to cut off.

    Returns
    -------
    (k, c, M', N') array
        Where `window` was, on the GPU or the host.

    Raises
    ------
    ValueError
        If the window holds NaN or infinity.
    """

    def one(psf: int, frames: slice, image: Array, to: Device) -> Array:
        return _tile(recipe, psf, image[frames], at_frame, trim, to)

    return by_psf(recipe, window, frame, one)


def _tile(recipe: Recipe, psf: int, window: Array, at_frame: Sides, trim: Edges, device: Device) -> Array:
    """The tile of a window: filtered, and solved where the frame is near."""
    shape, tile = window.shape[2:], within(window, trim)
    strips = [] if _inside(recipe, at_frame) else _strips(recipe.psfs[psf].shape, shape, at_frame, trim)
    by = None if strips is None else _filter(recipe, psf, shape, at_frame, device)
    if by is None:
        return _solver(recipe, psf, shape, at_frame, device)(window)[tile]
    f = by(window)[tile]
    for where, into, sides, cut in strips or []:
        part = window[where]
        f[into] = _solver(recipe, psf, part.shape[2:], sides, device)(part)[within(part, cut)]
    return f


def _inside(recipe: Recipe, at_frame: Sides) -> bool:
    return not any(map(any, at_frame)) or get_boundary(recipe.options["boundary"]).wraps


def _strips(
    psf: Sequence[int], shape: Sequence[int], at_frame: Sides, trim: Edges
) -> list[tuple[tuple[Any, ...], tuple[Any, ...], Sides, Edges]] | None:
    """The strips of a window along the frame, or None if they are most of it or it does not say what they have to see.

    Of each (where in the window, where in the tile, which sides are the picture's, what to cut off).
    """
    found, shapes = [], []
    for axis, (first, last) in enumerate(at_frame):
        if not (first or last):
            continue
        # The side that is not at the frame says what has to be seen; that of the frame where the tile begins.
        n, (rim, overlap) = shape[axis], trim[axis][::-1] if last else trim[axis]
        deep = strip(psf[axis], overlap)
        if (first and last) or not overlap:
            return None
        if deep <= rim:
            continue
        where, into, sides, cut = ([*x] for x in ((slice(None),) * 2, (slice(None),) * 2, at_frame, trim))
        if last:
            where[axis], into[axis] = slice(n - deep - overlap, n), slice(rim - deep, None)
            sides[axis], cut[axis] = (False, True), (overlap, rim)
        else:
            where[axis], into[axis] = slice(deep + overlap), slice(deep - rim)
            sides[axis], cut[axis] = (True, False), (rim, overlap)
        found.append(((..., *where), (..., *into), tuple(sides), tuple(cut)))
        shapes.append((deep + overlap, shape[1 - axis]))
    return found if worthwhile(shapes, shape) else None


def within(window: Array, trim: Edges) -> tuple[Any, ...]:
    """Where the tile is in a window."""
    (top, bottom), (left, right) = trim
    return (..., slice(top, window.shape[-2] - bottom), slice(left, window.shape[-1] - right))


def by_psf(
    recipe: Recipe, window: Array, frame: int, solve: Callable[[int, slice, Array, Device], Array]
) -> Array:
    """What `solve` makes of a window's frames, all at once or, where each has a PSF of its own, one by one.

    It is given the number of the PSF, which frames, the window as floats where it is to be solved, and where that is.
    What it gives back goes where the window was.
    """
    device = Device.of(window)
    to = device if device != CPU else Device.named(recipe.device)
    with granting(recipe.threads), to.current():
        image = as_float(window if device == to else _there(window, to)).astype(recipe.dtype, copy=False)
        check_finite(image, "the image")
        several = len(recipe.psfs) > 1
        each = [slice(i, i + 1) for i in range(len(image))] if several else [slice(None)]
        parts = [solve(recipe.psf(frame + i), frames, image, to) for i, frames in enumerate(each)]
        out = parts[0] if len(parts) == 1 else to.xp.concatenate(parts)
        out = to.xp.ascontiguousarray(out)
        return out if device == to else out.get(out=staging(out.shape, out.dtype))


def _there(window: np.ndarray, device: Device) -> Array:
    """A window of the host on a GPU."""
    native = np.ascontiguousarray(window, window.dtype.newbyteorder("="))
    there = device.xp.empty(native.shape, native.dtype)
    there.set(native)
    return there


def _solver(
    recipe: Recipe, psf: int, shape: tuple[int, ...], at_frame: Sides, device: Device
) -> Callable[[Array], Array]:
    """What solves windows of this kind as pictures, kept for the next one."""
    edge = get_boundary(recipe.options["boundary"])
    if not (
        edge.wraps or edge.dark
    ):  # one that goes on as the window does: which sides it has makes no difference
        at_frame = ((True, True), (True, True))
    return kept(
        (recipe.token, psf, shape, at_frame, device),
        lambda: _prepared(recipe, recipe.psfs[psf], shape, at_frame, device),
    )


def _filter(
    recipe: Recipe, psf: int, shape: tuple[int, ...], at_frame: Sides, device: Device
) -> Callable[[Array], Array] | None:
    """What filters windows of this kind, kept for the next one; None where what is asked for is no filter."""
    h = recipe.psfs[psf]
    request = kept(
        (recipe.token, psf, device),
        lambda: checked(h, (shape[0], shape[1]), recipe.lam, recipe.options, device=device, reuse=True),
    )
    problem = request.problem
    linear = request.method in ("auto", "fft") and not (problem.asked or problem.inverse or request.gamma)
    if not linear or min(shape) <= 2 * PRIOR_REACH:
        return None
    wraps = problem.operator.boundary.wraps
    sides = at_frame if wraps else ((False, False), (False, False))
    of_torus = lengths(h.shape, shape, sides, recipe.window)
    return kept(
        (recipe.token, psf, of_torus, device),
        lambda: _Filter(
            h, problem.blur.origin, recipe.lam, request.prior, Torus(of_torus, device), problem.dtype
        ),
    )


class _Kept:
    """What was made, or is just being made, under a key."""

    def __init__(self) -> None:
        self.lock, self.made = threading.Lock(), None


def kept(key: Any, make: Callable[[], Any]) -> Any:
    """What was made under that key, by whichever thread asked first, kept for the next window of its kind."""
    with _lock:
        one = _kept.setdefault(key, _Kept())
        _kept.move_to_end(key)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    with one.lock:
        if one.made is None:
            one.made = make()
        return one.made


def _prepared(
    recipe: Recipe, psf: np.ndarray, shape: tuple[int, ...], at_frame: Sides, device: Device
) -> Callable[[Array], Array]:
    rows, cols = shape
    boundary = get_boundary(recipe.options["boundary"])
    room: Edges = ((0, 0), (0, 0))
    if boundary.wraps or boundary.dark:
        room = pads(psf.shape, shape, at_frame, boundary.wraps)
    deblurrer = Deblurrer(
        psf,
        (rows + sum(room[0]), cols + sum(room[1])),
        recipe.lam,
        gpu=False if device.gpu is None else device.gpu,
        **recipe.options,
    )

    def solve(window: Array) -> Array:
        f = deblurrer(continued(window, room, fade=boundary.dark), stack_axis=0, channel_axis=1)
        return f[..., room[0][0] : room[0][0] + rows, room[1][0] : room[1][0] + cols]

    return solve


def pads(psf: Sequence[int], shape: Sequence[int], at_frame: Sides, wraps: bool) -> Edges:
    """Pixels by which the inner edges of a window are continued; of one that is to wrap round, all after its end."""
    rows, cols = (
        tuple(
            0 if at or (wraps and before) else min(max(2 * m, 16), n)
            for before, at in ((1, sides[0]), (0, sides[1]))
        )
        for m, n, sides in zip(psf, shape, at_frame, strict=True)
    )
    return rows, cols  # type: ignore[return-value]


def lengths(
    psf: Sequence[int], shape: Sequence[int], at_frame: Sides, like: Sequence[int] = (0, 0)
) -> tuple[int, int]:
    """Of the torus that a window inside the picture is continued to: one for all that are little smaller than `like`.

    An axis that a periodic picture's one tile covers is at the frame, and wraps round by itself.
    """
    room = pads(psf, shape, at_frame, wraps=True)
    rows, cols = (
        scipy.fft.next_fast_len((most if 2 * most <= 3 * n <= 3 * most else n) + after, real=True)
        if after
        else n
        for n, most, (_, after) in zip(shape, like, room, strict=True)
    )
    return rows, cols


class _Filter:
    """The kernel as a filter, for windows inside the picture."""

    def __init__(
        self, psf: np.ndarray, origin: Sequence[int], lam: float, prior: str, torus: Torus, dtype: np.dtype
    ) -> None:
        h = torus.spectrum(psf, origin)
        by = multiplier(torus, h, lam, "natural" if prior == "natural" else "identity")
        if prior != "zero":  # f = f̄ + k(g − h f̄), and f̄ is the image smoothed, by a filter without phase
            rows, cols = (max(m, 2 * PRIOR_REACH + 1) for m in psf.shape)
            point = np.zeros((rows, cols))
            point[PRIOR_REACH, PRIOR_REACH] = 1
            smooth = prior_scene(Blur(psf, (rows, cols), "periodic", origin=(origin[0], origin[1])), point)
            smooth = torus.spectrum(smooth, (PRIOR_REACH, PRIOR_REACH)).real
            by += smooth * (1 - (by * h).real)
        self._torus, self._by = torus, by.astype(np.result_type(dtype, np.complex64))

    @all_cores()
    def __call__(self, window: Array) -> Array:
        rows, cols = window.shape[-2:]
        down, right = (a - n for a, n in zip(self._torus.lengths, (rows, cols), strict=True))
        spectrum = self._torus.analyse(continued(window, ((0, down), (0, right))))
        spectrum *= self._by
        return self._torus.synthesise(spectrum, overwrite=True)[..., :rows, :cols]


def continued(x: Array, pads: Edges, fade: bool = False) -> Array:
    """Windows continued by their own pixels: mirrored and blended to wrap round, or mirrored and faded to black.

    Parameters
    ----------
    x : (..., M, N) array
    pads : ((int, int), (int, int))
        Pixels before and after each axis. What wraps round is continued after its end alone.
    fade : bool
    """
    xp = get_xp(x)
    for axis, (before, after) in zip((-2, -1), pads, strict=True):
        if not (before or after):
            continue
        x = xp.moveaxis(x, axis, -1)
        n = x.shape[-1]
        first, last = (xp.asarray(np.minimum(np.arange(p), n - 1)) for p in (before, after))
        if fade:
            ends = x[..., first[::-1]] * _rise(before, x), x[..., n - 1 - last] * _rise(after, x)[::-1]
        else:
            up = _rise(after, x)
            ends = x[..., :0], x[..., n - 1 - last] * (1 - up) + x[..., last[::-1]] * up
        x = xp.moveaxis(xp.concatenate([ends[0], x, ends[1]], axis=-1), -1, axis)
    return x


def _rise(n: int, like: Array) -> Array:
    """From 0 to 1 in n steps, smooth at both ends."""
    t = (np.arange(n) + 0.5) / max(n, 1)
    return get_xp(like).asarray((t * t * (3 - 2 * t)).astype(like.dtype))

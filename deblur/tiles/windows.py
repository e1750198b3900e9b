"""One window: a tile and what it sees beyond itself, restored, and cut to the tile.

A window inside the picture is continued by its own pixels until it wraps round, and filtered with the kernel of
`deblur.tiles.reach`: two transforms, whatever the PSF, and the error of the continuation is what the plan bounds. A
window at the frame is solved as a small picture with the picture's own boundary. Its inner edges then have that
boundary too, which is harmless where the boundary goes on as the window does (reflect, antireflect, unknown); where it
does not, the inner edges are continued until they meet it: blended to wrap round (periodic), or faded to black (zero).
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

from ..device import CPU, Array, Device, all_cores, asnumpy, check_finite, get_xp, granting
from ..image import as_float
from ..operators.blur import Blur
from ..operators.boundary import get_boundary
from ..operators.torus import Torus
from ..options import Options, checked
from ..pipeline import Deblurrer
from ..solvers.start import prior_scene
from .reach import PRIOR_REACH, multiplier

Sides = tuple[tuple[bool, bool], tuple[bool, bool]]
Edges = tuple[tuple[int, int], tuple[int, int]]

_KEPT = (
    12  # prepared solvers that a process keeps: of windows inside, at the sides and corners, of a few PSFs
)
_kept: OrderedDict[Any, Any] = OrderedDict()
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
    token : str
        Names the recipe in a process that keeps what it prepared.
    """

    psfs: np.ndarray
    lam: float
    dtype: str
    options: Options
    device: str | int = "cpu"
    threads: int | None = 1
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
    tile = within(window, trim)

    def one(psf: int, frames: slice, image: Array, to: Device) -> Array:
        return _solver(recipe, psf, image.shape[2:], at_frame, to)(image[frames])[tile]

    return by_psf(recipe, window, frame, one)


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
        image = as_float(window if device == to else to.xp.asarray(window)).astype(recipe.dtype, copy=False)
        check_finite(image, "the image")
        several = len(recipe.psfs) > 1
        each = [slice(i, i + 1) for i in range(len(image))] if several else [slice(None)]
        parts = [solve(recipe.psf(frame + i), frames, image, to) for i, frames in enumerate(each)]
        out = parts[0] if len(parts) == 1 else to.xp.concatenate(parts)
        return to.xp.ascontiguousarray(out) if device == to else asnumpy(out)


def _solver(
    recipe: Recipe, psf: int, shape: tuple[int, ...], at_frame: Sides, device: Device
) -> Callable[[Array], Array]:
    """What solves windows of this kind, kept for the next one."""
    edge = get_boundary(recipe.options["boundary"])
    if not (
        edge.wraps or edge.dark
    ):  # one that goes on as the window does: which sides it has makes no difference
        at_frame = (((any(map(any, at_frame)),) * 2),) * 2
    return kept(
        (recipe.token, psf, shape, at_frame, device),
        lambda: _prepared(recipe, recipe.psfs[psf], shape, at_frame, device),
    )


def kept(key: Any, make: Callable[[], Any]) -> Any:
    """What was made under that key, kept for the next window of its kind."""
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    made = make()
    with _lock:
        _kept[key] = made
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return made


def _prepared(
    recipe: Recipe, psf: np.ndarray, shape: tuple[int, ...], at_frame: Sides, device: Device
) -> Callable[[Array], Array]:
    rows, cols = shape
    request = checked(psf, (rows, cols), recipe.lam, recipe.options, device=device, reuse=True)
    boundary, problem = request.problem.operator.boundary, request.problem
    inside = not any(map(any, at_frame)) or boundary.wraps
    linear = request.method in ("auto", "fft") and not (problem.asked or problem.inverse or request.gamma)
    if inside and linear and min(shape) > 2 * PRIOR_REACH:
        return _Filter(request.problem.blur, recipe.lam, request.prior, at_frame, problem.dtype, device)
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


def wrapped(blur: Blur, at_frame: Sides, device: Device) -> tuple[Torus, Edges]:
    """The torus of a window inside the picture, and by how many pixels it is continued to wrap round."""
    # An axis that a periodic picture's one tile covers wraps round by itself.
    room = pads(blur.psf.shape, blur.image_shape, at_frame, wraps=True)
    lengths = [
        scipy.fft.next_fast_len(n + after, real=True) if after else n
        for n, (_, after) in zip(blur.image_shape, room, strict=True)
    ]
    rows, cols = ((0, a - n) for a, n in zip(lengths, blur.image_shape, strict=True))
    return Torus(lengths, device), (rows, cols)


class _Filter:
    """The kernel as a filter, for windows inside the picture."""

    def __init__(
        self, blur: Blur, lam: float, prior: str, at_frame: Sides, dtype: np.dtype, device: Device
    ) -> None:
        self._torus, self._pads = wrapped(blur, at_frame, device)
        lengths = self._torus.lengths
        by = multiplier(
            self._torus, blur.psf, blur.origin, lam, "natural" if prior == "natural" else "identity"
        )
        if prior != "zero":  # f = f̄ + k(g − h f̄), and f̄ is the image smoothed
            periodic = Blur(blur.psf, (lengths[0], lengths[1]), "periodic", origin=blur.origin)
            point = device.xp.zeros(lengths)
            point[PRIOR_REACH, PRIOR_REACH] = 1
            smooth = prior_scene(periodic, point)
            smooth = self._torus.analyse(device.xp.roll(smooth, (-PRIOR_REACH, -PRIOR_REACH), (0, 1)))
            by += smooth - by * periodic.transfer(device=device) * smooth
        self._by = by.astype(np.result_type(dtype, np.complex64))

    @all_cores()
    def __call__(self, window: Array) -> Array:
        rows, cols = window.shape[-2:]
        spectrum = self._torus.analyse(continued(window, self._pads))
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

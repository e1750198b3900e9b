"""Restoration of one window, a tile and its surroundings, which is then cut to the tile.

A window away from the border is continued by its own pixels until it wraps round, and filtered with the kernel of
`deblur.tiles.reach`: two transforms, whatever the PSF. The plan bounds the error of the continuation.

For a window at the border, the filter is correct except within an overlap of the border. There, strips along the border
are solved as small images with the image's boundary, which takes far longer for each pixel. A strip includes the
overlap beyond the part of it that is kept. A window that is little larger than its strips is solved as such an image
itself, and so is every window of a method that is not a filter. The inner edges of such an image then have the
image's boundary, too. This is harmless if the boundary continues the image as the window does (reflect, antireflect,
unknown). Otherwise the inner edges are continued until they meet the boundary: blended to wrap round (periodic), or
faded to black (zero; unknown with λ‖f‖², which draws pixels without data to black).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from ..device import CPU, Array, Device, check_finite, get_xp, staging
from ..image import as_float
from ..operators.blur import Blur
from ..operators.torus import Torus, wrapped
from ..pool import pool
from ..request import Request
from ..solvers.start import prior_scene
from ..threads import all_cores, thread_limit
from .problem import Recipe, window_solver
from .reach import PRIOR_REACH, multiplier, strip, worthwhile

Sides = tuple[tuple[bool, bool], ...]
Edges = tuple[tuple[int, int], ...]


def cut(n: int, tile: int, least: int) -> list[tuple[int, int]]:
    """Return an axis cut into tiles; a remainder at the end smaller than `least` belongs to the tile before."""
    firsts = list(range(0, n, tile))
    if len(firsts) > 1 and n - firsts[-1] < least:
        firsts.pop()
    return list(zip(firsts, [*firsts[1:], n], strict=True))


def surroundings(
    tile: Sequence[tuple[int, int]], overlap: Sequence[int], space: Sequence[int], wraps: bool
) -> tuple[list[list[slice]], Sides, Edges]:
    """Return the spans to read along each axis, which sides are the image's, and what to cut off, for a tile's window.

    If the window wraps round the border, it is read in several spans.
    """
    where, sides, trim = [], [], []
    for (a, b), d, n in zip(tile, overlap, space, strict=True):
        first, last = a - d, b + d
        if wraps and (a, b) != (0, n):
            cuts = [first, *range(first - first % n + n, last, n), last]  # at multiples of n
            where.append([slice(s % n, (t - 1) % n + 1) for s, t in pairwise(cuts)])
            sides.append((False, False))
            trim.append((d, d))
            continue
        first, last = max(0, first), min(n, last)
        where.append([slice(first, last)])
        sides.append((first == 0, last == n))
        trim.append((a - first, last - b))
    return where, tuple(sides), tuple(trim)


def restore(recipe: Recipe, window: Array, at_border: Sides, trim: Edges) -> Array:
    """Return the tile of a window.

    Parameters
    ----------
    recipe : Recipe
    window : (k, c, M, N) array
        The image in the window, with its colours, for k frames of one PSF. Integers are scaled as in
        `deblur.reconstruct`.
    at_border : ((bool, bool), ...)
        Whether the first and the last pixel along each axis belong to the image's border.
    trim : ((int, int), ...)
        Pixels to cut off at either end of each axis.

    Returns
    -------
    (k, c, M', N') array
        The restored tile, on the device of `window`.

    Raises
    ------
    ValueError
        If the window contains NaN or infinity.
    """
    shape, tile = window.shape[2:], within(window.shape, trim)
    inside = not any(map(any, at_border)) or recipe.boundary.wraps

    def solved(image: Array, device: Device) -> Array:
        strips = [] if inside else _strips(recipe.psf.shape, shape, at_border, trim)
        by = None if strips is None else _filter(recipe, shape, at_border, device)
        if by is None:
            return _solver(recipe, shape, at_border, device)(image)[tile]
        f = by(image)[tile]
        for where, into in strips or []:
            part = image[where]
            f[into] = _solver(recipe, part.shape[2:], at_border, device)(part)[within(part.shape, trim)]
        return f

    return on_device(recipe, window, solved)


def _strips(
    psf: Sequence[int], shape: Sequence[int], at_border: Sides, trim: Edges
) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]] | None:
    """Return where the strips along the border lie in a window, and where their results lie in its tile.

    None means that they are most of the window, or that an overlap is missing. A strip is cut as the window is.
    """
    found, shapes = [], []
    for axis, (first, last) in enumerate(at_border):
        if not (first or last):
            continue
        # The cut at the inner side is the overlap; the cut at the border is the distance of the tile from it.
        n, (edge, overlap) = shape[axis], trim[axis][::-1] if last else trim[axis]
        deep = strip(psf[axis], overlap)
        if (first and last) or not overlap:
            return None
        if deep <= edge:
            continue
        wide, kept = deep + overlap, deep - edge
        before, after = (slice(None),) * axis, (slice(None),) * (len(shape) - axis - 1)
        where, into = (slice(n - wide, n), slice(-kept, None)) if last else (slice(wide), slice(kept))
        found.append(((..., *before, where, *after), (..., *before, into, *after)))
        shapes.append((*shape[:axis], wide, *shape[axis + 1 :]))
    return found if worthwhile(shapes, shape) else None


def within(shape: Sequence[int], trim: Edges) -> tuple[Any, ...]:
    """Return the index of the tile in a window of this shape."""
    return (..., *(slice(first, n - last) for n, (first, last) in zip(shape[-len(trim) :], trim, strict=True)))


def on_device(recipe: Recipe, window: Array, solve: Callable[[Array, Device], Array]) -> Array:
    """Return the result of `solve` for a window, on the device of the window.

    `solve` takes the window as floats on the solving device, and that device.
    """
    device = Device.of(window)
    to = device if device != CPU else Device.named(recipe.device)
    with thread_limit(recipe.threads), to.current():
        if device != to:
            native = np.ascontiguousarray(window, window.dtype.newbyteorder("="))
            window = to.xp.empty(native.shape, native.dtype)
            window.set(native)
        image = as_float(window).astype(recipe.options["dtype"], copy=False)
        check_finite(image, "the image")
        out = to.xp.ascontiguousarray(solve(image, to))
        return out if device == to else out.get(out=staging(out.shape, out.dtype))


def prepared(
    recipe: Recipe, device: Device, shape: Sequence[int], what: tuple[Any, ...], make: Callable[[], Any]
) -> Any:
    """Return `make()` for windows of this shape on a device, computed once in a process and cached."""
    nbytes = 4 * math.prod(shape) * np.dtype(recipe.options["dtype"]).itemsize
    return pool(device.gpu).get(("tiles", recipe.token, tuple(shape), *what), make, nbytes)


def _solver(recipe: Recipe, shape: tuple[int, ...], at_border: Sides, device: Device) -> Callable[[Array], Array]:
    """Return a function that solves windows of this kind as images, cached."""
    wraps, dark = recipe.boundary.wraps, _request(recipe, shape, device).dark
    if not (wraps or dark):  # the boundary continues the image as windows are continued
        at_border = ((True, True),) * len(shape)
    room = pads(recipe.psf.shape, shape, at_border, wraps)

    def make() -> Callable[[Array], Array]:
        wide: Any = tuple(n + sum(p) for n, p in zip(shape, room, strict=True))
        restored = window_solver(recipe, wide, device)

        def solve(window: Array) -> Array:
            f = restored(faded(window, room) if dark else wrapped(window, wide))
            return f[within(f.shape, room)]

        return solve

    return prepared(recipe, device, shape, (at_border,), make)


def _request(recipe: Recipe, shape: tuple[int, ...], device: Device) -> Request:
    """Return the request for windows of any shape, cached."""
    return prepared(recipe, device, (), (), partial(recipe.request, shape, device))


def _filter(
    recipe: Recipe, shape: tuple[int, ...], at_border: Sides, device: Device
) -> Callable[[Array], Array] | None:
    """Return a function that filters windows of this kind, cached; None if the restoration is not a filter."""
    request = _request(recipe, shape, device)
    problem = request.problem
    if problem.asked or problem.inverse or request.options["gamma"] == "srgb" or request.method not in ("auto", "fft"):
        return None
    if min(shape) <= 2 * PRIOR_REACH:
        return None
    sides = at_border if problem.operator.boundary.wraps else ((False, False),) * len(shape)
    of_torus = lengths(recipe.psf.shape, shape, sides, recipe.window)
    return prepared(recipe, device, of_torus, ("filter",), lambda: _by_kernel(request, Torus(of_torus, device)))


def pads(psf: Sequence[int], shape: Sequence[int], at_border: Sides, wraps: bool) -> Edges:
    """Return the pixels by which a window's inner edges are continued; all after its end if it is to wrap round."""
    room = (min(max(2 * m, 16), n) for m, n in zip(psf, shape, strict=True))
    return tuple(
        (0 if before or wraps else p, 0 if after else p) for p, (before, after) in zip(room, at_border, strict=True)
    )


def lengths(
    psf: Sequence[int], shape: Sequence[int], at_border: Sides, like: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return the lengths of the torus to which a window is continued; windows of about the size `like` share one torus.

    An axis that one tile of a periodic image covers is at the border, and wraps round itself.
    """
    each = zip(shape, like or shape, pads(psf, shape, at_border, wraps=True), strict=True)
    return tuple(
        scipy.fft.next_fast_len((most if 2 * most <= 3 * n <= 3 * most else n) + after, real=True) if after else n
        for n, most, (_, after) in each
    )


def _by_kernel(request: Request, torus: Torus) -> Callable[[Array], Array]:
    """Return the kernel as a filter, for windows away from the border."""
    problem, blur = request.problem, request.problem.blur
    h = torus.spectrum(blur.psf, blur.origin)
    by = multiplier(torus, h, problem)
    # f = f̄ + k(g − h f̄), where f̄ is the image smoothed by a filter without phase.
    if request.prior != "zero":
        point = np.zeros([max(m, 2 * PRIOR_REACH + 1) for m in blur.psf.shape])
        middle = (PRIOR_REACH,) * point.ndim
        point[middle] = 1
        smooth = prior_scene(Blur(blur.psf, point.shape, "periodic", origin=blur.origin), point)
        smooth = torus.spectrum(smooth, middle).real
        by += smooth * (1 - (by * h).real)
    return wrapping(torus, by.astype(np.result_type(problem.dtype, np.complex64)))


def wrapping(torus: Torus, by: Array) -> Callable[[Array], Array]:
    """Return a filter of windows, which are continued by their own pixels until they wrap round the torus."""

    @all_cores()
    def solve(window: Array) -> Array:
        space = window.shape[-len(torus.lengths) :]
        return torus.product(wrapped(window, torus.lengths), by)[(..., *map(slice, space))]

    return solve


def faded(x: Array, pads: Edges) -> Array:
    """Return windows (..., *space) continued by mirrored pixels that fade to black, before and after each axis."""
    xp = get_xp(x)
    ramps = (
        np.concatenate([_rise(before), np.ones(n), _rise(after)[::-1]])
        for n, (before, after) in zip(x.shape[-len(pads) :], pads, strict=True)
    )
    wide = xp.pad(x, (*((0, 0),) * (x.ndim - len(pads)), *pads), mode="symmetric")
    return wide * xp.asarray(reduce(np.multiply.outer, ramps).astype(x.dtype))


def _rise(n: int) -> np.ndarray:
    """Return n values that rise smoothly from 0 to 1."""
    t = (np.arange(n) + 0.5) / max(n, 1)
    return t * t * (3 - 2 * t)

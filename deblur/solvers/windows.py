"""Windows of a large image that represent it when λ or a number of iterations is chosen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from ..device import Array
from ..operators.blur import Blur
from ..problem import Problem

_WINDOW = 256  # least side, in pixels, of windows that represent a large image; a quarter of it for a volume


def side_for(psf: Array) -> list[int]:
    """Return the sides, in pixels, of windows for the choice of λ; volumes have about as many pixels as images."""
    lengths = [max(psf.shape)] * 2 if psf.ndim == 2 else psf.shape
    return [max(round(128 ** (2 / psf.ndim)), 3 * m) for m in lengths]


def watched_sides(psf: Array) -> list[int]:
    """Return the sides, in pixels, of windows for the choice of the number of iterations."""
    return [max(_WINDOW, 3 * max(psf.shape)) if psf.ndim < 3 else max(_WINDOW // 4, 2 * max(psf.shape))] * psf.ndim


def watched_step(pixels: float, axes: int) -> int:
    """Return n such that every n-th pixel along each axis suffices, for windows of so many pixels."""
    return max(int((pixels / _WINDOW**2) ** (1 / axes)), 1)


def cut(
    problem: Problem, g: Array, w: Array | None, *, side: Sequence[int], interior: bool = False, most: int | None = None
) -> tuple[Problem, Array, Array | None]:
    """Return windows of frames (k, c, M, N) as frames of a problem with an open boundary, or all frames unchanged.

    Parameters
    ----------
    problem : Problem
    g : (k, c, M, N) array
    w : array that broadcasts to `g`, or None
        Weights of `g`.
    side : sequence of int
        Pixels of a window along each axis; more if the PSF has more, and fewer if the image has fewer.
    interior : bool
        Whether the caller disregards the boundary; otherwise windows require an open boundary.
    most : int, optional
        Largest number of windows; those where the frames vary most are taken. By default all.

    Returns
    -------
    problem, frames, weights
        The arguments themselves if the image is small, too narrowly masked or has another boundary. Otherwise the
        windows' problem with their weights (if there are any), the windows stacked as frames, and their weights.
    """
    blur, space = problem.operator.shift_invariant, g.shape[2:]
    if blur is None or not (interior or blur.boundary.open):
        return problem, g, w
    sides = [min(n, max(m, h)) for n, m, h in zip(space, side, blur.psf.shape, strict=True)]
    if (area := math.prod(space) / math.prod(sides)) < 3:
        return problem, g, w
    count = min(max(int(math.sqrt(area) / 4), 2), 4)  # along each axis
    starts = [[round((i + 0.5) * (n - m) / count) for i in range(count)] for n, m in zip(space, sides, strict=True)]
    # A diagonal of windows, or a grid if the image has room for it.
    places = dict.fromkeys(itertools.product(*starts) if area >= 8 else zip(*starts, strict=True))
    at = [(..., *(slice(a, a + m) for a, m in zip(place, sides, strict=True))) for place in places]
    at = sorted(at, key=lambda here: -float(g[here].var()) if most else 0.0)[:most]
    xp = problem.xp
    if w is not None:
        weights = xp.broadcast_to(w, g.shape)
        at = [here for here in at if float((weights[here] > 0).mean()) >= 0.5]  # at least half of the pixels visible
        if not at:
            return problem, g, w
        w = xp.concatenate([weights[here] for here in at])
    window = Blur(blur.psf, sides, "unknown", origin=blur.origin)
    fidelity, frames = replace(problem.fidelity, weights=w), problem.frames * len(at)
    problem = replace(problem, operator=window, fidelity=fidelity, frames=frames)
    return problem, xp.concatenate([g[here] for here in at]), w


def posed(problem: Problem, side: Sequence[int], *, interior: bool = False, most: int | None = None) -> Problem:
    """Return the problem that `cut` returns for any image of this problem."""
    g = problem.xp.broadcast_to(problem.xp.zeros(1, problem.dtype), (problem.frames, 1, *problem.operator.image_shape))
    return cut(problem, g, None, side=side, interior=interior, most=most)[0]

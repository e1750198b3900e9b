"""Windows of a large image, from which numbers such as λ are chosen for the whole of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from ..device import Array
from ..operators.blur import Blur
from ..problem import Problem

_WINDOW = 256  # pixels of a side, at least, of the windows that stand for a large image; a quarter for a volume


def side_for(psf: Array) -> list[int]:
    """Sides, in pixels, of the windows that λ is chosen from; for volumes about as many as for images."""
    if psf.ndim == 2:
        return [max(128, 3 * max(psf.shape))] * 2
    return [max(round(128 ** (2 / psf.ndim)), 3 * m) for m in psf.shape]


def watched_sides(psf: Array) -> list[int]:
    """Of the windows from which the number of iterations is found."""
    return [max(_WINDOW, 3 * max(psf.shape)) if psf.ndim < 3 else max(_WINDOW // 4, 2 * max(psf.shape))] * psf.ndim


def watched_step(pixels: float, axes: int) -> int:
    """Of so many pixels, the n-th along each axis suffice: n."""
    return max(int((pixels / _WINDOW**2) ** (1 / axes)), 1)


def cut(
    problem: Problem, g: Array, w: Array | None, *, side: Sequence[int], interior: bool = False, most: int | None = None
) -> tuple[Problem, Array, Array | None]:
    """Windows spread over frames (k, c, M, N), as frames of a problem with an open boundary; or all as it is.

    Parameters
    ----------
    problem, g : Problem, (k, c, M, N) array
    w : array that broadcasts to `g`, or None
        Its weights.
    side : sequence of int
        Pixels along each axis; fewer where there are not as many.
    interior : bool
        Whether the caller needs nothing of the boundary; else it must be open already.
    most : int, optional
        How many windows, those where the frames vary most; all by default.

    Returns
    -------
    problem, frames, weights
        Those that were given, where the whole image is to be used. The windows' problem has the weights, if there are
        any.
    """
    blur, space = problem.operator.shift_invariant, g.shape[2:]
    sides = [min(n, m) for n, m in zip(space, side, strict=True)]
    area = math.prod(space) / math.prod(sides)
    if blur is None or area < 3 or not (interior or blur.boundary.open):
        return problem, g, w
    count = min(max(int(math.sqrt(area) / 4), 2), 4)  # along each axis
    pairs = zip(space, sides, strict=True)
    starts = [[round((i + 0.5) * (n - m) / count) for i in range(count)] for n, m in pairs]
    # A diagonal of windows, or a grid if the image has room for it.
    places = dict.fromkeys(itertools.product(*starts) if area >= 8 else zip(*starts, strict=True))
    at = [(..., *(slice(a, a + m) for a, m in zip(place, sides, strict=True))) for place in places]
    at.sort(key=lambda here: -float(g[here].var()) if most else 0.0)
    at = at[:most]
    xp = problem.xp
    if w is not None:
        weights = xp.broadcast_to(w, g.shape)
        at = [here for here in at if float((weights[here] > 0).mean()) >= 0.5]  # that show half of their pixels
        if not at:
            return problem, g, w
        w = xp.concatenate([weights[here] for here in at])
    window = Blur(blur.psf, sides, "unknown", origin=blur.origin)
    fidelity, frames = replace(problem.fidelity, weights=w), problem.frames * len(at)
    problem = replace(problem, operator=window, fidelity=fidelity, frames=frames)
    return problem, xp.concatenate([g[here] for here in at]), w

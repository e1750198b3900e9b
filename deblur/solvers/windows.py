"""Windows of a large image, from which numbers such as λ are chosen for the whole of it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from ..device import Array
from ..operators.blur import Blur
from ..problem import Problem


def side_for(psf: Array) -> int:
    """Side, in pixels, of the windows that λ is chosen from."""
    return max(128, 3 * max(psf.shape))


def cut(
    problem: Problem, g: Array, weights: Array | None, *, side: int, interior: bool = False
) -> tuple[Problem, Array, Array | None] | None:
    """Windows spread over frames (k, c, M, N), as frames of a problem with an open boundary.

    Parameters
    ----------
    problem, g : Problem, (k, c, M, N) array
    weights : array that broadcasts to `g`, or None
    side : int
        Pixels, of images. Windows of lines and volumes have as many pixels, or three times the PSF's along each axis,
        and no more than the volume.
    interior : bool
        Whether the caller needs nothing of the boundary; else it must be open already.

    Returns
    -------
    (problem, frames, weights) or None
        None where the whole image is to be used. The problem's fit has the weights, if there are any.
    """
    blur, space = problem.operator.shift_invariant, g.shape[2:]
    if blur is None or not (interior or blur.boundary.open):
        return None
    sides = [side, side]
    if len(space) != 2:
        least = round(side ** (2 / len(space)))
        sides = [min(n, max(least, 3 * m)) for n, m in zip(space, blur.psf.shape, strict=True)]
    area = math.prod(space) / math.prod(sides)
    if area < 3 or any(n < s for n, s in zip(space, sides, strict=True)):
        return None
    count = min(max(int(math.sqrt(area) / 4), 2), 4)  # along each axis
    pairs = [*zip(space, sides, strict=True)]
    starts = [[round((i + 0.5) * (n - s) / count) for i in range(count)] for n, s in pairs]
    # A diagonal of windows, or a grid if the image has room for it.
    places = itertools.product(*starts) if area >= 8 else zip(*starts, strict=True)
    at = [(..., *(slice(a, a + s) for a, s in zip(place, sides, strict=True))) for place in places]
    xp = problem.xp
    if weights is not None:
        w = xp.broadcast_to(weights, g.shape)
        at = [here for here in at if float((w[here] > 0).mean()) >= 0.5]  # that show half of their pixels
        if not at:
            return None
        weights = xp.concatenate([w[here] for here in at])
    window = Blur(blur.psf, sides, "unknown", origin=blur.origin)
    problem = replace(problem, operator=window, fidelity=replace(problem.fidelity, weights=weights))
    return problem, xp.concatenate([g[here] for here in at]), weights

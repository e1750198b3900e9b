"""Windows of a large image, from which numbers such as λ are chosen for the whole of it."""

from __future__ import annotations

import math
from dataclasses import replace

from ..device import Array
from ..operators.blur import Blur
from ..problem import Problem

#: Of an image's area over a window's: below the first the whole image is used, from the second on a grid of windows.
_WHOLE, _GRID_FROM = 3.0, 8.0


def side_for(psf: Array) -> int:
    """Side, in pixels, of the windows that λ is chosen from."""
    return max(128, 3 * max(psf.shape))


def looked_at(problem: Problem, side: int | None = None, interior: bool = False) -> int:
    """Pixels of the windows that `cut` makes, by default those that λ is chosen from, or of the whole image."""
    blur, shape = problem.operator.shift_invariant, problem.operator.image_shape
    whole = math.prod(shape)
    if blur is None:
        return whole
    side = side_for(blur.psf) if side is None else side
    area = whole / side**2
    if area < _WHOLE or min(shape) < side or not (interior or blur.boundary.open):
        return whole
    return side**2 * (_each_way(area) if area < _GRID_FROM else _each_way(area) ** 2)


def _each_way(area: float) -> int:
    """Windows along each axis of an image whose area is that of `area` windows."""
    return min(max(int(math.sqrt(area) / 4), 2), 4)


def cut(
    problem: Problem, g: Array, weights: Array | None, *, side: int, interior: bool = False
) -> tuple[Problem, Array, Array | None] | None:
    """Square windows spread over frames (k, c, M, N), as frames of a problem with an open boundary.

    Parameters
    ----------
    problem, g : Problem, (k, c, M, N) array
    weights : array that broadcasts to `g`, or None
    side : int
        Pixels.
    interior : bool
        Whether the caller needs nothing of the boundary; else it must be open already.

    Returns
    -------
    (problem, frames, weights) or None
        None where the whole image is to be used. The problem's fit has the weights, if there are any.
    """
    blur, (rows, cols) = problem.operator.shift_invariant, g.shape[-2:]
    area = rows * cols / side**2
    if blur is None or area < _WHOLE or min(rows, cols) < side or not (interior or blur.boundary.open):
        return None
    count = _each_way(area)
    down, right = ([round((i + 0.5) * (n - side) / count) for i in range(count)] for n in (rows, cols))
    pairs = [(a, b) for a in down for b in right] if area >= _GRID_FROM else zip(down, right, strict=True)
    at = [(..., slice(a, a + side), slice(b, b + side)) for a, b in pairs]
    xp = problem.xp
    if weights is not None:
        w = xp.broadcast_to(weights, g.shape)
        at = [
            here for here in at if float((w[here] > 0).mean()) >= 0.5
        ]  # windows that show half of their pixels
        if not at:
            return None
        weights = xp.concatenate([w[here] for here in at])
    window = Blur(blur.psf, (side, side), "unknown", origin=blur.origin)
    fidelity = replace(problem.fidelity, weights=weights)
    return (
        replace(problem, operator=window, fidelity=fidelity),
        xp.concatenate([g[here] for here in at]),
        weights,
    )

"""The restored image verified: seams measured on a few tiles, and the residual of the whole image, tile by tile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import asnumpy
from ..errors import MethodError
from ..problem import Solution
from ..threads import thread_limit
from ..verify import joined
from .plan import TilePlan
from .problem import Recipe, verified
from .reach import margin
from .windows import surroundings

if TYPE_CHECKING:
    from .tiling import Layout, Tiling


@dataclass(frozen=True)
class Residual:
    """The residual of the whole image, without the pixels near the border: no scene is stored beyond it.

    Attributes
    ----------
    residual : float or None
        ‖b − A f‖ / ‖b‖ of (HᵀH + λI) f = Hᵀ g, or with f̄ and g − H f̄ where the scene is drawn towards f̄; None for
        a restoration that is not the linear formula. Of the prior "natural" both sides are multiplied by BBᵀ.
    data_residual : float
        ‖H f − g‖ / ‖g‖.
    tiles : int
        The number of verified tiles; each part of a large tile counts. Tiles next to a failed one, and tiles that
        lie wholly near the border, are not verified.
    """

    residual: float | None
    data_residual: float
    tiles: int


def measured(tiling: Tiling, plan: TilePlan) -> list[float]:
    """The seams of four tiles spread over the image: the largest change by twice the overlap, relative to the range."""
    if not any(plan.overlap) or plan.passes > 1:
        return []
    seams = []
    side = [min(t, max(256, 2 * d)) for t, d in zip(plan.tile, plan.overlap, strict=True)]
    for frame, corner in tiling.layout.spread(4, side):
        tile = tuple((c, c + s) for c, s in zip(corner, side, strict=True))
        with suppress(ValueError):  # NaN, which is reported for the tile itself
            once, twice = (tiling.solve(tiling.img, frame, tile, [k * d for d in plan.overlap])[0] for k in (1, 2))
            seams.append(float(abs(once - twice).max()) / (tiling.range or 1.0))
    return seams


def with_measured_overlap(tiling: Tiling, psf: np.ndarray, planned: Callable[[Sequence[int]], TilePlan]) -> TilePlan:
    """The plan with the smallest overlap, of those tried, whose seam on the image itself is small enough.

    An iteration that stops early gives another result on every window, however wide. The search ends where twice the
    overlap no longer halves the seam: no overlap gives a much smaller one.
    """
    overlap = [max(4, m) for m in psf.shape]
    best: TilePlan | None = None
    while True:
        plan = planned(overlap)
        if plan.answer != "measure":
            return plan
        seams = measured(tiling, plan)
        worst = max(seams, default=0.0)
        plan = replace(
            plan,
            seam=worst,
            reason=f"the seam of method {plan.method!r} was measured on {len(seams)} tiles at this overlap and at "
            f"twice that, and is {worst:.1e} of the range",
        )
        if worst <= plan.tolerance:
            return plan
        if best is not None and worst > 0.5 * best.seam:
            return replace(best, reason=f"{best.reason}, which is left by its stopping rule; a smaller rtol lessens it")
        best, overlap = plan, [2 * d for d in overlap]
        if any(d > t and t < n for d, t, n in zip(overlap, plan.tile, plan.shape, strict=True)):
            raise MethodError(
                f"with an overlap of {plan.overlap} pixels the seam of method {plan.method!r} is still {worst:.1e} "
                f"of the range, above the tolerance {plan.tolerance:.1e}; give a larger tolerance, larger tiles or "
                "a larger λ"
            )


def residual(
    tiling: Tiling, image: Any, restored: Any, run: Callable[..., Iterable[Any]] = itertools.starmap
) -> Residual | None:
    """The residual of the whole image; None if no tile can be verified.

    `image` and `restored` are arrays that can be sliced; `run` is a function like `itertools.starmap`.
    """
    parts = [part for tile in tiling.tiles for part in _in_parts(tiling, tile)]
    places = itertools.product(range(tiling.layout.frames), parts)
    one = partial(of_tile, tiling.recipe, tiling.layout, image, restored)
    done = [part for part in run(one, places) if part is not None]
    if not done:
        return None
    found = joined(done)
    return Residual(found.residual if tiling.recipe.linear else None, found.data_residual, len(done))


def _in_parts(tiling: Tiling, tile: Sequence[tuple[int, int]]) -> Iterable[tuple[tuple[int, int], ...]]:
    """A tile in parts, small enough to be verified in the memory of a worker: 112 bytes a pixel were measured."""
    sides, beyond = [b - a for a, b in tile], margin(tiling.recipe.psfs.shape[1:])
    most = tiling.plan.memory // (112 * tiling.layout.colours)
    while math.prod(s + 2 * e for s, e in zip(sides, beyond, strict=True)) > most and max(sides) > 32:
        sides[sides.index(max(sides))] = -(-max(sides) // 2)
    spans = ([(i, min(i + s, b)) for i in range(a, b, s)] for (a, b), s in zip(tile, sides, strict=True))
    return itertools.product(*spans)


def of_tile(recipe: Recipe, layout: Layout, image: Any, restored: Any, frame: int, tile: Any) -> Solution | None:
    """The figures of one tile, without its arrays; None where it is not finite or near the border."""
    e = margin(recipe.psfs.shape[1:])
    where, _, trim = surroundings(tile, e, layout.space, wraps=False)
    kept = tuple(  # nor within a margin of the border
        slice(m if span.start == 0 else before, span.stop - span.start - (m if after < m else after))
        for [span], (before, after), m in zip(where, trim, e, strict=True)
    )
    if any(k.stop <= k.start for k in kept):
        return None
    f, g = (asnumpy(layout.read(x, frame, where))[0] for x in (restored, image))
    if not np.isfinite(f).all():  # a tile that could not be restored
        return None
    with thread_limit(recipe.threads):
        found = verified(recipe, recipe.psf(frame), f, g, kept)
    return replace(found, scene=None, difference=None)

"""Verification of the restored image: measured seams of a few tiles, and the residual of the whole image by tiles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import asnumpy
from ..operators.matrix import by
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
    """The residual of the whole image, except near the border, since no scene is stored beyond it.

    Attributes
    ----------
    residual : float or None
        ‖b − A f‖ / ‖b‖ of (HᵀH + λI) f = Hᵀ g, or the same for f − f̄ and g − H f̄ if the scene is drawn towards f̄.
        None for other restorations than the linear formula. For the prior "natural", both sides are multiplied by BBᵀ.
    data_residual : float
        ‖H f − g‖ / ‖g‖.
    tiles : int
        Number of verified tiles; each part of a large tile counts. Tiles next to a failed one, and tiles that are
        entirely near the border, are not verified.
    """

    residual: float | None
    data_residual: float
    tiles: int


def measured(tiling: Tiling) -> list[float]:
    """Return the seams of up to eight tiles: the largest change by a larger overlap, as a share of the range.

    Only a corner of a large tile is solved. The larger overlap is twice the planned one, and at least two PSFs, since
    twice a smaller one may leave the same error.
    """
    plan, space, tiles = tiling.plan, tiling.layout.space, tiling.tiles
    if len(tiles) == 1 or plan.passes > 1:
        return []
    wider = [2 * max(d, m) for d, m in zip(plan.overlap, tiling.recipe.psfs.shape[1:], strict=True)]

    def corner(tile: Any, number: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of a part of a tile where neighbours meet; the number selects the corner."""
        for axis, ((a, b), d, n) in enumerate(zip(tile, plan.overlap, space, strict=True)):
            side = n if b - a == n else min(b - a, max(tiling.side, 2 * d))
            turn = bool(number >> axis & 1)
            before = a > 0 and (turn or b == n)  # with neighbours on both sides, the number decides
            yield (a, a + side) if before else (b - side, b)

    seams, every = [], tiling.layout.frames * len(tiles)
    places = np.random.default_rng(0).choice(every, min(8, every), replace=False).tolist()
    for number, (frame, place) in enumerate(divmod(place, len(tiles)) for place in places):
        part = tuple(corner(tiles[place], number))
        with suppress(ValueError, OSError):  # which is reported for the tile itself
            near, far = (tiling.solve([tiling.img], (frame, 1), part, overlap)[0] for overlap in (plan.overlap, wider))
            seams.append(float(abs(near - far).max()) / (tiling.range or 1.0))
    return seams


def with_seam(tiling: Tiling, plan: TilePlan) -> TilePlan:
    """Return the plan with its measured seam."""
    tiling.plan = plan
    seams = tiling.measure()
    why = f"its seam was measured on {len(seams)} tiles, against more overlap"
    return replace(plan, seam=max(seams, default=0.0), reason=why)


def with_measured_overlap(
    tiling: Tiling, overlap: Sequence[int], planned: Callable[[Sequence[int]], TilePlan]
) -> TilePlan:
    """Return the plan with the smallest overlap, of this and its doubles, whose measured seam is small enough.

    An iteration that stops early has different results on all windows, however wide. So the search ends if four times
    the overlap, or all that the tiles have room for, does not halve the seam: then no overlap makes it much smaller.
    """
    plans = list[TilePlan]()
    while (plan := planned(overlap)).answer == "measure":
        plans.append(plan := with_seam(tiling, plan))
        if plan.seam <= plan.tolerance:
            break
        overlap = [2 * d for d in overlap]
        ended = any(d > t and t < n for d, t, n in zip(overlap, plan.tile, plan.shape, strict=True))
        before = plans[-2:-1] if ended else plans[-3:-2]
        if before and plan.seam > 0.5 * before[0].seam:
            best = next(p for p in plans if p.seam < 2 * plan.seam)
            left = f"is left by the stopping rule of method {plan.method!r}; rtol={0.1 * plan.tolerance:.1g} reduces it"
            return replace(best, reason=f"{best.reason}, and {left}")
        if ended:
            why = f"the seam of method {plan.method!r} with an overlap of {by(plan.overlap)} pixels is still"
            instead = "give a larger tolerance, larger tiles or a larger λ"
            return replace(plan, answer="none", reason=f"{why} {plan.seam:.1e} of the range; {instead}")
    return plan


def residual(
    tiling: Tiling, image: Any, restored: Any, run: Callable[..., Iterable[Any]] = itertools.starmap
) -> Residual | None:
    """Return the residual of the whole image, or None if no tile can be verified.

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
    """Yield parts of a tile that a worker's memory can verify: 112 bytes a pixel were measured."""
    sides, beyond = [b - a for a, b in tile], margin(tiling.recipe.psfs.shape[1:])
    most = tiling.plan.memory // (112 * tiling.layout.colours)
    while math.prod(s + 2 * e for s, e in zip(sides, beyond, strict=True)) > most and max(sides) > 32:
        sides[sides.index(max(sides))] = -(-max(sides) // 2)
    spans = ([(i, min(i + s, b)) for i in range(a, b, s)] for (a, b), s in zip(tile, sides, strict=True))
    return itertools.product(*spans)


def of_tile(recipe: Recipe, layout: Layout, image: Any, restored: Any, frame: int, tile: Any) -> Solution | None:
    """Return the figures of one tile, without its arrays; None if it is not finite or is near the border."""
    e = margin(recipe.psfs.shape[1:])
    where, _, trim = surroundings(tile, e, layout.space, wraps=False)
    kept = tuple(  # pixels beyond a margin of the image's border
        slice(m if span.start == 0 else before, span.stop - span.start - (m if after < m else after))
        for [span], (before, after), m in zip(where, trim, e, strict=True)
    )
    if any(k.stop <= k.start for k in kept):
        return None
    try:
        f, g = (asnumpy(layout.read(x, frame, where))[0] for x in (restored, image))
    except OSError:  # a part that cannot be read, which is reported for the tile itself
        return None
    if not np.isfinite(f).all():  # a tile that could not be restored
        return None
    with thread_limit(recipe.threads):
        found = verified(recipe.of(frame), f, g, kept)
    return replace(found, scene=None, difference=None)

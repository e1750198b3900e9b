"""Tiles that are solved in passes, if the necessary overlap is larger than a tile can be.

With A = HHᵀ + λI, the scene is f = f̄ + Hᵀy, where Ay = g − H f̄. y has the pixels of the image for any boundary, and A
reaches no farther than the PSF. So the residual of y,

    r = g − λy − H (f̄ + Hᵀy) ,

is known in a window except within a margin. A pass solves every window for its r, continued by zeros, and adds the
tile's part of the solution to y (block Jacobi on overlapping windows: a restricted Schwarz iteration, X.-C. Cai,
M. Sarkis, SIAM J. Sci. Comput. 21 (1999)). The error afterwards is the contribution of r from beyond the window. It has
the seam's kernel, but r is nonzero along the cuts only. Hence every pass reduces the error by about the seam of its
overlap. The actual factor, which is larger for a diagonal PSF, is measured on a part of the image before the image is
cut (`with_passes`).

The first pass begins with y = 0, and continues windows as always (`deblur.tiles.windows`). The last pass returns the
tile of f̄ + Hᵀ(y + z) instead of y, where z is the correction of the whole window, so that its seam is a seam of f.

For the prior "natural", HB and BHᵀ replace H and Hᵀ in A, and BBᵀHᵀ replaces Hᵀ in the scene
(`deblur.operators.natural`).

A pixel with y = 0 has no effect. A tile that could not be solved keeps y = 0, and its neighbours are restored as if it
were masked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Array, Device, get_xp
from ..errors import ConvergenceError, InsufficientMemoryError
from ..methods import METHODS
from ..operators.blur import Blur
from ..operators.natural import coloured, covariance
from ..operators.torus import Torus
from ..request import Request
from ..solvers.start import prior_scene
from ..threads import all_cores
from .plan import TilePlan
from .problem import Recipe
from .reach import margin
from .windows import Edges, Sides, cut, faded, lengths, on_device, pads, prepared, restore, within, wrapping

if TYPE_CHECKING:
    from .tiling import Tiling

MORE_PASSES = 4  # passes beyond the planned ones before refining is given up
PASSES = 20  # largest number of passes; beyond it, larger tiles are the better choice
_SPARE = 2.0  # on a part of the image, passes must bring the error this factor below the tolerance


def refined(tiling: Tiling, img: Any) -> Any:
    """Return the restored image after as many passes as necessary.

    Raises
    ------
    ConvergenceError
        If a few passes more than planned do not reach the tolerance.
    """
    plan = tiling.plan
    for _, out, change in itertools.islice(passes(tiling, img, plan.passes), MORE_PASSES + 1):
        if plan.seam_once * change <= plan.tolerance * (tiling.range or 1.0):
            return out
    raise ConvergenceError(
        f"after {plan.passes + MORE_PASSES} passes tiles still change by {change / tiling.range:.1e} of the range; "
        "give a larger λ, a larger tolerance or more memory"
    )


def passes(tiling: Tiling, img: Any, first: int) -> Iterator[tuple[int, Any, float]]:
    """Yield number, scene and the scene's largest change for each pass from the `first` on, running all before it."""
    y = None
    for number in itertools.count(1):
        if number >= first:
            yield number, *tiling.mapped(img, y, last=True)
        y, _ = tiling.mapped(img, y, last=False)


def with_passes(tiling: Tiling, psf: np.ndarray, plan: TilePlan, device: str | int) -> TilePlan:
    """Return the plan with as many passes as its tiles need on a part of the image.

    The part is laid round a torus, where one transform gives the solution. It is three tiles long, and its last tile is
    as short as the image's. In a part of two tiles, a window would see nearly all. If three do not fit into memory, two
    are used, and thirty times as much error is assumed to be left.

    Raises
    ------
    InsufficientMemoryError
        If the tiles need more passes than are tried.
    """
    layout, dtype = tiling.layout, tiling.dtype
    # Twelve numbers for each pixel of the part, which is solved at once and by tiles.
    many = 3 if 12 * dtype.itemsize * 3 ** len(plan.tile) * math.prod(plan.tile) <= plan.memory else 2
    where = []
    for n, t, d, m, e in zip(layout.space, plan.tile, plan.overlap, psf.shape, margin(psf.shape), strict=True):
        first = cut(n, t, max(d + e if d else 0, m))[-many:][0][0]
        where.append([slice(first // 2, first // 2 + n - first)])  # in the middle, as long as the last tiles
    part = tiling.window(0, where)[0, 0].astype(dtype)
    part = np.where(np.isfinite(part), part, tiling.samples.mean()).astype(dtype)
    options: Any = {**tiling.recipe.options, "boundary": "periodic", "memory": 2**62, "workers": tiling.workers}
    whole = type(tiling)(part, psf, tiling.lam, tile=part.shape, **options)(part)
    options |= {"tile": plan.tile, "tolerance": plan.tolerance, "device": device}
    torus = type(tiling)(part, psf, tiling.lam, overlap=plan.overlap, passes=2, **options)
    span, share = float(np.ptp(part)) or 1.0, 0.0
    for number, out, change in itertools.islice(passes(torus, part, 1), PASSES):
        left = float(abs(out - whole).max())
        if number > 1:
            share = max(share, left / (change or 1.0))
            if left * (_SPARE if number < PASSES else 1) <= plan.tolerance * span:
                break
    else:
        raise InsufficientMemoryError(
            f"{plan.reason}; but on a part of the image {PASSES} passes over tiles of {plan.tile} with an overlap "
            f"of {plan.overlap} still left {left / span:.1e} of the range: give a larger λ, a larger tolerance or "
            "more memory",
            plan.whole_bytes,
            plan.memory,
        )
    return replace(
        plan,
        passes=number,
        seam=left / span,
        seam_once=share * (_SPARE if many > 2 else 30.0),
        reason=f"{plan.reason}; on a part of the image {number} passes left {left / span:.1e} of the range",
        work=plan.work / plan.passes * number,
    )


def corrected(
    recipe: Recipe, image: Array, y: Array | None, sides: Sides, trim: Edges, last: bool | None
) -> tuple[Array, float]:
    """Run one pass over one tile, or restore the tile at once; return the tile and its largest change.

    Parameters
    ----------
    recipe : Recipe
    image, y : (k, c, M, N) arrays
        The image and y in the window and a `margin` around it (none at the image's border). None stands for y = 0
        in the first pass.
    sides : ((bool, bool), ...)
    trim : ((int, int), ...)
        Pixels to cut off at either end of each axis: overlap and margin together.
    last : bool or None
        None restores the tile without passes; otherwise whether this is the last pass.

    Returns
    -------
    (k, c, M', N') array
        The tile of y, or of the restored scene if `last`.
    float
        The largest correction of the scene, if `last`; else 0.

    Raises
    ------
    ValueError
        If the image contains NaN or infinity.
    """
    if last is None:
        return restore(recipe, image, sides, trim), 0.0
    change, shape = 0.0, image.shape[2:]

    def one(g: Array, to: Device) -> Array:
        nonlocal change
        solver = prepared(recipe, to, shape, ("refine", sides), lambda: _Pass(recipe.request(shape, to), sides))
        out, change = solver(g, None if y is None else to.xp.asarray(y), within(shape, trim), last)
        return out

    return on_device(recipe, image, one), change


class _Pass:
    """The operators that all passes over windows of one kind share."""

    def __init__(self, request: Request, at_border: Sides) -> None:
        self.request, self.blur = request, request.problem.blur
        self.lam = request.problem.dtype.type(request.problem.lam)
        psf, edge = self.blur.psf.shape, self.blur.boundary
        # An axis that one tile of a periodic image covers is at the border, and wraps round itself.
        each = zip(margin(psf), at_border, strict=True)
        known = tuple((0 if first else e, 0 if last else e) for e, (first, last) in each)
        self.window = within(self.blur.image_shape, known)
        inner: Any = [n - sum(cut) for n, cut in zip(self.blur.image_shape, known, strict=True)]
        self.inner = Blur(self.blur.psf, inner, edge, origin=self.blur.origin)
        inside = edge.wraps or not any(map(any, at_border))
        self.solve = (_inverse if inside else _at_border)(request, self.inner, at_border)

    def __call__(self, g: Array, y: Array | None, tile: tuple[Any, ...], last: bool) -> tuple[Array, float]:
        xp, blur = get_xp(g), self.blur
        scene = None if y is None else self._scene(blur, y)
        if self.request.prior != "zero":
            prior = prior_scene(blur, g)
            scene = prior if scene is None else scene + prior
        r = g.copy() if scene is None else g - blur.forward(scene)
        if y is not None:
            r -= self.lam * y
        z = self.solve(r[self.window], y is None)
        whole = xp.zeros_like(g)
        if not last:
            whole[self.window] = z
            return (whole if y is None else y + whole)[tile], 0.0
        whole[self.window] = self._scene(self.inner, z)[(..., *self.inner.crop)]
        step = whole[tile]
        out = step if scene is None else scene[(..., *blur.crop)][tile] + step
        return out, float(abs(step).max())

    def _scene(self, blur: Blur, y: Array) -> Array:
        """Return Hᵀy, or BBᵀHᵀy for the prior "natural"."""
        f = blur.adjoint(y)
        return covariance(f, blur.boundary, blur.psf.ndim) if self.request.prior == "natural" else f


def _inverse(request: Request, blur: Blur, at_border: Sides) -> Callable[[Array, bool], Array]:
    """Return (|ĥ|² + λ)⁻¹ as a filter, for windows away from the border."""
    problem = request.problem
    blur = coloured(blur) if request.prior == "natural" else blur
    torus = Torus(lengths(blur.psf.shape, blur.image_shape, at_border), problem.device)
    by = (1 / (torus.power(blur.psf) + problem.lam)).astype(problem.dtype)
    wraps, ends = wrapping(torus, by), all_cores()(torus.filter)
    return lambda r, first: wraps(r) if first else ends(r, by)


def _at_border(request: Request, blur: Blur, at_border: Sides) -> Callable[[Array, bool], Array]:
    """Return a solver of Az = r with the image's boundary: λz = r − H f, where f is the linear formula for r."""
    psf, shape = blur.psf, blur.image_shape
    room = pads(psf.shape, shape, at_border, False) if request.dark else ((0, 0),) * len(shape)
    around: Any = [n + sum(p) for n, p in zip(shape, room, strict=True)]
    wide = Blur(psf, around, blur.boundary, origin=blur.origin)
    problem = replace(request.problem, operator=wide)
    factor = METHODS[request.choice(problem).method].prepare(problem)
    lam = problem.dtype.type(problem.lam)

    @all_cores()
    def solve(r: Array, first: bool) -> Array:
        r = faded(r, room) if first else get_xp(r).pad(r, ((0, 0), (0, 0), *room))
        return ((r - wide.forward(factor.solve(r).scene)) / lam)[within(around, room)]

    return solve

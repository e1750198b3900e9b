"""Tiles refined until they fit, where the overlap that is needed is larger than a tile can be.

With A = HHᵀ + λI the scene is f = f̄ + Hᵀy, Ay = g − H f̄: y has the pixels of the image whatever the boundary, and A
reaches no farther than two PSFs, so that what y still lacks,

    r = g − λy − H (f̄ + Hᵀy) ,

is known in a window but for a margin. A pass solves every window for its r, whose continuation is black, and adds the
tile of that to y (block Jacobi on windows that overlap: a restricted Schwarz iteration, X.-C. Cai, M. Sarkis, SIAM J.
Sci. Comput. 21 (1999)). What is wrong afterwards is what r beyond the window would have brought in: the seam's kernel
once more, but r is there along the cuts alone. Hence every pass makes the error smaller by about the seam of its
overlap; by how much less along a diagonal PSF, or by how much more, is measured on a part of the picture before it is
cut up (`deblur.tiles.tiling`).

The first pass begins with y = 0, continued as all windows are (`deblur.tiles.windows`). The last one writes no y but
the tile of f̄ + Hᵀ(y + z), z the correction of the whole window, so that its seam is one of f.

For the prior "natural" HB and BHᵀ take the places of H and Hᵀ in A, and BBᵀHᵀ that of Hᵀ in the scene
(`deblur.operators.natural`).

A pixel where y is 0 is one whose value is not looked at; a tile that could not be solved keeps y = 0, and its
neighbours are restored as if it were hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..device import Array, Device, all_cores, get_xp
from ..methods import METHODS, choose
from ..operators.blur import Blur
from ..operators.natural import coloured, covariance
from ..operators.torus import Torus
from ..options import Request, checked
from ..solvers.start import prior_scene
from .reach import margin
from .windows import Edges, Recipe, Sides, by_psf, continued, kept, lengths, pads, within


def corrected(
    recipe: Recipe, image: Array, y: Array | None, frame: int, at_frame: Sides, trim: Edges, *, last: bool
) -> tuple[Array, float]:
    """One pass over one tile.

    Parameters
    ----------
    recipe : Recipe
    image, y : (k, c, M, N) arrays
        The image and y there, with `margin` pixels more than the window that is solved on each side that is not the
        picture's; of frames `frame`, `frame` + 1 ... None is y = 0, of the first pass.
    at_frame : ((bool, bool), (bool, bool))
    trim : ((int, int), (int, int))
        Rows and columns to cut off, overlap and margin together.
    last : bool

    Returns
    -------
    (k, c, M', N') array
        The tile of y, or of the restored scene if `last`.
    float
        The largest correction of the scene, if `last`; else 0.

    Raises
    ------
    ValueError
        If the image holds NaN or infinity.
    """
    tile, changes = within(image, trim), []

    def one(psf: int, frames: slice, g: Array, to: Device) -> Array:
        solver: _Pass = kept(
            ("refine", recipe.token, psf, g.shape[2:], at_frame, to),
            lambda: _Pass(recipe, recipe.psfs[psf], g.shape[2:], at_frame, to),
        )
        known = None if y is None else to.xp.asarray(y[frames])
        out, change = solver(g[frames], known, tile, last)
        changes.append(change)
        return out

    return by_psf(recipe, image, frame, one), max(changes)


class _Pass:
    """What all passes over windows of one kind share."""

    def __init__(
        self, recipe: Recipe, psf: np.ndarray, shape: Sequence[int], at_frame: Sides, device: Device
    ) -> None:
        rows, cols = shape
        self.request = checked(psf, (rows, cols), recipe.lam, recipe.options, device=device, reuse=True)
        self.blur, self.dtype = self.request.problem.blur, self.request.problem.dtype
        self.lam = self.dtype.type(recipe.lam)
        e, wraps = margin(psf.shape), self.blur.boundary.wraps
        # An axis that a periodic picture's one tile covers is at the frame, and wraps round by itself.
        self.rim: Edges = tuple(tuple(0 if at else e for at in sides) for sides in at_frame)  # type: ignore[assignment]
        inner = [n - sum(cut) for n, cut in zip(shape, self.rim, strict=True)]
        self.window = tuple(slice(a, a + n) for (a, _), n in zip(self.rim, inner, strict=True))
        self.inner = Blur(psf, (inner[0], inner[1]), self.blur.boundary, origin=self.blur.origin)
        if wraps or not any(map(any, at_frame)):
            seen = coloured(self.inner) if self.request.prior == "natural" else self.inner
            self.solve: Callable[[Array, bool], Array] = _Inverse(
                seen, recipe.lam, at_frame, self.dtype, device
            )
        else:
            self.solve = _AtFrame(self.request, self.inner, at_frame)

    def __call__(self, g: Array, y: Array | None, tile: tuple[Any, ...], last: bool) -> tuple[Array, float]:
        xp, blur = self.request.problem.xp, self.blur
        prior: Array = xp.zeros((1, 1), self.dtype)
        scene = None if y is None else self._scene(blur, y)
        if self.request.prior != "zero":
            prior = prior_scene(blur, g)
            scene = prior if scene is None else scene + prior
        r = g.copy() if scene is None else g - blur.forward(scene)
        if y is not None:
            r -= self.lam * y
        z = self.solve(r[(..., *self.window)], y is None)
        whole = xp.zeros_like(g)
        whole[(..., *self.window)] = z
        if not last:
            return (whole if y is None else y + whole)[tile], 0.0
        step = xp.zeros_like(g)
        step[(..., *self.window)] = self._scene(self.inner, z)[(..., *self.inner.crop)]
        step = step[tile]
        seen = step if scene is None else scene[(..., *blur.crop)][tile] + step
        return seen, float(abs(step).max())

    def _scene(self, blur: Blur, y: Array) -> Array:
        """Hᵀy, or BBᵀHᵀy where neighbouring pixels are to be alike."""
        f = blur.adjoint(y)
        return covariance(f, blur.boundary) if self.request.prior == "natural" else f


class _Inverse:
    """(|ĥ|² + λ)⁻¹ as a filter, for windows inside the picture."""

    def __init__(self, blur: Blur, lam: float, at_frame: Sides, dtype: np.dtype, device: Device) -> None:
        self._torus = Torus(lengths(blur.psf.shape, blur.image_shape, at_frame), device)
        self._by = (1 / (self._torus.power(blur.psf) + lam)).astype(dtype)

    @all_cores()
    def __call__(self, r: Array, first: bool) -> Array:
        rows, cols = r.shape[-2:]
        down, right = (a - n for a, n in zip(self._torus.lengths, (rows, cols), strict=True))
        r = continued(r, ((0, down), (0, right))) if first else r
        return self._torus.filter(r, self._by)[..., :rows, :cols]


class _AtFrame:
    """A solved with the picture's own boundary: λz = r − H f of the f that the linear formula makes of r."""

    def __init__(self, request: Request, blur: Blur, at_frame: Sides) -> None:
        self._room: Edges = ((0, 0), (0, 0))
        if blur.boundary.dark:
            self._room = pads(blur.psf.shape, blur.image_shape, at_frame, wraps=False)
        shape = tuple(n + sum(p) for n, p in zip(blur.image_shape, self._room, strict=True))
        self._blur = Blur(blur.psf, (shape[0], shape[1]), blur.boundary, origin=blur.origin)
        problem = replace(request.problem, operator=self._blur)
        method = request.method if request.method != "auto" else choose(problem).method
        self._factor, self._lam = METHODS[method].prepare(problem), problem.dtype.type(problem.lam)

    @all_cores()
    def __call__(self, r: Array, first: bool) -> Array:
        rows, cols = r.shape[-2:]
        (top, _), (left, _) = self._room
        if first:
            r = continued(r, self._room, fade=True)
        elif any(map(any, self._room)):
            r = get_xp(r).pad(r, ((0, 0), (0, 0), *self._room))
        z = (r - self._blur.forward(self._factor.solve(r).scene)) / self._lam
        return z[..., top : top + rows, left : left + cols]

"""Tiles refined until they fit, where the overlap that is needed is larger than a tile can be.

With A = HHᵀ + λI the scene is f = f̄ + Hᵀy, Ay = g − H f̄: y has the pixels of the image whatever the boundary, and A
reaches no farther than two PSFs, so that what y still lacks,

    r = g − λy − H (f̄ + Hᵀy) ,

is known in a window but for a margin. A pass solves every window for its r, whose continuation is black, and adds the
tile of that to y (block Jacobi on windows that overlap: a restricted Schwarz iteration, X.-C. Cai, M. Sarkis, SIAM J.
Sci. Comput. 21 (1999)). What is wrong afterwards is what r beyond the window would have brought in: the seam's kernel
once more, but r is there along the cuts alone. Hence every pass makes the error smaller by a few times the seam of its
overlap, which a seam of a tenth is small enough for; `deblur.tiles.plan` says how many passes there are to be.

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
import scipy.fft

from ..device import CPU, Array, Device, all_cores, asnumpy, check_finite, get_xp, granting
from ..image import as_float
from ..methods import METHODS, choose
from ..operators.blur import Blur
from ..operators.natural import coloured, covariance
from ..operators.torus import Torus
from ..options import Request, checked
from ..solvers.start import prior_scene
from .reach import margin
from .windows import Edges, Recipe, Sides, continued, kept, pads


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
    device = Device.of(image)
    to = device if device != CPU else Device.named(recipe.device)
    (top, bottom), (left, right) = trim
    tile = (..., slice(top, image.shape[-2] - bottom), slice(left, image.shape[-1] - right))
    with granting(recipe.threads), to.current():
        g = as_float(to.xp.asarray(image)).astype(recipe.dtype, copy=False)
        check_finite(g, "the image")
        y = None if y is None else to.xp.asarray(y)
        parts, change = [], 0.0
        several = len(recipe.psfs) > 1
        for i, part in enumerate([slice(j, j + 1) for j in range(len(g))] if several else [slice(None)]):
            psf = recipe.psf(frame + i)
            solver: _Pass = kept(
                ("refine", recipe.token, psf, g.shape[2:], at_frame, to),
                lambda psf=psf: _Pass(recipe, recipe.psfs[psf], g.shape[2:], at_frame, to),  # type: ignore[misc]
            )
            out, by = solver(g[part], None if y is None else y[part], tile, last)
            parts.append(out)
            change = max(change, by)
        found = parts[0] if len(parts) == 1 else to.xp.concatenate(parts)
        return to.xp.ascontiguousarray(found) if device == to else asnumpy(found), change


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
        room = pads(blur.psf.shape, blur.image_shape, at_frame, wraps=True)
        lengths = [
            scipy.fft.next_fast_len(n + after, real=True) if after else n
            for n, (_, after) in zip(blur.image_shape, room, strict=True)
        ]
        self._room: Edges = tuple((0, a - n) for a, n in zip(lengths, blur.image_shape, strict=True))  # type: ignore[assignment]
        self._torus = Torus(lengths, device)
        self._by = (1 / (self._torus.power(blur.psf) + lam)).astype(dtype)

    @all_cores()
    def __call__(self, r: Array, first: bool) -> Array:
        rows, cols = r.shape[-2:]
        return self._torus.filter(continued(r, self._room) if first else r, self._by)[..., :rows, :cols]


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

"""The restored picture judged as a whole, block by block: residual of the linear system, and misfit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.fft

from ..device import CPU, Array, Device, asnumpy, granting
from ..image import as_float
from ..image.light import unbent
from ..operators.blur import Blur
from ..operators.torus import Torus
from ..options import checked
from ..solvers.start import prior_scene
from .reach import margin, mixing
from .windows import Recipe

if TYPE_CHECKING:
    from .tiling import Tiling


@dataclass(frozen=True)
class Residual:
    """Of the whole picture, away from its frame, where what lies beyond is not kept.

    Attributes
    ----------
    residual : float or None
        ‖b − A f‖ / ‖b‖ of (HᵀH + λI) f = Hᵀ g, or with f̄ and g − H f̄ where the scene is drawn towards f̄; None for
        what is not the linear formula. Of the prior "natural" both sides are multiplied by BBᵀ.
    misfit : float
        ‖H f − g‖ / ‖g‖.
    tiles : int
        How many were judged: not those beside one that could not be restored, nor those within reach of the frame.
    """

    residual: float | None
    misfit: float
    tiles: int


def sums(recipe: Recipe, f: Array, g: Array, frame: int, keep: tuple[slice, slice]) -> np.ndarray:
    """‖b − A f‖², ‖b‖², ‖H f − g‖² and ‖g‖² over `keep` of a window (k, c, M, N), and 1: (5,) float64.

    In float64 and by H as a convolution, which it is farther from the window's edges than `margin`.
    """
    device = Device.of(f)
    total = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    with granting(recipe.threads), device.current():
        f, g = f.astype(np.float64), as_float(g).astype(np.float64)
        for i in range(len(f)):
            psf = recipe.psfs[recipe.psf(frame + i)]
            shape = f.shape[-2:]
            request = checked(psf, shape, recipe.lam, {**recipe.options, "dtype": "float64"}, device=CPU)
            f_i, g_i = (unbent(x[i]) if request.gamma else x[i] for x in (f, g))
            lengths = [scipy.fft.next_fast_len(n, real=True) for n in shape]
            torus = Torus(lengths, device)
            h = torus.spectrum(psf, request.problem.blur.origin)
            prior: Array = 0.0
            if request.prior != "zero":
                prior = prior_scene(Blur(psf, shape, "zero", origin=request.problem.blur.origin), g_i)
            background = request.problem.fit.background

            def blurred(x: Array, by: Array, torus: Torus = torus) -> Array:
                return torus.filter(x, by)

            misfit = g_i - background - blurred(f_i, h)
            back = h.conj() * mixing(torus) if request.prior == "natural" else h.conj()
            b = blurred(g_i - (blurred(prior, h) if request.prior != "zero" else 0.0), back)
            r = blurred(misfit, back) - recipe.lam * (f_i - prior)
            for n, x in enumerate((r, b, misfit, g_i)):
                total[n] += float((x[(..., *keep)] ** 2).sum())
    return total


def ratios(tiling: Tiling, total: np.ndarray) -> Residual | None:
    """The ratios that the sums over all windows make; None of no window."""
    if not total[4]:
        return None
    r, b, misfit, g = np.sqrt(total[:4])
    linear = not tiling.asked and tiling.plan.method != "gradient" and tiling.plan.method != "laplacian"
    return Residual(float(r / (b or 1.0)) if linear else None, float(misfit / (g or 1.0)), int(total[4]))


def inner(tiling: Tiling, span: tuple[int, int], n: int) -> tuple[slice, slice]:
    """(the window to read along an axis, what to keep of it) for a tile's span."""
    e = margin(tiling.recipe.psfs.shape[1:])
    first, last = max(0, span[0] - e), min(n, span[1] + e)
    keep = slice(max(span[0], min(e, n)) - first, max(min(span[1], n - e), 0) - first)
    return slice(first, last), keep


def residual(tiling: Tiling, image: Any, restored: Any) -> Residual | None:
    """The residual of the whole picture, tile by tile; `image` and `restored` are arrays that can be sliced."""
    total = np.zeros(5)
    for frame, tile in itertools.product(range(tiling.axes.frames), tiling.tiles):
        total += of_tile(tiling, image, restored, frame, tile)
    return ratios(tiling, total)


def of_tile(tiling: Tiling, image: Any, restored: Any, frame: int, tile: Any) -> np.ndarray:
    """The sums over one tile."""
    windows, keeps = zip(
        *(inner(tiling, span, n) for span, n in zip(tile, tiling.axes.space, strict=True)), strict=True
    )
    if any(k.stop <= k.start for k in keeps):
        return np.zeros(5)
    f, g = (asnumpy(tiling.axes.read(x, frame, *windows)) for x in (restored, image))
    if not np.isfinite(f).all():  # a tile that could not be restored
        return np.zeros(5)
    return sums(tiling.recipe, f, g, frame, (keeps[0], keeps[1]))

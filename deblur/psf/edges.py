"""Measure the PSF from slanted edges.

Across a straight edge an image shows the edge spread: the PSF integrated along the edge and accumulated across it.
`edge_spread` measures it.

If the PSF is round, one edge determines it, since Abel's integral equation relates its profile to the line spread. A
stable form of the solution is used. The PSF is a sum of Gaussians of all widths with non-negative weights. If discs or
Airy patterns explain the edge significantly better, they are added. The edge spread of each of them on the pixels is
known, and non-negative least squares determines the weights. Two edges with different directions determine an
elliptical PSF; three edges also determine its direction.

The result is the blur between an ideal edge, whose pixels hold their bright part, and the image. Like the blur of a
sharp photograph, it does not contain the aperture of the pixels. The MTF by ISO 12233 does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from .edge_spread import Edge, Region, edges_in, transfer
from .estimate import PSFEstimate, graded, grey, width
from .models import Size, airy_profile, as_shape, coordinates, delta, unit_sum
from .shaping import crop


def from_edge(image: Any, region: Region | Sequence[Region] | None = None, size: Size | None = None) -> PSFEstimate:
    """Measure the PSF from an image of a straight, slightly slanted edge between dark and bright.

    Parameters
    ----------
    image : (M, N) array
        The image, in any unit that is proportional to light (no tone curve, no sharpening).
    region : (top, bottom, left, right) or a sequence of them, optional
        Rows and columns (bottom and right are not included) of a part with one edge and its two plain sides; found by
        default. Two regions with edges of different directions determine an elliptical PSF whose axes are along rows
        and columns (or along the edges, if these are diagonal). Three or more also determine its direction.
    size : int or (int, int), optional
        Rows and columns of the PSF; by default the smallest size with 99.9 % of its light.

    Returns
    -------
    PSFEstimate
        ``details`` has the number of ``edges``, and the ``angle`` of each in degrees from the nearest of the pixels'
        rows, columns and diagonals; the ``regions``; ``mtf50`` in cycles per pixel; ``distance``, ``edge_spread`` and
        ``line_spread`` (b,), and ``frequency`` and ``mtf`` (f,), of the first edge; ``stretch``, the longest width over
        the shortest; and ``fwhm`` in pixels.

    Raises
    ------
    ValueError
        If there is no edge, or it is not straight, not slanted, or too faint; the message contains advice.

    Notes
    -----
    With one edge a round PSF is assumed, which excludes motion and astigmatism.

    Examples
    --------
    >>> import numpy as np, deblur
    >>> y, x = np.mgrid[:80, :80]
    >>> sharp = np.clip(x - 40 + 0.1 * (y - 40) + 0.5, 0, 1)  # 1 in 10
    >>> picture = deblur.degrade(sharp, deblur.psf.gaussian(15, 1.5), noise=0.002, boundary="reflect", seed=0)
    >>> found = deblur.psf.from_edge(picture, size=15)
    >>> bool(abs(found.psf - deblur.psf.gaussian(15, 1.5)).max() < 0.1 * found.psf.max())
    True
    """
    picture, unit = grey(image)
    edges = edges_in(picture, region)
    rise = max(edge.rise for edge in edges)
    reach = min(math.ceil(1.6 * rise) + 2, max(int(min(edge.t.max() for edge in edges)) - 1, 2))
    shape = (2 * reach + 1, 2 * reach + 1) if size is None else as_shape(size)
    form, reason = _form_of(edges, shape)
    fit, ambiguity = _simplest(edges, shape, form)
    draws = fit.drawn(np.random.default_rng(0))
    # NNLS selects few profiles, which depend on the noise. The mean over the draws is smoother.
    psf = unit_sum((fit.psf(fit.weights) + draws.sum(axis=0)) / (1 + len(draws)))
    scatter = float(np.sqrt(((draws - psf) ** 2).sum(axis=(1, 2)).mean() / (psf**2).sum()))
    error = math.hypot(scatter, 0.015, 0.5 * ambiguity)  # 0.015: found by simulations, not contained in the draws
    overshoot = max(edge.overshoot for edge in edges)
    over = f"{100 * overshoot:.0f} %"
    uneven = "no PSF that decreases outwards explains the edge: another PSF, uneven sides or values not linear in light"
    rough = {uneven: fit.data_residual > 3}
    clipped = any(edge.clipped for edge in edges)
    doubtful = {f"the edge overshoots by {over}: it was sharpened; use raw data": overshoot > 0.04}
    doubtful["a side of the edge is saturated or cut off at black; both must keep detail"] = clipped
    if size is None:
        psf = crop(psf)
    stretch = np.linalg.svd(form, compute_uv=False)
    details = {"edges": len(edges), "angle": tuple(round(edge.angle, 2) for edge in edges)}
    details |= {"regions": tuple(edge.region for edge in edges)}
    details |= {"fwhm": width(psf), "stretch": float(stretch[0] / stretch[-1])}
    return graded(psf, error, details | transfer(edges[0], unit), {reason: True}, rough, doubtful)


def ideal(t: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Return the bright part of a pixel whose centre is at a distance t from an ideal edge."""
    long, short = sorted(np.abs(normal), reverse=True)
    short = max(short, 1e-6)

    def integral(u: np.ndarray) -> np.ndarray:  # the second integral of a step
        return np.maximum(u, 0) ** 2 / 2

    a, b = (long + short) / 2, (long - short) / 2
    return (integral(t + a) - integral(t + b) - integral(t - b) + integral(t - a)) / (long * short)


def _distance(shape: tuple[int, ...], form: np.ndarray, fine: int = 1) -> np.ndarray:
    """Return |form x| at `fine` x `fine` points x of each pixel."""
    offsets = (np.arange(fine) + 0.5) / fine - 0.5
    at = np.meshgrid(*(np.add.outer(line, offsets).ravel() for line in coordinates(shape)), indexing="ij")
    return np.linalg.norm(np.tensordot(form, at, 1), axis=0)


def _profiles(shape: tuple[int, ...], form: np.ndarray, kind: str) -> np.ndarray:
    """Return PSFs (k, m, n) with sum one: Gaussians and, if the kind is "airys" or "discs", these as well."""
    reach = min(shape) / 2 * float(np.linalg.norm(form, -2))
    distance = _distance(shape, form)
    widths = np.geomspace(0.35, max(reach / 2, 0.7), 16)[:, None, None]
    parts = [np.exp(-((distance / widths) ** 2) / 2)]
    if kind == "airys":
        parts.append(airy_profile(distance, np.geomspace(1.0, max(reach, 1.5), 24)[:, None, None]))
    elif kind == "discs":
        radii, n = np.arange(0.5, reach + 0.25, 0.35)[:, None, None], 6
        # The edge of a disc is soft over one fine cell, so that its area changes smoothly with the radius.
        inside = np.clip((radii - _distance(shape, form, n)) * n + 0.5, 0, 1)
        discs = inside.reshape(len(radii), shape[0], n, shape[1], n).sum(axis=(2, 4))
        parts += [delta(shape)[None], discs]
    found = np.concatenate(parts)
    return found / found.sum(axis=(1, 2), keepdims=True)


@functools.lru_cache(maxsize=8)
def _pixel_spreads(edge: Edge, shape: tuple[int, ...]) -> np.ndarray:
    """Return the edge spread of each pixel of a PSF at the distances of the edge, (b, m n)."""
    y, x = coordinates(shape)
    return ideal(edge.t[:, None] - (y * edge.normal[0] + x * edge.normal[1]).ravel(), edge.normal)


class _ProfileFit:
    """Non-negative weights of profiles, fitted to edges."""

    def __init__(self, edges: list[Edge], shape: tuple[int, ...], form: np.ndarray, kind: str) -> None:
        self.parts = _profiles(shape, form, kind)
        # Each edge has its own dark level and slope, of either sign.
        blocks, nuisance, right = [], [], []
        for edge in edges:
            end = max(len(edge.level) // 8, 1)
            dark, bright = float(np.median(edge.level[:end])), float(np.median(edge.level[-end:]))
            # 5e-4 of the contrast is the error of the binning.
            weight = 1 / np.hypot(edge.noise / np.sqrt(edge.count), 5e-4 * (bright - dark))
            own = np.stack([np.ones_like(edge.t), edge.t / np.abs(edge.t).max()], axis=1)
            scale = (bright - dark) * weight[:, None]
            blocks.append(_pixel_spreads(edge, shape) @ self.parts.reshape(len(self.parts), -1).T * scale)
            nuisance.append(np.concatenate([own, -own], axis=1) * scale)
            right.append((edge.level - dark) * weight)
        matrix = np.concatenate([np.concatenate(blocks), scipy.linalg.block_diag(*nuisance)], axis=1)
        self.right = np.concatenate(right)
        self.q, self.r = np.linalg.qr(matrix)
        self.weights = self.solved(self.right)
        self.explained = matrix @ self.weights
        self.square = float(((self.right - self.explained) ** 2).sum())

    def solved(self, right: np.ndarray) -> np.ndarray:
        """Return the weights that explain `right` best."""
        return scipy.optimize.nnls(self.r, self.q.T @ right)[0]

    @property
    def data_residual(self) -> float:
        """Root mean square of the residual, in standard deviations of the noise."""
        return math.sqrt(self.square / len(self.right))

    def psf(self, weights: np.ndarray) -> np.ndarray:
        return unit_sum(np.einsum("k,kmn->mn", weights[: len(self.parts)], self.parts))

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """Return 16 PSFs (16, m, n) of a bootstrap with the noise and the residual."""
        noise = max(1.0, self.data_residual) * rng.standard_normal((16, len(self.right)))
        return np.stack([self.psf(self.solved(self.explained + n)) for n in noise])


def _simplest(edges: list[Edge], shape: tuple[int, ...], form: np.ndarray) -> tuple[_ProfileFit, float]:
    """Return the fit by Gaussians alone, or a significantly better one with Airy patterns or discs, and its ambiguity.

    The ambiguity is the largest relative difference of its PSF from the PSFs of equally good fits. An edge hardly
    distinguishes a narrow Gaussian from a disc of the same width.
    """
    fits = [_ProfileFit(edges, shape, form, kind) for kind in ("bells", "airys", "discs")]
    fit, chance = fits[0], 20.0  # least improvement of χ² for which another fit is preferred
    for other in fits[1:]:
        if other.square + chance * max(1.0, other.data_residual**2) < fit.square:
            fit = other
    limit = fit.square + chance * max(1.0, fit.data_residual**2)
    psf = fit.psf(fit.weights)
    good = [other.psf(other.weights) for other in fits if other.square < limit]
    return fit, max(float(np.linalg.norm(other - psf)) for other in good) / float(np.linalg.norm(psf))


def _form_of(edges: list[Edge], shape: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """Return the matrix (2, 2) of determinant one that maps the PSF's ellipse to a circle, and how it was found."""
    if len(edges) == 1:
        return np.eye(2), "one edge, and a round PSF is assumed"
    frame, words = np.eye(2), "rows and columns"
    if any(max(abs(edge.normal)) <= math.cos(math.radians(27)) for edge in edges):
        a, b = edges[0].normal
        frame, words = np.array([[a, b], [-b, a]]), "the first edge and across it"

    def form(parameters: np.ndarray) -> np.ndarray:
        u, v = (*parameters, 0.0)[:2]
        return scipy.linalg.expm(-frame.T @ np.array([[u, v], [v, -u]]) @ frame / 2)

    simplex = 0.5 * np.eye(3)[:, 1:] if len(edges) > 2 else np.array([[0.0], [0.5]])

    def data_residual(parameters: np.ndarray) -> float:
        return _ProfileFit(edges, shape, form(parameters), "bells").square

    options = {"initial_simplex": simplex, "xatol": 0.002, "fatol": math.inf, "maxfev": 60}
    found = form(scipy.optimize.minimize(data_residual, simplex[0], method="Nelder-Mead", options=options).x)
    also = f"; its axes are assumed to be along {words}" if len(edges) == 2 else ""
    return found, f"{len(edges)} edges{also}"

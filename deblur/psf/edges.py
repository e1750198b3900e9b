"""The PSF from slanted edges.

Across a straight edge an image shows the PSF integrated along the edge and accumulated across it: the edge spread,
which `edge_spread` measures.

If the PSF is round, one edge determines it: Abel's integral equation relates its profile to the line spread. A stable
form of the solution is used: the PSF is a sum, with non-negative weights, of Gaussians and, if that explains the edge
significantly better, of discs or Airy patterns of all widths. The edge spread of each on the pixels is known, and
non-negative least squares finds the weights. Two edges of different directions give an elliptical PSF, three its
direction as well.

The result is the blur that turns an ideal edge, each of whose pixels holds its bright part, into the image. It does not
contain the pixels' aperture, like the blur of a sharp photograph; the MTF by ISO 12233 does.
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
        In any unit that is proportional to light (no tone curve, no sharpening).
    region : (top, bottom, left, right) or a sequence of them, optional
        Rows and columns, the latter not included, of a part that holds one
        edge and its two plain sides. Found by default. Two regions with
        edges of different directions give an elliptical PSF whose axes lie
        along rows and columns (or along the edges, if these are diagonal),
        three or more also its direction.
    size : int or (int, int), optional
        Rows and columns of the PSF; by default the smallest that holds 99.9 % of its light.

    Returns
    -------
    PSFEstimate
        ``details``: ``edges``, ``angle`` of each in degrees from the pixels' rows, columns or diagonals, ``regions``,
        ``mtf50`` in cycles per pixel; ``distance``, ``edge_spread`` and ``line_spread`` (b,), ``frequency`` and
        ``mtf`` (f,) of the first edge; ``stretch``, the longest width over the shortest.

    Raises
    ------
    ValueError
        If there is no edge, or it is not straight, not slanted, or too faint; the message contains advice.

    Notes
    -----
    From one edge a round PSF is assumed, which excludes motion and astigmatism.

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
    edges = [_aligned(edge, shape, form) for edge in edges]
    fit, ambiguity = _simplest(edges, shape, form)
    draws = fit.drawn(np.random.default_rng(0))
    # NNLS selects few profiles, depending on the noise; the mean of the draws is smoother.
    psf = unit_sum((fit.psf(fit.weights) + draws.sum(axis=0)) / (1 + len(draws)))
    scatter = float(np.sqrt(((draws - psf) ** 2).sum(axis=(1, 2)).mean() / (psf**2).sum()))
    error = math.hypot(scatter, 0.015, 0.5 * ambiguity)  # 0.015: not shown by the draws, from simulations
    overshoot = max(edge.overshoot for edge in edges)
    over = f"{100 * overshoot:.0f} %"
    uneven = "no PSF that falls outwards explains the edge: another PSF, uneven sides or values not linear in light"
    rough = {uneven: fit.data_residual > 3}
    clipped = any(edge.clipped for edge in edges)
    doubtful = {f"the edge overshoots by {over}: it was sharpened; use raw data": overshoot > 0.04}
    doubtful["a side of the edge is saturated or cut off at black; both must keep detail"] = clipped
    status, why = graded(error, reason, {}, rough, doubtful)
    if size is None:
        psf = crop(psf)
    stretch = np.linalg.svd(form, compute_uv=False)
    details = {"edges": len(edges), "angle": tuple(round(edge.angle, 2) for edge in edges)}
    details |= {"regions": tuple(edge.region for edge in edges)}
    details |= {"fwhm": width(psf), "stretch": float(stretch[0] / stretch[-1])}
    return PSFEstimate(psf, error, status, why, details | transfer(edges[0], unit))


def ideal(t: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """The bright part of a pixel whose centre lies at a distance t from an ideal edge."""
    long, short = sorted(np.abs(normal), reverse=True)
    short = max(short, 1e-6)

    def integral(u: np.ndarray) -> np.ndarray:  # the second integral of a step
        return np.maximum(u, 0) ** 2 / 2

    a, b = (long + short) / 2, (long - short) / 2
    return (integral(t + a) - integral(t + b) - integral(t - b) + integral(t - a)) / (long * short)


def _distance(shape: tuple[int, ...], form: np.ndarray, fine: int = 1) -> np.ndarray:
    """|form x| at `fine` x `fine` points x of each pixel."""
    offsets = (np.arange(fine) + 0.5) / fine - 0.5
    at = np.meshgrid(*(np.add.outer(line, offsets).ravel() for line in coordinates(shape)), indexing="ij")
    return np.linalg.norm(np.tensordot(form, at, 1), axis=0)


def _profiles(shape: tuple[int, ...], form: np.ndarray, kind: str) -> np.ndarray:
    """PSFs (k, m, n), each with a sum of one: Gaussians and, if the kind is "airys" or "discs", those as well."""
    reach = min(shape) / 2 * float(np.linalg.norm(form, -2))
    distance = _distance(shape, form)
    widths = np.geomspace(0.35, max(reach / 2, 0.7), 16)[:, None, None]
    parts = [np.exp(-((distance / widths) ** 2) / 2)]
    if kind == "airys":
        parts.append(airy_profile(distance, np.geomspace(1.0, max(reach, 1.5), 24)[:, None, None]))
    elif kind == "discs":
        radii, n = np.arange(0.5, reach + 0.25, 0.35)[:, None, None], 6
        # Soft over one fine cell, so that the area changes smoothly with the radius.
        inside = np.clip((radii - _distance(shape, form, n)) * n + 0.5, 0, 1)
        discs = inside.reshape(len(radii), shape[0], n, shape[1], n).sum(axis=(2, 4))
        parts += [delta(shape)[None], discs]
    found = np.concatenate(parts)
    return found / found.sum(axis=(1, 2), keepdims=True)


@functools.lru_cache(maxsize=8)
def _pixel_spreads(edge: Edge, shape: tuple[int, ...]) -> np.ndarray:
    """The edge spread of each pixel of a PSF at the edge's distances: (b, m n)."""
    y, x = coordinates(shape)
    return ideal(edge.t[:, None] - (y * edge.normal[0] + x * edge.normal[1]).ravel(), edge.normal)


def _spreads(edge: Edge, parts: np.ndarray) -> np.ndarray:
    """The edge spread of each part (k, m, n) of a PSF: (b, k)."""
    return _pixel_spreads(edge, parts.shape[1:]) @ parts.reshape(len(parts), -1).T


class _ProfileFit:
    """Non-negative weights of profiles that explain edges."""

    def __init__(self, edges: list[Edge], shape: tuple[int, ...], form: np.ndarray, kind: str) -> None:
        self.parts = _profiles(shape, form, kind)
        # For each edge its own dark level and slope, of either sign.
        blocks, nuisance, right = [], [], []
        for edge in edges:
            end = max(len(edge.level) // 8, 1)
            dark, bright = float(np.median(edge.level[:end])), float(np.median(edge.level[-end:]))
            # 5e-4 of the contrast: what binning changes.
            weight = 1 / np.hypot(edge.noise / np.sqrt(edge.count), 5e-4 * (bright - dark))
            own = np.stack([np.ones_like(edge.t), edge.t / np.abs(edge.t).max()], axis=1)
            scale = (bright - dark) * weight[:, None]
            blocks.append(_spreads(edge, self.parts) * scale)
            nuisance.append(np.concatenate([own, -own], axis=1) * scale)
            right.append((edge.level - dark) * weight)
        self.matrix = np.concatenate([np.concatenate(blocks), scipy.linalg.block_diag(*nuisance)], axis=1)
        self.right = np.concatenate(right)
        self.q, self.r = np.linalg.qr(self.matrix)
        self.weights = self.solved(self.right)
        self.explained = self.matrix @ self.weights
        self.square = float(((self.right - self.explained) ** 2).sum())

    def solved(self, right: np.ndarray) -> np.ndarray:
        """The weights that explain `right` best."""
        return scipy.optimize.nnls(self.r, self.q.T @ right)[0]

    @property
    def data_residual(self) -> float:
        """Root mean square of the residual over the noise."""
        return math.sqrt(self.square / len(self.right))

    def psf(self, weights: np.ndarray) -> np.ndarray:
        return unit_sum(np.einsum("k,kmn->mn", weights[: len(self.parts)], self.parts))

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """16 PSFs (16, m, n) of a bootstrap, with the noise and the residual."""
        noise = max(1.0, self.data_residual) * rng.standard_normal((16, len(self.right)))
        return np.stack([self.psf(self.solved(self.explained + n)) for n in noise])


def _simplest(edges: list[Edge], shape: tuple[int, ...], form: np.ndarray) -> tuple[_ProfileFit, float]:
    """The fit by Gaussians alone, unless Airy patterns or discs are significantly better, and the largest relative
    difference of its PSF from those of the fits that are as good: an edge hardly distinguishes a narrow Gaussian from a
    disc of its width."""
    fits = [_ProfileFit(edges, shape, form, kind) for kind in ("bells", "airys", "discs")]
    fit, chance = fits[0], 20.0  # improvement of χ² from which on the others are preferred
    for other in fits[1:]:
        if other.square + chance * max(1.0, other.data_residual**2) < fit.square:
            fit = other
    limit = fit.square + chance * max(1.0, fit.data_residual**2)
    psf = fit.psf(fit.weights)
    good = [other.psf(other.weights) for other in fits if other.square < limit]
    return fit, max(float(np.linalg.norm(other - psf)) for other in good) / float(np.linalg.norm(psf))


def _form_of(edges: list[Edge], shape: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """The matrix (2, 2) of determinant one that makes the PSF's ellipse a circle, and how it was found."""
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
    also = f"; its axes are taken to lie along {words}" if len(edges) == 2 else ""
    return found, f"{len(edges)} edges{also}"


def _aligned(edge: Edge, shape: tuple[int, ...], form: np.ndarray) -> Edge:
    """The edge with its position, known to a tenth of a pixel from the rows, corrected by Gauss-Newton steps."""
    for _ in range(3):
        fit = _ProfileFit([edge], shape, form, "bells")
        e, k = 0.02, len(fit.parts)
        change = (_spreads(edge.moved(e), fit.parts) - _spreads(edge.moved(-e), fit.parts)) / (2 * e)
        slope = change @ fit.weights[:k] * fit.matrix[:, k]
        away = float(slope @ (fit.right - fit.explained)) / float(slope @ slope)
        edge = edge.moved(float(np.clip(away, -0.5, 0.5)))
    return edge

"""Scenes before any restoration: the prior scene, and the first scene of an iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array, Device, Shape, all_true, as_real, asnumpy, get_xp, is_cupy
from ..operators.operator import Operator
from ..pixelwise import planes_of
from ..problem import Problem
from ..threads import all_cores, on_cores

#: Brightness over gain below which an operator counts as one that removes a picture's mean.
DIM = 1e-3
#: Standard deviation, in pixels, of the Gaussian for the prior scene.
SMOOTHING = 3.0
#: Standard deviation, in pixels, of the Gaussian for a local mean.
LOCAL = 2.0


def prior_scene(operator: Operator, g: Array, smoothing: float = SMOOTHING) -> Array:
    """Return the scene expected a priori: the image, smoothed and continued beyond its edges.

    λ‖f‖² draws the restored scene towards black, most of all beyond the frame, where no datum holds it: with boundary
    "unknown", the edge of that darkness rings into the picture. To draw it towards the scene f̄ that is returned here,
    apply the same formula to g − H f̄:

        f = f̄ + Hᵀ(HHᵀ + λI)⁻¹ (g − H f̄) ,   the minimiser of ‖Hf − g‖² + λ‖f − f̄‖² .

    Parameters
    ----------
    operator : Operator
    g : (..., M, N) array
        The blurred image, NumPy or CuPy.
    smoothing : float
        Standard deviation of the Gaussian, in pixels; it keeps the noise of g out of f̄.

    Returns
    -------
    (..., P, Q) array
        The scene, of the operator's `scene_shape`, in the dtype and on the device of g; divided by the brightness.
    """
    g = as_real(g, "the image")
    level, wraps = brightness_of(operator), operator.boundary.wraps
    if is_cupy(g) and int(4 * smoothing + 0.5) <= kernels.Constants("start").MOST_RADIUS:
        return _laid(g, operator.scene_shape, _first(operator), wraps, smoothing, 1 / level)
    if is_cupy(g):
        return get_xp(g).asarray(prior_scene(operator, asnumpy(g), smoothing))
    return continued(operator, smoothed(g, len(operator.image_shape), wraps, smoothing)) / g.dtype.type(level)


def smoothed(g: Array, axes: int = 2, wraps: bool = False, sigma: float = LOCAL) -> Array:
    """Smooth images (..., M, N) by a Gaussian; beyond the edges, edge pixels are repeated, or the image `wraps`."""
    if is_cupy(g):
        return _laid(g, g.shape[-axes:], (0,) * axes, wraps, sigma)
    reach = int(4 * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    # Blocks of lines times a band matrix. Importing scipy.ndimage takes longer than restoring a small image.
    block = 4 * reach + 1
    band = sum(w * np.eye(block, block + 2 * reach, i) for i, w in enumerate(weights / weights.sum())).astype(g.dtype)

    def smooth(first: int) -> None:
        at, some = np.arange(first - reach, min(first + block, n) + reach), out[first : first + block]
        for i in range(0, lines.shape[-1], step):
            seen = lines[at % n if wraps else at.clip(0, n - 1), ..., i : i + step]
            mean = band[: len(some), : len(at)] @ seen.reshape(len(at), -1)
            some[..., i : i + step] = mean.reshape(len(some), *seen.shape[1:])

    with all_cores():
        for axis in range(-axes, 0):
            lines, n, g = np.moveaxis(g[None], axis, 0), g.shape[axis], np.empty_like(g)
            out, step = np.moveaxis(g[None], axis, 0), 1 + (n * lines.shape[-1] << 12) // g.size  # 2 MB at most
            on_cores(smooth, range(0, n, block))
    return g


def _laid(g: Array, scene: Shape, first: Shape, wraps: bool, sigma: float, scale: float = 1.0) -> Array:
    """Smooth CuPy images and lay them into scenes, axis by axis."""
    axes = len(scene)
    x, lead, shape = g, g.shape[:-axes], g.shape[-axes:]
    for axis, n in enumerate(shape[:-1]):  # all later axes are merged
        x = x.reshape(*lead, *scene[:axis], n, math.prod(shape[axis + 1 :]))
        x = _smooth(x, (scene[axis], x.shape[-1]), (first[axis], 0), 0, wraps, sigma)
    x = x.reshape(*lead, math.prod(scene[:-1]), g.shape[-1])
    x = _smooth(x, (x.shape[-2], scene[-1]), (0, first[-1]), 1, wraps, sigma, scale)
    return x.reshape(*lead, *scene)


def brightness_of(operator: Operator) -> float:
    """Return the ratio of the means of image and scene; 1 for an operator that removes the mean."""
    level = operator.dc_gain
    return level if abs(level) > DIM * operator.norm_bound else 1.0  # 1 for an edge filter


def filled(g: Array, weights: Array | None) -> Array:
    """Return frames (k, c, M, N) with pixels of weight 0 replaced by a mean of neighbours, so they have no effect.

    The mean is that of visible pixels under a Gaussian of growing width. It serves as the start of an iteration, never
    as a result.
    """
    if weights is None:
        return g
    xp = get_xp(g)
    visible = xp.broadcast_to(weights > 0, g.shape)
    if all_true(visible):
        return g
    space, fft = g.shape[2:], Device.of(g).fft
    options: Any = {"axes": tuple(range(2, g.ndim)), "norm": "ortho"}  # the DCT mirrors the picture at its edges
    spectra = [fft.dctn(xp.where(visible, part, 0).astype(g.dtype), **options) for part in (g, 1)]
    out, missing = xp.where(visible, g, 0), ~visible
    squares = sum(f**2 for f in xp.meshgrid(*[xp.arange(n) / (2 * n) for n in space], indexing="ij", sparse=True))
    sigma = 1.0
    while not all_true(~missing):
        low = xp.exp(-2 * (np.pi * sigma) ** 2 * squares).astype(g.dtype)
        total, count = (fft.idctn(s * low, **options) for s in spectra)
        reached = missing & (count > 1e-3)
        out = xp.where(reached, total / xp.where(reached, count, 1), out)
        missing &= ~reached
        sigma *= 2
        if sigma > sum(space):
            # A frame without any visible pixel, among frames that have some: its level is unknown.
            out = xp.where(missing, 0, out)
            break
    return out.astype(g.dtype, copy=False)


def first_scene(problem: Problem, g: Array) -> Array:
    """Return the first scene of an iteration: the image over the brightness, continued by its edge pixels."""
    xp, operator = problem.xp, problem.operator
    seen = filled(g, problem.fidelity.weights)
    if problem.fidelity.background:
        seen = seen - problem.fidelity.background
    level = brightness_of(operator)
    if level != 1:
        seen = seen / level
    scene = continued(operator, seen)
    if problem.bounds is not None:
        scene = xp.clip(scene, *problem.bounds)
    return scene.astype(problem.dtype, copy=False)


def continued(operator: Operator, g: Array) -> Array:
    """Lay images into scenes, and continue them by their edge pixels."""
    axes, crop = len(operator.image_shape), operator.crop
    if tuple(at.stop - at.start for at in crop) != operator.image_shape:  # the image is not a part of its scene
        mean = g.mean(axis=tuple(range(-axes, 0)), keepdims=True)
        return get_xp(g).broadcast_to(mean, (*g.shape[:-axes], *operator.scene_shape))
    if is_cupy(g) and g.dtype.kind == "f" and axes == 2:
        return _smooth(g, operator.scene_shape, _first(operator), 1, False)
    pads = [(at.start, n - at.stop) for at, n in zip(crop, operator.scene_shape, strict=True)]
    return get_xp(g).pad(g, [(0, 0)] * (g.ndim - axes) + pads, mode="edge")


def _first(operator: Operator) -> Shape:
    """Return the index of the image's first pixel in the scene."""
    return tuple(part.start for part in operator.crop)


def _smooth(
    g: Array, shape: Sequence[int], first: Sequence[int], axis: int, wraps: bool, sigma: float = 0.0, scale: float = 1.0
) -> Array:
    """Smooth images (..., M, N) along an axis, and lay them into scenes continued by edge pixels: ``cuda/start.cu``."""
    images, row, stride = planes_of(g)
    threads = kernels.Constants("start").THREADS
    most = 8 * kernels.properties(g.device.id).multiprocessors
    out = get_xp(g).empty((*g.shape[:-2], *shape), g.dtype)
    kernels.launch(
        "start", "smooth", min(most, -(-math.prod(shape) // threads)), threads, out, len(images), *shape, *first,
        images, row, stride, *images.shape[1:], axis, wraps, int(4 * sigma + 0.5), sigma or 1.0, scale, dtype=g.dtype,
    )  # fmt: skip
    return out


def all_weights(problem: Problem) -> Array:
    """Return W as (a, b, M, N), with the frames' a and b or 1; ones if the fidelity has no weights."""
    xp, shape, w = problem.xp, problem.operator.image_shape, problem.fidelity.weights
    w = xp.asarray(np.ones(1, problem.dtype)) if w is None else w
    w = w.reshape((1,) * (2 + len(shape) - w.ndim) + w.shape)
    return xp.broadcast_to(w, (*w.shape[:2], *shape))


def half_width(hidden: np.ndarray) -> int:
    """Return the largest distance of a hidden pixel to a visible one, with diagonal steps of 1; 0 if none is hidden."""
    from scipy.ndimage import distance_transform_cdt

    images = [image for image in hidden.reshape(-1, *hidden.shape[2:]) if image.any()]
    far = (max(i.shape) if i.all() else int(distance_transform_cdt(i).max()) for i in images)
    return max(far, default=0)

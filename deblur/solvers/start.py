"""First scenes: the prior scene, and where an iteration begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import kernels
from ..device import Array, Device, Shape, all_true, as_real, asnumpy, get_xp, is_cupy
from ..operators.operator import Operator
from ..problem import Problem
from ..threads import all_cores, on_cores

#: An operator of less brightness, as a part of its gain, takes a picture's mean away.
DIM = 1e-3
#: Standard deviation in pixels of the Gaussian that makes the prior of the image.
SMOOTHING = 3.0
#: The same of a mean over neighbouring pixels.
LOCAL = 2.0


def prior_scene(operator: Operator, g: Array, smoothing: float = SMOOTHING) -> Array:
    """The scene expected a priori: the image itself, smoothed and continued beyond its edges.

    λ‖f‖² draws the restored scene towards black, and beyond the frame, where nothing holds it, all the
    way: with boundary "unknown" the edge of that darkness rings into the picture. Drawing it towards
    this scene f̄ instead is the same formula, applied to g − H f̄:

        f = f̄ + Hᵀ(HHᵀ + λI)⁻¹ (g − H f̄) ,   the minimiser of ‖Hf − g‖² + λ‖f − f̄‖² .

    Parameters
    ----------
    operator : Operator
    g : (..., M, N) array
        The blurred image.
    smoothing : float
        Standard deviation of the Gaussian in pixels; it keeps the noise of g out of f̄.

    Returns
    -------
    (..., P, Q) array
        Of the operator's `scene_shape`, divided by its brightness.
    """
    g = as_real(g, "the image")
    level, wraps = brightness_of(operator), operator.boundary.wraps
    if is_cupy(g) and int(4 * smoothing + 0.5) <= kernels.Constants("start").MOST_RADIUS:
        return _laid(g, operator.scene_shape, _first(operator), wraps, smoothing, 1 / level)
    if is_cupy(g):
        return get_xp(g).asarray(prior_scene(operator, asnumpy(g), smoothing))
    return continued(operator, smoothed(g, len(operator.image_shape), wraps, smoothing)) / g.dtype.type(level)


def smoothed(g: Array, axes: int = 2, wraps: bool = False, sigma: float = LOCAL) -> Array:
    """Images (..., M, N) under a Gaussian with a standard deviation in pixels, as if their edge pixels went on."""
    if is_cupy(g):
        return _laid(g, g.shape[-axes:], (0,) * axes, wraps, sigma)
    reach = int(4 * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    # Blocks of lines times a band matrix. scipy.ndimage takes longer to import than a small image to restore.
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
    """CuPy's images smoothed and laid into scenes, axis by axis."""
    axes = len(scene)
    x, lead, shape = g, g.shape[:-axes], g.shape[-axes:]
    for axis, n in enumerate(shape[:-1]):  # all later axes as one
        x = x.reshape(*lead, *scene[:axis], n, math.prod(shape[axis + 1 :]))
        x = _smooth(x, (scene[axis], x.shape[-1]), (first[axis], 0), 0, wraps, sigma)
    x = x.reshape(*lead, math.prod(scene[:-1]), g.shape[-1])
    x = _smooth(x, (x.shape[-2], scene[-1]), (0, first[-1]), 1, wraps, sigma, scale)
    return x.reshape(*lead, *scene)


def brightness_of(operator: Operator) -> float:
    """The factor between the means of image and scene; 1 for an operator that removes the mean."""
    level = operator.dc_gain
    return level if abs(level) > DIM * operator.norm_bound else 1.0  # an edge filter keeps none


def filled(g: Array, weights: Array | None) -> Array:
    """Frames (k, c, M, N), with the pixels of weight 0 taken from their neighbours: hidden values have no effect.

    They get the mean of what is visible under a Gaussian of growing width: the start of an iteration, never a
    result.
    """
    if weights is None:
        return g
    xp = get_xp(g)
    visible = xp.broadcast_to(weights > 0, g.shape)
    if all_true(visible):
        return g
    space, fft = g.shape[2:], Device.of(g).fft
    options: Any = {"axes": tuple(range(2, g.ndim)), "norm": "ortho"}  # the picture is mirrored at its edges
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
            # A frame with nothing visible at all (another of the stack has): its level is unknown.
            out = xp.where(missing, 0, out)
            break
    return out.astype(g.dtype, copy=False)


def first_scene(problem: Problem, g: Array) -> Array:
    """Where an iteration begins: the image over the operator's brightness, its edges going on beyond the frame."""
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
    """Images laid into the scene, continued by their edge pixels."""
    axes, crop = len(operator.image_shape), operator.crop
    if tuple(at.stop - at.start for at in crop) != operator.image_shape:  # an image that is no part of its scene
        mean = g.mean(axis=tuple(range(-axes, 0)), keepdims=True)
        return get_xp(g).broadcast_to(mean, (*g.shape[:-axes], *operator.scene_shape))
    if is_cupy(g) and g.dtype.kind == "f" and axes == 2:
        return _smooth(g, operator.scene_shape, _first(operator), 1, False)
    pads = [(at.start, n - at.stop) for at, n in zip(crop, operator.scene_shape, strict=True)]
    return get_xp(g).pad(g, [(0, 0)] * (g.ndim - axes) + pads, mode="edge")


def _first(operator: Operator) -> Shape:
    """Where the image's first pixel lies in the scene."""
    return tuple(part.start for part in operator.crop)


def _smooth(
    g: Array, shape: Sequence[int], first: Sequence[int], axis: int, wraps: bool, sigma: float = 0.0, scale: float = 1.0
) -> Array:
    """Images (..., M, N) smoothed along an axis, laid into scenes and continued by their edges: ``cuda/start.cu``."""
    images, row, stride = kernels.images(g)
    threads = kernels.Constants("start").THREADS
    most = 8 * kernels.properties(g.device.id).multiprocessors
    out = get_xp(g).empty((*g.shape[:-2], *shape), g.dtype)
    kernels.launch(
        "start", "smooth", min(most, -(-math.prod(shape) // threads)), threads, out, len(images), *shape, *first,
        images, row, stride, *images.shape[1:], axis, wraps, int(4 * sigma + 0.5), sigma or 1.0, scale, dtype=g.dtype,
    )  # fmt: skip
    return out


def all_weights(problem: Problem) -> Array:
    """W as (a, b, M, N), a and b being those of the frames or 1; ones where the fit has none."""
    xp, shape, w = problem.xp, problem.operator.image_shape, problem.fidelity.weights
    w = xp.asarray(np.ones(1, problem.dtype)) if w is None else w
    w = w.reshape((1,) * (2 + len(shape) - w.ndim) + w.shape)
    return xp.broadcast_to(w, (*w.shape[:2], *shape))


def half_width(hidden: np.ndarray) -> int:
    """How far a hidden pixel is from a visible one of its image, along an axis or a diagonal; 0 if none is hidden."""
    from scipy.ndimage import distance_transform_cdt

    images = [image for image in hidden.reshape(-1, *hidden.shape[2:]) if image.any()]
    far = (max(i.shape) if i.all() else int(distance_transform_cdt(i).max()) for i in images)
    return max(far, default=0)

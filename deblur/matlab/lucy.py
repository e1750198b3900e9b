"""Deconvolution by the most likely image, on the periodic model: `deconvlucy` and `deconvblind`.

With f the image, h the PSF and g the data, one iteration of Richardson and
Lucy multiplies an estimate by what the ratio of data and model sends back to
it:

    f ← f · Hᵀr / Hᵀw      and, where the PSF is sought, too,      h ← h · Fᵀr / Fᵀw ,

    r = w (g + readout) / (h ∗ f + readout) ,

Hᵀ the correlation with h, Fᵀ that with f, w the weights. Each estimate steps
from a point extrapolated by the rule of Biggs and Andrews.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..device import Array, get_fft, get_xp
from ..errors import check_callback
from .arguments import EPS, as_image, as_psf, as_real, as_whole, from_double
from .transfer import filtered, psf2otf, window


def deconvlucy(
    img: Any,
    psf: Array,
    numit: int | None = None,
    dampar: Any = None,
    weight: Any = None,
    readout: Any = None,
    subsmpl: int | None = None,
) -> Any:
    """Deblur an image by the damped, accelerated Lucy-Richardson method.

    None stands for MATLAB's ``[]``: the default. Beginning from the image
    itself, and with H circular, each iteration takes the step of
    `deblur.solvers.richardson_lucy` from a point extrapolated by Biggs and
    Andrews's rule, with the ratio of image and model

        ratio = weight (img + readout) / (H f + readout) ,

    which damping draws towards 1 where they agree within dampar.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64, or a tuple or list of such arrays
        N-D. Integers are scaled to [0, 1] while it works. A tuple or a list is MATLAB's cell array: ``(img,)``
        asks for one back, and that goes on where it ended: (img, result, the result before it, internal), all
        but the first in float64 (integers scaled to [0, 1]).
    psf : array
        Not larger than the (finer) image in any dimension; used as it is.
    numit : int
        Iterations, 10 by default.
    dampar : float or array
        Deviation, in the units of the image, below which a pixel is damped [1]_: with the half squared
        deviation u = (D log(D/M) − D + M)/(dampar²/2) of model M and data D, limited to 1, the ratio minus 1 is
        multiplied by u⁹ (10 − 9 u). 0 by default: none.
    weight : array
        The quality of each pixel, 0 for a bad one; ones by default.
    readout : float or array
        Additive noise (background) and the variance of the camera's read-out noise, in the units of the image; 0 by
        default.
    subsmpl : int
        How many times finer than the image the PSF's grid is, 1 by default. The result is on the finer grid.

    Returns
    -------
    J : array of img's class
        Of img's shape, times `subsmpl` in the PSF's dimensions; or the tuple or list described above.

    Raises
    ------
    TypeError
        For another class of image.
    ValueError
        For a PSF that is larger than the image, numbers out of range, arrays of another shape than the image's,
        weights that are zero everywhere, NaN or infinity.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``deconvlucy``.

    .. [1] R. J. Hanisch, R. L. White, R. L. Gilliland, "Deconvolution of Hubble Space Telescope images and
       spectra", in *Deconvolution of Images and Spectra*, ed. P. A. Jansson, 2nd ed., Academic Press 1997.
    .. [2] D. S. C. Biggs, M. Andrews, Appl. Opt. 36 (1997) 1766-1775.
    """
    cell = _cell(img, "img")
    data = _Data(cell[0] if cell else img, dampar, weight, readout)
    iterations = as_whole(10 if numit is None else numit, "numit")
    finer = as_whole(1 if subsmpl is None else subsmpl, "subsmpl")
    xp = get_xp(data.image)
    kernel = as_real(psf, "psf")
    axes = [axis for axis, m in enumerate(kernel.shape) if m > 1]
    shape = tuple(n * finer if axis in axes else n for axis, n in enumerate(data.image.shape))

    def spread(a: Array) -> Array:
        for axis in axes:
            a = xp.repeat(a, finer, axis=axis)
        return a

    finer_image = spread(data.image)
    otf = psf2otf(as_psf(kernel, finer_image), shape)

    def back(a: Array) -> Array:
        return filtered(xp.conj(otf), spread(a))

    sensitivity = back(data.weight)
    scene = _Estimate.begin(cell, finer_image)
    for _ in range(iterations):
        point = scene.ahead()
        ratio = data.ratio(_binned(filtered(otf, point), axes, finer))
        scene.step(point, _lucy(point, back(ratio), sensitivity))
    return scene.cell(img, data.given) if cell else from_double(scene.last, data.given.dtype)


def deconvblind(
    img: Any,
    psfi: Any,
    numit: int | None = None,
    dampar: Any = None,
    weight: Any = None,
    readout: Any = None,
    fun: Callable[[Array], Array] | None = None,
) -> tuple[Any, Any]:
    """Deblur an image whose PSF is not known, by the damped, accelerated Lucy-Richardson method for both.

    Each iteration takes the step of `deconvlucy` for the image and, from the
    same model, the like step for the PSF. The *size* of the first PSF decides
    more than its values; ones are a good beginning.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64, or a tuple or list of such arrays
        N-D, as for `deconvlucy`, also as a cell array: ``(img,)`` with ``(psfi,)`` asks for two such back, and
        these go on where they ended.
    psfi : array, or a tuple or list of arrays
        The PSF to begin with, not negative, of any sum, not larger than the image in any dimension.
    numit, dampar, weight, readout
        As for `deconvlucy`. None stands for MATLAB's ``[]``: the default.
    fun : callable, optional
        Called with the PSF after each iteration, for constraints of your own; returns the PSF to go on with, of
        the same shape and not negative. (MATLAB takes it as the last argument at any place: here, name it.)

    Returns
    -------
    J : array of img's class and shape
    psf : float64 array of psfi's shape
        Not negative, of sum one.

        For cell arrays both are tuples (lists for lists) of four: what was given, the result, the result before
        it, and what the acceleration keeps.

    Raises
    ------
    TypeError
        For another class of image, or a `fun` that is not callable.
    ValueError
        As for `deconvlucy`; for a PSF with negative elements, from you or from `fun`; for a cell array beside a
        plain array.

    Notes
    -----
    Image and PSF are separated by the PSF's sum and its size alone: neither is unique, and the result depends
    on where the iteration begins and ends.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``deconvblind``. D. A. Fish, A. M. Brinicombe, E. R. Pike,
    J. G. Walker, J. Opt. Soc. Am. A 12 (1995) 58-65. D. S. C. Biggs, M. Andrews, Appl. Opt. 36 (1997) 1766-1775.
    """
    cell, psf_cell = _cell(img, "img"), _cell(psfi, "psfi")
    if len(cell) != len(psf_cell):
        kinds = [f"a cell array of {len(c)}" if c else "an array" for c in (cell, psf_cell)]
        raise ValueError(
            f"img is {kinds[0]} and psfi {kinds[1]}: give two arrays, (img,) and (psfi,), or both of an earlier "
            "call's cell arrays"
        )
    check_callback(fun, "fun", "psf")
    data = _Data(cell[0] if cell else img, dampar, weight, readout)
    iterations = as_whole(10 if numit is None else numit, "numit")
    shape = data.image.shape
    first = psf_cell[0] if psf_cell else psfi
    size = as_real(first, "psfi").shape
    full = size + (1,) * (len(shape) - len(size))

    def checked(psf: Any, name: str) -> Array:
        """A PSF that was given, of sum one."""
        psf = as_psf(psf, data.image, name)
        if psf.shape != full:
            raise ValueError(f"{name} must have psfi's shape {full}, not {psf.shape}")
        if float(psf.min()) < 0:
            raise ValueError(f"{name} must not be negative, and has {float(psf.min()):.4g}: take numpy.maximum(psf, 0)")
        return (psf / psf.sum()).reshape(size)

    xp = get_xp(data.image)
    fft = get_fft(xp)

    def back(through: Array, a: Array) -> Array:
        return fft.ifftn(xp.conj(through) * a).real

    def cut(a: Array) -> Array:
        return window(a, full).reshape(size)

    scene, kernel = _Estimate.begin(cell, data.image), _Estimate.begin(psf_cell, checked(first, "psfi"))
    weights = fft.fftn(data.weight)
    for _ in range(iterations):
        f, h = scene.ahead(), kernel.ahead()
        h = h / h.sum()
        light, otf = fft.fftn(f), psf2otf(h, shape)
        ratio = fft.fftn(data.ratio(fft.ifftn(otf * light).real))
        scene.step(f, _lucy(f, back(otf, ratio), back(otf, weights)))
        psf = _lucy(h, cut(back(light, ratio)), cut(back(light, weights)))
        total = float(psf.sum())
        psf = psf / total if total > 0 else h  # a black image says nothing about its PSF
        kernel.step(h, psf if fun is None else checked(fun(psf), "fun(psf)"))
    if cell:
        return scene.cell(img, data.given), kernel.cell(psfi, first)
    return from_double(scene.last, data.given.dtype), kernel.last


def _cell(value: Any, name: str) -> Sequence[Array]:
    """What a cell array holds, of one or of four; empty if `value` is a plain array."""
    if not isinstance(value, list | tuple) or not all(getattr(a, "ndim", 0) >= 2 for a in value):
        return ()
    if len(value) not in (0, 1, 4):
        raise ValueError(
            f"{name} must be an array, or a tuple of one array or of the four arrays of an earlier call, "
            f"not of {len(value)}"
        )
    return value


class _Data:
    """The image, and what is known of its noise."""

    def __init__(self, img: Any, dampar: Any, weight: Any, readout: Any) -> None:
        self.given, self.image, xp = as_image(img, "img")
        dtype = self.given.dtype
        scale = float(np.iinfo(dtype).max) - np.iinfo(dtype).min if dtype.kind in "iu" else 1.0
        self.weight = _like_image(weight, "weight", 1.0, self.image)
        self.damping = _like_image(dampar, "dampar", 0.0, self.image) / scale
        self.background = _like_image(readout, "readout", 0.0, self.image) / scale
        if not bool((self.weight > 0).any()):
            raise ValueError("weight is zero everywhere: no pixel is left to restore the image from")
        self.weighted = xp.maximum(self.weight * (self.image + self.background), 0)

    def ratio(self, model: Array) -> Array:
        """Of data and model, drawn towards 1 where the two agree within the damping."""
        xp, data, damping = get_xp(model), self.weighted, self.damping
        model = model + self.background
        model = xp.where(model == 0, EPS, model)
        ratio = data / model
        deviation = xp.where(data > 0, data * xp.log(xp.where(ratio > 0, ratio, 1)) + model - data, model)
        u = xp.minimum(deviation / xp.where(damping > 0, damping**2 / 2, 1), 1)
        return xp.where(damping > 0, 1 + u**9 * (10 - 9 * u) * (ratio - 1), ratio)


@dataclass
class _Estimate:
    """The image or the PSF on its way: the last one, the one before it, and the last two steps."""

    last: Array
    before: Array
    steps: list[Array]

    @classmethod
    def begin(cls, cell: Sequence[Array], start: Array) -> _Estimate:
        """From `start`, or where the cell array of an earlier call ended."""
        xp = get_xp(start)
        if len(cell) < 4:
            return cls(start, start, [xp.zeros_like(start), xp.zeros_like(start)])
        last, before, steps = (xp.asarray(a) for a in cell[1:])
        if last.shape != start.shape or before.shape != start.shape or steps.shape != (*start.shape, 2):
            raise ValueError(f"the cell array is of a call with other sizes: {last.shape} is not {start.shape}")
        return cls(last, before, list(xp.moveaxis(steps, -1, 0)))

    def ahead(self) -> Array:
        """The point to take the next step from."""
        step, before = self.steps
        below = float((before * before).sum())
        a = min(max(float((step * before).sum()) / below, 0.0), 1.0) if below > 0 else 0.0
        return get_xp(self.last).maximum(self.last + a * (self.last - self.before), 0)

    def step(self, point: Array, new: Array) -> None:
        self.last, self.before = new, self.last
        self.steps = [new - point, self.steps[0]]

    def cell(self, like: Any, first: Array) -> Any:
        """MATLAB's cell array, a tuple or a list as `like` is."""
        out = [first, self.last, self.before, get_xp(self.last).stack(self.steps, axis=-1)]
        return out if isinstance(like, list) else tuple(out)


def _lucy(point: Array, ratio: Array, sensitivity: Array) -> Array:
    """The step from `point`, both others as sent back to where it is."""
    return get_xp(point).maximum(point * ratio / (sensitivity + math.sqrt(EPS)), 0)


def _like_image(value: Any, name: str, default: float, image: Array) -> Array:
    """A number or an array of the image's shape, not negative."""
    a = as_real(default if value is None else value, name, image)
    if a.size == 1:
        a = get_xp(image).full(image.shape, float(a.item()))
    if a.shape != image.shape or bool((a < 0).any()):
        raise ValueError(f"{name} must be a number >= 0, or an array of them of the image's shape {image.shape}")
    return a


def _binned(x: Array, axes: Sequence[int], by: int) -> Array:
    """The mean of each `by` neighbours along `axes`."""
    for axis in axes:
        x = x.reshape([*x.shape[:axis], x.shape[axis] // by, by, *x.shape[axis + 1 :]]).mean(axis=axis + 1)
    return x

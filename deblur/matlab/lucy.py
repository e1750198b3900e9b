"""Maximum-likelihood deconvolution on the periodic model: `deconvlucy` and `deconvblind`.

Let f be the image, h the PSF and g the data. One iteration of Richardson and Lucy
multiplies an estimate by the ratio of data and model, projected back to it:

    f ← f · Hᵀr / Hᵀw      and, if the PSF is unknown, too,      h ← h · Fᵀr / Fᵀw ,

    r = w (g + readout) / (h ∗ f + readout) ,

where Hᵀ is the correlation with h, Fᵀ the correlation with f, and w are the weights.
Each step starts from a point extrapolated by the rule of Biggs and Andrews.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..device import Array, get_fft, get_xp
from ..errors import check_callback
from .arguments import EPS, as_image, as_like, as_psf, as_real, as_whole, from_double
from .transfer import filtered, psf2otf, window


def deconvlucy(
    img: Any,
    psf: Array,
    numit: Any = None,
    dampar: Any = None,
    weight: Any = None,
    readout: Any = None,
    subsmpl: Any = None,
) -> Any:
    """Deblur an image by the damped, accelerated Lucy-Richardson method.

    None stands for MATLAB's ``[]``, the default. The iteration starts from the image
    itself, and H is circular. Each iteration takes the step of
    `deblur.solvers.richardson_lucy` from a point extrapolated by the rule of Biggs
    and Andrews [2]_, with the ratio of image and model

        ratio = weight (img + readout) / (H f + readout) .

    Damping moves the ratio towards 1 where image and model agree within dampar.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64, or a tuple or list of such arrays
        The image, N-D. Integers are scaled to [0, 1] for the computation. A tuple or a list is MATLAB's cell array.
        For ``(img,)`` the function returns (img, result, previous result, internal). A call with this cell array
        continues the iteration. All its elements but the first are float64 (integers scaled to [0, 1]).
    psf : array
        The PSF, not larger than the (finer) image in any dimension; it is not normalised.
    numit : int
        Number of iterations, 10 by default.
    dampar : float or array
        Deviation, in the units of the image, below which a pixel is damped [1]_; 0 (default) damps nothing. For model M
        and data D let u = (D log(D/M) − D + M)/(dampar²/2), at most 1. The ratio minus 1 is multiplied by
        u⁹ (10 − 9 u).
    weight : array
        The quality of each pixel, 0 for a bad one; ones by default.
    readout : float or array
        Additive noise (background) and the variance of the camera's read-out noise, in the units of the image; 0 by
        default.
    subsmpl : int
        Sampling factor of the PSF's grid relative to the image, 1 by default. The result is on the finer grid.

    Returns
    -------
    J : array of img's class
        The restored image, with img's shape times `subsmpl` in the PSF's dimensions; or a tuple or list as above.

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
    scene = _Scene(img, dampar, weight, readout)
    iterations = as_whole(10 if numit is None else numit, "numit")
    finer = as_whole(1 if subsmpl is None else subsmpl, "subsmpl")
    xp = get_xp(scene.image)
    kernel = as_real(psf, "psf")
    axes = [axis for axis, m in enumerate(kernel.shape) if m > 1]

    def spread(a: Array) -> Array:
        for axis in axes:
            a = xp.repeat(a, finer, axis=axis)
        return a

    finer_image = spread(scene.image)
    otf = psf2otf(as_psf(kernel, finer_image), finer_image.shape)

    def back(a: Array) -> Array:
        return filtered(xp.conj(otf), spread(a))

    sensitivity = back(scene.weight)
    scene.begin(finer_image)
    for _ in range(iterations):
        point = scene.ahead()
        ratio = scene.ratio(_binned(filtered(otf, point), axes, finer))
        scene.step(point, _lucy(point, back(ratio), sensitivity))
    return scene.result()


def deconvblind(
    img: Any,
    psfi: Any,
    numit: int | None = None,
    dampar: Any = None,
    weight: Any = None,
    readout: Any = None,
    fun: Callable[[Array], Array] | None = None,
) -> tuple[Any, Any]:
    """Deblur an image with an unknown PSF, by the damped, accelerated Lucy-Richardson method for image and PSF.

    Each iteration takes the step of `deconvlucy` for the image and, from the same
    model, a similar step for the PSF. The *size* of the initial PSF matters more than
    its values; ones are a good start.

    Parameters
    ----------
    img : array of uint8, uint16, int16, float32 or float64, or a tuple or list of such arrays
        The image, N-D, as for `deconvlucy`, also as a cell array. For ``(img,)`` with ``(psfi,)`` the function returns
        two cell arrays, with which another call continues.
    psfi : array, or a tuple or list of arrays
        The initial PSF: not negative, with any sum, and not larger than the image in any dimension.
    numit, dampar, weight, readout
        As for `deconvlucy`. None stands for MATLAB's ``[]``, the default.
    fun : callable, optional
        A function of the PSF that is called after each iteration, for user-defined constraints. It returns the next
        PSF, with the same shape and not negative. (MATLAB accepts it as the last argument at any position; here it must
        be named.)

    Returns
    -------
    J : array of img's class and shape
        The restored image.
    psf : float64 array of psfi's shape
        The PSF, not negative and with sum one.

        For cell arrays both are tuples (or lists) of four: the argument, the result, the previous result, and the state
        of the acceleration.

    Raises
    ------
    TypeError
        For another class of image, or a `fun` that is not callable.
    ValueError
        As for `deconvlucy`; for a PSF with negative elements, given or returned by `fun`; for a cell array together
        with a plain array.

    Notes
    -----
    Only the sum and the size of the PSF distinguish it from the image. Neither is unique, and the result depends on the
    initial PSF and on the number of iterations.

    References
    ----------
    MATLAB Image Processing Toolbox, documentation of ``deconvblind``. D. A. Fish, A. M. Brinicombe, E. R. Pike,
    J. G. Walker, J. Opt. Soc. Am. A 12 (1995) 58-65. D. S. C. Biggs, M. Andrews, Appl. Opt. 36 (1997) 1766-1775.
    """
    scene, kernel = _Scene(img, dampar, weight, readout), _Estimate(psfi, "psfi")
    if len(scene.cell) != len(kernel.cell):
        kinds = [f"a cell array of {len(one.cell)}" if one.cell else "an array" for one in (scene, kernel)]
        raise ValueError(
            f"img is {kinds[0]} and psfi {kinds[1]}: give two arrays, (img,) and (psfi,), or both of an earlier "
            "call's cell arrays"
        )
    check_callback(fun, "fun", "psf")
    iterations = as_whole(10 if numit is None else numit, "numit")
    shape = scene.image.shape
    size = as_real(kernel.first, "psfi").shape
    full = size + (1,) * (len(shape) - len(size))

    def checked(psf: Any, name: str) -> Array:
        """Return a given PSF, checked and with sum one."""
        psf = as_psf(psf, scene.image, name)
        if psf.shape != full:
            raise ValueError(f"{name} must have psfi's shape {full}, not {psf.shape}")
        if float(psf.min()) < 0:
            raise ValueError(f"{name} must not be negative, and has {float(psf.min()):.4g}: take numpy.maximum(psf, 0)")
        return (psf / psf.sum()).reshape(size)

    xp = get_xp(scene.image)
    fft = get_fft(xp)

    def back(through: Array, a: Array) -> Array:
        return fft.ifftn(xp.conj(through) * a).real

    def cut(a: Array) -> Array:
        return window(a, full).reshape(size)

    scene.begin(scene.image)
    kernel.begin(checked(kernel.first, "psfi"))
    weights = fft.fftn(scene.weight)
    for _ in range(iterations):
        f, h = scene.ahead(), kernel.ahead()
        h = h / h.sum()
        light, otf = fft.fftn(f), psf2otf(h, shape)
        ratio = fft.fftn(scene.ratio(fft.ifftn(otf * light).real))
        scene.step(f, _lucy(f, back(otf, ratio), back(otf, weights)))
        psf = _lucy(h, cut(back(light, ratio)), cut(back(light, weights)))
        total = float(psf.sum())
        psf = psf / total if total > 0 else h  # a black image does not determine its PSF
        kernel.step(h, psf if fun is None else checked(fun(psf), "fun(psf)"))
    return scene.result(), kernel.result()


class _Estimate:
    """The current estimate of the image or the PSF, the previous one, and the last two steps.

    Attributes
    ----------
    cell : sequence of arrays
        The elements of a given cell array, of which there are one or four; empty if a plain array was given.
    first : array
        The array that was given, or the first of the cell array.
    dtype : dtype
        The class of the result.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, given: Any, name: str) -> None:
        is_cell = isinstance(given, list | tuple) and all(getattr(a, "ndim", 0) >= 2 for a in given)
        self.cell = given if is_cell else ()
        if len(self.cell) not in (0, 1, 4):
            raise ValueError(
                f"{name} must be an array, or a tuple of one array or of the four arrays of an earlier call, "
                f"not of {len(given)}"
            )
        self.first = given[0] if self.cell else given

    def begin(self, start: Array) -> None:
        """Begin at `start`, or, if the cell array is from an earlier call, where that ended."""
        zero = get_xp(start).zeros_like(start)
        self.last, self.before, self.steps = start, start, [zero, zero]
        if len(self.cell) == 4:
            self.last, self.before, steps = (get_xp(start).asarray(a) for a in self.cell[1:])
            if {self.last.shape, self.before.shape} != {start.shape} or steps.shape != (*start.shape, 2):
                raise ValueError(
                    f"the cell array is from a call with other sizes: {self.last.shape} is not {start.shape}"
                )
            self.steps = [steps[..., 0], steps[..., 1]]

    def ahead(self) -> Array:
        """Return the extrapolated point from which the next step starts."""
        step, before = self.steps
        below = float((before * before).sum())
        a = min(max(float((step * before).sum()) / below, 0.0), 1.0) if below > 0 else 0.0
        return get_xp(self.last).maximum(self.last + a * (self.last - self.before), 0)

    def step(self, point: Array, new: Array) -> None:
        self.last, self.before = new, self.last
        self.steps = [new - point, self.steps[0]]

    def result(self) -> Any:
        """Return the estimate, or MATLAB's cell array, a tuple or a list as the one that was given."""
        if not self.cell:
            return from_double(self.last, self.dtype)
        out = [self.first, self.last, self.before, get_xp(self.last).stack(self.steps, axis=-1)]
        return out if isinstance(self.cell, list) else tuple(out)


class _Scene(_Estimate):
    """The estimate of the scene, with the image, its weights, damping and background."""

    def __init__(self, img: Any, dampar: Any, weight: Any, readout: Any) -> None:
        super().__init__(img, "img")
        self.first, self.image, xp = as_image(self.first, "img")
        self.dtype = dtype = self.first.dtype
        scale = float(np.iinfo(dtype).max) - np.iinfo(dtype).min if dtype.kind in "iu" else 1.0
        self.weight = as_like(1.0 if weight is None else weight, "weight", self.image)
        self.damping = as_like(0.0 if dampar is None else dampar, "dampar", self.image) / scale
        self.background = as_like(0.0 if readout is None else readout, "readout", self.image) / scale
        if not bool((self.weight > 0).any()):
            raise ValueError("weight is zero everywhere: no pixel is left to restore the image from")
        self.weighted = xp.maximum(self.weight * (self.image + self.background), 0)

    def ratio(self, model: Array) -> Array:
        """Return the ratio of data and model, moved towards 1 where both agree within the damping."""
        xp, data, damping = get_xp(model), self.weighted, self.damping
        model = model + self.background
        model = xp.where(model == 0, EPS, model)
        ratio = data / model
        deviation = xp.where(data > 0, data * xp.log(xp.where(ratio > 0, ratio, 1)) + model - data, model)
        u = xp.minimum(deviation / xp.where(damping > 0, damping**2 / 2, 1), 1)
        return xp.where(damping > 0, 1 + u**9 * (10 - 9 * u) * (ratio - 1), ratio)


def _lucy(point: Array, ratio: Array, sensitivity: Array) -> Array:
    """Return the step from `point`; ratio and sensitivity are already projected back."""
    return get_xp(point).maximum(point * ratio / (sensitivity + math.sqrt(EPS)), 0)


def _binned(x: Array, axes: Sequence[int], by: int) -> Array:
    """Return the means of groups of `by` neighbours along `axes`."""
    for axis in axes:
        x = x.reshape([*x.shape[:axis], x.shape[axis] // by, by, *x.shape[axis + 1 :]]).mean(axis=axis + 1)
    return x

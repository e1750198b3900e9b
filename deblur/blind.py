"""`blind`: restore an image with an unknown PSF."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

from . import psf
from .device import Array, asnumpy
from .errors import warn
from .frames import Frames
from .options import Options, takes_options
from .pipeline import solve
from .psf import PSFEstimate, Size
from .result import Result
from .tuning import estimate_noise


@dataclass(frozen=True)
class BlindResult:
    """An image restored with a PSF estimated from it.

    Attributes
    ----------
    image : array
        The restored image, shaped like the blurred one.
    psf : PSFEstimate
        ``psf.psf`` is the PSF, ``psf.status`` how far it, and with it the image, can be trusted.
    result : Result
        The restoration, as by `deblur.solve`.
    """

    psf: PSFEstimate
    result: Result

    @property
    def image(self) -> Array:
        """The restored image."""
        return self.result.image

    def __str__(self) -> str:
        return f"{self.psf}\n{self.result}"


@takes_options
def blind(
    img: Array,
    size: Size,
    lam: float | str = "auto",
    *,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[Options],
) -> BlindResult:
    """Restore an image blurred by camera shake, without knowing its PSF.

    The PSF, the same everywhere, is estimated from the image itself (`deblur.psf.from_blurred`), and the image is
    restored with it by `solve`, by default with ``method="tv"``. The choice of λ counts the estimate's error as noise.

    Parameters
    ----------
    img : array
        As for `reconstruct`. The PSF is estimated from the mean of its colours and frames.
    size : int or (int, int)
        Upper limit of the PSF's rows and columns in pixels; a third too large does no harm. Not more than a
        quarter of the image.
    lam : float or str
        As for `reconstruct`.
    channel_axis, stack_axis : int, optional
        As for `reconstruct`.
    progress : callable, optional
        Called with (estimates of the PSF so far, their number).
    {options}

    Returns
    -------
    BlindResult
        ``found.image``, ``found.psf`` and ``found.result``; ``print(found)`` shows all decisions. A warning is issued
        if the PSF is not to be trusted.

    Raises
    ------
    ValueError, TypeError
        For invalid input, a constant image, or an image too small for the PSF.
    MethodError, ConvergenceError
        As for `solve`.

    Examples
    --------
    >>> import deblur
    >>> sharp = deblur.data.load("camera")[40:168, 200:328]
    >>> blurred = deblur.degrade(sharp, deblur.psf.camera_shake(7, 3), noise=0.003, boundary="reflect", seed=0)
    >>> found = deblur.blind(blurred, 9)
    >>> deblur.metrics.psnr(sharp, found.image) > deblur.metrics.psnr(sharp, blurred)
    True
    """
    frames = Frames(img, channel_axis, stack_axis, options.get("mask"), options.get("gamma"))
    estimate = psf.from_blurred(asnumpy(frames.data.mean(axis=(0, 1))), size, progress=progress)
    if not estimate.status.ok:
        warn(f"the PSF is {estimate.status.value}: {estimate.why}")
    options.setdefault("method", "tv")  # the PSF was found from edges, too
    if options.get("noise") is None:
        with contextlib.suppress(ValueError):  # noise without a single level
            noise = estimate_noise(frames.data, estimate.psf)
            options["noise"] = math.hypot(noise, estimate.details["data_residual"])
    result = solve(img, estimate.psf, lam, channel_axis=channel_axis, stack_axis=stack_axis, **options)
    return BlindResult(estimate, result)

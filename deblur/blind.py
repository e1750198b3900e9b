"""`blind`: restoring a picture whose PSF nobody knows."""

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

_METHOD = "tv"  # where none is named: edges are what the PSF was found from


@dataclass(frozen=True)
class BlindResult:
    """A picture restored with a PSF estimated from it.

    Attributes
    ----------
    image : array
        The restored picture, shaped like the blurred one.
    psf : PSFEstimate
        ``psf.psf`` is the PSF, ``psf.status`` says how far to trust it, and with it the picture.
    result : Result
        The restoration, as `deblur.solve` gives it.
    """

    psf: PSFEstimate
    result: Result

    @property
    def image(self) -> Array:
        """The restored picture."""
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
    """Restore a picture that a shaking hand blurred, without knowing its PSF.

    The PSF, the same everywhere, is estimated from the picture itself (`deblur.psf.from_blurred`), and the picture
    restored with it as `solve` does, by ``method="tv"`` where no other is named. What the estimate may be wrong by is
    counted as noise where λ is chosen.

    Parameters
    ----------
    img : array
        As for `reconstruct`. The PSF is estimated from the mean of its colours and frames.
    size : int or (int, int)
        Rows and columns in pixels that the PSF has at most; a third more than it has does no harm. Not more than a
        quarter of the picture.
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
        ``found.image``, ``found.psf`` and ``found.result``; ``print(found)`` shows all that was decided. A warning says
        where the PSF is not to be trusted.

    Raises
    ------
    ValueError, TypeError
        For input that makes no sense, a constant picture, or a PSF that it has no room for.
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
    options.setdefault("method", _METHOD)
    if options.get("noise") is None:
        with contextlib.suppress(ValueError):  # noise that has no one level
            noise = estimate_noise(frames.data, estimate.psf)
            options["noise"] = math.hypot(noise, estimate.details["misfit"])
    result = solve(img, estimate.psf, lam, channel_axis=channel_axis, stack_axis=stack_axis, **options)
    return BlindResult(estimate, result)

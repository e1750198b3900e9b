"""Restore an image without knowing its PSF: `blind`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Unpack

from . import psf
from .device import Array, asnumpy
from .errors import warn
from .frames import Frames
from .options import Options, takes_options
from .pipeline import solve
from .plan import pixel_weights
from .psf import PSFEstimate, PSFStatus, Size
from .request import check_request
from .result import Result
from .solvers.start import filled


@dataclass(frozen=True)
class BlindResult:
    """An image restored with a PSF estimated from it.

    Attributes
    ----------
    image : array
        The restored image, with the shape of the blurred one.
    psf : PSFEstimate
        The estimated PSF: ``psf.psf`` is the PSF, and ``psf.status`` says whether PSF and image are reliable.
    result : Result
        The restoration, as `deblur.solve` returns it.
    """

    psf: PSFEstimate
    result: Result

    @property
    def image(self) -> Array:
        """The restored image."""
        return self.result.image

    def __str__(self) -> str:
        return f"{self.psf}\n{self.result}"


@takes_options(Options)
def blind(
    img: Array,
    size: Size | None = None,
    lam: float | str = "auto",
    *,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    grid: tuple[int, int] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[Options],
) -> BlindResult:
    """Restore an image blurred by camera shake, without knowing its PSF.

    `deblur.psf.from_blurred` estimates the PSF from the image itself, and `solve` restores the image with it, by
    default with ``method="tv"``. The error of the estimated PSF counts as noise.

    Parameters
    ----------
    img : array
        One frame, as for `reconstruct`. The PSF is estimated from the mean of its colours, in which pixels
        hidden by a mask or by weights of 0 are filled from their neighbours.
    size : int or (int, int), optional
        Upper limit of the PSF's rows and columns in pixels, at least 3 and at most half the image. A limit that is far
        too large makes a failure more likely. By default 61, or a quarter of the image if that is less.
    lam : float or str
        As for `reconstruct`.
    channel_axis, stack_axis : int, optional
        As for `reconstruct`.
    grid : (int, int), optional
        Cut the image into this many rows and columns of equal parts, estimate one PSF for each part, and restore the
        image with all of them. ``psf.map`` of the result holds the PSFs.
    progress : callable, optional
        Called with (number of finished steps of the PSF's estimation, number of all steps).
    {options}

    Returns
    -------
    BlindResult
        The image, the estimated PSF and the restoration; ``print`` shows all decisions. A `PSFWarning` is issued if the
        estimated PSF is unreliable. An estimate whose restoration does not converge counts as unreliable.

    Raises
    ------
    ValueError, TypeError
        For invalid input, several frames, a constant image, or an image too small for the PSF.
    MethodError
        As for `solve`.
    ConvergenceError
        If the restoration yields no image.

    Examples
    --------
    >>> import deblur
    >>> sharp = deblur.data.load("camera")[40:184, 150:294]
    >>> blurred = deblur.degrade(sharp, deblur.psf.camera_shake(9, 3), noise=0.003, boundary="reflect", seed=0)
    >>> found = deblur.blind(blurred, 11)
    >>> deblur.metrics.psnr(sharp, found.image) > deblur.metrics.psnr(sharp, blurred)
    True
    """
    frames = Frames(img, channel_axis, stack_axis, options)
    if frames.extent[0] > 1:
        raise ValueError(f"each of the {frames.extent[0]} frames was shaken by itself: restore them one by one")
    # tv restores edges well, and the PSF was estimated from edges.
    options = {"method": "tv", **options}
    checked = check_request(psf.gaussian(3, 1.0), frames.space, lam, options, frames.device).options
    # A clipped pixel is still bright, which its neighbours may not be.
    shown = None if str(checked["mask"]) == "saturated" else pixel_weights(checked, frames, frames.data)[0]
    estimate = psf.from_blurred(asnumpy(filled(frames.data, shown)[0].mean(axis=0)), size, grid=grid, progress=progress)
    options["psfs"] = estimate.map
    one = estimate.psf if estimate.map is None else None
    result = solve(img, one, lam, channel_axis=channel_axis, stack_axis=stack_axis, check=False, **options)
    if not result.status.ok:
        why = f"{estimate.why}; {result.method} with λ = {result.lam:g} {result.status.value}"
        estimate = replace(estimate, status=PSFStatus.DOUBTFUL, why=why)
    if not estimate.status.ok:
        warn(f"the PSF is {estimate.status.value}: {estimate.why}")
    return BlindResult(estimate, result)

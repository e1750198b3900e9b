"""`blind`: restore an image with an unknown PSF."""

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
from .psf import PSFEstimate, PSFStatus, Size
from .result import Result


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

    The PSF is estimated from the image itself (`deblur.psf.from_blurred`), and `solve` restores the image with it, by
    default with ``method="tv"``. What the estimate's error leaves counts as noise.

    Parameters
    ----------
    img : array
        As for `reconstruct`, one frame. The PSF is estimated from the mean of its colours.
    size : int or (int, int), optional
        Upper limit of the PSF's rows and columns in pixels, at least 3 and at most half the image; one far too
        large makes failures likelier. By default 61, or a quarter of the image if that is less.
    lam : float or str
        As for `reconstruct`.
    channel_axis, stack_axis : int, optional
        As for `reconstruct`.
    grid : (int, int), optional
        Estimate a PSF for each of so many equal parts of the image and restore with all of them: ``found.psf.map``.
    progress : callable, optional
        Called with (steps of the PSF's estimate so far, their number).
    {options}

    Returns
    -------
    BlindResult
        ``found.image``, ``found.psf`` and ``found.result``; ``print(found)`` shows all decisions. A warning is issued
        if the PSF is not to be trusted; nor is it if the restoration with it does not converge.

    Raises
    ------
    ValueError, TypeError
        For invalid input, several frames, a constant image, or an image too small for the PSF.
    MethodError
        As for `solve`.
    ConvergenceError
        If the restoration leaves no image at all.

    Examples
    --------
    >>> import deblur
    >>> sharp = deblur.data.load("camera")[40:184, 150:294]
    >>> blurred = deblur.degrade(sharp, deblur.psf.camera_shake(9, 3), noise=0.003, boundary="reflect", seed=0)
    >>> found = deblur.blind(blurred, 11)
    >>> deblur.metrics.psnr(sharp, found.image) > deblur.metrics.psnr(sharp, blurred)
    True
    """
    frames = Frames(img, channel_axis, stack_axis, options.get("mask"), options.get("gamma"))
    if len(frames.data) > 1:
        raise ValueError(f"each of the {len(frames.data)} frames was shaken by itself: restore them one by one")
    estimate = psf.from_blurred(asnumpy(frames.data[0].mean(axis=0)), size, grid=grid, progress=progress)
    options.setdefault("method", "tv")  # the PSF was found from edges, too
    options["psfs"] = estimate.map
    one = estimate.psf if estimate.map is None else None
    result = solve(img, one, lam, channel_axis=channel_axis, stack_axis=stack_axis, check=False, **options)
    if not result.status.ok:
        why = f"{estimate.why}; {result.method} with λ = {result.lam:g} {result.status.value}"
        estimate = replace(estimate, status=PSFStatus.DOUBTFUL, why=why)
    if not estimate.status.ok:
        warn(f"the PSF is {estimate.status.value}: {estimate.why}")
    return BlindResult(estimate, result)

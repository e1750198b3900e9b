"""Does this PSF fit this picture?

Three questions can be put to a blurred picture without knowing the scene. Is its power what scenes and this blur
leave (`spectra`)? Where the PSF's spectrum is near zero, there must be noise alone; and no other size of the same PSF,
nor its mirror image, should explain the power better. Is the PSF turned by 180 degrees? The power is the same then,
and so is that of the two restored pictures; but the wrong one has the right one's edges smeared into ghosts, and its
gradients are less sparse: their sum of absolute values, at the same sum of squares, is larger. And does it lie on its
centre, or would the restored picture be displaced?

What it says against a PSF are thresholds that ``benchmarks/bench_psf.py`` holds to hundreds of right and wrong PSFs.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft

from .estimate import centre_of_gravity, grey, unit_sum
from .shaping import resample
from .spectra import PictureSpectrum, compressed

_SCALES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.4, 1.7, 2.0)
_AGAINST = 40.0  # log-likelihood ratio by which no blur at all must be likelier
_OTHER = 40.0  # by which another size or a mirror image must be likelier
_DEEP = 0.35  # depth that the zeros of the better one must have
_ASYMMETRIC = 0.15  # ‖h − turned h‖/‖h‖ from which on a turn matters
_GHOSTS = 0.02  # logarithm of the ratio of the gradients' sums
_DISPLACED = 0.5  # pixels
_LARGEST = 512  # of the picture, in the middle, pixels a side
#: An alarm that nobody asked for is raised by less of the picture, on stronger evidence, and of fewer sizes.
_LEAST_SIDE, _LEAST_SIDE_FOR_SCALE, _ALARM_SIDE = 128, 360, 256
_ALARM_SCALES = (0.5, 0.6, 0.75, 1.33, 1.6, 2.0)
_ALARM_GHOSTS, _ALARM_OTHER, _ALARM_DEEP = 0.03, 80.0, 0.5


class Verdict(enum.Enum):
    """What a check of a PSF ends in; the value says it in words."""

    FITS = "the picture's spectrum has the zeros of this PSF"
    NOTHING_AGAINST = "nothing speaks against it; nothing that only this PSF would leave is seen either"
    DOES_NOT_FIT = "it does not fit this picture"

    @property
    def ok(self) -> bool:
        return self is not Verdict.DOES_NOT_FIT


@dataclass(frozen=True)
class PSFCheck:
    """Whether a PSF fits a picture, and what that rests on. `deblur.plot.psf_check` draws it.

    Attributes
    ----------
    verdict : Verdict
        ``verdict.ok`` is False where the evidence against the PSF is strong.
    findings : tuple of str
        Each with what to do.
    details : mapping
        ``evidence``: the logarithm of how much likelier the PSF is than no blur; ``depth`` of the zeros, 1 if the
        picture was blurred so; ``at_zeros``: the picture's power over the model's where the PSF lets nothing through;
        ``scale``: the size of the PSF, over its own, that explains the spectrum best, and ``scale_evidence``;
        ``ghosts``: the logarithm of the gradients' sum after the turned PSF over that after this one, below zero
        if the turned one is better; ``asymmetry``; ``centre``: the PSF's centre of gravity.
    psf, frequencies, power, model : arrays
        What was looked at: (n, 2) cycles per pixel, (n,) and (n,).
    """

    verdict: Verdict
    findings: tuple[str, ...]
    details: Mapping[str, Any]
    psf: np.ndarray
    frequencies: np.ndarray
    power: np.ndarray
    model: np.ndarray

    def __str__(self) -> str:
        d = self.details
        down, right = d["centre"]
        lines = [
            f"verdict     {self.verdict.name.lower().replace('_', ' ')}: {self.verdict.value}",
            *(f"finding     {finding}" for finding in self.findings),
            f"spectrum    log-likelihood {d['evidence']:+.1f} against no blur, zeros {100 * d['depth']:.0f} % as deep "
            f"as they should be; where it lets nothing through the picture has {d['at_zeros']:.2f} of the power "
            "expected",
            f"scale       {d['scale']:g} of its size fits best ({d['scale_evidence']:+.1f})",
            f"turn        gradients after a turn by 180 degrees {100 * d['ghosts']:+.2f} %, "
            f"asymmetry {d['asymmetry']:.2f}",
            f"centre      its centre of gravity is ({down:+.2f}, {right:+.2f}) pixels from its centre",
        ]
        return "\n".join(lines)


def check(image: Any, psf: Any) -> PSFCheck:
    """Say whether a PSF fits a blurred picture, and if not what is wrong with it.

    Parameters
    ----------
    image : (M, N) array
        The blurred picture, at least 64 pixels a side. Of a larger one the
        middle 512 x 512 pixels are looked at.
    psf : (m, n) array

    Returns
    -------
    PSFCheck
        Printed, it says what was found; ``check.verdict.ok`` is False where
        the evidence is strong.

    Raises
    ------
    ValueError
        If the picture is too small or of one brightness, or the PSF is none.

    Notes
    -----
    A PSF without zeros in its spectrum, such as a Gaussian, leaves nothing that only it would leave: its width is not
    checked. Where the centre of the PSF lies only displaces the restored picture.

    Examples
    --------
    >>> import deblur
    >>> scene, lens = deblur.data.load("camera"), deblur.psf.disk(9)
    >>> picture = deblur.degrade(scene, lens, noise=0.005, boundary="unknown", seed=0)
    >>> deblur.psf.check(picture, lens).verdict.name
    'FITS'
    >>> deblur.psf.check(picture, deblur.psf.disk(15)).verdict.name
    'DOES_NOT_FIT'
    """
    picture, h = grey(image), unit_sum(grey(psf, "the PSF"))
    if min(picture.shape) < 64:
        raise ValueError(
            f"a picture of {picture.shape[0]} x {picture.shape[1]} pixels is too small to check a PSF against; at "
            "least 64 x 64 are needed"
        )
    if not np.ptp(picture) > 0:
        raise ValueError("the picture is of one brightness: every PSF fits it")
    rows, cols = (slice(max(n - _LARGEST, 0) // 2, (n + min(n, _LARGEST)) // 2) for n in picture.shape)
    picture = picture[rows, cols]
    spectrum = PictureSpectrum(picture)
    none = spectrum.fit(np.ones_like(spectrum.power))
    transfer = spectrum.transfer(h)
    own = spectrum.fit(transfer)
    evidence = spectrum.against(own.deviance, none.deviance)
    depth = float(spectrum.matched(transfer[None], none)[1][0])
    dark = own.model < 1.5 * spectrum.noise
    at_zeros = float(np.mean(spectrum.power[dark] / own.model[dark])) if dark.sum() > 20 else 1.0
    scale, scale_evidence, scale_depth = 1.0, 0.0, depth
    mirrored = 0.0
    if max(h.shape) > 1:
        for s in _SCALES:
            if max(h.shape) * s > spectrum.side:
                continue
            other = spectrum.transfer(resample(h, s))
            ratio = spectrum.against(spectrum.fit(other).deviance, own.deviance)
            if ratio > scale_evidence:
                scale, scale_evidence = s, ratio
                scale_depth = float(spectrum.matched(other[None], none)[1][0])
        other = spectrum.transfer(h[:, ::-1])
        if np.abs(other - transfer).max() > 0.05:
            mirrored = spectrum.against(spectrum.fit(other).deviance, own.deviance)
            mirrored_depth = float(spectrum.matched(other[None], none)[1][0])
    turned = h[::-1, ::-1]
    asymmetry, ghosts = _asymmetry(h), 0.0
    if asymmetry > _ASYMMETRIC:
        ghosts = _ghosts(picture, h, turned, spectrum.noise)
    away = centre_of_gravity(np.maximum(h, 0))
    findings, wrong = [], False
    lossy = compressed(picture)
    if ghosts < -_GHOSTS:
        wrong = True
        findings.append(
            f"turned by 180 degrees it leaves sparser edges ({100 * ghosts:+.1f} %): pass psf[::-1, ::-1]"
        )
    if not lossy and mirrored > _OTHER and mirrored_depth > _DEEP:
        wrong = True
        findings.append(
            f"its mirror image explains the spectrum better (log-likelihood {mirrored:+.0f}): pass psf[:, ::-1] or "
            "psf[::-1], whichever restores without ghosts"
        )
    if not lossy and scale_evidence > max(_OTHER, 0.5 * evidence) and scale_depth > _DEEP:
        wrong = True
        findings.append(
            f"at {scale:g} times its size it explains the spectrum better (log-likelihood {scale_evidence:+.0f}): "
            f"check the pixel size, or pass deblur.psf.resample(psf, {scale:g})"
        )
    if not (wrong or lossy) and evidence < -_AGAINST:
        wrong = True
        findings.append(
            f"where it lets nothing through the picture has more than noise (log-likelihood {evidence:+.0f} against no "
            "blur): it is the PSF of another picture, no blur of this kind, or the picture went through a tone curve "
            "(use linear light)"
        )
    if lossy:
        findings.append(
            "the picture was compressed (JPEG), and its spectrum is not believed where it speaks against the PSF; "
            "check with the raw picture"
        )
    if max(abs(a) for a in away) > _DISPLACED:
        findings.append(
            f"its centre of gravity is off: the restored picture would be displaced by ({-away[0]:+.1f}, "
            f"{-away[1]:+.1f}) pixels; deblur.psf.recentre(psf) moves it"
        )
    fits = evidence > _AGAINST and depth > _DEEP
    verdict = Verdict.DOES_NOT_FIT if wrong else Verdict.FITS if fits else Verdict.NOTHING_AGAINST
    details = {
        "evidence": evidence,
        "depth": depth,
        "at_zeros": at_zeros,
        "scale": scale,
        "scale_evidence": scale_evidence,
        "scale_depth": scale_depth,
        "mirrored": mirrored,
        "ghosts": ghosts,
        "asymmetry": asymmetry,
        "centre": away,
        "compressed": lossy,
    }
    frequencies = np.stack([spectrum.y[spectrum.used], spectrum.x[spectrum.used]], axis=1)
    return PSFCheck(verdict, tuple(findings), details, h, frequencies, spectrum.power, own.model)


def alarm(image: np.ndarray, psf: np.ndarray) -> str | None:
    """What is wrong with a PSF, if a first look at the middle of a picture (M, N) shows that beyond doubt, and what to
    try; a few hundredths of a second."""
    if min(image.shape) < _LEAST_SIDE or max(psf.shape) < 3 or psf.min() < 0 or not psf.sum() > 0:
        return None
    h = psf / psf.sum()
    rows, cols = (slice(max(n - _ALARM_SIDE, 0) // 2, (n + min(n, _ALARM_SIDE)) // 2) for n in image.shape)
    picture = image[rows, cols]
    if not (np.isfinite(picture).all() and np.ptp(picture) > 0):
        return None
    spectrum = PictureSpectrum(picture)
    if _asymmetry(h) > _ASYMMETRIC:
        ghosts = _ghosts(picture, h, h[::-1, ::-1], spectrum.noise)
        if ghosts < -_ALARM_GHOSTS:
            return (
                f"turned by 180 degrees it restores the picture with fewer ghosts ({100 * ghosts:+.1f} % in the sum of "
                "gradients): try psf[::-1, ::-1]"
            )
    if min(image.shape) < _LEAST_SIDE_FOR_SCALE or not _has_lobes(h):
        return None
    scales = [s for s in _ALARM_SCALES if max(h.shape) * s <= spectrum.side]
    transfers = np.stack([spectrum.transfer(resample(h, s)) for s in scales] + [spectrum.transfer(h)])
    none = spectrum.fit(np.ones_like(spectrum.power))
    share, depth = spectrum.matched(transfers, none)
    best = int(share[:-1].argmax())
    if depth[best] < _ALARM_DEEP or share[-1] > 0.5 * share[best] or compressed(picture):
        return None
    other, own = (spectrum.fit(transfers[k]).deviance for k in (best, -1))
    evidence = min(spectrum.against(other, deviance) for deviance in (own, none.deviance))
    if not evidence > _ALARM_OTHER:
        return None
    return (
        f"at {scales[best]:g} times its size it explains the picture's spectrum better (log-likelihood "
        f"{evidence:+.0f}): check the pixel size, or try deblur.psf.resample(psf, {scales[best]:g})"
    )


def _has_lobes(h: np.ndarray) -> bool:
    """Whether its spectrum rises again beyond a zero, along an axis: else its size is told by too little."""
    for axis in (0, 1):
        power = np.abs(scipy.fft.rfft(h.sum(axis=axis), 4 * max(h.shape))) ** 2
        if ((power > 10 * np.minimum.accumulate(power)) & (power > 1e-3)).any():
            return True
    return False


def _asymmetry(h: np.ndarray) -> float:
    """How far h is from its turn by 180 degrees, where they lie upon each other best."""
    size = [2 * n for n in h.shape]
    spectrum = scipy.fft.rfft2(h, s=size)
    overlap = scipy.fft.irfft2(spectrum**2, s=size).max()  # with its turn: h ∗ h
    return math.sqrt(max(2 - 2 * float(overlap) / float((h**2).sum()), 0.0))


def _ghosts(picture: np.ndarray, h: np.ndarray, turned: np.ndarray, noise: float) -> float:
    """The logarithm of the gradients' sum of absolute values after `turned` over that after `h`, by the same filter."""
    m, n = picture.shape
    reach = [min(s, k // 4) for s, k in zip(h.shape, (m, n), strict=True)]
    ramps = []
    for k, r in zip((m, n), reach, strict=True):
        at = np.arange(k)
        ramps.append(np.minimum(1, np.minimum(at + 1, at[::-1] + 1) / (r + 1)))
    level = float(picture.mean())
    taper = np.outer(*(0.5 - 0.5 * np.cos(np.pi * r) for r in ramps))
    g = scipy.fft.rfft2((picture - level) * taper)
    y, x = scipy.fft.fftfreq(m)[:, None], scipy.fft.rfftfreq(n)[None, :]
    rough = 4 - 2 * np.cos(2 * np.pi * y) - 2 * np.cos(2 * np.pi * x)
    gradient = float((np.diff(picture, axis=0) ** 2).mean() + (np.diff(picture, axis=1) ** 2).mean())
    sums = []
    for psf in (h, turned):
        k = scipy.fft.rfft2(psf, s=(m, n))
        f = scipy.fft.irfft2(g * k.conj() / (np.abs(k) ** 2 + 2 * noise / gradient * rough + 1e-9), s=(m, n))
        # The filter's shift is the PSF's origin: the frame's border is left out on all sides.
        f = f[2 * reach[0] : m - 2 * reach[0], 2 * reach[1] : n - 2 * reach[1]]
        if f.size == 0:
            return 0.0
        dy, dx = np.diff(f, axis=0)[:, 1:], np.diff(f, axis=1)[1:]
        modulus = np.hypot(dy, dx)
        sums.append(float(modulus.sum()) / math.sqrt(float((modulus**2).sum()) or 1.0))
    return math.log(max(sums[1], 1e-300) / max(sums[0], 1e-300))

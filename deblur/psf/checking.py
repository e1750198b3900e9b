"""Check a PSF against a blurred image without knowing the scene.

Three properties are tested.

1. Does the power of the image agree with that of a scene blurred by this PSF (`spectra`)? Where the spectrum of the PSF
   is near zero the image should contain only noise. No other size of the PSF, nor its mirror image, should explain the
   power better.
2. Is the PSF rotated by 180 degrees? The power spectra are then equal, but deconvolution with the wrong PSF smears
   edges, so that the restored gradients are less sparse: at an equal sum of squares, their sum of absolute values is
   larger.
3. Is the PSF's centre of gravity at its centre? Otherwise the restored image is displaced.

For volumes the sums over the planes are compared, since the sum of a blurred volume is the volume's sum blurred by the
PSF's sum. ``benchmarks/bench_psf.py`` measures the thresholds on hundreds of right and wrong PSFs.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from ..operators.torus import Torus, wrapped
from .estimate import distance, gradient_power, grey, listed, middle, pixels
from .models import centre, centre_of_gravity, unit_sum
from .shaping import cut_off_noise, resample
from .spectra import PictureSpectrum, compressed

_SCALES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.4, 1.7, 2.0)  # sizes to compare, relative to that of the PSF
_LIKELIER = 40.0  # least log-likelihood ratio for another size or the mirror image to count as better
_DEPTH = 0.35  # least depth of that PSF's zeros in the image, relative to the expected depth
_ASYMMETRIC = 0.15  # least ‖h − rotated h‖/‖h‖ at which a rotation matters


class Verdict(enum.Enum):
    """The result of a check; its value explains it."""

    FITS = "the image's spectrum has the zeros of this PSF"
    NOTHING_AGAINST = "inconclusive: no evidence for or against this PSF"
    DOES_NOT_FIT = "this PSF does not fit the image"

    @property
    def ok(self) -> bool:
        return self is not Verdict.DOES_NOT_FIT


@dataclass(frozen=True, eq=False)
class PSFCheck:
    """The result of `check`: whether a PSF fits an image, and the evidence. `deblur.plot.psf_check` draws it.

    Attributes
    ----------
    verdict : Verdict
        ``verdict.ok`` is False if the evidence against the PSF is strong.
    findings : tuple of str
        The findings, each with advice.
    details : mapping
        ``evidence`` is the log-likelihood ratio of the PSF and a sharp image. ``depth`` is the depth of the PSF's zeros
        in the image; it is 1 if the image was blurred by the PSF. ``at_zeros`` is the power of the image over that of
        the model where the PSF's spectrum is near zero. ``scale`` is the relative size of the PSF that explains the
        spectrum best, with ``scale_evidence``. ``rotation`` is the logarithm of the sum of gradients with the rotated
        PSF over that with this PSF; it is negative if the rotated PSF is better. ``asymmetry`` is ‖h − rotated h‖/‖h‖.
        ``centre`` is the position of the PSF's centre of gravity along each axis, relative to its centre.
    psf : (m, n) array
        The PSF; for a volume its sum over the planes.
    frequencies : (k, 2) array
        Spatial frequencies in cycles per pixel.
    power, model : (k,) arrays
        The power of the image and of the model at these frequencies.
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
        lines = [
            f"verdict     {self.verdict.name.lower().replace('_', ' ')}: {self.verdict.value}",
            *(f"finding     {finding}" for finding in self.findings),
            f"spectrum    log-likelihood {d['evidence']:+.1f} over a sharp image; zeros {100 * d['depth']:.0f} % as "
            f"deep as expected; {d['at_zeros']:.2f} of the expected power where the PSF's spectrum is near zero",
            f"scale       {d['scale']:g} of its size fits best ({d['scale_evidence']:+.1f})",
            f"rotation    gradients after a rotation by 180 degrees {100 * d['rotation']:+.2f} %, "
            f"asymmetry {d['asymmetry']:.2f}",
            f"centre      its centre of gravity is {listed(d['centre'], '+.2f')} {d['axes']} from its centre",
        ]
        return "\n".join(lines)


def check(image: Any, psf: Any) -> PSFCheck:
    """Test whether a PSF fits a blurred image, and find the reason if it does not.

    Parameters
    ----------
    image : (M, N) or (P, M, N) array
        The blurred image, with at least 64 rows and columns. Only the central 512 x 512 pixels of a larger image are
        used.
    psf : (m, n) or (p, m, n) array
        The PSF.

    Returns
    -------
    PSFCheck
        ``print`` shows the findings; ``verdict.ok`` is False if the evidence against the PSF is strong.

    Raises
    ------
    ValueError
        If the image is too small or constant, the PSF is larger than the image, or the array is not a PSF.

    Notes
    -----
    The width of a PSF without zeros in its spectrum, such as a Gaussian, cannot be checked. A displaced PSF only
    displaces the restored image, so it does not count as wrong.

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
    h = unit_sum(grey(psf, "the PSF", (2, 3))[0])
    away, axes = centre_of_gravity(np.maximum(h, 0)), pixels(h)
    picture, _ = grey(image, axes=(h.ndim,))
    if any(n < side for n, side in zip(picture.shape, h.shape, strict=True)):
        raise ValueError(f"a PSF {h.shape} is larger than the image of shape {picture.shape}: crop it")
    planes = tuple(range(h.ndim - 2))
    picture, h = middle(checked_picture(picture.sum(axis=planes)), 512), h.sum(axis=planes)
    spectrum = PictureSpectrum(picture)
    transfer = spectrum.transfer(h)
    own, model = spectrum.fit(transfer)
    evidence, depth = spectrum.against(own, spectrum.without_blur[0]), spectrum.depth(transfer)
    dark = model < 1.5 * spectrum.noise
    at_zeros = float(np.mean(spectrum.power[dark] / model[dark])) if dark.sum() > 20 else 1.0
    scales, mirror = {}, {}
    if max(h.shape) > 1:
        scales = {s: spectrum.transfer(resample(h, s)) for s in _SCALES if max(h.shape) * s <= spectrum.side}
        flipped = spectrum.transfer(h[:, ::-1])
        mirror = {0.0: flipped} if np.abs(flipped - transfer).max() > 0.05 else {}
    scale, scale_evidence, scale_depth = _likeliest(spectrum, own, scales)
    _, mirrored, mirrored_depth = _likeliest(spectrum, own, mirror)
    asymmetry = distance(h, h[::-1, ::-1])
    rotation = _sparsity_gain(picture, h, spectrum.noise) if asymmetry > _ASYMMETRIC else 0.0
    lossy = compressed(picture)
    rotated = f"rotated by 180 degrees it restores sparser edges ({100 * rotation:+.1f} %)"
    reflected = f"its mirror image explains the spectrum better (log-likelihood {mirrored:+.0f})"
    other_size = scale_evidence > max(_LIKELIER, 0.5 * evidence) and scale_depth > _DEPTH
    wrong = {
        f"{rotated}: pass psf[..., ::-1, ::-1]": rotation < -0.02,
        f"{reflected}: try psf[..., ::-1]": not lossy and mirrored > _LIKELIER and mirrored_depth > _DEPTH,
        _other_size(scale, scale_evidence): not lossy and other_size,
    }
    against = (
        f"the image has more than noise at the PSF's zeros (log-likelihood {evidence:+.0f} over a sharp image): a PSF "
        "of another image, a blur that is not shift-invariant, or a tone curve (use linear light)"
    )
    wrong[against] = not (lossy or any(wrong.values())) and evidence < -_LIKELIER
    off = f"its centre of gravity is off: it displaces the scene by {listed(tuple(-n for n in away), '+.1f')} {axes}"
    notes = wrong | {
        "the image was compressed (JPEG) and its spectrum not used: check with the raw image": lossy,
        f"{off}; deblur.psf.recentre(psf) moves it": max(map(abs, away)) > 0.5,
    }
    findings = tuple(text for text, applies in notes.items() if applies)
    verdict = Verdict.FITS if evidence > _LIKELIER and depth > _DEPTH else Verdict.NOTHING_AGAINST
    verdict = Verdict.DOES_NOT_FIT if any(wrong.values()) else verdict
    details: dict[str, Any] = {"evidence": evidence, "depth": depth, "at_zeros": at_zeros}
    details |= {"scale": scale, "scale_evidence": scale_evidence, "scale_depth": scale_depth}
    details |= {"mirrored": mirrored, "rotation": rotation, "asymmetry": asymmetry}
    details |= {"centre": away, "axes": axes, "compressed": lossy}
    frequencies = np.stack([spectrum.y[spectrum.used], spectrum.x[spectrum.used]], axis=1)
    return PSFCheck(verdict, findings, details, h, frequencies, spectrum.power, model)


def defect(psf: np.ndarray, origin: tuple[int, ...]) -> str | None:
    """Return a warning with advice if a PSF turns light into dark, or displaces a volume by more than 0.75 voxels; else
    None.
    """
    if psf.sum() < -1e-12 * np.abs(psf).sum():
        return "sums to less than zero, which turns light into dark: subtract its background or negate it"
    if psf.ndim < 3:
        return None
    light = np.maximum(psf, 0)
    away = tuple(a + c - o for a, c, o in zip(centre_of_gravity(light), centre(psf.shape), origin, strict=True))
    if max(map(abs, away)) <= 0.75:
        return None
    return (
        f"is off centre: it displaces the volume by {listed(tuple(-n for n in away), '+.1f')} {pixels(psf)}: "
        "deblur.psf.recentre(psf) moves its centre of gravity to its centre"
    )


def checked_picture(image: Any) -> np.ndarray:
    """Return a grey image (M, N) that is suitable to check a PSF; raise ValueError for any other image."""
    picture, _ = grey(image)
    if min(picture.shape) < 64:
        raise ValueError(f"an image of shape {picture.shape} is too small to check a PSF; 64 x 64 are needed")
    if not np.ptp(picture) > 0:
        raise ValueError("the image is constant: every PSF fits it")
    return picture


def mismatch(image: np.ndarray, psf: np.ndarray) -> str | None:
    """Return a warning with advice if the PSF clearly does not fit an image (M, N), else None.

    It is given if the PSF contains noise that was cut off at zero, or if the centre of the image shows that the PSF is
    rotated or of another size. Every restoration calls this function, so it takes only a few hundredths of a second,
    and needs more evidence than `check`.
    """
    if image.ndim != 2 or min(image.shape) < 128 or max(psf.shape) < 3 or psf.min() < 0 or not psf.sum() > 0:
        return None
    if noise := cut_off_noise(psf):
        return f"{noise:.0%} of its light is noise that was cut off at zero: try deblur.psf.denoise(psf)"
    h, picture = unit_sum(psf), middle(image, 256)
    if not (np.isfinite(picture).all() and np.ptp(picture) > 0):
        return None
    spectrum = PictureSpectrum(picture)
    if distance(h, h[::-1, ::-1]) > _ASYMMETRIC:
        rotation = _sparsity_gain(picture, h, spectrum.noise)
        if rotation < -0.03:
            return f"rotated by 180 degrees it restores sparser edges ({100 * rotation:+.1f} %): try psf[::-1, ::-1]"
    if min(image.shape) < 360 or not _has_lobes(h):  # too few frequencies to determine the size
        return None
    scales = [s for s in _SCALES if abs(math.log(s)) > 0.3 and max(h.shape) * s <= spectrum.side]
    transfers = np.stack([spectrum.transfer(resample(h, s)) for s in [*scales, 1.0]])
    share, depth = spectrum.matched(transfers)
    best = int(share[:-1].argmax())
    if depth[best] < 0.5 or share[-1] > 0.5 * share[best] or compressed(picture):
        return None
    other, own = (spectrum.fit(transfers[k])[0] for k in (best, -1))
    evidence = min(spectrum.against(other, deviance) for deviance in (own, spectrum.without_blur[0]))
    return _other_size(scales[best], evidence) if evidence > 2 * _LIKELIER else None


def _other_size(scale: float, evidence: float) -> str:
    return (
        f"at {scale:g} times its size it explains the image's spectrum better (log-likelihood {evidence:+.0f}): check "
        f"the pixel size, or try deblur.psf.resample(psf, {scale:g})"
    )


def _likeliest(spectrum: PictureSpectrum, own: float, transfers: dict[float, np.ndarray]) -> tuple[float, float, float]:
    """Return (key, log-likelihood ratio to the PSF itself, depth of the zeros) of the PSF that explains the image best.

    Return (1, 0, 0) if none is likelier than the PSF itself.
    """
    ratios = {key: spectrum.against(spectrum.fit(transfer)[0], own) for key, transfer in transfers.items()}
    key = max(ratios, key=ratios.__getitem__, default=1.0)
    return (key, ratios[key], spectrum.depth(transfers[key])) if ratios.get(key, 0.0) > 0 else (1.0, 0.0, 0.0)


def _has_lobes(h: np.ndarray) -> bool:
    """Return True if the spectrum rises again beyond a zero along an axis; otherwise the size cannot be measured."""
    power = np.abs([scipy.fft.rfft(h.sum(axis=axis), 4 * max(h.shape)) for axis in (0, 1)]) ** 2
    return bool(((power > 10 * np.minimum.accumulate(power, axis=1)) & (power > 1e-3)).any())


def _sparsity_gain(picture: np.ndarray, h: np.ndarray, noise: float) -> float:
    """Return the logarithm of the normalised sum of gradients after deconvolution with the rotated PSF over that with
    h.
    """
    lengths = [scipy.fft.next_fast_len(n + s, real=True) for n, s in zip(picture.shape, h.shape, strict=True)]
    torus = Torus(lengths)
    seen = torus.analyse(wrapped(picture - float(picture.mean()), lengths))
    gradient = float((np.diff(picture, axis=0) ** 2).mean() + (np.diff(picture, axis=1) ** 2).mean())
    ridge = 2 * noise / gradient * gradient_power(lengths) + 1e-9
    reach = (min(s, n // 4) for s, n in zip(h.shape, picture.shape, strict=True))
    inside = tuple(slice(r, n - r) for r, n in zip(reach, picture.shape, strict=True))
    sums = []
    for psf in (h, h[::-1, ::-1]):
        k = torus.spectrum(psf, centre(h.shape))
        f = torus.synthesise(seen * k.conj() / (np.abs(k) ** 2 + ridge))[inside]
        modulus = np.hypot(np.diff(f, axis=0)[:, 1:], np.diff(f, axis=1)[1:])
        sums.append(float(modulus.sum()) / math.sqrt(float((modulus**2).sum()) or 1.0))
    return math.log(max(sums[1], 1e-300) / max(sums[0], 1e-300))

"""The cases of a comparison: pictures blurred by PSFs, and the part of a case that a method sees."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import data, image, psf
from ..degradation import NOISES, degrade
from ..device import asnumpy, check_finite, require_memory
from ..errors import check_count, check_path
from ..operators.blur import Blur
from ..operators.boundary import get_boundary
from ..operators.matrix import check_psf
from ..tuning import noise_level


@dataclass(frozen=True)
class Case:
    """One blurred picture to be restored, with its truth, which no method sees.

    Attributes
    ----------
    image, psf_name, noise, boundary : str
        The picture, the PSF, the noise and the boundary, in words.
    blurred : (M, N) or (M, N, 3) ndarray, float64
        The input of the methods, on [0, 1].
    psf : (m, n) ndarray, float64
        The PSF.
    truth : ndarray or None
        The sharp picture in the same frame; None if the picture was already blurred.
    sigma : float
        Standard deviation of the noise, on the scale of the picture; estimated if the picture was already blurred.
    notes : tuple of str
        Changes made to the picture beforehand.
    """

    image: str
    psf_name: str
    noise: str
    boundary: str
    blurred: np.ndarray
    psf: np.ndarray
    truth: np.ndarray | None
    sigma: float
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The case in one line."""
        rows, columns = self.blurred.shape[:2]
        return f"{self.image} {rows} × {columns}, {self.psf_name}, {self.noise}, boundary {self.boundary}"

    @cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits that depend on all pixels and words of the case."""
        digest = hashlib.sha256(f"{self.name}\n{self.blurred.shape}".encode())
        for array in (self.blurred, self.psf, self.truth):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Task:
    """The part of a case that a method may see: the blurred picture, the PSF and the boundary, but not the truth.

    Attributes
    ----------
    blurred : (M, N) or (M, N, 3) ndarray, float64
        The blurred picture.
    psf : (m, n) ndarray, float64
        The PSF.
    boundary : str
        The boundary that the method must assume.
    lam : float or str
        λ, or the requested rule for it.
    shared : dict
        Results that the methods of one family share (λ by the rule).
    """

    blurred: np.ndarray
    psf: np.ndarray
    boundary: str
    lam: float | str = "gcv"
    shared: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the picture."""
        return self.blurred.shape[0], self.blurred.shape[1]

    @property
    def channel_axis(self) -> int | None:
        """The axis of the three channels, which is the last; None for grey."""
        return -1 if self.blurred.ndim == 3 else None


def parse_noise(text: str | float) -> tuple[str, float]:
    """Return kind and level of a noise: ``0.01``, ``gaussian:0.01``, ``salt-pepper:0.02``, ``poisson:400`` or ``none``.

    Raises
    ------
    ValueError
        For any other text; the message lists the forms.
    """
    kind, colon, level = str(text).strip().rpartition(":")
    if not colon:
        kind, level = "gaussian", "0" if level == "none" else level
    forms = "; write " + ", ".join(f"{name}:LEVEL ({what})" for name, what in NOISES.items()) + ", or none"
    if kind not in NOISES:
        raise ValueError(f"unknown noise {text!r}{forms}")
    try:
        return kind, float(level)
    except ValueError:
        raise ValueError(f"the level of the noise {text!r} is not a number{forms}") from None


def load_picture(source: Any) -> tuple[str, np.ndarray, tuple[str, ...]]:
    """Return name, pixels on the unit scale and remarks for the name of a sample, a file or an array.

    Raises
    ------
    ValueError, TypeError, OSError
        If the source is not one picture; for files `deblur.image.read` explains how to convert them.
    """
    if isinstance(source, str) and source in data.names():
        name, pixels = source, data.load(source)
    elif isinstance(source, str | Path):
        if not check_path(source).exists():
            raise FileNotFoundError(
                f"{source}: neither a file nor a sample has this name; the samples are {', '.join(data.names())}"
            )
        name, pixels = Path(source).name, image.read(source)
    else:
        name, pixels = "array", asnumpy(image.as_float(source))
    if pixels.ndim != 2 + image.is_colour(pixels) or pixels.size == 0:
        raise ValueError(
            f"{name} has shape {pixels.shape}: a comparison takes one picture, (M, N) or (M, N, 3); "
            "take one frame of a stack"
        )
    check_finite(pixels, name)
    pixels, notes = pixels.astype(np.float64), []
    peak = float(pixels.max())
    if peak > 1:
        notes.append(f"values divided by {peak:.6g}, the largest one, so that PSNR is on the unit scale")
        pixels = pixels / peak
    if pixels.min() < 0:
        notes.append(f"values below 0 (down to {pixels.min():.3g}) are kept")
    return name, pixels, tuple(notes)


def _named(sources: Any) -> list[tuple[str | None, Any]]:
    """Return (name, source) for one source, several sources, or a mapping of names to sources; several arrays get
    numbers.
    """
    if isinstance(sources, Mapping):
        return [(str(name), source) for name, source in sources.items()]
    if isinstance(sources, np.ndarray | str | Path | float | int) or not isinstance(sources, Iterable):
        return [(None, sources)]
    listed = list(sources)
    several = sum(isinstance(source, np.ndarray) for source in listed) > 1
    return [(f"array {n}" if several and isinstance(x, np.ndarray) else None, x) for n, x in enumerate(listed, 1)]


def _load_psf(name: str | None, source: Any) -> tuple[str, np.ndarray]:
    """Return name and values of a PSF, given as a short form, a path or an array."""
    text = isinstance(source, str | Path)
    kernel = asnumpy(check_psf(psf.parse(str(source)) if text else source))
    return name or f"PSF {source if text else ' × '.join(map(str, kernel.shape))}", kernel


def _frame(name: str, picture: np.ndarray, kernel: np.ndarray, size: int | None, blurred: bool) -> np.ndarray:
    """Return the used part of a picture: the frame and, for a sharp picture, the margin that the PSF reaches into."""
    margin = np.zeros(2, int) if blurred else np.array(kernel.shape) - 1
    room = np.array(picture.shape[:2]) - margin
    if room.min() < max(kernel.shape):
        beyond = "" if blurred else " and the margin that the PSF reaches into"
        raise ValueError(
            f"{name} has {picture.shape[0]} x {picture.shape[1]} pixels, too few for a PSF of {kernel.shape[0]} x "
            f"{kernel.shape[1]}: a frame as large as the PSF{beyond} must fit; use a larger picture or a smaller PSF"
        )
    if size is None:
        return picture
    if not max(kernel.shape) <= size <= room.min():
        raise ValueError(
            f"size must lie between {max(kernel.shape)}, the PSF's, and {room.min()} for {name} with its margin, "
            f"not {size!r}"
        )
    starts = (np.array(picture.shape[:2]) - size - margin) // 2
    return picture[tuple(slice(a, a + size + m) for a, m in zip(starts, margin, strict=True))]


def make_cases(
    images: Any = None,
    psfs: Any = "gaussian:9,1.5",
    noises: Any = None,
    boundaries: str | Sequence[str] = "unknown",
    *,
    size: int | None = None,
    seed: int = 0,
    blurred: bool = False,
) -> list[Case]:
    """Return the cases of all combinations of pictures, PSFs, noises and boundaries.

    Parameters
    ----------
    images : name, path, array, a list of them, or a mapping of names to them
        Sharp pictures to be blurred; by default the central 256 x 256 pixels of the sample "camera".
    psfs : short form, path, array, list or mapping
        PSFs, as for `deblur.psf.parse`; an array is used unchanged.
    noises : number, text or list, optional
        Noises, see `parse_noise`; by default 0.01. None may be given if the pictures are already blurred.
    boundaries : str or list of str
        How the scene continues beyond the frame. All boundaries use the same frame: the picture without a margin of the
        PSF's size. With "unknown" the margin is the scene beyond the frame; other boundaries define that scene.
    size : int, optional
        Side in pixels of a square frame at the centre; by default the largest frame.
    seed : int
        Seed of the noise.
    blurred : bool
        True if the pictures are already blurred: there is no truth, and neither blur nor noise is added.

    Returns
    -------
    list of Case

    Raises
    ------
    ValueError, TypeError, OSError, MemoryError
        For any invalid input, before any work starts.
    """
    if images is None:
        if blurred:
            raise ValueError("a picture that came blurred must be named; give its file")
        images, size = "camera", 256 if size is None else size
    if blurred and noises is not None:
        raise ValueError("noises (--noise) are not added to blurred images: leave them or blurred=True (--blurred) out")
    if size is not None:
        check_count(size, "size, in pixels,")
    edges = [boundaries] if isinstance(boundaries, str) else list(boundaries)
    for edge in edges:
        get_boundary(edge)
    pictures = []
    for name, source in _named(images):
        own, pixels, notes = load_picture(source)
        pictures.append((name or own, pixels, notes))
    kernels = [_load_psf(*named) for named in _named(psfs)]
    levels = [parse_noise(source) for _, source in _named(0.01 if noises is None else noises)]
    if not (pictures and kernels and levels and edges):
        raise ValueError("at least one image, PSF, noise and boundary are needed")
    cases: list[Case] = []
    for (name, picture, notes), (psf_name, kernel) in itertools.product(pictures, kernels):
        scene = _frame(name, picture, kernel, size, blurred)
        what = f"comparing methods on {name}, {scene.shape[0]} x {scene.shape[1]} pixels,"
        # The comparison and the methods need about 40 times the memory of the scene.
        require_memory(40 * scene.nbytes, np, what, "take a part of it (size=, --size)")
        for edge in edges:
            if blurred:
                Blur(kernel, scene.shape[:2], edge)  # checks the PSF before any work
                sigma = float(np.median([noise_level(g) for g in np.atleast_3d(scene).T]))
                cases.append(Case(name, psf_name, "its own noise", edge, scene, kernel, None, sigma, notes))
                continue
            inner = tuple(n - m + 1 for n, m in zip(scene.shape[:2], kernel.shape, strict=True))
            sharp = np.ascontiguousarray(scene[Blur(kernel, inner, "unknown").crop])
            source, axis = scene if edge == "unknown" else sharp, -1 if scene.ndim == 3 else None
            blur = partial(degrade, source, kernel, boundary=edge, channel_axis=axis)
            for kind, level in levels:
                words = f"{kind} noise {level:g}" if level > 0 else "no noise"
                g = blur(noise=kind, level=level, seed=seed)
                sigma = float((g - blur()).std())
                cases.append(Case(name, psf_name, words, edge, g, kernel, sharp, sigma, notes))
    return list({case.key: case for case in cases}.values())  # each case only once

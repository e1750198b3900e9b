"""The pictures of a comparison: what was blurred by what, and what a method is shown of it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .. import data, image, psf
from ..degrade import NOISES, degrade
from ..device import asnumpy, check_finite, require_memory
from ..operators.blur import Blur
from ..operators.boundary import get_boundary
from ..operators.matrix import check_psf
from ..tuning import noise_level

_DEFAULT_IMAGE, _DEFAULT_SIZE = "camera", 256
#: Arrays of a picture's size that a comparison holds at once, with room for the methods' own.
_COPIES = 40


@dataclass(frozen=True)
class Case:
    """One blurred picture to be restored, with what only the judge may see.

    Attributes
    ----------
    image, psf_name, noise, boundary : str
        What it was made of, in words.
    blurred : (M, N) or (M, N, 3) ndarray, float64
        What the methods are given.
    psf : (m, n) ndarray, float64
    truth : ndarray or None
        The sharp picture in the same frame; None for a picture that came blurred.
    sigma : float
        Standard deviation of the noise; estimated for a picture that came blurred.
    notes : tuple of str
        What was done to the picture before.
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
        """What it is, in one line."""
        rows, columns = self.blurred.shape[:2]
        return f"{self.image} {rows} × {columns}, {self.psf_name}, {self.noise}, boundary {self.boundary}"

    @cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits that change with every pixel and every word."""
        digest = hashlib.sha256(f"{self.name}\n{self.blurred.shape}".encode())
        for array in (self.blurred, self.psf, self.truth):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Task:
    """What a method may see of a case: the blurred picture, the PSF and the boundary. Never the truth.

    Attributes
    ----------
    blurred : (M, N) or (M, N, 3) ndarray, float64
    psf : (m, n) ndarray, float64
    boundary : str
        The one that the method is to assume.
    lam : float or str
        λ, or the rule for it, as the user asked.
    shared : dict
        What methods of one family find out once for all of them (λ by the rule).
    """

    blurred: np.ndarray
    psf: np.ndarray
    boundary: str
    lam: float | str = "gcv"
    shared: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.blurred.shape[0], self.blurred.shape[1]

    @property
    def colour(self) -> bool:
        """Whether there are three channels, along the last axis."""
        return self.blurred.ndim == 3


def parse_noise(text: str | float) -> tuple[str, float]:
    """Kind and level of a noise: ``0.01``, ``gaussian:0.01``, ``salt-pepper:0.02``, ``poisson:400``, ``none``.

    Raises
    ------
    ValueError
        For a text that is none of these; the message lists them.
    """
    words = str(text).strip()
    kind, colon, level = words.partition(":")
    if words == "none":
        return "gaussian", 0.0
    if not colon:
        kind, level = "gaussian", words
    forms = "; write " + ", ".join(f"{name}:LEVEL ({what})" for name, what in NOISES.items()) + ", or none"
    if kind not in NOISES:
        raise ValueError(f"unknown noise {text!r}{forms}")
    try:
        return kind, float(level)
    except ValueError:
        raise ValueError(f"the level of the noise {text!r} is no number{forms}") from None


def load_picture(source: Any) -> tuple[str, np.ndarray, tuple[str, ...]]:
    """Name, pixels on the unit scale and remarks of a sample's name, a file or an array.

    Raises
    ------
    ValueError, TypeError, OSError
        If it is no picture that can be taken as it is; `deblur.image.read` says how to convert it.
    """
    if isinstance(source, str) and source in data.names():
        name, pixels = source, data.load(source)
    elif isinstance(source, str | Path):
        if not Path(source).exists():
            raise FileNotFoundError(
                f"{source}: there is neither such a file nor a sample of that name; the samples are "
                f"{', '.join(data.names())}"
            )
        name, pixels = Path(source).name, image.read(source)
    else:
        pixels = asnumpy(image.as_float(source))
        name = "array"
    if pixels.ndim != 2 + image.is_colour(pixels) or pixels.size == 0:
        raise ValueError(
            f"{name} has shape {pixels.shape}: a comparison takes one picture, (M, N) or (M, N, 3); "
            "take one frame of a stack"
        )
    check_finite(pixels, name)
    pixels = pixels.astype(np.float64)
    notes: tuple[str, ...] = ()
    peak = float(pixels.max())
    if peak > 1:
        notes = (f"values divided by {peak:.6g}, their largest, so that PSNR is on the unit scale",)
        pixels = pixels / peak
    if pixels.min() < 0:
        notes = (*notes, f"values below 0 (down to {pixels.min():.3g}) are kept as they are")
    return name, pixels, notes


def _named(sources: Any) -> list[tuple[str | None, Any]]:
    """(name, source) of one thing, several, or a mapping of names to things."""
    if isinstance(sources, Mapping):
        return [(str(name), source) for name, source in sources.items()]
    if isinstance(sources, np.ndarray | str | Path | float | int):
        return [(None, sources)]
    if isinstance(sources, Iterable):
        return [(None, source) for source in sources]
    return [(None, sources)]


def _crop(picture: np.ndarray, rows: int, columns: int) -> np.ndarray:
    top, left = (picture.shape[0] - rows) // 2, (picture.shape[1] - columns) // 2
    return picture[top : top + rows, left : left + columns]


def _frame(name: str, picture: np.ndarray, kernel: np.ndarray, size: int | None, blurred: bool) -> np.ndarray:
    """The part of a picture that is used: the frame and, of a sharp one, what the PSF reaches beyond it."""
    margin = np.zeros(2, int) if blurred else np.array(kernel.shape) - 1
    room = np.array(picture.shape[:2]) - margin
    if room.min() < max(1, *kernel.shape):
        raise ValueError(
            f"{name} has {picture.shape[0]} x {picture.shape[1]} pixels, too few for a PSF of "
            f"{kernel.shape[0]} x {kernel.shape[1]}: a frame as large as the PSF"
            + ("" if blurred else " and the margin that the PSF reaches into")
            + " must fit; use a larger picture or a smaller PSF"
        )
    if size is None:
        return picture
    if not max(kernel.shape) <= size <= room.min():
        raise ValueError(
            f"size must lie between {max(kernel.shape)}, the PSF's, and {room.min()} for {name} with its "
            f"margin, not {size!r}"
        )
    return _crop(picture, *(size + margin).tolist())


def make_cases(
    images: Any = None,
    psfs: Any = "gaussian:9,1.5",
    noises: Any = 0.01,
    boundaries: str | Sequence[str] = "unknown",
    *,
    size: int | None = None,
    seed: int = 0,
    blurred: bool = False,
) -> list[Case]:
    """Every combination of pictures, PSFs, noises and boundaries, made and checked.

    Parameters
    ----------
    images : name, path, array, a list of them, or a mapping of names to them
        Sharp pictures to be blurred; by default the sample "camera", of which
        the middle 256 x 256 pixels.
    psfs : short form, path, array, list or mapping
        As `deblur.psf.parse` takes them; an array is used as it is.
    noises : number, text or list
        See `parse_noise`.
    boundaries : str or list of str
        How the scene goes on beyond the frame. The same frame is used for
        all of them, the picture less a margin of the PSF's size; with
        "unknown" the margin is the scene beyond it, with the others the scene
        is made to go on as the boundary says.
    size : int, optional
        Side of a square frame in pixels, taken from the middle; by default all there is.
    seed : int
        Of the noise.
    blurred : bool
        The pictures came blurred, and there is no truth: nothing is blurred or added.

    Returns
    -------
    list of Case

    Raises
    ------
    ValueError, TypeError, OSError, MemoryError
        Before any work, for anything that cannot be used.
    """
    if images is None:
        if blurred:
            raise ValueError("a picture that came blurred must be named; give its file")
        images, size = _DEFAULT_IMAGE, size or _DEFAULT_SIZE
    if size is not None and (isinstance(size, bool) or int(size) != size or size < 1):
        raise ValueError(f"size must be a positive whole number of pixels, not {size!r}")
    edges = [boundaries] if isinstance(boundaries, str) else list(boundaries)
    for edge in edges:
        get_boundary(edge)
    pictures = [(name, *load_picture(source)) for name, source in _named(images)]
    if sum(own == "array" for _, own, *_ in pictures) > 1:
        pictures = [
            (name or (f"array {n}" if own == "array" else own), own, pixels, notes)
            for n, (name, own, pixels, notes) in enumerate(pictures, 1)
        ]
    kernels = []
    for name, source in _named(psfs):
        text = isinstance(source, str | Path)
        kernel = psf.parse(str(source)) if text else asnumpy(check_psf(source))
        kernels.append(
            (name or (f"PSF {source}" if text else f"PSF {kernel.shape[0]} × {kernel.shape[1]}"), kernel)
        )
    levels = [parse_noise(source) for _, source in _named(noises)]
    if not (pictures and kernels and levels and edges):
        raise ValueError("at least one image, PSF, noise and boundary are needed")
    cases: list[Case] = []
    for (given, own, picture, notes), (psf_name, kernel) in itertools.product(pictures, kernels):
        name = given or own
        scene = _frame(name, picture, kernel, size, blurred)
        require_memory(
            _COPIES * scene.nbytes,
            np,
            f"comparing methods on {name}, {scene.shape[0]} x {scene.shape[1]} pixels,",
            "take a part of it (size=, --size)",
        )
        for edge in edges:
            if blurred:
                Blur(kernel, scene.shape[:2], edge)  # says what is wrong with the PSF before any work
                sigma = float(np.median([noise_level(g) for g in np.atleast_3d(scene).T]))
                cases.append(
                    Case(name, psf_name, "noise as it came", edge, scene, kernel, None, sigma, notes)
                )
                continue
            for kind, level in levels:
                cases.append(_blur(name, psf_name, scene, kernel, kind, level, edge, seed, notes))
    return list({case.key: case for case in cases}.values())  # what was named twice is one case


def _blur(
    name: str,
    psf_name: str,
    scene: np.ndarray,
    kernel: np.ndarray,
    kind: str,
    level: float,
    boundary: str,
    seed: int,
    notes: tuple[str, ...],
) -> Case:
    rows, columns = (n - m + 1 for n, m in zip(scene.shape[:2], kernel.shape, strict=True))
    inner = Blur(kernel, (rows, columns), "unknown").crop
    sharp = np.ascontiguousarray(scene[inner])
    source = scene if boundary == "unknown" else sharp
    channel_axis = -1 if scene.ndim == 3 else None
    arguments: dict[str, Any] = {"boundary": boundary, "channel_axis": channel_axis}
    clean = degrade(source, kernel, **arguments)
    g = degrade(source, kernel, noise=kind, level=level, seed=seed, **arguments)
    words = f"{kind} noise {level:g}" if level > 0 else "no noise"
    return Case(name, psf_name, words, boundary, g, kernel, sharp, float((g - clean).std()), notes)

"""Pictures as the page shows them: 8 bits, residuals scaled, compressed to fit one file."""

from __future__ import annotations

import base64
import io

import numpy as np

from .cases import Case

#: Bytes that the pictures may take in the page, as base64; the text comes in addition.
PAGE_BYTES = 4_200_000
#: Ways to store the pictures, the best first: format, quality, and the factor by which they are reduced.
LEVELS: tuple[tuple[str, int, int], ...] = (
    ("PNG", 100, 1), ("WEBP", 90, 1), ("WEBP", 75, 1), ("WEBP", 50, 1), ("WEBP", 75, 2), ("WEBP", 50, 2),
    ("WEBP", 50, 4), ("WEBP", 30, 8),
)  # fmt: skip


def residual_scale(case: Case) -> float:
    """The residual that is drawn white (and, negative, black) in the pictures of a case."""
    return 4 * max(case.sigma, 1 / 255)


def as_8_bit(picture: np.ndarray) -> np.ndarray:
    """A picture on [0, 1], clipped and rounded to 8 bits."""
    return np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def names(key: str) -> tuple[str, str]:
    """The names of the restored picture and of the residual of the row with this key."""
    return f"{key}-restored", f"{key}-residual"


def shown(key: str, case: Case, restored: np.ndarray, residual: np.ndarray | None) -> dict[str, np.ndarray]:
    """The pictures of a row by their names, in 8 bits."""
    pictures = {names(key)[0]: as_8_bit(restored)}
    if residual is not None:
        pictures[names(key)[1]] = as_8_bit(0.5 + 0.5 * residual / residual_scale(case))
    return pictures


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two pictures differ by at most one grey level in 255."""
    return a.shape == b.shape and bool((np.abs(a.astype(np.int16) - b.astype(np.int16)) <= 1).all())


def encode(pictures: dict[str, np.ndarray]) -> tuple[dict[str, str], str]:
    """Data addresses of the pictures within `PAGE_BYTES`, and a sentence about their compression."""
    for kind, quality, factor in LEVELS:
        uris: dict[str, str] = {}
        room = PAGE_BYTES
        for name, picture in pictures.items():
            uri = _data_uri(picture, kind, quality, 1 if name.endswith("-psf") else factor)
            room -= len(uri)
            if room < 0:
                break
            uris[name] = uri
        else:
            how = "without loss" if kind == "PNG" else f"as {kind} of quality {quality}"
            how += f", reduced {factor} times" if factor > 1 else ""
            break
    else:
        how = f"with loss; {len(pictures) - len(uris)} of the last ones are left out, as the page cannot hold them"
    return uris, (
        f"The pictures in this page are rounded to 8 bits and stored {how}; the figures come from the unrounded ones."
    )


def _data_uri(picture: np.ndarray, kind: str, quality: int, factor: int) -> str:
    """A picture as a data address."""
    from PIL import Image

    shown = Image.fromarray(picture)
    if factor > 1:
        shown = shown.resize([max(1, n // factor) for n in shown.size], Image.Resampling.LANCZOS)
    out = io.BytesIO()
    shown.save(out, kind, quality=quality)  # PNG has none, and ignores it
    return f"data:image/{kind.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"

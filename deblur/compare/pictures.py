"""Pictures as the page shows them: 8 bits, scaled where they are residuals, packed to fit one file."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from .cases import Case
from .judge import Judged

#: Bytes that the pictures may take in the page, as base64; the text comes on top.
PAGE_BYTES = 4_200_000
#: Ways to store the pictures, the best first: format, quality, and the factor they are reduced by.
LEVELS: tuple[tuple[str, int, int], ...] = (
    ("PNG", 100, 1), ("WEBP", 90, 1), ("WEBP", 75, 1), ("WEBP", 50, 1), ("WEBP", 75, 2), ("WEBP", 50, 2),
    ("WEBP", 50, 4), ("WEBP", 30, 8),
)  # fmt: skip
_REDUCED = {2: "half", 4: "a quarter", 8: "an eighth"}


def residual_scale(case: Case) -> float:
    """What is drawn as white (and, negative, as black) in the residual pictures of a case."""
    return 4 * max(case.sigma, 1 / 255)


def as_8_bit(picture: np.ndarray) -> np.ndarray:
    """A picture on [0, 1] as it is shown: clipped and rounded to 8 bits."""
    return np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def names(key: str) -> tuple[str, str]:
    """What the restored picture and the residual of the row with this key are called."""
    return f"{key}-restored", f"{key}-residual"


def shown(judged: Judged, case: Case) -> dict[str, np.ndarray]:
    """The pictures of a row by their names, in 8 bits."""
    restored, residual = names(judged.row.key)
    pictures = {}
    if judged.restored is not None:
        pictures[restored] = as_8_bit(judged.restored)
    if judged.residual is not None:
        grey = judged.residual if judged.residual.ndim == 2 else judged.residual.mean(axis=-1)
        pictures[residual] = as_8_bit(0.5 + 0.5 * grey / residual_scale(case))
    return pictures


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two pictures differ by no more than one grey level in 255."""
    return a.shape == b.shape and bool((np.abs(a.astype(np.int16) - b.astype(np.int16)) <= 1).all())


def encode(pictures: dict[str, np.ndarray]) -> tuple[dict[str, str], str]:
    """Data addresses of the pictures within `PAGE_BYTES`, and a sentence on how they are stored."""
    from PIL import features

    lossy = "WEBP" if features.check("webp") else "JPEG"
    for kind, quality, shrink in LEVELS:
        form = "PNG" if kind == "PNG" else lossy
        uris: dict[str, str] = {}
        total = 0
        for name, picture in pictures.items():
            uris[name] = _data_uri(picture, form, quality, 1 if name.endswith("-psf") else shrink)
            total += len(uris[name])
            # Hopeless after a few pictures is hopeless; the next level is tried.
            if total > PAGE_BYTES or (len(uris) >= 4 and total / len(uris) * len(pictures) > 2 * PAGE_BYTES):
                break
        else:
            how = "without loss" if form == "PNG" else f"as {form} of quality {quality}"
            small = f", {_REDUCED[shrink]} as wide and high" if shrink > 1 else ""
            return uris, (
                f"The pictures in this page are rounded to 8 bits and stored {how}{small}; the figures come from the "
                "unrounded ones."
            )
    kept: dict[str, str] = {}
    for name, picture in pictures.items():
        uri = _data_uri(picture, form, quality, shrink)
        if sum(map(len, kept.values())) + len(uri) > PAGE_BYTES:
            break
        kept[name] = uri
    return kept, (
        f"There are more pictures than this page can hold: {len(pictures) - len(kept)} of the last ones are left out; "
        "the figures come from the unrounded ones."
    )


def _data_uri(picture: np.ndarray, form: str, quality: int, shrink: int) -> str:
    from PIL import Image

    shown = Image.fromarray(picture)
    if shrink > 1:
        shown = shown.resize([max(1, n // shrink) for n in shown.size], Image.Resampling.LANCZOS)
    out = io.BytesIO()
    options: dict[str, Any] = {} if form == "PNG" else {"quality": quality}
    shown.save(out, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"

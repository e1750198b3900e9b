"""What a caller asks of a variational method beside PSF and λ, checked, and turned into a problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from ..backend import Array, asnumpy, is_cupy
from ..errors import MethodError
from . import METHODS
from .problem import Denoiser
from .terms import DATA_TERMS

#: δ of the Huber term over the noise's standard deviation: 95 % as sharp as least squares where the noise is
#: Gaussian after all (P. J. Huber, Robust Statistics, 1981).
HUBER = 1.345
DEFAULT_DENOISER = "collaborative"


@dataclass(frozen=True)
class Request:
    """The options of `deblur.reconstruct` that only variational methods know, as `checked` leaves them."""

    mask: Array | str | None = None
    weights: Array | None = None
    bounds: tuple[float, float] | None = None
    data: str | None = None
    background: float = 0.0
    delta: float | None = None
    denoiser: Denoiser | None = None

    @classmethod
    def checked(
        cls,
        *,
        mask: Any,
        weights: Any,
        bounds: Any,
        data: str | None,
        background: float,
        delta: float | None,
        denoiser: Any,
    ) -> Request:
        """The options in their final form, or the error that names the one that makes no sense."""
        if isinstance(mask, str):
            if mask != "auto":
                raise ValueError(
                    f"mask must be 'auto' or an array that is True at the pixels to hide, not {mask!r}"
                )
        elif mask is not None:
            mask = mask if is_cupy(mask) else np.asarray(mask)
            if mask.dtype.kind not in "bui" or not bool(((mask == 0) | (mask == 1)).all()):
                raise ValueError(
                    f"mask must be boolean, True at the pixels to hide, not {mask.dtype}; to weigh pixels use weights"
                )
            mask = mask.astype(bool)
        if weights is not None:
            weights = weights if is_cupy(weights) else np.asarray(weights)
            if weights.dtype.kind not in "buif" or not bool((np.isfinite(asnumpy(weights))).all()):
                raise ValueError("weights must be finite real numbers")
            if float(weights.min()) < 0:
                raise ValueError(
                    f"weights must not be below zero, and the least is {float(weights.min()):.4g}; 0 hides a pixel"
                )
        if data is not None and data not in DATA_TERMS:
            raise ValueError(f"unknown data term {data!r}; choose one of {', '.join(DATA_TERMS)}")
        if not (np.isfinite(background) and background >= 0):
            raise ValueError(f"background must be a finite number >= 0, not {background!r}")
        if delta is not None and not (np.isfinite(delta) and delta > 0):
            raise ValueError(f"delta, where the Huber term turns linear, must be above 0, not {delta!r}")
        if delta is not None and data != "huber":
            raise ValueError("delta belongs to data='huber'")
        if isinstance(denoiser, str):
            denoiser = _named(denoiser)
        if denoiser is not None and not callable(denoiser):
            raise TypeError(
                f"denoiser must be a function denoiser(image, sigma) or the name of one, not {type(denoiser).__name__}"
            )
        return cls(mask, weights, _bounds(bounds), data, float(background), delta, denoiser)

    @staticmethod
    def default_denoiser() -> Denoiser:
        """What "pnp" takes where no denoiser is given."""
        return _named(DEFAULT_DENOISER)

    @property
    def asked(self) -> list[str]:
        """What was asked for that the linear formula does not have, in words."""
        found = []
        if self.mask is not None:
            found.append("a mask")
        if self.weights is not None:
            found.append("weights")
        if self.bounds is not None:
            found.append("bounds")
        if self.data not in (None, "gaussian"):
            found.append(f"the data term {self.data!r}")
        if self.background:
            found.append("a background")
        if self.denoiser is not None:
            found.append("a denoiser")
        return found

    def choose(self, method: str) -> tuple[str, str] | None:
        """(variational method, why), or None if it is the linear formula that is asked for.

        Raises
        ------
        MethodError
            If a linear method is named together with what it does not have.
        """
        if method in METHODS:
            return method, "as asked for"
        if not self.asked:
            return None
        words = " and ".join(self.asked)
        if method != "auto":
            raise MethodError(
                f"method {method!r} cannot serve here: it inverts the linear formula, which has no place for {words}; "
                f"use method='auto' or one of {', '.join(METHODS)}"
            )
        if self.denoiser is not None:
            return "pnp", f"{words} was given: a denoiser is a prior of its own"
        return "gradient", (
            f"the linear formula has no place for {words}; the gradient penalty is the closest to it that does "
            "not fail where pixels are hidden (method='tv' or 'tv2' keep edges better)"
        )


def _named(name: str) -> Denoiser:
    from .denoisers import get

    return get(name)


def _bounds(bounds: Any) -> tuple[float, float] | None:
    if bounds is None:
        return None
    if isinstance(bounds, str):
        if bounds != "nonnegative":
            raise ValueError(f"bounds must be None, 'nonnegative' or a pair (lo, hi), not {bounds!r}")
        return 0.0, math.inf
    try:
        lo, hi = (float(b) for b in bounds)
    except (TypeError, ValueError):
        raise TypeError(f"bounds must be None, 'nonnegative' or a pair (lo, hi), not {bounds!r}") from None
    if not lo < hi:
        raise ValueError(f"the bounds cross: lo = {lo:g} must be below hi = {hi:g}")
    return (lo, hi) if math.isfinite(lo) or math.isfinite(hi) else None


def frame_weights(
    request: Request, g: Array, spread: Callable[[Array, str], Array], dtype: np.dtype, xp: ModuleType
) -> tuple[Array | None, Array | None]:
    """(weights with the mask in them or None, the mask or None) for the frames `g`, (k, c, M, N).

    Parameters
    ----------
    request : Request
    g : (k, c, M, N) array
    spread : callable
        Lays an array of the image's shape, or of its rows and columns, out like the frames.
    dtype, xp
        Of the problem.

    Raises
    ------
    ValueError
        If a shape does not fit, or nothing is left to see in a frame.
    """
    if isinstance(request.mask, str):
        from .impulses import detect

        mask = detect(g)
    else:
        mask = None if request.mask is None else spread(xp.asarray(request.mask), "mask")
    weights = (
        None if request.weights is None else spread(xp.asarray(request.weights), "weights").astype(dtype)
    )
    if mask is not None:
        hidden = xp.broadcast_to(mask, g.shape) if weights is None else mask | (weights == 0)
        weights = (1.0 if weights is None else weights) * (1 - mask.astype(dtype))
    elif weights is not None:
        hidden = weights == 0
    else:
        return None, None
    per_frame = xp.broadcast_to(hidden, g.shape).all(axis=(-2, -1))
    if bool(per_frame.any()):
        what = (
            "the mask" if request.weights is None else "the weights" if mask is None else "mask and weights"
        )
        which = (
            ""
            if per_frame.size == 1
            else f" of frame and channel {np.argwhere(asnumpy(per_frame))[0].tolist()}"
        )
        raise ValueError(f"{what} hide every pixel{which}: nothing is left to restore from")
    return weights, mask


def check_counts(g: Array, weights: Array | None) -> None:
    """Raise ValueError if a visible value of Poisson data is below zero."""
    visible = g if weights is None else g * (weights > 0)
    lowest = float(visible.min())
    if lowest < 0:
        count = int((visible < 0).sum())
        raise ValueError(
            f"data='poisson' counts photons, and {count} visible value(s) are below zero (the least is {lowest:.4g}); "
            "subtract less of a background (give it as background=...), hide those pixels, or use data='gaussian'"
        )

"""What a caller says of single pixels, checked: which are hidden, and what each one weighs."""

from __future__ import annotations

from typing import Any

from .device import Array, check_finite, plain


def check_mask(mask: Any, shape: tuple[int, ...] | None = None) -> Array:
    """A mask as an array of bool, True at the pixels to hide.

    Parameters
    ----------
    mask : array
        Boolean, or whole numbers that are all 0 or 1; NumPy or CuPy.
    shape : tuple of int, optional
        What it must have; not looked at if not given.

    Raises
    ------
    TypeError
        If it holds neither booleans nor whole numbers, or is a masked array with hidden values.
    ValueError
        For another shape, or numbers other than 0 and 1.
    """
    mask = plain(mask, "the mask")
    _check_shape(mask, shape, "the mask")
    if mask.dtype.kind in "uif":
        odd = mask[(mask != 0) & (mask != 1)]
        if odd.size:
            raise ValueError(
                f"the mask must be boolean, True at the pixels to hide, not numbers such as {float(odd[0]):.4g}; "
                "to weigh pixels use weights"
            )
    if mask.dtype.kind not in "bui":
        raise TypeError(
            f"the mask must be boolean, True at the pixels to hide, not {mask.dtype}; use mask.astype(bool)"
        )
    return mask.astype(bool)


def check_weights(weights: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Weights as an array of real numbers, finite and ≥ 0, in the dtype that they have.

    Parameters
    ----------
    weights : array
        One for each pixel; 0 hides it. NumPy or CuPy.
    shape : tuple of int, optional
        What they must have; not looked at if not given.

    Raises
    ------
    TypeError
        If they are no real numbers, or a masked array with hidden values.
    ValueError
        For another shape, or weights that are negative, NaN or infinite.
    """
    weights = plain(weights, "weights")
    _check_shape(weights, shape, "weights")
    if weights.dtype.kind not in "buif":
        raise TypeError(f"weights must be real numbers, not {weights.dtype}")
    check_finite(weights, "weights")
    negative = weights[weights < 0]
    if negative.size:
        raise ValueError(
            f"weights must not be negative: {negative.size} lie below zero, the least is {float(negative.min()):.4g}; "
            "0 hides a pixel"
        )
    return weights


def _check_shape(a: Array, shape: tuple[int, ...] | None, name: str) -> None:
    if shape is not None and a.shape != tuple(shape):
        raise ValueError(f"{name} must have the image's shape {tuple(shape)}, not {a.shape}")

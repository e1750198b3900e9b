"""Read arguments as MATLAB does, and return values in the class that MATLAB returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .. import device
from ..device import Array, asnumpy, check_finite, get_xp, is_cupy, unwrapped

EPS = float(np.finfo(np.float64).eps)
IMAGE_CLASSES = ("uint8", "uint16", "int16", "float32", "float64")


def as_array(a: Any, name: str) -> Array:
    """Return `a` as a non-empty array of two or more dimensions."""
    literal = not hasattr(a, "__array__")
    a = unwrapped(a, name)
    if literal and a.dtype.kind in "iu" and not is_cupy(a):
        a = a.astype(np.float64)
    a = get_xp(a).atleast_2d(a)
    if a.size == 0:
        raise ValueError(f"{name} is empty (shape {a.shape})")
    if a.dtype.kind not in "biufc":
        raise TypeError(f"{name} must hold numbers, not dtype {a.dtype}")
    return a


def as_real(a: Any, name: str, like: Array | None = None) -> Array:
    """Return `a` as a float64 array of real and finite numbers, on the device of `like`."""
    a = device.as_real(as_array(a, name), name, np.float64)
    check_finite(a, name)
    return a if like is None else get_xp(like).asarray(asnumpy(a))


def as_matrix(a: Any, name: str) -> Array:
    """Return `a` as a non-empty array of two dimensions."""
    a = as_array(a, name)
    if a.ndim != 2:
        raise ValueError(f"{name} must be a matrix, not of shape {a.shape}; take one channel at a time")
    return a


def check_class(dtype: np.dtype, name: str, classes: Sequence[str]) -> None:
    if dtype.name not in classes:
        raise TypeError(f"{name} must be of dtype {', '.join(classes)}, not {dtype}: convert it with .astype")


def match_word(word: Any, choices: Sequence[str], what: str) -> str:
    """Return the one of `choices` that `word` names, in any case and shortened if it is unambiguous."""
    hits = [c for c in choices if c.startswith(word.lower())] if isinstance(word, str) else []
    if len(hits) != 1:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, choices))}, not {word!r}")
    return hits[0]


def as_scalar(value: Any, name: str, low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> float:
    """Return `value` as a finite float between `low` (exclusive if `above`) and `high`."""
    single = np.asarray(asnumpy(value))
    number = float(single.item()) if single.size == 1 and single.dtype.kind in "biuf" else math.nan
    if not (math.isfinite(number) and low <= number <= high) or (above and number == low):
        span = "" if low == -math.inf else f" {'above' if above else 'of at least'} {low:g}"
        span += "" if high == math.inf else f" and at most {high:g}"
        raise ValueError(f"{name} must be a finite number{span}, not {value!r}")
    return number


def as_whole(value: Any, name: str) -> int:
    """Return `value` as a positive whole number, of any class."""
    size = as_size(value, name)
    if len(size) != 1:
        raise ValueError(f"{name} must be a positive whole number, not {value!r}")
    return size[0]


def as_size(value: Any, name: str, low: int = 1) -> tuple[int, ...]:
    """Return whole numbers of at least `low`, given as one number or as a row or column of numbers, of any class."""
    size = np.asarray(asnumpy(value))
    whole = size.dtype.kind in "iuf" and np.all((size >= low) & (size < 2**31) & (size == np.floor(size)))
    if not whole or size.size == 0 or max(size.shape, default=1) != size.size:
        one = "a positive whole number" if low else "a whole number >= 0"
        raise ValueError(f"{name} must be {one} below 2**31, or a row or a column of them, not {value!r}")
    return tuple(int(n) for n in size.ravel())


def check_count(function: str, kind: str, parameters: Sequence[Any], names: Sequence[str]) -> None:
    if len(parameters) > len(names):
        takes = f"takes {', '.join(names)}" if names else "takes no parameters"
        raise ValueError(f"{function} {kind!r} {takes}; {len(parameters)} were given: {tuple(parameters)!r}")


def saturate(x: Array, dtype: np.dtype) -> Array:
    """Return float64 values in class `dtype`; integers and logicals are rounded and clipped to their range.

    Halves are rounded away from zero, as in MATLAB, but not in NumPy.
    """
    if dtype.kind == "f":
        return x.astype(dtype)
    xp, (low, high) = get_xp(x), (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    whole = xp.trunc(x)
    return (whole + xp.sign(x) * (xp.abs(x - whole) >= 0.5)).clip(low, high).astype(dtype)


def im2double(a: Array) -> Array:
    """Return integers scaled from the range of their class to [0, 1]; floating-point and logical values do
    not change.
    """
    if a.dtype.kind not in "iu":
        return a.astype(np.float64)
    limits = np.iinfo(a.dtype)
    return (a.astype(np.float64) - limits.min) / (float(limits.max) - limits.min)


def from_double(x: Array, dtype: np.dtype) -> Array:
    """Return values in class `dtype`; this is the inverse of `im2double`."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        x = x * (float(limits.max) - limits.min) + limits.min
    return saturate(x, dtype)


def as_image(img: Any, name: str, classes: Sequence[str] = IMAGE_CLASSES) -> tuple[Array, Array, ModuleType]:
    """Return the checked image, the image as doubles (integers are scaled to [0, 1]), and its array module."""
    img = as_array(img, name)
    check_class(img.dtype, name, classes)
    check_finite(img, name)
    return img, im2double(img), get_xp(img)


def as_like(value: Any, name: str, image: Array) -> Array:
    """Return a number, or an array with the shape of the image, as a non-negative array with that shape."""
    a = as_real(value, name, image)
    if a.size == 1:
        a = get_xp(image).full(image.shape, float(a.item()))
    if a.shape != image.shape or bool((a < 0).any()):
        wrong = f"of shape {a.shape}" if a.shape != image.shape else f"with {float(a.min()):g}"
        raise ValueError(f"{name} must be a number >= 0, or an array of them of shape {image.shape}, not one {wrong}")
    return a


def as_filter(a: Any, image: Array, name: str) -> Array:
    """Return a filter that is not larger than the image, in float64, with as many dimensions and on the same device."""
    a, shape = as_real(a, name, image), image.shape
    a = a.reshape(a.shape + (1,) * (len(shape) - a.ndim))
    if a.ndim > len(shape) or any(m > n for m, n in zip(a.shape, shape, strict=True)):
        raise ValueError(f"{name} {a.shape} is larger than the image {shape}; crop it")
    return a


def as_psf(psf: Any, image: Array, name: str = "psf") -> Array:
    """Return a filter as `as_filter` does, and raise ValueError if it is zero everywhere."""
    psf = as_filter(psf, image, name)
    if not bool(psf.any()):
        raise ValueError(f"{name} is zero everywhere")
    return psf

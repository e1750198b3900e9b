"""An image, with its mask and weights, as frames (k, c, *space), and the way back."""

from __future__ import annotations

import copy
import math
from os import PathLike
from typing import Any

import numpy as np

from .device import Array, Device, as_real, check_finite, get_xp, unwrapped
from .image import as_float, linear_light, srgb
from .image.arrays import looks_coloured
from .image.light import check_levels
from .norms import largest


def _axis(axis: int, ndim: int, name: str) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(f"{name} must be a whole number, the position of an axis, not {axis!r}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} = {axis} is no axis of an image with {ndim} dimensions")
    return axis % ndim


#: Where frames lie in a stack and which colours of them: what is restored together.
Part = tuple[slice, slice]
ALL: Part = (slice(None), slice(None))


def min_float_dtype(dtype: Any) -> np.dtype:
    """float32 for what it holds every number of, with digits to spare: integers of 8 or 16 bits and small floats."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32 if dtype.itemsize <= (4 if dtype.kind == "f" else 2) else np.float64)


class Frames:
    """An image taken apart into k frames of c colours, and the way back.

    The image is kept as it came; its frames become numbers to compute with when they are asked for, all of them or a
    part.

    Parameters
    ----------
    img : array
        Whatever offers ``__array__`` will do. What a masked array hides becomes a part of the mask.
    channel_axis, stack_axis : int or None
        The axes of colours and frames. Without either an image (M, N, 3) or (M, N, 4) is colour, and a fourth channel
        its opacity, which goes by what is done.
    mask : array, str or None
        True at pixels that are hidden: they may hold anything and are not even looked at.
    gamma : {"srgb"} or None
        The curve by which the image's numbers stand for light; the frames hold light.
    dtype : dtype, optional
        float32 or float64; by default what the image needs: see `enough`.

    Attributes
    ----------
    dtype : dtype
        Of the frames.
    masked : array of bool or None
        What the image's own mask hides, shaped like the image without opacity.
    shape : tuple of int
        Of the image without opacity.
    """

    def __init__(
        self,
        img: Any,
        channel_axis: int | None = None,
        stack_axis: int | None = None,
        mask: Any = None,
        gamma: str | None = None,
        dtype: Any = None,
    ) -> None:
        if img is None or isinstance(img, str | PathLike):
            said = "None" if img is None else f"the text {str(img)!r}: deblur.image.read makes one of a file"
            raise TypeError(f"the image must be an array, not {said}")
        xp = get_xp(img)
        Device.of(img).refuse_capture()
        hidden = np.ma.getmaskarray(img) if isinstance(img, np.ma.MaskedArray) else None
        img = np.ma.getdata(img) if hidden is not None else unwrapped(img, "the image")
        if img.size == 0:
            raise ValueError(f"the image is empty (shape {img.shape})")
        self.opacity: Array | None = None
        if channel_axis is None and stack_axis is None and looks_coloured(img.shape):
            channel_axis = 2
            if img.shape[2] == 4:
                self.opacity, img = as_float(img[..., 3:], np.float32), img[..., :3]
                hidden = None if hidden is None else hidden[..., :3]
        self.masked = hidden if hidden is not None and hidden.any() else None
        named = [
            _axis(axis, img.ndim, name)
            for axis, name in ((channel_axis, "channel_axis"), (stack_axis, "stack_axis"))
            if axis is not None
        ]
        if len(set(named)) != len(named):
            raise ValueError("channel_axis and stack_axis name the same axis")
        if img.ndim - len(named) != 2:
            raise ValueError(
                f"the image has shape {img.shape}; with {len(named) or 'no'} axis named there must be two left, rows "
                "and columns: for colour name the axis of the channels (channel_axis=-1; without a name only "
                "(M, N, 3) and (M, N, 4) are taken for colour, M and N being larger than 4), for a stack of frames the "
                "axis they are counted along (stack_axis=0)"
            )
        as_real(img[:0], "the image")  # says what no picture can hold
        self.given = img.dtype
        self.dtype = min_float_dtype(img.dtype) if dtype is None else np.dtype(dtype)
        self.shape, self._moved = img.shape, named
        self._coloured, self._stacked = channel_axis is not None, stack_axis is not None
        hide = [] if self.masked is None else [xp.asarray(self.masked)]
        if mask is not None and not isinstance(mask, str):
            hide.append(self._like_image(xp.asarray(mask), "mask"))
        for part in hide:
            img = xp.where(part, img.dtype.type(0), img)
        self.gamma = gamma
        if gamma is not None:
            check_levels(img)
        self._largest: float | None = None
        if img.dtype.kind == "f":
            self._largest = largest(img)
            if not math.isfinite(self._largest):
                check_finite(img, "the image")
        self._raw = self._taken_apart(img)
        if img.dtype.kind == "f" and img.dtype.itemsize > self.dtype.itemsize:
            check_finite(self.extremes, "the image")  # in the smaller dtype

    def as_dtype(self, dtype: np.dtype) -> Frames:
        """The same frames, as numbers of another dtype."""
        other = copy.copy(self)
        other.dtype = dtype
        return other

    @property
    def space(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self._raw.shape[2:]
        return rows, columns

    @property
    def device(self) -> Device:
        """Where the image lies."""
        return Device.of(self._raw)

    @property
    def extent(self) -> tuple[int, ...]:
        """Frames, colours, rows and columns: the shape of `data`."""
        return self._raw.shape

    @property
    def count(self) -> int:
        """How many frames and colours there are."""
        return self._raw.shape[0] * self._raw.shape[1]

    @property
    def data(self) -> Array:
        """All frames, (k, c, M, N)."""
        return self.part(ALL)

    @property
    def extremes(self) -> Array:
        """The least and the largest value of all frames, or one as large as the larger of them."""
        if self._largest is not None and self.gamma is None:
            with np.errstate(over="ignore"):
                return np.array([self._largest]).astype(self.dtype)
        xp = get_xp(self._raw)
        return self._numbers(xp.stack([self._raw.min(), self._raw.max()]))

    def part(self, at: Part) -> Array:
        """Some of the frames, as an array (k, c, M, N) of the dtype that is computed in."""
        return get_xp(self._raw).ascontiguousarray(self._numbers(self._raw[at]))

    def given_part(self, at: Part) -> Array:
        """Some of the frames as they came."""
        return self._raw[at]

    def parts(self, most: int) -> list[Part]:
        """The frames in parts of at most so many pixels, or of one frame and colour."""
        k, c = self._raw.shape[:2]
        together = max(1, most // (self.space[0] * self.space[1]))
        if together >= k * c:
            return [ALL]
        if together >= c:
            step = together // c
            return [(slice(i, i + step), slice(None)) for i in range(0, k, step)]
        return [(slice(i, i + 1), slice(j, j + together)) for i in range(k) for j in range(0, c, together)]

    def _numbers(self, raw: Array) -> Array:
        with np.errstate(over="ignore"):  # what the dtype cannot hold becomes infinite, and is found as that
            image = as_float(raw, self.dtype).astype(self.dtype, copy=False)
        return image if self.gamma is None else linear_light(image)

    def empty(self, dtype: Any, opacity: Any = 0) -> Array:
        """Room for an image of the given one's shape; its opacity, if it has one, is written at once."""
        xp = get_xp(self._raw)
        if self.opacity is None:
            return xp.empty(self.shape, dtype)
        out = xp.empty((*self.shape[:2], 4), dtype)
        out[..., 3:] = opacity
        return out

    def place(self, out: Array, at: Part, frames: Array) -> None:
        """Write frames into an image that `empty` made."""
        self._taken_apart(out if self.opacity is None else out[..., :3])[at] = frames

    @property
    def levels(self) -> Array:
        """The frames, (k, c, M, N), as they came where that is light but for a factor."""
        return self._raw if self.gamma is None else self.data

    def spread(self, part: Array, name: str) -> Array:
        """An array of the image's shape, or of its rows and columns, as it broadcasts to `data`."""
        return self._taken_apart(self._like_image(part, name))

    def curved(self, light: Array) -> Array:
        """Light by the image's own curve."""
        return light if self.gamma is None else srgb(light)

    def restore(self, frames: Array) -> Array:
        """The way back: (k, c, M, N) to the image's own shape; where that has an opacity there is 0."""
        xp = get_xp(frames)
        if self._coloured and self._stacked:
            front = frames.swapaxes(0, 1)
        else:
            front = frames.reshape(-1, *frames.shape[2:]) if self._moved else frames[0, 0]
        image = xp.ascontiguousarray(xp.moveaxis(front, range(len(self._moved)), self._moved))
        if self.opacity is None:
            return image
        return xp.concatenate([image, xp.zeros_like(image[..., :1])], axis=2)

    def _taken_apart(self, part: Array) -> Array:
        front = get_xp(part).moveaxis(part, self._moved, range(len(self._moved)))
        if self._coloured and self._stacked:
            return front.swapaxes(0, 1)
        if self._coloured:
            return front[None]
        return front[:, None] if self._stacked else front[None, None]

    def _like_image(self, part: Array, name: str) -> Array:
        """`part`, of the image's shape or of its rows and columns alone, as it broadcasts to the image."""
        rows, cols = (n for axis, n in enumerate(self.shape) if axis not in self._moved)
        if self.opacity is not None and part.shape == (rows, cols, 4):
            part = part[..., :3]
        if part.shape == (rows, cols):
            xp = get_xp(part)
            for axis in sorted(self._moved):
                part = xp.expand_dims(part, axis)
        elif part.shape != self.shape:
            raise ValueError(
                f"{name} has shape {part.shape}; it must be that of the image, {self.shape}, or its rows and "
                f"columns, {(rows, cols)}"
            )
        return part

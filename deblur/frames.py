"""An image, with its mask and weights, as frames (k, c, *space), and the way back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .device import Array, Device, as_real, check_finite, get_xp, plain
from .image import as_float, linear_light, srgb
from .image.arrays import looks_coloured
from .image.light import check_levels
from .norms import largest


def _axis(axis: int, ndim: int, name: str) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} = {axis} is no axis of an image with {ndim} dimensions")
    return axis % ndim


class Frames:
    """An image taken apart into k frames of c colours, and the way back.

    Parameters
    ----------
    img : array
        Whatever offers ``__array__`` will do. What a masked array hides becomes a part of the mask.
    channel_axis, stack_axis : int or None
        The axes of colours and frames. Without either an image (M, N, 3) or (M, N, 4) is colour, and a fourth channel
        its opacity, which goes by what is done: `picture` puts it back as it was.
    mask : array, str or None
        True at pixels that are hidden: they may hold anything and are not even looked at.
    gamma : {"srgb"} or None
        The curve by which the image's numbers stand for light; the frames hold light.

    Attributes
    ----------
    data : (k, c, M, N) array
        float32 or float64.
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
    ) -> None:
        xp = get_xp(img)
        Device.of(img).refuse_capture()
        hidden = np.ma.getmaskarray(img) if isinstance(img, np.ma.MaskedArray) else None
        img = np.ma.getdata(img) if hidden is not None else plain(img, "the image")
        if img.size == 0:
            raise ValueError(f"the image is empty (shape {img.shape})")
        self._opacity: Array | None = None
        if channel_axis is None and stack_axis is None and looks_coloured(img.shape):
            channel_axis = 2
            if img.shape[2] == 4:
                self._opacity, img = as_float(img[..., 3:]), img[..., :3]
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
                f"the image has shape {img.shape}; with {len(named)} axis named there must be two left, rows "
                "and columns: for colour name the axis of the channels (channel_axis=-1; without a name only "
                "(M, N, 3) and (M, N, 4) are taken for colour, M and N being larger than 4), for a stack of frames the "
                "axis they are counted along (stack_axis=0)"
            )
        image = as_real(as_float(img), "the image")
        self.shape, self._moved = img.shape, named
        self._coloured, self._stacked = channel_axis is not None, stack_axis is not None
        if mask is not None and not isinstance(mask, str):
            image = xp.where(self._like_image(xp.asarray(mask), "mask"), image.dtype.type(0), image)
        if self.masked is not None:
            image = xp.where(self.masked, image.dtype.type(0), image)
        if not math.isfinite(largest(image)):
            check_finite(image, "the image")
        self.gamma = gamma
        if gamma is not None:
            check_levels(img)
            image = linear_light(image)
        self.data = xp.ascontiguousarray(self._taken_apart(image))

    @property
    def space(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.data.shape[2:]

    def spread(self, part: Array, name: str) -> Array:
        """An array of the image's shape, or of its rows and columns, as it broadcasts to `data`."""
        return self._taken_apart(self._like_image(part, name))

    def picture(self, light: Array) -> Array:
        """The way back of a scene: in the image's own shape, by its own curve and with its own opacity."""
        image = self.restore(light if self.gamma is None else srgb(light))
        if self._opacity is not None:
            image[..., 3:] = self._opacity
        return image

    def restore(self, frames: Array) -> Array:
        """The way back: (k, c, M, N) to the image's own shape; where that has an opacity there is 0."""
        xp = get_xp(frames)
        if self._coloured and self._stacked:
            front = frames.swapaxes(0, 1)
        else:
            front = frames.reshape(-1, *frames.shape[2:]) if self._moved else frames[0, 0]
        image = xp.ascontiguousarray(xp.moveaxis(front, range(len(self._moved)), self._moved))
        if self._opacity is None:
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
        if self._opacity is not None and part.shape == (rows, cols, 4):
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

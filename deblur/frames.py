"""Convert an image, its mask and its weights to frames (k, c, *space), and frames back to an image."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .device import Array, Device, as_real, blocks, check_finite, get_xp, hidden, unwrapped
from .errors import check_axis, check_choice, check_dtype, warn
from .image import as_float, linear_light
from .image.arrays import looks_coloured
from .image.light import GAMMAS, check_levels
from .norms import contiguous, largest
from .operators.matrix import SPACES

#: Slices of the frames and of the colours that are restored together.
Part = tuple[slice, slice]
ALL: Part = (slice(None), slice(None))
_HIDE = "replace or hide them (method='auto', mask=~numpy.isfinite(image); for the command a file not black there)"


def min_float_dtype(dtype: Any) -> np.dtype:
    """Return float32 for integers of 8 or 16 bits and for floats of at most 32 bits, else float64."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32 if dtype.itemsize <= (4 if dtype.kind == "f" else 2) else np.float64)


def space_of(psf: Any, img: Any, channel_axis: int | None, stack_axis: int | None) -> int:
    """Return the number of spatial axes of an image, which is that of its PSF.

    A PSF of three axes has two meanings. It is the PSF of a volume if the image has three axes without a name.
    Otherwise it holds one PSF for each colour of an image; an image (M, N, 3), or (M, N, 4) with three PSFs, has
    colours without a name.

    Raises
    ------
    ValueError
        If the PSF has more than three axes.
    """
    shape = getattr(img, "shape", None) or unwrapped(img, "the image").shape
    left = len(shape) - (channel_axis is not None) - (stack_axis is not None)
    coloured = len(shape) == left and looks_coloured(tuple(shape))
    if hasattr(psf, "matvec"):
        return 2 if coloured and psf.shape[0] != math.prod(shape) else left
    axes = getattr(psf, "ndim", None) or unwrapped(psf, "psf").ndim
    if axes > max(SPACES):
        raise ValueError(
            f"the PSF has {axes} axes, shape {np.shape(psf)}; it may have one, for lines, two, for images, or three, "
            "for volumes or one PSF for each colour"
        )
    if axes != 3:
        return axes or 2  # a text or the like, which is rejected later
    return 2 if left == 2 or (coloured and len(psf) == 3) else 3


class Axes:
    """The positions of frames, colours and spatial axes in an array.

    Parameters
    ----------
    shape : sequence of int
    channel_axis : int or None
    stack_axis : int, sequence of int or None
        Without either, an array (M, N, 3) or (M, N, 4) is colour if there are two spatial axes.
    axes : int
        Number of spatial axes.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array.
    stack : tuple of int
        Positions of the stack axes.
    channel : int or None
        Position of the channel axis.
    in_space : tuple of int
        Positions of the spatial axes.
    order : tuple of int
        Positions of all axes: first the stack, then the channel, then the spatial axes.
    space : tuple of int
        Lengths of the spatial axes: rows and columns of an image.
    frames, colours : int
        Number of frames and of colours.

    Raises
    ------
    ValueError, TypeError
        Unless the named axes exist and the other axes are as many as the spatial ones.
    """

    def __init__(
        self, shape: Sequence[int], channel_axis: int | None, stack_axis: int | Sequence[int] | None, axes: int = 2
    ) -> None:
        self.shape = shape = tuple(map(int, shape))
        if axes == 2 and channel_axis is None and stack_axis is None and looks_coloured(shape):
            channel_axis = 2
        stack = stack_axis if isinstance(stack_axis, Sequence | np.ndarray) else [stack_axis]
        stacked = [check_axis(axis, len(shape), "stack_axis") for axis in stack if axis is not None]
        self.channel = None if channel_axis is None else check_axis(channel_axis, len(shape), "channel_axis")
        front = [*stacked, *([] if self.channel is None else [self.channel])]
        if len(set(front)) != len(front):
            raise ValueError("channel_axis and stack_axis name the same axis")
        left = len(shape) - len(front)
        if left != axes:
            names = {1: "one left, a line", 2: "two left, rows and columns", 3: "three left, a volume"}
            nouns = {1: "lines", 2: "images", 3: "a volume"}
            colour = "; without a name only (M, N, 3) and (M, N, 4) are colour, M and N being larger than 4"
            raise ValueError(
                f"the image has shape {shape}; with {len(front) or 'no'} axis named there must be {names[axes]}, for a "
                f"{axes}-D PSF, not {left}: name the axis of the channels (channel_axis=-1{colour * (axes == 2)}) and "
                "the one along which a stack of frames is counted (stack_axis=0)"
                + (f"; or, for {nouns[left]}, give a {left}-D PSF" if left in SPACES else "")
            )
        self.stack = tuple(stacked)
        self.in_space = tuple(axis for axis in range(len(shape)) if axis not in front)
        self.order = (*front, *self.in_space)
        self.space = tuple(shape[axis] for axis in self.in_space)
        self.frames = math.prod(shape[axis] for axis in self.stack)
        self.colours = 1 if self.channel is None else shape[self.channel]

    def split(self, part: Array) -> Array:
        """Return an array with these axes, of any lengths, as (k, c, *space); a view if there is at most one stack
        axis.
        """
        front, k = part.transpose(self.order), len(self.stack)
        colours = 1 if self.channel is None else front.shape[k]
        return front.reshape(math.prod(front.shape[:k]), colours, *front.shape[-len(self.space) :])

    def joined(self, frames: Array) -> Array:
        """Return an array (k, c, *space) with the axes of the image; this is the inverse of `split`."""
        named = [self.shape[axis] for axis in self.order[: -len(self.space)]]
        return contiguous(frames.reshape([*named, *frames.shape[2:]]).transpose(np.argsort(self.order).tolist()))


class Frames:
    """An image split into k frames of c colours, with the conversion back to an image.

    The image keeps its dtype. Its frames are converted to floats when they are requested, all or some of them.

    Parameters
    ----------
    img : array
        The image, or an object with ``__array__``. Hidden values of a masked array (`numpy.ma`, astropy's Masked,
        CCDData) become part of the mask. A unit is dropped with a warning.
    channel_axis, stack_axis : int or None
        The axes of colours and frames. Without either, an image (M, N, 3) or (M, N, 4) is colour. A fourth channel is
        its opacity, which is not restored.
    options : mapping
        Of the options of a restoration, `mask` and `weights` hide pixels, whose values do not count. With a `gamma` of
        "srgb" the frames hold linear light. `dtype` is by default `min_float_dtype` of the image.
    axes : int
        Number of spatial axes; see `space_of`.

    Attributes
    ----------
    dtype : dtype
        The dtype of the frames.
    masked : array of bool or None
        Pixels hidden by the image's own mask, shaped like the image without opacity.
    opacity : array or None
        The fourth channel of an image (M, N, 4), as float32.
    given : dtype
        The dtype of the image.
    shape : tuple of int
        Shape of the image without opacity.
    space : tuple of int
        Lengths of the spatial axes: rows and columns of an image.
    extent : tuple of int
        Number of frames, number of colours, and `space`: the shape of `data`.
    count : int
        Number of frames times number of colours.
    device : Device
        The device that holds the image.
    note : str
        A sentence about numbers that were changed, for the result's checks.

    Raises
    ------
    ValueError, TypeError
        For an empty image, NaN or infinity, values that the dtype cannot hold, a dtype that is not a real number, or
        axes that do not match the image.
    """

    def __init__(
        self,
        img: Any,
        channel_axis: int | None = None,
        stack_axis: int | None = None,
        options: Mapping[str, Any] = {},
        axes: int = 2,
    ) -> None:
        xp = get_xp(img)
        gamma = check_choice(options.get("gamma"), (None, *GAMMAS), "gamma")
        Device.of(img).refuse_capture()
        self.masked, unit = hidden(img), str(getattr(img, "unit", "") or getattr(img, "units", "") or "")
        img = unwrapped(img if self.masked is None else np.asarray(img), "the image")
        if unit:
            unit = f"units of {np.iinfo(img.dtype).max} {unit}" if img.dtype.kind in "iu" else unit
            warn(f"the image has a unit, and the restored image is an array without it: in {unit}", UserWarning)
        if img.size == 0:
            raise ValueError(f"the image is empty (shape {img.shape})")
        self.opacity: Array | None = None
        unnamed = axes == 2 and channel_axis is None and stack_axis is None
        if unnamed and looks_coloured(img.shape) and img.shape[2] == 4:
            self.opacity, img = as_float(img[..., 3:], np.float32), img[..., :3]
            if self.masked is not None:
                self.masked = self.masked[..., :3] if self.masked[..., :3].any() else None
        if stack_axis is not None:
            check_axis(stack_axis, img.ndim, "stack_axis")  # must be one axis: `place` needs views
        self._axes = Axes(img.shape, channel_axis, stack_axis, axes)
        self.space = self._axes.space
        as_real(img[:0], "the image")  # raises for a dtype that is not a real number
        self.given = img.dtype
        self.dtype = check_dtype(options.get("dtype")) or min_float_dtype(img.dtype)
        self.shape = img.shape
        hide = [] if self.masked is None else [xp.asarray(self.masked)]
        for name in ("mask", "weights"):
            if (part := options.get(name)) is not None and not isinstance(part, str):
                there = self._like_image(xp.asarray(unwrapped(part, name)), name)
                hide.append(there if name == "mask" else (there == 0) & ~xp.isfinite(img))
        for there in hide:
            img = xp.where(there, img.dtype.type(0), img)
        self.gamma = None if gamma == "linear" else gamma
        if self.gamma is not None:
            check_levels(img)
        self._largest: float | None = None
        self.note = ""
        if img.dtype.kind == "f":
            self._largest = largest(img)
            if not math.isfinite(self._largest):
                check_finite(img, "the image", _HIDE)
        self._given = self._raw = self._axes.split(img)
        self.extent, self.device = self._raw.shape, Device.of(img)
        self.count = math.prod(self.extent[:2])
        least, most = float(np.finfo(self.dtype).tiny), float(np.finfo(self.dtype).max)
        if img.dtype.itemsize > self.dtype.itemsize and self._largest and not least <= self._largest <= most:
            raise ValueError(f"{self.dtype} cannot hold values of size {self._largest:.3g}: scale them, or use float64")

    def replaced(self, data: Array, note: str) -> Frames:
        """Return the frames with other numbers (k, c, *space), and a sentence about them."""
        other = copy.copy(self)
        other._raw, other._largest, other.note = data, largest(data), note
        return other

    @property
    def data(self) -> Array:
        """All frames, (k, c, *space)."""
        return self.part(ALL)

    @property
    def largest(self) -> float:
        """The largest modulus of all frames."""
        if self._largest is not None and self.gamma is None:
            return float(self.dtype.type(self._largest))
        return largest(self._numbers(get_xp(self._raw).stack([self._raw.min(), self._raw.max()])))

    def part(self, at: Part) -> Array:
        """Return some of the frames as an array (k, c, *space) of the dtype `self.dtype`."""
        return get_xp(self._raw).ascontiguousarray(self._numbers(self._raw[at]))

    def given_part(self, at: Part) -> Array:
        """Return some of the frames in the dtype and unit of the image."""
        return self._given[at]

    def parts(self, most: int) -> list[Part]:
        """Split the frames into parts of at most `most` pixels each, but at least one frame of one colour."""
        k, c = self._raw.shape[:2]
        together = max(1, most // math.prod(self.space))
        if together >= k * c:
            return [ALL]
        step, some = max(1, together // c), min(together, c)
        return [(i, j) for i in blocks(k, step) for j in blocks(c, some)]

    def _numbers(self, raw: Array) -> Array:
        image = as_float(raw, self.dtype).astype(self.dtype, copy=False)
        return image if self.gamma is None else linear_light(image)

    def empty(self, dtype: Any, opacity: Any = 0) -> Array:
        """Return an uninitialised image with the shape of the input, and with this opacity if the input has
        an opacity.
        """
        xp = get_xp(self._raw)
        if self.opacity is None:
            return xp.empty(self.shape, dtype)
        out = xp.empty((*self.shape[:2], 4), dtype)
        out[..., 3:] = opacity
        return out

    def place(self, out: Array, at: Part, frames: Array) -> None:
        """Write frames into an image made by `empty`."""
        self._axes.split(out if self.opacity is None else out[..., :3])[at] = frames

    @property
    def levels(self) -> Array:
        """The frames, (k, c, *space), in the unit of the input if that is proportional to light, else as light."""
        return self._raw if self.gamma is None else self.data

    def spread(self, part: Array, name: str) -> Array:
        """Return an array with the shape of the image, or of one frame, in a shape that broadcasts to `data`."""
        return self._axes.split(self._like_image(part, name))

    def restore(self, frames: Array) -> Array:
        """Return frames (k, c, *space) as an array with the shape of the image; its opacity, if it has one, is 0."""
        image = self._axes.joined(frames)
        if self.opacity is None:
            return image
        xp = get_xp(image)
        return xp.concatenate([image, xp.zeros_like(image[..., :1])], axis=2)

    def _like_image(self, part: Array, name: str) -> Array:
        """Return `part`, which has the shape of the image or of one frame, in a shape that broadcasts to the image."""
        if self.opacity is not None and part.shape == (*self.space, 4):
            part = part[..., :3]
        if part.shape == self.space:
            return part.reshape([n if axis in self._axes.in_space else 1 for axis, n in enumerate(self.shape)])
        if part.shape != self.shape:
            raise ValueError(
                f"{name} has shape {part.shape}; it must be that of the image, {self.shape}"
                + (f", or, for all frames and colours alike, {self.space}" if self.shape != self.space else "")
            )
        return part

"""The interface of the linear map from scenes to images, for solvers and for SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from ..device import Array, Device, as_real, unwrapped
from .boundary import Boundary

if TYPE_CHECKING:
    from .blur import Blur
    from .torus import Torus

_T = TypeVar("_T")


class Operator(Protocol):
    """The linear map H from scenes (..., P, Q) to images (..., M, N), such as `Blur`.

    Attributes
    ----------
    image_shape, scene_shape : tuple of int
        (M, N) and (P, Q); one number each for lines, three for volumes.
    crop : tuple of slice
        Position of the image in the scene.
    boundary : Boundary
        How the scene continues beyond its frame.
    norm_bound : float
        An upper bound of ‖H‖, except where the boundary repeats pixels; for a blur, the PSF's absolute sum.
    dc_gain : float
        Factor by which H multiplies a constant scene; for a blur, the PSF's sum.
    nonnegative : bool
        Whether H has no negative entry.
    shift_invariant : Blur or None
        The same map as a blur by one PSF, for the solvers that need one; None if it is not such a blur.
    mean_blur : Blur
        A blur by one PSF that approximates the map, with the same sizes and boundary.
    """

    image_shape: tuple[int, ...]
    scene_shape: tuple[int, ...]
    crop: tuple[slice, ...]
    boundary: Boundary
    norm_bound: float
    dc_gain: float
    nonnegative: bool

    @property
    def shift_invariant(self) -> Blur | None: ...
    @property
    def mean_blur(self) -> Blur: ...

    def scaled(self, power: int) -> Operator:
        """Return 2^power H, with the same mantissas as H."""

    def power(self, torus: Torus) -> Array:
        """Return an approximation of |H|² at the half frequencies of a torus, float64, for preconditioners."""

    def forward(self, f: Array) -> Array:
        """Return H f for scenes f."""

    def adjoint(self, g: Array, overwrite: bool = False) -> Array:
        """Return Hᵀ g for images g, with the exact transpose; `overwrite` allows it to use the memory of g."""


def check_operator(blur: Operator) -> Operator:
    """Return `blur` itself, or raise TypeError if it is not an operator (but, for example, a PSF)."""
    if not hasattr(blur, "norm_bound"):
        raise TypeError(f"blur must be deblur.Blur(psf, shape) or another Operator, not {type(blur).__name__}")
    return blur


class LinearMap:
    """The linear operator of SciPy and PyLops, made of `forward`, `adjoint` and the two shapes."""

    dtype = np.dtype(np.float64)
    ndim = 2
    __array_ufunc__ = None  # so that `array @ blur` calls __rmatmul__

    image_shape: tuple[int, ...]
    scene_shape: tuple[int, ...]
    channels: int | None = None  # number of channels, if the map treats them differently

    def forward(self, f: Array) -> Array:
        raise NotImplementedError

    def adjoint(self, g: Array, overwrite: bool = False) -> Array:
        raise NotImplementedError

    def checked(self, x: Array, shape: tuple[int, ...], what: str) -> tuple[Array, Device]:
        """Return `x` as real images of that shape, and their device.

        Raises
        ------
        ValueError
            If the shape does not match.
        """
        x = as_real(x, what)
        if x.shape[-len(shape) :] != shape:
            raise ValueError(f"{what} must have shape (..., {', '.join(map(str, shape))}), not {x.shape}")
        if self.channels is not None and (x.ndim < 3 or x.shape[-3] != self.channels):
            raise ValueError(
                f"{what} must have {self.channels} channels before its rows and columns, as the PSFs have, not shape "
                f"{x.shape}"
            )
        return x, Device.of(x)

    def cached(self, key: Hashable, build: Callable[[], _T]) -> _T:
        """Return the result of `build`, computed once for `key` (dtype, device) and cached with the operator."""
        kept = self.__dict__.setdefault("_kept", {})
        if key not in kept:
            kept[key] = build()  # two threads may both build it; either result serves
        return kept[key]

    def release(self, used: str) -> None:
        """Free the cached spectra, and the blur of the regularizer "natural", except those with the name `used`."""
        for key in [*self.__dict__.get("_kept", ())]:
            if key[0] in {"fft", "dct", "dst", "kronecker", "natural"} - {used}:
                self.__dict__["_kept"].pop(key, None)

    def __getstate__(self) -> dict[str, object]:
        # Spectra belong to a process and a device, so they are not pickled.
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def _identity(self) -> tuple[object, ...]:
        """Return the tuple by which two maps of one class are compared."""
        return (id(self),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearMap) and type(self) is type(other) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix H: (pixels of the image, pixels of the scene), over all channels."""
        channels = self.channels or 1
        return channels * math.prod(self.image_shape), channels * math.prod(self.scene_shape)

    @property
    def T(self) -> LinearMap:
        """The transpose, a linear operator, too."""
        return _Transpose(self)

    H = T

    def matmat(self, x: Array) -> Array:
        """Return H X for scenes as the columns of X, (P * Q, k), or H x for one scene x (P * Q,), pixels row by row."""
        x = self._vectors(x, self.shape[1])
        count = math.prod(x.shape[1:])
        channels = () if self.channels is None else (self.channels,)
        images = self.forward(x.reshape(len(x), count).T.reshape(count, *channels, *self.scene_shape))
        return images.reshape(count, self.shape[0]).T.reshape(self.shape[0], *x.shape[1:])

    def rmatmat(self, x: Array) -> Array:
        """Return Hᵀ X for images as the columns of X, or Hᵀ x; see `matmat`."""
        return self.T.matmat(x)

    def __rmatmul__(self, x: Array) -> Array:
        return self.rmatmat(unwrapped(x, "the image").T).T

    __matmul__ = __mul__ = dot = matvec = matmat
    rmatvec = rmatmat
    _matvec, _rmatvec, _matmat, _rmatmat = matmat, rmatmat, matmat, rmatmat  # names that PyLops calls

    def _vectors(self, x: Array, length: int) -> Array:
        x = unwrapped(x, "the vector")
        if x.ndim not in (1, 2) or x.shape[0] != length:
            raise ValueError(
                f"{self!r} is a matrix of {self.shape[0]} x {self.shape[1]}: it takes vectors ({length},) or columns "
                f"({length}, k), not shape {x.shape}; for arrays of images, use forward and adjoint"
            )
        return x


class _Transpose(LinearMap):
    """The transpose Hᵀ of a linear map."""

    def __init__(self, of: LinearMap) -> None:
        self._of = of
        self.image_shape, self.scene_shape, self.channels = of.scene_shape, of.image_shape, of.channels

    def forward(self, f: Array) -> Array:
        return self._of.adjoint(f)

    def adjoint(self, g: Array, overwrite: bool = False) -> Array:
        return self._of.forward(g)

    @property
    def T(self) -> LinearMap:
        return self._of

    H = T

    def __repr__(self) -> str:
        return f"{self._of!r}.T"

"""The interface of the map from scenes to images, for solvers and for SciPy."""

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
    """The linear map H from scenes (..., P, Q) to images (..., M, N). `Blur` is one.

    Attributes
    ----------
    image_shape, scene_shape : tuple of int
        (M, N) and (P, Q), or the one or three axes that lines and volumes have.
    crop : tuple of slice
        Where the image lies in the scene.
    boundary : Boundary
        How the scene goes on beyond its frame.
    norm_bound : float
        A bound on ‖H‖, but for the boundary's `weight`: for a blur the PSF's absolute sum.
    dc_gain : float
        What becomes of the value of a constant scene: for a blur the PSF's sum.
    nonnegative : bool
        Whether H has no negative entry.
    shift_invariant : Blur or None
        The same map as a blur by one PSF, for the solvers that need one; None if it is none.
    mean_blur : Blur
        The blur by one PSF that is nearest: it has the same sizes and boundary.
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
        """2^power H, whose digits are those of H."""

    def power(self, torus: Torus) -> Array:
        """What stands for |H|² at the half frequencies of a torus, float64, for preconditioners."""

    def forward(self, f: Array) -> Array:
        """H f."""

    def adjoint(self, g: Array, overwrite: bool = False) -> Array:
        """The exact transpose: Hᵀ g; with `overwrite` perhaps in the memory of g."""


def check_operator(blur: Operator) -> Operator:
    """`blur` itself, or TypeError for what is no operator, such as a PSF."""
    if not hasattr(blur, "norm_bound"):
        raise TypeError(f"blur must be deblur.Blur(psf, shape) or another Operator, not {type(blur).__name__}")
    return blur


class LinearMap:
    """The linear operator of SciPy and PyLops, from `forward`, `adjoint` and the two shapes."""

    dtype = np.dtype(np.float64)
    ndim = 2
    __array_ufunc__ = None  # so that `array @ blur` comes here

    image_shape: tuple[int, ...]
    scene_shape: tuple[int, ...]
    channels: int | None = None  # where the map treats each by itself

    def forward(self, f: Array) -> Array:
        raise NotImplementedError

    def adjoint(self, g: Array, overwrite: bool = False) -> Array:
        raise NotImplementedError

    def checked(self, x: Array, shape: tuple[int, ...], what: str) -> tuple[Array, Device]:
        """`x` as real images of that shape, and where they live; or an error."""
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
        """What `build` returns, made once for `key` (which names dtype and device) and cached with the operator."""
        kept = self.__dict__.setdefault("_kept", {})
        if key not in kept:
            kept[key] = build()  # two threads may both build it; either copy serves
        return kept[key]

    def __getstate__(self) -> dict[str, object]:
        # Spectra belong to a process and a device: they are made again.
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def _identity(self) -> tuple[object, ...]:
        """What maps of one kind are compared by."""
        return (id(self),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearMap) and type(self) is type(other) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def shape(self) -> tuple[int, int]:
        """(pixels of the image, pixels of the scene)."""
        channels = self.channels or 1
        return channels * math.prod(self.image_shape), channels * math.prod(self.scene_shape)

    @property
    def T(self) -> LinearMap:
        """The transpose, as an operator of the same kind."""
        return _Transpose(self)

    H = T

    def matmat(self, x: Array) -> Array:
        """H X for scenes as the columns of X, (P * Q, k), row by row; a vector (P * Q,) gives one of the same form."""
        x = self._vectors(x, self.shape[1])
        count = math.prod(x.shape[1:])
        channels = () if self.channels is None else (self.channels,)
        images = self.forward(x.reshape(len(x), count).T.reshape(count, *channels, *self.scene_shape))
        return images.reshape(count, self.shape[0]).T.reshape(self.shape[0], *x.shape[1:])

    def rmatmat(self, x: Array) -> Array:
        """Hᵀ X for images as the columns of X, or Hᵀ x, as `matmat`."""
        return self.T.matmat(x)

    def __rmatmul__(self, x: Array) -> Array:
        return self.rmatmat(unwrapped(x, "the image").T).T

    __matmul__ = __mul__ = dot = matvec = matmat
    rmatvec = rmatmat
    _matvec, _rmatvec, _matmat, _rmatmat = matmat, rmatmat, matmat, rmatmat  # the names that PyLops calls

    def _vectors(self, x: Array, length: int) -> Array:
        x = unwrapped(x, "the vector")
        if x.ndim not in (1, 2) or x.shape[0] != length:
            raise ValueError(
                f"{self!r} is a matrix of {self.shape[0]} x {self.shape[1]}: it takes vectors ({length},) or columns "
                f"({length}, k), not shape {x.shape}; for images as they are use forward and adjoint"
            )
        return x


class _Transpose(LinearMap):
    """Hᵀ of a map."""

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

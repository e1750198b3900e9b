"""`AdaptedOperator`: a linear operator of SciPy or PyLops, of which only products are known."""

from __future__ import annotations

import copy
import math

import numpy as np
import scipy

from ..device import Array, Map, as_real, random_signs
from .blur import Blur
from .boundary import Boundary
from .operator import LinearMap
from .torus import Torus


class _OperatorsOwn(Boundary):
    continued = True  # not dark: the operator decides which scene pixels it reads


class AdaptedOperator(LinearMap):
    """A linear map of SciPy or PyLops; some twenty products test its adjoint and measure ‖H‖ and |H|² in frequency.

    Parameters
    ----------
    operator : LinearOperator
        Operator with ``matvec`` and ``rmatvec``. The scene has the shape ``operator.dims`` if that has as many axes as
        the image, else the shape of the image.
    image_shape : tuple of int
        Shape of the images that the operator makes.

    Raises
    ------
    TypeError
        If the operator is complex or has no ``rmatvec``.
    ValueError
        If sizes do not match, a product is not finite, or ``rmatvec`` is not the adjoint of ``matvec``.
    """

    shift_invariant = None
    boundary = _OperatorsOwn("operator")
    _power = 0

    def __init__(self, operator: scipy.sparse.linalg.LinearOperator, image_shape: tuple[int, ...]) -> None:
        self._of, self.image_shape = operator, tuple(image_shape)
        rows, columns = operator.shape
        dims, data = (tuple(map(int, getattr(operator, name, ()))) for name in ("dims", "dimsd"))
        axes = len(self.image_shape)
        self.scene_shape = dims if len(dims) == axes else self.image_shape
        if rows != math.prod(self.image_shape) or data not in ((), (rows,), self.image_shape):
            raise ValueError(
                f"this operator makes images of shape {data or (rows,)}, and the image has shape {self.image_shape}: "
                "reshape the image, or name its channel_axis or stack_axis"
            )
        if columns != math.prod(self.scene_shape):
            raise ValueError(
                f"this operator takes scenes of {columns} pixels, and their shape is not known: set operator.dims, "
                f"{axes} numbers whose product is {columns}"
            )
        self.crop = tuple(slice(0, n) for n in self.scene_shape)
        u, v = (random_signs((3, *shape), np.float64, np) for shape in (self.scene_shape, self.image_shape))
        try:
            hu, hv = self.forward(u), self.adjoint(v)
        except NotImplementedError:
            raise TypeError("this operator has no rmatvec, the product with its transpose, which is needed") from None
        left, right, size = np.vdot(hu, v), np.vdot(u, hv), math.hypot(*map(np.linalg.norm, (hu, hv)))
        if not 0 < size < math.inf:
            raise ValueError(f"products of this operator with images of 1 and -1 have the norm {size:g}")
        if abs(left - right) > 3e-4 * size:  # float32 arithmetic leaves 1e-6
            raise ValueError(
                f"rmatvec is not the adjoint of matvec: for random u and v, <H u, v> is {left:.6g} and <u, H' v> "
                f"{right:.6g}; correct rmatvec (pylops.utils.dottest tests it)"
            )
        self.dc_gain = float(self.forward(np.ones(self.scene_shape)).mean())
        # Signs and ones cancel if H sees few pixels; numbers drawn like these do not.
        f = 1 + np.random.default_rng(0).standard_normal(self.scene_shape)
        for _ in range(10):
            f = self.adjoint(self.forward(f / np.linalg.norm(f)))
        self.norm_bound = 1.05 * math.sqrt(np.linalg.norm(f))  # a power iteration converges from below
        spread = self.forward(np.where(np.random.default_rng(0).permutation(f.size) % 256, 0.0, 1.0).reshape(f.shape))
        self.nonnegative = bool(spread.min() >= -1e-5 * abs(spread).max())
        gain = np.linalg.norm(hu) / math.sqrt(u.size)
        self.mean_blur = Blur(np.full((1,) * axes, gain), self.scene_shape, "reflect")

    def __repr__(self) -> str:
        return f"AdaptedOperator({type(self._of).__name__}, scene {self.scene_shape}, image {self.image_shape})"

    def scaled(self, power: int) -> AdaptedOperator:
        """Return 2^power H, with the same mantissas as H."""
        other = copy.copy(self)
        other._power, other.mean_blur = self._power + power, self.mean_blur.scaled(power)
        other.norm_bound, other.dc_gain = (math.ldexp(x, power) for x in (self.norm_bound, self.dc_gain))
        return other

    def power(self, torus: Torus) -> Array:
        """Return a random estimate of the diagonal of HᵀH at a torus's half frequencies, float64, smoothed."""
        u = random_signs(self.scene_shape, np.float64, np)
        before, after = torus.analyse(u), torus.analyse(self.adjoint(self.forward(u)))
        sides = [max(3, n // 32) for n in before.shape]
        both = [scipy.ndimage.uniform_filter((before.conj() * x).real, sides, mode="wrap") for x in (after, before)]
        return (both[0] / both[1]).clip(0)

    def forward(self, f: Array) -> Array:
        """Return H f for scenes (..., P, Q)."""
        return self._products(f, self._of.matvec, self.scene_shape, self.image_shape)

    def adjoint(self, g: Array, overwrite: bool = False) -> Array:
        """Return Hᵀ g for images (..., M, N)."""
        return self._products(g, self._of.rmatvec, self.image_shape, self.scene_shape)

    def _products(self, x: Array, product: Map, given: tuple[int, ...], made: tuple[int, ...]) -> Array:
        x, front = self.checked(x, given, "the array")[0], x.shape[: -len(given)]
        out = np.empty((math.prod(front), math.prod(made)))
        for row, vector in zip(out, x.reshape(len(out), math.prod(given)).astype(np.float64), strict=True):
            row[:] = as_real(product(vector), "what this operator returns").reshape(-1)
        return np.ldexp(out, self._power).reshape(*front, *made).astype(x.dtype, copy=False)

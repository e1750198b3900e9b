"""The singular value decomposition of a structured blur, applied through fast transforms.

For some blurs H = U S Vᵀ is known in closed form, or follows from one small
decomposition for each axis: periodic (Fourier, `deblur.solvers.fourier`), reflect (cosine,
`deblur.solvers.cosine`), zero with a 3 x 3 PSF (sine, `deblur.solvers.sine`)
and separable PSFs (`deblur.solvers.kronecker`). A `Spectrum` holds it. The
direct solvers and the choice of λ share the same `Spectrum`.

Every scene restored by a spectral filter is

    f = sum over i of  w[i] (u_iᵀ g) v_i ,

with w = σ/(σ² + λ) for Tikhonov, w = φ/σ for filter factors φ, and so on.

H is square or wide, never tall, so the u_i are a complete orthonormal basis
of the images. The squared coefficients of g therefore sum to ‖g‖², and the
residual of a filtered solution is
‖g − H f‖² = sum of (1 − w[i] σ[i])² |u_iᵀ g|².
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from ..device import Array, Device
from ..errors import SingularMatrixError
from ..norms import combined
from ..operators import torus_gpu
from ..operators.blur import Blur
from ..operators.operator import Operator
from ..pixelwise import fused, modulus
from ..problem import Direct, Problem
from ..threads import all_cores

_DOUBTFUL = 64 * float(np.finfo(np.float64).eps)


class Spectrum(ABC):
    """The decomposition H = U diag(values) Vᴴ for one blur, dtype and device; U = V if H is symmetric.

    Attributes
    ----------
    values : (M, N) array
        One value for each pixel of the image, of either sign, in the transform's layout (not sorted). For a periodic
        blur, the half of the complex eigenvalues that a real transform keeps.
    """

    def __init__(self, values: Array) -> None:
        self.values = values

    @property
    def singular_values(self) -> Array:
        """Singular values σ ≥ 0 (M, N), all of them, in the layout of `coefficients`."""
        return modulus(self.values)

    @abstractmethod
    def analyse(self, x: Array) -> Array:
        """Apply Uᴴ along the axes of space."""

    @abstractmethod
    def synthesise(self, x: Array) -> Array:
        """Apply V along the axes of space; `x` may be destroyed."""

    def coefficients(self, g: Array) -> Array:
        """Return |u_iᴴ g| ≥ 0 for images (..., M, N), in their shape."""
        return abs(self.analyse(g))

    def tikhonov(self, lam: float) -> Array:
        """Return the filter with which `filtered` computes the Tikhonov solution for λ: σ̄/(|σ|² + λ), and 0 where
        σ = λ = 0. It is not computed as 1/σ, which may overflow.
        """
        return _quotient(self.values, self.values.real.dtype.type(lam))

    def filtered(self, g: Array, by: Array) -> Array:
        """Return the scenes (..., P, Q) Σ by[i] (u_iᴴ g) v_i for images (..., M, N)."""
        c = self.analyse(g)
        return self.synthesise(combined(c, by=by, out=c))

    def hht(self, g: Array, lam: float) -> Array:
        """Return (HHᵀ + λI)⁻¹ Hᵀ g; for a normal H, as of most spectra, it is the Tikhonov solution."""
        return self.filtered(g, self.tikhonov(lam))


class SpectralFactor(Direct):
    """The prepared solver of every method with a `Spectrum`.

    Raises
    ------
    SingularMatrixError
        If HHᵀ + λI is singular to rounding; see `check_regular`.
    """

    def __init__(self, spectrum: Spectrum, problem: Problem) -> None:
        self._spectrum, self._lam, self._hht = spectrum, problem.lam, problem.formula == "hht"
        largest, eps = problem.blur.boundary.weight * problem.blur.norm_bound, float(np.finfo(problem.dtype).eps) ** 2
        # For a larger λ, HHᵀ + λI has an inverse, however small the singular values are.
        if not problem.lam > max(1.01 * eps / (1 - eps), _DOUBTFUL) * largest**2:
            check_regular(spectrum.singular_values, problem.lam)
        self._by = None if self._hht else spectrum.tikhonov(problem.lam)

    @all_cores()
    def scenes(self, g: Array) -> Array:
        return self._spectrum.hht(g, self._lam) if self._hht else self._spectrum.filtered(g, self._by)


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes of three parts: spectrum and filter, what both are computed from, and the images' coefficients.

    The first part has no spectrum if the boundary wraps, since H keeps it, and no filter if the formula is "hht".
    """
    image = problem.sizes[0]
    return (2 - (problem.formula == "hht") - problem.blur.boundary.wraps) * image, 2 * image, 2 * image * problem.frames


def check_regular(s: Array, lam: float) -> None:
    """Raise SingularMatrixError unless σ² + λ has an inverse that the dtype can represent; λ = 0 is possible.

    The singular values `s` were computed in float64; one that is zero to rounding causes an error of eps ‖H‖²/λ.
    """
    smallest, largest = float(s.min()), float(s.max())
    unknown = smallest < _DOUBTFUL * largest and lam < _DOUBTFUL * largest**2
    if unknown or not smallest**2 + lam > float(np.finfo(s.dtype).eps) ** 2 * (largest**2 + lam):
        raise SingularMatrixError(
            f"HHᵀ + λI is singular to {s.dtype} with λ = {lam / (largest or 1) ** 2:.3g} ‖H‖²: the smallest "
            f"singular value of H is {smallest / (largest or 1):.2g} ‖H‖. Use a larger λ, such as 1e-4 ‖H‖²"
        )


@fused
def _quotient(xp: ModuleType, values: Array, lam: Array) -> Array:
    denominator = abs(values) ** 2 + lam
    return xp.conj(values) / xp.where(denominator > 0, denominator, 1)


def quadrant(blur: Blur) -> np.ndarray | None:
    """Return the quarter h[0..r, 0..s] of a PSF symmetric in each axis about its origin; None for any other PSF.

    For a volume's PSF it is an eighth. Zeros at the border are dropped, so r and s are the true half-widths.
    """
    h = blur.centred
    rounding = 8 * np.finfo(np.float64).eps * np.abs(h).max()
    if not all(np.abs(h - np.flip(h, axis)).max() <= rounding for axis in range(h.ndim)):
        return None
    quarter = h[tuple(slice(n // 2, None) for n in h.shape)]
    return quarter[tuple(slice(k.max() + 1) for k in np.nonzero(quarter))]


def diagonal(operator: Operator) -> bool:
    """Return whether a transform diagonalises H: it wraps, or mirrors a scene and its PSF is symmetric in each axis."""
    blur, boundary = operator.shift_invariant, operator.boundary
    return blur is not None and (boundary.wraps or (boundary.mirrors and quadrant(blur) is not None))


def symbol_at(blur: Blur, lengths: Sequence[int], first: int, dtype: DTypeLike, device: Device) -> Array:
    """Return the real spectrum of a PSF symmetric in each axis: frequencies `first`, `first` + 1, … of a torus.

    The result has the image's shape; `lengths` are those of the torus.
    """
    shape, torus = blur.image_shape, tuple(lengths)
    if device.gpu is not None and torus_gpu.serves_psf(blur.psf, torus):
        return torus_gpu.symbol(blur.psf, torus, blur.origin, first, device.xp.empty(shape, dtype))
    angles = [2 * np.pi * np.arange(first, first + n) / length for n, length in zip(shape, torus, strict=True)]
    quarter = quadrant(blur)
    assert quarter is not None
    return cosine_symbol(quarter, angles, device).astype(dtype)


def cosine_symbol(quarter: np.ndarray, angles: Sequence[np.ndarray], device: Device) -> Array:
    """Return Σ h[k, l] cos(k θ) cos(l φ) for all `angles` θ, φ of each axis, from a symmetric PSF's `quadrant`."""
    found = quarter  # an entry off an axis stands for two or more entries of the PSF
    for axis, (along, size) in enumerate(zip(angles, found.shape, strict=True)):
        c = 2 * np.cos(along[:, None] * np.arange(size))
        c[:, 0] = 1
        if axis == len(angles) - 1:  # the largest product
            return device.xp.asarray(found) @ device.xp.asarray(c.T)
        found = np.moveaxis(np.tensordot(c, found, (1, axis)), 0, axis)
    return found

"""`VaryingBlur`: a PSF that changes across the image, as a few convolutions and maps of weights.

It serves images of two axes. Variation with depth needs another model, and there is no lattice for
places in three dimensions yet.

A pixel x of the image sees the scene through the PSF h(x). Between the places where the PSF is known, it is
interpolated, h(x) = Σ_k w_k(x) h_k with Σ_k w_k = 1, so that

    H = Σ_k diag(w_k) C_k ,        Hᵀ = Σ_k C_kᵀ diag(w_k) ,

where C_k is the blur by h_k: one transform of the scene, and one inverse transform for each term [1]_. The weights come
after the blur, so a constant scene stays constant. If many PSFs are known, their number is reduced by
h_k ≈ h̄ + Σ_j c_kj e_j, with the mean PSF and the first singular vectors of the remainder (eigen-PSFs) [2]_. Without
subtracting the mean first, the mean brightness would change.

References
----------
.. [1] J. G. Nagy, D. P. O'Leary, "Restoring images degraded by spatially variant blur", SIAM J. Sci. Comput. 19
   (1998) 1063-1082.
.. [2] L. Denis, E. Thiébaut, F. Soulez, J.-M. Becker, R. Mourya, "Fast approximations of shift-variant blur", Int. J.
   Comput. Vis. 115 (2015) 253-278.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import cached_property, reduce
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, DTypeLike

from ..device import Array, Device, Shape, as_real, asnumpy, unwrapped
from ..errors import as_number, check_count, shown
from ..norms import norms_of
from .blur import Blur
from .matrix import by, check_psf
from .operator import LinearMap
from .torus import Torus

#: Number of PSFs, spread over the frame, from which preconditioners are made.
_SAMPLE = 25
#: Nodes along each axis of the lattice on which PSFs at scattered positions are interpolated.
_LATTICE = 17
#: Root mean square of the weights of principal components, relative to weights of one for the mean PSF. ADMM, which
#: splits the components, then takes fewest iterations.
_LIGHT = 0.3


class VaryingBlur(LinearMap):
    """The blur of images of one size by a PSF that changes across the frame.

    SciPy and PyLops take it as they take a `Blur`, and so does every method of this package that does not need one PSF
    for the whole image.

    Parameters
    ----------
    psfs : (R, S, m, n) or (K, m, n) array
        The PSFs: on a grid of R x S places evenly spread over the frame (the centres of as many equal cells), or at
        K `positions`. One more axis, before the last two, holds the colour channels: channel c of an image
        (..., C, M, N) is then blurred by its own PSF. The PSFs are not normalised; `origin` is their centre.
    shape : (int, int)
        Size (M, N) of the blurred image in pixels.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene continues beyond the image (see `deblur.operators.matrix`).
    positions : (K, 2) array, optional
        Row and column, in pixels, of the place in the image where each PSF was measured. If they form a grid, PSFs
        are interpolated bilinearly between them, and the nearest one is used beyond them. Otherwise they are
        interpolated by a thin-plate spline (`scipy.interpolate.RBFInterpolator`), constant beyond their bounding box.
    tolerance : float or None
        Largest error of any pixel's PSF, as a sum of absolute values over the largest such sum of a PSF. It determines
        the number of eigen-PSFs, and bounds the error of H f over the largest value of f. None uses all PSFs unchanged
        on a grid, by regions, and all eigen-PSFs elsewhere.
    origin : (int, int), optional
        Index of the PSFs' centre, by default ``((m - 1) // 2, (n - 1) // 2)``.

    Attributes
    ----------
    terms : int
        Number of convolutions in one product.
    error : float
        The actual error that `tolerance` bounds; 0 if every PSF is used.
    mean_blur : Blur
        The blur by the mean PSF.

    Raises
    ------
    ValueError, TypeError
        If the PSFs are invalid, positions are outside the frame, too few or repeated, or the tolerance is not between
        0 and 1.

    Examples
    --------
    >>> import numpy as np, deblur
    >>> sharper_above = np.array([[deblur.psf.gaussian(9, s)] for s in (0.8, 1.2)])  # a grid of 2 x 1
    >>> blur = deblur.VaryingBlur(sharper_above, (64, 64), "reflect")
    >>> blur
    VaryingBlur(9x9 PSF, 2 terms, image (64, 64), boundary='reflect')
    """

    def __init__(
        self,
        psfs: Array,
        shape: Shape,
        boundary: str = "zero",
        *,
        positions: Array | None = None,
        tolerance: float | None = None,
        origin: tuple[int, int] | None = None,
    ) -> None:
        if tolerance is not None and not 0 < as_number(tolerance) < 1:
            raise ValueError(f"tolerance must be a part of a PSF's sum, between 0 and 1, or None, not {tolerance!r}")
        if not np.iterable(shape) or len(shape) != 2 or not all(as_number(n) >= 1 for n in shape):
            raise ValueError(
                f"PSFs that vary, or one for each colour, blur images (rows, columns), not shape {shape!r}; "
                "for lines and volumes give one PSF with as many axes as they have"
            )
        psfs, self.positions, grid = _placed(psfs, positions, shape)
        self._lattice, mix = _interpolation(self.positions, grid, shape)
        nodes = np.tensordot(mix, psfs, 1)  # the PSF at every node of the lattice
        terms, self._coefficients, self.error = _reduced(psfs, mix, nodes, tolerance)
        self._nodes = nodes = np.tensordot(self._coefficients, terms, 1)
        self.channels = psfs.shape[1] if psfs.ndim == 4 else None
        colours = terms if terms.ndim == 4 else terms[:, None]
        self._blurs = [[Blur(h, shape, boundary, origin=origin) for h in term] for term in colours]
        mean = psfs.mean(axis=tuple(range(psfs.ndim - 2)))
        every = psfs.reshape(-1, *mean.shape)
        self._sample = every[np.unique(np.linspace(0, len(every) - 1, _SAMPLE).round().astype(int))]
        self.mean_blur = Blur(mean, shape, boundary, origin=origin)
        self.image_shape, self.scene_shape = self.mean_blur.image_shape, self.mean_blur.scene_shape
        self.crop, self.boundary = self.mean_blur.crop, self.mean_blur.boundary
        sums = np.abs(nodes).sum(axis=(-2, -1))
        # ‖H‖² is at most the largest row sum times the largest column sum.
        columns = np.abs(nodes).max(axis=0).sum(axis=(-2, -1))
        self.norm_bound = float(np.sqrt(sums.max()) * np.sqrt(columns.max()))
        self.dc_gain = float(mean.sum())
        least = float(nodes.min(initial=0.0))
        self.nonnegative = float(psfs.min()) >= 0 and least >= -self.error * sums.max() and self.boundary.weight == 1

    def __repr__(self) -> str:
        m, n = self.mean_blur.psf.shape
        return f"VaryingBlur({m}x{n} PSF, {self.terms} terms, image {self.image_shape}, boundary={self.boundary!r})"

    def _identity(self) -> tuple[object, ...]:
        blurs = tuple(blur for term in self._blurs for blur in term)
        return blurs, self._coefficients.tobytes(), *(a.tobytes() for a in self._lattice)

    def scaled(self, power: int) -> VaryingBlur:
        """Return 2^power H, with the same mantissas as H."""
        other = copy.copy(self)
        other.__dict__.pop("components", None)
        other._blurs = [[blur.scaled(power) for blur in term] for term in self._blurs]
        other.mean_blur = self.mean_blur.scaled(power)
        other._sample, other._nodes = (np.ldexp(x, power) for x in (self._sample, self._nodes))
        other.norm_bound, other.dc_gain = (math.ldexp(x, power) for x in (self.norm_bound, self.dc_gain))
        return other

    @property
    def terms(self) -> int:
        """Number of convolutions in one product."""
        return len(self._blurs)

    @property
    def shift_invariant(self) -> Blur | None:
        """The operator as a blur by one PSF, if it has a single term and channel; else None."""
        return self._blurs[0][0] if self.terms == len(self._blurs[0]) == 1 else None

    def power(self, torus: Torus) -> Array:
        """Return the largest |ĥ|² of any PSF at each half frequency of a torus, float64.

        If the sharpest PSF passes a frequency, a preconditioner from the mean PSF amplifies it too much. This one takes
        a third to a half of its conjugate gradients.
        """
        return reduce(torus.device.xp.maximum, map(torus.power, self._sample))

    def psf_at(self, row: float, column: float) -> np.ndarray:
        """Return the PSF through which a pixel of the image sees the scene: (m, n), or (C, m, n) with colours."""
        at = [_hats(nodes, np.array([x])) for nodes, x in zip(self._lattice, (row, column), strict=True)]
        return np.tensordot(np.einsum("ir,js->rs", *at).ravel(), self._nodes, 1)

    # -- products ----------------------------------------------------------------------------

    def _weights(self, dtype: DTypeLike, device: Device) -> list[Array]:
        """Return the map of weights (M, N) of each term, cached."""
        key = "weights", np.dtype(dtype), device
        return self.cached(key, lambda: [w.astype(dtype) for w in self._maps(self._coefficients, device)])

    def _transfers(self, dtype: DTypeLike, device: Device) -> list[Array]:
        """Return the half spectra of each term, (C, ...) with colours, cached."""
        key, stack = ("transfers", np.dtype(dtype), device), device.xp.stack
        terms = ([blur.transfer(dtype, device) for blur in term] for term in self._blurs)
        return self.cached(key, lambda: [term[0] if self.channels is None else stack(term) for term in terms])

    def principal(self, dtype: DTypeLike, device: Device) -> tuple[list[Array], np.ndarray]:
        """Return the operator's mean PSF and the principal components of the PSFs' differences, with their weights.

        Returns
        -------
        maps : list of (M, N) arrays
            The weight of each: one for the mean, small ones for the components, whose PSFs are larger in proportion.
        psfs : (K, m, n) array
            The PSFs; (K, C, m, n) with colours.
        """
        mean, coefficients, vectors = self.components
        maps, psfs = [device.xp.ones(self.image_shape, dtype)], [mean]
        for w, h in zip(self._maps(coefficients, device), vectors, strict=True):
            scale = norms_of(w)[0] / math.sqrt(w.size) / _LIGHT
            maps.append((w / scale).astype(dtype))
            psfs.append(h.reshape(mean.shape) * scale)
        return maps, np.array(psfs)

    @cached_property
    def components(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean PSF, and the coefficients (nodes, K) and vectors (K, m n) of the PSFs' principal components."""
        mean = self._nodes.mean(axis=0)
        u, s, vectors = np.linalg.svd((self._nodes - mean).reshape(len(self._nodes), -1), full_matrices=False)
        rank = np.count_nonzero(s > 1e-12 * abs(self.mean_blur.psf).max())
        return mean, u[:, :rank] * s[:rank], vectors[:rank]

    def _maps(self, coefficients: np.ndarray, device: Device) -> Iterator[Array]:
        """Yield a map (M, N), float64, for each column of coefficients, interpolated between the lattice's nodes."""
        high, wide = (
            device.xp.asarray(_hats(nodes, np.arange(n)))
            for nodes, n in zip(self._lattice, self.image_shape, strict=True)
        )
        for values in coefficients.T:
            yield high @ device.xp.asarray(values.reshape(high.shape[1], wide.shape[1])) @ wide.T

    def forward(self, f: Array) -> Array:
        """Return the blurred images H f, for one scene or a stack of them.

        Parameters
        ----------
        f : (..., P, Q) array
            Scenes of size `scene_shape`, (..., C, P, Q) if the PSFs have colours. NumPy or CuPy; float32 stays float32,
            all else becomes float64.

        Returns
        -------
        g : (..., M, N) array
        """
        f, device = self.checked(f, self.scene_shape, "the scene")
        torus, shape = self.mean_blur.torus(device), self.image_shape
        spectrum = torus.analyse(self.mean_blur.continued(f))
        room, out = device.xp.empty_like(spectrum), None
        for w, t in zip(self._weights(f.dtype, device), self._transfers(f.dtype, device), strict=True):
            part = torus.synthesise(device.xp.multiply(spectrum, t, out=room), shape=shape)
            part *= w
            out = part if out is None else device.xp.add(out, part, out=out)
        return out

    def adjoint(self, g: Array, overwrite: bool = False) -> Array:
        """Return Hᵀ g, with the exact transpose of `forward`, for one image or a stack of them.

        Parameters
        ----------
        g : (..., M, N) array
        overwrite : bool
            Whether the memory of `g` may be used.

        Returns
        -------
        f : (..., P, Q) array
        """
        g, device = self.checked(g, self.image_shape, "the image")
        torus = self.mean_blur.torus(device)
        room, total = device.xp.empty_like(g), None
        for w, t in zip(self._weights(g.dtype, device), self._transfers(g.dtype, device), strict=True):
            part = torus.analyse(device.xp.multiply(w, g, out=room))
            # The conjugate of the wanted spectrum is summed, so that no conjugate of t needs memory.
            device.xp.conj(part, out=part)
            part *= t
            total = part if total is None else device.xp.add(total, part, out=total)
        return self.mean_blur.folded(torus.synthesise(device.xp.conj(total, out=total)))


def check_grid(grid: Any) -> Any:
    """Return the numbers of rows and columns of a grid, checked; ValueError for anything else."""
    sides = tuple(grid) if np.iterable(grid) else ()
    if len(sides) != 2:
        raise ValueError(f"grid must be (rows, columns), not {shown(grid)}")
    return tuple(check_count(n, "each side of grid") for n in sides)


def cell_centres(grid: Any, shape: Shape, least: int = 1) -> np.ndarray:
    """Return rows and columns, (R, S, 2), of the centres of R x S equal parts of a frame of `shape` pixels.

    No side of a part may be shorter than `least` pixels.
    """
    grid = check_grid(grid)
    if any(k * least > n for k, n in zip(grid, shape, strict=True)):
        raise ValueError(f"a grid of {by(grid)} has more parts than {by(shape)} pixels hold, of {least} x {least} each")
    centres = [(np.arange(k) + 0.5) * n / k - 0.5 for k, n in zip(grid, shape, strict=True)]
    return np.stack(np.meshgrid(*centres, indexing="ij"), -1)


def _sizes(psfs: ArrayLike) -> set[Shape]:
    """Return the sizes of arrays in nested lists."""
    return set().union(*map(_sizes, psfs)) if isinstance(psfs, list | tuple) else {np.shape(psfs)[-2:]}


def _placed(psfs: ArrayLike, positions: ArrayLike | None, shape: Shape) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return PSFs (K, m, n) or (K, C, m, n) in float64, their places (K, 2), and whether the places form a grid."""
    sizes = _sizes(psfs)
    if len(sizes) > 1:
        said = " and ".join(map(by, sorted(sizes)))
        raise ValueError(f"the PSFs have several sizes, {said}: bring them to one (deblur.psf.prepare, size=...)")
    h = asnumpy(as_real(unwrapped(psfs, "psfs"), "psfs", np.float64))
    if positions is None:
        if h.ndim not in (4, 5) or h.size == 0:
            raise ValueError(f"psfs must be (rows, columns, m, n), or (K, m, n) with their positions, not {h.shape}")
        at = cell_centres(h.shape[:2], shape).reshape(-1, 2)
        h = h.reshape(-1, *h.shape[2:])
    else:
        if h.ndim not in (3, 4) or h.size == 0:
            raise ValueError(f"with positions psfs must be (K, m, n) or (K, C, m, n), not shape {h.shape}")
        at = asnumpy(as_real(unwrapped(positions, "positions"), "positions", np.float64))
        if at.shape != (len(h), 2):
            raise ValueError(
                f"positions must give the row and column of each of the {len(h)} PSFs, ({len(h)}, 2), not shape "
                f"{at.shape}"
            )
        inside = (at >= -0.5) & (at <= np.subtract(shape, 0.5))
        if not inside.all():
            k = int(np.argmin(inside.all(axis=1)))
            raise ValueError(
                f"position {k}, {at[k].tolist()}, lies outside the image of {shape[0]} x {shape[1]} pixels; positions "
                "are (row, column) in pixels, counted from 0"
            )
        order = np.lexsort(at.T[::-1])
        at, h = at[order], h[order]
        same = (np.diff(at, axis=0) == 0).all(axis=1)
        if same.any():
            raise ValueError(f"two PSFs are given for {at[int(np.argmax(same))].tolist()}; average them first")
    for k, place in enumerate(h):
        for one in place if place.ndim == 3 else [place]:
            check_psf(one, f"the PSF at {at[k].tolist()}")
    if (h == h[0]).all():
        return h[:1], at.mean(axis=0, keepdims=True), True
    rows, columns = np.unique(at[:, 0]), np.unique(at[:, 1])
    return h, at, len(rows) * len(columns) == len(at)


def _interpolation(at: np.ndarray, grid: bool, shape: Shape) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Return the rows and columns of a lattice, and (nodes, K) the weight of each PSF at its nodes."""
    if grid:
        return (np.unique(at[:, 0]), np.unique(at[:, 1])), np.eye(len(at))
    rows, columns = (np.linspace(0, n - 1, min(n, _LATTICE)) for n in shape)
    nodes = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)
    nodes = np.clip(nodes, at.min(axis=0), at.max(axis=0))
    # A thin-plate spline needs three places that are not on a line.
    flat = np.linalg.matrix_rank(at - at.mean(axis=0), tol=1e-3) < 2
    kernel = {"kernel": "linear", "degree": 0} if flat else {"kernel": "thin_plate_spline", "degree": 1}
    return (rows, columns), scipy.interpolate.RBFInterpolator(at, np.eye(len(at)), **kernel)(nodes)


def _hats(nodes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return (len(x), nodes): linear interpolation between the nodes, and the nearest node beyond them."""
    return np.stack([np.interp(x, nodes, unit) for unit in np.eye(len(nodes))], axis=1)


def _reduced(
    psfs: np.ndarray, mix: np.ndarray, nodes: np.ndarray, tolerance: float | None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the PSFs of the convolutions, their weights (nodes, terms) at the nodes, and the largest error.

    The error between nodes is no larger, since weights are interpolated from those at the nodes.
    """
    if tolerance is None or len(psfs) == 1:
        return psfs, mix, 0.0
    largest = np.abs(nodes).sum(axis=(-2, -1)).max()
    mean = psfs.mean(axis=0)
    u, s, vectors = np.linalg.svd((psfs - mean).reshape(len(psfs), -1) / largest, full_matrices=False)
    shares = mix @ (u * s)
    rest = (nodes - mean) / largest
    for j in range(len(psfs) - 1):
        error = float(np.abs(rest).sum(axis=(-2, -1)).max())
        if error <= tolerance:
            terms = np.concatenate([mean[None], largest * vectors[:j].reshape(j, *mean.shape)])
            return terms, np.concatenate([np.ones((len(mix), 1)), shares[:, :j]], axis=1), error
        rest = rest - np.multiply.outer(shares[:, j], vectors[j].reshape(mean.shape))
    return psfs, mix, 0.0

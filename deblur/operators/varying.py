"""`VaryingBlur`: a PSF that changes across the image, as a few convolutions and maps of weights.

It serves images of two axes: how a PSF varies with depth is another model, and places in three dimensions have no
lattice here yet.

A pixel x of the image sees the scene through the PSF h(x). Between the places where it is known the PSF is
interpolated, h(x) = Σ_k w_k(x) h_k with Σ_k w_k = 1, so that

    H = Σ_k diag(w_k) C_k ,        Hᵀ = Σ_k C_kᵀ diag(w_k) ,

with C_k the blur by h_k: one transform of the scene and one inverse transform a term [1]_. Because the weights come
after the blur, a constant scene stays constant. Where many PSFs are known their number is cut by
h_k ≈ h̄ + Σ_j c_kj e_j, the mean PSF and the first singular vectors of the rest (eigen-PSFs) [2]_; without the mean
subtracted first the mean brightness would change.

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
from functools import reduce
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

#: PSFs, spread over the frame, that preconditioners look at.
_SAMPLE = 25
#: Nodes along each axis of the lattice on which PSFs at scattered positions are interpolated.
_LATTICE = 17
#: Root mean square of the weights of principal components, where those of the mean PSF are one: ADMM, which splits
#: them, takes fewest iterations so.
_LIGHT = 0.3


class VaryingBlur(LinearMap):
    """The blur of images of one size by a PSF that changes across the frame.

    Works wherever a `Blur` does in SciPy and PyLops, and with every method of this package that does not need one PSF
    for the whole image.

    Parameters
    ----------
    psfs : (R, S, m, n) or (K, m, n) array
        The PSFs: on a grid of R x S places evenly spread over the frame (the centres of as many equal cells), or at
        K `positions`. One more axis, before the last two, holds the colour channels: then channel c of an image
        (..., C, M, N) is blurred by its own. Each is used as it is; centred where `origin` says.
    shape : (int, int)
        Size (M, N) of the blurred image in pixels.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
    positions : (K, 2) array, optional
        Row and column in pixels of the place in the image where each PSF was measured. If they form a grid, PSFs
        between them are interpolated bilinearly and beyond them the nearest hold; else a thin-plate spline goes
        through them (`scipy.interpolate.RBFInterpolator`), held constant beyond their bounding box.
    tolerance : float or None
        The largest error of any pixel's PSF, as a sum of absolute values over the largest such sum of a PSF: so many
        eigen-PSFs are taken as it needs. It bounds what H f is wrong by, over the largest value of f. None uses
        every PSF as given on a grid, by regions, and every eigen-PSF elsewhere.
    origin : (int, int), optional
        Index of the PSFs' centre, by default ``((m - 1) // 2, (n - 1) // 2)``.

    Attributes
    ----------
    terms : int
        Convolutions in one product.
    error : float
        The error that `tolerance` bounds, as it is: 0 where every PSF is used.
    mean_blur : Blur
        The blur by the mean PSF.

    Raises
    ------
    ValueError, TypeError
        For PSFs that are none, positions outside the frame, too few or repeated, or a tolerance out of its range.

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
            raise ValueError(f"tolerance is a part of a PSF's sum, between 0 and 1, or None, not {tolerance!r}")
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
        apart = (nodes - nodes.mean(axis=0)).reshape(len(nodes), -1)
        self.parts = 1 + int(np.linalg.matrix_rank(apart, 1e-12 * abs(mean).max()))  # blurs that `principal` gives
        sums = np.abs(nodes).sum(axis=(-2, -1))
        # ‖H‖² is at most the largest sum of a row times that of a column.
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
        """2^power H, whose digits are those of H."""
        other = copy.copy(self)
        other._blurs = [[blur.scaled(power) for blur in term] for term in self._blurs]
        other.mean_blur = self.mean_blur.scaled(power)
        other._sample, other._nodes = (np.ldexp(x, power) for x in (self._sample, self._nodes))
        other.norm_bound, other.dc_gain = (math.ldexp(x, power) for x in (self.norm_bound, self.dc_gain))
        return other

    @property
    def terms(self) -> int:
        """Convolutions in one product."""
        return len(self._blurs)

    @property
    def shift_invariant(self) -> Blur | None:
        """The operator as a blur by one PSF: only if it has no more than one."""
        return self._blurs[0][0] if self.terms == len(self._blurs[0]) == 1 else None

    def power(self, torus: Torus) -> Array:
        """The largest |ĥ|² of any PSF at each frequency, float64.

        Where the sharpest PSF passes a frequency, a preconditioner of the mean PSF would amplify it too much: this
        one takes half to a third of its conjugate gradients.
        """
        return reduce(torus.device.xp.maximum, map(torus.power, self._sample))

    def psf_at(self, row: float, column: float) -> np.ndarray:
        """The PSF that a pixel of the image sees the scene through: (m, n), with colours (C, m, n)."""
        at = [_hats(nodes, np.array([x])) for nodes, x in zip(self._lattice, (row, column), strict=True)]
        return np.tensordot(np.einsum("ir,js->rs", *at).ravel(), self._nodes, 1)

    # -- products ----------------------------------------------------------------------------

    def _weights(self, dtype: DTypeLike, device: Device) -> list[Array]:
        """The map of each term, (M, N)."""
        key = "weights", np.dtype(dtype), device
        return self.cached(key, lambda: [w.astype(dtype) for w in self._maps(self._coefficients, device)])

    def _transfers(self, dtype: DTypeLike, device: Device) -> list[Array]:
        """The half spectra of each term, with colours (C, ...)."""

        def build() -> list[Array]:
            return [
                device.xp.stack([b.transfer(dtype, device) for b in term])
                if self.channels is not None
                else term[0].transfer(dtype, device)
                for term in self._blurs
            ]

        return self.cached(("transfers", np.dtype(dtype), device), build)

    def principal(self, dtype: DTypeLike, device: Device) -> tuple[list[Array], np.ndarray]:
        """The same operator as its mean PSF and the principal components of what the PSFs differ by.

        Returns
        -------
        maps : list of (M, N) arrays
            The weight of each: one of the mean's, small ones of the others', whose PSFs are as much larger.
        psfs : (K, m, n) array
            With colours (K, C, m, n).
        """
        mean, rank = self._nodes.mean(axis=0), self.parts - 1
        u, s, vectors = np.linalg.svd((self._nodes - mean).reshape(len(self._nodes), -1), full_matrices=False)
        maps, psfs = [device.xp.ones(self.image_shape, dtype)], [mean]
        for w, h in zip(self._maps(u[:, :rank] * s[:rank], device), vectors[:rank], strict=True):
            scale = norms_of(w)[0] / math.sqrt(w.size) / _LIGHT
            maps.append((w / scale).astype(dtype))
            psfs.append(h.reshape(mean.shape) * scale)
        return maps, np.array(psfs)

    def _maps(self, coefficients: np.ndarray, device: Device) -> Iterator[Array]:
        """(M, N), float64, for each column: between the nodes of the lattice, where its values are."""
        high, wide = (
            device.xp.asarray(_hats(nodes, np.arange(n)))
            for nodes, n in zip(self._lattice, self.image_shape, strict=True)
        )
        for values in coefficients.T:
            yield high @ device.xp.asarray(values.reshape(high.shape[1], wide.shape[1])) @ wide.T

    def forward(self, f: Array) -> Array:
        """Blur: H f, for one scene or a stack of them.

        Parameters
        ----------
        f : (..., P, Q) array
            Scenes of size `scene_shape`, (..., C, P, Q) if the PSFs have colours. NumPy or CuPy; float32 is kept, all
            else becomes float64.

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
        """The exact transpose of `forward`: Hᵀ g, for one image or a stack of them.

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
            # The conjugate of what belongs there, so that no spectrum's conjugate needs memory of its own.
            device.xp.conj(part, out=part)
            part *= t
            total = part if total is None else device.xp.add(total, part, out=total)
        return self.mean_blur.folded(torus.synthesise(device.xp.conj(total, out=total)))


def check_grid(grid: Any) -> Any:
    """The numbers of rows and columns of a grid."""
    sides = tuple(grid) if np.iterable(grid) else ()
    if len(sides) != 2:
        raise ValueError(f"grid must be (rows, columns), not {shown(grid)}")
    return tuple(check_count(n, "each side of grid") for n in sides)


def cell_centres(grid: Any, shape: Shape) -> np.ndarray:
    """Rows and columns, (R, S, 2), of the centres of R x S equal parts of a frame of so many pixels."""
    grid = check_grid(grid)
    if any(k > n for k, n in zip(grid, shape, strict=True)):
        raise ValueError(f"a grid of {by(grid)} has more parts than {by(shape)} pixels can be cut into")
    centres = [(np.arange(k) + 0.5) * n / k - 0.5 for k, n in zip(grid, shape, strict=True)]
    return np.stack(np.meshgrid(*centres, indexing="ij"), -1)


def _sizes(psfs: ArrayLike) -> set[Shape]:
    """The sizes of arrays in lists of any depth."""
    return set().union(*map(_sizes, psfs)) if isinstance(psfs, list | tuple) else {np.shape(psfs)[-2:]}


def _placed(psfs: ArrayLike, positions: ArrayLike | None, shape: Shape) -> tuple[np.ndarray, np.ndarray, bool]:
    """PSFs (K, m, n) or (K, C, m, n) in float64, where they are (K, 2), and whether these places form a grid."""
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
            raise ValueError(f"two PSFs are said to be at {at[int(np.argmax(same))].tolist()}; average them first")
    for k, place in enumerate(h):
        for one in place if place.ndim == 3 else [place]:
            check_psf(one, f"the PSF at {at[k].tolist()}")
    if (h == h[0]).all():
        return h[:1], at.mean(axis=0, keepdims=True), True
    rows, columns = np.unique(at[:, 0]), np.unique(at[:, 1])
    return h, at, len(rows) * len(columns) == len(at)


def _interpolation(at: np.ndarray, grid: bool, shape: Shape) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """The rows and columns of a lattice, and (nodes, K) what each PSF counts at its nodes."""
    if grid:
        return (np.unique(at[:, 0]), np.unique(at[:, 1])), np.eye(len(at))
    rows, columns = (np.linspace(0, n - 1, min(n, _LATTICE)) for n in shape)
    nodes = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)
    nodes = np.clip(nodes, at.min(axis=0), at.max(axis=0))
    # A thin plate needs three places off a line.
    flat = np.linalg.matrix_rank(at - at.mean(axis=0), tol=1e-3) < 2
    kernel = {"kernel": "linear", "degree": 0} if flat else {"kernel": "thin_plate_spline", "degree": 1}
    return (rows, columns), scipy.interpolate.RBFInterpolator(at, np.eye(len(at)), **kernel)(nodes)


def _hats(nodes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(len(x), nodes): linear interpolation between the nodes, the nearest beyond them."""
    return np.stack([np.interp(x, nodes, unit) for unit in np.eye(len(nodes))], axis=1)


def _reduced(
    psfs: np.ndarray, mix: np.ndarray, nodes: np.ndarray, tolerance: float | None
) -> tuple[np.ndarray, np.ndarray, float]:
    """(the PSFs of the convolutions, (nodes, terms) what each counts at the nodes, the largest error).

    Between nodes the error is no larger: weights there are those of the nodes, interpolated.
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

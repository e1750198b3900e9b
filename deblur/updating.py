"""Deblur with updates: hide bad pixels or add an exposure without starting over.

`QRDeblurrer` keeps the triangle R of the least-squares problem

    minimise  Σ_k ‖W_k^½ (H_k f − g_k)‖² + λ‖f‖²

over exposures k, with a weight for each pixel, which is zero for a hidden pixel. Hiding a pixel removes a row of the
matrix, and adding an exposure adds a block of rows. Both are updates of R.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from .device import asnumpy, check_finite, hidden, is_cupy, require_memory, unwrapped
from .errors import ConvergenceError, check_choice, check_count, check_dtype, check_number
from .image import as_float
from .linalg.band_triangle import BandTriangle
from .linalg.qr_model import METHODS
from .masks import check_mask, check_weights
from .operators.blur import Blur


class QRDeblurrer:
    """A deblurring problem with pixel weights and any number of exposures, kept up to date by QR updating.

    Parameters
    ----------
    psf : (m, n) array
        Point spread function of the first exposure, used without normalisation.
    shape : (int, int)
        Rows and columns of the images.
    lam : float
        The regularisation parameter λ > 0, to be compared with ‖h‖₁², whatever the intensities.
    boundary : {"zero", "periodic", "reflect", "antireflect", "unknown"}
        How the scene continues beyond the frame; see `deblur.Blur`.
    origin : (int, int), optional
        Index of the PSF's centre.
    mask : (M, N) bool array, optional
        True at the pixels of the first exposure to hide.
    weights : (M, N) array, optional
        Weights ≥ 0 of the first exposure's pixels, proportional to 1 / variance; by default one.
    dtype : float32 or float64
        The dtype of the computation.

    Attributes
    ----------
    blurs : tuple of Blur
        One blur for each exposure.
    weights : tuple of (M, N) arrays
        The current weights of each exposure, zero at hidden pixels.
    residual : float or None
        ‖Hᵀ W (g − H f) − λ f‖ / ‖Hᵀ W g‖ of the last restoration, measured with `Blur`.
    note : str
        The remark of the last call; empty if there is none.

    Raises
    ------
    ValueError, TypeError
        For invalid input, before any work starts.
    InsufficientMemoryError
        If the band would not fit in memory.

    Notes
    -----
    The pixels are ordered row by row, so that H, HᵀH and R are banded. The bandwidth is about the height of the PSF
    times the width of the image, and a periodic boundary fills the whole matrix. The class is therefore for small
    images of some 100 pixels a side.

    Neither H nor Q is stored. The image solves the semi-normal equations RᵀR f = HᵀWg with iterative refinement [1]_,
    which also corrects the rounding errors of updates of R. The residual is measured every time. If R has become too
    inaccurate, it is computed again, and `note` says so. Hiding or showing a few pixels costs much less than starting
    over. An exposure has as many rows as pixels, so adding it by an update saves little.

    References
    ----------
    .. [1] Å. Björck, "Stability analysis of the method of seminormal equations for linear least squares
       problems", Linear Algebra Appl. 88/89 (1987) 31-48.

    Examples
    --------
    >>> import numpy as np
    >>> import deblur
    >>> sharp = deblur.data.load("camera")[96:128, 96:128]
    >>> psf = deblur.psf.gaussian(5, 1.0)
    >>> g = deblur.degrade(sharp, psf)
    >>> g[3, 4] = np.nan  # a dead pixel
    >>> restore = deblur.QRDeblurrer(psf, g.shape, 1e-3)
    >>> restore.hide(np.isnan(g))
    >>> bool(np.isfinite(restore(g)).all())
    True
    """

    def __init__(
        self,
        psf: Any,
        shape: tuple[int, int],
        lam: float,
        *,
        boundary: str = "zero",
        origin: tuple[int, int] | None = None,
        mask: Any = None,
        weights: Any = None,
        dtype: Any = np.float64,
    ) -> None:
        self.lam = check_number(lam, "λ, which determines hidden pixels,", above=True)
        self.dtype = check_dtype(dtype) or np.dtype(np.float64)
        self.boundary = boundary
        self.residual: float | None = None
        self.note = ""
        exposure = self._exposure(Blur(psf, shape, boundary, origin=origin), mask, weights)
        if not exposure.weights.any():
            raise ValueError("the mask hides every pixel, which leaves the scene undetermined")
        pixels = exposure.blur.shape[1]
        needed, what = 5 * pixels * _band(exposure.blur), f"the triangle of a scene of {pixels} pixels in its band"
        instead = "use a smaller image or PSF, or deblur.solve(..., mask=...), which iterates"
        require_memory(needed * self.dtype.itemsize, np, what, instead)
        self._exposures: tuple[_Exposure, ...] = (exposure,)
        self._r = self._factored(self._exposures)

    @property
    def blurs(self) -> tuple[Blur, ...]:
        return tuple(e.blur for e in self._exposures)

    @property
    def weights(self) -> tuple[np.ndarray, ...]:
        return tuple(e.weights.copy() for e in self._exposures)

    # -- changes of the problem ---------------------------------------------------------------

    def hide(self, mask: Any, exposure: int = 0, *, method: str = "auto") -> None:
        """Hide pixels from now on, by removing their rows.

        Parameters
        ----------
        mask : (M, N) bool array
            True at the pixels to hide, which may include pixels that are already hidden.
        exposure : int
            The number of the exposure, counted from 0.
        method : {"auto", "update", "refactor"}
            Update R, or compute it again; "auto" chooses the way that takes fewer operations.

        Raises
        ------
        ValueError
            If no pixel of any exposure would be left, or there is no such exposure. The problem does not change.
        """
        self._reweight(exposure, mask, False, method)

    def show(self, mask: Any, exposure: int = 0, *, method: str = "auto") -> None:
        """Show hidden pixels again, by adding their rows with their original weights.

        Parameters
        ----------
        mask : (M, N) bool array
            True at the pixels to show.
        exposure, method
            As for `hide`.
        """
        self._reweight(exposure, mask, True, method)

    def add_exposure(
        self,
        psf: Any = None,
        *,
        origin: tuple[int, int] | None = None,
        mask: Any = None,
        weights: Any = None,
        method: str = "auto",
    ) -> int:
        """Add another exposure of the same scene, by adding its rows.

        Parameters
        ----------
        psf : (m, n) array, optional
            The PSF of the new exposure; by default the PSF of the first one. With boundary ``"unknown"`` it must have
            the size of the first one, since both exposures see the same scene.
        origin, mask, weights
            As for the first exposure.
        method : {"auto", "update", "refactor"}
            As for `hide`; "auto" updates R.

        Returns
        -------
        int
            The new number of exposures, which is the number of images that `__call__` takes.

        Raises
        ------
        ValueError
            If the new exposure would see another scene than the first one.
        """
        check_choice(method, METHODS, "method")
        first = blur = self._exposures[0].blur
        if psf is not None or origin is not None:
            blur = Blur(first.psf if psf is None else psf, first.image_shape, self.boundary, origin=origin)
        if blur.scene_shape != first.scene_shape or blur.crop != first.crop:
            raise ValueError(
                f"with boundary {self.boundary!r} a {blur.psf.shape} PSF sees another scene than the first exposure's "
                f"{first.psf.shape} one: pad both PSFs with zeros to one size and origin"
            )
        new = self._exposure(blur, mask, weights)
        exposures, rows = (*self._exposures, new), new.rows(self.dtype)
        r = self._factored(exposures) if method == "refactor" else self._r.with_rows(rows)
        self._exposures, self._r, self.note = exposures, r, ""
        return len(exposures)

    def _reweight(self, number: int, mask: Any, back: bool, method: str) -> None:
        """Hide the pixels of a mask, or show them if `back`."""
        exposures = self._exposures
        hidden = asnumpy(check_mask(mask, exposures[0].blur.image_shape))
        if check_count(number, "exposure", -len(exposures)) >= len(exposures):
            raise ValueError(f"there is no exposure {number}: there are {len(exposures)}, counted from 0")
        check_choice(method, METHODS, "method")
        at = range(len(exposures))[number]
        old = exposures[at]
        new = replace(old, weights=np.where(hidden, old.given if back else 0, old.weights))
        changed = new.weights != old.weights
        exposures = (*exposures[:at], new, *exposures[at + 1 :])
        if not any(e.weights.any() for e in exposures):
            raise ValueError("no pixel of any exposure would be left, and the scene would be undetermined")
        count, note, r = int(changed.sum()), "", None
        if count == 0:
            return
        if method == "auto":
            # An update by p rows takes 4 p N B operations, and 2 N B for each of 64 rows of R. A new R takes 4 N B² for
            # the N rows of each exposure, in larger products that run twice as fast (benchmarks/bench_qr_update.py).
            method = "update" if (4.0 * count + 2 * 64) < 2.0 * self._r.bandwidth * len(exposures) else "refactor"
        if method == "update":
            # The rows with their old weights to remove, or with their new weights to add.
            rows = (new if back else old).rows(self.dtype)[np.flatnonzero(changed)]
            try:
                r = self._r.with_rows(rows) if back else self._r.without_rows(rows)
            except np.linalg.LinAlgError as error:
                note = f"R was computed again: {error}"
        self._exposures, self._r, self.note = exposures, r or self._factored(exposures), note

    # -- restoring ----------------------------------------------------------------------------

    def __call__(self, *images: Any) -> np.ndarray:
        """Return the restored scene, cropped to the size of the images.

        Parameters
        ----------
        *images : (M, N) arrays
            One image for each exposure, in order. Values of hidden pixels have no effect; they may be NaN or masked.

        Returns
        -------
        (M, N) array
            In the dtype of the computation.

        Raises
        ------
        ValueError
            If the number of images is not that of exposures, a shape is wrong, or a visible pixel is not finite.
        TypeError
            For CuPy arrays.
        ConvergenceError
            If λ is too small to solve the normal equations in this dtype. The error carries the last scene.
        """
        data = self._data(images)
        scene, residual = self._solve(self._r, data)
        note = ""
        enough = float(np.finfo(self.dtype).eps) ** (2 / 3)
        if not residual <= enough:
            r = self._factored(self._exposures)
            again, once_more = self._solve(r, data)
            if once_more < residual:  # the updates had made R inaccurate
                self._r, scene, residual = r, again, once_more
                note = "R was computed again, since updates had made it inaccurate"
        self.residual, self.note = residual, note
        if not residual <= np.finfo(self.dtype).eps ** (1 / 3):
            raise ConvergenceError(
                f"refinement stops at a relative residual of {residual:.1e}: take a larger λ than {self.lam:g}"
                + ("" if self.dtype == np.float64 else ", or dtype=numpy.float64"),
                scene,
            )
        return scene[self._exposures[0].blur.crop].copy()

    def _data(self, images: tuple[Any, ...]) -> list[np.ndarray]:
        exposures = self._exposures
        if len(images) != len(exposures):
            raise ValueError(f"{len(exposures)} image(s) are needed, one per exposure, not {len(images)}")
        data = []
        for number, (image, exposure) in enumerate(zip(images, exposures, strict=True)):
            if is_cupy(image):
                raise TypeError("QRDeblurrer works on NumPy arrays: pass cupy.asnumpy(image)")
            masked = hidden(image)
            levels = as_float(unwrapped(image if masked is None else np.asarray(image), f"image {number}"))
            g = np.where(True if masked is None else ~masked, levels, np.nan).astype(self.dtype)
            if g.shape != exposure.weights.shape:
                raise ValueError(f"image {number} must have shape {exposure.weights.shape}, not {g.shape}")
            g = np.where(exposure.weights > 0, g, 0)
            check_finite(g, f"image {number}, at pixels that are not hidden,")
            data.append(g)
        return data

    def _solve(self, r: BandTriangle, data: list[np.ndarray]) -> tuple[np.ndarray, float]:
        """Return the scene, and ‖HᵀW(g − Hf) − λf‖ / ‖HᵀWg‖ measured with the blurs alone."""
        shape = self._exposures[0].blur.scene_shape

        def gradient(f: np.ndarray) -> np.ndarray:
            total = -self.dtype.type(self.lam) * f
            for g, e in zip(data, self._exposures, strict=True):
                total += e.blur.adjoint(e.weights.astype(self.dtype) * (g - e.blur.forward(f)))
            return total

        f = np.zeros(shape, self.dtype)
        right = gradient(f)
        scale = float(np.linalg.norm(right))
        best, left = f, right
        for _ in range(4):  # a solution and at most three refinements
            f = best + r.solve(left.reshape(-1)).reshape(shape)
            rest = gradient(f)
            fall = np.linalg.norm(rest) / max(np.linalg.norm(left), np.finfo(self.dtype).tiny)
            if fall < 1:
                best, left = f, rest
            if not fall < 0.5:
                break
        return best, float(np.linalg.norm(left)) / scale if scale else 0.0

    # -- parts --------------------------------------------------------------------------------

    def _factored(self, exposures: tuple[_Exposure, ...]) -> BandTriangle:
        rows = scipy.sparse.vstack([e.rows(self.dtype) for e in exposures], format="csr")
        return BandTriangle(np.full(rows.shape[1], np.sqrt(self.lam), self.dtype)).with_rows(rows)

    def _exposure(self, blur: Blur, mask: Any, weights: Any) -> _Exposure:
        shape = blur.image_shape
        given = np.ones(shape) if weights is None else asnumpy(check_weights(weights, shape)).astype(np.float64)
        hidden = False if mask is None else asnumpy(check_mask(mask, shape))
        return _Exposure(blur, given, np.where(hidden, 0, given))


@dataclass(frozen=True)
class _Exposure:
    """One exposure: its blur, the given weights, and the current weights (zero at hidden pixels)."""

    blur: Blur
    given: np.ndarray
    weights: np.ndarray

    def rows(self, dtype: np.dtype) -> Any:
        """Return W^½ H as a sparse matrix."""
        root = scipy.sparse.diags_array(np.sqrt(self.weights).reshape(-1))
        return scipy.sparse.csr_array(root @ self.blur.to_sparse()).astype(dtype)


def _band(blur: Blur) -> int:
    """Return the approximate number of superdiagonals of R."""
    if blur.boundary.wraps:
        return blur.shape[1]
    reach = int(np.ravel_multi_index([m - 1 for m in blur.psf.shape], blur.scene_shape)) + 1
    # If a pixel beyond the edge is a combination of several pixels, rows of H reach twice as far.
    return min(blur.shape[1], reach * (2 if blur.boundary.weight > 1 else 1))

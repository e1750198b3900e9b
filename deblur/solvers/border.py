"""The border of an image, on which method pcg iterates: its pixels, products with A = HHᵀ + λI, and G = (A M) there.

`Border` serves images of two axes. The border of a volume is too large a part of it to have its own unknowns.

`Border` works on arrays of NumPy or CuPy. `deblur.solvers.border_gpu.BorderGPU` replaces its data movement by our own
kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy

from ..device import Array, Device
from ..norms import combined
from ..operators.blur import Blur

#: A patch at a corner: its indices in a border vector, the indices that it replaces, and their rows of its inverse.
Patch = tuple[np.ndarray, np.ndarray, Array]


def depth_of(blur: Blur) -> tuple[int, ...]:
    """Return the depth, along each axis, to which the rows of HHᵀ differ from those of the circulant, in pixels."""
    return tuple(map(blur.boundary.depth, blur.psf.shape, blur.origin))


def torus_of(blur: Blur) -> tuple[int, ...]:
    """Return the shape of the torus: image, a gap against wrap-around, and room that decouples opposite edges."""
    return tuple(
        scipy.fft.next_fast_len(n + e + 2 * m, real=True) if e else n
        for n, m, e in zip(blur.image_shape, blur.psf.shape, depth_of(blur), strict=True)
    )


def normal_product(blur: Blur, z: Array) -> Array:
    """Return HHᵀ z for images z."""
    if blur.boundary.open:  # the scene is not cut off: one product on the torus
        device = Device.of(z)
        return blur.torus(device).filter(z, _normal_symbol(blur, z.dtype, device))
    return blur.forward(blur.adjoint(z))


def _normal_symbol(blur: Blur, dtype: np.dtype, device: Device) -> Array:
    """Return |ĥ|² on the blur's torus, cached."""

    def build() -> Array:
        if device.gpu is not None:  # a kernel adds it up, which costs less than to compile the array operations
            return blur.torus(device).power(blur.psf).astype(dtype)
        h = blur.transfer(dtype, device)
        return h.real**2 + h.imag**2

    return blur.cached(("normal", dtype, device), build)


class Border:
    """The border of images, as deep as A differs from a circulant. Border vectors are (k, size), row by row.

    Attributes
    ----------
    depth : (int, int)
        Depth of the edges along each axis, in pixels.
    banded : bool
        Whether opposite edges are far enough apart for bands; otherwise products with A take whole images.
    ends : list of (int, int)
        Along each axis, the end of the first edge and the start of the last one.
    bands : dict of Blur
        The blur of images twice as deep as the edge, for each axis that has an edge.
    """

    def __init__(self, blur: Blur, lam: float, device: Device) -> None:
        self.blur, self.lam, self.device = blur, lam, device
        self.shape = blur.image_shape
        self.depth = depth_of(blur)
        self.banded = all(n >= 4 * e for n, e in zip(self.shape, self.depth, strict=True))
        self.ends = [(min(e, n), max(n - e, min(e, n))) for n, e in zip(self.shape, self.depth, strict=True)]
        (top, bottom), (left, right) = self.ends
        rows, cols = self.shape
        self.size = rows * cols - (bottom - top) * (right - left)
        self.bands, self._by_width = {}, dict[int, Array]()
        if self.banded:
            for axis, shape in enumerate(((2 * self.depth[0], cols), (rows, 2 * self.depth[1]))):
                if self.depth[axis]:
                    self.bands[axis] = Blur(blur.psf, shape, blur.boundary, origin=blur.origin)

    @cached_property
    def _edges(self) -> list[np.ndarray]:
        """Indices of the edges' pixels along each axis."""
        return [np.r_[:a, b:n] for (a, b), n in zip(self.ends, self.shape, strict=True)]

    @cached_property
    def _flat(self) -> np.ndarray:
        """Flat indices of the border's pixels, increasing."""
        (rows, cols), (top, bottom) = self.shape, self.ends[0]
        middle = np.arange(top, bottom)[:, None] * cols + self._edges[1]
        return np.r_[: top * cols, middle.ravel(), bottom * cols : rows * cols]

    def position(self, row: np.ndarray, col: np.ndarray) -> np.ndarray:
        """Return the indices in a border vector of border pixels (row, col)."""
        return np.searchsorted(self._flat, row * self.shape[1] + col)

    @cached_property
    def _places(self) -> list[Array]:
        """Indices in a border vector of the pixels of the two edges along each axis, (2 depth, length)."""
        (rows, cols), (high, wide) = map(np.arange, self.shape), self._edges
        places = self.position(high[:, None], cols), self.position(rows, wide[:, None])
        return [self.device.xp.asarray(at) for at in places]

    def _in_images(self, width: int) -> Array:
        """Return the flat indices of the border's pixels in images with rows of `width` pixels."""
        if width not in self._by_width:
            row, col = divmod(self._flat, self.shape[1])
            self._by_width[width] = self.device.xp.asarray(row * width + col)
        return self._by_width[width]

    @cached_property
    def _shares(self) -> Array:
        """One over the number of bands that contain each pixel of the border."""
        count = self.device.xp.zeros(self.size, np.float32)
        for axis in self.bands:
            count[self._places[axis]] += 1
        return 1 / count

    # -- data movement ---------------------------------------------------------------------------------

    def take(self, x: Array) -> Array:
        """Return the border of images: (k, M, N) to (k, size)."""
        return x.reshape(x.shape[0], -1)[:, self._in_images(self.shape[1])]

    def put(self, s: Array, out: Array) -> Array:
        """Write border vectors (k, size) into contiguous images (k, M or more, N or more), and return them."""
        out.reshape(len(out), -1)[:, self._in_images(out.shape[2])] = s
        return out

    def cut(self, z: Array, axis: int) -> Array:
        """Return the first and last rows or columns of images (k, M, N), twice as deep as the edge: 2 k images."""
        deep = 2 * self.depth[axis]
        first, last = (z[:, :deep], z[:, -deep:]) if axis == 0 else (z[..., :deep], z[..., -deep:])
        return self.device.xp.concatenate([first, last])

    def join(self, z: Array, products: dict[int, Array]) -> Array:
        """Return A z on the border from HHᵀ of the bands of `cut`; their inner halves are spoiled by the cut."""
        xp, k = self.device.xp, len(z)
        out = xp.empty((k, self.size), z.dtype)
        for axis, az in products.items():
            e, az = self.depth[axis], az if axis == 0 else az.swapaxes(1, 2)
            out[:, self._places[axis]] = xp.concatenate([az[:k, :e], az[k:, e:]], axis=1)
        return combined(out, self.take(z), b=self.lam)

    def lay(self, s: Array, axis: int, length: int) -> Array:
        """Return the two edges along an axis as bands (k, 2 depth, N), which may be padded with zeros to `length`."""
        return s.take(self._places[axis], axis=1)

    def unlay(self, bands: dict[int, Array]) -> Array:
        """Return border vectors from bands (k, 2 depth, N or more): the mean where two bands overlap."""
        xp = self.device.xp
        [first, *_] = bands.values()
        out = xp.zeros((len(first), self.size), first.dtype)
        for axis, band in bands.items():
            out[:, self._places[axis]] += band[..., : self.shape[1 - axis]]
        out *= self._shares.astype(first.dtype, copy=False)
        return out

    # -- G, by bands and patches -------------------------------------------------------------------------

    def product(self, z: Array) -> Array:
        """Return A z on the border, for images z (k, M, N)."""
        if self.banded:
            products = {axis: normal_product(band, self.cut(z, axis)) for axis, band in self.bands.items()}
            return self.join(z, products)
        return self.take(combined(normal_product(self.blur, z), z, b=self.lam))

    def band_inverse(self, axis: int, symbol: Array, dtype: np.dtype) -> Array:
        """Return the inverse of G on the two edges along an axis, at each frequency: (frequencies, 2 e, 2 e).

        At each frequency, G is the product of the edges' rows of A (a one-dimensional blur with that frequency's taps)
        and M (a Toeplitz matrix with that frequency's kernel).

        Parameters
        ----------
        axis : int
        symbol : (across, frequencies) array of float64
            Symbol of CCᵀ + λI on the torus, for the circulant blur C; the first axis is across the edge.
        dtype : dtype
            Real dtype.
        """
        return self.device.xp.linalg.inv(self.system(axis, symbol, dtype))

    def system(self, axis: int, symbol: Array, dtype: np.dtype) -> Array:
        """Return the matrices that `band_inverse` inverts, complex, (frequencies, 2 e, 2 e)."""
        blur, e, xp, fft = self.blur, self.depth[axis], self.device.xp, self.device.fft
        psf, origin = (blur.psf, blur.origin[0]) if axis == 0 else (blur.psf.T, blur.origin[1])
        across, along = torus_of(blur) if axis == 0 else torus_of(blur)[::-1]
        n, m = self.shape[axis], psf.shape[0]
        # A one-dimensional blur is linear in its taps: each tap shifts the continued scene by one pixel.
        line = Blur(np.ones((m, 1)), (2 * e, 1), blur.boundary, origin=(origin, 0)).extension(0).toarray()
        taps = np.stack([line[m - 1 - k : m - 1 - k + 2 * e] for k in range(m)])  # (m, 2 e, scene)
        h = xp.tensordot(fft.rfft(xp.asarray(psf), n=along, axis=1).T, xp.asarray(taps), 1)
        a = h @ xp.ascontiguousarray(h.conj().transpose(0, 2, 1))
        del h
        a[:, xp.arange(2 * e), xp.arange(2 * e)] += self.lam
        kernel = xp.ascontiguousarray(fft.ifft(1 / symbol, axis=0).T)  # (frequency, lag)
        rows, sources = np.r_[: 2 * e, n - 2 * e : n], np.r_[:e, n - e : n]
        m_rows = kernel[:, xp.asarray((rows[:, None] - sources) % across)]
        g = xp.concatenate([a[:, :e] @ m_rows[:, : 2 * e], a[:, e:] @ m_rows[:, 2 * e :]], axis=1)
        return g.astype(np.result_type(dtype, np.complex64))

    def solve(self, band: Array, inverse: Array, length: int) -> Array:
        """Multiply a band by the matrices of `band_inverse`, in frequency along its edge padded to `length`."""
        fft = self.device.fft
        spectrum = fft.rfft(band, n=length, axis=2).transpose(2, 1, 0)
        return fft.irfft((inverse @ spectrum).transpose(2, 1, 0), n=length, axis=2)

    def patches(self, patches: Sequence[Patch]) -> Sequence[Patch]:
        """Return patches in the form that `replace` takes."""
        return patches

    def replace(self, out: Array, s: Array, patches: Sequence[Patch]) -> None:
        """Apply the patches to border vectors s, and write the results into their places in `out`."""
        xp = self.device.xp
        for index, own, inverse in patches:
            out[:, xp.asarray(own)] = s.take(xp.asarray(index), axis=1) @ inverse.T

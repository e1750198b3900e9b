"""Method ``pcg``: any PSF, any boundary, a handful of iterations that live on the image's rim.

The system is A z = b with A = HHᵀ + λI: b = g and f = Hᵀz for "tikhonov",
b = Hᵀg and f = z for "hht". H and A are never formed.

*Preconditioner.* Lay the image on a torus a little larger than itself (R
restricts to the image, C is the circulant blur on the torus) and take

    M = R (C Cᵀ + λI)⁻¹ Rᵀ ,

one division in frequency. Away from the edges A and C Cᵀ + λI have the same
rows, so A M x − x vanishes outside a rim as deep as the PSF is long. Hence

    z = M (b + s) ,   G s = −(A M b − b) on the rim ,   G = (A M) on the rim ,

is *exact* with an s that is nonzero on the rim only. The Krylov space of
preconditioned conjugate gradients started from M b consists of such vectors;
here it is built on the rim from the outset. An iteration costs one pair of
FFTs (M s) and the product with A on four bands along the edges, not three
pairs and vectors of the image's size.

*On the rim* the blur along one edge is a convolution along it. If the image
went on periodically in that direction, Fourier transforms along the edge
would split G into one small dense matrix a frequency; those are inverted once
(the two opposite edges together). What this gets wrong, the four corners, is
put right by the inverse of G restricted to a patch at each, where λ is not so
small that a patch is too short-sighted. Bands and patches overlap, and a value
is taken from one of them only (a restricted additive Schwarz preconditioner).
It is not symmetric, so the iteration is GMRES, which minimises the residual
itself, and the residual of G s is that of A z.

The residual b − A z is computed through the blur at the end, and the solve
goes on from there until the image is right (`deblur.solvers.refine`); what is
aimed at is 1e-8 of ‖b‖ in float64 and 1e-6 in float32, and less where a small
λ would let a residual of that size show in f. Failure is reported, never
hidden. Iterations do not grow with the image. They grow as λ falls; with a PSF whose transform has
many zeros (motion, camera shake) and λ below about 1e-6 times the squared sum
of the PSF no iteration is worth it, and `banded` or a dense method is.

An operation of `work` is one multiply-add of an FFT, 2.5 n log2 n a transform;
iterations are estimated from λ.

References
----------
M. Hanke, J. Nagy, "Inverse Toeplitz preconditioners for ill-posed problems",
Linear Algebra Appl. 284 (1998), for M. B. Buzbee, F. Dorr, J. George, G. Golub,
"The direct solution of the discrete Poisson equation on irregular regions",
SIAM J. Numer. Anal. 8 (1971), for reducing a problem with a fast solver to
where it differs. X.-C. Cai, M. Sarkis, "A restricted additive Schwarz
preconditioner for general sparse linear systems", SIAM J. Sci. Comput. 21
(1999). Y. Saad, M. Schultz, "GMRES", SIAM J. Sci. Stat. Comput. 7 (1986).
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import scipy.fft

from ..combined import combined
from ..device import Array, Device, all_cores, get_xp
from ..norms import norms_of
from ..operators.blur import Blur
from ..operators.torus import Torus
from ..problem import Direct, Factor, Problem, Work
from . import pcg_gpu
from .krylov import gmres
from .refine import refined

_RESTART = 300
_BASIS_BYTES = 1 << 30  # what GMRES may keep before it restarts
_MAX_ITERATIONS = 1000
_LAUNCHED = 1 << 23  # pixels up to which a GPU waits for the launches of an iteration
_SPREAD = 0.66  # patches at the corners help below this, hurt above: measured, see `_concentrated`


def refuses(problem: Problem) -> str | None:
    """None if the method serves this problem, else the reason in words."""
    if not problem.lam > 0:
        return "it iterates, and at λ = 0 the iteration need not end; use a λ > 0 or a direct method"
    return None


def work(problem: Problem) -> Work:
    """Transforms of the torus: eight to set up, ten and two an iteration to solve; and the rim's matrices."""
    blur, size = problem.blur, problem.dtype.itemsize
    n1, n2 = _torus(blur)
    transform = 2.5 * n1 * n2 * np.log2(n1 * n2)
    e1, e2 = _depth(blur)
    setup, memory = 8 * transform, (4.0 * 8 + 8 * problem.frames * size) * n1 * n2
    setup += 40 * (n2 * e1**3 + n1 * e2**3)
    memory += 400 * max(n2 * e1**2, n1 * e2**2)  # the matrices of one pair of bands while they are set up
    rim = 2 * (e1 * n2 + e2 * n1)
    memory += min(problem.frames * _RESTART * rim * size, _BASIS_BYTES)
    # Counts at λ = 1e-2 ... 1e-6 for disks and camera shake follow this law; smooth PSFs take fewer.
    amplification = blur.gain**2 / max(problem.lam, 1e-300)
    iterations = min(amplification**0.42, 1e6) if rim else 0
    return Work(setup, (10 + 2 * iterations) * transform, memory)


def prepare(problem: Problem) -> Factor:
    """The preconditioner; a solve then costs two FFTs an iteration."""
    return _Iteration(problem)


# ---------------------------------------------------------------------------------------------
# Geometry
# ---------------------------------------------------------------------------------------------


def _depth(blur: Blur) -> tuple[int, int]:
    """How deep, along each axis, the rows of HHᵀ differ from those of the circulant."""
    rows, cols = map(blur.boundary.depth, blur.psf.shape, blur.origin)
    return rows, cols


def _torus(blur: Blur) -> tuple[int, int]:
    """The torus: the image, a gap so that nothing wraps round, and room that decouples opposite edges."""
    lengths = [
        scipy.fft.next_fast_len(n + e + 2 * m, real=True) if e else n
        for n, m, e in zip(blur.image_shape, blur.psf.shape, _depth(blur), strict=True)
    ]
    return lengths[0], lengths[1]


class _Rim:
    """The rim of the image: where it lies, and the rows of A there.

    A vector on the rim is (k, size).
    """

    def __init__(self, blur: Blur, lam: float, device: Device) -> None:
        self.blur, self.lam, self.device = blur, lam, device
        self.shape = blur.image_shape
        self.depth = _depth(blur)
        #: Images too small to tell their edges apart take no bands: products with A are then whole.
        self.banded = all(n >= 4 * e for n, e in zip(self.shape, self.depth, strict=True))
        #: Along each axis, where the first edge's pixels end and the last one's begin.
        self.ends = [(min(e, n), max(n - e, min(e, n))) for n, e in zip(self.shape, self.depth, strict=True)]
        (top, bottom), (left, right) = self.ends
        rows, cols = self.shape
        self._beside = left + cols - right  # pixels of a row that lies on no edge itself
        self.size = (top + rows - bottom) * cols + (bottom - top) * self._beside
        self._bands = []
        if self.banded:
            for axis, e in enumerate(self.depth):
                if e:
                    shape = (2 * e, self.shape[1]) if axis == 0 else (self.shape[0], 2 * e)
                    band = Blur(blur.psf, shape, blur.boundary, origin=blur.origin)
                    self._bands.append((axis, e, band))
        self.gpu: pcg_gpu.Rim | None = None
        if (
            device.gpu is not None
            and self.banded
            and blur.boundary.open
            and pcg_gpu.serves(self.size, self.shape)
        ):
            self.gpu = pcg_gpu.Rim(self.shape, self.ends, self.size, self._bands, lam, normal_symbol)

    @cached_property
    def _near(self) -> list[Array]:
        """Along each axis, the places of the edges' pixels."""
        xp = self.device.xp
        return [
            xp.concatenate([xp.arange(a), xp.arange(b, n)])
            for (a, b), n in zip(self.ends, self.shape, strict=True)
        ]

    @cached_property
    def _wide(self) -> dict[int, Array]:
        """Flat places of the rim's pixels, by the length of an image's rows."""
        xp, (rows, cols), (top, bottom) = self.device.xp, self.shape, self.ends[0]
        flat = [
            xp.arange(top * cols),
            (xp.arange(top, bottom)[:, None] * cols + self._near[1]).ravel(),
            xp.arange(bottom * cols, rows * cols),
        ]
        return {cols: xp.concatenate(flat)}

    @cached_property
    def rows(self) -> Array:
        """Where in a rim vector the bands along the top and bottom are, (2 e1, N)."""
        return self.position(self._near[0][:, None], self.device.xp.arange(self.shape[1]))

    @cached_property
    def cols(self) -> Array:
        """Where those along left and right are, (M, 2 e2)."""
        return self.position(self.device.xp.arange(self.shape[0])[:, None], self._near[1])

    def position(self, row: Array, col: Array) -> Array:
        """Where in a rim vector, which goes row by row, pixels of the rim are."""
        xp = get_xp(row)
        (top, bottom), (left, right) = self.ends
        cols = self.shape[1]
        beside = top * cols + (row - top) * self._beside + col - xp.where(col >= right, right - left, 0)
        below = top * cols + (bottom - top) * self._beside + (row - bottom) * cols + col
        return xp.where(row < top, row * cols + col, xp.where(row < bottom, beside, below))

    def take(self, x: Array) -> Array:
        """The rim of images: (k, M, N) to (k, size)."""
        if self.gpu is not None:
            return self.gpu.take(x)
        return x.reshape(x.shape[0], -1)[:, self._wide[self.shape[1]]]

    def put(self, s: Array, out: Array) -> Array:
        """Write a rim vector (k, size) into contiguous images (k, M or more, N or more), and return them."""
        if self.gpu is not None:
            return self.gpu.put(s, out)
        cols, width = self.shape[1], out.shape[2]
        if width not in self._wide:
            flat = self._wide[cols]
            self._wide[width] = flat // cols * width + flat % cols
        out.reshape(len(out), -1)[:, self._wide[width]] = s
        return out

    def product(self, z: Array) -> Array:
        """A z on the rim, for images z (k, M, N)."""
        if self.gpu is not None:
            return self.gpu.product(z)
        if not self.banded:
            return self.take(normal_product(self.blur, self.lam, z))
        xp, k = self.device.xp, z.shape[0]
        out = xp.empty((k, self.size), z.dtype)
        for axis, e, band in self._bands:
            # A band is cut out twice as deep as needed: what the cut spoils is its inner half.
            if axis == 0:
                az = normal_product(band, self.lam, xp.concatenate([z[:, : 2 * e], z[:, -2 * e :]]))
                out[:, self.rows] = xp.concatenate([az[:k, :e], az[k:, e:]], axis=1)
            else:
                az = normal_product(band, self.lam, xp.concatenate([z[..., : 2 * e], z[..., -2 * e :]]))
                out[:, self.cols] = xp.concatenate([az[:k, :, :e], az[k:, :, e:]], axis=2)
        return out


def normal_product(blur: Blur, lam: float, z: Array) -> Array:
    """(HHᵀ + λI) z for images z."""
    if blur.boundary.open:  # of the whole scene nothing is cut off: one product on the torus
        device = Device.of(z)
        return combined(blur.torus(device).filter(z, normal_symbol(blur, z.dtype, device)), z, b=lam)
    return combined(blur.forward(blur.adjoint(z)), z, b=lam)


def normal_symbol(blur: Blur, dtype: np.dtype, device: Device) -> Array:
    """|ĥ|² on the blur's torus, kept."""

    def build() -> Array:
        if device.gpu is not None:  # added up directly, which costs less than to compile this
            return blur.torus(device).power(blur.psf).astype(dtype)
        h = blur.transfer(dtype, device)
        return h.real**2 + h.imag**2

    return blur.kept(("normal", dtype, device), build)


# ---------------------------------------------------------------------------------------------
# Preconditioners
# ---------------------------------------------------------------------------------------------


class _Embedding:
    """M = R (C Cᵀ + λI)⁻¹ Rᵀ by one division in frequency."""

    def __init__(self, problem: Problem) -> None:
        blur = problem.blur
        self._shape, self._torus = blur.image_shape, Torus(_torus(blur), problem.device)
        self.lengths = self._torus.lengths
        self.symbol = self._torus.power(blur.psf) + problem.lam  # in float64
        self._inverse = (1 / self.symbol).astype(problem.dtype)

    def __call__(self, x: Array) -> Array:
        return self._torus.filter(x, self._inverse)[..., : self._shape[0], : self._shape[1]]


class _Band:
    """G on two opposite edges, inverted as if the image were periodic along them.

    For each frequency along the edge G is a dense matrix of 2 e x 2 e: the
    edge's own rows of A (a blur of one dimension with the frequency's taps)
    times M (a Toeplitz matrix with the frequency's kernel).
    """

    def __init__(self, rim: _Rim, axis: int, symbol: Array, problem: Problem) -> None:
        along, e = _torus(rim.blur)[1 - axis], rim.depth[axis]
        if rim.gpu is not None:
            g = pcg_gpu.edges(symbol, rim.shape[axis], e, problem.dtype)
        else:
            g = _system(rim, axis, symbol, problem)
        #: For each frequency, (frequencies, 2 e, 2 e).
        self.inverse = problem.xp.linalg.inv(g)
        self.axis, self.along, self._length = axis, along, rim.shape[1 - axis]
        self._device = problem.device

    def __call__(self, x: Array) -> Array:
        """Bands (k, 2 e1, N) or (k, M, 2 e2) to bands of the same shape."""
        if self.axis == 1:
            x = x.swapaxes(1, 2)
        spectrum = self._device.fft.rfft(x, n=self.along, axis=2).transpose(2, 1, 0)
        out = (self.inverse @ spectrum).transpose(2, 1, 0)
        x = self._device.fft.irfft(out, n=self.along, axis=2)[..., : self._length]
        return x if self.axis == 0 else x.swapaxes(1, 2)


def _system(rim: _Rim, axis: int, symbol: Array, problem: Problem) -> Array:
    """G on two opposite edges for each frequency along them, (frequencies, 2 e, 2 e)."""
    blur, e, xp, fft = rim.blur, rim.depth[axis], problem.xp, problem.device.fft
    psf, origin = (blur.psf, blur.origin[0]) if axis == 0 else (blur.psf.T, blur.origin[1])
    across, along = _torus(blur) if axis == 0 else _torus(blur)[::-1]
    n, m = rim.shape[axis], psf.shape[0]
    # The blur of one dimension is linear in its taps: each moves what continues the scene by one place.
    line = Blur(np.ones((m, 1)), (2 * e, 1), blur.boundary, origin=(origin, 0)).extension(0).toarray()
    taps = np.stack([line[m - 1 - k : m - 1 - k + 2 * e] for k in range(m)])  # (m, 2 e, scene)
    h = xp.tensordot(fft.rfft(xp.asarray(psf), n=along, axis=1).T, xp.asarray(taps), 1)
    a = h @ xp.ascontiguousarray(h.conj().transpose(0, 2, 1))
    a[:, xp.arange(2 * e), xp.arange(2 * e)] += problem.lam
    kernel = xp.ascontiguousarray(fft.ifft(1 / symbol, axis=0).T)  # (frequency, lag)
    rows, sources = np.r_[: 2 * e, n - 2 * e : n], np.r_[:e, n - e : n]
    m_rows = kernel[:, xp.asarray((rows[:, None] - sources) % across)]
    g = xp.concatenate([a[:, :e] @ m_rows[:, : 2 * e], a[:, e:] @ m_rows[:, 2 * e :]], axis=1)
    return g.astype(np.result_type(problem.dtype, np.complex64))


def _concentrated(kernel: Array, psf: np.ndarray) -> bool:
    """Whether M's kernel is so concentrated that a patch of the PSF's size sees most of it.

    A patch cuts the kernel off where it ends; if most of the kernel lies farther out, as it does for
    small λ, the patch is a worse guess than the band.
    """
    y, x = (m // 2 for m in psf.shape)
    rows, cols = ([slice(n + 1), slice(size - n, size)] for n, size in zip((y, x), kernel.shape, strict=True))
    *near, whole = norms_of(*(kernel[r, c] for r in rows for c in cols), kernel)
    return math.hypot(*near) ** 2 > (1 - _SPREAD**2) * whole**2


def _corner_patches(rim: _Rim, kernel: Array, problem: Problem) -> list[tuple[np.ndarray, np.ndarray, Array]]:
    """For a patch of the rim at each corner: its indices, those it answers for, and its rows of G⁻¹ for them."""
    xp, blur = problem.xp, rim.blur
    reach = [e + (m + 3) // 4 for e, m in zip(rim.depth, blur.psf.shape, strict=True)]
    cut = tuple(q + e for q, e in zip(reach, rim.depth, strict=True))
    small = Blur(blur.psf, (cut[0], cut[1]), blur.boundary, origin=blur.origin)
    kernel = kernel.astype(np.float32)
    y, x = np.mgrid[: cut[0], : cut[1]]
    here_y, here_x = xp.asarray(y), xp.asarray(x)
    # A patch answers for what is nearer the corner than to the patch's cut.
    half = [(q + e) / 2 for q, e in zip(reach, rim.depth, strict=True)]
    patches: list[tuple[np.ndarray, np.ndarray, Array]] = []
    inverses: list[Array] = []
    for bottom in (False, True):
        for right in (False, True):
            dy, dx = (cut[0] - 1 - y if bottom else y), (cut[1] - 1 - x if right else x)
            patch = (dy < reach[0]) & (dx < reach[1]) & ((dy < rim.depth[0]) | (dx < rim.depth[1]))
            if bottom and blur.boundary.open:  # A and M are even: it is the opposite corner's, turned
                inverse = inverses[1 - right][::-1, ::-1]
            else:
                at_y, at_x = xp.asarray(y[patch]), xp.asarray(x[patch])
                shifted = kernel[here_y - at_y[:, None, None], here_x - at_x[:, None, None]]
                columns = normal_product(small, problem.lam, shifted).reshape(len(at_y), -1)
                # float32 will do: patches serve where G is tame. They are applied in the problem's dtype,
                # because GMRES relies on a preconditioner that is linear to rounding.
                square = columns.take(xp.asarray(np.flatnonzero(patch)), axis=1)
                inverse = xp.linalg.inv(square.T).astype(problem.dtype)
            inverses.append(inverse)
            top, left = (rim.shape[i] - cut[i] if far else 0 for i, far in enumerate((bottom, right)))
            index = rim.position(y[patch] + top, x[patch] + left)
            own = np.flatnonzero((dy[patch] < half[0]) & (dx[patch] < half[1]))
            rows = inverse.take(xp.asarray(own), axis=0)
            patches.append((index, index[own], rows))
    return patches


class _Schwarz:
    """The preconditioner of G: bands along the edges, patches at the corners, which overrule them."""

    def __init__(self, rim: _Rim, embedding: _Embedding, problem: Problem) -> None:
        self._rim = rim
        self._bands: list[tuple[Array, _Band]] = []
        self._patches: list[tuple[np.ndarray, np.ndarray, Array]] = []
        self._gpu: pcg_gpu.Schwarz | None = None
        if not rim.banded:
            return
        xp, psf = problem.xp, rim.blur.psf
        lengths = embedding.lengths
        if all(rim.depth):
            room = all(n >= 2 * (2 * e + m) for n, e, m in zip(rim.shape, rim.depth, psf.shape, strict=True))
            kernel = problem.device.fft.irfft2(1 / embedding.symbol, s=lengths)
            if room and _concentrated(kernel, psf):
                self._patches = _corner_patches(rim, kernel, problem)
        bands = []
        if rim.depth[0]:
            bands.append(_Band(rim, 0, embedding.symbol, problem))
        if rim.depth[1]:
            symbol = Torus(lengths[::-1], problem.device).power(psf.T) + problem.lam
            bands.append(_Band(rim, 1, symbol, problem))
        if rim.gpu is not None and bands:
            inverses = [(b.axis, b.along, xp.ascontiguousarray(b.inverse.transpose(1, 2, 0))) for b in bands]
            self._gpu = pcg_gpu.Schwarz(rim.gpu, inverses, self._patches)
            return
        self._bands = [(rim.cols if band.axis else rim.rows, band) for band in bands]
        # What each pixel takes from the bands' values, one after the other, and with what share: half of each where two
        # bands overlap; and which of them the patches overrule.
        met = xp.zeros(rim.size, problem.dtype)
        for index, _ in self._bands:
            met[index] += 1
        self._from, self._share, at = [], [], 0
        for index, _ in self._bands:
            where, share = xp.zeros(rim.size, np.int64), xp.zeros(rim.size, problem.dtype)
            where[index] = at + xp.arange(index.size).reshape(index.shape)
            share[index] = 1 / met[index]
            self._from.append(where)
            self._share.append(share)
            at += index.size

    def __call__(self, s: Array) -> Array:
        if self._gpu is not None:
            return self._gpu(s)
        if not self._bands:
            return s
        xp = self._rim.device.xp
        values = xp.concatenate(
            [band(s.take(index, axis=1)).reshape(len(s), -1) for index, band in self._bands], axis=1
        )
        out = values.take(self._from[0], axis=1) * self._share[0]
        for index, share in zip(self._from[1:], self._share[1:], strict=True):
            out += values.take(index, axis=1) * share
        for index, own, inverse in self._patches:
            out[:, xp.asarray(own)] = s.take(xp.asarray(index), axis=1) @ inverse.T
        return out


# ---------------------------------------------------------------------------------------------
# The iteration
# ---------------------------------------------------------------------------------------------


def _aim(problem: Problem) -> float:
    """The relative residual aimed at: unless the caller says otherwise, the image is right to about ten times 1e-8.

    See `deblur.solvers.refine` for what λ amplifies.
    """
    if problem.stop.rtol is not None:
        return problem.stop.rtol
    enough = 1e-8 if problem.dtype == np.float64 else 1e-6
    relative = problem.lam / problem.blur.gain**2
    amplification = 1 / relative if problem.formula == "hht" else 0.5 / relative**0.5
    return min(enough, max(10 * enough / amplification, 200 * float(np.finfo(problem.dtype).eps)))


class _Iteration(Direct):
    """The prepared iteration."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        with all_cores():
            self._m = _Embedding(problem)
            self._rim = _Rim(problem.blur, problem.lam, problem.device)
            self._schwarz = _Schwarz(self._rim, self._m, problem)
        self._aim = _aim(problem)
        most = problem.stop.max_iterations
        self._limit = _MAX_ITERATIONS if most is None else most

    @all_cores()
    def scenes(self, g: Array) -> tuple[Array, int, bool, str]:
        rtol = self._problem.stop.rtol
        return refined(self._problem, g, self._correction, aim=self._aim, rtol=rtol, limit=self._limit)

    def _correction(self, r: Array, scale: np.ndarray, target: float, done: int) -> tuple[Array, int, bool]:
        """z with A z = r to half the target or to the next restart, the iterations it took, whether it got there."""
        rim, m = self._rim, self._m
        z = m(r)
        if rim.size == 0:
            return z, 1, True
        c = rim.take(r) - rim.product(z)
        # One array on the torus, zero off the rim, for all products: nothing is padded or cleared again.
        torus = rim.device.xp.zeros((len(r), *m.lengths), r.dtype)
        left = np.inf

        def g_times(s: Array) -> Array:
            return rim.product(m(rim.put(s, torus)))

        def finished(iteration: int, norms: np.ndarray) -> bool:
            nonlocal left
            left = float((norms / scale).max())
            self._problem.stop.report(done + iteration, left)
            return left <= 0.5 * target

        room = _BASIS_BYTES // (c.nbytes + 1)
        limit = max(1, min(_RESTART, max(room, 20), self._limit - done))
        capture = rim.gpu is not None and torus.size <= _LAUNCHED
        s, iterations = gmres(g_times, self._schwarz, c, finished, limit, capture)
        z += m(rim.put(s, torus))
        return z, iterations, left <= 0.5 * target

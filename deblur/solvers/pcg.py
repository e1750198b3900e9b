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

The residual ‖b − A z‖/‖b‖ is computed through the blur at the end, and the
solve goes on from there if it is not what was asked for. The default is 1e-8
in float64 and 1e-6 in float32, and more where a small λ would let a residual
of that size show in f. Failure is reported, never hidden. Iterations do
not grow with the image. They grow as λ falls; with a PSF whose transform has
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

from collections.abc import Callable
from types import ModuleType

import numpy as np
import scipy.fft
import scipy.linalg

from ..backend import Array, asnumpy, get_fft, get_xp
from ..blur import Blur
from .base import Factor, Info, Problem, Work, backward_error
from .spectrum import all_cores

_RESTART = 300
_BASIS_BYTES = 1 << 30  # what GMRES may keep before it restarts
_MAX_ITERATIONS = 1000
_SPREAD = 0.66  # patches at the corners help below this, hurt above: measured, see `_concentrated`


def refuses(problem: Problem) -> str | None:
    """None if the method serves this problem, else the reason in words."""
    if problem.formula == "hht" and problem.blur.boundary == "unknown":
        return 'formula "hht" needs a square H, and boundary "unknown" makes it wide'
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
    if blur.boundary == "periodic":
        return 0, 0
    depth = []
    for m, o in zip(blur.psf.shape, blur.origin, strict=True):
        reflected = 2 * max(o, m - 1 - o) + 1 if blur.boundary in ("reflect", "antireflect") else 0
        depth.append(max(m - 1, reflected) if m > 1 else 0)
    return depth[0], depth[1]


def _torus(blur: Blur) -> tuple[int, int]:
    """The torus: the image, a gap so that nothing wraps round, and room that decouples opposite edges."""
    lengths = [
        scipy.fft.next_fast_len(n + e + 2 * m, real=True) if e else n
        for n, m, e in zip(blur.image_shape, blur.psf.shape, _depth(blur), strict=True)
    ]
    return lengths[0], lengths[1]


class _Rim:
    """The rim of the image: where it lies, and the rows of A there.

    A vector on the rim is (k, size); `rows` and `cols` say where in it the
    bands along the top and bottom, (2 e1, N), and left and right, (M, 2 e2), are.
    """

    def __init__(self, blur: Blur, lam: float, xp: ModuleType) -> None:
        self.blur, self.lam, self.xp = blur, lam, xp
        self.shape = blur.image_shape
        self.depth = _depth(blur)
        #: Images too small to tell their edges apart take no bands: products with A are then whole.
        self.banded = all(n >= 4 * e for n, e in zip(self.shape, self.depth, strict=True))
        inside = np.zeros(self.shape, dtype=bool)
        near = [
            np.r_[: min(e, n), max(n - e, min(e, n)) : n] for n, e in zip(self.shape, self.depth, strict=True)
        ]
        inside[near[0]] = True
        inside[:, near[1]] = True
        flat = np.flatnonzero(inside)
        self.size = len(flat)
        #: Position in a rim vector of each pixel, -1 off the rim.
        self.position = np.full(self.shape, -1)
        self.position.reshape(-1)[flat] = np.arange(self.size)
        self._flat = xp.asarray(flat)
        self._rows, self._cols = (xp.asarray(i) for i in np.divmod(flat, self.shape[1]))
        self.rows = xp.asarray(self.position[near[0]])
        self.cols = xp.asarray(self.position[:, near[1]])
        self._bands = []
        if self.banded:
            for axis, e in enumerate(self.depth):
                if e:
                    shape = (2 * e, self.shape[1]) if axis == 0 else (self.shape[0], 2 * e)
                    band = Blur(blur.psf, shape, blur.boundary, origin=blur.origin)
                    self._bands.append((axis, e, band))

    def take(self, x: Array) -> Array:
        """The rim of images: (k, M, N) to (k, size)."""
        return x.reshape(x.shape[0], -1)[:, self._flat]

    def put(self, s: Array, out: Array) -> Array:
        """Write a rim vector (k, size) into images (k, M or more, N or more), and return them."""
        out[:, self._rows, self._cols] = s
        return out

    def product(self, z: Array) -> Array:
        """A z on the rim, for images z (k, M, N)."""
        if not self.banded:
            return self.take(normal_product(self.blur, self.lam, z))
        xp, k = self.xp, z.shape[0]
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
    return blur.forward(blur.adjoint(z)) + z.dtype.type(lam) * z


# ---------------------------------------------------------------------------------------------
# Preconditioners
# ---------------------------------------------------------------------------------------------


class _Embedding:
    """M = R (C Cᵀ + λI)⁻¹ Rᵀ by one division in frequency."""

    def __init__(self, problem: Problem) -> None:
        blur = problem.blur
        self._shape, self.lengths = blur.image_shape, _torus(blur)
        self._fft = get_fft(problem.xp)
        self.symbol = _symbol(blur.psf, self.lengths, problem.lam)  # on the host, in float64
        self._inverse = problem.xp.asarray((1 / self.symbol).astype(problem.dtype))

    def __call__(self, x: Array) -> Array:
        spectrum = self._fft.rfft2(x, s=self.lengths)
        spectrum *= self._inverse
        return self._fft.irfft2(spectrum, s=self.lengths)[..., : self._shape[0], : self._shape[1]]


def _symbol(psf: np.ndarray, lengths: tuple[int, int], lam: float) -> np.ndarray:
    """|c|² + λ on half of the torus's frequencies."""
    c = scipy.fft.rfft2(psf, s=lengths)
    return c.real**2 + c.imag**2 + lam


class _Band:
    """G on two opposite edges, inverted as if the image were periodic along them.

    For each frequency along the edge G is a dense matrix of 2 e x 2 e: the
    edge's own rows of A (a blur of one dimension with the frequency's taps)
    times M (a Toeplitz matrix with the frequency's kernel).
    """

    def __init__(self, rim: _Rim, axis: int, symbol: np.ndarray, problem: Problem) -> None:
        blur, e = rim.blur, rim.depth[axis]
        psf, origin = (blur.psf, blur.origin[0]) if axis == 0 else (blur.psf.T, blur.origin[1])
        across, along = _torus(blur) if axis == 0 else _torus(blur)[::-1]
        n, m = rim.shape[axis], psf.shape[0]
        units = np.eye(m)[:, :, None]
        taps = np.stack(
            [Blur(u, (2 * e, 1), blur.boundary, origin=(origin, 0)).to_dense() for u in units]
        )  # (m, 2 e, scene): the blur of one dimension is linear in its taps
        h = np.tensordot(scipy.fft.rfft(psf, n=along, axis=1).T, taps, 1)
        a = h @ np.ascontiguousarray(h.conj().transpose(0, 2, 1))
        a[:, np.arange(2 * e), np.arange(2 * e)] += problem.lam
        kernel = np.ascontiguousarray(scipy.fft.ifft(1 / symbol, axis=0).T)  # (frequency, lag)
        rows, sources = np.r_[: 2 * e, n - 2 * e : n], np.r_[:e, n - e : n]
        m_rows = kernel[:, (rows[:, None] - sources) % across]
        g = np.concatenate([a[:, :e] @ m_rows[:, : 2 * e], a[:, e:] @ m_rows[:, 2 * e :]], axis=1)
        complex_dtype = np.result_type(problem.dtype, np.complex64)
        self._inverse = problem.xp.linalg.inv(problem.xp.asarray(g.astype(complex_dtype)))
        self._axis, self._along, self._length = axis, along, rim.shape[1 - axis]
        self._fft = get_fft(problem.xp)

    def __call__(self, x: Array) -> Array:
        """Bands (k, 2 e1, N) or (k, M, 2 e2) to bands of the same shape."""
        if self._axis == 1:
            x = x.swapaxes(1, 2)
        spectrum = self._fft.rfft(x, n=self._along, axis=2).transpose(2, 1, 0)
        out = (self._inverse @ spectrum).transpose(2, 1, 0)
        x = self._fft.irfft(out, n=self._along, axis=2)[..., : self._length]
        return x if self._axis == 0 else x.swapaxes(1, 2)


def _concentrated(kernel: np.ndarray, psf: np.ndarray) -> bool:
    """Whether M's kernel is so concentrated that a patch of the PSF's size sees most of it.

    A patch cuts the kernel off where it ends; if most of the kernel lies farther out, as it does for
    small λ, the patch is a worse guess than the band.
    """
    y, x = (m // 2 for m in psf.shape)
    near = kernel[np.ix_(np.r_[-y : y + 1], np.r_[-x : x + 1])]
    return float(np.sum(near**2)) > (1 - _SPREAD**2) * float(np.sum(kernel**2))


def _corner_patches(rim: _Rim, kernel: np.ndarray, problem: Problem) -> list[tuple[Array, Array, Array]]:
    """For a patch of the rim at each corner: its indices, those it answers for, and its rows of G⁻¹ for them."""
    xp, blur = problem.xp, rim.blur
    reach = [e + (m + 3) // 4 for e, m in zip(rim.depth, blur.psf.shape, strict=True)]
    cut = tuple(q + e for q, e in zip(reach, rim.depth, strict=True))
    small = Blur(blur.psf, (cut[0], cut[1]), blur.boundary, origin=blur.origin)
    kernel = xp.asarray(kernel.astype(np.float32))
    y, x = np.mgrid[: cut[0], : cut[1]]
    # A patch answers for what is nearer the corner than to the patch's cut.
    half = [(q + e) / 2 for q, e in zip(reach, rim.depth, strict=True)]
    patches = []
    for bottom in (False, True):
        for right in (False, True):
            dy, dx = (cut[0] - 1 - y if bottom else y), (cut[1] - 1 - x if right else x)
            patch = (dy < reach[0]) & (dx < reach[1]) & ((dy < rim.depth[0]) | (dx < rim.depth[1]))
            at_y, at_x = y[patch], x[patch]
            lag_y, lag_x = y - at_y[:, None, None], x - at_x[:, None, None]
            columns = normal_product(small, problem.lam, kernel[xp.asarray(lag_y), xp.asarray(lag_x)])
            # float32 will do: patches serve where G is tame. They are applied in the problem's dtype,
            # because GMRES relies on a preconditioner that is linear to rounding.
            inverse = xp.linalg.inv(columns[:, xp.asarray(patch)].T).astype(problem.dtype)
            top, left = (rim.shape[i] - cut[i] if far else 0 for i, far in enumerate((bottom, right)))
            index = rim.position[at_y + top, at_x + left]
            own = (dy[patch] < half[0]) & (dx[patch] < half[1])
            patches.append((xp.asarray(index), xp.asarray(index[own]), inverse[xp.asarray(own)]))
    return patches


class _Schwarz:
    """The preconditioner of G: bands along the edges, patches at the corners, which overrule them."""

    def __init__(self, rim: _Rim, embedding: _Embedding, problem: Problem) -> None:
        self._rim = rim
        self._bands: list[tuple[Array, _Band]] = []
        self._patches: list[tuple[Array, Array, Array]] = []
        if not rim.banded:
            return
        xp, psf = problem.xp, rim.blur.psf
        lengths = embedding.lengths
        share = np.ones(rim.size)
        if all(rim.depth):
            ends = [np.r_[:e, n - e : n] for e, n in zip(rim.depth, rim.shape, strict=True)]
            share[rim.position[np.ix_(*ends)]] = 0.5
            room = all(n >= 2 * (2 * e + m) for n, e, m in zip(rim.shape, rim.depth, psf.shape, strict=True))
            kernel = scipy.fft.irfft2(1 / embedding.symbol, s=lengths)
            if room and _concentrated(kernel, psf):
                self._patches = _corner_patches(rim, kernel, problem)
        self._share = xp.asarray(share.astype(problem.dtype))
        if rim.depth[0]:
            self._bands.append((rim.rows, _Band(rim, 0, embedding.symbol, problem)))
        if rim.depth[1]:
            symbol = _symbol(psf.T, lengths[::-1], problem.lam)
            self._bands.append((rim.cols, _Band(rim, 1, symbol, problem)))

    def __call__(self, s: Array) -> Array:
        if not self._bands:
            return s
        out = self._rim.xp.zeros_like(s)
        for index, band in self._bands:
            out[:, index] += self._share[index] * band(s[:, index])
        for index, own, inverse in self._patches:
            out[:, own] = s[:, index] @ inverse.T
        return out


# ---------------------------------------------------------------------------------------------
# The iteration
# ---------------------------------------------------------------------------------------------


class _Iteration:
    """The prepared iteration."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        with all_cores():
            self._m = _Embedding(problem)
            self._rim = _Rim(problem.blur, problem.lam, problem.xp)
            self._schwarz = _Schwarz(self._rim, self._m, problem)
        # What must be reached, and what is aimed at: unless the caller says otherwise, so much that f itself
        # is right to about ten times that. The error of f is at most the residual's norm over 2 √λ for
        # "tikhonov", over λ for "hht" (for a PSF that sums to one).
        self._enough = (
            (1e-8 if problem.dtype == np.float64 else 1e-6) if problem.rtol is None else problem.rtol
        )
        self._rtol = self._enough
        if problem.rtol is None:
            relative = problem.lam / problem.blur.gain**2
            amplification = 1 / relative if problem.formula == "hht" else 0.5 / np.sqrt(relative)
            finest = 200 * float(np.finfo(problem.dtype).eps)
            self._rtol = min(self._enough, max(10 * self._enough / amplification, finest))
        self._limit = _MAX_ITERATIONS if problem.max_iterations is None else problem.max_iterations

    def solve(self, g: Array) -> tuple[Array, Info]:
        """Scenes (k, P, Q) for images (k, M, N)."""
        with all_cores():
            return self._solve(g)

    def _solve(self, g: Array) -> tuple[Array, Info]:
        blur, lam = self._problem.blur, self._problem.lam
        hht = self._problem.formula == "hht"
        b = blur.adjoint(g) if hht else g
        norm = _norms(b.reshape(b.shape[0], -1))
        scale = np.where(norm > 0, norm, 1.0)
        z, r, iterations, reached = 0, b, 0, np.inf
        while True:
            step, used = self._correction(r, scale, iterations)
            z = step + z
            iterations += used
            f = blur.adjoint(z)
            r = b - blur.forward(f)
            r -= b.dtype.type(lam) * z
            before, reached = reached, float((_norms(r.reshape(r.shape[0], -1)) / scale).max())
            if self._problem.callback is not None:
                self._problem.callback(iterations, reached)
            # `not <` so that NaN stops too.
            if reached <= self._rtol or iterations >= self._limit or not reached < 0.5 * before:
                break
        if reached <= self._enough:
            note = f"relative residual {reached:.1e} of (HHᵀ + λI) z"
            return z if hht else f, Info(iterations, True, note)
        if self._problem.rtol is None and iterations < self._limit:
            columns = [v.reshape(len(v), -1).T for v in (z, b)]
            backward = backward_error(self._problem, reached, *columns)
            if backward <= 4 * float(np.finfo(b.dtype).eps):
                note = f"stopped at a backward error of {backward:.1e}, all that {b.dtype} allows"
                return z if hht else f, Info(iterations, True, note)
        why = (
            f"stopped after {iterations} iterations"
            if iterations >= self._limit
            else f"stagnated after {iterations} iterations"
        )
        note = (
            f"{why} at relative residual {reached:.1e} ({self._enough:.1e} was asked for): use a larger λ than "
            f"{lam:g}, method 'kronecker' if the PSF is separable, 'banded' or 'cholesky' for a small image"
            + (", or float64" if b.dtype == np.float32 else "")
        )
        return z if hht else f, Info(iterations, False, note)

    def _correction(self, r: Array, scale: np.ndarray, done: int) -> tuple[Array, int]:
        """z with A z = r to the tolerance or to the next restart, and the iterations it took."""
        rim, m = self._rim, self._m
        z = m(r)
        if rim.size == 0:
            return z, 1
        c = rim.take(r) - rim.product(z)
        # One array on the torus, zero off the rim, for all products: nothing is padded or cleared again.
        torus = rim.xp.zeros((len(r), *m.lengths), r.dtype)

        def g_times(s: Array) -> Array:
            return rim.product(m(rim.put(s, torus)))

        def report(iteration: int, norms: np.ndarray) -> bool:
            relative = float((norms / scale).max())
            if self._problem.callback is not None:
                self._problem.callback(done + iteration, relative)
            return relative <= 0.5 * self._rtol

        room = _BASIS_BYTES // (c.nbytes + 1)
        limit = max(1, min(_RESTART, max(room, 20), self._limit - done))
        s, iterations = _gmres(g_times, self._schwarz, c, report, limit)
        z += m(rim.put(s, torus))
        return z, iterations


def _norms(x: Array) -> np.ndarray:
    """Euclidean norms of the rows, on the host in float64."""
    return np.sqrt(asnumpy((x * x).sum(axis=1, dtype=np.float64)))


def _gmres(
    product: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    c: Array,
    finished: Callable[[int, np.ndarray], bool],
    limit: int,
) -> tuple[Array, int]:
    """GMRES with right preconditioning for a stack of right-hand sides, one Krylov space each.

    Parameters
    ----------
    product, precondition : callable
        (k, n) to (k, n).
    c : (k, n) array
    finished : callable
        Called with (iteration, residual norms (k,)); True ends the iteration.
    limit : int
        Most iterations.

    Returns
    -------
    s : (k, n) array
    iterations : int
    """
    xp = get_xp(c)
    k, n = c.shape
    basis = xp.empty((k, limit + 1, n), c.dtype)
    # The small matrices live on the host in float64: a few numbers an iteration. Givens rotations keep
    # the Hessenberg matrices triangular and rhs[:, j] the norm that is left.
    triangle = np.zeros((k, limit + 1, limit))
    rhs = np.zeros((k, limit + 1))
    rotations: list[tuple[np.ndarray, np.ndarray]] = []
    w, j = c, 0
    norm = rhs[:, 0] = _norms(c)
    while not finished(j, abs(rhs[:, j])) and j < limit:
        # A frame whose space is exhausted (norm 0) goes on with zeros, which change nothing.
        basis[:, j] = w * xp.asarray((1 / np.where(norm > 0, norm, np.inf)).astype(c.dtype))[:, None]
        w = product(precondition(basis[:, j]))
        column = triangle[:, :, j]
        for _ in range(2):  # classical Gram-Schmidt, twice
            v = basis[:, : j + 1]
            h = v @ w[:, :, None]
            w = w - (h.swapaxes(1, 2) @ v)[:, 0]
            column[:, : j + 1] += asnumpy(h[:, :, 0])
        norm = _norms(w)
        column[:, j + 1] = norm
        for i, (cos, sin) in enumerate(rotations):
            upper = cos * column[:, i] + sin * column[:, i + 1]
            column[:, i + 1] = cos * column[:, i + 1] - sin * column[:, i]
            column[:, i] = upper
        length = np.hypot(column[:, j], norm)
        some = np.where(length > 0, length, 1)
        cos, sin = np.where(length > 0, column[:, j] / some, 1.0), norm / some
        rotations.append((cos, sin))
        column[:, j], column[:, j + 1] = some, 0
        rhs[:, j + 1], rhs[:, j] = -sin * rhs[:, j], cos * rhs[:, j]
        j += 1
    if j == 0:
        return xp.zeros_like(c), 0
    y = np.stack(
        [scipy.linalg.solve_triangular(t[:j, :j], r[:j]) for t, r in zip(triangle, rhs, strict=True)]
    )
    return precondition((xp.asarray(y.astype(c.dtype))[:, None] @ basis[:, :j])[:, 0]), j

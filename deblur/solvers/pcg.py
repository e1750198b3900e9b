"""Method ``pcg``: any PSF and boundary; a few iterations, of images on their border alone.

The system is A z = b with A = HHᵀ + λI: b = g and f = Hᵀz for "tikhonov",
b = Hᵀg and f = z for "hht". H and A are never formed.

*Preconditioner.* Lay the image on a torus a little larger than itself (R
restricts to the image, C is the circulant blur on the torus) and take

    M = R (C Cᵀ + λI)⁻¹ Rᵀ ,

one division in frequency. Away from the edges, A and C Cᵀ + λI have the same
rows, so A M x − x vanishes except on a border as deep as the PSF is long. Hence

    z = M (b + s) ,   G s = −(A M b − b) on the border ,   G = (A M) on the border ,

is *exact* with an s that is nonzero on the border only. The Krylov space of
preconditioned conjugate gradients started from M b consists of such vectors;
here it is built on the border. An iteration costs one pair of FFTs (M s) and the
product with A on four bands along the edges, instead of three pairs of FFTs and
vectors of the image's size.

*Lines and volumes* have no bands: the border of a volume is most of it.
Conjugate gradients solve A z = b, at two or three pairs of FFTs an iteration.
Their preconditioner is the inverse of |ĥ|² + λ on ADMM's domain: the torus of the
blur or, if the scene is mirrored, its cosine transform, which needs a third of
the iterations.

*On the border* of images, the blur along an edge is a convolution. If the image
continued periodically in that direction, Fourier transforms along the edge
would split G into one small dense matrix for each frequency. These matrices are inverted once
(for two opposite edges together). The assumption is wrong at the four corners. There, the inverse
of G restricted to a patch replaces the values, unless λ is so small that a patch is
too short-sighted. Patches save a third of the iterations or more. To set up
large patches takes as long as several solves, so they are used for
factors that serve many frames, or large ones. Bands and patches overlap, and each value
is taken from one of them only (a restricted additive Schwarz preconditioner).
It is not symmetric, so the iteration is GMRES, which minimises the residual
itself; the residual of G s equals that of A z.

At the end, the residual b − A z is computed through the blur, and the iteration
continues from there until the image is accurate (`deblur.solvers.refine`). It aims at
1e-8 of ‖b‖ in float64 and at 1e-6 in float32, and at less if a small
λ would amplify such a residual in f. The number of iterations does not grow with the image; it grows as λ falls.
If the transform of the PSF has many zeros (motion, camera shake) and λ is below about 1e-6 times the squared sum
of the PSF, methods `banded` and the dense ones are faster.

References
----------
M. Hanke, J. Nagy, "Inverse Toeplitz preconditioners for ill-posed problems",
Linear Algebra Appl. 284 (1998), on the preconditioner. B. Buzbee, F. Dorr, J. George, G. Golub,
"The direct solution of the discrete Poisson equation on irregular regions",
SIAM J. Numer. Anal. 8 (1971): reduction of a problem to the region where it
differs from one with a fast solver. X.-C. Cai, M. Sarkis, "A restricted additive Schwarz
preconditioner for general sparse linear systems", SIAM J. Sci. Comput. 21
(1999). Y. Saad, M. Schultz, "GMRES", SIAM J. Sci. Stat. Comput. 7 (1986).
"""

from __future__ import annotations

import math

import numpy as np

from ..device import Array, asnumpy
from ..linalg.krylov import cg
from ..norms import combined, norms_of
from ..operators.blur import Blur
from ..operators.torus import Torus, corner
from ..problem import Direct, Factor, Problem
from ..threads import all_cores
from ..vector_ops import image_systems
from .border import Border, Patch, depth_of, normal_product, torus_of
from .border_gpu import BorderGPU
from .domain import domain_of
from .krylov import gmres
from .refine import Correction, refined, singular

_RESTART = 300
_BASIS_BYTES = 1 << 30  # memory of GMRES's basis at which it restarts
_LAUNCHED = 1 << 23  # pixels up to which the launches of an iteration take longer than the GPU's work


def refuses(problem: Problem) -> str | None:
    """Return None if the method serves this problem, else the reason in words."""
    if not problem.lam > 0:
        return "it iterates, and at λ = 0 the iteration need not end; use a λ > 0 or a direct method"
    return None


def memory(problem: Problem) -> tuple[float, ...]:
    """Return the bytes of spectra and the border's inverses, of its matrices, and of an iteration."""
    blur, size, frames, (image, _, torus, *_) = problem.blur, problem.dtype.itemsize, problem.frames, problem.sizes
    if problem.axes != 2:
        folds = blur.boundary.continued
        # The preconditioner; the spectrum of H; for each frame x, r, p and another image, and a product.
        iterating = torus + frames * (4 * image + (2 + folds) * torus) + problem.slices
        return (2 * image if folds else torus / 2), 2 * torus, iterating
    (n1, n2), depth = torus_of(blur), depth_of(blur)
    banded = all(n >= 4 * e for n, e in zip(blur.image_shape, depth, strict=True)) and not blur.boundary.wraps
    first, last = (4.0 * (n // 2 + 1) * e**2 * banded for n, e in zip((n2, n1), depth, strict=True))
    inverses = 2 * size * (first + last)
    # In complex float64 A, M on the edges, which are twice as wide, and G, whole and in halves.
    systems = max(80 * first, 2 * size * first + 80 * last) + 20.0 * n1 * n2
    border = frames * size * sum(2 * e * n for e, n in zip(depth, blur.image_shape[::-1], strict=True))
    # GMRES's basis; for each frame r, z, the scene, and a product on this torus.
    basis = min((min(problem.stop.max_iterations or _RESTART, _RESTART) + 14) * border, _BASIS_BYTES)
    # The four patches at the corners, in the shape of an L.
    reach = [(e + _beyond(m), _beyond(m)) for e, m in zip(depth, blur.psf.shape, strict=True)]
    pixels = (math.prod(whole for whole, _ in reach) - math.prod(beyond for _, beyond in reach)) * banded
    patches = 4.0 * size * pixels**2 * (problem.reuse or pixels**2 <= frames * math.prod(blur.image_shape))
    return inverses + patches + 0.6 * n1 * n2 * size, systems - inverses, basis + 5 * frames * image


def prepare(problem: Problem) -> Factor:
    """Compute the preconditioner; a solve then costs two FFTs an iteration."""
    return _Refined(problem, (_OnBorder if problem.axes == 2 else _Conjugate)(problem).correction)


class _Embedding:
    """The map M = R (C Cᵀ + λI)⁻¹ Rᵀ, one division in frequency on the torus."""

    def __init__(self, problem: Problem) -> None:
        blur = problem.blur
        self._shape, self.torus = blur.image_shape, Torus(torus_of(blur), problem.device)
        self.lengths = self.torus.lengths
        self.symbol = self.torus.power(blur.psf) + problem.lam  # in float64
        self.inverse = (1 / self.symbol).astype(problem.dtype)

    def __call__(self, x: Array) -> Array:
        return corner(self.torus.product(x, self.inverse), self._shape)


def _concentrated(kernel: Array, psf: np.ndarray) -> bool:
    """Return whether M's kernel is concentrated enough for patches: at most a quarter of its energy lies outside.

    A patch of the PSF's size cuts the kernel off. If most of the kernel lies farther out, as for small λ, the patch is
    a worse approximation than the band. For seven PSFs, three boundaries and λ from 1e-5 to 1e-2, patches took 0.4
    times the iterations if at most a third of the kernel's norm lay outside, as many up to a half, 1.3 times as many up
    to two thirds, and more beyond.
    """
    y, x = (m // 2 for m in psf.shape)
    rows, cols = ([slice(n + 1), slice(size - n, size)] for n, size in zip((y, x), kernel.shape, strict=True))
    *near, whole = norms_of(*(kernel[r, c] for r in rows for c in cols), kernel)
    return math.hypot(*near) ** 2 > 0.75 * whole**2


def _beyond(m: int) -> int:
    """Return how far, in pixels, a patch reaches along an edge beyond the border's depth, for a PSF of `m` pixels."""
    return (m + 3) // 4


def _corner_patches(border: Border, kernel: Array, problem: Problem, pixels: int) -> list[Patch]:
    """Return the patch of the border at each corner, with its rows of G⁻¹; see `deblur.solvers.border.Patch`."""
    blur = border.blur
    reach = [e + _beyond(m) for e, m in zip(border.depth, blur.psf.shape, strict=True)]
    cut = tuple(q + e for q, e in zip(reach, border.depth, strict=True))
    small = Blur(blur.psf, (cut[0], cut[1]), blur.boundary, origin=blur.origin)
    # The part of the kernel that a patch sees. It has few numbers, and a few small systems are solved on the host.
    rows, cols = ((slice(n), slice(-n, None)) for n in cut)
    near = [[asnumpy(kernel[r, c]) for c in cols] for r in rows]
    xp = np if pixels <= 256 else problem.xp
    kernel = xp.asarray(np.block(near).astype(np.float32))
    y, x = np.mgrid[: cut[0], : cut[1]]
    here_y, here_x = xp.asarray(y), xp.asarray(x)
    # A patch replaces the pixels that are nearer to the corner than to the patch's cut.
    half = [(q + e) / 2 for q, e in zip(reach, border.depth, strict=True)]
    patches: list[Patch] = []
    inverses: list[Array] = []
    for bottom, right in np.ndindex(2, 2):
        dy, dx = (cut[0] - 1 - y if bottom else y), (cut[1] - 1 - x if right else x)
        patch = (dy < reach[0]) & (dx < reach[1]) & ((dy < border.depth[0]) | (dx < border.depth[1]))
        if bottom and blur.boundary.open:  # A and M are even: the opposite corner's inverse, rotated by 180°
            inverse = inverses[1 - right][::-1, ::-1]
        else:
            at_y, at_x = xp.asarray(y[patch]), xp.asarray(x[patch])
            shifted = kernel[here_y - at_y[:, None, None], here_x - at_x[:, None, None]]
            columns = combined(normal_product(small, shifted), shifted, b=problem.lam)
            # float32 suffices, since patches serve where G is well-conditioned. They are applied in the problem's
            # dtype, because GMRES requires a preconditioner that is linear to rounding.
            square = columns.reshape(len(at_y), -1).take(xp.asarray(np.flatnonzero(patch)), axis=1)
            inverse = xp.linalg.inv(square.T).astype(problem.dtype)
        inverses.append(inverse)
        top, left = (border.shape[i] - cut[i] if far else 0 for i, far in enumerate((bottom, right)))
        index = border.position(y[patch] + top, x[patch] + left)
        own = np.flatnonzero((dy[patch] < half[0]) & (dx[patch] < half[1]))
        rows = problem.xp.asarray(inverse.take(xp.asarray(own), axis=0))
        patches.append((index, index[own], rows))
    return patches


class _Schwarz:
    """The preconditioner of G: bands along the edges, overruled by patches at the corners."""

    def __init__(self, border: Border, embedding: _Embedding, problem: Problem) -> None:
        self._border, self._bands = border, []
        patches: list[Patch] = []
        psf, lengths = border.blur.psf, embedding.lengths
        if len(border.bands) == 2:
            sizes = [*zip(border.shape, border.depth, psf.shape, strict=True)]
            beyond = [_beyond(m) for m in psf.shape]
            # A patch has the shape of an L along the border.
            pixels = math.prod(e + b for e, b in zip(border.depth, beyond, strict=True)) - math.prod(beyond)
            worth = problem.reuse or pixels**2 <= problem.frames * math.prod(border.shape)
            if worth and all(n >= 2 * (2 * e + m) for n, e, m in sizes):
                kernel = embedding.torus.response(embedding.inverse)
                if _concentrated(kernel, psf):
                    patches = _corner_patches(border, kernel, problem, pixels)
        self._patches = border.patches(patches)
        for axis in border.bands:
            symbol = embedding.symbol
            if axis == 1:
                symbol = Torus(lengths[::-1], problem.device).power(psf.T) + problem.lam
            self._bands.append((axis, lengths[1 - axis], border.band_inverse(axis, symbol, problem.dtype)))

    def __call__(self, s: Array) -> Array:
        if not self._bands:
            return s
        border, bands = self._border, {}
        for axis, length, inverse in self._bands:
            bands[axis] = border.solve(border.lay(s, axis, length), inverse, length)
        out = border.unlay(bands)
        border.replace(out, s, self._patches)
        return out


def border_of(problem: Problem) -> Border:
    """Return the border of the problem's images, with kernels if a GPU serves it."""
    border = Border(problem.blur, problem.lam, problem.device)
    countable = border.size > 0 and math.prod(border.shape) < 1 << 31  # the kernels' integers have 32 bits
    if problem.device.gpu is not None and border.banded and problem.blur.boundary.open and countable:
        return BorderGPU(problem.blur, problem.lam, problem.device)
    return border


def _aim(problem: Problem) -> float:
    """Return the relative residual to aim at: by default, one that leaves an error of about 1e-7 in a float64 image.

    In float32 the error is about 1e-5. See `deblur.solvers.refine` for the amplification by λ.
    """
    if problem.early:
        return problem.early
    enough = 1e-8 if problem.dtype == np.float64 else 1e-6
    relative = problem.lam / problem.blur.norm_bound**2
    amplification = 1 / relative if problem.formula == "hht" else 0.5 / relative**0.5
    return min(enough, max(10 * enough / amplification, 200 * float(np.finfo(problem.dtype).eps)))


def _limit(problem: Problem) -> int:
    return problem.stop.max_iterations or 1000


class _Refined(Direct):
    """The prepared iteration, which corrects z until the image is accurate."""

    def __init__(self, problem: Problem, correction: Correction) -> None:
        self._problem, self._correction, self._aim = problem, correction, _aim(problem)

    @all_cores()
    def scenes(self, g: Array) -> tuple[Array, int, bool, str]:
        return refined(self._problem, g, self._correction, aim=self._aim, limit=_limit(self._problem))


class _Conjugate:
    """Conjugate gradients on A z = b, with one system for each image."""

    @all_cores()
    def __init__(self, problem: Problem) -> None:
        self._problem, self._domain = problem, domain_of(problem)
        # Without this the domain would keep spectra that no iteration uses.
        power = None if problem.blur.boundary.continued else self._domain.power_of(problem.blur)
        self._inverse = self._domain.inverse(1.0, problem.lam, power)

    def correction(self, r: Array, scale: np.ndarray, target: float, done: int) -> tuple[Array, int, bool]:
        """Return z with A z = r to half the target, the number of iterations, and whether z got there."""
        problem, steps = self._problem, 0

        def measure(sums: np.ndarray) -> float:
            nonlocal steps
            left = float((np.sqrt(sums[0]) / scale).max())
            if steps:
                problem.stop.report(done + steps, left)
            steps += 1
            return left

        def product(z: Array) -> Array:
            return combined(normal_product(problem.blur, z), z, b=problem.lam)

        def precondition(r: Array) -> Array:
            return self._domain.filter(r, self._inverse)

        b, enough, most = r[:, None], 0.5 * target, _limit(problem) - done
        systems = image_systems(b, measure, True)
        z, iterations, left = cg(product, b, systems, precondition=precondition, rtol=enough, max_iterations=most)
        return z[:, 0], iterations, left <= enough


class _OnBorder:
    """GMRES on the border of images."""

    @all_cores()
    def __init__(self, problem: Problem) -> None:
        self._problem, self._m, self._border = problem, _Embedding(problem), border_of(problem)
        try:
            self._schwarz = _Schwarz(self._border, self._m, problem)
        except np.linalg.LinAlgError as error:
            raise singular(problem, error) from error
        del self._m.symbol  # float64, needed by the set-up only

    def correction(self, r: Array, scale: np.ndarray, target: float, done: int) -> tuple[Array, int, bool]:
        """Return z with A z = r, the number of iterations, and whether the residual is within half the target.

        GMRES stops there, or at the next restart.
        """
        border, m = self._border, self._m
        z = m(r)
        if border.size == 0:
            return z, 1, True
        c = combined(border.take(r), border.product(z), b=-1)
        # One array on the torus, zero off the border, serves all products: nothing is padded or cleared again.
        torus = border.device.xp.zeros((len(r), *m.lengths), r.dtype)
        left = np.inf

        def finished(iteration: int, norms: np.ndarray) -> bool:
            nonlocal left
            left = float((norms / scale).max())
            self._problem.stop.report(done + iteration, left)
            return left <= 0.5 * target

        room = _BASIS_BYTES // (c.nbytes + 1)
        limit = max(1, min(_RESTART, max(room, 20), _limit(self._problem) - done))
        capture = isinstance(border, BorderGPU) and torus.size <= _LAUNCHED
        s, steps = gmres(lambda s: border.product(m(border.put(s, torus))), self._schwarz, c, finished, limit, capture)
        return combined(z, m(border.put(s, torus)), out=z), steps, left <= 0.5 * target

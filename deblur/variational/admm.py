"""ADMM: every term gets a copy of what it looks at, and each step is pixelwise or diagonal in frequency.

The problem is written with one split for each term,

    minimise D(W; v + b, g) + λ Σ_p R_p(u_p) + ι(z)   subject to   v = K x,  u_p = L_p x,  z = x ,

where x lives on a periodic domain around the scene, of lengths that the FFT likes, and K is the periodic blur
there. The frame, the mask and the weights are part of the pixelwise step for v: outside the frame v is free, and
K x in the frame is H f exactly [1]_, [2]_. So nothing is assumed of the scene beyond the frame (boundary "unknown").
For "zero", z is held at 0 there. Differences that would reach out of the scene are free likewise. With a mirrored
boundary ("reflect", "antireflect") x is the scene itself, the transform is the cosine's, and H enters by conjugate
gradients that it preconditions; for "reflect" and a PSF symmetric along both axes it is one division there too.

One iteration, in scaled form with penalties ρ [3]_: x solves the normal equations of all splits; each copy is the
proximal map of what x shows it, over-relaxed, plus its running sum of residuals.

References
----------
.. [1] M. S. C. Almeida, M. A. T. Figueiredo, Deconvolving images with unknown boundaries using the alternating
   direction method of multipliers, IEEE Trans. Image Process. 22 (2013) 3074-3086.
.. [2] A. Matakos, S. Ramani, J. A. Fessler, Accelerated edge-preserving image restoration without boundary
   artifacts, IEEE Trans. Image Process. 22 (2013) 2019-2029.
.. [3] S. Boyd, N. Parikh, E. Chu, B. Peleato, J. Eckstein, Distributed optimization and statistical learning via
   the alternating direction method of multipliers, Found. Trends Mach. Learn. 3 (2011) 1-122.
.. [4] S. V. Venkatakrishnan, C. A. Bouman, B. Wohlberg, Plug-and-play priors for model based reconstruction,
   GlobalSIP 2013, 945-948.
.. [5] K. Zhang, Y. Li, W. Zuo, L. Zhang, L. Van Gool, R. Timofte, Plug-and-play image restoration with deep
   denoiser prior, IEEE Trans. Pattern Anal. Mach. Intell. 44 (2022) 6360-6376.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft

from ..backend import Array, get_fft, get_xp, require_memory
from ..blur import Blur
from ..errors import ConvergenceError
from ..solvers.spectrum import all_cores, quadrant
from .problem import History, Solution, VariationalProblem, first_scene
from .terms import DIFFERENCES, PENALTIES, DataTerm, Difference, Penalty, first_difference_power, inside

RTOL = 2e-3
MAX_ITERATIONS = 500
_RELAXATION = 1.8

# Penalties, in units that make them free of the image's scale. They decide how many iterations it takes, not
# what is found; ``benchmarks/bench_variational_speed.py`` measures both.
_RHO_DATA = 0.1  # over the data term's curvature
_RHO_PRIOR = 2.0  # over λ / (standard deviation of the image)
_RHO_BOX = 0.03
# A small λ is approached from a large one: until λ/scale comes under the first figure nothing is done; then it
# starts at the second and falls by the third every so many iterations.
_SMALL, _FIRST, _FALL, _FALL_EVERY = 1e-3, 1e-2, 4.0, 8
_INNER = 1e-2  # residual of the conjugate gradients inside, over the tolerance
_BALANCE_EVERY, _BALANCE_RATIO, _BALANCE_UNTIL = 10, 10.0, 200

# Plug and play: the denoiser's strength falls from the first to the last in this many iterations; between two
# calls of it the split of the data, which is cheap, takes some steps of its own.
_PNP_FIRST, _PNP_FALL, _PNP_INNER, _PNP_ITERATIONS = 0.5, 16, 4, 40
_PNP_STRENGTH = 2.0  # last strength over √λ
_PNP_SETTLED = 0.05  # largest residual at which the end of the schedule is an end


def refuses(problem: VariationalProblem) -> str | None:
    """None if ADMM serves the problem, else the reason in words."""
    if problem.method == "pnp":
        if problem.denoiser is None:
            return "it needs a denoiser (denoiser=..., a function of an image and the noise's standard deviation)"
        if not problem.lam > 0:
            return "λ sets the denoiser's strength and must be above 0"
    return None


# ---------------------------------------------------------------------------------------------
# The domain: where x lives, and the one step that is not pixelwise
# ---------------------------------------------------------------------------------------------


class _FourierDomain:
    """A periodic domain around the scene, on which K is one product in frequency.

    Attributes
    ----------
    shape : (int, int)
        Its size.
    data_shape : (int, int)
        Size of what K gives: that of the domain.
    scene, frame : (slice, slice)
        Where the scene lies in the domain, and the image in what K gives.
    border : str
        How a block gets its border of one pixel for differences.
    """

    border = adjoint_border = "wrap"

    def __init__(self, problem: VariationalProblem) -> None:
        blur, xp = problem.blur, problem.xp
        self.shape = _fast_shape(blur)
        self.data_shape = self.shape
        self.scene = (slice(0, blur.scene_shape[0]), slice(0, blur.scene_shape[1]))
        self.frame = blur.crop
        self._fft = get_fft(xp)
        padded = np.zeros(self.shape)
        padded[: blur.psf.shape[0], : blur.psf.shape[1]] = blur.psf
        k = scipy.fft.rfft2(np.roll(padded, (-blur.origin[0], -blur.origin[1]), (0, 1)))
        self.k = xp.asarray(k.astype(np.result_type(problem.dtype, np.complex64)))
        self.power = abs(self.k) ** 2
        self.rows = first_difference_power(self.shape[0], True, xp)[:, None]
        self.cols = first_difference_power(self.shape[1], True, xp)[: self.shape[1] // 2 + 1]
        self._dtype = problem.dtype

    def prepare(self, rho_data: float, symbol: Array) -> None:
        """Set the operator ρ KᵀK + (the differences' part, given in frequency)."""
        total = rho_data * self.power + symbol
        floor = np.finfo(self._dtype).eps * float(total.max())
        total = total + (total < floor) * floor  # what nothing determines is left where it is zero
        self._inverse = (1 / total).astype(self._dtype)
        self._data = (self.k.conj() * (rho_data * self._inverse)).astype(self.k.dtype)

    def blurred(self, x: Array) -> Array:
        """K x."""
        return self._fft.irfft2(self._fft.rfft2(x) * self.k, s=self.shape)

    def step(self, t: Array, right: Array, _x: Array, run: _Runner) -> tuple[Array, Array]:
        """(x, K x) for the data split's t and the right-hand side of all others, which it may overwrite."""
        a = self._fft.rfft2(t)
        b = self._fft.rfft2(right, overwrite_x=True)

        def multiply(i: int, rows: slice) -> None:
            first, second = a[i, :, rows], b[i, :, rows]
            first *= self._data[rows]
            second *= self._inverse[rows]
            first += second
            second[...] = first * self.k[rows]

        run(multiply, self.k.shape[0])
        return (
            self._fft.irfft2(a, s=self.shape, overwrite_x=True),
            self._fft.irfft2(b, s=self.shape, overwrite_x=True),
        )


class _CosineDomain:
    """The scene itself, mirrored at its edges: differences are diagonal in the cosine transform.

    For "reflect" and a PSF symmetric along each axis H is diagonal too. Otherwise the step is solved by
    conjugate gradients, preconditioned by the mean of |K|² over the frequencies that the mirror makes one.
    """

    border, adjoint_border = "edge", "constant"
    _STEPS = 30

    def __init__(self, problem: VariationalProblem) -> None:
        blur, xp = problem.blur, problem.xp
        self.shape = self.data_shape = blur.image_shape
        self.scene = self.frame = blur.crop
        self._blur, self._fft, self._xp = blur, get_fft(xp), xp
        big = (2 * self.shape[0], 2 * self.shape[1])
        power = np.abs(scipy.fft.fft2(blur.psf, s=big)) ** 2
        power = 0.5 * (power + np.roll(power[::-1], 1, 0))[: self.shape[0], : self.shape[1]]
        self.power = xp.asarray(power.astype(problem.dtype))
        self.rows = first_difference_power(self.shape[0], False, xp)[:, None]
        self.cols = first_difference_power(self.shape[1], False, xp)
        self._dtype = problem.dtype
        self._diagonal = blur.boundary == "reflect" and quadrant(blur) is not None
        # Errors of the step add to the residuals that the iteration is judged by.
        self._tolerance = _INNER * (RTOL if problem.rtol is None else problem.rtol)

    def prepare(self, rho_data: float, symbol: Array) -> None:
        """Set the operator ρ HᵀH + (the differences' part, given in frequency)."""
        self._rho, self._symbol = rho_data, (symbol + 0 * self.power).astype(self._dtype)
        total = rho_data * self.power + self._symbol
        floor = np.finfo(self._dtype).eps * float(total.max())
        self._inverse = (1 / (total + (total < floor) * floor)).astype(self._dtype)

    def _filter(self, x: Array, by: Array) -> Array:
        return self._fft.idctn(
            self._fft.dctn(x, axes=(-2, -1), norm="ortho") * by, axes=(-2, -1), norm="ortho"
        )

    def _apply(self, x: Array) -> Array:
        return self._rho * self._blur.adjoint(self._blur.forward(x)) + self._filter(x, self._symbol)

    def blurred(self, x: Array) -> Array:
        """H x."""
        return self._blur.forward(x)

    def step(self, t: Array, right: Array, x: Array, _run: _Runner) -> tuple[Array, Array]:
        """(x, H x), begun from the last x."""
        xp = self._xp
        right = right + self._rho * self._blur.adjoint(t)
        if self._diagonal:
            x = self._filter(right, self._inverse)
            return x, self._blur.forward(x)
        x = x.copy()
        r = right - self._apply(x)
        z = self._filter(r, self._inverse)
        p, rz = z.copy(), float(xp.vdot(r, z))
        size = float(xp.vdot(right, right))
        for _ in range(self._STEPS):
            if not float(xp.vdot(r, r)) > self._tolerance**2 * size:
                break
            ap = self._apply(p)
            alpha = rz / float(xp.vdot(p, ap))
            x += alpha * p
            r -= alpha * ap
            z = self._filter(r, self._inverse)
            before, rz = rz, float(xp.vdot(r, z))
            p = z + (rz / before) * p
        return x, self._blur.forward(x)


def _fast_shape(blur: Blur) -> tuple[int, int]:
    """Lengths of a periodic domain in which K x is H f in the frame, whatever wraps round."""
    lengths = []
    for m, n, o, p in zip(blur.psf.shape, blur.image_shape, blur.origin, blur.scene_shape, strict=True):
        if blur.boundary == "periodic":
            lengths.append(n)
        else:
            least = p if blur.boundary == "unknown" else n + max(o, m - 1 - o)
            lengths.append(scipy.fft.next_fast_len(least, real=True))
    return lengths[0], lengths[1]


def domain_of(problem: VariationalProblem) -> _FourierDomain | _CosineDomain:
    """The domain that serves the problem's boundary."""
    mirrored = problem.blur.boundary in ("reflect", "antireflect")
    return _CosineDomain(problem) if mirrored else _FourierDomain(problem)


class _Runner:
    """Runs a pixelwise step on blocks of rows that stay in a core's cache, on all cores; on a GPU at once."""

    _BLOCK = 1 << 19  # bytes of one array in one block

    def __init__(self, problem: VariationalProblem, shape: tuple[int, ...]) -> None:
        frames, channels, _, cols = shape
        self._frames = frames
        self._whole = problem.xp is not np
        self._rows = max(8, self._BLOCK // (channels * cols * problem.dtype.itemsize))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        busy = not self._whole and cores > 1 and math.prod(shape) >= 1 << 14
        self._pool = ThreadPoolExecutor(cores) if busy else None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def __call__(self, step: Callable[[int, slice], object], rows: int) -> list:
        """`step(frame, rows)` for every block; what it returns, in order."""
        size = rows if self._whole else self._rows
        work = [(i, slice(a, min(a + size, rows))) for i in range(self._frames) for a in range(0, rows, size)]
        if self._pool is None:
            return [step(*w) for w in work]
        return list(self._pool.map(step, *zip(*work, strict=True)))


# ---------------------------------------------------------------------------------------------
# The splits
# ---------------------------------------------------------------------------------------------


@dataclass
class _Split:
    """The copies u of what one term looks at, kept with t = u − d, d being the scaled dual; ρ its penalty."""

    u: list[Array]
    t: list[Array]
    rho: float

    def rescale(self, factor: float) -> None:
        """Multiply ρ; the dual ρ d stays what it is."""
        self.rho *= factor
        for u, t in zip(self.u, self.t, strict=True):
            t -= u
            t *= 1 / factor
            t += u


@dataclass
class _State:
    """All that an iteration carries on: what a warm start begins from."""

    x: Array
    data: _Split
    penalties: list[_Split]
    box: _Split | None
    lam: float

    def copy(self, frames: int) -> _State:
        """A state of its own, of the first so many frames."""

        def cut(split: _Split) -> _Split:
            return _Split(
                [u[:frames].copy() for u in split.u], [t[:frames].copy() for t in split.t], split.rho
            )

        box = None if self.box is None else cut(self.box)
        return _State(self.x[:frames].copy(), cut(self.data), [cut(s) for s in self.penalties], box, self.lam)


class _Iteration:
    """The arrays of one solve and the steps on them."""

    def __init__(self, problem: VariationalProblem, g: Array, start: _State | None) -> None:
        self.problem, self.xp = problem, problem.xp
        self.domain = domain = domain_of(problem)
        k, c = g.shape[:2]
        self.shape = (k, c, *domain.shape)
        self.penalties = PENALTIES.get(problem.method, ())
        self.pinned = problem.blur.boundary == "zero"
        boxed = problem.bounds is not None or self.pinned or not self.penalties
        parts = sum(len(DIFFERENCES[p.differences]) for p in self.penalties)
        require_memory(
            int(math.prod(self.shape) * problem.dtype.itemsize * (12 + 2 * parts + 2 * boxed)),
            problem.xp,
            f"ADMM on {k * c} frame(s) of {domain.shape[0]} x {domain.shape[1]}",
            "restore the frames one by one, or tiles of the image that overlap by the PSF's size",
        )
        self.run = _Runner(problem, self.shape)
        self.term = DataTerm(problem.data, problem.background, problem.delta)
        self.free = problem.blur.boundary != "periodic"  # differences that leave the scene are not counted
        self.g = self._on_domain(g, (k, c))
        w = problem.weights
        w = self.xp.ones((1, 1, *problem.blur.image_shape), problem.dtype) if w is None else w
        w = w.reshape((1,) * (4 - w.ndim) + w.shape)
        w = self.xp.broadcast_to(w, (*w.shape[:2], *problem.blur.image_shape))
        self.w = self._on_domain(w, w.shape[:2])
        self.scale = _scale(problem, g, w)
        self.rho = self._first_penalties(g, w)
        self.lam = problem.lam
        if start is not None and self._fits(start):
            self.state = start.copy(k)
            self.move_to(problem.lam)
            return
        norms = {p.norm for p in self.penalties}
        if 0 < problem.lam < _SMALL * self.unit and "square" not in norms and problem.data != "l1":
            self.lam = _FIRST * self.unit
        x = self._on_scene(first_scene(problem, g))
        kx = domain.blurred(x)
        u = [self._differences(x, p) for p in self.penalties]
        self.state = _State(
            x,
            _Split([kx], [kx.copy()], self.rho["data"]),
            [_Split(v, [c.copy() for c in v], self.rho["prior"]) for v in u],
            _Split([x.copy()], [x.copy()], self.rho["box"]) if boxed else None,
            problem.lam,
        )
        self.move_to(self.lam)

    # -- setting up --------------------------------------------------------------------------

    def _on_domain(self, part: Array, lead: tuple[int, ...]) -> Array:
        out = self.xp.zeros((*lead, *self.domain.data_shape), self.problem.dtype)
        out[(..., *self.domain.frame)] = part
        return out

    def _on_scene(self, scene: Array) -> Array:
        """The scene, continued over the rest of the domain: by zero where it is held there, else anyhow."""
        pads = [
            (0, 0),
            (0, 0),
            *((0, n - p) for n, p in zip(self.domain.shape, scene.shape[-2:], strict=True)),
        ]
        return self.xp.pad(scene, pads, mode="constant" if self.pinned else "edge")

    def _differences(self, x: Array, penalty: Penalty) -> list[Array]:
        p = self._block(x, 0, x.shape[-2])
        return [d.forward(p) for d in DIFFERENCES[penalty.differences]]

    def _first_penalties(self, g: Array, w: Array) -> dict[str, float]:
        """ρ of each split before any balancing."""
        problem = self.problem
        mean = max(float(w.mean()), np.finfo(problem.dtype).tiny)
        level = max(float(abs(g).mean()) + problem.background, np.finfo(problem.dtype).tiny)
        curvature = {
            "gaussian": mean,
            "huber": mean,
            "poisson": mean / level,
            "l1": mean / (0.05 * self.scale),
        }[problem.data]
        gain = problem.blur.gain
        self.unit = curvature * self.scale / gain  # the λ that counts as large
        prior = _RHO_PRIOR * problem.lam * gain / self.scale
        squares = any(p.norm == "square" for p in self.penalties)
        return {
            "data": _RHO_DATA * curvature,
            "prior": problem.lam if squares else prior or curvature * gain**2 * 1e-3,
            "box": _RHO_BOX * curvature * gain**2,
        }

    def _fits(self, start: _State) -> bool:
        return (
            start.x.shape == self.shape
            and start.x.dtype == self.problem.dtype
            and len(start.penalties) == len(self.penalties)
            and (start.box is not None)
            == (self.problem.bounds is not None or self.pinned or not self.penalties)
        )

    def move_to(self, lam: float) -> None:
        """Go on with another λ: the prior's penalties and duals are of its size, and scale with it."""
        if self.state.lam > 0 and lam > 0:
            for split in self.state.penalties:
                split.rho *= lam / self.state.lam
        self.lam = self.state.lam = lam

    # -- one iteration -----------------------------------------------------------------------

    def prepare(self) -> None:
        """Set the domain's operator for the penalties as they stand."""
        domain, state = self.domain, self.state
        symbol = 0 * (domain.rows + domain.cols)
        for penalty, split in zip(self.penalties, state.penalties, strict=True):
            for d in DIFFERENCES[penalty.differences]:
                symbol = symbol + split.rho * d.symbol(domain.rows, domain.cols)
        if state.box is not None:
            symbol = symbol + state.box.rho
        domain.prepare(state.data.rho, symbol)

    def _block(self, x: Array, first: int, last: int, mode: str | None = None) -> Array:
        """Rows first to last of `x` with a border of one pixel, continued as the domain has it."""
        mode = mode or self.domain.border
        rows = x.shape[-2]
        out = self.xp.empty((*x.shape[:-2], last - first + 2, x.shape[-1] + 2), x.dtype)
        out[..., 1:-1, 1:-1] = x[..., first:last, :]
        for at, row, end in ((0, first - 1, first == 0), (-1, last, last == rows)):
            if not end or mode == "wrap":
                out[..., at, 1:-1] = x[..., row % rows, :]
            elif mode == "edge":
                out[..., at, 1:-1] = x[..., min(max(row, 0), rows - 1), :]
            else:
                out[..., at, 1:-1] = 0
        if mode == "wrap":
            out[..., 0], out[..., -1] = out[..., -2], out[..., 1]
        elif mode == "edge":
            out[..., 0], out[..., -1] = out[..., 1], out[..., -2]
        else:
            out[..., 0] = out[..., -1] = 0
        return out

    def right(self, right: Array) -> Array:
        """Σ ρ Lᵀ(u − d) of all splits but the data's, written into `right`."""
        state = self.state

        def gather(i: int, rows: slice) -> None:
            out = right[i, :, rows]
            if state.box is not None:
                self.xp.multiply(state.box.t[0][i, :, rows], state.box.rho, out=out)
            else:
                out[...] = 0
            for penalty, split in zip(self.penalties, state.penalties, strict=True):
                for d, t in zip(DIFFERENCES[penalty.differences], split.t, strict=True):
                    mode = self.domain.border if d.even else self.domain.adjoint_border
                    out += split.rho * d.adjoint(self._block(t[i], rows.start, rows.stop, mode))

        self.run(gather, right.shape[-2])
        return right

    def copies(self, x: Array, kx: Array) -> tuple[float, np.ndarray]:
        """Update every copy and its dual.

        Returns
        -------
        objective : float
            D + λR at the copies.
        residuals : (splits, 2) array
            Relative primal and dual residual of each split, in the order of `splits`.
        """
        state = self.state

        def priors(i: int, rows: slice) -> list:
            p = self._block(x[i], rows.start, rows.stop)
            found: list = []
            for penalty, split in zip(self.penalties, state.penalties, strict=True):
                kinds = DIFFERENCES[penalty.differences]
                a = [d.forward(p) for d in kinds]
                u = [v[i, :, rows] for v in split.u]
                t = [v[i, :, rows] for v in split.t]
                q = [_relaxed(*parts) for parts in zip(a, u, t, strict=True)]
                free = [(n, e) for n, d in enumerate(kinds) for e in self._uncounted(d, rows)]
                kept = [q[n][e].copy() for n, e in free]
                for n, e in free:
                    q[n][e] = 0
                new = penalty.prox([v[None] for v in q], self.lam / split.rho)
                value = self.lam * penalty.value(new)
                new = [v[0] for v in new]
                for (n, e), v in zip(free, kept, strict=True):
                    q[n][e] = new[n][e] = v
                sums = [_store(*parts) for parts in zip(a, u, t, q, new, strict=True)]
                found.append([value, [sum(column) for column in zip(*sums, strict=True)]])
            if state.box is not None:
                a, u, t = x[i, :, rows], state.box.u[0][i, :, rows], state.box.t[0][i, :, rows]
                q = _relaxed(a, u, t)
                new = self._boxed(q, rows)
                found.append([0.0, _store(a, u, t, q, new)])
            return found

        value, residuals = self.copy_data(kx)
        totals = _total(self.run(priors, x.shape[-2]))
        return value + sum(v for v, _ in totals), np.array(
            [residuals, *(self._relative(s) for _, s in totals)]
        )

    def copy_data(self, kx: Array) -> tuple[float, tuple[float, float]]:
        """Update the copy of K x: (D, (relative primal and dual residual))."""
        split = self.state.data

        def data(i: int, rows: slice) -> list:
            g, w = self.g[i, :, rows], self.w[i % len(self.w), :, rows]
            a, u, t = kx[i, :, rows], split.u[0][i, :, rows], split.t[0][i, :, rows]
            q = _relaxed(a, u, t)
            new = self.term.prox(q, g, w, split.rho)
            return [[self.term.value(new, g, w), _store(a, u, t, q, new)]]

        [(value, sums)] = _total(self.run(data, kx.shape[-2]))
        return value, self._relative(sums)

    def _relative(self, sums: list[float]) -> tuple[float, float]:
        """Relative primal and dual residual from ‖a − u‖², ‖u − u before‖², ‖a‖², ‖u‖²."""
        primal, dual, seen, copy = sums
        floor = (np.finfo(self.problem.dtype).eps * self.scale) ** 2 * math.prod(self.shape)
        size = max(seen, copy, floor)
        return math.sqrt(primal / size), math.sqrt(dual / size)

    def _uncounted(self, difference: Difference, rows: slice) -> Iterator[tuple[slice, slice, slice]]:
        """The parts of a block at which a difference would reach out of the scene."""
        if not self.free:
            return
        r, c = inside(difference, self.problem.blur.scene_shape)
        every = slice(None)
        height = rows.stop - rows.start
        top, bottom = (min(max(n - rows.start, 0), height) for n in (r.start, r.stop))
        if top:
            yield every, slice(0, top), every
        if bottom < height:
            yield every, slice(bottom, height), every
        if c.start:
            yield every, every, slice(0, c.start)
        if c.stop < self.shape[-1]:
            yield every, every, slice(c.stop, self.shape[-1])

    def _boxed(self, q: Array, rows: slice) -> Array:
        """The nearest point of the bounds, in the scene; beyond it, 0 for boundary "zero" and `q` else."""
        r, c = self.domain.scene
        height = min(max(r.stop - rows.start, 0), rows.stop - rows.start)
        new = self.xp.zeros_like(q) if self.pinned else q.copy()
        part = q[..., :height, c]
        new[..., :height, c] = part if self.problem.bounds is None else part.clip(*self.problem.bounds)
        return new

    def splits(self) -> list[_Split]:
        """All splits, in the order of the residuals."""
        box = [self.state.box] if self.state.box is not None else []
        return [self.state.data, *self.state.penalties, *box]

    def balance(self, residuals: np.ndarray) -> None:
        """Raise the penalty of a split whose primal residual lags behind its dual one, and the reverse."""
        moved = False
        for split, (primal, dual) in zip(self.splits(), residuals, strict=True):
            if primal > _BALANCE_RATIO * dual or dual > _BALANCE_RATIO * primal:
                split.rescale(2.0 if primal > dual else 0.5)
                moved = True
        if moved:
            self.prepare()


def _relaxed(a: Array, u: Array, t: Array) -> Array:
    """α a + (1 − α) u + d, over-relaxed, with t = u − d."""
    q = _RELAXATION * a
    q += (2 - _RELAXATION) * u
    q -= t
    return q


def _store(a: Array, u: Array, t: Array, q: Array, new: Array) -> list:
    """Put the new copy in the place of the old, t = u − d = 2u − q beside it; the sums that residuals need."""
    u -= new
    dual = _square(u)
    u[...] = new
    new *= 2
    new -= q
    t[...] = new
    seen, copy = _square(a), _square(u)
    return [_square(a - u), dual, seen, copy]


def _square(x: Array) -> Array:
    # Not BLAS's dot: from 10000 elements on it starts threads of its own, which wait for ours and ours for them.
    return get_xp(x).einsum("cij,cij->", x, x)


def _total(blocks: list) -> list:
    """The blocks' [value, sums] of each split added up, as floats of the host."""
    return [
        [sum(float(b[n][0]) for b in blocks), [sum(float(b[n][1][m]) for b in blocks) for m in range(4)]]
        for n in range(len(blocks[0]))
    ]


def _scale(problem: VariationalProblem, g: Array, w: Array) -> float:
    """The standard deviation of what is visible of the image, or its size if it is constant."""
    xp = problem.xp
    w = xp.broadcast_to((w > 0).astype(g.dtype), g.shape)
    count = float(w.sum(dtype=np.float64))
    mean = float((w * g).sum(dtype=np.float64)) / count
    deviation = math.sqrt(float((w * (g - mean) ** 2).sum(dtype=np.float64)) / count)
    return deviation if deviation > 1e-6 * abs(mean) else abs(mean) or 1.0


# ---------------------------------------------------------------------------------------------
# The solver
# ---------------------------------------------------------------------------------------------


def solve(problem: VariationalProblem, g: Array, start: Solution | None = None) -> Solution:
    """Minimise the problem for the frames `g`.

    Parameters
    ----------
    problem : VariationalProblem
    g : (k, c, M, N) array
        Frames and their colours, of the problem's dtype and array module. Frames are solved together: they
        share penalties and stop together.
    start : Solution, optional
        Of the same shapes, also at another λ: where to begin.

    Returns
    -------
    Solution

    Raises
    ------
    ConvergenceError
        If the iteration diverged; it carries the last Solution that was finite, if there was one.
    ValueError
        If the denoiser returns another shape, or NaN.
    """
    state = start.state if start is not None and isinstance(start.state, _State) else None
    with all_cores():
        iteration = _Iteration(problem, g, state)
        try:
            if problem.method == "pnp":
                return _plug_and_play(iteration)
            return _solve(iteration)
        finally:
            iteration.run.close()


def _solve(it: _Iteration) -> Solution:
    problem, state = it.problem, it.state
    rtol = RTOL if problem.rtol is None else problem.rtol
    most = MAX_ITERATIONS if problem.max_iterations is None else problem.max_iterations
    it.prepare()
    objective: list[float] = []
    worst: list[tuple[float, float]] = []
    right = it.xp.empty(it.shape, problem.dtype)
    converged = False
    for n in range(1, most + 1):
        x, kx = it.domain.step(state.data.t[0], it.right(right), state.x, it.run)
        state.x = x
        value, residuals = it.copies(x, kx)
        objective.append(value)
        primal, dual = residuals.max(axis=0)
        worst.append((float(primal), float(dual)))
        if not (math.isfinite(value) and np.isfinite(residuals).all()):
            raise ConvergenceError(
                f"ADMM diverged: the objective became {value} at iteration {n}. Scale the image to about [0, 1], "
                "use float64, or a larger λ"
            )
        if problem.callback is not None:
            problem.callback(n, max(worst[-1]))
        if it.lam > problem.lam:
            if n % _FALL_EVERY == 0:
                it.move_to(max(it.lam / _FALL, problem.lam))
                it.prepare()
            continue
        converged = bool(residuals.max() <= rtol)
        if converged:
            break
        if n % _BALANCE_EVERY == 0 and n <= _BALANCE_UNTIL:
            it.balance(residuals)
    why = (
        f"the relative primal residual {worst[-1][0]:.1e} and dual residual {worst[-1][1]:.1e} after {n} iterations "
        f"are {'within' if converged else 'not yet within'} the tolerance {rtol:.1e}"
    )
    return Solution(_scene(it), n, converged, why, _history(objective, worst), state)


def first_frames(solution: Solution, count: int) -> Solution:
    """The solution of the first `count` frames, to begin from where they are solved alone."""

    state = solution.state.copy(count) if isinstance(solution.state, _State) else None
    return replace(solution, scene=solution.scene[:count].copy(), state=state)


def _scene(it: _Iteration) -> Array:
    scene = it.state.x[(..., *it.domain.scene)]
    return it.xp.ascontiguousarray(scene if it.problem.bounds is None else scene.clip(*it.problem.bounds))


def _history(objective: list[float], worst: list[tuple[float, float]]) -> History:
    residuals = np.array(worst).reshape(-1, 2)
    return History(np.array(objective), residuals[:, 0].copy(), residuals[:, 1].copy())


def _plug_and_play(it: _Iteration) -> Solution:
    """ADMM with a denoiser for the proximal map of the prior [4]_, its strength falling as in [5]_.

    The denoiser of strength σ stands for a prior of weight λ where the penalty is ρ = λ/σ². σ falls from
    `_PNP_FIRST` of the image's standard deviation to `_PNP_STRENGTH` √λ and stays there; then the penalty is the
    same for every λ, and the fixed point is the one that the last denoiser has.
    """
    problem, state, xp = it.problem, it.state, it.xp
    rtol = RTOL if problem.rtol is None else problem.rtol
    most = _PNP_ITERATIONS if problem.max_iterations is None else problem.max_iterations
    last = _PNP_STRENGTH * math.sqrt(problem.lam)
    first = max(_PNP_FIRST * it.scale, last)
    scene = (..., *it.domain.scene)
    z, dual = state.x.copy(), xp.zeros_like(state.x)
    box = _Split([z], [z.copy()], 1.0)
    state.box = box
    objective: list[float] = []
    worst: list[tuple[float, float]] = []
    right = xp.empty(it.shape, problem.dtype)
    most_size = 1e6 * (float(xp.sum(z * z)) + it.scale**2 * z.size)
    converged = False
    for n in range(1, most + 1):
        sigma = first * (last / first) ** min((n - 1) / _PNP_FALL, 1.0)
        rho = problem.lam / sigma**2
        dual *= box.rho / rho if n > 1 else 0.0
        box.rho = rho
        box.t[0] = z - dual
        it.prepare()
        for _ in range(_PNP_INNER):
            x, kx = it.domain.step(state.data.t[0], it.right(right), state.x, it.run)
            state.x = x
            if not it.pinned:  # beyond the scene nothing is asked of x
                box.t[0], inner = x.copy(), box.t[0][scene]
                box.t[0][scene] = inner
            value, residuals = it.copy_data(kx)
        shown = x + dual
        before = z[scene]
        z = xp.zeros_like(shown) if it.pinned else shown.copy()
        z[scene] = _denoised(problem, shown[scene], sigma)
        dual = shown - z
        seen = z[scene]
        size = max(float(xp.sum(seen * seen)), np.finfo(problem.dtype).tiny)
        primal = math.sqrt(float(xp.sum((x - z) ** 2)) / size)
        change = math.sqrt(float(xp.sum((seen - before) ** 2)) / size)
        objective.append(value)
        worst.append((max(primal, float(residuals[0])), max(change, float(residuals[1]))))
        if not (math.isfinite(value) and math.isfinite(primal)) or size > most_size:
            raise ConvergenceError(
                f"plug and play diverged at iteration {n}: the denoiser makes images grow; use a larger λ or "
                "another denoiser"
            )
        if problem.callback is not None:
            problem.callback(n, max(worst[-1]))
        converged = n > _PNP_FALL and max(worst[-1]) <= rtol
        if converged:
            break
    why = (
        f"after {n} calls of the denoiser, the last of strength {sigma:.3g}, the relative residual is "
        f"{worst[-1][0]:.1e} and the change {worst[-1][1]:.1e} (tolerance {rtol:.1e})"
    )
    if not converged and problem.max_iterations is None and n > _PNP_FALL and max(worst[-1]) <= _PNP_SETTLED:
        # A denoiser need not have a fixed point that an iteration reaches; the schedule has run its course.
        converged, why = True, f"the schedule has ended: {why}"
    return Solution(xp.ascontiguousarray(z[scene]), n, converged, why, _history(objective, worst))


def _denoised(problem: VariationalProblem, scene: Array, sigma: float) -> Array:
    """The denoiser on each frame, and the bounds; what comes back is looked at before it is used."""
    assert problem.denoiser is not None
    xp = problem.xp
    out = xp.empty_like(scene)
    for i, frame in enumerate(scene):
        image = xp.ascontiguousarray(frame[0] if len(frame) == 1 else xp.moveaxis(frame, 0, -1))
        found = problem.denoiser(image.copy(), sigma)
        name = getattr(problem.denoiser, "__name__", type(problem.denoiser).__name__)
        if getattr(found, "shape", None) != image.shape:
            raise ValueError(
                f"the denoiser {name!r} was given an image of shape {image.shape} and returned "
                f"{getattr(found, 'shape', type(found).__name__)}; it must keep the shape"
            )
        if not bool(xp.isfinite(found).all()):
            raise ValueError(
                f"the denoiser {name!r} returned NaN or infinity for an image with values from "
                f"{float(image.min()):.3g} to {float(image.max()):.3g} and sigma {sigma:.3g}"
            )
        out[i] = found if len(frame) == 1 else xp.moveaxis(found, -1, 0)
    return out if problem.bounds is None else out.clip(*problem.bounds)

"""ADMM on a GPU's periodic domain: an iteration is three launches of ``cuda/admm.cu`` and one pair of transforms.

An iteration is captured as a CUDA graph once for each shape and kind of problem, and replayed; what changes from one to
the next lies in the device's `control`. The host looks at the residuals every few iterations, when penalties may change
anyway, and the device itself stands still once they are small enough: the iterations counted, and the scene, are those
of looking every time.

The arrays that a graph works on belong to it. A solve takes them for itself, so that threads and streams do not meet,
and gives them back; those that nobody uses are kept up to `KEPT_BYTES`, the least recently used going first.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from .. import kernels
from ..device import Array, get_xp, require_memory
from ..graphs import captured
from ..problem import Problem, Solution
from ..terms import PENALTIES, Penalty
from ..terms_gpu import KINDS, NORMS
from .domain import Domain, TorusDomain
from .schedule import (
    BALANCE_EVERY,
    BALANCE_UNTIL,
    FALL_EVERY,
    Record,
    balanced,
    first_lam,
    first_penalties,
    lagging,
    next_lam,
    tolerance,
)
from .splits import RELAXATION, Split, State
from .start import brightness_of, filled
from .units import Units

#: Bytes of device memory that are kept with captured graphs while nobody uses them.
KEPT_BYTES = 1 << 30

_AT = kernels.Constants("admm")
_MOST_POWER = {"identity": 1.0, "gradient": 8.0, "hessian": 64.0}
_BLOCKS = 4  # of a launch, on each multiprocessor


@dataclass(frozen=True)
class _Kind:
    """All that a captured iteration depends on but for the numbers in its arrays."""

    gpu: int
    dtype: np.dtype
    frames: int
    channels: int
    shape: tuple[int, int]
    image: tuple[int, int]
    first: tuple[int, int]  # where the image lies in the domain
    scene: tuple[int, int]
    fit: str
    weights: tuple[int, int] | None
    penalties: tuple[Penalty, ...]
    wraps: bool
    bounded: bool
    pinned: bool
    held: bool = False  # the box is set from outside

    @property
    def boxed(self) -> bool:
        return self.bounded or self.pinned or not self.penalties

    @property
    def parts(self) -> int:
        """Arrays of copies and duals, the scene before them and the data's t behind them."""
        return 2 + 2 * sum(KINDS[p.differences] for p in self.penalties) + 2 * self.boxed

    @property
    def size(self) -> int:
        return self.frames * self.channels * math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """About all that a workspace takes; seven more: right-hand side, fresh, spectra, and the transforms' own."""
        return (self.parts + 9) * self.size * self.dtype.itemsize


def _kind_of(problem: Problem, domain: TorusDomain, g: Array) -> _Kind:
    blur, weights = problem.blur, problem.fit.weights
    lead = None
    if weights is not None:
        lead = (1, 1, *weights.shape)[-4:-2]
    return _Kind(
        int(g.device.id),
        problem.dtype,
        g.shape[0],
        g.shape[1],
        domain.shape,
        blur.image_shape,
        (domain.frame[0].start, domain.frame[1].start),
        blur.scene_shape,
        problem.fit.name,
        lead,
        PENALTIES.get(problem.penalty, ()),
        blur.boundary.wraps,
        problem.bounds is not None,
        domain.pinned,
    )


def serves(domain: Domain, problem: Problem, g: Array) -> TypeGuard[TorusDomain]:
    """Whether this problem's iteration has its kernels."""
    if problem.device.gpu is None or not isinstance(domain, TorusDomain):
        return False
    kinds = [KINDS[p.differences] for p in PENALTIES.get(problem.penalty, ())]
    return kinds[1:] in ([], [3]) and math.prod(g.shape[:2]) * math.prod(domain.shape) < 1 << 31


class _Workspace:
    """The arrays of one solve at a time, its transforms and its captured iteration."""

    def __init__(self, kind: _Kind) -> None:
        import cupy
        from cupy.cuda import cufft

        self.kind = kind
        k, (rows, cols), planes, char = kind, kind.shape, kind.frames * kind.channels, kind.dtype.char
        half = cols // 2 + 1
        shape = (k.frames, k.channels, rows, cols)
        self.store = cupy.empty((k.parts + 2, *shape), k.dtype)
        self.fresh = cupy.empty((2, *shape), k.dtype)
        self.spectra = cupy.empty((2 * planes, rows, half), np.result_type(k.dtype, np.complex64))
        self.k = cupy.empty((rows, half), self.spectra.dtype)
        self.g = cupy.empty((k.frames, k.channels, *k.image), k.dtype)
        self.w = None if k.weights is None else cupy.empty((*k.weights, *k.image), k.dtype)
        self.powers = [cupy.empty(n, k.dtype) for n in (rows, half)]
        self.blocks = min(_BLOCKS * kernels.properties(k.gpu).multiprocessors, -(-kind.size // _AT.THREADS))
        roles = 1 + len(k.penalties)
        self.update_blocks = roles * min(
            _BLOCKS * kernels.properties(k.gpu).multiprocessors // roles, self.blocks
        )
        self.control = cupy.zeros(_AT.CONTROL + _AT.BATCH * _AT.RECORD, np.float64)
        self.partial = cupy.empty(_AT.RECORD * self.blocks, np.float64)  # of each split
        self.ticket = cupy.zeros(1, np.uint32)
        there, back = (
            (cufft.CUFFT_R2C, cufft.CUFFT_C2R) if char == "f" else (cufft.CUFFT_D2Z, cufft.CUFFT_Z2D)
        )
        lengths = [(rows, cols), (rows, half)]
        self._plans = [
            cufft.PlanNd(
                (rows, cols), a, 1, math.prod(a), b, 1, math.prod(b), which, 2 * planes, "C", 1, b[1]
            )
            for which, a, b in ((there, *lengths), (back, *lengths[::-1]))
        ]
        self._graphs: dict[int, Any] = {}  # by how many iterations they hold
        self.used = cupy.cuda.Event(disable_timing=True)

    def launch(self, name: str, *args: Any, blocks: int | None = None) -> None:
        """A kernel over this workspace's pixels."""
        kernels.launch(
            "admm", name, self.blocks if blocks is None else blocks, _AT.THREADS, *args, dtype=self.kind.dtype
        )

    def transform(self) -> None:
        """x and K x into `fresh`, from the last two arrays of `store`."""
        k, half = self.kind, self.spectra.shape[-1]
        kinds = [KINDS[p.differences] for p in k.penalties]
        self._plans[0].fft(self.store[-2:], self.spectra, 0)
        self.launch(
            "combine", self.spectra.view(k.dtype), k.frames * k.channels, k.shape[0], half, self.k.view(k.dtype),
            *self.powers, *_two(kinds), self.control,
        )  # fmt: skip
        self._plans[1].fft(self.spectra, self.fresh, 0)

    def step(self) -> None:
        """One iteration."""
        k = self.kind
        whole = (self.store, k.size, k.frames, k.channels, *k.shape)
        kinds = _two([KINDS[p.differences] for p in k.penalties])
        norms = _two([NORMS[p.norm] for p in k.penalties])
        self.launch("gather", *whole, *kinds, k.boxed, self.control)
        self.transform()
        self.launch(
            "update", *whole, self.fresh, self.g, self.w, *(k.weights or (1, 1)), *k.image, *k.first, *k.scene,
            _FITS[k.fit], kinds[0], norms[0], kinds[1], norms[1], k.wraps, k.boxed, k.held, k.bounded,
            k.pinned, self.control, self.partial, self.ticket, blocks=self.update_blocks,
        )  # fmt: skip

    def advance(self, count: int) -> None:
        """So many iterations, as one graph or one by one."""
        if not self._graphs:
            self.step()  # in which everything that a capture could stumble over happens
            count -= 1
            self._graphs = {1: captured(self.step), _AT.BATCH: captured(self._batch)}
        if count == _AT.BATCH and self._graphs[count]:
            self._graphs[count].launch()
            return
        for _ in range(count):
            if self._graphs[1]:
                self._graphs[1].launch()
            else:
                self.step()

    def _batch(self) -> None:
        for _ in range(_AT.BATCH):
            self.step()


_FITS = {"gaussian": _AT.GAUSSIAN, "poisson": _AT.POISSON, "l1": _AT.L1, "huber": _AT.HUBER}


def _two(numbers: list[int]) -> list[int]:
    """Of the first and the second penalty; 0 where there is none."""
    return [*numbers, 0, 0][:2]


# ---------------------------------------------------------------- what is kept

_lock = threading.Lock()
_kept: list[_Workspace] = []  # the least recently used first


def _taken(kind: _Kind) -> _Workspace:
    import cupy

    with _lock:
        for i in reversed(range(len(_kept))):
            if _kept[i].kind == kind:
                found = _kept.pop(i)
                break
        else:
            found = None
    if found is not None:
        cupy.cuda.get_current_stream().wait_event(found.used)
        return found
    try:
        return _Workspace(kind)
    except cupy.cuda.memory.OutOfMemoryError:
        forget()
        return _Workspace(kind)


def _given_back(space: _Workspace) -> None:
    space.used.record()
    dropped = []
    with _lock:
        _kept.append(space)
        while sum(s.kind.bytes for s in _kept) > KEPT_BYTES:
            dropped.append(_kept.pop(0))
    for old in dropped:
        old.used.synchronize()


def forget() -> None:
    """Give the memory of kept graphs back."""
    with _lock:
        dropped = _kept[:]
        _kept.clear()
    for old in dropped:
        old.used.synchronize()


def kept_bytes() -> int:
    """Device memory that kept graphs hold."""
    with _lock:
        return sum(s.kind.bytes for s in _kept)


# ---------------------------------------------------------------- a solve


def solve(problem: Problem, domain: TorusDomain, units: Units, start: State | None) -> Solution:
    """What `deblur.solvers.admm` solves: frames that share penalties and stop together."""
    with _space(_kind_of(problem, domain, units.g), units.g) as space:
        return _Solve(units, domain, space, start).go()


@contextlib.contextmanager
def around(problem: Problem, domain: TorusDomain, units: Units) -> Iterator[Around]:
    """The steps of plug and play."""
    with _space(replace(_kind_of(problem, domain, units.g), held=True), units.g) as space:
        yield Around(_Solve(units, domain, space, None))


@contextlib.contextmanager
def _space(kind: _Kind, like: Array) -> Iterator[_Workspace]:
    """A workspace, while it is needed."""
    require_memory(
        kind.bytes - kept_bytes(),
        get_xp(like),
        f"ADMM on {kind.frames * kind.channels} frame(s) of {kind.shape[0]} x {kind.shape[1]}",
        "restore the frames one by one, or tiles of the image that overlap by the PSF's size",
    )
    space = _taken(kind)
    try:
        yield space
    finally:
        _given_back(space)


class _Solve:
    """One solve in a workspace: the numbers of the host."""

    def __init__(self, units: Units, domain: TorusDomain, space: _Workspace, start: State | None) -> None:
        self.units, self.problem, self.space, self.kind = units, units.problem, space, space.kind
        problem, kind = self.problem, self.kind
        space.g[...] = units.g
        if space.w is not None:
            space.w[...] = problem.fit.weights
        space.k[...] = domain.k
        for to, power in zip(space.powers, (domain.rows, domain.cols), strict=True):
            to[...] = power.ravel()
        self._measure()
        self.record = Record(problem, units, tolerance(problem, self.large))
        self.ratio = lagging(problem, self.large)
        self.rho = [self.first.data, *[self.first.prior] * len(kind.penalties), self.first.box]
        if start is not None and self._fits(start):
            self.lam, lam = start.lam, problem.lam
            self.rho = [start.data.rho, *(s.rho for s in start.penalties), 0.0]
            if start.box is not None:
                self.rho[-1] = start.box.rho
            for to, part in zip(space.store, _arrays(start), strict=False):
                to[...] = part
        else:
            self.lam, lam = problem.lam, first_lam(problem, self.large)
            self._begin()
        self._move_to(lam)

    def _measure(self) -> None:
        """The numbers that the image decides."""
        problem, space, xp = self.problem, self.space, self.problem.xp
        out = xp.empty(_AT.STATISTICS, np.float64)
        k = self.kind
        space.launch(
            "statistics", space.g, k.frames, k.channels, math.prod(k.image), space.w, *(k.weights or (1, 1)),
            out, space.partial, space.ticket,
        )  # fmt: skip
        seen, first, second, level, weight, _, largest = out.tolist()
        count = space.g.size
        mean = first / seen
        deviation = math.sqrt(max(second / seen - mean**2, 0.0))
        self.scale = deviation if deviation > 1e-6 * abs(mean) else abs(mean) or 1.0
        self.first, self.large = first_penalties(problem, weight / count, level / count, self.scale)
        self.hidden = seen < count
        eps, tiny = (float(getattr(np.finfo(problem.dtype), name)) for name in ("eps", "tiny"))
        self.least = eps * max(largest, tiny)
        self.least_size = (eps * self.scale) ** 2 * k.size

    def _begin(self) -> None:
        """The first scene and its copies."""
        space, k, problem = self.space, self.kind, self.problem
        low, high = problem.bounds or (0.0, 0.0)
        kinds = _two([KINDS[p.differences] for p in k.penalties])
        space.launch(
            "first_scene", *space.store[-2:], k.frames * k.channels, *k.shape,
            filled(space.g, problem.fit.weights) if self.hidden else space.g, *k.image, *k.first, *k.scene,
            problem.fit.background, brightness_of(problem.operator), k.bounded, low, high, k.pinned,
        )  # fmt: skip
        control = np.zeros(_AT.CONTROL)
        control[_AT.SCALE], control[_AT.RHO + 3] = 1 / math.prod(k.shape), 1.0
        space.control[: _AT.CONTROL].set(control)  # with these the step takes the right-hand side for x
        space.transform()
        space.launch(
            "first_copies", space.store, k.size, k.frames * k.channels, *k.shape, space.fresh, *kinds, k.boxed
        )

    def _fits(self, start: State) -> bool:
        k = self.kind
        return (
            start.x.shape == (k.frames, k.channels, *k.shape)
            and start.x.dtype == k.dtype
            and len(start.penalties) == len(k.penalties)
            and (start.box is not None) == k.boxed
        )

    def _move_to(self, lam: float) -> None:
        """Go on with another λ: the prior's penalties and duals are of its size, and scale with it."""
        if self.lam > 0 and lam > 0:
            for i in range(len(self.kind.penalties)):
                self.rho[1 + i] *= lam / self.lam
        self.lam = lam

    def _set(self, iterations: int = 0) -> None:
        """Tell the device the numbers of the iterations to come, after so many."""
        problem, fit, at = self.problem, self.problem.fit, _AT
        penalties = self.kind.penalties
        rho = self.rho
        most = rho[0] * problem.operator.gain**2 + (rho[-1] if self.kind.boxed else 0.0)
        c = np.zeros(at.CONTROL)
        c[at.COUNT] = iterations
        c[at.ARMED], c[at.TOLERANCE], c[at.LEAST_SIZE] = (
            self.lam <= problem.lam and not self.kind.held,
            self.record.rtol,
            self.least_size,
        )
        c[at.RELAXATION], c[at.SCALE] = RELAXATION, 1 / math.prod(self.kind.shape)
        c[at.RHO], c[at.RHO + 3] = rho[0], rho[-1] if self.kind.boxed else 0.0
        for i, penalty in enumerate(penalties):
            c[at.RHO + 1 + i] = rho[1 + i]
            c[at.TAU + i] = self.lam / rho[1 + i] * penalty.weight
            c[at.WEIGHT + i] = self.lam * penalty.weight
            most += rho[1 + i] * _MOST_POWER[penalty.differences]
        c[at.FLOOR] = float(np.finfo(problem.dtype).eps) * most
        c[at.BACKGROUND], c[at.DELTA], c[at.LEAST] = fit.background, fit.delta, self.least
        c[at.LOW], c[at.HIGH] = problem.bounds or (0.0, 0.0)
        self.space.control[: at.CONTROL].set(c)

    def go(self) -> Solution:
        """Iterate until it has converged or the iterations run out."""
        n, converged, most = 0, False, self.record.most
        rows: np.ndarray = np.zeros((0, _AT.SPLITS, _AT.SUMS))
        self._set()
        while not converged and n < most:
            falling = self.lam > self.problem.lam
            every = FALL_EVERY if falling else BALANCE_EVERY
            self.space.advance(min(every - n % every, most - n, _AT.BATCH))
            self._take_down(rows)  # what came before, while the device is busy
            control = self.space.control.get()  # from here to the next launch the device waits
            now, converged = int(control[_AT.COUNT]), bool(control[_AT.DONE])
            records = control[_AT.CONTROL :].reshape(-1, _AT.SPLITS, _AT.SUMS)
            rows, n = records[[i % _AT.BATCH for i in range(n, now)]], now
            if falling:
                if n % FALL_EVERY == 0:
                    self._move_to(next_lam(self.problem, self.lam))
                    self._set(n)
            elif not converged and n % BALANCE_EVERY == 0 and n <= BALANCE_UNTIL and self._balance(rows[-1]):
                self._set(n)
        self._take_down(rows)
        store = self.space.store[:-1].copy()
        scene = (..., *(slice(size) for size in self.kind.scene))
        return self.record.solution(store[0][scene], converged, self._state(store))

    def _residuals(self, rows: np.ndarray) -> np.ndarray:
        """Relative primal and dual residual of each split, for (..., splits, sums)."""
        have = [0, *range(1, 1 + len(self.kind.penalties)), *([3] if self.kind.boxed else [])]
        rows = rows[..., have, :]
        size = np.maximum(np.maximum(rows[..., 3], rows[..., 4]), self.least_size)
        return np.sqrt(rows[..., 1:3] / size[..., None])

    def _take_down(self, rows: np.ndarray) -> None:
        if len(rows):
            self.record.see_all(rows[..., 0].sum(axis=1), self._residuals(rows))

    def _balance(self, row: np.ndarray) -> bool:
        """Raise the penalty of a split whose primal residual lags behind its dual one, and the reverse."""
        space, moved = self.space, False
        for i, (_, primal, dual, _, _) in enumerate(row.tolist()):  # of splits that are not there all are 0
            factor = balanced(math.sqrt(primal), math.sqrt(dual), self.ratio)
            if factor != 1:
                at = i if i < _AT.SPLITS - 1 else -1  # the box is the last
                u, t = self._slices()[at]
                self.rho[at] *= factor
                space.launch("rescale", space.store[u], space.store[t], space.store[u].size, 1 / factor)
                moved = True
        return moved

    def _split_places(self) -> list[int]:
        """Where each split's ρ stands in `rho`, in the order of the residuals."""
        return [*range(1 + len(self.kind.penalties)), *([len(self.rho) - 1] if self.kind.boxed else [])]

    def _slices(self) -> list[tuple[slice, slice]]:
        """Where u and t of each split lie in `store`, in the same order."""
        k, at = self.kind, 2
        places = [(slice(1, 2), slice(k.parts, k.parts + 1))]
        for count in (*(KINDS[p.differences] for p in k.penalties), *([1] if k.boxed else [])):
            places.append((slice(at, at + count), slice(at + count, at + 2 * count)))
            at += 2 * count
        return places

    def _state(self, store: Array) -> State:
        splits = [
            Split(list(store[u]), list(store[t]), self.rho[at])
            for at, (u, t) in zip(self._split_places(), self._slices(), strict=True)
        ]
        penalties = splits[1 : 1 + len(self.kind.penalties)]
        box = splits[-1] if self.kind.boxed else None
        return State(store[0], splits[0], penalties, box, self.lam, self.units.unit)


class Around:
    """Steps on the data, with a copy of the scene on the domain that is set from outside; see `plug_and_play`."""

    def __init__(self, solve: _Solve) -> None:
        self._solve, store = solve, solve.space.store
        self._copy, self.x = store[solve.kind.parts - 1], store[0]
        self.scale, self.rtol = solve.scale, solve.record.rtol

    def advance(self, t: Array, rho: float, count: int) -> tuple[float, float, float]:
        """So many steps, at most `_AT.BATCH`: D, and the data's relative primal and dual residual after the last."""
        solve, control = self._solve, self._solve.space.control
        self._copy[...] = t
        solve.rho[-1] = rho
        solve._set()
        solve.space.advance(count)
        row = control.get()[_AT.CONTROL :].reshape(-1, _AT.SPLITS, _AT.SUMS)[count - 1]
        primal, dual = solve._residuals(row[None])[0, 0].tolist()
        return float(row[0, 0]), primal, dual


def _arrays(state: State) -> list[Array]:
    """The arrays of a state in the order of `store`."""
    box = [] if state.box is None else [*state.box.u, *state.box.t]
    pairs = [a for split in state.penalties for a in (*split.u, *split.t)]
    return [state.x, *state.data.u, *pairs, *box, *state.data.t]

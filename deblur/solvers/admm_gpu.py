"""ADMM's steps on a GPU's periodic domain: three launches of ``cuda/admm.cu`` and one pair of transforms.

An iteration is captured as a CUDA graph once for each shape and kind of problem, and then replayed. Numbers that change
between iterations are in the array `control` on the device. The host reads the residuals every few iterations, at which
ρ may change anyway. The device stops by itself once the residuals are small enough, so that iteration count and scene
are the same as if the host had read them after every iteration.

A graph owns the arrays that it works on. One solve uses them at a time, so threads and streams do not share them; then
they go back to the cache of the device.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import numpy as np

from .. import kernels
from ..cuda_sources import signatures
from ..device import Array, cupy
from ..graphs import Loop
from ..normalization import Scale
from ..norms import combined
from ..operators import torus_gpu
from ..pixelwise import stored
from ..pool import pool
from ..problem import Problem
from ..terms import KINDS, NORMS, ORDER, REGULARIZERS, Regularizer
from .domain import Domain, TorusDomain
from .splits import RELAXATION, State, Steps
from .start import brightness_of, filled

_AT = kernels.Constants("admm")
_FITS = {"gaussian": _AT.GAUSSIAN, "poisson": _AT.POISSON, "l1": _AT.L1, "huber": _AT.HUBER}


def serves(domain: Domain, problem: Problem, g: Array) -> TypeGuard[TorusDomain]:
    """Return whether the kernels serve this problem: images of two axes, one PSF, and a supported regularizer."""
    if problem.device.gpu is None or not isinstance(domain, TorusDomain) or domain.parts > 1:
        return False
    if problem.axes != 2:
        return False
    kinds = [KINDS[p.differences] for p in REGULARIZERS.get(problem.regularizer, ())]
    return kinds[1:] in ([], [3]) and math.prod(g.shape[:2]) * math.prod(domain.shape) < 1 << 31


@contextlib.contextmanager
def steps(domain: TorusDomain, problem: Problem, g: Array, held: bool) -> Iterator[GpuSteps]:
    """Yield the operations of one solve, with arrays from the device's cache."""
    weights = problem.fidelity.weights
    blur, (frames, channels), gpu = problem.blur, g.shape[:2], problem.device.gpu
    regularizers = REGULARIZERS.get(problem.regularizer, ())
    kinds = [*(KINDS[p.differences] for p in regularizers), 0, 0]
    norms = [*(NORMS[p.norm] for p in regularizers), 0, 0]
    lead = (1, 1) if weights is None else (1, 1, *weights.shape)[-4:-2]
    bounded = problem.bounds is not None
    layout = {
        "size": frames * channels * math.prod(domain.shape),
        **dict(zip(("rows", "cols"), domain.shape, strict=True)),
        "frames": frames,
        "channels": channels,
        **dict(zip(("image_rows", "image_cols"), blur.image_shape, strict=True)),
        **{"first_row": domain.frame[0].start, "first_col": domain.frame[1].start},
        **dict(zip(("scene_rows", "scene_cols"), blur.scene_shape, strict=True)),
        **dict(zip(("weight_frames", "weight_channels"), lead, strict=True)),
        "fit": _FITS[problem.fidelity.name],
        **{"kind": kinds[0], "norm": norms[0], "second": kinds[1], "second_norm": norms[1]},
        "periodic": blur.boundary.wraps,
        "boxed": bounded or domain.pinned or not regularizers,
        **{"held": held, "bounded": bounded, "pinned": domain.pinned},
    }
    key = ("admm", problem.dtype.char, weights is None, *layout.values())
    # Eleven: the data's arrays, the right-hand side, fresh, the spectra and the transforms' work areas.
    parts = 11 + 2 * (kinds[0] + kinds[1] + layout["boxed"])
    nbytes = parts * layout["size"] * problem.dtype.itemsize

    def make() -> GpuSteps:
        return GpuSteps(layout, problem.dtype, weights is not None)

    with pool(gpu).lend(key, make, nbytes) as found:
        found.bind(domain, problem, g, regularizers)
        yield found


class GpuSteps(Steps):
    """See `Steps`: the arrays that one solve at a time uses, its transforms and its captured iteration."""

    batch = _AT.BATCH

    def __init__(self, layout: dict[str, int], dtype: np.dtype, weighted: bool) -> None:
        self.layout, self.dtype = layout, dtype
        # The members of the kernels' `Layout`, in its order.
        self._layout = [layout[p.name] for p in signatures("admm")["gather"] if p.name in layout]
        shape = tuple(layout[name] for name in ("frames", "channels", "rows", "cols"))
        image = tuple(layout[name] for name in ("image_rows", "image_cols"))
        half, planes = shape[3] // 2 + 1, shape[0] * shape[1]
        counts = [layout["kind"], layout["second"], int(layout["boxed"])]
        self.store = store = cupy.empty((4 + 2 * sum(counts), *shape), dtype)
        self.fresh = cupy.empty((2, *shape), dtype)
        self.spectra = cupy.empty((2 * planes, shape[2], half), np.result_type(dtype, np.complex64))
        self.k = cupy.empty((shape[2], half), self.spectra.dtype)
        self.g = cupy.empty((*shape[:2], *image), dtype)
        self.w = None
        if weighted:
            self.w = cupy.empty((layout["weight_frames"], layout["weight_channels"], *image), dtype)
        self.powers = [cupy.empty(n, dtype) for n in (shape[2], half)]
        # Every split but the box has its own blocks.
        self.blocks = kernels.blocks("admm", layout["size"], per_multiprocessor=4)
        roles = 1 + (counts[0] > 0) + (counts[1] > 0)
        most = 4 * kernels.properties(cupy.cuda.runtime.getDevice()).multiprocessors
        self.update_blocks = roles * min(most // roles, self.blocks)
        self.control = cupy.zeros(_AT.CONTROL + _AT.BATCH * _AT.RECORD, np.float64)
        self.partial = cupy.empty(_AT.RECORD * self.blocks, np.float64)  # of each split
        self.ticket = cupy.zeros(1, np.uint32)
        self._plans = torus_gpu.new_plans(shape[2:], 2 * planes, dtype)
        self._one, self._several = Loop(1), Loop(0)
        # The data's t is the last array but one, next to the right-hand side: one transform takes both.
        self.x, self.u, self.t, self.rho, at = store[0], [[store[1]]], [[store[-2]]], [0.0], 2
        self._records = [0]  # where the sums of each split are
        for place, count in enumerate(counts, start=1):
            if count:
                self.u.append(list(store[at : at + count]))
                self.t.append(list(store[at + count : at + 2 * count]))
                self.rho.append(0.0)
                self._records.append(place)
                at += 2 * count

    def bind(self, domain: TorusDomain, problem: Problem, g: Array, regularizers: Sequence[Regularizer]) -> None:
        """Copy in the data of a solve."""
        self.domain, self.problem, self.regularizers, self.count = domain, problem, regularizers, 0
        combined(g, out=self.g)
        if self.w is not None:
            stored(self.w, problem.fidelity.weights)
        stored(self.k, domain.ks[0])
        for to, power in zip(self.powers, domain.squares, strict=True):
            stored(to, power.ravel())

    def statistics(self) -> tuple[float, float, float, float]:
        out = cupy.empty(_AT.STATISTICS, np.float64)
        self._launch("statistics", self.g, *self._layout, self.w, out, self.partial, self.ticket)
        visible, first, second, level, weight, largest = out.tolist()
        finfo = np.finfo(self.dtype)
        self._least = float(finfo.eps) * max(largest, float(finfo.tiny))
        mean, count = first / visible, self.g.size
        return weight / count, level / count, mean, math.sqrt(max(second / visible - mean**2, 0.0))

    def begin(self, rho: list[float]) -> None:
        problem, g = self.problem, self.g
        if self.w is not None:
            g = filled(g, self.w)
        self._launch(
            "first_scene", *self.store[-2:], *self._layout, g, problem.fidelity.background,
            brightness_of(problem.operator), *(problem.bounds or (0.0, 0.0)),
        )  # fmt: skip
        control = np.zeros(_AT.CONTROL)
        control[_AT.SCALE], control[_AT.RHO + 3] = self._scale(), 1.0
        self.control[: _AT.CONTROL].set(control)  # with these the step takes the right-hand side for x
        self._transform()
        self._launch("first_copies", self.store, *self._layout, self.fresh)
        self.rho = rho[: len(self.u)]

    def resume(self, state: State) -> None:
        self.x[...], self.rho = state.x, [*state.rho]
        for own, old in zip([*self.u, *self.t], [*state.u, *state.t], strict=True):
            for to, part in zip(own, old, strict=True):
                to[...] = part

    def prepare(self, lam: float, rtol: float, armed: bool) -> None:
        problem, at, c = self.problem, _AT, np.zeros(_AT.CONTROL)
        fidelity = problem.fidelity
        c[at.COUNT], c[at.ARMED], c[at.TOLERANCE], c[at.LEAST_SIZE] = self.count, armed, rtol, self.least_size
        c[at.RELAXATION], c[at.SCALE] = RELAXATION, self._scale()
        c[at.RHO] = self.rho[0]
        c[at.RHO + 3] = self.rho[-1] if self.layout["boxed"] else 0.0
        most = self.rho[0] * problem.operator.norm_bound**2 + c[at.RHO + 3]
        for i, regularizer in enumerate(self.regularizers):
            rho = self.rho[1 + i]
            c[at.RHO + 1 + i] = rho
            c[at.TAU + i] = lam / rho * regularizer.weight
            c[at.WEIGHT + i] = lam * regularizer.weight
            most += rho * 8.0 ** ORDER[regularizer.differences]  # the largest of the symbol
        c[at.FLOOR] = float(np.finfo(self.dtype).eps) * most
        c[at.BACKGROUND], c[at.DELTA], c[at.LEAST] = fidelity.background, fidelity.delta, self._least
        c[at.LOW], c[at.HIGH] = problem.bounds or (0.0, 0.0)
        self.control[: at.CONTROL].set(c)

    def submit(self, count: int) -> None:
        if count == _AT.BATCH:
            self._several(self._batch)
        else:
            for _ in range(count):
                self._one(self._step)

    def collect(self) -> tuple[np.ndarray, bool]:
        control = self.control.get()  # from here to the next launch the device waits
        before, self.count = self.count, int(control[_AT.COUNT])
        records = control[_AT.CONTROL :].reshape(-1, _AT.SPLITS, _AT.SUMS)[:, self._records]
        return records[[i % _AT.BATCH for i in range(before, self.count)]], bool(control[_AT.DONE])

    def rescale(self, split: int, factor: float) -> None:
        self.rho[split] *= factor
        for u, t in zip(self.u[split], self.t[split], strict=True):
            self._launch("rescale", u, t, u.size, 1 / factor)

    def state(self, lam: float, scale: Scale) -> State:
        return super().state(lam, scale).copy(len(self.x))

    def _scale(self) -> float:
        return 1 / (self.layout["rows"] * self.layout["cols"])

    def _launch(self, name: str, *args: object, blocks: int | None = None) -> None:
        kernels.launch("admm", name, blocks or self.blocks, _AT.THREADS, *args, dtype=self.dtype)

    def _transform(self) -> None:
        """Compute x and K x into `fresh`, from the last two arrays of `store`."""
        self._plans[0].fft(self.store[-2:], self.spectra, 0)
        args = (*self._layout, self.k.view(self.dtype), *self.powers, self.control)
        self._launch("combine", self.spectra.view(self.dtype), *args)
        self._plans[1].fft(self.spectra, self.fresh, 0)

    def _step(self) -> None:
        self._launch("gather", self.store, *self._layout, self.control)
        self._transform()
        self._launch(
            "update", self.store, *self._layout, self.fresh, self.g, self.w, self.control, self.partial, self.ticket,
            blocks=self.update_blocks,
        )  # fmt: skip

    def _batch(self) -> None:
        for _ in range(_AT.BATCH):
            self._step()

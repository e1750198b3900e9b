"""Domains of ADMM's scene, on which differences are diagonal in frequency.

A `TorusDomain` is a periodic domain around the scene, with lengths that suit the FFT. A blur by one PSF is diagonal in
frequency there, and the data do not reach beyond the frame. On a `VaryingDomain`, each of the blurs that make up a
varying PSF is diagonal. A `SceneDomain` is the scene itself: it uses any operator through its products, and a step
takes a few conjugate gradients. Domains do not depend on the image, λ or ρ, and they never change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from types import ModuleType
from typing import Any, Protocol, TypeGuard

import numpy as np
import scipy

from ..device import CPU, Array, Device, get_xp
from ..linalg.krylov import cg
from ..norms import combined, largest
from ..operators.blur import Blur
from ..operators.operator import Operator
from ..operators.torus import Torus
from ..operators.varying import VaryingBlur
from ..pixelwise import copied, fused
from ..problem import Problem
from ..terms import ORDER, first_difference_power
from ..threads import cores
from ..vector_ops import Systems
from .cosine import filtered
from .spectrum import cosine_symbol, diagonal

#: ADMM's only step that is not pixelwise. It takes t of the data split, the right-hand side of all other splits (which
#: it may overwrite) and the last x, and returns (x, K x).
Step = Callable[[list[Array], Array, Array], tuple[Array, list[Array]]]
#: `block_map(step, rows)` calls `step(frame, rows)` for all blocks of `rows` rows and returns the results in order.
BlockMap = Callable[[Callable[[int, slice], object], int], list]


class Domain(Protocol):
    """Computational domain that contains the scene: padding, transforms, and the blur K on it.

    Attributes
    ----------
    shape, data_shape : tuple of int
        Shape of the domain, and of each image of K x.
    scene, frame : tuple of slice
        Slices of the scene in the domain, and of the frame in an image of K x.
    border, adjoint_border : str
        Continuation by one pixel, for differences and for their transposes.
    pinned : bool
        Whether x must be zero beyond the scene.
    power : array
        |K|² in frequency; on a `SceneDomain`, the operator's `power`.
    parts : int
        Number of images in K x.
    mixed : tuple of arrays
        Weights with which the images of K x add up to H x, if there are several; ``mixed_power`` is Σ weight².
    squares : list of arrays
        |1 − e^{iω}|² along each axis, with broadcastable shapes. The symbols of differences are made of them.
    """

    shape: tuple[int, ...]
    data_shape: tuple[int, ...]
    scene: tuple[slice, ...]
    frame: tuple[slice, ...]
    border: str = "wrap"
    adjoint_border: str = "wrap"
    pinned: bool = False
    parts: int = 1
    mixed: tuple[Array, ...] = ()
    mixed_power: Array = 1.0
    power: Array
    squares: list[Array]
    dtype: np.dtype

    def filter(self, x: Array, by: Array) -> Array:
        """Multiply images, given in the domain's first corner, by a symbol in frequency."""

    def blurred(self, x: Array) -> list[Array]:
        """Return K x."""

    def transposed(self, y: list[Array]) -> Array:
        """Return Kᵀ y."""

    def mixture(self, parts: list[Array]) -> Array:
        """Return H x on the domain, from K x."""
        return sum(m * part for m, part in zip(self.mixed, parts, strict=True)) if self.mixed else parts[0]

    def stepper(self, rho: float, symbol: Array, tolerance: float, run: BlockMap) -> Step:
        """Return a step that solves with ρ KᵀK + symbol, to a relative residual of `tolerance`."""

    def power_of(self, operator: Operator) -> Array:
        """Return the mean of |H|² in frequency on this domain, for any operator, in float64."""

    def inverse(self, rho: float, symbol: Array | float, power: Array | None = None) -> Array:
        """Return 1/(ρ|K|² + symbol) in frequency; `power` replaces |K|². Sums below rounding are raised to it."""
        power = self.power if power is None else power
        number = power.dtype.type
        total = _total(power, number(rho), number(symbol) if isinstance(symbol, float) else symbol)
        # Frequencies that no term determines stay zero.
        _invert(total, total.dtype.type(np.finfo(self.dtype).eps * largest(total)))
        return total if total.dtype == self.dtype else copied(total, self.dtype)

    def regularised(self, rho: float, lam: float, kind: str, power: Array | None = None) -> Array:
        """Return `inverse` for the symbol λ Σ|L|² of differences of a kind."""
        return self.inverse(rho, combined(self.symbol(kind), a=lam), power)

    def symbol(self, kind: str) -> Array:
        """Return Σ|L|² in frequency, for differences of a kind."""
        total = _sum(*self.squares)
        if ORDER[kind] == 0:
            return total**0
        return total if ORDER[kind] == 1 else combined(total, by=total)

    def _measure(self, shape: Sequence[int], wraps: bool, device: Device) -> None:
        self.shape = tuple(shape)
        powers = [first_difference_power(n, wraps, device.xp) for n in shape]
        powers[-1] = powers[-1][: shape[-1] // 2 + 1 if wraps else None]
        self.squares = [p.reshape(-1, *[1] * after) for after, p in enumerate(reversed(powers))][::-1]


class TorusDomain(Domain):
    """A periodic domain around the scene, on which the blur K is diagonal in frequency.

    Attributes
    ----------
    ks : list of arrays
        The spectra of K's parts.
    """

    def __init__(self, blur: Blur, dtype: np.dtype, device: Device) -> None:
        # The transforms take a small part of a volume's time: the shortest lengths are best, as on the host.
        self.torus = Torus(blur.torus(CPU if blur.psf.ndim == 3 else device).lengths, device)
        self.dtype, self.device = dtype, device
        self._measure(self.torus.lengths, True, device)
        self.data_shape = self.shape
        self.scene = tuple(map(slice, blur.scene_shape))
        self.frame = blur.crop
        self.pinned = blur.boundary.dark
        self._psfs, self._origin = [blur.psf], blur.origin

    @cached_property
    def ks(self) -> list[Array]:
        return [self._spectrum(h) for h in self._psfs]

    def _spectrum(self, psf: Array) -> Array:
        return self.torus.spectrum(psf, self._origin, self.dtype)

    @cached_property
    def power(self) -> Array:
        return _power(*self.ks)

    def power_of(self, operator: Operator) -> Array:
        return operator.power(self.torus)

    def filter(self, x: Array, by: Array) -> Array:
        return self.torus.filter(x, by)

    def blurred(self, x: Array) -> list[Array]:
        return [self.torus.filter(x, k) for k in self.ks]

    def transposed(self, y: list[Array]) -> Array:
        return sum(self.torus.product(part, k, conjugate=True) for part, k in zip(y, self.ks, strict=True))

    def stepper(self, rho: float, symbol: Array, tolerance: float, run: BlockMap) -> Step:
        inverse, [*others, k] = self.inverse(rho, symbol), self.ks

        def step(t: list[Array], right: Array, _x: Array) -> tuple[Array, list[Array]]:
            a, b = self.torus.analyse(t[-1]), self.torus.analyse(right, overwrite=True)
            for one, other in zip(t, others, strict=False):
                part = self.torus.analyse(one)
                part *= rho * other.conj()
                b += part

            def multiply(i: int, rows: slice) -> None:
                at = (..., rows, *(slice(None),) * (len(self.shape) - 1))
                _step(a[i][at], b[i][at], k[at], inverse[at], inverse.dtype.type(rho))

            run(multiply, a.shape[2])
            kx = [self.torus.synthesise(a * other, overwrite=True) for other in others]
            a = self.torus.synthesise(a, overwrite=True)  # its spectrum is freed before the last transform
            return a, [*kx, self.torus.synthesise(b, overwrite=True)]

        return step


class VaryingDomain(TorusDomain):
    """A periodic domain around the scene for a varying PSF: K x consists of all C_k x, and H x = Σ w_k C_k x.

    Each C_k is diagonal in frequency, and the weights w_k enter the pixelwise step [1]_. No linear system is iterated
    on.

    References
    ----------
    .. [1] D. O'Connor, L. Vandenberghe, Total variation image deblurring with space-varying kernel, Comput. Optim.
       Appl. 67 (2017) 521-541.
    """

    def __init__(self, operator: VaryingBlur, dtype: np.dtype, device: Device) -> None:
        super().__init__(operator.mean_blur, dtype, device)
        weights, (*self._psfs,) = operator.principal(dtype, device)
        self.parts = len(self._psfs)
        # Beyond the frame there are no data, so any weights serve.
        self.mixed = tuple(device.xp.zeros(self.shape, dtype) for _ in self._psfs)
        self.mixed[0][...] = 1
        for wide, w in zip(self.mixed, weights, strict=True):
            wide[self.frame] = w
        self.mixed_power = sum(w * w for w in self.mixed)

    def _spectrum(self, psf: Array) -> Array:
        one = super()._spectrum
        return self.device.xp.stack([one(c) for c in psf]) if psf.ndim == 3 else one(psf)


class SceneDomain(Domain):
    """The scene itself, mirrored at its edges, or repeated if the operator's boundary wraps.

    Differences are diagonal in the cosine transform (in the Fourier transform if the boundary wraps). The operator
    enters through its products, by conjugate gradients with a preconditioner from the operator's `power`: its mean over
    the frequencies that mirroring identifies. If the cosine transform diagonalises a blur itself, the step is one
    division.
    """

    _STEPS = 30  # of conjugate gradients, at most

    def __init__(self, operator: Operator, dtype: np.dtype, device: Device) -> None:
        self.operator, self.dtype, self.device = operator, dtype, device
        boundary = operator.boundary
        self._measure(operator.scene_shape, boundary.wraps, device)
        self.data_shape = operator.image_shape
        self.scene, self.frame = (tuple(map(slice, shape)) for shape in (self.shape, self.data_shape))
        if boundary.wraps:
            self._torus = Torus(self.shape, device)
        else:
            self.border, self.adjoint_border = "edge", "constant"
        self.power = self.power_of(operator).astype(dtype)
        self._diagonal = diagonal(operator)

    def power_of(self, operator: Operator) -> Array:
        if operator.boundary.wraps:
            return operator.power(self._torus)
        blur = operator.shift_invariant
        if blur is not None and len(self.shape) != 2:  # a torus of twice the lengths would have eight times the volume
            lags = scipy.signal.correlate(blur.psf, blur.psf)
            for axis in range(lags.ndim):
                lags = 0.5 * (lags + np.flip(lags, axis))
            quarter = lags[tuple(slice(m - 1, None) for m in blur.psf.shape)]
            return cosine_symbol(quarter, [np.pi * np.arange(n) / n for n in self.shape], self.device).clip(0)
        power = operator.power(Torus([2 * n for n in self.shape], self.device))[..., : self.shape[-1]]
        for axis, n in enumerate(self.shape[:-1]):
            power = 0.5 * (power + self.device.xp.roll(self.device.xp.flip(power, axis), 1, axis))
            power = power[(slice(None),) * axis + (slice(n),)]
        return power

    def filter(self, x: Array, by: Array) -> Array:
        return self._torus.filter(x, by) if self.operator.boundary.wraps else filtered(x, by, len(self.shape))

    def blurred(self, x: Array) -> list[Array]:
        return [self.operator.forward(x)]

    def transposed(self, y: list[Array]) -> Array:
        return self.operator.adjoint(y[0]).copy()

    def stepper(self, rho: float, symbol: Array, tolerance: float, run: BlockMap) -> Step:
        inverse, operator = self.inverse(rho, symbol), self.operator
        symbol = None if self._diagonal else (symbol + 0 * self.power).astype(self.dtype)

        # K x is updated with the products K p of the conjugate gradients, and the norm that residuals are relative to
        # is kept. So a step needs one more product with Hᵀ and none with H. Both are computed anew every 16 steps,
        # before rounding adds up.
        held: dict[str, Any] = {"x": None}

        def apply(p: Array) -> Array:
            held["kp"] = operator.forward(p)
            return rho * operator.adjoint(held["kp"]) + self.filter(p, symbol)

        precondition = partial(self.filter, by=inverse)

        def step(ts: list[Array], right: Array, x: Array) -> tuple[Array, list[Array]]:
            [t] = ts
            if self._diagonal:
                x = precondition(right + rho * operator.adjoint(t))
                return x, [operator.forward(x)]
            dot = get_xp(x).vdot  # one step length for all frames
            if held["x"] is not x or held["steps"] == 16:
                kx, right = operator.forward(x), right + rho * operator.adjoint(t)
                held.update(steps=0, size=dot(right, right) ** 0.5)
                r = right - rho * operator.adjoint(kx) - self.filter(x, symbol)
            else:
                kx = held["kx"]
                r = right + rho * operator.adjoint(t - kx) - self.filter(x, symbol)
            size = held["size"] + (held["size"] == 0)

            def measure(at: Systems) -> float:
                nonlocal kx
                if "kp" in held:
                    kx = kx + at.alpha * held.pop("kp")
                return float(dot(at.r, at.r) ** 0.5 / size)

            # A step that starts within the tolerance would not move, and ADMM would stall.
            rtol = min(tolerance, max(0.1 * float(dot(r, r) ** 0.5 / size), 0.001 * tolerance))
            systems, most = Systems(dot, measure), self._STEPS
            x = x + cg(apply, r, systems, precondition=precondition, rtol=rtol, max_iterations=most)[0]
            held.update(x=x, kx=kx, steps=held["steps"] + 1)
            return x, [kx]

        return step


def splits(operator: Operator) -> TypeGuard[VaryingBlur]:
    """Return whether ADMM splits the operator into the blurs that a varying PSF is a weighted sum of."""
    # More than 32 terms take too much memory.
    return isinstance(operator, VaryingBlur) and not operator.boundary.continued and operator.terms <= 32


def domain_of(problem: Problem) -> Domain:
    """Return the domain for the problem's operator and boundary, cached with the operator if it is a torus."""
    operator, dtype, device = problem.operator, problem.dtype, problem.device
    blur = operator.shift_invariant
    if operator.boundary.continued or (blur is None and not splits(operator)):
        return SceneDomain(operator, dtype, device)  # not cached: it refers to the operator
    kind: Any = TorusDomain if blur else VaryingDomain
    owner: Any = operator if blur is None else blur
    return owner.cached(("domain", dtype, device), lambda: kind(owner, dtype, device))


@fused
def _sum(_xp: ModuleType, *parts: Array) -> Array:
    return sum(parts)


@fused
def _total(_xp: ModuleType, power: Array, rho: Array, symbol: Array) -> Array:
    return rho * power + symbol


@fused
def _invert(xp: ModuleType, total: Array, floor: Array) -> None:
    xp.maximum(total, floor, out=total)
    xp.divide(1, total, out=total)


@fused
def _power(_xp: ModuleType, *ks: Array) -> Array:
    return sum(abs(k) ** 2 for k in ks)


@fused
def _step(xp: ModuleType, a: Array, b: Array, k: Array, inverse: Array, rho: Array) -> None:
    """Replace the spectra `a` of t and `b` of the right-hand side by those of x and of K x."""
    a *= rho * xp.conj(k)
    a += b
    a *= inverse
    b[...] = a * k


@contextmanager
def block_map(problem: Problem, shape: tuple[int, ...]) -> Iterator[BlockMap]:
    """Yield a function that maps a pixelwise step over blocks of rows; see `BlockMap`.

    On the host, blocks fit a core's cache, and threads on all cores share them; on a GPU a block is a whole frame. Rows
    are along the first axis of space, so those of a volume are its slices. The threads end with the context.
    """
    frames, channels, _, *rest = shape
    bytes_of_a_block, whole = 1 << 19, problem.device.gpu is not None
    row = channels * math.prod(rest) * problem.dtype.itemsize
    most = max(8 if len(rest) < 2 else 1, bytes_of_a_block // row)
    busy = not whole and cores() > 1 and math.prod(shape) >= 1 << 14

    def run(step: Callable[[int, slice], object], rows: int) -> list:
        size = rows if whole else most
        work = [(i, slice(a, min(a + size, rows))) for i in range(frames) for a in range(0, rows, size)]
        return list((pool.map if pool else map)(step, *zip(*work, strict=True)))

    with ThreadPoolExecutor(cores()) if busy else nullcontext() as pool:
        yield run

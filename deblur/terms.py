"""The terms of the problem: fits to the data, regularizers and differences, each with value and proximal map.

The proximal map of a function φ with regularizer ρ takes q to the v that minimises φ(v) + ρ/2 ‖v − q‖². Every one
here is in closed form and works pixel by pixel (or, for vector norms, on all differences and colours of a
pixel), so that it may be applied to any block of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import combinations
from operator import add
from types import ModuleType

import numpy as np

from . import kernels
from .device import Array, cupy, get_xp, is_cupy
from .kernels import fused
from .norms import combined, squares, total

_AT = kernels.Constants("terms")

#: The numbers of norms and kinds of differences that ``cuda/differences.cuh`` knows.
NORMS = {"square": _AT.SQUARE, "absolute": _AT.ABSOLUTE, "vector": _AT.VECTOR_NORM}
KINDS = {"identity": 1, "gradient": 2, "hessian": 3}

# ---------------------------------------------------------------------------------------------
# Fits
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DataFidelity:
    """D(W; v + b, g) as a function of the blurred scene v = H f. Compared by value.

    Attributes
    ----------
    name : {"gaussian", "poisson", "l1", "huber"}
        ½ Σ w (v + b − g)²; Σ w (v + b − g + g log(g/(v + b))); Σ w |v + b − g|; the square up to δ, then its tangent.
    background : float
        b ≥ 0, light that reached the sensor without having been blurred.
    delta : float
        δ of "huber", in the units of g.
    weights : array or None
        W: a shape that broadcasts to the frames (k, c, M, N), of the problem's dtype and device; 0 hides a pixel.
        None is one everywhere.
    """

    name: str = "gaussian"
    background: float = 0.0
    delta: float = 0.01
    weights: Array | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataFidelity):
            return NotImplemented
        a, b = self.weights, other.weights
        if a is not b and (a is None or b is None or a.shape != b.shape or not bool((a == b).all())):
            return False
        return (self.name, self.background, self.delta) == (other.name, other.background, other.delta)

    def __hash__(self) -> int:
        return hash((self.name, self.background, self.delta))

    @property
    def w(self) -> Array | float:
        """W as it is, or 1."""
        return 1.0 if self.weights is None else self.weights

    def value(self, v: Array, g: Array, w: Array | float | None = None) -> float:
        """D, summed over all pixels; for "poisson" the Kullback-Leibler divergence, which is 0 at v + b = g.

        Parameters
        ----------
        v, g : arrays of one shape
        w : array that broadcasts to it
            The weights of these pixels, where they are a part of the frames; by default W.
        """
        return float(self.total(v, g, w))

    def total(self, v: Array, g: Array, w: Array | float | None = None) -> Array:
        """`value` as an array of no dimensions, which a GPU need not be waited for."""
        xp = get_xp(v)
        t = v + self.background if self.background else v
        if self.name == "gaussian":
            if w is None and self.weights is None:
                return 0.5 * squares(combined(t, g, b=-1))
            return 0.5 * total(_weighed_squares(t, g, self.w if w is None else w))
        if self.name == "poisson":
            # A sum that solves the problem to a tolerance may graze zero where photons were counted; the
            # floor keeps its value finite, and large.
            floor = np.finfo(t.dtype).eps * max(float(g.max()), np.finfo(t.dtype).tiny)
            w = self.w if w is None else w
            return total(_divergence(t, g, t.dtype.type(w) if np.isscalar(w) else w, t.dtype.type(floor)))
        terms = e = abs(t - g)
        if self.name == "huber":
            terms = xp.where(e <= self.delta, 0.5 * e**2, self.delta * (e - 0.5 * self.delta))
        return total((self.w if w is None else w) * terms)

    def prox(self, q: Array, g: Array, w: Array | float, rho: float) -> Array:
        """The v that minimises D(w; v + b, g) + ρ/2 ‖v − q‖²; where w = 0 it is q itself."""
        xp = get_xp(q)
        b = self.background
        if self.name == "gaussian":
            return _mixed(q, g - b if b else g, w, q.dtype.type(rho) if np.isscalar(rho) else rho)
        if self.name == "poisson":
            # t = v + b solves t² − c t − w g/ρ = 0; of the two forms of its root the one without cancellation.
            c = q + b - w / rho
            root = xp.sqrt(c**2 + (4 / rho) * (w * g))
            below = xp.where(c > 0, 1, root - c + (root == c))
            t = xp.where(c > 0, 0.5 * (c + root), (2 / rho) * (w * g) / below)
            return xp.where(w > 0, t - b, q)
        e = q - (g - b)
        if self.name == "l1":
            return q - xp.clip(e, -(w / rho), w / rho)
        return q - xp.clip(e * (w / (w + rho)), -(w / rho) * self.delta, (w / rho) * self.delta)


@fused
def _weighed_squares(_xp: ModuleType, t: Array, g: Array, w: Array) -> Array:
    e = t - g
    e *= e
    e *= w
    return e


@fused
def _divergence(xp: ModuleType, t: Array, g: Array, w: Array, floor: Array) -> Array:
    t = xp.maximum(t, floor)
    return w * (t - g + g * xp.log(xp.where(g > 0, g / t, 1)))


@fused
def _mixed(_xp: ModuleType, q: Array, g: Array, w: Array, rho: Array) -> Array:
    return (w * g + rho * q) / (w + rho)


FIDELITIES = ("gaussian", "poisson", "l1", "huber")

# ---------------------------------------------------------------------------------------------
# Differences
# ---------------------------------------------------------------------------------------------


class Difference:
    """One linear stencil on pixels, in the form in which a block of rows can be given to it.

    Parameters
    ----------
    *taps : (float, tuple of int)
        Weight and offset of a pixel, the offset -1, 0 or 1 along each axis; the first weighs one.
    scale : float
        A factor of all weights.

    Attributes
    ----------
    reach : tuple of (int, int)
        How many pixels before and after it touches along each axis. The term is counted where all of
        them lie in the scene: nothing is assumed of what lies outside (natural boundary conditions).
    even : bool
        Whether a mirrored scene has mirrored differences (second differences along one axis).
    """

    def __init__(self, *taps: tuple[float, tuple[int, ...]], scale: float = 1.0) -> None:
        self.taps, self.scale = taps, scale
        offsets = [at for _, at in taps]
        self.reach = tuple((max(0, -min(a)), max(0, *a)) for a in zip(*offsets, strict=True))
        self.even = {*offsets} == {tuple(-a for a in at) for at in offsets}

    def forward(self, p: Array) -> Array:
        """From a block with a border of one pixel to the block without it."""
        return self._applied(p, 1)

    def adjoint(self, p: Array) -> Array:
        """The transpose, from such a block to the block without its border."""
        return self._applied(p, -1)

    def _applied(self, p: Array, side: int) -> Array:
        (_, first), *rest = self.taps
        total = p[(..., *(_MOVED[side * a] for a in first))]
        for weight, at in rest:
            total = combined(total, p[(..., *(_MOVED[side * a] for a in at))], b=weight)
        return total if self.scale == 1 else combined(total, a=self.scale)


#: The part of an axis with a border of one pixel that lies so far from its inner part.
_MOVED = {-1: slice(None, -2), 0: slice(1, -1), 1: slice(2, None)}


def _first(axes: int) -> tuple[Difference, ...]:
    return tuple(Difference((1, unit), (-1, (0,) * axes)) for unit in _units(axes))


def _second(axes: int) -> tuple[Difference, ...]:
    units, here = _units(axes), (0,) * axes
    straight = [Difference((1, tuple(-a for a in u)), (1, u), (-2, here)) for u in units]
    mixed = [  # √2, for it stands for both mixed derivatives
        Difference((1, tuple(map(add, u, v))), (-1, u), (-1, v), (1, here), scale=math.sqrt(2))
        for u, v in combinations(units, 2)
    ]
    return *straight, *mixed


def _units(axes: int) -> list[tuple[int, ...]]:
    """The step of one pixel along each axis."""
    return [tuple(int(i == axis) for i in range(axes)) for axis in range(axes)]


#: The stencils of a kind, for so many axes of space.
DIFFERENCES: dict[str, Callable[[int], tuple[Difference, ...]]] = {
    "identity": cache(lambda axes: (Difference((1, (0,) * axes)),)),
    "gradient": cache(_first),
    "hessian": cache(_second),
}

#: Σ|L|² of a kind in frequency is the sum of those of the first differences along all axes, to this power.
ORDER = {"identity": 0, "gradient": 1, "hessian": 2}


def padded(x: Array, wrap: bool, axes: int = 2) -> Array:
    """`x` with a border of one pixel around its last axes: of its other end, or zeros."""
    if wrap:
        return get_xp(x).pad(x, [(0, 0)] * (x.ndim - axes) + [(1, 1)] * axes, mode="wrap")
    out = get_xp(x).zeros((*x.shape[:-axes], *(n + 2 for n in x.shape[-axes:])), x.dtype)
    combined(x, out=out[(..., *[slice(1, -1)] * axes)])
    return out


def inside(difference: Difference, shape: Sequence[int]) -> tuple[slice, ...]:
    """The pixels of a scene at which a difference is counted."""
    return tuple(slice(a, max(n - b, 0)) for (a, b), n in zip(difference.reach, shape, strict=True))


# ---------------------------------------------------------------------------------------------
# Regularizers
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regularizer:
    """One summand of R∘L: a norm of one kind of differences, times a weight.

    Attributes
    ----------
    differences : {"identity", "gradient", "hessian"}
    norm : {"square", "vector", "absolute"}
        ½ Σ u², Σ |u| with |u| the Euclidean norm over the differences and colours of a pixel, Σ|u_i|.
    weight : float
    """

    differences: str
    norm: str
    weight: float = 1.0

    def total(self, u: Sequence[Array]) -> Array:
        """The sum over all pixels, as an array of no dimensions, which a GPU need not be waited for.

        Parameters
        ----------
        u : sequence of (k, c, ...) arrays
            The differences; zero where they are not counted.
        """
        if self.norm == "square":
            return 0.5 * self.weight * reduce(add, map(squares, u))
        if self.norm == "absolute":
            return self.weight * reduce(add, (total(abs(c)) for c in u))
        return self.weight * total(_length(u))

    def prox(self, q: Sequence[Array], tau: float) -> list[Array]:
        """The u that minimises τ·regularizer(u) + ½‖u − q‖².

        Parameters
        ----------
        q : sequence of (k, c, ...) arrays
        tau : float
        """
        xp = get_xp(q[0])
        tau *= self.weight
        if self.norm == "square":
            return [c * (1 / (1 + tau)) for c in q]
        if self.norm == "absolute":
            return [c - xp.clip(c, -tau, tau) for c in q]
        return list(_shrunk(_length(q), *q[0].dtype.type([tau, tau or 1]), *q))


def _length(u: Sequence[Array]) -> Array:
    """|u| over differences and colours: (k, 1, ...)."""
    if u[0].shape[1] == 1:
        return kernels.pixelwise(lambda xp, *u: xp.sqrt(_sum_of_squares(xp, *u)), *u)
    return get_xp(u[0]).sqrt(kernels.pixelwise(_sum_of_squares, *u).sum(axis=1, keepdims=True))


def _sum_of_squares(_xp: ModuleType, *u: Array) -> Array:
    total = u[0] ** 2
    for c in u[1:]:
        total += c**2
    return total


@fused
def _shrunk(xp: ModuleType, length: Array, tau: Array, least: Array, *q: Array) -> tuple[Array, ...]:
    by = 1 - tau / xp.maximum(length, least)  # 0 where |q| ≤ τ, and no division by zero
    return tuple(c * by for c in q)


#: R∘L of each method as a sum of regularizers. "tv2" takes first and second order in equal parts (K. Papafitsoros,
#: C.-B. Schönlieb, J. Math. Imaging Vis. 48 (2014) 308-338): ramps stay ramps and edges stay edges.
REGULARIZERS: dict[str, tuple[Regularizer, ...]] = {
    "identity": (Regularizer("identity", "square"),),
    "gradient": (Regularizer("gradient", "square"),),
    "laplacian": (Regularizer("hessian", "square"),),
    "tv": (Regularizer("gradient", "vector"),),
    "tv-aniso": (Regularizer("gradient", "absolute"),),
    "tv2": (Regularizer("gradient", "vector", 0.5), Regularizer("hessian", "vector", 0.5)),
}


def differences(scene: Array, kind: str, wrap: bool, axes: int = 2) -> Iterator[Array]:
    """The differences of a scene, zero where they are not counted, one after the other.

    Parameters
    ----------
    scene : (..., P, Q) array
    kind : {"identity", "gradient", "hessian"}
    wrap : bool
        The scene is periodic, so that every difference is counted.
    axes : int
        Of space, the last ones.

    Yields
    ------
    (..., P, Q) array
    """
    p = padded(scene, wrap, axes)
    for difference in DIFFERENCES[kind](axes):  # none has a name here, which would keep it in memory
        yield difference.forward(p) if wrap else counted(difference.forward(p), difference)


def counted(u: Array, difference: Difference) -> Array:
    """Differences of a scene, and zero where they are not counted."""
    kept = get_xp(u).zeros_like(u)
    at = (..., *inside(difference, u.shape[-len(difference.reach) :]))
    combined(u[at], out=kept[at])
    return kept


def adjoint_differences(u: Iterable[Array], kind: str, wrap: bool, axes: int = 2) -> Array:
    """The exact transpose of `differences`, for `u` that is zero where they are not counted."""
    parts = map(lambda c, d: d.adjoint(padded(c, wrap, axes)), u, DIFFERENCES[kind](axes))
    found = next(parts)
    for part in parts:
        combined(found, part, out=found)
        del part  # before the next takes memory
    return found


def regularizer_value(method: str, scene: Array, wrap: bool) -> float:
    """R(L f) of a scene (k, c, P, Q), of any axes of space: NaN for a method whose prior has no value."""
    if method not in REGULARIZERS:
        return math.nan
    stated = [(p.differences, p.norm) for p in REGULARIZERS[method]]
    if is_cupy(scene) and gpu_serves(scene, stated):
        sums = values_on_gpu(scene, stated, wrap)
        return sum(p.weight * s for p, s in zip(REGULARIZERS[method], sums, strict=True))
    axes = scene.ndim - 2
    return sum(float(p.total([*differences(scene, p.differences, wrap, axes)])) for p in REGULARIZERS[method])


def first_difference_power(n: int, wrap: bool, xp: ModuleType) -> Array:
    """|1 − e^{iω}|² at the frequencies of a transform of `n` points: Fourier if `wrap`, else cosine (DCT-II)."""
    return xp.asarray(4 * np.sin(np.pi * np.arange(n) / (n if wrap else 2 * n)) ** 2)


#: The regularizers of the linear formula; of the second see `deblur.operators.natural`.
FORMULA = ("identity", "natural")


def is_quadratic(regularizer: str) -> bool:
    """Whether R is a sum of squares."""
    return regularizer in FORMULA or (
        regularizer in REGULARIZERS and all(p.norm == "square" for p in REGULARIZERS[regularizer])
    )


def values_on_gpu(scene: Array, regularizers: Sequence[tuple[str, str]], wrap: bool) -> list[float]:
    """The sums over all pixels of scenes (k, c, P, Q), for the (differences, norm) of each regularizer."""
    scene = cupy.ascontiguousarray(scene)
    reduction = kernels.Reduction("terms", math.prod(scene.shape[2:]) * len(scene))
    out = cupy.empty(len(regularizers), np.float64)
    for i, (kind, norm) in enumerate(regularizers):
        reduction.launch(
            "value", scene, *scene.shape, KINDS[kind], NORMS[norm], wrap, out[i : i + 1], dtype=scene.dtype
        )
    return out.get().tolist()


def gpu_serves(scene: Array, regularizers: Sequence[tuple[str, str]]) -> bool:
    """Whether `values_on_gpu` takes these: images of two axes, a plane of which has fewer than 2³¹ pixels."""
    known = all(kind in KINDS and norm in NORMS for kind, norm in regularizers)
    return known and scene.ndim == 4 and scene.dtype.char in "fd" and 0 < math.prod(scene.shape[2:]) < 1 << 31

"""The terms of a problem: data fidelities, regularizers and differences, each with its value and its proximal map.

The proximal map of a function φ with parameter ρ maps q to the v that minimises φ(v) + ρ/2 ‖v − q‖². Every map here has
a closed form and works on each pixel separately (for vector norms, on all differences and colours of a pixel). It can
therefore be applied to any block of rows.
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
from .norms import combined, squares, total
from .pixelwise import fused

_AT = kernels.Constants("terms")

#: The codes of norms and kinds of differences in ``cuda/differences.cuh``.
NORMS = {"square": _AT.SQUARE, "absolute": _AT.ABSOLUTE, "vector": _AT.VECTOR_NORM}
KINDS = {"identity": 1, "gradient": 2, "hessian": 3}

# ---------------------------------------------------------------------------------------------
# Data fidelities
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DataFidelity:
    """The data fidelity D(W; v + b, g), a function of the blurred scene v = H f. Fidelities are compared by value.

    Attributes
    ----------
    name : {"gaussian", "poisson", "l1", "huber"}
        "gaussian" is ½ Σ w (v + b − g)², "poisson" is Σ w (v + b − g + g log(g/(v + b))), "l1" is Σ w |v + b − g|, and
        "huber" is the square up to |v + b − g| = δ, continued by its tangent.
    background : float
        b ≥ 0, light that reaches the sensor without being blurred, in the units of g.
    delta : float
        δ of "huber", in the units of g.
    weights : array or None
        W, in a shape that broadcasts to the frames (k, c, M, N), with the dtype and device of the problem. 0 hides a
        pixel. None stands for weights of one.
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
        """The weights W, or 1."""
        return 1.0 if self.weights is None else self.weights

    def value(self, v: Array, g: Array, w: Array | float | None = None) -> float:
        """Return D, summed over all pixels; for "poisson" the Kullback-Leibler divergence, which is 0 at v + b = g.

        Parameters
        ----------
        v, g : arrays of one shape
            The blurred scene and the data.
        w : array that broadcasts to that shape
            The weights of these pixels if they are a part of the frames; by default W.
        """
        return float(self.total(v, g, w))

    def total(self, v: Array, g: Array, w: Array | float | None = None) -> Array:
        """Return `value` as a 0-D array, without waiting for a GPU."""
        xp = get_xp(v)
        t = v + self.background if self.background else v
        if self.name == "gaussian":
            if w is None and self.weights is None:
                return _half(squares(combined(t, g, b=-1)))
            return _half(total(_weighed_squares(t, g, self.w if w is None else w)))
        if self.name == "poisson":
            # A solution up to a tolerance may be almost zero at a pixel with photons. The floor keeps its value
            # finite, and large.
            floor = np.finfo(t.dtype).eps * max(float(g.max()), np.finfo(t.dtype).tiny)
            w = self.w if w is None else w
            return total(_divergence(t, g, t.dtype.type(w) if np.isscalar(w) else w, t.dtype.type(floor)))
        terms = e = abs(t - g)
        if self.name == "huber":
            terms = xp.where(e <= self.delta, 0.5 * e**2, self.delta * (e - 0.5 * self.delta))
        return total((self.w if w is None else w) * terms)

    def prox(self, q: Array, g: Array, w: Array | float, rho: float) -> Array:
        """Return the v that minimises D(w; v + b, g) + ρ/2 ‖v − q‖²; where w = 0 it is q."""
        xp = get_xp(q)
        b = self.background
        if self.name == "gaussian":
            return _mixed(q, g - b if b else g, w, q.dtype.type(rho) if np.isscalar(rho) else rho)
        if self.name == "poisson":
            # t = v + b solves t² − c t − w g/ρ = 0. Its root has two forms; this uses the one without cancellation.
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
def _half(_xp: ModuleType, x: Array) -> Array:
    return 0.5 * x


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
    """A linear stencil on pixels, which can be applied to any block of rows.

    Parameters
    ----------
    *taps : (float, tuple of int)
        Weight and offset of each pixel. An offset is -1, 0 or 1 along each axis. The first weight must be 1.
    scale : float
        A factor of all weights.

    Attributes
    ----------
    reach : tuple of (int, int)
        The number of pixels before and after that the stencil needs along each axis. A difference counts only where all
        its pixels are inside the scene, so nothing is assumed of the outside (natural boundary conditions).
    even : bool
        True if the differences of a mirrored scene are the mirrored differences (second differences along one axis).
    """

    def __init__(self, *taps: tuple[float, tuple[int, ...]], scale: float = 1.0) -> None:
        self.taps, self.scale = taps, scale
        offsets = [at for _, at in taps]
        self.reach = tuple((max(0, -min(a)), max(0, *a)) for a in zip(*offsets, strict=True))
        self.even = {*offsets} == {tuple(-a for a in at) for at in offsets}

    def forward(self, p: Array) -> Array:
        """Return the differences of a block with a border of one pixel, for the block without the border."""
        return self._applied(p, 1)

    def adjoint(self, p: Array) -> Array:
        """Return the transpose of `forward` for a block with a border of one pixel, for the block without
        the border.
        """
        return self._applied(p, -1)

    def _applied(self, p: Array, side: int) -> Array:
        (_, first), *rest = self.taps
        total = p[(..., *(_MOVED[side * a] for a in first))]
        for weight, at in rest:
            total = combined(total, p[(..., *(_MOVED[side * a] for a in at))], b=weight)
        return total if self.scale == 1 else combined(total, a=self.scale)


#: The inner part of an axis with a border of one pixel, shifted by -1, 0 or 1.
_MOVED = {-1: slice(None, -2), 0: slice(1, -1), 1: slice(2, None)}


def _first(axes: int) -> tuple[Difference, ...]:
    return tuple(Difference((1, unit), (-1, (0,) * axes)) for unit in _units(axes))


def _second(axes: int) -> tuple[Difference, ...]:
    units, here = _units(axes), (0,) * axes
    straight = [Difference((1, tuple(-a for a in u)), (1, u), (-2, here)) for u in units]
    mixed = [  # √2, since it stands for both mixed derivatives
        Difference((1, tuple(map(add, u, v))), (-1, u), (-1, v), (1, here), scale=math.sqrt(2))
        for u, v in combinations(units, 2)
    ]
    return *straight, *mixed


def _units(axes: int) -> list[tuple[int, ...]]:
    """Return the step of one pixel along each axis."""
    return [tuple(int(i == axis) for i in range(axes)) for axis in range(axes)]


#: The stencils of each kind, as a function of the number of spatial axes.
DIFFERENCES: dict[str, Callable[[int], tuple[Difference, ...]]] = {
    "identity": cache(lambda axes: (Difference((1, (0,) * axes)),)),
    "gradient": cache(_first),
    "hessian": cache(_second),
}

#: In frequency, Σ|L|² of a kind is this power of the sum of |1 − e^{iω}|² over all axes.
ORDER = {"identity": 0, "gradient": 1, "hessian": 2}


def padded(x: Array, wrap: bool, axes: int = 2) -> Array:
    """Return `x` with a border of one pixel around its last axes: pixels of the opposite side if `wrap`, else zeros."""
    if wrap:
        return get_xp(x).pad(x, [(0, 0)] * (x.ndim - axes) + [(1, 1)] * axes, mode="wrap")
    out = get_xp(x).zeros((*x.shape[:-axes], *(n + 2 for n in x.shape[-axes:])), x.dtype)
    combined(x, out=out[(..., *[slice(1, -1)] * axes)])
    return out


def inside(difference: Difference, shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the pixels of a scene at which a difference counts."""
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
        The differences u = L f.
    norm : {"square", "vector", "absolute"}
        "square" is ½ Σ u²; "vector" is Σ |u|, where |u| is the Euclidean norm over the differences and colours of a
        pixel; "absolute" is Σ|u_i|.
    weight : float
        A factor of the norm.
    """

    differences: str
    norm: str
    weight: float = 1.0

    def total(self, u: Sequence[Array]) -> Array:
        """Return the sum over all pixels as a 0-D array, without waiting for a GPU.

        Parameters
        ----------
        u : sequence of (k, c, ...) arrays
            The differences; zero where they do not count.
        """
        if self.norm == "square":
            return 0.5 * self.weight * reduce(add, map(squares, u))
        if self.norm == "absolute":
            return self.weight * reduce(add, (total(abs(c)) for c in u))
        return self.weight * total(_length(u))

    def prox(self, q: Sequence[Array], tau: float) -> list[Array]:
        """Return the u that minimises τ·regularizer(u) + ½‖u − q‖².

        Parameters
        ----------
        q : sequence of (k, c, ...) arrays
            Differences.
        tau : float
            The factor τ.
        """
        xp = get_xp(q[0])
        tau *= self.weight
        if self.norm == "square":
            return [c * (1 / (1 + tau)) for c in q]
        if self.norm == "absolute":
            return [c - xp.clip(c, -tau, tau) for c in q]
        return list(_shrunk(_length(q), *q[0].dtype.type([tau, tau or 1]), *q))


def _length(u: Sequence[Array]) -> Array:
    """Return |u| over differences and colours, (k, 1, ...)."""
    if u[0].shape[1] == 1:
        return _norm(*u)
    return get_xp(u[0]).sqrt(_sum_of_squares(*u).sum(axis=1, keepdims=True))


@fused
def _norm(xp: ModuleType, *u: Array) -> Array:
    return xp.sqrt(_sum_of_squares(*u))


@fused
def _sum_of_squares(_xp: ModuleType, *u: Array) -> Array:
    total = u[0] ** 2
    for c in u[1:]:
        total += c**2
    return total


@fused
def _shrunk(xp: ModuleType, length: Array, tau: Array, least: Array, *q: Array) -> tuple[Array, ...]:
    by = 1 - tau / xp.maximum(length, least)  # 0 where |q| ≤ τ, without a division by zero
    return tuple(c * by for c in q)


#: R∘L of each method as a sum of regularizers. "tv2" weighs first and second order equally (K. Papafitsoros, C.-B.
#: Schönlieb, J. Math. Imaging Vis. 48 (2014) 308-338), which keeps both ramps and edges.
REGULARIZERS: dict[str, tuple[Regularizer, ...]] = {
    "identity": (Regularizer("identity", "square"),),
    "gradient": (Regularizer("gradient", "square"),),
    "laplacian": (Regularizer("hessian", "square"),),
    "tv": (Regularizer("gradient", "vector"),),
    "tv-aniso": (Regularizer("gradient", "absolute"),),
    "tv2": (Regularizer("gradient", "vector", 0.5), Regularizer("hessian", "vector", 0.5)),
}


def kind_of(regularizer: str) -> str:
    """Return the kind of differences of a quadratic regularizer."""
    return REGULARIZERS[regularizer][0].differences


def differences(scene: Array, kind: str, wrap: bool, axes: int = 2) -> Iterator[Array]:
    """Yield the differences of a scene, one stencil after the other; they are zero where they do not count.

    Parameters
    ----------
    scene : (..., P, Q) array
        The scene.
    kind : {"identity", "gradient", "hessian"}
        The kind of differences.
    wrap : bool
        True if the scene is periodic, so that all differences count.
    axes : int
        Number of spatial axes, which are the last ones.

    Yields
    ------
    (..., P, Q) array
    """
    p = padded(scene, wrap, axes)
    for difference in DIFFERENCES[kind](axes):  # no variable may keep a difference in memory
        yield difference.forward(p) if wrap else counted(difference.forward(p), difference)


def counted(u: Array, difference: Difference) -> Array:
    """Return differences of a scene with zero where they do not count."""
    kept = get_xp(u).zeros_like(u)
    at = (..., *inside(difference, u.shape[-len(difference.reach) :]))
    combined(u[at], out=kept[at])
    return kept


def adjoint_differences(u: Iterable[Array], kind: str, wrap: bool, axes: int = 2) -> Array:
    """Return the exact transpose of `differences`, for `u` that is zero where the differences do not count."""
    parts = map(lambda c, d: d.adjoint(padded(c, wrap, axes)), u, DIFFERENCES[kind](axes))
    found = next(parts)
    for part in parts:
        combined(found, part, out=found)
        del part  # free the memory before the next part
    return found


def regularizer_value(method: str, scene: Array, wrap: bool) -> float:
    """Return R(L f) of a scene (k, c, *space); NaN for a method whose regularizer has no value."""
    if method not in REGULARIZERS:
        return math.nan
    stated = [(p.differences, p.norm) for p in REGULARIZERS[method]]
    if is_cupy(scene) and gpu_serves(scene, stated):
        sums = values_on_gpu(scene, stated, wrap)
        return sum(p.weight * s for p, s in zip(REGULARIZERS[method], sums, strict=True))
    axes = scene.ndim - 2
    return sum(float(p.total([*differences(scene, p.differences, wrap, axes)])) for p in REGULARIZERS[method])


def first_difference_power(n: int, wrap: bool, xp: ModuleType) -> Array:
    """Return |1 − e^{iω}|² at the frequencies of a transform of `n` points: Fourier if `wrap`, else cosine (DCT-II)."""
    return xp.asarray(4 * np.sin(np.pi * np.arange(n) / (n if wrap else 2 * n)) ** 2)


#: The regularizers of the linear formula; `deblur.operators.natural` describes the second.
FORMULA = ("identity", "natural")


def is_quadratic(regularizer: str) -> bool:
    """Return True if R is a sum of squares."""
    return regularizer in FORMULA or (
        regularizer in REGULARIZERS and all(p.norm == "square" for p in REGULARIZERS[regularizer])
    )


def values_on_gpu(scene: Array, regularizers: Sequence[tuple[str, str]], wrap: bool) -> list[float]:
    """Return the values of regularizers, given as (differences, norm), for scenes (k, c, P, Q) on a GPU, without
    weights.
    """
    scene = cupy.ascontiguousarray(scene)
    reduction = kernels.Reduction("terms", math.prod(scene.shape[2:]) * len(scene))
    out = cupy.empty(len(regularizers), np.float64)
    for i, (kind, norm) in enumerate(regularizers):
        reduction.launch(
            "value", scene, *scene.shape, KINDS[kind], NORMS[norm], wrap, out[i : i + 1], dtype=scene.dtype
        )
    return out.get().tolist()


def gpu_serves(scene: Array, regularizers: Sequence[tuple[str, str]]) -> bool:
    """Return True if `values_on_gpu` can do this: images of two axes whose planes have fewer than 2³¹ pixels."""
    known = all(kind in KINDS and norm in NORMS for kind, norm in regularizers)
    return known and scene.ndim == 4 and scene.dtype.char in "fd" and 0 < math.prod(scene.shape[2:]) < 1 << 31

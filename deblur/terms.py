"""The terms of the problem: fits to the data, regularizers and differences, each with value and proximal map.

The proximal map of a function φ with regularizer ρ takes q to the v that minimises φ(v) + ρ/2 ‖v − q‖². Every one
here is in closed form and works pixel by pixel (or, for vector norms, on all differences and colours of a
pixel), so that it may be applied to any block of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from types import ModuleType

import numpy as np

from . import terms_gpu
from .device import Array, get_xp, is_cupy
from .norms import squares, total

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
                return 0.5 * squares(t - g)
            terms = 0.5 * (t - g) ** 2
        elif self.name == "poisson":
            # A sum that solves the problem to a tolerance may graze zero where photons were counted; the
            # floor keeps its value finite, and large.
            floor = np.finfo(t.dtype).eps * max(float(g.max()), np.finfo(t.dtype).tiny)
            t = xp.maximum(t, floor)
            terms = t - g + g * xp.log(xp.where(g > 0, g / t, 1))
        else:
            terms = e = abs(t - g)
            if self.name == "huber":
                terms = xp.where(e <= self.delta, 0.5 * e**2, self.delta * (e - 0.5 * self.delta))
        return total((self.w if w is None else w) * terms)

    def prox(self, q: Array, g: Array, w: Array | float, rho: float) -> Array:
        """The v that minimises D(w; v + b, g) + ρ/2 ‖v − q‖²; where w = 0 it is q itself."""
        xp = get_xp(q)
        b = self.background
        if self.name == "gaussian":
            return (w * (g - b) + rho * q) / (w + rho) if b else (w * g + rho * q) / (w + rho)
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
        step = w / (w + rho)
        return q - xp.clip(e * step, -(w / rho) * self.delta, (w / rho) * self.delta)


FIDELITIES = ("gaussian", "poisson", "l1", "huber")

# ---------------------------------------------------------------------------------------------
# Differences
# ---------------------------------------------------------------------------------------------

_Core = (slice(1, -1), slice(1, -1))


@dataclass(frozen=True)
class Difference:
    """One linear stencil on pixels, in the form in which a block of rows can be given to it.

    Attributes
    ----------
    forward, adjoint : callable
        From a block with a border of one pixel to the block without it.
    reach : ((int, int), (int, int))
        How many pixels before and after it touches along rows and columns. The term is counted where all of
        them lie in the scene: nothing is assumed of what lies outside (natural boundary conditions).
    even : bool
        Whether a mirrored scene has mirrored differences (second differences along one axis).
    """

    forward: Callable[[Array], Array]
    adjoint: Callable[[Array], Array]
    reach: tuple[tuple[int, int], tuple[int, int]]
    even: bool = False


def _second(axis: int) -> Callable[[Array], Array]:
    def apply(p: Array) -> Array:
        core = p[(..., *_Core)]
        if axis == 0:
            return p[..., :-2, 1:-1] + p[..., 2:, 1:-1] - 2 * core
        return p[..., 1:-1, :-2] + p[..., 1:-1, 2:] - 2 * core

    return apply


_ROWS = Difference(
    lambda p: p[..., 2:, 1:-1] - p[(..., *_Core)],
    lambda p: p[..., :-2, 1:-1] - p[(..., *_Core)],
    ((0, 1), (0, 0)),
)
_COLS = Difference(
    lambda p: p[..., 1:-1, 2:] - p[(..., *_Core)],
    lambda p: p[..., 1:-1, :-2] - p[(..., *_Core)],
    ((0, 0), (0, 1)),
)
_MIXED = Difference(  # √2, for it stands for both mixed derivatives
    lambda p: math.sqrt(2) * (p[..., 2:, 2:] - p[..., 2:, 1:-1] - p[..., 1:-1, 2:] + p[(..., *_Core)]),
    lambda p: math.sqrt(2) * (p[..., :-2, :-2] - p[..., :-2, 1:-1] - p[..., 1:-1, :-2] + p[(..., *_Core)]),
    ((0, 1), (0, 1)),
)
_ROWS2 = Difference(_second(0), _second(0), ((1, 1), (0, 0)), even=True)
_COLS2 = Difference(_second(1), _second(1), ((0, 0), (1, 1)), even=True)
_ITSELF = Difference(lambda p: p[(..., *_Core)], lambda p: p[(..., *_Core)], ((0, 0), (0, 0)), even=True)

DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "identity": (_ITSELF,),
    "gradient": (_ROWS, _COLS),
    "hessian": (_ROWS2, _COLS2, _MIXED),
}

#: Σ|L|² of a kind in frequency is the sum of those of the first differences along rows and columns, to this power.
ORDER = {"identity": 0, "gradient": 1, "hessian": 2}


def padded(x: Array, wrap: bool) -> Array:
    """`x` with a border of one pixel: of its other end, or zeros."""
    pads = [(0, 0)] * (x.ndim - 2) + [(1, 1), (1, 1)]
    return get_xp(x).pad(x, pads, mode="wrap" if wrap else "constant")


def inside(difference: Difference, shape: tuple[int, int]) -> tuple[slice, slice]:
    """The pixels of a scene at which a difference is counted."""
    (r0, r1), (c0, c1) = difference.reach
    return slice(r0, max(shape[0] - r1, 0)), slice(c0, max(shape[1] - c1, 0))


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

    def value(self, u: Sequence[Array]) -> float:
        """The sum over all pixels.

        Parameters
        ----------
        u : sequence of (k, c, rows, cols) arrays
            The differences; zero where they are not counted.
        """
        return float(self.total(u))

    def total(self, u: Sequence[Array]) -> Array:
        """`value` as an array of no dimensions, which a GPU need not be waited for."""
        if self.norm == "square":
            return 0.5 * self.weight * reduce(add, map(squares, u))
        if self.norm == "absolute":
            return self.weight * reduce(add, (total(abs(c)) for c in u))
        return self.weight * total(get_xp(u[0]).sqrt(_power(u)))

    def prox(self, q: Sequence[Array], tau: float) -> list[Array]:
        """The u that minimises τ·regularizer(u) + ½‖u − q‖².

        Parameters
        ----------
        q : sequence of (k, c, rows, cols) arrays
        tau : float
        """
        xp = get_xp(q[0])
        tau *= self.weight
        if self.norm == "square":
            return [c * (1 / (1 + tau)) for c in q]
        if self.norm == "absolute":
            return [c - xp.clip(c, -tau, tau) for c in q]
        n = xp.sqrt(_power(q))
        shrink = 1 - tau / xp.maximum(n, tau or 1)  # 0 where |q| ≤ τ, and no division by zero
        return [c * shrink for c in q]


def _power(u: Sequence[Array]) -> Array:
    """|u|² over differences and colours: (k, 1, rows, cols)."""
    total = u[0] ** 2
    for c in u[1:]:
        total += c**2
    return total.sum(axis=1, keepdims=True) if total.shape[1] > 1 else total


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


def differences(scene: Array, kind: str, wrap: bool) -> list[Array]:
    """The differences of a scene, zero where they are not counted.

    Parameters
    ----------
    scene : (..., P, Q) array
    kind : {"identity", "gradient", "hessian"}
    wrap : bool
        The scene is periodic, so that every difference is counted.

    Returns
    -------
    list of (..., P, Q) arrays
    """
    p = padded(scene, wrap)
    found = []
    for difference in DIFFERENCES[kind]:
        u = difference.forward(p)
        if not wrap:
            kept = get_xp(scene).zeros_like(scene)
            at = (..., *inside(difference, scene.shape[-2:]))
            kept[at] = u[at]
            u = kept
        found.append(u)
    return found


def adjoint_differences(u: Sequence[Array], kind: str, wrap: bool) -> Array:
    """The exact transpose of `differences`, for `u` that is zero where they are not counted."""
    return sum(d.adjoint(padded(c, wrap)) for c, d in zip(u, DIFFERENCES[kind], strict=True))


def regularizer_value(method: str, scene: Array, wrap: bool) -> float:
    """R(L f) of a scene (k, c, P, Q): NaN for a method whose prior has no value."""
    if method not in REGULARIZERS:
        return math.nan
    stated = [(p.differences, p.norm) for p in REGULARIZERS[method]]
    if is_cupy(scene) and terms_gpu.serves(scene, stated):
        sums = terms_gpu.values(scene, stated, wrap)
        return sum(p.weight * s for p, s in zip(REGULARIZERS[method], sums, strict=True))
    return sum(p.value(differences(scene, p.differences, wrap)) for p in REGULARIZERS[method])


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

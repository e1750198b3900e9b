"""Data terms, differences and regularizers: proximal maps against numerical minimisation, transposes by dot tests."""

from functools import reduce

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from deblur import terms
from deblur.terms import FIDELITIES, REGULARIZERS, DataFidelity, Regularizer, regularizer_value

SHAPES = [(1, 1), (1, 6), (2, 2), (5, 1), (3, 4), (17, 19), (5,), (3, 1, 4)]


@pytest.mark.parametrize("background", [0.0, 0.3])
@pytest.mark.parametrize("name", FIDELITIES)
def test_the_proximal_map_of_a_data_term_minimises_its_objective(rng, name, background):
    term = DataFidelity(name, background, delta=0.2)
    for _ in range(40):
        g, w = (rng.choice([0.0, rng.random(), largest]) for largest in (3.0, 4.0))
        rho = 10 ** rng.uniform(-1, 2)
        q = rng.uniform(-2, 3)

        def value(v, g=g, w=w, q=q, rho=rho):
            return term.value(np.array([v]), np.array([g]), w) + rho / 2 * (v - q) ** 2

        found = float(term.prox(np.array([q]), np.array([g]), np.array([w]), rho)[0])
        low = -background + 1e-12 if name == "poisson" and w > 0 else -20
        best = minimize_scalar(value, bounds=(low, 20), method="bounded", options={"xatol": 1e-10})
        assert value(found) <= best.fun + 1e-9, (g, w, rho, q)
        assert abs(found - best.x) <= 1e-3, (g, w, rho, q)
        if w == 0:
            assert found == pytest.approx(q, rel=1e-15)


def test_poisson_counts_and_their_floor():
    term = DataFidelity("poisson")
    g = np.array([0.0, 1.0, 2.5])
    assert term.value(g, g) == pytest.approx(0.0, abs=1e-15)
    assert term.value(np.array([1.0, 1.0, 1.0]), g) == pytest.approx(1 + 2.5 * np.log(2.5) - 1.5)
    assert np.isfinite(term.value(np.array([-1.0, 0.0, 1.0]), g))
    # a step that is far below zero: the root without cancellation keeps its digits
    assert term.prox(np.array([-1e9]), np.array([1.0]), 1.0, 1.0)[0] == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize("tau", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("norm", ["square", "vector", "absolute"])
def test_the_proximal_map_of_a_regularizer_minimises_its_objective(rng, norm, tau):
    regularizer = Regularizer("gradient", norm, 0.7)
    q = list(rng.standard_normal((2, 1, 2, 1, 1)))  # two differences of two colours at one pixel

    def value(u):
        return tau * regularizer.total(list(u.reshape(2, 1, 2, 1, 1))) + 0.5 * np.sum((u - np.ravel(q)) ** 2)

    found = np.ravel(regularizer.prox(q, tau))
    options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 10000, "maxfev": 10000}
    best = minimize(value, found + 0.1 * rng.standard_normal(4), method="Nelder-Mead", options=options)
    # value is 1-strongly convex: no other point can be lower by 1e-10 unless `found` is off by 1e-5
    assert value(found) <= best.fun + 1e-10


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("kind", terms.DIFFERENCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_transposed_differences_are_the_transpose(rng, shape, kind, wrap):
    x, axes = rng.standard_normal((2, 1, *shape)), len(shape)
    forward = [*terms.differences(x, kind, wrap, axes)]
    y = [np.zeros_like(u) for u in forward]  # zero where a difference is not counted
    for difference, v in zip(terms.DIFFERENCES[kind](axes), y, strict=True):
        at = (..., *((slice(None),) * axes if wrap else terms.inside(difference, shape)))
        v[at] = rng.standard_normal(v[at].shape)
    left = sum(float(np.vdot(a, b)) for a, b in zip(forward, y, strict=True))
    right = float(np.vdot(x, terms.adjoint_differences(y, kind, wrap, axes)))
    assert abs(left - right) <= 1e-12 * (1 + abs(left))


def test_nothing_is_assumed_beyond_the_scene():
    rows, cols = np.meshgrid(np.arange(6.0), np.arange(5.0), indexing="ij")
    plane = (2 * rows - 3 * cols + 1)[None, None]
    assert terms.regularizer_value("laplacian", plane, wrap=False) == pytest.approx(0, abs=1e-20)
    assert terms.regularizer_value("laplacian", plane, wrap=True) > 1
    # 5 rows of differences of 2, 4 columns of differences of 3; the last row and column have but one of them
    value = sum(np.hypot(2 * (i < 5), 3 * (j < 4)) for i in range(6) for j in range(5))
    assert terms.regularizer_value("tv", plane, wrap=False) == pytest.approx(value)
    assert terms.regularizer_value("tv-aniso", plane, wrap=False) == pytest.approx(2 * 25 + 3 * 24)
    assert terms.regularizer_value("gradient", plane, wrap=False) == pytest.approx(0.5 * (4 * 25 + 9 * 24))


def test_colours_share_their_edges(rng):
    one = rng.random((1, 1, 7, 8))
    three = np.repeat(one, 3, axis=1)
    alone = terms.regularizer_value("tv", one, wrap=False)
    assert terms.regularizer_value("tv", three, wrap=False) == pytest.approx(np.sqrt(3) * alone)
    assert terms.regularizer_value("tv-aniso", three, wrap=False) == pytest.approx(
        3 * terms.regularizer_value("tv-aniso", one, wrap=False)
    )


@pytest.mark.parametrize("shape", [(8, 6), (5, 7), (1, 4), (6,), (4, 5, 6)])
@pytest.mark.parametrize("kind", terms.DIFFERENCES)
def test_the_symbols_are_the_eigenvalues_of_the_periodic_differences(rng, shape, kind):
    x = rng.standard_normal(shape)[None, None]
    powers, axes = [terms.first_difference_power(n, True, np) for n in shape], len(shape)
    symbol = reduce(np.add.outer, powers) ** terms.ORDER[kind]
    by_frequency = np.fft.ifftn(np.fft.fftn(x, shape, range(2, 2 + axes)) * symbol, shape, range(2, 2 + axes)).real
    direct = terms.adjoint_differences(terms.differences(x, kind, True, axes), kind, True, axes)
    assert np.abs(by_frequency - direct).max() <= 1e-12 * np.abs(x).max() * 64


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 1, 9), (2, 3, 33, 50), (1, 1, 300, 401)])
@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("method", REGULARIZERS)
def test_a_regularizer_has_the_same_value_on_the_gpu(cupy, rng, dtype, shape, wrap, method):
    scene = rng.standard_normal(shape).astype(dtype)
    wanted = regularizer_value(method, scene.astype(float), wrap)
    there = cupy.asarray(scene)
    assert terms.gpu_serves(there, [(p.differences, p.norm) for p in REGULARIZERS[method]])
    found = regularizer_value(method, there, wrap)
    assert found == pytest.approx(wanted, rel=float(20 * np.finfo(dtype).eps))
    assert found == regularizer_value(method, cupy.asfortranarray(there), wrap)

"""The GPU product and transpose against float64, on hostile sizes and views, one engine after another."""

import numpy as np
import pytest

from deblur.linalg import _gemm

pytestmark = pytest.mark.gpu

EPS = {"f": 2.0**-23, "d": 2.0**-52}
OWN = [("split", "f"), ("half", "f"), ("tensor", "f"), ("tiled", "f"), ("tensor", "d"), ("tiled", "d")]
ENGINES = [*OWN, ("cublas", "f"), ("cublas", "d")]
SIZES = [(1, 1, 1), (17, 5, 3), (127, 129, 33), (129, 257, 128), (300, 1000, 65), (513, 385, 1000)]


def uniform(rng, cupy, shape, dtype, low=-1.0):
    return cupy.asarray(rng.uniform(low, 1, shape).astype(dtype))


def in_a_frame(cupy, values, margin=3):
    """`values` as a view into a larger array of NaN: odd offset, leading dimension not the width."""
    rows, cols = values.shape
    frame = cupy.full((rows + 2 * margin, cols + 2 * margin + 1), np.nan, values.dtype)
    view = frame[margin : margin + rows, margin : margin + cols]
    view[...] = values
    return frame, view


def allowed(a, b, k, dtype, factor):
    """The error of each element: so many roundings of the sum of absolute products."""
    return factor * EPS[dtype] * (abs(a).astype(np.float64) @ abs(b).astype(np.float64)) + 1e-300


def factor_of(engine, k):
    # Sums outside the tensor cores are short; the others add k terms one after the other.
    return 8 if engine in ("split", "half") else 4 + 0.5 * np.sqrt(k)


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("transb", [False, True])
def test_product_of_views(cupy, rng, engine, dtype, transa, transb):
    for m, n, k in SIZES:
        a, b = uniform(rng, cupy, (m, k), dtype), uniform(rng, cupy, (k, n), dtype)
        old = uniform(rng, cupy, (m, n), dtype)
        _, a_view = in_a_frame(cupy, a.T if transa else a)
        _, b_view = in_a_frame(cupy, b.T if transb else b)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = allowed(a, b, k, dtype, factor_of(engine, k))
        for alpha, beta in ((1.0, 0.0), (-0.5, 1.0), (2.0, -0.25)):
            frame, c = in_a_frame(cupy, old if beta else cupy.full_like(old, np.nan))
            returned = _gemm.gemm(a_view, b_view, c, alpha, beta, transa, transb, engine=engine)
            assert returned is c
            want = alpha * exact + (beta * old.astype(np.float64) if beta else 0)
            slack = abs(alpha) * bound + 2 * EPS[dtype] * abs(beta * old.astype(np.float64))
            assert bool((abs(c - want) <= slack + EPS[dtype] * abs(want)).all()), (m, n, k, alpha, beta)
            c[...] = np.nan
            assert bool(cupy.isnan(frame).all()), "something was written outside c"


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
def test_lower_only_leaves_the_rest(cupy, rng, engine, dtype):
    for m, n, k in [*SIZES, (1500, 1500, 40)]:
        a, b = uniform(rng, cupy, (m, k), dtype), uniform(rng, cupy, (k, n), dtype)
        c = cupy.full((m, n), 7.0, dtype)
        _gemm.gemm(a, b, c, alpha=-1.0, beta=2.0, lower_only=True, engine=engine)
        exact = 14.0 - a.astype(np.float64) @ b.astype(np.float64)
        lower = cupy.tri(m, n, dtype=bool)
        error = cupy.where(lower, abs(c - exact), 0)
        assert bool((error <= allowed(a, b, k, dtype, factor_of(engine, k)) + 30 * EPS[dtype]).all()), (
            m,
            n,
            k,
        )
        assert bool((cupy.where(lower, 7.0, c) == 7.0).all()), (m, n, k)


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
@pytest.mark.parametrize("trans", [False, True])
def test_symmetric_product_of_one_array(cupy, rng, engine, dtype, trans):
    a = uniform(rng, cupy, (301, 277), dtype)
    m = a.shape[trans]
    c = cupy.full((m, m), np.nan, dtype)
    _gemm.gemm(a, a, c, transa=trans, transb=not trans, lower_only=True, engine=engine)
    op = a.T if trans else a
    exact = op.astype(np.float64) @ op.T.astype(np.float64)
    bound = allowed(op, op.T, a.shape[1 - trans], dtype, factor_of(engine, 301))
    assert bool((cupy.tril(abs(c - exact)) <= bound)[cupy.tri(m, dtype=bool)].all())


@pytest.mark.parametrize("engine", ["split", "half", "tensor"])
def test_sums_do_not_truncate(cupy, rng, engine):
    """With positive elements a truncating accumulator loses in proportion to k; ours must not."""
    a, b = uniform(rng, cupy, (256, 16384), "f", low=0.0), uniform(rng, cupy, (16384, 256), "f", low=0.0)
    c = cupy.full((256, 256), np.nan, np.float32)
    _gemm.gemm(a, b, c, engine=engine)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = (c - exact) / exact
    # Truncation shifts all elements alike; plain float32 sums, which `tensor` makes of every 8 terms, scatter.
    assert abs(float(error.mean())) <= 5e-7
    assert float(abs(error).max()) <= (6e-6 if engine == "tensor" else 1.5e-6)


@pytest.mark.parametrize("engine", ["split", "half", "tensor"])
def test_rows_and_columns_of_very_different_size(cupy, rng, engine):
    m, n, k = 140, 150, 200
    rows, cols = rng.uniform(-17, 17, (m, 1)), rng.uniform(-17, 17, (1, n))
    a = cupy.asarray((rng.uniform(-1, 1, (m, k)) * 10.0**rows).astype("f"))
    b = cupy.asarray((rng.uniform(-1, 1, (k, n)) * 10.0**cols).astype("f"))
    a[3] = 0
    b[:, 5] = 0
    c = cupy.full((m, n), np.nan, np.float32)
    _gemm.gemm(a, b, c, engine=engine)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert bool((abs(c - exact) <= allowed(a, b, k, "f", 8) + 1e-36).all())
    assert bool((c[3] == 0).all())
    assert bool((c[:, 5] == 0).all())


@pytest.mark.parametrize("engine", ["split", "half"])
def test_slabs_of_k(cupy, rng, monkeypatch, engine):
    """A product that would need too much workspace is cut along k, and comes out the same."""
    a, b = uniform(rng, cupy, (130, 4500), "f"), uniform(rng, cupy, (4500, 270), "f")
    old = uniform(rng, cupy, (130, 270), "f")
    c = old.copy()
    monkeypatch.setattr(_gemm, "WORKSPACE", 1)
    _gemm.gemm(a, b, c, beta=3.0, engine=engine)
    exact = a.astype(np.float64) @ b.astype(np.float64) + 3.0 * old
    assert bool((abs(c - exact) <= allowed(a, b, 4500, "f", 8)).all())


@pytest.mark.parametrize("engine", ["split", "half", "tensor"])
def test_non_finite_elements_are_not_lost(cupy, rng, engine):
    a, b = uniform(rng, cupy, (140, 70), "f"), uniform(rng, cupy, (70, 140), "f")
    a[7, 3], a[9, 0], b[2, 11] = np.nan, np.inf, -np.inf
    c = cupy.zeros((140, 140), np.float32)
    _gemm.gemm(a, b, c, engine=engine)
    spoilt = ~cupy.isfinite(c)
    assert bool(spoilt[[7, 9]].all())
    assert bool(spoilt[:, 11].all())
    assert int(spoilt.sum()) == 2 * 140 + 138


def test_a_product_over_nothing_scales_c(cupy):
    c = cupy.ones((5, 6))
    _gemm.gemm(cupy.empty((5, 0)), cupy.empty((0, 6)), c, beta=2.0)
    assert bool((c == 2).all())
    _gemm.gemm(cupy.empty((5, 0)), cupy.empty((0, 6)), c)
    assert bool((c == 0).all())


def test_wrong_arguments_are_refused(cupy):
    a = cupy.ones((4, 4))
    with pytest.raises(ValueError, match="do not fit"):
        _gemm.gemm(a, cupy.ones((3, 4)), a.copy())
    with pytest.raises(TypeError, match="float32"):
        _gemm.gemm(a, a.astype("f"), a.copy())
    with pytest.raises(ValueError, match="row-major"):
        _gemm.gemm(a, a, cupy.ones((4, 4), order="F"))
    with pytest.raises(ValueError, match="contiguous"):
        _gemm.gemm(cupy.ones((8, 8))[::2, ::2], a, a.copy())
    with pytest.raises(ValueError, match="unknown engine"):
        _gemm.gemm(a, a, a.copy(), engine="fast")
    with pytest.raises(ValueError, match="float32"):
        _gemm.gemm(a, a, a.copy(), engine="split")

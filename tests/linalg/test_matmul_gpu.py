"""The GPU product and transpose against float64, on hostile sizes and views, one engine after another."""

import numpy as np
import pytest
from refusals import refused

from deblur.linalg import gram, matmul, matmul_gpu
from deblur.linalg.transpose import turn, turned

pytestmark = pytest.mark.gpu

EPS = {"f": 2.0**-23, "d": 2.0**-52}
ENGINES = [("split", "f"), ("half", "f"), ("tiled", "f"), ("tiled", "d"), ("cublas", "f"), ("cublas", "d")]
SIZES = [(1, 1, 1), (17, 5, 3), (127, 129, 33), (129, 257, 128), (300, 1000, 65), (513, 385, 1000), (1, 4097, 9)]


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
        a_view, b_view = a_view.T if transa else a_view, b_view.T if transb else b_view
        exact = a.astype(np.float64) @ b.astype(np.float64)
        bound = allowed(a, b, k, dtype, factor_of(engine, k))
        for alpha, beta in ((1.0, 0.0), (-0.5, 1.0), (2.0, -0.25)):
            frame, c = in_a_frame(cupy, old if beta else cupy.full_like(old, np.nan))
            assert matmul_gpu.gemm(a_view, b_view, c, alpha, beta, engine=engine) is c
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
        matmul_gpu.gemm(a, b, c, alpha=-1.0, beta=2.0, lower_only=True, engine=engine)
        exact = 14.0 - a.astype(np.float64) @ b.astype(np.float64)
        lower = cupy.tri(m, n, dtype=bool)
        error = cupy.where(lower, abs(c - exact), 0)
        assert bool((error <= allowed(a, b, k, dtype, factor_of(engine, k)) + 30 * EPS[dtype]).all()), (m, n, k)
        assert bool((cupy.where(lower, 7.0, c) == 7.0).all()), (m, n, k)


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
@pytest.mark.parametrize("trans", [False, True])
def test_symmetric_product_of_one_array(cupy, rng, engine, dtype, trans):
    a = uniform(rng, cupy, (301, 277), dtype)
    m = a.shape[trans]
    c = cupy.full((m, m), np.nan, dtype)
    op = a.T if trans else a
    matmul_gpu.gemm(op, op.T, c, lower_only=True, engine=engine)
    exact = op.astype(np.float64) @ op.T.astype(np.float64)
    bound = allowed(op, op.T, a.shape[1 - trans], dtype, factor_of(engine, 301))
    assert bool((cupy.tril(abs(c - exact)) <= bound)[cupy.tri(m, dtype=bool)].all())


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
@pytest.mark.parametrize("lower_only", [False, True])
def test_products_of_one_memory_with_itself(cupy, rng, engine, dtype, lower_only):
    """Not only A A': also A A, and A times the transpose of its first rows."""
    a = uniform(rng, cupy, (300, 300), dtype)
    for rows, cols, transb in ((300, 300, False), (300, 170, True), (170, 300, True)):
        x, y = a[:rows], a[:cols] if transb else a
        c = cupy.zeros((rows, cols), dtype)
        op = y.T if transb else y
        matmul_gpu.gemm(x, op, c, lower_only=lower_only, engine=engine)
        exact = x.astype(np.float64) @ op.astype(np.float64)
        if lower_only:
            exact = cupy.tril(exact)
        assert bool((abs(c - exact) <= allowed(x, op, 300, dtype, factor_of(engine, 300))).all())


@pytest.mark.parametrize("engine", ["split", "half"])
def test_sums_do_not_truncate(cupy, rng, engine):
    """With positive elements a truncating accumulator loses in proportion to k; ours must not."""
    a, b = uniform(rng, cupy, (256, 16384), "f", low=0.0), uniform(rng, cupy, (16384, 256), "f", low=0.0)
    c = cupy.full((256, 256), np.nan, np.float32)
    matmul_gpu.gemm(a, b, c, engine=engine)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = (c - exact) / exact
    assert abs(float(error.mean())) <= 5e-7  # truncation shifts all elements alike
    assert float(abs(error).max()) <= 1.5e-6


@pytest.mark.parametrize("engine", ["split", "half"])
def test_rows_and_columns_of_very_different_size(cupy, rng, engine):
    m, n, k = 140, 150, 200
    rows, cols = rng.uniform(-17, 17, (m, 1)), rng.uniform(-17, 17, (1, n))
    a = cupy.asarray((rng.uniform(-1, 1, (m, k)) * 10.0**rows).astype("f"))
    b = cupy.asarray((rng.uniform(-1, 1, (k, n)) * 10.0**cols).astype("f"))
    a[3] = 0
    b[:, 5] = 0
    c = cupy.full((m, n), np.nan, np.float32)
    matmul_gpu.gemm(a, b, c, engine=engine)
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
    monkeypatch.setattr(matmul_gpu, "WORKSPACE", 1)
    matmul_gpu.gemm(a, b, c, beta=3.0, engine=engine)
    exact = a.astype(np.float64) @ b.astype(np.float64) + 3.0 * old
    assert bool((abs(c - exact) <= allowed(a, b, 4500, "f", 8)).all())


@pytest.mark.parametrize("engine", ["split", "half"])
def test_non_finite_elements_are_not_lost(cupy, rng, engine):
    a, b = uniform(rng, cupy, (140, 70), "f"), uniform(rng, cupy, (70, 140), "f")
    a[7, 3], a[9, 0], b[2, 11] = np.nan, np.inf, -np.inf
    c = cupy.zeros((140, 140), np.float32)
    matmul_gpu.gemm(a, b, c, engine=engine)
    spoilt = ~cupy.isfinite(c)
    assert bool(spoilt[[7, 9]].all())
    assert bool(spoilt[:, 11].all())
    assert int(spoilt.sum()) == 2 * 140 + 138


@pytest.mark.parametrize("engine", ["split", "half", "tiled"])
def test_positions_beyond_two_to_the_31(cupy, rng, engine):
    n, k = 46400, 40  # n * n does not fit an int
    if cupy.cuda.runtime.memGetInfo()[0] < 12 << 30:
        pytest.skip("needs 12 GiB of GPU memory")
    a, b = uniform(rng, cupy, (n, k), "f"), uniform(rng, cupy, (k, n), "f")
    c = cupy.full((n, n), np.nan, np.float32)
    matmul_gpu.gemm(a, b, c, engine=engine)
    exact = a[-130:].astype(np.float64) @ b.astype(np.float64)
    assert bool((abs(c[-130:] - exact) <= allowed(a[-130:], b, k, "f", 8)).all())
    turn(c)
    assert bool((abs(c[:, -130:] - exact.T) <= allowed(a[-130:], b, k, "f", 8).T).all())
    del c
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.parametrize(("engine", "dtype"), ENGINES)
def test_a_product_over_nothing_scales_c(cupy, engine, dtype):
    a, b, c = cupy.empty((5, 0), dtype), cupy.empty((0, 6), dtype), cupy.ones((5, 6), dtype)
    matmul_gpu.gemm(a, b, c, beta=2.0, engine=engine)
    assert bool((c == 2).all())
    matmul_gpu.gemm(a, b, c, engine=engine)
    assert bool((c == 0).all())


def test_wrong_arguments_are_refused(cupy):
    a = cupy.ones((4, 4))
    refused(ValueError, "do not fit", matmul_gpu.gemm, a, cupy.ones((3, 4)), a.copy())
    refused(TypeError, "float32", matmul_gpu.gemm, a, a.astype("f"), a.copy())
    refused(ValueError, "row-major", matmul_gpu.gemm, a, a, cupy.ones((4, 4), order="F"))
    refused(ValueError, "contiguous", matmul_gpu.gemm, cupy.ones((8, 8))[::2, ::2], a, a.copy())
    refused(ValueError, "unknown engine", matmul_gpu.gemm, a, a, a.copy(), engine="fast")
    refused(ValueError, "float32", matmul_gpu.gemm, a, a, a.copy(), engine="split")


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_public_product(cupy, rng, dtype):
    tolerance = 2e-6 if dtype == "f" else 1e-14
    for m, n, k in [*SIZES, (700, 600, 1030), (0, 3, 2), (3, 2, 0)]:
        a, b = uniform(rng, cupy, (m, k), dtype), uniform(rng, cupy, (k, n), dtype)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        scale = max(float(cupy.linalg.norm(exact)), 1e-3)
        for x in (a, cupy.asfortranarray(a), cupy.repeat(a, 2, axis=1)[:, ::2]):
            product = matmul(x, cupy.asfortranarray(b) if x.flags.f_contiguous else b)
            assert product.dtype == np.dtype(dtype)
            assert product.shape == (m, n)
            assert float(cupy.linalg.norm(product - exact)) <= tolerance * scale, (m, n, k)
    assert matmul(a.astype("f"), uniform(rng, cupy, (a.shape[1],), "d")).dtype == np.float64


@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("trans", [False, True])
def test_gram_is_exactly_symmetric(cupy, rng, dtype, trans):
    tolerance = 2e-6 if dtype == "f" else 1e-14
    for shape in [(1, 1), (17, 129), (700, 301)]:
        a = uniform(rng, cupy, shape, dtype)
        product = gram(a, trans=trans)
        op = a.T if not trans else a
        exact = op.astype(np.float64) @ op.T.astype(np.float64)
        assert bool((product == product.T).all())
        assert float(cupy.linalg.norm(product - exact)) <= tolerance * float(cupy.linalg.norm(exact))


def test_choice_of_the_engine(cupy):
    on_hopper = cupy.cuda.Device().compute_capability == "90"
    large = 4096, 4096, 4096
    assert matmul_gpu.choose_engine(*large, np.float32) == ("split" if on_hopper else "cublas")
    assert matmul_gpu.choose_engine(*large, np.float32, "fastest") == ("half" if on_hopper else "cublas")
    assert matmul_gpu.choose_engine(64, 64, 64, np.float32) == "cublas"
    assert matmul_gpu.choose_engine(*large, np.float64, "fastest") == "cublas"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_transpose_moves_every_bit(cupy, rng, dtype):
    for m, n in [(1, 1), (1, 40), (33, 1), (17, 19), (32, 64), (127, 129), (1000, 333), (333, 333)]:
        host = np.frombuffer(rng.bytes(m * n * np.dtype(dtype).itemsize), dtype).reshape(m, n)
        a = cupy.asarray(host)
        out = cupy.zeros((n, m), dtype)
        assert turned(a, out) is out
        assert out.get().tobytes() == np.ascontiguousarray(host.T).tobytes()
        side = min(m, n)
        frame = cupy.zeros((side + 4, side + 5), dtype)
        view = frame[2 : 2 + side, 3 : 3 + side]
        view[...] = a[:side, :side]
        turn(view)
        assert view.get().tobytes() == np.ascontiguousarray(host[:side, :side].T).tobytes()
        view[...] = 0
        assert not bool(frame.view(f"u{np.dtype(dtype).itemsize}").any()), "something was written outside"

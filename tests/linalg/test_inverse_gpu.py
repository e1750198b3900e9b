"""The GPU halves of the dense inverses and solvers, against their defining equations in float64."""

# ruff: noqa: E741

import numpy as np
import pytest
import scipy.linalg

from deblur import Blur, graphs, kernels
from deblur.device import Device
from deblur.errors import SingularMatrixError
from deblur.linalg import (
    cholesky,
    cholesky_gpu,
    cholesky_inverse,
    cholesky_solve,
    gauss_jordan_gpu,
    gauss_jordan_inverse,
    gauss_jordan_solve,
    gauss_seidel,
    gets,
    solve_triangular,
    triangular_gpu,
)

pytestmark = pytest.mark.gpu

SIZES = [1, 17, 63, 64, 65, 127, 128, 129, 513, 1000, 1537]
DTYPES = [np.float32, np.float64]


def spd(n, rng, condition=100.0, dtype=np.float64):
    """A symmetric positive definite matrix with eigenvalues from 1 down to 1/condition."""
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    a = (q * np.geomspace(1, 1 / condition, n)) @ q.T
    return ((a + a.T) / 2).astype(dtype)


def general(n, rng, condition=100.0, dtype=np.float64):
    """A matrix with singular values from 1 down to 1/condition."""
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    p, _ = np.linalg.qr(rng.standard_normal((n, n)))
    return ((q * np.geomspace(1, 1 / condition, n)) @ p).astype(dtype)


def error(a, x, b, dtype):
    """‖A X - B‖ over n eps ‖A‖ ‖X‖."""
    a, x = a.astype(float), x.get().astype(float)
    norms = np.linalg.norm(a) * np.linalg.norm(x)
    return np.linalg.norm(a @ x - b) / (len(a) * np.finfo(dtype).eps * norms)


# ---------------------------------------------------------------- symmetric positive definite


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_cholesky(n, dtype, rng, cupy):
    a = spd(n, rng, dtype=dtype)
    poisoned = np.where(np.tri(n, dtype=bool), a, np.nan)
    l = cholesky(cupy.asarray(poisoned)).get().astype(float)
    assert not np.triu(l, 1).any()
    assert (l.diagonal() > 0).all()
    assert np.linalg.norm(l @ l.T - a) <= n * np.finfo(dtype).eps * np.linalg.norm(a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_cholesky_inverse(n, dtype, rng, cupy):
    a = spd(n, rng, dtype=dtype)
    given = cupy.asarray(a)
    x = cholesky_inverse(given)
    assert x.dtype == dtype
    assert (x == x.T).all()
    assert error(a, x, np.eye(n), dtype) <= 1
    assert (given == cupy.asarray(a)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("road", ["units", "library"])
def test_cholesky_by_the_paths_of_large_matrices_and_small_devices(road, dtype, rng, cupy, monkeypatch):
    n, bad = 1537, 1000
    if road == "units":
        monkeypatch.setattr(cholesky_gpu, "SMALL", 0)
        monkeypatch.setattr(cholesky_gpu, "LAUNCH", (2, 2))
        for name in ("UNITS", "INVERSE_UNITS", "SINGLE_INVERSE_UNITS"):
            monkeypatch.setattr(cholesky_gpu, name, (4, 4))
    else:
        monkeypatch.setattr(cholesky_gpu._Columns, "fit", False)
    graphs.forget()  # made on the usual road
    a = spd(n, rng, dtype=dtype)
    for _ in range(3):  # as it is, and by a graph
        l = cholesky(cupy.asarray(np.where(np.tri(n, dtype=bool), a, np.nan))).get().astype(float)
        assert not np.triu(l, 1).any()
        assert np.linalg.norm(l @ l.T - a) <= n * np.finfo(dtype).eps * np.linalg.norm(a)
        assert error(a, cholesky_inverse(cupy.asarray(a)), np.eye(n), dtype) <= 1
    a[bad, bad] = -1
    with pytest.raises(SingularMatrixError) as caught:
        cholesky(cupy.asarray(a))
    assert caught.value.index == bad
    graphs.forget()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [None, 1, 5, 200])
@pytest.mark.parametrize("n", [1, 65, 129, 1000])
def test_cholesky_solve(n, k, dtype, rng, cupy):
    a = spd(n, rng, dtype=dtype)
    b = rng.standard_normal(n if k is None else (n, k)).astype(dtype)
    x = cholesky_solve(cholesky(cupy.asarray(a)), cupy.asarray(b))
    assert x.shape == b.shape
    assert error(a, x, b, dtype) <= 1


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
def test_ill_conditioned_inverse(condition, rng, cupy):
    a = spd(1100, rng, condition)
    assert error(a, cholesky_inverse(cupy.asarray(a)), np.eye(1100), float) <= 10
    b = general(1100, rng, condition)
    assert error(b, gauss_jordan_inverse(cupy.asarray(b)), np.eye(1100), float) <= 10
    assert error(b, gauss_jordan_solve(cupy.asarray(b), cupy.eye(1100)), np.eye(1100), float) <= 10


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "bad"), [(1, 0), (40, 33), (300, 0), (300, 170), (300, 299), (700, 640)])
def test_failing_pivot_is_named(n, bad, dtype, rng, cupy):
    a = spd(n, rng, dtype=dtype)
    a[bad, bad] = -1
    for call in (cholesky, cholesky_inverse):
        with pytest.raises(SingularMatrixError, match=f"positive definite.*{bad}") as caught:
            call(cupy.asarray(a))
        assert caught.value.index == bad


@pytest.mark.parametrize("column", [20, 150])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("call", [cholesky, cholesky_inverse, gauss_jordan_inverse, gets])
def test_not_finite_is_named(call, value, column, rng, cupy):
    a = spd(200, rng)
    a[150, column] = value
    with pytest.raises(ValueError, match=rf"1 value.*\(150, {column}\)"):
        call(cupy.asarray(a))


def test_column_major_and_strided_input(rng, cupy):
    a = spd(150, rng)
    for form in (cupy.asfortranarray(cupy.asarray(a)), cupy.asarray(np.repeat(a, 2, axis=1))[:, ::2]):
        assert error(a, cholesky_inverse(form), np.eye(150), float) <= 1
        l = cholesky(form)
        np.testing.assert_allclose(l.get(), np.linalg.cholesky(a), rtol=1e-10, atol=1e-12)


def test_overwritten_where_allowed(rng, cupy):
    a = cupy.asarray(spd(200, rng))
    assert cholesky_inverse(a, overwrite_a=True) is a
    a = cupy.asarray(general(200, rng))
    assert gauss_jordan_inverse(a, overwrite_a=True) is a


def test_overflow_is_an_error(cupy):
    a = cupy.diag(cupy.asarray([1e-30, 1e30], dtype=np.float32)) * np.float32(1e-9)
    with pytest.raises(SingularMatrixError):
        cholesky_inverse(a)


# ---------------------------------------------------------------- triangular


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_gets(n, dtype, rng, cupy):
    l = np.linalg.cholesky(spd(n, rng)).astype(dtype)
    x = gets(cupy.asarray(l))
    assert not cupy.triu(x, 1).any()
    assert error(l, x, np.eye(n), dtype) <= 1


@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_either_triangle(lower, unit_diagonal, rng, cupy):
    n = 331
    l = np.linalg.cholesky(spd(n, rng))
    if unit_diagonal:
        l = l / l.diagonal()
    matrix = l if lower else l.T
    other = rng.standard_normal((n, n))
    keep = np.tri(n, k=-1 if unit_diagonal else 0, dtype=bool)
    given = cupy.asarray(np.where(keep if lower else keep.T, matrix, other))
    x = gets(given, lower=lower, unit_diagonal=unit_diagonal)
    assert error(matrix, x, np.eye(n), float) <= 1
    assert not (cupy.triu(x, 1) if lower else cupy.tril(x, -1)).any()
    b = rng.standard_normal((n, 4))
    for trans in (False, True):
        y = solve_triangular(given, cupy.asarray(b), trans=trans, lower=lower, unit_diagonal=unit_diagonal)
        assert error(matrix.T if trans else matrix, y, b, float) <= 1


@pytest.mark.parametrize("bad", [0, 127, 128, 299])
def test_zero_on_the_diagonal_is_named(bad, rng, cupy):
    l = np.linalg.cholesky(spd(300, rng))
    l[bad, bad] = 0
    with pytest.raises(SingularMatrixError) as caught:
        gets(cupy.asarray(l))
    assert caught.value.index == bad


def test_substitution_in_every_layout(rng, cupy):
    l, b = np.linalg.cholesky(spd(200, rng)), rng.standard_normal((200, 6))
    expected = scipy.linalg.solve_triangular(l, b, lower=True)
    for matrix in (cupy.asarray(l), cupy.asfortranarray(cupy.asarray(l))):
        for rhs in (cupy.asarray(b), cupy.asfortranarray(cupy.asarray(b))):
            np.testing.assert_allclose(solve_triangular(matrix, rhs).get(), expected, rtol=1e-9, atol=1e-10)


def test_products_of_a_level_are_cut_where_zeros_are(rng, cupy, monkeypatch):
    n = 2500  # above the size up to which the products of a level are batched
    l = np.linalg.cholesky(spd(n, rng))
    monkeypatch.setattr(triangular_gpu, "_parts", lambda size: 4)
    assert error(l, gets(cupy.asarray(l)), np.eye(n), float) <= 1


# ---------------------------------------------------------------- Gauss-Jordan


@pytest.mark.parametrize("clusters", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_gauss_jordan_inverse(n, dtype, clusters, rng, cupy, monkeypatch):
    if not clusters:
        monkeypatch.setattr(gauss_jordan_gpu, "_has_clusters", lambda device: False)
    a = general(n, rng, dtype=dtype)
    given = cupy.asarray(a)
    for form in (given, cupy.asfortranarray(given)):
        assert error(a, gauss_jordan_inverse(form), np.eye(n), dtype) <= 1
    assert (given == cupy.asarray(a)).all()


def test_fewer_blocks_where_not_all_may_run_at_once(rng, cupy, monkeypatch):
    monkeypatch.setattr(gauss_jordan_gpu, "_has_clusters", lambda device: False)
    launch, refused = kernels.Kernel.__call__, []

    def shared_card(kernel, grid, *args, cooperative=False, **kwargs):
        if cooperative and grid > most:
            refused.append(grid)
            raise cupy.cuda.driver.CUDADriverError(720)
        launch(kernel, grid, *args, cooperative=cooperative, **kwargs)

    monkeypatch.setattr(kernels.Kernel, "__call__", shared_card)
    a = general(1000, rng)
    most = 2  # of 512 rows
    assert error(a, gauss_jordan_inverse(cupy.asarray(a)), np.eye(1000), np.float64) <= 1
    assert refused == [32]
    most = 1
    with pytest.raises(RuntimeError, match="needs 2 blocks that run at once"):
        gauss_jordan_inverse(cupy.asarray(a))


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_rows_a_thread(dtype, rng, cupy, monkeypatch):
    monkeypatch.setattr(gauss_jordan_gpu._SIZES, "PANEL_THREADS", 32)
    a = general(900, rng, dtype=dtype)
    assert error(a, gauss_jordan_inverse(cupy.asarray(a)), np.eye(900), dtype) <= 1


@pytest.mark.parametrize("width", [64, 128, 384])
def test_every_width(width, rng, cupy, monkeypatch):
    monkeypatch.setattr(gauss_jordan_gpu, "WIDTHS", (width, width))
    a = general(1000, rng)
    assert error(a, gauss_jordan_inverse(cupy.asarray(a)), np.eye(1000), float) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [40, 999])
def test_as_large_matrices_are_inverted(n, dtype, rng, cupy, monkeypatch):
    monkeypatch.setattr(gauss_jordan_gpu, "LARGE", 1)
    monkeypatch.setattr(gauss_jordan_gpu, "WIDTHS", (128, 384))
    a = general(n, rng, dtype=dtype)
    assert error(a, gauss_jordan_inverse(cupy.asarray(a)), np.eye(n), dtype) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [None, 1, 5, 300])
@pytest.mark.parametrize("n", [1, 65, 129, 1000])
def test_gauss_jordan_solve(n, k, dtype, rng, cupy):
    a = general(n, rng, dtype=dtype)
    b = rng.standard_normal(n if k is None else (n, k)).astype(dtype)
    x = gauss_jordan_solve(cupy.asarray(a), cupy.asarray(b))
    assert x.shape == b.shape
    assert error(a, x, b, dtype) <= 1


@pytest.mark.parametrize("n", [5, 300, 1030])
def test_rows_in_any_order(n, rng, cupy):
    p = np.eye(n)[rng.permutation(n)]
    np.testing.assert_array_equal(gauss_jordan_inverse(cupy.asarray(p)).get(), p.T)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "bad"), [(1, 0), (40, 33), (300, 0), (300, 299), (700, 640)])
def test_singular_matrix_names_the_row(n, bad, dtype, rng, cupy):
    a = rng.integers(-9, 10, (n, n)).astype(dtype)
    a[bad] = 0
    with pytest.raises(SingularMatrixError, match="singular") as caught:
        gauss_jordan_inverse(cupy.asarray(a))
    assert caught.value.index == bad
    with pytest.raises(SingularMatrixError):
        gauss_jordan_solve(cupy.asarray(a), cupy.ones(n, dtype))


def test_small_pivots_can_be_refused(rng, cupy):
    a = general(200, rng, 1e9)
    gauss_jordan_inverse(cupy.asarray(a))
    with pytest.raises(SingularMatrixError):
        gauss_jordan_inverse(cupy.asarray(a), pivot_rtol=1e-5)


# ---------------------------------------------------------------- Gauss-Seidel


@pytest.mark.parametrize("acceleration", [None, "cg"])
@pytest.mark.parametrize("k", [None, 3])
def test_gauss_seidel(k, acceleration, rng, cupy):
    a = spd(600, rng, 20)
    b = rng.standard_normal(600 if k is None else (600, k))
    x, info = gauss_seidel(cupy.asarray(a), cupy.asarray(b), rtol=1e-10, acceleration=acceleration)
    assert info.converged
    y, same = gauss_seidel(a, b, rtol=1e-10, acceleration=acceleration)
    assert abs(info.sweeps - same.sweeps) <= 2
    assert np.linalg.norm(x.get() - y) <= 1e-8 * np.linalg.norm(y)


# ---------------------------------------------------------------- H and HHᵀ + λI


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("psf_shape", [(1, 1), (3, 3), (4, 5), (7, 2)])
@pytest.mark.parametrize("boundary", ["zero", "periodic", "reflect", "antireflect", "unknown"])
def test_matrices_of_a_blur(boundary, psf_shape, dtype, rng, cupy):
    from deblur.operators import normal

    psf = rng.standard_normal(psf_shape)
    for origin in (None, (0, psf_shape[1] - 1)):
        blur = Blur(psf, (11, 17), boundary, origin=origin)
        h = blur.to_sparse().toarray()
        tolerance = 1e-12 if dtype == np.float64 else 1e-5
        a = normal.normal_matrix(blur, 0.25, dtype, Device.named("gpu"))
        assert a.dtype == dtype
        np.testing.assert_allclose(a.get(), h @ h.T + 0.25 * np.eye(len(h)), atol=tolerance * len(h))

"""The paths of dense inverses on a GPU that depend on size and device; see test_dense for all else."""

# ruff: noqa: E741

import numpy as np
import pytest
from matrices import error, general, lower, spd

from deblur import Blur, graphs, kernels
from deblur.device import Device
from deblur.errors import SingularMatrixError
from deblur.linalg import (
    cholesky,
    cholesky_gpu,
    cholesky_inverse,
    gauss_jordan_gpu,
    gauss_jordan_inverse,
    gauss_seidel,
    gets,
    triangular_gpu,
)

pytestmark = pytest.mark.gpu


# ---------------------------------------------------------------- symmetric positive definite


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
        assert error(a, cholesky_inverse(cupy.asarray(a)).get(), np.eye(n)) <= 1
    a[bad, bad] = -1
    with pytest.raises(SingularMatrixError) as caught:
        cholesky(cupy.asarray(a))
    assert caught.value.index == bad
    graphs.forget()


def test_overflow_is_an_error(cupy):
    a = cupy.diag(cupy.asarray([1e-30, 1e30], dtype=np.float32)) * np.float32(1e-9)
    with pytest.raises(SingularMatrixError):
        cholesky_inverse(a)


# ---------------------------------------------------------------- triangular


def test_products_of_a_level_are_cut_where_zeros_are(rng, cupy, monkeypatch):
    n = 2500  # above the size up to which the products of a level are batched
    l = lower(n, rng)
    monkeypatch.setattr(triangular_gpu, "_parts", lambda size: 4)
    assert error(l, gets(cupy.asarray(l)).get(), np.eye(n)) <= 1


# ---------------------------------------------------------------- Gauss-Jordan


def inverted(cupy, a):
    """How wrong the inverse of `a` is that a GPU computes by Gauss-Jordan elimination."""
    return error(a, gauss_jordan_inverse(cupy.asarray(a)).get(), np.eye(len(a)))


@pytest.mark.parametrize("n", [1, 17, 64, 65, 513, 1537])
def test_without_clusters(n, dtype, rng, cupy, monkeypatch):
    monkeypatch.setattr(gauss_jordan_gpu, "_has_clusters", lambda device: False)
    assert inverted(cupy, general(n, rng, dtype=dtype)) <= 1


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
    assert inverted(cupy, a) <= 1
    assert refused == [32]
    most = 1
    with pytest.raises(RuntimeError, match="needs 2 blocks that run at once"):
        gauss_jordan_inverse(cupy.asarray(a))


def test_two_rows_a_thread(dtype, rng, cupy, monkeypatch):
    monkeypatch.setattr(gauss_jordan_gpu._SIZES, "PANEL_THREADS", 32)
    assert inverted(cupy, general(900, rng, dtype=dtype)) <= 1


@pytest.mark.parametrize("width", [64, 128, 384])
def test_every_width(width, rng, cupy, monkeypatch):
    monkeypatch.setattr(gauss_jordan_gpu, "WIDTHS", (width, width))
    assert inverted(cupy, general(1000, rng)) <= 1


@pytest.mark.parametrize("n", [40, 999])
def test_as_large_matrices_are_inverted(n, dtype, rng, cupy, monkeypatch):
    monkeypatch.setattr(gauss_jordan_gpu, "LARGE", 1)
    monkeypatch.setattr(gauss_jordan_gpu, "WIDTHS", (128, 384))
    assert inverted(cupy, general(n, rng, dtype=dtype)) <= 1


@pytest.mark.parametrize("n", [5, 300, 1030])
def test_rows_in_any_order(n, rng, cupy):
    p = np.eye(n)[rng.permutation(n)]
    np.testing.assert_array_equal(gauss_jordan_inverse(cupy.asarray(p)).get(), p.T)


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

"""The hybrid LSQR method against dense solves, and what the bidiagonalisation promises."""

import numpy as np
import pytest
from covers import pairwise
from structured import dense_answer, relative_error as relative

from deblur import psf
from deblur.device import Device
from deblur.errors import InsufficientMemoryError
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.problem import Problem, Stop, peak
from deblur.solvers import hybrid_lsqr
from deblur.solvers.krylov import Bidiagonalization

KERNELS = {
    "even, asymmetric": np.array([[1.0, 4.0, 2.0, 0.0], [0.0, 3.0, 1.0, 0.5]]) / 11.5,
    "camera shake": psf.camera_shake(5, 2),
    "one pixel": np.array([[0.8]]),
}


def restored(blur, g, lam, **stop):
    """The Solution for images (..., M, N)."""
    problem = Problem(blur, lam, dtype=np.dtype(g.dtype), device=Device.of(g), stop=Stop(**stop))
    return hybrid_lsqr.prepare(problem).solve(g.reshape(-1, 1, *blur.image_shape))


def residual_of(bases, lam):
    """‖Hᵀ(g − Hf) − λf‖ / ‖Hᵀg‖, as the recurrences have it."""
    return (bases.residuals(lam)[0] / (bases.alphas[0] * bases.betas[0])).max()


@pytest.mark.parametrize(("boundary", "kernel", "shape"), pairwise(BOUNDARIES, KERNELS, [(17, 19), (8, 23)]))
def test_it_is_the_tikhonov_solution(boundary, kernel, shape, rng, xp):
    blur = Blur(KERNELS[kernel], shape, boundary)
    g = rng.random((2, *shape))
    for lam in (1e-1, 1e-3):
        found = restored(blur, xp.asarray(g), lam, rtol=1e-11)
        assert found.converged
        assert relative(found.scene, dense_answer(blur, lam, "tikhonov", g)) <= 1e-7


def test_small_lambda_is_reached_too(rng):
    blur = Blur(psf.gaussian(7, 1.3), (20, 21), "zero")
    g = rng.random((20, 21))
    found = restored(blur, g, 1e-6, rtol=1e-12, max_iterations=420)
    assert found.scene.shape == (1, 1, 20, 21)
    assert relative(found.scene, dense_answer(blur, 1e-6, "tikhonov", g[None])) <= 1e-7


@pytest.mark.parametrize("lam", [1e-13, 1e-17, 1e-21])
def test_a_lambda_below_rounding_is_converged_if_the_image_is_right(rng, lam):
    for blur in (Blur(KERNELS["even, asymmetric"], (9, 10), "zero"), Blur(np.full((2, 2), 0.25), (8, 8), "periodic")):
        g = rng.random(blur.image_shape)
        u, s, vt = np.linalg.svd(blur.to_dense())
        found, expected = restored(blur, g, lam), ((u.T @ g.ravel()) * (s / (s * s + lam))) @ vt
        # The second blur loses patterns of which the image has some.
        assert found.converged == (s[-1] > 1e-9)
        assert not found.converged or relative(found.scene, expected) <= 1e-7


def test_one_bidiagonalisation_serves_every_lambda(rng):
    blur = Blur(KERNELS["camera shake"], (17, 19), "unknown")
    g = rng.random((17, 19))
    bases = Bidiagonalization(blur, g[None])
    while not bases.ended() and (not bases.steps or residual_of(bases, 1e-3) > 1e-11):
        bases.advance()
    products = []
    blur.forward = lambda *_: products.append(1)  # any product from here on is one too many
    for lam in (1e-3, 1e-2, 1.0):
        assert residual_of(bases, lam) <= 1e-9
        assert relative(bases.scene(lam)[0], dense_answer(blur, lam, "tikhonov", g[None])) <= 1e-7
    assert not products


def test_the_bases_stay_orthonormal_and_satisfy_the_recurrence(rng):
    blur = Blur(psf.gaussian(9, 2.0), (16, 17), "reflect")
    bases = Bidiagonalization(blur, rng.random((2, 16, 17)))
    for _ in range(120):
        bases.advance()
    u, v = (np.concatenate(blocks, axis=1) for blocks in bases._bases)
    h = blur.to_dense()
    for frame in range(2):
        k = np.count_nonzero([a[frame] for a in bases.alphas])
        for basis, count in ((u[frame], k), (v[frame], k)):
            assert np.abs(basis[:count] @ basis[:count].T - np.eye(count)).max() <= 1e-10
        left = h @ v[frame, : k - 1].T
        right = u[frame, :k].T @ bases.matrices()[frame, :k, : k - 1]
        assert np.abs(left - right).max() <= 1e-10


def test_the_residual_it_stops_by_is_the_true_one(rng):
    blur = Blur(KERNELS["camera shake"], (17, 19), "zero")
    g = rng.random((17, 19))
    bases = Bidiagonalization(blur, g[None])
    for lam in (1e-3, 1e-2):
        for _ in range(12):
            bases.advance()
            f = bases.scene(lam)[0]
            normal = blur.adjoint(g - blur.forward(f)) - lam * f
            true = np.linalg.norm(normal) / np.linalg.norm(blur.adjoint(g))
            assert abs(residual_of(bases, lam) - true) <= 1e-9 * true + 1e-14


def test_the_measure_is_gauss_quadrature(rng):
    blur = Blur(KERNELS["even, asymmetric"], (9, 11), "zero")
    g = rng.random((9, 11))
    h = blur.to_dense()
    bases = Bidiagonalization(blur, g[None], keep=False)
    for _ in range(6):
        bases.advance()
    values, weights = bases.measure()
    power = g.ravel().copy()
    for degree in range(12):  # exact for polynomials of degree 2k - 1 at least
        np.testing.assert_allclose(weights @ values**degree, g.ravel() @ power, rtol=1e-10)
        power = h @ (h.T @ power)


def test_one_pixel():
    assert abs(restored(Blur([[2.0]], (1, 1), "zero"), np.array([[3.0]]), 0.5).scene.item() - 6 / 4.5) <= 1e-14


def test_too_few_steps_are_reported():
    blur = Blur(psf.gaussian(9, 2.0), (32, 32), "zero")
    g = np.random.default_rng(0).random((32, 32))
    found = restored(blur, g, 1e-4, max_iterations=5)
    assert not found.converged
    assert found.iterations == 5
    assert "pcg" in found.why
    f = found.scene[0, 0]
    normal = blur.adjoint(g - blur.forward(f)) - 1e-4 * f
    assert f"residual {np.linalg.norm(normal) / np.linalg.norm(blur.adjoint(g)):.1e} after 5" in found.why


def test_float32_stays_float32(rng, xp):
    blur = Blur(KERNELS["camera shake"], (40, 37), "reflect")
    g = rng.random((40, 37))
    found = restored(blur, xp.asarray(g, dtype=xp.float32), 1e-2, rtol=1e-5)
    assert found.scene.dtype == np.float32
    assert found.converged
    assert relative(found.scene, restored(blur, g, 1e-2).scene) <= 1e-4


def test_what_it_refuses():
    blur = Blur(KERNELS["camera shake"], (9, 9), "zero")
    assert "tikhonov" in hybrid_lsqr.refuses(Problem(blur, 1e-2, formula="hht"))
    assert "λ > 0" in hybrid_lsqr.refuses(Problem(blur, 0.0))


def test_bases_that_do_not_fit_are_refused_before_they_are_made_and_no_others(monkeypatch):
    blur = Blur(KERNELS["camera shake"], (9, 9), "zero")
    free = int(peak(hybrid_lsqr.memory(Problem(blur, 1.0))))
    monkeypatch.setattr("deblur.device.free_memory", lambda xp: free)
    assert restored(blur, np.ones((9, 9)), 1.0).converged
    free -= 1
    with pytest.raises(InsufficientMemoryError, match="pcg"):
        restored(blur, np.ones((9, 9)), 1.0)

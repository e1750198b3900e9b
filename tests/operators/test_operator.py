"""An operator that is not a blur by one PSF, and a boundary that is none of the five: what solvers ask is enough."""

import math
import pickle

import numpy as np
import pytest
from covers import pairwise
from problems import problem_of, solve
from references import PSF, check, dense_solution, reference, scene_like, textbook
from refusals import refused
from scipy.ndimage import gaussian_filter
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from test_extending import Nearest

import deblur
from deblur.operators.adapted import AdaptedOperator
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.operators.operator import LinearMap
from deblur.solvers import admm, quadratic, richardson_lucy


class Vignette(LinearMap):
    """A blur by one PSF, and then a weight for each pixel of the image."""

    shift_invariant = None

    def __init__(self, blur, weight):
        self.mean_blur, self.weight = blur, weight
        self.image_shape, self.scene_shape, self.crop = blur.image_shape, blur.scene_shape, blur.crop
        self.boundary, self.nonnegative = blur.boundary, blur.nonnegative
        self.norm_bound, self.dc_gain = blur.norm_bound * weight.max(), blur.dc_gain * weight.mean()

    def power(self, torus):
        return self.mean_blur.power(torus)

    def forward(self, f):
        return self.mean_blur.forward(f) * self.weight.astype(f.dtype)

    def adjoint(self, g, overwrite=False):
        return self.mean_blur.adjoint(g * self.weight.astype(g.dtype))

    def to_dense(self):
        return self.weight.reshape(-1, 1) * self.mean_blur.to_dense()


def vignette(rng, shape, boundary):
    return Vignette(Blur(PSF, shape, boundary), 0.5 + rng.random(shape))


@pytest.mark.parametrize(
    ("regularizer", "boundary", "weighted"), pairwise(["identity", "gradient", "laplacian"], BOUNDARIES, [False, True])
)
def test_quadratic_penalties_reach_the_dense_solution(rng, regularizer, boundary, weighted):
    operator = vignette(rng, (11, 12), boundary)
    weights = rng.random((11, 12)) * (rng.random((11, 12)) > 0.15) if weighted else None
    g = rng.random((11, 12))
    problem = problem_of(operator, regularizer, 1e-2, weights=weights, background=0.2, rtol=1e-11)
    solution = solve(problem, g[None, None])
    expected, value = dense_solution(problem, g)
    assert solution.converged
    assert np.linalg.norm(solution.scene[0, 0] - expected) <= 1e-8 * np.linalg.norm(expected)
    assert problem.objective(g[None, None], solution.scene) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(("boundary", "method"), [*zip(BOUNDARIES, ("tv", "tv2", "tv", "tv2", "tv"))])
def test_total_variation_reaches_the_least_objective(rng, method, boundary):
    operator = vignette(rng, (8, 7), boundary)
    g = operator.forward(scene_like(rng, operator.scene_shape)) + 0.02 * rng.standard_normal((8, 7))
    check(problem_of(operator, method, 5e-3), g)


@pytest.mark.parametrize("boundary", ["periodic", "unknown"])
def test_counts_with_bounds_and_weights_reach_the_least_objective(rng, boundary):
    operator = vignette(rng, (7, 8), boundary)
    g = rng.poisson(50 * operator.forward(scene_like(rng, operator.scene_shape)).clip(0)) / 50 + 0.1
    weights = np.where(rng.random(g.shape) < 0.1, 0.0, 1 + rng.random(g.shape))
    options = {"weights": weights, "bounds": (0.15, 0.8), "background": 0.1}
    check(problem_of(operator, "tv", 1e-2, data="poisson", **options), g)


@pytest.mark.parametrize("boundary", ["zero", "periodic", "reflect", "unknown"])
def test_richardson_lucy_takes_the_textbook_steps(rng, boundary):
    operator = vignette(rng, (11, 8), boundary)
    g = operator.forward(0.1 + rng.random(operator.scene_shape)) + 0.3
    w, h = rng.random(g.shape), operator.to_dense()
    _, objectives = textbook(h, g.ravel(), w.ravel(), 0.25, 8, True, operator.dc_gain)
    problem = problem_of(operator, "tv", data="poisson", weights=w, background=0.25, rtol=1e-300, max_iterations=8)
    run = solve(problem, g[None, None], solver=richardson_lucy)
    np.testing.assert_allclose(run.history.objective[:7], objectives[1:], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["denoiser", "patches"])
def test_what_is_filtered_by_patches_or_a_denoiser_is_restored(rng, name):
    operator = vignette(rng, (24, 25), "unknown")
    truth = scene_like(rng, operator.scene_shape)
    g = (operator.forward(truth) + 0.01 * rng.standard_normal((24, 25)))[None, None]
    problem = problem_of(operator, name, 1e-3, denoiser=lambda image, sigma: gaussian_filter(image, 0.5))
    inner = truth[operator.crop]
    error = np.linalg.norm(solve(problem, g).scene[0, 0][operator.crop] - inner)
    assert error < 0.5 * np.linalg.norm(g[0, 0] - inner)


def test_a_boundary_of_ones_own_is_solved_with_total_variation(rng):
    blur = Blur(PSF, (8, 7), Nearest("nearest"))
    g = blur.forward(scene_like(rng, blur.scene_shape)) + 0.02 * rng.standard_normal((8, 7))
    check(problem_of(blur, "tv2", 5e-3), g)


@pytest.mark.parametrize("solver", [admm, quadratic])
def test_factors_of_it_pickle(rng, solver):
    problem = problem_of(vignette(rng, (9, 10), "unknown"), "gradient" if solver is quadratic else "tv", 1e-2)
    assert solver.refuses(problem) is None
    g = rng.random((1, 1, 9, 10))
    factor = solver.prepare(problem)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(factor)).solve(g).scene, factor.solve(g).scene)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_an_operator_takes_no_columns_at_all(boundary):
    blur = Blur(np.ones((3, 3)), (8, 7), boundary)
    assert (blur @ np.zeros((blur.shape[1], 0))).shape == (blur.shape[0], 0)
    assert (blur.T @ np.zeros((blur.shape[0], 0))).shape == (blur.shape[1], 0)


def of_scipy(rng, scene, scale=1.0):
    """A random operator of SciPy for images of 6 x 7 pixels, and its matrix."""
    h = scale * rng.random((42, math.prod(scene))) ** 8 / 5
    operator = aslinearoperator(h)
    operator.dims = scene
    return operator, h


@pytest.mark.parametrize("scene", [(6, 7), (8, 9), (5, 4)])
@pytest.mark.parametrize(("dtype", "precision"), [(np.float64, 1e-6), (np.float32, 1e-4)])
def test_an_operator_of_scipy_takes_the_place_of_the_psf(scene, dtype, precision):
    g = np.random.default_rng(1).random((2, 6, 7, 3)).astype(dtype)
    (operator, h), (tiny, _) = (of_scipy(np.random.default_rng(2), scene, scale) for scale in (1.0, 2.0**-70))
    found = deblur.reconstruct(g, operator, 1e-2, stack_axis=0, channel_axis=-1)
    expected = h.T @ np.linalg.solve(h @ h.T + 1e-2 * np.eye(42), np.moveaxis(g, 3, 1).reshape(6, 42).T.astype(float))
    expected = np.moveaxis(expected.T.reshape(2, 3, *scene), 1, 3)
    assert found.dtype == dtype
    assert np.linalg.norm(found - expected) <= precision * np.linalg.norm(expected)
    scaled = deblur.reconstruct(g, tiny, 1e-2 * 2.0**-140, stack_axis=0, channel_axis=-1)
    np.testing.assert_array_equal(scaled, found * dtype(2.0**70))


@pytest.mark.parametrize(
    ("scene", "method"), [((6, 7), "gradient"), ((5, 4), "tv"), ((5, 4), "laplacian"), ((8, 9), "identity")]
)
def test_methods_that_need_products_alone_solve_for_an_operator_of_scipy(rng, scene, method):
    (operator, h), g = of_scipy(rng, scene), rng.random((6, 7))
    found = deblur.solve(g, operator, 1e-2, method=method, rtol=1e-9, max_iterations=20000)
    adapted = found.blur
    adapted.to_dense = lambda: h
    assert adapted.norm_bound >= np.linalg.norm(h, 2)
    expected = reference([found.problem], [g], 20_000)[0] if "tv" in method else dense_solution(found.problem, g)[0]
    assert np.linalg.norm(found.image - expected) <= 1e-3 * np.linalg.norm(expected)


def test_richardson_lucy_takes_the_same_steps_for_a_blur_and_its_products(rng):
    blur, g = Blur(PSF, (11, 12), "reflect"), rng.random((11, 12))
    products = LinearOperator(blur.shape, matvec=blur.matvec, rmatvec=blur.rmatvec, dtype=float)
    options = {"method": "richardson-lucy", "max_iterations": 9, "check": False}
    expected, found = (deblur.solve(g, psf, **options).image for psf in (blur, products))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("method", ["tv", "tv2"])
def test_an_operator_that_sees_few_pixels_has_its_norm(method):
    seen = np.where(deblur.device.random_signs((3, 3, 4), float, np)[0] < 0, 2.0, 0.0).ravel()
    assert deblur.solve(np.ones((3, 4)), aslinearoperator(np.diag(seen)), 1e-3, method=method).status.ok
    assert 2 <= AdaptedOperator(aslinearoperator(np.diag(seen)), (3, 4)).norm_bound < 2.2


def test_a_minimum_whose_image_still_moves_is_refused_for_that():
    left, right = np.random.default_rng(2).standard_normal((2, 42, 20))
    operator, g = aslinearoperator(left @ right.T / 42), np.random.default_rng(2).random((6, 7))
    words = "exceeds its minimum .* but the image still moves: the data and the regularizer hardly determine some of it"
    refused(deblur.ConvergenceError, words, deblur.solve, g, operator, 1e-4, method="tv", max_iterations=1000)


def test_operators_of_the_package_are_taken_as_they_are(rng):
    g, grid = rng.random((11, 12)), rng.random((2, 2, 3, 3))
    blur, varying = Blur(PSF, g.shape, "unknown"), deblur.VaryingBlur(grid, g.shape, "reflect", tolerance=0.01)
    expected = deblur.reconstruct(g, PSF, 1e-2, boundary="unknown")
    np.testing.assert_array_equal(deblur.reconstruct(g, blur, 1e-2), expected)
    expected = deblur.reconstruct(g, psfs=grid, lam=1e-2, boundary="reflect")
    np.testing.assert_array_equal(deblur.reconstruct(g, varying, 1e-2), expected)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"rmatvec": lambda g: np.roll(g, 1)}, {}, "rmatvec is not the adjoint.*dottest"),
        ({"rmatvec": None}, {}, "has no rmatvec"),
        ({"matvec": lambda f: f * np.nan}, {}, "norm nan"),
        ({"matvec": lambda f: f * 1j}, {}, "complex128"),
        ({"shape": (41, 42)}, {}, r"images of shape \(41,\).*\(6, 7\)"),
        ({"shape": (42, 50)}, {}, "scenes of 50 pixels.*set operator.dims"),
        ({}, {"boundary": "zero"}, "belong to a PSF"),
        ({}, {"method": "fft"}, "hybrid-lsqr, identity, gradient"),
        ({"matvec": lambda f: -f, "rmatvec": lambda g: -g}, {"method": "richardson-lucy"}, "negative values"),
    ],
)
def test_operators_that_cannot_serve_are_refused(change, options, words):
    given = {"shape": (42, 42), "matvec": lambda f: f, "rmatvec": lambda g: g, "dtype": float} | change
    refused((ValueError, TypeError), words, deblur.solve, np.ones((6, 7)), LinearOperator(**given), 1e-2, **options)

"""Quadratic regularizers against the dense normal equations, for every boundary, with and without weights."""

import math

import numpy as np
import pytest
from covers import pairwise
from problems import changed, problem_of, solve
from references import dense_solution

from deblur.device import asnumpy
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.solvers import admm, quadratic

REGULARIZERS = ("identity", "gradient", "laplacian")


PSFS = {
    "asymmetric": lambda rng: rng.random((4, 3)),
    "symmetric": lambda rng: np.outer([1, 2, 1], [1, 4, 6, 4, 1.0]),
    "even": lambda rng: rng.random((2, 4)),
    "line": lambda rng: rng.random(4),
    "volume": lambda rng: rng.random((2, 4, 3)),
}


CASES = [*pairwise(REGULARIZERS, BOUNDARIES, [False, True], PSFS, [0, 1])]
CASES += [("laplacian", boundary, True, "volume", 2) for boundary in BOUNDARIES]


@pytest.mark.parametrize(("method", "boundary", "weighted", "name", "shape"), CASES)
def test_it_solves_the_masked_normal_equations(rng, method, boundary, weighted, name, shape):
    psf = PSFS[name](rng)
    shape = ([(19,), (8,)], [(11, 13), (8, 8)], [(5, 7, 6), (4, 5, 4), (7, 6, 5)])[psf.ndim - 1][shape]
    g = rng.random(shape)
    psf = psf if name == "even" else psf / psf.sum()
    weights = rng.random(shape) * (rng.random(shape) > 0.15) if weighted else None
    options = {"weights": weights, "background": 0.2, "rtol": 1e-11}
    problem = problem_of(Blur(psf, shape, boundary), method, 1e-2, **options)
    solution = solve(problem, g[None, None])
    expected, value = dense_solution(problem, g)
    assert solution.converged
    assert np.linalg.norm(solution.scene[0, 0] - expected) <= 1e-8 * np.linalg.norm(expected)
    assert solution.history.objective[-1] == pytest.approx(value, rel=1e-9)
    assert problem.objective(g[None, None], solution.scene) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("hidden", ["nothing", "pixels", "a hole", "most weigh little"])
def test_converged_means_within_a_hundredth_of_the_minimiser(rng, hidden):
    """However small λ is and whatever λ alone must hold; what cannot be brought so near says so."""
    shape, answers = (12, 13), []
    weights = {
        "nothing": None,
        "pixels": rng.random(shape) > 0.1,
        "a hole": np.ones(shape),
        "most weigh little": np.exp(2 * rng.standard_normal(shape)),
    }[hidden]
    if hidden == "a hole":
        weights[3:9, 4:10] = 0
    sharp = np.add.outer(np.arange(23) > 9, rng.random(23)) + rng.random((23, 23))
    for boundary in BOUNDARIES:
        for psf in (rng.random((4, 3)), np.array([[0.7, 0, 0], [0, 0, 0.3]]), np.outer([1, 4, 1], [1, 4, 1])):
            blur, dtype = Blur(psf / psf.sum(), shape, boundary), np.dtype(("f4", "f8")[len(answers) % 2])
            method, lam = REGULARIZERS[len(answers) % 3], 10.0 ** -(1 + 3 * len(answers) % 7)
            g = blur.forward(sharp[tuple(map(slice, blur.scene_shape))]) + 0.003 * rng.standard_normal(shape)
            fitting = None if weights is None else weights.astype(dtype)
            problem = problem_of(blur, method, lam, weights=fitting, dtype=dtype, max_iterations=300)
            solution = solve(problem, g.astype(dtype)[None, None])
            assert solution.scene.dtype == dtype
            expected = dense_solution(problem, g)[0]
            error = np.linalg.norm(solution.scene[0, 0] - expected) / np.linalg.norm(expected)
            assert error <= 1e-2 or not solution.converged, (boundary, psf.shape, method, lam, solution.why)
            answers.append(solution.converged)
    assert np.mean(answers) >= 0.4


@pytest.mark.parametrize("boundary", sorted({*BOUNDARIES} - {"antireflect"}))  # whose matrix has negative entries
@pytest.mark.parametrize("method", REGULARIZERS)
def test_the_inside_of_a_wide_hole_is_found_in_few_iterations(rng, method, boundary):
    """To a thousandth of the scene, in a tenth of the iterations that a method gives up after."""
    weights, psf = np.ones((36, 32)), np.outer([1, 4, 1], [1, 4, 1]) / 36
    weights[6:30, 5:28] = 0
    g = np.add.outer(np.arange(36.0), np.arange(32)) / 40 + 0.01 * rng.random((36, 32))
    problem = problem_of(Blur(psf, g.shape, boundary), method, 1e-3, weights=weights, max_iterations=150)
    solution, expected = solve(problem, g[None, None]), dense_solution(problem, g)[0]
    assert solution.converged
    assert np.linalg.norm(solution.scene[0, 0] - expected) <= 1e-3 * np.linalg.norm(expected)
    # What is added for the hole raises no eigenvalue by more than one for each width, and lowers none.
    factor, n = quadratic.prepare(problem), math.prod(problem.operator.scene_shape)
    each = np.eye(n).reshape(n, 1, *problem.operator.scene_shape)
    assert factor.holes
    for by, near in factor.holes:
        part = each if by is None else factor.domain.filter(each, by)
        root = np.sqrt(near).reshape(n, 1) * part.reshape(n, n)
        values = np.linalg.eigvalsh(root @ problem.normal(root.reshape(each.shape)).reshape(n, n).T)
        assert -1e-9 <= values.min() <= values.max() <= 1 + 1e-9


def test_where_the_frequency_domain_is_exact_one_step_is_the_solution(rng):
    symmetric = np.outer([1, 2, 1], [1, 4, 6, 4, 1.0]) / 64
    for psf, boundary in ((rng.random((4, 3)), "periodic"), (symmetric, "reflect")):
        problem = problem_of(Blur(psf, (20, 17), boundary), "gradient", 1e-3, rtol=1e-10)
        assert solve(problem, rng.random((1, 1, 20, 17))).iterations == 1


@pytest.mark.parametrize(("boundary", "method"), [*zip(BOUNDARIES, (*REGULARIZERS, *REGULARIZERS))])
def test_admm_finds_the_same_minimiser(rng, boundary, method):
    psf, shape = rng.random((3, 4)), (12, 9)
    weights = rng.random(shape)
    problem = problem_of(Blur(psf / psf.sum(), shape, boundary), method, 3e-2, weights=weights, rtol=1e-8)
    g = rng.random((1, 1, *shape))
    direct = solve(problem, g).scene
    split = solve(changed(problem, rtol=1e-6, max_iterations=2000), g, solver=admm)
    assert split.converged
    assert np.linalg.norm(split.scene - direct) <= 3e-4 * np.linalg.norm(direct)


def test_frames_are_solved_each_for_itself(rng):
    problem = problem_of(Blur(np.full((3, 3), 1 / 9), (10, 11), "unknown"), "gradient", 1e-2, rtol=1e-10)
    g = rng.random((2, 3, 10, 11))
    g[1, 2] = 0  # a frame that is solved at once must not disturb the others
    together = solve(problem, g)
    for i in range(2):
        for j in range(3):
            alone = solve(problem, g[i : i + 1, j : j + 1]).scene[0, 0]
            assert np.abs(together.scene[i, j] - alone).max() <= 1e-8
    assert np.abs(together.scene[1, 2]).max() <= 1e-12


def test_the_gradient_is_that_of_the_objective(rng):
    blur, weights = Blur(rng.random((3, 2)), (7, 9), "unknown"), rng.random((7, 9))
    problem = problem_of(blur, "laplacian", 0.3, weights=weights, background=0.1)
    g = rng.random((1, 1, 7, 9))
    f, d = (rng.standard_normal((1, 1, *problem.operator.scene_shape)) for _ in range(2))
    h = 1e-5
    slope = (problem.objective(g, f + h * d) - problem.objective(g, f - h * d)) / (2 * h)
    assert slope == pytest.approx(float(np.vdot(problem.normal(f) - problem.right(g), d)), rel=1e-7)


def test_float32_and_other_array_libraries(xp, rng):
    g = rng.random((1, 1, 24, 21))
    weights = (rng.random((24, 21)) > 0.1).astype(np.float32)
    psf = rng.random((3, 4))
    blur = Blur(psf / psf.sum(), (24, 21), "unknown")
    exact = solve(problem_of(blur, "gradient", 1e-2, weights=weights, rtol=1e-10), g).scene
    for dtype, bound in ((np.float64, 1e-4), (np.float32, 1e-3)):
        problem = problem_of(
            blur, "gradient", 1e-2, weights=xp.asarray(weights.astype(dtype)), dtype=np.dtype(dtype), xp=xp
        )
        scene = solve(problem, xp.asarray(g.astype(dtype))).scene
        assert isinstance(scene, xp.ndarray)
        assert scene.dtype == dtype
        assert np.linalg.norm(asnumpy(scene) - exact) <= bound * np.linalg.norm(exact)

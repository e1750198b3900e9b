"""ADMM against independent minimisers of the dense problem, and what it does when things go wrong."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from covers import pairwise
from problems import changed, problem_of, solve as solve_by_penalty
from references import PSF, check, dense_differences, scene_like, solve_by_admm as solve
from scipy.optimize import linprog

import deblur
from deblur.degradation import degrade
from deblur.device import asnumpy
from deblur.errors import ConvergenceError
from deblur.metrics import psnr
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.solvers.admm import first_frames
from deblur.solvers.splits import Extrapolation
from deblur.solvers.start import filled


def test_next_to_no_regularisation_comes_near_its_least_objective():
    """Where the blur has taken nearly all away, and nothing lies beyond the frame."""
    truth = deblur.data.load("brick")[:72, :70]
    blur = Blur(deblur.psf.gaussian(9, 1.5), truth.shape, "zero")
    problem, g = problem_of(blur, "tv", 1e-7), blur.forward(truth)[None, None]
    found, far = solve(problem, g), solve(changed(problem, rtol=2e-5), g)
    assert found.iterations <= 300
    assert found.history.objective[-1] <= 1.02 * far.history.objective[-1]
    assert psnr(truth, found.scene[0, 0]) >= psnr(truth, far.scene[0, 0]) - 0.5


@pytest.mark.parametrize(
    ("data", "boundary"),
    [("gaussian", "zero"), *zip(("poisson", "poisson", "l1", "huber"), ("unknown", "zero", "reflect", "unknown"))],
)
def test_every_noise_model_with_weights_bounds_and_background(rng, data, boundary):
    shape = (7, 8)
    blur = Blur(PSF, shape, boundary)
    clean = blur.forward(scene_like(rng, blur.scene_shape)) + 0.1
    g = rng.poisson(50 * clean) / 50 if data == "poisson" else clean + 0.03 * rng.standard_normal(shape)
    if data in ("l1", "huber"):
        g[rng.random(shape) < 0.05] = 1.0
    weights = np.where(rng.random(shape) < 0.1, 0.0, 1 + rng.random(shape))
    lam = 0.2 if data == "l1" else 1e-2
    problem = problem_of(blur, "tv", lam, data=data, weights=weights, bounds=(0.15, 0.8), background=0.1, delta=0.03)
    check(problem, np.maximum(g, 0))


def test_absolute_deviations_and_axis_variation_are_a_linear_programme(rng):
    """An exact, entirely different solver: min Σ s + λ Σ t with |Hf − g| ≤ s, |Lf| ≤ t is an LP."""
    shape, lam = (7, 6), 0.15
    blur = Blur(PSF[:3], shape, "unknown")
    g = blur.forward(scene_like(rng, blur.scene_shape))
    g[2, 3], g[5, 1] = 1.0, 0.0
    h, ell = blur.to_dense(), dense_differences(blur.scene_shape, "gradient", False)
    n, m, p = h.shape[1], len(h), len(ell)
    cost = np.concatenate([np.zeros(n), np.ones(m), np.full(p, lam)])
    eye_m, eye_p = np.eye(m), np.eye(p)
    rows = [
        np.hstack([h, -eye_m, np.zeros((m, p))]),
        np.hstack([-h, -eye_m, np.zeros((m, p))]),
        np.hstack([ell, np.zeros((p, m)), -eye_p]),
        np.hstack([-ell, np.zeros((p, m)), -eye_p]),
    ]
    right = np.concatenate([g.ravel(), -g.ravel(), np.zeros(2 * p)])
    bounds = [(0, 1)] * n + [(0, None)] * (m + p)
    exact = linprog(cost, np.vstack(rows), right, bounds=bounds)
    problem = problem_of(blur, "tv-aniso", lam, data="l1", bounds=(0.0, 1.0), rtol=1e-4, max_iterations=5000)
    solution = solve(problem, g[None, None])
    assert solution.converged
    assert problem.objective(g[None, None], solution.scene) == pytest.approx(exact.fun, rel=1e-3)


def test_colours_share_their_edges(rng):
    """Vectorial TV of three equal channels is grey TV at √3/3 of λ: |∇f| counts once, weighted √3, for 3 data terms."""
    blur = Blur(PSF, (9, 8), "unknown")
    g = blur.forward(scene_like(rng, blur.scene_shape)) + 0.02 * rng.standard_normal((9, 8))
    lam = 0.01
    grey = solve(problem_of(blur, "tv", lam / np.sqrt(3), rtol=1e-7, max_iterations=4000), g[None, None])
    problem = problem_of(blur, "tv", lam, rtol=1e-7, max_iterations=4000)
    colour = solve(problem, np.repeat(g[None, None], 3, axis=1))
    for channel in colour.scene[0]:
        assert np.abs(channel - grey.scene[0, 0])[blur.crop].max() <= 1e-3
    # and an edge in one colour helps another: not the same as each colour alone
    mixed = np.stack([g, np.full_like(g, 0.5) + 0.02 * rng.standard_normal(g.shape)])[None]
    coupled = solve(problem_of(blur, "tv", lam, rtol=1e-6), mixed).scene[0, 1]
    alone = solve(problem_of(blur, "tv", lam, rtol=1e-6), mixed[:, 1:]).scene[0, 0]
    assert np.abs(coupled - alone).max() > 1e-3


def test_frames_of_a_stack_are_their_own_problems(rng):
    blur = Blur(PSF, (8, 7), "unknown")
    g = np.stack([blur.forward(scene_like(rng, blur.scene_shape)) for _ in range(3)])[:, None]
    problem = problem_of(blur, "tv", 2e-3, rtol=1e-6, max_iterations=3000, bounds=(0.0, 1.0))
    together = solve(problem, g)
    for i in range(3):
        alone = solve(problem, g[i : i + 1])
        assert np.abs(together.scene[i] - alone.scene[0])[(..., *blur.crop)].max() <= 1e-3


@pytest.mark.parametrize(("method", "boundary"), list(product(["gradient", "tv", "tv2"], BOUNDARIES))[::2])
def test_what_is_hidden_has_no_effect(rng, boundary, method):
    blur = Blur(PSF, (11, 12), boundary)
    g = blur.forward(scene_like(rng, blur.scene_shape))
    hidden = rng.random(g.shape) < 0.1
    problem = problem_of(blur, method, 1e-3, weights=1.0 - hidden)
    spoiled = np.where(hidden, 1e3 * rng.standard_normal(g.shape), g)
    one, two = (solve_by_penalty(problem, x[None, None]) for x in (g, spoiled))
    assert one.iterations == two.iterations
    assert np.abs(one.scene - two.scene).max() <= 1e-9


def test_the_fill_uses_visible_neighbours_only(rng):
    g = np.full((2, 1, 9, 9), 0.25)
    weights = (rng.random(g.shape) > 0.5).astype(float)
    weights[:, :, 0, 0] = 1
    g[weights == 0] = np.inf
    assert np.abs(filled(g, weights) - 0.25).max() <= 1e-12
    assert filled(g, None) is g


@pytest.mark.parametrize("factor", [1e-3, 255.0])
@pytest.mark.parametrize(("data", "power"), [("gaussian", 1), ("l1", 0), ("poisson", 0)])
def test_the_units_of_the_image_do_not_matter(rng, data, power, factor):
    blur = Blur(PSF, (12, 13), "unknown")
    g = np.maximum(blur.forward(scene_like(rng, blur.scene_shape)), 0)[None, None]
    lam = 0.1 if data == "l1" else 3e-3
    one = solve(problem_of(blur, "tv", lam, data=data), g)
    other = solve(problem_of(blur, "tv", lam * factor**power, data=data), factor * g)
    assert one.iterations == other.iterations
    assert np.abs(other.scene / factor - one.scene).max() <= 1e-8


def test_a_start_of_other_units_is_left_aside(rng):
    blur = Blur(PSF, (20, 21), "unknown")
    g = rng.random((1, 1, 20, 21)).astype(np.float32)
    small, large = (problem_of(blur, "tv", 1e-2 * s, dtype=np.dtype("f4")) for s in (1, 1e25))
    g *= 0.9
    found = solve(large, np.float32(1e25) * g, solve(small, g))
    np.testing.assert_array_equal(found.scene, solve(large, np.float32(1e25) * g).scene)


def test_a_warm_start_is_quicker_and_ends_at_the_same_place(rng):
    blur = Blur(PSF, (32, 30), "unknown")
    g = (blur.forward(scene_like(rng, blur.scene_shape)) + 0.02 * rng.standard_normal((32, 30)))[None, None]
    problem = problem_of(blur, "tv", 3e-3, rtol=1e-5, max_iterations=2000)
    cold = solve(problem, g)
    assert solve(problem, g, cold).iterations <= 2
    other = changed(problem, lam=3.3e-3)
    near, fresh = solve(other, g, cold), solve(other, g)
    assert near.iterations < fresh.iterations
    assert other.objective(g, near.scene) == pytest.approx(other.objective(g, fresh.scene), rel=1e-5)


def test_the_history_tells_what_happened(rng):
    blur = Blur(PSF, (16, 17), "unknown")
    g = blur.forward(scene_like(rng, blur.scene_shape))[None, None]
    seen = []
    problem = problem_of(blur, "tv", 2e-3, rtol=1e-4, callback=lambda i, r: seen.append((i, r)))
    solution = solve(problem, g)
    history = solution.history
    assert len(history.objective) == len(history.primal) == len(history.dual) == solution.iterations
    assert [i for i, _ in seen] == list(range(1, solution.iterations + 1))
    assert max(history.primal[-1], history.dual[-1]) <= 1e-4
    assert seen[-1][1] == max(history.primal[-1], history.dual[-1])
    # the objective as the iteration saw it, at its copies, ends where verification measures it
    assert history.objective[-1] == pytest.approx(problem.objective(g, solution.scene), rel=1e-3)
    assert "1.0e-04" in solution.why
    short = solve(changed(problem, max_iterations=3), g)
    assert not short.converged
    assert short.iterations == 3


def test_divergence_is_reported_and_never_returned(rng):
    blur = Blur(PSF, (8, 8), "unknown")
    g = np.full((1, 1, 8, 8), 1e300)
    g[..., ::2] = -1e300
    with pytest.raises(ConvergenceError, match="diverged"), np.errstate(all="ignore"):
        solve(problem_of(blur, "tv", 1.0), g)


# -- other arrays ----------------------------------------------------------------------------


@pytest.mark.parametrize(("boundary", "method"), [*zip(BOUNDARIES, ("tv", "tv2", "tv", "tv2", "tv"))])
def test_array_libraries_and_dtypes_agree(xp, rng, boundary, method):
    blur = Blur(PSF, (23, 26), boundary)
    g = np.maximum(blur.forward(scene_like(rng, blur.scene_shape)) + 0.01 * rng.standard_normal((23, 26)), 0)
    g = np.stack([g, g[::-1]])[:, None]
    problem = problem_of(blur, method, 2e-3, data="huber", bounds=(0.0, 1.0))
    exact = solve(problem, g)
    for dtype, bound in ((np.float64, 1e-9), (np.float32, 2e-3)):
        here = changed(problem, dtype=np.dtype(dtype), xp=xp, weights=xp.ones((23, 26), dtype))
        found = solve(here, xp.asarray(g.astype(dtype)))
        assert isinstance(found.scene, xp.ndarray)
        assert found.scene.dtype == dtype
        assert np.abs(asnumpy(found.scene) - exact.scene)[(..., *blur.crop)].max() <= bound


@pytest.mark.parametrize(
    ("shape", "boundary", "method"), pairwise([(1, 1), (1, 9), (2, 2), (9, 11)], BOUNDARIES, ["tv", "tv2"])
)
def test_hostile_sizes(rng, boundary, shape, method):
    psf = np.array([[1.0]]) if min(shape) < 2 else np.array([[0.5, 0.3], [0.2, 0.0]])
    if shape == (1, 9):
        psf = np.array([[0.2, 0.5, 0.2, 0.1]])
    blur = Blur(psf, shape, boundary)
    g = rng.random(shape)[None, None]
    solution = solve(problem_of(blur, method, 1e-3, max_iterations=3000), g)
    assert solution.converged
    assert solution.scene.shape == (1, 1, *blur.scene_shape)
    assert np.isfinite(solution.scene).all()
    inner = solve(problem_of(blur, "tv", 1e-3), np.full_like(g, 0.5)).scene[0, 0][blur.crop]
    if boundary != "zero":
        assert np.abs(inner - 0.5).max() <= 2e-3
    assert np.abs(solve(problem_of(blur, "tv", 1e-3), np.zeros_like(g)).scene).max() <= 1e-12


def test_an_earlier_solution_stays_as_it_was(rng):
    blur = Blur(PSF, (16, 15), "periodic")
    g = blur.forward(scene_like(rng, (16, 15)))[None, None]
    problem = problem_of(blur, "tv", 3e-3)
    first = solve(problem, g)
    scene, second = first.scene.copy(), solve(changed(problem, lam=1e-2), g, first)
    assert np.array_equal(first.scene, scene)
    assert np.array_equal(solve(changed(problem, lam=1e-2), g, first).scene, second.scene)


def test_a_solution_of_a_stack_serves_its_first_frames(rng):
    blur = Blur(PSF, (16, 15), "zero")
    g = np.stack([blur.forward(scene_like(rng, (16, 15))) for _ in range(2)])[:, None]
    problem = problem_of(blur, "tv", 3e-3, rtol=1e-4, max_iterations=2000)
    both = solve(problem, g)
    one = solve(problem, g[:1], first_frames(both, 1))
    assert one.iterations <= 3
    assert np.abs(one.scene - both.scene[:1]).max() <= 1e-3


@pytest.mark.parametrize("boundary", ["zero", "unknown"])
def test_a_small_lambda_is_no_trap(boundary):
    """Without noise and with λ next to nothing, a tolerance met early must not mean an image far from the minimiser."""
    psf = deblur.psf.camera_shake(9, 1)
    g = degrade(deblur.data.load("camera64"), psf, boundary=boundary)[None, None]
    problem = problem_of(Blur(psf, g.shape[2:], boundary), "tv", 1e-6, max_iterations=1000)
    found, tight = solve(problem, g), solve(changed(problem, rtol=1e-4), g)
    assert problem.objective(g, found.scene) <= 1.02 * problem.objective(g, tight.scene)


def test_moves_too_small_to_be_squared_are_extrapolated(rng):
    steps = SimpleNamespace(rho=[1.0], u=[[np.zeros(9, "f4")]], t=[[np.zeros(9, "f4")]])
    extrapolation = Extrapolation(steps)
    for _ in range(5):
        steps.t[0][0] += 1e-22 * rng.standard_normal(9).astype("f4")
        extrapolation.advance()
    assert np.isfinite(steps.t[0][0]).all()


def test_penalties_of_the_prior_move_with_lambda(rng):
    blur = Blur(PSF, (16, 15), "unknown")
    g = blur.forward(scene_like(rng, blur.scene_shape))[None, None]
    problem = problem_of(blur, "tv", 1e-2, max_iterations=5)
    first = solve(problem, g)
    second = solve(changed(problem, lam=2e-3), g, first)
    assert second.state.rho[1] == pytest.approx(first.state.rho[1] / 5)
    assert second.state.rho[0] == first.state.rho[0]

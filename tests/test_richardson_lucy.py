"""Richardson-Lucy against the same steps on the dense matrix, SciPy's minimiser, and what must hold by itself."""

import math

import numpy as np
import pytest
import scipy.optimize
from structured import PSFS

import deblur
from deblur.backend import asnumpy
from deblur.blur import Blur
from deblur.metrics import psnr
from deblur.variational.problem import VariationalProblem
from deblur.variational.richardson_lucy import (
    estimate_photons,
    refuses,
    richardson_lucy,
    solve,
    whiteness,
)

SERVED = ("zero", "periodic", "reflect", "unknown")


def blurred(blur, rng, noise=0.02):
    scene = rng.random(blur.scene_shape) + 0.1
    return np.maximum(blur.forward(scene) + noise * rng.standard_normal(blur.image_shape), 0)


def divergence(expected, g, w=1.0):
    """Written out for itself: x log x is 0 at 0."""
    terms = expected - g
    terms[g > 0] += g[g > 0] * np.log(g[g > 0] / expected[g > 0])
    return float((w * terms).sum())


def variation(f, edge):
    """Total variation with rounded corners, by loops over the two axes; the channels (c, M, N) are coupled."""
    f = f[None] if f.ndim == 2 else f
    square = np.zeros(f.shape[1:])
    for channel in f:
        square[:-1] += np.diff(channel, axis=0) ** 2
        square[:, :-1] += np.diff(channel, axis=1) ** 2
    return float((np.sqrt(square + edge**2) - edge).sum())


# ---------------------------------------------------------------------------------------------
# The step
# ---------------------------------------------------------------------------------------------


def textbook(h, g, w, background, iterations, accelerate):
    """Biggs and Andrews on vectors, with the dense matrix."""
    s = h.T @ w
    f = before = np.full(
        h.shape[1], max((w @ g) / w.sum() - background, 0.01 * (w @ g) / w.sum()) / h.sum(1).max()
    )
    steps, objectives = [], []
    for _ in range(iterations):
        a = 0.0
        if accelerate and len(steps) > 1:
            a = min(max(steps[-1] @ steps[-2] / (steps[-2] @ steps[-2]), 0), 1)
        y = np.maximum(f + a * (f - before), 0.1 * f)
        expected = h @ y + background
        objectives.append(divergence(expected, g, w))
        if len(objectives) > 1 and objectives[-1] > objectives[-2]:
            steps = []
        new = np.where(s > 1e-7 * s.max(), y * (h.T @ (w * g / expected)) / np.maximum(s, 1e-300), y)
        steps.append(new - y)
        before, f = f, new
    return f, np.array(objectives)


@pytest.mark.parametrize("boundary", SERVED)
@pytest.mark.parametrize("name", ["asymmetric", "even", "binomial", "column", "pixel"])
@pytest.mark.parametrize("accelerate", [False, True])
def test_steps_are_those_on_the_dense_matrix(rng, xp, boundary, name, accelerate):
    blur = Blur(PSFS[name] / PSFS[name].sum(), (11, 7), boundary)
    g = blurred(blur, rng) + 0.3
    w = rng.random(g.shape) * (rng.random(g.shape) > 0.2)
    expected, objectives = textbook(blur.to_dense(), g.ravel(), w.ravel(), 0.25, 8, accelerate)
    run = richardson_lucy(
        blur,
        xp.asarray(g),
        weights=xp.asarray(w),
        background=0.25,
        stop="change",
        tolerance=1e-300,
        max_iterations=8,
        accelerate=accelerate,
    )
    assert isinstance(run.scene, xp.ndarray)
    assert not run.converged
    assert run.iterations == 8
    # Without acceleration the iterate is what the textbook reached; with it, the point extrapolated from
    # there, where the next objective is taken.
    np.testing.assert_allclose(run.objective[:7], objectives[1:], rtol=1e-8, atol=1e-9)
    if not accelerate:
        np.testing.assert_allclose(asnumpy(run.scene).ravel(), expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("boundary", SERVED)
def test_counts_are_kept(rng, boundary):
    # With no background Σ w Hf = Σ w g after every plain step, wherever the scene goes on.
    blur = Blur(PSFS["asymmetric"], (17, 19), boundary)
    g, w = blurred(blur, rng), rng.random((17, 19))
    run = richardson_lucy(blur, g, weights=w, stop="change", max_iterations=3, accelerate=False)
    assert abs((w * blur.forward(run.scene)).sum() - (w * g).sum()) <= 1e-10 * (w * g).sum()


@pytest.mark.parametrize("boundary", SERVED)
def test_plain_steps_never_raise_the_objective(rng, boundary):
    blur = Blur(PSFS["even"], (16, 13), boundary)
    run = richardson_lucy(blur, blurred(blur, rng), stop="change", max_iterations=60, accelerate=False)
    assert np.all(np.diff(run.objective) <= 1e-12)


def test_acceleration_saves_iterations(rng):
    blur = Blur(deblur.psf.gaussian(9, 1.5), (40, 40), "unknown")
    g = blurred(blur, rng, noise=0)
    plain, fast = (
        richardson_lucy(blur, g, stop="change", tolerance=1e-300, max_iterations=n, accelerate=a)
        for n, a in ((200, False), (50, True))
    )
    assert fast.objective[-1] < plain.objective[-1]


def test_flat_scene_is_left_alone():
    # The weights at the edges of an unknown boundary are right: nothing rises or falls there.
    blur = Blur(deblur.psf.motion(7, 30), (20, 23), "unknown")
    run = richardson_lucy(blur, np.full(blur.image_shape, 0.6), stop="change", max_iterations=20)
    assert np.abs(run.scene - 0.6).max() <= 1e-10


# ---------------------------------------------------------------------------------------------
# Where it goes
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.01, 0.3])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("boundary", ["reflect", "unknown"])
def test_total_variation_reaches_the_minimum(rng, lam, channels, boundary):
    blur = Blur(PSFS["asymmetric"], (6, 5), boundary)
    g = np.stack([blurred(blur, rng) for _ in range(channels)])
    w = rng.random(g.shape) + 0.2
    run = richardson_lucy(blur, g, weights=w, background=0.1, tv=lam, tolerance=1e-9, max_iterations=20000)
    h, edge = blur.to_dense(), 0.01 * (w * g).sum() / w.sum()

    def objective(x):
        f = x.reshape(channels, *blur.scene_shape)
        expected = (x.reshape(channels, -1) @ h.T).reshape(g.shape) + 0.1
        return divergence(expected, g, w) + lam * variation(f, edge)

    assert abs(objective(run.scene.ravel()) - run.objective[-1]) <= 1e-9 * abs(run.objective[-1])
    best = scipy.optimize.minimize(
        objective,
        run.scene.ravel() + 1e-3,
        method="L-BFGS-B",
        bounds=[(0, None)] * run.scene.size,
        options={"maxiter": 300, "maxfun": 10**6},
    ).fun
    assert objective(run.scene.ravel()) <= best + 2e-5 * abs(best)


@pytest.mark.parametrize("bounds", [None, (0.2, 0.7), (-math.inf, 0.6)])
def test_bounded_likelihood_reaches_the_minimum(rng, bounds):
    blur = Blur([[0.05, 0.1, 0.0], [0.05, 0.7, 0.1]], (9, 7), "zero")
    g = blurred(blur, rng, noise=0.1)
    run = richardson_lucy(
        blur, g, background=0.2, bounds=bounds, stop="change", tolerance=1e-10, max_iterations=20000
    )
    low, high = (0, math.inf) if bounds is None else bounds
    assert run.scene.min() >= max(low, 0)
    assert run.scene.max() <= high
    h = blur.to_dense()

    def objective(x):
        expected = h @ x + 0.2
        return divergence(expected, g.ravel()), h.T @ (1 - g.ravel() / expected)

    best = scipy.optimize.minimize(
        objective,
        run.scene.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(max(low, 0), min(high, 1e9))] * run.scene.size,
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-12},
    ).fun
    assert objective(run.scene.ravel())[0] <= best + 2e-5 * best  # slow where a pixel goes to zero


@pytest.mark.parametrize("stop", ["whiteness", "discrepancy"])
@pytest.mark.parametrize("photons", [50, 400])
def test_stopping_near_the_best_iterate(stop, photons):
    scene = deblur.data.load("camera")[128:260, 128:260]
    psf = deblur.psf.disk(9, 4)
    g = deblur.degrade(scene, psf, noise="poisson", level=photons, boundary="unknown", seed=3)
    blur = Blur(psf, g.shape, "unknown")
    truth = scene[4:-4, 4:-4]
    chosen = richardson_lucy(blur, g, stop=stop)
    assert chosen.converged
    runs = [richardson_lucy(blur, g, stop="change", tolerance=1e-300, max_iterations=n) for n in range(1, 16)]
    best = max(psnr(truth, run.scene[blur.crop]) for run in runs)
    reached = psnr(truth, chosen.scene[blur.crop])
    assert reached >= best - 0.8
    assert reached >= psnr(truth, g) + 2
    # The iterate given back is the one that the number of iterations names.
    same = runs[chosen.iterations - 1].scene
    np.testing.assert_allclose(chosen.scene, same, rtol=1e-9)
    if stop == "discrepancy":
        assert chosen.criterion[-1] <= 1
        assert chosen.criterion[-2] > 1
    else:
        assert chosen.criterion.min() == chosen.criterion[chosen.iterations - 1]


def test_without_noise_it_goes_on_while_the_residual_shows_picture():
    scene = deblur.data.load("text")[:, :100]
    psf = deblur.psf.disk(9, 4)
    g = np.maximum(deblur.degrade(scene, psf, boundary="unknown"), 0)
    blur = Blur(psf, g.shape, "unknown")
    run = richardson_lucy(blur, g)
    assert psnr(scene[4:-4, 4:-4], run.scene[blur.crop]) >= psnr(scene[4:-4, 4:-4], g) + 5


def test_photons_given_are_used(rng):
    scene = deblur.data.load("camera")[128:200, 128:200]
    psf = deblur.psf.gaussian(7, 1.2)
    g = deblur.degrade(scene, psf, noise="poisson", level=100, seed=1)
    blur = Blur(psf, g.shape)
    few, many = (richardson_lucy(blur, g, stop="discrepancy", photons=n) for n in (20, 100))
    assert few.iterations < many.iterations
    expected = 2 * 20 * few.objective[-1] / g.size
    assert abs(few.criterion[-1] - expected) <= 1e-12


@pytest.mark.parametrize("photons", [30, 1000])
def test_photons_are_estimated(photons):
    scene = deblur.degrade(deblur.data.load("camera")[100:300, 100:300], deblur.psf.gaussian(9, 2))
    g = deblur.degrade(scene, deblur.psf.delta(1), noise="poisson", level=photons, seed=0)
    assert abs(estimate_photons(g) / photons - 1) <= 0.15


# ---------------------------------------------------------------------------------------------
# Whiteness
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(32, 32), (17, 19), (1, 8), (5, 1)])
def test_whiteness_is_the_sum_over_all_frequencies(rng, xp, shape):
    r = rng.standard_normal((2, *shape))
    power = np.abs(np.fft.fft2(r)) ** 2
    power[:, 0, 0] = 0
    n = shape[0] * shape[1] - 1
    expected = np.mean([n * (p**2).sum() / p.sum() ** 2 for p in power])
    assert abs(whiteness(xp.asarray(r)) - expected) <= 1e-12 * expected


def test_whiteness_of_noise_and_of_a_wave(rng):
    assert abs(whiteness(rng.standard_normal((256, 256))) - 2) <= 0.04
    wave = np.cos(2 * np.pi * 3 * np.arange(64) / 64) * np.ones((64, 1))
    assert abs(whiteness(wave) - (64 * 64 - 1) / 2) <= 1e-6


# ---------------------------------------------------------------------------------------------
# Input and output
# ---------------------------------------------------------------------------------------------


def test_hidden_pixels_may_be_anything(rng):
    blur = Blur(PSFS["asymmetric"], (17, 19), "unknown")
    g, w = blurred(blur, rng), (rng.random((17, 19)) > 0.1).astype(float)
    spoilt = np.where(w > 0, g, np.nan)
    spoilt[0, 0], w[0, 0] = -7, 0
    a, b = (richardson_lucy(blur, x, weights=w, max_iterations=9) for x in (g, spoilt))
    np.testing.assert_array_equal(a.scene, b.scene)


def test_float32_stays_and_agrees(rng, xp):
    blur = Blur(deblur.psf.disk(7, 3), (32, 31), "unknown")
    g = blurred(blur, rng)
    one, two = (
        richardson_lucy(blur, xp.asarray(g.astype(t)), tv=0.01, max_iterations=10)
        for t in (np.float32, float)
    )
    assert one.scene.dtype == np.float32
    assert two.scene.dtype == np.float64
    # At the scene's rim float32 gives up pixels that float64 still sees.
    one, two = (asnumpy(run.scene[blur.crop]) for run in (one, two))
    assert np.abs(one - two).max() <= 2e-4


def test_black_image(rng):
    blur = Blur(PSFS["asymmetric"], (9, 8), "unknown")
    run = richardson_lucy(blur, np.zeros((9, 8)))
    assert run.converged
    assert not run.scene.any()


def test_one_pixel():
    run = richardson_lucy(Blur([[0.5]], (1, 1)), np.array([[3.0]]))
    assert abs(run.scene[0, 0] - 6) <= 1e-12


def test_start_is_where_it_begins(rng):
    blur = Blur(PSFS["binomial"], (21, 20), "unknown")
    g = blurred(blur, rng)
    full = richardson_lucy(blur, g, tv=0.05, tolerance=1e-6, max_iterations=5000)
    again = richardson_lucy(blur, g, tv=0.05, tolerance=1e-6, max_iterations=5000, start=full.scene)
    assert full.converged
    assert again.converged
    assert again.iterations < full.iterations / 4


def test_callback_sees_every_iteration(rng):
    blur = Blur(PSFS["binomial"], (21, 20), "zero")
    seen = []
    run = richardson_lucy(
        blur, blurred(blur, rng), stop="change", max_iterations=7, callback=lambda n, x: seen.append((n, x))
    )
    assert [n for n, _ in seen] == list(range(1, 8))
    np.testing.assert_array_equal([x for _, x in seen], run.change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"g": -0.1}, "never negative.*-0.1"),
        ({"g": np.nan}, "NaN"),
        ({"weights": -1.0}, "weights must not be negative"),
        ({"weights": 0.0}, "zero everywhere"),
        ({"stop": "sometime"}, "unknown stopping rule 'sometime'"),
        ({"tv": -1}, "tv must be"),
        ({"background": np.inf}, "background must be"),
        ({"bounds": (2, 1)}, "leave nothing between"),
        ({"bounds": (-2, -1)}, "leave nothing between"),
        ({"photons": 0.0, "stop": "discrepancy"}, "photons must be above zero"),
        ({"start": np.zeros((3, 3))}, "start must have the scene's shape"),
        ({"blur": Blur([[1.0, -0.1]], (8, 8))}, "negative values"),
        ({"blur": Blur(np.ones((3, 3)), (8, 8), "antireflect")}, "antireflect"),
        ({"blur": Blur(np.ones((3, 3)), (8, 9))}, "must have shape"),
    ],
)
def test_bad_input(change, message):
    change = dict(change)
    g = np.full((8, 8), 0.5)
    g[2, 3] = change.pop("g", 0.5)
    if "weights" in change:
        change["weights"] = np.full((8, 8), change["weights"])
    blur = change.pop("blur", Blur(np.ones((3, 3)) / 9, (8, 8)))
    with pytest.raises(ValueError, match=message):
        richardson_lucy(blur, g, **change)


def test_refusals():
    blur = Blur(np.ones((3, 3)), (8, 8))
    assert refuses(VariationalProblem(blur, "richardson-lucy", data="poisson")) is None
    assert "poisson" in refuses(VariationalProblem(blur, "richardson-lucy", data="gaussian"))
    blur = Blur(np.ones((3, 3)), (8, 8), "antireflect")
    assert "antireflect" in refuses(VariationalProblem(blur, "richardson-lucy", data="poisson"))


def test_frames_and_channels_are_solved_by_themselves(rng):
    blur = Blur(deblur.psf.disk(5, 2), (24, 21), "unknown")
    g = np.stack([blurred(blur, rng, noise) for noise in (0.0, 0.02, 0.05, 0.1)]).reshape(2, 2, 24, 21)
    w = rng.random((2, 1, 24, 21))
    problem = VariationalProblem(blur, "richardson-lucy", data="poisson", weights=w, max_iterations=40)
    together = solve(problem, g)
    assert together.converged
    assert together.scene.shape == (2, 2, *blur.scene_shape)
    assert together.history.objective.shape == together.history.primal.shape
    for i in range(2):
        for j in range(2):
            alone = richardson_lucy(blur, g[i, j], weights=w[i, 0], max_iterations=40)
            np.testing.assert_array_equal(together.scene[i, j], alone.scene)


def test_warm_start_of_a_solution(rng):
    blur = Blur(deblur.psf.disk(5, 2), (24, 21), "unknown")
    g = np.stack([blurred(blur, rng), blurred(blur, rng)])[None]
    problem = VariationalProblem(
        blur, "richardson-lucy", 0.05, data="poisson", rtol=1e-6, max_iterations=5000
    )
    first = solve(problem, g)
    again = solve(problem, g, first)
    assert first.converged
    assert again.iterations < first.iterations / 4
    assert again.history.objective[-1] <= first.history.objective[-1] * (1 + 1e-9)

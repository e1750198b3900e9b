"""Richardson-Lucy against the same steps on the dense matrix, SciPy's minimiser, and what must hold by itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.ndimage
import scipy.optimize
from problems import changed, problem_of, solve as solve_by
from references import divergence, textbook
from refusals import refused
from structured import OTHERS, PSFS, VOLUME

import deblur
from deblur.degradation import degrade
from deblur.device import asnumpy, get_xp, random_signs
from deblur.metrics import psnr
from deblur.operators.blur import Blur
from deblur.solvers import counts, richardson_lucy, windows
from deblur.solvers.noise import NoiseModel
from deblur.solvers.richardson_lucy import refuses

SERVED = ("zero", "periodic", "reflect", "unknown")


def lucy(blur, lam=0.0, **options):
    """A problem of this method; ``rtol`` makes it stop by the change of the scene."""
    return problem_of(blur, "tv", lam, data="poisson", **options)


def solve(problem, g, start=None):
    return solve_by(problem, g, start, richardson_lucy)


def restored(blur, g, lam=0.0, **options):
    """The solution for one image, or for channels, with the scene of the same form."""
    options = {"xp": get_xp(g), "dtype": g.dtype} | options
    axes = len(blur.image_shape)
    solution = solve(lucy(blur, lam, **options), g.reshape(*(1,) * (2 + axes - g.ndim), *g.shape))
    return replace(solution, scene=solution.scene.reshape(*g.shape[:-axes], *blur.scene_shape))


@pytest.fixture
def plain(monkeypatch):
    """Steps without acceleration."""
    monkeypatch.setattr(richardson_lucy, "heavy_ball", lambda k: 0.0)


def blurred(blur, rng, noise=0.02):
    scene = rng.random(blur.scene_shape) + 0.1
    return np.maximum(blur.forward(scene) + noise * rng.standard_normal(blur.image_shape), 0)


# ---------------------------------------------------------------------------------------------
# The step
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boundary", SERVED)
@pytest.mark.parametrize("name", ["asymmetric", "even", "binomial", "column", "pixel", "even volume"])
@pytest.mark.parametrize("how", ["plain", "accelerated", "consensus"])
def test_steps_are_those_on_the_dense_matrix(rng, xp, boundary, name, how, request, monkeypatch):
    accelerate, options, more = how != "plain", {"rtol": 1e-300}, {}
    if not accelerate:
        if xp is not np:
            pytest.skip("the kernels extrapolate always")
        request.getfixturevalue("plain")
    psf = (PSFS | OTHERS)[name]
    blur = Blur(psf / psf.sum(), VOLUME if psf.ndim == 3 else (11, 7), boundary)
    g, w = blurred(blur, rng) + 0.3, rng.random(blur.image_shape) * (rng.random(blur.image_shape) > 0.2)
    if how == "consensus":
        monkeypatch.setattr(richardson_lucy, "_darkest", lambda problem, *_: problem.bounds[0])
        options = {"consensus": True, "bounds": (0.5, math.inf), "noise": NoiseModel(1e-3, 0.0)}
        signs, turn = random_signs(g.shape, float, np), g.shape[-1] + 1  # in each step by a line and a pixel
        noises = [np.sqrt(1e-3 * g) * np.roll(signs, (n + 1) * turn) for n in range(8)]
        more = {"low": 0.5, "noises": [noise.ravel() for noise in noises]}
    expected, objectives = textbook(blur.to_dense(), g.ravel(), w.ravel(), 0.25, 8, accelerate, **more)
    run = restored(blur, xp.asarray(g), weights=xp.asarray(w), background=0.25, max_iterations=8, **options)
    assert isinstance(run.scene, xp.ndarray)
    assert how == "consensus" or (run.iterations, run.converged) == (8, False)
    # Without acceleration the iterate is what the textbook reached; with it, the point extrapolated from
    # there, where the next objective is taken.
    seen = run.history.objective[:7]
    np.testing.assert_allclose(seen, objectives[1 : len(seen) + 1], rtol=1e-8, atol=1e-9)
    if not accelerate:
        np.testing.assert_allclose(asnumpy(run.scene).ravel(), expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("boundary", SERVED)
def test_counts_are_kept(rng, plain, boundary):
    # With no background Σ w Hf = Σ w g after every plain step, wherever the scene goes on.
    blur = Blur(PSFS["asymmetric"], (17, 19), boundary)
    g, w = blurred(blur, rng), rng.random((17, 19))
    run = restored(blur, g, weights=w, rtol=2e-4, max_iterations=3)
    assert abs((w * blur.forward(run.scene)).sum() - (w * g).sum()) <= 1e-10 * (w * g).sum()


@pytest.mark.parametrize("boundary", SERVED)
def test_plain_steps_never_raise_the_objective(rng, plain, boundary):
    blur = Blur(PSFS["even"], (16, 13), boundary)
    run = restored(blur, blurred(blur, rng), rtol=2e-4, max_iterations=60)
    assert np.all(np.diff(run.history.objective) <= 1e-12)


def test_acceleration_saves_iterations(rng, request):
    blur = Blur(deblur.psf.gaussian(9, 1.5), (40, 40), "unknown")
    g = blurred(blur, rng, noise=0)
    fast = restored(blur, g, rtol=1e-300, max_iterations=50)
    request.getfixturevalue("plain")
    plain = restored(blur, g, rtol=1e-300, max_iterations=200)
    assert fast.history.objective[-1] < plain.history.objective[-1]


def test_flat_scene_is_left_alone():
    # The weights at the edges of an unknown boundary are right: nothing rises or falls there.
    blur = Blur(deblur.psf.motion(7, 30), (20, 23), "unknown")
    scene = restored(blur, np.full(blur.image_shape, 0.6), rtol=2e-4, max_iterations=20).scene
    assert np.abs(scene - 0.6).max() <= 1e-10


# ---------------------------------------------------------------------------------------------
# Where it goes
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [None, (0.2, 0.7), (-math.inf, 0.6)])
def test_bounded_likelihood_reaches_the_minimum(rng, bounds):
    blur = Blur([[0.05, 0.1, 0.0], [0.05, 0.7, 0.1]], (9, 7), "zero")
    g = blurred(blur, rng, noise=0.1)
    run = restored(blur, g, background=0.2, bounds=bounds, rtol=1e-10, max_iterations=20000)
    low, high = (0, math.inf) if bounds is None else bounds
    assert run.scene.min() >= max(low, 0)
    assert run.scene.max() <= high
    h = blur.to_dense()

    def objective(x):
        expected = h @ x + 0.2
        return divergence(expected, g.ravel()), h.T @ (1 - g.ravel() / expected)

    limits, how = [(max(low, 0), min(high, 1e9))] * run.scene.size, {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-12}
    x = run.scene.ravel()
    best = scipy.optimize.minimize(objective, x, jac=True, method="L-BFGS-B", bounds=limits, options=how).fun
    assert objective(x)[0] <= best + 2e-5 * best  # slow where a pixel goes to zero


@pytest.mark.parametrize(("photons", "within"), [(50, 0.8), (400, 0.8), (20_000, 0.05)])
def test_stopping_near_the_best_iterate(photons, within):
    scene = deblur.data.load("camera")[128:260, 128:260]
    psf = deblur.psf.disk(9, 4)
    g = degrade(scene, psf, noise="poisson", level=photons, boundary="unknown", seed=3)
    blur = Blur(psf, g.shape, "unknown")
    truth = scene[4:-4, 4:-4]
    chosen = restored(blur, g)
    assert chosen.converged
    darkest = (chosen.scene.min(), math.inf)  # the level that the method has found
    runs = [restored(blur, g, rtol=1e-300, max_iterations=n, bounds=darkest) for n in range(1, 34)]
    best = max(psnr(truth, run.scene[blur.crop]) for run in runs)
    reached = psnr(truth, chosen.scene[blur.crop])
    assert reached >= best - within
    assert reached >= psnr(truth, g) + 2
    # The iterate given back is the one that the number of iterations names.
    np.testing.assert_allclose(chosen.scene, runs[chosen.iterations - 1].scene, rtol=1e-9)


def test_it_is_never_worse_than_the_image_where_the_blur_is_slight():
    """A pixel is predicted by little but itself there."""
    scene, psf = deblur.data.load("camera")[100:356, 100:356], deblur.psf.gaussian(3, 0.5)
    g = np.maximum(degrade(scene, psf, noise=0.01, boundary="unknown", seed=2), 0)
    blur = Blur(psf, g.shape, "unknown")
    run = restored(blur, g)
    assert run.converged
    assert psnr(scene[1:-1, 1:-1], run.scene[blur.crop]) >= psnr(scene[1:-1, 1:-1], g)


def test_windows_stop_a_large_image_where_the_whole_would(monkeypatch):
    scene, psf = deblur.data.load("camera")[100:400, 100:400], deblur.psf.disk(5, 2)
    g = np.maximum(degrade(scene, psf, noise=0.02, boundary="unknown", seed=2), 0)
    blur = Blur(psf, g.shape, "unknown")
    whole = restored(blur, g)
    assert "windows" not in whole.why
    monkeypatch.setattr(windows, "_WINDOW", 96)
    parts = restored(blur, g)
    assert "windows of 96 x 96 pixels" in parts.why
    assert parts.scene.shape == whole.scene.shape
    assert abs(parts.iterations - whole.iterations) <= 2


def test_colours_stop_together(rng):
    blur = Blur(deblur.psf.disk(5, 2), (64, 60), "unknown")
    g = np.stack([blurred(blur, rng, noise) for noise in (0.0, 0.02, 0.1)])
    run = restored(blur, g)
    each = [restored(blur, part, rtol=1e-300, max_iterations=run.iterations) for part in g]
    ratio = [np.linalg.norm(a - b.scene) / np.linalg.norm(a) for a, b in zip(run.scene, each, strict=True)]
    assert max(ratio) <= 0.05  # they share the extrapolation, too


# ---------------------------------------------------------------------------------------------
# Input and output
# ---------------------------------------------------------------------------------------------


def test_hidden_pixels_may_be_anything(rng):
    blur = Blur(PSFS["asymmetric"], (17, 19), "unknown")
    g, w = blurred(blur, rng), (rng.random((17, 19)) > 0.1).astype(float)
    spoilt = np.where(w > 0, g, np.nan)
    spoilt[0, 0], w[0, 0] = -7, 0
    np.testing.assert_array_equal(*(restored(blur, x, weights=w, max_iterations=9).scene for x in (g, spoilt)))


def test_float32_stays_and_agrees(rng, xp):
    blur = Blur(deblur.psf.disk(7, 3), (32, 31), "unknown")
    g = blurred(blur, rng)
    one, two = (restored(blur, xp.asarray(g.astype(t)), 0.01, max_iterations=10) for t in (np.float32, float))
    assert (one.scene.dtype, two.scene.dtype) == (np.float32, np.float64)
    # At the scene's rim float32 gives up pixels that float64 still sees.
    one, two = (asnumpy(run.scene[blur.crop]) for run in (one, two))
    assert np.abs(one - two).max() <= 2e-4


def test_a_black_frame_alone_and_among_others(rng):
    blur = Blur(PSFS["asymmetric"], (9, 8), "unknown")
    g = np.stack([np.zeros((9, 8)), blurred(blur, rng)])[:, None]
    run, together = restored(blur, g[0, 0]), solve(lucy(blur, rtol=1e-3), g)
    assert run.converged
    assert not run.scene.any()
    assert len(run.history.objective) == len(run.history.primal) == len(run.history.dual) == 1
    assert not together.scene[0].any()
    np.testing.assert_array_equal(together.scene[1, 0], restored(blur, g[1, 0], rtol=1e-3).scene)


def test_one_pixel():
    assert abs(restored(Blur([[0.5]], (1, 1)), np.array([[3.0]])).scene[0, 0] - 6) <= 1e-12


def test_callback_sees_every_iteration(rng):
    blur = Blur(PSFS["binomial"], (21, 20), "zero")
    seen = []
    run = restored(blur, blurred(blur, rng), rtol=2e-4, max_iterations=7, callback=lambda n, x: seen.append((n, x)))
    assert [n for n, _ in seen] == list(range(1, 8))
    np.testing.assert_array_equal([x for _, x in seen], run.history.primal)


def beads(rng, shape, psf, peak, read=0.0, ground=1e-3):
    """(blur, counts, truth) of a dark volume or image with bright spots, some of them beyond the frame."""
    blur = Blur(psf, shape, "unknown")
    spots = np.where(rng.random(blur.scene_shape) < (0.004 if ground else 0.001), rng.random(blur.scene_shape), 0)
    scene = scipy.ndimage.gaussian_filter(spots, 1.2) + ground
    scene *= peak / blur.forward(scene).max()
    return blur, rng.poisson(blur.forward(scene).clip(0)) + read * rng.standard_normal(shape), scene


def error_of(blur, scene, truth):
    return np.linalg.norm((scene - truth)[blur.crop]) / np.linalg.norm(truth[blur.crop])


@pytest.mark.parametrize(("ground", "consensus", "within"), [(1e-3, False, 0.25), (0.0, False, 1), (1e-3, True, 1.5)])
@pytest.mark.parametrize(("peak", "shape"), [(20, (12, 40, 40)), (200, (12, 40, 40)), (50, (160, 160))])
def test_counts_stop_near_the_best_iterate(rng, peak, shape, ground, consensus, within):
    """Also where most pixels are black, and only few show noise."""
    blur, g, truth = beads(rng, shape, deblur.psf.gaussian((9,) * len(shape), 1.5), peak, ground=ground)
    found = restored(blur, g, consensus=consensus)
    assert found.converged
    options = {"rtol": 1e-300, "bounds": (found.scene.min(), math.inf)}
    counts = {*range(2, 9), *range(10, 40, 4), 50, 70, found.iterations}
    best = min(error_of(blur, restored(blur, g, max_iterations=n, **options).scene, truth) for n in sorted(counts))
    assert error_of(blur, found.scene, truth) <= 10 ** (within / 20) * best


def test_rounding_leaves_as_much_in_the_dark_as_in_the_light(rng):
    """And none where all was rounded to one value."""
    blur, _, truth = beads(rng, (16, 32, 32), deblur.psf.gaussian((9, 9, 9), 1.5), 250)
    truth[..., : truth.shape[-1] // 2] *= 0.05
    exact = blur.forward(truth)
    g = np.round(exact)
    found = np.maximum(*counts.variances(lucy(blur, dtype=g.dtype), g[None, None])[:2]).ravel()
    for part in np.array_split(np.argsort(exact, axis=None), 3):
        error = ((g - exact) ** 2).ravel()[part].mean()
        assert 0.6 * error <= found[part].mean() <= 1.6 * error


@pytest.mark.parametrize(("shape", "psf"), [((3, 10, 10), (3, 5, 5)), ((1, 100, 100), (1, 53, 3))])  # a long PSF
def test_a_volume_without_noise_gives_a_picture(rng, shape, psf):
    blur, _, truth = beads(rng, shape, deblur.psf.gaussian(psf, 1), 1)
    g = blur.forward(truth)
    found = deblur.solve(g, blur.psf, method="richardson-lucy", boundary="unknown", check=False).or_raise()
    assert found.status is deblur.Status.STOPPED
    assert np.linalg.norm(found.image - truth[blur.crop]) < 0.5 * np.linalg.norm(g - truth[blur.crop])


@pytest.mark.parametrize("seed", range(3))
def test_points_on_a_black_ground_are_sharpened(seed):
    """The error falls by far more than half: no image with noise taken away has counts below zero."""
    rng, scene = np.random.default_rng(seed), np.zeros((80, 80))
    scene[tuple(rng.integers(0, 80, (2, 30)))] = rng.uniform(300, 1000, 30)
    blur = Blur(deblur.psf.gaussian(13, 2.0), (68, 68), "unknown")
    g = rng.poisson(blur.forward(scene).clip(0)).astype(float)
    assert error_of(blur, restored(blur, g).scene, scene) < 0.5 * error_of(blur, blur.adjoint(g), scene)


def test_a_known_gain_takes_the_place_of_the_estimate(rng):
    blur, g, _ = beads(rng, (64, 64), deblur.psf.gaussian(9, 1.5), 100)
    options = {"method": "richardson-lucy", "boundary": "unknown"}
    counts = [deblur.solve(g, blur.psf, noise=gain, **options).iterations for gain in (0.4, 1, 100)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[2]
    assert counts[1] / 2 <= deblur.solve(g, blur.psf, **options).iterations <= 2 * counts[1]


def test_counts_below_zero_are_raised_and_not_clipped(rng):
    blur, g, truth = beads(rng, (64, 64), deblur.psf.gaussian(9, 1.5), 60, read=3.0)
    assert g.min() < 0
    raised = deblur.solve(g, blur.psf, method="richardson-lucy", boundary="unknown")
    same = restored(blur, g - g.min(), background=-g.min())
    np.testing.assert_allclose(raised.image, same.scene[blur.crop], rtol=1e-9, atol=1e-12 * g.max())
    assert error_of(blur, same.scene, truth) < error_of(blur, restored(blur, np.maximum(g, 0)).scene, truth)


@pytest.mark.parametrize("axes", [2, 3])
def test_no_pixel_is_darker_than_the_background_of_the_scene(rng, axes, monkeypatch):
    """Light of a dark background that zero alone bounds goes into noise and across the border."""
    runs, run = [], richardson_lucy._Run
    monkeypatch.setattr(richardson_lucy, "_Run", lambda *a, **more: runs.append(a) or run(*a, **more))
    blur, _, scene = beads(rng, (96, 96) if axes == 2 else (16, 32, 40), deblur.psf.gaussian((9,) * axes, 1.5), 1000)
    scene[..., : scene.shape[-1] // 2] = 0
    g = rng.poisson(blur.forward(scene + 100).clip(0)).astype(float)
    found = restored(blur, g)
    assert 75 <= found.scene.min() <= 105
    assert "subtract the camera's offset" in found.why
    assert len(runs) <= 6  # levels far below the background are not tried
    free = restored(blur, g, rtol=1e-300, max_iterations=found.iterations)
    assert error_of(blur, found.scene, scene + 100) < 0.95 * error_of(blur, free.scene, scene + 100)


def test_strokes_narrower_than_the_psf_lose_little_by_the_level_of_darkness():
    """No local mean of the image is as dark as they are: the darkest one would cost more than 3 dB."""
    page, psf = 1.0 - 0.999 * (np.arange(120) % 24 < 3) * np.ones((120, 1)), deblur.psf.disk(9, 4)
    g = degrade(page, psf, noise="poisson", level=2000, boundary="unknown", seed=0)
    blur = Blur(psf, g.shape, "unknown")
    found = restored(blur, g)
    free = restored(blur, g, rtol=1e-300, max_iterations=found.iterations)
    truth = page[4:-4, 4:-4]
    assert psnr(truth, found.scene[blur.crop]) >= psnr(truth, free.scene[blur.crop]) - 0.2


def test_known_read_out_noise_raises_counts_by_its_variance_over_the_gain(rng):
    """g + σ²/gain has about the variance gain · (Hf + b + σ²/gain): the steps are those for such counts."""
    blur, g, truth = beads(rng, (64, 64), deblur.psf.gaussian(9, 1.5), 60, read=6.0)
    g, gain, read = 0.5 * g + 40, 0.5, 3.0
    options = {"method": "richardson-lucy", "boundary": "unknown", "rtol": 1e-12, "max_iterations": 20, "check": False}
    known = deblur.solve(g, blur.psf, noise=(gain, read), background=40, **options)
    shifted = deblur.solve(g + read**2 / gain, blur.psf, background=40 + read**2 / gain, **options)
    np.testing.assert_allclose(known.image, shifted.image, rtol=1e-9, atol=1e-9 * g.max())
    ignored = deblur.solve(g, blur.psf, noise=gain, background=40, **options)
    truth = gain * truth[blur.crop]
    assert np.linalg.norm(known.image - truth) < np.linalg.norm(ignored.image - truth)


def test_refusals():
    blur = Blur(np.ones((3, 3)), (8, 8))
    assert refuses(lucy(blur)) is None
    assert "poisson" in refuses(problem_of(blur, "tv", data="gaussian"))
    assert "antireflect" in refuses(lucy(Blur(np.ones((3, 3)), (8, 8), "antireflect")))
    assert "negative values (-0.1 in all)" in refuses(lucy(Blur([[1.0, -0.1]], (8, 8))))
    assert "λ = 0" in refuses(lucy(blur, 0.1, consensus=True))
    for bounds in ((2, 1), (-2, -1)):
        refused(ValueError, "exclude all nonnegative", solve, lucy(blur, bounds=bounds), np.full((1, 1, 8, 8), 0.5))


def test_iterations_that_ran_out_are_no_convergence():
    truth = deblur.data.load("brick")[:60, :60]
    psf = deblur.psf.disk(9, 4)
    g = np.maximum(degrade(truth, psf, noise=0.005, boundary="unknown", seed=0), 0)
    blur = Blur(psf, g.shape, "unknown")
    full = restored(blur, g)
    assert full.converged
    assert "least" in full.why
    short = restored(blur, g, max_iterations=full.iterations // 2)
    assert not short.converged
    assert "max_iterations" in short.why
    change = restored(blur, g, rtol=1e-12, max_iterations=9)
    assert not change.converged
    assert "all of 9 iterations" in change.why


def test_one_frame_that_has_not_converged_is_reported(rng):
    blur = Blur(deblur.psf.disk(5, 2), (24, 21), "unknown")
    g = np.stack([np.full(blur.image_shape, 0.5), blurred(blur, rng, 0.0)])[:, None]
    run = solve(lucy(blur, rtol=1e-3, max_iterations=4), g)
    assert not run.converged
    assert "all of 4 iterations" in run.why


@pytest.mark.parametrize("lam", [0.0, 0.02])
@pytest.mark.parametrize("factor", [2.0**-100, 2.0**15, 2.0**100])
def test_the_units_of_the_counts_do_not_matter(rng, factor, lam):
    blur = Blur(deblur.psf.disk(5, 2), (24, 21), "unknown")
    g = (2.0**-7 * np.round(2**7 * blurred(blur, rng))).astype(np.float32)
    options = {"method": "richardson-lucy", "boundary": "unknown", "max_iterations": 20, "check": False}
    one, other = (deblur.solve(np.float32(f) * g, blur.psf, lam, **options) for f in (1, factor))
    assert one.iterations == other.iterations
    normal = other.image > np.finfo(np.float32).tiny
    np.testing.assert_array_equal((other.image / np.float32(factor))[normal], one.image[normal])


def test_frames_are_solved_by_themselves(rng):
    blur = Blur(deblur.psf.disk(5, 2), (24, 21), "unknown")
    g = np.stack([blurred(blur, rng, noise) for noise in (0.0, 0.02, 0.05, 0.1)]).reshape(2, 2, 24, 21)
    w = rng.random((2, 1, 24, 21))
    together = solve(lucy(blur, weights=w, max_iterations=100), g)
    assert together.scene.shape == (2, 2, *blur.scene_shape)
    assert together.history.objective.shape == together.history.primal.shape
    for i in range(2):
        alone = restored(blur, g[i], weights=w[i : i + 1], max_iterations=100)
        np.testing.assert_array_equal(together.scene[i], alone.scene)


def test_warm_start_of_a_solution(rng):
    blur = Blur(deblur.psf.disk(5, 2), (24, 21), "unknown")
    g = np.stack([blurred(blur, rng), blurred(blur, rng)])[None]
    problem = lucy(blur, 0.05, rtol=1e-6, max_iterations=5000)
    first = solve(problem, g)
    again = solve(problem, g, first)
    assert first.converged
    assert again.converged
    assert again.iterations < first.iterations / 4
    assert again.history.objective[-1] <= first.history.objective[-1] * (1 + 1e-9)


RTOLS = {"rtol": 3e-2}, {"rtol": 1e-12}
OPTIONS = {}, {"lam": 2e-3}, {"weights": True}, {"bounds": (0.05, 0.7)}, {"consensus": True}, *RTOLS


@pytest.mark.gpu
@pytest.mark.parametrize("boundary", ["unknown", "reflect", "zero"])
@pytest.mark.parametrize(("shape", "psf"), [((2, 3, 37, 41), (7, 6)), ((2, 3, 8, 13, 17), (4, 3, 5))])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_kernels_take_the_cpus_steps(cupy, rng, options, shape, psf, boundary):
    h = rng.random(psf) ** 3
    blur = Blur(h / h.sum(), shape[2:], boundary)
    scenes = rng.random((*shape[:2], *blur.scene_shape)) ** 4
    g = rng.poisson(100 * len(psf) * blur.forward(scenes).clip(0)) / (100 * len(psf))
    given = {"lam": 0.0, "max_iterations": 30, "background": 0.01, "data": "poisson", **options}
    weights = (rng.random(shape[2:]) > 0.1).astype(float) if given.pop("weights", False) else None
    here = problem_of(blur, "tv", given.pop("lam"), weights=weights, **given)
    there = changed(here, xp=cupy, weights=None if weights is None else cupy.asarray(weights))
    one = richardson_lucy.prepare(here).solve(g)
    two = richardson_lucy.prepare(there).solve(cupy.asarray(g))
    assert (two.iterations, two.converged) == (one.iterations, one.converged)
    np.testing.assert_allclose(two.scene.get(), one.scene, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(two.history.objective, one.history.objective, rtol=1e-9)

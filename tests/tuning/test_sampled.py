"""λ by solving for one after the other: what the rules look at against formulas and truth, and what they choose."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.ndimage
from refusals import refused

import deblur
from deblur.denoise import denoisers
from deblur.device import Device
from deblur.methods import METHODS
from deblur.metrics import psnr
from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers import windows
from deblur.solvers.domain import domain_of
from deblur.solvers.noise import NoiseModel, noise_variance
from deblur.terms import DataFidelity
from deblur.tuning import sampled
from deblur.tuning.sampled import _Observer, whiteness
from deblur.tuning.select import apply_rule, unexplained

PSF = deblur.psf.gaussian(7, 1.2)


def scene(n=64):
    return deblur.data.load("camera")[100 : 100 + n, 200 : 200 + n]


def blurred(noise, boundary="unknown", n=70, seed=0, psf=PSF):
    truth = scene(n)
    g = deblur.degrade(truth, psf, noise=noise, boundary=boundary, seed=seed)
    blur = Blur(psf, g.shape, boundary)
    return blur, g, truth[blur.crop]


def pose(blur, method, data="gaussian", weights=None, delta=0.01, **options):
    """The problem of a method, without λ."""
    fidelity = DataFidelity(data, delta=delta, weights=weights)
    return Problem(blur, regularizer=METHODS[method].regularizer, fidelity=fidelity, **options)


def tune(method, problem, frames, rule="auto", noise=None):
    return apply_rule(problem, frames, rule, noise, METHODS[method].prepare)


def solve(method, problem, lam, frames, start=None):
    return METHODS[method].prepare(replace(problem, lam=float(lam))).solve(frames, start)


def best_and_tuned(method, problem, g, truth, **options):
    """(best PSNR over a grid of λ, PSNR at the tuned λ, the choice)."""
    frames = g[None, None]
    choice = tune(method, problem, frames, **options)

    def quality(lam):
        return psnr(truth, solve(method, problem, lam, frames).scene[0, 0][problem.operator.crop])

    grid = choice.lam * 2.0 ** np.arange(-4, 4.5)
    return max(quality(lam) for lam in grid), quality(choice.lam), choice


# ---------------------------------------------------------------- what the rules look at


@pytest.mark.parametrize("lam", [1e-3, 3e-2])
def test_degrees_of_freedom_are_those_of_the_linear_formula(lam):
    blur, g, _ = blurred(0.01, "periodic", 64)
    observer = _Observer(pose(blur, "identity"), g[None, None], "gcv", 1e-4, METHODS["identity"].prepare)
    power = abs(np.fft.fft2(blur.psf, s=g.shape)) ** 2
    assert abs(observer.look(lam)[1] - (power / (power + lam)).mean()) <= 0.02


@pytest.mark.parametrize("left", [0.0, 0.017], ids=["white", "coloured"])
@pytest.mark.parametrize(("method", "lam"), [("tv", 3e-4), ("tv", 3e-3), ("gradient", 1e-3)])
def test_stein_estimates_the_true_risk(method, lam, left, rng):
    noise = 0.02
    model = NoiseModel(0.0, math.sqrt(noise**2 - left**2), left=left)
    blur, clean, _ = blurred(0, n=134)
    g = clean + noise * model.coloured(rng.standard_normal(clean.shape))
    problem = pose(blur, method, noise=model)
    observer = _Observer(problem, g[None, None], "sure", noise**2, METHODS[method].prepare)
    risk = ((blur.forward(solve(method, problem, lam, g[None, None]).scene[0, 0]) - clean) ** 2).mean()
    # The estimate's own scatter is that of the noise's power: 2σ⁴/N and a little more; coloured, of fewer frequencies.
    assert abs(observer.look(lam)[0] - risk) <= (15 if left else 5) * noise**2 * math.sqrt(2 / g.size)


def test_hidden_pixels_have_no_degrees_of_freedom():
    blur, g, _ = blurred(0.01, "zero", 24)
    lam = 0.01
    visible = np.ones(g.shape)
    visible[::2] = 0
    problem = pose(blur, "identity", weights=np.stack([visible, visible])[:, None], frames=2)
    g = np.stack([np.where(visible > 0, g, 0.5)] * 2)[:, None]
    observer = _Observer(problem, g, "gcv", 1e-4, METHODS["identity"].prepare)
    h = blur.to_dense()[visible.reshape(-1) > 0]
    influence = h @ np.linalg.solve(h.T @ h + lam * np.eye(h.shape[1]), h.T)
    assert abs(observer.look(lam)[1] - np.trace(influence) / len(h)) <= 0.06  # three times its scatter here


def test_white_noise_is_white_and_blurred_noise_is_not():
    noise = np.random.default_rng(0).standard_normal((3, 61, 47))
    white = whiteness(noise)
    assert abs(white - 1) <= 0.1
    assert abs(whiteness(noise + 5) - white) <= 1e-9
    assert abs(whiteness(7 * noise) - white) <= 1e-9
    assert whiteness(scipy.ndimage.gaussian_filter(noise, (0, 0.7, 0.7))) >= 1.5
    assert whiteness(np.diff(noise, axis=-1)) >= 1.3  # neither is what goes up and down


def test_whiteness_looks_at_visible_pixels_alone():
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((64, 64))
    visible = (rng.random((64, 64)) > 0.3).astype(float)
    assert abs(whiteness(np.where(visible > 0, noise, 100.0), visible) - whiteness(noise, visible)) <= 1e-9
    assert abs(whiteness(noise, visible) - 1) <= 0.1


def test_the_gain_of_photon_counts_is_found():
    truth = deblur.data.load("camera")[:200, :200]
    g = deblur.degrade(truth, PSF, noise="poisson", level=200, boundary="unknown", seed=3)
    problem = pose(Blur(PSF, g.shape, "unknown"), "tv", data="poisson")
    # Counts of almost nothing are not normal: the darkest parts pull it down.
    assert abs(math.log(noise_variance(problem, g[None, None]) * 200)) <= math.log(1.5)


# ---------------------------------------------------------------- what they choose


@pytest.mark.parametrize(
    ("method", "noise", "boundary", "given"),
    [
        ("tv", 0.01, "unknown", None),
        ("tv", 0.05, "zero", None),
        ("gradient", 0.02, "reflect", None),
        ("tv2", 0.02, "periodic", None),
        ("tv", 0.03, "unknown", 0.03),
    ],
)
def test_the_tuned_lambda_is_nearly_the_best(method, noise, boundary, given):
    blur, g, truth = blurred(noise, boundary)
    best, tuned, choice = best_and_tuned(method, pose(blur, method), g, truth, noise=given)
    source = ("gcv", None, "not used") if given is None else ("sure", given, "given")
    assert (choice.rule, choice.noise, choice.noise_source) == source
    assert best - tuned <= 0.7
    assert tuned > psnr(truth, g)


@pytest.mark.gpu
def test_the_gpu_chooses_as_the_cpu_does(cupy):
    blur, g, _ = blurred(0.02)
    there = cupy.asarray(g)[None, None]
    here = tune("tv", pose(blur, "tv"), g[None, None])
    there = tune("tv", pose(blur, "tv", device=Device.of(there)), there)
    assert abs(math.log(here.lam / there.lam)) <= 0.05


@pytest.mark.parametrize("data", ["gaussian", "poisson"])
def test_samples_keep_the_pictures_dtype(xp, data):
    blur, g, _ = blurred(0.01)
    problem = pose(blur, "gradient", data, dtype=np.dtype(np.float32), device=Device(None if xp is np else 0))
    observer = _Observer(problem, xp.asarray(g[None, None], np.float32), "gcv", 1e-4, METHODS["gradient"].prepare)
    assert observer.stack.dtype == observer.probe.dtype == np.float32
    assert math.isfinite(observer.look(1e-2)[0])


def test_float32_finds_lambda_of_a_wide_smooth_blur():
    blur, g, truth = blurred(1e-3, "zero", 96, psf=deblur.psf.gaussian(25, 4))
    best, tuned, _ = best_and_tuned("gradient", pose(blur, "gradient", dtype=np.dtype("f4")), g.astype("f4"), truth)
    assert best - tuned <= 0.3


POINTS = scipy.ndimage.gaussian_filter((np.random.default_rng(2).random((96, 96)) > 0.996).astype(float), 1.0)


@pytest.mark.parametrize(("truth", "photons"), [(scene(96), 300), (0.01 + 6 * POINTS, 5000), (0.01 + 6 * POINTS, 300)])
def test_photon_counts(truth, photons):
    """Points on a dark background grow as λ falls, although the model of the blur is right."""
    g = deblur.degrade(truth, PSF, noise="poisson", level=photons, boundary="unknown", seed=0)
    blur = Blur(PSF, g.shape, "unknown")
    best, tuned, choice = best_and_tuned("tv", pose(blur, "tv", data="poisson"), g, truth[blur.crop])
    assert (best - tuned <= 0.7, choice.converged) == (True, True)


def test_impulses_without_a_mask():
    blur, g, truth = blurred(0.005)
    g = deblur.degrade(g, deblur.psf.delta(1), noise="salt-pepper", level=0.02, seed=1)
    best, tuned, choice = best_and_tuned("tv", pose(blur, "tv", data="huber", delta=0.02), g, truth)
    assert choice.rule == "whiteness"
    assert best - tuned <= 2.0  # the whitest residual is that of a λ somewhat too large


@pytest.mark.parametrize(("method", "power"), [("tv", 0), ("gradient", 1)])
def test_lambda_of_absolute_deviations_follows_the_unit_of_the_image(method, power):
    blur, g, _ = blurred(0.01)
    lams = [tune(method, pose(blur, method, data="l1"), s * g[None, None]).lam * s**power for s in (1.0, 2.0**-14)]
    assert lams[0] == pytest.approx(lams[1])


def test_discrepancy_makes_the_residual_as_large_as_the_noise_or_says_that_nothing_does():
    blur, g, _ = blurred(0.02)
    problem = pose(blur, "tv")
    choice = tune("tv", problem, g[None, None], "discrepancy", noise=0.02)
    f = solve("tv", problem, choice.lam, g[None, None]).scene[0, 0]
    assert abs(math.sqrt(((g - blur.forward(f)) ** 2).mean()) / 0.02 - 1) <= 0.02
    choice = tune("tv", problem, g[None, None], "discrepancy", noise=10.0)
    seen = "below the noise level" in choice.remark, choice.remark in choice.reason, choice.converged
    assert seen == (True, True, False)


def test_without_noise_the_data_ask_for_no_regularisation():
    blur, g, _ = blurred(0.0)
    choice = tune("tv", pose(blur, "tv"), g[None, None])
    assert (choice.lam <= 1e-5, choice.converged) == (True, True)


def test_less_noise_than_the_data_are_shaken_with_asks_for_less_regularisation():
    blur, g, _ = blurred(5e-4)
    least = 5e-4 * g.max()
    lams = [tune("tv", pose(blur, "tv"), g[None, None], "gcv", noise=noise).lam for noise in (least, least / 4, 0.0)]
    np.testing.assert_allclose(lams[1:], [lams[0] / 4, lams[0] / 16], rtol=1e-6)


def test_detail_that_is_taken_for_noise_behind_a_mask_does_not_rule_lambda(rng):
    blur, g, truth = blurred(0.0)
    weights = (rng.random(g.shape) > 0.3).astype(float)
    best, tuned, choice = best_and_tuned("tv", pose(blur, "tv", weights=weights), g, truth)
    assert tuned >= best - 0.5
    assert choice.converged


def test_rounding_is_noise_where_a_picture_is_flat_too():
    """In a flat picture it does not show; values that were never rounded have none."""
    blur, g, _ = blurred(0.0)
    g = 0.2 + 0.4 * np.maximum(g, 0.5)
    problem = pose(blur, "tv")
    rounded = np.rint(255 * g) / 255
    assert noise_variance(problem, g[None, None]) < 1e-4**2
    for frames in (rounded, rounded.astype(np.float32), 255 * rounded):
        step = frames.max() / rounded.max() / 255
        assert math.sqrt(noise_variance(problem, frames[None, None])) >= 0.99 * step / math.sqrt(12)


def test_edges_that_do_not_fit_the_model_do_not_pass_as_converged():
    blur, g, _ = blurred(0.0, n=96, psf=deblur.psf.gaussian(9, 1.5))
    choice = tune("gradient", pose(Blur(blur.psf, g.shape, "periodic"), "gradient"), g[None, None])
    assert not choice.converged
    assert "the model of the blur is wrong" in choice.remark


def test_steps_back_and_forth_look_once_at_each_lambda():
    """Two solutions a rounding apart would tell of a growth without bound."""
    blur, g, _ = blurred(0.02)
    observer = _Observer(pose(blur, "tv"), g[None, None], "gcv", 4e-4, METHODS["tv"].prepare)
    first = observer.look(0.01)
    assert observer.look(math.exp(math.log(0.01) + math.log(2) - math.log(2)) * (1 + 1e-15)) is first
    assert len(observer.seen) == 1


def test_frames_share_one_lambda_and_the_solution_is_theirs():
    blur, g, _ = blurred(0.02)
    stack = np.stack([g, g[::-1], g[:, ::-1]])[:, None]
    choice = tune("tv", pose(blur, "tv"), stack)
    assert choice.solution.state.x[(..., *domain_of(pose(blur, "tv")).scene)].shape == (3, 1, *blur.scene_shape)
    again = solve("tv", pose(blur, "tv"), choice.lam, stack, choice.solution)
    cold = solve("tv", pose(blur, "tv"), choice.lam, stack)
    assert math.sqrt(((again.scene - cold.scene) ** 2).mean()) <= 5e-3
    assert again.iterations < cold.iterations


def large(colours=1, frames=1):
    """(blur, frames (k, c, 300, 310) of a large picture, whose boundary is unknown)."""
    scene = np.pad(deblur.data.load("camera"), 20, mode="reflect")[:306, :316]
    g = deblur.degrade(scene, PSF, noise=0.02, boundary="unknown", seed=1)
    stack = np.stack([g * (1 - 0.2 * i) for i in range(colours * frames)])
    return Blur(PSF, g.shape, "unknown"), stack.reshape(frames, colours, *g.shape).astype(np.float32)


def test_windows_stand_for_a_large_picture(monkeypatch):
    blur, g = large()
    problem = pose(blur, "tv", dtype=np.dtype(np.float32))
    choice = tune("tv", problem, g)
    assert "2 windows of 128 x 128 pixels" in choice.reason
    assert choice.solution is None
    left = unexplained(problem, g)(0.5)
    monkeypatch.setattr(windows, "_WINDOW", 128)
    part, frames, _ = windows.cut(problem, g, None, side=[128] * 2)
    assert unexplained(problem, g)(0.5) == unexplained(part, frames)(0.5)
    assert unexplained(problem, g)(0.5) == pytest.approx(left, rel=0.05)
    monkeypatch.setattr(sampled, "side_for", lambda psf: [10**6] * 2)
    whole = tune("tv", problem, g)
    assert "windows" not in whole.reason
    assert abs(math.log(choice.lam / whole.lam)) <= math.log(1.5)


def test_windows_have_the_weights_colours_and_frames_of_their_places():
    blur, g = large(colours=3, frames=2)
    weights = np.random.default_rng(0).random(g.shape[2:]).astype(np.float32)
    weights[: g.shape[2] // 2] = 0  # of what is hidden no window is taken
    part, seen, shown = windows.cut(pose(blur, "tv"), g, weights, side=[128] * 2)
    assert (seen.shape, part.operator.image_shape) == ((2, 3, 128, 128), (128, 128))
    rows, cols = (round(1.5 * (n - 128) / 2) for n in g.shape[2:])
    np.testing.assert_array_equal(seen, g[..., rows : rows + 128, cols : cols + 128])
    at = np.broadcast_to(weights, g.shape)[..., rows : rows + 128, cols : cols + 128]
    np.testing.assert_array_equal(part.fidelity.weights, at)
    assert shown is part.fidelity.weights


@pytest.mark.parametrize("boundary", ["zero", "periodic"])
def test_a_boundary_that_may_not_fit_is_measured_with_its_edges(boundary):
    blur, g = large()
    problem = pose(Blur(PSF, blur.image_shape, boundary), "tv")
    assert windows.cut(problem, g, None, side=[128] * 2)[1] is g
    assert windows.cut(problem, g, None, side=[128] * 2, interior=True)[0].operator.boundary.open


def test_a_constant_image_gets_a_finite_lambda():
    assert 0 < tune("tv", pose(Blur(PSF, (32, 32), "unknown"), "tv"), np.full((1, 1, 32, 32), 0.4)).lam < math.inf


def test_the_collaborative_filter_is_tuned_by_its_pilot():
    blur, g, _ = blurred(0.02)
    ours, pilot = (tune(name, pose(blur, name), g[None, None]) for name in ("collaborative", "tv"))
    np.testing.assert_array_equal(ours.lambdas, pilot.lambdas)


def test_plug_and_play_is_tuned_without_a_solution():
    blur, g, truth = blurred(0.03, n=54)
    problem = pose(blur, "pnp", denoiser=denoisers.get("tv"))
    choice = tune("pnp", problem, g[None, None])
    assert choice.solution is None

    def quality(lam):
        return psnr(truth, solve("pnp", problem, lam, g[None, None]).scene[0, 0][blur.crop])

    tuned = quality(choice.lam)
    assert tuned > max(psnr(truth, g), quality(30 * choice.lam), quality(choice.lam / 30)) + 0.5


def test_plug_and_play_without_noise_keeps_some_strength():
    problem = pose(Blur(PSF, (32, 32), "zero"), "pnp", denoiser=denoisers.get("tv"))
    assert 1e-7 <= tune("pnp", problem, np.full((1, 1, 32, 32), 0.5)).lam <= 1e-5


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("data", "rule", "noise", "words"),
    [
        ("gaussian", "lcurve", None, "for the linear formula"),
        ("l1", "gcv", None, "impulses"),
        ("huber", "discrepancy", 0.1, "impulses"),
    ],
)
def test_what_cannot_be_is_refused(data, rule, noise, words):
    blur = Blur(PSF, (32, 32), "zero")
    refused(ValueError, words, tune, "tv", pose(blur, "tv", data), np.zeros((1, 1, 32, 32)), rule, noise)

"""λ by a rule in the pipeline: its fallback, what is reported, and which λ is no success."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.ndimage
from realistic import draw, outcome

import deblur
from deblur import Blur, Status
from deblur.methods import Method
from deblur.metrics import psnr
from deblur.solvers import pcg, quadratic
from deblur.tuning import spectral
from deblur.tuning.select import boundary_error


def photograph(psf, noise, size=128, name="camera", left=200):
    """A picture whose scene goes on beyond the frame, and the truth inside it."""
    sharp = deblur.image.as_float(deblur.data.load(name))[100 : 100 + size, left : left + size]
    axis = -1 if sharp.ndim == 3 else None
    g = deblur.degrade(sharp, psf, noise=noise, boundary="unknown", channel_axis=axis, seed=0)
    return g, sharp[Blur(psf, g.shape[:2], "unknown").crop]


def test_realistic_draws_are_solved():
    rng = np.random.default_rng(13)
    outcomes = [outcome(draw(rng, largest=64)) for _ in range(60)]
    assert not [o for o in outcomes if o["status"] not in ("SOLVED", "CONVERGED")]
    assert len({o["method"] for o in outcomes}) >= 4


@pytest.mark.parametrize("rule", ["gcv", "discrepancy", "lcurve", "upre"])
def test_lambda_by_rule_is_reported_and_reproducible(rule):
    psf = deblur.psf.gaussian(7, 1.2)
    blurred = deblur.degrade(deblur.data.load("camera")[:48, :48], psf, noise=0.01, seed=1)
    result = deblur.solve(blurred, psf, rule, boundary="zero")
    assert result.lambda_choice is not None
    assert result.lam > 0
    assert result.lam_reason
    again = deblur.solve(blurred, psf, result.lam, boundary="zero")
    assert np.allclose(result.image, again.image, atol=1e-10)
    restore = deblur.Deblurrer(psf, (48, 48), rule, boundary="zero")
    restore(blurred)
    assert restore.lam == pytest.approx(result.lam, rel=1e-12)


def test_the_prior_is_smooth_with_an_unknown_boundary():
    sharp = deblur.data.load("camera64")
    psf = deblur.psf.disk(5)
    blurred = deblur.degrade(sharp, psf, noise=0.005, boundary="unknown", seed=0)
    chosen = deblur.solve(blurred, psf, "gcv", boundary="unknown")
    assert chosen.prior == "smooth"
    assert "smoothed" in str(chosen)
    again = deblur.solve(blurred, psf, chosen.lam, boundary="unknown")
    assert again.prior == "smooth"
    assert np.allclose(again.image, chosen.image, atol=1e-6)
    assert deblur.solve(blurred, psf, chosen.lam, boundary="unknown", prior="zero").prior == "zero"
    assert deblur.solve(blurred, psf, "gcv", boundary="zero").prior == "zero"
    assert psnr(sharp[2:-2, 2:-2], chosen.image) >= psnr(sharp[2:-2, 2:-2], blurred) + 1


@pytest.mark.parametrize("method", ["fft", "auto"])
@pytest.mark.parametrize("rule", ["auto", "discrepancy", "upre"])
def test_a_rule_misled_by_the_boundary_falls_back_and_says_so(method, rule):
    psf = deblur.psf.gaussian(9, 1.5)
    g, truth = photograph(psf, 0.01, 256)
    result = deblur.solve(g, psf, rule, method=method, boundary="periodic")
    assert result.status.ok
    assert "the fallback rule" in result.lam_reason
    assert "the error of boundary 'periodic'" in result.lam_reason
    assert psnr(truth, result.image) >= psnr(truth, g) - 0.5  # and -15 dB where cross-validation ran to


@pytest.mark.parametrize("noise", [0.005, 0.02])
def test_a_lambda_too_small_for_the_boundary_is_not_used(noise):
    psf = deblur.psf.disk(8)
    g, truth = photograph(psf, noise, 40)
    result = deblur.solve(g, psf, boundary="zero")
    assert "as one that allows for the boundary's error" in result.lam_reason
    inner = (slice(8, -8), slice(8, -8))
    assert psnr(truth[inner], result.image[inner]) >= psnr(truth[inner], g[inner]) - 1


@pytest.mark.parametrize(
    ("boundary", "psf"),
    [("zero", deblur.psf.disk(8)), ("periodic", deblur.psf.camera_shake(9, 1)), ("reflect", deblur.psf.motion(9, 0))],
)
@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02])
def test_a_matching_boundary_needs_no_fallback(boundary, psf, noise):
    truth = deblur.image.as_float(deblur.data.load("camera"))[100:172, 200:270]
    g = deblur.degrade(truth, psf, noise=noise, boundary=boundary, seed=1)
    result = deblur.solve(g, psf, boundary=boundary)
    assert "the fallback rule" not in result.lam_reason
    assert psnr(truth, result.image) >= psnr(truth, g)


@pytest.mark.parametrize("case", ["gradient periodic 200", "tv periodic 200", "tv periodic 100", "tv zero 100"])
def test_the_rule_of_a_variational_method_falls_back_too_or_the_boundary_is_said_to_be_wrong(case):
    psf, (method, boundary, left) = deblur.psf.gaussian(9, 1.5), case.split()
    g, truth = photograph(psf, 0.0, 96, left=int(left))
    result = deblur.solve(g, psf, method=method, boundary=boundary)
    assert result.lambda_choice.converged is (left == "200")
    assert result.lambda_choice.converged or "beyond the frame" in result.checks
    assert psnr(truth, result.image) >= psnr(truth, g) - (1 if result.lambda_choice.converged else 2)


def test_noise_of_any_kind_is_not_taken_for_detail_of_a_small_image(rng):
    psf, flat = deblur.psf.gaussian(13, 1.7), np.full((56, 62), 0.5)
    coloured = flat + 0.01 * scipy.ndimage.gaussian_filter(rng.standard_normal(flat.shape), 1.3)
    for g in (coloured, deblur.degrade(flat, psf, noise="salt-pepper", level=0.04, boundary="periodic", seed=1)):
        assert (deblur.reconstruct(g, psf, boundary="unknown") - 0.5).std() <= 2 * g.std()


def test_a_named_rule_without_a_reliable_lambda_is_no_success():
    psf = deblur.psf.gaussian(9, 1.5)
    g, _ = photograph(psf, 0.01, 64)
    words = "λ that is a guess.*noise=.*stays above the noise level"
    with pytest.raises(deblur.ConvergenceError, match=words) as caught:
        deblur.reconstruct(g, psf, "discrepancy", noise=1e-7, boundary="unknown")
    assert caught.value.result.status is Status.UNSETTLED
    assert not Status.UNSETTLED.ok
    restore = deblur.Deblurrer(psf, g.shape, "discrepancy", noise=1e-7, boundary="unknown")
    for _ in range(2):  # the cached λ remains a guess
        assert restore.solve(g, check=False).status is Status.UNSETTLED
    assert deblur.solve(g, psf, caught.value.result.lam, boundary="unknown").status.ok  # λ as a number


def test_the_error_of_a_boundary_is_measured_by_the_image(rng):
    psf = deblur.psf.gaussian(9, 1.5)
    flat = np.full((1, 1, 40, 40), 0.5)
    assert boundary_error(Blur(psf, (40, 40), "unknown"), flat) == 0
    assert boundary_error(Blur(psf, (40, 40), "reflect"), flat) <= 1e-12
    light = flat - Blur(psf, (40, 40), "zero").forward(flat)  # from outside the frame
    assert boundary_error(Blur(psf, (40, 40), "zero"), flat) == pytest.approx(np.sqrt((light**2).mean()), rel=1e-9)


@pytest.mark.parametrize(("name", "angle"), [("camera", 0), ("camera", 30), ("brick", 135), ("text", 30), ("text", 0)])
def test_a_photograph_without_noise_under_motion_blur_is_restored(name, angle):
    psf = deblur.psf.motion(15, angle)
    g, truth = photograph(psf, 0.0, name=name)
    assert psnr(truth, deblur.reconstruct(g, psf, boundary="unknown")) >= psnr(truth, g) + 3


class Stubborn:
    """A factor whose answers converge only at a λ that is large enough."""

    def __init__(self, factor, enough):
        self.factor, self.enough = factor, enough

    def solve(self, g, start=None):
        return replace(self.factor.solve(g, start), converged=self.enough, why="stagnated")


@pytest.mark.parametrize(("method", "solver"), [("pcg", pcg), ("gradient", quadratic)])
def test_a_chosen_lambda_without_convergence_is_raised_and_reported(method, solver, monkeypatch):
    psf = deblur.psf.motion(5, 30)
    g, _ = photograph(psf, 0.01, 48)
    plain = deblur.solve(g, psf, method=method, boundary="zero")
    honest = solver.prepare
    monkeypatch.setattr(solver, "prepare", lambda p: Stubborn(honest(p), p.lam > 50 * plain.lam))
    result = deblur.solve(g, psf, method=method, boundary="zero")
    assert result.status.ok
    assert result.lam == pytest.approx(100 * plain.lam)
    assert "raised to" in result.lam_reason
    restore = deblur.Deblurrer(psf, g.shape, method=method, boundary="zero")
    assert restore.solve(g).lam == restore.solve(g).lam == result.lam
    monkeypatch.setattr("deblur.plan.Plan.with_lam", lambda *_: deblur.device.require_memory(1 << 60, np, "it", ""))
    for refused in ({"lam": plain.lam}, {"max_iterations": 500}, {}):
        with pytest.raises(deblur.ConvergenceError, match="stagnated"):
            deblur.reconstruct(g, psf, method=method, **refused)


def test_a_chosen_lambda_with_a_singular_matrix_is_raised(monkeypatch):
    psf = deblur.psf.motion(5, 30)
    g, _ = photograph(psf, 0.01, 48)
    plain = deblur.solve(g, psf, method="cholesky", boundary="zero")
    honest = Method.prepare

    def singular(self, problem, **how):
        if problem.lam < 5 * plain.lam:
            raise deblur.SingularMatrixError("the matrix is singular: use a larger λ")
        return honest(self, problem, **how)

    monkeypatch.setattr(Method, "prepare", singular)
    assert deblur.solve(g, psf, method="cholesky", boundary="zero").lam == pytest.approx(10 * plain.lam)
    with pytest.raises(deblur.SingularMatrixError, match="larger λ"):
        deblur.reconstruct(g, psf, plain.lam, method="cholesky", boundary="zero")


def test_no_search_for_a_large_soft_picture_looks_at_all_of_it(monkeypatch):
    """Its spectrum has no noise to show, and the rules that follow "gcv" are as costly as that one."""
    monkeypatch.setattr(spectral, "_WINDOW", 64)
    grow = Mock(wraps=spectral._bidiagonalized)
    monkeypatch.setattr(spectral, "_bidiagonalized", grow)
    y, x = np.mgrid[-5:6, -5:6]
    psf = np.exp(-(x * x + y * y + x * y) / 8.0)
    scene = scipy.ndimage.zoom(deblur.data.load("camera")[100:126, 200:226], 6, order=3)
    blurred = deblur.degrade(scene, psf / psf.sum(), boundary="unknown")
    noise = scipy.ndimage.gaussian_filter(np.random.default_rng(0).normal(size=blurred.shape), 1.0)
    deblur.solve(blurred + 0.002 * noise, psf / psf.sum(), boundary="unknown")
    assert grow.call_count > 1
    assert {call.args[0].image_shape for call in grow.call_args_list} == {(64, 64)}


@pytest.mark.parametrize("psf", [deblur.psf.disk(9), deblur.psf.gaussian(9, 1.5), deblur.psf.moffat(33, 6, 2.2)])
def test_noise_that_lacks_fine_frequencies_does_not_make_lambda_tiny(psf):
    """Cross-validation takes the noise's level from the frequencies that it lacks."""
    g, truth = photograph(psf, 0.0)
    noise = scipy.ndimage.gaussian_filter(np.random.default_rng(0).normal(size=g.shape), 0.5)
    g = g + 0.02 * noise / noise.std()
    result = deblur.solve(g, psf, psf_error=0.0)
    best = max(psnr(truth, deblur.solve(g, psf, 10.0**k, prior=result.prior).image) for k in range(-4, 1))
    assert psnr(truth, result.image) >= best - 1


@pytest.mark.parametrize("psf", [deblur.psf.disk(7), deblur.psf.motion(11, 30)])
def test_texture_is_not_taken_for_noise_where_there_is_none(psf):
    """Cross-validation does not converge in a few hundred steps there, and blocks show fine detail as noise."""
    sharp = deblur.image.as_float(deblur.data.load("cat"))[100:220, 100:220].mean(axis=-1)
    g = deblur.degrade(sharp, psf, boundary="unknown")
    truth = sharp[Blur(psf, g.shape, "unknown").crop]
    rough = deblur.reconstruct(g, psf, 1e-5, prior="smooth")
    assert psnr(truth, deblur.reconstruct(g, psf)) >= psnr(truth, rough) - 0.5


@pytest.mark.parametrize("data", ["gaussian", "poisson"])
def test_where_no_photon_was_counted_the_scene_is_not_taken_for_certain(data):
    psf, rng = deblur.psf.disk(7), np.random.default_rng(0)
    sharp = deblur.data.load("camera")[60:194, 60:194] / 255.0
    sharp[:, :70] = 0
    g = rng.poisson(150 * deblur.degrade(sharp, psf, boundary="unknown").clip(0)).astype(float)
    truth = 150 * sharp[Blur(psf, g.shape, "unknown").crop]
    found = deblur.solve(g, psf, method="tv", data=data, boundary="unknown").image
    before, after = (np.linalg.norm((x - truth)[6:-6, 6:-6]) for x in (g, found))
    assert after <= 0.6 * before

"""The prior "natural": held to the dense answer, and when the default takes it."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from realistic import photograph

import deblur
from deblur.device import asnumpy
from deblur.errors import MethodError
from deblur.methods import METHODS
from deblur.operators.boundary import BOUNDARIES
from deblur.operators.natural import TAPS, covariance, scenes
from deblur.tuning import prior_scene, select
from deblur.verify import verify

SHAKE = deblur.psf.camera_shake(7, 3)
GAUSSIAN = deblur.psf.gaussian(5, 1)


def line(n, boundary="unknown"):
    """B of a line of n pixels, n x (n + 2), or n x n where the numbers go on as the boundary says."""
    open_ended = sum(tap * np.eye(n, n + 2, k) for k, tap in enumerate(TAPS))
    return open_ended if boundary == "unknown" else open_ended @ BOUNDARIES[boundary].matrix(n, -1, n + 1)


def dense(g, h, lam, boundary):
    """f̄ + B (HB)ᵀ(HB(HB)ᵀ + λI)⁻¹ (g − H f̄), of the scene beyond the frame too."""
    blur = deblur.Blur(h, g.shape, boundary)
    prior = prior_scene(blur, g)
    b, matrix = np.kron(*(line(n, boundary) for n in blur.scene_shape)), blur.to_dense()
    hb = matrix @ b
    u = hb.T @ np.linalg.solve(hb @ hb.T + lam * np.eye(g.size), (g - blur.forward(prior)).ravel())
    return (b @ u).reshape(blur.scene_shape) + prior


def blurred(noise, h=SHAKE, seed=0, **where):
    return deblur.degrade(photograph(**where), h, noise=noise, boundary="unknown", seed=seed)


@pytest.mark.parametrize(
    ("h", "boundary", "those"),
    [
        (SHAKE, "unknown", {"pcg", "banded"}),
        (GAUSSIAN, "unknown", {"pcg", "banded", "kronecker"}),
        (deblur.psf.motion(7, 0), "unknown", {"pcg", "kronecker"}),
        (deblur.psf.box(4), "unknown", {"pcg", "kronecker"}),
        (SHAKE, "periodic", {"fft"}),
        (deblur.psf.box(4), "periodic", {"fft", "kronecker"}),
        (SHAKE, "reflect", {"pcg"}),
        (GAUSSIAN, "reflect", {"pcg", "dct", "kronecker"}),
        (deblur.psf.box(4), "antireflect", {"pcg", "kronecker"}),
    ],
)
def test_every_method_that_serves_gives_the_dense_answer(h, boundary, those):
    g, served = photograph(22), []
    expected = dense(g, h, 0.02, boundary)[deblur.Blur(h, g.shape, boundary).crop]
    for method in METHODS:
        try:
            result = deblur.solve(g, h, 0.02, boundary=boundary, prior="natural", method=method, dtype="float64")
        except MethodError:
            continue
        served.append(method)
        assert np.maximum(result.residual, np.abs(result.image - expected).max()) < 1e-6, method
        assert (result.prior, result.prior_reason) == ("natural", "as requested")
    assert {"hybrid-lsqr", "cholesky", "qr"} | those <= set(served)
    if boundary == "unknown":
        assert ("kronecker" in served) == (deblur.Blur(h, g.shape).factors is not None)


@pytest.mark.parametrize("boundary", ["unknown", "periodic", "reflect", "antireflect"])
def test_it_makes_neighbours_alike_and_leaves_the_variance(boundary, rng, xp):
    matrix = np.kron(line(7, boundary), line(10, boundary))
    u = rng.standard_normal((3, 2, 9, 12) if boundary == "unknown" else (3, 2, 7, 10))
    found = asnumpy(scenes(xp.asarray(u)[::2], BOUNDARIES[boundary]))
    assert np.allclose(found.reshape(4, -1), u[::2].reshape(4, -1) @ matrix.T)
    assert np.allclose(np.diag(matrix @ matrix.T).reshape(7, 10)[1:-1, 1:-1], 1)
    f = rng.standard_normal((7, 10))
    found = asnumpy(covariance(xp.asarray(f), BOUNDARIES[boundary]))
    assert np.allclose(found.ravel(), matrix @ matrix.T @ f.ravel())


def test_verification_finds_a_scene_that_does_not_solve_the_problem(rng):
    result = deblur.solve(blurred(0.01, size=40), SHAKE, 0.02, boundary="unknown", prior="natural")
    problem = replace(result.problem, lam=0.02, dtype=np.dtype(np.float64))
    assert problem.regularizer == "natural"
    g = rng.standard_normal((1, 1, *problem.operator.image_shape))
    solution = METHODS["pcg"].prepare(problem).solve(g)
    assert verify(problem, g, solution, g).residual < 1e-6
    scene = solution.scene + 0.01 * rng.standard_normal(solution.scene.shape)
    bb = np.kron(*(line(n) @ line(n).T for n in scene.shape[2:]))
    matrix = problem.operator.to_dense()
    right = bb @ matrix.T @ g.ravel()
    left = bb @ matrix.T @ matrix @ scene.ravel() + 0.02 * scene.ravel()
    expected = np.linalg.norm(right - left) / np.linalg.norm(right)
    assert verify(problem, g, replace(solution, scene=scene), g).residual == pytest.approx(expected, rel=1e-9)


def test_the_default_takes_it_where_there_is_noise_and_says_why(monkeypatch):
    for noise, prior, why in ((0.02, "natural", "there is noise to hide"), (0.0, "smooth", "next to no noise")):
        g = blurred(noise)
        result = deblur.solve(g, SHAKE)
        assert result.prior == prior
        assert why in result.prior_reason
        prior_words = {"natural": "correlated as in photographs", "smooth": "by λ‖f − f̄‖²"}[result.prior]
        assert f"{prior_words}: {result.prior_reason}" in str(result)
        again = deblur.solve(g, SHAKE, result.lam, prior=result.prior)
        assert np.allclose(again.image, result.image, atol=1e-5)
        large = deblur.solve(1e30 * g, 1e20 * SHAKE)
        assert large.prior == prior
        assert np.allclose(1e-10 * large.image, result.image, atol=1e-4)
    monkeypatch.setattr(select, "_LARGE", 10)
    assert deblur.solve(blurred(0.06), SHAKE).prior == "natural"
    little = deblur.solve(blurred(0.002), SHAKE)
    assert (little.prior, "much longer" in little.prior_reason) == ("smooth", True)
    # λ given, a rule named, or a scene that ends at the frame: the formula as it was.
    g = blurred(0.02)
    assert [deblur.solve(g, SHAKE, lam).prior for lam in (1e-2, "gcv")] == ["smooth", "smooth"]
    for options in ({"prior": "zero"}, {"lam": 1e-2, "boundary": "reflect"}, {"boundary": "zero"}):
        assert deblur.solve(g, SHAKE, **options).prior == "zero"
    zero = deblur.degrade(photograph(), SHAKE, noise=0.02, boundary="zero", seed=0)
    assert deblur.solve(zero, SHAKE).prior == "zero"


@pytest.mark.parametrize("boundary", ["periodic", "reflect", "antireflect"])
@pytest.mark.parametrize("h", [GAUSSIAN, deblur.psf.gaussian(5, 0.4), SHAKE])
def test_a_boundary_that_is_named_has_it_too_and_no_answer_is_below_its_input(boundary, h):
    truth = photograph()
    g = deblur.degrade(truth, h, noise=0.03, boundary=boundary, seed=1)
    result = deblur.solve(g, h, boundary=boundary)
    assert (result.prior, result.boundary) == ("natural", boundary)
    assert "for which 'zero' would need" in result.prior_reason
    zero = deblur.reconstruct(g, h, boundary=boundary, prior="zero")
    before, plain, natural = (deblur.metrics.psnr(truth, x) for x in (g, zero, result.image))
    assert natural > max(before + 0.5, plain)
    restore = deblur.Deblurrer(h, g.shape, boundary=boundary)
    assert np.allclose(restore(g), result.image, atol=1e-6)
    kept = restore.solve(g[::-1])  # λ and the prior stay
    assert (kept.prior, kept.lam) == ("natural", result.lam)
    frames = deblur.solve(np.stack([g, g]), h, boundary=boundary, stack_axis=0)
    assert np.allclose(frames.image, result.image, atol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.02])
def test_a_boundary_that_does_not_fit_gets_no_less_smoothing_by_it(noise):
    h = deblur.psf.motion(9, 0)
    g, truth = blurred(noise, h), photograph()[:, 4:-4]
    for boundary in ("periodic", "reflect"):
        auto, zero = (deblur.reconstruct(g, h, boundary=boundary, prior=prior) for prior in ("auto", "zero"))
        assert deblur.metrics.psnr(truth, auto) >= deblur.metrics.psnr(truth, zero) - 0.05


@pytest.mark.parametrize("boundary", ["unknown", "periodic"])
def test_a_mild_blur_is_not_taken_for_noise(boundary):
    h = deblur.psf.gaussian(5, 0.4)
    for name, at in (("camera", (100, 180)), ("brick", (30, 40)), ("cat", (60, 150))):
        truth = photograph(name=name, at=at)
        g = deblur.degrade(truth, h, boundary=boundary)
        truth = truth[deblur.Blur(h, g.shape, boundary).crop] if boundary == "unknown" else truth
        result = deblur.solve(g, h, boundary=boundary)
        assert result.prior != "natural"
        assert deblur.metrics.psnr(truth, result.image) > deblur.metrics.psnr(truth, g) + 5


def test_where_nothing_is_blurred_even_noise_comes_back():
    g = blurred(0.02, deblur.psf.delta(1))
    for boundary in ("unknown", "reflect"):
        assert np.abs(deblur.reconstruct(g, deblur.psf.delta(1), boundary=boundary) - g).max() <= 1e-6


def test_it_hides_noise_better_than_the_smooth_prior_does():
    gains = []
    for name, at in (("camera", (100, 180)), ("brick", (30, 40)), ("cat", (60, 150))):
        for noise in (0.01, 0.04):
            g = blurred(noise, name=name, at=at)
            truth = photograph(name=name, at=at)[3:-3, 3:-3]
            both = [deblur.solve(g, SHAKE, prior=p, boundary="unknown").image for p in ("natural", "smooth")]
            gains.append(deblur.metrics.psnr(truth, both[0]) - deblur.metrics.psnr(truth, both[1]))
    assert (np.mean(gains) > 0.3, min(gains) > 0) == (True, True)


def test_a_calm_picture_under_noise_is_smoothed_and_not_sharpened(rng):
    # Cross-validation sees noise alone and asks for the largest λ; less, by the noise's level, would sharpen noise.
    for h in (deblur.psf.disk(11), deblur.psf.gaussian(9, 1.5), SHAKE):
        rows, cols = np.mgrid[:74, :74] / 74
        scene = 0.4 + 0.1 * rows + 0.05 * cols
        clean = deblur.degrade(scene, h, boundary="unknown")
        truth = scene[deblur.Blur(h, clean.shape, "unknown").crop]
        for _ in range(4):
            g = clean + 0.05 * rng.standard_normal(clean.shape)
            assert np.abs(deblur.reconstruct(g, h) - truth).std() < 0.3 * 0.05


def test_a_deblurrer_keeps_it_and_colours_frames_and_parts_share_it(monkeypatch):
    restore = deblur.Deblurrer(SHAKE, (90, 90))
    first, second = blurred(0.02), blurred(0.0, seed=1)
    restore(first)
    kept = restore.solve(second)
    assert (kept.prior, kept.lam) == ("natural", restore.lam)
    expected = deblur.reconstruct(second, SHAKE, restore.lam, prior="natural", boundary="unknown")
    assert np.allclose(kept.image, expected, atol=1e-6)
    bright = restore.solve(1e30 * second)
    assert (bright.prior, bright.problem.regularizer, bright.lam) == ("natural", "natural", restore.lam)
    assert np.allclose(1e-30 * bright.image, kept.image, atol=1e-6)
    colour = np.stack([first, 0.8 * first, blurred(0.02, seed=2)], axis=-1)
    whole = deblur.solve(colour, SHAKE)
    assert whole.prior == "natural"
    monkeypatch.setattr(deblur.methods, "TOGETHER", 90 * 90)  # one colour at a time
    parts = deblur.solve(colour, SHAKE)
    assert parts.prior == "natural"
    assert np.allclose(parts.image, whole.image, atol=1e-5)


@pytest.mark.parametrize(("prior", "other"), [("smooth", "natural"), ("natural", "smooth")])
def test_tiles_have_it_where_it_is_asked_for(prior, other):
    g = blurred(0.02)
    whole, other = (deblur.reconstruct(g, SHAKE, 1e-2, prior=p) for p in (prior, other))
    parts = deblur.tiled(g, SHAKE, 1e-2, prior=prior, tile=48)
    assert np.abs(parts - whole).max() < min(0.02, 0.2 * np.abs(parts - other).max())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"boundary": "zero"}, "ends at the frame"),
        ({"formula": "hht", "boundary": "periodic"}, "has no objective"),
        ({"method": "tv", "boundary": "unknown"}, "belongs to the linear formula"),
        ({"psf": np.stack([SHAKE] * 3), "boundary": "unknown"}, "the PSF varies"),
        ({"psf": np.ones((89, 3)) / 267, "boundary": "unknown"}, "hardly larger than the PSF"),
    ],
)
def test_what_has_no_place_for_it_says_so(options, why):
    g, h = blurred(0.01), options.pop("psf", SHAKE)
    with pytest.raises(MethodError, match=why):
        deblur.solve(np.stack([g] * 3, axis=-1) if h.ndim == 3 else g, h, 1e-2, prior="natural", **options)


def test_it_is_the_same_where_the_picture_lies(xp):
    g = blurred(0.02)
    result = deblur.solve(xp.asarray(g), SHAKE)
    assert (result.prior, type(result.image)) == ("natural", xp.ndarray)
    assert np.allclose(asnumpy(result.image), deblur.reconstruct(g, SHAKE), atol=1e-4)


@pytest.mark.parametrize(("noise", "name"), [(0.02, "camera"), (0.0, "cat")])
def test_a_picture_small_beside_its_psf_takes_one_search_if_it_is_natural(noise, name, monkeypatch):
    search = Mock(wraps=select.apply_rule)
    monkeypatch.setattr(select, "apply_rule", search)
    h = deblur.psf.camera_shake(17, 3)
    result = deblur.solve(blurred(noise, h, size=66, name=name), h, boundary="unknown")
    assert (result.prior, search.call_count) == ("natural", 1)
    assert "bidiagonalisation" in result.lam_reason


def test_a_thin_volume_has_it_and_its_white_noise_is_not_taken_for_coloured():
    scene = (np.random.default_rng(2).random((28, 46, 46)) > 0.995).astype(float)
    h = (deblur.psf.gaussian((9, 7, 7), 1.5) + deblur.psf.gaussian((9, 7, 7), 1.0)) / 2
    g = deblur.degrade(scene, h, noise=0.02, boundary="unknown", seed=2)
    result, truth = deblur.solve(g, h), scene[deblur.Blur(h, g.shape, "unknown").crop]
    less = deblur.reconstruct(g, h, result.lam / 8, prior="natural")
    assert (result.prior, g.size > select.SMALL) == ("natural", True)
    assert deblur.metrics.mse(truth, result.image) < deblur.metrics.mse(truth, less)

"""Choosing λ: every formula against dense matrices, every choice against a search by force."""

import math

import numpy as np
import pytest
import scipy.sparse.linalg
from covers import pairwise
from refusals import refused

from deblur import data, psf, solve
from deblur.degradation import degrade
from deblur.metrics import psnr
from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.terms import DataFidelity
from deblur.tuning import check_rule, choose_lambda, prior_scene, spectral as spectral_module, sums as sums_module
from deblur.tuning.choice import RULES as ALL_RULES
from deblur.tuning.spectral import _minimum, choose_from, from_spectrum
from deblur.tuning.sums import exact_sums, spectral_sums

RULES = [name for name, rule in ALL_RULES.items() if rule.linear]

ASYMMETRIC = np.array([[1.0, 4.0, 2.0], [0.0, 3.0, 1.0], [0.0, 1.0, 0.5], [0.2, 0.0, 0.0]]) / 12.7
# One blur for each way to the singular values: Fourier, cosine, sine, kronecker (square and wide), dense.
BLURS = {
    "fft": (ASYMMETRIC, (17, 19), "periodic"),
    "fft, even": (ASYMMETRIC, (16, 12), "periodic"),
    "dct": (psf.gaussian(5, 1.0), (17, 19), "reflect"),
    "dst": (psf.gaussian(3, 0.7), (11, 13), "zero"),
    "kronecker": (psf.gaussian(7, 1.2), (17, 19), "zero"),
    "kronecker, wide": (psf.box((4, 3)), (13, 17), "unknown"),
    "dense": (ASYMMETRIC, (13, 11), "zero"),
    "dense, wide": (psf.camera_shake(5, 1), (11, 13), "unknown"),
}


def make(name, rng, noise=0.02, frames=()):
    h, shape, boundary = BLURS[name]
    blur = Blur(h, shape, boundary)
    rows, cols = np.mgrid[: blur.scene_shape[0], : blur.scene_shape[1]]
    scene = 0.4 + 0.3 * np.sin(rows / 2.3) * np.cos(cols / 1.7) + 0.3 * (rows > cols)
    return blur, blur.forward(scene) + noise * rng.standard_normal((*frames, *shape))


def dense_parts(blur, g, lam):
    """Residuals as columns, and I - A, from matrices alone."""
    h = blur.to_dense()
    hht = h @ h.T
    free = lam * np.linalg.inv(hht + lam * np.eye(len(hht)))
    return free @ g.reshape(-1, len(hht)).T, free, hht


@pytest.mark.parametrize("name", BLURS)
@pytest.mark.parametrize("lam", [1e-4, 0.03, 2.0])
def test_sums_equal_the_dense_formulas(name, lam, rng):
    blur, g = make(name, rng, frames=(2,))
    sums = exact_sums(blur, g)
    residual, free, hht = dense_parts(blur, g, lam)
    n = 2 * len(free)
    scene = blur.to_dense().T @ residual / lam
    close = {"rtol": 1e-8, "atol": 0}
    np.testing.assert_allclose(sums.residual(lam), (residual**2).sum(), **close)
    np.testing.assert_allclose(sums.solution(lam), (scene**2).sum(), **close)
    np.testing.assert_allclose(sums.influence(lam), n - 2 * np.trace(free), **close)
    np.testing.assert_allclose(sums.gcv(lam), n * (residual**2).sum() / (2 * np.trace(free)) ** 2, **close)
    risk = ((residual**2).sum() + 0.02**2 * (n - 4 * np.trace(free))) / n
    np.testing.assert_allclose(sums.upre(lam, 0.02), risk, rtol=1e-8, atol=1e-12)
    # In the norm of the scene, with the weights as a matrix.
    weight = np.linalg.inv(np.eye(len(hht)) + hht / 0.01)
    weighted = (residual * (weight @ residual)).sum()
    trace = 2 * np.trace(weight @ free)
    np.testing.assert_allclose(sums.gcv(lam, 0.01), 2 * np.trace(weight) * weighted / trace**2, **close)
    risk = (weighted + 0.02**2 * (2 * np.trace(weight) - 2 * trace)) / n
    np.testing.assert_allclose(sums.upre(lam, 0.02, 0.01), risk, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", BLURS)
def test_the_risk_estimate_is_the_expected_error(name, rng):
    # UPRE by its meaning: averaged over noise it is the weighted error of H f_lam.
    blur, g = make(name, rng, noise=0.0)
    noisy = g + 0.05 * rng.standard_normal((10000, *g.shape))
    lam, floor = 0.05, 0.02
    _, free, hht = dense_parts(blur, g, lam)
    weight = np.linalg.inv(np.eye(len(hht)) + hht / floor)
    error = (noisy.reshape(10000, -1) - noisy.reshape(10000, -1) @ free) - g.ravel()
    expected = np.vdot(error, error @ weight) / error.size
    assert abs(exact_sums(blur, noisy).upre(lam, 0.05, floor) - expected) <= 0.05 * expected


@pytest.mark.parametrize(
    ("name", "norm", "rule"), pairwise(["fft", "dct", "kronecker", "dense, wide"], ["data", "scene"], ["gcv", "upre"])
)
def test_the_choice_is_the_minimum_found_by_force(name, norm, rule, rng):
    blur, g = make(name, rng, noise=0.05)
    choice = choose_lambda(blur, g, rule, noise=0.05 if rule == "upre" else None, norm=norm)
    sums = exact_sums(blur, g[None])
    fine = np.geomspace(choice.lambdas[0], choice.lambdas[-1], 6001)
    # The fixed point, as it is documented: of the neighbours on the choice's own grid, one gives its weights.
    near = choice.lambdas[np.abs(np.log(choice.lambdas / choice.lam)) <= np.log(10) / 9]
    found = []
    for x in near:
        floor = math.inf if norm == "data" else x / 4
        values = [sums.gcv(y, floor) if rule == "gcv" else sums.upre(y, 0.05, floor) for y in fine]
        found.append(fine[int(np.argmin(values))])
    assert min(abs(math.log(x / choice.lam)) for x in found) <= 4e-3
    assert choice.remark == ""


@pytest.mark.parametrize("name", BLURS)
def test_discrepancy_makes_the_residual_as_large_as_the_noise(name, rng):
    blur, g = make(name, rng, noise=0.05)
    choice = choose_lambda(blur, g, "discrepancy", noise=0.05)
    residual, _, _ = dense_parts(blur, g, choice.lam)
    assert abs(np.sqrt((residual**2).mean()) - 0.05) <= 1e-6
    assert choice.noise == 0.05
    assert choice.noise_source == "given"


def test_the_corner_is_where_differences_see_the_largest_curvature(rng):
    blur, g = make("dct", rng, noise=0.01)
    sums = exact_sums(blur, g[None])
    t = np.linspace(math.log(1e-6), math.log(1.0), 4001)
    x = np.array([math.log(sums.residual(math.exp(v))) / 2 for v in t])
    y = np.array([math.log(sums.solution(math.exp(v))) / 2 for v in t])
    x1, y1 = np.gradient(x, t), np.gradient(y, t)
    x2, y2 = np.gradient(x1, t), np.gradient(y1, t)
    curvature = ((x1 * y2 - x2 * y1) / (x1**2 + y1**2) ** 1.5)[5:-5]
    ours = np.array([sums.curvature(math.exp(v)) for v in t[5:-5]])
    assert np.abs(curvature - ours).max() <= 1e-3 * np.abs(ours).max()
    choice = choose_lambda(blur, g, "lcurve", bounds=(1e-6 / sums.top, 1.0 / sums.top))
    best = int(np.argmax(ours))
    assert 5 < best < len(ours) - 5
    assert abs(math.log(choice.lam) - t[5:-5][best]) <= 0.01


@pytest.mark.parametrize("boundary", ["zero", "reflect", "antireflect", "unknown"])
@pytest.mark.parametrize("rule", ["gcv", "discrepancy", "upre"])
def test_the_bidiagonalisation_chooses_as_the_dense_matrix_does(boundary, rule, rng, monkeypatch):
    blur = Blur(psf.camera_shake(7, 4), (24, 23), boundary)
    rows, cols = np.mgrid[: blur.scene_shape[0], : blur.scene_shape[1]]
    scene = 0.5 + 0.4 * np.sign(np.sin(rows / 3) * np.cos(cols / 4))
    g = blur.forward(scene) + 0.03 * rng.standard_normal(blur.image_shape)
    dense = choose_lambda(blur, g, rule, noise=0.03)
    assert "matrix" in dense.decomposition
    monkeypatch.setattr(sums_module, "_DENSE", 0)
    choice = choose_lambda(blur, g, rule, noise=0.03)
    assert "bidiagonalisation" in choice.decomposition
    # Discrepancy needs no trace and is sharp; the others estimate one from a random image of 552 pixels.
    allowed = 0.02 if rule == "discrepancy" else 0.5
    assert abs(math.log(choice.lam / dense.lam)) <= allowed


def test_a_large_image_without_decomposition_agrees_with_its_decomposition(rng, monkeypatch):
    blur = Blur(psf.gaussian(9, 1.5), (150, 131), "unknown")
    rows, cols = np.mgrid[: blur.scene_shape[0], : blur.scene_shape[1]]
    scene = 0.5 + 0.2 * np.sign(np.sin(rows / 9) * np.cos(cols / 7)) + 0.2 * (rows > cols)
    g = blur.forward(scene) + 0.01 * rng.standard_normal(blur.image_shape)
    exact = choose_lambda(blur, g)
    monkeypatch.setattr(sums_module, "_decomposition", lambda *_: None)
    choice = choose_lambda(blur, g)
    assert "bidiagonalisation" in choice.decomposition
    assert abs(math.log(choice.lam / exact.lam)) <= 0.15


def test_gathering_singular_values_changes_nothing_that_matters(rng, monkeypatch):
    blur, g = make("fft", rng)
    exact = exact_sums(blur, g[None])
    monkeypatch.setattr(sums_module, "_EXACT", 8)
    binned = exact_sums(blur, g[None])
    assert len(binned.values) < len(exact.values)
    assert binned.pixels == exact.pixels == g.size
    for lam in (1e-5, 1e-2, 1.0):
        np.testing.assert_allclose(binned.gcv(lam), exact.gcv(lam), rtol=2e-3)
        np.testing.assert_allclose(binned.residual(lam), exact.residual(lam), rtol=4e-3)
    a, b = choose_lambda(blur, g), choose_from(exact, "gcv", None, "not used")
    assert abs(math.log(a.lam / b.lam)) <= 0.01
    assert abs((a.coefficients**2).max() / (b.coefficients**2).max() - 1) <= 1e-12


def test_frames_share_one_lambda_found_from_all(rng):
    blur, g = make("dct", rng, noise=0.05, frames=(3,))
    together = choose_lambda(blur, g)
    alone = [choose_lambda(blur, frame).lam for frame in g]
    assert min(alone) < together.lam < max(alone)
    assert choose_lambda(blur, g[:, None]).lam == together.lam
    assert abs(math.log(choose_lambda(blur, np.stack([g[0]] * 4)).lam / alone[0])) <= 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", BLURS)
def test_a_constant_image_gets_a_lambda_and_a_zero_one_is_said_to_have_a_flat_curve(rule, name):
    h, shape, boundary = BLURS[name]
    if name == "dense":
        shape = (40, 41)  # by a bidiagonalisation
    for level in (0.0, 0.7):
        choice = choose_lambda(Blur(h, shape, boundary), np.full(shape, level), rule)
        assert np.isfinite(choice.lam)
        assert choice.lam > 0
        assert np.isfinite(choice.values).all()
        if not level:
            assert "flat" in choice.remark
            assert choice.remark in choice.reason


def test_the_ends_of_the_range_are_said(rng):
    blur = Blur(psf.gaussian(3, 0.5), (32, 31), "zero")
    choice = choose_lambda(blur, blur.forward(rng.random((32, 31))))  # no noise
    assert choice.lam <= 2e-8
    assert "monotone down to the smallest" in choice.remark
    blur = Blur(psf.gaussian(5, 1.0), (32, 32), "reflect")
    choice = choose_lambda(blur, rng.standard_normal((32, 32)), "upre", noise=2.0, norm="data")
    assert choice.lam >= 1
    assert "largest" in choice.remark


@pytest.mark.parametrize(("noise", "words"), [(1e-9, "stays above"), (50.0, "stays below")])
def test_a_noise_level_that_cannot_be_met_is_said(noise, words, rng):
    blur, g = make("kronecker", rng)
    choice = choose_lambda(blur, g, "discrepancy", noise=noise)
    assert words in choice.remark
    assert choice.lam == choice.lambdas[0 if noise < 1 else -1]


def photograph(boundary, noise, dtype=float):
    """A photograph whose scene goes on as `boundary` says, and what is to be restored."""
    sharp = data.load("camera")[100:228, 200:328]
    g = degrade(sharp, psf.gaussian(9, 1.5), noise=noise, boundary=boundary, seed=0)
    return g.astype(dtype), sharp[Blur(psf.gaussian(9, 1.5), g.shape, boundary).crop]


@pytest.mark.parametrize("boundary", ["periodic", "reflect", "zero", "unknown"])
@pytest.mark.parametrize(("dtype", "loss"), [(np.float32, 1.6), (np.float64, 0.5)])
def test_without_noise_but_that_of_rounding_lambda_loses_little(boundary, dtype, loss):
    (g, sharp), h = photograph(boundary, 0.0, dtype), psf.gaussian(9, 1.5)
    choice = choose_lambda(Blur(h, g.shape, boundary), g)
    assert (choice.rule, choice.converged) == ("gcv", True)
    lams = choice.lam, *np.geomspace(1e-14, 1e-8, 13)
    found, *others = (psnr(sharp, solve(g, h, lam, boundary=boundary, prior="zero").image) for lam in lams)
    assert found >= max(others) - loss


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.01])
def test_edges_that_do_not_fit_the_model_do_not_pass_as_converged(noise):
    g, sharp = photograph("unknown", noise)
    blur = Blur(psf.gaussian(9, 1.5), g.shape, "periodic")
    choice = choose_lambda(blur, g)
    assert not choice.converged
    assert "the model of the blur is wrong" in choice.remark
    assert choice.remark in choice.reason
    power = abs(blur.transfer()) ** 2
    scene = blur.torus().filter(g, blur.transfer().conj() / (power + choice.lam))
    assert psnr(sharp, scene) >= 13  # and -30 where cross-validation runs to


def test_where_lambda_has_not_converged_the_noise_decides(rng):
    sharp = data.load("camera")[:150, :150]
    g = degrade(sharp, psf.motion(15, 30), boundary="unknown")
    g += 1e-3 * rng.standard_normal(g.shape)
    blur = Blur(psf.motion(15, 30), g.shape, "unknown")
    left = g - blur.forward(prior_scene(blur, g))
    choice = choose_lambda(blur, left, max_steps=40)
    assert (choice.rule, choice.converged, choice.noise_source) == ("discrepancy", True, "estimated")
    assert "still moving" in choice.remark
    scene = scipy.sparse.linalg.lsqr(blur, left.ravel(), damp=math.sqrt(choice.lam), iter_lim=200)[0]
    restored = scene.reshape(blur.scene_shape) + prior_scene(blur, g)
    assert psnr(sharp[blur.crop], restored[blur.crop]) >= psnr(sharp[blur.crop], g) + 3.5


def test_the_table_of_rules_says_which_serve():
    blur = Blur(ASYMMETRIC, (12, 12), "zero")
    linear, edges = Problem(blur), Problem(blur, regularizer="tv")
    impulses = Problem(blur, regularizer="tv", fidelity=DataFidelity("l1"))
    expected = {
        "gcv": (True, True, False),
        "discrepancy": (True, True, False),
        "lcurve": (True, False, False),
        "upre": (True, False, False),
        "sure": (False, True, False),
        "whiteness": (False, True, True),
    }
    found = {
        name: tuple(rule.refuses(p) is None for p in (linear, edges, impulses)) for name, rule in ALL_RULES.items()
    }
    assert found == expected
    assert [check_rule("auto", p) for p in (linear, edges, impulses)] == ["gcv", "gcv", "whiteness"]
    assert [check_rule("auto", p, 0.1) for p in (linear, edges, impulses)] == ["upre", "sure", "whiteness"]
    refused(ValueError, "use one of auto, gcv, discrepancy, sure, whiteness", check_rule, "upre", edges)
    refused(ValueError, "give λ as a number", check_rule, "gcv", Problem(blur, formula="hht"))
    assert check_rule("gcv", Problem(Blur(ASYMMETRIC, (12, 12), "periodic"), formula="hht")) == "gcv"


@pytest.mark.parametrize(("height", "flat"), [(1e-5, True), (1.0, False)])
def test_the_minimum_is_found_and_a_flat_curve_is_reported(height, flat):
    lambdas = np.geomspace(1e-6, 1.0, 61)
    curve = np.poly1d([height, 0, 1])
    lam, remark, converged = _minimum(lambda x: curve(np.log(x / 3e-3)), lambdas, curve(np.log(lambdas / 3e-3)), "")
    assert abs(math.log(lam / 3e-3)) <= (1e-2 if flat else 1e-5)
    assert ("flat" in remark) is flat
    assert converged


def test_one_pixel():
    blur = Blur([[2.0]], (1, 1), "zero")
    assert np.isfinite(choose_lambda(blur, np.array([[3.0]])).lam)
    refused(ValueError, "cannot be estimated.*axes=1", choose_lambda, blur, np.array([[3.0]]), "discrepancy")
    assert choose_lambda(blur, np.array([[3.0]]), "discrepancy", noise=0.1).lam > 0


@pytest.mark.parametrize("scale", [1e-3, 255.0])
def test_the_choice_scales_with_blur_and_ignores_the_image_scale_and_precision(scale, rng):
    blur, g = make("kronecker", rng)
    lam = choose_lambda(blur, g).lam
    assert abs(math.log(choose_lambda(blur, g.astype(np.float32)).lam / lam)) <= 0.01
    assert abs(math.log(choose_lambda(blur, scale * g).lam / lam)) <= 1e-3
    assert abs(math.log(choose_lambda(Blur(scale * blur.psf, g.shape, "zero"), g).lam / lam / scale**2)) <= 1e-3


@pytest.mark.parametrize("name", ["fft", "dct", "dst", "kronecker, wide", "dense"])
@pytest.mark.parametrize("rule", RULES)
def test_numpy_and_cupy_choose_alike(xp, name, rule, rng):
    blur, g = make(name, rng, noise=0.05)
    choice = choose_lambda(Blur(*BLURS[name]), xp.asarray(g), rule, noise=0.05)
    assert abs(math.log(choice.lam / choose_lambda(blur, g, rule, noise=0.05).lam)) <= 1e-3
    assert isinstance(choice.values, np.ndarray)


def test_numpy_and_cupy_bidiagonalise_alike(xp, rng):
    blur = Blur(psf.camera_shake(7, 4), (40, 37), "zero")
    g = blur.forward(rng.random(blur.scene_shape)) + 0.01 * rng.standard_normal(blur.image_shape)
    residual, _, _ = dense_parts(blur, g, choose_lambda(blur, xp.asarray(g), "discrepancy", noise=0.01).lam)
    assert abs(np.sqrt((residual**2).mean()) / 0.01 - 1) <= 0.02


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rule": "best"}, "unknown rule 'best'"),
        ({"noise": -1.0}, "noise"),
        ({"norm": "image"}, "unknown norm"),
        ({"bounds": (1.0, 0.1)}, "bounds"),
        ({"max_steps": 0}, "max_steps"),
        ({"g": np.ones((16, 19))}, "shape"),
        ({"g": np.full((17, 19), np.nan)}, "NaN"),
    ],
)
def test_bad_arguments(arguments, words, rng):
    blur, g = make("fft", rng)
    refused(ValueError, words, choose_lambda, **{"blur": blur, "g": g, **arguments})


# ---------------------------------------------------------------------------------------------
# "auto": gcv from the spectrum alone
# ---------------------------------------------------------------------------------------------


def pictured(h, side, noise):
    """(blur, image, truth): a photograph whose scene goes on beyond the frame."""
    blur = Blur(h, (side, side), "unknown")
    rows, cols = blur.scene_shape
    scene = data.load("camera")[-side - 24 :, 100 : 100 + side + 24][:rows, :cols]
    clean = blur.forward(scene)
    return blur, clean + noise * np.random.default_rng(0).standard_normal(clean.shape), scene[blur.crop]


def left(blur, g):
    return g - blur.forward(prior_scene(blur, g))


def test_without_a_blur_the_spectrum_s_sums_are_exact(rng):
    # A PSF of one pixel needs no taper, and the blur is then a multiple of the identity.
    g, lam = rng.standard_normal((3, 40, 36)), 0.3
    (sums,) = spectral_sums(Blur([[0.5]], (40, 36), "unknown"), g)
    assert sums.pixels == g.size
    assert sums.residual(lam) == pytest.approx((lam / (0.25 + lam)) ** 2 * (g**2).sum(), rel=1e-12)
    assert sums.solution(lam) == pytest.approx(0.25 / (0.25 + lam) ** 2 * (g**2).sum(), rel=1e-12)
    assert sums.influence(lam) == pytest.approx(0.25 / (0.25 + lam) * g.size, rel=1e-12)


@pytest.mark.parametrize("tile", [1024, 64])
def test_white_noise_keeps_its_power_under_the_taper(tile, rng, monkeypatch):
    monkeypatch.setattr(sums_module, "_TILE", tile)
    noise = 0.1 * rng.standard_normal((1, 300, 200))
    (sums,) = spectral_sums(Blur(psf.disk(9), (300, 200), "unknown"), noise)
    assert sums.pixels == pytest.approx(noise.size, rel=1e-12)
    assert sums.power.sum() == pytest.approx((noise**2).sum(), rel=0.03)


@pytest.mark.parametrize(
    ("h", "noise", "tile"),
    [
        (psf.motion(15, 30), 0.02, 1024),
        (psf.disk(7), 0.02, 80),
        # Its rim is a third of the picture: without a taper no λ is found.
        (psf.gaussian(25, 4), 0.004, 1024),
    ],
)
def test_the_spectrum_s_lambda_restores_as_well_as_that_of_the_whole_rule(h, noise, tile, monkeypatch):
    monkeypatch.setattr(sums_module, "_TILE", tile)
    blur, g, truth = pictured(h, 150, noise)
    quick, whole = (choose_lambda(blur, left(blur, g), rule) for rule in ("auto", "gcv"))
    assert "spectrum" in quick.decomposition
    assert "spectrum" not in whole.decomposition
    assert quick.converged

    found, best = (psnr(truth, solve(g, h, x.lam, boundary="unknown", prior="smooth").image) for x in (quick, whole))
    assert found > best - 0.15


def test_a_spectrum_that_implies_more_noise_than_is_seen_is_not_followed():
    # So little noise beside texture that the taper's own error would be taken for it.
    blur, g, _ = pictured(psf.motion(15, 30), 200, 1e-4)
    assert from_spectrum(blur, left(blur, g)[None]) == [None]


def test_a_spectrum_of_which_the_taper_hides_the_most_is_not_followed(rng):
    blur, g, _ = pictured(psf.motion(9, 30), 128, 0.01)
    leftover = left(blur, g)
    assert from_spectrum(blur, leftover[None]) != [None]
    leftover[16:-16, 16:-16] = 0.01 * rng.standard_normal((96, 96))  # all there is lies at the rim
    assert from_spectrum(blur, leftover[None]) == [None]


@pytest.mark.parametrize(
    "blur",
    [
        Blur(psf.disk(9), (30, 40), "unknown"),
        Blur(psf.motion(9, 30), (60, 64), "zero"),
        Blur(psf.box(5), (60, 64), "unknown"),  # separable and small: decomposed at once
    ],
)
def test_a_small_picture_and_another_boundary_take_the_whole_rule(blur, rng):
    assert from_spectrum(blur, rng.standard_normal((1, *blur.image_shape))) == [None]


def test_a_large_picture_falls_back_on_its_middle(monkeypatch):
    for name, value in (("_WINDOW", 64), ("_SEEN", 0.0), ("_LEAK", 9.0)):
        monkeypatch.setattr(spectral_module, name, value)
    blur, g, _ = pictured(psf.motion(15, 30), 128, 0.01)
    assert "of the middle 64 x 64 pixels" in choose_lambda(blur, left(blur, g), "auto").reason
    assert "middle" not in choose_lambda(blur, left(blur, g), "gcv").reason


def test_the_result_says_how_lambda_was_chosen():
    h = psf.motion(15, 30)
    _, g, _ = pictured(h, 96, 0.01)
    assert "by the spectrum of the tapered picture" in solve(g, h, boundary="unknown").lam_reason
    assert "spectrum" not in solve(g, h, "gcv", boundary="unknown").lam_reason
    assert "spectrum" not in solve(g, h, boundary="unknown", prior="zero").lam_reason


@pytest.mark.gpu
@pytest.mark.parametrize("counted", [False, True])
def test_the_bins_of_a_gpu_are_numpys(cupy, rng, dtype, counted):
    s2, power = (10 ** rng.uniform(-30, 1, (2, 90, 41))).astype(dtype)
    s2[3, :5] = 0
    count = rng.integers(1, 3, s2.shape).astype(float) if counted else None
    there = (None if x is None else cupy.asarray(x) for x in (s2, power, count))
    here, found = sums_module._gathered(s2, power, count), sums_module._gathered(*there)
    totals = [
        (len(counts), (values * counts).sum(), powers.sum(), counts.sum()) for values, powers, counts in (here, found)
    ]
    # An entry at the edge of two bins may lie in either.
    assert abs(totals[0][0] - totals[1][0]) <= 4
    np.testing.assert_allclose(totals[1][1:], totals[0][1:], rtol=1e-12)
    for lam in (1e-20, 1e-10, 1e-3):
        gcv = [sums_module.FilterSums(v, p, v, c, s2.size, "").gcv(lam) for v, p, c in (here, found)]
        assert gcv[1] == pytest.approx(gcv[0], rel=1e-3)

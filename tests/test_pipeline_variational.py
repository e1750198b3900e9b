"""`solve` with the variational methods: masks, weights, bounds, data terms, denoisers."""

import numpy as np
import pytest
from problems import Spoiled
from refusals import refused

import deblur
from deblur import METHODS, Blur

PSF = deblur.psf.gaussian(5, 1.0)
SCENE = deblur.data.load("camera")[100:152, 180:230]
SHARP = SCENE[2:-2, 2:-2]


@pytest.fixture(scope="module")
def g():
    """The scene, which goes on beyond the frame, blurred and with a little noise."""
    return deblur.degrade(SCENE, PSF, noise=0.01, boundary="unknown", seed=3)


def solve(g, lam=1e-3, **options):
    return deblur.solve(g, PSF, lam, **({"boundary": "unknown"} | options))


@pytest.mark.parametrize("method", [m.name for m in METHODS.values() if not m.linear and m.name != "pnp"])
def test_verification_measures_the_objective_itself(g, method, monkeypatch):
    lam = {"gradient": 1e-2, "identity": 2e-2, "richardson-lucy": 1e-2}.get(method, 1e-3)
    result = solve(g, lam, method=method)
    problem = result.problem
    scene_value = problem.objective(g[None, None], _scene(result, g))
    assert result.status.ok
    assert result.method == method
    assert result.reason == "as requested"
    if method != "identity":
        # Some priors have no value.
        assert result.objective == pytest.approx(scene_value, rel=1e-9, nan_ok=True)
    assert deblur.metrics.psnr(SHARP, result.image) > deblur.metrics.psnr(SHARP, g)
    assert len(result.history.objective) == max(result.iterations, 1)
    assert result.why
    row = METHODS[method]
    honest = type(row).prepare

    def spoiled(self, problem, **how):  # the pilot solution stays as it is
        factor = honest(self, problem, **how)
        return Spoiled(factor, lambda x: x + 0.1) if self is row else factor

    monkeypatch.setattr(type(row), "prepare", spoiled)
    wrong = solve(g, lam, method=method, check=False)
    if method == "identity":  # the linear formula, of which the residual says all
        assert wrong.residual > 1e3 * result.residual
    else:
        assert wrong.objective > 1.5 * result.objective or np.isnan(result.objective)
    assert wrong.data_residual > result.data_residual
    assert np.allclose(wrong.residual_image - result.residual_image, -0.1, atol=1e-6)


def _scene(result, g):
    return METHODS[result.method].prepare(result.problem).solve(g[None, None]).scene


def test_the_measured_residual_of_a_linear_system_follows_the_requested_one(g):
    weights = np.random.default_rng(0).random(g.shape)
    assert solve(g, method="gradient", weights=weights).residual <= 1e-6
    assert 1e-6 < solve(g, method="gradient", weights=weights, rtol=1e-2).residual <= 2e-2


def test_auto_stays_linear_without_variational_options(g):
    result = solve(g)
    assert result.formula == "tikhonov"
    assert METHODS[result.method].linear


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask": np.eye(48, 46, dtype=bool)}, "a mask"),
        ({"mask": "auto"}, "a mask"),
        ({"weights": np.ones((48, 46))}, "weights"),
        ({"bounds": "nonnegative"}, "bounds"),
        ({"data": "huber"}, "huber"),
        ({"background": 0.01}, "background"),
    ],
)
def test_auto_becomes_variational_for_an_option_and_says_which(g, options, words):
    result = solve(g, **options)
    assert result.method == "gradient"
    assert words in result.reason


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "pcg", "mask": np.eye(48, 46, dtype=bool)}, r"'pcg'.*a mask.*gradient"),
        ({"method": "tv", "formula": "hht", "boundary": "zero"}, "formula"),
        ({"method": "tv", "prior": "smooth"}, "prior"),
        ({"method": "tv", "inverse": True}, "inverse"),
    ],
)
def test_options_of_the_other_family_are_refused(g, options, words):
    refused(deblur.MethodError, words, solve, g, **options)


def test_a_denoiser_selects_plug_and_play(g):
    assert solve(g, denoiser=lambda x, sigma: x).method == "pnp"
    few = {"max_iterations": 2, "check": False}
    default = solve(g, method="pnp", **few)
    assert "'collaborative', since none was named" in default.reason
    assert np.array_equal(default.image, solve(g, denoiser="collaborative", **few).image)
    refused(ValueError, "collaborative", solve, g, denoiser="magic")


def test_hidden_pixels_have_no_influence_and_are_reported(g):
    mask = np.random.default_rng(1).random(g.shape) < 0.05
    results = [solve(np.where(mask, junk, g), method="tv", mask=mask) for junk in (0.0, 1e6, np.nan)]
    for result in results[1:]:
        assert np.array_equal(result.image, results[0].image)
        assert result.data_residual == pytest.approx(results[0].data_residual, rel=1e-12)
        assert result.objective == pytest.approx(results[0].objective, rel=1e-12)
    visible = (g - Blur(PSF, g.shape, "unknown").forward(_scene(results[0], g)[0, 0]))[~mask]
    data_residual = np.linalg.norm(visible) / np.linalg.norm(g[~mask])
    assert results[0].data_residual == pytest.approx(data_residual, rel=1e-9)
    assert np.array_equal(results[0].mask, mask)
    assert f"masked      {mask.sum()} of {mask.size} values" in str(results[0])
    unknown = np.where(mask, np.nan, g)
    refused(ValueError, "NaN", solve, unknown, method="tv")
    # a mask of 0 and 1, and weights of 0, say the same
    assert np.abs(solve(unknown, method="tv", weights=1.0 - mask).image - results[0].image).max() <= 1e-9
    assert np.array_equal(solve(g, method="tv", mask=mask.astype(np.uint8)).image, results[0].image)


def test_detected_impulses_are_hidden(g):
    draw = np.random.default_rng(5).random(g.shape)
    spoiled = np.where(draw < 0.01, 0.0, np.where(draw > 0.99, 1.0, g))
    hit = (draw < 0.01) | (draw > 0.99)
    result = solve(spoiled, mask="auto")
    assert np.array_equal(result.mask, hit)
    assert deblur.metrics.psnr(SHARP, result.image) >= deblur.metrics.psnr(SHARP, solve(spoiled).image) + 5
    robust = solve(spoiled, 3e-2, method="tv", data="l1")
    assert robust.mask is None
    assert deblur.metrics.psnr(SHARP, robust.image) >= deblur.metrics.psnr(SHARP, solve(spoiled).image) + 5


@pytest.mark.parametrize(
    ("bounds", "low", "high"), [("nonnegative", 0.0, np.inf), ((0.1, 0.6), 0.1, 0.6), ((-np.inf, 0.5), -np.inf, 0.5)]
)
def test_the_image_lies_within_its_bounds(g, bounds, low, high):
    result = solve(g, 1e-4, method="tv", bounds=bounds)
    assert result.image.min() >= low
    assert result.image.max() <= high
    assert solve(g, method="tv", bounds=(-np.inf, np.inf)).problem.bounds is None


def test_colour_and_stacks(g):
    colour = np.stack([g, 0.5 * g + 0.1, g[::-1]], axis=-1)
    mask = np.zeros(g.shape, bool)
    mask[5, 6:8] = True
    together = solve(colour, method="tv", channel_axis=-1, mask=mask)
    assert together.image.shape == together.residual_image.shape == together.mask.shape == colour.shape
    assert together.mask[5, 6].all()
    movie = np.stack([colour, 2 * colour], axis=1)  # rows, frames, columns, colours
    each = np.zeros(movie.shape, bool)
    each[5, :, 6:8, :] = True
    both = solve(movie, method="tv", channel_axis=3, stack_axis=1, mask=each, rtol=1e-5, max_iterations=2000)
    first = solve(colour, method="tv", channel_axis=-1, mask=mask, rtol=1e-5, max_iterations=2000)
    assert np.abs(both.image[:, 0] - first.image).max() <= 2e-3
    # colours restored together share their edges: not what each gives alone
    assert np.abs(together.image[..., 1] - solve(colour[..., 1], method="tv", mask=mask).image).max() > 1e-3
    stack = solve(np.moveaxis(colour, -1, 0), method="gradient", stack_axis=0)
    assert np.abs(stack.image[1] - solve(colour[..., 1], method="gradient").image).max() <= 1e-3


@pytest.mark.parametrize("method", ["tv", "gradient"])
def test_float32_and_uint8(g, method):
    exact = solve(g, method=method).image
    single = solve(g.astype(np.float32), method=method)
    assert single.image.dtype == np.float32
    assert np.abs(single.image - exact).max() <= 2e-3
    eight = np.round(np.clip(g, 0, 1) * 255).astype(np.uint8)
    wide = solve(eight / 255, method=method).image
    assert np.abs(solve(eight, method=method, dtype="float64").image - wide).max() <= 1e-12
    narrow = solve(eight, method=method).image
    assert narrow.dtype == np.float32
    assert np.abs(narrow - wide).max() <= 2e-3


@pytest.mark.parametrize("options", [{"method": "tv"}, {"method": "gradient"}, {"method": "tv2", "bounds": (0, 1)}])
def test_too_few_iterations_are_never_a_success(g, options):
    with pytest.raises(deblur.ConvergenceError, match="max_iterations") as caught:
        solve(g, max_iterations=2, **options)
    assert caught.value.result.status is deblur.Status.NOT_CONVERGED
    assert not solve(g, max_iterations=2, check=False, **options).status.ok


def test_poisson_data_may_be_below_zero_where_hidden():
    g = np.ones((12, 12))
    g[3, 3] = -1.0
    mask = g < 0
    result = deblur.solve(g, PSF, 1e-2, method="tv", data="poisson", mask=mask, boundary="reflect")
    assert np.abs(result.image - 1).max() <= 1e-2
    refused(ValueError, r"1 visible value", deblur.solve, g, PSF, 1e-2, method="tv", data="poisson")


def test_delta_of_the_huber_term_follows_the_noise(g):
    assert solve(g, method="tv", data="huber", noise=0.02).problem.fidelity.delta == pytest.approx(1.345 * 0.02)
    assert solve(g, method="tv", data="huber").problem.fidelity.delta == pytest.approx(1.345 * 0.01, rel=0.3)
    assert solve(g, method="tv", data="huber", delta=0.5).problem.fidelity.delta == 0.5
    hidden, hit = np.random.default_rng(0).random((2, *g.shape)) < 0.06  # impulses are no noise
    found = solve(np.where(hidden, 50.0, np.where(hit, 1.0, g)), method="tv", data="huber", weights=1.0 - hidden)
    assert found.problem.fidelity.delta == pytest.approx(1.345 * 0.015, rel=0.4)
    g = np.random.default_rng(5).random(5)  # a line
    assert all(deblur.solve(g, [1.0], method="tv", data=data).status.ok for data in (None, "huber"))


@pytest.mark.parametrize("dim", [0.1, 0.3])
@pytest.mark.parametrize("top", [0, 120])
def test_richardson_lucy_makes_no_dark_picture_worse(dim, top):
    psf = deblur.psf.motion(15, 30)
    sharp = dim * deblur.image.as_float(deblur.data.load("cat"))[top : top + 80, 60:140]
    g = deblur.degrade(sharp, psf, noise=0.005, boundary="unknown", channel_axis=-1, seed=0).clip(0)
    top, left = (n // 2 for n in psf.shape)
    truth = sharp[top : top + g.shape[0], left : left + g.shape[1]]
    options = {"method": "richardson-lucy", "boundary": "unknown", "channel_axis": -1, "check": False}
    result = deblur.solve(g, psf, **options)
    assert not result.status.ok or deblur.metrics.psnr(truth, result.image) >= deblur.metrics.psnr(truth, g)
    assert result.status in (deblur.Status.STOPPED, deblur.Status.NOT_CONVERGED)
    assert deblur.solve(g, psf, max_iterations=2, **options).status is deblur.Status.STOPPED
    assert deblur.solve(g, psf, rtol=1e-9, max_iterations=2, **options).status is deblur.Status.NOT_CONVERGED


@pytest.mark.parametrize("method", ["richardson-lucy", "tv", "gradient", "pcg"])
def test_the_callers_handling_of_floating_point_errors_changes_nothing(g, method):
    g = np.maximum(g, 0)
    g[:10] = 0
    expected = solve(g, 0.0 if method == "richardson-lucy" else 1e-2, method=method).image
    with np.errstate(all="raise"):
        found = solve(g, 0.0 if method == "richardson-lucy" else 1e-2, method=method).image
    np.testing.assert_array_equal(found, expected)

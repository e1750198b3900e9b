"""Methods beyond the linear formula, by every call and the command line, and what bad input gets."""

from dataclasses import replace

import numpy as np
import pytest

import deblur
from deblur import METHODS, Blur, image
from deblur.cli import main
from deblur.problem import Problem

PSF = deblur.psf.gaussian(5, 1.0)
BEYOND = [m.name for m in METHODS.values() if not m.linear]


@pytest.fixture(scope="module")
def photograph():
    """(sharp, blurred) with the scene beyond the frame and a little noise."""
    sharp = deblur.data.load("camera")[100:152, 180:230]
    return sharp[2:-2, 2:-2], deblur.degrade(sharp, PSF, noise=0.01, boundary="unknown", seed=3)


def solve(g, lam=1e-3, **options):
    return deblur.solve(g, PSF, lam, **({"boundary": "unknown"} | options))


@pytest.mark.parametrize("method", [m for m in BEYOND if m != "pnp"])
def test_the_judge_measures_the_objective_itself(photograph, method, monkeypatch):
    sharp, g = photograph
    lam = 1e-2 if method == "gradient" else 2e-2 if method == "identity" else 1e-3
    result = solve(g, lam, method=method)
    problem = result.problem
    scene_value = problem.objective(g[None, None], _scene(result, g))
    assert result.status.ok
    assert result.method == method
    assert result.reason == "as requested"
    if method != "identity":
        assert result.objective == pytest.approx(
            scene_value, rel=1e-9, nan_ok=True
        )  # some priors have no value
    assert deblur.metrics.psnr(sharp, result.image) > deblur.metrics.psnr(sharp, g)
    assert len(result.history.objective) == max(result.iterations, 1)
    assert result.why
    # A spoiled scene is judged by what it is, whatever its method says of it.
    row = METHODS[method]
    honest = type(row).prepare

    class Spoiled:
        def __init__(self, factor):
            self.factor = factor

        def solve(self, g, start=None):
            solution = self.factor.solve(g, start)
            return replace(solution, scene=solution.scene + 0.1)

    def spoiled(self, problem, **how):  # its pilot stays honest
        return Spoiled(honest(self, problem, **how)) if self is row else honest(self, problem, **how)

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


def test_the_measured_residual_of_a_linear_system_is_its_gradient(photograph):
    _, g = photograph
    weights = np.random.default_rng(0).random(g.shape)
    result = solve(g, method="gradient", weights=weights)
    h = Blur(PSF, g.shape, "unknown").to_dense()
    assert result.residual <= 1e-6
    loose = solve(g, method="gradient", weights=weights, rtol=1e-2)
    assert 1e-6 < loose.residual <= 2e-2
    right = h.T @ (weights.ravel() * g.ravel())
    assert np.linalg.norm(right) > 0


def test_auto_stays_linear_unless_more_is_asked_for(photograph):
    _, g = photograph
    assert solve(g).formula == "tikhonov"
    assert METHODS[solve(g).method].linear
    mask = np.zeros(g.shape, bool)
    mask[3, 4] = True
    for asked, words in (
        ({"mask": mask}, "a mask"),
        ({"mask": "auto"}, "a mask"),
        ({"weights": np.ones(g.shape)}, "weights"),
        ({"bounds": "nonnegative"}, "bounds"),
        ({"data": "huber"}, "huber"),
        ({"background": 0.01}, "background"),
    ):
        result = solve(g, **asked)
        assert result.method == "gradient"
        assert words in result.reason
        assert not METHODS[result.method].linear
    pnp = solve(g, denoiser=lambda x, sigma: x)
    assert pnp.method == "pnp"
    with pytest.raises(deblur.MethodError, match=r"'pcg'.*a mask.*gradient"):
        solve(g, method="pcg", mask=mask)
    with pytest.raises(deblur.MethodError, match="formula"):
        solve(g, method="tv", formula="hht", boundary="zero")
    with pytest.raises(deblur.MethodError, match="prior"):
        solve(g, method="tv", prior="smooth")
    with pytest.raises(deblur.MethodError, match="inverse"):
        solve(g, method="tv", inverse=True)
    few = {"max_iterations": 2, "check": False}
    named = solve(g, method="pnp", **few)
    assert "'collaborative', since none was named" in named.reason
    assert np.array_equal(named.image, solve(g, denoiser="collaborative", **few).image)
    with pytest.raises(ValueError, match="collaborative"):
        solve(g, denoiser="magic")


def test_hidden_pixels_may_hold_anything_and_are_told(photograph):
    _, g = photograph
    mask = np.random.default_rng(1).random(g.shape) < 0.05
    results = []
    for junk in (0.0, 1e6, np.nan):
        spoiled = np.where(mask, junk, g)
        results.append(solve(spoiled, method="tv", mask=mask))
    for result in results[1:]:
        assert np.array_equal(result.image, results[0].image)
    assert np.array_equal(results[0].mask, mask)
    assert f"masked      {mask.sum()} of {mask.size} values" in str(results[0])
    with pytest.raises(ValueError, match="NaN"):
        solve(np.where(mask, np.nan, g), method="tv")
    # a mask of 0 and 1, and weights of 0, say the same
    weighted = solve(g, method="tv", weights=1.0 - mask)
    assert np.abs(weighted.image - results[0].image).max() <= 1e-9
    integers = solve(g, method="tv", mask=mask.astype(np.uint8))
    assert np.array_equal(integers.image, results[0].image)


def test_detected_impulses_are_hidden(photograph):
    sharp, g = photograph
    rng = np.random.default_rng(5)
    draw = rng.random(g.shape)
    spoiled = np.where(draw < 0.01, 0.0, np.where(draw > 0.99, 1.0, g))
    hit = (draw < 0.01) | (draw > 0.99)
    result = solve(spoiled, mask="auto")
    assert np.array_equal(result.mask, hit)
    assert deblur.metrics.psnr(sharp, result.image) >= deblur.metrics.psnr(sharp, solve(spoiled).image) + 5
    robust = solve(spoiled, 3e-2, method="tv", data="l1")
    assert robust.mask is None
    assert deblur.metrics.psnr(sharp, robust.image) >= deblur.metrics.psnr(sharp, solve(spoiled).image) + 5


def test_bounds_are_kept(photograph):
    _, g = photograph
    for bounds, low, high in (
        ("nonnegative", 0.0, np.inf),
        ((0.1, 0.6), 0.1, 0.6),
        ((-np.inf, 0.5), -np.inf, 0.5),
    ):
        result = solve(g, 1e-4, method="tv", bounds=bounds)
        assert result.image.min() >= low
        assert result.image.max() <= high
    assert solve(g, method="tv", bounds=(-np.inf, np.inf)).problem.bounds is None


def test_colour_and_stacks(photograph):
    _, g = photograph
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
    alone = solve(colour[..., 1], method="tv", mask=mask)
    assert np.abs(together.image[..., 1] - alone.image).max() > 1e-3
    stack = solve(np.moveaxis(colour, -1, 0), method="gradient", stack_axis=0)
    assert np.abs(stack.image[1] - solve(colour[..., 1], method="gradient").image).max() <= 1e-3


@pytest.mark.parametrize("method", ["tv", "gradient"])
def test_float32_and_uint8(photograph, method):
    _, g = photograph
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


def test_a_deblurrer_detects_anew_in_every_image(photograph):
    _, g = photograph
    restore = deblur.Deblurrer(
        PSF, g.shape, 1e-3, method="tv", boundary="unknown", mask="auto", bounds=(0, 1)
    )
    assert restore.choice.method == "tv"
    for at in ((10, 10), (20, 30)):
        spoiled = g.copy()
        spoiled[at] = 5.0
        result = restore.solve(spoiled)
        assert result.mask[at]
        assert result.mask.sum() == 1
        one = deblur.reconstruct(
            spoiled, PSF, 1e-3, method="tv", boundary="unknown", mask="auto", bounds=(0, 1)
        )
        assert np.array_equal(restore(spoiled), one)


def test_an_iteration_cut_short_is_never_returned_as_success(photograph):
    _, g = photograph
    for options in ({"method": "tv"}, {"method": "gradient"}, {"method": "tv2", "bounds": (0, 1)}):
        with pytest.raises(deblur.ConvergenceError, match="max_iterations") as caught:
            solve(g, max_iterations=2, **options)
        assert caught.value.result.status is deblur.Status.NOT_CONVERGED
        assert not solve(g, max_iterations=2, check=False, **options).status.ok


def test_result_prints_what_was_done(photograph):
    _, g = photograph
    text = str(solve(g, method="tv", bounds=(0, 1), data="huber"))
    for word in (
        "tv",
        "as requested",
        "total variation",
        "huber",
        "0 ≤ f ≤ 1",
        "objective",
        "tolerance",
        "unknown",
    ):
        assert word in text
    unvalued = solve(g, method="pnp", denoiser=lambda image, sigma: image)
    assert np.isnan(unvalued.objective)
    assert "nan" not in str(unvalued)


ONES = np.ones((12, 12))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mask": ONES > 0}, ValueError, "hide"),
        ({"weights": 0 * ONES}, ValueError, "hide"),
        ({"mask": "yes"}, ValueError, "auto"),
        ({"mask": 0.5 * ONES}, ValueError, "boolean"),
        ({"mask": 2 * ONES.astype(int)}, ValueError, "boolean"),
        ({"mask": ONES[:3] > 0}, ValueError, "shape"),
        ({"weights": -ONES}, ValueError, "below zero"),
        ({"weights": np.nan * ONES}, ValueError, "finite"),
        ({"weights": ONES[:, :5]}, ValueError, "shape"),
        ({"bounds": (1, 0)}, ValueError, "cross"),
        ({"bounds": (1, 1)}, ValueError, "cross"),
        ({"bounds": (np.nan, 1)}, ValueError, "cross"),
        ({"bounds": "positive"}, ValueError, "nonnegative"),
        ({"bounds": 3}, TypeError, "pair"),
        ({"data": "cauchy"}, ValueError, "poisson"),
        ({"data": "poisson", "img": -ONES}, ValueError, "below zero"),
        ({"background": -1}, ValueError, "background"),
        ({"background": np.nan}, ValueError, "background"),
        ({"data": "huber", "delta": 0}, ValueError, "delta"),
        ({"delta": 0.1}, ValueError, "huber"),
        ({"denoiser": 3}, TypeError, "denoiser"),
        ({"denoiser": lambda x, s: x[1:]}, ValueError, "shape"),
        ({"denoiser": lambda x, s: x * np.nan}, ValueError, "NaN"),
        ({"method": "tv", "lam": "gcv2"}, ValueError, "unknown rule"),
        ({"method": "tv", "lam": "lcurve"}, ValueError, "linear formula"),
        ({"method": "tv", "lam": -1.0}, ValueError, "not negative"),
        ({"method": "tvl1"}, ValueError, "unknown method"),
    ],
)
def test_bad_input_is_named(options, error, message):
    arguments = {"img": ONES, "psf": PSF, "lam": 1e-2} | options
    with pytest.raises(error, match=message):
        deblur.reconstruct(**arguments)


def test_poisson_data_may_be_below_zero_where_hidden():
    g = ONES.copy()
    g[3, 3] = -1.0
    mask = g < 0
    result = deblur.solve(g, PSF, 1e-2, method="tv", data="poisson", mask=mask, boundary="reflect")
    assert np.abs(result.image - 1).max() <= 1e-2
    with pytest.raises(ValueError, match=r"1 visible value"):
        deblur.solve(g, PSF, 1e-2, method="tv", data="poisson")


def test_the_problem_can_be_put_by_hand(photograph):
    _, g = photograph
    problem = Problem(Blur(PSF, g.shape, "unknown"), 1e-3, "tv")
    scene = METHODS["tv"].prepare(problem).solve(g[None, None]).scene
    assert np.array_equal(scene[0, 0][problem.blur.crop], solve(g, method="tv").image)


# -- the command line ------------------------------------------------------------------------


def test_the_command_line_is_the_python_call(photograph, tmp_path, capsys):
    _, g = photograph
    source, hidden, out = tmp_path / "in.tif", tmp_path / "mask.png", tmp_path / "out.tif"
    mask = np.zeros(g.shape, bool)
    mask[7:9, 20] = True
    spoiled = np.where(mask, 1.0, g)
    image.write(source, spoiled, bits=32)
    image.write(hidden, mask.astype(float), bits=8)
    run = [
        "reconstruct",
        str(source),
        "-o",
        str(out),
        "--psf",
        "gaussian:5,1",
        "--bits",
        "32",
        "--lam",
        "1e-3",
    ]
    for arguments, options in (
        (
            ["--method", "tv", "--mask", str(hidden), "--bounds", "0,1"],
            {"method": "tv", "mask": mask, "bounds": (0, 1)},
        ),
        (["--mask", "auto"], {"mask": "auto"}),
        (["--method", "tv2", "--data", "huber"], {"method": "tv2", "data": "huber"}),
        (["--bounds", "nonnegative", "--background", "0.01"], {"bounds": "nonnegative", "background": 0.01}),
    ):
        assert main([*run, *arguments, "--force"]) == 0
        expected = deblur.solve(image.read(source), PSF, 1e-3, boundary="unknown", **options)
        assert np.abs(image.read(out) - expected.image).max() <= 1e-6
        said = capsys.readouterr().out
        assert f"method      {expected.method}" in said
        assert ("\nmasked " in said) == (expected.mask is not None)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--method", "fft", "--mask", "auto"], "a mask"),
        (["--bounds", "1,0"], "cross"),
        (["--denoiser", "magic"], "collaborative"),
        (["--method", "tv", "--prior", "smooth"], "prior"),
    ],
)
def test_mistakes_on_the_command_line_get_one_line(photograph, tmp_path, capsys, arguments, word):
    source = tmp_path / "in.png"
    image.write(source, np.clip(photograph[1], 0, 1), bits=8)
    run = [
        "reconstruct",
        str(source),
        "-o",
        str(tmp_path / "out.png"),
        "--psf",
        "gaussian:5,1",
        "--lam",
        "1e-3",
    ]
    assert main([*run, *arguments]) == 2
    said = capsys.readouterr()
    assert word in said.err
    assert said.err.count("\n") == 1
    for bad in (["--bounds", "low"], ["--mask", str(tmp_path / "none.png")]):
        with pytest.raises(SystemExit):
            main([*run, *bad])


def test_what_is_hidden_does_not_count_in_the_misfit(photograph):
    _, g = photograph
    mask = np.zeros(g.shape, bool)
    mask[10:12, 20] = True
    honest = solve(g, method="tv", mask=mask)
    spoiled = solve(np.where(mask, 100.0, g), method="tv", mask=mask)
    assert spoiled.data_residual == pytest.approx(honest.data_residual, rel=1e-12)
    assert spoiled.objective == pytest.approx(honest.objective, rel=1e-12)
    blur = Blur(PSF, g.shape, "unknown")
    scene = _scene(honest, g)[0, 0]
    seen = (g - blur.forward(scene))[~mask]
    assert honest.data_residual == pytest.approx(np.linalg.norm(seen) / np.linalg.norm(g[~mask]), rel=1e-9)


def test_the_huber_terms_delta_is_the_noises(photograph):
    _, g = photograph
    given = solve(g, method="tv", data="huber", noise=0.02)
    assert given.problem.fidelity.delta == pytest.approx(1.345 * 0.02)
    estimated = solve(g, method="tv", data="huber")
    assert estimated.problem.fidelity.delta == pytest.approx(1.345 * 0.01, rel=0.3)
    assert solve(g, method="tv", data="huber", delta=0.5).problem.fidelity.delta == 0.5

"""Images and PSFs of any size: each method's answer is the scaled one, digit by digit, and in their units."""

import pickle
from contextlib import suppress
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from covers import pairwise
from references import dense_differences
from skimage.util import img_as_float

import deblur
from deblur.methods import METHODS
from deblur.normalization import Scale, shifted
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES as ALL_BOUNDARIES
from deblur.problem import Problem
from deblur.solvers.dense import Dense
from deblur.terms import is_quadratic
from deblur.tuning import RULES, choose_lambda

PSF = deblur.psf.gaussian(3, 0.8)
BOUNDARY = {"fft": "periodic", "dst": "zero"}
#: Powers of two of image and PSF: 1e30, 1e-30, 1e20, 1e-20, and both.
SCALES = [(100, 0), (-100, 0), (0, 66), (0, -66), (60, -12)]


def picture(dtype=np.float64):
    sharp = deblur.image.as_float(deblur.data.load("camera64"))[:20, :18]
    return np.maximum(deblur.degrade(sharp, PSF, noise=0.01, boundary="reflect", seed=0), 0).astype(dtype)


def lam_power(method, image, psf):
    """λ for H = 2^psf H', g = 2^image g' is 2^this times that for H' and g', by the homogeneity of D and R."""
    row = METHODS[method]
    of_fidelity = 1 if row.fidelity == "poisson" else 2
    of_regularizer = 2 if is_quadratic(row.regularizer) else 0 if row.regularizer == "denoiser" else 1
    return of_fidelity * image - of_regularizer * (image - psf)


@cache
def solved(method, dtype, lam, image=0, psf=0):
    return deblur.solve(
        shifted(picture(dtype), image),
        shifted(PSF, psf),
        lam if isinstance(lam, str) else shifted(lam, lam_power(method, image, psf)),
        method=method,
        boundary=BOUNDARY.get(method, "reflect"),
        max_iterations=6 if METHODS[method].regularizer in ("denoiser", "patches") else None,
        check=False,
    )


@pytest.mark.parametrize(("method", "lam", "dtype"), pairwise(METHODS, ["auto", 1e-3], [np.float32, np.float64]))
def test_every_method_gives_the_scaled_answer_in_the_units_of_the_image(method, lam, dtype):
    reference = solved(method, dtype, lam)
    # The methods that are not linear have one solver each.
    for image, psf in SCALES if METHODS[method].linear else [SCALES[4 if lam == "auto" else 1]]:
        found = solved(method, dtype, lam, image, psf)
        tiny = np.finfo(dtype).eps ** 2  # subnormal numbers become 0
        expected = shifted(reference.image, image - psf)
        assert np.abs(found.image - expected).max() <= tiny * np.abs(expected).max(), (image, psf)
        assert found.status is reference.status
        assert (found.iterations, found.image.dtype) == (reference.iterations, dtype)
        assert found.residual == reference.residual
        assert found.data_residual == reference.data_residual
        power = lam_power(method, image, psf)
        assert found.lam == pytest.approx(shifted(reference.lam, power), rel=1e-14, abs=0)
        assert found.problem.lam == found.lam
        assert np.array_equal(found.problem.operator.shift_invariant.psf, shifted(PSF, psf))
        left = shifted(reference.residual_image, image)
        assert np.abs(found.residual_image - left).max() <= tiny * np.abs(expected).max()
        of_fidelity = (1 if METHODS[method].fidelity == "poisson" else 2) * image
        if reference.objective is not None and np.isfinite(reference.objective):
            objective = shifted(reference.objective, of_fidelity)
            assert found.objective == pytest.approx(objective, rel=1e-12, abs=0)
            history = shifted(reference.history.objective, of_fidelity)
            assert np.allclose(found.history.objective, history, rtol=1e-12, atol=0)
        if found.lambda_choice is not None:
            assert found.lambda_choice.lam == found.lam
            assert f"{found.lam:.3g}" in found.lam_reason
            assert (f"image over 2^{image}" in found.lam_reason) == (image != 0)


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.linear])
def test_choose_lambda_answers_in_the_units_of_the_image(rule, dtype):
    blur, g = deblur.Blur(PSF, (20, 18), "reflect"), picture(dtype)
    noise = 0.01 if RULES[rule].noise else None
    one = choose_lambda(blur, g, rule, noise=noise)
    for image, psf in SCALES:
        large = deblur.Blur(shifted(PSF, psf), (20, 18), "reflect")
        given = None if noise is None else shifted(noise, image)
        found = choose_lambda(large, shifted(g, image), rule, noise=given)
        assert found.lam == shifted(one.lam, 2 * psf)
        assert found.noise == given
        assert np.array_equal(found.lambdas, shifted(one.lambdas, 2 * psf))
        assert np.array_equal(found.residual_norms, shifted(one.residual_norms, image))
        assert np.array_equal(found.solution_norms, shifted(one.solution_norms, image - psf))
        assert np.array_equal(found.singular_values, shifted(one.singular_values, psf))
        assert np.array_equal(found.coefficients, shifted(one.coefficients, image))
        power = {"discrepancy": 1, "lcurve": 0}.get(rule, 2) * image
        assert np.array_equal(found.values, shifted(one.values, power))


@pytest.mark.parametrize("data", ["gaussian", "poisson", pytest.param("l1", marks=pytest.mark.slow), "huber"])
def test_bounds_background_noise_and_delta_are_in_the_units_of_the_image(data):
    def of(image, psf):
        return deblur.solve(
            shifted(picture(), image),
            shifted(PSF, psf),
            shifted(0.01, (1 if data in ("poisson", "l1") else 2) * image - (image - psf)),
            method="tv",
            data=data,
            boundary="reflect",
            bounds=(0.0, shifted(0.9, image - psf)),
            background=shifted(0.02, image),
            **({"delta": shifted(0.05, image)} if data == "huber" else {}),
        )

    reference = of(0, 0)
    for image, psf in SCALES[1::3]:
        found = of(image, psf)
        assert np.array_equal(found.image, shifted(reference.image, image - psf))
        assert found.problem.fidelity.background == shifted(0.02, image)
        assert found.problem.bounds == (0.0, shifted(0.9, image - psf))
        assert found.problem.fidelity.delta == shifted(reference.problem.fidelity.delta, image)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_background_of_integers_is_a_share_of_the_largest(dtype):
    """Its unit is that of the scaled image; in the unit of the integers it is refused."""
    top = np.iinfo(dtype).max
    g = np.round(picture() * 0.5 * top).astype(dtype)
    options = {"method": "richardson-lucy", "boundary": "reflect", "max_iterations": 5}
    ints = deblur.reconstruct(g, PSF, background=top // 10 / top, **options)
    floats = deblur.reconstruct(g / top, PSF, background=top // 10 / top, **options)
    np.testing.assert_allclose(ints, floats, atol=1e-4)
    with pytest.raises(ValueError, match=f"divide it by {top}"):
        deblur.reconstruct(g, PSF, background=top // 10, **options)


class Seen:
    """A denoiser that does nothing, and what it was given."""

    def __init__(self):
        self.most = 0.0

    def __call__(self, image, sigma):
        self.most = max(self.most, float(np.abs(image).max()), sigma)
        return image


def test_a_denoiser_of_the_user_sees_the_users_units():
    one, large = Seen(), Seen()
    for seen, image in ((one, 0), (large, 100)):
        options = {"denoiser": seen, "max_iterations": 3, "check": False, "boundary": "zero"}
        deblur.solve(shifted(picture(), image), PSF, shifted(1e-3, 2 * image), **options)
    assert large.most == shifted(one.most, 100)


@pytest.mark.parametrize("method", ["auto", "gradient"])
def test_a_deblurrer_takes_frames_of_any_size(method):
    g = picture(np.float32)
    restore = deblur.Deblurrer(PSF, g.shape, method=method, dtype=np.float32, boundary="reflect", warm_start=True)
    frames = [restore.solve(f) for f in (g, g * np.float32(2.0**100), g * np.float32(2.0**-100), 0 * g)]
    assert len({f.lam for f in frames}) == 1  # λ is cached in the units of the images
    assert all(f.status.ok for f in frames)
    assert restore.lam == frames[0].lam
    assert not frames[3].image.any()


def test_a_deblurrer_with_a_large_psf_pickles():
    g = picture(np.float32)
    restore = deblur.Deblurrer(shifted(PSF, 66), g.shape, boundary="reflect")
    again = pickle.loads(pickle.dumps(restore))
    assert np.array_equal(again(g), restore(g))
    assert np.abs(shifted(again(g), 66) - deblur.reconstruct(g, PSF, boundary="reflect")).max() <= 1e-5
    assert restore.blur.dc_gain == pytest.approx(2.0**66)


def test_an_answer_outside_the_range_of_the_dtype_is_an_error():
    for image, psf in ((100, -66), (-100, 66)):
        with pytest.raises(OverflowError, match=r"float32 cannot hold.*float64"):
            deblur.reconstruct(shifted(picture(np.float32), image), shifted(PSF, psf), boundary="reflect")
        assert np.isfinite(deblur.reconstruct(shifted(picture(), image), shifted(PSF, psf), boundary="reflect")).all()


@pytest.mark.parametrize("method", ["pcg", "auto"])
def test_an_iteration_that_diverges_leaves_black_and_a_status(rng, method):
    """The PSF loses whole patterns; no unit of the image makes a scene of 1e56 one of float32."""
    g = rng.random((11, 10)).astype(np.float32)
    found = deblur.solve(g, np.ones((3, 3)) / 9, 1e-22, method=method, boundary="zero", check=False)
    assert not found.status.ok
    assert not found.image.any()


@pytest.mark.parametrize("boundary", ["zero", "reflect", "unknown"])
@pytest.mark.parametrize("power", [-460, 460])
def test_tiles_do_not_depend_on_the_unit_of_the_psf(rng, boundary, power):
    g, options = rng.random((50, 54)), {"boundary": boundary, "prior": "zero", "tile": 24}
    plain = deblur.tiled(g, PSF, 1.0, **options)
    found = deblur.tiled(g, shifted(PSF, power), 4.0**power, **options)
    assert np.abs(shifted(found, power) - plain).max() <= 1e-12


def test_hidden_pixels_do_not_set_the_scale(dtype):
    g, weights = picture(dtype), np.ones((20, 18))
    weights[3, 4] = 0
    plain = deblur.solve(g, PSF, 1e-3, weights=weights, boundary="zero")
    g[3, 4] = np.finfo(dtype).max
    found = deblur.solve(g, PSF, 1e-3, weights=weights, boundary="zero")
    assert np.abs(found.image - plain.image).max() <= 1e-6


@pytest.mark.parametrize("method", ["auto", "tv", "richardson-lucy", "collaborative"])
def test_the_scale_of_weights_does_not_matter_where_a_rule_chooses_lambda(rng, method):
    g = deblur.degrade(deblur.data.load("camera64")[:32, :30], PSF, boundary="reflect", noise=1e-3, seed=0)
    weights = 0.5 + rng.random(g.shape)
    expected = deblur.solve(g, PSF, method=method, weights=weights, boundary="reflect")
    sizes = ((1, 1e-300), (1, 1e6), (1e-17, 1e34), (1e-4, 1e8), (1, 1e300), (1e4, 1e-8))
    for size, of_weights in sizes if method == "auto" else sizes[::2]:
        found = deblur.solve(size * g, PSF, method=method, weights=of_weights * weights, boundary="reflect")
        assert np.abs(found.image / size - expected.image).max() <= 1e-3
        assert "2^0" not in found.reason
        if size == 1:
            assert found.lam == pytest.approx(of_weights * expected.lam, rel=1e-6)
            assert found.objective == pytest.approx(of_weights * expected.objective, rel=1e-6, nan_ok=True)


def exactly(h, lam, formula, g, visible, regularizer):
    """The formula, or the minimiser with the visible pixels, by elimination in 400 digits."""
    decimals = np.vectorize(lambda x: Decimal(float(x)))
    n, ell = h.shape[1], np.eye(h.shape[1])
    if regularizer != "identity":
        ell = dense_differences(visible[1], regularizer, visible[2])
    h, b, w, ell, eye = map(decimals, (h, g.ravel(), visible[0].ravel(), ell, np.eye(n)))
    with localcontext(prec=400):
        right = h.T @ (w * b)
        a = h @ h.T + Decimal(lam) * eye if formula == "hht" else h.T @ (w[:, None] * h) + Decimal(lam) * (ell.T @ ell)
        a = np.column_stack([a, right])
        for k in range(n):
            a[k] /= a[k, k]
            others = np.arange(n) != k
            a[others] -= np.outer(a[others, k], a[k])
    return a[:, -1].astype(float)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("seed", range(80))
def test_a_problem_of_any_size_ends_in_the_right_image_or_in_our_words(seed):
    """With PSFs that lose patterns, that vary, hidden pixels, and λ down to nothing of the largest eigenvalue."""
    rng = np.random.default_rng(seed)
    shape, size = rng.integers(2, 5, 2), rng.integers(1, 3, 2)
    h = np.ones(size) if seed % 3 else rng.random(size)
    of_psf, relative = 2.0 ** rng.choice([0, rng.integers(-460, 460)]), 10.0 ** rng.uniform(-24, 6)
    dtype, boundary = str(rng.choice(["f4", "f8"])), str(rng.choice(list(ALL_BOUNDARIES)))
    g, visible = rng.random(shape).astype(dtype), np.ones(shape, bool)
    lam, options = relative * h.sum() ** 2, {"boundary": boundary, "formula": "tikhonov"}
    if seed % 2:
        options["method"] = str(rng.choice(["auto", *(m.name for m in METHODS.values() if m.linear)]))
        options |= {"formula": str(rng.choice(["tikhonov", "hht"])), "prior": "zero"}
    else:
        options["method"] = str(rng.choice(["identity", "gradient"]))
        visible.flat[rng.integers(0, g.size, seed % 4)] = False
        options["mask"] = ~visible
    psf = {"psfs": np.multiply.outer([[1.0], [1.5]], h) * of_psf} if seed % 8 == 7 else {"psf": h * of_psf}
    try:
        found = deblur.solve(g, lam=of_psf * (lam * of_psf), check=False, **psf, **options)
    except (deblur.ConvergenceError, deblur.MethodError, deblur.SingularMatrixError, OverflowError):
        return
    if found.status.ok and "psf" in psf:
        blur, regularizer = deblur.Blur(h, g.shape, boundary), found.problem.regularizer
        parts = visible, blur.scene_shape, blur.boundary.wraps
        expected = exactly(blur.to_dense(), lam, options["formula"], g, parts, regularizer)
        expected = expected.reshape(blur.scene_shape)[blur.crop]
        most = 1e-2 if relative < 1e-6 or seed % 2 == 0 else 1e-3 if dtype == "f4" else 1e-6
        assert np.linalg.norm(found.image * of_psf - expected) <= most * np.linalg.norm(expected), found


LOSING = {"dst": ([[1, 0, 1]], (3, 5), "antireflect"), "identity": ([[13, 4], [7, 7], [4, 13]], (7, 2), "periodic")}
FORMULAS = [*((name, "hht") for name in ("cholesky", "lu", "banded", "kronecker", "dst"))]


@pytest.mark.parametrize(("method", "formula"), [*FORMULAS, ("dst", "tikhonov"), ("identity", "tikhonov")])
def test_a_psf_that_loses_patterns_gives_a_right_image_or_no_success(rng, method, formula):
    given, shape, boundary = LOSING.get(method, (None, (2, 3), "reflect"))
    right, visible = 0, (np.ones(shape, bool), shape, boundary == "periodic")
    for power in (*np.linspace(-18.5, -14.5, 80), *range(-13, 0)):
        h, g = 1.0 + (rng.random(shape) < 0.3) * (method != "kronecker"), rng.standard_normal(shape)
        h = (h if given is None else np.array(given)) / np.sum(h if given is None else given)
        options = {"method": method, "formula": formula, "boundary": boundary, "check": False}
        with suppress(deblur.SingularMatrixError):
            found = deblur.solve(g, h, 10.0**power, **options)
            right += found.status.ok
            expected = exactly(found.blur.to_dense(), 10.0**power, formula, g, visible, "identity").reshape(shape)
            close = np.linalg.norm(found.image - expected) <= 1e-2 * np.linalg.norm(expected)
            assert close or not found.status.ok, found
    assert right >= 8


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_integers_are_scaled_as_img_as_float_does(rng, dtype):
    img = rng.integers(0, np.iinfo(dtype).max, (12, 10), endpoint=True).astype(dtype)
    psf = deblur.psf.gaussian(5, 1.0)
    exact = deblur.reconstruct(img_as_float(img), psf, 1e-2, boundary="zero")
    image = deblur.reconstruct(img, psf, 1e-2, boundary="zero", dtype="float64")
    assert image.dtype == np.float64
    assert np.allclose(image, exact, atol=1e-14)
    result = deblur.solve(img, psf, 1e-2, boundary="zero")
    assert result.image.dtype == np.float32
    assert np.allclose(result.image, exact, atol=1e-4)
    assert result.dtype_reason == f"enough for {np.dtype(dtype).name} pixels"


@pytest.mark.parametrize(("method", "power"), [("gradient", -15), ("gradient", 5), ("tv", 5)])
def test_an_automatic_lambda_does_not_depend_on_the_unit_of_a_small_image(method, power):
    rng = np.random.default_rng(0)
    g, h = rng.random((8, 12)), rng.random((2, 2))
    images = [
        deblur.solve(g * by, h, method=method, boundary="antireflect", check=False).image for by in (1, 2.0**power)
    ]
    np.testing.assert_allclose(images[1], images[0] * 2.0**power, rtol=1e-6)


def test_a_scale_changes_no_digit(rng):
    h, g = rng.random((3, 3)), rng.random((8, 9))
    problem = Problem(Blur(h, (8, 9), "reflect"), 1e-3)
    scale = Scale.of(problem, g)
    assert not scale
    assert scale.near(problem) is problem
    reference = Dense("cholesky").prepare(problem).solve(g[None, None]).scene
    large = Problem(Blur(h * 2.0**60, (8, 9), "reflect"), 1e-3 * 2.0**120)
    scale = Scale.of(large, g)
    near = scale.near(large)
    assert abs(np.log2(near.blur.norm_bound)) <= 1
    found = Dense("cholesky").prepare(near).solve(g[None, None]).scene
    assert np.array_equal(shifted(found, scale.scene + 60), reference)
    single = Problem(problem.operator, problem.lam, dtype=np.dtype(np.float32))
    bright = (g[None, None] * 2.0**100).astype(np.float32)
    scale = Scale.of(single, bright)
    reference = Dense("cholesky").prepare(single).solve(g[None, None].astype(np.float32)).scene
    found = Dense("cholesky").prepare(scale.near(single)).solve(shifted(bright, -scale.image)).scene
    assert np.array_equal(shifted(found, scale.scene), reference * np.float32(2.0**100))

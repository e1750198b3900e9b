"""Posterior deviations against the diagonal of the dense inverse, and the estimate against its own error."""

from functools import partial
from itertools import cycle

import numpy as np
import pytest
from problems import problem_of
from references import dense_differences
from refusals import refused
from structured import PSFS, blurs

import deblur
from deblur.device import Device, asnumpy
from deblur.errors import InsufficientMemoryError
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.operators.natural import scenes
from deblur.posterior import EXACT, WHOLE
from deblur.solvers.start import smoothed

SHAPES = [(1, 1), (7, 5), (6, 9), (11, 8), (9,), (5, 3, 4)]


def posterior_std(blur, lam, regularizer="identity", weights=None, bounds=None, dtype="f8", device="cpu", **said):
    """That of a problem without a result."""
    fields = {
        "weights": weights,
        "bounds": bounds,
        "dtype": np.dtype(dtype),
        "device": Device.of(said["image"]) if "image" in said else Device.named(device),
    }
    return deblur.posterior_std(problem_of(blur, regularizer, lam, **fields), **said)


def place(xp):
    return "cpu" if xp is np else "gpu"


def regularizer_matrix(regularizer, shape, wrap):
    """LᵀL by the definition of the differences."""
    rows = dense_differences(shape, regularizer, wrap)
    return rows.T @ rows


def dense_std(blur, lam, noise, regularizer="identity", weights=None):
    h = blur.to_dense()
    w = np.ones(h.shape[0]) if weights is None else weights.ravel()
    prior = regularizer_matrix(regularizer, blur.scene_shape, blur.boundary == "periodic")
    covariance = noise**2 * np.linalg.inv(h.T @ (w[:, None] * h) + lam * prior)
    return np.sqrt(np.diag(covariance)).reshape(blur.scene_shape)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("method", ["auto", *EXACT])
def test_exact_methods_against_the_dense_inverse(boundary, method, xp):
    served = 0
    everything = list(blurs(boundary, SHAPES))
    for (name, blur), lam in zip(everything, cycle((1e-3, 0.3))):
        try:
            result = posterior_std(blur, lam, noise=0.2, method=method, device=place(xp))
        except ValueError:  # it cannot serve this blur
            continue
        served += 1
        expected = dense_std(blur, lam, 0.2)
        assert isinstance(result.std, xp.ndarray)
        error = np.abs(asnumpy(result.scene_std) / expected - 1).max()
        assert error <= 1e-10, (name, blur, lam, error)
        np.testing.assert_array_equal(asnumpy(result.std), asnumpy(result.scene_std)[blur.crop])
        assert result.std.shape == blur.image_shape
        assert result.exact
        assert result.standard_error is None
        assert result.method == (method if method != "auto" else result.method)
    if method in ("auto", "cholesky"):
        assert served == len(everything)
    else:
        serves = {"fft": ("periodic",), "dct": ("reflect",), "dst": ("zero",)}.get(method, BOUNDARIES)
        assert (served > 0) == (boundary in serves)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("regularizer", ["identity", "gradient", "laplacian"])
@pytest.mark.parametrize("weighted", [False, True])
def test_other_quadratic_problems_against_the_dense_inverse(rng, boundary, regularizer, weighted, xp):
    used = set()
    names = ["symmetric", "asymmetric", "even", "binomial", "even line", "symmetric volume"]
    for name, blur in blurs(boundary, [(9, 8), (9,), (3, 5, 4)], names):
        w = rng.random(blur.image_shape) * (rng.random(blur.image_shape) > 0.2) if weighted else None
        given = {"weights": None if w is None else xp.asarray(w), "device": place(xp)}
        result = posterior_std(blur, 0.02, regularizer, noise=0.3, **given)
        expected = dense_std(blur, 0.02, 0.3, regularizer, w)
        assert np.abs(asnumpy(result.scene_std) / expected - 1).max() <= 1e-9, (name, result)
        assert result.regularizer == regularizer
        used.add(result.method)
    if not weighted and boundary == "periodic":
        assert used == {"fft"}
    if weighted:
        assert used == {"cholesky"}
    if not weighted and boundary == "reflect":
        assert ("dct" in used) == (regularizer != "laplacian")


@pytest.mark.parametrize("boundary", ["reflect", "unknown"])
def test_nothing_cancels_for_a_small_lambda(boundary):
    # A diagonal of singular values that spans 14 decades; the answer for λ → 0 is known from the SVD in
    # extended precision only through the sum of positive terms, here taken from eigenvectors.
    blur = Blur(deblur.psf.gaussian(7, 2.0), (16, 17), boundary)
    lam = 1e-14
    _, s, vt = np.linalg.svd(blur.to_dense(), full_matrices=True)
    s2 = np.zeros(len(vt))
    s2[: len(s)] = s**2
    expected = np.sqrt((vt**2 / (s2 + lam)[:, None]).sum(axis=0)).reshape(blur.scene_shape)
    assert np.abs(posterior_std(blur, lam, noise=1, method="kronecker").scene_std / expected - 1).max() <= 1e-2


@pytest.mark.parametrize(
    ("name", "boundary", "lam", "regularizer", "weighted"),
    [
        ("shake", "zero", 1e-1, "identity", False),
        ("even", "reflect", 1e-3, "identity", False),
        ("shake", "antireflect", 1e-3, "identity", False),
        ("even", "unknown", 1e-5, "identity", False),
        ("shake", "unknown", 1e-3, "identity", False),
        ("even", "zero", 1e-5, "identity", False),
        ("shake", "reflect", 1e-2, "identity", True),
        ("shake", "unknown", 1e-2, "gradient", True),
        ("shake", "unknown", 1e-2, "laplacian", False),
    ],
)
def test_the_estimate_keeps_its_stated_error(rng, name, boundary, lam, regularizer, weighted, xp):
    psf = {"shake": deblur.psf.camera_shake(7, seed=1), "even": PSFS["even"]}[name]
    blur, w = Blur(psf, (32, 29), boundary), None
    options = {"noise": 0.5, "regularizer": regularizer, "method": "probing", "probes": 64}
    if weighted:
        w = np.ones(blur.image_shape)
        w[rng.random(w.shape) < 0.05] = 0
        w[10:16, 12:17] = 0
        w[20:] = 3
        options["weights"] = xp.asarray(w)
    expected = dense_std(blur, lam, 0.5, regularizer, w)[blur.crop]
    result = posterior_std(blur, lam, **options, device=place(xp))
    assert not result.exact
    assert result.probes == 64
    error = asnumpy(result.std) - expected
    stated = asnumpy(result.standard_error)
    # The stated error is one standard deviation: the root mean square of error / stated is about one.
    assert np.sqrt(np.mean((error / stated) ** 2)) <= 1.2
    assert np.sqrt(np.mean(error**2)) >= 0.6 * np.sqrt(np.mean(stated**2))
    # It is small, and so is the bias that comes with weights taken from the estimates.
    assert np.mean(np.abs(error) / expected) <= {1e-1: 0.02, 1e-2: 0.12, 1e-3: 0.1, 1e-5: 0.25}[lam]
    assert abs(np.mean(error / stated)) <= 0.4


@pytest.mark.parametrize("mirrored", [False, True])
def test_more_probes_make_a_smaller_error(mirrored, rng):
    if mirrored:  # its pixels are correlated
        result = deblur.solve(rng.random((20, 24)), np.full((3, 3), 1 / 9), 50.0, boundary="reflect", prior="natural")
        std = partial(deblur.posterior_std, result, noise=1)
        exact = std(method="dct").std
    else:
        blur = Blur(deblur.psf.camera_shake(7, seed=1), (32, 29), "unknown")
        std, exact = partial(posterior_std, blur, 1e-3, noise=1), dense_std(blur, 1e-3, 1)[blur.crop]
    few, many = (std(method="probing", probes=n) for n in (16, 256))
    for measured in (lambda r: np.abs(r.std - exact).mean(), lambda r: r.standard_error.mean()):
        assert 2.5 <= measured(few) / measured(many) <= 6.5  # four times, by the root of 16


@pytest.mark.parametrize(("regularizer", "close"), [("identity", 1e-10), ("gradient", 1e-4)])
def test_on_the_torus_the_signs_are_exact(regularizer, close):
    blur = Blur(deblur.psf.camera_shake(5, seed=1), (17, 19), "periodic")
    exact = posterior_std(blur, 1e-2, regularizer, noise=1)
    estimate = posterior_std(blur, 1e-2, regularizer, noise=1, method="probing", probes=4)
    assert exact.method == "fft"
    assert np.abs(estimate.std - exact.std).max() <= close * exact.std.max()


def test_the_same_seed_gives_the_same_and_the_callback_counts(xp):
    blur, seen = Blur(PSFS["asymmetric"], (20, 21), "unknown"), []
    said = {"noise": 1, "method": "probing", "probes": 18, "callback": seen.append, "device": place(xp)}
    a, b, c = (posterior_std(blur, 1e-2, **said, seed=s).std for s in (3, 3, 4))
    assert [bool((a == x).all()) for x in (b, c)] == [True, False]
    assert seen == 3 * [8, 16, 18]


def test_the_deviation_of_samples_is_the_stated_one():
    # The model itself: scenes and noise drawn from it, restored by `reconstruct`, err by what is claimed.
    rng = np.random.default_rng(5)
    blur = Blur(PSFS["asymmetric"], (14, 15), "reflect")
    lam, noise = 0.04, 0.3
    scenes = noise / np.sqrt(lam) * rng.standard_normal((4000, *blur.scene_shape))
    g = blur.forward(scenes) + noise * rng.standard_normal((4000, *blur.image_shape))
    restored = deblur.reconstruct(g, blur.psf, lam, boundary="reflect", stack_axis=0)
    measured = np.sqrt(((restored - scenes) ** 2).mean(axis=0))
    assert np.abs(measured / posterior_std(blur, lam, noise=noise).std - 1).max() <= 0.06


def test_an_unobserved_pixel_has_the_deviation_of_the_prior():
    # Two pixels of the PSF far apart: half the scene's border is seen by one of them only, and the corner of the
    # scene by a PSF entry that is zero.
    result = posterior_std(Blur(np.array([[0.5, 0.5, 0.0]]), (4, 6), "unknown"), 0.01, noise=0.1)
    assert np.abs(result.scene_std[:, 0] - 0.1 / 0.1).max() <= 1e-12


def test_noise_is_estimated_from_the_image():
    psf = deblur.psf.gaussian(7, 1.2)
    g = deblur.degrade(deblur.data.load("camera64"), psf, noise=0.05, seed=0)
    result = posterior_std(blur := Blur(psf, g.shape), 1e-2, image=g)
    assert result.noise_source == "estimated"
    assert abs(result.noise / 0.05 - 1) <= 0.2
    np.testing.assert_array_equal(result.std, posterior_std(blur, 1e-2, noise=result.noise).std)


def test_auto_takes_the_estimate_where_there_is_no_other():
    shake = deblur.psf.camera_shake(7, seed=1)
    assert posterior_std(Blur(shake, (20, 20), "unknown"), 0.1, noise=1, probes=4).method == "cholesky"
    assert posterior_std(Blur(shake, (60, 60), "unknown"), 0.1, noise=1, probes=4).method == "probing"


def test_float32(xp):
    blur = Blur(deblur.psf.camera_shake(7, seed=1), (32, 29), "unknown")
    one, two = (
        posterior_std(blur, 1e-2, noise=1, method="probing", probes=8, dtype=t, device=place(xp))
        for t in (np.float32, np.float64)
    )
    assert one.std.dtype == one.standard_error.dtype == np.float32
    assert np.abs(asnumpy(one.std) - asnumpy(two.std)).max() <= 1e-3


def test_too_large_for_the_dense_method():
    blur = Blur(deblur.psf.camera_shake(7, seed=1), (2000, 2000), "unknown")
    refused(InsufficientMemoryError, "probing", posterior_std, blur, 1e-2, noise=1, method="cholesky")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lam": 0}, "λ must be above zero"),
        ({"lam": "gcv"}, "λ must be above zero"),
        ({"lam": np.ones((5, 5))}, "λ must be above zero"),
        ({"noise": None}, "give noise=... or the blurred image"),
        ({"noise": -1}, "noise must be"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"method": "fft"}, "method 'fft' cannot be used here"),
        ({"regularizer": "magic"}, "no standard deviation for the regularizer 'magic'"),
        ({"weights": np.ones((3, 3))}, "weights must have the image's shape"),
        ({"weights": -np.ones((8, 8))}, "not be negative"),
        ({"weights": np.zeros((8, 8))}, "no pixel would be left"),
        ({"weights": np.full((8, 8), np.nan)}, "weights holds"),
        ({"weights": np.ones((8, 8)), "method": "kronecker"}, "without a decomposition"),
        ({"regularizer": "gradient", "method": "kronecker"}, "does not diagonalise"),
        ({"probes": 2}, "even whole number"),
        ({"probes": 7}, "even whole number"),
        ({"regularizer": "tv"}, "blurred image=... is needed"),
        ({"image": np.ones((2, 8, 8))}, "blur's shape .* one by one"),
        ({"regularizer": "tv", "image": np.ones((8, 9))}, "blur's shape"),
        ({"regularizer": "tv", "image": np.full((8, 8), np.nan)}, "NaN"),
        ({"regularizer": "tv", "method": "probing"}, "not linear in the data; use 'simulated'"),
        ({"regularizer": "gradient", "bounds": (0, 1), "method": "cholesky"}, "not linear in the data"),
        ({"regularizer": "gradient", "method": "simulated"}, "is linear in the data"),
    ],
)
def test_bad_input(arguments, message):
    arguments = {"lam": 0.1, "noise": 1.0, **arguments}
    refused(ValueError, message, posterior_std, Blur(PSFS["asymmetric"], (8, 8)), arguments.pop("lam"), **arguments)


@pytest.mark.parametrize("given", [np.ones((8, 8)), Blur(PSFS["asymmetric"], (8, 8))])
def test_a_lambda_without_its_regularizer_is_refused(given):
    refused(TypeError, "takes the Result of deblur.solve", deblur.posterior_std, given, noise=1.0)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("prior", ["zero", "smooth", "natural"])
def test_a_result_knows_its_regularizer(rng, boundary, prior):
    if (prior, boundary) == ("natural", "zero"):
        return  # refused
    for name in ("asymmetric", "symmetric", "binomial"):
        result = deblur.solve(rng.random((12, 11)), PSFS[name], 0.02, boundary=boundary, prior=prior)
        form, shape = result.problem.linear_form.operator, result.blur.scene_shape
        h, u = form.to_dense(), np.eye(form.shape[1]).reshape(-1, *form.scene_shape)
        b = (scenes(u, result.blur.boundary) if prior == "natural" else u).reshape(len(u), -1)  # Bᵀ
        expected = 0.3 * np.sqrt(np.diag(b.T @ np.linalg.solve(h.T @ h + 0.02 * np.eye(len(u)), b)))
        expected = expected.reshape(shape)
        exact, dense, probed = (
            deblur.posterior_std(result, noise=0.3, method=method, probes=256)
            for method in ("auto", "cholesky", "probing")
        )
        for found in (exact, dense):
            assert np.abs(found.scene_std / expected - 1).max() <= 1e-10, (name, found)
        assert np.abs(probed.std / expected[result.blur.crop] - 1).max() <= 0.2, (name, probed)
    image = rng.integers(0, 256, (12, 11), "u1")
    estimated, scaled = (deblur.posterior_std(result, image=x) for x in (image, image / 255))
    assert abs(estimated.noise / scaled.noise - 1) <= 1e-6
    assert (estimated.noise_source, estimated.regularizer) == ("estimated", result.problem.regularizer)


@pytest.mark.parametrize("value", [True, np.True_])
def test_a_truth_value_is_neither_lambda_nor_noise(value):
    blur = Blur(np.ones((1, 1)), (5, 5))
    refused(ValueError, "True", posterior_std, blur, value, noise=1.0)
    refused(ValueError, "True", posterior_std, blur, 1.0, noise=value)
    refused(ValueError, "True", deblur.QRDeblurrer, np.ones((1, 1)), (5, 5), value)


# ---------------------------------------------------------------- estimates that are not linear


def photograph(noise=0.01):
    """(blur, blurred picture, truth in its frame)."""
    scene = deblur.data.load("camera")[200:280, 200:284]
    psf = deblur.psf.gaussian(9, 1.5)
    g = deblur.degrade(scene, psf, boundary="unknown", noise=noise, seed=1)
    blur = Blur(psf, g.shape, "unknown")
    return blur, g, scene[blur.crop]


def test_a_simulation_has_the_noise_and_the_bias():
    # Bounds that are never met: the answer is linear, and its error in the mean can be written down.
    rng = np.random.default_rng(0)
    blur, lam, noise = Blur(PSFS["asymmetric"], (9, 10), "zero"), 0.05, 0.02
    g = rng.random(blur.image_shape)
    found = posterior_std(blur, lam, noise=noise, image=g, regularizer="gradient", bounds=(-1e3, 1e3), probes=60)
    assert found.method == "simulated"
    h, prior = blur.to_dense(), regularizer_matrix("gradient", blur.scene_shape, False)

    def inverse(lam):
        return np.linalg.solve(h.T @ h + lam * prior, h.T)

    truth = inverse(0.5 * lam) @ g.ravel()
    bias = inverse(lam) @ (h @ truth) - truth
    square = (bias**2 + noise**2 * (inverse(lam) ** 2).sum(axis=1)).reshape(blur.scene_shape)
    local, w = smoothed(square), WHOLE
    expected = 1.25 * np.sqrt(local ** (1 - w) * local[blur.crop].mean() ** w)
    assert abs((found.std / expected).mean() - 1) <= 0.02
    assert (np.abs(found.std - expected) <= 5 * found.standard_error).all()


@pytest.mark.parametrize("regularizer", ["tv", "tv2"])
def test_the_truth_lies_within_two_deviations(regularizer):
    blur, g, truth = photograph()
    restored = deblur.solve(g, blur.psf, method=regularizer, boundary="unknown", check=False)
    found = posterior_std(blur, restored.lam, image=g, regularizer=regularizer)
    assert found.noise_source == "estimated"
    assert not found.exact
    assert 0.88 <= (abs(restored.image - truth) <= 2 * found.std).mean() <= 0.99
    # It says where: errors are larger where it says so.
    large = found.std > np.median(found.std)
    errors = (restored.image - truth) ** 2
    assert errors[large].mean() >= 2 * errors[~large].mean()


def test_more_noise_makes_larger_deviations():
    blur, g, _ = photograph()
    a, b = (posterior_std(blur, 1e-3, noise=s, image=g, regularizer="tv", seed=2).std for s in (0.005, 0.05))
    assert b.mean() >= 1.5 * a.mean()


def test_hidden_pixels_do_not_enter_the_simulation():
    blur, g, _ = photograph()
    weights = np.ones(g.shape)
    weights[20:26, 30:40] = 0
    spoiled = np.where(weights > 0, g, 7.0)
    found, other, seen = (
        posterior_std(blur, 1e-3, noise=0.01, image=x, regularizer="tv", weights=w).std
        for x, w in ((g, weights), (spoiled, weights), (g, None))
    )
    np.testing.assert_allclose(found, other, rtol=1e-6)
    assert found[22:24, 34:36].mean() > 1.1 * seen[22:24, 34:36].mean()


def test_a_simulation_is_reproducible_and_counted(xp):
    blur, g, _ = photograph()
    seen = []
    said = {"noise": 0.01, "image": xp.asarray(g), "regularizer": "tv", "callback": seen.append}
    a, b, c = (asnumpy(posterior_std(blur, 1e-3, seed=s, **said).std) for s in (3, 3, 4))
    np.testing.assert_allclose(a, b, rtol=1e-4)
    assert np.abs(a / c - 1).max() > 1e-3
    assert seen == 3 * [1, 2, 3, 4]

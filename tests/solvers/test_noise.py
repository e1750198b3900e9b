"""The level of the noise, estimated from images whose noise is known."""

import math
from functools import reduce
from io import BytesIO

import numpy as np
import pytest
import scipy
from PIL import Image
from refusals import refused
from scipy.ndimage import gaussian_filter

from deblur import Blur, data, metrics, psf, solve
from deblur.degradation import degrade
from deblur.image import linear_light, srgb
from deblur.psf import PSFEstimate, PSFStatus
from deblur.tuning import NoiseModel, estimate_noise, estimate_noise_model, noise_level, psf_error


@pytest.mark.parametrize("shape", [(64, 64), (127, 90), (300, 40)])
def test_the_noise_of_pure_noise(shape, rng):
    estimates = [estimate_noise(0.5 + 0.03 * rng.standard_normal(shape)) for _ in range(40)]
    assert abs(np.mean(estimates) / 0.03 - 1) <= 0.05
    assert np.std(estimates) / 0.03 <= 0.05


def test_the_noise_is_found_under_a_blurred_picture(rng):
    blurred = degrade(data.load("camera")[100:356, 100:356], psf.gaussian(9, 1.5), boundary="reflect")
    for sigma in (0.002, 0.02):
        g = blurred + sigma * rng.standard_normal(blurred.shape)
        assert abs(estimate_noise(g) / sigma - 1) <= 0.1
        assert abs(estimate_noise(g + np.linspace(0, 3, 256)) / sigma - 1) <= 0.1  # a ramp is no noise


@pytest.mark.parametrize("unit", [7, 1e-200, 1e200])
def test_the_noise_estimate_scales_and_takes_stacks(xp, rng, unit):
    g = rng.standard_normal((2, 60, 70))
    one = [estimate_noise(xp.asarray(frame)) for frame in g]
    np.testing.assert_allclose(estimate_noise(xp.asarray(unit * g)), unit * np.hypot(*one) / np.sqrt(2), rtol=1e-12)
    small = rng.random((8, 12))  # of one brightness
    models = np.array([estimate_noise_model(xp.asarray(by * small)) for by in (1, unit)])[:, :2]
    np.testing.assert_allclose(models[1], unit * models[0], rtol=1e-12)


def test_texture_does_not_hide_the_quiet_part_of_a_picture(rng):
    g = 0.01 * rng.standard_normal((240, 240))
    g[:180] += rng.random((180, 240))  # the noise of which is 0.29
    assert abs(estimate_noise(g) / 0.01 - 1) <= 0.15


@pytest.mark.parametrize(("name", "kernel"), [("brick", psf.disk(7)), ("camera", psf.disk(7)), ("camera", psf.box(4))])
def test_the_psf_tells_noise_from_texture(name, kernel):
    g = degrade(data.load(name), kernel, noise=1e-3, boundary="unknown", seed=1)
    assert max(abs(estimate_noise(g, kernel) / 1e-3 - 1), 10 * psf_error(g, kernel)[0]) <= 0.1


def test_noise_at_the_zeros_of_a_psf_is_found_under_texture_everywhere(rng):
    kernel, texture = psf.motion(15, 30), gaussian_filter(rng.standard_normal((300, 300)), 0.6)
    g = degrade(0.5 + 0.2 * texture / texture.std(), kernel, noise=1e-3, boundary="unknown", seed=1)
    alone, wrong, right = (estimate_noise(g, h) for h in (None, kernel[::-1], kernel))
    assert right == pytest.approx(1e-3, rel=0.1)
    assert min(alone, 1.25 * wrong) >= 1.5e-3  # the zeros of a wrong PSF show the texture


def test_clipped_noise_is_not_taken_for_little(rng):
    g = np.clip(0.02 + 0.03 * rng.standard_normal((256, 256)), 0, 1)
    g[:, 100:] = np.clip(0.5 + 0.03 * rng.standard_normal((256, 156)), 0, 1)
    assert abs(estimate_noise(g) / 0.03 - 1) <= 0.1


def test_the_noise_of_a_sharpened_picture_is_refused(rng):
    g = 0.05 * rng.standard_normal((256, 256)) + 0.5
    sharp = g + 2 * (g - gaussian_filter(g, 1.0))
    refused(ValueError, "sharpened", estimate_noise, sharp)
    assert noise_level(sharp) >= 2 * 0.05  # for what needs no more than its size
    assert solve(sharp, psf.gaussian(7, 1.2)).status.ok


@pytest.mark.parametrize(("gain", "read"), [(1 / 100, 0.005), (1 / 1000, 0.02), (0.0, 0.02)])
def test_noise_that_grows_with_the_light_is_found_as_that(gain, read, rng):
    clean = degrade(data.load("camera"), psf.disk(7), boundary="unknown").clip(0, None)
    light = rng.poisson(clean / gain) * gain if gain else clean
    g = light + read * rng.standard_normal(clean.shape)
    model = estimate_noise_model(g)
    for value in np.quantile(clean, [0.1, 0.5, 0.9]):
        found, true = (math.sqrt(a * value + b * b) for a, b in (model[:2], (gain, read)))
        assert abs(found / true - 1) <= 0.1
    even = (g - clean) * np.sqrt(model.weights(g))
    dark, bright = even[clean < np.quantile(clean, 0.2)], even[clean > np.quantile(clean, 0.8)]
    assert abs(dark.std() / bright.std() - 1) <= 0.15
    assert model.weights(g).mean() == pytest.approx(1)


def test_the_noise_model_does_not_depend_on_the_places_of_equally_bright_areas(rng):
    counts = rng.poisson(0.02, (96, 128)) / 255
    np.testing.assert_allclose(estimate_noise_model(counts[::-1, ::-1]), estimate_noise_model(counts), rtol=1e-9)


def test_an_image_without_noise_has_none():
    assert estimate_noise(np.full((40, 40), 0.3)) <= 1e-15
    refused(ValueError, "4 x 4", estimate_noise, np.ones((3, 50)))


def test_the_error_of_a_psf_is_read_off_a_blurred_picture():
    kernel, ratios = psf.disk(9), []
    true = kernel + 0.06 / kernel.size**0.5 * np.random.default_rng(0).standard_normal(kernel.shape)
    true /= true.sum()
    for name in ("camera", "brick", "text"):
        exact, g = (degrade(data.load(name), h, noise=5e-4, boundary="unknown") for h in (kernel, true))
        assert psf_error(exact, kernel)[0] <= 0.004
        found, uncertainty = psf_error(g, kernel)
        ratios.append(found / np.linalg.norm(true - kernel))
        assert uncertainty <= 0.2 * found
        assert psf_error(1e-40 * g, 3 * kernel)[0] == pytest.approx(found, rel=1e-4)
        assert 1 / 1.5 <= psf_error(exact, true)[0] / np.linalg.norm(true - kernel) <= 1.5  # of a measured PSF
    assert abs(math.log(np.median(ratios))) <= math.log(1.8)


@pytest.mark.parametrize("name", ["camera", "cat"])
def test_noise_that_was_resampled_is_no_error_of_the_psf(name, rng):
    kernel, sharp = psf.camera_shake(17, 3), data.load(name)
    clean = degrade(sharp.mean(axis=-1) if sharp.ndim == 3 else sharp, kernel, boundary="unknown")
    noise = gaussian_filter(rng.standard_normal(clean.shape), 0.35)
    assert psf_error(clean + 0.005 / noise.std() * noise, kernel)[0] <= 0.01


@pytest.mark.parametrize("g", [np.full((128, 128), 0.3), np.ones((24, 200)), np.zeros((99, 99))])
def test_pictures_too_small_or_too_flat_show_no_error_of_a_psf(g):
    assert psf_error(g, psf.disk(9)) == (0.0, math.inf)


def test_an_error_of_the_psf_is_added_to_lambda(rng):
    kernel = psf.disk(9)
    g = degrade(data.load("camera")[200:360, 200:360], kernel, noise=1e-3, boundary="unknown", seed=1)
    read, exact, wrong = (solve(g, 2 * kernel, psf_error=e) for e in (None, 0, 0.1))
    measured, rough = (solve(g, PSFEstimate(kernel, 0.02, s, "")) for s in (PSFStatus.MEASURED, PSFStatus.ROUGH))
    assert read.lam == exact.lam == pytest.approx(4 * rough.lam)
    added = measured.lam - rough.lam, wrong.lam - exact.lam
    assert added == pytest.approx((4e-4 * (kernel**2).sum(), 0.04), rel=1e-6)
    assert NoiseModel(0.0, 1e-3, psf_error=0.012, uncertainty=0.002, left=1e-2).lam <= 0.012**2  # no more than it is
    assert "error of the PSF 0.1 of its sum (given)" in str(wrong)


@pytest.mark.parametrize("shape", [(400,), (20, 30, 30), (30, 25)])
def test_a_given_error_of_the_psf_leaves_what_such_errors_leave(rng, shape):
    """Also where none can be estimated: lines, volumes and small images."""
    f = np.kron(rng.random(np.floor_divide(shape, 5)), np.ones([5] * len(shape)))
    kernel = reduce(np.multiply.outer, [np.array([1, 3, 4, 3, 1]) / 12] * len(shape))
    g = Blur(kernel, shape, "reflect").forward(f) + 1e-3 * rng.standard_normal(shape)
    exact, wrong = (solve(g, kernel, psf_error=e, method="tv", boundary="reflect") for e in (0, 0.05))
    errors = rng.standard_normal((30, *kernel.shape))
    left = [np.fft.fftn(scipy.signal.convolve(f, e / np.linalg.norm(e), "valid")) for e in errors]
    fine = sum(np.ix_(*[np.fft.fftfreq(n) ** 2 for n in left[0].shape])) > 0.1**2
    expected = 0.05 * np.sqrt(np.mean(np.abs(left) ** 2 * fine) / fine.size)
    assert 0.6 < wrong.problem.noise.left / expected < 1.5
    assert wrong.lam > 3 * exact.lam


def test_where_the_psf_is_wrong_collaborative_filtering_does_not_fall_below_its_pilot():
    kernel, sharp = psf.camera_shake(15, 3), data.load("camera")[100:260, 200:360]
    true = kernel + 0.12 / kernel.size**0.5 * np.random.default_rng(0).standard_normal(kernel.shape)
    g = degrade(sharp, true / true.sum(), noise=4e-4, boundary="unknown", seed=1)
    images = (solve(g, kernel, method=method, check=False).image for method in ("collaborative", "tv"))
    assert np.subtract(*(metrics.psnr(sharp[7:-7, 7:-7], image) for image in images)) >= 0


@pytest.mark.parametrize(("noise", "levels"), [(1e-4, 1e9), (0, 255)], ids=["real numbers", "8 bit"])
def test_texture_without_noise_is_no_photon_noise(noise, levels):
    g = degrade(data.load("brick")[:200, :200], psf.camera_shake(15, 3), noise=noise, boundary="unknown", seed=1)
    model = solve(np.rint(levels * g) / levels, psf.camera_shake(15, 3), method="tv").problem.noise
    assert (model.gain, model.read >= 0.9 / levels / math.sqrt(12)) == (0, True)


NIGHTS = ("tv", psf.disk(7), 0), ("collaborative", psf.disk(7), 0), ("tv", psf.motion(11, 30), 1)  # ε is read, or 0


@pytest.mark.parametrize(("method", "kernel", "seed"), [*NIGHTS, ("richardson-lucy", psf.disk(11), 0)])
def test_lamps_in_numbers_not_proportional_to_light_do_not_spoil_the_rest(method, kernel, seed):
    sharp, (rows, cols) = 0.3 * linear_light(data.load("camera")[:166, :166]), np.mgrid[:166, :166]
    rng = np.random.default_rng(seed)
    for _ in range(8):
        row, col, radius = rng.uniform(0, 166), rng.uniform(0, 166), rng.uniform(1.5, 4)
        sharp[(rows - row) ** 2 + (cols - col) ** 2 <= radius**2] = np.exp(rng.uniform(np.log(0.5), 0))
    g = srgb(degrade(sharp, kernel, noise=0.002, boundary="unknown", seed=1).clip(0, 1))
    result = solve(np.rint(255 * g).astype(np.uint8), kernel, method=method)
    truth = srgb(sharp)[Blur(kernel, g.shape, "unknown").crop]
    # Richardson-Lucy knows of an error of the PSF only: this scene ends 0.8 dB below its input (others by up to 7).
    assert metrics.psnr(truth, result.image.clip(0, 1)) >= metrics.psnr(truth, g) - (method == "richardson-lucy")
    assert ("amplify the error of the PSF" if method == "richardson-lucy" else "proportional to light") in str(result)


def test_richardson_lucy_stops_before_it_fits_an_error_of_the_psf():
    kernel, sharp = psf.disk(9), data.load("camera")[100:260, 200:360]
    true = kernel + 0.1 * kernel.max() * np.random.default_rng(1).standard_normal(kernel.shape) * (kernel > 0)
    g = np.rint(255 * degrade(sharp, true / true.sum(), boundary="unknown")).astype(np.uint8)
    stopped, longer = (
        metrics.psnr(sharp[4:-4, 4:-4], solve(g, kernel, method="richardson-lucy", check=False, **o).image)
        for o in ({}, {"rtol": 1e-9, "max_iterations": 300})
    )
    assert stopped >= longer + 2


@pytest.mark.parametrize(
    ("name", "at", "method"),
    [("clock", 60, "richardson-lucy"), ("camera", 100, "tv"), ("brick", 0, "tv"), ("brick", 0, "auto")],
)
def test_noise_without_fine_frequencies_is_distinguished_from_texture(name, at, method):
    """The noise of a JPEG, where the PSF has no zeros at which it would show; a texture's power in few frequencies."""
    sharp, kernel, stored = data.load(name)[at : at + 160, at : at + 160], psf.gaussian(9, 2.5), BytesIO()
    g = np.rint(255 * degrade(sharp, kernel, boundary="unknown")).astype(np.uint8)
    Image.fromarray(g).save(stored, "JPEG", quality=70)
    g = np.asarray(Image.open(stored))
    ours = solve(g, kernel, method=method)
    options = [{"lam": ours.lam * 4.0**n} for n in (-2, -1, 1, 2)] if ours.lam else [{"max_iterations": 8}]
    others = (solve(g, kernel, method=method, check=False, **o).image for o in options)
    found, *rest = (metrics.psnr(sharp[4:-4, 4:-4], image) for image in (ours.image, g / 255, *others))
    assert found >= max(rest) - 0.3


def test_photon_noise_is_weighed_where_the_data_term_is_left_alone(rng):
    kernel, sharp = psf.disk(13), data.load("camera")[60:260, 200:400]
    g = rng.poisson(3000 * degrade(sharp, kernel, boundary="unknown").clip(0, None)) / 3000
    left, counts = (solve(g, kernel, method="tv", **o) for o in ({}, {"data": "poisson"}))
    assert metrics.psnr(sharp[6:-6, 6:-6], left.image) >= metrics.psnr(sharp[6:-6, 6:-6], counts.image) - 0.3
    assert abs(math.log(3000 * left.problem.noise.gain)) <= math.log(1.5)


def test_dark_parts_of_a_line_do_not_hide_its_noise(rng):
    line = np.zeros(400)
    line[180:220] = 5 + 0.5 * rng.standard_normal(40)
    assert 0.3 <= noise_level(line, axes=1) <= 1.2

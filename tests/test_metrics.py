"""The measures against scikit-image and against their own definitions."""

import math

import numpy as np
import pytest
import scipy.ndimage
import skimage.metrics
from hypothesis import given, strategies as st
from refusals import refused

from deblur.metrics import mse, psnr, ssim


@pytest.fixture
def pair(rng):
    truth = rng.random((23, 31))
    return truth, truth + 0.1 * rng.standard_normal(truth.shape)


def test_mse_and_psnr_are_those_of_scikit_image(pair, xp):
    a, b = (xp.asarray(x) for x in pair)
    assert type(mse(a, b)) is float
    assert type(psnr(a, b)) is float
    assert abs(mse(a, b) - skimage.metrics.mean_squared_error(*pair)) <= 1e-16
    for data_range in (1.0, 255):
        expected = skimage.metrics.peak_signal_noise_ratio(*pair, data_range=data_range)
        assert abs(psnr(a, b, data_range=data_range) - expected) <= 1e-12


@given(offset=st.floats(1e-6, 1e3), size=st.integers(1, 40))
def test_a_constant_error_has_its_own_square_as_mse(offset, size):
    a = np.zeros((size, 3))
    assert math.isclose(mse(a, a + offset), offset**2, rel_tol=1e-14)
    assert math.isclose(psnr(a, a + offset), -20 * math.log10(offset), rel_tol=1e-12, abs_tol=1e-10)


def test_integers_count_on_the_unit_scale(rng):
    a = rng.integers(0, 256, (17, 19), np.uint8)
    b = rng.integers(0, 256, (17, 19), np.uint8)
    expected = skimage.metrics.mean_squared_error(a, b) / 255**2  # no wrap-around at 0
    assert math.isclose(mse(a, b), expected, rel_tol=1e-12)
    assert math.isclose(mse(a, b / 255), expected, rel_tol=1e-12)
    assert math.isclose(psnr(a, b), skimage.metrics.peak_signal_noise_ratio(a, b), rel_tol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_short_floats_are_squared_and_summed_in_double(dtype):
    a, b = np.zeros((50, 60), dtype), np.full((50, 60), 1e-3, dtype)
    assert math.isclose(mse(a, b), float(b[0, 0]) ** 2, rel_tol=1e-13)


def test_equal_images(pair):
    a, _ = pair
    assert mse(a, a) == 0
    assert psnr(a, a) == math.inf
    assert ssim(a, a) == pytest.approx(1, abs=1e-12)


def test_ssim_is_that_of_its_authors(pair, xp):
    # Written down from the paper: Gaussian window, population moments, borders of half a window left out.
    a, b = pair

    def mean(x):
        return scipy.ndimage.gaussian_filter(x, 1.5, radius=5)

    c1, c2 = 0.01**2, 0.03**2
    va, vb, cov = mean(a * a) - mean(a) ** 2, mean(b * b) - mean(b) ** 2, mean(a * b) - mean(a) * mean(b)
    s = (2 * mean(a) * mean(b) + c1) * (2 * cov + c2)
    s /= (mean(a) ** 2 + mean(b) ** 2 + c1) * (va + vb + c2)
    value = ssim(xp.asarray(a), xp.asarray(b))
    assert type(value) is float
    assert abs(value - s[5:-5, 5:-5].mean()) <= 1e-12
    assert abs(ssim(a * 255, b * 255, data_range=255) - value) <= 1e-12


def test_ssim_of_colours_is_the_mean_over_them(rng):
    a = rng.random((15, 16, 3))
    b = a + 0.2 * rng.random(a.shape)
    expected = np.mean([ssim(a[..., c], b[..., c]) for c in range(3)])
    for axis in (-1, 2):
        assert abs(ssim(a, b, channel_axis=axis) - expected) <= 1e-12
    assert abs(ssim(np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0), channel_axis=0) - expected) <= 1e-12


@pytest.mark.parametrize("measure", [mse, psnr, ssim])
def test_images_that_cannot_be_compared_are_refused(measure):
    a = np.ones((16, 16))
    for other in (a[:, :-1], a[:, :1]):  # the second would broadcast
        refused(ValueError, "different shapes", measure, a, other)
    refused(ValueError, "no pixels", measure, a[:0], a[:0])
    for value in (np.nan, np.inf):
        bad = a.copy()
        bad[3, 4] = value
        refused(ValueError, r"image holds 1 value.*\(3, 4\)", measure, a, bad)
        refused(ValueError, "truth holds 1 value", measure, bad, a)


@pytest.mark.parametrize("data_range", [0, -1, math.nan, math.inf, "x"])
@pytest.mark.parametrize("measure", [psnr, ssim])
def test_data_range_must_be_one(measure, data_range):
    a = np.ones((16, 16))
    refused(ValueError, "data_range", measure, a, a, data_range=data_range)


@pytest.mark.parametrize(
    ("shape", "axis", "words"),
    [
        ((10, 30), None, "11 pixels"),
        ((30, 30, 3), None, "channel_axis=-1"),
        ((30, 30, 3), 0, "11 pixels"),
        ((30, 30), 2, "is not an axis"),
        ((30, 30), -3, "is not an axis"),
        ((30,), 0, "11 pixels"),
    ],
)
def test_ssim_needs_room_for_its_window(shape, axis, words):
    refused(ValueError, words, ssim, np.ones(shape), np.ones(shape), channel_axis=axis)


@pytest.mark.gpu
def test_mixed_sides_are_refused(cupy):
    a = np.ones((4, 4))
    refused(TypeError, "mixed", mse, a, cupy.asarray(a))


@pytest.mark.parametrize("power", [-600, 600])
def test_the_unit_of_both_images_does_not_matter(pair, power):
    unit = 2.0**power
    for measure in (psnr, ssim):
        found = measure(*(np.float64(a) * unit for a in pair), data_range=unit)
        assert found == pytest.approx(measure(*pair), rel=1e-12)
    assert mse(np.ones(3) * 1e200, np.zeros(3)) == np.inf

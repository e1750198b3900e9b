"""Blur against SciPy, noise against its own statistics."""

import math

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings, strategies as st
from refusals import refused

from deblur import BOUNDARIES, psf
from deblur.degradation import NOISES, degrade
from deblur.device import asnumpy

LOPSIDED = np.array([[1.0, 2, 3, 4], [0, 5, 1, 0], [2, 0, 0, 1]]) / 19


@given(seed=st.integers(0, 999))
@settings(max_examples=30)
def test_zero_and_unknown_boundaries_are_scipys_same_and_valid(seed):
    rng = np.random.default_rng(seed)
    (rows, cols), (m, n) = rng.integers(5, 21, 2), rng.integers(1, 6, 2)
    f, h = rng.random((rows, cols)), rng.random((m, n))
    assert np.abs(degrade(f, h) - scipy.signal.convolve2d(f, h, "same")).max() <= 1e-12
    if rows - m + 1 >= m and cols - n + 1 >= n:  # Blur wants an image no smaller than the PSF
        assert np.abs(degrade(f, h, boundary="unknown") - scipy.signal.convolve2d(f, h, "valid")).max() <= 1e-12


@pytest.mark.parametrize(("boundary", "mode"), [("periodic", "wrap"), ("reflect", "symm")])
def test_other_boundaries_are_scipys_too(rng, boundary, mode):
    f = rng.random((17, 19))
    expected = scipy.signal.convolve2d(f, LOPSIDED, "same", boundary=mode)
    assert np.abs(degrade(f, LOPSIDED, boundary=boundary) - expected).max() <= 1e-13


def test_origin_moves_the_image(rng):
    f = rng.random((9, 11))
    moved = degrade(f, psf.delta(3), boundary="periodic", origin=(0, 1))
    assert np.abs(moved - np.roll(f, 1, axis=0)).max() <= 1e-14


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize(("of", "axis"), [("channel", 0), ("channel", -1), ("stack", 0), ("stack", 1), ("stack", 2)])
def test_channels_and_frames_are_blurred_one_by_one(rng, boundary, of, axis):
    f = rng.random((3, 17, 19))
    expected = np.stack([degrade(channel, LOPSIDED, boundary=boundary) for channel in f])
    got = degrade(np.moveaxis(f, 0, axis), LOPSIDED, boundary=boundary, **{f"{of}_axis": axis})
    assert np.abs(np.moveaxis(got, axis, 0) - expected).max() <= 1e-14


@pytest.mark.parametrize("kind", NOISES)
def test_channels_have_noise_of_their_own_and_the_image_is_left_alone(kind):
    f = np.full((40, 40, 2), 0.5)
    g = degrade(f, psf.delta(1), noise=kind, level=0.5, channel_axis=-1, seed=0)
    assert (g[..., 0] != g[..., 1]).mean() > 0.2
    assert (f == 0.5).all()


@pytest.mark.parametrize(
    ("dtype", "expected"), [(np.float32, np.float32), (np.float16, np.float32), (np.float64, np.float64)]
)
@pytest.mark.parametrize("kind", [None, *NOISES])
def test_dtypes(dtype, expected, kind):
    noise = {} if kind is None else {"noise": kind, "level": 0.5}
    f = np.full((9, 10), 0.5, dtype)
    for boundary in BOUNDARIES:
        assert degrade(f, psf.box(3), boundary=boundary, seed=0, **noise).dtype == expected


def test_integers_are_scaled():
    f = np.full((6, 7), 51, np.uint8)
    np.testing.assert_allclose(degrade(f, psf.delta(1)), np.full((6, 7), 0.2), rtol=1e-14)


# -- noise -----------------------------------------------------------------------------------

N = 300


def noise_of(kind, level, value=0.5, seed=1):
    return degrade(np.full((N, N), value), psf.delta(1), noise=kind, level=level, seed=seed)


def test_gaussian_noise_has_its_deviation_and_a_number_means_it():
    g = noise_of("gaussian", 0.1)
    # Five standard errors of the mean and of the deviation.
    assert abs(g.mean() - 0.5) <= 5 * 0.1 / N
    assert abs(g.std() - 0.1) <= 5 * 0.1 / (N * math.sqrt(2))
    assert abs(np.mean(np.abs(g - 0.5) > 0.1) - math.erfc(math.sqrt(0.5))) <= 5 * 0.5 / N
    np.testing.assert_array_equal(degrade(np.full((N, N), 0.5), psf.delta(1), noise=0.1, seed=1), g)


def test_no_noise_by_default():
    f = np.full((N, N), 0.5)
    for noise in ({}, {"noise": 0}, {"noise": 0.0}, {"noise": "gaussian", "level": 0}):
        assert np.abs(degrade(f, psf.delta(1), **noise) - f).max() <= 1e-15


@pytest.mark.parametrize("density", [0.0, 0.02, 0.5, 1.0])
def test_salt_and_pepper_hits_the_fraction_asked_for_half_and_half(density):
    g = noise_of("salt-pepper", density)
    for value in (0.0, 1.0):
        assert abs(np.mean(g == value) - density / 2) <= 5 * math.sqrt(max(density, 1e-12) / 2) / N
    assert np.abs(g[(g != 0) & (g != 1)] - 0.5).max(initial=0) <= 1e-15


@pytest.mark.parametrize(("photons", "value"), [(400, 0.5), (5, 0.5), (20, 3.0)])
def test_poisson_noise_has_the_mean_and_variance_of_counting(photons, value):
    counts = noise_of("poisson", photons, value) * photons
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)
    mean = value * photons
    assert abs(counts.mean() - mean) <= 5 * math.sqrt(mean) / N
    # The variance of a sample variance of Poisson counts is (2 m² + m) / n.
    assert abs(counts.var() - mean) <= 5 * math.sqrt(2 * mean**2 + mean) / N


def test_poisson_noise_on_black_is_black():
    assert not noise_of("poisson", 100, 0.0).any()
    f = scipy.signal.unit_impulse((40, 40), "mid")  # blurred through the FFT, the rest is rounding of either sign
    assert degrade(f, psf.gaussian(5, 1.0), noise="poisson", level=100, seed=0).min() == 0


def test_noise_comes_after_the_blur():
    g = degrade(np.full((N, N), 0.5), psf.box(5), noise=0.1, boundary="periodic", seed=1)
    assert abs(g.std() - 0.1) <= 5 * 0.1 / (N * math.sqrt(2))


@pytest.mark.parametrize("kind", NOISES)
def test_the_seed_decides(kind):
    first = noise_of(kind, 0.3, seed=7)
    np.testing.assert_array_equal(first, noise_of(kind, 0.3, seed=7))
    np.testing.assert_array_equal(first, noise_of(kind, 0.3, seed=np.random.default_rng(7)))
    assert (first != noise_of(kind, 0.3, seed=8)).any()
    assert (noise_of(kind, 0.3, seed=None) != noise_of(kind, 0.3, seed=None)).any()
    rng = np.random.default_rng(7)  # a generator goes on
    assert (noise_of(kind, 0.3, seed=rng) != noise_of(kind, 0.3, seed=rng)).any()


@pytest.mark.parametrize("kind", NOISES)
def test_the_same_picture_on_either_side(xp, kind):
    f = np.linspace(0, 1, 17 * 19).reshape(17, 19)
    options = {"noise": kind, "level": 0.3, "boundary": "reflect", "seed": 3}
    for h in (psf.disk(5), xp.asarray(psf.disk(5))):
        g = degrade(xp.asarray(f), h, **options)
        assert type(g) is xp.ndarray
        # A count may fall on the other side of a rounding error; nothing else may differ.
        differs = np.abs(asnumpy(g) - degrade(f, psf.disk(5), **options)) > 1e-12
        assert differs.sum() <= (2 if kind == "poisson" else 0)


# -- what is refused -------------------------------------------------------------------------

F = np.full((12, 13), 0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": "speckle", "level": 1}, "gaussian, salt-pepper, poisson"),
        ({"noise": "gaussian"}, "needs level"),
        ({"noise": 0.1, "level": 0.1}, "given by name"),
        ({"noise": -0.1}, "number >= 0"),
        ({"noise": "gaussian", "level": math.inf}, "finite"),
        ({"noise": "salt-pepper", "level": 1.5}, "between 0 and 1"),
        ({"noise": "poisson", "level": 0}, "photons"),
        ({"boundary": "mirror"}, "boundary"),
        ({"channel_axis": -1}, "1 axis named there must be two left"),
        ({"origin": (5, 5)}, "origin"),
    ],
)
def test_bad_options(options, words):
    refused(ValueError, words, degrade, F, psf.box(3), **options)


@pytest.mark.parametrize(
    ("image", "axis", "words"),
    [
        (np.ones(5), None, "two left, rows and columns"),
        (np.ones((8, 9, 4)), None, "channel_axis=-1"),
        (np.ones((0, 9)), None, "no pixels"),
        (np.full((8, 9), np.nan), None, "NaN"),
        (np.ones((8, 9, 3)), 3, "is not an axis"),
    ],
)
def test_bad_images(image, axis, words):
    refused(ValueError, words, degrade, image, psf.box(3), channel_axis=axis)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_bad_psfs(boundary):
    refused(ValueError, "larger than the blurred image", degrade, F, psf.box((13, 3)), boundary=boundary)
    for h in (np.ones(3), np.full((3, 3), np.nan), np.zeros((3, 3))):
        refused(ValueError, "(?i)psf", degrade, F, h, boundary=boundary)


def test_poisson_noise_needs_light():
    refused(ValueError, "counts light", degrade, F, np.array([[-1.0, 1.5, -1.0]]), noise="poisson", level=10)
    refused(ValueError, "counts light", degrade, F - 1, psf.box(3), noise="poisson", level=10)

"""The denoisers by name: what they keep, what they take away, and what is refused."""

import pickle
from importlib.util import find_spec

import numpy as np
import pytest
from problems import problem_of, solve
from refusals import refused

import deblur
from deblur.denoise import denoisers
from deblur.device import asnumpy
from deblur.operators.blur import Blur

NOISE = 0.05
PRESENT = [n for n in denoisers._TABLE if n not in denoisers._PACKAGES or find_spec(denoisers._PACKAGES[n][0])]


def picture(colour=False):
    image = deblur.data.load("cat")[100:148, 60:116]
    return image if colour else image.mean(axis=-1)


def test_what_needs_no_other_package_is_there():
    assert {"collaborative", "nlm", "tv", "bilateral"} <= set(PRESENT)


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("name", PRESENT)
def test_noise_is_taken_away_and_the_form_is_kept(name, colour, rng):
    truth = picture(colour)
    noisy = truth + NOISE * rng.standard_normal(truth.shape)
    before = noisy.copy()
    found = denoisers.get(name)(noisy, NOISE)
    np.testing.assert_array_equal(noisy, before)
    assert found.shape == noisy.shape
    assert found.dtype == noisy.dtype
    assert ((found - truth) ** 2).mean() < 0.9 * ((noisy - truth) ** 2).mean()


@pytest.mark.parametrize("name", PRESENT)
def test_scale_and_level_do_not_matter(name, rng):
    noisy = picture() + NOISE * rng.standard_normal(picture().shape)
    denoise = denoisers.get(name)
    # The tables and the stopping of some are in single precision or to a tolerance.
    assert abs((denoise(255 * noisy - 300, 255 * NOISE) + 300) / 255 - denoise(noisy, NOISE)).max() <= 2e-3


@pytest.mark.parametrize("name", PRESENT)
def test_no_noise_is_no_change(name):
    image = picture()
    found = denoisers.get(name)(image, 0.0)
    np.testing.assert_array_equal(found, image)
    assert found is not image


@pytest.mark.parametrize("shape", [(1, 1), (7, 30), (17, 19)])
def test_collaborative_of_any_shape(xp, shape, rng):
    noisy = rng.standard_normal(shape)
    found = asnumpy(denoisers.collaborative(xp.asarray(noisy), 1.0))
    assert found.shape == shape
    assert np.isfinite(found).all()
    if min(shape) > 1:
        assert (found**2).mean() < 0.3 * (noisy**2).mean()


def test_collaborative_keeps_float32(rng):
    noisy = (picture() + NOISE * rng.standard_normal(picture().shape)).astype(np.float32)
    assert denoisers.collaborative(noisy, NOISE).dtype == np.float32


def test_the_filter_beats_total_variation_where_a_picture_repeats(rng):
    truth = deblur.data.load("brick")[:64, :64]
    noisy = truth + NOISE * rng.standard_normal(truth.shape)
    errors = {name: ((denoisers.get(name)(noisy, NOISE) - truth) ** 2).mean() for name in ("collaborative", "tv")}
    assert errors["collaborative"] < 0.8 * errors["tv"]


def test_plug_and_play_takes_a_denoiser_by_name():
    truth = picture()
    psf = deblur.psf.gaussian(5, 1.0)
    g = deblur.degrade(truth, psf, noise=0.02, boundary="reflect", seed=0)
    image = deblur.reconstruct(g, psf, 2e-4, method="pnp", denoiser="collaborative", boundary="reflect")
    assert deblur.metrics.psnr(truth, image) > deblur.metrics.psnr(truth, g) + 1


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(denoisers, "find_spec", lambda name: None)
    refused(ImportError, "pip install bm3d", denoisers.get, "bm3d")
    assert denoisers.get("collaborative") is denoisers.collaborative


def test_an_unknown_name_lists_those_known():
    refused(ValueError, "unknown denoiser 'median'; choose one of collaborative, nlm", denoisers.get, "median")


@pytest.mark.parametrize("name", PRESENT)
def test_denoisers_travel_to_workers(name):
    assert pickle.loads(pickle.dumps(denoisers.get(name))) == denoisers.get(name)


@pytest.mark.gpu
def test_a_denoiser_of_the_host_serves_the_gpu(cupy, rng):
    noisy = rng.standard_normal((24, 25))
    found = denoisers.get("tv")(cupy.asarray(noisy), 0.5)
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_allclose(asnumpy(found), denoisers.get("tv")(noisy, 0.5), rtol=1e-12)


def test_the_problem_takes_them(rng):
    blur = Blur(deblur.psf.gaussian(5, 1.0), (20, 21), "zero")
    problem = problem_of(blur, "denoiser", 1e-3, denoiser=denoisers.get("tv"), max_iterations=3)
    assert solve(problem, rng.random((1, 1, 20, 21))).scene.shape == (1, 1, 20, 21)


def test_plug_and_play_loses_nothing_to_one_pass_of_its_denoiser():
    # Hardly blurred and noisy: a schedule that ends too strong is flat here, one that ends too weak keeps the noise.
    truth, psf, noise = deblur.data.load("camera")[100:196, 200:296], deblur.psf.gaussian(3, 0.4), 0.03
    g = deblur.degrade(truth, psf, noise=noise, boundary="reflect", seed=0)
    image = deblur.solve(g, psf, method="pnp", denoiser="collaborative", boundary="reflect", check=False).image
    assert deblur.metrics.psnr(truth, image) >= deblur.metrics.psnr(truth, denoisers.collaborative(g, noise))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(64, 70), (40, 41, 3), (6, 9)])
def test_our_own_denoiser_replayed_is_itself(cupy, rng, shape):
    images = [cupy.asarray(rng.random(shape).astype(np.float32)) for _ in range(5)]
    replayed = denoisers.repeated(denoisers.collaborative, images[0])
    for i, image in enumerate(images):
        sigma = 0.1 / (1 + i)
        wanted = denoisers.collaborative(image, sigma)
        np.testing.assert_array_equal(replayed(image, sigma).get(), wanted.get())
    assert bool((replayed(images[0], 0.0) == images[0]).all())

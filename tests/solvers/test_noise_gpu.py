"""The level of the noise of images on a GPU against that of the same images on the CPU."""

import numpy as np
import pytest

import deblur
from deblur.tuning import estimate_noise_model, noise_level

pytestmark = pytest.mark.gpu


def picture(rng, shape, dtype, clipped):
    """A blurred picture with noise, some of it clipped at either end or at one."""
    scene = np.cumsum(np.cumsum(rng.standard_normal(shape), 0), 1)
    scene = (scene - scene.min()) / np.ptp(scene)
    g = scene + 0.02 * rng.standard_normal(shape)
    low, high = {"no": (None, None), "above": (None, 0.8), "both": (0.2, 0.7)}[clipped]
    return (g if low is high else np.clip(g, low, high)).astype(dtype)


@pytest.mark.parametrize("clipped", ["no", "above", "both"])
@pytest.mark.parametrize("shape", [(4, 9), (13, 17), (57, 40), (128, 131), (1100, 1027), (2300, 2100)])
def test_the_level_is_the_cpus(cupy, rng, shape, clipped, dtype):
    g = picture(rng, shape, dtype, clipped)
    psf = deblur.psf.gaussian(5, 1.1)
    for given in (None, psf):
        wanted, found = noise_level(g, given), noise_level(cupy.asarray(g), given)
        assert found == pytest.approx(wanted, rel=1e-4 if dtype is np.float32 else 1e-9)


def test_the_model_of_photons_is_the_cpus(cupy, rng):
    light = 50 + 40 * np.sin(np.linspace(0, 9, 300))[:, None] * np.cos(np.linspace(0, 7, 280))
    g = rng.poisson(light) + rng.standard_normal(light.shape)
    wanted, found = estimate_noise_model(g), estimate_noise_model(cupy.asarray(g))
    assert tuple(found) == pytest.approx(tuple(wanted), rel=1e-6)

"""The level of the noise, measured on the GPU, against the CPU's, which are NumPy's and SciPy's operations."""

import numpy as np
import pytest

import deblur
from deblur.solvers import noise_gpu
from deblur.tuning import NoiseModel, estimate_noise_model, noise_level

pytestmark = pytest.mark.gpu


def picture(rng, shape, dtype, clipped):
    """A blurred picture with noise, some of it clipped at either end or at one."""
    scene = np.cumsum(np.cumsum(rng.standard_normal(shape), 0), 1)
    scene = (scene - scene.min()) / np.ptp(scene)
    g = scene + 0.02 * rng.standard_normal(shape)
    low, high = {"no": (None, None), "above": (None, 0.8), "both": (0.2, 0.7)}[clipped]
    return (g if low is high else np.clip(g, low, high)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clipped", ["no", "above", "both"])
@pytest.mark.parametrize("shape", [(4, 9), (13, 17), (57, 40), (128, 131), (1100, 1027), (2300, 2100)])
def test_the_level_is_the_cpus(cupy, rng, shape, clipped, dtype):
    g = picture(rng, shape, dtype, clipped)
    psf = deblur.psf.gaussian(5, 1.1)
    for given in (None, psf):
        wanted, found = noise_level(g, given), noise_level(cupy.asarray(g), given)
        assert found == pytest.approx(wanted, rel=1e-4 if dtype is np.float32 else 1e-9)


def test_a_frame_is_taken_as_it_lies(cupy, rng):
    whole = cupy.asarray(picture(rng, (150, 140), np.float32, "above"))
    for part in (whole[3:, 5:], whole[::-1], whole.T, whole[:, ::2]):
        assert noise_level(part) == noise_level(part.copy())


def test_the_model_of_photons_is_the_cpus(cupy, rng):
    light = 50 + 40 * np.sin(np.linspace(0, 9, 300))[:, None] * np.cos(np.linspace(0, 7, 280))
    g = rng.poisson(light) + rng.standard_normal(light.shape)
    wanted, found = estimate_noise_model(g), estimate_noise_model(cupy.asarray(g))
    assert isinstance(found, NoiseModel)
    assert tuple(found) == pytest.approx(tuple(wanted), rel=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (31, 45), (700, 900)])
def test_extremes(cupy, rng, shape):
    for g in (
        rng.integers(-5, 4, shape) / 4.0,
        -1 - rng.random(shape),
        1e-300 + rng.random(shape),
        np.zeros(shape),
    ):
        (low, high), counts = noise_gpu.extremes(cupy.asarray(g))
        assert (low, high) == (g.min(), g.max())
        assert counts == ((g == g.min()).sum(), (g == g.max()).sum())


@pytest.mark.parametrize("count", [1, 2, 31, 1000, 8193, 70001])
def test_the_number_of_a_rank_and_the_median(cupy, rng, count):
    picked = cupy.empty(1)
    for x in (rng.random(count), rng.integers(0, 3, count) * 1.0, np.exp(40 * rng.standard_normal(count))):
        on_gpu = cupy.asarray(x)
        for rank in {0, count // 3, count - 1}:
            noise_gpu._pick(picked, on_gpu, None, None, rank, dtype=np.float64)
            assert float(picked[0]) == np.sort(x)[rank]
        gate = rng.integers(0, 4, count) * 1.0
        gate[rng.integers(count)] = 0
        for most in (0.0, 1.0, 5.0):
            limit = cupy.full(1, most)
            noise_gpu._pick(picked, on_gpu, cupy.asarray(gate), limit, -1, dtype=np.float64)
            assert float(picked[0]) == pytest.approx(np.median(x[gate <= most]), rel=1e-15)

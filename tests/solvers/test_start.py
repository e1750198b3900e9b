"""The prior scene and the continued image, on the CPU and on the GPU."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from deblur.device import asnumpy
from deblur.operators.blur import Blur
from deblur.solvers.start import continued, prior_scene, smoothed

SHAPES = [((7, 7), (5, 4)), ((2, 3, 70, 9), (5, 4)), ((2, 9, 20, 31), (3, 5, 4)), ((90,), (7,))]
ASYMMETRIC = np.array([[1.0, 4.0, 2.0], [0.0, 3.0, 1.0], [0.0, 1.0, 0.5], [0.2, 0.0, 0.0]]) / 12.7


@pytest.mark.parametrize("boundary", ["zero", "unknown"])
@pytest.mark.parametrize("gain", [1.0, 2.5])
def test_the_prior_of_a_constant_is_the_scene_that_made_it(xp, boundary, gain):
    blur = Blur(gain * ASYMMETRIC / ASYMMETRIC.sum(), (17, 19), boundary)
    prior = asnumpy(prior_scene(blur, xp.full((2, 17, 19), 0.4)))
    assert prior.shape == (2, *blur.scene_shape)
    np.testing.assert_allclose(prior, 0.4 / gain, rtol=1e-12)


def test_the_prior_lies_where_the_image_does():
    blur = Blur(ASYMMETRIC, (31, 33), "unknown")
    g = np.zeros((31, 33))
    g[12, 20] = 1
    inside = prior_scene(blur, g, smoothing=1.0)[blur.crop]
    assert np.unravel_index(inside.argmax(), inside.shape) == (12, 20)
    assert prior_scene(blur, g.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(("shape", "psf"), SHAPES)
def test_smoothing_is_a_gaussian(rng, shape, psf):
    for wraps, mode, dtype in ((False, "nearest", np.float32), (True, "wrap", np.float64)):
        g = rng.standard_normal(shape).astype(dtype)
        wanted = gaussian_filter(g, 3.0, mode=mode, axes=range(-len(psf), 0))
        np.testing.assert_allclose(smoothed(g, len(psf), wraps, 3.0), wanted, rtol=0, atol=4 * np.finfo(dtype).eps)


@pytest.mark.gpu
@pytest.mark.parametrize("boundary", ["unknown", "periodic", "reflect"])
@pytest.mark.parametrize(("shape", "psf"), SHAPES)
def test_they_are_the_cpus(cupy, rng, dtype, boundary, shape, psf):
    operator = Blur(rng.random(psf), shape[-len(psf) :], boundary)
    g = rng.standard_normal(shape).astype(dtype)
    for function in (prior_scene, continued):
        wanted, found = function(operator, g), function(operator, cupy.asarray(g))
        assert found.dtype == dtype
        assert found.shape == wanted.shape
        assert abs(found.get() - wanted).max() <= 10 * np.finfo(dtype).eps * abs(wanted).max()


@pytest.mark.gpu
def test_a_part_of_a_larger_image_is_taken_as_it_lies(cupy, rng):
    whole = cupy.asarray(rng.standard_normal((3, 40, 51)))
    operator = Blur(np.ones((3, 3)), (30, 33), "unknown")
    for part in (whole[:, 3:33, 5:38], whole[:, ::-1][:, :30, 10:43], whole[:, 39:9:-1, :33]):
        assert bool((prior_scene(operator, part) == prior_scene(operator, part.copy())).all())

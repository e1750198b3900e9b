"""On a GPU, too, problems, Deblurrers and results pickle, copy and serve threads."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import deblur

PSF = deblur.psf.gaussian(5, 1.0)

pytestmark = pytest.mark.gpu


def frames(cupy, count=4):
    camera = deblur.data.load("camera")
    parts = [camera[40 * i : 40 * i + 24, 200:224] for i in range(count)]
    return [cupy.asarray(deblur.degrade(part, PSF, noise=0.01, seed=i)) for i, part in enumerate(parts)]


@pytest.mark.parametrize(
    "method", ["auto", "cholesky", "gauss-jordan", "pcg", "kronecker", "qr", "tv", "gradient"]
)
def test_it_pickles_and_serves_threads(cupy, method):
    images = frames(cupy)
    restore = deblur.Deblurrer(PSF, (24, 24), 1e-3, method=method, gpu=True, boundary="zero")
    first = restore.solve(images[0])
    for again in (pickle.loads(pickle.dumps(restore)), copy.deepcopy(restore)):
        assert bool((again.solve(images[0]).image == first.image).all())
    result = pickle.loads(pickle.dumps(first))
    assert result.problem == first.problem
    assert bool((copy.deepcopy(first).image == result.image).all())
    expected = [restore(g).get() for g in images]
    with ThreadPoolExecutor(4) as pool:
        for found, one in zip(pool.map(restore, images), expected, strict=True):
            assert np.array_equal(found.get(), one)


def test_an_image_on_the_other_device_is_refused(cupy):
    restore = deblur.Deblurrer(PSF, (24, 24), 1e-3, gpu=True, boundary="zero")
    with pytest.raises(TypeError, match="the cpu and this Deblurrer was set up for the gpu 0"):
        restore(np.zeros((24, 24)))
    with pytest.raises(deblur.NoGPUError, match="there is no GPU 99"):
        deblur.Deblurrer(PSF, (24, 24), 1e-3, gpu=99, boundary="zero")

"""The first scenes on the GPU against the CPU's, which are SciPy's."""

import numpy as np
import pytest

from deblur.operators.blur import Blur
from deblur.solvers.start import continued, prior_scene

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("boundary", ["unknown", "periodic", "reflect"])
@pytest.mark.parametrize("shape", [(31, 44), (2, 3, 70, 9), (7, 7)])
def test_they_are_the_cpus(cupy, rng, dtype, boundary, shape):
    psf = rng.random((5, 4))
    operator = Blur(psf, shape[-2:], boundary)
    g = rng.standard_normal(shape).astype(dtype)
    for function in (prior_scene, continued):
        wanted, found = function(operator, g), function(operator, cupy.asarray(g))
        assert found.dtype == dtype
        assert found.shape == wanted.shape
        assert abs(found.get() - wanted).max() <= 10 * np.finfo(dtype).eps * abs(wanted).max()


def test_a_part_of_a_larger_image_is_taken_as_it_lies(cupy, rng):
    whole = cupy.asarray(rng.standard_normal((3, 40, 51)))
    operator = Blur(np.ones((3, 3)), (30, 33), "unknown")
    for part in (whole[:, 3:33, 5:38], whole[:, ::-1][:, :30, 10:43], whole[:, 39:9:-1, :33]):
        assert bool((prior_scene(operator, part) == prior_scene(operator, part.copy())).all())

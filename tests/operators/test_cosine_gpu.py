"""The cosine and sine transforms of images and volumes against SciPy's."""

from functools import partial

import numpy as np
import pytest
import scipy.fft

from deblur.operators import cosine_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", [(8, 8), (2, 2), (3, 2), (2, 3, 7, 9), (5, 33, 40), (301, 298), (300, 256)])
@pytest.mark.parametrize(
    ("there", "back", "scipys", "axes"),
    [
        (cosine_gpu.dct, cosine_gpu.idct, scipy.fft.dctn, 2),
        (partial(cosine_gpu.dct, axes=3), partial(cosine_gpu.idct, axes=3), scipy.fft.dctn, 3),
        (cosine_gpu.dst, cosine_gpu.dst, partial(scipy.fft.dstn, type=1), 2),
    ],
)
def test_there_and_back_are_scipys(cupy, rng, there, back, scipys, axes, dtype, shape):
    shape = (11, *shape)[-max(axes, len(shape)) :]
    x = rng.standard_normal(shape).astype(dtype)
    by = rng.standard_normal(shape[-axes:]).astype(dtype)
    wanted = scipys(x.astype(np.float64), axes=range(-axes, 0), norm="ortho")
    tolerance = 10 * np.finfo(dtype).eps * np.linalg.norm(x)
    found = there(cupy.asarray(x))
    assert found.dtype == dtype
    assert np.linalg.norm(found.get() - wanted) <= tolerance
    assert np.linalg.norm(back(found).get() - x) <= 2 * tolerance
    times = there(cupy.asarray(x), cupy.asarray(by)).get()
    np.testing.assert_allclose(times, by * found.get(), rtol=1e-5 if dtype == np.float32 else 1e-14)


def test_a_part_of_a_larger_image_is_taken_as_it_lies(cupy, rng):
    whole = cupy.asarray(rng.standard_normal((3, 40, 51)))
    for part in (whole[:, 3:33, 5:38], whole[..., ::-1], whole[:, ::-1, ::2]):
        for transform in (cosine_gpu.dct, cosine_gpu.dst):
            assert bool((transform(part) == transform(part.copy())).all())

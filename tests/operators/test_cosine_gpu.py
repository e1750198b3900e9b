"""The cosine and sine transforms of images by one real transform of theirs, against SciPy's."""

import numpy as np
import pytest
import scipy.fft

from deblur.operators import cosine_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(8, 8), (2, 2), (3, 2), (2, 3, 7, 9), (5, 33, 40), (301, 298)])
def test_there_and_back_are_scipys(cupy, rng, dtype, shape):
    x = rng.standard_normal(shape).astype(dtype)
    by = rng.standard_normal(shape[-2:]).astype(dtype)
    wanted = scipy.fft.dctn(x.astype(np.float64), axes=(-2, -1), norm="ortho")
    tolerance = 10 * np.finfo(dtype).eps * np.linalg.norm(x)
    found = cosine_gpu.dct(cupy.asarray(x))
    assert found.dtype == dtype
    assert np.linalg.norm(found.get() - wanted) <= tolerance
    assert np.linalg.norm(cosine_gpu.idct(found).get() - x) <= 2 * tolerance
    times = cosine_gpu.dct(cupy.asarray(x), cupy.asarray(by)).get()
    np.testing.assert_allclose(times, by * found.get(), rtol=1e-5 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(8, 8), (2, 2), (3, 2), (2, 3, 7, 9), (5, 33, 40), (300, 256)])
def test_the_sine_transform_is_scipys_and_its_own_inverse(cupy, rng, dtype, shape):
    x = rng.standard_normal(shape).astype(dtype)
    by = rng.standard_normal(shape[-2:]).astype(dtype)
    wanted = scipy.fft.dstn(x.astype(np.float64), type=1, axes=(-2, -1), norm="ortho")
    tolerance = 10 * np.finfo(dtype).eps * np.linalg.norm(x)
    found = cosine_gpu.dst(cupy.asarray(x))
    assert found.dtype == dtype
    assert np.linalg.norm(found.get() - wanted) <= tolerance
    assert np.linalg.norm(cosine_gpu.dst(found).get() - x) <= 2 * tolerance
    times = cosine_gpu.dst(cupy.asarray(x), cupy.asarray(by)).get()
    np.testing.assert_allclose(times, by * found.get(), rtol=1e-5 if dtype == np.float32 else 1e-14)


def test_a_part_of_a_larger_image_is_taken_as_it_lies(cupy, rng):
    whole = cupy.asarray(rng.standard_normal((3, 40, 51)))
    for part in (whole[:, 3:33, 5:38], whole[..., ::-1], whole[:, ::-1, ::2]):
        for transform in (cosine_gpu.dct, cosine_gpu.dst):
            assert bool((transform(part) == transform(part.copy())).all())

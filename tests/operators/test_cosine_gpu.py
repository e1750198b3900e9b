"""The cosine and sine transforms of images by one real transform of theirs, against SciPy's."""

from functools import partial

import numpy as np
import pytest
import scipy.fft

from deblur.operators import cosine_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(8, 8), (2, 2), (3, 2), (2, 3, 7, 9), (5, 33, 40), (301, 298), (300, 256)])
@pytest.mark.parametrize(
    ("there", "back", "scipys"),
    [
        (cosine_gpu.dct, cosine_gpu.idct, scipy.fft.dctn),
        (cosine_gpu.dst, cosine_gpu.dst, partial(scipy.fft.dstn, type=1)),
    ],
)
def test_there_and_back_are_scipys(cupy, rng, there, back, scipys, dtype, shape):
    x = rng.standard_normal(shape).astype(dtype)
    by = rng.standard_normal(shape[-2:]).astype(dtype)
    wanted = scipys(x.astype(np.float64), axes=(-2, -1), norm="ortho")
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

"""Method kronecker against the dense answer, and its spectrum against NumPy's SVD."""

import numpy as np
import pytest
from structured import PSFS

from deblur.device import CPU
from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers import kronecker


@pytest.mark.parametrize("name", ["symmetric", "asymmetric", "point-symmetric"])
def test_refuses_what_is_not_separable(name):
    assert "separable" in kronecker.refuses(Problem(Blur(PSFS[name], (9, 8)), 1e-3))


def test_small_singular_values_are_accurate():
    # Through HHᵀ they would be lost below 1e-8.
    blur = Blur(PSFS["binomial"], (12, 12), "zero")
    exact = np.linalg.svd(blur.to_dense(), compute_uv=False)
    values = kronecker.decompose(blur, np.dtype(np.float64), CPU).singular_values
    assert abs(values.min() / exact.min() - 1) <= 1e-8


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(7, 8), (2, 3, 2, 1031), (3, 1, 5), (1, 2, 257, 64), (2, 3)])
def test_fold_and_unfold_on_the_gpu_are_those_of_numpy(rng, cupy, shape, dtype):
    whole = rng.standard_normal(shape).astype(dtype)
    for x in (whole, whole[..., ::-1], whole.swapaxes(-1, -2)):
        for axis in (-1, -2):
            n = x.shape[axis]
            folded = kronecker._fold(x, axis)
            for ours, theirs in zip(kronecker._fold(cupy.asarray(x), axis), folded, strict=True):
                np.testing.assert_array_equal(ours.get(), theirs)
            ours = kronecker._unfold(*map(cupy.asarray, folded), axis, n).get()
            np.testing.assert_array_equal(ours, kronecker._unfold(*folded, axis, n))
            np.testing.assert_allclose(ours, x, rtol=0, atol=4 * np.finfo(dtype).eps * abs(x).max())

"""Method fft against the dense answer, and its spectrum against NumPy's SVD."""

import numpy as np
import pytest
from structured import relative_error, solved

from deblur.errors import SingularMatrixError
from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers import fourier


def test_lambda_zero(rng):
    sharp = np.zeros((3, 3))
    sharp[1, 1], sharp[0, 1] = 1, 0.25  # its transform stays away from zero
    blur = Blur(sharp, (8, 9), "periodic")
    f = rng.standard_normal((1, 8, 9))
    restored, _ = solved(fourier, Problem(blur, 0.0), blur.forward(f))
    assert relative_error(restored, f) <= 1e-12
    with pytest.raises(SingularMatrixError, match="larger λ"):
        fourier.prepare(Problem(Blur(np.full((2, 2), 0.25), (8, 8), "periodic"), 0.0))

"""What Cholesky's routines alone promise; see test_dense for what they share with others."""

import numpy as np
from matrices import spd

from deblur.linalg import cholesky_inverse, cholesky_solve


def test_only_the_lower_triangle_is_read(rng):
    a, l, upper = spd(29, rng), np.tri(29) + np.eye(29), np.triu(rng.standard_normal((29, 29)), 1)  # noqa: E741
    for order in "CF":
        other = np.asarray(np.tril(a) + upper, order=order)
        np.testing.assert_allclose(cholesky_inverse(other), cholesky_inverse(a), rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(
            cholesky_solve(np.asarray(l + upper, order=order), upper), cholesky_solve(l, upper)
        )

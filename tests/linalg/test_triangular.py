"""Triangular inverse and solution against their defining equations and SciPy."""

import numpy as np
import pytest
import scipy.linalg
from matrices import error

from deblur.device import asnumpy
from deblur.linalg import gets, solve_triangular


def triangle(n, rng, lower=True):
    """A well-conditioned triangular matrix, and the same with garbage in all that must not be read."""
    exact = np.tril(rng.standard_normal((n, n)) / max(n, 1) ** 0.5, -1)
    exact[np.diag_indices(n)] = rng.uniform(1, 2, n)
    garbled = exact + np.triu(rng.standard_normal((n, n)), 1)
    return (exact, garbled) if lower else (exact.T.copy(), garbled.T.copy())


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [1, 2, 17, 131, 331])
def test_each_triangle_is_inverted_and_solved_and_nothing_else_read(n, lower, rng, xp):
    exact, garbled = triangle(n, rng, lower)
    b = rng.standard_normal((n, 3))
    for order in "CF":
        given = xp.asarray(garbled, order=order)
        q = asnumpy(gets(given, lower=lower))
        assert not (np.triu(q, 1) if lower else np.tril(q, -1)).any()
        assert error(exact, q, np.eye(n)) <= 1
        for trans in (False, True):
            for rhs in (b, b[:, 0], np.asfortranarray(b)):
                x = solve_triangular(given, xp.asarray(rhs), lower=lower, trans=trans)
                expected = scipy.linalg.solve_triangular(exact, rhs, lower=lower, trans=trans)
                np.testing.assert_allclose(asnumpy(x), expected, rtol=1e-10, atol=1e-11)

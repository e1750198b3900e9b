"""Mirroring against NumPy's triangles; what moves on a GPU is tested with the products there."""

import numpy as np
import pytest

from deblur.device import asnumpy
from deblur.linalg.transpose import mirror_lower


@pytest.mark.parametrize("n", [0, 1, 127, 129, 300])
def test_mirroring_makes_symmetric_and_keeps_the_lower_triangle(xp, n, rng):
    a = rng.standard_normal((n, n))
    for order in "CF" if xp is np else "C":
        given = xp.array(a, order=order)
        mirror_lower(given)
        np.testing.assert_array_equal(asnumpy(given), np.tril(a) + np.tril(a, -1).T)

"""Method dct against the dense answer, and its spectrum against NumPy's SVD."""

import numpy as np
import pytest
from structured import PSFS, check_spectrum

from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers import cosine
from deblur.solvers.spectrum import quadrant

SERVED = {"symmetric", "symmetric3", "column", "row", "binomial", "pixel"}


def test_negative_eigenvalues(rng):
    check_spectrum(cosine, Blur(np.array([[0.0, -1, 0], [-1, 2, -1], [0, -1, 0]]), (7, 6), "reflect"), rng)


@pytest.mark.parametrize("name", sorted(set(PSFS) - SERVED))
def test_refuses_less_symmetry(name):
    assert "each axis" in cosine.refuses(Problem(Blur(PSFS[name], (9, 8), "reflect"), 1e-3))


def test_quadrant_drops_a_border_of_zeros_and_looks_at_the_origin():
    h = np.zeros((5, 7))
    h[1:4, 3] = 1, 2, 1
    quarter = quadrant(Blur(h, (9, 9)))
    assert quarter is not None
    assert quarter.tolist() == [[2.0], [1.0]]
    assert quadrant(Blur(h, (9, 9), origin=(2, 2))) is None
    assert quadrant(Blur(np.ones((2, 2)), (9, 9))) is None

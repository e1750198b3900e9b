"""Method dct against the dense answer, and its spectrum against NumPy's SVD."""

import numpy as np
import pytest
from structured import PSFS, check_against_dense, check_float32, check_spectrum, check_stack_is_frames

from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers import cosine
from deblur.solvers.spectrum import quadrant

SHAPES = [(7, 8), (8, 7), (11, 13), (1, 6), (5, 1), (1, 1)]
SERVED = {"symmetric", "symmetric3", "column", "row", "binomial", "pixel"}


def test_equals_the_dense_answer(rng, xp):
    assert check_against_dense(cosine, rng, "reflect", SHAPES, SERVED, xp=xp) >= 40


@pytest.mark.parametrize("name", ["symmetric", "row", "binomial"])
def test_spectrum(rng, name):
    check_spectrum(cosine, Blur(PSFS[name], (7, 10), "reflect"), rng)


def test_negative_eigenvalues(rng):
    sharpen = np.array([[0.0, -1, 0], [-1, 2, -1], [0, -1, 0]])
    check_spectrum(cosine, Blur(sharpen, (7, 6), "reflect"), rng)


def test_stack_is_its_frames(rng):
    check_stack_is_frames(cosine, Problem(Blur(PSFS["symmetric"], (9, 8), "reflect"), 1e-3), rng)


def test_float32(rng):
    check_float32(cosine, Blur(PSFS["symmetric"], (16, 15), "reflect"), rng)


@pytest.mark.parametrize("name", sorted(set(PSFS) - SERVED))
def test_refuses_less_symmetry(name):
    assert "each axis" in cosine.refuses(Problem(Blur(PSFS[name], (9, 8), "reflect"), 1e-3))


def test_refuses_other_boundaries():
    assert "'zero'" in cosine.refuses(Problem(Blur(PSFS["symmetric"], (9, 8), "zero"), 1e-3))


def test_quadrant_drops_a_rim_of_zeros_and_looks_at_the_origin():
    h = np.zeros((5, 7))
    h[1:4, 3] = 1, 2, 1
    quarter = quadrant(Blur(h, (9, 9)))
    assert quarter is not None
    assert quarter.tolist() == [[2.0], [1.0]]
    assert quadrant(Blur(h, (9, 9), origin=(2, 2))) is None
    assert quadrant(Blur(np.ones((2, 2)), (9, 9))) is None

"""Method dst against the dense answer: the zero boundary with a 3 x 3 PSF, and antireflect."""

import numpy as np
import pytest
import scipy.fft
from structured import PSFS

from deblur.device import CPU, asnumpy
from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers import sine


def test_antireflect_has_no_spectrum():
    with pytest.raises(ValueError, match="antireflect"):
        sine.decompose(Blur(PSFS["symmetric"], (7, 10), "antireflect"), np.dtype(np.float64), CPU)


@pytest.mark.parametrize("n", [1, 2, 3, 30, 256])
def test_transform_is_scipys(rng, xp, n):
    x = rng.standard_normal((3, n, n))
    for axis in (-2, -1):
        expected = scipy.fft.dst(x, type=1, axis=axis, norm="ortho")
        given = xp.asarray(x.copy())
        assert np.abs(asnumpy(sine.transformed(given, axis)) - expected).max() <= 1e-12
        assert np.array_equal(asnumpy(given), x)
        assert np.abs(asnumpy(sine.transformed(given, axis, True)) - expected).max() <= 1e-12


def test_structure_decides_not_the_array_size():
    assert sine.refuses(Problem(Blur(np.pad(PSFS["symmetric3"], 2), (9, 9)), 1e-3)) is None
    assert "one pixel" in sine.refuses(Problem(Blur(PSFS["symmetric"], (9, 9)), 1e-3))


@pytest.mark.parametrize("name", ["point-symmetric", "asymmetric", "even", "separable"])
@pytest.mark.parametrize("boundary", ["zero", "antireflect"])
def test_refuses_less_symmetry(name, boundary):
    assert "each axis" in sine.refuses(Problem(Blur(PSFS[name], (9, 8), boundary), 1e-3))


def test_refuses_other_boundaries_and_a_singular_problem():
    assert "'reflect'" in sine.refuses(Problem(Blur(PSFS["symmetric3"], (9, 8), "reflect"), 1e-3))
    assert "λ > 0" in sine.refuses(Problem(Blur(PSFS["symmetric3"], (9, 8), "antireflect"), 0.0))

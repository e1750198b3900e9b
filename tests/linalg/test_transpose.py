"""Transposition against NumPy's view, and its in-place form against itself undone."""

import numpy as np
import pytest

from deblur.device import asnumpy
from deblur.linalg.transpose import mirror_lower, turn, turned


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, bool])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (17, 19), (1, 300), (300, 1), (127, 257), (256, 128)])
def test_out_of_place(xp, shape, dtype, rng):
    a = rng.integers(0, 200, shape).astype(dtype)
    for order in "CF":
        given = xp.asarray(a, order=order)
        result = turned(given)
        assert result.dtype == dtype
        assert result.flags.c_contiguous
        assert not xp.shares_memory(result, given)
        np.testing.assert_array_equal(asnumpy(result), a.T)
        np.testing.assert_array_equal(asnumpy(given), a)


@pytest.mark.parametrize("n", [0, 1, 2, 127, 128, 129, 300])
def test_in_place(xp, n, rng):
    a = rng.standard_normal((n, n))
    for order in "CF":
        given = xp.array(a, order=order)
        turn(given)
        np.testing.assert_array_equal(asnumpy(given), a.T)
        assert given.flags.c_contiguous == (order == "C" or n <= 1)
        turn(given)
        np.testing.assert_array_equal(asnumpy(given), a)


def test_views_of_any_strides(xp, rng):
    a = rng.standard_normal((300, 450))
    given = xp.array(a)
    np.testing.assert_array_equal(asnumpy(turned(given[::2, ::-3])), a[::2, ::-3].T)
    turn(given[::2, ::3])
    expected = a.copy()
    expected[::2, ::3] = a[::2, ::3].T
    np.testing.assert_array_equal(asnumpy(given), expected)


def test_out(xp, rng):
    a = xp.asarray(rng.standard_normal((130, 7)))
    out = xp.empty((7, 130), order="F")
    assert turned(a, out) is out
    np.testing.assert_array_equal(asnumpy(out), asnumpy(a).T)


def test_nan_is_moved_like_any_value():
    a = np.array([[1.0, np.nan], [np.inf, 2.0]])
    np.testing.assert_array_equal(turned(a), [[1.0, np.inf], [np.nan, 2.0]])


@pytest.mark.parametrize("n", [0, 1, 127, 129, 300])
def test_mirroring_makes_symmetric_and_keeps_the_lower_triangle(xp, n, rng):
    a = rng.standard_normal((n, n))
    for order in "CF":
        given = xp.array(a, order=order)
        mirror_lower(given)
        np.testing.assert_array_equal(asnumpy(given), np.tril(a) + np.tril(a, -1).T)

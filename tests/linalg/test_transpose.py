"""Transposition against NumPy's view, and its in-place form against itself undone."""

import numpy as np
import pytest
from refusals import refused

from deblur.device import asnumpy
from deblur.linalg import transpose
from deblur.linalg.transpose import mirror_lower


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, bool])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (17, 19), (1, 300), (300, 1), (127, 257), (256, 128)])
def test_out_of_place(xp, shape, dtype, rng):
    a = rng.integers(0, 200, shape).astype(dtype)
    for order in "CF":
        given = xp.asarray(a, order=order)
        result = transpose(given)
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
        assert transpose(given, overwrite_a=True) is given
        np.testing.assert_array_equal(asnumpy(given), a.T)
        assert given.flags.c_contiguous == (order == "C" or n <= 1)
        np.testing.assert_array_equal(asnumpy(transpose(given, overwrite_a=True)), a)


def test_views_of_any_strides(xp, rng):
    a = rng.standard_normal((300, 450))
    given = xp.array(a)
    np.testing.assert_array_equal(asnumpy(transpose(given[::2, ::-3])), a[::2, ::-3].T)
    transpose(given[::2, ::3], overwrite_a=True)
    expected = a.copy()
    expected[::2, ::3] = a[::2, ::3].T
    np.testing.assert_array_equal(asnumpy(given), expected)


def test_out(xp, rng):
    a = xp.asarray(rng.standard_normal((130, 7)))
    out = xp.empty((7, 130), order="F")
    assert transpose(a, out=out) is out
    np.testing.assert_array_equal(asnumpy(out), asnumpy(a).T)
    refused(ValueError, r"shape \(7, 130\)", transpose, a, out=xp.empty((130, 7)))
    refused(ValueError, "float32", transpose, a, out=xp.empty((7, 130), np.float32))
    square = xp.ones((3, 3))
    refused(ValueError, "shares memory", transpose, square, out=square)
    refused(ValueError, "exclude each other", transpose, square, out=xp.ones((3, 3)), overwrite_a=True)


def test_nan_is_moved_like_any_value():
    a = np.array([[1.0, np.nan], [np.inf, 2.0]])
    np.testing.assert_array_equal(transpose(a), [[1.0, np.inf], [np.nan, 2.0]])


def test_lists_are_converted():
    np.testing.assert_array_equal(transpose([[1, 2, 3]]), [[1], [2], [3]])


def test_bad_input_is_refused():
    for a in (np.ones(3), np.ones((2, 2, 2)), 1.0):
        refused(ValueError, "2-D", transpose, a)
    refused(ValueError, "square", transpose, np.ones((2, 3)), overwrite_a=True)
    refused(TypeError, "list", transpose, [[1.0]], overwrite_a=True)
    frozen = np.eye(2)
    frozen.flags.writeable = False
    refused(ValueError, "leave out overwrite_a=True", transpose, frozen, overwrite_a=True)


@pytest.mark.parametrize("n", [0, 1, 127, 129, 300])
def test_mirroring_makes_symmetric_and_keeps_the_lower_triangle(xp, n, rng):
    a = rng.standard_normal((n, n))
    for order in "CF":
        given = xp.array(a, order=order)
        mirror_lower(given)
        np.testing.assert_array_equal(asnumpy(given), np.tril(a) + np.tril(a, -1).T)

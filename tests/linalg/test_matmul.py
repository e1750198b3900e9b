"""Products against NumPy in float64, on NumPy and CuPy arrays."""

import numpy as np
import pytest
from refusals import refused

from deblur.device import asnumpy
from deblur.linalg import gram, matmul

SHAPES = [(1, 1, 1), (17, 19, 23), (5, 1, 7), (1, 64, 1), (130, 33, 65)]


@pytest.mark.parametrize("shape", SHAPES)
def test_product(xp, shape, dtype, rng):
    m, k, n = shape
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    bound = k * np.finfo(dtype).eps * (abs(a) @ abs(b))
    exact = a.astype(float) @ b.astype(float)
    for order in "CF":
        c = matmul(xp.asarray(a, order=order), xp.asarray(b, order=order))
        assert c.dtype == dtype
        assert (abs(asnumpy(c) - exact) <= bound).all()
    v = matmul(xp.asarray(a), xp.asarray(b[:, 0]))
    assert v.shape == (m,)
    assert (abs(asnumpy(v) - exact[:, 0]) <= bound[:, 0]).all()


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (17, 19), (300, 131), (131, 300), (5, 1)])
def test_gram_is_the_product_and_exactly_symmetric(xp, shape, dtype, trans, rng):
    a = rng.standard_normal(shape).astype(dtype)
    operand = a.T if trans else a
    exact = operand.T.astype(float) @ operand
    bound = operand.shape[0] * np.finfo(dtype).eps * (abs(operand).T @ abs(operand))
    for order in "CF":
        c = asnumpy(gram(xp.asarray(a, order=order), trans=trans))
        assert c.dtype == dtype
        np.testing.assert_array_equal(c, c.T)
        assert (abs(c - exact) <= bound).all()


def test_empty_sums_are_zero(xp):
    np.testing.assert_array_equal(asnumpy(matmul(xp.ones((2, 0)), xp.ones((0, 3)))), np.zeros((2, 3)))
    np.testing.assert_array_equal(asnumpy(gram(xp.ones((0, 3)))), np.zeros((3, 3)))
    np.testing.assert_array_equal(asnumpy(gram(xp.ones((3, 0)), trans=True)), np.zeros((3, 3)))
    assert gram(xp.ones((0, 3)), trans=True).shape == (0, 0)
    assert matmul(xp.ones((0, 2)), xp.ones((2, 3))).shape == (0, 3)


def test_any_strides_and_inputs_left_alone(xp, rng):
    a, b = rng.standard_normal((34, 57)), rng.standard_normal((38, 46))
    given_a, given_b = xp.asarray(a), xp.asarray(b)
    exact = a[::2, ::3] @ b[::2, ::-2]
    np.testing.assert_allclose(asnumpy(matmul(given_a[::2, ::3], given_b[::2, ::-2])), exact, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(asnumpy(gram(given_a[::2, ::3])), a[::2, ::3].T @ a[::2, ::3], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(asnumpy(given_a), a)
    np.testing.assert_array_equal(asnumpy(given_b), b)


def test_dtypes(xp):
    single, double, whole = xp.ones((2, 2), np.float32), xp.ones((2, 2)), xp.ones((2, 2), np.uint8)
    assert matmul(single, single).dtype == gram(single).dtype == np.float32
    assert matmul(single, double).dtype == matmul(double, single).dtype == np.float64
    assert matmul(whole, whole).dtype == gram(whole).dtype == np.float64
    assert float(matmul(200 * whole, 200 * whole)[0, 0]) == 80000  # no wrap-around at 256


@pytest.mark.parametrize("function", [lambda a, **options: matmul(a, np.eye(3), **options), gram])
def test_bad_input_is_refused(function):
    for a in (np.ones(3), np.ones((1, 3, 3))):
        refused(ValueError, "2-D", function, a)
    a = np.eye(3)
    a[0, 2] = np.nan
    refused(ValueError, "a holds 1 value", function, a)
    assert np.isnan(function(a, check_finite=False)).any()


def test_shapes_that_do_not_fit():
    for b in (np.ones(2), np.ones((2, 3)), np.ones((3, 1, 1)), 1.0):
        refused(ValueError, "cannot be multiplied", matmul, np.eye(3), b)
    refused(ValueError, "b holds", matmul, np.eye(2), [np.inf, 0.0])

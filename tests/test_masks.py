"""Masks and weights of single pixels: accepted, or refused with the value."""

import numpy as np
import pytest
from refusals import refused

from deblur.device import asnumpy
from deblur.masks import check_mask, check_weights

SHAPE = (3, 4)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64])
def test_a_mask_of_zeros_and_ones_becomes_boolean(dtype, xp):
    mask = np.zeros(SHAPE, dtype)
    mask[1, 2] = 1
    found = check_mask(xp.asarray(mask), SHAPE)
    assert isinstance(found, xp.ndarray)
    assert found.dtype == bool
    np.testing.assert_array_equal(asnumpy(found), mask == 1)
    assert check_mask([[True, False]]).tolist() == [[True, False]]


def test_weights_stay_as_they_are(xp):
    weights = np.arange(12, dtype=np.float32).reshape(SHAPE)
    found = check_weights(xp.asarray(weights), SHAPE)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(asnumpy(found), weights)


@pytest.mark.parametrize(
    ("check", "values", "error", "words"),
    [
        (check_mask, np.full(SHAPE, 2), ValueError, "such as 2"),
        (check_mask, np.full(SHAPE, 0.5), ValueError, "0.5"),
        (check_mask, np.full(SHAPE, np.nan), ValueError, "nan"),
        (check_mask, np.ones(SHAPE), TypeError, "float64"),
        (check_mask, np.full(SHAPE, "x"), TypeError, "boolean"),
        (check_mask, np.ones((4, 3), bool), ValueError, r"\(3, 4\), not \(4, 3\)"),
        (check_mask, np.ma.array(np.ones(SHAPE, bool), mask=np.eye(3, 4)), TypeError, r"3 hidden"),
        (check_weights, np.tile([1.0, -2.0, -3.0, 1.0], (3, 1)), ValueError, "6 lie below zero, the least is -3"),
        (check_weights, np.full(SHAPE, np.inf), ValueError, "infinite"),
        (check_weights, np.full(SHAPE, np.nan), ValueError, "NaN"),
        (check_weights, np.full(SHAPE, 1j), TypeError, "complex128"),
        (check_weights, np.ma.masked_less(np.arange(12.0).reshape(SHAPE), 2), TypeError, "2 hidden"),
    ],
)
def test_invalid_values_are_refused(check, values, error, words):
    refused(error, words, check, values, SHAPE)

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


@pytest.mark.parametrize(
    ("mask", "error", "words"),
    [
        (np.full(SHAPE, 2), ValueError, "such as 2"),
        (np.full(SHAPE, 0.5), ValueError, "0.5"),
        (np.full(SHAPE, np.nan), ValueError, "nan"),
        (np.ones(SHAPE), TypeError, "float64"),
        (np.full(SHAPE, "x"), TypeError, "boolean"),
        (np.ones((4, 3), bool), ValueError, r"\(3, 4\), not \(4, 3\)"),
        (np.ma.array(np.ones(SHAPE, bool), mask=np.eye(3, 4)), TypeError, r"3 hidden"),
    ],
)
def test_an_invalid_mask_is_refused(mask, error, words):
    refused(error, words, check_mask, mask, SHAPE)


def test_weights_stay_as_they_are(xp):
    weights = np.arange(12, dtype=np.float32).reshape(SHAPE)
    found = check_weights(xp.asarray(weights), SHAPE)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(asnumpy(found), weights)


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        (np.array([1.0, -2.0, -3.0]), ValueError, "2 lie below zero, the least is -3"),
        (np.array([1.0, np.inf]), ValueError, "infinite"),
        (np.array([1.0, np.nan]), ValueError, "NaN"),
        (np.array([1j]), TypeError, "complex128"),
        (np.ma.masked_less(np.arange(4.0), 2), TypeError, "2 hidden"),
    ],
)
def test_invalid_weights_are_refused(weights, error, words):
    refused(error, words, check_weights, weights)

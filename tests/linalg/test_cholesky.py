"""Cholesky factor, solution and inverse against their defining equations and SciPy."""

# ruff: noqa: E741

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.linalg
from refusals import refused

from deblur.errors import SingularMatrixError
from deblur.linalg import cholesky, cholesky_inverse, cholesky_solve


def spd(n, rng, condition=100.0, dtype=np.float64):
    """A symmetric positive definite matrix with eigenvalues from 1 down to 1/condition."""
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    a = (q * np.geomspace(1, 1 / condition, n)) @ q.T
    return ((a + a.T) / 2).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 17, 131, 300])
def test_factor_times_its_transpose_is_the_matrix(n, dtype, rng):
    a = spd(n, rng, dtype=dtype)
    l = cholesky(a)
    assert l.dtype == dtype
    assert not np.triu(l, 1).any()
    assert (l.diagonal() > 0).all()
    assert np.linalg.norm(l.astype(float) @ l.T - a) <= n * np.finfo(dtype).eps * np.linalg.norm(a)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 17, 131, 300])
def test_inverse_is_symmetric_and_inverts(n, dtype, rng):
    a = spd(n, rng, dtype=dtype)
    x = cholesky_inverse(a)
    assert x.dtype == dtype
    np.testing.assert_array_equal(x, x.T)
    residual = np.linalg.norm(a.astype(float) @ x - np.eye(n))
    assert residual <= n * np.finfo(dtype).eps * np.linalg.norm(a) * np.linalg.norm(x)


@pytest.mark.parametrize("k", [None, 0, 1, 5])
@pytest.mark.parametrize("n", [1, 2, 19, 131])
def test_solution_satisfies_the_system(n, k, rng):
    a = spd(n, rng)
    b = rng.standard_normal(n if k is None else (n, k))
    x = cholesky_solve(cholesky(a), b)
    assert x.shape == b.shape
    assert np.linalg.norm(a @ x - b) <= n * np.finfo(float).eps * np.linalg.norm(a) * np.linalg.norm(x)
    np.testing.assert_allclose(x, scipy.linalg.solve(a, b, assume_a="pos"), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
def test_accuracy_when_ill_conditioned(condition, rng):
    a = spd(80, rng, condition)
    x = cholesky_inverse(a)
    residual = np.linalg.norm(a @ x - np.eye(80))
    assert residual <= 80 * np.finfo(float).eps * np.linalg.norm(a) * np.linalg.norm(x)


def test_empty_matrix():
    empty = np.empty((0, 0))
    assert cholesky(empty).shape == cholesky_inverse(empty).shape == (0, 0)
    assert cholesky_solve(empty, np.empty((0, 2))).shape == (0, 2)


def test_only_the_lower_triangle_is_read(rng):
    a = spd(29, rng)
    garbled = np.tril(a) + np.triu(rng.standard_normal((29, 29)), 1)
    for order in "CF":
        other = garbled.copy(order=order)
        np.testing.assert_allclose(cholesky(other), cholesky(a), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(cholesky_inverse(other), cholesky_inverse(a), rtol=1e-10, atol=1e-12)
    l = cholesky(a)
    b = rng.standard_normal((29, 3))
    garbled = l + np.triu(rng.standard_normal((29, 29)), 1)
    np.testing.assert_array_equal(cholesky_solve(garbled, b), cholesky_solve(l, b))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("function", [cholesky, cholesky_inverse])
def test_overwriting_puts_the_result_where_the_matrix_was(function, order, rng):
    a = np.eye(1000, order=order) + 1e-3
    expected = function(a)
    assert expected.flags[f"{order}_CONTIGUOUS"]
    tracemalloc.start()
    result = function(a, overwrite_a=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result is a
    assert peak < 0.3 * a.nbytes  # tiles and masks, no second matrix
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("function", [cholesky, cholesky_inverse])
def test_overwriting_what_does_not_serve_as_workspace(function, rng):
    a = spd(23, rng)
    wide = np.zeros((46, 69))
    wide[::2, ::3] = a
    result = function(wide[::2, ::3], overwrite_a=True)
    np.testing.assert_allclose(result, function(a), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(wide[::2, ::3], a)
    a.flags.writeable = False
    refused(ValueError, "leave out overwrite_a=True", function, a, overwrite_a=True)


@pytest.mark.parametrize("order", ["C", "F"])
def test_solving_in_place_returns_b(order, rng):
    l, b = cholesky(spd(37, rng)), rng.standard_normal((37, 4)).copy(order=order)
    expected = cholesky_solve(l, b)
    assert cholesky_solve(l, b, overwrite_b=True) is b
    np.testing.assert_array_equal(b, expected)


def test_dtypes():
    a = [[2, 1], [1, 3]]
    assert cholesky(a).dtype == cholesky_inverse(np.array(a, np.uint8)).dtype == np.float64
    assert cholesky(np.array(a, np.float16)).dtype == np.float32
    assert cholesky_solve(np.eye(2, dtype=np.float32), np.ones(2, np.float32)).dtype == np.float32
    assert cholesky_solve(np.eye(2, dtype=np.float32), np.ones(2)).dtype == np.float64


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("value", [0.0, -2.0])
@pytest.mark.parametrize("i", [0, 7, 18])
def test_not_positive_definite_names_the_failing_pivot(i, value, order):
    a = np.eye(19, order=order)
    a[i, i] = value
    for function in (cholesky, cholesky_inverse):
        with pytest.raises(SingularMatrixError, match=f"pivot {i}") as caught:
            function(a)
        assert caught.value.index == i


def test_factor_with_zero_on_its_diagonal():
    with pytest.raises(SingularMatrixError) as caught:
        cholesky_solve(np.diag([1.0, 0.0, 1.0]), np.ones(3))
    assert caught.value.index == 1


def test_overflow_in_the_result_is_an_error():
    refused(SingularMatrixError, "overflows", cholesky_inverse, [[1.0, 0.0], [0.0, 1e-310]])
    refused(SingularMatrixError, "overflows", cholesky_solve, [[1.0, 0.0], [0.0, 1e-200]], [1.0, 1.0])


@pytest.mark.parametrize("n", [3, 40])
def test_not_finite(n):
    a = np.eye(n)
    a[2, 1] = np.nan
    for function in (cholesky, cholesky_inverse):
        refused(ValueError, r"a holds 1 value.*\(2, 1\)", function, a)
        with pytest.raises(SingularMatrixError) as caught:
            function(a, check_finite=False)
        assert caught.value.index == 2
    refused(ValueError, "l holds 1", cholesky_solve, a, np.ones(n))
    refused(ValueError, "b holds", cholesky_solve, np.eye(n), np.full(n, np.inf))


@pytest.mark.parametrize("function", [cholesky, cholesky_inverse, lambda a: cholesky_solve(a, np.ones(3))])
def test_what_is_not_a_real_square_matrix_is_refused(function):
    for a in (np.ones(3), np.ones((3, 4)), np.ones((1, 3, 3))):
        refused(ValueError, "must be a matrix|must be square", function, a)


def test_right_hand_side_that_does_not_fit():
    for b in (np.ones(2), np.ones((2, 3)), np.ones((3, 1, 1))):
        refused(ValueError, "b must have shape", cholesky_solve, np.eye(3), b)


@pytest.mark.parametrize("condition", [1e12, 1e19])
def test_ill_conditioned_matrices_are_warned_of_as_scipy_does(condition):
    a = np.diag(np.geomspace(1, 1 / condition, 5))
    a[1, 0] = a[0, 1] = 0.001
    factor, b = cholesky(a), np.ones(5)
    calls = (
        lambda: scipy.linalg.solve(a, b, assume_a="pos"),
        lambda: scipy.linalg.inv(a, assume_a="pos"),
        lambda: cholesky_solve(factor, b),
        lambda: cholesky_solve(np.asfortranarray(factor), b),
        lambda: cholesky_inverse(a),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        assert [w.category for w in seen] == [scipy.linalg.LinAlgWarning] * (condition > 1e15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cholesky_solve(factor, b, check_finite=False)
        cholesky_inverse(a, check_finite=False)

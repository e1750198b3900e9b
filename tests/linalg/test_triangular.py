"""Triangular inverse and solution against their defining equations and SciPy."""

# ruff: noqa: E741

import warnings

import numpy as np
import pytest
import scipy.linalg
from refusals import refused

from deblur.errors import SingularMatrixError
from deblur.linalg import gets, solve_triangular


def triangle(n, rng, lower=True, unit_diagonal=False):
    """A well-conditioned triangular matrix, and the same with garbage in all that must not be read."""
    exact = np.tril(rng.standard_normal((n, n)) / max(n, 1) ** 0.5, -1)
    exact[np.diag_indices(n)] = 1 if unit_diagonal else rng.uniform(1, 2, n)
    garbled = exact + np.triu(rng.standard_normal((n, n)), 0 if unit_diagonal else 1)
    return (exact, garbled) if lower else (exact.T.copy(), garbled.T.copy())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [1, 2, 17, 131, 300])
def test_gets_inverts_the_triangle_and_reads_nothing_else(n, lower, unit_diagonal, order, rng):
    exact, garbled = triangle(n, rng, lower, unit_diagonal)
    q = gets(garbled.copy(order=order), lower=lower, unit_diagonal=unit_diagonal)
    assert not (np.triu(q, 1) if lower else np.tril(q, -1)).any()
    residual = np.linalg.norm(exact @ q - np.eye(n))
    assert residual <= n * np.finfo(float).eps * np.linalg.norm(exact) * np.linalg.norm(q)


@pytest.mark.parametrize("k", [None, 0, 1, 5])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit_diagonal", [False, True])
def test_solution_agrees_with_scipy(unit_diagonal, lower, trans, k, rng):
    n = 61
    exact, garbled = triangle(n, rng, lower, unit_diagonal)
    b = rng.standard_normal(n if k is None else (n, k))
    operator = exact.T if trans else exact
    for order_l in "CF":
        for order_b in "CF":
            x = solve_triangular(
                garbled.copy(order=order_l),
                b.copy(order=order_b),
                lower=lower,
                trans=trans,
                unit_diagonal=unit_diagonal,
            )
            assert x.shape == b.shape
            assert np.linalg.norm(operator @ x - b) <= n * np.finfo(float).eps * max(
                np.linalg.norm(operator) * np.linalg.norm(x), 1
            )
            expected = scipy.linalg.solve_triangular(exact, b, lower=lower, trans=trans)
            np.testing.assert_allclose(x, expected, rtol=1e-10, atol=1e-12)


def test_empty_matrix():
    empty = np.empty((0, 0))
    assert gets(empty).shape == (0, 0)
    assert solve_triangular(empty, np.empty(0)).shape == (0,)
    assert solve_triangular(empty, np.empty((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("order", ["C", "F"])
def test_overwriting(order, rng):
    l = triangle(40, rng)[0].copy(order=order)
    b = rng.standard_normal((40, 3)).copy(order=order)
    solution, inverse = solve_triangular(l, b), gets(l)
    assert solve_triangular(l, b, overwrite_b=True) is b
    np.testing.assert_array_equal(b, solution)
    assert gets(l, overwrite_l=True) is l
    np.testing.assert_array_equal(l, inverse)


def test_dtypes(rng):
    l = np.eye(3, dtype=np.float32)
    assert gets(l).dtype == solve_triangular(l, np.ones(3, np.float32)).dtype == np.float32
    assert gets([[1]]).dtype == solve_triangular(l, np.ones(3)).dtype == np.float64


@pytest.mark.parametrize("i", [0, 4, 6])
def test_zero_on_the_diagonal_names_its_place(i, rng):
    l, _ = triangle(7, rng)
    l[i, i] = 0
    for call in (lambda: gets(l), lambda: solve_triangular(l, np.ones(7))):
        with pytest.raises(SingularMatrixError) as caught:
            call()
        assert caught.value.index == i
    # A unit diagonal is not looked at.
    assert np.isfinite(gets(l, unit_diagonal=True)).all()
    assert np.isfinite(solve_triangular(l, np.ones(7), unit_diagonal=True)).all()


def test_overflow_is_an_error():
    l = np.array([[1e-200, 0.0], [1.0, 1e-200]])
    refused(SingularMatrixError, "overflows", gets, l)
    refused(SingularMatrixError, "overflows", solve_triangular, l, np.ones(2))
    with pytest.raises(SingularMatrixError) as caught:
        gets([[1e-310]])
    assert caught.value.index == 0


def test_bad_input_is_refused():
    for a in (np.ones(3), np.ones((3, 4))):
        for call in (gets, lambda l: solve_triangular(l, np.ones(3))):
            refused(ValueError, "must be a matrix|must be square", call, a)
    refused(ValueError, "l holds 1 value", gets, [[1.0, 0.0], [np.nan, 1.0]])
    refused(ValueError, "b holds 1 value", solve_triangular, np.eye(2), [1.0, np.inf])
    refused(ValueError, "b must have shape", solve_triangular, np.eye(2), np.ones(3))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("small", [1e-10, 1e-19])
def test_ill_conditioned_triangles_are_warned_of_as_scipy_does(small, lower, order):
    l = np.diag([1.0, small, 2.0])
    l[(1, 0) if lower else (0, 1)] = 0.5
    l[(0, 2) if lower else (2, 0)] = 1e30  # is not read
    l, b = np.asarray(l, order=order), np.ones(3)
    kind = "lower triangular" if lower else "upper triangular"
    calls = (
        lambda: scipy.linalg.solve(l, b, assume_a=kind),
        lambda: solve_triangular(l, b, lower=lower),
        lambda: solve_triangular(l, b, lower=lower, trans=True),
        lambda: gets(l, lower=lower),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        assert [w.category for w in seen] == [scipy.linalg.LinAlgWarning] * (small < 1e-15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve_triangular(l, b, lower=lower, check_finite=False)
        solve_triangular(l, b, lower=lower, unit_diagonal=True)

"""Gauss-Jordan elimination against its defining equations, NumPy, and matrices that need care."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.linalg
from refusals import refused
from scipy.linalg import LinAlgWarning

from deblur.errors import SingularMatrixError
from deblur.linalg import gauss_jordan_inverse, gauss_jordan_solve


def assert_solves(a, x, b):
    """The residual is what rounding alone explains: Frobenius norm ≤ n eps ‖A‖‖X‖."""
    assert x.shape == b.shape
    residual = np.linalg.norm(a.astype(float) @ x - b)
    assert residual <= len(a) * np.finfo(x.dtype).eps * np.linalg.norm(a) * np.linalg.norm(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [1, 7, 64, None])
@pytest.mark.parametrize("n", [1, 2, 17, 131, 257])
def test_inverse_times_matrix_is_identity(n, block, dtype, rng):
    a = rng.standard_normal((n, n)).astype(dtype)
    x = gauss_jordan_inverse(a, block=block)
    assert x.dtype == dtype
    assert_solves(a, x, np.eye(n))


@pytest.mark.parametrize("k", [None, 0, 1, 5])
@pytest.mark.parametrize("n", [1, 2, 19, 131])
def test_solution_satisfies_the_system(n, k, rng):
    a = rng.standard_normal((n, n))
    b = rng.standard_normal(n if k is None else (n, k))
    x = gauss_jordan_solve(a, b, block=16)
    assert_solves(a, x, b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-8, atol=1e-10)


def test_empty_matrix():
    assert gauss_jordan_inverse(np.empty((0, 0))).shape == (0, 0)
    assert gauss_jordan_solve(np.empty((0, 0)), np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("block", [1, 4, 64])
def test_permutation_matrix_is_inverted_exactly(block, rng):
    """Nearly every pivot has to be fetched from another row."""
    p = np.eye(19)[rng.permutation(19)]
    np.testing.assert_array_equal(gauss_jordan_inverse(p, block=block), p.T)
    b = rng.standard_normal(19)
    np.testing.assert_array_equal(gauss_jordan_solve(p, b, block=block), p.T @ b)


def test_small_pivots_are_passed_over(rng):
    """Without pivoting, the entries of 1e-18 would wipe out everything else."""
    a = rng.standard_normal((40, 40))
    a[np.diag_indices(40)] = 1e-18
    x = gauss_jordan_inverse(a, block=8)
    assert_solves(a, x, np.eye(40))
    np.testing.assert_allclose(x, np.linalg.inv(a), rtol=1e-9, atol=1e-11)


def test_ill_conditioned_matrix_keeps_its_digits(rng):
    """Relative forward error ≤ n eps cond for condition numbers up to 1e10."""
    u, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    v, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    for condition in (1e2, 1e6, 1e10):
        s = np.geomspace(1, 1 / condition, 60)
        exact = (v / s) @ u.T
        error = np.linalg.norm(gauss_jordan_inverse((u * s) @ v.T, block=16) - exact, 2)
        assert error <= 60 * np.finfo(float).eps * condition * np.linalg.norm(exact, 2)


@pytest.mark.parametrize("block", [3, None])
def test_memory_layouts_give_the_same_answer_and_leave_the_input_alone(block, rng):
    a, b = rng.standard_normal((23, 23)), rng.standard_normal((23, 4))
    x, y = gauss_jordan_inverse(a, block=block), gauss_jordan_solve(a, b, block=block)
    wide, deep = np.zeros((46, 69)), np.zeros((46, 12))
    wide[::2, ::3], deep[::2, ::3] = a, b
    reversed_a, reversed_b = a[::-1, ::-1].copy()[::-1, ::-1], b[::-1].copy()[::-1]
    for other_a, other_b in [
        (np.asfortranarray(a), np.asfortranarray(b)),
        (a.T.copy().T, b.T.copy().T),
        (wide[::2, ::3], deep[::2, ::3]),
        (reversed_a, reversed_b),
    ]:
        other_a.flags.writeable = other_b.flags.writeable = False
        np.testing.assert_allclose(gauss_jordan_inverse(other_a, block=block), x, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(
            gauss_jordan_solve(other_a, other_b, block=block), y, rtol=1e-10, atol=1e-12
        )
        np.testing.assert_array_equal(other_a, a)
        np.testing.assert_array_equal(other_b, b)


@pytest.mark.parametrize("order", ["C", "F"])
def test_overwriting_puts_the_inverse_where_the_matrix_was(order, rng):
    a = rng.standard_normal((512, 512)).copy(order=order)
    expected = gauss_jordan_inverse(a, block=32)
    assert expected.flags[f"{order}_CONTIGUOUS"]
    tracemalloc.start()
    result = gauss_jordan_inverse(a, overwrite_a=True, block=32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result is a
    assert peak < 0.6 * a.nbytes  # no second matrix
    np.testing.assert_array_equal(a, expected)


def test_solving_in_place_returns_b(rng):
    a, b = np.asfortranarray(rng.standard_normal((37, 37))), rng.standard_normal((37, 2))
    expected = gauss_jordan_solve(a, b, block=8)
    spoilt = a.copy(order="K")
    assert gauss_jordan_solve(spoilt, b, block=8, overwrite_a=True, overwrite_b=True) is b
    np.testing.assert_array_equal(b, expected)
    assert not np.array_equal(spoilt, a)  # it was used, not copied


def test_overwriting_what_does_not_serve_as_workspace_leaves_it_alone(rng):
    """A matrix of other strides, or of the wrong order for solving, is copied all the same."""
    a, b = rng.standard_normal((23, 23)), rng.standard_normal((23, 4))
    wide, deep = np.zeros((46, 69)), np.zeros((46, 12))
    wide[::2, ::3], deep[::2, ::3] = a, b
    x = gauss_jordan_inverse(wide[::2, ::3], overwrite_a=True, block=5)
    np.testing.assert_allclose(x, np.linalg.inv(a), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(wide[::2, ::3], a)
    for given in (a, wide[::2, ::3]):
        y = gauss_jordan_solve(given, deep[::2, ::3], overwrite_a=True, overwrite_b=True, block=5)
        np.testing.assert_allclose(y, np.linalg.solve(a, b), rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(deep[::2, ::3], b)


def test_overwriting_a_read_only_array_is_refused():
    a, b = np.eye(3), np.ones(3)
    a.flags.writeable = b.flags.writeable = False
    refused(ValueError, "leave out overwrite_a=True", gauss_jordan_inverse, a, overwrite_a=True)
    refused(ValueError, "leave out overwrite_a=True", gauss_jordan_solve, a, b, overwrite_a=True)
    refused(ValueError, "leave out overwrite_b=True", gauss_jordan_solve, a, b, overwrite_b=True)


def test_dtypes():
    a = [[2, 1], [1, 3]]
    assert gauss_jordan_inverse(a).dtype == np.float64
    assert gauss_jordan_inverse(np.array(a, np.uint8)).dtype == np.float64
    assert gauss_jordan_inverse(np.array(a, np.float16)).dtype == np.float32
    assert gauss_jordan_solve(np.array(a, np.float32), np.ones(2, np.float32)).dtype == np.float32
    assert gauss_jordan_solve(np.array(a, np.float32), np.ones(2)).dtype == np.float64
    assert gauss_jordan_solve(np.array(a, np.float64), np.ones(2, np.float32)).dtype == np.float64


@pytest.mark.parametrize("block", [1, 4, None])
@pytest.mark.parametrize("column", [0, 5, 18])
def test_singular_matrix_names_the_failing_pivot(column, block, rng):
    a = rng.standard_normal((19, 19))
    a[:, column] = 0
    with pytest.raises(SingularMatrixError, match=f"pivot {column}") as caught:
        gauss_jordan_inverse(a, block=block)
    assert caught.value.index == column
    with pytest.raises(SingularMatrixError) as caught:
        gauss_jordan_solve(a, np.ones(19), block=block)
    assert caught.value.index == column


def test_pivot_rtol_counts_small_pivots_as_zero():
    a = np.diag([1.0, 3.0, 1e-20])
    with pytest.warns(LinAlgWarning, match="ill-conditioned"):  # as scipy.linalg.inv does
        inverse = gauss_jordan_inverse(a)
    np.testing.assert_allclose(inverse, np.diag(1 / np.diag(a)), rtol=1e-15)
    for call in (
        lambda: gauss_jordan_inverse(a, pivot_rtol=1e-15),
        lambda: gauss_jordan_solve(-a, np.ones(3), pivot_rtol=1e-15),
    ):
        with pytest.raises(SingularMatrixError) as caught:
            call()
        assert caught.value.index == 2


def test_reciprocal_beyond_range_is_singular():
    with pytest.raises(SingularMatrixError) as caught:
        gauss_jordan_inverse([[1.0, 0.0], [0.0, 1e-310]])
    assert caught.value.index == 1


def test_overflow_in_the_result_is_an_error():
    """Both pivots are fine, the entry -1/(1e-200)² of the inverse is not."""
    a = np.array([[1e-200, 1.0], [0.0, 1e-200]])
    with pytest.raises(SingularMatrixError, match="overflows") as caught:
        gauss_jordan_inverse(a)
    assert caught.value.index is None
    refused(SingularMatrixError, "overflows", gauss_jordan_solve, a, np.ones(2))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite(bad):
    a = np.eye(3)
    a[1, 2] = bad
    refused(ValueError, r"a holds 1 value.*\(1, 2\)", gauss_jordan_inverse, a)
    refused(ValueError, "a holds 1", gauss_jordan_solve, a, np.ones(3))
    refused(ValueError, "b holds 3", gauss_jordan_solve, np.eye(3), a[1, 2] * np.ones(3))
    with pytest.raises(SingularMatrixError) as caught:  # and not 1/inf = 0
        gauss_jordan_inverse(np.diag([1.0, bad]), check_finite=False)
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("a", "error", "message"),
    [
        (np.ones(4), ValueError, "must be a matrix"),
        (np.ones((2, 3, 3)), ValueError, "must be a matrix"),
        (np.ones((3, 4)), ValueError, "must be square"),
        (np.array([["a"]]), TypeError, "real numbers"),
    ],
)
def test_what_is_not_a_real_square_matrix_is_refused(a, error, message):
    refused(error, message, gauss_jordan_inverse, a)
    refused(error, message, gauss_jordan_solve, a, np.ones(3))


@pytest.mark.parametrize("b", [np.ones(2), np.ones((2, 3)), np.ones((3, 1, 1)), 1.0])
def test_right_hand_side_that_does_not_fit(b):
    refused(ValueError, "b must have shape", gauss_jordan_solve, np.eye(3), b)


def test_options_out_of_range():
    for call in (gauss_jordan_inverse, lambda a, **options: gauss_jordan_solve(a, np.ones(2), **options)):
        refused(ValueError, "block", call, np.eye(2), block=0)
        for pivot_rtol in (-1e-3, 1.0, np.nan):
            refused(ValueError, "pivot_rtol", call, np.eye(2), pivot_rtol=pivot_rtol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ill_conditioned_matrices_are_warned_of_as_scipy_does(rng, dtype):
    q, p = (np.linalg.qr(rng.standard_normal((14, 14)))[0] for _ in range(2))
    eps = float(np.finfo(dtype).eps)
    for condition, warns in ((1e-3 / eps, False), (1e4 / eps, True)):
        a = ((q * np.geomspace(1, 1 / condition, 14)) @ p.T).astype(dtype)
        for call in (gauss_jordan_inverse, lambda a: gauss_jordan_solve(a, np.ones(14, dtype))):
            for scale in (1e-20, 1, 1e15):
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    call(np.asfortranarray(a * dtype(scale)))
                assert [w.category for w in seen] == [LinAlgWarning] * warns
                if warns:
                    assert "reciprocal condition number" in str(seen[0].message)
                    assert seen[0].filename == __file__
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            scipy.linalg.inv(a)
        assert [w.category for w in seen] == [LinAlgWarning] * warns

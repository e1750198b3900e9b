"""What Gauss-Jordan elimination alone promises; see test_dense for what it shares with others."""

import numpy as np
import pytest
from matrices import error
from refusals import refused
from scipy.linalg import LinAlgWarning

from deblur.errors import SingularMatrixError
from deblur.linalg import gauss_jordan_inverse, gauss_jordan_solve


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [1, 7, 64, None])
@pytest.mark.parametrize("n", [2, 131, 257])
def test_blocks_of_any_size(n, block, dtype, rng):
    a, b = rng.standard_normal((n, n)).astype(dtype), rng.standard_normal((n, 5)).astype(dtype)
    assert error(a, gauss_jordan_inverse(a, block=block), np.eye(n)) <= 1
    assert error(a, gauss_jordan_solve(a, b, block=block), b) <= 1


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
    assert error(a, x, np.eye(40)) <= 1
    np.testing.assert_allclose(x, np.linalg.inv(a), rtol=1e-9, atol=1e-11)


def test_ill_conditioned_matrix_keeps_its_digits(rng):
    """Relative forward error ≤ n eps cond for condition numbers up to 1e10."""
    u, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    v, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    for condition in (1e2, 1e6, 1e10):
        s = np.geomspace(1, 1 / condition, 60)
        exact = (v / s) @ u.T
        wrong = np.linalg.norm(gauss_jordan_inverse((u * s) @ v.T, block=16) - exact, 2)
        assert wrong <= 60 * np.finfo(float).eps * condition * np.linalg.norm(exact, 2)


@pytest.mark.parametrize("block", [1, 4, None])
@pytest.mark.parametrize("column", [0, 5, 18])
def test_singular_matrix_names_the_failing_pivot(column, block, rng):
    a = rng.standard_normal((19, 19))
    a[:, column] = 0
    for function, *b in ((gauss_jordan_inverse,), (gauss_jordan_solve, np.ones(19))):
        with pytest.raises(SingularMatrixError, match=f"pivot {column}") as caught:
            function(a, *b, block=block)
        assert caught.value.index == column


def test_pivot_rtol_counts_small_pivots_as_zero():
    a = np.diag([1.0, 3.0, 1e-20])
    with pytest.warns(LinAlgWarning, match="ill-conditioned"):  # as scipy.linalg.inv does
        inverse = gauss_jordan_inverse(a)
    np.testing.assert_allclose(inverse, np.diag(1 / np.diag(a)), rtol=1e-15)
    for call in (gauss_jordan_inverse, lambda a, **options: gauss_jordan_solve(-a, np.ones(3), **options)):
        with pytest.raises(SingularMatrixError) as caught:
            call(a, pivot_rtol=1e-15)
        assert caught.value.index == 2


def test_options_out_of_range():
    for call in (gauss_jordan_inverse, lambda a, **options: gauss_jordan_solve(a, np.ones(2), **options)):
        for name, value in (("block", 0), ("block", "4"), *(("pivot_rtol", x) for x in (-1e-3, 1.0, np.nan, "x"))):
            refused(ValueError, name, call, np.eye(2), **{name: value})

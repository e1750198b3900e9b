"""What Gauss-Jordan elimination alone promises; see test_dense for what it shares with others."""

import numpy as np
import pytest
from matrices import error

from deblur.errors import SingularMatrixError
from deblur.linalg import gauss_jordan, gauss_jordan_inverse, gauss_jordan_solve


@pytest.fixture(params=[1, 7, 64, gauss_jordan.BLOCK])
def block(request, monkeypatch):
    """Columns that are eliminated at a time."""
    monkeypatch.setattr(gauss_jordan, "BLOCK", request.param)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("n", [2, 131, 257])
def test_blocks_of_any_size(n, dtype, rng):
    a, b = rng.standard_normal((n, n)).astype(dtype), rng.standard_normal((n, 5)).astype(dtype)
    assert error(a, gauss_jordan_inverse(a), np.eye(n)) <= 1
    assert error(a, gauss_jordan_solve(a, b), b) <= 1


@pytest.mark.usefixtures("block")
def test_permutation_matrix_is_inverted_exactly(rng):
    """Nearly every pivot has to be fetched from another row."""
    p = np.eye(19)[rng.permutation(19)]
    np.testing.assert_array_equal(gauss_jordan_inverse(p), p.T)
    b = rng.standard_normal(19)
    np.testing.assert_array_equal(gauss_jordan_solve(p, b), p.T @ b)


@pytest.mark.usefixtures("block")
def test_small_pivots_are_passed_over(rng):
    """Without pivoting, the entries of 1e-18 would wipe out everything else."""
    a = rng.standard_normal((40, 40))
    a[np.diag_indices(40)] = 1e-18
    x = gauss_jordan_inverse(a)
    assert error(a, x, np.eye(40)) <= 1
    np.testing.assert_allclose(x, np.linalg.inv(a), rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("block")
def test_ill_conditioned_matrix_keeps_its_digits(rng):
    """Relative forward error ≤ n eps cond for condition numbers up to 1e10."""
    u, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    v, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    for condition in (1e2, 1e6, 1e10):
        s = np.geomspace(1, 1 / condition, 60)
        exact = (v / s) @ u.T
        wrong = np.linalg.norm(gauss_jordan_inverse((u * s) @ v.T) - exact, 2)
        assert wrong <= 60 * np.finfo(float).eps * condition * np.linalg.norm(exact, 2)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("column", [0, 5, 18])
def test_singular_matrix_names_the_failing_pivot(column, rng):
    a = rng.standard_normal((19, 19))
    a[:, column] = 0
    for function, *b in ((gauss_jordan_inverse,), (gauss_jordan_solve, np.ones(19))):
        with pytest.raises(SingularMatrixError, match=f"pivot {column}") as caught:
            function(a, *b)
        assert caught.value.index == column

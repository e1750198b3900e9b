"""What inverses and solvers of dense matrices share, on the CPU and the GPU: defining equations, memory, errors."""

import tracemalloc
import warnings
from functools import partial
from itertools import product

import numpy as np
import pytest
import scipy.linalg
from matrices import error, general, lower, spd
from refusals import refused

from deblur.device import asnumpy
from deblur.errors import SingularMatrixError
from deblur.linalg import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    damped_qr,
    gauss_jordan_inverse,
    gauss_jordan_solve,
    gauss_seidel,
    gets,
    qr_insert,
    solve_triangular,
)

INVERSES = {cholesky_inverse: spd, gauss_jordan_inverse: general, gets: lower}
# What is passed for the matrix, and what system that solves.
SOLVERS = {cholesky_solve: lower, gauss_jordan_solve: general, solve_triangular: lower}
ALL = [cholesky, *INVERSES]
inverses = pytest.mark.parametrize("inverse", INVERSES)
solvers = pytest.mark.parametrize("solve", SOLVERS)
every = pytest.mark.parametrize("function", ALL)
in_place = pytest.mark.parametrize("function", [f for f in ALL if f is not gets])


def system(solve, a):
    return a.astype(float) @ a.T if solve is cholesky_solve else a


def places(cpu, gpu):
    """Sizes on the CPU, and sizes on the GPU."""
    both = [*(("numpy", n) for n in cpu), *(pytest.param("cupy", n, marks=pytest.mark.gpu) for n in gpu)]
    return pytest.mark.parametrize(("xp", "n"), both, indirect=["xp"])


def warned(call):
    """The categories of the warnings of a call."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return [w.category for w in seen]


@inverses
@places([1, 2, 17, 131, 300], [1, 17, 63, 64, 65, 127, 128, 129, 513, 1000, 1537])
def test_inverse_times_matrix_is_the_identity(inverse, n, dtype, rng, xp):
    a = INVERSES[inverse](n, rng, dtype=dtype)
    for order in "CF":
        given = xp.asarray(a, order=order)
        x = asnumpy(inverse(given))
        assert x.dtype == dtype
        assert error(a, x, np.eye(n)) <= 1
        assert np.array_equal(asnumpy(given), a)
        if inverse is cholesky_inverse:
            np.testing.assert_array_equal(x, x.T)
        if inverse is gets:
            assert not np.triu(x, 1).any()


@solvers
@pytest.mark.parametrize("k", [None, 0, 1, 5, 200])
@places([1, 2, 61, 131], [1, 65, 129, 1000])
def test_solution_satisfies_the_system(solve, n, k, dtype, rng, xp):
    a = SOLVERS[solve](n, rng, dtype=dtype)
    b = rng.standard_normal(n if k is None else (n, k)).astype(dtype)
    for order in "CF":
        x = asnumpy(solve(xp.asarray(a, order=order), xp.asarray(b, order=order)))
        assert x.shape == b.shape
        assert x.dtype == dtype
        assert k == 0 or error(system(solve, a), x, b) <= 1


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
@places([80], [1100])
def test_residual_stays_small_for_ill_conditioned_matrices(condition, n, rng, xp):
    for inverse in (cholesky_inverse, gauss_jordan_inverse):
        a = INVERSES[inverse](n, rng, condition)
        assert error(a, asnumpy(inverse(xp.asarray(a))), np.eye(n)) <= (1 if xp is np else 10)
    assert error(a, asnumpy(gauss_jordan_solve(xp.asarray(a), xp.eye(n))), np.eye(n)) <= 10


def test_empty_matrices(xp):
    empty = xp.empty((0, 0))
    for function in ALL:
        assert function(empty).shape == (0, 0)
    for solve in SOLVERS:
        assert solve(empty, xp.empty(0)).shape == (0,)
        assert solve(empty, xp.empty((0, 3))).shape == (0, 3)


def test_dtypes():
    a, single = [[2, 0], [0, 3]], np.eye(2, dtype=np.float32)
    for function in ALL:
        assert function(a).dtype == function(np.array(a, np.uint8)).dtype == np.float64
        assert function(np.array(a, np.float16)).dtype == np.float32
    for solve in SOLVERS:
        assert solve(single, np.ones(2, np.float32)).dtype == np.float32
        assert solve(single, np.ones(2)).dtype == np.float64
        assert solve(np.eye(2), np.ones(2, np.float32)).dtype == np.float64


@places([1, 2, 17, 131, 300], [1, 17, 63, 64, 65, 127, 128, 129, 513, 1000, 1537])
def test_factor_times_its_transpose_is_the_matrix(n, dtype, rng, xp):
    a = spd(n, rng, dtype=dtype)
    for upper in (a, np.nan):  # which is not read
        given = xp.asarray(np.where(np.tri(n, dtype=bool), a, upper))
        l = asnumpy(cholesky(given, check_finite=xp is not np))  # noqa: E741
        assert l.dtype == dtype
        assert not np.triu(l, 1).any()
        assert (l.diagonal() > 0).all()
        assert np.linalg.norm(l.astype(float) @ l.T - a) <= n * np.finfo(dtype).eps * np.linalg.norm(a)


@every
def test_any_strides_give_the_result_and_are_left_alone(function, rng, xp):
    a = INVERSES.get(function, spd)(23, rng)
    expected = (np.linalg.cholesky if function is cholesky else np.linalg.inv)(a)
    wide = xp.zeros((46, 69))
    wide[::2, ::3] = xp.asarray(a)
    turned = xp.ascontiguousarray(xp.asarray(a)[::-1, ::-1])[::-1, ::-1]
    for given in (wide[::2, ::3], turned):
        for options in ({}, {"overwrite_a": True})[: 1 + (function is not gets)]:
            np.testing.assert_allclose(asnumpy(function(given, **options)), expected, rtol=1e-9, atol=1e-11)
            np.testing.assert_array_equal(asnumpy(given), a)


@solvers
def test_any_strides_give_the_solution_and_are_left_alone(solve, rng, xp):
    a, b = SOLVERS[solve](23, rng), rng.standard_normal((23, 4))
    wide, deep = xp.zeros((46, 69)), xp.zeros((46, 12))
    wide[::2, ::3], deep[::2, ::3] = xp.asarray(a), xp.asarray(b)
    x = solve(wide[::2, ::3], deep[::2, ::3])
    np.testing.assert_allclose(asnumpy(x), np.linalg.solve(system(solve, a), b), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(asnumpy(wide[::2, ::3]), a)
    np.testing.assert_array_equal(asnumpy(deep[::2, ::3]), b)


@in_place
@pytest.mark.parametrize("order", "CF")
def test_overwriting_puts_the_result_where_the_matrix_was(function, order, monkeypatch):
    monkeypatch.setattr("deblur.linalg.gauss_jordan.BLOCK", 32)
    a = np.asarray(np.tri(600) * 1e-3 + np.eye(600), order=order)
    expected = function(a)
    assert expected.flags[f"{order}_CONTIGUOUS"]
    tracemalloc.start()
    result = function(a, overwrite_a=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result is a
    assert peak < 0.6 * a.nbytes  # no second matrix
    np.testing.assert_array_equal(a, expected)
    a.flags.writeable = False
    refused(ValueError, "leave out overwrite_a=True", function, a, overwrite_a=True)


@pytest.mark.gpu
@in_place
def test_overwriting_on_a_gpu_returns_the_matrix(function, rng, cupy):
    a = cupy.asarray(spd(200, rng))
    assert function(a, overwrite_a=True) is a


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_named(function, bad, rng, xp):
    a = lower(200, rng)
    for row, column in ((150, 20), (150, 150)):
        given = xp.array(a)
        given[row, column] = bad
        refused(ValueError, rf"holds 1 value.*\({row}, {column}\)", function, given)
    if xp is np and function is not gets:  # a result from 1/inf = 0 is none, either
        refused(SingularMatrixError, "pivot", function, np.diag([1.0, bad]), check_finite=False)


@solvers
def test_what_no_solver_takes_is_refused(solve):
    name = "a" if solve is gauss_jordan_solve else "l"
    spoilt = np.eye(3)
    spoilt[2, 1] = np.nan
    refused(ValueError, f"{name} holds 1 value", solve, spoilt, np.ones(3))
    refused(ValueError, "b holds 3", solve, np.eye(3), np.full(3, np.inf))
    for b in (np.ones(2), np.ones((2, 3)), np.ones((3, 1, 1)), 1.0):
        refused(ValueError, "b must have shape", solve, np.eye(3), b)


@pytest.mark.parametrize("function", [*ALL, *(lambda a, f=f: f(a, np.ones(3)) for f in (*SOLVERS, gauss_seidel))])
def test_what_is_not_a_real_square_matrix_is_refused(function):
    for a in (np.ones(3), np.ones((1, 3, 3))):
        refused(ValueError, "must be a matrix", function, a)
    refused(ValueError, "must be square", function, np.ones((3, 4)))
    refused(TypeError, "real numbers", function, np.array([["a"]]))


@places([19], [1, 40, 300, 700])
def test_a_pivot_that_fails_is_named(n, rng, xp):
    for i in {0, n // 3, n - 1}:
        a, l, zero, negative = general(n, rng), lower(n, rng), np.eye(n), spd(n, rng)  # noqa: E741
        a[i], a[:, i], l[i, i], zero[i, i], negative[i, i] = 0, 0, 0, 0, -1
        for function, *matrices in (
            (cholesky, zero, negative), (cholesky_inverse, zero, negative), (cholesky_solve, l), (gets, l),
            (gauss_jordan_inverse, a), (gauss_jordan_solve, a), (solve_triangular, l), (gauss_seidel, zero),
        ):  # fmt: skip
            for matrix, order in product(matrices, "CF"):
                b = (xp.ones(n),) if function in (*SOLVERS, gauss_seidel) else ()
                with pytest.raises(SingularMatrixError, match=rf"(pivot|entry) {i}\b") as caught:
                    function(xp.asarray(matrix, order=order), *b)
                assert caught.value.index == i
                assert function not in (cholesky, cholesky_inverse) or "positive definite" in str(caught.value)


@pytest.mark.parametrize("function", [gets, gauss_jordan_inverse])
def test_a_reciprocal_beyond_the_range_is_singular(function):
    with pytest.raises(SingularMatrixError) as caught:
        function([[1.0, 0.0], [0.0, 1e-310]])
    assert caught.value.index == 1


def test_overflow_in_the_result_is_an_error():
    """All pivots are fine; the entry -1/(1e-200)² of an inverse is not."""
    a, b = np.array([[1e-200, 0.0], [1.0, 1e-200]]), np.ones(2)
    for function, *arguments in (
        (gets, a),
        (gauss_jordan_inverse, a.T),
        (cholesky_inverse, np.diag([1.0, 1e-310])),
        (solve_triangular, a, b),
        (gauss_jordan_solve, a.T, b),
        (cholesky_solve, np.diag([1.0, 1e-200]), b),
        (gauss_seidel, 1e-200 * np.eye(2), 1e200 * b),
    ):
        with pytest.raises(SingularMatrixError, match="overflows") as caught:
            function(*arguments)
        assert caught.value.index is None


@pytest.mark.parametrize("scale", [1e-20, 1, 1e15])
def test_ill_conditioned_matrices_are_warned_of_as_scipy_does(rng, dtype, scale):
    eps, b = float(np.finfo(dtype).eps), np.ones(14, dtype)
    for condition, expected in ((1e-3 / eps, []), (1e4 / eps, [scipy.linalg.LinAlgWarning])):
        # Columns of falling size: rounding makes no pivot zero, whatever order the sums of a BLAS have.
        a = (general(14, rng, 1) * np.geomspace(scale, scale / condition, 14)).astype(dtype)
        diagonal = np.diag(np.geomspace(1, 1 / condition, 14) * scale).astype(dtype)
        diagonal[1, 0] = diagonal[0, 1] = 0.001 * scale
        l = np.tril(diagonal)  # noqa: E741
        for order in "CF":
            a, l = np.asarray(a, order=order), np.asarray(l, order=order)  # noqa: E741
            calls = {
                scipy.linalg.inv: (a,), gauss_jordan_inverse: (a,), gauss_jordan_solve: (a, b),
                cholesky_inverse: (diagonal,), gets: (l,), solve_triangular: (l, b),
                partial(gets, lower=False): (l.T,), partial(solve_triangular, lower=False): (l.T, b),
                partial(solve_triangular, trans=True): (l, b),
            }  # fmt: skip
            for function, arguments in calls.items():
                assert warned(partial(function, *arguments)) == expected, function
        root = np.sqrt(diagonal)
        assert warned(lambda root=root: cholesky_solve(root, b)) == expected
        for function in ALL:
            assert not warned(lambda f=function, a=diagonal: f(a, check_finite=False))
        assert not warned(lambda root=root: cholesky_solve(root, b, check_finite=False))


def test_no_warning_while_digits_are_left(rng, dtype):
    eps = float(np.finfo(dtype).eps)
    for a in (np.diag(np.tile([1, 1e3 * eps], 150)).astype(dtype), spd(150, rng, 0.03 / eps, dtype)):
        assert np.linalg.cond(a.astype(float), 1) < 0.5 / eps
        assert not warned(partial(gauss_jordan_solve, a, np.ones(len(a), dtype)))
        assert not warned(partial(cholesky_solve, cholesky(a), np.ones(len(a), dtype)))


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_scale_near_the_ends_of_the_range_changes_nothing_else(rng, dtype, sign):
    # A power of two, so that the scaled matrices have the same digits.
    power = sign * (np.finfo(dtype).maxexp - 8)
    a, b = lower(14, rng, dtype=dtype), rng.standard_normal((14, 3)).astype(dtype)
    q, r = (x.astype(dtype) for x in np.linalg.qr(rng.standard_normal((20, 14))))
    h, u = q @ r, rng.standard_normal((20, 2)).astype(dtype)
    calls = [(-power, lambda s: gets(s(a))), (-power, lambda s: cholesky_solve(s(a), s(b)))]
    m = np.eye(600, dtype=dtype) + dtype(0.5)  # its norm leaves the range
    calls += [(-power, lambda s: gauss_jordan_inverse(s(m))), (-power, lambda s: cholesky_inverse(s(m)))]
    calls += [(power, lambda s: np.matmul(*qr_insert(q, s(r), s(u), 3, "col")))]
    calls += [(0, lambda s: damped_qr(s(h), 0.0).solve(s(u))), (0, lambda s: solve_triangular(s(a), s(b)))]
    for by, call in calls:
        wanted, close = np.ldexp(call(lambda x: x).astype(float), by), 1e3 * np.finfo(dtype).eps
        np.testing.assert_allclose(call(lambda x: np.ldexp(x, power)), wanted, close, 1e-5 * abs(wanted).max())


def test_a_warning_names_the_condition_and_points_to_the_caller(rng):
    with pytest.warns(scipy.linalg.LinAlgWarning, match="reciprocal condition number") as seen:
        gauss_jordan_inverse(general(14, rng, 1e20))
    assert seen[0].filename == __file__

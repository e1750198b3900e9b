"""Conjugate gradients against direct solutions in float64."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from matrices import spd

from deblur.linalg.krylov import cg
from deblur.vector_ops import Systems


def by_columns(x, y):
    return (x * y).sum(axis=0)


def test_each_column_is_a_system_of_its_own(rng):
    a = spd(40, rng, 1e3)
    b = rng.standard_normal((40, 3)) * [1, 1e-6, 0]
    x, iterations, residual = cg(a.__matmul__, b, Systems(by_columns), rtol=1e-12, max_iterations=400)
    assert residual <= 1e-12
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-8, atol=1e-20)
    assert not x[:, 2].any()
    alone, *_ = cg(a.__matmul__, b[:, :1], Systems(by_columns), rtol=1e-12, max_iterations=iterations)
    np.testing.assert_allclose(alone, x[:, :1], rtol=1e-8)


def test_one_product_over_everything_minimises_the_error_of_the_whole(rng):
    # After k iterations x is the best of a Krylov space: a least-squares problem in the energy norm.
    a, b = spd(30, rng, 1e3), rng.standard_normal((2, 30))
    whole = scipy.linalg.block_diag(a, a)
    space = np.stack([np.linalg.matrix_power(whole, i) @ b.ravel() for i in range(4)], axis=1)
    root = scipy.linalg.sqrtm(whole).real
    best = space @ np.linalg.lstsq(root @ space, root @ np.linalg.solve(whole, b.ravel()))[0]
    x, iterations, _ = cg(lambda x: x @ a, b, Systems(np.vdot), rtol=0.0, max_iterations=4)
    assert iterations == 4
    np.testing.assert_allclose(x.ravel(), best, rtol=1e-7, atol=1e-9)


def test_preconditioner_and_start_save_iterations_and_change_nothing_else(rng):
    a = spd(60, rng, 1e6)
    b, start = rng.standard_normal((2, 60))
    kept = start.copy()
    near = np.linalg.inv(a + 1e-6 * np.eye(60))
    _, plain, _ = cg(a.__matmul__, b, Systems(np.vdot), rtol=1e-10, max_iterations=1000)
    x, iterations, _ = cg(a.dot, b, Systems(np.vdot), start, rtol=1e-10, max_iterations=1000, precondition=near.dot)
    assert iterations < plain / 5
    assert np.array_equal(start, kept)
    assert np.linalg.norm(b - a @ x) <= 1.1e-10 * np.linalg.norm(b)
    exact = np.linalg.solve(a, b)
    again, iterations, _ = cg(a.__matmul__, b, Systems(np.vdot), exact, rtol=1e-8, max_iterations=1000)
    assert iterations == 0
    assert np.array_equal(again, exact)


def test_measure_sees_every_step_and_decides_the_end(rng):
    a, b = spd(30, rng, 1e3), rng.standard_normal(30)
    exact = np.linalg.solve(a, b)
    seen = []

    def error(step):
        np.testing.assert_allclose(step.r, b - a @ step.x, atol=1e-12)
        e = step.x - exact
        seen.append((float(e @ a @ e), float(step.rz), step.x.copy(), step.alpha * step.p))
        return seen[-1][0]

    inverse = np.linalg.inv(a)
    _, iterations, residual = cg(
        a.__matmul__, b, Systems(np.vdot, error), rtol=1e-6, max_iterations=50,
        precondition=lambda r: r / np.diag(a),
    )  # fmt: skip
    assert len(seen) == iterations + 1
    assert residual == seen[-1][0] <= 1e-6 < seen[-2][0]
    assert all(after[0] <= before[0] for before, after in pairwise(seen))  # the energy norm falls
    for before, after in pairwise(seen):
        np.testing.assert_allclose(after[2] - before[2], after[3], rtol=1e-9, atol=1e-12)
    # With the inverse for a preconditioner <r, M r> is the squared error itself.
    seen.clear()
    cg(a.__matmul__, b, Systems(np.vdot, error), rtol=0.0, max_iterations=1, precondition=inverse.__matmul__)
    assert seen[0][1] == pytest.approx(seen[0][0], rel=1e-9)


def test_what_is_not_a_number_ends_the_iteration_and_is_reported(rng):
    a, b = np.eye(4), np.array([1.0, np.nan, 0, 0])
    with np.errstate(invalid="ignore"):
        _, iterations, residual = cg(a.__matmul__, b, Systems(np.vdot), rtol=1e-3, max_iterations=9)
    assert np.isnan(residual)
    assert iterations == 0


def test_float32_stays_float32(rng):
    a = spd(20, rng, 10).astype(np.float32)
    b = rng.standard_normal(20).astype(np.float32)
    x, _, residual = cg(a.__matmul__, b, Systems(lambda x, y: float(np.vdot(x, y))), rtol=1e-5, max_iterations=100)
    assert x.dtype == np.float32
    assert residual <= 1e-5

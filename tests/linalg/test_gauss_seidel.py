"""Gauss-Seidel against its definition row by row, and what it says about how it ended."""

from importlib import import_module

import numpy as np
import pytest
import scipy.linalg
from matrices import spd
from refusals import refused

from deblur.linalg import gauss_seidel
from deblur.linalg.gauss_seidel import STALL


def relative_residual(a, b, x):
    a, b, x = (array.astype(np.float64) for array in (a, b, x))
    return (np.linalg.norm(b - a @ x, axis=0) / np.linalg.norm(b, axis=0)).max()


def sweep_row_by_row(a, b, x, sweeps):
    """The textbook's loop: each row is solved for its unknown with the newest values of the others."""
    x = x.copy()
    for _ in range(sweeps):
        for i in range(len(a)):
            x[i] += (b[i] - a[i] @ x) / a[i, i]
    return x


@pytest.fixture(params=[None, "cg"])
def acceleration(request):
    return request.param


@pytest.mark.parametrize("columns", [None, 1, 3])
@pytest.mark.parametrize("block", [1, 4, 19, 100])
def test_blocked_sweeps_are_the_sweeps_of_the_definition(block, columns, rng, monkeypatch):
    monkeypatch.setattr(import_module("deblur.linalg.gauss_seidel"), "BLOCK", block)
    a = rng.standard_normal((19, 19)) + 12 * np.eye(19)
    b = rng.standard_normal(19 if columns is None else (19, columns))
    x0 = rng.standard_normal(b.shape)
    for sweeps in (0, 1, 3):
        x, info = gauss_seidel(a, b, x0, max_sweeps=sweeps, rtol=0.0)
        np.testing.assert_allclose(x, sweep_row_by_row(a, b, x0, sweeps), rtol=1e-12, atol=1e-14)
        assert info.sweeps == sweeps
        assert info.status == "max_sweeps"
        assert not info.converged
        np.testing.assert_allclose(info.relative_residual, relative_residual(a, b, x), rtol=1e-8)


@pytest.mark.parametrize("columns", [None, 1, 4])
@pytest.mark.parametrize("n", [1, 2, 17, 131])
def test_residual_asked_for_is_reached(n, columns, acceleration, rng):
    a = spd(n, rng)
    b = rng.standard_normal(n if columns is None else (n, columns))
    x, info = gauss_seidel(a, b, rtol=1e-10, acceleration=acceleration)
    assert x.shape == b.shape
    assert info.converged
    assert info.status == "converged"
    assert relative_residual(a, b, x) <= 1.0001e-10
    np.testing.assert_allclose(info.relative_residual, relative_residual(a, b, x), rtol=0.01)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-6, atol=1e-7)


def test_unsymmetric_diagonally_dominant_matrix(rng):
    a = rng.uniform(-1, 1, (50, 50))
    a[np.diag_indices(50)] = 60.0
    b = rng.standard_normal(50)
    x, info = gauss_seidel(a, b, rtol=1e-13)
    assert info.converged
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-10)


def test_conjugate_gradients_serve_where_sweeps_do_not():
    """A blur's matrix of condition 1e6: hundreds of iterations reach what as many sweeps are far from."""
    h = scipy.linalg.toeplitz(np.exp(-(np.arange(200.0) ** 2) / 8) / 5)
    a = h @ h.T + 1e-6 * np.eye(200)
    b = h @ np.sin(np.arange(200.0))
    x, info = gauss_seidel(a, b, rtol=1e-10, max_sweeps=800, acceleration="cg")
    assert info.converged
    assert relative_residual(a, b, x) <= 1.0001e-10
    _, plain = gauss_seidel(a, b, rtol=1e-10, max_sweeps=800)
    assert plain.status == "max_sweeps"
    assert plain.relative_residual > 1e-6
    assert "max_sweeps" in plain.reason


def test_preconditioner_is_the_symmetric_sweep(rng):
    """One accelerated step from zero goes along M⁻¹ b, M = K D⁻¹ Kᵀ, as far as its minimum."""
    a, b = spd(23, rng), rng.standard_normal(23)
    k = np.tril(a)
    direction = np.linalg.solve(k.T, np.diag(a) * np.linalg.solve(k, b))
    expected = direction * (b @ direction) / (direction @ a @ direction)
    x, info = gauss_seidel(a, b, max_sweeps=1, rtol=0.0, acceleration="cg")
    assert info.sweeps == 1
    np.testing.assert_allclose(x, expected, rtol=1e-10)


def test_a_good_start_is_used_and_kept(acceleration, rng):
    a = spd(30, rng)
    exact = rng.standard_normal(30)
    start = exact.copy()
    x, info = gauss_seidel(a, a @ exact, start, rtol=1e-9, acceleration=acceleration)
    assert info.converged
    assert info.sweeps == (1 if acceleration is None else 0)  # plain sweeps know the residual one late
    np.testing.assert_array_equal(start, exact)
    np.testing.assert_allclose(x, exact, rtol=1e-7)


def test_zero_right_hand_sides_have_the_solution_zero(acceleration, rng):
    a = spd(20, rng)
    x, info = gauss_seidel(a, np.zeros(20), rng.standard_normal(20), acceleration=acceleration)
    assert info.converged
    assert info.relative_residual == 0
    np.testing.assert_array_equal(x, 0)
    b = np.zeros((20, 2))
    b[:, 1] = 1
    x, info = gauss_seidel(a, b, rtol=1e-10, acceleration=acceleration)
    assert info.converged
    np.testing.assert_array_equal(x[:, 0], 0)
    np.testing.assert_allclose(a @ x[:, 1], 1, rtol=1e-8)


@pytest.mark.parametrize(("scale", "of_a"), [(1e-160, 1), (1e160, 1), (1, 1e304), (1, 1e-306)])
def test_scale_does_not_matter(scale, of_a, acceleration, rng):
    a, b = spd(20, rng), rng.standard_normal(20)
    x, info = gauss_seidel(of_a * a, scale * b, rtol=1e-10, acceleration=acceleration)
    assert info.converged
    np.testing.assert_allclose(x / (scale / of_a), np.linalg.solve(a, b), rtol=1e-7)


def test_every_column_has_to_converge(acceleration, rng):
    """A column a million times larger must not hide that the other is not there yet."""
    a = spd(50, rng, 1e3)
    b = rng.standard_normal((50, 2)) * [1e6, 1.0]
    x, info = gauss_seidel(a, b, rtol=1e-9, max_sweeps=20000, acceleration=acceleration)
    assert info.converged
    assert relative_residual(a, b, x) <= 1.001e-9


def test_a_first_sweep_beyond_the_range_is_divergence():
    _, info = gauss_seidel(1e-20 * np.eye(40) + np.tri(40), np.ones(40), np.full(40, 1e300), max_sweeps=1)
    assert info.status == "diverged"


def test_divergence_is_reported(rng):
    a = np.array([[1.0, 3.0], [3.0, 1.0]])
    with np.errstate(all="raise"):
        _, info = gauss_seidel(a, np.ones(2), max_sweeps=10_000)
    assert info.status == "diverged"
    assert not info.converged
    assert info.relative_residual > 1
    assert "diverges" in info.reason
    _, info = gauss_seidel(np.array([[1e-160, 1.0], [1.0, 1e-160]]), np.ones(2), max_sweeps=10_000)
    assert info.status == "diverged"


def test_residual_out_of_reach_is_stagnation(acceleration, rng):
    """Rounding leaves about eps of the residual, whatever one asks for."""
    a, b = spd(40, rng), rng.standard_normal(40)
    _, info = gauss_seidel(a, b, rtol=1e-18, max_sweeps=100_000, acceleration=acceleration)
    assert info.status == "stagnated"
    assert not info.converged
    assert info.sweeps < 10 * STALL
    assert info.relative_residual <= 1e-13
    assert "no longer falls" in info.reason


def test_conjugate_gradients_give_up_in_time_on_a_hopeless_matrix():
    """Hilbert's matrix of order 12 is singular to rounding: nothing is gained after some n steps."""
    _, info = gauss_seidel(scipy.linalg.hilbert(12), np.ones(12), max_sweeps=50_000, acceleration="cg")
    assert info.status in ("stagnated", "indefinite")
    assert info.sweeps < 20 * STALL


def test_inconsistent_system_is_not_called_solved():
    a = np.array([[1.0, 1.0], [1.0, 1.0]])
    _, info = gauss_seidel(a, np.array([1.0, 0.0]), max_sweeps=10_000)
    assert info.status == "stagnated"
    _, info = gauss_seidel(a, np.array([1.0, 0.0]), max_sweeps=10_000, acceleration="cg")
    assert (info.status, info.converged) == ("indefinite", False)


def test_indefinite_matrix_is_reported_by_conjugate_gradients():
    _, info = gauss_seidel(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([1.0, -1.0]), acceleration="cg")
    assert (info.status, info.converged) == ("indefinite", False)
    assert "not positive definite" in info.reason


def test_float32_converges_and_its_residual_is_measured_in_float64(acceleration, rng):
    a, b = spd(60, rng).astype(np.float32), rng.standard_normal(60).astype(np.float32)
    x, info = gauss_seidel(a, b, rtol=1e-5, acceleration=acceleration)
    assert (x.dtype, info.converged) == (np.float32, True)
    np.testing.assert_allclose(info.relative_residual, relative_residual(a, b, x), rtol=1e-9)
    x, info = gauss_seidel(a, b, rtol=1e-12, max_sweeps=100_000, acceleration=acceleration)
    assert info.status == "stagnated"
    np.testing.assert_allclose(info.relative_residual, relative_residual(a, b, x), rtol=1e-9)


def test_default_tolerance_is_the_root_of_eps(acceleration, rng):
    a, b = spd(30, rng), rng.standard_normal(30)
    for dtype in (np.float32, np.float64):
        _, info = gauss_seidel(a.astype(dtype), b.astype(dtype), acceleration=acceleration)
        assert info.converged
        assert 1e-3 <= info.relative_residual / np.finfo(dtype).eps ** 0.5 <= 1


def test_callback_hears_of_every_sweep(acceleration, rng):
    a, b = spd(30, rng), rng.standard_normal(30)
    heard = []
    _, info = gauss_seidel(a, b, rtol=1e-8, acceleration=acceleration, callback=lambda *x: heard.append(x))
    sweeps, residuals = zip(*heard)
    assert sweeps == tuple(range(1, len(heard) + 1))
    assert len(heard) in (info.sweeps - 1, info.sweeps)
    assert residuals[-1] <= 1e-8
    if acceleration is None:  # one sweep late, but true
        x, _ = gauss_seidel(a, b, rtol=0.0, max_sweeps=4)
        np.testing.assert_allclose(residuals[3], relative_residual(a, b, x), rtol=1e-9)


def test_empty_system(acceleration):
    for n, shape in ((0, (0,)), (3, (3, 0))):
        x, info = gauss_seidel(np.eye(n), np.empty(shape), acceleration=acceleration)
        assert (x.shape, info.converged) == (shape, True)


def test_acceleration_refuses_what_it_cannot_serve(rng):
    a = spd(300, rng)
    a[280, 3] += 1e-3
    refused(ValueError, r"symmetric matrix.*0\.001", gauss_seidel, a, np.ones(300), acceleration="cg")
    refused(ValueError, "diagonal entry 1 is -2", gauss_seidel, np.diag([1.0, -2.0]), np.ones(2), acceleration="cg")


def test_bad_input_is_refused():
    a, b = np.eye(3), np.ones(3)
    for bad in (np.ones(3), np.ones((3, 4))):
        refused(ValueError, "must be a matrix|must be square", gauss_seidel, bad, b)
    refused(ValueError, "b must have shape", gauss_seidel, a, np.ones(4))
    refused(ValueError, "x0 must have", gauss_seidel, a, b, np.ones(4))
    refused(ValueError, "x0 must have", gauss_seidel, a, b, np.ones((3, 1)))
    refused(ValueError, "x0 holds 1", gauss_seidel, a, b, [0.0, np.nan, 0.0])
    refused(ValueError, "a holds 1", gauss_seidel, [[np.inf]], [1.0])
    refused(ValueError, "b holds 1", gauss_seidel, [[1.0]], [np.nan])
    for rtol in (-1.0, np.nan, np.inf):
        refused(ValueError, "rtol", gauss_seidel, a, b, rtol=rtol)
    refused(ValueError, "max_sweeps", gauss_seidel, a, b, max_sweeps=-1)
    refused(ValueError, "unknown acceleration 'sor'; choose one of cg", gauss_seidel, a, b, acceleration="sor")

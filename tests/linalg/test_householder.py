"""Householder reflections: invariants at every scale, against the formulas written out."""

import numpy as np
import pytest

from deblur.device import get_xp
from deblur.linalg import apply_householder, householder


def written_out(v, tau):
    return apply_householder(v, tau, get_xp(v).eye(len(v), dtype=v.dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 2, 3, 17, 64, 101])
def test_zeroes_all_but_the_first_entry(xp, rng, m, dtype):
    x = xp.asarray(rng.standard_normal(m), dtype=dtype)
    v, tau, mu = householder(x)
    p = written_out(v, tau)
    eps = float(np.finfo(dtype).eps)
    assert v.dtype == dtype
    assert float(v[0]) == 1
    assert float(abs(p @ p.T - xp.eye(m)).max()) <= 20 * eps
    wanted = xp.zeros(m)
    wanted[0] = mu
    assert float(abs(p @ x - wanted).max()) <= 20 * eps * float(xp.linalg.norm(x))
    if m > 1:
        assert mu * float(x[0]) < 0
        assert 1 <= tau <= 2


@pytest.mark.parametrize("scale", [1e-308, 1e-300, 1e-160, 1e160, 1e300])
def test_neither_overflows_nor_underflows(scale, rng):
    x = rng.standard_normal(9)
    v, tau, mu = householder(x)
    v_scaled, tau_scaled, mu_scaled = householder(x * scale)
    # Denormal input has lost digits of its own; everything else is the same reflection.
    tolerance = 1e-6 if scale < 1e-307 else 1e-14
    assert np.abs(v - v_scaled).max() <= tolerance
    assert abs(tau - tau_scaled) <= tolerance
    assert abs(mu_scaled / scale - mu) <= tolerance * abs(mu)


def test_float32_beyond_the_square_root_of_its_range():
    v, tau, mu = householder(np.array([3e30, 4e30], np.float32))
    assert abs(mu / -5e30 - 1) <= 1e-6
    assert abs(tau - 1.6) <= 1e-6
    assert abs(v[1] - 0.5) <= 1e-6


def test_the_norm_may_be_infinite_where_it_has_no_number():
    assert householder(np.full(4, 1.5e308))[2] == -np.inf


def test_nearly_parallel_to_the_axis_does_not_cancel():
    # With the other sign, x[0] - mu would be rounded to zero and v to infinity.
    x = np.array([1.0, 1e-12])
    v, tau, mu = householder(x)
    assert np.isfinite(v).all()
    assert abs(apply_householder(v, tau, x)[1]) <= 1e-27
    assert mu < 0


@pytest.mark.parametrize("x", [[5.0], [-5.0, 0.0, 0.0], [0.0, 0.0]])
def test_nothing_to_zero_is_the_identity(x):
    v, tau, mu = householder(np.array(x))
    assert tau == 0
    assert mu == x[0]
    assert np.array_equal(written_out(v, tau), np.eye(len(x)))


@pytest.mark.parametrize("dtype", [int, float])
def test_input_is_left_alone_and_may_be_integers_or_a_view(dtype):
    x = np.arange(10, dtype=dtype)[::-2]
    before = x.copy()
    v, tau, _ = householder(x)
    assert v.dtype == np.float64
    assert np.array_equal(x, before)
    assert np.abs(apply_householder(v, tau, x)[1:]).max() <= 1e-14


def test_applied_from_either_side_it_is_the_matrix(xp, rng):
    v, tau, _ = householder(xp.asarray(rng.standard_normal(7)))
    p = xp.eye(7) - tau * xp.outer(v, v)
    a, c = xp.asarray(rng.standard_normal((7, 5))), xp.asarray(rng.standard_normal((3, 7)))
    assert float(abs(apply_householder(v, tau, a) - p @ a).max()) <= 1e-14
    assert float(abs(apply_householder(v, tau, c, side="right") - c @ p).max()) <= 1e-14
    assert float(abs(apply_householder(v, tau, a[:, 0], side="right") - p @ a[:, 0]).max()) <= 1e-14


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        ([], ValueError, "non-empty"),
        ([[1.0, 2.0]], ValueError, "shape"),
        ([1.0, np.nan], ValueError, "NaN"),
        ([1.0, np.inf], ValueError, "infinite"),
    ],
)
def test_bad_vectors_are_refused(x, error, words):
    with pytest.raises(error, match=words):
        householder(np.array(x))


def test_lengths_and_sides_must_agree():
    with pytest.raises(ValueError, match="left"):
        apply_householder(np.ones(3), 1.0, np.ones((4, 3)))
    with pytest.raises(ValueError, match="side"):
        apply_householder(np.ones(3), 1.0, np.ones((3, 3)), side="both")

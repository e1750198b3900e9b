"""QR updating against SciPy's own routines, errors included, and against the definition: QR = A, QᵀQ = I."""

from functools import partial

import numpy as np
import pytest
import scipy.linalg
from refusals import refused
from scipy.linalg import LinAlgError

from deblur import linalg
from deblur.device import asnumpy as host
from deblur.linalg import qr_delete, qr_insert, qr_insert_delete, qr_update, sweeps

SHAPES = [(1, 1), (3, 1), (1, 3), (5, 5), (9, 4), (4, 9), (13, 11)]


@pytest.fixture(params=["blocks", "small blocks", "as measured"])
def route(request, monkeypatch):
    """Our sweeps at every p, also with blocks so small that there are many; and the mixture with SciPy's."""
    if request.param != "as measured":
        monkeypatch.setattr(qr_insert_delete, "rotations_are_faster", lambda *_: False)
    if request.param == "small blocks":
        monkeypatch.setattr(sweeps, "BLOCK", 3)
        monkeypatch.setattr(sweeps, "PANEL", 2)


def check(factors, a, tolerance=1e-13):
    q, r = (host(x) for x in factors)
    size = max(1.0, np.abs(a).max(initial=0)) * max(*a.shape, 1)
    assert q.shape[1] == r.shape[0]
    assert q.shape[0] in (a.shape[0], r.shape[0])
    assert q.dtype == r.dtype == a.dtype
    assert np.abs(q.T @ q - np.eye(q.shape[1])).max(initial=0) <= tolerance * size
    assert np.abs(q @ r - a).max(initial=0) <= tolerance * size
    assert np.abs(np.tril(r, -1)).max(initial=0) == 0


def outcome(call):
    try:
        return call()
    except Exception as error:
        return error


def compare(name, arguments, a):
    """The same error as SciPy's function of that name, or factors of the same shapes that are right."""
    ours, theirs = (outcome(partial(getattr(place, name), *arguments)) for place in (linalg, scipy.linalg))
    if isinstance(ours, Exception) or isinstance(theirs, Exception):
        assert type(ours) is type(theirs), f"{ours!r} where SciPy has {theirs!r}"
        return
    assert [x.shape for x in ours] == [x.shape for x in theirs]
    check(ours, a())


@pytest.mark.parametrize(
    ("m", "n", "mode"), [(m, n, mode) for m, n in SHAPES for mode in ("full", "economic")[: 1 + (m > n)]]
)
def test_every_position_and_size_as_scipy_has_it(route, rng, m, n, mode):
    a = rng.standard_normal((m, n))
    q, r = scipy.linalg.qr(a, mode=mode)
    for k in range(-max(m, n) - 1, max(m, n) + 2):
        for p in (-1, 0, 1, 2, 6):
            rows, columns = slice(k % m, k % m + p), slice(k % n, k % n + p)
            # SciPy leaves a Q of shape (0, 1) when all three rows of its one-column case go.
            if not (mode == "economic" and n == 1 and p == m):
                compare("qr_delete", (q, r, k, p), partial(np.delete, a, rows, 0))
            compare("qr_delete", (q, r, k, p, "col"), partial(np.delete, a, columns, 1))
            if p < 1:
                continue
            u, v = rng.standard_normal((p, n)), rng.standard_normal((m, p))
            compare("qr_insert", (q, r, u, k), partial(np.insert, a, [k] * p, u, 0))
            compare("qr_insert", (q, r, v, k, "col"), partial(np.insert, a, [k] * p, v, 1))


Q, R = scipy.linalg.qr(np.vander(np.arange(1.0, 6), 3))
E, T = scipy.linalg.qr(np.vander(np.arange(1.0, 6), 3), mode="economic")
ROW = np.ones(3)


wrong = {
    "qr_insert": [
        (Q, R, ROW, 0, "diagonal"),
        (Q, R, ROW, 6),
        (Q, R, ROW, -6),
        (Q, R, np.ones(4), 0),
        (Q, R, np.ones((2, 4)), 0),
        (Q, R, ROW.astype(np.float32), 0),
        (Q, R, np.ones(3, int), 0),
        (Q, R, ROW * np.nan, 0),
        (Q + np.inf, R, ROW, 0),
        (Q, R * np.nan, ROW, 0),
        (Q, R, ROW, 0, "row", 1e-3),
        (Q, R, np.ones(5), 0, "col", 1e-3),
        (Q, R, np.ones(4), 0, "col"),
        (Q, R, np.ones(5), 4, "col"),
        (Q, R.astype(np.float32), ROW, 0),
        (Q.astype(int), R.astype(int), ROW, 0),
        (Q, T, ROW, 0),
        (E, R, ROW, 0),
        (Q[0], R, ROW, 0),
        (E, T, np.eye(5)[:, :1] * 0 + E[:, :1], 0, "col", 0.5),
        (E, T, E @ np.ones((3, 1)), 1, "col", 1e-3),
        (E.T, R, ROW, 0),
    ],
    "qr_delete": [
        (Q, R, 5),
        (Q, R, -6),
        (Q, R, 3, 1, "col"),
        (Q, R, 0, 0),
        (Q, R, 2, 4),
        (Q, R, 0, -1),
        (Q, R, 0, 4, "col"),
        (Q, R, 0, 1, "both"),
        (Q * np.nan, R, 0),
        (Q, R + np.inf, 0),
        (Q, R.astype(np.float32), 0),
        (Q[:4], R, 0),
        (E, R, 0),
        (Q.ravel(), R, 0),
    ],
}


@pytest.mark.parametrize(("name", "arguments"), [(name, one) for name, all in wrong.items() for one in all])
def test_what_scipy_refuses_is_refused(route, name, arguments):
    theirs = outcome(partial(getattr(scipy.linalg, name), *arguments))
    assert isinstance(theirs, Exception)
    refused(type(theirs), ".", getattr(linalg, name), *arguments)


def test_the_texts_name_the_value():
    refused(ValueError, "k = 7", qr_delete, Q, R, 7)
    refused(ValueError, "p = 9", qr_delete, Q, R, 0, 9)
    refused(ValueError, r"\(4,\)", qr_insert, Q, R, np.ones(4), 0)
    refused(ValueError, "k must be a whole number .*1.5", qr_insert, Q, R, ROW, 1.5)  # SciPy cuts 1.5 down to 1
    refused(ValueError, "p must be a positive whole number, not 1.5", qr_delete, Q, R, 0, 1.5)
    refused(LinAlgError, "span", qr_insert, E, T, E @ np.ones((3, 40)), 1, "col", 1e-3)


@pytest.mark.parametrize("mode", ["full", "economic"])
@pytest.mark.parametrize(("m", "n", "p"), [(300, 150, 1), (300, 150, 70), (301, 40, 129), (150, 149, 33)])
def test_blocks_larger_than_a_block(xp, rng, m, n, p, mode, dtype):
    a = rng.standard_normal((m, n)).astype(dtype)
    q, r = (xp.asarray(x) for x in scipy.linalg.qr(a, mode=mode))
    tolerance = 20 * np.finfo(dtype).eps
    before = q.copy(), r.copy()
    for k in (0, m // 3, m):
        u = rng.standard_normal((p, n)).astype(dtype)
        check(qr_insert(q, r, xp.asarray(u), k), np.insert(a, [k] * p, u, 0), tolerance)
    for k in (0, m // 3, m - p):
        check(qr_delete(q, r, k, p), np.delete(a, slice(k, k + p), 0), tolerance)
    for k in (0, n // 3, n):
        u = rng.standard_normal((m, p)).astype(dtype)
        check(qr_insert(q, r, xp.asarray(u), k, "col"), np.insert(a, [k] * p, u, 1), tolerance)
    gone = min(p, n // 2)
    for k in (0, n // 3, n - gone):
        check(qr_delete(q, r, k, gone, "col"), np.delete(a, slice(k, k + gone), 1), tolerance)
    assert bool((q == before[0]).all())
    assert bool((r == before[1]).all())


def test_the_triangle_is_that_of_a_fresh_factorisation_up_to_signs(route, rng):
    a = rng.standard_normal((60, 25))
    q, r = scipy.linalg.qr(a, mode="economic")
    for _ in range(20):
        p = int(rng.integers(1, 6))
        m, n = a.shape
        u, v = rng.standard_normal((p, n)), rng.standard_normal((m, p))
        k, kc = int(rng.integers(m + 1)), int(rng.integers(n + 1))
        match int(rng.integers(4)):
            case 0:
                (q, r), a = qr_insert(q, r, u, k), np.insert(a, [k] * p, u, 0)
            case 1 if n + p < m:
                (q, r), a = qr_insert(q, r, v, kc, "col"), np.insert(a, [kc] * p, v, 1)
            case 2 if m - p > n and k + p <= m:
                (q, r), a = qr_delete(q, r, k, p), np.delete(a, slice(k, k + p), 0)
            case 3 if kc + p <= n:
                (q, r), a = qr_delete(q, r, kc, p, "col"), np.delete(a, slice(kc, kc + p), 1)
        fresh = np.linalg.qr(a, mode="r")
        assert np.abs(np.abs(r) - np.abs(fresh)).max() <= 1e-11 * np.linalg.cond(a)
        check((q, r), a, 1e-12)


@pytest.mark.parametrize("mode", ["full", "economic"])
def test_down_to_nothing(xp, route, rng, mode, capfd):
    a = rng.standard_normal((6, 4))
    q, r = (xp.asarray(x) for x in scipy.linalg.qr(a, mode=mode))
    for n in (3, 2, 1, 0):
        q, r = qr_delete(q, r, 0, which="col")
        check((q, r), a[:, 4 - n :])
    for u in (a[:, :1], np.hstack([a, a])):
        check(qr_insert(q, r, xp.asarray(u), 0, "col"), u)
    assert capfd.readouterr() == ("", "")  # of BLAS
    q, r = (xp.asarray(x) for x in scipy.linalg.qr(a, mode="full"))
    for m in (4, 2, 1, 0):
        q, r = qr_delete(q, r, 0, len(q) - m)
        check((q, r), a[6 - m :])


def test_rows_that_q_holds_alone(xp, route, rng):
    # A unit row of Q: e_k lies in the span of Q, its complement is nothing but rounding, and what remains is
    # singular. SciPy gives up on some of these ("Reorthogonalization Failed"); Q must stay orthonormal.
    a = rng.standard_normal((30, 20))
    a[5], a[6] = 0, 0
    a[:, 3], a[:, 4] = 0, 0
    a[5, 3], a[6, 4] = 2.0, 3.0
    q, r = (xp.asarray(x) for x in scipy.linalg.qr(a, mode="economic"))
    for k, p in ((5, 1), (5, 2), (4, 4)):
        check(qr_delete(q, r, k, p), np.delete(a, slice(k, k + p), 0))
    # What is left outside the span of unit vectors is exactly zero, and has no direction.
    q, r = xp.eye(30, 20), xp.asarray(np.triu(a[:20]))
    check(qr_delete(q, r, 0, 5), np.delete(host(q @ r), slice(5), 0))


def test_nearly_dependent_columns_stay_orthonormal(xp, rng):
    a = rng.standard_normal((40, 20))
    q, r = (xp.asarray(x) for x in scipy.linalg.qr(a, mode="economic"))
    for size in (1e-6, 1e-12):
        u = a[:, :19] + size * rng.standard_normal((40, 19))
        check(qr_insert(q, r, xp.asarray(u), 7, "col", rcond=0.0), np.insert(a, [7] * 19, u, 1))
    u = np.hstack([a[:, :18], a[:, :1]])  # exactly dependent
    check(qr_insert(q, r, xp.asarray(u), 7, "col", rcond=0.0), np.insert(a, [7] * 19, u, 1))
    # The same for few columns, where SciPy would leave Q with a column of zeros.
    for u in (a[:, 3:4], a[:, :2] @ np.ones((2, 1)), np.zeros((40, 1)), a[:, 2:5]):
        check(qr_insert(q, r, xp.asarray(u), 7, "col", rcond=0.0), np.insert(a, [7] * u.shape[1], u, 1))


def test_layouts(xp, route, rng):
    a = rng.standard_normal((40, 20))
    q, r = (xp.asarray(x) for x in scipy.linalg.qr(a, mode="economic"))
    wide = xp.zeros((80, 40))
    wide[::2, ::2] = q
    for one in (q, xp.asfortranarray(q), wide[::2, ::2]):
        for two in (r, xp.asfortranarray(r)):
            check(qr_delete(one, two, 4, 9), np.delete(a, slice(4, 13), 0))
            check(qr_delete(one, two, 4, 9, "col"), np.delete(a, slice(4, 13), 1))


def test_complex_numbers_are_refused():
    for arrays in ((Q * 1j, R, ROW), (Q, R * 1j, ROW), (Q, R, ROW * 1j)):
        refused(ValueError, "float64, not complex128|not float64 and complex128", qr_insert, *arrays, 2)
    refused(ValueError, "not complex128 and float64", qr_delete, Q * 1j, R, 2)


def test_hidden_values_are_refused_and_a_mask_of_nothing_passes():
    refused(TypeError, "u is a masked array with 3 hidden", qr_insert, Q, R, np.ma.masked_greater(ROW, 0), 2)
    refused(TypeError, "Q is a masked array", qr_delete, np.ma.masked_less(Q, 0), R, 2)
    np.testing.assert_equal(qr_insert(np.ma.array(Q), R, np.ma.array(ROW), 2), qr_insert(Q, R, ROW, 2))


@pytest.mark.parametrize("dtype", [">f4", ">f8", "<f4", "<f8"])
@pytest.mark.parametrize("which", ["row", "col"])
def test_any_byte_order_is_taken_as_scipy_takes_it(dtype, which):
    q, r = Q.astype(dtype), R.astype(dtype)
    u = np.ones(3 if which == "row" else 5, dtype)
    ours = (qr_insert(q, r, u, 1, which), qr_delete(q, r, 1, 1, which))
    native = np.dtype(dtype).newbyteorder("=")
    again = [x.astype(native) for x in (q, r, u)]
    theirs = (qr_insert(*again, 1, which), qr_delete(*again[:2], 1, 1, which))
    for one, two in zip(sum(ours, ()), sum(theirs, ()), strict=True):
        assert one.dtype == native
        assert one.dtype.isnative
        np.testing.assert_array_equal(one, two)


# ---------------------------------------------------------------- the parts


@pytest.mark.parametrize(("t", "p", "s"), [(1, 1, 0), (64, 1, 2), (65, 7, 0), (150, 70, 3), (10, 200, 1)])
def test_sweeps_are_orthogonal_and_annihilate(xp, rng, t, p, s):
    m = t + p
    r = np.hstack([np.triu(rng.standard_normal((t, t))), rng.standard_normal((t, s))])
    for sweep in ("down", "up"):
        basis = np.linalg.qr(rng.standard_normal((m, m)))[0]
        if sweep == "down":
            top, low = r, rng.standard_normal((p, t + s))
            a, b, q, e = (xp.asarray(x.copy()) for x in (top, low, basis[:, :t], basis[:, t:]))
            sweeps.sweep_down(a, b, q, e)
            assert float(abs(b[:, :t]).max()) == 0
        else:
            top, low = r, np.hstack([np.zeros((p, t)), rng.standard_normal((p, s))])
            c, z = np.triu(rng.standard_normal((p, p))), rng.standard_normal((t, p))
            a, b, q, e, c1 = (xp.asarray(x.copy()) for x in (top, low, basis[:, :t], basis[:, t:], c))
            sweeps.sweep_up(c1, xp.asarray(z.copy()), b, a, e, q)
            c1 = host(c1)
            assert np.abs(np.tril(c1, -1)).max(initial=0) == 0
            # Hᵀ [c; z] = [c̃; 0] and the basis went the same way: [e q] [c̃; 0] is [e q] [c; z] of before.
            before = basis[:, t:] @ c + basis[:, :t] @ z
            assert np.abs(host(e) @ c1 - before).max() <= 1e-12 * m
        a, b, q, e = (host(x) for x in (a, b, q, e))
        assert np.abs(np.tril(a[:, :t], -1)).max(initial=0) == 0
        after = np.hstack([q, e])
        assert np.abs(after.T @ after - np.eye(m)).max() <= 1e-13 * m
        assert np.abs(q @ a + e @ b - basis[:, :t] @ top - basis[:, t:] @ low).max() <= 1e-12 * m


def test_complement_of_what_lies_inside(xp, rng):
    q = np.linalg.qr(rng.standard_normal((50, 20)))[0]
    outside = rng.standard_normal((50, 3))
    u = np.hstack([q[:, :4] @ rng.standard_normal((4, 2)), outside, 1e-9 * outside[:, :1] + q[:, :1]])
    qx, ux = xp.asarray(q), xp.asarray(u)
    s, w, c = (host(x) for x in qr_update.complement(ux, qx.__matmul__, qx.T.__matmul__))
    assert np.abs(q @ s + w @ c - u).max() <= 1e-13
    assert np.abs(np.tril(c, -1)).max() == 0
    both = np.hstack([q, w])
    assert np.abs(both.T @ both - np.eye(26)).max() <= 1e-14
    broken = xp.asarray(q * 1.5)
    refused(LinAlgError, "orthonormal", qr_update.complement, ux, broken.__matmul__, broken.T.__matmul__, exact=False)
    # With products that are only nearly those of one orthonormal Q, what each round finds is added to S.
    near = xp.asarray((q + 1e-7 * rng.standard_normal(q.shape)).T)
    s, w, c = (host(x) for x in qr_update.complement(ux, qx.__matmul__, near.__matmul__, exact=False))
    assert np.abs(q @ s + w @ c - u).max() <= 1e-13

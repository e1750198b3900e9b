"""Least squares: the normal equations of the answer, its norm, its rank; the damped problem densely."""

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refused

from deblur.errors import SingularMatrixError
from deblur.linalg import damped_qr, lstsq


def deficient(m, n, rank, rng, batch=()):
    return rng.standard_normal((*batch, m, rank)) @ rng.standard_normal((*batch, rank, n))


def host(a):
    return a.get() if hasattr(a, "get") else np.asarray(a)


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
@pytest.mark.parametrize(
    ("m", "n", "rank"),
    [
        (1, 1, 1),
        (17, 5, 5),
        (17, 5, 2),
        (12, 12, 12),
        (12, 12, 7),
        (5, 17, 5),
        (5, 17, 3),
        (6, 4, 0),
        (40, 33, 20),
    ],
)
def test_is_the_pseudoinverse_solution(xp, rng, m, n, rank, batch):
    a = deficient(m, n, rank, rng, batch)
    b = rng.standard_normal((*batch, m, 3))
    wanted = np.linalg.pinv(a, rtol=1e-12) @ b
    x, residual, found = lstsq(xp.asarray(a), xp.asarray(b), rcond=1e-12)
    assert x.shape == wanted.shape
    assert np.abs(host(x) - wanted).max() <= 1e-9 * max(1, np.abs(wanted).max())
    assert (host(found) == rank).all()
    assert residual.shape == (*batch, 3)
    assert np.abs(host(residual) - np.linalg.norm(b - a @ wanted, axis=-2)).max() <= 1e-9
    one, residual, _ = lstsq(xp.asarray(a), xp.asarray(b[..., 0]), rcond=1e-12)
    assert np.abs(host(one) - wanted[..., 0]).max() <= 1e-9 * max(1, np.abs(wanted).max())
    assert residual.shape == batch


def test_one_bad_matrix_does_not_touch_its_neighbours(xp, rng):
    a = rng.standard_normal((5, 9, 4))
    a[2, :, 3] = a[2, :, 0]
    a[4] = 0
    b = rng.standard_normal((5, 9))
    x, _, rank = lstsq(xp.asarray(a), xp.asarray(b))
    assert host(rank).tolist() == [4, 4, 3, 4, 0]
    for i in range(5):
        assert np.abs(host(x)[i] - np.linalg.lstsq(a[i], b[i], rcond=None)[0]).max() <= 1e-12


def test_a_hidden_deficiency_is_found(xp):
    # Triangular already, ones on the diagonal, and a smallest singular value of about 2^-48.
    n = 50
    a = np.eye(n) - np.triu(np.ones((n, n)), 1)
    b = np.ones(n)
    x, _, rank = lstsq(xp.asarray(a), xp.asarray(b), rcond=1e-10)
    assert rank == n - 1
    assert np.abs(host(x) - np.linalg.pinv(a, rtol=1e-10) @ b).max() <= 1e-10


def test_float32_and_integers(xp, rng):
    a, b = rng.standard_normal((30, 7)), rng.standard_normal(30)
    x, _, rank = lstsq(xp.asarray(a, dtype=np.float32), xp.asarray(b, dtype=np.float32))
    assert x.dtype == np.float32
    assert rank == 7
    assert np.abs(host(x) - np.linalg.lstsq(a, b, rcond=None)[0]).max() <= 1e-5
    assert lstsq(xp.asarray([[2, 0], [0, 4]]), xp.asarray([2, 4])).x.tolist() == [1.0, 1.0]


def test_deficient_may_be_an_error_that_gives_the_rank(xp, rng):
    a = xp.asarray(deficient(9, 6, 4, rng))
    with pytest.raises(SingularMatrixError, match="rank 4") as caught:
        lstsq(a, xp.ones(9), on_deficient="raise")
    assert caught.value.index == 4
    stack = xp.asarray(np.stack([rng.standard_normal((9, 6)), deficient(9, 6, 4, rng)]))
    refused(SingularMatrixError, "1 fail", lstsq, stack, xp.ones((2, 9)), on_deficient="raise")
    assert lstsq(stack[:1], xp.ones((1, 9)), on_deficient="raise").rank.tolist() == [6]


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 2), (3, 0, 2), (0, 0, 1), (4, 3, 0)])
def test_empty(xp, m, n, k):
    x, residual, rank = lstsq(xp.ones((m, n)), xp.ones((m, k)))
    assert x.shape == (n, k)
    assert residual.shape == (k,)
    assert rank == (1 if m and n else 0)
    if k and not n:
        assert float(residual[0]) == pytest.approx(np.sqrt(m))


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "words"),
    [
        (np.ones((3, 2)), np.ones(2), {}, ValueError, "belong"),
        (np.ones(3), np.ones(3), {}, ValueError, "matrix"),
        (np.ones((2, 3, 2)), np.ones((3, 3)), {}, ValueError, "belong"),
        (np.full((3, 2), np.nan), np.ones(3), {}, ValueError, "NaN"),
        (np.ones((3, 2)), np.full(3, np.inf), {}, ValueError, "b holds"),
        (np.ones((3, 2)), np.ones(3), {"rcond": -1}, ValueError, "rcond"),
        (np.ones((3, 2)), np.ones(3), {"on_deficient": "warn"}, ValueError, "on_deficient"),
    ],
)
def test_bad_input_is_refused(xp, a, b, options, error, words):
    refused(error, words, lstsq, xp.asarray(a), xp.asarray(b), **options)


def blur_matrix(rows, cols, psf):
    """A zero-boundary blur as a sum of shifts: Kronecker products of shifted identities."""
    return sp.csr_array(
        sum(
            psf[a, b] * sp.kron(sp.eye(rows, k=psf.shape[0] // 2 - a), sp.eye(cols, k=psf.shape[1] // 2 - b))
            for a in range(psf.shape[0])
            for b in range(psf.shape[1])
        )
    )


def on(xp, h):
    if xp is np:
        return h
    if not sp.issparse(h):
        return xp.asarray(h)
    import cupyx.scipy.sparse

    return cupyx.scipy.sparse.csr_matrix(sp.csr_matrix(h))


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("lam", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize(
    ("shape", "psf"), [((1, 1), (1, 1)), ((17, 19), (5, 4)), ((23, 7), (3, 5)), ((12, 31), (1, 6))]
)
def test_damped_agrees_with_the_dense_stack(xp, rng, shape, psf, lam, kind):
    psf = rng.random(psf)
    h = blur_matrix(*shape, psf / psf.sum())
    n = h.shape[0]
    b = rng.standard_normal((n, 2))
    stack = np.vstack([h.toarray(), np.sqrt(lam) * np.eye(n)])
    wanted = np.linalg.lstsq(stack, np.vstack([b, np.zeros_like(b)]), rcond=None)[0]
    factor = damped_qr(on(xp, h if kind == "sparse" else h.toarray()), lam)
    x = factor.solve(xp.asarray(b))
    assert np.linalg.norm(host(x) - wanted) <= 1e-10 * np.linalg.norm(wanted)
    one = factor.solve(xp.asarray(b[:, 1]))
    assert np.linalg.norm(host(one) - wanted[:, 1]) <= 1e-10 * np.linalg.norm(wanted)


def test_damped_rectangular_unordered_and_with_empty_rows(xp, rng):
    h = sp.csr_array(rng.standard_normal((40, 25)) * (rng.random((40, 25)) < 0.15))
    h = sp.csr_array(sp.diags_array((np.arange(40) != 3).astype(float)) @ h)  # an empty row
    h.eliminate_zeros()
    b = rng.standard_normal(40)
    wanted = np.linalg.solve((h.T @ h).toarray() + 0.01 * np.eye(25), h.T @ b)
    for matrix in (h, h.toarray(), h.tocsc()):
        x = damped_qr(on(xp, matrix), 0.01).solve(xp.asarray(b))
        assert np.linalg.norm(host(x) - wanted) <= 1e-12 * np.linalg.norm(wanted)


def test_damped_keeps_the_accuracy_that_normal_equations_lose(rng):
    # cond(R) = 1e6: the normal equations alone are wrong by about eps * cond(R)^2.
    q, _ = np.linalg.qr(rng.standard_normal((80, 80)))
    p, _ = np.linalg.qr(rng.standard_normal((80, 80)))
    h = (q * np.logspace(0, -7, 80)) @ p.T
    lam = 1e-12
    b = h @ rng.standard_normal(80)
    s = np.logspace(0, -7, 80)
    wanted = p @ (s / (s * s + lam) * (q.T @ b))
    normal = np.linalg.solve(h.T @ h + lam * np.eye(80), h.T @ b)
    x = damped_qr(h, lam).solve(b)

    def error(y):
        return np.linalg.norm(y - wanted) / np.linalg.norm(wanted)

    assert error(x) <= 1e-9
    assert error(x) <= error(normal) / 1e4


def test_damped_band_stays_a_band(rng):
    h = blur_matrix(20, 20, rng.random((3, 3)))
    half_bandwidth = 20 + 1  # one row of pixels and one pixel
    assert damped_qr(h, 1e-2).r.shape == (2 * half_bandwidth + 1, 400)


def test_damped_float32(xp, rng):
    h = blur_matrix(9, 9, np.full((3, 3), 1 / 9)).astype(np.float32)
    b = rng.standard_normal(81).astype(np.float32)
    x = damped_qr(on(xp, h), 1e-2).solve(xp.asarray(b))
    assert x.dtype == np.float32
    dense = h.toarray().astype(np.float64)
    wanted = np.linalg.solve(dense.T @ dense + 1e-2 * np.eye(81), dense.T @ b)
    assert np.linalg.norm(host(x) - wanted) <= 1e-4 * np.linalg.norm(wanted)


def test_damped_bad_input_is_refused():
    h = np.eye(3)
    refused(ValueError, "lam", damped_qr, h, -1.0)
    refused(ValueError, "lam", damped_qr, h, np.nan)
    refused(ValueError, "matrix", damped_qr, np.ones(3), 1.0)
    refused(ValueError, "NaN", damped_qr, h * np.nan, 1.0)
    refused(SingularMatrixError, "column 2", damped_qr, np.diag([1.0, 1.0, 0.0]), 0.0)
    refused(ValueError, "must have shape", damped_qr(h, 1.0).solve, np.ones(4))
    refused(ValueError, "b holds", damped_qr(h, 1.0).solve, np.full(3, np.nan))


@pytest.mark.parametrize("what", ["a", "b"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 5, 3)])
def test_unchecked_infinities_make_no_finite_solution(xp, rng, shape, value, what):
    a, b = rng.standard_normal(shape), rng.standard_normal((*shape[:-1], 2))
    for trial in range(10):
        bad = {"a": a.copy(), "b": b.copy()}
        target = bad[what].reshape(-1, *bad[what].shape[-2:])[0]
        target[rng.integers(target.shape[0]), (column := rng.integers(target.shape[1]))] = value
        x, norm, _ = lstsq(xp.asarray(bad["a"]), xp.asarray(bad["b"]), check_finite=False)
        x, norm = (host(v).reshape(-1, *v.shape[len(shape) - 2 :]) for v in (x, norm))
        lost = [0, 1] if what == "a" else [column]
        assert np.isnan(x[0][:, lost]).all(), trial
        assert not np.isfinite(norm[0][lost]).any()
        kept = [k for k in (0, 1) if k not in lost]
        expected = lstsq(a, b).x.reshape(-1, *x.shape[1:])
        np.testing.assert_allclose(x[0][:, kept], expected[0][:, kept], rtol=1e-10)
        np.testing.assert_allclose(x[1:], expected[1:], rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_damped_solution_is_right_or_refused(xp, rng, dtype):
    eps, refused, solved = np.finfo(dtype).eps, 0, 0
    for _ in range(150):
        m, n = (int(v) for v in rng.integers(1, 15, 2))
        k = min(m, n)
        u, v = np.linalg.qr(rng.standard_normal((m, k)))[0], np.linalg.qr(rng.standard_normal((n, k)))[0]
        h = ((u * 10.0 ** -rng.uniform(0, 14, k)) @ v.T).astype(dtype)
        lam = float(10.0 ** rng.uniform(-22, 0)) * float(np.linalg.norm(h, 2)) ** 2
        b = rng.standard_normal(m).astype(dtype)
        # The oracle works on the augmented matrix in float64, with columns as they are: singular values, no squares.
        left, s, right = np.linalg.svd(h.astype(float), full_matrices=True)
        every = np.r_[s, np.zeros(n - k)] ** 2 + float(dtype(lam))
        exact = right[:k].T @ (s / (s**2 + lam) * (left[:, :k].T @ b))
        condition = every.max() / max(every.min(), 1e-300)
        try:
            x = host(damped_qr(xp.asarray(h), lam).solve(xp.asarray(b)))
        except SingularMatrixError:
            assert condition > 0.001 / eps
            refused += 1
            continue
        assert condition < 100 / eps
        assert np.linalg.norm(x - exact) <= (2e-6 + 300 * eps * condition) * np.linalg.norm(exact) + eps
        solved += 1
    assert min(refused, solved) > 20


@pytest.mark.parametrize("lam", [True, np.True_])
def test_a_truth_value_is_no_lambda(lam):
    refused(ValueError, "True", damped_qr, np.eye(2), lam)

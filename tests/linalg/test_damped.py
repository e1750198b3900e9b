"""The damped problem against its dense stack."""

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refused

from deblur.device import asnumpy as host
from deblur.errors import SingularMatrixError
from deblur.linalg import damped_qr
from deblur.operators.blur import Blur


def blur_matrix(rows, cols, psf):
    """A zero-boundary blur, sparse."""
    return Blur(psf, (rows, cols)).to_sparse()


def on(xp, h):
    if xp is np or not sp.issparse(h):
        return h if xp is np else xp.asarray(h)
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
    assert np.linalg.norm(host(factor.solve(xp.asarray(b))) - wanted) <= 1e-10 * np.linalg.norm(wanted)
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
    q, p = np.linalg.qr(rng.standard_normal((2, 80, 80)))[0]
    s, lam = np.logspace(0, -7, 80), 1e-12
    h = (q * s) @ p.T
    b = h @ rng.standard_normal(80)
    wanted = p @ (s / (s * s + lam) * (q.T @ b))
    normal = np.linalg.solve(h.T @ h + lam * np.eye(80), h.T @ b)
    x = damped_qr(h, lam).solve(b)

    error, of_normal = (np.linalg.norm(y - wanted) / np.linalg.norm(wanted) for y in (x, normal))
    assert error <= min(1e-9, of_normal / 1e4)


def test_damped_band_stays_a_band(rng):
    h = blur_matrix(20, 20, rng.random((3, 3)))
    assert damped_qr(h, 1e-2).r.shape == (2 * (20 + 1) + 1, 400)  # half its bandwidth is a row of pixels and one pixel


def test_damped_float32(xp, rng):
    h = blur_matrix(9, 9, np.full((3, 3), 1 / 9)).astype(np.float32)
    b = rng.standard_normal(81).astype(np.float32)
    dense = h.toarray().astype(np.float64)
    wanted = np.linalg.solve(dense.T @ dense + 1e-2 * np.eye(81), dense.T @ b)
    for power in (0, 118, -118):  # squares leave the range
        x = damped_qr(on(xp, h * np.float32(2.0**power)), 1e-2 * 4.0**power).solve(xp.asarray(b))
        assert x.dtype == np.float32
        assert np.linalg.norm(host(x).astype(float) * 2.0**power - wanted) <= 1e-4 * np.linalg.norm(wanted)


def test_damped_bad_input_is_refused():
    h = np.eye(3)
    refused(ValueError, "lam", damped_qr, h, -1.0)
    refused(ValueError, "lam", damped_qr, h, np.nan)
    refused(ValueError, "matrix", damped_qr, np.ones(3), 1.0)
    refused(ValueError, "NaN", damped_qr, h * np.nan, 1.0)
    refused(SingularMatrixError, "column 2", damped_qr, np.diag([1.0, 1.0, 0.0]), 0.0)
    refused(ValueError, "must have shape", damped_qr(h, 1.0).solve, np.ones(4))
    refused(ValueError, "b holds", damped_qr(h, 1.0).solve, np.full(3, np.nan))


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

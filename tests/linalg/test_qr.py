"""QR: shapes, invariants and hostile matrices, on the CPU and, where there is one, on the GPU."""

import numpy as np
import pytest
from refusals import refused

from deblur.device import asnumpy
from deblur.linalg import choose_qr, qr

SHAPES = [(1, 1), (1, 5), (5, 1), (17, 19), (19, 17), (31, 31), (64, 64), (130, 33), (33, 130), (257, 129)]
#: What makes a matrix of each sort of normal numbers, in float64 but within float32's range.
HOSTILE = {
    "graded rows": lambda a, rng: a * np.logspace(0, -12, len(a))[:, None],
    "graded columns": lambda a, rng: a * np.logspace(-12, 12, a.shape[1]),
    "scaled": lambda a, rng: a * 10.0 ** rng.integers(-30, 31, a.shape[1]),
    "nearly dependent": lambda a, rng: a[:, :1] + 1e-7 * a,
    "rank one": lambda a, rng: np.outer(a[:, 0], a[0]),
    "zero columns": lambda a, rng: np.where(np.arange(a.shape[1]) % 3, a, 0),
    "zero": lambda a, rng: np.zeros_like(a),
    "upper triangular": lambda a, rng: np.triu(a),
    "orthogonal": lambda a, rng: np.matmul(*np.linalg.svd(a, full_matrices=False)[::2]),
    "tiny": lambda a, rng: a * 1e-30,
    "huge": lambda a, rng: a * 1e30,
}


def errors(a, q, r):
    """‖QᵀQ − I‖ and ‖QR − A‖/‖A‖ (Frobenius) in units of √n·eps: the worst of the stack, in float64."""
    eps = float(np.finfo(np.dtype(str(a.dtype))).eps)
    a, q, r = (asnumpy(x).astype(np.float64) for x in (a, q, r))
    scale = np.abs(a).max(axis=(-2, -1), keepdims=True)
    scale[scale == 0] = 1
    gram = np.swapaxes(q, -1, -2) @ q - np.eye(q.shape[-1])
    orthogonality = np.linalg.norm(gram, axis=(-2, -1))
    size = np.linalg.norm(a / scale, axis=(-2, -1))
    backward = np.linalg.norm(q @ (r / scale) - a / scale, axis=(-2, -1)) / np.where(size == 0, 1, size)
    unit = np.sqrt(max(min(a.shape[-2:]), 1)) * eps
    return orthogonality.max() / unit, backward.max() / unit


def check(a, q, r):
    orthogonality, backward = errors(a, q, r)
    assert orthogonality <= 10
    assert backward <= 10
    assert not np.tril(asnumpy(r), -1).any()


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
@pytest.mark.parametrize("shape", SHAPES)
def test_reduced_and_complete(xp, rng, shape, batch, dtype):
    m, n = shape
    k = min(m, n)
    a = xp.asarray(rng.standard_normal((*batch, m, n)), dtype=dtype)
    before = a.copy()
    q, r = qr(a)
    assert (q.shape, r.shape) == ((*batch, m, k), (*batch, k, n))
    assert q.dtype == r.dtype == dtype
    check(a, q, r)
    assert bool((a == before).all())
    only_r = qr(a, mode="r")
    assert only_r.shape == r.shape
    assert float(abs(only_r - r).max()) <= 100 * np.finfo(dtype).eps * float(abs(r).max())
    q, r = qr(a, mode="complete")
    assert (q.shape, r.shape) == ((*batch, m, m), (*batch, m, n))
    check(a, q, r)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize(("m", "n", "batch"), [(70, 40, ()), (70, 40, (5,)), (40, 70, ()), (64, 64, (20,))])
def test_hostile_matrices(xp, rng, kind, m, n, batch, dtype):
    stack = [HOSTILE[kind](rng.standard_normal((m, n)), rng) for _ in range(int(np.prod(batch)))]
    a = xp.asarray(np.reshape(stack, (*batch, m, n)), dtype=dtype)
    check(a, *qr(a))


@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (4, 9), (33, 33), (70, 50)])
@pytest.mark.parametrize("batch", [(), (4,)])
def test_raw_is_numpys(xp, rng, shape, batch):
    a = rng.standard_normal((*batch, *shape))
    h, tau = qr(xp.asarray(a), mode="raw")
    h_numpy, tau_numpy = np.linalg.qr(a, mode="raw")
    for ours, theirs in ((h, h_numpy), (tau, tau_numpy)):
        assert ours.shape == theirs.shape
        assert float(abs(ours - xp.asarray(theirs)).max()) <= 1e-12


@pytest.mark.parametrize("mode", ["reduced", "complete", "r", "raw"])
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (0, 4, 3), (2, 0, 3), (2, 3, 0)])
def test_empty(xp, shape, mode):
    *batch, m, n = shape
    k = min(m, n)
    out = qr(xp.ones(shape), mode)
    shapes = {"reduced": [(m, k), (k, n)], "complete": [(m, m), (m, n)], "r": [(k, n)], "raw": [(n, m), (k,)]}[mode]
    parts = [out] if mode == "r" else out
    assert [p.shape for p in parts] == [(*batch, *s) for s in shapes]
    if mode == "complete":
        assert bool((parts[0] == xp.eye(m)).all())


def test_layouts_and_integers(xp, rng):
    big = xp.asarray(rng.standard_normal((3, 40, 30)))
    for view in (big[:, ::2, ::-1], big.swapaxes(-1, -2), big[0].T, xp.asarray(np.asfortranarray(np.eye(4, 3)))):
        check(view, *qr(view))
    _, r = qr(xp.asarray([[3, 1], [4, 1]]))
    assert r.dtype == np.float64
    assert abs(abs(float(r[0, 0])) - 5) <= 1e-14


def test_bad_input_is_refused_before_work(xp):
    refused(ValueError, "NaN", qr, xp.asarray([[1.0, np.nan]]))
    refused(ValueError, "shape", qr, xp.ones(3))
    refused(ValueError, "economic", qr, xp.ones((3, 3)), "economic")


def test_the_check_can_be_switched_off():
    with np.errstate(invalid="ignore"):
        _, r = qr(np.array([[np.nan, 1.0], [1.0, 1.0]]), check_finite=False)
    assert np.isnan(r).any()


LARGE = {
    "single-launch": [(300, 64, 64), (3, 200, 70), (2, 800, 30), (300, 500, 230), (270, 900, 200)],
    "streaming": [
        (600, 500),
        (2, 1030, 200),
        (33, 2000),
        (1, 4200, 300),
        (2, 9000, 330),
        (4300, 1000),
        (17000, 270),
        (21000, 270),
    ],
    "tall-skinny": [(40000, 24), (100003, 8), (70001, 300)],
}


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "shape"), [(k, s) for k, shapes in LARGE.items() for s in shapes])
def test_every_kernel_on_the_gpu(cupy, kernel, shape, dtype):
    plan = choose_qr(shape, dtype)
    assert plan.kernel == kernel or dtype == np.float64
    assert plan.reason
    a = cupy.random.default_rng(5).standard_normal(shape, dtype=dtype)
    a[..., 3] *= 1e-30  # a column of another size, and two that depend on each other
    a[..., 5] = a[..., 4]
    q, r = qr(a)
    check(a, q, r)


@pytest.mark.gpu
def test_the_second_call_takes_no_new_memory(cupy):
    a = cupy.random.default_rng(5).standard_normal((2100, 2100), dtype=np.float32)
    stack = cupy.random.default_rng(5).standard_normal((50, 64, 64), dtype=np.float32)
    pool = cupy.get_default_memory_pool()
    for x in (a, stack):
        qr(x)
        held = pool.total_bytes()
        qr(x)
        assert pool.total_bytes() == held


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(600, 500), (2100, 2100), (5, 64, 64)])
def test_a_stream_of_the_callers_own(cupy, shape):
    # Work is queued before and after in the caller's stream; the kernels must come between.
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a = cupy.zeros(shape, np.float32)
        for _ in range(50):
            a += 1
        a += cupy.random.default_rng(5).standard_normal(shape, dtype=np.float32)
        q, r = qr(a, check_finite=False)
        a -= q @ r
        worst = float(abs(a).max())
    assert worst <= 1e-2


@pytest.mark.parametrize("shape", [(), (3,)])
def test_what_is_no_matrix_is_an_error_of_linear_algebra_as_in_numpy(shape):
    for function in (np.linalg.qr, qr):
        refused(np.linalg.LinAlgError, ".", function, np.ones(shape))

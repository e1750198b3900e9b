"""The sweeps of QR updating on the GPU: what orthogonal transformations leave as it was, measured in float64."""

import numpy as np
import pytest

from deblur.linalg import sweeps_gpu as gpu

pytestmark = pytest.mark.gpu


def on_device(cupy, arrays, dtype):
    """Each array as a view into a larger one whose other entries are NaN, so that strays are seen."""
    views = []
    for a in arrays:
        around = cupy.full((a.shape[0] + 3, a.shape[1] + 5), np.nan, dtype)
        view = around[1 : 1 + a.shape[0], 2 : 2 + a.shape[1]]
        view[...] = cupy.asarray(a.astype(dtype))
        views.append(view)
    return views


def strays(view):
    """Whether anything but NaN stands around the view."""
    return int((~np.isnan(view.base.get())).sum()) != view.size


def wide(a):
    return a.get().astype(np.float64)


def tolerance(dtype, t, p):
    return 10 * np.sqrt(t + p) * float(np.finfo(dtype).eps)


def relative(a, b):
    return np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-300)


# t, s, p, m: columns of the triangle, further columns, rows or columns that come or go, rows of Q
SIZES = [
    (1, 0, 1, 1), (1, 1, 1, 0), (17, 1, 1, 35), (31, 2, 33, 7), (32, 0, 32, 64), (33, 33, 17, 101), (64, 1, 8, 130),
    (65, 1, 64, 66), (97, 1, 31, 200), (97, 3, 1, 97), (128, 1, 128, 131), (130, 40, 65, 1), (257, 1, 100, 300),
    (61, 1, 300, 89), (259, 5, 256, 263), (1031, 1, 33, 1100), (4300, 1, 2, 33),
]  # fmt: skip


@pytest.mark.parametrize(("t", "s", "p", "m"), SIZES)
def test_sweep_down_is_an_orthogonal_transformation_to_a_triangle(cupy, rng, t, s, p, m, dtype):
    r = np.triu(rng.standard_normal((t, t + s)))
    u = rng.standard_normal((p, t + s))
    qe = rng.standard_normal((m, t + p))
    r_gpu, u_gpu, q_gpu, e_gpu = on_device(cupy, [r, u, qe[:, :t], qe[:, t:]], dtype)
    r, u, q, e = (wide(x) for x in (r_gpu, u_gpu, q_gpu, e_gpu))
    gpu.sweep_down(r_gpu, u_gpu, q_gpu, e_gpu)
    new_r, new_u, new_q, new_e = (wide(x) for x in (r_gpu, u_gpu, q_gpu, e_gpu))
    assert not any(strays(x) for x in (r_gpu, u_gpu, q_gpu, e_gpu) if x.size)
    assert np.array_equal(new_r, np.triu(new_r))
    assert not new_u[:, :t].any()
    tol = tolerance(dtype, t, p)
    before, after = np.vstack([r, u]), np.vstack([new_r, new_u])
    assert relative(after.T @ after, before.T @ before) <= tol
    before, after = np.hstack([q, e]), np.hstack([new_q, new_e])
    assert relative(after @ after.T, before @ before.T) <= tol
    assert relative(new_q @ new_r + new_e @ new_u, q @ r + e @ u) <= tol


@pytest.mark.parametrize(("t", "s", "p", "m"), SIZES)
def test_sweep_up_is_an_orthogonal_transformation_that_keeps_the_triangle(cupy, rng, t, s, p, m, dtype):
    r, w = np.triu(rng.standard_normal((t, t + s))), np.zeros((p, t + s))
    w[:, t:] = rng.standard_normal((p, s))
    c, z = np.triu(rng.standard_normal((p, p))), rng.standard_normal((t, p))
    eq = rng.standard_normal((m, p + t))
    views = on_device(cupy, [c, z, w, r, eq[:, :p], eq[:, p:]], dtype)
    c, z, w, r, e, q = (wide(x) for x in views)
    gpu.sweep_up(*views)
    new_c, _, new_w, new_r, new_e, new_q = (wide(x) for x in views)
    assert not any(strays(x) for x in views if x.size)
    assert np.array_equal(new_c, np.triu(new_c))
    assert np.array_equal(new_r, np.triu(new_r))
    tol = tolerance(dtype, t, p)
    before, after = np.vstack([w, r]), np.vstack([new_w, new_r])
    assert relative(after.T @ after, before.T @ before) <= tol
    before = np.vstack([c, z])
    assert relative(new_c.T @ new_c, before.T @ before) <= tol
    assert relative(new_c.T @ new_w, c.T @ w + z.T @ r) <= tol  # the same transformation for both
    before, after = np.hstack([e, q]), np.hstack([new_e, new_q])
    assert relative(after @ after.T, before @ before.T) <= tol
    assert relative(new_e @ new_w + new_q @ new_r, e @ w + q @ r) <= tol
    assert relative(new_e @ new_c, e @ c + q @ z) <= tol


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e30])
def test_columns_of_any_size_neither_underflow_nor_overflow(cupy, rng, scale):
    t, p = 70, 9
    sizes = np.where(np.arange(t) % 3 == 0, scale, 1.0)
    r = np.triu(rng.standard_normal((t, t))) * sizes
    u = rng.standard_normal((p, t)) * sizes
    r_gpu, u_gpu = cupy.asarray(r.astype(np.float32)), cupy.asarray(u.astype(np.float32))
    stack = np.vstack([wide(r_gpu), wide(u_gpu)]) / sizes
    gpu.sweep_down(r_gpu, u_gpu, None, None)
    after = wide(r_gpu) / sizes
    assert relative(after.T @ after, stack.T @ stack) <= tolerance(np.float32, t, p)


@pytest.mark.parametrize("sweep", ["down", "up"])
def test_nothing_to_annihilate_leaves_the_triangle(cupy, rng, sweep):
    t, p = 45, 3
    r = cupy.asarray(np.triu(rng.standard_normal((t, t))))
    before, zeros = abs(r.get()), cupy.zeros((p, t))
    if sweep == "down":
        gpu.sweep_down(r, zeros, None, None)
    else:
        gpu.sweep_up(cupy.eye(p), cupy.zeros((t, p)), zeros, r, None, None)
    assert relative(abs(r.get()), before) <= 1e-15 * t


def test_not_a_number_spreads_and_does_not_hang(cupy, rng):
    r, u = cupy.asarray(np.triu(rng.standard_normal((40, 40)))), cupy.asarray(rng.standard_normal((2, 40)))
    u[1, 3] = np.nan
    gpu.sweep_down(r, u, None, None)
    assert bool(cupy.isnan(r[3:, 3:]).any())


def test_many_tiles_more_than_fit_at_once(cupy, rng):
    """More blocks than the GPU holds: the order of tickets must keep them from waiting for ever."""
    t, p, m = 200, 5, 60000
    r, u = np.triu(rng.standard_normal((t, t))), rng.standard_normal((p, t))
    r_gpu, u_gpu = cupy.asarray(r), cupy.asarray(u)
    q = cupy.asarray(rng.standard_normal((m, t)))
    e = cupy.zeros((m, p))
    before = q @ r_gpu + e @ u_gpu
    gpu.sweep_down(r_gpu, u_gpu, q, e)
    assert float(cupy.linalg.norm(q @ r_gpu - before) / cupy.linalg.norm(before)) <= tolerance(np.float64, t, p)

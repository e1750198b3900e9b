"""Sums and products of stacks of images, in any memory layout, and products of matrices."""

import numpy as np
import pytest

from deblur.device import asnumpy
from deblur.norms import combined, product
from deblur.threads import thread_limit


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (1.0, -1.0), (1.0, -0.3), (-2.5, 0.1)])
def test_it_is_the_sum(xp, rng, dtype, a, b):
    whole = rng.standard_normal((2, 3, 33, 41)).astype(dtype)
    x, y = xp.asarray(whole), xp.asarray(rng.standard_normal(whole.shape).astype(dtype))
    parts = np.s_[:], np.s_[:, :, 2:30, 5:], np.s_[:, 1, ::-1, 3:4], np.s_[0, 0, 7:8], np.s_[..., ::3], np.s_[:, :0]
    for part in parts:
        for right, by in ((y[part], None), (y[part].copy(), x[part]), (None, y[part]), (None, None)):
            out = None if by is None else xp.zeros((*x[part].shape[:-1], x[part].shape[-1] + 3), dtype)[..., 2:-1]
            found = combined(x[part], right, a, b, by, out)
            left = asnumpy(x[part]).astype(np.float64) * (1 if by is None else asnumpy(by))
            wanted = a * left + b * (0 if right is None else asnumpy(right))
            assert (found.dtype, found.shape) == (dtype, wanted.shape)
            assert out is None or found is out
            size = 5 * (abs(a) * (1 if by is None else 5) + abs(b))
            atol = 0 if by is None and abs(a) == abs(b) == 1 else 2 * np.finfo(dtype).eps * size
            np.testing.assert_allclose(asnumpy(found), wanted.astype(dtype), rtol=0, atol=atol)


def test_neither_is_changed_and_dtypes_may_differ(xp, rng):
    x, y = xp.asarray(rng.random((4, 5))), xp.asarray(rng.random((4, 5), dtype=np.float32))
    before = asnumpy(x), asnumpy(y)
    np.testing.assert_allclose(asnumpy(combined(x, y, 2.0, -1.0)), 2 * before[0] - before[1], rtol=1e-15)
    assert (asnumpy(x) == before[0]).all()
    assert (asnumpy(y) == before[1]).all()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("left", "right"), [((301, 170), (170, 190)), ((2, 3, 150, 200), (200, 180)), ((3, 190), (2, 190, 9000))]
)
def test_products_do_not_depend_on_the_number_of_threads(xp, rng, left, right, threads):
    a, b = rng.standard_normal(left), rng.standard_normal(right)
    with thread_limit(threads):
        found = asnumpy(product(xp.asarray(a), xp.asarray(b)))
    wanted = np.einsum("...ij,...jk->...ik", a, b)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * abs(wanted).max())

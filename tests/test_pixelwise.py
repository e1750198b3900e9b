"""Operations on each pixel: a kernel computes what NumPy computes, whatever the layout and dtype of its arrays."""

import numpy as np
import pytest

from deblur import pixelwise, terms
from deblur.solvers import admm_arrays, domain

pytestmark = pytest.mark.gpu
SHAPES = [(), (1,), (257,), (3, 5), (1, 2, 33, 17), (2, 3, 4, 5, 6), (2, 3, 2, 3, 4, 5), (1, 1000, 3)]
PARTS = {"whole": ..., "window": slice(1, -1), "steps": slice(None, None, 2), "backwards": slice(None, None, -1)}
LONGER = {"window": lambda n: n + 2, "steps": lambda n: 2 * n}
EXTREME = np.array([1, np.nan, 3, np.inf, -np.inf])


def laid(value, xp, layout):
    """Return an array as a part of a larger one."""
    room = xp.zeros([*map(LONGER.get(layout, int), value.shape)], value.dtype)
    view = room[(PARTS[layout],) * value.ndim if layout != "whole" and value.ndim else ...]
    view[...] = xp.asarray(value)
    return view


def run(function, values, xp, layout="whole"):
    """Return what the function returns, and then what it leaves in its arguments, as NumPy arrays."""
    args = [laid(value, xp, layout) if isinstance(value, np.ndarray) else value for value in values]
    found = pixelwise.pixelwise(function, *args)
    results = found if isinstance(found, tuple) else () if found is None else (found,)
    return [a.get() if hasattr(a, "get") else np.asarray(a) for a in (*results, *args)]


def extremes(xp, x, y):
    return xp.minimum(x, y), xp.maximum(x, y), xp.where(x < y, xp.inf, x), xp.where(x < y, -xp.inf, y)


@pytest.mark.parametrize("layout", PARTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("function", "arrays", "numbers"),
    [(terms._divergence, 2, 2), (terms._mixed, 3, 1), (admm_arrays._moved, 5, 0), (admm_arrays._add, 2, 1)],
)
def test_a_kernel_computes_what_numpy_does(function, arrays, numbers, shape, dtype, layout, rng, cupy):
    values = [np.array(rng.uniform(0.5, 2, shape), dtype) for _ in range(arrays)] + [dtype(0.3)] * numbers
    function, tolerance = function.__wrapped__, 8 * np.finfo(dtype).eps
    for got, want in zip(run(function, values, cupy, layout), run(function, values, np), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, tolerance, tolerance)


@pytest.mark.parametrize("char", "FD")
@pytest.mark.parametrize("function", [domain._step, domain._power])
def test_kernels_compute_with_complex_numbers_and_broadcast(function, char, rng, cupy):
    values = [np.array(rng.normal(size=(2, 9, 6, 2)), char.lower()).view(char)[..., 0] for _ in range(2)]
    if function is domain._step:
        inverse = rng.random((9, 6)).astype(char.lower())
        values += [values[0][0], inverse, inverse.dtype.type(0.3)]
    function, tolerance = function.__wrapped__, 16 * np.finfo(char).eps
    for got, want in zip(run(function, values, cupy, "window"), run(function, values, np), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, tolerance, tolerance)


def test_extremes_are_nan_where_numpys_are(cupy):
    values = [np.repeat(EXTREME, 5), np.tile(EXTREME, 5)]
    np.testing.assert_array_equal(run(extremes, values, cupy), run(extremes, values, np))


@pytest.mark.parametrize("char", "?bBhHiIqQefdFD")
def test_copies_of_every_dtype(char, rng, cupy):
    x = cupy.asarray(rng.integers(0, 2, (5, 7))).astype(char)
    for dtype in {x.dtype, np.dtype(char if char in "FD" else np.float64)}:
        copy = pixelwise.copied(x.T, dtype)
        assert (copy.dtype, copy.flags.c_contiguous) == (dtype, True)
        assert (copy == x.T).all()

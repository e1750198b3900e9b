"""Boundaries as objects: what each promises by its flags, and one more that a user defines."""

import copy
import pickle

import numpy as np
import pytest
from structured import PSFS, dense_answer, device_of, problems, relative_error, solved
from test_extending import Nearest

from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES, get_boundary
from deblur.operators.normal import normal_matrix
from deblur.solvers import banded, cosine, fourier, hybrid_lsqr, kronecker, pcg, sine
from deblur.solvers.dense import Dense

EDGE = Nearest("edge")  # as NumPy's pad has it with this mode
ALL = [*BOUNDARIES.values(), EDGE]


@pytest.mark.parametrize("boundary", ALL)
def test_fold_is_the_transpose_of_extend_and_both_are_the_matrix(rng, xp, boundary):
    n, before, after = 7, 3, 4
    whole = boundary.matrix(n, -before, n + after).toarray()
    assert whole.shape == (n + before + after, n)
    assert np.array_equal(whole[before : before + n], np.eye(n))
    assert np.abs(whole).sum(axis=1).max() <= boundary.weight
    if not boundary.continued:
        return
    for axis, shape in ((-2, (2, n, 5)), (-1, (2, 5, n))):
        x = rng.standard_normal(shape)
        out = xp.asnumpy if xp is not np else np.asarray
        extended = out(boundary.extend(xp.asarray(x), axis, before, after))
        expected = np.moveaxis(np.moveaxis(x, axis, -1) @ whole.T, -1, axis)
        assert np.abs(extended - expected).max() <= 1e-15 * 20
        y = rng.standard_normal(extended.shape)
        given = xp.asarray(y)
        folded = out(boundary.fold(given, axis, before, after))
        expected = np.moveaxis(np.moveaxis(y, axis, -1) @ whole, -1, axis)
        assert np.abs(folded - expected).max() <= 1e-15 * 40
        assert np.array_equal(out(given), y)


@pytest.mark.parametrize("boundary", ALL)
@pytest.mark.parametrize(("m", "o"), [(1, 0), (3, 1), (4, 1), (5, 0), (4, 3)])
def test_rows_deeper_than_the_depth_are_those_of_the_circulant(rng, boundary, m, o):
    n = 24
    h = rng.standard_normal((m, 1))
    blur = Blur(h, (n, 1), boundary, origin=(o, 0))
    a = blur.to_dense() @ blur.to_dense().T
    taps = np.zeros(n)
    taps[:m] = h[:, 0]
    lags = np.array([taps @ np.roll(taps, k) for k in range(n)])
    circulant = lags[(np.arange(n)[:, None] - np.arange(n)) % n]
    if boundary.wraps:
        assert np.abs(a - circulant).max() <= 1e-13
        return
    near = abs(np.arange(n)[:, None] - np.arange(n)) < n // 2  # where the circulant has not wrapped round
    deep = slice(boundary.depth(m, o), n - boundary.depth(m, o))
    assert np.abs(np.where(near, a - circulant, 0)[deep]).max() <= 1e-13


def test_the_table_of_flags():
    assert [b for b in BOUNDARIES.values() if b.wraps] == ["periodic"]
    assert [b for b in BOUNDARIES.values() if b.open] == ["unknown"]
    assert [b for b in BOUNDARIES.values() if b.dark] == ["zero"]
    assert [b for b in BOUNDARIES.values() if b.continued] == ["reflect", "antireflect"]
    assert [b for b in BOUNDARIES.values() if b.toeplitz] == ["zero", "periodic"]


def test_a_boundary_is_given_by_name_or_as_itself():
    assert get_boundary("reflect") is BOUNDARIES["reflect"]
    assert get_boundary(EDGE) is EDGE
    with pytest.raises(ValueError, match="unknown boundary 'edge'; choose one of zero, periodic"):
        get_boundary("edge")
    for again in (pickle.loads(pickle.dumps(EDGE)), copy.deepcopy(EDGE)):
        assert again == "edge"
        assert again.continued


def test_a_new_boundary_blurs_as_numpy_continues(rng):
    h, f = rng.standard_normal((4, 3)), rng.standard_normal((9, 11))
    blur = Blur(h, f.shape, EDGE)
    padded = np.pad(f, [(4, 4), (3, 3)], mode="edge")
    expected = sum(
        h[k, q] * padded[4 + blur.origin[0] - k :, 3 + blur.origin[1] - q :][:9, :11]
        for k in range(4)
        for q in range(3)
    )
    assert np.abs(blur.forward(f) - expected).max() <= 1e-13
    g = rng.standard_normal(f.shape)
    assert abs(np.vdot(blur.forward(f), g) - np.vdot(f, blur.adjoint(g))) <= 1e-12
    assert np.abs(blur.to_sparse() @ f.ravel() - expected.ravel()).max() <= 1e-13
    a = blur.to_dense() @ blur.to_dense().T + 0.1 * np.eye(99)
    assert np.abs(normal_matrix(blur, 0.1) - a).max() <= 1e-13


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("pcg", pcg), ("kronecker", kronecker), ("banded", banded), ("hybrid-lsqr", hybrid_lsqr),
        ("cholesky", Dense("cholesky")),
    ],
)  # fmt: skip
def test_a_new_boundary_is_solved(rng, xp, name, solver):
    served = 0
    for psf in ("separable", "even") if name == "kronecker" else ("symmetric", "asymmetric", "even"):
        for shape in ((9, 11), (31, 37)) if name == "pcg" else ((9, 11),):
            blur = Blur(PSFS[psf], shape, EDGE)
            g = rng.standard_normal((2, *shape))
            for problem in problems(solver, blur, 1e-2, device=device_of(xp)):
                f, solution = solved(solver, problem, xp.asarray(g))
                assert solution.converged
                assert relative_error(f, dense_answer(blur, 1e-2, problem.formula, g)) <= 1e-7
                served += 1
    assert served >= 2 or (name == "banded" and xp is not np)  # CuPy has no banded Cholesky


@pytest.mark.parametrize("solver", [fourier, cosine, sine])
def test_a_new_boundary_is_refused_where_no_transform_is_known(solver):
    for problem in problems(kronecker, Blur(PSFS["binomial"], (9, 11), EDGE), 1e-2):
        assert "'edge'" in solver.refuses(problem)

"""Every linear method's prepared factor: `converged` is right, it pickles, and threads share it.

A solution with `converged` is off by at most 2e-6 + 300 eps cond in float64 and 1e-4 + 300 eps cond in
float32, relative to the exact image, cond being that of HHᵀ + λI; that of an iteration by 1e-2 at most. A method may
refuse, raise or report that it has not converged.
"""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from deblur import linalg, psf
from deblur.errors import SingularMatrixError
from deblur.methods import METHODS
from deblur.normalization import Scale, shifted
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.problem import Problem
from deblur.solvers import hybrid_lsqr, pcg, qr, refine, sine
from deblur.solvers.dense import Dense

FLOAT32 = np.dtype(np.float32)
DIRECT = ("fourier", "cosine", "sine", "kronecker", "banded", "qr", "cholesky", "lu", "gauss-jordan")
ITERATIVE = ("pcg", "hybrid_lsqr", "gauss-seidel")


def solver(name):
    return next(m for m in METHODS.values() if m.linear and name in (m.name, m.module))


def draw_psf(rng, largest):
    shape = tuple(int(rng.integers(1, min(n, 7) + 1)) for n in largest)
    kind = rng.integers(7)
    h = rng.random(shape)
    if kind == 1:
        h = rng.standard_normal(shape)
    elif kind == 2:
        h[rng.random(shape) < 0.5] = 0
    elif kind in (3, 6):  # symmetric in each axis: the fast transforms serve it
        h = h[: shape[0] - 1 + shape[0] % 2, : shape[1] - 1 + shape[1] % 2]
        h = h + h[::-1] - rng.integers(2)
        h = h + h[:, ::-1]
    elif kind == 4:
        h = np.outer(rng.standard_normal(shape[0]), rng.random(shape[1]))
    elif kind == 5:
        h = np.round(3 * rng.standard_normal(shape))
    h[0, 0] += not h.any()
    return h / abs(h).sum() if rng.random() < 0.5 else h


def draw_problem(rng):
    """A problem and an image for it; now and then the operator, λ or the image are of another order of magnitude."""
    shape = tuple(int(n) for n in rng.integers(1, 15, 2))
    h, lam = draw_psf(rng, shape), 10.0 ** rng.uniform(-8, 1)
    boundary = str(rng.choice(list(BOUNDARIES)))
    formula = "hht" if boundary != "unknown" and rng.random() < 0.5 else "tikhonov"
    dtype = np.dtype(rng.choice(["f4", "f8"]))
    g = rng.random(shape) if rng.random() < 0.5 else rng.standard_normal(shape)
    if rng.random() < 0.2:
        scale = 10.0 ** rng.uniform(-20, 20)
        h, lam, g = h * scale, lam * scale**2, g * 10.0 ** rng.uniform(-10, 10) * scale
    try:
        blur = Blur(h, shape, boundary)
    except ValueError:  # antireflect cannot continue an image by more than its size
        return draw_problem(rng)
    return Problem(blur, lam, formula=formula, dtype=dtype, inverse=bool(rng.random() < 0.2)), g.astype(dtype)


def exact(problem, g):
    """(image, condition of HHᵀ + λI), by the singular values of H, and by a solve refined once for "hht"."""
    blur = problem.blur
    size = np.sqrt(blur.norm_bound**2 + problem.lam)
    h, lam, top = blur.to_dense() / size, problem.lam / size**2, abs(g).max().astype(np.float64)
    u, s, vt = np.linalg.svd(h, full_matrices=False)
    b = g.ravel() / top
    if problem.formula == "tikhonov":
        f = vt.T @ (s / (s * s + lam) * (u.T @ b))
    else:
        a = h @ h.T + lam * np.eye(len(h))
        f = np.linalg.solve(a, h.T @ b)
        f += np.linalg.solve(a, h.T @ b - a @ f)
    return f.reshape(blur.scene_shape) * (top / size), (s.max() ** 2 + lam) / (s.min() ** 2 + lam)


def wrong(problem, solution, g, answer=None, most=np.inf):
    """By how much of what is allowed, and of `most`, the image is off."""
    f, condition = exact(problem, g) if answer is None else answer
    allowed = (2e-6 if problem.dtype == np.float64 else 1e-4) + 300 * np.finfo(problem.dtype).eps * condition
    top = abs(f).max()
    return np.linalg.norm(solution.scene[0, 0] / top - f / top) / np.linalg.norm(f / top) / min(allowed, most)


def answer(name, problem, g):
    """The solution of a method that serves the problem and can solve it, else None."""
    scale = Scale.of(problem, g)
    near = scale.near(problem)
    module = solver(name)
    if module.refuses(near) is not None:
        return None
    try:
        found = module.prepare(near).solve(shifted(g[None, None], -scale.image))
        return replace(found, scene=shifted(found.scene, scale.scene))
    except SingularMatrixError:
        return None


def test_no_wrong_image_is_called_converged():
    rng = np.random.default_rng(7)
    answers = dict.fromkeys(DIRECT + ITERATIVE, 0)
    for draw in range(200):
        problem, g = draw_problem(rng)
        right, iterative = exact(problem, g), ITERATIVE[draw % 3]
        if iterative == "gauss-seidel" and g.size > 49:
            iterative = "hybrid_lsqr"
        for name in (*DIRECT[draw % 2 :: 2], iterative):
            solution = answer(name, problem, g)
            if solution is not None and solution.converged:
                assert solution.scene.dtype == problem.dtype
                most = 1e-2 if name in ITERATIVE else np.inf
                assert wrong(problem, solution, g, right, most) <= 1, (draw, name, problem, solution.why)
                answers[name] += 1
    assert min(answers.values()) >= 5, answers


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_solvable_problem_converges(name):
    """In float64, and in float32 up to a condition number of 1e4."""
    rng = np.random.default_rng(8)
    served = 0
    while served < 25:
        problem, g = draw_problem(rng)
        if name == "gauss-seidel" and g.size > 64:
            continue
        if problem.dtype == np.float32 and exact(problem, g)[1] > 1e4:
            continue
        solution = answer(name, problem, g)
        if solution is not None:
            assert solution.converged, (problem, solution.why)
            served += 1


@pytest.mark.parametrize(("dtype", "gain", "lam"), [("f4", 1.0, 1e-4), ("f4", 0.5, 1e-7), ("f8", 200.0, 1e-6)])
def test_antireflect_and_hht_do_not_cancel(rng, dtype, gain, lam):
    problem = Problem(Blur([[gain]], (16, 20), "antireflect"), lam, formula="hht", dtype=np.dtype(dtype))
    g = rng.random((16, 20)).astype(dtype)
    assert sine.refuses(problem) is None
    assert wrong(problem, sine.prepare(problem).solve(g[None, None]), g) <= 1


def test_antireflect_and_hht_say_what_cannot_be_refined(rng):
    problem, g = Problem(Blur([[1e4]], (16, 20), "antireflect"), 1e-8, formula="hht"), rng.random((1, 1, 16, 20))
    assert "use a larger λ" in sine.prepare(problem).solve(g).why
    np.testing.assert_allclose(1e4 * sine.prepare(replace(problem, formula="tikhonov")).solve(g).scene, g, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("lam", [1e-2, 1e-4])
def test_hybrid_lsqr_goes_on_until_the_image_is_right(rng, dtype, lam):
    problem = Problem(Blur(psf.gaussian(7, 1.5), (20, 24)), lam, dtype=np.dtype(dtype))
    g = problem.blur.forward(rng.random((20, 24))).astype(dtype)
    solution = hybrid_lsqr.prepare(problem).solve(g[None, None])
    assert solution.converged
    assert wrong(problem, solution, g) <= 1
    again = hybrid_lsqr.prepare(problem).solve(g[None, None], solution)  # which it does not need
    np.testing.assert_array_equal(again.scene, solution.scene)


@pytest.mark.parametrize("name", ["gauss-seidel", "gauss-jordan", "cholesky"])
@pytest.mark.parametrize("formula", ["tikhonov", "hht"])
def test_multiplying_with_the_inverse_is_as_good_as_solving(rng, name, formula):
    problem = Problem(Blur([[-1.0], [3.0], [-2.0]], (4, 10), "periodic"), 5e-7, formula=formula, inverse=True)
    g = rng.random((4, 10))
    solution = Dense(name).prepare(problem).solve(g[None, None])
    assert solution.converged
    assert wrong(problem, solution, g) <= 0.1


def test_the_tolerance_of_pcg_is_relative_to_the_norm_bound(rng):
    problem = Problem(Blur([[1000.0], [1000.0]], (2, 1)), 0.1, dtype=FLOAT32)
    assert pcg.prepare(problem).solve(rng.random((2, 1)).astype(np.float32)[None, None]).converged
    large = (1e20 * rng.random((20, 21))).astype(np.float32)
    problem = Problem(Blur(psf.gaussian(5, 1.0), (20, 21)), 1e-3, dtype=FLOAT32)
    solution = pcg.prepare(problem).solve(large[None, None])
    assert solution.converged
    assert wrong(problem, solution, large) <= 1


def test_qr_carries_a_wide_matrix_in_float64_where_float32_cannot(rng):
    problem = Problem(Blur(np.round(3 * rng.standard_normal((4, 4))), (7, 7), "unknown"), 1e-7, dtype=FLOAT32)
    g = rng.random((7, 7)).astype(np.float32)
    solution = METHODS["qr"].prepare(problem).solve(g[None, None])
    assert solution.scene.dtype == np.float32
    assert wrong(problem, solution, g) <= 1


@pytest.mark.parametrize(("size", "sigma", "n"), [(15, 2.5, 24), (11, 1.7, 20)])
def test_qr_refuses_a_singular_matrix(size, sigma, n):
    blur = Blur(psf.gaussian(size, sigma), (n, n))
    assert 5e8 < np.linalg.cond(blur.to_dense()) < 1e17
    with pytest.raises(SingularMatrixError, match="condition number.*larger λ"):
        qr.prepare(Problem(blur, 0.0))


def test_qr_with_lambda_zero_inverts_the_blur(rng):
    blur, f = Blur(psf.gaussian(7, 2.0), (20, 20)), rng.random((20, 20))
    found = qr.prepare(Problem(blur, 0.0)).solve(blur.forward(f)[None, None]).scene
    assert np.linalg.norm(found - f) <= 1e-9 * np.linalg.norm(f)


@pytest.mark.parametrize(("dtype", "promised"), [("f8", 2e-6), ("f4", 1e-4)])
def test_the_tolerance_of_refinement_is_within_the_promised_one(dtype, promised):
    close, rounding = refine.tolerance(Problem(Blur([[1.0]], (2, 2)), 1.0, dtype=np.dtype(dtype)))
    assert close <= promised
    assert rounding <= 300 * np.finfo(dtype).eps


CASES = {
    "fourier": ("periodic", "tikhonov"),
    "cosine": ("reflect", "tikhonov"),
    "sine": ("antireflect", "hht"),
    "kronecker": ("unknown", "tikhonov"),
    "banded": ("reflect", "hht"),
    "qr": ("unknown", "tikhonov"),
    "pcg": ("antireflect", "hht"),
    "hybrid_lsqr": ("unknown", "tikhonov"),
}


def factor_of(name, **options):
    boundary, formula = CASES.get(name, ("zero", "hht"))
    h = np.array([[1.0, 2.0, 1.0], [2.0, 5.0, 2.0], [1.0, 2.0, 1.0]]) / 17
    if name in ("pcg", "hybrid_lsqr"):
        h = np.array([[1.0, 4.0, 2.0, 0.0], [0.0, 3.0, 1.0, 0.5]]) / 11.5
    if name == "kronecker":
        h = np.outer([1.0, 3.0, 1.0], [2.0, 1.0])
    lam = 0.1 if name == "hybrid_lsqr" else 1e-3
    problem = Problem(Blur(h, (13, 12), boundary), lam, formula=formula, **options)
    module = solver(name)
    assert module.refuses(problem) is None
    return module.prepare(problem)


@pytest.mark.parametrize(("name", "dtype"), [*zip(DIRECT + ITERATIVE, cycle(["f4", "f8"]))])
def test_a_factor_gives_the_same_bits_in_threads_and_after_pickling(rng, name, dtype):
    images = rng.random((5, 2, 1, 13, 12)).astype(dtype)
    factor = factor_of(name, dtype=np.dtype(dtype), reuse=True)
    alone = [factor.solve(g).scene for g in images]
    assert all(scene.shape[:2] == (2, 1) for scene in alone)
    with ThreadPoolExecutor(4) as pool:
        together = [solution.scene for solution in pool.map(factor.solve, images)]
    fresh = [factor_of(name, dtype=np.dtype(dtype), reuse=True).solve(g).scene for g in images[::-1]][::-1]
    pickled = pickle.loads(pickle.dumps(factor))
    copied = copy.deepcopy(factor)
    for i, g in enumerate(images):
        for other in (together[i], fresh[i], pickled.solve(g).scene, copied.solve(g).scene):
            assert np.array_equal(other, alone[i])
    solution = factor.solve(images[0])
    assert np.array_equal(pickle.loads(pickle.dumps(solution)).scene, solution.scene)


@pytest.mark.parametrize("name", ["cholesky", "gauss-jordan", "gauss-seidel"])
def test_an_inverse_pickles(rng, name):
    factor, g = factor_of(name, inverse=True), rng.random((1, 3, 13, 12))
    solution = factor.solve(g)
    assert solution.converged
    assert np.array_equal(pickle.loads(pickle.dumps(factor)).solve(g).scene, solution.scene)


def test_gauss_jordan_stores_an_inverse_for_several_images(rng, monkeypatch):
    inverted = []
    form = linalg.gauss_jordan_inverse
    monkeypatch.setattr(linalg, "gauss_jordan_inverse", lambda a, **how: inverted.append(1) or form(a, **how))
    problem = {"operator": Blur(rng.random((3, 3)), (9, 10)), "lam": 1e-2}
    g = rng.random((1, 1, 9, 10))
    once, often = (Dense("gauss-jordan").prepare(Problem(**problem, reuse=reuse)) for reuse in (False, True))
    assert inverted == [1]  # for `often` alone
    a, b = once.solve(g).scene, often.solve(g).scene
    assert np.linalg.norm(a - b) <= 1e-12 * np.linalg.norm(a)
    assert np.array_equal(once.solve(g).scene, a)
    assert not once.solve(g).why
    assert not often.solve(g).why

"""Every linear method's prepared factor: it pickles, threads share it, and no answer depends on an earlier one."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_status import DIRECT, ITERATIVE, solver

from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers.dense import Dense

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
    lam = 0.1 if name == "hybrid_lsqr" else 1e-3  # as many steps as that takes, for each image
    problem = Problem(Blur(h, (13, 12), boundary), lam, formula=formula, **options)
    module = solver(name)
    assert module.refuses(problem) is None
    return module.prepare(problem)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", DIRECT + ITERATIVE)
def test_a_factor_gives_the_same_bits_alone_again_in_threads_and_after_a_journey(rng, name, dtype):
    images = rng.random((5, 2, 1, 13, 12)).astype(dtype)
    factor = factor_of(name, dtype=np.dtype(dtype), reuse=True)
    alone = [factor.solve(g).scene for g in images]
    assert all(scene.shape[:2] == (2, 1) for scene in alone)
    with ThreadPoolExecutor(4) as pool:
        together = [solution.scene for solution in pool.map(factor.solve, images)]
    fresh = [factor_of(name, dtype=np.dtype(dtype), reuse=True).solve(g).scene for g in images[::-1]][::-1]
    travelled = pickle.loads(pickle.dumps(factor))
    copied = copy.deepcopy(factor)
    for i, g in enumerate(images):
        for other in (together[i], fresh[i], travelled.solve(g).scene, copied.solve(g).scene):
            assert np.array_equal(other, alone[i])
    solution = factor.solve(images[0])
    again = pickle.loads(pickle.dumps(solution))
    assert np.array_equal(again.scene, solution.scene)


@pytest.mark.parametrize("name", ["cholesky", "gauss-jordan", "gauss-seidel"])
def test_an_inverse_travels_too(rng, name):
    factor, g = factor_of(name, inverse=True), rng.random((1, 3, 13, 12))
    solution = factor.solve(g)
    assert solution.converged
    assert np.array_equal(pickle.loads(pickle.dumps(factor)).solve(g).scene, solution.scene)


def test_gauss_jordan_keeps_an_inverse_where_it_will_serve_again(rng):
    problem = {"operator": Blur(rng.random((3, 3)), (9, 10)), "lam": 1e-2}
    g = rng.random((1, 1, 9, 10))
    once, often = (Dense("gauss-jordan").prepare(Problem(**problem, reuse=reuse)) for reuse in (False, True))
    assert type(once) is not type(often)
    a, b = once.solve(g).scene, often.solve(g).scene
    assert np.linalg.norm(a - b) <= 1e-12 * np.linalg.norm(a)
    assert np.array_equal(once.solve(g).scene, a)
    assert not once.solve(g).why
    assert not often.solve(g).why

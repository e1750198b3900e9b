"""Method pcg against the dense answer, its parts against the products they replace, and its honesty."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse.linalg
from structured import (
    LINE,
    OTHERS,
    PSFS,
    VOLUME,
    check_against_dense,
    check_float32,
    check_stack_is_frames,
    dense_answer,
    problems,
    relative_error,
    solved,
)

from deblur import psf
from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.problem import Problem, Stop
from deblur.solvers import banded, cosine, fourier, kronecker, pcg, sine

SMALL = [(7, 8), (11, 13), (1, 6), (5, 1), (1, 1), LINE, VOLUME]
NAMES = ["symmetric", "row", "asymmetric", "even", "pixel", *OTHERS]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_equals_the_dense_answer_where_edges_meet(rng, xp, boundary):
    least = 13 if boundary == "unknown" else 25
    assert check_against_dense(pcg, rng, boundary, SMALL, NAMES, lam=1e-3, xp=xp) >= least


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_equals_the_dense_answer_with_bands_and_corners(rng, xp, boundary):
    reused = SimpleNamespace(refuses=pcg.refuses, prepare=lambda problem: pcg.prepare(replace(problem, reuse=True)))
    names = ["asymmetric", "even", "row"]
    assert check_against_dense(reused, rng, boundary, [(31, 37)], names, lam=1e-2, xp=xp) >= 3


@pytest.mark.parametrize("boundary", ["zero", "unknown"])
def test_large_corners_are_corrected_where_many_frames_follow(rng, boundary):
    blur = Blur(np.pad(PSFS["asymmetric"], ((4, 0), (6, 0))), (50, 51), boundary)
    g = blur.forward(rng.random((1, *blur.scene_shape)))
    found = [solved(pcg, Problem(blur, 1e-2, **how), g) for how in ({"reuse": True}, {"frames": 8}, {})]
    steps = [info.iterations for _, info in found]
    assert steps[0] == steps[1] < steps[2]
    assert max(relative_error(f, found[0][0]) for f, _ in found) <= 1e-6
    # With a small λ a patch is too short-sighted, and is left out.
    blur = Blur(psf.disk(9), (80, 80), boundary)
    g = blur.forward(rng.random((1, *blur.scene_shape)))
    steps = [solved(pcg, Problem(blur, 1e-4, reuse=reuse), g)[1].iterations for reuse in (True, False)]
    assert steps[0] <= steps[1]


@pytest.mark.parametrize("boundary", [b for b in BOUNDARIES if b != "periodic"])
@pytest.mark.parametrize("name", ["asymmetric", "even", "symmetric", "column"])
def test_all_that_differs_lies_on_the_border(rng, boundary, name):
    blur = Blur(PSFS[name], (37, 41), boundary)
    problem = Problem(blur, 1e-2)
    embedding, border = pcg._Embedding(problem), pcg.border_of(problem)
    assert border.banded
    x = rng.standard_normal((2, 37, 41))
    difference = blur.forward(blur.adjoint(embedding(x))) + 1e-2 * embedding(x) - x
    assert np.abs(difference - border.put(border.take(difference), np.zeros_like(difference))).max() <= 1e-12
    # The bands give what the whole product gives.
    assert np.abs(border.product(x) - border.take(blur.forward(blur.adjoint(x)) + 1e-2 * x)).max() <= 1e-13


def test_few_iterations_whatever_the_size(rng):
    iterations = []
    for n in (64, 160):
        blur = Blur(psf.gaussian(9, 1.5), (n, n))
        g = blur.forward(rng.random((1, n, n)))
        iterations.append(solved(pcg, Problem(blur, 1e-3, reuse=True), g)[1].iterations)
    assert max(iterations) <= 8


def test_stack_is_its_frames(rng):
    problem = Problem(Blur(PSFS["asymmetric"], (31, 37), "reflect"), 1e-2, stop=Stop(rtol=1e-12))
    check_stack_is_frames(pcg, problem, rng, tolerance=1e-9)


@pytest.mark.parametrize("boundary", ["zero", "unknown"])
def test_float32(rng, boundary):
    check_float32(pcg, Blur(psf.gaussian(5, 1.0), (40, 33), boundary), rng, tolerance=2e-5)


def test_residual_is_what_it_says(rng):
    blur = Blur(PSFS["asymmetric"], (31, 37))
    g = rng.standard_normal((1, 31, 37))
    for rtol in (1e-3, 1e-10):
        f, info = solved(pcg, Problem(blur, 1e-2, formula="hht", stop=Stop(rtol=rtol)), g)
        b = blur.adjoint(g)
        residual = np.linalg.norm(b - blur.forward(blur.adjoint(f)) - 1e-2 * f) / np.linalg.norm(b)
        assert info.converged
        assert residual <= rtol


def test_callback_hears_every_iteration(rng):
    heard, stop = [], Stop(callback=lambda i, r: heard.append((i, r)))
    problem = Problem(Blur(PSFS["even"], (31, 37)), 1e-3, stop=stop)
    _, info = solved(pcg, problem, rng.standard_normal((1, 31, 37)))
    assert {i for i, _ in heard} == set(range(info.iterations + 1))
    assert heard[-1][1] <= 1e-8


def test_too_few_iterations_are_reported(rng):
    problem = Problem(Blur(psf.camera_shake(9, 0), (40, 40)), 1e-4, stop=Stop(max_iterations=3))
    _, info = solved(pcg, problem, rng.standard_normal((1, 40, 40)))
    assert not info.converged
    assert info.iterations == 3
    assert "banded" in info.why


def test_stagnation_is_reported(rng):
    # No solution in float32 has so small a residual.
    blur, single = Blur(psf.gaussian(5, 1.0), (40, 40)), np.dtype(np.float32)
    problem = Problem(blur, 1e-3, dtype=single, stop=Stop(rtol=1e-12))
    _, info = solved(pcg, problem, rng.standard_normal((1, 40, 40)).astype(np.float32))
    assert not info.converged
    assert "stagnated" in info.why
    assert "float64" in info.why


def test_restarts_go_on(rng, monkeypatch):
    blur = Blur(PSFS["asymmetric"], (31, 37))
    g = rng.standard_normal((1, 31, 37))
    monkeypatch.setattr(pcg, "_RESTART", 3)
    f, info = solved(pcg, Problem(blur, 1e-2), g)
    assert info.converged
    assert info.iterations > 3
    assert relative_error(f, dense_answer(blur, 1e-2, "tikhonov", g)) <= 1e-7


def test_refusals():
    assert "λ > 0" in pcg.refuses(Problem(Blur(PSFS["even"], (9, 8)), 0.0))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_every_structured_method_at_40x40(rng, boundary):
    """One sparse factorisation a boundary and λ, all methods and both formulas against it."""
    served = set()
    for h, lams in ((PSFS["binomial"], (1e-3, 1e-6)), (PSFS["even"], (1e-6,))):
        blur = Blur(h, (40, 40), boundary)
        g = rng.standard_normal((1, 40, 40))
        sparse = blur.to_sparse()
        for lam in lams:
            a = sparse @ sparse.T + lam * scipy.sparse.eye_array(40 * 40)
            factor = scipy.sparse.linalg.splu(a.tocsc())
            for solver in (kronecker, fourier, cosine, sine, banded, pcg):
                if solver is pcg and lam < 1e-4 and boundary == "antireflect":
                    continue  # needs more iterations than it is worth; see its docstring
                for problem in problems(solver, blur, lam):
                    if problem.formula == "tikhonov":
                        reference = sparse.T @ factor.solve(g.ravel())
                    else:
                        reference = factor.solve(sparse.T @ g.ravel())
                    f, info = solved(solver, problem, g)
                    error = relative_error(f, reference.reshape(1, *blur.scene_shape))
                    assert info.converged, (solver.__name__, lam, problem.formula, info)
                    assert error <= 1e-7, (solver.__name__, lam, problem.formula, error)
                    served.add(solver)
    own = {"periodic": {fourier}, "reflect": {cosine, banded}, "antireflect": {sine, banded}}
    assert served == {kronecker, pcg} | own.get(boundary, {banded})

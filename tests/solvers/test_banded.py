"""Method banded against the dense answer."""

import numpy as np
import pytest
from refusals import refused
from structured import PSFS, check_against_dense

import deblur.device
from deblur.errors import InsufficientMemoryError, SingularMatrixError
from deblur.operators.blur import Blur
from deblur.operators.normal import normal_matrix
from deblur.problem import Problem
from deblur.solvers import banded

SHAPES = [(7, 8), (8, 7), (11, 13), (12, 5), (1, 6), (5, 1), (1, 1)]


@pytest.mark.parametrize("boundary", ["zero", "reflect", "antireflect", "unknown"])
def test_equals_the_dense_answer(rng, boundary):
    assert check_against_dense(banded, rng, boundary, SHAPES) >= 40


@pytest.mark.parametrize("boundary", ["zero", "reflect", "antireflect", "unknown"])
@pytest.mark.parametrize("shape", [(12, 9), (9, 12)])
@pytest.mark.parametrize("name", PSFS)
def test_the_band_is_as_announced(boundary, shape, name):
    problem = Problem(blur := Blur(PSFS[name], shape, boundary), 1e-3)
    solve = banded.prepare(problem)._columns
    factor = (solve.args[0] if shape[1] > shape[0] else solve).__self__.lower
    assert factor.nbytes <= banded.memory(problem)[0]
    assert len(factor) - 1 <= banded._bandwidth(blur)


def test_refusals():
    assert "fft" in banded.refuses(Problem(Blur(PSFS["even"], (9, 8), "periodic"), 1e-3))


def test_too_large_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(deblur.device, "free_memory", lambda xp: 1 << 20)
    refused(InsufficientMemoryError, "pcg", banded.prepare, Problem(Blur(PSFS["even"], (100, 100)), 1e-3))


def test_singular_at_lambda_zero():
    flat = np.array([[1.0, -1.0]])
    refused(SingularMatrixError, "larger λ", banded.prepare, Problem(Blur(flat, (6, 6), "reflect"), 0.0))


@pytest.mark.parametrize("boundary", ["zero", "reflect", "antireflect", "unknown"])
@pytest.mark.parametrize("shape", [(13, 9), (8, 8)])  # the longer side first, as the method turns them
@pytest.mark.parametrize("name", ["asymmetric", "even", "row", "pixel"])
def test_blocks_make_the_factor_of_the_whole(rng, monkeypatch, boundary, shape, name):
    monkeypatch.setattr(banded, "LEAST_ROWS", 2)
    monkeypatch.setattr(banded, "WHOLE_ROWS", 0)
    blur = Blur(PSFS[name], shape, boundary)
    a = normal_matrix(blur, 1e-3)
    factor = banded.BlockFactor(len(a), banded._block(blur), lambda i, j, k, m: a[i:j, k:m].copy())
    b = rng.random((len(a), 3))
    assert factor.largest == a.max()
    np.testing.assert_allclose(factor.solve(b), np.linalg.solve(a, b), rtol=1e-8)


@pytest.mark.gpu
@pytest.mark.parametrize("boundary", ["zero", "reflect", "antireflect", "unknown"])
def test_on_the_gpu_it_is_the_dense_answer(cupy, rng, monkeypatch, boundary):
    monkeypatch.setattr(banded, "LEAST_ROWS", 32)
    monkeypatch.setattr(banded, "WHOLE_ROWS", 0)
    shapes = [*SHAPES, (40, 9), (9, 40)]
    assert check_against_dense(banded, rng, boundary, shapes, xp=cupy) >= 40

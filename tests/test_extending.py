"""A boundary, solver, regularizer, stencil or PSF is added as one object or function and one row of a table."""

import sys
import types

import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse
from refusals import refused
from structured import dense_answer

import deblur
from deblur import psf, terms
from deblur.methods import METHODS, Method
from deblur.problem import Direct
from deblur.psf import forms
from deblur.terms import DIFFERENCES, REGULARIZERS, Difference, Regularizer

PSF = np.outer([1, 3, 2], [2, 5, 1]) / 48


class Nearest(deblur.Boundary):
    """The edge pixel is repeated beyond the frame."""

    continued = True

    def matrix(self, n, first, last):
        i = np.arange(first, last)
        return scipy.sparse.csr_array((np.ones(len(i)), (i - first, i.clip(0, n - 1))), shape=(last - first, n))


@pytest.mark.parametrize("method", ["auto", "pcg", "kronecker", "banded"])
def test_a_boundary_is_one_object(rng, method):
    nearest, g = Nearest("nearest"), rng.random((21, 18))
    blur = deblur.Blur(PSF, g.shape, nearest)
    # H itself, against SciPy's.
    f = rng.random(g.shape)
    assert np.abs(blur.forward(f) - scipy.ndimage.convolve(f, PSF, mode="nearest")).max() <= 1e-14
    result = deblur.solve(g, PSF, 1e-2, boundary=nearest, method=method)
    assert np.abs(result.image - dense_answer(blur, 1e-2, "tikhonov", g[None])[0]).max() <= 1e-7
    assert "nearest" in str(result)


def test_tv_serves_a_boundary_that_a_user_defines(rng):
    g = rng.random((21, 18))
    result = deblur.solve(g, PSF, 0.05, boundary=Nearest("nearest"), method="tv", rtol=1e-6, max_iterations=5000)
    # A minimiser: no small change of the scene lowers the objective.
    scene = result.image[None, None]
    least = result.problem.objective(g[None, None], scene)
    for _ in range(20):
        assert result.problem.objective(g[None, None], scene + 1e-3 * rng.standard_normal(scene.shape)) > least


def test_a_solver_is_one_file_and_one_row(rng, monkeypatch):
    """LSQR from SciPy, as a solver module of three functions."""
    toy = types.ModuleType("deblur.solvers.toy")

    class Toy(Direct):
        def __init__(self, problem):
            self.problem = problem

        def scenes(self, g):
            blur, lam = self.problem.blur, self.problem.lam
            found = [scipy.sparse.linalg.lsqr(blur, x.ravel(), np.sqrt(lam), atol=1e-13, btol=1e-13)[0] for x in g]
            return np.reshape(found, (len(g), *blur.scene_shape))

    toy.refuses = lambda problem: "it needs λ > 0" if not problem.lam > 0 else None
    toy.memory = lambda problem: (0.0, 0.0, 0.0)
    toy.prepare = Toy
    monkeypatch.setitem(sys.modules, "deblur.solvers.toy", toy)
    monkeypatch.setitem(METHODS, "toy", Method("toy", "SciPy's LSQR", "toy", linear=True, shift_invariant=True))
    g = rng.random((12, 13))
    result = deblur.solve(g, PSF, 1e-2, method="toy", boundary="zero")
    expected = dense_answer(deblur.Blur(PSF, g.shape), 1e-2, "tikhonov", g[None])[0]
    assert np.abs(result.image - expected).max() <= 1e-8
    assert result.status is deblur.Status.SOLVED
    with pytest.raises(deblur.MethodError, match="'toy' cannot be used here: it needs λ > 0"):
        deblur.solve(g, PSF, 0, method="toy", boundary="zero")
    with pytest.raises(deblur.MethodError, match="'toy' cannot be used here.*a mask"):
        deblur.solve(g, PSF, 1e-2, method="toy", mask=g > 2, boundary="zero")
    refused(ValueError, "toy", deblur.solve, g, PSF, 1e-2, method="no such method", boundary="zero")


def test_a_regularizer_is_one_row_and_a_row_of_methods(rng, monkeypatch):
    monkeypatch.setitem(REGULARIZERS, "sparse", (Regularizer("identity", "absolute"),))
    monkeypatch.setitem(METHODS, "sparse", Method("sparse", "λ Σ|f|", "admm", iterative=True, regularizer="sparse"))
    # Without blur the minimiser is the soft threshold.
    g = rng.standard_normal((14, 11))
    result = deblur.solve(g, [[1.0]], 0.3, method="sparse", rtol=1e-7, max_iterations=2000, boundary="zero")
    assert np.abs(result.image - np.sign(g) * np.maximum(abs(g) - 0.3, 0)).max() <= 1e-5


def test_a_stencil_is_a_row_and_its_order(rng, monkeypatch):
    doubled = Difference((1, (1, 0)), (-1, (0, 0)), scale=2)
    monkeypatch.setitem(DIFFERENCES, "doubled", lambda axes: (doubled,))
    monkeypatch.setitem(terms.ORDER, "doubled", 1)
    monkeypatch.setitem(REGULARIZERS, "down", (Regularizer("doubled", "square"),))
    monkeypatch.setitem(
        METHODS, "down", Method("down", "λ/2 ‖2 ∂₁f‖²", "quadratic", iterative=True, regularizer="down")
    )
    g = rng.random((9, 7))
    result = deblur.solve(g, [[1.0]], 0.3, method="down", rtol=1e-12, boundary="zero")
    d = 2 * (np.eye(9)[1:] - np.eye(9)[:-1])
    assert np.abs(result.image - np.linalg.solve(np.eye(9) + 0.3 * d.T @ d, g)).max() <= 1e-9
    assert terms.is_quadratic("down")


def test_a_psf_is_a_function_and_one_row(monkeypatch):
    monkeypatch.setitem(forms.TABLE, "cross", lambda size: np.eye(size))
    assert np.array_equal(psf.parse("cross:5"), np.eye(5))

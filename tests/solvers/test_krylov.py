"""Krylov spaces on the GPU against the CPU's, which are held to dense solves."""

import numpy as np
import pytest

from deblur import psf
from deblur.operators.blur import Blur
from deblur.solvers.krylov import Bidiagonalization, gmres

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("boundary", ["unknown", "reflect"])
@pytest.mark.parametrize("frames", [1, 3])
def test_a_bidiagonalisation_is_the_cpus(cupy, rng, keep, boundary, frames):
    blur = Blur(psf.camera_shake(7, 2), (40, 51), boundary)
    g = rng.random((frames, 40, 51))
    wanted, found = Bidiagonalization(blur, g, keep), Bidiagonalization(blur, cupy.asarray(g), keep)
    for count in (1, 1, 3, 12, 20):
        wanted.advance(count)
        found.advance(count)
    assert found.steps == wanted.steps == 37
    # Without bases what is lost of orthogonality depends on rounding, later on.
    some = slice(None) if keep else slice(15)
    for mine, its in ((found.alphas, wanted.alphas), (found.betas, wanted.betas)):
        np.testing.assert_allclose(np.array(mine)[some], np.array(its)[some], rtol=1e-6)
    assert found.norm == pytest.approx(wanted.norm, rel=1e-9)
    if keep:
        scene, near = found.scene(1e-2).get(), wanted.scene(1e-2)
        assert abs(scene - near).max() <= 1e-8 * abs(near).max()


def test_many_steps_at_once_are_those_taken_one_by_one(cupy, rng):
    blur = Blur(psf.camera_shake(7, 2), (40, 51), "unknown")
    g = cupy.asarray(rng.random((2, 40, 51)))
    one, many = Bidiagonalization(blur, g, False), Bidiagonalization(blur, g, False)
    for i in range(150):
        one.ahead(i % 7)
        one.advance()
    many.advance(150)
    np.testing.assert_array_equal(one.alphas, many.alphas)
    np.testing.assert_array_equal(one.betas, many.betas)


def test_an_exhausted_space_ends(cupy):
    blur = Blur(np.array([[0.5, 0.5]]), (1, 9), "periodic")
    for keep in (False, True):
        bases = Bidiagonalization(blur, cupy.ones((2, 1, 9)), keep)
        bases.advance(30)
        assert bases.ended()
        assert bases.steps < 9
    black = Bidiagonalization(blur, cupy.zeros((1, 1, 9)), False)
    black.advance(2)
    assert black.ended()


def test_gmres_finds_what_the_cpus_finds(cupy, rng, dtype):
    a = (np.eye(300) + 0.03 * rng.standard_normal((300, 300))).astype(dtype)
    c = rng.standard_normal((3, 300)).astype(dtype)
    c[1] = 0
    answers = []
    for take in (np.asarray, cupy.asarray):
        matrix, seen = take(a), []

        def finished(j, norms, seen=seen):
            seen.append(norms.copy())
            return bool((norms <= 1e-3).all())

        s, n = gmres(lambda x, m=matrix: x @ m.T, lambda x: x, take(c), finished, 60, False)
        answers.append((s if take is np.asarray else s.get(), n, np.array(seen)))
    (s, n, seen), (found, steps, known) = answers
    assert steps == n
    np.testing.assert_allclose(known, seen, rtol=1e-3, atol=1e-4)
    assert abs(found - s).max() <= (1e-4 if dtype == np.float32 else 1e-10)
    assert np.linalg.norm(found @ a.T - c, axis=1).max() <= 1.1e-3

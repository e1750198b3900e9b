"""The border on the GPU against that on the CPU, which is held to dense matrices."""

import numpy as np
import pytest

from deblur.device import CPU, Device
from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers import pcg
from deblur.solvers.border import torus_of
from deblur.solvers.border_gpu import BorderGPU

pytestmark = pytest.mark.gpu

SIZES = [((5, 4), (60, 71)), ((9, 1), (50, 12)), ((1, 7), (9, 64)), ((2, 6), (40, 90))]


def both(rng, size, shape, dtype=np.float64):
    psf = rng.random(size)
    blur, dtype = Blur(psf / psf.sum(), shape, "unknown"), np.dtype(dtype)
    problems = [Problem(blur, 0.1, dtype=dtype, device=device) for device in (CPU, Device(0))]
    borders = [pcg.border_of(p) for p in problems]
    assert [isinstance(border, BorderGPU) for border in borders] == [False, True]
    return problems, borders, [pcg._Embedding(p) for p in problems]


@pytest.mark.parametrize(("size", "shape"), SIZES)
def test_borders_are_taken_put_and_multiplied_alike(cupy, rng, size, shape):
    _, (here, there), _ = both(rng, size, shape)
    whole = rng.standard_normal((3, shape[0] + 4, shape[1] + 5))
    images = [take(whole)[:, 2:-2, 3:-2] for take in (np.asarray, cupy.asarray)]
    s, found = here.take(images[0]), there.take(images[1])
    np.testing.assert_array_equal(found.get(), s)
    np.testing.assert_allclose(there.product(images[1]).get(), here.product(images[0]), rtol=0, atol=1e-13)
    out = there.put(found[:, :], cupy.zeros((3, shape[0] + 1, shape[1] + 2))).get()
    np.testing.assert_array_equal(out, here.put(s, np.zeros(out.shape)))


@pytest.mark.parametrize(("size", "shape"), SIZES)
def test_the_preconditioner_is_the_cpus(cupy, rng, size, shape, dtype):
    problems, borders, embeddings = both(rng, size, shape, dtype)
    here, there = (pcg._Schwarz(r, m, p) for r, m, p in zip(borders, embeddings, problems, strict=True))
    s = rng.standard_normal((5, borders[0].size)).astype(dtype)
    wanted, found = here(s), there(cupy.asarray(s))
    assert found.dtype == dtype
    # Patches are inverted in single precision.
    assert np.linalg.norm(found.get() - wanted) <= 2e-5 * np.linalg.norm(wanted)
    apart = cupy.asarray(np.stack([s, s]))[:, ::2].swapaxes(0, 1)[:, 1]  # rows that lie apart
    np.testing.assert_array_equal(there(apart).get(), found.get()[::2])


@pytest.mark.parametrize("axis", [0, 1])
def test_the_edges_system_is_the_cpus(cupy, rng, axis):
    problems, borders, _ = both(rng, (5, 4), (60, 71))
    symbols = []
    for problem in problems:
        psf, lengths = problem.blur.psf, torus_of(problem.blur)
        if axis:
            psf, lengths = psf.T, lengths[::-1]
        symbols.append(pcg.Torus(lengths, problem.device).power(psf) + problem.lam)
    wanted, found = (
        border.system(axis, symbol, np.dtype(float)) for border, symbol in zip(borders, symbols, strict=True)
    )
    found = found.get()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("frames", [1, 3])
def test_an_iteration_is_the_same_as_a_graph(cupy, rng, monkeypatch, frames):
    psf = rng.random((5, 4))
    problem = Problem(Blur(psf / psf.sum(), (60, 71), "unknown"), 1e-4, device=Device(0))
    factor, g = pcg.prepare(problem), cupy.asarray(rng.random((frames, 1, 60, 71)))
    found = factor.solve(g)
    assert found.iterations > 5
    monkeypatch.setattr(pcg, "_LAUNCHED", 0)
    known = factor.solve(g)
    assert known.iterations == found.iterations
    assert bool((known.scene == found.scene).all())

"""ADMM's kernels and captured graphs against the same iteration in NumPy."""

import numpy as np
import pytest
from problems import changed, problem_of
from references import scene_like

import deblur
from deblur.operators.blur import Blur
from deblur.pool import SMALLEST, forget, pool
from deblur.solvers import admm, admm_gpu
from deblur.terms import REGULARIZERS

pytestmark = pytest.mark.gpu

SHAPE = (37, 50)
FIDELITIES = {
    "gaussian": {},
    "poisson": {"data": "poisson", "background": 0.05},
    "l1": {"data": "l1"},
    "huber": {"data": "huber", "delta": 0.02, "background": 0.01},
}


def blurred(rng, boundary, frames=1, channels=1):
    blur = Blur(deblur.psf.camera_shake(7, 3), SHAPE, boundary)
    scenes = np.stack([scene_like(rng, blur.scene_shape) for _ in range(frames * channels)])
    g = blur.forward(scenes).reshape(frames, channels, *SHAPE)
    return blur, (g + 0.02 * rng.standard_normal(g.shape)).clip(0, None)


def both(cupy, problem, g, start=(None, None)):
    """The solutions on CPU and GPU of a problem in NumPy's arrays."""
    here = admm.prepare(problem).solve(g, start[0])
    there = problem
    if problem.fidelity.weights is not None:
        there = changed(there, weights=cupy.asarray(problem.fidelity.weights))
    there = changed(there, xp=cupy)
    factor = admm.prepare(there)
    assert admm_gpu.serves(factor.domain, there, cupy.asarray(g))
    return here, factor.solve(cupy.asarray(g), start[1])


def assert_same(here, there, close):
    assert there.iterations == here.iterations
    assert there.converged == here.converged
    size = np.linalg.norm(here.scene)
    assert np.linalg.norm(there.scene.get() - here.scene) <= close * size
    np.testing.assert_allclose(there.history.objective, here.history.objective, rtol=1e3 * close)


@pytest.mark.parametrize("boundary", ["unknown", "zero", "periodic"])
@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_every_penalty_is_the_cpus_iteration(cupy, rng, regularizer, boundary):
    blur, g = blurred(rng, boundary)
    problem = problem_of(blur, regularizer, 2e-3, max_iterations=40, bounds=(0.0, 0.8))
    assert_same(*both(cupy, problem, g), 1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_every_fit_is_the_cpus_iteration(cupy, rng, fidelity, weighted):
    blur, g = blurred(rng, "unknown", frames=2, channels=3)
    weights = (rng.random((2, 1, *SHAPE)) * (rng.random((2, 1, *SHAPE)) > 0.2)) if weighted else None
    options = FIDELITIES[fidelity] if weights is None else {**FIDELITIES[fidelity], "weights": weights}
    assert_same(*both(cupy, problem_of(blur, "tv2", 5e-3, max_iterations=35, **options), g), 1e-9)


@pytest.mark.parametrize("norm", ["tv", "tv-aniso"])
def test_float32_converges_as_on_the_cpu(cupy, rng, norm):
    blur, g = blurred(rng, "unknown")
    here, there = both(cupy, problem_of(blur, norm, 2e-3, dtype=np.dtype(np.float32)), g.astype(np.float32))
    assert there.converged
    assert abs(there.iterations - here.iterations) <= 1
    assert np.linalg.norm(there.scene.get() - here.scene) <= 1e-3 * np.linalg.norm(here.scene)


def test_a_small_lambda_is_approached_from_a_large_one(cupy, rng):
    blur, g = blurred(rng, "unknown")
    here, there = both(cupy, problem_of(blur, "tv", 1e-5), g)
    assert here.converged
    assert_same(here, there, 1e-8)


def test_a_warm_start_goes_on_where_the_last_ended(cupy, rng):
    blur, g = blurred(rng, "unknown")
    problem = problem_of(blur, "tv2", 4e-3, bounds=(0.0, np.inf))
    first = both(cupy, problem, g)
    again = both(cupy, changed(problem, lam=3e-3), g, first)
    assert again[0].iterations < first[0].iterations
    assert_same(*again, 1e-8)


def test_a_state_outlives_the_workspace(cupy, rng):
    blur, g = blurred(rng, "unknown")
    factor = admm.prepare(changed(problem_of(blur, "tv", 4e-3, max_iterations=20), xp=cupy))
    one = factor.solve(cupy.asarray(g))
    before = one.scene.copy(), one.state.x.copy(), one.state.t[0][0].copy()
    factor.solve(cupy.asarray(g[..., ::-1]))
    for old, now in zip(before, (one.scene, one.state.x, one.state.t[0][0]), strict=True):
        assert bool((old == now).all())


def test_repeats_are_bit_for_bit_also_in_four_threads_on_four_streams(cupy, rng, on_four_streams):
    blur, g = blurred(rng, "unknown")
    images = [cupy.asarray(np.roll(g, i, -1)) for i in range(4)]
    factor = admm.prepare(changed(problem_of(blur, "tv", 2e-3), xp=cupy))
    alone = [factor.solve(image).scene for image in images]
    assert all(on_four_streams(lambda i: bool((factor.solve(images[i]).scene == alone[i]).all()), 5))


def test_without_a_graph_the_answer_is_the_same(cupy, rng, monkeypatch):
    blur, g = blurred(rng, "unknown")
    factor = admm.prepare(changed(problem_of(blur, "tv", 2e-3), xp=cupy))
    captured = factor.solve(cupy.asarray(g))
    forget()
    monkeypatch.setattr(cupy.cuda.Stream, "end_capture", _fails(cupy, cupy.cuda.Stream.end_capture))
    assert bool((factor.solve(cupy.asarray(g)).scene == captured.scene).all())


def _fails(cupy, end):
    def ended(stream):
        end(stream)
        raise cupy.cuda.runtime.CUDARuntimeError(2)  # out of memory

    return ended


def test_a_caller_that_captures_its_stream_is_refused(cupy, rng):
    _, g = blurred(rng, "unknown")
    image = cupy.asarray(g[0, 0])
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(RuntimeError, match="being captured"):
                deblur.Deblurrer(np.ones((3, 3)) / 9, SHAPE, 1e-2, gpu=True, method="tv").solve(image)
        finally:
            stream.end_capture()
    assert bool(cupy.isfinite(deblur.reconstruct(image, np.ones((3, 3)) / 9, 1e-2, method="tv")).all())


def test_what_is_kept_is_bounded(cupy, rng, monkeypatch):
    blur, g = blurred(rng, "unknown")
    factor = admm.prepare(changed(problem_of(blur, "tv", 2e-3, max_iterations=3), xp=cupy))
    factor.solve(cupy.asarray(g))
    assert pool(0).nbytes > 0
    monkeypatch.setattr(pool(0), "budget", 2 * SMALLEST)
    for frames in (2, 3):
        factor.solve(cupy.asarray(np.concatenate([g] * frames)))
        assert pool(0).nbytes <= 2 * SMALLEST

"""One Deblurrer for many frames, threads and processes: what is cached does not change an answer."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from refusals import refused

import deblur
from deblur.methods import METHODS, Method
from deblur.solvers import dense

PSF = deblur.psf.gaussian(5, 1.0)
#: Options with which a method serves.
SERVED = {
    "fft": {"boundary": "periodic"},
    "dct": {"boundary": "reflect"},
    "dst": {"boundary": "antireflect"},
    "richardson-lucy": {"boundary": "unknown"},
    "pnp": {"denoiser": "tv", "max_iterations": 3},
}


def frames(count=4, size=24):
    camera = deblur.data.load("camera")
    return [
        deblur.degrade(camera[40 * i : 40 * i + size, 200 : 200 + size], PSF, noise=0.01, seed=i) for i in range(count)
    ]


def deblurrer(method, lam=1e-3, size=24, **options):
    options = {"boundary": "zero"} | SERVED.get(method, {}) | options
    return deblur.Deblurrer(PSF, (size, size), lam, method=method, **options)


@pytest.mark.parametrize("method", METHODS)
def test_it_pickles_and_copies_before_and_after_use(method):
    g = frames(1, 16)[0]
    restore = deblurrer(method, size=16, **({} if METHODS[method].linear else {"max_iterations": 3}))
    other = pickle.loads(pickle.dumps(restore))
    first = restore.solve(g, check=False)
    for again in (other, pickle.loads(pickle.dumps(restore)), copy.deepcopy(restore)):
        assert np.array_equal(again.solve(g, check=False).image, first.image)


@pytest.mark.parametrize("method", [m.name for m in METHODS.values() if m.linear])
def test_every_frame_gives_what_the_call_gives(rng, method):
    psf = np.outer([1, 2, 1], [1, 2, 1]) / 16
    boundary = {"fft": "periodic", "dct": "reflect"}.get(method, "zero")
    frames = rng.random((3, 13, 14))
    restore = deblur.Deblurrer(psf, (13, 14), 1e-2, method=method, boundary=boundary)
    for frame in frames:
        one = deblur.reconstruct(frame, psf, 1e-2, method=method, boundary=boundary)
        assert np.allclose(restore(frame), one, atol=1e-7)


def test_the_second_frame_needs_no_setup(rng, monkeypatch):
    calls = []
    honest = dense.normal_matrix
    monkeypatch.setattr(dense, "normal_matrix", lambda *a, **k: calls.append(1) or honest(*a, **k))
    restore = deblur.Deblurrer(rng.random((3, 4)), (16, 16), 1e-2, method="cholesky", boundary="zero")
    first, second = (restore.solve(rng.random((16, 16))) for _ in range(2))
    assert len(calls) == 1
    assert first.setup_seconds > 0
    assert second.setup_seconds == 0


@pytest.mark.parametrize(
    ("method", "lam"),
    [
        *((method, 1e-3) for method in ("auto", "cholesky", "gauss-seidel", "hybrid-lsqr", "tv")),
        *((method, "auto") for method in ("auto", "gauss-jordan", "pcg", "gradient")),
    ],
)
def test_four_threads_give_what_one_gives(method, lam):
    images = frames(size=16)
    alone = deblurrer(method, lam, size=16)
    alone.tune(images[0])  # λ does not depend on which thread is first
    expected = [alone(g) for g in images]
    shared = deblurrer(method, lam, size=16)
    shared.tune(images[0])
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            for found, one in zip(pool.map(shared, images), expected, strict=True):
                assert np.array_equal(found, one)


def test_threads_without_a_lambda_agree_on_one_of_some_image(rng):
    lit = np.linspace(0.1, 1, 96) ** 2  # with photon noise each image has weights of its own
    images = [rng.poisson(900 * (i + 1) * lit * g.clip(0)) / 900 for i, g in enumerate(frames(size=96))]
    allowed = {deblurrer("gradient", "auto", 96).tune(g).lam for g in images}
    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(deblurrer("gradient", "auto", 96).solve, images))
        assert len({r.lam for r in results}) == 1
        assert results[0].lam in allowed


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_first_image_that_fails_decides_nothing(error, monkeypatch):
    g = deblur.data.load("camera")[100:196, 100:196]
    restore, fresh = (deblur.Deblurrer(PSF, g.shape) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(Method, "prepare", lambda *_, **__: (_ for _ in ()).throw(error))
        refused(error, None, restore, deblur.degrade(g, PSF, noise=0.1, boundary="zero", seed=0))
    found, expected = restore.solve(g), fresh.solve(g)
    assert (found.boundary, found.lam) == (expected.boundary, expected.lam)


def counted(monkeypatch):
    """A list that gets, for each solve of any method, iterations times frames."""
    work, honest = [], Method.prepare

    class Counting:
        def __init__(self, factor):
            self.factor = factor

        def solve(self, g, start=None):
            solution = self.factor.solve(g, start)
            work.append(solution.iterations * len(g))
            return solution

    monkeypatch.setattr(Method, "prepare", lambda *given, **how: Counting(honest(*given, **how)))
    return work


def test_the_second_frame_needs_no_tuning(monkeypatch):
    work = counted(monkeypatch)
    first, second = frames(2, 96)
    restore = deblur.Deblurrer(PSF, (96, 96), method="tv", boundary="unknown")
    one = restore.solve(first)
    spent = sum(work)
    work.clear()
    two = restore.solve(second)
    again = sum(work)
    third = restore.solve(np.random.default_rng(0).poisson(np.linspace(0, 90, 9216).reshape(96, 96)) / 90)
    # The third has photon noise.
    assert (third.lam, third.problem.noise) == (two.lam, two.problem.noise) == (one.lam, one.problem.noise)
    assert third.setup_seconds == two.setup_seconds == 0
    fresh = deblur.Deblurrer(PSF, (96, 96), one.lam, method="tv", boundary="unknown")
    work.clear()
    assert np.array_equal(fresh(second), two.image)
    assert again == sum(work) < 0.6 * spent


def test_a_warm_start_saves_iterations_only_on_request():
    g = frames(1, 48)[0]
    options = {"method": "tv", "boundary": "unknown"}
    cold = deblur.Deblurrer(PSF, (48, 48), 1e-3, **options)
    assert cold.solve(g).iterations == cold.solve(g).iterations
    warm = deblur.Deblurrer(PSF, (48, 48), 1e-3, warm_start=True, **options)
    first, second = warm.solve(g), warm.solve(g)
    assert second.iterations < 0.5 * first.iterations
    assert np.abs(second.image - first.image).max() <= 5e-3


def test_tune_says_what_it_chose_and_prepares():
    restore = deblur.Deblurrer(PSF, (24, 24), "gcv", boundary="zero")
    g = frames(1)[0]
    assert restore.lam == "gcv"
    assert restore.choice is None
    choice = restore.tune(g)
    assert restore.lam == choice.lam == deblur.solve(g, PSF, "gcv", boundary="zero").lam
    result = restore.solve(g)
    assert result.setup_seconds == 0
    assert result.lambda_choice.lam == choice.lam
    assert deblur.Deblurrer(PSF, (24, 24), 1e-3, boundary="zero").tune(g) is None


def test_impulses_are_detected_in_every_image():
    g = frames(1, 48)[0]
    options = {"method": "tv", "boundary": "unknown", "mask": "auto", "bounds": (0, 1)}
    restore = deblur.Deblurrer(PSF, g.shape, 1e-3, **options)
    assert restore.choice.method == "tv"
    for at in ((10, 10), (20, 30)):
        spoiled = g.copy()
        spoiled[at] = 5.0
        result = restore.solve(spoiled)
        assert result.mask[at]
        assert result.mask.sum() == 1
        assert np.array_equal(restore(spoiled), deblur.reconstruct(spoiled, PSF, 1e-3, **options))


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["auto", "cholesky", "gauss-jordan", "pcg", "kronecker", "qr", "tv", "gradient"])
def test_on_a_gpu_it_pickles_and_serves_threads(cupy, method):
    images = [cupy.asarray(g) for g in frames()]
    restore = deblur.Deblurrer(PSF, (24, 24), 1e-3, method=method, gpu=True, boundary="zero")
    first = restore.solve(images[0])
    for again in (pickle.loads(pickle.dumps(restore)), copy.deepcopy(restore)):
        assert bool((again.solve(images[0]).image == first.image).all())
    result = pickle.loads(pickle.dumps(first))
    assert result.problem == first.problem
    assert bool((copy.deepcopy(first).image == result.image).all())
    expected = [restore(g).get() for g in images]
    with ThreadPoolExecutor(4) as pool:
        for found, one in zip(pool.map(restore, images), expected, strict=True):
            assert np.array_equal(found.get(), one)


@pytest.mark.gpu
def test_an_image_on_the_other_device_is_refused(cupy):
    restore = deblur.Deblurrer(PSF, (24, 24), 1e-3, gpu=True, boundary="zero")
    refused(TypeError, "the cpu and this Deblurrer was set up for the gpu 0", restore, np.zeros((24, 24)))
    refused(deblur.NoGPUError, "there is no GPU 99", deblur.Deblurrer, PSF, (24, 24), 1e-3, gpu=99, boundary="zero")

"""One Deblurrer for many frames, threads and processes: what is kept, and that it changes no answer."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import deblur
from deblur.methods import METHODS, Method

PSF = deblur.psf.gaussian(5, 1.0)
#: A problem that each method serves.
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
        deblur.degrade(camera[40 * i : 40 * i + size, 200 : 200 + size], PSF, noise=0.01, seed=i)
        for i in range(count)
    ]


def deblurrer(method, lam=1e-3, size=24):
    return deblur.Deblurrer(
        PSF, (size, size), lam, method=method, **({"boundary": "zero"} | SERVED.get(method, {}))
    )


@pytest.mark.parametrize("method", METHODS)
def test_it_pickles_and_copies_before_and_after_use(method):
    g = frames(1, 16)[0]
    restore = deblurrer(method, size=16)
    other = pickle.loads(pickle.dumps(restore))
    first = restore.solve(g, check=False)
    for again in (other, pickle.loads(pickle.dumps(restore)), copy.deepcopy(restore)):
        assert np.array_equal(again.solve(g, check=False).image, first.image)


@pytest.mark.parametrize("method", ["cholesky", "pcg", "tv", "gradient", "richardson-lucy"])
def test_a_result_and_its_problem_pickle_and_compare(method):
    seen = []
    result = deblur.solve(
        frames(1)[0],
        PSF,
        "auto",
        method=method,
        callback=lambda n, r: seen.append(n),
        **({"boundary": "zero"} | SERVED.get(method, {})),
    )
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert again.problem == result.problem
        assert np.array_equal(again.image, result.image)
        assert again.status is result.status
        assert str(again) == str(result)
    assert result.problem != replace(result.problem, lam=2 * result.problem.lam + 1)


@pytest.mark.parametrize("lam", [1e-3, "auto"])
@pytest.mark.parametrize(
    "method", ["auto", "cholesky", "gauss-jordan", "gauss-seidel", "pcg", "hybrid-lsqr", "tv", "gradient"]
)
def test_four_threads_give_what_one_gives(method, lam):
    images = frames(size=16)
    alone = deblurrer(method, lam, size=16)
    alone.tune(images[0])  # threads come in any order, so the image that λ is chosen from is named
    expected = [alone(g) for g in images]
    shared = deblurrer(method, lam, size=16)
    shared.tune(images[0])
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for found, one in zip(pool.map(shared, images), expected, strict=True):
                assert np.array_equal(found, one)


def test_threads_that_find_no_lambda_yet_take_one_that_is_some_images(monkeypatch):
    images = frames()
    allowed = {deblurrer("auto", "gcv").tune(g).lam for g in images}
    for _ in range(5):
        shared = deblurrer("auto", "gcv")
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(shared.solve, images))
        assert len({r.lam for r in results}) == 1
        assert results[0].lam in allowed
        assert all(r.status.ok for r in results)


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

    monkeypatch.setattr(
        Method, "prepare", lambda self, problem, **how: Counting(honest(self, problem, **how))
    )
    return work


def test_the_second_frame_of_a_tuned_sequence_is_spared_the_tuning(monkeypatch):
    work = counted(monkeypatch)
    first, second = frames(2, 48)
    restore = deblur.Deblurrer(PSF, (48, 48), method="tv", boundary="unknown")
    one = restore.solve(first)
    spent = sum(work)
    work.clear()
    two = restore.solve(second)
    assert sum(work) <= 0.4 * spent
    assert two.lam == one.lam
    assert two.setup_seconds == 0
    # What is kept changes nothing: the answer is that of a Deblurrer which never saw the first frame.
    fresh = deblur.Deblurrer(PSF, (48, 48), one.lam, method="tv", boundary="unknown")
    assert np.array_equal(fresh(second), two.image)


def test_a_warm_start_saves_iterations_only_where_it_is_asked_for():
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

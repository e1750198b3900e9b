"""The table of methods and the choice among them."""

from dataclasses import replace

import numpy as np
import pytest

import deblur
from deblur import Blur, costs, methods
from deblur.device import CPU
from deblur.methods import METHODS, choose, choose_method, named, seconds_in_words
from deblur.operators.normal import normal_matrix
from deblur.problem import Problem
from deblur.terms import Fit


@pytest.mark.parametrize("boundary", deblur.BOUNDARIES)
@pytest.mark.parametrize("psf_shape", [(1, 1), (3, 3), (4, 3), (2, 5)])
def test_normal_matrix_is_the_product(rng, boundary, psf_shape):
    for shape in ((8, 7), (5, 13)):
        blur = Blur(rng.standard_normal(psf_shape), shape, boundary)
        h = blur.to_dense()
        expected = h @ h.T + 0.3 * np.eye(len(h))
        assert np.abs(normal_matrix(blur, 0.3) - expected).max() <= 1e-13 * np.abs(expected).max()
        shifted = Blur(blur.psf, shape, boundary, origin=(psf_shape[0] - 1, 0))
        h = shifted.to_dense()
        assert np.abs(normal_matrix(shifted, 0.0) - h @ h.T).max() <= 1e-13 * np.abs(expected).max()


def test_structure_decides():
    gaussian, shake = deblur.psf.gaussian(9, 1.5), deblur.psf.camera_shake(17, 1)
    assert choose_method(Blur(gaussian, (256, 256), "periodic"), 1e-3).method == "fft"
    assert choose_method(Blur(gaussian, (256, 256), "reflect"), 1e-3).method == "dct"
    choice = choose_method(Blur(shake, (256, 256)), 1e-2)
    assert choice.method not in ("fft", "dct", "dst", "kronecker")
    assert "separable" in choice.refused["kronecker"]
    assert "periodic" in choice.refused["fft"]


def test_a_method_that_does_not_fit_memory_is_not_chosen():
    blur = Blur(deblur.psf.disk(5), (128, 128))
    choice = choose_method(blur, 1e-3, memory=64 << 20)
    for name in ("cholesky", "gauss-jordan", "lu", "gauss-seidel"):
        assert "free" in choice.refused[name]
    assert choice.method not in choice.refused
    with pytest.raises(
        deblur.InsufficientMemoryError, match=r"needed and 10 bytes are free.*deblur\.tiled"
    ) as refused:
        choose_method(blur, 1e-3, memory=10)
    assert refused.value.free == 10
    half = refused.value.needed // 2 + 1
    with pytest.raises(deblur.InsufficientMemoryError, match="dtype='float32', with half of it"):
        choose_method(blur, 1e-3, memory=half)


def test_frames_that_are_solved_for_in_turns_need_no_more_memory_than_one():
    blur = Blur(deblur.psf.motion(15, 30), (1024, 1024), "unknown")
    one = deblur.METHODS["pcg"].work(Problem(blur, 1e-2)).bytes
    assert choose_method(blur, 1e-2, frames=50, memory=int(one)).method == "pcg"


def test_what_a_rule_takes_is_a_part_of_what_is_predicted():
    problem = Problem(Blur(deblur.psf.motion(15, 30), (512, 512), "unknown"), 1e-2)
    given, quick, whole = (choose(problem, lam=lam).seconds["pcg"] for lam in (1e-2, "auto", "gcv"))
    assert given < quick < whole


def test_smaller_lambda_never_makes_an_iteration_cheaper():
    blur = Blur(deblur.psf.disk(7), (64, 64))
    for name in ("pcg", "gauss-seidel", "hybrid-lsqr"):
        seconds = [choose_method(blur, lam).seconds.get(name, np.inf) for lam in (1e-1, 1e-3, 1e-5)]
        assert seconds == sorted(seconds)


def test_choosing_allocates_nothing_large():
    import tracemalloc

    blur = Blur(deblur.psf.gaussian(15, 3), (2048, 2048), "zero")
    tracemalloc.start()
    choose_method(blur, 1e-3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2048 * 2048 * 8


@pytest.mark.parametrize("name", METHODS)
def test_every_row_is_complete(name):
    method = METHODS[name]
    assert method.name == name
    assert method.summary
    problem = Problem(Blur(np.ones((3, 3)) / 9, (8, 8), "zero"), 1e-2, method.penalty)
    reason = method.refuses(problem)
    assert reason is None or (isinstance(reason, str) and reason)
    if reason is None:
        work = method.work(problem)
        assert min(work.setup, work.solve, work.bytes) >= 0
        assert work.solve > 0
        many = method.work(replace(problem, frames=7))  # the cost model multiplies by the frames
        assert (many.setup, many.solve) == (work.setup, work.solve)
        assert many.bytes >= work.bytes


def test_what_restores_better_is_named_with_its_seconds():
    def seconds(size, **options):
        return methods.better(
            Problem(deblur.Blur(deblur.psf.disk(5), (size, size), "unknown"), 1e-3, **options)
        )

    small, large = seconds(128), seconds(1024)
    assert tuple(small) == tuple(large) == methods.BETTER
    for name in methods.BETTER:
        # In proportion to the pixels, and a little less, because windows stand for a large picture in looking for λ.
        assert 10 < large[name] / small[name] < 100
        assert seconds(128, frames=3)[name] > small[name]
    assert small["tv"] < small["collaborative"]
    given = methods.better(Problem(Blur(deblur.psf.disk(5), (128, 128), "unknown"), 1e-3), 1e-3, False)
    assert given["tv"] < small["tv"]  # λ looked for, and the boundary read
    assert seconds(128, formula="hht") == small  # a method named beside it is asked for with its own formula


@pytest.mark.parametrize("name", METHODS)
def test_the_cost_of_every_method_has_been_measured(name):
    assert name in costs.rates()["cpu"]


@pytest.mark.parametrize("name", ["pcg", "tv"])
def test_what_is_predicted_follows_the_pace_of_the_machine(name, monkeypatch):
    problem = Problem(Blur(deblur.psf.disk(5), (128, 128), "unknown"), 1e-3, METHODS[name].penalty)

    def seconds(lam=1e-3):
        return named(name, problem, lam=lam).seconds[name]

    monkeypatch.setattr(costs, "_pace", lambda threads: 1.0)
    usual, searched = seconds(), seconds("auto")
    assert searched > usual
    monkeypatch.setattr(costs, "_pace", lambda threads: 3.0)
    assert seconds() == pytest.approx(3 * usual)


def test_each_iteration_costs_something_however_small_the_picture(monkeypatch):
    problem = Problem(Blur(deblur.psf.disk(5), (16, 16), "unknown"), 1e-3, "tv", fit=Fit("poisson"), frames=2)
    rate = {"overhead": 1.0, "setup": 0.0, "solve": 0.0, "step": 0.5}
    monkeypatch.setattr(costs, "rates", lambda: {"cpu": {"richardson-lucy": rate}, "gpu": {}})
    monkeypatch.setattr(costs, "_pace", lambda threads: 1.0)
    work = METHODS["richardson-lucy"].work(problem)
    assert work.steps > 0
    assert costs.predicted_seconds("richardson-lucy", work, problem) == pytest.approx(1 + work.steps)


@pytest.mark.parametrize("method", ["auto", "tv"])
def test_importing_is_foretold_once(method, monkeypatch):
    for module in (costs, deblur.pipeline):
        monkeypatch.setattr(module, "loading_seconds", lambda *a: 1e6)
    g = deblur.data.load("camera64")
    result = deblur.solve(g, deblur.psf.disk(5), 1e-2, method=method, boundary="unknown")
    assert result.predicted_seconds == pytest.approx(1e6, rel=1e-2)
    blur = Blur(deblur.psf.disk(5), g.shape, "unknown")
    assert min(deblur.choose_method(blur, 1e-2).seconds.values()) >= 1e6  # of a first call


def test_the_pace_is_that_of_one_step_beside_the_recorded_one(monkeypatch):
    costs._pace.cache_clear()
    monkeypatch.setattr(costs, "step", lambda: 2 * costs.rates()["cpu"]["step"]["overhead"])
    try:
        assert costs.pace(CPU) == pytest.approx(2)
    finally:
        costs._pace.cache_clear()


def test_a_call_takes_about_as_long_as_its_parts():
    problem = Problem(Blur(deblur.psf.motion(15, 30), (256, 256), "unknown"), 1e-2)
    whole = methods.call_seconds("pcg", problem, "auto", read=True)
    assert methods.solve_seconds("pcg", problem) < methods.call_seconds("pcg", problem) < whole


def test_looking_for_lambda_takes_longer_with_psfs_that_vary():
    psfs = np.array([[deblur.psf.gaussian(9, s) for s in row] for row in ((0.8, 1.6), (1.6, 2.4))])
    varying = deblur.VaryingBlur(psfs, (64, 64), "unknown")
    one = costs.steps(Problem(Blur(psfs[0, 0], (64, 64), "unknown"), 1e-2))
    assert varying.terms > 1
    assert costs.steps(Problem(varying, 1e-2)) == pytest.approx(one * (1 + varying.terms) / 2)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.000412, "0.41 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.1 s"),
        (0.26, "0.26 s"),
        (12.3, "12 s"),
        (9123, "9100 s"),
    ],
)
def test_times_are_told_without_powers_of_ten(seconds, words):
    assert seconds_in_words(seconds) == words

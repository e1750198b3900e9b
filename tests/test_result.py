"""A result prints what was done, pickles, copies and compares."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import deblur

PSF = deblur.psf.gaussian(5, 1.0)


@pytest.fixture(scope="module")
def g():
    return deblur.degrade(deblur.data.load("camera")[:24, 200:224], PSF, noise=0.01, seed=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "cholesky", "boundary": "zero"}, "cholesky|lambda|residual|as requested|solved directly"),
        (
            {"method": "tv", "bounds": (0, 1), "data": "huber", "boundary": "unknown"},
            "tv|as requested|total variation|huber|0 ≤ f ≤ 1|objective|tolerance|unknown",
        ),
    ],
)
def test_it_prints_what_was_done(g, options, words):
    text = str(deblur.solve(g, PSF, 1e-3, **options))
    assert [word for word in words.split("|") if word not in text] == []


def test_an_objective_without_a_value_is_not_printed(g):
    result = deblur.solve(g, PSF, 1e-3, denoiser=lambda image, sigma: image)
    assert np.isnan(result.objective)
    assert "nan" not in str(result)


@pytest.mark.parametrize("method", ["cholesky", "pcg", "tv", "gradient", "richardson-lucy"])
def test_it_and_its_problem_pickle_copy_and_compare(g, method):
    boundary = "unknown" if method == "richardson-lucy" else "zero"
    result = deblur.solve(g, PSF, "auto", method=method, callback=lambda n, r: None, boundary=boundary)
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert again.problem == result.problem
        assert np.array_equal(again.image, result.image)
        assert again.status is result.status
        assert str(again) == str(result)
    assert result.problem != replace(result.problem, lam=2 * result.problem.lam + 1)

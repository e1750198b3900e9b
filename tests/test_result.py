"""A result prints what was done, pickles, copies and compares."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy

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


@pytest.mark.parametrize(
    ("method", "boundary", "h"),
    [
        ("hybrid-lsqr", "reflect", 10.0 ** np.random.default_rng(2).uniform(-8, 0, (3, 3))),
        ("pcg", "reflect", np.ones((7, 7))),
        ("identity", "unknown", np.ones((3, 5))),
    ],
)
def test_ok_means_the_right_image_whatever_residual_is_asked_for(method, boundary, h):
    """Against singular values, where an error of H by rounding changes the image by less than a thousandth."""
    formula, blur, checked = "hht" if method == "pcg" else "tikhonov", deblur.Blur(h, (7, 8), boundary), 0
    a = blur.to_dense()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        g = rng.random((7, 8)).astype("f8" if seed % 2 else "f4")
        lam = np.linalg.norm(a, 2) ** 2 * 10 ** rng.uniform(-20, -9)
        right, near = (_by_singular_values(x, lam, g, formula) for x in (a, a + 1e-15 * rng.standard_normal(a.shape)))
        if np.linalg.norm(near - right) > 1e-3 * np.linalg.norm(right):
            continue
        prior = "auto" if method == "identity" else "zero"
        options = {"boundary": boundary, "prior": prior, "formula": formula, "rtol": 10 ** rng.uniform(-13, -8)}
        found = deblur.solve(g, h, lam, method=method, check=False, **options)
        right = right.reshape(blur.scene_shape)[blur.crop]
        error = np.linalg.norm(found.image - right) / np.linalg.norm(right)
        assert not found.status.ok or error < 1e-2, (seed, error, found.why)
        checked += found.status.ok
    assert checked > 0


def _by_singular_values(a, lam, g, formula):
    u, s, vt = scipy.linalg.svd(a, full_matrices=formula == "hht", lapack_driver="gesvd")
    g = g.ravel().astype(float)
    return u @ (u.T @ (a.T @ g) / (s**2 + lam)) if formula == "hht" else vt.T @ (s / (s**2 + lam) * (u.T @ g))

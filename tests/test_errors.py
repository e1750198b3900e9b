"""Odd arguments end in one message that names the argument, its value and what is needed."""

import pickle
from functools import partial

import numpy as np
import pytest
from refusals import refused

import deblur
from deblur import linalg

FLAGS = {  # name of a flag: functions with their other arguments
    "overwrite": [(deblur.image.write, "a.png", np.eye(3))],
    "clean": [(deblur.psf.prepare, np.eye(3))],
    "centred": [(deblur.psf.prepare, np.eye(3))],
    "keep_q": [(partial(linalg.plan_update, "add_rows", 9, 5),), (linalg.QRModel, np.eye(3), np.ones(3))],
    "check_finite": [(f, np.eye(3)) for f in (linalg.qr, linalg.gram, linalg.cholesky, linalg.gauss_jordan_inverse)]
    + [(linalg.qr_insert, np.eye(3), np.eye(3), np.ones(3), 0), (linalg.qr_delete, np.eye(3), np.eye(3), 0)],
    "lower": [(linalg.gets, np.eye(3)), (linalg.solve_triangular, np.eye(3), np.ones(3))],
    "as_float": [(deblur.image.read, "a.png")],
    **{key: [(deblur.psf.load, "a.npy")] for key in ("normalize", "allow_negative")},
    "sparse": [(deblur.filter2matrix, np.eye(3), (9, 9))],
    "rescale": [(deblur.image.fit_to_levels, "a.png", np.eye(3), np.eye(3), 8)],
    "inverse": [(deblur.solve, np.eye(9), np.eye(3), 0.1), (deblur.tiled, np.eye(9), np.eye(3), 0.1)],
    "check": [(deblur.solve, np.eye(9), np.eye(3), 0.1), (deblur.Deblurrer(np.eye(3), (9, 9), 0.1).solve, np.eye(9))],
    "safe": [(deblur.plan_tiles, np.eye(3), 0.1, (9, 9))],
    "overwrite_a": [(linalg.cholesky, np.eye(3)), (linalg.gauss_jordan_inverse, np.eye(3))],
}


@pytest.mark.parametrize("value", [np.ones(2), "yes", None, 2])
@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_true_or_false(tmp_path, monkeypatch, name, value):
    monkeypatch.chdir(tmp_path)
    for function, *arguments in FLAGS[name]:
        refused(TypeError, f"{name} must be True or False, not ", function, *arguments, **{name: value})


ODD = [
    ("image must be an array", deblur.image.is_colour, None),
    ("orientation must be a whole number", deblur.image.upright, np.eye(3), "x"),
    ("rows must be a whole number", deblur.image.upright, np.eye(3), 1, "x"),
    ("image must be an array", deblur.image.check_format, "a.png", "a.jpg"),
    ("8 or 16 bits a sample, not array", deblur.image.check_format, "a.png", np.eye(3), np.ones(2)),
    ("inputs must be a list of paths, not 'b.png'", deblur.image.check_output, "a.png", "b.png"),
    ("metadata must be a Metadata", partial(deblur.image.write, "a.png", metadata={}), np.eye(3)),
    ("scale, new pixels in one old pixel", partial(deblur.psf.prepare, scale=[[1], [1, 2]]), np.eye(3)),
    ("exposure must be a whole number", deblur.QRDeblurrer(np.eye(3), (9, 9), 0.1).hide, np.zeros((9, 9), bool), "x"),
    ("rhs must be a whole number", partial(linalg.plan_update, "add_rows", 9, 5, rhs=-1)),
    ("shape is not an array: its parts differ", linalg.choose_qr, [[1], [2, 3]]),
    ("λ must be a finite number >= 0, not inf", deblur.choose_method, deblur.Blur(np.eye(3), (9, 9)), np.inf),
    ("bounds must be two .* not ''", partial(deblur.choose_lambda, bounds=""), deblur.Blur([[1]], (9, 9)), np.eye(9)),
    (r"images \(rows, columns\), not shape \(5, 'a'\)", deblur.VaryingBlur, np.eye(3)[None, None], (5, "a")),
    ("shapes of f and g", deblur.filter2matrix, np.eye(3), [[1, 2], [3]]),
    ("too small; take at least 16 x 16", deblur.psf.from_edge, np.ones((1, 58))),
    ("positions must be an array", deblur.psf.from_points, np.eye(9), "text"),
    ("a PSF of 1000.* YiB, and", deblur.psf.box, 1e300),
    ("shape must be a whole number of pixels .* not array", deblur.plan_tiles, np.eye(3), 0.1, np.array("s")),
    ("passes must be a positive whole number, not 0.5", partial(deblur.plan_tiles, passes=0.5), np.eye(3), 0.1, (9, 9)),
    ("unknown device array", partial(deblur.plan_tiles, device=np.ones(2)), np.eye(3), 0.1, (9, 9)),
    (r"grid must be \(rows, columns\), not 3", deblur.psf.load_grid, ".", 3),
    ("Q and R must be matrices, .*one by one", linalg.qr_insert, np.ones((2, 3, 3)), np.ones((2, 3, 3)), np.ones(3), 0),
    ("λ = 1e-24 ‖H‖²: the smallest", partial(deblur.solve, method="fft"), np.eye(4), 1e9 * np.ones((2, 1)), 4e-6),
    (r"an image \(..., M, N\) is needed, not shape \(3,\)", deblur.masks.saturated, np.ones(3)),
    ("integrated must be True or False", deblur.psf.gaussian, 3, 1.0, np.ones(2)),
    ("axes must be a positive whole number, not 'x'", deblur.tuning.estimate_noise, np.eye(9), None, "x"),
    ("psf must be a non-empty 2-D array, not shape", deblur.tuning.psf_error, np.eye(9), np.ones(3)),
    ("frames must be a positive", partial(deblur.choose_method, frames="x"), deblur.Blur([[1]], (9, 9)), 1),
    ("not array", partial(deblur.degrade, noise=np.ones(2)), np.eye(9), np.eye(3)),
    ("outsize must be .* below 2", deblur.matlab.psf2otf, np.eye(3), (2**63, 3)),
    ("singular_values: real numbers are needed", deblur.plot.filter_factors, ["a"], 1),
    ("the solution overflows the range of float64", linalg.QRModel([[1e-300]], [1e300]).solve),
    (r"background=1e\+300 leaves no digit", partial(deblur.solve, np.eye(9), np.eye(3), 0.1, background=1e300)),
]


@pytest.mark.parametrize(("words", "function", "arguments"), [(words, f, rest) for words, f, *rest in ODD])
def test_an_odd_argument_is_named_with_its_value(tmp_path, monkeypatch, words, function, arguments):
    monkeypatch.chdir(tmp_path)
    refused((TypeError, ValueError, MemoryError), words, function, *arguments)


@pytest.mark.parametrize("name", ["ConvergenceError", "InsufficientMemoryError", "SingularMatrixError"])
def test_an_error_travels_between_processes(name):
    error = getattr(deblur, name)("words")
    error.needed = error.index = 5
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.__dict__) == ("words", error.__dict__)


def test_a_result_is_found_in_a_list():
    first, second = (deblur.solve(np.eye(9), np.eye(3), 0.1) for _ in range(2))
    assert [second, first].index(first) == 1


def test_no_pixel_is_no_light():
    assert deblur.image.linear_light([]).size == 0

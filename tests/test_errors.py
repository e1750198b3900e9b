"""Odd arguments end in one message that names the argument, its value and what is needed."""

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
    ("shape is no array: its parts differ", linalg.choose_qr, [[1], [2, 3]]),
    (r"background=1e\+300 leaves no digit", partial(deblur.solve, np.eye(9), np.eye(3), 0.1, background=1e300)),
]


@pytest.mark.parametrize(("words", "function", "arguments"), [(words, f, rest) for words, f, *rest in ODD])
def test_an_odd_argument_is_named_with_its_value(tmp_path, monkeypatch, words, function, arguments):
    monkeypatch.chdir(tmp_path)
    refused((TypeError, ValueError), words, function, *arguments)


def test_no_pixel_is_no_light():
    assert deblur.image.linear_light([]).size == 0

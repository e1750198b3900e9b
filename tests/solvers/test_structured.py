"""Methods by a transform, small decompositions or a band: dense answers, spectra by NumPy, float32 and stacks."""

import pytest
from structured import (
    LINE,
    OTHERS,
    PSFS,
    VOLUME,
    check_against_dense,
    check_float32,
    check_spectrum,
    check_stack_is_frames,
)

from deblur.operators.blur import Blur
from deblur.operators.boundary import BOUNDARIES
from deblur.problem import Problem
from deblur.solvers import banded, cosine, fourier, kronecker, sine

SHAPES = [(7, 8), (8, 7), (8, 8), (11, 13), (6, 6), (1, 6), (5, 1), (4, 2), (3, 3), (1, 1), LINE, VOLUME]
KINDS = PSFS | OTHERS
SYMMETRIC = ["symmetric", "symmetric3", "column", "row", "binomial", "pixel"]
SEPARABLE = ["separable", "binomial", "column", "row", "pixel", "even line", "even volume"]


@pytest.mark.parametrize(
    ("solver", "boundary", "names", "least"),
    [
        (fourier, "periodic", KINDS, 50),
        (cosine, "reflect", SYMMETRIC, 40),
        (sine, "zero", SYMMETRIC, 40),
        (sine, "antireflect", SYMMETRIC, 60),
        *((kronecker, boundary, SEPARABLE, 15 if boundary == "unknown" else 30) for boundary in BOUNDARIES),
    ],
)
def test_equals_the_dense_answer(rng, xp, solver, boundary, names, least):
    assert check_against_dense(solver, rng, boundary, SHAPES, names, xp=xp) >= least


KRONECKER = [("separable", (7, 8)), ("binomial", (9, 9)), ("even line", LINE), ("even volume", VOLUME)]


@pytest.mark.parametrize(
    ("solver", "name", "shape", "boundary"),
    [
        (fourier, "asymmetric", (7, 8), "periodic"),
        (fourier, "even", (8, 7), "periodic"),
        (fourier, "even line", LINE, "periodic"),
        (fourier, "volume", VOLUME, "periodic"),
        (fourier, "volume", (4, 5, 6), "periodic"),
        *((cosine, name, (7, 10), "reflect") for name in ("symmetric", "row", "binomial")),
        *((sine, name, (7, 10), "zero") for name in ("symmetric3", "column", "pixel")),
        *((kronecker, name, shape, boundary) for name, shape in KRONECKER for boundary in BOUNDARIES),
    ],
)
def test_spectrum(rng, solver, name, shape, boundary):
    check_spectrum(solver, Blur(KINDS[name], shape, boundary), rng)


@pytest.mark.parametrize(
    ("solver", "name", "boundary", "formula", "tolerance"),
    [
        (fourier, "even", "periodic", "tikhonov", 1e-5),
        (cosine, "symmetric", "reflect", "tikhonov", 1e-5),
        (sine, "symmetric3", "zero", "tikhonov", 2e-5),
        (sine, "symmetric3", "antireflect", "hht", 2e-5),
        (kronecker, "separable", "zero", "tikhonov", 1e-5),
        (kronecker, "binomial", "zero", "hht", 1e-5),
        (banded, "asymmetric", "zero", "hht", 2e-5),
    ],
)
def test_a_stack_is_its_frames_and_float32_stays_float32(rng, solver, name, boundary, formula, tolerance):
    check_stack_is_frames(solver, Problem(Blur(PSFS[name], (9, 12), boundary), 1e-3, formula=formula), rng)
    check_float32(solver, Blur(PSFS[name], (16, 15), boundary), rng, tolerance)

"""Method fft against the dense answer, and its spectrum against NumPy's SVD."""

import numpy as np
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
    relative_error,
    solved,
)

from deblur.errors import SingularMatrixError
from deblur.operators.blur import Blur
from deblur.problem import Problem
from deblur.solvers import fourier

SHAPES = [(7, 8), (8, 7), (11, 13), (1, 6), (5, 1), (1, 1), LINE, VOLUME]


def test_equals_the_dense_answer(rng, xp):
    assert check_against_dense(fourier, rng, "periodic", SHAPES, xp=xp) >= 50


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("asymmetric", (7, 8)),
        ("even", (8, 7)),
        ("even line", LINE),
        ("volume", VOLUME),
        ("volume", (4, 5, 6)),
    ],
)
def test_spectrum(rng, name, shape):
    check_spectrum(fourier, Blur((PSFS | OTHERS)[name], shape, "periodic"), rng)


def test_stack_is_its_frames(rng):
    check_stack_is_frames(fourier, Problem(Blur(PSFS["even"], (9, 8), "periodic"), 1e-3), rng)


def test_float32(rng):
    check_float32(fourier, Blur(PSFS["asymmetric"], (16, 15), "periodic"), rng)


def test_refuses_other_boundaries():
    assert "reflect" in fourier.refuses(Problem(Blur(PSFS["even"], (9, 8), "reflect"), 1e-3))


def test_lambda_zero(rng):
    sharp = np.zeros((3, 3))
    sharp[1, 1], sharp[0, 1] = 1, 0.25  # its transform stays away from zero
    blur = Blur(sharp, (8, 9), "periodic")
    f = rng.standard_normal((1, 8, 9))
    restored, _ = solved(fourier, Problem(blur, 0.0), blur.forward(f))
    assert relative_error(restored, f) <= 1e-12
    with pytest.raises(SingularMatrixError, match="larger λ"):
        fourier.prepare(Problem(Blur(np.full((2, 2), 0.25), (8, 8), "periodic"), 0.0))


def test_memory_counts_the_spectrum_and_the_image():
    assert fourier.memory(Problem(Blur(PSFS["even"], (64, 64), "periodic"), 1e-3)) >= 64 * 64 * 8 * 3
